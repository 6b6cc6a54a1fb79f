/* maps_checks.cpp: test_maps.c against the kernels of bsr_map and bsr_reduce and the host side that launches them, run on the
   host: threads of a CTA are coroutines, so that lanes can exchange numbers. No GPU and no nvcc is needed. tests/test_device.sh
   cuts the sections out of the sources, as they stand, into maps.inc; what they need of others is here. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "ref_maps.h"

#include "warps.h"

/* --- what the sections need of others --- */
template <int DTYPE> struct bsri_dev_dtype {
    typedef uint16_t stored;
    static stored element(double v) {
        stored h;
        bsri_store_f64(&h, DTYPE, 0, v);
        return h;
    }
};
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
enum { BSRI_CTA = BSR_CTA, BSRI_CTA_WARPS = BSR_CTA / 32 };
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
    bsr_plan plan;
    BSRI_TRY(bsri_begin(&c, &gpu, BSR_OP_MAP, exec));
    BSRI_TRY(bsri_map_check(&c, options ? options : &none, alpha, x, beta, y, out));
    memset(&j, 0, sizeof j);
    j.x = x, j.y = y.sparse, j.dense = y.dense, j.out = out, j.options = options ? options : &none, j.alpha = alpha,
    j.beta = beta;
    bsri_map_prepare(&c, &j);
    plan = bsri_plan_default(&c);
    return bsri_cuda_map(&c, &j, &plan, BSRI_PLAN_AND_RUN);
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
