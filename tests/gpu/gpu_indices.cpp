/* gpu_indices.cpp: Index arrays that BSR_EXEC_CHECK_INDICES looks at, each spoiled in turn; bsr_validate. */
#include "jobs.h"

namespace {
struct index_array {
    char *dev;
    size_t bytes;
    int dtype; /* of its entries */
    enum { CROW, COL, VIEW, LIST, RAW } what;
};
} /* namespace */
/* The index arrays that the call reads. */
static std::vector<index_array> index_arrays(const job &j) {
    const gm_call &g = *j.mirror;
    std::vector<index_array> all;
    const auto add = [&](const void *p, int dtype, decltype(index_array::what) what) {
        for (int i = 0; p && i < g.regions; i++)
            if (g.region[i].dev == (const char *)p && !g.region[i].written && g.region[i].bytes)
                all.push_back({g.region[i].dev, g.region[i].bytes, dtype, what});
    };
    for (int i = 0; i < g.matrices; i++) {
        const bsr_matrix &m = g.matrix[i];
        add(m.crow_indices, m.index_dtype, index_array::CROW), add(m.col_indices, m.index_dtype, index_array::COL);
        add(m.transposed_index, BSR_I32, index_array::VIEW), add(m.schedule, BSR_I32, index_array::VIEW);
    }
    for (const int64_t *p : {g.indices.c_indices, g.indices.r_offsets, g.indices.p_indices, g.indices.q_indices})
        add(p, BSR_I64, index_array::LIST);
    for (size_t i = 0; i < j.raw->size() && j.raw->size() == 2; i++) add(j.raw->at(i), BSR_I32, index_array::RAW);
    return all;
}
/* One entry of an index array made anything; put back as it goes. */
namespace {
struct spoiled {
    const index_array &a;
    int64_t at, was, now;
    spoiled(const index_array &array) : a(array) {
        const int64_t size = (int64_t)bsr_dtype_size(a.dtype);
        const int64_t odd[] = {-1, -7, INT32_MIN, INT32_MAX, 1 << 30, INT64_MIN, INT64_MAX};
        now = odd[bt_below(a.dtype == BSR_I64 ? 7 : 5)], was = 0, at = bt_below((int64_t)a.bytes / size);
        copy(&was, cudaMemcpyDeviceToHost), copy(&now, cudaMemcpyHostToDevice);
    }
    void copy(int64_t *value, cudaMemcpyKind kind) const {
        const size_t size = bsr_dtype_size(a.dtype); /* the low bytes come first */
        char *there = a.dev + (size_t)at * size;
        if (kind == cudaMemcpyHostToDevice) gm_put(there, value, size);
        else gm_cuda("reading an index", cudaMemcpy(value, there, size, kind));
    }
    ~spoiled() { copy(&was, cudaMemcpyHostToDevice); }
};
} /* namespace */
/* Entries of a matrix's arrays and views on the device, by number: columns (twice), rows and positions of the transposed index
   (twice the latter), the schedule's order. */
namespace {
struct index_entries {
    char *base[6];
    void set(const bsr_matrix &m, int64_t rows, int64_t positions) {
        char *t = (char *)(uintptr_t)m.transposed_index;
        base[0] = base[1] = (char *)m.col_indices, base[2] = t + rows, base[3] = base[4] = t + positions;
        base[5] = (char *)(uintptr_t)m.schedule + 64;
    }
    static int64_t count(int what, int64_t nnz, int64_t rows) { return what == 5 ? rows : nnz; }
    int64_t put(int what, int64_t i, int64_t now, int64_t size) const { /* returns what stood there */
        int64_t was = 0;
        if (what == 5) size = 4;
        gm_cuda("reading an index", cudaMemcpy(&was, base[what] + i * size, (size_t)size, cudaMemcpyDeviceToHost));
        gm_put(base[what] + i * size, &now, (size_t)size);
        return was;
    }
};
} /* namespace */
/* Did the finding name what was spoiled? */
static void check_finding(const spoiled &x, uint64_t word) {
    bsr_error error;
    CHECK(bsr_device_status(word, &error) == BSR_BAD_STRUCTURE || error.item == BSR_ITEM_INDICES_COUNT);
    const int item = error.item;
    switch (x.a.what) {
        case index_array::CROW: CHECK(item >= BSR_ITEM_CROW_FIRST && item <= BSR_ITEM_CROW_DECREASES); break;
        case index_array::COL: CHECK(item == BSR_ITEM_COL_RANGE && error.index == x.at); break;
        case index_array::VIEW: CHECK(item == BSR_ITEM_VIEW_HEADER || item == BSR_ITEM_VIEW_CONTENT); break;
        case index_array::LIST: CHECK(item >= BSR_ITEM_INDICES_COUNT && item <= BSR_ITEM_INDICES_DUPLICATE); break;
        default: CHECK(item >= BSR_ITEM_CROW_FIRST && item <= BSR_ITEM_ROW_RANGE);
    }
    char text[320];
    bsr_error_string(&error, text, sizeof text);
    if (bt.bad) printf("     array %d, entry %lld made %lld: %s\n", (int)x.a.what, (long long)x.at, (long long)x.now, text);
}
static void clear_all(const job &j, cudaStream_t s) { /* as it must be left where nothing is written */
    poison(*j.mirror, s);
    gm_cuda("poisoning", cudaStreamSynchronize(s));
}
/* A call with each of its index arrays spoiled in turn, `times` times: nothing is written and the word says where; as it is:
   the bits of a call without the flag. graph: all by replay. */
static void check_job(job *j, cudaStream_t s, uint64_t *word, int times, cudaGraphExec_t graph, const std::string &want) {
    const std::vector<index_array> arrays = index_arrays(*j);
    const auto run = [&](bool good) {
        clear_all(*j, s), clear_accumulators = good;
        if (graph) CHECK_INT(cudaGraphLaunch(graph, s), cudaSuccess);
        else CHECK_INT(job_run(j, gm.ctx, s, nullptr, word), BSR_OK);
        clear_accumulators = true;
        return read_word(word, s);
    };
    clear_all(*j, s);
    const std::string untouched = job_bits(j, s);
    for (int i = 0; i < times * (int)arrays.size(); i++) {
        const spoiled x(arrays[(size_t)i % arrays.size()]);
        const uint64_t found = run(false);
        if (!found) { /* what stands between two arrays of a view, or an entry that says the same as before */
            CHECK(x.a.what == index_array::VIEW || x.was == x.now);
            CHECK(job_bits(j, s) == want);
            continue;
        }
        const std::string left = job_bits(j, s);
        CHECK(left == untouched);
        check_finding(x, found);
    }
    CHECK_INT(run(true), 0);
    CHECK(job_bits(j, s) == want);
}
TEST(checked_indices) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    const int times = reduced() ? 1 : 5;
    for (int kind = 0; kind < JOBS; kind++)
        for (int tier = 0; tier < 4; tier++)
            for (int form = 0; form < (reduced() ? 3 : 6); form++) {
                const int type = types[form % 5], block = form % 3 == 0 ? 16 : form % 3 == 1 ? 64 : 5;
                if ((tier && kind > ATTENTION) || !takes(kind, type)) continue;
                job_index = form & 1 ? BSR_I64 : BSR_I32;
                job_views = form == 2 ? 0 : kind == ADDMM || kind == DSD ? 2 : kind == ADDMM_T_SCAN ? 4 : kind < SOFTMAX ? 5 : 3;
                if (kind == TRANSPOSED || kind == SCHEDULE) job_views = 0;
                if (kind == ADDMM_T_SCAN) job_views &= ~1;
                bt_case("%s, %s, blocks of %d, tier %d, views %d", job_names[kind], bsr_dtype_name(type), block, tier, job_views);
                job j = job_new(kind, type, block, block == 5 ? 100 : 512, tier);
                if (job_ready_checked(&j, s, word)) {
                    cudaGraph_t graph = nullptr;
                    cudaGraphExec_t replay = nullptr;
                    clear_all(j, s);
                    CHECK_INT(job_run(&j, gm.ctx, s), BSR_OK);
                    const std::string want = job_bits(&j, s);
                    check_job(&j, s, word, times, nullptr, want);
                    clear_accumulators = kind != SCATTER; /* else it is cleared in the graph, too */
                    gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
                    CHECK_INT(job_run(&j, gm.ctx, s, nullptr, word), BSR_OK);
                    clear_accumulators = true;
                    gm_cuda("ending a capture", cudaStreamEndCapture(s, &graph));
                    gm_cuda("making a graph", cudaGraphInstantiate(&replay, graph, 0));
                    if (kind != SCATTER) check_job(&j, s, word, 1, replay, want);
                    cudaGraphExecDestroy(replay), cudaGraphDestroy(graph);
                }
                job_end(&j);
            }
    job_index = BSR_I32, job_views = 0;
    cudaFree(word), cudaStreamDestroy(s);
}
/* Views of another matrix, a ragged batch, bsr_validate in a capture. */
TEST(checked_views_and_batches) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    for (int form = 0; form < 4; form++) {
        bsr_exec e = BSR_ZERO;
        bsr_error error;
        t_spec spec;
        void *workspace = nullptr;
        static const char *const names[] = {"as it is", "another's transposed index", "another's schedule", "columns"};
        bt_case("%s", names[form]);
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 16, spec.r = 20, spec.c = 30, spec.nnz = 200;
        spec.index_dtype = BSR_I64;
        bsr_matrix a = t_matrix(&spec), b = t_matrix(&spec);
        t_attach_transposed(&a), t_attach_schedule(&a, 2, 0);
        spec.nnz = 201;
        bsr_matrix other = t_matrix(&spec);
        t_attach_transposed(&b), t_attach_schedule(&other, 2, 0);
        if (form == 1) a.transposed_index = b.transposed_index; /* the same header: its contents give it away */
        if (form == 2) a.schedule = other.schedule;
        if (form == 3) ((int64_t *)a.col_indices)[7] = ((int64_t *)a.col_indices)[6];
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *da = g.map(&a);
        g.upload();
        e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word, e.error = &error;
        if (bsr_validate(gm.ctx, da, &e) == BSR_WORKSPACE_TOO_SMALL) {
            e.workspace_bytes = (uint64_t)error.value;
            gm_cuda("in cudaMalloc", cudaMalloc(&workspace, e.workspace_bytes)), e.workspace = workspace;
        }
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t replay = nullptr;
        gm_cuda("starting a capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        CHECK_INT(bsr_validate(gm.ctx, da, &e), BSR_OK);
        gm_cuda("ending a capture", cudaStreamEndCapture(s, &graph));
        gm_cuda("making a graph", cudaGraphInstantiate(&replay, graph, 0));
        CHECK_INT(cudaGraphLaunch(replay, s), cudaSuccess);
        bsr_device_status(read_word(word, s), &error);
        CHECK_INT(error.item, form == 0                          ? BSR_ITEM_NONE
                              : form == 1                        ? BSR_ITEM_VIEW_CONTENT
                              : form == 2                        ? BSR_ITEM_VIEW_HEADER
                              : error.item == BSR_ITEM_COL_ORDER ? BSR_ITEM_COL_ORDER
                                                                 : BSR_ITEM_VIEW_CONTENT);
        CHECK_INT(error.operand, form ? BSR_ARG_MATRIX : BSR_ARG_NONE);
        cudaGraphExecDestroy(replay), cudaGraphDestroy(graph), cudaFree(workspace);
    }
    cudaFree(word), cudaStreamDestroy(s);
}
/* Many CTAs look: the first of several findings is told, wherever they stand. */
TEST(first_of_many_findings_is_told) {
    cudaStream_t s = new_stream();
    uint64_t *word = nullptr;
    void *workspace = nullptr;
    t_spec spec;
    index_entries at;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8)), gm_cuda("in cudaMalloc", cudaMalloc(&workspace, 1 << 20));
    for (int wide = 0; wide < 2; wide++) {
        bt_case("%s", wide ? "i64" : "i32");
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 1, spec.r = reduced() ? 300 : 1501, spec.c = spec.r + 2;
        spec.nnz = spec.r * spec.c / 2, spec.index_dtype = wide ? BSR_I64 : BSR_I32;
        bsr_matrix a = t_matrix(&spec);
        t_attach_transposed(&a), t_attach_schedule(&a, 1, 0);
        const int64_t es = wide ? 8 : 4, nnz = a.nnz, ccol = (es * (spec.c + 1) + 63) / 64 * 64;
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *m = g.map(&a);
        g.upload();
        at.set(*m, 64 + ccol, 64 + ccol + (es * nnz + 63) / 64 * 64);
        for (int i = 0; i < 24; i++) {
            bsr_exec e = BSR_ZERO;
            bsr_error error;
            const int what = i % 6;
            int64_t first = INT64_MAX, was[3], where[3];
            e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word;
            e.workspace = workspace, e.workspace_bytes = 1 << 20;
            for (int k = 0; k < 3; k++) { /* three entries of one array */
                where[k] = bt_below(at.count(what, nnz, spec.r)), first = where[k] < first ? where[k] : first;
                was[k] = at.put(what, where[k], what == 0 || what > 3 ? -1 : INT32_MAX, es);
            }
            CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK);
            bsr_device_status(read_word(word, s), &error);
            CHECK_INT(error.item, what < 2 ? BSR_ITEM_COL_RANGE : BSR_ITEM_VIEW_CONTENT);
            CHECK_INT(error.operand, BSR_ARG_MATRIX);
            CHECK_INT(error.index, first);
            for (int k = 2; k >= 0; k--) at.put(what, where[k], was[k], es);
        }
        bsr_exec e = BSR_ZERO;
        bsr_error error;
        e.stream = s, e.flags = BSR_EXEC_CHECK_INDICES, e.device_status = word;
        e.workspace = workspace, e.workspace_bytes = 1 << 20;
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK), CHECK_INT(read_word(word, s), 0);
        const int64_t line = at.put(5, 3, 0, es), twice = at.put(5, 7, line, es); /* one line for another: it is named twice */
        at.put(5, 3, line, es);
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK);
        bsr_device_status(read_word(word, s), &error);
        CHECK_INT(error.item, BSR_ITEM_VIEW_REPEATS), CHECK_INT(error.index, line);
        at.put(5, 7, twice, es);
        CHECK_INT(bsr_validate(gm.ctx, m, &e), BSR_OK), CHECK_INT(read_word(word, s), 0);
    }
    cudaFree(workspace), cudaFree(word), cudaStreamDestroy(s);
}
/* bsr_validate takes anything and reads nothing else: under memcheck this is a test of that. */
TEST(hostile_row_pointers) {
    for (int i = 0; i < 40; i++) {
        t_spec spec;
        bsr_error error, device;
        bsr_exec e = BSR_ZERO;
        bt_case("%d", i);
        memset(&spec, 0, sizeof spec);
        spec.dtype = BSR_F32, spec.block_rows = spec.block_cols = 1, spec.r = 1 + bt_below(30), spec.c = 1 + bt_below(30);
        spec.nnz = 1 + bt_below(spec.r * spec.c), spec.index_dtype = i & 1 ? BSR_I64 : BSR_I32;
        bsr_matrix a = t_matrix(&spec);
        const int64_t odd[] = {-5, -1, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX, a.nnz + 1};
        for (int64_t k = bt_range(1, 3); k; k--) {
            const int64_t at = bt_below(3) ? bt_below(spec.r + 1) : 0, v = odd[bt_below(7)];
            if (i & 1) ((int64_t *)a.crow_indices)[at] = v;
            else ((int32_t *)a.crow_indices)[at] = (int32_t)v;
        }
        gm_call g("validate", nullptr, nullptr);
        const bsr_matrix *da = g.map(&a);
        g.upload();
        void *workspace = nullptr;
        gm_cuda("in cudaMalloc", cudaMalloc(&workspace, 4096));
        e.error = &error;
        const int want = bsr_validate(cpu(), &a, &e);
        e.error = &device, e.workspace = workspace, e.workspace_bytes = 4096;
        CHECK_INT(bsr_validate(gm.ctx, da, &e), want);
        CHECK_INT(device.item, error.item), CHECK_INT(device.index, error.index), CHECK_INT(device.value, error.value);
        cudaFree(workspace);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"checked_indices", checked_indices},
                                    {"checked_views_and_batches", checked_views_and_batches},
                                    {"first_of_many_findings_is_told", first_of_many_findings_is_told},
                                    {"hostile_row_pointers", hostile_row_pointers}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
