/* bench.cuh: what the benchmarks in C++ share: device data, random patterns with exact block counts, timing. */
#ifndef BSR_BENCH_CUH
#define BSR_BENCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

static void check(cudaError_t e) {
    if (e == cudaSuccess) return;
    fflush(stdout);
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(e));
    exit(1);
}

/* Sum of four uniform numbers: near enough to normal, unit variance. */
static __device__ float bench_normal(uint64_t i, uint64_t seed) {
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1342543de82ef95);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    float sum = 0;
    for (int k = 0; k < 4; k++) sum += (float)((z >> 16 * k) & 0xffff) / 65536.0f - 0.5f;
    return sum * 1.7320508f;
}
static __device__ void bench_store(double *at, float v) { *at = v; }
static __device__ void bench_store(float *at, float v) { *at = v; }
static __device__ void bench_store(__half *at, float v) { *at = __float2half(v); }
static __device__ void bench_store(__nv_bfloat16 *at, float v) { *at = __float2bfloat16(v); }
static __device__ void bench_store(__nv_fp8_e4m3 *at, float v) { *at = __nv_fp8_e4m3(v); }
static __device__ void bench_store(int8_t *at, float v) { *at = (int8_t)(v * 8); }
static __device__ void bench_store(bool *at, float v) { *at = v > 0; }
template <class T> static __global__ void bench_fill(T *data, int64_t n, uint64_t seed) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        bench_store(data + i, bench_normal((uint64_t)i, seed));
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
    /* n random-normal numbers. */
    template <class T> T *numbers(int64_t n) {
        static uint64_t seed;
        T *p = (T *)bytes((size_t)n * sizeof(T));
        bench_fill<<<1024, 256>>>(p, n, ++seed);
        check(cudaGetLastError());
        return p;
    }
    template <class T> T *copy(const std::vector<T> &v) {
        T *p = (T *)bytes(v.size() * sizeof(T));
        check(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
        return p;
    }
};

/* Which blocks are stored. */
struct blocks {
    int64_t rows, cols;
    std::vector<int32_t> crow, col;
    int64_t nnz() const { return (int64_t)col.size(); }
};
/* Exactly round((1 - s) cells) blocks in random places, one at least. */
static blocks random_blocks(int64_t rows, int64_t cols, double s) {
    static std::mt19937_64 engine(1);
    int64_t cells = rows * cols, left = std::max<int64_t>(1, llround((1 - s) * (double)cells));
    blocks p = {rows, cols, {0}, {}};
    p.col.reserve((size_t)left);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++, cells--)
            if ((int64_t)(engine() % (uint64_t)cells) < left) p.col.push_back((int32_t)j), left--;
        p.crow.push_back((int32_t)p.col.size());
    }
    return p;
}

/* Median milliseconds of a call that puts work on the stream, when warm; negative: it is refused (returns other than 0). Short
   calls are timed as replays of a graph of many, so that the host's time does not count; what cannot be captured, in a row. */
template <class F> static double timed(cudaStream_t stream, F call) {
    cudaEvent_t a, b;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    std::vector<float> times;
    float ms = 0, spent = 0;
    for (int i = 0; i < 2; i++)
        if (call()) return (void)cudaGetLastError(), -1;
    check(cudaEventCreate(&a));
    check(cudaEventCreate(&b));
    const auto between = [&](auto what) {
        check(cudaEventRecord(a, stream));
        what();
        check(cudaEventRecord(b, stream));
        check(cudaEventSynchronize(b));
        check(cudaEventElapsedTime(&ms, a, b));
    };
    between(call);
    const int calls = (int)std::min(100.0, std::max(1.0, 2.0 / ms));
    if (calls > 1) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        int bad = 0;
        for (int i = 0; i < calls; i++) bad |= call();
        if (cudaStreamEndCapture(stream, &graph) || bad || cudaGraphInstantiate(&run, graph, 0)) run = nullptr;
        (void)cudaGetLastError();
    }
    for (int i = 0; i < 10 && (i < 3 || spent < 60); i++) {
        between([&] {
            if (run) check(cudaGraphLaunch(run, stream));
            for (int k = 0; k < calls && !run; k++) call();
        });
        spent += ms;
        if (i) times.push_back(ms / (float)calls);
    }
    if (run) check(cudaGraphExecDestroy(run));
    if (graph) check(cudaGraphDestroy(graph));
    check(cudaEventDestroy(a));
    check(cudaEventDestroy(b));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

#endif /* BSR_BENCH_CUH */
