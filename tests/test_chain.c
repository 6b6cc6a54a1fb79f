/* test_chain.c: products one after another (bsr_chain_mm, bsr_sampled_chain_mm) against the calls that they stand for, bit for
   bit: all types, layouts, directions, epilogues and functions, batches; the middle in memory, in the workspace, in another type;
   what may not meet. The calls themselves are tested elsewhere. On a GPU plans go by layouts and alignments, and bits by plans:
   there numbers are whole, or quarters, and small, functions keep them so, and sums are exact in any order. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

#ifdef BSR_MIRROR_H
#define KIND FILL_INTEGER
#define ACTIVATIONS 2               /* none, relu */
#define USERS BSR_EPILOGUE_tf_shift /* quarters */
#else
#define KIND FILL_SIGNED
#define ACTIVATIONS 5
#define USERS BSR_EPILOGUE_tf_square
#endif
static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_E4M3};
#define DTYPES ((int)BT_COUNT(dtypes))
/* What a chain's middle may have, so that a product takes it; and its result. */
static int after(int dtype, int last) {
    static const int of_bytes[] = {BSR_I8, BSR_F32, BSR_BF16, BSR_F16}, of_f8[] = {BSR_E4M3, BSR_F32, BSR_BF16, BSR_E5M2};
    if (dtype == BSR_I8) return last && bt_below(2) ? (int)BSR_I32 : of_bytes[bt_below(4)];
    if (t_is_f8(dtype)) return of_f8[bt_below(4)];
    return dtype != BSR_F64 && bt_below(3) == 0 ? (int)BSR_F32 : dtype;
}
static void same(const void *got, const void *want, const char *what) {
    const bt_block *a = bt_find(got), *b = bt_find(want);
    bt.checks++;
    if (!a || !b || a->bytes != b->bytes || !bt_same_bytes(a->data, b->data, a->bytes))
        bt_fail(__FILE__, __LINE__, "%s differs from what the calls alone give", what);
}
/* The call again, with the workspace that it asks for. */
static uint64_t with_workspace(bsr_exec *e, const bsr_plan *plan, int more) {
    e->workspace_bytes = plan->workspace_bytes + (uint64_t)more;
    e->workspace = bt_alloc((size_t)e->workspace_bytes + 64, 64), bt_mark_output(e->workspace);
    return plan->workspace_bytes;
}
static t_shape some_batch(void) { return bt_below(2) ? NO_BATCH : t_batch((int)bt_range(1, 3), bt_range(1, 3), 2, 1, 1); }
static t_shape narrowed(t_shape batch) {
    int i;
    for (i = 0; i < batch.dims; i++)
        if (bt_below(3) == 0) batch.n[i] = 1;
    return batch;
}
static bsr_matrix weights(int dtype, int64_t rows, int64_t cols, int trans, t_shape batch) {
    int64_t br = bt_range(1, 20), bc = bt_range(1, 20);
    t_spec s;
    bsr_matrix m;
    while (rows % br) br--;
    while (cols % bc) bc--;
    s = trans ? t_spec_of(dtype, bc, br, cols / bc, rows / br, 0) : t_spec_of(dtype, br, bc, rows / br, cols / bc, 0);
    s.nnz = s.r * s.c * bt_range(20, 90) / 100, s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = KIND;
    s.batch = narrowed(batch), s.ragged = s.batch.dims && bt_below(2), s.unsorted = bt_below(4) == 0;
    m = t_matrix(&s);
    if (trans && bt_below(2)) t_attach_transposed(&m);
    return m;
}
typedef struct ends { /* what an epilogue has */
    bsr_epilogue e;
    bsr_dense bias, left;
} ends;
static const bsr_epilogue *some_ends(ends *x, int type, int compute, int64_t rows, int64_t cols) {
    const int whole = !t_is_float(type), side = whole ? (int)BSR_I32 : t_is_f8(type) ? (int)BSR_F32 : type;
    memset(&x->e, 0, sizeof x->e);
    x->bias = t_random(side, bt_below(2) ? rows : 1, bt_below(2) ? cols : 1, ROW, NO_BATCH, 0, KIND);
    x->left = t_random(side, rows, 1, ROW, NO_BATCH, 0, KIND);
    if (bt_below(2)) x->e.bias = &x->bias;
    if (bt_below(4) == 0) x->e.left_alpha = &x->left;
    if (!whole) x->e.activation = (int32_t)bt_below(ACTIVATIONS);
    if (!whole && compute != BSR_F64 && !x->e.left_alpha && bt_below(4) == 0) x->e.activation = USERS;
    return bt_below(5) ? &x->e : NULL;
}

TEST(products) {
    int d, turn;
    for (d = 0; d < DTYPES; d++)
        for (turn = 0; turn < 60; turn++) {
            const int type = dtypes[d], mid = after(type, 0), result = after(mid, 1), whole = !t_is_float(result);
            const int ta = (int)bt_below(2), tc = (int)bt_below(2), given = turn % 3;
            const int64_t k = bt_range(0, 60), h = bt_below(9) ? bt_range(1, 90) : 0, r = bt_range(0, 60), n = bt_range(0, 40);
            const t_shape batch = some_batch();
            const uint32_t trans = (ta ? BSR_TRANS_A : 0u) | (tc ? BSR_TRANS_C : 0u);
            const double beta = bt_below(2) ? 0 : whole ? 2 : 0.5, alpha = bt_below(3) ? 1 : 2;
            bsr_matrix a, c;
            bsr_dense b, input, out[2], middle[2];
            uint64_t random;
            const bsr_epilogue *inner, *outer;
            ends one, two;
            bsr_plan plan;
            bsr_exec e = t_exec(0);
            const bsr_context *const ctx = t_any_context();
            int i, by_columns;
            bt_case("%s, %s, %s, %d to %d to %d, %d columns, trans %d, middle %d", bsr_dtype_name(type), bsr_dtype_name(mid),
                    bsr_dtype_name(result), (int)k, (int)h, (int)r, (int)n, (int)trans, given);
            a = weights(type, h, k, ta, batch), c = weights(mid, r, h, tc, batch);
            b = t_random(type, k, n, (int)bt_below(LAYOUTS), batch, 0, KIND);
            input = t_random(result, r, n, ROW, batch, 0, KIND);
            inner = some_ends(&one, mid, type == BSR_F64 ? BSR_F64 : BSR_F32, h, n);
            outer = some_ends(&two, result, mid == BSR_F64 ? BSR_F64 : BSR_F32, r, n), random = bt.random;
            by_columns = n == 1 || (b.rows != 1 && b.row_stride == 1);
            for (i = 0; i < 2; i++)
                bt.random = random, out[i] = t_output(result, r, n, (int)bt_below(LAYOUTS), batch),
                middle[i] = t_output(mid, h, n, given ? (int)bt_below(LAYOUTS) : by_columns, batch);
            if (!RUN_OK(bsr_dense_addmm(ctx, 0, NULL, 1, ta ? BSR_TRANS_A : 0, &a, &b, inner, &middle[1], &e)) ||
                !RUN_OK(bsr_dense_addmm(ctx, beta, &input, alpha, tc ? BSR_TRANS_A : 0, &c, &middle[1], outer, &out[1],
                                        &e)))
                continue;
            e.query = &plan;
            if (!RUN_OK(bsr_chain_mm(ctx, trans, &a, &b, inner, given ? &middle[0] : NULL, beta, &input, alpha, &c,
                                     outer, &out[0], &e)))
                continue;
            CHECK_INT(plan.op, BSR_OP_CHAIN_MM), e.query = NULL;
            if (!given && h && n && t_items(&batch)) CHECK(plan.workspace_bytes >= (uint64_t)(h * n) * bsr_dtype_size(mid));
            if (!given || given == 2) with_workspace(&e, &plan, 0);
            if (RUN_OK(bsr_chain_mm(ctx, trans, &a, &b, inner, given ? &middle[0] : NULL, beta, &input, alpha, &c,
                                    outer, &out[0], &e))) {
                if (given) same(middle[0].data, middle[1].data, "the middle");
                same(out[0].data, out[1].data, "out");
            }
        }
}
TEST(sampled) {
    int d, turn;
    for (d = 0; d < DTYPES; d++)
        for (turn = 0; turn < 60; turn++) {
            const int type = dtypes[d], kept = turn % 2, mid = after(type, 0), first = kept ? after(type, 0) : mid;
            const int result = after(mid, 1), whole = !t_is_float(result), given = turn / 2 % 2;
            const int trans = (int)bt_below(2), wide = first == BSR_F64 || mid == BSR_F64;
            const int64_t k = bt_range(0, 50), n = bt_range(0, 40);
            const t_shape batch = some_batch();
            t_spec s = t_spec_of(mid, bt_range(1, 20), bt_range(1, 20), bt_range(0, 6), bt_range(0, 6), 0);
            const double beta = bt_below(2) ? 0 : whole ? 2 : 0.5, scale = bt_below(2) ? 1 : 2;
            bsr_map_options f = BSR_ZERO;
            bsr_matrix product[2], middle[2], bare;
            bsr_dense x, y, c, input, out[2];
            const bsr_operand none = {NULL, NULL};
            const bsr_epilogue *outer;
            uint64_t random;
            ends end;
            bsr_plan plan;
            bsr_exec e = t_exec(0);
            const bsr_context *const ctx = t_any_context();
            int i, has;
            s.nnz = s.r * s.c * bt_range(0, 100) / 100, s.kind = KIND, s.batch = batch, s.unsorted = bt_below(4) == 0;
            s.ragged = batch.dims && bt_below(2);
            bt_case("%s, %s, %s, %d x %d blocks of %d x %d, K %d, %d columns, trans %d, kept %d, given %d", bsr_dtype_name(type),
                    bsr_dtype_name(mid), bsr_dtype_name(result), (int)s.r, (int)s.c, (int)s.block_rows, (int)s.block_cols,
                    (int)k, (int)n, trans, kept, given);
            bare = t_matrix(&s);
            f.function = bt_below(3) ? (int32_t)bt_below(ACTIVATIONS) : BSR_MAP_CLAMP, f.low = -1, f.high = 2;
            if (!wide && bt_below(4) == 0) f.function = BSR_EPILOGUE_tf_shift;
            if (bt_below(3) == 0) f.dropout_p = 0.5, f.dropout_seed = 7;
            has = bt_below(4) > 0;
            x = t_random(type, bare.rows, k, (int)bt_below(LAYOUTS), batch, 0, KIND);
            y = t_random(type, k, bare.cols, (int)bt_below(LAYOUTS), narrowed(batch), 0, KIND);
            c = t_random(mid, trans ? bare.rows : bare.cols, n, (int)bt_below(LAYOUTS), narrowed(batch), 0, KIND);
            input = t_random(result, trans ? bare.cols : bare.rows, n, ROW, batch, 0, KIND);
            outer = some_ends(&end, result, mid == BSR_F64 ? BSR_F64 : BSR_F32, trans ? bare.cols : bare.rows, n);
            random = bt.random;
            for (i = 0; i < 2; i++) {
                bt.random = random, product[i] = t_matrix_output(&bare, first, (int)bt_below(BLOCKS_LAYOUTS));
                middle[i] = t_matrix_output(&bare, mid, given ? (int)bt_below(BLOCKS_LAYOUTS) : (int)PACKED);
                out[i] = t_output(result, trans ? bare.cols : bare.rows, n, (int)bt_below(LAYOUTS), batch);
            }
            if (!RUN_OK(bsr_sampled_addmm(ctx, 0, NULL, scale, &x, &y, kept ? &product[1] : &middle[1], &e))) continue;
            if ((has || kept) && !RUN_OK(bsr_map(ctx, has ? &f : NULL, 1, kept ? &product[1] : &middle[1], 0, none,
                                                 &middle[1], &e)))
                continue;
            if (!given) { /* the chain has a workspace then, by which A^T without its index is summed in another order */
                e.query = &plan;
                if (!RUN_OK(bsr_dense_addmm(ctx, beta, &input, 1, trans ? BSR_TRANS_A : 0, &middle[1], &c, outer, &out[1],
                                            &e)))
                    continue;
                e.query = NULL, with_workspace(&e, &plan, 0);
            }
            if (!RUN_OK(bsr_dense_addmm(ctx, beta, &input, 1, trans ? BSR_TRANS_A : 0, &middle[1], &c, outer, &out[1],
                                        &e)))
                continue;
            e = t_exec(0), bare = middle[0];
            if (!given) bare.values = NULL;
            e.query = &plan;
            if (!RUN_OK(bsr_sampled_chain_mm(ctx, trans ? BSR_TRANS_A : 0, scale, &x, &y, has ? &f : NULL,
                                             kept ? &product[0] : NULL, &bare, beta, &input, 1, &c, outer, &out[0], &e)))
                continue;
            CHECK_INT(plan.op, BSR_OP_SAMPLED_CHAIN_MM), e.query = NULL;
            if (!given) with_workspace(&e, &plan, 0);
            if (RUN_OK(bsr_sampled_chain_mm(ctx, trans ? BSR_TRANS_A : 0, scale, &x, &y, has ? &f : NULL,
                                            kept ? &product[0] : NULL, &bare, beta, &input, 1, &c, outer, &out[0], &e))) {
                if (kept) same(product[0].values, product[1].values, "the product");
                if (given) same(middle[0].values, middle[1].values, "the middle");
                same(out[0].data, out[1].data, "out");
            }
        }
}
/* A long chain of tests would never reach these: what is refused, and that nothing is written then. */
TEST(errors) {
    const bsr_matrix a = weights(BSR_F32, 24, 32, 0, NO_BATCH), c = weights(BSR_F32, 16, 24, 0, NO_BATCH);
    const bsr_dense b = t_random(BSR_F32, 32, 8, ROW, NO_BATCH, 0, FILL_SIGNED);
    const bsr_dense middle = t_output(BSR_F32, 24, 8, ROW, NO_BATCH), out = t_output(BSR_F32, 16, 8, ROW, NO_BATCH);
    bsr_epilogue end_of = BSR_ZERO;
    bsr_map_options f = BSR_ZERO;
    bsr_matrix blocks = weights(BSR_F32, 24, 24, 0, NO_BATCH), other;
    bsr_dense x = t_random(BSR_F32, 24, 8, ROW, NO_BATCH, 0, FILL_SIGNED), y = bsr_dense_transposed(x), bias, wrong;
    bsr_dense result = t_output(BSR_F32, 24, 8, ROW, NO_BATCH);
    bsr_scales scales = BSR_ZERO;
    bsr_error error;
    bsr_exec e = t_exec(0);
    double two = 2;
    e.error = &error;
#define CHAIN(inner, mid, end, to) bsr_chain_mm(t_any_context(), 0, &a, &b, inner, mid, 0, NULL, 1, &c, end, to, &e)
#define SAMPLED(g, kept, mid, end, to) \
    bsr_sampled_chain_mm(t_any_context(), 0, 1, &x, &y, g, kept, mid, 0, NULL, 1, &x, end, to, &e)
#define REFUSED(call, status, what, where) \
    CHECK_INT(call, status), CHECK_INT(error.item, what), CHECK_INT(error.operand, where)
#ifndef BSR_MIRROR_H /* which offers one then */
    bsr_matrix bare = blocks;
    REFUSED(CHAIN(NULL, NULL, NULL, &out), BSR_WORKSPACE_TOO_SMALL, BSR_ITEM_WORKSPACE, BSR_ARG_EXEC);
    bare.values = NULL;
    REFUSED(SAMPLED(NULL, NULL, &bare, NULL, &result), BSR_WORKSPACE_TOO_SMALL, BSR_ITEM_WORKSPACE, BSR_ARG_EXEC);
#endif
    bias = bsr_dense_row_major(middle.data, BSR_F32, 16, 1), end_of.bias = &bias;
    REFUSED(CHAIN(NULL, &middle, &end_of, &out), BSR_OVERLAP, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE);
    end_of.bias = NULL;
    wrong = bsr_dense_row_major(middle.data, BSR_F32, 16, 8);
    REFUSED(CHAIN(NULL, &middle, NULL, &wrong), BSR_OVERLAP, BSR_ITEM_OVERLAP, BSR_ARG_OUT);
    wrong = bsr_dense_row_major(b.data, BSR_F32, 24, 8);
    REFUSED(CHAIN(NULL, &wrong, NULL, &out), BSR_OVERLAP, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE);
    wrong = bsr_dense_row_major(middle.data, BSR_F32, 16, 8);
    REFUSED(CHAIN(NULL, &wrong, NULL, &out), BSR_BAD_SHAPE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MIDDLE);
    wrong = middle, wrong.dtype = BSR_F16;
    REFUSED(CHAIN(NULL, &wrong, NULL, &out), BSR_BAD_DTYPE, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_MIDDLE);
    end_of.beta_ptr = &two;
    REFUSED(CHAIN(&end_of, &middle, NULL, &out), BSR_NULL_POINTER, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT);
    REFUSED(bsr_chain_mm(t_any_context(), BSR_TRANS_B, &a, &b, NULL, &middle, 0, NULL, 1, &c, NULL, &out, &e), BSR_BAD_ARGUMENT,
            BSR_ITEM_RESERVED, BSR_ARG_NONE);
    REFUSED(SAMPLED(NULL, NULL, NULL, NULL, &result), BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MIDDLE);
    f.combine = BSR_COMBINE_ADD;
    REFUSED(SAMPLED(&f, NULL, &blocks, NULL, &result), BSR_BAD_ARGUMENT, BSR_ITEM_MAP_COMBINE, BSR_ARG_OPTIONS);
    f.combine = 0, f.function = 55;
    REFUSED(SAMPLED(&f, NULL, &blocks, NULL, &result), BSR_BAD_ARGUMENT, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS);
    memset(&end_of, 0, sizeof end_of), bias = bsr_dense_row_major(blocks.values, BSR_F32, 1, 1), end_of.bias = &bias;
    REFUSED(SAMPLED(NULL, NULL, &blocks, &end_of, &result), BSR_OVERLAP, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE);
    REFUSED(SAMPLED(NULL, &blocks, &blocks, NULL, &result), BSR_OVERLAP, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE);
    other = weights(BSR_F32, 24, 48, 0, NO_BATCH);
    REFUSED(SAMPLED(NULL, &other, &blocks, NULL, &result), BSR_BAD_SHAPE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_PRODUCT);
    memset(&end_of, 0, sizeof end_of), scales.scale = &bias, end_of.b_scales = &scales;
    REFUSED(CHAIN(&end_of, &middle, NULL, &out), BSR_UNSUPPORTED, BSR_ITEM_SCALES, BSR_ARG_B_SCALES);
    REFUSED(CHAIN(NULL, &middle, &end_of, &out), BSR_UNSUPPORTED, BSR_ITEM_SCALES, BSR_ARG_B_SCALES);
    REFUSED(SAMPLED(NULL, NULL, &blocks, &end_of, &result), BSR_UNSUPPORTED, BSR_ITEM_SCALES, BSR_ARG_B_SCALES);
    CHECK_INT(SAMPLED(NULL, NULL, &blocks, NULL, &result), BSR_OK);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"products", products}, {"sampled", sampled}, {"errors", errors}};
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
