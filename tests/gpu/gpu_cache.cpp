/* gpu_cache.cpp: a cache of keys and values on the GPU: bits that depend on the plan alone, whatever the batch, the workspace,
   the grid and the order of pages; every way to cut keys; graphs that serve lengths which change. */
#include "jobs.h"

namespace {
template <class T> struct array {
    T *at = nullptr;
    size_t n;
    explicit array(size_t count) : n(count) { gm_cuda("in cudaMalloc", cudaMalloc((void **)&at, n * sizeof(T) + 16)); }
    explicit array(const std::vector<T> &v) : array(v.size()) { set(v); }
    array(const array &) = delete;
    ~array() { cudaFree(at); }
    void set(const std::vector<T> &v) {
        gm_put(at, v.data(), v.size() * sizeof(T));
    }
    void poison() { gm_fill(at, 0xff, n * sizeof(T)); }
    std::vector<T> get() const {
        std::vector<T> v(n);
        gm_cuda("before a copy", cudaDeviceSynchronize());
        gm_cuda("copying back", cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};
std::vector<uint16_t> numbers(size_t n) {
    std::vector<uint16_t> v(n);
    for (auto &x : v) x = t_encode16(4 * (bt_uniform() + bt_uniform() + bt_uniform() - 1.5), BSR_BF16);
    return v;
}
/* Items that share one list of blocks of 64 keys, nearly all of them; 8 query heads on 2. */
struct cache {
    enum { HEADS = 8, OWN = 2, D = 128, BLOCK = 64, PAGE = 32 };
    int64_t items, keys, queries;
    std::vector<int32_t> crow, col, length, order;
    std::vector<uint16_t> hk, hv;
    array<uint16_t> q, k, v, pool_k, pool_v, out;
    array<float> lse;
    array<int32_t> dcrow, dcol, dlength, dtable;
    array<char> workspace;
    bsr_plan plan = BSR_ZERO;
    bool paged = false;
    int grid = 0;

    cache(int64_t items_, int64_t keys_, int64_t queries_, const std::vector<uint16_t> &queries_of)
        : items(items_), keys(keys_), queries(queries_), crow{0, 0}, hk(numbers((size_t)(items * OWN * keys * D))),
          hv(numbers((size_t)(items * OWN * keys * D))), q((size_t)(items * HEADS * queries * D)), k(hk), v(hv),
          pool_k(hk.size()), pool_v(hv.size()), out((size_t)(items * HEADS * queries * D)),
          lse((size_t)(items * HEADS * queries)), dcrow(2), dcol((size_t)(keys / BLOCK)), dlength((size_t)items),
          dtable((size_t)(items * keys / PAGE)), workspace(32 << 20) {
        for (int64_t i = 0; i < keys / BLOCK; i++)
            if (i % 5 != 3) col.push_back((int32_t)i);
        crow[1] = (int32_t)col.size(), dcrow.set(crow), dcol.set(col);
        for (int64_t i = 0; i < items; i++) length.push_back((int32_t)(keys - 7 * i));
        dlength.set(length);
        q.set(std::vector<uint16_t>(queries_of.begin(), queries_of.begin() + (std::ptrdiff_t)q.n));
        shuffle();
    }
    /* The same keys in pages, in another order each time. */
    void shuffle() {
        const int64_t each = keys / PAGE, all = items * each;
        std::vector<uint16_t> pk(hk.size()), pv(hv.size());
        order.resize((size_t)all);
        for (int64_t i = 0; i < all; i++) order[(size_t)i] = (int32_t)i;
        for (int64_t i = all - 1; i > 0; i--) std::swap(order[(size_t)i], order[(size_t)bt_below(i + 1)]);
        for (int64_t b = 0; b < items; b++)
            for (int64_t h = 0; h < OWN; h++)
                for (int64_t i = 0; i < keys; i++)
                    for (int64_t d = 0; d < D; d++) {
                        const size_t from = (size_t)(((b * OWN + h) * keys + i) * D + d);
                        const size_t to = (size_t)(((order[(size_t)(b * each + i / PAGE)] * PAGE + i % PAGE) * OWN + h) * D + d);
                        pk[to] = hk[from], pv[to] = hv[from];
                    }
        pool_k.set(pk), pool_v.set(pv), dtable.set(order);
    }
    bsr_status run(cudaStream_t s, bsr_plan *query = nullptr, const bsr_plan *asked = nullptr, size_t room = 32 << 20) {
        bsr_dense views[5] = {
            bsr_dense_row_major(q.at, BSR_BF16, queries, D), bsr_dense_row_major(k.at, BSR_BF16, keys, D),
            bsr_dense_row_major(v.at, BSR_BF16, keys, D), bsr_dense_row_major(out.at, BSR_BF16, queries, D),
            bsr_dense_row_major(lse.at, BSR_F32, queries, 1)};
        bsr_matrix mask =
            bsr_matrix_make(queries, keys, queries, BLOCK, (int64_t)col.size(), dcrow.at, dcol.at, BSR_I32, NULL, BSR_BF16);
        bsr_attention_options o = BSR_ZERO;
        bsr_lengths lengths = BSR_ZERO;
        bsr_pages pages = BSR_ZERO;
        bsr_error error;
        bsr_exec e = BSR_ZERO;
        for (int i = 0; i < 5; i++) {
            const int64_t heads = i == 1 || i == 2 ? OWN : HEADS, each = views[i].rows * views[i].cols;
            views[i] = bsr_dense_batched(bsr_dense_batched(views[i], heads, each), items, heads * each);
        }
        if (paged) {
            for (int i = 1; i < 3; i++) {
                views[i] = bsr_dense_strided(i == 1 ? pool_k.at : pool_v.at, BSR_BF16, PAGE, D, OWN * D, 1);
                views[i] = bsr_dense_batched(bsr_dense_batched(views[i], OWN, D), items * keys / PAGE, PAGE * OWN * D);
            }
            pages.table = dtable.at, pages.stride = keys / PAGE, o.pages = &pages;
        }
        lengths.k_lengths = dlength.at, o.lengths = &lengths;
        o.flags = BSR_ATTENTION_CAUSAL, o.causal_offset = keys - queries;
        e.stream = s, e.error = &error, e.query = query, e.plan = asked ? asked : plan.op ? &plan : nullptr, e.max_grid[0] = grid;
        e.workspace = query ? nullptr : workspace.at, e.workspace_bytes = room;
        return bsr_attention(gm.ctx, 0, &views[0], &views[1], &views[2], &mask, &o, &views[3], &views[4], &e);
    }
    std::vector<uint16_t> bits(cudaStream_t s) {
        out.poison(), workspace.poison();
        CHECK_INT(run(s), BSR_OK);
        return out.get();
    }
};
} /* namespace */

TEST(bits_for_any_batch) {
    cudaStream_t s;
    gm_cuda("making a stream", cudaStreamCreate(&s));
    for (int64_t queries : {1, 3, 16}) {
        bt_case("%d queries", (int)queries);
        const std::vector<uint16_t> q = numbers((size_t)(8 * cache::HEADS * queries * cache::D));
        const uint64_t seed = bt.random;
        std::vector<uint16_t> first;
        bsr_plan plan = BSR_ZERO, open = BSR_ZERO;
        for (int64_t items : {4, 1, 2, 7}) {
            bt.random = seed;
            cache c(1, 1920, queries, q); /* the first item's keys come first */
            bt.random = seed;
            cache many(items, 1920, queries, q);
            std::vector<uint16_t> k = many.hk, v = many.hv;
            std::copy(c.hk.begin(), c.hk.end(), k.begin()), std::copy(c.hv.begin(), c.hv.end(), v.begin());
            many.hk = k, many.hv = v, many.k.set(k), many.v.set(v), many.shuffle();
            if (first.empty()) {
                open.order = 192;
                CHECK_INT(many.run(s, &plan, &open), BSR_OK);
                CHECK_INT(plan.order, 192), CHECK(plan.split > 1 && plan.workspace_bytes > 0);
            }
            many.plan = plan;
            for (int turn = 0; turn < 3; turn++) {
                many.grid = turn == 1 ? 5 : 0, many.paged = turn == 2;
                std::vector<uint16_t> got = many.bits(s);
                got.resize((size_t)(cache::HEADS * queries * cache::D));
                if (first.empty()) first = got;
                CHECK(got == first);
            }
        }
    }
    cudaStreamDestroy(s);
}
TEST(every_split) { /* against one part; errors beside its own */
    for (int64_t queries : {1, 5}) {
        const std::vector<uint16_t> q = numbers((size_t)(2 * cache::HEADS * queries * cache::D));
        bt_case("%d queries", (int)queries);
        cache c(2, 1280, queries, q);
        c.plan.op = BSR_OP_ATTENTION, c.plan.split = 1, c.plan.kernel = 2;
        const std::vector<uint16_t> want = c.bits(gm.stream);
        double most = 0;
        for (int split : {2, 3, 5, 8, 13, 20, 40}) {
            c.plan.split = split;
            const std::vector<uint16_t> got = c.bits(gm.stream);
            for (size_t i = 0; i < got.size(); i++)
                most = fmax(most, fabs(t_decode16(got[i], BSR_BF16) - t_decode16(want[i], BSR_BF16)) + (got[i] == 0xffff));
            CHECK(c.bits(gm.stream) == got);
        }
        CHECK(most <= 0.02 && most > 0);
    }
}
TEST(graphs_serve_new_lengths) {
    cudaStream_t s;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    gm_cuda("making a stream", cudaStreamCreate(&s));
    for (int paged = 0; paged < 2; paged++) {
        bt_case("%s", paged ? "pages" : "rows");
        const std::vector<uint16_t> q = numbers((size_t)(3 * cache::HEADS * cache::D));
        cache c(3, 1920, 1, q);
        c.paged = paged, CHECK_INT(c.run(s, &c.plan), BSR_OK);
        gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        const bsr_status status = c.run(s);
        CHECK_INT(cudaStreamEndCapture(s, &graph), cudaSuccess), CHECK_INT(status, BSR_OK);
        CHECK_INT(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
        for (int turn = 0; turn < 8; turn++) {
            std::vector<int32_t> lengths = {(int32_t)bt_below(1921), turn == 3 ? 0 : (int32_t)bt_below(64), 1920};
            c.dlength.set(lengths);
            if (paged) c.shuffle();
            const std::vector<uint16_t> want = c.bits(s);
            c.out.poison(), c.workspace.poison();
            CHECK_INT(cudaGraphLaunch(replay, s), cudaSuccess);
            CHECK(c.out.get() == want);
        }
        cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(s);
}
TEST(same_bits_a_thousand_times) {
    cudaStream_t s, beside;
    gm_cuda("making a stream", cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    gm_cuda("making a stream", cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    bt_case("split");
    const std::vector<uint16_t> q = numbers((size_t)(2 * cache::HEADS * cache::D));
    cache c(2, 1920, 1, q), noise(2, 1920, 1, q);
    int bad = 0;
    CHECK_INT(c.run(s, &c.plan), BSR_OK), CHECK(c.plan.split > 1);
    const std::vector<uint16_t> want = c.bits(s);
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(noise.run(beside), BSR_OK), CHECK_INT(c.run(s), BSR_OK);
        if (i % 10 == 9) bad += c.out.get() != want;
    }
    CHECK_INT(bad, 0);
    gm_cuda("at the end", cudaDeviceSynchronize());
    cudaStreamDestroy(s), cudaStreamDestroy(beside);
}
TEST(without_room) { /* fewer parts, or none; a plan that wants more is refused */
    bt_case("workspaces");
    const std::vector<uint16_t> q = numbers((size_t)(cache::HEADS * cache::D));
    cache c(1, 1920, 1, q);
    bsr_plan plan = BSR_ZERO, none = BSR_ZERO;
    CHECK_INT(c.run(gm.stream, &plan), BSR_OK);
    CHECK(plan.split > 4 && plan.workspace_bytes == (uint64_t)plan.split * cache::HEADS * (cache::D + 2) * 4);
    CHECK_INT(c.run(gm.stream, nullptr, &none, 0), BSR_OK);
    CHECK_INT(c.run(gm.stream, nullptr, &none, (size_t)plan.workspace_bytes / 2), BSR_OK);
    CHECK_INT(c.run(gm.stream, nullptr, &plan, (size_t)plan.workspace_bytes - 4), BSR_BAD_PLAN);
    CHECK_INT(c.run(gm.stream, nullptr, &plan, (size_t)plan.workspace_bytes), BSR_OK);
    gm_cuda("at the end", cudaDeviceSynchronize());
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"bits_for_any_batch", bits_for_any_batch},
                                    {"every_split", every_split},
                                    {"graphs_serve_new_lengths", graphs_serve_new_lengths},
                                    {"same_bits_a_thousand_times", same_bits_a_thousand_times},
                                    {"without_room", without_room}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
