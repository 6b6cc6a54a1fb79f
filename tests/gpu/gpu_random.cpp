/* gpu_random.cpp: every operation at random, in each tier that takes it (plain products: random_products of gpu_test.cpp).
   Epilogues, sampled products, softmax and attention against the float64 reference; what is exact (products of whole numbers,
   conversions, views, findings of bsr_validate) against the CPU, bit for bit. --random N: how many; --seed S: which. */
#define GM_NO_REDIRECT
#include "mirror.h"
#include "../ref64.h"

static const bsr_context *cpu(void) { return t_context(BSR_ISA_DEFAULT); }
static const int floats[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_F64}, all[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_F64, BSR_I8};
/* One of n types, of those that a reduced build holds. */
static int type_of(const int *types, int64_t n, int64_t turn) {
    for (int64_t i = 0; i < n && !gm_compiled(types[turn % n]); i++) turn++;
    return types[turn % n];
}
static int a_float(int64_t turn) { return type_of(floats, 4, turn); }
static int a_type(int64_t turn) { return type_of(all, 5, turn); }
static int64_t one_of(int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t v[] = {a, b, c, d};
    return v[bt_below(4)];
}
/* Two thirds of the calls are such as fast kernels take. */
static bool easy;
static int some_layout(void) { return (int)bt_below(easy ? 4 : (int)LAYOUTS); }
static int some_blocks(void) { return easy && bt_below(4) ? (int)PACKED : (int)bt_below(easy ? 5 : (int)BLOCKS_LAYOUTS); }
static int64_t some_block(void) { return easy ? one_of(16, 32, 64, 128) : bt_range(1, 40); }
static t_shape some_batch(void) {
    return t_batch((int)(bt_below(2) ? 0 : bt_range(1, bt_below(3) ? 2 : 4)), bt_range(1, 3), bt_range(1, 2), 2, 2);
}
/* As `batch`, with a dimension of 1 here and there. */
static t_shape narrowed(t_shape batch) {
    for (int i = 0; i < batch.dims; i++)
        if (bt_below(3) == 0) batch.n[i] = 1;
    return batch;
}
/* A matrix of about `size` rows and columns at most. */
static t_spec some_spec(int type, int kind, int64_t size) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = type, s.kind = kind, s.index_dtype = bt_below(3) ? BSR_I32 : BSR_I64, s.batch = some_batch();
    s.block_rows = some_block(), s.block_cols = bt_below(8) ? s.block_rows : some_block(), s.layout = some_blocks();
    s.r = bt_range(bt_below(20) != 0, size / s.block_rows + 1), s.c = bt_range(bt_below(20) != 0, size / s.block_cols + 1);
    s.nnz = s.r * s.c * (bt_below(6) == 0 ? 100 : bt_below(6) == 0 ? 0 : bt_range(5, 90)) / 100;
    s.unsorted = bt_below(4) == 0, s.ragged = s.batch.dims && bt_below(2),
    s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(4);
    return s;
}
/* Many block rows, or many block columns: more than threads, words or lists of a kernel have in one round. */
static bool longer;
static void lengthen(t_spec *s, int turn) {
    if (!longer) return;
    s->block_rows = bt_range(1, 3), s->block_cols = bt_below(2) ? 4 : s->block_rows;
    s->r = turn & 1 ? bt_range(5000, 6000) : bt_range(1, 4), s->c = turn & 1 ? bt_range(1, 4) : bt_range(2500, 3000);
    s->nnz = s->r * s->c * bt_range(20, 100) / 100;
}
static void describe(const t_spec *s, const char *more) {
    bt_describe("%s, %d x %d blocks of %d x %d, %d stored, batch %d x %d of %d%s%s", bsr_dtype_name(s->dtype), (int)s->r,
                (int)s->c, (int)s->block_rows, (int)s->block_cols, (int)s->nnz, (int)s->batch.n[0], (int)s->batch.n[1],
                s->batch.dims, s->ragged ? ", ragged" : "", more);
}
static void poison(void *data) {
    const bt_block *b = bt_find(data);
    if (b) memset(b->data, BT_POISON, b->bytes);
}
/* The call in each tier, its output poisoned before; a tier that does not take it is left out by the mirror. */
template <class F, class C> static void each_tier(void *out, F call, C compare) {
    for (gm.tier = 0; gm.tier <= 3; gm.tier++) {
        bsr_exec e = t_exec(0);
        poison(out);
        if (RUN_OK(call(&e))) compare();
    }
    gm.tier = 0;
}
static void same_bytes(const char *what, const void *got, const void *want) {
    const bt_block *a = bt_find(got), *b = bt_find(want);
    if (!got && !want) return;
    size_t i = 0;
    bt.checks++;
    if (a->bytes != b->bytes) return bt_fail(__FILE__, __LINE__, "%s: %zu bytes, not %zu", what, a->bytes, b->bytes);
    while (i < a->bytes && a->data[i] == b->data[i]) i++;
    if (i < a->bytes)
        bt_fail(__FILE__, __LINE__, "%s, tier %d: byte %zu of %zu is %d, not %d", what, gm.tier, i, a->bytes, a->data[i],
                b->data[i]);
}

/* ---------------------------------------------------------------------------------------------- */
/* against the reference                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* Products with all that an epilogue has (random_products of gpu_test.cpp: exact ones, without the smooth activations). */
static void random_epilogue(int turn) {
    static const int of_bytes[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16, BSR_F16};
    static const int acts[] = {BSR_ACT_NONE,      BSR_ACT_RELU, BSR_ACT_GELU,          BSR_ACT_GELU_TANH,
                               BSR_ACT_GELU_TANH, BSR_ACT_SILU, BSR_EPILOGUE_tf_shift, BSR_EPILOGUE_tf_square};
    const int type = a_type(turn), wide = bt_below(4) || type == BSR_F64 ? type : (int)BSR_F32;
    const int out_type = type == BSR_I8 ? of_bytes[bt_below(5)] : wide, whole = !t_is_float(out_type);
    const int other = whole ? (int)BSR_I32 : out_type == BSR_F64 || bt_below(2) ? out_type : (int)BSR_F32;
    const int64_t n = easy ? 8 * bt_range(1, 36) : bt_range(1, 200);
    const uint32_t op = bt_below(3) ? 0 : BSR_TRANS_A;
    const unsigned has = (unsigned)bt_below(16), bias_row = (unsigned)bt_below(2);
    t_spec s = some_spec(type, FILL_SIGNED, 200);
    bsr_epilogue f = BSR_ZERO;
    s.batch = bt_below(3) ? NO_BATCH : s.batch, s.ragged = s.ragged && s.batch.dims;
    bsr_matrix a = t_matrix(&s);
    if (op && bt_below(4)) t_attach_transposed(&a);
    const int64_t rows = op ? a.cols : a.rows;
    bsr_dense b = t_random(type, op ? a.rows : a.cols, n, some_layout(), s.batch, 0, FILL_SIGNED);
    bsr_dense out = t_output(out_type, rows, n, some_layout(), s.batch);
    bsr_dense input = t_random(out_type, bt_below(4) ? rows : 1, n, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    bsr_dense left = t_random(other, rows, 1, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    bsr_dense right = t_random(other, 1, n, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    bsr_dense bias = t_random(other, bias_row ? 1 : rows, bias_row ? n : 1, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    const double alpha = whole ? (double)bt_range(-2, 2) : bt_below(3) ? 1 : bt_uniform() - 0.5;
    const double beta = !(has & 1) ? 0 : whole ? 2 : bt_below(2) ? 1 : bt_uniform();
    f.bias = bt_below(2) ? &bias : nullptr, f.left_alpha = has & 4 ? &left : nullptr, f.right_alpha = has & 8 ? &right : nullptr;
    float *const step = (float *)bt_alloc(4, 4);
    *step = 0.5f, f.user_data = bt_below(2) ? step : nullptr;
    f.activation = whole ? BSR_ACT_NONE : acts[bt_below(type == BSR_F64 || type == BSR_I8 ? 6 : 8)];
    describe(&s, op ? ", A^T" : "");
    bt_describe("to %s, %d columns, activation %d, epilogue %u, alpha %g, beta %g, bias of %s %d%s", bsr_dtype_name(out_type),
                (int)n, f.activation, has, alpha, beta, bsr_dtype_name(other), f.bias != nullptr,
                bias_row ? " a column" : " a row");
    ref_result want = ref_dense_addmm(beta, &input, alpha, op, &a, &b, &f, out_type, 0);
    const bool zeros = !a.nnz && !f.bias && beta == 0 && f.activation < BSR_USER_FUNCTION_BASE; /* the activation of nothing */
    each_tier(
        out.data, [&](const bsr_exec *e) { return gm_dense_addmm(cpu(), beta, &input, alpha, op, &a, &b, &f, &out, e); },
        [&] { REF_COMPARE(&out, &want, zeros ? REF_ALL_ZERO : REF_MAY_BE_ZERO); });
}
static void random_sampled(int turn) {
    static const int of_bytes[] = {BSR_I32, BSR_I32, BSR_I8, BSR_F32, BSR_BF16};
    const int type = a_type(turn), wide = bt_below(4) || type == BSR_F64 ? type : (int)BSR_F32;
    const int out_type = type == BSR_I8 ? of_bytes[bt_below(5)] : wide;
    t_spec s = some_spec(type, FILL_SIGNED, 150);
    const int64_t k = bt_below(10) ? easy ? 16 * bt_range(1, 12) : bt_range(1, 100) : 0;
    describe(&s, "");
    bsr_matrix input = t_matrix(&s), out = t_matrix_output(&input, out_type, some_blocks());
    if (t_is_float(out_type) && !t_is_float(type)) t_make_values(&input, BSR_F32, PACKED, 0), t_fill_values(&input, FILL_SIGNED);
    bsr_dense x = t_random(type, out.rows, k, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    bsr_dense y = t_random(type, k, out.cols, some_layout(), narrowed(s.batch), (unsigned)bt_below(4), FILL_SIGNED);
    const double alpha = (double)bt_range(-1, 2), beta = bt_below(2) ? 0 : (double)bt_range(-1, 2);
    const bsr_matrix *in = beta != 0 || bt_below(2) ? &input : nullptr;
    ref_result want = ref_sampled(beta, in, alpha, &x, &y, s.batch, s.batch, out_type, 0);
    each_tier(
        out.values, [&](const bsr_exec *e) { return gm_sampled_addmm(cpu(), beta, in, alpha, &x, &y, &out, e); },
        [&] { REF_COMPARE_MATRIX(&out, &want, REF_MAY_BE_ZERO); });
}
static void random_softmax(int turn) {
    static const int mask_types[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64, BSR_BOOL, BSR_I8};
    const int type = a_float(turn);
    t_spec s = some_spec(type, FILL_SIGNED, bt_below(3) ? 200 : 20);
    bsr_softmax_options o;
    if (bt_below(4) == 0 && easy) s.r = 1, s.c = 2000 / s.block_cols, s.nnz = s.c; /* long rows */
    memset(&o, 0, sizeof o), describe(&s, "");
    bsr_matrix x = t_matrix(&s), y = t_matrix_output(&x, bt_below(3) || type == BSR_F64 ? type : (int)BSR_F32, some_blocks());
    bsr_dense rel = t_random(type, bt_below(2) ? x.rows : 1, x.cols, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    const int padding = mask_types[bt_below(6)], masks = mask_types[bt_below(6)];
    bsr_dense kp = t_random(padding, 1, x.cols, ROW, narrowed(s.batch), 0, FILL_BOOL);
    bsr_dense am = t_random(masks, x.rows, bt_below(4) ? x.cols : 1, some_layout(), NO_BATCH, 0, FILL_BOOL);
    o.key_padding_mode = padding >= BSR_I8 ? (int)BSR_MASK_MUL : (int)bt_below(2);
    o.attn_mode = masks >= BSR_I8 ? (int)BSR_MASK_MUL : (int)bt_below(2);
    if (bt_below(2)) o.relative_bias = &rel;
    if (bt_below(2)) o.key_padding_mask = &kp;
    if (bt_below(2)) o.attn_mask = &am;
    const bsr_softmax_options *options = bt_below(2) ? &o : nullptr;
    const double scale = t_draw(FILL_WIDE, BSR_F64) / 16;
    bsr_exec e = t_exec(0);
    ref_result want = ref_softmax(scale, &x, options, 0);
    if (bt_below(5) == 0) y = x, bt_mark_output(x.values); /* in place */
    if (RUN_OK(gm_softmax(cpu(), scale, &x, options, &y, &e))) REF_COMPARE_MATRIX(&y, &want, REF_MAY_BE_ZERO);
}
static void random_softmax_backward(int turn) {
    const int type = a_float(turn);
    t_spec s = some_spec(type, FILL_POSITIVE, bt_below(3) ? 200 : 20);
    if (bt_below(4) == 0 && easy) s.r = 1, s.c = 2000 / s.block_cols, s.nnz = s.c;
    describe(&s, "");
    bsr_matrix y = t_matrix(&s), dy = y;
    t_make_values(&dy, type, some_blocks(), 0), t_fill_values(&dy, FILL_SIGNED);
    bsr_matrix dx = t_matrix_output(&y, type == BSR_F64 || bt_below(2) ? type : floats[bt_below(3)], some_blocks());
    const double scale = t_draw(FILL_SIGNED, BSR_F64);
    const int64_t place = bt_below(8); /* in that of dy, of y, of one that is both */
    bsr_exec e = t_exec(0);
    if (place == 2) dy = y;
    ref_result want = ref_softmax_backward(scale, &y, &dy);
    if (place < 3) dx = place ? y : dy, bt_mark_output(dx.values);
    if (RUN_OK(gm_softmax_backward(cpu(), scale, &y, &dy, &dx, &e))) REF_COMPARE_MATRIX(&dx, &want, REF_MAY_BE_ZERO);
}
/* Heads that share keys and values, masks of fewer items, every option, or none (plain: what the fastest kernels take). */
static void random_attention(int turn, bool plain) {
    const int type = a_float(turn), out_type = type == BSR_F64 || bt_below(2) ? type : (int)BSR_F32;
    const int64_t kinds = plain ? 0 : bt_below(3), d = easy ? turn / 4 % 2 ? 128 : one_of(64, 64, 32, 16) : bt_range(1, 70),
                  group = bt_range(1, 2);
    t_spec s = some_spec(type, kinds == 1 ? FILL_BOOL : FILL_SIGNED, 150);
    bsr_attention_options o;
    memset(&o, 0, sizeof o);
    if (!s.r) s.r = 1;
    if (!s.c) s.c = 1;
    t_shape bq = s.batch, bk = bq, bv = bq;
    if (bq.dims) bq.n[bq.dims - 1] *= group, bk = bv = bq;
    if (bq.dims) bk.n[bq.dims - 1] /= bt_below(2) ? group : 1, bv.n[bq.dims - 1] /= bt_below(2) ? group : 1;
    s.batch = narrowed(bq), s.nnz = s.r * s.c * bt_range(10, 100) / 100;
    const int64_t lq = s.r * s.block_rows - (easy ? 0 : bt_below(s.block_rows)),
                  lk = s.c * s.block_cols - (easy ? 0 : bt_below(s.block_cols)),
                  dv = bt_below(2) ? d
                       : easy      ? 64
                                   : bt_range(1, 40);
    describe(&s, "");
    bsr_matrix mask = t_matrix(&s);
    bsr_dense q = t_random(type, lq, d, easy ? ROW : some_layout(), bq, 0, FILL_SIGNED);
    bsr_dense k = t_random(type, lk, d, easy ? ROW : some_layout(), bk, 0, FILL_SIGNED);
    bsr_dense v = t_random(type, lk, dv, easy ? ROW : some_layout(), bv, 0, FILL_SIGNED);
    bsr_dense out = t_output(out_type, lq, dv, easy ? ROW : some_layout(), bq);
    bsr_dense lse = t_output(type == BSR_F64 ? BSR_F64 : BSR_F32, lq, 1, some_layout(), bq);
    o.flags = kinds == 1 ? BSR_ATTENTION_MASK_BOOLEAN : kinds == 2 ? BSR_ATTENTION_MASK_ADDITIVE : 0;
    if (!plain && bt_below(2)) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = bt_range(-4, 4) + (bt_below(2) ? lk - lq : 0);
    bsr_dense rel = t_random(type, bt_below(2) ? lq : 1, lk, some_layout(), narrowed(bq), 0, FILL_SIGNED);
    bsr_dense kp = t_random(BSR_F32, 1, lk, ROW, NO_BATCH, 0, bt_below(2) ? FILL_BOOL : FILL_SIGNED);
    if (!plain) {
        if (bt_below(2)) o.relative_bias = &rel;
        if (bt_below(2)) o.key_padding_mask = &kp, o.key_padding_mode = (int)bt_below(2);
        if (type != BSR_F64 && bt_below(3) == 0) o.score_function = bt_below(2) ? BSR_SCORE_tf_alibi : BSR_SCORE_tf_softcap;
        if (bt_below(3) == 0) o.mask_function = BSR_MASK_tf_stripes;
        if (bt_below(2)) o.dropout_p = bt_uniform() * 0.9, o.dropout_seed = bt_random();
    }
    const double scale = bt_below(2) ? 0 : bt_uniform();
    ref_result norm, want = ref_attention(scale, &q, &k, &v, &mask, &o, bq, &norm);
    each_tier(
        out.data,
        [&](const bsr_exec *e) {
            poison(lse.data);
            return gm_attention(cpu(), scale, &q, &k, &v, &mask, &o, &out, &lse, e);
        },
        [&] { REF_COMPARE(&out, &want, REF_MAY_BE_ZERO), REF_COMPARE(&lse, &norm, REF_MAY_BE_ZERO); });
}

static void plain_attention(int turn) { random_attention(turn, true); }
static void attention_with_options(int turn) { random_attention(turn, false); }

/* ---------------------------------------------------------------------------------------------- */
/* against the CPU: products of whole numbers                                                     */
/* ---------------------------------------------------------------------------------------------- */

/* bsr_matmul, one of three operands sparse, in all transposes, and what it gives back. */
static void random_matmul(int turn) {
    const int type = a_type(turn), out = type == BSR_I8 ? BSR_I32 : type, mode = (int)bt_below(3), back = type != BSR_I8;
    const unsigned trans = (unsigned)bt_below(8);
    t_spec s = some_spec(type, FILL_INTEGER, 120);
    if (s.batch.dims && bt_below(8) == 0) s.batch.n[bt_below(s.batch.dims)] = 0; /* gradients of what is narrowed: 0 */
    const int64_t m = s.r * s.block_rows, n = s.c * s.block_cols, more = easy ? 8 * bt_range(1, 20) : bt_range(1, 90);
    describe(&s, mode == 0 ? ", SDD" : mode == 1 ? ", DSD" : ", DDS");
    /* the sparse one is m x n as stored; op() of each gives its sizes in the product */
    const int turned[3] = {(trans & BSR_TRANS_A) != 0, (trans & BSR_TRANS_B) != 0, (trans & BSR_TRANS_C) != 0};
    const int which = mode == 0 ? 2 : mode - 1; /* c, a, b */
    const int64_t rows = turned[which] ? n : m, cols = turned[which] ? m : n;
    const int64_t size[3][2] = {{which == 1 ? more : rows, which == 2   ? more
                                                           : which == 1 ? rows
                                                                        : cols},
                                {which == 0   ? cols
                                 : which == 1 ? rows
                                              : more,
                                 which == 0 ? more : cols},
                                {which == 1 ? more : rows, which == 0 ? more : cols}};
    bsr_matrix sparse[2];
    bsr_dense dense[3], want[3];
    bsr_operand o[3], host[3];
    s.dtype = which == 2 ? out : type, sparse[0] = t_matrix(&s);
    if (bt_below(2)) t_attach_transposed(&sparse[0]);
    if (bt_below(3) == 0) t_attach_schedule(&sparse[0], 1 << bt_below(4), (int)bt_below(2));
    for (int i = 0; i < 3; i++) {
        const int64_t r = size[i][turned[i]], c = size[i][!turned[i]];
        o[i] = host[i] = bsr_operand_sparse(&sparse[0]);
        if (i == which) continue;
        dense[i] = i == 2 ? t_output(out, r, c, some_layout(), s.batch)
                          : t_random(type, r, c, some_layout(), which == 2 ? s.batch : narrowed(s.batch), 0, FILL_INTEGER);
        want[i] = dense[i], o[i] = bsr_operand_dense(&dense[i]), host[i] = bsr_operand_dense(&want[i]);
        if (i == 2) want[i].data = bt_alloc(bt_find(dense[i].data)->bytes, 8), bt_mark_output(want[i].data);
    }
    bsr_matrix c[2] = {sparse[0], sparse[0]};
    if (which == 2) {
        const int layout = some_blocks();
        for (int i = 0; i < 2; i++) c[i] = t_matrix_output(&sparse[0], out, layout);
        o[2] = bsr_operand_sparse(&c[0]), host[2] = bsr_operand_sparse(&c[1]);
    }
    bsr_exec plain = t_exec(0);
    if (!RUN_OK(bsr_matmul(cpu(), trans, host[0], host[1], host[2], &plain))) return;
    void *got = which == 2 ? c[0].values : dense[2].data, *exact = which == 2 ? c[1].values : want[2].data;
    each_tier(
        got, [&](const bsr_exec *e) { return gm_matmul(cpu(), trans, o[0], o[1], o[2], e); },
        [&] { same_bytes("matmul", got, exact); });
    if (!back) return;
    /* dc: what stands there is finite and whole enough (sums of whole numbers); gradients in place of the operands */
    if (which == 2) t_fill_values(&c[1], FILL_INTEGER);
    else t_fill(&want[2], FILL_INTEGER);
    for (int i = 0; i < 2; i++) {
        bsr_matrix gs[2];
        bsr_dense gd[2];
        bsr_operand to[2], none = {nullptr, nullptr};
        const int layout = i == which ? some_blocks() : some_layout();
        for (int j = 0; j < 2; j++) {
            if (i == which) gs[j] = t_matrix_output(&sparse[0], type, layout), to[j] = bsr_operand_sparse(&gs[j]);
            else
                gd[j] = t_output(type, dense[i].rows, dense[i].cols, layout, t_dense_batch(&dense[i])),
                to[j] = bsr_operand_dense(&gd[j]);
        }
        auto call = [&](int j, const bsr_exec *e) {
            auto f = j ? bsr_matmul_backward : gm_matmul_backward;
            return f(cpu(), trans, o[0], o[1], host[2], i ? none : to[j], i ? to[j] : none, e);
        };
        if (!RUN_OK(call(1, &plain))) return;
        void *have = i == which ? gs[0].values : gd[0].data, *must = i == which ? gs[1].values : gd[1].data;
        each_tier(
            have, [&](const bsr_exec *e) { return call(0, e); }, [&] { same_bytes(i ? "db" : "da", have, must); });
    }
}
/* The lists of bsr_scatter_mm and a product by way of them. */
static void random_scatter(int turn) {
    const int type = a_type(turn), out = type == BSR_I8 ? BSR_I32 : type;
    t_spec s = some_spec(type, FILL_INTEGER, 120);
    const int64_t split = bt_range(1, 3), n = split * (easy ? 8 * bt_range(1, 12) : bt_range(1, 40));
    bsr_scatter_indices x[2];
    bsr_exec e = t_exec(0);
    lengthen(&s, turn / 3);
    s.batch = NO_BATCH, s.ragged = 0, describe(&s, ""), memset(x, 0, sizeof x);
    bsr_matrix a = t_matrix(&s);
    for (int i = 0; i < 2; i++) {
        x[i].format = turn % 3 + 1, x[i].split_n = split;
        if (!RUN_OK(bsr_build_scatter_indices(cpu(), &a, n, &x[i], &e))) return;
        const int64_t count[4] = {x[i].c_count, x[i].r_count, x[i].p_count, x[i].q_count};
        int64_t **const array[4] = {&x[i].c_indices, &x[i].r_offsets, &x[i].p_indices, &x[i].q_indices};
        for (int k = 0; k < 4; k++)
            if (count[k]) *array[k] = (int64_t *)bt_alloc((size_t)count[k] * 8, 8), bt_mark_output(*array[k]);
    }
    if (!RUN_OK(bsr_build_scatter_indices(cpu(), &a, n, &x[1], &e)) || !RUN_OK(gm_build_scatter_indices(cpu(), &a, n, &x[0], &e)))
        return;
    same_bytes("c_indices", x[0].c_indices, x[1].c_indices), same_bytes("r_offsets", x[0].r_offsets, x[1].r_offsets);
    same_bytes("p_indices", x[0].p_indices, x[1].p_indices), same_bytes("q_indices", x[0].q_indices, x[1].q_indices);
    bsr_dense b = t_random(type, a.cols, n, some_layout(), longer ? NO_BATCH : some_batch(), 0, FILL_INTEGER);
    const int layout = some_layout();
    bsr_dense got = t_output(out, a.rows, n, layout, t_dense_batch(&b)),
              want = t_output(out, a.rows, n, layout, t_dense_batch(&b));
    if (!RUN_OK(bsr_dense_scatter_mm(cpu(), &a, &b, &x[1], &want, &e))) return;
    each_tier(
        got.data, [&](const bsr_exec *f) { return gm_dense_scatter_mm(cpu(), &a, &b, &x[1], &got, f); },
        [&] { same_bytes("dense_scatter_mm", got.data, want.data); });
}

/* ---------------------------------------------------------------------------------------------- */
/* against the CPU: conversions and views                                                         */
/* ---------------------------------------------------------------------------------------------- */

/* To be built: s gives block size, types and batch; room for all blocks. */
static bsr_matrix target(const t_spec *s, int type, int layout) {
    bsr_matrix m;
    const int64_t items = t_items(&s->batch), each = s->r * s->c, total = s->ragged ? items * each : each;
    memset(&m, 0, sizeof m);
    m.index_dtype = s->index_dtype, m.block_rows = s->block_rows, m.block_cols = s->block_cols, m.nnz = total;
    m.flags = s->ragged ? BSR_MATRIX_RAGGED : 0, m.batch_dims = s->batch.dims;
    for (int64_t i = m.batch_dims - 1, n = 1; i >= 0; n *= s->batch.n[i--])
        m.batch[i] = s->batch.n[i], m.crow_batch_stride[i] = n * (s->r + 1), m.col_batch_stride[i] = s->ragged ? 0 : n * each;
    const size_t index = bsr_dtype_size(m.index_dtype);
    m.crow_indices = bt_alloc((size_t)(items * (s->r + 1)) * index, index);
    m.col_indices = bt_alloc((size_t)(s->ragged ? total : items * total) * index, index);
    t_make_values(&m, type, layout, 0);
    bt_mark_output(m.crow_indices), bt_mark_output(m.col_indices), bt_mark_output(m.values);
    return m;
}
static void random_conversion(int turn) {
    const int kind = turn % 6, type = a_type(bt_below(5)), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type;
    t_spec s = some_spec(type, longer || bt_below(2) ? FILL_INTEGER : FILL_SIGNED, 150);
    static const char *const names[] = {", from_dense", ", from_block_mask", ", random_pattern",
                                        ", prune",      ", from_csr",        ", from_coo"};
    const bool entries = kind >= 4, dense = kind == 0 || kind == 3, equal = kind == 2 || kind == 3;
    lengthen(&s, turn / 6);
    if (!s.c) s.c = 1;
    if (entries || longer) s.batch = NO_BATCH;
    if (entries || equal) s.ragged = 0;
    else s.ragged = s.batch.dims != 0;
    describe(&s, names[kind]);
    const int64_t rows = s.r * s.block_rows, cols = s.c * s.block_cols, blocks = t_items(&s.batch) * s.r * s.c;
    const int64_t nnz = rows ? bt_range(0, longer ? 20000 : 600) : 0, layout = some_blocks();
    bsr_dense d = t_random(type, dense ? rows : 1, dense ? cols : 1, some_layout(), dense ? s.batch : NO_BATCH, 0, s.kind);
    for (int64_t i = 0; kind == 0 && i < t_dense_items(&d) * s.r * s.c; i++) /* blocks of zeros */
        for (int64_t j = 0, zero = bt_below(2); j < s.block_rows * s.block_cols && zero; j++)
            t_set(&d, i / (s.r * s.c), i % (s.r * s.c) / s.c * s.block_rows + j / s.block_cols,
                  i % s.c * s.block_cols + j % s.block_cols, bt_below(100) || j ? 0 : -0.0);
    uint8_t *mask = (uint8_t *)bt_alloc((size_t)blocks, 1);
    for (int64_t i = 0; i < blocks; i++) mask[i] = (uint8_t)(bt_below(2) * bt_range(1, 255));
    const int index = bt_below(2) ? BSR_I32 : BSR_I64;
    const size_t size = bsr_dtype_size(index);
    void *first = bt_alloc((size_t)(kind == 5 ? nnz : rows + 1) * size, size), *col = bt_alloc((size_t)nnz * size, size);
    bsr_dense values = t_random(type, 1, nnz, ROW, NO_BATCH, 0, FILL_INTEGER);
    for (int64_t i = 0; i < nnz; i++) t_set_index(col, index, i, bt_below(cols));
    for (int64_t i = 0; i < (kind == 5 ? nnz : rows + 1); i++) /* rows of about equal length; entries in any order */
        t_set_index(first, index, i, kind == 5 ? bt_below(rows) : i == rows ? nnz : nnz * i / rows);
    const double sparsity = bt_below(5) ? bt_uniform() : (double)bt_below(2);
    const int norm = (int)bt_below(3);
    const uint64_t seed = bt_random();
    bsr_matrix m[2];
    for (int j = 1; j >= 0; j--) {
        bsr_exec e = t_exec(0);
        m[j] = target(&s, other, (int)layout);
        if (kind == 1 || kind == 2 || bt_below(2)) m[j].rows = rows, m[j].cols = cols;
        const bsr_operand o = bsr_operand_dense(&d);
        if (!RUN_OK(kind == 0   ? (j ? bsr_from_dense : gm_from_dense)(cpu(), &d, &m[j], &e)
                    : kind == 1 ? (j ? bsr_from_block_mask : gm_from_block_mask)(cpu(), mask, &m[j], &e)
                    : kind == 2 ? (j ? bsr_random_pattern : gm_random_pattern)(cpu(), seed, sparsity, &m[j], &e)
                    : kind == 3 ? (j ? bsr_prune : gm_prune)(cpu(), o, sparsity, norm, &m[j], &e)
                                : (kind == 4 ? j ? bsr_from_csr : gm_from_csr
                                   : j       ? bsr_from_coo
                                       : gm_from_coo)(cpu(), rows, cols, nnz, first, col, index, values.data, type, &m[j], &e)))
            return;
    }
    CHECK_INT(m[0].nnz, m[1].nnz), CHECK_INT(m[0].rows, m[1].rows), CHECK_INT(m[0].cols, m[1].cols);
    same_bytes("crow_indices", m[0].crow_indices, m[1].crow_indices),
        same_bytes("col_indices", m[0].col_indices, m[1].col_indices);
    same_bytes("values", m[0].values, m[1].values);
}
/* Whole blocks to another block size, CSR or COO. */
static void random_whole_blocks(int turn) {
    const int kind = turn % 3, type = a_type(turn), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type;
    t_spec s = some_spec(type, FILL_SIGNED, 150), to = s;
    lengthen(&s, turn / 3), s.unsorted = s.duplicates = 0;
    if (kind || longer) s.batch = NO_BATCH, s.ragged = 0;
    describe(&s, kind == 0 ? ", reblock" : kind == 1 ? ", to_csr" : ", to_coo");
    bsr_matrix a = t_matrix(&s), m[2];
    const int64_t most = a.nnz * a.block_rows * a.block_cols, rows = a.rows - (a.rows ? bt_below(a.block_rows) : 0);
    const int64_t cols = a.cols - (a.cols ? bt_below(a.block_cols) : 0), layout = some_blocks();
    const size_t size = bsr_dtype_size(s.index_dtype);
    void *row[2] = {nullptr, nullptr};
    to.block_rows = some_block(), to.block_cols = some_block(), to.batch = s.batch, to.ragged = s.batch.dims != 0;
    to.r = (a.rows + to.block_rows - 1) / to.block_rows, to.c = (a.cols + to.block_cols - 1) / to.block_cols;
    if (kind) to.block_rows = to.block_cols = 1, to.r = rows, to.c = cols;
    for (int j = 1; j >= 0; j--) {
        bsr_exec e = t_exec(0);
        if (kind == 0) {
            m[j] = target(&to, other, (int)layout);
            if (!RUN_OK((j ? bsr_reblock : gm_reblock)(cpu(), &a, &m[j], &e))) return;
            continue;
        }
        memset(&m[j], 0, sizeof m[j]), m[j].nnz = most;
        m[j].crow_indices = bt_alloc((size_t)(rows + 1) * size, size), m[j].col_indices = bt_alloc((size_t)most * size, size);
        row[j] = bt_alloc((size_t)most * size, size);
        m[j].values = bt_alloc((size_t)most * bsr_dtype_size(other), bsr_dtype_size(other));
        bt_mark_output(m[j].crow_indices), bt_mark_output(m[j].col_indices), bt_mark_output(m[j].values), bt_mark_output(row[j]);
        if (!RUN_OK(kind == 1 ? (j ? bsr_to_csr : gm_to_csr)(cpu(), &a, rows, cols, &m[j].nnz, m[j].crow_indices,
                                                             m[j].col_indices, s.index_dtype, m[j].values, other, &e)
                              : (j ? bsr_to_coo : gm_to_coo)(cpu(), &a, rows, cols, &m[j].nnz, m[j].crow_indices, row[j],
                                                             m[j].col_indices, s.index_dtype, m[j].values, other, &e)))
            return;
    }
    CHECK_INT(m[0].nnz, m[1].nnz), CHECK_INT(m[0].rows, m[1].rows), CHECK_INT(m[0].cols, m[1].cols);
    same_bytes("crow_indices", m[0].crow_indices, m[1].crow_indices),
        same_bytes("col_indices", m[0].col_indices, m[1].col_indices);
    same_bytes("values", m[0].values, m[1].values);
    if (kind) same_bytes("rows", row[0], row[1]);
}
static void random_to_dense(int turn) {
    const int type = a_type(turn), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type, layout = some_layout();
    t_spec s = some_spec(type, FILL_SIGNED, 200);
    bsr_exec e = t_exec(0);
    lengthen(&s, turn);
    if (longer) s.batch = NO_BATCH, s.ragged = 0;
    s.shared_values = (unsigned)bt_below(4), describe(&s, "");
    bsr_matrix m = t_matrix(&s);
    bsr_dense got = t_output(other, m.rows, m.cols, layout, s.batch), want = t_output(other, m.rows, m.cols, layout, s.batch);
    if (RUN_OK(bsr_to_dense(cpu(), &m, &want, &e)) && RUN_OK(gm_to_dense(cpu(), &m, &got, &e)))
        same_bytes("to_dense", got.data, want.data);
}
/* Transposed index and schedule, of wide and tall patterns too; then bsr_validate, of the matrix as it is and with one word
 * wrong. */
static void random_views(int turn) {
    t_spec s = some_spec(BSR_F32, FILL_SIGNED, 100);
    s.duplicates = bt_below(4) == 0;
    const int group = 1 << turn % 4, wide = turn % 8 < 4, trans = longer ? turn / 4 % 2 : wide ? 0 : (int)bt_below(2);
    bsr_exec e = t_exec(0);
    bsr_error found[2];
    void *view[2][2];
    uint64_t bytes[2] = {0, 0};
    if (wide || easy) s.r = bt_range(1, 250), s.c = wide ? bt_range(257, 1100) : bt_range(1, 200);
    if (wide || easy) s.block_rows = s.block_cols = 1, s.nnz = bt_range(0, bt_below(4) ? 300 : s.r * s.c);
    lengthen(&s, turn / 8);
    if (longer) s.block_rows = s.block_cols = 1, s.batch = NO_BATCH, s.ragged = 0, s.c = s.c < 40 ? 40 : s.c;
    describe(&s, trans ? ", schedule of A^T" : "");
    bsr_matrix m = t_matrix(&s);
    if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes[0], &e)) ||
        !RUN_OK(bsr_schedule_size(cpu(), &m, group, trans, &bytes[1], &e)))
        return;
    for (int j = 1; j >= 0; j--) {
        for (int i = 0; i < 2; i++) view[j][i] = bt_alloc((size_t)bytes[i], 64), bt_mark_output(view[j][i]);
        if (!RUN_OK((j ? bsr_build_transposed_index : gm_build_transposed_index)(cpu(), &m, view[j][0], bytes[0], &e)) ||
            !RUN_OK((j ? bsr_build_schedule : gm_build_schedule)(cpu(), &m, group, trans, view[j][1], bytes[1], &e)))
            return;
    }
    same_bytes("transposed index", view[0][0], view[1][0]), same_bytes("schedule", view[0][1], view[1][1]);
    if (bt_below(4)) m.transposed_index = view[1][0];
    if (bt_below(4)) m.schedule = view[1][1];
    for (int wrong = 0; wrong < 4; wrong++) { /* 0: as it is, 1: crow_indices, 2: col_indices, 3: a view */
        const void *const array[] = {nullptr, m.crow_indices, m.col_indices, m.schedule ? m.schedule : m.transposed_index};
        const bt_block *b = wrong ? bt_find(array[wrong]) : nullptr;
        const size_t size = wrong == 3 ? 4 : bsr_dtype_size(m.index_dtype);
        if (wrong && (!b || b->bytes < size)) continue;
        char old[8], *at = b ? (char *)b->data + (size_t)bt_below((int64_t)(b->bytes / size)) * size : nullptr;
        if (at)
            memcpy(old, at, size), t_set_index(at, size == 8 ? BSR_I64 : BSR_I32, 0, one_of(-1, 0, bt_range(0, 50), INT32_MAX));
        for (int j = 0; j < 2; j++) {
            bsr_exec f = t_exec(0);
            memset(&found[j], 0, sizeof found[j]), f.error = &found[j];
            (void)(j ? bsr_validate : gm_validate)(cpu(), &m, &f);
        }
        bt.checks++;
        if (memcmp(&found[0], &found[1], sizeof found[0])) {
            char here[320], there[320];
            bsr_error_string(&found[0], here, sizeof here), bsr_error_string(&found[1], there, sizeof there);
            bt_fail(__FILE__, __LINE__, "word wrong in array %d: the device finds \"%s\", the CPU \"%s\"", wrong, here, there);
        }
        if (at) memcpy(at, old, size);
    }
}
static void random_layout_mask(int turn) {
    const int64_t heads = bt_range(1, 4), n = bt_range(1, 40);
    bsr_layout l = bsr_layout_default(1 + turn % 6, heads, n);
    bsr_exec e = t_exec(0);
    uint8_t *mask[2];
    l.unidirectional = (int)bt_below(2), l.different_layout_per_head = (int)bt_below(2), l.seed = bt_random();
    if (l.kind == BSR_LAYOUT_VARIABLE || l.kind == BSR_LAYOUT_BIGBIRD) l.num_random_blocks = bt_below(bt_range(1, 3));
    for (int j = 1; j >= 0; j--) {
        mask[j] = (uint8_t *)bt_alloc((size_t)(heads * n * n), 1), bt_mark_output(mask[j]);
        const bsr_status status = (j ? bsr_layout_mask : gm_layout_mask)(cpu(), &l, mask[j], &e);
        if (j && status != BSR_OK) { /* sizes that do not go with the layout, which are refused alike */
            CHECK(bsr_layout_mask(cpu(), &l, mask[j], &e) == status);
            return;
        }
        CHECK_INT(status, BSR_OK);
    }
    same_bytes("layout", mask[0], mask[1]);
}

/* ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(int turn);
} kinds[] = {{"epilogue", random_epilogue},       {"sampled", random_sampled},
             {"softmax", random_softmax},         {"softmax_backward", random_softmax_backward},
             {"attention", plain_attention},      {"matmul", random_matmul},
             {"scatter", random_scatter},         {"conversion", random_conversion},
             {"to_dense", random_to_dense},       {"views", random_views},
             {"layout_mask", random_layout_mask}, {"attention", attention_with_options},
             {"conversion", random_conversion},   {"whole blocks", random_whole_blocks}};
TEST(random_operations) {
    const int many = (int)BT_COUNT(kinds), turns = ((gm.every > 1 ? gm.random / 2 : gm.random) + 4) / 5;
    for (int turn = 0; turn < turns; turn++)
        for (int k = 0; k < many; k++) {
            bt_case("%s %d of seed %d", kinds[k].name, turn * many + k, gm.seed);
            easy = bt_below(3) > 0;
            kinds[k].run(turn);
        }
}
/* Conversions, views and lists of long lines; a transposed index of more entries than there are chunks of 2048 for. */
TEST(long_lines) {
    static const struct {
        const char *name;
        void (*run)(int turn);
        int turns;
    } list[] = {{"conversion", random_conversion, 12},
                {"to_dense", random_to_dense, 6},
                {"whole blocks", random_whole_blocks, 12},
                {"views", random_views, 16},
                {"scatter", random_scatter, 6}};
    longer = true, easy = false;
    for (auto &x : list)
        for (int turn = 0; turn < 2 * x.turns; turn++) {
            gm.grid = turn < x.turns ? 0 : 3;
            bt_case("%s %d", x.name, turn);
            if (gm.every > 1) bt_skip("left out by --every");
            else x.run(turn % x.turns);
        }
    longer = false, gm.grid = 0;
    for (int type : {BSR_I32, BSR_I64}) {
        t_spec s;
        bsr_exec e = t_exec(0);
        uint64_t bytes = 0;
        void *view[2];
        bt_case("2.3 million entries, %s", bsr_dtype_name(type));
        if (gm.every > 1) {
            bt_skip("left out by --every");
            continue;
        }
        memset(&s, 0, sizeof s), s.dtype = BSR_F32, s.index_dtype = type, s.block_rows = s.block_cols = 1, s.pattern_only = 1;
        s.r = 1150, s.c = 2000, s.nnz = s.r * s.c;
        bsr_matrix m = t_matrix(&s);
        if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes, &e))) continue;
        for (auto &v : view) v = bt_alloc((size_t)bytes, 64), bt_mark_output(v);
        if (RUN_OK(bsr_build_transposed_index(cpu(), &m, view[1], bytes, &e)) &&
            RUN_OK(gm_build_transposed_index(cpu(), &m, view[0], bytes, &e)))
            same_bytes("transposed index", view[0], view[1]);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"random_operations", random_operations}, {"long_lines", long_lines}};
    const int failed = gm_direct(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
