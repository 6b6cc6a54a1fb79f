/* Products with few columns and conversions, for bench_few.py: the library's side, a naive C loop, a read of as many bytes, and
   MKL through function pointers that Python hands over. Compiled as a shared library. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
#include <stdlib.h>
#include <time.h>

static bsr_context *ctx;
static bsr_exec run;
static char *scratch;
static int threads_used; /* one: its own time, without what other programs take of the processor */

static double now(void) {
    struct timespec t;
    clock_gettime(threads_used == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void *aligned(size_t bytes) { /* never freed: the process is short */
    char *p = (char *)malloc(bytes + 64);
    return p ? p + (64 - (uintptr_t)p % 64) : NULL;
}

int few_open(int threads, int isa) {
    bsr_context_desc desc = BSR_ZERO;
    threads_used = threads;
    desc.backend = BSR_BACKEND_CPU, desc.threads = threads, desc.isa = isa;
    if (ctx) bsr_destroy(ctx);
    return bsr_create(&desc, &ctx, NULL);
}
/* side: 0 ours, 1 ours without checks, 2 ours of A^T (index as attached), 3 of A^T with a workspace. Seconds for `times` calls,
   negative: the status. */
double few_ours(int side, const bsr_matrix *a, const bsr_dense *b, const bsr_dense *out, int times) {
    bsr_plan plan;
    double start;
    int i;
    run.flags = side == 1 ? BSR_EXEC_SKIP_CHECKS : 0, run.workspace = NULL, run.workspace_bytes = 0, run.query = NULL;
    if (side == 3) {
        run.query = &plan;
        i = bsr_dense_mm(ctx, BSR_TRANS_A, a, b, out, &run), run.query = NULL;
        if (i) return -i;
        free(scratch), scratch = (char *)malloc(plan.workspace_bytes + 64);
        run.workspace = scratch + (64 - (uintptr_t)scratch % 64), run.workspace_bytes = plan.workspace_bytes;
    }
    start = now();
    for (i = 0; i < times; i++) {
        const int status = bsr_dense_mm(ctx, side >= 2 ? BSR_TRANS_A : 0, a, b, out, &run);
        if (status) return -status;
    }
    return now() - start;
}
void *few_transposed(const bsr_matrix *a) {
    uint64_t bytes;
    void *p;
    if (bsr_transposed_index_size(ctx, a, &bytes, NULL)) return NULL;
    p = aligned((size_t)bytes);
    return bsr_build_transposed_index(ctx, a, p, bytes, NULL) ? NULL : p;
}

/* The loop that people write first. */
#define NAIVE(NAME, T)                                                                                                   \
    static void NAME(int64_t rows, int br, int bc, const int32_t *crow, const int32_t *col, const T *v, const T *x, T *y) { \
        for (int64_t i = 0; i < rows; i++)                                                                               \
            for (int r = 0; r < br; r++) {                                                                               \
                T sum = 0;                                                                                               \
                for (int32_t p = crow[i]; p < crow[i + 1]; p++)                                                          \
                    for (int c = 0; c < bc; c++) sum += v[((int64_t)p * br + r) * bc + c] * x[(int64_t)col[p] * bc + c];  \
                y[i * br + r] = sum;                                                                                     \
            }                                                                                                            \
    }
NAIVE(naive_f32, float)
NAIVE(naive_f64, double)
double few_naive(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *out, int times) {
    const int64_t rows = a->rows / a->block_rows;
    const int32_t *crow = (const int32_t *)a->crow_indices, *col = (const int32_t *)a->col_indices;
    const int br = (int)a->block_rows, bc = (int)a->block_cols;
    const double start = now();
    for (int i = 0; i < times; i++) {
        if (a->dtype == BSR_F32)
            naive_f32(rows, br, bc, crow, col, (const float *)a->values, (const float *)b->data, (float *)out->data);
        else naive_f64(rows, br, bc, crow, col, (const double *)a->values, (const double *)b->data, (double *)out->data);
    }
    return now() - start;
}

/* A read of as many bytes by the context's threads. */
typedef struct reading {
    const char *data;
    int64_t bytes;
    uint64_t sum[64];
} reading;
static void read_part(void *arg, int64_t task) {
    typedef uint64_t eight __attribute__((vector_size(64), may_alias, aligned(8)));
    reading *r = (reading *)arg;
    const int64_t part = r->bytes / 64 / 64 * 64;
    const char *p = r->data + task * part, *end = p + part;
    eight a = {0}, b = a, c = a, d = a;
    for (; p + 256 <= end; p += 256)
        a += *(const eight *)p, b += *(const eight *)(p + 64), c += *(const eight *)(p + 128), d += *(const eight *)(p + 192);
    a += b, c += d, a += c;
    r->sum[task] = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}
double few_read(const void *data, int64_t bytes, int times) {
    static reading r;
    const double start = now();
    bsri_call c;
    if (bsri_begin(&c, ctx, BSR_OP_DENSE_ADDMM, NULL)) return -1;
    r.data = (const char *)data, r.bytes = bytes;
    for (int i = 0; i < times; i++) bsri_parallel(&c, 64, 0.1 * (double)bytes, read_part, &r);
    return now() - start;
}

/* mkl_sparse_?_mv and _mm by their addresses; descr: a general matrix. */
typedef struct descr { int type, mode, diag; } descr;
typedef int (*mv_d)(int, double, void *, descr, const double *, double, double *);
typedef int (*mv_s)(int, float, void *, descr, const float *, float, float *);
double few_mkl(void *mv, void *handle, int single, int trans, const void *x, void *y, int times) {
    const descr general = {20, 0, 0};
    const int op = trans ? 11 : 10;
    const double start = now();
    for (int i = 0; i < times; i++) {
        const int status = single ? ((mv_s)mv)(op, 1, handle, general, (const float *)x, 0, (float *)y)
                                  : ((mv_d)mv)(op, 1, handle, general, (const double *)x, 0, (double *)y);
        if (status) return -status;
    }
    return now() - start;
}

/* Conversions, seconds for `times` calls of counting and filling. what: 0 from CSR, 1 from COO (row), 2 to dense, 3 transposed
   index. */
double few_convert(int what, const bsr_matrix *s, const void *row, bsr_matrix *m, const bsr_dense *d, void *index, int times) {
    const double start = now();
    int i, status = 0;
    for (i = 0; i < times && !status; i++) {
        bsr_matrix count = *m;
        uint64_t bytes;
        count.col_indices = count.values = NULL;
        if (what == 0) {
            status = bsr_from_csr(ctx, s->rows, s->cols, s->nnz, s->crow_indices, s->col_indices, BSR_I32, s->values, s->dtype,
                                  &count, NULL);
            if (!status)
                status = bsr_from_csr(ctx, s->rows, s->cols, s->nnz, s->crow_indices, s->col_indices, BSR_I32, s->values,
                                      s->dtype, m, NULL);
        } else if (what == 1) {
            status = bsr_from_coo(ctx, s->rows, s->cols, s->nnz, row, s->col_indices, BSR_I32, s->values, s->dtype, &count, NULL);
            if (!status)
                status = bsr_from_coo(ctx, s->rows, s->cols, s->nnz, row, s->col_indices, BSR_I32, s->values, s->dtype, m, NULL);
        } else if (what == 2) {
            status = bsr_to_dense(ctx, m, d, NULL);
        } else {
            status = bsr_transposed_index_size(ctx, m, &bytes, NULL);
            if (!status) status = bsr_build_transposed_index(ctx, m, index, bytes, NULL);
        }
    }
    return status ? -status : now() - start;
}
