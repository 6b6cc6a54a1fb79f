/* decode_checks.cpp: test_decode.c against the kernels for few queries, chosen as on a GPU and run on the host: threads of a CTA
   are coroutines, tensor cores and asynchronous copies are here. No GPU and no nvcc is needed. tests/test_device.sh cuts the
   sections out of the sources, as they stand, into decode.inc; what they need of others is here. */
#define BSRI_CHOOSERS
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
#define REF_ROUNDS_P 1
static bsr_status device_attention(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k,
                                   const bsr_dense *v, const bsr_matrix *mask, const bsr_attention_options *options,
                                   const bsr_dense *out, const bsr_dense *lse, const bsr_exec *exec);
#define bsr_attention device_attention
#include "ref_decode.h"
#undef bsr_attention

#include "cta.h"

static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 1; }
static int bsri_wgmma_maps(const bsr_context *, bsri_dev_wgmma *) { return 1; }
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 1; }
static int bsri_flash_map(const bsr_context *, const bsr_dense *, int, bsri_tensor_batch *, bsri_tma_map *) { return 1; }

/* --- names of CUDA's, and tensor cores --- */
#define BSRI_MMA_CODE
struct alignas(8) int2 {
    int x, y;
};
/* Every lane gets what all offer. */
static std::vector<uint64_t> offers[WARPS][32];
template <class F> static void together(std::vector<uint64_t> mine, F use) {
    const unsigned warp = threadIdx.x / 32;
    offers[warp][threadIdx.x % 32] = mine;
    __syncwarp();
    use(offers[warp]);
    __syncwarp();
}
static uint32_t bsri_mma_load_word(uint32_t at) {
    uint32_t x;
    memcpy(&x, shared_at(at), 4);
    return x;
}
static void bsri_mma_load(uint32_t (&r)[4], uint32_t at) {
    const int lane = (int)threadIdx.x % 32;
    together({at}, [&](const std::vector<uint64_t> *of) {
        for (int i = 0; i < 4; i++) r[i] = bsri_mma_load_word((uint32_t)of[8 * i + lane / 4][0] + (uint32_t)(lane % 4 * 4));
    });
}
static void bsri_mma_load_t(uint32_t (&r)[4], uint32_t at) {
    const int lane = (int)threadIdx.x % 32;
    together({at}, [&](const std::vector<uint64_t> *of) {
        for (int i = 0; i < 4; i++) {
            uint16_t both[2];
            for (int e = 0; e < 2; e++)
                memcpy(&both[e], shared_at((uint32_t)of[8 * i + lane % 4 * 2 + e][0]) + lane / 4 * 2, 2);
            memcpy(&r[i], both, 4);
        }
    });
}
template <class T> static void bsri_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const int lane = (int)threadIdx.x % 32;
    const auto number = [](uint64_t pair, int k) {
        const uint16_t h = (uint16_t)(pair >> (k % 2 * 16));
        return T::DTYPE == BSR_F16 ? bsri_f16_to_f32(h) : bsri_bf16_to_f32(h);
    };
    together({a[0], a[1], a[2], a[3], b0, b1}, [&](const std::vector<uint64_t> *of) {
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4 + e / 2 * 8, col = lane % 4 * 2 + e % 2;
            for (int k = 0; k < 16; k++)
                c[e] += number(of[row % 8 * 4 + k % 8 / 2][(size_t)(k / 8 * 2 + row / 8)], k) *
                        number(of[col * 4 + k % 8 / 2][(size_t)(4 + k / 8)], k);
        }
    });
}

/* --- what the sections need of others --- */
static int64_t bsri_dev_size(int dtype) { return bsr_dtype_size(dtype); }
static char *bsri_dev_at(const void *base, int dtype, int64_t element) { return bsri_at(base, dtype, element); }
static int32_t bsri_dev_index(const void *array, int dtype, int64_t i) { return (int32_t)bsri_index(array, dtype, i); }
template <class F> static F bsri_dev_load(const void *base, int dtype, int64_t i) { return (F)bsri_load_f64(base, dtype, i); }
static void bsri_dev_store(void *base, int dtype, int64_t i, double v) { bsri_store_f64(base, dtype, i, v); }
static uint32_t bsri_dev_pack(float a, float b, int dtype) {
    uint16_t h[2];
    uint32_t both;
    bsri_store_f32(h, dtype, 0, a), bsri_store_f32(h, dtype, 1, b), memcpy(&both, h, 4);
    return both;
}
template <class T> static uint32_t bsri_pack(float a, float b) { return bsri_dev_pack(a, b, T::DTYPE); }
static void bsri_dev_unpack(float (&x)[2], uint32_t pair, int dtype) {
    for (int i = 0; i < 2; i++, pair >>= 16)
        x[i] = dtype == BSR_F16 ? bsri_f16_to_f32((uint16_t)pair) : bsri_bits_f32(pair << 16);
}
static float bsri_dev_exp2(float x) { return exp2f(x < -126 ? -INFINITY : x); } /* flushes as ex2.approx.ftz */
static float bsri_dev_max(float a, float b) { return a != a || a > b ? a : b; }
template <class F> static F bsri_dev_inf(void) { return (F)INFINITY; }
template <class F> static F bsri_dev_nan(void) { return (F)NAN; }
static void bsri_dev_pick(uint32_t &to, uint32_t from, int a, int b) { to = a == b ? from : to; }
static uint4 bsri_dev_load16(const char *from) {
    uint4 x;
    if ((uintptr_t)from % 16) abort();
    return memcpy(&x, from, 16), x;
}
static void bsri_mma_put16(uint32_t to, uint4 x) { memcpy(shared_at(to), &x, 16); }
#define bsri_decode_memory bsri_flash_memory
#include "decode.inc"

/* --- launches --- */
static long split;
template <class P> static void launch_some(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, int threads) {
    launch(kernel, p, bt_below(3) ? work : bsri_min(work, bt_range(1, 12)), (unsigned)threads);
}
static void launch_instance(int number, const bsri_dev_decode &m, int64_t work, int count) {
    switch (number) {
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: return launch_some(kernel<__VA_ARGS__>, m, work, count);
        BSRI_KERNELS_DECODE_HALF(BSRI_X, F16, bsri_mma_f16, 850)
        BSRI_KERNELS_DECODE_HALF(BSRI_X, BF16, bsri_mma_bf16, 858)
#undef BSRI_X
        default: abort();
    }
}
/* The CPU's checks, then the other side's choice with a context of a GPU's sizes, a plan and a workspace at random. */
static bsr_status device_attention(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k,
                                   const bsr_dense *v, const bsr_matrix *mask, const bsr_attention_options *options,
                                   const bsr_dense *out, const bsr_dense *lse, const bsr_exec *exec) {
    static const int counts[] = {1, 8, 132};
    bsr_context gpu = *ctx;
    bsri_dev_attention p;
    bsri_attention_params m;
    bsri_attention j;
    bsr_plan asked;
    bsri_spans set;
    bsri_call c;
    gpu.sm_count = counts[bt.seed / 64 % 3], gpu.tier = BSRI_TIER_WGMMA, gpu.smem_optin = 232448, gpu.tensor_map = &gpu;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_ATTENTION, exec));
    memset(&j, 0, sizeof j), memset(&asked, 0, sizeof asked), set.count = 0;
    j.q = q, j.k = k, j.v = v, j.mask = mask, j.out = out, j.lse = lse, j.options = options ? options : &bsri_attention_defaults;
    j.row_max = options && options->extra ? options->extra->row_max : NULL;
    BSRI_TRY(bsri_attention_check(&c, &set, scale, &j));
    BSRI_TRY(bsri_attention_check_results(&c, &set, &j, BSRI_WRITE));
    bsri_attention_prepare(&c, scale, &j);
    bsri_cuda_describe(&j, &p);
    if (bt_below(4)) asked.split = (int32_t)(bt_below(4) ? bt_range(1, 4) : bt_range(1, 40));
    if (bt_below(4) == 0) asked.order = (int32_t)(64 * bt_range(1, 3));
    if (bt_below(4) == 0) asked.tile_rows = bt_below(2) ? 32 : 64;
    asked.workspace_bytes = UINT64_MAX;
    bsri_chooser s = bsri_chooser_for(&asked);
    const bsri_choice first = bsri_decode_choose(&gpu, &p, j.compute, 0, &s, &m.decode);
    if (!first.kernel) return bsr_attention(ctx, scale, q, k, v, mask, options, out, lse, exec);
    s.workspace = bt_alloc((size_t)first.workspace, 64), bt_mark_output(s.workspace);
    asked.workspace_bytes = first.workspace;
    const bsri_choice choice = bsri_decode_choose(&gpu, &p, j.compute, 0, &s, &m.decode);
    CHECK(choice.kernel == first.kernel && choice.workspace == first.workspace && choice.grid == first.grid);
    launch_instance(choice.kernel, m.decode, choice.grid, choice.threads);
    split += choice.split > 1;
    if (choice.then[0])
        launch_some(bsri_attention_decode_merge<bsri_decode_merge_tile>, m.decode, choice.then_grid, choice.then_threads);
    return BSR_OK;
}
#define bsr_attention device_attention
#define main decode_main
#define TEST_DECODE
#include "test_decode.c"
#undef main
int main(int argc, char **argv) {
    const int failed = decode_main(argc, argv);
    printf("%ld launches, %ld calls were split\n", launches, split);
    return failed || launches < 100;
}
