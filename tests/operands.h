/* operands.h: random dense operands and BSR matrices for the tests, of every dtype, layout, batch and index type. Nothing
   here calls the library's builders or its conversions of numbers, so that a mistake there can't hide. */
#ifndef BSR_OPERANDS_H
#define BSR_OPERANDS_H

#include "bsr_test.h"

/* ---------------------------------------------------------------------------------------------- */
/* numbers                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

typedef struct t_format { /* of a float dtype */
    int mantissa, emin;   /* explicit mantissa bits, exponent of the smallest normal number */
    double largest;       /* finite */
} t_format;
TF t_format t_format_of(int dtype) {
    t_format f = {52, -1022, DBL_MAX};
    if (dtype == BSR_F16) f.mantissa = 10, f.emin = -14, f.largest = 65504.0;
    if (dtype == BSR_BF16) f.mantissa = 7, f.emin = -126, f.largest = 0x1.fep127;
    if (dtype == BSR_F32) f.mantissa = 23, f.emin = -126, f.largest = FLT_MAX;
    if (dtype == BSR_E4M3) f.mantissa = 3, f.emin = -6, f.largest = 448;
    if (dtype == BSR_E5M2) f.mantissa = 2, f.emin = -14, f.largest = 57344;
    return f;
}
TF int t_is_f8(int dtype) { return dtype == BSR_E4M3 || dtype == BSR_E5M2; }
/* The format of 8-bit floats that operands beside it have, half the time; of others their own. */
TF int t_mixed(int dtype) {
    return !t_is_f8(dtype) || bt_below(2) ? dtype : dtype == BSR_E4M3 ? (int)BSR_E5M2 : (int)BSR_E4M3;
}
/* A type of results that holds sums of whole numbers. */
TF int t_sums(int dtype) { return dtype == BSR_I8 ? (int)BSR_I32 : t_is_f8(dtype) ? (int)BSR_F32 : dtype; }
TF int t_is_float(int dtype) {
    return dtype == BSR_F16 || dtype == BSR_BF16 || dtype == BSR_F32 || dtype == BSR_F64 || t_is_f8(dtype);
}
/* Half a unit in the last place of |v| in dtype, with the subnormal floor: the error of one rounding. */
TF double t_half_ulp(int dtype, double v) {
    t_format f = t_format_of(dtype);
    int e = v == 0 || v - v != 0 ? f.emin : ilogb(v);
    return ldexp(1.0, (e < f.emin ? f.emin : e) - f.mantissa - 1);
}
TF uint16_t t_encode16(double v, int dtype) {
    t_format f = t_format_of(dtype);
    unsigned sign = signbit(v) ? 0x8000u : 0u, inf = dtype == BSR_F16 ? 0x7c00u : 0x7f80u;
    double a = fabs(v), q;
    int e;
    if (v != v) return (uint16_t)(inf + (inf == 0x7c00u ? 0x200u : 0x40u));
    if (a == 0) return (uint16_t)sign;
    if (a - a != 0) return (uint16_t)(sign + inf);
    e = ilogb(a);
    if (e > 200) return (uint16_t)(sign + inf);
    if (e < f.emin) e = f.emin;
    q = rint(ldexp(a, f.mantissa - e)) + ldexp((double)(e - f.emin), f.mantissa);
    return (uint16_t)(sign + (q >= (double)inf ? inf : (unsigned)q));
}
TF double t_decode16(uint16_t h, int dtype) {
    t_format f = t_format_of(dtype);
    int e = (h & 0x7fff) >> f.mantissa, m = h & ((1 << f.mantissa) - 1), top = dtype == BSR_F16 ? 31 : 255;
    double v = e == top ? (m ? (double)NAN : (double)INFINITY)
               : e      ? ldexp(m + ldexp(1.0, f.mantissa), e - 1 + f.emin - f.mantissa)
                        : ldexp((double)m, f.emin - f.mantissa);
    return h & 0x8000 ? -v : v;
}
/* By the table of the format: all finite numbers ascend with their codes, so the nearest is looked for among them. */
TF double t_decode8(uint8_t x, int dtype) {
    t_format f = t_format_of(dtype);
    const int e = (x & 0x7f) >> f.mantissa, m = x & ((1 << f.mantissa) - 1);
    double v = e ? ldexp(m + ldexp(1.0, f.mantissa), e - 1 + f.emin - f.mantissa) : ldexp((double)m, f.emin - f.mantissa);
    if (dtype == BSR_E4M3 && (x & 0x7f) == 0x7f) v = (double)NAN;
    if (dtype == BSR_E5M2 && e == 31) v = m ? (double)NAN : (double)INFINITY;
    return x & 0x80 ? -v : v;
}
TF uint8_t t_encode8(double v, int dtype) {
    const int sign = signbit(v) ? 0x80 : 0, most = dtype == BSR_E4M3 ? 0x7e : 0x7b;
    const double a = fabs(v);
    int low = 0, high = most; /* a is at least low's number */
    if (v != v) return (uint8_t)(sign | 0x7f);
    if (a >= t_decode8((uint8_t)most, dtype)) return (uint8_t)(sign | most);
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (t_decode8((uint8_t)middle, dtype) <= a) low = middle;
        else high = middle;
    }
    {
        const double below = a - t_decode8((uint8_t)low, dtype), above = t_decode8((uint8_t)high, dtype) - a;
        return (uint8_t)(sign | (below < above || (below == above && low % 2 == 0) ? low : high));
    }
}
TF double t_load(const void *base, int dtype, int64_t i) {
    const char *p = (const char *)base + i * (int64_t)(dtype == BSR_F64 || dtype == BSR_I64    ? 8
                                                       : dtype == BSR_F32 || dtype == BSR_I32  ? 4
                                                       : dtype == BSR_F16 || dtype == BSR_BF16 ? 2
                                                                                               : 1);
    uint16_t h;
    float f;
    double d;
    int32_t w;
    int64_t l;
    switch (dtype) {
        case BSR_F16:
        case BSR_BF16: memcpy(&h, p, 2); return t_decode16(h, dtype);
        case BSR_F32: memcpy(&f, p, 4); return (double)f;
        case BSR_F64: memcpy(&d, p, 8); return d;
        case BSR_I8: return (double)*(const signed char *)p;
        case BSR_I32: memcpy(&w, p, 4); return (double)w;
        case BSR_I64: memcpy(&l, p, 8); return (double)l;
        case BSR_E4M3:
        case BSR_E5M2: return t_decode8(*(const unsigned char *)p, dtype);
        default: return *p ? 1.0 : 0.0; /* BSR_BOOL */
    }
}
TF void t_store(void *base, int dtype, int64_t i, double v) {
    switch (dtype) {
        case BSR_F16:
        case BSR_BF16: ((uint16_t *)base)[i] = t_encode16(v, dtype); break;
        case BSR_F32: ((float *)base)[i] = (float)v; break;
        case BSR_F64: ((double *)base)[i] = v; break;
        case BSR_I8: ((int8_t *)base)[i] = (int8_t)v; break;
        case BSR_I32: ((int32_t *)base)[i] = (int32_t)v; break;
        case BSR_I64: ((int64_t *)base)[i] = (int64_t)v; break;
        case BSR_E4M3:
        case BSR_E5M2: ((uint8_t *)base)[i] = t_encode8(v, dtype); break;
        default: ((uint8_t *)base)[i] = v != 0; break;
    }
}
TF double t_rounded(int dtype, double v) {
    double cell[1];
    t_store(cell, dtype, 0, v);
    return t_load(cell, dtype, 0);
}
TF int64_t t_index(const void *array, int index_dtype, int64_t i) {
    return index_dtype == BSR_I64 ? ((const int64_t *)array)[i] : (int64_t)((const int32_t *)array)[i];
}
TF void t_set_index(void *array, int index_dtype, int64_t i, int64_t v) {
    if (index_dtype == BSR_I64) ((int64_t *)array)[i] = v;
    else ((int32_t *)array)[i] = (int32_t)v;
}

enum { FILL_SIGNED, FILL_POSITIVE, FILL_INTEGER, FILL_WIDE, FILL_BOOL }; /* never zero, but FILL_BOOL */
TF double t_draw(int kind, int dtype) {
    int64_t n;
    if (dtype == BSR_BOOL || kind == FILL_BOOL) return (double)bt_below(2);
    if (kind == FILL_INTEGER || !t_is_float(dtype)) {
        n = kind == FILL_WIDE ? (dtype == BSR_I8 ? 127 : 1000000000) : kind == FILL_POSITIVE ? 2 : 8;
        n = kind == FILL_POSITIVE ? bt_range(1, n) : bt_range(-n, n);
        return n ? (double)n : 1.0;
    }
    if (kind == FILL_POSITIVE) return 0.5 + bt_uniform();
    if (kind == FILL_WIDE) return ldexp(bt_uniform() + 0.5, (int)bt_range(-6, 6)) * (bt_below(2) ? 1 : -1);
    return (0.05 + bt_uniform()) * (bt_below(2) ? 1 : -1);
}

/* Fills arrays of a size known before. Large ones of whole numbers get sixteen of them, none zero, from each draw: the 39 ns that
   a number took were four fifths of the time of the tests that need such. */
typedef struct t_filler {
    int kind, dtype, left; /* numbers in bits; -1: one draw each */
    uint64_t bits;
    double known[16]; /* encoded */
} t_filler;
TF t_filler t_filler_of(int kind, int dtype, int64_t count) {
    t_filler f;
    int i;
    memset(&f, 0, sizeof f);
    f.kind = kind, f.dtype = dtype, f.left = kind == FILL_INTEGER && count >= 1 << 18 ? 0 : -1;
    for (i = 0; i < 16; i++) t_store(&f.known[i], dtype, 0, i < 8 ? i - 8 : i - 7);
    return f;
}
TF void t_fill_next(t_filler *f, void *base, int64_t at) {
    const double *known = &f->known[f->bits & 15];
    if (f->left < 0) {
        t_store(base, f->dtype, at, t_draw(f->kind, f->dtype));
        return;
    }
    if (!f->left) f->bits = bt_random(), f->left = 16, known = &f->known[f->bits & 15];
    f->bits >>= 4, f->left--;
    switch (bsr_dtype_size(f->dtype)) {
        case 1: memcpy((char *)base + at, known, 1); break;
        case 2: memcpy((char *)base + at * 2, known, 2); break;
        case 4: memcpy((char *)base + at * 4, known, 4); break;
        default: memcpy((char *)base + at * 8, known, 8); break;
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* dense                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

typedef struct t_shape { /* batch dimensions, outermost first */
    int dims;
    int64_t n[4];
} t_shape;
TF t_shape t_batch(int dims, int64_t a, int64_t b, int64_t c, int64_t d) {
    t_shape s;
    s.dims = dims, s.n[0] = a, s.n[1] = b, s.n[2] = c, s.n[3] = d;
    return s;
}
#define NO_BATCH t_batch(0, 0, 0, 0, 0)
TF int64_t t_items(const t_shape *s) {
    int64_t n = 1;
    int i;
    for (i = 0; i < s->dims; i++) n *= s->n[i];
    return n;
}
/* Broadcast of two shapes that do broadcast. */
TF t_shape t_join(t_shape a, t_shape b) {
    t_shape s;
    int i;
    memset(&s, 0, sizeof s);
    s.dims = a.dims > b.dims ? a.dims : b.dims;
    for (i = 1; i <= s.dims; i++) {
        int64_t x = i <= a.dims ? a.n[a.dims - i] : 1, y = i <= b.dims ? b.n[b.dims - i] : 1;
        s.n[s.dims - i] = x == 1 ? y : x;
    }
    return s;
}
/* The item of an operand with batch `mine` that item `item` of batch `whole` uses; mine may lack or repeat dimensions. */
TF int64_t t_item_of(const t_shape *whole, int64_t item, const t_shape *mine) {
    int64_t at = 0, step = 1;
    int i;
    for (i = 1; i <= whole->dims; i++) {
        int64_t k = item % whole->n[whole->dims - i];
        item /= whole->n[whole->dims - i];
        if (i > mine->dims) continue;
        if (mine->n[mine->dims - i] != 1) at += k * step;
        step *= mine->n[mine->dims - i];
    }
    return at;
}
TF t_shape t_dense_batch(const bsr_dense *d) {
    return t_batch(d->batch_dims, d->batch[0], d->batch[1], d->batch[2], d->batch[3]);
}

/* Element offset of (item, i, j), item counted row-major over d's own batch. */
TF int64_t t_dense_at(const bsr_dense *d, int64_t item, int64_t i, int64_t j) {
    int64_t at = i * d->row_stride + j * d->col_stride;
    int k;
    for (k = d->batch_dims - 1; k >= 0; k--) at += item % d->batch[k] * d->batch_stride[k], item /= d->batch[k];
    return at;
}
TF int64_t t_dense_items(const bsr_dense *d) {
    t_shape s = t_dense_batch(d);
    return t_items(&s);
}
TF double t_get(const bsr_dense *d, int64_t item, int64_t i, int64_t j) {
    return t_load(d->data, d->dtype, t_dense_at(d, item, i, j));
}
TF void t_set(const bsr_dense *d, int64_t item, int64_t i, int64_t j, double v) {
    t_store(d->data, d->dtype, t_dense_at(d, item, i, j), v);
}

/* WIDE: a piece of something larger, in aligned lines. */
enum { ROW, COL, ROW_WIDE, COL_WIDE, ROW_PADDED, COL_PADDED, STRIDED, INTERLEAVED, LAYOUTS };
/* A dense operand in memory of its own, all poison. repeat: bit i gives batch dimension i the stride 0. */
TF bsr_dense t_dense(int dtype, int64_t rows, int64_t cols, int layout, t_shape batch, unsigned repeat) {
    bsr_dense d;
    int64_t extent, last, gap, total;
    int i, empty = rows == 0 || cols == 0, by_rows = layout == ROW || layout == ROW_WIDE || layout == ROW_PADDED;
    memset(&d, 0, sizeof d);
    d.dtype = dtype, d.rows = rows, d.cols = cols, d.batch_dims = batch.dims;
    gap = layout == ROW_PADDED || layout == COL_PADDED ? 1 + 2 * bt_below(4) : 0; /* odd */
    if (layout == ROW_WIDE || layout == COL_WIDE) gap = 64 + (64 - (by_rows ? cols : rows) % 64) % 64;
    if (by_rows || layout == INTERLEAVED) d.row_stride = cols + gap, d.col_stride = 1;
    else d.row_stride = 1, d.col_stride = rows + gap;
    if (layout == STRIDED) d.col_stride = 2, d.row_stride = 2 * cols + 5;
    extent = empty ? 0 : (rows - 1) * d.row_stride + (cols - 1) * d.col_stride + 1;
    if (layout == INTERLEAVED) { /* the batch is innermost */
        int64_t n = 1;
        for (i = batch.dims - 1; i >= 0; i--) {
            d.batch[i] = batch.n[i], d.batch_stride[i] = repeat & 1u << i ? 0 : n;
            if (!(repeat & 1u << i)) n *= batch.n[i] ? batch.n[i] : 1;
        }
        d.row_stride *= n, d.col_stride *= n;
    } else {
        last = extent + gap;
        for (i = batch.dims - 1; i >= 0; i--) {
            d.batch[i] = batch.n[i], d.batch_stride[i] = repeat & 1u << i ? 0 : last;
            if (!(repeat & 1u << i)) last *= batch.n[i] ? batch.n[i] : 1;
        }
    }
    total = empty ? 0 : (rows - 1) * d.row_stride + (cols - 1) * d.col_stride + 1;
    for (i = 0; i < batch.dims; i++) {
        if (!batch.n[i]) total = 0;
        if (total) total += (batch.n[i] - 1) * d.batch_stride[i];
    }
    d.data = bt_alloc((size_t)total * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
    return d;
}
TF void t_fill(const bsr_dense *d, int kind) {
    int64_t b, i, j, n = t_dense_items(d);
    t_filler f = t_filler_of(kind, d->dtype, n * d->rows * d->cols);
    if (bt.unwanted) return;
    for (b = 0; b < n; b++)
        for (i = 0; i < d->rows; i++)
            for (j = 0; j < d->cols; j++) t_fill_next(&f, d->data, t_dense_at(d, b, i, j));
}
TF bsr_dense t_random(int dtype, int64_t rows, int64_t cols, int layout, t_shape batch, unsigned repeat, int kind) {
    bsr_dense d = t_dense(dtype, rows, cols, layout, batch, repeat);
    t_fill(&d, kind);
    return d;
}
TF bsr_dense t_output(int dtype, int64_t rows, int64_t cols, int layout, t_shape batch) {
    bsr_dense d = t_dense(dtype, rows, cols, layout, batch, 0);
    bt_mark_output(d.data);
    return d;
}
/* The bytes of d's buffer that belong to no element must still be poison. */
BT_MAY_READ_POISON TF void t_check_gaps(const bsr_dense *d) {
    bt_block *block = bt_find(d->data);
    size_t element = bsr_dtype_size(d->dtype), i;
    int64_t b, r, c, n = t_dense_items(d);
    unsigned char *used;
    if (!block || !block->bytes) return;
    used = (unsigned char *)calloc(block->bytes, 1);
    if (!used) abort();
    for (b = 0; b < n; b++)
        for (r = 0; r < d->rows; r++)
            for (c = 0; c < d->cols; c++) memset(used + (size_t)t_dense_at(d, b, r, c) * element, 1, element);
    bt.checks++;
    for (i = 0; i < block->bytes && (used[i] || block->data[i] == BT_POISON); i++) {
    }
    if (i < block->bytes) bt_fail(__FILE__, __LINE__, "byte %zu of an output belongs to no element but was written", i);
    free(used);
}
BT_MAY_READ_POISON TF int t_all_poison(const void *data) {
    bt_block *b = bt_find(data);
    size_t i;
    for (i = 0; b && i < b->bytes; i++)
        if (b->data[i] != BT_POISON) return 0;
    return b != NULL;
}

/* ---------------------------------------------------------------------------------------------- */
/* BSR matrices                                                                                   */
/* ---------------------------------------------------------------------------------------------- */

enum { PACKED, PACKED_EXPLICIT, BLOCKS_COL, BLOCKS_WIDE, BLOCKS_COL_WIDE, BLOCKS_GAPS, BLOCKS_INNER, BLOCKS_ODD, BLOCKS_LAYOUTS };
typedef struct t_spec {                   /* of a random matrix; zero: defaults */
    int dtype, index_dtype, layout, kind; /* index_dtype 0: i32 */
    int64_t block_rows, block_cols, r, c; /* block size, blocks down and across */
    int64_t nnz;                          /* stored blocks per pattern; ragged: between 0 and twice that */
    int unsorted, duplicates, ragged, pattern_only;
    t_shape batch;
    unsigned shared_pattern, shared_values; /* bit i: the stride of batch dimension i is 0 */
} t_spec;

/* count blocks at random places of an r x c grid, row by row; crow has r + 1 entries counted from `first`. */
TF void t_pattern(const t_spec *s, int64_t count, int64_t first, void *crow, void *col) {
    int type = s->index_dtype ? s->index_dtype : BSR_I32;
    int64_t cells = s->r * s->c, i, j, k = first, left = count;
    t_set_index(crow, type, 0, first);
    for (i = 0; i < s->r; i++) {
        int64_t begin = k;
        for (j = 0; j < s->c; j++, cells--)
            if (bt_below(cells) < left) t_set_index(col, type, k++, j), left--;
        if (s->duplicates && k - begin > 1 && bt_below(2)) t_set_index(col, type, k - 1, t_index(col, type, begin));
        for (j = k - 1; s->unsorted && j > begin; j--) {
            int64_t o = bt_range(begin, j), v = t_index(col, type, o);
            t_set_index(col, type, o, t_index(col, type, j)), t_set_index(col, type, j, v);
        }
        t_set_index(crow, type, i + 1, k);
    }
}
/* A side of a block: any up to 300, those that small kernels take more often. */
TF int64_t t_side(void) { return bt_below(2) ? bt_range(1, 300) : bt_range(1, 40); }
TF t_shape t_matrix_batch(const bsr_matrix *m) {
    return t_batch(m->batch_dims, m->batch[0], m->batch[1], m->batch[2], m->batch[3]);
}
TF int64_t t_matrix_offset(const bsr_matrix *m, const int64_t *strides, int64_t item) {
    int64_t at = 0;
    int k;
    for (k = m->batch_dims - 1; k >= 0; k--) at += item % m->batch[k] * strides[k], item /= m->batch[k];
    return at;
}
TF void t_matrix_strides(const bsr_matrix *m, int64_t s[3]) {
    memcpy(s, m->value_strides, 3 * sizeof s[0]);
    if (!s[0] && !s[1] && !s[2]) s[0] = m->block_rows * m->block_cols, s[1] = m->block_cols, s[2] = 1;
}
/* Element offset in values of (item, stored position, row, column in the block). */
TF int64_t t_value_at(const bsr_matrix *m, int64_t item, int64_t p, int64_t i, int64_t j) {
    int64_t s[3];
    t_matrix_strides(m, s);
    return t_matrix_offset(m, m->values_batch_stride, item) + p * s[0] + i * s[1] + j * s[2];
}
TF int64_t t_crow(const bsr_matrix *m, int64_t item, int64_t i) {
    return t_index(m->crow_indices, m->index_dtype, t_matrix_offset(m, m->crow_batch_stride, item) + i);
}
TF int64_t t_col(const bsr_matrix *m, int64_t item, int64_t p) {
    return t_index(m->col_indices, m->index_dtype, t_matrix_offset(m, m->col_batch_stride, item) + p);
}
TF int64_t t_matrix_items(const bsr_matrix *m) {
    t_shape s = t_matrix_batch(m);
    return t_items(&s);
}

/* Values for a matrix whose pattern stands: strides by layout, memory of its own, poison. */
TF void t_make_values(bsr_matrix *m, int dtype, int layout, unsigned shared) {
    int64_t br = m->block_rows, bc = m->block_cols, one, last, total;
    int i;
    m->dtype = dtype;
    memset(m->value_strides, 0, sizeof m->value_strides);
    one = br * bc * m->nnz;
    if (layout == PACKED_EXPLICIT) m->value_strides[0] = br * bc, m->value_strides[1] = bc, m->value_strides[2] = 1;
    if (layout == BLOCKS_COL) m->value_strides[0] = br * bc, m->value_strides[1] = 1, m->value_strides[2] = br;
    if (layout == BLOCKS_WIDE || layout == BLOCKS_COL_WIDE) { /* in aligned lines, with room between these and between blocks */
        const int64_t line = (layout == BLOCKS_WIDE ? bc : br) + 64;
        m->value_strides[0] = (layout == BLOCKS_WIDE ? br : bc) * line + 64, one = m->nnz * m->value_strides[0];
        m->value_strides[1] = layout == BLOCKS_WIDE ? line : 1, m->value_strides[2] = layout == BLOCKS_WIDE ? 1 : line;
    }
    if (layout == BLOCKS_GAPS) {
        m->value_strides[2] = 2, m->value_strides[1] = 2 * bc + 1, m->value_strides[0] = br * (2 * bc + 1) + 3;
        one = m->nnz * m->value_strides[0];
    }
    if (layout == BLOCKS_ODD) { /* lines an odd number of elements apart, and so blocks */
        m->value_strides[2] = 1, m->value_strides[1] = bc + 1 + bc % 2, m->value_strides[0] = br * m->value_strides[1];
        m->value_strides[0] += 1 - m->value_strides[0] % 2, one = m->nnz * m->value_strides[0];
    }
    if (layout == BLOCKS_INNER) m->value_strides[0] = 1, m->value_strides[1] = m->nnz * bc, m->value_strides[2] = m->nnz;
    if (layout == BLOCKS_INNER && !m->nnz) m->value_strides[0] = m->value_strides[1] = m->value_strides[2] = 1;
    for (last = one, total = one, i = m->batch_dims - 1; i >= 0; i--) {
        int own = !(shared & 1u << i) && !(m->flags & BSR_MATRIX_RAGGED && m->crow_batch_stride[i]);
        m->values_batch_stride[i] = own ? last : 0;
        if (own) total = last *= m->batch[i];
    }
    m->values = bt_alloc((size_t)total * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
}
TF void t_fill_values(const bsr_matrix *m, int kind) {
    int64_t b, p, i, j, n = t_matrix_items(m);
    t_filler f = t_filler_of(kind, m->dtype, n * m->nnz * m->block_rows * m->block_cols);
    if (bt.unwanted) return;
    for (b = 0; b < n; b++)
        for (p = 0; p < m->nnz; p++)
            for (i = 0; i < m->block_rows; i++)
                for (j = 0; j < m->block_cols; j++) t_fill_next(&f, m->values, t_value_at(m, b, p, i, j));
}
/* So many blocks of a size, with any index type. */
TF t_spec t_spec_of(int dtype, int64_t br, int64_t bc, int64_t r, int64_t c, int64_t nnz) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = dtype, s.block_rows = br, s.block_cols = bc, s.r = r, s.c = c, s.nnz = nnz;
    s.index_dtype = bt_below(2) ? BSR_I64 : BSR_I32;
    return s;
}
TF bsr_matrix t_matrix(const t_spec *s) {
    bsr_matrix m;
    int64_t patterns = 1, i, total, width;
    int k, type = s->index_dtype ? s->index_dtype : BSR_I32;
    int64_t *counts;
    memset(&m, 0, sizeof m);
    m.index_dtype = type, m.block_rows = s->block_rows, m.block_cols = s->block_cols;
    m.rows = s->r * s->block_rows, m.cols = s->c * s->block_cols;
    m.batch_dims = s->batch.dims;
    for (k = s->batch.dims - 1; k >= 0; k--) {
        m.batch[k] = s->batch.n[k];
        if (s->shared_pattern & 1u << k) continue;
        m.crow_batch_stride[k] = patterns * (s->r + 1), m.col_batch_stride[k] = patterns; /* times the pattern's length, below */
        patterns *= s->batch.n[k];
    }
    counts = (int64_t *)calloc((size_t)patterns + 1, sizeof *counts);
    if (!counts) abort();
    for (i = total = 0; i < patterns; i++) {
        counts[i] = s->nnz < s->r * s->c ? s->nnz : s->r * s->c;
        if (s->ragged) counts[i] = bt_range(0, 2 * s->nnz < s->r * s->c ? 2 * s->nnz : s->r * s->c);
        total += counts[i];
    }
    width = s->ragged ? total : s->nnz < s->r * s->c ? s->nnz : s->r * s->c;
    m.nnz = width;
    if (s->ragged) m.flags = BSR_MATRIX_RAGGED;
    for (k = 0; k < m.batch_dims; k++) m.col_batch_stride[k] = s->ragged ? 0 : m.col_batch_stride[k] * width;
    m.crow_indices = bt_alloc((size_t)(patterns * (s->r + 1)) * bsr_dtype_size(type), bsr_dtype_size(type));
    m.col_indices = bt_alloc((size_t)total * bsr_dtype_size(type), bsr_dtype_size(type));
    for (i = total = 0; i < patterns; i++) {
        char *crow = (char *)m.crow_indices + (size_t)(i * (s->r + 1)) * bsr_dtype_size(type);
        if (s->ragged) t_pattern(s, counts[i], total, crow, m.col_indices);
        else t_pattern(s, counts[i], 0, crow, (char *)m.col_indices + (size_t)(i * width) * bsr_dtype_size(type));
        total += counts[i];
    }
    free(counts);
    m.dtype = s->dtype;
    if (s->pattern_only) return m;
    t_make_values(&m, s->dtype, s->layout, s->shared_values);
    t_fill_values(&m, s->kind);
    return m;
}
/* To be built: s gives block size, types and batch; room for all blocks. */
TF bsr_matrix t_target(const t_spec *s) {
    bsr_matrix m;
    const int64_t items = t_items(&s->batch), each = s->r * s->c, total = s->ragged ? items * each : each;
    const size_t index = bsr_dtype_size(s->index_dtype ? s->index_dtype : BSR_I32);
    int64_t n = 1;
    int i;
    memset(&m, 0, sizeof m);
    m.index_dtype = s->index_dtype ? s->index_dtype : BSR_I32, m.block_rows = s->block_rows, m.block_cols = s->block_cols;
    m.flags = s->ragged ? BSR_MATRIX_RAGGED : 0, m.batch_dims = s->batch.dims, m.nnz = total;
    for (i = m.batch_dims - 1; i >= 0; n *= s->batch.n[i--])
        m.batch[i] = s->batch.n[i], m.crow_batch_stride[i] = n * (s->r + 1), m.col_batch_stride[i] = s->ragged ? 0 : n * each;
    m.crow_indices = bt_alloc((size_t)(items * (s->r + 1)) * index, index);
    m.col_indices = bt_alloc((size_t)(s->ragged ? total : items * total) * index, index);
    t_make_values(&m, s->dtype, s->layout, 0);
    bt_mark_output(m.crow_indices), bt_mark_output(m.col_indices), bt_mark_output(m.values);
    return m;
}
/* Memory of the case for lists of the lengths that x says; output: a call that is looked at fills them. */
TF void t_list_room(bsr_scatter_indices *x, int output) {
    x->c_indices = (int64_t *)bt_alloc((size_t)x->c_count * 8, 8), x->r_offsets = (int64_t *)bt_alloc((size_t)x->r_count * 8, 8);
    x->p_indices = (int64_t *)bt_alloc((size_t)x->p_count * 8, 8), x->q_indices = (int64_t *)bt_alloc((size_t)x->q_count * 8, 8);
    if (!output) return;
    bt_mark_output(x->c_indices), bt_mark_output(x->r_offsets), bt_mark_output(x->p_indices), bt_mark_output(x->q_indices);
}
/* An output with the pattern of m (the index arrays are shared) and values of its own. */
TF bsr_matrix t_matrix_output(const bsr_matrix *m, int dtype, int layout) {
    bsr_matrix o = *m;
    t_make_values(&o, dtype, layout, 0);
    bt_mark_output(o.values);
    return o;
}
BT_MAY_READ_POISON TF void t_check_value_gaps(const bsr_matrix *m) {
    bt_block *block = bt_find(m->values);
    size_t element = bsr_dtype_size(m->dtype), at;
    int64_t b, p, i, j, n = t_matrix_items(m);
    unsigned char *used;
    if (!block || !block->bytes) return;
    used = (unsigned char *)calloc(block->bytes, 1);
    if (!used) abort();
    for (b = 0; b < n; b++)
        for (p = 0; p < m->nnz; p++)
            for (i = 0; i < m->block_rows; i++)
                for (j = 0; j < m->block_cols; j++) memset(used + (size_t)t_value_at(m, b, p, i, j) * element, 1, element);
    bt.checks++;
    for (at = 0; at < block->bytes && (used[at] || block->data[at] == BT_POISON); at++) {
    }
    if (at < block->bytes) bt_fail(__FILE__, __LINE__, "byte %zu of a values array belongs to no element but was written", at);
    free(used);
}

/* ---------------------------------------------------------------------------------------------- */
/* contexts                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

enum { T_ISAS = BSR_ISA_AVX512_BF16 }; /* the last */
static bsr_context *t_contexts[T_ISAS + 1];
static const char *const t_isa_names[] = {"default", "portable", "avx2", "avx512", "avx2_vnni", "avx512_vnni", "avx512_bf16"};
/* A context of this bsr_isa for the whole program, or null where build or machine lack it. */
TF const bsr_context *t_context(int isa) {
    bsr_context_desc desc;
    if (t_contexts[isa]) return t_contexts[isa];
    memset(&desc, 0, sizeof desc);
    desc.isa = isa, desc.threads = 1, desc.backend = BSR_BACKEND_CPU;
    if (bsr_create(&desc, &t_contexts[isa], NULL) != BSR_OK) t_contexts[isa] = NULL;
    return t_contexts[isa];
}
TF void t_contexts_end(void) {
    int i;
    for (i = 0; i <= T_ISAS; i++) bsr_destroy(t_contexts[i]), t_contexts[i] = NULL;
}
/* One of the available instruction sets, another from case to case. */
TF const bsr_context *t_any_context(void) {
    const bsr_context *ctx = t_context((int)bt_range(1, T_ISAS));
    return ctx ? ctx : t_context(BSR_ISA_DEFAULT);
}

/* ---------------------------------------------------------------------------------------------- */
/* calls                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* An exec with nothing but an error record and flags. */
static bsr_error t_error;
TF bsr_exec t_exec(uint32_t flags) {
    bsr_exec e;
    memset(&e, 0, sizeof e);
    memset(&t_error, 0x77, sizeof t_error);
    e.error = &t_error, e.flags = flags;
    return e;
}
/* The call must succeed; what it says otherwise is printed. Inputs must be untouched. */
#define RUN_OK(call) (bt.unwanted ? 0 : t_run_ok(__FILE__, __LINE__, #call, (bt_before_call(), (int)(call))))
TF int t_run_ok(const char *file, int line, const char *text, int status) {
    bt_after_call();
    bt.checks++;
    if (status != BSR_OK) {
        char message[320];
        bsr_error_string(&t_error, message, sizeof message);
        bt_fail(file, line, "%.60s... gave %s (%s)", text, bsr_status_name(status), message);
    }
    return status == BSR_OK;
}
/* The transposed index or the schedule of m, built by the library, in memory of the case. */
TF void t_attach_transposed(bsr_matrix *m) {
    uint64_t bytes = 0;
    bsr_exec e = t_exec(0);
    void *view;
    m->transposed_index = NULL;
    if (bsr_transposed_index_size(t_context(0), m, &bytes, &e) != BSR_OK) return;
    view = bt_alloc((size_t)bytes, 64);
    if (bsr_build_transposed_index(t_context(0), m, view, bytes, &e) == BSR_OK) m->transposed_index = view;
    if (!m->transposed_index) bt_fail(__FILE__, __LINE__, "building a transposed index gave %s", bsr_item_name(t_error.item));
}
TF void t_attach_schedule(bsr_matrix *m, int group, int transposed) {
    uint64_t bytes = 0;
    bsr_exec e = t_exec(0);
    void *view;
    m->schedule = NULL;
    if (bsr_schedule_size(t_context(0), m, group, transposed, &bytes, &e) != BSR_OK) return;
    view = bt_alloc((size_t)bytes, 64);
    if (bsr_build_schedule(t_context(0), m, group, transposed, view, bytes, &e) == BSR_OK) m->schedule = view;
    if (!m->schedule) bt_fail(__FILE__, __LINE__, "building a schedule gave %s", bsr_item_name(t_error.item));
}

#endif /* BSR_OPERANDS_H */
