/* plans.h: for programs that make a call by every plan that the device has for it, and hold each against the CPU. */
#ifndef BSR_GPU_PLANS_H
#define BSR_GPU_PLANS_H

#include "jobs.h"

TF int attribute(cudaDeviceAttr which) {
    int value = 0;
    gm_cuda("asking", cudaDeviceGetAttribute(&value, which, 0));
    return value;
}
/* Of the device, the number before the point: which tiers it has. */
TF int architecture(void) { return attribute(cudaDevAttrComputeCapabilityMajor); }
/* With --kernels: is the call none of those that it picks? */
template <class F> TF bool left_out(bsr_exec e, F call) {
    bsr_plan found = BSR_ZERO;
    e.query = &found;
    return gm.kernels && call(&e) == BSR_OK && !gm_next_of(found.instance);
}
/* Bytes that nobody wrote: no NaN that a processor makes has all of them set. */
TF bool untouched(const char *x, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (x[i] != (char)BT_POISON) return false;
    return true;
}
/* The first number with other bits, or -1; what a NaN carries does not count, unless one of them was never written. */
TF int64_t first_other(const void *a, const void *b, size_t bytes, int dtype) {
    const size_t size = bsr_dtype_size(dtype);
    if (!memcmp(a, b, bytes)) return -1;
    for (size_t i = 0; i < bytes / size; i++) {
        const char *x = (const char *)a + i * size, *y = (const char *)b + i * size;
        if (!memcmp(x, y, size)) continue;
        const double u = t_load(a, dtype, (int64_t)i), v = t_load(b, dtype, (int64_t)i);
        if (u == u || v == v || untouched(x, size) || untouched(y, size)) return (int64_t)i;
    }
    return -1;
}
/* What a query names, while it lives, if that is wanted; poisoned. */
struct offered_workspace {
    bsr_exec *e;
    void *data = nullptr;
    template <class F> offered_workspace(bsr_exec *exec, bool wanted, F call) : e(exec) {
        bsr_plan found = BSR_ZERO;
        bsr_exec query = *e;
        query.query = &found;
        if (!wanted || call(&query) != BSR_OK || !found.workspace_bytes) return;
        gm_cuda("in cudaMalloc", cudaMalloc(&data, found.workspace_bytes));
        gm_cuda("poisoning", cudaMemsetAsync(data, 0xff, found.workspace_bytes, gm.stream)); /* another stream would race */
        e->workspace = data, e->workspace_bytes = found.workspace_bytes;
    }
    ~offered_workspace() {
        if (!data) return;
        cudaStreamSynchronize(gm.stream), cudaFree(data);
        e->workspace = nullptr, e->workspace_bytes = 0;
    }
};
/* Every tier with every tile that a plan may name, and with the workspace that it then wants, if any: what it does not take is
   refused, the rest is the CPU's bit for bit (whole numbers). So small operands meet the kernels that else only large ones do.
   With --kernels only the calls that it picks run. out: what the CPU made; ran: calls, by tier (0: the library's choice).
   chosen: the library's choice alone. */
template <class F>
TF void each_plan(const gm_call &g, const void *out, int dtype, bsr_exec e, int *ran, F call, bool chosen = false) {
    static const struct {
        int cols, split, stages, rows = 0;
    } tiles[] = {{0, 0, 0},   {8, 0, 0},   {16, 0, 0},  {32, 0, 0},      {64, 0, 0},      {128, 0, 0},
                 {256, 0, 0}, {64, 0, 1},  {64, 1, 3},  {64, 2, 3},      {64, 4, 3},      {64, 2, 0},
                 {64, 4, 0},  {128, 1, 0}, {128, 2, 0}, {128, 1, 0, 16}, {128, 0, 0, 128}};
    const bt_block *block = bt_find(out);
    const gm_region *to = nullptr;
    std::vector<char> got(block->bytes);
    for (int i = 0; i < g.regions; i++)
        if (g.region[i].written) to = &g.region[i];
    for (int of = 0; of < 9; of++) /* the last: small and odd blocks as tiles in the workspace */
        for (auto &tile : tiles) {
            const int tier = of % 4;
            const bool offered = of >= 4;
            bsr_plan plan = BSR_ZERO;
            if (tier ? chosen : &tile != tiles) continue;
            plan.kernel = tier, plan.tile_rows = tile.rows, plan.tile_cols = tile.cols;
            plan.split = tile.split, plan.stages = tile.stages, plan.flags = of == 8 ? BSR_PLAN_RETILES : 0;
            e.plan = tier || of == 8 ? &plan : nullptr, e.stream = gm.stream;
            if (left_out(e, call)) {
                ran[tier]++;
                continue;
            }
            const offered_workspace room(&e, offered, call);
            if (offered && !room.data) continue; /* it wants none */
            poison(g, gm.stream);
            bsr_status status = call(&e);
            if (status == BSR_BAD_PLAN && e.plan) continue;
            CHECK_INT(status, BSR_OK), ran[tier]++;
            gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
            gm_cuda("copying back", cudaMemcpy(got.data(), to->dev, to->bytes, cudaMemcpyDeviceToHost));
            const int64_t at = first_other(got.data(), block->data, to->bytes, dtype);
            if (at >= 0)
                bt_fail(__FILE__, __LINE__, "tier %d%s, %d columns, split %d, %d stages: element %d is %g, not %g", tier,
                        offered ? " with a workspace" : "", tile.cols, tile.split, tile.stages, (int)at,
                        t_load(got.data(), dtype, at), t_load(block->data, dtype, at));
        }
}
TF bsr_exec exec_of(uint32_t flags) {
    bsr_exec e = BSR_ZERO;
    e.flags = flags;
    return e;
}
/* Square blocks of whole numbers. */
TF t_spec spec_of(int type, int64_t block, int64_t r, int64_t c, int64_t nnz) {
    t_spec s;
    memset(&s, 0, sizeof s);
    s.dtype = type, s.kind = FILL_INTEGER, s.index_dtype = BSR_I32, s.block_rows = s.block_cols = block;
    s.r = r, s.c = c, s.nnz = nnz;
    return s;
}
/* Which columns are stored, row by row. */
typedef std::vector<std::vector<int64_t>> columns_of_rows;
TF std::vector<int64_t> numbers(int64_t from, int64_t to, int64_t step = 1) {
    std::vector<int64_t> list;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step) list.push_back(i);
    return list;
}
TF columns_of_rows rows_of(int64_t count, const std::function<std::vector<int64_t>(int64_t)> &row) {
    columns_of_rows rows;
    for (int64_t i = 0; i < count; i++) rows.push_back(row(i));
    return rows;
}
TF bsr_matrix matrix_of(int type, int64_t block_rows, int64_t block_cols, int64_t across, const columns_of_rows &rows) {
    t_spec s = spec_of(type, block_rows, (int64_t)rows.size(), across, 0);
    s.block_cols = block_cols;
    int64_t at = 0, line = 0;
    for (auto &row : rows) s.nnz += (int64_t)row.size();
    bsr_matrix a = t_matrix(&s);
    for (auto &row : rows) {
        for (int64_t column : row) t_set_index(a.col_indices, BSR_I32, at++, column);
        t_set_index(a.crow_indices, BSR_I32, ++line, at);
    }
    return a;
}
TF bsr_matrix matrix_of(int type, int64_t block, int64_t across, const columns_of_rows &rows) {
    return matrix_of(type, block, block, across, rows);
}
/* c = op(a) b by every plan, with fewer CTAs, too, if so wanted. room: the buffer that c is in. */
TF void exact_product(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *c, const void *room, uint32_t op, bool grids,
                      int *ran, uint32_t flags = 0) {
    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
    bsr_exec e = exec_of(flags);
    auto da = g.map(a);
    auto db = g.map(b), dc = g.map(c, true);
    g.upload();
    CHECK_INT(bsr_dense_mm(cpu(), op, a, b, c, NULL), BSR_OK);
    for (int grid : {0, 40, 16}) {
        e.max_grid[0] = grid;
        if (!grid || grids)
            each_plan(g, room, c->dtype, e, ran, [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
    }
}
/* c = a b by the library's choice, without and with the workspace that it asks for. */
TF void exact_chosen(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *c) {
    int ran[4] = {0};
    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
    auto da = g.map(a);
    auto db = g.map(b), dc = g.map(c, true);
    g.upload();
    CHECK_INT(bsr_dense_mm(cpu(), 0, a, b, c, NULL), BSR_OK);
    each_plan(g, c->data, c->dtype, exec_of(0), ran, [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, 0, da, db, dc, e); },
              true);
    CHECK(ran[0] > 0);
}
/* The same of a b and c of whole numbers in a layout, n columns, with each of the flags. */
TF void exact_columns(bsr_matrix *a, int64_t n, int layout, bool trans, std::initializer_list<uint32_t> flags, int *ran,
                      int out_layout = -1) {
    const int out = out_layout < 0 ? t_sums(a->dtype) : a->dtype;
    if (trans) t_attach_transposed(a);
    const bsr_dense b = t_random(t_mixed(a->dtype), trans ? a->rows : a->cols, n, layout, NO_BATCH, 0, FILL_INTEGER);
    const bsr_dense c = t_output(out, trans ? a->cols : a->rows, n, out_layout < 0 ? layout : out_layout, NO_BATCH);
    for (uint32_t f : flags) exact_product(a, &b, &c, c.data, trans ? BSR_TRANS_A : 0, false, ran, f);
}
/* Of a whole test: each tier that the device has ran something. */
TF void check_ran(const int (&ran)[4], int type) {
    const int major = architecture();
    if (reduced() || !gm_compiled(type)) return;
    CHECK(ran[0] > 0 && ran[1] > 0), CHECK(major < 8 || ran[2] > 0), CHECK(major != 9 || type == BSR_F32 || ran[3] > 0);
}

#endif /* BSR_GPU_PLANS_H */
