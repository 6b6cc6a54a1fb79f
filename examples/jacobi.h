/* The block-Jacobi preconditioner of cg.c. */
#ifndef JACOBI_H
#define JACOBI_H
#include "files.h"

/* a becomes its inverse, by Gauss and Jordan; a is symmetric and positive definite, so its pivots are positive. */
static inline void invert(double *a, int64_t n) {
    int64_t i, j, k;
    for (k = 0; k < n; k++) {
        const double pivot = a[k * n + k];
        if (!(pivot > 0)) complain("cg", "the matrix is not positive definite");
        for (j = 0, a[k * n + k] = 1; j < n; j++) a[k * n + j] /= pivot;
        for (i = 0; i < n; i++) {
            const double factor = a[i * n + k];
            if (i == k) continue;
            for (j = 0, a[i * n + k] = 0; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
}
/* The inverses of K's diagonal blocks, a block-diagonal matrix: applying it is one more product. */
static inline bsr_matrix block_jacobi(const bsr_matrix *K, int64_t unknowns) {
    const int64_t n = K->block_rows, rows = K->rows / n;
    const int32_t *crow = (const int32_t *)K->crow_indices, *col = (const int32_t *)K->col_indices;
    int32_t *own = (int32_t *)allocate(rows + 1, sizeof *own), *diagonal = (int32_t *)allocate(rows, sizeof *diagonal);
    double *v = (double *)allocate(rows * n * n, sizeof *v);
    int64_t r, p, i;
    for (r = 0; r < rows; r++) {
        own[r + 1] = (int32_t)(r + 1), diagonal[r] = (int32_t)r;
        for (p = crow[r]; p < crow[r + 1]; p++)
            if (col[p] == r) memcpy(v + r * n * n, (double *)K->values + p * n * n, (size_t)(n * n) * sizeof *v);
        for (i = unknowns - r * n > 0 ? unknowns - r * n : 0; i < n; i++) v[(r * n + i) * n + i] = 1; /* padding */
        invert(v + r * n * n, n);
    }
    return bsr_matrix_make(K->rows, K->rows, n, n, rows, own, diagonal, BSR_I32, v, BSR_F64);
}

#endif
