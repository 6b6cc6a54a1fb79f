/* test_checks.c: checks at their edges. The last value that is right is taken, the first that is not is refused by its own item;
   numbers of every pattern of bits are converted; rows of every short length. Most of these tests were asked for by an edit of
   the library (tests/mutants.txt) that all others let pass. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"
#include "ref64.h"

static bsr_matrix small(int dtype, int index_dtype, int64_t r, int64_t c, int64_t nnz) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.index_dtype = index_dtype, s.block_rows = 2, s.block_cols = 3, s.r = r, s.c = c, s.nnz = nnz;
    return t_matrix(&s);
}
/* a, b and out of a product that is right. */
typedef struct product {
    bsr_matrix a;
    bsr_dense b, out;
    bsr_exec e;
} product;
static product product_new(int dtype) {
    product p;
    p.a = small(dtype, BSR_I32, 4, 5, 9);
    p.b = t_random(dtype, 15, 7, ROW, NO_BATCH, 0, FILL_SIGNED), p.out = t_output(dtype, 8, 7, ROW, NO_BATCH);
    p.e = t_exec(0);
    return p;
}
static bsr_status multiply(product *p, uint32_t trans) { return bsr_dense_mm(t_context(0), trans, &p->a, &p->b, &p->out, &p->e); }
/* What one statement does to a product that is right must be refused so, and nothing written. */
#define REFUSED(wanted, at, statement)                                                                           \
    do {                                                                                                         \
        product p = (bt_case("%s: %s", #wanted, #statement), product_new(BSR_F32));                              \
        statement;                                                                                               \
        CHECK(multiply(&p, 0) != BSR_OK), CHECK_STR(bsr_item_name(t_error.item), #wanted);                       \
        CHECK_INT(t_error.index, at), CHECK(!bt_find(p.out.data) || t_all_poison(p.out.data));                   \
    } while (0)

static void half_of(void *crow, int64_t i) { t_set_index(crow, BSR_I32, i, t_index(crow, BSR_I32, i) - 1); }

TEST(descriptors) {
    product p = (bt_case("taken as it is"), product_new(BSR_F32));
    CHECK_INT(multiply(&p, 0), BSR_OK), CHECK_INT(t_error.index, -1), CHECK_INT(t_error.item, BSR_ITEM_NONE);
    REFUSED(BSR_ITEM_FLAGS_CONFLICT, -1, p.e.flags = BSR_EXEC_TF32 | BSR_EXEC_ACCUMULATE_F64);
    REFUSED(BSR_ITEM_SIZE_NEGATIVE, 1, p.b.cols = -1);
    REFUSED(BSR_ITEM_SIZE_NEGATIVE, 0, p.b.rows = -1);
    REFUSED(BSR_ITEM_STRIDE_NEGATIVE, 2, (p.b = bsr_dense_batched(p.b, 1, -1)));
    REFUSED(BSR_ITEM_STRIDE_NEGATIVE, 1, p.b.col_stride = -1);
    REFUSED(BSR_ITEM_DATA_NULL, -1, (p.b = bsr_dense_row_major(NULL, BSR_F32, 1, 1)));
    REFUSED(BSR_ITEM_INDEX_DTYPE, -1, p.a.index_dtype = BSR_BOOL);
    REFUSED(BSR_ITEM_INDEX_DTYPE, -1, p.a.index_dtype = BSR_I8);
    REFUSED(BSR_ITEM_BLOCK_DIVIDES, 1, p.a.cols = 2);
    REFUSED(BSR_ITEM_BLOCK_DIVIDES, 0, p.a.rows = 1);
    REFUSED(BSR_ITEM_COL_NULL, -1, (p.a.nnz = 1, p.a.col_indices = NULL));
    REFUSED(BSR_ITEM_BATCH_SIZE, 0, (p.a = bsr_matrix_batched(p.a, 3, 0, 0, 0), p.b = bsr_dense_batched(p.b, 2, 0)));
    REFUSED(BSR_ITEM_BATCH_SIZE, 0, (p.a = bsr_matrix_batched(p.a, 2, 0, 0, 0), p.b = bsr_dense_batched(p.b, 3, 0)));
    REFUSED(BSR_ITEM_STRIDE_PATTERN, 0,
            (p.a = bsr_matrix_batched(p.a, 2, 5, 0, 1), p.a.flags = BSR_MATRIX_RAGGED, p.out.batch_dims = 0));
    /* 2^32 steps of 2^32 bytes; two spans of 2^62 bytes and a little more */
    REFUSED(BSR_ITEM_SIZE_OVERFLOW, -1, (p.b.rows = (INT64_C(1) << 32) + 1, p.b.row_stride = INT64_C(1) << 30));
    REFUSED(BSR_ITEM_SIZE_OVERFLOW, -1,
            (p.b.rows = p.b.cols = 2, p.b.row_stride = INT64_C(1) << 60, p.b.col_stride = (INT64_C(1) << 60) + 8));
    REFUSED(BSR_ITEM_SIZE_OVERFLOW, -1, p.b.data = (void *)(UINTPTR_MAX - 63));
}
TEST(index_contents) {
    REFUSED(BSR_ITEM_CROW_FIRST, 0, t_set_index(p.a.crow_indices, BSR_I32, 0, 1));
    REFUSED(BSR_ITEM_CROW_FIRST, 0, t_set_index(p.a.crow_indices, BSR_I32, 0, -1));
    REFUSED(BSR_ITEM_CROW_LAST, 0, half_of(p.a.crow_indices, 4));
    REFUSED(BSR_ITEM_COL_RANGE, 3, t_set_index(p.a.col_indices, BSR_I32, 3, 5));
    REFUSED(BSR_ITEM_COL_RANGE, 0, t_set_index(p.a.col_indices, BSR_I32, 0, -1));
    REFUSED(BSR_ITEM_COL_RANGE, 8, t_set_index(p.a.col_indices, BSR_I32, 8, INT32_MIN));
}
/* Of several patterns each is looked at, and of a ragged matrix the end of the last. */
TEST(each_pattern) {
    int ragged;
    for (ragged = 0; ragged < 2; ragged++) {
        t_spec s;
        bsr_matrix m;
        bsr_dense out;
        bsr_exec e = (bt_case("%s", ragged ? "ragged" : "equal"), t_exec(0));
        int64_t at, was;
        memset(&s, 0, sizeof s);
        s.dtype = BSR_F32, s.block_rows = 2, s.block_cols = 3, s.r = 3, s.c = 4, s.nnz = 7, s.batch = t_batch(1, 3, 0, 0, 0);
        s.ragged = ragged, m = t_matrix(&s), out = t_output(BSR_F32, 6, 12, ROW, s.batch);
        at = t_crow(&m, 2, 3) - 1 + (ragged ? 0 : 2 * m.nnz), was = t_index(m.col_indices, BSR_I32, at);
        t_set_index(m.col_indices, BSR_I32, at, 4);
        CHECK_INT(bsr_to_dense(t_context(0), &m, &out, &e), BSR_BAD_STRUCTURE), CHECK_INT(t_error.item, BSR_ITEM_COL_RANGE);
        t_set_index(m.col_indices, BSR_I32, at, was), m.nnz += ragged;
        CHECK_INT(bsr_to_dense(t_context(0), &m, &out, &e), ragged ? BSR_BAD_STRUCTURE : BSR_OK);
        if (ragged) CHECK_INT(t_error.item, BSR_ITEM_CROW_LAST);
    }
}
static int64_t *transposed_words(product *p, int which) {
    t_attach_transposed(&p->a);
    return which < 0 ? (int64_t *)bt_find(p->a.transposed_index)->data : NULL;
}
static int32_t *transposed_entries(product *p, int64_t at) { /* at: of ccol; past it row, then position */
    char *view = ((char *)(void *)transposed_words(p, -1)) + 64;
    if (at < 6) return (int32_t *)(void *)view + at;
    return (int32_t *)(void *)(view + 64) + (at - 6) % 9 + (at - 6) / 9 * 16;
}
static int32_t *schedule_order(product *p, int group) {
    t_attach_schedule(&p->a, group, 0);
    return (int32_t *)(void *)(bt_find(p->a.schedule)->data + 64);
}
static void widened(product *p) { /* the same matrix with indices of 64 bits, and the view of the other */
    bsr_matrix w;
    int64_t i;
    t_attach_transposed(&p->a);
    w = small(BSR_F32, BSR_I64, 4, 5, 9);
    for (i = 0; i < 5; i++) ((int64_t *)w.crow_indices)[i] = t_crow(&p->a, 0, i);
    for (i = 0; i < 9; i++) ((int64_t *)w.col_indices)[i] = t_col(&p->a, 0, i);
    w.transposed_index = p->a.transposed_index, p->a = w;
}
TEST(views) {
    REFUSED(BSR_ITEM_VIEW_HEADER, 5, widened(&p));
    REFUSED(BSR_ITEM_VIEW_HEADER, 0, transposed_words(&p, -1)[0]++);
    REFUSED(BSR_ITEM_VIEW_HEADER, 4, transposed_words(&p, -1)[4]++);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 5, ++*transposed_entries(&p, 5));
    REFUSED(BSR_ITEM_VIEW_CONTENT, 0, *transposed_entries(&p, 0) = -1);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 0, *transposed_entries(&p, 6) = 4);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 1, *transposed_entries(&p, 7) = -1);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 2, *transposed_entries(&p, 6 + 9 + 2) = 9);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 8, *transposed_entries(&p, 6 + 9 + 8) = -1);
    REFUSED(BSR_ITEM_VIEW_HEADER, 4, (schedule_order(&p, 2), ((int64_t *)bt_find(p.a.schedule)->data)[4] = 0));
    REFUSED(BSR_ITEM_VIEW_HEADER, 4, (schedule_order(&p, 2), ((int64_t *)bt_find(p.a.schedule)->data)[4] = 9));
    REFUSED(BSR_ITEM_VIEW_CONTENT, 2, schedule_order(&p, 2)[2] = 4);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 1, schedule_order(&p, 1)[1] = -2);
    REFUSED(BSR_ITEM_VIEW_CONTENT, 8, schedule_order(&p, 8)[3] = -1); /* a line left out, where the group is padded */
}
/* A line that a schedule names twice is found wherever it stands, however the lines are ordered. */
TEST(repeats) {
    static const char *const orders[] = {"descending", "ascending but for two", "from the middle"};
    static const int64_t lines[] = {0, 65535, 65536, 131071, (1 << 20) - 1, 1 << 20};
    int order, l;
    for (order = 0; order < 3; order++) {
        const int64_t n = order == 2 ? (1 << 20) + 5 : 140000;
        t_spec s;
        bsr_matrix m;
        bsr_dense b, out;
        bsr_exec e = (bt_case("%s", orders[order]), t_exec(0));
        int32_t *line, was;
        int64_t i, other;
        memset(&s, 0, sizeof s);
        s.dtype = BSR_F32, s.block_rows = 1, s.block_cols = 1, s.r = n, s.c = 1, s.nnz = 0;
        m = t_matrix(&s), t_attach_schedule(&m, 1, 0);
        b = t_random(BSR_F32, 1, 1, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, n, 1, ROW, NO_BATCH);
        line = (int32_t *)(void *)(bt_find(m.schedule)->data + 64);
        for (i = 0; i < n; i++) line[i] = (int32_t)(order == 0 ? n - 1 - i : order == 1 ? i : (i + n / 2) % n);
        if (order == 1) line[0] = 1, line[1] = 0;
        CHECK_INT(bsr_dense_mm(t_context(0), 0, &m, &b, &out, &e), BSR_OK);
        for (l = order == 2 ? 3 : 0; l < (int)BT_COUNT(lines) && lines[l] < n; l++) {
            for (i = 0; line[i] != lines[l]; i++) {
            }
            other = i == n / 2 ? n / 3 : n / 2, was = line[other], line[other] = line[i];
            CHECK_INT(bsr_dense_mm(t_context(0), 0, &m, &b, &out, &e), BSR_BAD_STRUCTURE);
            CHECK_INT(t_error.item, BSR_ITEM_VIEW_CONTENT), CHECK_INT(t_error.value, lines[l]);
            line[other] = was;
        }
    }
}
TEST(places) { /* of outputs, between their own elements and beside workspace and scalars */
    product p = (bt_case("bytes, a row one too near"), product_new(BSR_I8));
    char *memory;
    bsr_epilogue ep;
    p.out.row_stride = 6;
    CHECK_INT(multiply(&p, 0), BSR_BAD_STRIDE), CHECK_INT(t_error.item, BSR_ITEM_STRIDE_OUTPUT), CHECK_INT(t_error.value, 6);
    p = (bt_case("rows that begin between a row's elements"), product_new(BSR_F32));
    p.out = t_output(BSR_F32, 8, 7, STRIDED, NO_BATCH), p.out.col_stride = 2, p.out.row_stride = 13;
    CHECK_INT(multiply(&p, 0), BSR_OK);
    p = (bt_case("an operand that ends in the workspace"), product_new(BSR_F32));
    memory = (char *)bt_alloc(1024, 64), p.b.data = memory, memset(memory, 0, 1024);
    p.e.workspace = memory + 384, p.e.workspace_bytes = 640; /* b has 420 bytes */
    CHECK_INT(multiply(&p, 0), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_B);
    p.e.workspace = memory + 448;
    CHECK_INT(multiply(&p, 0), BSR_OK);
    p = (bt_case("alpha within out"), product_new(BSR_F32));
    memset(&ep, 0, sizeof ep), p.out.data = bt_alloc(512, 64), bt_mark_output(p.out.data), memset(p.out.data, 0, 512);
    ep.alpha_ptr = (const double *)(const void *)((char *)p.out.data + 64);
    CHECK_INT(bsr_dense_addmm(t_context(0), 0, NULL, 1, 0, &p.a, &p.b, &ep, &p.out, &p.e), BSR_OVERLAP);
    bt_case("indices within accumulators"), p.e = t_exec(0);
    {
        bsr_dense blocks = t_random(BSR_F64, 4, 4, ROW, t_batch(1, 1, 0, 0, 0), 0, FILL_SIGNED), sums = blocks;
        bsr_scatter_indices x;
        memset(&x, 0, sizeof x);
        x.format = BSR_SCATTER_MM, x.c_count = 2, sums.data = bt_alloc(128, 8), memset(sums.data, 0, 128);
        x.c_indices = (int64_t *)sums.data + 8;
        CHECK_INT(bsr_scatter_mm(t_context(0), &blocks, &blocks, &x, &sums, &p.e), BSR_OVERLAP);
        x.c_indices = (int64_t *)bt_alloc(16, 8), memset(x.c_indices, 0, 16), bt_mark_output(sums.data);
        CHECK_INT(bsr_scatter_mm(t_context(0), &blocks, &blocks, &x, &sums, &p.e), BSR_OK);
    }
}
/* A schedule of columns is longer than any of rows: what of it an output or the workspace may not share. */
TEST(places_of_schedules) {
    enum { LINES = 70000 };
    bsr_dense b = (bt_case("the end of a schedule"), t_random(BSR_F32, 1, 1, ROW, NO_BATCH, 0, FILL_SIGNED)), out;
    bsr_exec e = t_exec(0);
    t_spec s;
    bsr_matrix m;
    bt_block *view;
    int32_t *line, *was;
    int64_t i;
    char *memory = (char *)bt_alloc(1 << 20, 64);
    memset(&s, 0, sizeof s), memset(memory, 0, 1 << 20);
    s.dtype = BSR_F32, s.block_rows = 1, s.block_cols = 1, s.r = 1, s.c = LINES, s.nnz = 0;
    m = t_matrix(&s), t_attach_schedule(&m, 1, 1), view = bt_find(m.schedule);
    memcpy(memory, view->data, view->bytes), m.schedule = memory, line = (int32_t *)(void *)(memory + 64);
    for (i = 0; i < LINES; i++) line[i] = (int32_t)(LINES - 1 - i);
    was = (int32_t *)bt_alloc(4 * LINES, 4), memcpy(was, line, 4 * LINES);
    out = t_output(BSR_F32, LINES, 1, ROW, NO_BATCH);
    e.workspace = memory + 64 + LINES, e.workspace_bytes = LINES / 8 + 64;
    CHECK_INT(bsr_dense_mm(t_context(0), BSR_TRANS_A, &m, &b, &out, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_A);
    CHECK(!memcmp(line, was, 4 * LINES)), CHECK_INT(t_error.value, BSR_ARG_EXEC);
    e = t_exec(0), out.data = memory + 64 + LINES;
    CHECK_INT(bsr_dense_mm(t_context(0), BSR_TRANS_A, &m, &b, &out, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_OUT);
    out.data = memory + 64 + 4 * LINES + 4 * LINES + 64; /* behind it */
    CHECK_INT(bsr_dense_mm(t_context(0), BSR_TRANS_A, &m, &b, &out, &e), BSR_OK);
}
TEST(places_of_the_word) { /* of checked indices: in no operand */
    product p = (bt_case("the word"), product_new(BSR_F32));
    char *memory = (char *)bt_alloc(1024, 64);
    int at;
    p.e.flags |= BSR_EXEC_CHECK_INDICES, p.b.data = memory + 64, memset(memory, 0, 1024); /* b has 420 bytes */
    for (at = 0; at <= 512; at += 8) {
        const int apart = at <= 56 || at >= 64 + 424;
        p.e.device_status = (uint64_t *)(void *)(memory + at);
        CHECK_INT(multiply(&p, 0), apart ? BSR_OK : BSR_OVERLAP);
        if (!apart) CHECK_INT(t_error.operand, BSR_ARG_B), CHECK_INT(t_error.value, BSR_ARG_EXEC);
    }
    p.e.flags &= ~BSR_EXEC_CHECK_INDICES, p.e.device_status = (uint64_t *)(void *)(memory + 64); /* left alone */
    CHECK_INT(multiply(&p, 0), BSR_OK);
}
TEST(words_of_counts) { /* what a list's contents ask of another's length is a finding, what its length says alone is not */
    product p = (bt_case("compressed"), product_new(BSR_F32));
    const uint64_t untouched = 12345;
    bsr_scatter_indices x;
    bsr_error error;
    uint64_t word;
    memset(&x, 0, sizeof x), x.format = BSR_SCATTER_STRIDED_COMPRESSED;
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &p.a, p.b.cols, &x, &p.e), BSR_OK);
    x.c_indices = (int64_t *)bt_alloc((size_t)x.c_count * 8, 8), x.r_offsets = (int64_t *)bt_alloc((size_t)x.r_count * 8, 8);
    x.q_indices = (int64_t *)bt_alloc((size_t)x.q_count * 8, 8);
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &p.a, p.b.cols, &x, &p.e), BSR_OK);
    p.e.flags |= BSR_EXEC_CHECK_INDICES, p.e.device_status = &word, word = untouched;
    CHECK_INT(bsr_dense_scatter_mm(t_context(0), &p.a, &p.b, &x, &p.out, &p.e), BSR_OK), CHECK(word == 0);
    x.q_count--;
    CHECK_INT(bsr_dense_scatter_mm(t_context(0), &p.a, &p.b, &x, &p.out, &p.e), BSR_BAD_SHAPE);
    CHECK_INT(bsr_device_status(word, &error), BSR_BAD_SHAPE), CHECK_INT(error.item, BSR_ITEM_INDICES_COUNT);
    CHECK_INT(error.operand, t_error.operand), CHECK_INT(error.index, t_error.index);
    x.q_count = -1, word = untouched;
    CHECK_INT(bsr_dense_scatter_mm(t_context(0), &p.a, &p.b, &x, &p.out, &p.e), BSR_BAD_SHAPE), CHECK(word == untouched);
}
TEST(patterns) { /* two operands of one pattern */
    bsr_matrix x = (bt_case("the first column differs"), small(BSR_F32, BSR_I32, 4, 5, 9));
    bsr_matrix y = t_matrix_output(&x, BSR_F32, PACKED);
    bsr_exec e = t_exec(0);
    bsr_plan plan;
    int64_t i;
    y.col_indices = bt_alloc(9 * 4, 4), memcpy(y.col_indices, x.col_indices, 9 * 4);
    CHECK_INT(bsr_softmax(t_context(0), 1, &x, NULL, &y, &e), BSR_OK);
    t_set_index(y.col_indices, BSR_I32, 0, (t_col(&x, 0, 0) + 1) % 5);
    CHECK_INT(bsr_softmax(t_context(0), 1, &x, NULL, &y, &e), BSR_BAD_STRUCTURE);
    CHECK_INT(t_error.item, BSR_ITEM_PATTERN_MISMATCH), CHECK_INT(t_error.index, 0);
    bt_case("one array as two types"), e = t_exec(0);
    x = small(BSR_F32, BSR_I64, 4, 5, 9), y = t_matrix_output(&x, BSR_F32, PACKED), y.index_dtype = BSR_I32;
    CHECK_INT(bsr_softmax(t_context(0), 1, &x, NULL, &y, &e), BSR_BAD_STRUCTURE);
    CHECK_INT(t_error.item, BSR_ITEM_PATTERN_MISMATCH);
    bt_case("a plan of another operation"), e = t_exec(0), memset(&plan, 0, sizeof plan), e.plan = &plan;
    x = small(BSR_F32, BSR_I32, 4, 5, 9), y = t_matrix_output(&x, BSR_F32, PACKED);
    for (i = 1; i <= BSR_OP_TUNE; i++) {
        plan.op = (int32_t)i;
        CHECK_INT(bsr_softmax(t_context(0), 1, &x, NULL, &y, &e), i == BSR_OP_SOFTMAX ? BSR_OK : BSR_BAD_PLAN);
    }
}
static int taken;
static void *counting(size_t bytes, void *user) { return (void)user, taken++, malloc(bytes); }
static void counted(void *p, void *user) { (void)user, free(p); }
TEST(scratch) { /* a workspace that is not at a multiple of 64 is left alone */
    bsr_context_desc d;
    bsr_context *ctx;
    bsr_matrix m = (bt_case("schedule"), small(BSR_F32, BSR_I32, 4, 5, 9));
    char *memory = (char *)bt_alloc(4096, 64);
    uint64_t bytes = 0;
    void *view;
    bsr_exec e = t_exec(0);
    memset(&d, 0, sizeof d), d.allocator.alloc_fn = counting, d.allocator.free_fn = counted;
    CHECK_INT(bsr_create(&d, &ctx, NULL), BSR_OK);
    CHECK_INT(bsr_schedule_size(ctx, &m, 2, 0, &bytes, &e), BSR_OK), view = bt_alloc((size_t)bytes, 64), bt_mark_output(view);
    bt_mark_output(memory), taken = 0, e.workspace = memory, e.workspace_bytes = 4096;
    CHECK_INT(bsr_build_schedule(ctx, &m, 2, 0, view, bytes, &e), BSR_OK), CHECK_INT(taken, 0);
    memset(memory, BT_POISON, 4096), e.workspace = memory + 32, e.workspace_bytes = 4064;
    CHECK_INT(bsr_build_schedule(ctx, &m, 2, 0, view, bytes, &e), BSR_OK), CHECK_INT(taken, 1), CHECK(t_all_poison(memory));
    bsr_destroy(ctx);
}
/* Every number of 16 bits, and f64 around every place where rounding changes. */
TEST(conversions) {
    int d, k;
    for (d = 0; d < 2; d++) {
        const int dtype = d ? BSR_BF16 : BSR_F16;
        uint16_t *bits, *back;
        double *wide;
        bsr_matrix m;
        bsr_dense out, source;
        bsr_exec e;
        int32_t *crow, *col;
        int64_t i, wrong = 0;
        bt_case("%s", bsr_dtype_name(dtype)), e = t_exec(0);
        bits = (uint16_t *)bt_alloc(65536 * 2, 2), back = (uint16_t *)bt_alloc(65536 * 2, 2);
        wide = (double *)bt_alloc(65536 * 8, 8);
        crow = (int32_t *)bt_alloc(8, 4), col = (int32_t *)bt_alloc(4, 4), crow[0] = 0, crow[1] = 1, col[0] = 0;
        bt_mark_output(wide), bt_mark_output(back), bt_mark_output(crow), bt_mark_output(col);
        for (i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
        m = bsr_matrix_make(1, 65536, 1, 65536, 1, crow, col, BSR_I32, bits, dtype);
        out = bsr_dense_row_major(wide, BSR_F64, 1, 65536);
        CHECK_INT(bsr_to_dense(t_context(0), &m, &out, &e), BSR_OK);
        for (i = 0; i < 65536; i++) {
            const double want = t_decode16((uint16_t)i, dtype);
            wrong += want != want ? wide[i] == wide[i] : !(wide[i] == want && signbit(wide[i]) == signbit(want));
        }
        CHECK_INT(wrong, 0);
        for (k = 0; k < 7; k++) { /* halfway to the next, as near to it as f64 comes, and near the next number of f32 */
            for (i = 0; i < 65536; i++) {
                const double x = t_decode16((uint16_t)i, dtype), y = t_decode16((uint16_t)(i + 1), dtype);
                const double half = x + (y - x) / 2, beside = k > 2 ? (y - x) * ldexp(1, -20 - 9 * k) : 0;
                const double step = (y - x) * ldexp(k == 5 ? 0.75 : -0.75, d ? -16 : -13);
                const double at = k == 0 ? half : k > 4 ? half + step : nextafter(half, k == 1 ? y : x) + beside;
                wide[i] = x - x == 0 && y - y == 0 ? at : 1.0;
            }
            source = bsr_dense_row_major(wide, BSR_F64, 1, 65536), m.values = back, m.nnz = 1;
            CHECK_INT(bsr_from_dense(t_context(0), &source, &m, &e), BSR_OK);
            for (i = 0, wrong = 0; i < 65536; i++) wrong += back[i] != t_encode16(wide[i], dtype);
            CHECK_INT(wrong, 0);
        }
    }
}
/* A NaN anywhere in a row of any length makes all of it NaN; sums in f64 are sums in f64. */
TEST(rows) {
    int isa, n, at, bad;
    for (isa = 1; isa <= 3; isa++)
        for (n = 1; n <= 40; n++) {
            const bsr_context *ctx = (bt_case("isa %d, %d long", isa, n), t_context(isa));
            float x[40], y[40], *out = y;
            int32_t crow[2], col[1];
            bsr_matrix m, r;
            if (!ctx) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            crow[0] = 0, crow[1] = 1, col[0] = 0;
            m = bsr_matrix_make(1, n, 1, n, 1, crow, col, BSR_I32, x, BSR_F32), r = m, r.values = out;
            for (at = 0; at < n; at++) {
                int i;
                for (i = 0; i < n; i++) x[i] = i == at ? NAN : (float)t_draw(FILL_SIGNED, BSR_F32), y[i] = 0;
                CHECK_INT(bsr_softmax(ctx, 1, &m, NULL, &r, NULL), BSR_OK);
                for (i = 0, bad = 0; i < n; i++) bad += y[i] == y[i];
                CHECK_INT(bad, 0);
            }
        }
    for (isa = 1; isa <= 3; isa++) {
        const bsr_context *ctx = (bt_case("isa %d, sums in f64", isa), t_context(isa));
        float values[3] = {1e8f, 1, -1e8f}, ones[3] = {1, 1, 1}, sum = 0;
        int32_t crow[2] = {0, 1}, col[1] = {0};
        bsr_matrix a = bsr_matrix_make(1, 3, 1, 3, 1, crow, col, BSR_I32, values, BSR_F32);
        bsr_dense b = bsr_dense_row_major(ones, BSR_F32, 3, 1), out = bsr_dense_row_major(&sum, BSR_F32, 1, 1);
        bsr_exec e = t_exec(BSR_EXEC_ACCUMULATE_F64);
        if (!ctx) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &out, &e), BSR_OK), CHECK_NEAR(sum, 1, 0);
    }
}
/* Products of a vector, where small blocks have sums of their own; patterns that differ in their columns alone, or in two batch
   dimensions, by way of a transposed index. */
TEST(vectors) {
    int size, trans, dtype, layout;
    for (size = 1; size <= 4; size++)
        for (trans = 0; trans < 2; trans++)
            for (dtype = BSR_F32; dtype <= BSR_F64; dtype++)
                for (layout = 0; layout < BLOCKS_LAYOUTS; layout++) {
                    t_spec s;
                    bsr_matrix a;
                    bsr_dense b, out;
                    ref_result want;
                    bsr_exec e;
                    bt_case("blocks of %d, trans %d, %s, layout %d", size, trans, bsr_dtype_name(dtype), layout), e = t_exec(0);
                    memset(&s, 0, sizeof s), s.dtype = dtype, s.block_rows = s.block_cols = size, s.r = 7, s.c = 6, s.nnz = 29;
                    s.layout = layout, a = t_matrix(&s);
                    if (trans) t_attach_transposed(&a);
                    b = t_random(dtype, (trans ? 7 : 6) * size, 1, COL, NO_BATCH, 0, FILL_SIGNED);
                    out = t_output(dtype, (trans ? 6 : 7) * size, 1, COL, NO_BATCH);
                    want = ref_dense_addmm(0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, NULL, dtype, 0);
                    if (RUN_OK(bsr_dense_mm(t_any_context(), trans ? BSR_TRANS_A : 0, &a, &b, &out, &e)))
                        REF_COMPARE(&out, &want, 0);
                }
}
TEST(items) {
    int which, with_index;
    for (which = 0; which < 2; which++)
        for (with_index = 0; with_index < 2; with_index++) {
            t_spec s;
            bsr_matrix a;
            bsr_dense b, out;
            ref_result want;
            int64_t i;
            bsr_exec e = (bt_case("%s, index %d", which ? "columns of their own" : "two dimensions", with_index), t_exec(0));
            memset(&s, 0, sizeof s), s.dtype = BSR_F32, s.block_rows = 2, s.block_cols = 3, s.r = 3, s.c = 4, s.nnz = 6;
            s.batch = which ? t_batch(1, 3, 0, 0, 0) : t_batch(2, 2, 3, 0, 0), a = t_matrix(&s);
            for (i = 0; i < 4 && which; i++) ((int32_t *)a.crow_indices)[i] = (int32_t)(2 * i); /* the same rows for all */
            for (i = 0; i < 18 && which; i++) ((int32_t *)a.col_indices)[i] = (int32_t)((i / 6 + i % 2 * (1 + i / 12)) % 4);
            if (which) a.crow_batch_stride[0] = 0;
            if (with_index) t_attach_transposed(&a), t_attach_schedule(&a, 2, 0); /* the schedule is A's, not A^T's */
            b = t_random(BSR_F32, 6, 5, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 12, 5, ROW, s.batch);
            want = ref_dense_addmm(0, NULL, 1, BSR_TRANS_A, &a, &b, NULL, BSR_F32, 0);
            if (RUN_OK(bsr_dense_mm(t_any_context(), BSR_TRANS_A, &a, &b, &out, &e))) REF_COMPARE(&out, &want, 0);
        }
}

/* A gradient that is a sum over two batch dimensions. */
TEST(sums) {
    const t_shape batch = t_batch(2, 2, 3, 0, 0);
    bsr_matrix a = (bt_case("two by three items"), small(BSR_F64, BSR_I32, 4, 5, 9)), da = t_matrix_output(&a, BSR_F64, PACKED);
    bsr_dense b = t_random(BSR_F64, 15, 4, ROW, batch, 0, FILL_SIGNED), turned = bsr_dense_transposed(b);
    bsr_dense dc = t_random(BSR_F64, 8, 4, ROW, batch, 0, FILL_SIGNED);
    bsr_operand none;
    ref_result want = ref_sampled(0, NULL, 1, &dc, &turned, batch, NO_BATCH, BSR_F64, 0);
    bsr_exec e = t_exec(0);
    memset(&none, 0, sizeof none);
    if (RUN_OK(bsr_matmul_backward(t_any_context(), 0, bsr_operand_sparse(&a), bsr_operand_dense(&b), bsr_operand_dense(&dc),
                                   bsr_operand_sparse(&da), none, &e)))
        REF_COMPARE_MATRIX(&da, &want, 0);
    bt_case("columns of b"), e = t_exec(0);
    {
        bsr_matrix batched;
        bsr_dense db = t_output(BSR_F64, 15, 4, ROW, NO_BATCH);
        ref_result grad;
        a = small(BSR_F64, BSR_I32, 4, 5, 9), batched = bsr_matrix_batched(bsr_matrix_batched(a, 3, 0, 0, 0), 2, 0, 0, 0);
        b = t_random(BSR_F64, 15, 4, ROW, NO_BATCH, 0, FILL_SIGNED), dc = t_random(BSR_F64, 8, 4, ROW, batch, 0, FILL_SIGNED);
        grad = ref_dense_addmm(0, NULL, 1, BSR_TRANS_A, &batched, &dc, NULL, BSR_F64, 0);
        CHECK_INT(bsr_matmul_backward(t_any_context(), 0, bsr_operand_sparse(&batched), bsr_operand_dense(&b),
                                      bsr_operand_dense(&dc), none, bsr_operand_dense(&db), &e), BSR_OK);
        {
            int64_t i, item;
            double off = 0;
            for (i = 0; i < 60; i++) {
                double sum = 0;
                for (item = 0; item < 6; item++) sum += grad.want.v[item * 60 + i];
                off = fmax(off, fabs(sum - t_get(&db, 0, i / 4, i % 4)));
            }
            CHECK_NEAR(off, 0, 1e-12);
        }
    }
}
/* Rows of more blocks than are listed at once, and a key's density, rounded. */
TEST(lists) {
    int type;
    for (type = 0; type < 2; type++) {
        t_spec s;
        bsr_matrix a;
        bsr_dense b, out;
        ref_result want;
        bsr_tune_row key;
        bsr_plan plan;
        bsr_exec e = (bt_case("%s", type ? "i64" : "i32"), t_exec(0));
        memset(&s, 0, sizeof s), s.dtype = BSR_F32, s.index_dtype = type ? BSR_I64 : BSR_I32, s.block_rows = s.block_cols = 1;
        s.r = 3, s.c = 300, s.nnz = 600 + type, a = t_matrix(&s);
        b = t_random(BSR_F32, 300, 5, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 3, 5, ROW, NO_BATCH);
        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, NULL, BSR_F32, 0);
        if (RUN_OK(bsr_dense_mm(t_any_context(), 0, &a, &b, &out, &e))) REF_COMPARE(&out, &want, 0);
        e.query = &plan, e.key = &key;
        CHECK_INT(bsr_dense_mm(t_context(0), 0, &a, &b, &out, &e), BSR_OK), CHECK_INT(key.density, 67);
    }
}

/* Heads longer than a tile, masks of blocks taller than one, dropout from any column on, a NaN that only the first tile has. */
TEST(attention) {
    int which;
    for (which = 0; which < 4; which++) {
        static const char *const names[] = {"129 deep", "tall blocks, added", "dropout, blocks of 3", "an early NaN"};
        const int64_t depth = which ? 5 : 129, br = which == 1 ? 130 : 3, bc = which == 2 ? 3 : 40;
        t_spec s;
        bsr_matrix mask;
        bsr_dense q, k, v, out;
        bsr_attention_options o;
        ref_result want;
        bsr_exec e = (bt_case("%s", names[which]), t_exec(0));
        memset(&s, 0, sizeof s), memset(&o, 0, sizeof o);
        s.dtype = BSR_F32, s.block_rows = br, s.block_cols = bc, s.r = 2, s.c = 4, s.nnz = 8, mask = t_matrix(&s);
        q = t_random(BSR_F32, 2 * br, depth, ROW, NO_BATCH, 0, FILL_SIGNED);
        k = t_random(BSR_F32, 4 * bc, depth, ROW, NO_BATCH, 0, FILL_SIGNED);
        v = t_random(BSR_F32, 4 * bc, 6, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 2 * br, 6, ROW, NO_BATCH);
        if (which == 1) o.flags = BSR_ATTENTION_MASK_ADDITIVE;
        if (which == 2) o.dropout_p = 0.5, o.dropout_seed = 11;
        if (which == 3) t_set(&k, 0, 1, 0, (double)NAN);
        want = ref_attention(0, &q, &k, &v, &mask, &o, NO_BATCH, NULL);
        if (RUN_OK(bsr_attention(t_any_context(), 0, &q, &k, &v, &mask, &o, &out, NULL, &e))) REF_COMPARE(&out, &want, 0);
    }
    bt_case("the logarithm of an infinite sum"); /* is infinite, although the row of out is not a number */
    {
        t_spec s;
        bsr_matrix mask;
        bsr_dense q, k, v, out, lse;
        bsr_exec e = t_exec(0);
        int64_t i, j;
        memset(&s, 0, sizeof s);
        s.dtype = BSR_F32, s.block_rows = 3, s.block_cols = 40, s.r = 2, s.c = 4, s.nnz = 8, mask = t_matrix(&s);
        q = t_random(BSR_F32, 6, 5, ROW, NO_BATCH, 0, FILL_SIGNED), k = t_random(BSR_F32, 160, 5, ROW, NO_BATCH, 0, FILL_SIGNED);
        v = t_random(BSR_F32, 160, 6, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 6, 6, ROW, NO_BATCH);
        lse = t_output(BSR_F32, 6, 1, ROW, NO_BATCH);
        for (i = 0; i < 6; i++) t_set(&q, 0, i, 0, i % 2 ? 1 : -1);
        t_set(&k, 0, 77, 0, (double)INFINITY);
        if (RUN_OK(bsr_attention(t_any_context(), 0, &q, &k, &v, &mask, NULL, &out, &lse, &e)))
            for (i = 0; i < 6; i++) {
                const double sum = t_get(&lse, 0, i, 0);
                CHECK(i % 2 ? sum == (double)INFINITY : sum - sum == 0);
                for (j = 0; j < 6 && i % 2; j++) CHECK(t_get(&out, 0, i, j) != t_get(&out, 0, i, j));
            }
    }
}

/* Work that is cut into ranges, of which some have one more: not one block row may be left out. */
TEST(ranges) {
    static const int64_t rows[] = {255, 256, 257, 300, 511, 513, 1027};
    size_t k;
    for (k = 0; k < BT_COUNT(rows); k++) {
        const int64_t n = rows[k];
        bsr_matrix m = (bt_case("%d block rows", (int)n), small(BSR_F32, BSR_I32, n, 3, n));
        bsr_dense out = t_output(BSR_F32, 2 * n, 9, ROW, NO_BATCH);
        bsr_exec e = t_exec(0);
        int64_t i, p, wrong = 0;
        if (!RUN_OK(bsr_to_dense(t_any_context(), &m, &out, &e))) continue;
        for (i = 0; i < 2 * n; i++) {
            double want[9] = {0};
            int j;
            for (p = t_crow(&m, 0, i / 2); p < t_crow(&m, 0, i / 2 + 1); p++)
                for (j = 0; j < 3; j++)
                    want[3 * t_col(&m, 0, p) + j] += ((const float *)m.values)[t_value_at(&m, 0, p, i % 2, j)];
            for (j = 0; j < 9; j++) wrong += !(t_get(&out, 0, i, j) == want[j]);
        }
        CHECK_INT(wrong, 0);
    }
}
/* A union longer than it is, an entry that a transposed index names twice; views that a conversion must detach; a tie of a
   decimal number; the sign of zero. */
TEST(validated) {
    product p = (bt_case("a union"), product_new(BSR_F32));
    bsr_file_info info;
    bsr_dense source;
    int64_t row, col;
    double value = 0;
    static const char text[] = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 9007199254740995\n";
    CHECK_INT(bsr_validate(t_context(0), &p.a, &p.e), BSR_OK), schedule_order(&p, 1)[16]++;
    CHECK_INT(bsr_validate(t_context(0), &p.a, &p.e), BSR_BAD_STRUCTURE);
    p = (bt_case("an entry named twice"), product_new(BSR_F32));
    {
        int32_t *row = transposed_entries(&p, 6), *position = row + 16, k = 0, at;
        const int32_t *ccol = row - 16;
        while (ccol[k + 1] - ccol[k] < 2) k++; /* nine entries in five columns: there is one of two */
        at = ccol[k + 1] - 2;
        CHECK_INT(bsr_validate(t_context(0), &p.a, &p.e), BSR_OK);
        row[at + 1] = row[at], position[at + 1] = position[at];
        CHECK_INT(bsr_validate(t_context(0), &p.a, &p.e), BSR_BAD_STRUCTURE);
        CHECK_INT(t_error.item, BSR_ITEM_VIEW_CONTENT), CHECK_INT(t_error.index, at + 1);
    }
    p = (bt_case("detached"), product_new(BSR_F32)), t_attach_transposed(&p.a), t_attach_schedule(&p.a, 2, 0);
    source = t_dense(BSR_F32, 8, 15, ROW, NO_BATCH, 0), memset(source.data, 0, 8 * 15 * 4);
    CHECK_INT(bsr_from_dense(t_context(0), &source, &p.a, &p.e), BSR_OK), CHECK(!p.a.transposed_index && !p.a.schedule);
    bt_case("a tie");
    CHECK_INT(bsr_parse_matrix_market(text, sizeof text - 1, &info, &row, &col, &value, 1, NULL), BSR_OK);
    CHECK_NEAR(value, 9007199254740996.0, 0);
    bt_case("a tie with more zeros than digits count");
    {
        char zeros[1100];
        int k;
        memset(zeros, '0', sizeof zeros);
        memcpy(zeros, text, sizeof text - 2), zeros[sizeof text - 3] = '3', zeros[sizeof text - 2] = '.';
        for (k = 0; k < 2; k++) {
            zeros[sizeof zeros - 1] = (char)('0' + k);
            CHECK_INT(bsr_parse_matrix_market(zeros, sizeof zeros, &info, &row, &col, &value, 1, NULL), BSR_OK);
            CHECK_NEAR(value, k ? 9007199254740994.0 : 9007199254740992.0, 0); /* one digit far behind decides */
        }
    }
    bt_case("minus zero"); /* alone, twice, and beside a zero */
    {
        const int32_t rows[] = {0, 0, 0, 0, 0}, cols[] = {0, 1, 1, 2, 2};
        const float zeros[] = {-0.0f, -0.0f, -0.0f, -0.0f, 0.0f};
        int32_t crow[2], to[1];
        float block[4] = {1, 1, 1, 1};
        bsr_matrix m = bsr_matrix_make(1, 4, 1, 4, 1, crow, to, BSR_I32, block, BSR_F32);
        int k;
        CHECK_INT(bsr_from_coo(t_context(0), 1, 4, 5, rows, cols, BSR_I32, zeros, BSR_F32, &m, NULL), BSR_OK);
        for (k = 0; k < 4; k++) CHECK(block[k] == 0 && !signbit(block[k]) == (k > 1));
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"descriptors", descriptors}, {"index_contents", index_contents}, {"each_pattern", each_pattern}, {"views", views},
        {"repeats", repeats},         {"places", places},                 {"patterns", patterns},         {"scratch", scratch},
        {"places_of_schedules", places_of_schedules}, {"places_of_the_word", places_of_the_word},
        {"words_of_counts", words_of_counts},
        {"conversions", conversions}, {"rows", rows},                     {"vectors", vectors},           {"items", items},
        {"sums", sums},               {"lists", lists},                   {"attention", attention},
        {"validated", validated},     {"ranges", ranges},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
