/* ref_masks.h: block masks of attention, told element by element: no corners, no ranges, no bits. Include after operands.h or
   ref64.h, in a program with the functions of test_functions.h. */
#ifndef BSR_REF_MASKS_H
#define BSR_REF_MASKS_H

typedef struct rk_case {
    bsr_attention_options o;
    bsr_lengths lengths;
    bsr_dense padding;
    bsr_matrix within;
    const bsr_matrix *pwithin; /* or null */
    t_spec to;                 /* the target's */
    int64_t lq, lk, heads;
    int32_t step; /* user data */
} rk_case;

/* One of n numbers. */
#define RK_PICK(list) ((list)[bt_below((int64_t)BT_COUNT(list))])

/* In place: options point into it. users: with functions; within it is at most as large as `most` rows and columns. */
TF void rk_new(rk_case *x, int64_t most, int users) {
    static const int64_t sides[] = {1, 2, 3, 4, 5, 8, 16, 16, 17, 32, 64, 128};
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_BOOL};
    const int64_t br = RK_PICK(sides), bc = bt_below(2) ? br : RK_PICK(sides);
    const int64_t r = bt_below(12) ? bt_range(1, most / br + 1) : 0, c = bt_below(12) ? bt_range(1, most / bc + 1) : 0;
    bsr_attention_options *o = &x->o;
    int64_t items;
    memset(x, 0, sizeof *x);
    x->lq = r ? r * br - bt_below(bt_below(2) ? br : 1) : 0, x->lk = c ? c * bc - bt_below(bt_below(2) ? bc : 1) : 0;
    x->to = t_spec_of(BSR_F32, br, bc, r, c, r * c), x->to.index_dtype = bt_below(2) ? BSR_I32 : BSR_I64;
    x->to.batch = t_batch((int)bt_below(4), bt_range(1, 2), bt_range(1, 3), bt_range(1, 2), 0);
    if (bt_below(24) == 0 && x->to.batch.dims) x->to.batch.n[bt_below(x->to.batch.dims)] = 0;
    x->to.ragged = x->to.batch.dims && bt_below(4);
    x->heads = x->to.batch.dims ? x->to.batch.n[x->to.batch.dims - 1] : 1;
    items = x->heads ? t_items(&x->to.batch) / x->heads : 0;
    if (bt_below(2)) o->flags |= BSR_ATTENTION_CAUSAL;
    if (bt_below(3) == 0)
        o->flags |= BSR_ATTENTION_WINDOW, o->window_left = bt_range(-3, most / 2), o->window_right = bt_range(-3, most / 2);
    if (bt_below(40) == 0) o->window_left = bt_below(2) ? INT64_MAX : INT64_MIN;
    if (bt_below(2)) o->causal_offset = bt_below(20) ? x->lk - x->lq + bt_range(-most / 4, most / 4) : INT64_MAX / 2;
    if (bt_below(16) == 0) o->flags |= BSR_ATTENTION_FULL;
    if (bt_below(16) == 0) o->flags |= BSR_ATTENTION_MASK_BOOLEAN;
    if (bt_below(16) == 0) o->softcap = 2, o->dropout_p = .5; /* these are passed over */
    if (bt_below(3) == 0) x->lengths.q_lengths = ref_random_lengths(items, -1, x->lq + 2);
    if (bt_below(3) == 0) x->lengths.k_lengths = ref_random_lengths(items, -1, x->lk + 2);
    if (bt_below(4) == 0)
        x->lengths.key_counts_stride = bt_below(2) ? c : 0,
        x->lengths.key_counts = ref_random_lengths(x->lengths.key_counts_stride ? items * c : c, -1, bc + 1);
    if (bt_below(4)) o->lengths = &x->lengths;
    if (bt_below(4) == 0) {
        const int width = bt_below(8) ? 1 : 0;
        int64_t item, j;
        x->padding = t_random(RK_PICK(types), 1, width ? x->lk : 1, (int)bt_below(LAYOUTS), bt_below(2) ? x->to.batch : NO_BATCH,
                              0, FILL_POSITIVE);
        for (item = 0; item < t_dense_items(&x->padding); item++)
            for (j = 0; j < x->padding.cols; j++)
                if (bt_below(8) < (item % 3 ? 1 : j / 9 % 2 ? 7 : 0)) t_set(&x->padding, item, 0, j, 0);
        o->key_padding_mode = bt_below(4) ? BSR_MASK_MUL : BSR_MASK_ADD;
        if (o->key_padding_mode == BSR_MASK_MUL || x->padding.dtype != BSR_BOOL) o->key_padding_mask = &x->padding;
    }
    if (users && bt_below(2)) {
        static const int functions[] = {BSR_MASK_tf_stripes, BSR_MASK_tf_nothing, BSR_MASK_tf_documents, BSR_MASK_tf_documents};
        o->mask_function = RK_PICK(functions);
    }
    if (bt_below(3)) {
        t_spec s = t_spec_of(BSR_BOOL, br, bc, r, c, bt_range(0, r * c));
        s.pattern_only = 1, s.index_dtype = bt_below(2) ? BSR_I32 : BSR_I64;
        if (bt_below(2)) s.batch = x->to.batch, s.ragged = s.batch.dims && bt_below(2);
        x->within = t_matrix(&s), x->pwithin = &x->within;
        if (bt_below(2)) o->block_kind = ref_random_kinds(&x->within);
    }
}

/* What an element is: 0 not there, 1 forbidden, 2 allowed. kind: of its block in within. */
TF int rk_element(const rk_case *x, int64_t item, int64_t i, int64_t j, int kind) {
    const bsr_attention_options *o = &x->o;
    const bsr_lengths *l = o->lengths;
    const int64_t bc = x->to.block_cols, at = item / x->heads, far = j - i - o->causal_offset, left = o->window_left;
    if (i >= x->lq || j >= x->lk) return 0;
    if (l && l->q_lengths && i >= l->q_lengths[at]) return 0;
    if (l && l->k_lengths && j >= l->k_lengths[at]) return 0;
    if (l && l->key_counts && j % bc >= l->key_counts[at * l->key_counts_stride + j / bc]) return 0;
    if (kind == BSR_BLOCK_FULL || (o->flags & BSR_ATTENTION_FULL)) return 2;
    if ((o->flags & BSR_ATTENTION_CAUSAL) && far > 0) return 1;
    if ((o->flags & BSR_ATTENTION_WINDOW) && (far > o->window_right || (left < 0 ? far <= -(left + 1) : far < -left))) return 1;
    if (o->key_padding_mask && o->key_padding_mode == BSR_MASK_MUL) {
        const bsr_dense *d = o->key_padding_mask;
        const t_shape mine = t_dense_batch(d);
        if (t_get(d, t_item_of(&x->to.batch, item, &mine), 0, d->cols == 1 ? 0 : j) == 0) return 1;
    }
    if (o->mask_function) {
        bsr_position p;
        p.batch = at, p.head = item % x->heads, p.row = i, p.col = j;
        if (o->mask_function == BSR_MASK_tf_nothing) return 1;
        if (!(o->mask_function == BSR_MASK_tf_stripes ? tf_stripes(&p, NULL) : tf_documents(&p, NULL))) return 1;
    }
    return 2;
}
/* The kind that a block must have; BSR_BLOCK_SKIP: it is not stored. */
TF int rk_kind(const rk_case *x, int64_t item, int64_t r, int64_t c) {
    const int64_t br = x->to.block_rows, bc = x->to.block_cols;
    int kind = BSR_BLOCK_PARTIAL, allowed = 0, forbidden = 0, what;
    int64_t i, j, p;
    if (x->pwithin) {
        const t_shape mine = t_matrix_batch(&x->within);
        const int64_t own = t_item_of(&x->to.batch, item, &mine), end = t_crow(&x->within, own, r + 1);
        for (p = t_crow(&x->within, own, r); p < end && t_col(&x->within, own, p) != c;) p++;
        if (p == end) return BSR_BLOCK_SKIP;
        if (x->o.block_kind && !(x->o.flags & BSR_ATTENTION_FULL))
            kind = x->o.block_kind[t_matrix_offset(&x->within, x->within.col_batch_stride, own) + p];
        if (kind == BSR_BLOCK_SKIP) return kind;
    }
    for (i = r * br; i < (r + 1) * br; i++)
        for (j = c * bc; j < (c + 1) * bc; j++)
            what = rk_element(x, item, i, j, kind), allowed |= what == 2, forbidden |= what == 1;
    if (x->o.flags & BSR_ATTENTION_MASK_BOOLEAN) forbidden |= kind != BSR_BLOCK_FULL && !(x->o.flags & BSR_ATTENTION_FULL);
    return !allowed ? BSR_BLOCK_SKIP : forbidden ? BSR_BLOCK_PARTIAL : BSR_BLOCK_FULL;
}
/* All of them, [items][r][c]; *unequal: items store different numbers. Returns what nnz must be. */
TF int64_t rk_kinds(const rk_case *x, uint8_t *kinds, int *unequal) {
    const int64_t items = t_items(&x->to.batch), area = x->to.r * x->to.c;
    int64_t item, at, n = 0, total = 0, first = 0;
    *unequal = 0;
    for (item = 0; item < items; item++, total += n) {
        for (at = 0, n = 0; at < area; at++) {
            kinds[item * area + at] = (uint8_t)rk_kind(x, item, at / x->to.c, at % x->to.c);
            n += kinds[item * area + at] != BSR_BLOCK_SKIP;
        }
        if (!item) first = n;
        *unequal |= n != first;
    }
    return x->to.ragged ? total : items ? first : 0;
}
/* Kinds for m, poisoned. */
TF uint8_t *rk_room(const t_spec *s) {
    uint8_t *kind = (uint8_t *)bt_alloc((size_t)(t_items(&s->batch) * s->r * s->c), 1);
    bt_mark_output(kind);
    return kind;
}
/* Is m, with its kinds (null: none were asked for), that mask? */
TF void rk_check(const rk_case *x, const bsr_matrix *m, const uint8_t *kind, const uint8_t *want) {
    const int64_t items = t_items(&x->to.batch);
    int64_t item, r, c, p;
    for (item = 0; item < items; item++)
        for (r = 0; r < x->to.r; r++) {
            for (c = 0, p = t_crow(m, item, r); c < x->to.c; c++, want++) {
                const int there = p < t_crow(m, item, r + 1) && t_col(m, item, p) == c;
                CHECK_INT(there, *want != BSR_BLOCK_SKIP);
                if (there && kind) CHECK_INT(kind[t_matrix_offset(m, m->col_batch_stride, item) + p], *want);
                p += there;
            }
            CHECK_INT(p, t_crow(m, item, r + 1));
        }
}

/* Random lists of s's blocks, of which kinds tells in [items][r][c] what each must become. */
TF bsr_block_lists rk_lists(const t_spec *s, uint8_t *kinds) {
    const int64_t lines = t_items(&s->batch) * s->r, full = bt_below(3);
    const int64_t width[2] = {bt_range(bt_below(2) ? 0 : s->c, s->c + 2), bt_range(0, s->c + 2)};
    bsr_block_lists l;
    int64_t i, c, n;
    memset(&l, 0, sizeof l), l.width = width[0];
    l.counts = (int32_t *)bt_alloc((size_t)lines * 4, 4), l.indices = (int32_t *)bt_alloc((size_t)(lines * width[0]) * 4, 4);
    if (full)
        l.full_width = width[1], l.full_counts = (int32_t *)bt_alloc((size_t)lines * 4, 4),
        l.full_indices = (int32_t *)bt_alloc((size_t)(lines * width[1]) * 4, 4);
    for (i = 0; i < lines * s->c; i++)
        kinds[i] = (uint8_t)(bt_below(4) < 1 + (i / (s->c ? s->c : 1)) % 3 ? bt_below(full ? 2 : 1) : 2);
    for (i = 0; i < lines; i++) {
        int k;
        for (k = 0; k < 1 + (full != 0); k++) {
            int32_t *list = k ? l.full_indices + i * width[1] : l.indices + i * width[0];
            for (n = 0, c = 0; c < s->c; c++) {
                if (kinds[i * s->c + c] != k) continue;
                if (n == width[k]) kinds[i * s->c + c] = 2;
                else list[n++] = (int32_t)c;
            }
            (k ? l.full_counts : l.counts)[i] = (int32_t)n;
            for (c = n - 1; c > 0; c--) { /* in any order */
                const int64_t other = bt_below(c + 1);
                const int32_t swap = list[c];
                list[c] = list[other], list[other] = swap;
            }
            for (; n < width[k]; n++) list[n] = (int32_t)bt_range(-9, 99);
        }
    }
    return l;
}
/* Room for lists, poisoned. */
TF bsr_block_lists rk_list_room(int64_t lines, int64_t width, int64_t full_width, int full) {
    bsr_block_lists l;
    memset(&l, 0, sizeof l), l.width = width;
    l.counts = (int32_t *)bt_alloc((size_t)lines * 4, 4), l.indices = (int32_t *)bt_alloc((size_t)(lines * width) * 4, 4);
    bt_mark_output(l.counts), bt_mark_output(l.indices);
    if (!full) return l;
    l.full_width = full_width, l.full_counts = (int32_t *)bt_alloc((size_t)lines * 4, 4);
    l.full_indices = (int32_t *)bt_alloc((size_t)(lines * full_width) * 4, 4);
    bt_mark_output(l.full_counts), bt_mark_output(l.full_indices);
    return l;
}
/* Is `l` what m with these kinds (null: all partial) must become? */
TF void rk_check_lists(const bsr_matrix *m, const uint8_t *kind, const bsr_block_lists *l) {
    const int64_t items = t_matrix_items(m), rows = m->rows / m->block_rows;
    int64_t item, r, p;
    int k;
    for (item = 0; item < items; item++)
        for (r = 0; r < rows; r++)
            for (k = 0; k < 1 + (l->full_counts != NULL); k++) {
                const int64_t line = item * rows + r, width = k ? l->full_width : l->width;
                const int32_t *list = (k ? l->full_indices : l->indices) + line * width;
                int64_t n = 0;
                for (p = t_crow(m, item, r); p < t_crow(m, item, r + 1); p++) {
                    const int of = kind ? kind[t_matrix_offset(m, m->col_batch_stride, item) + p] : 0;
                    if (of == BSR_BLOCK_SKIP || (l->full_counts ? of != k : 0)) continue;
                    CHECK_INT(list[n], t_col(m, item, p)), n++;
                }
                CHECK_INT((k ? l->full_counts : l->counts)[line], n);
                for (; n < width; n++) CHECK_INT(list[n], 0);
            }
}

/* Rows of x pooled by blocks, element by element. */
TF void rk_check_pool(int kind, int64_t block, const bsr_dense *x, const int32_t *counts, int64_t stride, const bsr_dense *out,
                      int f64) {
    const t_shape whole = t_dense_batch(out), mine = t_dense_batch(x);
    const int64_t heads = whole.dims ? whole.n[whole.dims - 1] : 1, items = t_items(&whole);
    const double u = x->dtype == BSR_F64 || f64 ? 0x1p-53 : 0x1p-24, inf = (double)INFINITY;
    int64_t item, r, d, i;
    for (item = 0; item < items; item++)
        for (r = 0; r < out->rows; r++) {
            int64_t n = x->rows - r * block < block ? x->rows - r * block : block;
            if (counts && counts[item / heads * stride + r] < n) n = counts[item / heads * stride + r];
            for (d = 0; d < out->cols; d++) {
                double sum = 0, all = 0, low = inf, high = -inf, want, got = t_get(out, item, r, d);
                for (i = r * block; i < r * block + n; i++) {
                    const double v = t_get(x, t_item_of(&whole, item, &mine), i, d);
                    sum += v, all += fabs(v), low = v < low ? v : low, high = v > high ? v : high;
                }
                n = n < 0 ? 0 : n;
                if (kind == BSR_REDUCE_MEAN && !n) {
                    CHECK(got != got);
                    continue;
                }
                want = kind == BSR_REDUCE_MAX ? high : kind == BSR_REDUCE_MIN ? low : sum;
                if (kind == BSR_REDUCE_MEAN) want /= (double)n;
                if (fabs(want) == inf) CHECK(got == want);
                else
                    CHECK_NEAR(got, want,
                               ((double)n + 4) * u * (kind == BSR_REDUCE_SUM ? all : n ? all / (double)n : 0) * (1 + 0x1p-20) +
                                   t_half_ulp(out->dtype, want) * (1 + 0x1p-20) + 1e-45);
            }
        }
}

typedef struct rk_choice {
    bsr_select s;
    bsr_dense q, k; /* q: scores, where s says so */
    t_spec to;
    t_shape whole, keys; /* with all heads */
    int64_t group, fine_rows, fine_cols;
} rk_choice;
/* In place, as s points into it. */
TF void rk_choice_new(rk_choice *x, int64_t most) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64};
    bsr_select *s = &x->s;
    const int64_t own = bt_range(1, 2), group = bt_below(2) ? 1 : bt_range(1, 3), d = bt_below(12) ? bt_range(1, 150) : 0;
    const int type = RK_PICK(types), fill = bt_below(2) ? FILL_INTEGER : FILL_SIGNED, dims = (int)bt_below(3);
    int64_t rows, cols;
    memset(x, 0, sizeof *x);
    x->to = t_spec_of(BSR_F32, bt_range(1, 9), bt_range(1, 9), bt_range(0, most / 2), bt_range(bt_below(9) ? 1 : 0, most), 0);
    x->to.index_dtype = bt_below(2) ? BSR_I32 : BSR_I64;
    x->to.batch = dims == 2 ? t_batch(2, 2, own, 0, 0) : t_batch(dims, own, 0, 0, 0);
    x->to.ragged = x->to.batch.dims != 0, x->fine_rows = bt_below(2) ? 1 : bt_range(1, 3);
    x->fine_cols = bt_below(2) ? 1 : bt_range(1, 3), x->whole = x->to.batch, x->group = 1;
    if (bt_below(2)) { /* more heads */
        s->flags |= BSR_SELECT_SUM_GROUP, x->group = group;
        if (!dims) x->whole = t_batch(1, group, 0, 0, 0);
        else x->whole.n[dims - 1] *= group;
    }
    x->keys = x->whole;
    if (x->keys.dims && bt_below(2)) x->keys.n[x->keys.dims - 1] = bt_below(2) && x->to.batch.dims ? own : 1;
    rows = x->to.r * x->fine_rows, cols = x->to.c * x->fine_cols;
    if (bt_below(2)) {
        x->q = t_random(type, rows, cols, (int)bt_below(LAYOUTS), x->whole, 0, fill), s->scores = &x->q;
        if (fill == FILL_SIGNED && bt_below(4) == 0 && rows && cols) t_set(&x->q, 0, rows / 2, cols / 2, (double)NAN);
        if (fill == FILL_SIGNED && bt_below(4) == 0 && rows && cols) t_set(&x->q, 0, rows / 3, 0, -(double)INFINITY);
    } else {
        x->q = t_random(type, rows, d, (int)bt_below(LAYOUTS), x->whole, 0, fill), s->q = &x->q;
        x->k = t_random(type, cols, d, (int)bt_below(LAYOUTS), x->keys, 0, fill), s->k = &x->k;
    }
    s->combine = (int32_t)bt_below(3), s->scale = bt_below(2) ? 0 : 0.125;
    if (bt_below(2)) s->top_k = bt_range(1, x->to.c + 1);
    if (bt_below(3) == 0) s->top_p = bt_below(8) ? bt_uniform() : 1;
    if (bt_below(3) == 0) s->flags |= BSR_SELECT_THRESHOLD, s->threshold = bt_uniform() - .5;
    if (bt_below(3) == 0) s->first = bt_below(3);
    if (bt_below(3) == 0) s->local = bt_below(4);
    if (bt_below(2)) s->flags |= BSR_SELECT_CAUSAL;
    if (bt_below(2)) s->flags |= BSR_SELECT_FORCED_COUNT;
    if (bt_below(2)) s->causal_offset = bt_range(-40, 40);
}
/* The combined score of a block. */
TF double rk_score(const rk_choice *x, int64_t item, int64_t r, int64_t c) {
    const bsr_select *s = &x->s;
    const double scale = s->scale != 0 ? s->scale : s->scores || !x->q.cols ? 1 : 1 / sqrt((double)x->q.cols);
    double v[9], top = -(double)INFINITY, sum = 0;
    int64_t i, k, g, d;
    int n = 0, m;
    for (i = 0; i < x->fine_rows; i++)
        for (k = 0; k < x->fine_cols; k++)
            for (g = 0, v[n++] = 0; g < x->group; g++) {
                const int64_t wide = item * x->group + g, row = r * x->fine_rows + i, col = c * x->fine_cols + k;
                const int64_t heads = x->whole.dims ? x->whole.n[x->whole.dims - 1] : 1;
                const int64_t own = x->keys.dims ? x->keys.n[x->keys.dims - 1] : 1;
                double dot = 0;
                for (d = 0; s->q && d < x->q.cols; d++)
                    dot += t_get(&x->q, wide, row, d) * t_get(&x->k, wide / heads * own + wide % heads / (heads / own), col, d);
                v[n - 1] += scale * (s->q ? dot : t_get(&x->q, wide, row, col));
            }
    for (m = 0; m < n; m++) {
        if (v[m] != v[m]) return -(double)INFINITY;
        top = v[m] > top ? v[m] : top, sum += v[m];
    }
    if (s->combine == BSR_SELECT_SUM) return sum;
    if (s->combine == BSR_SELECT_MAX || fabs(top) == (double)INFINITY) return top;
    for (m = 0, sum = 0; m < n; m++) sum += exp(v[m] - top);
    return top + log(sum);
}
/* What must be kept of all blocks, as kinds [items][r][c]. Choices that rounding may turn are 3: either way. */
TF void rk_choose(const rk_choice *x, uint8_t *kinds) {
    const bsr_select *s = &x->s;
    const int64_t c = x->to.c, br = x->to.block_rows, bc = x->to.block_cols;
    double *score = (double *)calloc((size_t)c + 1, sizeof *score);
    int64_t item, r, i, b;
    if (!score) abort();
    for (item = 0; item < t_items(&x->to.batch); item++)
        for (r = 0; r < x->to.r; r++, kinds += c) {
            const int64_t last = (r + 1) * br - 1 + s->causal_offset;
            double top = -(double)INFINITY, all = 0, mass = 0, near = 1e-9;
            int64_t forced = 0, taken = 0, middle = last;
            while (middle % bc) middle--; /* downwards, of negative ones too */
            middle /= bc;
            for (i = 0; i < c; i++) {
                kinds[i] = (s->flags & BSR_SELECT_CAUSAL) && i * bc > last ? 2 : 4; /* 4: may be kept */
                score[i] = kinds[i] == 2 ? 0 : rk_score(x, item, r, i);
                if (kinds[i] == 4 && score[i] > top) top = score[i];
            }
            for (i = 0; i < c; i++)
                if (kinds[i] == 4) all += score[i] == top ? 1 : exp(score[i] - top);
            for (i = 0; i < c; i++)
                if (kinds[i] == 4 && (i < s->first || (i > middle - s->local && i < middle + s->local)))
                    kinds[i] = 5, forced++, mass += score[i] == top ? 1 : exp(score[i] - top);
            for (;;) {
                int done = 0, unsure = 0;
                for (i = 0, b = -1; i < c; i++)
                    if (kinds[i] == 4 && (b < 0 || score[i] > score[b])) b = i;
                if (b < 0) break;
                if (s->top_k && taken + (s->flags & BSR_SELECT_FORCED_COUNT ? forced : 0) >= s->top_k) done = 1;
                if (s->top_p > 0 && s->top_p < 1 && mass >= s->top_p * all) done = 1;
                if (s->top_p > 0 && s->top_p < 1 && fabs(mass - s->top_p * all) < near * all) unsure = 1;
                if (s->top_p == 1 && score[b] != top && !(exp(score[b] - top) > 0)) done = 1; /* all that have a share */
                if (s->top_p == 1 && fabs(score[b] - top + 745) < 1) unsure = 1;
                if ((s->flags & BSR_SELECT_THRESHOLD) && !(score[b] >= s->threshold)) done = 1;
                if ((s->flags & BSR_SELECT_THRESHOLD) && fabs(score[b] - s->threshold) < near) unsure = 1;
                for (i = 0; i < c; i++) /* scores that only rounding tells apart: which of them is chosen is open */
                    if (kinds[i] == 4 && score[i] != score[b] && fabs(score[i] - score[b]) < near * (1 + fabs(score[b])))
                        unsure = 1;
                if (unsure) {
                    for (i = 0; i < c; i++)
                        if (kinds[i] == 4) kinds[i] = 3;
                    break;
                }
                if (done) break;
                mass += score[b] == top ? 1 : exp(score[b] - top), taken++, kinds[b] = 5;
            }
            for (i = 0; i < c; i++) {
                const int full = !(s->flags & BSR_SELECT_CAUSAL) || (i + 1) * bc - 1 <= r * br + s->causal_offset;
                kinds[i] = (uint8_t)(kinds[i] == 4 ? 2 : kinds[i] == 5 ? full : kinds[i]);
            }
        }
    free(score);
}
/* Is m, with its kinds, such a choice? */
TF void rk_check_choice(const rk_choice *x, const bsr_matrix *m, const uint8_t *kind, const uint8_t *want) {
    const int64_t items = t_items(&x->to.batch);
    int64_t item, r, c, p;
    for (item = 0; item < items; item++)
        for (r = 0; r < x->to.r; r++) {
            for (c = 0, p = t_crow(m, item, r); c < x->to.c; c++, want++) {
                const int there = p < t_crow(m, item, r + 1) && t_col(m, item, p) == c;
                if (*want != 3) CHECK_INT(there, *want != BSR_BLOCK_SKIP);
                if (there && kind && *want != 3)
                    CHECK_INT(kind[t_matrix_offset(m, m->col_batch_stride, item) + p], *want);
                p += there;
            }
            CHECK_INT(p, t_crow(m, item, r + 1));
        }
}

#endif /* BSR_REF_MASKS_H */
