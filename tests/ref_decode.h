/* ref_decode.h: attention as a cache of keys and values is asked: few queries, grouped heads, patterns that a group shares,
   lengths, pages; its reference, without gradients, from the scores of ref_attention.h. */
#ifndef BSR_REF_DECODE_H
#define BSR_REF_DECODE_H

#include "ref_attention.h"

typedef struct ref_decode {
    ref_gradients c;  /* k and v as they are without pages */
    bsr_dense k, v;   /* as they are given */
    bsr_lengths lengths;
    bsr_pages pages;
    bsr_dense slopes, sinks;
    double scale;
    int paged, gives_lse, gives_max;
} ref_decode;

typedef struct ref_decode_results {
    ref_result out, lse, top;
} ref_decode_results;
TF ref_tables ref_decode_tables(const ref_gradients *c) {
    ref_tables a;
    memset(&a, 0, sizeof a);
    a.q = ref_dense(&c->q), a.k = ref_dense(&c->k), a.v = ref_dense(&c->v), a.mask = ref_matrix(&c->mask, &a.count);
    a.kind = ref_kinds(&c->mask, &c->o), a.bias = c->o.relative_bias ? ref_dense(c->o.relative_bias) : ref_none();
    a.padding = c->o.key_padding_mask ? ref_dense(c->o.key_padding_mask) : ref_none();
    a.slopes = c->o.slopes ? ref_dense(c->o.slopes) : ref_none(), a.sinks = c->o.sinks ? ref_dense(c->o.sinks) : ref_none();
    return a;
}
/* Of n pages of `size` keys for each item of lengths: does a query of one of its heads attend to a key there? Without values of
   the mask and padding, which do not keep pages from being read. */
TF uint8_t *ref_pages_seen(const ref_gradients *c, int64_t size, int64_t n) {
    const int64_t heads = c->whole.dims ? c->whole.n[c->whole.dims - 1] : 1, all = t_items(&c->whole);
    const ref_tables a = ref_decode_tables(c);
    uint8_t *seen = (uint8_t *)bt_alloc((size_t)(all / heads * n) + 1, 1);
    int64_t item, i, j;
    memset(seen, 0, (size_t)(all / heads * n) + 1);
    for (item = 0; item < all; item++)
        for (i = 0; i < c->q.rows; i++)
            for (j = 0; j < c->k.rows; j++)
                if (ref_score_of(c, &a, item, i, j, 1).s != -(double)INFINITY) seen[item / heads * n + j / size] = 1;
    return seen;
}
TF ref_decode_results ref_decode_of(const ref_gradients *c) {
    const int64_t lq = c->q.rows, lk = c->k.rows, dv = c->v.cols, heads = c->whole.dims ? c->whole.n[c->whole.dims - 1] : 1;
    const int half = c->q.dtype == BSR_F16, rounds = REF_ROUNDS_P && (half || c->q.dtype == BSR_BF16);
    const double u = c->q.dtype == BSR_F64 ? REF_U64 : 0x1p-24, tiny = c->q.dtype == BSR_F64 ? DBL_MIN : FLT_MIN;
    const double inf = (double)INFINITY, p_unit = rounds ? half ? 0x1p-11 : 0x1p-8 : 0, p_least = rounds && half ? 0x1p-25 : 0;
    const double scale = c->scale != 0 ? c->scale : c->q.cols ? 1 / sqrt((double)c->q.cols) : 1;
    ref_score *s = (ref_score *)calloc((size_t)lk + 1, sizeof *s);
    ref_decode_results r;
    const ref_tables a = ref_decode_tables(c);
    int64_t item, i, j, d;
    if (!s) abort();
    r.out.want = ref_new(c->whole, lq, dv), r.out.bound = ref_new(c->whole, lq, dv);
    r.lse.want = ref_new(c->whole, lq, 1), r.lse.bound = ref_new(c->whole, lq, 1);
    r.top.want = ref_new(c->whole, lq, 1), r.top.bound = ref_new(c->whole, lq, 1);
    for (item = 0; item < r.out.want.items && BT_WANTED; item++) {
        const int64_t iv = ref_kv_item(&c->whole, item, &a.v.batch);
        for (i = 0; i < lq; i++) {
            const int there = !c->o.lengths || !c->o.lengths->q_lengths || i < c->o.lengths->q_lengths[item / heads];
            const double sink = a.sinks.v && there ? ref_seen(&a.sinks, &c->whole, item, 0, 0) : -inf;
            double top = -inf, worst = 0, n = 0, relative, high;
            ref_real sum;
            for (j = 0; j < lk; j++) {
                s[j] = ref_score_of(c, &a, item, i, j, scale), top = s[j].s > top ? s[j].s : top;
                if (s[j].s > -inf) worst = fmax(worst, s[j].e), n += 1;
            }
            *ref_at(&r.top.want, item, i, 0) = top, *ref_at(&r.top.bound, item, i, 0) = worst;
            *ref_at(&r.lse.want, item, i, 0) = high = sink > top ? sink : top;
            if (high == -inf) continue;
            for (j = 0; j < lk; j++)
                if (s[j].s > -inf) worst = fmax(worst, s[j].e + 2 * u * fabs(s[j].s - high));
            relative = 2.5 * worst + (16 + 4 * log2(n + 2) + n + 1) * u, sum = expl((ref_real)sink - high);
            for (j = 0; j < lk; j++) s[j].p = s[j].s == -inf ? 0 : expl((ref_real)s[j].s - high), sum += s[j].p;
            *ref_at(&r.lse.want, item, i, 0) = (double)(high + logl(sum));
            *ref_at(&r.lse.bound, item, i, 0) = relative + 4 * u * (fabs(high) + fabs((double)logl(sum)) + 1);
            for (d = 0; d < dv && n > 0; d++) {
                ref_real x = 0, mag = 0, all = 0;
                for (j = 0; j < lk; j++) {
                    const ref_real v = (ref_real)*ref_at(&a.v, iv, j, d);
                    if (s[j].s > -inf) x += s[j].p / sum * v, mag += fabsl(s[j].p / sum * v), all += fabsl(v);
                }
                *ref_at(&r.out.want, item, i, d) = (double)x;
                *ref_at(&r.out.bound, item, i, d) =
                    (relative + p_unit) * (double)mag + p_least * (double)all + (n + 1) * 4 * tiny;
            }
        }
    }
    free(s);
    return r;
}
TF void ref_run_decode(ref_decode *t, const bsr_exec *exec) {
    ref_gradients *c = &t->c;
    ref_decode_results r = ref_decode_of(c);
    bsr_attention_options o = c->o;
    if (t->paged) o.pages = &t->pages;
    if (t->gives_max) c->extra.row_max = &c->row_max, o.extra = &c->extra;
    if (!RUN_OK(bsr_attention(c->ctx, c->scale, &c->q, &t->k, &t->v, &c->mask, &o, &c->out, t->gives_lse ? &c->lse : NULL, exec)))
        return;
    REF_COMPARE(&c->out, &r.out, c->flags);
    if (t->gives_lse) REF_COMPARE(&c->lse, &r.lse, REF_ANY);
    if (t->gives_max) REF_COMPARE(&c->row_max, &r.top, REF_ANY);
}

/* Rows of whole pieces of 16 bytes, on their boundary, as kernels want them; heads one after another, or (beside) in a row. */
TF bsr_dense ref_rows(int dtype, int64_t rows, int64_t cols, t_shape batch, int beside, int64_t gap) {
    const int64_t heads = batch.dims ? batch.n[batch.dims - 1] : 1;
    bsr_dense d = bsr_dense_row_major(NULL, dtype, rows, cols);
    int64_t step, total = t_items(&batch) * rows * (cols + gap);
    int i;
    d.batch_dims = batch.dims, d.row_stride = (beside ? heads : 1) * (cols + gap);
    for (i = batch.dims - 1, step = rows * (cols + gap); i >= 0; i--)
        d.batch[i] = batch.n[i], d.batch_stride[i] = step, step *= batch.n[i];
    if (beside && batch.dims) d.batch_stride[batch.dims - 1] = cols + gap;
    d.data = bt_alloc((size_t)total * bsr_dtype_size(dtype), 64);
    t_fill(&d, FILL_SIGNED);
    return d;
}
/* A pool of pages in any order that holds d's rows, d's last batch dimension being heads; what belongs to no key is poison, or,
   in the table, anything. n: pages of an item. */
TF bsr_dense ref_pool(const bsr_dense *d, const int32_t *table, int64_t items, int64_t size, int64_t n, int64_t pages,
                      int beside) {
    const int64_t heads = d->batch_dims ? d->batch[d->batch_dims - 1] : 1;
    bsr_dense pool = ref_rows(d->dtype, size, d->cols, t_batch(2, pages, heads, 0, 0), beside, 0);
    int64_t b, h, i, c;
    memset(pool.data, BT_POISON, (size_t)(pages * heads * size * d->cols) * bsr_dtype_size(d->dtype));
    for (b = 0; b < items; b++)
        for (i = 0; i < d->rows; i++) {
            const int32_t page = table[b * n + i / size];
            for (h = 0; h < heads && page >= 0 && page < pages; h++)
                for (c = 0; c < d->cols; c++)
                    t_set(&pool, page * heads + h, i % size, c, t_get(d, b * heads + h, i, c));
        }
    return pool;
}
#endif /* BSR_REF_DECODE_H */
