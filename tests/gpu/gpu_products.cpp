/* gpu_products.cpp: Products and sampled products by every plan against the CPU's: at random, where lists, windows and rounds
   end, of odd views, with every epilogue, of absent blocks that meet NaN. */
#include "plans.h"

/* Rows of b that no stored block meets hold NaN and Inf; every tier and block size gives finite numbers, near the CPU's. */
TEST(absent_blocks_meet_nan) {
    static const int64_t blocks[] = {1, 3, 8, 16, 32, 48, 64, 128};
    for (int tier : tiers)
        for (int64_t block : blocks)
            for (int t = 0; t < 3; t++)
                for (int trans = 0; trans < 2; trans++) {
                    t_spec s;
                    if (!gm_compiled(types[t])) continue;
                    int64_t i, j, p, bad = 0;
                    bsr_exec e = BSR_ZERO;
                    bsr_error error;
                    bsr_plan plan;
                    bt_case("block %d, %s, tier %d%s", (int)block, bsr_dtype_name(types[t]), tier, trans ? ", A^T" : "");
                    memset(&s, 0, sizeof s), memset(&plan, 0, sizeof plan);
                    s.dtype = types[t], s.block_rows = s.block_cols = block, s.r = 5, s.c = 6, s.nnz = 4, s.index_dtype = BSR_I32;
                    bsr_matrix a = t_matrix(&s);
                    if (trans) t_attach_transposed(&a);
                    bsr_dense b =
                        t_random(types[t], trans ? a.rows : a.cols, 136, bt_below(2) ? ROW : COL, NO_BATCH, 0, FILL_SIGNED);
                    bsr_dense c = t_output(types[t], trans ? a.cols : a.rows, 136, ROW, NO_BATCH),
                              w = t_output(types[t], c.rows, 136, ROW, NO_BATCH);
                    for (i = 0; i < b.rows; i++) {
                        int met = 0;
                        for (int64_t r = 0; r < s.r; r++)
                            for (p = t_crow(&a, 0, r); p < t_crow(&a, 0, r + 1); p++)
                                met |= (trans ? r : t_col(&a, 0, p)) == i / block;
                        for (j = 0; j < 136 && !met; j++) t_set(&b, 0, i, j, j % 2 ? (double)NAN : (double)INFINITY);
                    }
                    gm_call g("bsr_dense_mm", gm.ctx, nullptr);
                    auto da = g.map(&a);
                    auto db = g.map(&b), dc = g.map(&c, true);
                    g.upload();
                    plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.error = &error, e.stream = gm.stream;
                    auto call = [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, trans ? BSR_TRANS_A : 0, da, db, dc, e); };
                    if (left_out(e, call)) {
                        bt_skip("left out by --every or --kernels");
                        continue;
                    }
                    bsr_status status = call(&e);
                    if (status == BSR_BAD_PLAN && tier) {
                        bt_skip("the forced tier does not take these calls");
                        continue;
                    }
                    CHECK_INT(status, BSR_OK);
                    g.download();
                    CHECK_INT(bsr_dense_mm(cpu(), trans ? BSR_TRANS_A : 0, &a, &b, &w, NULL), BSR_OK);
                    for (i = 0; i < c.rows; i++)
                        for (j = 0; j < 136; j++)
                            bad += !(fabs(t_get(&c, 0, i, j) - t_get(&w, 0, i, j)) <=
                                     (t ? 0.02 : 1e-5) * (1 + fabs(t_get(&w, 0, i, j))));
                    CHECK_INT(bad, 0);
                }
}

/* What is random of a random product: half the time the layouts that tensor cores take. */
static int random_layout(bool nice) { return (int)bt_below(nice ? 4 : (int)LAYOUTS); }
/* As `batch`, with a dimension of 1 here and there, or without its first dimensions. */
static t_shape random_batch(t_shape batch) {
    t_shape s = batch;
    if (bt_below(3) == 0) return NO_BATCH;
    for (int i = 0; i < s.dims; i++)
        if (bt_below(3) == 0) s.n[i] = 1;
    return s;
}
/* The first pattern with rows of very different lengths: some whole, some empty, the others short. */
static void skew(const bsr_matrix *a, int64_t r, int64_t c) {
    int64_t left = a->nnz, at = 0;
    for (int64_t i = 0; i < r; i++) {
        const int64_t must = left - (r - 1 - i) * c, some = bt_below(8) == 0 ? c : bt_below(3) ? bt_below(c / 8 + 2) : 0;
        const int64_t n = some < must ? must : some < left ? some : left;
        for (int64_t j = 0; j < n; j++) t_set_index(a->col_indices, a->index_dtype, at + j, j * c / n);
        at += n, left -= n, t_set_index(a->crow_indices, a->index_dtype, i + 1, at);
    }
}
/* Products of whole numbers at random: sizes, blocks, layouts, batches, patterns, epilogues, views, Inf and NaN. --random N:
   how many; --seed S: which. */
TEST(random_products) {
    static const int all[] = {BSR_BF16, BSR_BF16, BSR_F16, BSR_I8, BSR_F32, BSR_F64, BSR_E4M3, BSR_E5M2};
    static const int of_eights[] = {BSR_F32, BSR_F32, BSR_BF16, BSR_F16, BSR_E4M3, BSR_E5M2};
    static const int of_bytes[] = {BSR_I32, BSR_I32, BSR_F32, BSR_BF16, BSR_F16, BSR_I8};
    static const int64_t blocks[] = {16, 32, 64, 128};
    int ran[4] = {0};
    for (int k = 0; k < (reduced() ? gm.random / 10 : gm.random); k++) {
        bt_case("product %d of seed %d", k, gm.seed);
        t_spec s;
        const bool nice = bt_below(3) > 0, trans = bt_below(3) == 0, odd_ones = bt_below(6) == 0;
        const bool tall = bt_below(8) == 0;                                    /* many rows, few columns */
        const bool large = !tall && bt_below(30) == 0, single = tall || large; /* as many tiles as a GPU has room for */
        int type = all[bt_below(8)];
        while (!gm_compiled(type)) type = all[bt_below(8)];
        const int wide = bt_below(4) || type == BSR_F64 ? (int)type : (int)BSR_F32;
        const int out = type == BSR_I8 ? of_bytes[bt_below(6)] : t_is_f8(type) ? of_eights[bt_below(6)] : wide;
        const int less = out == BSR_F64 || (bt_below(2) && !t_is_f8(out)) ? out : (int)BSR_F32;
        const int other = t_is_float(out) ? less : (int)BSR_I32;
        const t_shape batch =
            t_batch((int)(single || bt_below(2) ? 0 : bt_range(1, bt_below(3) ? 2 : 4)), bt_range(1, 3), bt_range(1, 2), 2, 2);
        const int64_t most = bt_below(3) ? 330 : 64, some = bt_below(2) ? 8 * bt_range(1, most / 8) : bt_range(1, most);
        const int64_t around = 64 * bt_range(1, 5) + bt_range(-1, 1) * (bt_below(2) ? 1 : 8), any = bt_below(20) ? some : 0;
        const int64_t n = tall          ? bt_range(1, 64)
                          : large       ? 8 * bt_range(16, 128)
                          : bt_below(4) ? any
                                        : around; /* of tiles' ends */
        memset(&s, 0, sizeof s);
        s.dtype = type, s.kind = FILL_INTEGER, s.index_dtype = bt_below(4) ? BSR_I32 : BSR_I64, s.batch = random_batch(batch);
        s.block_rows = s.block_cols = blocks[bt_below(4)];
        if (bt_below(4) == 0) s.block_rows = t_side(), s.block_cols = bt_below(2) ? s.block_rows : t_side(); /* any */
        if (bt_below(8) == 0) s.block_rows = 16 * bt_range(1, 18), s.block_cols = 16 * bt_range(1, 18);
        if (bt_below(10) == 0) s.block_cols = blocks[bt_below(4)];
        s.r = bt_range(bt_below(20) != 0, 600 / s.block_rows + 2), s.c = bt_range(bt_below(20) != 0, 500 / s.block_cols + 2);
        if (tall) s.block_rows = s.block_cols = bt_below(2) ? 64 : 128, s.r = bt_range(40, 130), s.c = bt_range(1, 6);
        if (large) s.block_rows = s.block_cols = blocks[bt_below(4)], s.r = s.c = bt_range(1000, 3000) / s.block_rows;
        s.nnz = s.r * s.c * (bt_below(6) == 0 ? 100 : bt_below(6) == 0 ? 0 : bt_range(2, 90)) / 100;
        s.unsorted = bt_below(4) == 0, s.duplicates = bt_below(6) == 0, s.ragged = s.batch.dims && bt_below(2);
        s.layout = bt_below(2) ? PACKED : (nice ? (int)bt_range(BLOCKS_COL, BLOCKS_COL_WIDE) : (int)bt_below(BLOCKS_LAYOUTS));
        s.shared_pattern = s.ragged ? 0 : (unsigned)bt_below(4), s.shared_values = (unsigned)bt_below(4);
        if (large) s.nnz = s.nnz / 5 + 1;
        if (s.block_rows * s.block_cols > 20000 && t_items(&s.batch) > 3) s.batch = NO_BATCH, s.ragged = 0; /* bounded work */
        bsr_matrix a = t_matrix(&s);
        if (!s.ragged && t_items(&s.batch) && bt_below(4) == 0) skew(&a, s.r, s.c);
        if (trans && bt_below(4)) t_attach_transposed(&a);
        if (bt_below(3) == 0) t_attach_schedule(&a, 1 << bt_below(4), trans);
        if (a.schedule && bt_below(3) == 0) { /* of another pattern: as long as that is all, it changes no result */
            bsr_matrix was = t_matrix(&s);
            was.nnz == a.nnz ? t_attach_schedule(&was, 1 << bt_below(4), trans) : (void)0;
            if (was.schedule) a.schedule = was.schedule;
        }
        bsr_dense b = t_random(t_mixed(type), trans ? a.rows : a.cols, n, random_layout(nice), random_batch(batch),
                               (unsigned)bt_below(4), FILL_INTEGER);
        const t_shape whole = t_join(t_matrix_batch(&a), t_dense_batch(&b));
        bsr_dense c = t_output(out, trans ? a.cols : a.rows, n, random_layout(nice), whole);
        bsr_exec e = exec_of(type != BSR_F32 ? 0 : bt_below(2) ? 0 : bt_below(2) ? BSR_EXEC_TF32 : BSR_EXEC_TF32X3);
        for (double odd : {(double)NAN, (double)INFINITY, -(double)INFINITY}) /* (three products of an Inf make a NaN) */
            if (odd_ones && t_is_float(type) && b.rows && n && !(odd == odd && (e.flags & BSR_EXEC_TF32X3 || t_is_f8(type))))
                t_set(&b, bt_below(t_dense_items(&b)), bt_below(b.rows), bt_below(n), odd);
        if (odd_ones && b.dtype == BSR_E5M2 && b.rows && n) /* its Inf; numbers saturate */
            ((uint8_t *)b.data)[t_dense_at(&b, bt_below(t_dense_items(&b)), bt_below(b.rows), bt_below(n))] = 0x7c;
        const unsigned has = bt_below(2) ? 0 : (unsigned)bt_below(32), bias_row = (unsigned)bt_below(2);
        bsr_epilogue f = BSR_ZERO;
        bsr_dense input = t_random(out, c.rows, n, random_layout(nice), random_batch(whole), 0, FILL_INTEGER);
        bsr_dense left = t_random(other, c.rows, 1, ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense right = t_random(other, 1, n, ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense bias = t_random(other, bias_row ? 1 : c.rows, bias_row ? n : 1, ROW, NO_BATCH, 0, FILL_INTEGER);
        const double alpha = bt_below(3) ? 1 : (double)bt_range(-2, 2), beta = has & 1 ? (double)bt_range(-1, 2) : 0;
        f.left_alpha = has & 2 ? &left : nullptr, f.right_alpha = has & 4 ? &right : nullptr, f.bias = has & 8 ? &bias : nullptr;
        f.activation = has & 16 && t_is_float(out) ? BSR_ACT_RELU : BSR_ACT_NONE;
        double *const scalars = (double *)bt_alloc(16, 8);
        scalars[0] = (double)bt_range(-2, 2), scalars[1] = (double)bt_range(-1, 2);
        if (bt_below(8) == 0) f.alpha_ptr = scalars;
        if (has & 1 && bt_below(4) == 0) f.beta_ptr = scalars + 1;
        gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
        auto da = g.map(&a);
        auto db = g.map(&b), dc = g.map(&c, true), di = has & 1 ? g.map(&input) : nullptr;
        auto df = g.map(&f);
        g.upload();
        const uint32_t op = trans ? BSR_TRANS_A : 0;
        CHECK_INT(bsr_dense_addmm(cpu(), beta, has & 1 ? &input : nullptr, alpha, op, &a, &b, &f, &c, NULL), BSR_OK);
        if (bt_below(4) == 0) e.flags |= BSR_EXEC_CONSTANT_MATRIX;
        if (bt_below(6) == 0) e.max_grid[0] = (int)bt_range(1, bt_below(2) ? 3 : 40);
        bt_describe(
            "%s to %s, %d x %d blocks of %d x %d, %d columns, epilogue %u, alpha %g, beta %g, flags %u, grid %d%s%s%s%s%s",
            bsr_dtype_name(type), bsr_dtype_name(out), (int)s.r, (int)s.c, (int)s.block_rows, (int)s.block_cols, (int)n, has,
            alpha, beta, e.flags, e.max_grid[0], trans ? ", A^T" : "", s.duplicates ? ", duplicates" : "",
            s.ragged ? ", ragged" : "", odd_ones ? ", Inf and NaN" : "", f.alpha_ptr ? ", alpha in memory" : "");
        each_plan(g, c.data, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, beta, di, alpha, op, da, db, df, dc, e); });
    }
    const int major = architecture();
    bt_case("tiers that ran");
    if (gm.random < 100 || reduced()) {
        bt_skip("too few products");
        return;
    }
    CHECK(ran[0] > 0 && ran[1] > 0);
    if (major >= 8) CHECK(ran[2] > 0);
    if (major == 9) CHECK(ran[3] > 0);
}

/* Where lists, windows, rounds and views of kernels begin and end: products that random ones hardly meet. Each is there because a
   kernel that was wrong in that place passed all other tests. */
struct edge {
    const char *name;
    int64_t block, across, n; /* block columns; columns of b */
    columns_of_rows rows;
    int schedule; /* lines of a group, 0: none */
    bool both;    /* A^T, too */
    bool grids;   /* with fewer CTAs, too */
};
/* 64 columns: the second half first; in order; backwards; one twice. */
static columns_of_rows rows_in_disorder() {
    std::vector<int64_t> turned = numbers(32, 64), twice = numbers(0, 64);
    turned.insert(turned.end(), twice.begin(), twice.begin() + 32), twice[32] = 31;
    return {turned, numbers(0, 64), numbers(63, -1, -1), twice};
}
/* 96 columns, of which the 65th does not follow the 64th: one twice; back to the first. */
static columns_of_rows later_disorder() {
    std::vector<int64_t> twice = numbers(0, 96), turned = numbers(32, 96), start = numbers(0, 32);
    twice[64] = 63, turned.insert(turned.end(), start.begin(), start.end());
    return {twice, turned, numbers(0, 96), turned, twice};
}
static void run_edge(const edge &x, int type, int layout, bool trans, int *ran) {
    const int out = t_sums(type);
    columns_of_rows turned((size_t)(trans ? x.across : 0));
    for (size_t i = 0; i < x.rows.size() && trans; i++)
        for (int64_t column : x.rows[i]) turned[(size_t)column].push_back((int64_t)i);
    bsr_matrix a = matrix_of(type, x.block, trans ? (int64_t)x.rows.size() : x.across, trans ? turned : x.rows);
    if (trans) t_attach_transposed(&a);
    if (x.schedule) t_attach_schedule(&a, x.schedule, trans);
    const uint32_t op = trans ? BSR_TRANS_A : 0;
    bsr_dense b = t_random(type, x.across * x.block, x.n, layout, NO_BATCH, 0, FILL_INTEGER);
    bsr_dense c = t_output(out, (int64_t)x.rows.size() * x.block, x.n, layout, NO_BATCH);
    exact_product(&a, &b, &c, c.data, op, x.grids, ran);
    for (int64_t tall : {INT64_C(-1), INT64_C(1), INT64_C(1) << 40}) { /* another count deals otherwise: the same result */
        if (!x.schedule || !x.grids) break;
        ((int64_t *)a.schedule)[7] = tall;
        exact_product(&a, &b, &c, c.data, op, x.grids, ran);
    }
}
TEST(products_where_lists_end) {
    std::vector<edge> list;
    for (int64_t b : {16, 32, 64, 128}) {
        const int64_t across = b < 64 ? 1100 : 600;
        const auto windows = [&](int64_t i) {
            std::vector<int64_t> some;
            for (int64_t c : {0, 1, 30, 511, 512, 513, 575, 1023, 1024, 1090})
                if (c + i < across && (c + i) % 3) some.push_back(c + i);
            return some;
        };
        const auto all = [](int64_t n) { return [=](int64_t i) { return numbers(i, n); }; };
        list.push_back({"disorder after 32 columns", b, 64, 72, rows_in_disorder(), 0, false, false});
        list.push_back({"disorder after 64 columns", b, 96, 72, later_disorder(), 0, false, false});
        list.push_back({"long rows", b, b < 64 ? 150 : 17000 / b, 8, rows_of(2, all(b < 64 ? 150 : 17000 / b)), 0, true, false});
        for (int64_t n : {64, 200})
            if (b >= 64) list.push_back({"long rows, some columns", b, 110, n, rows_of(2, all(110)), 0, n == 64, false});
        if (b % 64 == 16 || b == 64)
            list.push_back({"windows of 512 columns", b, across, 72, rows_of(9, windows), 0, false, false});
        for (int64_t r = 127; r <= 129 && b >= 64; r++) /* rows whose ends are in registers */
            list.push_back({"128 block rows", b, 1, 72, rows_of(r, [](int64_t) { return numbers(0, 1); }), 0, false, false});
        list.push_back({"a schedule that pads", b, 6, 1536, rows_of(5, all(6)), 8, true, false});
        if (b < 64) { /* row by row, or all rows of some columns */
            const auto thin = [=](int64_t i) { return numbers(i % 7, 1024 / b, 13); };
            list.push_back({"a dense operand beyond the L2", b, 1024 / b, 12296, rows_of(40, thin), 0, false, false});
            const int64_t far = 196800 / b;
            const auto apart = [=](int64_t i) { return numbers(i, far, far / 3); };
            list.push_back({"a dense operand beyond the L2, few columns", b, far, 64, rows_of(40, apart), 0, false, true});
            list.push_back({"a dense operand beyond the L2, few rows", b, 2 * far, 64, rows_of(3, apart), 0, false, true});
        }
    }
    for (int schedule : {0, 1, 2}) { /* many short units, and few long ones of very different lengths */
        const auto brief = [](int64_t i) { return i % 3 ? numbers(i % 2, i % 2 + 1) : numbers(0, 2); };
        const auto uneven = [](int64_t i) { return i % 10 ? numbers(i, i + 1) : numbers(0, 60); };
        list.push_back({"short units", 64, 2, 72, rows_of(600, brief), schedule, false, true});
        list.push_back({"uneven units", 64, 60, 264, rows_of(60, uneven), schedule, false, true});
        if (schedule != 1) /* teams of three CTAs: none is dealt, all go round */
            list.push_back({"short units of three tiles", 64, 2, 520, rows_of(256, brief), schedule, false, false});
    }
    for (int type : {BSR_BF16, BSR_F16, BSR_I8, BSR_E4M3}) {
        int ran[4] = {0};
        if (!gm_compiled(type)) continue;
        for (auto &x : list) {
            if (type != BSR_BF16 && (!x.both || x.n > 128)) continue;
            for (int form = 0; form < 8; form++) {
                const int layout = form % 4, trans = form / 4; /* b in aligned lines: where a kernel folds them */
                if ((trans && !x.both) || (layout > COL && (trans || x.n > 8))) continue;
                bt_case("%s: %s, blocks of %d, schedule %d, layout %d%s", bsr_dtype_name(type), x.name, (int)x.block, x.schedule,
                        layout, trans ? ", A^T" : "");
                if (reduced()) bt_skip("left out by --every");
                else run_edge(x, type, layout, trans, ran);
            }
        }
        check_ran(ran, type);
    }
}
/* The same of sampled products: rows of several tiles, columns in any order and repeated, tiles that do not go into the grid. */
static void run_sampled_edge(const edge &x, int type, int form, int *ran) { /* bits: mat1, mat2 by columns, input, to f32 */
    const int out = form & 8 ? (int)BSR_F32 : type;
    bsr_matrix c = matrix_of(out, x.block, x.across, x.rows), z = t_matrix_output(&c, out, PACKED);
    bsr_dense m1 = t_random(type, c.rows, x.n, form & 1 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
    bsr_dense m2 = t_random(type, x.n, c.cols, form & 2 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
    const double beta = form & 4 ? 2 : 0;
    gm_call g("bsr_sampled_addmm", gm.ctx, nullptr);
    bsr_exec e = BSR_ZERO;
    auto dc = g.map(&c);
    auto d1 = g.map(&m1), d2 = g.map(&m2);
    auto dz = g.map(&z, true);
    g.upload();
    CHECK_INT(bsr_sampled_addmm(cpu(), beta, &c, 3, &m1, &m2, &z, NULL), BSR_OK);
    for (int grid : {0, 40, 3}) {
        e.max_grid[0] = grid;
        each_plan(g, z.values, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, beta, dc, 3, d1, d2, dz, e); });
    }
}
TEST(sampled_products_where_lists_end) {
    std::vector<edge> list;
    for (int64_t b : {16, 32, 64, 128}) {
        columns_of_rows disorder = rows_in_disorder();
        disorder.push_back({}), disorder.push_back({5, 5, 5});
        const auto sparse = [](int64_t i) { return numbers(i % 4, 60, 3 + i % 5); };
        list.push_back({"disorder", b, 64, 64, disorder, 0, false, false});
        list.push_back(
            {"long rows", b, 2000 / b, 96, rows_of(3, [&](int64_t i) { return numbers(i, 2000 / b); }), 0, false, false});
        list.push_back({"long rows of few", b, 9000 / b, 64, rows_of(3, [&](int64_t i) { return numbers(i, 9000 / b, 9); }), 0,
                        false, false});
        list.push_back({"many tiles", b, 60, 32, rows_of(1280 / b, sparse), 0, false, false});
    }
    for (int type : {BSR_BF16, BSR_F16}) {
        int ran[4] = {0};
        for (auto &x : list)
            for (int form : {0, 1, 2, 3, 4, 7, 8, 14}) {
                if (!gm_compiled(type) || (type == BSR_F16 && form > 3)) continue;
                bt_case("%s: %s, blocks of %d, form %d", bsr_dtype_name(type), x.name, (int)x.block, form);
                if (reduced()) bt_skip("left out by --every");
                else run_sampled_edge(x, type, form, ran);
            }
        check_ran(ran, type);
    }
}
/* Views that few have, each operand in turn: lines that overlap or are all the same, bases that are aligned less or not at all,
   items a line apart, nothing stored. */
TEST(products_of_odd_views) {
    static const char *const names[] = {"lines of b overlap",      "lines of b are one",      "items of b overlap",
                                        "blocks overlap",          "lines of blocks overlap", "all blocks are one",
                                        "bases 16 bytes further",  "b one element further",   "values one element further",
                                        "out one element further", "nothing is stored",       "no columns"};
    enum { B_LINES, B_ONE, B_ITEMS, A_BLOCKS, A_LINES, A_ONE, FURTHER, B_ODD, A_ODD, C_ODD, NOTHING, NO_COLUMNS, VIEWS };
    for (int type : {BSR_BF16, BSR_I8, BSR_F32, BSR_E4M3})
        for (int64_t block : {16, 32, 64, 128})
            for (int64_t n : {8, 64, 264})
                for (int form = 0; form < 2 * VIEWS; form++) {
                    const int layout = form & 1, kind = form / 2, out = t_sums(type),
                              step = bsr_dtype_size(type) == 1 ? 16 : 8;
                    const int64_t far = kind == FURTHER ? step : 1, cols = kind == NO_COLUMNS ? 0 : n;
                    int ran[4] = {0};
                    if (!gm_compiled(type) || (type != BSR_BF16 && n == 64)) continue;
                    bt_case("%s: %s, blocks of %d, %d columns, layout %d", bsr_dtype_name(type), names[kind], (int)block, (int)n,
                            layout);
                    if (reduced()) {
                        bt_skip("left out by --every");
                        continue;
                    }
                    const t_spec s = spec_of(type, block, 5, 6, kind == NOTHING ? 0 : 17);
                    bsr_matrix a = t_matrix(&s);
                    bsr_dense all = t_random(type, 1, 3 * (a.cols + 1) * (n + 1), ROW, NO_BATCH, 0, FILL_INTEGER), b = all;
                    bsr_dense values = t_random(type, 1, (s.nnz + 1) * (block + 1) * block, ROW, NO_BATCH, 0, FILL_INTEGER);
                    b = layout == COL ? bsr_dense_col_major(all.data, type, a.cols, cols)
                                      : bsr_dense_row_major(all.data, type, a.cols, cols);
                    int64_t *const line = layout == COL ? &b.col_stride : &b.row_stride, items = kind == B_ITEMS ? 3 : 1;
                    if (kind == B_LINES) *line = step;
                    if (kind == B_ONE) *line = 0;
                    if (kind == B_ITEMS) b = bsr_dense_batched(b, 3, *line);
                    if (kind == B_ODD || kind == FURTHER) b.data = (char *)b.data + far * (int64_t)bsr_dtype_size(type);
                    if (kind >= A_BLOCKS && kind <= A_ODD && kind != B_ODD) a.values = values.data;
                    if (kind == A_BLOCKS || kind == A_LINES || kind == A_ONE)
                        a.value_strides[0] = kind == A_BLOCKS ? step
                                             : kind == A_ONE  ? 0
                                                              : block * block,
                        a.value_strides[1] = kind == A_LINES ? step : block, a.value_strides[2] = 1;
                    if (kind == A_ODD || kind == FURTHER) a.values = (char *)values.data + far * (int64_t)bsr_dtype_size(type);
                    if (kind == NOTHING) a.values = a.col_indices = NULL;
                    bsr_dense room = t_output(out, 1, items * a.rows * n + 16, ROW, NO_BATCH), c;
                    c = layout == COL ? bsr_dense_col_major(room.data, out, a.rows, cols)
                                      : bsr_dense_row_major(room.data, out, a.rows, cols);
                    if (kind == C_ODD || kind == FURTHER) c.data = (char *)c.data + far * (int64_t)bsr_dtype_size(out);
                    if (kind == B_ITEMS) c = bsr_dense_batched(c, 3, a.rows * n);
                    exact_product(&a, &b, &c, room.data, 0, false, ran);
                    CHECK(ran[0] > 0);
                }
}
/* alpha in the gap between out's rows, which no tier may write. */
TEST(alpha_between_rows_stays) {
    for (int type : {BSR_BF16, BSR_F16, BSR_F32})
        for (int64_t block : {16, 64})
            for (int64_t n : {8, 72, 264}) {
                const int64_t line = n + 8;
                const double alpha = 3;
                bsr_epilogue f = BSR_ZERO;
                if (!gm_compiled(type)) continue;
                bt_case("%s, blocks of %d, %d columns", bsr_dtype_name(type), (int)block, (int)n);
                const t_spec s = spec_of(type, block, 5, 6, 17);
                bsr_matrix a = t_matrix(&s);
                bsr_dense b = t_random(type, a.cols, n, ROW, NO_BATCH, 0, FILL_INTEGER);
                void *const room = bt_alloc((size_t)(a.rows * line) * bsr_dtype_size(type), 64);
                bsr_dense c = bsr_dense_strided(room, type, a.rows, n, line, 1);
                char *const at = (char *)room + (line + n) * (int64_t)bsr_dtype_size(type);
                const bt_block *const whole = bt_find(room);
                gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
                auto da = g.map(&a);
                auto db = g.map(&b), dc = g.map(&c, true);
                bt_mark_output(room), f.alpha_ptr = (const double *)(const void *)at, memcpy(at, &alpha, sizeof alpha);
                auto df = g.map(&f);
                std::vector<char> before(whole->data, whole->data + whole->bytes), want;
                CHECK_INT(bsr_dense_addmm(cpu(), 0, NULL, 1, 0, &a, &b, &f, &c, NULL), BSR_OK);
                want.assign(whole->data, whole->data + whole->bytes);
                for (int tier = 0; tier <= 3; tier++) {
                    bsr_plan plan = BSR_ZERO;
                    bsr_exec e = BSR_ZERO;
                    plan.kernel = tier, e.plan = tier ? &plan : nullptr, e.stream = gm.stream;
                    memcpy(whole->data, before.data(), before.size()), g.upload();
                    const bsr_status status = bsr_dense_addmm(gm.ctx, 0, NULL, 1, 0, da, db, df, dc, &e);
                    if (status == BSR_BAD_PLAN && tier > 1) continue;
                    CHECK_INT(status, BSR_OK), g.download();
                    CHECK(!memcmp(whole->data, want.data(), want.size()));
                }
            }
}
/* A matrix as a conversion on the device leaves it: nnz is what its arrays have room for, crow_indices end before that. What
   stands behind is no index and no number. */
static bsr_matrix matrix_with_room(int type, int64_t block, bsr_matrix *real) {
    bsr_matrix a =
        matrix_of(type, block, 10, rows_of(9, [](int64_t i) { return i < 7 ? numbers(i % 3, 10, 2) : numbers(0, 7); }));
    *real = a, real->nnz = t_crow(&a, 0, 7);
    for (int64_t i = 7; i <= 9; i++) t_set_index(a.crow_indices, BSR_I32, i, real->nnz);
    for (int64_t i = real->nnz; i < a.nnz; i++) t_set_index(a.col_indices, BSR_I32, i, -1);
    const size_t used = (size_t)(real->nnz * block * block) * bsr_dtype_size(type);
    memset((char *)a.values + used, 0xff, bt_find(a.values)->bytes - used);
    return a;
}
TEST(matrices_with_room_to_spare) {
    const uint64_t most = 1 << 20;
    void *view = nullptr, *workspace = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc(&workspace, most)), gm_cuda("in cudaMalloc", cudaMalloc(&view, most));
    for (int type : {BSR_BF16, BSR_F32}) {
        int ran[4] = {0};
        for (int64_t block : {16, 32, 64, 128})
            for (int form = 0; form < 7 && gm_compiled(type); form++) { /* products, of A^T, another */
                const int trans = form % 2, n = form < 2 ? 8 : form < 4 ? 64 : 136, out = type;
                bsr_matrix real;
                bsr_exec e = BSR_ZERO;
                uint64_t bytes = 0;
                bt_case("%s, blocks of %d, form %d", bsr_dtype_name(type), (int)block, form);
                bsr_matrix a = matrix_with_room(type, block, &real), z = t_matrix_output(&a, out, PACKED), few = z;
                few.nnz = real.nnz;
                bsr_dense x = t_random(type, a.rows, 64, ROW, NO_BATCH, 0, FILL_INTEGER),
                          y = t_random(type, 64, a.cols, COL, NO_BATCH, 0, FILL_INTEGER);
                bsr_dense b = t_random(type, trans ? a.rows : a.cols, n, ROW, NO_BATCH, 0, FILL_INTEGER),
                          c = t_output(out, trans ? a.cols : a.rows, n, ROW, NO_BATCH);
                gm_call g("", gm.ctx, nullptr);
                if (form == 6) {
                    auto dx = g.map(&x), dy = g.map(&y);
                    auto dz = g.map(&z, true);
                    g.upload();
                    CHECK_INT(bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &y, &few, NULL), BSR_OK);
                    each_plan(g, z.values, out, e, ran,
                              [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dy, dz, e); });
                    continue;
                }
                auto da = g.map_target(&a, false, false);
                auto db = g.map(&b), dc = g.map(&c, true);
                const uint32_t op = trans ? BSR_TRANS_A : 0;
                g.upload();
                CHECK_INT(bsr_dense_mm(cpu(), op, &real, &b, &c, NULL), BSR_OK);
                if (trans) {
                    e.workspace = workspace, e.workspace_bytes = most, e.stream = gm.stream;
                    CHECK_INT(bsr_transposed_index_size(gm.ctx, da, &bytes, NULL), BSR_OK), CHECK(bytes <= most);
                    CHECK_INT(bsr_build_transposed_index(gm.ctx, da, view, bytes, &e), BSR_OK), da->transposed_index = view;
                }
                each_plan(g, c.data, out, e, ran, [&](const bsr_exec *e) { return bsr_dense_mm(gm.ctx, op, da, db, dc, e); });
            }
        check_ran(ran, type);
    }
    /* the same bits as without: softmax, both dense forms, attention, a schedule, the largest blocks */
    for (int type : {BSR_BF16, BSR_F32})
        for (int64_t block : {16, 64})
            for (int form = 0; form < 6 && gm_compiled(type); form++) {
                bsr_matrix real;
                bsr_exec e = BSR_ZERO;
                bt_case("%s, blocks of %d, operation %d", bsr_dtype_name(type), (int)block, form);
                bsr_matrix a = matrix_with_room(type, block, &real), z = t_matrix_output(&a, type, PACKED);
                bsr_matrix kept = empty_like(&a, 30);
                bsr_dense q = t_random(type, a.rows, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
                          k = t_random(type, a.cols, 64, ROW, NO_BATCH, 0, FILL_SIGNED),
                          o = t_output(type, a.rows, 64, ROW, NO_BATCH), whole = t_output(type, a.rows, a.cols, ROW, NO_BATCH);
                gm_call g("", gm.ctx, nullptr);
                auto da = g.map_target(&a, false, false), dz = g.map_target(&z, form == 0, false),
                     dkept = g.map_target(&kept, form == 4, form == 4);
                auto dq = g.map(&q), dk = g.map(&k), d_out = g.map(&o, form == 2), dw = g.map(&whole, form == 1);
                void *const dview = form == 3 || form == 5 ? g.place(bt_alloc((size_t)most, 64), (int64_t)most, true) : nullptr;
                std::string want;
                g.upload();
                e.workspace = workspace, e.workspace_bytes = most, e.stream = gm.stream;
                for (int64_t nnz : {real.nnz, a.nnz}) {
                    da->nnz = dz->nnz = nnz, dkept->nnz = 30, poison(g, gm.stream);
                    bsr_status status = form == 0   ? bsr_softmax(gm.ctx, 1, da, NULL, dz, &e)
                                        : form == 1 ? bsr_to_dense(gm.ctx, da, dw, &e)
                                        : form == 2 ? bsr_attention(gm.ctx, 0, dq, dk, dk, da, NULL, d_out, NULL, &e)
                                        : form == 3 ? bsr_build_schedule(gm.ctx, da, 2, 0, dview, most, &e)
                                        : form == 4 ? bsr_prune(gm.ctx, {nullptr, da}, 0.8, BSR_NORM_L2, dkept, &e)
                                                    : bsr_build_schedule(gm.ctx, da, 4, 1, dview, most, &e);
                    CHECK_INT(status, BSR_OK);
                    std::string bits = written_bits(g, gm.stream);
                    if (dview) bits[8] = 0; /* nnz, which stands in its header */
                    if (nnz == real.nnz) want = bits;
                    else CHECK(bits == want);
                }
            }
    cudaFree(workspace), cudaFree(view);
}
/* Whole epilogues one by one, with more columns than a tile has, and with few: whole numbers; GELU of what is far above 0. */
TEST(every_epilogue) {
    enum { INPUT = 1, LEFT = 2, RIGHT = 4, BIAS = 8, RELU = 16, SMOOTH = 32, USER = 64 };
    static const unsigned parts[] = {0,    INPUT, LEFT, RIGHT, BIAS, RELU, BIAS | RELU, BIAS | SMOOTH, INPUT | BIAS | SMOOTH,
                                     USER, 31};
    const int64_t many = attribute(cudaDevAttrMultiProcessorCount) * 6 / 5 + 1; /* short products: four CTAs each, by two warps */
    const auto run = [&](int type, int64_t block, int64_t n, int form, unsigned has, int *ran) {
        const int layout = form & 1 ? COL_WIDE : ROW_WIDE, other = form & 4 ? (int)BSR_F32 : type;
        const int out = form & 8 ? (int)BSR_F32 : type;
        bsr_epilogue f = BSR_ZERO;
        bsr_exec e = BSR_ZERO;
        bt_case("%s, blocks of %d, %d columns, form %d, epilogue %u", bsr_dtype_name(type), (int)block, (int)n, form, has);
        if (reduced()) {
            bt_skip("left out by --every");
            return;
        }
        const int64_t r = (block == 32 && form < 2) || n == 8 ? many : 192 / block + 1;
        const t_spec s = spec_of(type, block, r, 2, r + 1);
        bsr_matrix a = t_matrix(&s);
        /* with f32 beside the dense operand lies the other way than out; an input's lines are as far apart as out's, or closer */
        bsr_dense b = t_random(type, a.cols, n, (form ^ form >> 2) & 1 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense c = t_output(out, a.rows, n, layout, NO_BATCH);
        const int close = (form >> 1 ^ n >> 5) & 1 ? form & 1 ? COL : ROW : layout;
        bsr_dense input = t_random(out, has & INPUT ? a.rows : 1, n, close, NO_BATCH, 0, FILL_INTEGER);
        bsr_dense left = t_random(other, a.rows, 1, ROW, NO_BATCH, 0, FILL_INTEGER),
                  right = t_random(other, 1, n, ROW, NO_BATCH, 0, FILL_INTEGER),
                  bias = t_random(other, form & 2 ? a.rows : 1, form & 2 ? 1 : n, ROW, NO_BATCH, 0, FILL_INTEGER);
        for (int64_t i = 0; i < bias.rows; i++)
            for (int64_t j = 0; j < bias.cols; j++)
                if (has & SMOOTH) t_set(&bias, 0, i, j, (double)(8192 + 64 * (i + j)));
        f.left_alpha = has & LEFT ? &left : nullptr, f.right_alpha = has & RIGHT ? &right : nullptr;
        f.bias = has & BIAS ? &bias : nullptr;
        float *const step = (float *)bt_alloc(4, 4); /* of the user's function, by the row */
        *step = 0.5f, f.user_data = has & USER ? step : nullptr;
        f.activation = has & SMOOTH ? (int)BSR_ACT_GELU
                       : has & RELU ? (int)BSR_ACT_RELU
                       : has & USER ? (int)BSR_EPILOGUE_tf_shift
                                    : (int)BSR_ACT_NONE;
        const double beta = has & INPUT ? 2 : 0;
        gm_call g("bsr_dense_addmm", gm.ctx, nullptr);
        auto da = g.map(&a);
        auto db = g.map(&b), dc = g.map(&c, true), di = has & INPUT ? g.map(&input) : nullptr;
        auto df = g.map(&f);
        g.upload();
        CHECK_INT(bsr_dense_addmm(cpu(), beta, has & INPUT ? &input : NULL, 3, 0, &a, &b, &f, &c, NULL), BSR_OK);
        each_plan(g, c.data, out, e, ran,
                  [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, beta, di, 3, 0, da, db, df, dc, e); });
    };
    for (int type : {BSR_BF16, BSR_F16}) {
        int ran[4] = {0};
        for (int64_t block : {16, 32, 64, 128})
            for (int form = 0; form < 16; form++) /* bits: by columns, bias along a column, f32 beside, to f32 */
                for (unsigned has : parts)
                    for (int64_t n : {264, 8, 40}) /* few columns: strips of 64 rows, of 32 */
                        if (gm_compiled(type) && (type != BSR_F16 || block % 64 == 0) && (n == 264 || (block >= 64 && form < 2)))
                            run(type, block, n, form, has, ran);
        check_ran(ran, type);
    }
}
/* As above: what is added up again from a row's own blocks. An Inf in one column; alpha behind a pointer, sums of items.
 */
TEST(absent_blocks_meet_inf_in_a_column) {
    for (int type : {BSR_BF16, BSR_F16})
        for (int64_t block : {16, 32})
            for (int column : {0, 199})
                for (int layout : {ROW, COL}) {
                    int ran[4] = {0};
                    bsr_exec e = BSR_ZERO;
                    if (!gm_compiled(type)) continue;
                    bt_case("%s, blocks of %d, column %d, layout %d", bsr_dtype_name(type), (int)block, column, layout);
                    t_spec s = spec_of(type, block, 9, 10, 40);
                    s.batch = t_batch(1, 3, 0, 0, 0);
                    bsr_matrix many = t_matrix(&s);
                    t_attach_transposed(&many);
                    s.batch = NO_BATCH;
                    bsr_matrix a = t_matrix(&s);
                    bsr_dense b = t_random(type, a.cols, 200, layout, NO_BATCH, 0, FILL_INTEGER),
                              back = t_random(type, many.rows, 200, layout, t_batch(1, 3, 0, 0, 0), 0, FILL_INTEGER);
                    bsr_dense c = t_output(type, a.rows, 200, layout, NO_BATCH),
                              sum = t_output(type, many.cols, 200, layout, NO_BATCH);
                    double *alpha = (double *)bt_alloc(8, 8);
                    bsr_epilogue f = BSR_ZERO;
                    *alpha = -2, f.alpha_ptr = alpha;
                    t_set(&b, 0, 5 * block + 3, column, (double)INFINITY),
                        t_set(&back, 1, 4 * block + 3, column, (double)INFINITY);
                    gm_call g("bsr_dense_addmm", gm.ctx, nullptr), h("bsr_matmul_backward", gm.ctx, nullptr);
                    auto da = g.map(&a);
                    auto db = g.map(&b), dc = g.map(&c, true);
                    auto df = g.map(&f);
                    g.upload();
                    CHECK_INT(bsr_dense_addmm(cpu(), 0, NULL, 1, 0, &a, &b, &f, &c, NULL), BSR_OK);
                    each_plan(g, c.data, type, e, ran,
                              [&](const bsr_exec *e) { return bsr_dense_addmm(gm.ctx, 0, NULL, 1, 0, da, db, df, dc, e); });
                    auto dm = h.map(&many);
                    auto dback = h.map(&back), dsum = h.map(&sum, true), dense = h.map(&b);
                    const bsr_operand none = {nullptr, nullptr};
                    h.upload();
                    CHECK_INT(bsr_matmul_backward(cpu(), 0, bsr_operand_sparse(&many), bsr_operand_dense(&b),
                                                  bsr_operand_dense(&back), none, bsr_operand_dense(&sum), NULL),
                              BSR_OK);
                    each_plan(h, sum.data, type, e, ran, [&](const bsr_exec *e) {
                        return bsr_matmul_backward(gm.ctx, 0, {nullptr, dm}, {dense, nullptr}, {dback, nullptr}, none,
                                                   {dsum, nullptr}, e);
                    });
                    if (architecture() == 9) CHECK(ran[3] > 0);
                }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"absent_blocks_meet_nan", absent_blocks_meet_nan},
                                    {"random_products", random_products},
                                    {"products_where_lists_end", products_where_lists_end},
                                    {"products_of_odd_views", products_of_odd_views},
                                    {"alpha_between_rows_stays", alpha_between_rows_stays},
                                    {"matrices_with_room_to_spare", matrices_with_room_to_spare},
                                    {"sampled_products_where_lists_end", sampled_products_where_lists_end},
                                    {"every_epilogue", every_epilogue},
                                    {"absent_blocks_meet_inf_in_a_column", absent_blocks_meet_inf_in_a_column}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
