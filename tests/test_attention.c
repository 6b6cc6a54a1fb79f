/* test_attention.c: block-sparse attention against the float64 reference and against the composition
   sampled_addmm -> softmax -> dense_addmm. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};


typedef struct attention {
    const bsr_context *ctx;
    double scale;
    bsr_dense q, k, v, out, lse, row_max;
    bsr_matrix mask;
    bsr_attention_options o;
    int has_lse, has_max, flags;
} attention;

static void run_attention(const attention *c) {
    bsr_attention_extra extra = BSR_ZERO;
    bsr_attention_options o = c->o;
    bsr_exec e = t_exec(0);
    ref_result lse, max, want;
    if (c->has_max) extra.row_max = &c->row_max, o.extra = &extra;
    want = ref_attention_max(c->scale, &c->q, &c->k, &c->v, &c->mask, &c->o, t_dense_batch(&c->out), c->has_lse ? &lse : NULL,
                             c->has_max ? &max : NULL);
    if (!RUN_OK(bsr_attention(c->ctx, c->scale, &c->q, &c->k, &c->v, &c->mask, &o, &c->out, c->has_lse ? &c->lse : NULL, &e)))
        return;
    REF_COMPARE(&c->out, &want, c->flags);
    if (c->has_lse) REF_COMPARE(&c->lse, &lse, REF_ANY);
    if (c->has_max) REF_COMPARE(&c->row_max, &max, REF_ANY);
}
/* q, k, v, mask of pattern s, out and lse; lq and lk may stop short of the mask's last block. */
static attention attention_new(const t_spec *s, int dtype, int64_t lq, int64_t lk, int64_t d, int64_t dv, t_shape bq, t_shape bkv,
                               int out) {
    attention c;
    memset(&c, 0, sizeof c);
    c.ctx = t_any_context(), c.has_lse = 1;
    c.mask = t_matrix(s);
    c.q = t_random(dtype, lq, d, (int)bt_below(LAYOUTS), bq, 0, s->kind),
    c.k = t_random(dtype, lk, d, (int)bt_below(LAYOUTS), bkv, 0, s->kind);
    c.v = t_random(dtype, lk, dv, (int)bt_below(LAYOUTS), bkv, 0, s->kind);
    c.out = t_output(out, lq, dv, (int)bt_below(LAYOUTS), bq);
    c.lse = t_output(out == BSR_F64 ? BSR_F64 : BSR_F32, lq, 1, (int)bt_below(LAYOUTS), bq);
    c.row_max = t_output(c.lse.dtype, lq, 1, (int)bt_below(LAYOUTS), bq), c.has_max = (int)bt_below(2);
    return c;
}
/* Operands of options, which must stay where they are while the call runs. */
typedef struct options {
    bsr_dense slopes, sinks;
    bsr_lengths lengths;
} options;
static t_shape shared(t_shape b) { /* some dimensions broadcast */
    int i;
    for (i = 0; i < b.dims; i++)
        if (bt_below(4) == 0) b.n[i] = 1;
    return b;
}
static void attach_lengths(attention *c, options *x, t_shape b, int which) {
    const int64_t items = b.dims ? t_items(&b) / b.n[b.dims - 1] : 1, cols = c->mask.cols / c->mask.block_cols;
    memset(&x->lengths, 0, sizeof x->lengths), c->o.lengths = &x->lengths;
    if (which & 1) x->lengths.q_lengths = ref_random_lengths(items, -1, c->q.rows + 1);
    if (which & 2) x->lengths.k_lengths = ref_random_lengths(items, 0, c->k.rows + 1);
    x->lengths.key_counts_stride = bt_below(2) ? cols : 0;
    if (which & 4) x->lengths.key_counts = ref_random_lengths(items * cols, 0, c->mask.block_cols + 1);
}
/* Some of windows, kinds, soft-cap, slopes, sinks, lengths. b: the whole batch; near: of windows. */
static void some_options(attention *c, options *x, t_shape b, int64_t near) {
    const int type = c->q.dtype;
    x->slopes = t_random(type, 1, 1, ROW, shared(b), 0, FILL_SIGNED);
    x->sinks = t_random(bt_below(2) ? type : BSR_F32, 1, 1, ROW, shared(b), 0, FILL_SIGNED);
    if (bt_below(2)) c->o.flags |= BSR_ATTENTION_WINDOW;
    c->o.window_left = bt_range(-2, near), c->o.window_right = bt_range(-2, near);
    if (bt_below(4) == 0) c->o.softcap = 0.1 + 3 * bt_uniform() * bt_uniform() * 10;
    if (bt_below(3) == 0) c->o.slopes = &x->slopes;
    if (bt_below(3) == 0) c->o.sinks = &x->sinks;
    if (bt_below(3) == 0) c->o.block_kind = ref_random_kinds(&c->mask);
    else if (bt_below(6) == 0) c->o.flags |= BSR_ATTENTION_FULL;
    if (bt_below(3) == 0) attach_lengths(c, x, b, (int)bt_below(8));
}

/* upstream.md 6.1, test_triton_scaled_dot_product_attention */
TEST(upstream_attention) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
    static const int64_t sizes[] = {32, 64, 0};
    int m, n, k, batch, mask_batch;
    for (m = 0; m < 3; m++)
        for (n = 0; n < 3; n++)
            for (k = 0; k < 3; k++)
                for (batch = 0; batch < 3; batch++)
                    for (mask_batch = 0; mask_batch <= batch; mask_batch++) {
                        attention c;
                        t_spec s;
                        int t, block;
                        bt_case("%lld x %lld x %lld, batch %d, mask %d", (long long)sizes[m], (long long)sizes[n],
                                (long long)sizes[k], batch, mask_batch);
                        t = types[bt_below(3)], block = bt_below(2) ? 16 : 32;
                        s = t_spec_of(bt_below(2) ? BSR_BOOL : t, block, block, sizes[m] / block, sizes[n] / block, 0);
                        s.nnz = (s.r * s.c + 1) * 2 / 3, s.kind = FILL_POSITIVE, s.batch = t_batch(mask_batch, 2, 2, 0, 0);
                        c = attention_new(&s, t, sizes[m], sizes[n], sizes[k], sizes[k], t_batch(batch, 2, 2, 0, 0),
                                          t_batch(batch, 2, 2, 0, 0), t);
                        c.scale = bt_below(2) ? 0 : 1.0 / 16, c.flags = sizes[n] ? 0 : REF_ALL_ZERO;
                        run_attention(&c);
                    }
}

/* Every option alone, for every dtype, on every instruction set. */
TEST(each_option) {
    int option, t, isa;
    for (option = 0; option < 27; option++)
        for (t = 0; t < 4; t++)
            for (isa = 1; isa <= 3; isa++) {
                attention c;
                t_spec s;
                bsr_dense rel, kp;
                options x;
                float slope = 0.3f;
                int64_t lq = 45, lk = 50, d = 24, dv = option == 2 ? 40 : 24;
                if (dtypes[t] == BSR_F64 && (option == 9 || option == 10)) continue; /* score functions compute in f32 */
                bt_case("option %d, %s, isa %d", option, bsr_dtype_name(dtypes[t]), isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(BSR_F32, 16, 8, 3, 7, 13);
                if (option == 1) s.block_rows = s.block_cols = 1, s.r = lq, s.c = lk, s.nnz = lq * lk / 3;
                if (option == 3) s.dtype = BSR_BOOL;
                if (option == 4) s.dtype = dtypes[t];
                c = attention_new(&s, dtypes[t], lq, lk, d, dv, t_batch(2, 2, 4, 0, 0),
                                  t_batch(2, 2,
                                          option == 5   ? 2
                                          : option == 6 ? 1
                                                        : 4,
                                          0, 0),
                                  option == 7 && dtypes[t] != BSR_F64 ? BSR_F32 : dtypes[t]);
                c.ctx = t_context(isa);
                if (option == 3) c.o.flags = BSR_ATTENTION_MASK_BOOLEAN;
                if (option == 4) c.o.flags = BSR_ATTENTION_MASK_ADDITIVE;
                if (option == 8) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 5;
                if (option == 9) c.o.score_function = BSR_SCORE_tf_alibi, c.o.user_data = &slope;
                if (option == 10) c.o.score_function = BSR_SCORE_tf_softcap;
                if (option == 11) c.o.mask_function = BSR_MASK_tf_stripes;
                if (option == 12) c.o.mask_function = BSR_MASK_tf_nothing;
                rel = t_random(dtypes[t], lq, lk, STRIDED, t_batch(1, 4, 0, 0, 0), 0, FILL_SIGNED),
                kp = t_random(BSR_BOOL, 1, lk, ROW, t_batch(2, 2, 1, 0, 0), 0, FILL_BOOL);
                if (option == 13) c.o.relative_bias = &rel;
                if (option == 14) c.o.key_padding_mask = &kp, c.o.key_padding_mode = BSR_MASK_MUL;
                if (option == 15) c.o.dropout_p = 0.375, c.o.dropout_seed = 0x123456789abcdefu;
                if (option == 16 || option == 17 || option == 26)
                    c.o.flags = BSR_ATTENTION_WINDOW, c.o.window_left = 7, c.o.window_right = option == 26 ? -2 : 3;
                if (option == 17) c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = 4;
                if (option == 18) c.o.softcap = 0.5;
                x.slopes = t_random(dtypes[t], 1, 1, ROW, t_batch(1, 4, 0, 0, 0), 0, FILL_POSITIVE);
                x.sinks = t_random(dtypes[t], 1, 1, ROW, option & 1 ? t_batch(2, 2, 1, 0, 0) : t_batch(1, 4, 0, 0, 0), 0,
                                   FILL_SIGNED);
                if (option == 19) c.o.slopes = &x.slopes, c.o.causal_offset = 3;
                if (option == 20 || option == 21) c.o.sinks = &x.sinks;
                if (option == 21) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = -9, c.o.dropout_p = 0.5;
                if (option == 22) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.block_kind = ref_random_kinds(&c.mask);
                if (option == 23) c.o.flags = BSR_ATTENTION_CAUSAL | BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_FULL;
                if (option == 24 || option == 25) attach_lengths(&c, &x, t_batch(2, 2, 4, 0, 0), option == 24 ? 3 : 4);
                if (option == 25) c.o.sinks = &x.sinks;
                c.flags = option == 12 ? REF_ALL_ZERO : option > 23 ? REF_MAY_BE_ZERO : 0;
                run_attention(&c);
            }
}

/* Everything at random together. */
TEST(combined) {
    int k;
    for (k = 0; k < 600; k++) {
        attention c;
        t_spec s;
        bsr_dense rel, kp;
        options x;
        t_shape bq, bkv, bv, bm;
        int t = k % 4, i, dims, user;
        int64_t br, bc, r, cols, lq, lk, heads, group, kinds;
        bt_case("%d", k);
        user = dtypes[t] != BSR_F64;
        br = bt_range(1, bt_below(4) ? 9 : 40), bc = bt_range(1, bt_below(4) ? 9 : 70), r = bt_range(1, 4), cols = bt_range(1, 4);
        lq = r * br - bt_below(br), lk = cols * bc - bt_below(bc);
        dims = (int)bt_range(0, 3), group = bt_range(1, 3), heads = group * bt_range(1, 2);
        bq = t_batch(dims, bt_range(1, 2), bt_range(1, 2), 1, 1);
        if (dims) bq.n[dims - 1] = heads;
        bkv = bq;
        if (dims) bkv.n[dims - 1] = bt_below(2) ? heads / group : heads;
        for (i = 0; i < dims - 1; i++)
            if (bt_below(4) == 0) bkv.n[i] = 1;
        bv = bkv;
        if (dims) bv.n[dims - 1] = bt_below(2) ? heads / group : heads;
        bm = bq;
        for (i = 0; i < dims; i++)
            if (bt_below(2)) bm.n[i] = 1;
        if (bm.dims && bt_below(3) == 0)
            bm.dims--, bm.n[0] = bm.n[1], bm.n[1] = bm.n[2]; /* fewer dimensions: aligned at the last */
        s = t_spec_of(dtypes[t], br, bc, r, cols, bt_range(0, r * cols));
        s.batch = bm, s.ragged = bt_below(3) == 0, s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(16);
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = (int)bt_below(2);
        for (i = 0; i < bm.dims; i++) /* dimension i from the right */
            if (bm.n[bm.dims - 1 - i] != 1 && bm.n[bm.dims - 1 - i] != bq.n[bq.dims - 1 - i]) bm.n[bm.dims - 1 - i] = 1;
        s.batch = bm;
        kinds = bt_below(3); /* pattern only, boolean, additive */
        if (kinds == 1) s.kind = FILL_BOOL;
        c = attention_new(&s, dtypes[t], lq, lk, bt_range(1, 40), bt_range(1, 40), bq, bkv,
                          dtypes[t] == BSR_F64 || bt_below(2) ? dtypes[t] : BSR_F32);
        c.v = t_random(dtypes[t], lk, c.v.cols, (int)bt_below(LAYOUTS), bv, 0, s.kind);
        if (s.kind == FILL_BOOL) t_fill(&c.q, FILL_SIGNED), t_fill(&c.k, FILL_SIGNED), t_fill(&c.v, FILL_SIGNED);
        c.o.flags = kinds == 1 ? BSR_ATTENTION_MASK_BOOLEAN : kinds == 2 ? BSR_ATTENTION_MASK_ADDITIVE : 0;
        if (bt_below(2)) c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = bt_range(-4, 4) + (bt_below(2) ? lk - lq : 0);
        rel = t_random(dtypes[t], bt_below(2) ? lq : 1, lk, (int)bt_below(LAYOUTS), bm, 0, FILL_SIGNED);
        kp = t_random(BSR_F32, 1, lk, ROW, NO_BATCH, 0, bt_below(2) ? FILL_BOOL : FILL_SIGNED);
        if (bt_below(2)) c.o.relative_bias = &rel;
        if (bt_below(2)) c.o.key_padding_mask = &kp, c.o.key_padding_mode = (int)bt_below(2);
        if (user && bt_below(3) == 0) c.o.score_function = bt_below(2) ? BSR_SCORE_tf_alibi : BSR_SCORE_tf_softcap;
        if (bt_below(3) == 0) c.o.mask_function = BSR_MASK_tf_stripes;
        if (bt_below(2)) c.o.dropout_p = bt_uniform() * 0.9, c.o.dropout_seed = bt_random();
        c.scale = bt_below(2) ? 0 : bt_uniform(), c.has_lse = bt_below(4) != 0, c.flags = REF_MAY_BE_ZERO;
        if (k >= 200) some_options(&c, &x, bq, 9);
        run_attention(&c);
    }
}

/* Sizes around the engine's tiles, long rows. */
TEST(sizes) {
    static const int64_t blocks[][2] = {{64, 64}, {16, 16}, {32, 128}, {128, 32}, {1, 64}, {64, 1}, {3, 5}, {100, 3}};
    static const int64_t widths[] = {1, 8, 16, 17, 33, 64, 65, 130};
    int b, w;
    for (b = 0; b < 8; b++)
        for (w = 0; w < 8; w++) {
            attention c;
            t_spec s;
            int t = (b + w) % 4;
            int64_t r = bt_range(1, 3), cols = blocks[b][1] < 8 ? 40 : bt_range(2, 4);
            bt_case("%lldx%lld, D %lld, %s", (long long)blocks[b][0], (long long)blocks[b][1], (long long)widths[w],
                    bsr_dtype_name(dtypes[t]));
            s = t_spec_of(dtypes[t], blocks[b][0], blocks[b][1], r, cols, r * cols * 2 / 3 + 1);
            c = attention_new(&s, dtypes[t], r * blocks[b][0], cols * blocks[b][1], widths[w], widths[(w + 3) % 8],
                              t_batch(1, 2, 0, 0, 0), t_batch(1, 1, 0, 0, 0), dtypes[t]);
            if (b & 1) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 3;
            if (b & 2) c.o.flags |= BSR_ATTENTION_MASK_ADDITIVE; /* of blocks that are cut, too */
            run_attention(&c);
        }
}

/* Scores that rise, fall or swing along a long row: the running maximum changes at every step, or never. */
TEST(running_maximum) {
    int t, form, isa;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 3; form++)
            for (isa = 1; isa <= 3; isa++) {
                attention c;
                t_spec s;
                int64_t j, d;
                bt_case("%s, form %d, isa %d", bsr_dtype_name(dtypes[t]), form, isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(dtypes[t], 16, 16, 2, 40, 60);
                c = attention_new(&s, dtypes[t], 32, 640, 8, 8, NO_BATCH, NO_BATCH, dtypes[t]);
                for (j = 0; j < 640; j++)
                    for (d = 0; d < 8; d++)
                        t_set(&c.k, 0, j, d,
                              form == 0   ? (double)j / 64
                              : form == 1 ? (double)(640 - j) / 64
                                          : 4 * sin((double)j / 20));
                for (j = 0; j < 32; j++)
                    for (d = 0; d < 8; d++) t_set(&c.q, 0, j, d, 0.25 + (double)(j % 4) / 4);
                c.ctx = t_context(isa), c.scale = 0.5;
                run_attention(&c);
            }
}

/* The generator of the reference against the vectors that its authors publish. */
TEST(philox_vectors) {
    static const uint32_t counters[3][4] = {
        {0, 0, 0, 0}, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}};
    static const uint64_t seeds[3] = {0, UINT64_C(0xffffffffffffffff), UINT64_C(0x299f31d0a4093822)};
    static const uint32_t words[3][4] = {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
                                         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu},
                                         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}};
    int k, i;
    for (k = 0; k < 3; k++) {
        uint32_t out[4];
        ref_philox(counters[k], seeds[k], out);
        for (i = 0; i < 4; i++) CHECK(out[i] == words[k][i]);
    }
}
/* Which probabilities were dropped, seen through v = identity and equal scores, is the documented Philox mask. */
TEST(dropout_mask) {
    int k, isa;
    for (k = 0; k < 6; k++)
        for (isa = 1; isa <= 3; isa++) {
            attention c;
            t_spec s;
            bsr_exec e = t_exec(0);
            int64_t b, h, i, j, n = 40, dropped = 0;
            double p = k == 5 ? 1.0 : 0.1 + 0.2 * k;
            bt_case("p %.1f, isa %d", p, isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            s = t_spec_of(BSR_F32, 8, 8, 5, 5, 25);
            c = attention_new(&s, BSR_F32, n, n, 4, n, t_batch(2, 2, 3, 0, 0), t_batch(2, 2, 3, 0, 0), BSR_F32);
            for (b = 0; b < 6; b++)
                for (i = 0; i < n; i++) {
                    for (j = 0; j < n; j++) t_set(&c.v, b, i, j, i == j);
                    for (j = 0; j < 4; j++) t_set(&c.q, b, i, j, 0);
                }
            c.ctx = t_context(isa), c.o.dropout_p = p, c.o.dropout_seed = UINT64_C(0xfeedfacecafebeef) * (uint64_t)(k + 1);
            if (!RUN_OK(bsr_attention(c.ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, NULL, &e))) continue;
            for (b = 0; b < 2; b++)
                for (h = 0; h < 3; h++)
                    for (i = 0; i < n; i++)
                        for (j = 0; j < n; j++) {
                            int drop = ref_dropped(p, c.o.dropout_seed, b, h, i, j);
                            double got = t_get(&c.out, b * 3 + h, i, j);
                            dropped += drop;
                            CHECK_NEAR(got, drop ? 0 : 1 / (double)n / (1 - p), 1e-6);
                        }
            CHECK_NEAR((double)dropped / (double)(6 * n * n), p, k == 5 ? 0 : 0.03);
        }
}

/* Through the composition: SDD, softmax, DSD. */
TEST(composition) {
    int k;
    for (k = 0; k < 40; k++) {
        attention c;
        t_spec s;
        bsr_matrix scores, p;
        bsr_dense kt, want;
        bsr_exec e = t_exec(0);
        int64_t b, i, j;
        int type = k % 2 ? BSR_F64 : BSR_F32;
        bt_case("%d", k);
        s = t_spec_of(type, bt_range(1, 20), bt_range(1, 20), bt_range(1, 4), bt_range(1, 4), bt_range(1, 9)),
        s.batch = t_batch(1, 2, 0, 0, 0);
        c = attention_new(&s, type, s.r * s.block_rows, s.c * s.block_cols, bt_range(1, 33), bt_range(1, 33), s.batch, s.batch,
                          type);
        c.scale = 0.5;
        scores = t_matrix_output(&c.mask, type, PACKED), p = t_matrix_output(&c.mask, type, PACKED),
        kt = bsr_dense_transposed(c.k);
        want = t_output(type, c.q.rows, c.v.cols, ROW, s.batch);
        RUN_OK(bsr_attention(c.ctx, 0.5, &c.q, &c.k, &c.v, &c.mask, NULL, &c.out, NULL, &e));
        RUN_OK(bsr_sampled_addmm(c.ctx, 0, NULL, 1, &c.q, &kt, &scores, &e));
        RUN_OK(bsr_softmax(c.ctx, 0.5, &scores, NULL, &p, &e));
        RUN_OK(bsr_dense_mm(c.ctx, 0, &p, &c.v, &want, &e));
        for (b = 0; b < 2; b++)
            for (i = 0; i < want.rows; i++)
                for (j = 0; j < want.cols; j++)
                    CHECK_NEAR(t_get(&c.out, b, i, j), t_get(&want, b, i, j), type == BSR_F64 ? 1e-13 : 3e-5);
    }
}
/* One-hot v returns the probabilities; a row without blocks returns 0 and -inf. */
TEST(edges) {
    int t, isa;
    for (t = 0; t < 4; t++)
        for (isa = 1; isa <= 3; isa++) {
            attention c;
            t_spec s;
            int64_t j;
            const bsr_context *ctx = t_context(isa);
            if (!ctx) {
                bt_case("isa %d", isa), bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            bt_case("no block at all: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s = t_spec_of(BSR_F32, 4, 4, 3, 3, 0);
            c = attention_new(&s, dtypes[t], 12, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]);
            c.ctx = ctx, c.flags = REF_ALL_ZERO;
            run_attention(&c);
            for (j = 0; j < 12; j++) CHECK(t_get(&c.lse, 0, j, 0) == -(double)INFINITY);
            bt_case("causal hides whole rows: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.nnz = 7, c = attention_new(&s, dtypes[t], 12, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]);
            c.ctx = ctx, c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = -5;
            run_attention(&c);
            c.o.causal_offset = INT64_MAX;
            {
                bsr_attention_options all = c.o;
                ref_result want;
                bsr_exec e = t_exec(0);
                all.flags = 0, want = ref_attention(0, &c.q, &c.k, &c.v, &c.mask, &all, NO_BATCH, NULL);
                if (RUN_OK(bsr_attention(ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, NULL, &e)))
                    REF_COMPARE(&c.out, &want, 0);
                c.o.causal_offset = INT64_MIN;
                if (RUN_OK(bsr_attention(ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, &c.lse, &e)))
                    CHECK(t_get(&c.out, 0, 3, 3) == 0 && t_get(&c.lse, 0, 11, 0) == -(double)INFINITY);
            }
            bt_case("large scores: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.nnz = 9, c = attention_new(&s, dtypes[t], 12, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]);
            c.ctx = ctx, c.scale = 3000;
            run_attention(&c);
            bt_case("NaN in one query: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            c = attention_new(&s, dtypes[t], 12, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]);
            c.ctx = ctx, t_set(&c.q, 0, 4, 2, (double)NAN);
            run_attention(&c);
            bt_case("what is never attended is never read: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            s.nnz = 4, c = attention_new(&s, dtypes[t], 12, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]);
            c.ctx = ctx;
            for (j = 0; j < 12; j++) {
                int64_t p, seen = 0, i;
                for (p = 0; p < c.mask.nnz; p++) seen |= t_col(&c.mask, 0, p) == j / 4;
                for (i = 0; i < 5 && !seen; i++) t_set(&c.k, 0, j, i, (double)NAN), t_set(&c.v, 0, j, i, (double)NAN);
            }
            run_attention(&c);
            bt_case("Dv = 0, Lq = 0, Lk = 0: %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            c = attention_new(&s, dtypes[t], 12, 12, 5, 0, NO_BATCH, NO_BATCH, dtypes[t]), c.ctx = ctx;
            run_attention(&c);
            s.r = 0, s.nnz = 0, c = attention_new(&s, dtypes[t], 0, 12, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]), c.ctx = ctx;
            run_attention(&c);
            s.r = 3, s.c = 0, c = attention_new(&s, dtypes[t], 12, 0, 5, 6, NO_BATCH, NO_BATCH, dtypes[t]), c.ctx = ctx,
            c.flags = REF_ALL_ZERO;
            run_attention(&c);
        }
}
/* NaN and Inf at keys and values that a mask forbids do not count, element by element inside stored blocks. Form 5: what is
   forbidden to some rows only, with more columns of values than a tile holds, of which some are finite. */
TEST(forbidden_nan) {
    int t, form, isa;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 6; form++)
            for (isa = 1; isa <= 3; isa++) {
                attention c;
                t_spec s;
                bsr_dense kp;
                const int64_t dv = form == 5 ? 140 : 20;
                int64_t i, j, d;
                bt_case("%s, form %d, isa %d", bsr_dtype_name(dtypes[t]), form, isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(dtypes[t], 8, 8, 3, 11, 33), s.kind = FILL_SIGNED;
                c = attention_new(&s, dtypes[t], 24, 88, 9, dv, NO_BATCH, NO_BATCH, dtypes[t]);
                c.ctx = t_context(isa), kp = t_random(BSR_BOOL, 1, 88, ROW, NO_BATCH, 0, FILL_BOOL);
                for (j = 0; j < 88; j++) {
                    int hidden = form < 2    ? j > 40
                                 : form == 5 ? j > 20
                                 : form == 2 ? j % 5 == 2
                                             : t_get(&kp, 0, 0, j) == 0;
                    if (form == 4) t_set(&kp, 0, 0, j, !hidden);
                    for (d = 0; d < dv && hidden; d++)
                        if (form < 5 || d % 3) t_set(&c.v, 0, j, d, d % 2 ? (double)NAN : -(double)INFINITY);
                    for (d = 0; d < 9 && hidden && form < 3; d++) t_set(&c.k, 0, j, d, d % 2 ? (double)NAN : (double)INFINITY);
                    for (i = 0; i < 24 && form == 2; i++) { /* the mask's values: 0 where hidden */
                        int64_t p;
                        for (p = t_crow(&c.mask, 0, i / 8); p < t_crow(&c.mask, 0, i / 8 + 1); p++)
                            if (t_col(&c.mask, 0, p) == j / 8)
                                t_store(c.mask.values, c.mask.dtype, t_value_at(&c.mask, 0, p, i % 8, j % 8), !hidden);
                    }
                }
                if (form < 2 || form == 5) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = 40 - 23;
                if (form == 1) c.o.dropout_p = 0.25;
                if (form == 2) c.o.flags = BSR_ATTENTION_MASK_BOOLEAN;
                if (form == 3 || form == 4) c.o.key_padding_mask = &kp, c.o.key_padding_mode = BSR_MASK_MUL;
                run_attention(&c);
            }
}
/* What forbids, as in test_rows.c: zeros of either sign, not the least number of a type; -inf that is added, also to NaN. Scores
   are 0, so that out is the mean of the values that are left. */
TEST(mask_corners) {
    static const double least[] = {1e-300, 0x1p-149, 0x1p-24};
    static const int types[] = {BSR_F64, BSR_F32, BSR_F16};
    int t, form, isa;
    for (t = 0; t < 4; t++)
        for (form = 0; form < 8; form++) /* a mask or padding of three types; padding, or the mask, that adds */
            for (isa = 1; isa <= 3; isa++) {
                const int adds = form > 5, mask = form % 2;
                attention c;
                t_spec s;
                bsr_dense kp;
                int64_t i, j, d, p;
                bsr_exec e = t_exec(0);
                bt_case("%s, form %d, isa %d", bsr_dtype_name(dtypes[t]), form, isa);
                if (!t_context(isa)) {
                    bt_skip("this instruction set is not in this build or machine");
                    continue;
                }
                s = t_spec_of(adds ? BSR_F32 : types[form / 2], 16, 16, 2, 3, 6);
                c = attention_new(&s, dtypes[t], 32, 48, 8, 8, NO_BATCH, NO_BATCH, dtypes[t]), c.ctx = t_context(isa);
                kp = t_dense(s.dtype, 1, 48, ROW, NO_BATCH, 0);
                for (j = 0; j < 48; j++) {
                    const int no = j % 4 == 1, some = j % 4 == 2;
                    const double v = adds ? no ? -(double)INFINITY : 0 : no ? -0.0 : some ? least[form / 2] : 1.0;
                    t_set(&kp, 0, 0, j, v);
                    for (p = 0; p < c.mask.nnz; p++)
                        for (i = 0; i < 16 && t_col(&c.mask, 0, p) == j / 16; i++)
                            t_store(c.mask.values, c.mask.dtype, t_value_at(&c.mask, 0, p, i, j % 16), v);
                    for (d = 0; d < 8; d++) t_set(&c.k, 0, j, d, no ? (double)NAN : 1.0), t_set(&c.v, 0, j, d, (double)j);
                }
                for (i = 0; i < 32; i++)
                    for (d = 0; d < 8; d++) t_set(&c.q, 0, i, d, 0);
                if (mask) c.o.flags = adds ? BSR_ATTENTION_MASK_ADDITIVE : BSR_ATTENTION_MASK_BOOLEAN;
                else c.o.key_padding_mask = &kp, c.o.key_padding_mode = adds ? BSR_MASK_ADD : BSR_MASK_MUL;
                if (!RUN_OK(bsr_attention(c.ctx, 0, &c.q, &c.k, &c.v, &c.mask, &c.o, &c.out, NULL, &e))) continue;
                for (i = 0; i < 32; i++)
                    for (d = 0; d < 8; d++) CHECK_NEAR(t_get(&c.out, 0, i, d), 71.0 / 3, 0.1);
            }
}
/* Heads side by side in a row, as linear layers leave them. */
static bsr_dense heads_beside(int dtype, int64_t rows, int64_t d, t_shape b) {
    bsr_dense all = t_random(dtype, rows, b.n[1] * d, ROW, t_batch(1, b.n[0], 0, 0, 0), 0, FILL_SIGNED);
    bsr_dense x = bsr_dense_strided(all.data, dtype, rows, d, b.n[1] * d, 1);
    x.batch_dims = 2, x.batch[0] = b.n[0], x.batch[1] = b.n[1];
    x.batch_stride[0] = rows * b.n[1] * d, x.batch_stride[1] = d;
    return x;
}
/* What tensor cores take: aligned rows, blocks of whole units of 16, sizes around tiles of 64 and 128 rows and keys. In every
   second case some keys and values that are never attended are not numbers. */
TEST(tiles) {
    static const int64_t blocks[][2] = {{16, 16},   {32, 32},  {48, 32},  {64, 64}, {128, 64},
                                        {128, 128}, {64, 128}, {256, 48}, {32, 16}};
    int k;
    for (k = 0; k < 72; k++) {
        const int64_t *b = blocks[k % 9];
        const int type = k / 9 % 2 ? BSR_F16 : BSR_BF16, wide = k / 18 % 2, heads = k / 36 % 2 ? k % 2 ? 4 : 2 : 1;
        const int64_t r = bt_range(1, 300 / b[0] + 1), cols = bt_range(1, 300 / b[1] + 1);
        const int64_t lq = r * b[0] - bt_below(b[0]), lk = cols * b[1] - bt_below(b[1]);
        const int64_t d = 8 * bt_range(wide ? 9 : 1, wide ? 16 : 8), dv = 8 * bt_range(1, wide ? 16 : 8);
        const int64_t items = heads == 4 ? 1 : 2, own_k = heads >> bt_below(3), own_v = heads >> bt_below(3);
        const t_shape bq = t_batch(2, items, heads, 0, 0), bk = t_batch(2, items, own_k ? own_k : 1, 0, 0);
        const t_shape bv = t_batch(2, items, own_v ? own_v : 1, 0, 0);
        int64_t item, i, j, p;
        attention c;
        t_spec s;
        bt_case("%d: %lldx%lld, %s, D %lld, %lld", k, (long long)b[0], (long long)b[1], bsr_dtype_name(type), (long long)d,
                (long long)dv);
        s = t_spec_of(BSR_BOOL, b[0], b[1], r, cols, bt_range(0, r * cols)), s.pattern_only = 1;
        if (bt_below(2)) s.batch = t_batch(2, bt_below(2) ? items : 1, bt_below(2) ? heads : 1, 0, 0);
        s.unsorted = bt_below(4) == 0;
        c = attention_new(&s, type, lq, lk, d, dv, bq, bk, bt_below(2) ? BSR_F32 : type);
        c.q = t_random(type, lq, d, ROW, bq, 0, FILL_SIGNED), c.k = t_random(type, lk, d, ROW, bk, 0, FILL_SIGNED);
        c.v = t_random(type, lk, dv, ROW, bv, 0, FILL_SIGNED);
        if (k % 4 == 0) c.q = heads_beside(type, lq, d, bq), c.k = heads_beside(type, lk, d, bk);
        if (k % 4 == 0) c.v = heads_beside(type, lk, dv, bv);
        if (k % 3 == 0) c.o.flags = BSR_ATTENTION_CAUSAL, c.o.causal_offset = bt_range(-40, 40) + (bt_below(2) ? lk - lq : 0);
        c.has_lse = bt_below(4) != 0, c.flags = REF_MAY_BE_ZERO;
        for (item = 0; item < t_items(&bq) && k % 2; item++) /* columns that no row of any item may attend to, and late ones */
            for (j = 0; j < lk; j++) {
                int seen = c.o.flags ? j <= lq - 1 + c.o.causal_offset : 0;
                for (i = 0; i < t_items(&s.batch) && !c.o.flags; i++)
                    for (p = 0; p < t_crow(&c.mask, i, r); p++) seen |= t_col(&c.mask, i, p) == j / b[1];
                if (seen && !(c.o.flags && j > lq / 2 + c.o.causal_offset)) continue;
                for (i = 0; i < dv && item < t_items(&bv); i++) t_set(&c.v, item, j, i, i % 2 ? (double)NAN : (double)INFINITY);
                for (i = 0; i < d && item < t_items(&bk) && !seen; i++) t_set(&c.k, item, j, i, (double)NAN);
            }
        run_attention(&c);
    }
}
/* Rows that start at multiples of 16 bytes, as tensor cores want them: the last elements of each may be nobody's. */
static bsr_dense whole_pieces(int dtype, int64_t rows, int64_t cols, t_shape b) {
    bsr_dense d = t_random(dtype, rows, (cols + 7) / 8 * 8, ROW, b, 0, FILL_SIGNED);
    d.cols = cols;
    return d;
}
#ifndef OPTIONS_CASES
#define OPTIONS_CASES 72 /* more where tensor cores are */
#endif
/* What tensor cores take, with every option, at random: any sides of blocks, heads to 256, numbers that meet the scores in rows
   of whole pieces or not. Now and then keys and values that nobody may attend to are not numbers. */
TEST(tiles_and_options) {
    static const int64_t blocks[][2] = {{16, 16},  {64, 64}, {128, 128}, {128, 32}, {32, 48}, {48, 16}, {1, 128},
                                        {8, 8},    {16, 8},  {3, 5},     {100, 24}, {1, 1},   {2, 64},  {256, 64},
                                        {128, 24}, {7, 160}, {64, 16},   {40, 32}};
    static const int64_t heads_of[] = {64, 128, 256};
    static const int adds[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_F64, BSR_I8};
    static const int says[] = {BSR_BOOL, BSR_I8, BSR_F16, BSR_F32, BSR_F64, BSR_I64};
    int k;
    for (k = 0; k < OPTIONS_CASES; k++) {
        const int bare = k / 18 % 3 == 2 && bt_below(4); /* heads above 128 with limits of keys alone are fast */
        const int64_t *b = blocks[bare ? k % 5 : k % 18], most = heads_of[k / 18 % 3], grid = b[0] * b[1] < 64 ? 100 : 300;
        const int type = bt_below(2) ? BSR_F16 : BSR_BF16, values = bare ? 0 : (int)bt_below(4);
        const int64_t r = bt_range(1, grid / b[0] + 1), cols = bt_range(1, grid / b[1] + 1);
        const int64_t lq = r * b[0] - bt_below(b[0]), lk = cols * b[1] - bt_below(b[1]);
        const int64_t d = bt_range(most / 2 - 16, most), dv = bt_below(2) ? d : bt_range(1, most), group = bt_range(1, 2);
        const t_shape bq = t_batch(2, bt_range(1, 2), 2, 0, 0), bk = t_batch(2, bq.n[0], 2 / group, 0, 0);
        bsr_dense rel, kp;
        options x;
        attention c;
        t_spec s;
        bt_case("%d: %lldx%lld, %s, D %lld, %lld", k, (long long)b[0], (long long)b[1], bsr_dtype_name(type), (long long)d,
                (long long)dv);
        s = t_spec_of(values == 1 ? says[bt_below(6)] : values == 2 ? adds[bt_below(5)] : BSR_BOOL, b[0], b[1], r, cols,
                      bt_range(0, r * cols));
        s.kind = values == 1 ? FILL_BOOL : FILL_SIGNED, s.pattern_only = values != 1 && values != 2,
        s.unsorted = bt_below(4) == 0;
        if (bt_below(2)) s.batch = t_batch(2, bt_below(2) ? bq.n[0] : 1, bt_below(2) ? 2 : 1, 0, 0);
        if (bt_below(2)) s.layout = (int)bt_below(BLOCKS_LAYOUTS);
        c = attention_new(&s, type, lq, lk, d, dv, bq, bk, bt_below(2) ? BSR_F32 : type);
        c.q = whole_pieces(type, lq, d, bq), c.k = whole_pieces(type, lk, d, bk), c.v = whole_pieces(type, lk, dv, bk);
        if (bt_below(2)) c.out = t_output(c.out.dtype, lq, dv, ROW, bq);
        c.o.flags = values == 1 ? BSR_ATTENTION_MASK_BOOLEAN : values == 2 ? BSR_ATTENTION_MASK_ADDITIVE : 0;
        if (bt_below(3) == 0)
            c.o.flags |= BSR_ATTENTION_CAUSAL, c.o.causal_offset = bt_range(-40, 40) + (bt_below(2) ? lk - lq : 0);
        rel = t_random(adds[bt_below(5)], bt_below(3) ? lq : 1, bt_below(4) ? lk : 1, bt_below(2) ? ROW : (int)bt_below(LAYOUTS),
                       shared(bq), 0, FILL_SIGNED);
        kp = t_random(adds[bt_below(5)], 1, lk, ROW, bt_below(2) ? NO_BATCH : shared(bq), 0,
                      bt_below(2) ? FILL_BOOL : FILL_SIGNED);
        if (!bare && bt_below(3) == 0) c.o.relative_bias = &rel;
        if (!bare && bt_below(3) == 0) c.o.key_padding_mask = &kp, c.o.key_padding_mode = (int)bt_below(2);
        if (!bare && bt_below(4) == 0) c.o.score_function = bt_below(2) ? BSR_SCORE_tf_alibi : BSR_SCORE_tf_softcap;
        if (!bare && bt_below(4) == 0) c.o.mask_function = BSR_MASK_tf_stripes;
        if (!bare && bt_below(4) == 0) c.o.dropout_p = bt_uniform() * 0.9, c.o.dropout_seed = bt_random();
        if (bt_below(2)) some_options(&c, &x, bq, 40);
        if (bare) c.o.softcap = 0, c.o.slopes = NULL;
        c.scale = bt_below(4) == 0 ? 2 * bt_uniform() - !bare : 0, c.has_lse = bt_below(4) != 0, c.has_max = bt_below(2) != 0;
        c.flags = REF_MAY_BE_ZERO;
        if (bt_below(3) == 0 && c.o.dropout_p == 0 && c.scale == 0 && values != 2 && !c.o.relative_bias && !c.o.slopes &&
            !(c.o.key_padding_mask && c.o.key_padding_mode == BSR_MASK_ADD)) {
            const int64_t bad = bt_below(lk); /* forbidden to some; no probability is too small */
            int64_t item, i;
            for (item = 0; item < t_items(&bk); item++)
                for (i = 0; i < dv; i++) t_set(&c.v, item, bad, i, i % 2 ? (double)NAN : (double)INFINITY);
        }
        run_attention(&c);
    }
}
/* A float mask's values do not count unless a flag says so; a pattern-only mask needs none. */
TEST(mask_pattern_only) {
    int k;
    for (k = 0; k < 8; k++) {
        attention c;
        t_spec s;
        bt_case("%d", k);
        s = t_spec_of(BSR_F32, 5, 7, 4, 4, 9), s.pattern_only = k & 1;
        c = attention_new(&s, dtypes[k / 2], 20, 28, 9, 11, NO_BATCH, NO_BATCH, dtypes[k / 2]);
        run_attention(&c);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"upstream_attention", upstream_attention},
        {"each_option", each_option},
        {"combined", combined},
        {"sizes", sizes},
        {"running_maximum", running_maximum},
        {"philox_vectors", philox_vectors},
        {"dropout_mask", dropout_mask},
        {"composition", composition},
        {"edges", edges},
        {"forbidden_nan", forbidden_nan},
        {"mask_corners", mask_corners},
        {"tiles", tiles},
        {"tiles_and_options", tiles_and_options},
        {"mask_pattern_only", mask_pattern_only},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
