/* bench_gpu.cu: the library for bench_gpu.py and parity.py (nvcc -shared; any C compiler for the CPU backend alone), and with
   BENCH_MAIN a benchmark of its own, for machines without PyTorch: bsrsparse beside the device's copy rate, as CSV lines.
   Random-normal data, CUDA-graph timing. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <time.h>

#ifdef __cplusplus
#define BENCH_API extern "C"
#else
#define BENCH_API
#endif

static double bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Microseconds of host time that one call takes; not synchronised. Negative: a call failed. */
BENCH_API double bench_host_us(const bsr_context *ctx, const bsr_matrix *a, const bsr_dense *b, const bsr_dense *out,
                               const bsr_exec *exec, int calls) {
    const double start = bench_seconds();
    for (int i = 0; i < calls; i++)
        if (bsr_dense_addmm(ctx, 0.0, NULL, 1.0, 0, a, b, NULL, out, exec) != BSR_OK) return -1.0;
    return (bench_seconds() - start) * 1e6 / calls;
}

#ifdef BENCH_MAIN
#include "bench.cuh"

static const bsr_context *gpu;
static cudaStream_t stream;
static double copy_rate; /* bytes per second, read and written */

static void *numbers(scratch &w, int64_t n, int dtype) {
    switch (dtype) {
        case BSR_BF16: return w.numbers<__nv_bfloat16>(n);
        case BSR_I8: return w.numbers<int8_t>(n);
        default: return w.numbers<float>(n);
    }
}
static bsr_matrix pattern(scratch &w, int64_t rows, int64_t cols, int64_t block, double sparsity, int dtype) {
    const blocks p = random_blocks(rows / block, cols / block, sparsity);
    return bsr_matrix_make(rows, cols, block, block, p.nnz(), w.copy(p.crow), w.copy(p.col), BSR_I32,
                           numbers(w, p.nnz() * block * block, dtype), dtype);
}

static void row(const char *what, const char *name, int64_t block, double sparsity, double ms, double flops, double bytes) {
    if (ms <= 0) printf("%s,%s,%d,%.2f,,,,not in this version\n", what, name, (int)block, sparsity);
    else
        printf("%s,%s,%d,%.2f,%.5f,%.2f,%.3f,%.3f\n", what, name, (int)block, sparsity, ms, flops / ms / 1e9, bytes / ms / 1e9,
               bytes / ms * 1e3 / copy_rate);
    fflush(stdout);
}

static void product(int64_t m, int64_t k, int64_t n, int64_t block, double sparsity, int dtype, int result, int columns) {
    scratch w;
    bsr_exec ex = BSR_ZERO;
    const bsr_matrix a = pattern(w, m, k, block, sparsity, dtype);
    const int64_t size = (int64_t)bsr_dtype_size(dtype);
    bsr_dense b = bsr_dense_row_major(numbers(w, k * n, dtype), dtype, k, n), out;
    void *c = numbers(w, m * n, result);
    char name[80];
    ex.stream = stream;
    if (columns) b = bsr_dense_col_major(b.data, dtype, k, n);
    out = columns ? bsr_dense_col_major(c, result, m, n) : bsr_dense_row_major(c, result, m, n);
    const double ms = timed(stream, [&] { return bsr_dense_mm(gpu, 0, &a, &b, &out, &ex); });
    snprintf(name, sizeof name, "%lldx%lldx%lld %s %s", (long long)m, (long long)k, (long long)n, bsr_dtype_name(dtype),
             columns ? "column-major" : "row-major");
    row("product", name, block, sparsity, ms, 2.0 * (double)a.nnz * (double)(block * block) * (double)n,
        (double)(a.nnz * block * block * size));
}
static void sampled(int64_t block, double sparsity) {
    scratch w;
    bsr_exec ex = BSR_ZERO;
    const int64_t n = 4096;
    const bsr_matrix out = pattern(w, n, n, block, sparsity, BSR_BF16);
    const bsr_dense x = bsr_dense_row_major(numbers(w, n * n, BSR_BF16), BSR_BF16, n, n);
    const bsr_dense y = bsr_dense_row_major(numbers(w, n * n, BSR_BF16), BSR_BF16, n, n);
    ex.stream = stream;
    const double ms = timed(stream, [&] { return bsr_sampled_addmm(gpu, 0, NULL, 1, &x, &y, &out, &ex); });
    row("sampled", "4096^3 bf16", block, sparsity, ms, 2.0 * (double)out.nnz * (double)(block * block * n), 0);
}
static void rows(int64_t block, double sparsity) {
    scratch w;
    bsr_exec ex = BSR_ZERO;
    const bsr_matrix x = pattern(w, 16384, 8192, block, sparsity, BSR_BF16);
    bsr_matrix y = x, dy = x;
    const int64_t n = x.nnz * block * block;
    y.values = numbers(w, n, BSR_BF16), dy.values = numbers(w, n, BSR_BF16);
    ex.stream = stream;
    double ms = timed(stream, [&] { return bsr_softmax(gpu, 1, &x, NULL, &y, &ex); });
    row("softmax", "16384x8192 bf16", block, sparsity, ms, 0, 4.0 * (double)n);
    ms = timed(stream, [&] { return bsr_softmax_backward(gpu, 1, &y, &dy, &dy, &ex); });
    row("softmax_backward", "16384x8192 bf16", block, sparsity, ms, 0, 6.0 * (double)n);
}
static void attention(int64_t batch, int64_t heads, int64_t length, int64_t width, int64_t block, double sparsity) {
    scratch w;
    bsr_exec ex = BSR_ZERO;
    const bsr_matrix mask = pattern(w, length, length, block, sparsity, BSR_BF16);
    bsr_dense d[4];
    char name[80];
    for (bsr_dense &t : d) {
        void *p = numbers(w, batch * heads * length * width, BSR_BF16);
        t = bsr_dense_batched(bsr_dense_row_major(p, BSR_BF16, length, width), heads, length * width);
        t = bsr_dense_batched(t, batch, heads * length * width);
    }
    ex.stream = stream;
    const double ms = timed(stream, [&] { return bsr_attention(gpu, 0, &d[0], &d[1], &d[2], &mask, NULL, &d[3], NULL, &ex); });
    snprintf(name, sizeof name, "B%lld H%lld S%lld D%lld bf16", (long long)batch, (long long)heads, (long long)length,
             (long long)width);
    row("attention", name, block, sparsity, ms, 4.0 * (double)(batch * heads * width) * (double)(mask.nnz * block * block), 0);
}
static void copy(void) {
    const size_t bytes = (size_t)1 << 30;
    scratch w;
    void *x = w.bytes(bytes), *y = w.bytes(bytes);
    const double ms =
        timed(stream, [&] { return cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream) ? BSR_CUDA_ERROR : BSR_OK; });
    copy_rate = 2.0 * (double)bytes / ms * 1e3;
    row("copy", "1 GiB", 0, 0, ms, 0, 2.0 * (double)bytes);
}

int main(void) {
    static const int64_t blocks[] = {16, 32, 64, 128};
    static const double sparsities[] = {0.5, 0.8, 0.95};
    bsr_context_desc d = BSR_ZERO;
    bsr_context *ctx;
    bsr_error e;
    char line[300];
    d.backend = BSR_BACKEND_CUDA;
    if (bsr_create(&d, &ctx, &e) != BSR_OK) {
        bsr_error_string(&e, line, sizeof line);
        fprintf(stderr, "no GPU: %s\n", line);
        return 1;
    }
    gpu = ctx;
    check(cudaStreamCreate(&stream));
    puts("operation,shape,block,sparsity,ms,stored TFLOP/s,TB/s,share of the copy rate");
    copy();
    for (int columns = 0; columns < 2; columns++)
        for (int64_t b : blocks)
            for (double s : sparsities) product(4096, 4096, 4096, b, s, BSR_BF16, BSR_BF16, columns);
    for (int64_t b : blocks) product(4096, 4096, 4096, b, 0.5, BSR_F32, BSR_F32, 0);
    for (int64_t b : blocks) product(4096, 4096, 4096, b, 0.5, BSR_I8, BSR_I32, 1);
    for (int64_t n : {1, 8, 16}) {
        product(14336, 4096, n, 64, 0.9, BSR_BF16, BSR_BF16, 0);
        product(4096, 14336, n, 64, 0.9, BSR_BF16, BSR_BF16, 0);
    }
    for (int64_t b : blocks)
        for (double s : {0.5, 0.8}) sampled(b, s);
    for (int64_t b : blocks) rows(b, 0.8);
    attention(2, 16, 4096, 64, 128, 0.75);
    attention(2, 16, 4096, 128, 128, 0.75);
    attention(2, 16, 4096, 128, 64, 0.75);
    attention(1, 16, 8192, 128, 128, 0.9);
    attention(1, 8, 4096, 64, 32, 0.9);
    bsr_destroy(ctx);
    return 0;
}
#endif /* BENCH_MAIN */
