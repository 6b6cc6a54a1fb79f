/* test_quantise.c: 8-bit numbers with scales from floats, and back: every type, layout, batch, group, scales shared by items, of
   stored blocks, given, powers of two; numbers that are none; products with what comes out; what is refused. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"
#include "ref_quantise.h"

static const int bytes[] = {BSR_E4M3, BSR_E5M2, BSR_I8}, floats[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64};

static int64_t group_at_random(int64_t size, int64_t step) {
    switch ((int)bt_below(6)) {
        case 0: return 0;
        case 1: return 1;
        case 2: return 32;
        case 3: return 128;
        case 4: return step * bt_range(1, 3);
        default: return bt_range(1, size + 2);
    }
}
/* Zeros, infinite numbers and NaN among the others. */
static double strange(int dtype) {
    static const double list[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1e-7, 65504, -0.001};
    (void)dtype;
    return list[bt_below(8)];
}
static t_shape shape_within(t_shape batch) { /* that broadcasts to it */
    t_shape s = batch;
    int i;
    for (i = 0; i < s.dims; i++)
        if (bt_below(3) == 0) s.n[i] = 1;
    if (s.dims && bt_below(3) == 0) memmove(s.n, s.n + 1, sizeof s.n[0] * 3), s.dims--;
    return s;
}
static int q_flags(q_case *q) { /* the type of given scales, or 0 */
    static const uint32_t flags[] = {0, 0, BSR_QUANTISE_GIVEN, BSR_QUANTISE_POWERS_OF_TWO};
    q->flags = flags[bt_below(4)];
    return q->flags & BSR_QUANTISE_GIVEN ? floats[bt_below(4)] : 0;
}

TEST(dense) {
    static const int64_t sides[] = {1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 65, 128, 130, 256, 300};
    int k;
    for (k = 0; k < 700; k++) {
        const t_shape batches[] = {NO_BATCH, NO_BATCH, t_batch(1, 3, 0, 0, 0), t_batch(2, 2, 3, 0, 0), t_batch(4, 2, 1, 2, 2)};
        const int64_t rows = sides[bt_below(15)], cols = bt_below(2) ? sides[bt_below(15)] : 8 * bt_range(1, 40);
        const int layout = (int)bt_below(LAYOUTS);
        int64_t gr, gc;
        q_case q;
        memset(&q, 0, sizeof q);
        q.from = floats[k % 4], q.to = bytes[k / 4 % 3], q.batch = batches[bt_below(5)];
        gr = group_at_random(rows, 4), gc = group_at_random(cols, 8);
        bt_case("%d: %s to %s, %dx%d by %dx%d, %d batch dimensions", k, bsr_dtype_name(q.from), bsr_dtype_name(q.to), (int)rows,
                (int)cols, (int)gr, (int)gc, q.batch.dims);
        q.dx = t_random(q.from, rows, cols, layout, q.batch, bt_below(3) ? 0 : (unsigned)bt_below(4),
                        bt_below(2) ? FILL_WIDE : FILL_SIGNED);
        if (k % 3 == 0) {
            const int64_t n = rows * cols / 9 + 1;
            int64_t i;
            for (i = 0; i < n; i++) t_set(&q.dx, bt_below(t_items(&q.batch)), bt_below(rows), bt_below(cols), strange(q.from));
        }
        q.dout = t_output(q.to, rows, cols, bt_below(3) ? layout : (int)bt_below(LAYOUTS), q.batch);
        q_scales(&q, gr, gc, bt_below(2) ? q.batch : shape_within(q.batch), q_flags(&q));
        q_run(&q);
    }
}
TEST(large_groups) { /* of more elements than a CTA keeps, and many */
    static const int64_t sizes[][4] = {{1, 20000, 1, 0},      {3, 16384, 1, 0},    {300, 260, 0, 0},     {200, 400, 0, 1},
                                       {140, 1030, 128, 128}, {1, 40000, 0, 32},   {129, 257, 128, 128}, {700, 64, 0, 1},
                                       {33, 2056, 1, 0},      {16, 4096, 16, 1024}};
    int k;
    for (k = 0; k < 60; k++) {
        const int64_t *s = sizes[k % 10];
        const int layout = k / 30 ? COL : ROW;
        q_case q;
        memset(&q, 0, sizeof q);
        q.from = floats[k / 10 % 3], q.to = bytes[k % 3];
        bt_case("%d: %s to %s, %dx%d by %dx%d", k, bsr_dtype_name(q.from), bsr_dtype_name(q.to), (int)s[0], (int)s[1], (int)s[2],
                (int)s[3]);
        q.dx = t_random(q.from, layout ? s[1] : s[0], layout ? s[0] : s[1], layout, NO_BATCH, 0, FILL_WIDE);
        q.dout = t_output(q.to, q.dx.rows, q.dx.cols, layout, NO_BATCH);
        q_scales(&q, layout ? s[3] : s[2], layout ? s[2] : s[3], NO_BATCH, q_flags(&q));
        q_run(&q);
    }
}
static void a_matrix(q_case *q, int k, int with_batch) {
    static const int64_t sides[] = {1, 2, 3, 4, 5, 8, 16, 16, 17, 32, 32, 64, 128, 130};
    const int64_t br = sides[bt_below(14)], bc = bt_below(3) ? br : sides[bt_below(14)];
    t_spec s = t_spec_of(q->from, br, bc, bt_range(0, 200 / br + 1), bt_range(0, 200 / bc + 1), 0);
    s.nnz = bt_range(0, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = bt_below(2) ? FILL_WIDE : FILL_SIGNED;
    s.unsorted = bt_below(3) == 0, s.duplicates = bt_below(3) == 0;
    if (with_batch && bt_below(2)) {
        s.batch = bt_below(2) ? t_batch(1, 3, 0, 0, 0) : t_batch(2, 2, 3, 0, 0);
        s.shared_values = (unsigned)bt_below(4), s.shared_pattern = (unsigned)bt_below(4);
        if (bt_below(3) == 0) s.ragged = 1, s.shared_pattern = bt_below(2) ? 0 : 1;
    }
    q->sparse = 1, q->mx = t_matrix(&s), q->batch = t_matrix_batch(&q->mx);
    q->mout = t_matrix_output(&q->mx, q->to, bt_below(3) ? s.layout : (int)bt_below(BLOCKS_LAYOUTS));
    (void)k;
}
TEST(sparse) {
    int k;
    for (k = 0; k < 700; k++) {
        int64_t gr, gc;
        q_case q;
        memset(&q, 0, sizeof q);
        q.from = floats[k % 4], q.to = bytes[k / 4 % 3], q.blocks = (int)bt_below(2);
        bt_case("%d: %s to %s%s", k, bsr_dtype_name(q.from), bsr_dtype_name(q.to), q.blocks ? ", of blocks" : "");
        a_matrix(&q, k, 1);
        gr = q.blocks && bt_below(2) ? 0 : group_at_random(q.mx.rows, q.mx.block_rows);
        gc = q.blocks && bt_below(2) ? 0 : group_at_random(q.mx.cols, q.mx.block_cols);
        q_scales(&q, gr, gc, bt_below(2) ? q.batch : shape_within(q.batch), q_flags(&q));
        q_run(&q);
    }
}
TEST(back) {
    int k;
    for (k = 0; k < 400; k++) {
        bsr_exec exec = t_exec(0);
        t_shape of;
        int64_t rows, cols;
        q_case q;
        memset(&q, 0, sizeof q);
        q.from = bytes[k % 3], q.to = floats[k / 3 % 4], q.blocks = q.sparse = k % 2;
        bt_case("%d: %s to %s%s", k, bsr_dtype_name(q.from), bsr_dtype_name(q.to), q.sparse ? ", a matrix" : "");
        if (q.sparse) {
            a_matrix(&q, k, 1), q.blocks = (int)bt_below(2);
        } else {
            const int layout = (int)bt_below(LAYOUTS);
            q.batch = bt_below(2) ? NO_BATCH : t_batch(1, 3, 0, 0, 0);
            q.dx = t_random(q.from, bt_range(1, 70), bt_below(2) ? 16 * bt_range(1, 20) : bt_range(1, 90), layout, q.batch, 0,
                            FILL_WIDE);
            q.dout = t_output(q.to, q.dx.rows, q.dx.cols, bt_below(3) ? layout : (int)bt_below(LAYOUTS), q.batch);
        }
        rows = q.sparse ? q.mx.rows : q.dx.rows, cols = q.sparse ? q.mx.cols : q.dx.cols;
        of = bt_below(2) ? q.batch : shape_within(q.batch);
        q_scales(&q, group_at_random(rows, 4), group_at_random(cols, 8), of, floats[bt_below(4)]);
        if (RUN_OK(bsr_dequantise(t_any_context(), q_x(&q), &q.scales, q_out(&q), &exec))) q_each(&q, q_back);
    }
}
/* All numbers of 16 bits, beside a scale that only moves the exponent: rounding and saturation to the bit. */
TEST(every_number) {
    static const double scale[] = {1, 0.25, 8, 0x1p-120};
    int k;
    for (k = 0; k < 24; k++) {
        const int from = k % 2 ? BSR_BF16 : BSR_F16, to = bytes[k / 2 % 3], n = 65536;
        const double s = scale[k / 6];
        bsr_dense x, out, one;
        bsr_scales scales = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        int i, wrong = 0;
        bt_case("%d: %s to %s, scale %g", k, bsr_dtype_name(from), bsr_dtype_name(to), s);
        x = t_dense(from, 16, n / 16, ROW, NO_BATCH, 0), out = t_output(to, 16, n / 16, ROW, NO_BATCH);
        for (i = 0; i < n; i++) ((uint16_t *)x.data)[i] = (uint16_t)i;
        one = t_dense(BSR_F32, 1, 1, ROW, NO_BATCH, 0), *(float *)one.data = (float)s, scales.scale = &one;
        if (!RUN_OK(bsr_quantise(t_any_context(), BSR_QUANTISE_GIVEN, bsr_operand_dense(&x), bsr_operand_dense(&out), &scales,
                                 NULL, &exec)))
            continue;
        for (i = 0; i < n; i++) {
            const double v = (double)(float)(t_decode16((uint16_t)i, from) / s), got = t_load(out.data, to, i);
            const double want = to != BSR_I8 ? t_decode8(t_encode8(v, to), to)
                                : v != v     ? 0
                                : v > 127    ? 127
                                : v < -127   ? -127
                                             : rint(v);
            wrong += want == want ? got != want : got == got;
        }
        CHECK_INT(wrong, 0);
    }
}
/* Powers of two in each group, so that nothing is rounded; a product of what comes out has the values that went in. */
TEST(products) {
    int k;
    for (k = 0; k < 60; k++) {
        const int to = bytes[k % 3], kind = k / 3 % 5, with = k % 2;
        static const int64_t groups[][4] = {{0, 0, 0, 0}, {1, 0, 0, 1}, {1, 128, 128, 1}, {128, 128, 128, 128}, {0, 0, 32, 1}};
        const int64_t side = bt_below(2) ? 32 : 128, n = bt_range(1, 40);
        bsr_scales sa = BSR_ZERO, sb = BSR_ZERO;
        bsr_matrix a, qa;
        bsr_dense b, qb, da, db, out;
        bsr_epilogue e = BSR_ZERO;
        t_spec s = t_spec_of(BSR_F32, side, side, 256 / side, 256 / side, 256 / side);
        ref_result want;
        bsr_exec exec = t_exec(0);
        t_shape of = NO_BATCH;
        int64_t i, j;
        bt_case("%d: %s, groups %d", k, bsr_dtype_name(to), kind);
        a = t_matrix(&s), qa = t_matrix_output(&a, to, PACKED);
        b = t_random(BSR_F32, 256, n, COL, NO_BATCH, 0, FILL_SIGNED), qb = t_output(to, 256, n, COL, NO_BATCH);
        for (i = 0; i < a.nnz * side * side; i++) ((float *)a.values)[i] = (float)ldexp(bt_below(2) ? 1 : -1, (int)bt_below(2));
        for (i = 0; i < 256; i++)
            for (j = 0; j < n; j++) t_set(&b, 0, i, j, ldexp(1, (int)(i / 128 + j / 128) % 7));
        sa.group_rows = groups[kind][0], sa.group_cols = groups[kind][1];
        sb.group_rows = groups[kind][2], sb.group_cols = groups[kind][3];
        if (kind == 4) sa.flags = BSR_SCALES_BLOCKS, of = t_batch(1, a.nnz, 0, 0, 0);
        da = t_output(BSR_F32, kind == 4 ? 1 : groups_of(256, sa.group_rows), kind == 4 ? 1 : groups_of(256, sa.group_cols), ROW,
                      of);
        db = t_output(BSR_F32, groups_of(256, sb.group_rows), groups_of(n, sb.group_cols), COL, NO_BATCH);
        sa.scale = &da, sb.scale = &db;
        if (!RUN_OK(bsr_quantise(t_any_context(), BSR_QUANTISE_POWERS_OF_TWO, bsr_operand_sparse(&a), bsr_operand_sparse(&qa),
                                 &sa, NULL, &exec)) ||
            !RUN_OK(bsr_quantise(t_any_context(), BSR_QUANTISE_POWERS_OF_TWO, bsr_operand_dense(&b), bsr_operand_dense(&qb), &sb,
                                 NULL, &exec)))
            continue;
        e.a_scales = &sa, e.b_scales = &sb, out = t_output(BSR_F32, 256, n, ROW, NO_BATCH);
        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, NULL, BSR_F32, 0);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), 0, NULL, 1, 0, &qa, &qb, &e, &out, &exec))) REF_COMPARE(&out, &want, 0);
        (void)with;
    }
}
/* One group of a few numbers: its scale and what becomes of them. */
static float one_group(int from, int to, uint32_t flags, const double *x, int n, double *out) {
    bsr_dense a = t_dense(from, 1, n, ROW, NO_BATCH, 0), b = t_output(to, 1, n, ROW, NO_BATCH);
    bsr_dense s = t_output(BSR_F32, 1, 1, ROW, NO_BATCH);
    bsr_scales scales = BSR_ZERO;
    bsr_exec exec = t_exec(0);
    int i;
    scales.scale = &s;
    for (i = 0; i < n; i++) t_set(&a, 0, 0, i, x[i]);
    if (!RUN_OK(bsr_quantise(t_any_context(), flags, bsr_operand_dense(&a), bsr_operand_dense(&b), &scales, NULL, &exec)))
        return NAN;
    for (i = 0; i < n; i++) out[i] = t_get(&b, 0, 0, i);
    return *(float *)s.data;
}
TEST(strange_numbers) {
    const double tiny[] = {0x1p-149, -0x1p-149}, none[] = {NAN, INFINITY, -INFINITY, NAN}, zero[] = {0, -0.0, 0},
                 large[] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2}, wide[] = {1e300, -2, 1}, mixed[] = {INFINITY, 448, -448, NAN, 1};
    double out[5];
    int k;
    for (k = 0; k < 3; k++) {
        const int to = bytes[k];
        const double limit = limit_of(to);
        bt_case("%s", bsr_dtype_name(to));
        if (bt.unwanted) continue;
        CHECK(one_group(BSR_F32, to, 0, zero, 3, out) == 1), CHECK(out[0] == 0 && out[1] == 0 && out[2] == 0);
        CHECK((double)one_group(BSR_F32, to, 0, tiny, 2, out) == 0x1p-126), CHECK(fabs(out[0]) < 0.01);
        CHECK((double)one_group(BSR_F32, to, BSR_QUANTISE_POWERS_OF_TWO, tiny, 2, out) == 0x1p-126);
        CHECK(one_group(BSR_F32, to, 0, none, 4, out) == 1), CHECK(out[1] == limit && out[2] == -limit);
        CHECK(to == BSR_I8 ? out[0] == 0 : out[0] != out[0]);
        CHECK(one_group(BSR_F32, to, 0, large, 3, out) < INFINITY), CHECK(out[0] == limit && out[1] == -limit);
        CHECK_NEAR((double)one_group(BSR_F64, to, 0, wide, 3, out), 2 / limit, 2 / limit * 0x1p-23);
        CHECK(out[0] == limit && out[1] == -limit);
        CHECK_NEAR((double)one_group(BSR_BF16, to, 0, mixed, 5, out), 448 / limit, 448 / limit * 0x1p-23);
        CHECK(out[0] == limit && out[1] == limit && out[2] == -limit);
        CHECK_NEAR((double)one_group(BSR_F16, to, BSR_QUANTISE_POWERS_OF_TWO, mixed, 5, out),
                   ldexp(1, (int)ceil(log2(448 / limit))), 0);
    }
}
/* Given scales as arithmetic takes them. */
TEST(strange_scales) {
    static const float scales[] = {0.0f, -2.0f, 1e-45f, 1e-39f};
    int k;
    for (k = 0; k < 18; k++) {
        const int to = bytes[k % 3];
        const float s = k / 3 < 4 ? scales[k / 3] : k / 3 == 4 ? (float)INFINITY : (float)NAN;
        bsr_dense a, b, one;
        bsr_scales of = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        int i;
        bt_case("%s, scale %g", bsr_dtype_name(to), (double)s);
        a = t_random(BSR_F32, 3, 24, ROW, NO_BATCH, 0, FILL_SIGNED), b = t_output(to, 3, 24, ROW, NO_BATCH);
        t_set(&a, 0, 0, 3, 0), t_set(&a, 0, 1, 2, INFINITY);
        one = t_dense(BSR_F32, 1, 1, ROW, NO_BATCH, 0), *(float *)one.data = s, of.scale = &one;
        if (!RUN_OK(bsr_quantise(t_any_context(), BSR_QUANTISE_GIVEN, bsr_operand_dense(&a), bsr_operand_dense(&b), &of, NULL,
                                 &exec)))
            continue;
        for (i = 0; i < 72; i++) {
            const double inverse = 1 / (double)s, v = t_load(a.data, BSR_F32, i) *
                                                      (fabs(inverse) > FLT_MAX ? (inverse > 0 ? INFINITY : -INFINITY) : inverse);
            const double got = t_load(b.data, to, i), limit = limit_of(to);
            if (v != v) CHECK(to == BSR_I8 ? got == 0 : got != got);
            else if (fabs(v) > 1e10) CHECK(got == (v > 0 ? limit : -limit));
            else CHECK(fabs(got - v) <= fabs(v) / 8 + 0.5);
        }
    }
}
TEST(empty) {
    int k;
    for (k = 0; k < 36; k++) {
        const int to = bytes[k % 3], which = k / 3 % 6;
        const int64_t rows = which == 0 ? 0 : 5, cols = which == 1 ? 0 : 16;
        const t_shape batch = which == 2 ? t_batch(2, 3, 0, 0, 0) : NO_BATCH;
        bsr_exec exec = t_exec(0);
        q_case q;
        memset(&q, 0, sizeof q);
        q.from = BSR_BF16, q.to = to, q.batch = batch, q.blocks = which == 5;
        bt_case("%d: %s, %d", k, bsr_dtype_name(to), which);
        if (which > 2) { /* without blocks: grids have scales all the same */
            t_spec s = t_spec_of(q.from, 4, 4, which == 3 ? 0 : 3, 3, 0);
            q.sparse = 1, q.mx = t_matrix(&s), q.mout = t_matrix_output(&q.mx, to, PACKED);
        } else {
            q.dx = t_random(q.from, rows, cols, ROW, batch, 0, FILL_SIGNED), q.dout = t_output(to, rows, cols, ROW, batch);
        }
        q_scales(&q, k / 18 ? 1 : 0, 0, NO_BATCH, 0);
        if (!RUN_OK(bsr_quantise(t_any_context(), 0, q_x(&q), q_out(&q), &q.scales, &q.amax, &exec))) continue;
        q_hold_scales(&q, 1);
    }
}
/* Each is refused, and nothing is written. */
TEST(errors) {
    int k;
    for (k = 0; k < 31; k++) {
        bsr_dense x, out, s, most, other;
        bsr_matrix m, mo;
        bsr_scales scales = BSR_ZERO;
        bsr_exec exec = t_exec(0);
        bsr_operand px, po;
        t_spec spec = t_spec_of(BSR_F32, 4, 8, 3, 2, 3);
        const bsr_dense *pmost = NULL;
        const bsr_scales *ps = &scales;
        uint32_t flags = 0;
        int item = 0, operand = BSR_ARG_SCALES, status;
        bt_case("%d", k);
        x = t_random(BSR_F32, 12, 16, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_E4M3, 12, 16, ROW, NO_BATCH);
        s = t_output(BSR_F32, 12, 2, ROW, NO_BATCH), most = t_output(BSR_F32, 12, 2, ROW, NO_BATCH);
        m = t_matrix(&spec), mo = t_matrix_output(&m, BSR_I8, PACKED), other = out;
        scales.scale = &s, scales.group_rows = 1, scales.group_cols = 8, px = bsr_operand_dense(&x), po = bsr_operand_dense(&out);
        if (k >= 24) px = bsr_operand_sparse(&m), po = bsr_operand_sparse(&mo);
        switch (k) {
            case 0: ps = NULL, item = BSR_ITEM_ARGUMENT_NULL; break;
            case 1: scales.scale = NULL, item = BSR_ITEM_ARGUMENT_NULL; break;
            case 2: scales.group_rows = -1, item = BSR_ITEM_SIZE_NEGATIVE; break;
            case 3: scales.group_cols = 4, item = BSR_ITEM_COLS_MISMATCH; break;
            case 4: scales.group_rows = 2, item = BSR_ITEM_ROWS_MISMATCH; break;
            case 5: scales.reserved = 1, item = BSR_ITEM_RESERVED; break;
            case 6: scales.flags = BSR_SCALES_BLOCKS, item = BSR_ITEM_RESERVED; break; /* there are none */
            case 7: flags = 4, item = BSR_ITEM_RESERVED, operand = BSR_ARG_NONE; break;
            case 8: flags = 3, item = BSR_ITEM_FLAGS_CONFLICT, operand = BSR_ARG_NONE; break;
            case 9: s.dtype = BSR_BF16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED; break;
            case 10: s.dtype = BSR_I8, flags = BSR_QUANTISE_GIVEN, item = BSR_ITEM_DTYPE_NOT_ACCEPTED; break;
            case 11: out.dtype = BSR_F16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED; break;
            case 12: x.dtype = BSR_I32, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_X; break;
            case 13: out.rows = 11, item = BSR_ITEM_ROWS_MISMATCH, operand = BSR_ARG_OUT; break;
            case 14: out.cols = 15, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_OUT; break;
            case 15: px.dense = NULL, item = BSR_ITEM_OPERAND_KIND, operand = BSR_ARG_X; break;
            case 16: po.sparse = &mo, item = BSR_ITEM_OPERAND_KIND, operand = BSR_ARG_OUT; break;
            case 17: po = bsr_operand_sparse(&mo), item = BSR_ITEM_OPERAND_KIND, operand = BSR_ARG_OUT; break;
            case 18: pmost = &most, most.cols = 1, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_AMAX; break;
            case 19: pmost = &s, item = BSR_ITEM_OVERLAP, operand = BSR_ARG_AMAX; break;
            case 20: other.data = x.data, po = bsr_operand_dense(&other), item = BSR_ITEM_OVERLAP, operand = BSR_ARG_OUT; break;
            case 21: s.data = x.data, item = BSR_ITEM_OVERLAP; break;
            case 22: s.row_stride = 0, item = BSR_ITEM_STRIDE_OUTPUT; break;
            case 23:
                s.batch_dims = 1, s.batch[0] = 2, s.batch_stride[0] = 24, s.row_stride = 1, s.rows = 12, s.cols = 1,
                scales.group_cols = 0, item = BSR_ITEM_BATCH_EXTRA;
                break;
            case 24: mo.nnz = 2, item = BSR_ITEM_NNZ_MISMATCH, operand = BSR_ARG_OUT; break;
            case 25: scales.flags = BSR_SCALES_BLOCKS, item = BSR_ITEM_BATCH_DIMS; break;
            case 26:
                scales.flags = BSR_SCALES_BLOCKS, scales.group_rows = scales.group_cols = 0, s.batch_dims = 1, s.batch[0] = 2,
                s.batch_stride[0] = 1, s.rows = s.cols = 1, item = BSR_ITEM_BATCH_SIZE;
                break;
            case 27: mo.block_rows = 2, item = BSR_ITEM_BLOCK_MISMATCH, operand = BSR_ARG_OUT; break;
            case 28: mo.dtype = BSR_F32, item = BSR_ITEM_DTYPE_NOT_ACCEPTED; break;
            case 29: m.flags |= BSR_MATRIX_ROW_VIEW, item = BSR_ITEM_ROW_VIEW, operand = BSR_ARG_X; break;
            case 30: pmost = &most, most.dtype = BSR_F64, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_AMAX; break;
            default: break;
        }
        if (bt.unwanted) continue;
        status = bsr_quantise(t_any_context(), flags, px, po, ps, pmost, &exec);
        CHECK(status != BSR_OK);
        CHECK_STR(bsr_item_name(t_error.item), bsr_item_name(item));
        CHECK_STR(bsr_operand_name(t_error.operand), bsr_operand_name(operand));
        CHECK(t_all_poison(out.data) && t_all_poison(mo.values) && t_all_poison(most.data));
        if (k != 21) CHECK(t_all_poison(s.data));
    }
}
TEST(supports) {
    const bsr_context *ctx = t_context(0);
    bt_case("types");
    CHECK(bsr_supports(ctx, BSR_OP_QUANTISE, BSR_BF16, BSR_E4M3, 128, 128));
    CHECK(bsr_supports(ctx, BSR_OP_QUANTISE, BSR_F64, BSR_I8, 3, 5));
    CHECK(!bsr_supports(ctx, BSR_OP_QUANTISE, BSR_I8, BSR_E4M3, 16, 16));
    CHECK(!bsr_supports(ctx, BSR_OP_QUANTISE, BSR_F32, BSR_F16, 16, 16));
    CHECK(bsr_supports(ctx, BSR_OP_DEQUANTISE, BSR_E5M2, BSR_F16, 16, 16));
    CHECK(!bsr_supports(ctx, BSR_OP_DEQUANTISE, BSR_F32, BSR_F16, 16, 16));
}

/* Scales that are written must not lie in what out is read by; what has no elements takes no time, however many lines. */
TEST(edges) {
    const bsr_context *ctx = t_context(0);
    int32_t crow[2][2] = {{0, 1}, {0, 1}}, col[2][1] = {{0}, {0}};
    float values[4] = {1, -2, 3, 4}, many[4] = {0};
    int8_t codes[4] = {0};
    bsr_matrix x = bsr_matrix_make(2, 2, 2, 2, 1, crow[0], col[0], BSR_I32, values, BSR_F32);
    bsr_matrix out = bsr_matrix_make(2, 2, 2, 2, 1, crow[1], col[1], BSR_I32, codes, BSR_I8);
    bsr_dense scale = bsr_dense_row_major(&crow[1][1], BSR_F32, 1, 1);
    bsr_dense wide = bsr_dense_row_major(values, BSR_F32, 0, 0);
    bsr_dense narrow = bsr_dense_row_major(codes, BSR_I8, 0, 0);
    bsr_scales s = BSR_ZERO;
    bsr_exec e = t_exec(0);
    s.scale = &scale;
    bt_case("scales in out's row pointers");
    CHECK_INT(bsr_quantise(ctx, 0, bsr_operand_sparse(&x), bsr_operand_sparse(&out), &s, NULL, &e), BSR_OVERLAP);
    CHECK_INT(crow[1][1], 1), CHECK_INT(codes[0], 0);
    bt_case("a type that there is not");
    scale.data = many, out.dtype = 77;
    CHECK_INT(bsr_quantise(ctx, 0, bsr_operand_sparse(&x), bsr_operand_sparse(&out), &s, NULL, &e), BSR_BAD_DTYPE);
    CHECK_INT(t_error.operand, BSR_ARG_OUT);
    bt_case("2^40 rows without columns");
    wide.rows = narrow.rows = INT64_C(1) << 40;
    CHECK_INT(bsr_quantise(ctx, 0, bsr_operand_dense(&wide), bsr_operand_dense(&narrow), &s, NULL, &e), BSR_OK);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"dense", dense},
                                    {"large_groups", large_groups},
                                    {"sparse", sparse},
                                    {"back", back},
                                    {"every_number", every_number},
                                    {"products", products},
                                    {"strange_numbers", strange_numbers},
                                    {"strange_scales", strange_scales},
                                    {"empty", empty},
                                    {"errors", errors},
                                    {"supports", supports},
                                    {"edges", edges}};
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
