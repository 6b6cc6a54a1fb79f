/* test_moe.c: mixtures of experts against float64: routing, topology and its views, rows to experts and back, gated units, whole
   layers forwards and backwards, with all memory poisoned before. What bit others is a test of its own (traps). */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"
#include "ref_moe.h"

static const int floats[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16};

/* ---------------------------------------------------------------------------------------------- */
/* routings                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

static int route(routed *x) {
    bsr_exec e = t_exec(0);
    if (!RUN_OK(bsr_moe_route(t_any_context(), &x->experts, &x->r, &e))) return 0;
    rm_check_routing(x), t_routing_done(&x->r);
    return 1;
}
TEST(routings) {
    static const int64_t tokens[] = {0, 1, 2, 3, 17, 100, 257, 1500}, experts[] = {1, 2, 7, 33, 128, 300},
                         blocks[] = {1, 3, 16, 32, 64, 128};
    int a, b, kind;
    for (a = 0; a < 8; a++)
        for (b = 0; b < 6; b++)
            for (kind = 0; kind < KINDS; kind++) {
                const int64_t slots = bt_range(1, 8), rows = blocks[(a + b + kind) % 6];
                const int64_t most = bsr_moe_rows(tokens[a], slots, experts[b], rows);
                int64_t room;
                routed x;
                bt_case("%d tokens, %d experts, blocks of %d, kind %d", (int)tokens[a], (int)experts[b], (int)rows, kind);
                room = bt_below(3) ? -1 : bt_below(most / rows + 1) * rows;
                x = t_routing(tokens[a], slots, experts[b], rows, room, kind, bt_below(2) ? BSR_I64 : BSR_I32);
                route(&x);
            }
    bt_case("more slots than a short list has, and large strides");
    {
        routed x = t_routing(9000, 3, 65, 16, -1, REPEATED, BSR_I32);
        route(&x);
    }
}
/* The least that always suffices: some routing needs all of it, none more. */
TEST(capacities) {
    int64_t slots, experts, b;
    for (slots = 0; slots <= 9; slots++)
        for (experts = 0; experts <= 4; experts++)
            for (b = 1; b <= 4; b++) {
                int64_t most = 0, code, codes = 1, i;
                bt_case("%d slots, %d experts, blocks of %d", (int)slots, (int)experts, (int)b);
                for (i = 0; i < experts; i++) codes *= slots + 1;
                for (code = 0; code < codes; code++) { /* all counts that sum to at most so many slots */
                    int64_t rest = code, sum = 0, rows = 0;
                    for (i = 0; i < experts; i++, rest /= slots + 1)
                        sum += rest % (slots + 1), rows += (rest % (slots + 1) + b - 1) / b * b;
                    if (sum <= slots && rows > most) most = rows;
                }
                CHECK_INT(bsr_moe_rows(slots, 1, experts, b), most);
                CHECK_INT(bsr_moe_rows(1, slots, experts, b), most);
            }
    bt_case("none");
    CHECK_INT(bsr_moe_rows(-1, 1, 1, 1), -1);
    CHECK_INT(bsr_moe_rows(1, 1, 1, 0), -1);
    CHECK_INT(bsr_moe_rows(INT64_C(1) << 40, INT64_C(1) << 40, 1, 1), -1);
    CHECK_INT(bsr_moe_rows(INT32_MAX, 1, 1, 1), INT32_MAX);
    CHECK_INT(bsr_moe_rows((int64_t)INT32_MAX + 1, 1, 1, 1), -1);
}
#ifndef GM_BACKEND /* on the CPU alone: a GPU tells it in the routing's word (gpu_experts.cpp) */
/* What does not fit, and experts that are not there. */
TEST(routing_errors) {
    routed x;
    bsr_exec e = t_exec(0);
    int64_t i;
    bt_case("no room, no status");
    x = t_routing(40, 2, 5, 8, 40, EVEN, BSR_I32), x.r.status = NULL;
    CHECK_INT(bsr_moe_route(t_context(0), &x.experts, &x.r, &e), BSR_CAPACITY);
    CHECK_INT(t_error.item, BSR_ITEM_MOE_CAPACITY), CHECK_INT(t_error.value, 80), CHECK_INT(t_error.index, 3);
    CHECK(t_all_poison(x.r.counts) && t_all_poison(x.r.offsets) && t_all_poison(x.r.row_of) && t_all_poison(x.r.slot_of));
    for (i = 0; i < 2; i++) {
        bt_case("no such expert, %s", i ? "the last one" : "far off");
        x = t_routing(40, 2, 5, 8, -1, EVEN, BSR_I64);
        t_set(&x.experts, 0, 17, 1, i ? 5 : 1e15), t_set(&x.experts, 0, 30, 0, 77);
        CHECK_INT(bsr_moe_route(t_context(0), &x.experts, &x.r, &e), BSR_BAD_STRUCTURE);
        CHECK_INT(t_error.item, BSR_ITEM_MOE_EXPERT), CHECK_INT(t_error.operand, BSR_ARG_EXPERTS);
        CHECK_INT(t_error.index, 35), CHECK_INT(t_error.wanted, 4);
        CHECK(t_all_poison(x.r.counts) && t_all_poison(x.r.row_of) && t_all_poison(x.status));
    }
}
#endif

/* ---------------------------------------------------------------------------------------------- */
/* topology                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

static int topology(const bsr_moe_routing *r, bsr_matrix *m) {
    bsr_exec e = t_exec(0);
    if (!RUN_OK(bsr_moe_topology(t_any_context(), r, m, &e))) return 0;
    if (bt_find(m->crow_indices)) bt_find(m->crow_indices)->output = 0;
    if (bt_find(m->col_indices)) bt_find(m->col_indices)->output = 0;
    return 1;
}
static void attach_index(const bsr_moe_routing *r, bsr_matrix *m) {
    bsr_exec e = t_exec(0);
    uint64_t bytes = 0;
    void *view;
    if (bt.unwanted || bsr_transposed_index_size(t_context(0), m, &bytes, &e) != BSR_OK) return;
    view = bt_alloc((size_t)bytes, 64);
    bt_mark_output(view);
    if (RUN_OK(bsr_moe_transposed_index(t_any_context(), r, m, view, bytes, &e))) m->transposed_index = view;
    bt_find(view)->output = 0;
}
TEST(topologies) {
    static const int64_t experts[] = {1, 3, 8, 40};
    int a, kind, each;
    for (a = 0; a < 4; a++)
        for (kind = 0; kind < KINDS; kind++)
            for (each = 0; each <= 3; each++) {
                const int64_t block = bt_range(1, 20), tokens = bt_below(3) ? bt_range(0, 90) : bt_below(2);
                const int index_dtype = bt_below(2) ? BSR_I64 : BSR_I32;
                routed x;
                bsr_matrix m, general;
                bsr_exec e = t_exec(0);
                bt_case("%d experts, kind %d, %d columns, %d tokens, blocks of %d", (int)experts[a], kind, each, (int)tokens,
                        (int)block);
                x = t_routing(tokens, bt_range(1, 3), experts[a], block, -1, kind, BSR_I32);
                if (!route(&x)) continue;
                m = rm_pattern(&x.r, each, 2, BSR_F32, PACKED, index_dtype);
                if (!topology(&x.r, &m)) continue;
                CHECK_INT(m.nnz, rm_check_topology(&x, &m, each));
                general = m, attach_index(&x.r, &m);
                t_attach_transposed(&general);
                if (m.transposed_index && general.transposed_index) {
                    uint64_t bytes = 0;
                    CHECK_INT(bsr_transposed_index_size(t_context(0), &m, &bytes, &e), BSR_OK);
                    CHECK(bt_same_bytes(m.transposed_index, general.transposed_index, (size_t)bytes));
                    m.values = NULL;
                    RUN_OK(bsr_validate(t_context(0), &m, &e));
                }
            }
}

/* ---------------------------------------------------------------------------------------------- */
/* rows                                                                                           */
/* ---------------------------------------------------------------------------------------------- */

/* Rows of one width by all routines: every type each, layouts, capacities. */
TEST(rows) {
    static const int64_t widths[] = {0, 1, 3, 8, 31, 64, 520, 1100};
    int w, turn;
    for (w = 0; w < 8; w++)
        for (turn = 0; turn < 24; turn++) {
            const int types[4] = {floats[bt_below(4)], floats[bt_below(4)], floats[bt_below(4)], floats[bt_below(4)]};
            const int plain = turn % 3 == 0, same = bt_below(2) != 0;
            const int64_t tokens = bt_range(1, 40), slots = bt_range(1, 9), experts = bt_range(1, 9), block = bt_range(1, 16);
            const double beta = turn % 4 == 0 ? 0.75 : turn % 4 == 1 ? 1 : 0;
            bsr_dense x, weights, gathered, rows, scattered, gradient, dy, input;
            int64_t most, i, j;
            bsr_exec e = t_exec(0);
            routed at;
            bt_case("width %d, turn %d", (int)widths[w], turn);
            most = bsr_moe_rows(tokens, slots, experts, block);
            at = t_routing(tokens, slots, experts, block, bt_below(3) ? -1 : bt_below(most / block + 1) * block,
                           (int)bt_below(KINDS), BSR_I32);
            if (!route(&at)) continue;
            x = t_random(types[0], tokens, widths[w], (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
            weights = t_random(types[1], tokens, slots, (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
            gathered = t_output(same && plain ? types[0] : types[2], at.r.rows, widths[w], (int)bt_below(LAYOUTS), NO_BATCH);
            if (RUN_OK(bsr_moe_gather(t_any_context(), &at.r, &x, plain ? NULL : &weights, &gathered, &e)))
                rm_check_gather(&at.r, &x, plain ? NULL : &weights, &gathered);
            rows = t_random(types[2], at.r.rows, widths[w], (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
            for (i = 0; i < at.r.rows; i++) /* nothing reads padding */
                for (j = 0; j < widths[w] && at.r.slot_of[i] < 0; j++) t_set(&rows, 0, i, j, (double)NAN);
            input = t_random(types[1], bt_below(3) ? tokens : 1, bt_below(3) ? widths[w] : widths[w] > 0, (int)bt_below(LAYOUTS),
                             NO_BATCH, 0, FILL_SIGNED);
            scattered = t_output(types[3], tokens, widths[w], (int)bt_below(LAYOUTS), NO_BATCH);
            if (RUN_OK(bsr_moe_scatter(t_any_context(), beta, beta != 0 ? &input : NULL, &at.r, &rows, plain ? NULL : &weights,
                                       &scattered, &e)))
                rm_check_scatter(beta, &input, &at.r, &rows, plain ? NULL : &weights, &scattered);
            dy = t_random(types[0], tokens, widths[w], (int)bt_below(LAYOUTS), NO_BATCH, 0, FILL_SIGNED);
            gradient = t_output(types[3], tokens, slots, (int)bt_below(LAYOUTS), NO_BATCH);
            if (RUN_OK(bsr_moe_weight_gradient(t_any_context(), &at.r, &rows, &dy, &gradient, &e)))
                rm_check_weights(&at.r, &rows, &dy, &gradient);
        }
}
/* The sum may be written over its input. */
TEST(scatter_in_place) {
    routed at;
    bsr_dense rows, out;
    rm_array want;
    bsr_exec e = t_exec(0);
    int64_t i, j, k;
    bt_case("beta 1");
    at = t_routing(20, 3, 4, 8, -1, SKEWED, BSR_I32);
    if (!route(&at)) return;
    rows = t_random(BSR_F32, at.r.rows, 24, ROW, NO_BATCH, 0, FILL_SIGNED);
    out = t_output(BSR_F32, 20, 24, ROW, NO_BATCH);
    t_fill(&out, FILL_SIGNED), want = rm_dense(&out);
    for (i = 0; i < 20; i++)
        for (j = 0; j < 24; j++)
            for (k = 0; k < 3; k++) {
                const double v = t_get(&rows, 0, at.r.row_of[i * 3 + k], j);
                want.v[i * 24 + j] += v, want.e[i * 24 + j] += 0x1p-22 * (fabs(v) + 4);
            }
    if (RUN_OK(bsr_moe_scatter(t_any_context(), 1, &out, &at.r, &rows, NULL, &out, &e))) RM_COMPARE(&out, &want);
}

/* ---------------------------------------------------------------------------------------------- */
/* gated units                                                                                    */
/* ---------------------------------------------------------------------------------------------- */

static void gated_case(int dtype, int out_type, t_spec s, int64_t inner, int act, int keeps, t_shape batch, int rows_first) {
    bsr_matrix m, out, gate_out, up_out;
    bsr_dense x, gate, up;
    bsr_exec e = t_exec(0);
    t_shape narrow = batch;
    int i;
    for (i = 0; i < batch.dims; i++)
        if (bt_below(3) == 0) narrow.n[i] = 1;
    s.pattern_only = 1, s.batch = batch, m = t_matrix(&s);
    out = t_matrix_output(&m, out_type, s.layout);
    gate_out = t_matrix_output(&m, out_type, (int)bt_below(BLOCKS_LAYOUTS)), up_out = t_matrix_output(&m, out_type, s.layout);
    x = t_random(dtype, m.rows, inner, rows_first ? ROW : (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
    gate = t_random(dtype, inner, m.cols, rows_first ? COL : (int)bt_below(LAYOUTS), narrow, 0, FILL_SIGNED);
    up = t_random(dtype, inner, m.cols, rows_first ? (bt_below(2) ? COL : ROW) : (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
    if (RUN_OK(bsr_sampled_gated(t_any_context(), act, &x, &gate, &up, &out, keeps & 1 ? &gate_out : NULL,
                                 keeps & 2 ? &up_out : NULL, &e))) {
        const ref_array xv = ref_dense(&x), gv = ref_dense(&gate), uv = ref_dense(&up);
        const ref_sum g = ref_mm(&xv, NULL, &gv, NULL, batch, batch), u = ref_mm(&xv, NULL, &uv, NULL, batch, batch);
        rm_check_gated("out", &out, &g, &u, act, ref_compute(dtype), 0);
        if (keeps & 1) rm_check_gated("gate_out", &gate_out, &g, &u, act, ref_compute(dtype), 1);
        if (keeps & 2) rm_check_gated("up_out", &up_out, &g, &u, act, ref_compute(dtype), 2);
        if (!(keeps & 1)) CHECK(t_all_poison(gate_out.values));
        if (!(keeps & 2)) CHECK(t_all_poison(up_out.values));
    }
}
TEST(gated_units) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};
    int d, turn;
    for (d = 0; d < 5; d++)
        for (turn = 0; turn < 32; turn++) {
            const int out_type = dtypes[d] == BSR_I8                        ? floats[(turn % 2) * 2]
                                 : dtypes[d] != BSR_F64 && bt_below(3) == 0 ? (int)BSR_F32
                                                                            : dtypes[d];
            t_spec s;
            bt_case("%s to %s, turn %d", bsr_dtype_name(dtypes[d]), bsr_dtype_name(out_type), turn);
            s = t_spec_of(dtypes[d], bt_range(1, 40), bt_range(1, 90), bt_range(1, 3), bt_range(1, 3), bt_range(0, 5));
            s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.unsorted = (int)bt_below(2), s.ragged = turn % 8 == 3;
            gated_case(dtypes[d], out_type, s, bt_below(5) ? bt_range(1, 70) : 0, turn % 5, turn % 4,
                       turn % 8 == 3   ? t_batch(1, 2, 0, 0, 0)
                       : turn % 8 == 5 ? t_batch(2, 2, 2, 0, 0)
                                       : NO_BATCH,
                       0);
        }
}
/* Blocks and layouts that tensor cores take. */
TEST(gated_units_of_large_blocks) {
    static const int64_t sides[][2] = {{16, 128}, {32, 128}, {64, 128}, {128, 128}, {64, 64}, {16, 16}, {128, 256}, {48, 64}};
    static const int64_t inner[] = {64, 8, 136, 200, 72, 128};
    int a, turn;
    for (a = 0; a < 8; a++)
        for (turn = 0; turn < 6; turn++) {
            const int dtype = floats[2 + (a + turn) % 2];
            t_spec s;
            bt_case("%s, blocks of %d x %d, inner size %d", bsr_dtype_name(dtype), (int)sides[a][0], (int)sides[a][1],
                    (int)inner[turn]);
            s = t_spec_of(dtype, sides[a][0], sides[a][1], 3, 2, 4);
            s.layout = turn == 4 ? BLOCKS_WIDE : turn == 5 ? BLOCKS_COL : PACKED;
            gated_case(dtype, turn == 3 ? (int)BSR_F32 : dtype, s, inner[turn], 1 + turn % 4, turn % 4, NO_BATCH, 1);
        }
}
/* More blocks than a GPU has multiprocessors; rows that are equally long, and others. */
TEST(gated_units_of_many_blocks) {
    int turn;
    for (turn = 0; turn < 3; turn++) {
        const int64_t rows = turn ? 16 : 128, tall = turn ? 70 : 140, wide = turn ? 2 : 1;
        t_spec s;
        bt_case("%d x 128, %d rows of %d", (int)rows, (int)tall, (int)wide);
        s = t_spec_of(BSR_BF16, rows, 128, tall, wide, turn == 2 ? tall * wide - 3 : tall * wide);
        gated_case(BSR_BF16, BSR_BF16, s, turn ? 72 : 8, BSR_ACT_SILU, turn, NO_BATCH, 1);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* layers                                                                                         */
/* ---------------------------------------------------------------------------------------------- */

/* A whole layer, forwards and backwards, by the calls that >>moe lists; everything is NaN before. h, f: sizes; each expert has
   f / block_cols block columns. */
typedef struct layer {
    routed at;
    rm_layer ref;
    int64_t h, f, block_cols;
    int dtype, act;
    bsr_dense x, weights, w1, w3, w2, dy;
} layer;
static layer layer_new(int dtype, int64_t tokens, int64_t slots, int64_t experts, int64_t h, int64_t f, int64_t block_rows,
                       int64_t block_cols, int64_t rows, int kind, int act) {
    layer l;
    memset(&l, 0, sizeof l);
    l.at = t_routing(tokens, slots, experts, block_rows, rows, kind, bt_below(2) ? BSR_I64 : BSR_I32);
    l.h = h, l.f = f, l.block_cols = block_cols, l.dtype = dtype, l.act = act;
    l.x = t_random(dtype, tokens, h, ROW, NO_BATCH, 0, FILL_SIGNED);
    l.weights = t_random(dtype, tokens, slots, ROW, NO_BATCH, 0, FILL_POSITIVE);
    l.w1 = t_random(dtype, h, experts * f, bt_below(2) ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
    l.w3 = t_random(dtype, h, experts * f, bt_below(2) ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
    l.w2 = t_random(dtype, experts * f, h, ROW, NO_BATCH, 0, FILL_SIGNED);
    l.dy = t_random(dtype, tokens, h, ROW, NO_BATCH, 0, FILL_SIGNED);
    return l;
}
static void layer_reference(layer *l) {
    rm_layer *r = &l->ref;
    r->tokens = l->at.r.tokens, r->slots = l->at.r.slots, r->experts = l->at.r.experts, r->h = l->h, r->f = l->f;
    r->act = l->act, r->dtype = l->dtype, r->expert = l->at.expert;
    r->x = rm_dense(&l->x), r->weights = rm_dense(&l->weights), r->w1 = rm_dense(&l->w1), r->w3 = rm_dense(&l->w3);
    r->w2 = rm_dense(&l->w2), r->dy = rm_dense(&l->dy);
    rm_forward(r), rm_backward(r);
}
static bsr_dense rows_of(const layer *l) { return t_output(l->dtype, l->at.r.rows, l->h, ROW, NO_BATCH); }
static bsr_dense transposed(bsr_dense d) { return bsr_dense_transposed(d); }
static void layer_run(layer *l) {
    const bsr_context *ctx = t_any_context();
    const bsr_moe_routing *r = &l->at.r;
    const int64_t columns = r->experts * l->f, each = l->f / l->block_cols;
    bsr_dense x_rows, y_rows, y, d_y, d_weights, dw1, dw3, dw2, dx_rows, dx;
    bsr_dense w1t = transposed(l->w1), w3t = transposed(l->w3), w2t = transposed(l->w2);
    bsr_matrix h, g, u, dh, dg, du, product;
    bsr_map_options silu, slope, times;
    bsr_operand other;
    bsr_term terms[2];
    bsr_exec e = t_exec(0);
    if (!route(&l->at)) return;
    h = rm_pattern(r, each, l->block_cols, l->dtype, PACKED, BSR_I32);
    x_rows = rows_of(l), y_rows = rows_of(l), d_y = rows_of(l), dx_rows = rows_of(l);
    y = t_output(l->dtype, r->tokens, l->h, ROW, NO_BATCH), dx = t_output(l->dtype, r->tokens, l->h, ROW, NO_BATCH);
    d_weights = t_output(l->dtype, r->tokens, r->slots, ROW, NO_BATCH);
    dw1 = t_output(l->dtype, columns, l->h, ROW, NO_BATCH), dw3 = t_output(l->dtype, columns, l->h, ROW, NO_BATCH);
    dw2 = t_output(l->dtype, columns, l->h, ROW, NO_BATCH);
    if (!topology(r, &h)) return;
    attach_index(r, &h);
    g = t_matrix_output(&h, l->dtype, PACKED), u = t_matrix_output(&h, l->dtype, PACKED);
    dh = t_matrix_output(&h, l->dtype, PACKED), dg = t_matrix_output(&h, l->dtype, PACKED);
    du = t_matrix_output(&h, l->dtype, PACKED), product = t_matrix_output(&h, l->dtype, PACKED);
    RUN_OK(bsr_moe_gather(ctx, r, &l->x, NULL, &x_rows, &e));
    RUN_OK(bsr_sampled_gated(ctx, l->act, &x_rows, &l->w1, &l->w3, &h, &g, &u, &e));
    RUN_OK(bsr_dense_mm(ctx, 0, &h, &l->w2, &y_rows, &e));
    RUN_OK(bsr_moe_scatter(ctx, 0, NULL, r, &y_rows, &l->weights, &y, &e));
    RUN_OK(bsr_moe_gather(ctx, r, &l->dy, &l->weights, &d_y, &e));
    RUN_OK(bsr_moe_weight_gradient(ctx, r, &y_rows, &l->dy, &d_weights, &e));
    RUN_OK(bsr_dense_mm(ctx, BSR_TRANS_A, &h, &d_y, &dw2, &e));
    RUN_OK(bsr_sampled_addmm(ctx, 0, NULL, 1, &d_y, &w2t, &dh, &e));
    memset(&silu, 0, sizeof silu), memset(&slope, 0, sizeof slope), memset(&times, 0, sizeof times);
    silu.function = l->act, silu.combine = BSR_COMBINE_MUL, silu.flags = BSR_MAP_AFTER;
    slope.function = l->act, slope.combine = BSR_COMBINE_GRADIENT, times.combine = BSR_COMBINE_MUL;
    other = bsr_operand_sparse(&dh);
    RUN_OK(bsr_map(ctx, &silu, 1, &g, 1, other, &du, &e));
    RUN_OK(bsr_map(ctx, &times, 1, &u, 1, other, &product, &e));
    other = bsr_operand_sparse(&product);
    RUN_OK(bsr_map(ctx, &slope, 1, &g, 1, other, &dg, &e));
    RUN_OK(bsr_dense_mm(ctx, BSR_TRANS_A, &dg, &x_rows, &dw1, &e));
    RUN_OK(bsr_dense_mm(ctx, BSR_TRANS_A, &du, &x_rows, &dw3, &e));
    memset(terms, 0, sizeof terms);
    terms[0].a = &dg, terms[0].b = &w1t, terms[1].a = &du, terms[1].b = &w3t, terms[0].alpha = terms[1].alpha = 1;
    RUN_OK(bsr_sum_mm(ctx, 0, NULL, terms, 2, NULL, &dx_rows, &e));
    RUN_OK(bsr_moe_scatter(ctx, 0, NULL, r, &dx_rows, NULL, &dx, &e));
    if (bt.unwanted || !BT_WANTED) return;
    layer_reference(l);
    RM_COMPARE(&y, &l->ref.out);
    RM_COMPARE(&d_weights, &l->ref.d_weights);
    RM_COMPARE(&dw2, &l->ref.d_w2);
    RM_COMPARE(&dw1, &l->ref.d_w1);
    RM_COMPARE(&dw3, &l->ref.d_w3);
    RM_COMPARE(&dx, &l->ref.dx);
}
TEST(layers) {
    int d, turn;
    for (d = 0; d < 4; d++)
        for (turn = 0; turn < 14; turn++) {
            const int64_t bc = bt_range(1, 12), experts = bt_range(1, 6), tokens = bt_range(1, 24);
            layer l;
            bt_case("%s, turn %d", bsr_dtype_name(floats[d]), turn);
            l = layer_new(floats[d], tokens, bt_range(1, 3), experts, bt_range(1, 20), bc * bt_range(1, 2), bt_range(1, 9), bc,
                          -1, turn % KINDS, turn % 5);
            layer_run(&l);
        }
}
/* Sizes that tensor cores take. */
TEST(layers_of_large_blocks) {
    static const int64_t sides[][2] = {{128, 128}, {16, 128}, {64, 128}, {32, 128}, {64, 64}, {16, 16}};
    int a, d;
    for (a = 0; a < 6; a++)
        for (d = 2; d < 4; d++) {
            layer l;
            bt_case("%s, blocks of %d x %d", bsr_dtype_name(floats[d]), (int)sides[a][0], (int)sides[a][1]);
            l = layer_new(floats[d], 24, 2, 3, 72, 128, sides[a][0], sides[a][1], -1, a % 2 ? SKEWED : NONE_SOME, BSR_ACT_SILU);
            layer_run(&l);
        }
}

/* ---------------------------------------------------------------------------------------------- */
/* traps                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

/* What grouped products of others got wrong, each against the float64 reference with poisoned memory. */
TEST(traps) {
    static const char *const names[] = {
        "experts without tokens",      "all tokens to one expert", "fewer tokens than experts", "one token", "no tokens",
        "all slots without an expert", "rows that don't fit"};
    int i, d;
    for (i = 0; i < 7; i++)
        for (d = 0; d < 4; d++) {
            const int64_t tokens = i == 2 ? 3 : i == 3 ? 1 : i == 4 ? 0 : 20, experts = i == 2 ? 11 : 5;
            layer l;
            int64_t k;
            bt_case("%s, %s", names[i], bsr_dtype_name(floats[d]));
            l = layer_new(floats[d], tokens, 2, experts, 6, 8, 4, 4, i == 6 ? 16 : -1,
                          i == 0   ? FEW
                          : i == 1 ? ONE
                                   : EVEN,
                          BSR_ACT_SILU);
            for (k = 0; k < tokens * 2 && i == 5; k++) l.at.expert[k] = -1, t_set(&l.at.experts, 0, k / 2, k % 2, -1);
            layer_run(&l); /* experts without tokens: gradients of zero; inner sizes of zero */
        }
}
/* A NaN in one token stays with its experts: with that token's sums, its rows, and its experts' weight gradients. */
TEST(a_nan_stays_with_its_experts) {
    layer l;
    bt_case("NaN in one token");
    l = layer_new(BSR_F32, 12, 1, 4, 6, 8, 4, 4, -1, EVEN, BSR_ACT_SILU);
    t_set(&l.x, 0, 5, 2, (double)NAN); /* expert 1 */
    layer_run(&l);
}
/* Rows that hold what was there before: gathered again with fewer tokens, the rest is zero again. */
TEST(padding_that_was_used_before) {
    bsr_exec e = t_exec(0);
    routed a, b;
    bsr_dense x, rows;
    int64_t i, j;
    bt_case("the same rows twice");
    a = t_routing(30, 2, 3, 8, 96, ONE, BSR_I32), b = t_routing(30, 2, 3, 8, 96, NONE_SOME, BSR_I32);
    if (!route(&a) || !route(&b)) return;
    x = t_random(BSR_BF16, 30, 16, ROW, NO_BATCH, 0, FILL_SIGNED);
    rows = t_output(BSR_BF16, 96, 16, ROW, NO_BATCH);
    RUN_OK(bsr_moe_gather(t_any_context(), &a.r, &x, NULL, &rows, &e));
    RUN_OK(bsr_moe_gather(t_any_context(), &b.r, &x, NULL, &rows, &e));
    for (i = 0; i < 96; i++)
        for (j = 0; j < 16; j++) CHECK(t_get(&rows, 0, i, j) == (b.r.slot_of[i] < 0 ? 0 : t_get(&x, 0, b.r.slot_of[i] / 2, j)));
}

static const bt_test tests[] = {{"routings", routings},
                                {"capacities", capacities},
#ifndef GM_BACKEND
                                {"routing_errors", routing_errors},
#endif
                                {"topologies", topologies},
                                {"rows", rows},
                                {"scatter_in_place", scatter_in_place},
                                {"gated_units", gated_units},
                                {"gated_units_of_large_blocks", gated_units_of_large_blocks},
                                {"gated_units_of_many_blocks", gated_units_of_many_blocks},
                                {"layers", layers},
                                {"layers_of_large_blocks", layers_of_large_blocks},
                                {"traps", traps},
                                {"a_nan_stays_with_its_experts", a_nan_stays_with_its_experts},
                                {"padding_that_was_used_before", padding_that_was_used_before}};
int main(int argc, char **argv) {
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
