/* masks_checks.cpp: test_masks.c against the kernels that make block masks, and the host side that launches them, run on the
   host: threads of a CTA are coroutines (warps.h). No GPU and no nvcc is needed. tests/test_device.sh cuts the sections out of
   the sources, as they stand, into masks.inc; what they need of others is here. */
static int emulating; /* operations go to the kernels */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse_emulated.h"

#include "ref64.h"
#include "ref_decode.h"
#include "ref_masks.h"

#define BSR_THREADS 1024
#include "warps.h"

/* --- what the sections need of others --- */
#define BSRI_BOUNDS(...)
enum { BSRI_SEGMENT = 64, BSRI_CHUNK_LINES = 8192 };
static const char *bsri_dev_bias_base(const bsri_batch *b, int64_t item, const bsr_dense *d) {
    return d->data ? bsri_at(d->data, d->dtype, bsri_dense_offset(b, item, d)) : NULL;
}
template <class F> static F bsri_dev_number(const void *base, int dtype, int64_t i) { return (F)bsri_load_f64(base, dtype, i); }
template <class F> static F bsri_dev_inf(void) { return (F)INFINITY; }
template <class F> static F bsri_dev_nan(void) { return (F)NAN; }
static double bsri_dev_max(double a, double b) { return a != a || a > b ? a : b; }
static double bsri_dev_exp(double x) { return exp(x); }
static double bsri_dev_log(double x) { return log(x); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static int64_t __double_as_longlong(double d) {
    int64_t u;
    memcpy(&u, &d, 8);
    return u;
}
static bsr_status bsri_cuda_plan(const bsri_call *c, const bsri_cuts *cuts, int *stop) {
    bsr_plan p = bsri_plan_default(c);
    if (cuts->overflow) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_NONE, -1, 0);
    p.workspace_bytes = (uint64_t)cuts->bytes;
    return bsri_plan_settle(c, &p, stop);
}
/* Few CTAs of kernels with barriers: each of their threads is a coroutine. */
#define BSRI_CUDA_NEXT(c, kernel, p, work, threads) \
    ((work) > 0 ? launch(kernel, p, work, threads, (threads) > BSRI_CTA ? 2 : 6) : (void)0)
#define BSRI_CUDA_RUN BSRI_CUDA_NEXT
#include "masks.inc"

/* --- the operations --- */
/* A context that has a GPU's multiprocessors: what is cut into parts depends on them. */
static bsr_context like_a_gpu(const bsr_context *ctx) {
    static const int counts[] = {1, 2, 132};
    bsr_context gpu = *ctx;
    gpu.sm_count = counts[bt.seed / 64 % 3];
    return gpu;
}
/* By the kernels; scratch that is not there comes from here, poisoned. */
template <class F> static bsr_status emulated(const bsr_context *ctx, const bsr_exec *exec, const F &call) {
    const bsr_context gpu = like_a_gpu(ctx);
    bsr_exec e = exec ? *exec : bsr_exec();
    bsr_error error;
    if (!e.error) e.error = &error;
    emulating = 1;
    bsr_status s = call(&gpu, &e);
    if (s == BSR_WORKSPACE_TOO_SMALL && !e.query) {
        e.workspace_bytes = (uint64_t)e.error->value, e.workspace = bt_alloc((size_t)e.workspace_bytes, 64);
        bt_mark_output(e.workspace);
        s = call(&gpu, &e);
    }
    emulating = 0;
    return s;
}
/* Builders: what only counting tells is told by the CPU, as counts stay on the device. */
template <class F> static bsr_status built(const bsr_context *ctx, bsr_matrix *m, const bsr_exec *exec, const F &call) {
    bt_block *b = m ? bt_find(m->crow_indices) : NULL;
    if (!b || (exec && exec->query)) return call(ctx, m, exec);
    bsr_matrix count = *m;
    std::vector<int64_t> crow(b->bytes / 8 + 1);
    count.crow_indices = crow.data(), count.col_indices = count.values = NULL;
    if (call(ctx, &count, exec) != BSR_OK || (m->col_indices && count.nnz > m->nnz)) return call(ctx, m, exec);
    const bsr_status s =
        emulated(ctx, exec, [&](const bsr_context *gpu, const bsr_exec *e) { return call(gpu, m, e); });
    if (s == BSR_OK) m->nnz = count.nnz;
    return s;
}
static bsr_status device_block_mask(const bsr_context *ctx, int64_t lq, int64_t lk, const bsr_attention_options *o,
                                    const bsr_matrix *within, bsr_matrix *m, uint8_t *kind, const bsr_exec *exec) {
    return built(ctx, m, exec, [&](const bsr_context *c, bsr_matrix *to, const bsr_exec *e) {
        return bsr_block_mask(c, lq, lk, o, within, to, kind, e);
    });
}
static bsr_status device_from_lists(const bsr_context *ctx, const bsr_block_lists *l, bsr_matrix *m, uint8_t *kind,
                                    const bsr_exec *exec) {
    return built(ctx, m, exec, [&](const bsr_context *c, bsr_matrix *to, const bsr_exec *e) {
        return bsr_from_block_lists(c, l, to, kind, e);
    });
}
static bsr_status device_select(const bsr_context *ctx, const bsr_select *s, bsr_matrix *m, uint8_t *kind, const bsr_exec *exec) {
    return built(ctx, m, exec, [&](const bsr_context *c, bsr_matrix *to, const bsr_exec *e) {
        return bsr_select_blocks(c, s, to, kind, e);
    });
}
static bsr_status device_to_lists(const bsr_context *ctx, const bsr_matrix *m, const uint8_t *kind, const bsr_block_lists *l,
                                  const bsr_exec *exec) {
    return emulated(ctx, exec,
                    [&](const bsr_context *c, const bsr_exec *e) { return bsr_to_block_lists(c, m, kind, l, e); });
}
static bsr_status device_pool(const bsr_context *ctx, int kind, int64_t block, const bsr_dense *x, const int32_t *counts,
                              int64_t stride, const bsr_dense *out, const bsr_exec *exec) {
    return emulated(ctx, exec, [&](const bsr_context *c, const bsr_exec *e) {
        return bsr_pool_blocks(c, kind, block, x, counts, stride, out, e);
    });
}
#define bsr_block_mask device_block_mask
#define bsr_from_block_lists device_from_lists
#define bsr_to_block_lists device_to_lists
#define bsr_pool_blocks device_pool
#define bsr_select_blocks device_select
#include "test_masks.c"
