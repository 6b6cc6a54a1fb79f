/* test_attention_backward.c: gradients of block-sparse attention against float64 sums over the whole matrix of probabilities,
   against finite differences, and against each other. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref_attention.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};

/* Every option alone, for every dtype, on every instruction set. */
TEST(each_option) {
    int option, t, isa;
    for (option = 0; option < 30; option++)
        for (t = 0; t < 4; t++)
            for (isa = 1; isa <= 3; isa++) {
                const int64_t lq = 45, lk = 50, d = 24, dv = option == 2 ? 40 : 24, hk = option == 5 ? 2 : option == 6 ? 1 : 4;
                const t_shape whole = t_batch(2, 2, 4, 0, 0), bk = t_batch(2, 2, hk, 0, 0);
                ref_gradients c;
                t_spec s;
                bsr_dense rel, kp, slopes, sinks;
                bsr_lengths lengths = BSR_ZERO;
                float slope = 0.3f;
                if (dtypes[t] == BSR_F64 && (option == 9 || option == 10)) continue; /* score functions compute in f32 */
                bt_case("option %d, %s, isa %d", option, bsr_dtype_name(dtypes[t]), isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(BSR_F32, 16, 8, 3, 7, 13);
                if (option == 1) s.block_rows = s.block_cols = 1, s.r = lq, s.c = lk, s.nnz = lq * lk / 3;
                if (option == 3) s.dtype = BSR_BOOL, s.kind = FILL_BOOL;
                if (option == 4) s.dtype = dtypes[t];
                c = ref_gradients_new(&s, dtypes[t], lq, lk, d, dv, whole, bk, option == 16 ? t_batch(2, 2, 1, 0, 0) : bk, whole,
                                      option == 7);
                c.ctx = t_context(isa), c.flags = option == 12 ? REF_ALL_ZERO : 0;
                if (option == 3) c.o.flags = BSR_ATTENTION_MASK_BOOLEAN;
                if (option == 4) c.o.flags = BSR_ATTENTION_MASK_ADDITIVE;
                if (option == 8) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 5;
                if (option == 9) c.o.score_function = BSR_SCORE_tf_alibi, c.o.user_data = &slope;
                if (option == 10) c.o.score_function = BSR_SCORE_tf_softcap;
                if (option == 11) c.o.mask_function = BSR_MASK_tf_stripes;
                if (option == 12) c.o.mask_function = BSR_MASK_tf_nothing;
                rel = t_random(dtypes[t], option == 17 ? 1 : lq, option == 18 ? 1 : lk, STRIDED, t_batch(1, 4, 0, 0, 0), 0,
                               FILL_SIGNED),
                kp = t_random(BSR_BOOL, 1, lk, ROW, t_batch(2, 2, 1, 0, 0), 0, FILL_BOOL);
                if (option == 13 || option > 16) c.o.relative_bias = &rel;
                if (option == 14) c.o.key_padding_mask = &kp, c.o.key_padding_mode = BSR_MASK_MUL;
                if (option == 15) c.o.dropout_p = 0.375, c.o.dropout_seed = 0x123456789abcdefu;
                slopes = t_random(dtypes[t], 1, 1, ROW, t_batch(1, 4, 0, 0, 0), 0, FILL_POSITIVE);
                sinks = t_random(dtypes[t], 1, 1, ROW, option & 1 ? t_batch(2, 2, 1, 0, 0) : t_batch(1, 4, 0, 0, 0), 0,
                                 FILL_SIGNED);
                if (option == 19 || option == 20 || option == 29)
                    c.o.flags = BSR_ATTENTION_WINDOW, c.o.window_left = 7, c.o.window_right = option == 29 ? -2 : 3;
                if (option == 20) c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = 4;
                if (option == 21) c.o.softcap = 0.5;
                if (option == 22) c.o.slopes = &slopes, c.o.causal_offset = 3;
                if (option == 23 || option == 24) c.o.sinks = &sinks;
                if (option == 24) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = -9, c.o.dropout_p = 0.5;
                if (option == 25) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.block_kind = ref_random_kinds(&c.mask);
                if (option == 26) c.o.flags = BSR_ATTENTION_CAUSAL | BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_FULL;
                if (option == 27 || option == 28) c.o.lengths = &lengths;
                if (option == 27) lengths.q_lengths = ref_random_lengths(2, 20, 45);
                if (option == 27) lengths.k_lengths = ref_random_lengths(2, 20, 50);
                if (option == 28) lengths.key_counts = ref_random_lengths(14, 0, 9), lengths.key_counts_stride = 7;
                if (option == 28) c.o.sinks = &sinks;
                ref_gradients_extra(&c, option % 2, 1, option % 3 == 1, dtypes[t]);
                ref_run_backward(&c, 0);
            }
}

/* Everything at random together; each time one of the dimensions of the batch may be shared by q, k, v, the mask or the bias. */
static t_shape shared(t_shape b, int last) {
    int i;
    for (i = 0; i < b.dims - !last; i++)
        if (bt_below(4) == 0) b.n[i] = 1;
    return b;
}
TEST(combined) {
    int k;
    for (k = 0; k < 400; k++) {
        ref_gradients c;
        t_spec s;
        bsr_dense rel, kp, slopes, sinks;
        bsr_lengths lengths = BSR_ZERO;
        t_shape whole, bq, bk, bv, bm;
        const int t = k % 4, user = dtypes[t] != BSR_F64;
        int dims, i;
        int64_t br, bc, r, cols, lq, lk, group, kinds;
        bt_case("%d", k);
        br = bt_range(1, bt_below(4) ? 9 : 70), bc = bt_range(1, bt_below(4) ? 9 : 70), r = bt_range(1, 4), cols = bt_range(1, 4);
        lq = r * br - bt_below(br), lk = cols * bc - bt_below(bc), dims = (int)bt_range(0, 3), group = bt_range(1, 3);
        whole = t_batch(dims, bt_range(1, 2), bt_range(1, 2), 1, 1);
        if (dims) whole.n[dims - 1] = group * bt_range(1, 2);
        bq = shared(whole, 1), bk = shared(whole, 0), bv = shared(whole, 0), bm = shared(whole, 1);
        if (dims && bt_below(2)) bk.n[dims - 1] /= group;
        if (dims && bt_below(2)) bv.n[dims - 1] /= group;
        for (i = 0; i < dims; i++) { /* some operand has each dimension whole; heads of k alone do not make them */
            const int heads = i == dims - 1;
            if (bq.n[i] == 1 && bm.n[i] == 1 && (heads || (bk.n[i] == 1 && bv.n[i] == 1))) bq.n[i] = whole.n[i];
        }
        if (bm.dims && bm.n[0] == 1 && bt_below(2)) bm.dims--, bm.n[0] = bm.n[1], bm.n[1] = bm.n[2];
        s = t_spec_of(dtypes[t], br, bc, r, cols, bt_range(0, r * cols));
        s.batch = bm, s.ragged = bt_below(3) == 0, s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(16);
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = (int)bt_below(2);
        kinds = bt_below(3); /* pattern only, boolean, additive */
        if (kinds == 1) s.kind = FILL_BOOL;
        c = ref_gradients_new(&s, dtypes[t], lq, lk, bt_range(1, 40), bt_range(1, 40), bq, bk, bv, whole, (int)bt_below(2));
        c.o.flags = kinds == 1 ? BSR_ATTENTION_MASK_BOOLEAN : kinds == 2 ? BSR_ATTENTION_MASK_ADDITIVE : 0;
        if (bt_below(2)) c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = bt_range(-4, 4) + (bt_below(2) ? lk - lq : 0);
        rel = t_random(dtypes[t], bt_below(2) ? lq : 1, bt_below(2) ? lk : 1, (int)bt_below(LAYOUTS), shared(whole, 1), 0,
                       FILL_SIGNED);
        kp = t_random(BSR_F32, 1, lk, ROW, NO_BATCH, 0, bt_below(2) ? FILL_BOOL : FILL_SIGNED);
        if (bt_below(2)) c.o.relative_bias = &rel;
        if (bt_below(2)) c.o.key_padding_mask = &kp, c.o.key_padding_mode = (int)bt_below(2);
        if (user && bt_below(3) == 0) c.o.score_function = bt_below(2) ? BSR_SCORE_tf_alibi : BSR_SCORE_tf_softcap;
        if (bt_below(3) == 0) c.o.mask_function = BSR_MASK_tf_stripes;
        if (bt_below(2)) c.o.dropout_p = bt_uniform() * 0.9, c.o.dropout_seed = bt_random();
        c.scale = bt_below(2) ? 0 : bt_uniform(), c.flags = REF_ANY; /* where all rows have one key only dv is not 0 */
        if (bt_below(2)) t_attach_transposed(&c.mask);
        slopes = t_random(dtypes[t], 1, 1, ROW, shared(whole, 1), 0, FILL_SIGNED);
        sinks = t_random(dtypes[t], 1, 1, ROW, shared(whole, 1), 0, FILL_SIGNED);
        if (k >= 100) { /* what came later */
            const int64_t items = dims ? t_items(&whole) / whole.n[dims - 1] : 1;
            c.o.window_left = bt_range(-2, 9), c.o.window_right = bt_range(-2, 9);
            if (bt_below(2)) c.o.flags |= BSR_ATTENTION_WINDOW;
            if (bt_below(4) == 0) c.o.softcap = 0.1 + 3 * bt_uniform();
            if (bt_below(3) == 0) c.o.slopes = &slopes;
            if (bt_below(3) == 0) c.o.sinks = &sinks;
            if (bt_below(3) == 0) c.o.block_kind = ref_random_kinds(&c.mask);
            else if (bt_below(6) == 0) c.o.flags |= BSR_ATTENTION_FULL;
            if (bt_below(3) == 0) {
                c.o.lengths = &lengths;
                if (bt_below(2)) lengths.q_lengths = ref_random_lengths(items, -1, lq + 1);
                if (bt_below(2)) lengths.k_lengths = ref_random_lengths(items, 0, lk + 1);
                lengths.key_counts_stride = bt_below(2) ? cols : 0;
                if (bt_below(2)) lengths.key_counts = ref_random_lengths(items * cols, 0, bc + 1);
            }
        }
        ref_gradients_extra(&c, (int)bt_below(2), (int)bt_below(2), (int)bt_below(2), bt_below(2) ? dtypes[t] : BSR_F32);
        ref_run_backward(&c, 0);
    }
}

/* Sizes around the engine's tiles: heads above 128, one key or one query a block. */
TEST(sizes) {
    static const int64_t blocks[][2] = {{64, 64}, {16, 16}, {32, 128}, {128, 32}, {1, 64}, {64, 1}, {3, 5}, {100, 3}};
    static const int64_t widths[] = {1, 8, 16, 17, 33, 64, 129, 260};
    int b, w;
    for (b = 0; b < 8; b++)
        for (w = 0; w < 8; w++) {
            const int t = (b + w) % 4;
            const int64_t r = bt_range(1, 3), cols = blocks[b][1] < 8 ? 40 : bt_range(1, 2);
            const t_shape two = t_batch(1, 2, 0, 0, 0), one = t_batch(1, 1, 0, 0, 0);
            int64_t lq, lk;
            ref_gradients c;
            t_spec s;
            bt_case("%lldx%lld, D %lld, %s", (long long)blocks[b][0], (long long)blocks[b][1], (long long)widths[w],
                    bsr_dtype_name(dtypes[t]));
            s = t_spec_of(dtypes[t], blocks[b][0], blocks[b][1], r, cols, r * cols * 2 / 3 + 1);
            lq = r * blocks[b][0] - (blocks[b][0] > 1 && w % 2), lk = cols * blocks[b][1] - (blocks[b][1] > 1 && b % 2);
            c = ref_gradients_new(&s, dtypes[t], lq, lk, widths[w], widths[(w + 3) % 8], two, one, one, two, w % 2);
            if (b & 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 3;
            if (b & 2) c.o.flags |= BSR_ATTENTION_MASK_ADDITIVE;
            ref_gradients_extra(&c, b & 1, 0, w % 3 == 0, dtypes[t]);
            ref_run_backward(&c, w % 2 ? BSR_EXEC_ACCUMULATE_F64 : 0);
        }
}

/* Blocks and heads that tensor cores take, with what they do in registers, and all of the workspace, some of it, or none. */
TEST(tiles) {
    static const int64_t sides[] = {64, 128, 192, 256, 16, 32, 48, 8};
    int k;
    for (k = 0; k < 96; k++) {
        const int t = k % 3 == 2 ? BSR_F16 : BSR_BF16, form = k / 3 % 8;
        const int64_t br = sides[bt_below(k % 4 ? 3 : 8)], bc = sides[bt_below(k % 4 ? 3 : 8)];
        const int64_t r = bt_range(1, 1 + 160 / br), cols = bt_range(1, 1 + 160 / bc), d = 8 * bt_range(1, bt_below(2) ? 8 : 16);
        const int64_t dv = bt_below(2) ? d : 8 * bt_range(1, 16), group = bt_range(1, 2), heads = group * bt_range(1, 2);
        const int64_t lq = r * br - (bt_below(2) ? bt_below(br) : 0), lk = cols * bc - (bt_below(2) ? bt_below(bc) : 0);
        const t_shape whole = t_batch(2, bt_range(1, 2), heads, 0, 0), kv = t_batch(2, whole.n[0], heads / group, 0, 0);
        bsr_dense sinks;
        bsr_lengths lengths = BSR_ZERO;
        ref_gradients c;
        t_spec s;
        bt_case("%d: %lldx%lld, %lldx%lld, D %lld, %lld, form %d", k, (long long)br, (long long)bc, (long long)lq, (long long)lk,
                (long long)d, (long long)dv, form);
        s = t_spec_of(BSR_F32, br, bc, r, cols, 1 + bt_below(r * cols));
        if (k % 5 == 1) s.batch = t_batch(1, bt_below(2) ? heads : heads / group, 0, 0, 0), s.ragged = (int)bt_below(2);
        c = ref_gradients_new(&s, t, lq, lk, d, dv, whole, kv, kv, whole, k % 7 == 3);
        if (k % 6) { /* as they are fast: rows one after another */
            c.q = t_random(t, lq, d, ROW, whole, 0, FILL_SIGNED), c.k = t_random(t, lk, d, ROW, kv, 0, FILL_SIGNED);
            c.v = t_random(t, lk, dv, ROW, kv, 0, FILL_SIGNED), c.d_out = t_random(t, lq, dv, ROW, whole, 0, FILL_SIGNED);
            c.dq = t_output(c.dq.dtype, lq, d, ROW, whole), c.dv = t_output(c.dv.dtype, lk, dv, ROW, kv);
        }
        sinks = t_random(BSR_F32, 1, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        if (form & 1) c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = lk - lq + bt_range(-40, 40);
        if (form & 2) c.o.flags |= BSR_ATTENTION_WINDOW, c.o.window_left = bt_range(0, 90), c.o.window_right = bt_range(-20, 90);
        if (form & 4) c.o.block_kind = ref_random_kinds(&c.mask);
        if (k % 5 == 3) c.o.lengths = &lengths, lengths.q_lengths = ref_random_lengths(whole.n[0], 0, lq);
        if (k % 5 == 3) lengths.k_lengths = ref_random_lengths(whole.n[0], 0, lk);
        if (k % 5 == 4)
            c.o.lengths = &lengths, lengths.key_counts = ref_random_lengths(cols, 0, bc), c.o.sinks = &sinks;
        if (k % 5 == 3 && k % 2) { /* what lies past the lengths is anything: also where gradients of scores are kept */
            const double nan = (double)NAN;
            int64_t n, i, j;
            for (n = 0; n < t_dense_items(&c.k); n++)
                for (i = lengths.k_lengths[n / (heads / group)]; i < lk; i++) {
                    for (j = 0; j < d; j++) t_set(&c.k, n, i, j, nan);
                    for (j = 0; j < dv; j++) t_set(&c.v, n, i, j, nan);
                }
            for (n = 0; n < t_dense_items(&c.q); n++)
                for (i = lengths.q_lengths[n / heads]; i < lq; i++) {
                    for (j = 0; j < d; j++) t_set(&c.q, n, i, j, nan);
                    for (j = 0; j < dv; j++) t_set(&c.d_out, n, i, j, nan);
                }
        }
        if (bt_below(2)) t_attach_transposed(&c.mask);
        c.flags = REF_ANY;
        ref_gradients_extra(&c, k % 4 == 1, 0, 0, t);
        ref_run_backward_in(&c, 0, k % 4 == 3 ? 0.5 : 1);
    }
}

/* ---- finite differences ---- */

static double loss(const ref_gradients *c) {
    bsr_exec e = t_exec(0);
    double sum = 0;
    int64_t b, i, j;
    if (bsr_attention(c->ctx, c->scale, &c->q, &c->k, &c->v, &c->mask, &c->o, &c->out, &c->lse, &e) != BSR_OK) return (double)NAN;
    for (b = 0; b < t_items(&c->whole); b++)
        for (i = 0; i < c->out.rows; i++) {
            for (j = 0; j < c->out.cols; j++) sum += t_get(&c->out, b, i, j) * t_get(&c->d_out, b, i, j);
            if (t_get(&c->lse, b, i, 0) > -(double)INFINITY) sum += t_get(&c->lse, b, i, 0) * t_get(&c->d_lse, b, i, 0);
        }
    return sum;
}
/* Every element of x moved both ways: how the loss changes is what g says. */
static void differ(const ref_gradients *c, const bsr_dense *x, const bsr_dense *g) {
    const double h = 1e-5;
    int64_t b, i, j;
    for (b = 0; b < t_dense_items(x); b++)
        for (i = 0; i < x->rows; i++)
            for (j = 0; j < x->cols; j++) {
                const double old = t_get(x, b, i, j);
                double up, down;
                t_set(x, b, i, j, old + h), up = loss(c);
                t_set(x, b, i, j, old - h), down = loss(c);
                t_set(x, b, i, j, old);
                CHECK_NEAR(t_get(g, b, i, j), (up - down) / (2 * h), 2e-8);
            }
}
TEST(finite_differences) {
    int k;
    for (k = 0; k < 24; k++) {
        const int64_t br = bt_range(1, 4), bc = bt_range(1, 4), r = bt_range(1, 3), cols = bt_range(2, 3), group = bt_range(1, 2);
        const int64_t lq = r * br - bt_below(br), lk = cols * bc - bt_below(bc);
        const t_shape whole = t_batch(2, 2, 2, 0, 0), bk = t_batch(2, bt_range(1, 2), 2 / group, 0, 0);
        const t_shape bq = k % 5 == 4 ? t_batch(1, 1, 0, 0, 0) : whole;
        bsr_dense rel, kp, slopes, sinks;
        ref_gradients c;
        t_spec s;
        bt_case("%d", k);
        s = t_spec_of(BSR_F64, br, bc, r, cols, r * cols * 3 / 4 + 1);
        c = ref_gradients_new(&s, BSR_F64, lq, lk, bt_range(1, 5), bt_range(1, 5), bq, bk, bk, whole, 0);
        if (k % 5 == 4) c.mask.batch_dims = 2, c.mask.batch[0] = c.mask.batch[1] = 2; /* q is shared: the mask makes the batch */
        rel = t_random(BSR_F64, k % 3 ? lq : 1, k % 4 ? lk : 1, ROW, t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
        kp = t_random(BSR_F64, 1, lk, ROW, NO_BATCH, 0, FILL_SIGNED);
        if (k & 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = bt_range(0, 3);
        if (k & 2) c.o.flags |= BSR_ATTENTION_MASK_ADDITIVE;
        if (k & 4) c.o.dropout_p = 0.3, c.o.dropout_seed = 5;
        if (k & 8) c.o.mask_function = BSR_MASK_tf_stripes;
        if (k & 16) c.o.key_padding_mask = &kp;
        c.o.relative_bias = &rel;
        slopes = t_random(BSR_F64, 1, 1, ROW, t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
        sinks = t_random(BSR_F64, 1, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
        if (k % 6 == 1) c.o.flags |= BSR_ATTENTION_WINDOW, c.o.window_left = 2, c.o.window_right = 4;
        if (k % 3 == 2) c.o.slopes = &slopes, c.o.sinks = &sinks;
        if (k % 4 == 3) c.o.softcap = 0.7;
        if (k % 7 == 3) c.o.block_kind = ref_random_kinds(&c.mask);
        ref_gradients_extra(&c, 1, 1, 1, BSR_F64);
        ref_run_backward(&c, 0);
        differ(&c, &c.q, &c.dq), differ(&c, &c.k, &c.dk), differ(&c, &c.v, &c.dv), differ(&c, &rel, &c.d_bias);
        if (c.o.slopes) differ(&c, &slopes, &c.d_slopes), differ(&c, &sinks, &c.d_sinks);
    }
}

/* ---- the same bits ---- */

static void same(const char *what, const bsr_dense *a, const bsr_dense *b) {
    int64_t n, i, j, bad = 0;
    for (n = 0; a && n < t_dense_items(a); n++)
        for (i = 0; i < a->rows; i++)
            for (j = 0; j < a->cols; j++) {
                const double x = t_get(a, n, i, j), y = t_get(b, n, i, j);
                bad += memcmp(&x, &y, sizeof x) != 0;
            }
    if (bad) bt_fail(__FILE__, __LINE__, "%s: %lld elements differ", what, (long long)bad);
    bt.checks++;
}
/* Alone or together, on one thread or four, with the index attached, built in the workspace or not there at all. */
TEST(same_bits) {
    bsr_context_desc desc;
    bsr_context *four = NULL;
    int k;
    memset(&desc, 0, sizeof desc);
    desc.threads = 4, desc.backend = BSR_BACKEND_CPU;
    if (bsr_create(&desc, &four, NULL) != BSR_OK) abort();
    for (k = 0; k < 32; k++) {
        const int t = k % 4;
        const int64_t br = bt_range(1, 40), bc = bt_range(1, 40), r = bt_range(1, 6), cols = bt_range(1, 6);
        const t_shape whole = t_batch(2, 2, 4, 0, 0), bk = t_batch(2, bt_range(1, 2), k & 8 ? 2 : 4, 0, 0);
        bsr_dense dq, dk, dv;
        bsr_exec e = t_exec(0);
        bsr_plan plan;
        ref_gradients c;
        t_spec s;
        bt_case("%d", k);
        s = t_spec_of(BSR_F32, br, bc, r, cols, r * cols / 2 + 1);
        if (k & 16) s.batch = t_batch(1, 4, 0, 0, 0), s.ragged = (k & 1) != 0;
        s.unsorted = k % 3 == 0;
        c = ref_gradients_new(&s, dtypes[t], r * br, cols * bc, bt_range(1, 70), bt_range(1, 70), whole, bk, bk, whole, k & 1);
        c.ctx = t_context(0);
        if (k & 4) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = cols * bc - r * br, c.o.dropout_p = 0.25;
        if (!ref_run_forward(&c)) continue;
#define BACKWARD(context, q_, k_, v_) \
    bsr_attention_backward(context, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &c.d_out, q_, k_, v_, &e)
#define AGAIN(what, context, q_, k_, v_)                                                                \
    do {                                                                                                \
        dq = t_output(c.dq.dtype, c.q.rows, c.q.cols, ROW, whole);                                      \
        dk = t_output(c.dk.dtype, c.k.rows, c.k.cols, ROW, bk), dv = t_output(c.dv.dtype, c.v.rows, c.v.cols, ROW, bk); \
        if (RUN_OK(BACKWARD(context, q_, k_, v_))) {                                                    \
            same(what " dq", q_, &c.dq), same(what " dk", k_, &c.dk), same(what " dv", v_, &c.dv);      \
        }                                                                                               \
    } while (0)
        if (!RUN_OK(BACKWARD(c.ctx, &c.dq, &c.dk, &c.dv))) continue;
        AGAIN("four threads", four, &dq, &dk, &dv);
        AGAIN("alone", c.ctx, k & 1 ? &dq : NULL, k & 1 ? NULL : &dk, NULL);
        AGAIN("alone", c.ctx, NULL, NULL, &dv);
        e.query = &plan;
        if (RUN_OK(BACKWARD(c.ctx, &dq, &dk, &dv))) {
            CHECK(plan.workspace_bytes > 0 && (plan.flags & BSR_PLAN_BUILDS_INDEX));
            e.query = NULL, e.workspace = bt_alloc((size_t)plan.workspace_bytes, 64), bt_mark_output(e.workspace);
            e.workspace_bytes = plan.workspace_bytes;
            AGAIN("index in the workspace", four, &dq, &dk, &dv);
            e.plan = &plan;
            AGAIN("by a plan", c.ctx, &dq, &dk, &dv);
            e.workspace_bytes--;
            CHECK_INT(BACKWARD(c.ctx, &dq, &dk, &dv), BSR_WORKSPACE_TOO_SMALL);
            e.plan = NULL;
            AGAIN("a workspace too small", c.ctx, &dq, &dk, &dv);
            e.workspace = NULL, e.workspace_bytes = 0;
        }
        t_attach_transposed(&c.mask);
        e = t_exec(BSR_EXEC_SKIP_CHECKS);
        AGAIN("index attached", four, &dq, &dk, &dv);
        e.query = &plan;
        if (RUN_OK(BACKWARD(c.ctx, &dq, &dk, &dv))) CHECK(plan.workspace_bytes == 0 && plan.flags == 0);
    }
    bsr_destroy(four);
}

/* ---- corners ---- */

TEST(edges) {
    int t, form;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 9; form++) {
            const int64_t lq = form == 3 ? 0 : 12, lk = form == 4 ? 0 : 12, d = form == 5 ? 0 : 5, dv = form == 6 ? 0 : 6;
            const t_shape b = form == 7 ? t_batch(1, 0, 0, 0, 0) : NO_BATCH;
            ref_gradients c;
            t_spec s;
            bt_case("%s, form %d", bsr_dtype_name(dtypes[t]), form);
            s = t_spec_of(BSR_F32, 4, 4, lq / 4, lk / 4, form == 0 ? 0 : 7);
            if (form == 7) s.batch = b;
            c = ref_gradients_new(&s, dtypes[t], lq, lk, d, dv, b, NO_BATCH, NO_BATCH, b, 0);
            if (form == 0) c.flags = REF_ALL_ZERO; /* no block at all */
            if (form == 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = -5;
            if (form == 2) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = INT64_MIN / 2, c.flags = REF_ALL_ZERO;
            if (form == 8) c.scale = 300; /* large scores: most probabilities are 0 or 1 */
            ref_gradients_extra(&c, 1, 0, form != 7, dtypes[t]);
            ref_run_backward(&c, 0);
        }
}
/* NaN and Inf at what is forbidden: keys and values, and queries and gradients of rows that attend to nothing. */
TEST(poison) {
    int t, form, isa;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 5; form++)
            for (isa = 1; isa <= 3; isa++) {
                const double nan = (double)NAN, inf = (double)INFINITY;
                const int64_t lq = 45, lk = 88, d = form == 4 ? 140 : 9, dv = form == 3 ? 140 : 20;
                bsr_dense kp;
                ref_gradients c;
                t_spec s;
                int64_t i, j, p;
                bt_case("%s, form %d, isa %d", bsr_dtype_name(dtypes[t]), form, isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(dtypes[t], 9, 8, 5, 11, 50), s.kind = FILL_SIGNED;
                c = ref_gradients_new(&s, dtypes[t], lq, lk, d, dv, NO_BATCH, NO_BATCH, NO_BATCH, NO_BATCH, 1);
                c.ctx = t_context(isa);
                kp = t_random(BSR_BOOL, 1, lk, ROW, NO_BATCH, 0, FILL_BOOL);
                for (j = 0; j < lk; j++) { /* keys that nobody may attend to */
                    const int hidden = form == 0 ? t_get(&kp, 0, 0, j) == 0 : form == 1 ? j % 5 == 2 : j > lq - 21;
                    for (i = 0; i < d && hidden; i++) t_set(&c.k, 0, j, i, i % 2 ? nan : inf);
                    for (i = 0; i < dv && hidden; i++) t_set(&c.v, 0, j, i, i % 2 ? -inf : nan);
                    for (i = 0; i < lq && form == 1; i++)
                        for (p = t_crow(&c.mask, 0, i / 9); p < t_crow(&c.mask, 0, i / 9 + 1); p++)
                            if (t_col(&c.mask, 0, p) == j / 8)
                                t_store(c.mask.values, c.mask.dtype, t_value_at(&c.mask, 0, p, i % 9, j % 8),
                                        j % 5 == 2 || i % 7 == 3 ? 0 : 1);
                }
                for (i = 0; i < lq; i++) { /* queries that attend to nothing */
                    const int idle = form == 1 ? i % 7 == 3 : form > 1 && i < 20;
                    for (j = 0; j < d && idle; j++) t_set(&c.q, 0, i, j, j % 3 ? nan : inf);
                    for (j = 0; j < dv && idle; j++) t_set(&c.d_out, 0, i, j, j % 3 ? inf : nan);
                    if (idle) t_set(&c.d_lse, 0, i, 0, nan);
                }
                if (form == 0) c.o.key_padding_mask = &kp, c.o.key_padding_mode = BSR_MASK_MUL;
                if (form == 1) c.o.flags = BSR_ATTENTION_MASK_BOOLEAN;
                if (form > 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = -20;
                if (form == 2) c.o.dropout_p = 0.25, c.o.score_function = dtypes[t] == BSR_F64 ? 0 : BSR_SCORE_tf_softcap;
                ref_gradients_extra(&c, 1, 0, 1, dtypes[t]);
                ref_run_backward(&c, 0);
            }
}
/* A query that is NaN, so that its lse is: keys that it may not attend to have their gradients from others. Then plans that say
   how the mask's columns are found, with a workspace that would do for the other way; a softcap that f32 does not hold. */
TEST(nan_query) {
    int t, isa, form;
    for (t = 0; t < 4; t++)
        for (isa = 1; isa <= 3; isa++)
            for (form = 0; form < 2; form++) {
                const int64_t n = 64, at = 5;
                bsr_exec e = t_exec(0);
                bsr_plan plan = BSR_ZERO;
                ref_gradients c;
                t_spec s;
                int64_t i, j, wrong = 0;
                bt_case("%s, isa %d, form %d", bsr_dtype_name(dtypes[t]), isa, form);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = form ? t_spec_of(dtypes[t], 2, 2, 32, 32, 32 * 32) : t_spec_of(dtypes[t], 64, 64, 1, 1, 1);
                c = ref_gradients_new(&s, dtypes[t], n, n, 8, 8, NO_BATCH, NO_BATCH, NO_BATCH, NO_BATCH, 0);
                c.o.flags = BSR_ATTENTION_CAUSAL;
                for (i = 0; i < 8; i++) t_set(&c.q, 0, at, i, (double)NAN);
                if (!ref_run_forward(&c)) continue;
                CHECK(t_get(&c.lse, 0, at, 0) != t_get(&c.lse, 0, at, 0));
                plan.flags = BSR_PLAN_SLOW_TRANSPOSE, plan.backend = BSR_BACKEND_CPU, e.plan = &plan;
                e.workspace_bytes = 1 << 16, e.workspace = bt_alloc(1 << 16, 64), bt_mark_output(e.workspace);
#ifdef BSR_MIRROR_H
                e.plan = NULL; /* not of this backend */
#endif
                RUN_OK(bsr_attention_backward(t_context(isa), c.scale, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &c.d_out,
                                              &c.dq, &c.dk, &c.dv, &e));
                for (i = 0; i < n; i++)
                    for (j = 0; j < 8; j++) {
                        const double dk = t_get(&c.dk, 0, i, j), dv = t_get(&c.dv, 0, i, j);
                        wrong += i > at ? !(fabs(dk) < 1e9 && fabs(dv) < 1e9) : dk == dk || dv == dv;
                    }
                CHECK_INT(wrong, 0);
                c.o.softcap = 1e39;
                CHECK_INT(bsr_attention(t_context(isa), 1, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &e),
                          BSR_BAD_ARGUMENT);
            }
}
/* Identities: with d_lse 1 and d_out 0 the rows of dS are probabilities; without d_lse they sum to 0. */
TEST(identities) {
    int k;
    for (k = 0; k < 8; k++) {
        const int64_t n = 24;
        bsr_exec e = t_exec(0);
        ref_gradients c;
        t_spec s;
        int64_t i, j, p;
        int ones;
        for (ones = 0; ones < 2; ones++) {
            bt_case("%d, %d", k, ones);
            s = t_spec_of(BSR_F64, 4, 6, 6, 4, 14);
            c = ref_gradients_new(&s, BSR_F64, n, n, 7, 5, NO_BATCH, NO_BATCH, NO_BATCH, NO_BATCH, 0);
            if (k & 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 6;
            for (i = 0; i < n; i++) {
                t_set(&c.d_lse, 0, i, 0, ones);
                for (j = 0; j < 5 && ones; j++) t_set(&c.d_out, 0, i, j, 0);
            }
            ref_gradients_extra(&c, 1, 0, 1, BSR_F64);
            if (!ref_run_forward(&c) || !RUN_OK(bsr_attention_backward(c.ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse,
                                                                        &c.d_out, NULL, NULL, NULL, &e)))
                continue;
            for (i = 0; i < n; i++) {
                double sum = 0;
                for (p = t_crow(&c.d_scores, 0, i / 4); p < t_crow(&c.d_scores, 0, i / 4 + 1); p++)
                    for (j = 0; j < 6; j++) sum += t_load(c.d_scores.values, BSR_F64, t_value_at(&c.d_scores, 0, p, i % 4, j));
                CHECK_NEAR(sum, ones && t_get(&c.lse, 0, i, 0) > -(double)INFINITY ? 1 : 0, 1e-13);
            }
        }
    }
}

/* Options of both directions. */
TEST(options_refused) {
    int k, backward;
    for (k = 0; k < 12; k++)
        for (backward = 0; backward < 2; backward++) {
            const t_shape b = t_batch(2, 2, 2, 0, 0);
            ref_gradients c;
            bsr_dense sinks, wrong, top;
            bsr_lengths lengths = BSR_ZERO;
            bsr_exec e = t_exec(0);
            t_spec s = t_spec_of(BSR_F32, 4, 4, 3, 3, 5);
            int32_t *counts;
            uint8_t *kinds;
            int item = 0, status;
            bt_case("%d, %s", k, backward ? "backward" : "forward");
            counts = ref_random_lengths(8, 1, 4);
            c = ref_gradients_new(&s, BSR_F32, 12, 12, 6, 5, b, b, b, b, 0), c.ctx = t_context(0);
            sinks = t_random(BSR_F32, 1, 1, ROW, b, 0, FILL_SIGNED);
            wrong = t_random(BSR_F32, 2, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
            kinds = ref_random_kinds(&c.mask), top = t_output(BSR_F32, 11, 1, ROW, b);
            ref_gradients_extra(&c, 0, 0, 0, BSR_F32);
            switch (k) {
                case 0: c.o.softcap = -1, item = BSR_ITEM_SOFTCAP; break;
                case 1: c.o.softcap = (double)NAN, item = BSR_ITEM_SOFTCAP; break;
                case 2: kinds[4] = 3, c.o.block_kind = kinds, item = BSR_ITEM_BLOCK_KIND; break;
                case 3: c.o.sinks = &wrong, item = BSR_ITEM_ROWS_MISMATCH; break;
                case 4: c.o.slopes = &wrong, item = BSR_ITEM_ROWS_MISMATCH; break;
                case 5: sinks.batch[0] = 3, c.o.slopes = &sinks, item = BSR_ITEM_BATCH_SIZE; break;
                case 6: lengths.key_counts = counts, lengths.key_counts_stride = -1, item = BSR_ITEM_STRIDE_NEGATIVE; break;
                case 7: lengths.q_lengths = (const int32_t *)(const void *)((char *)counts + 2), item = BSR_ITEM_ALIGNMENT; break;
                case 8: c.o.flags = 1u << 5, item = BSR_ITEM_RESERVED; break;
                case 9: sinks.dtype = BSR_I32, c.o.sinks = &sinks, item = BSR_ITEM_DTYPE_NOT_ACCEPTED; break;
                case 10: /* an output that only one of them writes */
                    if (backward) c.extra.d_sinks = &sinks, item = BSR_ITEM_ARGUMENT_NULL;
                    else c.extra.row_max = &top, item = BSR_ITEM_ROWS_MISMATCH;
                    break;
                default:
                    if (backward) c.o.sinks = &sinks, c.extra.d_sinks = &sinks, item = BSR_ITEM_OVERLAP;
                    else c.extra.row_max = &c.lse, item = BSR_ITEM_OVERLAP;
                    break;
            }
            if (k == 6 || k == 7) c.o.lengths = &lengths;
            if (backward)
                status = bsr_attention_backward(c.ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &c.d_out, &c.dq, NULL,
                                                NULL, &e);
            else status = bsr_attention(c.ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &e);
            CHECK(status != BSR_OK);
            CHECK_INT(t_error.item, item);
        }
}

/* Merged, in place or not, parts are the whole. */
TEST(merge) {
    int k;
    for (k = 0; k < 40; k++) {
        const int type = dtypes[k % 4], in_place = k / 4 % 2, to = k & 8 && type != BSR_F64 ? (int)BSR_F32 : type;
        ref_merge g;
        bsr_exec e = t_exec(0);
        bt_case("%d", k);
        ref_merge_draw(&g, type, to, (int)bt_range(1, REF_PARTS), 8 * bt_range(1, 20), k % 5 ? bt_range(1, 40) : 300,
                       t_batch(1, 2, 0, 0, 0), in_place);
        ref_merge_want(&g);
        if (!RUN_OK(bsr_attention_merge(t_any_context(), g.parts, g.x, g.y, &g.out, &g.lse, &e))) continue;
        REF_COMPARE(&g.out, &g.want, 0);
        REF_COMPARE(&g.lse, &g.norm, 0);
    }
}

/* ---- what is refused, before anything is written ---- */

TEST(refused) {
    int k;
    for (k = 0; k < 22; k++) {
        const int64_t n = 12;
        const bsr_context *ctx = t_context(0);
        ref_gradients c;
        bsr_dense rel, *dq, *lse, *out;
        bsr_exec e = t_exec(0);
        t_spec s = t_spec_of(BSR_F32, 4, 4, 3, 3, 5);
        int item = 0, operand = -1;
        bt_case("%d", k);
        c = ref_gradients_new(&s, BSR_F16, n, n, 6, 5, NO_BATCH, NO_BATCH, NO_BATCH, NO_BATCH, 0);
        rel = t_random(BSR_F16, n, n, ROW, NO_BATCH, 0, FILL_SIGNED), c.o.relative_bias = &rel;
        ref_gradients_extra(&c, 1, 1, 1, BSR_F16);
        dq = &c.dq, lse = &c.lse, out = &c.out;
        if (!ref_run_forward(&c)) continue;
        switch (k) {
            case 0: out = NULL, item = BSR_ITEM_ARGUMENT_NULL, operand = BSR_ARG_OUT; break;
            case 1: lse = NULL, item = BSR_ITEM_ARGUMENT_NULL, operand = BSR_ARG_LSE; break;
            case 2: c.d_out.rows = 11, item = BSR_ITEM_ROWS_MISMATCH, operand = BSR_ARG_D_OUT; break;
            case 3: c.d_out.cols = 4, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_D_OUT; break;
            case 4: c.d_out.dtype = BSR_BF16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_D_OUT; break;
            case 5: c.dq.dtype = BSR_BF16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_DQ; break;
            case 6: c.dq.cols = 5, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_DQ; break;
            case 7: c.dk.rows = 9, item = BSR_ITEM_ROWS_MISMATCH, operand = BSR_ARG_DK; break;
            case 8: c.dv.cols = 4, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_DV; break;
            case 9: c.dk = c.k, item = BSR_ITEM_OVERLAP, operand = BSR_ARG_DK; break;
            case 10: dq = &c.dk, item = BSR_ITEM_OVERLAP, operand = BSR_ARG_DK; break;
            case 11: c.dv.row_stride = 1, c.dv.col_stride = 1, item = BSR_ITEM_STRIDE_OUTPUT, operand = BSR_ARG_DV; break;
            case 12: c.d_lse.cols = 2, item = BSR_ITEM_COLS_MISMATCH, operand = BSR_ARG_D_LSE; break;
            case 13: c.d_bias.dtype = BSR_F16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_D_REL_BIAS; break;
            case 14: c.o.relative_bias = NULL, item = BSR_ITEM_ARGUMENT_NULL, operand = BSR_ARG_REL_BIAS; break;
            case 15: c.d_scores.nnz--, item = BSR_ITEM_NNZ_MISMATCH, operand = BSR_ARG_D_SCORES; break;
            case 16: c.d_scores.batch_dims = 1, item = BSR_ITEM_BATCH_SIZE, operand = BSR_ARG_D_SCORES; break; /* of size 0 */
            case 17: c.extra.reserved[1] = &c, item = BSR_ITEM_RESERVED, operand = BSR_ARG_OPTIONS; break;
            case 18: c.o.score_function = BSR_SCORE_tf_plain, item = BSR_ITEM_NO_DERIVATIVE, operand = BSR_ARG_OPTIONS; break;
            case 19: c.dq = t_output(BSR_F16, n, 6, ROW, t_batch(1, 2, 0, 0, 0)), item = BSR_ITEM_BATCH_SIZE; break;
            case 20: c.lse.dtype = BSR_F16, item = BSR_ITEM_DTYPE_NOT_ACCEPTED, operand = BSR_ARG_LSE; break;
            default: c.scale = (double)NAN, item = BSR_ITEM_SCALE; break;
        }
        CHECK(bsr_attention_backward(ctx, c.scale, &c.q, &c.k, &c.v, &c.mask, &c.o, out, lse, &c.d_out, dq, &c.dk, &c.dv, &e) !=
              BSR_OK);
        CHECK_INT(t_error.item, item);
        if (operand >= 0) CHECK_INT(t_error.operand, operand);
        if (k == 18) CHECK_INT(t_error.status, BSR_UNSUPPORTED);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"each_option", each_option},
        {"combined", combined},
        {"sizes", sizes},
        {"tiles", tiles},
        {"finite_differences", finite_differences},
        {"same_bits", same_bits},
        {"edges", edges},
        {"poison", poison},
        {"nan_query", nan_query},
        {"identities", identities},
        {"refused", refused},
        {"merge", merge},
        {"options_refused", options_refused},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
