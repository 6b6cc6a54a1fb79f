/* ref_attention.h: gradients of attention in float64 and wider, from the whole matrix of probabilities, with a bound for each
   element. Apart from the implementation, as ref64.h; the bounds are those of bsr_attention_backward's comment. */
#ifndef BSR_REF_ATTENTION_H
#define BSR_REF_ATTENTION_H

#include "ref64.h"

/* A call: what goes in, what comes out. Views without data are absent. */
typedef struct ref_gradients {
    const bsr_context *ctx;
    double scale;
    bsr_dense q, k, v, out, lse, row_max, d_out, d_lse, dq, dk, dv, d_bias, d_sinks, d_slopes;
    bsr_matrix mask, d_scores;
    bsr_attention_options o;
    bsr_attention_extra extra;
    t_shape whole;
    int has_lse, has_bias, has_scores, has_max; /* d_lse, d_bias, d_scores, row_max are there */
    int flags;
} ref_gradients;

/* A sum of products: value, error that its terms bring along, magnitudes, number of terms. */
typedef struct ref_total {
    ref_array value, error, size, count;
} ref_total;
TF ref_total ref_total_new(t_shape batch, int64_t rows, int64_t cols) {
    ref_total t;
    t.value = ref_new(batch, rows, cols), t.error = ref_new(batch, rows, cols);
    t.size = ref_new(batch, rows, cols), t.count = ref_new(batch, rows, cols);
    return t;
}
TF void ref_total_add(ref_total *t, int64_t item, int64_t i, int64_t j, double x, double error) {
    *ref_at(&t->value, item, i, j) += x, *ref_at(&t->error, item, i, j) += error;
    *ref_at(&t->size, item, i, j) += fabs(x), *ref_at(&t->count, item, i, j) += 1;
}
TF ref_result ref_total_end(const ref_total *t, double u, double tiny) {
    const int64_t all = t->value.items * t->value.rows * t->value.cols;
    ref_result r;
    int64_t k;
    r.want = t->value, r.bound = t->error;
    for (k = 0; k < all; k++)
        if (t->count.v[k] > 0) r.bound.v[k] += (t->count.v[k] + 4) * (u * t->size.v[k] + 4 * tiny);
    return r;
}

/* One score: its value before and after the score function, the error of the latter; -inf where it is forbidden. */
typedef struct ref_score {
    double raw, s, e;
    double cap; /* derivative of the soft-cap */
    ref_real p;  /* its probability */
    double keep; /* 0: dropped */
} ref_score;
typedef struct ref_tables { /* operands as arrays */
    ref_array q, k, v, mask, count, kind, bias, padding, slopes, sinks;
} ref_tables;
TF ref_score ref_score_of(const ref_gradients *c, const ref_tables *a, int64_t item, int64_t i, int64_t j, double scale) {
    const bsr_attention_options *o = &c->o;
    const double u = c->q.dtype == BSR_F64 ? REF_U64 : 0x1p-24, inf = (double)INFINITY;
    const int64_t iq = t_item_of(&c->whole, item, &a->q.batch), ik = ref_kv_item(&c->whole, item, &a->k.batch);
    const int64_t im = ref_kv_item(&c->whole, item, &a->count.batch), heads = c->whole.dims ? c->whole.n[c->whole.dims - 1] : 1;
    const double m = *ref_at(&a->mask, im, i, j), rel = a->bias.v ? ref_seen(&a->bias, &c->whole, item, i, j) : 0;
    const double pad = ref_mask_term(&a->padding, o->key_padding_mode, &c->whole, item, i, j);
    const double slope = a->slopes.v ? ref_seen(&a->slopes, &c->whole, item, 0, 0) : 0, kind = *ref_at(&a->kind, im, i, j);
    const int64_t off = j - i - o->causal_offset;
    ref_score r;
    ref_real dot = 0, mag = 0;
    bsr_position at;
    int64_t d;
    r.raw = r.s = -inf, r.e = r.keep = 0, r.p = 0, r.cap = 1;
    at.batch = item / heads, at.head = item % heads, at.row = i, at.col = j;
    if (*ref_at(&a->count, im, i, j) == 0 || kind == BSR_BLOCK_SKIP || !ref_there(o, c->mask.block_cols, item / heads, i, j))
        return r;
    if (rel == -inf || ((o->flags & BSR_ATTENTION_MASK_ADDITIVE) && m == -inf)) return r;
    if (pad == -inf && (kind == BSR_BLOCK_PARTIAL || o->key_padding_mode == BSR_MASK_ADD)) return r;
    if (kind == BSR_BLOCK_PARTIAL) {
        if ((o->flags & BSR_ATTENTION_CAUSAL) && !(j <= i + o->causal_offset)) return r;
        if ((o->flags & BSR_ATTENTION_WINDOW) && !(-o->window_left <= off && off <= o->window_right)) return r;
        if ((o->flags & BSR_ATTENTION_MASK_BOOLEAN) && m == 0) return r;
        if (o->mask_function == BSR_MASK_tf_stripes && !tf_stripes(&at, o->user_data)) return r;
        if (o->mask_function == BSR_MASK_tf_nothing) return r;
    }
    for (d = 0; d < c->q.cols; d++) {
        const ref_real x = (ref_real)*ref_at(&a->q, iq, i, d) * *ref_at(&a->k, ik, j, d);
        dot += x, mag += fabsl(x);
    }
    r.s = (double)(scale * dot), r.e = fabs(scale) * ((double)c->q.cols + 2) * u * (double)mag + 2 * u * fabs(r.s);
    if (o->softcap > 0) {
        r.s = o->softcap * tanh(r.s / o->softcap), r.e += 8 * u * o->softcap;
        r.cap = 1 - r.s / o->softcap * (r.s / o->softcap);
    }
    if (o->flags & BSR_ATTENTION_MASK_ADDITIVE) r.s += m, r.e += 2 * u * (fabs(m) + fabs(r.s));
    if (slope != 0) r.s -= slope * fabs((double)off), r.e += 2 * u * (fabs(slope * (double)off) + fabs(r.s));
    r.s += rel, r.e += 2 * u * (fabs(rel) + fabs(r.s));
    if (pad > -inf) r.s += pad, r.e += 2 * u * (fabs(pad) + fabs(r.s));
    r.raw = r.s;
    if (o->score_function == BSR_SCORE_tf_alibi)
        r.s = (double)tf_alibi((float)r.s, &at, o->user_data), r.e += 0x1p-24 * (16 + 8 * fabs(r.s));
    if (o->score_function == BSR_SCORE_tf_softcap) r.s = (double)tf_softcap((float)r.s, &at, o->user_data), r.e += 0x1p-24 * 8;
    return r;
}
/* The score function's derivative, and a bound on how fast that changes. */
TF double ref_derivative(const ref_gradients *c, double raw, double *bend) {
    *bend = c->o.score_function == BSR_SCORE_tf_softcap ? 2 : 0;
    return c->o.score_function == BSR_SCORE_tf_softcap ? 1 / ((1 + fabs(raw)) * (1 + fabs(raw))) : 1;
}

typedef struct ref_gradient_results {
    ref_result out, lse, row_max, dq, dk, dv, d_bias, d_scores, d_sinks, d_slopes;
} ref_gradient_results;
TF ref_gradient_results ref_attention_backward(const ref_gradients *c) {
    const int64_t lq = c->q.rows, lk = c->k.rows, dv = c->v.cols, heads = c->whole.dims ? c->whole.n[c->whole.dims - 1] : 1;
    const int f64 = c->q.dtype == BSR_F64;
    const double u = f64 ? REF_U64 : 0x1p-24, tiny = f64 ? DBL_MIN : FLT_MIN, inf = (double)INFINITY;
    /* where probabilities and gradients are rounded before products: by how much, and what is lost of the least */
    const int rounds = REF_ROUNDS_P && (c->q.dtype == BSR_F16 || c->q.dtype == BSR_BF16), half = c->q.dtype == BSR_F16;
    const double ulp = rounds ? half ? 0x1p-11 : 0x1p-8 : 0, least = rounds && half ? 0x1p-25 : 0;
    const double scale = c->scale != 0 ? c->scale : c->q.cols ? 1 / sqrt((double)c->q.cols) : 1;
    ref_array none = ref_none(), out = ref_dense(&c->out), lse = ref_dense(&c->lse), go = ref_dense(&c->d_out), gl = none;
    ref_total q, k, v, bias, scores, sinks, slopes;
    ref_gradient_results r;
    ref_tables a;
    ref_score *s = (ref_score *)calloc((size_t)lk + 1, sizeof *s);
    int64_t item, i, j, d;
    if (!s) abort();
    a.q = ref_dense(&c->q), a.k = ref_dense(&c->k), a.v = ref_dense(&c->v), a.mask = ref_matrix(&c->mask, &a.count);
    a.bias = c->o.relative_bias ? ref_dense(c->o.relative_bias) : none;
    a.padding = c->o.key_padding_mask ? ref_dense(c->o.key_padding_mask) : none, a.kind = ref_kinds(&c->mask, &c->o);
    a.slopes = c->o.slopes ? ref_dense(c->o.slopes) : none, a.sinks = c->o.sinks ? ref_dense(c->o.sinks) : none;
    slopes = ref_total_new(a.slopes.v ? a.slopes.batch : NO_BATCH, 1, 1);
    sinks = ref_total_new(a.sinks.v ? a.sinks.batch : NO_BATCH, 1, 1);
    r.out.want = ref_new(c->whole, lq, dv), r.out.bound = ref_new(c->whole, lq, dv);
    r.lse.want = ref_new(c->whole, lq, 1), r.lse.bound = ref_new(c->whole, lq, 1);
    r.row_max.want = ref_new(c->whole, lq, 1), r.row_max.bound = ref_new(c->whole, lq, 1);
    if (c->has_lse) gl = ref_dense(&c->d_lse);
    q = ref_total_new(a.q.batch, lq, c->q.cols), k = ref_total_new(a.k.batch, lk, c->k.cols);
    v = ref_total_new(a.v.batch, lk, dv), scores = ref_total_new(c->whole, c->mask.rows, c->mask.cols);
    bias = a.bias.v ? ref_total_new(a.bias.batch, a.bias.rows, a.bias.cols) : ref_total_new(NO_BATCH, 0, 0);
    for (item = 0; item < out.items && BT_WANTED; item++) {
        const int64_t iq = t_item_of(&c->whole, item, &a.q.batch), ik = ref_kv_item(&c->whole, item, &a.k.batch);
        const int64_t iv = ref_kv_item(&c->whole, item, &a.v.batch);
        for (i = 0; i < lq; i++) {
            ref_real sum = 0, norm;
            const int there = !c->o.lengths || !c->o.lengths->q_lengths || i < c->o.lengths->q_lengths[item / heads];
            const double sink = a.sinks.v && there ? ref_seen(&a.sinks, &c->whole, item, 0, 0) : -inf;
            double top = -inf, delta = 0, delta_size = 0, wrong, worst = 0, relative, n = 0;
            for (j = 0; j < lk; j++) s[j] = ref_score_of(c, &a, item, i, j, scale), top = s[j].s > top ? s[j].s : top;
            *ref_at(&r.row_max.want, item, i, 0) = top, *ref_at(&r.lse.want, item, i, 0) = top;
            for (j = 0; j < lk; j++)
                if (s[j].s > -inf) worst = fmax(worst, s[j].e), n += 1;
            *ref_at(&r.row_max.bound, item, i, 0) = worst;
            if (sink > top) top = sink;
            *ref_at(&r.lse.want, item, i, 0) = top;
            if (top == -inf) continue;
            for (j = 0; j < lk; j++)
                if (s[j].s > -inf) worst = fmax(worst, s[j].e + 2 * u * fabs(s[j].s - top));
            relative = 2.5 * worst + (16 + 4 * log2(n + 2) + n + 1) * u, sum = expl((ref_real)sink - top);
            for (j = 0; j < lk; j++) sum += s[j].s == -inf ? 0 : expl((ref_real)s[j].s - top);
            norm = top + logl(sum), *ref_at(&r.lse.want, item, i, 0) = (double)norm;
            *ref_at(&r.lse.bound, item, i, 0) = relative + 4 * u * (fabs(top) + fabs((double)logl(sum)) + 1);
            wrong = fabs(*ref_at(&lse, item, i, 0) - (double)norm);
            for (j = 0; j < lk; j++) {
                if (s[j].s == -inf) continue;
                s[j].p = expl((ref_real)s[j].s - norm);
                if (!(c->o.dropout_p > 0 && ref_dropped(c->o.dropout_p, c->o.dropout_seed, item / heads, item % heads, i, j)))
                    s[j].keep = 1 / (1 - c->o.dropout_p);
            }
            if (gl.v) delta -= *ref_at(&gl, item, i, 0), delta_size += fabs(delta);
            /* delta of the exact out; `slip`: by how much the given one may be off */
            {
                double slip = 0;
                for (d = 0; d < dv; d++) {
                    ref_real o = 0, mag = 0;
                    double all_v = 0;
                    for (j = 0; j < lk; j++) all_v += s[j].keep > 0 ? s[j].keep * fabs(*ref_at(&a.v, iv, j, d)) : 0;
                    for (j = 0; j < lk; j++)
                        if (s[j].keep > 0)
                            o += s[j].p * *ref_at(&a.v, iv, j, d) * s[j].keep,
                                mag += fabsl(s[j].p * *ref_at(&a.v, iv, j, d) * s[j].keep);
                    *ref_at(&r.out.want, item, i, d) = (double)o;
                    *ref_at(&r.out.bound, item, i, d) =
                        n > 0 ? (relative + ulp) * (double)mag + least * all_v + (n + 1) * 4 * tiny : 0;
                    if (n == 0) continue;
                    delta += (double)o * *ref_at(&go, item, i, d), delta_size += fabs((double)o * *ref_at(&go, item, i, d));
                    slip += fabs((double)o - *ref_at(&out, item, i, d)) * fabs(*ref_at(&go, item, i, d));
                }
                delta_size = slip + ((double)dv + 4) * u * delta_size;
            }
            if (sink > -inf) {
                const double p = (double)expl((ref_real)sink - norm);
                const double off = p * (2.5 * wrong + (8 + fabs(sink - (double)norm)) * u) + tiny;
                ref_total_add(&sinks, t_item_of(&c->whole, item, &a.sinks.batch), 0, 0, -p * delta,
                              off * (fabs(delta) + delta_size) + p * delta_size);
            }
            for (j = 0; j < lk; j++) {
                const double keep = s[j].keep, away = fabs((double)(j - i - c->o.causal_offset));
                double p, p_off, dp = 0, mag = 0, ds, off, factor, bend;
                if (s[j].s == -inf) continue;
                p = (double)s[j].p;
                p_off = p * (2.5 * (s[j].e + wrong) + (8 + fabs(s[j].s - (double)norm)) * u) + tiny;
                for (d = 0; d < dv; d++) {
                    const double g = *ref_at(&go, item, i, d), x = *ref_at(&a.v, iv, j, d);
                    dp += keep * g * x, mag += fabs(keep * g * x);
                    if (keep > 0) ref_total_add(&v, iv, j, d, p * keep * g, (p_off + p * ulp + least) * keep * fabs(g));
                }
                ds = p * (dp - delta);
                off = p_off * (fabs(dp) + fabs(delta)) +
                      (p + p_off) * (((double)dv + 4) * u * mag + delta_size + 4 * u * (fabs(dp) + fabs(delta)));
                factor = ref_derivative(c, s[j].raw, &bend);
                off = off * factor + fabs(ds) * (bend * s[j].e + 16 * u) + tiny, ds *= factor;
                ref_total_add(&scores, item, i, j, ds, off);
                if (a.bias.v)
                    ref_total_add(&bias, t_item_of(&c->whole, item, &a.bias.batch), a.bias.rows == 1 ? 0 : i,
                                  a.bias.cols == 1 ? 0 : j, ds, off);
                if (a.slopes.v)
                    ref_total_add(&slopes, t_item_of(&c->whole, item, &a.slopes.batch), 0, 0, -ds * away, off * away);
                if (c->o.softcap > 0) off = off * s[j].cap + fabs(ds) * (4 / c->o.softcap * s[j].e + 8 * u), ds *= s[j].cap;
                off += 2 * fabs(ds) * ulp + least * (1 + fabs(dp) + fabs(delta)); /* of rounded probabilities, rounded */
                for (d = 0; d < c->q.cols; d++) {
                    const double x = *ref_at(&a.q, iq, i, d), y = *ref_at(&a.k, ik, j, d);
                    ref_total_add(&q, iq, i, d, scale * ds * y, fabs(scale * y) * off);
                    ref_total_add(&k, ik, j, d, scale * ds * x, fabs(scale * x) * off);
                }
            }
        }
    }
    free(s);
    r.dq = ref_total_end(&q, u, tiny), r.dk = ref_total_end(&k, u, tiny), r.dv = ref_total_end(&v, u, tiny);
    r.d_sinks = ref_total_end(&sinks, u, tiny), r.d_slopes = ref_total_end(&slopes, u, tiny);
    r.d_bias = ref_total_end(&bias, u, tiny), r.d_scores = ref_total_end(&scores, u, tiny);
    return r;
}

/* The forward call, then the backward, all of whose outputs are compared. */
TF int ref_run_forward(ref_gradients *c) {
    bsr_exec e = t_exec(0);
    return RUN_OK(bsr_attention(c->ctx, c->scale, &c->q, &c->k, &c->v, &c->mask, &c->o, &c->out, &c->lse, &e));
}
TF int ref_run_gradients(ref_gradients *c, const bsr_exec *e) {
    return RUN_OK(bsr_attention_backward(c->ctx, c->scale, &c->q, &c->k, &c->v, &c->mask, &c->o, &c->out, &c->lse, &c->d_out,
                                         &c->dq, &c->dk, &c->dv, e));
}
TF void ref_compare_backward(ref_gradients *c) {
    const ref_gradient_results r = ref_attention_backward(c);
    REF_COMPARE(&c->out, &r.out, c->flags);
    REF_COMPARE(&c->lse, &r.lse, REF_ANY);
    if (c->has_max) REF_COMPARE(&c->row_max, &r.row_max, REF_ANY);
    if (c->extra.d_sinks) REF_COMPARE(&c->d_sinks, &r.d_sinks, c->flags);
    if (c->extra.d_slopes) REF_COMPARE(&c->d_slopes, &r.d_slopes, c->flags);
    REF_COMPARE(&c->dq, &r.dq, c->flags);
    REF_COMPARE(&c->dk, &r.dk, c->flags);
    REF_COMPARE(&c->dv, &r.dv, c->flags);
    if (c->has_bias) REF_COMPARE(&c->d_bias, &r.d_bias, c->flags);
    if (c->has_scores) REF_COMPARE_MATRIX(&c->d_scores, &r.d_scores, c->flags);
}
TF void ref_run_backward(ref_gradients *c, uint32_t exec_flags) {
    bsr_exec e = t_exec(exec_flags);
    if (ref_run_forward(c) && ref_run_gradients(c, &e)) ref_compare_backward(c);
}
/* With the workspace that a query names, or a part of it. */
TF void ref_run_backward_in(ref_gradients *c, uint32_t exec_flags, double part) {
    bsr_exec e = t_exec(exec_flags);
    bsr_plan plan;
    if (!ref_run_forward(c)) return;
    e.query = &plan;
    if (!ref_run_gradients(c, &e)) return;
    e.query = NULL, e.workspace_bytes = (uint64_t)((double)plan.workspace_bytes * part);
    if (e.workspace_bytes) e.workspace = bt_alloc((size_t)e.workspace_bytes, 64), bt_mark_output(e.workspace);
    if (ref_run_gradients(c, &e)) ref_compare_backward(c);
}

/* A matrix with the mask's pattern and values of its own for each item of the batch. */
TF bsr_matrix ref_scores_of(const bsr_matrix *mask, const t_shape *whole, int dtype) {
    bsr_matrix m = *mask;
    int64_t n = mask->nnz * mask->block_rows * mask->block_cols;
    int k;
    m.dtype = dtype, m.batch_dims = whole->dims, m.transposed_index = m.schedule = NULL;
    memset(m.value_strides, 0, sizeof m.value_strides);
    for (k = whole->dims - 1; k >= 0; k--) {
        const int from = k - (whole->dims - mask->batch_dims), own = from >= 0 && mask->batch[from] != 1;
        m.batch[k] = whole->n[k];
        m.crow_batch_stride[k] = own ? mask->crow_batch_stride[from] : 0;
        m.col_batch_stride[k] = own ? mask->col_batch_stride[from] : 0;
        m.values_batch_stride[k] = n;
        if ((m.flags & BSR_MATRIX_RAGGED) && m.crow_batch_stride[k]) m.values_batch_stride[k] = 0;
        else n *= whole->n[k];
    }
    m.values = bt_alloc((size_t)n * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
    bt_mark_output(m.values);
    return m;
}
/* Operands and outputs for a pattern, as attention_new() of test_attention.c makes them. wide: outputs in f32. */
TF ref_gradients ref_gradients_new(const t_spec *s, int dtype, int64_t lq, int64_t lk, int64_t d, int64_t dv, t_shape bq,
                                   t_shape bk, t_shape bv, t_shape whole, int wide) {
    const int to = wide && dtype != BSR_F64 ? BSR_F32 : dtype, norm = dtype == BSR_F64 ? BSR_F64 : BSR_F32;
    ref_gradients c;
    memset(&c, 0, sizeof c);
    c.ctx = t_any_context(), c.whole = whole, c.flags = REF_MAY_BE_ZERO;
    c.mask = t_matrix(s);
    c.q = t_random(dtype, lq, d, (int)bt_below(LAYOUTS), bq, 0, FILL_SIGNED);
    c.k = t_random(dtype, lk, d, (int)bt_below(LAYOUTS), bk, 0, FILL_SIGNED);
    c.v = t_random(dtype, lk, dv, (int)bt_below(LAYOUTS), bv, 0, FILL_SIGNED);
    c.out = t_output(to, lq, dv, (int)bt_below(LAYOUTS), whole), c.lse = t_output(norm, lq, 1, (int)bt_below(LAYOUTS), whole);
    c.d_out = t_random(to, lq, dv, (int)bt_below(LAYOUTS), whole, 0, FILL_SIGNED);
    c.d_lse = t_random(norm, lq, 1, (int)bt_below(LAYOUTS), whole, 0, FILL_SIGNED);
    c.dq = t_output(to, lq, d, (int)bt_below(LAYOUTS), bq), c.dk = t_output(to, lk, d, (int)bt_below(LAYOUTS), bk);
    c.dv = t_output(to, lk, dv, (int)bt_below(LAYOUTS), bv);
    return c;
}
/* Attaches what is rarely asked for: c must stay where it is. */
TF void ref_gradients_extra(ref_gradients *c, int lse, int bias, int scores, int scores_dtype) {
    c->has_lse = lse, c->has_bias = bias && c->o.relative_bias, c->has_scores = scores;
    c->o.extra = &c->extra;
    if (lse) c->extra.d_lse = &c->d_lse;
    if (c->has_bias) {
        const bsr_dense *b = c->o.relative_bias;
        const int type = c->q.dtype == BSR_F64 ? BSR_F64 : BSR_F32;
        c->d_bias = t_output(type, b->rows, b->cols, (int)bt_below(LAYOUTS), t_dense_batch(b));
        c->extra.d_relative_bias = &c->d_bias;
    }
    if (c->o.sinks) {
        c->d_sinks = t_output(c->q.dtype == BSR_F64 ? BSR_F64 : BSR_F32, 1, 1, ROW, t_dense_batch(c->o.sinks));
        c->extra.d_sinks = &c->d_sinks;
    }
    if (c->o.slopes) {
        c->d_slopes = t_output(c->q.dtype == BSR_F64 ? BSR_F64 : BSR_F32, 1, 1, ROW, t_dense_batch(c->o.slopes));
        c->extra.d_slopes = &c->d_slopes;
    }
    if (lse) {
        c->row_max = t_output(c->lse.dtype, c->q.rows, 1, ROW, c->whole);
        c->extra.row_max = &c->row_max, c->has_max = 1;
    }
    if (scores) c->d_scores = ref_scores_of(&c->mask, &c->whole, scores_dtype), c->extra.d_scores = &c->d_scores;
}

/* Parts of one attention, and their merge. */
enum { REF_PARTS = 5 };
typedef struct ref_merge {
    bsr_dense x[REF_PARTS], y[REF_PARTS], out, lse;
    int parts;
    ref_result want, norm; /* of out, of lse */
} ref_merge;
/* out[] and lse[] of parts in `dtype`, out in type `to`. Some rows of a part, and every eighth row of all, attend to nothing.
   in_place: the result stands where the first part stood. */
TF void ref_merge_draw(ref_merge *g, int dtype, int to, int parts, int64_t rows, int64_t dv, t_shape b, int in_place) {
    const int norm = dtype == BSR_F64 ? BSR_F64 : BSR_F32;
    int64_t n, i, d;
    int p;
    g->parts = parts;
    for (p = 0; p < parts; p++) {
        bsr_dense *x = &g->x[p], *y = &g->y[p];
        *x = t_random(in_place ? to : dtype, rows, dv, (int)bt_below(LAYOUTS), p && bt_below(3) == 0 ? NO_BATCH : b, 0,
                      FILL_SIGNED);
        *y = t_random(norm, rows, 1, (int)bt_below(LAYOUTS), b, 0, FILL_SIGNED);
        for (n = 0; n < t_items(&b); n++)
            for (i = 0; i < rows; i++) {
                const int idle = i % 8 == 5 || bt_below(4) == 0;
                t_set(y, n, i, 0, idle ? -(double)INFINITY : 30 * t_get(y, n, i, 0));
                for (d = 0; d < dv && i % 8 == 5 && !(in_place && p == 0); d += 3)
                    t_set(x, x->batch_dims ? n : 0, i, d, (double)NAN);
            }
    }
    g->out = in_place ? g->x[0] : t_output(to, rows, dv, (int)bt_below(LAYOUTS), b);
    g->lse = in_place ? g->y[0] : t_output(norm, rows, 1, (int)bt_below(LAYOUTS), b);
    if (in_place) bt_mark_output(g->out.data), bt_mark_output(g->lse.data);
}
TF void ref_merge_row(ref_merge *g, int f64, int64_t n, int64_t i) {
    const double u = f64 ? REF_U64 : 0x1p-24;
    ref_real all = 0;
    double top;
    int64_t d;
    int p;
    for (p = 0; p < g->parts; p++) all += expl((ref_real)t_get(&g->y[p], n, i, 0));
    top = (double)logl(all);
    *ref_at(&g->norm.want, n, i, 0) = all > 0 ? top : -(double)INFINITY;
    *ref_at(&g->norm.bound, n, i, 0) = all > 0 ? 8 * 0x1p-53 * (fabs(top) + 30) : 0;
    for (p = 0; p < g->parts; p++) {
        const bsr_dense *x = &g->x[p];
        const double v = t_get(&g->y[p], n, i, 0), share = (double)(expl((ref_real)v) / all);
        for (d = 0; d < x->cols && v > -(double)INFINITY; d++) {
            const double part = share * t_get(x, x->batch_dims ? n : 0, i, d);
            *ref_at(&g->want.want, n, i, d) += part;
            *ref_at(&g->want.bound, n, i, d) += (g->parts + 8 + 4 * fabs(v - top)) * u * fabs(part) + 1e-45 * !f64;
        }
    }
}
/* What the merge is to give: before the call, as it may stand in place. */
TF void ref_merge_want(ref_merge *g) {
    const t_shape b = t_dense_batch(&g->out);
    int64_t n, i;
    g->want.want = ref_new(b, g->out.rows, g->out.cols), g->want.bound = ref_new(b, g->out.rows, g->out.cols);
    g->norm.want = ref_new(b, g->out.rows, 1), g->norm.bound = ref_new(b, g->out.rows, 1);
    for (n = 0; n < t_items(&b); n++)
        for (i = 0; i < g->out.rows; i++) ref_merge_row(g, g->out.dtype == BSR_F64, n, i);
}

#endif
