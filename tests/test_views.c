/* test_views.c: bsr_matrix_rows(). What an operation does with the row views of a matrix, taken together, is bit for bit what it
   does with the whole: uneven splits, empty views, views of views, batches, ragged matrices. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"

enum { CUTS = 5 };
typedef struct split { /* one matrix, cut; at[0] = 0, at[CUTS] = its block rows */
    const bsr_context *ctx;
    t_spec s;
    bsr_matrix m;
    int64_t at[CUTS + 1];
    t_shape batch;
} split;

static split split_new(int form) {
    static const int64_t sides[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 33, 40};
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};
    split x;
    int i, k;
    memset(&x, 0, sizeof x);
    x.ctx = t_any_context();
    x.s.dtype = dtypes[bt_below(4)], x.s.index_dtype = bt_below(2) ? BSR_I64 : BSR_I32, x.s.kind = FILL_INTEGER;
    x.s.block_rows = sides[bt_below(12)], x.s.block_cols = bt_below(2) ? x.s.block_rows : sides[bt_below(12)];
    x.s.r = bt_range(1, 12), x.s.c = bt_range(1, 9), x.s.nnz = bt_below(8) ? bt_range(1, x.s.r * x.s.c) : 0;
    x.s.layout = (int)bt_below(BLOCKS_LAYOUTS);
    x.batch = form == 0 ? NO_BATCH : form == 1 ? t_batch(1, 3, 0, 0, 0) : t_batch(2, 2, 3, 0, 0);
    x.s.batch = x.batch, x.s.ragged = form > 1 && bt_below(2);
    if (form && !x.s.ragged) x.s.shared_pattern = (unsigned)bt_below(4);
    x.s.shared_values = x.s.shared_pattern & (unsigned)bt_below(4);
    x.m = t_matrix(&x.s);
    x.at[CUTS] = x.s.r;
    for (i = 1; i < CUTS; i++) { /* any, in order: empty views come of themselves */
        const int64_t at = bt_range(0, x.s.r);
        for (k = i; k > 1 && x.at[k - 1] > at; k--) x.at[k] = x.at[k - 1];
        x.at[k] = at;
    }
    return x;
}
/* Block rows i of the split of any matrix with its pattern; every second time as a view of a view. */
static bsr_matrix part_of(const split *x, const bsr_matrix *m, int i) {
    if (i % 2) return bsr_matrix_rows(*m, x->at[i], x->at[i + 1]);
    return bsr_matrix_rows(bsr_matrix_rows(*m, x->at[i / 2], x->s.r), x->at[i] - x->at[i / 2], x->at[i + 1] - x->at[i / 2]);
}
/* The same rows of a dense operand that has one row (or `rows`) for each of the matrix's. */
static bsr_dense rows_of(const split *x, const bsr_dense *d, int i) {
    bsr_dense part = *d;
    part.rows = (x->at[i + 1] - x->at[i]) * x->m.block_rows;
    part.data = (char *)d->data + x->at[i] * x->m.block_rows * d->row_stride * (int64_t)bsr_dtype_size(d->dtype);
    return part;
}
BT_MAY_READ_POISON static void same_bytes(const char *what, const void *a, const void *b) {
    const bt_block *x = bt_find(a), *y = bt_find(b);
    size_t i, same = x && y && x->bytes == y->bytes; /* no memcmp(): sanitizers watch what it reads */
    bt.checks++;
    for (i = 0; same && i < x->bytes; i++) same = ((const char *)x->data)[i] == ((const char *)y->data)[i];
    if (same) return;
    bt_fail(__FILE__, __LINE__, "%s: other bits", what);
}
/* The same poison on both sides: a copy of an output that nothing has been written to yet. */
static bsr_dense twin(const bsr_dense *d) {
    bsr_dense o = *d;
    const bt_block *b = bt_find(d->data);
    o.data = bt_alloc(b->bytes, bsr_dtype_size(d->dtype));
    memcpy(o.data, b->data, b->bytes);
    return o;
}
static bsr_matrix twin_values(const bsr_matrix *m) {
    bsr_matrix o = *m;
    const bt_block *b = bt_find(m->values);
    o.values = bt_alloc(b->bytes, bsr_dtype_size(m->dtype));
    memcpy(o.values, b->data, b->bytes);
    return o;
}
static int all(void) { return (int)bt_below(3); }

TEST(products) { /* A and A^T, with views attached to the view */
    int k, i;
    for (k = 0; k < 150; k++) {
        split x;
        bsr_dense b, y, z, left;
        bsr_epilogue epilogue;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0);
        b = t_random(x.s.dtype, x.m.cols, bt_range(1, 70), (int)bt_below(LAYOUTS), x.batch, 0, FILL_SIGNED);
        y = t_random(x.s.dtype, x.m.rows, b.cols, (int)bt_below(LAYOUTS), x.batch, 0, FILL_SIGNED), z = twin(&y);
        left = t_random(BSR_F32, x.m.rows, 1, COL, NO_BATCH, 0, FILL_POSITIVE);
        memset(&epilogue, 0, sizeof epilogue), epilogue.left_alpha = &left, epilogue.activation = BSR_ACT_SILU;
        CHECK_INT(bsr_dense_addmm(x.ctx, 0.5, &y, 2, 0, &x.m, &b, &epilogue, &y, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            bsr_matrix view = part_of(&x, &x.m, i);
            const bsr_dense out = rows_of(&x, &z, i), scale = rows_of(&x, &left, i);
            epilogue.left_alpha = &scale;
            if (i == 1) t_attach_schedule(&view, 2, 0);
            CHECK_INT(bsr_dense_addmm(x.ctx, 0.5, &out, 2, 0, &view, &b, &epilogue, &out, &e), BSR_OK);
        }
        same_bytes("A B", y.data, z.data);
    }
}
/* Sums that depend on their order, dense rows above sparse ones, weights of fewer bits: a row's bits are its own, wherever a view
   begins and whatever stands beside it. */
TEST(bits_of_rows) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_E4M3, BSR_I8, BSR_U4};
    static const int64_t widths[] = {1, 4, 17, 48};
    enum { ROWS = 24, ACROSS = 60 };
    int k, i, from;
    for (k = 0; k < 7 * 4 * 2 * T_ISAS; k++) {
        const int dtype = dtypes[k % 7], few = dtype == BSR_I8 || dtype == BSR_U4, isa = 1 + k / 56 % T_ISAS;
        const int64_t n = widths[k / 7 % 4], br = INT64_C(1) << bt_below(4), bc = INT64_C(4) << 2 * bt_below(2);
        int32_t crow[ROWS + 1] = {0}, col[ROWS * ACROSS];
        bsr_matrix a;
        bsr_dense b, y, z;
        bsr_exec e = t_exec(0);
        const bsr_context *ctx = t_context(isa);
        bt_case("%d: %s, %d columns, blocks of %d x %d, isa %d", k, bsr_dtype_name(dtype), (int)n, (int)br, (int)bc, isa);
        for (i = 0; i < ROWS; i++) {
            int c;
            crow[i + 1] = crow[i];
            for (c = 0; c < ACROSS; c++)
                if (bt_below(100) < (i < 8 ? 95 : i < 16 ? 50 : 4)) col[crow[i + 1]++] = c;
        }
        a = bsr_matrix_make(ROWS * br, ACROSS * bc, br, bc, crow[ROWS], crow, col, BSR_I32, NULL, dtype);
        if (dtype == BSR_U4) a.dtype = BSR_I8; /* any bytes */
        t_make_values(&a, a.dtype, PACKED, 0), t_fill_values(&a, FILL_SIGNED), a.dtype = dtype;
        b = t_random(few ? (int)BSR_F32 : dtype, a.cols, n, k / 28 % 2 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
        y = t_output(dtype == BSR_F64 ? BSR_F64 : BSR_F32, a.rows, n, ROW, NO_BATCH), z = twin(&y);
        if (!ctx) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        if (!BT_WANTED) continue;
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &y, &e), BSR_OK);
        for (from = 1; from < ROWS; from += 3) {
            const bsr_matrix view = bsr_matrix_rows(a, from, ROWS);
            const size_t before = (size_t)(from * br * y.row_stride) * bsr_dtype_size(y.dtype);
            bsr_dense out = z;
            out.rows = view.rows;
            CHECK_INT(bsr_dense_mm(ctx, 0, &view, &b, &out, &e), BSR_OK);
            CHECK(!memcmp((const char *)y.data + before, z.data,
                          (size_t)((view.rows - 1) * y.row_stride + n) * bsr_dtype_size(y.dtype)));
        }
    }
}
TEST(transposed_products) { /* sums of whole numbers: exact in any order */
    int k, i, way;
    for (k = 0; k < 120; k++) {
        split x;
        bsr_dense b, y, z;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0);
        x.s.dtype = bt_below(2) ? BSR_F32 : BSR_F64, x.m = t_matrix(&x.s);
        b = t_random(x.s.dtype, x.m.rows, bt_range(1, 40), (int)bt_below(LAYOUTS), x.batch, 0, FILL_INTEGER);
        y = t_dense(x.s.dtype, x.m.cols, b.cols, (int)bt_below(LAYOUTS), x.batch, 0);
        CHECK_INT(bsr_dense_mm(x.ctx, BSR_TRANS_A, &x.m, &b, &y, &e), BSR_OK);
        for (way = 0; way < 3; way++) { /* without index, in a workspace, with an index of the view */
            z = twin(&y), memset(z.data, 0x5a, bt_find(z.data)->bytes);
            for (i = 0; i < CUTS; i++) {
                bsr_matrix view = part_of(&x, &x.m, i);
                const bsr_dense in = rows_of(&x, &b, i);
                bsr_plan plan;
                if (way == 2) t_attach_transposed(&view);
                if (way == 2) CHECK_INT(bsr_validate(x.ctx, &view, &e), BSR_OK);
                e = t_exec(0), e.query = &plan;
                CHECK_INT(bsr_dense_mm(x.ctx, BSR_TRANS_A, &view, &in, &z, &e), BSR_OK);
                e = t_exec(0), e.workspace_bytes = way == 1 ? plan.workspace_bytes : 0;
                if (e.workspace_bytes) e.workspace = bt_alloc((size_t)e.workspace_bytes, 64);
                CHECK_INT(bsr_dense_addmm(x.ctx, i ? 1 : 0, &z, 1, BSR_TRANS_A, &view, &in, NULL, &z, &e), BSR_OK);
            }
            for (i = 0; i < (int)(y.rows * t_dense_items(&y)); i++) {
                int64_t j;
                for (j = 0; j < y.cols; j++)
                    if (!(t_get(&y, i / y.rows, i % y.rows, j) == t_get(&z, i / y.rows, i % y.rows, j))) break;
                if (j < y.cols) bt_fail(__FILE__, __LINE__, "A^T, way %d, row %d", way, i);
            }
            bt.checks++;
        }
    }
}
TEST(sampled) {
    int k, i;
    for (k = 0; k < 100; k++) {
        split x;
        bsr_matrix y, z;
        bsr_dense left, right;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0), x.s.shared_values = 0;
        if (!x.s.ragged) x.s.shared_pattern = 0;
        x.m = t_matrix(&x.s), y = x.m, z = twin_values(&y);
        left = t_random(x.s.dtype, x.m.rows, bt_range(1, 50), (int)bt_below(LAYOUTS), x.batch, 0, FILL_SIGNED);
        right = t_random(x.s.dtype, left.cols, x.m.cols, (int)bt_below(LAYOUTS), x.batch, 0, FILL_SIGNED);
        CHECK_INT(bsr_sampled_addmm(x.ctx, 0.5, &y, 1, &left, &right, &y, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix view = part_of(&x, &z, i);
            const bsr_dense in = rows_of(&x, &left, i);
            CHECK_INT(bsr_sampled_addmm(x.ctx, 0.5, &view, 1, &in, &right, &view, &e), BSR_OK);
        }
        same_bytes("sampled", y.values, z.values);
    }
}
/* Sampled products at small blocks, of any density from row to row, in any order and repeated: what stands beside a row and how
   many rows are multiplied together changes none of its bits. Shares of the rows differ with the threads, too. */
TEST(bits_of_sampled_rows) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_E4M3};
    static const int64_t blocks[][2] = {{1, 1}, {1, 13}, {2, 3}, {7, 11}, {31, 2}, {32, 3}, {33, 2}, {3, 64}, {1, 65}, {16, 16}};
    static const int64_t inner[] = {1, 3, 17, 65, 130};
    enum { ROWS = 24, ACROSS = 70 };
    int k, i, from;
    for (k = 0; k < 6 * 4 * 30; k++) {
        const int dtype = dtypes[k % 6], isa = 1 + (int)bt_below(T_ISAS), plain = (int)bt_below(3), form = (int)bt_below(4);
        const int64_t *block = blocks[bt_below(10)], br = block[0], bc = block[1], n = inner[bt_below(5)];
        const int64_t across = bc > 16 ? 9 : ACROSS, rows = br > 7 ? 7 : ROWS;
        int32_t crow[ROWS + 1] = {0}, col[ROWS * (ACROSS + 8)];
        bsr_matrix y, z;
        bsr_dense left, right;
        bsr_exec e = t_exec(0);
        const bsr_context *ctx = t_context(isa);
        bt_case("%d: %s, K %d, blocks of %d x %d, %s by %s, isa %d, form %d", k, bsr_dtype_name(dtype), (int)n, (int)br, (int)bc,
                k / 6 & 1 ? "columns" : "rows", k / 12 & 1 ? "columns" : "rows", isa, form);
        for (i = 0; i < rows; i++) {
            int c, d;
            crow[i + 1] = crow[i];
            for (c = 0; c < across; c++)
                if (bt_below(100) < (form == 3 ? 100 : i % 8 < 3 ? 60 : i % 8 < 6 ? 20 : 2)) col[crow[i + 1]++] = c;
            for (c = crow[i]; form == 1 && c < crow[i + 1]; c++) /* in any order */
                d = crow[i] + (int)bt_below((uint64_t)(crow[i + 1] - crow[i])), from = col[c], col[c] = col[d], col[d] = from;
            for (c = 0; form == 2 && c < 8 && crow[i + 1] > crow[i]; c++, crow[i + 1]++) col[crow[i + 1]] = col[crow[i + 1] - 1];
        }
        y = bsr_matrix_make(rows * br, across * bc, br, bc, crow[rows], crow, col, BSR_I32, NULL, dtype);
        t_make_values(&y, dtype == BSR_E4M3 || (dtype == BSR_I8 && plain) ? BSR_F32 : dtype, (int)bt_below(BLOCKS_LAYOUTS), 0);
        t_fill_values(&y, FILL_SIGNED), bt_mark_output(y.values), z = twin_values(&y);
        left = t_random(dtype, y.rows, n, k / 6 & 1 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
        right = t_random(dtype, n, y.cols, k / 12 & 1 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
        if (!ctx) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        if (!BT_WANTED) continue;
        e.threads = 1;
        CHECK_INT(bsr_sampled_addmm(ctx, plain ? 0 : 3, &y, plain == 1 ? 1 : 3, &left, &right, &y, &e), BSR_OK);
        for (i = 0, e.threads = 0; i < rows; i = from) {
            const bsr_matrix view = bsr_matrix_rows(z, i, from = i + 1 + (int)bt_below((uint64_t)(rows - i)));
            bsr_dense in = left;
            in.rows = view.rows, in.data = (char *)left.data + i * br * left.row_stride * (int64_t)bsr_dtype_size(dtype);
            CHECK_INT(bsr_sampled_addmm(ctx, plain ? 0 : 3, &view, plain == 1 ? 1 : 3, &in, &right, &view, &e), BSR_OK);
        }
        same_bytes("sampled", y.values, z.values);
    }
}
TEST(softmax) { /* and its backward; another matrix with the same pattern in arrays of its own */
    int k, i;
    for (k = 0; k < 100; k++) {
        split x;
        bsr_matrix y, z, dx, dz, other;
        bsr_softmax_options o;
        bsr_dense mask;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0), x.s.shared_values = 0;
        if (!x.s.ragged) x.s.shared_pattern = 0;
        x.m = t_matrix(&x.s);
        y = t_matrix_output(&x.m, x.s.dtype, PACKED), z = twin_values(&y), dx = t_matrix_output(&x.m, x.s.dtype, PACKED);
        dz = twin_values(&dx), other = x.m;
        other.col_indices = bt_alloc(bt_find(x.m.col_indices)->bytes, 8);
        memcpy(other.col_indices, x.m.col_indices, bt_find(x.m.col_indices)->bytes);
        mask = t_random(x.s.dtype, x.m.rows, x.m.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
        memset(&o, 0, sizeof o), o.attn_mask = &mask, o.attn_mode = BSR_MASK_ADD;
        CHECK_INT(bsr_softmax(x.ctx, 0.5, &x.m, &o, &y, &e), BSR_OK);
        CHECK_INT(bsr_softmax_backward(x.ctx, 0.5, &y, &x.m, &dx, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix in = part_of(&x, &other, i), out = part_of(&x, &z, i), grad = part_of(&x, &dz, i);
            const bsr_dense some = rows_of(&x, &mask, i);
            o.attn_mask = &some;
            CHECK_INT(bsr_softmax(x.ctx, 0.5, &in, &o, &out, &e), BSR_OK);
            CHECK_INT(bsr_softmax_backward(x.ctx, 0.5, &out, &in, &grad, &e), BSR_OK);
        }
        same_bytes("softmax", y.values, z.values);
        same_bytes("softmax backward", dx.values, dz.values);
    }
}
TEST(attention) {
    int k, i;
    for (k = 0; k < 100; k++) {
        split x;
        bsr_attention_options o;
        bsr_dense q, key, v, y, z, lse, lsz;
        const int64_t depth = bt_range(1, 40);
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0);
        memset(&o, 0, sizeof o);
        o.flags = bt_below(2) ? (uint32_t)BSR_ATTENTION_CAUSAL : 0u, o.causal_offset = bt_range(-10, 60);
        q = t_random(x.s.dtype, x.m.rows, depth, ROW, x.batch, 0, FILL_SIGNED);
        key = t_random(x.s.dtype, x.m.cols, depth, ROW, x.batch, 0, FILL_SIGNED);
        v = t_random(x.s.dtype, x.m.cols, bt_range(1, 40), ROW, x.batch, 0, FILL_SIGNED);
        y = t_dense(x.s.dtype, x.m.rows, v.cols, ROW, x.batch, 0), z = twin(&y);
        lse = t_dense(x.s.dtype == BSR_F64 ? BSR_F64 : BSR_F32, x.m.rows, 1, ROW, x.batch, 0), lsz = twin(&lse);
        CHECK_INT(bsr_attention(x.ctx, 0, &q, &key, &v, &x.m, &o, &y, &lse, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix view = part_of(&x, &x.m, i);
            const bsr_dense in = rows_of(&x, &q, i), out = rows_of(&x, &z, i), sums = rows_of(&x, &lsz, i);
            bsr_attention_options mine = o;
            mine.causal_offset += x.at[i] * x.m.block_rows;
            CHECK_INT(bsr_attention(x.ctx, 0, &in, &key, &v, &view, &mine, &out, &sums, &e), BSR_OK);
        }
        same_bytes("attention", y.data, z.data);
        same_bytes("its lse", lse.data, lsz.data);
    }
}
TEST(matmul) { /* as products with whole numbers, and gradients */
    int k, i;
    for (k = 0; k < 80; k++) {
        split x;
        bsr_dense b, y, z, right, ry, rz, db, dbz, grad;
        bsr_matrix da, daz;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0), x.s.dtype = BSR_F64, x.s.shared_values = 0;
        if (!x.s.ragged) x.s.shared_pattern = 0;
        x.m = t_matrix(&x.s);
        b = t_random(BSR_F64, x.m.cols, 9, ROW, x.batch, 0, FILL_INTEGER), y = t_dense(BSR_F64, x.m.rows, 9, COL, x.batch, 0);
        z = twin(&y), right = t_random(BSR_F64, 6, x.m.rows, COL, x.batch, 0, FILL_INTEGER);
        ry = t_dense(BSR_F64, 6, x.m.cols, ROW, x.batch, 0), rz = twin(&ry), db = t_dense(BSR_F64, x.m.cols, 9, ROW, x.batch, 0);
        grad = t_random(BSR_F64, x.m.rows, 9, COL, x.batch, 0, FILL_INTEGER), dbz = twin(&db);
        da = t_matrix_output(&x.m, BSR_F64, PACKED), daz = twin_values(&da);
        CHECK_INT(bsr_matmul(x.ctx, 0, bsr_operand_sparse(&x.m), bsr_operand_dense(&b), bsr_operand_dense(&y), &e), BSR_OK);
        CHECK_INT(bsr_matmul(x.ctx, 0, bsr_operand_dense(&right), bsr_operand_sparse(&x.m), bsr_operand_dense(&ry), &e), BSR_OK);
        CHECK_INT(bsr_matmul_backward(x.ctx, 0, bsr_operand_sparse(&x.m), bsr_operand_dense(&b), bsr_operand_dense(&grad),
                                      bsr_operand_sparse(&da), bsr_operand_dense(&db), &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix view = part_of(&x, &x.m, i), dview = part_of(&x, &daz, i);
            const bsr_dense out = rows_of(&x, &z, i), g = rows_of(&x, &grad, i), turned = bsr_dense_transposed(right);
            const bsr_dense in = bsr_dense_transposed(rows_of(&x, &turned, i));
            const bsr_operand own = bsr_operand_sparse(&view);
            int64_t item, r, j;
            CHECK_INT(bsr_matmul(x.ctx, 0, own, bsr_operand_dense(&b), bsr_operand_dense(&out), &e), BSR_OK);
            CHECK_INT(bsr_matmul(x.ctx, 0, bsr_operand_dense(&in), own, bsr_operand_dense(&rz), &e), BSR_OK);
            CHECK_INT(bsr_matmul_backward(x.ctx, 0, own, bsr_operand_dense(&b), bsr_operand_dense(&g),
                                          bsr_operand_sparse(&dview), bsr_operand_dense(&dbz), &e), BSR_OK);
            for (item = 0; item < t_dense_items(&ry); item++) { /* what remains must become nothing */
                for (r = 0; r < 6; r++)
                    for (j = 0; j < ry.cols; j++) t_set(&ry, item, r, j, t_get(&ry, item, r, j) - t_get(&rz, item, r, j));
                for (r = 0; r < db.rows; r++)
                    for (j = 0; j < 9; j++) t_set(&db, item, r, j, t_get(&db, item, r, j) - t_get(&dbz, item, r, j));
            }
        }
        same_bytes("DSD", y.data, z.data);
        same_bytes("gradient of the matrix", da.values, daz.values);
        for (i = 0; i < (int)(t_dense_items(&ry) * 6 * ry.cols); i++)
            if (!(t_load(ry.data, BSR_F64, i) == 0)) bt_fail(__FILE__, __LINE__, "DDS: element %d", i);
        for (i = 0; i < (int)(t_dense_items(&db) * db.rows * 9); i++)
            if (!(t_load(db.data, BSR_F64, i) == 0)) bt_fail(__FILE__, __LINE__, "gradient of b: element %d", i);
    }
}

/* A view's blocks as a matrix of its own: crow counted from 0, columns and values where they lie. Of one item. */
static bsr_matrix packed_of(const bsr_matrix *view) {
    const size_t size = bsr_dtype_size(view->index_dtype);
    const int64_t rows = view->rows / view->block_rows, first = t_crow(view, 0, 0);
    bsr_matrix m = *view;
    int64_t s[3], i;
    t_matrix_strides(view, s);
    m.flags = 0, m.nnz = t_crow(view, 0, rows) - first, m.crow_indices = bt_alloc((size_t)(rows + 1) * size, size);
    for (i = 0; i <= rows; i++) t_set_index(m.crow_indices, m.index_dtype, i, t_crow(view, 0, i) - first);
    m.col_indices = (char *)view->col_indices + (size_t)first * size;
    m.values = (char *)view->values + (size_t)(first * s[0]) * bsr_dtype_size(m.dtype), memcpy(m.value_strides, s, sizeof s);
    return m;
}
static void same_matrix(const char *what, const bsr_matrix *a, const bsr_matrix *b) {
    CHECK(a->nnz == b->nnz && a->rows == b->rows && a->cols == b->cols);
    same_bytes(what, a->crow_indices, b->crow_indices), same_bytes(what, a->col_indices, b->col_indices);
    same_bytes(what, a->values, b->values);
}
TEST(conversions) { /* of a view as of its blocks in a matrix of their own */
    int k, i, j;
    for (k = 0; k < 120; k++) {
        split x;
        bsr_dense y, z;
        bsr_exec e;
        bt_case("%d", k);
        x = split_new(all()), e = t_exec(0);
        y = t_dense(x.s.dtype, x.m.rows, x.m.cols, (int)bt_below(LAYOUTS), x.batch, 0), z = twin(&y);
        CHECK_INT(bsr_to_dense(x.ctx, &x.m, &y, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix view = part_of(&x, &x.m, i);
            const bsr_dense out = rows_of(&x, &z, i);
            CHECK_INT(bsr_to_dense(x.ctx, &view, &out, &e), BSR_OK);
            CHECK_INT(bsr_validate(x.ctx, &view, &e), BSR_OK);
        }
        same_bytes("to_dense", y.data, z.data);
        for (i = 0; i < CUTS && !x.batch.dims; i++) {
            const bsr_matrix view = part_of(&x, &x.m, i), packed = packed_of(&view);
            const int64_t area = x.m.block_rows * x.m.block_cols, most = x.m.nnz * area;
            const size_t crow = (size_t)(view.rows + 1) * 8, list = (size_t)most * 8;
            void *array[2][4];
            bsr_matrix made[2];
            int64_t count[2];
            t_spec s = x.s;
            for (j = 0; j < 2; j++) { /* COO has what CSR has */
                const bsr_matrix *from = j ? &view : &packed;
                array[j][0] = bt_alloc(crow, 8), array[j][1] = bt_alloc(list, 8), array[j][2] = bt_alloc(list, 8);
                array[j][3] = bt_alloc(list, 8), count[j] = most;
                CHECK_INT(bsr_to_coo(x.ctx, from, view.rows, view.cols, &count[j], array[j][0], array[j][1], array[j][2], BSR_I64,
                                     array[j][3], x.s.dtype, &e), BSR_OK);
            }
            CHECK_INT(count[0], count[1]);
            for (j = 0; j < 4; j++) same_bytes("to_coo", array[0][j], array[1][j]);
            for (j = 0; j < 2; j++) {
                const bsr_matrix *from = j ? &view : &packed;
                s.block_rows = bt_range(1, 9), s.block_cols = bt_range(1, 9);
                if (j) s.block_rows = made[0].block_rows, s.block_cols = made[0].block_cols;
                s.r = (view.rows + s.block_rows - 1) / s.block_rows, s.c = (view.cols + s.block_cols - 1) / s.block_cols;
                s.layout = PACKED, made[j] = t_target(&s);
                CHECK_INT(bsr_reblock(x.ctx, from, &made[j], &e), BSR_OK);
            }
            same_matrix("reblock", &made[0], &made[1]);
            for (j = 0, s = x.s, s.layout = PACKED, s.r = x.at[i + 1] - x.at[i]; j < 2; j++) {
                made[j] = t_target(&s);
                CHECK_INT(bsr_prune(x.ctx, bsr_operand_sparse(j ? &view : &packed), 0.6, BSR_NORM_L1, &made[j], &e), BSR_OK);
            }
            same_matrix("prune", &made[0], &made[1]);
        }
    }
}
TEST(scatter) {
    int k, i;
    for (k = 0; k < 60; k++) {
        split x;
        bsr_dense b, y, z;
        bsr_exec e;
        const int format = k % 2 ? BSR_SCATTER_MM : BSR_SCATTER_STRIDED;
        bt_case("%d", k);
        x = split_new(0), e = t_exec(0);
        b = t_random(x.s.dtype, x.m.cols, 12, ROW, NO_BATCH, 0, FILL_INTEGER);
        y = t_dense(x.s.dtype, x.m.rows, 12, ROW, NO_BATCH, 0), z = twin(&y);
        CHECK_INT(bsr_dense_mm(x.ctx, 0, &x.m, &b, &y, &e), BSR_OK);
        for (i = 0; i < CUTS; i++) {
            const bsr_matrix view = part_of(&x, &x.m, i);
            const bsr_dense out = rows_of(&x, &z, i);
            bsr_scatter_indices list;
            memset(&list, 0, sizeof list), list.format = format, list.split_n = 1 + k % 3;
            CHECK_INT(bsr_build_scatter_indices(x.ctx, &view, 12, &list, &e), BSR_OK);
            t_list_room(&list, 0);
            CHECK_INT(bsr_build_scatter_indices(x.ctx, &view, 12, &list, &e), BSR_OK);
            CHECK_INT(bsr_dense_scatter_mm(x.ctx, &view, &b, &list, &out, &e), BSR_OK);
            list.format = BSR_SCATTER_STRIDED_COMPRESSED;
            CHECK_INT(bsr_build_scatter_indices(x.ctx, &view, 12, &list, &e), BSR_UNSUPPORTED);
            CHECK_INT(t_error.item, BSR_ITEM_ROW_VIEW);
        }
        same_bytes("scatter_mm", y.data, z.data);
    }
}

/* What can't be a view is refused, and whatever a view's arrays hold nothing outside them is read. */
TEST(refused) {
    static const int64_t wrong[][2] = {{-1, 2}, {2, 1}, {0, 7}, {7, 7}, {INT64_MIN, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    int32_t crow[] = {0, 2, 3, 3, 5, 6, 6}, col[] = {0, 1, 1, 0, 2, 1};
    float values[6 * 6], b[9 * 2], out[12 * 2];
    bsr_matrix m, v;
    bsr_dense db = bsr_dense_row_major(b, BSR_F32, 9, 2), dout = bsr_dense_row_major(out, BSR_F32, 12, 2);
    bsr_dense dense = bsr_dense_row_major(values, BSR_F32, 4, 9);
    bsr_exec e = t_exec(0);
    unsigned i;
    memset(values, 0, sizeof values), memset(b, 0, sizeof b);
    m = bsr_matrix_make(12, 9, 2, 3, 6, crow, col, BSR_I32, values, BSR_F32);
    for (i = 0; i < BT_COUNT(wrong); i++) {
        bt_case("rows %d to %d", (int)wrong[i][0], (int)wrong[i][1]);
        v = bsr_matrix_rows(m, wrong[i][0], wrong[i][1]);
        CHECK_INT(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e), BSR_BAD_SHAPE);
        CHECK_INT(t_error.item, BSR_ITEM_SIZE_NEGATIVE);
    }
    bt_case("no block size");
    v = m, v.block_rows = 0, v = bsr_matrix_rows(v, 0, 0);
    CHECK(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e) == BSR_BAD_SHAPE);
    bt_case("what a conversion builds");
    v = bsr_matrix_rows(m, 1, 3), v.rows = 4;
    CHECK_INT(bsr_from_dense(t_context(0), &dense, &v, &e), BSR_UNSUPPORTED);
    CHECK(t_error.item == BSR_ITEM_ROW_VIEW && t_error.operand == BSR_ARG_MATRIX && crow[1] == 2);
    bt_case("what is attached is dropped");
    m.transposed_index = m.schedule = crow, v = bsr_matrix_rows(m, 1, 4), m.transposed_index = m.schedule = NULL;
    CHECK(!v.transposed_index && !v.schedule && v.nnz == 6 && v.crow_indices == crow + 1 && v.flags == BSR_MATRIX_ROW_VIEW);
    for (i = 0; i < 5; i++) {
        static const int32_t bad[5] = {-1, 1, 7, INT32_MAX, INT32_MIN};
        static const int items[5] = {BSR_ITEM_CROW_FIRST, BSR_ITEM_CROW_DECREASES, BSR_ITEM_CROW_LAST, BSR_ITEM_CROW_LAST,
                                     BSR_ITEM_CROW_FIRST};
        const int at = i == 0 || i == 4 ? 1 : i == 1 ? 2 : 4;
        const int32_t was = crow[at];
        bt_case("crow_indices[%d] = %d", at, (int)bad[i]);
        v = bsr_matrix_rows(m, 1, 4), dout.rows = 6, crow[at] = bad[i];
        CHECK_INT(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e), BSR_BAD_STRUCTURE);
        CHECK_INT(t_error.item, items[i]);
        CHECK_INT(bsr_validate(t_context(0), &v, &e), BSR_BAD_STRUCTURE);
        crow[at] = was;
    }
    bt_case("a column outside, in the view or beside it");
    col[0] = 3, v = bsr_matrix_rows(m, 1, 4);
    CHECK_INT(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e), BSR_OK);
    col[0] = 0, col[2] = 3;
    CHECK_INT(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e), BSR_BAD_STRUCTURE);
    CHECK(t_error.item == BSR_ITEM_COL_RANGE && t_error.index == 2);
    bt_case("without the flag it is no matrix");
    col[2] = 1, v.flags = 0;
    CHECK_INT(bsr_dense_mm(t_context(0), 0, &v, &db, &dout, &e), BSR_BAD_STRUCTURE);
    CHECK_INT(t_error.item, BSR_ITEM_CROW_FIRST);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"products", products}, {"bits_of_rows", bits_of_rows}, {"transposed_products", transposed_products},
        {"sampled", sampled}, {"bits_of_sampled_rows", bits_of_sampled_rows}, {"softmax", softmax},
        {"attention", attention}, {"matmul", matmul}, {"conversions", conversions}, {"scatter", scatter}, {"refused", refused},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
