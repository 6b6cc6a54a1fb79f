/* test_pool.c: what is worth waking threads for. The library is compiled here as users compile it, as the other tests' copy
   shares the smallest work. A pool that only counts stands in for threads. */
#undef BSRI_IMPLEMENTED
#define BSRSPARSE_STATIC
#ifdef _OPENMP
#include <omp.h>
static int pool_seen;
#define POOL_HERE (omp_get_num_threads() > pool_seen ? (pool_seen = omp_get_num_threads()) : 0)
#else
#define POOL_HERE 0
#endif
#define BSRSPARSE_USER_FUNCTIONS "tests/pool_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "bsr_test.h"

static int64_t pool_calls;
static void pool_for(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    int64_t i;
    (void)user;
    for (pool_calls++, i = 0; i < tasks; i++) body(arg, i);
}
static bsr_context *pool_context(int threads, bsr_parallel_for f) {
    bsr_context_desc d;
    bsr_context *ctx = NULL;
    memset(&d, 0, sizeof d);
    d.backend = BSR_BACKEND_CPU, d.threads = threads, d.parallel_for = f;
    return bsr_create(&d, &ctx, NULL) == BSR_OK ? ctx : NULL;
}

enum { MM, MM_T, MM_T_INDEX, SDD, SOFTMAX, SOFTMAX_BACK, ATTENTION, TO_DENSE, FROM_DENSE, FROM_CSR, TO_CSR, PRUNE, LAYOUT,
       WORKS };
/* A band of `blocks` block rows, three blocks in each, and what the operations need beside it. */
typedef struct band {
    bsr_matrix a, y;
    bsr_dense b, out, q, dense;
    int32_t *crow, *col;
    void *index, *pool[8];
} band;
static void *band_memory(band *w, int k, int64_t bytes) {
    int64_t i;
    w->pool[k] = bt_alloc((size_t)bytes, 64);
    for (i = 0; i < bytes / 4; i++) ((float *)w->pool[k])[i] = 0.25f + (float)(i % 7);
    return w->pool[k];
}
static band band_new(const bsr_context *ctx, int64_t blocks, int64_t size, int64_t n) {
    const int64_t rows = blocks * size, nnz = 3 * blocks;
    uint64_t bytes = 0;
    band w;
    int64_t i;
    memset(&w, 0, sizeof w);
    w.crow = (int32_t *)bt_alloc((size_t)(blocks + 1) * 4, 4), w.col = (int32_t *)bt_alloc((size_t)nnz * 4, 4);
    for (i = 0; i <= blocks; i++) w.crow[i] = (int32_t)(3 * i);
    for (i = 0; i < nnz; i++) w.col[i] = (int32_t)(i % 3 + (i / 3 < blocks - 3 ? i / 3 : blocks - 3));
    band_memory(&w, 0, nnz * size * size * 4);
    w.a = bsr_matrix_make(rows, rows, size, size, nnz, w.crow, w.col, BSR_I32, w.pool[0], BSR_F32);
    w.y = w.a, w.y.values = band_memory(&w, 1, nnz * size * size * 4);
    w.b = bsr_dense_row_major(band_memory(&w, 2, rows * n * 4), BSR_F32, rows, n);
    w.out = bsr_dense_row_major(band_memory(&w, 3, rows * n * 4), BSR_F32, rows, n);
    w.q = bsr_dense_row_major(band_memory(&w, 4, rows * n * 4), BSR_F32, rows, n);
    w.dense = bsr_dense_row_major(band_memory(&w, 5, rows * rows * 4), BSR_F32, rows, rows);
    CHECK_INT(bsr_transposed_index_size(ctx, &w.a, &bytes, NULL), BSR_OK);
    w.index = bt_alloc((size_t)bytes, 64);
    CHECK_INT(bsr_build_transposed_index(ctx, &w.a, w.index, bytes, NULL), BSR_OK);
    return w;
}
static bsr_status band_run(const bsr_context *ctx, band *w, int which, int32_t cap) {
    bsr_matrix m = w->a, built = bsr_matrix_make(w->a.rows, w->a.cols, 4, 4, 0, NULL, NULL, BSR_I32, NULL, BSR_F32);
    bsr_layout l = bsr_layout_default(BSR_LAYOUT_BIGBIRD, 2, w->a.rows / w->a.block_rows);
    bsr_status status = BSR_BAD_ARGUMENT;
    bsr_exec e;
    int64_t count = 0;
    memset(&e, 0, sizeof e), e.threads = cap;
    built.crow_indices = bt_alloc((size_t)(w->a.rows + 1) * 4, 4);
    switch (which) {
        case MM: status = bsr_dense_mm(ctx, 0, &m, &w->b, &w->out, &e); break;
        case MM_T: status = bsr_dense_mm(ctx, BSR_TRANS_A, &m, &w->b, &w->out, &e); break;
        case MM_T_INDEX:
            m.transposed_index = w->index;
            status = bsr_dense_mm(ctx, BSR_TRANS_A, &m, &w->b, &w->out, &e);
            break;
        case SDD: {
            const bsr_dense right = bsr_dense_transposed(w->q);
            status = bsr_sampled_addmm(ctx, 0, NULL, 1, &w->b, &right, &w->y, &e);
            break;
        }
        case SOFTMAX: status = bsr_softmax(ctx, 1, &m, NULL, &w->y, &e); break;
        case SOFTMAX_BACK: status = bsr_softmax_backward(ctx, 1, &m, &m, &w->y, &e); break;
        case ATTENTION: status = bsr_attention(ctx, 1, &w->b, &w->q, &w->q, &m, NULL, &w->out, NULL, &e); break;
        case TO_DENSE: status = bsr_to_dense(ctx, &m, &w->dense, &e); break;
        case FROM_DENSE: status = bsr_from_dense(ctx, &w->dense, &built, &e); break;
        case FROM_CSR:
            built.rows = built.cols = 0;
            status = bsr_from_csr(ctx, w->a.rows / w->a.block_rows, w->a.cols / w->a.block_cols, w->a.nnz, w->crow, w->col,
                                  BSR_I32, w->a.values, BSR_F32, &built, &e);
            break;
        case TO_CSR:
            status = bsr_to_csr(ctx, &m, w->a.rows, w->a.cols, &count, built.crow_indices, NULL, BSR_I32, NULL, BSR_F32, &e);
            break;
        case PRUNE: built.nnz = 0, status = bsr_prune(ctx, bsr_operand_dense(&w->dense), 0.5, BSR_NORM_L2, &built, &e); break;
        case LAYOUT:
            l.different_layout_per_head = 1;
            status = bsr_layout_mask(ctx, &l, (uint8_t *)w->dense.data, &e);
            break;
        default: break;
    }
    return status;
}

TEST(short_work_stays) { /* some microseconds of work: nobody is woken */
    bsr_context *ctx = pool_context(4, pool_for);
    int which;
    for (which = 0; which < WORKS; which++) {
        band w;
        bt_case("operation %d", which);
        w = band_new(ctx, 9, 4, 1), pool_calls = 0;
        CHECK_INT(band_run(ctx, &w, which, 0), BSR_OK);
        CHECK_INT(pool_calls, 0);
    }
    bsr_destroy(ctx);
}
TEST(long_work_is_shared) {
    bsr_context *ctx = pool_context(4, pool_for), *alone = pool_context(1, pool_for);
    int which;
    for (which = 0; which < WORKS; which++) {
        band w;
        bt_case("operation %d", which);
        w = band_new(ctx, 192, 8, 128), pool_calls = 0;
        CHECK_INT(band_run(ctx, &w, which, 1), BSR_OK);
        CHECK_INT(pool_calls, 0);
        CHECK_INT(band_run(alone, &w, which, 0), BSR_OK);
        CHECK_INT(pool_calls, 0);
        CHECK_INT(band_run(ctx, &w, which, 0), BSR_OK);
        CHECK_INT(pool_calls > 0, which != FROM_CSR && which != TO_CSR); /* some 600 entries */
    }
    bsr_destroy(ctx);
    bsr_destroy(alone);
}
TEST(by_size) { /* one column: as there is more to read, one number decides */
    bsr_context *ctx = pool_context(0, pool_for);
    int64_t blocks, last = 0, first = 0;
    for (blocks = 64; blocks <= 16384; blocks *= 4) {
        int32_t *crow, *col;
        float *x, *y, b[256];
        bsr_matrix a;
        bsr_dense in = bsr_dense_row_major(b, BSR_F32, 256, 1), out;
        int64_t i;
        bt_case("%d block rows", (int)blocks);
        crow = (int32_t *)bt_alloc((size_t)(blocks + 1) * 4, 4), col = (int32_t *)bt_alloc((size_t)blocks * 12, 4);
        x = (float *)bt_alloc((size_t)blocks * 48 * 4, 64), y = (float *)bt_alloc((size_t)blocks * 16, 64);
        a = bsr_matrix_make(blocks * 4, 256, 4, 4, 3 * blocks, crow, col, BSR_I32, x, BSR_F32);
        out = bsr_dense_row_major(y, BSR_F32, blocks * 4, 1);
        for (i = 0; i <= blocks; i++) crow[i] = (int32_t)(3 * i);
        for (i = 0; i < 3 * blocks; i++) col[i] = (int32_t)(i % 64);
        memset(x, 0, (size_t)blocks * 48 * 4), memset(b, 0, sizeof b);
        pool_calls = 0;
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &in, &out, NULL), BSR_OK);
        if (!pool_calls) last = blocks;
        else if (!first) first = blocks;
    }
    bt_case("the limit"); /* of 4 x 4 blocks in f32, three to a row */
    CHECK(last >= 256 && first && first > last); /* 48 KB stay, 3 MB do not */
    bsr_destroy(ctx);
}
TEST(openmp_caps) { /* how many threads there are where the epilogue runs */
#ifdef _OPENMP
    static const int32_t caps[] = {0, 1, 2, 3, 4, 5};
    bsr_context *ctx = pool_context(4, NULL);
    bsr_epilogue epilogue;
    bsr_exec e;
    int k;
    memset(&epilogue, 0, sizeof epilogue), epilogue.activation = BSR_EPILOGUE_pool_here;
    for (k = 0; k < 6; k++) {
        band w;
        bt_case("cap %d", (int)caps[k]);
        w = band_new(ctx, 192, 8, 128);
        memset(&e, 0, sizeof e), e.threads = caps[k], pool_seen = 0;
        CHECK_INT(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &w.a, &w.b, &epilogue, &w.out, &e), BSR_OK);
        CHECK_INT(pool_seen, caps[k] && caps[k] < 4 ? caps[k] : 4);
    }
    bsr_destroy(ctx);
#else
    bt_skip("built without OpenMP");
#endif
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"short_work_stays", short_work_stays},
                                    {"long_work_is_shared", long_work_is_shared},
                                    {"by_size", by_size},
                                    {"openmp_caps", openmp_caps}};
    return bt_main(argc, argv, tests, BT_COUNT(tests));
}
