/* bench_cusparse.cu: cuSPARSE on the shapes of bench_gpu.py: SpMM on BSR and on Blocked-ELL, SDDMM on BSR, beside cuBLAS. Random
   data, exact block counts (Blocked-ELL: the same number in every block row), medians of event timings, CSV lines. What a
   version of cuSPARSE refuses is said in the line. */
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cusparse.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

static cusparseHandle_t sparse;
static cublasHandle_t blas;
static std::mt19937_64 engine(1);

static void check(cudaError_t e) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
    exit(1);
}

static __global__ void fill(__nv_bfloat16 *p, int64_t n, uint64_t seed) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t z = (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        float sum = 0; /* of four uniform numbers: near enough to normal, variance 1 */
        for (int k = 0; k < 4; k++) sum += (float)((z >> 16 * k) & 0xffff) / 65536.0f - 0.5f;
        p[i] = __float2bfloat16(sum * 1.7320508f);
    }
}

/* Device memory that goes away with the case. */
struct scratch {
    std::vector<void *> all;
    ~scratch() {
        cudaDeviceSynchronize();
        for (void *p : all) cudaFree(p);
    }
    void *bytes(size_t n) {
        void *p;
        check(cudaMalloc(&p, n + 256));
        all.push_back(p);
        return p;
    }
    __nv_bfloat16 *numbers(int64_t n) {
        __nv_bfloat16 *p = (__nv_bfloat16 *)bytes((size_t)n * 2);
        fill<<<1024, 256>>>(p, n, engine());
        check(cudaGetLastError());
        return p;
    }
    int32_t *indices(const std::vector<int32_t> &v) {
        int32_t *p = (int32_t *)bytes(v.size() * 4);
        check(cudaMemcpy(p, v.data(), v.size() * 4, cudaMemcpyHostToDevice));
        return p;
    }
};

/* Exactly round((1 - s) blocks) blocks in random places. */
static void pattern(int64_t rows, int64_t cols, double s, std::vector<int32_t> *crow, std::vector<int32_t> *col) {
    const int64_t total = rows * cols, kept = std::max<int64_t>(1, llround((1 - s) * (double)total));
    std::vector<int32_t> all((size_t)total);
    std::iota(all.begin(), all.end(), 0);
    for (int64_t i = 0; i < kept; i++) std::swap(all[(size_t)i], all[(size_t)(i + (int64_t)(engine() % (uint64_t)(total - i)))]);
    std::sort(all.begin(), all.begin() + kept);
    crow->assign((size_t)rows + 1, 0);
    col->clear();
    for (int64_t i = 0; i < kept; i++) {
        (*crow)[(size_t)(all[(size_t)i] / cols) + 1]++;
        col->push_back((int32_t)(all[(size_t)i] % cols));
    }
    for (size_t i = 0; i < (size_t)rows; i++) (*crow)[i + 1] += (*crow)[i];
}

static void row(const char *what, const char *layout, int64_t m, int64_t k, int64_t n, int64_t b, double s, double ms,
                double flops, const char *note) {
    printf("%s,%s,%lldx%lldx%lld,%lld,%.2f,", what, layout, (long long)m, (long long)k, (long long)n, (long long)b, s);
    if (ms > 0) printf("%.5f,%.2f,%s\n", ms, flops / ms / 1e9, note);
    else printf(",,%s\n", note);
    fflush(stdout);
}

/* Median milliseconds; 0: the call is refused. At most about 0.2 s. */
template <class F> static double timed(F call) {
    cudaEvent_t a, b;
    std::vector<float> times;
    float ms, spent = 0;
    if (call() || cudaDeviceSynchronize() != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    check(cudaEventCreate(&a));
    check(cudaEventCreate(&b));
    for (int i = 0; i < 25 && spent < 200; i++) {
        check(cudaEventRecord(a));
        call();
        check(cudaEventRecord(b));
        check(cudaEventSynchronize(b));
        check(cudaEventElapsedTime(&ms, a, b));
        times.push_back(ms), spent += ms;
    }
    check(cudaEventDestroy(a));
    check(cudaEventDestroy(b));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
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
    return timed([&] { return (int)cusparseSpMM(sparse, none, none, &one, a, b, &zero, c, CUDA_R_32F, algorithm, buffer); });
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
    std::vector<int32_t> crow, col;
    cusparseSpMatDescr_t a;
    pattern(m / b, k / b, s, &crow, &col);
    const int64_t nnz = (int64_t)col.size();
    double ms = 0;
    if (!cusparseCreateBsr(&a, m / b, k / b, nnz, b, b, w.indices(crow), w.indices(col), w.numbers(nnz * b * b),
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF, CUSPARSE_ORDER_ROW)) {
        cusparseDnMatDescr_t x = dense(w.numbers(k * n), k, n, columns), y = dense(w.numbers(m * n), m, n, columns);
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
    if (!cusparseCreateBlockedEll(&a, m, k, b, width * b, w.indices(col), w.numbers(m * width * b), CUSPARSE_INDEX_32I,
                                  CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF)) {
        cusparseDnMatDescr_t x = dense(w.numbers(k * n), k, n, columns), y = dense(w.numbers(m * n), m, n, columns);
        ms = spmm(w, a, x, y, CUSPARSE_SPMM_BLOCKED_ELL_ALG1);
        cusparseDestroyDnMat(x), cusparseDestroyDnMat(y), cusparseDestroySpMat(a);
    }
    row("cusparse Blocked-ELL SpMM", columns ? "col" : "row", m, k, n, b, s, ms, 2.0 * (double)(m * width * b) * (double)n,
        ms > 0 ? "" : refused);
}

static void sddmm(int64_t n, int64_t b, double s) {
    scratch w;
    std::vector<int32_t> crow, col;
    const cusparseOperation_t none = CUSPARSE_OPERATION_NON_TRANSPOSE;
    cusparseSpMatDescr_t c;
    size_t bytes = 0;
    double ms = 0;
    pattern(n / b, n / b, s, &crow, &col);
    const int64_t nnz = (int64_t)col.size();
    if (!cusparseCreateBsr(&c, n / b, n / b, nnz, b, b, w.indices(crow), w.indices(col), w.numbers(nnz * b * b),
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_16BF, CUSPARSE_ORDER_ROW)) {
        cusparseDnMatDescr_t x = dense(w.numbers(n * n), n, n, 0), y = dense(w.numbers(n * n), n, n, 0);
        const cusparseSDDMMAlg_t algorithm = CUSPARSE_SDDMM_ALG_DEFAULT;
        if (!cusparseSDDMM_bufferSize(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, &bytes)) {
            void *buffer = w.bytes(bytes);
            if (!cusparseSDDMM_preprocess(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, buffer))
                ms = timed(
                    [&] { return (int)cusparseSDDMM(sparse, none, none, &one, x, y, &zero, c, CUDA_R_32F, algorithm, buffer); });
        }
        cusparseDestroyDnMat(x), cusparseDestroyDnMat(y), cusparseDestroySpMat(c);
    }
    row("cusparse BSR SDDMM", "row", n, n, n, b, s, ms, 2.0 * (double)(nnz * b * b) * (double)n, ms > 0 ? "" : refused);
}

static void cublas(int n) {
    scratch w;
    __nv_bfloat16 *a = w.numbers((int64_t)n * n), *b = w.numbers((int64_t)n * n), *c = w.numbers((int64_t)n * n);
    const double ms = timed([&] {
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
    if (cusparseCreate(&sparse) || cublasCreate(&blas)) return 1;
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
