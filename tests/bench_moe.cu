/* bench_moe.cu: layers of mixtures of experts, step by step and whole, forwards and backwards, and decoding, where every expert's
   weights are read for a few tokens. bench_moe [--csv FILE] [CASE...]; the peer is tests/bench_moe.py. Random-normal data, random
   experts (top-k of random scores); medians of warm runs as graphs; weights of decoding are more than the L2 holds. Linked with
   the library: an object that holds it (tests/bench.mk). */
#include "bench.cuh"

#include "bsrsparse.h"

#include <cstring>
#include <functional>
#include <string>

static bsr_context *ctx;
static cudaStream_t stream;
static FILE *csv;
static double copy_rate; /* bytes per microsecond */

static void line(const std::string &of, const std::string &step, double ms, double flop, double bytes, const char *runs) {
    const double us = ms * 1e3;
    printf("%-34s %-18s %9.1f us %8.1f TFLOP/s %6.2f TB/s %5.2f of copies  %s\n", of.c_str(), step.c_str(), us,
           ms > 0 ? flop / us * 1e-6 : 0, ms > 0 ? bytes / us * 1e-6 : 0, ms > 0 ? bytes / us / copy_rate : 0, runs);
    if (csv) fprintf(csv, "\"%s\",\"%s\",%.2f,%.2f,%.3f\n", of.c_str(), step.c_str(), us, flop / us * 1e-6, bytes / us * 1e-6);
    fflush(stdout);
}
static __global__ void copy_words(uint4 *to, const uint4 *from, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) to[i] = from[i];
}

/* A layer in bf16: what >>moe of bsrsparse.h lists. */
struct layer {
    int64_t tokens, slots, experts, hidden, ffn, block_rows, rows, blocks, columns;
    scratch w;
    bsr_moe_routing r = BSR_ZERO;
    bsr_dense choice, weights, x, w1, w3, w2, x_rows, y_rows, y, dy, d_y, d_weights, dw1, dw3, dw2, dx_rows, dx, w1t, w3t, w2t;
    bsr_matrix h, g, u, dh, dg, du, product;
    void *workspace = nullptr;
    uint64_t workspace_bytes = 0;
    bsr_plan plan = BSR_ZERO;
    typedef std::function<bsr_status(const bsr_exec *)> step;

    bsr_dense dense(int64_t rows_, int64_t cols, bool filled = true) {
        void *p = filled ? (void *)w.numbers<__nv_bfloat16>(rows_ * cols) : w.bytes((size_t)(rows_ * cols * 2));
        return bsr_dense_row_major(p, BSR_BF16, rows_, cols);
    }
    bsr_matrix like(const bsr_matrix &m) {
        bsr_matrix o = m;
        o.values = w.bytes((size_t)(m.nnz * m.block_rows * m.block_cols * 2));
        return o;
    }
    int32_t *words(int64_t n) { return (int32_t *)w.bytes((size_t)n * 4); }
    layer(int64_t t, int64_t k, int64_t e, int64_t hid, int64_t f, int64_t br, bool backward, bool rows_of_weights)
        : tokens(t), slots(k), experts(e), hidden(hid), ffn(f), block_rows(br) {
        std::mt19937_64 engine(5);
        std::vector<int32_t> chosen((size_t)(t * k));
        std::vector<float> share((size_t)(t * k), 1.0f / (float)k);
        for (int64_t i = 0; i < t; i++)
            for (int64_t s = 0; s < k; s++)
                for (bool again = true; again;) {
                    chosen[(size_t)(i * k + s)] = (int32_t)(engine() % (uint64_t)e), again = false;
                    for (int64_t o = 0; o < s; o++) again |= chosen[(size_t)(i * k + o)] == chosen[(size_t)(i * k + s)];
                }
        rows = bsr_moe_rows(t, k, e, br), columns = e * f, blocks = rows / br * (f / 128);
        r.tokens = t, r.slots = k, r.experts = e, r.rows = rows, r.block_rows = br;
        r.counts = words(e), r.offsets = words(e + 1), r.row_of = words(t * k), r.slot_of = words(rows);
        r.status = (uint64_t *)w.bytes(8);
        choice = bsr_dense_row_major(w.copy(chosen), BSR_I32, t, k), weights = bsr_dense_row_major(w.copy(share), BSR_F32, t, k);
        x = dense(t, hid), y = dense(t, hid, false), x_rows = dense(rows, hid, false), y_rows = dense(rows, hid, false);
        w1 = dense(hid, columns), w3 = dense(hid, columns), w2 = dense(columns, hid);
        if (!rows_of_weights)
            w1 = bsr_dense_col_major(w1.data, BSR_BF16, hid, columns), w3 = bsr_dense_col_major(w3.data, BSR_BF16, hid, columns);
        h = bsr_matrix_make(rows, columns, br, 128, blocks, words(rows / br + 1), words(blocks), BSR_I32,
                            w.bytes((size_t)(blocks * br * 256)), BSR_BF16);
        if (backward) more();
        check(cudaDeviceSynchronize());
    }
    void more(void) {
        uint64_t bytes = 0;
        bsr_exec e = BSR_ZERO;
        g = like(h), u = like(h), dh = like(h), dg = like(h), du = like(h), product = like(h);
        dy = dense(tokens, hidden), d_y = dense(rows, hidden, false), dx_rows = dense(rows, hidden, false);
        dx = dense(tokens, hidden, false),
        d_weights = bsr_dense_row_major(w.bytes((size_t)(tokens * slots * 4)), BSR_F32, tokens, slots);
        dw1 = dense(columns, hidden, false), dw3 = dense(columns, hidden, false), dw2 = dense(columns, hidden, false);
        w1t = bsr_dense_transposed(w1), w3t = bsr_dense_transposed(w3), w2t = bsr_dense_transposed(w2);
        bsr_transposed_index_size(ctx, &h, &bytes, &e);
        index = w.bytes((size_t)bytes), index_bytes = bytes;
    }
    void *index = nullptr;
    uint64_t index_bytes = 0;
    /* The call with the workspace that it names. */
    int call(const step &s) {
        bsr_error error;
        bsr_exec e = BSR_ZERO;
        e.stream = stream, e.error = &error, e.workspace = workspace, e.workspace_bytes = workspace_bytes;
        if (s(&e) == BSR_OK) return 0;
        char text[200];
        bsr_error_string(&error, text, sizeof text), printf("%s\n", text);
        return 1;
    }
    void reserve(const step &s) {
        bsr_exec e = BSR_ZERO;
        e.query = &plan;
        if (s(&e) == BSR_OK && plan.workspace_bytes > workspace_bytes)
            workspace = w.bytes((size_t)plan.workspace_bytes + 128), workspace = (void *)(((uintptr_t)workspace + 63) / 64 * 64),
            workspace_bytes = plan.workspace_bytes;
    }
    std::vector<std::pair<std::string, step>> forward(bool keep) {
        const bsr_matrix *kg = keep ? &g : nullptr, *ku = keep ? &u : nullptr;
        return {{"route", [=](const bsr_exec *e) { return bsr_moe_route(ctx, &choice, &r, e); }},
                {"topology",
                 [=](const bsr_exec *e) {
                     bsr_matrix m = h;
                     return bsr_moe_topology(ctx, &r, &m, e);
                 }},
                {"gather", [=](const bsr_exec *e) { return bsr_moe_gather(ctx, &r, &x, nullptr, &x_rows, e); }},
                {"gated unit",
                 [=](const bsr_exec *e) { return bsr_sampled_gated(ctx, BSR_ACT_SILU, &x_rows, &w1, &w3, &h, kg, ku, e); }},
                {"down", [=](const bsr_exec *e) { return bsr_dense_mm(ctx, 0, &h, &w2, &y_rows, e); }},
                {"scatter", [=](const bsr_exec *e) { return bsr_moe_scatter(ctx, 0, nullptr, &r, &y_rows, &weights, &y, e); }}};
    }
    std::vector<std::pair<std::string, step>> backward(void) {
        bsr_map_options silu = BSR_ZERO, slope = BSR_ZERO, times = BSR_ZERO;
        silu.function = slope.function = BSR_ACT_SILU, silu.combine = times.combine = BSR_COMBINE_MUL, silu.flags = BSR_MAP_AFTER;
        slope.combine = BSR_COMBINE_GRADIENT;
        const auto indexed = [=](bsr_matrix m) {
            m.transposed_index = index;
            return m;
        };
        return {
            {"index", [=](const bsr_exec *e) { return bsr_moe_transposed_index(ctx, &r, &h, index, index_bytes, e); }},
            {"gather dy", [=](const bsr_exec *e) { return bsr_moe_gather(ctx, &r, &dy, &weights, &d_y, e); }},
            {"d weights", [=](const bsr_exec *e) { return bsr_moe_weight_gradient(ctx, &r, &y_rows, &dy, &d_weights, e); }},
            {"dW2",
             [=](const bsr_exec *e) {
                 const bsr_matrix m = indexed(h);
                 return bsr_dense_mm(ctx, BSR_TRANS_A, &m, &d_y, &dw2, e);
             }},
            {"dh", [=](const bsr_exec *e) { return bsr_sampled_addmm(ctx, 0, nullptr, 1, &d_y, &w2t, &dh, e); }},
            {"du", [=](const bsr_exec *e) { return bsr_map(ctx, &silu, 1, &g, 1, bsr_operand_sparse(&dh), &du, e); }},
            {"u dh", [=](const bsr_exec *e) { return bsr_map(ctx, &times, 1, &u, 1, bsr_operand_sparse(&dh), &product, e); }},
            {"dg", [=](const bsr_exec *e) { return bsr_map(ctx, &slope, 1, &g, 1, bsr_operand_sparse(&product), &dg, e); }},
            {"dW1",
             [=](const bsr_exec *e) {
                 const bsr_matrix m = indexed(dg);
                 return bsr_dense_mm(ctx, BSR_TRANS_A, &m, &x_rows, &dw1, e);
             }},
            {"dW3",
             [=](const bsr_exec *e) {
                 const bsr_matrix m = indexed(du);
                 return bsr_dense_mm(ctx, BSR_TRANS_A, &m, &x_rows, &dw3, e);
             }},
            {"dX",
             [=](const bsr_exec *e) {
                 bsr_term t[2] = {};
                 t[0].a = &dg, t[0].b = &w1t, t[1].a = &du, t[1].b = &w3t, t[0].alpha = t[1].alpha = 1;
                 return bsr_sum_mm(ctx, 0, nullptr, t, 2, nullptr, &dx_rows, e);
             }},
            {"scatter dx", [=](const bsr_exec *e) { return bsr_moe_scatter(ctx, 0, nullptr, &r, &dx_rows, nullptr, &dx, e); }}};
    }
};
static void time_steps(layer *l, const std::string &name, const std::vector<std::pair<std::string, layer::step>> &all_steps,
                       const char *all) {
    const double product = 2.0 * (double)(l->tokens * l->slots * l->hidden * l->ffn),
                 weights = 2.0 * (double)(l->columns * l->hidden);
    const double moved = 2.0 * (double)(l->tokens * l->slots * l->hidden), values = 2.0 * (double)(l->tokens * l->slots * l->ffn);
    double flops = 0, bytes = 0;
    std::vector<std::pair<std::string, layer::step>> steps; /* what a build lacks is named and left out */
    for (const auto &s : all_steps) {
        l->reserve(s.second);
        if (l->call(s.second) == 0) steps.push_back(s);
    }
    for (const auto &s : steps) {
        const std::string &n = s.first;
        const double f = n == "gated unit" || n == "dX"                             ? 2 * product
                         : n == "down" || n[0] == 'd' && (n[1] == 'W' || n == "dh") ? product
                                                                                    : 0;
        double b = f / product * weights;
        if (n.compare(0, 6, "gather") == 0) b = moved + (double)(l->rows - l->tokens * l->slots) * 0;
        if (n.compare(0, 7, "scatter") == 0 || n == "d weights") b = moved;
        if (n == "du" || n == "u dh" || n == "dg") b = 3 * values;
        char runs[160] = "";
        l->reserve(s.second);
        bsr_plan_string(&l->plan, runs, sizeof runs);
        runs[60] = 0;
        line(name, n, timed(stream, [&] { return l->call(s.second); }), f, b, f > 0 ? runs : "");
        flops += f, bytes += f > 0 ? b : 0;
    }
    const double ms = timed(stream, [&] {
        int bad = 0;
        for (const auto &s : steps) bad |= l->call(s.second);
        return bad;
    });
    line(name, all, ms, flops, bytes, "");
    printf("%-34s %-18s %.0f tokens a second\n", name.c_str(), all, (double)l->tokens / ms * 1e3);
}
static void training(const char *name, int64_t t, int64_t k, int64_t e, int64_t h, int64_t f) {
    layer l(t, k, e, h, f, 128, true, false);
    time_steps(&l, name, l.forward(false), "layer");
    time_steps(&l, name, l.forward(true), "layer, kept");
    time_steps(&l, name, l.backward(), "backward");
    /* in place of the gated unit: two sampled products */
    layer::step two[2] = {[&](const bsr_exec *x) { return bsr_sampled_addmm(ctx, 0, nullptr, 1, &l.x_rows, &l.w1, &l.g, x); },
                          [&](const bsr_exec *x) { return bsr_sampled_addmm(ctx, 0, nullptr, 1, &l.x_rows, &l.w3, &l.u, x); }};
    line(name, "two sampled", timed(stream, [&] { return l.call(two[0]) | l.call(two[1]); }), 4.0 * (double)(t * k * h * f), 0,
         "");
    /* in place of the sum: two products, the first one rounded in between */
    layer::step apart[2] = {
        [&](const bsr_exec *x) { return bsr_dense_mm(ctx, 0, &l.dg, &l.w1t, &l.dx_rows, x); },
        [&](const bsr_exec *x) { return bsr_dense_addmm(ctx, 1, &l.dx_rows, 1, 0, &l.du, &l.w3t, NULL, &l.dx_rows, x); }};
    line(name, "dX, two products", timed(stream, [&] { return l.call(apart[0]) | l.call(apart[1]); }),
         4.0 * (double)(t * k * h * f), 0, "");
    l.w1 = bsr_dense_row_major(l.w1.data, BSR_BF16, h, l.columns), l.w3 = bsr_dense_row_major(l.w3.data, BSR_BF16, h, l.columns);
    const layer::step rows = l.forward(false)[3].second;
    line(name, "gated, W by rows", timed(stream, [&] { return l.call(rows); }), 4.0 * (double)(t * k * h * f), 0, "");
}
static void decoding(const char *name, int64_t t, int64_t k, int64_t e, int64_t h, int64_t f, int64_t br) {
    layer l(t, k, e, h, f, br, false, false);
    char text[100];
    snprintf(text, sizeof text, "%s, %d tokens, blocks of %d", name, (int)t, (int)br);
    time_steps(&l, text, l.forward(false), "layer");
    char runs[160] = "";
    const layer::step one = [&](const bsr_exec *x) { return bsr_sampled_addmm(ctx, 0, nullptr, 1, &l.x_rows, &l.w1, &l.h, x); };
    l.reserve(one), bsr_plan_string(&l.plan, runs, sizeof runs), runs[60] = 0;
    line(text, "one sampled", timed(stream, [&] { return l.call(one); }), 2.0 * (double)(t * k * h * f),
         2.0 * (double)(h * e * f), runs);
}

int main(int argc, char **argv) {
    bsr_error error;
    const size_t bytes = (size_t)1 << 30;
    std::string wanted;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--csv") && i + 1 < argc) csv = fopen(argv[++i], "w");
        else wanted += std::string(argv[i]) + " ";
    }
    check(cudaStreamCreate(&stream));
    if (bsr_create(NULL, &ctx, &error)) return printf("no context\n"), 1;
    {
        scratch w;
        void *to = w.bytes(bytes), *from = w.bytes(bytes);
        copy_rate = 2.0 * (double)bytes /
                    timed(stream,
                          [&] {
                              copy_words<<<132 * 16, 512, 0, stream>>>((uint4 *)to, (const uint4 *)from, (int64_t)(bytes / 16));
                              return 0;
                          }) *
                    1e-3;
        printf("copies %.2f TB/s\n", copy_rate * 1e-6);
    }
    const auto wants = [&](const char *what) { return wanted.empty() || wanted.find(what) != std::string::npos; };
    if (wants("qwen")) training("Qwen3-30B, 32768 tokens", 32768, 8, 128, 2048, 768);
    if (wants("mixtral")) training("Mixtral-8x7B, 8192 tokens", 8192, 2, 8, 4096, 14336);
    if (wants("decode")) {
        for (int64_t t : {1, 16, 64, 128}) decoding("Qwen3-30B", t, 8, 128, 2048, 768, 16);
        decoding("Qwen3-30B", 256, 8, 128, 2048, 768, 32), decoding("Qwen3-30B", 256, 8, 128, 2048, 768, 16);
        decoding("Qwen3-30B", 512, 8, 128, 2048, 768, 64);
        decoding("Mixtral-8x7B", 32, 2, 8, 4096, 14336, 16);
        decoding("DeepSeek-V3, 64 experts", 128, 8, 64, 7168, 2048, 32);
    }
    bsr_destroy(ctx);
    return 0;
}
