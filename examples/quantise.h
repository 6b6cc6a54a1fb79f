/* What quantise.c is made of: the matrix, calls with the workspace that they name, a clock. */
#ifndef QUANTISE_H
#define QUANTISE_H
#include "files.h"

typedef struct numbers { /* what is multiplied, in one type */
    bsr_matrix A;
    bsr_dense B, C;
    bsr_scales a_scales, b_scales;
    bsr_dense a_scale, b_scale;
    bsr_epilogue epilogue;
} numbers;

static bsr_context *ctx, *builder;
static bsr_error error;
static bsr_exec run;
static int64_t block, cols;

static char *memory; /* of the workspace */
/* The workspace that a query names, at a multiple of 64. */
static inline void room(bsr_status status, const bsr_plan *plan) {
    REQUIRE(status, &error);
    run.query = NULL;
    if (plan->workspace_bytes <= run.workspace_bytes) return;
    release(memory), memory = (char *)allocate((int64_t)plan->workspace_bytes + 64, 1);
    run.workspace = memory + (64 - (uintptr_t)memory % 64) % 64, run.workspace_bytes = plan->workspace_bytes;
}
static inline void quantise(bsr_operand x, bsr_operand out, const bsr_scales *scales) {
    bsr_plan plan;
    run.query = &plan, room(bsr_quantise(ctx, 0, x, out, scales, NULL, &run), &plan);
    REQUIRE(bsr_quantise(ctx, 0, x, out, scales, NULL, &run), &error);
}
/* C = A B; seconds of one product, the median of some. */
static inline int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static inline double multiply(numbers *n) {
    enum { TURNS = 7, EACH = 5 };
    double took[TURNS];
    bsr_plan plan;
    int i, k;
    run.query = &plan, room(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &n->A, &n->B, &n->epilogue, &n->C, &run), &plan);
    for (i = 0; i < TURNS; i++) {
        const double start = seconds();
        for (k = 1; k < EACH; k++) (void)bsr_dense_addmm(ctx, 0, NULL, 1, 0, &n->A, &n->B, &n->epilogue, &n->C, &run);
        REQUIRE(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &n->A, &n->B, &n->epilogue, &n->C, &run), &error);
        took[i] = (seconds() - start) / EACH;
    }
    qsort(took, TURNS, sizeof *took, ascending);
    return took[TURNS / 2];
}
/* |x - y| / |y|, in the sum of squares. */
static inline double apart(const float *x, const float *y, int64_t n) {
    double off = 0, all = 1e-300;
    while (n-- > 0) off += ((double)x[n] - (double)y[n]) * ((double)x[n] - (double)y[n]), all += (double)y[n] * (double)y[n];
    return sqrt(off / all);
}
/* The matrix that the file holds, or a layer's weights, in blocks; the largest blocks stay. */
static inline bsr_matrix make_matrix(const char *path, double sparsity, uint64_t *random) {
    bsr_matrix all, kept;
    bsr_file_info info;
    entries e;
    int64_t i, blocks;
    memset(&info, 0, sizeof info);
    if (path) e = read_entries(path, &info);
    if (!path) {
        e = entries_make(1024, 1024, 1024 * 1024);
        for (i = 0; i < 1024 * 1024; i++)
            entries_add(&e, i / 1024, i % 1024, random_normal(random) * (draw_below(random, 1000) ? 1 : 20));
    }
    for (i = 0; i < e.count && path && !info.has_values; i++) e.value[i] = random_normal(random);
    blocks = (e.rows + block - 1) / block;
    all = bsr_matrix_make(0, 0, block, block, 0, allocate(blocks + 1, 8), NULL, BSR_I64, NULL, BSR_F32), kept = all;
    REQUIRE(bsr_from_coo(builder, e.rows, e.cols, e.count, e.row, e.col, BSR_I64, e.value, BSR_F64, &all, &run), &error);
    all.col_indices = allocate(all.nnz, 8), all.values = allocate(all.nnz * block * block, sizeof(float));
    REQUIRE(bsr_from_coo(builder, e.rows, e.cols, e.count, e.row, e.col, BSR_I64, e.value, BSR_F64, &all, &run), &error);
    kept.crow_indices = allocate(blocks + 1, 8), kept.col_indices = allocate(all.nnz, 8), kept.nnz = all.nnz;
    kept.values = allocate(all.nnz * block * block, sizeof(float));
    REQUIRE(bsr_prune(builder, bsr_operand_sparse(&all), sparsity, BSR_NORM_L2, &kept, &run), &error);
    printf("%s: %lld x %lld, %lld of %lld blocks of %lld x %lld stay; times a matrix of %lld columns\n", path ? path : "layer",
           (long long)kept.rows, (long long)kept.cols, (long long)kept.nnz, (long long)all.nnz, (long long)block,
           (long long)block, (long long)cols);
    release((void *)(uintptr_t)all.crow_indices), release((void *)(uintptr_t)all.col_indices);
    release((void *)(uintptr_t)all.values), release(e.row), release(e.col), release(e.value);
    return kept;
}

#endif
