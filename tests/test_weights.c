/* test_weights.c: weights of fewer bits (i8, e4m3, e5m2, u4 by pairs) beside dense operands of 16 and 32 bits: scales and zero
   points of every kind, every layout, batch, width; packings of checkpoints; what is refused. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"
#include "scale_cases.h"

static const int stored[] = {BSR_U4, BSR_I8, BSR_E4M3, BSR_E5M2}, dense[] = {BSR_BF16, BSR_F16, BSR_F32};
static const int floats[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64}, points[] = {BSR_F32, BSR_I8, BSR_I32, BSR_BF16, BSR_F16};

enum { ONE, ROWS, ALONG_32, ALONG_64, ALONG_128, SQUARE, ANY, BLOCK, IN_BLOCK, KINDS }; /* the last two: of stored blocks */
static const char *const kinds[] = {"one", "rows", "1 x 32", "1 x 64", "1 x 128", "128 x 128", "groups", "blocks", "in blocks"};
/* u4: bytes of any value, of matrices half as wide. */
static bsr_matrix weights_of(t_spec s, int type) {
    bsr_matrix m;
    s.dtype = type, s.kind = type == BSR_I8 ? FILL_WIDE : FILL_SIGNED;
    if (type != BSR_U4) return t_matrix(&s);
    s.dtype = BSR_I8, s.block_cols /= 2, s.layout = PACKED, s.kind = FILL_WIDE;
    m = t_matrix(&s);
    m.dtype = BSR_U4, m.block_cols *= 2, m.cols *= 2;
    return m;
}
/* Scales, and zero points (0 none, 1 before, 2 after scaling), in memory of the case. */
static bsr_scales scales_of(int kind, int zeros, int dtype, int zero_dtype, const bsr_matrix *a, t_shape batch) {
    bsr_dense *d = (bsr_dense *)bt_alloc(2 * sizeof(bsr_dense), 8);
    int64_t rows = a->rows, cols = a->cols;
    const unsigned shared = batch.dims ? (unsigned)bt_below(4) : 0; /* of the batch, not of blocks */
    bsr_scales s = BSR_ZERO;
    if (kind == ROWS || (kind >= ALONG_32 && kind <= ALONG_128)) s.group_rows = 1;
    if (kind >= ALONG_32 && kind <= ALONG_128) s.group_cols = 32 << (kind - ALONG_32);
    if (kind == SQUARE) s.group_rows = s.group_cols = 128;
    if (kind == ANY || kind == IN_BLOCK) s.group_rows = bt_range(0, 40), s.group_cols = bt_range(0, 40);
    if (kind >= BLOCK) s.flags = BSR_SCALES_BLOCKS, rows = a->block_rows, cols = a->block_cols, batch.n[batch.dims++] = a->nnz;
    d[0] = t_random(dtype, groups_of(rows, s.group_rows), groups_of(cols, s.group_cols), (int)bt_below(LAYOUTS), batch,
                    shared, FILL_WIDE);
    s.scale = d;
    if (!zeros) return s;
    d[1] = t_random(zero_dtype, d->rows, d->cols, (int)bt_below(LAYOUTS), batch, shared,
                    zero_dtype == BSR_I8 || zero_dtype == BSR_I32 ? FILL_SIGNED : FILL_POSITIVE);
    s.zero = d + 1;
    if (zeros == 2) s.flags |= BSR_SCALES_ZERO_AFTER;
    return s;
}
static t_shape some_batch(int dims, int64_t n0, int64_t n1) {
    const int64_t a = bt_below(2) ? n0 : 1, b = bt_below(2) ? n1 : 1;
    const int mine = (int)bt_range(0, dims);
    return mine == 2 ? t_batch(2, a, b, 0, 0) : mine == 1 ? t_batch(1, dims == 2 ? b : a, 0, 0, 0) : NO_BATCH;
}
/* The product as its scales have it, on any instruction set, against the reference. */
static void held(const bsr_matrix *a, const bsr_dense *b, const bsr_epilogue *e, const bsr_dense *out) {
    const bsr_exec exec = t_exec(0);
    const ref_result want = ref_dense_addmm(0, NULL, 1, 0, a, b, e, out->dtype, 0);
    if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, 0, a, b, e, out, &exec))) REF_COMPARE(out, &want, REF_MAY_BE_ZERO);
}
/* Everything at random against the reference. */
TEST(products) {
    static const int64_t sides[] = {2, 4, 6, 8, 14, 16, 32, 34, 64, 96, 128, 130};
    static const int64_t downs[] = {1, 2, 3, 5, 8, 16, 17, 32, 64, 65, 128};
    static const int64_t widths[] = {1, 2, 3, 5, 8, 16, 17, 31, 64, 129};
    int k;
    for (k = 0; k < 600; k++) {
        const int type = stored[k % 4], b_type = dense[k / 4 % 3], out_type = bt_below(2) || b_type == BSR_F32 ? BSR_F32 : b_type;
        const int trans = (int)bt_below(2), kind = (int)bt_below(KINDS + 1), zeros = (int)bt_below(3);
        const int dims = bt_below(4) ? 0 : (int)bt_range(1, 2), usual = bt_below(2) != 0;
        const int64_t bc = usual ? 32 << bt_below(3) : sides[bt_below(12)], br = usual ? bc : downs[bt_below(11)];
        const int64_t n0 = bt_range(1, 3), n1 = bt_range(1, 2), n = dims ? bt_range(1, 20) : widths[bt_below(10)];
        t_spec s = t_spec_of(type, br, bc, bt_range(1, 200 / br + 1), bt_range(1, 300 / bc + 1), 0);
        const double beta = bt_below(3) ? 0 : bt_uniform(), alpha = bt_below(2) ? 1 : bt_uniform() * 2 - 1;
        t_shape batch;
        bsr_scales sa;
        bsr_matrix a;
        bsr_dense b, out, input, left, bias;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(bt_below(4) ? 0 : BSR_EXEC_ACCUMULATE_F64);
        ref_result want;
        s.nnz = bt_range(0, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = bt_below(4) == 0;
        s.duplicates = bt_below(4) == 0, s.batch = some_batch(dims, n0, n1), s.shared_values = (unsigned)bt_below(4);
        s.shared_pattern = (unsigned)bt_below(4);
        if (s.batch.dims && bt_below(3) == 0) s.ragged = 1, s.shared_pattern = 0;
        bt_case("%d: %s x %s to %s, %lldx%lld, N %lld%s, by %s, zero points %d", k, bsr_dtype_name(type), bsr_dtype_name(b_type),
                bsr_dtype_name(out_type), (long long)br, (long long)bc, (long long)n, trans ? ", transposed" : "",
                kind < KINDS ? kinds[kind] : "none", zeros);
        a = weights_of(s, type);
        if (trans && bt_below(3)) t_attach_transposed(&a);
        if (bt_below(3) == 0) t_attach_schedule(&a, 1 << bt_below(3), trans);
        b = t_random(b_type, trans ? a.rows : a.cols, n, (int)bt_below(LAYOUTS), some_batch(dims, n0, n1), (unsigned)bt_below(4),
                     FILL_SIGNED);
        batch = t_join(t_matrix_batch(&a), t_dense_batch(&b));
        out = t_output(out_type, trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), batch);
        input = t_random(BSR_F32, out.rows, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        left = t_random(BSR_F32, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        bias = t_random(BSR_F32, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        if (bt_below(3) == 0) e.left_alpha = &left;
        if (bt_below(3) == 0) e.bias = &bias, e.activation = BSR_ACT_RELU;
        if (kind < KINDS)
            sa = scales_of(kind, zeros, floats[bt_below(4)], points[bt_below(5)], &a,
                           batch.dims && bt_below(2) ? batch : NO_BATCH), e.a_scales = &sa;
        want = ref_dense_addmm(beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, out_type, exec.flags);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Scales of f32 in groups that divide blocks anywhere: beside each other, many blocks at a time, or rows of one. */
TEST(odd_groups) {
    static const int64_t blocks[][2] = {{1, 2}, {1, 14}, {2, 2}, {3, 34}, {7, 22}, {31, 62}, {47, 2}, {13, 6}, {5, 130}, {1, 600},
                                        {65, 38}};
    static const int64_t groups[][2] = {{1, 13}, {3, 7}, {7, 1000}, {1, 1}, {128, 128}, {1, 2}, {0, 17}, {47, 2}};
    int k;
    for (k = 0; k < 11 * 36; k++) {
        const int64_t *block = blocks[k % 11], *group = groups[bt_below(8)], n = bt_below(2) ? 1 : bt_range(2, 40);
        const int type = stored[k / 11 % 4], own = bt_below(6) == 0, trans = (int)bt_below(2), f64 = bt_below(8) == 0;
        const int64_t down = 90 / block[0] + 2, across = bt_range(1, 400 / block[1] + 2);
        t_spec s = t_spec_of(type, block[0], block[1], down, across, bt_range(1, down * across));
        bsr_scales sa = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, out, x;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(f64 ? BSR_EXEC_ACCUMULATE_F64 : 0);
        ref_result want;
        t_shape batch = NO_BATCH;
        bt_case("%d: %s, blocks of %d x %d, groups of %d x %d%s%s, N %d", k, bsr_dtype_name(type), (int)block[0], (int)block[1],
                (int)group[0], (int)group[1], own ? " of blocks" : "", trans ? ", transposed" : "", (int)n);
        s.unsorted = bt_below(3) == 0, s.index_dtype = bt_below(3) ? BSR_I32 : BSR_I64;
        a = weights_of(s, type);
        if (trans && bt_below(4)) t_attach_transposed(&a);
        if (own) batch = t_batch(1, a.nnz, 0, 0, 0), sa.flags = BSR_SCALES_BLOCKS;
        x = t_random(BSR_F32, groups_of(own ? a.block_rows : a.rows, group[0]), groups_of(own ? a.block_cols : a.cols, group[1]),
                     (int)bt_below(LAYOUTS), batch, 0, FILL_WIDE);
        sa.scale = &x, sa.group_rows = group[0], sa.group_cols = group[1], e.a_scales = &sa;
        b = t_random(BSR_F32, trans ? a.rows : a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        out = t_output(BSR_F32, trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        want = ref_dense_addmm(0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, BSR_F32, exec.flags);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Few columns beside long rows and rows of one block: every width, all kinds that checkpoints have, blocks of usual sizes. */
TEST(few_columns) {
    int k;
    for (k = 0; k < 192; k++) {
        const int type = stored[k % 4], b_type = dense[k / 4 % 3];
        const int kind = k / 12 % 2 ? (int)bt_range(ALONG_32, SQUARE) : (int)bt_below(KINDS);
        const int64_t n = 1 + k % 17, block = 16 << k / 48, down = 2 * 64 / block + 1;
        const int64_t across = bt_below(2) ? 1100 / block + 1 : 6;
        t_spec s = t_spec_of(type, block, block, down, across, bt_range(1, down * across));
        bsr_scales sa;
        bsr_matrix a;
        bsr_dense b, out;
        bsr_epilogue e = BSR_ZERO;
        bt_case("%d: %s x %s, %d, N %d, by %s", k, bsr_dtype_name(type), bsr_dtype_name(b_type), (int)block, (int)n, kinds[kind]);
        a = weights_of(s, type);
        b = t_random(b_type, a.cols, n, bt_below(2) ? COL : (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        out = t_output(bt_below(2) ? b_type : (int)BSR_F32, a.rows, n, bt_below(2) ? COL : (int)bt_below(LAYOUTS), NO_BATCH);
        sa = scales_of(kind, k / 3 % 3, bt_below(2) ? (int)BSR_F32 : b_type, k / 3 % 3 == 1 ? (int)BSR_I8 : b_type, &a, NO_BATCH);
        e.a_scales = &sa;
        held(&a, &b, &e, &out);
    }
}
/* Every code of every type in every place of a row, by whole numbers: exact. Scales are powers of two, a band its own. */
TEST(codes_are_exact) {
    int k;
    for (k = 0; k < 24; k++) {
        const int type = stored[k % 4], b_type = dense[k / 4 % 3], after = k / 12;
        const int64_t block = 64, n = k % 3 ? bt_range(1, 16) : 130;
        t_spec s = t_spec_of(type, block, block, 3, 4, 12);
        bsr_dense b, out, x, z;
        bsr_scales sa = BSR_ZERO;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_matrix a;
        ref_result want;
        int64_t i, j;
        bt_case("%d: %s x %s", k, bsr_dtype_name(type), bsr_dtype_name(b_type));
        a = weights_of(s, type);
        for (i = 0; i < a.nnz * block * block / (type == BSR_U4 ? 2 : 1); i++) {
            const uint8_t code = (uint8_t)(i * 37 + i / 64), magnitude = code & 0x7f;
            const int none = (type == BSR_E4M3 && magnitude == 0x7f) || (type == BSR_E5M2 && magnitude >= 0x7c);
            ((uint8_t *)a.values)[i] = none ? 0 : code;
        }
        b = t_random(b_type, a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_INTEGER);
        for (i = 0; i < b.rows; i++) /* one product of each row: nothing is rounded */
            for (j = 0; j < n; j++) t_set(&b, 0, i, j, i % 64 == (5 * j + k) % 64 && i / 64 == j % 4);
        out = t_output(BSR_F32, a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        x = t_random(BSR_F16, a.rows, 8, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        z = t_random(BSR_I8, a.rows, 8, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        for (i = 0; i < x.rows; i++)
            for (j = 0; j < x.cols; j++) {
                t_set(&x, 0, i, j, ldexp(1, -((int)(3 * i + j) % 7))); /* within f16, of any code */
                t_set(&z, 0, i, j, (double)((i + 5 * j) % 16));
            }
        sa.scale = &x, sa.group_rows = 1, sa.group_cols = 32, e.a_scales = &sa;
        if (type == BSR_U4) sa.zero = &z, sa.flags = after ? BSR_SCALES_ZERO_AFTER : 0;
        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, &e, BSR_F32, 0);
        for (i = 0; i < want.bound.items * want.bound.rows * want.bound.cols; i++) want.bound.v[i] = 0;
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* One column, which kernels of their own take beside wide blocks: all kinds, also groups that divide pairs; rows in pieces. */
TEST(one_column) {
    static const int64_t sides[] = {64, 66, 80, 128, 130};
    int k;
    for (k = 0; k < 120; k++) {
        const int type = stored[k % 4], b_type = dense[k / 4 % 3], kind = k % (KINDS + 1);
        t_spec s = t_spec_of(type, bt_range(1, 3) * 33, sides[bt_below(5)], 2, 3, bt_range(1, 6));
        bsr_scales sa;
        bsr_matrix a;
        bsr_dense b, out;
        bsr_epilogue e = BSR_ZERO;
        bt_case("%d: %s x %s, by %s", k, bsr_dtype_name(type), bsr_dtype_name(b_type), kind < KINDS ? kinds[kind] : "none");
        a = weights_of(s, type);
        b = t_random(b_type, a.cols, 1, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        out = t_output(BSR_F32, a.rows, 1, (int)bt_below(LAYOUTS), NO_BATCH);
        if (kind < KINDS)
            sa = scales_of(kind, k / 3 % 3, floats[bt_below(4)], points[bt_below(5)], &a, NO_BATCH), e.a_scales = &sa;
        held(&a, &b, &e, &out);
    }
}
/* A weight is its scale times what is stored: that alone must be a number, and numbers beside it are not the scale's. */
TEST(extreme_scales) {
    static const struct {
        int type;
        uint8_t code;
        double number;
        float scale, b;
    } cases[] = {{BSR_I8, 100, 100, 1e-3f, 1e37f},
                 {BSR_E5M2, 0x7b, 57344, 1e-3f, 1e35f},
                 {BSR_E4M3, 0x7e, 448, 1e-3f, 1e37f},
                 {BSR_E5M2, 1, 0x1p-16, 1e30f, 1.2345678e-38f},
                 {BSR_I8, 1, 1, 1e30f, 1.2345678e-38f}};
    int k, j;
    for (k = 0; k < 5 * 2 * T_ISAS; k++) {
        const int n = 1 + k / 5 % 2, which = k % 5;
        const bsr_context *ctx = t_context(1 + k / 10);
        int32_t crow[] = {0, 1}, col[] = {0};
        uint8_t values[64] = {0};
        float b[128] = {0}, out[2], scale[16];
        bsr_scales sa = BSR_ZERO;
        bsr_epilogue e = BSR_ZERO;
        const bsr_matrix a = bsr_matrix_make(1, 64, 1, 64, 1, crow, col, BSR_I32, values, cases[which].type);
        const bsr_dense from = bsr_dense_row_major(b, BSR_F32, 64, n), to = bsr_dense_row_major(out, BSR_F32, 1, n);
        const bsr_dense scales = bsr_dense_row_major(scale, BSR_F32, 1, 16);
        const double want = cases[which].number * (double)cases[which].scale * (double)cases[which].b;
        bt_case("%d: %s, %d columns", k, bsr_dtype_name(cases[which].type), n);
        if (!ctx) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        sa.scale = &scales, sa.group_rows = 1, sa.group_cols = 4, e.a_scales = &sa, values[0] = cases[which].code;
        for (j = 0; j < 16; j++) scale[j] = cases[which].scale;
        for (j = 0; j < n; j++) b[j] = cases[which].b;
        CHECK_INT(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &a, &from, &e, &to, NULL), BSR_OK);
        for (j = 0; j < n; j++) CHECK_NEAR((double)out[j], want, 1e-6 * want);
        if (cases[which].type != BSR_I8) continue;
        for (j = 0; j < 64; j++) values[j] = 1; /* one group's scale is infinite, and no number beside it */
        for (j = 0; j < 64 * n; j++) b[j] = 1;
        for (j = 0; j < 16; j++) scale[j] = j == 2 ? INFINITY : 1;
        CHECK_INT(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &a, &from, &e, &to, NULL), BSR_OK);
        for (j = 0; j < n; j++) CHECK(out[j] == INFINITY);
    }
}
/* A scale, or a zero point, that is none reaches the row that has it, and no other; absent blocks have none. */
TEST(odd_scales) {
    static const double odd[] = {INFINITY, -INFINITY, NAN, 0, -0.75};
    int k;
    for (k = 0; k < 40; k++) {
        const int type = stored[k % 4], of_zero = k / 20, kind = k % 3 ? ALONG_64 : BLOCK;
        const int64_t n = k % 2 ? 3 : 70;
        int32_t crow[] = {0, 1, 2, 3}, col[] = {2, 0, 2};
        bsr_scales sa;
        bsr_epilogue e = BSR_ZERO;
        bsr_dense b, out;
        bsr_matrix a;
        int64_t i;
        bt_case("%d: %g, %s", k, odd[k % 5], bsr_dtype_name(type));
        a = bsr_matrix_make(192, type == BSR_U4 ? 96 : 192, 64, type == BSR_U4 ? 32 : 64, 3, crow, col, BSR_I32, NULL,
                            type == BSR_U4 ? (int)BSR_I8 : type);
        t_make_values(&a, a.dtype, PACKED, 0), t_fill_values(&a, FILL_POSITIVE);
        for (i = 0; i < 3 * 64 * 32 && type == BSR_U4; i++) ((uint8_t *)a.values)[i] = (uint8_t)(0x99 + bt_below(7) * 17);
        if (type == BSR_U4) a.dtype = BSR_U4, a.cols *= 2, a.block_cols *= 2;
        b = t_random(BSR_F16, a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_POSITIVE);
        out = t_output(BSR_F32, a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        sa = scales_of(kind, of_zero, BSR_F32, BSR_F32, &a, NO_BATCH);
        for (i = 0; i < a.rows && kind == ALONG_64; i++) t_set(sa.scale, 0, i, 1, (double)NAN); /* nobody's */
        for (i = 0; i < a.rows && kind == ALONG_64 && of_zero; i++) t_set(sa.zero, 0, i, 1, (double)NAN);
        if (kind == BLOCK) t_set(of_zero ? sa.zero : sa.scale, 1, 0, 0, odd[k % 5]);
        else t_set(of_zero ? sa.zero : sa.scale, 0, 70, 0, odd[k % 5]);
        e.a_scales = &sa;
        held(&a, &b, &e, &out);
    }
}
/* Nothing stored, nothing to multiply, alpha 0: no scale and no value is read. */
TEST(no_products) {
    int k;
    for (k = 0; k < 12; k++) {
        const int trans = k & 1, type = stored[k % 4], nothing = k % 3; /* 0: K is 0; 1: no block; 2: alpha */
        t_spec s = t_spec_of(type, 8, 16, 3, 2, nothing == 2 ? 3 : 0);
        bsr_scales sa = BSR_ZERO;
        bsr_epilogue e = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_matrix a;
        bsr_dense b, out, bias, x;
        ref_result want;
        int64_t i;
        bt_case("%d", k);
        if (nothing == 0 && trans) s.r = 0;
        if (nothing == 0 && !trans) s.c = 0;
        a = weights_of(s, type), b = t_random(BSR_BF16, trans ? a.rows : a.cols, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        out = t_output(BSR_F32, trans ? a.cols : a.rows, 7, ROW, NO_BATCH);
        bias = t_random(BSR_F32, out.rows, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        x = t_random(BSR_F32, groups_of(a.rows, 1), groups_of(a.cols, 8), ROW, NO_BATCH, 0, FILL_SIGNED);
        for (i = 0; i < x.rows * x.cols; i++) t_set(&x, 0, i / x.cols, i % x.cols, (double)NAN);
        sa.scale = &x, sa.group_rows = 1, sa.group_cols = 8, sa.zero = k & 2 ? &x : NULL;
        e.a_scales = &sa, e.bias = &bias;
        want = ref_dense_addmm(0, NULL, nothing == 2 ? 0 : 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, BSR_F32, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, nothing == 2 ? 0 : 1, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out,
                                   &exec)))
            REF_COMPARE(&out, &want, 0);
    }
}
TEST(what_is_refused) {
    bsr_matrix a, m, f8;
    bsr_dense b, f64, i8, e4m3, z, out;
    bsr_scales good, x;
    bsr_exec exec = t_exec(0);
    const bsr_context *ctx;
    bsr_term term;
    bt_case("all");
    a = weights_of(t_spec_of(BSR_U4, 8, 8, 3, 4, 5), BSR_U4), f8 = weights_of(t_spec_of(BSR_E4M3, 8, 8, 3, 4, 5), BSR_E4M3);
    b = t_random(BSR_BF16, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED);
    f64 = t_random(BSR_F64, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED), i8 = t_random(BSR_I8, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED);
    e4m3 = t_random(BSR_E4M3, 32, 6, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 24, 6, ROW, NO_BATCH);
    good = scales_of(ALONG_32, 1, BSR_F32, BSR_I8, &a, NO_BATCH), ctx = t_any_context();
#define REFUSED(change, status, item) \
    x = good, z = *good.zero, x.zero = &z, change, refused(status, item, BSR_ARG_A_SCALES, &x, NULL, &a, &b, BSR_F32)
    REFUSED(x.reserved = 1, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED);
    REFUSED(x.flags = 4, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED);
    REFUSED(x.scale = NULL, BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL);
    REFUSED(x.group_cols = 4, BSR_BAD_SHAPE, BSR_ITEM_COLS_MISMATCH);
    REFUSED(z.dtype = BSR_E4M3, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED);
    REFUSED(z.dtype = BSR_U4, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED);
    REFUSED(z.rows = 23, BSR_BAD_SHAPE, BSR_ITEM_ROWS_MISMATCH);
    REFUSED(z.data = NULL, BSR_NULL_POINTER, BSR_ITEM_DATA_NULL);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_B, &good, NULL, &a, &f64, BSR_F64);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_B, NULL, NULL, &a, &i8, BSR_F32);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_B, NULL, NULL, &a, &e4m3, BSR_F32);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, NULL, NULL, &a, &b, BSR_F16);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, NULL, NULL, &f8, &b, BSR_E4M3);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_B, NULL, NULL, &f8, &f64, BSR_F64);
    refused(BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_B_SCALES, NULL, &good, &a, &b, BSR_F32);
    x = good, x.zero = good.scale, x.flags = 0;
    refused(BSR_UNSUPPORTED, BSR_ITEM_ZERO_POINTS, BSR_ARG_A_SCALES, &x, NULL, &f8, &e4m3, BSR_F32);
    m = a, m.value_strides[0] = 32, m.value_strides[1] = 4, m.value_strides[2] = 1;
    refused(BSR_UNSUPPORTED, BSR_ITEM_PACKED, BSR_ARG_A, NULL, NULL, &m, &b, BSR_F32);
    m = a, m.block_cols = 1, m.cols = 4;
    refused(BSR_UNSUPPORTED, BSR_ITEM_PACKED, BSR_ARG_A, NULL, NULL, &m, &b, BSR_F32);
    /* other operations want one type, and know no pairs */
    memset(&term, 0, sizeof term), term.a = &a, term.b = &b, term.alpha = 1;
    CHECK_INT(bsr_sum_mm(ctx, 0, NULL, &term, 1, NULL, &out, &exec), BSR_BAD_DTYPE);
    term.a = &f8, CHECK_INT(bsr_sum_mm(ctx, 0, NULL, &term, 1, NULL, &out, &exec), BSR_BAD_DTYPE);
    CHECK_INT(bsr_matmul(ctx, 0, bsr_operand_sparse(&f8), bsr_operand_dense(&b), bsr_operand_dense(&out), &exec), BSR_BAD_DTYPE);
    CHECK_INT(bsr_matmul(ctx, 0, bsr_operand_sparse(&a), bsr_operand_dense(&b), bsr_operand_dense(&out), &exec), BSR_BAD_DTYPE);
    z = t_output(BSR_F32, 24, 32, ROW, NO_BATCH);
    CHECK_INT(bsr_to_dense(ctx, &a, &z, &exec), BSR_BAD_DTYPE), CHECK(t_all_poison(z.data)), CHECK(t_all_poison(out.data));
    CHECK(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_U4, BSR_BF16, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_U4, BSR_F64, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_U4, BSR_F32, 64, 63));
    CHECK(!bsr_supports(ctx, BSR_OP_SUM_MM, BSR_U4, BSR_F32, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_TO_DENSE, BSR_U4, BSR_F32, 64, 64));
    CHECK_INT((int)bsr_dtype_size(BSR_U4), 1), CHECK(!strcmp(bsr_dtype_name(BSR_U4), "u4"));
}
/* Packings of checkpoints: weights packed here as each does come back, beside what is not stored; a product by them. */
TEST(packings) {
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7}; /* AWQ's */
    int k;
    for (k = 0; k < 60; k++) {
        const int packing = 1 + k % 3;
        t_spec s = t_spec_of(BSR_U4, 8 * bt_range(1, 4), 8 * bt_range(1, 4), bt_range(1, 4), bt_range(1, 4), 0);
        const int64_t rows = s.r * s.block_rows, cols = s.c * s.block_cols, groups = s.c;
        uint8_t *q, *zero;
        uint32_t *words, *zeros;
        int8_t *points;
        bsr_error error;
        bsr_matrix m;
        int64_t r, c, p, i, j;
        bt_case("%d", k);
        q = (uint8_t *)bt_alloc((size_t)(rows * cols), 1), zero = (uint8_t *)bt_alloc((size_t)(rows * groups), 1);
        words = (uint32_t *)bt_alloc((size_t)(rows * cols / 2), 4), zeros = (uint32_t *)bt_alloc((size_t)(rows * groups / 2), 4);
        points = (int8_t *)bt_alloc((size_t)(rows * groups), 1);
        s.nnz = bt_range(0, s.r * s.c), m = weights_of(s, BSR_U4);
        for (i = 0; i < rows * cols; i++) q[i] = (uint8_t)bt_below(16);
        for (i = 0; i < rows * groups; i++) zero[i] = (uint8_t)bt_below(16);
        memset(words, 0, (size_t)(rows * cols / 2)), memset(zeros, 0, (size_t)(rows * groups / 2));
        for (r = 0; r < rows; r++)
            for (c = 0; c < cols; c++) {
                const uint32_t v = q[r * cols + c];
                if (packing == BSR_PACKING_PAIRS) ((uint8_t *)words)[(r * cols + c) / 2] |= (uint8_t)(v << 4 * (c & 1));
                if (packing == BSR_PACKING_GPTQ) words[c / 8 * rows + r] |= v << 4 * (c % 8);
            }
        for (c = 0; c < cols && packing == BSR_PACKING_AWQ; c++)
            for (r = 0; r < rows; r += 8)
                for (i = 0; i < 8; i++) words[(c * rows + r) / 8] |= (uint32_t)q[(r + order[i]) * cols + c] << 4 * i;
        for (c = 0; c < groups; c++)
            for (r = 0; r < rows; r += 8)
                for (i = 0; i < 8; i++)
                    zeros[(c * rows + r) / 8] |=
                        (uint32_t)zero[(r + (packing == BSR_PACKING_AWQ ? order[i] : i)) * groups + c] << 4 * i;
        CHECK_INT(bsr_unpack_u4(packing, words, &m, &error), BSR_OK);
        for (r = 0; r < s.r; r++)
            for (p = t_crow(&m, 0, r); p < t_crow(&m, 0, r + 1); p++)
                for (i = 0; i < m.block_rows; i++)
                    for (j = 0; j < m.block_cols; j++) {
                        const int64_t at = (p * m.block_rows + i) * m.block_cols + j;
                        CHECK_INT(((uint8_t *)m.values)[at / 2] >> 4 * (at & 1) & 15,
                                  q[(r * m.block_rows + i) * cols + t_col(&m, 0, p) * m.block_cols + j]);
                    }
        if (packing == BSR_PACKING_PAIRS) {
            CHECK_INT(bsr_unpack_zeros(packing, rows, groups, zeros, points, &error), BSR_BAD_ARGUMENT);
            continue;
        }
        CHECK_INT(bsr_unpack_zeros(packing, rows, groups, zeros, points, &error), BSR_OK);
        for (i = 0; i < rows * groups; i++) CHECK_INT(points[i], zero[i] + (packing == BSR_PACKING_GPTQ));
    }
    {
        bsr_error error;
        bsr_matrix m, x;
        bt_case("refused");
        static uint32_t from[64], before[64];
        m = weights_of(t_spec_of(BSR_U4, 4, 4, 3, 3, 4), BSR_U4);
#define UNPACK(change, wants, which)                                                  \
    x = m, change;                                                                      \
    CHECK_INT(bsr_unpack_u4(BSR_PACKING_PAIRS, from, &x, &error), wants);               \
    CHECK_INT(error.item, which), CHECK_INT(error.status, wants)
        UNPACK(x.dtype = BSR_I8, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_NOT_ACCEPTED);
        UNPACK(x.batch_dims = 1, BSR_BAD_BATCH, BSR_ITEM_BATCH_DIMS);
        UNPACK(x.values = NULL, BSR_NULL_POINTER, BSR_ITEM_VALUES_NULL);
        UNPACK(x.crow_indices = NULL, BSR_NULL_POINTER, BSR_ITEM_CROW_NULL);
        UNPACK(x.cols = 13, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_DIVIDES);
        UNPACK(x.block_rows = 0, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_SIZE);
        UNPACK(x.nnz = -1, BSR_BAD_SHAPE, BSR_ITEM_NNZ_NEGATIVE);
        UNPACK(x.crow_indices = (char *)x.crow_indices + 2, BSR_MISALIGNED, BSR_ITEM_ALIGNMENT);
        UNPACK(x.flags = 64, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED);
        UNPACK(x.values = from, BSR_OVERLAP, BSR_ITEM_OVERLAP);
        UNPACK(x.values = x.col_indices, BSR_OVERLAP, BSR_ITEM_OVERLAP);
        UNPACK((x.rows = (int64_t)1 << 60, x.index_dtype = BSR_I64), BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW);
        UNPACK(x.value_strides[0] = 8, BSR_UNSUPPORTED, BSR_ITEM_PACKED);
        UNPACK(x.nnz = 3, BSR_BAD_STRUCTURE, BSR_ITEM_CROW_LAST);
        CHECK_INT(bsr_unpack_u4(BSR_PACKING_PAIRS, NULL, &m, &error), BSR_NULL_POINTER), CHECK_INT(error.operand, BSR_ARG_SOURCE);
        CHECK_INT(bsr_unpack_u4(BSR_PACKING_GPTQ, m.values, &m, &error), BSR_BAD_SHAPE);
        CHECK_INT(error.item, BSR_ITEM_PACKING_SIZE);
        CHECK_INT(bsr_unpack_u4(7, m.values, &m, NULL), BSR_BAD_ARGUMENT);
        CHECK_INT(bsr_unpack_u4(BSR_PACKING_AWQ, m.values, NULL, &error), BSR_NULL_POINTER);
        CHECK_INT(bsr_unpack_zeros(BSR_PACKING_AWQ, 12, 1, m.values, (int8_t *)m.values, &error), BSR_BAD_SHAPE);
#define ZEROS(rows, groups, from, to, wants, which)                                                                   \
    CHECK_INT(bsr_unpack_zeros(BSR_PACKING_AWQ, rows, groups, from, (int8_t *)(to), &error), wants);                  \
    CHECK_INT(error.item, which), CHECK_INT(error.status, wants), CHECK(!memcmp(before, from_words, sizeof before))
        {
            const uint32_t *from_words = from;
            ZEROS(-8, 1, from, from + 32, BSR_BAD_SHAPE, BSR_ITEM_SIZE_NEGATIVE);
            ZEROS(8, -1, from, from + 32, BSR_BAD_SHAPE, BSR_ITEM_SIZE_NEGATIVE);
            ZEROS(INT64_MAX - 7, INT64_MAX, from, from + 32, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW);
            ZEROS((int64_t)1 << 60, 16, from, from + 32, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW);
            ZEROS(8, 1, NULL, from + 32, BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL);
            ZEROS(8, 1, from, NULL, BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL);
            ZEROS(8, 1, from, from, BSR_OVERLAP, BSR_ITEM_OVERLAP);
            ZEROS(16, 1, from + 1, (char *)from + 11, BSR_OVERLAP, BSR_ITEM_OVERLAP);
            ZEROS(0, 5, NULL, NULL, BSR_OK, BSR_ITEM_NONE);
            ZEROS(8, 1, from, (char *)from + 4 * 64 - 8, BSR_OK, BSR_ITEM_NONE);
        }
    }
}

/* A matrix of pairs is one that can be validated; maps and reductions have none, and say so. */
TEST(other_calls) {
    const bsr_context *ctx = t_context(0);
    int32_t crow[2] = {0, 1}, col[1] = {0};
    uint8_t pairs[8] = {0};
    bsr_matrix m = bsr_matrix_make(4, 4, 4, 4, 1, crow, col, BSR_I32, pairs, BSR_U4);
    bsr_exec e = t_exec(0);
    bt_case("validate, supports");
    CHECK_INT(bsr_validate(ctx, &m, &e), BSR_OK);
    CHECK(!bsr_supports(ctx, BSR_OP_MAP, BSR_U4, BSR_F32, 4, 4)), CHECK(!bsr_supports(ctx, BSR_OP_REDUCE, BSR_U4, BSR_F32, 4, 4));
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"products", products},
        {"odd_groups", odd_groups}, {"few_columns", few_columns},
        {"one_column", one_column},
        {"codes_are_exact", codes_are_exact},
        {"extreme_scales", extreme_scales},
        {"odd_scales", odd_scales},
        {"no_products", no_products},
        {"what_is_refused", what_is_refused},
        {"packings", packings},
        {"other_calls", other_calls},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
