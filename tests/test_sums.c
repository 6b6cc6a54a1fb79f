/* test_sums.c: sums of products (bsr_sum_mm) against the float64 reference: terms with blocks, inner sizes, layouts, patterns and
   directions of their own, all types, epilogues, batches; what is never read; one rounding; the same bits for any threads. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};

typedef struct sum {
    bsr_term terms[BSR_TERMS_MAX];
    bsr_matrix a[BSR_TERMS_MAX];
    bsr_dense b[BSR_TERMS_MAX], out;
    int64_t count, rows, n;
    t_shape batch;
    int dtype, once; /* once: no block twice; of two and Inf the reference has one product */
} sum;
static sum sum_new(int dtype, int64_t rows, int64_t n) {
    sum s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.rows = rows, s.n = n, s.batch = NO_BATCH;
    return s;
}
/* A term of its own kind: blocks of br rows of out and bc products, `across` of them beside each other. */
static void sum_add(sum *s, int64_t br, int64_t bc, int64_t across, int percent, int trans, double alpha, t_shape batch) {
    const int64_t t = s->count++, down = s->rows / br;
    t_shape narrow = batch;
    int i;
    t_spec m = t_spec_of(s->dtype, trans ? bc : br, trans ? br : bc, trans ? across : down, trans ? down : across, 0);
    m.nnz = m.r * m.c * percent / 100, m.layout = (int)bt_below(BLOCKS_LAYOUTS), m.kind = FILL_SIGNED;
    for (i = 0; i < batch.dims; i++)
        if (bt_below(3) == 0) narrow.n[i] = 1;
    m.unsorted = bt_below(3) == 0, m.duplicates = !s->once && bt_below(4) == 0, m.batch = narrow;
    m.ragged = batch.dims && bt_below(2), m.shared_pattern = m.ragged ? 0 : (unsigned)bt_below(4);
    s->a[t] = t_matrix(&m);
    if (trans) t_attach_transposed(&s->a[t]);
    s->b[t] = t_random(s->dtype, bc * across, s->n, (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
    s->terms[t].alpha = alpha, s->terms[t].trans = trans ? BSR_TRANS_A : 0;
}
static void sum_point(sum *s) {
    int64_t t;
    for (t = 0; t < s->count; t++) s->terms[t].a = &s->a[t], s->terms[t].b = &s->b[t];
}
static void sum_check(sum *s, double beta, const bsr_dense *input, const bsr_epilogue *e, int out_type, unsigned flags,
                      int zeros) {
    bsr_exec x = t_exec(flags);
    ref_result want;
    sum_point(s);
    s->out = t_output(out_type, s->rows, s->n, (int)bt_below(LAYOUTS), s->batch);
    want = ref_sum_mm(beta, input, s->terms, s->count, e, out_type, flags);
    if (RUN_OK(bsr_sum_mm(t_any_context(), beta, input, s->terms, s->count, e, &s->out, &x))) REF_COMPARE(&s->out, &want, zeros);
}
static int result_of(int dtype) {
    static const int of_bytes[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16, BSR_F16};
    if (dtype == BSR_I8) return of_bytes[bt_below(5)];
    return dtype != BSR_F64 && bt_below(3) == 0 ? (int)BSR_F32 : dtype;
}
static double factor_of(int out_type) { return t_is_float(out_type) ? bt_uniform() * 2 - 1 : (double)bt_range(-3, 3); }

/* Every number of terms; blocks that share no row boundary but out's ends; both directions. */
TEST(terms_of_all_kinds) {
    static const int64_t rows[] = {1, 7, 12, 30, 48, 64, 96, 128, 210, 240},
                         columns[] = {1, 2, 3, 8, 15, 16, 17, 33, 64, 65, 130};
    int d, turn;
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 40; turn++) {
            const int64_t m = rows[bt_below(10)], n = columns[bt_below(11)], count = 1 + turn % BSR_TERMS_MAX;
            const int out_type = result_of(dtypes[d]), one_alpha = (int)bt_below(2);
            const double alpha = factor_of(out_type);
            sum s;
            int64_t t;
            bt_case("%s to %s, %d rows, %d columns, %d terms", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), (int)m,
                    (int)n, (int)count);
            s = sum_new(dtypes[d], m, n);
            for (t = 0; t < count; t++) {
                int64_t br = bt_range(1, m);
                while (m % br) br--;
                sum_add(&s, br, bt_range(1, bt_below(3) ? 20 : 90), bt_range(0, 4), bt_below(5) ? (int)bt_range(20, 100) : 0,
                        (int)bt_below(2), one_alpha ? alpha : factor_of(out_type), NO_BATCH);
            }
            sum_check(&s, 0, NULL, NULL, out_type, 0, REF_ANY);
        }
}
/* What an epilogue has, over all combinations; and that it is applied once, to the sum. */
TEST(epilogues) {
    int d, has, way;
    for (d = 0; d < 5; d++)
        for (has = 0; has < 64; has++)
            for (way = 0; way < 2; way++) {
                const int out_type = result_of(dtypes[d]), whole = !t_is_float(out_type), side = whole ? (int)BSR_I32 : out_type;
                bsr_dense input, left, right, bias;
                bsr_epilogue e;
                double *by_pointer, beta;
                sum s;
                int t;
                bt_case("%s to %s, epilogue %d, alphas %d", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), has, way);
                by_pointer = (double *)bt_alloc(16, 8);
                s = sum_new(dtypes[d], 24, bt_below(2) ? 20 : 3), s.batch = bt_below(3) ? NO_BATCH : t_batch(1, 2, 0, 0, 0);
                for (t = 0; t < 3; t++)
                    sum_add(&s, t == 1 ? 8 : 4, 3 + t, 3, 70, t == 2, way ? factor_of(out_type) : 2, t ? NO_BATCH : s.batch);
                memset(&e, 0, sizeof e);
                input = t_random(out_type, 24, s.n, (int)bt_below(LAYOUTS), s.batch, 0, FILL_SIGNED);
                left = t_random(side, 24, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                right = t_random(side, 1, s.n, ROW, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(side, bt_below(2) ? 24 : 1, s.n, ROW, s.batch, 0, FILL_SIGNED);
                by_pointer[0] = whole ? 3 : 0.75, by_pointer[1] = whole ? 2 : 0.5;
                if (has & 1) e.left_alpha = &left;
                if (has & 2) e.right_alpha = &right;
                if (has & 4) e.bias = &bias;
                if (has & 8 && !whole) e.activation = 1 + (int32_t)bt_below(4);
                if (has & 16) e.alpha_ptr = by_pointer;
                if (has & 32) e.beta_ptr = by_pointer + 1;
                beta = bt_below(2) || has & 32 ? whole ? 2 : 0.25 : 0;
                sum_check(&s, beta, &input, &e, out_type, dtypes[d] != BSR_I8 && bt_below(4) == 0 ? BSR_EXEC_ACCUMULATE_F64 : 0,
                          0);
            }
}
TEST(batches) {
    int d, turn, t;
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 30; turn++) {
            const int out_type = result_of(dtypes[d]);
            sum s;
            bt_case("%s to %s, turn %d", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), turn);
            s = sum_new(dtypes[d], 16, 1 + (int64_t)bt_below(40));
            s.batch = t_batch((int)bt_range(1, 4), bt_range(1, 2), bt_range(1, 2), bt_range(1, 3), 2);
            for (t = 0; t < 3; t++) {
                t_shape own = s.batch;
                int i;
                for (i = 0; i < own.dims && t; i++)
                    if (bt_below(2)) own.n[i] = 1;
                sum_add(&s, 4 << t % 2, 5, 2, 60, t == turn % 3, t == 2 ? -1 : 1, own);
            }
            sum_check(&s, 0, NULL, NULL, out_type, 0, REF_MAY_BE_ZERO);
        }
}
/* One product each, then all: terms alike in everything but their numbers, as kernels take them together. */
TEST(terms_alike) {
    static const int64_t blocks[] = {1, 2, 3, 8, 16, 32, 48, 64, 128}, columns[] = {1, 8, 16, 40, 64, 192};
    int d, k, c, trans;
    for (d = 0; d < 5; d++)
        for (k = 0; k < 9; k++)
            for (c = 0; c < 6; c++)
                for (trans = 0; trans < 2; trans++) {
                    const int64_t b = blocks[k], down = bt_range(1, b > 32 ? 3 : 6), across = bt_range(1, b > 32 ? 4 : 8);
                    const int count = bt_below(3) ? 2 : (int)bt_range(3, BSR_TERMS_MAX), own = (int)bt_below(3) == 0;
                    const int layout = (int)bt_below(3) ? (int)bt_below(2) : (int)bt_below(LAYOUTS);
                    const int index = bt_below(3) ? BSR_I32 : BSR_I64, packed = bt_below(3) > 0;
                    sum s;
                    int t;
                    bt_case("%s, blocks of %d, %d columns%s, %d terms", bsr_dtype_name(dtypes[d]), (int)b, (int)columns[c],
                            trans ? ", A^T" : "", count);
                    s = sum_new(dtypes[d], b * down, columns[c]);
                    s.batch = b < 64 && bt_below(4) == 0 ? t_batch(1, 2, 0, 0, 0) : NO_BATCH;
                    for (t = 0; t < count; t++) {
                        const int64_t wide = own && t ? across + t : across;
                        t_spec m = t_spec_of(dtypes[d], b, b, trans ? wide : down, trans ? down : wide, 0);
                        m.nnz = down * wide * (own && t == 1 ? 30 : 60) / 100, m.index_dtype = index;
                        m.layout = packed ? PACKED : BLOCKS_GAPS, m.kind = FILL_SIGNED;
                        s.a[t] = t_matrix(&m), s.count++;
                        if (trans) t_attach_transposed(&s.a[t]);
                        s.b[t] = t_random(dtypes[d], b * wide, s.n, layout, s.batch, 0, FILL_SIGNED);
                        s.terms[t].alpha = d < 4 ? 0.5 : 2, s.terms[t].trans = trans ? BSR_TRANS_A : 0;
                    }
                    sum_check(&s, 0, NULL, NULL, result_of(dtypes[d]), 0, REF_MAY_BE_ZERO);
                }
}
/* A dense matrix in place: its rows are the blocks. */
TEST(dense_as_blocks) {
    int d;
    for (d = 0; d < 5; d++) {
        const int64_t m = 24, k = 10, ld = 13;
        int32_t *crow, *col;
        bsr_dense whole;
        sum s;
        int i;
        bt_case("%s", bsr_dtype_name(dtypes[d]));
        s = sum_new(dtypes[d], m, 20);
        sum_add(&s, 8, 8, 4, 50, 0, 1, NO_BATCH);
        whole = t_random(dtypes[d], m, ld, ROW, NO_BATCH, 0, FILL_SIGNED);
        crow = (int32_t *)bt_alloc(4 * 4, 4), col = (int32_t *)bt_alloc(3 * 4, 4);
        for (i = 0; i < 4; i++) crow[i] = i;
        memset(col, 0, 12);
        s.a[1] = bsr_matrix_make(m, k, 8, k, 3, crow, col, BSR_I32, whole.data, dtypes[d]);
        s.a[1].value_strides[0] = 8 * ld, s.a[1].value_strides[1] = ld, s.a[1].value_strides[2] = 1;
        s.b[1] = t_random(dtypes[d], k, 20, ROW, NO_BATCH, 0, FILL_SIGNED), s.terms[1].alpha = 1, s.count = 2;
        sum_check(&s, 0, NULL, NULL, dtypes[d] == BSR_I8 ? (int)BSR_I32 : dtypes[d], 0, 0);
    }
}
static void fill_with(void *data, int dtype, double v) {
    const bt_block *block = bt_find(data);
    size_t i;
    for (i = 0; block && i < block->bytes / bsr_dtype_size(dtype); i++) t_store(data, dtype, (int64_t)i, v);
}
/* Terms with alpha 0 hold NaN; of all of them, the epilogue is left. */
TEST(alpha_zero_is_not_read) {
    int d, dead, all, t;
    for (d = 0; d < 4; d++)
        for (dead = 0; dead < 3; dead++)
            for (all = 0; all < 2; all++) {
                bsr_epilogue e;
                bsr_dense input, bias;
                sum s;
                bt_case("%s, term %d, all %d", bsr_dtype_name(dtypes[d]), dead, all);
                s = sum_new(dtypes[d], 32, 17);
                for (t = 0; t < 3; t++) sum_add(&s, 16, 16, 3, 80, t == 1, all || t == dead ? 0 : 1, NO_BATCH);
                for (t = 0; t < 3; t++)
                    if (s.terms[t].alpha == 0)
                        fill_with(s.a[t].values, dtypes[d], (double)NAN), fill_with(s.b[t].data, dtypes[d], (double)NAN);
                memset(&e, 0, sizeof e);
                input = t_random(dtypes[d], 32, 17, ROW, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(dtypes[d], 32, 1, ROW, NO_BATCH, 0, FILL_SIGNED), e.bias = &bias;
                sum_point(&s);
                { /* the reference must not see them either */
                    bsr_term live[3];
                    bsr_exec x = t_exec(0);
                    ref_result want;
                    int64_t n = 0;
                    for (t = 0; t < 3; t++)
                        if (s.terms[t].alpha != 0) live[n++] = s.terms[t];
                    if (!n) live[n] = s.terms[0], live[n].a = NULL, n = 0;
                    s.out = t_output(dtypes[d], 32, 17, (int)bt_below(LAYOUTS), NO_BATCH);
                    if (n) want = ref_sum_mm(0.5, &input, live, n, &e, dtypes[d], 0);
                    else { /* a matrix without blocks */ t_spec none = t_spec_of(dtypes[d], 16, 16, 2, 3, 0);
                        const bsr_matrix nothing = t_matrix(&none);
                        const bsr_dense b = t_random(dtypes[d], 48, 17, ROW, NO_BATCH, 0, FILL_SIGNED);
                        want = ref_dense_addmm(0.5, &input, 1, 0, &nothing, &b, &e, dtypes[d], 0);
                    }
                    if (RUN_OK(bsr_sum_mm(t_any_context(), 0.5, &input, s.terms, 3, &e, &s.out, &x)))
                        REF_COMPARE(&s.out, &want, 0);
                }
            }
}
/* Inf beside stored blocks of a later term: other rows keep the sums of those before. */
TEST(infinite_rows) {
    static const int64_t sides[] = {5, 7, 10, 12, 20};
    int k;
    for (k = 0; k < 200; k++) {
        const int64_t side = sides[bt_below(5)], rows = side * 6;
        sum s = sum_new(dtypes[k % 4], rows, bt_range(1, 3));
        int64_t i, j, t;
        bt_case("%d: %s, blocks of %d, N %d", k, bsr_dtype_name(s.dtype), (int)side, (int)s.n);
        s.once = 1;
        for (t = 0; t < 3; t++) sum_add(&s, side, side, 6, 25, k / 4 % 2, 1, NO_BATCH);
        for (i = 0; i < side; i++)
            for (j = 0; j < s.n; j++) t_set(&s.b[1 + k % 2], 0, side * (k % 6) + i, j, (double)INFINITY);
        sum_check(&s, 0, NULL, NULL, s.dtype, 0, REF_MAY_BE_ZERO);
    }
}
/* 2049 and -2048 have a sum of 1, which is lost where either is rounded to a type of 16 bits first. */
TEST(rounded_once) {
    static const int types[] = {BSR_F16, BSR_BF16};
    static const double large[] = {2049, 257};
    int d, trans, n, t;
    for (d = 0; d < 2; d++)
        for (trans = 0; trans < 2; trans++)
            for (n = 1; n <= 64; n *= 4) {
                bsr_exec x = t_exec(0);
                sum s;
                int64_t i, j, wrong = 0;
                bt_case("%s, %d columns%s", bsr_dtype_name(types[d]), n, trans ? ", A^T" : "");
                s = sum_new(types[d], 32, n);
                for (t = 0; t < 3; t++) {
                    t_spec m = t_spec_of(types[d], 16, 16, 2, 2, 4);
                    s.a[t] = t_matrix(&m), s.count++;
                    if (trans) t_attach_transposed(&s.a[t]);
                    s.b[t] = t_random(types[d], 32, n, t ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                    s.terms[t].alpha = 1, s.terms[t].trans = trans ? BSR_TRANS_A : 0;
                    fill_with(s.a[t].values, types[d], t == 2 ? 0.03125 : 1), fill_with(s.b[t].data, types[d], 0);
                    for (j = 0; j < n; j++) /* 2048 + 1 - 2048 + 2^-5 */
                        for (i = 0; i < 3 - t; i++)
                            t_store(s.b[t].data, types[d], (i * s.b[t].row_stride + j * s.b[t].col_stride),
                                    t == 0   ? (i == 0 ? large[d] - 1 : i == 1)
                                    : t == 1 ? (i == 0 ? 1 - large[d] : 0)
                                             : 1);
                }
                sum_point(&s);
                s.out = t_output(types[d], 32, n, ROW, NO_BATCH);
                if (!RUN_OK(bsr_sum_mm(t_any_context(), 0, NULL, s.terms, 3, NULL, &s.out, &x))) continue;
                for (i = 0; i < 32; i++)
                    for (j = 0; j < n && BT_WANTED; j++) wrong += !(t_get(&s.out, 0, i, j) == 1.03125);
                CHECK_INT(wrong, 0);
            }
}
/* out may be its input exactly; two terms may be one, and share either side. */
TEST(same_operands) {
    int d;
    for (d = 0; d < 5; d++) {
        const int type = dtypes[d] == BSR_I8 ? (int)BSR_I32 : dtypes[d];
        bsr_exec x = t_exec(0);
        bsr_dense before;
        ref_result want;
        sum s;
        bt_case("%s", bsr_dtype_name(dtypes[d]));
        s = sum_new(dtypes[d], 48, 24);
        sum_add(&s, 16, 16, 3, 70, 0, 2, NO_BATCH), sum_add(&s, 16, 16, 3, 60, 0, 2, NO_BATCH);
        sum_point(&s);
        s.terms[2] = s.terms[0], s.terms[3] = s.terms[1], s.terms[3].a = s.terms[0].a, s.count = 4;
        s.out = t_random(type, 48, 24, ROW, NO_BATCH, 0, FILL_SIGNED), bt_mark_output(s.out.data);
        before = t_random(type, 48, 24, ROW, NO_BATCH, 0, FILL_SIGNED);
        memcpy(before.data, s.out.data, (size_t)(48 * 24) * bsr_dtype_size(type));
        want = ref_sum_mm(3, &before, s.terms, 4, NULL, type, 0);
        if (RUN_OK(bsr_sum_mm(t_any_context(), 3, &s.out, s.terms, 4, NULL, &s.out, &x))) REF_COMPARE(&s.out, &want, 0);
    }
}
#ifndef GM_BACKEND /* on the CPU alone */
TEST(same_bits_for_any_threads) {
    static const int threads[] = {1, 2, 3, 7};
    int d, turn, i;
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 4; turn++) {
            const int type = dtypes[d] == BSR_I8 ? (int)BSR_F32 : dtypes[d];
            bsr_dense out[4];
            sum s;
            bt_case("%s, %d", bsr_dtype_name(dtypes[d]), turn);
            s = sum_new(dtypes[d], 960, turn == 0 ? 1 : turn == 1 ? 9 : 150);
            sum_add(&s, 16, 16, 40, 30, 0, 1, NO_BATCH), sum_add(&s, 30, 7, 60, 30, 1, turn == 3 ? 0.5 : 1, NO_BATCH);
            sum_point(&s);
            for (i = 0; i < 4; i++) {
                bsr_context_desc desc;
                bsr_context *ctx;
                bsr_exec x = t_exec(0);
                memset(&desc, 0, sizeof desc);
                desc.backend = BSR_BACKEND_CPU, desc.threads = threads[i];
                CHECK_INT(bsr_create(&desc, &ctx, NULL), BSR_OK);
                out[i] = t_output(type, 960, s.n, ROW, NO_BATCH);
                if (!RUN_OK(bsr_sum_mm(ctx, 0, NULL, s.terms, 2, NULL, &out[i], &x))) i = 4;
                if (i && i < 4) CHECK(!memcmp(out[i].data, out[0].data, (size_t)(960 * s.n) * bsr_dtype_size(type)));
                bsr_destroy(ctx);
            }
        }
}
#endif

static const bt_test tests[] = {
    {"terms_of_all_kinds", terms_of_all_kinds},
    {"epilogues", epilogues},
    {"batches", batches},
    {"terms_alike", terms_alike},
    {"dense_as_blocks", dense_as_blocks},
    {"alpha_zero_is_not_read", alpha_zero_is_not_read},
    {"infinite_rows", infinite_rows},
    {"rounded_once", rounded_once},
    {"same_operands", same_operands},
#ifndef GM_BACKEND
    {"same_bits_for_any_threads", same_bits_for_any_threads},
#endif
};
int main(int argc, char **argv) {
    const int code = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return code;
}
