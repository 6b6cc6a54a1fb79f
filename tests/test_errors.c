/* test_errors.c: what every operation says about bad input, and that it says so before it writes. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"
#include "operations.h"

/* ---------------------------------------------------------------------------------------------- */
/* one valid call of every operation                                                              */
/* ---------------------------------------------------------------------------------------------- */

/* X(call, operation, what is told apart beyond that) */
#define CALL_LIST(X)                          \
    X(ADDMM, dense_addmm, "")                 \
    X(DENSE_MM, dense_mm, "")                 \
    X(SUM, sum_mm, "")                        \
    X(SCATTER, scatter_mm, "")                \
    X(DENSE_SCATTER, dense_scatter_mm, "")    \
    X(SDD, matmul, " SDD")                    \
    X(DSD, matmul, " DSD")                    \
    X(DDS, matmul, " DDS")                    \
    X(BACKWARD, matmul_backward, "")          \
    X(SAMPLED, sampled_addmm, "")             \
    X(SOFTMAX, softmax, "")                   \
    X(SOFTMAX_BACKWARD, softmax_backward, "") \
    X(ATTENTION, attention, "")               \
    X(GRADIENTS, attention_backward, "")      \
    X(MERGE, attention_merge, "")             \
    X(MAP, map, "")                           \
    X(REDUCE, reduce, "")                     \
    X(QUANTISE, quantise, "")                 \
    X(DEQUANTISE, dequantise, "")             \
    X(CONV, conv, "")                         \
    X(CONV_WEIGHTS, conv_weight_gradient, "") \
    X(CHAIN, chain_mm, "")                    \
    X(SAMPLED_CHAIN, sampled_chain_mm, "")    \
    X(GATED, sampled_gated, "")               \
    X(GATHER, moe_gather, "")                 \
    X(SCATTER_ROWS, moe_scatter, "")          \
    X(DOTS, moe_weight_gradient, "")          \
    X(TOPOLOGY, moe_topology, "")             \
    X(MOE_INDEX, moe_transposed_index, "")    \
    X(VALIDATE, validate, "")                 \
    X(ROUTE, moe_route, "")                   \
    X(TO_DENSE, to_dense, "")                 \
    X(FROM_DENSE, from_dense, "")             \
    X(FROM_CSR, from_csr, "")                 \
    X(FROM_COO, from_coo, "")                 \
    X(FROM_MASK, from_block_mask, "")         \
    X(RANDOM, random_pattern, "")             \
    X(PRUNE, prune, "")                       \
    X(CONV_PRUNE, conv_prune, "")             \
    X(BLOCK_MASK, block_mask, "")             \
    X(FROM_LISTS, from_block_lists, "")       \
    X(SELECT, select_blocks, "")              \
    X(REBLOCK, reblock, "")                   \
    X(TO_CSR, to_csr, "")                     \
    X(TO_COO, to_coo, "")                     \
    X(PRUNE_SPARSE, prune, " of a matrix")    \
    X(TRANSPOSED, build_transposed_index, "") \
    X(SCHEDULE, build_schedule, "")           \
    X(LAYOUT, layout_mask, "")                \
    X(TO_LISTS, to_block_lists, "")           \
    X(POOL, pool_blocks, "")                  \
    X(INDICES, build_scatter_indices, "")
#define X(call, operation, more) call,
enum { CALL_LIST(X) CALLS };
#undef X
#define X(call, operation, more) #operation more,
static const char *const call_names[] = {CALL_LIST(X)};
#undef X

typedef struct { /* what the ABI aligns 8 bytes to in a struct */
    char before;
    int64_t element;
} t_eight;
typedef struct fixture { /* operands that fit each other: a 6 x 12 in 2 x 3 blocks, b 12 x 5, c 6 x 5, inner size 7 for sampling
                          */
    const bsr_context *ctx;
    bsr_matrix a, p, s, t,
        m; /* input, pattern for sampling with values, second sparse input, sparse output, conversion's output */
    bsr_dense b, c, input, left, right, bias, x, y, z, out, lse, rel, key, blocks, da, db, source;
    bsr_scatter_indices indices;
    int64_t ci[8], ri[8], pi[16], qi[16];
    bsr_epilogue epilogue;
    bsr_softmax_options softmax;
    bsr_attention_options attention;
    bsr_map_options maps;
    const bsr_dense *map_dense;
    bsr_conv_shape shape;
    bsr_matrix gate_out, up_out;
    bsr_dense up, weights;
    bsr_moe_routing r;
    const bsr_moe_routing *pr;
    bsr_block_lists lists;
    bsr_select select;
    const bsr_block_lists *plists;
    const bsr_matrix *pgate_out, *pup_out;
    bsr_scales scales;
    bsr_dense factors, bytes_in;
    const bsr_dense *pup, *pweights;
    bsr_dense d_out, dq, dk, dv, partial[2], norms[2]; /* of attention's gradients, of a merge */
    const bsr_dense *plse, *pd_out, *pdq, *pdk, *pdv, *ppartials, *pnorms;
    int kind, over, act;
    bsr_layout layout;
    double alpha, beta, scale, sparsity;
    int64_t rows, cols, nnz, n;
    int index_dtype, dtype, norm, group, no_db;
    uint32_t trans;
    bsr_term terms[2];
    int64_t count;
    void *first, *second, *values, *buffer;
    uint64_t bytes;
    uint8_t *mask;
    const bsr_matrix *pa, *pp, *pt, *pm; /* what is handed over; a test may set one to null */
    const bsr_dense *pb, *pc, *px, *py, *pz, *pinput, *pout;
    void *written[8]; /* outputs: poison until a call succeeds */
    int outputs;
} fixture;

static void *written(fixture *f, void *data) {
    bt_mark_output(data);
    return f->written[f->outputs++] = data;
}
static bsr_dense dense_in(int64_t rows, int64_t cols) { return t_random(BSR_F32, rows, cols, ROW, NO_BATCH, 0, FILL_SIGNED); }
static bsr_dense dense_out(fixture *f, int64_t rows, int64_t cols) {
    bsr_dense d = t_dense(BSR_F32, rows, cols, ROW, NO_BATCH, 0);
    written(f, d.data);
    return d;
}
static bsr_matrix sparse_out(fixture *f, const bsr_matrix *like) {
    bsr_matrix m = *like;
    t_make_values(&m, BSR_F32, PACKED, 0);
    written(f, m.values);
    return m;
}
static bsr_matrix build_target(fixture *f) {
    bsr_matrix m;
    memset(&m, 0, sizeof m);
    m.index_dtype = BSR_I32, m.dtype = BSR_F32, m.block_rows = 2, m.block_cols = 3, m.nnz = 12, m.rows = 6, m.cols = 12;
    m.crow_indices = written(f, bt_alloc(4 * 4, 4)), m.col_indices = written(f, bt_alloc(12 * 4, 4)),
    m.values = written(f, bt_alloc(12 * 6 * 4, 4));
    return m;
}
static void fixture_scatter(fixture *f, int call) { /* output tiles of two block rows, N = 5, one n-tile */
    static const int64_t c[] = {0, 2, 3}, r[] = {0, 20}, p[] = {0, 1, 2}, q[] = {0, 15, 30};
    memcpy(f->ci, c, sizeof c), memcpy(f->ri, r, sizeof r), memcpy(f->pi, p, sizeof p), memcpy(f->qi, q, sizeof q);
    f->indices.format = BSR_SCATTER_STRIDED, f->indices.split_n = 1;
    f->indices.c_indices = f->ci, f->indices.r_offsets = f->ri, f->indices.p_indices = f->pi, f->indices.q_indices = f->qi;
    f->indices.c_count = 3, f->indices.r_count = 2, f->indices.p_count = f->indices.q_count = 3;
    f->blocks = t_random(BSR_F32, 2, 3, ROW, t_batch(1, 4, 0, 0, 0), 0, FILL_SIGNED);
    if (call == INDICES) f->indices.c_count = f->indices.r_count = 8, f->indices.p_count = f->indices.q_count = 16;
}
/* Four tokens that go to two of three experts each, in blocks of two rows: 5 rows and one of padding, none, 3 rows and one. */
static int32_t *routing_array(fixture *f, const int32_t *from, size_t n, int write) {
    int32_t *to = (int32_t *)bt_alloc(4 * n, 4);
    if (write) return (int32_t *)written(f, to);
    return (int32_t *)memcpy(to, from, 4 * n);
}
static void fixture_moe(fixture *f, int call) {
    static const int32_t counts[] = {5, 0, 3}, offsets[] = {0, 6, 6, 10}, row_of[] = {0, 6, 1, 2, 7, 3, 4, 8};
    static const int32_t slot_of[] = {0, 2, 3, 5, 6, -1, 1, 4, 7, -1}, chosen[] = {0, 2, 0, 0, 2, 0, 0, 2};
    static const int32_t crow[] = {0, 2, 4, 6, 8, 10}, col[] = {0, 1, 0, 1, 0, 1, 4, 5, 4, 5};
    const int write = call == ROUTE;
    int i;
    f->r.tokens = 4, f->r.slots = 2, f->r.experts = 3, f->r.rows = 10, f->r.block_rows = 2;
    f->r.counts = routing_array(f, counts, 3, write), f->r.offsets = routing_array(f, offsets, 4, write);
    f->r.row_of = routing_array(f, row_of, 8, write), f->r.slot_of = routing_array(f, slot_of, 10, write);
    if (write) f->r.status = (uint64_t *)written(f, bt_alloc(8, 8));
    f->weights = dense_in(4, 2), f->input = dense_in(4, 7), f->x = dense_in(call == GATHER ? 4 : 10, 7), f->y = dense_in(4, 7);
    if (call == GATHER) f->out = dense_out(f, 10, 7);
    if (call == SCATTER_ROWS) f->out = dense_out(f, 4, 7);
    if (call == DOTS) f->out = dense_out(f, 4, 2);
    if (call == ROUTE) {
        f->source = t_dense(BSR_I32, 4, 2, ROW, NO_BATCH, 0);
        for (i = 0; i < 8; i++) t_set(&f->source, 0, i / 2, i % 2, chosen[i]);
    }
    if (call == TOPOLOGY || call == MOE_INDEX) {
        f->m = bsr_matrix_make(10, 18, 2, 3, 10, routing_array(f, crow, 6, call == TOPOLOGY),
                               routing_array(f, col, 10, call == TOPOLOGY), BSR_I32, NULL, BSR_F32);
        if (call == MOE_INDEX && bsr_transposed_index_size(f->ctx, &f->m, &f->bytes, NULL) == BSR_OK)
            f->buffer = written(f, bt_alloc((size_t)f->bytes, 64));
    }
}
/* Block row i names block columns i + 1 and 0 as partial; the first one 2 as full. */
static void fixture_lists(fixture *f, int write) {
    static const int32_t counts[] = {2, 2, 2}, indices[] = {1, 0, -7, 2, 0, 99, 3, 0, 4};
    static const int32_t full[] = {1, 0, 0}, columns[] = {2, 5, 5};
    f->lists.width = 3, f->lists.full_width = 1;
    f->lists.counts = routing_array(f, counts, 3, write), f->lists.indices = routing_array(f, indices, 9, write);
    f->lists.full_counts = routing_array(f, full, 3, write), f->lists.full_indices = routing_array(f, columns, 3, write);
}
static fixture fixture_new(int call) {
    fixture f;
    t_spec s;
    memset(&f, 0, sizeof f), memset(&s, 0, sizeof s);
    s.dtype = BSR_F32, s.block_rows = 2, s.block_cols = 3, s.r = 3, s.c = 4, s.nnz = 7;
    f.ctx = t_context(0);
    f.a = t_matrix(&s), f.p = f.a;
    f.s = f.a, t_make_values(&f.s, BSR_F32, PACKED, 0), t_fill_values(&f.s, FILL_SIGNED);
    f.b = dense_in(12, 5), f.input = dense_in(6, 5), f.left = dense_in(6, 1), f.right = dense_in(1, 5), f.bias = dense_in(6, 5);
    f.x = dense_in(6, 7), f.y = dense_in(7, 12), f.z = dense_in(12, 5), f.source = dense_in(6, 12);
    if (call == ADDMM || call == DENSE_MM || call == DSD || call == DENSE_SCATTER || call == SCATTER) f.c = dense_out(&f, 6, 5);
    if (call == SUM) f.c = dense_out(&f, 6, 5);
    if (call == DDS) f.b = dense_in(5, 6), f.c = dense_out(&f, 5, 12);
    if (call == BACKWARD) f.c = dense_in(6, 5), f.da.data = NULL, f.t = sparse_out(&f, &f.a), f.db = dense_out(&f, 12, 5);
    if (call == SDD || call == SAMPLED || call == SOFTMAX || call == SOFTMAX_BACKWARD || call == MAP || call == GATED)
        f.t = sparse_out(&f, &f.a);
    if (call == GATED) f.up = dense_in(7, 12), f.gate_out = sparse_out(&f, &f.a), f.up_out = sparse_out(&f, &f.a);
    if ((call >= GATHER && call <= MOE_INDEX) || call == ROUTE) fixture_moe(&f, call);
    if (call == REDUCE) f.out = dense_out(&f, 6, 1);
    if (call == QUANTISE || call == DEQUANTISE) {
        f.scales.group_rows = 1, f.scales.group_cols = 3, f.factors = dense_in(6, 3);
        f.bytes_in = t_random(BSR_E4M3, 6, 7, ROW, NO_BATCH, 0, FILL_SIGNED), f.out = dense_out(&f, 6, 7);
    }
    if (call == QUANTISE) { /* x to the bytes of out, with its scales and largest numbers */
        f.out.dtype = BSR_I8, f.factors = dense_out(&f, 6, 3), f.c = dense_out(&f, 6, 3);
    }
    f.shape.dims = 1, f.shape.kernel[0] = 3; /* 4 channels of 7 pixels to 6 of 5 */
    if (call == CONV) f.b = dense_in(4, 7), f.c = dense_out(&f, 6, 5);
    if (call == CONV_WEIGHTS) f.x = dense_in(6, 5), f.y = dense_in(4, 7), f.t = sparse_out(&f, &f.a);
    if (call == CONV_PRUNE) f.source = t_random(BSR_F32, 6, 4, ROW, t_batch(1, 3, 0, 0, 0), 0, FILL_SIGNED);
    if (call == CHAIN) f.out = dense_out(&f, 6, 5), f.c = dense_out(&f, 12, 5); /* s^T inner(a b) */
    if (call == SAMPLED_CHAIN) f.s = sparse_out(&f, &f.a), f.t = sparse_out(&f, &f.a), f.out = dense_out(&f, 6, 5);
    f.maps.combine = call == SAMPLED_CHAIN ? BSR_COMBINE_NONE : BSR_COMBINE_ADD, f.kind = BSR_REDUCE_SUM, f.over = BSR_OVER_ROWS;
    if (call == ATTENTION) {
        f.x = dense_in(6, 7), f.y = dense_in(12, 7);
        f.out = dense_out(&f, 6, 5), f.lse = dense_out(&f, 6, 1);
    }
    if (call == GRADIENTS) {
        f.x = dense_in(6, 7), f.y = dense_in(12, 7), f.out = dense_in(6, 5), f.lse = dense_in(6, 1), f.d_out = dense_in(6, 5);
        f.dq = dense_out(&f, 6, 7), f.dk = dense_out(&f, 12, 7), f.dv = dense_out(&f, 12, 5);
    }
    if (call == MERGE) {
        f.partial[0] = dense_in(6, 5), f.partial[1] = dense_in(6, 5), f.norms[0] = dense_in(6, 1), f.norms[1] = dense_in(6, 1);
        f.out = dense_out(&f, 6, 5), f.lse = dense_out(&f, 6, 1);
    }
    if (call == TO_DENSE) f.out = dense_out(&f, 6, 12);
    if (call >= FROM_DENSE && call <= PRUNE_SPARSE) f.m = build_target(&f);
    if (call == TO_CSR || call == TO_COO) { /* room for all entries, and their rows */
        f.rows = 6, f.cols = 12, f.nnz = 42, f.outputs = 0;
        f.m.crow_indices = written(&f, bt_alloc(7 * 4, 4)), f.m.col_indices = written(&f, bt_alloc(42 * 4, 4));
        f.m.values = written(&f, bt_alloc(42 * 4, 4)), f.first = bt_alloc(42 * 4, 4), bt_mark_output(f.first);
    }
    f.rel = dense_in(6, 12), f.key = dense_in(1, 12);
    fixture_scatter(&f, call);
    f.epilogue.left_alpha = &f.left, f.epilogue.right_alpha = &f.right, f.epilogue.bias = &f.bias;
    f.layout = bsr_layout_default(BSR_LAYOUT_FIXED, 2, 8);
    f.alpha = 1, f.beta = 1, f.scale = 0.5, f.sparsity = 0.5, f.n = 5, f.index_dtype = BSR_I32, f.dtype = BSR_F32, f.group = 2;
    if (call == FROM_CSR || call == FROM_COO || call == FROM_MASK) {
        int i;
        f.rows = 6, f.cols = 12, f.nnz = 6;
        f.first = bt_alloc(7 * 4, 4), f.second = bt_alloc(6 * 4, 4), f.values = bt_alloc(6 * 4, 4);
        for (i = 0; i < 7; i++) ((int32_t *)f.first)[i] = i;
        for (i = 0; i < 6; i++) ((int32_t *)f.second)[i] = 2 * i, ((float *)f.values)[i] = (float)i;
        f.mask = (uint8_t *)bt_alloc(12, 1);
        for (i = 0; i < 12; i++) f.mask[i] = i % 2 != 0;
    }
    if (call == LAYOUT) f.mask = (uint8_t *)written(&f, bt_alloc(128, 1));
    if (call == BLOCK_MASK || call == FROM_LISTS) f.rows = 6, f.cols = 12, f.mask = (uint8_t *)written(&f, bt_alloc(12, 1));
    if (call == BLOCK_MASK) f.attention.flags = BSR_ATTENTION_CAUSAL, f.attention.causal_offset = 6;
    if (call == FROM_LISTS || call == TO_LISTS) fixture_lists(&f, call == TO_LISTS);
    if (call == SELECT) f.select.top_k = 2, f.mask = (uint8_t *)written(&f, bt_alloc(12, 1));
    if (call == POOL) f.out = dense_out(&f, 3, 7);
    if (call == TO_LISTS) f.lists.width = 3, f.mask = (uint8_t *)bt_alloc(7, 1), memset(f.mask, BSR_BLOCK_SKIP, 7);
    if (call == TRANSPOSED && bsr_transposed_index_size(f.ctx, &f.a, &f.bytes, NULL) == BSR_OK)
        f.buffer = written(&f, bt_alloc((size_t)f.bytes, 64));
    if (call == SCHEDULE && bsr_schedule_size(f.ctx, &f.a, 2, 0, &f.bytes, NULL) == BSR_OK)
        f.buffer = written(&f, bt_alloc((size_t)f.bytes, 64));
    if (call == SCATTER) t_fill(&f.c, FILL_SIGNED);
    return f;
}
/* Pointers into the fixture, once it stands where it stays. */
static void fixture_point(fixture *f) {
    f->pa = &f->a, f->pp = &f->s, f->pt = &f->t, f->pm = &f->m, f->pb = &f->b, f->pc = &f->c, f->px = &f->x, f->py = &f->y,
    f->pz = &f->z;
    f->pinput = &f->input, f->pout = &f->out, f->pup = &f->up, f->pweights = &f->weights, f->pr = &f->r;
    f->plse = &f->lse, f->pd_out = &f->d_out, f->pdq = &f->dq, f->pdk = &f->dk, f->pdv = &f->dv;
    f->ppartials = f->partial, f->pnorms = f->norms;
    f->plists = &f->lists, f->select.scores = &f->source;
    f->scales.scale = &f->factors, f->pgate_out = &f->gate_out, f->pup_out = &f->up_out;
    f->count = 2, memset(f->terms, 0, sizeof f->terms);
    f->terms[0].a = &f->a, f->terms[0].b = &f->b, f->terms[0].alpha = 1;
    f->terms[1].a = &f->s, f->terms[1].b = &f->z, f->terms[1].alpha = 2;
    f->epilogue.left_alpha = &f->left, f->epilogue.right_alpha = &f->right, f->epilogue.bias = &f->bias;
    f->indices.c_indices = f->ci, f->indices.r_offsets = f->ri, f->indices.p_indices = f->pi, f->indices.q_indices = f->qi;
    f->softmax.relative_bias = &f->rel, f->softmax.key_padding_mask = &f->key;
    f->attention.relative_bias = &f->rel, f->attention.key_padding_mask = &f->key;
}
static bsr_status run(fixture *f, int call, const bsr_exec *e) {
    switch (call) {
        case ADDMM: return bsr_dense_addmm(f->ctx, f->beta, f->pinput, f->alpha, f->trans, f->pa, f->pb, &f->epilogue, f->pc, e);
        case DENSE_MM: return bsr_dense_mm(f->ctx, f->trans, f->pa, f->pb, f->pc, e);
        case SUM:
            return bsr_sum_mm(f->ctx, f->beta, f->pinput, f->count ? f->terms : NULL, f->count, &f->epilogue, f->pc, e);
        case SCATTER: return bsr_scatter_mm(f->ctx, &f->blocks, f->pb, &f->indices, f->pc, e);
        case DENSE_SCATTER: return bsr_dense_scatter_mm(f->ctx, f->pa, f->pb, &f->indices, f->pc, e);
        case SDD:
            return bsr_matmul(f->ctx, f->trans, bsr_operand_dense(f->px), bsr_operand_dense(f->py), bsr_operand_sparse(f->pt), e);
        case DSD:
            return bsr_matmul(f->ctx, f->trans, bsr_operand_sparse(f->pa), bsr_operand_dense(f->pb), bsr_operand_dense(f->pc), e);
        case DDS:
            return bsr_matmul(f->ctx, f->trans, bsr_operand_dense(f->pb), bsr_operand_sparse(f->pa), bsr_operand_dense(f->pc), e);
        case BACKWARD:
            return bsr_matmul_backward(f->ctx, f->trans, bsr_operand_sparse(f->pa), bsr_operand_dense(f->pb),
                                       bsr_operand_dense(f->pc), bsr_operand_sparse(f->pt),
                                       bsr_operand_dense(f->no_db ? NULL : &f->db), e);
        case SAMPLED: return bsr_sampled_addmm(f->ctx, f->beta, f->pp, f->alpha, f->px, f->py, f->pt, e);
        case SOFTMAX: return bsr_softmax(f->ctx, f->scale, f->pa, &f->softmax, f->pt, e);
        case SOFTMAX_BACKWARD: return bsr_softmax_backward(f->ctx, f->scale, f->pa, f->pp, f->pt, e);
        case ATTENTION: return bsr_attention(f->ctx, f->scale, f->px, f->py, f->pz, f->pa, &f->attention, f->pout, f->plse, e);
        case GRADIENTS:
            return bsr_attention_backward(f->ctx, f->scale, f->px, f->py, f->pz, f->pa, &f->attention, f->pout, f->plse,
                                          f->pd_out, f->pdq, f->pdk, f->pdv, e);
        case MERGE: return bsr_attention_merge(f->ctx, f->count, f->ppartials, f->pnorms, f->pout, f->plse, e);
        case MAP: {
            bsr_operand y;
            y.sparse = f->pp, y.dense = f->map_dense;
            return bsr_map(f->ctx, &f->maps, f->alpha, f->pa, f->beta, y, f->pt, e);
        }
        case REDUCE: return bsr_reduce(f->ctx, f->kind, f->over, f->pa, f->pout, e);
        case QUANTISE:
            return bsr_quantise(f->ctx, f->trans, bsr_operand_dense(f->px), bsr_operand_dense(f->pout), &f->scales, f->pc, e);
        case DEQUANTISE:
            return bsr_dequantise(f->ctx, bsr_operand_dense(&f->bytes_in), &f->scales, bsr_operand_dense(f->pout), e);
        case CONV:
            return bsr_conv(f->ctx, f->beta, f->pinput, f->alpha, f->trans, &f->shape, f->pa, f->pb, &f->epilogue, f->pc, e);
        case CONV_WEIGHTS:
            return bsr_conv_weight_gradient(f->ctx, f->beta, f->pp, f->alpha, &f->shape, f->px, f->py, f->pt, e);
        case CHAIN:
            return bsr_chain_mm(f->ctx, f->trans | BSR_TRANS_C, f->pa, f->pb, &f->epilogue, f->pout, 0, NULL, f->alpha, f->pp,
                                NULL, f->pc, e);
        case SAMPLED_CHAIN:
            return bsr_sampled_chain_mm(f->ctx, f->trans, f->scale, f->px, f->py, &f->maps, f->pp, f->pt, f->beta, f->pinput,
                                        f->alpha, f->pz, &f->epilogue, f->pout, e);
        case CONV_PRUNE: return bsr_conv_prune(f->ctx, &f->source, f->sparsity, f->norm, f->pm ? &f->m : NULL, e);
        case GATED: return bsr_sampled_gated(f->ctx, f->act, f->px, f->py, f->pup, f->pt, f->pgate_out, f->pup_out, e);
        case GATHER: return bsr_moe_gather(f->ctx, f->pr, f->px, f->pweights, f->pout, e);
        case SCATTER_ROWS: return bsr_moe_scatter(f->ctx, f->beta, f->pinput, f->pr, f->px, f->pweights, f->pout, e);
        case DOTS: return bsr_moe_weight_gradient(f->ctx, f->pr, f->px, f->py, f->pout, e);
        case TOPOLOGY: return bsr_moe_topology(f->ctx, f->pr, f->pm ? &f->m : NULL, e);
        case MOE_INDEX: return bsr_moe_transposed_index(f->ctx, f->pr, f->pm, f->buffer, f->bytes, e);
        case ROUTE: return bsr_moe_route(f->ctx, &f->source, f->pr, e);
        case VALIDATE: return bsr_validate(f->ctx, f->pa, e);
        case TO_DENSE: return bsr_to_dense(f->ctx, f->pa, f->pout, e);
        case FROM_DENSE: return bsr_from_dense(f->ctx, &f->source, f->pm ? &f->m : NULL, e);
        case FROM_CSR:
            return bsr_from_csr(f->ctx, f->rows, f->cols, f->nnz, f->first, f->second, f->index_dtype, f->values, f->dtype,
                                f->pm ? &f->m : NULL, e);
        case FROM_COO:
            return bsr_from_coo(f->ctx, f->rows, f->cols, f->nnz, f->second, f->second, f->index_dtype, f->values, f->dtype,
                                f->pm ? &f->m : NULL, e);
        case FROM_MASK: return bsr_from_block_mask(f->ctx, f->mask, f->pm ? &f->m : NULL, e);
        case RANDOM: return bsr_random_pattern(f->ctx, 1, f->sparsity, f->pm ? &f->m : NULL, e);
        case PRUNE: return bsr_prune(f->ctx, bsr_operand_dense(&f->source), f->sparsity, f->norm, f->pm ? &f->m : NULL, e);
        case BLOCK_MASK:
            return bsr_block_mask(f->ctx, f->rows, f->cols, &f->attention, f->pa, f->pm ? &f->m : NULL, f->mask, e);
        case FROM_LISTS: return bsr_from_block_lists(f->ctx, f->plists, f->pm ? &f->m : NULL, f->mask, e);
        case SELECT: return bsr_select_blocks(f->ctx, &f->select, f->pm ? &f->m : NULL, f->mask, e);
        case POOL: return bsr_pool_blocks(f->ctx, f->kind, 2, f->px, NULL, 0, f->pout, e);
        case TO_LISTS: return bsr_to_block_lists(f->ctx, f->pa, f->mask, f->plists, e);
        case REBLOCK: return bsr_reblock(f->ctx, f->pa, f->pm ? &f->m : NULL, e);
        case TO_CSR:
            return bsr_to_csr(f->ctx, f->pa, f->rows, f->cols, f->pm ? &f->nnz : NULL, f->m.crow_indices, f->m.col_indices,
                              f->m.index_dtype, f->m.values, f->m.dtype, e);
        case TO_COO:
            return bsr_to_coo(f->ctx, f->pa, f->rows, f->cols, f->pm ? &f->nnz : NULL, f->m.crow_indices, f->first,
                              f->m.col_indices, f->m.index_dtype, f->m.values, f->m.dtype, e);
        case PRUNE_SPARSE: return bsr_prune(f->ctx, bsr_operand_sparse(f->pa), f->sparsity, f->norm, f->pm ? &f->m : NULL, e);
        case TRANSPOSED: return bsr_build_transposed_index(f->ctx, f->pa, f->buffer, f->bytes, e);
        case SCHEDULE: return bsr_build_schedule(f->ctx, f->pa, f->group, 0, f->buffer, f->bytes, e);
        case LAYOUT: return bsr_layout_mask(f->ctx, &f->layout, f->mask, e);
        default: return bsr_build_scatter_indices(f->ctx, f->pa, f->n, &f->indices, e);
    }
}
static void fit_call(fixture *f, int call) { /* COO reads second as rows too: keep it inside */
    int i;
    if (call == FROM_COO)
        for (i = 0; i < 6; i++) ((int32_t *)f->second)[i] = i;
}

/* ---------------------------------------------------------------------------------------------- */
/* bad input, by table                                                                            */
/* ---------------------------------------------------------------------------------------------- */

#define ANY INT64_C(-987654321)
static bsr_status item_status(int item) {
    switch (item) {
#define BSRI_X(name, status, text) \
    case name: return status;
        BSR_ITEM_LIST(BSRI_X)
#undef BSRI_X
        default: return BSR_STATUS_FORCE_32;
    }
}
static void check_poison(const fixture *f, int call) {
    int i;
    for (i = 0; i < f->outputs && call != SCATTER; i++)
        if (!t_all_poison(f->written[i])) bt_fail(__FILE__, __LINE__, "output %d was written before the check failed", i);
}
/* A record names what was wanted where its sentence does, and that is not what was found. */
static int says_what_was_wanted(const bsr_error *e) {
    const char *text = bsr_item_string(e->item);
    if (strstr(text, "<wanted_dtypes>")) return e->wanted > 0 && !(e->wanted >> e->value & 1);
    return strstr(text, "<wanted") ? e->wanted >= 0 && e->wanted != e->value : e->wanted == -1;
}
static int64_t expected_wanted = ANY;
static void expect(fixture *f, int call, int line, int item, int operand, int64_t index, int64_t value) {
    bsr_exec e = t_exec(0);
    bsr_error error;
    bsr_status status;
    char text[320];
    bt_before_call();
    status = run(f, call, &e), error = t_error;
    bt_after_call();
    bt.checks++;
    bsr_error_string(&error, text, sizeof text);
    if (!says_what_was_wanted(&error) || (expected_wanted != ANY && error.wanted != expected_wanted))
        bt_fail(__FILE__, line, "%s: wanted %lld, expected %lld", text, (long long)error.wanted, (long long)expected_wanted);
    if (status != item_status(item) || error.item != item || error.status != (int32_t)status ||
        (operand != ANY && error.operand != operand) || (index != ANY && error.index != index) ||
        (value != ANY && error.value != value))
        bt_fail(__FILE__, line, "%s: expected %s, %s, index %lld, value %lld; got %s (index %lld, value %lld)", call_names[call],
                bsr_item_name(item), bsr_operand_name(operand), (long long)index, (long long)value, text, (long long)error.index,
                (long long)error.value);
    if (item != BSR_ITEM_NONE) check_poison(f, call);
    e.error = NULL; /* the record is optional, the status the same */
    if (item != BSR_ITEM_NONE && run(f, call, &e) != status) bt_fail(__FILE__, line, "another status without an error record");
}
#define BAD(call, item, operand, index, value, change)               \
    do {                                                             \
        fixture f_, *f = &f_;                                        \
        bt_case("%s: %s: %s", call_names[call], #item, #change);     \
        f_ = fixture_new(call), fixture_point(f), fit_call(f, call); \
        change;                                                      \
        expect(f, call, __LINE__, item, operand, index, value);      \
    } while (0)

#define WANTED(call, item, operand, value, wanted, change)   \
    do {                                                     \
        expected_wanted = wanted;                            \
        BAD(call, item, operand, ANY, value, change);        \
        expected_wanted = ANY;                               \
    } while (0)

TEST(all_operations_are_called) {
    static const char *const names[] = {
#define X(name, ...) #name,
        T_OPERATIONS(X)
#undef X
    };
    size_t i;
    for (i = 0; i < BT_COUNT(names); i++) {
        int call, found = 0;
        bt_case("%s", names[i]);
        for (call = 0; call < CALLS; call++) /* the name, or with a word behind it */
            found |= !strncmp(call_names[call], names[i], strlen(names[i])) && strchr(" ", call_names[call][strlen(names[i])]);
        CHECK(found);
    }
}
TEST(valid_calls) { /* the fixtures themselves are fine, with and without checks */
    int call;
    for (call = 0; call < CALLS; call++) {
        fixture f;
        bsr_exec e;
        bt_case("%s", call_names[call]);
        f = fixture_new(call), fixture_point(&f), fit_call(&f, call);
        expect(&f, call, __LINE__, BSR_ITEM_NONE, ANY, ANY, ANY);
        f = fixture_new(call), fixture_point(&f), fit_call(&f, call);
        e = t_exec(BSR_EXEC_SKIP_CHECKS);
        RUN_OK(run(&f, call, &e));
    }
}
enum { /* flags of plans that name a workspace */
    FOR_SPEED = BSR_PLAN_SLOW_TRANSPOSE | BSR_PLAN_STAGES_DENSE | BSR_PLAN_STAGES_OUT | BSR_PLAN_TURNS_DENSE |
                BSR_PLAN_MERGES_BATCH | BSR_PLAN_BUILDS_INDEX | BSR_PLAN_CUTS_ROWS | BSR_PLAN_RETILES
};
#ifdef GM_BACKEND /* on a GPU bsr_dense_scatter_mm is a product by rows, with a product's key */
#define LISTS_ARE_ROWS (GM_BACKEND == BSR_BACKEND_CUDA)
#else
#define LISTS_ARE_ROWS 0
#endif
/* Each call is timed once, from behind its checks to its end; none that is refused, a query or empty. */
static double ticking(void *user) { return (double)++*(int *)user; }
TEST(timing) {
    int call, how, ticks;
    for (call = 0; call < CALLS; call++)
        for (how = 0; how < 4; how++) {
            bsr_timing t = BSR_ZERO;
            bsr_plan plan;
            bsr_exec e;
            fixture f;
            if (how == 3 && call == VALIDATE) continue; /* it has no query */
            bt_case("%s, way %d", call_names[call], how);
            f = fixture_new(call), fixture_point(&f), fit_call(&f, call);
            e = t_exec(0), ticks = 0, t.now = how == 1 ? NULL : ticking, t.user = &ticks, t.seconds = 77, e.timing = &t;
            if (how == 2) e.reserved2 = 1;
            if (how == 3) e.query = &plan;
            CHECK_INT(run(&f, call, &e), how == 1 ? (int)BSR_NULL_POINTER : how == 2 ? (int)BSR_BAD_ARGUMENT : (int)BSR_OK);
            CHECK_INT(ticks, how ? 0 : 2), CHECK(t.seconds == (how ? 77 : 1));
        }
}
/* Calls that soon have nothing more to do, few of many blocks, a filter that is copied: the clock is read at both ends. */
TEST(timing_ends) {
    int64_t crow[2] = {0, 0}, col[1] = {0};
    double numbers[2 * 3 * 2 * 2] = {1};
    float keys[4 * 2] = {0};
    float none[1] = {0};
    const bsr_matrix empty = bsr_matrix_make(2, 0, 2, 2, 0, crow, NULL, BSR_I64, NULL, BSR_F32);
    const bsr_dense nothing = bsr_dense_row_major(none, BSR_F32, 2, 0), q = bsr_dense_row_major(none, BSR_F32, 0, 2);
    const bsr_dense lse = bsr_dense_row_major(none, BSR_F32, 0, 1), all = bsr_dense_row_major(keys, BSR_F32, 4, 0);
    bsr_dense filter = bsr_dense_strided(numbers, BSR_F64, 2, 2, 12, 6); /* O 2, C 2, taps 3 x 1, of another order */
    const bsr_dense k = bsr_dense_row_major(keys, BSR_F32, 4, 2);
    int way;
    filter.batch_dims = 1, filter.batch[0] = 3, filter.batch_stride[0] = 1;
    for (way = 0; way < 6; way++) {
        bsr_matrix few = bsr_matrix_make(1, INT64_C(1) << 42, 1, 1, 1, crow, col, BSR_I64, NULL, BSR_F32);
        bsr_matrix mask = bsr_matrix_make(0, 4, 2, 2, 0, crow, NULL, BSR_I64, NULL, BSR_F32), w = few;
        bsr_timing t = BSR_ZERO;
        bsr_exec e = t_exec(0);
        int ticks = 0;
        bt_case("way %d", way), crow[0] = crow[1] = 0;
        w = bsr_matrix_make(2, 6, 2, 6, 1, crow, col, BSR_I64, NULL, BSR_F64);
        t.now = ticking, t.user = &ticks, t.seconds = 77, e.timing = &t;
        if (way == 0) CHECK_INT(bsr_random_pattern(t_context(0), 5, 1 - 0x1p-42, &few, &e), BSR_OK), CHECK_INT(few.nnz, 1);
        if (way == 1) CHECK_INT(bsr_to_dense(t_context(0), &empty, &nothing, &e), BSR_OK);
        if (way == 2) CHECK_INT(bsr_attention(t_context(0), 1, &q, &k, &k, &mask, NULL, &q, NULL, &e), BSR_OK);
        if (way == 3) CHECK_INT(bsr_conv_prune(t_context(0), &filter, 0, BSR_NORM_L2, &w, &e), BSR_OK);
        if (way == 4) CHECK_INT(bsr_attention_merge(t_context(0), 1, &q, &lse, &q, NULL, &e), BSR_OK);
        if (way == 5) CHECK_INT(bsr_pool_blocks(t_context(0), BSR_REDUCE_MEAN, 2, &all, NULL, 0, &nothing, &e), BSR_OK);
        CHECK_INT(ticks, 2), CHECK(t.seconds == 1);
    }
}
TEST(every_call) {
    int call;
    for (call = 0; call < CALLS; call++) {
        static bsr_plan plan;
        bsr_tune_row key;
        bsr_exec e;
        fixture g;
        BAD(call, BSR_ITEM_CONTEXT_NULL, BSR_ARG_CONTEXT, -1, 0, f->ctx = NULL);
        bt_case("%s: unknown flag, reserved fields, conflicting flags", call_names[call]);
        g = fixture_new(call), fixture_point(&g), fit_call(&g, call);
        e = t_exec(1u << 17);
        CHECK_INT(run(&g, call, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_RESERVED),
            CHECK_INT(t_error.value, 1 << 17);
        e = t_exec(0), e.reserved2 = 1;
        CHECK_INT(run(&g, call, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_RESERVED);
        e = t_exec(0), e.threads = -1;
        CHECK_INT(run(&g, call, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_THREADS);
        e = t_exec(BSR_EXEC_TF32 | BSR_EXEC_TF32X3);
        CHECK_INT(run(&g, call, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_FLAGS_CONFLICT);
        check_poison(&g, call);
        if (call == VALIDATE) continue;
        bt_case("%s: plan of another operation, a plan field, a query", call_names[call]);
        g = fixture_new(call), fixture_point(&g), fit_call(&g, call);
        e = t_exec(0), memset(&plan, 0, sizeof plan), plan.op = 22, e.plan = &plan;
        CHECK_INT(run(&g, call, &e), BSR_BAD_PLAN), CHECK_INT(t_error.item, BSR_ITEM_PLAN_OP), CHECK_INT(t_error.value, 22);
        memset(&plan, 0, sizeof plan), plan.backend = BSR_BACKEND_CUDA;
        CHECK_INT(run(&g, call, &e), BSR_BAD_PLAN), CHECK_INT(t_error.item, BSR_ITEM_PLAN_FIELD), CHECK_INT(t_error.index, 1),
            CHECK_INT(t_error.value, BSR_BACKEND_CUDA);
        memset(&plan, 0, sizeof plan), plan.stages = 7;
        CHECK_INT(run(&g, call, &e), BSR_BAD_PLAN), CHECK_INT(t_error.index, 7);
        check_poison(&g, call);
        e = t_exec(0), e.query = &plan, memset(&plan, 0x33, sizeof plan), e.key = &key, memset(&key, 0x33, sizeof key);
        CHECK_INT(run(&g, call, &e), BSR_OK), CHECK(plan.op > 0 && plan.op <= BSR_OP_DEQUANTISE),
            CHECK_INT(plan.backend, BSR_BACKEND_CPU);
        CHECK_INT(key.op != 0, call == ADDMM || call == DENSE_MM || (call >= SDD && call <= GRADIENTS && call != BACKWARD) ||
                                   call == CONV || call == CONV_WEIGHTS || call == GATED ||
                                   (call == DENSE_SCATTER && LISTS_ARE_ROWS));
        CHECK(!plan.workspace_bytes || (plan.flags & FOR_SPEED)); /* those are for speed alone */
        check_poison(&g, call);
    }
}
#define SET(dtype) (INT64_C(1) << (dtype))
#define EIGHTS (SET(BSR_E4M3) | SET(BSR_E5M2))
#define FLOATS (SET(BSR_F16) | SET(BSR_BF16) | SET(BSR_F32) | SET(BSR_F64))
TEST(what_was_wanted) {
    WANTED(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_A, BSR_I32, FLOATS | SET(BSR_I8) | EIGHTS | SET(BSR_U4),
           f->a.dtype = BSR_I32);
    WANTED(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_BIAS, BSR_I8, FLOATS, f->bias.dtype = BSR_I8);
    WANTED(ADDMM, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_B, BSR_BF16, BSR_F32, f->b.dtype = BSR_BF16);
    WANTED(ADDMM, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, BSR_F64, FLOATS & ~SET(BSR_F64), f->c.dtype = BSR_F64);
    WANTED(ADDMM, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_A, 7, 2, f->a.rows = 7);
    WANTED(ADDMM, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_A, 13, 3, f->a.cols = 13);
    WANTED(ADDMM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, 11, 12, f->b.rows = 11);
    WANTED(ADDMM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, 5, 6, f->c.rows = 5);
    WANTED(ADDMM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, 4, 5, f->c.cols = 4);
    WANTED(ADDMM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, 12, 6, f->trans = BSR_TRANS_A);
    WANTED(ADDMM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_INPUT, 3, 6, f->input.rows = 3);
    WANTED(ADDMM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_BIAS, 3, 5, f->bias.cols = 3);
    WANTED(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 3, 5, f->c.row_stride = 3);
    WANTED(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 0, 1, f->c.col_stride = 0);
    WANTED(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_B, 5, 4, f->b.batch_dims = 5);
    WANTED(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_A, -1, 0, f->a.batch_dims = -1);
    WANTED(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_OUT, 0, 1, f->b.batch_dims = 1; f->b.batch[0] = 3);
    WANTED(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_B, 3, 2, f->b.batch_dims = f->a.batch_dims = 1; f->b.batch[0] = 3;
           f->a.batch[0] = 2);
    WANTED(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_B, 3, 2, f->b.batch_dims = 1; f->b.batch[0] = 3; f->a.batch_dims = 3;
           f->a.batch[0] = f->a.batch[1] = 4; f->a.batch[2] = 2);
    WANTED(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_OUT, 2, 3, f->b.batch_dims = f->c.batch_dims = 1; f->b.batch[0] = 3;
           f->c.batch[0] = 2);
    WANTED(ADDMM, BSR_ITEM_BATCH_EXTRA, BSR_ARG_INPUT, 2, 1, f->input.batch_dims = 1; f->input.batch[0] = 2);
    WANTED(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_B, INT64_C(1) << 40, 1, f->b.batch_dims = f->a.batch_dims = 2;
           f->a.batch[0] = INT64_C(1) << 40; f->a.batch[1] = f->b.batch[0] = 1; f->b.batch[1] = INT64_C(1) << 40);
    WANTED(DDS, BSR_ITEM_INNER_MISMATCH, BSR_ARG_A, 5, 6, f->b.cols = 5);
    WANTED(DSD, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_C, 4, 5, f->trans = BSR_TRANS_C; f->c = bsr_dense_transposed(f->c);
           f->c.rows = 4);
    WANTED(SDD, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, 5, 7, f->y.rows = 5);
    WANTED(BACKWARD, BSR_ITEM_BATCH_DIMS, BSR_ARG_B, 7, 4, f->b.batch_dims = 7);
    WANTED(SCATTER, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, 2, 5, f->indices.split_n = 2);
    WANTED(SCATTER, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, 5, f->indices.split_n = -1);
    WANTED(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, 2, 3, f->indices.c_count = 2);
    WANTED(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, 2, 3, f->indices.q_count = 2);
    WANTED(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -2, 0, f->indices.q_count = -2);
    WANTED(SCATTER, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_ACCUMULATORS, 5, 2, f->c.rows = 5);
    WANTED(SCATTER, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_OTHERS, 11, 3, f->b.rows = 11);
    WANTED(SCATTER, BSR_ITEM_COLS_MISMATCH, BSR_ARG_ACCUMULATORS, 4, 5, f->c.cols = 4);
    WANTED(SCATTER, BSR_ITEM_BATCH_DIMS, BSR_ARG_BLOCKS, 2, 1, f->blocks.batch_dims = 2; f->blocks.batch[1] = 1);
    WANTED(INDICES, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, 3, 5, f->indices.split_n = 3);
    WANTED(SAMPLED, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MAT1, 4, 6, f->x.rows = 4);
    WANTED(SAMPLED, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MAT2, 9, 12, f->y.cols = 9);
    WANTED(SOFTMAX, BSR_ITEM_DTYPE_OUT, BSR_ARG_Y, BSR_BF16, SET(BSR_F32), f->t.dtype = BSR_BF16);
    WANTED(SOFTMAX, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_REL_BIAS, 5, 6, f->rel.rows = 5);
    WANTED(ATTENTION, BSR_ITEM_INNER_MISMATCH, BSR_ARG_K, 6, 7, f->y.cols = 6);
    WANTED(ATTENTION, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_V, 11, 12, f->z.rows = 11);
    WANTED(ATTENTION, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MASK, 6, 8, f->x.rows = 7);
    WANTED(ATTENTION, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MASK, 12, 15, f->y.rows = f->z.rows = 13);
    WANTED(ATTENTION, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_Q, BSR_I8, FLOATS, f->x.dtype = BSR_I8);
    WANTED(TO_DENSE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, 4, 6, f->out.rows = 4);
    WANTED(FROM_DENSE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, 8, 6, f->m.rows = 8);
    WANTED(FROM_CSR, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, 6, 2, f->rows = 2);
    WANTED(PRUNE_SPARSE, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_MATRIX, 3, 2, f->m.block_rows = 3);
}

TEST(bad_products) {
    BAD(ADDMM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_A, -1, 0, f->pa = NULL);
    BAD(SUM, BSR_ITEM_TERM_COUNT, BSR_ARG_TERMS, -1, 0, f->count = 0);
    BAD(SUM, BSR_ITEM_TERM_COUNT, BSR_ARG_TERMS, -1, 9, f->count = 9);
    BAD(SUM, BSR_ITEM_TERM_COUNT, BSR_ARG_TERMS, -1, -1, f->count = -1);
    BAD(SUM, BSR_ITEM_RESERVED, BSR_ARG_TERMS, 1, BSR_TRANS_B, f->terms[1].trans = BSR_TRANS_B);
    BAD(SUM, BSR_ITEM_RESERVED, BSR_ARG_TERMS, 1, 5, f->terms[1].reserved = 5);
    BAD(SUM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_TERM_1_A, -1, 0, f->terms[1].a = NULL);
    BAD(SUM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_TERM_0_B, -1, 0, f->terms[0].b = NULL);
    BAD(SUM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pc = NULL);
    BAD(SUM, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0, f->pinput = NULL);
    BAD(SUM, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_TERM_1_A, -1, BSR_BF16, f->s.dtype = BSR_BF16);
    BAD(SUM, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_TERM_1_B, -1, BSR_F16, f->z.dtype = BSR_F16);
    BAD(SUM, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, -1, BSR_I32, f->c.dtype = BSR_I32);
    BAD(SUM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_TERM_1_B, -1, 11, f->z.rows = 11);
    BAD(SUM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, 5, f->z.cols = 4);
    BAD(SUM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 6, f->s.rows = 4);
    BAD(SUM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_TERM_0_B, -1, 12, f->terms[0].trans = BSR_TRANS_A);
    BAD(SUM, BSR_ITEM_VIEW_REQUIRED, BSR_ARG_TERM_1_A, -1, 0, f->terms[1].trans = BSR_TRANS_A;
        f->s.rows = 12; f->s.cols = 6; f->s.block_rows = 3; f->s.block_cols = 2);
    BAD(SUM, BSR_ITEM_BATCH_SIZE, BSR_ARG_TERM_1_B, 0, 3, f->b.batch_dims = f->z.batch_dims = 1; f->b.batch[0] = 2;
        f->z.batch[0] = 3);
    BAD(SUM, BSR_ITEM_BATCH_DIMS, BSR_ARG_OUT, -1, 0, f->z.batch_dims = 1; f->z.batch[0] = 2);
    BAD(SUM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_BIAS, -1, 3, f->bias.cols = 3);
    BAD(SUM, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_TERM_1_B, f->terms[1].b = &f->c; f->s.cols = 6; f->nnz = 0);
    BAD(SUM, BSR_ITEM_DATA_NULL, BSR_ARG_TERM_1_B, -1, 0, f->z.data = NULL);
    BAD(SUM, BSR_ITEM_CROW_NULL, BSR_ARG_TERM_1_A, -1, 0, f->s.crow_indices = NULL);
    BAD(SUM, BSR_ITEM_COL_RANGE, BSR_ARG_TERM_0_A, 0, 4, ((int32_t *)f->s.col_indices)[0] = 4); /* the first that has them */
    BAD(SUM, BSR_ITEM_ACTIVATION, BSR_ARG_NONE, -1, 77, f->epilogue.activation = 77);
    BAD(ADDMM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_B, -1, 0, f->pb = NULL);
    BAD(ADDMM, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pc = NULL);
    BAD(ADDMM, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0, f->pinput = NULL);
    BAD(ADDMM, BSR_ITEM_RESERVED, ANY, ANY, 2, f->trans = BSR_TRANS_B);
    BAD(ADDMM, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_B, -1, 77, f->b.dtype = 77);
    BAD(ADDMM, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_A, -1, -1, f->a.dtype = -1);
    BAD(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_A, -1, BSR_I32, f->a.dtype = BSR_I32);
    BAD(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_OUT, -1, BSR_BOOL, f->c.dtype = BSR_BOOL);
    BAD(ADDMM, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_B, -1, BSR_BF16, f->b.dtype = BSR_BF16);
    BAD(ADDMM, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, -1, BSR_I32, f->c.dtype = BSR_I32);
    BAD(ADDMM, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, -1, BSR_F64, f->c.dtype = BSR_F64);
    BAD(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_INPUT, -1, BSR_I8, f->input.dtype = BSR_I8);
    BAD(ADDMM, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_BIAS, -1, BSR_BOOL, f->bias.dtype = BSR_BOOL);
    BAD(ADDMM, BSR_ITEM_INDEX_DTYPE, BSR_ARG_A, -1, BSR_F32, f->a.index_dtype = BSR_F32);
    BAD(ADDMM, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_A, 0, -6, f->a.rows = -6);
    BAD(ADDMM, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_B, 1, -5, f->b.cols = -5);
    BAD(ADDMM, BSR_ITEM_BLOCK_SIZE, BSR_ARG_A, 0, 0, f->a.block_rows = 0);
    BAD(ADDMM, BSR_ITEM_BLOCK_SIZE, BSR_ARG_A, 1, 1 << 21, f->a.block_cols = 1 << 21);
    BAD(ADDMM, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_A, 0, 7, f->a.rows = 7);
    BAD(ADDMM, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_A, 1, 13, f->a.cols = 13);
    BAD(ADDMM, BSR_ITEM_NNZ_NEGATIVE, BSR_ARG_A, -1, -3, f->a.nnz = -3);
    BAD(ADDMM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 11, f->b.rows = 11);
    BAD(ADDMM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 5, f->c.rows = 5);
    BAD(ADDMM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, 4, f->c.cols = 4);
    BAD(ADDMM, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 12, f->trans = BSR_TRANS_A);
    BAD(ADDMM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_INPUT, -1, 3, f->input.rows = 3);
    BAD(ADDMM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_LEFT_ALPHA, -1, 2, f->left.cols = 2; f->left.rows = 3; f->left.row_stride = 2;
        f->left.rows = 1);
    BAD(ADDMM, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_RIGHT_ALPHA, -1, 2, f->right.rows = 2; f->right.cols = 1; f->right.row_stride = 1);
    BAD(ADDMM, BSR_ITEM_COLS_MISMATCH, BSR_ARG_BIAS, -1, 3, f->bias.cols = 3);
    BAD(ADDMM, BSR_ITEM_STRIDE_NEGATIVE, BSR_ARG_B, 0, -5, f->b.row_stride = -5);
    BAD(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 0, 0, f->c.row_stride = 0);
    BAD(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 0, 3, f->c.row_stride = 3);
    BAD(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 1, 0, f->c.col_stride = 0);
    BAD(ADDMM, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 3, 7, f->b.batch_dims = f->c.batch_dims = 2; f->b.batch[0] = 1;
        f->c.batch[0] = 1; f->b.batch[1] = f->c.batch[1] = 2; f->c.batch_stride[0] = 0; f->c.batch_stride[1] = 7);
    BAD(ADDMM, BSR_ITEM_STRIDE_NEGATIVE, BSR_ARG_A, 7, -2, f->a.value_strides[0] = 6; f->a.value_strides[1] = -2;
        f->a.value_strides[2] = 1);
    BAD(ADDMM, BSR_ITEM_DATA_NULL, BSR_ARG_B, -1, 0, f->b.data = NULL);
    BAD(ADDMM, BSR_ITEM_DATA_NULL, BSR_ARG_OUT, -1, 0, f->c.data = NULL);
    BAD(ADDMM, BSR_ITEM_DATA_NULL, BSR_ARG_INPUT, -1, 0, f->input.data = NULL);
    BAD(ADDMM, BSR_ITEM_CROW_NULL, BSR_ARG_A, -1, 0, f->a.crow_indices = NULL);
    BAD(ADDMM, BSR_ITEM_COL_NULL, BSR_ARG_A, -1, 0, f->a.col_indices = NULL);
    BAD(ADDMM, BSR_ITEM_VALUES_NULL, BSR_ARG_A, -1, 0, f->a.values = NULL);
    BAD(ADDMM, BSR_ITEM_STRIDE_PATTERN, BSR_ARG_A, 0, 7, f->a.flags = BSR_MATRIX_RAGGED; f->a.batch_dims = 1; f->a.batch[0] = 2;
        f->a.col_batch_stride[0] = 7); /* one crow_indices for both items, which have columns of their own */
    BAD(ADDMM, BSR_ITEM_ALIGNMENT, BSR_ARG_B, -1, 4, f->b.data = (char *)f->b.data + 1; f->b.rows = 12);
    BAD(ADDMM, BSR_ITEM_ALIGNMENT, BSR_ARG_A, -1, 4, f->a.values = (char *)f->a.values + 2);
    BAD(ADDMM, BSR_ITEM_ALIGNMENT, BSR_ARG_A, -1, 4, f->a.crow_indices = (char *)f->a.crow_indices + 2);
    if (offsetof(t_eight, element) == 8) /* not on i386 */
        BAD(ADDMM, BSR_ITEM_ALIGNMENT, BSR_ARG_A, -1, 8,
            f->a.transposed_index = (char *)f->a.values + 4 - (uintptr_t)f->a.values % 8);
    BAD(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_B, -1, 5, f->b.batch_dims = 5);
    BAD(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_A, -1, -1, f->a.batch_dims = -1);
    BAD(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_B, 0, 3, f->b.batch_dims = 1; f->b.batch[0] = 3; f->a.batch_dims = 1;
        f->a.batch[0] = 2);
    BAD(ADDMM, BSR_ITEM_BATCH_DIMS, BSR_ARG_OUT, -1, 0, f->b.batch_dims = 1; f->b.batch[0] = 3);
    BAD(ADDMM, BSR_ITEM_BATCH_SIZE, BSR_ARG_OUT, 0, 2, f->b.batch_dims = 1; f->b.batch[0] = 3; f->c.batch_dims = 1;
        f->c.batch[0] = 2; f->c.batch_stride[0] = 30; f->b.rows = f->a.cols = 0; f->a.nnz = 0);
    BAD(ADDMM, BSR_ITEM_BATCH_EXTRA, BSR_ARG_INPUT, 0, 2, f->input.batch_dims = 1; f->input.batch[0] = 2);
    BAD(ADDMM, BSR_ITEM_BATCH_EXTRA, BSR_ARG_BIAS, 0, 4, f->bias.batch_dims = 1; f->bias.batch[0] = 4);
    BAD(ADDMM, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_B, 2, -1, f->b.batch_dims = 1; f->b.batch[0] = -1);
    BAD(ADDMM, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_B, -1, ANY, f->b.row_stride = INT64_MAX / 4);
    BAD(ADDMM, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_OUT, -1, ANY, f->c.row_stride = INT64_C(1) << 61);
    BAD(ADDMM, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_A, -1, ANY, f->a.value_strides[0] = INT64_MAX; f->a.value_strides[1] = 3;
        f->a.value_strides[2] = 1);
    BAD(ADDMM, BSR_ITEM_INDEX_RANGE, BSR_ARG_A, -1, INT64_C(1) << 31, f->a.nnz = INT64_C(1) << 31);
    BAD(ADDMM, BSR_ITEM_ACTIVATION, ANY, -1, 5, f->epilogue.activation = 5);
    BAD(ADDMM, BSR_ITEM_ACTIVATION, ANY, -1, -1, f->epilogue.activation = -1);
    BAD(ADDMM, BSR_ITEM_USER_FUNCTION, ANY, -1, 1002, f->epilogue.activation = 1002);
    BAD(ADDMM, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, 9, f->epilogue.reserved = 9);
    BAD(ADDMM, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_B, f->b.data = f->c.data; f->b.rows = 12; f->b.row_stride = 0);
    BAD(ADDMM, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_A, f->a.values = f->c.data; f->a.value_strides[1] = 1);
    BAD(ADDMM, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_INPUT, f->input = f->c; f->input.row_stride = 4);
    BAD(ADDMM, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_BIAS, f->bias = f->c);
    BAD(DSD, BSR_ITEM_RESERVED, ANY, ANY, 8, f->trans = 8);
    BAD(DSD, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 11, f->b.rows = 11);
    BAD(DSD, BSR_ITEM_OPERAND_KIND, BSR_ARG_C, -1, 0, f->pc = NULL);
    BAD(DDS, BSR_ITEM_INNER_MISMATCH, BSR_ARG_A, -1, 5, f->b.cols = 5);
    BAD(DDS, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_A, -1, BSR_BF16, f->b.dtype = BSR_BF16);
    /* rows are the operand's own, also where it is looked at the other way round */
    BAD(DDS, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_C, -1, 4, f->c.rows = 4);
    BAD(DDS, BSR_ITEM_COLS_MISMATCH, BSR_ARG_C, -1, 11, f->c.cols = 11);
    BAD(DDS, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_A, 0, -5, f->b.rows = -5);
    BAD(DDS, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_A, 2, -3, f->b.batch_dims = 1; f->b.batch[0] = -3);
    BAD(DDS, BSR_ITEM_STRIDE_NEGATIVE, BSR_ARG_A, 1, -1, f->b.col_stride = -1);
    BAD(DDS, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_C, 0, 3, f->c.row_stride = 3);
    BAD(DSD, BSR_ITEM_COLS_MISMATCH, BSR_ARG_C, -1, 4, f->trans = BSR_TRANS_C; f->c = bsr_dense_transposed(f->c); f->c.cols = 4);
    BAD(DSD, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_C, -1, 4, f->trans = BSR_TRANS_C; f->c = bsr_dense_transposed(f->c); f->c.rows = 4);
    BAD(SDD, BSR_ITEM_COLS_MISMATCH, BSR_ARG_A, -1, 5, f->trans = BSR_TRANS_A; f->x = bsr_dense_transposed(f->x); f->x.cols = 5);
    BAD(SDD, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_B, -1, 11, f->trans = BSR_TRANS_B; f->y = bsr_dense_transposed(f->y);
        f->y.rows = 11);
    BAD(BACKWARD, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_DB, -1, 4, f->trans = BSR_TRANS_B; f->b = bsr_dense_transposed(f->b);
        f->db = bsr_dense_transposed(f->db); f->db.rows = 4);
    BAD(SDD, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 5, f->y.rows = 5);
    BAD(SDD, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_A, -1, 5, f->x.rows = 5);
    BAD(SDD, BSR_ITEM_COLS_MISMATCH, BSR_ARG_B, -1, 11, f->y.cols = 11);
    BAD(SDD, BSR_ITEM_VALUES_NULL, BSR_ARG_C, -1, 0, f->t.values = NULL);
    BAD(BACKWARD, BSR_ITEM_DTYPE_MISMATCH, ANY, ANY, ANY, f->c.dtype = BSR_F16);
    BAD(BACKWARD, BSR_ITEM_OVERLAP, ANY, ANY, ANY, f->db.data = f->t.values; f->db.rows = 12);
}
static void own_pattern(fixture *f) { /* da's index arrays are copies of a's */
    const size_t index = bsr_dtype_size(f->a.index_dtype);
    f->t.crow_indices = memcpy(bt_alloc(4 * index, index), f->a.crow_indices, 4 * index);
    f->t.col_indices = memcpy(bt_alloc(7 * index, index), f->a.col_indices, 7 * index);
}
TEST(bad_gradients) { /* of an operand that only the other gradient would read, by its own name */
#define BAD_DB(item, index, value, change) BAD(BACKWARD, item, BSR_ARG_B, index, value, f->pt = NULL; change)
#define BAD_DA(item, index, value, change) BAD(BACKWARD, item, BSR_ARG_A, index, value, f->no_db = 1; change)
    BAD(BACKWARD, BSR_ITEM_NONE, ANY, ANY, ANY, f->pt = NULL);
    BAD(BACKWARD, BSR_ITEM_NONE, ANY, ANY, ANY, f->no_db = 1);
    BAD_DB(BSR_ITEM_ROWS_MISMATCH, -1, 13, f->b.rows = 13);
    BAD_DB(BSR_ITEM_COLS_MISMATCH, -1, 4, f->b.cols = 4);
    BAD_DB(BSR_ITEM_SIZE_NEGATIVE, 1, -4, f->b.cols = -4);
    BAD_DB(BSR_ITEM_DTYPE_UNKNOWN, -1, 77, f->b.dtype = 77);
    BAD_DB(BSR_ITEM_DTYPE_MISMATCH, -1, BSR_F16, f->b.dtype = BSR_F16);
    BAD_DB(BSR_ITEM_BATCH_DIMS, -1, 7, f->b.batch_dims = 7);
    BAD(BACKWARD, BSR_ITEM_NONE, ANY, ANY, ANY, f->no_db = 1; own_pattern(f));
    BAD(BACKWARD, BSR_ITEM_OVERLAP, ANY, -1, ANY, f->no_db = 1; own_pattern(f); f->t.values = (void *)f->a.crow_indices);
    BAD_DA(BSR_ITEM_CROW_NULL, -1, 0, f->a.crow_indices = NULL);
    BAD_DA(BSR_ITEM_COL_NULL, -1, 0, f->a.col_indices = NULL);
    BAD_DA(BSR_ITEM_DTYPE_UNKNOWN, -1, 77, f->a.dtype = 77);
    BAD_DA(BSR_ITEM_DTYPE_MISMATCH, -1, BSR_F16, f->a.dtype = BSR_F16);
    BAD_DA(BSR_ITEM_INDEX_DTYPE, -1, BSR_F32, f->a.index_dtype = BSR_F32);
    BAD_DA(BSR_ITEM_BATCH_DIMS, -1, 7, f->a.batch_dims = 7);
}
TEST(matmul_operands) {
    fixture f;
    bsr_exec e = t_exec(0);
    bsr_operand both, none;
    f = fixture_new(DSD), fixture_point(&f);
    both.dense = &f.b, both.sparse = &f.a, none.dense = NULL, none.sparse = NULL;
    CHECK_INT(bsr_matmul(f.ctx, 0, both, bsr_operand_dense(&f.b), bsr_operand_dense(&f.c), &e), BSR_BAD_ARGUMENT),
        CHECK_INT(t_error.item, BSR_ITEM_OPERAND_KIND);
    CHECK_INT(bsr_matmul(f.ctx, 0, bsr_operand_sparse(&f.a), none, bsr_operand_dense(&f.c), &e), BSR_BAD_ARGUMENT),
        CHECK_INT(t_error.operand, BSR_ARG_B);
    CHECK_INT(bsr_matmul(f.ctx, 0, bsr_operand_dense(&f.x), bsr_operand_dense(&f.b), bsr_operand_dense(&f.c), &e), BSR_BAD_SHAPE),
        CHECK_INT(t_error.item, BSR_ITEM_MODE), CHECK_INT(t_error.value, 0);
    CHECK_INT(bsr_matmul(f.ctx, 0, bsr_operand_sparse(&f.a), bsr_operand_sparse(&f.a), bsr_operand_dense(&f.c), &e),
              BSR_BAD_SHAPE),
        CHECK_INT(t_error.value, 2);
    CHECK(t_all_poison(f.c.data));
}
TEST(bad_integers) { /* alpha and beta of integer outputs */
    static const double bad[] = {0.5, 3e9, -3e9, INFINITY, NAN};
    int32_t crow[] = {0, 1}, col[] = {0}, input[1] = {1}, out[1] = {77};
    int8_t value[1] = {3}, b[1] = {4};
    int i;
    for (i = 0; i < 5; i++) {
        bsr_matrix a = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, value, BSR_I8);
        bsr_dense db = bsr_dense_row_major(b, BSR_I8, 1, 1), di = bsr_dense_row_major(input, BSR_I32, 1, 1),
                  dout = bsr_dense_row_major(out, BSR_I32, 1, 1);
        bsr_exec e = t_exec(0);
        bsr_epilogue act;
        bt_case("%g", bad[i]);
        CHECK_INT(bsr_dense_addmm(t_context(0), 1, &di, bad[i], 0, &a, &db, NULL, &dout, &e), BSR_BAD_ARGUMENT);
        CHECK_INT(t_error.item, BSR_ITEM_ALPHA_INTEGER);
        CHECK_INT(bsr_dense_addmm(t_context(0), bad[i], &di, 1, 0, &a, &db, NULL, &dout, &e), BSR_BAD_ARGUMENT);
        memset(&act, 0, sizeof act), act.activation = BSR_ACT_GELU;
        CHECK_INT(bsr_dense_addmm(t_context(0), 0, NULL, 1, 0, &a, &db, &act, &dout, &e), BSR_UNSUPPORTED);
        CHECK_INT(t_error.item, BSR_ITEM_ACTIVATION_DTYPE);
        CHECK_INT(out[0], 77);
    }
}
TEST(bad_scatter) {
    BAD(SCATTER, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OTHERS, -1, 0, f->pb = NULL);
    BAD(SCATTER, BSR_ITEM_FORMAT, BSR_ARG_INDICES, -1, 4, f->indices.format = 4);
    BAD(SCATTER, BSR_ITEM_FORMAT, BSR_ARG_INDICES, -1, 0, f->indices.format = 0);
    BAD(SCATTER, BSR_ITEM_RESERVED, BSR_ARG_INDICES, -1, 3, f->indices.reserved = 3);
    BAD(SCATTER, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, 2, f->indices.split_n = 2);
    BAD(SCATTER, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, -1, f->indices.split_n = -1);
    BAD(SCATTER, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_INDICES, ANY, ANY, f->indices.q_indices = NULL);
    BAD(SCATTER, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_INDICES, ANY, ANY, f->indices.p_indices = NULL);
    BAD(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, 2, f->indices.c_count = 2);
    BAD(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, 2, f->indices.q_count = 2);
    BAD(SCATTER, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, -2, f->indices.q_count = -2);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 1, 4, f->pi[1] = 4);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 2, -1, f->pi[2] = -1);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 2, 50, f->qi[2] = 50);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 0, 1, f->qi[0] = 1);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 1, 30, f->ri[1] = 30);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 1, 5, f->ri[1] = 5);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 1, INT64_MIN, f->ri[1] = INT64_MIN);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 2, 4, f->ci[2] = 4);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 2, 1, f->ci[2] = 1);
    BAD(SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 0, -1, f->ci[0] = -1);
    BAD(SCATTER, BSR_ITEM_INDICES_DUPLICATE, BSR_ARG_INDICES, 1, ANY, f->ri[1] = 0);
    BAD(SCATTER, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_OTHERS, -1, BSR_BF16, f->b.dtype = BSR_BF16);
    BAD(SCATTER, BSR_ITEM_COLS_MISMATCH, BSR_ARG_ACCUMULATORS, -1, 4, f->c.cols = 4);
    BAD(SCATTER, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_ACCUMULATORS, 0, 5, f->c.rows = 5);
    BAD(SCATTER, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_OTHERS, 0, 11, f->b.rows = 11);
    BAD(SCATTER, BSR_ITEM_BATCH_DIMS, BSR_ARG_BLOCKS, -1, 2, f->blocks.batch_dims = 2; f->blocks.batch[1] = 1);
    BAD(SCATTER, BSR_ITEM_OVERLAP, BSR_ARG_ACCUMULATORS, -1, BSR_ARG_OTHERS, f->b.data = f->c.data; f->b.row_stride = 0);
    BAD(DENSE_SCATTER, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 1, 7, f->pi[1] = 7);
    BAD(DENSE_SCATTER, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 9, f->b.rows = 9);
    BAD(INDICES, BSR_ITEM_CAPACITY, BSR_ARG_INDICES, ANY, ANY, f->indices.q_count = 6);
    BAD(INDICES, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, 3, f->indices.split_n = 3);
    BAD(INDICES, BSR_ITEM_FORMAT, BSR_ARG_INDICES, -1, 9, f->indices.format = 9);
    BAD(INDICES, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_B, 1, -5, f->n = -5);
}
TEST(bad_gated) {
    BAD(GATED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MAT1, -1, 0, f->px = NULL);
    BAD(GATED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_GATE, -1, 0, f->py = NULL);
    BAD(GATED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_UP, -1, 0, f->pup = NULL);
    BAD(GATED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pt = NULL);
    BAD(GATED, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; f->pgate_out = NULL);
    BAD(GATED, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; f->pup_out = NULL);
    BAD(GATED, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 5, f->act = 5);
    BAD(GATED, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 1000, f->act = 1000);
    BAD(GATED, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, -1, f->act = -1);
    WANTED(GATED, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MAT1, 4, 6, f->x.rows = 4);
    WANTED(GATED, BSR_ITEM_COLS_MISMATCH, BSR_ARG_GATE, 9, 12, f->y.cols = 9);
    WANTED(GATED, BSR_ITEM_COLS_MISMATCH, BSR_ARG_UP, 9, 12, f->up.cols = 9);
    WANTED(GATED, BSR_ITEM_INNER_MISMATCH, BSR_ARG_GATE, 6, 7, f->y.rows = 6);
    WANTED(GATED, BSR_ITEM_INNER_MISMATCH, BSR_ARG_UP, 6, 7, f->up.rows = 6);
    WANTED(GATED, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_GATE, BSR_F16, BSR_F32, f->y.dtype = BSR_F16);
    WANTED(GATED, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_UP, BSR_F16, BSR_F32, f->up.dtype = BSR_F16);
    WANTED(GATED, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_GATE_OUT, BSR_BF16, BSR_F32, f->gate_out.dtype = BSR_BF16);
    WANTED(GATED, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_UP_OUT, BSR_BF16, BSR_F32, f->up_out.dtype = BSR_BF16);
    BAD(GATED, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_OUT, -1, BSR_I32, f->t.dtype = BSR_I32);
    BAD(GATED, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_GATE_OUT, ANY, ANY, f->gate_out.block_rows = 3);
    BAD(GATED, BSR_ITEM_NNZ_MISMATCH, BSR_ARG_UP_OUT, -1, 6, f->up_out.nnz = 6);
    BAD(GATED, BSR_ITEM_BATCH_DIMS, ANY, ANY, ANY, f->up.batch_dims = 1; f->up.batch[0] = 2);
    BAD(GATED, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_UP, f->up.data = f->t.values);
    BAD(GATED, BSR_ITEM_OVERLAP, BSR_ARG_UP_OUT, -1, BSR_ARG_OUT, f->up_out.values = f->t.values);
    BAD(GATED, BSR_ITEM_OVERLAP, BSR_ARG_UP_OUT, -1, BSR_ARG_GATE_OUT, f->up_out.values = f->gate_out.values);
    BAD(GATED, BSR_ITEM_COL_RANGE, BSR_ARG_OUT, 3, 4, {
        int32_t *to_ = (int32_t *)bt_alloc(28, 4);
        memcpy(to_, f->t.col_indices, 28);
        to_[3] = 4;
        f->t.col_indices = to_;
    });
}
TEST(bad_routings) {
    static const int calls[] = {GATHER, SCATTER_ROWS, DOTS, TOPOLOGY, MOE_INDEX, ROUTE};
    size_t i;
    for (i = 0; i < BT_COUNT(calls); i++) {
        const int call = calls[i];
        BAD(call, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_ROUTING, -1, 0, f->pr = NULL);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 0, -1, f->r.tokens = -1);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 1, INT64_C(1) << 31, f->r.slots = INT64_C(1) << 31);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 2, -3, f->r.experts = -3);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 3, 11, f->r.rows = 11);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 4, 0, f->r.block_rows = 0);
        BAD(call, BSR_ITEM_MOE_FIELD, BSR_ARG_ROUTING, 4, (1 << 20) + 1, f->r.block_rows = (1 << 20) + 1);
        BAD(call, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_ROUTING, -1, INT64_C(1) << 40, f->r.tokens = f->r.slots = 1 << 20);
    }
    BAD(GATHER, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_ROUTING, -1, 0, f->r.slot_of = NULL);
    BAD(GATHER, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_ROUTING, -1, 0, f->r.row_of = NULL);
    BAD(GATHER, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; f->pweights = NULL; f->r.counts = f->r.offsets = NULL);
    BAD(GATHER, BSR_ITEM_MOE_SLOT_OF, BSR_ARG_ROUTING, 3, 8, f->r.slot_of[3] = 8);
    BAD(GATHER, BSR_ITEM_MOE_SLOT_OF, BSR_ARG_ROUTING, 3, -2, f->r.slot_of[3] = -2);
    BAD(GATHER, BSR_ITEM_MOE_ROW_OF, BSR_ARG_ROUTING, 7, 10, f->r.row_of[7] = 10);
    BAD(GATHER, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_X, f->x.data = f->out.data);
    BAD(GATHER, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_ROUTING, f->r.slot_of = (int32_t *)f->out.data);
    BAD(GATHER, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_X, -1, BSR_I32, f->x.dtype = BSR_I32);
    BAD(GATHER, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_WEIGHTS, -1, BSR_I8, f->weights.dtype = BSR_I8);
    BAD(GATHER, BSR_ITEM_BATCH_DIMS, BSR_ARG_X, -1, 1, f->x.batch_dims = 1; f->x.batch[0] = 1);
    WANTED(GATHER, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_X, 3, 4, f->x.rows = 3);
    WANTED(GATHER, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, 9, 10, f->out.rows = 9);
    WANTED(GATHER, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, 6, 7, f->out.cols = 6);
    WANTED(GATHER, BSR_ITEM_COLS_MISMATCH, BSR_ARG_WEIGHTS, 1, 2, f->weights.cols = 1);
    BAD(SCATTER_ROWS, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0, f->pinput = NULL);
    BAD(SCATTER_ROWS, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; f->pinput = NULL; f->beta = 0; f->pweights = NULL);
    BAD(SCATTER_ROWS, BSR_ITEM_MOE_ROW_OF, BSR_ARG_ROUTING, 0, -2, f->r.row_of[0] = -2);
    BAD(SCATTER_ROWS, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_WEIGHTS, f->weights.data = f->out.data);
    BAD(SCATTER_ROWS, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; t_fill(&f->out, FILL_SIGNED); f->pinput = &f->out);
    WANTED(SCATTER_ROWS, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_X, 4, 10, f->x.rows = 4);
    WANTED(SCATTER_ROWS, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_INPUT, 3, 4, f->input.rows = 3);
    BAD(DOTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_DY, -1, 0, f->py = NULL);
    WANTED(DOTS, BSR_ITEM_COLS_MISMATCH, BSR_ARG_DY, 6, 7, f->y.cols = 6);
    WANTED(DOTS, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, 1, 2, f->out.cols = 1);
    BAD(TOPOLOGY, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0, f->pm = NULL);
    BAD(TOPOLOGY, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, 10, f->m.nnz = 9);
    BAD(TOPOLOGY, BSR_ITEM_MOE_OFFSETS, BSR_ARG_ROUTING, 1, 7, f->r.offsets[1] = 7);
    BAD(TOPOLOGY, BSR_ITEM_MOE_OFFSETS, BSR_ARG_ROUTING, 2, 4, f->r.offsets[2] = 4);
    BAD(TOPOLOGY, BSR_ITEM_MOE_OFFSETS, BSR_ARG_ROUTING, 3, 12, f->r.offsets[3] = 12);
    BAD(TOPOLOGY, BSR_ITEM_MOE_OFFSETS, BSR_ARG_ROUTING, 0, 2, f->r.offsets[0] = 2);
    WANTED(TOPOLOGY, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, 8, 10, f->m.rows = 8);
    WANTED(TOPOLOGY, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MATRIX, 12, 18, f->m.cols = 12);
    WANTED(TOPOLOGY, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_MATRIX, 1, 2, f->m.block_rows = 1);
    BAD(TOPOLOGY, BSR_ITEM_OVERLAP, BSR_ARG_MATRIX, -1, BSR_ARG_ROUTING, f->r.offsets = (int32_t *)f->m.crow_indices;
        memset(f->r.offsets, 0, 16); f->outputs = 0);
    BAD(MOE_INDEX, BSR_ITEM_NNZ_MISMATCH, BSR_ARG_MATRIX, -1, 9, f->m.nnz = 9);
    BAD(MOE_INDEX, BSR_ITEM_BUFFER_SIZE, BSR_ARG_BUFFER, -1, ANY, f->bytes--);
    BAD(MOE_INDEX, BSR_ITEM_OVERLAP, BSR_ARG_BUFFER, -1, BSR_ARG_MATRIX, f->m.col_indices = f->buffer);
    BAD(MOE_INDEX, BSR_ITEM_OVERLAP, BSR_ARG_BUFFER, -1, BSR_ARG_MATRIX, f->m.crow_indices = f->buffer);
    BAD(ROUTE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_EXPERTS, -1, BSR_F32, f->source.dtype = BSR_F32);
#ifndef GM_BACKEND /* on the CPU alone: a GPU tells it in the routing's word (gpu_experts.cpp) */
    BAD(ROUTE, BSR_ITEM_MOE_EXPERT, BSR_ARG_EXPERTS, 5, 3, t_set(&f->source, 0, 2, 1, 3));
    BAD(ROUTE, BSR_ITEM_MOE_CAPACITY, BSR_ARG_ROUTING, 7, 10, f->r.rows = 8; f->r.status = NULL; f->outputs = 4);
#endif
    BAD(ROUTE, BSR_ITEM_NONE, ANY, ANY, ANY, f->outputs = 0; f->r.status = NULL);
    BAD(ROUTE, BSR_ITEM_OVERLAP, BSR_ARG_ROUTING, -1, BSR_ARG_ROUTING, f->r.counts = f->r.row_of);
    BAD(ROUTE, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_ROUTING, -1, 0, f->r.counts = NULL);
    BAD(ROUTE, BSR_ITEM_ALIGNMENT, BSR_ARG_ROUTING, -1, 8, f->r.status = (uint64_t *)(void *)((char *)f->r.status + 4));
}
TEST(bad_sampled) {
    BAD(SAMPLED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MAT1, -1, 0, f->px = NULL);
    BAD(SAMPLED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MAT2, -1, 0, f->py = NULL);
    BAD(SAMPLED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pt = NULL);
    BAD(SAMPLED, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0, f->pp = NULL);
    BAD(SAMPLED, BSR_ITEM_BETA_BOOL, BSR_ARG_INPUT, -1, 0, f->s.dtype = BSR_BOOL);
    BAD(SAMPLED, BSR_ITEM_BETA_BOOL, BSR_ARG_INPUT, -1, 0, f->s.values = NULL);
    BAD(SAMPLED, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MAT1, -1, 4, f->x.rows = 4);
    BAD(SAMPLED, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MAT2, -1, 9, f->y.cols = 9);
    BAD(SAMPLED, BSR_ITEM_INNER_MISMATCH, BSR_ARG_MAT2, -1, 6, f->y.rows = 6);
    BAD(SAMPLED, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_MAT2, -1, BSR_F16, f->y.dtype = BSR_F16);
    BAD(SAMPLED, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, -1, BSR_I8, f->t.dtype = BSR_I8);
    BAD(
        SAMPLED, BSR_ITEM_NNZ_MISMATCH, BSR_ARG_INPUT, -1, ANY, f->s.nnz = 6; f->s.crow_indices = bt_alloc(16, 4);
        memset(f->s.crow_indices, 0, 12); ((int32_t *)f->s.crow_indices)[2] = 3; ((int32_t *)f->s.crow_indices)[3] = 6;
        f->s.col_indices = bt_alloc(24, 4); {
            int i_;
            for (i_ = 0; i_ < 6; i_++) ((int32_t *)f->s.col_indices)[i_] = i_ % 3;
        });
    BAD(SAMPLED, BSR_ITEM_PATTERN_MISMATCH, BSR_ARG_INPUT, ANY, ANY, {
        int32_t *to_ = (int32_t *)bt_alloc(28, 4);
        int i_;
        for (i_ = 0; i_ < 7; i_++) to_[i_] = (int32_t)((t_col(&f->s, 0, i_) + 1) % 4);
        f->s.col_indices = to_;
    });
    BAD(SAMPLED, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_MAT1, f->x.data = f->t.values);
    BAD(SAMPLED, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, ANY, f->t.values = f->t.col_indices; f->t.value_strides[0] = 0);
    BAD(SAMPLED, BSR_ITEM_BATCH_DIMS, BSR_ARG_OUT, -1, 0, f->x.batch_dims = 1; f->x.batch[0] = 2);
    BAD(SAMPLED, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 6, 5, f->t.value_strides[0] = 5; f->t.value_strides[1] = 3;
        f->t.value_strides[2] = 1);
    BAD(SAMPLED, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 8, 0, f->t.value_strides[0] = 6; f->t.value_strides[1] = 3);
    BAD(SAMPLED, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_OUT, 2, 5, f->x.batch_dims = f->t.batch_dims = f->s.batch_dims = 1;
        f->x.batch[0] = f->t.batch[0] = f->s.batch[0] = 2; f->t.values_batch_stride[0] = 5);
}
TEST(bad_rows) {
    BAD(SOFTMAX, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_X, -1, 0, f->pa = NULL);
    BAD(SOFTMAX, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_Y, -1, 0, f->pt = NULL);
    BAD(SOFTMAX, BSR_ITEM_SCALE, ANY, ANY, ANY, f->scale = NAN);
    BAD(SOFTMAX, BSR_ITEM_SCALE, ANY, ANY, ANY, f->scale = INFINITY);
    BAD(SOFTMAX, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_X, -1, BSR_I8, f->a.dtype = BSR_I8);
    BAD(SOFTMAX, BSR_ITEM_DTYPE_OUT, BSR_ARG_Y, -1, BSR_BF16, f->t.dtype = BSR_BF16);
    BAD(SOFTMAX, BSR_ITEM_MASK_MODE, ANY, ANY, 2, f->softmax.key_padding_mode = 2);
    BAD(SOFTMAX, BSR_ITEM_COLS_MISMATCH, BSR_ARG_KEY_PADDING, -1, 11, f->key.cols = 11);
    BAD(SOFTMAX, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_REL_BIAS, -1, 5, f->rel.rows = 5);
    BAD(SOFTMAX, BSR_ITEM_PATTERN_MISMATCH, BSR_ARG_Y, ANY, ANY, {
        int32_t *to_ = (int32_t *)bt_alloc(28, 4);
        int i_;
        for (i_ = 0; i_ < 7; i_++) to_[i_] = (int32_t)((t_col(&f->t, 0, i_) + 1) % 4);
        f->t.col_indices = to_;
    });
    BAD(SOFTMAX, BSR_ITEM_OVERLAP, BSR_ARG_Y, -1, BSR_ARG_REL_BIAS, f->rel.data = f->t.values; f->rel.row_stride = 3);
    BAD(SOFTMAX, BSR_ITEM_VALUES_NULL, BSR_ARG_X, -1, 0, f->a.values = NULL);
    BAD(SOFTMAX_BACKWARD, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_DY, -1, 0, f->pp = NULL);
    BAD(SOFTMAX_BACKWARD, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_DX, -1, 0, f->pt = NULL);
    BAD(SOFTMAX_BACKWARD, BSR_ITEM_SCALE, ANY, ANY, ANY, f->scale = NAN);
}
TEST(bad_attention) {
    fixture g;
    bsr_exec sums;
    bt_case("score functions compute in f32");
    sums = t_exec(BSR_EXEC_ACCUMULATE_F64), g = fixture_new(ATTENTION);
    fixture_point(&g), fit_call(&g, ATTENTION), g.attention.score_function = BSR_SCORE_tf_alibi;
    CHECK_INT(run(&g, ATTENTION, &sums), BSR_UNSUPPORTED), CHECK_INT(t_error.item, BSR_ITEM_ACTIVATION_DTYPE);
    check_poison(&g, ATTENTION);
    BAD(ATTENTION, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_Q, -1, 0, f->px = NULL);
    BAD(ATTENTION, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_V, -1, 0, f->pz = NULL);
    BAD(ATTENTION, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MASK, -1, 0, f->pa = NULL);
    BAD(ATTENTION, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(ATTENTION, BSR_ITEM_INNER_MISMATCH, BSR_ARG_K, -1, 6, f->y.cols = 6);
    BAD(ATTENTION, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_V, -1, 11, f->z.rows = 11);
    BAD(ATTENTION, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, 4, f->out.cols = 4);
    BAD(ATTENTION, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 5, f->out.rows = 5);
    BAD(ATTENTION, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_LSE, -1, 5, f->lse.rows = 5);
    BAD(ATTENTION, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_K, -1, BSR_F16, f->y.dtype = BSR_F16);
    BAD(ATTENTION, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_Q, -1, BSR_I8, f->x.dtype = BSR_I8);
    BAD(ATTENTION, BSR_ITEM_DROPOUT, ANY, ANY, ANY, f->attention.dropout_p = 1.5);
    BAD(ATTENTION, BSR_ITEM_DROPOUT, ANY, ANY, ANY, f->attention.dropout_p = NAN);
    BAD(ATTENTION, BSR_ITEM_SCALE, ANY, ANY, ANY, f->scale = INFINITY);
    BAD(ATTENTION, BSR_ITEM_RESERVED, ANY, ANY, ANY, f->attention.flags = 64);
    BAD(ATTENTION, BSR_ITEM_RESERVED, ANY, ANY, ANY, f->attention.reserved[1] = 64);
    BAD(ATTENTION, BSR_ITEM_FLAGS_CONFLICT, ANY, ANY, ANY,
        f->attention.flags = BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_MASK_ADDITIVE);
    BAD(ATTENTION, BSR_ITEM_USER_FUNCTION, ANY, ANY, 7, f->attention.score_function = 7);
    BAD(ATTENTION, BSR_ITEM_USER_FUNCTION, ANY, ANY, 1003, f->attention.mask_function = 1003);
    BAD(ATTENTION, BSR_ITEM_MASK_MODE, ANY, ANY, -1, f->attention.key_padding_mode = -1);
    BAD(ATTENTION, BSR_ITEM_VALUES_NULL, BSR_ARG_MASK, -1, 0, f->attention.flags = BSR_ATTENTION_MASK_BOOLEAN;
        f->a.values = NULL);
    BAD(ATTENTION, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_Q, f->x.data = f->out.data; f->x.row_stride = 3);
    BAD(ATTENTION, BSR_ITEM_OVERLAP, BSR_ARG_LSE, -1, BSR_ARG_OUT, f->lse.data = f->out.data);
    BAD(ATTENTION, BSR_ITEM_HEADS, ANY, ANY, ANY,
        f->x.batch_dims = f->y.batch_dims = f->z.batch_dims = f->out.batch_dims = f->lse.batch_dims = 1;
        f->x.batch[0] = 3; f->out.batch[0] = f->lse.batch[0] = 3; f->y.batch[0] = f->z.batch[0] = 2;
        f->x.rows = f->out.rows = f->lse.rows = 6; f->out.batch_stride[0] = 30; f->lse.batch_stride[0] = 6);
}
TEST(bad_attention_backward) { /* more in test_attention_backward.c */
    BAD(GRADIENTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_Q, -1, 0, f->px = NULL);
    BAD(GRADIENTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MASK, -1, 0, f->pa = NULL);
    BAD(GRADIENTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(GRADIENTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_LSE, -1, 0, f->plse = NULL);
    BAD(GRADIENTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_D_OUT, -1, 0, f->pd_out = NULL);
    BAD(GRADIENTS, BSR_ITEM_INNER_MISMATCH, BSR_ARG_K, -1, 6, f->y.cols = 6);
    BAD(GRADIENTS, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_D_OUT, -1, 5, f->d_out.rows = 5);
    BAD(GRADIENTS, BSR_ITEM_COLS_MISMATCH, BSR_ARG_DK, -1, 6, f->dk.cols = 6);
    BAD(GRADIENTS, BSR_ITEM_OVERLAP, BSR_ARG_DV, ANY, ANY, f->dv.data = f->dk.data);
}
TEST(bad_merges) {
    BAD(MERGE, BSR_ITEM_TERM_COUNT, BSR_ARG_X, -1, 0, f->count = 0);
    BAD(MERGE, BSR_ITEM_TERM_COUNT, BSR_ARG_X, -1, 29, f->count = 29);
    BAD(MERGE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_X, -1, 0, f->ppartials = NULL);
    BAD(MERGE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_Y, -1, 0, f->pnorms = NULL);
    BAD(MERGE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(MERGE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_Y, -1, 5, f->norms[1].rows = 5);
    BAD(MERGE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_X, -1, 4, f->partial[1].cols = 4);
    BAD(MERGE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_LSE, -1, 2, f->lse.cols = 2; f->lse.rows = 6; f->lse.row_stride = 2);
    BAD(MERGE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_X, -1, BSR_BF16, f->partial[1].dtype = BSR_BF16);
    BAD(MERGE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_OUT, -1, BSR_F16, f->out.dtype = BSR_F16);
    BAD(MERGE, BSR_ITEM_OVERLAP, BSR_ARG_OUT, ANY, ANY, f->out = f->partial[1]; f->out.data = (float *)f->out.data + 5);
    BAD(MERGE, BSR_ITEM_BATCH_EXTRA, BSR_ARG_Y, 0, 2, f->norms[0].batch_dims = 1; f->norms[0].batch[0] = 2);
}
TEST(bad_maps) {
    BAD(CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_A, -1, 0, f->pa = NULL);
    BAD(CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_B, -1, 0, f->pb = NULL);
    BAD(CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_C, -1, 0, f->pp = NULL);
    BAD(CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pc = NULL);
    BAD(CHAIN, BSR_ITEM_WORKSPACE, BSR_ARG_EXEC, -1, ANY, f->pout = NULL);
    BAD(CHAIN, BSR_ITEM_RESERVED, BSR_ARG_NONE, -1, ANY, f->trans = BSR_TRANS_B);
    BAD(CHAIN, BSR_ITEM_DTYPE_OUT, BSR_ARG_MIDDLE, -1, BSR_F64, f->out.dtype = BSR_F64);
    BAD(CHAIN, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_MIDDLE, -1, BSR_F32, f->s.dtype = BSR_F16);
    BAD(CHAIN, BSR_ITEM_INNER_MISMATCH, BSR_ARG_B, -1, 11, f->b.rows = 11);
    BAD(CHAIN, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MIDDLE, -1, 5, f->out.rows = 5);
    BAD(CHAIN, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MIDDLE, -1, 4, f->out.cols = 4);
    BAD(CHAIN, BSR_ITEM_INNER_MISMATCH, BSR_ARG_MIDDLE, -1, 6, f->s.rows = 4);
    BAD(CHAIN, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 11, f->c.rows = 11);
    BAD(CHAIN, BSR_ITEM_COLS_MISMATCH, BSR_ARG_BIAS, -1, 3, f->bias.cols = 3);
    BAD(CHAIN, BSR_ITEM_BATCH_DIMS, BSR_ARG_MIDDLE, -1, 0, f->b.batch_dims = 1; f->b.batch[0] = 2);
    BAD(CHAIN, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0, f->epilogue.beta_ptr = &f->scale);
    BAD(CHAIN, BSR_ITEM_ACTIVATION, BSR_ARG_NONE, -1, 77, f->epilogue.activation = 77);
    BAD(CHAIN, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE, -1, BSR_ARG_BIAS, f->bias.data = f->out.data);
    BAD(CHAIN, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_MIDDLE, f->c.data = f->out.data; f->written[1] = f->out.data);
    BAD(CHAIN, BSR_ITEM_DATA_NULL, BSR_ARG_MIDDLE, -1, 0, f->out.data = NULL);
    BAD(CHAIN, BSR_ITEM_COL_RANGE, BSR_ARG_A, 0, 4, ((int32_t *)f->s.col_indices)[0] = 4); /* the first that has them */
    BAD(SAMPLED_CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MIDDLE, -1, 0, f->pt = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MAT1, -1, 0, f->px = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_C, -1, 0, f->pz = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_WORKSPACE, BSR_ARG_EXEC, -1, ANY, f->t.values = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_VALUES_NULL, BSR_ARG_PRODUCT, -1, 0, f->s.values = NULL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_RESERVED, BSR_ARG_NONE, -1, BSR_TRANS_B, f->trans = BSR_TRANS_B);
    BAD(SAMPLED_CHAIN, BSR_ITEM_MAP_COMBINE, BSR_ARG_OPTIONS, -1, BSR_COMBINE_MUL, f->maps.combine = BSR_COMBINE_MUL);
    BAD(SAMPLED_CHAIN, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 99, f->maps.function = 99);
    BAD(SAMPLED_CHAIN, BSR_ITEM_DROPOUT, BSR_ARG_OPTIONS, -1, 0, f->maps.dropout_p = 2);
    BAD(SAMPLED_CHAIN, BSR_ITEM_DTYPE_OUT, BSR_ARG_PRODUCT, -1, BSR_F64, f->s.dtype = BSR_F64);
    BAD(SAMPLED_CHAIN, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_C, -1, BSR_F32, f->t.dtype = BSR_F16);
    BAD(SAMPLED_CHAIN, BSR_ITEM_NNZ_MISMATCH, BSR_ARG_PRODUCT, -1, 6, f->s.nnz = 6);
    BAD(SAMPLED_CHAIN, BSR_ITEM_INNER_MISMATCH, BSR_ARG_MAT2, -1, 6, f->y.rows = 6);
    BAD(SAMPLED_CHAIN, BSR_ITEM_INNER_MISMATCH, BSR_ARG_C, -1, 11, f->z.rows = 11);
    BAD(SAMPLED_CHAIN, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 6, f->trans = BSR_TRANS_A; f->z.rows = 6);
    BAD(SAMPLED_CHAIN, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE, -1, BSR_ARG_PRODUCT, f->t.values = f->s.values);
    BAD(SAMPLED_CHAIN, BSR_ITEM_OVERLAP, BSR_ARG_MIDDLE, -1, BSR_ARG_C, f->z.data = f->t.values; f->t.dtype = BSR_F32);
    BAD(SAMPLED_CHAIN, BSR_ITEM_OVERLAP, BSR_ARG_PRODUCT, -1, BSR_ARG_BIAS, f->bias.data = f->s.values);
    BAD(SAMPLED_CHAIN, BSR_ITEM_COL_RANGE, BSR_ARG_PRODUCT, 0, 4, ((int32_t *)f->s.col_indices)[0] = 4);
    BAD(MAP, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_X, -1, 0, f->pa = NULL);
    BAD(MAP, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pt = NULL);
    BAD(MAP, BSR_ITEM_MAP_COMBINE, BSR_ARG_OPTIONS, -1, 8, f->maps.combine = 8);
    BAD(MAP, BSR_ITEM_MAP_COMBINE, BSR_ARG_OPTIONS, -1, -1, f->maps.combine = -1);
    BAD(MAP, BSR_ITEM_MAP_OPERAND, BSR_ARG_Y, -1, 0, f->maps.combine = BSR_COMBINE_NONE);
    BAD(MAP, BSR_ITEM_OPERAND_KIND, BSR_ARG_Y, -1, 0, f->map_dense = &f->rel);
    BAD(MAP, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 5, f->maps.function = 5);
    BAD(MAP, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 99, f->maps.function = 99);
    BAD(MAP, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, 112, f->maps.function = 112);
    BAD(MAP, BSR_ITEM_ACTIVATION, BSR_ARG_OPTIONS, -1, -1, f->maps.function = -1);
    BAD(MAP, BSR_ITEM_USER_FUNCTION, BSR_ARG_OPTIONS, -1, 1002, f->maps.function = 1002);
    BAD(MAP, BSR_ITEM_MAP_BOUNDS, BSR_ARG_OPTIONS, -1, 0, f->maps.function = BSR_MAP_CLAMP; f->maps.low = 1);
    BAD(MAP, BSR_ITEM_MAP_BOUNDS, BSR_ARG_OPTIONS, -1, 0, f->maps.function = BSR_MAP_CLAMP; f->maps.high = NAN);
    BAD(MAP, BSR_ITEM_DROPOUT, BSR_ARG_OPTIONS, -1, 0, f->maps.dropout_p = 1.5);
    BAD(MAP, BSR_ITEM_DROPOUT, BSR_ARG_OPTIONS, -1, 0, f->maps.dropout_p = NAN);
    BAD(MAP, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, 2, f->maps.flags = 2);
    BAD(MAP, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, 3, f->maps.reserved = 3);
    BAD(MAP, BSR_ITEM_MAP_GRADIENT, BSR_ARG_OPTIONS, -1, BSR_EPILOGUE_tf_square, f->maps.function = BSR_EPILOGUE_tf_square;
        f->maps.combine = BSR_COMBINE_GRADIENT);
    BAD(MAP, BSR_ITEM_ACTIVATION_DTYPE, BSR_ARG_OPTIONS, -1, BSR_EPILOGUE_tf_square, f->maps.function = BSR_EPILOGUE_tf_square;
        f->s.dtype = BSR_I32);
    BAD(MAP, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_X, -1, 77, f->a.dtype = 77);
    BAD(MAP, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_Y, -1, 77, f->s.dtype = 77);
    BAD(MAP, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_Y, -1, 77, f->s.dtype = 77; f->beta = 0);
    BAD(MAP, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_OUT, -1, 12, f->t.dtype = 12);
    BAD(MAP, BSR_ITEM_VALUES_NULL, BSR_ARG_X, -1, 0, f->a.values = NULL);
    BAD(MAP, BSR_ITEM_VALUES_NULL, BSR_ARG_Y, -1, 0, f->s.values = NULL);
    BAD(MAP, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 4, f->t.rows = 4);
    BAD(MAP, BSR_ITEM_NNZ_MISMATCH, BSR_ARG_Y, -1, 6, f->s.nnz = 6);
    BAD(MAP, BSR_ITEM_COLS_MISMATCH, BSR_ARG_Y, -1, 11, f->pp = NULL; f->map_dense = &f->key; f->key.cols = 11);
    BAD(MAP, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_Y, -1, 5, f->pp = NULL; f->map_dense = &f->rel; f->rel.rows = 5);
    BAD(MAP, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_Y, f->s.values = (char *)f->t.values + 4);
    BAD(MAP, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_X, f->a.values = f->t.values; f->a.dtype = BSR_F16);
    BAD(MAP, BSR_ITEM_PATTERN_MISMATCH, BSR_ARG_Y, ANY, ANY, {
        int32_t *to_ = (int32_t *)bt_alloc(28, 4);
        int i_;
        for (i_ = 0; i_ < 7; i_++) to_[i_] = (int32_t)((t_col(&f->s, 0, i_) + 1) % 4);
        f->s.col_indices = to_;
    });
    BAD(REDUCE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_X, -1, 0, f->pa = NULL);
    BAD(REDUCE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(REDUCE, BSR_ITEM_REDUCE_KIND, BSR_ARG_NONE, -1, 0, f->kind = 0);
    BAD(REDUCE, BSR_ITEM_REDUCE_KIND, BSR_ARG_NONE, -1, 10, f->kind = 10);
    BAD(REDUCE, BSR_ITEM_REDUCE_OVER, BSR_ARG_NONE, -1, 0, f->over = 0);
    BAD(REDUCE, BSR_ITEM_REDUCE_OVER, BSR_ARG_NONE, -1, 5, f->over = 5);
    BAD(REDUCE, BSR_ITEM_VALUES_NULL, BSR_ARG_X, -1, 0, f->a.values = NULL);
    BAD(REDUCE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 5, f->out.rows = 5);
    BAD(REDUCE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 6, f->over = BSR_OVER_COLS);
    BAD(REDUCE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 6, f->over = BSR_OVER_BLOCKS);
    BAD(REDUCE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 6, f->over = BSR_OVER_ALL);
    BAD(REDUCE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, 2, f->out.cols = 2; f->out.row_stride = 2; f->out.data = f->a.values;
        f->a.values = bt_alloc(4 * 42, 4));
    BAD(REDUCE, BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_ARG_OUT, -1, BSR_I8, f->out.dtype = BSR_I8);
    BAD(REDUCE, BSR_ITEM_DTYPE_UNKNOWN, BSR_ARG_X, -1, 77, f->a.dtype = 77);
    BAD(REDUCE, BSR_ITEM_BATCH_DIMS, BSR_ARG_OUT, -1, ANY, f->a.batch_dims = 1; f->a.batch[0] = 2);
    BAD(REDUCE, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, BSR_ARG_X, f->out.data = f->a.values);
}
TEST(bad_conversions) {
    BAD(TO_DENSE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OUT, -1, 0, f->pout = NULL);
    BAD(TO_DENSE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, 4, f->out.rows = 4);
    BAD(TO_DENSE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, 13, f->out.cols = 13; f->out.row_stride = 13; f->out.rows = 5);
    BAD(TO_DENSE, BSR_ITEM_OVERLAP, BSR_ARG_OUT, -1, ANY, f->a.values = f->out.data);
    BAD(FROM_DENSE, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0, f->pm = NULL);
    BAD(FROM_DENSE, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, -1, 8, f->m.rows = 8);
    BAD(FROM_DENSE, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MATRIX, -1, 9, f->m.cols = 9);
    BAD(FROM_DENSE, BSR_ITEM_BLOCK_SIZE, BSR_ARG_MATRIX, 1, 0, f->m.block_cols = 0);
    BAD(FROM_DENSE, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, 12, f->m.nnz = 11);
    BAD(FROM_DENSE, BSR_ITEM_CROW_NULL, BSR_ARG_MATRIX, -1, 0, f->m.crow_indices = NULL);
    BAD(FROM_DENSE, BSR_ITEM_COL_NULL, BSR_ARG_MATRIX, -1, 0, f->m.col_indices = NULL);
    BAD(FROM_DENSE, BSR_ITEM_INDEX_DTYPE, BSR_ARG_MATRIX, -1, BSR_I8, f->m.index_dtype = BSR_I8);
    BAD(FROM_CSR, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, -1, 6, f->rows = 9; f->rows = 2);
    BAD(FROM_CSR, BSR_ITEM_INDEX_DTYPE, BSR_ARG_SOURCE, -1, BSR_F32, f->index_dtype = BSR_F32);
    BAD(FROM_COO, BSR_ITEM_COL_RANGE, BSR_ARG_SOURCE, 0, 12, ((int32_t *)f->second)[0] = 12; f->rows = 20; f->m.rows = 20;
        f->m.block_rows = 10);
    BAD(FROM_CSR, BSR_ITEM_SIZE_NEGATIVE, ANY, ANY, -6, f->rows = -6);
    BAD(RANDOM, BSR_ITEM_SPARSITY, BSR_ARG_OPTIONS, -1, 0, f->sparsity = 1.01);
    BAD(RANDOM, BSR_ITEM_SPARSITY, BSR_ARG_OPTIONS, -1, 0, f->sparsity = NAN);
    BAD(PRUNE, BSR_ITEM_SPARSITY, BSR_ARG_OPTIONS, -1, 0, f->sparsity = -0.1);
    BAD(PRUNE, BSR_ITEM_NORM, BSR_ARG_OPTIONS, -1, 3, f->norm = 3);
    BAD(PRUNE, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, 6, f->m.nnz = 5);
    BAD(PRUNE_SPARSE, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_MATRIX, 0, 3, f->m.block_rows = 3);
    BAD(BLOCK_MASK, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_MATRIX, 1, -4, f->cols = -4);
    BAD(BLOCK_MASK, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_WITHIN, -1, 0, f->attention.block_kind = f->mask; f->pa = NULL);
    BAD(BLOCK_MASK, BSR_ITEM_OVERLAP, BSR_ARG_KIND, -1, BSR_ARG_WITHIN, f->mask = (uint8_t *)f->a.col_indices);
    BAD(BLOCK_MASK, BSR_ITEM_USER_FUNCTION, BSR_ARG_OPTIONS, -1, 3, f->attention.mask_function = 3);
    BAD(BLOCK_MASK, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, ANY, f->m.nnz = 2);
    BAD(FROM_LISTS, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_LISTS, -1, 0, f->plists = NULL);
    BAD(FROM_LISTS, BSR_ITEM_LIST_COUNT, BSR_ARG_LISTS, 1, 4, f->lists.counts[1] = 4);
    BAD(FROM_LISTS, BSR_ITEM_LIST_COLUMN, BSR_ARG_FULL_LISTS, 0, 4, f->lists.full_indices[0] = 4);
    BAD(FROM_LISTS, BSR_ITEM_LIST_REPEATS, BSR_ARG_LISTS, 0, 1, f->lists.full_indices[0] = 1);
    BAD(TO_LISTS, BSR_ITEM_BLOCK_KIND, BSR_ARG_KIND, 4, 3, f->mask[4] = 3);
    BAD(TO_LISTS, BSR_ITEM_CAPACITY, BSR_ARG_LISTS, -1, ANY, memset(f->mask, 0, 7); f->lists.width = 0; f->lists.indices = NULL);
    BAD(SELECT, BSR_ITEM_SELECT_FIELD, BSR_ARG_OPTIONS, 0, -2, f->select.top_k = -2);
    BAD(SELECT, BSR_ITEM_OPERAND_KIND, BSR_ARG_SCORES, -1, 0, f->select.q = &f->source);
    BAD(SELECT, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, 6, f->m.nnz = 5);
    BAD(POOL, BSR_ITEM_REDUCE_KIND, BSR_ARG_NONE, -1, BSR_REDUCE_NORM2, f->kind = BSR_REDUCE_NORM2);
    BAD(REBLOCK, BSR_ITEM_BLOCK_SIZE, BSR_ARG_MATRIX, 1, 0, f->m.block_cols = 0);
    BAD(REBLOCK, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MATRIX, -1, 12, f->m.block_cols = 5);
    BAD(REBLOCK, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_SOURCE, -1, 0, f->pa = NULL);
    BAD(REBLOCK, BSR_ITEM_DTYPE_OUT, BSR_ARG_MATRIX, -1, BSR_I8, f->m.dtype = BSR_I8);
    BAD(TRANSPOSED, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0, f->pa = NULL);
    BAD(SCHEDULE, BSR_ITEM_GROUP_SIZE, BSR_ARG_OPTIONS, -1, 16, f->group = 16);
    BAD(LAYOUT, BSR_ITEM_LAYOUT_KIND, BSR_ARG_OPTIONS, -1, 0, f->layout.kind = 0);
}

/* Each pointer of a call null, and one byte further than its elements may stand: it runs or says so, having written nothing. */
TEST(any_pointer) {
#define AT(x) offsetof(fixture, x)
    static const size_t handed[] = {AT(ctx), AT(pa), AT(pp), AT(pt), AT(pm), AT(pb), AT(pc), AT(px), AT(py), AT(pz), AT(pinput),
                                    AT(pout), AT(pup), AT(pweights), AT(pr), AT(pgate_out), AT(pup_out), AT(mask), AT(plse),
                                    AT(pd_out), AT(pdq), AT(pdk), AT(pdv), AT(ppartials), AT(pnorms),
                                    AT(indices.c_indices), AT(indices.r_offsets), AT(indices.p_indices), AT(indices.q_indices)};
    static const size_t data[] = {AT(a.crow_indices), AT(a.col_indices), AT(a.values), AT(s.crow_indices), AT(s.col_indices),
                                  AT(s.values), AT(t.crow_indices), AT(t.col_indices), AT(t.values), AT(m.crow_indices),
                                  AT(m.col_indices), AT(m.values), AT(b.data), AT(c.data), AT(input.data), AT(left.data),
                                  AT(right.data), AT(bias.data), AT(x.data), AT(y.data), AT(z.data), AT(out.data), AT(lse.data),
                                  AT(rel.data), AT(key.data), AT(blocks.data), AT(db.data), AT(source.data),
                                  AT(up.data), AT(weights.data), AT(gate_out.values), AT(up_out.values), AT(r.counts),
                                  AT(r.offsets), AT(r.row_of), AT(r.slot_of), AT(r.status), AT(d_out.data), AT(dq.data),
                                  AT(dk.data), AT(dv.data),
                                  AT(partial[0].data), AT(partial[1].data), AT(norms[0].data), AT(norms[1].data),
                                  AT(first), AT(second), AT(values), AT(buffer)};
    size_t k, pointers = BT_COUNT(handed) + BT_COUNT(data);
    int call, off;
    for (call = 0; call < CALLS; call++)
        for (off = 0; off < 2; off++) {
            bt_case("%s, pointers %s", call_names[call], off ? "a byte further" : "null");
            for (k = off ? BT_COUNT(handed) : 0; k < pointers; k++) {
                const size_t at = k < BT_COUNT(handed) ? handed[k] : data[k - BT_COUNT(handed)];
                bsr_exec e = t_exec(0);
                bsr_status status;
                fixture f;
                void *p;
                f = fixture_new(call), fixture_point(&f), fit_call(&f, call);
                memcpy(&p, (char *)&f + at, sizeof p), p = !p || !off ? NULL : (char *)p + 1;
                memcpy((char *)&f + at, &p, sizeof p);
                status = run(&f, call, &e);
                if (status != BSR_OK && status != (off ? BSR_MISALIGNED : BSR_NULL_POINTER) &&
                    t_error.item != BSR_ITEM_OPERAND_KIND && t_error.item != BSR_ITEM_BETA_BOOL &&
                    t_error.item != BSR_ITEM_WORKSPACE)
                    bt_fail(__FILE__, __LINE__, "pointer %d: %s", (int)k, bsr_item_name(t_error.item));
                if (status != BSR_OK) CHECK_INT(t_error.status, status), CHECK(t_error.operand > 0), check_poison(&f, call);
                bt.checks++, bt_free_all();
            }
        }
#undef AT
}

/* ---------------------------------------------------------------------------------------------- */
/* structure mutators x operations                                                                */
/* ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int item, for_validate_only;
} mutators[] = {
    {"crow[0] is 1", BSR_ITEM_CROW_FIRST, 0},
    {"crow[0] is -1", BSR_ITEM_CROW_FIRST, 0},
    {"crow[last] above nnz", BSR_ITEM_CROW_LAST, 0},
    {"crow[last] below nnz", BSR_ITEM_CROW_LAST, 0},
    {"crow decreases", BSR_ITEM_CROW_DECREASES, 0},
    {"crow is negative inside", BSR_ITEM_CROW_DECREASES, 0},
    {"crow far too large", BSR_ITEM_CROW_DECREASES, 0},
    {"a row longer than the matrix", BSR_ITEM_CROW_LONG, 1},
    {"column -1", BSR_ITEM_COL_RANGE, 0},
    {"column = block columns", BSR_ITEM_COL_RANGE, 0},
    {"column INT32_MAX", BSR_ITEM_COL_RANGE, 0},
    {"unsorted", BSR_ITEM_COL_ORDER, 1},
    {"duplicate", BSR_ITEM_COL_ORDER, 1},
    {"nnz one more", BSR_ITEM_CROW_LAST, 0},
    {"nnz one less", BSR_ITEM_CROW_LAST, 0},
    {"nnz 0", BSR_ITEM_CROW_DECREASES, 0},
    {"crow null", BSR_ITEM_CROW_NULL, 0},
    {"col null", BSR_ITEM_COL_NULL, 0},
    {"block rows 0", BSR_ITEM_BLOCK_SIZE, 0},
    {"block columns negative", BSR_ITEM_BLOCK_SIZE, 0},
    {"rows no multiple", BSR_ITEM_BLOCK_DIVIDES, 0},
    {"index type f16", BSR_ITEM_INDEX_DTYPE, 0},
    {"misaligned col", BSR_ITEM_ALIGNMENT, 0},
    {"index of another matrix", BSR_ITEM_VIEW_HEADER, 0},
    {"index with a wrong row", BSR_ITEM_VIEW_CONTENT, 0},
    {"index with a wrong position", BSR_ITEM_VIEW_CONTENT, 0},
    {"schedule of another matrix", BSR_ITEM_VIEW_HEADER, 0},
    {"schedule that names a row twice", BSR_ITEM_VIEW_CONTENT, 0},
};
/* 3 block rows with 3, 1 and 3 blocks among 4 columns, in arrays of this index type. */
static bsr_matrix known_matrix(int type) {
    static const int crow[] = {0, 3, 4, 7}, col[] = {0, 1, 3, 2, 0, 2, 3};
    bsr_matrix m;
    int i;
    memset(&m, 0, sizeof m);
    m.index_dtype = type, m.rows = 6, m.cols = 12, m.block_rows = 2, m.block_cols = 3, m.nnz = 7;
    m.crow_indices = bt_alloc(4 * bsr_dtype_size(type), 8), m.col_indices = bt_alloc(7 * bsr_dtype_size(type), 8);
    for (i = 0; i < 4; i++) t_set_index(m.crow_indices, type, i, crow[i]);
    for (i = 0; i < 7; i++) t_set_index(m.col_indices, type, i, col[i]);
    t_make_values(&m, BSR_F32, PACKED, 0), t_fill_values(&m, FILL_SIGNED);
    return m;
}
static void mutate(bsr_matrix *m, int which, int64_t *index, int64_t *value) {
    void *crow = m->crow_indices, *col = m->col_indices;
    int t = m->index_dtype;
    int64_t *view;
    *index = *value = ANY;
    switch (which) {
        case 0: t_set_index(crow, t, 0, 1), *index = 0, *value = 1; break;
        case 1: t_set_index(crow, t, 0, -1), *index = 0, *value = -1; break;
        case 2: t_set_index(crow, t, 3, 8), *index = 0, *value = 8; break;
        case 3: t_set_index(crow, t, 3, 6), *index = 0, *value = 6; break;
        case 4: t_set_index(crow, t, 2, 2), *index = 1, *value = -1; break;
        case 5: t_set_index(crow, t, 1, -5), *index = 0; break;
        case 6: t_set_index(crow, t, 1, INT32_MAX), *index = 0; break;
        case 7: t_set_index(crow, t, 1, 5), t_set_index(crow, t, 2, 6), *index = 0, *value = 5; break;
        case 8: t_set_index(col, t, 3, -1), *index = 3, *value = -1; break;
        case 9: t_set_index(col, t, 6, 4), *index = 6, *value = 4; break;
        case 10: t_set_index(col, t, 0, INT32_MAX), *index = 0, *value = INT32_MAX; break;
        case 11: t_set_index(col, t, 0, 1), t_set_index(col, t, 1, 0), *index = 1, *value = 0; break;
        case 12: t_set_index(col, t, 5, 0), *index = 5, *value = 0; break;
        case 13: m->nnz = 8, *value = 7; break;
        case 14: m->nnz = 6, *value = 7; break;
        case 15: m->nnz = 0; break;
        case 16: m->crow_indices = NULL; break;
        case 17: m->col_indices = NULL; break;
        case 18: m->block_rows = 0, *index = 0; break;
        case 19: m->block_cols = -3, *index = 1, *value = -3; break;
        case 20: m->rows = 7, *index = 0, *value = 7; break;
        case 21: m->index_dtype = BSR_F16; break;
        case 22: m->col_indices = (char *)col + 1; break;
        case 23:
        case 24:
        case 25:
            t_attach_transposed(m), view = (int64_t *)(uintptr_t)m->transposed_index;
            if (!view) break;
            if (which == 23) view[1] = 6, *index = 1, *value = 6;
            if (which == 24) t_set_index((char *)view + 128, t, 2, 77), *value = 77;
            if (which == 25) t_set_index((char *)view + 192, t, 1, 7), *value = 7;
            break;
        default:
            t_attach_schedule(m, 1, 0), view = (int64_t *)(uintptr_t)m->schedule;
            if (!view) break;
            if (which == 26) view[2] = 9, *value = 9;
            else ((int32_t *)(void *)(view + 8))[1] = ((int32_t *)(void *)(view + 8))[0];
    }
}
TEST(structure_mutators) {
    static const int calls[] = {VALIDATE,   ADDMM,    DENSE_SCATTER,    SDD,       DSD,      DDS,     BACKWARD,
                                SAMPLED,    SOFTMAX,  SOFTMAX_BACKWARD, ATTENTION, TO_DENSE, REBLOCK, PRUNE_SPARSE,
                                TRANSPOSED, SCHEDULE, INDICES,          MAP,       REDUCE,   CONV,    GATED,
                                GRADIENTS};
    size_t k, c;
    int type, which;
    for (k = 0; k < BT_COUNT(mutators); k++)
        for (c = 0; c < BT_COUNT(calls); c++)
            for (type = 0; type < 2; type++) {
                fixture f;
                int64_t index, value;
                bsr_exec e;
                bsr_status status;
                bsr_matrix *m;
                int call = calls[c], item = mutators[k].item, tolerant;
                bt_case("%s, %s, %s", mutators[k].name, call_names[call], type ? "i64" : "i32");
                which = (int)k;
                f = fixture_new(call), fixture_point(&f);
                m = call == SDD || call == SAMPLED || call == GATED ? &f.t : &f.a;
                *m = known_matrix(type ? BSR_I64 : BSR_I32);
                if (call == SAMPLED) f.beta = 0;
                if (call == SOFTMAX || call == SOFTMAX_BACKWARD || call == BACKWARD || call == MAP)
                    f.t = f.a, t_make_values(&f.t, BSR_F32, PACKED, 0), bt_mark_output(f.t.values);
                if (call == SOFTMAX_BACKWARD || call == MAP)
                    f.s = f.a, t_make_values(&f.s, BSR_F32, PACKED, 0), t_fill_values(&f.s, FILL_SIGNED);
                f.pgate_out = f.pup_out = NULL;
                if (m == &f.t) bt_mark_output(m->values), memset(m->values, BT_POISON, 7 * 6 * 4);
                f.outputs = 0;
                if (which == 9 || which == 8) f.sparsity = 0;
                e = t_exec(0);
                mutate(m, which, &index, &value);
                if (call == SOFTMAX || call == SOFTMAX_BACKWARD || call == MAP) f.t.nnz = f.s.nnz = f.a.nnz;
                if (call == SAMPLED) f.pp = NULL;
                bt_before_call();
                status = run(&f, call, &e);
                bt_after_call();
                /* what only bsr_validate minds, and views, which builders do not look at */
                tolerant =
                    (mutators[k].for_validate_only && call != VALIDATE && call != REBLOCK && call != PRUNE_SPARSE) || which >= 23;
                if ((which == 20 && call != VALIDATE) ||
                    (call == BACKWARD && which >= 13 && which <= 15)) { /* another size: any refusal */
                    CHECK(status != BSR_OK);
                    continue;
                }
                if (tolerant && call != VALIDATE && which < 23) { /* products take any order and add duplicates */
                    CHECK_INT(status, BSR_OK);
                    continue;
                }
                if (tolerant && call != VALIDATE) { /* who uses a view looks at it, others may not */
                    CHECK(status == BSR_OK || t_error.item == BSR_ITEM_VIEW_HEADER || t_error.item == BSR_ITEM_VIEW_CONTENT);
                    continue;
                }
                CHECK_INT(status, item_status(item));
                CHECK_STR(bsr_item_name(t_error.item), bsr_item_name(item));
                if (index != ANY) CHECK_INT(t_error.index, index);
                if (value != ANY) CHECK_INT(t_error.value, value);
            }
}

/* ---------------------------------------------------------------------------------------------- */
/* any number in any field                                                                        */
/* ---------------------------------------------------------------------------------------------- */

typedef struct field {
    int64_t *wide;
    int32_t *narrow;
    int is_stride;
} field;
enum { FIELDS = 160 }; /* of a call, at most */
static void add_dense(field *list, int *n, bsr_dense *d) {
    int i;
    if (!d->data) return;
    list[*n].wide = &d->rows, list[(*n)++].is_stride = 0, list[*n].wide = &d->cols, list[(*n)++].is_stride = 0;
    list[*n].wide = &d->row_stride, list[(*n)++].is_stride = 1, list[*n].wide = &d->col_stride, list[(*n)++].is_stride = 1;
    for (i = 0; i < 2; i++)
        list[*n].wide = &d->batch[i], list[(*n)++].is_stride = 0, list[*n].wide = &d->batch_stride[i], list[(*n)++].is_stride = 1;
    list[*n].narrow = &d->dtype, list[(*n)++].wide = NULL, list[*n].narrow = &d->batch_dims, list[(*n)++].wide = NULL;
}
static void add_matrix(field *list, int *n, bsr_matrix *m, int alone) { /* alone: nothing else tells rows and cols */
    int i;
    if (!m->crow_indices) return;
    list[*n].wide = &m->rows, list[(*n)++].is_stride = 2 * alone, list[*n].wide = &m->cols, list[(*n)++].is_stride = 2 * alone;
    list[*n].wide = &m->block_rows, list[(*n)++].is_stride = 2, list[*n].wide = &m->block_cols, list[(*n)++].is_stride = 2;
    list[*n].wide = &m->nnz, list[(*n)++].is_stride = 0;
    for (i = 0; i < 3; i++) list[*n].wide = &m->value_strides[i], list[(*n)++].is_stride = 1;
    for (i = 0; i < 2; i++) {
        list[*n].wide = &m->batch[i], list[(*n)++].is_stride = 0, list[*n].wide = &m->crow_batch_stride[i],
        list[(*n)++].is_stride = 1;
        list[*n].wide = &m->col_batch_stride[i], list[(*n)++].is_stride = 1, list[*n].wide = &m->values_batch_stride[i],
        list[(*n)++].is_stride = 1;
    }
    list[*n].narrow = &m->dtype, list[(*n)++].wide = NULL, list[*n].narrow = &m->index_dtype, list[(*n)++].wide = NULL;
    list[*n].narrow = &m->batch_dims, list[(*n)++].wide = NULL;
}
static int collect(fixture *f, field *list, int call) {
    int n = 0;
    if (call != SCATTER && call != SDD && call != SAMPLED && call != CONV_WEIGHTS && (call < GATED || call >= VALIDATE) &&
        call != MERGE && call != ROUTE && (call < FROM_DENSE || call >= PRUNE_SPARSE) && call != LAYOUT)
        add_matrix(list, &n, &f->a, call == VALIDATE || call >= TRANSPOSED);
    if (call == SAMPLED || call == SOFTMAX_BACKWARD || call == MAP || call == CONV_WEIGHTS) add_matrix(list, &n, &f->s, 0);
    add_matrix(list, &n, &f->t, 0);
    add_matrix(list, &n, &f->m, call == FROM_MASK || call == RANDOM || call == FROM_LISTS || call == SELECT);
    if (call <= BACKWARD || call == CONV) add_dense(list, &n, &f->b), add_dense(list, &n, &f->c);
    if (call == ADDMM)
        add_dense(list, &n, &f->input), add_dense(list, &n, &f->left), add_dense(list, &n, &f->right),
            add_dense(list, &n, &f->bias);
    if (call == SCATTER) add_dense(list, &n, &f->blocks);
    if (call == SDD || call == SAMPLED || call == ATTENTION || call == GRADIENTS || call == CONV_WEIGHTS)
        add_dense(list, &n, &f->x), add_dense(list, &n, &f->y);
    if (call == ATTENTION || call == GRADIENTS) add_dense(list, &n, &f->z);
    if (call == ATTENTION || call == GRADIENTS || call == MERGE) add_dense(list, &n, &f->out), add_dense(list, &n, &f->lse);
    if (call == GRADIENTS) {
        add_dense(list, &n, &f->d_out), add_dense(list, &n, &f->dq);
        add_dense(list, &n, &f->dk), add_dense(list, &n, &f->dv);
    }
    if (call == MERGE) add_dense(list, &n, &f->partial[1]), add_dense(list, &n, &f->norms[1]);
    if (call == SOFTMAX || call == ATTENTION || call == GRADIENTS) add_dense(list, &n, &f->rel), add_dense(list, &n, &f->key);
    if (call == TO_DENSE || call == REDUCE) add_dense(list, &n, &f->out);
    if (call == GATED) {
        add_dense(list, &n, &f->x), add_dense(list, &n, &f->y), add_dense(list, &n, &f->up);
        add_matrix(list, &n, &f->gate_out, 0), add_matrix(list, &n, &f->up_out, 0);
    }
    if (call == GATHER || call == SCATTER_ROWS || call == DOTS) add_dense(list, &n, &f->x), add_dense(list, &n, &f->out);
    if (call == GATHER || call == SCATTER_ROWS) add_dense(list, &n, &f->weights);
    if (call == DOTS) add_dense(list, &n, &f->y);
    if (call == SCATTER_ROWS) add_dense(list, &n, &f->input);
    if (call == ROUTE) add_dense(list, &n, &f->source);
    if (f->r.tokens) {
        int64_t *const sizes[] = {&f->r.tokens, &f->r.slots, &f->r.experts, &f->r.rows, &f->r.block_rows};
        int i;
        for (i = 0; i < 5; i++) list[n].wide = sizes[i], list[n++].is_stride = 2;
    }
    if (call == BACKWARD) add_dense(list, &n, &f->db);
    if (call == FROM_DENSE || call == PRUNE || call == CONV_PRUNE || call == SELECT) add_dense(list, &n, &f->source);
    if (call == POOL) add_dense(list, &n, &f->x), add_dense(list, &n, &f->out);
    if (call == FROM_CSR || call == FROM_COO)
        list[n].wide = &f->rows, list[n++].is_stride = 0, list[n].wide = &f->cols, list[n++].is_stride = 0,
        list[n].wide = &f->nnz, list[n++].is_stride = 2;
    if (call == INDICES) list[n].wide = &f->n, list[n++].is_stride = 2;
    if (call == SCATTER || call == DENSE_SCATTER) {
        list[n].wide = &f->indices.split_n, list[n++].is_stride = 0, list[n].wide = &f->indices.c_count, list[n++].is_stride = 2;
        list[n].wide = &f->indices.r_count, list[n++].is_stride = 2, list[n].wide = &f->indices.p_count, list[n++].is_stride = 2,
        list[n].wide = &f->indices.q_count, list[n++].is_stride = 2;
    }
    if (call == LAYOUT) {
        list[n].wide = &f->layout.heads, list[n++].is_stride = 2, list[n].wide = &f->layout.blocks, list[n++].is_stride = 2;
        list[n].wide = &f->layout.num_local_blocks, list[n++].is_stride = 0, list[n].wide = &f->layout.num_global_blocks,
        list[n++].is_stride = 0;
        list[n].wide = &f->layout.num_different_global_patterns, list[n++].is_stride = 0;
    }
    return n;
}
/* With one field wrong a call runs or is refused; it does not touch memory outside (ASan, guards), nor hang. Fields that
   say how much memory there is (is_stride) only take values that no buffer could have, or smaller ones. */
TEST(any_number_anywhere) {
    static const int64_t sizes[] = {-1, 0, 1, INT64_MAX, INT64_MIN, INT64_C(1) << 31, INT64_C(1) << 62, INT64_C(1) << 32, 3},
                         strides[] = {-1, 0, INT64_MAX, INT64_MIN, INT64_C(1) << 62};
    static const int64_t counts[] = {-1, 0, INT64_MIN, INT64_MAX, INT64_C(1) << 62};
    static const int32_t narrow[] = {-1, 0, 4, 5, 9, 99, INT32_MAX, INT32_MIN};
    int call, k, v;
    for (call = 0; call < CALLS; call++) {
        field list[FIELDS];
        fixture f;
        int n;
        memset(list, 0, sizeof list);
        f = fixture_new(call), n = collect(&f, list, call);
        for (k = 0; k < n; k++) {
            int many = !list[k].wide ? 8 : list[k].is_stride == 1 ? 5 : list[k].is_stride ? 5 : 9;
            bt_case("%s, field %d", call_names[call], k);
            for (v = 0; v < many; v++) {
                fixture g;
                field here[FIELDS];
                bsr_exec e = t_exec(0);
                bsr_status status;
                memset(here, 0, sizeof here);
                g = fixture_new(call), fixture_point(&g), fit_call(&g, call), collect(&g, here, call);
                if (here[k].wide) *here[k].wide = here[k].is_stride == 1 ? strides[v] : here[k].is_stride ? counts[v] : sizes[v];
                else if (here[k].narrow == &g.input.dtype || narrow[v] != BSR_F64)
                    *here[k].narrow = narrow[v] == 4 && here[k].narrow == &g.input.dtype ? 0 : narrow[v];
                bt_before_call();
                status = run(&g, call, &e);
                bt_after_call();
                CHECK(status >= BSR_OK && status <= BSR_PARSE_ERROR);
                if (status != BSR_OK) {
                    CHECK_INT(t_error.status, status);
                    CHECK(t_error.item > 0 && t_error.item < BSR_ITEM_COUNT);
                    check_poison(&g, call);
                }
                bt_free_all();
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* overlaps                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

TEST(overlaps) {
    fixture f;
    bsr_exec e;
    float *shared;
    bt_case("exact alias of input is fine");
    f = fixture_new(ADDMM), fixture_point(&f), e = t_exec(0);
    t_fill(&f.c, FILL_SIGNED), f.pinput = &f.c;
    CHECK_INT(run(&f, ADDMM, &e), BSR_OK);
    bt_case("one element further is not");
    f = fixture_new(ADDMM), fixture_point(&f), e = t_exec(0);
    shared = (float *)bt_alloc(31 * 4, 4), f.c.data = shared + 1, f.input.data = shared;
    CHECK_INT(run(&f, ADDMM, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_OUT), CHECK_INT(t_error.value, BSR_ARG_INPUT);
    CHECK(t_all_poison(shared));
    /* but not when beta is 0, where input is not looked at */
    f.beta = 0, bt_mark_output(shared);
    CHECK_INT(run(&f, ADDMM, &e), BSR_OK);
    bt_case("two halves of one buffer");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    shared = (float *)bt_alloc(12 * 10 * 4, 4), bt_mark_output(shared);
    memset(shared, 0, 12 * 10 * 4);
    f.b.data = shared, f.b.row_stride = 10, f.c.data = shared + 5, f.c.row_stride = 10;
    CHECK_INT(run(&f, DSD, &e), BSR_OK);
    f.c.data = shared + 4;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP);
    f.b.row_stride = 5, f.c.row_stride = 5, f.c.data = shared + 60;
    CHECK_INT(run(&f, DSD, &e), BSR_OK);
    f.c.data = shared + 59;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP);
    bt_case("index arrays are inputs too");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    f.c.data = f.a.crow_indices, f.c.rows = 6;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.value, BSR_ARG_A);
    bt_case("attached views too");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    shared = (float *)bt_alloc(4096, 64), bt_mark_output(shared), f.c.data = shared;
    f.a.transposed_index = shared;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_C), CHECK_INT(t_error.value, BSR_ARG_A);
    f.a.transposed_index = NULL, f.a.schedule = shared + 2;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.value, BSR_ARG_A);
    CHECK(t_all_poison(shared));
    bt_case("an output right behind a schedule");
    for (int group = 1; group <= 8; group *= 2) { /* of 40 lines, which have fewer lengths the larger the group */
        t_spec s;
        uint64_t bytes = 0;
        memset(&s, 0, sizeof s), s.dtype = BSR_F32, s.block_rows = s.block_cols = 1, s.r = s.c = 40, s.nnz = 90;
        f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
        f.a = t_matrix(&s), f.b = dense_in(40, 5), shared = (float *)bt_alloc(4096, 64), bt_mark_output(shared);
        RUN_OK(bsr_schedule_size(f.ctx, &f.a, group, 0, &bytes, &e));
        RUN_OK(bsr_build_schedule(f.ctx, &f.a, group, 0, shared, bytes, &e));
        f.a.schedule = shared, f.c = bsr_dense_row_major(shared + bytes / 4, BSR_F32, 40, 5);
        CHECK_INT(run(&f, DSD, &e), BSR_OK);
        f.c.data = shared + 64 / 4 + 40 - 1;
        CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.value, BSR_ARG_A);
    }
    bt_case("scalars");
    for (int i = 0; i < 2; i++) {
        f = fixture_new(ADDMM), fixture_point(&f), e = t_exec(0);
        shared = (float *)bt_alloc(4096, 64), bt_mark_output(shared), f.c.data = shared;
        *(i ? &f.epilogue.beta_ptr : &f.epilogue.alpha_ptr) = (double *)(void *)shared;
        CHECK_INT(run(&f, ADDMM, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_OUT);
        CHECK_INT(t_error.value, BSR_ARG_OPTIONS), CHECK(t_all_poison(shared));
    }
    bt_case("a scalar between rows");
    {
        static const struct { /* rows of 20 bytes, 32 apart, of two items, and where the scalar lies, both in fours of bytes */
            int64_t apart, at;
            int taken;
        } places[] = {{0, 38, 1},  {0, 4, 0},   {64, 38, 1}, {64, 36, 0},  {64, 46, 1}, {64, 102, 1}, {64, 100, 0},
                      {60, 38, 1}, {60, 46, 1}, {60, 60, 0}, {60, 106, 1}, {8, 6, 1},   {8, 30, 1},   {8, 28, 0}};
        for (size_t i = 0; i < BT_COUNT(places); i++) {
            double *scalar;
            int s;
            f = fixture_new(ADDMM), fixture_point(&f), e = t_exec(0);
            shared = (float *)bt_alloc(4096, 64), bt_mark_output(shared), f.c.data = shared, f.c.row_stride = 8;
            if (places[i].apart) {
                f.b.batch_dims = f.c.batch_dims = 1, f.b.batch[0] = f.c.batch[0] = 2, f.b.batch_stride[0] = 0;
                f.c.batch_stride[0] = places[i].apart;
                if (places[i].apart == 8) f.c.row_stride = 16; /* items between the rows of each other */
            }
            scalar = (double *)(void *)(shared + places[i].at), *scalar = 1, f.epilogue.alpha_ptr = scalar;
            s = run(&f, ADDMM, &e);
            if (s != (places[i].taken ? BSR_OK : BSR_OVERLAP))
                bt_fail(__FILE__, __LINE__, "place %d: %s", (int)i, bsr_status_name(s));
            CHECK(*scalar == 1);
        }
    }
    bt_case("columns between columns");
    for (int i = 0; i < 4; i++) { /* b's columns are 0, 2, ... of rows of 12, out's begin at i */
        f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
        shared = (float *)bt_alloc(4096, 4), bt_mark_output(shared), memset(shared, 0, 4096);
        f.b.data = shared, f.b.row_stride = 12, f.b.col_stride = 2;
        f.c.data = shared + i, f.c.row_stride = 12, f.c.col_stride = 2;
        CHECK_INT(run(&f, DSD, &e), i % 2 ? BSR_OK : BSR_OVERLAP);
        f.c.row_stride = 36; /* row 1 of out begins where row 3 of b does */
        CHECK_INT(run(&f, DSD, &e), i % 2 ? BSR_OK : BSR_OVERLAP);
    }
    bt_case("what takes more than 63 bits");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    f.b.data = f.c.data, f.b.row_stride = INT64_MAX / 4 / f.b.rows, f.c.row_stride = INT64_MAX / 4 / f.c.rows;
    if (sizeof(void *) == 8) { /* else no address is so far away: OVERFLOW */
        CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.item, BSR_ITEM_OVERLAP_UNDECIDED);
        CHECK_INT(t_error.operand, BSR_ARG_C), CHECK_INT(t_error.value, BSR_ARG_B);
    } else CHECK_INT(run(&f, DSD, &e), BSR_OVERFLOW);
    bt_case("an output whose elements interleave");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    f.c.row_stride = 7, f.c.col_stride = 3;
    CHECK_INT(run(&f, DSD, &e), BSR_BAD_STRIDE), CHECK_INT(t_error.item, BSR_ITEM_STRIDE_OUTPUT);
    bt_case("lists of products");
    f = fixture_new(SCATTER), fixture_point(&f), e = t_exec(0);
    shared = (float *)bt_alloc(4096, 64), bt_mark_output(shared), f.c.data = shared;
    f.indices.q_indices = (int64_t *)(void *)shared;
    CHECK_INT(run(&f, SCATTER, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_ACCUMULATORS);
    CHECK_INT(t_error.value, BSR_ARG_INDICES), CHECK(t_all_poison(shared));
    bt_case("the workspace");
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    e.workspace = f.b.data, e.workspace_bytes = 4;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_B), CHECK_INT(t_error.value, BSR_ARG_EXEC);
    f = fixture_new(DSD), fixture_point(&f), e = t_exec(0);
    e.workspace = f.c.data, e.workspace_bytes = 4;
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_C);
    e.workspace = (char *)f.c.data - 64, e.workspace_bytes = UINT64_MAX; /* whose end is no address */
    CHECK_INT(run(&f, DSD, &e), BSR_OVERLAP);
    bt_case("softmax in place, and shifted");
    f = fixture_new(SOFTMAX), fixture_point(&f), e = t_exec(0);
    f.t = f.a, bt_mark_output(f.a.values);
    CHECK_INT(run(&f, SOFTMAX, &e), BSR_OK);
    f.t.value_strides[0] = 6, f.t.value_strides[1] = 1, f.t.value_strides[2] = 2;
    CHECK_INT(run(&f, SOFTMAX, &e), BSR_OVERLAP);
}

/* ---------------------------------------------------------------------------------------------- */
/* memory: every allocation failing in turn; operations allocate nothing                          */
/* ---------------------------------------------------------------------------------------------- */

static struct { long calls, live, fail_at, persistent; } heap;
static void *heap_alloc(size_t bytes, void *user) {
    CHECK(user == &heap);
    heap.calls++;
    if (heap.fail_at && (heap.persistent ? heap.calls >= heap.fail_at : heap.calls == heap.fail_at)) return NULL;
    heap.live++;
    return malloc(bytes ? bytes : 1);
}
static void heap_free(void *p, void *user) {
    CHECK(user == &heap && p != NULL);
    heap.live--;
    free(p);
}
static bsr_context_desc heap_desc(void) {
    bsr_context_desc d;
    memset(&d, 0, sizeof d);
    d.allocator.alloc_fn = heap_alloc, d.allocator.free_fn = heap_free, d.allocator.user = &heap, d.threads = 1;
    return d;
}
TEST(allocation_failures) {
    int call, persistent;
    bt_case("create");
    {
        bsr_context_desc d = heap_desc();
        bsr_context *ctx = (bsr_context *)&d;
        bsr_error error;
        memset(&heap, 0, sizeof heap), heap.fail_at = 1;
        CHECK_INT(bsr_create(&d, &ctx, &error), BSR_OUT_OF_MEMORY), CHECK_INT(error.item, BSR_ITEM_NO_MEMORY), CHECK(ctx == NULL),
            CHECK_INT(heap.live, 0);
        heap.fail_at = 0;
        CHECK_INT(bsr_create(&d, &ctx, &error), BSR_OK), CHECK_INT(heap.live, 1);
        bsr_destroy(ctx);
        CHECK_INT(heap.live, 0);
    }
    for (call = 0; call < CALLS; call++)
        for (persistent = 0; persistent < 2; persistent++) {
            bsr_context_desc d = heap_desc();
            bsr_context *ctx = NULL;
            long n, done = 0, needed = 0;
            bt_case("%s, %s", call_names[call], persistent ? "persistent" : "transient");
            memset(&heap, 0, sizeof heap);
            CHECK_INT(bsr_create(&d, &ctx, NULL), BSR_OK);
            for (n = 1; n < 100 && !done; n++) {
                fixture f = fixture_new(call);
                bsr_exec e = t_exec(0);
                bsr_status status;
                fixture_point(&f), fit_call(&f, call), f.ctx = ctx;
                heap.calls = 0, heap.fail_at = n, heap.persistent = persistent;
                bt_before_call();
                status = run(&f, call, &e);
                bt_after_call();
                CHECK_INT(heap.live, 1);
                done = heap.calls < n, needed = n - 1;
                if (done) CHECK_INT(status, BSR_OK);
                else CHECK_INT(status, BSR_OUT_OF_MEMORY), CHECK_INT(t_error.item, BSR_ITEM_NO_MEMORY), CHECK(t_error.value > 0);
                heap.fail_at = 0; /* the next call works */
                if (!done) f = fixture_new(call), fixture_point(&f), fit_call(&f, call), f.ctx = ctx, RUN_OK(run(&f, call, &e));
            }
            CHECK(done);
            if (call <= VALIDATE) CHECK_INT(needed, 0); /* an operation never allocates */
            bsr_destroy(ctx);
            CHECK_INT(heap.live, 0);
        }
}
/* A workspace that is large enough replaces the allocator. */
TEST(workspace_replaces_allocator) {
    int call;
    for (call = FROM_DENSE; call <= PRUNE_SPARSE; call++) {
        bsr_context_desc d = heap_desc();
        bsr_context *ctx = NULL;
        fixture f;
        bsr_exec e = t_exec(0);
        bt_case("%s", call_names[call]);
        memset(&heap, 0, sizeof heap);
        CHECK_INT(bsr_create(&d, &ctx, NULL), BSR_OK);
        f = fixture_new(call), fixture_point(&f), fit_call(&f, call), f.ctx = ctx;
        e.workspace = bt_alloc(65536, 64), e.workspace_bytes = 65536, bt_mark_output(e.workspace);
        heap.calls = 0;
        RUN_OK(run(&f, call, &e));
        CHECK_INT(heap.calls, 0);
        bsr_destroy(ctx);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* contexts, names, strings, logger                                                               */
/* ---------------------------------------------------------------------------------------------- */

static struct {
    int calls, level, item;
    char text[320];
} logged;
static void log_it(int level, int item, const char *message, void *user) {
    logged.calls++, logged.level = level, logged.item = item;
    CHECK(user == &logged);
    snprintf(logged.text, sizeof logged.text, "%s", message);
}
TEST(contexts) {
    bsr_context_desc d;
    bsr_context *ctx;
    bsr_error error;
    bsr_info info;
    int bad;
    for (bad = 0; bad < 10; bad++) {
        static const int items[] = {BSR_ITEM_BACKEND_UNKNOWN, BSR_ITEM_BACKEND_MISSING, BSR_ITEM_THREADS,
                                    BSR_ITEM_THREADS,         BSR_ITEM_ISA_MISSING,     BSR_ITEM_ALLOCATOR_HALF,
                                    BSR_ITEM_RESERVED,        BSR_ITEM_BACKEND_UNKNOWN, BSR_ITEM_ISA_MISSING,
                                    BSR_ITEM_RESERVED};
        bt_case("%s", bsr_item_name(items[bad]));
        memset(&d, 0, sizeof d), ctx = (bsr_context *)&d;
        if (bad == 0) d.backend = 3;
        if (bad == 1) d.backend = BSR_BACKEND_CUDA;
        if (bad == 2) d.threads = -1;
        if (bad == 3) d.threads = 4097;
        if (bad == 4) d.isa = BSR_ISA_AVX512_BF16 + 1;
        if (bad == 5) d.allocator.alloc_fn = heap_alloc;
        if (bad == 6) d.reserved[2] = 1;
        if (bad == 7) d.backend = -1;
        if (bad == 8) d.isa = -1;
        if (bad == 9) d.logger.reserved = 1;
        CHECK_INT(bsr_create(&d, &ctx, &error), item_status(items[bad]));
        CHECK_INT(error.item, items[bad]), CHECK(ctx == NULL);
        if (ctx && ctx != (bsr_context *)&d) bsr_destroy(ctx);
    }
    bt_case("null");
    CHECK_INT(bsr_create(NULL, NULL, &error), BSR_NULL_POINTER), CHECK_INT(error.item, BSR_ITEM_OUTPUT_NULL);
    bsr_destroy(NULL);
    CHECK_INT(bsr_create(NULL, &ctx, NULL), BSR_OK);
    CHECK_INT(bsr_query_info(ctx, &info), BSR_OK), CHECK_INT(bsr_query_info(NULL, &info), BSR_NULL_POINTER),
        CHECK_INT(bsr_query_info(ctx, NULL), BSR_NULL_POINTER);
    CHECK_INT(info.version, BSR_VERSION), CHECK_INT(info.version, bsr_version()), CHECK_INT(info.backend, BSR_BACKEND_CPU),
        CHECK(info.isa >= BSR_ISA_PORTABLE && info.isa <= BSR_ISA_AVX512_BF16 && info.threads >= 1);
    CHECK(info.backend_name && info.isa_name && info.status_of_backends);
    bsr_destroy(ctx);
    bt_case("the logger hears of errors, and only of those");
    memset(&d, 0, sizeof d), d.logger.func = log_it, d.logger.user = &logged;
    CHECK_INT(bsr_create(&d, &ctx, NULL), BSR_OK);
    {
        fixture f = fixture_new(ADDMM);
        bsr_exec e = t_exec(0);
        char text[320];
        fixture_point(&f), f.ctx = ctx;
        memset(&logged, 0, sizeof logged);
        CHECK_INT(run(&f, ADDMM, &e), BSR_OK), CHECK_INT(logged.calls, 0);
        f.b.rows = 11;
        CHECK_INT(run(&f, ADDMM, &e), BSR_BAD_SHAPE), CHECK_INT(logged.calls, 1), CHECK_INT(logged.item, BSR_ITEM_INNER_MISMATCH),
            CHECK_INT(logged.level, BSR_LOG_ERROR);
        bsr_error_string(&t_error, text, sizeof text);
        CHECK_STR(logged.text, text);
        CHECK_STR(text, "BSR_BAD_SHAPE: b: the inner size is 11, not 12 as the other operand's");
    }
    bsr_destroy(ctx);
}
/* The word of BSR_EXEC_CHECK_INDICES, as the header describes it; on the CPU it says what the record says. */
static uint64_t word_of(uint64_t operand, uint64_t item, uint64_t index) { return ~(operand << 56 | item << 48 | index); }
TEST(device_status) {
    const uint64_t most = (UINT64_C(1) << 48) - 1;
    bsr_error error;
    char text[320];
    int item;
    CHECK_INT(bsr_device_status(0, NULL), BSR_OK);
    memset(&error, 0x55, sizeof error);
    CHECK_INT(bsr_device_status(0, &error), BSR_OK);
    CHECK(!error.status && !error.item && !error.operand && !error.cuda_error && error.index == -1 && !error.value);
    CHECK_INT(BSR_ITEM_COUNT < 256, 1);
    for (item = 0; item < 256; item++) { /* only what index arrays and routings may have wrong is a word's */
        const bsr_status s = bsr_device_status(word_of(BSR_ARG_A, (uint64_t)item, 7), &error);
        CHECK(s == BSR_BAD_STRUCTURE || s == BSR_BAD_SHAPE || (s == BSR_CAPACITY && item == BSR_ITEM_MOE_CAPACITY) ||
              (s == BSR_BAD_ARGUMENT && error.item == BSR_ITEM_STATUS_WORD));
        if (s != BSR_BAD_ARGUMENT)
            CHECK(error.item == item && error.operand == BSR_ARG_A && error.index == 7 && error.status == (int)s);
        CHECK_INT(bsr_device_status(word_of(BSR_ARG_A, (uint64_t)item, 7), NULL), s);
    }
    CHECK_INT(bsr_device_status(word_of(255, BSR_ITEM_COL_RANGE, 7), &error), BSR_BAD_ARGUMENT);
    CHECK_INT(bsr_device_status(~UINT64_C(0), &error), BSR_BAD_ARGUMENT), CHECK_INT(error.item, BSR_ITEM_STATUS_WORD);
    CHECK_INT(bsr_device_status(word_of(BSR_ARG_B, BSR_ITEM_COL_RANGE, most - 1), &error), BSR_BAD_STRUCTURE);
    CHECK_INT(error.index, most - 1), CHECK_INT(error.value, BSR_VALUE_UNKNOWN);
    CHECK_INT(bsr_device_status(word_of(BSR_ARG_B, BSR_ITEM_INDICES_COUNT, most), &error), BSR_BAD_SHAPE);
    CHECK_INT(error.index, -1);
    bsr_device_status(word_of(BSR_ARG_A, BSR_ITEM_COL_RANGE, 12), &error);
    bsr_error_string(&error, text, sizeof text);
    CHECK_STR(text, "BSR_BAD_STRUCTURE: a: col_indices[12] is ?, out of range");
#ifndef BSR_MIRROR_H /* a word in host memory is the CPU's alone; gpu_indices has the GPU's */
    { /* the CPU */
        fixture f = fixture_new(ADDMM);
        bsr_exec e = t_exec(0);
        bsr_plan plan;
        const uint64_t untouched = 12345;
        uint64_t words[9];
        char *inside = (char *)words;
        size_t bytes;
        void *want;
        fixture_point(&f);
        bytes = bt_find(f.c.data)->bytes, want = bt_alloc(bytes, 8);
        CHECK_INT(run(&f, ADDMM, &e), BSR_OK);
        memcpy(want, f.c.data, bytes), memset(f.c.data, BT_POISON, bytes);
        e.flags = BSR_EXEC_CHECK_INDICES;
        CHECK_INT(run(&f, ADDMM, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_DEVICE_STATUS);
        e.device_status = (uint64_t *)(void *)(inside + 4);
        CHECK_INT(run(&f, ADDMM, &e), BSR_MISALIGNED), CHECK_INT(t_error.operand, BSR_ARG_EXEC);
        e.device_status = &words[0], words[0] = untouched, e.flags |= BSR_EXEC_SKIP_CHECKS;
        CHECK_INT(run(&f, ADDMM, &e), BSR_BAD_ARGUMENT), CHECK_INT(t_error.item, BSR_ITEM_FLAGS_CONFLICT);
        e.flags = BSR_EXEC_CHECK_INDICES, e.workspace = words, e.workspace_bytes = 8;
        CHECK_INT(run(&f, ADDMM, &e), BSR_OVERLAP), CHECK_INT(t_error.operand, BSR_ARG_EXEC);
        e.workspace = NULL, e.workspace_bytes = 0, e.query = &plan;
        CHECK_INT(run(&f, ADDMM, &e), BSR_OK), CHECK(words[0] == untouched); /* a query writes its plan alone */
        e.query = NULL;
        CHECK_INT(run(&f, ADDMM, &e), BSR_OK), CHECK(words[0] == 0), CHECK(!memcmp(f.c.data, want, bytes));
        f.a.rows++;
        words[0] = untouched;
        CHECK(run(&f, ADDMM, &e) != BSR_OK), CHECK(words[0] == untouched); /* refused before any index was looked at */
        f.a.rows--;
        void *good = f.a.col_indices;
        bsr_matrix bad = f.a;
        bad.col_indices = bt_alloc((size_t)f.a.nnz * 8, 8);
        memcpy(bad.col_indices, f.a.col_indices, (size_t)f.a.nnz * bsr_dtype_size(f.a.index_dtype));
        memset((char *)bad.col_indices + 2 * bsr_dtype_size(f.a.index_dtype), 0xff, bsr_dtype_size(f.a.index_dtype));
        CHECK_INT(bsr_validate(t_context(0), &bad, &e), BSR_BAD_STRUCTURE);
        CHECK(words[0] == word_of(BSR_ARG_MATRIX, BSR_ITEM_COL_RANGE, 2));
        words[0] = untouched, e.query = &plan, f.a.col_indices = bad.col_indices; /* nor does a query that fails write more */
        CHECK_INT(run(&f, ADDMM, &e), BSR_BAD_STRUCTURE), CHECK(words[0] == untouched), e.query = NULL;
        CHECK_INT(run(&f, ADDMM, &e), BSR_BAD_STRUCTURE), CHECK(words[0] == word_of(BSR_ARG_A, BSR_ITEM_COL_RANGE, 2));
        CHECK_INT(bsr_validate(t_context(0), &bad, &e), BSR_BAD_STRUCTURE);
        CHECK_INT(bsr_device_status(words[0], &error), BSR_BAD_STRUCTURE);
        CHECK(error.item == t_error.item && error.operand == t_error.operand && error.index == t_error.index);
        f.a.col_indices = good;
        CHECK_INT(bsr_validate(t_context(0), &f.a, &e), BSR_OK), CHECK(words[0] == 0);
    }
#endif
}
TEST(names) {
    char text[64], full[320];
    bsr_error error;
    int i, n;
#define BSRI_X(name, value, t) \
    CHECK_STR(bsr_status_name(name), #name), CHECK_STR(bsr_status_string(name), t), CHECK_INT(name, value);
    BSR_STATUS_LIST(BSRI_X)
#undef BSRI_X
#define BSRI_X(name, value, t, bytes) \
    CHECK_STR(bsr_dtype_name(name), t), CHECK_INT(bsr_dtype_size(name), bytes), CHECK_INT(name, value);
    BSR_DTYPE_LIST(BSRI_X)
#undef BSRI_X
#define BSRI_X(name, value, t) CHECK_STR(bsr_op_name(name), t), CHECK_INT(name, value);
    BSR_OP_LIST(BSRI_X)
#undef BSRI_X
#define BSRI_X(name, value, t) CHECK_STR(bsr_operand_name(name), t), CHECK_INT(name, value);
    BSR_OPERAND_LIST(BSRI_X)
#undef BSRI_X
#define BSRI_X(name, status, t) CHECK_STR(bsr_item_name(name), #name), CHECK_STR(bsr_item_string(name), t);
    BSR_ITEM_LIST(BSRI_X)
#undef BSRI_X
    CHECK_STR(bsr_dtype_name(BSR_BF16), "bf16"), CHECK_INT(bsr_dtype_size(BSR_F64), 8), CHECK_INT(bsr_dtype_size(0), 0),
        CHECK_INT(bsr_dtype_size(1234), 0);
    for (i = -3; i < 5000; i += 1 + i / 7) {
        CHECK(bsr_status_name(i) && bsr_status_string(i) && bsr_item_name(i) && bsr_item_string(i) && bsr_operand_name(i) &&
              bsr_op_name(i) && bsr_dtype_name(i));
    }
    memset(&error, 0, sizeof error);
    error.status = BSR_BAD_STRUCTURE, error.item = BSR_ITEM_COL_RANGE, error.operand = BSR_ARG_A, error.index = 12,
    error.value = INT64_MIN;
    n = bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_BAD_STRUCTURE: a: col_indices[12] is -9223372036854775808, out of range");
    CHECK_INT(n, strlen(full));
    for (i = 0; i < 60; i++) { /* never past the end, always terminated, always the full length */
        memset(text, 'x', sizeof text);
        CHECK_INT(bsr_error_string(&error, text, (size_t)i), n);
        if (i) CHECK_INT(strlen(text), i - 1), CHECK(!strncmp(text, full, (size_t)i - 1));
        CHECK(text[i] == 'x');
    }
    CHECK_INT(bsr_error_string(&error, NULL, 0), n);
    CHECK_INT(bsr_error_string(NULL, text, sizeof text), 0);
    error.status = BSR_OVERLAP, error.item = BSR_ITEM_OVERLAP, error.operand = BSR_ARG_OUT, error.value = BSR_ARG_B;
    bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_OVERLAP: out: the output overlaps operand b");
    error.status = BSR_BAD_DTYPE, error.item = BSR_ITEM_DTYPE_MISMATCH, error.operand = BSR_ARG_B, error.value = BSR_F16;
    error.wanted = BSR_F32;
    bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_BAD_DTYPE: b: dtype f16 differs from the other operand's, f32");
    error.item = BSR_ITEM_DTYPE_NOT_ACCEPTED, error.value = BSR_I64, error.wanted = SET(BSR_F64) | SET(BSR_I8) | SET(BSR_F16);
    bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_BAD_DTYPE: b: dtype i64 is not accepted for this operand, which takes f16, f64, i8");
    for (i = 0; i < 4; i++) { /* sets that nothing writes */
        static const int64_t sets[] = {0, -1, INT64_MIN, INT64_MAX};
        error.wanted = sets[i], bsr_error_string(&error, full, sizeof full);
        CHECK(strlen(full) < sizeof full - 1);
    }
    error.status = BSR_BAD_SHAPE, error.item = BSR_ITEM_INNER_MISMATCH, error.value = 41469, error.wanted = 41472;
    bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_BAD_SHAPE: b: the inner size is 41469, not 41472 as the other operand's");
    error.status = BSR_BAD_DTYPE;
    error.item = BSR_ITEM_INDEX_DTYPE, error.operand = BSR_ARG_A, error.value = INT64_C(1) << 40;
    bsr_error_string(&error, full, sizeof full); /* what has no name keeps its number */
    CHECK_STR(full, "BSR_BAD_DTYPE: a: index dtype 1099511627776 is neither i32 nor i64");
    error.status = BSR_BAD_PLAN, error.item = BSR_ITEM_PLAN_OP, error.operand = BSR_ARG_EXEC, error.value = BSR_OP_SOFTMAX;
    error.wanted = BSR_OP_ATTENTION;
    bsr_error_string(&error, full, sizeof full);
    CHECK_STR(full, "BSR_BAD_PLAN: exec: the plan was made for softmax, not for attention");
    error.status = BSR_NO_BACKEND, error.item = BSR_ITEM_DEVICE_MISSING, error.cuda_error = 209;
    CHECK(bsr_error_string(&error, full, sizeof full) < (int)sizeof full && strstr(full, "(CUDA error 209)"));
    error.item = 99999, error.status = -5, error.operand = -1;
    CHECK(bsr_error_string(&error, full, sizeof full) > 0);
}
TEST(supports) {
    const bsr_context *ctx = t_context(0);
    CHECK_INT(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_F32, BSR_F32, 1, 1), 1),
        CHECK_INT(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_I8, BSR_I32, 3, 7), 1);
    CHECK_INT(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_F32, BSR_I32, 1, 1), 0),
        CHECK_INT(bsr_supports(ctx, BSR_OP_DENSE_ADDMM, BSR_F32, BSR_F32, 0, 1), 0);
    CHECK_INT(bsr_supports(ctx, BSR_OP_ATTENTION_BACKWARD, BSR_F32, BSR_F32, 16, 16), 1),
        CHECK_INT(bsr_supports(NULL, BSR_OP_DENSE_ADDMM, BSR_F32, BSR_F32, 1, 1), 0);
    CHECK_INT(bsr_supports(ctx, BSR_OP_SOFTMAX, BSR_I8, BSR_I8, 1, 1), 0),
        CHECK_INT(bsr_supports(ctx, 999, BSR_F32, BSR_F32, 1, 1), 0),
        CHECK_INT(bsr_supports(ctx, BSR_OP_SOFTMAX, 77, -4, 1, 1), 0);
}
/* bsr_supports says yes exactly where a valid call runs, for every pair of types. */
TEST(supports_is_true) {
    static const int ops[] = {BSR_OP_DENSE_ADDMM, BSR_OP_SAMPLED_ADDMM, BSR_OP_SOFTMAX,    BSR_OP_SOFTMAX_BACKWARD,
                              BSR_OP_ATTENTION,   BSR_OP_TO_DENSE,      BSR_OP_FROM_DENSE, BSR_OP_PRUNE,
                              BSR_OP_MATMUL,      BSR_OP_SCATTER_MM,    BSR_OP_MAP,        BSR_OP_REDUCE,
                              BSR_OP_SUM_MM,      BSR_OP_CONV,          BSR_OP_CONV_WEIGHT_GRADIENT,
                              BSR_OP_CHAIN_MM,    BSR_OP_SAMPLED_CHAIN_MM};
    size_t k;
    int in, out;
    for (k = 0; k < BT_COUNT(ops); k++)
        for (in = BSR_F16; in <= BSR_E5M2; in++)
            for (out = BSR_F16; out <= BSR_E5M2; out++) {
                const bsr_context *ctx = t_context(0);
                bsr_exec e = t_exec(0);
                bsr_status status = BSR_BAD_ARGUMENT;
                t_spec s;
                bsr_matrix a, t;
                bsr_dense b, c, x, y, full;
                bt_case("%s, %s to %s", bsr_op_name(ops[k]), bsr_dtype_name(in), bsr_dtype_name(out));
                memset(&s, 0, sizeof s);
                s.dtype = in, s.block_rows = 2, s.block_cols = 3, s.r = 2, s.c = 2, s.nnz = 3, s.kind = FILL_POSITIVE;
                a = t_matrix(&s), t = t_matrix_output(&a, out, PACKED);
                b = t_random(in, 6, 5, ROW, NO_BATCH, 0, FILL_POSITIVE), c = t_output(out, 4, 5, ROW, NO_BATCH);
                x = t_random(in, 4, 7, ROW, NO_BATCH, 0, FILL_POSITIVE), y = t_random(in, 7, 6, ROW, NO_BATCH, 0, FILL_POSITIVE);
                full = t_output(out, 4, 6, ROW, NO_BATCH);
                switch (ops[k]) {
                    case BSR_OP_SUM_MM: {
                        bsr_term term = BSR_ZERO;
                        term.a = &a, term.b = &b, term.alpha = 1, status = bsr_sum_mm(ctx, 0, NULL, &term, 1, NULL, &c, &e);
                        break;
                    }
                    case BSR_OP_CHAIN_MM: { /* all in one type but the result */
                        bsr_dense middle = t_output(in, 4, 5, ROW, NO_BATCH), last = t_output(out, 6, 5, ROW, NO_BATCH);
                        status = bsr_chain_mm(ctx, BSR_TRANS_C, &a, &b, NULL, &middle, 0, NULL, 1, &a, NULL, &last, &e);
                        break;
                    }
                    case BSR_OP_SAMPLED_CHAIN_MM: {
                        bsr_matrix middle = t_matrix_output(&a, in, PACKED);
                        status = bsr_sampled_chain_mm(ctx, 0, 1, &x, &y, NULL, NULL, &middle, 0, NULL, 1, &b, NULL, &c, &e);
                        break;
                    }
                    case BSR_OP_CONV:
                    case BSR_OP_CONV_WEIGHT_GRADIENT: {
                        bsr_dense image = t_random(in, 3, 6, ROW, NO_BATCH, 0, FILL_POSITIVE);
                        bsr_dense dy = t_random(in, 4, 5, ROW, NO_BATCH, 0, FILL_POSITIVE);
                        bsr_conv_shape shape = BSR_ZERO;
                        shape.dims = 1, shape.kernel[0] = 2;
                        status = ops[k] == BSR_OP_CONV
                                     ? bsr_conv(ctx, 0, NULL, 1, 0, &shape, &a, &image, NULL, &c, &e)
                                     : bsr_conv_weight_gradient(ctx, 0, NULL, 1, &shape, &dy, &image, &t, &e);
                        break;
                    }
                    case BSR_OP_DENSE_ADDMM: status = bsr_dense_mm(ctx, 0, &a, &b, &c, &e); break;
                    case BSR_OP_SAMPLED_ADDMM: status = bsr_sampled_addmm(ctx, 0, NULL, 1, &x, &y, &t, &e); break;
                    case BSR_OP_SOFTMAX: status = bsr_softmax(ctx, 1, &a, NULL, &t, &e); break;
                    case BSR_OP_SOFTMAX_BACKWARD: status = bsr_softmax_backward(ctx, 1, &a, &a, &t, &e); break;
                    case BSR_OP_ATTENTION: {
                        bsr_dense q = x, key = bsr_dense_transposed(y);
                        status = bsr_attention(ctx, 0, &q, &key, &b, &a, NULL, &c, NULL, &e);
                        break;
                    }
                    case BSR_OP_TO_DENSE: status = bsr_to_dense(ctx, &a, &full, &e); break;
                    case BSR_OP_MAP: {
                        const bsr_operand none = BSR_ZERO;
                        status = bsr_map(ctx, NULL, 1, &a, 0, none, &t, &e);
                        break;
                    }
                    case BSR_OP_REDUCE: {
                        bsr_dense sums = t_output(out, 4, 1, ROW, NO_BATCH);
                        status = bsr_reduce(ctx, BSR_REDUCE_SUM, BSR_OVER_ROWS, &a, &sums, &e);
                        break;
                    }
                    case BSR_OP_FROM_DENSE:
                    case BSR_OP_PRUNE: {
                        bsr_dense source = t_random(in, 4, 6, ROW, NO_BATCH, 0, FILL_POSITIVE);
                        int32_t crow[3], col[4];
                        double values[24];
                        bsr_matrix m = bsr_matrix_make(0, 0, 2, 3, 4, crow, col, BSR_I32, values, out);
                        status = ops[k] == BSR_OP_PRUNE ? bsr_prune(ctx, bsr_operand_dense(&source), 0.5, 0, &m, &e)
                                                        : bsr_from_dense(ctx, &source, &m, &e);
                        break;
                    }
                    case BSR_OP_MATMUL:
                        status = bsr_matmul(ctx, 0, bsr_operand_sparse(&a), bsr_operand_dense(&b), bsr_operand_dense(&c), &e);
                        break;
                    default: {
                        int64_t ci[] = {0, 1}, pi[] = {0}, qi[] = {0};
                        bsr_dense blocks = t_random(in, 4, 7, ROW, t_batch(1, 1, 0, 0, 0), 0, FILL_POSITIVE);
                        bsr_scatter_indices list;
                        memset(&list, 0, sizeof list);
                        list.format = BSR_SCATTER_MM, list.c_indices = ci, list.c_count = 2, list.p_indices = pi,
                        list.q_indices = qi;
                        list.p_count = list.q_count = 1;
                        t_fill(&full, FILL_POSITIVE);
                        status = bsr_scatter_mm(ctx, &blocks, &y, &list, &full, &e);
                    }
                }
                CHECK(status == BSR_OK || status == BSR_BAD_DTYPE);
                CHECK_INT(bsr_supports(ctx, ops[k], in, out, 2, 3), status == BSR_OK);
            }
}
TEST(constructors) {
    float data[1];
    bsr_dense d = bsr_dense_row_major(data, BSR_F32, 3, 5), c = bsr_dense_col_major(data, BSR_F32, 3, 5),
              t = bsr_dense_transposed(d), b;
    bsr_matrix m;
    int i;
    CHECK(d.row_stride == 5 && d.col_stride == 1 && c.row_stride == 1 && c.col_stride == 3 && d.batch_dims == 0);
    CHECK(t.rows == 5 && t.cols == 3 && t.row_stride == 1 && t.col_stride == 5 && t.data == (void *)data);
    b = bsr_dense_batched(bsr_dense_batched(d, 2, 15), 4, 30);
    CHECK(b.batch_dims == 2 && b.batch[0] == 4 && b.batch[1] == 2 && b.batch_stride[0] == 30 && b.batch_stride[1] == 15);
    for (i = 0; i < 6; i++) b = bsr_dense_batched(b, 1, 0);
    CHECK(b.batch_dims > 4);
    m = bsr_matrix_batched(bsr_matrix_make(6, 12, 2, 3, 7, data, data, BSR_I64, data, BSR_F16), 3, 4, 7, 42);
    CHECK(m.rows == 6 && m.cols == 12 && m.block_rows == 2 && m.block_cols == 3 && m.nnz == 7 && m.index_dtype == BSR_I64 &&
          m.dtype == BSR_F16);
    CHECK(m.batch_dims == 1 && m.batch[0] == 3 && m.crow_batch_stride[0] == 4 && m.col_batch_stride[0] == 7 &&
          m.values_batch_stride[0] == 42);
}

/* Sizes that only a product of them makes too large, in calls that read no array of such a length. */
TEST(immense) {
    const bsr_context *ctx = t_context(0);
    int32_t crow[2] = {0, 0}, col[1] = {0};
    float number[1] = {0};
    uint64_t bytes = 77;
    bsr_exec e = t_exec(0);
    bsr_matrix m = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, number, BSR_F32);
    bsr_dense none;
    bt_case("patterns of a view");
    m = bsr_matrix_batched(bsr_matrix_batched(m, INT64_C(1) << 40, 2, 1, 0), INT64_C(1) << 40, 2, 1, 0);
    CHECK_INT(bsr_transposed_index_size(ctx, &m, &bytes, &e), BSR_OVERFLOW), CHECK_INT(t_error.item, BSR_ITEM_SIZE_OVERFLOW);
    CHECK_INT(bsr_schedule_size(ctx, &m, 2, 0, &bytes, &e), BSR_OVERFLOW), CHECK_INT(t_error.item, BSR_ITEM_SIZE_OVERFLOW);
    CHECK_INT(bytes, 77);
    bt_case("items of a dense form without columns");
    none = bsr_dense_batched(bsr_dense_row_major(number, BSR_F32, 4, 0), INT64_MAX, 0);
    m = bsr_matrix_make(4, 0, 1, 1, 0, bt_alloc(20, 4), NULL, BSR_I32, NULL, BSR_F32), memset(m.crow_indices, 0, 20);
    CHECK_INT(bsr_to_dense(ctx, &m, &none, &e), BSR_OK);
}

/* Empty inner sizes, sums over no items, and an alias that permutes batch dimensions. */
TEST(empty_and_permuted) {
    static char room[4096 + 64];
    char *buffer = room + (64 - (uintptr_t)room % 64) % 64;
    float data[16] = {1, 2, 3, 4}, values[4] = {0, 0, 0, 0}, dense[4] = {1, 1, 1, 1}, out[4];
    int32_t crow[2] = {0, 1}, col[1] = {0};
    int64_t c[2] = {0, 1}, zero[1] = {0};
    uint64_t bytes = 0;
    bsr_scatter_indices x = BSR_ZERO;
    bsr_matrix a = bsr_matrix_make(2, 2, 2, 2, 1, crow, col, BSR_I32, values, BSR_F32);
    bsr_matrix one = bsr_matrix_make(1, 1, 1, 1, 1, crow, col, BSR_I32, values, BSR_F32);
    bsr_dense blocks = bsr_dense_batched(bsr_dense_row_major(values, BSR_F32, 4, 0), 1, 4);
    bsr_dense others = bsr_dense_batched(bsr_dense_row_major(values, BSR_F32, 0, 4), 1, 4);
    bsr_dense acc = bsr_dense_batched(bsr_dense_row_major(data, BSR_F32, 4, 4), 1, 16);
    bsr_dense b = bsr_dense_row_major(dense, BSR_F32, 2, 2), db = bsr_dense_row_major(out, BSR_F32, 2, 2);
    bsr_dense dc = bsr_dense_batched(bsr_dense_row_major(dense, BSR_F32, 2, 2), 0, 4);
    bsr_dense scalar = bsr_dense_batched(bsr_dense_batched(bsr_dense_row_major(dense, BSR_F32, 1, 1), 2, 0), 2, 0);
    bsr_dense to = bsr_dense_batched(bsr_dense_batched(bsr_dense_row_major(data, BSR_F32, 1, 1), 2, 1), 2, 2);
    bsr_dense from = bsr_dense_batched(bsr_dense_batched(bsr_dense_row_major(data, BSR_F32, 1, 1), 2, 2), 2, 1);
    const bsr_operand none = {NULL, NULL};
    bsr_context *ctx = NULL;
    CHECK(bsr_create(NULL, &ctx, NULL) == BSR_OK);
    if (!ctx) return;
    x.c_indices = c, x.p_indices = zero, x.q_indices = zero, x.c_count = 2, x.p_count = x.q_count = 1, x.format = BSR_SCATTER_MM;
    CHECK_INT(bsr_scatter_mm(ctx, &blocks, &others, &x, &acc, NULL), BSR_OK);
    CHECK(data[0] == 1 && data[3] == 4);
    CHECK_INT(bsr_schedule_size(ctx, &a, 1, 1, &bytes, NULL), BSR_OK);
    CHECK(bytes <= 4096);
    CHECK_INT(bsr_build_schedule(ctx, &a, 1, 1, buffer, bytes, NULL), BSR_OK);
    a.schedule = buffer;
    CHECK_INT(bsr_matmul_backward(ctx, 0, bsr_operand_sparse(&a), bsr_operand_dense(&b), bsr_operand_dense(&dc), none,
                                  bsr_operand_dense(&db), NULL),
              BSR_BAD_BATCH);
    CHECK_INT(bsr_dense_addmm(ctx, 1, &from, 1, 0, &one, &scalar, NULL, &to, NULL), BSR_OVERLAP);
    CHECK_INT(bsr_dense_addmm(ctx, 1, &to, 1, 0, &one, &scalar, NULL, &to, NULL), BSR_OK);
    CHECK(data[0] == 1 && data[1] == 2 && data[2] == 3 && data[3] == 4);
    bsr_destroy(ctx);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"all_operations_are_called", all_operations_are_called},
        {"valid_calls", valid_calls},
        {"timing", timing},
        {"timing_ends", timing_ends},
        {"every_call", every_call},
        {"bad_products", bad_products},
        {"bad_gradients", bad_gradients},
        {"matmul_operands", matmul_operands},
        {"bad_integers", bad_integers},
        {"bad_scatter", bad_scatter},
        {"bad_gated", bad_gated},
        {"bad_routings", bad_routings},
        {"bad_sampled", bad_sampled},
        {"bad_rows", bad_rows},
        {"bad_maps", bad_maps}, {"bad_attention", bad_attention},
        {"bad_attention_backward", bad_attention_backward},
        {"bad_merges", bad_merges},
        {"bad_conversions", bad_conversions},
        {"structure_mutators", structure_mutators},
        {"any_number_anywhere", any_number_anywhere},
        {"any_pointer", any_pointer},
        {"what_was_wanted", what_was_wanted},
        {"overlaps", overlaps},
        {"allocation_failures", allocation_failures},
        {"workspace_replaces_allocator", workspace_replaces_allocator},
        {"contexts", contexts},
        {"names", names},
        {"device_status", device_status},
        {"supports", supports},
        {"supports_is_true", supports_is_true},
        {"constructors", constructors},
        {"immense", immense},
        {"empty_and_permuted", empty_and_permuted},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
