/* threads.h: enough of CUDA for kernels whose threads work together, on the host: threads of a CTA are coroutines, so that lanes
   can exchange numbers and wait for each other. For programs that include sections of bsrsparse_kernels.cuh, cut out by
   tests/test_device.sh. Include after bsrsparse.h, with its implementation, and bsr_test.h. */
#ifndef BSR_THREADS_H
#define BSR_THREADS_H

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
typedef const uint64_t *bsri_gate;
#define BSRI_GATE , bsri_gate gate
#define BSRI_ENTER (void)gate
static struct { unsigned x; } threadIdx, blockIdx, gridDim, blockDim;
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
struct alignas(16) int4 {
    int x, y, z, w;
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
static uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (by & 31));
}
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
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
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(unsigned x) { return __builtin_ffs((int)x); }
template <class T> static T atomicOr(T *at, T bits) { /* one thread runs at a time */
    const T was = *at;
    *at = was | bits;
    return was;
}
static uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

/* --- threads of a CTA --- */
enum { CTA = 256, STACK = 1 << 16 }; /* threads, at most */
struct coroutine {
    ucontext_t start;
    jmp_buf here;
    std::vector<char> stack;
    int state; /* 0 not started, 1 running, 2 ended */
};
static coroutine threads[CTA];
static jmp_buf scheduler;
static std::function<void()> body;
static uint64_t exchange[CTA];    /* what each lane offers */
static int arrived[CTA / 32 + 1]; /* at the barrier of a warp, of the CTA */
static unsigned long turn[CTA / 32 + 1];
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
static void warp_barrier(void) { barrier((int)threadIdx.x / 32, 32); }
static void __syncwarp(void) { warp_barrier(); }
static void __syncthreads(void) { barrier(CTA / 32, (int)blockDim.x); }
template <class T> static T shuffle(T v, int from) {
    uint64_t got;
    exchange[threadIdx.x] = 0, memcpy(&exchange[threadIdx.x], &v, sizeof v);
    warp_barrier();
    got = exchange[threadIdx.x / 32 * 32 + (unsigned)from];
    warp_barrier();
    memcpy(&v, &got, sizeof v);
    return v;
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int d) { return shuffle(v, (int)threadIdx.x % 32 ^ d); }
template <class T> static T __shfl_up_sync(unsigned, T v, int d) {
    const int lane = (int)threadIdx.x % 32;
    return shuffle(v, lane < d ? lane : lane - d);
}
template <class T> static T __shfl_sync(unsigned, T v, int from) { return shuffle(v, from); }
static unsigned __ballot_sync(unsigned, bool v) {
    unsigned all = 0;
    exchange[threadIdx.x] = v;
    warp_barrier();
    for (unsigned i = 0; i < 32; i++) all |= exchange[threadIdx.x / 32 * 32 + i] ? 1u << i : 0u;
    warp_barrier();
    return all;
}
static void run_thread(void) {
    body();
    threads[threadIdx.x].state = 2;
    _longjmp(scheduler, 1);
}
static void run_cta(int count = CTA) {
    static volatile int left;
    left = count, blockDim.x = (unsigned)count;
    for (int i = 0; i < count; i++) {
        coroutine *t = &threads[i];
        t->state = 0;
        if (t->stack.empty()) t->stack.resize(STACK);
        getcontext(&t->start);
        t->start.uc_stack.ss_sp = t->stack.data(), t->start.uc_stack.ss_size = STACK, t->start.uc_link = NULL;
        makecontext(&t->start, run_thread, 0);
    }
    while (left) {
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
    }
}static void bsri_pdl_launch_dependents(void) {}
static void bsri_pdl_wait(void) {}

#endif /* BSR_THREADS_H */
