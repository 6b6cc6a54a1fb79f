/* Uses the library through declarations only, included twice; C or C++. */
#include "bsrsparse.h"
#include "bsrsparse.h"

#ifdef __cplusplus
extern "C"
#endif
    int
    plain(void);
int plain(void) { /* 1 where a small product is right */
    int32_t crow[] = {0, 1}, col[] = {0};
    double value[] = {3}, b[] = {5}, c[] = {0};
    bsr_matrix A = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, value, BSR_F64);
    bsr_dense B = bsr_dense_row_major(b, BSR_F64, 1, 1), C = bsr_dense_row_major(c, BSR_F64, 1, 1);
    bsr_context *ctx = NULL;
    int good =
        bsr_create(NULL, &ctx, NULL) == BSR_OK && bsr_dense_mm(ctx, 0, &A, &B, &C, NULL) == BSR_OK && c[0] > 14.5 && c[0] < 15.5;
    bsr_destroy(ctx);
    return good && bsr_version() == BSR_VERSION;
}
