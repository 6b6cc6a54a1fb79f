/* warps.h: enough of CUDA's names for kernels whose threads talk to each other: threads of a CTA are coroutines on the host, so
   that lanes can exchange numbers and barriers are met. For programs that run sections of bsrsparse_kernels.cuh without a GPU. */
#ifndef BSR_WARPS_H
#define BSR_WARPS_H

#include <functional>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

/* --- names of CUDA's, with its alignments, which the sanitizer sees to --- */
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
typedef const uint64_t *bsri_gate;
#define BSRI_GATE , bsri_gate gate
#define BSRI_ENTER (void)gate
struct bsr_dim {
    unsigned x;
};
static bsr_dim threadIdx, blockIdx, gridDim, blockDim;
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(2) char2 {
    signed char x, y;
};
struct alignas(2) uchar2 {
    unsigned char x, y;
};
static uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static double2 make_double2(double x, double y) { return {x, y}; }
static int2 make_int2(int x, int y) { return {x, y}; }
static longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static char2 make_char2(signed char x, signed char y) { return {x, y}; }
static uchar2 make_uchar2(unsigned x, unsigned y) { return {(unsigned char)x, (unsigned char)y}; }
struct __half {
    uint16_t u;
};
static __half __ushort_as_half(unsigned short u) { return {u}; }
static float __half2float(__half h) { return bsri_f16_to_f32(h.u); }
static float __uint_as_float(uint32_t u) { return bsri_bits_f32(u); }
static float __int_as_float(int u) { return bsri_bits_f32((uint32_t)u); }
static uint32_t __float_as_uint(float f) { return bsri_f32_bits(f); }
static float __double2float_rz(double v) {
    const float f = (float)v;
    return fabs((double)f) <= fabs(v) || v != v ? f : bsri_bits_f32(bsri_f32_bits(f) - 1);
}
struct __half2 {
    uint16_t x, y;
};
static __half2 __floats2half2_rn(float x, float y) { return {bsri_f32_to_f16(x), bsri_f32_to_f16(y)}; }
static __half2 __hmul2(__half2 a, __half2 b) {
    return __floats2half2_rn(bsri_f16_to_f32(a.x) * bsri_f16_to_f32(b.x), bsri_f16_to_f32(a.y) * bsri_f16_to_f32(b.y));
}
static uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t which) {
    const uint64_t all = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= (uint32_t)(all >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static double __longlong_as_double(int64_t u) {
    double d;
    memcpy(&d, &u, 8);
    return d;
}
static int __float2int_rn(float v) { return (int)bsri_whole((double)v, BSR_I32); }
static int max(int a, int b) { return a > b ? a : b; }
static int min(int a, int b) { return a < b ? a : b; }
static int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
static int __popc(uint32_t x) { return __builtin_popcount(x); }
static uint32_t atomicOr(uint32_t *at, uint32_t v) {
    const uint32_t old = *at;
    return *at |= v, old;
}

/* --- threads of a CTA --- */
#ifndef BSR_THREADS
#define BSR_THREADS 256
#endif
enum { BSR_CTA = BSR_THREADS, BSR_STACK = 1 << 16 }; /* at most so many */
struct coroutine {
    ucontext_t start;
    jmp_buf here;
    std::vector<char> stack;
    int state; /* 0 not started, 1 running, 2 ended */
};
static coroutine threads[BSR_CTA];
static jmp_buf scheduler;
static std::function<void()> body;
static uint64_t exchange[BSR_CTA];    /* what each lane offers */
static int arrived[BSR_CTA / 32 + 1]; /* at the barrier of a warp, of the CTA */
static unsigned long turn[BSR_CTA / 32 + 1];
static void yield(void) {
    coroutine *t = &threads[threadIdx.x];
    if (!_setjmp(t->here)) _longjmp(scheduler, 1);
}
static void barrier(int which, int count) {
    const unsigned long now = turn[which];
    if (++arrived[which] == count) {
        arrived[which] = 0, turn[which]++;
        return;
    }
    while (turn[which] == now) yield();
}
static void __syncthreads(void) { barrier(BSR_CTA / 32, (int)blockDim.x); }
static void __syncwarp(void) { barrier((int)threadIdx.x / 32, 32); }
/* What each lane of the warp has, before any goes on. */
template <class T> static void gathered(T (&all)[32], T v) {
    const int warp = (int)threadIdx.x / 32;
    exchange[threadIdx.x] = 0, memcpy(&exchange[threadIdx.x], &v, sizeof v);
    barrier(warp, 32);
    for (int i = 0; i < 32; i++) memcpy(&all[i], &exchange[warp * 32 + i], sizeof v);
    barrier(warp, 32);
}
template <class T> static T shuffle(T v, int from) {
    T all[32];
    gathered(all, v);
    return all[from];
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int d) { return shuffle(v, (int)threadIdx.x % 32 ^ d); }
template <class T> static T __shfl_sync(unsigned, T v, int from) { return shuffle(v, from); }
template <class T> static T __shfl_up_sync(unsigned, T v, int d) {
    const int lane = (int)threadIdx.x % 32;
    return shuffle(v, lane < d ? lane : lane - d);
}
template <class T> static T __shfl_down_sync(unsigned, T v, unsigned d) {
    const int lane = (int)threadIdx.x % 32;
    return shuffle(v, lane + (int)d < 32 ? lane + (int)d : lane);
}
static unsigned __ballot_sync(unsigned, bool v) {
    int each[32];
    unsigned all = 0;
    gathered(each, (int)v);
    for (int i = 0; i < 32; i++) all |= each[i] ? 1u << i : 0u;
    return all;
}
static bool __any_sync(unsigned, bool v) { return __ballot_sync(~0u, v) != 0; }
static int __syncthreads_or(bool v) {
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    any |= v;
    __syncthreads();
    return any;
}
static void run_thread(void) {
    body();
    threads[threadIdx.x].state = 2;
    _longjmp(scheduler, 1);
}
static void run_cta(void) {
    static volatile int left;
    for (int i = 0; i < (int)blockDim.x; i++) {
        coroutine *t = &threads[i];
        t->state = 0;
        if (t->stack.empty()) t->stack.resize(BSR_STACK);
        getcontext(&t->start);
        t->start.uc_stack.ss_sp = t->stack.data(), t->start.uc_stack.ss_size = BSR_STACK, t->start.uc_link = NULL;
        makecontext(&t->start, run_thread, 0);
    }
    do {
        left = 0;
        static volatile int i;
        for (i = 0; i < (int)blockDim.x; i = i + 1) {
            coroutine *t = &threads[i];
            if (t->state == 2) continue;
            threadIdx.x = (unsigned)i;
            if (!_setjmp(scheduler)) {
                if (t->state) _longjmp(t->here, 1);
                t->state = 1;
                setcontext(&t->start);
            }
            if (threads[i].state != 2) left = left + 1;
        }
    } while (left);
}
static long launches;
template <class P>
static void launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, int count = BSR_CTA, int64_t most = 12) {
    gridDim.x = (unsigned)bsri_min(work, bt_range(1, most)), blockDim.x = (unsigned)count, launches++;
    body = [&] { kernel(p, NULL); };
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_cta();
}

/* --- what sections need of others --- */
static int64_t bsri_dev_size(int dtype) { return (int64_t)bsr_dtype_size(dtype); }
static void bsri_pdl_launch_dependents(void) {}
static void bsri_pdl_wait(void) {}
static int bsri_dev_shift(int dtype) {
    return bsr_dtype_size(dtype) == 8 ? 3 : bsr_dtype_size(dtype) == 4 ? 2 : bsr_dtype_size(dtype) == 2;
}
static char *bsri_dev_at(const void *base, int dtype, int64_t element) { return bsri_at(base, dtype, element); }
static bsri_item bsri_dev_matrix_item(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    return bsri_matrix_item(b, item, m);
}
static void bsri_dev_store(void *base, int dtype, int64_t i, double v) { bsri_store_f64(base, dtype, i, v); }
static void bsri_dev_store(void *base, int dtype, int64_t i, float v) { bsri_store_f64(base, dtype, i, (double)v); }
static uint32_t bsri_dev_pack(float a, float b, int dtype) {
    uint16_t h[2];
    uint32_t both;
    bsri_store_f32(h, dtype, 0, a), bsri_store_f32(h, dtype, 1, b), memcpy(&both, h, 4);
    return both;
}
static float bsri_dev_exp2(float x) { return exp2f(x); }
static float bsri_dev_inverse(float x) { return 1 / x; }
#endif /* BSR_WARPS_H */
