/* conv_checks.cpp: test_conv.c against the kernels of convolutions by simt and mma.sync and the host side that chooses them, run
   on the host (threads.h). Copies to shared memory land when their group is waited for, not before. No GPU and no nvcc is needed.
   tests/test_device.sh cuts the sections out of the sources, as they stand, into conv.inc; what they need of others is here. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRI_CHOOSERS
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "bsr_test.h"
static inline void *aligned(size_t bytes, size_t align) { /* of 3 cases in 4: else no piece of 16 bytes */
    return bt_alloc(bytes, align < 16 && bt.seed % 4 ? 16 : align);
}
#define bt_alloc aligned
#include "ref64.h"
#include "ref_conv.h"

#include "threads.h"

/* --- numbers --- */
struct __nv_bfloat16 {
    uint16_t u;
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
static float __bfloat162float(__nv_bfloat16 b) { return bsri_bits_f32((uint32_t)b.u << 16); }
static __nv_bfloat16 __float2bfloat16_rn(float v) { return {rounded((double)v, BSR_BF16)}; }
static __nv_bfloat16 __double2bfloat16(double v) { return {rounded(v, BSR_BF16)}; }
static __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static float bsri_dev_exp2(float x) { return exp2f(x); }
static float bsri_dev_inverse(float x) { return 1 / x; }
static float bsri_dev_max(float a, float b) { return a != a || a > b ? a : b; }
static int bsri_dev_thread() { return (int)threadIdx.x; }

/* --- shared memory by 32 bits, copies, matrices --- */
static char bsri_shared[128 << 10] __attribute__((aligned(1024)));
enum : uint32_t { SHARED_AT = 1u << 30 };
static uint32_t bsri_smem_address(const void *p) { return (uint32_t)((const char *)p - bsri_shared) + SHARED_AT; }
static char *shared_at(uint32_t at) { return bsri_shared + (int32_t)(at - SHARED_AT); }
struct copy_of {
    uint32_t to;
    const void *from;
    int bytes, group;
};
static std::vector<copy_of> copies[CTA];
static int group[CTA];
static void bsri_cp_async(uint32_t to, const void *from, int bytes) {
    if (to % 16 || (uintptr_t)from % 16) bt_fail(__FILE__, __LINE__, "a copy is not on 16 bytes");
    copies[threadIdx.x].push_back({to, from, bytes, group[threadIdx.x]});
}
static void bsri_cp_async(uint32_t to, const void *from) { bsri_cp_async(to, from, 16); }
static void bsri_cp_async_commit(void) { group[threadIdx.x]++; }
template <int PENDING> static void bsri_cp_async_wait(void) {
    std::vector<copy_of> &c = copies[threadIdx.x];
    size_t i = 0;
    for (; i < c.size() && c[i].group < group[threadIdx.x] - PENDING; i++) {
        memset(shared_at(c[i].to), 0, 16);
        memcpy(shared_at(c[i].to), c[i].from, (size_t)c[i].bytes);
    }
    c.erase(c.begin(), c.begin() + (long)i);
}
static void bsri_mma_load(uint32_t (&r)[4], uint32_t at) {
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; i++) memcpy(&r[i], shared_at(shuffle(at, (int)(8 * i + lane / 4))) + lane % 4 * 4, 4);
}
static void bsri_mma_load_t(uint32_t (&r)[4], uint32_t at) {
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; i++) {
        uint16_t h[2];
        for (unsigned j = 0; j < 2; j++)
            memcpy(&h[j], shared_at(shuffle(at, (int)(8 * i + lane % 4 * 2 + j))) + lane / 4 * 2, 2);
        r[i] = h[0] | (uint32_t)h[1] << 16;
    }
}
static uint32_t fragments[CTA][6];
static float half_of(uint32_t pair, int high, int dtype) {
    const uint16_t h = (uint16_t)(high ? pair >> 16 : pair & 0xffff);
    return dtype == BSR_BF16 ? bsri_bits_f32((uint32_t)h << 16) : bsri_f16_to_f32(h);
}
template <class T> static void bsri_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 * 32;
    memcpy(fragments[threadIdx.x], a, 16), fragments[threadIdx.x][4] = b0, fragments[threadIdx.x][5] = b1;
    warp_barrier();
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            const uint32_t *x = fragments[warp + row % 8 * 4 + k % 8 / 2], *y = fragments[warp + col * 4 + k % 8 / 2];
            c[i] += half_of(x[row / 8 + k / 8 * 2], k % 2, T::DTYPE) * half_of(y[4 + k / 8], k % 2, T::DTYPE);
        }
    }
    warp_barrier();
}
template <class T> struct bsri_mma_parts {
    static constexpr int PARTS = 1;
    static void split(uint32_t (&)[1][4], uint32_t) {}
    template <int HALF>
    static void mma(float (&c)[4], const uint32_t (&a)[1][4], const uint32_t (&b)[1][4], int side) {
        bsri_mma<T>(c, a[0], b[0][2 * side], b[0][2 * side + 1]);
    }
};
#define BSRI_MMA_CODE
#define BSRI_MMA_TIGHT 0
#define BSRI_MMA_NARROW 0
template <class T> static uint32_t bsri_swizzle_b(uint32_t k) { return k & 7; }
template <class T, class L> static uint32_t bsri_swizzle_b(uint32_t k) { return k & 7; }
static uint32_t bsri_mma_byte_line(uint32_t) { return 0; } /* of other types than those here */
static void bsri_mma_load_bytes(uint32_t (&)[4], uint32_t) {}
static uint32_t bsri_mma_load_word(uint32_t) { return 0; }

/* --- what the host side needs of others --- */
static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 0; }
static int bsri_wgmma_maps(const bsr_context *, bsri_dev_wgmma *) { return 0; }
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 0; }
static int bsri_flash_map(const bsr_context *, const bsr_dense *, int, bsri_tensor_batch *, bsri_tma_map *) { return 0; }
struct bsri_cuda_index {
    bsr_matrix of;
    bsri_view view;
    char *buffer;
};
static int64_t bsri_cuda_index_plan(bsri_cuda_index *x, const bsr_matrix *m) { return x->of = *m, 640; }
static bsr_status bsri_cuda_build_index(const bsri_call *, const bsri_cuda_index *x) {
    return bsr_build_transposed_index(t_context(0), &x->of, x->buffer, (uint64_t)x->view.bytes, NULL);
}
static long images_laid;
static bsr_status bsri_cuda_copies(const bsri_call *, const bsri_dev_copies *list) {
    for (int i = 0; i < list->count; i++) {
        const bsri_dev_copy *c = &list->copy[i];
        const size_t size = (size_t)1 << c->shift;
        images_laid++;
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
static bsr_status bsri_cuda_status(const bsri_call *, int) { return BSR_OK; }
static int bsri_cuda_queue(const bsri_call *c) { return c->exec->max_grid[0]; }
static int bsri_launch_choice(const bsri_choice *c, void *parameters, int queue);
template <class P>
static int bsri_launch(void (*)(const P, const uint64_t *), const P &, int64_t, unsigned, int, int) { return 0; }
#include "conv.inc"

static long launches[1024];
template <class P> static void launch(void (*kernel)(const P, bsri_gate), void *parameters, int64_t grid, int count) {
    const P &p = *(const P *)parameters;
    gridDim.x = (unsigned)(grid < 40 && bt_below(2) ? grid : bsri_min(grid, bt_range(1, 12)));
    memset(bsri_shared, 0xff, sizeof bsri_shared);
    body = [&] { kernel(p, NULL); };
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) {
        for (int i = 0; i < CTA; i++) copies[i].clear();
        run_cta(count);
    }
}
static int launch_one(int number, void *parameters, int64_t grid, int count) {
    launches[number]++;
    switch (number) {
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: launch(&kernel<__VA_ARGS__>, parameters, grid, count); break;
        BSRI_KERNELS_CONV(BSRI_X)
#undef BSRI_X
    }
    return 0;
}
static int bsri_launch_choice(const bsri_choice *c, void *parameters, int) {
    if (c->shared > (int)sizeof bsri_shared) bt_fail(__FILE__, __LINE__, "%d bytes of shared memory", c->shared);
    launch_one(c->kernel, parameters, c->grid, c->threads);
    if (c->then[0]) launch_one(c->then[0], (char *)parameters + c->then_at, c->then_grid, c->then_threads);
    return 0;
}

/* --- lists of data gradients: each line in the order of its columns, each entry the block that it should be --- */
static void check_lists(const bsri_conv_geometry *g, const bsr_matrix *w) {
    const int64_t per = g->channels / w->block_cols, rows = g->filters / w->block_rows, groups = g->taps.groups;
    const int dt = w->index_dtype;
    const bsri_conv_lists at = bsri_conv_lists_of(g, w);
    bsr_matrix m = *w;
    bsri_dev_conv_turn p;
    bsri_view view;
    int64_t line, i, n = 0;
    t_attach_transposed(&m), bt_mark_output(m.transposed_index), bsri_transposed_layout(&m, &view);
    char *to = (char *)bt_alloc((size_t)at.bytes, 64), *v = (char *)m.transposed_index;
    memset(&p, 0, sizeof p), bt_mark_output(to);
    p.crow = w->crow_indices, p.ccol = v + view.at[BSRI_CCOL], p.row = v + view.at[BSRI_ROW], p.dt = dt;
    p.position = v + view.at[BSRI_POSITION], p.ptr = to + at.ptr, p.col = to + at.col, p.at = to + at.at;
    p.groups = (int32_t)groups, p.taps = (int32_t)g->taps.all, p.per_tap = (int32_t)per, p.rows = (int32_t)rows;
    launch(bsri_conv_turn, &p, groups * per, 256);
    for (line = 0; line < groups * per; line++) {
        int64_t end = bsri_index(p.ptr, dt, line + 1), before = -1;
        CHECK_INT(bsri_index(p.ptr, dt, line), n);
        for (; n < end && n < w->nnz; n++) {
            const int64_t col = bsri_index(p.col, dt, n), block = bsri_index(p.at, dt, n), tap = g->taps.all - 1 - col / rows;
            const int64_t row = line / per * rows + col % rows;
            CHECK(col >= before), before = col;
            CHECK_INT(bsri_index(w->col_indices, dt, block), tap * per + line % per);
            CHECK(bsri_index(w->crow_indices, dt, row) <= block && block < bsri_index(w->crow_indices, dt, row + 1));
        }
    }
    CHECK_INT(n, w->nnz);
    for (i = 0, n = 0; i < w->nnz; i++) n += bsri_index(p.at, dt, i);
    CHECK_INT(n, w->nnz * (w->nnz - 1) / 2);
}

/* --- the operations: the CPU's checks, then the other side's host part with a context like a GPU's --- */
static bsr_context like_a_gpu(const bsr_context *ctx) {
    bsr_context gpu = *ctx;
    gpu.sm_count = bt.seed / 64 % 2 ? 2 : 132, gpu.cc_major = 9, gpu.smem_optin = 227 << 10;
    gpu.tier = bt.seed / 128 % 4 ? BSRI_TIER_MMA : BSRI_TIER_SIMT;
    return gpu;
}
/* Small images would not be laid anew: a plan tells them to be, in the first of these ways that there is. */
static const uint32_t ways[] = {BSR_PLAN_STAGES_DENSE, BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT,
                                BSR_PLAN_STAGES_DENSE | BSR_PLAN_BUILDS_INDEX,
                                BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT | BSR_PLAN_BUILDS_INDEX, 0};
/* In half of the cases there is a workspace. */
static bsr_exec offered(const bsr_exec *exec) {
    bsr_exec e = exec ? *exec : bsr_exec();
    if (e.workspace || e.query || bt.seed / 512 % 2) return e;
    e.workspace_bytes = 4 << 20, e.workspace = bt_alloc((size_t)e.workspace_bytes, 64), bt_mark_output(e.workspace);
    return e;
}
static bsr_status device_conv(const bsr_context *ctx, double beta, const bsr_dense *input, double alpha, uint32_t trans,
                              const bsr_conv_shape *shape, const bsr_matrix *w, const bsr_dense *x, const bsr_epilogue *epilogue,
                              const bsr_dense *out, const bsr_exec *exec) {
    bsr_context gpu = like_a_gpu(ctx);
    bsr_exec e = offered(exec);
    bsri_product_call q;
    bsri_conv_call p;
    bsri_conv job;
    bsr_plan plan = BSR_ZERO;
    bsri_call c;
    bsr_status s = bsri_conv_start(&c, &gpu, &e, &p, &q, beta, input, alpha, trans, shape, w, x, epilogue, out);
    if (s != BSR_OK || e.query || e.plan || bsri_is_one_of(BSRI_F8, w->dtype))
        return bsr_conv(ctx, beta, input, alpha, trans, shape, w, x, epilogue, out, exec);
    bsri_conv_prepare(&c, &p, &q, &job);
    const bsri_conv_geometry *g = &job.geo;
    if (trans && g->channels && g->filters && g->channels % w->block_cols == 0 && g->filters % w->block_rows == 0 &&
        g->taps.all <= BSRI_CONV_TAPS)
        check_lists(g, w);
    for (const uint32_t *way = e.workspace && bt.seed / 2048 % 2 ? ways : ways + 4;; way++) {
        plan.flags = *way, e.plan = *way ? &plan : NULL, s = bsri_cuda_conv(&c, &job, shape->dims);
        if (s != BSR_BAD_PLAN || !*way) return s;
    }
}
static bsr_status device_conv_weight_gradient(const bsr_context *ctx, double beta, const bsr_matrix *input, double alpha,
                                              const bsr_conv_shape *shape, const bsr_dense *dy, const bsr_dense *x,
                                              const bsr_matrix *out, const bsr_exec *exec) {
    bsr_context gpu = like_a_gpu(ctx);
    bsr_exec e = offered(exec);
    bsri_conv_weights job;
    bsr_plan plan = BSR_ZERO;
    bsri_call c;
    bsr_status s = bsri_conv_weights_start(&c, &gpu, &e, &job, beta, input, alpha, shape, dy, x, out);
    if (s != BSR_OK || e.query || e.plan || bsri_is_one_of(BSRI_F8, x->dtype))
        return bsr_conv_weight_gradient(ctx, beta, input, alpha, shape, dy, x, out, exec);
    plan.split = (int32_t)bt_range(2, 4);
    if (e.workspace && bt.seed / 1024 % 2) e.plan = &plan; /* small ones would not be shared out else */
    if (e.workspace && bt.seed / 2048 % 2) plan.flags = BSR_PLAN_STAGES_DENSE, e.plan = &plan;
    s = bsri_cuda_conv_weights(&c, &job, shape->dims);
    if (s != BSR_BAD_PLAN || !e.plan) return s;
    e.plan = NULL;
    return bsri_cuda_conv_weights(&c, &job, shape->dims);
}
static void report(void) { /* how often each kernel ran */
    for (int i = 0; i < 1024; i++)
        if (launches[i]) printf("     kernel %d: %ld launches\n", i, launches[i]);
    printf("     %ld images laid anew\n", images_laid);
}
#define bsr_conv device_conv
#define bsr_conv_weight_gradient device_conv_weight_gradient
#undef bt_main
#define bt_main(argc, argv, tests, count) (atexit(report), bt_run("tests/test_conv.c", argc, argv, tests, count))
#include "test_conv.c"
