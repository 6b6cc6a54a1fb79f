/* scales_checks.cpp: test_scales.c and test_f8.c against kernels of products of 8-bit operands by mma.sync and wgmma, and those
   of simt with scales, run on the host by cta.h, with the host side that chooses them and lays operands anew. Cut out of the
   sources, as they stand, into scales.inc by tests/test_device.sh; what they need of others is here. Products that other kernels
   take stay the CPU's. Arguments: as of the test; before them --wgmma: with tier wgmma. */
#define BSRI_CHOOSERS
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#define EMULATED(f) static int f;
#include "bsrsparse_emulated.h"

#include "bsr_test.h"
static inline void *aligned(size_t bytes, size_t align) { /* of 3 cases in 4: else no piece of 16 bytes */
    return bt_alloc(bytes, align < 16 && bt.seed % 4 ? 16 : align);
}
#define bt_alloc aligned
#ifdef TEST_WEIGHTS
#define REF_WEIGHTS_ERROR(dtype) ((dtype) == BSR_BF16 ? 3 * 0x1p-8 : (dtype) == BSR_F16 ? 3 * 0x1p-11 : 0)
#endif
#include "ref64.h"

#include "cta.h"

/* --- numbers --- */
struct alignas(16) double2 {
    double x, y;
};
struct int2 {
    int x, y;
};
static int2 make_int2(int x, int y) { return {x, y}; }
#define __noinline__
static double2 make_double2(double x, double y) { return {x, y}; }
struct __nv_bfloat16 {
    uint16_t u;
};
struct __half2 {
    __half x, y;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static uint16_t rounded(double v, int dtype) {
    uint16_t h;
    bsri_store_f64(&h, dtype, 0, v);
    return h;
}
static __half __float2half_rn(float v) { return {rounded((double)v, BSR_F16)}; }
static __half __double2half(double v) { return {rounded(v, BSR_F16)}; }
static __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
static __half2 __hmul2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y));
}
static __half2 __hsub2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) - __half2float(b.x), __half2float(a.y) - __half2float(b.y));
}
static __half2 __hfma2(__half2 a, __half2 b, __half2 c) { /* f64 holds the product; its sum is rounded once, or as good as once */
    const auto one = [](__half x, __half y, __half z) {
        return rounded((double)__half2float(x) * (double)__half2float(y) + (double)__half2float(z), BSR_F16);
    };
    return {{one(a.x, b.x, c.x)}, {one(a.y, b.y, c.y)}};
}
static float __bfloat162float(__nv_bfloat16 b) { return bsri_bits_f32((uint32_t)b.u << 16); }
static __nv_bfloat16 __float2bfloat16_rn(float v) { return {rounded((double)v, BSR_BF16)}; }
static __nv_bfloat16 __double2bfloat16(double v) { return {rounded(v, BSR_BF16)}; }
static __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
static __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return __floats2bfloat162_rn(__bfloat162float(a.x) - __bfloat162float(b.x), __bfloat162float(a.y) - __bfloat162float(b.y));
}
static __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return __floats2bfloat162_rn(__bfloat162float(a.x) * __bfloat162float(b.x), __bfloat162float(a.y) * __bfloat162float(b.y));
}
static __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    const auto one = [](__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
        return rounded((double)__bfloat162float(x) * (double)__bfloat162float(y) + (double)__bfloat162float(z), BSR_BF16);
    };
    return {{one(a.x, b.x, c.x)}, {one(a.y, b.y, c.y)}};
}
template <class T> static T __ldcs(const T *at) {
    if ((uintptr_t)at % sizeof(T)) bt_fail(__FILE__, __LINE__, "a load of %d bytes at %p", (int)sizeof(T), (const void *)at);
    return *at;
}
static float __double2float_rz(double v) {
    const float f = (float)v;
    return fabs((double)f) <= fabs(v) || v != v ? f : bsri_bits_f32(bsri_f32_bits(f) - 1);
}
static float __fmul_rn(float a, float b) { return a * b; }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t how) {
    const uint64_t all = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= (uint32_t)(all >> (how >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> (by & 31));
}
static float bsri_dev_exp2(float x) { return exp2f(x); }
static float bsri_dev_inverse(float x) { return 1 / x; }
static float bsri_dev_max(float a, float b) { return a != a || a > b ? a : b; }
template <class T> static T atomicOr(T *at, T bits) {
    const T was = *at;
    return *at = was | bits, was;
}

/* --- shared memory by 32 bits, matrices, mma.sync --- */
#define bsri_shared bsri_flash_memory
enum { STATIC_AT = 216 << 10, WGMMA_STATIC_AT = 224 << 10 }; /* dynamic shared memory ends where the static one stands */
static void *__cvta_shared_to_generic(uint32_t at) { return shared_at(at); }
static void bsri_cp_async_l1(uint32_t to, const void *from) { bsri_cp_async(to, from); }
/* Whole warps wait, and their lanes go on together, as a GPU has them do: a lane that came late could find the next phase. */
static void warp_wait(uint32_t at, uint32_t parity) {
    bsri_mbarrier_wait(at, parity);
    __syncwarp();
}
static void bsri_producer_sync(void) { bsri_named_sync(1, 128); }
template <class T> static T shared_read(uint32_t at) {
    T v;
    if (at % sizeof v) bt_fail(__FILE__, __LINE__, "a load at %u of shared memory", at);
    memcpy(&v, shared_at(at), sizeof v);
    return v;
}
static int bsri_mma_read32(uint32_t at) { return shared_read<int>(at); }
static uint32_t bsri_mma_read16(uint32_t at) { return shared_read<uint16_t>(at); }
static uint32_t bsri_mma_load_word(uint32_t at) { return shared_read<uint32_t>(at); }
static void bsri_mma_load(uint32_t (&r)[4], uint32_t at) {
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *of = exchange(at);
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t line = shuffled<uint32_t>(of, 8 * i + lane / 4);
        if (line % 16) bt_fail(__FILE__, __LINE__, "a line of a matrix at %u of shared memory", line);
        memcpy(&r[i], shared_at(line) + lane % 4 * 4, 4);
    }
}
static void bsri_mma_load_t(uint32_t (&r)[4], uint32_t at) {
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *of = exchange(at);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t h[2];
        for (unsigned j = 0; j < 2; j++) {
            const uint32_t line = shuffled<uint32_t>(of, 8 * i + lane % 4 * 2 + j);
            if (line % 16) bt_fail(__FILE__, __LINE__, "a line of a matrix at %u of shared memory", line);
            memcpy(&h[j], shared_at(line) + lane / 4 * 2, 2);
        }
        r[i] = h[0] | (uint32_t)h[1] << 16;
    }
}
static void bsri_mma_load(float (&)[4], uint32_t) {} /* of other types than those here */
static void bsri_mma_load(double (&)[2], uint32_t) {}
/* Lane l has rows l / 4 and 8 below of words l % 4 and 4 after it, column l / 4 of the same. */
static uint32_t fragments[CTA][6];
template <class S, class F> static void fragment_sums(S (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, F add) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 * 32;
    memcpy(fragments[threadIdx.x], a, 16), fragments[threadIdx.x][4] = b0, fragments[threadIdx.x][5] = b1;
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (unsigned w = 0; w < 8; w++)
            c[i] = add(c[i], fragments[warp + row % 8 * 4 + w % 4][row / 8 + w / 4 * 2],
                       fragments[warp + col * 4 + w % 4][4 + w / 4]);
    }
    __syncwarp();
}
template <class T> static void bsri_mma(typename T::sum (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    static_assert(T::INTEGER, "i8");
    fragment_sums(c, a, b0, b1, [](int32_t s, uint32_t x, uint32_t y) {
        for (int e = 0; e < 32; e += 8) s += (int8_t)(x >> e) * (int8_t)(y >> e);
        return s;
    });
}
static void bsri_mma_half(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) { /* words 4 and up are zeros */
    bsri_mma<bsri_mma_i8>(c, {a0, a1, 0, 0}, b, 0);
}
static float numbers_of_halves[1 << 16];
template <> void bsri_mma<bsri_mma_f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (numbers_of_halves[1] == 0)
        for (uint32_t i = 0; i < 1 << 16; i++) numbers_of_halves[i] = bsri_f16_to_f32((uint16_t)i);
    fragment_sums(c, a, b0, b1, [](float s, uint32_t x, uint32_t y) {
        s += numbers_of_halves[x & 0xffff] * numbers_of_halves[y & 0xffff];
        return s + numbers_of_halves[x >> 16] * numbers_of_halves[y >> 16];
    });
}

template <> void bsri_mma<bsri_mma_bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    fragment_sums(c, a, b0, b1, [](float s, uint32_t x, uint32_t y) {
        s += bsri_bits_f32(x << 16) * bsri_bits_f32(y << 16);
        return s + bsri_bits_f32(x & 0xffff0000u) * bsri_bits_f32(y & 0xffff0000u);
    });
}
/* Lane l has numbers 2 (l % 4) and the next of row l / 4 of 8 x 8. */
static uint32_t bsri_mma_transpose(uint32_t x) {
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *of = exchange(x);
    uint32_t r = 0;
    for (unsigned e = 0; e < 2; e++)
        r |= (shuffled<uint32_t>(of, (lane % 4 * 2 + e) * 4 + lane / 8) >> 16 * (lane / 4 % 2) & 0xffffu) << 16 * e;
    return r;
}

/* --- what the sections need of others --- */
#define BSRI_MMA_CODE
static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 0; }
#define BSRI_WGMMA_CODE
static int bsri_image_map(const bsr_context *, bsri_tma_map *, int, const bsri_dev_im2col *, int32_t, int32_t, int) { return 0; }
static void bsri_tma_load_image(uint32_t, const bsri_tma_map *, uint32_t, int, int, const int32_t (&)[4], uint32_t) {}
static uint32_t bsri_im2col_lead(const bsri_dev_im2col &, uint32_t) { return 0; }
static void bsri_im2col_at(const bsri_dev_im2col &, uint32_t, int32_t (&)[4]) {}
static uint64_t bsri_l2_policy(bool) { return 0; }
static void bsri_dev_prefetch(const void *, uint32_t = 0) {}
static bool bsri_named_any(int, int, bool yes) { return yes; } /* of other types than those here */
static int bsri_mbarrier_test(uint32_t at, uint32_t parity) { return barrier_at(at)->phase != parity; }
static float __fadd_rn(float a, float b) { return a + b; }
static float bsri_mma_read_float(uint32_t at) { return shared_read<float>(at); }
static float2 bsri_mma_read_pair(uint32_t at) { return shared_read<float2>(at); }
static uint4 bsri_mma_read128(uint32_t at) { return shared_read<uint4>(at); }
template <class T> static void shared_write(uint32_t at, T v) {
    if (at % sizeof v) bt_fail(__FILE__, __LINE__, "a store at %u of shared memory", at);
    memcpy(shared_at(at), &v, sizeof v);
}
static void bsri_mma_put_pair(uint32_t at, float2 x) { shared_write(at, x); }
static void bsri_mma_put16(uint32_t at, uint4 x) { shared_write(at, x); }
static void bsri_wgmma_put(uint32_t at, uint32_t x) { shared_write(at, x); }
static void bsri_wgmma_put(uint32_t at, uint32_t x, uint32_t y) { shared_write(at, make_uint2(x, y)); }
static uint4 bsri_dev_load16(const char *from) {
    if ((uintptr_t)from % 16) bt_fail(__FILE__, __LINE__, "a load of 16 bytes at %p", (const void *)from);
    for (const bt_block *b = bt.blocks; b; b = b->next) { /* nothing behind what is there, as far as memory is checked */
        const char *const data = (const char *)b->data, *const end = data + b->bytes;
        if (from >= data - 15 && from < end && from + 16 > end && end - data > 64)
            bt_fail(__FILE__, __LINE__, "a load of what stands behind an operand");
    }
    return *(const uint4 *)from;
}
template <class T> static void bsri_wgmma_unset(T &sum) { memset(&sum, 0xff, sizeof sum); }
static void bsri_cp_async_if(uint32_t, const void *, uint32_t) {}
static void bsri_wgmma_load_if(uint32_t (&)[4], uint32_t, uint32_t) {}
static void bsri_wgmma_load_t_if(uint32_t (&)[4], uint32_t, uint32_t) {}
static void stmatrix(uint32_t to, const uint32_t (&r)[4], bool turned) {
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *of = exchange(to);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned e = 0; e < 2; e++) {
            const unsigned row = turned ? lane % 4 * 2 + e : lane / 4, col = turned ? lane / 4 : lane % 4 * 2 + e;
            shared_write(shuffled<uint32_t>(of, 8 * i + row) + col * 2, (uint16_t)(r[i] >> 16 * e));
        }
}
static void bsri_stmatrix(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stmatrix(to, {r0, r1, r2, r3}, false);
}
static void bsri_stmatrix_t(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    stmatrix(to, {r0, r1, r2, r3}, true);
}
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 0; }
static int bsri_flash_map(const bsr_context *, const bsr_dense *, int, bsri_tensor_batch *, bsri_tma_map *) { return 0; }
static long ran[1024], staged, indexed;
struct bsri_cuda_index {
    bsr_matrix of;
    bsri_view view;
    char *buffer;
};
static int64_t bsri_cuda_index_plan(bsri_cuda_index *x, const bsr_matrix *m) { return x->of = *m, 640; }
static bsr_status bsri_cuda_build_index(const bsri_call *, const bsri_cuda_index *x) {
    indexed++;
    return bsr_build_transposed_index(t_context(0), &x->of, x->buffer, (uint64_t)x->view.bytes, NULL);
}
static bsr_status bsri_cuda_copies(const bsri_call *, const bsri_dev_copies *list) {
    for (int i = 0; i < list->count; i++) {
        const bsri_dev_copy *c = &list->copy[i];
        const size_t size = (size_t)1 << c->shift;
        staged++;
        for (int64_t n = 0; n < c->items.count; n++) {
            int64_t from = 0, to = 0, rest = n;
            for (int d = c->items.dims - 1; d >= 0; rest /= c->items.size[d--])
                from += rest % c->items.size[d] * c->from_item[d], to += rest % c->items.size[d] * c->to_item[d];
            for (int64_t l = 0; l < c->all_lines; l++)
                for (int64_t k = 0; k < c->all; k++) {
                    char *const at = c->to + (to + l * c->to_line + k * c->to_step) * (int64_t)size;
                    if (l >= c->lines || k >= c->length) memset(at, 0, size);
                    else memcpy(at, c->from + (from + l * c->from_line + k * c->from_step) * (int64_t)size, size);
                }
        }
    }
    return BSR_OK;
}
static bsr_status bsri_cuda_status(const bsri_call *, int error) { return error ? BSR_UNSUPPORTED : BSR_OK; }
static int bsri_cuda_queue(const bsri_call *) { return 0; }
static int bsri_launch_choice(const bsri_choice *c, void *parameters, int queue);
template <class P>
static int bsri_launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, unsigned threads, int queue, int pdl);
template <int DTYPE> struct bsri_dev_dtype;
template <class T> struct packed {
    static uint32_t pack(float x, float y) {
        return rounded((double)x, T::DTYPE) | (uint32_t)rounded((double)y, T::DTYPE) << 16;
    }
};
template <class T> static uint32_t bsri_pack(float x, float y) { return packed<T>::pack(x, y); }
#include "scales.inc"
static double bsri_retile_lanes_ns(const bsri_dev_product *) { return 0.0; } /* no blocks laid as tiles here */
static bsr_status bsri_cuda_retile(const bsri_call *, const bsri_product *, const bsr_tune_row *, bsr_plan *, int, double,
                                   int *taken) {
    return *taken = 0, BSR_OK;
}

template <class P> static int launched(void (*kernel)(const P, bsri_gate), const void *parameters, const bsri_choice *c) {
    launch(kernel, *(const P *)parameters, bsri_min(c->grid, bt_range(1, 6)), (unsigned)c->threads);
    return 0;
}
template <class P>
static int bsri_launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, unsigned threads, int, int) {
    if (work > 0) launch(kernel, p, bsri_min(work, bt_range(1, 6)), threads), staged++;
    return 0;
}
static int bsri_launch_choice(const bsri_choice *c, void *parameters, int) {
    static_assert(sizeof(bsri_mma_storage) <= 11 << 10 && sizeof(bsri_mma_scaled_storage) <= 12 << 10, "what the host leaves");
    if (c->shared > (c->tier == BSRI_TIER_WGMMA ? WGMMA_STATIC_AT : STATIC_AT))
        bt_fail(__FILE__, __LINE__, "%d bytes of shared memory", c->shared);
    ran[c->kernel]++;
    switch (c->kernel) {
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: return launched(&kernel<__VA_ARGS__>, parameters, c);
        BSRI_KERNELS_MMA_BYTES(BSRI_X, 220, I8, bsri_mma_i8, 32, 32, 2)
        BSRI_KERNELS_MMA_BYTES(BSRI_X, 222, I8, bsri_mma_i8, 64, 64, 1)
        BSRI_KERNELS_MMA_BYTES_16(BSRI_X, 205, I8, bsri_mma_i8)
        BSRI_KERNELS_MMA_SCALED(BSRI_X, 229, 207, I8, bsri_mma_i8_scaled)
        BSRI_KERNELS_MMA_BYTES(BSRI_X, 224, F8, bsri_mma_f8, 32, 32, 2)
        BSRI_KERNELS_MMA_BYTES(BSRI_X, 226, F8, bsri_mma_f8, 64, 64, 1)
        BSRI_KERNELS_MMA_BYTES_16(BSRI_X, 206, F8, bsri_mma_f8)
        BSRI_KERNELS_MMA_SCALED(BSRI_X, 228, 208, F8, bsri_mma_f8_scaled)
#define BSRI_WGMMA(number, ...) \
    case number: return launched(&bsri_product_wgmma<bsri_wgmma_ss<__VA_ARGS__>>, parameters, c);
        BSRI_WGMMA(380, bsri_mma_i8, 256, 64)
        BSRI_WGMMA(381, bsri_mma_i8, 256)
        BSRI_WGMMA(382, bsri_mma_f8, 256, 64)
        BSRI_WGMMA(383, bsri_mma_f8, 256)
        BSRI_WGMMA(384, bsri_mma_f8, 256, 64, true)
        BSRI_WGMMA(385, bsri_mma_f8, 256, 128, true)
        BSRI_WGMMA(387, bsri_mma_i8_scaled, 256, 128, true)
#ifdef TEST_WEIGHTS
        BSRI_KERNELS_WEIGHTS(BSRI_X)
#endif
#undef BSRI_X
#define SIMT(number, A, S) \
    case number: return launched(&bsri_product_simt<bsri_simt_tile<A, S, 16, 128, 2, 4, true>>, parameters, c);
        SIMT(105, float, float)
        SIMT(115, double, double)
        SIMT(125, int32_t, float)
#ifdef TEST_WEIGHTS
        case 100: return launched(&bsri_product_simt<bsri_simt_tile<float, float, 4, 256, 1, 4>>, parameters, c);
        case 101: return launched(&bsri_product_simt<bsri_simt_tile<float, float, 16, 128, 2, 4>>, parameters, c);
        case 102: return launched(&bsri_product_simt<bsri_simt_tile<float, float, 64, 64, 4, 4>>, parameters, c);
#endif
#ifdef TEST_SHIFTED
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: return launched(&kernel<__VA_ARGS__>, parameters, c);
        BSRI_KERNELS_MMA_128(BSRI_X, 203, BF16, bsri_mma_bf16, MMA)
        BSRI_KERNELS_MMA_128(BSRI_X, 213, F16, bsri_mma_f16, MMA)
        BSRI_KERNELS_MMA_SHIFTED(BSRI_X, 950, BF16, bsri_mma_bf16_shifted)
        BSRI_KERNELS_MMA_SHIFTED(BSRI_X, 952, F16, bsri_mma_f16_shifted)
        BSRI_KERNELS_MMA_SHIFTED_BYTES(BSRI_X, 956, I8, bsri_mma_i8_shifted)
        BSRI_KERNELS_MMA_SHIFTED_BYTES(BSRI_X, 958, F8, bsri_mma_f8_shifted)
        BSRI_KERNELS_LINES(BSRI_X, 954, BF16, bsri_mma_bf16)
        BSRI_KERNELS_LINES(BSRI_X, 955, F16, bsri_mma_f16)
#undef BSRI_X
#endif
        default: ran[c->kernel]--; return 1;
    }
}
/* --- the operation: the CPU's checks and preparation, then the other side's choice, run here --- */
static int most = BSRI_TIER_MMA; /* tier */
/* The dense operand, mostly laid by one of the ways that tensor cores want; unit: of what elements a line is. */
static bsr_dense laid(const bsr_dense *b, int columns, int64_t unit) {
    const int64_t item = (b->rows + unit) * (b->cols + unit);
    const bsri_batch batch = bsri_batch_of(b->batch_dims, b->batch);
    bsr_dense d = *b;
    int64_t i, j, n, step = (item + unit) / unit * unit;
    d.row_stride = columns ? 1 : bsri_ceil_div(b->cols, unit) * unit;
    d.col_stride = columns ? bsri_ceil_div(b->rows, unit) * unit : 1;
    for (i = b->batch_dims - 1; i >= 0; i--) d.batch_stride[i] = step, step *= b->batch[i];
    if (batch.count == 1) step = bsri_max(0, (b->rows - 1) * d.row_stride + (b->cols - 1) * d.col_stride + 1);
    d.data = bt_alloc((size_t)(step * (int64_t)bsr_dtype_size(b->dtype)), unit > 1 ? 16 : bsr_dtype_size(b->dtype));
    bt_mark_output(d.data);
    for (n = 0; n < batch.count; n++)
        for (i = 0; i < b->rows; i++)
            for (j = 0; j < b->cols; j++)
                memcpy(bsri_at(d.data, d.dtype, bsri_dense_offset(&batch, n, &d) + i * d.row_stride + j * d.col_stride),
                       bsri_at(b->data, b->dtype, bsri_dense_offset(&batch, n, b) + i * b->row_stride + j * b->col_stride),
                       bsr_dtype_size(d.dtype));
    return d;
}
static int emulate(const bsri_call *c, const bsri_product *asked, const bsr_tune_row *key) {
    bsri_product of = *asked, *const job = &of;
    bsr_dense b;
    bsr_context gpu = *c->ctx;
    bsr_plan plan = BSR_ZERO, way = BSR_ZERO;
    bsr_exec e = *c->exec;
    bsri_call call = *c;
    if (!BT_WANTED || !job->a || e.query || e.plan) return 0;
    const int64_t unit = 16 / (int64_t)bsr_dtype_size(job->b->dtype);
#ifdef TEST_SHIFTED
    if (bsr_dtype_size(job->a->dtype) > (most == BSRI_TIER_MMA ? 2 : bsri_is_half(job->a->dtype) * 2) || job->b->rows < 16)
        return 0;
    gpu.sm_count = bt_below(2) ? 2 : 132, gpu.smem_optin = SHARED_BYTES, gpu.tier = most, gpu.cc_major = 9;
    call.ctx = &gpu, call.exec = &e, e.workspace = NULL, e.workspace_bytes = 0, e.plan = &way, way.kernel = most;
    b = laid(job->b, bt_below(2) > 0, most == BSRI_TIER_WGMMA || !bt_below(8) ? unit : bt_below(5) ? 1 : 4), job->b = &b;
    way.tile_rows = most == BSRI_TIER_MMA && bt_below(2) ? 128 : 0, way.tile_cols = way.tile_rows, gpu.tensor_map = &gpu;
    if (most == BSRI_TIER_MMA || !bsri_is_half(job->out->dtype))
        return bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK;
    /* rows of out at any address, between guards; what stands between rows stays */
    const bsr_dense *const to = job->out;
    const int64_t line = to->cols + 1 + (int64_t)bt_below(9), items = bsri_batch_of(to->batch_dims, to->batch).count;
    bsr_dense out = bsr_dense_strided(NULL, to->dtype, to->rows, to->cols, line, 1);
    int64_t steps[3];
    bsri_value_steps(job->a, steps);
    if (items != 1 || job->input || steps[job->trans ? 1 : 2] != 1) return 0; /* cta.h reads blocks along the products alone */
    const size_t bytes = (size_t)(to->rows * line) * 2;
    char *const room = (char *)bt_alloc(bytes + 16, 16), *const at = room + 2 * bt_below(8);
    memset(room, 0x5a, bytes + 16), out.data = at, job->out = &out, way.tile_cols = 256;
    bt_mark_output(room);
    if (bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) != BSR_OK) return 0;
    for (int64_t i = 0; i < to->rows * line; i++) {
        const int64_t row = i / line, col = i % line;
        if (col < to->cols) t_store(to->data, to->dtype, row * to->row_stride + col * to->col_stride, t_load(at, to->dtype, i));
        else CHECK(i >= to->rows * line - (line - to->cols) || !memcmp(at + 2 * i, "\x5a\x5a", 2));
    }
    return 1;
#endif
    if (bsr_dtype_size(job->a->dtype) != 1) return 0;
    gpu.sm_count = bt_below(2) ? 2 : 132, gpu.smem_optin = SHARED_BYTES, gpu.tier = most;
    gpu.cc_major = 9, gpu.tensor_map = &gpu;
    if (bt_below(8) == 0) gpu.tier = BSRI_TIER_SIMT;
    if (bt_below(4) == 0) e.flags |= BSR_EXEC_FAST_ACCUM;
    if (!e.workspace && bt_below(2))
        e.workspace_bytes = 4 << 20, e.workspace = bt_alloc((size_t)e.workspace_bytes, 64), bt_mark_output(e.workspace);
    /* small ones would not be laid anew: a plan tells them to be, if that way there is */
    static const uint32_t ways[] = {BSR_PLAN_STAGES_DENSE, BSR_PLAN_STAGES_OUT, BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT,
                                    BSR_PLAN_TURNS_DENSE, BSR_PLAN_TURNS_DENSE | BSR_PLAN_STAGES_OUT,
                                    BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT | BSR_PLAN_MERGES_BATCH};
    const int first = e.workspace && bt_below(2) ? (int)bt_below(6) : 6, step = bt_below(2) ? 1 : 5;
    call.ctx = &gpu, call.exec = &e;
    if (job->weights) { /* as they are stored, by either tier; converted, then by simt */
        const int how = (int)bt_below(3);
        e.workspace_bytes = how == 2 ? 4 << 20 : 0, e.workspace = NULL;
        if (how == 2) e.workspace = bt_alloc((size_t)e.workspace_bytes, 64), bt_mark_output(e.workspace);
        way.flags = how == 2 ? BSR_PLAN_CONVERTS : 0, way.kernel = how ? BSRI_TIER_SIMT : BSRI_TIER_MMA, e.plan = &way;
        if (bt_below(4)) b = laid(job->b, bt_below(2) > 0, unit), job->b = &b;
        if (bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK) return 1;
        e.plan = NULL;
        return how < 2 && bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK;
    }
    if (bt_below(8)) b = laid(job->b, bt_below(most == BSRI_TIER_WGMMA ? 8 : 2) > 0, unit), job->b = &b;
    for (int i = 0; i < 6 && first < 6; i++) {
        way.flags = ways[(first + i * step) % 6], e.plan = &way;
        if (bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK) return 1;
    }
    way.flags = 0, way.kernel = gpu.tier, e.plan = &way; /* small ones would be another tier's */
    if (bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK) return 1;
    e.plan = NULL;
    return bsri_cuda_product(&call, job, key, &plan, BSRI_PLAN_AND_RUN) == BSR_OK;
}
/* What is drawn here is not what cases draw: they are those of other runs. */
static int bsri_emulate_product(const bsri_call *c, const bsri_product *asked, const bsr_tune_row *key) {
    const uint64_t before = bt.random;
    const int done = emulate(c, asked, key);
    bt.random = before;
    return done;
}
static void report(void) { /* how often each kernel ran */
    for (int i = 0; i < 1024; i++)
        if (ran[i]) printf("     kernel %d: %ld calls\n", i, ran[i]);
    printf("     %ld views laid anew, %ld transposed indices built\n", staged, indexed);
}
#undef bt_main
#define main scales_main
#define bt_main(argc, argv, tests, count) (atexit(report), bt_run("tests/test_scales.c", argc, argv, tests, count))
#ifdef TEST_F8
#include "test_f8.c"
#elif defined(TEST_WEIGHTS)
#include "test_weights.c"
#elif defined(TEST_SHIFTED)
#include "test_product.c"
#else
#include "test_scales.c"
#endif
#undef main
int main(int argc, char **argv) {
    const int wgmma = argc > 1 && !strcmp(argv[1], "--wgmma");
    if (wgmma) most = BSRI_TIER_WGMMA;
    const int code = scales_main(argc - wgmma, argv + wgmma);
#ifdef TEST_SHIFTED /* where no test is named each has run; of some cases, some of each kind */
    const bool some = argc == 3 + wgmma && !strcmp(argv[1 + wgmma], "-s");
    if (wgmma && (some || argc == 2)) return code || !(some ? ran[954] || ran[955] : ran[954] && ran[955]);
    if (argc == 1) return code || !(ran[950] && ran[951] && ran[952] && ran[953] && ran[956] && ran[957]);
    if (some) return code || !((ran[950] || ran[951] || ran[952] || ran[953]) && (ran[956] || ran[957]));
#endif
    return code;
}
