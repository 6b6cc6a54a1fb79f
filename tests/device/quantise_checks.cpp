/* quantise_checks.cpp: test_quantise.c against the kernels of bsr_quantise and bsr_dequantise and the host side that launches
   them, run on the host: threads of a CTA are coroutines, so that lanes can exchange numbers. No GPU and no nvcc is needed.
   tests/test_device.sh cuts the sections out of the sources, as they stand, into quantise.inc; what they need of others is here.
 */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "ref64.h"
#include "ref_quantise.h"

#include "warps.h"

/* --- what the sections need of others --- */
static bool bsri_dev_is_f8(int dtype);
template <class F> static F bsri_dev_number(const void *base, int dtype, int64_t i) { return (F)bsri_load_f64(base, dtype, i); }
static void atomicMax(uint32_t *to, uint32_t v) {
    if (v > *to) *to = v;
}
enum { BSRI_CTA = BSR_CTA, BSRI_CTA_WARPS = BSR_CTA / 32 };
#define BSRI_CUDA_NEXT(c, kernel, p, work, threads) ((work) > 0 ? launch(kernel, p, work) : (void)0)
static bsr_status bsri_cuda_zero(const bsri_call *, void *data, int64_t bytes, const int64_t *, int64_t, void *, int64_t) {
    memset(data, 0, (size_t)bytes);
    return BSR_OK;
}
#include "quantise.inc"

/* --- the operations: the CPU's checks, then the other side's host part with a context that has its multiprocessors --- */
static bsr_status device_quantise_call(const bsr_context *ctx, uint32_t flags, bsr_operand x, bsr_operand out,
                                       const bsr_scales *scales, const bsr_dense *amax, int op, const bsr_exec *exec) {
    static const int counts[] = {1, 2, 132};
    const int back = op == BSR_OP_DEQUANTISE;
    const bsr_exec e = exec ? *exec : bsr_exec();
    bsr_context gpu = *ctx;
    bsri_call c;
    bsri_quantise j;
    gpu.sm_count = counts[bt.seed / 64 % 3];
    BSRI_TRY(bsri_begin(&c, &gpu, op, exec));
    BSRI_TRY(bsri_quantise_check(&c, flags, x, out, scales, amax, back));
    memset(&j, 0, sizeof j);
    j.x = x, j.out = out, j.back = back, j.given = back || (flags & BSR_QUANTISE_GIVEN);
    j.powers = (flags & BSR_QUANTISE_POWERS_OF_TWO) != 0;
    bsri_quantise_prepare(&j, scales, amax);
    const bsr_status s = bsri_cuda_quantise(&c, &j);
    if (s != BSR_WORKSPACE_TOO_SMALL || e.query) return s;
    bsr_exec more = e; /* as a test that asked nobody: what is missing comes from here */
    more.workspace_bytes = (uint64_t)e.error->value, more.workspace = bt_alloc((size_t)more.workspace_bytes, 64);
    bt_mark_output(more.workspace);
    return device_quantise_call(ctx, flags, x, out, scales, amax, op, &more);
}
static bsr_status device_quantise(const bsr_context *ctx, uint32_t flags, bsr_operand x, bsr_operand out,
                                  const bsr_scales *scales, const bsr_dense *amax, const bsr_exec *exec) {
    return device_quantise_call(ctx, flags, x, out, scales, amax, BSR_OP_QUANTISE, exec);
}
static bsr_status device_dequantise(const bsr_context *ctx, bsr_operand x, const bsr_scales *scales, bsr_operand out,
                                    const bsr_exec *exec) {
    return device_quantise_call(ctx, 0, x, out, scales, NULL, BSR_OP_DEQUANTISE, exec);
}
#define bsr_quantise device_quantise
#define bsr_dequantise device_dequantise
#define main main_of_quantise
#include "test_quantise.c"
#undef main

int main(int argc, char **argv) {
    const int failed = main_of_quantise(argc, argv);
    return failed | (argc < 2 && !launches);
}
