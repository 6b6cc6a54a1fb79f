/* attention_checks.cpp: test_attention.c against the attention kernels that are plain CUDA (tier simt) and those for Hopper (tier
   wgmma), run on the host by cta.h, and the host side that chooses them. tests/test_device.sh cuts the sections out of the
   sources, as they stand, into attention.inc; what they need of others is here. Arguments: as of the test; before them --simt:
   tier simt instead of wgmma, which leaves to the CPU what it refuses. */
#define BSRI_CHOOSERS
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

static int forced = 3; /* tier */
#define REF_ROUNDS_P (forced != 1)
#include "ref64.h"

#include "cta.h"

/* --- what the sections need of others --- */
#define BSRI_WGMMA_CODE
static int bsri_dev_thread(void) { return (int)threadIdx.x; }
template <int DTYPE> struct bsri_dev_dtype;
struct bf16_number {
    uint16_t u;
};
struct f16_number {
    uint16_t u;
};
template <> struct bsri_dev_dtype<BSR_F16> {
    typedef f16_number stored;
    static float number(stored x) { return bsri_f16_to_f32(x.u); }
    static stored element(double v) {
        stored h;
        bsri_store_f64(&h, BSR_F16, 0, v);
        return h;
    }
    static uint32_t pack(float x, float y) { return (uint32_t)bsri_f32_to_f16(x) | (uint32_t)bsri_f32_to_f16(y) << 16; }
    static void unpack(float (&x)[2], uint32_t pair) {
        x[0] = bsri_f16_to_f32((uint16_t)pair), x[1] = bsri_f16_to_f32((uint16_t)(pair >> 16));
    }
};
template <> struct bsri_dev_dtype<BSR_BF16> {
    typedef bf16_number stored;
    static float number(stored x) { return bsri_bf16_to_f32(x.u); }
    static stored element(double v) {
        stored h;
        bsri_store_f64(&h, BSR_BF16, 0, v);
        return h;
    }
    static uint32_t pack(float x, float y) { return (uint32_t)bsri_f32_to_bf16(x) | (uint32_t)bsri_f32_to_bf16(y) << 16; }
    static void unpack(float (&x)[2], uint32_t pair) {
        x[0] = __uint_as_float(pair << 16), x[1] = __uint_as_float(pair & 0xffff0000u);
    }
};
template <> struct bsri_dev_dtype<BSR_F32> {
    typedef float stored;
    static float number(stored x) { return x; }
    template <class F> static stored element(F v) { return (float)v; }
};
template <class T> struct bsri_stored : bsri_dev_dtype<T::DTYPE> {};
template <class T> static uint32_t bsri_pack(float x, float y) { return bsri_dev_dtype<T::DTYPE>::pack(x, y); }
static float bsri_dev_exp2(float x) { return exp2f(x < -126 ? -INFINITY : x); } /* flushes as ex2.approx.ftz */
static float bsri_dev_inverse(float x) { return 1 / x; }
static float bsri_dev_max(float a, float b) { return a != a || a > b ? a : b; }
static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 0; }
static int bsri_wgmma_maps(const bsr_context *, bsri_dev_wgmma *) { return 0; }
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 0; }
/* Attention has no 8-bit floats; loads and stores of any type name them. */
static bool bsri_dev_is_f8(int dtype) { return dtype == BSR_E4M3 || dtype == BSR_E5M2; }
static float bsri_dev_f8_number(uint8_t code, bool e5m2) { return (float)bsri_load_f64(&code, e5m2 ? BSR_E5M2 : BSR_E4M3, 0); }
static float bsri_dev_odd(double v) { return bsri_f64_to_f32_odd(v); }
static uint32_t bsri_dev_f8_codes(float, float, bool) { abort(); }
#include "attention.inc"

/* --- the operation: the CPU's checks and preparation, then the other side's choice, run here --- */
static long ran[1000], refused_calls;
/* A kernel's own parameters are a member of the union. */
template <class P>
static void launch_of(void (*kernel)(const P, bsri_gate), const bsri_attention_params *m, int64_t grid, unsigned threads) {
    launch(kernel, *(const P *)m, grid, threads);
}
#define CASE(name, number, of, tier, type, block, costs, kernel, ...) RUN_##tier(number, kernel<__VA_ARGS__>)
#define RUN_SIMT(number, ...)\
    case number: launch(__VA_ARGS__, m->simt, c->grid, (unsigned)c->threads); break;
#define RUN_MMA(number, ...)
#define RUN_WGMMA(number, ...)\
    case number: launch_of(__VA_ARGS__, m, c->grid, (unsigned)c->threads); break;
static void run_choice(const bsri_choice *c, const bsri_attention_params *m) {
    if (c->shared > SHARED_BYTES) bt_fail(__FILE__, __LINE__, "%d bytes of shared memory", c->shared);
    switch (c->kernel) {
        BSRI_KERNELS_ATTENTION(CASE)
        default: bt_fail(__FILE__, __LINE__, "kernel %d does not run here", c->kernel);
    }
    ran[c->kernel]++;
}
/* Buffers of the harness start anywhere. In three cases of four what an operand points to moves to an address that a GPU's
   allocator gives, and back after the call. */
struct moved_buffer {
    bt_block *of;
    std::vector<char> room;
    char *at;
};
static std::vector<moved_buffer> moved;
template <class T> static T *move_in(T *p) {
    char *const at = (char *)(uintptr_t)p;
    for (bt_block *b = bt.blocks; b && at; b = b->next) {
        if (at < (char *)b->data || at >= (char *)b->data + b->bytes) continue;
        for (moved_buffer &m : moved)
            if (m.of == b) return (T *)(m.at + (at - (char *)b->data));
        moved.push_back({b, std::vector<char>(b->bytes + 256), NULL});
        moved_buffer &m = moved.back();
        m.at = (char *)(((uintptr_t)m.room.data() + 255) / 256 * 256), memcpy(m.at, b->data, b->bytes);
        return (T *)(m.at + (at - (char *)b->data));
    }
    return p;
}
static void move_in(bsr_dense *d) { d->data = move_in((char *)d->data); }
static void move_in(bsri_dev_attention *p) {
    moved.reserve(16);
    if (bt.seed % 4 == 0) return;
    bsr_dense *all[] = {&p->q, &p->k, &p->v, &p->out, &p->lse, &p->row_max, &p->relative, &p->padding, &p->slopes, &p->sinks};
    for (bsr_dense *d : all) move_in(d);
    p->mask.values = move_in((char *)p->mask.values);
}
static void move_back(void) {
    for (moved_buffer &m : moved) memcpy(m.of->data, m.at, m.of->bytes);
    moved.clear();
}
static bsr_status device_attention(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k,
                                   const bsr_dense *v, const bsr_matrix *mask, const bsr_attention_options *options,
                                   const bsr_dense *out, const bsr_dense *lse, const bsr_exec *exec) {
    static const int counts[] = {1, 2, 5};
    bsr_context gpu = *ctx;
    bsri_attention j;
    bsri_call c;
    bsri_dev_attention p;
    static bsri_attention_params m;
    bsr_plan asked = BSR_ZERO, unused = BSR_ZERO;
    bsri_chooser s;
    bsr_exec look = exec ? *exec : bsr_exec();
    look.query = &unused;
    bsr_status status = bsr_attention(ctx, scale, q, k, v, mask, options, out, lse, &look);
    if (status != BSR_OK || (exec && exec->query)) return bsr_attention(ctx, scale, q, k, v, mask, options, out, lse, exec);
    gpu.sm_count = counts[bt.seed / 64 % 3], gpu.tier = BSRI_TIER_WGMMA, gpu.smem_optin = SHARED_BYTES, gpu.cc_major = 9;
    gpu.tensor_map = &gpu;
    BSRI_TRY(bsri_begin(&c, &gpu, BSR_OP_ATTENTION, exec));
    memset(&j, 0, sizeof j);
    j.q = q, j.k = k, j.v = v, j.mask = mask, j.out = out, j.lse = lse, j.options = options ? options : &bsri_attention_defaults;
    j.row_max = options && options->extra ? options->extra->row_max : NULL;
    BSRI_TRY(bsri_attention_batch(&c, &j));
    bsri_attention_prepare(&c, scale, &j);
    bsri_cuda_describe(&j, &p);
    if (!p.items || !p.q.rows || (!p.v.cols && !p.lse.data && !p.row_max.data)) return BSR_OK;
    move_in(&p);
    asked.kernel = forced, s = bsri_chooser_for(&asked);
    bsri_choose_attention(&gpu, &p, j.compute, &s, &m);
    if (!s.best.kernel) {
        refused_calls++, moved.clear();
        return bsr_attention(ctx, scale, q, k, v, mask, options, out, lse, exec);
    }
    if (s.best.tier == BSRI_TIER_SIMT) s.best.grid = bsri_min(s.best.grid, gpu.sm_count);
    run_choice(&s.best, &m);
    move_back();
    return BSR_OK;
}
static void report(void) {
    for (int i = 0; i < 1000; i++)
        if (ran[i]) printf("kernel %d: %ld calls\n", i, ran[i]);
    printf("%ld calls were refused by tier %d\n", refused_calls, forced);
}
#define bsr_attention device_attention
#define main attention_main
#ifdef TEST_DECODE
#include "test_decode.c"
#else
#include "test_attention.c"
#endif
#undef main
int main(int argc, char **argv) {
    const int simt = argc > 1 && !strcmp(argv[1], "--simt");
    if (simt) forced = BSRI_TIER_SIMT;
    const int failed = attention_main(argc - simt, argv + simt);
    report();
    return failed;
}
