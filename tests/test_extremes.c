/* test_extremes.c: what a call does not use may be anything. Strides of dimensions of size 1, and all strides of operands without
   elements, are as large as they can be: the result is that of the same call with plain strides, and no arithmetic on them
   overflows (which the sanitized run sees). Then batches and sizes beyond any counting. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"

enum {
    ADDMM,
    SCATTER,
    DENSE_SCATTER,
    SAMPLED,
    MATMUL,
    MATMUL_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    ATTENTION,
    TO_DENSE,
    FROM_DENSE,
    PRUNE,
    BLOCK_MASK,
    RANDOM_PATTERN,
    ENTRIES,
    VIEWS,
    OPS
};
static const char *const op_names[] = {"addmm",     "scatter_mm",      "dense_scatter_mm", "sampled_addmm",
                                       "matmul",    "matmul_backward", "softmax",          "softmax_backward",
                                       "attention", "to_dense",        "from_dense",       "prune",
                                       "from_mask", "random_pattern",  "from_entries",     "views"};
enum { DENSE = 6, MATRICES = 3 };
typedef struct call {
    int op, mode, beta;     /* mode: format, which operand is sparse, source; beta: with an input */
    unsigned trans, views;  /* views: 1 a transposed index, 2 a schedule */
    bsr_dense d[DENSE];     /* those that are in use have a dtype */
    bsr_matrix m[MATRICES]; /* so have these */
    bsr_scatter_indices list;
    void *extra[2]; /* a mask of blocks; rows or columns of entries */
    int64_t n;      /* columns; entries */
} call;

/* ---------------------------------------------------------------------------------------------- */
/* running                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

static bsr_operand operand(const call *c, int i, int d, int m) {
    return c->mode == i ? bsr_operand_sparse(&c->m[m]) : bsr_operand_dense(&c->d[d]);
}
static const bsr_dense *used(const call *c, int i) { return c->d[i].dtype ? &c->d[i] : NULL; }
/* Lists and views, which the library builds of the operands as they are now. */
static int prepare(call *c, const bsr_context *ctx) {
    bsr_scatter_indices *x = &c->list;
    if (c->views & 1) t_attach_transposed(&c->m[0]);
    if (c->views & 2) t_attach_schedule(&c->m[0], (int)(1 << c->mode % 3), (int)c->trans & 1);
    if (c->op == DENSE_SCATTER) {
        bsr_exec e = t_exec(0);
        if (!RUN_OK(bsr_build_scatter_indices(ctx, &c->m[0], c->n, x, &e))) return 0;
        t_list_room(x, 0);
        CHECK_INT(bsr_build_scatter_indices(ctx, &c->m[0], c->n, x, &e), BSR_OK);
    }
    return 1;
}
static bsr_status run_attention(const call *c, const bsr_context *ctx, const bsr_exec *e) {
    bsr_attention_options o;
    memset(&o, 0, sizeof o);
    o.relative_bias = used(c, 5), o.flags = c->trans ? BSR_ATTENTION_CAUSAL : 0;
    o.causal_offset = c->mode == 0 ? 0 : c->mode == 1 ? INT64_MAX : INT64_MIN;
    o.dropout_p = c->beta ? 0.25 : 0, o.dropout_seed = 5;
    return bsr_attention(ctx, 0.5, &c->d[0], &c->d[1], &c->d[2], &c->m[0], &o, &c->d[3], used(c, 4), e);
}
static bsr_status run_entries(const call *c, const bsr_context *ctx, bsr_matrix *m, const bsr_exec *e) {
    return c->mode == 0 ? bsr_from_csr(ctx, m->rows, m->cols, c->n, c->extra[0], c->extra[1], BSR_I32, NULL, BSR_F32, m, e)
                        : bsr_from_coo(ctx, m->rows, m->cols, c->n, c->extra[0], c->extra[1], BSR_I32, NULL, BSR_F32, m, e);
}
static bsr_status run(const call *given, const bsr_context *ctx) {
    call c = *given;
    bsr_matrix *m = c.m, built = c.m[0];
    bsr_exec e = t_exec(0);
    bsr_epilogue ep;
    memset(&ep, 0, sizeof ep);
    ep.left_alpha = used(&c, 3), ep.right_alpha = used(&c, 4), ep.bias = used(&c, 5);
    switch (c.op) {
        case ADDMM: return bsr_dense_addmm(ctx, c.beta, used(&c, 2), 1, c.trans, m, &c.d[0], &ep, &c.d[1], &e);
        case SCATTER: return bsr_scatter_mm(ctx, &c.d[0], &c.d[1], &c.list, &c.d[2], &e);
        case DENSE_SCATTER: return bsr_dense_scatter_mm(ctx, m, &c.d[0], &c.list, &c.d[1], &e);
        case SAMPLED: return bsr_sampled_addmm(ctx, c.beta, c.beta ? &m[1] : NULL, 1, &c.d[0], &c.d[1], m, &e);
        case MATMUL: return bsr_matmul(ctx, c.trans, operand(&c, 0, 0, 0), operand(&c, 1, 1, 0), operand(&c, 2, 2, 0), &e);
        case MATMUL_BACKWARD:
            return bsr_matmul_backward(ctx, c.trans, operand(&c, 0, 0, 0), operand(&c, 1, 1, 0), operand(&c, 2, 2, 0),
                                       operand(&c, 0, 3, 1), operand(&c, 1, 4, 1), &e);
        case SOFTMAX: {
            bsr_softmax_options o;
            memset(&o, 0, sizeof o), o.relative_bias = used(&c, 0), o.key_padding_mask = used(&c, 1), o.attn_mask = used(&c, 2);
            return bsr_softmax(ctx, 0.5, m, &o, &m[1], &e);
        }
        case SOFTMAX_BACKWARD: return bsr_softmax_backward(ctx, 0.5, m, &m[2], &m[1], &e);
        case ATTENTION: return run_attention(&c, ctx, &e);
        case TO_DENSE: return bsr_to_dense(ctx, m, &c.d[0], &e);
        case FROM_DENSE: return bsr_from_dense(ctx, &c.d[0], &built, &e);
        case PRUNE:
            return bsr_prune(ctx, c.mode ? bsr_operand_dense(&c.d[0]) : bsr_operand_sparse(&m[1]), 0.5, c.beta, &built, &e);
        case BLOCK_MASK: return bsr_from_block_mask(ctx, (const uint8_t *)c.extra[0], &built, &e);
        case RANDOM_PATTERN: return bsr_random_pattern(ctx, 7, 0.5, &built, &e);
        case ENTRIES: return run_entries(&c, ctx, &built, &e);
        default: return bsr_validate(ctx, m, &e);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* random calls, of sizes of which many are 0 or 1                                                */
/* ---------------------------------------------------------------------------------------------- */

static const int types[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};
static int64_t some_size(void) {
    static const int64_t list[] = {0, 1, 1, 2, 3, 5, 0, 1, 33};
    return list[bt_below(9)];
}
static t_shape some_batch(void) {
    static const int64_t list[] = {1, 1, 2, 1, 2, 3, 0};
    t_shape s = NO_BATCH;
    int i;
    s.dims = (int)bt_below(5);
    for (i = 0; i < s.dims; i++) s.n[i] = list[bt_below(bt_below(3) ? 6 : 7)];
    return s;
}
/* A shape that broadcasts to s. */
static t_shape some_of(t_shape s) {
    t_shape r = NO_BATCH;
    int i;
    r.dims = (int)bt_range(0, s.dims);
    for (i = 1; i <= r.dims; i++) r.n[r.dims - i] = bt_below(3) ? s.n[s.dims - i] : 1;
    return r;
}
static bsr_dense input(int dtype, int64_t rows, int64_t cols, t_shape batch) {
    return t_random(dtype, rows, cols, (int)bt_below(LAYOUTS), batch, (unsigned)bt_below(16), FILL_INTEGER);
}
static bsr_dense output(int dtype, int64_t rows, int64_t cols, t_shape batch) {
    const bsr_dense d = t_output(dtype, rows, cols, (int)bt_below(LAYOUTS), batch);
    return d;
}
static bsr_matrix matrix(int dtype, int64_t r, int64_t c, int64_t br, int64_t bc, t_shape batch) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.index_dtype = bt_below(2) ? BSR_I64 : BSR_I32, s.layout = (int)bt_below(BLOCKS_LAYOUTS);
    s.kind = FILL_INTEGER, s.block_rows = br, s.block_cols = bc, s.r = r, s.c = c, s.nnz = bt_below(3) ? bt_below(6) : 0;
    s.batch = batch, s.shared_pattern = (unsigned)bt_below(16), s.shared_values = (unsigned)bt_below(16);
    s.ragged = bt_below(4) == 0;
    return t_matrix(&s);
}
static int64_t some_block(void) {
    static const int64_t list[] = {1, 1, 2, 3, 16};
    return list[bt_below(5)];
}
static void new_addmm(call *c, int type) {
    const t_shape whole = some_batch(), x = some_of(whole), y = some_of(whole);
    const int64_t n = some_size();
    int i;
    bsr_matrix *a = &c->m[0];
    c->trans = (unsigned)bt_below(2), c->views = (unsigned)bt_below(4), c->mode = (int)bt_below(3), c->beta = (int)bt_below(2);
    *a = matrix(type, some_size(), some_size(), some_block(), some_block(), x);
    c->d[0] = input(type, c->trans ? a->rows : a->cols, n, y);
    c->d[1] = output(type == BSR_I8 ? BSR_I32 : type, c->trans ? a->cols : a->rows, n, t_join(x, y));
    for (i = 2; i < 6; i++) {
        const int64_t rows = i == 4 || (i == 5 && bt_below(2)) ? 1 : c->d[1].rows,
                      cols = i == 3 || (i == 5 && bt_below(2)) ? 1 : n;
        if (i == 2 ? !c->beta : bt_below(2)) continue;
        c->d[i] = input(c->d[1].dtype, rows, cols, some_of(t_join(x, y)));
    }
}
static void new_scatter(call *c, int type) {
    const int64_t ms = some_block(), ks = some_size(), ns = some_size(), outputs = some_size(), blocks = some_size();
    const t_shape tiles = some_batch();
    const int64_t count = blocks && t_items(&tiles) ? bt_below(6) : 0;
    int64_t i;
    c->d[0] = input(type, ms, ks, t_batch(1, blocks, 0, 0, 0)), c->d[1] = input(type, ks, ns, tiles);
    c->d[2] = output(type == BSR_I8 ? BSR_I32 : type, ms, ns, t_batch(1, outputs, 0, 0, 0)), t_fill(&c->d[2], FILL_INTEGER);
    c->list.format = BSR_SCATTER_MM, c->list.c_count = outputs + 1, c->list.p_count = c->list.q_count = outputs ? count : 0;
    c->list.c_indices = (int64_t *)bt_alloc((size_t)(outputs + 1) * 8, 8);
    c->list.p_indices = (int64_t *)bt_alloc((size_t)c->list.p_count * 8, 8);
    c->list.q_indices = (int64_t *)bt_alloc((size_t)c->list.q_count * 8, 8);
    for (i = 0; i <= outputs; i++) c->list.c_indices[i] = i == outputs ? c->list.p_count : i ? c->list.p_count / 2 : 0;
    for (i = 0; i < c->list.p_count; i++)
        c->list.p_indices[i] = bt_below(blocks), c->list.q_indices[i] = bt_below(t_items(&tiles));
}
static void new_dense_scatter(call *c, int type) {
    t_shape batch = some_batch();
    c->m[0] = matrix(type, some_size(), some_size(), some_block(), some_block(), NO_BATCH);
    c->n = some_size(), c->list.format = (int32_t)bt_range(1, 3);
    c->list.split_n = c->n == 0 || bt_below(2) ? bt_range(0, 1) : c->n;
    if (!c->n && c->list.format == BSR_SCATTER_STRIDED)
        c->list.split_n = (INT64_C(1) << 62) / (c->m[0].nnz + c->m[0].rows + c->m[0].cols + 1);
    if (c->list.format == BSR_SCATTER_MM) batch = NO_BATCH;
    c->d[0] = input(type, c->m[0].cols, c->n, batch),
    c->d[1] = output(type == BSR_I8 ? BSR_I32 : type, c->m[0].rows, c->n, batch);
}
static void new_sampled(call *c, int type) {
    const t_shape whole = some_batch();
    const int64_t k = some_size();
    bsr_matrix pattern = matrix(type, some_size(), some_size(), some_block(), some_block(), whole);
    c->beta = (int)bt_below(2);
    c->m[0] = t_matrix_output(&pattern, type == BSR_I8 ? BSR_I32 : type, (int)bt_below(BLOCKS_LAYOUTS)), c->m[1] = pattern;
    if (!c->beta) memset(&c->m[1], 0, sizeof c->m[1]);
    c->d[0] = input(type, pattern.rows, k, some_of(whole)), c->d[1] = input(type, k, pattern.cols, some_of(whole));
}
static bsr_dense side(int type, int64_t rows, int64_t cols, int transposed, t_shape batch, int out) {
    if (out) return output(type, transposed ? cols : rows, transposed ? rows : cols, batch);
    return input(type, transposed ? cols : rows, transposed ? rows : cols, batch);
}
static void new_matmul(call *c, int type) {
    const t_shape whole = some_batch(), x = some_of(whole), y = some_of(whole), z = t_join(x, y);
    const int back = c->op == MATMUL_BACKWARD;
    int64_t size[3], block[3], k, row, col; /* M, N, K in blocks; block sizes */
    int t[3], i;
    c->mode = (int)bt_below(3), c->trans = (unsigned)bt_below(8);
    for (i = 0; i < 3; i++) size[i] = some_size(), block[i] = some_block(), t[i] = (int)c->trans >> i & 1;
    k = 2, row = c->mode == 1 ? k : 0, col = c->mode == 0 ? k : 1;
    {
        const int swap = t[c->mode];
        const int64_t r = swap ? col : row, s = swap ? row : col;
        c->m[0] = matrix(type, size[r], size[s], block[r], block[s], c->mode == 0 ? x : c->mode == 1 ? y : z);
    }
    for (i = 0; i < 3; i++)
        size[i] *= c->mode == 0 && i == 1 ? 1 : c->mode == 1 && i == 0 ? 1 : c->mode == 2 && i == 2 ? 1 : block[i];
    if (c->mode != 0) c->d[0] = side(type, size[0], size[2], t[0], x, 0);
    if (c->mode != 1) c->d[1] = side(type, size[2], size[1], t[1], y, 0);
    if (c->mode != 2) c->d[2] = side(type, size[0], size[1], t[2], z, !back);
    if (c->mode == 2 && !back) c->m[0] = t_matrix_output(&c->m[0], type, (int)bt_below(BLOCKS_LAYOUTS));
    if (!back) return;
    if (c->mode != 2) c->m[1] = t_matrix_output(&c->m[0], type, (int)bt_below(BLOCKS_LAYOUTS));
    if (c->mode != 0) c->d[3] = side(type, size[0], size[2], t[0], x, 1);
    if (c->mode != 1) c->d[4] = side(type, size[2], size[1], t[1], y, 1);
}
static void new_softmax(call *c, int type) {
    const t_shape whole = some_batch();
    int i;
    c->m[0] = matrix(type, some_size(), some_size(), some_block(), some_block(), whole);
    c->m[1] = t_matrix_output(&c->m[0], type, (int)bt_below(BLOCKS_LAYOUTS));
    if (c->op == SOFTMAX_BACKWARD) {
        c->m[2] = c->m[0], t_make_values(&c->m[2], type, (int)bt_below(BLOCKS_LAYOUTS), 0), t_fill_values(&c->m[2], FILL_SIGNED);
        return;
    }
    for (i = 0; i < 3; i++)
        if (bt_below(2)) c->d[i] = input(type, i == 1 || bt_below(2) ? 1 : c->m[0].rows, c->m[0].cols, some_of(whole));
}
static void new_attention(call *c, int type) {
    const t_shape whole = some_batch();
    const int64_t d = some_size(), dv = some_size();
    t_shape keys = some_of(whole);
    if (keys.dims) keys.n[keys.dims - 1] = whole.n[whole.dims - 1];
    c->mode = (int)bt_below(3), c->trans = (unsigned)bt_below(2), c->beta = (int)bt_below(2);
    c->m[0] = matrix(type, some_size(), some_size(), some_block(), some_block(), some_of(whole));
    c->d[0] = input(type, c->m[0].rows, d, whole), c->d[1] = input(type, c->m[0].cols, d, keys);
    c->d[2] = input(type, c->m[0].cols, dv, keys), c->d[3] = output(type, c->m[0].rows, dv, whole);
    if (bt_below(2)) c->d[4] = output(type == BSR_F64 ? BSR_F64 : BSR_F32, c->m[0].rows, 1, whole);
    if (bt_below(2)) c->d[5] = input(type, c->m[0].rows, bt_below(2) ? c->m[0].cols : 1, some_of(whole));
}
/* A matrix to be built, with room for every block, of `batch` items. */
static bsr_matrix target(int dtype, int64_t r, int64_t cols, int64_t br, int64_t bc, t_shape batch, int ragged) {
    bsr_matrix m;
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.index_dtype = bt_below(2) ? BSR_I64 : BSR_I32, s.r = r, s.c = cols, s.block_rows = br, s.block_cols = bc;
    s.batch = batch, s.ragged = ragged, m = t_target(&s), m.rows = r * br, m.cols = cols * bc;
    return m;
}
static void new_conversion(call *c, int type) {
    const int ragged = (c->op == FROM_DENSE || c->op == BLOCK_MASK) && bt_below(2);
    const t_shape batch = c->op == ENTRIES ? NO_BATCH : some_batch();
    const int64_t r = some_size(), cols = some_size(), br = some_block(), bc = some_block(), items = t_items(&batch);
    int64_t i;
    c->m[0] = target(type, r, cols, br, bc, batch, ragged), c->mode = (int)bt_below(2), c->beta = (int)bt_below(3);
    if (c->op == FROM_DENSE || (c->op == PRUNE && c->mode)) c->d[0] = input(type, r * br, cols * bc, some_of(batch));
    if (c->op == PRUNE && !c->mode) {
        c->m[1] = matrix(type, r, cols, br, bc, some_of(batch));
        if (c->m[1].flags & BSR_MATRIX_RAGGED) c->mode = 1, c->d[0] = input(type, r * br, cols * bc, batch), c->m[1].dtype = 0;
    }
    if (c->op == BLOCK_MASK) {
        c->extra[0] = bt_alloc((size_t)(items * r * cols), 1);
        for (i = 0; i < items * r * cols; i++) ((uint8_t *)c->extra[0])[i] = (uint8_t)(ragged ? bt_below(2) : i % 3 == 0);
        for (i = 0; !ragged && i < items * r * cols; i++) ((uint8_t *)c->extra[0])[i] = i % (r * cols) == 0;
    }
    if (c->op != ENTRIES) return;
    c->m[0].dtype = BSR_F32, c->n = r && cols ? some_size() : 0;
    c->m[0].values = bt_alloc((size_t)(r * cols * br * bc) * 4, 4), bt_mark_output(c->m[0].values);
    c->extra[0] = bt_alloc((size_t)(c->mode ? c->n : r * br + 1) * 4, 4), c->extra[1] = bt_alloc((size_t)c->n * 4, 4);
    for (i = 0; i < (c->mode ? c->n : r * br + 1); i++)
        ((int32_t *)c->extra[0])[i] = (int32_t)(c->mode       ? bt_below(r * br)
                                                : i == r * br ? c->n
                                                              : i * c->n / bt_range(r * br, r * br));
    for (i = 0; i < c->n; i++) ((int32_t *)c->extra[1])[i] = (int32_t)bt_below(cols * bc);
}
static void new_call(call *c, int op) {
    const int type = types[bt_below(4)], any = types[bt_below(5)];
    memset(c, 0, sizeof *c), c->op = op;
    switch (op) {
        case ADDMM: new_addmm(c, any); break;
        case SCATTER: new_scatter(c, any); break;
        case DENSE_SCATTER: new_dense_scatter(c, any); break;
        case SAMPLED: new_sampled(c, any); break;
        case MATMUL:
        case MATMUL_BACKWARD: new_matmul(c, type); break;
        case SOFTMAX:
        case SOFTMAX_BACKWARD: new_softmax(c, type); break;
        case ATTENTION: new_attention(c, type); break;
        case TO_DENSE: {
            const t_shape whole = some_batch();
            c->m[0] = matrix(any, some_size(), some_size(), some_block(), some_block(), some_of(whole));
            c->d[0] = output(any, c->m[0].rows, c->m[0].cols, whole);
            break;
        }
        case VIEWS:
            c->m[0] = matrix(any, some_size(), some_size(), some_block(), some_block(), some_batch());
            c->views = (unsigned)bt_below(4), c->trans = (unsigned)bt_below(2), c->mode = (int)bt_below(3);
            break;
        default: new_conversion(c, any);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* extreme strides                                                                                */
/* ---------------------------------------------------------------------------------------------- */

/* Up to `most`, mostly near powers of two and ends. */
static int64_t extreme(int64_t most) {
    static const int64_t list[] = {INT64_MAX,
                                   INT64_MAX - 1,
                                   INT64_C(1) << 62,
                                   (INT64_C(1) << 62) - 1,
                                   (INT64_C(1) << 61) + 1,
                                   INT64_C(1) << 32,
                                   (INT64_C(1) << 31) - 1,
                                   0,
                                   1};
    const int64_t v = bt_below(3) ? list[bt_below(9)] : (int64_t)(bt_random() >> bt_range(1, 63));
    return v > most ? most - bt_below(2) : v;
}
static int is_empty(int n, const int64_t *size) {
    int i;
    for (i = 0; i < n; i++)
        if (!size[i]) return 1;
    return 0;
}
/* The strides that no element needs; 3 of 4 of them. */
static void stretch(int n, const int64_t *size, int64_t *const *stride) {
    const int empty = is_empty(n, size);
    int i;
    for (i = 0; i < n; i++)
        if ((empty || size[i] == 1) && bt_below(4)) *stride[i] = extreme(INT64_MAX);
}
static void stretch_dense(bsr_dense *d) {
    int64_t size[6], *stride[6];
    int i;
    size[0] = d->rows, size[1] = d->cols, stride[0] = &d->row_stride, stride[1] = &d->col_stride;
    for (i = 0; i < d->batch_dims; i++) size[2 + i] = d->batch[i], stride[2 + i] = &d->batch_stride[i];
    for (; i < 4; i++) d->batch[i] = extreme(INT64_MAX), d->batch_stride[i] = extreme(INT64_MAX); /* past batch_dims: nothing */
    stretch(2 + d->batch_dims, size, stride);
}
static void stretch_matrix(bsr_matrix *m) {
    int64_t size[8], *stride[8], unit = 1;
    int i, ragged = (m->flags & BSR_MATRIX_RAGGED) != 0, n = m->batch_dims;
    for (i = n; i < 4; i++) {
        m->batch[i] = extreme(INT64_MAX), m->crow_batch_stride[i] = extreme(INT64_MAX);
        m->col_batch_stride[i] = extreme(INT64_MAX), m->values_batch_stride[i] = extreme(INT64_MAX);
    }
    for (i = 0; i < n; i++) size[i] = m->batch[i], stride[i] = &m->crow_batch_stride[i];
    if (!ragged || !is_empty(n, size)) stretch(n, size, stride); /* ragged dimensions are told by them */
    if (ragged) return;                                           /* its other strides are 0 */
    for (i = 0; i < n; i++) stride[i] = &m->col_batch_stride[i];
    size[n] = m->nnz, stride[n] = &unit;
    stretch(n + 1, size, stride);
    if (!m->value_strides[0] && !m->value_strides[1] && !m->value_strides[2])
        m->value_strides[0] = m->block_rows * m->block_cols, m->value_strides[1] = m->block_cols, m->value_strides[2] = 1;
    for (i = 0; i < n; i++) stride[i] = &m->values_batch_stride[i];
    size[n] = m->nnz, size[n + 1] = m->block_rows, size[n + 2] = m->block_cols;
    for (i = 0; i < 3; i++) stride[n + i] = &m->value_strides[i];
    if (m->values) stretch(n + 3, size, stride);
}

/* All outputs, one after another. */
static unsigned char *outputs(unsigned char *into, int back) {
    size_t bytes = 0, at = 0;
    bt_block *b;
    for (b = bt.blocks; b; b = b->next) bytes += b->output ? b->bytes : 0;
    if (!into && !(into = (unsigned char *)malloc(bytes + 1))) abort();
    for (b = bt.blocks; b; b = b->next) {
        if (!b->output) continue;
        memcpy(back ? b->data : into + at, back ? into + at : b->data, b->bytes), at += b->bytes;
    }
    return into;
}
static size_t output_bytes(void) {
    size_t bytes = 0;
    bt_block *b;
    for (b = bt.blocks; b; b = b->next) bytes += b->output ? b->bytes : 0;
    return bytes;
}
static void compare(const call *plain, int turns) {
    const bsr_context *ctx = t_any_context();
    unsigned char *before = outputs(NULL, 0), *want = NULL, *got;
    int i, turn;
    call first = *plain;
    if (prepare(&first, ctx) && RUN_OK(run(&first, ctx))) want = outputs(NULL, 0);
    if (!want) turns = 0;
    for (turn = 0; turn < turns; turn++) {
        call c = *plain;
        for (i = 0; i < DENSE; i++)
            if (c.d[i].dtype) stretch_dense(&c.d[i]);
        for (i = 0; i < MATRICES; i++)
            if (c.m[i].dtype) stretch_matrix(&c.m[i]);
        outputs(before, 1);
        if (!prepare(&c, ctx) || !RUN_OK(run(&c, ctx))) break;
        got = outputs(NULL, 0);
        CHECK(bt_same_bytes(got, want, output_bytes()));
        free(got);
    }
    free(before), free(want);
}
TEST(unused_strides) {
    int op, k;
    for (op = 0; op < OPS; op++)
        for (k = 0; k < 2000; k++) {
            call c;
            bt_case("%s, %d", op_names[op], k);
            new_call(&c, op), compare(&c, 2);
        }
}

/* ---------------------------------------------------------------------------------------------- */
/* beyond counting                                                                                */
/* ---------------------------------------------------------------------------------------------- */

#define HUGE_SIZE (INT64_MAX - 1)

/* Every operation on `items` items that share their operands' memory, or have none. */
static bsr_dense many(bsr_dense d, int64_t items) { return bsr_dense_batched(d, items, 0); }
TEST(batches_beyond_counting) { /* what there is no memory for is not gone through */
    static const int64_t counts[] = {HUGE_SIZE, INT64_C(1) << 62, INT64_C(1) << 40};
    int k, t, i;
    for (k = 0; k < 3; k++)
        for (t = 0; t < 4; t++) {
            const int64_t n = counts[k];
            const bsr_context *ctx = t_any_context();
            bsr_exec e = (bt_case("%lld items, %s", (long long)n, bsr_dtype_name(types[t])), t_exec(0));
            bsr_matrix m = matrix(types[t], 3, 4, 2, 2, NO_BATCH), none = m, out, grad;
            bsr_dense b, dc, da, empty;
            bsr_softmax_options o;
            while (!m.nnz || (m.flags & BSR_MATRIX_RAGGED)) m = matrix(types[t], 3, 4, 2, 2, NO_BATCH);
            empty = input(types[t], 8, 0, NO_BATCH);
            memset(&o, 0, sizeof o);
            /* gradients over them: too many are refused, of dense and of stored operands, with blocks or without */
            dc = input(types[t], 6, 5, NO_BATCH), b = input(types[t], 5, 8, NO_BATCH),
            da = t_output(types[t], 5, 8, ROW, NO_BATCH);
            out = t_matrix_output(&m, types[t], PACKED), grad = bsr_matrix_batched(m, n, 0, 0, 0);
            CHECK_INT(bsr_matmul_backward(ctx, 0, bsr_operand_dense(&dc), bsr_operand_dense(&b), bsr_operand_sparse(&grad),
                                          bsr_operand_sparse(NULL), bsr_operand_dense(&da), &e),
                      BSR_BAD_BATCH);
            CHECK_INT(t_error.item, BSR_ITEM_BATCH_SUM), CHECK_INT(t_error.value, n);
            for (i = 0; i < 2; i++) { /* the last number that is taken, and the first that is not: asked, as it would take long */
                bsr_plan plan;
                grad = bsr_matrix_batched(m, (int64_t)INT32_MAX + i, 0, 0, 0), e.query = &plan;
                CHECK_INT(bsr_matmul_backward(ctx, 0, bsr_operand_dense(&dc), bsr_operand_dense(&b), bsr_operand_sparse(&grad),
                                              bsr_operand_sparse(NULL), bsr_operand_dense(&da), &e),
                          i ? BSR_BAD_BATCH : BSR_OK);
            }
            e.query = NULL;
            dc = many(input(types[t], 6, 5, NO_BATCH), n),
            b = many(input(types[t], 8, 5, NO_BATCH), n); /* dense ones are counted by elements, too */
            CHECK_INT(bsr_matmul_backward(ctx, 0, bsr_operand_sparse(&m), bsr_operand_dense(&b), bsr_operand_dense(&dc),
                                          bsr_operand_sparse(&out), bsr_operand_sparse(NULL), &e),
                      n >> 60 ? BSR_OVERFLOW : BSR_BAD_BATCH);
            CHECK_INT(t_error.item, n >> 60 ? BSR_ITEM_SIZE_OVERFLOW : BSR_ITEM_BATCH_SUM);
            CHECK(t_all_poison(da.data) && t_all_poison(out.values));
            /* items without elements or blocks: nothing to do; patterns that own no memory are looked at once */
            dc = many(input(types[t], 6, 0, NO_BATCH), n), empty = many(empty, n);
            CHECK_INT(bsr_dense_mm(ctx, 0, &m, &empty, &dc, &e), BSR_OK);
            b = many(input(types[t], 6, 0, NO_BATCH), n);
            empty = input(types[t], 6, 0, NO_BATCH), da = many(input(types[t], 0, 8, NO_BATCH), n);
            none = m, none.nnz = 0, none.col_indices = none.values = NULL;
            none.crow_indices = bt_alloc(4 * 8, 8), memset(none.crow_indices, 0, 4 * 8);
            none = bsr_matrix_batched(none, n, 0, INT64_MAX / 8, INT64_MAX / 16);
            CHECK_INT(bsr_validate(ctx, &none, &e), BSR_OK);
            CHECK_INT(bsr_softmax(ctx, 1, &none, &o, &none, &e), BSR_OK);
            CHECK_INT(bsr_softmax_backward(ctx, 1, &none, &none, &none, &e), BSR_OK);
            CHECK_INT(bsr_sampled_addmm(ctx, 0, NULL, 1, &b, &da, &none, &e), BSR_OK);
            CHECK_INT(bsr_sampled_addmm(ctx, 1, &none, 1, &b, &da, &none, &e), BSR_OK);
            t_attach_transposed(&none), t_attach_schedule(&none, 2, 0), CHECK(none.transposed_index && none.schedule);
            CHECK_INT(bsr_validate(ctx, &none, &e), BSR_OK);
            da = many(input(types[t], 8, 0, NO_BATCH), n);
            CHECK_INT(bsr_dense_mm(ctx, 0, &none, &da, &b, &e), BSR_OK);
            CHECK_INT(bsr_to_dense(ctx, &none, &b, &e), BSR_BAD_SHAPE);
            none.cols = 0, none.transposed_index = none.schedule = NULL;
            CHECK_INT(bsr_to_dense(ctx, &none, &b, &e), BSR_OK);
            /* a dimension without items beside one of so many */
            none = bsr_matrix_batched(bsr_matrix_batched(none, n, INT64_MAX, INT64_MAX, INT64_MAX), 0, 1, 1, 1);
            CHECK_INT(bsr_validate(ctx, &none, &e), BSR_OK);
            none.batch[0] = none.batch[1] = n, none.batch[2] = 0, none.batch_dims = 3; /* or two */
            CHECK_INT(bsr_validate(ctx, &none, &e), BSR_OK);
            /* attention of values without columns */
            da = many(t_random(types[t], 6, 3, ROW, NO_BATCH, 0, FILL_SIGNED), n);
            dc = many(t_random(types[t], 8, 3, ROW, NO_BATCH, 0, FILL_SIGNED), n),
            empty = many(input(types[t], 8, 0, NO_BATCH), n);
            if (!(n >> 60)) CHECK_INT(bsr_attention(ctx, 1, &da, &dc, &empty, &m, NULL, &b, NULL, &e), BSR_OK);
        }
}
TEST(sizes_beyond_counting) { /* of operands without elements, and lists of no columns */
    static const int64_t sizes[] = {HUGE_SIZE, INT64_C(1) << 62, (INT64_C(1) << 40) + 1};
    int k, f;
    for (k = 0; k < 3; k++) {
        const int64_t n = sizes[k];
        const bsr_context *ctx = t_any_context();
        bsr_exec e = (bt_case("%lld", (long long)n), t_exec(0));
        int32_t *zeros = (int32_t *)bt_alloc(64, 8);
        bsr_matrix none, tall;
        bsr_dense x, y, out;
        memset(zeros, 0, 64);
        none = bsr_matrix_make(0, 0, 1, 1, 0, zeros, NULL, BSR_I64, NULL, BSR_F32);
        tall = bsr_matrix_make(6, 0, 2, 3, 0, zeros, NULL, BSR_I64, NULL, BSR_F32);
        x = bsr_dense_strided(NULL, BSR_F32, 0, n, n, n), out = x;
        CHECK_INT(bsr_dense_mm(ctx, 0, &none, &x, &out, &e), BSR_OK);
        CHECK_INT(bsr_dense_mm(ctx, BSR_TRANS_A, &none, &x, &out, &e), BSR_OK);
        y = bsr_dense_strided(NULL, BSR_F32, n, 0, n, n);
        CHECK_INT(bsr_sampled_addmm(ctx, 0, NULL, 1, &x, &y, &none, &e), BSR_OK);
        CHECK_INT(bsr_attention(ctx, 1, &x, &x, &x, &none, NULL, &out, NULL, &e), BSR_OK);
        x = bsr_dense_strided(NULL, BSR_F32, 0, 0, n, n), out = bsr_dense_strided(NULL, BSR_F32, 6, 0, n, n);
        CHECK_INT(bsr_dense_mm(ctx, 0, &tall, &x, &out, &e), BSR_OK), CHECK_INT(bsr_to_dense(ctx, &tall, &out, &e), BSR_OK);
        for (f = BSR_SCATTER_MM; f <= BSR_SCATTER_STRIDED_COMPRESSED; f++) { /* tiles of no columns: n of them, or too many */
            bsr_scatter_indices s;
            bsr_status status;
            memset(&s, 0, sizeof s), s.format = f, s.split_n = n / 4;
            status = bsr_build_scatter_indices(ctx, &tall, 0, &s, &e);
            CHECK(status == BSR_OK || status == BSR_OVERFLOW);
            if (status != BSR_OK || s.c_count > 1000) continue;
            CHECK(s.q_count == 0 && s.r_count == 0 && s.p_count == 0);
            s.c_indices = (int64_t *)bt_alloc((size_t)s.c_count * 8, 8), bt_mark_output(s.c_indices);
            CHECK_INT(bsr_build_scatter_indices(ctx, &tall, 0, &s, &e), BSR_OK);
            CHECK_INT(bsr_dense_scatter_mm(ctx, &tall, &x, &s, &out, &e), BSR_OK);
        }
    }
}

/* Convolutions whose stride leaves the image at once: any such stride is the same. */
TEST(conv_strides_beyond_counting) {
    static const int64_t strides[] = {9, INT64_C(1) << 40, INT64_MAX};
    int order, form, k;
    for (order = 0; order < 2; order++)
        for (form = 0; form < 4; form++) { /* form 3: depthwise */
            const int64_t size[2] = {form == 1 ? 1 : 4, form == 2 ? 1 : 5}, one[2] = {1, 1}, c = form == 3 ? 6 : 4;
            const int bc = (bt_case("order %d, form %d", order, form), form == 3 ? 1 : 2);
            bsr_matrix w = matrix(BSR_F32, 3, 2, 2, bc, NO_BATCH), grad;
            float x[3 * 6 * 20], y[3 * 6], dx[2][3 * 6 * 20], dy[2][3 * 6], bias[6];
            bsr_dense image, result, lines = bsr_dense_row_major(bias, BSR_F32, 6, 1), channels;
            bsr_epilogue epilogue = BSR_ZERO;
            void *first = NULL;
            int i;
            for (i = 0; i < 3 * 6 * 20; i++) x[i] = (float)bt_below(9) - 4;
            for (i = 0; i < 3 * 6; i++) y[i] = (float)bt_below(9) - 4;
            for (i = 0; i < 6; i++) bias[i] = (float)i;
            while (!w.nnz || (w.flags & BSR_MATRIX_RAGGED)) w = matrix(BSR_F32, 3, 2, 2, bc, NO_BATCH);
            channels = bsr_dense_row_major(bias, BSR_F32, c, 1);
            grad = t_matrix_output(&w, BSR_F32, PACKED);
            for (k = 0; k < 3; k++) {
                bsr_conv_shape shape = BSR_ZERO;
                bsr_exec e = t_exec(0);
                shape.dims = 2, shape.kernel[0] = 1, shape.kernel[1] = form == 3 ? 2 : 1, shape.groups = form == 3 ? 6 : 1;
                if (form == 2) shape.kernel[1] = 1;
                shape.stride[0] = shape.stride[1] = strides[k];
                CHECK_INT(bsr_conv_size(&shape, 1, size[1]), 1);
                image = bsr_dense_image(x, BSR_F32, order, 2, size, 3, c);
                result = bsr_dense_image(dy[k > 0], BSR_F32, order, 2, one, 3, 6), epilogue.bias = &lines;
                if (!RUN_OK(bsr_conv(t_context(0), 0, NULL, 1, 0, &shape, &w, &image, &epilogue, &result, &e))) return;
                result = bsr_dense_image(y, BSR_F32, order, 2, one, 3, 6), epilogue.bias = &channels;
                image = bsr_dense_image(dx[k > 0], BSR_F32, order, 2, size, 3, c);
                RUN_OK(bsr_conv(t_context(0), 0, NULL, 1, BSR_TRANS_A, &shape, &w, &result, &epilogue, &image, &e));
                image = bsr_dense_image(x, BSR_F32, order, 2, size, 3, c);
                RUN_OK(bsr_conv_weight_gradient(t_context(0), 0, NULL, 1, &shape, &result, &image, &grad, &e));
                if (!k) first = outputs(NULL, 0);
                else {
                    void *now = outputs(NULL, 0);
                    CHECK(bt_same_bytes(first, now, output_bytes())), free(now);
                    CHECK(bt_same_bytes(dy[0], dy[1], sizeof(float) * 18));
                    CHECK(bt_same_bytes(dx[0], dx[1], sizeof(float) * (size_t)(3 * c * size[0] * size[1])));
                }
            }
            free(first);
        }
}
/* Few of many blocks: the same places as in one long row of as many, which is short of words of bits; and where bits would need a
   terabyte. */
TEST(few_of_many_blocks) {
    enum { R = 19000, C = 33, K = 700, ITEMS = 3 };
    const double sparsity = 1 - (double)K / ((double)R * C);
    int64_t *crow = (int64_t *)bt_alloc(ITEMS * (R + 1) * 8, 8), *col = (int64_t *)bt_alloc(ITEMS * K * 8, 8), item, r, p;
    int64_t *ends = (int64_t *)bt_alloc(ITEMS * 2 * 8, 8), *place = (int64_t *)bt_alloc(ITEMS * K * 8, 8);
    bsr_matrix m = bsr_matrix_make(R * 2, C * 3, 2, 3, K, crow, col, BSR_I64, NULL, BSR_F32), line = m;
    bsr_exec e = t_exec(0);
    bt_mark_output(crow), bt_mark_output(col), bt_mark_output(ends), bt_mark_output(place);
    line = bsr_matrix_make(1, (int64_t)R * C, 1, 1, K, ends, place, BSR_I64, NULL, BSR_F32);
    m = bsr_matrix_batched(m, ITEMS, R + 1, K, 0), line = bsr_matrix_batched(line, ITEMS, 2, K, 0);
    if (!RUN_OK(bsr_random_pattern(t_context(0), 5, sparsity, &m, &e))) return;
    RUN_OK(bsr_random_pattern(t_context(0), 5, sparsity, &line, &e));
    CHECK_INT(m.nnz, K), CHECK_INT(line.nnz, K), CHECK_INT(bsr_validate(t_context(0), &m, &e), BSR_OK);
    for (item = 0; item < ITEMS; item++)
        for (r = 0; r < R; r++)
            for (p = crow[item * (R + 1) + r]; p < crow[item * (R + 1) + r + 1]; p++)
                CHECK(r * C + col[item * K + p] == place[item * K + p]);
    m = bsr_matrix_make(4, INT64_C(1) << 42, 1, 1, 3, crow, col, BSR_I64, NULL, BSR_F32);
    RUN_OK(bsr_random_pattern(t_context(0), 5, 1 - 3.0 / (4.0 * (double)(INT64_C(1) << 42)), &m, &e));
    CHECK_INT(m.nnz, 3), CHECK_INT(bsr_validate(t_context(0), &m, &e), BSR_OK);
    m.nnz = 3, RUN_OK(bsr_random_pattern(t_context(0), 5, 1, &m, &e)), CHECK_INT(m.nnz, 0), CHECK_INT(crow[4], 0);
}
/* Sums of columns, more of them than a task holds: with the transposed index and without. */
TEST(more_columns_than_sums) {
    enum { C = 3 * 8192 + 5, K = 4000 };
    const int64_t widths[] = {1, 3, 2000};
    int w;
    for (w = 0; w < 3; w++) {
        const int64_t bc = widths[w], cols = (C + bc - 1) / bc;
        int32_t crow[2] = {0, 0}, *col = (bt_case("blocks of %d columns", (int)bc), (int32_t *)bt_alloc(K * 4, 4));
        bsr_matrix m;
        double *want = (double *)bt_alloc((size_t)(cols * bc) * 8, 8), *got = (double *)bt_alloc((size_t)(cols * bc) * 8, 8);
        bsr_dense d = bsr_dense_row_major(got, BSR_F64, 1, cols * bc);
        bsr_exec e = t_exec(0);
        float *v;
        int64_t i, n = 0, j;
        bt_mark_output(got);
        for (i = 0; i < cols && n < K; i++)
            if (cols < K || bt_below(8) == 0) col[n++] = (int32_t)i;
        crow[1] = (int32_t)n, v = (float *)bt_alloc((size_t)(n * bc) * 4, 4), memset(want, 0, (size_t)(cols * bc) * 8);
        for (i = 0; i < n * bc; i++) v[i] = (float)bt_below(100);
        for (i = 0; i < n; i++)
            for (j = 0; j < bc; j++) want[col[i] * bc + j] += (double)v[i * bc + j];
        m = bsr_matrix_make(1, cols * bc, 1, bc, n, crow, col, BSR_I32, v, BSR_F32);
        for (i = 0; i < 2; i++) {
            if (i) t_attach_transposed(&m);
            RUN_OK(bsr_reduce(t_context(0), BSR_REDUCE_SUM, BSR_OVER_COLS, &m, &d, &e));
            CHECK(bt_same_bytes(got, want, (size_t)(cols * bc) * 8));
        }
    }
}
/* What is written into a file, of operands with strides that no element needs. */
TEST(files_of_unused_strides) {
    unsigned char plain[2048], odd[2048];
    uint64_t bytes[2];
    int k, i;
    for (k = 0; k < 8; k++) {
        int32_t crow[2] = {0, 1}, col[1] = {0};
        float values[6] = {1, 2, 3, 4, 5, 6};
        const int64_t br = k & 1 ? 1 : 2, bc = k & 2 ? 1 : 3;
        bsr_matrix m = bsr_matrix_make(br, bc, br, bc, 1, crow, col, BSR_I32, values, BSR_F32), n;
        const t_shape batch = (bt_case("%d", k), t_batch(1, k & 4 ? 1 : 2, 0, 0, 0));
        bsr_dense d = t_random(BSR_F32, k & 1 ? 1 : 4, k & 2 ? 1 : 3, ROW, batch, 0, FILL_SIGNED), f = d;
        bsr_named items[2];
        n = m;
        n.value_strides[0] = INT64_MAX;
        n.value_strides[1] = k & 1 ? INT64_MAX : bc, n.value_strides[2] = k & 2 ? INT64_MAX : 1;
        if (k & 1) f.row_stride = INT64_MAX;
        if (k & 2) f.col_stride = INT64_MAX - 1;
        if (k & 4) f.batch_stride[0] = INT64_MAX;
        for (i = 0; i < 2; i++) {
            items[0].name = "m", items[0].value = bsr_operand_sparse(i ? &n : &m);
            items[1].name = "d", items[1].value = bsr_operand_dense(i ? &f : &d);
            CHECK_INT(bsr_write_safetensors(items, 2, i ? odd : plain, sizeof odd, &bytes[i], &t_error), BSR_OK);
        }
        CHECK(bytes[0] == bytes[1] && bt_same_bytes(plain, odd, (size_t)bytes[0]));
    }
}
/* Any number may stand where a dtype does. */
TEST(dtypes_beyond_counting) {
    static const int numbers[] = {64, 33, 32, 31, -1, -2, INT32_MAX, INT32_MIN};
    int k;
    for (k = 0; k < 8; k++) {
        const bsr_matrix mask = (bt_case("%d", numbers[k]), matrix(BSR_F32, 3, 4, 2, 3, NO_BATCH));
        bsr_dense q = input(BSR_F32, 6, 5, NO_BATCH), v = input(BSR_F32, 12, 5, NO_BATCH), lse = input(BSR_F32, 6, 1, NO_BATCH);
        bsr_dense dq = output(BSR_F32, 6, 5, NO_BATCH);
        bsr_exec e = t_exec(0);
        q.dtype = numbers[k];
        CHECK_INT(bsr_attention_backward(t_context(0), 1, &q, &v, &v, &mask, NULL, &q, &lse, &q, &dq, NULL, NULL, &e),
                  BSR_BAD_DTYPE);
        CHECK_INT(bsr_attention_merge(t_context(0), 1, &q, &lse, &dq, NULL, &e), BSR_BAD_DTYPE);
    }
}
/* A filter whose taps are one: where it lies is seen by its own strides, also by a query. A sparsity that is none is refused
   before anything is copied. */
TEST(filters_of_one_tap) {
    float data[20 + 5 * 24];
    int32_t crow[6], col[5 * 24];
    int k;
    for (k = 0; k < 2; k++) {
        bsr_conv_shape shape = BSR_ZERO;
        bsr_exec e = (bt_case("%d", k), t_exec(0));
        bsr_matrix m = bsr_matrix_make(0, 0, 1, 1, 5 * 24, crow, col, BSR_I32, data + 20, BSR_F32);
        bsr_dense filter;
        bsr_plan plan;
        int i;
        for (i = 0; i < 20; i++) data[i] = (float)(i + 1);
        shape.dims = 2, shape.kernel[0] = 2, shape.kernel[1] = 3;
        filter = bsr_dense_filter(data, BSR_F32, BSR_CHANNELS_LAST, &shape, 5, 4);
        filter.row_stride = 4, filter.batch_stride[0] = filter.batch_stride[1] = 0;
        e.query = k ? NULL : &plan;
        CHECK_INT(bsr_conv_prune(t_context(0), &filter, -1, 0, &m, &e), BSR_BAD_ARGUMENT);
        CHECK_INT(bsr_conv_prune(t_context(0), &filter, 0, 0, &m, &e), BSR_OK);
        for (i = 0; i < 5 * 24 && k; i++) CHECK(data[20 + i] == (float)(i / 24 * 4 + i % 4 + 1));
    }
}

/* Prefetched addresses come of the call's own numbers, not of what stood on the stack: seen by sanitizers of pointers and memory.
 */
static void __attribute__((noinline)) dirty(void) {
    volatile unsigned char a[200000];
    unsigned i;
    for (i = 0; i < sizeof a; i++) a[i] = 0xc3;
}
TEST(stack_of_others) {
    static const int64_t sizes[] = {1, 2, 3, 4, 7, 16};
    int isa, i, t;
    for (isa = 1; isa <= 3; isa++)
        for (i = 0; i < 36; i++)
            for (t = 0; t < 5; t++) {
                const bsr_context *ctx = (bt_case("isa %d, block %d, type %d", isa, i, t), t_context(isa));
                bsr_matrix m = matrix(types[t], 2, 3, sizes[i / 6], sizes[i % 6], NO_BATCH);
                const bsr_dense b = input(types[t], m.cols, 256, NO_BATCH);
                const bsr_dense out = output(types[t] == BSR_I8 ? BSR_I32 : types[t], m.rows, 256, NO_BATCH);
                bsr_exec e = t_exec(0);
                if (!ctx) {
                    bt_skip("this machine or build does not have it");
                    continue;
                }
                dirty();
                RUN_OK(bsr_dense_mm(ctx, 0, &m, &b, &out, &e));
            }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"unused_strides", unused_strides},
        {"batches_beyond_counting", batches_beyond_counting},
        {"sizes_beyond_counting", sizes_beyond_counting},
        {"conv_strides_beyond_counting", conv_strides_beyond_counting},
        {"few_of_many_blocks", few_of_many_blocks},
        {"more_columns_than_sums", more_columns_than_sums},
        {"files_of_unused_strides", files_of_unused_strides},
        {"dtypes_beyond_counting", dtypes_beyond_counting},
        {"filters_of_one_tap", filters_of_one_tap},
        {"stack_of_others", stack_of_others},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
