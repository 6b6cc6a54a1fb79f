/* test_sampled.c: sampled_addmm against the float64 reference. (SDD of matmul is in test_product.c.) */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};

typedef struct sampled {
    const bsr_context *ctx;
    double beta, alpha;
    bsr_matrix input, out;
    int has_input, flags;
    unsigned exec_flags;
    bsr_dense mat1, mat2;
} sampled;

static void run_sampled(const sampled *c) {
    bsr_exec e = t_exec(c->exec_flags);
    t_shape batch = t_matrix_batch(&c->out);
    const bsr_matrix *in = c->has_input ? &c->input : NULL;
    ref_result want = ref_sampled(c->beta, in, c->alpha, &c->mat1, &c->mat2, batch, batch, c->out.dtype, c->exec_flags);
    if (RUN_OK(bsr_sampled_addmm(c->ctx, c->beta, in, c->alpha, &c->mat1, &c->mat2, &c->out, &e)))
        REF_COMPARE_MATRIX(&c->out, &want, c->flags);
}
/* input with pattern s, an output of the same pattern, random mat1 and mat2 with inner size k. */
static sampled sampled_new(const t_spec *s, int64_t k, int out_dtype, t_shape batch) {
    sampled c;
    memset(&c, 0, sizeof c);
    c.ctx = t_any_context(), c.alpha = 1, c.has_input = 1;
    c.input = t_matrix(s);
    c.out = t_matrix_output(&c.input, out_dtype, (int)bt_below(BLOCKS_LAYOUTS));
    c.mat1 = t_random(s->dtype, c.input.rows, k, (int)bt_below(LAYOUTS), batch, 0, s->kind);
    c.mat2 = t_random(s->dtype, k, c.input.cols, (int)bt_below(LAYOUTS), batch, 0, s->kind);
    return c;
}

/* upstream.md 6.1, test_triton_sampled_addmm: block-triangular patterns, K odd, alpha and beta 0 or 2 */
TEST(upstream_sampled_addmm) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
    static const int64_t sizes[] = {32, 64, 0}, inner[] = {29, 61, 0};
    int x, y, m, n, k, ab;
    for (x = 0; x < 3; x++)
        for (y = 0; y < 3; y++)
            for (m = 0; m < 3; m++)
                for (n = 0; n < 3; n++)
                    for (k = 0; k < 3; k++)
                        for (ab = 0; ab < 4; ab++) {
                            sampled c;
                            t_spec s;
                            t_shape whole, bx = t_batch(x, 2, 2, 0, 0), by = t_batch(y, 2, 2, 0, 0);
                            bt_case("batches %d %d, %lld x %lld x %lld, alpha %d, beta %d", x, y, (long long)sizes[m],
                                    (long long)inner[k], (long long)sizes[n], ab & 1 ? 2 : 0, ab & 2 ? 2 : 0);
                            s = t_spec_of(types[bt_below(3)], 16, 16, sizes[m] / 16, sizes[n] / 16,
                                        sizes[m] * sizes[n] / 256 * 5 / 8);
                            s.kind = FILL_POSITIVE, whole = t_join(bx, by), s.batch = whole,
                            s.shared_pattern = (unsigned)bt_below(4);
                            c = sampled_new(&s, inner[k], s.dtype, bx);
                            c.mat2 = t_random(s.dtype, inner[k], c.out.cols, (int)bt_below(LAYOUTS), by, 0, FILL_POSITIVE);
                            c.alpha = ab & 1 ? 2 : 0, c.beta = ab & 2 ? 2 : 0;
                            if (!(ab & 2) && (!(ab & 1) || !inner[k])) c.flags = REF_ALL_ZERO;
                            run_sampled(&c);
                        }
}

TEST(sizes) {
    static const int64_t blocks[][2] = {{1, 1}, {2, 3}, {3, 3}, {5, 7}, {16, 32}, {33, 65}, {100, 3}, {64, 64}, {8, 40}};
    static const int64_t inner[] = {0, 1, 2, 3, 7, 16, 17, 64, 65, 130};
    size_t b, k;
    int t;
    for (b = 0; b < BT_COUNT(blocks); b++)
        for (k = 0; k < BT_COUNT(inner); k++)
            for (t = 0; t < 5; t++) {
                sampled c;
                t_spec s;
                int isa;
                bt_case("%lldx%lld, K %lld, %s", (long long)blocks[b][0], (long long)blocks[b][1], (long long)inner[k],
                        bsr_dtype_name(dtypes[t]));
                s = t_spec_of(dtypes[t], blocks[b][0], blocks[b][1], bt_range(1, blocks[b][0] > 30 ? 2 : 6),
                            bt_range(1, blocks[b][1] > 30 ? 2 : 6), 0);
                s.nnz = bt_range(1, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = bt_below(3) == 0;
                c = sampled_new(&s, inner[k], dtypes[t] == BSR_I8 && bt_below(2) ? BSR_I32 : dtypes[t], NO_BATCH);
                c.beta = (double)bt_range(-1, 2), c.alpha = (double)bt_range(1, 3);
                if (c.beta == 0 && inner[k] == 0) c.flags = REF_ALL_ZERO;
                run_sampled(&c);
                for (isa = 1; isa <= 3 && dtypes[t] == BSR_F32 && k % 2; isa++)
                    if (t_context(isa)) c.ctx = t_context(isa), run_sampled(&c);
            }
}

TEST(types) {
    static const struct {
        int a, out;
    } pairs[] = {{BSR_F16, BSR_F16}, {BSR_F16, BSR_F32},  {BSR_BF16, BSR_BF16}, {BSR_BF16, BSR_F32}, {BSR_F32, BSR_F32},
                 {BSR_F32, BSR_F16}, {BSR_F32, BSR_BF16}, {BSR_F64, BSR_F64},   {BSR_I8, BSR_I32},   {BSR_I8, BSR_I8},
                 {BSR_I8, BSR_F16},  {BSR_I8, BSR_BF16},  {BSR_I8, BSR_F32}};
    static const int inputs[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_I8, BSR_I32};
    size_t p;
    int in, k;
    for (p = 0; p < BT_COUNT(pairs); p++)
        for (in = 0; in < 6; in++)
            for (k = 0; k < 3; k++) {
                sampled c;
                t_spec s;
                if (t_is_float(inputs[in]) != t_is_float(pairs[p].out)) continue;
                bt_case("%s to %s, input %s %d", bsr_dtype_name(pairs[p].a), bsr_dtype_name(pairs[p].out),
                        bsr_dtype_name(inputs[in]), k);
                s = t_spec_of(pairs[p].a, bt_range(1, 20), bt_range(1, 20), 3, 4, 7);
                c = sampled_new(&s, bt_range(1, 50), pairs[p].out, NO_BATCH);
                t_make_values(&c.input, inputs[in], k, 0), t_fill_values(&c.input, FILL_SIGNED);
                c.beta = (double)bt_range(-2, 2), c.alpha = (double)bt_range(1, 2);
                if (pairs[p].a == BSR_F32 && k) c.exec_flags = BSR_EXEC_ACCUMULATE_F64;
                run_sampled(&c);
            }
}

TEST(batches) {
    int k;
    for (k = 0; k < 150; k++) {
        sampled c;
        t_spec s;
        t_shape one, two, whole;
        int i, dims, type;
        bt_case("%d", k);
        type = dtypes[bt_below(5)], dims = (int)bt_range(1, 4);
        s = t_spec_of(type, bt_range(1, 6), bt_range(1, 6), bt_range(1, 4), bt_range(1, 4), bt_range(1, 6));
        one = t_batch((int)bt_range(0, dims), 1, 1, 1, 1), two = t_batch(dims, 1, 1, 1, 1);
        for (i = 1; i <= dims; i++) {
            int64_t n = bt_range(k % 30 == 29 ? 0 : 1, 3);
            if (i <= one.dims) one.n[one.dims - i] = bt_below(3) ? n : 1;
            two.n[dims - i] = bt_below(3) ? n : 1;
        }
        whole = t_join(one, two);
        s.batch = whole, s.ragged = bt_below(3) == 0, s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(16),
        s.layout = (int)bt_below(BLOCKS_LAYOUTS);
        c = sampled_new(&s, bt_range(0, 20), type == BSR_I8 ? BSR_I32 : type, one);
        c.mat2 = t_random(type, c.mat1.cols, c.out.cols, (int)bt_below(LAYOUTS), two, (unsigned)bt_below(16), FILL_SIGNED);
        c.beta = (double)bt_below(2);
        if (c.beta == 0 && !c.mat1.cols) c.flags = REF_ALL_ZERO;
        run_sampled(&c);
    }
}

/* What tensor cores take, with several items: of one pattern, of patterns of their own, ragged. */
TEST(batches_of_tiles) {
    static const int types[] = {BSR_BF16, BSR_F16};
    static const int64_t blocks[] = {16, 32, 64, 128};
    int k;
    for (k = 0; k < 48; k++) {
        const int type = types[k % 2];
        const int64_t b = blocks[k / 2 % 4];
        const int large = b > 32;
        const int64_t inner = large ? 32 : 32 * bt_range(1, 2);
        const t_shape batch = t_batch(large ? 1 : 1 + k / 8 % 2, 3, 2, 0, 0);
        sampled c;
        t_spec s = t_spec_of(type, b, b, 2, bt_range(2, 4), large ? 2 : 4);
        bt_case("%d: %s, blocks of %d", k, bsr_dtype_name(type), (int)b);
        s.batch = batch, s.ragged = k / 16 == 0, s.shared_pattern = k / 16 == 1;
        c = sampled_new(&s, inner, type, batch);
        c.mat1 = t_random(type, c.out.rows, inner, bt_below(2) ? COL : ROW, batch, 0, FILL_SIGNED);
        c.mat2 = t_random(type, inner, c.out.cols, bt_below(2) ? COL : ROW, batch, 0, FILL_SIGNED);
        c.beta = (double)bt_below(2);
        run_sampled(&c);
    }
}
TEST(exact_integers) {
    int k, isa;
    for (k = 0; k < 60; k++)
        for (isa = 1; isa <= 3; isa++) {
            sampled c;
            t_spec s;
            bsr_exec e = t_exec(0);
            ref_result want;
            int type = dtypes[k % 5];
            bt_case("%d", k);
            s = t_spec_of(type, bt_range(1, 34), bt_range(1, 34), 3, 3, 5), s.kind = type == BSR_I8 ? FILL_WIDE : FILL_INTEGER;
            c = sampled_new(&s, bt_range(1, 90), type == BSR_I8 ? (k % 2 ? BSR_I32 : BSR_I8) : type, NO_BATCH);
            c.ctx = t_context(isa), c.beta = (double)bt_range(-2, 2);
            if (!c.ctx) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            want = ref_sampled(c.beta, &c.input, 1, &c.mat1, &c.mat2, t_matrix_batch(&c.out), t_matrix_batch(&c.out), c.out.dtype,
                               0);
            memset(want.bound.v, 0, (size_t)(want.bound.rows * want.bound.cols) * sizeof(double));
            if (RUN_OK(bsr_sampled_addmm(c.ctx, c.beta, &c.input, 1, &c.mat1, &c.mat2, &c.out, &e)))
                REF_COMPARE_MATRIX(&c.out, &want, 0);
        }
}

TEST(nan_rules) {
    int t;
    for (t = 0; t < 4; t++) {
        sampled c;
        t_spec s;
        int type = dtypes[t];
        bt_case("alpha 0 reads neither factor: %s", bsr_dtype_name(type));
        s = t_spec_of(type, 3, 4, 4, 4, 7);
        c = sampled_new(&s, 9, type, NO_BATCH);
        c.alpha = 0, c.beta = 2;
        memset(bt_find(c.mat1.data)->data, BT_POISON, bt_find(c.mat1.data)->bytes);
        memset(bt_find(c.mat2.data)->data, BT_POISON, bt_find(c.mat2.data)->bytes);
        run_sampled(&c);
        bt_case("beta 0 does not read input's values: %s", bsr_dtype_name(type));
        c = sampled_new(&s, 9, type, NO_BATCH);
        memset(bt_find(c.input.values)->data, BT_POISON, bt_find(c.input.values)->bytes);
        run_sampled(&c);
        c.input.values = NULL; /* pattern only */
        run_sampled(&c);
        c.has_input = 0;
        run_sampled(&c);
        bt_case("a boolean mask: %s", bsr_dtype_name(type));
        s.dtype = type, c = sampled_new(&s, 9, type, NO_BATCH);
        t_make_values(&c.input, BSR_BOOL, PACKED, 0), t_fill_values(&c.input, FILL_BOOL);
        run_sampled(&c);
        bt_case("K = 0: %s", bsr_dtype_name(type));
        c = sampled_new(&s, 0, type, NO_BATCH), c.beta = 1;
        run_sampled(&c);
        bt_case("no blocks: %s", bsr_dtype_name(type));
        s.nnz = 0, c = sampled_new(&s, 5, type, NO_BATCH), c.beta = 1;
        run_sampled(&c);
        bt_case("out is input: %s", bsr_dtype_name(type));
        s.nnz = 9, s.layout = t, c = sampled_new(&s, 13, type, NO_BATCH);
        c.out = c.input, c.beta = 1, bt_mark_output(c.out.values);
        run_sampled(&c);
        bt_case("NaN and Inf in the factors: %s", bsr_dtype_name(type));
        s.nnz = 16, c = sampled_new(&s, 6, type, NO_BATCH);
        t_set(&c.mat1, 0, 1, 2, (double)NAN), t_set(&c.mat1, 0, 7, 0, (double)INFINITY);
        run_sampled(&c);
    }
}
/* A full pattern gives the dense product; duplicates of a block all get the product. */
TEST(duplicates) {
    int k;
    for (k = 0; k < 20; k++) {
        sampled c;
        t_spec s;
        bt_case("%d", k);
        s = t_spec_of(dtypes[k % 4], bt_range(1, 9), bt_range(1, 9), 4, 5, 14), s.duplicates = s.unsorted = 1;
        c = sampled_new(&s, 11, s.dtype, NO_BATCH);
        run_sampled(&c);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"upstream_sampled_addmm", upstream_sampled_addmm},
        {"sizes", sizes},
        {"types", types},
        {"batches", batches},
        {"batches_of_tiles", batches_of_tiles},
        {"exact_integers", exact_integers},
        {"nan_rules", nan_rules},
        {"duplicates", duplicates},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    if (bt.verbose) printf("largest error / bound: %.3g\n", ref_worst);
    t_contexts_end();
    return failed;
}
