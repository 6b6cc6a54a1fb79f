/* fuzz_validate.c: any descriptor and index arrays. bsr_validate answers without reading outside; what it accepts, the other
   operations accept. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz_operands.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input in;
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = BSR_ZERO;
    const bsr_context *ctx = fuzz_context();
    bsr_status status;
    int64_t r, c, br, bc;
    in.p = data, in.end = data + size, e.error = &error;
    r = fuzz_below(&in, 6), c = fuzz_below(&in, 6), br = 1 + fuzz_below(&in, 4), bc = 1 + fuzz_below(&in, 4);
    m = fuzz_matrix(&in, BSR_F32, r, c, br, bc);
    fuzz_views(&in, ctx, &m);
    status = bsr_validate(ctx, &m, &e);
    FUZZ_REQUIRE(status >= BSR_OK && status <= BSR_PARSE_ERROR && error.status == (int32_t)status);
    FUZZ_REQUIRE((status == BSR_OK) == (error.item == BSR_ITEM_NONE));
    if (status == BSR_OK && m.values && m.dtype == BSR_F32 && m.rows < 500 && m.cols < 500) {
        int64_t items = 1, i;
        bsr_dense out = bsr_dense_row_major(NULL, BSR_F32, m.rows, m.cols);
        for (i = m.batch_dims - 1; i >= 0; i--)
            out = bsr_dense_batched(out, m.batch[i], items * m.rows * m.cols), items *= m.batch[i];
        if (items * m.rows * m.cols < 200000) {
            out.data = fuzz_alloc((size_t)(items * m.rows * m.cols) * 4);
            status = bsr_to_dense(ctx, &m, &out, &e);
            FUZZ_REQUIRE(status == BSR_OK || error.item == BSR_ITEM_ALIGNMENT);
        }
    }
    fuzz_free();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) { return fuzz_random_main(argc, argv, 200000, 0, 200); }
#endif
