/* test_rows.c: softmax over stored elements and its backward against the float64 reference. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};

static void run_softmax(const bsr_context *ctx, double scale, const bsr_matrix *x, const bsr_softmax_options *o,
                        const bsr_matrix *y, int exact, int flags) {
    bsr_exec e = t_exec(0);
    ref_result want = ref_softmax(scale, x, o, exact);
    if (RUN_OK(bsr_softmax(ctx, scale, x, o, y, &e))) REF_COMPARE_MATRIX(y, &want, flags);
}

/* upstream.md 6.1, test_triton_bsr_softmax */
TEST(upstream_softmax) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
    static const int64_t sizes[] = {6, 12, 0};
    int t, rb, cb, batch, m, n;
    for (t = 0; t < 3; t++)
        for (rb = 2; rb <= 3; rb++)
            for (cb = 2; cb <= 3; cb++)
                for (batch = 0; batch < 3; batch++)
                    for (m = 0; m < 3; m++)
                        for (n = 0; n < 3; n++) {
                            t_spec s;
                            bsr_matrix x, y;
                            int64_t b, p;
                            bt_case("%s, block %dx%d, batch %d, %lld x %lld", bsr_dtype_name(types[t]), rb, cb, batch,
                                    (long long)sizes[m], (long long)sizes[n]);
                            s = t_spec_of(types[t], rb, cb, sizes[m] / rb, sizes[n] / cb,
                                          sizes[m] / rb * (sizes[n] / cb) * 2 / 3);
                            s.kind = FILL_POSITIVE, s.batch = t_batch(batch, 2, 2, 0, 0);
                            x = t_matrix(&s);
                            for (b = 0; b < t_matrix_items(&x);
                                 b++) /* upstream's dominant diagonal: underflow of all the others */
                                for (p = 0; p < x.nnz && b == 0; p++)
                                    t_store(x.values, x.dtype, t_value_at(&x, b, p, 0, 0), (double)(sizes[m] * sizes[n]));
                            y = t_matrix_output(&x, types[t], PACKED);
                            run_softmax(t_any_context(), 1, &x, NULL, &y, 0, 0);
                        }
}
/* the same test's long row: (2, 2, 1, 150000) with 1 x 1 blocks */
TEST(upstream_long_row) {
    int t, isa;
    for (t = 0; t < 4; t++)
        for (isa = 1; isa <= 3; isa++) {
            t_spec s;
            bsr_matrix x, y;
            bsr_exec e = t_exec(0);
            int64_t b, p;
            double u = dtypes[t] == BSR_F64 ? REF_U64 : 0x1p-24;
            bt_case("%s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            s = t_spec_of(dtypes[t], 1, 1, 1, 150000, 150000), s.batch = t_batch(2, 2, 2, 0, 0), s.kind = FILL_POSITIVE;
            if (dtypes[t] != BSR_F32) s.nnz = 140001, s.batch = t_batch(1, 2, 0, 0, 0);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            bt_mark_output(x.values); /* no hash of megabytes */
            if (!RUN_OK(bsr_softmax(t_context(isa), 1, &x, NULL, &y, &e))) continue;
            for (b = 0; b < t_matrix_items(&x); b++) {
                ref_real total = 0;
                double sum = 0, worst = 0;
                for (p = 0; p < x.nnz; p++) total += expl((ref_real)t_load(x.values, x.dtype, t_value_at(&x, b, p, 0, 0)) - 2);
                for (p = 0; p < x.nnz; p++) {
                    double want = (double)(expl((ref_real)t_load(x.values, x.dtype, t_value_at(&x, b, p, 0, 0)) - 2) / total);
                    double got = t_load(y.values, y.dtype, t_value_at(&y, b, p, 0, 0));
                    double err = fabs(got - want) / ((8 + 2 * log2((double)x.nnz)) * u * want + t_half_ulp(y.dtype, want));
                    sum += got;
                    if (!(err <= worst)) worst = err;
                }
                CHECK_NEAR(worst, 0.5, 0.5); /* within the header's bound */
                CHECK_NEAR(sum, 1, 0x1p-6);
            }
        }
}

/* Rows longer than any buffer, with scores that rise, fall or jump, so that every part changes the maximum or not; in place
   too; and the backward of such rows. */
TEST(long_rows) {
    static const int64_t blocks[][2] = {{1, 1}, {1, 64}, {3, 5}, {2, 700}};
    int b, t, form;
    for (b = 0; b < 4; b++)
        for (t = 0; t < 4; t++)
            for (form = 0; form < 4; form++) {
                t_spec s;
                bsr_matrix x, y, dy, dx;
                bsr_exec e = t_exec(0);
                ref_result want;
                int64_t p, i, j, n;
                bt_case("%lldx%lld, %s, form %d", (long long)blocks[b][0], (long long)blocks[b][1], bsr_dtype_name(dtypes[t]),
                        form);
                n = 9000 / blocks[b][1], s = t_spec_of(dtypes[t], blocks[b][0], blocks[b][1], 2, n + 7, 2 * n);
                x = t_matrix(&s);
                for (p = 0; p < x.nnz; p++)
                    for (i = 0; i < x.block_rows; i++)
                        for (j = 0; j < x.block_cols; j++) {
                            double at = (double)(t_col(&x, 0, p) * x.block_cols + j) / 9000;
                            double v = form == 0   ? 40 * at
                                       : form == 1 ? -40 * at
                                       : form == 2 ? 20 * sin(40 * at)
                                                   : t_draw(FILL_SIGNED, BSR_F64);
                            t_store(x.values, x.dtype, t_value_at(&x, 0, p, i, j), v);
                        }
                y = t_matrix_output(&x, dtypes[t], BLOCKS_GAPS);
                run_softmax(t_any_context(), 1, &x, NULL, &y, 0, 0);
                dy = x, t_make_values(&dy, dtypes[t], PACKED, 0), t_fill_values(&dy, FILL_SIGNED);
                dx = t_matrix_output(&x, dtypes[t], BLOCKS_COL);
                want = ref_softmax_backward(0.5, &y, &dy);
                if (RUN_OK(bsr_softmax_backward(t_any_context(), 0.5, &y, &dy, &dx, &e))) REF_COMPARE_MATRIX(&dx, &want, 0);
                bt_mark_output(dy.values);
                if (RUN_OK(bsr_softmax_backward(t_any_context(), 0.5, &y, &dy, &dy, &e))) REF_COMPARE_MATRIX(&dy, &want, 0);
                bt_mark_output(x.values);
                run_softmax(t_any_context(), 1, &x, NULL, &x, 0, 0);
            }
}

/* upstream.md 6.2, test_softmax: scale 0.4, additive key padding of 0 and -inf, multiplied attention mask of 0 and 1, two items
   of four heads (fewer at width 576). What the gradient must be follows from x, not from the y that the library gave. */
TEST(upstream_deepspeed_softmax) {
    static const int64_t widths[] = {64, 192, 256, 576};
    int block, t, w;
    for (block = 16; block <= 32; block += 16)
        for (t = 0; t < 4; t++)
            for (w = 0; w < 4; w++) {
                const int64_t width = widths[w], n = width / block;
                t_spec s;
                bsr_matrix x, y, dy, dx;
                bsr_dense kp, am;
                bsr_softmax_options o;
                bsr_exec e = t_exec(0);
                ref_result of_y, want;
                int64_t i, j;
                if (w == 3 && dtypes[t] != BSR_F16 && dtypes[t] != BSR_F32) continue;
                bt_case("block %d, %s, width %d", block, bsr_dtype_name(dtypes[t]), (int)width);
                s = t_spec_of(dtypes[t], block, block, n, n, n * n * 3 / 5), s.kind = FILL_POSITIVE;
                s.batch = t_batch(2, 2, w == 2 ? 4 : 2, 0, 0), s.shared_pattern = 1, s.ragged = t & 1;
                x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], BLOCKS_GAPS);
                kp = t_dense(dtypes[t], 1, width, ROW, t_batch(2, 2, 1, 0, 0), 0),
                am = t_random(dtypes[t], width, width, ROW, NO_BATCH, 0, FILL_BOOL);
                for (i = 0; i < 2; i++)
                    for (j = 0; j < width; j++) t_set(&kp, i, 0, j, bt_below(2) ? 0 : -(double)INFINITY);
                memset(&o, 0, sizeof o);
                o.key_padding_mask = &kp, o.attn_mask = &am, o.attn_mode = BSR_MASK_MUL;
                of_y = ref_softmax(0.4, &x, &o, 0);
                if (!RUN_OK(bsr_softmax(t_any_context(), 0.4, &x, &o, &y, &e))) continue;
                REF_COMPARE_MATRIX(&y, &of_y, 0);
                dy = x, t_make_values(&dy, dtypes[t], PACKED, 0), t_fill_values(&dy, FILL_SIGNED);
                dx = t_matrix_output(&x, dtypes[t], BLOCKS_COL);
                want = ref_softmax_gradient_of(0.4, &x, &of_y, dtypes[t], &dy);
                if (RUN_OK(bsr_softmax_backward(t_any_context(), 0.4, &y, &dy, &dx, &e))) REF_COMPARE_MATRIX(&dx, &want, 0);
            }
}

/* The header's own bound, where the scores are exact: scale a power of two, no bias. */
TEST(documented_bound) {
    static const int64_t blocks[][2] = {{1, 1}, {2, 3}, {3, 3}, {5, 7}, {16, 16}, {33, 65}, {100, 3}, {1, 64}, {64, 1}};
    size_t k;
    int t, isa;
    for (k = 0; k < BT_COUNT(blocks); k++)
        for (t = 0; t < 4; t++)
            for (isa = 1; isa <= 3; isa++) {
                t_spec s;
                bsr_matrix x, y;
                bt_case("%lldx%lld, %s, isa %d", (long long)blocks[k][0], (long long)blocks[k][1], bsr_dtype_name(dtypes[t]),
                        isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(dtypes[t], blocks[k][0], blocks[k][1], bt_range(1, 4), bt_range(1, 6), 0);
                s.nnz = bt_range(1, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = (int)bt_below(2);
                x = t_matrix(&s);
                y = t_matrix_output(&x, dtypes[t] == BSR_F64 || bt_below(2) ? dtypes[t] : BSR_F32, (int)bt_below(BLOCKS_LAYOUTS));
                run_softmax(t_context(isa), bt_below(2) ? 1 : -0.5, &x, NULL, &y, 1, 0);
            }
}

/* Every option, type of mask and broadcast. */
TEST(options) {
    static const int mask_types[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64, BSR_BOOL, BSR_I8};
    int k;
    for (k = 0; k < 400; k++) {
        t_spec s;
        bsr_matrix x, y;
        bsr_dense rel, kp, am;
        bsr_softmax_options o;
        t_shape one;
        int t = k % 4, dims, i, masked;
        bt_case("%d", k);
        dims = (int)bt_below(4);
        s = t_spec_of(dtypes[t], bt_range(1, 9), bt_range(1, 9), bt_range(1, 4), bt_range(1, 4), bt_range(0, 9));
        s.batch = t_batch(dims, bt_range(1, 2), bt_range(1, 3), bt_range(1, 2), 1);
        s.shared_pattern = (unsigned)bt_below(16), s.ragged = bt_below(3) == 0, s.layout = (int)bt_below(BLOCKS_LAYOUTS);
        x = t_matrix(&s),
        y = t_matrix_output(&x, bt_below(3) || dtypes[t] == BSR_F64 ? dtypes[t] : BSR_F32, (int)bt_below(BLOCKS_LAYOUTS));
        one = s.batch;
        for (i = 0; i < dims; i++)
            if (bt_below(2)) one.n[i] = 1;
        memset(&o, 0, sizeof o);
        rel = t_random(dtypes[t], bt_below(2) ? x.rows : 1, x.cols, (int)bt_below(LAYOUTS), one, 0, FILL_SIGNED);
        masked = mask_types[bt_below(6)], kp = t_random(masked, 1, x.cols, ROW, one, 0, FILL_BOOL);
        o.key_padding_mode = masked >= BSR_I8 ? BSR_MASK_MUL : (int)bt_below(2);
        masked = mask_types[bt_below(6)],
        am = t_random(masked, x.rows, bt_below(4) ? x.cols : 1, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_BOOL);
        o.attn_mode = masked >= BSR_I8 ? BSR_MASK_MUL : (int)bt_below(2);
        if (bt_below(2)) o.relative_bias = &rel;
        if (bt_below(2)) o.key_padding_mask = &kp;
        if (bt_below(2)) o.attn_mask = &am;
        run_softmax(t_any_context(), t_draw(FILL_WIDE, BSR_F64) / 16, &x, bt_below(8) ? &o : NULL, &y, 0, REF_MAY_BE_ZERO);
    }
}

/* Packed rows of whole pieces of 16 bytes, short and longer than any buffer, beside masks of each type, aligned or not, repeated
   or not, added or not; some elements are -inf, +inf or NaN, so that what is forbidden meets them; in place, too. */
TEST(packed_rows_with_masks) {
    static const int mask_types[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64, BSR_BOOL, BSR_I8};
    static const int64_t widths[] = {8, 16, 24, 64, 136};
    int k;
    for (k = 0; k < 240; k++) {
        const int t = k % 4, odd = (int)bt_below(3);
        const int64_t bc = widths[bt_below(5)], most = bt_below(3) ? 400 : bt_below(4) ? 3000 : 9000;
        const double strange[] = {(double)INFINITY, -(double)INFINITY, (double)NAN};
        t_spec s = t_spec_of(dtypes[t], bt_range(1, 8) * (bt_below(2) ? 1 : 4), bc, bt_range(1, 3), most / bc + 1, 0);
        bsr_dense rel, kp, am;
        bsr_softmax_options o;
        bsr_matrix x, y;
        int64_t i;
        int masked, twice;
        bt_case("%d: %s, blocks of %d x %d, %d columns", k, bsr_dtype_name(dtypes[t]), (int)s.block_rows, (int)bc,
                (int)(s.c * bc));
        s.nnz = s.r * s.c * bt_range(1, 4) / 4, s.batch = t_batch((int)bt_below(2), 2, 0, 0, 0);
        x = t_matrix(&s), y = t_matrix_output(&x, bt_below(3) || dtypes[t] == BSR_F64 ? dtypes[t] : BSR_F32, PACKED);
        for (i = bt_below(4); i > 0 && x.nnz; i--)
            t_store(x.values, x.dtype,
                    t_value_at(&x, 0, bt_below(x.nnz), bt_below(x.block_rows), bt_below(x.block_cols)), strange[bt_below(3)]);
        memset(&o, 0, sizeof o);
        rel = t_random(dtypes[t], bt_below(2) ? x.rows : 1, x.cols + odd, ROW, NO_BATCH, 0, FILL_SIGNED), rel.cols = x.cols;
        masked = mask_types[bt_below(6)], kp = t_random(masked, 1, x.cols, ROW, NO_BATCH, 0, FILL_BOOL);
        o.key_padding_mode = masked >= BSR_I8 ? BSR_MASK_MUL : (int)bt_below(2);
        if (!o.key_padding_mode && bt_below(2)) t_set(&kp, 0, 0, bt_below(x.cols), -(double)INFINITY);
        masked = mask_types[bt_below(6)];
        am = t_random(masked, x.rows, x.cols + (odd ? 1 : 0), bt_below(6) ? ROW : COL, NO_BATCH, 0, FILL_BOOL), am.cols = x.cols;
        o.attn_mode = masked == BSR_BOOL ? BSR_MASK_MUL : (int)bt_below(2);
        for (i = 0; i < 5 && !o.attn_mode && masked != BSR_I8; i++)
            t_set(&am, 0, bt_below(x.rows), bt_below(x.cols), -(double)INFINITY);
        if (bt_below(2)) o.relative_bias = &rel;
        if (bt_below(2)) o.key_padding_mask = &kp;
        if (bt_below(2) || !(o.relative_bias || o.key_padding_mask)) o.attn_mask = &am;
        for (twice = 0; twice < 1 + (y.dtype == x.dtype); twice++) { /* in place */
            if (twice) bt_mark_output(x.values);
            run_softmax(t_any_context(), 0.5, &x, &o, twice ? &x : &y, 0, REF_MAY_BE_ZERO);
        }
    }
}

/* Rows with nothing, rows of -inf, +inf, NaN, large scores, in place. */
TEST(edges) {
    int t, isa;
    for (t = 0; t < 4; t++)
        for (isa = 1; isa <= 3; isa++) {
            t_spec s;
            bsr_matrix x, y;
            bsr_dense kp;
            bsr_softmax_options o;
            bsr_exec e = t_exec(0);
            ref_result want;
            const bsr_context *ctx = t_context(isa);
            int64_t p, i, j;
            double inf = (double)INFINITY;
            if (!ctx) {
                bt_case("isa %d", isa), bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            bt_case("a row of -inf gives zeros: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s = t_spec_of(dtypes[t], 4, 5, 3, 4, 8);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            for (p = 0; p < x.nnz; p++)
                for (j = 0; j < 5; j++)
                    t_store(x.values, x.dtype, t_value_at(&x, 0, p, 1, j), -inf),
                        t_store(x.values, x.dtype, t_value_at(&x, 0, p, 2, j), j == 3 ? 1.0 : -inf);
            run_softmax(ctx, 1, &x, NULL, &y, 0, 0);
            for (p = 0; p < x.nnz; p++)
                for (j = 0; j < 5; j++) CHECK(t_load(y.values, y.dtype, t_value_at(&y, 0, p, 1, j)) == 0);
            bt_case("everything masked gives zeros: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            kp = t_dense(BSR_BOOL, 1, x.cols, ROW, NO_BATCH, 0), memset(kp.data, 0, (size_t)x.cols);
            memset(&o, 0, sizeof o);
            o.key_padding_mask = &kp, o.key_padding_mode = BSR_MASK_MUL;
            run_softmax(ctx, 1, &x, &o, &y, 0, REF_ALL_ZERO);
            bt_case("NaN spreads over its row alone: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            t_store(x.values, x.dtype, t_value_at(&x, 0, 3, 2, 4), (double)NAN);
            run_softmax(ctx, 2, &x, NULL, &y, 0, 0);
            bt_case("forbidden values do not count, others' NaN and inf do: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            kp = t_dense(BSR_BOOL, 1, x.cols, ROW, NO_BATCH, 0), memset(kp.data, 1, (size_t)x.cols);
            memset(&o, 0, sizeof o), o.key_padding_mask = &kp, o.key_padding_mode = BSR_MASK_MUL;
            for (j = 0; j < x.cols; j += 5) t_set(&kp, 0, 0, j, 0); /* the first column of each block */
            for (p = 0; p < x.nnz; p++) {
                t_store(x.values, x.dtype, t_value_at(&x, 0, p, 0, 0), (double)NAN);
                t_store(x.values, x.dtype, t_value_at(&x, 0, p, 1, 3), (double)NAN);
                t_store(x.values, x.dtype, t_value_at(&x, 0, p, 2, 4), inf);
            }
            bt_mark_output(y.values);
            if (RUN_OK(bsr_softmax(ctx, 1, &x, &o, &y, &e)))
                for (p = 0; p < x.nnz; p++)
                    for (i = 0; i < 4; i++)
                        for (j = 0; j < 5; j++) {
                            double v = t_load(y.values, y.dtype, t_value_at(&y, 0, p, i, j));
                            CHECK(i == 1 || i == 2 ? v != v : j == 0 ? v == 0 : v > 0 && v < 1.01);
                        }
            bt_case("large scores do not overflow: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            for (p = 0; p < x.nnz; p++)
                for (i = 0; i < 4; i++)
                    for (j = 0; j < 5; j++)
                        t_store(x.values, x.dtype, t_value_at(&x, 0, p, i, j),
                                (double)(10000 + 8 * ((p + i + j) % 5)) * (i % 2 ? -1 : 1));
            run_softmax(ctx, 1, &x, NULL, &y, 0, 0);
            bt_case("in place: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.layout = isa;
            x = t_matrix(&s), y = x, bt_mark_output(x.values);
            run_softmax(ctx, 1, &x, NULL, &y, 0, 0);
            bt_case("no blocks: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.nnz = 0, x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
            run_softmax(ctx, 1, &x, NULL, &y, 0, 0);
            bt_case("backward in place: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.nnz = 9, s.kind = FILL_POSITIVE, x = t_matrix(&s), y = x, t_make_values(&y, dtypes[t], PACKED, 0),
            t_fill_values(&y, FILL_SIGNED);
            want = ref_softmax_backward(-1.5, &x, &y);
            bt_mark_output(y.values);
            if (RUN_OK(bsr_softmax_backward(ctx, -1.5, &x, &y, &y, &e))) REF_COMPARE_MATRIX(&y, &want, 0);
        }
}

/* What forbids, in its own type and whatever else there is: a zero of either sign does, the least number of a type does not; an
   addition of -inf does, also to NaN; what a multiplied mask forbids no NaN that is added brings back. Scores are 0. */
TEST(mask_corners) {
    static const double least[] = {1e-300, 0x1p-149, 0x1p-24};
    static const int types[] = {BSR_F64, BSR_F32, BSR_F16};
    int t, form, isa;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 5; form++)
            for (isa = 1; isa <= 3; isa++) {
                t_spec s;
                bsr_matrix x, y;
                bsr_dense kp, rel;
                bsr_softmax_options o;
                bsr_exec e = t_exec(0);
                int64_t p, i, j;
                bt_case("%s, form %d, isa %d", bsr_dtype_name(dtypes[t]), form, isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(dtypes[t], 4, 8, 2, 20, 40), x = t_matrix(&s), y = t_matrix_output(&x, dtypes[t], PACKED);
                kp = t_dense(form < 3 ? types[form] : BSR_BOOL, 1, x.cols, ROW, NO_BATCH, 0);
                rel = t_dense(dtypes[t], x.rows, x.cols, ROW, NO_BATCH, 0), memset(&o, 0, sizeof o);
                for (j = 0; j < x.cols; j++) {
                    const int no = j % 4 == 1, some = j % 4 == 2;
                    t_set(&kp, 0, 0, j, no ? -0.0 : some && form < 3 ? least[form] : 1.0);
                    for (i = 0; i < x.rows; i++) t_set(&rel, 0, i, j, !no ? 0 : form == 3 ? -(double)INFINITY : (double)NAN);
                }
                for (p = 0; p < x.nnz; p++)
                    for (i = 0; i < 4; i++)
                        for (j = 0; j < 8; j++)
                            t_store(x.values, x.dtype, t_value_at(&x, 0, p, i, j), j % 4 == 1 && form < 4 ? (double)NAN : 0);
                o.key_padding_mode = BSR_MASK_MUL;
                if (form != 3) o.key_padding_mask = &kp;
                if (form == 3) o.relative_bias = &rel;
                if (form == 4) o.attn_mask = &rel;
                if (!RUN_OK(bsr_softmax(t_context(isa), 1, &x, &o, &y, &e))) continue;
                for (p = 0; p < y.nnz; p++)
                    for (i = 0; i < 4; i++)
                        for (j = 0; j < 8; j++)
                            CHECK_NEAR(t_load(y.values, y.dtype, t_value_at(&y, 0, p, i, j)), j % 4 == 1 ? 0 : 1.0 / 120, 1e-4);
            }
}

/* Shifting a row by a constant changes nothing; rows add up to 1. */
TEST(metamorphic) {
    int k;
    for (k = 0; k < 40; k++) {
        t_spec s;
        bsr_matrix x, y;
        bsr_exec e = t_exec(0);
        int64_t r, p, i, j;
        bt_case("%d", k);
        s = t_spec_of(k % 2 ? BSR_F64 : BSR_F32, bt_range(1, 20), bt_range(1, 20), 4, 4, 10);
        x = t_matrix(&s), y = t_matrix_output(&x, s.dtype, PACKED);
        if (!RUN_OK(bsr_softmax(t_any_context(), 3, &x, NULL, &y, &e))) continue;
        for (r = 0; r < 4; r++)
            for (i = 0; i < x.block_rows && t_crow(&y, 0, r) < t_crow(&y, 0, r + 1); i++) {
                double sum = 0;
                for (p = t_crow(&y, 0, r); p < t_crow(&y, 0, r + 1); p++)
                    for (j = 0; j < x.block_cols; j++) sum += t_load(y.values, y.dtype, t_value_at(&y, 0, p, i, j));
                CHECK_NEAR(sum, 1, s.dtype == BSR_F64 ? 0x1p-46 : 0x1p-18);
            }
    }
}

TEST(backward) {
    int k;
    for (k = 0; k < 200; k++) {
        t_spec s;
        bsr_matrix y, dy, dx;
        bsr_exec e = t_exec(0);
        ref_result want;
        double scale;
        int t = k % 4, out;
        bt_case("%d", k);
        s = t_spec_of(dtypes[t], bt_range(1, 20), bt_range(1, 20), bt_range(1, 4), bt_range(1, 4), bt_range(1, 9));
        s.batch = t_batch((int)bt_below(3), 2, 3, 0, 0), s.shared_pattern = (unsigned)bt_below(4), s.ragged = bt_below(3) == 0;
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_POSITIVE;
        y = t_matrix(&s), dy = y, t_make_values(&dy, dtypes[t], (int)bt_below(BLOCKS_LAYOUTS), 0),
        t_fill_values(&dy, FILL_SIGNED);
        out = dtypes[t] == BSR_F64 || bt_below(2) ? dtypes[t] : dtypes[(2 + bt_below(3)) % 4];
        dx = t_matrix_output(&y, out, (int)bt_below(BLOCKS_LAYOUTS)), scale = t_draw(FILL_SIGNED, BSR_F64);
        want = ref_softmax_backward(scale, &y, &dy);
        if (RUN_OK(bsr_softmax_backward(t_any_context(), scale, &y, &dy, &dx, &e)))
            REF_COMPARE_MATRIX(&dx, &want, 0);
    }
}
/* Gradients of every type from results of every type: packed values in pieces of 16 bytes, and where sizes are equal in place of
   the gradient, of the result, and of one that is both. */
TEST(backward_types) {
    static const int types[] = {BSR_F32, BSR_F16, BSR_BF16};
    int t, out, packed, place;
    for (t = 0; t < 3; t++)
        for (out = 0; out < 3; out++)
            for (packed = 0; packed < 2; packed++) {
                const int same = bsr_dtype_size(types[out]) == bsr_dtype_size(types[t]);
                for (place = 0; place < (same ? 4 : 1); place++) { /* rows longer than a chunk */
                    t_spec s = t_spec_of(types[t], 16, 16, 3, 80, 230);
                    bsr_matrix y, dy, dx;
                    bsr_exec e = t_exec(0);
                    ref_result want;
                    bt_case("%s to %s, %d, in place %d", bsr_dtype_name(types[t]), bsr_dtype_name(types[out]), packed, place);
                    s.kind = FILL_POSITIVE, s.layout = packed ? PACKED : BLOCKS_COL;
                    y = t_matrix(&s), dy = y;
                    if (place < 3) t_make_values(&dy, types[t], s.layout, 0), t_fill_values(&dy, FILL_SIGNED);
                    want = ref_softmax_backward(0.5, &y, &dy), dx = place == 1 ? dy : y;
                    if (!place) dx = t_matrix_output(&y, types[out], s.layout);
                    dx.dtype = types[out], bt_mark_output(dx.values);
                    if (RUN_OK(bsr_softmax_backward(t_any_context(), 0.5, &y, &dy, &dx, &e))) REF_COMPARE_MATRIX(&dx, &want, 0);
                }
            }
}
/* The backward is the derivative of the forward. */
TEST(backward_finite) {
    int k;
    for (k = 0; k < 30; k++) {
        t_spec s;
        bsr_matrix x, y, dy, dx;
        bsr_exec e = t_exec(0);
        double loss[2], keep, h = 0x1p-16, scale = 0.7, *at;
        int64_t p, i, j;
        int sign;
        bt_case("%d", k);
        s = t_spec_of(BSR_F64, bt_range(1, 5), bt_range(1, 5), 3, 3, 5);
        x = t_matrix(&s), y = t_matrix_output(&x, BSR_F64, PACKED), dx = t_matrix_output(&x, BSR_F64, PACKED);
        dy = x, t_make_values(&dy, BSR_F64, PACKED, 0), t_fill_values(&dy, FILL_SIGNED), bt_mark_output(x.values);
        RUN_OK(bsr_softmax(t_any_context(), scale, &x, NULL, &y, &e));
        RUN_OK(bsr_softmax_backward(t_any_context(), scale, &y, &dy, &dx, &e));
        at = (double *)x.values + bt_below(x.block_rows * x.block_cols * x.nnz), keep = *at;
        for (sign = 0; sign < 2; sign++) {
            *at = keep + (sign ? h : -h), loss[sign] = 0;
            RUN_OK(bsr_softmax(t_any_context(), scale, &x, NULL, &y, &e));
            for (p = 0; p < x.nnz; p++)
                for (i = 0; i < x.block_rows; i++)
                    for (j = 0; j < x.block_cols; j++)
                        loss[sign] += t_load(y.values, BSR_F64, t_value_at(&y, 0, p, i, j)) *
                                      t_load(dy.values, BSR_F64, t_value_at(&dy, 0, p, i, j));
        }
        *at = keep;
        CHECK_NEAR((loss[1] - loss[0]) / (2 * h), t_load(dx.values, BSR_F64, at - (double *)x.values), 1e-8);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"upstream_softmax", upstream_softmax},
        {"upstream_long_row", upstream_long_row},
        {"long_rows", long_rows},
        {"upstream_deepspeed_softmax", upstream_deepspeed_softmax},
        {"documented_bound", documented_bound},
        {"options", options},
        {"packed_rows_with_masks", packed_rows_with_masks},
        {"edges", edges},
        {"mask_corners", mask_corners},
        {"metamorphic", metamorphic},
        {"backward", backward},
        {"backward_types", backward_types},
        {"backward_finite", backward_finite},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
