/* numpy_calls.c: the library as tests/numpy_differ.py calls it: descriptors come as arrays of int64, so that Python need not know
   how a struct is laid out. Dense: data, dtype, batch_dims, rows, cols, row_stride, col_stride, batch[4], batch_stride[4].
   Matrix: crow, col, values, dtype, index_dtype, rows, cols, block_rows, block_cols, nnz, value_strides[3], flags, batch_dims,
   batch[4], crow, col and values batch strides[4], transposed_index, schedule. A null array is a null argument. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

static const bsr_dense *dense_of(const int64_t *v, bsr_dense *d) {
    int i;
    if (!v) return NULL;
    d->data = (void *)(uintptr_t)v[0], d->dtype = (int32_t)v[1], d->batch_dims = (int32_t)v[2];
    d->rows = v[3], d->cols = v[4], d->row_stride = v[5], d->col_stride = v[6];
    for (i = 0; i < 4; i++) d->batch[i] = v[7 + i], d->batch_stride[i] = v[11 + i];
    return d;
}
static bsr_matrix *matrix_of(const int64_t *v, bsr_matrix *m) {
    int i;
    if (!v) return NULL;
    m->crow_indices = (void *)(uintptr_t)v[0], m->col_indices = (void *)(uintptr_t)v[1], m->values = (void *)(uintptr_t)v[2];
    m->dtype = (int32_t)v[3], m->index_dtype = (int32_t)v[4], m->rows = v[5], m->cols = v[6];
    m->block_rows = v[7], m->block_cols = v[8], m->nnz = v[9];
    for (i = 0; i < 3; i++) m->value_strides[i] = v[10 + i];
    m->flags = (uint32_t)v[13], m->batch_dims = (int32_t)v[14];
    for (i = 0; i < 4; i++)
        m->batch[i] = v[15 + i], m->crow_batch_stride[i] = v[19 + i], m->col_batch_stride[i] = v[23 + i],
        m->values_batch_stride[i] = v[27 + i];
    m->transposed_index = (const void *)(uintptr_t)v[31], m->schedule = (const void *)(uintptr_t)v[32];
    return m;
}
static bsr_exec exec_of(uint32_t flags, bsr_error *error) {
    bsr_exec e = BSR_ZERO;
    e.flags = flags, e.error = error;
    return e;
}
static int told(const bsr_error *error, bsr_status status, char text[400]) {
    bsr_error_string(error, text, 400);
    return (int)status;
}

void *differ_context(int isa) { /* null where machine or build lack it */
    bsr_context_desc d = BSR_ZERO;
    bsr_context *ctx = NULL;
    d.isa = isa, d.backend = BSR_BACKEND_CPU;
    return bsr_create(&d, &ctx, NULL) == BSR_OK ? ctx : NULL;
}
int differ_addmm(void *ctx, double beta, const int64_t *input, double alpha, uint32_t trans, const int64_t *a, const int64_t *b,
                 const int64_t *left, const int64_t *right, const int64_t *bias, int activation, const int64_t *out,
                 uint32_t flags, char text[400]) {
    bsr_dense d[6];
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = exec_of(flags, &error);
    bsr_epilogue ep = BSR_ZERO;
    ep.left_alpha = dense_of(left, &d[0]), ep.right_alpha = dense_of(right, &d[1]), ep.bias = dense_of(bias, &d[2]);
    ep.activation = activation;
    return told(&error, bsr_dense_addmm(ctx, beta, dense_of(input, &d[3]), alpha, trans, matrix_of(a, &m), dense_of(b, &d[4]),
                                        &ep, dense_of(out, &d[5]), &e), text);
}
int differ_sampled(void *ctx, double beta, const int64_t *input, double alpha, const int64_t *x, const int64_t *y,
                   const int64_t *out, uint32_t flags, char text[400]) {
    bsr_dense d[2];
    bsr_matrix m[2];
    bsr_error error;
    bsr_exec e = exec_of(flags, &error);
    return told(&error, bsr_sampled_addmm(ctx, beta, matrix_of(input, &m[0]), alpha, dense_of(x, &d[0]), dense_of(y, &d[1]),
                                          matrix_of(out, &m[1]), &e), text);
}
int differ_softmax(void *ctx, double scale, const int64_t *x, const int64_t *bias, const int64_t *padding, int padding_mode,
                   const int64_t *y, char text[400]) {
    bsr_dense d[2];
    bsr_matrix m[2];
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    bsr_softmax_options o = BSR_ZERO;
    o.relative_bias = dense_of(bias, &d[0]), o.key_padding_mask = dense_of(padding, &d[1]), o.key_padding_mode = padding_mode;
    return told(&error, bsr_softmax(ctx, scale, matrix_of(x, &m[0]), &o, matrix_of(y, &m[1]), &e), text);
}
int differ_softmax_backward(void *ctx, double scale, const int64_t *y, const int64_t *dy, const int64_t *dx, char text[400]) {
    bsr_matrix m[3];
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    return told(&error, bsr_softmax_backward(ctx, scale, matrix_of(y, &m[0]), matrix_of(dy, &m[1]), matrix_of(dx, &m[2]), &e),
                text);
}
int differ_attention(void *ctx, double scale, const int64_t *q, const int64_t *k, const int64_t *v, const int64_t *mask,
                     uint32_t flags, int64_t causal_offset, const int64_t *bias, const int64_t *out, const int64_t *lse,
                     char text[400]) {
    bsr_dense d[6];
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    bsr_attention_options o = BSR_ZERO;
    o.flags = flags, o.causal_offset = causal_offset, o.relative_bias = dense_of(bias, &d[0]);
    return told(&error, bsr_attention(ctx, scale, dense_of(q, &d[1]), dense_of(k, &d[2]), dense_of(v, &d[3]),
                                      matrix_of(mask, &m), &o, dense_of(out, &d[4]), dense_of(lse, &d[5]), &e), text);
}
int differ_to_dense(void *ctx, const int64_t *a, const int64_t *out, char text[400]) {
    bsr_dense d;
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    return told(&error, bsr_to_dense(ctx, matrix_of(a, &m), dense_of(out, &d), &e), text);
}
/* Returns the number of blocks stored, or minus the status. */
int64_t differ_from_dense(void *ctx, const int64_t *source, const int64_t *a, char text[400]) {
    bsr_dense d;
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    const int status = told(&error, bsr_from_dense(ctx, dense_of(source, &d), matrix_of(a, &m), &e), text);
    return status ? -status : m.nnz;
}
/* A view in buffer, or, with buffer null, its size in bytes; negative: minus the status. group 0: the transposed index. */
int64_t differ_view(void *ctx, const int64_t *a, int group, int transposed, void *buffer, uint64_t bytes) {
    bsr_matrix m;
    int status;
    matrix_of(a, &m);
    if (!buffer)
        status = (int)(group ? bsr_schedule_size(ctx, &m, group, transposed, &bytes, NULL)
                             : bsr_transposed_index_size(ctx, &m, &bytes, NULL));
    else
        status = (int)(group ? bsr_build_schedule(ctx, &m, group, transposed, buffer, bytes, NULL)
                             : bsr_build_transposed_index(ctx, &m, buffer, bytes, NULL));
    return status ? -status : (int64_t)bytes;
}
int differ_validate(void *ctx, const int64_t *a, char text[400]) {
    bsr_matrix m;
    bsr_error error;
    bsr_exec e = exec_of(0, &error);
    return told(&error, bsr_validate(ctx, matrix_of(a, &m), &e), text);
}
