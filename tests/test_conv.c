/* test_conv.c: convolutions with block-sparse weights against loops in float64: every parameter over small sizes in whole
   numbers, random ones under bounds, all types, orders and epilogues; both gradients; depthwise; weights from filters; errors. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"
#include "ref_conv.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_E4M3, BSR_E5M2};
#define DTYPES ((int)BT_COUNT(dtypes))
static int result_of(int dtype) {
    static const int of_bytes[] = {BSR_I32, BSR_I8, BSR_F32, BSR_BF16, BSR_F16};
    if (dtype == BSR_I8) return of_bytes[bt_below(5)];
    if (t_is_f8(dtype)) return of_bytes[2 + bt_below(3)];
    return dtype != BSR_F64 && bt_below(3) == 0 ? (int)BSR_F32 : dtype;
}
static double factor_of(int out_type) { return t_is_float(out_type) ? bt_uniform() * 2 - 1 : (double)bt_range(-3, 3); }

/* ---------------------------------------------------------------------------------------------- */
/* problems                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

enum { FIRST = LAYOUTS, ONE, REPEATED, IMAGE_LAYOUTS }; /* channels first; one image without its dimension; images repeat */
static bsr_dense images(int dtype, int dims, const int64_t *size, int64_t n, int64_t channels, int layout, int output) {
    t_shape batch = NO_BATCH;
    bsr_dense d;
    int a;
    batch.dims = dims, batch.n[0] = n;
    for (a = 0; a + 1 < dims; a++) batch.n[1 + a] = size[a];
    if (layout == ONE && n == 1)
        for (batch.dims--, a = 0; a < batch.dims; a++) batch.n[a] = batch.n[a + 1];
    if (layout != FIRST)
        return t_dense(dtype, channels, size[dims - 1], layout >= FIRST ? (int)COL : layout, batch,
                       layout == REPEATED && !output && n > 1 ? 1u : 0u);
    d = bsr_dense_image(NULL, dtype, BSR_CHANNELS_FIRST, dims, size, n, channels);
    d.data = bt_alloc((size_t)(t_dense_items(&d) * d.rows * d.cols) * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
    return d;
}
static int any_layout(void) { return bt_below(3) ? bt_below(2) ? (int)COL : (int)FIRST : (int)bt_below(IMAGE_LAYOUTS); }

typedef struct conv {
    bsr_conv_shape shape;
    int64_t n, filters, channels, in[3], out[3]; /* channels and filters of all groups */
    int dtype, kind, distinct; /* distinct: no block is stored twice */
    bsr_matrix w;
    bsr_dense x, y; /* what it takes, what it gives */
} conv;
static int64_t groups_of(const conv *c) { return c->shape.groups ? c->shape.groups : 1; }
static int64_t taps_of(const conv *c) {
    int64_t n = 1;
    int a;
    for (a = 0; a < c->shape.dims; a++) n *= c->shape.kernel[a];
    return n;
}
static conv conv_new(int dtype, int dims, int kind) {
    conv c;
    memset(&c, 0, sizeof c);
    c.dtype = dtype, c.shape.dims = dims, c.kind = kind, c.n = 1;
    return c;
}
static void conv_axis(conv *c, int axis, int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                      int64_t after) {
    c->in[axis] = in, c->shape.kernel[axis] = kernel, c->shape.stride[axis] = stride == 1 ? bt_below(2) : stride;
    c->shape.dilation[axis] = dilation == 1 ? bt_below(2) : dilation, c->shape.pad_before[axis] = before;
    c->shape.pad_after[axis] = after;
}
static void conv_channels(conv *c, int64_t groups, int64_t channels, int64_t filters) { /* of a group */
    c->shape.groups = groups == 1 ? bt_below(2) : groups, c->channels = channels * groups, c->filters = filters * groups;
}
/* Blocks of br x bc, so many per cent of them stored; images and results by `layout`, -1: any. */
static void conv_make(conv *c, int64_t br, int64_t bc, int percent, int layout) {
    const int64_t cols = taps_of(c) * (c->channels / groups_of(c));
    t_spec m = t_spec_of(c->dtype, br, bc, (c->filters + br - 1) / br, (cols + bc - 1) / bc, 0);
    int a;
    for (a = 0; a < c->shape.dims; a++) c->out[a] = bsr_conv_size(&c->shape, a, c->in[a]);
    m.nnz = (m.r * m.c * percent + 99) / 100, m.layout = (int)bt_below(BLOCKS_LAYOUTS), m.kind = c->kind;
    m.unsorted = bt_below(3) == 0, m.duplicates = !c->distinct && bt_below(4) == 0;
    c->w = t_matrix(&m);
    c->x = images(c->dtype, c->shape.dims, c->in, c->n, c->channels, layout < 0 ? any_layout() : layout, 0);
    c->y = images(c->dtype, c->shape.dims, c->out, c->n, c->filters, layout < 0 ? any_layout() : layout, 0);
    t_fill(&c->x, c->kind), t_fill(&c->y, c->kind);
}
static void no_bounds(ref_result *r, int dtype) { /* whole numbers: nothing but the result is rounded */
    int64_t i;
    for (i = 0; t_is_float(dtype) && i < r->bound.items * r->bound.rows * r->bound.cols && BT_WANTED; i++) r->bound.v[i] = 0;
}
static void conv_check(conv *c, unsigned trans, double beta, const bsr_dense *input, double alpha, const bsr_epilogue *e,
                       int out_type, int layout, unsigned flags, int exact) {
    const bsr_dense *x = trans ? &c->y : &c->x;
    bsr_dense out = images(out_type, c->shape.dims, trans ? c->in : c->out, c->n, trans ? c->channels : c->filters,
                           layout < 0 ? any_layout() : layout, 1);
    bsr_exec run = t_exec(flags);
    ref_result want;
    bt_mark_output(out.data);
    want = ref_conv(beta, input, alpha, trans, &c->shape, &c->w, x, e, &out, flags);
    if (exact) no_bounds(&want, out_type);
    if (RUN_OK(bsr_conv(t_any_context(), beta, input, alpha, trans, &c->shape, &c->w, x, e, &out, &run)))
        REF_COMPARE(&out, &want, REF_ANY);
}
static void conv_check_weights(conv *c, double beta, double alpha, int out_type, unsigned flags, int exact) {
    bsr_matrix out = t_matrix_output(&c->w, out_type, (int)bt_below(BLOCKS_LAYOUTS)), input = c->w;
    bsr_exec run = t_exec(flags);
    bsr_plan plan;
    ref_result want;
    t_make_values(&input, out_type, (int)bt_below(BLOCKS_LAYOUTS), 0), t_fill_values(&input, c->kind);
    want = ref_conv_weights(beta, &input, alpha, &c->shape, &c->y, &c->x, &out, flags);
    if (exact) no_bounds(&want, out_type);
    memset(&plan, 0, sizeof plan);
    if (bt_below(2)) { /* with all that pays */
        run.query = &plan;
        RUN_OK(bsr_conv_weight_gradient(t_any_context(), beta, beta != 0 ? &input : NULL, alpha, &c->shape, &c->y, &c->x, &out,
                                        &run));
        run.query = NULL, run.workspace_bytes = plan.workspace_bytes;
        if (plan.workspace_bytes) run.workspace = bt_alloc((size_t)plan.workspace_bytes, 64), bt_mark_output(run.workspace);
    }
    if (RUN_OK(bsr_conv_weight_gradient(t_any_context(), beta, beta != 0 ? &input : NULL, alpha, &c->shape, &c->y, &c->x, &out,
                                        &run)))
        REF_COMPARE_MATRIX(&out, &want, REF_ANY);
}
/* All three, as they are. */
static void conv_check_all(conv *c, int exact) {
    conv_check(c, 0, 0, NULL, 1, NULL, result_of(c->dtype), -1, 0, exact);
    conv_check(c, BSR_TRANS_A, 0, NULL, 1, NULL, result_of(c->dtype), -1, 0, exact);
    conv_check_weights(c, 0, 1 + (double)bt_below(2), result_of(c->dtype), 0, exact);
}

/* ---------------------------------------------------------------------------------------------- */
/* every parameter over small sizes, in whole numbers                                             */
/* ---------------------------------------------------------------------------------------------- */

static void small_case(conv *c) {
    const int64_t g = bt_range(1, 3), cg = bt_range(1, 3), og = bt_range(1, 3);
    int64_t cols;
    conv_channels(c, g, cg, og);
    c->n = bt_range(1, 2);
    cols = taps_of(c) * cg;
    conv_make(c, bt_range(1, g * og), bt_below(3) ? bt_range(1, cols < 6 ? cols : 6) : cg, (int)bt_range(20, 100), -1);
    bt_describe("%s, %d groups of %d to %d, blocks of %d x %d", bsr_dtype_name(c->dtype), (int)g, (int)cg, (int)og,
                (int)c->w.block_rows, (int)c->w.block_cols);
    conv_check_all(c, 1);
}
TEST(signals_exhaustively) {
    int64_t in, kernel, stride, dilation, before, after;
    int turn = 0;
    for (in = 0; in <= 6; in++)
        for (kernel = 1; kernel <= 3; kernel++)
            for (stride = 1; stride <= 3; stride++)
                for (dilation = 1; dilation <= 2; dilation++)
                    for (before = 0; before <= 2; before++)
                        for (after = 0; after <= 2; after++) {
                            conv c = conv_new(dtypes[turn++ % DTYPES], 1, FILL_INTEGER);
                            bt_case("%d pixels, kernel %d, stride %d, dilation %d, padding %d and %d", (int)in, (int)kernel,
                                    (int)stride, (int)dilation, (int)before, (int)after);
                            conv_axis(&c, 0, in, kernel, stride, dilation, before, after);
                            small_case(&c);
                        }
}
/* Axes that are not alike: each pair, each triple of these. */
static const int64_t axes[][6] = {{1, 1, 1, 1, 0, 0}, {5, 3, 1, 1, 1, 1}, {4, 2, 2, 1, 0, 1}, {6, 3, 2, 2, 2, 1},
                                  {3, 1, 2, 1, 1, 0}, {7, 2, 3, 3, 0, 2}, {2, 4, 1, 1, 3, 0}, {5, 2, 4, 1, 2, 2},
                                  {0, 2, 1, 1, 2, 1}, {4, 3, 1, 2, 0, 4}};
#define AXES ((int)BT_COUNT(axes))
static void axis_of(conv *c, int axis, int i) {
    conv_axis(c, axis, axes[i][0], axes[i][1], axes[i][2], axes[i][3], axes[i][4], axes[i][5]);
}
TEST(images_of_all_axes) {
    int i, j, turn;
    for (i = 0; i < AXES; i++)
        for (j = 0; j < AXES; j++)
            for (turn = 0; turn < 2; turn++) {
                conv c = conv_new(dtypes[(i * AXES + j + turn * 2) % DTYPES], 2, FILL_INTEGER);
                bt_case("axes %d and %d, turn %d", i, j, turn);
                axis_of(&c, 0, i), axis_of(&c, 1, j);
                small_case(&c);
            }
}
TEST(volumes_of_all_axes) {
    int i, j, k;
    for (i = 0; i < AXES; i++)
        for (j = 0; j < AXES; j++)
            for (k = (i + j) % 3; k < AXES; k += 3) {
                conv c = conv_new(dtypes[(i + j * AXES + k) % DTYPES], 3, FILL_INTEGER);
                if (i > 5 && j > 5 && k > 5) continue;
                bt_case("axes %d, %d and %d", i, j, k);
                axis_of(&c, 0, i), axis_of(&c, 1, j), axis_of(&c, 2, k);
                small_case(&c);
            }
}

/* ---------------------------------------------------------------------------------------------- */
/* random ones under bounds                                                                       */
/* ---------------------------------------------------------------------------------------------- */

/* Sizes beside those of tiles and panels, blocks beyond them. */
TEST(sizes) {
    static const int64_t channels[] = {1, 3, 8, 16, 17, 31, 64, 65, 200}, widths[] = {1, 2, 7, 13, 16, 33, 64, 65, 70};
    int d, turn;
    for (d = 0; d < DTYPES; d++)
        for (turn = 0; turn < 40; turn++) {
            const int64_t cg = channels[bt_below(turn % 4 ? 7 : 9)], og = channels[bt_below(turn % 4 ? 7 : 9)];
            const int64_t g = cg * og > 300 ? 1 : bt_range(1, 3), w = widths[bt_below(cg * og > 1000 ? 5 : 9)];
            conv c = conv_new(dtypes[d], 1 + turn % 3, FILL_SIGNED);
            int a;
            bt_case("%s, turn %d", bsr_dtype_name(dtypes[d]), turn);
            for (a = 0; a < c.shape.dims; a++)
                conv_axis(&c, a, a == c.shape.dims - 1 ? w : bt_range(1, 4), bt_range(1, 3), bt_range(1, 2), bt_range(1, 2),
                          bt_range(0, 2), bt_range(0, 2));
            conv_channels(&c, g, cg, og), c.n = bt_range(1, 2);
            conv_make(&c, bt_below(3) ? bt_range(1, g * og) : 8, bt_below(3) ? bt_range(1, taps_of(&c) * cg) : cg,
                      (int)bt_range(10, 100), -1);
            bt_describe("%d groups of %d to %d, %d wide, blocks of %d x %d", (int)g, (int)cg, (int)og, (int)w,
                        (int)c.w.block_rows, (int)c.w.block_cols);
            conv_check_all(&c, 0);
        }
}
TEST(epilogues) {
    int d, has, trans;
    for (d = 0; d < DTYPES; d++)
        for (has = 0; has < 64; has++)
            for (trans = 0; trans < 2; trans++) {
                const int out_type = result_of(dtypes[d]), whole = !t_is_float(out_type), side = whole ? (int)BSR_I32 : out_type;
                bsr_dense input, left, right, bias;
                bsr_epilogue e;
                conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
                int64_t rows, cols;
                double *by_pointer, beta;
                const unsigned flags = dtypes[d] != BSR_I8 && bt_below(4) == 0 ? BSR_EXEC_ACCUMULATE_F64 : 0;
                int layout = any_layout();
                bt_case("%s to %s, epilogue %d, trans %d", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), has, trans);
                by_pointer = (double *)bt_alloc(16, 8);
                conv_axis(&c, 0, 5, 3, bt_range(1, 2), 1, 1, 1), conv_axis(&c, 1, 9, 2, bt_range(1, 2), 1, 0, 1);
                conv_channels(&c, 2, 6, 10), c.n = 2;
                conv_make(&c, 5, 3, 60, -1);
                rows = trans ? c.channels : c.filters, cols = trans ? c.in[1] : c.out[1];
                memset(&e, 0, sizeof e);
                input = images(out_type, 2, trans ? c.in : c.out, 2, rows, layout, 0), t_fill(&input, FILL_SIGNED);
                left = t_random(side, rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                right = t_random(side, 1, cols, ROW, NO_BATCH, 0, FILL_SIGNED);
                bias = t_random(side, bt_below(2) ? rows : 1, bt_below(2) ? cols : 1, ROW,
                                bt_below(2) ? t_batch(1, trans ? c.in[0] : c.out[0], 0, 0, 0) : NO_BATCH, 0, FILL_SIGNED);
                by_pointer[0] = whole ? 3 : 0.75, by_pointer[1] = whole ? 2 : 0.5;
                if (has & 1) e.left_alpha = &left;
                if (has & 2) e.right_alpha = &right;
                if (has & 4) e.bias = &bias;
                if (has & 8 && !whole) {
                    e.activation = 1 + (int32_t)bt_below(4);
                    if (dtypes[d] != BSR_F64 && !flags && bt_below(3) == 0) e.activation = BSR_EPILOGUE_tf_shift;
                }
                if (has & 16) e.alpha_ptr = by_pointer;
                if (has & 32) e.beta_ptr = by_pointer + 1;
                beta = bt_below(2) || has & 32 ? whole ? 2 : 0.25 : 0;
                conv_check(&c, trans ? BSR_TRANS_A : 0, beta, &input, factor_of(out_type), &e, out_type, layout, flags, 0);
            }
}
/* Channels last, half types, blocks and channels of whole sixteens: what tensor cores take, and a step beside it. */
TEST(on_tensor_cores) {
    static const int64_t sides[][2] = {{16, 16}, {32, 32}, {64, 64}, {128, 128}, {16, 32}, {32, 16}, {48, 16}, {64, 128},
                                       {128, 32}, {16, 48}};
    static const int halves[] = {BSR_F16, BSR_BF16};
    int d, turn, a;
    for (d = 0; d < 2; d++)
        for (turn = 0; turn < 60; turn++) {
            const int64_t *side = sides[turn % (int)BT_COUNT(sides)], g = turn % 3 ? 1 : bt_range(2, 3);
            const int64_t filters = side[0] * bt_range(1, g > 1 || side[0] > 64 ? 1 : 3), channels = side[1] * bt_range(1, 2);
            const int last = bt_below(3) ? (int)COL : (int)COL_WIDE, odd = bt_below(2) ? (int)FIRST : (int)COL_PADDED;
            const int layout = bt_below(3) ? last : odd, ragged = g == 1 && bt_below(4) == 0;
            const int out_type = bt_below(2) ? (int)BSR_F32 : halves[d];
            conv c = conv_new(halves[d], 1 + turn % 3, FILL_SIGNED);
            bsr_dense input, left, bias;
            bsr_epilogue e;
            int trans;
            bt_case("%s, turn %d", bsr_dtype_name(halves[d]), turn);
            for (a = 0; a < c.shape.dims; a++)
                conv_axis(&c, a, a == c.shape.dims - 1 ? bt_range(1, turn % 5 ? 12 : 200) : bt_range(1, turn % 4 ? 5 : 1),
                          bt_range(1, 3), turn % 2 ? 1 : bt_range(1, 3), bt_range(1, 2), bt_range(0, 2), bt_range(0, 2));
            conv_channels(&c, g, channels, filters - (ragged ? bt_range(1, 15) : 0)), c.n = bt_range(1, 3);
            c.distinct = turn % 3 == 1;
            conv_make(&c, side[0], side[1], (int)bt_range(5, 100), layout);
            if (bt_below(2)) t_attach_transposed(&c.w);
            bt_describe("%d groups of %d to %d, blocks of %d x %d", (int)g, (int)channels, (int)filters, (int)side[0],
                        (int)side[1]);
            for (trans = 0; trans < 2; trans++) {
                const int64_t rows = trans ? c.channels : c.filters;
                memset(&e, 0, sizeof e);
                input = images(out_type, c.shape.dims, trans ? c.in : c.out, c.n, rows, bt_below(2) ? layout : (int)FIRST, 0);
                left = t_random(BSR_F32, rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED), t_fill(&input, FILL_SIGNED);
                bias = t_random(out_type, rows, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
                if (turn % 4 > 1) e.left_alpha = &left, e.activation = (int32_t)bt_below(5);
                if (turn % 4) e.bias = &bias;
                conv_check(&c, trans ? BSR_TRANS_A : 0, turn % 4 == 2 ? 0.5 : 0, &input, turn % 4 ? -1.5 : 1, &e, out_type,
                           turn % 7 ? layout : -1, 0, 0);
            }
            conv_check_weights(&c, turn % 3 == 1 ? 0.5 : 0, 1.5, out_type, 0, 0);
        }
}
/* Weight gradients over so many pixels that several share them. */
TEST(many_products) {
    static const int64_t sides[][2] = {{64, 64}, {32, 32}, {16, 16}, {64, 32}, {128, 128}};
    static const int halves[] = {BSR_F16, BSR_BF16};
    int turn;
    for (turn = 0; turn < 10; turn++) {
        const int64_t *side = sides[turn % 5];
        conv c = conv_new(halves[turn % 2], 2, FILL_SIGNED);
        bt_case("turn %d", turn);
        conv_axis(&c, 0, 33, turn % 3 ? 1 : 3, 1 + turn / 5, 1, 1, 1), conv_axis(&c, 1, 50, 2, 1, 1 + turn / 5, 1, 0);
        conv_channels(&c, 1, side[1], side[0]), c.n = 2 + turn / 5, c.distinct = 1;
        conv_make(&c, side[0], side[1], 70, COL);
        conv_check_weights(&c, turn % 2 ? 0.5 : 0, 1.5, turn % 3 ? halves[turn % 2] : (int)BSR_F32, 0, 0);
    }
}
TEST(weight_gradients_add) {
    int d, turn;
    for (d = 0; d < DTYPES; d++)
        for (turn = 0; turn < 12; turn++) {
            const int out_type = result_of(dtypes[d]);
            conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
            bt_case("%s to %s, turn %d", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), turn);
            conv_axis(&c, 0, 6, 2, 1, 1, 1, 0), conv_axis(&c, 1, 40, 3, bt_range(1, 2), 1, 1, 1);
            conv_channels(&c, bt_range(1, 2), bt_range(1, 40), bt_range(1, 70)), c.n = bt_range(1, 2), c.distinct = 1;
            conv_make(&c, bt_range(1, 70), turn % 3 ? bt_range(1, 40) : bt_range(1, 300), 50, -1);
            conv_check_weights(&c, t_is_float(out_type) ? 0.5 : 2, t_is_float(out_type) ? -0.75 : 3, out_type,
                               dtypes[d] != BSR_I8 && turn % 4 == 0 ? BSR_EXEC_ACCUMULATE_F64 : 0, 0);
        }
}
/* A channel is a group; whole taps, single weights, blocks of channels. */
TEST(depthwise) {
    static const int64_t sides[][2] = {{1, 1}, {1, 9}, {16, 1}, {8, 3}, {5, 2}, {64, 1}, {128, 9}, {7, 7}};
    static const int64_t counts[] = {2, 16, 64, 65, 100};
    static const int layouts[] = {COL, FIRST, -1};
    int d, b, layout, turn;
    for (d = 0; d < DTYPES; d++)
        for (b = 0; b < (int)BT_COUNT(sides); b++)
            for (layout = 0; layout < 3; layout++)
                for (turn = 0; turn < 2; turn++) {
                    conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
                    bt_case("%s, blocks of %d x %d, layout %d, turn %d", bsr_dtype_name(dtypes[d]), (int)sides[b][0],
                            (int)sides[b][1], layout, turn);
                    conv_axis(&c, 0, 5, 3, 1 + turn, 1, 1, 1), conv_axis(&c, 1, bt_range(1, 70), 3, 1 + turn, 1 + turn, 2, 1);
                    conv_channels(&c, counts[bt_below(5)], 1, 1), c.n = bt_range(1, 2);
                    conv_make(&c, sides[b][0], sides[b][1], turn ? 100 : 60, layouts[layout]);
                    conv_check_all(&c, 0);
                }
}
/* Filters with taps that nobody has, and none at all. */
TEST(absent_taps) {
    int d, kept;
    for (d = 0; d < DTYPES; d++)
        for (kept = -1; kept < 9; kept++) {
            conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
            int64_t p;
            bt_case("%s, tap %d alone", bsr_dtype_name(dtypes[d]), kept);
            conv_axis(&c, 0, 5, 3, 1, 1, 1, 1), conv_axis(&c, 1, 6, 3, 2, 1, 1, 1);
            conv_channels(&c, 1, 4, 8), c.n = 2;
            conv_make(&c, 4, 4, kept < 0 ? 0 : 100 / 9 + 1, -1);
            for (p = 0; p < c.w.nnz; p++) t_set_index(c.w.col_indices, c.w.index_dtype, p, kept);
            conv_check_all(&c, 0);
        }
}
/* What is not stored does not count, whatever stands opposite to it; what beta and alpha turn off is never read. */
TEST(never_read) {
    int d, trans, what;
    for (d = 0; d < 4; d++)
        for (trans = 0; trans < 2; trans++)
            for (what = 0; what < 4; what++) {
                conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
                bsr_dense *x = trans ? &c.y : &c.x, input;
                int64_t i, p, bad = 3;
                bt_case("%s, trans %d, %d", bsr_dtype_name(dtypes[d]), trans, what);
                conv_axis(&c, 0, 4, 3, 1, 1, 1, 1), conv_axis(&c, 1, 6, 3, 1, 1, 1, 1);
                if (what == 3) conv_channels(&c, 8, 1, 1), bad = 5;
                else conv_channels(&c, 1, 8, 8);
                conv_make(&c, what == 3 ? 1 : 8, what == 3 ? 9 : 1, 100, what == 3 && bt_below(2) ? (int)COL : -1);
                for (p = 0; p < c.w.nnz && what == 0; p++) /* nobody looks at this channel */
                    if (t_index(c.w.col_indices, c.w.index_dtype, p) % 8 == bad)
                        t_set_index(c.w.col_indices, c.w.index_dtype, p, 0);
                for (i = bad + 1; i <= 8 && what == 3; i++) t_set_index(c.w.crow_indices, c.w.index_dtype, i, i - 1);
                if (what == 3) c.w.nnz = 7;
                if (what == 1) conv_check(&c, trans ? BSR_TRANS_A : 0, 0, NULL, 0, NULL, dtypes[d], -1, 0, 0);
                else if (what == 2) {
                    input = images(dtypes[d], 2, trans ? c.in : c.out, 1, 8, COL, 0);
                    conv_check(&c, trans ? BSR_TRANS_A : 0, 0, &input, 1, NULL, dtypes[d], -1, 0, 0);
                } else {
                    for (p = 0; p < t_dense_items(x) && (what == 3 || !trans); p++)
                        for (i = 0; i < x->cols; i++) t_set(x, p, bad, i, NAN);
                    conv_check(&c, trans ? BSR_TRANS_A : 0, 0, NULL, 1, NULL, dtypes[d], -1, 0, 0);
                }
            }
}
/* Far more than 2^31 pixels, all of them one in memory. */
TEST(many_pixels) {
    int d;
    for (d = 0; d < 5; d++) {
        conv c = conv_new(dtypes[d], 2, FILL_INTEGER);
        const int64_t big = INT64_C(1) << 20, step = INT64_C(1) << 18;
        bsr_dense x, out;
        bsr_exec run = t_exec(0);
        int64_t n, i, j, o, k;
        bt_case("%s", bsr_dtype_name(dtypes[d]));
        conv_axis(&c, 0, 1, 3, step, step, 0, 0), conv_axis(&c, 1, 1, 3, step, 1, 1, 0);
        conv_channels(&c, 1, 3, 4);
        conv_make(&c, 2, 3, 60, COL);
        x = c.x, x.cols = big, x.col_stride = 0, x.batch[0] = 3, x.batch_stride[0] = 0, x.batch[1] = big, x.batch_stride[1] = 0;
        c.out[0] = bsr_conv_size(&c.shape, 0, big), c.out[1] = bsr_conv_size(&c.shape, 1, big);
        CHECK_INT(c.out[0], 2), CHECK_INT(c.out[1], 4);
        out = images(d == 4 ? (int)BSR_I32 : d == 1 ? (int)BSR_F64 : (int)BSR_F32, 2, c.out, 3, 4, COL, 1);
        bt_mark_output(out.data);
        if (!RUN_OK(bsr_conv(t_any_context(), 0, NULL, 1, 0, &c.shape, &c.w, &x, NULL, &out, &run))) continue;
        for (n = 0; n < 3; n++)
            for (i = 0; i < 2; i++)
                for (j = 0; j < 4; j++)
                    for (o = 0; o < 4; o++) {
                        ref_array w = ref_matrix(&c.w, NULL);
                        double want = 0;
                        for (k = 0; k < 27; k++) /* the first pixel of each line lies beside the image */
                            if (!(j == 0 && k / 3 % 3 == 0)) want += *ref_at(&w, 0, o, k) * t_get(&c.x, 0, k % 3, 0);
                        CHECK(t_get(&out, n * 2 + i, o, j) == want);
                    }
    }
}
/* Without taps, steps and padding it is a product, with a product's bits. */
TEST(one_tap_is_a_product) {
    int d, turn;
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 8; turn++) {
            conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
            bsr_dense x, y, out;
            bsr_exec run = t_exec(0);
            const bsr_context *ctx = t_any_context();
            const int trans = turn & 1;
            int64_t n;
            bt_case("%s, turn %d", bsr_dtype_name(dtypes[d]), turn);
            conv_axis(&c, 0, 6, 1, 1, 1, 0, 0), conv_axis(&c, 1, 17, 1, 1, 1, 0, 0);
            conv_channels(&c, 1, 48, 64), c.n = 2;
            conv_make(&c, 16, 24, 70, COL);
            if (trans) t_attach_transposed(&c.w);
            n = 2 * 6 * 17;
            out = images(dtypes[d], 2, trans ? c.in : c.out, 2, trans ? 48 : 64, COL, 1), bt_mark_output(out.data);
            y = t_output(dtypes[d], trans ? 48 : 64, n, COL, NO_BATCH);
            x = bsr_dense_col_major(trans ? c.y.data : c.x.data, dtypes[d], trans ? 64 : 48, n);
            if (!RUN_OK(bsr_conv(ctx, 0, NULL, 1, trans ? BSR_TRANS_A : 0, &c.shape, &c.w, trans ? &c.y : &c.x, NULL, &out,
                                 &run)))
                continue;
            c.w.schedule = NULL;
            if (!RUN_OK(bsr_dense_mm(ctx, trans ? BSR_TRANS_A : 0, &c.w, &x, &y, &run))) continue;
            CHECK(bt_same_bytes(out.data, y.data, (size_t)(n * (trans ? 48 : 64)) * bsr_dtype_size(dtypes[d])));
        }
}
static void thread_body(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    int64_t i;
    (void)user;
    for (i = tasks - 1; i >= 0; i--) body(arg, i); /* backwards */
}
TEST(bits_for_any_threads) {
    bsr_context_desc desc;
    bsr_context *ctx[3];
    int d, turn, t;
    memset(&desc, 0, sizeof desc);
    desc.backend = BSR_BACKEND_CPU, desc.threads = 1;
    CHECK_INT(bsr_create(&desc, &ctx[0], NULL), BSR_OK);
    desc.threads = 4;
    CHECK_INT(bsr_create(&desc, &ctx[1], NULL), BSR_OK);
    desc.threads = 64, desc.parallel_for = thread_body;
    CHECK_INT(bsr_create(&desc, &ctx[2], NULL), BSR_OK);
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 6; turn++) {
            conv c = conv_new(dtypes[d], 2, FILL_SIGNED);
            void *first[3] = {NULL, NULL, NULL};
            bt_case("%s, turn %d", bsr_dtype_name(dtypes[d]), turn);
            conv_axis(&c, 0, 12, 3, 1 + turn % 2, 1, 1, 1), conv_axis(&c, 1, 14, 3, 1 + turn % 2, 1, 1, 1);
            if (turn < 4) conv_channels(&c, 1 + turn / 2, 32, 80);
            else conv_channels(&c, 96, 1, 1);
            c.n = 2;
            conv_make(&c, turn < 4 ? 16 : 1, turn < 4 ? 16 : 9, 50, turn % 2 ? (int)COL : (int)FIRST);
            for (t = 0; t < 3; t++) {
                bsr_exec run = t_exec(0);
                bsr_dense y = images(dtypes[d], 2, c.out, 2, c.filters, COL, 1);
                bsr_dense dx = images(dtypes[d], 2, c.in, 2, c.channels, COL, 1);
                bsr_matrix dw = t_matrix_output(&c.w, dtypes[d], PACKED);
                void *all[3];
                size_t bytes[3], size = bsr_dtype_size(dtypes[d]);
                int i;
                bt_mark_output(y.data), bt_mark_output(dx.data);
                RUN_OK(bsr_conv(ctx[t], 0, NULL, 1, 0, &c.shape, &c.w, &c.x, NULL, &y, &run));
                RUN_OK(bsr_conv(ctx[t], 0, NULL, 1, BSR_TRANS_A, &c.shape, &c.w, &c.y, NULL, &dx, &run));
                RUN_OK(bsr_conv_weight_gradient(ctx[t], 0, NULL, 1, &c.shape, &c.y, &c.x, &dw, &run));
                all[0] = y.data, all[1] = dx.data, all[2] = dw.values;
                bytes[0] = (size_t)(t_dense_items(&y) * y.rows * y.cols) * size;
                bytes[1] = (size_t)(t_dense_items(&dx) * dx.rows * dx.cols) * size;
                bytes[2] = (size_t)(dw.nnz * dw.block_rows * dw.block_cols) * size;
                for (i = 0; i < 3; i++) {
                    if (!t) first[i] = all[i];
                    CHECK(bt_same_bytes(first[i], all[i], bytes[i]));
                }
            }
        }
    for (t = 0; t < 3; t++) bsr_destroy(ctx[t]);
}
TEST(nothing_to_do) {
    int d, which, trans;
    for (d = 0; d < 5; d++)
        for (which = 0; which < 6; which++) {
            conv c = conv_new(dtypes[d], 2, FILL_INTEGER);
            bt_case("%s, %d", bsr_dtype_name(dtypes[d]), which);
            conv_axis(&c, 0, which == 0 ? 0 : 4, 2, 1, 1, 0, 0), conv_axis(&c, 1, which == 1 ? 1 : 4, 2, 1, 1, 0, 0);
            conv_channels(&c, which == 5 ? 2 : 1, which == 2 ? 0 : 3, which == 3 ? 0 : 4);
            c.n = which == 4 ? 0 : 2;
            conv_make(&c, 2, 3, 50, -1);
            for (trans = 0; trans < 2; trans++)
                conv_check(&c, trans ? BSR_TRANS_A : 0, 0, NULL, 1, NULL, result_of(dtypes[d]), -1, 0, 1);
            conv_check_weights(&c, 0, 1, result_of(dtypes[d]), 0, 1);
        }
}

/* ---------------------------------------------------------------------------------------------- */
/* views, weights from filters                                                                    */
/* ---------------------------------------------------------------------------------------------- */

TEST(views) {
    static const int64_t size[3] = {4, 5, 6};
    static float data[1];
    bsr_conv_shape s;
    bsr_dense d;
    int dims;
    for (dims = 1; dims <= 3; dims++) {
        int64_t pixels = dims == 1 ? 4 : dims == 2 ? 20 : 120;
        d = bsr_dense_image(data, BSR_F32, BSR_CHANNELS_LAST, dims, size, 7, 3);
        CHECK_INT(d.batch_dims, dims), CHECK_INT(d.batch[0], 7), CHECK_INT(d.rows, 3), CHECK_INT(d.cols, size[dims - 1]);
        CHECK_INT(d.row_stride, 1), CHECK_INT(d.col_stride, 3), CHECK_INT(d.batch_stride[0], 3 * pixels);
        if (dims > 1) CHECK_INT(d.batch_stride[dims - 1], 3 * size[dims - 1]), CHECK_INT(d.batch[dims - 1], size[dims - 2]);
        d = bsr_dense_image(data, BSR_F32, BSR_CHANNELS_FIRST, dims, size, 7, 3);
        CHECK_INT(d.row_stride, pixels), CHECK_INT(d.col_stride, 1), CHECK_INT(d.batch_stride[0], 3 * pixels);
        if (dims > 1) CHECK_INT(d.batch_stride[dims - 1], size[dims - 1]);
    }
    CHECK(bsr_dense_image(data, BSR_F32, BSR_CHANNELS_LAST, 0, size, 1, 1).batch_dims > BSR_MAX_BATCH_DIMS);
    CHECK(bsr_dense_image(data, BSR_F32, 2, 1, size, 1, 1).batch_dims > BSR_MAX_BATCH_DIMS);
    memset(&s, 0, sizeof s);
    s.dims = 2, s.kernel[0] = 3, s.kernel[1] = 5;
    d = bsr_dense_filter(data, BSR_F32, BSR_CHANNELS_FIRST, &s, 8, 4);
    CHECK_INT(d.rows, 8), CHECK_INT(d.cols, 4), CHECK_INT(d.row_stride, 60), CHECK_INT(d.col_stride, 15);
    CHECK_INT(d.batch[0], 3), CHECK_INT(d.batch[1], 5), CHECK_INT(d.batch_stride[0], 5), CHECK_INT(d.batch_stride[1], 1);
    d = bsr_dense_filter(data, BSR_F32, BSR_CHANNELS_LAST, &s, 8, 4);
    CHECK_INT(d.row_stride, 60), CHECK_INT(d.col_stride, 1), CHECK_INT(d.batch_stride[0], 20), CHECK_INT(d.batch_stride[1], 4);
    s.dims = 4;
    CHECK(bsr_dense_filter(data, BSR_F32, BSR_CHANNELS_LAST, &s, 8, 4).batch_dims > BSR_MAX_BATCH_DIMS);
    CHECK(bsr_dense_filter(data, BSR_F32, BSR_CHANNELS_LAST, NULL, 8, 4).batch_dims > BSR_MAX_BATCH_DIMS);
}
TEST(result_sizes) {
    int64_t n, kernel, stride, dilation, before, after, i, want;
    bsr_conv_shape s;
    memset(&s, 0, sizeof s);
    s.dims = 1;
    for (n = 0; n < 8; n++)
        for (kernel = 1; kernel < 4; kernel++)
            for (stride = 0; stride < 4; stride++)
                for (dilation = 0; dilation < 4; dilation++)
                    for (before = 0; before < 3; before++)
                        for (after = 0; after < 3; after++) {
                            s.kernel[0] = kernel, s.stride[0] = stride, s.dilation[0] = dilation;
                            s.pad_before[0] = before, s.pad_after[0] = after;
                            for (want = 0, i = 0; i + (dilation ? dilation : 1) * (kernel - 1) < n + before + after;
                                 i += stride ? stride : 1)
                                want++;
                            CHECK_INT(bsr_conv_size(&s, 0, n), want);
                        }
    CHECK_INT(bsr_conv_size(&s, 1, 5), -1), CHECK_INT(bsr_conv_size(&s, -1, 5), -1), CHECK_INT(bsr_conv_size(&s, 0, -1), -1);
    CHECK_INT(bsr_conv_size(NULL, 0, 5), -1), CHECK_INT(bsr_conv_size(&s, 0, INT64_MAX), -1);
    s.dilation[0] = INT64_MAX;
    CHECK_INT(bsr_conv_size(&s, 0, 5), -1);
}
/* A filter in any order gives what bsr_prune gives from its columns laid out by hand. */
TEST(weights_from_filters) {
    static const int orders[] = {BSR_CHANNELS_FIRST, BSR_CHANNELS_LAST};
    int turn, o, with;
    for (turn = 0; turn < 40; turn++)
        for (o = 0; o < 3; o++)
            for (with = 0; with < 3; with++) {
                const int dtype = dtypes[turn % 5], dims = 1 + turn % 3, norm = (int)bt_below(3);
                const int64_t filters = bt_range(0, 9), channels = bt_range(1, 5);
                const double sparsity = bt_below(3) ? bt_uniform() : 0;
                int64_t taps = 1, r, t, k, nnz;
                bsr_conv_shape s;
                bsr_dense filter, flat;
                bsr_matrix m[2];
                bsr_exec run = t_exec(0);
                t_spec spec;
                int a, i;
                bt_case("%s, %d axes, order %d, room %d, turn %d", bsr_dtype_name(dtype), dims, o, with, turn);
                memset(&s, 0, sizeof s);
                for (s.dims = dims, a = 0; a < dims; a++) s.kernel[a] = bt_range(1, 3), taps *= s.kernel[a];
                if (o < 2) {
                    filter = bsr_dense_filter(NULL, dtype, orders[o], &s, filters, channels);
                    filter.data = bt_alloc((size_t)(filters * taps * channels) * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
                    t_fill(&filter, FILL_SIGNED);
                } else {
                    t_shape batch = NO_BATCH;
                    for (batch.dims = dims, a = 0; a < dims; a++) batch.n[a] = s.kernel[a];
                    filter = t_random(dtype, filters, channels, (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
                }
                flat = t_dense(dtype, filters, taps * channels, ROW, NO_BATCH, 0);
                for (r = 0; r < filters && BT_WANTED; r++)
                    for (t = 0; t < taps; t++)
                        for (k = 0; k < channels; k++) t_set(&flat, 0, r, t * channels + k, t_get(&filter, t, r, k));
                spec = t_spec_of(dtype, bt_range(1, 4), bt_range(1, 5), 0, 0, 0);
                spec.r = (filters + spec.block_rows - 1) / spec.block_rows;
                spec.c = (taps * channels + spec.block_cols - 1) / spec.block_cols;
                m[0] = t_target(&spec), m[1] = t_target(&spec);
                m[1].rows = m[1].cols = m[0].rows = m[0].cols = 0;
                if (with) { /* a workspace with room for some of it, for all */
                    run.workspace_bytes = with == 1 ? 192 : 65536;
                    run.workspace = bt_alloc((size_t)run.workspace_bytes, 64), bt_mark_output(run.workspace);
                }
                if (!RUN_OK(bsr_conv_prune(t_any_context(), &filter, sparsity, norm, &m[0], &run))) continue;
                if (!RUN_OK(bsr_prune(t_any_context(), bsr_operand_dense(&flat), sparsity, norm, &m[1], &run))) continue;
                CHECK_INT(m[0].nnz, m[1].nnz), CHECK_INT(m[0].rows, m[1].rows), CHECK_INT(m[0].cols, m[1].cols);
                CHECK_INT(m[0].nnz, bsr_kept_blocks(spec.r * spec.c, sparsity));
                nnz = m[0].nnz < m[1].nnz ? m[0].nnz : m[1].nnz;
                for (r = 0; r <= spec.r; r++) CHECK_INT(t_crow(&m[0], 0, r), t_crow(&m[1], 0, r));
                for (k = 0; k < nnz; k++) {
                    CHECK_INT(t_col(&m[0], 0, k), t_col(&m[1], 0, k));
                    for (i = 0; i < spec.block_rows; i++)
                        for (a = 0; a < spec.block_cols; a++)
                            CHECK(t_load(m[0].values, dtype, t_value_at(&m[0], 0, k, i, a)) ==
                                  t_load(m[1].values, dtype, t_value_at(&m[1], 0, k, i, a)));
                }
            }
}

/* ---------------------------------------------------------------------------------------------- */
/* errors                                                                                         */
/* ---------------------------------------------------------------------------------------------- */

typedef struct bad_call {
    conv c;
    bsr_dense out, other;
    bsr_matrix dw;
    bsr_epilogue e;
    const bsr_conv_shape *shape;
    uint32_t trans;
    double alpha, beta;
} bad_call;
static bad_call bad_new(void) {
    bad_call b;
    memset(&b, 0, sizeof b);
    b.c = conv_new(BSR_F32, 2, FILL_SIGNED);
    conv_axis(&b.c, 0, 5, 3, 2, 1, 1, 1), conv_axis(&b.c, 1, 6, 3, 2, 1, 1, 1), conv_channels(&b.c, 2, 4, 4), b.c.n = 2;
    conv_make(&b.c, 4, 4, 50, COL);
    b.out = images(BSR_F32, 2, b.c.out, 2, b.c.filters, COL, 1), bt_mark_output(b.out.data), b.alpha = 1;
    b.dw = t_matrix_output(&b.c.w, BSR_F32, PACKED);
    return b;
}
static void bad_run(bad_call *b, int weights, int status, int item, int operand) {
    bsr_exec run = t_exec(0);
    const void *out = weights ? b->dw.values : b->out.data;
    bsr_status got;
    bt_before_call();
    if (weights) got = bsr_conv_weight_gradient(t_context(0), b->beta, NULL, b->alpha, b->shape, &b->c.y, &b->c.x, &b->dw, &run);
    else got = bsr_conv(t_context(0), b->beta, NULL, b->alpha, b->trans, b->shape, &b->c.w, &b->c.x, &b->e, &b->out, &run);
    bt_after_call();
    CHECK_INT(got, status), CHECK_STR(bsr_item_name(t_error.item), bsr_item_name(item));
    CHECK_STR(bsr_operand_name(t_error.operand), bsr_operand_name(operand));
    if (status != BSR_OVERLAP) CHECK(t_all_poison(out));
}
#define BAD(text, change, status, item, operand)                                   \
    do {                                                                           \
        for (w = 0; w < 2; w++) {                                                  \
            bad_call b;                                                            \
            bt_case("%s, %s", text, w ? "weights" : "data");                       \
            b = bad_new(), b.shape = &b.c.shape;                                   \
            change;                                                                \
            bad_run(&b, w, status, item, operand);                                 \
        }                                                                          \
    } while (0)
#define W_OR(of_weights, of_data) (w ? (int)(of_weights) : (int)(of_data))
TEST(errors) {
    int w, f;
    int64_t *fields[5];
    BAD("null shape", b.shape = NULL, BSR_NULL_POINTER, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_SHAPE);
    BAD("no axes", b.c.shape.dims = 0, BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
    BAD("four axes", b.c.shape.dims = 4, BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
    BAD("reserved", b.c.shape.reserved = 1, BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
    BAD("groups", b.c.shape.groups = -1, BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
    for (f = 0; f < 15; f++) {
        BAD("field", (fields[0] = b.c.shape.kernel, fields[1] = b.c.shape.stride, fields[2] = b.c.shape.dilation,
                      fields[3] = b.c.shape.pad_before, fields[4] = b.c.shape.pad_after,
                      fields[f / 3][f % 3] = f % 3 == 2 ? 1 : -1),
            BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
        CHECK_INT(t_error.index, 3 + f), CHECK_INT(t_error.value, f % 3 == 2 ? 1 : -1);
    }
    BAD("kernel of 0", b.c.shape.kernel[1] = 0, BSR_BAD_ARGUMENT, BSR_ITEM_CONV_FIELD, BSR_ARG_SHAPE);
    BAD("taps overflow", b.c.shape.kernel[0] = b.c.shape.kernel[1] = INT64_C(1) << 40, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW,
        BSR_ARG_SHAPE);
    BAD("reach overflows", b.c.shape.dilation[0] = INT64_MAX, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_SHAPE);
    BAD("padding overflows", b.c.shape.pad_after[0] = INT64_MAX, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_SHAPE);
    BAD("groups that don't divide", b.c.shape.groups = 3, BSR_BAD_SHAPE, BSR_ITEM_CONV_GROUPS, BSR_ARG_X);
    BAD("groups that don't divide filters", (b.out.rows = b.c.y.rows = 7), BSR_BAD_SHAPE, BSR_ITEM_CONV_GROUPS,
        W_OR(BSR_ARG_DY, BSR_ARG_OUT));
    BAD("height", (b.out.batch[1] = b.c.y.batch[1] = 2), BSR_BAD_SHAPE, BSR_ITEM_CONV_SIZE, W_OR(BSR_ARG_DY, BSR_ARG_OUT));
    BAD("width", (b.out.cols = b.c.y.cols = 2), BSR_BAD_SHAPE, BSR_ITEM_CONV_SIZE, W_OR(BSR_ARG_DY, BSR_ARG_OUT));
    BAD("images", (b.out.batch[0] = b.c.y.batch[0] = 1), BSR_BAD_BATCH, BSR_ITEM_BATCH_SIZE, W_OR(BSR_ARG_DY, BSR_ARG_OUT));
    BAD("dims of x", b.c.x.batch_dims = 0, BSR_BAD_BATCH, BSR_ITEM_BATCH_DIMS, BSR_ARG_X);
    BAD("dims of out", b.out.batch_dims = b.c.y.batch_dims = 0, BSR_BAD_BATCH, BSR_ITEM_BATCH_DIMS,
        W_OR(BSR_ARG_DY, BSR_ARG_OUT));
    BAD("more taps", b.c.w.cols = b.dw.cols = b.c.w.cols + 4, BSR_BAD_SHAPE, BSR_ITEM_COLS_MISMATCH,
        W_OR(BSR_ARG_OUT, BSR_ARG_W));
    BAD("more filters", b.c.w.rows = b.dw.rows = b.c.w.rows + 4, BSR_BAD_SHAPE, BSR_ITEM_ROWS_MISMATCH,
        W_OR(BSR_ARG_OUT, BSR_ARG_W));
    BAD("a batch of weights", b.c.w.batch_dims = b.dw.batch_dims = 1, BSR_BAD_SHAPE * 0 + BSR_BAD_BATCH, BSR_ITEM_BATCH_DIMS,
        W_OR(BSR_ARG_OUT, BSR_ARG_W));
    BAD("dtype of x", b.c.x.dtype = BSR_F16, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_X);
    BAD("dtype of out", b.out.dtype = b.dw.dtype = BSR_I32, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT);
    BAD("x null", b.c.x.data = NULL, BSR_NULL_POINTER, BSR_ITEM_DATA_NULL, BSR_ARG_X);
    BAD("beta without input", b.beta = 1, BSR_NULL_POINTER, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT);
    BAD("a column out of range", (b.c.w.nnz > 1 ? t_set_index(b.c.w.col_indices, b.c.w.index_dtype, 1, 9999) : (void)0),
        BSR_BAD_STRUCTURE, BSR_ITEM_COL_RANGE, W_OR(BSR_ARG_OUT, BSR_ARG_W));
    BAD("x in out", (w ? (void)(b.dw.values = b.c.x.data) : (void)(b.out.data = b.c.x.data)), BSR_OVERLAP, BSR_ITEM_OVERLAP,
        BSR_ARG_OUT);
    for (w = 0; w < 1; w++) {
        bad_call b;
        bt_case("trans");
        b = bad_new(), b.shape = &b.c.shape, b.trans = 2;
        bad_run(&b, 0, BSR_BAD_ARGUMENT, BSR_ITEM_RESERVED, BSR_ARG_NONE);
        bt_case("activation");
        b = bad_new(), b.shape = &b.c.shape, b.e.activation = 77;
        bad_run(&b, 0, BSR_BAD_ARGUMENT, BSR_ITEM_ACTIVATION, BSR_ARG_NONE);
        bt_case("out overlaps itself");
        b = bad_new(), b.shape = &b.c.shape, b.out.col_stride = 1;
        bad_run(&b, 0, BSR_BAD_STRIDE, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT);
    }
}
/* A query writes nothing but the plan, which a call takes back. */
TEST(plans) {
    bad_call b;
    bsr_plan plan;
    bsr_exec run;
    char line[200];
    bt_case("query");
    b = bad_new(), run = t_exec(0);
    memset(&plan, 0x77, sizeof plan), run.query = &plan;
    CHECK_INT(bsr_conv(t_context(0), 0, NULL, 1, 0, &b.c.shape, &b.c.w, &b.c.x, NULL, &b.out, &run), BSR_OK);
    CHECK_INT(plan.op, BSR_OP_CONV), CHECK_INT(plan.workspace_bytes, 0), CHECK(t_all_poison(b.out.data));
    CHECK(bsr_plan_string(&plan, line, sizeof line) > 0 && strstr(line, "conv on cpu"));
    run.query = NULL, run.plan = &plan;
    CHECK_INT(bsr_conv(t_context(0), 0, NULL, 1, 0, &b.c.shape, &b.c.w, &b.c.x, NULL, &b.out, &run), BSR_OK);
    CHECK(!t_all_poison(b.out.data));
    plan.tile_rows++;
    CHECK_INT(bsr_conv(t_context(0), 0, NULL, 1, 0, &b.c.shape, &b.c.w, &b.c.x, NULL, &b.out, &run), BSR_BAD_PLAN);
}

static const bt_test tests[] = {{"signals_exhaustively", signals_exhaustively},
                                {"images_of_all_axes", images_of_all_axes},
                                {"volumes_of_all_axes", volumes_of_all_axes},
                                {"sizes", sizes},
                                {"epilogues", epilogues},
                                {"on_tensor_cores", on_tensor_cores},
                                {"many_products", many_products},
                                {"weight_gradients_add", weight_gradients_add},
                                {"depthwise", depthwise},
                                {"absent_taps", absent_taps},
                                {"never_read", never_read},
                                {"many_pixels", many_pixels},
                                {"one_tap_is_a_product", one_tap_is_a_product},
                                {"bits_for_any_threads", bits_for_any_threads},
                                {"nothing_to_do", nothing_to_do},
                                {"views", views},
                                {"result_sizes", result_sizes},
                                {"weights_from_filters", weights_from_filters},
                                {"errors", errors},
                                {"plans", plans}};
int main(int argc, char **argv) {
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
