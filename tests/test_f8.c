/* test_f8.c: 8-bit floats, e4m3 and e5m2: conversions of every code and between them, products, sampled products, sums, lists,
   maps and matrices of them, against the float64 reference; who takes them and who refuses. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int eights[] = {BSR_E4M3, BSR_E5M2}, results[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_E4M3, BSR_E5M2};

/* out = a, by a product with 1 on the diagonal of one block, on each instruction set. */
static void copy_by_product(int isa, const bsr_dense *b, const bsr_dense *out, int dtype) {
    int32_t crow[] = {0, 1}, col[] = {0};
    double one[1];
    bsr_matrix a = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, one, dtype);
    t_store(one, dtype, 0, 1);
    CHECK_INT(bsr_dense_mm(t_context(isa), 0, &a, b, out, NULL), BSR_OK);
}
static double worst[2]; /* errors of long sums, as a part of all magnitudes: promoted, fast */
static int same_number(double got, double want) {
    return want != want ? got != got : got == want && !signbit(got) == !signbit(want);
}

/* All 256 codes to every result, stride 1 and others, every place in a vector. */
TEST(every_code) {
    enum { N = 256 + 37 };
    static uint8_t codes[2 * N];
    static double wide[N];
    int isa, t, r, i, step, bad;
    for (isa = 1; isa <= 3; isa++)
        for (t = 0; t < 2; t++)
            for (r = 0; r < 5; r++)
                for (step = 1; step <= 2; step++) {
                    bsr_dense b = bsr_dense_strided(codes, eights[t], 1, N, N * step, step);
                    bsr_dense o = bsr_dense_row_major(wide, results[r], 1, N);
                    bt_case("%s to %s, isa %d, stride %d", bsr_dtype_name(eights[t]), bsr_dtype_name(results[r]), isa, step);
                    if (!t_context(isa)) {
                        bt_skip("this instruction set is not in this build or machine");
                        continue;
                    }
                    for (i = 0; i < N; i++) codes[i * step] = (uint8_t)(i * 5 + 3);
                    memset(wide, 0x55, sizeof wide);
                    copy_by_product(isa, &b, &o, eights[t]);
                    for (i = 0, bad = 0; i < N; i++) {
                        const double v = t_decode8(codes[i * step], eights[t]), want = t_rounded(results[r], v);
                        const double got = t_load(wide, results[r], i);
                        if (!same_number(fabs(got), fabs(want)) || (want != 0 && want == want && signbit(got) != signbit(want)))
                            if (!bad++) bt_fail(__FILE__, __LINE__, "0x%02x gives %.9g, not %.9g", codes[i * step], got, want);
                    }
                }
}
/* From f32: numbers of the format, ties between two, next to ties, out of range, any bits; f64 by one rounding. */
TEST(rounding) {
    enum { N = 6000 };
    static float values[N];
    static uint8_t out[N];
    int isa, t, i, bad;
    for (isa = 1; isa <= 3; isa++)
        for (t = 0; t < 2; t++) {
            bsr_operand none = BSR_ZERO;
            bsr_matrix from, to;
            int32_t crow[] = {0, 2}, col[] = {0, 1};
            bt_case("f32 to %s, isa %d", bsr_dtype_name(eights[t]), isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            for (i = 0; i < N; i++) {
                const uint32_t bits = (uint32_t)bt_random();
                const double at = t_decode8((uint8_t)bt_below(0x7c), eights[t]), half = t_half_ulp(eights[t], at);
                const double by[] = {0, half, half * (1 + 0x1p-10), half * (1 - 0x1p-10), -half};
                if (i % 6 == 5) memcpy(&values[i], &bits, 4);
                else values[i] = (float)((at + by[i % 6]) * (i % 7 ? 1 : -1) * (i % 31 ? 1 : 1.0625));
            }
            values[0] = (float)INFINITY, values[1] = -(float)INFINITY, values[2] = (float)NAN, values[3] = FLT_MAX;
            values[4] = 464, values[5] = 465, values[6] = 61440, values[7] = 61441, values[8] = 0x1p-10f, values[9] = 0x1.8p-10f;
            values[10] = 0x1p-17f, values[11] = 0x1.8p-17f, values[12] = 0x1p-149f, values[13] = -0.0f;
            from = bsr_matrix_make(1, N, 1, N / 2, 2, crow, col, BSR_I32, values, BSR_F32), to = from;
            to.values = out, to.dtype = eights[t];
            memset(out, 0x55, sizeof out);
            CHECK_INT(bsr_map(t_context(isa), NULL, 1, &from, 0, none, &to, NULL), BSR_OK);
            for (i = 0, bad = 0; i < N; i++) {
                const double want = t_rounded(eights[t], (double)values[i]), got = t_decode8(out[i], eights[t]);
                if (!same_number(got, want) && !bad++)
                    bt_fail(__FILE__, __LINE__, "%.9g gives %.9g, not %.9g", (double)values[i], got, want);
            }
        }
}

/* Sums in f64 are rounded once: just above the middle of two numbers goes up, though f32 sees the middle. */
TEST(one_rounding) {
    int t, sign;
    for (t = 0; t < 2; t++)
        for (sign = -1; sign <= 1; sign += 2) {
            int32_t crow[] = {0, 1}, col[] = {0};
            uint8_t out[1];
            double from[1], half = t_half_ulp(eights[t], 1);
            bsr_operand none = BSR_ZERO;
            bsr_matrix x = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, from, BSR_F64), y = x;
            bt_case("%s, sign %d", bsr_dtype_name(eights[t]), sign);
            y.values = out, y.dtype = eights[t], from[0] = sign * (1 + half + 0x1p-40);
            CHECK_INT(bsr_map(t_any_context(), NULL, 1, &x, 0, none, &y, NULL), BSR_OK);
            CHECK_NEAR(t_decode8(out[0], eights[t]), sign * (1 + 2 * half), 0);
            from[0] = sign * (1 + half - 0x1p-40);
            CHECK_INT(bsr_map(t_any_context(), NULL, 1, &x, 0, none, &y, NULL), BSR_OK);
            CHECK_NEAR(t_decode8(out[0], eights[t]), sign * 1.0, 0);
        }
}

static bsr_matrix some_matrix(int dtype, int64_t br, int64_t bc, int64_t r, int64_t c, int64_t nnz, int kind, int repeats) {
    t_spec s = t_spec_of(dtype, br, bc, r, c, nnz);
    s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = kind, s.unsorted = bt_below(3) == 0;
    s.duplicates = repeats && bt_below(4) == 0;
    s.index_dtype = bt_below(2) ? BSR_I64 : BSR_I32;
    return t_matrix(&s);
}
/* All four mixes, every result, block sizes on and off the vectors, columns from one up, both directions, epilogues. */
TEST(products) {
    static const int64_t sides[] = {1, 2, 3, 4, 7, 8, 13, 16, 17, 32, 33, 64}, widths[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 65};
    static const int inputs[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_E4M3, BSR_E5M2};
    int k;
    for (k = 0; k < 900; k++) {
        const int a_type = eights[k % 2], b_type = eights[k / 2 % 2], out_type = results[k / 4 % 5], trans = (int)bt_below(2);
        const int64_t br = sides[bt_below(12)], bc = bt_below(3) ? br : sides[bt_below(12)], n = widths[k / 20 % 11];
        const int64_t r = bt_range(1, 200 / br + 1), cols = bt_range(1, 200 / bc + 1);
        double alpha, beta;
        bsr_matrix a;
        bsr_dense b, out, input, left, right, bias;
        bsr_epilogue e;
        bsr_exec exec;
        ref_result want;
        bt_case("%d: %s x %s to %s, %lldx%lld, N %lld%s", k, bsr_dtype_name(a_type), bsr_dtype_name(b_type),
                bsr_dtype_name(out_type), (long long)br, (long long)bc, (long long)n, trans ? ", transposed" : "");
        a = some_matrix(a_type, br, bc, r, cols, bt_range(0, r * cols), bt_below(4) ? FILL_SIGNED : FILL_WIDE, 1);
        if (trans && bt_below(2)) t_attach_transposed(&a);
        b = t_random(b_type, trans ? a.rows : a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        out = t_output(out_type, trans ? a.cols : a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        input = t_random(inputs[bt_below(6)], out.rows, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        left = t_random(BSR_F32, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        right = t_random(BSR_F32, 1, n, ROW, NO_BATCH, 0, FILL_SIGNED);
        bias = t_random(BSR_F16, out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        memset(&e, 0, sizeof e);
        if (bt_below(2)) e.left_alpha = &left, e.right_alpha = &right; /* scales of rows and columns */
        if (bt_below(3) == 0) e.bias = &bias, e.activation = BSR_ACT_RELU;
        alpha = bt_below(2) ? 1 : bt_uniform() * 2 - 1, beta = bt_below(3) ? 0 : bt_uniform();
        exec = t_exec(bt_below(4) ? 0 : BSR_EXEC_ACCUMULATE_F64);
        want = ref_dense_addmm(beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, out_type, exec.flags);
        if (RUN_OK(bsr_dense_addmm(t_any_context(), beta, &input, alpha, trans ? BSR_TRANS_A : 0, &a, &b, &e, &out, &exec)))
            REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* What saturates: sums far beyond the largest, infinities among e5m2's operands, NaN; absent blocks meet none of it. */
TEST(saturation) {
    int t, isa;
    for (isa = 1; isa <= 3; isa++)
        for (t = 0; t < 2; t++) {
            int32_t crow[] = {0, 1, 2, 3, 4, 4}, col[] = {0, 0, 1, 2};
            float values[] = {1e9f, -3e4f, 1, 2};
            uint8_t a[4], b[3], out[5];
            const double top = t_format_of(eights[t]).largest;
            bsr_matrix m = bsr_matrix_make(5, 3, 1, 1, 4, crow, col, BSR_I32, a, BSR_E5M2);
            bsr_dense x = bsr_dense_row_major(b, BSR_E5M2, 3, 1), y = bsr_dense_row_major(out, eights[t], 5, 1);
            int i;
            bt_case("%s, isa %d", bsr_dtype_name(eights[t]), isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            for (i = 0; i < 4; i++) t_store(a, BSR_E5M2, i, (double)values[i]);
            t_store(b, BSR_E5M2, 0, 5e4), b[1] = 0x7c, b[2] = 0x7e; /* Inf, NaN */
            memset(out, 0x11, sizeof out);
            CHECK_INT(bsr_dense_mm(t_context(isa), 0, &m, &x, &y, NULL), BSR_OK);
            CHECK_NEAR(t_load(out, eights[t], 0), top, 0);
            CHECK_NEAR(t_load(out, eights[t], 1), -top, 0);
            CHECK_NEAR(t_load(out, eights[t], 2), top, 0);
            CHECK(isnan(t_load(out, eights[t], 3)));
            CHECK_INT(out[4], 0);
        }
}
TEST(sampled_products) {
    int k;
    for (k = 0; k < 250; k++) {
        const int a_type = eights[k % 2], b_type = eights[k / 2 % 2], out_type = results[k / 4 % 5];
        const int64_t br = bt_range(1, 40), bc = bt_below(2) ? br : bt_range(1, 40), inner = bt_range(0, 90);
        bsr_matrix input, out;
        bsr_dense mat1, mat2;
        bsr_exec exec = t_exec(0);
        ref_result want;
        t_shape none = NO_BATCH;
        double beta = bt_below(2) ? 0 : bt_uniform();
        bt_case("%d: %s x %s to %s, %lldx%lld, K %lld", k, bsr_dtype_name(a_type), bsr_dtype_name(b_type),
                bsr_dtype_name(out_type), (long long)br, (long long)bc, (long long)inner);
        input = some_matrix(results[bt_below(5)], br, bc, 3, 4, bt_range(0, 12), FILL_SIGNED, 0);
        out = t_matrix_output(&input, out_type, (int)bt_below(BLOCKS_LAYOUTS));
        mat1 = t_random(a_type, input.rows, inner, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        mat2 = t_random(b_type, inner, input.cols, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        want = ref_sampled(beta, &input, 0.75, &mat1, &mat2, none, none, out_type, 0);
        if (RUN_OK(bsr_sampled_addmm(t_any_context(), beta, &input, 0.75, &mat1, &mat2, &out, &exec)))
            REF_COMPARE_MATRIX(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Two terms, the types of whose dense operands differ; alike in all else, or not. */
TEST(sums_of_products) {
    int k;
    for (k = 0; k < 60; k++) {
        const int64_t br = bt_range(1, 20), n = bt_range(1, 40);
        const int alike = (int)bt_below(2);
        int64_t bc = bt_range(1, 20);
        int layout = (int)bt_below(LAYOUTS);
        bsr_matrix a[2];
        bsr_dense b[2], out;
        bsr_term terms[2];
        bsr_exec exec = t_exec(0);
        ref_result want;
        int t;
        bt_case("%d", k);
        out = t_output(results[k % 5], br * 3, n, (int)bt_below(LAYOUTS), NO_BATCH);
        memset(terms, 0, sizeof terms);
        for (t = 0; t < 2; t++) {
            if (t && !alike) bc = bt_range(1, 20), layout = (int)bt_below(LAYOUTS);
            a[t] = some_matrix(eights[k / 5 % 2], br, bc, 3, 3, bt_range(1, 9), FILL_SIGNED, 1);
            b[t] = t_random(eights[t], a[t].cols, n, layout, NO_BATCH, 0, FILL_SIGNED);
            terms[t].a = &a[t], terms[t].b = &b[t], terms[t].alpha = t && !alike ? -0.5 : 1;
        }
        want = ref_sum_mm(0, NULL, terms, 2, NULL, out.dtype, 0);
        if (RUN_OK(bsr_sum_mm(t_any_context(), 0, NULL, terms, 2, NULL, &out, &exec))) REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}
/* Dense to matrix, pruned, to another block size, entries, and back: numbers stay, others are rounded once. */
TEST(matrices) {
    int t, r, k;
    for (t = 0; t < 2; t++)
        for (r = 0; r < 5; r++)
            for (k = 0; k < 6; k++) {
                const int64_t br = bt_range(1, 9), bc = bt_range(1, 9), rows = br * 4, cols = bc * 5;
                bsr_dense d, back, again;
                int64_t crow[64], col[64], i, j;
                uint8_t *values;
                bsr_matrix m;
                bsr_exec exec;
                bt_case("%s from %s, %d", bsr_dtype_name(eights[t]), bsr_dtype_name(results[r]), k);
                d = t_random(results[r], rows, cols, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_WIDE);
                back = t_output(BSR_F32, rows, cols, ROW, NO_BATCH), again = t_output(eights[t], rows, cols, COL, NO_BATCH);
                values = (uint8_t *)bt_alloc((size_t)(rows * cols), 1), bt_mark_output(values), exec = t_exec(0);
                m = bsr_matrix_make(rows, cols, br, bc, 20, crow, col, BSR_I64, values, eights[t]);
                memset(values, 0x7f, (size_t)(rows * cols));
                if (!RUN_OK(bsr_from_dense(t_any_context(), &d, &m, &exec))) continue;
                if (!RUN_OK(bsr_to_dense(t_any_context(), &m, &back, &exec))) continue;
                if (!RUN_OK(bsr_to_dense(t_any_context(), &m, &again, &exec))) continue;
                for (i = 0; i < rows; i++)
                    for (j = 0; j < cols; j++) {
                        const double want = t_rounded(eights[t], t_get(&d, 0, i, j));
                        CHECK_NEAR(t_get(&back, 0, i, j), want, 0);
                        CHECK_NEAR(t_get(&again, 0, i, j), want, 0);
                    }
            }
}
/* Numbers of the test's own: as t_fill would make them, but fast. */
static void fill(void *data, int64_t count, int dtype, int positive) {
    uint8_t table[64];
    uint64_t bits = 0;
    int64_t i;
    for (i = 0; i < 64; i++) table[i] = t_encode8(t_draw(positive ? FILL_POSITIVE : FILL_SIGNED, dtype), dtype);
    for (i = 0; i < count; i++, bits >>= 6) {
        if (i % 10 == 0) bits = bt_random();
        ((uint8_t *)data)[i] = table[bits & 63];
    }
}
/* A sum against float64, within what the header promises; fast: it may stay in a tensor core. */
static void check_long_sum(const char *what, double got, double sum, double all, int64_t k, int fast) {
    const double step = 33.0 / 32 * 0x1p-13 * (double)(fast ? k : 128), error = fabs(got - sum) / all;
    const double bound = (double)(k + 2) * 0x1p-24 + (REF_F8_ERROR > 0 ? fmin(step, 1) : 0);
    bt.checks++;
    if (error > worst[fast]) worst[fast] = error;
    if (!(error <= bound)) bt_fail(__FILE__, __LINE__, "%s: %.9g, not %.9g: off by %.3g, not %.3g", what, got, sum, error, bound);
}
/* Long sums, of numbers above zero and of any: one row of blocks, and a sampled block of the same inner size. */
static void long_sum(int64_t k, int64_t block, int a_type, int b_type, int positive, int fast) {
    const int64_t cols = 16, n = 64;
    bsr_exec e = t_exec(fast ? BSR_EXEC_FAST_ACCUM : 0);
    t_spec s = t_spec_of(a_type, block, block, 1, k / block, k / block), one = t_spec_of(BSR_F32, n, n, 1, 1, 1);
    bsr_matrix a, c;
    bsr_dense b, out, mat1, mat2;
    int64_t i, j, x, way;
    s.kind = FILL_INTEGER, s.layout = PACKED, a = t_matrix(&s), fill(a.values, block * k, a_type, positive);
    one.layout = PACKED, c = t_matrix(&one), c = t_matrix_output(&c, BSR_F32, PACKED);
    b = bsr_dense_col_major(bt_alloc((size_t)(k * cols), 64), b_type, k, cols), fill(b.data, k * cols, b_type, positive);
    mat1 = bsr_dense_row_major(bt_alloc((size_t)(k * n), 64), a_type, n, k), fill(mat1.data, k * n, a_type, positive);
    mat2 = bsr_dense_col_major(bt_alloc((size_t)(k * n), 64), b_type, k, n), fill(mat2.data, k * n, b_type, positive);
    out = t_output(BSR_F32, block, cols, ROW, NO_BATCH);
    if (!RUN_OK(bsr_dense_mm(t_any_context(), 0, &a, &b, &out, &e))) return;
    if (!RUN_OK(bsr_sampled_addmm(t_any_context(), 0, NULL, 1, &mat1, &mat2, &c, &e))) return;
    for (i = 0; i < n && !bt.unwanted; i += 9)
        for (j = 0; j < cols; j += 5) {
            double sum[2] = {0, 0}, all[2] = {0, 0};
            for (x = 0; x < k; x++)
                for (way = 0; way < 2; way++) {
                    const int64_t at = t_value_at(&a, 0, x / block, i, x % block);
                    const int64_t row = t_col(&a, 0, x / block) * block + x % block;
                    const double p = way ? t_get(&mat1, 0, i, x) * t_get(&mat2, 0, x, j)
                                         : t_load(a.values, a_type, at) * t_get(&b, 0, row, j);
                    sum[way] += p, all[way] += fabs(p);
                }
            check_long_sum("product", t_get(&out, 0, i, j), sum[0], all[0], k, fast);
            check_long_sum("sampled product", t_load(c.values, BSR_F32, t_value_at(&c, 0, 0, i, j)), sum[1], all[1], k, fast);
        }
}
TEST(long_sums) {
    static const int64_t lengths[] = {128, 1024, 8192, 65536};
    int n, way, t, block;
    for (n = 0; n < 4; n++)
        for (way = 0; way < 4; way++)
            for (t = 0; t < (lengths[n] > 8192 ? 1 : 4); t++)
                for (block = 64; block <= 128; block *= 2) {
                    bt_case("%d products, %s, %s x %s, blocks of %d%s", (int)lengths[n],
                            way & 1 ? "above zero" : "of either sign",
                            bsr_dtype_name(eights[t % 2]), bsr_dtype_name(eights[t / 2]), block, way & 2 ? ", fast" : "");
                    long_sum(lengths[n], block, eights[t % 2], eights[t / 2], way & 1, way / 2);
                }
}
/* Who takes them, who refuses and how. */
TEST(who_takes_them) {
    const bsr_context *ctx = t_any_context();
    int32_t crow[] = {0, 1}, col[] = {0};
    uint8_t bytes[64];
    float floats[64];
    double doubles[16] = {0}; // f64 must stand at whole 8 bytes
    bsr_matrix a = bsr_matrix_make(4, 4, 4, 4, 1, crow, col, BSR_I32, bytes, BSR_E4M3), f = a;
    bsr_dense b = bsr_dense_row_major(bytes + 16, BSR_E5M2, 4, 4), y = bsr_dense_row_major(floats, BSR_F32, 4, 4);
    bsr_dense q = bsr_dense_row_major(bytes + 32, BSR_E4M3, 4, 4);
    bsr_error error;
    bsr_exec e = BSR_ZERO;
    e.error = &error, f.values = floats + 32, f.dtype = BSR_F32;
    memset(bytes, 0x38, sizeof bytes), memset(floats, 0, sizeof floats);
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &y, &e), BSR_OK);
    CHECK_NEAR((double)floats[0], 4 * t_decode8(0x38, BSR_E4M3) * t_decode8(0x38, BSR_E5M2), 0);
    b.dtype = BSR_I8;
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &y, &e), BSR_BAD_DTYPE), CHECK_INT(error.item, BSR_ITEM_DTYPE_MISMATCH);
    b.dtype = BSR_E4M3, y.dtype = BSR_F64;
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &y, &e), BSR_BAD_DTYPE), CHECK_INT(error.item, BSR_ITEM_DTYPE_OUT);
    y.dtype = BSR_F32, b = bsr_dense_row_major(doubles, BSR_F64, 4, 4);
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &y, &e), BSR_BAD_DTYPE);
    CHECK_INT(bsr_softmax(ctx, 1, &a, NULL, &f, &e), BSR_BAD_DTYPE);
    CHECK_INT(bsr_attention(ctx, 0, &q, &q, &q, &f, NULL, &y, NULL, &e), BSR_BAD_DTYPE);
    CHECK(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_E4M3, BSR_BF16, 64, 64));
    CHECK(bsr_supports(ctx, BSR_OP_SAMPLED_ADDMM, BSR_E5M2, BSR_E4M3, 64, 64));
    CHECK(bsr_supports(ctx, BSR_OP_FROM_DENSE, BSR_F32, BSR_E4M3, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_E4M3, BSR_F64, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_F16, BSR_E4M3, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_SOFTMAX, BSR_E4M3, BSR_F32, 64, 64));
    CHECK(!bsr_supports(ctx, BSR_OP_ATTENTION, BSR_E5M2, BSR_F32, 64, 64));
    CHECK_INT((int)bsr_dtype_size(BSR_E4M3), 1), CHECK_INT((int)bsr_dtype_size(BSR_E5M2), 1);
    CHECK(!strcmp(bsr_dtype_name(BSR_E4M3), "e4m3")), CHECK(!strcmp(bsr_dtype_name(BSR_E5M2), "e5m2"));
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"every_code", every_code},
        {"rounding", rounding},
        {"one_rounding", one_rounding},
        {"products", products},
        {"saturation", saturation},
        {"sampled_products", sampled_products},
        {"sums_of_products", sums_of_products},
        {"long_sums", long_sums},
        {"matrices", matrices},
        {"who_takes_them", who_takes_them},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose)
        printf("largest error / bound: %.3g; of long sums, of |A||B|: %.3g, fast %.3g\n", ref_worst, worst[0], worst[1]);
    t_contexts_end();
    return failed;
}
