/* test_cudart.c: the CUDA host path without a GPU. Random legal calls of every operation that the CUDA backend has run against
   a recording stand-in of the runtime (stand_in.h), with operands in memory that can't be read or written: launches stay
   within the device's limits, no operation loads, allocates, waits or changes the device, and every CUDA call that fails gives
   its status and leaves nothing behind. Usage: test_cudart build/kernels.txt sm_90a [-v] [names of tests]
   (--plans: see plans.h) */
#define _GNU_SOURCE /* mmap, sigsetjmp */
#include "bsrsparse.h"

#include "operands.h"
#include "operations.h"
#include "stand_in.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

/* ---------------------------------------------------------------------------------------------- */
/* device memory: addresses that fault                                                            */
/* ---------------------------------------------------------------------------------------------- */

static struct {
    char *base;
    int64_t size, used; /* the upper half is for workspaces */
} arena;
static int tidy; /* this call: packed and aligned operands, as fast kernels want them */
static sigjmp_buf on_fault;
enum { TOUCHED = -1, TOO_LARGE = -2 }; /* not statuses: the host touched device memory; a draw that does not fit the arena */

static int arena_make(void) {
    int bits;
    for (bits = 46; bits >= 40 && !arena.base; bits--) {
        void *p = mmap(NULL, (size_t)1 << bits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p != MAP_FAILED) arena.base = (char *)p, arena.size = (int64_t)1 << bits;
    }
    return arena.base != NULL;
}
static int is_device(const void *p) { return (const char *)p >= arena.base && (const char *)p < arena.base + arena.size; }
/* Elements of a dtype, on the element's alignment and often on no more than that. */
static int64_t times(int64_t a, int64_t b) { return b && a > (INT64_C(1) << 60) / b ? INT64_C(1) << 60 : a * b; }
static void *device(int64_t elements, int dtype) {
    const int64_t size = (int64_t)bsr_dtype_size(dtype), shift = bt_below(3) || tidy ? 0 : size * bt_below(16);
    char *p = arena.base + arena.used + shift;
    if (elements < 0 || elements > (arena.size / 2 - arena.used) / size - 16) siglongjmp(on_fault, TOO_LARGE);
    arena.used += (elements * size + shift + 511) / 256 * 256;
    return p;
}

/* The same on 256 bytes: within the 511 that are kept behind it. */
static char *aligned(int64_t elements, int dtype) { return (char *)(((uintptr_t)device(elements, dtype) + 255) / 256 * 256); }

static void fault(int number) {
    (void)number;
    siglongjmp(on_fault, TOUCHED);
}

/* ---------------------------------------------------------------------------------------------- */
/* random legal operands                                                                          */
/* ---------------------------------------------------------------------------------------------- */

static int huge; /* this call: sizes beyond 32 bits and grids beyond 65,535 */

static int64_t pick(const int64_t *list, int count) { return list[bt_below(count)]; }
#define PICK(...) pick((const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static int draw_operand_dtype(void) { return (int)PICK(BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_I8); }
static int draw_float(void) { return (int)PICK(BSR_F16, BSR_BF16, BSR_F32, BSR_F64); }
static int draw_result(int dtype) {
    if (dtype == BSR_I8) return (int)PICK(BSR_I32, BSR_I8, BSR_F16, BSR_BF16, BSR_F32);
    if (dtype == BSR_F32) return (int)PICK(BSR_F32, BSR_F32, BSR_F16, BSR_BF16);
    return dtype == BSR_F64 || bt_below(2) ? dtype : BSR_F32;
}
static int draw_beside(int result) { /* of input, bias and the like */
    return result == BSR_I8 || result == BSR_I32 ? (int)PICK(BSR_I8, BSR_I32) : draw_float();
}
static int64_t draw_block(void) {
    if (tidy) return PICK(16, 32, 64, 128);
    return PICK(1, 2, 3, 4, 7, 8, 16, 16, 24, 32, 32, 48, 64, 64, 100, 128, 128, 200, 256, 300);
}
static int64_t draw_blocks(void) {
    return huge && !bt_below(3) ? PICK(65535, 65536, 100000, 1000000) : bt_range(1, bt_below(4) ? 12 : 600);
}
static int64_t draw_columns(void) {
    if (tidy) return PICK(8, 16, 64, 128, 256, 512, 4096);
    if (huge && !bt_below(2)) return PICK(65536, 8388608, 70000001, INT64_C(2147483648), INT64_C(4294967299));
    return PICK(1, 2, 7, 8, 16, 17, 32, 64, 65, 100, 128, 256, 1000, 4096);
}
static t_shape draw_batch(void) {
    t_shape s = NO_BATCH;
    int i;
    if (bt_below(2)) return s;
    s.dims = (int)bt_range(1, 4);
    for (i = 0; i < s.dims; i++) s.n[i] = PICK(1, 1, 2, 3);
    if (huge && !bt_below(3)) s.n[bt_below(s.dims)] = PICK(65535, 65536, 70001);
    return s;
}
/* What an operand that broadcasts to s may have. */
static t_shape narrower(t_shape s) {
    t_shape r = s;
    int i, drop = (int)bt_below(s.dims + 1);
    if (bt_below(2)) drop = 0;
    for (i = 0; i + drop < s.dims; i++) r.n[i] = bt_below(3) ? s.n[i + drop] : 1;
    r.dims = s.dims - drop;
    return r;
}
static bsr_dense dense(int64_t rows, int64_t cols, int dtype, t_shape batch, int output) {
    bsr_dense d;
    int64_t item;
    const int layout = (int)bt_below(tidy ? 7 : 8), pad = bt_below(3) || tidy ? 0 : (int)bt_range(1, 9);
    int i;
    if (layout < 4) d = bsr_dense_strided(NULL, dtype, rows, cols, cols + pad, 1), item = times(rows, cols + pad);
    else if (layout < 7) d = bsr_dense_strided(NULL, dtype, rows, cols, 1, rows + pad), item = times(cols, rows + pad);
    else d = bsr_dense_strided(NULL, dtype, rows, cols, 2 * cols + pad, 2), item = times(rows, 2 * cols + pad);
    if (!output && !bt_below(16) && !tidy) d.row_stride = 0;
    for (i = batch.dims - 1; i >= 0; i--) {
        d.batch[i] = batch.n[i], d.batch_stride[i] = item;
        item = times(item, batch.n[i]);
    }
    if (!output && batch.dims && !bt_below(6)) d.batch_stride[bt_below(batch.dims)] = 0;
    d.batch_dims = batch.dims, d.data = device(item, dtype);
    return d;
}

static bsr_matrix matrix_of(int64_t block_rows, int64_t block_cols, int64_t br, int64_t bc, int dtype, t_shape batch,
                            int output) {
    const int index = (int)PICK(BSR_I32, BSR_I64), ragged = batch.dims && !output && !bt_below(5);
    int64_t most = block_rows * block_cols, nnz, crow = block_rows + 1, values;
    bsr_matrix m;
    int i;
    if (most > 4000000) most = 4000000;
    nnz = bt_below(8) ? bt_range(1, most) : 0;
    if (huge && index == BSR_I64 && !batch.dims && !bt_below(4)) nnz = most;
    values = nnz * br * bc;
    m = bsr_matrix_make(block_rows * br, block_cols * bc, br, bc, nnz, NULL, NULL, index, NULL, dtype);
    if (bt_below(3) == 0)
        m.value_strides[0] = br * bc + (!output ? bt_below(2) * 8 : 0), m.value_strides[1] = 1, m.value_strides[2] = br;
    if (m.value_strides[0]) values = nnz * m.value_strides[0];
    m.batch_dims = batch.dims;
    if (ragged) m.flags |= BSR_MATRIX_RAGGED;
    for (i = batch.dims - 1; i >= 0; i--) {
        m.batch[i] = batch.n[i];
        m.crow_batch_stride[i] = crow, crow = times(crow, batch.n[i]);
        if (ragged) continue;
        m.col_batch_stride[i] = i == batch.dims - 1 ? nnz : m.col_batch_stride[i + 1] * batch.n[i + 1];
        m.values_batch_stride[i] = values, values = times(values, batch.n[i]);
    }
    m.crow_indices = device(crow, index), m.col_indices = device(nnz * t_items(&batch), index);
    m.values = device(values, dtype);
    return m;
}
static void attach(bsr_matrix *m) { /* views that nobody can look into */
    const int64_t rows = m->rows / m->block_rows, cols = m->cols / m->block_cols, lines = rows > cols ? rows : cols;
    int64_t patterns = 1;
    int i;
    for (i = 0; i < m->batch_dims; i++) patterns = times(patterns, m->batch[i]);
    if (!bt_below(3)) m->transposed_index = device(times(patterns, lines + 8 + 2 * m->nnz) + 64, BSR_I64);
    if (!bt_below(4)) m->schedule = device(times(patterns, 2 * lines + 32) + 64, BSR_I32);
    m->transposed_index = (const void *)(((uintptr_t)m->transposed_index + 63) / 64 * 64);
    m->schedule = (const void *)(((uintptr_t)m->schedule + 63) / 64 * 64);
}
static bsr_matrix matrix(int64_t block_rows, int64_t block_cols, int64_t br, int64_t bc, int dtype, t_shape batch) {
    bsr_matrix m = matrix_of(block_rows, block_cols, br, bc, dtype, batch, 0);
    attach(&m);
    return m;
}
/* Another matrix with the pattern of m. */
static bsr_matrix same_pattern(const bsr_matrix *m, int dtype) {
    bsr_matrix r = *m;
    int64_t values = m->nnz * m->block_rows * m->block_cols;
    int i;
    r.dtype = dtype, r.value_strides[0] = r.value_strides[1] = r.value_strides[2] = 0;
    for (i = m->batch_dims - 1; i >= 0; i--)
        if (!(m->flags & BSR_MATRIX_RAGGED)) r.values_batch_stride[i] = values, values *= m->batch[i];
    r.values = device(values, dtype);
    return r;
}

/* ---------------------------------------------------------------------------------------------- */
/* one random call of each operation; all randomness from bt_random(), so that a seed repeats it  */
/* ---------------------------------------------------------------------------------------------- */

static bsr_status call_dense_addmm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = draw_result(dtype), trans = bt_below(3) == 0;
    const int integer = result == BSR_I8 || result == BSR_I32;
    const int64_t br = draw_block(), bc = draw_block(), rb = draw_blocks(), cb = draw_blocks(), n = draw_columns();
    const t_shape batch = draw_batch();
    const bsr_matrix a = matrix(rb, cb, br, bc, dtype, narrower(batch));
    const int64_t m = trans ? a.cols : a.rows, k = trans ? a.rows : a.cols;
    t_shape whole = batch;
    const bsr_dense b = dense(k, n, dtype, whole, 0), out = dense(m, n, result, whole, 1);
    const bsr_dense input = bt_below(2) ? dense(m, n, draw_beside(result), narrower(whole), 0) : out;
    const bsr_dense left = dense(m, 1, draw_beside(result), narrower(whole), 0);
    const bsr_dense right = dense(1, n, draw_beside(result), narrower(whole), 0);
    const bsr_dense bias = dense(bt_below(2) ? m : 1, bt_below(2) ? n : 1, draw_beside(result), narrower(whole), 0);
    bsr_epilogue e = BSR_ZERO;
    if (bt_below(2)) e.left_alpha = &left;
    if (bt_below(2)) e.right_alpha = &right;
    if (bt_below(2)) e.bias = &bias;
    if (!bt_below(4)) e.alpha_ptr = (const double *)device(1, BSR_F64);
    if (!bt_below(4)) e.beta_ptr = (const double *)device(1, BSR_F64);
    if (!integer) e.activation = (int32_t)bt_below(5);
    if (!bt_below(8)) return bsr_dense_mm(ctx, trans ? BSR_TRANS_A : 0, &a, &b, &out, ex);
    return bsr_dense_addmm(ctx, (double)bt_below(3), &input, (double)bt_below(3), trans ? BSR_TRANS_A : 0, &a, &b,
                           bt_below(3) ? &e : NULL, &out, ex);
}

static bsr_status call_sum_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = draw_result(dtype), alike = bt_below(2) == 0;
    const int64_t br = draw_block(), bc = draw_block(), rb = draw_blocks(), n = draw_columns();
    const t_shape batch = draw_batch();
    const int64_t cb = draw_blocks(), count = 1 + (int64_t)bt_below(4);
    bsr_term terms[4] = {BSR_ZERO};
    bsr_matrix a[4];
    bsr_dense b[4], out, input, bias;
    bsr_epilogue e = BSR_ZERO;
    int64_t t;
    for (t = 0; t < count; t++) {
        const int64_t k = alike || t == 0 ? cb : draw_blocks();
        a[t] = matrix(rb, k, br, alike ? bc : draw_block(), dtype, alike ? NO_BATCH : narrower(batch));
        b[t] = dense(a[t].cols, n, dtype, t ? narrower(batch) : batch, 0);
        terms[t].a = &a[t], terms[t].b = &b[t], terms[t].alpha = alike ? 1 : (double)bt_below(3);
    }
    out = dense(a[0].rows, n, result, batch, 1), input = dense(a[0].rows, n, draw_beside(result), narrower(batch), 0);
    bias = dense(a[0].rows, 1, draw_beside(result), narrower(batch), 0);
    if (bt_below(2)) e.bias = &bias;
    if (!bt_below(4)) e.alpha_ptr = (const double *)device(1, BSR_F64);
    return bsr_sum_mm(ctx, (double)bt_below(3), &input, terms, count, bt_below(3) ? &e : NULL, &out, ex);
}

static bsr_status call_dense_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), trans = bt_below(3) == 0;
    const int64_t br = draw_block(), bc = draw_block(), rb = draw_blocks(), cb = draw_blocks(), n = draw_columns();
    const t_shape batch = draw_batch();
    const bsr_matrix a = matrix(rb, cb, br, bc, dtype, narrower(batch));
    const bsr_dense b = dense(trans ? a.rows : a.cols, n, dtype, batch, 0);
    const bsr_dense out = dense(trans ? a.cols : a.rows, n, draw_result(dtype), batch, 1);
    return bsr_dense_mm(ctx, trans ? BSR_TRANS_A : 0, &a, &b, &out, ex);
}

static bsr_scatter_indices lists(int format, int64_t split, int64_t outputs, int64_t starts, int64_t products) {
    bsr_scatter_indices x = BSR_ZERO;
    x.format = (int32_t)format, x.split_n = split, x.r_count = outputs, x.c_count = starts, x.p_count = x.q_count = products;
    x.c_indices = (int64_t *)device(x.c_count, BSR_I64), x.r_offsets = (int64_t *)device(x.r_count, BSR_I64);
    x.p_indices = (int64_t *)device(products, BSR_I64), x.q_indices = (int64_t *)device(products, BSR_I64);
    return x;
}
/* A product by way of lists of any lengths. */
static bsr_status call_dense_scatter_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), format = (int)bt_range(BSR_SCATTER_MM, BSR_SCATTER_STRIDED_COMPRESSED);
    const int64_t split = PICK(1, 2, 4), n = split * PICK(1, 8, 16, 64, 65, 128), rb = draw_blocks(), cb = draw_blocks();
    const t_shape batch = format == BSR_SCATTER_MM ? NO_BATCH : draw_batch();
    const bsr_matrix a = matrix_of(rb, cb, draw_block(), draw_block(), dtype, NO_BATCH, 0);
    const bsr_dense b = dense(a.cols, n, dtype, batch, 0), out = dense(a.rows, n, draw_result(dtype), batch, 1);
    const int64_t outputs = rb * split, starts = format == BSR_SCATTER_STRIDED_COMPRESSED ? rb + 1 : outputs + 1;
    const bsr_scatter_indices x = lists(format, split, outputs, starts, a.nnz * split);
    return bsr_dense_scatter_mm(ctx, &a, &b, &x, &out, ex);
}
static bsr_status call_scatter_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = draw_result(dtype);
    const int64_t ms = draw_block(), ks = draw_block(), p = bt_range(1, 50), split = PICK(1, 2, 4),
                  ns = PICK(1, 8, 16, 64, 65, 128);
    const int64_t rb = draw_blocks(), kb = draw_blocks(), products = bt_range(0, 1000);
    t_shape pb = NO_BATCH, batch = draw_batch();
    const int format = (int)bt_range(BSR_SCATTER_MM, BSR_SCATTER_STRIDED_COMPRESSED);
    bsr_scatter_indices x;
    bsr_dense blocks, others, acc;
    int64_t outputs, starts;
    pb.dims = 1, pb.n[0] = p;
    blocks = dense(ms, ks, dtype, pb, 0);
    outputs = bt_range(1, 100), starts = outputs + 1;
    if (format == BSR_SCATTER_MM) {
        if (!batch.dims) batch.dims = 1, batch.n[0] = 5;
        others = dense(ks, ns, dtype, batch, 0), acc = dense(ms, ns, result, batch, 1);
        starts = t_items(&batch) + 1;
    } else {
        others = dense(kb * ks, split * ns, dtype, batch, 0), acc = dense(rb * ms, split * ns, result, batch, 1);
        if (format == BSR_SCATTER_STRIDED_COMPRESSED) starts = rb + 1;
    }
    x = lists(format, split, outputs, starts, products);
    return bsr_scatter_mm(ctx, &blocks, &others, &x, &acc, ex);
}

/* The three modes of matmul. */
static bsr_status call_matmul(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = draw_result(dtype), mode = (int)bt_below(3);
    const uint32_t trans = (uint32_t)bt_below(8);
    const int64_t b = draw_block(), rb = draw_blocks(), cb = draw_blocks(), n = mode ? draw_columns() : PICK(1, 16, 125, 256);
    const t_shape batch = draw_batch();
    const bsr_matrix s = mode ? matrix(rb, cb, b, b, dtype, batch) : matrix_of(rb, cb, b, b, result, batch, 1);
    bsr_dense x, y;
    /* op(C) = op(A) op(B): shapes of the operations' results, then turned where a flag says so */
#define TURNED(flag, rows, cols, dt, output) \
    ((trans & (flag)) ? dense(cols, rows, dt, batch, output) : dense(rows, cols, dt, batch, output))
    if (mode == 0) {
        const int64_t m = (trans & BSR_TRANS_C) ? s.cols : s.rows, w = (trans & BSR_TRANS_C) ? s.rows : s.cols;
        x = TURNED(BSR_TRANS_A, m, n, dtype, 0), y = TURNED(BSR_TRANS_B, n, w, dtype, 0);
        return bsr_matmul(ctx, trans, bsr_operand_dense(&x), bsr_operand_dense(&y), bsr_operand_sparse(&s), ex);
    }
    if (mode == 1) {
        const int64_t m = (trans & BSR_TRANS_A) ? s.cols : s.rows, k = (trans & BSR_TRANS_A) ? s.rows : s.cols;
        x = TURNED(BSR_TRANS_B, k, n, dtype, 0), y = TURNED(BSR_TRANS_C, m, n, result, 1);
        return bsr_matmul(ctx, trans, bsr_operand_sparse(&s), bsr_operand_dense(&x), bsr_operand_dense(&y), ex);
    } else {
        const int64_t k = (trans & BSR_TRANS_B) ? s.cols : s.rows, w = (trans & BSR_TRANS_B) ? s.rows : s.cols;
        x = TURNED(BSR_TRANS_A, n, k, dtype, 0), y = TURNED(BSR_TRANS_C, n, w, result, 1);
        return bsr_matmul(ctx, trans, bsr_operand_dense(&x), bsr_operand_sparse(&s), bsr_operand_dense(&y), ex);
    }
}
/* DSD's: da at the stored blocks, db dense; either may be absent. */
static bsr_status call_matmul_backward(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float();
    const int64_t b = draw_block(), rb = draw_blocks(), cb = draw_blocks(), n = PICK(1, 16, 100, 256);
    const t_shape batch = draw_batch();
    const bsr_matrix a = matrix_of(rb, cb, b, b, dtype, batch, 1), da = same_pattern(&a, dtype);
    const bsr_dense x = dense(a.cols, n, dtype, batch, 0), dc = dense(a.rows, n, dtype, batch, 0);
    const bsr_dense db = dense(a.cols, n, dtype, batch, 1);
    const int which = (int)bt_below(3);
    const bsr_operand none = {NULL, NULL};
    return bsr_matmul_backward(ctx, 0, bsr_operand_sparse(&a), bsr_operand_dense(&x), bsr_operand_dense(&dc),
                               which == 1 ? none : bsr_operand_sparse(&da), which == 2 ? none : bsr_operand_dense(&db), ex);
}

static bsr_status call_sampled_addmm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = draw_result(dtype);
    const int64_t br = draw_block(), bc = draw_block(), rb = draw_blocks(), cb = draw_blocks(),
                  k = PICK(0, 1, 7, 64, 125, 256, 4096);
    const t_shape batch = draw_batch();
    const bsr_matrix out = matrix_of(rb, cb, br, bc, result, batch, 1);
    const bsr_matrix input = bt_below(2) ? same_pattern(&out, draw_beside(result)) : out;
    const bsr_dense x = dense(out.rows, k, dtype, narrower(batch), 0), y = dense(k, out.cols, dtype, narrower(batch), 0);
    const double beta = (double)bt_below(3);
    return bsr_sampled_addmm(ctx, beta, beta != 0 || bt_below(2) ? &input : NULL, (double)bt_below(3), &x, &y, &out, ex);
}

static bsr_status call_softmax(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float();
    const int64_t rb = draw_blocks(), cb = draw_blocks();
    const t_shape batch = draw_batch();
    const bsr_matrix x = matrix_of(rb, cb, draw_block(), draw_block(), dtype, batch, 1);
    const bsr_matrix y = bt_below(2) ? x : same_pattern(&x, dtype == BSR_F64 || bt_below(2) ? dtype : BSR_F32);
    const bsr_dense bias = dense(x.rows, x.cols, draw_float(), narrower(batch), 0);
    const bsr_dense pad = dense(1, x.cols, draw_float(), narrower(batch), 0),
                    mask = dense(x.rows, x.cols, BSR_BOOL, NO_BATCH, 0);
    bsr_softmax_options o = BSR_ZERO;
    if (bt_below(2)) o.relative_bias = &bias;
    if (bt_below(2)) o.key_padding_mask = &pad, o.key_padding_mode = (int32_t)bt_below(2);
    if (bt_below(2)) o.attn_mask = &mask, o.attn_mode = BSR_MASK_MUL;
    return bsr_softmax(ctx, 0.5, &x, bt_below(2) ? &o : NULL, &y, ex);
}
static bsr_status call_softmax_backward(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float();
    const bsr_matrix y = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), dtype, draw_batch(), 1);
    const bsr_matrix dy = same_pattern(&y, dtype), dx = bt_below(2) ? dy : same_pattern(&y, dtype);
    return bsr_softmax_backward(ctx, 0.5, &y, &dy, &dx, ex);
}

static bsr_status call_attention(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float(), result = dtype == BSR_F64 || bt_below(2) ? dtype : BSR_F32;
    const int64_t br = draw_block(), bc = draw_block(), rb = bt_range(1, 30), cb = bt_range(1, 30),
                  d = PICK(1, 16, 40, 64, 80, 128, 256);
    const int64_t dv = bt_below(2) ? d : PICK(1, 8, 64, 96, 128, 200), group = PICK(1, 1, 2, 4), heads = group * bt_range(1, 3);
    t_shape whole = NO_BATCH, keys, mask_batch;
    bsr_matrix mask;
    bsr_dense q, k, v, out, lse, bias, pad;
    bsr_attention_options o = BSR_ZERO;
    whole.dims = 2, whole.n[0] = huge ? PICK(1, 65536) : bt_range(1, 3), whole.n[1] = heads;
    keys = whole, keys.n[1] = heads / group, mask_batch = bt_below(2) ? narrower(whole) : NO_BATCH;
    mask = matrix_of(rb, cb, br, bc, dtype, mask_batch, 0);
    q = dense(mask.rows - bt_below(br), d, dtype, whole, 0), k = dense(mask.cols - bt_below(bc), d, dtype, keys, 0);
    v = dense(k.rows, dv, dtype, keys, 0), out = dense(q.rows, dv, result, whole, 1), lse = dense(q.rows, 1, BSR_F32, whole, 1);
    bias = dense(q.rows, k.rows, draw_float(), narrower(whole), 0), pad = dense(1, k.rows, draw_float(), narrower(whole), 0);
    if (bt_below(2)) o.relative_bias = &bias;
    if (bt_below(2)) o.key_padding_mask = &pad, o.key_padding_mode = (int32_t)bt_below(2);
    if (bt_below(2)) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = k.rows - q.rows;
    if (bt_below(2)) o.flags |= bt_below(2) ? BSR_ATTENTION_MASK_BOOLEAN : BSR_ATTENTION_MASK_ADDITIVE;
    if (!bt_below(3)) o.dropout_p = 0.1, o.dropout_seed = 7;
    return bsr_attention(ctx, 0, &q, &k, &v, &mask, bt_below(3) ? &o : NULL, &out, bt_below(2) ? &lse : NULL, ex);
}

static bsr_status call_attention_backward(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float(), result = dtype == BSR_F64 || bt_below(2) ? dtype : BSR_F32;
    const int64_t br = draw_block(), bc = draw_block(), rb = bt_range(1, 20), cb = bt_range(1, 20),
                  d = PICK(1, 16, 64, 80, 128, 256);
    const int64_t dv = bt_below(2) ? d : PICK(8, 64, 128, 200), group = PICK(1, 1, 2, 4), heads = group * bt_range(1, 3);
    t_shape whole = NO_BATCH, keys;
    bsr_matrix mask;
    bsr_dense q, k, v, out, lse, d_out, dq, dk, dv_;
    bsr_attention_options o = BSR_ZERO;
    whole.dims = 2, whole.n[0] = bt_range(1, 3), whole.n[1] = heads, keys = whole, keys.n[1] = heads / group;
    mask = matrix_of(rb, cb, br, bc, dtype, bt_below(2) ? narrower(whole) : NO_BATCH, 0);
    q = dense(mask.rows - bt_below(br), d, dtype, whole, 0), k = dense(mask.cols - bt_below(bc), d, dtype, keys, 0);
    v = dense(k.rows, dv, dtype, keys, 0), out = dense(q.rows, dv, result, whole, 0), lse = dense(q.rows, 1, BSR_F32, whole, 0);
    d_out = dense(q.rows, dv, result, whole, 0), dq = dense(q.rows, d, result, whole, 1), dk = dense(k.rows, d, result, keys, 1);
    dv_ = dense(k.rows, dv, result, keys, 1);
    if (bt_below(2)) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = k.rows - q.rows;
    if (!bt_below(3)) o.dropout_p = 0.1, o.dropout_seed = 7;
    return bsr_attention_backward(ctx, 0, &q, &k, &v, &mask, bt_below(3) ? &o : NULL, &out, &lse, &d_out,
                                  bt_below(4) ? &dq : NULL, bt_below(4) ? &dk : NULL, bt_below(4) ? &dv_ : NULL, ex);
}

static bsr_status call_attention_merge(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float(), result = bt_below(2) || dtype == BSR_F64 ? dtype : (int)BSR_F32;
    const int norm = (int)PICK(BSR_F32, BSR_F64);
    const int64_t rows = bt_range(1, 300), dv = bt_range(1, 200), count = bt_range(1, 5);
    const t_shape batch = draw_batch();
    bsr_dense x[5], y[5], out = dense(rows, dv, result, batch, 1), lse = dense(rows, 1, norm, batch, 1);
    int64_t i;
    for (i = 0; i < count; i++)
        x[i] = dense(rows, dv, dtype, narrower(batch), 0), y[i] = dense(rows, 1, norm, narrower(batch), 0);
    return bsr_attention_merge(ctx, count, x, y, &out, bt_below(3) ? &lse : NULL, ex);
}

static bsr_status call_map(const bsr_context *ctx, const bsr_exec *ex) {
    static const int all[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64, BSR_I8, BSR_I32, BSR_I64, BSR_BOOL};
    const t_shape batch = draw_batch();
    const bsr_matrix x = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), all[bt_below(8)], batch, 1);
    const bsr_matrix m = same_pattern(&x, all[bt_below(8)]), out = bt_below(2) ? x : same_pattern(&x, all[bt_below(8)]);
    const bsr_dense d = dense(bt_below(2) ? 1 : x.rows, bt_below(2) ? 1 : x.cols, all[bt_below(8)], narrower(batch), 0);
    bsr_map_options o = BSR_ZERO;
    bsr_operand y = {NULL, NULL};
    o.function = (int32_t)bt_below(5), o.combine = (int32_t)bt_range(1, 7), o.flags = bt_below(2) ? BSR_MAP_AFTER : 0;
    if (!bt_below(3)) o.dropout_p = 0.25, o.dropout_seed = 5;
    if (bt_below(3)) y = bt_below(2) ? bsr_operand_dense(&d) : bsr_operand_sparse(&m);
    return bsr_map(ctx, bt_below(3) || y.dense || y.sparse ? &o : NULL, (double)bt_below(3), &x, (double)bt_below(3), y, &out,
                   ex);
}
static bsr_status call_reduce(const bsr_context *ctx, const bsr_exec *ex) {
    static const int to[] = {BSR_F32, BSR_F64, BSR_BF16, BSR_I32, BSR_I64};
    const int over = (int)bt_range(BSR_OVER_ROWS, BSR_OVER_ALL);
    t_shape batch = draw_batch();
    const bsr_matrix x = matrix(draw_blocks(), draw_blocks(), draw_block(), draw_block(), draw_operand_dtype(), batch);
    bsr_dense out;
    int i;
    for (i = 0; i < batch.dims && over == BSR_OVER_BLOCKS; i++)
        if ((x.flags & BSR_MATRIX_RAGGED) && x.crow_batch_stride[i] && batch.n[i]) batch.n[i] = 1;
    out = dense(over == BSR_OVER_ROWS     ? x.rows
                : over == BSR_OVER_BLOCKS ? x.nnz
                                          : 1,
                over == BSR_OVER_COLS ? x.cols : 1, to[bt_below(5)], batch, 1);
    return bsr_reduce(ctx, (int)bt_range(BSR_REDUCE_SUM, BSR_REDUCE_MEAN_ALL), over, &x, &out, ex);
}

/* Either way, of a dense operand or a matrix. */
static bsr_status call_quantiser(const bsr_context *ctx, int back, const bsr_exec *ex) {
    static const int floats[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_F64}, bytes[] = {BSR_E4M3, BSR_E5M2, BSR_I8};
    const t_shape batch = draw_batch();
    const int type = floats[bt_below(4)], byte = bytes[bt_below(3)], given = back || bt_below(3) == 0, with = (int)bt_below(2);
    const bsr_matrix mx = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), back ? byte : type, batch, 1);
    const bsr_matrix mo = same_pattern(&mx, back ? type : byte);
    const bsr_dense dx = dense(mx.rows, mx.cols, mx.dtype, batch, 0), out = dense(mx.rows, mx.cols, mo.dtype, batch, 1);
    const int sparse = (int)bt_below(2), blocks = sparse && bt_below(2);
    const int64_t rows = blocks ? mx.block_rows : mx.rows, cols = blocks ? mx.block_cols : mx.cols;
    t_shape of = batch;
    bsr_scales s = BSR_ZERO;
    bsr_dense scale, amax;
    if (blocks && of.dims == 4) of.dims = 0;
    if (!bt_below(3)) of.dims = 0;
    if (blocks) of.n[of.dims++] = mx.nnz, s.flags = BSR_SCALES_BLOCKS;
    s.group_rows = bt_below(2) ? 0 : bt_range(1, 128), s.group_cols = bt_below(2) ? 0 : 8 * bt_range(1, 16);
    scale = dense(s.group_rows ? (rows + s.group_rows - 1) / s.group_rows : 1,
                  s.group_cols ? (cols + s.group_cols - 1) / s.group_cols : 1, BSR_F32, of, !given);
    amax = dense(scale.rows, scale.cols, BSR_F32, of, 1), s.scale = &scale;
    if (back)
        return sparse ? bsr_dequantise(ctx, bsr_operand_sparse(&mx), &s, bsr_operand_sparse(&mo), ex)
                      : bsr_dequantise(ctx, bsr_operand_dense(&dx), &s, bsr_operand_dense(&out), ex);
    return bsr_quantise(ctx, given ? BSR_QUANTISE_GIVEN : 0, sparse ? bsr_operand_sparse(&mx) : bsr_operand_dense(&dx),
                        sparse ? bsr_operand_sparse(&mo) : bsr_operand_dense(&out), &s, with ? &amax : NULL, ex);
}
static bsr_status call_quantise(const bsr_context *ctx, const bsr_exec *ex) { return call_quantiser(ctx, 0, ex); }
static bsr_status call_dequantise(const bsr_context *ctx, const bsr_exec *ex) { return call_quantiser(ctx, 1, ex); }

/* Images of `channels` with these sizes, channels last or first, packed or in wider lines. */
static bsr_dense images(int dims, const int64_t *size, int64_t n, int64_t channels, int dtype, int last, int written) {
    t_shape batch = NO_BATCH;
    bsr_dense d;
    int a;
    batch.dims = dims, batch.n[0] = n;
    for (a = 0; a + 1 < dims; a++) batch.n[1 + a] = size[a];
    if (!last) return dense(channels, size[dims - 1], dtype, batch, written);
    d = bsr_dense_image(NULL, dtype, BSR_CHANNELS_LAST, dims, size, n, channels);
    d.data = device((size_t)(n * channels + 1) * (size_t)(size[0] + 1) * (size_t)(dims > 1 ? size[1] + 1 : 1) *
                        (size_t)(dims > 2 ? size[2] + 1 : 1), dtype);
    return d;
}
typedef struct conv_case {
    bsr_conv_shape shape;
    bsr_matrix w;
    bsr_dense x, y;
    int64_t in[3], out[3], n, channels, filters;
    int dtype, result, last;
} conv_case;
static conv_case draw_conv(int written) {
    static const int64_t sides[] = {16, 32, 64, 128, 48, 8, 3};
    const int64_t br = sides[bt_below(bt_below(2) ? 4 : 7)], bc = bt_below(3) ? br : sides[bt_below(7)];
    const int64_t g = bt_below(3) ? 1 : bt_range(2, 3), taps_in = bc * bt_range(1, 4), filters = br * bt_range(1, 4);
    conv_case c;
    int64_t cols = taps_in;
    int a;
    memset(&c, 0, sizeof c);
    c.shape.dims = (int32_t)bt_range(1, 3), c.shape.groups = g, c.n = bt_range(1, 4), c.dtype = draw_operand_dtype();
    c.result = draw_result(c.dtype), c.last = bt_below(4) != 0, c.channels = taps_in * g;
    c.filters = filters * g - (bt_below(8) ? 0 : g);
    for (a = 0; a < c.shape.dims; a++) {
        c.in[a] = bt_range(bt_below(8) ? 4 : 0, 40), c.shape.kernel[a] = bt_range(1, bt_below(6) ? 3 : 30);
        c.shape.stride[a] = bt_below(3) ? 1 : bt_range(1, 10), c.shape.dilation[a] = bt_below(3) ? 1 : bt_range(1, 20);
        c.shape.pad_before[a] = bt_range(0, bt_below(5) ? 3 : 200), c.shape.pad_after[a] = bt_range(0, bt_below(5) ? 3 : 200);
        cols *= c.shape.kernel[a];
    }
    for (a = 0; a < c.shape.dims; a++) c.out[a] = bsr_conv_size(&c.shape, a, c.in[a]);
    c.w = matrix_of((c.filters + br - 1) / br, (cols + bc - 1) / bc, br, bc, c.dtype, NO_BATCH, written);
    c.x = images(c.shape.dims, c.in, c.n, c.channels, c.dtype, c.last, 0);
    c.y = images(c.shape.dims, c.out, c.n, c.filters, c.dtype, c.last, 0);
    return c;
}
static bsr_status call_conv(const bsr_context *ctx, const bsr_exec *ex) {
    const conv_case c = draw_conv(0);
    const int trans = bt_below(2) != 0, dims = c.shape.dims;
    const int64_t rows = trans ? c.channels : c.filters, *size = trans ? c.in : c.out;
    const bsr_dense out = images(dims, size, c.n, rows, c.result, c.last, 1);
    const bsr_dense input = images(dims, size, c.n, rows, draw_beside(c.result), bt_below(2) ? c.last : !c.last, 0);
    const bsr_dense bias = dense(rows, 1, draw_beside(c.result), NO_BATCH, 0);
    bsr_epilogue e = BSR_ZERO;
    if (bt_below(2)) e.bias = &bias;
    if (!bt_below(4)) e.left_alpha = &bias;
    if (!bt_below(4)) e.alpha_ptr = (const double *)device(1, BSR_F64);
    return bsr_conv(ctx, (double)bt_below(3), &input, (double)bt_below(3), trans ? BSR_TRANS_A : 0, &c.shape, &c.w,
                    trans ? &c.y : &c.x, bt_below(3) ? &e : NULL, &out, ex);
}
static bsr_status call_conv_weight_gradient(const bsr_context *ctx, const bsr_exec *ex) {
    conv_case c = draw_conv(1);
    const bsr_matrix input = same_pattern(&c.w, draw_beside(c.result));
    bsr_matrix out = same_pattern(&c.w, c.result);
    return bsr_conv_weight_gradient(ctx, (double)bt_below(3), &input, (double)bt_below(3), &c.shape, &c.y, &c.x, &out, ex);
}

static bsr_status call_chain_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), mid = dtype == BSR_I8 ? PICK(BSR_I8, BSR_F32, BSR_BF16, BSR_F16) : dtype;
    const int result = draw_result(mid), ta = bt_below(3) == 0, tc = bt_below(3) == 0;
    const int64_t br = draw_block(), bc = draw_block(), hb = draw_blocks(), kb = draw_blocks(), n = draw_columns();
    const t_shape batch = draw_batch();
    const bsr_matrix a = ta ? matrix(kb, hb, bc, br, dtype, narrower(batch)) : matrix(hb, kb, br, bc, dtype, narrower(batch));
    const int64_t h = ta ? a.cols : a.rows, rb = draw_blocks(), cr = draw_block();
    const bsr_matrix c = tc ? matrix(hb, rb, br, cr, mid, narrower(batch)) : matrix(rb, hb, cr, br, mid, narrower(batch));
    const bsr_dense b = dense(ta ? a.rows : a.cols, n, dtype, batch, 0), middle = dense(h, n, mid, batch, 1);
    const bsr_dense out = dense(tc ? c.cols : c.rows, n, result, batch, 1), bias = dense(h, 1, draw_beside(mid), NO_BATCH, 0);
    bsr_epilogue e = BSR_ZERO;
    if (bt_below(2)) e.bias = &bias;
    return bsr_chain_mm(ctx, (ta ? BSR_TRANS_A : 0u) | (tc ? BSR_TRANS_C : 0u), &a, &b, bt_below(3) ? &e : NULL,
                        bt_below(2) ? &middle : NULL, 0, NULL, (double)bt_below(3), &c, NULL, &out, ex);
}
static bsr_status call_sampled_chain_mm(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float(), trans = bt_below(3) == 0, maps = bsr_supports(ctx, BSR_OP_MAP, BSR_F32, BSR_F32, 16, 16);
    const int64_t br = draw_block(), bc = draw_block(), k = PICK(0, 1, 7, 64, 125, 256, 512), n = draw_columns();
    const t_shape batch = draw_batch();
    const bsr_matrix whole = matrix_of(draw_blocks(), draw_blocks(), br, bc, dtype, batch, 1);
    const bsr_matrix kept = same_pattern(&whole, draw_result(dtype));
    const bsr_dense x = dense(whole.rows, k, dtype, narrower(batch), 0), y = dense(k, whole.cols, dtype, narrower(batch), 0);
    const bsr_dense c = dense(trans ? whole.rows : whole.cols, n, dtype, narrower(batch), 0);
    const bsr_dense out = dense(trans ? whole.cols : whole.rows, n, draw_result(dtype), batch, 1);
    bsr_matrix middle = whole;
    bsr_map_options f = BSR_ZERO;
    f.function = (int32_t)bt_below(5);
    if (bt_below(2)) middle.values = NULL;
    return bsr_sampled_chain_mm(ctx, trans ? BSR_TRANS_A : 0u, 1, &x, &y, maps && bt_below(3) ? &f : NULL,
                                maps && bt_below(2) ? &kept : NULL, &middle, 0, NULL, (double)bt_below(3), &c, NULL, &out, ex);
}

/* All or some of the three are written. */
static bsr_status call_sampled_gated(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype(), result = dtype == BSR_I8 ? (int)PICK(BSR_F16, BSR_BF16, BSR_F32) : draw_result(dtype);
    const int64_t few = PICK(16, 32, 64, 128), one = PICK(0, 1), br = one ? few : draw_block(), bc = one ? 128 : draw_block();
    const int64_t rb = draw_blocks(), cb = draw_blocks(), k = PICK(0, 1, 7, 64, 125, 256, 4096);
    const t_shape batch = one ? NO_BATCH : draw_batch();
    const bsr_matrix out = matrix_of(rb, cb, br, bc, result, batch, 1);
    const bsr_matrix gate_out = same_pattern(&out, result), up_out = same_pattern(&out, result);
    const bsr_dense x = dense(out.rows, k, dtype, narrower(batch), 0);
    const bsr_dense gate = dense(k, out.cols, dtype, narrower(batch), 0), up = dense(k, out.cols, dtype, narrower(batch), 0);
    return bsr_sampled_gated(ctx, (int)bt_below(5), &x, &gate, &up, &out, bt_below(2) ? &gate_out : NULL,
                             bt_below(2) ? &up_out : NULL, ex);
}
static bsr_moe_routing routing(int64_t block_rows) {
    bsr_moe_routing r = BSR_ZERO;
    int64_t most;
    r.tokens = bt_below(8) ? PICK(1, 7, 128, 5000) : 0, r.slots = bt_range(1, 9), r.experts = bt_range(1, bt_below(2) ? 9 : 300);
    if (huge) r.tokens = PICK(100000, 2000000);
    r.block_rows = block_rows, most = bsr_moe_rows(r.tokens, r.slots, r.experts, block_rows);
    r.rows = bt_below(3) ? most : bt_below(most / block_rows + 1) * block_rows;
    r.counts = (int32_t *)device(r.experts, BSR_I32), r.offsets = (int32_t *)device(r.experts + 1, BSR_I32);
    r.row_of = (int32_t *)device(r.tokens * r.slots, BSR_I32), r.slot_of = (int32_t *)device(r.rows, BSR_I32);
    r.status = bt_below(2) ? (uint64_t *)device(1, BSR_I64) : NULL;
    return r;
}
static bsr_status call_moe_route(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(bt_range(1, 200));
    const bsr_dense experts = dense(r.tokens, r.slots, (int)PICK(BSR_I32, BSR_I64), NO_BATCH, 0);
    return bsr_moe_route(ctx, &experts, &r, ex);
}
static int64_t draw_width(void) { return PICK(0, 1, 7, 64, 520, 2048, 5000); }
static bsr_status call_moe_gather(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(bt_range(1, 200));
    const int64_t n = draw_width();
    const bsr_dense x = dense(r.tokens, n, draw_float(), NO_BATCH, 0), out = dense(r.rows, n, draw_float(), NO_BATCH, 1);
    const bsr_dense weights = dense(r.tokens, r.slots, draw_float(), NO_BATCH, 0);
    return bsr_moe_gather(ctx, &r, &x, bt_below(2) ? &weights : NULL, &out, ex);
}
static bsr_status call_moe_scatter(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(bt_range(1, 200));
    const int64_t n = draw_width();
    const bsr_dense x = dense(r.rows, n, draw_float(), NO_BATCH, 0), out = dense(r.tokens, n, draw_float(), NO_BATCH, 1);
    const bsr_dense weights = dense(r.tokens, r.slots, draw_float(), NO_BATCH, 0);
    const bsr_dense input = dense(bt_below(2) && r.tokens ? 1 : r.tokens, n, draw_float(), NO_BATCH, 0);
    return bsr_moe_scatter(ctx, (double)bt_below(2), &input, &r, &x, bt_below(2) ? &weights : NULL, &out, ex);
}
static bsr_status call_moe_weight_gradient(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(bt_range(1, 200));
    const int64_t n = draw_width();
    const bsr_dense x = dense(r.rows, n, draw_float(), NO_BATCH, 0), dy = dense(r.tokens, n, draw_float(), NO_BATCH, 0);
    const bsr_dense out = dense(r.tokens, r.slots, draw_float(), NO_BATCH, 1);
    return bsr_moe_weight_gradient(ctx, &r, &x, &dy, &out, ex);
}
static bsr_matrix topology_of(const bsr_moe_routing *r) {
    const int64_t each = bt_below(7), bc = draw_block(), nnz = r->rows / r->block_rows * each;
    const int index = (int)PICK(BSR_I32, BSR_I64);
    return bsr_matrix_make(r->rows, r->experts * each * bc, r->block_rows, bc, nnz,
                           device(r->rows / r->block_rows + 1, index), device(nnz, index), index, NULL, BSR_BF16);
}
static bsr_status call_moe_topology(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(PICK(16, 32, 64, 128));
    bsr_matrix m = topology_of(&r);
    return bsr_moe_topology(ctx, &r, &m, ex);
}
static bsr_status call_moe_transposed_index(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_moe_routing r = routing(PICK(16, 32, 64, 128));
    const bsr_matrix m = topology_of(&r);
    uint64_t bytes = 0;
    char *buffer;
    bsr_exec size = *ex;
    bsr_status status;
    size.query = NULL, size.plan = NULL, size.timing = NULL;
    status = bsr_transposed_index_size(ctx, &m, &bytes, &size);
    if (status) return status;
    buffer = (char *)device((int64_t)bytes + 64, BSR_I8);
    buffer += (64 - (uintptr_t)buffer % 64) % 64;
    return bsr_moe_transposed_index(ctx, &r, &m, buffer, bytes, ex);
}

static bsr_status call_validate(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_matrix m = matrix(draw_blocks(), draw_blocks(), draw_block(), draw_block(), draw_operand_dtype(), draw_batch());
    return bsr_validate(ctx, &m, ex);
}
static bsr_status call_to_dense(const bsr_context *ctx, const bsr_exec *ex) {
    const t_shape batch = draw_batch();
    const int dtype = draw_operand_dtype();
    bsr_matrix m;
    bsr_dense out;
    huge = huge && !bt_below(4);
    m = matrix_of(bt_range(1, 100), draw_blocks(), draw_block(), draw_block(), dtype, batch, 0);
    out = dense(m.rows - bt_below(m.block_rows), m.cols - bt_below(m.block_cols), dtype, batch, 1);
    return bsr_to_dense(ctx, &m, &out, ex);
}
static bsr_status call_from_dense(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_operand_dtype();
    const t_shape batch = draw_batch();
    bsr_matrix m = matrix_of(bt_range(1, 100), bt_range(1, 100), draw_block(), draw_block(), dtype, batch, 1);
    const bsr_dense x = dense(m.rows, m.cols, dtype, batch, 0);
    if (!bt_below(4)) m.col_indices = m.values = NULL;
    else if (!bt_below(4)) m.values = NULL;
    return bsr_from_dense(ctx, &x, &m, ex);
}
static bsr_status call_from_csr(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float(), coo = ex->reserved2, index = (int)PICK(BSR_I32, BSR_I64);
    bsr_matrix m = matrix_of(bt_range(1, 100), bt_range(1, 100), draw_block(), draw_block(), dtype, NO_BATCH, 1);
    const int64_t nnz = bt_below(100000);
    void *row = device(coo ? nnz : m.rows + 1, index), *col = device(nnz, index), *values = device(nnz, dtype);
    bsr_exec plain = *ex;
    plain.reserved2 = 0;
    if (!bt_below(4)) values = NULL;
    if (!bt_below(4)) m.values = NULL;
    if (coo) return bsr_from_coo(ctx, m.rows, m.cols, nnz, row, col, index, values, dtype, &m, &plain);
    return bsr_from_csr(ctx, m.rows, m.cols, nnz, row, col, index, values, dtype, &m, &plain);
}
static bsr_status call_from_coo(const bsr_context *ctx, const bsr_exec *ex) {
    bsr_exec coo = *ex;
    coo.reserved2 = 1; /* for the function above only */
    return call_from_csr(ctx, &coo);
}
static bsr_status call_to_entries(const bsr_context *ctx, const bsr_exec *ex, int coo) {
    const int from = draw_float(), dtype = draw_float(), index = (int)PICK(BSR_I32, BSR_I64);
    const bsr_matrix m = matrix_of(bt_range(1, 100), bt_range(1, 100), draw_block(), draw_block(), from, NO_BATCH, 0);
    const int64_t rows = m.rows - bt_below(m.block_rows), cols = m.cols - bt_below(m.block_cols);
    int64_t nnz = bt_below(100000);
    void *crow = device(rows + 1, index), *row = device(nnz, index), *col = device(nnz, index), *values = device(nnz, dtype);
    if (!bt_below(4)) values = NULL;
    if (coo) return bsr_to_coo(ctx, &m, rows, cols, &nnz, crow, bt_below(4) ? row : NULL, col, index, values, dtype, ex);
    return bsr_to_csr(ctx, &m, rows, cols, &nnz, crow, col, index, values, dtype, ex);
}
static bsr_status call_to_csr(const bsr_context *ctx, const bsr_exec *ex) { return call_to_entries(ctx, ex, 0); }
static bsr_status call_to_coo(const bsr_context *ctx, const bsr_exec *ex) { return call_to_entries(ctx, ex, 1); }
static bsr_status call_reblock(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_matrix s = matrix_of(bt_range(1, 100), bt_range(1, 100), draw_block(), draw_block(), draw_float(), NO_BATCH, 0);
    const int64_t br = draw_block(), bc = draw_block();
    bsr_matrix m = matrix_of((s.rows + br - 1) / br, (s.cols + bc - 1) / bc, br, bc, draw_float(), NO_BATCH, 1);
    return bsr_reblock(ctx, &s, &m, ex);
}
static bsr_status call_from_block_mask(const bsr_context *ctx, const bsr_exec *ex) {
    const t_shape batch = draw_batch();
    bsr_matrix m = matrix_of(bt_range(1, 200), bt_range(1, 200), draw_block(), draw_block(), BSR_F32, batch, 1);
    const uint8_t *mask = (const uint8_t *)device(m.rows / m.block_rows * (m.cols / m.block_cols) * t_items(&batch), BSR_BOOL);
    return bsr_from_block_mask(ctx, mask, &m, ex);
}
/* Room for every block. */
static void make_full(bsr_matrix *m) {
    int64_t values, col;
    int i;
    m->nnz = m->rows / m->block_rows * (m->cols / m->block_cols);
    values = m->nnz * m->block_rows * m->block_cols, col = m->nnz;
    memset(m->value_strides, 0, sizeof m->value_strides);
    for (i = m->batch_dims - 1; i >= 0; i--) {
        m->col_batch_stride[i] = col, m->values_batch_stride[i] = values;
        col *= m->batch[i], values *= m->batch[i];
    }
    m->col_indices = device(col, m->index_dtype), m->values = device(values, m->dtype);
}
static bsr_status call_random_pattern(const bsr_context *ctx, const bsr_exec *ex) {
    bsr_matrix m = matrix_of(bt_range(1, 200), bt_range(1, 200), draw_block(), draw_block(), BSR_F32, draw_batch(), 1);
    make_full(&m);
    return bsr_random_pattern(ctx, 5, (double)bt_below(11) / 10, &m, ex);
}
static bsr_status call_prune(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float();
    bsr_matrix m = matrix_of(bt_range(1, 60), bt_range(1, 60), draw_block(), draw_block(), dtype, draw_batch(), 1);
    const bsr_dense x = dense(m.rows, m.cols, dtype, NO_BATCH, 0);
    make_full(&m);
    return bsr_prune(ctx, bsr_operand_dense(&x), (double)bt_below(11) / 10, (int)bt_below(3), &m, ex);
}
static bsr_status call_conv_prune(const bsr_context *ctx, const bsr_exec *ex) {
    const int dtype = draw_float();
    const int64_t filters = bt_range(1, 90), channels = bt_range(1, 60), taps = bt_range(1, 9);
    bsr_dense x = dense(filters, channels * taps, dtype, NO_BATCH, 0); /* channels last: others are refused */
    const int64_t br = draw_block(), bc = draw_block(), all = channels * taps;
    bsr_matrix m = matrix_of((filters + br - 1) / br, (all + bc - 1) / bc, br, bc, dtype, NO_BATCH, 1);
    x.cols = channels, x.row_stride = all, x.col_stride = 1;
    x = bsr_dense_batched(x, taps, channels), make_full(&m);
    return bsr_conv_prune(ctx, &x, (double)bt_below(11) / 10, (int)bt_below(3), &m, ex);
}
static bsr_status call_build_transposed_index(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_matrix m = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), BSR_F16, draw_batch(), 0);
    uint64_t bytes = 0;
    char *buffer;
    bsr_exec size = *ex;
    bsr_status status;
    size.query = NULL, size.plan = NULL, size.timing = NULL;
    status = bsr_transposed_index_size(ctx, &m, &bytes, &size);
    if (status) return status;
    buffer = (char *)device((int64_t)bytes + 64, BSR_I8);
    buffer += (64 - (uintptr_t)buffer % 64) % 64;
    return bsr_build_transposed_index(ctx, &m, buffer, bytes, ex);
}
static bsr_status call_build_schedule(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_matrix m = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), BSR_F16, draw_batch(), 0);
    const int group = (int)PICK(1, 1, 2, 4, 8), transposed = (int)bt_below(2);
    uint64_t bytes = 0;
    char *buffer;
    bsr_exec size = *ex;
    bsr_status status;
    size.query = NULL, size.plan = NULL, size.timing = NULL;
    status = bsr_schedule_size(ctx, &m, group, transposed, &bytes, &size);
    if (status) return status;
    buffer = (char *)device((int64_t)bytes + 64, BSR_I8);
    buffer += (64 - (uintptr_t)buffer % 64) % 64;
    return bsr_build_schedule(ctx, &m, group, transposed, buffer, bytes, ex);
}
static bsr_status call_layout_mask(const bsr_context *ctx, const bsr_exec *ex) {
    const int64_t heads = bt_range(1, 8), blocks = 4 * bt_range(2, 40);
    const bsr_layout l = bsr_layout_default((int)bt_range(BSR_LAYOUT_DENSE, BSR_LAYOUT_LOCAL_SLIDING_WINDOW), heads, blocks);
    return bsr_layout_mask(ctx, &l, (uint8_t *)device(heads * blocks * blocks, BSR_BOOL), ex);
}
static bsr_status call_build_scatter_indices(const bsr_context *ctx, const bsr_exec *ex) {
    const int64_t b = draw_block(), room = 1 << 24;
    const bsr_matrix a = matrix_of(bt_range(1, 100), bt_range(1, 100), b, b, BSR_F16, NO_BATCH, 0);
    const int format = (int)bt_range(BSR_SCATTER_MM, BSR_SCATTER_STRIDED_COMPRESSED);
    const int64_t split = PICK(1, 2, 4);
    bsr_scatter_indices x = lists(format, split, room, room, room);
    return bsr_build_scatter_indices(ctx, &a, 4 * b * bt_range(1, 10), &x, ex);
}

/* Kinds of a matrix's columns. */
static uint8_t *kinds_of(const bsr_matrix *m) {
    int64_t n = m->nnz;
    int i;
    for (i = 0; i < m->batch_dims; i++)
        if (m->batch[i] > 1 && m->col_batch_stride[i]) n = times(n, m->batch[i]);
    return (uint8_t *)device(n, BSR_BOOL);
}
static bsr_status call_block_mask(const bsr_context *ctx, const bsr_exec *ex) {
    const t_shape batch = draw_batch();
    const int64_t br = draw_block(), bc = draw_block(), rb = draw_blocks(), cb = draw_blocks();
    bsr_matrix m = matrix_of(rb, cb, br, bc, BSR_F32, batch, 1);
    const bsr_matrix within = matrix_of(rb, cb, br, bc, BSR_F32, narrower(batch), 0);
    const int64_t lq = m.rows - bt_below(br), lk = m.cols - bt_below(bc);
    const bsr_dense pad = dense(1, lk, draw_float(), narrower(batch), 0);
    bsr_attention_options o = BSR_ZERO;
    if (bt_below(2)) o.flags |= BSR_ATTENTION_CAUSAL, o.causal_offset = lk - lq;
    if (bt_below(2)) o.flags |= BSR_ATTENTION_WINDOW, o.window_left = bt_below(100), o.window_right = bt_below(100);
    if (bt_below(2)) o.key_padding_mask = &pad, o.key_padding_mode = BSR_MASK_MUL;
    if (!bt_below(4)) m.col_indices = NULL;
    return bsr_block_mask(ctx, lq, lk, &o, bt_below(2) ? &within : NULL, &m, bt_below(2) ? kinds_of(&m) : NULL, ex);
}
static bsr_block_lists draw_lists(const bsr_matrix *m) {
    const int64_t rows = m->rows / m->block_rows, full = bt_below(2);
    int64_t lines = rows;
    bsr_block_lists l = BSR_ZERO;
    int i;
    for (i = 0; i < m->batch_dims; i++) lines = times(lines, m->batch[i]);
    l.width = bt_below(300), l.full_width = bt_below(300);
    l.counts = (int32_t *)device(lines, BSR_I32), l.indices = (int32_t *)device(times(lines, l.width), BSR_I32);
    if (!full) return l;
    l.full_counts = (int32_t *)device(lines, BSR_I32);
    l.full_indices = (int32_t *)device(times(lines, l.full_width), BSR_I32);
    return l;
}
static bsr_status call_from_block_lists(const bsr_context *ctx, const bsr_exec *ex) {
    bsr_matrix m = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), BSR_F32, draw_batch(), 1);
    const bsr_block_lists l = draw_lists(&m);
    return bsr_from_block_lists(ctx, &l, &m, bt_below(2) ? kinds_of(&m) : NULL, ex);
}
static bsr_status call_to_block_lists(const bsr_context *ctx, const bsr_exec *ex) {
    const bsr_matrix m = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), BSR_F32, draw_batch(), 0);
    const bsr_block_lists l = draw_lists(&m);
    return bsr_to_block_lists(ctx, &m, bt_below(2) ? kinds_of(&m) : NULL, &l, ex);
}
static bsr_status call_pool_blocks(const bsr_context *ctx, const bsr_exec *ex) {
    static const int kinds[] = {BSR_REDUCE_SUM, BSR_REDUCE_MAX, BSR_REDUCE_MIN, BSR_REDUCE_MEAN};
    const int64_t block = bt_range(1, 100), n = draw_blocks(), d = draw_columns();
    const int dtype = draw_float(), result = dtype == BSR_F64 || bt_below(2) ? dtype : BSR_F32;
    const t_shape batch = draw_batch();
    const bsr_dense x = dense(n * block - bt_below(block), d, dtype, narrower(batch), 0), out = dense(n, d, result, batch, 1);
    const int32_t *counts = bt_below(2) ? (const int32_t *)device(n, BSR_I32) : NULL;
    return bsr_pool_blocks(ctx, kinds[bt_below(4)], block, &x, counts, 0, &out, ex);
}
static bsr_status call_select_blocks(const bsr_context *ctx, const bsr_exec *ex) {
    const t_shape batch = draw_batch();
    bsr_matrix m = matrix_of(draw_blocks(), draw_blocks(), draw_block(), draw_block(), BSR_F32, batch, 1);
    const int64_t fine[2] = {bt_range(1, 3), bt_range(1, 3)}, d = PICK(1, 64, 128);
    const int64_t rows = m.rows / m.block_rows * fine[0], cols = m.cols / m.block_cols * fine[1];
    const int dtype = draw_float();
    const bsr_dense scores = dense(rows, cols, dtype, narrower(batch), 0), q = dense(rows, d, dtype, narrower(batch), 0);
    const bsr_dense k = dense(cols, d, dtype, narrower(batch), 0);
    bsr_select s = BSR_ZERO;
    if (bt_below(2)) s.scores = &scores;
    else s.q = &q, s.k = &k;
    s.top_k = bt_below(9), s.top_p = (double)bt_below(3) / 2, s.combine = (int32_t)bt_below(3), s.local = bt_below(3);
    if (bt_below(2)) s.flags |= BSR_SELECT_CAUSAL;
    return bsr_select_blocks(ctx, &s, &m, bt_below(2) ? kinds_of(&m) : NULL, ex);
}

typedef struct operation {
    const char *name;
    int op;
    bsr_status (*call)(const bsr_context *ctx, const bsr_exec *ex);
    int may_wait; /* its status or a count stands in device memory */
} operation;
static const operation operations[] = {
#define X(name, op, tiers, waits, ...) {#name, op, call_##name, waits},
    T_OPERATIONS(X)
#undef X
};

/* ---------------------------------------------------------------------------------------------- */
/* contexts and calls                                                                             */
/* ---------------------------------------------------------------------------------------------- */

static const si_device models[] = {
    {"sm_75", 7, 5, 40, 49152, 65536},   {"sm_80", 8, 0, 108, 49152, 166912},   {"sm_86", 8, 6, 84, 49152, 101376},
    {"sm_90", 9, 0, 132, 49152, 232448}, {"sm_100", 10, 0, 148, 49152, 232448}, {"sm_120", 12, 0, 170, 49152, 101376},
};
static const si_device *const hopper = &models[3];

static long live; /* host allocations of the context */
static void *count_alloc(size_t bytes, void *user) {
    (void)user;
    live++;
    return malloc(bytes);
}
static void count_free(void *p, void *user) {
    (void)user;
    live--;
    free(p);
}
static struct {
    const bsr_exec *exec;
    const si_device *device;
    char wrong[200];
    long checked, tiers[4]; /* launches; of the tiers, that of other kernels first */
    int last_tier;          /* that the device and the loaded code have */
    int gated, looks, worked; /* this call: launches so far; of kernels that look at indices; of others after them */
    int tiled;                /* blocks have been laid as tiles: two products follow, each stopped by a word in the workspace */
} watch;
static void use_devices(const si_device *first, const si_device *second) {
    si_restart();
    si.devices = (first != NULL) + (second != NULL), si.current = 0;
    if (first) si.device[0] = *first, watch.last_tier = first->cc_major < 8 ? 1 : first->cc_major == 9 ? 3 : 2;
    if (second) si.device[1] = *second;
}
static bsr_context *create(int backend, int ordinal, int *status, bsr_error *error) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *ctx = NULL;
    d.backend = backend, d.device = ordinal + 1;
    d.allocator.alloc_fn = count_alloc, d.allocator.free_fn = count_free;
    *status = (int)bsr_create(&d, &ctx, error);
    return ctx;
}

/* A context on the stand-in's H200, which launches are checked against from here on. */
static bsr_context *create_on_hopper(bsr_error *error) {
    int status;
    bsr_context *ctx;
    use_devices(hopper, NULL);
    ctx = create(BSR_BACKEND_CUDA, -1, &status, error);
    CHECK_INT(status, BSR_OK);
    watch.device = hopper;
    return ctx;
}

#define WRONG(...) snprintf(watch.wrong, sizeof watch.wrong, __VA_ARGS__)

static int tier_of(const si_kernel *k) {
    if (strstr(k->name, "softmax")) return strstr(k->name, "simt") != NULL; /* packed ones name their type: bsri_mma_f16 */
    if (strstr(k->name, "product_tiny") || strstr(k->name, "product_few")) return 1; /* its tiles name a type, too */
    if (strstr(k->name, "product_vector")) return 1;
    if (strstr(k->name, "wgmma") || strstr(k->name, "narrow_tma")) return 3;
    return strstr(k->name, "_mma") ? 2 : strstr(k->name, "simt") ? 1 : 0;
}
/* With BSR_EXEC_CHECK_INDICES: the word is set, then kernels look at indices, then come the operation's, which the word stops and
   which wait for it. Without it nothing stops any. */
static void on_gated_launch(const si_launch *l) {
    const int checks = (watch.exec->flags & BSR_EXEC_CHECK_INDICES) != 0, looks = strstr(l->kernel->name, "look_at") != NULL;
    const void *want = checks && watch.gated && !looks ? watch.exec->device_status : NULL;
    const void *word = *(const void *const *)l->parameters[1];
    const char *const room = (const char *)watch.exec->workspace;
    watch.tiled |= strstr(l->kernel->name, "retile_values") != NULL;
    if (watch.tiled && word && room && (const char *)word >= room && (const char *)word < room + watch.exec->workspace_bytes) {
        if (l->grid[2] != 2) WRONG("a grid of %u layers beside tiles: %s", l->grid[2], l->kernel->name);
        if (l->early) WRONG("starts before tiles are laid: %s", l->kernel->name);
        watch.worked++;
        return;
    }
    if (watch.gated && !word && room && strstr(l->kernel->name, "fill_words")) return; /* gates of tiles, before they are laid */
    if (word != want) WRONG("stopped by %p, not %p: %s", word, want, l->kernel->name);
    if (l->grid[2] != (want ? 2 : 1)) WRONG("a grid of %u layers: %s", l->grid[2], l->kernel->name);
    if (want && l->early) WRONG("starts before the check has ended: %s", l->kernel->name);
    if (looks && (!checks || watch.worked)) WRONG("looks at indices now: %s", l->kernel->name);
    if (checks && !watch.gated && !strstr(l->kernel->name, "fill_words")) WRONG("the word is not set before %s", l->kernel->name);
    watch.gated = 1, watch.looks += looks, watch.worked += want != NULL;
}
static void on_launch(const si_launch *l) {
    static const long grid_limit[3] = {2147483647L, 65535, 65535}, block_limit[3] = {1024, 1024, 64};
    const unsigned long threads = (unsigned long)l->block[0] * l->block[1] * l->block[2];
    unsigned long shared;
    int i;
    watch.checked++;
    if (!l->kernel) {
        WRONG("a launch names no kernel");
        return;
    }
    shared = l->kernel->static_shared + l->dynamic_shared;
    for (i = 0; i < 3; i++) {
        if (l->grid[i] < 1 || (long)l->grid[i] > grid_limit[i]) WRONG("grid[%d] is %u: %s", i, l->grid[i], l->kernel->name);
        if (l->block[i] < 1 || (long)l->block[i] > block_limit[i]) WRONG("block[%d] is %u: %s", i, l->block[i], l->kernel->name);
        if (watch.exec->max_grid[i] > 0 && (long)l->grid[i] > watch.exec->max_grid[i] &&
            (i < 2 || !(watch.tiled || watch.exec->flags & BSR_EXEC_CHECK_INDICES)))
            WRONG("grid[%d] is %u above max_grid %d: %s", i, l->grid[i], watch.exec->max_grid[i], l->kernel->name);
    }
    if (l->cluster[0] < 1 || l->cluster[1] < 1 || l->cluster[2] < 1 || l->cluster[0] * l->cluster[1] * l->cluster[2] > 8)
        WRONG("a cluster of %u x %u x %u: %s", l->cluster[0], l->cluster[1], l->cluster[2], l->kernel->name);
    else if (l->grid[0] % l->cluster[0] || l->grid[1] % l->cluster[1] || l->grid[2] % l->cluster[2])
        WRONG("a grid of %u is no multiple of the cluster: %s", l->grid[0], l->kernel->name);
    if (l->cluster[0] * l->cluster[1] * l->cluster[2] > 1 && watch.device->cc_major < 9)
        WRONG("a cluster on %s: %s", watch.device->name, l->kernel->name);
    if (tier_of(l->kernel) > watch.last_tier) WRONG("tier %d on %s: %s", tier_of(l->kernel), watch.device->name, l->kernel->name);
    watch.tiers[tier_of(l->kernel)]++;
    if (threads > 1024) WRONG("%lu threads: %s", threads, l->kernel->name);
    if (l->kernel->known && (threads * (unsigned long)((l->kernel->registers + 7) / 8 * 8) > 65536))
        WRONG("%lu threads of %d registers: %s", threads, l->kernel->registers, l->kernel->name);
    if (l->dynamic_shared > l->dynamic_limit)
        WRONG("dynamic shared memory %zu above what is allowed, %zu: %s", l->dynamic_shared, l->dynamic_limit, l->kernel->name);
    if (shared > watch.device->shared_optin) WRONG("shared memory %lu on %s: %s", shared, watch.device->name, l->kernel->name);
    if (!l->loaded) WRONG("bsr_create did not load %s", l->kernel->name);
    if (l->stream != watch.exec->stream) WRONG("not the stream of the call: %s", l->kernel->name);
    on_gated_launch(l);
}

/* One call made from a seed; what it does in the runtime is in si and watch. */
static int make(const operation *o, const bsr_context *ctx, uint64_t seed, int is_huge, const bsr_exec *exec) {
    const uint64_t before = bt.random;
    int status;
    bt.random = seed, arena.used = 0, huge = is_huge, tidy = (int)bt_below(2);
    watch.exec = exec, watch.wrong[0] = 0, watch.gated = watch.looks = watch.worked = watch.tiled = 0;
    si.operation = 1, si.may_wait = o->may_wait;
    status = sigsetjmp(on_fault, 1);
    if (!status) status = (int)o->call(ctx, exec);
    si.operation = 0, bt.random = before;
    if (si.map_wrong) WRONG("%s", si.map_wrong);
    return status;
}
/* The same with the workspace that its plan, or its refusal, asks for. */
static bsr_plan last_plan;
static int make_with_workspace(const operation *o, const bsr_context *ctx, uint64_t seed, int is_huge, bsr_exec *exec) {
    bsr_plan plan = BSR_ZERO;
    const long calls = si.launches;
    int status;
    exec->query = &plan;
    status = make(o, ctx, seed, is_huge, exec);
    exec->query = NULL, last_plan = plan;
    if (status != BSR_OK) return status;
    if (si.launches != calls && o->op != BSR_OP_TRANSPOSED_INDEX && o->op != BSR_OP_SCHEDULE) WRONG("a query launches");
    if (watch.wrong[0]) return BSR_OK;
    if (plan.workspace_bytes > (uint64_t)arena.size / 2 - 64) return TOO_LARGE; /* the last word is a checked call's */
    exec->workspace = (void *)(((uintptr_t)arena.base + (uintptr_t)arena.size / 2) / 64 * 64);
    exec->workspace_bytes = plan.workspace_bytes;
    status = make(o, ctx, seed, is_huge, exec);
    if (status == BSR_WORKSPACE_TOO_SMALL && exec->error && exec->error->value > 0) {
        exec->workspace_bytes = (uint64_t)exec->error->value;
        status = make(o, ctx, seed, is_huge, exec);
    }
    return status;
}
static int good(const operation *o, int s) {
    /* the stand-in's device memory reads as zeros: no valid structure, no equal counts */
    return s == BSR_OK || s == TOO_LARGE || (o->may_wait && (s == BSR_BAD_STRUCTURE || s == BSR_CAPACITY));
}
static void check_indices(bsr_exec *e) {
    e->flags |= BSR_EXEC_CHECK_INDICES, e->device_status = (uint64_t *)(void *)(arena.base + arena.size - 64);
}
static bsr_exec draw_exec(bsr_error *error) {
    bsr_exec e = BSR_ZERO;
    e.stream = (bsr_stream)(uintptr_t)(bt_below(3) * 64), e.error = error;
    if (!bt_below(8)) e.flags |= BSR_EXEC_SKIP_CHECKS;
    if (!bt_below(8)) e.flags |= BSR_EXEC_CHECK_POINTERS;
    if (!bt_below(8)) e.flags |= (uint32_t)PICK(BSR_EXEC_TF32, BSR_EXEC_TF32X3, BSR_EXEC_ACCUMULATE_F64);
    if (!(e.flags & BSR_EXEC_SKIP_CHECKS) && !bt_below(6)) check_indices(&e);
    return e;
}
static void say(const operation *o, uint64_t seed, const bsr_error *e, int s) {
    char line[300];
    bsr_error_string(e, line, sizeof line);
    bt_fail(__FILE__, __LINE__, "%s, call seed 0x%llx: %s (%s)", o->name, (unsigned long long)seed,
            s == TOUCHED ? "touches device memory from the host" : bsr_status_name(s), line);
}
static int absent(const operation *o, const bsr_context *ctx) {
    if (bsr_supports(ctx, o->op, BSR_F32, BSR_F32, 16, 16)) return 0;
    bt_skip("the CUDA backend has not got the operation");
    return 1;
}

/* ---------------------------------------------------------------------------------------------- */
/* tests                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

static int listed;

TEST(kernels_are_loaded_when_the_context_is_made) {
    int s;
    bsr_error e;
    bsr_context *ctx;
    int i;
    use_devices(hopper, NULL);
    ctx = create(BSR_BACKEND_CUDA, -1, &s, &e);
    CHECK_INT(s, BSR_OK);
    CHECK(si_kernel_count() > 0);
    CHECK_INT(listed, si_kernel_count());
    for (i = 0; i < si_kernel_count(); i++) {
        if (!si_kernel_at(i)->loaded[0]) bt_fail(__FILE__, __LINE__, "not loaded: %s", si_kernel_at(i)->name);
        if (si_kernel_at(i)->static_shared > 48 * 1024)
            bt_fail(__FILE__, __LINE__, "static shared memory: %s", si_kernel_at(i)->name);
    }
    bsr_destroy(ctx);
    CHECK_INT(live, 0);
}

/* create with every call failing in turn: no context, the error code, the device as before. */
static void fail_create(int backend, int ordinal) {
    int s;
    bsr_error e;
    bsr_context *ctx;
    bsr_info info;
    long calls, k;
    use_devices(hopper, hopper);
    ctx = create(backend, ordinal, &s, &e);
    CHECK_INT(s, BSR_OK);
    CHECK_INT(si.current, 0);
    calls = si.calls;
    CHECK(calls > 5);
    bsr_query_info(ctx, &info);
    CHECK_INT(info.backend, BSR_BACKEND_CUDA);
    CHECK_INT(info.device, ordinal < 0 ? 0 : ordinal);
    CHECK_INT(info.sm_count, 132);
    bsr_destroy(ctx);
    for (k = 1; k <= calls; k++) {
        use_devices(hopper, hopper);
        si.fail_at = k, si.fail_code = (int)PICK(1, 2, 98, 209, 719);
        ctx = create(backend, ordinal, &s, &e);
        CHECK_INT(s, BSR_NO_BACKEND); /* the GPU is there: the default is no CPU context then */
        CHECK_INT(e.cuda_error, si.fail_code);
        CHECK(!ctx);
        if (si.failed && strcmp(si.failed, "cudaSetDevice")) CHECK_INT(si.current, 0);
        CHECK_INT(si.last_error, 0);
        bsr_destroy(ctx);
        CHECK_INT(live, 0);
        CHECK_INT(si.allocations, 0);
    }
    use_devices(hopper, hopper);
    ctx = create(backend, ordinal, &s, &e);
    CHECK_INT(s, BSR_OK);
    bsr_destroy(ctx);
}
TEST(create_with_failing_calls) {
    bt_case("the current device"), fail_create(BSR_BACKEND_CUDA, -1);
    bt_case("device 0"), fail_create(BSR_BACKEND_CUDA, 0);
    bt_case("another device"), fail_create(BSR_BACKEND_CUDA, 1);
    bt_case("the default backend"), fail_create(BSR_BACKEND_DEFAULT, -1);
    bt_case("the default backend, another device"), fail_create(BSR_BACKEND_DEFAULT, 1);
}
/* What the first call says of the machine: only that there is no GPU, or no driver, makes the default the CPU. */
TEST(default_without_a_gpu) {
    static const struct {
        int code, driver, cpu;
    } first[] = {{100, 13000, 1}, {34, 0, 1}, {35, 0, 1}, {35, 11000, 0},
                 {3, 13000, 0},   {803, 13000, 0}, {719, 13000, 0}, {999, 0, 0}};
    size_t i;
    int k;
    for (i = 0; i < BT_COUNT(first); i++)
        for (k = 1; k <= 2; k++) { /* the same from a later call is a failure of a GPU that is there */
            int s;
            bsr_error e;
            bsr_info info;
            bsr_context *ctx;
            bt_case("error %d from call %d, driver %d", first[i].code, k, first[i].driver);
            use_devices(hopper, NULL);
            si.fail_at = k, si.fail_code = first[i].code, si.driver = first[i].driver;
            ctx = create(BSR_BACKEND_DEFAULT, -1, &s, &e);
            CHECK_INT(s, first[i].cpu && k == 1 ? BSR_OK : BSR_NO_BACKEND), CHECK((s == BSR_OK) == (ctx != NULL));
            if (ctx) bsr_query_info(ctx, &info), CHECK_INT(info.backend, BSR_BACKEND_CPU);
            else CHECK_INT(e.item, BSR_ITEM_DEVICE_MISSING), CHECK_INT(e.cuda_error, first[i].code);
            CHECK_INT(si.last_error, 0);
            bsr_destroy(ctx);
            use_devices(hopper, NULL);
            si.fail_at = k, si.fail_code = first[i].code, si.driver = first[i].driver;
            CHECK(!create(BSR_BACKEND_CUDA, -1, &s, &e)), CHECK_INT(s, BSR_NO_BACKEND), CHECK_INT(e.cuda_error, first[i].code);
        }
}
TEST(create_without_a_usable_device) {
    const si_device old = {"sm_61", 6, 1, 20, 49152, 49152};
    const si_device *const device[] = {NULL, &old, hopper, hopper};
    const int ordinal[] = {-1, -1, 1, 1000};
    int s;
    bsr_error e;
    bsr_info info;
    bsr_context *ctx;
    int i;
    for (i = 0; i < 4; i++) {
        bt_case("%s, device %d", device[i] ? device[i]->name : "no device", ordinal[i]);
        use_devices(device[i], NULL);
        ctx = create(BSR_BACKEND_CUDA, ordinal[i], &s, &e);
        CHECK_INT(s, BSR_NO_BACKEND);
        CHECK_INT(e.item, BSR_ITEM_DEVICE_MISSING);
        CHECK(e.cuda_error != 0);
        CHECK(!ctx);
        CHECK_INT(si.last_error, 0);
        use_devices(device[i], NULL);
        ctx = create(BSR_BACKEND_DEFAULT, ordinal[i], &s, &e);
        CHECK_INT(s, i == 0 ? BSR_OK : BSR_NO_BACKEND);
        if (i) CHECK_INT(e.item, BSR_ITEM_DEVICE_MISSING), CHECK(!ctx);
        else CHECK_INT(bsr_query_info(ctx, &info), BSR_OK), CHECK_INT(info.backend, BSR_BACKEND_CPU);
        bsr_destroy(ctx);
    }
}

TEST(launches_of_random_calls) {
    enum { CALLS = 2500 };
    long total = 0;
    size_t o, d;
    for (d = 0; d < BT_COUNT(models); d++) {
        int s;
        bsr_error e;
        bsr_context *ctx;
        bt_case("%s: create", models[d].name);
        use_devices(&models[d], NULL);
        ctx = create(BSR_BACKEND_CUDA, -1, &s, &e);
        CHECK_INT(s, BSR_OK);
        if (!ctx) continue;
        for (o = 0; o < BT_COUNT(operations); o++) {
            long i, launches = 0, wrong = 0;
            bt_case("%s: %s", models[d].name, operations[o].name);
            if (absent(&operations[o], ctx)) continue;
            for (i = 0; i < CALLS && wrong < 3; i++) {
                const uint64_t seed = bt_random();
                bsr_exec ex = draw_exec(&e);
                si_restart();
                watch.device = &models[d];
                s = make_with_workspace(&operations[o], ctx, seed, i % 4 == 3, &ex);
                bt.checks++;
                if (!good(&operations[o], s)) say(&operations[o], seed, &e, s), wrong++;
                if (watch.wrong[0])
                    bt_fail(__FILE__, __LINE__, "call seed 0x%llx: %s", (unsigned long long)seed, watch.wrong), wrong++;
                if (si.forbidden) {
                    bt_fail(__FILE__, __LINE__, "call seed 0x%llx: %s inside the operation", (unsigned long long)seed,
                            si.forbidden_name);
                    wrong++;
                }
                launches += si.launches;
            }
            if (!launches) bt_fail(__FILE__, __LINE__, "%s never launched anything", operations[o].name);
            total += launches;
        }
        bsr_destroy(ctx);
    }
    printf("     %ld launches checked: simt %ld, mma %ld, wgmma %ld, others %ld\n", total, watch.tiers[1], watch.tiers[2],
           watch.tiers[3], watch.tiers[0]);
    CHECK_INT(live, 0);
}

/* The fastest tier that device and loaded code have runs what it takes; nothing of a later one ever does. Code for an older GPU
   is told by a kernel's static shared memory, see bsri_compiled_tier(). */
TEST(tiers) {
    static const struct {
        const char *name;
        int model, code, refuse_maps, last;
    } cases[] = {{"sm_75", 0, 3, 0, 1},
                 {"sm_80", 1, 3, 0, 2},
                 {"sm_90", 3, 3, 0, 3},
                 {"sm_90 without tensor maps", 3, 3, 1, 2},
                 {"sm_90 with code for sm_90", 3, 2, 0, 2},
                 {"sm_90 with code for sm_75", 3, 1, 0, 1},
                 {"sm_100", 4, 3, 0, 2}};
    int has[4] = {0, 0, 0, 0}, marker = -1, i;
    size_t d;
    for (i = 0; i < si_kernel_count(); i++) {
        has[tier_of(si_kernel_at(i))] = 1;
        if (strstr(si_kernel_at(i)->name, "bsri_compiled_tier")) marker = i;
    }
    CHECK(marker >= 0), CHECK_INT((int)si_kernel_at(marker)->static_shared, 3 * 1024);
    for (d = 0; d < BT_COUNT(cases) && marker >= 0; d++) {
        int s, o;
        bsr_error e;
        bsr_context *ctx;
        bt_case("%s", cases[d].name);
        use_devices(&models[cases[d].model], NULL), watch.device = &models[cases[d].model];
        si_set_static_shared(marker, (size_t)cases[d].code * 1024);
        ctx = create(BSR_BACKEND_CUDA, -1, &s, &e);
        CHECK_INT(s, BSR_OK);
        if (!ctx) continue;
        watch.last_tier = cases[d].last + cases[d].refuse_maps; /* products without blocks fetch nothing */
        memset(watch.tiers, 0, sizeof watch.tiers);
        for (o = 0; o < 8; o++)
            for (i = 0; i < 400; i++) {
                const uint64_t seed = bt_random();
                bsr_exec ex = BSR_ZERO;
                ex.error = &e;
                si_restart();
                si.refuse_maps = cases[d].refuse_maps;
                s = make_with_workspace(&operations[o], ctx, seed, 0, &ex);
                if (!good(&operations[o], s)) say(&operations[o], seed, &e, s);
                if (watch.wrong[0]) bt_fail(__FILE__, __LINE__, "call seed 0x%llx: %s", (unsigned long long)seed, watch.wrong);
                bt.checks++;
            }
        for (i = cases[d].last; i > 1 && !has[i]; i--) {
        }
        CHECK(watch.tiers[i] > 0), CHECK(watch.tiers[1] > 0);
        bsr_destroy(ctx);
    }
    if (marker >= 0) si_set_static_shared(marker, 3 * 1024);
    CHECK_INT(live, 0);
}

TEST(every_call_failing_in_turn) {
    int s, first;
    bsr_error e;
    bsr_context *ctx;
    size_t o;
    long injected = 0, held;
    ctx = create_on_hopper(&e);
    held = live;
    for (o = 0; o < BT_COUNT(operations); o++) {
        long i, k, calls;
        bt_case("%s", operations[o].name);
        if (absent(&operations[o], ctx)) continue;
        for (i = 0; i < 60; i++) {
            const uint64_t seed = bt_random();
            bsr_exec ex = BSR_ZERO;
            ex.error = &e;
            si_restart();
            first = make_with_workspace(&operations[o], ctx, seed, 0, &ex);
            if (!good(&operations[o], first)) say(&operations[o], seed, &e, first);
            si_restart();
            first = make(&operations[o], ctx, seed, 0, &ex);
            calls = si.calls;
            for (k = 1; k <= calls; k++) {
                si_restart();
                si.fail_at = k, si.fail_code = (int)PICK(1, 2, 98, 209, 719);
                s = make(&operations[o], ctx, seed, 0, &ex);
                injected++;
                if (s != BSR_CUDA_ERROR || e.item != BSR_ITEM_CUDA || e.cuda_error != si.fail_code || e.status != (int)s)
                    bt_fail(__FILE__, __LINE__,
                            "call seed 0x%llx: %s (call %ld of %ld) failed with %d: status %s, item %s, cuda_error %d",
                            (unsigned long long)seed, si.failed, k, calls, si.fail_code, bsr_status_name(s),
                            bsr_item_name(e.item), e.cuda_error);
                if (si.after_failure) bt_fail(__FILE__, __LINE__, "%ld calls after %s had failed", si.after_failure, si.failed);
                if (si.last_error) bt_fail(__FILE__, __LINE__, "the error of %s stays behind in the runtime", si.failed);
                CHECK_INT(si.allocations, 0);
            }
            si_restart();
            s = make(&operations[o], ctx, seed, 0, &ex);
            CHECK_INT(s, first);
            CHECK_INT(si.calls, calls);
            CHECK_INT(live, held);
        }
    }
    printf("     %ld calls made to fail\n", injected);
    bsr_destroy(ctx);
    CHECK_INT(live, held - 1);
}

/* Another device's stream is refused, but not where that can't be told or must not be asked: a default stream, one that is
   captured, an older driver, checks left out. */
static void other_stream(const operation *o, const bsr_context *ctx, const bsr_context *old, uint64_t seed,
                         const bsr_exec *exec) {
    static const struct {
        uintptr_t stream;
        int capturing, old;
        uint32_t flags;
    } taken[] = {{0, 0, 0, 0},  {1, 0, 0, 0},  {2, 0, 0, 0},
                 {64, 1, 0, 0}, {64, 0, 1, 0}, {64, 0, 0, BSR_EXEC_SKIP_CHECKS}};
    bsr_exec ex = *exec;
    size_t i;
    int s;
    for (i = 0; i < BT_COUNT(taken); i++) {
        si_restart();
        si.current = si.elsewhere = 1, si.capturing = taken[i].capturing;
        ex.stream = (bsr_stream)taken[i].stream, ex.flags = exec->flags | taken[i].flags;
        s = make(o, taken[i].old ? old : ctx, seed, 0, &ex);
        if (taken[i].capturing && o->may_wait && s == BSR_CAPTURING) continue;
        if (!good(o, s)) say(o, seed, ex.error, s);
        CHECK(si.launches > 0);
    }
    si_restart();
    si.current = si.elsewhere = 1, ex.stream = (bsr_stream)(uintptr_t)64, ex.flags = exec->flags;
    s = make(o, ctx, seed, 0, &ex);
    CHECK_INT(s, BSR_WRONG_DEVICE), CHECK_INT(ex.error->item, BSR_ITEM_CUDA_STREAM), CHECK_INT(ex.error->value, 0);
    CHECK_INT(si.launches, 0);
}
TEST(wrong_device) {
    int s;
    bsr_error e;
    bsr_context *ctx, *old;
    size_t o;
    use_devices(hopper, hopper);
    ctx = create(BSR_BACKEND_CUDA, 1, &s, &e);
    CHECK_INT(s, BSR_OK);
    si.driver = 12070;
    old = create(BSR_BACKEND_CUDA, 1, &s, &e);
    CHECK_INT(s, BSR_OK);
    watch.device = hopper;
    for (o = 0; o < BT_COUNT(operations); o++) {
        int i;
        bt_case("%s", operations[o].name);
        if (absent(&operations[o], ctx)) continue;
        for (i = 0; i < 50; i++) {
            const uint64_t seed = bt_random();
            bsr_exec ex = BSR_ZERO;
            ex.error = &e;
            si_restart();
            si.current = 1;
            s = make_with_workspace(&operations[o], ctx, seed, 0, &ex);
            if (!good(&operations[o], s) || !si.launches) continue; /* nothing to launch: nothing to refuse */
            si_restart();
            si.current = 0;
            s = make(&operations[o], ctx, seed, 0, &ex);
            CHECK_INT(s, BSR_WRONG_DEVICE);
            CHECK_INT(e.item, BSR_ITEM_CUDA_DEVICE);
            CHECK_INT(e.value, 0);
            CHECK_INT(si.launches, 0);
            CHECK_INT(si.current, 0);
            other_stream(&operations[o], ctx, old, seed, &ex);
        }
    }
    bsr_destroy(ctx), bsr_destroy(old);
}

TEST(captured_stream) {
    int s;
    bsr_error e;
    bsr_context *ctx;
    size_t o;
    ctx = create_on_hopper(&e);
    for (o = 0; o < BT_COUNT(operations); o++) {
        int i;
        bt_case("%s", operations[o].name);
        if (absent(&operations[o], ctx)) continue;
        for (i = 0; i < 50; i++) {
            const uint64_t seed = bt_random();
            bsr_exec ex = BSR_ZERO;
            ex.error = &e;
            si_restart();
            (void)make_with_workspace(&operations[o], ctx, seed, 0, &ex);
            si_restart();
            si.capturing = 1;
            {
                operation strict = operations[o];
                strict.may_wait = 0;
                s = make(&strict, ctx, seed, 0, &ex);
            }
            if (s != BSR_OK && !(operations[o].may_wait && s == BSR_CAPTURING)) say(&operations[o], seed, &e, s);
            if (s == BSR_CAPTURING) CHECK_INT(si.launches, 0);
            if (si.forbidden) bt_fail(__FILE__, __LINE__, "%s in a captured stream", si.forbidden_name);
            CHECK_INT(si.last_error, 0);
        }
    }
    bsr_destroy(ctx);
}

/* Events of the caller's stand around all launches of a call; not of one that is a query, captured or refused. */
TEST(timed) {
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    size_t o;
    for (o = 0; o < BT_COUNT(operations); o++) {
        int i;
        bt_case("%s", operations[o].name);
        if (absent(&operations[o], ctx)) continue;
        for (i = 0; i < 20; i++) {
            const uint64_t seed = bt_random();
            long marks[2] = {-1, -1};
            bsr_status s;
            bsr_timing t = BSR_ZERO;
            bsr_exec ex = BSR_ZERO;
            bsr_plan plan;
            ex.error = &e, si_restart();
            if (!good(&operations[o], make_with_workspace(&operations[o], ctx, seed, 0, &ex))) continue;
            t.begin = &marks[0], ex.timing = &t, si_restart();
            CHECK_INT(make(&operations[o], ctx, seed, 0, &ex), BSR_NULL_POINTER), t.end = &marks[1];
            ex.query = &plan;
            if (operations[o].op != BSR_OP_VALIDATE) (void)make(&operations[o], ctx, seed, 0, &ex);
            ex.query = NULL, si.capturing = 1, CHECK_INT(make(&operations[o], ctx, seed, 0, &ex), BSR_CAPTURING);
            CHECK_INT(si.launches, 0), CHECK_INT(marks[0], -1), CHECK_INT(marks[1], -1);
            si.capturing = 0, s = make(&operations[o], ctx, seed, 0, &ex), CHECK(good(&operations[o], s));
            CHECK_INT(marks[0], 0), CHECK_INT(marks[1], s == BSR_OK ? si.launches : -1); /* what was found is no success */
        }
    }
    bsr_destroy(ctx);
}

/* on_launch() compares each launch with the cap. */
/* The same call without and with the flag: what is launched besides, and that nothing waits, not even bsr_validate. */
TEST(checked_indices) {
    /* kernels that look at indices, at least: of operations that read none, none */
    static const struct {
        int op, looks;
    } least[] = {{BSR_OP_DENSE_ADDMM, 1}, {BSR_OP_SUM_MM, 1}, {BSR_OP_MATMUL, 1}, {BSR_OP_MATMUL_BACKWARD, 1},
                 {BSR_OP_SAMPLED_ADDMM, 1},
                 {BSR_OP_SOFTMAX, 1}, {BSR_OP_SOFTMAX_BACKWARD, 1}, {BSR_OP_ATTENTION, 1}, {BSR_OP_ATTENTION_BACKWARD, 1},
                  {BSR_OP_VALIDATE, 1},
                 {BSR_OP_TO_DENSE, 1}, {BSR_OP_FROM_CSR, 1}, {BSR_OP_FROM_COO, 0}, {BSR_OP_SCATTER_MM, 1},
                 {BSR_OP_TRANSPOSED_INDEX, 1}, {BSR_OP_SCHEDULE, 1}, {BSR_OP_SCATTER_INDICES, 1}, {BSR_OP_TO_CSR, 1},
                 {BSR_OP_TO_COO, 1}, {BSR_OP_REBLOCK, 1}, {BSR_OP_CONV, 1}, {BSR_OP_CONV_WEIGHT_GRADIENT, 1},
                 {BSR_OP_CHAIN_MM, 1}, {BSR_OP_SAMPLED_CHAIN_MM, 1}, {BSR_OP_SAMPLED_GATED, 1},
                 {BSR_OP_MAP, 1}, {BSR_OP_REDUCE, 1}, {BSR_OP_BLOCK_MASK, 0}, {BSR_OP_TO_BLOCK_LISTS, 1}};
    bsr_error error;
    bsr_context *ctx = create_on_hopper(&error);
    size_t i, k;
    int turn;
    for (i = 0; i < BT_COUNT(operations); i++) {
        const operation *o = &operations[i];
        int want = -1, done = 0;
        bt_case("%s", o->name);
        if (absent(o, ctx)) continue;
        for (k = 0; k < BT_COUNT(least); k++)
            if (least[k].op == o->op) want = least[k].looks;
        for (turn = 0; turn < 60; turn++) {
            const uint64_t seed = bt_random();
            bsr_exec plain = BSR_ZERO, checked;
            operation quiet = *o;
            long before, bare;
            int s;
            plain.error = &error;
            before = si.launches, s = make_with_workspace(o, ctx, seed, 0, &plain), bare = si.launches - before;
            if (s != BSR_OK && o->op != BSR_OP_VALIDATE) continue;
            if (watch.wrong[0]) bt_fail(__FILE__, __LINE__, "%s: %s", o->name, watch.wrong);
            checked = plain, check_indices(&checked), quiet.may_wait = 0;
            si.capturing = turn & 1, si.forbidden = 0;
            before = si.launches, s = make_with_workspace(&quiet, ctx, seed, 0, &checked);
            si.capturing = 0;
            if (s != BSR_OK) say(o, seed, &error, s);
            if (watch.wrong[0]) bt_fail(__FILE__, __LINE__, "%s: %s", o->name, watch.wrong);
            CHECK_INT(si.forbidden, 0);
            CHECK(checked.workspace_bytes >= plain.workspace_bytes || o->op == BSR_OP_VALIDATE);
            CHECK(watch.gated), CHECK(watch.looks >= want), CHECK(watch.looks <= 5);
            if (want < 0) CHECK_INT(watch.looks, 0);
            if (o->op != BSR_OP_VALIDATE) CHECK(watch.worked <= bare), done += watch.worked > 0;
            checked.device_status = NULL; /* refused, and nothing launched */
            before = si.launches, s = make(o, ctx, seed, 0, &checked);
            CHECK_INT(s, BSR_BAD_ARGUMENT), CHECK_INT(error.item, BSR_ITEM_DEVICE_STATUS), CHECK_INT(si.launches, before);
            check_indices(&checked), checked.flags |= BSR_EXEC_SKIP_CHECKS;
            s = make(o, ctx, seed, 0, &checked);
            CHECK_INT(s, BSR_BAD_ARGUMENT), CHECK_INT(error.item, BSR_ITEM_FLAGS_CONFLICT), CHECK_INT(si.launches, before);
        }
        if (o->op != BSR_OP_VALIDATE) CHECK(done > 0);
    }
    bsr_destroy(ctx);
}
TEST(max_grid) {
    int s;
    bsr_error e;
    bsr_context *ctx;
    size_t o;
    ctx = create_on_hopper(&e);
    for (o = 0; o < BT_COUNT(operations); o++) {
        int i, k;
        bt_case("%s", operations[o].name);
        if (absent(&operations[o], ctx)) continue;
        for (i = 0; i < 100; i++) {
            const uint64_t seed = bt_random();
            bsr_exec ex = BSR_ZERO;
            ex.error = &e;
            for (k = 0; k < 3; k++) ex.max_grid[k] = (int32_t)bt_range(0, 100);
            si_restart();
            s = make_with_workspace(&operations[o], ctx, seed, i % 2, &ex);
            if (!good(&operations[o], s)) say(&operations[o], seed, &e, s);
            if (watch.wrong[0]) bt_fail(__FILE__, __LINE__, "call seed 0x%llx: %s", (unsigned long long)seed, watch.wrong);
            bt.checks++;
        }
    }
    bsr_destroy(ctx);
}

/* Host memory where device memory is meant, found where the caller asks for that check. */
TEST(host_pointers) {
    static double host[64 * 64];
    static int32_t rows[2], cols[1];
    int s;
    bsr_error e;
    bsr_context *ctx;
    int which;
    ctx = create_on_hopper(&e);
    for (which = 0; which < 6; which++) {
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, out;
        void *at[5];
        int i;
        bt_case("operand %d", which);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_CHECK_POINTERS, watch.exec = &ex;
        for (i = 0; i < 5; i++) at[i] = (void *)((uintptr_t)device(64 * 64, BSR_F64) / 64 * 64);
        if (which == 0) at[0] = rows;
        else if (which == 1) at[1] = cols;
        else if (which < 5) at[which] = host;
        a = bsr_matrix_make(64, 64, 64, 64, 1, at[0], at[1], BSR_I32, at[2], BSR_F64);
        b = bsr_dense_row_major(at[3], BSR_F64, 64, 64), out = bsr_dense_row_major(at[4], BSR_F64, 64, 64);
        si_restart();
        s = (int)bsr_dense_mm(ctx, 0, &a, &b, &out, &ex);
        if (which == 5) {
            CHECK_INT(s, BSR_OK);
            continue;
        }
        CHECK_INT(s, BSR_BAD_ARGUMENT);
        CHECK_INT(e.operand, which < 3 ? BSR_ARG_A : which == 3 ? BSR_ARG_B : BSR_ARG_OUT);
        CHECK_INT(si.launches, 0);
        si_restart();
        ex.flags = 0;
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &out, &ex), BSR_OK); /* not asked for: not looked at */
    }
    bsr_destroy(ctx);
}

/* What a plan asks is what runs, or the call is refused and the record names the field. */
TEST(plans_bind) {
    int s, op;
    bsr_error e;
    bsr_context *ctx;
    ctx = create_on_hopper(&e);
    for (op = 0; op < 3; op++) {
        static const struct {
            int field, value, item;
        } wish[] = {{3, 1, 0}, {3, 2, 0}, {3, 7, 1},   {3, -1, 1}, {4, 64, 0},  {4, 7, 1},  {4, -64, 1}, {5, 128, 0},
                    {5, 3, 1}, {6, 1, 0}, {6, 2, 0},   {6, 9999, 1}, {7, 4, 0},  {7, 999, 1}, {7, -3, 1}, {8, 77, 1}};
        bsr_plan plan = BSR_ZERO, wanted, got;
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, c;
        char line[400];
        void *p[5];
        size_t w;
        int i;
        bt_case("%s", op == 0 ? "addmm" : op == 1 ? "sampled" : "attention");
        arena.used = 0, ex.error = &e, watch.exec = &ex;
        for (i = 0; i < 5; i++) p[i] = aligned(4096 * 4096, BSR_BF16);
        a = bsr_matrix_make(4096, 4096, 64, 64, 512, p[0], p[1], BSR_I32, p[2], BSR_BF16);
        b = bsr_dense_row_major(p[3], BSR_BF16, 4096, op == 2 ? 64 : 4096), c = b, c.data = p[4];
#define CALL()                                                       \
    (op == 0   ? bsr_dense_mm(ctx, 0, &a, &b, &c, &ex)               \
     : op == 1 ? bsr_sampled_addmm(ctx, 0, NULL, 1, &b, &c, &a, &ex) \
               : bsr_attention(ctx, 0, &b, &b, &b, &a, NULL, &c, NULL, &ex))
        ex.query = &plan;
        CHECK_INT(CALL(), BSR_OK), CHECK(plan.kernel >= 2), CHECK(plan.instance >= 200), CHECK(plan.tile_rows >= 16);
        CHECK_INT(plan.source, BSR_PLAN_HEURISTIC), CHECK(plan.reason > 0), CHECK(plan.stages > 1);
        bsr_plan_string(&plan, line, sizeof line);
        CHECK(strstr(line, "mma kernel") != NULL);
        if (getenv("SAY")) puts(line);
        for (w = 0; w < sizeof wish / sizeof *wish; w++) {
            memset(&wanted, 0, sizeof wanted);
            ((int32_t *)&wanted)[wish[w].field] = wish[w].value;
            ex.plan = &wanted, ex.query = &got;
            bt_case("%s, field %d: %d", op == 0 ? "addmm" : op == 1 ? "sampled" : "attention", wish[w].field, wish[w].value);
            si_restart();
            s = (int)CALL();
            if (s == BSR_OK) {
                CHECK(!wish[w].item), CHECK_INT(((int32_t *)&got)[wish[w].field], wish[w].value);
                CHECK_INT(got.source, BSR_PLAN_CALLER);
                bsr_plan_string(&got, line, sizeof line);
                if (getenv("SAY")) puts(line);
                wanted = got, ex.query = NULL; /* handed back: the same again */
                if (got.flags & BSR_PLAN_CUTS_ROWS) ex.workspace = aligned((int64_t)got.workspace_bytes, BSR_I8);
                ex.workspace_bytes = ex.workspace ? got.workspace_bytes : 0;
                CHECK_INT(CALL(), BSR_OK), CHECK_INT(si.launches, ex.workspace ? 2 : 1);
                ex.query = &wanted, ex.workspace = NULL, ex.workspace_bytes = 0;
                CHECK_INT(CALL(), BSR_OK), CHECK_INT(wanted.instance, got.instance), CHECK_INT(wanted.tile_rows, got.tile_rows);
            } else { /* (a tile that this operation hasn't got) */
                CHECK(wish[w].item || wish[w].field > 3), CHECK(op || wish[w].item || wish[w].field != 6);
                CHECK_INT(s, BSR_BAD_PLAN), CHECK_INT(e.item, BSR_ITEM_PLAN_FIELD);
                CHECK_INT(e.index, wish[w].field), CHECK_INT(e.value, wish[w].value);
                ex.query = NULL;
                CHECK_INT(CALL(), BSR_BAD_PLAN), CHECK_INT(si.launches, 0);
            }
        }
#undef CALL
    }
    bsr_destroy(ctx);
}
/* The plan says why no faster tier runs. */
TEST(plans_say_why) {
    static const struct {
        int block, block_cols, columns, dtype, shift, tier, why;
    } cases[] = {{3, 24, 1152, BSR_BF16, 0, 1, BSR_WHY_BLOCK}, {24, 24, 16, BSR_BF16, 0, 1, BSR_WHY_BLOCK},
                 {16, 8, 20, BSR_F64, 0, 1, BSR_WHY_BLOCK},    {8, 16, 768, BSR_F32, 0, 1, BSR_WHY_BLOCK},
                 {24, 24, 1152, BSR_BF16, 0, 2, BSR_WHY_BLOCK}, {24, 64, 3072, BSR_F64, 0, 2, BSR_WHY_DTYPE},
                 {64, 64, 3072, BSR_BF16, 1, 2, BSR_WHY_VALUES}};
    size_t i;
    bsr_error e;
    bsr_context *ctx;
    ctx = create_on_hopper(&e);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        bsr_plan plan = BSR_ZERO;
        bsr_exec ex = BSR_ZERO;
        const int64_t n = 48 * cases[i].block_cols;
        bsr_matrix a;
        bsr_dense b, c;
        char line[400];
        char *p[5];
        int j;
        bt_case("blocks of %d x %d, %s", cases[i].block, cases[i].block_cols, bsr_dtype_name(cases[i].dtype));
        arena.used = 0, ex.error = &e, ex.query = &plan, watch.exec = &ex;
        for (j = 0; j < 5; j++) p[j] = aligned(n * n + 512, cases[i].dtype);
        a = bsr_matrix_make(n, n, cases[i].block, cases[i].block_cols, 96, p[0], p[1], BSR_I32, p[2] + (cases[i].shift & 1) * 2,
                            cases[i].dtype);
        b = bsr_dense_row_major(p[3], cases[i].dtype, n, cases[i].columns);
        c = bsr_dense_row_major(p[4], cases[i].dtype, n, cases[i].columns);
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.kernel, cases[i].tier),
            CHECK_INT(plan.refused, cases[i].why);
        bsr_plan_string(&plan, line, sizeof line);
        CHECK(strstr(line, cases[i].tier == 1 ? "simt kernel" : "mma kernel") != NULL);
        CHECK(strstr(line, cases[i].tier == 1 ? "; not mma: " : "; not wgmma: ") != NULL);
        if (getenv("SAY")) puts(line);
    }
    bsr_destroy(ctx);
}

/* Which terms of a sum share a launch, which kernels run then, and what stands in the workspace. */
TEST(sums_of_products) {
    enum { SEVERAL = 1 << 9 };
    static const struct {
        int terms, trans, result, n;
        double alpha;              /* of the second term */
        int64_t k, nnz, places[8]; /* of the second term; where each term's values and b stand, in this order */
        int kernel, launches;
        uint64_t sums;
    } cases[] = {
        {2, 0, BSR_BF16, 4096, 1, 4096, 820, {0, 1, 2, 3}, 3, 1, 0},                     /* both distances forwards */
        {2, 0, BSR_BF16, 4096, 1, 4096, 700, {0, 1, 2, 3}, 3, 1, 0},
        {2, 0, BSR_BF16, 4096, 1, 2048, 400, {0, 1, 2, 3}, 3, 1, 0},                     /* another inner size */
        {2, 0, BSR_BF16, 4096, 1, 4096, 820, {0, 3, 2, 1}, 3, 2, 4096 * 4096 * 4},       /* b backwards: apart */
        {2, 0, BSR_BF16, 64, 1, 4096, 820, {0, 3, 2, 1}, 2, 1, 0},                       /* few columns: all the same */
        {2, 0, BSR_BF16, 4096, 1, 4096, 820, {2, 3, 0, 1}, 3, 1, 0},                     /* both backwards */
        {2, 1, BSR_BF16, 4096, 1, 4096, 820, {2, 3, 0, 1}, 3, 1, 0},
        {2, 0, BSR_BF16, 4096, 2, 4096, 820, {0, 1, 2, 3}, 3, 2, 4096 * 4096 * 4},       /* two alphas */
        {2, 0, BSR_BF16, 4095, 2, 4096, 820, {0, 1, 2, 3}, 0, 2, 4096 * 4096 * 4},       /* rows of whole 16 bytes */
        {2, 0, BSR_F32, 4096, 2, 4096, 820, {0, 1, 2, 3}, 3, 2, 0},                      /* sums stand in out */
        {2, 0, BSR_BF16, 4096, 0, 4096, 820, {0, 1, 2, 3}, 3, 1, 0},                     /* one is nothing */
        {2, 0, BSR_BF16, 4096, 1, 4096, 0, {0, 1, 2, 3}, 3, 1, 0},
        {2, 1, BSR_BF16, 4096, 1, 4096, 820, {0, 1, 2, 3}, 3, 1, 0},                     /* A^T */
        {2, 1, BSR_BF16, 4096, 1, 4096, 700, {0, 1, 2, 3}, 3, 2, 4096 * 4096 * 4},       /* with another number of blocks */
        {3, 0, BSR_BF16, 4096, 1, 4096, 820, {0, 1, 2, 3, 4, 5}, 3, 1, 0},               /* at equal distances */
        {3, 0, BSR_BF16, 4096, 1, 4096, 820, {0, 1, 2, 3, 5, 6}, 3, 2, 4096 * 4096 * 4},
    };
    size_t i;
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    for (i = 0; i < BT_COUNT(cases); i++) {
        const int64_t size = INT64_C(1) << 26, m = 4096;
        bsr_plan plan = BSR_ZERO;
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a[3];
        bsr_dense b[3], out;
        bsr_term terms[3] = {BSR_ZERO};
        char *p[8];
        int t;
        bt_case("case %d", (int)i);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (p[0] = aligned(8 * size, BSR_I8), t = 1; t < 8; t++) p[t] = p[0] + t * size;
        for (t = 0; t < cases[i].terms; t++) {
            const int64_t k = t == 1 ? cases[i].k : 4096, nnz = t == 1 ? cases[i].nnz : 820;
            char *values = p[cases[i].places[2 * t]], *dense = p[cases[i].places[2 * t + 1]];
            a[t] = bsr_matrix_make(cases[i].trans ? k : m, cases[i].trans ? m : k, 64, 64, nnz, values + size / 2,
                                   values + size / 4 * 3, BSR_I32, values, BSR_BF16);
            if (cases[i].trans) a[t].transposed_index = values + size / 8 * 5;
            b[t] = bsr_dense_row_major(dense, BSR_BF16, k, cases[i].n);
            terms[t].a = &a[t], terms[t].b = &b[t], terms[t].alpha = t == 1 ? cases[i].alpha : 1;
            terms[t].trans = cases[i].trans ? BSR_TRANS_A : 0;
        }
        out = bsr_dense_row_major(p[7], cases[i].result, m, cases[i].n);
        ex.query = &plan, ex.workspace = NULL;
        CHECK_INT(bsr_sum_mm(ctx, 0, NULL, terms, cases[i].terms, NULL, &out, &ex), BSR_OK);
        if (cases[i].kernel) CHECK_INT(plan.kernel, cases[i].kernel);
        CHECK_INT((plan.flags & SEVERAL) != 0, cases[i].launches > 1);
        if (cases[i].kernel) CHECK_INT(plan.workspace_bytes, cases[i].sums);
        else CHECK(plan.workspace_bytes >= cases[i].sums);
        ex.query = NULL, ex.workspace = arena.base + arena.size / 2, ex.workspace_bytes = cases[i].sums;
        si_restart();
        CHECK_INT(bsr_sum_mm(ctx, 0, NULL, terms, cases[i].terms, NULL, &out, &ex), BSR_OK);
        CHECK_INT(si.launches, cases[i].launches);
        if (!cases[i].sums) continue;
        ex.workspace_bytes--, si_restart();
        if (cases[i].places[1] > cases[i].places[3]) { /* apart for speed alone */
            CHECK_INT(bsr_sum_mm(ctx, 0, NULL, terms, cases[i].terms, NULL, &out, &ex), BSR_OK), CHECK_INT(si.launches, 1);
            continue;
        }
        CHECK_INT(bsr_sum_mm(ctx, 0, NULL, terms, cases[i].terms, NULL, &out, &ex), BSR_WORKSPACE_TOO_SMALL);
        CHECK_INT(e.value, cases[i].sums), CHECK_INT(si.launches, 0);
    }
    bsr_destroy(ctx);
}

/* Terms share a launch only where either operand is of one type. */
TEST(sums_of_two_types) {
    static const int eights[] = {BSR_E4M3, BSR_E5M2};
    int i;
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    for (i = 0; i < 8; i++) {
        const int block = i < 4 ? 128 : 7, m = block * 3, n = 256;
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a[2];
        bsr_dense b[2], out;
        bsr_term terms[2] = {BSR_ZERO};
        int t;
        bt_case("case %d", i);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (t = 0; t < 2; t++) {
            a[t] = bsr_matrix_make(m, m, block, block, 5, aligned(16, BSR_I32), aligned(16, BSR_I32), BSR_I32,
                                   aligned(5 * block * block, BSR_I8), BSR_E4M3);
            b[t] = bsr_dense_strided(aligned(m * n, BSR_I8), eights[t && i % 2], m, n, 1, m);
            terms[t].a = &a[t], terms[t].b = &b[t], terms[t].alpha = 1;
        }
        out = bsr_dense_row_major(aligned(m * n, BSR_F32), BSR_F32, m, n);
        si_restart();
        CHECK_INT(bsr_sum_mm(ctx, 0, NULL, terms, 2, NULL, &out, &ex), BSR_OK);
        CHECK_INT(si.launches, 1 + i % 2);
    }
    bsr_destroy(ctx);
}

/* What a stage launches: with the workspace that the query names, with a byte less, by a plan that wants it. */
static char stage_names[512];
static void on_stage(const si_launch *l) {
    const char *const what = strstr(l->kernel->name, "copy_views") ? "copy "
                             : strstr(l->kernel->name, "sort_") || strstr(l->kernel->name, "fill_words") ? "index "
                             : strstr(l->kernel->name, "wgmma") || strstr(l->kernel->name, "narrow_tma") ? "wgmma " : "other ";
    if (strcmp(what, "index ") || !strstr(stage_names, what)) strcat(stage_names, what);
}
/* A cache's pages that don't stand at whole pieces of 16 bytes are left to the kernel that takes any; backward plans that a query
   gave run with the workspace that it saw. */
TEST(attention_plans) {
    int i;
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    for (i = 0; i < 3; i++) {
        const int64_t page = 16 * 64 + (i == 1 ? 4 : 0), far = i == 2 ? 4 : 0;
        bsr_exec ex = BSR_ZERO;
        bsr_plan plan = BSR_ZERO;
        bsr_pages pages = BSR_ZERO;
        bsr_attention_options o = BSR_ZERO;
        bsr_matrix mask;
        bsr_dense q, k, v, out;
        bt_case("pages, case %d", i);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        mask = bsr_matrix_make(1, 128, 1, 64, 2, aligned(16, BSR_I32), aligned(16, BSR_I32), BSR_I32, NULL, BSR_BF16);
        q = bsr_dense_row_major(aligned(64, BSR_BF16), BSR_BF16, 1, 64);
        k = bsr_dense_batched(bsr_dense_row_major(aligned(8 * 1040, BSR_BF16), BSR_BF16, 16, 64), 8, page);
        v = bsr_dense_batched(bsr_dense_row_major(aligned(8 * 1040, BSR_BF16), BSR_BF16, 16, 64), 8, 16 * 64 + far);
        out = bsr_dense_row_major(aligned(64, BSR_BF16), BSR_BF16, 1, 64);
        pages.table = (const int32_t *)(const void *)aligned(8, BSR_I32), o.pages = &pages, ex.query = &plan;
        CHECK_INT(bsr_attention(ctx, 1, &q, &k, &v, &mask, &o, &out, NULL, &ex), BSR_OK);
        CHECK_INT(plan.kernel, i ? 1 : 2);
    }
    for (i = 0; i < 40; i++) {
        const int64_t heads = 1 + i % 5, n = 1024;
        bsr_exec ex = BSR_ZERO;
        bsr_plan plan = BSR_ZERO, whole = BSR_ZERO;
        bsr_matrix mask;
        bsr_dense x[8], lse;
        uint64_t kept;
        int t;
        bt_case("backward, case %d", i);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        mask = bsr_matrix_make(n, n, 64, 64, 100, aligned(64, BSR_I32), aligned(128, BSR_I32), BSR_I32, NULL, BSR_BF16);
        for (t = 0; t < 8; t++)
            x[t] = bsr_dense_batched(bsr_dense_row_major(aligned(heads * n * 64, BSR_BF16), BSR_BF16, n, 64), heads, n * 64);
        lse = bsr_dense_batched(bsr_dense_row_major(aligned(heads * n, BSR_F32), BSR_F32, n, 1), heads, n);
#define BACKWARD \
    bsr_attention_backward(ctx, 1, &x[0], &x[1], &x[2], &mask, NULL, &x[3], &lse, &x[4], &x[5], &x[6], &x[7], &ex)
        ex.query = &whole;
        CHECK_INT(BACKWARD, BSR_OK);
        ex.workspace = arena.base + arena.size / 2 / 64 * 64;
        kept = 100 * 64 * 64 * 2 * (uint64_t)heads; /* of scores; the rest is an index, numbers of rows, lists */
        ex.workspace_bytes = i < 5 ? whole.workspace_bytes : (whole.workspace_bytes - kept) * (uint64_t)(40 - i) / 35;
        ex.query = &plan;
        CHECK_INT(BACKWARD, BSR_OK), CHECK(plan.workspace_bytes <= ex.workspace_bytes);
        if (i < 5) CHECK_INT(plan.flags, whole.flags);
        ex.query = NULL, ex.plan = &plan;
        CHECK_INT(BACKWARD, BSR_OK);
    }
#undef BACKWARD
    bsr_destroy(ctx);
}
TEST(row_views) { /* not on CUDA yet: refused before anything is launched */
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    bsr_exec ex = BSR_ZERO;
    bsr_matrix m, v;
    bsr_dense b, c;
    uint64_t bytes = 0;
    char *p[5];
    int j;
    bt_case("refused");
    arena.used = 0, ex.error = &e, stage_names[0] = 0, si.on_launch = on_stage;
    for (j = 0; j < 5; j++) p[j] = aligned(1 << 20, BSR_I8);
    m = bsr_matrix_make(256, 256, 64, 64, 4, p[0], p[1], BSR_I32, p[2], BSR_BF16), v = bsr_matrix_rows(m, 1, 3);
    b = bsr_dense_row_major(p[3], BSR_BF16, 256, 64), c = bsr_dense_row_major(p[4], BSR_BF16, 128, 64);
    CHECK_INT(bsr_dense_mm(ctx, 0, &v, &b, &c, &ex), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_ROW_VIEW);
    CHECK_INT(bsr_softmax(ctx, 1, &v, NULL, &v, &ex), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_ROW_VIEW);
    CHECK_INT(bsr_attention(ctx, 0, &c, &b, &b, &v, NULL, &c, NULL, &ex), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_ROW_VIEW);
    CHECK_INT(bsr_transposed_index_size(ctx, &v, &bytes, &ex), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_ROW_VIEW);
    CHECK_INT(bsr_validate(ctx, &v, &ex), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_ROW_VIEW);
    CHECK_INT(bsr_dense_mm(ctx, 0, &m, &b, &c, &ex), BSR_BAD_SHAPE), CHECK(!stage_names[0]);
    si.on_launch = on_launch;
    bsr_destroy(ctx);
}
TEST(stages) {
    enum { DENSE = 1 << 3, OUT = 1 << 4, ITEMS = 1 << 6, INDEX = 1 << 7 };
    static const struct {
        int dtype, n, pad, odd_b, odd_out, columns, items, trans, input, sampled;
        uint32_t flags;
        const char *launches;
    } cases[] = {
        {BSR_BF16, 4096, 0, 0, 0, 0, 1, 0, 0, 0, 0, "wgmma "},
        {BSR_BF16, 4095, 0, 0, 0, 0, 1, 0, 0, 0, DENSE | OUT, "copy wgmma copy "},
        {BSR_F16, 4095, 0, 0, 0, 0, 1, 0, 1, 0, DENSE, "copy wgmma "}, /* an input of its own would be copied, too */
        {BSR_BF16, 4095, 0, 0, 0, 1, 1, 0, 0, 0, 0, "wgmma "},
        {BSR_BF16, 4096, 1, 0, 0, 0, 1, 0, 0, 0, DENSE | OUT, "copy wgmma copy "},
        {BSR_BF16, 4096, 3, 0, 0, 1, 1, 0, 0, 0, DENSE | OUT, "copy wgmma copy "},
        {BSR_BF16, 4096, 8, 0, 0, 0, 1, 0, 0, 0, 0, "wgmma "},
        {BSR_BF16, 4096, 0, 1, 0, 0, 1, 0, 0, 0, DENSE, "copy wgmma "},
        {BSR_BF16, 4096, 0, 0, 1, 0, 1, 0, 0, 0, OUT, "wgmma copy "},
        {BSR_I8, 4096, 0, 0, 0, 0, 1, 0, 0, 0, 0, "other "}, /* turning it would take what is gained */
        {BSR_I8, 4096, 0, 0, 0, 1, 1, 0, 0, 0, 0, "wgmma "},
        {BSR_BF16, 8, 0, 0, 0, 0, 512, 0, 0, 0, DENSE | OUT | ITEMS, "copy wgmma copy "},
        {BSR_BF16, 8, 0, 0, 0, 1, 512, 0, 0, 0, 0, "wgmma "}, /* columns of all items follow each other */
        {BSR_BF16, 4096, 0, 0, 0, 0, 1, 1, 0, 0, INDEX, "index wgmma "},
        {BSR_BF16, 4095, 0, 0, 0, 0, 1, 1, 0, 0, INDEX | DENSE | OUT, "index copy wgmma copy "},
        {BSR_BF16, 4095, 0, 0, 0, 0, 1, 0, 0, 1, DENSE, "copy wgmma "},
        {BSR_BF16, 4096, 0, 0, 0, 0, 1, 0, 0, 1, 0, "wgmma "}};
    size_t i;
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    for (i = 0; i < BT_COUNT(cases); i++) {
        const int dt = cases[i].dtype, result = dt == BSR_I8 ? BSR_I32 : dt, columns = cases[i].columns;
        const int64_t m = 4096, n = cases[i].n, line = (columns ? m : n) + cases[i].pad, size = (int64_t)bsr_dtype_size(dt);
        bsr_plan plan = BSR_ZERO, again = BSR_ZERO;
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, c, in;
        char *p[6];
        int j;
        bt_case("%s, %d columns, case %d", bsr_dtype_name(dt), (int)n, (int)i);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (j = 0; j < 6; j++) p[j] = aligned(INT64_C(1) << 28, BSR_I8);
        a = bsr_matrix_make(m, m, 64, 64, 820, p[0], p[1], BSR_I32, p[2], cases[i].sampled ? result : dt);
        b = bsr_dense_strided(p[3] + cases[i].odd_b * size, dt, m, n, columns ? 1 : line, columns ? line : 1), c = b;
        c.data = p[4] + cases[i].odd_out * (int64_t)bsr_dtype_size(result), c.dtype = result;
        if (cases[i].items > 1)
            b = bsr_dense_batched(b, cases[i].items, m * n), c = bsr_dense_batched(c, cases[i].items, m * n);
        in = c, in.data = p[5] + 2;
        if (cases[i].sampled) c = bsr_dense_strided(p[4], dt, n, m, m, 1);
#define CALL()                                                                                                \
    (cases[i].sampled ? bsr_sampled_addmm(ctx, 0, NULL, 1, &b, &c, &a, &ex)                                   \
                      : bsr_dense_addmm(ctx, cases[i].input, &in, 1, cases[i].trans ? BSR_TRANS_A : 0, &a, &b, NULL, &c, &ex))
        ex.query = &plan;
        CHECK_INT(CALL(), BSR_OK), CHECK_INT(plan.flags, cases[i].flags);
        CHECK_INT(plan.workspace_bytes > 0, cases[i].flags != 0);
        ex.query = NULL, ex.workspace = arena.base + arena.size / 2, ex.workspace_bytes = plan.workspace_bytes;
        si.on_launch = on_stage, stage_names[0] = 0;
        CHECK_INT(CALL(), BSR_OK), CHECK(!strcmp(stage_names, cases[i].launches));
        if (strcmp(stage_names, cases[i].launches)) printf("     case %d: %s\n", (int)i, stage_names);
        ex.plan = &plan, stage_names[0] = 0; /* its plan: the same; with less it is refused */
        CHECK_INT(CALL(), BSR_OK), CHECK(!strcmp(stage_names, cases[i].launches));
        if (plan.workspace_bytes) {
            ex.workspace_bytes = plan.workspace_bytes - 1, stage_names[0] = 0;
            ex.query = &again, ex.plan = NULL; /* a query plans for the workspace that it has */
            CHECK_INT(CALL(), BSR_OK), CHECK(again.workspace_bytes < plan.workspace_bytes);
            ex.query = NULL, ex.plan = &plan;
            CHECK_INT(CALL(), BSR_WORKSPACE_TOO_SMALL), CHECK_INT(e.value, plan.workspace_bytes);
            ex.plan = NULL; /* no plan: it runs by another way */
            CHECK_INT(CALL(), BSR_OK), CHECK(strcmp(stage_names, cases[i].launches) != 0);
            ex.workspace_bytes = plan.workspace_bytes, ex.workspace = p[3]; /* not in an operand */
            CHECK_INT(CALL(), BSR_OVERLAP);
            ex.workspace = NULL, ex.query = &again, ex.plan = &plan; /* asked for again: the same */
            CHECK_INT(CALL(), BSR_OK), CHECK_INT(again.flags, plan.flags), CHECK_INT(again.instance, plan.instance);
        }
        ex.plan = NULL, ex.query = NULL, ex.workspace = NULL, ex.workspace_bytes = 0, stage_names[0] = 0;
        CHECK_INT(CALL(), BSR_OK), CHECK(!strstr(stage_names, "copy"));
        si.on_launch = on_launch;
#undef CALL
    }
    bsr_destroy(ctx);
}

/* Small and odd blocks with many columns are laid as tiles; a plan that a query gave for any workspace runs with as much. */
TEST(tiles) {
    static const int64_t shapes[][2] = {{1, 1}, {3, 3}, {5, 7}, {8, 8}, {24, 24}, {1, 64}};
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    int i, w, k;
    for (i = 0; i < 24; i++) {
        const int64_t br = shapes[i / 4][0], bc = shapes[i / 4][1], rows = 4096 / br, cols = 4096 / bc;
        const int64_t n = i % 4 < 2 ? 4096 : 4095, trans = i % 2;
        uint64_t most;
        bsr_plan plan = BSR_ZERO, only = BSR_ZERO;
        bsr_tune_row key;
        bsr_exec ex = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, c;
        char *p[5];
        bt_case("%d x %d, %d columns%s", (int)br, (int)bc, (int)n, trans ? ", A^T" : "");
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (k = 0; k < 5; k++) p[k] = aligned(INT64_C(1) << 27, BSR_I8);
        a = bsr_matrix_make(rows * br, cols * bc, br, bc, rows * cols / 5, p[0], p[1], BSR_I32, p[2], BSR_BF16);
        b = bsr_dense_row_major(p[3], BSR_BF16, trans ? a.rows : a.cols, n);
        c = bsr_dense_row_major(p[4], BSR_BF16, trans ? a.cols : a.rows, n);
#define CALL() (si_restart(), watch.tiled = watch.gated = 0, bsr_dense_mm(ctx, trans ? BSR_TRANS_A : 0, &a, &b, &c, &ex))
        ex.query = &plan, ex.key = &key;
        CHECK_INT(CALL(), BSR_OK), CHECK(plan.flags & BSR_PLAN_RETILES);
        CHECK_INT(key.block_rows, trans ? bc : br), CHECK_INT(key.block_cols, trans ? br : bc); /* the call's, not the tiles' */
        most = plan.workspace_bytes, ex.key = NULL, ex.workspace = arena.base + arena.size / 2;
        for (w = 0; w < 6; w++) {
            const uint64_t offered = w == 0 ? most : w == 1 ? most - 1 : w == 2 ? most - 4096 : most >> (w - 2);
            ex.workspace_bytes = offered, ex.query = &plan, ex.plan = NULL;
            CHECK_INT(CALL(), BSR_OK), CHECK(plan.workspace_bytes <= offered);
            for (k = 0; k < 3; k++) {
                ex.query = NULL, ex.plan = k ? &plan : NULL, ex.workspace_bytes = k == 2 ? plan.workspace_bytes : offered;
                CHECK_INT(CALL(), BSR_OK), CHECK_INT(watch.tiled, (plan.flags & BSR_PLAN_RETILES) != 0);
                if (watch.wrong[0]) bt_fail(__FILE__, __LINE__, "%s", watch.wrong), watch.wrong[0] = 0;
            }
        }
        only.flags = BSR_PLAN_RETILES, ex.plan = &only, ex.workspace_bytes = most;
        CHECK_INT(CALL(), BSR_OK), CHECK(watch.tiled);
#undef CALL
    }
    bsr_destroy(ctx);
}

/* Rows of queries, keys and values that start anywhere are copied. The copies have the workspace: kernels for few queries, which
   keep sums of parts there else, get none. */
TEST(stages_of_attention) {
    enum { DENSE = 1 << 3 };
    int k;
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    for (k = 0; k < 16; k++) {
        const int few = k % 2, odd = k / 2 % 2, slopes = k / 4 % 2 && !few, narrow = k / 8;
        const int64_t rows = few ? 1 : 4096, keys = 16384, d = narrow ? 72 : 128, line = d + odd, heads = 8;
        bsr_plan plan = BSR_ZERO;
        bsr_exec ex = BSR_ZERO;
        bsr_attention_options o = BSR_ZERO;
        bsr_matrix mask;
        bsr_dense q, kv, out, number;
        char *p[5];
        int j;
        bt_case("%d queries, lines of %d%s", (int)rows, (int)line, slopes ? ", slopes" : "");
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (j = 0; j < 5; j++) p[j] = aligned(INT64_C(1) << 28, BSR_I8);
        mask = bsr_matrix_make(few ? 64 : rows, keys, 64, 64, (few ? 1 : rows / 64) * (keys / 64), p[0], p[0] + (1 << 24),
                               BSR_I32, NULL, BSR_BOOL);
        q = bsr_dense_batched(bsr_dense_strided(p[1], BSR_BF16, rows, d, line, 1), heads, rows * line);
        kv = bsr_dense_batched(bsr_dense_strided(p[2], BSR_BF16, keys, d, line, 1), heads, keys * line);
        out = bsr_dense_batched(bsr_dense_row_major(p[3], BSR_BF16, rows, d), heads, rows * d);
        number = bsr_dense_row_major(p[4], BSR_F32, 1, 1);
        if (slopes) o.slopes = &number;
#define CALL() bsr_attention(ctx, 0, &q, &kv, &kv, &mask, &o, &out, NULL, &ex)
        ex.query = &plan;
        CHECK_INT(CALL(), BSR_OK), CHECK_INT((plan.flags & DENSE) != 0, odd), CHECK(plan.kernel > 1);
        if (few && odd) CHECK(plan.split <= 1);
        if (few && !odd) CHECK(plan.split > 1);
        ex.query = NULL, ex.workspace = arena.base + arena.size / 2, ex.workspace_bytes = plan.workspace_bytes;
        si.on_launch = on_stage;
        for (j = 0; j < 2; j++) { /* then by its plan */
            stage_names[0] = 0, ex.plan = j ? &plan : NULL;
            CHECK_INT(CALL(), BSR_OK), CHECK_INT(!strncmp(stage_names, "copy ", 5), odd);
        }
        if (odd) {
            ex.workspace_bytes = plan.workspace_bytes - 1;
            CHECK_INT(CALL(), BSR_WORKSPACE_TOO_SMALL), CHECK_INT(e.value, plan.workspace_bytes);
            ex.plan = NULL, stage_names[0] = 0;
            CHECK_INT(CALL(), BSR_OK), CHECK(!strstr(stage_names, "copy"));
        }
        si.on_launch = on_launch;
#undef CALL
    }
    bsr_destroy(ctx);
}

/* A product, and the plan that the heuristic is to choose. */
typedef struct planned {
    int dtype, m, k, n, block, sparsity, columns, tier, rows, cols;
} planned;
static int check_plan(const bsr_context *ctx, const planned *x, int scheduled) { /* its split */
    const int64_t blocks = (int64_t)(x->m / x->block) * (x->k / x->block) * (100 - x->sparsity) / 100;
    const int result = x->dtype == BSR_I8 ? BSR_I32 : x->dtype;
    bsr_plan plan = BSR_ZERO;
    bsr_exec ex = BSR_ZERO;
    bsr_error e;
    bsr_matrix a;
    bsr_dense b, c;
    void *p[6];
    int j;
    bt_case("%s %d x %d x %d, blocks of %d, %d %%%s", bsr_dtype_name(x->dtype), x->m, x->k, x->n, x->block, x->sparsity,
            scheduled ? ", a schedule" : "");
    arena.used = 0, ex.error = &e, ex.query = &plan, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
    for (j = 0; j < 6; j++) p[j] = aligned(INT64_C(1) << 30, BSR_I8);
    a = bsr_matrix_make(x->m, x->k, x->block, x->block, blocks, p[0], p[1], BSR_I32, p[2], x->dtype);
    if (scheduled) a.schedule = p[5];
    b = x->columns ? bsr_dense_col_major(p[3], x->dtype, x->k, x->n) : bsr_dense_row_major(p[3], x->dtype, x->k, x->n);
    c = bsr_dense_row_major(p[4], result, x->m, x->n);
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
    CHECK_INT(plan.kernel, x->tier), CHECK_INT(plan.tile_rows, x->rows), CHECK_INT(plan.tile_cols, x->cols);
    return plan.split;
}
/* What the estimate of tiles chooses on an H200, where measuring found the same tile and the next best at least a tenth slower
   (columns: the dense operand's are contiguous). Here to notice a constant that is lost, or cut to a whole number; new constants
   (tests/fit_plans.py) may move a line or two, which then must be measured. */
TEST(plans_are_the_fastest) {
    static const planned cases[] = {
        {BSR_BF16, 3072, 2560, 1536, 16, 50, 1, 3, 128, 256}, {BSR_BF16, 2560, 512, 16384, 16, 70, 0, 3, 128, 256},
        {BSR_BF16, 8192, 1536, 8192, 16, 70, 0, 3, 128, 256}, {BSR_BF16, 6144, 8192, 3072, 32, 80, 0, 3, 128, 256},
        {BSR_BF16, 6144, 8192, 6144, 32, 90, 0, 3, 128, 256}, {BSR_BF16, 3072, 384, 4096, 32, 60, 0, 2, 32, 64},
        {BSR_BF16, 1536, 1536, 1024, 16, 70, 0, 2, 16, 64},   {BSR_BF16, 11008, 2560, 512, 16, 95, 0, 2, 16, 128},
        {BSR_BF16, 2048, 2048, 512, 32, 50, 0, 2, 32, 64},    {BSR_BF16, 1024, 11008, 1024, 32, 90, 0, 2, 32, 64},
        {BSR_BF16, 640, 1024, 96, 128, 80, 0, 3, 64, 64},     {BSR_BF16, 256, 256, 4096, 64, 50, 0, 3, 64, 64},
        {BSR_BF16, 256, 256, 4096, 128, 50, 0, 3, 64, 64},    {BSR_BF16, 384, 1280, 2048, 128, 30, 0, 3, 64, 128},
        {BSR_BF16, 14336, 4096, 256, 64, 90, 1, 3, 64, 128},  {BSR_BF16, 5120, 4096, 4096, 128, 90, 0, 3, 128, 256},
        {BSR_BF16, 6144, 256, 8192, 128, 80, 0, 3, 64, 128},  {BSR_BF16, 384, 512, 65536, 64, 85, 0, 3, 64, 128},
        {BSR_BF16, 1024, 1024, 1024, 64, 90, 0, 3, 64, 64},
        {BSR_BF16, 4096, 768, 4096, 64, 90, 0, 3, 64, 128},   {BSR_F32, 8192, 384, 96, 16, 50, 0, 2, 64, 128},
        {BSR_F32, 11008, 512, 320, 16, 95, 0, 2, 128, 128},   {BSR_F32, 640, 512, 512, 64, 70, 0, 2, 64, 128},
        {BSR_F32, 4096, 256, 6144, 64, 95, 0, 2, 128, 128},   {BSR_I8, 2048, 256, 768, 32, 30, 1, 2, 128, 128},
        {BSR_I8, 1024, 6144, 12288, 32, 80, 1, 2, 128, 128},  {BSR_I8, 2048, 8192, 64, 64, 70, 1, 2, 64, 128},
        {BSR_I8, 2048, 8192, 160, 64, 90, 1, 2, 64, 128},     {BSR_I8, 4096, 4096, 4096, 64, 80, 1, 3, 128, 256},
        {BSR_BF16, 1024, 8192, 16, 64, 0, 0, 3, 32, 16},      {BSR_BF16, 384, 8192, 32, 128, 80, 0, 3, 32, 32},
        {BSR_BF16, 256, 2560, 64, 128, 30, 0, 3, 32, 32},     {BSR_BF16, 8192, 5120, 8, 128, 98, 1, 3, 64, 8},
        {BSR_BF16, 14336, 14336, 16, 64, 95, 0, 3, 64, 16},   {BSR_BF16, 11008, 1536, 32, 64, 80, 0, 3, 64, 32},
        {BSR_BF16, 2560, 14336, 4, 16, 50, 1, 2, 16, 8},      {BSR_BF16, 512, 5120, 16, 32, 30, 0, 2, 16, 16},
        {BSR_BF16, 512, 11008, 24, 16, 60, 0, 2, 16, 32},     {BSR_BF16, 640, 14336, 48, 32, 70, 1, 2, 16, 64},
        {BSR_BF16, 640, 14336, 48, 32, 70, 0, 2, 32, 64},     {BSR_BF16, 3072, 14336, 1536, 16, 80, 1, 3, 128, 256},
        {BSR_BF16, 4096, 1600, 8192, 64, 70, 0, 3, 128, 256}, {BSR_BF16, 11008, 7168, 384, 128, 80, 0, 3, 128, 128},
        {BSR_BF16, 8192, 768, 192, 16, 95, 0, 2, 16, 64},     {BSR_BF16, 4096, 1024, 320, 16, 95, 0, 2, 16, 64},
        {BSR_BF16, 768, 384, 24, 16, 95, 0, 2, 16, 64},       {BSR_BF16, 2560, 11008, 8, 32, 30, 0, 2, 16, 8},
        {BSR_BF16, 1280, 14336, 2048, 16, 90, 0, 2, 16, 128}, {BSR_BF16, 3072, 768, 50432, 32, 95, 0, 2, 32, 64}};
    static const planned two = {BSR_BF16, 256, 256, 2048, 32, 50, 0, 2, 32, 64}; /* 3.2 us, by four warps a row 3.4 */
    size_t i;
    bsr_error e;
    bsr_context *ctx;
    ctx = create_on_hopper(&e);
    for (i = 0; i < BT_COUNT(cases); i++) check_plan(ctx, &cases[i], 0);
    CHECK_INT(check_plan(ctx, &two, 0), 2);
    bsr_destroy(ctx);
}

/* A plan of a short product runs that product with any other epilogue as well, with the same tile. The last one would
   have tiles of 128 columns with alpha alone. */
TEST(plans_serve_other_epilogues) {
    static const int cases[][5] = {{8192, 2048, 2048, 32, 95}, {256, 256, 32768, 32, 50}, {3072, 768, 4096, 64, 90},
                                   {256, 256, 512, 32, 50},    {512, 512, 1024, 16, 80},  {8192, 2048, 2048, 16, 95}};
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    size_t i;
    int j, first;
    for (i = 0; i < BT_COUNT(cases); i++) {
        const int *x = cases[i], last = i + 1 == BT_COUNT(cases);
        const int64_t blocks = (int64_t)(x[0] / x[3]) * (x[1] / x[3]) * (100 - x[4]) / 100;
        bsr_plan asked = BSR_ZERO, of[4];
        bsr_exec ex = BSR_ZERO;
        bsr_epilogue f[4] = {BSR_ZERO, BSR_ZERO, BSR_ZERO, BSR_ZERO};
        bsr_matrix a;
        bsr_dense b, c, bias, input;
        void *p[7];
        bt_case("%d x %d x %d, blocks of %d, %d %%", x[0], x[1], x[2], x[3], x[4]);
        arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, watch.exec = &ex;
        for (j = 0; j < 7; j++) p[j] = aligned(INT64_C(1) << 28, BSR_I8);
        a = bsr_matrix_make(x[0], x[1], x[3], x[3], blocks, p[0], p[1], BSR_I32, p[2], BSR_BF16);
        b = bsr_dense_row_major(p[3], BSR_BF16, x[1], x[2]), c = bsr_dense_row_major(p[4], BSR_BF16, x[0], x[2]);
        bias = bsr_dense_row_major(p[5], BSR_BF16, 1, x[2]), input = bsr_dense_row_major(p[6], BSR_BF16, x[0], x[2]);
        f[1].bias = f[2].bias = &bias, f[2].activation = BSR_ACT_GELU; /* alpha; bias; bias and GELU; an input */
        for (first = 0; first < 4; first++) {
            asked.kernel = 2, asked.tile_rows = x[3] == 16 ? 16 : 32, asked.split = 1, ex.plan = &asked, ex.query = &of[first];
            if (last) asked.tile_cols = 64;
            CHECK_INT(bsr_dense_addmm(ctx, first == 3, first == 3 ? &input : NULL, 2, 0, &a, &b, &f[first], &c, &ex), BSR_OK);
            CHECK_INT(of[first].reason, BSR_WHY_SHORT);
        }
        ex.query = NULL;
        for (first = 0; first < 4; first++)
            for (j = 0; j < 4; j++) {
                ex.plan = &of[first];
                CHECK_INT(bsr_dense_addmm(ctx, j == 3, j == 3 ? &input : NULL, 2, 0, &a, &b, &f[j], &c, &ex), BSR_OK);
            }
    }
    bsr_destroy(ctx);
}

/* A gradient over a batch of no items is zeros by tier simt: the others write a tile after its last list, and have none. */
TEST(sums_of_no_items) {
    const bsr_operand none = {NULL, NULL};
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    int items, stored, j;
    for (items = 0; items < 2; items++)
        for (stored = 0; stored < 2; stored++) { /* b's gradient; a's, at its stored blocks */
            bsr_plan plan, asked = BSR_ZERO;
            bsr_exec ex = BSR_ZERO;
            bsr_matrix a, da;
            bsr_dense b, dc, db;
            void *p[8];
            bt_case("%d items%s", items, stored ? ", at stored blocks" : "");
            arena.used = 0, ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE, ex.plan = &asked, watch.exec = &ex;
            for (j = 0; j < 8; j++) p[j] = aligned(INT64_C(1) << 22, BSR_I8);
            a = da = bsr_matrix_make(1024, 1024, 64, 64, 128, p[0], p[1], BSR_I32, p[2], BSR_BF16), da.values = p[7];
            b = bsr_dense_row_major(p[3], BSR_BF16, 1024, 256), db = bsr_dense_row_major(p[5], BSR_BF16, 1024, 256);
            dc = bsr_dense_batched(bsr_dense_row_major(p[4], BSR_BF16, 1024, 256), items, 1024 * 256);
            if (stored) b = bsr_dense_batched(b, items, 1024 * 256);
            else a.schedule = p[6], a = bsr_matrix_batched(a, items, 17, 128, 128 * 64 * 64);
            for (j = 0; j < 4; j++) { /* what runs; tiers mma, wgmma; the call itself */
                asked.kernel = j % 3 ? j + 1 : 0, ex.query = j < 3 ? &plan : NULL;
                CHECK_INT(bsr_matmul_backward(ctx, BSR_TRANS_A, bsr_operand_sparse(&a), bsr_operand_dense(&b),
                                              bsr_operand_dense(&dc), stored ? bsr_operand_sparse(&da) : none,
                                              stored ? none : bsr_operand_dense(&db), &ex),
                          j % 3 && !items ? BSR_BAD_PLAN : BSR_OK);
                if (j == 0) CHECK(items ? plan.kernel > 1 : plan.kernel == 1);
            }
        }
    bsr_destroy(ctx);
}

/* A schedule makes large tiles faster, which decides where another kernel is about as fast without one. On an H200, us, by tiles
   of 128 x 256 with a schedule and by what is chosen without: 22.9 and 28.0, 25.5 and 26.2, 22.3 and 22.5; blocks of 16 58.1
   and 60.4, of 32 40.3 and 43.5. The last two have short tiles, faster even so: 31.7, large ones 37.7, and 46.2, 47.5. */
TEST(schedules_decide) {
    static const planned cases[] = {{BSR_BF16, 4096, 4096, 4096, 128, 95, 0, 3, 128, 256},
                                    {BSR_BF16, 4096, 4096, 4096, 64, 95, 0, 3, 128, 256},
                                    {BSR_BF16, 8192, 2048, 2048, 128, 90, 0, 3, 128, 256},
                                    {BSR_BF16, 4096, 4096, 4096, 16, 95, 0, 3, 128, 256},
                                    {BSR_BF16, 4096, 4096, 4096, 32, 95, 0, 3, 128, 256},
                                    {BSR_BF16, 8192, 2048, 2048, 16, 95, 0, 2, 16, 128},
                                    {BSR_BF16, 4096, 1024, 8192, 32, 90, 0, 2, 32, 64}};
    static const planned few = {BSR_BF16, 96, 4096, 65536, 16, 30, 0, 3, 128, 256}; /* rows that fill no group */
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    size_t i;
    for (i = 0; i < BT_COUNT(cases); i++) check_plan(ctx, &cases[i], 1);
    check_plan(ctx, &few, 0), check_plan(ctx, &few, 1);
    bsr_destroy(ctx);
}

/* Tuned rows: taken where they can run, passed over where they can't; a GPU that no table knows is warned of once. */
static int warned, warned_slow, warned_transpose;
static void on_log(int level, int item, const char *message, void *user) {
    (void)user;
    if (level != BSR_LOG_WARN || !message[0]) return;
    warned += item == BSR_ITEM_TUNE_DEFAULTS;
    warned_slow += item == BSR_ITEM_SLOW_PATH;
    warned_transpose += item == BSR_ITEM_SLOW_TRANSPOSE;
}
/* What is ten times slower than its neighbour is told, once per key; what is not stays quiet. */
TEST(slow_paths) {
    enum { VALUES = 1, DENSE = 2, TURNED = 4, INDEX = 8, QUIET = 16, ROOM = 32, SCATTER = 64, TF32 = 128 };
    static const struct {
        int dtype;
        int64_t block, n;
        int how, slow, transpose;
    } cases[] = {
        {BSR_BF16, 64, 512, 0, 0, 0},           {BSR_BF16, 64, 512, VALUES, 1, 0},       {BSR_F16, 64, 512, DENSE, 0, 0},
        {BSR_F16, 64, 512, DENSE | ROOM, 0, 0}, {BSR_BF16, 33, 512, 0, 1, 0},            {BSR_I8, 64, 512, VALUES, 1, 0},
        {BSR_BF16, 8, 512, 0, 1, 0},            {BSR_BF16, 8, 1, 0, 0, 0},               {BSR_F64, 3, 1, 0, 0, 0},
        {BSR_F64, 3, 512, 0, 0, 0},             {BSR_F64, 64, 512, VALUES, 0, 0},        {BSR_F64, 65, 512, 0, 0, 0},
        {BSR_F32, 64, 512, VALUES, 0, 0},       {BSR_F32, 64, 512, VALUES | TF32, 1, 0}, {BSR_BF16, 64, 512, TURNED, 0, 1},
        {BSR_F64, 3, 1, TURNED, 0, 1},          {BSR_BF16, 64, 512, TURNED | ROOM, 0, 0},
        {BSR_BF16, 64, 512, VALUES | QUIET, 0, 0},
        {BSR_BF16, 64, 512, SCATTER, 0, 0}, /* by rows */
        {BSR_F32, 64, 512, DENSE | TF32, 1, 0},
    };
    size_t i;
    int j;
    use_devices(hopper, NULL);
    for (i = 0; i < BT_COUNT(cases); i++) {
        const int how = cases[i].how, dt = cases[i].dtype;
        const int64_t block = cases[i].block, m = block * 16, size = (int64_t)bsr_dtype_size(dt), n = cases[i].n;
        bsr_context_desc d = BSR_ZERO;
        bsr_context *ctx;
        bsr_error e;
        bsr_exec ex = BSR_ZERO;
        bsr_plan plan = BSR_ZERO;
        bsr_matrix a;
        bsr_dense b, c;
        char *p[5];
        bt_case("case %d", (int)i);
        d.backend = BSR_BACKEND_CUDA, d.logger.func = on_log, si_restart(), arena.used = 0;
        watch.device = hopper, watch.exec = &ex;
        CHECK_INT(bsr_create(&d, &ctx, &e), BSR_OK);
        for (j = 0; j < 5; j++) p[j] = aligned(INT64_C(1) << 24, BSR_I8);
        a = bsr_matrix_make(m, m, block, block, 128, p[0], p[1], BSR_I32, p[2] + (how & VALUES ? size : 0), dt);
        b = bsr_dense_row_major(p[3] + (how & DENSE ? size : 0), dt, m, n), c = b, c.data = p[4];
        if (dt == BSR_I8) b = bsr_dense_col_major(p[3], dt, m, n), c.dtype = BSR_I32;
        ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE | (how & QUIET ? BSR_EXEC_NO_LOG : 0u) | (how & TF32 ? BSR_EXEC_TF32 : 0u);
        warned_slow = warned_transpose = 0;
        for (j = 0; j < 3; j++) {
            const uint32_t trans = how & TURNED ? BSR_TRANS_A : 0u;
            bsr_scatter_indices x = lists(BSR_SCATTER_STRIDED, 1, 16, 17, 128);
            ex.query = &plan, ex.workspace = NULL, ex.workspace_bytes = 0; /* a query is quiet */
            if (how & ROOM) CHECK_INT(bsr_dense_mm(ctx, trans, &a, &b, &c, &ex), BSR_OK);
            ex.query = NULL, ex.workspace_bytes = how & ROOM ? plan.workspace_bytes : 0;
            if (how & ROOM) ex.workspace = arena.base + arena.size / 2;
            CHECK_INT(how & SCATTER ? bsr_dense_scatter_mm(ctx, &a, &b, &x, &c, &ex) : bsr_dense_mm(ctx, trans, &a, &b, &c, &ex),
                      BSR_OK);
        }
        CHECK_INT(warned_slow, cases[i].slow), CHECK_INT(warned_transpose, cases[i].transpose);
        bsr_destroy(ctx);
    }
}
/* The second product of a chain is launched as with BSR_EXEC_CONSTANT_MATRIX where the first one's kernel waits for what was
   before it, else as alone; the first one as alone. */
static si_launch seen[8];
static int seen_count;
static void on_chain_launch(const si_launch *l) {
    if (seen_count < 8) seen[seen_count++] = *l;
    on_launch(l);
}
TEST(chains) {
    static const struct {
        int n, a_block;
        int64_t h; /* a: H x 4096; c: 14336 x H, blocks of 64 */
        uint32_t flags;
        int waits, narrow[2]; /* which kernels are of few columns, by tensor loads */
    } cases[] = {{8, 64, 4096, 0, 1, {1, 1}},
                 {16, 64, 4096, 0, 1, {1, 1}},
                 {8, 64, 4096, BSR_EXEC_CONSTANT_MATRIX, 0, {1, 1}},
                 {64, 64, 4096, 0, 1, {1, 1}},
                 {8, 64, 2048, 0, 1, {1, 1}},
                 {4096, 64, 4096, 0, 0, {0, 0}},
                 {8, 16, 4096, 0, 0, {0, 1}},
                 {8, 128, 14336, 0, 1, {1, 1}}};
    bsr_error e;
    bsr_context *ctx = create_on_hopper(&e);
    size_t i;
    for (i = 0; i < BT_COUNT(cases); i++) {
        const int64_t k = 4096, r = 14336, h = cases[i].h, n = cases[i].n, block = cases[i].a_block;
        const int64_t stored[2] = {h / block * (k / block) / 10, r / 64 * (h / 64) / 10};
        const bsr_matrix a = bsr_matrix_make(h, k, block, block, stored[0], aligned(h, BSR_I32), aligned(stored[0], BSR_I32),
                                             BSR_I32, aligned(stored[0] * block * block, BSR_BF16), BSR_BF16);
        const bsr_matrix c = bsr_matrix_make(r, h, 64, 64, stored[1], aligned(r, BSR_I32), aligned(stored[1], BSR_I32), BSR_I32,
                                             aligned(stored[1] * 4096, BSR_BF16), BSR_BF16);
        const bsr_dense b = bsr_dense_row_major(aligned(k * n, BSR_BF16), BSR_BF16, k, n);
        const bsr_dense middle = bsr_dense_row_major(aligned(h * n, BSR_BF16), BSR_BF16, h, n);
        const bsr_dense out = bsr_dense_row_major(aligned(r * n, BSR_BF16), BSR_BF16, r, n);
        bsr_exec ex = BSR_ZERO;
        int step;
        bt_case("case %d", (int)i);
        ex.error = &e, ex.flags = BSR_EXEC_NO_TABLE | cases[i].flags, watch.exec = &ex, seen_count = 0;
        si.on_launch = on_chain_launch;
        CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &middle, &ex), BSR_OK);
        if (cases[i].waits) ex.flags |= BSR_EXEC_CONSTANT_MATRIX;
        CHECK_INT(bsr_dense_mm(ctx, 0, &c, &middle, &out, &ex), BSR_OK);
        ex.flags = BSR_EXEC_NO_TABLE | cases[i].flags;
        CHECK_INT(bsr_chain_mm(ctx, 0, &a, &b, NULL, &middle, 0, NULL, 1, &c, NULL, &out, &ex), BSR_OK);
        si.on_launch = on_launch;
        CHECK_INT(seen_count, 4);
        for (step = 0; step < 2 && seen_count == 4; step++) {
            const si_launch *alone = &seen[step], *here = &seen[step + 2];
            CHECK(alone->kernel == here->kernel), CHECK_INT(here->grid[0], alone->grid[0]);
            CHECK_INT(here->block[0], alone->block[0]), CHECK_INT(here->dynamic_shared, alone->dynamic_shared);
            CHECK_INT(strstr(here->kernel->name, "narrow_tma") != NULL, cases[i].narrow[step]);
        }
        arena.used = 0;
    }
    bsr_destroy(ctx);
}
TEST(tuned_rows) {
    bsr_tune_gpu gpus[2], gpu;
    bsr_tune_row rows[4], key;
    bsr_tune_table t = BSR_ZERO;
    bsr_context_desc d = BSR_ZERO;
    bsr_plan plan = BSR_ZERO;
    bsr_exec ex = BSR_ZERO;
    bsr_context *ctx;
    bsr_matrix a;
    bsr_dense b, c;
    bsr_error e;
    void *p[5];
    const bsr_tune_table built_in = bsr_tune_built_in();
    int i, ours = 0; /* rows of this architecture in tune_table.h */
    for (i = 0; i < built_in.gpu_count; i++) ours |= built_in.gpus[i].arch == 90;
    use_devices(hopper, NULL);
    t.gpus = gpus, t.rows = rows, t.gpu_capacity = 2, t.row_capacity = 4;
    d.backend = BSR_BACKEND_CUDA, d.table = &t, d.logger.func = on_log;
    si_restart();
    CHECK_INT(bsr_create(&d, &ctx, &e), BSR_OK), CHECK_INT(bsr_tune_device(ctx, &gpu), BSR_OK);
    CHECK_INT(gpu.arch, 90), CHECK_INT(gpu.units, hopper->sm_count), CHECK(!strcmp(gpu.name, "Stand-in"));
    watch.device = hopper, arena.used = 0, ex.error = &e, watch.exec = &ex, ex.query = &plan, ex.key = &key;
    for (i = 0; i < 5; i++) p[i] = aligned(4096 * 4096, BSR_BF16);
    a = bsr_matrix_make(4096, 4096, 64, 64, 512, p[0], p[1], BSR_I32, p[2], BSR_BF16);
    b = bsr_dense_row_major(p[3], BSR_BF16, 4096, 4096), c = b, c.data = p[4];
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
    CHECK_INT(key.op, BSR_OP_DENSE_ADDMM), CHECK_INT(key.density, 13);
    key.kernel = 2, key.tile_rows = 64, key.tile_cols = 128, key.stages = 5;
    CHECK_INT(bsr_tune_update(&t, &gpu, &key, &e), BSR_OK);
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.source, BSR_PLAN_TABLE);
    CHECK_INT(plan.match, BSR_TUNE_EXACT), CHECK_INT(plan.tile_rows, 64), CHECK_INT(plan.tile_cols, 128),
        CHECK_INT(plan.stages, 5);
    b.cols = c.cols = 2048; /* near */
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.match, BSR_TUNE_NEAREST_N),
        CHECK_INT(plan.tile_cols, 128);
    a.values = (char *)p[2] + 2; /* the row's kernel can't: passed over */
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC),
        CHECK_INT(plan.kernel, 2), CHECK_INT(plan.reason, BSR_WHY_GATHERED);
    CHECK_INT(plan.match, 0), CHECK_INT(plan.refused, BSR_WHY_VALUES);
    a.values = p[2], b.cols = c.cols = 4096, rows[0].tile_rows = 77; /* nor can anything run this */
    CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC), CHECK(plan.kernel >= 2);
    {
        const int64_t size[2] = {56, 56};
        const bsr_dense x = bsr_dense_image(p[3], BSR_BF16, BSR_CHANNELS_LAST, 2, size, 8, 256);
        const bsr_dense y = bsr_dense_image(p[4], BSR_BF16, BSR_CHANNELS_LAST, 2, size, 8, 256);
        bsr_conv_shape shape = BSR_ZERO;
        a = bsr_matrix_make(256, 2304, 64, 64, 72, p[0], p[1], BSR_I32, p[2], BSR_BF16);
        shape.dims = 2;
        for (i = 0; i < 2; i++) shape.kernel[i] = 3, shape.pad_before[i] = shape.pad_after[i] = 1;
        CHECK_INT(bsr_conv(ctx, 0, NULL, 1, 0, &shape, &a, &x, NULL, &y, &ex), BSR_OK), CHECK_INT(plan.kernel, 3);
        CHECK_INT(key.op, BSR_OP_CONV), CHECK_INT(key.n, 8 * 56 * 56), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
        key.kernel = 2;
        CHECK_INT(bsr_tune_update(&t, &gpu, &key, &e), BSR_OK);
        CHECK_INT(bsr_conv(ctx, 0, NULL, 1, 0, &shape, &a, &x, NULL, &y, &ex), BSR_OK), CHECK_INT(plan.kernel, 2);
        CHECK_INT(plan.source, BSR_PLAN_TABLE), CHECK_INT(plan.match, BSR_TUNE_EXACT);
        a = bsr_matrix_make(4096, 4096, 64, 64, 512, p[0], p[1], BSR_I32, p[2], BSR_BF16);
    }
    { /* attention's gradients */
        const bsr_dense q = bsr_dense_row_major(p[3], BSR_BF16, 4096, 64), dq = bsr_dense_row_major(p[4], BSR_BF16, 4096, 64);
        const bsr_dense lse = bsr_dense_row_major((char *)p[3] + 4096 * 64 * 2, BSR_F32, 4096, 1);
        for (i = 0; i < 2; i++) {
            CHECK_INT(bsr_attention_backward(ctx, 0, &q, &q, &q, &a, NULL, &q, &lse, &q, &dq, NULL, NULL, &ex), BSR_OK);
            CHECK_INT(key.op, BSR_OP_ATTENTION_BACKWARD), CHECK_INT(key.beta, 1), CHECK_INT(plan.kernel, i ? 1 : 3);
            CHECK_INT(plan.source, i ? BSR_PLAN_TABLE : BSR_PLAN_HEURISTIC), key.kernel = 1;
            CHECK_INT(bsr_tune_update(&t, &gpu, &key, &e), BSR_OK);
        }
    }
    { /* a gated unit: one kernel, or two products and a map; rows are for either */
        const bsr_matrix h = bsr_matrix_make(4096, 4096, 128, 128, 128, p[0], p[1], BSR_I32, p[2], BSR_BF16);
        static const int tiers[] = {0, 2, 3, 3};
        for (i = 0; i < 4; i++) {
            CHECK_INT(bsr_sampled_gated(ctx, BSR_ACT_SILU, &b, &b, &b, &h, NULL, NULL, &ex), BSR_OK);
            CHECK_INT(key.op, BSR_OP_SAMPLED_GATED), CHECK_INT(key.k, 4096), CHECK_INT(plan.kernel, i == 1 ? 2 : 3);
            CHECK_INT(plan.source, i == 1 || i == 2 ? BSR_PLAN_TABLE : BSR_PLAN_HEURISTIC);
            CHECK_INT(plan.match, i == 1 || i == 2 ? BSR_TUNE_EXACT : 0), CHECK_INT(plan.workspace_bytes > 0, i == 1);
            key.kernel = i < 3 ? tiers[i + 1] : 0, key.tile_rows = i == 2 ? 77 : 0; /* which nothing has */
            if (i < 3) CHECK_INT(bsr_tune_update(&t, &gpu, &key, &e), BSR_OK);
        }
    }
    ex.query = NULL, ex.key = NULL, warned = warned_slow = warned_transpose = 0;
    for (i = 0; i < 3; i++) CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK);
    CHECK_INT(warned, 0); /* rows of this architecture: a call without one is nothing to warn of */
    gpus[0].arch = 80;
    for (i = 0; i < 3; i++) CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK);
    CHECK_INT(warned, 1 - ours);
    a.values = (char *)p[2] + 2; /* half types on the plainest tier */
    for (i = 0; i < 3; i++) CHECK_INT(bsr_dense_mm(ctx, 0, &a, &b, &c, &ex), BSR_OK);
    CHECK_INT(warned, 1 - ours), CHECK_INT(warned_slow, 1);
    a.values = p[2]; /* and A^T without its index */
    for (i = 0; i < 3; i++) CHECK_INT(bsr_dense_mm(ctx, BSR_TRANS_A, &a, &b, &c, &ex), BSR_OK);
    CHECK_INT(warned, 1 - ours), CHECK_INT(warned_slow, 1), CHECK_INT(warned_transpose, 1);
    bsr_destroy(ctx);
}

static const bt_test tests[] = {
    {"kernels_are_loaded_when_the_context_is_made", kernels_are_loaded_when_the_context_is_made},
    {"create_with_failing_calls", create_with_failing_calls},
    {"default_without_a_gpu", default_without_a_gpu},
    {"create_without_a_usable_device", create_without_a_usable_device},
    {"launches_of_random_calls", launches_of_random_calls},
    {"tiers", tiers},
    {"every_call_failing_in_turn", every_call_failing_in_turn},
    {"wrong_device", wrong_device},
    {"captured_stream", captured_stream},
    {"timed", timed},
    {"checked_indices", checked_indices},
    {"max_grid", max_grid},
    {"host_pointers", host_pointers},
    {"plans_bind", plans_bind},
    {"plans_say_why", plans_say_why},
    {"row_views", row_views},
    {"slow_paths", slow_paths},
    {"chains", chains},
    {"stages", stages},
    {"tiles", tiles},
    {"stages_of_attention", stages_of_attention},
    {"sums_of_products", sums_of_products},
    {"sums_of_two_types", sums_of_two_types},
    {"attention_plans", attention_plans},
    {"plans_are_the_fastest", plans_are_the_fastest},
    {"plans_serve_other_epilogues", plans_serve_other_epilogues},
    {"sums_of_no_items", sums_of_no_items},
    {"schedules_decide", schedules_decide},
    {"tuned_rows", tuned_rows},
};

#include "plans.h"

int main(int argc, char **argv) {
    struct sigaction action;
    if (argc < 3 || !arena_make()) return 2;
    memset(&action, 0, sizeof action);
    action.sa_handler = fault;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    si.on_launch = on_launch, si.is_device = is_device;
    listed = si_read_kernels(argv[1], argv[2]);
    if (argc > 3 && !strcmp(argv[3], "--plans")) return print_plans();
    return bt_main(argc - 2, argv + 2, tests, BT_COUNT(tests));
}
