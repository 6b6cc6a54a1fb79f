/* A layer of experts, each act(x W1) * (x W3) W2; y of a token is a weighted sum over the experts that it goes to. Forwards
   and backwards by the calls that bsrsparse.h lists for mixtures of experts; which experts, and weights, come from outside. */
#ifndef MOE_H
#define MOE_H
#include "network.h"

enum { MOE_BLOCK_ROWS = 32, MOE_BLOCK_COLS = 32 };
enum { ROUTER, ROUTING, MOVING, GATED, PRODUCTS, WEIGHTS, MAPS, LOOPS, PARTS };

typedef struct moe {
    int64_t width, columns; /* of x and y; of all experts' hidden units */
    parameters w1, w3, w2;  /* W1^T, W3^T and W2: columns x width */
    int32_t *expert;        /* tokens x slots, as the next two */
    float *weight, *d_weight;
    bsr_moe_routing r;
    float *X, *Y, *dY;      /* rows of the routing */
    bsr_matrix h, g, u, dh; /* one pattern */
    int64_t blocks;         /* of which each has room for so many */
    char *index;
    uint64_t index_bytes;
    double spent[PARTS], last;
} moe;

static inline void moe_lap(moe *l, int part) { /* the time since the last lap was that part's */
    const double now = seconds();
    l->spent[part] += now - l->last, l->last = now;
}
static inline bsr_dense moe_view(const float *data, int64_t rows, int64_t cols) {
    return bsr_dense_row_major(data, BSR_F32, rows, cols);
}
static inline bsr_matrix moe_like(const bsr_matrix *pattern, float *values) {
    bsr_matrix m = *pattern;
    return m.values = values, m;
}
static inline moe moe_make(int64_t tokens, int64_t slots, int64_t experts, int64_t width, int64_t hidden, uint64_t *random) {
    const int64_t rows = bsr_moe_rows(tokens, slots, experts, MOE_BLOCK_ROWS), columns = hidden * experts;
    bsr_plan plan;
    bsr_dense which;
    moe l;
    memset(&l, 0, sizeof l), l.width = width, l.columns = columns;
    l.w1 = parameters_make(columns * width, 1 / sqrt((double)width), random);
    l.w3 = parameters_make(columns * width, 1 / sqrt((double)width), random);
    l.w2 = parameters_make(columns * width, 1 / sqrt((double)hidden), random);
    l.expert = (int32_t *)allocate(tokens * slots, sizeof(int32_t));
    l.weight = (float *)allocate(2 * tokens * slots, sizeof(float)), l.d_weight = l.weight + tokens * slots;
    l.r.tokens = tokens, l.r.slots = slots, l.r.experts = experts, l.r.rows = rows, l.r.block_rows = MOE_BLOCK_ROWS;
    l.r.counts = (int32_t *)allocate(2 * experts + 1 + tokens * slots + rows, sizeof(int32_t)),
    l.r.offsets = l.r.counts + experts;
    l.r.row_of = l.r.offsets + experts + 1, l.r.slot_of = l.r.row_of + tokens * slots;
    l.X = (float *)allocate(3 * rows * width, sizeof(float)), l.Y = l.X + rows * width, l.dY = l.Y + rows * width;
    l.blocks = rows / MOE_BLOCK_ROWS * (hidden / MOE_BLOCK_COLS);
    l.h = bsr_matrix_make(rows, columns, MOE_BLOCK_ROWS, MOE_BLOCK_COLS, l.blocks,
                          allocate(rows / MOE_BLOCK_ROWS + 1, sizeof(int32_t)), allocate(l.blocks, sizeof(int32_t)), BSR_I32,
                          allocate(4 * rows * hidden, sizeof(float)), BSR_F32);
    REQUIRE(bsr_transposed_index_size(builder, &l.h, &l.index_bytes, &run), &error);
    l.index = (char *)allocate((int64_t)l.index_bytes + 64, 1), l.index += 64 - (uintptr_t)l.index % 64;
    which = bsr_dense_row_major(l.expert, BSR_I32, tokens, slots), run.query = &plan;
    REQUIRE(bsr_moe_route(ctx, &which, &l.r, &run), &error);
    run.query = NULL, run.workspace_bytes = plan.workspace_bytes; /* routing wants it on a GPU */
    if (plan.workspace_bytes) run.workspace = allocate((int64_t)plan.workspace_bytes, 1);
    return l;
}
static inline void moe_forward(moe *l, const float *tokens, float *result) {
    const bsr_dense which = bsr_dense_row_major(l->expert, BSR_I32, l->r.tokens, l->r.slots);
    const bsr_dense share = moe_view(l->weight, l->r.tokens, l->r.slots), x = moe_view(tokens, l->r.tokens, l->width);
    const bsr_dense X = moe_view(l->X, l->r.rows, l->width), Y = moe_view(l->Y, l->r.rows, l->width);
    const bsr_dense gate = bsr_dense_transposed(moe_view(l->w1.value, l->columns, l->width)),
                    y = moe_view(result, x.rows, x.cols);
    const bsr_dense up = bsr_dense_transposed(moe_view(l->w3.value, l->columns, l->width));
    const bsr_dense down = moe_view(l->w2.value, l->columns, l->width);
    const int64_t size = l->r.rows * (l->columns / l->r.experts);
    float *values = (float *)l->h.values;
    l->last = seconds();
    REQUIRE(bsr_moe_route(ctx, &which, &l->r, &run), &error);
    l->h.nnz = l->blocks, l->h.transposed_index = NULL; /* on the CPU the next call makes it the number of blocks stored */
    REQUIRE(bsr_moe_topology(ctx, &l->r, &l->h, &run), &error);
    REQUIRE(bsr_moe_transposed_index(ctx, &l->r, &l->h, l->index, l->index_bytes, &run), &error);
    l->h.transposed_index = l->index, moe_lap(l, ROUTING);
    l->g = moe_like(&l->h, values + size), l->u = moe_like(&l->h, values + 2 * size);
    l->dh = moe_like(&l->h, values + 3 * size);
    REQUIRE(bsr_moe_gather(ctx, &l->r, &x, NULL, &X, &run), &error), moe_lap(l, MOVING);
    REQUIRE(bsr_sampled_gated(ctx, BSR_ACT_SILU, &X, &gate, &up, &l->h, &l->g, &l->u, &run), &error), moe_lap(l, GATED);
    REQUIRE(bsr_dense_mm(ctx, 0, &l->h, &down, &Y, &run), &error), moe_lap(l, PRODUCTS);
    REQUIRE(bsr_moe_scatter(ctx, 0, NULL, &l->r, &Y, &share, &y, &run), &error), moe_lap(l, MOVING);
}
/* out = f(m) * dh, or, for gradients, f'(m) times what out holds. */
static inline void moe_map(moe *l, int function, int combine, const bsr_matrix *m, const bsr_matrix *out) {
    bsr_map_options o = BSR_ZERO;
    o.function = function, o.combine = combine, o.flags = combine == BSR_COMBINE_MUL ? BSR_MAP_AFTER : 0;
    REQUIRE(bsr_map(ctx, &o, 1, m, 1, bsr_operand_sparse(combine == BSR_COMBINE_MUL ? &l->dh : out), out, &run), &error);
}
/* From the gradient of y: those of the weights, of the slots' weights, of x. */
static inline void moe_backward(moe *l, const float *d_result, float *d_tokens) {
    const bsr_dense share = moe_view(l->weight, l->r.tokens, l->r.slots), dy = moe_view(d_result, l->r.tokens, l->width);
    const bsr_dense d_share = moe_view(l->d_weight, l->r.tokens, l->r.slots), dx = moe_view(d_tokens, l->r.tokens, l->width);
    const bsr_dense X = moe_view(l->X, l->r.rows, l->width), Y = moe_view(l->Y, l->r.rows, l->width);
    const bsr_dense dY = moe_view(l->dY, l->r.rows, l->width), w1 = moe_view(l->w1.value, l->columns, l->width);
    const bsr_dense w3 = moe_view(l->w3.value, l->columns, l->width), dw1 = moe_view(l->w1.gradient, l->columns, l->width);
    const bsr_dense dw2 = moe_view(l->w2.gradient, l->columns, l->width), dw3 = moe_view(l->w3.gradient, l->columns, l->width);
    const bsr_dense down = bsr_dense_transposed(moe_view(l->w2.value, l->columns, l->width));
    const bsr_term terms[2] = {{&l->u, &w1, 1, 0, 0}, {&l->dh, &w3, 1, 0, 0}};
    l->last = seconds();
    REQUIRE(bsr_moe_gather(ctx, &l->r, &dy, &share, &dY, &run), &error);
    REQUIRE(bsr_moe_weight_gradient(ctx, &l->r, &Y, &dy, &d_share, &run), &error), moe_lap(l, MOVING);
    REQUIRE(bsr_dense_mm(ctx, BSR_TRANS_A, &l->h, &dY, &dw2, &run), &error), moe_lap(l, WEIGHTS);
    REQUIRE(bsr_sampled_addmm(ctx, 0, NULL, 1, &dY, &down, &l->dh, &run), &error), moe_lap(l, PRODUCTS);
    moe_map(l, BSR_ACT_NONE, BSR_COMBINE_MUL, &l->u, &l->u);      /* u dh */
    moe_map(l, BSR_ACT_SILU, BSR_COMBINE_MUL, &l->g, &l->dh);     /* du = act(g) dh, from here on in dh */
    moe_map(l, BSR_ACT_SILU, BSR_COMBINE_GRADIENT, &l->g, &l->u); /* dg = act'(g) u dh, from here on in u */
    moe_lap(l, MAPS);
    REQUIRE(bsr_dense_mm(ctx, BSR_TRANS_A, &l->u, &X, &dw1, &run), &error);
    REQUIRE(bsr_dense_mm(ctx, BSR_TRANS_A, &l->dh, &X, &dw3, &run), &error), moe_lap(l, WEIGHTS);
    REQUIRE(bsr_sum_mm(ctx, 0, NULL, terms, 2, NULL, &dY, &run), &error), moe_lap(l, PRODUCTS);
    REQUIRE(bsr_moe_scatter(ctx, 0, NULL, &l->r, &dY, NULL, &dx, &run), &error), moe_lap(l, MOVING);
}

#endif
