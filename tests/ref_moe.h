/* ref_moe.h: what mixtures of experts must give, in float64, slot by slot: no rows, no blocks, no order of experts. A number
   comes with a bound of what may be off, which goes through products, functions and roundings by first and second order. Include
   after ref64.h. */
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
    const int64_t *expert;               /* of each slot; -1: none, or left out */
    rm_array x, weights, w1, w3, w2, dy; /* w1, w3: H x E F; w2: E F x H */
    rm_array g, u, hidden, y, out;       /* by slots, but out */
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

/* ---------------------------------------------------------------------------------------------- */
/* routings                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

/* Who is chosen. */
enum { EVEN, SKEWED, ONE, FEW, NONE_SOME, REPEATED, KINDS };
typedef struct routed {
    bsr_dense experts;
    bsr_moe_routing r;
    int64_t *expert; /* of each slot, as chosen; then -1 where it has no row */
    uint64_t *status;
} routed;
TF int64_t t_choose(int kind, int64_t experts, int64_t turn) {
    switch (kind) {
        case ONE: return experts - 1;
        case SKEWED: return bt_below(1 + bt_below(experts));
        case FEW: return bt_below(2) ? 0 : experts - 1;
        case NONE_SOME: return bt_below(3) ? bt_below(experts) : -1 - bt_below(5);
        case EVEN: return turn % experts;
        default: return bt_below(experts);
    }
}
/* All arrays, poisoned; rows < 0: as many as always suffice. */
TF routed t_routing(int64_t tokens, int64_t slots, int64_t experts, int64_t block_rows, int64_t rows, int kind, int dtype) {
    routed x;
    int64_t i, n = tokens * slots;
    memset(&x, 0, sizeof x);
    x.experts = t_dense(dtype, tokens, slots, (int)bt_below(LAYOUTS), NO_BATCH, 0);
    x.expert = (int64_t *)bt_alloc((size_t)n * 8, 8);
    bt_mark_output(x.expert);
    for (i = 0; i < n; i++)
        x.expert[i] = t_choose(kind, experts, i), t_set(&x.experts, 0, i / slots, i % slots, (double)x.expert[i]);
    x.r.tokens = tokens, x.r.slots = slots, x.r.experts = experts, x.r.block_rows = block_rows;
    x.r.rows = rows < 0 ? bsr_moe_rows(tokens, slots, experts, block_rows) : rows;
    x.r.counts = (int32_t *)bt_alloc((size_t)experts * 4, 4), x.r.offsets = (int32_t *)bt_alloc((size_t)(experts + 1) * 4, 4);
    x.r.row_of = (int32_t *)bt_alloc((size_t)n * 4, 4), x.r.slot_of = (int32_t *)bt_alloc((size_t)x.r.rows * 4, 4);
    x.status = x.r.status = (uint64_t *)bt_alloc(8, 8);
    bt_mark_output(x.r.counts), bt_mark_output(x.r.offsets), bt_mark_output(x.r.row_of), bt_mark_output(x.r.slot_of);
    bt_mark_output(x.r.status);
    return x;
}
TF void t_routing_done(const bsr_moe_routing *r) { /* the arrays are only read from here on */
    const void *all[5];
    int i;
    all[0] = r->counts, all[1] = r->offsets, all[2] = r->row_of, all[3] = r->slot_of, all[4] = r->status;
    for (i = 0; i < 5; i++)
        if (all[i] && bt_find(all[i])) bt_find(all[i])->output = 0;
}
/* Expert by expert, slot by slot: what every array must hold. Slots that have no row are taken from x->expert. */
TF void rm_check_routing(routed *x) {
    const bsr_moe_routing *r = &x->r;
    const int64_t n = r->tokens * r->slots;
    int64_t e, i, row = 0, bad = 0, first_lost = -1;
    int32_t *slot_of = (int32_t *)malloc((size_t)r->rows * 4 + 4), *row_of = (int32_t *)malloc((size_t)n * 4 + 4);
    if (!slot_of || !row_of) abort();
    for (i = 0; i < r->rows; i++) slot_of[i] = -1;
    for (i = 0; i < n; i++) row_of[i] = -1;
    for (e = 0; e < r->experts; e++) {
        int64_t count = 0;
        CHECK_INT(r->offsets[e], row);
        for (i = 0; i < n; i++) {
            if (x->expert[i] != e) continue;
            if (row + count < r->rows) row_of[i] = (int32_t)(row + count), slot_of[row + count] = (int32_t)i, count++;
            else first_lost = first_lost < 0 || i < first_lost ? i : first_lost;
        }
        CHECK_INT(r->counts[e], count);
        row += (count + r->block_rows - 1) / r->block_rows * r->block_rows;
    }
    CHECK_INT(r->offsets[r->experts], row);
    for (i = 0; i < n; i++) bad += r->row_of[i] != row_of[i];
    for (i = 0; i < r->rows; i++) bad += r->slot_of[i] != slot_of[i];
    CHECK_INT(bad, 0);
    if (r->status) {
        bsr_error told;
        const bsr_status status = bsr_device_status(*r->status, &told);
        CHECK_INT(status, first_lost < 0 ? BSR_OK : BSR_CAPACITY);
        if (first_lost >= 0) CHECK_INT(told.item, BSR_ITEM_MOE_CAPACITY), CHECK_INT(told.index, first_lost);
    }
    for (i = 0; i < n; i++)
        if (row_of[i] < 0) x->expert[i] = -1;
    free(slot_of), free(row_of);
}
/* The pattern of a routing with room for its capacity; values poisoned. each: block columns of an expert. */
TF bsr_matrix rm_pattern(const bsr_moe_routing *r, int64_t each, int64_t block_cols, int dtype, int layout, int index_dtype) {
    t_spec s = t_spec_of(dtype, r->block_rows, block_cols, r->rows / r->block_rows, r->experts * each, 0);
    bsr_matrix m;
    s.index_dtype = index_dtype, s.layout = layout;
    m = t_target(&s), m.rows = r->rows, m.cols = r->experts * each * block_cols;
    m.nnz = r->rows / r->block_rows * each;
    m.col_indices = bt_alloc((size_t)m.nnz * bsr_dtype_size(index_dtype), bsr_dtype_size(index_dtype));
    bt_mark_output(m.col_indices);
    t_make_values(&m, dtype, layout, 0);
    bt_mark_output(m.values);
    return m;
}
/* Its number of blocks. Who owns a block row is told by its first slot. */
TF int64_t rm_check_topology(const routed *x, const bsr_matrix *m, int64_t each) {
    int64_t i, j, p = 0;
    CHECK_INT(t_crow(m, 0, 0), 0);
    for (i = 0; i < x->r.rows / x->r.block_rows; i++) {
        const int32_t slot = x->r.slot_of[i * x->r.block_rows];
        const int64_t owner = slot < 0 ? -1 : x->expert[slot];
        CHECK_INT(t_crow(m, 0, i + 1) - t_crow(m, 0, i), owner < 0 ? 0 : each);
        for (j = 0; j < each && owner >= 0; j++) CHECK_INT(t_col(m, 0, p++), owner * each + j);
    }
    return p;
}
/* bsr_moe_gather, bsr_moe_scatter and bsr_moe_weight_gradient of a routing. weights, input: null where the call has none. */
TF void rm_check_gather(const bsr_moe_routing *r, const bsr_dense *x, const bsr_dense *weights, const bsr_dense *out) {
    const int wide = x->dtype == BSR_F64 || out->dtype == BSR_F64 || (weights && weights->dtype == BSR_F64);
    rm_array want = rm_new(r->rows, out->cols);
    int64_t i, j;
    for (i = 0; i < r->rows; i++)
        for (j = 0; j < out->cols && r->slot_of[i] >= 0; j++) {
            const int64_t slot = r->slot_of[i], token = slot / r->slots;
            const double v = t_get(x, 0, token, j) * (weights ? t_get(weights, 0, token, slot % r->slots) : 1);
            rm_set(&want, i, j, out->dtype, v, 2 * rm_unit(wide ? BSR_F64 : BSR_F32) * fabs(v) + 0x1p-149);
        }
    RM_COMPARE(out, &want);
    for (i = 0; i < r->rows && BT_WANTED; i++) /* padding is zero, not almost */
        for (j = 0; j < out->cols && r->slot_of[i] < 0; j++) CHECK(t_get(out, 0, i, j) == 0);
}
TF void rm_check_scatter(double beta, const bsr_dense *input, const bsr_moe_routing *r, const bsr_dense *x,
                         const bsr_dense *weights, const bsr_dense *out) {
    const int wide = x->dtype == BSR_F64 || out->dtype == BSR_F64 || (weights && weights->dtype == BSR_F64) ||
                     (beta != 0 && input->dtype == BSR_F64);
    rm_array want = rm_new(r->tokens, out->cols);
    int64_t i, j, k;
    for (i = 0; i < r->tokens; i++)
        for (j = 0; j < out->cols; j++) {
            rm_sum s = {0, 0, 0, 2};
            if (beta != 0) rm_add(&s, beta, 0, t_get(input, 0, input->rows == 1 ? 0 : i, input->cols == 1 ? 0 : j), 0);
            for (k = 0; k < r->slots; k++) {
                const int32_t row = r->row_of[i * r->slots + k];
                if (row >= 0) rm_add(&s, weights ? t_get(weights, 0, i, k) : 1, 0, t_get(x, 0, row, j), 0);
            }
            rm_set(&want, i, j, out->dtype, s.s, (double)s.n * rm_unit(wide ? BSR_F64 : BSR_F32) * s.t + 0x1p-140);
        }
    RM_COMPARE(out, &want);
}
TF void rm_check_weights(const bsr_moe_routing *r, const bsr_dense *x, const bsr_dense *dy, const bsr_dense *out) {
    const int wide = x->dtype == BSR_F64 || out->dtype == BSR_F64 || dy->dtype == BSR_F64;
    rm_array want = rm_new(r->tokens, r->slots);
    int64_t i, j, k;
    for (i = 0; i < r->tokens; i++)
        for (k = 0; k < r->slots; k++) {
            const int32_t row = r->row_of[i * r->slots + k];
            rm_sum s = {0, 0, 0, 2};
            for (j = 0; j < x->cols && row >= 0; j++) rm_add(&s, t_get(x, 0, row, j), 0, t_get(dy, 0, i, j), 0);
            rm_set(&want, i, k, out->dtype, s.s, (double)s.n * rm_unit(wide ? BSR_F64 : BSR_F32) * s.t + 0x1p-140);
        }
    RM_COMPARE(out, &want);
}

/* A matrix of out's pattern that a gated unit writes, against products that are rounded, joined and rounded. which: 0 the unit
   itself, 1 gate's product, 2 up's. */
TF void rm_check_gated(const char *what, const bsr_matrix *m, const ref_sum *g, const ref_sum *u, int act, int compute,
                       int which) {
    int64_t b, k, p, i, j, bad = 0;
    const double unit = rm_unit(compute == BSR_F64 ? BSR_F64 : BSR_F32), least = compute == BSR_F64 ? 0x1p-1074 : 0x1p-149;
    bt.checks++;
    if (!BT_WANTED) return;
    for (b = 0; b < t_matrix_items(m); b++)
        for (k = 0; k < m->rows / m->block_rows; k++)
            for (p = t_crow(m, b, k); p < t_crow(m, b, k + 1); p++)
                for (i = 0; i < m->block_rows; i++)
                    for (j = 0; j < m->block_cols; j++) {
                        const int64_t row = k * m->block_rows + i, col = t_col(m, b, p) * m->block_cols + j;
                        const double got = t_load(m->values, m->dtype, t_value_at(m, b, p, i, j));
                        const double gv = *ref_at(&g->s, b, row, col), uv = *ref_at(&u->s, b, row, col);
                        const double n = *ref_at(&g->n, b, row, col);
                        double ge = compute == BSR_I32 ? 2 * unit * fabs(gv) : (n + 2) * unit * *ref_at(&g->t, b, row, col);
                        double ue = compute == BSR_I32 ? 2 * unit * fabs(uv) : (n + 2) * unit * *ref_at(&u->t, b, row, col);
                        rm_array want;
                        double v, e;
                        want.rows = want.cols = 1, want.v = &v, want.e = &e;
                        ge += n * least, ue += n * least;
                        ge += t_half_ulp(m->dtype, fabs(gv) + ge), ue += t_half_ulp(m->dtype, fabs(uv) + ue);
                        rm_gated(&want, 0, 0, m->dtype, act, gv, ge, uv, ue);
                        if (m->dtype != BSR_F64 && compute != BSR_F64) e += 8 * unit * (1 + fabs(gv)) * (fabs(uv) + ue);
                        if (which == 1) v = gv, e = ge;
                        if (which == 2) v = uv, e = ue;
                        if (fabs(got - v) <= e * (1 + 0x1p-20) || ref_close(got, v, e, m->dtype)) continue;
                        if (!bad++)
                            bt_fail(__FILE__, __LINE__, "%s(item %lld, row %lld, col %lld) is %.9g, expected %.9g +- %.3g", what,
                                    (long long)b, (long long)row, (long long)col, got, v, e);
                    }
    t_check_value_gaps(m);
}
#endif /* BSR_REF_MOE_H */
