/* The smallest complete program: a 4 x 6 matrix with two 2 x 3 blocks times a 6 x 2 matrix. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <stdio.h>

int main(void) {
    int32_t crow[] = {0, 1, 2}; /* block row 0 owns block 0, block row 1 owns block 1 */
    int32_t col[] = {1, 0};     /* which stand in block columns 1 and 0 */
    float values[] = {1, 2, 3, 4, 5, 6, /**/ 7, 8, 9, 10, 11, 12};
    float b[] = {1, 0, 0, 1, 1, 1, 2, 0, 0, 2, 2, 2}, c[8];
    bsr_matrix A = bsr_matrix_make(4, 6, 2, 3, 2, crow, col, BSR_I32, values, BSR_F32);
    bsr_dense B = bsr_dense_row_major(b, BSR_F32, 6, 2), C = bsr_dense_row_major(c, BSR_F32, 4, 2);
    bsr_context *ctx;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    char line[256];

    exec.error = &error;
    if (bsr_create(NULL, &ctx, &error) || bsr_dense_mm(ctx, 0, &A, &B, &C, &exec))
        return bsr_error_string(&error, line, sizeof line), puts(line), 1;
    for (int i = 0; i < 4; i++) printf("%4g %4g\n", (double)c[2 * i], (double)c[2 * i + 1]);
    bsr_destroy(ctx);
    return 0;
}
