/* gpu_sizes.cpp: Many rows, columns and items; arrays beyond 2^31 elements: numbers whose sums are known. */
#include "plans.h"

/* The device against the CPU, bit for bit: small whole numbers in f32. */
static void against_cpu(const bsr_matrix *a, const bsr_dense *b, const bsr_dense *c) {
    bsr_exec e = BSR_ZERO;
    bsr_dense w = *c;
    size_t bytes = bt_find(c->data)->bytes;
    w.data = bt_alloc(bytes, 4), bt_mark_output(w.data);
    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
    auto da = g.map(a);
    auto db = g.map(b), dc = g.map(c, true);
    g.upload();
    e.stream = gm.stream;
    CHECK_INT(bsr_dense_mm(gm.ctx, 0, da, db, dc, &e), BSR_OK);
    g.download();
    CHECK_INT(bsr_dense_mm(cpu(), 0, a, b, &w, NULL), BSR_OK);
    CHECK(!memcmp(c->data, w.data, bytes));
}
TEST(more_rows_than_a_grid_has) {
    t_spec s;
    t_shape many = t_batch(1, 70000, 0, 0, 0);
    if (reduced()) {
        bt_skip("left out by --every");
        return;
    }
    memset(&s, 0, sizeof s);
    s.dtype = BSR_F32, s.kind = FILL_INTEGER, s.index_dtype = BSR_I32;
    for (int k = 0; k < 4; k++) {
        bt_case("%s", k == 0   ? "300,000 block rows"
                      : k == 1 ? "70,000 batch items"
                      : k == 2 ? "4,400,000 columns"
                               : "70,000 items of b, one a");
        s.block_rows = s.block_cols = k == 2 ? 4 : 1, s.r = k == 0 ? 300000 : 2, s.c = 3, s.nnz = k == 0 ? 400000 : 4;
        s.batch = k == 1 ? many : NO_BATCH;
        if (k == 1) s.shared_pattern = 1;
        bsr_matrix a = t_matrix(&s);
        bsr_dense b = t_random(BSR_F32, a.cols, k == 2 ? 4400000 : 3, ROW, k == 1 || k == 3 ? many : NO_BATCH, 0, FILL_INTEGER);
        bsr_dense c = t_output(BSR_F32, a.rows, b.cols, ROW, t_dense_batch(&b));
        against_cpu(&a, &b, &c);
    }
    for (int k = 0; k < 2; k++) { /* softmax and sampled product: many rows, many items */
        bt_case("%s: 70,000 items", k ? "sampled_addmm" : "softmax");
        s.block_rows = s.block_cols = 2, s.r = 2, s.c = 2, s.nnz = 3, s.batch = many, s.shared_pattern = 1;
        bsr_matrix a = t_matrix(&s), y = t_matrix_output(&a, BSR_F32, PACKED), w = t_matrix_output(&a, BSR_F32, PACKED);
        bsr_dense x = t_random(BSR_F32, 4, 3, ROW, many, 0, FILL_INTEGER),
                  z = t_random(BSR_F32, 3, 4, ROW, many, 0, FILL_INTEGER);
        gm_call g("", gm.ctx, nullptr);
        auto da = g.map(&a), dy = g.map(&y, true);
        auto dx = g.map(&x), dz = g.map(&z);
        bsr_exec e = BSR_ZERO;
        g.upload();
        e.stream = gm.stream;
        bsr_status status = k ? bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dz, dy, &e) : bsr_softmax(gm.ctx, 1, da, NULL, dy, &e);
        if (status == BSR_UNSUPPORTED) {
            bt_skip("the CUDA backend does not have the operation");
            continue;
        }
        CHECK_INT(status, BSR_OK);
        g.download();
        CHECK_INT(k ? bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &z, &w, NULL) : bsr_softmax(cpu(), 1, &a, NULL, &w, NULL), BSR_OK);
        int64_t bad = 0, n = (int64_t)(bt_find(y.values)->bytes / 4);
        for (int64_t i = 0; i < n; i++) bad += !(fabsf(((float *)y.values)[i] - ((float *)w.values)[i]) <= 1e-6f);
        CHECK_INT(bad, 0), CHECK(n > 800000);
    }
}

/* Numbers that are further from those wanted than `bound`, relative to 1 and more. */
static int64_t far_off(const void *got, const void *want, int dtype, double bound) {
    const int64_t n = (int64_t)(bt_find(want)->bytes / bsr_dtype_size(dtype));
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = t_load(got, dtype, i), y = t_load(want, dtype, i);
        const bool near = x == y || (std::isfinite(y) && fabs(x - y) <= bound * (1 + fabs(y)));
        bad += !near && (x == x || y == y);
    }
    return bad;
}
/* Softmax of more rows than there are places for: warps work on one after another, the next on its way. Rows of a few blocks, a
   few of many: those that leave room for two, for one, for none. A negative scale, with which the wrong maximum overflows. */
TEST(softmax_of_many_rows) {
    static const struct {
        int64_t block, across, rows; /* rows: block rows for each 132 multiprocessors */
        int type, mean;
    } shapes[] = {
        {32, 14, 1376, BSR_BF16, 3}, {16, 14, 2720, BSR_F32, 3}, {64, 48, 88, BSR_BF16, 13}, {64, 90, 44, BSR_BF16, 25}};
    const int64_t sms = attribute(cudaDevAttrMultiProcessorCount);
    for (auto &x : shapes) {
        const int type = x.type;
        if (!gm_compiled(type)) continue;
        bt_case("%s, %d columns of blocks of %d", bsr_dtype_name(type), (int)x.across, (int)x.block);
        if (reduced()) {
            bt_skip("left out by --every");
            continue;
        }
        const auto row = [&](int64_t i) { return numbers(0, bt_range(0, i % 5 == 2 ? x.across : 2 * x.mean - 1)); };
        bsr_matrix a = matrix_of(type, x.block, x.across, rows_of(x.rows * sms / 132 + 1, row));
        t_fill_values(&a, FILL_SIGNED);
        bsr_matrix y = t_matrix_output(&a, type, PACKED), w = t_matrix_output(&a, type, PACKED),
                   dx = t_matrix_output(&a, type, PACKED), dw = t_matrix_output(&a, type, PACKED);
        gm_call g("", gm.ctx, nullptr);
        auto da = g.map(&a), dy = g.map(&y, true), ddx = g.map(&dx, true);
        g.upload();
        CHECK_INT(bsr_softmax(cpu(), -200, &a, NULL, &w, NULL), BSR_OK);
        CHECK_INT(bsr_softmax_backward(cpu(), 0.5, &a, &a, &dw, NULL), BSR_OK);
        for (int grid : {0, 7}) {
            bsr_exec e = BSR_ZERO;
            e.stream = gm.stream, e.max_grid[0] = grid;
            poison(g, gm.stream);
            CHECK_INT(bsr_softmax(gm.ctx, -200, da, NULL, dy, &e), BSR_OK);
            CHECK_INT(bsr_softmax_backward(gm.ctx, 0.5, da, da, ddx, &e), BSR_OK);
            g.download();
            CHECK_INT(far_off(y.values, w.values, type, type == BSR_F32 ? 1e-4 : 0.02), 0);
            CHECK_INT(far_off(dx.values, dw.values, type, type == BSR_F32 ? 1e-4 : 0.02), 0);
        }
    }
}
/* Attention with more query tiles than there are places for, by all of the grid and by a few CTAs: dealt in several rounds, of
   about the same length and of very different ones. Rows of more blocks than a warp holds; keys and values of fewer heads. */
TEST(attention_of_many_tiles) {
    const int64_t sms = attribute(cudaDevAttrMultiProcessorCount), heads = 4;
    for (int64_t block : {128, 64, 32, 16})
        for (int form = 0; form < 4; form++) { /* bits: lengths differ, causal */
            const int type = BSR_BF16, uneven = form & 1;
            if (!gm_compiled(type)) continue;
            bt_case("blocks of %d rows, form %d", (int)block, form);
            if (reduced()) {
                bt_skip("left out by --every");
                continue;
            }
            const int64_t tiles = sms * (block == 128 ? 6 : 11) / heads, lines = (tiles * (block == 128 ? 128 : 64)) / block;
            const auto row = [&](int64_t i) {
                const int64_t n = i * block / 64 % 37 == 5 ? 40 : uneven ? bt_range(0, 2) : bt_range(3, 5), at = bt_below(41 - n);
                return numbers(at, at + n);
            };
            t_spec s = spec_of(type, 16, lines, 40, 0);
            const columns_of_rows rows = rows_of(lines, row);
            for (auto &r : rows) s.nnz += (int64_t)r.size();
            s.block_rows = block, s.pattern_only = 1;
            bsr_matrix mask = t_matrix(&s);
            for (int64_t i = 0, at = 0; i < lines; i++) {
                for (int64_t column : rows[(size_t)i]) t_set_index(mask.col_indices, BSR_I32, at++, column);
                t_set_index(mask.crow_indices, BSR_I32, i + 1, at);
            }
            const t_shape bq = t_batch(1, heads, 0, 0, 0), bk = t_batch(1, heads / 2, 0, 0, 0), bv = t_batch(1, 1, 0, 0, 0);
            const int64_t n = lines * block - 5;
            bsr_dense q = t_random(type, n, 8, ROW, bq, 0, FILL_SIGNED), k = t_random(type, 640, 8, ROW, bk, 0, FILL_SIGNED),
                      v = t_random(type, 640, 8, ROW, form & 2 ? bq : bv, 0, FILL_SIGNED);
            bsr_dense out = t_output(type, n, 8, ROW, bq), lse = t_output(BSR_F32, n, 1, ROW, bq),
                      want = t_output(type, n, 8, ROW, bq), norm = t_output(BSR_F32, n, 1, ROW, bq);
            bsr_attention_options o = BSR_ZERO;
            if (form & 2) o.flags = BSR_ATTENTION_CAUSAL, o.causal_offset = 300 - n / 2;
            gm_call g("", gm.ctx, nullptr);
            auto dm = g.map(&mask);
            auto dq = g.map(&q), dk = g.map(&k), dv = g.map(&v), d_out = g.map(&out, true), dl = g.map(&lse, true);
            auto d_options = g.map(&o);
            g.upload();
            CHECK_INT(bsr_attention(cpu(), 3, &q, &k, &v, &mask, &o, &want, &norm, NULL), BSR_OK);
            for (int tier = 1; tier <= 3; tier++)
                for (int grid : {0, 40, 3}) {
                    bsr_exec e = BSR_ZERO;
                    bsr_plan plan = BSR_ZERO;
                    if (grid && tier < 3) continue;
                    plan.kernel = tier, e.plan = &plan, e.stream = gm.stream, e.max_grid[0] = grid;
                    poison(g, gm.stream);
                    const bsr_status status = bsr_attention(gm.ctx, 3, dq, dk, dv, dm, d_options, d_out, dl, &e);
                    if (status == BSR_BAD_PLAN && tier == 3 && architecture() != 9) continue;
                    CHECK_INT(status, BSR_OK);
                    g.download();
                    CHECK_INT(far_off(out.data, want.data, type, 0.02), 0);
                    CHECK_INT(far_off(lse.data, norm.data, BSR_F32, 1e-4), 0);
                }
        }
}
struct big { /* 350 x 400 blocks of 128 x 128, all stored: 2,293,760,000 elements, of which the last block is twos, the rest ones
              */
    int32_t *crow, *col;
    char *values;
    bsr_matrix m;
};
static bool big_new(big *g, int dtype) {
    const int64_t r = 350, c = 400, block = 128 * 128, n = r * c * block;
    size_t size = bsr_dtype_size(dtype), free_bytes = 0, total;
    std::vector<int32_t> crow((size_t)r + 1), col((size_t)(r * c));
    memset(g, 0, sizeof *g);
    cudaMemGetInfo(&free_bytes, &total);
    if (reduced() || free_bytes < 12ull * (size_t)n / 2) {
        bt_skip(reduced() ? "left out by --every" : "the device has too little free memory");
        return false;
    }
    for (int64_t i = 0; i <= r; i++) crow[(size_t)i] = (int32_t)(i * c);
    for (int64_t i = 0; i < r * c; i++) col[(size_t)i] = (int32_t)(i % c);
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->crow, crow.size() * 4)),
        gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->col, col.size() * 4));
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&g->values, (size_t)n * size));
    gm_put(g->crow, crow.data(), crow.size() * 4), gm_put(g->col, col.data(), col.size() * 4);
    std::vector<char> ones((size_t)block * size), twos((size_t)block * size);
    for (int64_t i = 0; i < block; i++) t_store(ones.data(), dtype, i, 1), t_store(twos.data(), dtype, i, 2);
    gm_put(g->values, ones.data(), ones.size());
    for (size_t have = ones.size(), all = (size_t)n * size; have < all; have *= 2) /* doubling */
        gm_cuda("filling",
                cudaMemcpyAsync(g->values + have, g->values, have < all - have ? have : all - have, cudaMemcpyDeviceToDevice,
                                gm.stream));
    gm_put(g->values + (size_t)n * size - twos.size(), twos.data(), twos.size());
    g->m = bsr_matrix_make(r * 128, c * 128, 128, 128, r * c, g->crow, g->col, BSR_I32, g->values, dtype);
    return true;
}
static void big_end(big *g) { cudaFree(g->crow), cudaFree(g->col), cudaFree(g->values); }
/* Room on the device, and what lies there. */
static void *device_room(size_t bytes) {
    void *p = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc(&p, bytes));
    return p;
}
static void *device_copy(const void *from, size_t bytes) {
    void *const p = device_room(bytes);
    gm_put(p, from, bytes);
    return p;
}
/* A device array of n equal numbers. */
static void *device_fill(int dtype, int64_t n, double v) {
    size_t size = bsr_dtype_size(dtype);
    std::vector<char> host((size_t)n * size);
    for (int64_t i = 0; i < n; i++) t_store(host.data(), dtype, i, v);
    return device_copy(host.data(), host.size());
}
static std::vector<double> fetch(const void *p, int dtype, int64_t from, int64_t n) {
    size_t size = bsr_dtype_size(dtype);
    std::vector<char> host((size_t)n * size);
    std::vector<double> v((size_t)n);
    gm_cuda("copying back", cudaMemcpy(host.data(), (const char *)p + (size_t)from * size, host.size(), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n; i++) v[(size_t)i] = t_load(host.data(), dtype, i);
    return v;
}
TEST(values_beyond_2_31) {
    static const int kinds[] = {BSR_BF16, BSR_I8};
    for (int dtype : kinds)
        for (int tier : tiers)
            for (int trans = 0; trans < 2; trans++) {
                big g;
                bsr_exec e = BSR_ZERO;
                bsr_plan plan;
                int out = dtype == BSR_I8 ? BSR_I32 : BSR_F32, n = 16;
                bt_case("%s, tier %d%s", bsr_dtype_name(dtype), tier, trans ? ", A^T" : "");
                if (!big_new(&g, dtype)) continue;
                int64_t rows = trans ? g.m.cols : g.m.rows, inner = trans ? g.m.rows : g.m.cols;
                void *b = device_fill(dtype, inner * n, 1), *c = device_fill(out, rows * n, -1);
                bsr_dense db = bsr_dense_row_major(b, dtype, inner, n), dc = bsr_dense_row_major(c, out, rows, n);
                void *view = nullptr;
                memset(&plan, 0, sizeof plan), plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.stream = gm.stream;
                bsr_status status = bsr_dense_mm(gm.ctx, trans ? BSR_TRANS_A : 0, &g.m, &db, &dc, &e);
                gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
                if (status == BSR_BAD_PLAN && tier) bt_skip("the forced tier does not take these calls");
                else {
                    std::vector<double> got = fetch(c, out, 0, rows * n);
                    int64_t bad = 0;
                    CHECK_INT(status, BSR_OK);
                    for (int64_t i = 0; i < rows * n; i++)
                        bad += got[(size_t)i] != (double)(inner + (i / n >= rows - 128 ? 128 : 0));
                    CHECK_INT(bad, 0);
                }
                cudaFree(b), cudaFree(c), cudaFree(view);
                big_end(&g);
            }
}
TEST(sampled_and_softmax_beyond_2_31) {
    big g;
    bsr_exec e = BSR_ZERO;
    e.stream = gm.stream;
    for (int tier : tiers) {
        bsr_plan plan;
        bt_case("sampled_addmm, tier %d", tier);
        if (!big_new(&g, BSR_BF16)) continue;
        void *x = device_fill(BSR_BF16, g.m.rows * 16, 1), *y = device_fill(BSR_BF16, 16 * g.m.cols, 1);
        bsr_dense dx = bsr_dense_row_major(x, BSR_BF16, g.m.rows, 16), dy = bsr_dense_col_major(y, BSR_BF16, 16, g.m.cols);
        memset(&plan, 0, sizeof plan), plan.kernel = tier, e.plan = tier ? &plan : nullptr;
        bsr_status status = bsr_sampled_addmm(gm.ctx, 1, &g.m, 1, &dx, &dy, &g.m, &e); /* in place: 1 + 16, 2 + 16 */
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_BAD_PLAN && tier) bt_skip("the forced tier does not take these calls");
        else {
            int64_t n = g.m.nnz * 16384, bad = 0,
                    places[] = {0, 16384, INT64_C(1) << 30, (INT64_C(1) << 31) - 8192, INT64_C(2200000000), n - 32768};
            CHECK_INT(status, BSR_OK);
            for (int64_t at : places) {
                std::vector<double> got = fetch(g.values, BSR_BF16, at, 16384);
                for (int64_t i = 0; i < 16384; i++) bad += got[(size_t)i] != (at + i >= n - 16384 ? 18 : 17);
            }
            CHECK_INT(bad, 0);
        }
        cudaFree(x), cudaFree(y), big_end(&g);
    }
    e.plan = nullptr;
    bt_case("softmax");
    if (big_new(&g, BSR_BF16)) {
        bsr_status status = bsr_softmax(gm.ctx, 1, &g.m, NULL, &g.m, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_UNSUPPORTED) bt_skip("the CUDA backend does not have the operation");
        else {
            int64_t n = g.m.nnz * 16384, bad = 0;
            CHECK_INT(status, BSR_OK);
            std::vector<double> first = fetch(g.values, BSR_BF16, 0, 16384), last = fetch(g.values, BSR_BF16, n - 32768, 32768);
            double sum = (51200 - 128) + 128 * exp(1.0);
            for (int i = 0; i < 16384; i++) bad += !(fabs(first[(size_t)i] * 51200 - 1) <= 0.01);
            for (int i = 0; i < 32768; i++) bad += !(fabs(last[(size_t)i] * sum / (i < 16384 ? 1 : exp(1.0)) - 1) <= 0.01);
            CHECK_INT(bad, 0);
        }
        big_end(&g);
    }
    bt_case("to_dense");
    if (big_new(&g, BSR_I8)) {
        void *c = nullptr;
        gm_cuda("in cudaMalloc", cudaMalloc(&c, (size_t)(g.m.rows * g.m.cols)));
        gm_fill(c, 0x55, (size_t)(g.m.rows * g.m.cols));
        bsr_dense d = bsr_dense_row_major(c, BSR_I8, g.m.rows, g.m.cols);
        bsr_status status = bsr_to_dense(gm.ctx, &g.m, &d, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_UNSUPPORTED) bt_skip("the CUDA backend does not have the operation");
        else {
            std::vector<double> last = fetch(c, BSR_I8, (g.m.rows - 1) * g.m.cols, g.m.cols),
                                first = fetch(c, BSR_I8, 0, g.m.cols);
            int64_t bad = 0;
            for (int64_t i = 0; i < g.m.cols; i++)
                bad += last[(size_t)i] != (i >= g.m.cols - 128 ? 2 : 1) || first[(size_t)i] != 1;
            CHECK_INT(status, BSR_OK), CHECK_INT(bad, 0);
        }
        cudaFree(c), big_end(&g);
    }
    bt_case("an output of 2.3e9 elements");
    if (!reduced()) { /* one block column of ones (i8) times a row: 70,000 x 32,768 */
        const int64_t rows = 70000, n = 32768;
        std::vector<int32_t> crow((size_t)rows / 10 + 1), col((size_t)rows / 10, 0);
        for (size_t i = 0; i < crow.size(); i++) crow[i] = (int32_t)i;
        void *dcrow = device_copy(crow.data(), crow.size() * 4), *dcol = device_copy(col.data(), col.size() * 4),
             *values = device_fill(BSR_I8, rows * 4, 1), *b = device_fill(BSR_I8, 4 * n, 3), *c = device_room((size_t)(rows * n));
        gm_fill(c, 0x55, (size_t)(rows * n));
        bsr_matrix a = bsr_matrix_make(rows, 4, 10, 4, rows / 10, dcrow, dcol, BSR_I32, values, BSR_I8);
        bsr_dense db = bsr_dense_row_major(b, BSR_I8, 4, n), dc = bsr_dense_row_major(c, BSR_I8, rows, n);
        CHECK_INT(bsr_dense_mm(gm.ctx, 0, &a, &db, &dc, &e), BSR_OK);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        std::vector<char> host((size_t)(rows * n));
        cudaMemcpy(host.data(), c, host.size(), cudaMemcpyDeviceToHost);
        int64_t bad = 0;
        for (char v : host) bad += v != 12;
        CHECK_INT(bad, 0);
        cudaFree(dcrow), cudaFree(dcol), cudaFree(values), cudaFree(b), cudaFree(c);
    } else bt_skip("left out by --every");
}

/* An output of 2.15e9 elements by each tier and tile that takes it. Of each row's block the first column holds numbers. */
TEST(outputs_beyond_2_31) {
    static const int plans[][2] = {{1, 0}, {2, 0}, {2, 64}, {3, 64}, {3, 128}, {3, 256}}; /* kernel, columns */
    const int64_t rows = 65664, n = 32776, block = 64, lines = rows / block;
    size_t free_bytes = 0, total;
    cudaMemGetInfo(&free_bytes, &total);
    if (reduced() || !gm_compiled(BSR_BF16) || free_bytes < size_t(6) << 30) {
        bt_skip(reduced() ? "left out by --every" : "the device has too little free memory, or no such kernels");
        return;
    }
    std::vector<int32_t> crow((size_t)lines + 1), col((size_t)lines);
    std::vector<uint16_t> values((size_t)(rows * block)), dense((size_t)(2 * block * n));
    const auto left = [](int64_t i) { return (double)(1 + i % 3 + i / 64 % 5); };
    const auto right = [](int64_t half, int64_t j) { return (double)((j * 7 + half * 3 + j / 1000) % 15 - 7); };
    for (int64_t i = 0; i <= lines; i++) crow[(size_t)i] = (int32_t)i;
    for (int64_t i = 0; i < lines; i++) col[(size_t)i] = (int32_t)(i % 2);
    for (int64_t i = 0; i < rows; i++) t_store(values.data(), BSR_BF16, i * block, left(i));
    for (int64_t i = 0; i < 2 * n; i++) t_store(dense.data(), BSR_BF16, i / n * block * n + i % n, right(i / n, i % n));
    void *at[] = {device_copy(crow.data(), crow.size() * 4), device_copy(col.data(), col.size() * 4),
                  device_copy(values.data(), values.size() * 2), device_copy(dense.data(), dense.size() * 2),
                  device_room((size_t)(rows * n) * 2)};
    const bsr_matrix a = bsr_matrix_make(rows, 2 * block, block, block, lines, at[0], at[1], BSR_I32, at[2], BSR_BF16);
    const bsr_dense b = bsr_dense_row_major(at[3], BSR_BF16, 2 * block, n), c = bsr_dense_row_major(at[4], BSR_BF16, rows, n);
    for (auto &x : plans) {
        bsr_plan plan = BSR_ZERO;
        bsr_exec e = BSR_ZERO;
        int64_t bad = 0;
        bt_case("tier %d, %d columns", x[0], x[1]);
        plan.kernel = x[0], plan.tile_cols = x[1], e.plan = &plan, e.stream = gm.stream;
        gm_cuda("poisoning", cudaMemsetAsync(at[4], BT_POISON, (size_t)(rows * n) * 2, gm.stream));
        const bsr_status status = bsr_dense_mm(gm.ctx, 0, &a, &b, &c, &e);
        gm_cuda("after the run", cudaStreamSynchronize(gm.stream));
        if (status == BSR_BAD_PLAN) bt_skip("the forced tier does not take these calls");
        else CHECK_INT(status, BSR_OK);
        for (int64_t i = 0; i < rows && status == BSR_OK; i += i < rows - 130 ? 499 : 1) {
            const std::vector<double> got = fetch(at[4], BSR_BF16, i * n, n);
            for (int64_t j = 0; j < n; j++) bad += got[(size_t)j] != left(i) * right(i / block % 2, j);
        }
        CHECK_INT(bad, 0);
    }
    for (void *p : at) cudaFree(p);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"more_rows_than_a_grid_has", more_rows_than_a_grid_has},
                                    {"softmax_of_many_rows", softmax_of_many_rows},
                                    {"attention_of_many_tiles", attention_of_many_tiles},
                                    {"values_beyond_2_31", values_beyond_2_31},
                                    {"sampled_and_softmax_beyond_2_31", sampled_and_softmax_beyond_2_31},
                                    {"outputs_beyond_2_31", outputs_beyond_2_31}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
