/* ref_maps.h: what bsr_map and bsr_reduce must give, from their documentation, in float64 and wider: bounds between which each
   result lies. Include after ref64.h. */
#ifndef BSR_REF_MAPS_H
#define BSR_REF_MAPS_H

#include "ref64.h"

#define REF_WIDE(type) ((type) == BSR_F64 || (type) == BSR_I32 || (type) == BSR_I64)
typedef struct ref_near { /* a value, and how far off one may be before it is stored */
    double v, e;
} ref_near;

/* A number in a type, as the library rounds. */
TF double ref_converted(int dtype, double v) {
    const double most = dtype == BSR_I8 ? 127 : dtype == BSR_I32 ? 2147483647.0 : 9223372036854775807.0;
    if (t_is_float(dtype))
        return dtype == BSR_F32 ? (double)(float)v : dtype == BSR_F64 ? v : t_rounded(dtype, v);
    if (dtype == BSR_BOOL) return v != 0;
    if (isnan(v)) return 0;
    v = rint(v);
    return v > most ? most : v < -most - 1 ? -most - 1 : v;
}
/* Is `got` what some number near `want` becomes? */
TF int ref_within(int dtype, double got, ref_near want) {
    if (isnan(want.v) && t_is_float(dtype)) return isnan(got);
    if (isnan(want.v)) return got == ref_converted(dtype, want.v);
    if (isinf(want.v)) return got == ref_converted(dtype, want.v);
    if (dtype == BSR_BOOL && want.e > 0 && fabs(want.v) <= want.e) return 1;
    return got >= ref_converted(dtype, want.v - want.e) && got <= ref_converted(dtype, want.v + want.e);
}

/* As f32 has it, where that is what is computed in: beyond its largest there is only infinity. */
TF ref_near ref_held(ref_near r, double u) {
    if (u > 0x1p-50 && fabs(r.v) >= 0x1.ffffffp127) r.v = r.v > 0 ? (double)INFINITY : -(double)INFINITY;
    if (!isfinite(r.v)) r.e = 0;
    return r;
}
TF double ref_function(const bsr_map_options *o, int gradient, double v) {
    const ref_real x = v, root = sqrtl(0.5L), pi = 3.14159265358979323846L, c = sqrtl(2 / pi);
    const ref_real s = 1 / (1 + expl(-x)), t = tanhl(c * (x + 0.044715L * x * x * x));
    if (o->function == BSR_ACT_NONE) return gradient ? 1 : v;
    if (isnan(v)) return v;
    switch (o->function) {
        case BSR_ACT_RELU: return gradient ? v > 0 : v > 0 ? v : 0;
        case BSR_ACT_GELU:
            if (fabs(v) > 1000) return v < 0 ? 0 : gradient ? 1 : v;
            return (double)(gradient ? erfcl(-x * root) / 2 + x * expl(-x * x / 2) / sqrtl(2 * pi) : x * erfcl(-x * root) / 2);
        case BSR_ACT_GELU_TANH:
            if (fabs(v) > 1000) return v < 0 ? 0 : gradient ? 1 : v;
            return (double)(gradient ? (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715L * x * x) : x / 2 * (1 + t));
        case BSR_ACT_SILU:
            if (fabs(v) > 1000) return v < 0 ? 0 : gradient ? 1 : v;
            return (double)(gradient ? s * (1 + x * (1 - s)) : x * s);
        case BSR_MAP_ABS: return gradient ? (v > 0) - (v < 0) : fabs(v);
        case BSR_MAP_NEG: return gradient ? -1 : -v;
        case BSR_MAP_SIGN: return gradient ? 0 : (v > 0) - (v < 0);
        case BSR_MAP_SQUARE: return gradient ? 2 * v : v * v;
        case BSR_MAP_SQRT: return (double)(gradient ? 0.5L / sqrtl(x) : sqrtl(x));
        case BSR_MAP_RSQRT: return (double)(gradient ? -0.5L / x / sqrtl(x) : 1 / sqrtl(x));
        case BSR_MAP_RECIPROCAL: return (double)(gradient ? -1 / x / x : 1 / x);
        case BSR_MAP_EXP: return (double)expl(x);
        case BSR_MAP_LOG: return (double)(gradient ? 1 / x : logl(x));
        case BSR_MAP_TANH: return (double)(gradient ? 1 - tanhl(x) * tanhl(x) : tanhl(x));
        case BSR_MAP_SIGMOID: return (double)(gradient ? s * (1 - s) : s);
        default: return gradient ? v >= o->low && v <= o->high : v < o->low ? o->low : v > o->high ? o->high : v;
    }
}
TF ref_near ref_joined(int combine, ref_near a, ref_near b, double u) {
    ref_near r;
    switch (combine) {
        case BSR_COMBINE_ADD: r.v = a.v + b.v, r.e = a.e + b.e; break;
        case BSR_COMBINE_SUB: r.v = a.v - b.v, r.e = a.e + b.e; break;
        case BSR_COMBINE_DIV: r.v = a.v / b.v, r.e = (a.e + b.e * fabs(r.v)) / fabs(b.v) * (1 + 4 * u); break;
        case BSR_COMBINE_MAX: r.v = isnan(a.v) || a.v > b.v ? a.v : b.v, r.e = a.e > b.e ? a.e : b.e; return r;
        case BSR_COMBINE_MIN: r.v = isnan(a.v) || a.v < b.v ? a.v : b.v, r.e = a.e > b.e ? a.e : b.e; return r;
        default: r.v = a.v * b.v, r.e = a.e * fabs(b.v) + b.e * fabs(a.v) + a.e * b.e; break;
    }
    r.e += u * fabs(r.v) + u * u;
    return ref_held(r, u);
}
TF ref_near ref_scaled(double factor, double v, double u) {
    ref_near r;
    r.v = factor == 0 ? 0 : factor * v, r.e = factor == 0 || factor == 1 ? 0 : u * fabs(r.v);
    return ref_held(r, u);
}
TF ref_near ref_applied(const bsr_map_options *o, ref_near a, const bsr_position *at, double u) {
    const int gradient = o->combine == BSR_COMBINE_GRADIENT, f = o->function;
    const int exact =
        f == BSR_ACT_NONE || f == BSR_ACT_RELU || f == BSR_MAP_ABS || f == BSR_MAP_NEG || f == BSR_MAP_SIGN || f == BSR_MAP_CLAMP;
    const int smooth = !exact && (f <= BSR_ACT_SILU || f == BSR_MAP_TANH || f == BSR_MAP_SIGMOID);
    ref_near r;
    double up, down, scale;
    if (f >= BSR_USER_FUNCTION_BASE) { /* of the test's, in f32 */
        r.v = f == BSR_EPILOGUE_tf_square ? a.v * a.v : (double)tf_shift((float)a.v, at, o->user_data);
        r.e = f == BSR_EPILOGUE_tf_square ? 3 * u * r.v + 2 * a.e * fabs(a.v) : 2 * a.e + 4 * u * (fabs(r.v) + 2 * fabs(a.v) + 4);
        return ref_held(r, u);
    }
    r.v = ref_function(o, gradient, a.v);
    up = fabs(ref_function(o, gradient, a.v + a.e) - r.v), down = fabs(ref_function(o, gradient, a.v - a.e) - r.v);
    r.e = a.e == 0 ? 0 : up > down ? up : down;
    scale = smooth ? (1 + fabs(a.v)) * (fabs(r.v) > 1 ? fabs(r.v) : 1) : fabs(r.v);
    if (!exact && isfinite(r.v)) r.e += 4 * u * (isfinite(scale) ? scale : fabs(r.v)) + (u > 0x1p-50 ? 0x1p-126 : 0);
    return ref_held(r, u);
}
/* An element, from x's and y's (1 where there is no y). */
TF ref_near ref_map_element(const bsr_map_options *o, double alpha, double x, double beta, double y, const bsr_position *at,
                            double u) {
    ref_near a = ref_scaled(alpha, x, u), b = ref_scaled(beta, y, u);
    const int first = (o->flags & BSR_MAP_AFTER) || o->combine == BSR_COMBINE_GRADIENT;
    if (first) a = ref_applied(o, a, at, u);
    if (o->combine) a = ref_joined(o->combine, a, b, u);
    if (!first) a = ref_applied(o, a, at, u);
    if (!(o->dropout_p > 0)) return a;
    if (ref_dropped(o->dropout_p, o->dropout_seed, at->batch, 0, at->row, at->col)) a.v = 0, a.e = 0;
    else a.v *= o->dropout_p < 1 ? 1 / (1 - o->dropout_p) : 1, a.e = 2 * a.e / (1 - o->dropout_p) + 2 * u * fabs(a.v);
    return a;
}
/* Everything that a call of bsr_map has written, and that it wrote nothing else. x: as it was before (its own values where out is
   another). */
TF void ref_check_map(const char *file, int line, const bsr_map_options *o, double alpha, const bsr_matrix *x, double beta,
                      bsr_operand y, const bsr_matrix *out, unsigned flags) {
    const int of_y = y.sparse ? y.sparse->dtype : y.dense ? y.dense->dtype : BSR_F32;
    const int wide = REF_WIDE(x->dtype) || REF_WIDE(out->dtype) || REF_WIDE(of_y) || (flags & BSR_EXEC_ACCUMULATE_F64);
    const double u = wide ? 0x1p-53 : 0x1p-24;
    const t_shape whole = t_matrix_batch(x);
    int64_t r, p, i, k, bad = 0;
    bsr_position at;
    if (bt.unwanted) return;
    memset(&at, 0, sizeof at), bt.checks++;
    for (at.batch = 0; at.batch < t_matrix_items(x) && !bad; at.batch++)
        for (r = 0; r < x->rows / x->block_rows; r++)
            for (p = t_crow(x, at.batch, r); p < t_crow(x, at.batch, r + 1) && !bad; p++)
                for (i = 0; i < x->block_rows && !bad; i++)
                    for (k = 0; k < x->block_cols && !bad; k++) {
                        double vx = 0, vy = 1, got;
                        ref_near want;
                        at.row = r * x->block_rows + i, at.col = t_col(x, at.batch, p) * x->block_cols + k;
                        if (alpha != 0) vx = t_load(x->values, x->dtype, t_value_at(x, at.batch, p, i, k));
                        if (beta != 0 && y.sparse) {
                            const t_shape mine = t_matrix_batch(y.sparse);
                            vy =
                                t_load(y.sparse->values, of_y, t_value_at(y.sparse, t_item_of(&whole, at.batch, &mine), p, i, k));
                        } else if (beta != 0 && y.dense) {
                            const t_shape mine = t_dense_batch(y.dense);
                            vy = t_get(y.dense, t_item_of(&whole, at.batch, &mine), y.dense->rows == 1 ? 0 : at.row,
                                       y.dense->cols == 1 ? 0 : at.col);
                        }
                        want = ref_map_element(o, alpha, vx, beta, vy, &at, u);
                        got = t_load(out->values, out->dtype, t_value_at(out, at.batch, p, i, k));
                        if (ref_within(out->dtype, got, want)) continue;
                        bt_fail(file, line, "item %d, (%d, %d): %.17g of %.17g, %.17g, want %.17g within %.3g", (int)at.batch,
                                (int)at.row, (int)at.col, got, vx, vy, want.v, want.e);
                        bad = 1;
                    }
    t_check_value_gaps(out);
}
#define REF_CHECK_MAP(o, alpha, x, beta, y, out, flags) ref_check_map(__FILE__, __LINE__, o, alpha, x, beta, y, out, flags)

/* ---- reductions ---- */

typedef struct ref_line { /* of a reduction, so far */
    ref_real sum, magnitude;
    double n, most, least;
    int nan;
} ref_line;
TF void ref_line_add(ref_line *l, int kind, double v) {
    const int absolute = kind == BSR_REDUCE_SUM_ABS || kind == BSR_REDUCE_MAX_ABS;
    const int squares = kind == BSR_REDUCE_SUM_SQUARES || kind == BSR_REDUCE_NORM2;
    const ref_real x = absolute ? fabsl((ref_real)v) : squares ? (ref_real)v * (ref_real)v : (ref_real)v;
    if (isnan(v)) l->nan = 1;
    if (l->n == 0 || (double)x > l->most) l->most = (double)x;
    if (l->n == 0 || (double)x < l->least) l->least = (double)x;
    l->sum += x, l->magnitude += fabsl(x), l->n++;
}
TF ref_near ref_line_end(const ref_line *l, int kind, double all, double u) {
    ref_near r;
    r.e = 0;
    if (kind == BSR_REDUCE_MAX) r.v = l->n > 0 ? l->most : -(double)INFINITY;
    else if (kind == BSR_REDUCE_MIN) r.v = l->n > 0 ? l->least : (double)INFINITY;
    else if (kind == BSR_REDUCE_MAX_ABS) r.v = l->n > 0 ? l->most : 0;
    else r.v = (double)l->sum, r.e = (l->n + 2) * u * (double)l->magnitude;
    if (kind == BSR_REDUCE_NORM2) r.e = r.v > 0 ? r.e / sqrt(r.v) + 2 * u * sqrt(r.v) : 0, r.v = sqrt(r.v);
    if (kind == BSR_REDUCE_MEAN) r.v /= l->n, r.e = r.e / l->n * 1.01;
    if (kind == BSR_REDUCE_MEAN_ALL) r.v /= all, r.e = r.e / all * 1.01;
    if (kind == BSR_REDUCE_MEAN || kind == BSR_REDUCE_MEAN_ALL) r.e += 2 * u * fabs(r.v);
    if (l->nan) r.v = (double)NAN;
    return r;
}
/* Everything that a call of bsr_reduce has written, and that it wrote nothing else. */
TF void ref_check_reduce(const char *file, int line, int kind, int over, const bsr_matrix *x, const bsr_dense *out,
                         unsigned flags) {
    const int narrow = x->dtype == BSR_F16 || x->dtype == BSR_BF16 || x->dtype == BSR_F32 || t_is_f8(x->dtype);
    const double u = narrow && !(flags & BSR_EXEC_ACCUMULATE_F64) ? 0x1p-24 : 0x1p-53;
    const double all = over == BSR_OVER_ROWS   ? (double)x->cols
                       : over == BSR_OVER_COLS ? (double)x->rows
                       : over == BSR_OVER_ALL  ? (double)x->rows * (double)x->cols
                                               : (double)(x->block_rows * x->block_cols);
    const int64_t items = t_matrix_items(x), outs = t_dense_items(out), n = out->rows * out->cols;
    const t_shape whole = t_matrix_batch(x), mine = t_dense_batch(out);
    ref_line *lines = (ref_line *)calloc((size_t)(outs * n) + 1, sizeof *lines);
    int64_t b, r, p, i, k;
    if (!lines) abort();
    for (b = 0; b < items && !bt.unwanted; b++)
        for (r = 0; r < x->rows / x->block_rows; r++)
            for (p = t_crow(x, b, r); p < t_crow(x, b, r + 1); p++)
                for (i = 0; i < x->block_rows; i++)
                    for (k = 0; k < x->block_cols; k++) {
                        const int64_t row = r * x->block_rows + i, col = t_col(x, b, p) * x->block_cols + k;
                        const int64_t at = over == BSR_OVER_ROWS     ? row
                                           : over == BSR_OVER_COLS   ? col
                                           : over == BSR_OVER_BLOCKS ? p
                                                                     : 0;
                        ref_line *l = &lines[t_item_of(&whole, b, &mine) * n + at];
                        ref_line_add(l, kind, t_load(x->values, x->dtype, t_value_at(x, b, p, i, k)));
                    }
    bt.checks++;
    for (i = 0; i < outs * n && !bt.unwanted; i++) {
        const int64_t item = i / n, at = i % n;
        const double got = t_get(out, item, out->rows == 1 ? 0 : at, out->rows == 1 ? at : 0);
        const ref_near want = ref_line_end(&lines[i], kind, all, u);
        if (ref_within(out->dtype, got, want)) continue;
        bt_fail(file, line, "line %d of item %d: %.17g, want %.17g within %.3g", (int)at, (int)item, got, want.v, want.e);
        break;
    }
    free(lines);
    t_check_gaps(out);
}
#define REF_CHECK_REDUCE(kind, over, x, out, flags) ref_check_reduce(__FILE__, __LINE__, kind, over, x, out, flags)
/* What it is to be written to. */
TF bsr_dense ref_reduce_out(int over, const bsr_matrix *x, int dtype, int layout) {
    t_shape batch = t_matrix_batch(x);
    int i;
    for (i = 0; i < batch.dims && over == BSR_OVER_BLOCKS; i++)
        if ((x->flags & BSR_MATRIX_RAGGED) && x->crow_batch_stride[i] && batch.n[i]) batch.n[i] = 1;
    return t_output(dtype,
                    over == BSR_OVER_ROWS     ? x->rows
                    : over == BSR_OVER_BLOCKS ? x->nnz
                                              : 1,
                    over == BSR_OVER_COLS ? x->cols : 1, layout, batch);
}

#endif
