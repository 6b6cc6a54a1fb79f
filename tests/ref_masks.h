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

#endif /* BSR_REF_MASKS_H */
