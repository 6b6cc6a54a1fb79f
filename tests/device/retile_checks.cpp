/* retile_checks.cpp: the kernels that lay small and odd blocks as tiles (>>device-retile), and the layout that the host side
   makes for them, run on the host: threads of a CTA are coroutines (warps.h). What tiles hold is compared with the blocks,
   element by element; and which of the two products may run. tests/test_device.sh cuts the sections out of the sources into
   retile.inc. */
#define BSRI_CHOOSERS
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "ref64.h"

#include "warps.h"

/* --- what the sections need of others --- */
enum { BSRI_CTA = BSR_CTA, BSRI_CTA_WARPS = BSR_CTA / 32 };
static uint32_t __vcmpeq2(uint32_t a, uint32_t b) {
    return ((a ^ b) & 0xffffu ? 0u : 0xffffu) | ((a ^ b) >> 16 ? 0u : 0xffff0000u);
}
template <class T> static T atomicAdd(T *at, T v) {
    const T old = *at;
    return *at += v, old;
}
static uint32_t __ldca(const uint32_t *at) { return *at; }
static uint32_t __ldcg(const uint32_t *at) { return *at; }
static void __threadfence(void) {}
#include "retile.inc"

/* Runs the kernels as bsri_retile_run() launches them. */
static void laid(const bsri_retiling *r) {
    const bsri_dev_retile *d = &r->d;
    const int64_t work = bsri_ceil_div(d->entries * (int64_t)d->area, 1024);
    const int64_t bytes = (int64_t)bsr_dtype_size(d->a.dtype) << d->log_piece;
    memset(d->state, 0, (size_t)r->zeroed), d->state[0] = d->state[1] = 1;
    launch(bsri_retile_mark, *d, 6), launch(bsri_retile_lists, *d, 6);
    if (bytes == 1) launch(bsri_retile_values<uint8_t>, *d, work);
    else if (bytes == 2) launch(bsri_retile_values<uint16_t>, *d, work);
    else if (bytes == 4) launch(bsri_retile_values<uint32_t>, *d, work);
    else if (bytes == 8) launch(bsri_retile_values<uint2>, *d, work);
    else launch(bsri_retile_values<uint4>, *d, work);
}
static bsr_matrix blocks_of(int dtype, int64_t br, int64_t bc, int64_t r, int64_t c, int64_t nnz, int index_dtype) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.index_dtype = index_dtype, s.block_rows = br, s.block_cols = bc, s.r = r, s.c = c, s.nnz = nnz;
    s.kind = FILL_INTEGER, s.layout = (int)bt_below(3);
    return t_matrix(&s);
}
static bsri_product job_of(const bsr_matrix *a, int trans, const bsr_dense *b, const bsr_dense *out) {
    bsri_product job;
    memset(&job, 0, sizeof job);
    job.a = a, job.b = b, job.out = out, job.trans = trans, job.compute = BSR_F32, job.alpha = 1, job.batch = bsri_batch_none();
    return job;
}
enum { PLAIN, UNSORTED, REPEATED, NOT_FINITE, HOSTILE, WAYS };
static void spoil(bsr_matrix *a, bsr_dense *b, int how) {
    const int64_t rows = bsri_block_rows(a);
    int64_t r, k;
    for (r = 0; r < rows; r++) {
        const int64_t at = t_crow(a, 0, r), n = t_crow(a, 0, r + 1) - at;
        if (how == HOSTILE && n) bsri_set_index((void *)a->col_indices, a->index_dtype, at, bsri_block_cols(a) + 5);
        if (n < 2) continue;
        k = t_col(a, 0, at);
        if (how == UNSORTED) {
            bsri_set_index((void *)a->col_indices, a->index_dtype, at, t_col(a, 0, at + n - 1));
            bsri_set_index((void *)a->col_indices, a->index_dtype, at + n - 1, k);
        }
        if (how == REPEATED) bsri_set_index((void *)a->col_indices, a->index_dtype, at + 1, k);
    }
    if (how == NOT_FINITE) { /* half the time the last number, which may be no part of a piece */
        const int last = bt_below(2) == 0;
        t_set(b, 0, last ? b->rows - 1 : bt_below(b->rows), last ? b->cols - 1 : bt_below(b->cols),
              bt_below(2) ? (double)NAN : bt_below(2) ? HUGE_VAL : -HUGE_VAL);
    }
}
/* May the tiles be multiplied? Where columns do not ascend in any row, or b is not finite, they may not. */
static int forbidden(const bsr_matrix *a, int how, int dtype) {
    int64_t r, p;
    if (how == NOT_FINITE && dtype != BSR_I8) return 1;
    for (r = 0; r < bsri_block_rows(a); r++)
        for (p = t_crow(a, 0, r); p < t_crow(a, 0, r + 1); p++)
            if (t_col(a, 0, p) >= bsri_block_cols(a) || (p > t_crow(a, 0, r) && t_col(a, 0, p) <= t_col(a, 0, p - 1))) return 1;
    return 0;
}
/* Tiles hold op(A), zeros elsewhere; each once, in ascending order. */
static void compare(const bsri_retiling *r, const bsr_matrix *a, int trans) {
    const bsr_matrix *t = &r->of.a;
    const int64_t tile = t->block_rows, rows = trans ? a->cols : a->rows, cols = trans ? a->rows : a->cols;
    int64_t i, j, p, y, x, s[3], stored = 0, tiles = r->d.crow[r->d.rows], bad = 0;
    std::vector<double> dense((size_t)(t->rows * t->cols), 0.0);
    bsri_value_strides(a, s);
    for (i = 0; i < bsri_block_rows(a); i++)
        for (p = t_crow(a, 0, i); p < t_crow(a, 0, i + 1); p++)
            for (y = 0; y < a->block_rows; y++)
                for (x = 0; x < a->block_cols; x++) {
                    const int64_t row = i * a->block_rows + y, col = t_col(a, 0, p) * a->block_cols + x;
                    dense[(size_t)(trans ? col * t->cols + row : row * t->cols + col)] =
                        t_load(a->values, a->dtype, p * s[0] + y * s[1] + x * s[2]);
                }
    CHECK(tiles <= r->capacity && r->d.crow[0] == 0 && rows <= t->rows && cols <= t->cols);
    for (i = 0; i < r->d.rows; i++)
        for (p = r->d.crow[i]; p < r->d.crow[i + 1]; p++) {
            const int64_t c = r->d.col[p];
            bad += p > r->d.crow[i] && c <= r->d.col[p - 1], stored++;
            if (c < 0 || c >= t->cols / tile) {
                bad++;
                continue;
            }
            for (y = 0; y < tile; y++)
                for (x = 0; x < tile; x++) {
                    double *const d = &dense[(size_t)((i * tile + y) * t->cols + c * tile + x)];
                    bad += t_load(r->d.values, a->dtype, (p * tile + y) * tile + x) != *d;
                    *d = 0;
                }
        }
    for (j = 0; j < t->rows * t->cols; j++) bad += dense[(size_t)j] != 0; /* in no tile */
    CHECK_INT(bad, 0), CHECK_INT(stored, tiles);
}
TEST(tiles) {
    static const int64_t shapes[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 7}, {8, 8}, {1, 13}, {13, 1}, {17, 17}, {31, 5},
                                        {8, 16}, {16, 8}, {64, 1}, {1, 64}, {48, 8}, {100, 36}, {40, 129}, {6, 4}};
    static const int dtypes[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_F64, BSR_I8};
    for (auto &shape : shapes)
        for (int dtype : dtypes)
            for (int how = 0; how < WAYS; how++)
                for (int trans = 0; trans < 2; trans++) {
                    if (how == NOT_FINITE && dtype == BSR_I8) continue;
                    const int64_t br = shape[0], bc = shape[1], r = bt_range(1, 200 / br + 2), c = bt_range(1, 200 / bc + 2);
                    const int64_t nnz = bsri_min(r * c, bt_range(1, 300)), n = bt_range(1, 40);
                    bt_case("%d x %d, %s, %d%s", (int)br, (int)bc, bsr_dtype_name(dtype), how, trans ? ", A^T" : "");
                    bsr_matrix a = blocks_of(dtype, br, bc, r, c, nnz, bt_below(2) ? BSR_I32 : BSR_I64);
                    bsr_dense b = t_random(dtype, trans ? a.rows : a.cols, n, (int)bt_below((int)LAYOUTS), NO_BATCH, 0,
                                           FILL_INTEGER);
                    bsr_dense out = t_output(t_sums(dtype), trans ? a.cols : a.rows, n, ROW, NO_BATCH);
                    spoil(&a, &b, how);
                    const bsri_product job = job_of(&a, trans, &b, &out);
                    const int log = (int)bt_range(BSRI_RETILE_LEAST, BSRI_RETILE_MOST);
                    bsri_retiling plan;
                    if (!bsri_retile_lay(&job, log, (char *)4096, &plan)) {
                        CHECK(0);
                        continue;
                    }
                    char *const room = (char *)bt_alloc((size_t)plan.s.bytes, 128);
                    memset(room, 0xff, (size_t)plan.s.bytes);
                    CHECK(bsri_retile_lay(&job, log, room, &plan));
                    laid(&plan);
                    const int stop = forbidden(&a, how, dtype);
                    CHECK_INT(plan.d.state[0], stop), CHECK_INT(plan.d.state[1], !stop);
                    if (!stop) compare(&plan, &a, trans);
                }
}
int main(int argc, char **argv) {
    static const bt_test tests[] = {{"tiles", tiles}};
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    return failed | (argc < 2 && !launches);
}
