/* bench_cusparse.cu: cuSPARSE on the shapes of bench_gpu.py: SpMM on BSR and on Blocked-ELL, SDDMM on BSR, beside cuBLAS. Random
   data, exact block counts (Blocked-ELL: the same number in every block row), medians of event timings, CSV lines. What a
   version of cuSPARSE refuses is said in the line. */
#include "bench.cuh"

#include <cublas_v2.h>
#include <cusparse.h>

#include <numeric>

static cusparseHandle_t sparse;
static cublasHandle_t blas;
static cudaStream_t stream;
static std::mt19937_64 engine(1);

static __nv_bfloat16 *numbers(scratch &w, int64_t n) { return w.numbers<__nv_bfloat16>(n); }
static void row(const char *what, const char *layout, int64_t m, int64_t k, int64_t n, int64_t b, double s, double ms,
                double flops, const char *note) {
    printf("%s,%s,%lldx%lldx%lld,%lld,%.2f,", what, layout, (long long)m, (long long)k, (long long)n, (long long)b, s);
    if (ms > 0) printf("%.5f,%.2f,%s\n", ms, flops / ms / 1e9, note);
    else printf(",,%s\n", note);
    fflush(stdout);
}

static const float one = 1, zero = 0;
static const char refused[] = "refused by this cuSPARSE";

/* op(A) B for a sparse descriptor, whatever its format. */
static double spmm(scratch &w, cusparseSpMatDescr_t a, cusparseDnMatDescr_t b, cusparseDnMatDescr_t c,
                   cusparseSpMMAlg_t algorithm) {
    const cusparseOperation_t none = CUSPARSE_OPERATION_NON_TRANSPOSE;
    size_t bytes = 0;
    if (cusparseSpMM_bufferSize(sparse, none, none, &one, a, b, &zero, c, CUDA_R_32F, algorithm, &bytes)) return 0;
    void *buffer = w.bytes(bytes);
    return timed(stream,
                 [&] { return (int)cusparseSpMM(sparse, none, none, &one, a, b, &zero, c, CUDA_R_32F, algorithm, buffer); });
}
static cusparseDnMatDescr_t dense(void *p, int64_t rows, int64_t cols, int columns) {
    cusparseDnMatDescr_t d;
    if (cusparseCreateDnMat(&d, rows, cols, columns ? rows : cols, p, CUDA_R_16BF,
                            columns ? CUSPARSE_ORDER_COL : CUSPARSE_ORDER_ROW))
        exit(1);
    return d;
}

static void bsr(int64_t m, int64_t k, int64_t n, int64_t b, double s, int columns) {
    scratch w;
    const blocks p = random_blocks(m / b, k / b, s);
    cusparseSpMatDescr_t a;
    const int64_t nnz = p.nnz();
    double ms = 0;
    if (!cusparseCreateBsr(&a, m / b, k / b, nnz, b, b, w.copy(p.crow), w.copy(p.col), numbers(w, nnz * b * b),
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF, CUSPARSE_ORDER_ROW)) {
        cusparseDnMatDescr_t x = dense(numbers(w, k * n), k, n, columns), y = dense(numbers(w, m * n), m, n, columns);
        ms = spmm(w, a, x, y, CUSPARSE_SPMM_BSR_ALG1);
        cusparseDestroyDnMat(x), cusparseDestroyDnMat(y), cusparseDestroySpMat(a);
    }
    row("cusparse BSR SpMM", columns ? "col" : "row", m, k, n, b, s, ms, 2.0 * (double)(nnz * b * b) * (double)n,
        ms > 0 ? "" : refused);
}

static void ell(int64_t m, int64_t k, int64_t n, int64_t b, double s, int columns) {
    scratch w;
    const int64_t rows = m / b, cols = k / b, width = std::max<int64_t>(1, llround((1 - s) * (double)cols));
    std::vector<int32_t> col((size_t)(rows * width)), all((size_t)cols);
    cusparseSpMatDescr_t a;
    double ms = 0;
    std::iota(all.begin(), all.end(), 0);
    for (int64_t i = 0; i < rows; i++) {
        std::shuffle(all.begin(), all.end(), engine);
        std::sort(all.begin(), all.begin() + width);
        std::copy(all.begin(), all.begin() + width, col.begin() + i * width);
    }
    if (!cusparseCreateBlockedEll(&a, m, k, b, width * b, w.copy(col), numbers(w, m * width * b), CUSPARSE_INDEX_32I,
                                  CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF)) {
        cusparseDnMatDescr_t x = dense(numbers(w, k * n), k, n, columns), y = dense(numbers(w, m * n), m, n, columns);
        ms = spmm(w, a, x, y, CUSPARSE_SPMM_BLOCKED_ELL_ALG1);
        cusparseDestroyDnMat(x), cusparseDestroyDnMat(y), cusparseDestroySpMat(a);
    }
    row("cusparse Blocked-ELL SpMM", columns ? "col" : "row", m, k, n, b, s, ms, 2.0 * (double)(m * width * b) * (double)n,
        ms > 0 ? "" : refused);
}

static void sddmm(int64_t n, int64_t b, double s) {
    scratch w;
    const blocks p = random_blocks(n / b, n / b, s);
    const cusparseOperation_t none = CUSPARSE_OPERATION_NON_TRANSPOSE;
    cusparseSpMatDescr_t c;
    size_t bytes = 0;
    double ms = 0;
    const int64_t nnz = p.nnz();
    if (!cusparseCreateBsr(&c, n / b, n / b, nnz, b, b, w.copy(p.crow), w.copy(p.col), numbers(w, nnz * b * b),
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF, CUSPARSE_ORDER_ROW)) {
        cusparseDnMatDescr_t x = dense(numbers(w, n * n), n, n, 0), y = dense(numbers(w, n * n), n, n, 0);
        const cusparseSDDMMAlg_t algorithm = CUSPARSE_SDDMM_ALG_DEFAULT;
        if (!cusparseSDDMM_bufferSize(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, &bytes)) {
            void *buffer = w.bytes(bytes);
            if (!cusparseSDDMM_preprocess(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, buffer))
                ms = timed(stream, [&] {
                    return (int)cusparseSDDMM(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, buffer);
                });
        }
        cusparseDestroyDnMat(x), cusparseDestroyDnMat(y), cusparseDestroySpMat(c);
    }
    row("cusparse BSR SDDMM", "row", n, n, n, b, s, ms, 2.0 * (double)(nnz * b * b) * (double)n, ms > 0 ? "" : refused);
}

static void cublas(int n) {
    scratch w;
    __nv_bfloat16 *a = numbers(w, (int64_t)n * n), *b = numbers(w, (int64_t)n * n), *c = numbers(w, (int64_t)n * n);
    const double ms = timed(stream, [&] {
        return (int)cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, b, CUDA_R_16BF, n, &zero, c,
                                 CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    });
    row("cublas dense", "col", n, n, n, 0, 0, ms, 2.0 * n * (double)n * n, "");
}

int main(void) {
    int version = 0;
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess) {
        fprintf(stderr, "there is no GPU\n");
        return 1;
    }
    check(cudaStreamCreate(&stream));
    if (cusparseCreate(&sparse) || cublasCreate(&blas) || cusparseSetStream(sparse, stream) || cublasSetStream(blas, stream))
        return 1;
    cusparseGetVersion(sparse, &version);
    printf("# %s, cuSPARSE %d, bf16, sums in f32\n", p.name, version);
    puts("what,layout,MxKxN,block,sparsity,ms,stored TFLOP/s,note");
    cublas(4096);
    for (int64_t b : {16, 32, 64, 128})
        for (double s : {0.5, 0.8, 0.95}) {
            ell(4096, 4096, 4096, b, s, 0);
            if (s < 0.9) bsr(4096, 4096, 4096, b, s, 0);
        }
    for (int64_t b : {16, 32, 64, 128}) ell(4096, 4096, 4096, b, 0.8, 1), bsr(4096, 4096, 4096, b, 0.8, 1);
    for (int64_t n : {8, 16}) {
        ell(14336, 4096, n, 64, 0.9, 0), bsr(14336, 4096, n, 64, 0.9, 0);
        ell(4096, 14336, n, 64, 0.9, 0), bsr(4096, 14336, n, 64, 0.9, 0);
    }
    for (int64_t b : {16, 32, 64, 128})
        for (double s : {0.5, 0.8}) sddmm(4096, b, s);
    cusparseDestroy(sparse);
    cublasDestroy(blas);
    return 0;
}
