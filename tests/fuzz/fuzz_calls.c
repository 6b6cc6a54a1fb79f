/* fuzz_calls.c: a valid call, and one thing of it changed: an index, a view, a pointer, a size, a stride, a type, a flag, the
   plan, where an output lies. The memory behind a descriptor stays as long as the descriptor says. Either the call is refused, by
   a query and by itself alike, with a record that says why, and nothing is written; or its result is that of tests/ref64.h. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz_operands.h"
#include "fuzz_random.h"

enum { ADDMM, SAMPLED, SOFTMAX, BACKWARD, ATTENTION, OPERATIONS };
typedef struct call {
    int operation;
    const bsr_context *ctx;
    double alpha, beta;
    uint32_t trans;
    bsr_matrix m[3];      /* a; out, y or dx; input, dy. Of attention: the mask */
    bsr_dense d[4], out, lse; /* b, left_alpha, bias, input; mat1, mat2; biases; q, k, v, relative bias */
    bsr_epilogue epilogue;
    bsr_softmax_options softmax;
    bsr_attention_options attention;
    bsr_matrix *matrix[3]; /* of the operands above those that the call has; a null one is given as null */
    bsr_dense *dense[6];
    int matrices, denses, wants_valid; /* wants_valid: compared only where bsr_validate takes the sparse operand */
    bsr_exec e;
    bsr_error error;
    bsr_plan plan;
} call;

static t_shape some_batch(fuzz_input *in, int most) {
    const int dims = (int)fuzz_below(in, most + 1);
    const int64_t a = 1 + fuzz_below(in, 3), b = 1 + fuzz_below(in, 3);
    return t_batch(dims, dims == 2 ? b : a, a, 1, 1);
}
static bsr_dense *has(call *c, bsr_dense *d) { return c->dense[c->denses++] = d; }
static bsr_matrix *stored(call *c, bsr_matrix *m) { return c->matrix[c->matrices++] = m; }
static int layout_of(fuzz_input *in) { return (int)fuzz_below(in, LAYOUTS); }

static t_spec some_spec(fuzz_input *in, int dtype) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.index_dtype = fuzz_below(in, 2) ? BSR_I64 : BSR_I32, s.layout = (int)fuzz_below(in, BLOCKS_LAYOUTS);
    s.kind = FILL_SIGNED, s.block_rows = 1 + fuzz_below(in, 6), s.block_cols = 1 + fuzz_below(in, 6);
    s.r = fuzz_below(in, 5), s.c = fuzz_below(in, 5), s.nnz = fuzz_below(in, 10);
    s.batch = some_batch(in, 2), s.shared_pattern = fuzz_byte(in) & 3u;
    s.ragged = s.batch.dims && !s.shared_pattern && fuzz_below(in, 3) == 0;
    return s;
}
static bsr_matrix other(const bsr_matrix *m, int dtype, int layout, int output) {
    bsr_matrix o = *m;
    o.transposed_index = o.schedule = NULL;
    t_make_values(&o, dtype, layout, 0);
    if (output) bt_mark_output(o.values);
    else t_fill_values(&o, FILL_SIGNED);
    return o;
}

static void make_addmm(call *c, fuzz_input *in, int dtype) {
    t_spec s = some_spec(in, dtype);
    const int to = dtype == BSR_I8 ? BSR_I32 : fuzz_below(in, 4) || dtype == BSR_F64 ? dtype : BSR_F32;
    const unsigned form = fuzz_byte(in);
    t_shape own = t_matrix_batch(&c->m[0]), whole;
    int64_t m, k, n = fuzz_width(in);
    s.unsorted = form & 1, s.duplicates = form >> 1 & 1;
    c->m[0] = t_matrix(&s), own = t_matrix_batch(&c->m[0]), c->trans = form >> 2 & 1;
    m = c->trans ? c->m[0].cols : c->m[0].rows, k = c->trans ? c->m[0].rows : c->m[0].cols;
    c->d[0] = t_random(dtype, k, n, layout_of(in), fuzz_below(in, 2) ? own : NO_BATCH, 0, FILL_SIGNED);
    whole = t_join(own, t_dense_batch(&c->d[0]));
    c->out = t_output(to, m, n, layout_of(in), whole);
    c->alpha = form & 8 ? 2 : 1, c->beta = form & 16 ? -1 : 0;
    if (form & 16) c->d[3] = t_random(to, form & 32 ? m : 1, n, layout_of(in), NO_BATCH, 0, FILL_SIGNED), has(c, &c->d[3]);
    if (form & 64) {
        c->d[1] = t_random(to, m, 1, COL, NO_BATCH, 0, FILL_SIGNED), c->epilogue.left_alpha = has(c, &c->d[1]);
        c->d[2] = t_random(to, 1, n, ROW, NO_BATCH, 0, FILL_SIGNED), c->epilogue.bias = has(c, &c->d[2]);
        c->epilogue.activation = t_is_float(to) ? (int32_t)fuzz_below(in, 5) : 0;
    }
    stored(c, &c->m[0]), has(c, &c->d[0]), has(c, &c->out);
    if (form & 128 && m && n && c->beta != 0 && c->d[3].rows == m && !whole.dims) c->out = c->d[3], bt_mark_output(c->out.data);
}
static void make_sampled(call *c, fuzz_input *in, int dtype) {
    t_spec s = some_spec(in, dtype == BSR_I8 ? BSR_I32 : dtype);
    const unsigned form = fuzz_byte(in);
    const int64_t k = fuzz_width(in);
    t_shape whole;
    s.ragged = 0, c->m[0] = t_matrix(&s), whole = t_matrix_batch(&c->m[0]);
    c->d[0] = t_random(dtype, c->m[0].rows, k, layout_of(in), form & 1 ? whole : NO_BATCH, 0, FILL_SIGNED);
    c->d[1] = t_random(dtype, k, c->m[0].cols, layout_of(in), NO_BATCH, 0, FILL_SIGNED);
    c->m[2] = c->m[0], c->m[1] = other(&c->m[0], s.dtype, (int)fuzz_below(in, BLOCKS_LAYOUTS), 1);
    c->alpha = form & 2 ? 2 : 1, c->beta = form & 4 ? -1 : 0;
    stored(c, &c->m[1]), has(c, &c->d[0]), has(c, &c->d[1]);
    if (c->beta != 0) stored(c, &c->m[2]);
    c->wants_valid = 1;
}
static void make_softmax(call *c, fuzz_input *in, int dtype, int backward) {
    t_spec s = some_spec(in, dtype);
    const unsigned form = fuzz_byte(in);
    c->m[0] = t_matrix(&s), c->m[1] = other(&c->m[0], dtype, (int)fuzz_below(in, BLOCKS_LAYOUTS), 1);
    c->alpha = form & 1 ? 0.5 : 1;
    stored(c, &c->m[0]), stored(c, &c->m[1]);
    if (backward) c->m[2] = other(&c->m[0], dtype, (int)fuzz_below(in, BLOCKS_LAYOUTS), 0), stored(c, &c->m[2]);
    if (!backward && form & 2) {
        c->d[0] = t_random(dtype, c->m[0].rows, c->m[0].cols, layout_of(in), NO_BATCH, 0, FILL_SIGNED);
        c->softmax.relative_bias = has(c, &c->d[0]);
    }
    if (!backward && form & 4) {
        c->d[1] = t_random(BSR_BOOL, 1, c->m[0].cols, ROW, NO_BATCH, 0, FILL_BOOL);
        c->softmax.key_padding_mask = has(c, &c->d[1]), c->softmax.key_padding_mode = BSR_MASK_MUL;
    }
    c->wants_valid = 1;
}
static void make_attention(call *c, fuzz_input *in, int dtype) {
    t_spec s = some_spec(in, dtype);
    const unsigned form = fuzz_byte(in);
    const int64_t depth = fuzz_width(in), dv = fuzz_width(in);
    int64_t lq, lk;
    t_shape whole;
    s.ragged = s.ragged && form & 1, c->m[0] = t_matrix(&s), whole = t_matrix_batch(&c->m[0]);
    lq = c->m[0].rows - (c->m[0].rows ? fuzz_below(in, (int)s.block_rows) : 0);
    lk = c->m[0].cols - (c->m[0].cols ? fuzz_below(in, (int)s.block_cols) : 0);
    c->d[0] = t_random(dtype, lq, depth, layout_of(in), whole, 0, FILL_SIGNED);
    c->d[1] = t_random(dtype, lk, depth, layout_of(in), form & 2 ? whole : NO_BATCH, 0, FILL_SIGNED);
    c->d[2] = t_random(dtype, lk, dv, layout_of(in), form & 2 ? whole : NO_BATCH, 0, FILL_SIGNED);
    c->out = t_output(dtype, lq, dv, layout_of(in), whole);
    c->attention.flags = (form & 4 ? BSR_ATTENTION_CAUSAL : 0u) | (form & 8 ? BSR_ATTENTION_MASK_ADDITIVE : 0u);
    c->attention.causal_offset = fuzz_range(in, -3, 3);
    if (form & 16) c->attention.dropout_p = 0.5, c->attention.dropout_seed = form;
    if (form & 32) {
        c->d[3] = t_random(dtype, lq, lk, layout_of(in), NO_BATCH, 0, FILL_SIGNED);
        c->attention.relative_bias = has(c, &c->d[3]);
    }
    if (form & 64) c->lse = t_output(dtype == BSR_F64 ? BSR_F64 : BSR_F32, lq, 1, COL, whole), has(c, &c->lse);
    stored(c, &c->m[0]), has(c, &c->d[0]), has(c, &c->d[1]), has(c, &c->d[2]), has(c, &c->out);
    c->wants_valid = 1;
}

/* ---------------------------------------------------------------------------------------------- */
/* one thing changed                                                                              */
/* ---------------------------------------------------------------------------------------------- */

static void fit_dense(bsr_dense *d, int shift) {
    int64_t size[6], stride[6], bytes;
    const int64_t element = fuzz_element(d->dtype);
    int i;
    if (d->batch_dims < 0 || d->batch_dims > 4) return;
    size[0] = d->rows, size[1] = d->cols, stride[0] = d->row_stride, stride[1] = d->col_stride;
    for (i = 0; i < d->batch_dims; i++) size[2 + i] = d->batch[i], stride[2 + i] = d->batch_stride[i];
    bytes = fuzz_extent(2 + d->batch_dims, size, stride, element);
    if (bytes >= 0) d->data = fuzz_longer(d->data, bytes, element, shift);
}
static void *fit_array(void *data, const bsr_matrix *m, const int64_t *batch_stride, int n, const int64_t *inner,
                       const int64_t *inner_stride, int64_t element, int shift) {
    int64_t size[8], stride[8], bytes;
    int i;
    for (i = 0; i < n; i++) size[i] = inner[i], stride[i] = inner_stride[i];
    for (i = 0; i < m->batch_dims; i++) size[n + i] = m->batch[i], stride[n + i] = batch_stride[i];
    bytes = fuzz_extent(n + m->batch_dims, size, stride, element);
    return bytes < 0 ? data : fuzz_longer(data, bytes, element, shift);
}
static void fit_matrix(bsr_matrix *m, int which, int shift) {
    int64_t size[3], stride[3] = {1, 1, 1};
    const int64_t element = fuzz_element(m->index_dtype);
    if (m->batch_dims < 0 || m->batch_dims > 4 || m->block_rows < 1 || m->block_cols < 1 || m->block_rows > 99) return;
    if (m->block_cols > 99) return;
    size[0] = m->rows / m->block_rows + 1;
    m->crow_indices = fit_array(m->crow_indices, m, m->crow_batch_stride, 1, size, stride, element, which == 0 ? shift : 0);
    size[0] = m->nnz;
    m->col_indices = fit_array(m->col_indices, m, m->col_batch_stride, 1, size, stride, element, which == 1 ? shift : 0);
    size[1] = m->block_rows, size[2] = m->block_cols;
    t_matrix_strides(m, stride);
    m->values = fit_array(m->values, m, m->values_batch_stride, 3, size, stride, fuzz_element(m->dtype), which == 2 ? shift : 0);
}
/* A number near the one that stands there, or an absurd one. */
static int64_t near(fuzz_input *in, int64_t value) {
    const unsigned b = fuzz_byte(in);
    if (b >= 240) return fuzz_size(in, 9);
    return b & 1 ? value + (int64_t)(b / 2 % 5) - 2 : (int64_t)(b / 2 % 11) - 1;
}
static void change_index(call *c, fuzz_input *in) {
    bsr_matrix *m = c->matrix[fuzz_below(in, c->matrices)];
    void *array = fuzz_below(in, 2) ? m->col_indices : m->crow_indices;
    const bt_block *b = bt_find(array);
    const int64_t n = b ? (int64_t)b->bytes / fuzz_element(m->index_dtype) : 0, i = fuzz_below(in, n ? (int)n : 1);
    if (n) t_set_index(array, m->index_dtype, i, near(in, t_index(array, m->index_dtype, i)));
}
static void change_view(call *c, fuzz_input *in) {
    bsr_matrix *m = c->matrix[0];
    const unsigned form = fuzz_byte(in);
    const void *view;
    bt_block *b;
    if (form & 1) t_attach_transposed(m), view = m->transposed_index;
    else t_attach_schedule(m, 1 << (form >> 1 & 3), form >> 3 & 1), view = m->schedule;
    b = bt_find(view);
    if (b && b->bytes && form < 200) b->data[(fuzz_byte(in) * 4u + (form >> 4 & 3)) % b->bytes] = (unsigned char)fuzz_byte(in);
}
static void change_pointer(call *c, fuzz_input *in) {
    const int which = (int)fuzz_below(in, 3), null = (int)fuzz_below(in, 2);
    if (c->denses && fuzz_below(in, 2)) {
        bsr_dense *d = c->dense[fuzz_below(in, c->denses)];
        if (null) d->data = NULL;
        else fit_dense(d, 1);
    } else {
        bsr_matrix *m = c->matrix[fuzz_below(in, c->matrices)];
        void **array[3];
        array[0] = &m->crow_indices, array[1] = &m->col_indices, array[2] = &m->values;
        if (null) *array[which] = NULL;
        else fit_matrix(m, which, 1);
    }
}
static void change_dense(call *c, fuzz_input *in) {
    bsr_dense *d = c->denses ? c->dense[fuzz_below(in, c->denses)] : NULL;
    const int at = (int)fuzz_below(in, 4);
    if (!d) return;
    switch (fuzz_below(in, 8)) {
        case 0: d->rows = near(in, d->rows); break;
        case 1: d->cols = near(in, d->cols); break;
        case 2: d->row_stride = near(in, d->row_stride); break;
        case 3: d->col_stride = near(in, d->col_stride); break;
        case 4: d->batch_dims = (int32_t)near(in, d->batch_dims); break;
        case 5: d->batch[at] = near(in, d->batch[at]); break;
        case 6: d->batch_stride[at] = near(in, d->batch_stride[at]); break;
        default: d->dtype = (int)fuzz_range(in, 0, 9);
    }
    fit_dense(d, 0);
}
static void change_matrix(call *c, fuzz_input *in) {
    bsr_matrix *m = c->matrix[fuzz_below(in, c->matrices)];
    const int at = (int)fuzz_below(in, 4);
    switch (fuzz_below(in, 14)) {
        case 0: m->rows = near(in, m->rows); break;
        case 1: m->cols = near(in, m->cols); break;
        case 2: m->block_rows = near(in, m->block_rows); break;
        case 3: m->block_cols = near(in, m->block_cols); break;
        case 4: m->nnz = near(in, m->nnz); break;
        case 5: m->batch_dims = (int32_t)near(in, m->batch_dims); break;
        case 6: m->batch[at] = near(in, m->batch[at]); break;
        case 7: m->crow_batch_stride[at] = near(in, m->crow_batch_stride[at]); break;
        case 8: m->col_batch_stride[at] = near(in, m->col_batch_stride[at]); break;
        case 9: m->values_batch_stride[at] = near(in, m->values_batch_stride[at]); break;
        case 10: m->value_strides[at % 3] = near(in, m->value_strides[at % 3]); break;
        case 11: m->flags ^= 1u << fuzz_below(in, 3); break;
        case 12: m->index_dtype = (int)fuzz_range(in, 0, 9); break;
        default: m->dtype = (int)fuzz_range(in, 0, 9);
    }
    fit_matrix(m, 3, 0);
}
static void change_flags(call *c, fuzz_input *in) {
    const unsigned bit = 1u << fuzz_below(in, 10);
    switch (fuzz_below(in, 4)) {
        case 0: c->e.flags = bit & ~(unsigned)BSR_EXEC_SKIP_CHECKS; break;
        case 1: c->trans ^= bit; break;
        case 2: c->attention.flags ^= bit, c->softmax.key_padding_mode = (int32_t)near(in, 0); break;
        default: c->epilogue.activation = (int32_t)near(in, 3), c->attention.dropout_p = fuzz_below(in, 2) ? 1.5 : 1;
    }
}
static void change_plan(call *c, fuzz_input *in) {
    int32_t *field = &c->plan.op + fuzz_below(in, 9);
    *field = (int32_t)near(in, 1), c->e.plan = &c->plan;
}
/* An output somewhere in another operand's memory, as far as that reaches. */
static void change_place(call *c, fuzz_input *in) {
    void *at[9], **out = c->operation == ADDMM || c->operation == ATTENTION ? &c->out.data : &c->m[1].values;
    const bt_block *mine = bt_find(*out), *there;
    int i, n = 0;
    int64_t room;
    for (i = 0; i < c->denses; i++) at[n++] = c->dense[i]->data;
    for (i = 0; i < c->matrices; i++) at[n++] = c->matrix[i]->values;
    there = bt_find(at[fuzz_below(in, n)]);
    if (!mine || !there || there == mine || there->bytes < mine->bytes + 8 || !mine->bytes) return;
    room = (int64_t)(there->bytes - mine->bytes) / 8;
    *out = there->data + 8 + fuzz_below(in, (int)(room < 200 ? room : 200)) * 8;
    bt_mark_output(there->data);
}

/* ---------------------------------------------------------------------------------------------- */
/* the call and what it must give                                                                 */
/* ---------------------------------------------------------------------------------------------- */

static bsr_status issue(call *c, bsr_plan *query) {
    bsr_exec e = c->e;
    e.error = &c->error, e.query = query;
    memset(&c->error, 0x77, sizeof c->error);
    switch (c->operation) {
        case ADDMM:
            return bsr_dense_addmm(c->ctx, c->beta, c->beta != 0 ? &c->d[3] : NULL, c->alpha, c->trans, &c->m[0], &c->d[0],
                                   &c->epilogue, &c->out, &e);
        case SAMPLED:
            return bsr_sampled_addmm(c->ctx, c->beta, c->beta != 0 ? &c->m[2] : NULL, c->alpha, &c->d[0], &c->d[1], &c->m[1], &e);
        case SOFTMAX: return bsr_softmax(c->ctx, c->alpha, &c->m[0], &c->softmax, &c->m[1], &e);
        case BACKWARD: return bsr_softmax_backward(c->ctx, c->alpha, &c->m[0], &c->m[2], &c->m[1], &e);
        default:
            return bsr_attention(c->ctx, 0.25, &c->d[0], &c->d[1], &c->d[2], &c->m[0], &c->attention, &c->out,
                                 c->lse.data ? &c->lse : NULL, &e);
    }
}
static ref_result reference(const call *c, ref_result *lse) {
    switch (c->operation) {
        case ADDMM:
            return ref_dense_addmm(c->beta, c->beta != 0 ? &c->d[3] : NULL, c->alpha, c->trans, &c->m[0], &c->d[0], &c->epilogue,
                                   c->out.dtype, c->e.flags);
        case SAMPLED:
            return ref_sampled(c->beta, c->beta != 0 ? &c->m[2] : NULL, c->alpha, &c->d[0], &c->d[1], t_matrix_batch(&c->m[1]),
                               t_matrix_batch(&c->m[1]), c->m[1].dtype, c->e.flags);
        case SOFTMAX: return ref_softmax(c->alpha, &c->m[0], &c->softmax, 0);
        case BACKWARD: return ref_softmax_backward(c->alpha, &c->m[0], &c->m[2]);
        default:
            return ref_attention(0.25, &c->d[0], &c->d[1], &c->d[2], &c->m[0], &c->attention, t_dense_batch(&c->out),
                                 c->lse.data ? lse : NULL);
    }
}
/* Is there a result to compare? A stale view that stays inside its arrays gives any; so do masks that bsr_validate refuses. */
static int comparable(const call *c) {
    const bsr_matrix *m = c->matrix[0];
    if (c->e.flags & (BSR_EXEC_TF32 | BSR_EXEC_TF32X3)) return 0;
    if (c->wants_valid || m->transposed_index || m->schedule) return bsr_validate(c->ctx, m, NULL) == BSR_OK;
    return 1;
}
static void check(call *c) {
    bsr_plan query;
    bsr_status said, status;
    const uint64_t before = fuzz_hash_all();
    int item, operand;
    FUZZ_REQUIRE(!c->e.query);
    said = issue(c, &query), item = c->error.item, operand = c->error.operand;
    FUZZ_REQUIRE(before == fuzz_hash_all());
    FUZZ_REQUIRE(c->error.status == (int32_t)said && (said == BSR_OK) == (item == BSR_ITEM_NONE));
    if (said != BSR_OK) {
        status = issue(c, NULL);
        FUZZ_REQUIRE(status == said && c->error.item == item && c->error.operand == operand);
        FUZZ_REQUIRE(before == fuzz_hash_all());
        FUZZ_REQUIRE(item > 0 && item < BSR_ITEM_COUNT && said <= BSR_PARSE_ERROR);
    } else {
        const int compares = comparable(c);
        ref_result want, lse;
        memset(&want, 0, sizeof want);
        if (compares) want = reference(c, &lse);
        bt_before_call();
        status = issue(c, NULL);
        bt_after_call();
        FUZZ_REQUIRE(status == BSR_OK);
        if (!compares) return;
        if (c->operation == ADDMM || c->operation == ATTENTION) REF_COMPARE(&c->out, &want, REF_ANY);
        else REF_COMPARE_MATRIX(&c->m[1], &want, REF_ANY);
        if (c->operation == ATTENTION && c->lse.data) REF_COMPARE(&c->lse, &lse, REF_ANY);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};
    static void (*const change[])(call *, fuzz_input *) = {change_index, change_view,  change_pointer, change_dense,
                                                           change_matrix, change_flags, change_plan,    change_place};
    fuzz_input in;
    call c;
    int dtype;
    unsigned kind;
    memset(&c, 0, sizeof c);
    in.p = data, in.end = data + size;
    fuzz_case_begin(&in, "calls");
    kind = fuzz_byte(&in), c.operation = (int)fuzz_below(&in, OPERATIONS), c.ctx = fuzz_isa(&in);
    dtype = dtypes[fuzz_below(&in, c.operation <= SAMPLED ? 5 : 4)];
    if (c.operation == ADDMM) make_addmm(&c, &in, dtype);
    else if (c.operation == SAMPLED) make_sampled(&c, &in, dtype);
    else if (c.operation == ATTENTION) make_attention(&c, &in, dtype);
    else make_softmax(&c, &in, dtype, c.operation == BACKWARD);
    if (kind < 240) change[kind % (sizeof change / sizeof change[0])](&c, &in);
    bt_describe("operation %d, change %u, %s, %lld x %lld, blocks of %lld x %lld, nnz %lld", c.operation, kind % 8,
                bsr_dtype_name(dtype), (long long)c.m[0].rows, (long long)c.m[0].cols, (long long)c.m[0].block_rows,
                (long long)c.m[0].block_cols, (long long)c.m[0].nnz);
    check(&c);
    fuzz_case_end();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) { return fuzz_random_main(argc, argv, 20000, 20, 60); }
#endif
