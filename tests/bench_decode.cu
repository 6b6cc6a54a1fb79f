/* bench_decode.cu: one query a head, or a few, over a cache: microseconds and bytes per second, one line a case. Keys and values
   are as many as fit 600 MB, used in turn, so that a call finds none of its own in the L2, unless the case says so.
     bench_decode [--orders]   also with the keys of a part as plans name them */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "bench.cuh"

#include <cmath>
#include <cstring>
#include <string>

static void must(bsr_status s, const bsr_error &e) {
    char text[300];
    if (s == BSR_OK) return;
    bsr_error_string(&e, text, sizeof text);
    printf("FAIL %s\n", text), fflush(stdout);
    exit(1);
}
struct shape {
    const char *name;
    int64_t items, heads, own, queries, keys, width;
    double sparsity;
    int64_t block;
    int form; /* 0 heads one after another, 1 in a row, 2 pages of `page` keys, 3 the same, heads in a row */
    int64_t page;
    int cold;
};
static const shape shapes[] = {
    {"B32 S4k", 32, 32, 8, 1, 4096, 128, 0, 64, 0, 0, 1},
    {"B8 S32k", 8, 32, 8, 1, 32768, 128, 0, 64, 0, 0, 1},
    {"B64 S8k", 64, 32, 8, 1, 8192, 128, 0, 64, 0, 0, 1},
    {"B1 S128k", 1, 32, 8, 1, 131072, 128, 0, 64, 0, 0, 1},
    {"B1 S32k", 1, 32, 8, 1, 32768, 128, 0, 64, 0, 0, 1},
    {"B1 S8k", 1, 32, 8, 1, 8192, 128, 0, 64, 0, 0, 1},
    {"B1 S1k", 1, 32, 8, 1, 1024, 128, 0, 64, 0, 0, 0},
    {"B32 S4k heads in a row", 32, 32, 8, 1, 4096, 128, 0, 64, 1, 0, 1},
    {"B32 S4k pages of 16", 32, 32, 8, 1, 4096, 128, 0, 64, 2, 16, 1},
    {"B32 S4k pages of 64", 32, 32, 8, 1, 4096, 128, 0, 64, 2, 64, 1},
    {"B32 S4k pages of 8, heads in a row", 32, 32, 8, 1, 4096, 128, 0, 64, 3, 8, 1},
    {"B1 S128k s .9 blocks of 64", 1, 32, 8, 1, 131072, 128, .9, 64, 0, 0, 1},
    {"B1 S128k s .95 blocks of 64", 1, 32, 8, 1, 131072, 128, .95, 64, 0, 0, 1},
    {"B16 S32k s .9 blocks of 64", 16, 32, 8, 1, 32768, 128, .9, 64, 0, 0, 1},
    {"B16 S32k s .9 blocks of 16", 16, 32, 8, 1, 32768, 128, .9, 16, 0, 0, 1},
    {"B32 S4k Lq 4", 32, 32, 8, 4, 4096, 128, 0, 64, 0, 0, 1},
    {"B32 S4k Lq 8", 32, 32, 8, 8, 4096, 128, 0, 64, 0, 0, 1},
    {"B8 S32k Lq 16", 8, 32, 8, 16, 32768, 128, 0, 64, 0, 0, 1},
    {"B1 S32k Lq 64", 1, 32, 8, 64, 32768, 128, 0, 64, 0, 0, 1},
    {"B32 S4k D64", 32, 32, 8, 1, 8192, 64, 0, 64, 0, 0, 1},
    {"B32 S4k D256", 32, 16, 4, 1, 4096, 256, 0, 64, 0, 0, 1},
    {"B32 S4k MHA", 32, 8, 8, 1, 4096, 128, 0, 64, 0, 0, 1},
    {"B32 S4k G 16", 32, 128, 8, 1, 4096, 128, 0, 64, 0, 0, 1},
};
struct run {
    scratch s;
    bsr_dense q, out;
    std::vector<bsr_dense> k, v;
    bsr_matrix mask;
    bsr_attention_options o;
    bsr_pages pages;
    bsr_exec exec;
    bsr_plan plan;
    bsr_error error;
};
static bsr_dense heads_of(void *data, const shape &c, int64_t heads, int64_t rows) {
    bsr_dense d = bsr_dense_row_major(data, BSR_BF16, rows, c.width);
    return bsr_dense_batched(bsr_dense_batched(d, heads, rows * c.width), c.items, heads * rows * c.width);
}
static void make(run &r, const shape &c) {
    const int64_t each = c.items * c.own * c.keys * c.width, all = c.own * c.width, n = c.keys / (c.page ? c.page : 1);
    const int copies = c.cold ? (int)std::max<int64_t>(1, (600 << 20) / (4 * each)) : 1;
    const int64_t cols = c.keys / c.block, patterns = c.sparsity > 0 ? c.items * c.own : 1;
    memset(&r.exec, 0, sizeof r.exec), memset(&r.o, 0, sizeof r.o), memset(&r.pages, 0, sizeof r.pages);
    r.q = heads_of(r.s.numbers<__nv_bfloat16>(c.items * c.heads * c.queries * c.width), c, c.heads, c.queries);
    r.out = heads_of(r.s.numbers<__nv_bfloat16>(c.items * c.heads * c.queries * c.width), c, c.heads, c.queries);
    for (int i = 0; i < 2 * copies; i++) {
        void *data = r.s.numbers<__nv_bfloat16>(each);
        bsr_dense d = heads_of(data, c, c.own, c.keys);
        if (c.form == 1) {
            d = bsr_dense_strided(data, BSR_BF16, c.keys, c.width, all, 1);
            d = bsr_dense_batched(bsr_dense_batched(d, c.own, c.width), c.items, c.keys * all);
        }
        if (c.form >= 2) {
            d = c.form == 2 ? bsr_dense_row_major(data, BSR_BF16, c.page, c.width)
                            : bsr_dense_strided(data, BSR_BF16, c.page, c.width, all, 1);
            d = bsr_dense_batched(bsr_dense_batched(d, c.own, c.form == 2 ? c.page * c.width : c.width), c.items * n,
                                  c.page * all);
        }
        (i % 2 ? r.v : r.k).push_back(d);
    }
    if (c.form >= 2) {
        std::vector<int32_t> table((size_t)(c.items * n));
        for (size_t i = 0; i < table.size(); i++) table[i] = (int32_t)i;
        std::shuffle(table.begin(), table.end(), std::mt19937_64(7));
        r.pages.table = r.s.copy(table), r.pages.stride = n, r.o.pages = &r.pages;
    }
    std::vector<int32_t> crow, col;
    int64_t nnz = 0;
    for (int64_t p = 0; p < patterns; p++) {
        const blocks b = random_blocks(1, cols, c.sparsity);
        crow.push_back(0), crow.push_back((int32_t)b.nnz()), nnz = b.nnz();
        col.insert(col.end(), b.col.begin(), b.col.end());
    }
    r.mask = bsr_matrix_make(c.queries, c.keys, c.queries, c.block, nnz, r.s.copy(crow), r.s.copy(col), BSR_I32, NULL, BSR_BF16);
    r.mask = bsr_matrix_batched(r.mask, patterns > 1 ? c.own : 1, patterns > 1 ? 2 : 0, patterns > 1 ? nnz : 0, 0);
    r.mask =
        bsr_matrix_batched(r.mask, patterns > 1 ? c.items : 1, patterns > 1 ? 2 * c.own : 0, patterns > 1 ? nnz * c.own : 0, 0);
    r.exec.error = &r.error, r.exec.workspace_bytes = 256 << 20;
}
static void call(run &r, const bsr_context *ctx, int i, cudaStream_t stream) {
    r.exec.stream = stream;
    must(bsr_attention(ctx, 0, &r.q, &r.k[(size_t)i % r.k.size()], &r.v[(size_t)i % r.v.size()], &r.mask, &r.o, &r.out, NULL,
                       &r.exec),
         r.error);
}
/* The median of 9 times 24 calls, one after another: in a graph, or (host) as the host gives them. */
static double microseconds(run &r, const bsr_context *ctx, cudaStream_t stream, bool host = false) {
    cudaEvent_t from, to;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    std::vector<double> all;
    check(cudaEventCreate(&from)), check(cudaEventCreate(&to));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 24; i++) call(r, ctx, i, stream);
    check(cudaStreamEndCapture(stream, &graph)), check(cudaGraphInstantiate(&replay, graph, 0));
    for (int turn = 0; turn < 12; turn++) {
        float ms;
        check(cudaEventRecord(from, stream));
        if (!host) check(cudaGraphLaunch(replay, stream));
        for (int i = 0; i < 24 && host; i++) call(r, ctx, i, stream);
        check(cudaEventRecord(to, stream)), check(cudaEventSynchronize(to)), check(cudaEventElapsedTime(&ms, from, to));
        if (turn > 2) all.push_back(1000.0 * ms / 24);
    }
    std::sort(all.begin(), all.end());
    check(cudaEventDestroy(from)), check(cudaEventDestroy(to)), check(cudaGraphExecDestroy(replay)),
        check(cudaGraphDestroy(graph));
    return all[4];
}
int main(int argc, char **argv) {
    const bool orders = argc > 1 && !strcmp(argv[1], "--orders");
    static const int32_t parts[] = {128, 256, 512, 1024, 2048, 4096};
    cudaStream_t stream;
    bsr_context *ctx;
    bsr_error error;
    must(bsr_create(NULL, &ctx, &error), error);
    check(cudaStreamCreate(&stream));
    void *workspace;
    check(cudaMalloc(&workspace, 256 << 20));
    for (const shape &c : shapes) {
        char line[400];
        run r;
        make(r, c);
        const double bytes = 4.0 * (double)c.width * (double)(c.items * c.own) * (double)(r.mask.nnz * c.block);
        memset(&r.plan, 0, sizeof r.plan);
        r.exec.query = &r.plan;
        call(r, ctx, 0, stream);
        r.exec.query = NULL, r.exec.workspace = workspace;
        bsr_plan_string(&r.plan, line, sizeof line);
        double us = microseconds(r, ctx, stream);
        printf("%-36s %8.1f us %6.2f TB/s; by the host %.1f us; %s\n", c.name, us, bytes / us * 1e-6,
               microseconds(r, ctx, stream, true), line);
        for (int32_t order : parts) {
            bsr_plan asked, got;
            if (!orders || order > r.mask.nnz * c.block) continue;
            memset(&asked, 0, sizeof asked), asked.order = order, r.exec.plan = &asked, r.exec.query = &got;
            if (bsr_attention(ctx, 0, &r.q, &r.k[0], &r.v[0], &r.mask, &r.o, &r.out, NULL, &r.exec) == BSR_OK) {
                r.exec.query = NULL;
                us = microseconds(r, ctx, stream);
                printf("    parts of %4d: %8.1f us %6.2f TB/s (split %d)\n", order, us, bytes / us * 1e-6, got.split);
            }
            r.exec.plan = NULL, r.exec.query = NULL;
        }
        { /* as without the workspace, and what else there is */
            bsr_exec before = r.exec;
            r.exec.workspace = NULL, r.exec.workspace_bytes = 0;
            us = microseconds(r, ctx, stream);
            printf("    no workspace:  %8.1f us %6.2f TB/s\n", us, bytes / us * 1e-6);
            r.exec = before;
        }
        fflush(stdout);
        check(cudaDeviceSynchronize());
    }
    return 0;
}
