/* test_product.c: dense_addmm, dense_mm, scatter_mm, matmul and its backward against the float64 reference. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};
static const t_shape no_batch = {0, {0, 0, 0, 0}};
/* The last instruction set that does something of its own for this type. */
static int last_isa(int dtype) { return dtype == BSR_BF16 || dtype == BSR_I8 ? (int)T_ISAS : (int)BSR_ISA_AVX512; }

/* ---------------------------------------------------------------------------------------------- */
/* dense_addmm                                                                                    */
/* ---------------------------------------------------------------------------------------------- */

typedef struct addmm {
    const bsr_context *ctx;
    double beta, alpha;
    const bsr_dense *input;
    const bsr_epilogue *epilogue;
    bsr_matrix a;
    bsr_dense b, out;
    unsigned trans, exec_flags;
    int flags; /* of ref_compare */
} addmm;

static void run_addmm(const addmm *c) {
    bsr_exec e = t_exec(c->exec_flags);
    ref_result want =
        ref_dense_addmm(c->beta, c->input, c->alpha, c->trans, &c->a, &c->b, c->epilogue, c->out.dtype, c->exec_flags);
    if (RUN_OK(bsr_dense_addmm(c->ctx, c->beta, c->input, c->alpha, c->trans, &c->a, &c->b, c->epilogue, &c->out, &e)))
        REF_COMPARE(&c->out, &want, c->flags);
}
static addmm addmm_new(void) {
    addmm c;
    memset(&c, 0, sizeof c);
    c.ctx = t_any_context(), c.alpha = 1;
    return c;
}
/* Everything of a and b at random but what the arguments say. */
static void random_operands(addmm *c, int dtype, int64_t br, int64_t bc, int64_t r, int64_t cols, int64_t n, int64_t nnz,
                            int kind) {
    t_spec s = t_spec_of(dtype, br, bc, r, cols, nnz);
    s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = kind;
    s.unsorted = bt_below(3) == 0, s.duplicates = bt_below(4) == 0;
    c->a = t_matrix(&s);
    c->b = t_random(dtype, c->trans ? c->a.rows : c->a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, kind);
}
static void output_for(addmm *c, int dtype, int layout) {
    c->out =
        t_output(dtype, c->trans ? c->a.cols : c->a.rows, c->b.cols, layout, t_join(t_matrix_batch(&c->a), t_dense_batch(&c->b)));
}

/* upstream.md 6.1, test_triton_kernel */
TEST(upstream_triton_kernel) {
    static const int64_t blocks[][2] = {{16, 16}, {16, 32}, {32, 32}};
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_I8};
    static const int64_t widths[] = {16, 32, 64};
    int t, k, beta, alpha, s, sides, strided;
    for (t = 0; t < 4; t++)
        for (k = 0; k < 3; k++)
            for (beta = 0; beta < 3; beta++)
                for (alpha = 0; alpha < 3; alpha++)
                    for (s = 0; s < 3; s++)
                        for (sides = 0; sides < 4; sides++) {
                            addmm c;
                            int64_t r, cols, n;
                            int type = types[t], wide;
                            t_spec spec;
                            bsr_dense input, left, right;
                            bsr_epilogue e;
                            bt_case("%s, blocks %d, beta %d, alpha %d, sparsity %d/2, scales %d", bsr_dtype_name(type), k, beta,
                                    alpha, s, sides);
                            c = addmm_new();
                            r = bt_range(1, 2), cols = bt_range(1, 2), n = widths[bt_below(3)];
                            strided = (int)bt_below(2), wide = type == BSR_I8 && bt_below(2);
                            spec = t_spec_of(type, blocks[k][0], blocks[k][1], r, cols, r * cols * (2 - s) / 2);
                            spec.kind = FILL_POSITIVE, spec.layout = strided ? BLOCKS_GAPS : PACKED;
                            c.a = t_matrix(&spec);
                            c.b = t_random(type, c.a.cols, n, strided ? STRIDED : ROW, NO_BATCH, 0, FILL_POSITIVE);
                            input =
                                t_random(wide ? BSR_I32 : type, c.a.rows, n, strided ? STRIDED : ROW, NO_BATCH, 0, FILL_POSITIVE);
                            left = t_random(wide ? BSR_I32 : type, c.a.rows, 1, ROW, NO_BATCH, 0, FILL_POSITIVE);
                            right = t_random(wide ? BSR_I32 : type, 1, n, ROW, NO_BATCH, 0, FILL_POSITIVE);
                            memset(&e, 0, sizeof e);
                            if (sides & 1) e.left_alpha = &left;
                            if (sides & 2) e.right_alpha = &right;
                            c.beta = beta, c.alpha = alpha, c.input = &input, c.epilogue = &e;
                            if (!beta && (!alpha || !c.a.nnz)) c.flags = REF_ALL_ZERO;
                            output_for(&c, wide ? BSR_I32 : type, ROW);
                            run_addmm(&c);
                        }
}

/* upstream.md 6.1, test_triton_kernel's bsr_dense_linear: x W^T + bias as the transposed problem */
TEST(upstream_linear) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
    int t, k;
    for (t = 0; t < 3; t++)
        for (k = 0; k < 9; k++) {
            addmm c;
            t_spec s;
            bsr_dense x, bias;
            bt_case("%s %d", bsr_dtype_name(types[t]), k);
            c = addmm_new();
            s = t_spec_of(types[t], k % 3 ? 16 : 32, k % 3 ? 16 : 32, bt_range(1, 3), bt_range(1, 3), k / 3 * 2);
            s.kind = FILL_POSITIVE;
            c.a = t_matrix(&s);
            x = t_random(types[t], k == 4 ? 1 : 16 * bt_range(1, 4), c.a.cols, ROW, NO_BATCH, 0, FILL_POSITIVE);
            bias = t_random(types[t], c.a.rows, 1, ROW, NO_BATCH, 0, FILL_POSITIVE);
            c.b = bsr_dense_transposed(x), c.input = &bias, c.beta = 1;
            output_for(&c, types[t], COL);
            run_addmm(&c);
        }
}

/* upstream.md 6.1, test_triton_bsr_dense_bmm */
TEST(upstream_dense_bmm) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
    static const int64_t sizes[] = {32, 64, 0};
    t_shape batches[3];
    int x, y, m, n, k;
    batches[0] = t_batch(0, 0, 0, 0, 0), batches[1] = t_batch(1, 2, 0, 0, 0), batches[2] = t_batch(2, 2, 2, 0, 0);
    for (x = 0; x < 3; x++)
        for (y = 0; y < 3; y++)
            for (m = 0; m < 3; m++)
                for (n = 0; n < 3; n++)
                    for (k = 0; k < 3; k++) {
                        addmm c;
                        t_spec s;
                        bsr_exec e = t_exec(0);
                        ref_result want;
                        int type;
                        bt_case("batches %d %d, %lld x %lld x %lld", x, y, (long long)sizes[m], (long long)sizes[k],
                                (long long)sizes[n]);
                        c = addmm_new(), type = types[bt_below(3)];
                        s = t_spec_of(type, 16, 16, sizes[m] / 16, sizes[k] / 16, sizes[m] * sizes[k] / 512);
                        s.batch = batches[x], s.kind = FILL_POSITIVE;
                        c.a = t_matrix(&s);
                        c.b = t_random(type, sizes[k], sizes[n], (int)bt_below(2), batches[y], 0, FILL_POSITIVE);
                        output_for(&c, type, (int)bt_below(2));
                        want = ref_dense_addmm(0, NULL, 1, 0, &c.a, &c.b, NULL, type, 0);
                        if (RUN_OK(bsr_dense_mm(c.ctx, 0, &c.a, &c.b, &c.out, &e)))
                            REF_COMPARE(&c.out, &want, c.a.nnz ? 0 : REF_ALL_ZERO);
                    }
}
/* the same test's `orthogonal` inputs: [A 0] [0; D] is exactly zero */
TEST(upstream_orthogonal) {
    int t, k;
    for (t = 0; t < 5; t++)
        for (k = 0; k < 3; k++) {
            addmm c;
            int64_t i, j, p, half;
            bt_case("%s %d", bsr_dtype_name(dtypes[t]), k);
            c = addmm_new();
            random_operands(&c, dtypes[t], 8 << k, 8 << k, 3, 4, 20, 12, FILL_SIGNED);
            half = c.a.cols / 2;
            for (i = 0; i < half; i++)
                for (j = 0; j < 20; j++) t_set(&c.b, 0, i, j, 0);
            for (p = 0; p < c.a.nnz; p++)
                for (i = 0; i < c.a.block_rows && t_col(&c.a, 0, p) >= 2; i++)
                    for (j = 0; j < c.a.block_cols; j++) t_store(c.a.values, c.a.dtype, t_value_at(&c.a, 0, p, i, j), 0);
            output_for(&c, dtypes[t] == BSR_I8 ? BSR_I32 : dtypes[t], ROW);
            c.flags = REF_ALL_ZERO;
            run_addmm(&c);
            for (i = 0; i < c.out.rows; i++)
                for (j = 0; j < 20; j++) CHECK(t_get(&c.out, 0, i, j) == 0);
        }
}

/* upstream.md 6.1, test_block_addmm and test_block_addmv */
TEST(upstream_block_addmm) {
    static const int types[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};
    static const int64_t sizes[] = {2, 5};
    int t, block, index, strided, m, n, k;
    for (t = 0; t < 4; t++)
        for (block = 2; block <= 3; block++)
            for (index = 0; index < 4; index++)
                for (m = 0; m < 2; m++)
                    for (k = 0; k < 2; k++)
                        for (n = 0; n < 3; n++) {
                            addmm c;
                            t_spec s;
                            bsr_dense input;
                            bt_case("%s, block %d, form %d, %d %d %d", bsr_dtype_name(types[t]), block, index, m, k, n);
                            c = addmm_new(), strided = index / 2;
                            s = t_spec_of(types[t], block, block, sizes[m], sizes[k], bt_range(0, sizes[m] * sizes[k]));
                            s.index_dtype = index % 2 ? BSR_I64 : BSR_I32, s.layout = strided ? BLOCKS_COL : PACKED;
                            c.a = t_matrix(&s);
                            c.b = t_random(types[t], c.a.cols, n == 2 ? 1 : block * sizes[n], strided ? STRIDED : ROW, NO_BATCH,
                                           0, FILL_SIGNED);
                            input = t_random(types[t], c.a.rows, c.b.cols, strided ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                            c.input = &input, c.alpha = t_draw(FILL_SIGNED, BSR_F64), c.beta = t_draw(FILL_SIGNED, BSR_F64);
                            output_for(&c, types[t], strided ? COL : ROW);
                            run_addmm(&c);
                        }
}

static const int64_t odd_blocks[][2] = {{1, 1},   {2, 3},   {3, 3},  {5, 7},  {6, 6},  {16, 32},
                                        {33, 65}, {100, 3}, {8, 64}, {64, 8}, {17, 16}};
static const int64_t widths[] = {0, 1, 2, 3, 7, 17, 64, 65, 130};

/* Any block size, any number of columns, A and A^T with and without its index, with a schedule. */
TEST(sizes) {
    size_t k, n;
    int t, trans;
    for (k = 0; k < BT_COUNT(odd_blocks); k++)
        for (n = 0; n < BT_COUNT(widths); n++)
            for (t = 0; t < 5; t++)
                for (trans = 0; trans < 2; trans++) {
                    addmm c;
                    int64_t r, cols;
                    int isa;
                    bt_case("%lldx%lld, N %lld, %s%s", (long long)odd_blocks[k][0], (long long)odd_blocks[k][1],
                            (long long)widths[n], bsr_dtype_name(dtypes[t]), trans ? ", transposed" : "");
                    c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
                    r = bt_range(1, odd_blocks[k][0] > 30 ? 3 : 7), cols = bt_range(1, odd_blocks[k][1] > 30 ? 3 : 7);
                    random_operands(&c, dtypes[t], odd_blocks[k][0], odd_blocks[k][1], r, cols, widths[n], bt_range(0, r * cols),
                                    FILL_SIGNED);
                    if (trans && bt_below(2)) t_attach_transposed(&c.a);
                    if (bt_below(2)) t_attach_schedule(&c.a, 1 << bt_below(4), trans);
                    output_for(&c, dtypes[t] == BSR_I8 && bt_below(2) ? BSR_I32 : dtypes[t], (int)bt_below(LAYOUTS));
                    c.flags = !c.a.nnz ? REF_ALL_ZERO : c.a.nnz < 3 ? REF_MAY_BE_ZERO : 0; /* blocks of 1 x 1 in i8 */
                    isa = (t == 0 || last_isa(dtypes[t]) == T_ISAS) && n % 2; /* all instruction sets */
                    run_addmm(&c);
                    for (; isa && isa <= last_isa(dtypes[t]); isa++)
                        if (t_context(isa)) c.ctx = t_context(isa), run_addmm(&c);
                }
}

/* Blocks whose sides are multiples of 16, square or not, which the GPU sees as tiles: what tensor cores take, A and A^T, rows of
   any length, in any order, with a schedule; what stands opposite to absent blocks does not count. */
TEST(blocks_of_tiles) {
    static const int64_t blocks[][2] = {{48, 48},  {96, 96},  {80, 80},  {192, 64}, {64, 128}, {128, 64}, {256, 128}, {16, 64},
                                        {64, 16},  {80, 48},  {96, 32},  {32, 160}, {144, 16}, {16, 32},  {384, 64},  {64, 192},
                                        {112, 96}, {32, 512}, {256, 256}};
    static const int types[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_I8};
    static const int64_t some_widths[] = {8, 40, 72, 136, 264};
    size_t k;
    int t, way;
    for (k = 0; k < BT_COUNT(blocks); k++)
        for (t = 0; t < 4; t++)
            for (way = 0; way < 4; way++) { /* bits: transposed, Inf and NaN */
                const int64_t br = blocks[k][0], bc = blocks[k][1], n = some_widths[bt_below(5)], r = bt_range(1, 300 / br + 2),
                              cols = bt_range(1, 300 / bc + 2);
                const int type = types[t], trans = way & 1;
                t_spec s = t_spec_of(type, br, bc, r, cols, bt_range(0, r * cols));
                addmm c;
                int i;
                bt_case("%lldx%lld, N %lld, %s, way %d", (long long)br, (long long)bc, (long long)n, bsr_dtype_name(type), way);
                c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
                s.layout = bt_below(2) ? PACKED : (int)bt_range(BLOCKS_COL, BLOCKS_COL_WIDE);
                s.unsorted = bt_below(3) == 0, s.kind = FILL_SIGNED;
                s.duplicates = !(way & 2) && bt_below(4) == 0; /* the reference adds them up first: Inf - Inf would be Inf */
                c.a = t_matrix(&s);
                c.b = t_random(type, trans ? c.a.rows : c.a.cols, n, bt_below(2) ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                for (i = 0; i < 4 && way & 2 && type != BSR_I8 && c.b.rows; i++)
                    t_set(&c.b, 0, bt_range(0, c.b.rows - 1), bt_range(0, n - 1), i % 2 ? (double)NAN : (double)INFINITY);
                if (trans) t_attach_transposed(&c.a);
                if (bt_below(2)) t_attach_schedule(&c.a, 1 << bt_below(4), trans);
                output_for(&c, type == BSR_I8 ? BSR_I32 : type, bt_below(2) ? COL : ROW);
                c.flags = c.a.nnz ? 0 : REF_ALL_ZERO;
                run_addmm(&c);
            }
}

/* Long rows: many blocks, column tiles that do not divide, deep sums. */
TEST(long_rows) {
    static const int64_t blocks[][2] = {{1, 1}, {3, 3}, {16, 16}, {32, 32}, {64, 64}, {4, 16}, {128, 128}};
    int k, t, trans;
    for (k = 0; k < 7; k++)
        for (t = 0; t < 4; t++)
            for (trans = 0; trans < 2; trans++) {
                addmm c;
                int64_t r = k == 6 ? 2 : 128 / blocks[k][0] + 1, cols = k == 6 ? 3 : 300 / blocks[k][1] + 1;
                bt_case("%lldx%lld, %s%s", (long long)blocks[k][0], (long long)blocks[k][1], bsr_dtype_name(dtypes[t]),
                        trans ? ", transposed" : "");
                c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
                random_operands(&c, dtypes[t], blocks[k][0], blocks[k][1], r, cols, bt_range(20, 45), r * cols / 3,
                                t == 3 ? FILL_POSITIVE : FILL_WIDE);
                if (trans) t_attach_transposed(&c.a);
                output_for(&c, dtypes[t], t % 2 ? COL : ROW);
                run_addmm(&c);
                if (dtypes[t] == BSR_F64) continue;
                c.exec_flags = BSR_EXEC_ACCUMULATE_F64;
                output_for(&c, BSR_F32, ROW);
                run_addmm(&c);
            }
}

/* The GPU's tiles are 128 rows high and 128 or 256 columns wide: sizes around their edges, rows without blocks, fused epilogues,
   NaN in dense rows that only some block rows refer to. */
TEST(tile_edges) {
    static const int64_t columns[] = {8, 33, 72, 128, 264};
    static const int types[] = {BSR_BF16, BSR_F16};
    int64_t i, j, r, cols;
    int k, n, t, form;
    for (k = 16; k <= 128; k *= 2)
        for (n = 0; n < 5; n++)
            for (form = 0; form < 4; form++) { /* bit 0: transposed, bit 1: dense operands column-major */
                addmm c;
                bsr_dense input, bias, left;
                bsr_epilogue e;
                t = types[(n + form + k / 32) % 2];
                bt_case("%d, N %lld, %s, form %d", k, (long long)columns[n], bsr_dtype_name(t), form);
                c = addmm_new(), c.trans = form & 1 ? BSR_TRANS_A : 0;
                r = bt_range(1, 9 - k / 20), cols = bt_range(2, 8 - k / 20);
                random_operands(&c, t, k, k, r, cols, columns[n], bt_range(1, r * cols), FILL_SIGNED);
                c.b = t_random(t, form & 1 ? c.a.rows : c.a.cols, columns[n], form & 2 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                if (form & 1) t_attach_transposed(&c.a);
                if (bt_below(2)) t_attach_schedule(&c.a, 1 << bt_below(4), form & 1);
                output_for(&c, n % 3 == 2 ? BSR_F32 : t, (form & 2) != 0 ? COL : ROW);
                run_addmm(&c);
                if (n % 2 == form % 2) continue;
                for (i = 0; i < c.b.rows && n < 3; i += k + 7)
                    for (j = 0; j < c.b.cols; j += 5) t_set(&c.b, 0, i, j, (double)NAN);
                input = t_random(BSR_F32, c.out.rows, c.out.cols, form & 2 ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(t, 1, c.out.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
                left = t_random(t, c.out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                e.bias = &bias, e.left_alpha = &left, e.right_alpha = &bias;
                e.activation = n == 3 ? BSR_ACT_RELU : n == 4 ? BSR_ACT_SILU : BSR_ACT_NONE;
                c.epilogue = &e, c.input = &input, c.beta = -2, c.alpha = 0.5;
                output_for(&c, t, bt_below(4) ? (form & 2 ? COL : ROW) : STRIDED);
                run_addmm(&c);
            }
}

/* One to 17 columns, block sides from 1 to 20, primes and those around vectors' ends, rectangular: every type, layout and
   instruction set; A^T with its index and without, then with the workspace that a query names, too. */
static void run_few(addmm *c) {
    bsr_exec e = t_exec(c->exec_flags);
    bsr_plan plan;
    ref_result want;
    int isa;
    run_addmm(c);
    for (isa = 1; isa <= last_isa(c->a.dtype); isa++)
        if (t_context(isa)) c->ctx = t_context(isa), run_addmm(c);
    if (!c->trans || c->a.transposed_index) return;
    e.query = &plan;
    CHECK_INT(bsr_dense_addmm(c->ctx, c->beta, c->input, c->alpha, c->trans, &c->a, &c->b, c->epilogue, &c->out, &e), BSR_OK);
    e = t_exec(c->exec_flags), e.workspace_bytes = plan.workspace_bytes;
    e.workspace = bt_alloc(plan.workspace_bytes + 64, 64), bt_mark_output(e.workspace);
    want = ref_dense_addmm(c->beta, c->input, c->alpha, c->trans, &c->a, &c->b, c->epilogue, c->out.dtype, c->exec_flags);
    if (RUN_OK(bsr_dense_addmm(c->ctx, c->beta, c->input, c->alpha, c->trans, &c->a, &c->b, c->epilogue, &c->out, &e)))
        REF_COMPARE(&c->out, &want, c->flags);
}
TEST(few_columns_cpu) {
    static const int64_t sides[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                    17, 18, 19, 20, 23, 31, 33, 37, 63, 64, 65, 67, 97, 127, 128};
    size_t k;
    int64_t n;
    int form;
    for (k = 0; k < BT_COUNT(sides); k++)
        for (n = 1; n <= 17; n++)
            for (form = 0; form < 3; form++) { /* A, A^T without its index, with it */
                addmm c = (bt_case("blocks of %lld rows, N %lld, form %d", (long long)sides[k], (long long)n, form), addmm_new());
                const int type = dtypes[bt_below(5)];
                const int64_t other = bt_below(3) ? sides[bt_below(BT_COUNT(sides))] : sides[k];
                const int64_t large = sides[k] > other ? sides[k] : other;
                const int64_t r = bt_range(1, large > 30 ? 3 : 12), cols = bt_range(1, large > 30 ? 3 : 12);
                t_spec s = t_spec_of(type, sides[k], other, r, cols, bt_range(1, r * cols));
                bsr_dense input, bias;
                bsr_epilogue e;
                c.trans = form ? BSR_TRANS_A : 0;
                s.layout = (int)bt_below(2) ? PACKED : (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_SIGNED;
                s.unsorted = bt_below(3) == 0, s.duplicates = bt_below(4) == 0;
                if (bt_below(4) == 0) s.batch = t_batch(1, 2, 0, 0, 0), s.ragged = (int)bt_below(2);
                c.a = t_matrix(&s);
                c.b = t_random(type, c.trans ? c.a.rows : c.a.cols, n, (int)bt_below(LAYOUTS),
                               bt_below(4) ? NO_BATCH : t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
                if (form == 2) t_attach_transposed(&c.a);
                if (bt_below(5) == 0) t_attach_schedule(&c.a, 1 << bt_below(3), form != 0);
                if (type != BSR_I8 && bt_below(5) == 0) c.exec_flags = BSR_EXEC_ACCUMULATE_F64;
                output_for(&c, type == BSR_I8 && bt_below(2) ? BSR_I32 : type, (int)bt_below(LAYOUTS));
                c.flags = REF_MAY_BE_ZERO;
                run_few(&c);
                if (type == BSR_I8 || bt_below(2)) continue;
                input = t_random(type, c.out.rows, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(type, c.out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e), e.bias = &bias, e.activation = BSR_ACT_SILU;
                c.input = &input, c.epilogue = &e, c.alpha = 0.5, c.beta = -2;
                output_for(&c, type, (int)bt_below(LAYOUTS));
                run_few(&c);
            }
}
/* Few columns of lines longer than what is packed at once, and of A^T by its index with more values than caches hold: right, and
   the same bits for any number of threads. */
TEST(few_columns_long) {
    static const int64_t shapes[][5] = {/* block, rows and columns of blocks, stored */
                                        {1, 1, 3, 4000, 9000}, {2, 2, 2, 1500, 2400}, {3, 3, 40, 90, 2000}, {5, 3, 3, 400, 900},
                                        {8, 8, 50, 60, 2200},  {1, 7, 2, 900, 1300},  {7, 1, 2, 900, 1300}};
    static const int threads[] = {1, 2, 5};
    static const int widths[] = {1, 4, 8, 16};
    bsr_context *ctx[3];
    size_t k, i;
    int t, n, way;
    for (i = 0; i < BT_COUNT(threads); i++) {
        bsr_context_desc d = BSR_ZERO;
        d.backend = BSR_BACKEND_CPU, d.threads = threads[i];
        CHECK_INT(bsr_create(&d, &ctx[i], NULL), BSR_OK);
    }
    for (k = 0; k < BT_COUNT(shapes); k++)
        for (t = 0; t < 5; t++)
            for (n = 0; n < 4; n++)
                for (way = 0; way < 2; way++) { /* A, A^T by its index */
                    addmm c = (bt_case("%lldx%lld, %s, N %d, way %d", (long long)shapes[k][0], (long long)shapes[k][1],
                                       bsr_dtype_name(dtypes[t]), widths[n], way), addmm_new());
                    const int type = dtypes[t], out = type == BSR_I8 ? BSR_I32 : type;
                    const int64_t *w = shapes[k];
                    t_spec s = t_spec_of(type, w[way], w[1 - way], w[2 + way], w[3 - way], w[4]);
                    bsr_exec e = t_exec(0);
                    bsr_dense first;
                    ref_result want;
                    s.kind = FILL_SIGNED, c.a = t_matrix(&s), c.trans = way ? BSR_TRANS_A : 0;
                    if (way) t_attach_transposed(&c.a);
                    c.b = t_random(type, way ? c.a.rows : c.a.cols, widths[n], bt_below(2) ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                    want = ref_dense_addmm(0, NULL, 1, c.trans, &c.a, &c.b, NULL, out, 0);
                    output_for(&c, out, ROW), first = c.out;
                    for (i = 0; i < BT_COUNT(threads); i++) {
                        output_for(&c, out, ROW);
                        if (!i) first = c.out;
                        if (!RUN_OK(bsr_dense_mm(ctx[i], c.trans, &c.a, &c.b, &c.out, &e))) continue;
                        if (!i) REF_COMPARE(&c.out, &want, REF_MAY_BE_ZERO);
#if !defined BSRI_CHOOSERS && !defined GM_BACKEND /* beside the CPU plans are drawn */
                        else CHECK(!memcmp(first.data, c.out.data, (size_t)(c.out.rows * widths[n]) * bsr_dtype_size(out)));
#endif
                    }
                }
    for (i = 0; i < BT_COUNT(threads); i++) bsr_destroy(ctx[i]);
}
/* A^T without its index, of matrices that are worth parts of sums and pieces of out: the same bits for any number of threads,
   with a workspace and without, also where out is the input; the logger is told once per key. */
static int told;
static void count_warning(int level, int item, const char *message, void *user) {
    told += level == BSR_LOG_WARN && item == BSR_ITEM_SLOW_TRANSPOSE && message[0] != 0;
    (void)user;
}
TEST(transposed_without_index) {
    static const int64_t blocks[][2] = {{1, 1}, {3, 3}, {2, 5}, {16, 8}, {40, 70}};
    static const int threads[] = {1, 2, 3, 7};
    bsr_context *ctx[4];
    int k, t, n, way, i;
    told = 0;
    for (k = 0; k < 5; k++) {
        for (i = 0; i < 4; i++) { /* a context tells of 64 keys at most */
            bsr_context_desc d = BSR_ZERO;
            d.backend = BSR_BACKEND_CPU, d.threads = threads[i], d.logger.func = count_warning;
            CHECK_INT(bsr_create(&d, &ctx[i], NULL), BSR_OK);
        }
        for (t = 0; t < 5; t++)
            for (n = 1; n <= 3; n++)
                for (way = 0; way < 3; way++) { /* plain, with a workspace, in place */
                    addmm c = (bt_case("%lldx%lld, %s, N %d, way %d", (long long)blocks[k][0], (long long)blocks[k][1],
                                       bsr_dtype_name(dtypes[t]), n, way), addmm_new());
                    const int64_t r = k < 3 ? 150 : 14, each = k < 3 ? 5000 : 60;
                    const int type = dtypes[t], out = type == BSR_I8 ? BSR_I32 : type;
                    t_spec s = t_spec_of(type, blocks[k][0], blocks[k][1], r, r + 3, each);
                    bsr_exec e = t_exec(0);
                    bsr_plan plan;
                    bsr_dense first;
                    ref_result want;
                    const int before = told;
                    s.kind = FILL_POSITIVE, s.unsorted = n == 2, c.trans = BSR_TRANS_A, c.a = t_matrix(&s), c.ctx = ctx[0];
                    c.b = t_random(type, c.a.rows, n, n == 3 ? COL : ROW, NO_BATCH, 0, FILL_POSITIVE);
                    output_for(&c, out, n == 3 ? COL : ROW), first = c.out;
                    if (way == 1) {
                        e.query = &plan;
                        CHECK_INT(bsr_dense_mm(c.ctx, c.trans, &c.a, &c.b, &c.out, &e), BSR_OK);
                        e = t_exec(0), e.workspace_bytes = plan.workspace_bytes;
                        e.workspace = bt_alloc(plan.workspace_bytes + 64, 64);
                        bt_mark_output(e.workspace);
                    }
                    for (i = 0; i < 4; i++) {
                        output_for(&c, out, n == 3 ? COL : ROW);
                        if (way == 2) {
                            const bsr_dense keep = t_random(out, c.out.rows, n, n == 3 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                            int64_t x, y;
                            if (i) break;
                            c.out = keep, c.input = &c.out, c.beta = 2;
                            want = ref_dense_addmm(c.beta, c.input, c.alpha, c.trans, &c.a, &c.b, NULL, out, 0);
                            CHECK_INT(bsr_dense_addmm(ctx[2], 2, &c.out, 1, c.trans, &c.a, &c.b, NULL, &c.out, &e), BSR_OK);
                            for (x = 0; x < c.out.rows; x++)
                                for (y = 0; y < n; y++) CHECK(t_get(&c.out, 0, x, y) == t_get(&c.out, 0, x, y));
                            REF_COMPARE(&c.out, &want, 0);
                            continue;
                        }
                        CHECK_INT(bsr_dense_mm(ctx[i], c.trans, &c.a, &c.b, &c.out, &e), BSR_OK);
                        if (!i) {
                            want = ref_dense_addmm(0, NULL, 1, c.trans, &c.a, &c.b, NULL, out, 0);
                            REF_COMPARE(&c.out, &want, 0);
                            first = c.out;
                        } else {
                            CHECK(!memcmp(first.data, c.out.data, (size_t)(c.out.rows * n) * bsr_dtype_size(out)));
                        }
                    }
                    if (way == 0) CHECK_INT(told - before, 4);
                    else if (way == 1) CHECK_INT(told - before, 0);
                }
        for (i = 0; i < 4; i++) bsr_destroy(ctx[i]);
    }
}

/* f32 as it is, as TF32 and as three TF32 products, where a backend has them: no error beyond what their definitions allow. */
TEST(f32_precisions) {
    static const unsigned precisions[] = {0, BSR_EXEC_TF32, BSR_EXEC_TF32X3};
    static const int64_t columns[] = {8, 60, 140, 300};
    int k, n, form, p;
    for (k = 16; k <= 128; k *= 2)
        for (n = 0; n < 4; n++)
            for (form = 0; form < 4; form++) { /* bit 0: transposed, bit 1: dense operands column-major */
                const int64_t r = bt_range(1, 9 - k / 20), cols = bt_range(1, 8 - k / 20);
                addmm c;
                bsr_dense input, bias;
                bsr_epilogue e;
                bt_case("%d, N %lld, form %d", k, (long long)columns[n], form);
                c = addmm_new(), c.trans = form & 1 ? BSR_TRANS_A : 0;
                random_operands(&c, BSR_F32, k, k, r, cols, columns[n], bt_range(1, r * cols), FILL_SIGNED);
                c.b =
                    t_random(BSR_F32, form & 1 ? c.a.rows : c.a.cols, columns[n], form & 2 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                if (form & 1) t_attach_transposed(&c.a);
                for (p = 0; p < 3; p++) {
                    c.exec_flags = precisions[p];
                    output_for(&c, BSR_F32, (form & 2) != 0 ? COL : ROW);
                    run_addmm(&c);
                }
                input = t_random(BSR_F32, c.out.rows, c.out.cols, form & 2 ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(BSR_F32, 1, c.out.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                e.bias = &bias, e.right_alpha = &bias, e.activation = n % 2 ? BSR_ACT_RELU : BSR_ACT_NONE;
                c.epilogue = &e, c.input = &input, c.beta = -2, c.alpha = 0.5, c.exec_flags = precisions[(n + form) % 3];
                output_for(&c, BSR_F32, bt_below(4) ? (form & 2 ? COL : ROW) : STRIDED);
                run_addmm(&c);
            }
}

/* Few columns, where the values' bytes bound the time; half of the calls vouch for the matrix. */
TEST(few_columns) {
    static const int64_t columns[] = {1, 2, 5, 8, 12, 16, 24, 32, 33, 48, 64};
    int k, n, form;
    for (k = 16; k <= 128; k *= 2)
        for (n = 0; n < 11; n++)
            for (form = 0; form < 4; form++) { /* bit 0: b column-major, bit 1: an epilogue */
                const int t = (n + form) % 2 ? BSR_F16 : BSR_BF16;
                const int64_t r = bt_range(1, 9 - k / 20), cols = bt_range(1, 12 - k / 16);
                addmm c;
                t_spec s = t_spec_of(t, k, k, r, cols, bt_range(1, r * cols));
                bsr_dense input, bias, left;
                bsr_epilogue e;
                bt_case("%d, N %lld, %s, form %d", k, (long long)columns[n], bsr_dtype_name(t), form);
                c = addmm_new(), c.exec_flags = bt_below(2) ? BSR_EXEC_CONSTANT_MATRIX : 0;
                s.kind = FILL_SIGNED, s.unsorted = bt_below(3) == 0, s.duplicates = bt_below(4) == 0;
                c.a = t_matrix(&s), c.b = t_random(t, c.a.cols, columns[n], form & 1 ? COL : ROW, NO_BATCH, 0, FILL_SIGNED);
                output_for(&c, t, bt_below(2) ? ROW : bt_below(2) ? COL : STRIDED);
                run_addmm(&c);
                if (!(form & 2)) continue;
                input = t_random(t, c.out.rows, c.out.cols, bt_below(2) ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(t, 1, c.out.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
                left = t_random(t, c.out.rows, 1, COL, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                e.bias = &bias, e.left_alpha = &left, e.activation = n % 2 ? BSR_ACT_RELU : BSR_ACT_NONE;
                c.epilogue = &e, c.input = &input, c.beta = -2, c.alpha = 0.5;
                output_for(&c, bt_below(2) ? BSR_F32 : t, ROW);
                run_addmm(&c);
            }
}

/* Bytes: both operands stored along the products or across them, every output type, any epilogue, batches. */
TEST(bytes) {
    static const int64_t columns[] = {16, 35, 144, 272};
    static const int outs[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16, BSR_F16};
    int k, n, form;
    for (k = 16; k <= 128; k *= 2)
        for (n = 0; n < 4; n++)
            for (form = 0; form < 8; form++) { /* bits: transposed; blocks, dense operand column-major */
                const int out = outs[(n + form) % 5], other = t_is_float(out) ? BSR_F32 : form % 3 ? BSR_I32 : BSR_I8;
                const int64_t r = bt_range(1, 6 - k / 40), cols = bt_range(1, 5 - k / 40);
                addmm c;
                t_spec s;
                bsr_dense input, bias, left;
                bsr_epilogue e;
                bt_case("%d, N %lld, %s, form %d", k, (long long)columns[n], bsr_dtype_name(out), form);
                c = addmm_new(), c.trans = form & 1 ? BSR_TRANS_A : 0;
                s = t_spec_of(BSR_I8, k, k, r, cols, bt_range(1, r * cols));
                s.kind = FILL_WIDE, s.layout = form & 2 ? BLOCKS_COL : PACKED;
                c.a = t_matrix(&s);
                c.b = t_random(BSR_I8, form & 1 ? c.a.rows : c.a.cols, columns[n], form & 4 ? COL : ROW,
                               n == 2 ? t_batch(1, 2, 0, 0, 0) : NO_BATCH, 0, FILL_WIDE);
                if (form & 1) t_attach_transposed(&c.a);
                if (bt_below(2)) t_attach_schedule(&c.a, 1 << bt_below(4), form & 1);
                c.alpha = (double)bt_range(1, 3);
                output_for(&c, BSR_I32, n % 2 ? COL : ROW);
                run_addmm(&c);
                input = t_random(other, c.out.rows, c.out.cols, n % 2 ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(other, 1, c.out.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
                left = t_random(other, c.out.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                e.bias = &bias, e.left_alpha = &left, e.right_alpha = bt_below(2) ? &bias : NULL;
                c.epilogue = &e, c.input = &input, c.beta = (double)bt_range(-2, 2);
                output_for(&c, out, bt_below(4) ? (form & 4 ? COL : ROW) : STRIDED);
                run_addmm(&c);
            }
}

/* Every operand type with every output type, input of every type, all layouts. */
TEST(types_and_layouts) {
    static const struct {
        int a, out;
    } pairs[] = {{BSR_F16, BSR_F16}, {BSR_F16, BSR_F32},  {BSR_BF16, BSR_BF16}, {BSR_BF16, BSR_F32}, {BSR_F32, BSR_F32},
                 {BSR_F32, BSR_F16}, {BSR_F32, BSR_BF16}, {BSR_F64, BSR_F64},   {BSR_I8, BSR_I32},   {BSR_I8, BSR_I8},
                 {BSR_I8, BSR_F16},  {BSR_I8, BSR_BF16},  {BSR_I8, BSR_F32}};
    static const int inputs[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_I8, BSR_I32};
    size_t p;
    int in, b, o;
    for (p = 0; p < BT_COUNT(pairs); p++)
        for (in = 0; in < 6; in++)
            for (b = 0; b < LAYOUTS; b++) {
                addmm c;
                bsr_dense input, bias, left;
                bsr_epilogue e;
                if (t_is_float(inputs[in]) != t_is_float(pairs[p].out)) continue;
                o = (b + in) % LAYOUTS;
                bt_case("%s to %s, input %s, layouts %d %d", bsr_dtype_name(pairs[p].a), bsr_dtype_name(pairs[p].out),
                        bsr_dtype_name(inputs[in]), b, o);
                c = addmm_new();
                random_operands(&c, pairs[p].a, bt_range(1, 20), bt_range(1, 20), 3, 4, bt_range(1, 40), 7, FILL_SIGNED);
                c.b = t_random(pairs[p].a, c.a.cols, c.b.cols, b, NO_BATCH, 0, FILL_SIGNED);
                input = t_random(inputs[in], c.a.rows, c.b.cols, (b + 2) % LAYOUTS, NO_BATCH, 0, FILL_SIGNED);
                bias =
                    t_random(inputs[in], bt_below(2) ? c.a.rows : 1, bt_below(2) ? c.b.cols : 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                left = t_random(inputs[in], c.a.rows, 1, COL_PADDED, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                if (bt_below(2)) e.bias = &bias;
                if (bt_below(2)) e.left_alpha = &left;
                c.epilogue = &e, c.input = &input, c.beta = (double)bt_range(-2, 2), c.alpha = (double)bt_range(1, 3);
                output_for(&c, pairs[p].out, o);
                run_addmm(&c);
            }
}

/* Batches: broadcast both ways, shared patterns or values, ragged, repeated dense items. */
TEST(batches) {
    int k;
    for (k = 0; k < 250; k++) {
        addmm c;
        t_spec s;
        t_shape bs;
        bsr_dense input, left, right;
        bsr_epilogue e;
        int dims, i, type, trans, layout;
        bt_case("%d", k);
        c = addmm_new(), type = dtypes[bt_below(5)], trans = (int)bt_below(2);
        s = t_spec_of(type, bt_range(1, 6), bt_range(1, 6), bt_range(1, 4), bt_range(1, 4), bt_range(1, 6));
        dims = (int)bt_range(1, 4), s.batch = t_batch((int)bt_range(0, dims), 1, 1, 1, 1),
        bs = t_batch((int)bt_range(0, dims), 1, 1, 1, 1);
        for (i = 1; i <= dims; i++) {
            int64_t n = bt_range(1, 3);
            if (k % 25 == 24 && i == 1) n = 0;
            if (i <= s.batch.dims) s.batch.n[s.batch.dims - i] = bt_below(4) ? n : 1;
            if (i <= bs.dims) bs.n[bs.dims - i] = bt_below(4) ? n : 1;
        }
        s.shared_pattern = (unsigned)bt_below(16), s.shared_values = (unsigned)bt_below(16), s.ragged = bt_below(3) == 0;
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = (int)bt_below(2);
        c.a = t_matrix(&s), c.trans = trans ? BSR_TRANS_A : 0;
        if (trans && bt_below(2)) t_attach_transposed(&c.a);
        if (bt_below(2)) t_attach_schedule(&c.a, 1 << bt_below(4), trans);
        layout = (int)bt_below(LAYOUTS);
        c.b = t_random(type, trans ? c.a.rows : c.a.cols, bt_range(1, 9), layout, bs, (unsigned)bt_below(16), FILL_SIGNED);
        output_for(&c, type == BSR_I8 ? BSR_I32 : type, (int)bt_below(LAYOUTS));
        memset(&e, 0, sizeof e);
        bs = t_dense_batch(&c.out);
        for (i = 0; i < bs.dims; i++)
            if (bt_below(3) == 0) bs.n[i] = 1;
        input = t_random(c.out.dtype, bt_below(2) ? c.out.rows : 1, c.out.cols, ROW, bs, 0, FILL_SIGNED);
        left = t_random(c.out.dtype, c.out.rows, 1, ROW, bs, 0, FILL_SIGNED),
        right = t_random(c.out.dtype, 1, c.out.cols, ROW, bs, 0, FILL_SIGNED);
        if (bt_below(2)) e.left_alpha = &left;
        if (bt_below(2)) e.right_alpha = &right;
        c.epilogue = &e, c.input = &input, c.beta = (double)bt_below(2);
        if (c.beta == 0 && !c.a.nnz) c.flags = REF_ALL_ZERO;
        run_addmm(&c);
    }
}

/* Small whole numbers: sums are exact, so every instruction set must give these bits. */
TEST(exact_integers) {
    int k, isa;
    for (k = 0; k < 200; k++)
        for (isa = 1; isa <= last_isa(dtypes[k % 5]); isa++) {
            addmm c;
            bsr_dense input;
            int type, out, trans = k % 2;
            bt_case("%d", k); /* the same operands for each isa */
            type = dtypes[k % 5], out = type == BSR_I8 ? (k % 2 ? BSR_I32 : BSR_I8) : type;
            c = addmm_new(), c.ctx = t_context(isa), c.trans = trans ? BSR_TRANS_A : 0;
            if (!c.ctx) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            random_operands(&c, type, bt_range(1, 34), bt_range(1, 34), bt_range(1, 4), bt_range(1, 4), bt_range(1, 70), 6,
                            FILL_INTEGER);
            if (type == BSR_I8) t_fill_values(&c.a, FILL_WIDE), t_fill(&c.b, FILL_WIDE);
            if (trans && k % 4 == 1) t_attach_transposed(&c.a);
            output_for(&c, out, (int)bt_below(LAYOUTS));
            input = t_random(out, c.out.rows, c.out.cols, ROW, NO_BATCH, 0, FILL_INTEGER);
            c.input = &input, c.beta = (double)bt_range(-2, 2), c.alpha = (double)bt_range(1, 2);
            {
                bsr_exec e = t_exec(0);
                ref_result want = ref_dense_addmm(c.beta, c.input, c.alpha, c.trans, &c.a, &c.b, NULL, out, 0);
                memset(want.bound.v, 0, (size_t)(want.bound.items * want.bound.rows * want.bound.cols) * sizeof(double));
                if (RUN_OK(bsr_dense_addmm(c.ctx, c.beta, &input, c.alpha, c.trans, &c.a, &c.b, NULL, &c.out, &e)))
                    REF_COMPARE(&c.out, &want, 0);
            }
        }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(_WIN32)
extern unsigned t_stand_ins __attribute__((weak)); /* tests/stand_ins.h, where the library was built with it */
static unsigned *stand_ins(void) { return &t_stand_ins; }
#else
static unsigned *stand_ins(void) { return NULL; }
#endif
/* A whole matrix of blocks of raw numbers, bf16 with exponents from the smallest on or i8 from -128 on, times b with rows or
   columns contiguous: BF16 within the bound that bsr_isa states, integers exactly; the same bits by instructions and by the C
   that stands in for them. */
TEST(side_by_side) {
    enum { MOST = 48 * 300 * 4, OUT = 96 * 140 };
    static union { uint16_t h[MOST]; int8_t c[MOST]; } a, b;
    static union { float f[OUT]; int32_t i[OUT]; uint32_t u[OUT]; } out, again;
    int k, isa;
    for (k = 0; k < 90; k++)
        for (isa = BSR_ISA_PORTABLE; isa <= T_ISAS; isa++) {
            int32_t crow[] = {0, 0, 0}, col[] = {0, 1, 0, 1};
            const int ints = k % 2, type = ints ? BSR_I8 : BSR_BF16, b_turned = (int)bt_below(2), out_turned = (int)bt_below(2);
            int64_t br, bc, cols, n, i, j, q, all;
            bsr_matrix m;
            bsr_dense d, o;
            unsigned were;
            bt_case("%d", k); /* the same operands for each isa */
            br = bt_range(1, 48), bc = bt_below(4) ? bt_range(1, 70) : bt_range(120, 300), cols = bt_range(1, 2);
            n = bt_below(3) ? bt_range(17, 140) : bt_range(1, 16), all = bc * cols;
            for (i = 0; i < MOST; i++) {
                const uint64_t bits = bt_random();
                const int small = (bits >> 20 & 3) == 0;
                const int exponent = small ? (int)(bits >> 32 & 3) : 60 + (int)(bits >> 32 & 0xffff) % 68;
                if (ints) a.c[i] = (int8_t)(bits >> 8 & 15 ? (int)(bits & 255) - 128 : -128);
                else a.h[i] = (uint16_t)((bits & 0x807fu) | (unsigned)exponent << 7);
                if (ints) b.c[i] = (int8_t)(bits >> 40 & 15 ? (int)(bits >> 48 & 255) - 128 : -128);
                else b.h[i] = (uint16_t)((bits >> 40 & 0x807fu) | (k % 4 ? 60 + (unsigned)(bits >> 56) % 68 : 127u) << 7);
            }
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            crow[1] = (int32_t)cols, crow[2] = (int32_t)(2 * cols);
            if (cols == 1) col[1] = 0;
            m = bsr_matrix_make(2 * br, all, br, bc, 2 * cols, crow, col, BSR_I32, &a, type);
            d = b_turned ? bsr_dense_col_major(&b, type, all, n) : bsr_dense_row_major(&b, type, all, n);
            o = out_turned ? bsr_dense_col_major(&out, ints ? BSR_I32 : BSR_F32, 2 * br, n)
                           : bsr_dense_row_major(&out, ints ? BSR_I32 : BSR_F32, 2 * br, n);
            memset(&out, 0x7f, sizeof out);
            CHECK_INT(bsr_dense_mm(t_context(isa), 0, &m, &d, &o, NULL), BSR_OK);
            for (i = 0; i < 2 * br; i++)
                for (j = 0; j < n; j++) {
                    const int64_t at = i * o.row_stride + j * o.col_stride;
                    double want = 0, sum = 0, lost = 0;
                    for (q = 0; q < all; q++) {
                        const int64_t x = ((i / br * cols + q / bc) * br + i % br) * bc + q % bc;
                        const int64_t y = q * d.row_stride + j * d.col_stride;
                        const double u = ints ? a.c[x] : t_decode16(a.h[x], type), v = ints ? b.c[y] : t_decode16(b.h[y], type);
                        want += u * v, sum += fabs(u * v);
                        if (!ints && (fabs(u) < 0x1p-126 || fabs(v) < 0x1p-126)) lost += fabs(u * v);
                    }
                    if (ints) CHECK_NEAR(out.i[at], want, 0);
                    else if (isa == BSR_ISA_AVX512_BF16)
                        CHECK_NEAR(out.f[at], want, (double)(all + 2) * (0x1p-24 * sum + 0x1p-126) + lost);
                    else CHECK_NEAR(out.f[at], want, (double)(all + 2) * (0x1p-24 * sum + 0x1p-149));
                }
            if (!stand_ins() || isa < BSR_ISA_AVX2_VNNI) continue;
            memcpy(&again, &out, sizeof out), were = *stand_ins(), *stand_ins() = ~0u;
            CHECK_INT(bsr_dense_mm(t_context(isa), 0, &m, &d, &o, NULL), BSR_OK);
            *stand_ins() = were;
            CHECK(!memcmp(&again, &out, sizeof out));
        }
}

/* Identity and permutation blocks: the output is an exact copy of rows of b. */
TEST(permutation_copies) {
    int k;
    for (k = 0; k < 40; k++) {
        addmm c;
        t_spec s;
        int64_t i, j, r, p, n;
        int type = dtypes[k % 4];
        bsr_exec e = t_exec(0);
        bt_case("%d", k);
        c = addmm_new();
        r = bt_range(2, 6);
        s = t_spec_of(type, bt_range(1, 33), 0, r, r, r * r), s.block_cols = s.block_rows, s.index_dtype = BSR_I32;
        c.a = t_matrix(&s), c.a.nnz = r; /* a permutation: one block a row */
        memset(c.a.value_strides, 0, sizeof c.a.value_strides);
        for (i = 0; i < r; i++)
            ((int32_t *)c.a.col_indices)[i] = (int32_t)((i + 1) % r), ((int32_t *)c.a.crow_indices)[i] = (int32_t)i;
        ((int32_t *)c.a.crow_indices)[r] = (int32_t)r;
        for (p = 0; p < r; p++)
            for (i = 0; i < s.block_rows; i++)
                for (j = 0; j < s.block_rows; j++) t_store(c.a.values, type, t_value_at(&c.a, 0, p, i, j), i == j);
        n = bt_range(1, 70);
        c.b = t_random(type, c.a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_WIDE);
        output_for(&c, type, (int)bt_below(LAYOUTS));
        if (!RUN_OK(bsr_dense_mm(c.ctx, 0, &c.a, &c.b, &c.out, &e))) continue;
        for (i = 0; i < c.a.rows; i++)
            for (j = 0; j < n; j++)
                if (t_get(&c.out, 0, i, j) != t_get(&c.b, 0, (i + s.block_rows) % c.a.rows, j))
                    bt_fail(__FILE__, __LINE__, "(%d, %d) is no copy", (int)i, (int)j);
    }
}

/* One product by 1 shows the rounding: ties, subnormals, overflow, NaN, bit by bit, on every instruction set. */
TEST(rounding) {
    enum { N = 4096 };
    static float values[N];
    static uint16_t out[N], back[65536];
    static float wide[65536];
    int isa, t, i;
    for (isa = 1; isa <= T_ISAS; isa++)
        for (t = 2; t < 4; t++) { /* f16, bf16 */
            int32_t crow[] = {0, 1}, col[] = {0};
            float one = 1;
            uint16_t one16 = t_encode16(1, dtypes[t]);
            bsr_matrix a = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, &one, BSR_F32);
            bsr_dense b = bsr_dense_row_major(values, BSR_F32, 1, N), o = bsr_dense_row_major(out, dtypes[t], 1, N);
            int bad = 0;
            bt_case("f32 to %s, isa %d", bsr_dtype_name(dtypes[t]), isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            for (i = 0; i < N; i++) {
                uint32_t bits = (uint32_t)bt_random();
                double exact = t_decode16((uint16_t)bt_below(0x7c00), dtypes[t]), half = t_half_ulp(dtypes[t], exact);
                if (i % 4 == 0) memcpy(&values[i], &bits, 4);
                else values[i] = (float)(exact + (i % 4 == 1 ? half : i % 4 == 2 ? half * (1 + 0x1p-10) : half * (1 - 0x1p-10)));
                if (i % 3 == 0) values[i] = -values[i];
            }
            CHECK_INT(bsr_dense_mm(t_context(isa), 0, &a, &b, &o, NULL), BSR_OK);
            for (i = 0; i < N; i++) {
                uint16_t want = t_encode16((double)values[i], dtypes[t]);
                int nan = values[i] != values[i], inf = dtypes[t] == BSR_F16 ? 0x7c00 : 0x7f80;
                if (nan ? (out[i] & inf) != inf || !(out[i] & 0x7fff & ~inf) : out[i] != want && (out[i] | want) & 0x7fff)
                    if (!bad++) bt_fail(__FILE__, __LINE__, "%.9g gives 0x%04x, not 0x%04x", (double)values[i], out[i], want);
            }
            bt_case("%s to f32, isa %d", bsr_dtype_name(dtypes[t]), isa);
            for (i = 0; i < 65536; i++) back[i] = (uint16_t)i;
            a.values = &one16, a.dtype = dtypes[t], b = bsr_dense_row_major(back, dtypes[t], 1, 65536);
            o = bsr_dense_row_major(wide, BSR_F32, 1, 65536);
            CHECK_INT(bsr_dense_mm(t_context(isa), 0, &a, &b, &o, NULL), BSR_OK);
            for (i = 0, bad = 0; i < 65536; i++) {
                double want = t_decode16((uint16_t)i, dtypes[t]), got = (double)wide[i];
                int flushes = isa == BSR_ISA_AVX512_BF16 && dtypes[t] == BSR_BF16 && fabs(want) < 0x1p-126;
                if (flushes && got == 0) want = 0; /* it may: blocks of one column do not go by twos, nor does a GPU */
                if (want != want ? got == got : got != want)
                    if (!bad++) bt_fail(__FILE__, __LINE__, "0x%04x gives %.9g, not %.9g", i, got, want);
            }
        }
}
/* Blocks of few rows share strips of b that were converted or turned, as far as lists ascend; lines with more entries than are
   narrowed at once, of indices with 64 bits. Whole numbers: sums are exact. */
TEST(shared_strips) {
    enum { COLS = 1200, WIDE = 20, MOST = 3 * COLS * WIDE };
    static int64_t crow[128], col[16 * COLS];
    static int32_t crow32[128], col32[16 * COLS];
    static float values[16 * COLS], b[MOST];
    static double out[128 * WIDE];
    int n, order, kind, rows, i, j, k;
    for (kind = 0; kind < 24; kind++) {
        const int bc = kind % 3 + 1, blocks = COLS / (kind % 2 ? 3 : 1), wide = kind / 6 % 2, few = kind >= 12;
        const int64_t k_all = (int64_t)blocks * bc, cols = few ? 1 + 7 * (kind % 2) : WIDE;
        bsr_matrix a;
        bsr_dense x, o;
        for (order = 0; order < 2; order++) {
            for (n = rows = 0; rows < 5; rows++)
                for (crow[rows] = n, j = 0; j < blocks; j++)
                    if (rows == 2 || bt_below(4) == 0) col[n++] = order ? blocks - 1 - j : j;
            crow[rows] = n;
            for (i = 0; i <= rows; i++) crow32[i] = (int32_t)crow[i];
            for (i = 0; i < n; i++) col32[i] = (int32_t)col[i];
            for (i = 0; i < n * bc; i++) values[i] = (float)bt_below(7) - 3.0f;
            for (i = 0; i < k_all * cols; i++) b[i] = (float)bt_below(7) - 3.0f;
            a = bsr_matrix_make(rows, k_all, 1, bc, n, wide ? (void *)crow : (void *)crow32, wide ? (void *)col : (void *)col32,
                                wide ? BSR_I64 : BSR_I32, values, BSR_F32);
            x = bsr_dense_col_major(b, BSR_F32, k_all, cols);
            o = bsr_dense_row_major(out, BSR_F32, rows, cols);
            bt_case("1 x %d blocks, %d of b, columns %d, wide %d, order %d", bc, (int)cols, blocks, wide, order);
            memset(out, 0xff, sizeof out);
            CHECK_INT(bsr_dense_mm(t_context(0), 0, &a, &x, &o, NULL), BSR_OK);
            for (i = 0; i < rows; i++)
                for (j = 0; j < cols; j++) {
                    double want = 0;
                    for (n = (int)crow[i]; n < crow[i + 1]; n++)
                        for (k = 0; k < bc; k++) want += (double)values[n * bc + k] * (double)b[col[n] * bc + k + j * k_all];
                    CHECK(((const float *)(const void *)out)[i * cols + j] == want);
                }
        }
    }
}
/* Sums in f64 are rounded to 16 bits once, not by way of f32: 1 + half an ulp + a little goes up. */
TEST(one_rounding) {
    int isa, t, sign, up;
    for (isa = 1; isa <= T_ISAS; isa++)
        for (t = 2; t < 4; t++)
            for (sign = -1; sign <= 1; sign += 2)
                for (up = -1; up <= 1; up++) {
                    int32_t crow[] = {0, 3}, col[] = {0, 1, 2};
                    uint16_t a16[3], b16[3], out[1];
                    double half = t_half_ulp(dtypes[t], 1), tiny = 0x1p-12, want;
                    bsr_matrix a = bsr_matrix_make(1, 3, 1, 1, 3, crow, col, BSR_I32, a16, dtypes[t]);
                    bsr_dense b = bsr_dense_row_major(b16, dtypes[t], 3, 1), o = bsr_dense_row_major(out, dtypes[t], 1, 1);
                    bsr_exec e = t_exec(BSR_EXEC_ACCUMULATE_F64);
                    bt_case("%s, isa %d, sign %d, %d", bsr_dtype_name(dtypes[t]), isa, sign, up);
                    if (!t_context(isa)) {
                        bt_skip("this instruction set is not in this build or machine");
                        continue;
                    }
                    a16[0] = t_encode16(sign, dtypes[t]), a16[1] = t_encode16(sign * half, dtypes[t]);
                    a16[2] = t_encode16(sign * up * tiny, dtypes[t]);
                    b16[0] = b16[1] = t_encode16(1, dtypes[t]), b16[2] = t_encode16(tiny * 0x1p-4, dtypes[t]);
                    want = sign * (up > 0 ? 1 + 2 * half : 1);
                    CHECK_INT(bsr_dense_mm(t_context(isa), 0, &a, &b, &o, &e), BSR_OK);
                    CHECK_NEAR(t_decode16(out[0], dtypes[t]), want, 0);
                }
}

TEST(epilogues) {
    static const int acts[] = {BSR_ACT_NONE, BSR_ACT_RELU,          BSR_ACT_GELU,          BSR_ACT_GELU_TANH,
                               BSR_ACT_SILU, BSR_EPILOGUE_tf_shift, BSR_EPILOGUE_tf_square};
    int a, t, form;
    for (a = 0; a < 7; a++)
        for (t = 0; t < 5; t++)
            for (form = 0; form < 16; form++) {
                addmm c;
                bsr_dense input, left, right, bias;
                bsr_epilogue e;
                float step = 0.5f;
                double alpha = 1.5, beta = -0.5;
                int out = dtypes[t] == BSR_I8 ? BSR_F32 : dtypes[t];
                if (out == BSR_F64 && acts[a] >= BSR_USER_FUNCTION_BASE) continue;
                bt_case("activation %d, %s, form %d", acts[a], bsr_dtype_name(dtypes[t]), form);
                c = addmm_new();
                random_operands(&c, dtypes[t], bt_range(1, 18), bt_range(1, 18), 3, 3, bt_range(1, 40), 4, FILL_SIGNED);
                input = t_random(out, c.a.rows, c.b.cols, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
                left = t_random(out, c.a.rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED),
                right = t_random(BSR_F32, 1, c.b.cols, COL, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(out, form & 8 ? 1 : c.a.rows, form & 8 ? c.b.cols : 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                memset(&e, 0, sizeof e);
                e.activation = acts[a], e.user_data = form & 1 ? &step : NULL;
                if (form & 1) e.left_alpha = &left;
                if (form & 2) e.right_alpha = &right;
                if (form & 4) e.bias = &bias;
                c.alpha = 0.75, c.beta = form & 2 ? 1.25 : 0, c.input = &input, c.epilogue = &e;
                if (form == 13) e.alpha_ptr = &alpha;
                if (form == 14) e.beta_ptr = &beta, c.beta = (double)NAN;
                output_for(&c, out, (int)bt_below(LAYOUTS));
                run_addmm(&c);
            }
}
/* What activations do at the edges: NaN stays, infinities and large values do not turn into NaN. */
TEST(activation_edges) {
    static const int acts[] = {BSR_ACT_RELU, BSR_ACT_GELU, BSR_ACT_GELU_TANH, BSR_ACT_SILU};
    static const double values[] = {0.0, -1e-30, 1e-30, 20, -20, 88, -88, 104, -104, 1e4, -1e4, 1e38, -1e38};
    int a, isa, v;
    for (a = 0; a < 4; a++)
        for (isa = 1; isa <= T_ISAS; isa++) {
            double alpha = 1, got;
            int32_t crow[2] = {0, 1}, col[1] = {0};
            float value = 1, b[16], out[16];
            bsr_matrix m = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, &value, BSR_F32);
            bsr_dense db = bsr_dense_row_major(b, BSR_F32, 1, 16), dout = bsr_dense_row_major(out, BSR_F32, 1, 16);
            bsr_epilogue e;
            bt_case("activation %d, isa %d", acts[a], isa);
            if (!t_context(isa)) {
                bt_skip("this instruction set is not in this build or machine");
                continue;
            }
            memset(&e, 0, sizeof e);
            e.activation = acts[a], e.alpha_ptr = &alpha;
            for (v = 0; v < 16; v++)
                b[v] = v < 13 ? (float)values[v] : v == 13 ? (float)NAN : v == 14 ? (float)INFINITY : -(float)INFINITY;
            CHECK_INT(bsr_dense_addmm(t_context(isa), 0, NULL, 1, 0, &m, &db, &e, &dout, NULL), BSR_OK);
            CHECK(out[13] != out[13]);
            CHECK(out[14] == (float)INFINITY);
            if (acts[a] == BSR_ACT_RELU) CHECK(out[15] == 0.0f);
            for (v = 0; v < 13; v++) {
                got = (double)out[v];
                CHECK_NEAR(got, values[v] > 0 ? fmax(values[v] * (values[v] > 10 ? 1 : 0.5), 0) : 0,
                           fabs(values[v]) < 1e-20 ? 2e-30
                           : values[v] > 0         ? 0x1p-20 * values[v]
                                                   : 1e-6);
            }
            alpha = -1; /* sums of 0 become -0 */
            CHECK_INT(bsr_dense_addmm(t_context(isa), 0, NULL, 1, 0, &m, &db, &e, &dout, NULL), BSR_OK);
            CHECK(out[0] == 0 && (acts[a] != BSR_ACT_RELU || !signbit(out[0])));
        }
}

/* Inf and NaN beside one stored block of three: other rows, whose sums stand beside its own, stay as they are. */
TEST(infinite_rows) {
    static const int64_t sides[] = {3, 5, 7, 10, 12, 20, 33}, widths[] = {1, 2, 3, 5, 8, 17};
    int k;
    for (k = 0; k < 700; k++) {
        const int type = dtypes[k % 4], isa = 1 + k / 4 % 3;
        const int64_t br = sides[bt_below(7)], bc = bt_below(2) ? br : sides[bt_below(7)], n = widths[bt_below(6)];
        const double odd = bt_below(2) ? (double)INFINITY : (double)NAN;
        int64_t i, j, at;
        t_spec s;
        addmm c;
        bt_case("%d: %s, isa %d, blocks %d x %d, N %d", k, bsr_dtype_name(type), isa, (int)br, (int)bc, (int)n);
        c = addmm_new(), c.trans = bt_below(2) ? BSR_TRANS_A : 0, c.ctx = t_context(isa);
        if (!c.ctx) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        s = t_spec_of(type, br, bc, 6, 6, 9), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_SIGNED;
        c.a = t_matrix(&s); /* no block twice: of two and Inf the reference has one product */
        c.b = t_random(type, c.trans ? c.a.rows : c.a.cols, n, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
        if (c.trans) t_attach_transposed(&c.a);
        at = bt_below(6) * (c.trans ? br : bc);
        for (i = 0; i < (c.trans ? br : bc); i++)
            for (j = 0; j < n; j++)
                if (bt_below(3) == 0) t_set(&c.b, 0, at + i, j, odd);
        output_for(&c, type, (int)bt_below(LAYOUTS));
        run_addmm(&c);
    }
}
/* upstream.md 6.4 */
TEST(nan_rules) {
    int t, trans;
    for (t = 0; t < 4; t++)
        for (trans = 0; trans < 2; trans++) {
            addmm c;
            bsr_dense input, bias;
            bsr_epilogue e;
            int64_t i, j, row, col;
            int type = dtypes[t];
            bt_case("alpha 0 reads neither A nor B: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, 3, 4, 9, 6, FILL_SIGNED);
            memset(bt_find(c.a.values)->data, BT_POISON, bt_find(c.a.values)->bytes);
            memset(bt_find(c.b.data)->data, BT_POISON, bt_find(c.b.data)->bytes);
            input = t_random(type, trans ? 12 + 4 : 9, 9, ROW, NO_BATCH, 0, FILL_SIGNED);
            c.input = &input, c.beta = 2, c.alpha = 0;
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("beta 0 does not read input: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, 3, 4, 9, 9, FILL_SIGNED);
            input = t_dense(type, trans ? 16 : 9, 9, ROW, NO_BATCH, 0); /* poison */
            c.input = &input, c.beta = 0;
            output_for(&c, type, ROW);
            run_addmm(&c);
            input.data = NULL;
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("beta 0 does not read input, blocks of 16 and a bias: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 16, 16, 3, 4, 72, 9, FILL_SIGNED);
            t_make_values(&c.a, type, PACKED, 0), t_fill_values(&c.a, FILL_SIGNED);
            if (trans) t_attach_transposed(&c.a);
            c.b = t_random(type, trans ? 48 : 64, 72, ROW, NO_BATCH, 0, FILL_SIGNED);
            input = t_dense(type, trans ? 64 : 48, 72, ROW, NO_BATCH, 0);
            bias = t_random(type, 1, 72, ROW, NO_BATCH, 0, FILL_SIGNED), memset(&e, 0, sizeof e), e.bias = &bias;
            c.input = &input, c.beta = 0, c.epilogue = &e;
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("NaN and Inf opposite to absent blocks do not count: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, 4, 5, 9, 5, FILL_SIGNED);
            if (trans) t_attach_transposed(&c.a);
            for (i = 0; i < c.b.rows; i += 2)
                for (j = 0; j < 9; j++) t_set(&c.b, 0, i, j, j % 2 ? (double)NAN : (double)INFINITY);
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("NaN in a stored block spreads over its row alone: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, 4, 5, 9, 20, FILL_SIGNED);
            t_store(c.a.values, type, t_value_at(&c.a, 0, 7, 1, 2), (double)NAN);
            t_store(c.a.values, type, t_value_at(&c.a, 0, 12, 0, 0), -(double)INFINITY);
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("no blocks: the epilogue still runs: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, 4, 5, 9, 0, FILL_SIGNED);
            memset(bt_find(c.b.data)->data, BT_POISON, bt_find(c.b.data)->bytes);
            row = trans ? 20 : 12, col = 9;
            input = t_random(type, row, col, COL, NO_BATCH, 0, FILL_SIGNED),
            bias = t_random(type, row, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
            memset(&e, 0, sizeof e);
            e.bias = &bias, e.activation = BSR_ACT_RELU, c.epilogue = &e, c.input = &input, c.beta = 1;
            output_for(&c, type, ROW);
            run_addmm(&c);
            c.beta = 0, c.input = NULL, e.bias = NULL, c.flags = REF_ALL_ZERO;
            output_for(&c, type, ROW);
            run_addmm(&c);

            bt_case("K = 0: b is not read: %s %d", bsr_dtype_name(type), trans);
            c = addmm_new(), c.trans = trans ? BSR_TRANS_A : 0;
            random_operands(&c, type, 3, 4, trans ? 0 : 4, trans ? 5 : 0, 9, 0, FILL_SIGNED);
            input = t_random(type, trans ? 20 : 12, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
            c.input = &input, c.beta = -1;
            output_for(&c, type, STRIDED);
            run_addmm(&c);
        }
}

/* Where strides may lead: gaps between values, too. */
static void numbers_everywhere(void *values, int dtype) {
    const int64_t n = (int64_t)(bt_find(values)->bytes / bsr_dtype_size(dtype));
    int64_t i;
    for (i = 0; i < n; i++) t_store(values, dtype, i, (double)bt_range(-9, 9));
}
/* Values that stand in several places: rows, columns, blocks that are all the same, one number for all. */
TEST(repeated_values) {
    static const int64_t strides[][3] = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}, {0, 5, 1}, {20, 1, 0}, {5, 0, 1}};
    int k, t;
    for (k = 0; k < (int)BT_COUNT(strides); k++)
        for (t = 0; t < 5; t++) {
            addmm c;
            bt_case("strides %d, %s", k, bsr_dtype_name(dtypes[t]));
            c = addmm_new(), c.trans = t % 2 ? BSR_TRANS_A : 0;
            random_operands(&c, dtypes[t], 4, 5, 3, 4, 9, 7, FILL_SIGNED);
            memcpy(c.a.value_strides, strides[k], sizeof c.a.value_strides);
            numbers_everywhere(c.a.values, dtypes[t]);
            output_for(&c, dtypes[t] == BSR_I8 ? BSR_I32 : dtypes[t], ROW);
            run_addmm(&c);
        }
}

/* out may be input exactly. */
TEST(in_place) {
    int k;
    for (k = 0; k < 60; k++) {
        addmm c;
        bsr_dense input, bias;
        bsr_epilogue e;
        int type, layout = k % LAYOUTS;
        bt_case("%d", k);
        c = addmm_new(), type = dtypes[k % 5], c.trans = k % 3 == 0 ? BSR_TRANS_A : 0;
        random_operands(&c, type, bt_range(1, 20), bt_range(1, 20), 3, 3, bt_range(1, 40), 4, FILL_SIGNED);
        output_for(&c, type == BSR_I8 ? BSR_I32 : type, layout);
        t_fill(&c.out, FILL_SIGNED);
        input = c.out, c.input = &input, c.beta = k % 2 ? 1 : 2;
        bias = t_random(c.out.dtype, 1, c.out.cols, ROW, NO_BATCH, 0, FILL_SIGNED);
        memset(&e, 0, sizeof e);
        e.bias = &bias, c.epilogue = &e;
        run_addmm(&c);
    }
}

/* Splitting a pattern in two and adding gives the whole (exact numbers); a permutation of block rows permutes rows. */
TEST(metamorphic) {
    int k;
    for (k = 0; k < 40; k++) {
        addmm c;
        bsr_dense whole;
        bsr_exec e = t_exec(0);
        int32_t *crow, *first, *second;
        int64_t i, j;
        bt_case("%d", k);
        c = addmm_new();
        random_operands(&c, BSR_F32, bt_range(1, 20), bt_range(1, 20), 4, 5, 33, 11, FILL_INTEGER);
        if (c.a.index_dtype == BSR_I64) { /* the halves are cut in int32 arrays */
            int32_t *col = (int32_t *)bt_alloc((size_t)c.a.nnz * 4, 4);
            for (i = 0; i < c.a.nnz; i++) col[i] = (int32_t)t_col(&c.a, 0, i);
            crow = (int32_t *)bt_alloc(5 * 4, 4);
            for (i = 0; i < 5; i++) crow[i] = (int32_t)t_crow(&c.a, 0, i);
            c.a.crow_indices = crow, c.a.col_indices = col, c.a.index_dtype = BSR_I32;
        }
        crow = (int32_t *)c.a.crow_indices;
        output_for(&c, BSR_F32, ROW);
        whole = c.out;
        RUN_OK(bsr_dense_mm(c.ctx, 0, &c.a, &c.b, &whole, &e));
        first = (int32_t *)bt_alloc(5 * 4, 4), second = (int32_t *)bt_alloc(5 * 4, 4);
        for (i = 0; i < 5; i++) first[i] = i < 3 ? crow[i] : crow[2], second[i] = i < 3 ? 0 : crow[i] - crow[2];
        {
            bsr_matrix one = c.a, two = c.a;
            int64_t s[3];
            t_matrix_strides(&c.a, s);
            one.crow_indices = first, one.nnz = first[4], two.crow_indices = second, two.nnz = second[4];
            two.col_indices = (int32_t *)c.a.col_indices + crow[2];
            two.values = (float *)c.a.values + crow[2] * s[0];
            output_for(&c, BSR_F32, COL);
            RUN_OK(bsr_dense_mm(c.ctx, 0, &one, &c.b, &c.out, &e));
            RUN_OK(bsr_dense_addmm(c.ctx, 1, &c.out, 1, 0, &two, &c.b, NULL, &c.out, &e));
        }
        for (i = 0; i < c.out.rows; i++)
            for (j = 0; j < c.out.cols; j++) CHECK(t_get(&c.out, 0, i, j) == t_get(&whole, 0, i, j));
    }
}

/* Queries and plans: what is promised about them for products. */
TEST(plans) {
    addmm c = addmm_new();
    bsr_exec e = t_exec(0);
    bsr_plan plan, again;
    char line[256], small[8];
    int n;
    random_operands(&c, BSR_F32, 16, 16, 4, 4, 32, 8, FILL_SIGNED);
    c.trans = BSR_TRANS_A;
    output_for(&c, BSR_F32, ROW);
    memset(&plan, 0x55, sizeof plan);
    e.query = &plan;
    CHECK_INT(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e), BSR_OK);
    CHECK(t_all_poison(c.out.data)); /* a query runs nothing */
    CHECK_INT(plan.op, BSR_OP_DENSE_ADDMM);
    CHECK_INT(plan.backend, BSR_BACKEND_CPU);
    CHECK(plan.flags & BSR_PLAN_SLOW_TRANSPOSE);
    CHECK(!(plan.flags & BSR_PLAN_USES_SCHEDULE));
    n = bsr_plan_string(&plan, line, sizeof line);
    CHECK(n == (int)strlen(line) && n > 10 && strstr(line, "slow"));
    CHECK_INT(bsr_plan_string(&plan, small, sizeof small), n);
    CHECK_INT(strlen(small), sizeof small - 1);
    t_attach_transposed(&c.a), t_attach_schedule(&c.a, 2, 1);
    CHECK_INT(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e), BSR_OK);
    CHECK(!(plan.flags & BSR_PLAN_SLOW_TRANSPOSE));
    CHECK(plan.flags & BSR_PLAN_USES_SCHEDULE);
    e.query = NULL, e.plan = &plan; /* the plan that a query gave is accepted as it is */
    again = plan;
    RUN_OK(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e));
    again.op = BSR_OP_SOFTMAX, e.plan = &again;
    CHECK_INT(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e), BSR_BAD_PLAN);
    CHECK_INT(t_error.item, BSR_ITEM_PLAN_OP);
    again = plan, again.split = 3;
    CHECK_INT(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e), BSR_BAD_PLAN);
    CHECK_INT(t_error.item, BSR_ITEM_PLAN_FIELD);
    CHECK_INT(t_error.index, 6);
    CHECK_INT(t_error.value, 3);
    memset(&again, 0, sizeof again); /* an isa for one call */
    again.kernel = BSR_ISA_PORTABLE;
    RUN_OK(bsr_dense_mm(c.ctx, BSR_TRANS_A, &c.a, &c.b, &c.out, &e));
}
/* What a plan says of its operands: whichever way each of them lies. */
TEST(plan_flags) {
    static const int types[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};
    int k;
    for (k = 0; k < 4 * 2 * 3 * 2 * 2; k++) {
        const int type = types[k % 4], turned = k / 4 % 2, view = k / 8 % 3, apart = k / 24 % 2, wide = k / 48 % 2;
        addmm c = (bt_case("%s trans %d schedule %d columns apart %d accumulated in f64 %d", bsr_dtype_name(type), turned, view,
                           apart, wide),
                   addmm_new());
        bsr_exec e = t_exec(wide ? BSR_EXEC_ACCUMULATE_F64 : 0);
        const int whole = type == BSR_F64 || (type == BSR_F32 && !wide);
        bsr_plan plan;
        c.trans = turned ? BSR_TRANS_A : 0, random_operands(&c, type, 4, 4, 3, 3, 5, 6, FILL_SIGNED);
        c.b = t_random(type, 12, 5, apart ? COL : ROW, NO_BATCH, 0, FILL_SIGNED), output_for(&c, type, ROW);
        if (view) t_attach_schedule(&c.a, 2, view - 1); /* of rows, of columns */
        e.query = &plan;
        CHECK_INT(bsr_dense_mm(c.ctx, c.trans, &c.a, &c.b, &c.out, &e), BSR_OK);
        CHECK_INT((plan.flags & BSR_PLAN_USES_SCHEDULE) != 0, view && view - 1 == turned);
        CHECK_INT((plan.flags & BSR_PLAN_SLOW_TRANSPOSE) != 0, turned);
        CHECK_INT((plan.flags & BSR_PLAN_PACKS_B) != 0, apart || !whole);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* scatter_mm                                                                                     */
/* ---------------------------------------------------------------------------------------------- */

static bsr_scatter_indices indices_of(int format, int64_t *c, int64_t nc, int64_t *r, int64_t nr, int64_t *p, int64_t np,
                                      int64_t *q, int64_t nq, int64_t split) {
    bsr_scatter_indices x;
    memset(&x, 0, sizeof x);
    x.format = format, x.c_indices = c, x.c_count = nc, x.r_offsets = r, x.r_count = nr;
    x.p_indices = p, x.p_count = np, x.q_indices = q, x.q_count = nq, x.split_n = split;
    return x;
}
/* acc += what the documentation says, by the letter. */
static ref_result ref_scatter(const bsr_dense *blocks, const bsr_dense *others, const bsr_scatter_indices *x,
                              const bsr_dense *acc) {
    ref_array bl = ref_dense(blocks), ot = ref_dense(others), in = ref_dense(acc);
    ref_finish_args f;
    ref_sum sum;
    int64_t n = others->cols, split = x->split_n ? x->split_n : 1, ns = n / split, ms = blocks->rows, ks = blocks->cols, b, r, g;
    int64_t items = x->format == BSR_SCATTER_MM ? 1 : in.items, i, j, k;
    ref_real *exact = (ref_real *)calloc((size_t)(in.items * in.rows * in.cols) + 1, sizeof *exact);
    if (!exact) abort();
    sum.s = ref_new(in.batch, in.rows, in.cols), sum.t = ref_new(in.batch, in.rows, in.cols),
    sum.n = ref_new(in.batch, in.rows, in.cols);
    for (b = 0; b < items; b++)
        for (r = 0; r < (x->format == BSR_SCATTER_MM ? x->c_count - 1 : x->r_count); r++) {
            int64_t at = x->format == BSR_SCATTER_MM ? 0 : x->r_offsets[r], tile_m = n ? at / n / ms : 0,
                    tile_n = n ? at % n / ns : 0;
            int64_t c0 = x->format == BSR_SCATTER_STRIDED_COMPRESSED ? x->c_indices[tile_m] : x->c_indices[r];
            int64_t c1 = x->format == BSR_SCATTER_STRIDED_COMPRESSED ? x->c_indices[tile_m + 1] : x->c_indices[r + 1];
            for (g = c0; g < c1; g++) {
                int64_t p = x->format == BSR_SCATTER_STRIDED_COMPRESSED ? g : x->p_indices[g];
                int64_t q = x->format == BSR_SCATTER_STRIDED_COMPRESSED
                                ? x->q_indices[tile_n * c1 + (split - tile_n) * c0 + g - c0]
                                : x->q_indices[g];
                for (j = 0; j < (x->format == BSR_SCATTER_MM ? n : ns); j++)
                    for (k = ks - 1; k >= 0; k--)
                        for (i = 0; i < ms; i++) {
                            double u = *ref_at(&bl, p, i, k), v;
                            int64_t to;
                            if (x->format == BSR_SCATTER_MM) v = *ref_at(&ot, q, k, j), to = (r * in.rows + i) * in.cols + j;
                            else
                                v = *ref_at(&ot, b, q / n + k, q % n + j), to = (b * in.rows + at / n + i) * in.cols + at % n + j;
                            exact[to] += (ref_real)u * v, sum.t.v[to] += fabs(u * v), sum.n.v[to] += 1;
                        }
            }
        }
    for (i = 0; i < in.items * in.rows * in.cols; i++) sum.s.v[i] = (double)exact[i];
    free(exact);
    memset(&f, 0, sizeof f);
    f.alpha = f.beta = 1, f.input = acc, f.compute = ref_compute(blocks->dtype), f.out_dtype = acc->dtype;
    return ref_finish(&sum, &f);
}
static void run_scatter(const bsr_dense *blocks, const bsr_dense *others, const bsr_scatter_indices *x, const bsr_dense *acc) {
    bsr_exec e = t_exec(0);
    ref_result want = ref_scatter(blocks, others, x, acc);
    if (RUN_OK(bsr_scatter_mm(t_any_context(), blocks, others, x, acc, &e))) REF_COMPARE(acc, &want, 0);
}

/* upstream.md 6.1, test_triton_scatter_mm, and M != N, which upstream gets wrong (1.7 (a)) */
TEST(upstream_scatter_mm) {
    static const int64_t sizes[][3] = {{8, 8, 8},   {8, 8, 16}, {8, 16, 8},   {16, 8, 8},   {16, 16, 16},
                                       {16, 8, 16}, {3, 5, 7},  {16, 16, 64}, {64, 16, 16}, {1, 2, 1}};
    size_t k;
    int t, b, layout;
    for (k = 0; k < BT_COUNT(sizes); k++)
        for (t = 0; t < 5; t++)
            for (b = 0; b < 4; b++) {
                int64_t m = sizes[k][0], kk = sizes[k][1], n = sizes[k][2];
                int64_t c1[] = {0, 2, 3, 4}, p1[] = {0, 1, 0, 1}, q1[] = {0, 0, 1, 1};
                int64_t c2[] = {0, 2, 4, 5, 6}, r2[] = {0, 0, 0, 0}, p2[] = {1, 0, 1, 0, 1, 1}, q2[] = {0, 0, 0, 0, 0, 0};
                int64_t wide = 2 * n, *q = q2;
                bsr_scatter_indices x;
                bsr_dense blocks, others, acc;
                int out = dtypes[t] == BSR_I8 ? BSR_I32 : dtypes[t];
                bt_case("%lldx%lldx%lld, %s, form %d", (long long)m, (long long)kk, (long long)n, bsr_dtype_name(dtypes[t]), b);
                layout = (int)bt_below(LAYOUTS);
                blocks = t_random(dtypes[t], m, kk, (int)bt_below(LAYOUTS), t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
                if (b == 0) {
                    x = indices_of(BSR_SCATTER_MM, c1, 4, NULL, 0, p1, 4, q1, 4, 0);
                    others = t_random(dtypes[t], kk, n, layout, t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
                    acc = t_output(out, m, n, (int)bt_below(LAYOUTS), t_batch(1, 3, 0, 0, 0));
                } else {
                    r2[1] = n, r2[2] = wide * m, r2[3] = wide * m + n;
                    q[1] = wide * kk, q[2] = n, q[3] = wide * kk + n, q[4] = wide * kk, q[5] = wide * kk + n;
                    x = indices_of(BSR_SCATTER_STRIDED, c2, 5, r2, 4, p2, 6, q2, 6, 2);
                    others = t_random(dtypes[t], 2 * kk, wide, layout, t_batch(b - 1, b == 3 ? 3 : 2, 4, 0, 0), 0, FILL_SIGNED);
                    acc = t_output(out, 2 * m, wide, (int)bt_below(LAYOUTS), t_dense_batch(&others));
                }
                t_fill(&acc, FILL_SIGNED); /* scatter_mm adds, whatever upstream's kernel does */
                run_scatter(&blocks, &others, &x, &acc);
            }
}

/* upstream.md 6.1, test_triton_bsr_scatter_mm: every format, every split */
TEST(upstream_bsr_scatter_mm) {
    static const int64_t blocks[][2] = {{2, 2}, {2, 3}, {16, 16}, {16, 32}, {32, 32}, {64, 64}};
    int k, batch, format, first, t;
    for (k = 0; k < 6; k++)
        for (batch = 0; batch < 3; batch++)
            for (format = 1; format <= 3; format++)
                for (first = 0; first < 3; first++)
                    for (t = 0; t < 3; t++) {
                        static const int types[] = {BSR_F16, BSR_BF16, BSR_F32};
                        int64_t n, split, rows, cols, shrink;
                        t_spec s;
                        bsr_matrix a;
                        bsr_dense b, out;
                        ref_result want;
                        bt_case("blocks %d, batch %d, format %d, first row %d, %s", k, batch, format, first,
                                bsr_dtype_name(types[t]));
                        rows = (int64_t)1 << bt_below(k > 3 ? 2 : 3), cols = bt_range(1, 2),
                        n = blocks[k][0] * ((int64_t)1 << bt_below(k > 3 ? 2 : 3));
                        s = t_spec_of(types[t], blocks[k][0], blocks[k][1], rows, cols,
                                      first == 2 ? 0 : bt_range(1, rows * cols));
                        s.kind = FILL_POSITIVE, s.layout = (int)bt_below(BLOCKS_LAYOUTS);
                        a = t_matrix(&s);
                        b = t_random(types[t], a.cols, n, (int)bt_below(LAYOUTS), t_batch(batch, 2, 2, 0, 0), 0, FILL_POSITIVE);
                        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, NULL, types[t], 0);
                        for (split = n, shrink = 0; split >= 1; split /= 2, shrink++) {
                            bsr_scatter_indices x;
                            bsr_exec e = t_exec(0);
                            if (n % split || (k > 2 && split > 8 && split != n)) continue;
                            memset(&x, 0, sizeof x);
                            x.format = format, x.split_n = split;
                            if (!RUN_OK(bsr_build_scatter_indices(t_context(0), &a, n, &x, &e))) break;
                            x.c_indices = (int64_t *)bt_alloc((size_t)x.c_count * 8, 8);
                            x.r_offsets = x.r_count ? (int64_t *)bt_alloc((size_t)x.r_count * 8, 8) : NULL;
                            x.p_indices = x.p_count ? (int64_t *)bt_alloc((size_t)x.p_count * 8, 8) : NULL;
                            x.q_indices = (int64_t *)bt_alloc((size_t)x.q_count * 8, 8);
                            bt_mark_output(x.c_indices), bt_mark_output(x.r_offsets), bt_mark_output(x.p_indices),
                                bt_mark_output(x.q_indices);
                            if (!RUN_OK(bsr_build_scatter_indices(t_context(0), &a, n, &x, &e))) break;
                            out = t_output(types[t], a.rows, n, (int)bt_below(LAYOUTS), t_dense_batch(&b));
                            if (RUN_OK(bsr_dense_scatter_mm(t_any_context(), &a, &b, &x, &out, &e)))
                                REF_COMPARE(&out, &want, a.nnz ? 0 : REF_ALL_ZERO);
                        }
                    }
}
/* The builder's numbers on an example by hand: rows of 1, 0 and 2 blocks of 2 x 3, N = 4. */
TEST(scatter_indices_by_hand) {
    int32_t crow[] = {0, 1, 1, 3}, col[] = {1, 0, 1};
    float values[18] = {0};
    bsr_matrix a = bsr_matrix_make(6, 6, 2, 3, 3, crow, col, BSR_I32, values, BSR_F32);
    int64_t c[8], r[8], p[16], q[16];
    bsr_exec e = t_exec(0);
    bsr_scatter_indices x;
    int i;
    x = indices_of(BSR_SCATTER_STRIDED_COMPRESSED, c, 8, r, 8, NULL, 0, q, 16, 2);
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &a, 4, &x, &e), BSR_OK);
    CHECK_INT(x.c_count, 4), CHECK_INT(x.r_count, 6), CHECK_INT(x.q_count, 6);
    {
        static const int64_t wc[] = {0, 1, 1, 3}, wr[] = {16, 18, 0, 2, 8, 10}, wq[] = {12, 14, 0, 12, 2, 14};
        for (i = 0; i < 4; i++) CHECK_INT(c[i], wc[i]);
        for (i = 0; i < 6; i++) CHECK_INT(r[i], wr[i]), CHECK_INT(q[i], wq[i]); /* longest row first, the empty one last */
    }
    x.q_count = 5, x.c_count = 8, x.r_count = 8;
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &a, 4, &x, &e), BSR_CAPACITY);
    x.q_count = 16, x.split_n = 3;
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &a, 4, &x, &e), BSR_BAD_SHAPE);
    CHECK_INT(t_error.item, BSR_ITEM_SPLIT_N);
    x = indices_of(BSR_SCATTER_STRIDED, c, 8, r, 8, p, 16, q, 16, 2);
    CHECK_INT(bsr_build_scatter_indices(t_context(0), &a, 4, &x, &e), BSR_OK);
    CHECK_INT(x.r_count, 6), CHECK_INT(x.c_count, 7), CHECK_INT(x.p_count, 6), CHECK_INT(x.q_count, 6);
    CHECK_INT(c[0], 0), CHECK_INT(c[4], 6), CHECK_INT(c[6], 6), CHECK_INT(r[0] / 4 / 2, 2); /* the row of two comes first */
}

/* ---------------------------------------------------------------------------------------------- */
/* matmul                                                                                         */
/* ---------------------------------------------------------------------------------------------- */

typedef struct value { /* an operand, dense or sparse, with its expansion */
    bsr_dense dense;
    bsr_matrix sparse;
    int is_sparse;
    ref_array v, n;
} value;
static bsr_operand operand_of(const value *x) {
    return x->is_sparse ? bsr_operand_sparse(&x->sparse) : bsr_operand_dense(&x->dense);
}
static void expand(value *x) {
    x->n = ref_none();
    if (x->is_sparse) x->v = ref_matrix(&x->sparse, &x->n);
    else x->v = ref_dense(&x->dense);
}
static value dense_value(int dtype, int64_t rows, int64_t cols, int transposed, t_shape batch) {
    value x;
    memset(&x, 0, sizeof x);
    x.dense = t_random(dtype, transposed ? cols : rows, transposed ? rows : cols, (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
    expand(&x);
    return x;
}
static value sparse_value(int dtype, int64_t rows, int64_t cols, int64_t br, int64_t bc, int transposed, t_shape batch,
                          int ragged) {
    value x;
    t_spec s = t_spec_of(dtype, transposed ? bc : br, transposed ? br : bc, transposed ? cols / bc : rows / br,
                       transposed ? rows / br : cols / bc, 0);
    memset(&x, 0, sizeof x);
    s.nnz = (s.r * s.c + 1) / 2, s.batch = batch, s.ragged = ragged, s.layout = (int)bt_below(BLOCKS_LAYOUTS);
    if (batch.dims && bt_below(2)) s.shared_pattern = 1; /* DeepSpeed: the batch shares a layout, the heads do not */
    x.sparse = t_matrix(&s), x.is_sparse = 1;
    if (bt_below(2)) t_attach_transposed(&x.sparse);
    expand(&x);
    return x;
}
static ref_array maybe_transposed(const ref_array *a, int transposed) { return transposed ? ref_transposed(a) : *a; }
/* op(c) = op(a) op(b), as c is stored; sums over batch dimensions that `out` lacks. */
static ref_result ref_matmul(const value *a, int ta, const value *b, int tb, int tc, t_shape out, int compute, int out_dtype) {
    ref_array x = maybe_transposed(&a->v, ta), xn = maybe_transposed(&a->n, ta), y = maybe_transposed(&b->v, tb),
              yn = maybe_transposed(&b->n, tb);
    ref_sum sum = ref_mm(&x, &xn, &y, &yn, t_join(a->v.batch, b->v.batch), out);
    ref_finish_args f;
    ref_result r;
    memset(&f, 0, sizeof f);
    f.alpha = 1, f.compute = compute, f.out_dtype = out_dtype;
    r = ref_finish(&sum, &f);
    r.want = maybe_transposed(&r.want, tc), r.bound = maybe_transposed(&r.bound, tc);
    return r;
}
static value output_like(const value *x, int dtype) {
    value o = *x;
    if (x->is_sparse) o.sparse = t_matrix_output(&x->sparse, dtype, (int)bt_below(BLOCKS_LAYOUTS));
    else o.dense = t_output(dtype, x->dense.rows, x->dense.cols, (int)bt_below(LAYOUTS), t_dense_batch(&x->dense));
    return o;
}
/* x, got from a and b. */
static void compare_value(const char *what, const value *x, const ref_result *want, const value *a, const value *b) {
    t_shape items = t_join(a->v.batch, b->v.batch);
    int nothing = (a->is_sparse && !a->sparse.nnz) || (b->is_sparse && !b->sparse.nnz) || !t_items(&items);
    if (x->is_sparse) ref_compare_matrix(__FILE__, __LINE__, what, &x->sparse, want, nothing ? REF_ALL_ZERO : 0);
    else ref_compare(__FILE__, __LINE__, what, &x->dense, want, nothing ? REF_ALL_ZERO : 0);
}
/* mode 0 SDD, 1 DSD, 2 DDS: builds a, b, c (c of the shape of the product as stored). */
static void matmul_operands(value v[3], int mode, int ta, int tb, int tc, int dtype, const int64_t mkn[3], int64_t block,
                            t_shape ba, t_shape bb, int ragged) {
    t_shape bc = t_join(ba, bb);
    int out = dtype == BSR_I8 ? BSR_I32 : dtype;
    v[0] = mode == 1 ? sparse_value(dtype, mkn[0], mkn[1], block, block, ta, ba, ragged)
                     : dense_value(dtype, mkn[0], mkn[1], ta, ba);
    v[1] = mode == 2 ? sparse_value(dtype, mkn[1], mkn[2], block, block, tb, bb, ragged)
                     : dense_value(dtype, mkn[1], mkn[2], tb, bb);
    v[2] = mode == 0 ? sparse_value(out, mkn[0], mkn[2], block, block, tc, bc, ragged) : dense_value(out, mkn[0], mkn[2], tc, bc);
}
static void run_matmul(const value v[3], unsigned trans, int out_dtype) {
    bsr_exec e = t_exec(0);
    int dtype = v[0].is_sparse ? v[0].sparse.dtype : v[0].dense.dtype;
    value c = output_like(&v[2], out_dtype);
    ref_result want = ref_matmul(&v[0], (trans & BSR_TRANS_A) != 0, &v[1], (trans & BSR_TRANS_B) != 0, (trans & BSR_TRANS_C) != 0,
                                 v[2].v.batch, ref_compute(dtype), out_dtype);
    if (RUN_OK(bsr_matmul(t_any_context(), trans, operand_of(&v[0]), operand_of(&v[1]), operand_of(&c), &e)))
        compare_value("c", &c, &want, &v[0], &v[1]);
}
/* da and db, together and each alone; v[2] is dc. */
static void run_matmul_backward(const value v[3], unsigned trans) {
    int ta = (trans & BSR_TRANS_A) != 0, tb = (trans & BSR_TRANS_B) != 0, tc = (trans & BSR_TRANS_C) != 0, form;
    int dtype = v[0].is_sparse ? v[0].sparse.dtype : v[0].dense.dtype;
    /* op(dA) = op(dC) op(B)^T, op(dB) = op(A)^T op(dC) */
    ref_result want_a = ref_matmul(&v[2], tc, &v[1], !tb, ta, v[0].v.batch, ref_compute(dtype), dtype);
    ref_result want_b = ref_matmul(&v[0], !ta, &v[2], tc, tb, v[1].v.batch, ref_compute(dtype), dtype);
    for (form = 1; form <= 3; form++) {
        bsr_exec e = t_exec(0);
        value da = output_like(&v[0], dtype), db = output_like(&v[1], dtype);
        bsr_operand none = {NULL, NULL};
        int ok = RUN_OK(bsr_matmul_backward(t_any_context(), trans, operand_of(&v[0]), operand_of(&v[1]), operand_of(&v[2]),
                                            form & 1 ? operand_of(&da) : none, form & 2 ? operand_of(&db) : none, &e));
        if (ok && form & 1) compare_value("da", &da, &want_a, &v[2], &v[1]);
        if (ok && form & 2) compare_value("db", &db, &want_b, &v[0], &v[2]);
    }
}

/* upstream.md 6.2 test_matmul and what has no upstream test: every mode with every transposition, its backward */
TEST(matmul_modes) {
    static const int types[] = {BSR_F32, BSR_F16, BSR_BF16, BSR_F64};
    static const int64_t shapes[][4] = {{16, 32, 48, 16}, {12, 8, 20, 4}, {9, 6, 12, 3}, {5, 3, 7, 1}};
    int mode, trans, t, shape;
    for (mode = 0; mode < 3; mode++)
        for (trans = 0; trans < 8; trans++)
            for (t = 0; t < 4; t++)
                for (shape = 0; shape < 4; shape++) {
                    value v[3];
                    t_shape one = t_batch(2, 2, 3, 0, 0), two = t_batch(2, 2, 3, 0, 0);
                    int ragged;
                    bt_case("mode %d, trans %d, %s, shape %d", mode, trans, bsr_dtype_name(types[t]), shape);
                    ragged = bt_below(2) != 0;
                    if (shape == 1 && mode == 1) two.n[0] = 1; /* a broadcast operand's gradient is a sum */
                    if (shape == 1 && mode == 2) one.n[1] = 1;
                    if (shape == 1 && mode == 0) one = t_batch(1, 3, 0, 0, 0);
                    if (shape == 3) one = two = t_batch(0, 0, 0, 0, 0), ragged = 0;
                    matmul_operands(v, mode, trans & 1, (trans & 2) != 0, (trans & 4) != 0, types[t], shapes[shape],
                                    shapes[shape][3], one, two, ragged);
                    run_matmul(v, (unsigned)trans, types[t]);
                    run_matmul_backward(v, (unsigned)trans);
                }
}
/* upstream.md 6.2, test_matmul: its shape, three items, its types, blocks and transposes (all of them, for blocks of 16); and
   stk's modes at a smaller size. What decides the mode is transposed, too. */
TEST(matmul_deepspeed) {
    static const int64_t mkn[] = {128, 192, 256}, blocks[] = {16, 16, 32, 64};
    int mode, k, trans;
    for (mode = 0; mode < 3; mode++)
        for (k = 0; k < 4; k++)
            for (trans = 0; trans < (k == 1 ? 4 : 1); trans++) {
                const int type = k == 0 ? BSR_F32 : BSR_F16;
                const t_shape batch = t_batch(2, 3, k ? 1 : 2, 0, 0); /* items, heads */
                value v[3];
                bt_case("mode %d, block %lld, %s, trans %d", mode, (long long)blocks[k], bsr_dtype_name(type), trans);
                matmul_operands(v, mode, trans & 1, trans >> 1, 0, type, mkn, blocks[k], batch, batch, 1);
                run_matmul(v, (unsigned)trans, type);
                run_matmul_backward(v, (unsigned)trans);
            }
}
TEST(matmul_stk) {
    static const int64_t shapes[][3] = {{128, 128, 128}, {256, 128, 128}, {128, 256, 128}};
    int mode, k;
    for (mode = 0; mode < 3; mode++)
        for (k = 0; k < 3; k++) {
            value v[3];
            bt_case("mode %d, shape %d", mode, k);
            matmul_operands(v, mode, k & 1, k / 2, 0, BSR_BF16, shapes[k], 128, no_batch, no_batch, 0);
            run_matmul(v, (unsigned)((k & 1) | (k / 2) << 1), BSR_BF16);
        }
}
TEST(matmul_types) {
    static const int64_t shape[] = {12, 8, 20};
    static const struct {
        int a, out;
    } pairs[] = {{BSR_I8, BSR_I32},  {BSR_I8, BSR_I8},    {BSR_I8, BSR_F32},
                 {BSR_F16, BSR_F32}, {BSR_F32, BSR_BF16}, {BSR_BF16, BSR_F32}};
    int mode, k;
    for (mode = 0; mode < 3; mode++)
        for (k = 0; k < 6; k++) {
            value v[3];
            bt_case("mode %d, %s to %s", mode, bsr_dtype_name(pairs[k].a), bsr_dtype_name(pairs[k].out));
            matmul_operands(v, mode, k & 1, (k & 2) != 0, 0, pairs[k].a, shape, 4, t_batch(1, 2, 0, 0, 0), no_batch, k == 2);
            run_matmul(v, (unsigned)(k & 3), pairs[k].out);
        }
}
/* One operand has a batch of no items: the other's gradient is a sum over none, zeros; no pattern has an order. */
TEST(matmul_of_no_items) {
    static const int types[] = {BSR_BF16, BSR_F32, BSR_F64};
    static const int64_t shape[] = {128, 256, 64};
    int mode, side, t, k;
    for (mode = 0; mode < 3; mode++)
        for (side = 0; side < 2; side++)
            for (t = 0; t < 3; t++) {
                value v[3];
                bt_case("mode %d, %s has none, %s", mode, side ? "b" : "a", bsr_dtype_name(types[t]));
                matmul_operands(v, mode, 0, 0, 0, types[t], shape, 64, t_batch(2, side, 2, 0, 0), t_batch(2, !side, 2, 0, 0), 0);
                for (k = 0; k < 3; k++)
                    if (v[k].is_sparse) t_attach_schedule(&v[k].sparse, 1, t & 1), t_attach_transposed(&v[k].sparse);
                run_matmul_backward(v, 0);
            }
}
/* Gradients that are sums over items whose patterns and schedules differ: what orders rows is one item's, what is added all's. */
TEST(matmul_sums_with_schedules) {
    int mode, block, fills, turned;
    for (mode = 0; mode < 3; mode++)
        for (block = 16; block <= 128; block *= 2)
            for (fills = 0; fills < 2; fills++) /* groups fill a tile of 128 rows, or are one row each */
                for (turned = 0; turned < 2; turned++) {
                    const int64_t shape[] = {mode == 2 ? 64 : 256, mode == 0 ? 64 : mode == 1 ? 128 : 256, mode == 1 ? 64 : 128};
                    const t_shape own = t_batch(1, 2, 0, 0, 0), none = NO_BATCH;
                    value v[3];
                    int k;
                    bt_case("mode %d, blocks of %d, groups of %d, %d", mode, block, fills ? 128 / block : 1, turned);
                    matmul_operands(v, mode, 0, 0, 0, BSR_BF16, shape, block, mode == 2 ? none : own, mode == 2 ? own : none,
                                    fills);
                    for (k = 0; k < 3; k++)
                        if (v[k].is_sparse)
                            t_attach_schedule(&v[k].sparse, fills ? 128 / block : 1, turned), t_attach_transposed(&v[k].sparse);
                    run_matmul_backward(v, 0);
                }
}
/* Finite differences: the backward is the derivative of the forward (f64, central differences on a linear function). */
TEST(matmul_backward_finite) {
    static const int64_t shape[] = {8, 12, 4};
    int mode, trans;
    for (mode = 0; mode < 3; mode++)
        for (trans = 0; trans < 8; trans++) {
            value v[3], c, da, db;
            bsr_exec e = t_exec(0);
            int side;
            bt_case("mode %d, trans %d", mode, trans);
            matmul_operands(v, mode, trans & 1, (trans & 2) != 0, (trans & 4) != 0, BSR_F64, shape, 4, no_batch, no_batch, 0);
            da = output_like(&v[0], BSR_F64), db = output_like(&v[1], BSR_F64), c = output_like(&v[2], BSR_F64);
            if (!RUN_OK(bsr_matmul_backward(t_context(0), (unsigned)trans, operand_of(&v[0]), operand_of(&v[1]),
                                            operand_of(&v[2]), operand_of(&da), operand_of(&db), &e)))
                continue;
            for (side = 0; side < 2; side++) { /* L = sum dc * c; dL/dx at one element of a, then of b */
                value *x = &v[side], *g = side ? &db : &da;
                double *at, slope, loss[2], keep;
                int sign;
                if (x->is_sparse ? !x->sparse.nnz : !x->dense.rows) continue;
                at = (double *)(x->is_sparse ? x->sparse.values : x->dense.data);
                slope = x->is_sparse ? t_load(g->sparse.values, BSR_F64, t_value_at(&g->sparse, 0, 0, 0, 0))
                                     : t_get(&g->dense, 0, 0, 0);
                at += x->is_sparse ? t_value_at(&x->sparse, 0, 0, 0, 0) : t_dense_at(&x->dense, 0, 0, 0);
                keep = *at;
                for (sign = 0; sign < 2; sign++) {
                    int64_t i, j;
                    ref_array r;
                    *at = keep + (sign ? 0.25 : -0.25), loss[sign] = 0;
                    bsr_matmul(t_context(0), (unsigned)trans, operand_of(&v[0]), operand_of(&v[1]), operand_of(&c), &e);
                    r = c.is_sparse ? ref_matrix(&c.sparse, NULL) : ref_dense(&c.dense);
                    for (i = 0; i < r.rows; i++)
                        for (j = 0; j < r.cols; j++) loss[sign] += *ref_at(&r, 0, i, j) * *ref_at(&v[2].v, 0, i, j);
                }
                *at = keep;
                CHECK_NEAR((loss[1] - loss[0]) / 0.5, slope, 1e-11 * (1 + fabs(loss[0])));
            }
        }
}

/* Few columns of integers beside small blocks: whole vectors and parts of them, exact. */
TEST(few_integers) {
    static const int64_t blocks[][2] = {{1, 1}, {1, 2}, {2, 2}, {3, 3}, {5, 5}, {1, 13},
                                        {7, 2}, {16, 4}, {8, 8}, {1, 64}, {17, 1}};
    int k;
    for (k = 0; k < 11 * 16; k++) {
        const int64_t *block = blocks[k % 11], n = 2 + k / 11;
        const int isa = 1 + (int)bt_below(T_ISAS);
        t_spec s = t_spec_of(BSR_I8, block[0], block[1], bt_range(1, 9), bt_range(1, 9), 0);
        bsr_matrix a;
        bsr_dense b, out;
        bsr_exec e = t_exec(0);
        ref_result want;
        bt_case("blocks of %d x %d, N %d, isa %d", (int)block[0], (int)block[1], (int)n, isa);
        s.nnz = bt_range(1, s.r * s.c), s.kind = FILL_WIDE, s.layout = (int)bt_below(BLOCKS_LAYOUTS);
        a = t_matrix(&s);
        b = t_random(BSR_I8, a.cols, n, bt_below(3) ? ROW : (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_WIDE);
        out = t_output(BSR_I32, a.rows, n, (int)bt_below(LAYOUTS), NO_BATCH);
        if (!t_context(isa)) {
            bt_skip("this instruction set is not in this build or machine");
            continue;
        }
        want = ref_dense_addmm(0, NULL, 1, 0, &a, &b, NULL, BSR_I32, 0);
        memset(want.bound.v, 0, (size_t)(want.bound.rows * want.bound.cols) * sizeof(double));
        if (RUN_OK(bsr_dense_mm(t_context(isa), 0, &a, &b, &out, &e))) REF_COMPARE(&out, &want, REF_MAY_BE_ZERO);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"few_integers", few_integers},
        {"upstream_triton_kernel", upstream_triton_kernel},
        {"upstream_linear", upstream_linear},
        {"upstream_dense_bmm", upstream_dense_bmm},
        {"upstream_orthogonal", upstream_orthogonal},
        {"upstream_block_addmm", upstream_block_addmm},
        {"sizes", sizes},
        {"blocks_of_tiles", blocks_of_tiles},
        {"long_rows", long_rows},
        {"tile_edges", tile_edges},
        {"bytes", bytes},
        {"few_columns", few_columns},
        {"few_columns_cpu", few_columns_cpu},
        {"few_columns_long", few_columns_long},
        {"transposed_without_index", transposed_without_index},
        {"f32_precisions", f32_precisions},
        {"types_and_layouts", types_and_layouts},
        {"batches", batches},
        {"exact_integers", exact_integers},
        {"side_by_side", side_by_side},
        {"permutation_copies", permutation_copies},
        {"rounding", rounding},
        {"shared_strips", shared_strips},
        {"one_rounding", one_rounding},
        {"epilogues", epilogues},
        {"activation_edges", activation_edges},
        {"infinite_rows", infinite_rows},
        {"nan_rules", nan_rules},
        {"repeated_values", repeated_values},
        {"in_place", in_place},
        {"metamorphic", metamorphic},
        {"plans", plans},
        {"plan_flags", plan_flags},
        {"upstream_scatter_mm", upstream_scatter_mm},
        {"upstream_bsr_scatter_mm", upstream_bsr_scatter_mm},
        {"scatter_indices_by_hand", scatter_indices_by_hand},
        {"matmul_modes", matmul_modes},
        {"matmul_deepspeed", matmul_deepspeed},
        {"matmul_stk", matmul_stk},
        {"matmul_types", matmul_types},
        {"matmul_of_no_items", matmul_of_no_items},
        {"matmul_sums_with_schedules", matmul_sums_with_schedules},
        {"matmul_backward_finite", matmul_backward_finite},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
