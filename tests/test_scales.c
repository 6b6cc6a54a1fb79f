/* test_scales.c: operands of 8 bits that are stored with scales: one, by rows and columns, by groups along the products on either
   side, of each stored block; every type, layout, batch; numbers that are none; what is refused. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"
#include "scale_cases.h"

static const int bytes[] = {BSR_E4M3, BSR_E5M2, BSR_I8}, results[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_E4M3, BSR_E5M2};
static const int floats[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64};

enum { ONE, ROWS, COLS, ALONG, SQUARE, ANY, BLOCK, IN_BLOCK, KINDS }; /* the last two: of stored blocks */
static const char *const kinds[] = {"one", "rows", "columns", "1 x 128", "128 x 128", "groups", "blocks", "in blocks"};
/* Scales of an operand rows x cols by these groups (of a block, where a has them), in memory of the case. */
static bsr_scales scales_by(int64_t group_rows, int64_t group_cols, int blocks, int dtype, int64_t rows, int64_t cols,
                            const bsr_matrix *a, t_shape batch, int fill) {
    bsr_dense *d = (bsr_dense *)bt_alloc(sizeof(bsr_dense), 8);
    bsr_scales s = BSR_ZERO;
    s.group_rows = group_rows, s.group_cols = group_cols;
    if (blocks) s.flags = BSR_SCALES_BLOCKS, rows = a->block_rows, cols = a->block_cols, batch.n[batch.dims++] = a->nnz;
    *d = t_random(dtype, groups_of(rows, s.group_rows), groups_of(cols, s.group_cols), (int)bt_below(LAYOUTS), batch,
                  fill == FILL_WIDE ? (unsigned)bt_below(4) : 0, fill);
    s.scale = d;
    return s;
}
static bsr_scales scales_of(int kind, int dtype, int64_t rows, int64_t cols, const bsr_matrix *a, t_shape batch, int fill) {
    int64_t group_rows = kind == ROWS || kind == ALONG ? 1 : kind == SQUARE ? 128 : 0;
    int64_t group_cols = kind == COLS ? 1 : kind == ALONG || kind == SQUARE ? 128 : 0;
    if (kind == ANY || kind == IN_BLOCK) group_rows = bt_range(0, 40), group_cols = bt_range(0, 40);
    return scales_by(group_rows, group_cols, kind >= BLOCK, dtype, rows, cols, a, batch, fill);
}
/* A batch of 0 to 2 dimensions that broadcasts with n0 x n1. */
static t_shape some_batch(int dims, int64_t n0, int64_t n1) {
    const int64_t a = bt_below(2) ? n0 : 1, b = bt_below(2) ? n1 : 1;
    const int mine = (int)bt_range(0, dims);
    return mine == 2 ? t_batch(2, a, b, 0, 0) : mine == 1 ? t_batch(1, dims == 2 ? b : a, 0, 0, 0) : NO_BATCH;
}
/* Everything at random against the reference. */
TEST(products) {
    static const int64_t sides[] = {1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 128, 130}, widths[] = {1, 2, 5, 8, 17, 64, 129, 260};
    int k;
    for (k = 0; k < 600; k++) {
        const int a_type = bytes[k % 3], b_type = t_mixed(a_type), out_type = results[k / 3 % (a_type == BSR_I8 ? 3 : 5)];
        const int trans = (int)bt_below(2), a_kind = (int)bt_below(KINDS + 1), b_kind = (int)bt_below(BLOCK + 1);
        const int dims = bt_below(3) ? 0 : (int)bt_range(1, 2);
        const int64_t br = sides[bt_below(12)], bc = bt_below(3) ? br : sides[bt_below(12)], n0 = bt_range(1, 3),
                      n1 = bt_range(1, 2);
        t_spec s = t_spec_of(a_type, br, bc, bt_range(1, 200 / br + 1), bt_range(1, 300 / bc + 1), 0);
        const int64_t n = dims ? bt_range(1, 20) : widths[k / 5 % 8];
        t_shape batch;
        bsr_scales sa, sb;
        bsr_matrix a;
        bsr_dense b, out, input, left, right, bias;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(bt_below(4) ? 0 : BSR_EXEC_ACCUMULATE_F64);
        ref_result want;
        double beta = bt_below(3) ? 0 : bt_uniform(), alpha = bt_below(2) ? 1 : bt_uniform() * 2 - 1;
        s.nnz = bt_range(0, s.r * s.c), s.kind = a_type == BSR_I8 && bt_below(3) == 0 ? FILL_WIDE : FILL_SIGNED;
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = bt_below(4) == 0, s.duplicates = bt_below(4) == 0;
        s.batch = some_batch(dims, n0, n1), s.shared_values = (unsigned)bt_below(4), s.shared_pattern = (unsigned)bt_below(4);
        if (s.batch.dims && bt_below(3) == 0) s.ragged = 1, s.shared_pattern = 0;
        bt_case("%d: %s x %s to %s, %lldx%lld, N %lld%s, a by %s, b by %s", k, bsr_dtype_name(a_type), bsr_dtype_name(b_type),
                bsr_dtype_name(out_type), (long long)br, (long long)bc, (long long)n, trans ? ", transposed" : "",
                a_kind < KINDS ? kinds[a_kind] : "none", b_kind < BLOCK ? kinds[b_kind] : "none");
        a = t_matrix(&s);
        if (trans && bt_below(2)) t_attach_transposed(&a);
        if (bt_below(3) == 0) t_attach_schedule(&a, 1 << bt_below(3), trans);
        b = t_random(b_type, trans ? a.rows : a.cols, n, (int)bt_below(LAYOUTS), some_batch(dims, n0, n1), (unsigned)bt_below(4),
                     FILL_SIGNED);
        batch = t_join(t_matrix_batch(&a), t_dense_batch(&b));
        out = t_output(out_type, trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), batch);
        input = t_random(BSR_F32, out.rows, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        left = t_random(BSR_F32, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        right = t_random(BSR_F32, 1, n, ROW, NO_BATCH, 0, FILL_SIGNED);
        bias = t_random(BSR_F32, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        if (bt_below(2)) e.left_alpha = &left;
        if (bt_below(2)) e.right_alpha = &right;
        if (bt_below(3) == 0) e.bias = &bias, e.activation = BSR_ACT_RELU;
        sa = sb = (bsr_scales)BSR_ZERO;
        if (a_kind < KINDS)
            sa = scales_of(a_kind, floats[bt_below(4)], a.rows, a.cols, &a, batch.dims && bt_below(2) ? batch : NO_BATCH,
                           FILL_WIDE);
        if (b_kind < BLOCK)
            sb = scales_of(b_kind, floats[bt_below(4)], b.rows, b.cols, NULL, batch.dims && bt_below(2) ? batch : NO_BATCH,
                           FILL_WIDE);
        e.a_scales = a_kind < KINDS ? &sa : NULL, e.b_scales = b_kind < BLOCK ? &sb : NULL;
        want = ref_dense_addmm(beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, out_type, exec.flags);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Groups along the products, and blocks, are multiples of 32, or of 16: what tensor cores take, where operands lie as they want
   them. Rows of blocks with few and with many, of which some stand alone in their column. */
TEST(steps) {
    static const int64_t sides[] = {32, 64, 96, 128, 192, 256, 16, 16, 48, 80, 112, 144};
    int k;
    for (k = 0; k < 180; k++) { /* the last ones without scales */
        const int a_type = bytes[k % 3], b_type = t_mixed(a_type), trans = (int)bt_below(2);
        const int dims = bt_below(3) ? 0 : (int)bt_range(1, 2);
        /* 0: none; 1, 2: groups; 3: of stored blocks */
        const int a_kind = k < 120 ? (int)bt_below(4) : 0, b_kind = k < 120 ? (int)bt_below(3) : 0;
        const int64_t br = sides[bt_below(6) + (k < 60 ? 0u : 6u)], bc = bt_below(2) ? br : sides[bt_below(12)];
        const int64_t n0 = bt_range(1, 3), n1 = bt_range(1, 2);
        const int64_t n = dims ? bt_range(1, 20) : bt_below(2) ? 16 * bt_range(1, 9) : bt_range(1, 140);
        const int64_t down = 260 / br + 1, across = 520 / bc + 1, each = bt_below(2) ? k < 60 ? 32 : 16 : 128;
        const int64_t along = each * bt_range(0, 128 / each + 1), lines = bt_below(2) ? bt_range(0, 40) : 64 * bt_range(0, 2);
        t_spec s = t_spec_of(a_type, br, bc, bt_range(1, trans ? across : down), bt_range(1, trans ? down : across), 0);
        bsr_scales sa, sb;
        bsr_matrix a;
        bsr_dense b, out, input;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        const double beta = bt_below(3) ? 0 : bt_uniform();
        t_shape batch;
        ref_result want;
        s.nnz = bt_range(1, s.r * s.c), s.layout = (int)bt_below(3), s.unsorted = bt_below(4) == 0;
        s.duplicates = bt_below(4) == 0, s.batch = some_batch(dims, n0, n1), s.shared_values = (unsigned)bt_below(4);
        if (s.batch.dims && bt_below(3) == 0) s.ragged = 1;
        bt_case("%d: %s x %s, %dx%d, N %d%s, a %d, b %d, along %d", k, bsr_dtype_name(a_type), bsr_dtype_name(b_type), (int)br,
                (int)bc, (int)n, trans ? ", transposed" : "", a_kind, b_kind, (int)along);
        a = t_matrix(&s);
        if (trans && bt_below(4)) t_attach_transposed(&a);
        if (bt_below(3) == 0) t_attach_schedule(&a, 1 << bt_below(3), trans);
        b = t_random(b_type, trans ? a.rows : a.cols, n, bt_below(4) ? COL : (int)bt_below(LAYOUTS), some_batch(dims, n0, n1),
                     (unsigned)bt_below(4), FILL_SIGNED);
        batch = t_join(t_matrix_batch(&a), t_dense_batch(&b));
        out = t_output(results[k / 3 % 3], trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), batch);
        input = t_random(BSR_F32, out.rows, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        if (a_kind)
            sa = scales_by(trans ? along : lines, trans ? lines : along, a_kind == 3, floats[k % 5 ? 0 : bt_below(4)], a.rows,
                           a.cols, &a, batch.dims && bt_below(2) ? batch : NO_BATCH, FILL_WIDE), e.a_scales = &sa;
        if (b_kind)
            sb = scales_by(each * bt_range(0, 128 / each + 1), bt_below(2) ? lines : bt_range(0, 40), 0,
                           floats[k % 5 ? 0 : bt_below(4)], b.rows, b.cols, NULL, batch.dims && bt_below(2) ? batch : NO_BATCH,
                           FILL_WIDE), e.b_scales = &sb;
        want = ref_dense_addmm(beta, &input, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, out.dtype, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), beta, &input, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Items of one matrix whose columns stand beside each other, as they would in one product; each has scales of its own. */
TEST(items_as_columns) {
    static const int64_t sides[] = {8, 32, 64, 128}, widths[] = {1, 1, 3, 16};
    int k;
    for (k = 0; k < 36; k++) {
        const int type = bytes[k % 3], a_kind = k / 3 % 2 ? ALONG : SQUARE, b_kind = k / 6 % 2 ? ALONG : SQUARE;
        const int trans = k % 5 == 0;
        const int64_t side = sides[bt_below(4)], n = widths[bt_below(4)], large = 300 / side + 1;
        const t_shape batch = k / 12 % 2 ? t_batch(2, 2, 3, 0, 0) : t_batch(1, 4, 0, 0, 0);
        t_spec s = t_spec_of(type, side, side, trans ? large : 2, trans ? 2 : large, large);
        bsr_scales sa, sb;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_matrix a;
        bsr_dense b, out;
        ref_result want;
        bt_case("%d: %s, %dx%d, N %d, a by %s, b by %s", k, bsr_dtype_name(type), (int)side, (int)side, (int)n, kinds[a_kind],
                kinds[b_kind]);
        a = t_matrix(&s), b = t_random(type, trans ? a.rows : a.cols, n, COL, batch, 0, FILL_SIGNED);
        out = t_output(BSR_F32, trans ? a.cols : a.rows, n, COL, batch);
        sa = scales_of(a_kind, BSR_F32, a.rows, a.cols, NULL, k % 4 ? batch : NO_BATCH, FILL_SIGNED);
        sb = scales_of(b_kind, BSR_F32, b.rows, b.cols, NULL, batch, FILL_SIGNED);
        if (k % 3) e.a_scales = &sa;
        e.b_scales = &sb;
        want = ref_dense_addmm(0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, BSR_F32, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* All ones, each band of groups a power of two of its own: sums are exact, and a scale taken from another place shows. Sizes off
   tiles; as many columns as groups along K, so that arrays of scales have each other's shapes. */
TEST(bands_of_ones) {
    static const int64_t sides[] = {128, 64, 32, 16, 1};
    int k;
    for (k = 0; k < 120; k++) {
        const int type = bytes[k % 3], a_kind = k / 3 % 2 ? ALONG : SQUARE, b_kind = k / 6 % 2 ? ALONG : SQUARE, trans = k / 60;
        const int64_t side = sides[k / 12 % 5], small = 150 / side + 1, large = 400 / side + 1;
        const int64_t down = trans ? large : small, across = trans ? small : large, depth = large * side;
        const int64_t n = bt_below(3) ? groups_of(depth, 128) : bt_range(1, 150);
        t_spec s = t_spec_of(type, side, side, down, across, side == 1 ? down * across / 40 : down * across);
        bsr_scales sa, sb;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_matrix a;
        bsr_dense b, out;
        ref_result want;
        int64_t i, j;
        bt_case("%d: %s, %dx%d, N %d, a by %s, b by %s", k, bsr_dtype_name(type), (int)side, (int)side, (int)n, kinds[a_kind],
                kinds[b_kind]);
        a = t_matrix(&s), b = t_random(type, depth, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_INTEGER);
        out = t_output(BSR_F32, trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        for (i = 0; i < a.nnz * side * side; i++) t_store(a.values, type, i, 1);
        for (i = 0; i < b.rows; i++)
            for (j = 0; j < n; j++) t_set(&b, 0, i, j, 1);
        sa = scales_of(a_kind, BSR_F32, a.rows, a.cols, NULL, NO_BATCH, FILL_SIGNED);
        sb = scales_of(b_kind, BSR_F32, b.rows, b.cols, NULL, NO_BATCH, FILL_SIGNED);
        for (i = 0; i < sa.scale->rows; i++)
            for (j = 0; j < sa.scale->cols; j++) t_set(sa.scale, 0, i, j, ldexp(1, (int)(3 * i + j) % 7 - 3));
        for (i = 0; i < sb.scale->rows; i++)
            for (j = 0; j < sb.scale->cols; j++) t_set(sb.scale, 0, i, j, ldexp(1, (int)(2 * i + 5 * j) % 9 - 4));
        e.a_scales = &sa, e.b_scales = &sb;
        want = ref_dense_addmm(0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, BSR_F32, 0);
        for (i = 0; i < want.bound.items * want.bound.rows * want.bound.cols; i++) want.bound.v[i] = 0;
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Positive numbers, one scale of which is none, or tiny; a row of blocks has one block, all scales opposite to no block are NaN.
 */
TEST(odd_scales) {
    static const double odd[] = {INFINITY, -INFINITY, NAN, 0, -0.75, 0x1p-149, 0x1.8p-130, -0x1p-140};
    static const int64_t sides[] = {128, 64, 32, 16};
    int k;
    for (k = 0; k < 8 * 3 * 4; k++) {
        const double v = odd[k % 8];
        const int type = bytes[k / 8 % 3], a_kind = k / 24 == 0 ? ALONG : k / 24 == 1 ? SQUARE : k / 24 == 2 ? BLOCK : ROWS;
        const int64_t side = sides[bt_below(4)], per = 128 / side, groups = 4;
        const int64_t n = bt_below(4) ? bt_range(1, 9) : bt_range(120, 140);
        int32_t crow[64], col[64];
        bsr_scales sa, sb;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_dense b, out;
        bsr_matrix a;
        ref_result want;
        int64_t i, j;
        bt_case("%d: %g, %s, blocks of %d, a by %s", k, v, bsr_dtype_name(type), (int)side, kinds[a_kind]);
        for (i = 0; i <= groups * per; i++) crow[i] = (int32_t)i; /* groups of rows meet groups 3, 1, 0, 3; nobody 2 */
        for (i = 0; i < groups * per; i++) {
            static const int met[] = {3, 1, 0, 3};
            col[i] = (int32_t)(met[i / per] * per + bt_below(per));
        }
        a = bsr_matrix_make(groups * 128, groups * 128, side, side, groups * per, crow, col, BSR_I32, NULL, type);
        t_make_values(&a, type, PACKED, 0), t_fill_values(&a, FILL_POSITIVE);
        b = t_random(type, a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_POSITIVE);
        out = t_output(BSR_F32, a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        sa = scales_of(a_kind, BSR_F32, a.rows, a.cols, &a, NO_BATCH, FILL_POSITIVE);
        sb = scales_of(SQUARE, BSR_F32, b.rows, b.cols, NULL, NO_BATCH, FILL_POSITIVE);
        for (i = 0; i < sb.scale->rows; i++)
            for (j = 0; j < sb.scale->cols; j++) t_set(sb.scale, 0, i, j, i == 2 ? (double)NAN : ldexp(1, 30 - (int)(i + j)));
        for (i = 0; i < sa.scale->rows && a_kind != BLOCK && a_kind != ROWS; i++)
            for (j = 0; j < sa.scale->cols; j++) {
                const int64_t r = a_kind == SQUARE ? i * per : i / side;
                int64_t p, met = 0;
                for (p = r; p < r + (a_kind == SQUARE ? per : 1); p++) met |= col[p] / per == j;
                if (!met) t_set(sa.scale, 0, i, j, (double)NAN);
            }
        if (a_kind == BLOCK) t_set(sa.scale, bt_below(a.nnz), 0, 0, v);
        else if (a_kind == ROWS) t_set(sa.scale, 0, bt_below(a.rows), 0, v);
        else i = bt_below(sa.scale->rows), t_set(sa.scale, 0, i, col[a_kind == SQUARE ? i * per : i / side] / per, v);
        e.a_scales = &sa, e.b_scales = &sb;
        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, &e, BSR_F32, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, 0, &a, &b, &e, &out, &exec))) REF_COMPARE(&out, &want, 0);
    }
}
/* Scales of rows and columns give the very bits that the factors of rows and columns do. */
TEST(rows_and_columns_are_factors) {
    int k;
    for (k = 0; k < 60; k++) {
        const int type = bytes[k % 3], trans = (int)bt_below(2), rows = k / 3 % 2, cols = !rows || k / 6 % 2, one = k % 5 == 0;
        t_spec s = t_spec_of(type, bt_range(1, 40), bt_range(1, 40), 4, 5, 9);
        const int64_t m = trans ? s.c * s.block_cols : s.r * s.block_rows, n = bt_range(1, 40);
        bsr_matrix a;
        bsr_dense b, out, again, x, y, left, right;
        bsr_scales sa = BSR_ZERO, sb = BSR_ZERO;
        bsr_epilogue e = BSR_ZERO, f = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        const bsr_context *ctx;
        int64_t i;
        bt_case("%d", k);
        ctx = t_any_context(); /* of one instruction set */
        a = t_matrix(&s), b = t_random(type, trans ? a.rows : a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        out = t_output(BSR_F32, m, n, ROW, NO_BATCH), again = t_output(BSR_F32, m, n, ROW, NO_BATCH);
        x = t_random(BSR_F32, one || trans ? 1 : m, one || !trans ? 1 : m, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        y = t_random(BSR_F16, 1, one ? 1 : n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        left = x, left.rows = one ? 1 : m, left.cols = 1, left.row_stride = trans ? x.col_stride : x.row_stride;
        right = y;
        sa.scale = &x, sa.group_rows = !one && !trans, sa.group_cols = !one && trans, sb.scale = &y, sb.group_cols = !one;
        e.left_alpha = rows ? &left : NULL, e.right_alpha = cols ? &right : NULL;
        f.a_scales = rows ? &sa : NULL, f.b_scales = cols ? &sb : NULL;
        if (!RUN_OK(bsr_dense_addmm(ctx, 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec))) continue;
        if (!RUN_OK(bsr_dense_addmm(ctx, 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &f, &again, &exec))) continue;
        for (i = 0; i < m * n; i++) CHECK_NEAR(t_get(&again, 0, i / n, i % n), t_get(&out, 0, i / n, i % n), 0);
    }
}
/* Operands without products: their scales have no elements, and nothing is read of them. */
TEST(no_products) {
    int k;
    for (k = 0; k < 8; k++) {
        const int trans = k & 1;
        const t_spec s = t_spec_of(BSR_E4M3, 8, 16, trans ? 0 : 3, trans ? 3 : 0, 0);
        const int64_t m = trans ? 48 : 24;
        bsr_scales sa = BSR_ZERO, sb = BSR_ZERO;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_matrix a;
        bsr_dense b, out, bias, x, y;
        ref_result want;
        bt_case("%d", k);
        a = t_matrix(&s), b = t_random(BSR_E5M2, 0, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        out = t_output(BSR_F32, m, 7, ROW, NO_BATCH), bias = t_random(BSR_F32, m, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        x = bsr_dense_row_major(NULL, BSR_F32, trans ? 0 : 24, trans ? 48 : 0), y = bsr_dense_row_major(NULL, BSR_F32, 0, 7);
        sa.scale = &x, sa.group_rows = trans ? 128 : 1, sa.group_cols = trans ? 1 : 128;
        sb.scale = &y, sb.group_rows = 128, sb.group_cols = 1;
        e.a_scales = k & 2 ? &sa : NULL, e.b_scales = k & 4 ? &sb : NULL, e.bias = &bias;
        want = ref_dense_addmm(0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, BSR_F32, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, 0);
    }
}
TEST(what_is_refused) {
    const t_spec s = t_spec_of(BSR_E4M3, 8, 8, 3, 4, 5), wide = t_spec_of(BSR_F16, 8, 8, 3, 4, 5);
    bsr_matrix a, h;
    bsr_dense b, hb, out, d;
    bsr_scales good, block, x;
    bsr_epilogue e = BSR_ZERO;
    bsr_exec exec = t_exec(0);
    bsr_term term;
    bt_case("all");
    a = t_matrix(&s), h = t_matrix(&wide);
    b = t_random(BSR_E4M3, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED), hb = t_random(BSR_F16, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED);
    out = t_output(BSR_F32, 24, 6, ROW, NO_BATCH);
    good = scales_of(ALONG, BSR_F32, 24, 32, NULL, NO_BATCH, FILL_SIGNED);
    block = scales_of(BLOCK, BSR_F32, 24, 32, &a, NO_BATCH, FILL_SIGNED);
#define REFUSED(change, status, item) \
    x = good, d = *good.scale, x.scale = &d, change, refused(status, item, BSR_ARG_A_SCALES, &x, NULL, &a, &b, BSR_F32)
    REFUSED(x.reserved = 1, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED);
    REFUSED(x.flags = 2, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED);
    REFUSED(x.scale = NULL, BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL);
    REFUSED(x.group_rows = -1, BSR_BAD_SHAPE, BSR_ITEM_SIZE_NEGATIVE);
    REFUSED(x.group_cols = -1, BSR_BAD_SHAPE, BSR_ITEM_SIZE_NEGATIVE);
    REFUSED(d.dtype = BSR_E4M3, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED);
    REFUSED(d.dtype = BSR_I32, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED);
    REFUSED(d.data = NULL, BSR_NULL_POINTER, BSR_ITEM_DATA_NULL);
    REFUSED(x.group_rows = 2, BSR_BAD_SHAPE, BSR_ITEM_ROWS_MISMATCH);
    REFUSED(x.group_cols = 16, BSR_BAD_SHAPE, BSR_ITEM_COLS_MISMATCH);
    REFUSED((d.batch_dims = 1, d.batch[0] = 2), BSR_BAD_BATCH, BSR_ITEM_BATCH_EXTRA);
    REFUSED((d = *block.scale, x.group_rows = x.group_cols = 0), BSR_BAD_BATCH, BSR_ITEM_BATCH_EXTRA);
    REFUSED(x.flags = BSR_SCALES_BLOCKS, BSR_BAD_BATCH, BSR_ITEM_BATCH_DIMS);
    REFUSED((d = *block.scale, x.flags = BSR_SCALES_BLOCKS, x.group_rows = x.group_cols = 0, d.batch[0] = 4), BSR_BAD_BATCH,
            BSR_ITEM_BATCH_SIZE);
    refused(BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED, BSR_ARG_B_SCALES, NULL, &block, &a, &b, BSR_F32);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_A_SCALES, &good, NULL, &h, &hb, BSR_F32);
    e.a_scales = &good, memset(&term, 0, sizeof term), term.a = &a, term.b = &b, term.alpha = 1;
    CHECK_INT(bsr_sum_mm(t_any_context(), 0, NULL, &term, 1, &e, &out, &exec), BSR_UNSUPPORTED);
    CHECK_INT(t_error.item, BSR_ITEM_SCALES), CHECK_INT(t_error.operand, BSR_ARG_A_SCALES);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"products", products},
        {"steps", steps},
        {"items_as_columns", items_as_columns},
        {"bands_of_ones", bands_of_ones},
        {"odd_scales", odd_scales},
        {"rows_and_columns_are_factors", rows_and_columns_are_factors},
        {"no_products", no_products},
        {"what_is_refused", what_is_refused},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
