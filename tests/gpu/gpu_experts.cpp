/* gpu_experts.cpp: whole layers of mixtures of experts on the device: captured once, sized by capacity, replayed with other
   tokens and experts; what the routing's word tells. Each replay finds what the one before has left, the first one NaN. */
#define GM_NO_REDIRECT
#include "mirror.h"
#include "../ref64.h"
#include "../ref_moe.h"

#include <vector>

namespace {
struct memory { /* of the device, poisoned; goes away with the case */
    std::vector<void *> all;
    ~memory() {
        gm_cuda("before memory is freed", cudaDeviceSynchronize());
        for (void *p : all) cudaFree(p);
    }
    void *bytes(size_t n) {
        void *p = nullptr;
        gm_cuda("cudaMalloc", cudaMalloc(&p, n + 256));
        gm_fill(p, 0xff, n + 256);
        return all.push_back(p), p;
    }
};
struct mixture {
    memory m;
    int dtype, act;
    int64_t tokens, slots, experts, h, f, block_rows, block_cols, rows, columns, blocks;
    bsr_moe_routing r = BSR_ZERO;
    bsr_dense choice, x, weights, w1, w3, w2, dy; /* on the host */
    bsr_dense d_choice, d_x, d_weights, d_w1, d_w3, d_w2, d_dy, x_rows, y_rows, y, dy_rows, dw, dw1, dw3, dw2, dx_rows, dx;
    bsr_matrix hidden, g, u, dh, dg, du, product;
    void *index, *workspace;
    uint64_t index_bytes = 0;
    static constexpr uint64_t ROOM = 4 << 20;

    bsr_dense device(const bsr_dense &d) {
        bsr_dense c = d;
        c.data = m.bytes((size_t)((d.rows - 1) * d.row_stride + (d.cols - 1) * d.col_stride + 1) * bsr_dtype_size(d.dtype));
        return c;
    }
    bsr_dense rows_of(int64_t n, int64_t cols) { return device(bsr_dense_row_major(nullptr, dtype, n, cols)); }
    bsr_matrix like(const bsr_matrix &a) {
        bsr_matrix o = a;
        o.values = m.bytes((size_t)(blocks * block_rows * block_cols) * bsr_dtype_size(dtype));
        return o;
    }
    void upload(const bsr_dense &from, const bsr_dense &to) {
        const size_t n = (size_t)((from.rows - 1) * from.row_stride + (from.cols - 1) * from.col_stride + 1);
        gm_put(to.data, from.data, n * bsr_dtype_size(from.dtype));
    }
    bsr_dense download(const bsr_dense &from) {
        bsr_dense d = t_output(from.dtype, from.rows, from.cols, ROW, NO_BATCH);
        gm_cuda("cudaMemcpy", cudaMemcpyAsync(d.data, from.data, (size_t)(d.rows * d.cols) * bsr_dtype_size(d.dtype),
                                              cudaMemcpyDeviceToHost, gm.stream));
        gm_cuda("copying", cudaStreamSynchronize(gm.stream));
        return d;
    }
    mixture(int dtype_, int64_t t, int64_t k, int64_t e, int64_t h_, int64_t f_, int64_t br, int64_t bc, int64_t capacity)
        : dtype(dtype_), act(BSR_ACT_SILU), tokens(t), slots(k), experts(e), h(h_), f(f_), block_rows(br), block_cols(bc) {
        bsr_exec none = BSR_ZERO;
        rows = capacity ? capacity : bsr_moe_rows(t, k, e, br), columns = e * f, blocks = rows / br * (f / bc);
        r.tokens = t, r.slots = k, r.experts = e, r.rows = rows, r.block_rows = br;
        r.counts = (int32_t *)m.bytes((size_t)e * 4), r.offsets = (int32_t *)m.bytes((size_t)(e + 1) * 4);
        r.row_of = (int32_t *)m.bytes((size_t)(t * k) * 4), r.slot_of = (int32_t *)m.bytes((size_t)rows * 4);
        r.status = (uint64_t *)m.bytes(8);
        choice = t_random(BSR_I32, t, k, ROW, NO_BATCH, 0, FILL_INTEGER),
        x = t_random(dtype, t, h, ROW, NO_BATCH, 0, FILL_SIGNED);
        weights = t_random(dtype, t, k, ROW, NO_BATCH, 0, FILL_POSITIVE),
        dy = t_random(dtype, t, h, ROW, NO_BATCH, 0, FILL_SIGNED);
        w1 = t_random(dtype, h, columns, COL, NO_BATCH, 0, FILL_SIGNED),
        w3 = t_random(dtype, h, columns, COL, NO_BATCH, 0, FILL_SIGNED);
        w2 = t_random(dtype, columns, h, ROW, NO_BATCH, 0, FILL_SIGNED);
        d_choice = device(choice), d_x = device(x), d_weights = device(weights), d_w1 = device(w1), d_w3 = device(w3);
        d_w2 = device(w2), d_dy = device(dy), x_rows = rows_of(rows, h), y_rows = rows_of(rows, h), y = rows_of(t, h);
        dy_rows = rows_of(rows, h), dw = rows_of(t, k), dw1 = rows_of(columns, h), dw3 = rows_of(columns, h);
        dw2 = rows_of(columns, h), dx_rows = rows_of(rows, h), dx = rows_of(t, h);
        hidden = bsr_matrix_make(rows, columns, br, bc, blocks, m.bytes((size_t)(rows / br + 1) * 4), m.bytes((size_t)blocks * 4),
                                 BSR_I32, nullptr, dtype);
        hidden = like(hidden), g = like(hidden), u = like(hidden), dh = like(hidden), dg = like(hidden), du = like(hidden);
        product = like(hidden);
        bsr_transposed_index_size(gm.ctx, &hidden, &index_bytes, &none);
        index = m.bytes((size_t)index_bytes), workspace = m.bytes(ROOM);
        upload(w1, d_w1), upload(w3, d_w3), upload(w2, d_w2);
        all();
    }
    /* New tokens, experts and gradients. */
    void all(void) { upload(choice, d_choice), upload(x, d_x), upload(weights, d_weights), upload(dy, d_dy); }
    void redraw(int kind) {
        t_fill(&x, FILL_SIGNED), t_fill(&dy, FILL_SIGNED), t_fill(&weights, FILL_POSITIVE);
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t k = 0; k < slots; k++)
                t_set(&choice, 0, i, k,
                      (double)(kind == 0   ? bt_below(experts)
                               : kind == 1 ? experts - 1
                               : kind == 2 ? -1
                               : kind == 3 ? bt_below(2)
                                           : bt_below(1 + bt_below(experts))));
        all();
    }
    bsr_status run(bsr_exec *e) {
        bsr_map_options silu = BSR_ZERO, slope = BSR_ZERO, times = BSR_ZERO;
        bsr_dense w1t = bsr_dense_transposed(d_w1), w3t = bsr_dense_transposed(d_w3), w2t = bsr_dense_transposed(d_w2);
        bsr_term terms[2] = {};
        bsr_matrix pattern = hidden;
        const bsr_context *c = gm.ctx;
        silu.function = slope.function = act, silu.combine = times.combine = BSR_COMBINE_MUL, silu.flags = BSR_MAP_AFTER;
        slope.combine = BSR_COMBINE_GRADIENT;
        terms[0].a = &dg, terms[0].b = &w1t, terms[1].a = &du, terms[1].b = &w3t, terms[0].alpha = terms[1].alpha = 1;
#define STEP(call)                   \
    do {                             \
        const bsr_status s_ = call;  \
        if (s_ != BSR_OK) return s_; \
    } while (0)
        STEP(bsr_moe_route(c, &d_choice, &r, e));
        STEP(bsr_moe_topology(c, &r, &pattern, e));
        STEP(bsr_moe_transposed_index(c, &r, &hidden, index, index_bytes, e));
        STEP(bsr_moe_gather(c, &r, &d_x, nullptr, &x_rows, e));
        STEP(bsr_sampled_gated(c, act, &x_rows, &d_w1, &d_w3, &hidden, &g, &u, e));
        STEP(bsr_dense_mm(c, 0, &hidden, &d_w2, &y_rows, e));
        STEP(bsr_moe_scatter(c, 0, nullptr, &r, &y_rows, &d_weights, &y, e));
        STEP(bsr_moe_gather(c, &r, &d_dy, &d_weights, &dy_rows, e));
        STEP(bsr_moe_weight_gradient(c, &r, &y_rows, &d_dy, &dw, e));
        hidden.transposed_index = dg.transposed_index = du.transposed_index = index;
        STEP(bsr_dense_mm(c, BSR_TRANS_A, &hidden, &dy_rows, &dw2, e));
        STEP(bsr_sampled_addmm(c, 0, nullptr, 1, &dy_rows, &w2t, &dh, e));
        STEP(bsr_map(c, &silu, 1, &g, 1, bsr_operand_sparse(&dh), &du, e));
        STEP(bsr_map(c, &times, 1, &u, 1, bsr_operand_sparse(&dh), &product, e));
        STEP(bsr_map(c, &slope, 1, &g, 1, bsr_operand_sparse(&product), &dg, e));
        STEP(bsr_dense_mm(c, BSR_TRANS_A, &dg, &x_rows, &dw1, e));
        STEP(bsr_dense_mm(c, BSR_TRANS_A, &du, &x_rows, &dw3, e));
        STEP(bsr_sum_mm(c, 0, nullptr, terms, 2, nullptr, &dx_rows, e));
        STEP(bsr_moe_scatter(c, 0, nullptr, &r, &dx_rows, nullptr, &dx, e));
        return BSR_OK;
#undef STEP
    }
    /* What the last run has left, against float64; slots that found no row are left out there. */
    void look(void) {
        std::vector<int64_t> expert((size_t)(tokens * slots + 1));
        std::vector<int32_t> row((size_t)(tokens * slots + 1));
        rm_layer l;
        gm_cuda("cudaMemcpy",
                cudaMemcpyAsync(row.data(), r.row_of, (size_t)(tokens * slots) * 4, cudaMemcpyDeviceToHost, gm.stream));
        gm_cuda("copying", cudaStreamSynchronize(gm.stream));
        for (int64_t i = 0; i < tokens * slots; i++)
            expert[(size_t)i] = row[(size_t)i] < 0 ? -1 : (int64_t)t_get(&choice, 0, i / slots, i % slots);
        memset(&l, 0, sizeof l);
        l.tokens = tokens, l.slots = slots, l.experts = experts, l.h = h, l.f = f, l.act = act, l.dtype = dtype;
        l.expert = expert.data(), l.x = rm_dense(&x), l.weights = rm_dense(&weights), l.w1 = rm_dense(&w1), l.w3 = rm_dense(&w3);
        l.w2 = rm_dense(&w2), l.dy = rm_dense(&dy);
        rm_forward(&l), rm_backward(&l);
        const bsr_dense of[] = {download(y), download(dw), download(dw2), download(dw1), download(dw3), download(dx)};
        RM_COMPARE(&of[0], &l.out), RM_COMPARE(&of[1], &l.d_weights), RM_COMPARE(&of[2], &l.d_w2);
        RM_COMPARE(&of[3], &l.d_w1), RM_COMPARE(&of[4], &l.d_w3), RM_COMPARE(&of[5], &l.dx);
    }
    uint64_t told(void) {
        uint64_t word = 0;
        gm_cuda("cudaMemcpy", cudaMemcpyAsync(&word, r.status, 8, cudaMemcpyDeviceToHost, gm.stream));
        gm_cuda("copying", cudaStreamSynchronize(gm.stream));
        return word;
    }
};
} /* namespace */

TEST(layers_replayed) {
    static const int64_t sides[][2] = {{128, 128}, {16, 128}, {64, 128}, {32, 128}, {8, 4}};
    for (auto &side : sides)
        for (int dtype : {BSR_BF16, BSR_F16, BSR_F32}) {
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t replay = nullptr;
            bsr_error error;
            bsr_exec e = BSR_ZERO;
            bt_case("%s, blocks of %d x %d", bsr_dtype_name(dtype), (int)side[0], (int)side[1]);
            if (!gm_compiled(dtype)) {
                bt_skip("the build does not hold the type");
                continue;
            }
            mixture x(dtype, 40, 2, 5, 72, 128, side[0], side[1], 0);
            e.stream = gm.stream, e.error = &error, e.workspace = x.workspace, e.workspace_bytes = mixture::ROOM;
            gm_cuda("starting a capture", cudaStreamBeginCapture(gm.stream, cudaStreamCaptureModeGlobal));
            const bsr_status status = x.run(&e);
            const cudaError_t ended = cudaStreamEndCapture(gm.stream, &graph);
            CHECK_INT(status, BSR_OK), CHECK_INT(ended, cudaSuccess);
            if (status != BSR_OK) {
                char text[200];
                bsr_error_string(&error, text, sizeof text), bt_fail(__FILE__, __LINE__, "%s", text);
            }
            if (status == BSR_OK && ended == cudaSuccess && cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess) {
                for (int kind = 0; kind < 5; kind++) {
                    x.redraw(kind);
                    CHECK_INT(cudaGraphLaunch(replay, gm.stream), cudaSuccess);
                    gm_cuda("after a replay", cudaStreamSynchronize(gm.stream));
                    CHECK_INT(x.told(), 0);
                    x.look();
                }
                cudaGraphExecDestroy(replay);
            } else bt_fail(__FILE__, __LINE__, "no graph");
            if (graph) cudaGraphDestroy(graph);
            (void)cudaGetLastError();
        }
}
/* What has no row: the first slot of them is told, the others' results are right. */
TEST(layers_without_room) {
    for (int many = 0; many < 2; many++) {
        bsr_error error;
        bsr_exec e = BSR_ZERO;
        bt_case("no room, %s", many ? "several CTAs" : "one CTA");
        mixture x(BSR_F32, many ? 3000 : 40, 2, 5, 8, 4, 8, 4, many ? 4000 : 48);
        e.stream = gm.stream, e.error = &error, e.workspace = x.workspace, e.workspace_bytes = mixture::ROOM;
        x.redraw(0);
        CHECK_INT(x.run(&e), BSR_OK);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        int64_t first = -1;
        std::vector<int64_t> count((size_t)x.experts, 0), begin((size_t)x.experts + 1, 0);
        for (int64_t i = 0; i < x.tokens * x.slots; i++) count[(size_t)t_get(&x.choice, 0, i / x.slots, i % x.slots)]++;
        for (int64_t k = 0; k < x.experts; k++) begin[(size_t)k + 1] = begin[(size_t)k] + (count[(size_t)k] + 7) / 8 * 8;
        std::vector<int64_t> at = begin;
        for (int64_t i = 0; i < x.tokens * x.slots && first < 0; i++)
            if (at[(size_t)t_get(&x.choice, 0, i / x.slots, i % x.slots)]++ >= x.rows) first = i;
        CHECK_INT(bsr_device_status(x.told(), &error), BSR_CAPACITY);
        CHECK_INT(error.item, BSR_ITEM_MOE_CAPACITY), CHECK_INT(error.index, first);
        if (!many) x.look();
    }
}
TEST(experts_that_are_not_there) {
    for (int many = 0; many < 2; many++) {
        bsr_error error;
        bsr_exec e = BSR_ZERO;
        bt_case("no such expert, %s", many ? "several CTAs" : "one CTA");
        mixture x(BSR_F32, many ? 3000 : 40, 2, 5, 8, 4, 8, 4, 0);
        e.stream = gm.stream, e.error = &error, e.workspace = x.workspace, e.workspace_bytes = mixture::ROOM;
        x.redraw(0), t_set(&x.choice, 0, 7, 1, 5), t_set(&x.choice, 0, 9, 0, 1 << 30), x.all();
        CHECK_INT(x.run(&e), BSR_OK);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        CHECK_INT(bsr_device_status(x.told(), &error), BSR_BAD_STRUCTURE);
        CHECK_INT(error.item, BSR_ITEM_MOE_EXPERT), CHECK_INT(error.index, 15);
        if (!many) x.look();
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"layers_replayed", layers_replayed},
                                    {"layers_without_room", layers_without_room},
                                    {"experts_that_are_not_there", experts_that_are_not_there}};
    return gm_direct(argc, argv, tests, BT_COUNT(tests));
}
