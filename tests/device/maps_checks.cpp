/* maps_checks.cpp: test_maps.c against the kernels of bsr_map and bsr_reduce and the host side that launches them, run on the
   host: threads of a CTA are coroutines, so that lanes can exchange numbers. No GPU and no nvcc is needed. tests/test_device.sh
   cuts the sections out of the sources, as they stand, into maps.inc; what they need of others is here. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "ref_maps.h"

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
static struct { unsigned x; } threadIdx, blockIdx, gridDim;
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

/* --- threads of a CTA --- */
enum { CTA = 256, STACK = 1 << 16 };
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
static void __syncthreads(void) { barrier(CTA / 32, CTA); }
template <class T> static T shuffle(T v, int from) {
    const int warp = (int)threadIdx.x / 32;
    uint64_t got;
    exchange[threadIdx.x] = 0, memcpy(&exchange[threadIdx.x], &v, sizeof v);
    barrier(warp, 32);
    got = exchange[warp * 32 + from];
    barrier(warp, 32);
    memcpy(&v, &got, sizeof v);
    return v;
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int d) { return shuffle(v, (int)threadIdx.x % 32 ^ d); }
template <class T> static T __shfl_sync(unsigned, T v, int from) { return shuffle(v, from); }
static unsigned __ballot_sync(unsigned, bool v) {
    unsigned all = 0;
    for (int i = 0; i < 32; i++) all |= shuffle<int>(v, i) ? 1u << i : 0u;
    return all;
}
static void run_thread(void) {
    body();
    threads[threadIdx.x].state = 2;
    _longjmp(scheduler, 1);
}
static void run_cta(void) {
    static volatile int left;
    left = CTA;
    for (int i = 0; i < CTA; i++) {
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
        for (i = 0; i < CTA; i = i + 1) {
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
}
static long launches;
template <class P> static void launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work) {
    gridDim.x = (unsigned)bsri_min(work, bt_range(1, 12)), launches++;
    body = [&] { kernel(p, NULL); };
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_cta();
}

/* --- what the sections need of others --- */
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
template <int DTYPE> struct bsri_dev_dtype {
    typedef uint16_t stored;
    static stored element(double v) {
        stored h;
        bsri_store_f64(&h, DTYPE, 0, v);
        return h;
    }
};
static uint32_t bsri_dev_pack(float a, float b, int dtype) {
    uint16_t h[2];
    uint32_t both;
    bsri_store_f32(h, dtype, 0, a), bsri_store_f32(h, dtype, 1, b), memcpy(&both, h, 4);
    return both;
}
static float bsri_dev_exp2(float x) { return exp2f(x); }
static float bsri_dev_inverse(float x) { return 1 / x; }
template <class F> static F bsri_dev_max(F a, F b) { return a != a || a > b ? a : b; }
template <class F> static F bsri_dev_inf(void) { return (F)INFINITY; }
static void bsri_dense_set(bsr_dense *to, const bsr_dense *d) {
    if (d) *to = *d;
}
static int bsri_dense_aligned(const bsr_dense *d, int64_t n) {
    if ((uintptr_t)d->data % ((uintptr_t)n * bsr_dtype_size(d->dtype))) return 0;
    for (int i = 0; i < d->batch_dims; i++)
        if (d->batch[i] > 1 && d->batch_stride[i] % n) return 0;
    return 1;
}
enum { BSRI_CTA = CTA, BSRI_CTA_WARPS = CTA / 32 };
struct bsri_cuda_index {
    bsri_view view;
    char *buffer;
};
static const bsr_matrix *indexed;
static int64_t bsri_cuda_index_plan(bsri_cuda_index *, const bsr_matrix *m) { return indexed = m, 640; }
static bsr_status bsri_cuda_build_index(const bsri_call *, const bsri_cuda_index *x) {
    return bsr_build_transposed_index(t_context(0), indexed, x->buffer, (uint64_t)x->view.bytes, NULL);
}
static bsr_status bsri_cuda_plan(const bsri_call *c, const bsri_cuts *cuts, int *stop) {
    bsr_plan p = bsri_plan_default(c);
    if (cuts->overflow) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_NONE, -1, 0);
    p.workspace_bytes = (uint64_t)cuts->bytes;
    return bsri_plan_settle(c, &p, stop);
}
#define BSRI_CUDA_NEXT(c, kernel, p, work, threads) launch(kernel, p, work)
#include "maps.inc"

/* --- the operations: the CPU's checks, then the other side's host part with a context that has its multiprocessors --- */
static bsr_context like_a_gpu(const bsr_context *ctx) {
    static const int counts[] = {1, 2, 132};
    bsr_context gpu = *ctx;
    gpu.sm_count = counts[bt.seed / 64 % 3]; /* one in a case: the order of sums depends on it */
    return gpu;
}
static bsr_status device_map(const bsr_context *ctx, const bsr_map_options *options, double alpha, const bsr_matrix *x,
                             double beta, bsr_operand y, const bsr_matrix *out, const bsr_exec *exec) {
    static const bsr_map_options none = BSR_ZERO;
    bsr_context gpu = like_a_gpu(ctx);
    bsri_call c;
    bsri_map j;
    BSRI_TRY(bsri_begin(&c, &gpu, BSR_OP_MAP, exec));
    BSRI_TRY(bsri_map_check(&c, options ? options : &none, alpha, x, beta, y, out));
    memset(&j, 0, sizeof j);
    j.x = x, j.y = y.sparse, j.dense = y.dense, j.out = out, j.options = options ? options : &none, j.alpha = alpha,
    j.beta = beta;
    bsri_map_prepare(&c, &j);
    return bsri_cuda_map(&c, &j);
}
static bsr_status device_reduce(const bsr_context *ctx, int kind, int over, const bsr_matrix *x, const bsr_dense *out,
                                const bsr_exec *exec) {
    bsr_context gpu = like_a_gpu(ctx);
    const bsr_exec e = exec ? *exec : bsr_exec();
    bsri_call c;
    bsri_reduce j;
    BSRI_TRY(bsri_begin(&c, &gpu, BSR_OP_REDUCE, exec));
    BSRI_TRY(bsri_reduce_check(&c, kind, over, x, out));
    memset(&j, 0, sizeof j);
    j.x = x, j.out = out, j.kind = kind, j.over = over;
    bsri_reduce_prepare(&c, &j);
    bsr_status s = bsri_cuda_reduce(&c, &j);
    if (s != BSR_WORKSPACE_TOO_SMALL || e.query) return s;
    bsr_exec more = e; /* as a test that asked nobody: what is missing comes from here */
    more.workspace_bytes = (uint64_t)e.error->value, more.workspace = bt_alloc((size_t)more.workspace_bytes, 64);
    bt_mark_output(more.workspace);
    return device_reduce(ctx, kind, over, x, out, &more);
}
#define bsr_map device_map
#define bsr_reduce device_reduce
#define main main_of_maps
#include "test_maps.c"
#undef main

/* Two codes of a word as two f16, as GPUs without an instruction for it make them. */
static int codes_fail(void) {
    int failed = 0;
    for (uint32_t x = 0; x < 65536; x++)
        for (int way = 0; way < 8; way++) {
            const int e5m2 = way & 1, high = way & 2, second = way & 4 ? 1 : 0;
            const uint32_t word = high ? x << 16 | 0x1234 : x | 0x56780000, h = high ? bsri_dev_f8_halves<1>(word, e5m2)
                                                                                     : bsri_dev_f8_halves<0>(word, e5m2);
            const double want = t_decode8((uint8_t)(x >> 8 * second), e5m2 ? BSR_E5M2 : BSR_E4M3);
            const double got = t_decode16((uint16_t)(h >> 16 * second), BSR_F16);
            if (want == want ? got != want || !signbit(got) != !signbit(want) : got == got) failed++;
        }
    if (failed) printf("FAIL codes of 8-bit floats: %d\n", failed);
    return failed != 0;
}
int main(int argc, char **argv) {
    const int failed = codes_fail();
    return main_of_maps(argc, argv) | failed;
}
