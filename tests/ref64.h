/* ref64.h: what every operation must give, in float64 and wider, with a bound for each element.

   Written from the documentation, apart from the implementation: operands are expanded to dense arrays (where stored,
   how often), products are triple loops over those, column by column. A bound is derived from what the header promises:
   |out - exact| <= (k + 2) u sum|a||b| for a sum of k products, first-order terms for what follows, and one rounding to
   the output's type. Integers are exact modulo 2^32 or 2^8. Include after operands.h. */
#ifndef BSR_REF64_H
#define BSR_REF64_H

#include "operands.h"

typedef long double ref_real; /* sums; on machines where it is no wider than double, f64 bounds double */
#if LDBL_MANT_DIG > 53
#define REF_U64 0x1p-53
#else
#define REF_U64 0x1p-52
#endif

typedef struct ref_array { /* dense, row-major, all batch items */
    t_shape batch;
    int64_t items, rows, cols;
    double *v; /* null: see where it is allowed */
} ref_array;

TF ref_array ref_new(t_shape batch, int64_t rows, int64_t cols) {
    ref_array a;
    size_t bytes;
    a.batch = batch, a.items = t_items(&batch), a.rows = rows, a.cols = cols;
    bytes = (size_t)(a.items * rows * cols) * sizeof(double);
    a.v = (double *)bt_alloc(bytes, sizeof(double));
    bt_mark_output(a.v);
    memset(a.v, 0, bytes);
    return a;
}
TF ref_array ref_none(void) {
    ref_array a;
    memset(&a, 0, sizeof a);
    return a;
}
TF double *ref_at(const ref_array *a, int64_t item, int64_t i, int64_t j) { return &a->v[(item * a->rows + i) * a->cols + j]; }
/* a's element for (item of whole, i, j); sizes of 1 repeat. */
TF double ref_seen(const ref_array *a, const t_shape *whole, int64_t item, int64_t i, int64_t j) {
    return *ref_at(a, t_item_of(whole, item, &a->batch), a->rows == 1 ? 0 : i, a->cols == 1 ? 0 : j);
}
TF ref_array ref_dense(const bsr_dense *d) {
    ref_array a = ref_new(t_dense_batch(d), d->rows, d->cols);
    int64_t b, i, j;
    for (b = 0; b < a.items && !bt.unwanted; b++)
        for (j = 0; j < d->cols; j++)
            for (i = 0; i < d->rows; i++) *ref_at(&a, b, i, j) = t_get(d, b, i, j);
    return a;
}
/* Dense form (duplicates added) and, where count is not null, how many blocks are stored at each element. */
TF ref_array ref_matrix(const bsr_matrix *m, ref_array *count) {
    ref_array a = ref_new(t_matrix_batch(m), m->rows, m->cols);
    int64_t b, r, p, i, j;
    if (count) *count = ref_new(t_matrix_batch(m), m->rows, m->cols);
    for (b = 0; b < a.items && !bt.unwanted; b++)
        for (r = 0; r < m->rows / m->block_rows; r++)
            for (p = t_crow(m, b, r); p < t_crow(m, b, r + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++) {
                        int64_t row = r * m->block_rows + i, col = t_col(m, b, p) * m->block_cols + j;
                        if (m->values) *ref_at(&a, b, row, col) += t_load(m->values, m->dtype, t_value_at(m, b, p, i, j));
                        if (count) *ref_at(count, b, row, col) += 1;
                    }
    return a;
}
TF ref_array ref_transposed(const ref_array *a) {
    ref_array t;
    int64_t b, i, j;
    if (!a->v) return *a;
    t = ref_new(a->batch, a->cols, a->rows);
    for (b = 0; b < a->items; b++)
        for (i = 0; i < a->rows; i++)
            for (j = 0; j < a->cols; j++) *ref_at(&t, b, j, i) = *ref_at(a, b, i, j);
    return t;
}

/* ---------------------------------------------------------------------------------------------- */
/* sums of products                                                                               */
/* ---------------------------------------------------------------------------------------------- */

typedef struct ref_sum { /* of products: value, sum of magnitudes, number */
    ref_array s, t, n;
} ref_sum;

/* a b over the batch `whole`, summed into the batch `out`. an, bn: how often an element is stored (v null: once); what is
   not stored is not multiplied, so that NaN and Inf opposite to it do not count. */
TF ref_sum ref_mm(const ref_array *a, const ref_array *an, const ref_array *b, const ref_array *bn, t_shape whole, t_shape out) {
    ref_sum sum;
    int64_t item, items = BT_WANTED ? t_items(&whole) : 0, i, j, k, rows = a->rows, cols = b->cols;
    ref_real *column = (ref_real *)calloc((size_t)(t_items(&out) * rows * cols) + 1, sizeof *column);
    if (!column) abort();
    sum.s = ref_new(out, rows, cols), sum.t = ref_new(out, rows, cols), sum.n = ref_new(out, rows, cols);
    for (item = 0; item < items; item++) {
        int64_t ia = t_item_of(&whole, item, &a->batch), ib = t_item_of(&whole, item, &b->batch);
        int64_t io = t_item_of(&whole, item, &out);
        for (j = 0; j < cols; j++)
            for (k = a->cols - 1; k >= 0; k--) {
                double y = *ref_at(b, ib, k, j);
                if (bn && bn->v && *ref_at(bn, ib, k, j) == 0) continue;
                for (i = 0; i < rows; i++) {
                    double x = *ref_at(a, ia, i, k), times = an && an->v ? *ref_at(an, ia, i, k) : 1;
                    if (times == 0) continue;
                    column[(io * rows + i) * cols + j] += (ref_real)x * (ref_real)y;
                    *ref_at(&sum.t, io, i, j) += fabs(x * y);
                    *ref_at(&sum.n, io, i, j) += times;
                }
            }
    }
    for (i = 0; i < sum.s.items * rows * cols; i++) sum.s.v[i] = (double)column[i];
    free(column);
    return sum;
}
/* Duplicates: |a| is the sum of the magnitudes of what is stored, not the magnitude of the sum. */
TF ref_array ref_magnitude(const bsr_matrix *m) {
    ref_array a = ref_new(t_matrix_batch(m), m->rows, m->cols);
    int64_t b, r, p, i, j;
    for (b = 0; b < a.items; b++)
        for (r = 0; r < m->rows / m->block_rows; r++)
            for (p = t_crow(m, b, r); p < t_crow(m, b, r + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++)
                        *ref_at(&a, b, r * m->block_rows + i, t_col(m, b, p) * m->block_cols + j) +=
                            fabs(t_load(m->values, m->dtype, t_value_at(m, b, p, i, j)));
    return a;
}

/* ---------------------------------------------------------------------------------------------- */
/* epilogue                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

typedef struct ref_finish_args {
    double alpha, beta;
    const bsr_dense *input;
    const bsr_epilogue *epilogue;
    int compute;  /* BSR_F32, BSR_F64, BSR_I32 */
    int sums_f64; /* BSR_EXEC_ACCUMULATE_F64 */
    int out_dtype;
    double product; /* relative error of a product of two elements before it is added */
} ref_finish_args;
/* f32 operands as TF32, 11 bits each; as two such numbers, of whose four products the smallest is left out. */
#ifndef REF_F8_ERROR
#define REF_F8_ERROR 0 /* mirror.h: where sums of 128 products of 8-bit floats are formed in a tensor core */
#endif
/* Of weights of fewer bits: where a backend rounds them to b's type (u4 and zero points; the numbers of 8 bits are exact but for
   scales). */
#ifndef REF_WEIGHTS_ERROR
#define REF_WEIGHTS_ERROR(dtype) 0
#endif
TF double ref_product_error(int dtype, unsigned exec_flags) {
    if (t_is_f8(dtype)) return REF_F8_ERROR;
    if (dtype != BSR_F32) return 0;
    return exec_flags & BSR_EXEC_TF32 ? 0x1p-10 + 0x1p-22 : exec_flags & BSR_EXEC_TF32X3 ? 0x1p-20 : 0;
}
typedef struct ref_result {
    ref_array want, bound;
} ref_result;

TF int ref_compute(int a_dtype) { return a_dtype == BSR_F64 ? BSR_F64 : t_is_float(a_dtype) ? BSR_F32 : BSR_I32; }

TF double ref_activate(const ref_finish_args *f, double x, double *bound, const bsr_position *at) {
    int act = f->epilogue ? f->epilogue->activation : BSR_ACT_NONE;
    double u = f->compute == BSR_F64 ? REF_U64 : 0x1p-24, y;
    switch (act) {
        case BSR_ACT_NONE: return x;
        case BSR_ACT_RELU: return x != x ? x : x > 0 ? x : 0;
        case BSR_ACT_GELU: y = x / 2 * (1 + erf(x / sqrt(2.0))); break;
        case BSR_ACT_GELU_TANH: y = x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); break;
        case BSR_ACT_SILU: y = x / (1 + exp(-x)); break;
        default:
#ifdef BSRSPARSE_USER_FUNCTIONS
            u = 0x1p-24;
            if (act == BSR_EPILOGUE_tf_shift) {
                *bound = 2 * *bound + 8 * u * (fabs(x) + 8);
                return (double)tf_shift((float)x, at, f->epilogue->user_data);
            }
            *bound = (2 * fabs(x) + *bound) * *bound + 4 * u * x * x;
            return (double)tf_square((float)x, at, f->epilogue->user_data);
#else
            (void)at;
            y = x;
#endif
    }
    *bound = 1.2 * *bound + 16 * u * fabs(x);
    return y;
}

/* From sums of products to what is stored. mag: where not null, magnitudes that replace sum->t. */
TF ref_result ref_finish(const ref_sum *sum, const ref_finish_args *f) {
    ref_result r;
    ref_array none = ref_none(), in = none, left = none, right = none, bias = none;
    const bsr_epilogue *e = f->epilogue;
    double alpha = e && e->alpha_ptr ? *e->alpha_ptr : f->alpha, beta = e && e->beta_ptr ? *e->beta_ptr : f->beta;
    double us = f->compute == BSR_F64 || f->sums_f64 ? REF_U64 : 0x1p-24, u = f->compute == BSR_F64 ? REF_U64 : 0x1p-24;
    int64_t b, i, j;
    bsr_position at;
    if (beta != 0) in = ref_dense(f->input);
    if (e && e->left_alpha) left = ref_dense(e->left_alpha);
    if (e && e->right_alpha) right = ref_dense(e->right_alpha);
    if (e && e->bias) bias = ref_dense(e->bias);
    r.want = ref_new(sum->s.batch, sum->s.rows, sum->s.cols), r.bound = ref_new(sum->s.batch, sum->s.rows, sum->s.cols);
    for (b = 0; b < r.want.items && !bt.unwanted; b++)
        for (i = 0; i < r.want.rows; i++)
            for (j = 0; j < r.want.cols; j++) {
                const t_shape *whole = &sum->s.batch;
                double s = alpha == 0 ? 0 : *ref_at(&sum->s, b, i, j), t = alpha == 0 ? 0 : *ref_at(&sum->t, b, i, j);
                double n = *ref_at(&sum->n, b, i, j), l = left.v ? ref_seen(&left, whole, b, i, j) : 1;
                double q = right.v ? ref_seen(&right, whole, b, i, j) : 1, c = bias.v ? ref_seen(&bias, whole, b, i, j) : 0;
                double x = beta != 0 ? ref_seen(&in, whole, b, i, j) : 0, want, bound, factor = fabs(alpha * l * q);
                const int nothing = !(n > 0 && alpha != 0) && !in.v && !bias.v && !(e && e->activation);
                if (!t_is_float(f->out_dtype)) { /* modulo 2^32 */
                    uint64_t w = (uint64_t)(int64_t)beta * (uint64_t)(int64_t)x + (uint64_t)(int64_t)c +
                                 (uint64_t)(int64_t)l * (uint64_t)(int64_t)alpha * (uint64_t)(int64_t)q * (uint64_t)(int64_t)s;
                    uint32_t low = (uint32_t)(w & 0xffffffffu);
                    want = low < 0x80000000u ? (double)low : (double)low - 4294967296.0;
                    if (f->out_dtype == BSR_I8) want = (low & 255u) < 128u ? (double)(low & 255u) : (double)(low & 255u) - 256;
                    *ref_at(&r.want, b, i, j) = want, *ref_at(&r.bound, b, i, j) = !nothing;
                    continue;
                }
                want = (double)((ref_real)beta * x + (ref_real)l * (alpha * (ref_real)s) * q + c);
                if (beta == 0 && !(e && (e->left_alpha || e->right_alpha || e->bias))) want = alpha * s;
                bound =
                    factor * ((f->compute == BSR_I32 ? 1 : 0) * u * fabs(s) + (n > 0 ? (n + 2) * us * t : 0) + 4 * u * fabs(s));
                if (f->product != 0) bound += factor * t * (f->product + n * u); /* tensor cores cut sums off: two roundings */
                bound += 4 * u * (fabs(beta * x) + fabs(c));
                bound += (n + 8) * (factor + 1) * (f->compute == BSR_F64 ? 0x1p-1074 : 0x1p-149);
                at.batch = b, at.head = 0, at.row = i, at.col = j;
                want = ref_activate(f, want, &bound, &at);
                *ref_at(&r.want, b, i, j) = want, *ref_at(&r.bound, b, i, j) = nothing ? 0 : bound;
            }
    return r;
}

/* ---------------------------------------------------------------------------------------------- */
/* comparing                                                                                      */
/* ---------------------------------------------------------------------------------------------- */

/* A reference that is zero everywhere shows nothing, and fails. MAY_BE_ZERO: there may be nothing to sum, or so little that
   it is zero by chance. ALL_ZERO: it must be zero everywhere. An element that sums nothing has the bound 0 (in integers, where
   bounds are not used otherwise, all others have 1). */
enum { REF_MAY_BE_ZERO = 1, REF_ALL_ZERO = 2, REF_ANY = 4, REF_CHANCE = 64 }; /* REF_ANY: a fuzzer's input decides the numbers */
TF void ref_check_zeros(const char *file, int line, const char *what, int64_t seen, int64_t sums, double norm, int flags) {
    if (flags & REF_ALL_ZERO) {
        if (norm > 0) bt_fail(file, line, "the reference of %s should be all zero", what);
    } else if (!(flags & REF_ANY) && seen && !(norm > 0) && (!(flags & REF_MAY_BE_ZERO) || sums > REF_CHANCE))
        bt_fail(file, line, "vacuous: the reference of %s is all zero", what);
}
static double ref_worst; /* largest error / bound seen by this program */

TF int ref_close(double got, double want, double bound, int dtype) {
    double err, tol;
    if (!t_is_float(dtype)) return got == want;
    if (want != want) return got != got;
    if (t_is_f8(dtype)) { /* saturates */
        const double top = t_format_of(dtype).largest, reach = fmin(fabs(want) + bound, top);
        return !(fabs(got - fmax(-top, fmin(top, want))) <= bound + t_half_ulp(dtype, reach)) ? 0 : 1;
    }
    if (want - want != 0) return got == want;
    if (got - got != 0) { /* a result that rounds to infinity */
        double top = t_format_of(dtype).largest;
        return got == got && (got > 0) == (want > 0) && fabs(want) + bound >= top + t_half_ulp(dtype, top);
    }
    err = fabs(got - want), tol = bound + t_half_ulp(dtype, fabs(want) + bound);
    if (tol > 0 && err / tol > ref_worst) ref_worst = err / tol;
    return !(err <= tol) ? 0 : 1;
}
#define REF_COMPARE(out, result, flags) ref_compare(__FILE__, __LINE__, #out, out, result, flags)
TF void ref_compare(const char *file, int line, const char *what, const bsr_dense *out, const ref_result *r, int flags) {
    int64_t b, i, j, bad = 0, seen = 0, sums = 0;
    double norm = 0;
    bt.checks++;
    if (!BT_WANTED) return;
    if (out->rows != r->want.rows || out->cols != r->want.cols || t_dense_items(out) != r->want.items) {
        bt_fail(file, line, "%s has another shape than the reference", what);
        return;
    }
    for (b = 0; b < r->want.items; b++)
        for (i = 0; i < out->rows; i++)
            for (j = 0; j < out->cols; j++) {
                double got = t_get(out, b, i, j), want = *ref_at(&r->want, b, i, j), bound = *ref_at(&r->bound, b, i, j);
                norm += want != want ? 1 : fabs(want), seen++, sums += bound > 0;
                if (ref_close(got, want, bound, out->dtype)) continue;
                if (!bad++)
                    bt_fail(file, line, "%s(item %lld, %lld, %lld) is %.9g, expected %.9g +- %.3g", what, (long long)b,
                            (long long)i, (long long)j, got, want, bound + t_half_ulp(out->dtype, fabs(want) + bound));
            }
    ref_check_zeros(file, line, what, seen, sums, norm, flags);
    t_check_gaps(out);
}
/* The same at the stored blocks of a matrix; want covers its whole rows x cols, over its batch. */
#define REF_COMPARE_MATRIX(m, result, flags) ref_compare_matrix(__FILE__, __LINE__, #m, m, result, flags)
TF void ref_compare_matrix(const char *file, int line, const char *what, const bsr_matrix *m, const ref_result *r, int flags) {
    int64_t b, k, p, i, j, bad = 0, seen = 0, sums = 0;
    double norm = 0;
    bt.checks++;
    if (m->rows != r->want.rows || m->cols != r->want.cols || t_matrix_items(m) != r->want.items) {
        bt_fail(file, line, "%s has another shape than the reference", what);
        return;
    }
    for (b = 0; b < r->want.items; b++)
        for (k = 0; k < m->rows / m->block_rows; k++)
            for (p = t_crow(m, b, k); p < t_crow(m, b, k + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++) {
                        int64_t row = k * m->block_rows + i, col = t_col(m, b, p) * m->block_cols + j;
                        double got = t_load(m->values, m->dtype, t_value_at(m, b, p, i, j));
                        double want = *ref_at(&r->want, b, row, col), bound = *ref_at(&r->bound, b, row, col);
                        norm += want != want ? 1 : fabs(want), seen++, sums += bound > 0;
                        if (ref_close(got, want, bound, m->dtype)) continue;
                        if (!bad++)
                            bt_fail(file, line, "%s(item %lld, row %lld, col %lld) is %.9g, expected %.9g +- %.3g", what,
                                    (long long)b, (long long)row, (long long)col, got, want,
                                    bound + t_half_ulp(m->dtype, fabs(want) + bound));
                    }
    ref_check_zeros(file, line, what, seen, sums, norm, flags);
    t_check_value_gaps(m);
}

/* ---------------------------------------------------------------------------------------------- */
/* the operations                                                                                 */
/* ---------------------------------------------------------------------------------------------- */

/* The element of a grid of scales or zero points that belongs to element (i, j) of an operand (of a stored block p, or -1), for
   an item of the problem. */
TF double ref_grid(const bsr_scales *s, const bsr_dense *of, const t_shape *whole, int64_t item, int64_t p, int64_t i,
                   int64_t j) {
    bsr_dense d = *of;
    t_shape batch;
    if (p >= 0 && s->flags & BSR_SCALES_BLOCKS)
        d.batch_dims--, d.data = (char *)d.data + (size_t)(p * d.batch_stride[d.batch_dims]) * bsr_dtype_size(d.dtype);
    batch = t_dense_batch(&d);
    return t_get(&d, t_item_of(whole, item, &batch), s->group_rows ? i / s->group_rows : 0,
                 s->group_cols ? j / s->group_cols : 0);
}
/* What bsr_scales say of element (i, j) of an operand as well. */
TF double ref_scale(const bsr_scales *s, const t_shape *whole, int64_t item, int64_t p, int64_t i, int64_t j) {
    if (!s) return 1;
    return ref_grid(s, s->scale, whole, item, p, i, j);
}
/* A matrix of fewer bits than b: what is stored at (i, j) of a block at (row, col) stands for this weight; of = 1: how large what
   is added up for it is. */
TF double ref_weight(const bsr_matrix *m, const bsr_scales *s, const t_shape *whole, int64_t item, int64_t b, int64_t p,
                     int64_t i, int64_t j, int64_t row, int64_t col, int magnitude) {
    const int own = s && s->flags & BSR_SCALES_BLOCKS, pairs = m->dtype == BSR_U4;
    const int after = s && s->zero && s->flags & BSR_SCALES_ZERO_AFTER;
    const double scale = ref_scale(s, whole, b, p, own ? i : row, own ? j : col);
    const double zero = s && s->zero ? ref_grid(s, s->zero, whole, b, p, own ? i : row, own ? j : col) : 0;
    double q;
    if (pairs) {
        int64_t rest;
        bsr_matrix bytes = *m;
        bytes.block_cols /= 2, bytes.cols /= 2;
        rest = *((const uint8_t *)m->values + t_value_at(&bytes, item, p, i, j / 2));
        q = (double)(j % 2 ? rest / 16 : rest % 16) - (!s || !s->zero || after ? 8 : 0);
    } else {
        q = t_load(m->values, m->dtype, t_value_at(m, item, p, i, j));
    }
    if (magnitude) return after ? fabs(scale * q) + fabs(zero) : fabs(scale) * (fabs(q) + fabs(zero));
    return after ? scale * q + zero : scale * (q - zero);
}
/* As ref_matrix and ref_magnitude over a problem's batch, each stored number times its scale. */
TF ref_array ref_scaled_matrix(const bsr_matrix *m, const bsr_scales *s, t_shape whole, ref_array *count, int magnitude) {
    ref_array a = ref_new(whole, m->rows, m->cols);
    const t_shape mine = t_matrix_batch(m);
    int64_t b, r, p, i, j;
    *count = ref_new(whole, m->rows, m->cols);
    for (b = 0; b < a.items && !bt.unwanted; b++) {
        const int64_t item = t_item_of(&whole, b, &mine);
        for (r = 0; r < m->rows / m->block_rows; r++)
            for (p = t_crow(m, item, r); p < t_crow(m, item, r + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++) {
                        const int64_t row = r * m->block_rows + i, col = t_col(m, item, p) * m->block_cols + j;
                        const double v = ref_weight(m, s, &whole, item, b, p, i, j, row, col, magnitude);
                        *ref_at(&a, b, row, col) += magnitude ? fabs(v) : v, *ref_at(count, b, row, col) += 1;
                    }
    }
    return a;
}
TF ref_array ref_scaled_dense(const bsr_dense *d, const bsr_scales *s, t_shape whole) {
    ref_array a = ref_new(whole, d->rows, d->cols);
    const t_shape mine = t_dense_batch(d);
    int64_t b, i, j;
    for (b = 0; b < a.items && !bt.unwanted; b++)
        for (i = 0; i < d->rows; i++)
            for (j = 0; j < d->cols; j++)
                *ref_at(&a, b, i, j) = t_get(d, t_item_of(&whole, b, &mine), i, j) * ref_scale(s, &whole, b, -1, i, j);
    return a;
}
/* op(A) B over the batch `whole`, with the magnitudes of what is stored, before duplicates cancel. e: for scales, or null. */
TF ref_sum ref_sparse_mm(unsigned trans, const bsr_matrix *a, const bsr_dense *b, t_shape whole, const bsr_epilogue *e) {
    const int scaled = (e && (e->a_scales || e->b_scales)) || a->dtype == BSR_U4;
    const int zeros = e && e->a_scales && e->a_scales->zero;
    ref_array count, av, bv, mag;
    ref_sum sum;
    int64_t i;
    av = scaled ? ref_scaled_matrix(a, e ? e->a_scales : NULL, whole, &count, 0) : ref_matrix(a, &count);
    bv = scaled ? ref_scaled_dense(b, e ? e->b_scales : NULL, whole) : ref_dense(b);
    if (trans & BSR_TRANS_A) av = ref_transposed(&av), count = ref_transposed(&count);
    sum = ref_mm(&av, &count, &bv, NULL, whole, whole);
    for (i = 0; i < count.items * count.rows * count.cols && count.v[i] < 2; i++) {
    }
    if (zeros || i < count.items * count.rows * count.cols) { /* zero points, duplicates: magnitudes before they cancel */
        mag = scaled ? ref_scaled_matrix(a, e ? e->a_scales : NULL, whole, &bv, 1) : ref_magnitude(a);
        if (trans & BSR_TRANS_A) mag = ref_transposed(&mag);
        bv = scaled ? ref_scaled_dense(b, e ? e->b_scales : NULL, whole) : bv;
        sum.t = ref_mm(&mag, &count, &bv, NULL, whole, whole).t;
    }
    return sum;
}
/* act(beta input + left (alpha op(A) B) right + bias), over the broadcast of a's and b's batches. */
TF ref_result ref_dense_addmm(double beta, const bsr_dense *input, double alpha, unsigned trans, const bsr_matrix *a,
                              const bsr_dense *b, const bsr_epilogue *epilogue, int out_dtype, unsigned exec_flags) {
    const int weights = (a->dtype == BSR_U4 || t_is_f8(a->dtype) || a->dtype == BSR_I8) && a->dtype != b->dtype &&
                        !t_is_f8(b->dtype) && b->dtype != BSR_I8;
    ref_finish_args f;
    ref_sum sum;
    memset(&f, 0, sizeof f);
    f.alpha = alpha, f.beta = beta, f.input = input, f.epilogue = epilogue, f.out_dtype = out_dtype;
    f.compute = ref_compute(weights ? b->dtype : a->dtype), f.sums_f64 = (exec_flags & BSR_EXEC_ACCUMULATE_F64) != 0;
    f.product = weights ? REF_WEIGHTS_ERROR(b->dtype) : ref_product_error(a->dtype, exec_flags);
    if (epilogue && (epilogue->a_scales || epilogue->b_scales)) f.product += 0x1p-22; /* two factors rounded, and both products */
    sum = ref_sparse_mm(trans, a, b, t_join(t_matrix_batch(a), t_dense_batch(b)), epilogue);
    return ref_finish(&sum, &f);
}
/* act(beta input + left (sum of alpha op(A) B) right + bias), over the broadcast of all a's and b's batches. Each term may cost
   two roundings more, of the input too where sums stand in memory between launches. */
TF ref_result ref_sum_mm(double beta, const bsr_dense *input, const bsr_term *terms, int64_t count, const bsr_epilogue *epilogue,
                         int out_dtype, unsigned exec_flags) {
    const double *by_pointer = epilogue ? epilogue->alpha_ptr : NULL;
    t_shape whole = NO_BATCH;
    bsr_epilogue rest;
    ref_finish_args f;
    ref_result r;
    ref_sum all, one;
    ref_array in = ref_none();
    int64_t t, i, n = 0;
    for (t = 0; t < count; t++) whole = t_join(whole, t_join(t_matrix_batch(terms[t].a), t_dense_batch(terms[t].b)));
    memset(&f, 0, sizeof f), memset(&rest, 0, sizeof rest);
    if (epilogue) rest = *epilogue, rest.alpha_ptr = NULL;
    f.alpha = 1, f.beta = beta, f.input = input, f.epilogue = &rest, f.out_dtype = out_dtype;
    f.compute = ref_compute(terms->a->dtype), f.sums_f64 = (exec_flags & BSR_EXEC_ACCUMULATE_F64) != 0;
    f.product = ref_product_error(terms->a->dtype, exec_flags);
    for (t = 0; t < count; t++) {
        const double alpha = by_pointer ? *by_pointer : terms[t].alpha;
        one = ref_sparse_mm(terms[t].trans, terms[t].a, terms[t].b, whole, NULL);
        if (t == 0) all.s = ref_new(whole, one.s.rows, one.s.cols), all.t = ref_new(whole, one.s.rows, one.s.cols);
        if (t == 0) all.n = ref_new(whole, one.s.rows, one.s.cols);
        for (i = 0, n = all.s.items * all.s.rows * all.s.cols; i < n && alpha != 0; i++) {
            all.s.v[i] += alpha * one.s.v[i], all.t.v[i] += fabs(alpha) * one.t.v[i];
            all.n.v[i] += one.n.v[i] > 0 ? one.n.v[i] + 2 : 0;
        }
    }
    r = ref_finish(&all, &f);
    if (rest.beta_ptr) beta = *rest.beta_ptr;
    if (beta != 0) in = ref_dense(input);
    for (i = 0; in.v && i < n && t_is_float(out_dtype); i++) {
        const int64_t j = i % r.want.cols, k = i / r.want.cols % r.want.rows, item = i / r.want.cols / r.want.rows;
        r.bound.v[i] +=
            1.5 * (double)count * (f.compute == BSR_F64 ? REF_U64 : 0x1p-24) * fabs(beta * ref_seen(&in, &whole, item, k, j));
    }
    return r;
}

/* beta input + alpha mat1 mat2 everywhere (compared at the stored blocks), batch of out; other batches are summed over. */
TF ref_result ref_sampled(double beta, const bsr_matrix *input, double alpha, const bsr_dense *mat1, const bsr_dense *mat2,
                          t_shape whole, t_shape out_batch, int out_dtype, unsigned exec_flags) {
    ref_array x = ref_dense(mat1), y = ref_dense(mat2), in = ref_none();
    ref_sum sum = ref_mm(&x, NULL, &y, NULL, whole, out_batch);
    ref_finish_args f;
    ref_result r;
    int64_t b, i, j;
    double u = mat1->dtype == BSR_F64 ? REF_U64 : 0x1p-24;
    memset(&f, 0, sizeof f);
    f.alpha = alpha, f.out_dtype = BSR_F64, f.compute = ref_compute(mat1->dtype);
    f.sums_f64 = (exec_flags & BSR_EXEC_ACCUMULATE_F64) != 0;
    if (!t_is_float(out_dtype)) f.out_dtype = BSR_I32;
    if (t_is_f8(mat1->dtype)) f.product = ref_product_error(mat1->dtype, exec_flags);
    r = ref_finish(&sum, &f);
    if (beta != 0) in = ref_matrix(input, NULL);
    for (b = 0; b < r.want.items; b++)
        for (i = 0; i < r.want.rows; i++)
            for (j = 0; j < r.want.cols; j++) {
                double *want = ref_at(&r.want, b, i, j), part = beta != 0 ? beta * ref_seen(&in, &out_batch, b, i, j) : 0;
                if (beta != 0) *want += part, *ref_at(&r.bound, b, i, j) += 4 * u * (fabs(part) + fabs(*want));
                if (!t_is_float(out_dtype)) { /* modulo 2^32 or 2^8 */
                    uint32_t low = (uint32_t)((uint64_t)(int64_t)*want & 0xffffffffu);
                    *want = low < 0x80000000u ? (double)low : (double)low - 4294967296.0;
                    if (out_dtype == BSR_I8) *want = (low & 255u) < 128u ? (double)(low & 255u) : (double)(low & 255u) - 256;
                }
            }
    return r;
}

/* What one softmax row of n finite scores may be off by, relative; spread: largest |term| or distance from the maximum. */
TF double ref_softmax_relative(double u, double n, double spread) { return (8 + 2 * log2(n > 1 ? n : 1) + 4 * spread) * u; }

TF double ref_mask_term(const ref_array *mask, int mode, const t_shape *whole, int64_t b, int64_t i, int64_t j) {
    double v;
    if (!mask->v) return 0;
    v = ref_seen(mask, whole, b, i, j);
    return mode == BSR_MASK_MUL ? (v == 0 ? -(double)INFINITY : 0) : v;
}
/* exact: the inputs of exp are known to be exact, so that only the header's own bound is granted. */
TF ref_result ref_softmax(double scale, const bsr_matrix *x, const bsr_softmax_options *o, int exact) {
    ref_array count, v = ref_matrix(x, &count), none = ref_none(), rel = none, kp = none, am = none;
    ref_result r;
    t_shape whole = t_matrix_batch(x);
    double u = x->dtype == BSR_F64 ? REF_U64 : 0x1p-24, tiny = x->dtype == BSR_F64 ? DBL_MIN : FLT_MIN;
    int64_t b, i, j;
    if (o && o->relative_bias) rel = ref_dense(o->relative_bias);
    if (o && o->key_padding_mask) kp = ref_dense(o->key_padding_mask);
    if (o && o->attn_mask) am = ref_dense(o->attn_mask);
    r.want = ref_new(whole, x->rows, x->cols), r.bound = ref_new(whole, x->rows, x->cols);
    for (b = 0; b < v.items && !bt.unwanted; b++)
        for (i = 0; i < x->rows; i++) {
            double top = -(double)INFINITY, spread = 0, n = 0, relative;
            int nan = 0;
            ref_real total = 0;
            for (j = x->cols - 1; j >= 0; j--) {
                double s, r1, r2, r3;
                if (*ref_at(&count, b, i, j) == 0) continue;
                r1 = rel.v ? ref_seen(&rel, &whole, b, i, j) : 0;
                r2 = ref_mask_term(&kp, o ? o->key_padding_mode : 0, &whole, b, i, j);
                r3 = ref_mask_term(&am, o ? o->attn_mode : 0, &whole, b, i, j);
                s = scale * *ref_at(&v, b, i, j) + r1 + r2 + r3;
                if (r1 == -(double)INFINITY || r2 == -(double)INFINITY || r3 == -(double)INFINITY) s = -(double)INFINITY;
                *ref_at(&r.want, b, i, j) = s;
                if (s != s) nan = 1;
                if (s > top) top = s;
                if (s - s == 0)
                    n += 1, spread = fmax(spread, fabs(scale * *ref_at(&v, b, i, j)) + fabs(r1) + fabs(r2) + fabs(r3));
            }
            for (j = 0; j < x->cols; j++)
                if (*ref_at(&count, b, i, j) != 0 && top > -(double)INFINITY)
                    total += expl((ref_real)*ref_at(&r.want, b, i, j) - top);
            for (j = 0; j < x->cols; j++) {
                double *want = ref_at(&r.want, b, i, j);
                if (*ref_at(&count, b, i, j) == 0) continue;
                relative = exact ? (8 + 2 * log2(n > 1 ? n : 1)) * u : ref_softmax_relative(u, n, 2 * spread + fabs(*want - top));
                if (nan) *want = (double)NAN;
                else if (top == -(double)INFINITY) *want = 0;
                else *want = (double)(expl((ref_real)*want - top) / total);
                *ref_at(&r.bound, b, i, j) = *want == 0 ? tiny : relative * *want + tiny;
                if (top == -(double)INFINITY) *ref_at(&r.bound, b, i, j) = 0;
            }
        }
    return r;
}
/* The gradient from y, of which error, where it is not null, says how far the y that is given may be from it. */
TF ref_result ref_softmax_gradient(double scale, const ref_array *y, const ref_array *error, const ref_array *count,
                                   const bsr_matrix *dy) {
    ref_array g = ref_matrix(dy, NULL);
    ref_result r;
    double u = dy->dtype == BSR_F64 ? REF_U64 : 0x1p-24;
    int64_t b, i, j;
    r.want = ref_new(y->batch, y->rows, y->cols), r.bound = ref_new(y->batch, y->rows, y->cols);
    for (b = 0; b < y->items && !bt.unwanted; b++)
        for (i = 0; i < y->rows; i++) {
            ref_real dot = 0, mag = 0, off = 0;
            double n = 0;
            for (j = y->cols - 1; j >= 0; j--)
                if (*ref_at(count, b, i, j) != 0) {
                    const ref_real d = *ref_at(&g, b, i, j), e = error ? *ref_at(error, b, i, j) : 0;
                    dot += *ref_at(y, b, i, j) * d, mag += fabsl(*ref_at(y, b, i, j) * d) + e * fabsl(d);
                    off += e * fabsl(d), n += 1;
                }
            for (j = 0; j < y->cols; j++) {
                double p = *ref_at(y, b, i, j), d = *ref_at(&g, b, i, j), e = error ? *ref_at(error, b, i, j) : 0;
                if (*ref_at(count, b, i, j) == 0) continue;
                *ref_at(&r.want, b, i, j) = (double)((ref_real)p * ((ref_real)d - dot) * scale);
                *ref_at(&r.bound, b, i, j) =
                    (fabs(p) + e) * fabs(scale) * ((n + 2) * u * (double)mag + 4 * u * (fabs(d) + (double)(fabsl(dot) + off))) +
                    fabs(scale) * (e * (fabs(d) + (double)(fabsl(dot) + off)) + fabs(p) * (double)off) +
                    (dy->dtype == BSR_F64 ? 0x1p-1070 : 0x1p-145);
            }
        }
    return r;
}
TF ref_result ref_softmax_backward(double scale, const bsr_matrix *y, const bsr_matrix *dy) {
    ref_array count, v = ref_matrix(y, &count);
    return ref_softmax_gradient(scale, &v, NULL, &count, dy);
}
/* The same from x alone: y is the forward result in dtype, within its own bound and one rounding. */
TF ref_result ref_softmax_gradient_of(double scale, const bsr_matrix *x, const ref_result *y, int dtype, const bsr_matrix *dy) {
    ref_array count, error = ref_new(y->want.batch, y->want.rows, y->want.cols);
    int64_t k, all = error.items * error.rows * error.cols;
    ref_matrix(x, &count);
    for (k = 0; k < all; k++) error.v[k] = y->bound.v[k] + t_half_ulp(dtype, fabs(y->want.v[k]) + y->bound.v[k]);
    return ref_softmax_gradient(scale, &y->want, &error, &count, dy);
}

/* Philox4x32-10 (Salmon et al. 2011), checked against its published vectors in test_attention.c. */
TF void ref_philox(const uint32_t counter[4], uint64_t seed, uint32_t out[4]) {
    uint32_t c[4], key0 = (uint32_t)(seed & 0xffffffffu), key1 = (uint32_t)(seed >> 32);
    int round;
    memcpy(c, counter, sizeof c);
    for (round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c[0], p1 = (uint64_t)0xcd9e8d57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ key0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ key1;
        c[1] = (uint32_t)(p1 & 0xffffffffu), c[3] = (uint32_t)(p0 & 0xffffffffu), c[0] = n0, c[2] = n2;
        key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
    }
    memcpy(out, c, sizeof c);
}
TF int ref_dropped(double p, uint64_t seed, int64_t batch, int64_t head, int64_t row, int64_t col) {
    uint32_t counter[4], word[4];
    counter[0] = (uint32_t)(col / 4), counter[1] = (uint32_t)row, counter[2] = (uint32_t)head, counter[3] = (uint32_t)batch;
    ref_philox(counter, seed, word);
    return (double)word[col % 4] < p * 4294967296.0;
}

/* Item `item` of an attention call's batch, for k and v: the head is divided by the number of heads that share one. */
TF int64_t ref_kv_item(const t_shape *whole, int64_t item, const t_shape *mine) {
    int64_t heads = whole->dims ? whole->n[whole->dims - 1] : 1, own = mine->dims ? mine->n[mine->dims - 1] : 1;
    t_shape outer_whole = *whole, outer_mine = *mine;
    if (!whole->dims) return 0;
    outer_whole.dims--, outer_mine.dims -= mine->dims > 0;
    return t_item_of(&outer_whole, item / heads, &outer_mine) * own + item % heads / (heads / own);
}
/* lse: where not null, gets the reference of the log-sum-exp. */
/* Does the code under test round probabilities to the operands' type before they meet v? Tensor cores take them so. */
/* The kind of the block at each element. */
TF ref_array ref_kinds(const bsr_matrix *m, const bsr_attention_options *o) {
    ref_array a = ref_new(t_matrix_batch(m), m->rows, m->cols);
    int64_t b, r, p, i, j;
    for (b = 0; b < a.items; b++)
        for (r = 0; r < m->rows / m->block_rows; r++)
            for (p = t_crow(m, b, r); p < t_crow(m, b, r + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++)
                        *ref_at(&a, b, r * m->block_rows + i, t_col(m, b, p) * m->block_cols + j) =
                            o->flags & BSR_ATTENTION_FULL ? BSR_BLOCK_FULL
                            : o->block_kind               ? o->block_kind[t_matrix_offset(m, m->col_batch_stride, b) + p]
                                                          : BSR_BLOCK_PARTIAL;
    return a;
}
/* Do the lengths leave it there? width: of a block column. */
TF int ref_there(const bsr_attention_options *o, int64_t width, int64_t batch, int64_t i, int64_t j) {
    const bsr_lengths *l = o->lengths;
    if (!l) return 1;
    if (l->q_lengths && i >= l->q_lengths[batch]) return 0;
    if (l->k_lengths && j >= l->k_lengths[batch]) return 0;
    return !l->key_counts || j % width < l->key_counts[batch * l->key_counts_stride + j / width];
}
#ifndef REF_ROUNDS_P
#define REF_ROUNDS_P 0
#endif
TF ref_result ref_attention_max(double scale, const bsr_dense *q, const bsr_dense *k, const bsr_dense *v, const bsr_matrix *mask,
                                const bsr_attention_options *o, t_shape whole, ref_result *lse, ref_result *row_max) {
    bsr_attention_options zero;
    ref_array qv = ref_dense(q), kv = ref_dense(k), vv = ref_dense(v), none = ref_none(), rel = none, kp = none, count, mv;
    ref_array slopes = none, sinks = none, kinds;
    ref_result r;
    int64_t lq = q->rows, lk = k->rows, item, i, j, d, heads = whole.dims ? whole.n[whole.dims - 1] : 1;
    double u = q->dtype == BSR_F64 ? REF_U64 : 0x1p-24, tiny = q->dtype == BSR_F64 ? DBL_MIN : FLT_MIN, inf = (double)INFINITY;
    const int rounds = REF_ROUNDS_P && (q->dtype == BSR_F16 || q->dtype == BSR_BF16), half = q->dtype == BSR_F16;
    /* relative to sum p|v|: half a unit in the last place, 2^-8 for the 8 bits of bf16; f16 also loses what is below half its
       least number, relative to a reference that is at most the row's maximum, so to a sum of at least 1 */
    const double p_unit = rounds ? half ? 0x1p-11 : 0x1p-8 : 0, p_least = rounds && half ? 0x1p-25 : 0;
    double *s = (double *)calloc((size_t)lk + 1, sizeof *s), *ds = (double *)calloc((size_t)lk + 1, sizeof *ds);
    ref_real *w = (ref_real *)calloc((size_t)lk + 1, sizeof *w);
    if (!s || !ds || !w) abort();
    memset(&zero, 0, sizeof zero);
    if (!o) o = &zero;
    if (scale == 0) scale = q->cols ? 1 / sqrt((double)q->cols) : 1;
    if (o->relative_bias) rel = ref_dense(o->relative_bias);
    if (o->key_padding_mask) kp = ref_dense(o->key_padding_mask);
    if (o->slopes) slopes = ref_dense(o->slopes);
    if (o->sinks) sinks = ref_dense(o->sinks);
    mv = ref_matrix(mask, &count), kinds = ref_kinds(mask, o);
    r.want = ref_new(whole, lq, v->cols), r.bound = ref_new(whole, lq, v->cols);
    if (lse) lse->want = ref_new(whole, lq, 1), lse->bound = ref_new(whole, lq, 1);
    if (row_max) row_max->want = ref_new(whole, lq, 1), row_max->bound = ref_new(whole, lq, 1);
    for (item = 0; item < r.want.items && BT_WANTED; item++) {
        int64_t iq = t_item_of(&whole, item, &qv.batch), ik = ref_kv_item(&whole, item, &kv.batch);
        int64_t iv = ref_kv_item(&whole, item, &vv.batch), im = t_item_of(&whole, item, &count.batch);
        for (i = 0; i < lq; i++) {
            double top = -inf, worst = 0, n = 0, relative;
            int nan = 0;
            const int there = !o->lengths || !o->lengths->q_lengths || i < o->lengths->q_lengths[item / heads];
            const double sink = sinks.v && there ? ref_seen(&sinks, &whole, item, 0, 0) : -inf;
            const double slope = slopes.v ? ref_seen(&slopes, &whole, item, 0, 0) : 0;
            ref_real total = 0;
            bsr_position at;
            at.batch = item / heads, at.head = item % heads, at.row = i;
            for (j = 0; j < lk; j++) {
                ref_real dot = 0, mag = 0;
                double term, m;
                const double kind = *ref_at(&kinds, im, i, j), off = (double)j - (double)i - (double)o->causal_offset;
                int allowed = *ref_at(&count, im, i, j) != 0 && kind != BSR_BLOCK_SKIP;
                s[j] = -inf, ds[j] = 0, at.col = j, m = *ref_at(&mv, im, i, j);
                if (!ref_there(o, mask->block_cols, at.batch, i, j)) allowed = 0;
                if (kind == BSR_BLOCK_PARTIAL) {
                    if (o->flags & BSR_ATTENTION_CAUSAL && !(off <= 0)) allowed = 0;
                    if (o->flags & BSR_ATTENTION_WINDOW && !(-(double)o->window_left <= off && off <= (double)o->window_right))
                        allowed = 0;
                    if (o->flags & BSR_ATTENTION_MASK_BOOLEAN && m == 0) allowed = 0;
#ifdef BSRSPARSE_USER_FUNCTIONS
                    if (o->mask_function == BSR_MASK_tf_stripes && !tf_stripes(&at, o->user_data)) allowed = 0;
                    if (o->mask_function == BSR_MASK_tf_nothing && !tf_nothing(&at, o->user_data)) allowed = 0;
#endif
                }
                if (!allowed) continue;
                for (d = q->cols - 1; d >= 0; d--) {
                    ref_real x = (ref_real)*ref_at(&qv, iq, i, d) * *ref_at(&kv, ik, j, d);
                    dot += x, mag += fabsl(x);
                }
                s[j] = (double)(scale * dot);
                ds[j] = fabs(scale) * ((double)q->cols + 2) * u * (double)mag + 2 * u * fabs(s[j]);
                if (o->softcap > 0) s[j] = o->softcap * tanh(s[j] / o->softcap), ds[j] += 8 * u * o->softcap;
                if (o->flags & BSR_ATTENTION_MASK_ADDITIVE) s[j] += m, ds[j] += 2 * u * (fabs(m) + fabs(s[j]));
                if (rel.v) term = ref_seen(&rel, &whole, item, i, j), s[j] += term, ds[j] += 2 * u * (fabs(term) + fabs(s[j]));
                if (slope != 0) term = -slope * fabs(off), s[j] += term, ds[j] += 2 * u * (fabs(term) + fabs(s[j]));
                if (kp.v && (kind == BSR_BLOCK_PARTIAL || o->key_padding_mode == BSR_MASK_ADD))
                    term = ref_mask_term(&kp, o->key_padding_mode, &whole, item, i, j), s[j] += term,
                    ds[j] += 2 * u * (fabs(term) + fabs(s[j]));
                if (s[j] == -inf) {
                    ds[j] = 0;
                    continue;
                } /* forbidden by a mask: no score function brings it back */
#ifdef BSRSPARSE_USER_FUNCTIONS
                if (o->score_function == BSR_SCORE_tf_alibi)
                    s[j] = (double)tf_alibi((float)s[j], &at, o->user_data), ds[j] += 0x1p-24 * (16 + 8 * fabs(s[j]));
                if (o->score_function == BSR_SCORE_tf_softcap)
                    s[j] = (double)tf_softcap((float)s[j], &at, o->user_data), ds[j] += 0x1p-24 * 8;
#endif
                if (s[j] == -inf) {
                    ds[j] = 0;
                    continue;
                }
                if (s[j] != s[j]) nan = 1;
                if (s[j] > top) top = s[j];
                n += 1;
            }
            for (j = 0; j < lk; j++) worst = fmax(worst, s[j] > -inf ? ds[j] : 0);
            if (row_max)
                *ref_at(&row_max->want, item, i, 0) = nan ? (double)NAN : top, *ref_at(&row_max->bound, item, i, 0) = worst;
            if (sink > -inf) top = fmax(top, sink), total = expl((ref_real)sink - top), n += 1;
            for (j = 0; j < lk; j++) {
                if (s[j] > -inf) ds[j] += 2 * u * fabs(s[j] - top), worst = fmax(worst, ds[j]);
                w[j] = s[j] == -inf ? 0 : expl((ref_real)s[j] - top), total += w[j];
            }
            relative = 2.5 * worst + (16 + 4 * log2(n + 1) + n) * u;
            for (d = 0; d < v->cols; d++) {
                ref_real x = 0, mag = 0, all = 0;
                int kept = 0;
                for (j = lk - 1; j >= 0; j--) {
                    ref_real p = total > 0 ? w[j] / total : 0, y;
                    if (s[j] == -inf) continue;
                    if (o->dropout_p > 0 && ref_dropped(o->dropout_p, o->dropout_seed, at.batch, at.head, i, j)) continue;
                    kept = 1;
                    if (w[j] == 0 || total == 0) continue;
                    y = p * *ref_at(&vv, iv, j, d) / (1 - (ref_real)o->dropout_p);
                    x += y, mag += fabsl(y), all += fabsl((ref_real)*ref_at(&vv, iv, j, d)) / (1 - (ref_real)o->dropout_p);
                }
                *ref_at(&r.want, item, i, d) = nan ? (double)NAN : (double)x;
                *ref_at(&r.bound, item, i, d) =
                    !kept ? 0 : (relative + p_unit) * (double)mag + p_least * (double)all + (n + 1) * tiny * 4;
            }
            if (lse) {
                *ref_at(&lse->want, item, i, 0) = nan ? (double)NAN : n == 0 ? -inf : (double)(top + logl(total));
                *ref_at(&lse->bound, item, i, 0) =
                    n == 0 ? 0 : relative + 4 * u * (fabs(top) + fabs((double)logl(total > 0 ? total : 1)) + 1);
            }
        }
    }
    free(s), free(ds), free(w);
    return r;
}
TF ref_result ref_attention(double scale, const bsr_dense *q, const bsr_dense *k, const bsr_dense *v, const bsr_matrix *mask,
                            const bsr_attention_options *o, t_shape whole, ref_result *lse) {
    return ref_attention_max(scale, q, k, v, mask, o, whole, lse, NULL);
}
/* Kinds at random, lengths that leave at least `least` of each. */
TF uint8_t *ref_random_kinds(const bsr_matrix *m) {
    int64_t n = m->nnz, i;
    uint8_t *kinds;
    for (i = 0; i < m->batch_dims; i++) n += (m->batch[i] - 1) * m->col_batch_stride[i];
    kinds = (uint8_t *)bt_alloc((size_t)n, 1);
    for (i = 0; i < n; i++) kinds[i] = (uint8_t)bt_below(3);
    return kinds;
}
TF int32_t *ref_random_lengths(int64_t n, int64_t least, int64_t most) {
    int32_t *lengths = (int32_t *)bt_alloc((size_t)n * 4, 4);
    int64_t i;
    for (i = 0; i < n; i++) lengths[i] = (int32_t)bt_range(least, most);
    return lengths;
}

#endif /* BSR_REF64_H */
