/* spmm's measurements: one matrix in several block sizes and prunings, each right, each timed, beside what else multiplies it. */
#ifndef SWEEP_H
#define SWEEP_H
#include "files.h"

typedef struct sample { /* one way to multiply */
    char name[48];
    int64_t block_rows, block_cols, blocks, cols;
    double prune;         /* negative: nothing was */
    double fill, bytes;   /* share of stored numbers that are entries; of the matrix */
    double seconds, error; /* error: share of the bound; negative: a peer, not checked here */
} sample;
typedef struct sweep {
    const bsr_context *run, *build;
    const entries *e;
    int dtype;
    uint64_t random;
    int64_t stored; /* entries at places of their own */
    sample list[256];
    int count, best; /* the fastest of ours that is not pruned, with the first number of columns; -1: none */
} sweep;

static inline int by_seconds(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
/* The largest |out - reference| over its bound (k + 2) u |A||B| and one rounding, summed in double precision: four columns. */
static inline double sweep_error(const sweep *s, const bsr_matrix *A, const void *b, const void *out, int out_dtype, int64_t n) {
    const double u = s->dtype == BSR_F64 ? ldexp(1, -53) : ldexp(1, -24);
    const int32_t *crow = (const int32_t *)A->crow_indices, *col = (const int32_t *)A->col_indices;
    double *v = (double *)converted(s->build, A->values, A->dtype, BSR_F64, A->nnz * A->block_rows * A->block_cols);
    double *x = (double *)converted(s->build, b, s->dtype, BSR_F64, A->cols * n), worst = 0;
    double *y = (double *)converted(s->build, out, out_dtype, BSR_F64, A->rows * n);
    int64_t i, j, k, p;
    for (i = 0; i < A->rows; i++)
        for (j = 0; j < n && j < 4; j++) {
            const int64_t row = i / A->block_rows;
            double sum = 0, size = 0;
            for (p = crow[row]; p < crow[row + 1]; p++)
                for (k = 0; k < A->block_cols; k++) {
                    const double a = v[(p * A->block_rows + i % A->block_rows) * A->block_cols + k];
                    const double t = a * x[(col[p] * A->block_cols + k) * n + j];
                    sum += t, size += fabs(t);
                }
            size *= u * (double)((crow[row + 1] - crow[row]) * A->block_cols + 2);
            worst = worse(worst, fabs(y[i * n + j] - sum) / (size + u * fabs(sum) + 1e-300));
        }
    release(v), release(x), release(y);
    return worst;
}
static inline double sweep_nonzero(const sweep *s, const bsr_matrix *A) {
    const int64_t all = A->nnz * A->block_rows * A->block_cols;
    double *v = (double *)converted(s->build, A->values, A->dtype, BSR_F64, all), n = 0;
    int64_t i;
    for (i = 0; i < all; i++) n += v[i] != 0;
    release(v);
    return all ? n / (double)all : 0;
}
/* Median seconds of warm products: at least five, at most fifty, about a fifth of a second in all. */
static inline double sweep_time(const sweep *s, const bsr_matrix *A, const bsr_dense *b, const bsr_dense *out) {
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    double t[50], all = 0;
    int runs;
    exec.error = &error;
    REQUIRE(bsr_dense_mm(s->run, 0, A, b, out, &exec), &error);
    for (runs = 0; runs < 50 && (runs < 5 || all < 0.2); all += t[runs++]) {
        const double start = seconds();
        REQUIRE(bsr_dense_mm(s->run, 0, A, b, out, &exec), &error);
        t[runs] = seconds() - start;
    }
    qsort(t, (size_t)runs, sizeof *t, by_seconds);
    return fmax(t[runs / 2], 1e-9);
}
/* One block size, whole or pruned, times n columns. */
static inline void sweep_one(sweep *s, int64_t br, int64_t bc, double prune, int64_t n) {
    const int out_dtype = s->dtype == BSR_F64 ? BSR_F64 : BSR_F32;
    sample *x = &s->list[s->count];
    bsr_matrix A = matrix_from_entries(s->build, s->e, br, bc, s->dtype), all = A;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_dense b, out;
    double *drawn;
    int64_t i;
    if (s->count == (int)(sizeof s->list / sizeof s->list[0])) complain("--report", "too many cases at once");
    exec.error = &error;
    if (prune >= 0) {
        A.crow_indices = allocate(all.rows / br + 1, 4), A.col_indices = allocate(all.nnz, 4);
        A.values = allocate(all.nnz * br * bc, bsr_dtype_size(s->dtype));
        REQUIRE(bsr_prune(s->build, bsr_operand_sparse(&all), prune, BSR_NORM_L2, &A, &exec), &error);
        matrix_free(&all);
    }
    drawn = (double *)allocate(A.cols * n, sizeof *drawn);
    for (i = 0; i < A.cols * n; i++) drawn[i] = random_normal(&s->random);
    b = bsr_dense_row_major(converted(s->build, drawn, BSR_F64, s->dtype, A.cols * n), s->dtype, A.cols, n);
    out = bsr_dense_row_major(allocate(A.rows * n, bsr_dtype_size(out_dtype)), out_dtype, A.rows, n);
    memset(x, 0, sizeof *x);
    snprintf(x->name, sizeof x->name, "%lld x %lld", (long long)br, (long long)bc);
    x->block_rows = br, x->block_cols = bc, x->blocks = A.nnz, x->prune = prune, x->cols = n;
    x->bytes = (double)A.nnz * ((double)(br * bc) * (double)bsr_dtype_size(s->dtype) + 4) + 4 * ((double)(A.rows / br) + 1);
    x->fill = A.nnz ? (double)s->stored / ((double)A.nnz * (double)(br * bc)) : 0;
    if (prune >= 0) x->fill = sweep_nonzero(s, &A);
    x->seconds = sweep_time(s, &A, &b, &out), x->error = sweep_error(s, &A, b.data, out.data, out_dtype, n);
    s->count++;
    release(drawn), release(b.data), release(out.data), matrix_free(&A);
}

#endif
