/* test_random.c: every operation of tests/operations.h at random, in each instruction set; on the GPU (gpu/gpu_random.cpp) in
   each tier that takes it. Blocks have any sides up to 300, operands odd strides and odd addresses. Epilogues, sampled products,
   softmax and attention against the float64 reference; what is exact (products of whole numbers, conversions, views, findings of
   bsr_validate) against the portable instruction set, bit for bit. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operations.h"
#include "ref_attention.h"
#include "ref_maps.h"
#include "ref_conv.h"
#include "ref_moe.h"
#include "ref_masks.h"
#include "ref_quantise.h"

#ifndef T_WAYS /* gpu_random.cpp has its own */
#define T_RANDOM_OPERATIONS T_OPERATIONS
#define T_WAYS 3
#define T_WAY(i) t_context((i) + 1) /* a context for the i-th way to run a call, or null; 0 is the usual one */
#define T_ON_CPU(name) bsr_##name   /* the CPU's, whatever bsr_name stands for */
#define T_CPU BSR_ISA_PORTABLE      /* what is exact is compared with this one's */
#define T_TURNS 24                  /* calls of each kind */
#define T_SEED 0
#define T_ALL 1                         /* long lines, too */
#define T_FEWER_CTAS(on) ((void)(on))   /* on the GPU: a grid that goes round */
#define T_HAS(dtype) ((void)(dtype), 1) /* reduced builds hold a few types */
#endif
static const bsr_context *cpu(void) { return t_context(T_CPU); }
static const int floats[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_F64}, all[] = {BSR_BF16, BSR_F16, BSR_F32,  BSR_F64,
                                                                                BSR_I8,   BSR_E4M3, BSR_E5M2};
enum { TYPES = (int)BT_COUNT(all) };

/* ---------------------------------------------------------------------------------------------- */
/* draws                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* One of n types, of those that the build holds. */
static int type_of(const int *types, int n, int64_t turn) {
    int i;
    for (i = 0; i < n && !T_HAS(types[turn % n]); i++) turn++;
    return types[turn % n];
}
static int a_float(int64_t turn) { return type_of(floats, 4, turn); }
static int a_type(int64_t turn) { return type_of(all, TYPES, turn); }
/* A type of results: its own or a wider one. */
static int result_of(int type) {
    static const int eights[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_E4M3, BSR_E5M2};
    if (t_is_f8(type)) return eights[bt_below(5)];
    return bt_below(4) || type == BSR_F64 ? type : (int)BSR_F32;
}
static int64_t one_of(int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t at = bt_below(4);
    return at == 0 ? a : at == 1 ? b : at == 2 ? c : d;
}
/* Two thirds of the calls are such as fast kernels take. */
static int easy;
static int some_layout(void) { return (int)bt_below(easy ? 4 : (int)LAYOUTS); }
static int some_blocks(void) { return easy && bt_below(4) ? (int)PACKED : (int)bt_below(easy ? 5 : (int)BLOCKS_LAYOUTS); }
static int64_t some_block(void) {
    if (!easy) return t_side();
    return bt_below(4) ? one_of(16, 32, 64, 128) : 16 * bt_range(1, 18); /* sub-tiles of these divide the others */
}
static t_shape some_batch(void) {
    const int many = (int)bt_range(1, bt_below(3) ? 2 : 4), some = (int)bt_below(2);
    const int64_t a = bt_range(1, 3), b = bt_range(1, 2);
    return t_batch(some * many, a, b, 2, 2);
}
/* As `batch`, with a dimension of 1 here and there. */
static t_shape narrowed(t_shape batch) {
    int i;
    for (i = 0; i < batch.dims; i++)
        if (bt_below(3) == 0) batch.n[i] = 1;
    return batch;
}
/* A matrix of about `size` rows and columns at most, or of one block; the larger it is the fewer items. */
static t_spec some_spec(int type, int kind, int64_t size) {
    t_spec s;
    int64_t elements;
    memset(&s, 0, sizeof s);
    s.dtype = type, s.kind = kind, s.index_dtype = bt_below(3) ? BSR_I32 : BSR_I64;
    s.block_rows = some_block(), s.block_cols = bt_below(easy ? 4 : 2) ? s.block_rows : some_block(), s.layout = some_blocks();
    s.r = bt_range(bt_below(20) != 0, size / s.block_rows + 1), s.c = bt_range(bt_below(20) != 0, size / s.block_cols + 1);
    elements = s.r * s.block_rows * s.c * s.block_cols, s.batch = elements > 60000 ? NO_BATCH : some_batch();
    if (elements > 20000 && t_items(&s.batch) > 4) s.batch.dims = 1;
    s.nnz = s.r * s.c * (bt_below(6) == 0 ? 100 : bt_below(6) == 0 ? 0 : bt_range(5, 90)) / 100;
    s.unsorted = bt_below(4) == 0, s.ragged = s.batch.dims && bt_below(2);
    s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(4);
    return s;
}
/* So many columns that the reference's sums end in time. */
static int64_t some_columns(const t_spec *s, int64_t most) {
    const int64_t each = s->r * s->block_rows * s->c * s->block_cols * (s->batch.dims ? t_items(&s->batch) : 1);
    const int64_t room = INT64_C(8000000) / (each + 1), n = easy ? 8 * bt_range(1, most / 8) : bt_range(1, most);
    return n <= room ? n : room < 1 ? 1 : easy && room >= 8 ? room / 8 * 8 : room;
}
/* Many block rows, or many block columns: more than threads, words or lists of a kernel have in one round. */
static int longer;
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
static void poison(const void *data) {
    const bt_block *b = bt_find(data);
    if (b) memset(b->data, BT_POISON, b->bytes);
}
/* The call in each way, its output poisoned before; on the GPU the mirror leaves out a tier that does not take it. In call and
   compare: ctx, e. */
#define EACH_WAY(out, call, compare)                    \
    do {                                                \
        int way_;                                       \
        for (way_ = 0; way_ < T_WAYS; way_++) {         \
            const bsr_context *const ctx = T_WAY(way_); \
            bsr_exec exec_ = t_exec(0);                 \
            const bsr_exec *const e = &exec_;           \
            if (!ctx) continue;                         \
            way = way_, poison(out);                    \
            if (RUN_OK(call)) {                         \
                compare;                                \
            }                                           \
        }                                               \
        way = 0, (void)T_WAY(0);                        \
    } while (0)
static int way;
static void same_bytes(const char *what, const void *got, const void *want) {
    const bt_block *a = bt_find(got), *b = bt_find(want);
    size_t i = 0;
    if (!got && !want) return;
    bt.checks++;
    if (a->bytes != b->bytes) {
        bt_fail(__FILE__, __LINE__, "%s: %zu bytes, not %zu", what, a->bytes, b->bytes);
        return;
    }
    if (bt_same_bytes(a->data, b->data, a->bytes)) return;
    while (a->data[i] == b->data[i]) i++;
    bt_fail(__FILE__, __LINE__, "%s, way %d: byte %zu of %zu is %d, not %d", what, way, i, a->bytes, a->data[i], b->data[i]);
}

/* ---------------------------------------------------------------------------------------------- */
/* against the reference                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* Products with all that an epilogue has, or with none: bsr_dense_mm. */
static void product(int turn, int plain) {
    static const int of_bytes[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16, BSR_F16};
    static const int acts[] = {BSR_ACT_NONE,      BSR_ACT_RELU, BSR_ACT_GELU,          BSR_ACT_GELU_TANH,
                               BSR_ACT_GELU_TANH, BSR_ACT_SILU, BSR_EPILOGUE_tf_shift, BSR_EPILOGUE_tf_square};
    const int type = a_type(turn), wide = result_of(type);
    const int out_type = type == BSR_I8 ? of_bytes[bt_below(5)] : wide, whole = !t_is_float(out_type);
    const int other = whole ? (int)BSR_I32 : out_type == BSR_F64 || (bt_below(2) && !t_is_f8(out_type)) ? out_type : (int)BSR_F32;
    const uint32_t op = bt_below(3) ? 0 : BSR_TRANS_A;
    const unsigned has = plain ? 0 : (unsigned)bt_below(16), bias_row = (unsigned)bt_below(2);
    t_spec s = some_spec(type, FILL_SIGNED, 200);
    bsr_epilogue f = BSR_ZERO;
    bsr_matrix a;
    bsr_dense b, out, input, left, right, bias;
    ref_result want;
    double alpha, beta;
    float *step;
    int64_t n, rows;
    int zeros;
    s.batch = bt_below(3) ? NO_BATCH : s.batch, s.ragged = s.ragged && s.batch.dims;
    a = t_matrix(&s), n = some_columns(&s, easy ? 288 : 200);
    if (op && bt_below(4)) t_attach_transposed(&a);
    rows = op ? a.cols : a.rows;
    b = t_random(t_mixed(type), op ? a.rows : a.cols, n, some_layout(), s.batch, 0, FILL_SIGNED);
    out = t_output(out_type, rows, n, some_layout(), s.batch);
    input = t_random(out_type, bt_below(4) ? rows : 1, n, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    left = t_random(other, rows, 1, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    right = t_random(other, 1, n, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    bias = t_random(other, bias_row ? 1 : rows, bias_row ? n : 1, ROW, narrowed(s.batch), 0, FILL_SIGNED);
    alpha = plain ? 1 : whole ? (double)bt_range(-2, 2) : bt_below(3) ? 1 : bt_uniform() - 0.5;
    beta = !(has & 1) ? 0 : whole ? 2 : bt_below(2) ? 1 : bt_uniform();
    f.bias = bt_below(2) && !plain ? &bias : NULL, f.left_alpha = has & 4 ? &left : NULL;
    f.right_alpha = has & 8 ? &right : NULL;
    step = (float *)bt_alloc(4, 4), *step = 0.5f, f.user_data = bt_below(2) ? step : NULL;
    f.activation = whole || plain ? BSR_ACT_NONE : acts[bt_below(type == BSR_F64 || type == BSR_I8 ? 6 : 8)];
    describe(&s, op ? ", A^T" : "");
    bt_describe("to %s, %d columns, activation %d, epilogue %u, alpha %g, beta %g, bias of %s %d%s", bsr_dtype_name(out_type),
                (int)n, f.activation, has, alpha, beta, bsr_dtype_name(other), f.bias != NULL, bias_row ? " a column" : " a row");
    want = ref_dense_addmm(beta, &input, alpha, op, &a, &b, &f, out_type, 0);
    zeros = !a.nnz && !f.bias && beta == 0 && f.activation < BSR_USER_FUNCTION_BASE; /* the activation of nothing */
    if (plain)
        EACH_WAY(out.data, bsr_dense_mm(ctx, op, &a, &b, &out, e),
                 REF_COMPARE(&out, &want, zeros ? REF_ALL_ZERO : REF_MAY_BE_ZERO));
    else
        EACH_WAY(out.data, bsr_dense_addmm(ctx, beta, &input, alpha, op, &a, &b, &f, &out, e),
                 REF_COMPARE(&out, &want, zeros ? REF_ALL_ZERO : REF_MAY_BE_ZERO));
}
static void random_dense_addmm(int turn) { product(turn, 0); }
static void random_dense_mm(int turn) { product(turn, 1); }
/* Sums of products: terms of all kinds; or of one kind and one sparsity, which kernels take together. */
static void random_sum_mm(int turn) {
    static const int of_bytes[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16};
    const int type = a_type(turn), wide = result_of(type);
    const int out_type = type == BSR_I8 ? of_bytes[bt_below(4)] : wide, whole = !t_is_float(out_type);
    const int count = (int)bt_range(1, bt_below(4) ? 3 : BSR_TERMS_MAX), alike = bt_below(2) == 0, flip = bt_below(3) == 0;
    t_spec first = some_spec(type, FILL_SIGNED, 150), s;
    bsr_term terms[BSR_TERMS_MAX];
    bsr_matrix a[BSR_TERMS_MAX];
    bsr_dense b[BSR_TERMS_MAX], out, input, left, right, bias;
    bsr_epilogue f = BSR_ZERO;
    ref_result want;
    int64_t n, rows;
    int t, of_lines, layout = some_layout();
    const int order = (int)bt_below(3);
    const double alpha = whole ? (double)bt_range(-2, 2) : 1, beta = bt_below(2) ? 0 : whole ? 2 : bt_uniform();
    first.batch = bt_below(3) ? NO_BATCH : first.batch, first.ragged = first.ragged && first.batch.dims;
    memset(terms, 0, sizeof terms);
    rows = flip ? first.c * first.block_cols : first.r * first.block_rows, n = some_columns(&first, easy ? 160 : 80);
    for (t = 0; t < count; t++) {
        const int turned = alike ? flip : t ? bt_below(3) == 0 : flip;
        s = first;
        if (t && !alike) { /* its own K and blocks; rows as all */
            const int64_t block = rows % 16 == 0 && bt_below(2) ? 16 : rows % 2 == 0 && bt_below(2) ? 2 : rows ? rows : 1;
            const int64_t across = bt_below(3) ? first.block_cols : bt_range(1, 70), along = bt_range(0, 100 / across + 1);
            s.block_rows = turned ? across : block, s.block_cols = turned ? block : across;
            s.r = turned ? along : rows / block, s.c = turned ? rows / block : along;
            s.nnz = s.r * s.c * bt_range(0, 100) / 100, s.index_dtype = bt_below(2) ? BSR_I32 : BSR_I64;
            s.layout = some_blocks(), s.batch = narrowed(first.batch), s.ragged = s.ragged && s.batch.dims;
        }
        a[t] = t_matrix(&s);
        if (turned) t_attach_transposed(&a[t]);
        if (!alike) layout = some_layout();
        b[t] = t_random(t_mixed(type), turned ? a[t].rows : a[t].cols, n, layout,
                        t && !alike ? narrowed(first.batch) : first.batch, 0, FILL_SIGNED);
        terms[t].a = &a[t], terms[t].b = &b[t], terms[t].trans = turned ? BSR_TRANS_A : 0;
        terms[t].alpha = bt_below(alike ? 6 : 2) ? alpha : whole ? (double)bt_range(-2, 2) : bt_below(4) ? bt_uniform() - 0.5 : 0;
    }
    for (t = 0; alike && t < count / 2 && order; t++) { /* memory in another order than terms, of one side or both */
        const bsr_dense *const other = terms[t].b;
        const bsr_matrix *const a_other = terms[t].a;
        terms[t].b = terms[count - 1 - t].b, terms[count - 1 - t].b = other;
        if (order > 1) terms[t].a = terms[count - 1 - t].a, terms[count - 1 - t].a = a_other;
    }
    out = t_output(out_type, rows, n, some_layout(), first.batch);
    input = t_random(out_type, bt_below(4) ? rows : 1, n, some_layout(), narrowed(first.batch), 0, FILL_SIGNED);
    of_lines = whole ? (int)BSR_I32 : t_is_f8(out_type) ? (int)BSR_F16 : out_type;
    left = t_random(of_lines, rows, 1, ROW, narrowed(first.batch), 0, FILL_SIGNED);
    right = t_random(of_lines, 1, n, ROW, narrowed(first.batch), 0, FILL_SIGNED);
    bias = t_random(of_lines, bt_below(2) ? 1 : rows, n, ROW, narrowed(first.batch), 0, FILL_SIGNED);
    f.bias = bt_below(3) ? NULL : &bias, f.left_alpha = bt_below(3) ? NULL : &left, f.right_alpha = bt_below(3) ? NULL : &right;
    f.activation = whole ? BSR_ACT_NONE : (int)bt_below(5);
    describe(&first, flip ? ", A^T" : "");
    bt_describe("to %s, %d columns, %d terms%s, activation %d, beta %g", bsr_dtype_name(out_type), (int)n, count,
                alike ? " alike" : "", f.activation, beta);
    want = ref_sum_mm(beta, &input, terms, count, &f, out_type, 0);
    EACH_WAY(out.data, bsr_sum_mm(ctx, beta, &input, terms, count, &f, &out, e), REF_COMPARE(&out, &want, REF_ANY));
}
/* Two products; the second is held against what the first gave. */
static void random_chain_mm(int turn) {
    const int type = a_type(turn), out_type = type == BSR_I8 ? bt_below(2) ? BSR_I32 : BSR_I8 : type, whole = type == BSR_I8;
    const uint32_t ta = bt_below(3) ? 0 : BSR_TRANS_A, tc = bt_below(3) ? 0 : BSR_TRANS_C;
    t_spec s = some_spec(type, FILL_SIGNED, 120), last = some_spec(type, FILL_SIGNED, 120);
    bsr_epilogue inner = BSR_ZERO, outer = BSR_ZERO;
    bsr_dense b, middle, out, bias, input;
    const double beta = bt_below(2) ? 0 : whole ? 2 : 0.5, alpha = whole ? 2 : 0.75;
    bsr_matrix a, c;
    ref_result want, want_out;
    int64_t h, n;
    s.batch = bt_below(3) ? NO_BATCH : s.batch, s.ragged = s.ragged && s.batch.dims;
    h = ta ? s.c * s.block_cols : s.r * s.block_rows; /* the second has as many */
    *(tc ? &last.block_rows : &last.block_cols) = ta ? s.block_cols : s.block_rows, *(tc ? &last.r : &last.c) = ta ? s.c : s.r;
    last.nnz = last.r * last.c * bt_range(5, 90) / 100, last.batch = narrowed(s.batch);
    last.ragged = last.ragged && last.batch.dims;
    n = some_columns(&s, easy ? 160 : 80);
    if (some_columns(&last, 160) < n) n = some_columns(&last, n);
    describe(&s, ta ? ", A^T" : ""), describe(&last, tc ? ", C^T" : ""), bt_describe("%d columns, beta %g", (int)n, beta);
    a = t_matrix(&s), c = t_matrix(&last);
    if (ta && bt_below(4)) t_attach_transposed(&a);
    if (tc && bt_below(4)) t_attach_transposed(&c);
    b = t_random(type, ta ? a.rows : a.cols, n, some_layout(), s.batch, 0, FILL_SIGNED);
    middle = t_output(type, h, n, some_layout(), s.batch);
    out = t_output(out_type, tc ? c.cols : c.rows, n, some_layout(), s.batch);
    bias = t_random(whole ? (int)BSR_I32 : bsr_dtype_size(type) == 1 ? (int)BSR_F32 : type, h, 1, ROW, narrowed(s.batch), 0,
                    FILL_SIGNED);
    input = t_random(out_type, out.rows, n, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    inner.bias = bt_below(2) ? &bias : NULL, inner.activation = whole ? 0 : (int32_t)bt_below(5);
    outer.activation = whole ? 0 : (int32_t)bt_below(5);
    want = ref_dense_addmm(0, NULL, 1, ta, &a, &b, &inner, type, 0);
    EACH_WAY(out.data, bsr_chain_mm(ctx, ta | tc, &a, &b, &inner, &middle, beta, &input, alpha, &c, &outer, &out, e),
             REF_COMPARE(&middle, &want, REF_ANY);
             want_out = ref_dense_addmm(beta, &input, alpha, tc ? BSR_TRANS_A : 0, &c, &middle, &outer, out_type, 0);
             REF_COMPARE(&out, &want_out, REF_ANY); poison(middle.data));
}
/* Products at stored blocks, an activation of theirs, a product of that. */
static void compare_sampled_chain(const ref_result *want, const bsr_map_options *f, const bsr_matrix *product,
                                  const bsr_matrix *middle, uint32_t op, const bsr_dense *c, const bsr_dense *out) {
    const bsr_operand none = BSR_ZERO;
    const ref_result then = ref_dense_addmm(0, NULL, 1, op, middle, c, NULL, out->dtype, 0);
    REF_COMPARE_MATRIX(product, want, REF_ANY);
    REF_CHECK_MAP(f, 1, product, 0, none, middle, 0);
    REF_COMPARE(out, &then, REF_ANY);
    poison(product->values), poison(middle->values);
}
static void random_sampled_chain_mm(int turn) {
    const int type = a_type(turn), kept = type == BSR_I8 ? (int)BSR_F32 : type;
    const uint32_t trans = bt_below(3) ? 0 : BSR_TRANS_A;
    const int middle_type = type == BSR_I8 ? (int)BSR_F32 : type;
    t_spec s = some_spec(type, FILL_SIGNED, 120);
    const int64_t k = some_columns(&s, easy ? 160 : 80), n = some_columns(&s, easy ? 160 : 80);
    bsr_map_options f = BSR_ZERO;
    bsr_matrix bare, product, middle;
    bsr_dense x, y, c, out;
    ref_result want;
    s.nnz = s.r * s.c * bt_range(5, 90) / 100, f.function = (int32_t)bt_below(5);
    describe(&s, trans ? ", A^T" : ""), bt_describe("K %d, %d columns, activation %d", (int)k, (int)n, f.function);
    bare = t_matrix(&s), product = t_matrix_output(&bare, kept, some_blocks());
    middle = t_matrix_output(&bare, middle_type, some_blocks());
    if (trans && bt_below(4)) t_attach_transposed(&middle);
    x = t_random(type, bare.rows, k, some_layout(), s.batch, 0, FILL_SIGNED);
    y = t_random(type, k, bare.cols, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    c = t_random(middle_type, trans ? bare.rows : bare.cols, n, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    out = t_output(middle_type, trans ? bare.cols : bare.rows, n, some_layout(), s.batch);
    want = ref_sampled(0, NULL, 1, &x, &y, s.batch, s.batch, kept, 0);
    EACH_WAY(out.data,
             bsr_sampled_chain_mm(ctx, trans, 1, &x, &y, &f, &product, &middle, 0, NULL, 1, &c, NULL, &out, e),
             compare_sampled_chain(&want, &f, &product, &middle, trans, &c, &out));
}
static void random_sampled_addmm(int turn) {
    static const int of_bytes[] = {BSR_I32, BSR_I32, BSR_I8, BSR_F32, BSR_BF16};
    const int type = a_type(turn), wide = result_of(type);
    const int out_type = type == BSR_I8 ? of_bytes[bt_below(5)] : wide;
    t_spec s = some_spec(type, FILL_SIGNED, 150);
    const int64_t k = bt_below(10) ? some_columns(&s, easy ? 192 : 100) : 0;
    const double alpha = (double)bt_range(-1, 2), beta = bt_below(2) ? 0 : (double)bt_range(-1, 2);
    bsr_matrix input, out;
    const bsr_matrix *in;
    bsr_dense x, y;
    ref_result want;
    describe(&s, ""), bt_describe("to %s, K %d, alpha %g, beta %g", bsr_dtype_name(out_type), (int)k, alpha, beta);
    input = t_matrix(&s), out = t_matrix_output(&input, out_type, some_blocks());
    if (t_is_float(out_type) && !t_is_float(type)) t_make_values(&input, BSR_F32, PACKED, 0), t_fill_values(&input, FILL_SIGNED);
    x = t_random(type, out.rows, k, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    y = t_random(t_mixed(type), k, out.cols, some_layout(), narrowed(s.batch), (unsigned)bt_below(4), FILL_SIGNED);
    in = beta != 0 || bt_below(2) ? &input : NULL;
    want = ref_sampled(beta, in, alpha, &x, &y, s.batch, s.batch, out_type, 0);
    EACH_WAY(out.values, bsr_sampled_addmm(ctx, beta, in, alpha, &x, &y, &out, e),
             REF_COMPARE_MATRIX(&out, &want, REF_MAY_BE_ZERO));
}
static void random_softmax(int turn) {
    static const int mask_types[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64, BSR_BOOL, BSR_I8};
    const int type = a_float(turn), padding = mask_types[bt_below(6)], masks = mask_types[bt_below(6)];
    const double scale = t_draw(FILL_WIDE, BSR_F64) / 16;
    t_spec s = some_spec(type, FILL_SIGNED, bt_below(3) ? 200 : 20);
    bsr_softmax_options o;
    const bsr_softmax_options *options = bt_below(2) ? &o : NULL;
    bsr_exec e = t_exec(0);
    bsr_matrix x, y;
    bsr_dense rel, kp, am;
    ref_result want;
    if (bt_below(4) == 0 && easy) s.r = 1, s.c = 2000 / s.block_cols, s.nnz = s.c; /* long rows */
    memset(&o, 0, sizeof o), describe(&s, "");
    x = t_matrix(&s), y = t_matrix_output(&x, bt_below(3) || type == BSR_F64 ? type : (int)BSR_F32, some_blocks());
    rel = t_random(type, bt_below(2) ? x.rows : 1, x.cols, some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    kp = t_random(padding, 1, x.cols, ROW, narrowed(s.batch), 0, FILL_BOOL);
    am = t_random(masks, x.rows, bt_below(4) ? x.cols : 1, some_layout(), NO_BATCH, 0, FILL_BOOL);
    o.key_padding_mode = padding == BSR_BOOL || padding == BSR_I8 ? (int)BSR_MASK_MUL : (int)bt_below(2);
    o.attn_mode = masks == BSR_BOOL || masks == BSR_I8 ? (int)BSR_MASK_MUL : (int)bt_below(2);
    if (bt_below(2)) o.relative_bias = &rel;
    if (bt_below(2)) o.key_padding_mask = &kp;
    if (bt_below(2)) o.attn_mask = &am;
    want = ref_softmax(scale, &x, options, 0);
    if (bt_below(5) == 0) y = x, bt_mark_output(x.values); /* in place */
    if (RUN_OK(bsr_softmax(t_any_context(), scale, &x, options, &y, &e))) REF_COMPARE_MATRIX(&y, &want, REF_MAY_BE_ZERO);
}
static void random_softmax_backward(int turn) {
    const int type = a_float(turn);
    const double scale = t_draw(FILL_SIGNED, BSR_F64);
    const int64_t place = bt_below(8); /* in that of dy, of y, of one that is both */
    t_spec s = some_spec(type, FILL_POSITIVE, bt_below(3) ? 200 : 20);
    bsr_exec e = t_exec(0);
    bsr_matrix y, dy, dx;
    ref_result want;
    if (bt_below(4) == 0 && easy) s.r = 1, s.c = 2000 / s.block_cols, s.nnz = s.c;
    describe(&s, "");
    y = t_matrix(&s), dy = y;
    t_make_values(&dy, type, some_blocks(), 0), t_fill_values(&dy, FILL_SIGNED);
    dx = t_matrix_output(&y, type == BSR_F64 || bt_below(2) ? type : floats[bt_below(3)], some_blocks());
    if (place == 2) dy = y;
    want = ref_softmax_backward(scale, &y, &dy);
    if (place < 3) dx = place ? y : dy, bt_mark_output(dx.values);
    if (RUN_OK(bsr_softmax_backward(t_any_context(), scale, &y, &dy, &dx, &e))) REF_COMPARE_MATRIX(&dx, &want, REF_MAY_BE_ZERO);
}
/* Any function, any operand, any types; in place, dropped. */
static void random_map(int turn) {
    static const int all[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64, BSR_I8, BSR_I32, BSR_I64, BSR_BOOL, BSR_E4M3, BSR_E5M2};
    const int type = bt_below(3) ? a_type(turn) : all[bt_below(10)], of_y = bt_below(2) ? type : all[bt_below(10)];
    const int wide = REF_WIDE(type) || REF_WIDE(of_y), users = !wide && bt_below(8) == 0;
    const int64_t form = bt_below(4); /* of y: none, a matrix, dense, dense and repeated */
    t_spec s = some_spec(type, bt_below(3) ? FILL_SIGNED : FILL_POSITIVE, 100);
    const double alpha = bt_below(8) ? t_draw(FILL_SIGNED, BSR_F64) : (double)bt_below(2);
    const double beta = bt_below(8) ? t_draw(FILL_SIGNED, BSR_F64) : (double)bt_below(2);
    bsr_exec e = t_exec(!users && bt_below(8) == 0 ? BSR_EXEC_ACCUMULATE_F64 : 0);
    bsr_map_options o;
    bsr_matrix x, m, out;
    bsr_dense d;
    bsr_operand y;
    memset(&o, 0, sizeof o), memset(&y, 0, sizeof y), describe(&s, "");
    o.function = bt_below(4) == 0 ? 0
                 : bt_below(2)    ? (int32_t)bt_range(0, BSR_ACT_SILU)
                                  : (int32_t)bt_range(BSR_MAP_ABS, BSR_MAP_CLAMP);
    if (users) o.function = (int32_t)bt_range(BSR_EPILOGUE_tf_shift, BSR_EPILOGUE_tf_square);
    o.combine = (int32_t)bt_range(form ? 1 : 0, users ? BSR_COMBINE_MIN : BSR_COMBINE_GRADIENT),
    o.flags = bt_below(2) ? BSR_MAP_AFTER : 0;
    o.low = -0.5, o.high = 0.25, o.dropout_p = bt_below(4) ? 0 : bt_uniform(), o.dropout_seed = bt_random();
    x = t_matrix(&s), m = x;
    t_make_values(&m, of_y, some_blocks(), 0), t_fill_values(&m, FILL_POSITIVE);
    d = t_random(of_y, form == 3 && bt_below(2) ? 1 : x.rows, form == 3 && bt_below(2) ? 1 : x.cols, some_layout(),
                 narrowed(s.batch), 0, FILL_POSITIVE);
    if (form == 1) y.sparse = &m;
    if (form > 1) y.dense = &d;
    out = t_matrix_output(&x, bt_below(2) || wide ? type : users ? BSR_F32 : all[bt_below(5)], some_blocks());
    if (o.function == BSR_MAP_SIGN || out.dtype == BSR_BOOL) o.combine = o.flags = 0, memset(&y, 0, sizeof y); /* jumps at 0 */
    bt_describe("function %d, combination %d, y %d in %s, to %s, dropped %g", o.function, o.combine, (int)form,
                bsr_dtype_name(of_y), bsr_dtype_name(out.dtype), o.dropout_p);
    if (RUN_OK(bsr_map(t_any_context(), &o, alpha, &x, beta, y, &out, &e))) REF_CHECK_MAP(&o, alpha, &x, beta, y, &out, e.flags);
}
static void random_reduce(int turn) {
    static const int to[] = {BSR_F32, BSR_F64, BSR_BF16, BSR_F16};
    const int kind = (int)bt_range(BSR_REDUCE_SUM, BSR_REDUCE_MEAN_ALL), over = (int)bt_range(BSR_OVER_ROWS, BSR_OVER_ALL);
    t_spec s = some_spec(a_type(turn), bt_below(3) ? FILL_SIGNED : FILL_WIDE, bt_below(3) ? 200 : 40);
    bsr_exec e = t_exec(bt_below(4) ? 0 : BSR_EXEC_ACCUMULATE_F64);
    bsr_matrix x;
    bsr_dense out;
    if (bt_below(4) == 0 && easy) s.r = 1, s.c = 2000 / s.block_cols, s.nnz = s.c; /* long rows */
    describe(&s, ""), bt_describe("kind %d over %d", kind, over);
    x = t_matrix(&s);
    if (bt_below(2)) t_attach_transposed(&x);
    out = ref_reduce_out(over, &x, to[bt_below(4)], some_layout());
    if (RUN_OK(bsr_reduce(t_any_context(), kind, over, &x, &out, &e))) REF_CHECK_REDUCE(kind, over, &x, &out, e.flags);
}
/* A dense operand or a matrix, with scales of groups of any size, found or given. */
TF void some_quantised(q_case *q, int turn, int from, int to) {
    const t_shape batch = bt_below(3) ? NO_BATCH : t_batch(1, bt_range(1, 3), 0, 0, 0);
    int64_t rows, cols;
    q->from = from, q->to = to, q->sparse = turn & 1, q->blocks = q->sparse && bt_below(2);
    if (q->sparse) {
        t_spec s = some_spec(from, FILL_SIGNED, 60);
        q->mx = t_matrix(&s), q->mout = t_matrix_output(&q->mx, to, bt_below(2) ? s.layout : some_blocks());
        q->batch = t_matrix_batch(&q->mx), describe(&s, "");
    } else {
        const int layout = some_layout();
        rows = bt_range(1, 80), cols = bt_below(2) ? 16 * bt_range(1, 20) : bt_range(1, 90), q->batch = batch;
        q->dx = t_random(from, rows, cols, layout, batch, 0, FILL_SIGNED);
        q->dout = t_output(to, rows, cols, bt_below(2) ? layout : some_layout(), batch);
    }
    rows = q->sparse ? q->mx.rows : q->dx.rows, cols = q->sparse ? q->mx.cols : q->dx.cols;
    bt_describe("%s to %s%s", bsr_dtype_name(from), bsr_dtype_name(to), q->blocks ? ", of blocks" : "");
    q_scales(q, bt_below(2) ? bt_range(1, rows + 1) : bt_below(2), bt_below(2) ? bt_range(1, cols + 1) : 16 * bt_below(9),
             bt_below(2) ? q->batch : NO_BATCH, q->flags & BSR_QUANTISE_GIVEN ? (int)BSR_F32 : 0);
}
static void random_quantise(int turn) {
    static const int from[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64}, to[] = {BSR_E4M3, BSR_I8, BSR_E5M2};
    q_case q;
    memset(&q, 0, sizeof q), q.flags = (uint32_t)bt_below(3), some_quantised(&q, turn, from[turn / 2 % 4], to[turn / 8 % 3]);
    q_run(&q);
}
static void random_dequantise(int turn) {
    static const int to[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64}, from[] = {BSR_E4M3, BSR_I8, BSR_E5M2};
    bsr_exec e = t_exec(0);
    q_case q;
    memset(&q, 0, sizeof q), q.flags = BSR_QUANTISE_GIVEN, some_quantised(&q, turn, from[turn / 8 % 3], to[turn / 2 % 4]);
    if (RUN_OK(bsr_dequantise(t_any_context(), q_x(&q), &q.scales, q_out(&q), &e))) q_each(&q, q_back);
}
/* Convolutions of any shape, in any direction. */
TF bsr_dense some_images(int type, int dims, const int64_t *size, int64_t n, int64_t channels, int output) {
    t_shape batch = NO_BATCH;
    bsr_dense d;
    int a;
    for (batch.dims = dims, batch.n[0] = n, a = 0; a + 1 < dims; a++) batch.n[1 + a] = size[a];
    d = t_dense(type, channels, size[dims - 1], bt_below(2) ? (int)COL : some_layout(), batch, 0);
    if (output) bt_mark_output(d.data);
    else t_fill(&d, FILL_SIGNED);
    return d;
}
TF void some_shape(bsr_conv_shape *s, int64_t in[3], int64_t out[3]) {
    int a;
    memset(s, 0, sizeof *s), s->dims = (int32_t)bt_range(1, 3), s->groups = bt_range(0, 3);
    for (a = 0; a < s->dims; a++) {
        in[a] = bt_range(1, a + 1 < s->dims ? 5 : s->dims == 1 ? 90 : 20), s->kernel[a] = bt_range(1, 4);
        s->stride[a] = bt_range(0, 3), s->dilation[a] = bt_range(0, 2);
        s->pad_before[a] = bt_range(0, 3), s->pad_after[a] = bt_range(0, 3);
    }
    for (a = 0; a < s->dims; a++) out[a] = bsr_conv_size(s, a, in[a]);
}
TF t_spec some_filters(const bsr_conv_shape *s, int type, int64_t *channels, int64_t *filters) {
    const int64_t groups = s->groups ? s->groups : 1;
    int64_t taps = 1;
    t_spec m;
    int a;
    for (a = 0; a < s->dims; a++) taps *= s->kernel[a];
    *channels = bt_below(4) ? bt_range(1, 12) : bt_range(1, 40), *filters = bt_below(4) ? bt_range(1, 12) : bt_range(1, 40);
    memset(&m, 0, sizeof m), m.dtype = type, m.kind = FILL_SIGNED, m.layout = some_blocks();
    m.block_rows = bt_range(1, *filters * groups), m.block_cols = bt_below(2) ? *channels : bt_range(1, taps * *channels);
    m.r = (*filters * groups + m.block_rows - 1) / m.block_rows, m.c = (taps * *channels + m.block_cols - 1) / m.block_cols;
    m.nnz = m.r * m.c * bt_range(0, 100) / 100, m.unsorted = bt_below(4) == 0, *channels *= groups, *filters *= groups;
    return m;
}
TF void random_conv(int turn) {
    const int type = a_type(turn), wide = bt_below(2) && type != BSR_F64 ? (int)BSR_F32 : type;
    const int out_type = type == BSR_I8 ? (int)BSR_I32 : wide;
    const uint32_t op = bt_below(2) ? BSR_TRANS_A : 0;
    int64_t channels, filters, in[3], out[3], n = bt_range(1, 2);
    bsr_epilogue f = BSR_ZERO;
    bsr_conv_shape shape;
    bsr_dense x, y, bias;
    bsr_matrix w;
    ref_result want;
    t_spec s;
    some_shape(&shape, in, out), s = some_filters(&shape, type, &channels, &filters), describe(&s, op ? ", data gradient" : "");
    w = t_matrix(&s), x = some_images(type, shape.dims, op ? out : in, n, op ? filters : channels, 0);
    y = some_images(out_type, shape.dims, op ? in : out, n, op ? channels : filters, 1);
    bias = t_random(t_is_f8(out_type) ? (int)BSR_F32 : out_type, y.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
    f.bias = bt_below(2) ? &bias : NULL;
    want = ref_conv(0, NULL, 1, op, &shape, &w, &x, &f, &y, 0);
    EACH_WAY(y.data, bsr_conv(ctx, 0, NULL, 1, op, &shape, &w, &x, &f, &y, e), REF_COMPARE(&y, &want, REF_ANY));
}
TF void random_conv_weight_gradient(int turn) {
    const int type = a_type(turn), out_type = type == BSR_I8 ? (int)BSR_I32 : type;
    int64_t channels, filters, in[3], out[3], n = bt_range(1, 2);
    bsr_conv_shape shape;
    bsr_matrix w, dw;
    bsr_dense x, dy;
    ref_result want;
    t_spec s;
    some_shape(&shape, in, out), s = some_filters(&shape, type, &channels, &filters), describe(&s, "");
    w = t_matrix(&s), dw = t_matrix_output(&w, out_type, some_blocks());
    x = some_images(type, shape.dims, in, n, channels, 0), dy = some_images(type, shape.dims, out, n, filters, 0);
    want = ref_conv_weights(0, NULL, 1, &shape, &dy, &x, &dw, 0);
    EACH_WAY(dw.values, bsr_conv_weight_gradient(ctx, 0, NULL, 1, &shape, &dy, &x, &dw, e),
             REF_COMPARE_MATRIX(&dw, &want, REF_ANY));
}
TF void random_conv_prune(int turn) { /* with one tap it is bsr_prune */
    const int type = a_type(turn), norm = (int)bt_below(3);
    const bsr_dense filter = t_random(type, bt_range(0, 40), bt_range(0, 40), some_layout(), NO_BATCH, 0, FILL_SIGNED);
    const double sparsity = bt_uniform();
    bsr_exec e = t_exec(0);
    bsr_matrix m[2];
    t_spec s = some_spec(type, FILL_SIGNED, 40);
    s.batch = NO_BATCH, s.ragged = 0, s.r = (filter.rows + s.block_rows - 1) / s.block_rows;
    s.c = (filter.cols + s.block_cols - 1) / s.block_cols, m[0] = t_target(&s), m[1] = t_target(&s);
    if (!RUN_OK(bsr_conv_prune(t_any_context(), &filter, sparsity, norm, &m[0], &e))) return;
    if (!RUN_OK(bsr_prune(t_any_context(), bsr_operand_dense(&filter), sparsity, norm, &m[1], &e))) return;
    CHECK_INT(m[0].nnz, m[1].nnz);
    same_bytes("crow", m[0].crow_indices, m[1].crow_indices), same_bytes("col", m[0].col_indices, m[1].col_indices);
    same_bytes("values", m[0].values, m[1].values);
}
/* Heads that share keys and values, masks of fewer items, every option, or none (plain: what the fastest kernels take). */
static void attention(int turn, int plain) {
    const int type = a_float(turn), out_type = type == BSR_F64 || bt_below(2) ? type : (int)BSR_F32;
    const int64_t kinds = plain ? 0 : bt_below(3), group = bt_range(1, 2);
    const int64_t d = easy ? turn / 4 % 2 ? 128 : one_of(64, 64, 32, 16) : bt_range(1, bt_below(4) ? 70 : 150);
    const double scale = bt_below(2) ? 0 : bt_uniform();
    t_spec s = some_spec(type, kinds == 1 ? FILL_BOOL : FILL_SIGNED, 150);
    t_shape bq = s.batch, bk = bq, bv = bq;
    bsr_attention_options o;
    bsr_matrix mask;
    bsr_dense q, k, v, out, lse, rel, kp;
    ref_result norm, want;
    int64_t lq, lk, dv;
    memset(&o, 0, sizeof o);
    if (!s.r) s.r = 1;
    if (!s.c) s.c = 1;
    if (bq.dims) bq.n[bq.dims - 1] *= group, bk = bv = bq;
    if (bq.dims && bt_below(2)) bk.n[bq.dims - 1] /= group;
    if (bq.dims && bt_below(2)) bv.n[bq.dims - 1] /= group;
    s.batch = narrowed(bq), s.nnz = s.r * s.c * bt_range(10, 100) / 100;
    lq = s.r * s.block_rows - (easy ? 0 : bt_below(s.block_rows)), lk = s.c * s.block_cols - (easy ? 0 : bt_below(s.block_cols));
    dv = bt_below(2) ? d : easy ? 64 : bt_range(1, 40);
    describe(&s, ""), mask = t_matrix(&s);
    q = t_random(type, lq, d, easy ? ROW : some_layout(), bq, 0, FILL_SIGNED);
    k = t_random(type, lk, d, easy ? ROW : some_layout(), bk, 0, FILL_SIGNED);
    v = t_random(type, lk, dv, easy ? ROW : some_layout(), bv, 0, FILL_SIGNED);
    out = t_output(out_type, lq, dv, easy ? ROW : some_layout(), bq);
    lse = t_output(type == BSR_F64 ? BSR_F64 : BSR_F32, lq, 1, some_layout(), bq);
    o.flags = kinds == 1 ? (uint32_t)BSR_ATTENTION_MASK_BOOLEAN : kinds == 2 ? (uint32_t)BSR_ATTENTION_MASK_ADDITIVE : 0u;
    if (!plain && bt_below(2)) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = bt_range(-4, 4) + (bt_below(2) ? lk - lq : 0);
    rel = t_random(type, bt_below(2) ? lq : 1, lk, some_layout(), narrowed(bq), 0, FILL_SIGNED);
    kp = t_random(BSR_F32, 1, lk, ROW, NO_BATCH, 0, bt_below(2) ? FILL_BOOL : FILL_SIGNED);
    if (!plain) {
        if (bt_below(2)) o.relative_bias = &rel;
        if (bt_below(2)) o.key_padding_mask = &kp, o.key_padding_mode = (int)bt_below(2);
        if (type != BSR_F64 && bt_below(3) == 0) o.score_function = bt_below(2) ? BSR_SCORE_tf_alibi : BSR_SCORE_tf_softcap;
        if (bt_below(3) == 0) o.mask_function = BSR_MASK_tf_stripes;
        if (bt_below(2)) o.dropout_p = bt_uniform() * 0.9, o.dropout_seed = bt_random();
    }
    want = ref_attention(scale, &q, &k, &v, &mask, &o, bq, &norm);
    EACH_WAY(out.data, (poison(lse.data), bsr_attention(ctx, scale, &q, &k, &v, &mask, &o, &out, &lse, e)),
             (REF_COMPARE(&out, &want, REF_MAY_BE_ZERO), REF_COMPARE(&lse, &norm, REF_MAY_BE_ZERO)));
}
static void random_attention(int turn) { attention(turn / 2, turn % 2); }
/* Gradients of attention with some options; with all of them: test_attention_backward.c. */
static bsr_status gradients(const bsr_context *ctx, const ref_gradients *g, const bsr_exec *e) {
    poison(g->dq.data), poison(g->dk.data);
    if (g->has_bias) poison(g->d_bias.data);
    if (g->has_scores) poison(g->d_scores.values);
    return bsr_attention_backward(ctx, g->scale, &g->q, &g->k, &g->v, &g->mask, &g->o, &g->out, &g->lse, &g->d_out, &g->dq,
                                  &g->dk, &g->dv, e);
}
static void random_attention_backward(int turn) {
    const int type = a_float(turn);
    const int64_t d = easy ? one_of(64, 64, 32, 128) : bt_range(1, 70), dv = bt_below(2) ? d : bt_range(1, 40);
    t_spec s = some_spec(type, FILL_SIGNED, 70);
    t_shape b = s.batch, bk = b;
    ref_gradients g;
    bsr_dense rel;
    if (!s.r) s.r = 1;
    if (!s.c) s.c = 1;
    if (b.dims && bt_below(2)) bk.n[b.dims - 1] = 1; /* heads share keys */
    s.batch = narrowed(b), s.nnz = s.r * s.c * bt_range(10, 100) / 100, describe(&s, "");
    g = ref_gradients_new(&s, type, s.r * s.block_rows, s.c * s.block_cols, d, dv, b, bk, bk, b, (int)bt_below(2));
    rel = t_random(type, g.q.rows, g.k.rows, some_layout(), narrowed(b), 0, FILL_SIGNED), g.flags = REF_ANY;
    if (bt_below(2)) g.o.flags |= BSR_ATTENTION_CAUSAL, g.o.causal_offset = g.k.rows - g.q.rows;
    if (!easy && bt_below(2)) g.o.relative_bias = &rel;
    if (bt_below(2)) t_attach_transposed(&g.mask);
    ref_gradients_extra(&g, (int)bt_below(2), (int)bt_below(2), !easy && bt_below(2), type);
    if (ref_run_forward(&g)) EACH_WAY(g.dv.data, gradients(ctx, &g, e), ref_compare_backward(&g));
}
static void random_attention_merge(int turn) {
    const int type = a_float(turn), to = type == BSR_F64 || bt_below(2) ? type : (int)BSR_F32;
    ref_merge g;
    ref_merge_draw(&g, type, to, (int)bt_range(1, REF_PARTS), bt_range(0, 150), bt_range(0, bt_below(4) ? 70 : 300),
                   some_batch(), 0);
    ref_merge_want(&g);
    EACH_WAY(g.out.data, (poison(g.lse.data), bsr_attention_merge(ctx, g.parts, g.x, g.y, &g.out, &g.lse, e)),
             (REF_COMPARE(&g.out, &g.want, REF_ANY), REF_COMPARE(&g.lse, &g.norm, REF_ANY)));
}

/* ---------------------------------------------------------------------------------------------- */
/* bit for bit: products of whole numbers                                                         */
/* ---------------------------------------------------------------------------------------------- */

/* bsr_matmul, one of three operands sparse, in all transposes, or what it gives back. */
typedef struct triple {
    int type, out, which, mode; /* which operand is sparse: 2 of SDD, 0 of DSD, 1 of DDS */
    unsigned trans;
    bsr_matrix sparse;
    bsr_dense dense[3], want;
    bsr_operand o[3]; /* into this struct */
} triple;
static void make_triple(triple *t, int turn, const char *const *names) {
    t_spec s;
    int64_t m, n, more, rows, cols, size[3][2];
    int turned[3], i;
    memset(t, 0, sizeof *t);
    t->type = a_type(turn), t->out = t->type == BSR_I8 ? BSR_I32 : t->type, t->mode = (int)bt_below(3);
    t->trans = (unsigned)bt_below(8), t->which = t->mode == 0 ? 2 : t->mode - 1;
    s = some_spec(t->type, FILL_INTEGER, 120);
    if (s.batch.dims && bt_below(8) == 0) s.batch.n[bt_below(s.batch.dims)] = 0; /* gradients of what is narrowed: 0 */
    m = s.r * s.block_rows, n = s.c * s.block_cols, more = some_columns(&s, easy ? 160 : 90);
    describe(&s, names[t->mode]), bt_describe("transposes %u, %d more", t->trans, (int)more);
    /* the sparse one is m x n as stored; op() of each gives its sizes in the product */
    turned[0] = (t->trans & BSR_TRANS_A) != 0, turned[1] = (t->trans & BSR_TRANS_B) != 0,
    turned[2] = (t->trans & BSR_TRANS_C) != 0;
    rows = turned[t->which] ? n : m, cols = turned[t->which] ? m : n;
    size[0][0] = t->which == 1 ? more : rows, size[0][1] = t->which == 2 ? more : t->which == 1 ? rows : cols;
    size[1][0] = t->which == 0 ? cols : t->which == 1 ? rows : more, size[1][1] = t->which == 0 ? more : cols;
    size[2][0] = t->which == 1 ? more : rows, size[2][1] = t->which == 0 ? more : cols;
    s.dtype = t->which == 2 ? t->out : t->type, t->sparse = t_matrix(&s);
    if (bt_below(2)) t_attach_transposed(&t->sparse);
    if (bt_below(3) == 0) t_attach_schedule(&t->sparse, 1 << bt_below(4), (int)bt_below(2));
    for (i = 0; i < 3; i++) {
        const int64_t r = size[i][turned[i]], c = size[i][!turned[i]];
        if (i == t->which) t->o[i] = bsr_operand_sparse(&t->sparse);
        else {
            t->dense[i] =
                i == 2 ? t_output(t->out, r, c, some_layout(), s.batch)
                       : t_random(t->type, r, c, some_layout(), t->which == 2 ? s.batch : narrowed(s.batch), 0, FILL_INTEGER);
            t->o[i] = bsr_operand_dense(&t->dense[i]);
        }
    }
}
static const char *const modes[] = {", SDD", ", DSD", ", DDS"};
static void random_matmul(int turn) {
    triple t;
    bsr_matrix c[2];
    bsr_operand exact;
    bsr_exec plain = t_exec(0);
    void *got, *want;
    make_triple(&t, turn, modes);
    t.want = t.dense[2], c[0] = c[1] = t.sparse;
    if (t.which == 2) {
        const int layout = some_blocks();
        const uint64_t random = bt.random; /* both alike */
        c[0] = t_matrix_output(&t.sparse, t.out, layout), bt.random = random, c[1] = t_matrix_output(&t.sparse, t.out, layout);
        t.o[2] = bsr_operand_sparse(&c[0]), exact = bsr_operand_sparse(&c[1]);
    } else {
        t.want.data = bt_alloc(bt_find(t.dense[2].data)->bytes, 8), bt_mark_output(t.want.data);
        exact = bsr_operand_dense(&t.want);
    }
    if (!RUN_OK(T_ON_CPU(matmul)(cpu(), t.trans, t.o[0], t.o[1], exact, &plain))) return;
    got = t.which == 2 ? c[0].values : t.dense[2].data, want = t.which == 2 ? c[1].values : t.want.data;
    EACH_WAY(got, bsr_matmul(ctx, t.trans, t.o[0], t.o[1], t.o[2], e), same_bytes("matmul", got, want));
}
/* dc is of whole numbers; gradients take the operands' places. */
static void random_matmul_backward(int turn) {
    const bsr_operand none = {NULL, NULL};
    triple t;
    bsr_exec plain = t_exec(0);
    int i, j;
    do make_triple(&t, turn, modes);
    while (t.type == BSR_I8 && ++turn);
    if (t.which != 2) t_fill(&t.dense[2], FILL_INTEGER);
    for (i = 0; i < 2; i++) {
        bsr_matrix gs[2];
        bsr_dense gd[2];
        bsr_operand to[2];
        const int layout = i == t.which ? some_blocks() : some_layout();
        const uint64_t random = bt.random;
        const void *got, *want;
        for (j = 0; j < 2; j++) {
            bt.random = random; /* both alike */
            if (i == t.which) gs[j] = t_matrix_output(&t.sparse, t.type, layout), to[j] = bsr_operand_sparse(&gs[j]);
            else
                gd[j] = t_output(t.type, t.dense[i].rows, t.dense[i].cols, layout, t_dense_batch(&t.dense[i])),
                to[j] = bsr_operand_dense(&gd[j]);
        }
        if (!RUN_OK(
                T_ON_CPU(matmul_backward)(cpu(), t.trans, t.o[0], t.o[1], t.o[2], i ? none : to[1], i ? to[1] : none, &plain)))
            return;
        got = i == t.which ? gs[0].values : gd[0].data, want = i == t.which ? gs[1].values : gd[1].data;
        EACH_WAY(got, bsr_matmul_backward(ctx, t.trans, t.o[0], t.o[1], t.o[2], i ? none : to[0], i ? to[0] : none, e),
                 same_bytes(i ? "db" : "da", got, want));
    }
}
/* The lists of bsr_scatter_mm, a product by way of them, and from tiles. */
static void scatter(int turn, int product_too) {
    const int type = a_type(turn), out = type == BSR_I8 ? BSR_I32 : type;
    const int64_t split = bt_range(1, 3);
    t_spec s = some_spec(type, FILL_INTEGER, 120);
    bsr_scatter_indices x[2];
    bsr_exec plain = t_exec(0);
    bsr_matrix a;
    bsr_dense b, got, want;
    int64_t n;
    int i, layout;
    uint64_t random;
    lengthen(&s, turn / 3);
    s.batch = NO_BATCH, s.ragged = 0, describe(&s, ""), memset(x, 0, sizeof x);
    n = split * some_columns(&s, easy ? 96 : 40);
    a = t_matrix(&s);
    for (i = 0; i < 2; i++) {
        x[i].format = turn % 3 + 1, x[i].split_n = split;
        if (!RUN_OK(bsr_build_scatter_indices(cpu(), &a, n, &x[i], &plain))) return;
        t_list_room(&x[i], 1);
    }
    if (!RUN_OK(T_ON_CPU(build_scatter_indices)(cpu(), &a, n, &x[1], &plain)) ||
        !RUN_OK(bsr_build_scatter_indices(t_any_context(), &a, n, &x[0], &plain)))
        return;
    same_bytes("c_indices", x[0].c_indices, x[1].c_indices), same_bytes("r_offsets", x[0].r_offsets, x[1].r_offsets);
    same_bytes("p_indices", x[0].p_indices, x[1].p_indices), same_bytes("q_indices", x[0].q_indices, x[1].q_indices);
    if (!product_too) return;
    b = t_random(type, a.cols, n, some_layout(), longer ? NO_BATCH : some_batch(), 0, FILL_INTEGER);
    layout = some_layout(), random = bt.random, got = t_output(out, a.rows, n, layout, t_dense_batch(&b));
    bt.random = random, want = t_output(out, a.rows, n, layout, t_dense_batch(&b)); /* both alike */
    if (!RUN_OK(T_ON_CPU(dense_scatter_mm)(cpu(), &a, &b, &x[1], &want, &plain))) return;
    EACH_WAY(got.data, bsr_dense_scatter_mm(ctx, &a, &b, &x[1], &got, e), same_bytes("dense_scatter_mm", got.data, want.data));
}
static void random_build_scatter_indices(int turn) { scatter(turn, 0); }
static void random_dense_scatter_mm(int turn) { scatter(turn, 1); }
/* Tiles of any sizes, each output the sum of some products; it adds to what stands there. */
static void random_scatter_mm(int turn) {
    const int type = a_type(turn), out = type == BSR_I8 ? BSR_I32 : type;
    const int64_t ms = some_block(), ks = some_block(), ns = easy ? 8 * bt_range(1, 12) : bt_range(1, 100);
    const int64_t tiles = bt_range(1, 4), outputs = bt_range(1, 4);
    const bsr_dense p = t_random(type, ms, ks, some_layout(), t_batch(1, bt_range(1, 5), 0, 0, 0), 0, FILL_INTEGER);
    const bsr_dense q = t_random(type, ks, ns, some_layout(), t_batch(1, tiles, 0, 0, 0), 0, FILL_INTEGER);
    const int layout = some_layout();
    const uint64_t random = bt.random;
    bsr_scatter_indices x;
    bsr_exec plain = t_exec(0);
    bsr_dense got, want, from;
    int64_t i;
    bt_describe("%s, tiles of %d x %d x %d, %d outputs", bsr_dtype_name(type), (int)ms, (int)ks, (int)ns, (int)outputs);
    got = t_output(out, ms, ns, layout, t_batch(1, outputs, 0, 0, 0)), bt.random = random;
    want = t_output(out, ms, ns, layout, t_batch(1, outputs, 0, 0, 0)), bt.random = random;
    from = t_random(out, ms, ns, layout, t_batch(1, outputs, 0, 0, 0), 0, FILL_INTEGER);
    memset(&x, 0, sizeof x), x.format = BSR_SCATTER_MM, x.c_count = outputs + 1, x.p_count = x.q_count = bt_range(0, 12);
    t_list_room(&x, 0);
    for (i = 0; i <= outputs; i++) x.c_indices[i] = x.p_count * i / outputs;
    for (i = 0; i < x.p_count; i++) x.p_indices[i] = bt_below(p.batch[0]), x.q_indices[i] = bt_below(tiles);
    memcpy(want.data, from.data, bt_find(from.data)->bytes);
    if (!RUN_OK(T_ON_CPU(scatter_mm)(cpu(), &p, &q, &x, &want, &plain))) return;
    EACH_WAY(got.data, (memcpy(got.data, from.data, bt_find(from.data)->bytes), bsr_scatter_mm(ctx, &p, &q, &x, &got, e)),
             same_bytes("scatter_mm", got.data, want.data));
}

/* ---------------------------------------------------------------------------------------------- */
/* bit for bit: conversions and views                                                             */
/* ---------------------------------------------------------------------------------------------- */

enum { FROM_DENSE, FROM_MASK, RANDOM, PRUNE, FROM_CSR, FROM_COO };
typedef struct source {
    int kind, type, index, norm;
    bsr_dense d, values;
    uint8_t *mask;
    void *first, *col;
    int64_t rows, cols, nnz;
    double sparsity;
    uint64_t seed;
} source;
static void make_source(source *x, const t_spec *s) {
    const int dense = x->kind == FROM_DENSE || x->kind == PRUNE, coo = x->kind == FROM_COO;
    const int64_t blocks = t_items(&s->batch) * s->r * s->c;
    int64_t i, j;
    size_t size;
    x->rows = s->r * s->block_rows, x->cols = s->c * s->block_cols;
    x->nnz = x->rows ? bt_range(0, longer ? 20000 : 600) : 0;
    x->d = t_random(x->type, dense ? x->rows : 1, dense ? x->cols : 1, some_layout(), dense ? s->batch : NO_BATCH, 0, s->kind);
    for (i = 0; x->kind == FROM_DENSE && i < t_dense_items(&x->d) * s->r * s->c; i++) { /* blocks of zeros */
        const int64_t zero = bt_below(2);
        for (j = 0; j < s->block_rows * s->block_cols && zero; j++)
            t_set(&x->d, i / (s->r * s->c), i % (s->r * s->c) / s->c * s->block_rows + j / s->block_cols,
                  i % s->c * s->block_cols + j % s->block_cols, bt_below(100) || j ? 0 : -0.0);
    }
    x->mask = (uint8_t *)bt_alloc((size_t)blocks, 1);
    for (i = 0; i < blocks; i++) x->mask[i] = (uint8_t)(bt_below(2) * bt_range(1, 255));
    x->index = bt_below(2) ? BSR_I32 : BSR_I64, size = bsr_dtype_size(x->index);
    x->first = bt_alloc((size_t)(coo ? x->nnz : x->rows + 1) * size, size), x->col = bt_alloc((size_t)x->nnz * size, size);
    x->values = t_random(x->type, 1, x->nnz, ROW, NO_BATCH, 0, FILL_INTEGER);
    for (i = 0; i < x->nnz; i++) t_set_index(x->col, x->index, i, bt_below(x->cols));
    for (i = 0; i < (coo ? x->nnz : x->rows + 1); i++) /* rows of about equal length; entries in any order */
        t_set_index(x->first, x->index, i, coo ? bt_below(x->rows) : i == x->rows ? x->nnz : x->nnz * i / x->rows);
    x->sparsity = bt_below(5) ? bt_uniform() : (double)bt_below(2), x->norm = (int)bt_below(3), x->seed = bt_random();
}
#define CONVERT(of, ctx)                                                                                                         \
    (x.kind == FROM_DENSE  ? of(from_dense)(ctx, &x.d, &m[j], &e)                                                                \
     : x.kind == FROM_MASK ? of(from_block_mask)(ctx, x.mask, &m[j], &e)                                                         \
     : x.kind == RANDOM    ? of(random_pattern)(ctx, x.seed, x.sparsity, &m[j], &e)                                              \
     : x.kind == PRUNE     ? of(prune)(ctx, bsr_operand_dense(&x.d), x.sparsity, x.norm, &m[j], &e)                              \
     : x.kind == FROM_CSR  ? of(from_csr)(ctx, x.rows, x.cols, x.nnz, x.first, x.col, x.index, x.values.data, x.type, &m[j], &e) \
                           : of(from_coo)(ctx, x.rows, x.cols, x.nnz, x.first, x.col, x.index, x.values.data, x.type, &m[j], &e))
static void conversion(int turn, int kind) {
    static const char *const names[] = {", from_dense", ", from_block_mask", ", random_pattern",
                                        ", prune",      ", from_csr",        ", from_coo"};
    const int type = a_type(bt_below(TYPES)), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type;
    const int entries = kind >= FROM_CSR, equal = kind == RANDOM || kind == PRUNE, sizes = bt_below(2) != 0;
    t_spec s = some_spec(type, longer || bt_below(2) ? FILL_INTEGER : FILL_SIGNED, 150);
    bsr_matrix m[2];
    source x;
    uint64_t random;
    int j;
    memset(&x, 0, sizeof x), x.kind = kind, x.type = type;
    lengthen(&s, turn);
    if (!s.c) s.c = 1;
    if (entries || longer) s.batch = NO_BATCH;
    if (entries || equal) s.ragged = 0;
    else s.ragged = s.batch.dims != 0;
    describe(&s, names[kind]), make_source(&x, &s);
    s.dtype = other, s.layout = some_blocks(), random = bt.random;
    for (j = 1; j >= 0; j--) {
        bsr_exec e = t_exec(0);
        bt.random = random, m[j] = t_target(&s);
        if (kind == FROM_MASK || kind == RANDOM || sizes) m[j].rows = x.rows, m[j].cols = x.cols;
#define TESTED(name) bsr_##name
        if (!RUN_OK(j ? CONVERT(T_ON_CPU, cpu()) : CONVERT(TESTED, t_any_context()))) return;
    }
    CHECK_INT(m[0].nnz, m[1].nnz), CHECK_INT(m[0].rows, m[1].rows), CHECK_INT(m[0].cols, m[1].cols);
    same_bytes("crow_indices", m[0].crow_indices, m[1].crow_indices);
    same_bytes("col_indices", m[0].col_indices, m[1].col_indices);
    same_bytes("values", m[0].values, m[1].values);
}
static void random_from_dense(int turn) { conversion(turn, FROM_DENSE); }
static void random_from_block_mask(int turn) { conversion(turn, FROM_MASK); }
static void random_random_pattern(int turn) { conversion(turn, RANDOM); }
static void random_prune(int turn) { conversion(turn, PRUNE); }
static void random_from_csr(int turn) { conversion(turn, FROM_CSR); }
static void random_from_coo(int turn) { conversion(turn, FROM_COO); }
/* Whole blocks to another block size, CSR or COO. */
enum { TO_REBLOCK, TO_CSR, TO_COO };
#define ENTRIES(of, ctx)                                                                                                        \
    (kind == TO_CSR                                                                                                             \
         ? of(to_csr)(ctx, &a, rows, cols, &m[j].nnz, m[j].crow_indices, m[j].col_indices, s.index_dtype, m[j].values, other,   \
                      &e)                                                                                                       \
         : of(to_coo)(ctx, &a, rows, cols, &m[j].nnz, m[j].crow_indices, row[j], m[j].col_indices, s.index_dtype, m[j].values,  \
                      other, &e))
static void whole_blocks(int turn, int kind) {
    static const char *const names[] = {", reblock", ", to_csr", ", to_coo"};
    const int type = a_type(turn), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type;
    t_spec s = some_spec(type, FILL_SIGNED, 150), to;
    bsr_matrix a, m[2];
    int64_t most, rows, cols;
    void *row[2] = {NULL, NULL};
    uint64_t random;
    size_t size;
    int j;
    lengthen(&s, turn), s.unsorted = s.duplicates = 0;
    if (kind != TO_REBLOCK || longer) s.batch = NO_BATCH, s.ragged = 0;
    describe(&s, names[kind]);
    a = t_matrix(&s), most = a.nnz * a.block_rows * a.block_cols, size = bsr_dtype_size(s.index_dtype);
    rows = a.rows - (a.rows ? bt_below(a.block_rows) : 0), cols = a.cols - (a.cols ? bt_below(a.block_cols) : 0);
    to = s, to.dtype = other, to.block_rows = some_block(), to.block_cols = some_block(), to.ragged = s.batch.dims != 0;
    to.r = (a.rows + to.block_rows - 1) / to.block_rows, to.c = (a.cols + to.block_cols - 1) / to.block_cols;
    to.layout = some_blocks(), random = bt.random;
    for (j = 1; j >= 0; j--) {
        bsr_exec e = t_exec(0);
        bt.random = random;
        if (kind == TO_REBLOCK) {
            m[j] = t_target(&to);
            if (!RUN_OK(j ? T_ON_CPU(reblock)(cpu(), &a, &m[j], &e) : bsr_reblock(t_any_context(), &a, &m[j], &e))) return;
            continue;
        }
        memset(&m[j], 0, sizeof m[j]), m[j].nnz = most;
        m[j].crow_indices = bt_alloc((size_t)(rows + 1) * size, size), m[j].col_indices = bt_alloc((size_t)most * size, size);
        m[j].values = bt_alloc((size_t)most * bsr_dtype_size(other), bsr_dtype_size(other));
        row[j] = bt_alloc((size_t)most * size, size), bt_mark_output(row[j]);
        bt_mark_output(m[j].crow_indices), bt_mark_output(m[j].col_indices), bt_mark_output(m[j].values);
        if (!RUN_OK(j ? ENTRIES(T_ON_CPU, cpu()) : ENTRIES(TESTED, t_any_context()))) return;
    }
    CHECK_INT(m[0].nnz, m[1].nnz), CHECK_INT(m[0].rows, m[1].rows), CHECK_INT(m[0].cols, m[1].cols);
    same_bytes("crow_indices", m[0].crow_indices, m[1].crow_indices);
    same_bytes("col_indices", m[0].col_indices, m[1].col_indices);
    same_bytes("values", m[0].values, m[1].values);
    if (kind != TO_REBLOCK) same_bytes("rows", row[0], row[1]);
}
static void random_reblock(int turn) { whole_blocks(turn, TO_REBLOCK); }
static void random_to_csr(int turn) { whole_blocks(turn, TO_CSR); }
static void random_to_coo(int turn) { whole_blocks(turn, TO_COO); }
static void random_to_dense(int turn) {
    const int type = a_type(turn), other = t_is_float(type) && bt_below(2) ? a_float(bt_below(4)) : type, layout = some_layout();
    t_spec s = some_spec(type, FILL_SIGNED, 200);
    bsr_exec e = t_exec(0);
    bsr_matrix m;
    bsr_dense got, want;
    uint64_t random;
    lengthen(&s, turn);
    if (longer) s.batch = NO_BATCH, s.ragged = 0;
    s.shared_values = (unsigned)bt_below(4), describe(&s, "");
    m = t_matrix(&s), random = bt.random;
    got = t_output(other, m.rows, m.cols, layout, s.batch), bt.random = random;
    want = t_output(other, m.rows, m.cols, layout, s.batch);
    if (RUN_OK(T_ON_CPU(to_dense)(cpu(), &m, &want, &e)) && RUN_OK(bsr_to_dense(t_any_context(), &m, &got, &e)))
        same_bytes("to_dense", got.data, want.data);
}
/* Transposed index and schedule, of wide and tall patterns too; built twice, by the one and by the other. */
typedef struct views {
    bsr_matrix m;
    void *view[2][2]; /* by whom, which */
} views;
static int make_views(views *v, int turn) {
    const int group = 1 << turn % 4, wide = turn % 8 < 4, trans = longer ? turn / 4 % 2 : wide ? 0 : (int)bt_below(2);
    t_spec s = some_spec(BSR_F32, FILL_SIGNED, 100);
    bsr_exec e = t_exec(0);
    uint64_t bytes[2] = {0, 0};
    int i, j;
    s.duplicates = bt_below(4) == 0;
    if (wide || easy) s.r = bt_range(1, 250), s.c = wide ? bt_range(257, 1100) : bt_range(1, 200);
    if (wide || easy) s.block_rows = s.block_cols = 1, s.nnz = bt_range(0, bt_below(4) ? 300 : s.r * s.c);
    lengthen(&s, turn / 8);
    if (longer) s.block_rows = s.block_cols = 1, s.batch = NO_BATCH, s.ragged = 0, s.c = s.c < 40 ? 40 : s.c;
    describe(&s, trans ? ", schedule of A^T" : ""), v->m = t_matrix(&s);
    if (!RUN_OK(bsr_transposed_index_size(cpu(), &v->m, &bytes[0], &e)) ||
        !RUN_OK(bsr_schedule_size(cpu(), &v->m, group, trans, &bytes[1], &e)))
        return 0;
    for (j = 1; j >= 0; j--) {
        const bsr_context *const ctx = j ? cpu() : t_any_context();
        for (i = 0; i < 2; i++) v->view[j][i] = bt_alloc((size_t)bytes[i], 64), bt_mark_output(v->view[j][i]);
        if (!RUN_OK(j ? T_ON_CPU(build_transposed_index)(ctx, &v->m, v->view[j][0], bytes[0], &e)
                      : bsr_build_transposed_index(ctx, &v->m, v->view[j][0], bytes[0], &e)) ||
            !RUN_OK(j ? T_ON_CPU(build_schedule)(ctx, &v->m, group, trans, v->view[j][1], bytes[1], &e)
                      : bsr_build_schedule(ctx, &v->m, group, trans, v->view[j][1], bytes[1], &e)))
            return 0;
    }
    return 1;
}
static void random_build_transposed_index(int turn) {
    views v;
    if (make_views(&v, turn)) same_bytes("transposed index", v.view[0][0], v.view[1][0]);
}
static void random_build_schedule(int turn) {
    views v;
    if (make_views(&v, turn)) same_bytes("schedule", v.view[0][1], v.view[1][1]);
}
/* What bsr_validate finds in a matrix as it is and with one word wrong: 1 in crow_indices, 2 in col_indices, 3 in a view. */
static void random_validate(int turn) {
    views v;
    bsr_matrix *const m = &v.m;
    int wrong, j;
    if (!make_views(&v, turn)) return;
    if (bt_below(4)) m->transposed_index = v.view[1][0];
    if (bt_below(4)) m->schedule = v.view[1][1];
    for (wrong = 0; wrong < 4; wrong++) {
        const void *const array = wrong == 0    ? NULL
                                  : wrong == 1  ? m->crow_indices
                                  : wrong == 2  ? m->col_indices
                                  : m->schedule ? m->schedule
                                                : m->transposed_index;
        const bt_block *const b = wrong ? bt_find(array) : NULL;
        const size_t size = wrong == 3 ? 4 : bsr_dtype_size(m->index_dtype);
        bsr_error found[2];
        char old[8], *at;
        if (wrong && (!b || b->bytes < size)) continue;
        at = b ? (char *)b->data + (size_t)bt_below((int64_t)(b->bytes / size)) * size : NULL;
        if (at)
            memcpy(old, at, size), t_set_index(at, size == 8 ? BSR_I64 : BSR_I32, 0, one_of(-1, 0, bt_range(0, 50), INT32_MAX));
        for (j = 0; j < 2; j++) {
            bsr_exec f = t_exec(0);
            memset(&found[j], 0, sizeof found[j]), f.error = &found[j];
            (void)(j ? T_ON_CPU(validate)(cpu(), m, &f) : bsr_validate(t_any_context(), m, &f));
        }
        bt.checks++;
        if (memcmp(&found[0], &found[1], sizeof found[0])) {
            char here[320], there[320];
            bsr_error_string(&found[0], here, sizeof here), bsr_error_string(&found[1], there, sizeof there);
            bt_fail(__FILE__, __LINE__, "word wrong in array %d: \"%s\", the portable CPU finds \"%s\"", wrong, here, there);
        }
        if (at) memcpy(at, old, size);
    }
}
static void random_layout_mask(int turn) {
    const int64_t heads = bt_range(1, 4), n = bt_range(1, 40);
    bsr_layout l = bsr_layout_default(1 + turn % 6, heads, n);
    bsr_exec e = t_exec(0);
    uint8_t *mask[2];
    int j;
    l.unidirectional = (int)bt_below(2), l.different_layout_per_head = (int)bt_below(2), l.seed = bt_random();
    if (l.kind == BSR_LAYOUT_VARIABLE || l.kind == BSR_LAYOUT_BIGBIRD) l.num_random_blocks = bt_below(bt_range(1, 3));
    for (j = 1; j >= 0; j--) {
        bsr_status status;
        mask[j] = (uint8_t *)bt_alloc((size_t)(heads * n * n), 1), bt_mark_output(mask[j]);
        status = j ? T_ON_CPU(layout_mask)(cpu(), &l, mask[j], &e) : bsr_layout_mask(t_any_context(), &l, mask[j], &e);
        if (j && status != BSR_OK) { /* sizes that do not go with the layout, which are refused alike */
            CHECK(bsr_layout_mask(t_any_context(), &l, mask[j], &e) == status);
            return;
        }
        CHECK_INT(status, BSR_OK);
    }
    same_bytes("layout", mask[0], mask[1]);
}

/* ---------------------------------------------------------------------------------------------- */
/* mixtures of experts                                                                            */
/* ---------------------------------------------------------------------------------------------- */

static void random_sampled_gated(int turn) {
    const int type = a_type(turn), to_f32 = type != BSR_F64 && bt_below(3) == 0;
    const int out_type = type == BSR_I8 ? a_float(bt_below(3)) : to_f32 ? (int)BSR_F32 : type;
    const int act = (int)bt_range(BSR_ACT_NONE, BSR_ACT_SILU), keeps = (int)bt_below(4);
    const int along = bt_below(2) ? (int)ROW : (int)COL;
    t_spec s = some_spec(type, FILL_SIGNED, 150);
    bsr_matrix m, out, gate_out, up_out;
    bsr_dense x, gate, up;
    int64_t inner;
    if (bt_below(2)) {
        s.block_rows = one_of(16, 32, 64, 128), s.block_cols = 128;
        s.r = bt_range(1, 3), s.c = 2, s.nnz = s.r * 2 - 1;
    }
    inner = bt_below(10) ? some_columns(&s, easy ? 192 : 100) : 0, s.pattern_only = 1;
    describe(&s, ""), bt_describe("to %s, inner size %d, function %d, kept %d", bsr_dtype_name(out_type), (int)inner, act, keeps);
    m = t_matrix(&s), out = t_matrix_output(&m, out_type, some_blocks());
    gate_out = t_matrix_output(&m, out_type, some_blocks()), up_out = t_matrix_output(&m, out_type, some_blocks());
    x = t_random(type, m.rows, inner, easy ? (int)ROW : some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    gate = t_random(type, inner, m.cols, easy ? along : some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    up = t_random(type, inner, m.cols, easy ? along : some_layout(), narrowed(s.batch), 0, FILL_SIGNED);
    {
        const ref_array xv = ref_dense(&x), gv = ref_dense(&gate), uv = ref_dense(&up);
        const ref_sum g = ref_mm(&xv, NULL, &gv, NULL, s.batch, s.batch), u = ref_mm(&xv, NULL, &uv, NULL, s.batch, s.batch);
        EACH_WAY(out.values,
                 (poison(gate_out.values), poison(up_out.values),
                  bsr_sampled_gated(ctx, act, &x, &gate, &up, &out, keeps & 1 ? &gate_out : NULL, keeps & 2 ? &up_out : NULL, e)),
                 (rm_check_gated("out", &out, &g, &u, act, ref_compute(type), 0),
                  keeps & 1 ? rm_check_gated("gate_out", &gate_out, &g, &u, act, ref_compute(type), 1) : (void)0,
                  keeps & 2 ? rm_check_gated("up_out", &up_out, &g, &u, act, ref_compute(type), 2) : (void)0));
    }
}
/* Any router's choice, any capacity. */
static routed some_routing(void) {
    const int64_t tokens = bt_below(20) ? bt_range(1, bt_below(4) ? 60 : 1500) : 0, slots = bt_range(1, 8);
    const int64_t experts = bt_range(1, bt_below(3) ? 12 : 300), block = bt_below(2) ? one_of(16, 32, 64, 128) : bt_range(1, 40);
    const int64_t most = bsr_moe_rows(tokens, slots, experts, block);
    const int64_t rows = bt_below(3) ? -1 : bt_below(most / block + 1) * block;
    const int kind = (int)bt_below(KINDS);
    bt_describe("%d tokens, %d slots, %d experts, blocks of %d, %d rows, kind %d", (int)tokens, (int)slots, (int)experts,
                (int)block, (int)rows, kind);
    return t_routing(tokens, slots, experts, block, rows, kind, bt_below(2) ? BSR_I32 : BSR_I64);
}
/* One that the CPU has made. */
static int make_routing(routed *x) {
    bsr_exec e = t_exec(0);
    *x = some_routing();
    if (!RUN_OK(T_ON_CPU(moe_route)(cpu(), &x->experts, &x->r, &e))) return 0;
    rm_check_routing(x), t_routing_done(&x->r);
    return 1;
}
static void random_moe_route(int turn) {
    bsr_exec e = t_exec(0);
    routed x = some_routing();
    (void)turn;
    if (RUN_OK(bsr_moe_route(t_any_context(), &x.experts, &x.r, &e))) rm_check_routing(&x);
}
static int64_t some_width(const routed *x) { /* the larger the routing is the fewer columns */
    const int64_t n = easy ? 8 * bt_range(1, 40) : bt_range(0, 300), room = 100000 / (x->r.rows + x->r.tokens + 1);
    return n <= room ? n : easy && room >= 8 ? room / 8 * 8 : room;
}
static void random_moe_gather(int turn) {
    bsr_exec e = t_exec(0);
    bsr_dense d, weights, out;
    routed x;
    int64_t n;
    if (!make_routing(&x)) return;
    n = some_width(&x), d = t_random(a_float(turn), x.r.tokens, n, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    weights = t_random(a_float(bt_below(4)), x.r.tokens, x.r.slots, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    out = t_output(bt_below(2) ? d.dtype : a_float(bt_below(4)), x.r.rows, n, some_layout(), NO_BATCH);
    if (RUN_OK(bsr_moe_gather(t_any_context(), &x.r, &d, turn & 1 ? &weights : NULL, &out, &e)))
        rm_check_gather(&x.r, &d, turn & 1 ? &weights : NULL, &out);
}
static void random_moe_scatter(int turn) {
    const double beta = bt_below(2) ? 0 : bt_below(2) ? 1 : bt_uniform();
    bsr_exec e = t_exec(0);
    bsr_dense d, weights, input, out;
    routed x;
    int64_t n;
    if (!make_routing(&x)) return;
    n = some_width(&x), d = t_random(a_float(turn), x.r.rows, n, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    weights = t_random(a_float(bt_below(4)), x.r.tokens, x.r.slots, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    input = t_random(a_float(bt_below(4)), bt_below(3) ? x.r.tokens : 1, n, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    out = t_output(bt_below(2) ? d.dtype : a_float(bt_below(4)), x.r.tokens, n, some_layout(), NO_BATCH);
    if (RUN_OK(bsr_moe_scatter(t_any_context(), beta, &input, &x.r, &d, turn & 1 ? &weights : NULL, &out, &e)))
        rm_check_scatter(beta, &input, &x.r, &d, turn & 1 ? &weights : NULL, &out);
}
static void random_moe_weight_gradient(int turn) {
    bsr_exec e = t_exec(0);
    bsr_dense d, dy, out;
    routed x;
    int64_t n;
    if (!make_routing(&x)) return;
    n = some_width(&x), d = t_random(a_float(turn), x.r.rows, n, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    dy = t_random(a_float(bt_below(4)), x.r.tokens, n, some_layout(), NO_BATCH, 0, FILL_SIGNED);
    out = t_output(a_float(bt_below(4)), x.r.tokens, x.r.slots, some_layout(), NO_BATCH);
    if (RUN_OK(bsr_moe_weight_gradient(t_any_context(), &x.r, &d, &dy, &out, &e))) rm_check_weights(&x.r, &d, &dy, &out);
}
static void random_moe_topology(int turn) {
    const int64_t each = bt_range(0, 6);
    bsr_exec e = t_exec(0);
    bsr_matrix m;
    routed x;
    (void)turn;
    if (!make_routing(&x)) return;
    m = rm_pattern(&x.r, each, bt_range(1, 4), BSR_I8, PACKED, bt_below(2) ? BSR_I32 : BSR_I64);
    if (RUN_OK(bsr_moe_topology(t_any_context(), &x.r, &m, &e))) CHECK_INT(m.nnz, rm_check_topology(&x, &m, each));
}
static void random_moe_transposed_index(int turn) {
    const int64_t each = bt_range(0, 6);
    bsr_exec e = t_exec(0);
    uint64_t bytes = 0;
    void *view[2];
    bsr_matrix m;
    routed x;
    (void)turn;
    if (!make_routing(&x)) return;
    m = rm_pattern(&x.r, each, 1, BSR_I8, PACKED, bt_below(2) ? BSR_I32 : BSR_I64);
    if (!RUN_OK(T_ON_CPU(moe_topology)(cpu(), &x.r, &m, &e))) return;
    if (bt_find(m.crow_indices)) bt_find(m.crow_indices)->output = 0;
    if (bt_find(m.col_indices)) bt_find(m.col_indices)->output = 0;
    if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes, &e))) return;
    view[0] = bt_alloc((size_t)bytes, 64), view[1] = bt_alloc((size_t)bytes, 64);
    bt_mark_output(view[0]), bt_mark_output(view[1]);
    if (RUN_OK(T_ON_CPU(build_transposed_index)(cpu(), &m, view[1], bytes, &e)) &&
        RUN_OK(bsr_moe_transposed_index(t_any_context(), &x.r, &m, view[0], bytes, &e)))
        same_bytes("transposed index", view[0], view[1]);
}

/* ---------------------------------------------------------------------------------------------- */
/* block masks                                                                                    */
/* ---------------------------------------------------------------------------------------------- */

TF void random_block_mask(int turn) {
    bsr_exec e = t_exec(0);
    rk_case x;
    uint8_t *want, *kind;
    bsr_matrix m;
    int64_t nnz;
    int unequal;
    rk_new(&x, turn % 8 ? 90 : 500, 1), x.to.ragged = x.to.batch.dims != 0;
    want = (uint8_t *)bt_alloc((size_t)(t_items(&x.to.batch) * x.to.r * x.to.c), 1), bt_mark_output(want);
    m = t_target(&x.to), kind = rk_room(&x.to), nnz = rk_kinds(&x, want, &unequal);
    if (!RUN_OK(bsr_block_mask(t_any_context(), x.lq, x.lk, &x.o, x.pwithin, &m, kind, &e))) return;
    CHECK_INT(m.nnz, nnz), rk_check(&x, &m, kind, want);
}
static t_spec lists_spec(void) {
    t_spec s = some_spec(BSR_F32, FILL_SIGNED, 150);
    s.layout = PACKED, s.block_rows = bt_range(1, 5), s.block_cols = bt_range(1, 5), s.unsorted = s.duplicates = 0;
    return s;
}
TF void random_from_block_lists(int turn) {
    bsr_exec e = t_exec(0);
    t_spec s = lists_spec();
    rk_case x;
    bsr_matrix m;
    bsr_block_lists l;
    uint8_t *want, *kind;
    (void)turn;
    s.ragged = s.batch.dims != 0, memset(&x, 0, sizeof x), x.to = s;
    want = (uint8_t *)bt_alloc((size_t)(t_items(&s.batch) * s.r * s.c), 1), bt_mark_output(want), l = rk_lists(&s, want);
    m = t_target(&s), m.rows = s.r * s.block_rows, m.cols = s.c * s.block_cols, kind = rk_room(&s);
    if (RUN_OK(bsr_from_block_lists(t_any_context(), &l, &m, kind, &e))) rk_check(&x, &m, kind, want);
}
TF void random_to_block_lists(int turn) {
    bsr_exec e = t_exec(0);
    t_spec s = lists_spec();
    bsr_matrix m;
    bsr_block_lists l;
    uint8_t *kind;
    s.dtype = BSR_BOOL, s.pattern_only = 1, s.unsorted = turn & 1, m = t_matrix(&s), kind = ref_random_kinds(&m);
    l = rk_list_room(t_matrix_items(&m) * s.r, s.c, s.c + bt_below(2), bt_below(3) != 0);
    if (RUN_OK(bsr_to_block_lists(t_any_context(), &m, kind, &l, &e))) rk_check_lists(&m, kind, &l);
}

TF void random_pool_blocks(int turn) {
    static const int kinds[] = {BSR_REDUCE_SUM, BSR_REDUCE_MAX, BSR_REDUCE_MIN, BSR_REDUCE_MEAN};
    const int64_t block = some_block(), rows = bt_range(0, 600), n = (rows + block - 1) / block;
    const t_shape whole = some_batch();
    const int type = a_float(turn);
    bsr_exec e = t_exec(0);
    bsr_dense x = t_random(type, rows, bt_range(1, 200), some_layout(), whole, 0, FILL_SIGNED);
    bsr_dense out = t_output(bt_below(2) && type != BSR_F64 ? BSR_F32 : type, n, x.cols, some_layout(), whole);
    if (RUN_OK(bsr_pool_blocks(t_any_context(), kinds[turn % 4], block, &x, NULL, 0, &out, &e)))
        rk_check_pool(kinds[turn % 4], block, &x, NULL, 0, &out, 0);
}
TF void random_select_blocks(int turn) {
    bsr_exec e = t_exec(0);
    rk_choice x;
    bsr_matrix m;
    uint8_t *want, *kind;
    rk_choice_new(&x, turn % 4 ? 20 : 60);
    want = (uint8_t *)bt_alloc((size_t)(t_items(&x.to.batch) * x.to.r * x.to.c), 1), bt_mark_output(want), rk_choose(&x, want);
    m = t_target(&x.to), m.rows = x.to.r * x.to.block_rows, m.cols = x.to.c * x.to.block_cols, kind = rk_room(&x.to);
    if (RUN_OK(bsr_select_blocks(t_any_context(), &x.s, &m, kind, &e))) rk_check_choice(&x, &m, kind, want);
}

/* ---------------------------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    void (*run)(int turn);
    int turns;
} kind;
TEST(random_operations) {
    static const kind kinds[] = {
#define X(name, ...) {#name, random_##name, 0},
        T_RANDOM_OPERATIONS(X)
#undef X
    };
    int turn, k;
    for (turn = 0; turn < T_TURNS; turn++)
        for (k = 0; k < (int)BT_COUNT(kinds); k++) {
            bt_case("%s %d of seed %d", kinds[k].name, turn, T_SEED);
            easy = bt_below(3) > 0;
            kinds[k].run(turn);
        }
}
/* Conversions, views and lists of long lines; a transposed index of more entries than there are chunks of 2048 for. */
TEST(long_lines) {
    static const kind list[] = {{"from_dense", random_from_dense, 2},
                                {"from_block_mask", random_from_block_mask, 2},
                                {"random_pattern", random_random_pattern, 2},
                                {"prune", random_prune, 2},
                                {"from_csr", random_from_csr, 2},
                                {"from_coo", random_from_coo, 2},
                                {"to_csr", random_to_csr, 4},
                                {"to_coo", random_to_coo, 4},
                                {"reblock", random_reblock, 4},
                                {"to_dense", random_to_dense, 6},
                                {"transposed_index", random_build_transposed_index, 16},
                                {"schedule", random_build_schedule, 16},
                                {"validate", random_validate, 16},
                                {"scatter", random_dense_scatter_mm, 6}};
    int i, turn;
    longer = 1, easy = 0;
    for (i = 0; i < (int)BT_COUNT(list); i++)
        for (turn = 0; turn < 2 * list[i].turns; turn++) {
            T_FEWER_CTAS(turn >= list[i].turns);
            bt_case("%s %d", list[i].name, turn);
            if (!T_ALL) bt_skip("left out by --every");
            else list[i].run(turn % list[i].turns);
        }
    longer = 0;
    T_FEWER_CTAS(0);
    for (i = 0; i < 2; i++) {
        const int type = i ? (int)BSR_I64 : (int)BSR_I32;
        bsr_exec e = t_exec(0);
        uint64_t bytes = 0;
        bsr_matrix m;
        void *view[2];
        t_spec s;
        bt_case("2.3 million entries, %s", bsr_dtype_name(type));
        if (!T_ALL) {
            bt_skip("left out by --every");
            continue;
        }
        memset(&s, 0, sizeof s), s.dtype = BSR_F32, s.index_dtype = type, s.block_rows = s.block_cols = 1, s.pattern_only = 1;
        s.r = 1150, s.c = 2000, s.nnz = s.r * s.c, m = t_matrix(&s);
        if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes, &e))) continue;
        view[0] = bt_alloc((size_t)bytes, 64), view[1] = bt_alloc((size_t)bytes, 64);
        bt_mark_output(view[0]), bt_mark_output(view[1]);
        if (RUN_OK(T_ON_CPU(build_transposed_index)(cpu(), &m, view[1], bytes, &e)) &&
            RUN_OK(bsr_build_transposed_index(t_any_context(), &m, view[0], bytes, &e)))
            same_bytes("transposed index", view[0], view[1]);
    }
}

static const bt_test tests[] = {{"random_operations", random_operations}, {"long_lines", long_lines}};
int main(int argc, char **argv) {
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
