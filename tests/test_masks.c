/* test_masks.c: block masks of attention: from conditions, against a reference that looks at every element; lists; pooled
   rows, and blocks chosen by scores. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref_decode.h"
#include "ref_masks.h"

static int64_t pick_capacity(const rk_case *x, int64_t nnz, int64_t more) {
    const int64_t all = x->to.r * x->to.c * (x->to.ragged ? t_items(&x->to.batch) : 1);
    return nnz + (more < all - nnz ? more : all - nnz);
}

TEST(block_mask) {
    int k;
    for (k = 0; k < 1500; k++) {
        const bsr_context *ctx = t_any_context();
        bsr_exec e = t_exec(0);
        rk_case x;
        bsr_matrix m, count;
        uint8_t *want, *kind, *given;
        int64_t nnz;
        int unequal;
        bt_case("%d", k);
        rk_new(&x, k % 32 ? 70 : 400, 1);
        want = (uint8_t *)bt_alloc((size_t)(t_items(&x.to.batch) * x.to.r * x.to.c), 1), bt_mark_output(want);
        nnz = rk_kinds(&x, want, &unequal), unequal = unequal && !x.to.ragged;
        kind = rk_room(&x.to), given = bt_below(4) ? kind : NULL;
        m = t_target(&x.to), m.rows = bt_below(2) ? x.to.r * x.to.block_rows : 0;
        m.cols = m.rows ? x.to.c * x.to.block_cols : 0, m.nnz = pick_capacity(&x, nnz, bt_below(3));
        count = m, count.col_indices = count.values = NULL, count.nnz = -1;
        if (unequal) {
            CHECK_INT(bsr_block_mask(ctx, x.lq, x.lk, &x.o, x.pwithin, &m, given, &e), BSR_BAD_STRUCTURE);
            CHECK_INT(t_error.item, BSR_ITEM_UNEQUAL_NNZ), CHECK(t_all_poison(m.crow_indices) && t_all_poison(kind));
            continue;
        }
        if (RUN_OK(bsr_block_mask(ctx, x.lq, x.lk, &x.o, x.pwithin, &count, given, &e))) CHECK_INT(count.nnz, nnz);
        CHECK(t_all_poison(kind) && t_all_poison(m.col_indices));
        if (nnz) {
            bsr_matrix few = m;
            few.nnz = nnz - 1;
            CHECK_INT(bsr_block_mask(ctx, x.lq, x.lk, &x.o, x.pwithin, &few, given, &e), BSR_CAPACITY);
            CHECK_INT(t_error.value, nnz), CHECK(t_all_poison(kind) && t_all_poison(m.col_indices));
        }
        m.transposed_index = m.schedule = kind; /* views are detached */
        if (!RUN_OK(bsr_block_mask(ctx, x.lq, x.lk, &x.o, x.pwithin, &m, given, &e))) continue;
        if (t_items(&x.to.batch)) CHECK_INT(m.nnz, nnz); /* of no items a GPU leaves the capacity */
        CHECK_INT(m.rows, x.to.r * x.to.block_rows), CHECK_INT(m.cols, x.to.c * x.to.block_cols);
        CHECK(!m.transposed_index && !m.schedule && (given || t_all_poison(kind)) && t_all_poison(m.values));
        CHECK_INT(bsr_validate(t_context(0), &m, &e), BSR_OK);
        rk_check(&x, &m, given, want);
    }
}

/* Attention by the mask that is made, with its kinds, is that by `within` and the conditions. */
TEST(attention_agrees) {
    int k;
    for (k = 0; k < 300; k++) {
        const bsr_context *ctx = t_any_context();
        bsr_exec e = t_exec(0);
        bsr_attention_options o;
        bsr_dense q, key, v, out[2], lse[2];
        bsr_matrix m, all;
        uint8_t *kind;
        rk_case x;
        int64_t item, i, d;
        bt_case("%d", k);
        rk_new(&x, 60, 1), x.o.flags &= ~BSR_ATTENTION_MASK_BOOLEAN, x.o.dropout_p = 0;
        if (x.o.causal_offset > 1000 || x.o.window_left > 1000 || x.o.window_left < -1000) x.o.flags = 0;
        if (x.to.batch.dims) x.to.ragged = 1;
        kind = rk_room(&x.to), m = t_target(&x.to);
        q = t_random(BSR_F64, x.lq, 6, ROW, x.to.batch, 0, FILL_SIGNED);
        key = t_random(BSR_F64, x.lk, 6, ROW, x.to.batch, 0, FILL_SIGNED);
        v = t_random(BSR_F64, x.lk, 5, ROW, x.to.batch, 0, FILL_SIGNED);
        for (i = 0; i < 2; i++)
            out[i] = t_output(BSR_F64, x.lq, 5, ROW, x.to.batch), lse[i] = t_output(BSR_F64, x.lq, 1, ROW, x.to.batch);
        if (!RUN_OK(bsr_block_mask(ctx, x.lq, x.lk, &x.o, x.pwithin, &m, kind, &e))) continue;
        bt_find(m.crow_indices)->output = bt_find(m.col_indices)->output = bt_find(kind)->output = 0;
        o = x.o, o.block_kind = kind, o.flags &= ~BSR_ATTENTION_FULL;
        if (!RUN_OK(bsr_attention(ctx, 0, &q, &key, &v, &m, &o, &out[0], &lse[0], &e))) continue;
        if (!x.pwithin) {
            t_spec s = x.to;
            s.dtype = BSR_BOOL, s.pattern_only = 1, s.ragged = 0, s.batch = NO_BATCH, all = t_matrix(&s);
        } else all = x.within;
        if (!RUN_OK(bsr_attention(ctx, 0, &q, &key, &v, &all, &x.o, &out[1], &lse[1], &e))) continue;
        for (item = 0; item < t_items(&x.to.batch); item++)
            for (i = 0; i < x.lq; i++) {
                const double a = t_get(&lse[0], item, i, 0), b = t_get(&lse[1], item, i, 0);
                CHECK(a == b || fabs(a - b) < 1e-12);
                for (d = 0; d < 5; d++) CHECK_NEAR(t_get(&out[0], item, i, d), t_get(&out[1], item, i, d), 1e-12);
            }
    }
}

/* Long sequences by corners: what they take is told by the blocks, not by the elements. */
TEST(long_masks) {
    static const int64_t sizes[] = {1 << 20, 999983, 65536};
    int k;
    for (k = 0; k < 12; k++) {
        const int64_t n = sizes[k % 3], side = k % 2 ? 128 : 1000, r = (n + side - 1) / side, left = 4 * side + k, c0 = n / 2;
        bsr_exec e = t_exec(0);
        bsr_attention_options o;
        const int type = k & 2 ? BSR_I64 : BSR_I32;
        bsr_matrix m;
        uint8_t *kind;
        int64_t i, p, all = 0;
        bt_case("%d", k);
        memset(&o, 0, sizeof o), o.flags = BSR_ATTENTION_CAUSAL | BSR_ATTENTION_WINDOW, o.window_left = left;
        o.causal_offset = k % 4 == 3 ? -c0 : 0;
        m = bsr_matrix_make(0, 0, side, side, 0, bt_alloc((size_t)(r + 1) * bsr_dtype_size(type), 8), NULL, type, NULL, BSR_F32);
        bt_mark_output(m.crow_indices);
        if (!RUN_OK(bsr_block_mask(t_any_context(), n, n, &o, NULL, &m, NULL, &e))) continue;
        m.col_indices = bt_alloc((size_t)m.nnz * bsr_dtype_size(type), 8), kind = (uint8_t *)bt_alloc((size_t)m.nnz, 1);
        all = m.nnz;
        bt_mark_output(m.col_indices), bt_mark_output(kind);
        if (!RUN_OK(bsr_block_mask(t_any_context(), n, n, &o, NULL, &m, kind, &e))) continue;
        CHECK_INT(m.nnz, all);
        for (i = 0; i < r; i++) {
            const int64_t top = i * side, end = top + side < n ? top + side : n;
            int64_t first = top + o.causal_offset - left, last = end - 1 + o.causal_offset;
            first = first < 0 ? 0 : first / side, last = last < 0 ? -1 : last / side;
            CHECK_INT(t_crow(&m, 0, i + 1) - t_crow(&m, 0, i), last < first ? 0 : last - first + 1);
            for (p = t_crow(&m, 0, i); p < t_crow(&m, 0, i + 1); p++) {
                const int64_t at = t_col(&m, 0, p) * side, behind = at + side < n ? at + side : n;
                const int full = behind - 1 <= top + o.causal_offset && at >= end - 1 + o.causal_offset - left;
                CHECK_INT(t_col(&m, 0, p), first + p - t_crow(&m, 0, i)), CHECK_INT(kind[p], full);
            }
        }
    }
}

static bsr_status bad_block_mask(int k, rk_case *x, bsr_matrix *m, uint8_t *kind, bsr_exec *e) {
    int64_t lq = x->lq, lk = x->lk;
    static uint8_t kinds[64] = {3}, zeros[64];
    const bsr_matrix *within = &x->within;
    switch (k) {
        case 0: lq = -1; break;
        case 1: lk = -5; break;
        case 2: lq += m->block_rows; break;
        case 3: lk += m->block_cols; break;
        case 4: x->o.flags = 1u << 20; break;
        case 5: x->o.reserved[1] = 1; break;
        case 6: x->o.flags = BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_MASK_ADDITIVE; break;
        case 7: x->o.mask_function = 7; break;
        case 8: within = NULL, x->o.block_kind = kinds; break;
        case 9: x->o.block_kind = kinds; break;
        case 10: x->within.block_rows *= 2; break;
        case 11: x->within.rows += m->block_rows; break;
        case 12: x->within.cols += m->block_cols; break;
        case 13: x->within = bsr_matrix_batched(x->within, 2, 0, 0, 0); break;
        case 14: x->o.block_kind = kind = zeros; break;
        case 15: kind = (uint8_t *)m->crow_indices; break;
        case 16: kind = (uint8_t *)x->within.crow_indices; break;
        case 17: x->lengths.k_lengths = (int32_t *)m->crow_indices, x->o.lengths = &x->lengths; break;
        case 18: x->lengths.key_counts = (int32_t *)x->within.crow_indices, x->lengths.key_counts_stride = -1,
                 x->o.lengths = &x->lengths; break;
        case 19: m->crow_indices = NULL; break;
        case 20: m = NULL; break;
        case 21: m->index_dtype = BSR_F32; break;
        case 22: m->nnz = 0; break;
        case 23: t_set_index(x->within.col_indices, x->within.index_dtype, 0, 99); break;
        case 24: x->o.key_padding_mask = &x->padding, x->o.key_padding_mode = 5; break;
        case 25: x->padding.cols = 3, x->o.key_padding_mask = &x->padding; break;
        case 26: x->o.dropout_p = 2; break;
        case 27: lq = lk = INT64_MAX, m->rows = m->cols = 0; break;
        default: m->col_indices = x->within.col_indices;
    }
    return bsr_block_mask(t_context(0), lq, lk, &x->o, within, m, kind, e);
}
TEST(block_mask_bad) {
    static const struct {
        int status, operand;
    } want[] = {{BSR_BAD_SHAPE, BSR_ARG_MATRIX},      {BSR_BAD_SHAPE, BSR_ARG_MATRIX},      {BSR_BAD_SHAPE, BSR_ARG_MATRIX},
                {BSR_BAD_SHAPE, BSR_ARG_MATRIX},      {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},  {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},
                {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},  {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},  {BSR_NULL_POINTER, BSR_ARG_WITHIN},
                {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},  {BSR_BAD_SHAPE, BSR_ARG_WITHIN},      {BSR_BAD_SHAPE, BSR_ARG_WITHIN},
                {BSR_BAD_SHAPE, BSR_ARG_WITHIN},      {BSR_BAD_BATCH, BSR_ARG_WITHIN},      {BSR_OVERLAP, BSR_ARG_KIND},
                {BSR_OVERLAP, -1},                    {BSR_OVERLAP, -1},                    {BSR_OVERLAP, -1},
                {BSR_BAD_STRIDE, BSR_ARG_OPTIONS},    {BSR_NULL_POINTER, BSR_ARG_MATRIX},   {BSR_NULL_POINTER, BSR_ARG_MATRIX},
                {BSR_BAD_DTYPE, BSR_ARG_MATRIX},      {BSR_CAPACITY, BSR_ARG_MATRIX},       {BSR_BAD_STRUCTURE, BSR_ARG_WITHIN},
                {BSR_BAD_SHAPE, BSR_ARG_KEY_PADDING}, {BSR_BAD_SHAPE, BSR_ARG_KEY_PADDING}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},
                {BSR_OVERFLOW, BSR_ARG_MATRIX},       {BSR_OVERLAP, -1}};
    int k;
    for (k = 0; k < (int)BT_COUNT(want); k++) {
        bsr_exec e = t_exec(0);
        t_spec s = t_spec_of(BSR_BOOL, 4, 3, 5, 6, 11);
        bsr_matrix m;
        uint8_t *kind;
        rk_case x;
        bt_case("%d", k);
        memset(&x, 0, sizeof x), x.lq = 20, x.lk = 17, s.pattern_only = 1, x.within = t_matrix(&s);
        x.padding = t_random(BSR_F32, 1, 17, ROW, NO_BATCH, 0, FILL_POSITIVE);
        s = t_spec_of(BSR_F32, 4, 3, 5, 6, 30), m = t_target(&s), m.rows = 20, m.cols = 18, kind = rk_room(&s);
        if (k == 14) s.nnz = 30;
        CHECK_INT(bad_block_mask(k, &x, &m, kind, &e), k == 24 ? BSR_BAD_ARGUMENT : want[k].status);
        if (want[k].operand >= 0) CHECK_INT(t_error.operand, want[k].operand);
        CHECK(t_all_poison(kind) && (k == 19 || k == 20 || t_all_poison(m.crow_indices)));
        CHECK((k == 28 || t_all_poison(m.col_indices)) && t_all_poison(m.values));
    }
}

static t_spec some_target(void) {
    t_spec s = t_spec_of(BSR_F32, bt_range(1, 5), bt_range(1, 5), bt_range(0, 7), bt_range(bt_below(9) ? 1 : 0, 80), 0);
    s.index_dtype = bt_below(2) ? BSR_I32 : BSR_I64;
    s.batch = t_batch((int)bt_below(4), bt_range(1, 2), bt_range(bt_below(9) ? 1 : 0, 3), bt_range(1, 2), 0);
    s.ragged = s.batch.dims != 0;
    return s;
}
TEST(block_lists) {
    int k;
    for (k = 0; k < 400; k++) {
        const bsr_context *ctx = t_any_context();
        bsr_exec e = t_exec(0);
        t_spec s;
        rk_case x;
        bsr_matrix m, count;
        uint8_t *want, *kind, *given;
        bsr_block_lists l, back;
        int64_t i, n = 0, lines, most[2] = {0, 0};
        int full;
        bt_case("%d", k);
        s = some_target(), lines = t_items(&s.batch) * s.r, memset(&x, 0, sizeof x), x.to = s;
        want = (uint8_t *)bt_alloc((size_t)(lines * s.c), 1), bt_mark_output(want), l = rk_lists(&s, want), kind = rk_room(&s);
        for (i = 0; i < lines * s.c; i++) n += want[i] != 2;
        m = t_target(&s), m.rows = s.r * s.block_rows, m.cols = s.c * s.block_cols, given = bt_below(4) ? kind : NULL;
        count = m, count.col_indices = count.values = NULL;
        if (RUN_OK(bsr_from_block_lists(ctx, &l, &count, given, &e))) CHECK_INT(count.nnz, n);
        CHECK(t_all_poison(kind) && t_all_poison(m.col_indices));
        if (!RUN_OK(bsr_from_block_lists(ctx, &l, &m, given, &e))) continue;
        CHECK_INT(m.nnz, n), CHECK(t_all_poison(m.values) && (given || t_all_poison(kind)));
        CHECK_INT(bsr_validate(t_context(0), &m, &e), BSR_OK);
        rk_check(&x, &m, given, want);
        if (bt_find(m.crow_indices)) bt_find(m.crow_indices)->output = 0;
        if (bt_find(m.col_indices)) bt_find(m.col_indices)->output = 0;
        for (i = 0; i < n && bt_below(2) && given; i++) given[i] = (uint8_t)bt_below(3);
        if (bt_find(kind)) bt_find(kind)->output = 0;
        full = bt_below(3) != 0;
        for (i = 0; i < t_items(&s.batch); i++) { /* the longest lists */
            int64_t r, p;
            for (r = 0; r < s.r; r++) {
                int64_t have[2] = {0, 0};
                for (p = t_crow(&m, i, r); p < t_crow(&m, i, r + 1); p++) {
                    const int of = given ? given[t_matrix_offset(&m, m.col_batch_stride, i) + p] : 0;
                    have[of == 1 && full] += of != 2;
                }
                most[0] = have[0] > most[0] ? have[0] : most[0], most[1] = have[1] > most[1] ? have[1] : most[1];
            }
        }
        if (most[0]) {
            back = rk_list_room(lines, most[0] - 1, most[1], full);
            CHECK_INT(bsr_to_block_lists(ctx, &m, given, &back, &e), BSR_CAPACITY);
            CHECK_INT(t_error.value, most[0]), CHECK_INT(t_error.operand, BSR_ARG_LISTS), CHECK(t_all_poison(back.counts));
        }
        if (most[1]) {
            back = rk_list_room(lines, most[0], most[1] - 1, full);
            CHECK_INT(bsr_to_block_lists(ctx, &m, given, &back, &e), BSR_CAPACITY);
            CHECK_INT(t_error.value, most[1]), CHECK_INT(t_error.operand, BSR_ARG_FULL_LISTS), CHECK(t_all_poison(back.counts));
        }
        back = rk_list_room(lines, most[0] + bt_below(3), most[1] + bt_below(3), full);
        if (RUN_OK(bsr_to_block_lists(ctx, &m, given, &back, &e))) rk_check_lists(&m, given, &back);
    }
}
/* A matrix in any order, with a pattern that items share. */
TEST(to_block_lists) {
    int k;
    for (k = 0; k < 100; k++) {
        bsr_exec e = t_exec(0);
        t_spec s;
        bsr_matrix m;
        bsr_block_lists l;
        uint8_t *kind;
        bt_case("%d", k);
        s = some_target(), s.dtype = BSR_BOOL, s.pattern_only = 1, s.nnz = bt_range(0, s.r * s.c), s.unsorted = k & 1;
        s.ragged = s.ragged && k & 2, s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(8);
        m = t_matrix(&s), kind = ref_random_kinds(&m);
        l = rk_list_room(t_matrix_items(&m) * s.r, s.c, s.c, k % 3 != 0);
        if (RUN_OK(bsr_to_block_lists(t_any_context(), &m, kind, &l, &e))) rk_check_lists(&m, kind, &l);
    }
}
static bsr_status bad_lists(int k, bsr_block_lists *l, bsr_matrix *m, uint8_t *kind, bsr_exec *e) {
    const bsr_block_lists *given = l;
    switch (k) {
        case 0: given = NULL; break;
        case 1: l->width = -1; break;
        case 2: l->full_width = -1; break;
        case 3: l->counts = NULL; break;
        case 4: l->indices = NULL; break;
        case 5: l->full_counts = NULL; break;
        case 6: l->full_indices = NULL; break;
        case 7: l->counts[3] = 5; break;
        case 8: l->full_counts[1] = -1; break;
        case 9: l->indices[4] = 6; break;
        case 10: l->full_indices[0] = -1; break;
        case 11: l->indices[1] = l->indices[0]; break;
        case 12: l->indices[0] = l->full_indices[0]; break;
        case 13: kind = (uint8_t *)l->counts; break;
        case 14: m->col_indices = l->full_indices; break;
        case 15: kind = (uint8_t *)m->col_indices; break;
        case 16: m->nnz = 19; break;
        case 17: m = NULL; break;
        case 18: m->rows = 21; break;
        case 19: l->width = INT64_MAX / 2; break;
        default: m->crow_indices = NULL;
    }
    return bsr_from_block_lists(t_context(0), given, m, kind, e);
}
TEST(block_lists_bad) {
    static const struct {
        int status, operand;
    } want[] = {{BSR_NULL_POINTER, BSR_ARG_LISTS},      {BSR_BAD_SHAPE, BSR_ARG_LISTS},      {BSR_BAD_SHAPE, BSR_ARG_FULL_LISTS},
                {BSR_NULL_POINTER, BSR_ARG_LISTS},      {BSR_NULL_POINTER, BSR_ARG_LISTS},
                {BSR_NULL_POINTER, BSR_ARG_FULL_LISTS}, {BSR_NULL_POINTER, BSR_ARG_FULL_LISTS},
                {BSR_BAD_STRUCTURE, BSR_ARG_LISTS},     {BSR_BAD_STRUCTURE, BSR_ARG_FULL_LISTS},
                {BSR_BAD_STRUCTURE, BSR_ARG_LISTS},     {BSR_BAD_STRUCTURE, BSR_ARG_FULL_LISTS},
                {BSR_BAD_STRUCTURE, BSR_ARG_LISTS},     {BSR_BAD_STRUCTURE, BSR_ARG_LISTS},  {BSR_OVERLAP, BSR_ARG_KIND},
                {BSR_OVERLAP, BSR_ARG_MATRIX},          {BSR_OVERLAP, BSR_ARG_KIND},         {BSR_CAPACITY, BSR_ARG_MATRIX},
                {BSR_NULL_POINTER, BSR_ARG_MATRIX},     {BSR_BAD_SHAPE, BSR_ARG_MATRIX},     {BSR_OVERFLOW, BSR_ARG_LISTS},
                {BSR_NULL_POINTER, BSR_ARG_MATRIX}};
    int k, i;
    for (k = 0; k < (int)BT_COUNT(want); k++) {
        bsr_exec e = t_exec(0);
        t_spec s = t_spec_of(BSR_F32, 4, 3, 5, 6, 0);
        bsr_matrix m;
        bsr_block_lists l;
        uint8_t *kind;
        bt_case("%d", k);
        s.index_dtype = BSR_I32, m = t_target(&s), m.rows = 20, m.cols = 18, kind = rk_room(&s), l = rk_list_room(5, 4, 2, 1);
        for (i = 0; i < 20; i++) l.counts[i / 4] = 4 - (i / 4 == 3), l.indices[i] = i % 4;
        for (i = 0; i < 10; i++) l.full_counts[i / 2] = 1, l.full_indices[i] = 5;
        CHECK_INT(bad_lists(k, &l, &m, kind, &e), want[k].status), CHECK_INT(t_error.operand, want[k].operand);
        CHECK(t_all_poison(kind) && (k == 14 || t_all_poison(m.col_indices)));
        CHECK(k == 17 || k == 20 || t_all_poison(m.crow_indices));
    }
    for (k = 0; k < 6; k++) { /* and back */
        bsr_exec e = t_exec(0);
        t_spec s = t_spec_of(BSR_BOOL, 4, 3, 5, 6, 30);
        bsr_matrix m;
        bsr_block_lists l;
        uint8_t *kind;
        bt_case("to, %d", k);
        s.pattern_only = 1, s.index_dtype = BSR_I32, m = t_matrix(&s), kind = (uint8_t *)bt_alloc(30, 1), memset(kind, k & 1, 30);
        l = rk_list_room(5, 6, 6, 1);
        if (k == 0) kind[7] = 3;
        if (k == 1) l.counts = (int32_t *)m.crow_indices;
        if (k == 2) l.full_indices = l.indices;
        if (k == 3) l.width = -2;
        if (k == 4) t_set_index(m.col_indices, m.index_dtype, 3, 6);
        CHECK_INT(bsr_to_block_lists(t_context(0), k == 5 ? NULL : &m, kind, &l, &e),
                  k == 0   ? BSR_BAD_ARGUMENT
                  : k == 3 ? BSR_BAD_SHAPE
                  : k == 4 ? BSR_BAD_STRUCTURE
                  : k == 5 ? BSR_NULL_POINTER
                           : BSR_OVERLAP);
        CHECK((k == 1 || t_all_poison(l.counts)) && t_all_poison(l.indices));
    }
}

TEST(pool_blocks) {
    static const int kinds[] = {BSR_REDUCE_SUM, BSR_REDUCE_MAX, BSR_REDUCE_MIN, BSR_REDUCE_MEAN};
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64};
    int k;
    for (k = 0; k < 300; k++) {
        const int kind = RK_PICK(kinds), type = RK_PICK(types), f64 = bt_below(4) == 0;
        const int64_t block = bt_below(4) ? bt_range(1, 70) : 1, rows = bt_below(9) ? bt_range(1, 300) : 0;
        const int64_t n = (rows + block - 1) / block, cols = bt_range(bt_below(9) ? 1 : 0, 300);
        const t_shape whole = t_batch((int)bt_below(3), 2, bt_range(1, 3), 0, 0);
        const int64_t heads = whole.dims ? whole.n[whole.dims - 1] : 1, items = t_items(&whole) / heads;
        bsr_exec e = t_exec(f64 ? BSR_EXEC_ACCUMULATE_F64 : 0);
        bsr_dense x, out;
        int32_t *counts;
        int64_t stride;
        bt_case("%d", k);
        x = t_random(type, rows, cols, (int)bt_below(LAYOUTS), bt_below(4) ? whole : NO_BATCH, 0, FILL_SIGNED);
        out = t_output(bt_below(2) && type != BSR_F64 ? BSR_F32 : type, n, x.cols, (int)bt_below(LAYOUTS), whole);
        stride = bt_below(2) ? n : 0, counts = ref_random_lengths(stride ? items * n : n, -1, block + 1);
        if (bt_below(2)) counts = NULL;
        if (RUN_OK(bsr_pool_blocks(t_any_context(), kind, block, &x, counts, stride, &out, &e)))
            rk_check_pool(kind, block, &x, counts, stride, &out, f64);
    }
}
TEST(pool_nan) { /* the largest and the smallest are NaN where one is */
    float x[6] = {1, (float)NAN, 3, 4, 5, 6}, y[2];
    const bsr_dense a = bsr_dense_row_major(x, BSR_F32, 6, 1), out = bsr_dense_row_major(y, BSR_F32, 2, 1);
    bsr_exec e = t_exec(0);
    int kind;
    for (kind = BSR_REDUCE_MAX; kind <= BSR_REDUCE_MIN; kind++) {
        bt_case("%d", kind);
        CHECK_INT(bsr_pool_blocks(t_context(0), kind, 3, &a, NULL, 0, &out, &e), BSR_OK);
        CHECK(y[0] != y[0] && y[1] == (kind == BSR_REDUCE_MAX ? 6 : 4));
    }
}
TEST(pool_bad) {
    int k;
    for (k = 0; k < 10; k++) {
        static int32_t counts[4];
        bsr_dense x, out;
        bsr_exec e = t_exec(0);
        bsr_status status;
        int kind = BSR_REDUCE_MEAN;
        int64_t block = 6, stride = 0;
        void *memory;
        bt_case("%d", k);
        x = t_random(BSR_F32, 20, 5, ROW, NO_BATCH, 0, FILL_SIGNED), out = t_output(BSR_F32, 4, 5, ROW, NO_BATCH);
        memory = out.data;
        if (k == 0) kind = BSR_REDUCE_NORM2;
        if (k == 1) block = 0;
        if (k == 2) block = 5, out.rows = 3;
        if (k == 3) out.cols = 4;
        if (k == 4) x.dtype = BSR_I8;
        if (k == 5) out.dtype = BSR_F16;
        if (k == 6) stride = -1;
        if (k == 7) x = bsr_dense_batched(x, 2, 0);
        if (k == 8) out.data = x.data;
        status = bsr_pool_blocks(t_context(0), kind, block, k == 9 ? NULL : &x, counts, stride, &out, &e);
        CHECK_INT(status, k == 0   ? BSR_BAD_ARGUMENT
                          : k < 4  ? BSR_BAD_SHAPE
                          : k < 6  ? BSR_BAD_DTYPE
                          : k == 6 ? BSR_BAD_STRIDE
                          : k == 7 ? BSR_BAD_BATCH
                          : k == 8 ? BSR_OVERLAP
                                   : BSR_NULL_POINTER);
        CHECK(t_all_poison(memory));
    }
}
TEST(select_blocks) {
    int k;
    for (k = 0; k < 800; k++) {
        const bsr_context *ctx = t_any_context();
        bsr_exec e = t_exec(0);
        rk_choice x;
        bsr_matrix m, count;
        uint8_t *want, *kind, *given;
        bt_case("%d", k);
        rk_choice_new(&x, k % 8 ? 12 : 60);
        want = (uint8_t *)bt_alloc((size_t)(t_items(&x.to.batch) * x.to.r * x.to.c), 1), bt_mark_output(want);
        rk_choose(&x, want), kind = rk_room(&x.to), given = bt_below(4) ? kind : NULL;
        m = t_target(&x.to), m.rows = x.to.r * x.to.block_rows, m.cols = x.to.c * x.to.block_cols;
        count = m, count.col_indices = count.values = NULL;
        if (!RUN_OK(bsr_select_blocks(ctx, &x.s, &count, given, &e))) continue;
        CHECK(t_all_poison(kind) && t_all_poison(m.col_indices));
        if (!RUN_OK(bsr_select_blocks(ctx, &x.s, &m, given, &e))) continue;
        CHECK_INT(m.nnz, count.nnz), CHECK(t_all_poison(m.values) && (given || t_all_poison(kind)));
        CHECK_INT(bsr_validate(t_context(0), &m, &e), BSR_OK);
        rk_check_choice(&x, &m, given, want);
    }
}
TEST(select_bad) {
    static const struct {
        int status, operand;
    } want[] = {{BSR_NULL_POINTER, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},
                {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS},
                {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_OPTIONS}, {BSR_BAD_ARGUMENT, BSR_ARG_SCORES},
                {BSR_NULL_POINTER, BSR_ARG_Q},       {BSR_NULL_POINTER, BSR_ARG_K},       {BSR_BAD_SHAPE, BSR_ARG_K},
                {BSR_BAD_SHAPE, BSR_ARG_Q},          {BSR_BAD_SHAPE, BSR_ARG_K},          {BSR_BAD_DTYPE, BSR_ARG_K},
                {BSR_BAD_BATCH, BSR_ARG_Q},          {BSR_OVERLAP, BSR_ARG_KIND},         {BSR_CAPACITY, BSR_ARG_MATRIX},
                {BSR_BAD_SHAPE, BSR_ARG_SCORES},     {BSR_BAD_SHAPE, BSR_ARG_SCORES},     {BSR_NULL_POINTER, BSR_ARG_MATRIX}};
    int k;
    for (k = 0; k < (int)BT_COUNT(want); k++) {
        bsr_dense q, key, scores;
        t_spec to = t_spec_of(BSR_F32, 4, 3, 5, 6, 0);
        bsr_exec e = t_exec(0);
        bsr_select s;
        bsr_matrix m;
        uint8_t *kind;
        bt_case("%d", k);
        q = t_random(BSR_F32, 10, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        key = t_random(BSR_F32, 12, 7, ROW, NO_BATCH, 0, FILL_SIGNED);
        scores = t_random(BSR_F32, 5, 12, ROW, NO_BATCH, 0, FILL_SIGNED);
        memset(&s, 0, sizeof s), s.q = &q, s.k = &key, s.top_k = 2;
        m = t_target(&to), m.rows = 20, m.cols = 18, kind = rk_room(&to);
        if (k == 1) s.flags = 1u << 9;
        if (k == 2) s.top_k = -1;
        if (k == 3) s.top_p = 1.5;
        if (k == 4) s.local = -2;
        if (k == 5) s.combine = 3;
        if (k == 6) s.scale = (double)NAN;
        if (k == 7) s.reserved = 1;
        if (k == 8) s.scores = &scores;
        if (k == 9) s.q = NULL;
        if (k == 10) s.k = NULL;
        if (k == 11) key.cols = 6;
        if (k == 12) q.rows = 9;
        if (k == 13) key.rows = 11;
        if (k == 14) key.dtype = BSR_BF16;
        if (k == 15) q = bsr_dense_batched(q, 2, 0);
        if (k == 16) kind = (uint8_t *)q.data;
        if (k == 17) m.nnz = 9;
        if (k >= 18) s.q = s.k = NULL, s.scores = &scores;
        if (k == 18) scores.cols = 11;
        if (k == 19) scores.rows = 3;
        CHECK_INT(bsr_select_blocks(t_context(0), k ? &s : NULL, k == 20 ? NULL : &m, kind, &e), want[k].status);
        CHECK_INT(t_error.operand, want[k].operand);
        CHECK(t_all_poison(m.crow_indices) && t_all_poison(m.col_indices) && (k == 16 || t_all_poison(kind)));
    }
}

/* Counts beyond 64 bits. */
TEST(more_blocks_than_counts) {
    int64_t crow[9], crow_of_items[2 * 5];
    bsr_exec e = t_exec(0);
    bsr_matrix m;
    bt_case("blocks that nobody can count");
    m = bsr_matrix_make(0, 0, 1, 1, 0, crow, NULL, BSR_I64, NULL, BSR_F32);
    CHECK_INT(bsr_block_mask(t_context(0), 8, INT64_MAX / 4, NULL, NULL, &m, NULL, &e), BSR_OVERFLOW);
    m = bsr_matrix_make(0, 0, 1, 1, 0, crow_of_items, NULL, BSR_I64, NULL, BSR_F32);
    m.batch_dims = 1, m.batch[0] = 2, m.crow_batch_stride[0] = 5, m.flags = BSR_MATRIX_RAGGED;
    CHECK_INT(bsr_block_mask(t_context(0), 2, INT64_MAX / 4, NULL, NULL, &m, NULL, &e), BSR_OK);
    m.rows = m.cols = 0;
    CHECK_INT(bsr_block_mask(t_context(0), 3, INT64_MAX / 4, NULL, NULL, &m, NULL, &e), BSR_OVERFLOW);
}
/* Lists that are not there; groups of no heads; a share of 1. */
TEST(far_edges) {
    int64_t crow[9], crow_of_items[2 * 5];
    uint8_t kind[2] = {9, 9};
    double score[2] = {0, -40};
    bsr_dense none, d = bsr_dense_row_major(score, BSR_F64, 1, 2);
    t_spec of = t_spec_of(BSR_BOOL, 4, 3, 5, 6, 9);
    bsr_exec e = t_exec(0);
    bsr_matrix m;
    bsr_block_lists l;
    bsr_select s = BSR_ZERO;
    bt_case("the width of lists that are not there");
    of.pattern_only = 1, m = t_matrix(&of), l = rk_list_room(5, 6, 6, 0), l.full_width = -1;
    CHECK_INT(bsr_to_block_lists(t_context(0), &m, NULL, &l, &e), BSR_OK);
    rk_check_lists(&m, NULL, &l);
    l.full_width = INT64_MAX;
    CHECK_INT(bsr_to_block_lists(t_context(0), &m, NULL, &l, &e), BSR_OK);
    bt_case("no heads in a group");
    m = bsr_matrix_make(2, 4, 2, 2, 0, crow_of_items, NULL, BSR_I64, NULL, BSR_F32), m.batch_dims = 1, m.batch[0] = 2;
    m.crow_batch_stride[0] = 2, none = bsr_dense_batched(d, 0, 0), s.scores = &none, s.flags = BSR_SELECT_SUM_GROUP, s.top_k = 1;
    CHECK_INT(bsr_select_blocks(t_context(0), &s, &m, NULL, &e), BSR_BAD_BATCH);
    CHECK_INT(t_error.item, BSR_ITEM_HEADS);
    bt_case("all that have a share");
    memset(&s, 0, sizeof s), s.scores = &d, s.top_p = 1;
    m = bsr_matrix_make(2, 4, 2, 2, 2, crow, (int64_t *)bt_alloc(16, 8), BSR_I64, NULL, BSR_F32);
    CHECK_INT(bsr_select_blocks(t_context(0), &s, &m, kind, &e), BSR_OK);
    CHECK_INT(m.nnz, 2);
    score[1] = -1000;
    m.nnz = 2;
    CHECK_INT(bsr_select_blocks(t_context(0), &s, &m, kind, &e), BSR_OK);
    CHECK_INT(m.nnz, 1);
    s.top_p = 1.5;
    CHECK_INT(bsr_select_blocks(t_context(0), &s, &m, kind, &e), BSR_BAD_ARGUMENT);
    CHECK_INT(t_error.value, BSR_VALUE_UNKNOWN);
    CHECK(bsr_supports(t_context(0), BSR_OP_SELECT_BLOCKS, BSR_F32, BSR_F32, 16, 16));
    CHECK(!bsr_supports(t_context(0), BSR_OP_SELECT_BLOCKS, BSR_I8, BSR_I8, 16, 16));
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"block_mask", block_mask},
                                    {"attention_agrees", attention_agrees},
                                    {"long_masks", long_masks},
                                    {"block_mask_bad", block_mask_bad},
                                    {"block_lists", block_lists},
                                    {"to_block_lists", to_block_lists},
                                    {"block_lists_bad", block_lists_bad},
                                    {"pool_blocks", pool_blocks},
                                    {"pool_nan", pool_nan},
                                    {"pool_bad", pool_bad},
                                    {"select_blocks", select_blocks},
                                    {"select_bad", select_bad},
                                    {"more_blocks_than_counts", more_blocks_than_counts},
                                    {"far_edges", far_edges}};
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
