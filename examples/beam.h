/* The stiffness matrix of an elastic beam, assembled from trilinear hexahedra, as coordinate entries. */
#ifndef BEAM_H
#define BEAM_H
#include "example.h"

/* A matrix as a list of entries in any order; entries at the same place add up. */
typedef struct entries {
    int64_t rows, cols, count;
    int64_t *row, *col;
    double *value;
    int repeats; /* how many entries at most share a place */
} entries;

static inline entries entries_make(int64_t rows, int64_t cols, int64_t capacity) {
    entries e;
    e.rows = rows, e.cols = cols, e.count = 0, e.repeats = 1;
    e.row = (int64_t *)allocate(capacity, sizeof *e.row);
    e.col = (int64_t *)allocate(capacity, sizeof *e.col);
    e.value = (double *)allocate(capacity, sizeof *e.value);
    return e;
}
static inline void entries_add(entries *e, int64_t row, int64_t col, double value) {
    e->row[e->count] = row, e->col[e->count] = col, e->value[e->count++] = value;
}
static inline void entries_free(entries *e) { release(e->row), release(e->col), release(e->value); }

#define BEAM_YOUNG 1.0
#define BEAM_POISSON 0.3

/* k += integral of B^T C B over the unit cube, by 2 x 2 x 2 Gauss points. Corner n stands at the bits of n. */
static inline void beam_element(double k[24][24]) {
    const double lambda = BEAM_YOUNG * BEAM_POISSON / ((1 + BEAM_POISSON) * (1 - 2 * BEAM_POISSON));
    const double mu = BEAM_YOUNG / (2 * (1 + BEAM_POISSON)), gauss = 0.5 / sqrt(3.0);
    double d[8][3]; /* gradients of the eight shape functions */
    int p, n, m, i, j, axis;
    memset(k, 0, 24 * sizeof k[0]);
    for (p = 0; p < 8; p++) {
        for (n = 0; n < 8; n++)
            for (i = 0; i < 3; i++)
                for (d[n][i] = 1, axis = 0; axis < 3; axis++) {
                    double x = 0.5 + ((p >> axis) & 1 ? gauss : -gauss);
                    double high = (n >> axis) & 1;
                    d[n][i] *= axis == i ? 2 * high - 1 : high > 0 ? x : 1 - x;
                }
        for (n = 0; n < 8; n++)
            for (m = 0; m < 8; m++) { /* lambda (div u)(div v) + 2 mu eps(u):eps(v), weight 1/8 */
                double dot = d[n][0] * d[m][0] + d[n][1] * d[m][1] + d[n][2] * d[m][2];
                for (i = 0; i < 3; i++)
                    for (j = 0; j < 3; j++)
                        k[3 * n + i][3 * m + j] +=
                            0.125 * (lambda * d[n][i] * d[m][j] + mu * d[n][j] * d[m][i] + (i == j ? mu * dot : 0));
            }
    }
}

/* A beam of nx x ny x nz unit cubes along x, clamped at x = 0: the unknowns are the three displacements of each other
   node, x slowest. */
static inline entries beam_assemble(int64_t nx, int64_t ny, int64_t nz) {
    const int64_t sy = nz + 1, sx = (ny + 1) * sy;
    double k[24][24];
    entries e = entries_make(3 * nx * sx, 3 * nx * sx, nx * ny * nz * 576);
    int64_t x, y, z;
    int n, m, i, j;
    beam_element(k);
    for (x = 0; x < nx; x++)
        for (y = 0; y < ny; y++)
            for (z = 0; z < nz; z++)
                for (n = 0; n < 8; n++)
                    for (m = 0; m < 8; m++) {
                        int64_t node = (x + (n & 1) - 1) * sx + (y + (n >> 1 & 1)) * sy + z + (n >> 2);
                        int64_t other = (x + (m & 1) - 1) * sx + (y + (m >> 1 & 1)) * sy + z + (m >> 2);
                        if (node < 0 || other < 0) continue; /* clamped */
                        for (i = 0; i < 3; i++)
                            for (j = 0; j < 3; j++) entries_add(&e, 3 * node + i, 3 * other + j, k[3 * n + i][3 * m + j]);
                    }
    e.repeats = 8; /* elements around a node */
    return e;
}

/* The entries as a BSR matrix of the given block size and type; the caller frees its three arrays with matrix_free. */
static inline bsr_matrix matrix_from_entries(const bsr_context *ctx, const entries *e, int64_t block_rows, int64_t block_cols,
                                             int dtype) {
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_matrix m = bsr_matrix_make(0, 0, block_rows, block_cols, 0, NULL, NULL, BSR_I32, NULL, dtype);
    exec.error = &error;
    m.crow_indices = allocate((e->rows + block_rows - 1) / block_rows + 1, sizeof(int32_t));
    REQUIRE(bsr_from_coo(ctx, e->rows, e->cols, e->count, e->row, e->col, BSR_I64, NULL, BSR_F64, &m, &exec),
            &error); /* counts */
    m.col_indices = allocate(m.nnz, sizeof(int32_t));
    m.values = allocate(m.nnz * block_rows * block_cols, bsr_dtype_size(dtype));
    REQUIRE(bsr_from_coo(ctx, e->rows, e->cols, e->count, e->row, e->col, BSR_I64, e->value, BSR_F64, &m, &exec), &error);
    return m;
}
static inline void matrix_free(bsr_matrix *m) { release(m->crow_indices), release(m->col_indices), release(m->values); }

#endif
