/* ref_moe.h: what mixtures of experts must give, in float64, slot by slot: no rows, no blocks, no order of experts. A number comes
   with a bound of what may be off, which goes through products, functions and roundings by first and second order. Include after
   ref64.h. */
#ifndef BSR_REF_MOE_H
#define BSR_REF_MOE_H

typedef struct rm_array {
    int64_t rows, cols;
    double *v, *e; /* numbers, bounds */
} rm_array;
TF rm_array rm_new(int64_t rows, int64_t cols) {
    const size_t bytes = (size_t)(rows * cols) * sizeof(double);
    rm_array a;
    a.rows = rows, a.cols = cols;
    a.v = (double *)bt_alloc(bytes, sizeof(double)), a.e = (double *)bt_alloc(bytes, sizeof(double));
    bt_mark_output(a.v), bt_mark_output(a.e);
    memset(a.v, 0, bytes), memset(a.e, 0, bytes);
    return a;
}
TF int64_t rm_at(const rm_array *a, int64_t i, int64_t j) { return i * a->cols + j; }
TF rm_array rm_dense(const bsr_dense *d) {
    rm_array a = rm_new(d->rows, d->cols);
    int64_t i, j;
    for (i = 0; i < a.rows; i++)
        for (j = 0; j < a.cols; j++) a.v[rm_at(&a, i, j)] = t_get(d, 0, i, j);
    return a;
}
TF double rm_unit(int dtype) { return dtype == BSR_F64 ? REF_U64 : 0x1p-24; }
/* A sum of n products: exact sum, sum of magnitudes, sum of what the factors' bounds let through. */
typedef struct rm_sum {
    double s, t, e;
    int64_t n;
} rm_sum;
TF void rm_add(rm_sum *s, double x, double ex, double y, double ey) {
    s->s += x * y, s->t += (fabs(x) + ex) * (fabs(y) + ey), s->e += fabs(x) * ey + ex * fabs(y) + ex * ey, s->n++;
}
/* Stored in dtype. */
TF void rm_set(rm_array *a, int64_t i, int64_t j, int dtype, double v, double e) {
    const int64_t at = rm_at(a, i, j);
    a->v[at] = v, a->e[at] = e + t_half_ulp(dtype, fabs(v) + e) * (1 + 0x1p-20);
}
TF void rm_set_sum(rm_array *a, int64_t i, int64_t j, int dtype, const rm_sum *s) {
    const double u = rm_unit(dtype), extra = s->n ? (double)(s->n + 2) * u * s->t : 0;
    rm_set(a, i, j, dtype, s->s, s->e + extra + (double)s->n * (dtype == BSR_F64 ? 0x1p-1074 : 0x1p-149));
}
TF double rm_act(int act, double x) {
    switch (act) {
        case BSR_ACT_RELU: return x > 0 ? x : x != x ? x : 0;
        case BSR_ACT_GELU: return x / 2 * (1 + erf(x / sqrt(2.0)));
        case BSR_ACT_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
        case BSR_ACT_SILU: return x / (1 + exp(-x));
        default: return x;
    }
}
TF double rm_slope(int act, double x) {
    const double s = 1 / (1 + exp(-x)), pi = 3.14159265358979323846;
    switch (act) {
        case BSR_ACT_RELU: return x > 0;
        case BSR_ACT_GELU: return (1 + erf(x / sqrt(2.0))) / 2 + x * exp(-x * x / 2) / sqrt(2 * pi);
        case BSR_ACT_GELU_TANH: {
            const double t = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
            return (1 + t) / 2 + x / 2 * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
        }
        case BSR_ACT_SILU: return s * (1 + x * (1 - s));
        default: return 1;
    }
}
/* act(g) u, of numbers that are off by eg and eu: slopes are below 1.2, their own below 1.2 (relu's corner apart). */
TF void rm_gated(rm_array *a, int64_t i, int64_t j, int dtype, int act, double g, double eg, double u, double eu) {
    const double f = rm_act(act, g), ef = 1.2 * eg + 8 * rm_unit(dtype) * (1 + fabs(g) + eg) * fmax(fabs(f) + eg, 1);
    rm_set(a, i, j, dtype, f * u, fabs(f) * eu + ef * fabs(u) + ef * eu + 4 * rm_unit(dtype) * fabs(f * u));
}

typedef struct rm_layer { /* what a layer has, and gets */
    int64_t tokens, slots, experts, h, f;
    int act, dtype;
    const int64_t *expert; /* of each slot; -1: none, or left out */
    rm_array x, weights, w1, w3, w2, dy;                /* w1, w3: H x E F; w2: E F x H */
    rm_array g, u, hidden, y, out;                      /* by slots, but out */
    rm_array d_y, dh, du, dg, dx_rows, dx, d_weights, d_w1, d_w3, d_w2;
} rm_layer;
/* Rows of a (slots) times columns of an expert. trans: that of the expert's transpose. */
TF void rm_times(const rm_layer *l, rm_array *out, int by_token, const rm_array *a, const rm_array *w, int along, int more,
                 const rm_array *a2, const rm_array *w2) {
    int64_t i, j, k;
    for (i = 0; i < l->tokens * l->slots; i++) {
        const int64_t e = l->expert[i], row = by_token ? i / l->slots : i;
        for (j = 0; j < out->cols && e >= 0; j++) {
            rm_sum s = {0, 0, 0, 0};
            for (k = 0; k < a->cols; k++) { /* along 0: w[k][e f + j], 1: w[e f + k][j], 2: w[j][e f + k], 3: w[e f + j][k] */
                const int64_t at = along == 0   ? rm_at(w, k, e * l->f + j)
                                   : along == 1 ? rm_at(w, e * l->f + k, j)
                                   : along == 2 ? rm_at(w, j, e * l->f + k)
                                                : rm_at(w, e * l->f + j, k);
                rm_add(&s, a->v[rm_at(a, row, k)], a->e[rm_at(a, row, k)], w->v[at], w->e[at]);
                if (more) rm_add(&s, a2->v[rm_at(a2, row, k)], a2->e[rm_at(a2, row, k)], w2->v[at], w2->e[at]);
            }
            rm_set_sum(out, i, j, l->dtype, &s);
        }
    }
}
TF void rm_forward(rm_layer *l) {
    const int64_t n = l->tokens * l->slots;
    int64_t i, j, k;
    l->g = rm_new(n, l->f), l->u = rm_new(n, l->f), l->hidden = rm_new(n, l->f), l->y = rm_new(n, l->h);
    l->out = rm_new(l->tokens, l->h);
    rm_times(l, &l->g, 1, &l->x, &l->w1, 0, 0, NULL, NULL);
    rm_times(l, &l->u, 1, &l->x, &l->w3, 0, 0, NULL, NULL);
    for (i = 0; i < n; i++)
        for (j = 0; j < l->f && l->expert[i] >= 0; j++) {
            const int64_t at = rm_at(&l->g, i, j);
            rm_gated(&l->hidden, i, j, l->dtype, l->act, l->g.v[at], l->g.e[at], l->u.v[at], l->u.e[at]);
        }
    rm_times(l, &l->y, 0, &l->hidden, &l->w2, 1, 0, NULL, NULL);
    for (i = 0; i < l->tokens; i++)
        for (j = 0; j < l->h; j++) {
            rm_sum s = {0, 0, 0, 0};
            for (k = 0; k < l->slots; k++)
                if (l->expert[i * l->slots + k] >= 0)
                    rm_add(&s, l->weights.v[i * l->slots + k], 0, l->y.v[rm_at(&l->y, i * l->slots + k, j)],
                           l->y.e[rm_at(&l->y, i * l->slots + k, j)]);
            rm_set_sum(&l->out, i, j, l->dtype, &s);
        }
}
/* Sums over an expert's slots of a[slot or token][i] b[slot or token][j]: rows r of out come from a, columns from b. */
TF void rm_outer(const rm_layer *l, rm_array *out, const rm_array *a, int a_by_token, const rm_array *b, int b_by_token) {
    int64_t e, i, j, s;
    for (e = 0; e < l->experts; e++)
        for (i = 0; i < a->cols; i++)
            for (j = 0; j < b->cols; j++) {
                rm_sum sum = {0, 0, 0, 0};
                for (s = 0; s < l->tokens * l->slots; s++) {
                    const int64_t x = rm_at(a, a_by_token ? s / l->slots : s, i), y = rm_at(b, b_by_token ? s / l->slots : s, j);
                    if (l->expert[s] == e) rm_add(&sum, a->v[x], a->e[x], b->v[y], b->e[y]);
                }
                rm_set_sum(out, e * l->f + i, j, l->dtype, &sum);
            }
}
TF void rm_backward(rm_layer *l) {
    const int64_t n = l->tokens * l->slots;
    const double u = rm_unit(l->dtype);
    int64_t i, j, k;
    l->d_y = rm_new(n, l->h), l->dh = rm_new(n, l->f), l->du = rm_new(n, l->f), l->dg = rm_new(n, l->f);
    l->dx_rows = rm_new(n, l->h), l->dx = rm_new(l->tokens, l->h), l->d_weights = rm_new(l->tokens, l->slots);
    l->d_w1 = rm_new(l->experts * l->f, l->h), l->d_w3 = rm_new(l->experts * l->f, l->h);
    l->d_w2 = rm_new(l->experts * l->f, l->h);
    for (i = 0; i < n; i++) {
        rm_sum s = {0, 0, 0, 0};
        for (j = 0; j < l->h && l->expert[i] >= 0; j++) {
            const int64_t at = rm_at(&l->dy, i / l->slots, j);
            rm_set(&l->d_y, i, j, l->dtype, l->weights.v[i] * l->dy.v[at], 2 * u * fabs(l->weights.v[i] * l->dy.v[at]));
            rm_add(&s, l->y.v[rm_at(&l->y, i, j)], l->y.e[rm_at(&l->y, i, j)], l->dy.v[at], 0);
        }
        rm_set_sum(&l->d_weights, i / l->slots, i % l->slots, l->dtype, &s);
    }
    rm_times(l, &l->dh, 0, &l->d_y, &l->w2, 3, 0, NULL, NULL);
    for (i = 0; i < n; i++)
        for (j = 0; j < l->f && l->expert[i] >= 0; j++) {
            const int64_t at = rm_at(&l->g, i, j);
            const double g = l->g.v[at], eg = l->g.e[at], ru = l->u.v[at], eu = l->u.e[at], d = l->dh.v[at], ed = l->dh.e[at];
            const double p = ru * d, ep = fabs(ru) * ed + eu * fabs(d) + eu * ed, slope = rm_slope(l->act, g);
            const double corner = l->act == BSR_ACT_RELU && fabs(g) <= eg ? 1 : 0; /* either side of it */
            const double e_slope = corner + 1.2 * eg + 16 * u * (1 + fabs(g) + eg);
            const double rounded = ep + t_half_ulp(l->dtype, fabs(p) + ep) * 1.01; /* the product is stored on its way */
            rm_gated(&l->du, i, j, l->dtype, l->act, g, eg, d, ed);
            rm_set(&l->dg, i, j, l->dtype, slope * p,
                   fabs(slope) * rounded + e_slope * fabs(p) + e_slope * rounded + 4 * u * fabs(slope * p));
        }
    rm_outer(l, &l->d_w2, &l->hidden, 0, &l->d_y, 0);
    rm_outer(l, &l->d_w1, &l->dg, 0, &l->x, 1);
    rm_outer(l, &l->d_w3, &l->du, 0, &l->x, 1);
    rm_times(l, &l->dx_rows, 0, &l->dg, &l->w1, 2, 1, &l->du, &l->w3);
    for (i = 0; i < l->tokens; i++)
        for (j = 0; j < l->h; j++) {
            rm_sum s = {0, 0, 0, 0};
            for (k = 0; k < l->slots; k++)
                if (l->expert[i * l->slots + k] >= 0)
                    rm_add(&s, 1, 0, l->dx_rows.v[rm_at(&l->dx_rows, i * l->slots + k, j)],
                           l->dx_rows.e[rm_at(&l->dx_rows, i * l->slots + k, j)]);
            rm_set_sum(&l->dx, i, j, l->dtype, &s);
        }
}
/* A dense result against its array. */
#define RM_COMPARE(out, array) rm_compare(__FILE__, __LINE__, #out, out, array)
TF void rm_compare(const char *file, int line, const char *what, const bsr_dense *out, const rm_array *want) {
    int64_t i, j, bad = 0;
    bt.checks++;
    if (!BT_WANTED) return;
    for (i = 0; i < want->rows; i++)
        for (j = 0; j < want->cols; j++) {
            const double got = t_get(out, 0, i, j), v = want->v[rm_at(want, i, j)], e = want->e[rm_at(want, i, j)];
            if (fabs(got - v) <= e || (v != v && got != got) || (v - v != 0 && got == v)) continue;
            if (!bad++)
                bt_fail(file, line, "%s(%lld, %lld) is %.9g, expected %.9g +- %.3g", what, (long long)i, (long long)j, got, v, e);
        }
    t_check_gaps(out);
}

#endif /* BSR_REF_MOE_H */
