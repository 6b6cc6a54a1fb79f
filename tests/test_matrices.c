/* test_matrices.c: conversions, pruning, random patterns, attached views, layouts, parsers, validate on valid input. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "ref64.h"

static const int all_dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_I32};

/* An empty matrix to build into: arrays for `capacity` blocks an item (in all, if ragged), all poison. */
static bsr_matrix target(int dtype, int index_dtype, int64_t r, int64_t br, int64_t bc, int64_t capacity, t_shape batch,
                         int ragged) {
    bsr_matrix m;
    int64_t items = t_items(&batch), index = (int64_t)bsr_dtype_size(index_dtype), k;
    int i;
    memset(&m, 0, sizeof m);
    m.index_dtype = index_dtype, m.dtype = dtype, m.block_rows = br, m.block_cols = bc, m.nnz = capacity,
    m.batch_dims = batch.dims;
    if (ragged) m.flags = BSR_MATRIX_RAGGED;
    for (k = 1, i = batch.dims - 1; i >= 0; i--) {
        m.batch[i] = batch.n[i], m.crow_batch_stride[i] = k * (r + 1);
        m.col_batch_stride[i] = ragged ? 0 : k * capacity, m.values_batch_stride[i] = ragged ? 0 : k * capacity * br * bc;
        k *= batch.n[i];
    }
    m.crow_indices = bt_alloc((size_t)(items * (r + 1) * index), (size_t)index);
    m.col_indices = bt_alloc((size_t)((ragged ? 1 : items) * capacity * index), (size_t)index);
    m.values = bt_alloc((size_t)((ragged ? 1 : items) * capacity * br * bc) * bsr_dtype_size(dtype), bsr_dtype_size(dtype));
    bt_mark_output(m.crow_indices), bt_mark_output(m.col_indices), bt_mark_output(m.values);
    return m;
}
static void check_valid(const bsr_matrix *m) {
    bsr_exec e = t_exec(0);
    RUN_OK(bsr_validate(t_context(0), m, &e));
}
/* m's stored blocks are those of `want` that `keep` says, and hold its values. */
static void check_blocks(const bsr_matrix *m, const ref_array *want,
                         int (*keep)(const ref_array *, int64_t, int64_t, int64_t, int64_t, int64_t)) {
    int64_t b, r, c, i, j, p, br = m->block_rows, bc = m->block_cols;
    check_valid(m);
    for (b = 0; b < want->items; b++)
        for (r = 0; r < m->rows / br; r++)
            for (p = t_crow(m, b, r), c = 0; c < m->cols / bc; c++) {
                int there = p < t_crow(m, b, r + 1) && t_col(m, b, p) == c;
                CHECK(there == keep(want, b, r, c, br, bc));
                for (i = 0; i < br && there; i++)
                    for (j = 0; j < bc; j++) {
                        int64_t row = r * br + i, col = c * bc + j;
                        double v = row < want->rows && col < want->cols ? *ref_at(want, b, row, col) : 0;
                        double got = t_load(m->values, m->dtype, t_value_at(m, b, p, i, j));
                        CHECK(t_rounded(m->dtype, v) == got || (v != v && got != got));
                    }
                p += there;
            }
}
static int any_nonzero(const ref_array *a, int64_t b, int64_t r, int64_t c, int64_t br, int64_t bc) {
    int64_t i, j;
    for (i = r * br; i < (r + 1) * br && i < a->rows; i++)
        for (j = c * bc; j < (c + 1) * bc && j < a->cols; j++)
            if (*ref_at(a, b, i, j) != 0) return 1;
    return 0;
}

/* ---------------------------------------------------------------------------------------------- */
/* conversions                                                                                    */
/* ---------------------------------------------------------------------------------------------- */

TEST(to_dense) {
    int k;
    for (k = 0; k < 200; k++) {
        t_spec s;
        bsr_matrix m;
        bsr_dense out;
        bsr_exec e = t_exec(0);
        ref_result want;
        int type = all_dtypes[k % 6], to = type;
        bt_case("%d", k);
        s = t_spec_of(type, bt_range(1, 9), bt_range(1, 9), bt_range(1, 5), bt_range(1, 5), bt_range(0, 12));
        s.batch = t_batch((int)bt_below(4), bt_range(1, 2), bt_range(1, 3), bt_range(1, 2), 1),
        s.layout = (int)bt_below(BLOCKS_LAYOUTS);
        s.ragged = (int)bt_below(2), s.unsorted = s.duplicates = bt_below(3) == 0, s.shared_pattern = (unsigned)bt_below(8),
        s.shared_values = (unsigned)bt_below(8);
        s.kind = FILL_INTEGER;
        m = t_matrix(&s);
        if (t_is_float(type) && bt_below(2)) to = all_dtypes[bt_below(4)];
        out = t_output(to, m.rows - bt_below(m.block_rows), m.cols - bt_below(m.block_cols), (int)bt_below(LAYOUTS), s.batch);
        want.want = ref_matrix(&m, NULL);
        want.bound = ref_new(s.batch, out.rows, out.cols);
        {
            ref_array cut = ref_new(s.batch, out.rows, out.cols); /* the padding is dropped */
            int64_t b, i, j;
            for (b = 0; b < cut.items; b++)
                for (i = 0; i < out.rows; i++)
                    for (j = 0; j < out.cols; j++) *ref_at(&cut, b, i, j) = *ref_at(&want.want, b, i, j);
            want.want = cut;
        }
        if (RUN_OK(bsr_to_dense(t_any_context(), &m, &out, &e))) REF_COMPARE(&out, &want, m.nnz ? 0 : REF_ALL_ZERO);
    }
}

/* Blocks that stand many times in one place, in any order, of every pair of types, in long rows, too: what is stored is the sum
   in f64 in the order of the blocks, rounded once. A place with one block holds its very bits, also where the row is out
   of order. */
static void expand_many(int from, int to, int64_t br, int64_t bc, int64_t c, int64_t each, int layout) {
    const int64_t rows = 3 * br, cols = c * bc, nnz = 3 * each;
    int32_t *crow = (int32_t *)bt_alloc(4 * 4, 4), *col = (int32_t *)bt_alloc((size_t)nnz * 4, 4);
    bsr_matrix m = bsr_matrix_make(rows, cols, br, bc, nnz, crow, col, BSR_I32, NULL, from);
    bsr_dense out = t_output(to, rows - bt_below(br), cols - bt_below(bc), layout, NO_BATCH);
    bsr_exec e = t_exec(0);
    int64_t p, i, j;
    int close = 0;
    for (i = 0; i < 4; i++) crow[i] = (int32_t)(i * each);
    for (p = 0; p < nnz; p++) col[p] = (int32_t)(p % 3 ? bt_below(c) : p / 3 % 2 ? c - 1 : c / 2);
    t_make_values(&m, from, (int)bt_below(BLOCKS_LAYOUTS), 0), t_fill_values(&m, FILL_WIDE);
    for (p = 0; p < nnz; p++) /* a half of a unit in the last place of 1, that rounding at each step would lose */
        for (i = 0; i < br && t_is_float(from); i++)
            for (j = 0; j < bc; j++) {
                const int64_t at = t_value_at(&m, 0, p, i, j);
                if (col[p] == c / 2) t_store(m.values, from, at, p % each ? t_half_ulp(to, 1.0) : 1.0);
                if (col[p] == 0 && bt_below(4) == 0) t_store(m.values, from, at, -0.0);
            }
    if (!RUN_OK(bsr_to_dense(t_any_context(), &m, &out, &e))) return;
    for (i = 0; i < out.rows; i++)
        for (j = 0; j < out.cols; j++) {
            const double got = t_get(&out, 0, i, j);
            double sum = 0, want;
            int count = 0;
            for (p = crow[i / br]; p < crow[i / br + 1]; p++) {
                const double v = t_load(m.values, from, t_value_at(&m, 0, p, i % br, j % bc));
                if (col[p] == j / bc) sum = count++ ? sum + v : v;
            }
            want = sum;
            if (t_is_float(to)) want = t_rounded(to, sum);
            else if (to == BSR_I8) want = (double)(int8_t)(uint8_t)(int64_t)sum;
            else want = (double)(int32_t)(uint32_t)(int64_t)sum;
            CHECK(got == want && !signbit(got) == !signbit(want));
            close |= count > 2;
        }
    CHECK(close), t_check_gaps(&out);
}
TEST(to_dense_of_duplicates) {
    int from, to, k;
    for (from = 0; from < 6; from++)
        for (to = 0; to < 6; to++) {
            if (from != to && (from > 3 || to > 3)) continue;
            for (k = 0; k < 6; k++) {
                static const int64_t width[] = {1, 3, 16, 700, 2048, 2049};
                bt_case("%s to %s, blocks of %d columns", bsr_dtype_name(all_dtypes[from]), bsr_dtype_name(all_dtypes[to]),
                        (int)width[k]);
                expand_many(all_dtypes[from], all_dtypes[to], bt_range(1, 3), width[k], k ? bt_range(2, 7) : 5000,
                            bt_range(24, 40), (int)bt_below(LAYOUTS));
            }
        }
}

/* A long row in disorder, in which few columns repeat, far apart: sums there, every other element as it is. */
TEST(to_dense_of_a_long_row) {
    const int64_t n = 200001;
    static const int64_t repeated[] = {0, 65535, 65536, 131072, 200000, 70001};
    int32_t *crow = (int32_t *)bt_alloc(8, 4), *col = (int32_t *)bt_alloc((size_t)(n + 6) * 4, 4);
    float *values = (float *)bt_alloc((size_t)(n + 6) * 4, 4), *out = (float *)bt_alloc((size_t)n * 4, 4);
    double *want = (double *)bt_alloc((size_t)n * 8, 8);
    int64_t i, bad = 0;
    for (i = 0; i < n; i++) {
        col[i] = (int32_t)((i * 7919 + 5) % n), values[i] = (float)bt_range(1, 99) + 0.5f;
        want[col[i]] = values[i];
    }
    for (i = 0; i < 6; i++) {
        col[n + i] = (int32_t)repeated[i], values[n + i] = (float)bt_range(1, 99);
        want[repeated[i]] += values[n + i];
    }
    crow[0] = 0, crow[1] = (int32_t)n + 6;
    bsr_matrix m = bsr_matrix_make(1, n, 1, 1, n + 6, crow, col, BSR_I32, values, BSR_F32);
    bsr_dense d = bsr_dense_row_major(out, BSR_F32, 1, n);
    CHECK_INT(bsr_to_dense(t_context(0), &m, &d, NULL), BSR_OK);
    for (i = 0; i < n; i++) bad += !((double)out[i] == want[i]);
    CHECK_INT(bad, 0);
}

/* A random dense matrix with whole blocks of zeros. */
static bsr_dense blocky(int dtype, int64_t rows, int64_t cols, int64_t br, int64_t bc, t_shape batch, int even) {
    bsr_dense d = t_random(dtype, rows, cols, (int)bt_below(LAYOUTS), batch, 0, FILL_SIGNED);
    int64_t b, i, j, n = t_dense_items(&d), r = (rows + br - 1) / br, c = (cols + bc - 1) / bc;
    for (b = 0; b < n; b++) {
        int64_t shift = bt_below(3); /* even: the same number of blocks in every item */
        for (i = 0; i < r; i++)
            for (j = 0; j < c; j++) {
                int64_t y, x;
                if (even ? (i * c + j + b) % 2 == 0 : bt_below(3) >= shift) continue;
                for (y = i * br; y < (i + 1) * br && y < rows; y++)
                    for (x = j * bc; x < (j + 1) * bc && x < cols; x++) t_set(&d, b, y, x, (y + x) % 5 ? 0.0 : -0.0);
                if (bt_below(4) == 0 && !even) t_set(&d, b, i * br, j * bc, t_is_float(dtype) ? 1e-7 : 1);
            }
    }
    return d;
}
TEST(from_dense) {
    int k;
    for (k = 0; k < 240; k++) {
        bsr_dense d;
        bsr_matrix m, count;
        bsr_exec e = t_exec(0);
        ref_array want;
        t_shape batch = NO_BATCH;
        int64_t rows, cols, br, bc, r, c, need;
        int type = all_dtypes[k % 6], ragged = k % 3 == 1, to;
        bt_case("%d", k);
        rows = bt_range(0, 20), cols = bt_range(0, 20), br = bt_range(1, 6), bc = bt_range(1, 6), r = (rows + br - 1) / br,
        c = (cols + bc - 1) / bc;
        if (k % 3) batch = t_batch((int)bt_range(1, 2), bt_range(1, 3), bt_range(1, 2), 1, 1);
        if (k % 3 == 2) c = c + c % 2, cols = c * bc; /* even rows: the checkerboard gives every item the same number */
        d = blocky(type, rows, cols, br, bc, batch, k % 3 == 2);
        if (t_is_float(type) && rows && cols && k % 7 == 0 && k % 3 != 2) t_set(&d, 0, rows - 1, cols - 1, (double)NAN);
        want = ref_dense(&d);
        to = type == BSR_F64 && bt_below(2) ? BSR_F32 : type;
        m = target(to, bt_below(2) ? BSR_I64 : BSR_I32, r, br, bc, r * c * (ragged ? t_items(&batch) : 1), batch, ragged);
        count = m, count.col_indices = NULL, count.values = NULL, count.nnz = 0;
        if (!RUN_OK(bsr_from_dense(t_any_context(), &d, &count, &e))) continue;
        need = count.nnz;
        CHECK(count.rows == r * br && count.cols == c * bc);
        m.nnz = need;
        { /* arrays of exactly that many blocks */
            bsr_matrix exact = target(to, m.index_dtype, r, br, bc, need, batch, ragged);
            if (!RUN_OK(bsr_from_dense(t_any_context(), &d, &exact, &e))) continue;
            CHECK_INT(exact.nnz, need);
            check_blocks(&exact, &want, any_nonzero);
            if (need > 0) {
                exact = target(to, m.index_dtype, r, br, bc, need - 1, batch, ragged);
                CHECK_INT(bsr_from_dense(t_any_context(), &d, &exact, &e), BSR_CAPACITY);
                CHECK_INT(t_error.item, BSR_ITEM_CAPACITY);
                CHECK_INT(t_error.value, need);
                CHECK(t_all_poison(exact.values) && t_all_poison(exact.col_indices));
            }
        }
    }
}
/* upstream.md 6.1, test_dense_to_from_sparse_compressed */
TEST(upstream_round_trip) {
    static const int64_t blocks[][2] = {{2, 2}, {1, 1}, {1, 2}}, sizes[][2] = {{6, 10}, {0, 10}, {6, 0}, {0, 0}};
    int b, s, batch;
    for (b = 0; b < 3; b++)
        for (s = 0; s < 4; s++)
            for (batch = 0; batch < 4; batch++) {
                t_shape shape = batch == 0   ? NO_BATCH
                                : batch == 1 ? t_batch(1, 3, 0, 0, 0)
                                : batch == 2 ? t_batch(2, 1, 3, 0, 0)
                                             : t_batch(3, 2, 1, 3, 0);
                int64_t br = blocks[b][0], bc = blocks[b][1], r = sizes[s][0] / br, c = sizes[s][1] / bc;
                bsr_dense d, back;
                bsr_matrix m;
                bsr_exec e = t_exec(0);
                int64_t i, j, k;
                bt_case("block %d, size %d, batch %d", b, s, batch);
                d = t_random(BSR_F32, sizes[s][0], sizes[s][1], ROW, shape, 0, FILL_SIGNED); /* full: equal counts */
                back = t_output(BSR_F32, sizes[s][0], sizes[s][1], COL, shape);
                m = target(BSR_F32, BSR_I32, r, br, bc, r * c, shape, 0);
                RUN_OK(bsr_from_dense(t_any_context(), &d, &m, &e));
                CHECK_INT(m.nnz, r * c);
                RUN_OK(bsr_to_dense(t_any_context(), &m, &back, &e));
                for (k = 0; k < t_items(&shape); k++)
                    for (i = 0; i < d.rows; i++)
                        for (j = 0; j < d.cols; j++) CHECK(t_get(&d, k, i, j) == t_get(&back, k, i, j));
            }
    bt_case("unequal items need BSR_MATRIX_RAGGED");
    {
        bsr_dense d = t_random(BSR_F32, 4, 4, ROW, t_batch(1, 2, 0, 0, 0), 0, FILL_SIGNED);
        bsr_matrix m = target(BSR_F32, BSR_I32, 2, 2, 2, 4, t_batch(1, 2, 0, 0, 0), 0);
        bsr_exec e = t_exec(0);
        int64_t i;
        for (i = 0; i < 4; i++) t_set(&d, 1, i / 2, i % 2, 0);
        CHECK_INT(bsr_from_dense(t_any_context(), &d, &m, &e), BSR_BAD_STRUCTURE);
        CHECK_INT(t_error.item, BSR_ITEM_UNEQUAL_NNZ);
        CHECK_INT(t_error.index, 1), CHECK_INT(t_error.value, 3);
        CHECK(t_all_poison(m.values));
    }
    bt_case("a batch of no items");
    {
        bsr_dense d = t_random(BSR_F32, 4, 4, ROW, t_batch(1, 0, 0, 0, 0), 0, FILL_SIGNED);
        bsr_matrix m = target(BSR_F32, BSR_I32, 2, 2, 2, 4, t_batch(1, 0, 0, 0, 0), 0);
        bsr_exec e = t_exec(0);
        RUN_OK(bsr_from_dense(t_any_context(), &d, &m, &e));
    }
}

static ref_array stored_somewhere; /* 1 where an entry falls */
static int entry_in_block(const ref_array *a, int64_t b, int64_t r, int64_t c, int64_t br, int64_t bc) {
    (void)a;
    return any_nonzero(&stored_somewhere, b, r, c, br, bc);
}
TEST(from_csr_and_coo) {
    int k;
    for (k = 0; k < 240; k++) {
        int64_t rows, cols, br, bc, nnz, n, i, r, c, need;
        int type = all_dtypes[k % 6], index = k % 4 < 2 ? BSR_I32 : BSR_I64, coo = k & 1, ones;
        void *first, *col, *values;
        bsr_matrix m, count;
        bsr_exec e = t_exec(0);
        ref_array want;
        bsr_status status;
        bt_case("%d: %s", k, coo ? "coo" : "csr");
        rows = bt_range(k % 20 ? 1 : 0, 20), cols = bt_range(1, 20), br = bt_range(1, 5), bc = bt_range(1, 5),
        nnz = rows ? bt_range(0, 40) : 0, ones = bt_below(5) == 0;
        r = (rows + br - 1) / br, c = (cols + bc - 1) / bc;
        first = bt_alloc((size_t)(coo ? nnz : rows + 1) * bsr_dtype_size(index), bsr_dtype_size(index));
        col = bt_alloc((size_t)nnz * bsr_dtype_size(index), bsr_dtype_size(index)),
        values = bt_alloc((size_t)nnz * bsr_dtype_size(type), bsr_dtype_size(type));
        want = ref_new(NO_BATCH, rows, cols), stored_somewhere = ref_new(NO_BATCH, rows, cols);
        if (!coo) t_set_index(first, index, 0, 0);
        for (i = 0, n = 0; i < rows && !coo; i++) { /* rows of any length; columns in any order, repeated */
            int64_t take = i == rows - 1 ? nnz - n : bt_below(nnz - n + 1) / 2;
            n += take, t_set_index(first, index, i + 1, n);
        }
        for (n = 0, i = 0; n < nnz; n++) {
            double v = bt_below(6) ? (double)bt_range(-4, 4) : 0; /* explicit zeros are kept */
            int64_t at = bt_below(cols);
            if (coo) i = bt_below(rows), t_set_index(first, index, n, i);
            else
                while (t_index(first, index, i + 1) <= n) i++;
            if (ones) v = 1;
            t_set_index(col, index, n, at), t_store(values, type, n, v);
            *ref_at(&want, 0, i, at) += v, *ref_at(&stored_somewhere, 0, i, at) = 1;
        }
        count = target(type, bt_below(2) ? BSR_I64 : BSR_I32, r, br, bc, 0, NO_BATCH, 0), count.col_indices = count.values = NULL;
        bt_before_call();
        status = coo ? bsr_from_coo(t_any_context(), rows, cols, nnz, first, col, index, ones ? NULL : values, type, &count, &e)
                     : bsr_from_csr(t_any_context(), rows, cols, nnz, first, col, index, ones ? NULL : values, type, &count, &e);
        if (!t_run_ok(__FILE__, __LINE__, "count", (int)status)) continue;
        need = count.nnz;
        m = target(type, count.index_dtype, r, br, bc, need, NO_BATCH, 0);
        if (bt_below(2)) m.rows = r * br, m.cols = c * bc;
        bt_before_call();
        status = coo ? bsr_from_coo(t_any_context(), rows, cols, nnz, first, col, index, ones ? NULL : values, type, &m, &e)
                     : bsr_from_csr(t_any_context(), rows, cols, nnz, first, col, index, ones ? NULL : values, type, &m, &e);
        if (!t_run_ok(__FILE__, __LINE__, "convert", (int)status)) continue;
        CHECK_INT(m.nnz, need);
        check_blocks(&m, &want, entry_in_block);
        if (need) {
            m = target(type, count.index_dtype, r, br, bc, need - 1, NO_BATCH, 0);
            status = coo ? bsr_from_coo(t_any_context(), rows, cols, nnz, first, col, index, values, type, &m, &e)
                         : bsr_from_csr(t_any_context(), rows, cols, nnz, first, col, index, values, type, &m, &e);
            CHECK_INT(status, BSR_CAPACITY);
            CHECK_INT(t_error.value, need);
            CHECK(t_all_poison(m.values) && t_all_poison(m.col_indices));
        }
    }
}
/* Entries that stand several times in a row are added in f64 and rounded once, in whatever order entries come. */
TEST(duplicates_cancel) {
    static const int32_t row[3][7] = {{0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 1, 1, 1}, {0, 1, 0, 0, 1, 0, 1}};
    static const int32_t col[3][7] = {{0, 1, 1, 1, 0, 0, 0}, {0, 1, 1, 1, 0, 0, 0}, {0, 0, 1, 1, 0, 1, 0}};
    static const float value[3][7] = {{5, 1e8f, 1, -1e8f, -1e8f, 1e8f, 2}, {5, 1e8f, 1, -1e8f, -1e8f, 1e8f, 2},
                                      {5, -1e8f, 1e8f, 1, 1e8f, -1e8f, 2}};
    static const int64_t blocks[][2] = {{1, 1}, {2, 2}, {1, 2}, {2, 1}};
    int k, i, j;
    for (k = 0; k < 3 * 4 * 2; k++) { /* CSR, sorted COO, COO in another order */
        const int way = k % 3, wide = k / 12;
        const int64_t br = blocks[k / 3 % 4][0], bc = blocks[k / 3 % 4][1], n = 4 / (br * bc);
        int64_t crow64[3] = {0, 4, 7}, row64[7], col64[7], crow_to[3], col_to[4];
        int32_t crow32[3] = {0, 4, 7}, row32[7], col32[7];
        float values[4] = {0}, dense[4] = {9, 9, 9, 9};
        bsr_dense out = bsr_dense_row_major(dense, BSR_F32, 2, 2);
        bsr_matrix m;
        bsr_exec e = t_exec(0);
        bt_case("way %d, blocks of %d x %d, %s", way, (int)br, (int)bc, wide ? "i64" : "i32");
        for (i = 0; i < 7; i++)
            row64[i] = row32[i] = row[way][i], col64[i] = col32[i] = col[way][i];
        m = bsr_matrix_make(2, 2, br, bc, n, crow_to, col_to, wide ? BSR_I64 : BSR_I32, values, BSR_F32);
        CHECK_INT(way ? bsr_from_coo(t_any_context(), 2, 2, 7, wide ? (void *)row64 : row32, wide ? (void *)col64 : col32,
                                     wide ? BSR_I64 : BSR_I32, value[way], BSR_F32, &m, &e)
                      : bsr_from_csr(t_any_context(), 2, 2, 7, wide ? (void *)crow64 : crow32, wide ? (void *)col64 : col32,
                                     wide ? BSR_I64 : BSR_I32, value[way], BSR_F32, &m, &e),
                  BSR_OK);
        CHECK_INT(bsr_to_dense(t_any_context(), &m, &out, &e), BSR_OK);
        for (j = 0; j < 4; j++) CHECK_NEAR((double)dense[j], j == 0 ? 5 : j == 1 ? 1 : j == 2 ? 2 : 0, 0);
    }
}
/* A few entries of a matrix that claims to be wide: scratch goes by the entries. */
TEST(from_coo_of_a_wide_matrix) {
    const int64_t wide = INT64_C(1) << 40;
    int64_t row[] = {1, 0, 1, 1, 0}, col[5], at, n = 0;
    float values[] = {1, 2, 3, 4, 5};
    bsr_exec e = t_exec(0);
    void *start = bt_alloc(3 * 8, 8), *cols = bt_alloc(5 * 8, 8), *blocks = bt_alloc(10 * 4, 4);
    bsr_matrix m = bsr_matrix_make(2, wide, 1, 2, 5, start, cols, BSR_I64, blocks, BSR_F32);
    const int64_t *crow = (const int64_t *)m.crow_indices, *to = (const int64_t *)m.col_indices;
    col[0] = wide - 1, col[1] = wide / 2, col[2] = 3, col[3] = 65536 * 2 + 2, col[4] = 7;
    CHECK_INT(bsr_from_coo(t_context(0), 2, wide, 5, row, col, BSR_I64, values, BSR_F32, &m, &e), BSR_OK);
    CHECK_INT(m.nnz, 5), CHECK_INT(crow[1], 2), CHECK_INT(crow[2], 5);
    for (at = 0; at < 5; at++) {
        static const int from[] = {4, 1, 2, 3, 0};
        const float *block = (const float *)m.values + 2 * at;
        CHECK_INT(to[at], col[from[at]] / 2);
        n += block[col[from[at]] % 2] == values[from[at]] && block[1 - col[from[at]] % 2] == 0;
    }
    CHECK_INT(n, 5);
}
TEST(from_csr_bad) {
    int32_t crow[] = {0, 2, 3}, col[] = {0, 2, 1}, row[] = {0, 1, 1};
    float values[] = {1, 2, 3};
    bsr_exec e = t_exec(0);
    bsr_matrix m;
    bt_case("column too large"), m = target(BSR_F32, BSR_I32, 2, 1, 1, 4, NO_BATCH, 0);
    CHECK_INT(bsr_from_csr(t_context(0), 2, 2, 3, crow, col, BSR_I32, values, BSR_F32, &m, &e), BSR_BAD_STRUCTURE);
    CHECK_INT(t_error.item, BSR_ITEM_COL_RANGE), CHECK_INT(t_error.index, 1), CHECK_INT(t_error.value, 2);
    CHECK(t_all_poison(m.values));
    bt_case("rows too large"), m = target(BSR_F32, BSR_I32, 2, 1, 1, 4, NO_BATCH, 0);
    row[2] = 7;
    CHECK_INT(bsr_from_coo(t_context(0), 2, 3, 3, row, col, BSR_I32, values, BSR_F32, &m, &e), BSR_BAD_STRUCTURE);
    CHECK_INT(t_error.item, BSR_ITEM_ROW_RANGE), CHECK_INT(t_error.index, 2), CHECK_INT(t_error.value, 7);
    CHECK(t_all_poison(m.values));
    bt_case("crow decreases"), m = target(BSR_F32, BSR_I32, 2, 1, 1, 4, NO_BATCH, 0);
    crow[1] = 4;
    CHECK_INT(bsr_from_csr(t_context(0), 2, 3, 3, crow, col, BSR_I32, values, BSR_F32, &m, &e), BSR_BAD_STRUCTURE);
    CHECK(t_all_poison(m.values));
}

/* The entries that CSR has of m's first rows x cols elements, in their order, are those that were written. */
static void check_entries(const bsr_matrix *m, int64_t rows, int64_t cols, int64_t nnz, const void *crow, const void *row,
                          const void *col, int index, const void *values, int type) {
    int64_t i, p, x, n = 0, at;
    for (i = 0; i < rows; i++) {
        CHECK_INT(t_index(crow, index, i), n);
        for (p = t_crow(m, 0, i / m->block_rows); p < t_crow(m, 0, i / m->block_rows + 1); p++)
            for (x = 0; x < m->block_cols; x++, n++) {
                at = t_col(m, 0, p) * m->block_cols + x;
                if (at >= cols) break;
                if (n >= nnz) continue; /* counted, and said below */
                CHECK_INT(t_index(col, index, n), at);
                if (row) CHECK_INT(t_index(row, index, n), i);
                if (values)
                    CHECK(t_load(values, type, n) ==
                          t_rounded(type, t_load(m->values, m->dtype, t_value_at(m, 0, p, i % m->block_rows, x))));
            }
    }
    CHECK_INT(t_index(crow, index, rows), n), CHECK_INT(nnz, n);
}
static bsr_status to_entries(int coo, const bsr_matrix *m, int64_t rows, int64_t cols, int64_t *nnz, void *crow, void *row,
                             void *col, int index, void *values, int type, const bsr_exec *e) {
    bt_before_call();
    if (coo) return bsr_to_coo(t_any_context(), m, rows, cols, nnz, crow, row, col, index, values, type, e);
    return bsr_to_csr(t_any_context(), m, rows, cols, nnz, crow, col, index, values, type, e);
}
static void *indices(int64_t n, int index) {
    void *p = bt_alloc((size_t)n * bsr_dtype_size(index), bsr_dtype_size(index));
    bt_mark_output(p);
    return p;
}
TEST(to_csr_and_coo) {
    int k;
    for (k = 0; k < 240; k++) {
        const int type = all_dtypes[k % 6], coo = k / 6 & 1, index = bt_below(2) ? BSR_I32 : BSR_I64;
        const int to = t_is_float(type) && bt_below(2) ? all_dtypes[bt_below(4)] : type;
        int64_t rows, cols, need = 0, nnz;
        void *crow, *row, *col, *values;
        bsr_exec e = t_exec(0);
        bsr_matrix m, back;
        bsr_dense want, got;
        t_spec s;
        bt_case("%d: %s", k, coo ? "coo" : "csr");
        s = t_spec_of(type, bt_range(1, k % 7 ? 6 : 40), bt_range(1, k % 7 ? 6 : 70), bt_range(k % 20 != 0, 9),
                      bt_range(1, 9), 0);
        s.nnz = bt_range(0, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_INTEGER, m = t_matrix(&s);
        rows = m.rows ? m.rows - bt_below(m.block_rows) : 0, cols = m.cols - bt_below(m.block_cols);
        crow = indices(rows + 1, index);
        if (!t_run_ok(__FILE__, __LINE__, "count",
                      (int)to_entries(coo, &m, rows, cols, &need, crow, NULL, NULL, index, NULL, to, &e)))
            continue;
        crow = indices(rows + 1, index), row = indices(need, index), col = indices(need, index);
        values = bt_alloc((size_t)need * bsr_dtype_size(to), bsr_dtype_size(to)), bt_mark_output(values);
        nnz = need;
        if (!t_run_ok(__FILE__, __LINE__, "convert",
                      (int)to_entries(coo, &m, rows, cols, &nnz, crow, row, col, index, values, to, &e)))
            continue;
        check_entries(&m, rows, cols, nnz, crow, coo ? row : NULL, col, index, values, to);
        if (!coo) CHECK(t_all_poison(row));
        /* and back: the same numbers */
        back = target(to, s.index_dtype, s.r, s.block_rows, s.block_cols, m.nnz, NO_BATCH, 0);
        if (coo ? RUN_OK(bsr_from_coo(t_any_context(), rows, cols, nnz, row, col, index, values, to, &back, &e))
                : RUN_OK(bsr_from_csr(t_any_context(), rows, cols, nnz, crow, col, index, values, to, &back, &e))) {
            int64_t i, j;
            want = t_output(to, rows, cols, ROW, NO_BATCH), got = t_output(to, rows, cols, ROW, NO_BATCH);
            if (RUN_OK(bsr_to_dense(t_any_context(), &m, &want, &e)) && RUN_OK(bsr_to_dense(t_any_context(), &back, &got, &e)))
                for (i = 0; i < rows; i++)
                    for (j = 0; j < cols; j++) CHECK(t_get(&want, 0, i, j) == t_get(&got, 0, i, j));
        }
        /* the pattern alone; an array that is too short */
        crow = indices(rows + 1, index), col = indices(need, index), nnz = need;
        if (t_run_ok(__FILE__, __LINE__, "pattern",
                     (int)to_entries(coo, &m, rows, cols, &nnz, crow, NULL, col, index, NULL, to, &e)))
            check_entries(&m, rows, cols, nnz, crow, NULL, col, index, NULL, to);
        if (!need) continue;
        crow = indices(rows + 1, index), row = indices(need - 1, index), col = indices(need - 1, index), nnz = need - 1;
        CHECK_INT(to_entries(coo, &m, rows, cols, &nnz, crow, row, col, index, NULL, to, &e), BSR_CAPACITY);
        CHECK_INT(t_error.value, need), CHECK_INT(nnz, need - 1);
        CHECK(t_all_poison(crow) && t_all_poison(row) && t_all_poison(col));
    }
}
TEST(reblock) {
    int k;
    for (k = 0; k < 240; k++) {
        const int type = all_dtypes[k % 6], to = t_is_float(type) && bt_below(2) ? all_dtypes[bt_below(4)] : type;
        int64_t br, bc, r, c, need, items;
        bsr_exec e = t_exec(0);
        bsr_matrix m, got;
        ref_array want;
        t_spec s;
        bt_case("%d", k);
        s = t_spec_of(type, bt_range(1, k % 5 ? 6 : 33), bt_range(1, k % 5 ? 6 : 40), bt_range(k % 20 != 0, 9),
                      bt_range(1, 9), 0);
        s.nnz = bt_range(0, s.r * s.c), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_INTEGER;
        if (k % 3 == 1) s.batch = t_batch((int)bt_range(1, 2), bt_range(1, 3), 2, 1, 1), s.ragged = (int)bt_below(2);
        m = t_matrix(&s), items = t_items(&s.batch);
        br = bt_range(1, k % 4 ? 8 : 50), bc = bt_range(1, k % 4 ? 8 : 50);
        if (k % 8 == 7) br = m.block_rows * bt_range(1, 3), bc = m.block_cols * bt_range(1, 3);
        if (k % 10 == 9) br = bc = 1;
        r = (m.rows + br - 1) / br, c = (m.cols + bc - 1) / bc;
        want = ref_matrix(&m, &stored_somewhere);
        got = target(to, bt_below(2) ? BSR_I64 : BSR_I32, r, br, bc, 0, s.batch, s.batch.dims > 0);
        got.col_indices = got.values = NULL;
        if (!RUN_OK(bsr_reblock(t_any_context(), &m, &got, &e))) continue;
        need = got.nnz;
        CHECK(got.rows == r * br && got.cols == c * bc && need <= items * r * c);
        got = target(to, got.index_dtype, r, br, bc, need, s.batch, s.batch.dims > 0);
        if (bt_below(2)) got.rows = r * br, got.cols = c * bc;
        if (!RUN_OK(bsr_reblock(t_any_context(), &m, &got, &e))) continue;
        CHECK_INT(got.nnz, need), check_blocks(&got, &want, entry_in_block);
        if (!need) continue;
        got = target(to, got.index_dtype, r, br, bc, need - 1, s.batch, s.batch.dims > 0);
        CHECK_INT(bsr_reblock(t_any_context(), &m, &got, &e), BSR_CAPACITY);
        CHECK_INT(t_error.value, need), CHECK(t_all_poison(got.values) && t_all_poison(got.col_indices));
    }
}
/* What conversions of whole blocks refuse, before anything is written. */
TEST(to_csr_bad) {
    int k;
    for (k = 0; k < 12; k++) {
        t_spec s = t_spec_of(k == 11 ? BSR_I8 : BSR_F32, 2, 3, 3, 4, 7);
        int64_t rows = 6, cols = 12, nnz = 42, *count = &nnz;
        void *crow, *row, *col;
        float *values;
        bsr_exec e = t_exec(0);
        bsr_matrix m;
        bsr_status status;
        static const bsr_status want[] = {BSR_BAD_STRUCTURE, BSR_BAD_BATCH,    BSR_BAD_SHAPE,    BSR_BAD_SHAPE,
                                          BSR_BAD_SHAPE,     BSR_NULL_POINTER, BSR_NULL_POINTER, BSR_BAD_SHAPE,
                                          BSR_OVERLAP,       BSR_OVERLAP,      BSR_NULL_POINTER, BSR_BAD_DTYPE};
        bt_case("%d", k);
        crow = indices(7, BSR_I32), row = indices(42, BSR_I32), col = indices(42, BSR_I32);
        values = (float *)bt_alloc(42 * 4, 4), bt_mark_output(values);
        if (k == 1) s.batch = t_batch(1, 2, 1, 1, 1);
        m = t_matrix(&s);
        if (k == 0) t_set_index(m.col_indices, m.index_dtype, 1, 9);
        if (k == 2) rows = 4;
        if (k == 3) rows = 7;
        if (k == 4) cols = 13;
        if (k == 5) count = NULL;
        if (k == 6) m.values = NULL;
        if (k == 7) nnz = -1;
        if (k == 8) row = col;
        if (k == 9) crow = m.crow_indices;
        if (k == 10) crow = NULL;
        status = bsr_to_coo(t_any_context(), &m, rows, cols, count, crow, row, col, k == 9 ? m.index_dtype : BSR_I32, values,
                            BSR_F32, &e);
        CHECK_INT(status, want[k]);
        CHECK(t_all_poison(values) && t_all_poison(col) && (k >= 9 || t_all_poison(crow)));
    }
    bt_case("columns that do not ascend");
    {
        int32_t crow[] = {0, 2}, col[] = {1, 0};
        float values[8] = {0};
        bsr_matrix m = bsr_matrix_make(2, 4, 2, 2, 2, crow, col, BSR_I32, values, BSR_F32);
        bsr_matrix got = target(BSR_F32, BSR_I32, 1, 2, 4, 1, NO_BATCH, 0);
        bsr_exec e = t_exec(0);
        CHECK_INT(bsr_reblock(t_context(0), &m, &got, &e), BSR_BAD_STRUCTURE);
        CHECK_INT(t_error.item, BSR_ITEM_COL_ORDER), CHECK_INT(t_error.operand, BSR_ARG_SOURCE);
        CHECK(t_all_poison(got.values) && t_all_poison(got.crow_indices));
    }
}

TEST(from_block_mask) {
    int k;
    for (k = 0; k < 60; k++) {
        int64_t r = 0, c, n, i, items, total = 0;
        t_shape batch;
        bsr_matrix m;
        bsr_exec e = t_exec(0);
        uint8_t *mask;
        int ragged;
        bt_case("%d", k);
        r = bt_range(0, 7), c = bt_range(1, 7), batch = t_batch((int)bt_below(3), bt_range(1, 3), 2, 0, 0),
        items = t_items(&batch), ragged = k & 1;
        mask = (uint8_t *)bt_alloc((size_t)(items * r * c), 1);
        for (i = 0; i < items * r * c; i++) {
            mask[i] = ragged ? (uint8_t)(bt_below(3) ? bt_below(256) : 0) : (uint8_t)((i % (r * c)) % 3 ? 7 : 0);
            total += mask[i] != 0;
        }
        n = ragged ? total : total / items;
        m = target(BSR_F32, k & 2 ? BSR_I64 : BSR_I32, r, 3, 2, n, batch, ragged), m.rows = r * 3, m.cols = c * 2;
        RUN_OK(bsr_from_block_mask(t_any_context(), mask, &m, &e));
        CHECK_INT(m.nnz, n);
        CHECK(t_all_poison(m.values) || !n);
        check_valid(&m);
        for (i = 0; i < items; i++) {
            int64_t y, x, p;
            for (y = 0; y < r; y++)
                for (x = 0, p = t_crow(&m, i, y); x < c; x++) {
                    int there = p < t_crow(&m, i, y + 1) && t_col(&m, i, p) == x;
                    CHECK(there == (mask[(i * r + y) * c + x] != 0));
                    p += there;
                }
        }
    }
}

TEST(kept_blocks) {
    static const struct {
        int64_t total;
        double sparsity;
        int64_t want;
    } rows[] = {{100, 0.8, 20},
                {9, 0.5, 5},
                {4, 0.5, 2},
                {1, 0.5, 1},
                {0, 0.3, 0},
                {7, 0, 7},
                {7, 1, 0},
                {10, 0.95, 1},
                {3, 0.9, 0},
                {1000, 0.123, 877},
                {-1, 0.5, -1},
                {5, -0.1, -1},
                {5, 1.1, -1},
                {5, NAN, -1},
                {INT64_MAX, 0, INT64_MAX},
                {INT64_MAX, 1, 0},
                {1000000007, 0.25, 750000005}};
    size_t i;
    for (i = 0; i < BT_COUNT(rows); i++) {
        bt_case("%lld, %g", (long long)rows[i].total, rows[i].sparsity);
        CHECK_INT(bsr_kept_blocks(rows[i].total, rows[i].sparsity), rows[i].want);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* random patterns, pruning                                                                       */
/* ---------------------------------------------------------------------------------------------- */

TEST(random_pattern) {
    static const double sparsities[] = {0, 0.1, 0.5, 0.56, 0.9, 0.99, 1};
    int s, k;
    for (s = 0; s < 7; s++)
        for (k = 0; k < 12; k++) {
            int64_t r, c, kept, i;
            t_shape batch;
            bsr_matrix m, again, other;
            bsr_exec e = t_exec(0);
            bt_case("sparsity %g, %d", sparsities[s], k);
            r = bt_range(k == 0 ? 0 : 1, 40), batch = t_batch((int)bt_below(2), 3, 0, 0, 0);
            c = k == 1 ? 64 : k == 2 ? 128 : bt_range(1, 100); /* whole words, too */
            kept = bsr_kept_blocks(r * c, sparsities[s]);
            m = target(BSR_F32, BSR_I32, r, 4, 4, kept, batch, 0), m.rows = r * 4, m.cols = c * 4, m.values = NULL;
            again = target(BSR_F32, BSR_I64, r, 4, 4, kept, batch, 0), again.rows = r * 4, again.cols = c * 4,
            again.values = NULL;
            other = target(BSR_F32, BSR_I32, r, 4, 4, kept, batch, 0), other.rows = r * 4, other.cols = c * 4,
            other.values = NULL;
            RUN_OK(bsr_random_pattern(t_any_context(), 42, sparsities[s], &m, &e));
            CHECK_INT(m.nnz, kept);
            check_valid(&m);
            RUN_OK(bsr_random_pattern(t_any_context(), 42, sparsities[s], &again, &e));
            RUN_OK(bsr_random_pattern(t_any_context(), 43, sparsities[s], &other, &e));
            for (i = 0; i < kept; i++) CHECK(t_col(&m, 0, i) == t_col(&again, 0, i)); /* whatever the index type */
            for (i = 0; i < kept && t_col(&m, 0, i) == t_col(&other, 0, i); i++) {
            }
            if (kept > 20 && kept < r * c - 20) CHECK(i < kept);
            if (batch.dims && kept > 20 && kept < r * c - 20) {
                for (i = 0; i < kept && t_col(&m, 0, i) == t_col(&m, 1, i); i++) {
                }
                CHECK(i < kept); /* items differ */
            }
        }
}
/* Every block is as likely as any other: 7 standard deviations over 3000 draws, 20 cells, 6 kept; pairs too. */
TEST(random_uniform) {
    int hits[20] = {0}, pairs[20] = {0}, seed, i;
    int32_t crow[5], col[6];
    for (seed = 0; seed < 3000; seed++) {
        bsr_matrix m = bsr_matrix_make(4, 5, 1, 1, 6, crow, col, BSR_I32, NULL, BSR_F32);
        int has[20] = {0}, r, p;
        if (bsr_random_pattern(t_context(0), (uint64_t)seed, 0.7, &m, NULL) != BSR_OK) {
            bt_fail(__FILE__, __LINE__, "bsr_random_pattern failed");
            return;
        }
        for (r = 0; r < 4; r++)
            for (p = crow[r]; p < crow[r + 1]; p++) has[r * 5 + col[p]] = 1;
        for (i = 0; i < 20; i++) hits[i] += has[i], pairs[i] += has[i] && has[(i + 1) % 20];
    }
    for (i = 0; i < 20; i++) CHECK_NEAR(hits[i], 900, 7 * sqrt(3000 * 0.3 * 0.7));
    for (i = 0; i < 20; i++) CHECK_NEAR(pairs[i], 3000 * 30.0 / 380, 7 * sqrt(3000 * 30.0 / 380));
}

static double block_norm(const ref_array *a, int64_t b, int64_t r, int64_t c, int64_t br, int64_t bc, int norm) {
    double sum = 0;
    int64_t i, j;
    for (i = r * br; i < (r + 1) * br && i < a->rows; i++)
        for (j = c * bc; j < (c + 1) * bc && j < a->cols; j++) {
            double x = fabs(*ref_at(a, b, i, j));
            if (x != x) return (double)INFINITY;
            sum = norm == BSR_NORM_MAX ? fmax(sum, x) : sum + (norm == BSR_NORM_L1 ? x : x * x);
        }
    return sum;
}
TEST(prune) {
    int k;
    for (k = 0; k < 180; k++) {
        int64_t r, c, br, bc, kept, total, b, y, x, p, q;
        bsr_dense d;
        bsr_matrix m, stored;
        t_spec s;
        t_shape batch;
        bsr_exec e = t_exec(0);
        ref_array want, count;
        double sparsity;
        int norm = k % 3, type, sparse = k % 4 == 3;
        bt_case("%d", k);
        type = all_dtypes[bt_below(5)], r = bt_range(1, 6), c = bt_range(1, 6), br = bt_range(1, 5), bc = bt_range(1, 5),
        total = r * c;
        sparsity = bt_below(5) ? bt_uniform() : (double)bt_below(2), kept = bsr_kept_blocks(total, sparsity);
        batch = sparse ? NO_BATCH : t_batch((int)bt_below(3), 2, 2, 0, 0);
        d = t_random(type, sparse ? r * br : r * br - bt_below(br), sparse ? c * bc : c * bc - bt_below(bc),
                     (int)bt_below(LAYOUTS), batch, 0, k % 2 ? FILL_SIGNED : FILL_INTEGER);
        if (t_is_float(type) && k % 6 == 0) t_set(&d, 0, 0, 0, (double)NAN);
        s = t_spec_of(type, br, bc, r, c, bt_range(0, total)), s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.kind = FILL_SIGNED;
        stored = t_matrix(&s);
        if (sparse) want = ref_matrix(&stored, &count), kept = kept < stored.nnz ? kept : stored.nnz;
        else want = ref_dense(&d), count = ref_none();
        m = target(type, bt_below(2) ? BSR_I64 : BSR_I32, r, br, bc, kept, batch, 0);
        if (!RUN_OK(
                bsr_prune(t_any_context(), sparse ? bsr_operand_sparse(&stored) : bsr_operand_dense(&d), sparsity, norm, &m, &e)))
            continue;
        CHECK_INT(m.nnz, kept);
        check_valid(&m);
        for (b = 0; b < want.items; b++) {
            double smallest = (double)INFINITY, largest = -1;
            for (y = 0; y < r; y++)
                for (x = 0, p = t_crow(&m, b, y); x < c; x++) {
                    int there = p < t_crow(&m, b, y + 1) && t_col(&m, b, p) == x;
                    double n = block_norm(&want, b, y, x, br, bc, norm);
                    if (sparse && *ref_at(&count, b, y * br, x * bc) == 0) {
                        CHECK(!there);
                        continue;
                    }
                    if (there) smallest = fmin(smallest, n);
                    else largest = fmax(largest, n);
                    for (q = 0; q < br * bc && there; q++) {
                        int64_t i = y * br + q / bc, j = x * bc + q % bc;
                        double v = i < want.rows && j < want.cols ? *ref_at(&want, b, i, j) : 0,
                               got = t_load(m.values, m.dtype, t_value_at(&m, b, p, q / bc, q % bc));
                        CHECK(v == got || (v != v && got != got));
                    }
                    p += there;
                }
            CHECK(!(largest > smallest * (1 + 1e-12)));
        }
    }
}
TEST(prune_ties) { /* equal norms: the first blocks stay */
    bsr_dense d = t_dense(BSR_F32, 4, 4, ROW, NO_BATCH, 0);
    bsr_matrix m = target(BSR_F32, BSR_I32, 2, 2, 2, 2, NO_BATCH, 0);
    bsr_exec e = t_exec(0);
    int64_t i, j;
    for (i = 0; i < 4; i++)
        for (j = 0; j < 4; j++) t_set(&d, 0, i, j, 3);
    RUN_OK(bsr_prune(t_context(0), bsr_operand_dense(&d), 0.5, BSR_NORM_L2, &m, &e));
    CHECK_INT(m.nnz, 2), CHECK_INT(t_crow(&m, 0, 1), 2), CHECK_INT(t_col(&m, 0, 0), 0), CHECK_INT(t_col(&m, 0, 1), 1);
    t_set(&d, 0, 3, 3, (double)NAN); /* NaN counts as the largest */
    m = target(BSR_F32, BSR_I32, 2, 2, 2, 1, NO_BATCH, 0);
    RUN_OK(bsr_prune(t_context(0), bsr_operand_dense(&d), 0.75, BSR_NORM_MAX, &m, &e));
    CHECK_INT(m.nnz, 1), CHECK_INT(t_crow(&m, 0, 1), 0), CHECK_INT(t_col(&m, 0, 0), 1);
}
/* Sums of squares that f64 does not hold: the larger norm stays, not the first of infinities or zeros. */
TEST(prune_extremes) {
    static const double sizes[] = {1e200, 1e-200, 1e155, 3e-160};
    int k;
    for (k = 0; k < 4; k++) {
        bsr_dense d;
        bsr_matrix m;
        bsr_exec e = t_exec(0);
        int64_t i, j;
        bt_case("%g", sizes[k]);
        d = t_dense(BSR_F64, 2, 6, ROW, NO_BATCH, 0), m = target(BSR_F64, BSR_I32, 1, 2, 2, 1, NO_BATCH, 0);
        for (i = 0; i < 2; i++)
            for (j = 0; j < 6; j++) t_set(&d, 0, i, j, sizes[k] * (double)(j / 2 == 1 ? 3 : 1 + j / 2));
        RUN_OK(bsr_prune(t_context(0), bsr_operand_dense(&d), 2.0 / 3, BSR_NORM_L2, &m, &e));
        CHECK_INT(m.nnz, 1), CHECK_INT(t_col(&m, 0, 0), 1);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* attached views                                                                                 */
/* ---------------------------------------------------------------------------------------------- */

TEST(transposed_index) {
    int k;
    for (k = 0; k < 120; k++) {
        t_spec s;
        bsr_matrix m;
        const int64_t *head;
        const char *base;
        int64_t patterns = 1, i, c, size, at[3], bc, total = 0;
        int d, item;
        bt_case("%d", k);
        s = t_spec_of(BSR_F32, 1, 1, bt_range(1, 9), bt_range(1, 9), bt_range(0, 30));
        s.batch = t_batch((int)bt_below(4), 2, 3, 2, 0), s.ragged = k & 1, s.unsorted = k % 3 == 0, s.duplicates = k % 5 == 0;
        s.shared_pattern = (unsigned)bt_below(8);
        m = t_matrix(&s);
        t_attach_transposed(&m);
        if (!m.transposed_index) continue;
        if (!s.unsorted && !s.duplicates) check_valid(&m);
        head = (const int64_t *)m.transposed_index, base = (const char *)m.transposed_index,
        size = (int64_t)bsr_dtype_size(m.index_dtype), bc = m.cols;
        for (d = 0; d < m.batch_dims; d++) patterns *= m.crow_batch_stride[d] ? m.batch[d] : 1;
        CHECK(head[0] != 0);
        CHECK_INT(head[1], m.nnz), CHECK_INT(head[2], m.rows), CHECK_INT(head[3], bc), CHECK_INT(head[4], patterns),
            CHECK_INT(head[5], m.index_dtype);
        at[0] = 64, at[1] = at[0] + (patterns * (bc + 1) * size + 63) / 64 * 64,
        at[2] = at[1] + ((s.ragged ? 1 : patterns) * m.nnz * size + 63) / 64 * 64;
        for (item = 0, i = 0; i < t_matrix_items(&m); i++) {
            t_shape batch = t_matrix_batch(&m);
            int64_t pattern = 0, step = 1, rest = i, first;
            for (d = m.batch_dims - 1; d >= 0; d--) {
                if (m.crow_batch_stride[d]) pattern += rest % batch.n[d] * step, step *= batch.n[d];
                rest /= batch.n[d];
            }
            if (pattern != item) continue; /* each pattern once, in order */
            item++, first = s.ragged ? total : 0;
            for (c = 0; c < bc; c++) {
                int64_t a = t_index(base + at[0], m.index_dtype, pattern * (bc + 1) + c),
                        z = t_index(base + at[0], m.index_dtype, pattern * (bc + 1) + c + 1);
                int64_t shift = s.ragged ? 0 : pattern * m.nnz, p, before = -1, n = 0, r;
                if (c == 0) CHECK_INT(a, first);
                CHECK(z >= a);
                for (p = a; p < z; p++) {
                    int64_t row = t_index(base + at[1], m.index_dtype, shift + p),
                            pos = t_index(base + at[2], m.index_dtype, shift + p);
                    CHECK(row >= 0 && row < m.rows && row >= before && pos >= t_crow(&m, i, row) &&
                          pos < t_crow(&m, i, row + 1) && t_col(&m, i, pos) == c);
                    before = row;
                }
                for (r = 0; r < m.rows; r++)
                    for (p = t_crow(&m, i, r); p < t_crow(&m, i, r + 1); p++) n += t_col(&m, i, p) == c;
                CHECK_INT(z - a, n);
            }
            total += t_crow(&m, i, m.rows) - t_crow(&m, i, 0);
        }
    }
}
TEST(schedule) {
    int k, some = 0;
    for (k = 0; k < 160; k++) {
        t_spec s;
        bsr_matrix m;
        bsr_exec e;
        int64_t *head;
        const int32_t *order, *length;
        int64_t lines, groups, patterns = 1, i, g, j, columns, all, tall;
        int d, group = 1 << (k % 4), trans = k / 4 % 2;
        bt_case("%d: groups of %d%s", k, group, trans ? ", transposed" : "");
        s = t_spec_of(BSR_F32, 2, 3, bt_range(1, 20), bt_range(1, 20), bt_range(0, 60)),
        s.batch = t_batch((int)bt_below(2), 3, 0, 0, 0), s.ragged = k & 1;
        if (k % 5 == 4) s.batch = t_batch(0, 0, 0, 0, 0), s.ragged = 0, s.nnz = s.c;
        m = t_matrix(&s);
        for (i = 0; k % 5 == 4 && i < s.c; i++) t_set_index(m.col_indices, m.index_dtype, i, i); /* all in the first row */
        for (i = 0; k % 5 == 4 && i < s.r; i++) t_set_index(m.crow_indices, m.index_dtype, i + 1, s.c);
        t_attach_schedule(&m, group, trans);
        if (!m.schedule) continue;
        check_valid(&m);
        e = t_exec(0);
        lines = trans ? s.c : s.r, groups = (lines + group - 1) / group;
        for (d = 0; d < m.batch_dims; d++) patterns *= m.batch[d];
        head = (int64_t *)m.schedule;
        CHECK_INT(head[1], m.nnz), CHECK_INT(head[2], lines), CHECK_INT(head[3], patterns), CHECK_INT(head[4], group),
            CHECK_INT(head[5], groups), CHECK_INT(head[6], trans);
        order = (const int32_t *)(const void *)((const char *)m.schedule + 64);
        length = (const int32_t *)(const void *)((const char *)m.schedule + 64 + (patterns * groups * group * 4 + 63) / 64 * 64);
        for (i = 0; i < patterns; i++) {
            char seen[32] = {0};
            columns = trans ? s.r : s.c;
            for (g = 0; g < groups; g++) {
                char has[32] = {0};
                int64_t n = 0, r, p;
                for (j = 0; j < group; j++) {
                    int64_t line = order[(i * groups + g) * group + j];
                    if (line == -1) {
                        CHECK(g == groups - 1);
                        continue;
                    }
                    CHECK(line >= 0 && line < lines);
                    if (line < 0 || line >= lines) return;
                    CHECK(!seen[line]);
                    seen[line] = 1;
                    for (r = 0; r < s.r; r++)
                        for (p = t_crow(&m, i, r); p < t_crow(&m, i, r + 1); p++) {
                            if (trans && t_col(&m, i, p) == line) has[r] = 1;
                            if (!trans && r == line) has[t_col(&m, i, p)] = 1;
                        }
                }
                for (j = 0; j < columns; j++) n += has[j];
                CHECK_INT(length[i * groups + g], n);
                if (g && (g < groups - 1 || lines % group == 0))
                    CHECK(length[i * groups + g] <= length[i * groups + g - 1]); /* longest first, a part group last */
            }
            for (j = 0; j < lines; j++) CHECK(seen[j]);
        }
        for (g = 0, all = 0; g < groups && patterns; g++) all += length[g];
        for (g = 0, tall = 0; g < groups - 1 && patterns; g++) tall += (length[g] - 1) * groups > 3 * all;
        CHECK_INT(head[7], tall), some += tall > 0;
        head[7] = k % 3 ? tall + 1 : -1;
        CHECK_INT(bsr_validate(t_any_context(), &m, &e), BSR_BAD_STRUCTURE);
        CHECK(t_error.item == BSR_ITEM_VIEW_HEADER && t_error.index == 15 && t_error.value == head[7]);
    }
    CHECK(some > 5);
}
TEST(view_sizes) { /* a buffer one byte short is refused, with the size that it must have */
    t_spec s = t_spec_of(BSR_F32, 2, 2, 5, 6, 11);
    bsr_matrix m = t_matrix(&s);
    bsr_exec e = t_exec(0);
    uint64_t bytes = 0;
    void *buffer;
    CHECK_INT(bsr_transposed_index_size(t_context(0), &m, &bytes, &e), BSR_OK);
    buffer = bt_alloc((size_t)bytes, 64), bt_mark_output(buffer);
    CHECK_INT(bsr_build_transposed_index(t_context(0), &m, buffer, bytes - 1, &e), BSR_CAPACITY);
    CHECK_INT(t_error.item, BSR_ITEM_BUFFER_SIZE), CHECK_INT(t_error.value, bytes), CHECK(t_all_poison(buffer));
    CHECK_INT(bsr_build_transposed_index(t_context(0), &m, (char *)buffer + 8, bytes, &e), BSR_MISALIGNED);
    CHECK_INT(bsr_build_transposed_index(t_context(0), &m, NULL, bytes, &e), BSR_NULL_POINTER);
    CHECK_INT(bsr_schedule_size(t_context(0), &m, 3, 0, &bytes, &e), BSR_BAD_ARGUMENT);
    CHECK_INT(t_error.item, BSR_ITEM_GROUP_SIZE), CHECK_INT(t_error.value, 3);
    CHECK_INT(bsr_schedule_size(t_context(0), &m, 4, 0, &bytes, &e), BSR_OK);
    buffer = bt_alloc((size_t)bytes, 64), bt_mark_output(buffer);
    CHECK_INT(bsr_build_schedule(t_context(0), &m, 4, 0, buffer, bytes - 1, &e), BSR_CAPACITY);
    CHECK(t_all_poison(buffer));
    CHECK_INT(bsr_build_schedule(t_context(0), &m, 4, 0, buffer, bytes, &e), BSR_OK);
}

/* ---------------------------------------------------------------------------------------------- */
/* layouts: small examples worked out by hand from upstream.md 3.4                                */
/* ---------------------------------------------------------------------------------------------- */

static void check_layout(const bsr_layout *l, const char *want) { /* rows of all heads, one after the other, blanks between */
    int64_t n = l->heads * l->blocks * l->blocks, i;
    uint8_t *mask = (uint8_t *)bt_alloc((size_t)n, 1);
    bsr_exec e = t_exec(0);
    bt_mark_output(mask);
    if (!RUN_OK(bsr_layout_mask(t_any_context(), l, mask, &e))) return;
    for (i = 0; i < n; i++, want++) {
        while (*want == ' ') want++;
        if (*want != '0' + mask[i])
            bt_fail(__FILE__, __LINE__, "head %d, row %d, col %d is %d", (int)(i / (l->blocks * l->blocks)),
                    (int)(i / l->blocks % l->blocks), (int)(i % l->blocks), mask[i]);
    }
    CHECK(!*want);
}
TEST(layouts_by_hand) {
    static const int64_t windows[] = {1, 2}, two[] = {2}, from[] = {1}, to[] = {3}, far[] = {0, 9}, far_end[] = {2, 50};
    bsr_layout l;
    bt_case("dense");
    l = bsr_layout_default(BSR_LAYOUT_DENSE, 2, 2), check_layout(&l, "11 11 11 11");
    bt_case("fixed, bidirectional, short last window");
    l = bsr_layout_default(BSR_LAYOUT_FIXED, 1, 6), check_layout(&l, "111101 111101 111101 111101 000111 000111");
    bt_case("fixed, unidirectional");
    l.unidirectional = 1, check_layout(&l, "100000 110000 111000 111100 000110 000111");
    bt_case("fixed, horizontal, two patterns");
    l = bsr_layout_default(BSR_LAYOUT_FIXED, 2, 8), l.horizontal_global_attention = 1, l.different_layout_per_head = 1,
    l.num_different_global_patterns = 2;
    check_layout(&l, "11110001 11110001 11110001 11111111 00011111 00011111 00011111 11111111 "
                     "11110010 11110010 11111111 11110010 00101111 00101111 11111111 00101111");
    bt_case("fixed, one layout copied to all heads");
    l = bsr_layout_default(BSR_LAYOUT_FIXED, 2, 4), l.num_local_blocks = 2,
    check_layout(&l, "1101 1101 0111 0111 1101 1101 0111 0111");
    bt_case("variable, windows 1 and 2, the last repeats");
    l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 1, 6), l.local_window_blocks = windows, l.num_local_windows = 2;
    check_layout(&l, "100000 111000 111000 100110 100110 100001");
    bt_case("variable, unidirectional, global 2");
    l.unidirectional = 1, l.global_block_indices = two, l.num_global_indices = 1;
    check_layout(&l, "100000 010000 011000 001100 001110 001001");
    bt_case("variable, horizontal range");
    l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 1, 5), l.global_block_indices = from, l.global_block_end_indices = to,
    l.num_global_indices = 1, l.horizontal_global_attention = 1;
    check_layout(&l, "11110 11111 11111 11110 01101");
    bt_case("variable, ranges past the end");
    l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 1, 5), l.global_block_indices = far, l.global_block_end_indices = far_end,
    l.num_global_indices = 2;
    check_layout(&l, "11110 11110 11110 11110 11001");
    bt_case("bigbird without random blocks");
    l = bsr_layout_default(BSR_LAYOUT_BIGBIRD, 1, 5), l.num_random_blocks = 0, check_layout(&l, "11111 11100 11110 10111 10011");
    bt_case("bigbird, unidirectional");
    l.unidirectional = 1, check_layout(&l, "10000 11000 11100 10110 10011");
    bt_case("bslongformer");
    l = bsr_layout_default(BSR_LAYOUT_BSLONGFORMER, 1, 5), check_layout(&l, "11111 11100 11110 10111 10011");
    bt_case("bslongformer, global 2");
    l.global_block_indices = two, l.num_global_indices = 1, check_layout(&l, "11100 11100 11111 00111 00111");
    bt_case("bslongformer, unidirectional");
    l.unidirectional = 1, check_layout(&l, "10000 11000 11100 00110 00111");
    bt_case("local sliding window");
    l = bsr_layout_default(BSR_LAYOUT_LOCAL_SLIDING_WINDOW, 1, 5), check_layout(&l, "10000 11000 01100 00110 00011");
    bt_case("local sliding window, bidirectional");
    l.unidirectional = 0, check_layout(&l, "11000 11100 01110 00111 00011");
    bt_case("no blocks");
    l = bsr_layout_default(BSR_LAYOUT_FIXED, 3, 0), check_layout(&l, "");
}
TEST(layouts_random) {
    int k;
    for (k = 0; k < 40; k++) {
        bsr_layout l, plain;
        uint8_t *mask, *base, *again;
        int64_t n, h, r, c, extra, allowed;
        bsr_exec e = t_exec(0);
        int differ = 0;
        bt_case("%d", k);
        n = bt_range(4, 20);
        l = bsr_layout_default(k & 1 ? BSR_LAYOUT_BIGBIRD : BSR_LAYOUT_VARIABLE, 3, n), l.unidirectional = k >> 1 & 1,
        l.different_layout_per_head = k >> 2 & 1;
        l.num_random_blocks = bt_range(1, 3), l.seed = bt_random(), plain = l, plain.num_random_blocks = 0;
        mask = (uint8_t *)bt_alloc((size_t)(3 * n * n), 1), base = (uint8_t *)bt_alloc((size_t)(3 * n * n), 1),
        again = (uint8_t *)bt_alloc((size_t)(3 * n * n), 1);
        bt_mark_output(mask), bt_mark_output(base), bt_mark_output(again);
        RUN_OK(bsr_layout_mask(t_any_context(), &l, mask, &e));
        RUN_OK(bsr_layout_mask(t_any_context(), &l, again, &e));
        RUN_OK(bsr_layout_mask(t_any_context(), &plain, base, &e));
        CHECK(!memcmp(mask, again, (size_t)(3 * n * n)));
        for (h = 0; h < 3; h++)
            for (r = 0; r < n; r++) {
                allowed = l.unidirectional && l.kind == BSR_LAYOUT_BIGBIRD ? r + 1 : n; /* variable may look ahead */
                for (c = 0, extra = 0; c < n; c++) {
                    int m = mask[(h * n + r) * n + c], b = base[(h * n + r) * n + c];
                    CHECK(m >= b && m <= 1);
                    extra += m > b;
                    if (m > b) CHECK(c < allowed);
                    differ |= m != mask[r * n + c];
                }
                CHECK(extra <= l.num_random_blocks);
            }
        if (!l.different_layout_per_head) CHECK(!differ);
        else if (n > 12) CHECK(differ);
    }
    bt_case("as many as there are columns: all of them");
    for (k = 1; k < 12; k++) {
        bsr_layout l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 2, k);
        uint8_t *mask = (uint8_t *)bt_alloc((size_t)(2 * k * k), 1);
        int i, none = 0;
        l.num_random_blocks = k, l.different_layout_per_head = 1, l.seed = bt_random();
        bt_mark_output(mask);
        CHECK_INT(bsr_layout_mask(t_context(0), &l, mask, NULL), BSR_OK);
        for (i = 0; i < 2 * k * k; i++) none += mask[i] != 1;
        CHECK_INT(none, 0);
    }
    bt_case("random blocks do land");
    {
        bsr_layout l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 1, 64);
        uint8_t *mask = (uint8_t *)bt_alloc(64 * 64, 1);
        int total = 0, i;
        l.num_random_blocks = 2;
        CHECK_INT(bsr_layout_mask(t_context(0), &l, mask, NULL), BSR_OK);
        for (i = 0; i < 64 * 64; i++) total += mask[i];
        CHECK(total > 64 * 4 + 60 + 64 && total <= 64 * 4 + 64 + 128); /* two distinct columns a row, few of them taken */
    }
}
TEST(layout_errors) {
    static const int64_t zero[] = {0}, negative[] = {-1}, one[] = {1};
    struct {
        int kind;
        int64_t index, value;
        bsr_layout l;
    } rows[16];
    int n = 0, i;
#define BAD(k, field, index_, value_)                                                                            \
    rows[n].kind = k, rows[n].l = bsr_layout_default(k, 2, 8), rows[n].l.field = value_, rows[n].index = index_, \
    rows[n].value = value_, n++
    BAD(BSR_LAYOUT_FIXED, heads, 2, -1);
    BAD(BSR_LAYOUT_FIXED, blocks, 3, -5);
    BAD(BSR_LAYOUT_FIXED, unidirectional, 1, 2);
    BAD(BSR_LAYOUT_FIXED, num_global_blocks, 7, 3);
    BAD(BSR_LAYOUT_FIXED, num_local_blocks, 6, 0);
    BAD(BSR_LAYOUT_FIXED, num_different_global_patterns, 8, 2); /* without a layout per head */
    BAD(BSR_LAYOUT_VARIABLE, num_random_blocks, 9, 9);
    BAD(BSR_LAYOUT_BIGBIRD, num_random_blocks, 9, 9);
    BAD(BSR_LAYOUT_BIGBIRD, num_sliding_window_blocks, 10, 9);
    BAD(BSR_LAYOUT_BIGBIRD, num_global_blocks, 7, 9);
    BAD(BSR_LAYOUT_BSLONGFORMER, num_sliding_window_blocks, 10, 9);
    BAD(BSR_LAYOUT_LOCAL_SLIDING_WINDOW, num_sliding_window_blocks, 10, 9);
#undef BAD
    rows[n].l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 2, 8), rows[n].l.unidirectional = 1,
    rows[n].l.horizontal_global_attention = 1, rows[n].index = 5, rows[n].value = 1, n++;
    rows[n].l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 2, 8), rows[n].l.local_window_blocks = zero,
    rows[n].l.num_local_windows = 1, rows[n].index = 11, rows[n].value = 0, n++;
    rows[n].l = bsr_layout_default(BSR_LAYOUT_BSLONGFORMER, 2, 8), rows[n].l.global_block_indices = negative,
    rows[n].l.num_global_indices = 1, rows[n].index = 12, rows[n].value = -1, n++;
    rows[n].l = bsr_layout_default(BSR_LAYOUT_VARIABLE, 2, 8), rows[n].l.global_block_indices = one,
    rows[n].l.global_block_end_indices = one, rows[n].l.num_global_indices = 1, rows[n].index = 13, rows[n].value = 1, n++;
    for (i = 0; i < n; i++) {
        uint8_t *mask;
        bsr_exec e = t_exec(0);
        bt_case("%d: kind %d, field %lld", i, rows[i].l.kind, (long long)rows[i].index);
        mask = (uint8_t *)bt_alloc(2 * 64, 1), bt_mark_output(mask);
        CHECK_INT(bsr_layout_mask(t_context(0), &rows[i].l, mask, &e), BSR_BAD_ARGUMENT);
        CHECK_INT(t_error.item, BSR_ITEM_LAYOUT_FIELD), CHECK_INT(t_error.index, rows[i].index),
            CHECK_INT(t_error.value, rows[i].value);
        CHECK(t_all_poison(mask));
    }
    bt_case("kind");
    {
        bsr_layout l = bsr_layout_default(17, 2, 8);
        uint8_t mask[128];
        bsr_exec e = t_exec(0);
        CHECK_INT(bsr_layout_mask(t_context(0), &l, mask, &e), BSR_BAD_ARGUMENT);
        CHECK_INT(t_error.item, BSR_ITEM_LAYOUT_KIND), CHECK_INT(t_error.value, 17);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* parsers                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

typedef struct mtx_good {
    const char *text;
    int64_t rows, cols, stored, entries;
    int has_values, symmetric;
    const char *want; /* "row col value" of each entry, in order */
} mtx_good;
TEST(matrix_market_good) {
    static const mtx_good files[] = {
        {"%%MatrixMarket matrix coordinate real general\n% a comment\n\n2 3 2\n1 1 1.5\n2 3 -2e1\n", 2, 3, 2, 2, 1, 0,
         "0 0 1.5 1 2 -20"},
        {"%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 7", 1, 1, 1, 1, 1, 0, "0 0 7"},
        {"%%MatrixMarket matrix coordinate pattern general\r\n2 2 2\r\n1 2\r\n2 1\r\n", 2, 2, 2, 2, 0, 0, "0 1 1 1 0 1"},
        {"%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 2\n3 1 4\n3 3 1\n", 3, 3, 3, 4, 1, 1,
         "0 0 2 2 0 4 0 2 4 2 2 1"},
        {"%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 1\n3 1 4\n", 3, 3, 1, 2, 1, 2, "2 0 4 0 2 -4"},
        {"%%matrixmarket MATRIX Coordinate Real General\n2 2 0\n", 2, 2, 0, 0, 1, 0, ""},
        {"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", 2, 2, 4, 4, 1, 0, "0 0 1 1 0 2 0 1 3 1 1 4"},
        {"%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n", 3, 3, 3, 6, 1, 2,
         "1 0 1 0 1 -1 2 0 2 0 2 -2 2 1 3 1 2 -3"},
        {"%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n4\n", 2, 2, 3, 4, 1, 1, "0 0 1 1 0 2 0 1 2 1 1 4"},
        {"%%MatrixMarket matrix coordinate real general\n0 0 0\n", 0, 0, 0, 0, 1, 0, ""},
        {"%%MatrixMarket matrix coordinate real general\n  2\t2  1 \n\t 1 2 \t 1e-3\t\n\n  \n", 2, 2, 1, 1, 1, 0, "0 1 0.001"},
        {"%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 .5\n1 2 +3.E+2\n", 1, 2, 2, 2, 1, 0, "0 0 0.5 0 1 300"},
        {"%%MatrixMarket matrix coordinate real general\n1 3 3\n1 1 0.1\n1 2 1.7976931348623157e308\n1 3 "
         "2.2250738585072014e-308\n",
         1, 3, 3, 3, 1, 0, "0 0 0.1 0 1 1.7976931348623157e308 0 2 2.2250738585072014e-308"},
    };
    size_t k;
    for (k = 0; k < BT_COUNT(files); k++) {
        const mtx_good *f = &files[k];
        bsr_file_info info;
        bsr_error error;
        int64_t row[8], col[8], i;
        double values[8];
        size_t n = strlen(f->text);
        char *text, *want;
        bt_case("%d", (int)k);
        text = (char *)bt_alloc(n, 1); /* no terminator: ends where memory ends */
        memcpy(text, f->text, n);
        bt_before_call();
        CHECK_INT(bsr_parse_matrix_market(text, n, &info, NULL, NULL, NULL, 0, &error), BSR_OK);
        CHECK_INT(info.rows, f->rows), CHECK_INT(info.cols, f->cols), CHECK_INT(info.stored, f->stored),
            CHECK_INT(info.entries, f->entries);
        CHECK_INT(info.has_values, f->has_values), CHECK_INT(info.symmetric, f->symmetric);
        if (bsr_parse_matrix_market(text, n, &info, row, col, values, f->entries, &error) != BSR_OK) {
            bt_fail(__FILE__, __LINE__, "%s in line %d", bsr_item_name(error.item), (int)error.index);
            continue;
        }
        bt_after_call();
        for (i = 0, want = (char *)(uintptr_t)f->want; i < f->entries; i++) {
            CHECK_INT(row[i], strtol(want, &want, 10)), CHECK_INT(col[i], strtol(want, &want, 10));
            CHECK(values[i] == strtod(want, &want));
        }
        CHECK_INT(bsr_parse_matrix_market(text, n, &info, row, col, NULL, f->entries, &error), BSR_OK);
        if (f->entries) {
            CHECK_INT(bsr_parse_matrix_market(text, n, &info, row, col, values, f->entries - 1, &error), BSR_CAPACITY);
            CHECK_INT(error.item, BSR_ITEM_CAPACITY), CHECK_INT(error.value, f->entries);
        }
    }
}
#define MM "%%MatrixMarket matrix coordinate real general\n"
typedef struct bad_text {
    const char *text;
    int item;
    int64_t line;
} bad_text;
TEST(matrix_market_bad) {
    static const bad_text files[] = {
        {"%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 2\n3 1 4\n2 2 0\n", BSR_ITEM_PARSE_RANGE, 4},
        {"%%MatrixMarket matrix coordinate pattern skew-symmetric\n3 3 1\n1 1\n", BSR_ITEM_PARSE_RANGE, 3},
        {"", BSR_ITEM_PARSE_HEADER, 1},
        {"2 2 1\n1 1 1\n", BSR_ITEM_PARSE_HEADER, 1},
        {"%%MatrixMarket matrix coordinate real\n1 1 0\n", BSR_ITEM_PARSE_HEADER, 1},
        {"%%MatrixMarket matrix coordinate quaternion general\n1 1 0\n", BSR_ITEM_PARSE_HEADER, 1},
        {"%%MatrixMarket vector coordinate real general\n1 1 0\n", BSR_ITEM_PARSE_KIND, 1},
        {"%%MatrixMarket matrix coordinate complex general\n1 1 0\n", BSR_ITEM_PARSE_KIND, 1},
        {"%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", BSR_ITEM_PARSE_KIND, 1},
        {"%%MatrixMarket matrix array pattern general\n1 1\n", BSR_ITEM_PARSE_KIND, 1},
        {MM, BSR_ITEM_PARSE_SHORT, -2},
        {MM "% only comments\n", BSR_ITEM_PARSE_SHORT, -2},
        {MM "2 2\n", BSR_ITEM_PARSE_NUMBER, 2},
        {MM "2 2 1 9\n1 1 1\n", BSR_ITEM_PARSE_EXTRA, 2},
        {MM "2 x 1\n", BSR_ITEM_PARSE_NUMBER, 2},
        {MM "-2 2 1\n1 1 1\n", BSR_ITEM_PARSE_RANGE, 2},
        {MM "2 2 1\n", BSR_ITEM_PARSE_SHORT, -2},
        {MM "2 2 2\n1 1 1\n", BSR_ITEM_PARSE_SHORT, -2},
        {MM "2 2 1\n1 1 1\n2 2 2\n", BSR_ITEM_PARSE_EXTRA, 4},
        {MM "2 2 1\n0 1 1\n", BSR_ITEM_PARSE_RANGE, 3},
        {MM "2 2 1\n1 3 1\n", BSR_ITEM_PARSE_RANGE, 3},
        {MM "2 2 1\n1 1\n", BSR_ITEM_PARSE_NUMBER, 3},
        {MM "2 2 1\n1 1 abc\n", BSR_ITEM_PARSE_NUMBER, 3},
        {MM "2 2 1\n1 1 1x\n", BSR_ITEM_PARSE_NUMBER, 3},
        {MM "2 2 1\n1.5 1 1\n", BSR_ITEM_PARSE_NUMBER, 3},
        {MM "2 2 1\n1 1 1 1\n", BSR_ITEM_PARSE_EXTRA, 3},
        {MM "2 2 1\n% c\n\n1 1 -\n", BSR_ITEM_PARSE_NUMBER, 5},
        {MM "2 2 99999999999999999999999\n1 1 1\n", BSR_ITEM_PARSE_RANGE, 2},
        {MM "9223372036854775807 9223372036854775807 9223372036854775807\n", BSR_ITEM_PARSE_RANGE, 2},
        {"%%MatrixMarket matrix array real general\n9223372036854775000 9223372036854775000\n", BSR_ITEM_PARSE_RANGE, 2},
        {"%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", BSR_ITEM_PARSE_RANGE, 2},
        {"%%MatrixMarket matrix array real general\n2 1\n1\n", BSR_ITEM_PARSE_SHORT, -2},
        {"%%MatrixMarket matrix array real general\n1 1\n1\n2\n", BSR_ITEM_PARSE_EXTRA, 4},
    };
    size_t k;
    for (k = 0; k < BT_COUNT(files); k++) {
        size_t n = strlen(files[k].text);
        char *text;
        bsr_file_info info;
        bsr_error error;
        int64_t row[4], col[4];
        double values[4];
        bt_case("%d", (int)k);
        text = (char *)bt_alloc(n, 1);
        if (n) memcpy(text, files[k].text, n);
        CHECK_INT(bsr_parse_matrix_market(text, n, &info, NULL, NULL, NULL, 0, &error), BSR_PARSE_ERROR);
        CHECK_STR(bsr_item_name(error.item), bsr_item_name(files[k].item));
        CHECK_INT(error.status, BSR_PARSE_ERROR), CHECK_INT(error.operand, BSR_ARG_TEXT);
        if (files[k].line > 0) CHECK_INT(error.index, files[k].line);
        else CHECK(error.index >= -files[k].line - 1); /* the line where the text ends */
        CHECK_INT(bsr_parse_matrix_market(text, n, &info, row, col, values, 4, &error), BSR_PARSE_ERROR);
        CHECK_INT(bsr_parse_matrix_market(text, n, &info, row, col, values, 4, NULL), BSR_PARSE_ERROR);
    }
    bt_case("null arguments");
    {
        bsr_error error;
        bsr_file_info info;
        CHECK_INT(bsr_parse_matrix_market(NULL, 5, &info, NULL, NULL, NULL, 0, &error), BSR_NULL_POINTER);
        CHECK_INT(bsr_parse_matrix_market("x", 1, NULL, NULL, NULL, NULL, 0, &error), BSR_NULL_POINTER);
        CHECK_INT(bsr_parse_smtx(NULL, 5, &info, NULL, NULL, 0, &error), BSR_NULL_POINTER);
        CHECK_INT(bsr_parse_smtx("x", 1, NULL, NULL, NULL, 0, &error), BSR_NULL_POINTER);
    }
}
/* One number as the only entry of a file. */
static double parsed(const char *number) {
    static const char head[] = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 ";
    const size_t n = sizeof head - 1 + strlen(number) + 1;
    char *text = (char *)malloc(n);
    int64_t row, col;
    double value = NAN;
    bsr_file_info info;
    bsr_error error;
    if (!text) abort();
    memcpy(text, head, sizeof head - 1), memcpy(text + sizeof head - 1, number, n - sizeof head), text[n - 1] = '\n';
    CHECK_INT(bsr_parse_matrix_market(text, n, &info, &row, &col, &value, 1, &error), BSR_OK);
    free(text);
    return value;
}
static uint64_t bits_of(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}
/* digits d1.d2d3... x 10^exponent, written with leading zeros, or with all digits before the point; then `more` digits */
static void write_number(char *to, const char *digits, int exponent, int more, char last) {
    const int zeros = (int)bt_below(3) ? (int)bt_below(400) : 0, n = (int)strlen(digits), whole = !zeros && bt_below(2);
    int i;
    if (!whole) *to++ = '0', *to++ = '.', memset(to, '0', (size_t)zeros), to += zeros;
    memcpy(to, digits, (size_t)n), to += n;
    if (whole) *to++ = '.';
    for (i = 0; i < more; i++) *to++ = last == '9' ? '9' : '0';
    if (last) *to++ = last;
    sprintf(to, "e%d", exponent + 1 + (whole ? -n : zeros));
}
/* Numbers half way between two neighbours, exactly, and by one digit far behind more or less: to nearest, ties to even, as
   strtod() has it, for any number of digits. */
TEST(decimals_near_halfway) {
    static char digits[1300], text[8000];
    int k, form;
    if (LDBL_MANT_DIG < 64) {
        bt_skip("long double holds no halfway number");
        return;
    }
    for (k = 0; k < 700; k++) {
        uint64_t u = bt_random() >> 1;
        double low, high, want;
        int n, exponent, more = (int)(bt_below(3) ? bt_below(60) : bt_below(3000));
        char *e;
        bt_case("%d", k);
        if (k % 5 == 0) u &= UINT64_C(0x000fffffffffffff) >> bt_below(52);                      /* subnormal */
        if (k % 5 == 1) u = (u & UINT64_C(0x000fffffffffffff)) | (UINT64_C(990) + u % 80) << 52; /* near 1 */
        if (u >= UINT64_C(0x7fe0000000000000)) u -= UINT64_C(0x0020000000000000);
        memcpy(&low, &u, 8), u++, memcpy(&high, &u, 8), u--;
        snprintf(digits, sizeof digits, "%.1200Le", ((long double)low + (long double)high) / 2);
        e = strchr(digits, 'e'), exponent = atoi(e + 1), *e = 0;
        memmove(digits + 1, digits + 2, strlen(digits + 2) + 1); /* the point */
        for (n = (int)strlen(digits); n > 1 && digits[n - 1] == '0';) digits[--n] = 0;
        for (form = 0; form < 4; form++) { /* the number, a bit more, a bit less, the lower neighbour's side by many nines */
            if (form == 2) digits[n - 1]--; /* the last digit is not 0 */
            write_number(text, digits, exponent, form ? more : 0, form == 0 ? 0 : form == 1 ? '1' : form == 2 ? '5' : '9');
            want = form == 0 ? (u & 1 ? high : low) : form == 1 ? high : low;
            CHECK(bits_of(parsed(text)) == bits_of(want)), CHECK(bits_of(strtod(text, NULL)) == bits_of(want));
        }
    }
    bt_case("long zeros and exponents");
    memset(text, '0', sizeof text), text[1] = '.', strcpy(text + 7000, "125e6999");
    CHECK(parsed(text) == 0.125 * 10);
    memset(text, '0', 5000), text[0] = '1', strcpy(text + 5000, "e-5000"), CHECK(parsed(text) == 0.1);
    CHECK(parsed("1e-9223372036854775807") == 0 && parsed("1e9223372036854775807") == (double)INFINITY);
    CHECK(parsed("0e99999999999999999999") == 0);
}
/* What is out of range is told with the bound that it is beyond, and the line once. */
TEST(parse_bounds) {
    static const struct {
        const char *text;
        int64_t value, wanted;
        const char *line;
    } files[] = {
        {MM "2 3 2\n1 1 1\n3 1 1\n", 3, 2, "BSR_PARSE_ERROR: text: line 4: 3 is out of range: at most 2"},
        {MM "2 3 1\n1 4 1\n", 4, 3, "BSR_PARSE_ERROR: text: line 3: 4 is out of range: at most 3"},
        {MM "2 3 1\n0 1 1\n", 0, 1, "BSR_PARSE_ERROR: text: line 3: 0 is out of range: at least 1"},
        {MM "2 -3 1\n", -3, 0, "BSR_PARSE_ERROR: text: line 2: -3 is out of range: at least 0"},
        {"%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", 3, 2,
         "BSR_PARSE_ERROR: text: line 2: 3 is out of range: at most 2"},
        {"%%MatrixMarket matrix array real general\n4611686018427387904 3\n", 3, 1,
         "BSR_PARSE_ERROR: text: line 2: 3 is out of range: at most 1"},
        {"3, 4, 5\n0 2 1 5\n0 3 1 2 3\n", 1, 2, "BSR_PARSE_ERROR: text: line 2: 1 is out of range: at least 2"},
        {"3, 4, 5\n0 2 2 4\n0 3 1 2 3\n", 4, 5, "BSR_PARSE_ERROR: text: line 2: 4 is out of range: at least 5"},
        {"3, 4, 5\n0 2 2 6\n0 3 1 2 3\n", 6, 5, "BSR_PARSE_ERROR: text: line 2: 6 is out of range: at most 5"},
        {"3, 4, 5\n0 2 2 5\n0 4 1 2 3\n", 4, 3, "BSR_PARSE_ERROR: text: line 3: 4 is out of range: at most 3"},
        {"3, 4, 5\n1 2 2 5\n0 3 1 2 3\n", 1, 0, "BSR_PARSE_ERROR: text: line 2: 1 is out of range: at most 0"},
    };
    size_t k;
    for (k = 0; k < BT_COUNT(files); k++) {
        const char *text = files[k].text;
        bsr_file_info info;
        bsr_error error;
        char line[200];
        bt_case("%d", (int)k);
        CHECK_INT(*text == '%' ? bsr_parse_matrix_market(text, strlen(text), &info, NULL, NULL, NULL, 0, &error)
                               : bsr_parse_smtx(text, strlen(text), &info, NULL, NULL, 0, &error),
                  BSR_PARSE_ERROR);
        CHECK_INT(error.item, BSR_ITEM_PARSE_RANGE), CHECK_INT(error.value, files[k].value);
        CHECK_INT(error.wanted, files[k].wanted), bsr_error_string(&error, line, sizeof line), CHECK_STR(line, files[k].line);
    }
}
TEST(smtx) {
    static const char good[] = "3, 4, 5\n0 2 2 5\n0 3 1 2 3\n";
    static const int64_t crow_want[] = {0, 2, 2, 5}, col_want[] = {0, 3, 1, 2, 3};
    static const bad_text files[] = {
        {"", BSR_ITEM_PARSE_HEADER, 1},
        {"3 4\n0 0 0 0\n", BSR_ITEM_PARSE_NUMBER, 1},
        {"3, 4, 5, 6\n0 2 2 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_EXTRA, 1},
        {"3, -4, 5\n0 2 2 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 1},
        {"3, 4, 5\n", BSR_ITEM_PARSE_SHORT, -1},
        {"3, 4, 5\n0 2 2\n0 3 1 2 3\n", BSR_ITEM_PARSE_SHORT, 2},
        {"3, 4, 5\n0 2 2 5 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_EXTRA, 2},
        {"3, 4, 5\n1 2 2 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 2},
        {"3, 4, 5\n0 2 1 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 2},
        {"3, 4, 5\n0 2 2 4\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 2},
        {"3, 4, 5\n0 2 2 6\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 2},
        {"3, 4, 5\n0 2 x 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_NUMBER, 2},
        {"3, 4, 5\n0 2 2 5\n", BSR_ITEM_PARSE_SHORT, -2},
        {"3, 4, 5\n0 2 2 5\n0 3 1 2\n", BSR_ITEM_PARSE_SHORT, 3},
        {"3, 4, 5\n0 2 2 5\n0 3 1 2 3 3\n", BSR_ITEM_PARSE_EXTRA, 3},
        {"3, 4, 5\n0 2 2 5\n0 4 1 2 3\n", BSR_ITEM_PARSE_RANGE, 3},
        {"3, 4, 5\n0 2 2 5\n0 -1 1 2 3\n", BSR_ITEM_PARSE_RANGE, 3},
        {"3, 4, 5\n0 2 2 5\n0 3 1 2 3\nmore\n", BSR_ITEM_PARSE_EXTRA, 4},
        {"9223372036854775807, 4, 5\n0 2 2 5\n0 3 1 2 3\n", BSR_ITEM_PARSE_RANGE, 1},
    };
    size_t k;
    int64_t crow[8], col[8], i;
    bsr_file_info info;
    bsr_error error;
    bt_case("good");
    CHECK_INT(bsr_parse_smtx(good, sizeof good - 1, &info, NULL, NULL, 0, &error), BSR_OK);
    CHECK_INT(info.rows, 3), CHECK_INT(info.cols, 4), CHECK_INT(info.entries, 5), CHECK_INT(info.stored, 5),
        CHECK_INT(info.has_values, 0), CHECK_INT(info.symmetric, 0);
    CHECK_INT(bsr_parse_smtx(good, sizeof good - 1, &info, crow, col, 5, &error), BSR_OK);
    for (i = 0; i < 4; i++) CHECK_INT(crow[i], crow_want[i]);
    for (i = 0; i < 5; i++) CHECK_INT(col[i], col_want[i]);
    CHECK_INT(bsr_parse_smtx(good, sizeof good - 1, &info, crow, col, 4, &error), BSR_CAPACITY);
    bt_case("empty rows and no entries");
    CHECK_INT(bsr_parse_smtx("2,2,0\n0 0 0\n\n", 13, &info, crow, col, 5, &error), BSR_OK);
    CHECK_INT(info.entries, 0);
    for (k = 0; k < BT_COUNT(files); k++) {
        size_t n = strlen(files[k].text);
        char *text;
        bt_case("%d", (int)k);
        text = (char *)bt_alloc(n, 1);
        if (n) memcpy(text, files[k].text, n);
        CHECK_INT(bsr_parse_smtx(text, n, &info, crow, col, 5, &error), BSR_PARSE_ERROR);
        CHECK_STR(bsr_item_name(error.item), bsr_item_name(files[k].item));
        if (files[k].line > 0) CHECK_INT(error.index, files[k].line);
        else CHECK(error.index >= -files[k].line);
        CHECK_INT(bsr_parse_smtx(text, n, &info, NULL, NULL, 0, &error), BSR_PARSE_ERROR);
    }
}
/* Cutting a good file anywhere, or changing one byte, never reads past the end and never crashes (ASan). */
TEST(parsers_cut_and_changed) {
    static const char *const texts[] = {MM "3 3 4\n1 1 1.25e-3\n2 1 -7\n3 2 1\n3 3 5\n",
                                        "%%MatrixMarket matrix array integer skew-symmetric\n3 3\n1\n2\n3\n",
                                        "3, 4, 5\n0 2 2 5\n0 3 1 2 3\n"};
    int t, ok = 0;
    for (t = 0; t < 3; t++) {
        size_t n = strlen(texts[t]), cut;
        bt_case("%d", t);
        for (cut = 0; cut < 6 * n; cut++) {
            char *text = (char *)malloc(cut < n ? cut + 1 : n);
            bsr_file_info info;
            int64_t a[16], b[16];
            double v[16];
            size_t length = cut < n ? cut : n;
            bsr_status status;
            if (!text) abort();
            memcpy(text, texts[t], length);
            if (cut >= n) text[bt_below((int64_t)n)] = (char)(bt_below(2) ? bt_below(256) : "0123456789 \n\r%-e.,"[bt_below(18)]);
            status = t < 2 ? bsr_parse_matrix_market(text, length, &info, a, b, v, 16, NULL)
                           : bsr_parse_smtx(text, length, &info, a, b, 12, NULL);
            CHECK(status == BSR_OK || status == BSR_PARSE_ERROR || status == BSR_CAPACITY);
            if (status == BSR_OK && info.rows < 12 && info.cols < 12 && t < 2) {
                int64_t i;
                for (i = 0; i < info.entries; i++) CHECK(a[i] >= 0 && a[i] < info.rows && b[i] >= 0 && b[i] < info.cols);
            }
            ok += status == BSR_OK;
            free(text);
        }
    }
    CHECK(ok > 3);
}
/* Numbers are read to the nearest double, as strtod reads them. */
TEST(numbers) {
    int k;
    for (k = 0; k < 3000; k++) {
        char text[256], number[64];
        bsr_file_info info;
        int64_t row[1], col[1];
        double got = 0, want;
        uint64_t bits = bt_random();
        if (k % 500 == 0) bt_case("%d", k);
        if (k % 3 == 0) memcpy(&want, &bits, 8);
        else want = (bt_uniform() - 0.5) * pow(10, (double)bt_range(-25, 25));
        if (want - want != 0) want = 1.25;
        snprintf(number, sizeof number, k % 3 == 1 ? "%.17g" : k % 3 == 2 ? "%.6f" : "%.25e", want);
        snprintf(text, sizeof text, "%s1 1 1\n1 1 %s\n", MM, number);
        want = strtod(number, NULL);
        if (bsr_parse_matrix_market(text, strlen(text), &info, row, col, &got, 1, NULL) != BSR_OK || !(got == want))
            bt_fail(__FILE__, __LINE__, "%s is read as %.17g", number, got);
        bt.checks++;
    }
    bt_case("few digits, every exponent");
    for (k = -330; k < 311; k++) {
        char text[64];
        int digits;
        for (digits = 1; digits <= 100000; digits *= 10) {
            snprintf(text, sizeof text, "%de%d", (int)bt_range(digits, 10 * digits - 1), k);
            CHECK(bits_of(parsed(text)) == bits_of(strtod(text, NULL)));
        }
    }
}

/* The files of ../shared/data, where they are. */
static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    char *text;
    long n;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END), n = ftell(f), fseek(f, 0, SEEK_SET);
    text = (char *)malloc((size_t)n);
    if (!text || fread(text, 1, (size_t)n, f) != (size_t)n) abort();
    fclose(f);
    *bytes = (size_t)n;
    return text;
}
TEST(real_files) {
    static const char *const paths[] = {"../shared/data/bcsstk16.mtx", "../shared/data/dlmc_transformer_ffn1_magnitude_0.8.smtx",
                                        "../shared/data/dlmc_transformer_ffn1_magnitude_0.95.smtx"};
    int k;
    for (k = 0; k < 3; k++) {
        size_t bytes;
        char *text = read_file(paths[k], &bytes);
        bsr_file_info info;
        bsr_error error;
        int64_t *a, *b, i;
        double *v;
        bsr_exec e = t_exec(0);
        bsr_status status;
        bsr_matrix m;
        bt_case("%s", paths[k]);
        if (!text) {
            bt_skip("a file of ../shared/data is not there");
            continue;
        }
        status = k ? bsr_parse_smtx(text, bytes, &info, NULL, NULL, 0, &error)
                   : bsr_parse_matrix_market(text, bytes, &info, NULL, NULL, NULL, 0, &error);
        CHECK_INT(status, BSR_OK);
        if (status != BSR_OK) {
            free(text);
            continue;
        }
        if (!k) CHECK_INT(info.rows, 4884), CHECK_INT(info.entries, 290378);
        a = (int64_t *)malloc((size_t)(info.entries + info.rows + 1) * 8), b = (int64_t *)malloc((size_t)info.entries * 8),
        v = (double *)malloc((size_t)info.entries * 8);
        if (!a || !b || !v) abort();
        status = k ? bsr_parse_smtx(text, bytes, &info, a, b, info.entries, &error)
                   : bsr_parse_matrix_market(text, bytes, &info, a, b, v, info.entries, &error);
        CHECK_INT(status, BSR_OK);
        m = target(BSR_F32, BSR_I32, (info.rows + 2) / 3, 3, 3, 0, NO_BATCH, 0), m.col_indices = m.values = NULL;
        status = k ? bsr_from_csr(t_context(0), info.rows, info.cols, info.entries, a, b, BSR_I64, NULL, BSR_F32, &m, &e)
                   : bsr_from_coo(t_context(0), info.rows, info.cols, info.entries, a, b, BSR_I64, v, BSR_F64, &m, &e);
        CHECK_INT(status, BSR_OK);
        {
            bsr_matrix full = target(BSR_F32, BSR_I32, (info.rows + 2) / 3, 3, 3, m.nnz, NO_BATCH, 0);
            double sum = 0, want = 0;
            status = k ? bsr_from_csr(t_context(0), info.rows, info.cols, info.entries, a, b, BSR_I64, NULL, BSR_F32, &full, &e)
                       : bsr_from_coo(t_context(0), info.rows, info.cols, info.entries, a, b, BSR_I64, v, BSR_F64, &full, &e);
            CHECK_INT(status, BSR_OK);
            check_valid(&full);
            for (i = 0; i < info.entries; i++) want += k ? 1 : v[i];
            for (i = 0; i < full.nnz * 9; i++) sum += (double)((float *)full.values)[i];
            CHECK_NEAR(sum / want, 1, 1e-6);
        }
        free(a), free(b), free(v), free(text);
    }
}

TEST(validate_accepts) {
    int k;
    for (k = 0; k < 100; k++) {
        t_spec s;
        bsr_matrix m;
        bt_case("%d", k);
        s = t_spec_of(all_dtypes[bt_below(6)], bt_range(1, 5), bt_range(1, 5), bt_range(0, 6), bt_range(0, 6), bt_range(0, 20));
        s.batch = t_batch((int)bt_below(4), bt_range(0, 2), bt_range(1, 3), 2, 0), s.ragged = k & 1,
        s.layout = (int)bt_below(BLOCKS_LAYOUTS), s.shared_pattern = (unsigned)bt_below(8);
        s.pattern_only = k % 3 == 0;
        m = t_matrix(&s);
        check_valid(&m);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"to_dense", to_dense},
        {"to_dense_of_duplicates", to_dense_of_duplicates},
        {"to_dense_of_a_long_row", to_dense_of_a_long_row},
        {"from_dense", from_dense},
        {"upstream_round_trip", upstream_round_trip},
        {"from_csr_and_coo", from_csr_and_coo},
        {"duplicates_cancel", duplicates_cancel},
        {"from_coo_of_a_wide_matrix", from_coo_of_a_wide_matrix},
        {"from_csr_bad", from_csr_bad},
        {"to_csr_and_coo", to_csr_and_coo},
        {"reblock", reblock},
        {"to_csr_bad", to_csr_bad},
        {"from_block_mask", from_block_mask},
        {"kept_blocks", kept_blocks},
        {"random_pattern", random_pattern},
        {"random_uniform", random_uniform},
        {"prune", prune},
        {"prune_ties", prune_ties},
        {"prune_extremes", prune_extremes},
        {"transposed_index", transposed_index},
        {"schedule", schedule},
        {"view_sizes", view_sizes},
        {"layouts_by_hand", layouts_by_hand},
        {"layouts_random", layouts_random},
        {"layout_errors", layout_errors},
        {"matrix_market_good", matrix_market_good},
        {"matrix_market_bad", matrix_market_bad},
        {"decimals_near_halfway", decimals_near_halfway},
        {"smtx", smtx},
        {"parsers_cut_and_changed", parsers_cut_and_changed},
        {"parse_bounds", parse_bounds},
        {"numbers", numbers},
        {"real_files", real_files},
        {"validate_accepts", validate_accepts},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
