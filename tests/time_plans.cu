/* time_plans.cu: times every plan that a product can run by, over random shapes, as CSV: what bsri_costs_of was fitted to
   (tests/fit_plans.py), and is checked against with other seeds.

     nvcc -O2 -std=c++17 -arch=sm_90a -I. -DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_BF16 tests/time_plans.cu -o build/time_plans
     build/time_plans SEED COUNT [bf16|f16|f32|i8[+relu|+tf32]] [M,K,N,block,sparsity[,1: columns are contiguous] ...]

   Random-normal operands, calls back to back in CUDA graphs, plans in turn; the median of the rounds. Results are compared with
   each other. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <algorithm>
#include <stdio.h>
#include <vector>

static const bsr_context *gpu;
static cudaStream_t stream;
/* What is only read, random-normal; what is written. */
static struct arena {
    char *data;
    size_t size, used;
} inputs = {NULL, (size_t)2 << 30, 0}, others = {NULL, (size_t)2 << 30, 0};
static uint64_t state;
static unsigned *wrong; /* elements of results */
static bsr_epilogue relu;
static uint32_t flags = BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG;
static int refused;
static const char *kind = "bf16"; /* of products: a type, and what comes with it */

static void check(cudaError_t e) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
    exit(1);
}
static uint64_t draw(uint64_t below) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}
static __global__ void fill(void *data, int dtype, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        float v = 0;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9), z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb), z ^= z >> 31;
        for (int k = 0; k < 4; k++) v += (float)((z >> 16 * k) & 0xffff) / 65536.0f - 0.5f;
        if (dtype == BSR_I8) ((int8_t *)data)[i] = (int8_t)(v * 14);
        else bsri_dev_store(data, dtype, i, v * 1.7f);
    }
}
static void *take(arena *a, size_t bytes) {
    void *p = a->data + a->used;
    a->used += (bytes + 4095) / 4096 * 4096;
    if (a->used > a->size) fprintf(stderr, "out of memory\n"), exit(1);
    return p;
}

/* How many elements of two results differ by more than rounding. */
static __global__ void compare(const void *x, const void *y, int dtype, int64_t n, unsigned *wrong) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const float a = dtype == BSR_BF16  ? __bfloat162float(((const __nv_bfloat16 *)x)[i])
                        : dtype == BSR_F16 ? __half2float(((const __half *)x)[i])
                        : dtype == BSR_F32 ? ((const float *)x)[i]
                                           : (float)((const int32_t *)x)[i];
        const float b = dtype == BSR_BF16  ? __bfloat162float(((const __nv_bfloat16 *)y)[i])
                        : dtype == BSR_F16 ? __half2float(((const __half *)y)[i])
                        : dtype == BSR_F32 ? ((const float *)y)[i]
                                           : (float)((const int32_t *)y)[i];
        if (!(fabsf(a - b) <= 0.01f * fabsf(b) + 0.01f)) atomicAdd(wrong, 1u);
    }
}

struct shape {
    int64_t m, k, n, b;
    double s;
    int columns; /* b's */
};
struct plan {
    bsr_plan p;
    cudaGraphExec_t run;
    std::vector<float> us;
};
static shape random_shape(double most) {
    static const int64_t mk[] = {256,  384,  512,  640,  768,  1024, 1280,  1536, 2048,
                                 2560, 3072, 4096, 5120, 6144, 8192, 11008, 14336};
    static const int64_t n[] = {64,   96,   128,  192,  256,  320,  384,  512,  640,   768,   1000,  1024,
                                1536, 2048, 2560, 3000, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536};
    static const double s[] = {0, .3, .5, .6, .7, .8, .85, .9, .95, .98};
    static const int64_t b[] = {16, 16, 16, 32, 32, 32, 64, 64, 128, 128};
    for (;;) {
        shape x = {mk[draw(17)], mk[draw(17)], n[draw(24)], b[draw(10)], s[draw(10)], draw(5) == 0};
        const double flop = 2.0 * (double)(x.m * x.k) * (double)x.n * (1 - x.s);
        if (flop > most || (double)x.m * (double)x.n > 4e8 || (double)x.k * (double)x.n > 4e8) continue;
        return x;
    }
}
static bsr_matrix matrix(const shape &x, int dtype) {
    const int64_t rows = x.m / x.b, cols = x.k / x.b, total = rows * cols, nnz = bsr_kept_blocks(total, x.s);
    std::vector<int32_t> crow, col;
    int64_t left = nnz;
    crow.push_back(0);
    for (int64_t i = 0; i < total; i++) {
        if ((int64_t)draw((uint64_t)(total - i)) < left) col.push_back((int32_t)(i % cols)), left--;
        if (i % cols == cols - 1) crow.push_back((int32_t)col.size());
    }
    void *c = take(&others, crow.size() * 4), *d = take(&others, col.size() * 4 + 4);
    check(cudaMemcpy(c, crow.data(), crow.size() * 4, cudaMemcpyHostToDevice));
    check(cudaMemcpy(d, col.data(), col.size() * 4, cudaMemcpyHostToDevice));
    return bsr_matrix_make(x.m, x.k, x.b, x.b, nnz, c, d, BSR_I32,
                           take(&inputs, (size_t)(nnz * x.b * x.b) * bsr_dtype_size(dtype)), dtype);
}
static float elapsed(cudaGraphExec_t run, int calls) {
    static cudaEvent_t a, b;
    float ms;
    if (!a) check(cudaEventCreate(&a)), check(cudaEventCreate(&b));
    check(cudaEventRecord(a, stream));
    check(cudaGraphLaunch(run, stream));
    check(cudaEventRecord(b, stream));
    check(cudaEventSynchronize(b));
    check(cudaEventElapsedTime(&ms, a, b));
    return ms * 1000 / (float)calls;
}
template <class F> static cudaGraphExec_t graph_of(F call, int calls) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) call();
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&run, graph, 0));
    check(cudaGraphDestroy(graph));
    return run;
}

static bool same(const bsr_plan &x, const bsr_plan &y) {
    return x.instance == y.instance && x.tile_rows == y.tile_rows && x.tile_cols == y.tile_cols && x.split == y.split &&
           x.order == y.order;
}
/* All plans that differ; call: queries ex. */
template <class F> static std::vector<plan> plans_of(F call, bsr_exec &ex) {
    static const int rows[] = {0, 16, 32, 64, 128}, cols[] = {0, 64, 128, 192, 256},
                     ways[][2] = {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {1, 1}, {1, 2}}; /* split, order */
    std::vector<plan> plans;
    bsr_plan asked, got = BSR_ZERO;
    for (int tier = 2; tier <= 3; tier++)
        for (int r : rows)
            for (int c : cols)
                for (const int(&way)[2] : ways) {
                    bool known = false;
                    memset(&asked, 0, sizeof asked);
                    asked.kernel = tier, asked.tile_rows = r, asked.tile_cols = c, asked.split = way[0], asked.order = way[1];
                    ex.plan = &asked, ex.query = &got;
                    if (call() != BSR_OK) continue;
                    for (plan &o : plans) known |= same(o.p, got);
                    if (!known) plans.push_back({got, NULL, {}});
                }
    ex.query = NULL;
    return plans;
}
static void time_shape(const shape &x, int dtype) {
    const int result = dtype == BSR_I8 ? BSR_I32 : dtype;
    const size_t bytes = (size_t)(x.m * x.n) * bsr_dtype_size(result);
    const bsr_matrix a = matrix(x, dtype);
    void *data = take(&inputs, (size_t)(x.k * x.n) * bsr_dtype_size(dtype)), *first = NULL;
    const bsr_dense b = x.columns ? bsr_dense_col_major(data, dtype, x.k, x.n) : bsr_dense_row_major(data, dtype, x.k, x.n);
    const bsr_dense out = bsr_dense_row_major(take(&others, bytes), result, x.m, x.n);
    const double flop = 2.0 * (double)a.nnz * (double)(x.b * x.b) * (double)x.n, rate = dtype == BSR_F32 ? 3e13 : 2e14;
    const int calls = (int)std::max(2.0, std::min(24.0, 200e-6 / (flop / rate + 5e-6)));
    bsr_plan chosen = BSR_ZERO;
    bsr_exec ex = BSR_ZERO;
    auto call = [&] { return bsr_dense_addmm(gpu, 0, NULL, 1, 0, &a, &b, &relu, &out, &ex); };
    ex.stream = stream, ex.flags = flags, ex.query = &chosen;
    if (call() != BSR_OK) {
        fprintf(stderr, "%lld x %lld x %lld, blocks of %d: refused\n", (long long)x.m, (long long)x.k, (long long)x.n, (int)x.b);
        inputs.used = others.used = 0, refused++;
        return;
    }
    std::vector<plan> plans = plans_of(call, ex);
    if (bytes < 64 << 20) first = take(&others, bytes); /* the result of the first plan, which others are compared with */
    for (plan &y : plans) {
        ex.plan = &y.p;
        check(cudaMemsetAsync(out.data, 255, bytes, stream));
        if (call() != BSR_OK) fprintf(stderr, "refused\n"), exit(1);
        if (first && &y == &plans[0]) check(cudaMemcpyAsync(first, out.data, bytes, cudaMemcpyDeviceToDevice, stream));
        if (first) compare<<<1024, 256, 0, stream>>>(out.data, first, result, x.m * x.n, wrong);
        y.run = graph_of(call, calls);
    }
    for (int round = 0; round < 6; round++)
        for (plan &y : plans) {
            const float us = elapsed(y.run, calls);
            if (round) y.us.push_back(us);
        }
    for (plan &y : plans) {
        check(cudaGraphExecDestroy(y.run));
        std::sort(y.us.begin(), y.us.end());
        printf("%s,%d,%d,%d,%d,%g,%d,%d,%d,%d,%d,%d,%d,%.3f,%d\n", kind, (int)x.m, (int)x.k, (int)x.n, (int)x.b, x.s, x.columns,
               y.p.kernel, y.p.instance, y.p.tile_rows, y.p.tile_cols, y.p.split, y.p.order, y.us[y.us.size() / 2],
               same(y.p, chosen));
    }
    fflush(stdout);
    inputs.used = others.used = 0;
}

int main(int argc, char **argv) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *made;
    const int seed = argc > 1 ? atoi(argv[1]) : 1, count = argc > 2 ? atoi(argv[2]) : 0;
    int dtype = BSR_BF16, i;
    if (argc > 3) kind = argv[3];
    for (i = BSR_F16; i <= BSR_I8; i++)
        if (!strncmp(kind, bsr_dtype_name(i), strlen(bsr_dtype_name(i)))) dtype = i;
    if (strstr(kind, "+relu")) relu.activation = BSR_ACT_RELU;
    if (strstr(kind, "+tf32")) flags |= BSR_EXEC_TF32;
    d.backend = BSR_BACKEND_CUDA;
    if (bsr_create(&d, &made, NULL) != BSR_OK) return 1;
    gpu = made;
    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&inputs.data, inputs.size));
    check(cudaMalloc(&others.data, others.size));
    check(cudaMallocManaged(&wrong, sizeof *wrong));
    *wrong = 0;
    fill<<<2048, 256>>>(inputs.data, dtype, (int64_t)(inputs.size / bsr_dtype_size(dtype)));
    check(cudaDeviceSynchronize());
    for (i = 4; i < argc; i++) {
        long long m, k, n, b;
        shape x;
        double s;
        int columns = dtype == BSR_I8;
        if (sscanf(argv[i], "%lld,%lld,%lld,%lld,%lf,%d", &m, &k, &n, &b, &s, &columns) < 5) return 1;
        x.m = m, x.k = k, x.n = n, x.b = b, x.s = s, x.columns = columns, state = 1;
        time_shape(x, dtype);
    }
    for (i = 0; i < count; i++) {
        shape x;
        state = (uint64_t)seed * 1000003 + (uint64_t)i, draw(2), draw(2), x = random_shape(dtype == BSR_F32 ? 8e9 : 8e10);
        if (dtype == BSR_I8) x.columns = 1;
        time_shape(x, dtype);
    }
    check(cudaDeviceSynchronize());
    if (*wrong) fprintf(stderr, "%u elements of results differ between plans\n", *wrong);
    if (refused) fprintf(stderr, "%d shapes refused\n", refused);
    return *wrong || refused;
}
