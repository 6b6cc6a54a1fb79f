/* fuzz_operands.h: descriptors out of bytes. Sizes, strides and contents may be anything; the memory behind a descriptor is
   as long as the descriptor says, so that a read or write past it is the library's fault. */
#ifndef BSR_FUZZ_OPERANDS_H
#define BSR_FUZZ_OPERANDS_H

#include "fuzz.h"

#define FUZZ_LARGEST 65536 /* bytes of one array; what would need more gets null data */

/* Bytes that an array spans; -1 where that is more than FUZZ_LARGEST or no number at all. */
static inline int64_t fuzz_extent(int n, const int64_t *size, const int64_t *stride, int64_t element) {
    int64_t last = 0;
    int i;
    for (i = 0; i < n; i++)
        if (size[i] == 0) return 0;
    for (i = 0; i < n; i++) {
        if (size[i] < 0 || stride[i] < 0 || (stride[i] && size[i] - 1 > FUZZ_LARGEST / stride[i])) return -1;
        last += (size[i] - 1) * stride[i];
        if (last > FUZZ_LARGEST) return -1;
    }
    last = (last + 1) * element;
    return last > FUZZ_LARGEST ? -1 : last;
}
static inline int64_t fuzz_element(int dtype) {
    int64_t n = (int64_t)bsr_dtype_size(dtype);
    return n ? n : 8;
}
static inline int fuzz_dtype(fuzz_input *in, int usual) {
    unsigned b = fuzz_byte(in);
    return b < 200 ? usual : b < 250 ? (int)(b % 8 + 1) : (int)b - 252;
}
/* About rows x cols, mostly row- or column-major. */
static inline bsr_dense fuzz_dense(fuzz_input *in, int dtype, int64_t rows, int64_t cols) {
    int64_t size[8], stride[8], bytes, step;
    unsigned form = fuzz_byte(in);
    bsr_dense d;
    int i;
    memset(&d, 0, sizeof d);
    d.dtype = fuzz_dtype(in, dtype), d.rows = form < 230 ? rows : fuzz_size(in, 9), d.cols = form < 230 ? cols : fuzz_size(in, 9);
    d.row_stride = form & 1 ? 1 : d.cols, d.col_stride = form & 1 ? d.rows : 1;
    if ((form & 14) == 14) d.row_stride = fuzz_size(in, 40), d.col_stride = fuzz_size(in, 20);
    d.batch_dims = form & 16 ? (int32_t)fuzz_size(in, 6) : 0;
    step = form & 32 ? fuzz_size(in, 60) : 0;
    for (i = 3; i >= 0; i--)
        d.batch[i] = 1 + fuzz_below(in, 3), d.batch_stride[i] = step > 0 && step < 100 ? step * (4 - i) : step;
    if (form == 229) d.batch[0] = fuzz_size(in, 3);
    size[0] = d.rows, size[1] = d.cols, stride[0] = d.row_stride, stride[1] = d.col_stride;
    for (i = 0; i < 4; i++) size[2 + i] = d.batch[i], stride[2 + i] = d.batch_stride[i];
    bytes = d.batch_dims < 0 || d.batch_dims > 4 ? -1 : fuzz_extent(2 + d.batch_dims, size, stride, fuzz_element(d.dtype));
    d.data = bytes < 0 ? NULL : fuzz_filled(in, (size_t)bytes + 1);
    if (bytes >= 0 && form % 64 == 63 && bytes + 1 > 1) d.data = (char *)d.data + 1; /* misaligned */
    return d;
}
static inline void *fuzz_array(fuzz_input *in, int64_t bytes) { return bytes < 0 ? NULL : fuzz_filled(in, (size_t)bytes); }
/* r x c blocks of br x bc; crow is mostly in order, as a start. */
static inline bsr_matrix fuzz_matrix(fuzz_input *in, int dtype, int64_t r, int64_t c, int64_t br, int64_t bc) {
    int64_t size[8], stride[8], i, nnz, bytes, step;
    unsigned form = fuzz_byte(in);
    bsr_matrix m;
    int d;
    memset(&m, 0, sizeof m);
    m.dtype = fuzz_dtype(in, dtype), m.index_dtype = form & 1 ? BSR_I64 : form % 67 == 66 ? (int)fuzz_byte(in) : BSR_I32;
    m.block_rows = br, m.block_cols = bc, m.rows = r * br, m.cols = c * bc, nnz = m.nnz = fuzz_size(in, 12);
    if (form > 240) m.block_rows = fuzz_size(in, 9), m.rows = fuzz_size(in, 30);
    if (form > 248) m.block_cols = fuzz_size(in, 9), m.cols = fuzz_size(in, 30);
    m.flags = form % 32 == 31 ? BSR_MATRIX_RAGGED : form % 64 == 40 ? fuzz_byte(in) : 0;
    m.batch_dims = form & 8 ? (int32_t)fuzz_size(in, 6) : 0;
    step = form & 16 ? 1 : 0;
    for (d = 3; d >= 0; d--) {
        m.batch[d] = 1 + fuzz_below(in, 3);
        m.crow_batch_stride[d] = step * (r + 1);
        if (nnz >= 0 && nnz < 100 && !m.flags)
            m.col_batch_stride[d] = step * nnz, m.values_batch_stride[d] = step * nnz * br * bc;
        step *= m.batch[d];
    }
    if ((form & 6) == 6)
        m.value_strides[0] = fuzz_size(in, 90), m.value_strides[1] = fuzz_size(in, 10), m.value_strides[2] = fuzz_size(in, 10);
    if (m.batch_dims < 0 || m.batch_dims > 4 || m.block_rows < 1 || m.block_cols < 1) return m;
    for (d = 0; d < 4; d++) size[d] = m.batch[d];
    memcpy(stride, m.crow_batch_stride, sizeof m.crow_batch_stride);
    size[m.batch_dims] = m.rows < 0 || m.rows > FUZZ_LARGEST ? -1 : m.rows / m.block_rows + 1, stride[m.batch_dims] = 1;
    bytes = fuzz_extent(m.batch_dims + 1, size, stride, fuzz_element(m.index_dtype));
    m.crow_indices = fuzz_array(in, bytes);
    for (i = 0; m.crow_indices && form < 200 && i < bytes / fuzz_element(m.index_dtype); i++) {
        int64_t v = r && nnz >= 0 && nnz < 100 ? i % (r + 1) * nnz / r : 0;
        if (m.index_dtype == BSR_I64) ((int64_t *)m.crow_indices)[i] = v;
        else if (m.index_dtype == BSR_I32) ((int32_t *)m.crow_indices)[i] = (int32_t)v;
    }
    memcpy(stride, m.col_batch_stride, sizeof m.col_batch_stride), size[m.batch_dims] = m.nnz, stride[m.batch_dims] = 1;
    bytes = fuzz_extent(m.batch_dims + 1, size, stride, fuzz_element(m.index_dtype));
    m.col_indices = fuzz_array(in, bytes);
    for (i = 0; m.col_indices && form < 220 && c > 0 && i < bytes / fuzz_element(m.index_dtype); i++) {
        int64_t v = i * 7 % c;
        if (m.index_dtype == BSR_I64) ((int64_t *)m.col_indices)[i] = v;
        else if (m.index_dtype == BSR_I32) ((int32_t *)m.col_indices)[i] = (int32_t)v;
    }
    memcpy(stride, m.values_batch_stride, sizeof m.values_batch_stride);
    d = m.batch_dims, size[d] = m.nnz, size[d + 1] = m.block_rows, size[d + 2] = m.block_cols;
    if (m.value_strides[0] || m.value_strides[1] || m.value_strides[2])
        memcpy(stride + d, m.value_strides, sizeof m.value_strides);
    else stride[d] = br * bc, stride[d + 1] = m.block_cols, stride[d + 2] = 1;
    if (!m.value_strides[0] && !m.value_strides[1] && !m.value_strides[2])
        stride[d] = m.block_rows < 100 && m.block_cols < 100 ? m.block_rows * m.block_cols : 99999;
    m.values = fuzz_array(in, fuzz_extent(d + 3, size, stride, fuzz_element(m.dtype)));
    return m;
}
/* A view built by the library, then perhaps one word of it changed. */
static inline void fuzz_views(fuzz_input *in, const bsr_context *ctx, bsr_matrix *m) {
    unsigned form = fuzz_byte(in);
    uint64_t bytes;
    void *view;
    if (form & 1 && bsr_transposed_index_size(ctx, m, &bytes, NULL) == BSR_OK && bytes < FUZZ_LARGEST) {
        view = fuzz_alloc((size_t)bytes + 64), view = (char *)view + (64 - (uintptr_t)view % 64) % 64;
        if (bsr_build_transposed_index(ctx, m, view, bytes, NULL) == BSR_OK) {
            if (form & 2) ((unsigned char *)view)[(fuzz_byte(in) * 5u) % (unsigned)bytes] = (unsigned char)fuzz_byte(in);
            m->transposed_index = view;
        }
    }
    if (form & 4 && bsr_schedule_size(ctx, m, 1 << (form >> 3 & 3), form >> 5 & 1, &bytes, NULL) == BSR_OK &&
        bytes < FUZZ_LARGEST) {
        view = fuzz_alloc((size_t)bytes + 64), view = (char *)view + (64 - (uintptr_t)view % 64) % 64;
        if (bsr_build_schedule(ctx, m, 1 << (form >> 3 & 3), form >> 5 & 1, view, bytes, NULL) == BSR_OK) {
            if (form & 64) ((unsigned char *)view)[(fuzz_byte(in) * 3u) % (unsigned)bytes] = (unsigned char)fuzz_byte(in);
            m->schedule = view;
        }
    }
}
/* Scratch of conversions: what a lying size asks for beyond this is refused, as a small machine would. */
static inline void *fuzz_scratch(size_t bytes, void *user) {
    (void)user;
    return bytes > ((size_t)1 << 24) ? NULL : malloc(bytes ? bytes : 1);
}
static inline void fuzz_scratch_free(void *p, void *user) {
    (void)user;
    free(p);
}
static inline bsr_context *fuzz_context(void) {
    static bsr_context *ctx; /* for all runs of the program */
    bsr_context_desc d = BSR_ZERO;
    d.allocator.alloc_fn = fuzz_scratch, d.allocator.free_fn = fuzz_scratch_free;
    if (!ctx && bsr_create(&d, &ctx, NULL) != BSR_OK) abort();
    return ctx;
}

#endif /* BSR_FUZZ_OPERANDS_H */
