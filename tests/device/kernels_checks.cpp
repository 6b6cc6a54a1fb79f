/* kernels_checks.cpp: the CPU's tests of products, sampled products and softmax against the kernels that gather elements, those
   of softmax and those of small blocks, run on the host: tests/device/warps.h. tests/test_device.sh cuts sections out of the
   sources, as they stand, into kernels.inc and rows.inc; what they need of others is here. CHECKS: 1 products, 2 sampled
   products, 3 softmax, 4 products of few columns of small blocks, also where rows far longer than others are cut. */
#define BSRI_CHOOSERS
#if CHECKS == 1 || CHECKS == 4
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#endif
#define BSRSPARSE_IMPLEMENTATION
#define BSRI_VECTOR_LEAST 64 /* bytes of values from which rows are cut */
#define EMULATED(f) static int f;
#include "bsrsparse_emulated.h"

#include "bsr_test.h"

#include "warps.h"

/* Any operand can be had. */
static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 1; }
static int bsri_wgmma_maps(const bsr_context *, bsri_dev_wgmma *) { return 1; }
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 1; }
static int bsri_flash_map(const bsr_context *, const bsr_dense *, int, bsri_tensor_batch *, bsri_tma_map *) { return 1; }

/* --- numbers --- */
#define BSRI_MMA_CODE
static int bsri_dev_thread() { return (int)threadIdx.x; }
#define BSRI_DEV_LOG2E 1.44269504f
struct __nv_bfloat16 {
    uint16_t u;
};
struct __nv_bfloat162 {
    uint16_t x, y;
};
template <int DTYPE> struct bsri_dev_dtype;
#define HALF(D, T)                                                                                                        \
    template <> struct bsri_dev_dtype<BSR_##D> {                                                                          \
        typedef T stored;                                                                                                 \
        static float number(stored x) { return bsri_load_f64(&x, BSR_##D, 0); }                                           \
        static stored element(double v) { stored x; return bsri_store_f64(&x, BSR_##D, 0, v), x; }                       \
        static uint32_t pack(float x, float y) { return bsri_dev_pack(x, y, BSR_##D); }                                   \
        static void unpack(float (&x)[2], uint32_t pair) {                                                                \
            x[0] = (float)bsri_load_f64(&pair, BSR_##D, 0), x[1] = (float)bsri_load_f64(&pair, BSR_##D, 1);               \
        }                                                                                                                 \
    };
HALF(F16, __half)
HALF(BF16, __nv_bfloat16)
template <> struct bsri_dev_dtype<BSR_F32> {
    typedef float stored;
    static float number(stored x) { return x; }
};
template <> struct bsri_dev_dtype<BSR_F64> {
    typedef double stored;
    static double number(stored x) { return x; }
};
template <class V, int N> struct alignas(N * sizeof(V) < 16 ? N * sizeof(V) : 16) bsri_dev_neighbours {
    V x[N];
};
static int32_t bsri_dev_index(const void *array, int dtype, int64_t i) { return (int32_t)bsri_index(array, dtype, i); }
template <class F> static F bsri_dev_number(const void *base, int dtype, int64_t i) {
    if (F(0.5f) == F(0)) return (F)(int64_t)bsri_load_f64(base, dtype, i);
    return (F)bsri_load_f64(base, dtype, i);
}
template <class F> static F bsri_dev_load(const void *base, int dtype, int64_t i) { return bsri_dev_number<F>(base, dtype, i); }
static void bsri_dev_store(void *base, int dtype, int64_t i, uint32_t v) {
    if (dtype == BSR_I8) ((uint8_t *)base)[i] = (uint8_t)v;
    else ((uint32_t *)base)[i] = v;
}
static double __hiloint2double(int high, int low) {
    return __longlong_as_double((int64_t)((uint64_t)(uint32_t)high << 32 | (uint32_t)low));
}
static float2 __half22float2(__half2 h) { return {bsri_f16_to_f32(h.x), bsri_f16_to_f32(h.y)}; }
static __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    const uint32_t u = bsri_dev_pack(x, y, BSR_BF16);
    return {(uint16_t)u, (uint16_t)(u >> 16)};
}
static float __bfloat162float(__nv_bfloat16 x) { return (float)bsri_load_f64(&x, BSR_BF16, 0); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static float bsri_dev_max(float a, float b) { return a != a || a > b ? a : b; }
template <> struct bsri_dev_dtype<BSR_I8> {
    typedef int8_t stored;
    static int32_t number(stored x) { return x; }
};
template <class T> struct bsri_stored : bsri_dev_dtype<T::DTYPE> {
    bsri_stored(int) {}
};
template <> struct bsri_stored<double> : bsri_dev_dtype<BSR_F64> {
    bsri_stored(int) {}
};
template <> struct bsri_stored<int8_t> : bsri_dev_dtype<BSR_I8> {
    bsri_stored(int) {}
};
template <> struct bsri_stored<bsri_mma_f8> {
    typedef uint8_t stored;
    const int dtype;
    bsri_stored(int of) : dtype(of) {}
    float number(stored x) const { return (float)bsri_load_f64(&x, dtype, 0); }
};
template <class T> static uint32_t bsri_pack(float x, float y) { return bsri_dev_pack(x, y, T::DTYPE); }
/* --- mma.sync: lane l has rows l / 4 and 8 below of words l % 4 and 4 after it, column l / 4 of the same --- */
template <class T, class S, class W> static void emulated_mma(S (&c)[4], const W (&a)[4], W b0, W b1) {
    W rows[4][32], cols[2][32];
    for (int i = 0; i < 4; i++) gathered(rows[i], a[i]);
    gathered(cols[0], b0), gathered(cols[1], b1);
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (int w = 0; w < 8; w++) {
            const W x = rows[w / 4 * 2 + row / 8][row % 8 * 4 + w % 4], y = cols[w / 4][col * 4 + w % 4];
            c[i] = T::add(c[i], x, y);
        }
    }
}
template <class T> struct emulated {
    static float add(float c, uint32_t x, uint32_t y) {
        for (int e = 0; e < 4 / T::BYTES; e++)
            c += (float)bsri_load_f64(&x, T::DTYPE, e) * (float)bsri_load_f64(&y, T::DTYPE, e);
        return c;
    }
};
template <> struct emulated<bsri_mma_i8> {
    static int32_t add(int32_t c, uint32_t x, uint32_t y) {
        for (int e = 0; e < 4; e++) c += (int8_t)(x >> 8 * e) * (int8_t)(y >> 8 * e);
        return c;
    }
};
template <> struct emulated<double> {
    static double add(double c, double x, double y) { return fma(x, y, c); }
};
static void bsri_mma(double (&c)[4], const double (&a)[4], double b0, double b1) {
    const double turned[4] = {a[0], a[1], a[2], a[3]};
    emulated_mma<emulated<double>>(c, turned, b0, b1);
}
static uint32_t bsri_mma_round(float x) { return bsri_f32_bits(x); } /* exactly */
template <class T> struct bsri_mma_parts {
    static constexpr int PARTS = 1;
    static void split(uint32_t (&)[1][4]) {}
    static void mma(typename T::sum (&c)[4], const uint32_t (&a)[1][4], const uint32_t (&b)[1][4], int side) {
        emulated_mma<emulated<T>>(c, a[0], b[0][2 * side], b[0][2 * side + 1]);
    }
};
static char bsri_shared[1 << 18] __attribute__((aligned(1024)));
#define bsri_tiny_shared bsri_shared
#define bsri_few_shared bsri_shared
#include "kernels.inc"

/* --- choosing and launching --- */
static bsr_plan asked;
static bsr_context like_a_gpu(const bsr_context *ctx) {
    bsr_context gpu = *ctx;
    gpu.sm_count = 132, gpu.smem_optin = 227 << 10, gpu.tier = BSRI_TIER_MMA;
    return gpu;
}
static int wrong; /* kernels that nobody launches here */
#define GATHERS(X)                                                    \
    X(F16, bsri_mma_f16) X(BF16, bsri_mma_bf16) X(I8, bsri_mma_i8)    \
    X(F64, bsri_mma_f64) X(F32, bsri_mma_f32) X(TF32, bsri_mma_tf32)
template <class P> static void launch_gather(const bsri_choice &c, const P &p, void (*kernel)(const P, bsri_gate)) {
    memset(bsri_shared, 0xff, sizeof bsri_shared);
    launch(kernel, p, c.grid, c.threads, 40);
}
#if CHECKS != 2
static int bsri_emulate_sampled(const bsri_call *, const bsri_sampled *) { return 0; }
#endif
#if CHECKS != 3
static int bsri_emulate_softmax(const bsri_call *, bsri_softmax *) { return 0; }
#endif
#if CHECKS != 1 && CHECKS != 4
static int bsri_emulate_product(const bsri_call *, const bsri_product *) { return 0; }
#endif
#if CHECKS == 1
static int bsri_emulate_product(const bsri_call *c, const bsri_product *job) {
    static bsri_product_params m;
    bsr_context gpu = like_a_gpu(c->ctx);
    bsri_dev_product p;
    bsri_facts f;
    bsri_choice best;
    bsri_cuda_describe(job, &p), memset(&f, 0, sizeof f), f.stored = &p, f.limit = INFINITY;
    asked.kernel = BSRI_TIER_MMA, asked.tile_rows = bt_below(3) ? 0 : bt_below(2) ? 32 : 64;
    if (!BT_WANTED || !p.tiles || !p.width || !p.items || !p.br) return 0;
    p.precision = p.b.dtype == BSR_F32 && bt_below(2);
    const bsri_estimate e = bsri_gather_estimate(&gpu, &p, &f, job->compute, &asked);
    if (e.why) return wrong += e.why != BSR_WHY_LIST_KIND && e.why != BSR_WHY_DTYPE, 0;
    best = bsri_gather_choose(&gpu, &p, &f, &asked, &e, &m.gather);
    if ((double)best.grid * bsri_mean_blocks(&p.a) / (double)p.tiles * (double)p.bc > 1e5) return 0; /* would take long */
    switch (best.kernel) {
#define X(D, T)                                                                                                                \
    case BSRI_KERNEL_PRODUCT_GATHER_32_##D: launch_gather(best, m.gather, bsri_product_gather<bsri_gather_tile<T, 1>>); break; \
    case BSRI_KERNEL_PRODUCT_GATHER_64_##D: launch_gather(best, m.gather, bsri_product_gather<bsri_gather_tile<T, 2>>); break;
        GATHERS(X)
#undef X
        default: return wrong++, 0;
    }
    return 1;
}
#include "test_product.c"
#elif CHECKS == 4
template <class P> static void launched(void (*kernel)(const P, bsri_gate), const void *p, int64_t grid, int threads) {
    memset(bsri_shared, 0xff, sizeof bsri_shared);
    launch(kernel, *(const P *)p, grid, threads, 40);
}
static void launch_number(int number, const void *p, int64_t grid, int threads) {
    switch (number) {
#define X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: launched(&kernel<__VA_ARGS__>, p, grid, threads); break;
        BSRI_KERNELS_LANES(X)
#undef X
        default: wrong++;
    }
}
static int bsri_emulate_product(const bsri_call *c, const bsri_product *job) {
    static bsri_product_params m;
    static std::vector<char> room;
    bsr_context gpu = like_a_gpu(c->ctx);
    bsri_dev_product p;
    bsri_cuda_describe(job, &p);
    if (!BT_WANTED || !p.tiles || !p.width || !p.items || !p.br || !bsri_few_takes(&p)) return 0;
    if (bt_below(2)) gpu.sm_count = 1; /* more rows for each warp */
    asked = BSR_ZERO, asked.workspace_bytes = bt_below(2) ? 1 << 22 : 0;
    room.assign(asked.workspace_bytes, (char)0xff);
    bsri_chooser s = bsri_chooser_for(&asked);
    s.workspace = room.data();
    const bsri_choice best = bsri_few_choose(&gpu, &p, job->compute, &s, &m.few);
    if (!best.kernel) return 0;
    launch_number(best.kernel, &m, best.grid, best.threads);
    for (int i = 0; i < 2 && best.then[i]; i++)
        launch_number(best.then[i], (char *)&m + best.then_at, best.then_grid, best.then_threads);
    return 1;
}
#include "test_product.c"
#elif CHECKS == 2
static int bsri_emulate_sampled(const bsri_call *c, const bsri_sampled *job) {
    static bsri_sampled_params m;
    bsr_context gpu = like_a_gpu(c->ctx);
    bsri_dev_sampled q, *const p = &q;
    bsri_choice best;
    memset(p, 0, sizeof *p);
    p->out = *job->out, p->mat1 = *job->mat1, p->mat2 = *job->mat2, p->alpha = job->alpha, p->beta = job->beta;
    if (job->input && job->beta != 0) p->input = *job->input, p->has_input = 1, bsri_value_strides(job->input, p->i_strides);
    bsri_value_strides(job->out, p->o_strides), p->view = bsri_view_of(1, 1);
    p->whole = job->batch, p->out_batch = bsri_batch_of(job->out->batch_dims, job->out->batch);
    p->items = p->out_batch.count, p->reduce = bsri_reduce_count(&p->whole, &p->out_batch);
    p->precision = p->mat1.dtype == BSR_F32 && bt_below(2);
    asked.kernel = BSRI_TIER_MMA, asked.tile_rows = bt_below(3) ? 0 : bt_below(2) ? 32 : 64;
    if (!BT_WANTED || !p->items || !job->out->nnz) return 0;
    const bsri_sampled_facts f = bsri_sampled_facts_of(p);
    const bsri_estimate e = bsri_gather_estimate_sampled(&gpu, p, &f, job->compute, &asked);
    if (e.why) return wrong += e.why != BSR_WHY_DTYPE, 0;
    best = bsri_gather_choose_sampled(&gpu, p, &f, &asked, &e, &m.gather);
    switch (best.kernel) {
#define X(D, T)                                                                                                                \
    case BSRI_KERNEL_SAMPLED_GATHER_32_##D: launch_gather(best, m.gather, bsri_sampled_gather<bsri_gather_tile<T, 1>>); break; \
    case BSRI_KERNEL_SAMPLED_GATHER_64_##D: launch_gather(best, m.gather, bsri_sampled_gather<bsri_gather_tile<T, 2>>); break;
        GATHERS(X)
#undef X
        default: return wrong++, 0;
    }
    return 1;
}
#include "test_sampled.c"
#else
static bsr_status bsri_cuda_nothing(const bsri_call *, bsr_plan *, int) { return BSR_OK; }
template <class F>
static bsr_status bsri_cuda_choose(const bsri_call *c, const bsr_tune_row *, bsr_plan *, int, const void *m, const F &choose) {
    bsri_chooser s = bsri_chooser_for(&asked);
    const bsri_dev_softmax &p = *(const bsri_dev_softmax *)m;
    (void)c, choose(&s), memset(bsri_shared, 0xff, sizeof bsri_shared);
#define RUN(name, kernel, ...) \
    case BSRI_KERNEL_SOFTMAX_##name: launch(kernel<__VA_ARGS__>, p, s.best.grid, s.best.threads); break;
#define X(D, T)                                                                        \
    RUN(PACKED_##D, bsri_softmax_fast, bsri_softmax_tile<false, false, T>)             \
    RUN(BIASED_##D, bsri_softmax_fast, bsri_softmax_tile<false, true, T>)              \
    RUN(PACKED_BACKWARD_##D, bsri_softmax_fast, bsri_softmax_tile<true, false, T>)
    switch (s.best.kernel) {
        X(F16, bsri_mma_f16)
        X(BF16, bsri_mma_bf16)
        X(F32, bsri_mma_f32)
        RUN(PIECES_F64, bsri_softmax_simt, bsri_softmax_rows_tile<double, 2>)
        RUN(SIMT_F64, bsri_softmax_simt, bsri_softmax_rows_tile<double>)
        RUN(SIMT_F32, bsri_softmax_simt, bsri_softmax_rows_tile<float>)
        default: wrong++;
    }
    return BSR_OK;
}
#include "rows.inc"
static int bsri_emulate_softmax(const bsri_call *c, bsri_softmax *job) {
    bsr_context gpu = like_a_gpu(c->ctx);
    bsri_call call = *c;
    bsr_plan plan = BSR_ZERO;
    if (!BT_WANTED) return 0;
    if (bt_below(2)) gpu.sm_count = 1; /* more rows for each warp */
    if (bt_below(2)) gpu.tier = BSRI_TIER_WGMMA;
    call.ctx = &gpu;
    return bsri_cuda_softmax(&call, job, NULL, &plan) == BSR_OK;
}
#include "test_rows.c"
#endif
