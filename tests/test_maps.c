/* test_maps.c: functions, combinations, conversions and reductions of stored elements against float64. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref_maps.h"

static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_I32, BSR_I64, BSR_BOOL, BSR_E4M3, BSR_E5M2};
enum { TYPES = (int)BT_COUNT(dtypes) };
static const int floats[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};
static const int64_t blocks[][2] = {{1, 1},  {2, 2},   {3, 5},   {8, 4},  {16, 16}, {1, 40},
                                    {17, 1}, {32, 64}, {64, 64}, {7, 48}, {2, 1100}};
static const int functions[] = {BSR_ACT_NONE, BSR_ACT_RELU, BSR_ACT_GELU,   BSR_ACT_GELU_TANH, BSR_ACT_SILU,  BSR_MAP_ABS,
                                BSR_MAP_NEG,  BSR_MAP_SIGN, BSR_MAP_SQUARE, BSR_MAP_SQRT,      BSR_MAP_RSQRT, BSR_MAP_RECIPROCAL,
                                BSR_MAP_EXP,  BSR_MAP_LOG,  BSR_MAP_TANH,   BSR_MAP_SIGMOID,   BSR_MAP_CLAMP};
#define FUNCTIONS ((int)BT_COUNT(functions))
#define BLOCK_SIZES ((int)BT_COUNT(blocks))

static bsr_operand operand(const bsr_matrix *m, const bsr_dense *d) {
    bsr_operand o;
    o.sparse = m, o.dense = d;
    return o;
}
static bsr_map_options options_of(int function, int combine, uint32_t flags) {
    bsr_map_options o;
    memset(&o, 0, sizeof o);
    o.function = function, o.combine = combine, o.flags = flags, o.low = -0.75, o.high = 0.5;
    return o;
}
static void run(const bsr_context *ctx, const bsr_map_options *o, double alpha, const bsr_matrix *x, double beta, bsr_operand y,
                const bsr_matrix *out, uint32_t flags) {
    bsr_exec e = t_exec(flags);
    if (RUN_OK(bsr_map(ctx, o, alpha, x, beta, y, out, &e))) REF_CHECK_MAP(o, alpha, x, beta, y, out, flags);
}
/* A matrix of so many blocks of size b, in the form f of batches: 0 none, 1 two items, 2 shared pattern, 3 ragged, 4 ragged heads
   in two items, 5 values shared. */
static bsr_matrix some_matrix(int dtype, int b, int form, int layout, int kind) {
    const int large = blocks[b][0] * blocks[b][1] > 1000;
    t_spec s = t_spec_of(dtype, blocks[b][0], blocks[b][1], large ? 3 : 5, large ? 2 : 4, large ? 4 : 11);
    s.layout = layout, s.kind = kind, s.unsorted = bt_below(3) == 0, s.duplicates = bt_below(4) == 0;
    if (blocks[b][0] * blocks[b][1] < 64 && bt_below(2)) s.r = 61, s.c = 37, s.nnz = 900;
    if (form == 1 || form == 2 || form == 3 || form == 5) s.batch = t_batch(1, 3, 0, 0, 0);
    if (form == 4) s.batch = t_batch(2, 2, 3, 0, 0);
    s.ragged = form == 3 || form == 4, s.shared_pattern = form == 2 || form == 4, s.shared_values = form == 5;
    return t_matrix(&s);
}
enum { FORMS = 6 };

/* Each function and derivative, in each type, over numbers of every kind. */
TEST(map_functions) {
    int f, t, gradient, isa;
    for (f = 0; f < FUNCTIONS; f++)
        for (gradient = 0; gradient < 2; gradient++)
            for (t = 0; t < TYPES; t += t == 4 ? 4 : 1)
                for (isa = 1; isa <= 3; isa++) {
                    const int b = (int)bt_below(BLOCK_SIZES - 1), layout = (int)bt_below(BLOCKS_LAYOUTS),
                              form = (int)bt_below(FORMS);
                    const int out_type = bt_below(3) ? dtypes[t] : floats[bt_below(4)];
                    const int positive =
                        functions[f] == BSR_MAP_SQRT || functions[f] == BSR_MAP_RSQRT || functions[f] == BSR_MAP_LOG;
                    bsr_map_options o = options_of(functions[f], gradient ? (int)BSR_COMBINE_GRADIENT : 0, 0);
                    bsr_matrix x, y, out;
                    bt_case("function %d%s, %s to %s, block %d, layout %d, form %d, isa %d", functions[f], gradient ? "'" : "",
                            bsr_dtype_name(dtypes[t]), bsr_dtype_name(out_type), b, layout, form, isa);
                    if (!t_context(isa)) {
                        bt_skip("this instruction set is not in this build or machine");
                        continue;
                    }
                    x = some_matrix(dtypes[t], b, form, layout, positive ? FILL_POSITIVE : bt_below(2) ? FILL_SIGNED : FILL_WIDE);
                    y = t_matrix_output(&x, floats[bt_below(4)], (int)bt_below(BLOCKS_LAYOUTS)), t_fill_values(&y, FILL_SIGNED);
                    out = t_matrix_output(&x, out_type, bt_below(2) ? layout : (int)bt_below(BLOCKS_LAYOUTS));
                    run(t_context(isa), &o, bt_below(2) ? 1 : 0.75, &x, gradient ? bt_below(2) ? 1 : -0.5 : 1,
                        gradient ? operand(&y, NULL) : operand(NULL, NULL), &out, bt_below(6) ? 0 : BSR_EXEC_ACCUMULATE_F64);
                }
}

/* What y can be, in every combination, before and after a function. */
TEST(map_operands) {
    int combine, b, kind;
    for (combine = BSR_COMBINE_ADD; combine <= BSR_COMBINE_GRADIENT; combine++)
        for (b = 0; b < BLOCK_SIZES; b++)
            for (kind = 0; kind < 7; kind++) { /* a matrix, full, row, column, one, of one item, none */
                const int type = dtypes[bt_below(5)], of_y = dtypes[bt_below(bt_below(2) ? 2 : TYPES)];
                const int form = (int)bt_below(FORMS);
                const int out_type = bt_below(3) ? type : dtypes[bt_below(5)], f = functions[bt_below(3) ? 0 : bt_below(6)];
                bsr_map_options o = options_of(f, combine, bt_below(2) ? BSR_MAP_AFTER : 0);
                bsr_matrix x, m, out;
                bsr_dense d;
                t_shape batch;
                int form_y = (int)bt_below(LAYOUTS);
                bt_case("combination %d, block %d, y %d in %s, %s to %s, function %d, form %d, flags %u", combine, b, kind,
                        bsr_dtype_name(of_y), bsr_dtype_name(type), bsr_dtype_name(out_type), f, form, o.flags);
                x = some_matrix(type, b, form, (int)bt_below(BLOCKS_LAYOUTS), FILL_SIGNED);
                m = t_matrix_output(&x, of_y, (int)bt_below(BLOCKS_LAYOUTS)), t_fill_values(&m, FILL_SIGNED);
                batch = t_matrix_batch(&x);
                if (bt_below(3) == 0) batch = NO_BATCH;
                d = t_random(of_y, kind == 2 || kind == 4 ? 1 : x.rows, kind == 3 || kind == 4 ? 1 : x.cols, form_y, batch,
                             (unsigned)bt_below(4), of_y == BSR_BOOL ? FILL_POSITIVE : FILL_SIGNED);
                if (kind == 5 && form == 2) m.batch_dims = 0; /* one for all items */
                out = t_matrix_output(&x, out_type, (int)bt_below(BLOCKS_LAYOUTS));
                run(t_any_context(), &o, bt_below(2) ? 1 : -1.5, &x, bt_below(2) ? 1 : 0.375,
                    kind == 6                ? operand(NULL, NULL)
                    : kind == 0 || kind == 5 ? operand(&m, NULL)
                                             : operand(NULL, &d),
                    &out, 0);
            }
}

static const double edges[] = {0.0,   -0.0,         1.0,          -1.0,          0.5,    -0.5,    1.5,     2.5,     -2.5,
                               126.5, 127.5,        -128.5,       200.0,         -300.0, 65504.0, 65519.0, 65520.0, -65536.0,
                               1e-8,  -6e-8,        5.96e-8,      1e-39,         1e-45,  1e-310,  3e38,    1e39,    -1e39,
                               1e300, 2147483646.5, 2147483648.0, -2147483649.0, 9.3e18, -9.3e18, 0.1,     -88.9,   88.9,
                               104.0, -104.0,       709.9,        -745.2,        1e-20,  1e20};
#define EDGES ((int)BT_COUNT(edges))
static double edge(int i) {
    return i < EDGES ? edges[i] : i == EDGES ? (double)INFINITY : i == EDGES + 1 ? -(double)INFINITY : (double)NAN;
}
/* A row of blocks with every edge at each place of a vector. */
static bsr_matrix edge_matrix(int dtype, int64_t cols) {
    t_spec s = t_spec_of(dtype, 1, cols, 1, (EDGES + 3) * 4, (EDGES + 3) * 4);
    bsr_matrix x = t_matrix(&s);
    int64_t p, j;
    for (p = 0; p < x.nnz; p++)
        for (j = 0; j < cols; j++) {
            const double v = edge((int)((p * cols + j) % (EDGES + 3)));
            t_store(x.values, dtype, t_value_at(&x, 0, p, 0, j),
                    t_is_float(dtype) || dtype == BSR_BOOL ? v : ref_converted(dtype, v));
        }
    return x;
}
/* Any type to any other, and what happens beyond their ends. */
TEST(map_conversions) {
    int from, to, isa, cols;
    for (from = 0; from < TYPES; from++)
        for (to = 0; to < TYPES; to++)
            for (isa = 1; isa <= 3; isa++)
                for (cols = 1; cols < 33; cols += 31) {
                    bsr_matrix x, out;
                    bsr_map_options o = options_of(0, 0, 0);
                    bsr_exec e = t_exec(0);
                    bt_case("%s to %s, isa %d, %d columns", bsr_dtype_name(dtypes[from]), bsr_dtype_name(dtypes[to]), isa, cols);
                    if (!t_context(isa)) {
                        bt_skip("this instruction set is not in this build or machine");
                        continue;
                    }
                    x = edge_matrix(dtypes[from], cols), out = t_matrix_output(&x, dtypes[to], PACKED);
                    if (RUN_OK(bsr_map(t_context(isa), NULL, 1, &x, 0, operand(NULL, NULL), &out, &e)))
                        REF_CHECK_MAP(&o, 1, &x, 0, operand(NULL, NULL), &out, 0);
                }
}
/* Functions of edges: zeros, infinities, NaN, subnormal and huge numbers. */
TEST(map_edges) {
    int f, t, gradient, isa;
    for (f = 0; f < FUNCTIONS; f++)
        for (gradient = 0; gradient < 2; gradient++)
            for (t = 0; t < 4; t++)
                for (isa = 1; isa <= 3; isa++) {
                    bsr_map_options o = options_of(functions[f], gradient ? (int)BSR_COMBINE_GRADIENT : 0, 0);
                    bsr_matrix x, out;
                    bt_case("function %d%s of %s, isa %d", functions[f], gradient ? "'" : "", bsr_dtype_name(floats[t]), isa);
                    if (!t_context(isa)) {
                        bt_skip("this instruction set is not in this build or machine");
                        continue;
                    }
                    x = edge_matrix(floats[t], 7), out = t_matrix_output(&x, floats[t], PACKED);
                    run(t_context(isa), &o, 1, &x, 1, operand(NULL, NULL), &out, 0);
                }
}

/* In place of x, of y, of both; without x's or y's values; a dense matrix taken at its stored places. */
TEST(map_places) {
    int b, t, way;
    for (b = 0; b < BLOCK_SIZES; b++)
        for (t = 0; t < 5; t++)
            for (way = 0; way < 6; way++) {
                const int layout = (int)bt_below(BLOCKS_LAYOUTS), form = (int)bt_below(FORMS - 1);
                bsr_map_options o = options_of(bt_below(2) ? (int)BSR_ACT_RELU : (int)BSR_MAP_SQUARE, BSR_COMBINE_ADD, 0);
                bsr_matrix x, y, was_x, was_y, out;
                bsr_exec e = t_exec(0);
                bsr_dense d;
                double alpha = 1, beta = -0.5;
                bt_case("block %d, %s, way %d, layout %d, form %d", b, bsr_dtype_name(dtypes[t]), way, layout, form);
                x = some_matrix(dtypes[t], b, form, layout, FILL_SIGNED);
                y = t_matrix_output(&x, dtypes[t], way == 2 ? layout : (int)bt_below(BLOCKS_LAYOUTS)),
                t_fill_values(&y, FILL_SIGNED);
                d = t_random(floats[bt_below(4)], x.rows, x.cols, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
                out = t_matrix_output(&x, dtypes[t], (int)bt_below(BLOCKS_LAYOUTS));
                if (way == 2) y = x;
                was_x = x, was_y = y;
                if (way < 3) { /* what it was */
                    const bsr_map_options copy = options_of(0, 0, 0);
                    was_x = t_matrix_output(&x, dtypes[t], PACKED), was_y = t_matrix_output(&y, dtypes[t], PACKED);
                    if (!RUN_OK(bsr_map(t_any_context(), &copy, 1, &x, 1, operand(NULL, NULL), &was_x, &e))) continue;
                    if (!RUN_OK(bsr_map(t_any_context(), &copy, 1, &y, 1, operand(NULL, NULL), &was_y, &e))) continue;
                    out = way == 1 ? y : x, bt_mark_output(out.values);
                }
                if (way == 3 || way == 5) alpha = 0, x.values = NULL;
                if (way == 4) beta = 0, y.values = NULL;
                if (way == 5) o.function = BSR_ACT_NONE, beta = 1;
                if (RUN_OK(bsr_map(t_any_context(), &o, alpha, &x, beta, way == 5 ? operand(NULL, &d) : operand(&y, NULL), &out,
                                   &e)))
                    REF_CHECK_MAP(&o, alpha, way == 3 || way == 5 ? &x : &was_x, beta,
                                  way == 5 ? operand(NULL, &d) : operand(&was_y, NULL), &out, 0);
            }
}

/* What is told where it stands: dropout, and the program's functions. */
TEST(map_positions) {
    static const double chances[] = {0.5, 0.1, 1, 1e-10, 0.999};
    int b, form, t, way;
    for (b = 0; b < BLOCK_SIZES; b++)
        for (form = 0; form < FORMS; form++)
            for (t = (int)bt_below(2); t < 4; t += 2)
                for (way = 0; way < 3; way++) {
                    bsr_map_options o = options_of(0, bt_below(2) ? (int)BSR_COMBINE_MUL : 0, bt_below(2) ? BSR_MAP_AFTER : 0);
                    bsr_matrix x, y, out;
                    float *step;
                    bt_case("block %d, form %d, %s, way %d", b, form, bsr_dtype_name(floats[t]), way);
                    step = (float *)bt_alloc(4, 4), *step = 0.5f;
                    if (way != 1) o.dropout_p = chances[bt_below(5)], o.dropout_seed = bt_random();
                    if (way != 0 && floats[t] != BSR_F64)
                        o.function = bt_below(4) ? BSR_EPILOGUE_tf_shift : BSR_EPILOGUE_tf_square;
                    if (way != 0) o.user_data = bt_below(2) ? step : NULL;
                    x = some_matrix(floats[t], b, form, (int)bt_below(BLOCKS_LAYOUTS), FILL_SIGNED);
                    y = t_matrix_output(&x, floats[t], (int)bt_below(BLOCKS_LAYOUTS)), t_fill_values(&y, FILL_SIGNED);
                    out = t_matrix_output(&x, floats[t], (int)bt_below(BLOCKS_LAYOUTS));
                    run(t_any_context(), &o, 1, &x, 1, o.combine ? operand(&y, NULL) : operand(NULL, NULL), &out, 0);
                }
}

static void reduce(const bsr_context *ctx, int kind, int over, const bsr_matrix *x, const bsr_dense *out, uint32_t flags) {
    bsr_exec e = t_exec(flags);
    bsr_plan plan;
    e.query = &plan;
    if (!RUN_OK(bsr_reduce(ctx, kind, over, x, out, &e))) return;
    e.query = NULL, e.workspace_bytes = plan.workspace_bytes;
    e.workspace = plan.workspace_bytes ? bt_alloc((size_t)plan.workspace_bytes, 64) : NULL, bt_mark_output(e.workspace);
    if (RUN_OK(bsr_reduce(ctx, kind, over, x, out, &e))) REF_CHECK_REDUCE(kind, over, x, out, flags);
}
TEST(reduce_lines) {
    int kind, over, b, t;
    for (kind = BSR_REDUCE_SUM; kind <= BSR_REDUCE_MEAN_ALL; kind++)
        for (over = BSR_OVER_ROWS; over <= BSR_OVER_ALL; over++)
            for (b = 0; b < BLOCK_SIZES; b++)
                for (t = (int)bt_below(2); t < TYPES; t += (int)bt_range(1, 3)) {
                    const int form = (int)bt_below(FORMS), layout = (int)bt_below(BLOCKS_LAYOUTS), indexed = (int)bt_below(2);
                    const int whole = kind == BSR_REDUCE_SUM || kind == BSR_REDUCE_MAX_ABS || kind == BSR_REDUCE_SUM_ABS;
                    const int out_type = whole && bt_below(3) == 0 ? (bt_below(2) ? BSR_I32 : BSR_I64) : floats[bt_below(4)];
                    bsr_matrix x;
                    bsr_dense out;
                    bt_case("kind %d over %d, block %d, %s to %s, form %d, layout %d, index %d", kind, over, b,
                            bsr_dtype_name(dtypes[t]), bsr_dtype_name(out_type), form, layout, indexed);
                    x = some_matrix(dtypes[t], b, form, layout, bt_below(3) ? FILL_SIGNED : FILL_WIDE);
                    if (indexed && over == BSR_OVER_COLS) t_attach_transposed(&x);
                    out = ref_reduce_out(over, &x, out_type, (int)bt_below(LAYOUTS));
                    reduce(t_any_context(), kind, over, &x, &out, bt_below(6) ? 0 : BSR_EXEC_ACCUMULATE_F64);
                }
}
/* Lines without anything, of many blocks, of one; matrices without blocks, rows, items. */
TEST(reduce_shapes) {
    static const int64_t shapes[][5] = {{1, 1, 1, 5000, 5000}, {1, 1, 5000, 1, 5000},  {64, 64, 1, 40, 40},   {64, 64, 40, 1, 40},
                                        {2, 2, 700, 700, 900}, {1, 1, 3000, 2, 10},    {32, 32, 9, 9, 0},     {16, 16, 0, 4, 0},
                                        {16, 16, 4, 0, 0},     {128, 128, 3, 3, 9},    {1, 3000, 2, 3, 5},    {3000, 1, 3, 2, 5},
                                        {8, 8, 300, 5, 700},   {1, 8, 40, 500, 12000}, {5, 3, 200, 100, 9000}};
    int k, over, kind, t;
    for (k = 0; k < (int)BT_COUNT(shapes); k++)
        for (over = BSR_OVER_ROWS; over <= BSR_OVER_ALL; over++)
            for (kind = BSR_REDUCE_SUM; kind <= BSR_REDUCE_MEAN_ALL; kind += (int)bt_range(1, 3))
                for (t = 0; t < 5; t++) {
                    t_spec s = t_spec_of(dtypes[t], shapes[k][0], shapes[k][1], shapes[k][2], shapes[k][3], shapes[k][4]);
                    bsr_matrix x;
                    bsr_dense out;
                    if (bt_below(5) == 0) s.batch = t_batch(1, bt_range(0, 2), 0, 0, 0), s.ragged = bt_below(2) == 0;
                    bt_case("shape %d, kind %d over %d, %s, %d of %d items", k, kind, over, bsr_dtype_name(dtypes[t]),
                            (int)s.batch.n[0], s.batch.dims);
                    x = t_matrix(&s);
                    if (bt_below(2) && over == BSR_OVER_COLS) t_attach_transposed(&x);
                    out = ref_reduce_out(over, &x, floats[bt_below(4)], ROW);
                    reduce(t_any_context(), kind, over, &x, &out, 0);
                }
}
/* NaN and infinities, alone in a line and beside others, at every place. */
TEST(reduce_edges) {
    int kind, over, t, way;
    for (kind = BSR_REDUCE_SUM; kind <= BSR_REDUCE_MEAN_ALL; kind++)
        for (over = BSR_OVER_ROWS; over <= BSR_OVER_ALL; over++)
            for (t = 0; t < 4; t++)
                for (way = 0; way < 6; way++) {
                    t_spec s = t_spec_of(floats[t], bt_range(1, 20), bt_range(1, 40), 4, 5, 9);
                    const double v = way < 2 ? (double)NAN : way & 1 ? (double)INFINITY : -(double)INFINITY;
                    bsr_matrix x;
                    bsr_dense out;
                    int64_t n;
                    bt_case("kind %d over %d, %s, way %d, blocks of %d x %d", kind, over, bsr_dtype_name(floats[t]), way,
                            (int)s.block_rows, (int)s.block_cols);
                    x = t_matrix(&s);
                    for (n = way == 5 ? 0 : 3; n < 4; n++)
                        t_store(x.values, x.dtype,
                                t_value_at(&x, 0, bt_below(x.nnz), bt_below(s.block_rows), bt_below(s.block_cols)), v);
                    out = ref_reduce_out(over, &x, floats[t], ROW);
                    reduce(t_any_context(), kind, over, &x, &out, 0);
                }
}
/* The same bits for any number of threads, with and without a transposed index. */
TEST(maps_threads) {
    int over, b, t, k;
    for (over = BSR_OVER_ROWS; over <= BSR_OVER_ALL + 1; over++)
        for (b = 0; b < BLOCK_SIZES; b++)
            for (t = 0; t < 4; t++) {
                bsr_context_desc desc = BSR_ZERO;
                bsr_matrix x, y;
                bsr_dense out[3];
                bsr_matrix mapped[2];
                bsr_map_options o = options_of(BSR_ACT_GELU, BSR_COMBINE_MUL, BSR_MAP_AFTER);
                bt_case("over %d, block %d, %s", over, b, bsr_dtype_name(floats[t]));
                x = some_matrix(floats[t], b, (int)bt_below(FORMS), (int)bt_below(BLOCKS_LAYOUTS), FILL_SIGNED);
                y = t_matrix_output(&x, floats[t], PACKED), t_fill_values(&y, FILL_SIGNED);
                o.dropout_p = 0.25;
                for (k = 0; k < 3; k++) {
                    bsr_context *ctx = NULL;
                    bsr_exec e = t_exec(0);
                    desc.backend = BSR_BACKEND_CPU, desc.threads = k == 1 ? 5 : 1;
                    CHECK_INT(bsr_create(&desc, &ctx, NULL), BSR_OK);
                    if (!ctx) break;
                    if (over > BSR_OVER_ALL) {
                        if (k == 2) mapped[1] = mapped[0];
                        else mapped[k] = t_matrix_output(&x, floats[t], PACKED);
                        if (k < 2) (void)RUN_OK(bsr_map(ctx, &o, 1, &x, 1, operand(&y, NULL), &mapped[k], &e));
                        if (k == 1) CHECK(!memcmp(mapped[0].values, mapped[1].values, bt_find(mapped[0].values)->bytes));
                    } else {
                        if (k == 2 && over == BSR_OVER_COLS) t_attach_transposed(&x);
                        out[k] = ref_reduce_out(over, &x, floats[t], ROW);
                        if (RUN_OK(bsr_reduce(ctx, BSR_REDUCE_SUM, over, &x, &out[k], &e)) && k && out[k].data)
                            CHECK(!memcmp(out[0].data, out[k].data, bt_find(out[0].data)->bytes));
                    }
                    bsr_destroy(ctx);
                }
            }
}

static const bt_test tests[] = {{"map_functions", map_functions},     {"map_operands", map_operands},
                                {"map_conversions", map_conversions}, {"map_edges", map_edges},
                                {"map_places", map_places},           {"map_positions", map_positions},
                                {"reduce_lines", reduce_lines},       {"reduce_shapes", reduce_shapes},
                                {"reduce_edges", reduce_edges},       {"maps_threads", maps_threads}};
int main(int argc, char **argv) {
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
