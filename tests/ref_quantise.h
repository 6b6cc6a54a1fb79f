/* ref_quantise.h: bsr_quantise and bsr_dequantise in float64, element by element, for test_quantise.c and test_random.c. Numbers
   are held against the scales that were written, scales against the largest numbers of their groups. */
#ifndef BSR_REF_QUANTISE_H
#define BSR_REF_QUANTISE_H

#include "operands.h"

TF double limit_of(int dtype) { return dtype == BSR_E4M3 ? 448 : dtype == BSR_E5M2 ? 57344 : 127; }

/* What is quantised: a dense operand, or a matrix; and where it goes. */
typedef struct q_case {
    bsr_dense dx, dout, scale, amax;
    bsr_matrix mx, mout;
    bsr_scales scales;
    int sparse, blocks, from, to;
    uint32_t flags;
    t_shape batch;
    double *most; /* of each scale, in the reference */
} q_case;
TF bsr_operand q_x(const q_case *q) { return q->sparse ? bsr_operand_sparse(&q->mx) : bsr_operand_dense(&q->dx); }
TF bsr_operand q_out(const q_case *q) { return q->sparse ? bsr_operand_sparse(&q->mout) : bsr_operand_dense(&q->dout); }
TF int64_t groups_of(int64_t size, int64_t group) { return group ? (size + group - 1) / group : 1; }

/* see(x, out, scale's number, its item, row, column) for every stored element. */
typedef struct q_element {
    double x;
    void *out;
    int64_t at, cell, item, row, col;
} q_element;
typedef void (*q_see)(q_case *q, const q_element *e);
TF void q_each(q_case *q, q_see see) {
    const bsr_dense *s = &q->scale;
    const int64_t items = t_items(&q->batch), gr = q->scales.group_rows, gc = q->scales.group_cols;
    t_shape of = t_dense_batch(s);
    int64_t b, p, i, j, r;
    if (q->blocks) of.dims--;
    for (b = 0; b < items; b++) {
        const int64_t mine = t_item_of(&q->batch, b, &of);
        q_element e;
        if (!q->sparse) {
            for (i = 0; i < q->dx.rows; i++)
                for (j = 0; j < q->dx.cols; j++) {
                    e.x = t_get(&q->dx, b, i, j), e.out = q->dout.data, e.at = t_dense_at(&q->dout, b, i, j), e.item = mine;
                    e.row = gr ? i / gr : 0, e.col = gc ? j / gc : 0, e.cell = (mine * s->rows + e.row) * s->cols + e.col;
                    see(q, &e);
                }
            continue;
        }
        for (r = 0; r < q->mx.rows / q->mx.block_rows; r++)
            for (p = t_crow(&q->mx, b, r); p < t_crow(&q->mx, b, r + 1); p++)
                for (i = 0; i < q->mx.block_rows; i++)
                    for (j = 0; j < q->mx.block_cols; j++) {
                        const int64_t row = q->blocks ? i : r * q->mx.block_rows + i;
                        const int64_t col = q->blocks ? j : t_col(&q->mx, b, p) * q->mx.block_cols + j;
                        e.x = t_load(q->mx.values, q->mx.dtype, t_value_at(&q->mx, b, p, i, j)), e.out = q->mout.values;
                        e.at = t_value_at(&q->mout, b, p, i, j), e.item = q->blocks ? mine * q->mx.nnz + p : mine;
                        e.row = gr ? row / gr : 0, e.col = gc ? col / gc : 0;
                        e.cell = (e.item * s->rows + e.row) * s->cols + e.col;
                        see(q, &e);
                    }
    }
}
TF void q_find(q_case *q, const q_element *e) {
    const double a = fabs((double)(float)e->x);
    if (a <= FLT_MAX && a > q->most[e->cell]) q->most[e->cell] = a;
}
/* The nearest of all numbers of the type; two roundings come before. */
TF void q_hold(q_case *q, const q_element *e) {
    const double scale = t_get(&q->scale, e->item, e->row, e->col), got = t_load(e->out, q->to, e->at);
    const double limit = limit_of(q->to), v = (double)(float)e->x / scale;
    const double clipped = v > limit ? limit : v < -limit ? -limit : v;
    const double best = q->to == BSR_I8 ? rint(clipped) : t_decode8(t_encode8(clipped, q->to), q->to);
    if (v != v && q->to == BSR_I8) CHECK(got == 0);
    else if (v != v) CHECK(got != got);
    else CHECK_NEAR(got, clipped, fabs(clipped - best) + fabs(v < 1e30 && v > -1e30 ? v : limit) * 0x1p-22);
}
TF void q_back(q_case *q, const q_element *e) {
    const double scale = t_get(&q->scale, e->item, e->row, e->col), got = t_load(e->out, q->to, e->at), v = e->x * scale;
    if (v != v) CHECK(got != got);
    else CHECK_NEAR(got, v, fabs(v) * 0x1p-23 + t_half_ulp(q->to, v) + 0x1p-149);
}
/* Scales and largest numbers against the reference's. */
TF void q_hold_scales(q_case *q, int with_amax) {
    const bsr_dense *s = &q->scale;
    const int64_t items = t_dense_items(s);
    int64_t b, i, j;
    for (b = 0; b < items; b++)
        for (i = 0; i < s->rows; i++)
            for (j = 0; j < s->cols; j++) {
                const double most = q->most[(b * s->rows + i) * s->cols + j];
                double want = most > 0 ? fmax(most / limit_of(q->to), 0x1p-126) : 1;
                if (with_amax) CHECK(t_get(&q->amax, b, i, j) == most);
                if (q->flags & BSR_QUANTISE_GIVEN) continue;
                if (q->flags & BSR_QUANTISE_POWERS_OF_TWO) {
                    const double next = ldexp(1, (int)ceil(log2((double)(float)want))), got = t_get(s, b, i, j);
                    CHECK(got == next || (got == 2 * next && (float)want > next)); /* log2 may be off below a power */
                } else {
                    CHECK_NEAR(t_get(s, b, i, j), want, want * 0x1p-23);
                }
            }
    if (!(q->flags & BSR_QUANTISE_GIVEN)) t_check_gaps(s);
    if (with_amax) t_check_gaps(&q->amax);
    if (q->sparse && !(q->mout.flags & BSR_MATRIX_RAGGED)) t_check_value_gaps(&q->mout);
    if (!q->sparse) t_check_gaps(&q->dout);
}
/* Scales, given or not, and room for the largest numbers. */
TF void q_scales(q_case *q, int64_t gr, int64_t gc, t_shape of, int given_type) {
    int64_t rows = q->sparse ? q->mx.rows : q->dx.rows, cols = q->sparse ? q->mx.cols : q->dx.cols;
    if (q->blocks) rows = q->mx.block_rows, cols = q->mx.block_cols, of.n[of.dims++] = q->mx.nnz;
    memset(&q->scales, 0, sizeof q->scales);
    q->scales.group_rows = gr, q->scales.group_cols = gc, q->scales.flags = q->blocks ? BSR_SCALES_BLOCKS : 0;
    rows = groups_of(rows, gr), cols = groups_of(cols, gc);
    if (given_type) q->scale = t_random(given_type, rows, cols, (int)bt_below(LAYOUTS), of, (unsigned)bt_below(4), FILL_WIDE);
    else q->scale = t_output(BSR_F32, rows, cols, (int)bt_below(LAYOUTS), of);
    q->amax = t_output(BSR_F32, rows, cols, (int)bt_below(LAYOUTS), of);
    q->most = (double *)bt_alloc((size_t)(t_items(&of) * rows * cols + 1) * sizeof(double), 8);
    memset(q->most, 0, (size_t)(t_items(&of) * rows * cols + 1) * sizeof(double));
    q->scales.scale = &q->scale;
}
TF void q_run(q_case *q) {
    bsr_exec exec = t_exec(0);
    const int with_amax = (int)bt_below(2);
    if (!RUN_OK(bsr_quantise(t_any_context(), q->flags, q_x(q), q_out(q), &q->scales, with_amax ? &q->amax : NULL, &exec)))
        return;
    q_each(q, q_find), q_each(q, q_hold), q_hold_scales(q, with_amax);
}

#endif /* BSR_REF_QUANTISE_H */
