/* test_decode.c: attention of few queries over long keys, as with a cache: grouped heads, patterns of a group, lengths in memory,
   pages, every option of the scores, against the float64 reference; keys in pages against the same keys in a row, bit for bit. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref_decode.h"

static const int dtypes[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_BF16, BSR_F16, BSR_F64};
#define PICK(list) ((list)[bt_below((int64_t)BT_COUNT(list))])

/* Operands with some `most` keys. paged: they can be brought to pages. */
static void decode_new(ref_decode *t, int k, int64_t most, int paged) {
    static const int64_t groups[] = {1, 2, 3, 4, 4, 5, 8, 16}, queries[] = {1, 1, 1, 2, 3, 5, 8, 17, 33};
    static const int64_t widths[] = {8, 64, 64, 72, 128, 128, 136, 256, 40, 24, 100}, blocks[] = {1, 3, 8, 16, 20, 48, 64, 128};
    const int type = dtypes[k % 6], sums = type == BSR_F64 ? BSR_F64 : BSR_F32, dims = k % 7 ? 2 : (int)bt_range(0, 3);
    const int64_t group = PICK(groups), own = bt_range(1, group > 4 ? 2 : 3), items = bt_range(1, 2), lq = PICK(queries);
    const int64_t bc = PICK(blocks), br = bt_below(2) ? 1 : bt_below(2) ? lq : bt_range(2, 16), cols = bt_range(1, most / bc + 1);
    const int64_t lk = cols * bc - (paged ? 0 : bt_below(bc)), r = (lq + br - 1) / br, d = PICK(widths),
                  dv = bt_below(2) ? d : PICK(widths);
    t_shape whole = t_batch(dims, items, 1, 1, 0), kv, mask;
    t_spec s;
    if (dims) whole.n[dims - 1] = group * own;
    kv = mask = whole;
    if (dims) kv.n[dims - 1] = bt_below(4) ? own : bt_below(2) ? 1 : group * own;
    if (dims) mask.n[dims - 1] = bt_below(3) == 0 ? own : bt_below(2) ? 1 : group * own;
    if (dims > 1 && bt_below(2)) mask.n[0] = 1;
    if (dims > 1 && !paged && bt_below(8) == 0) kv.n[0] = 1;
    s = t_spec_of(BSR_BOOL, br, bc, r, cols, bt_below(3) ? r * cols : bt_range(0, r * cols)), s.pattern_only = 1;
    s.batch = mask, s.ragged = bt_below(4) == 0, s.unsorted = bt_below(4) == 0;
    memset(t, 0, sizeof *t);
    t->c.ctx = t_any_context(), t->c.whole = whole, t->c.flags = REF_MAY_BE_ZERO, t->c.mask = t_matrix(&s);
    t->c.q = ref_rows(type, lq, d, whole, (int)bt_below(2), 0);
    t->c.k = ref_rows(type, lk, d, kv, (int)bt_below(2), bt_below(4) ? 0 : bt_below(4) ? 8 : 3);
    t->c.v = ref_rows(type, lk, dv, kv, (int)bt_below(2), bt_below(4) ? 0 : 16);
    t->c.out = t_output(bt_below(3) && sums == BSR_F32 ? type : sums, lq, dv, bt_below(2) ? ROW : (int)bt_below(LAYOUTS), whole);
    t->c.lse = t_output(bt_below(2) ? BSR_F64 : BSR_F32, lq, 1, (int)bt_below(LAYOUTS), whole);
    t->c.row_max = t_output(BSR_F32, lq, 1, ROW, whole);
    t->c.scale = bt_below(2) ? 0 : bt_uniform() - (bt_below(8) == 0), t->gives_lse = bt_below(4) != 0;
    t->k = t->c.k, t->v = t->c.v;
    if (bt_below(2)) t->c.o.flags |= BSR_ATTENTION_CAUSAL, t->c.o.causal_offset = lk - lq - bt_below(bt_below(2) ? lk : 3);
}
/* What stands between product and softmax, drawn from everything but biases, functions and dropout. */
static void decode_options(ref_decode *t) {
    bsr_attention_options *o = &t->c.o;
    const int64_t heads = t->c.whole.dims ? t->c.whole.n[t->c.whole.dims - 1] : 1, items = t_items(&t->c.whole) / heads;
    const int64_t lk = t->c.k.rows, cols = t->c.mask.cols / t->c.mask.block_cols;
    const t_shape each = t->c.whole.dims ? t_batch(1, heads, 0, 0, 0) : NO_BATCH;
    if (bt_below(4) == 0) o->flags |= BSR_ATTENTION_WINDOW, o->window_left = bt_range(-5, lk), o->window_right = bt_range(-9, lk);
    if (bt_below(4) == 0) o->block_kind = ref_random_kinds(&t->c.mask);
    if (bt_below(16) == 0) o->flags |= BSR_ATTENTION_FULL;
    if (bt_below(3) == 0) t->lengths.k_lengths = ref_random_lengths(items, bt_below(2) ? -1 : 1, lk + 2);
    if (bt_below(4) == 0) t->lengths.q_lengths = ref_random_lengths(items, 0, t->c.q.rows);
    if (bt_below(4) == 0)
        t->lengths.key_counts = ref_random_lengths(items * cols, 0, t->c.mask.block_cols + 1),
        t->lengths.key_counts_stride = cols;
    if (t->lengths.k_lengths || t->lengths.q_lengths || t->lengths.key_counts) o->lengths = &t->lengths;
    if (bt_below(4) == 0) o->softcap = 0.5 + 3 * bt_uniform();
    t->slopes = t_random(BSR_F32, 1, 1, ROW, each, 0, FILL_POSITIVE),
    t->sinks = t_random(BSR_F32, 1, 1, ROW, each, 0, FILL_SIGNED);
    if (bt_below(4) == 0) o->slopes = &t->slopes;
    if (bt_below(4) == 0) o->sinks = &t->sinks;
    t->gives_max = bt_below(3) == 0;
}
/* The keys of t in pages, some of which no key needs. */
static void decode_pages(ref_decode *t) {
    static const int64_t sizes[] = {8, 16, 64, 256, 1, 24, 7};
    const int64_t heads = t->c.whole.dims ? t->c.whole.n[t->c.whole.dims - 1] : 1, items = t_items(&t->c.whole) / heads;
    const int64_t size = PICK(sizes), n = (t->c.mask.cols + size - 1) / size, pages = items * n + bt_below(4);
    int32_t *order = (int32_t *)bt_alloc((size_t)pages * 4, 4), *table = (int32_t *)bt_alloc((size_t)(items * n + 1) * 4, 4);
    uint8_t *seen;
    int64_t i;
    for (i = 0; i < pages; i++) order[i] = (int32_t)i;
    for (i = pages - 1; i > 0; i--) {
        const int64_t other = bt_below(i + 1);
        const int32_t swap = order[i];
        order[i] = order[other], order[other] = swap;
    }
    seen = ref_pages_seen(&t->c, size, n); /* entries of pages that nobody sees may be anything */
    for (i = 0; i < items * n; i++) table[i] = seen[i] ? order[i] : i % 2 ? -1 - (int32_t)i : INT32_MAX - (int32_t)i;
    t->paged = 1, t->pages.table = table, t->pages.stride = n;
    t->k = ref_pool(&t->c.k, table, items, size, n, pages, (int)bt_below(2));
    t->v = ref_pool(&t->c.v, table, items, size, n, pages, (int)bt_below(2));
}

TEST(plain) {
    int k;
    for (k = 0; k < 240; k++) {
        bsr_exec e = t_exec(0);
        ref_decode t;
        bt_case("%d", k);
        decode_new(&t, k, k % 16 ? 150 : 700, 0);
        ref_run_decode(&t, &e);
    }
}
TEST(options) {
    int k;
    for (k = 0; k < 320; k++) {
        bsr_exec e = t_exec(0);
        ref_decode t;
        bt_case("%d", k);
        decode_new(&t, k, 150, 0), decode_options(&t);
        ref_run_decode(&t, &e);
    }
}
TEST(pages) {
    int k;
    for (k = 0; k < 240; k++) {
        bsr_exec e = t_exec(0);
        ref_decode t;
        bt_case("%d", k);
        decode_new(&t, k, 150, 1);
        if (k % 2) decode_options(&t);
        decode_pages(&t);
        ref_run_decode(&t, &e);
    }
}
/* Keys in pages of whole blocks against the same keys in a row: one plan, the same bits. */
TEST(pages_bits) {
    int k, cases = 240;
#if defined BSR_MIRROR_H || defined TEST_DECODE
    bt_skip("each call may run elsewhere, by a plan of its own"), cases = 0;
#endif
    for (k = 0; k < cases; k++) {
        bsr_exec e = t_exec(0);
        bsr_attention_options o;
        bsr_dense out, lse;
        bsr_plan plan;
        ref_decode t;
        bt_case("%d", k);
        decode_new(&t, k, 150, 1);
        if (k % 2) decode_options(&t);
        decode_pages(&t);
        o = t.c.o, o.pages = &t.pages, e.query = &plan;
        out = t_output(t.c.out.dtype, t.c.out.rows, t.c.out.cols, ROW, t.c.whole);
        lse = t_output(t.c.lse.dtype, t.c.lse.rows, 1, ROW, t.c.whole);
        t.c.out = t_output(t.c.out.dtype, t.c.out.rows, t.c.out.cols, ROW, t.c.whole);
        t.c.lse = t_output(t.c.lse.dtype, t.c.lse.rows, 1, ROW, t.c.whole);
        if (!RUN_OK(bsr_attention(t.c.ctx, t.c.scale, &t.c.q, &t.k, &t.v, &t.c.mask, &o, &out, &lse, &e))) continue;
        e.query = NULL, e.plan = &plan, plan.workspace_bytes = 0;
        RUN_OK(bsr_attention(t.c.ctx, t.c.scale, &t.c.q, &t.k, &t.v, &t.c.mask, &o, &out, &lse, &e));
        if (t.k.rows % t.c.mask.block_cols) continue; /* else pages cut blocks, and sums have other parts */
        o.pages = NULL;
        RUN_OK(bsr_attention(t.c.ctx, t.c.scale, &t.c.q, &t.c.k, &t.c.v, &t.c.mask, &o, &t.c.out, &t.c.lse, &e));
        CHECK(!memcmp(out.data, t.c.out.data, (size_t)(t_items(&t.c.whole) * out.rows * out.cols) * bsr_dtype_size(out.dtype)));
        CHECK(!memcmp(lse.data, t.c.lse.data, (size_t)(t_items(&t.c.whole) * lse.rows) * bsr_dtype_size(lse.dtype)));
    }
}
/* Keys and values that are not finite, where some rows may attend to them and others not, or none may. */
TEST(forbidden_nan) {
    int k;
    for (k = 0; k < 96; k++) {
        bsr_exec e = t_exec(0);
        int64_t item, j, d, first;
        ref_decode t;
        bt_case("%d", k);
        decode_new(&t, k, 100, k % 3 == 0);
        t.c.o.flags |= BSR_ATTENTION_CAUSAL, t.c.o.causal_offset = t.c.k.rows - t.c.q.rows - (k % 2 ? 0 : bt_below(40));
        if (k % 4 == 1) t.c.o.flags |= BSR_ATTENTION_WINDOW, t.c.o.window_left = t.c.q.rows / 2, t.c.o.window_right = 0;
        first = t.c.o.causal_offset + t.c.q.rows / 2; /* of the keys that some rows see */
        for (item = 0; item < t_dense_items(&t.c.v); item++)
            for (j = 0; j < t.c.v.rows; j++) {
                const int some = j > first && j <= t.c.o.causal_offset + t.c.q.rows - 1;
                for (d = 0; d < t.c.v.cols && (some ? j % 3 == 0 : j > first); d++)
                    if (!some || d % 3) t_set(&t.c.v, item, j, d, d % 2 ? (double)NAN : -(double)INFINITY);
                for (d = 0; d < t.c.k.cols && !some && j > first; d++) t_set(&t.c.k, item, j, d, (double)NAN);
            }
        if (k % 3 == 0) decode_pages(&t);
        ref_run_decode(&t, &e);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"plain", plain}, {"options", options}, {"pages", pages}, {"pages_bits", pages_bits},
                                    {"forbidden_nan", forbidden_nan}};
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
