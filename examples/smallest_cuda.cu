/* The smallest complete CUDA program: 16 x 16 blocks of ones on the diagonal times a dense matrix, in bf16 on a GPU. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <cuda_bf16.h>
#include <stdio.h>

int main(void) {
    const int n = 256, block = 16, rows = n / block;
    int32_t *crow, *col;
    __nv_bfloat16 *values, *b, *c;
    bsr_context_desc desc = BSR_ZERO;
    bsr_context *ctx;
    bsr_error error;
    bsr_exec exec = BSR_ZERO; /* exec.stream: the CUDA stream, here the default one */
    char line[256];

    desc.backend = BSR_BACKEND_CUDA, exec.error = &error;
    if (bsr_create(&desc, &ctx, &error)) return bsr_error_string(&error, line, sizeof line), puts(line), 1;
    cudaMallocManaged(&crow, sizeof *crow * (rows + 1)), cudaMallocManaged(&col, sizeof *col * rows);
    cudaMallocManaged(&values, sizeof *values * n * block), cudaMallocManaged(&b, sizeof *b * n * n);
    cudaMallocManaged(&c, sizeof *c * n * n);
    for (int i = 0; i < rows; i++) col[i] = i, crow[i] = i, crow[i + 1] = i + 1;
    for (int i = 0; i < n * block; i++) values[i] = __float2bfloat16(1.0f);
    for (int i = 0; i < n * n; i++) b[i] = __float2bfloat16((float)(i % 7));
    bsr_matrix A = bsr_matrix_make(n, n, block, block, rows, crow, col, BSR_I32, values, BSR_BF16);
    bsr_dense B = bsr_dense_row_major(b, BSR_BF16, n, n), C = bsr_dense_row_major(c, BSR_BF16, n, n);
    if (bsr_dense_mm(ctx, 0, &A, &B, &C, &exec)) return bsr_error_string(&error, line, sizeof line), puts(line), 1;
    cudaDeviceSynchronize();
    printf("%g %g\n", (double)__bfloat162float(c[0]), (double)__bfloat162float(c[n * n - 1]));
    bsr_destroy(ctx);
    return 0;
}
