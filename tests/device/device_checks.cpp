/* device_checks.cpp: the kernels that look at index arrays, on the host (emulate.h), with anything in the arrays: nothing
   outside them is read, and what they find is what the CPU finds, or what a plain search finds. And copies of views, line by
   line: nothing before the source's first element or behind its last is read, of the target nothing is written but its own. */
#include "emulate.h"

#include <map>
#include <vector>

/* Arrays of exactly so many bytes: the sanitizer sees what is read before or behind them. On 16 bytes or 8 beyond, as often. */
static std::map<const void *, size_t> arrays;
static void *exactly(size_t bytes, size_t align) {
    const size_t shift = align < 16 && bt_below(2) ? 8 : 0;
    void *room = NULL;
    if (posix_memalign(&room, align < 16 ? 16 : align, bytes + shift)) abort();
    char *p = (char *)room;
    memset(p, BT_POISON, bytes + shift);
#ifdef BT_ASAN
    __asan_poison_memory_region(p, shift);
#endif
    arrays[p + shift] = bytes << 1 | (shift != 0);
    return p + shift;
}
static size_t bytes_of(const void *p) { return arrays.at(p) >> 1; }
static void free_arrays(void) {
    for (const auto &a : arrays) {
        char *p = (char *)(uintptr_t)a.first - (a.second & 1) * 8;
#ifdef BT_ASAN
        __asan_unpoison_memory_region(p, (a.second & 1) * 8 + (a.second >> 1));
#endif
        free(p);
    }
    arrays.clear();
}

/* ---------------------------------------------------------------------------------------------- */
/* matrices                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

static bsr_context *ctx;
enum { SINGLE, OWN, OWN_CROW, SHARED, RAGGED, TWO_DIMS, FORMS };
static const char *const form_names[] = {"single", "patterns", "row pointers of their own", "shared", "ragged", "two dimensions"};

static bsri_batch all_patterns(const bsr_matrix *m, bsr_matrix *one) { return bsri_patterns(m, one); }
/* A random legal pattern of n blocks. Not t_matrix(): patterns alone are wanted, of each form by its name, in arrays that end
   where they end, so that a sanitizer sees what is read behind them. */
static void fill(const bsr_matrix *m, void *crow, void *col, int64_t first, int64_t n) {
    const int64_t rows = bsri_block_rows(m), cols = bsri_block_cols(m);
    int64_t left = n, at = first;
    bsri_set_index(crow, m->index_dtype, 0, first);
    for (int64_t i = 0; i < rows * cols; i++) {
        if (left && bt_below(rows * cols - i) < left) bsri_set_index(col, m->index_dtype, at++, i % cols), left--;
        if (i % cols == cols - 1) bsri_set_index(crow, m->index_dtype, i / cols + 1, at);
    }
    if (!cols)
        for (int64_t r = 0; r < rows; r++) bsri_set_index(crow, m->index_dtype, r + 1, first);
}
static bsr_matrix draw(int form, int64_t most) {
    const int64_t rows = bt_below(most), cols = bt_below(most), n = bt_range(1, 3), es = bt_below(2) ? 8 : 4;
    bsr_matrix m = bsr_matrix_make(rows, cols, 1, 1, bt_below(rows * cols + 1), NULL, NULL, es == 8 ? BSR_I64 : BSR_I32, NULL,
                                   BSR_F32);
    const int64_t own_crow = form == OWN || form == OWN_CROW || form == RAGGED || form == TWO_DIMS, own_col = form == OWN;
    int64_t each[3], sum = 0;
    if (form != SINGLE) m.batch_dims = 1, m.batch[0] = n, m.crow_batch_stride[0] = own_crow ? rows + 1 + bt_below(2) : 0;
    if (own_col || form == TWO_DIMS) m.col_batch_stride[0] = m.nnz;
    if (form == TWO_DIMS) {
        m.batch_dims = 2, m.batch[1] = bt_range(1, 3);
        if (bt_below(2)) { /* the outer dimension is broadcast */
            m.batch[1] = m.batch[0], m.crow_batch_stride[1] = m.crow_batch_stride[0], m.col_batch_stride[1] = m.nnz;
            m.batch[0] = 2, m.crow_batch_stride[0] = m.col_batch_stride[0] = 0;
        }
    }
    for (int i = 0; i < n; i++) each[i] = bt_below(rows * cols + 1), sum += each[i];
    if (form == RAGGED) m.nnz = sum, m.flags = BSR_MATRIX_RAGGED;
    bsr_matrix one;
    const bsri_batch patterns = all_patterns(&m, &one);
    const int64_t step = m.crow_batch_stride[form == TWO_DIMS && !m.crow_batch_stride[0]];
    const int64_t crows = (own_crow ? step * (n - 1) : 0) + rows + 1;
    m.crow_indices = exactly((size_t)(crows * es), (size_t)es);
    m.col_indices = exactly((size_t)((own_col || form == TWO_DIMS ? n * m.nnz : m.nnz) * es), (size_t)es);
    one.crow_indices = m.crow_indices, one.col_indices = m.col_indices;
    for (int64_t i = 0, first = 0; i < patterns.count; i++) {
        const bsri_item it = bsri_matrix_item(&patterns, i, &one);
        fill(&m, (void *)(uintptr_t)it.crow, (void *)(uintptr_t)it.col, form == RAGGED ? first : 0,
             form == RAGGED ? each[i] : m.nnz);
        first += each[i];
    }
    return m;
}
static int64_t hostile(const bsr_matrix *m) {
    const int64_t odd[] = {-1, -5, 0, 1, m->nnz, m->nnz + 1, m->nnz - 1, m->rows, m->cols, m->cols - 1, INT32_MIN, INT32_MAX,
                           INT64_MIN, INT64_MAX, INT64_MIN + 1, bt_below(20), -bt_below(1000)};
    return odd[bt_below((int64_t)BT_COUNT(odd))];
}
static void spoil(const bsr_matrix *m, void *array, int dtype, int64_t times) {
    const int64_t n = (int64_t)(bytes_of(array) / bsr_dtype_size(dtype));
    for (int64_t i = 0; n && i < times; i++) bsri_set_index(array, dtype, bt_below(n), hostile(m));
}
static void attach_transposed(bsr_matrix *m) {
    uint64_t bytes = 0;
    CHECK_INT(bsr_transposed_index_size(ctx, m, &bytes, NULL), BSR_OK);
    void *buffer = exactly((size_t)bytes, 64);
    CHECK_INT(bsr_build_transposed_index(ctx, m, buffer, bytes, NULL), BSR_OK);
    m->transposed_index = buffer;
}
static void attach_schedule(bsr_matrix *m, int group, int transposed) {
    uint64_t bytes = 0;
    CHECK_INT(bsr_schedule_size(ctx, m, group, transposed, &bytes, NULL), BSR_OK);
    void *buffer = exactly((size_t)bytes, 64);
    CHECK_INT(bsr_build_schedule(ctx, m, group, transposed, buffer, bytes, NULL), BSR_OK);
    m->schedule = buffer;
}

/* ---------------------------------------------------------------------------------------------- */
/* bsr_validate's stages                                                                          */
/* ---------------------------------------------------------------------------------------------- */

static void stage(bsri_dev_validate *v, int which, int64_t patterns, int64_t entries) {
    v->stage = which, v->parts = bt_range(1, 1 + bsri_min(entries / 8, 3)), v->work = patterns * v->parts;
    launch(bsri_validate_stage, *v, v->work, 256);
}
/* As bsri_cuda_validate(), without a schedule. */
static bsri_dev_finding validate(const bsr_matrix *m) {
    uint64_t record[8] = {~(uint64_t)0};
    bsri_dev_validate v;
    memset(&v, 0, sizeof v);
    v.patterns = all_patterns(m, &v.m), v.rows = m->rows, v.cols = m->cols, v.record = record;
    stage(&v, BSRI_STAGE_STRUCTURE, v.patterns.count + (v.patterns.count && (m->flags & BSR_MATRIX_RAGGED)), v.rows + 2 + m->nnz);
    launch(bsri_validate_describe, v, 1, 1);
    if (record[1] || !m->transposed_index) return {(int64_t)record[1], (int64_t)record[2], (int64_t)record[3]};
    const int64_t *have = (const int64_t *)m->transposed_index;
    const int bad = bsri_transposed_differs(m, have);
    if (bad >= 0) return {BSR_ITEM_VIEW_HEADER, bad, have[bad]};
    bsri_transposed_layout(m, &v.index);
    stage(&v, BSRI_STAGE_CCOL, v.patterns.count, v.cols + 1);
    stage(&v, BSRI_STAGE_ENTRIES, 1, v.index.entries * v.index.patterns);
    stage(&v, BSRI_STAGE_TRANSPOSED, v.patterns.count, v.cols + 1 + m->nnz);
    launch(bsri_validate_describe, v, 1, 1);
    return {(int64_t)record[1], (int64_t)record[2], (int64_t)record[3]};
}
TEST(validate_as_on_the_cpu) {
    for (int i = 0; i < 6000; i++) {
        const int form = (int)bt_below(FORMS), view = bt_below(3) == 0;
        bsr_error error;
        bsr_exec ex = BSR_ZERO;
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        bsr_matrix m = draw(form, 9);
        if (view && form != OWN_CROW) attach_transposed(&m);
        if (bt_below(8)) {
            const int64_t where = bt_below(3);
            if (where != 1) spoil(&m, m.crow_indices, m.index_dtype, bt_range(1, 3));
            if (where != 0) spoil(&m, m.col_indices, m.index_dtype, bt_range(1, 3));
        } else if (m.transposed_index) {
            spoil(&m, (void *)(uintptr_t)m.transposed_index, m.index_dtype, bt_range(0, 2));
        }
        ex.error = &error;
        const int status = bsr_validate(ctx, &m, &ex);
        const bsri_dev_finding f = validate(&m);
        CHECK_INT(f.item, error.item);
        if (status) CHECK_INT(f.index, error.index);
        if (status) CHECK_INT(f.value, error.value);
        if (bt.bad) printf("     %d: %s\n", i, form_names[form]);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* BSR_EXEC_CHECK_INDICES                                                                         */
/* ---------------------------------------------------------------------------------------------- */

static bsri_dev_indices indices_of(const bsr_matrix *m, uint64_t *word) {
    bsri_dev_indices x;
    memset(&x, 0, sizeof x);
    x.word = word, x.operand = BSR_ARG_A, x.m = *m, x.rows = bsri_block_rows(m), x.cols = bsri_block_cols(m);
    x.roles = 1 + (m->transposed_index != NULL) + (m->schedule != NULL);
    x.patterns = all_patterns(m, &x.m), x.parts = bt_range(1, 3), x.work = x.parts * x.patterns.count * x.roles;
    return x;
}
static uint64_t look(const bsr_matrix *m, int ascend, int exact) {
    uint64_t word = 0;
    bsri_dev_indices x = indices_of(m, &word);
    x.ascend = ascend, x.exact = exact;
    if (m->schedule) {
        x.words = bsri_ceil_div(bsri_max(x.rows, x.cols), 32);
        const size_t bytes = (size_t)(x.words * x.patterns.count * 4);
        x.named = (uint32_t *)exactly(bytes, 4), memset(x.named, 0, bytes);
    }
    bsri_transposed_layout(m, &x.index), bsri_transposed_header(m, x.head);
    launch(bsri_look_at_matrix, x, x.work, 256);
    return word;
}
/* The least finding by a plain search, one item after another. */
static uint64_t search(const bsr_matrix *m, int ascend, int exact) {
    bsr_matrix one;
    const bsri_batch patterns = all_patterns(m, &one);
    const int dt = m->index_dtype, ragged = m->flags & BSR_MATRIX_RAGGED;
    uint64_t found = 0;
    int64_t last = 0;
    const auto tell = [&](int item, int64_t index) {
        const uint64_t word = bsri_status_word(BSR_ARG_A, item, index);
        if (word > found) found = word;
    };
    for (int64_t i = 0; i < patterns.count; i++) {
        const bsri_item it = bsri_matrix_item(&patterns, i, &one);
        const int64_t first = ragged ? last : 0, begin = bsri_index(it.crow, dt, 0), shift = ragged ? 0 : i * m->nnz;
        if (begin != first) tell(BSR_ITEM_CROW_FIRST, i);
        for (int64_t r = 0; r < m->rows; r++) {
            const int64_t a = bsri_index(it.crow, dt, r), b = bsri_index(it.crow, dt, r + 1);
            if (b < a || (b > m->nnz && r + 1 < m->rows)) tell(BSR_ITEM_CROW_DECREASES, i * m->rows + r);
            else if (ascend && b <= m->nnz && (__int128)b - a > m->cols) tell(BSR_ITEM_CROW_LONG, i * m->rows + r);
        }
        last = bsri_index(it.crow, dt, m->rows);
        if (last > m->nnz || (exact && last != m->nnz && (!ragged || i + 1 == patterns.count))) tell(BSR_ITEM_CROW_LAST, i);
        for (int64_t p = ragged ? bsri_max(0, begin) : 0; p < bsri_min(m->nnz, last); p++) {
            const int64_t at = bsri_index(it.col, dt, p);
            if (at < 0 || at >= m->cols) tell(BSR_ITEM_COL_RANGE, shift + p);
        }
        if (found) continue; /* order: of rows that are known */
        for (int64_t r = 0; ascend && r < m->rows; r++)
            for (int64_t p = bsri_index(it.crow, dt, r) + 1; p < bsri_index(it.crow, dt, r + 1); p++)
                if (bsri_index(it.col, dt, p) <= bsri_index(it.col, dt, p - 1)) tell(BSR_ITEM_COL_ORDER, shift + p);
    }
    return found;
}
TEST(matrices_as_by_a_plain_search) {
    long wrong = 0;
    for (int i = 0; i < 8000; i++) {
        const int ascend = (int)bt_below(2), exact = (int)bt_below(2);
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        bsr_matrix m = draw((int)bt_below(FORMS), 9);
        if (bt_below(5)) spoil(&m, bt_below(2) ? m.crow_indices : m.col_indices, m.index_dtype, bt_range(1, 3));
        else if (bt_below(2)) { /* room to spare, as conversions leave it */
            m.nnz = bt_below(m.nnz + 1);
        }
        const uint64_t got = look(&m, ascend, exact), want = search(&m, ascend, exact);
        bsr_error a, b;
        bsr_device_status(got, &a), bsr_device_status(want, &b);
        CHECK_INT(a.item, b.item);
        if (a.item != BSR_ITEM_COL_ORDER) CHECK_INT(a.index, b.index);
        CHECK_INT(look(&m, ascend, exact) == got, 1);
        wrong += want != 0;
    }
    CHECK(wrong > 2000 && wrong < 7500);
}

static bool transposed_is_right(const bsr_matrix *m) {
    bsr_matrix bare = *m;
    bare.transposed_index = bare.schedule = NULL;
    attach_transposed(&bare);
    const size_t bytes = bytes_of(m->transposed_index);
    return bytes == bytes_of(bare.transposed_index) && !memcmp(m->transposed_index, bare.transposed_index, bytes);
}
TEST(transposed_indices) {
    long wrong = 0;
    for (int i = 0; i < 3000; i++) {
        const int form = (int)bt_below(FORMS);
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        bsr_matrix m = draw(form, 9);
        if (form == OWN_CROW || m.nnz == 0) continue;
        attach_transposed(&m);
        bsri_view v;
        bsri_transposed_layout(&m, &v);
        char *data = (char *)(uintptr_t)m.transposed_index;
        const int64_t header = bt_below(8) == 0 ? bt_below(6) : -1;
        const int64_t lines = v.patterns * (m.cols + 1), entries = m.flags & BSR_MATRIX_RAGGED ? m.nnz : m.nnz * v.patterns;
        if (header >= 0) ((int64_t *)(void *)data)[header] += bt_range(1, 3);
        for (int64_t k = bt_below(3); k && header < 0; k--) { /* one entry of any array, or two that change places */
            const int64_t which = bt_below(3), n = which ? entries : lines, a = bt_below(n), b = bt_below(n);
            char *at = data + v.at[which];
            const int64_t x = bsri_index(at, m.index_dtype, a);
            if (bt_below(2)) bsri_set_index(at, m.index_dtype, a, bt_below(2) ? hostile(&m) : x + 1);
            else bsri_set_index(at, m.index_dtype, a, bsri_index(at, m.index_dtype, b)), bsri_set_index(at, m.index_dtype, b, x);
        }
        const uint64_t word = look(&m, 0, 1);
        bsr_error error;
        bsr_device_status(word, &error);
        if (header >= 0) CHECK_INT(error.item, BSR_ITEM_VIEW_HEADER), CHECK_INT(error.index, header);
        else CHECK_INT(error.item, transposed_is_right(&m) ? BSR_ITEM_NONE : BSR_ITEM_VIEW_CONTENT);
        wrong += word != 0;
    }
    CHECK(wrong > 500);
}
TEST(transposed_indices_of_spoiled_patterns) { /* only that nothing outside is read, and that the pattern is to blame */
    for (int i = 0; i < 3000; i++) {
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        const int form = (int)bt_below(FORMS);
        bsr_matrix m = draw(form, 9);
        if (form == OWN_CROW) continue;
        attach_transposed(&m), attach_schedule(&m, 1 << bt_below(4), (int)bt_below(2));
        spoil(&m, bt_below(2) ? m.crow_indices : m.col_indices, m.index_dtype, bt_range(1, 4));
        spoil(&m, (char *)(uintptr_t)m.transposed_index, m.index_dtype, bt_below(3));
        spoil(&m, (char *)(uintptr_t)m.schedule, BSR_I32, bt_below(3));
        const uint64_t want = search(&m, 0, 1), got = look(&m, 0, 1);
        if (want) CHECK_INT(got == want, 1);
    }
}

static int schedule_is_right(const bsr_matrix *m, const int64_t *head, int64_t group, int transposed) {
    const int64_t lines = transposed ? m->cols : m->rows, others = transposed ? m->rows : m->cols, n = head[5] * group;
    const int64_t patterns = bsri_pattern_count(m);
    const int32_t *order = (const int32_t *)(head + 8), *lengths = order + (patterns * n + 15) / 16 * 16;
    for (int64_t i = 0; i < patterns; i++) {
        for (int64_t line = 0; line < lines; line++) {
            int times = 0;
            for (int64_t k = 0; k < n; k++) times += order[i * n + k] == line;
            if (times != 1) return 0;
        }
        for (int64_t k = lines; k < n; k++)
            if (order[i * n + k] != -1) return 0;
        for (int64_t g = 0; g < head[5]; g++)
            if (lengths[i * head[5] + g] < 0 || lengths[i * head[5] + g] > others) return 0;
    }
    return 1;
}
TEST(schedules) {
    long wrong = 0;
    for (int i = 0; i < 3000; i++) {
        const int group = 1 << bt_below(4), transposed = (int)bt_below(2);
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        bsr_matrix m = draw((int)bt_below(FORMS), 20);
        attach_schedule(&m, group, transposed);
        int64_t *head = (int64_t *)(uintptr_t)m.schedule, word = bt_below(8) == 0 && bsri_pattern_count(&m) ? bt_below(8) : -1;
        const int64_t n = head[5] * group * bsri_pattern_count(&m);
        int32_t *order = (int32_t *)(head + 8);
        if (word == 6) head[6] = 2;
        else if (word >= 0) head[word] += 100;
        else if (n && bt_below(3)) {
            const int64_t a = bt_below(n), b = bt_below(n);
            const int32_t odd[] = {-1, -2, INT32_MIN, INT32_MAX, (int32_t)m.rows, (int32_t)m.cols, order[b], 0};
            if (bt_below(4)) order[a] = odd[bt_below(8)];
            else order[(n + 15) / 16 * 16 + bt_below(head[5])] = odd[bt_below(6)];
        }
        bsr_error error;
        const uint64_t got = look(&m, 0, 1);
        bsr_device_status(got, &error);
        if (word >= 0 && word != 6) CHECK_INT(error.item, BSR_ITEM_VIEW_HEADER), CHECK_INT(error.index, word);
        else if (word == 6) CHECK_INT(error.item, BSR_ITEM_VIEW_HEADER);
        else CHECK_INT(error.item == BSR_ITEM_NONE, schedule_is_right(&m, head, group, transposed));
        if (word < 0 && got) CHECK(error.item == BSR_ITEM_VIEW_CONTENT || error.item == BSR_ITEM_VIEW_REPEATS);
        CHECK_INT(look(&m, 0, 1) == got, 1);
        wrong += got != 0;
    }
    CHECK(wrong > 500);
}

TEST(pairs) {
    for (int i = 0; i < 3000; i++) {
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        const bsr_matrix m = draw((int)bt_below(FORMS), 9);
        const size_t crow = bytes_of(m.crow_indices), col = bytes_of(m.col_indices);
        bsr_matrix o = m;
        uint64_t word = 0;
        o.crow_indices = exactly(crow, 8), o.col_indices = exactly(col, 8);
        memcpy(o.crow_indices, m.crow_indices, crow), memcpy(o.col_indices, m.col_indices, col);
        if (bt_below(3)) spoil(&m, bt_below(2) ? o.crow_indices : o.col_indices, m.index_dtype, 1);
        if (!bt_below(4)) spoil(&m, bt_below(2) ? m.crow_indices : m.col_indices, m.index_dtype, 1);
        bsri_dev_indices x = indices_of(&m, &word);
        bsri_patterns(&o, &x.other);
        launch(bsri_look_at_pair, x, x.work, 256);
        bsr_error error;
        bsr_exec ex = BSR_ZERO;
        bsri_call c;
        ex.error = &error;
        CHECK_INT(bsri_begin(&c, ctx, BSR_OP_SOFTMAX, &ex), BSR_OK);
        const int status = bsri_check_same_pattern(&c, &m, &o, BSR_ARG_Y);
        if (search(&m, 0, 1) == 0) CHECK_INT(word != 0, status != BSR_OK);
    }
}
TEST(entries) {
    for (int i = 0; i < 3000; i++) {
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        const int dt = bt_below(2) ? BSR_I64 : BSR_I32;
        const int64_t n = bt_below(60);
        bsr_matrix m = bsr_matrix_make(bt_range(1, 9), bt_range(1, 9), 1, 1, n, NULL, NULL, dt, NULL, BSR_F32);
        void *row = exactly((size_t)n * bsr_dtype_size(dt), bsr_dtype_size(dt));
        uint64_t word = 0;
        m.col_indices = exactly((size_t)n * bsr_dtype_size(dt), bsr_dtype_size(dt));
        for (int64_t k = 0; k < n; k++)
            bsri_set_index(row, dt, k, bt_below(m.rows)), bsri_set_index(m.col_indices, dt, k, bt_below(m.cols));
        if (bt_below(3)) spoil(&m, bt_below(2) ? row : m.col_indices, dt, bt_range(1, 2));
        bsri_dev_indices x = indices_of(&m, &word);
        x.row = row, launch(bsri_look_at_entries, x, x.work, 256);
        uint64_t want = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t r = bsri_index(row, dt, k), c = bsri_index(m.col_indices, dt, k);
            const uint64_t a = r < 0 || r >= m.rows ? bsri_status_word(BSR_ARG_A, BSR_ITEM_ROW_RANGE, k) : 0;
            const uint64_t b = c < 0 || c >= m.cols ? bsri_status_word(BSR_ARG_A, BSR_ITEM_COL_RANGE, k) : 0;
            want = want > a ? want : a, want = want > b ? want : b;
        }
        CHECK_INT(word == want, 1);
    }
}

/* Against the CPU's checks of bsr_scatter_mm. */
TEST(scatter_lists) {
    long wrong = 0;
    for (int i = 0; i < 6000; i++) {
        if (i % 500 == 0) free_arrays(), bt_case("from %d", i);
        const int64_t ms = bt_range(1, 4), ks = bt_range(1, 4), ns = bt_range(1, 4), split = bt_range(1, 3), r = bt_range(1, 6);
        const int64_t k = bt_range(1, 6), n = split * ns, nnz = bt_below(r * k) + 1;
        bsr_matrix a = bsr_matrix_make(r * ms, k * ks, ms, ks, nnz, exactly((size_t)(r + 1) * 4, 4),
                                       exactly((size_t)nnz * 4, 4), BSR_I32, NULL, BSR_F32);
        bsr_scatter_indices l = BSR_ZERO;
        bsr_dense blocks = bsr_dense_row_major(exactly((size_t)(nnz * ms * ks) * 4, 4), BSR_F32, ms, ks);
        blocks = bsr_dense_batched(blocks, nnz, ms * ks);
        const bool tiles = (l.format = (int32_t)bt_range(BSR_SCATTER_MM, BSR_SCATTER_STRIDED_COMPRESSED)) == BSR_SCATTER_MM;
        const int64_t b_rows = tiles ? ks : k * ks, c_rows = tiles ? ms : r * ms, width = tiles ? ns : n;
        bsr_dense b = bsr_dense_row_major(exactly((size_t)(k * ks * n) * 4, 4), BSR_F32, b_rows, width);
        bsr_dense c = bsr_dense_row_major(exactly((size_t)(r * ms * n) * 4, 4), BSR_F32, c_rows, width);
        if (tiles) b = bsr_dense_batched(b, k * split, ks * ns), c = bsr_dense_batched(c, r * split, ms * ns);
        fill(&a, a.crow_indices, a.col_indices, 0, nnz);
        l.split_n = split;
        CHECK_INT(bsr_build_scatter_indices(ctx, &a, n, &l, NULL), BSR_OK);
        int64_t *const array[4] = {l.c_indices = (int64_t *)exactly((size_t)l.c_count * 8, 8),
                                   l.r_offsets = (int64_t *)exactly((size_t)l.r_count * 8, 8),
                                   l.p_indices = (int64_t *)exactly((size_t)l.p_count * 8, 8),
                                   l.q_indices = (int64_t *)exactly((size_t)l.q_count * 8, 8)};
        CHECK_INT(bsr_build_scatter_indices(ctx, &a, n, &l, NULL), BSR_OK);
        if (bt_below(4)) {
            const int64_t which = bt_below(4);
            if (bt_below(2)) spoil(&a, array[which], BSR_I64, bt_range(1, 2));
            else if (bytes_of(array[which])) { /* another entry's */
                const int64_t count = (int64_t)bytes_of(array[which]) / 8;
                array[which][bt_below(count)] = array[which][bt_below(count)];
            }
        }
        bsr_plan plan;
        bsr_exec ex = BSR_ZERO;
        bsr_error error;
        uint64_t word = 0;
        ex.query = &plan, ex.error = &error;
        const int status = bsr_scatter_mm(ctx, &blocks, &b, &l, &c, &ex);
        bsri_dev_indices x;
        bsri_call call;
        memset(&x, 0, sizeof x);
        CHECK_INT(bsri_begin(&call, ctx, BSR_OP_SCATTER_MM, &ex), BSR_OK);
        CHECK_INT(bsri_scatter_shapes(&call, &blocks, &b, &l, &c, &x.shape), BSR_OK);
        x.roles = 1, x.lists = l, x.word = &word, x.operand = BSR_ARG_INDICES, x.parts = x.work = bt_range(1, 3);
        x.patterns = bsri_batch_none();
        x.words = tiles ? 0 : bsri_ceil_div(r * split, 32);
        x.named = (uint32_t *)exactly((size_t)x.words * 4, 4), memset(x.named, 0, (size_t)x.words * 4);
        launch(bsri_look_at_lists, x, x.work, 256);
        bsr_error found;
        bsr_device_status(word, &found);
        CHECK_INT(word != 0, status != BSR_OK);
        if (error.item == BSR_ITEM_INDICES_DUPLICATE)
            CHECK(found.item == BSR_ITEM_INDICES_REPEAT || found.item == BSR_ITEM_INDICES_RANGE);
        wrong += word != 0;
    }
    CHECK(wrong > 1500);
}

/* --- copies of views --- */

/* A view whose lines are `columns` or rows, `skip` elements apart beyond their length, `odd` elements into an array that ends
   with its last element. closed: the sanitizer forbids what stands before the first and between lines. */
static bsr_dense view_of(int dtype, int64_t rows, int64_t cols, int columns, int64_t skip, int64_t odd, int64_t items,
                         int closed) {
    const int64_t line = (columns ? rows : cols) + skip, lines = columns ? cols : rows, size = (int64_t)bsr_dtype_size(dtype);
    const int64_t count = odd + (items * lines - 1) * line + (columns ? rows : cols);
    char *p = (char *)exactly((size_t)(count * size), 16);
    for (int64_t i = 0; i < count * size; i++) p[i] = (char)bt_below(256);
#ifdef BT_ASAN
    for (int64_t i = 0; closed && i < items * lines; i++)
        __asan_poison_memory_region(p + (i ? odd + i * line - skip : 0) * size, (size_t)((i ? skip : odd) * size));
#endif
    (void)closed;
    bsr_dense d = bsr_dense_strided(p + odd * size, dtype, rows, cols, columns ? 1 : line, columns ? line : 1);
    return items > 1 ? bsr_dense_batched(d, items, lines * line) : d;
}
static char *element(const bsr_dense *d, int64_t item, int64_t i, int64_t j) {
    const int64_t at = (d->batch_dims ? item * d->batch_stride[0] : 0) + i * d->row_stride + j * d->col_stride;
    return (char *)d->data + at * (int64_t)bsr_dtype_size(d->dtype);
}
/* Marks what is a view's; the rest of its array is not to be touched. */
static void touch(const bsr_dense *d, int64_t items, const char *base, std::vector<char> *own) {
    for (int64_t n = 0; n < items; n++)
        for (int64_t i = 0; i < d->rows; i++)
            for (int64_t j = 0; j < d->cols; j++)
                for (size_t k = 0; k < bsr_dtype_size(d->dtype); k++) (*own)[(size_t)(element(d, n, i, j) - base) + k] = 1;
}
TEST(copies_of_views) {
    for (int i = 0; i < 4000; i++) {
        if (i % 200 == 0) free_arrays(), bt_case("from %d", i);
        const int dtype = (int[]){BSR_I8, BSR_BF16, BSR_F32, BSR_F64}[bt_below(4)], columns = (int)bt_below(2);
        const int64_t rows = bt_range(1, bt_below(4) ? 9 : 150), cols = bt_range(1, bt_below(2) ? 9 : 300);
        const int64_t items = bt_range(1, 3);
        const int64_t more = bt_below(3) ? 0 : bt_below(9), size = (int64_t)bsr_dtype_size(dtype);
        const bsr_dense from = view_of(dtype, rows, cols, columns, bt_below(2) ? 0 : bt_below(20), bt_below(20), items, 1);
        const int64_t odd = bt_below(20);
        bsr_dense to = view_of(dtype, rows + (columns ? more : 0), cols + (columns ? 0 : more), columns,
                               bt_below(2) ? 0 : bt_below(20), odd, items, 0);
        if (!columns && items > 1 && bt_below(2)) /* items beside each other: out of the memory of as many rows */
            to.cols = cols, to.batch_stride[0] = cols, to.row_stride = items * cols;
        const char *base = (const char *)to.data - odd * size;
        const std::vector<char> before(base, base + bytes_of(base));
        std::vector<char> own(before.size(), 0);
        bsri_stage s;
        memset(&s, 0, sizeof s), bsri_stage_copy(&s, &s.before, &from, &to);
        const bsri_dev_copy &c = s.before.copy[0];
        CHECK_INT(s.before.count, 1);
        if (c.lanes < 0) continue; /* by tiles: not here */
        launch(bsri_copy_views, s.before, c.work, 256);
        touch(&to, items, base, &own);
        int wrong = 0;
        for (int64_t n = 0; n < items; n++)
            for (int64_t r = 0; r < to.rows; r++)
                for (int64_t k = 0; k < to.cols; k++) {
                    static const char zero[8] = {0};
                    const char *want = r < rows && k < cols ? element(&from, n, r, k) : zero;
                    wrong += memcmp(element(&to, n, r, k), want, (size_t)size) != 0;
                }
        for (size_t k = 0; k < before.size(); k++) wrong += !own[k] && base[k] != before[k];
        CHECK_INT(wrong, 0);
    }
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"validate_as_on_the_cpu", validate_as_on_the_cpu},
        {"matrices_as_by_a_plain_search", matrices_as_by_a_plain_search},
        {"transposed_indices", transposed_indices},
        {"transposed_indices_of_spoiled_patterns", transposed_indices_of_spoiled_patterns},
        {"schedules", schedules},
        {"pairs", pairs},
        {"entries", entries},
        {"scatter_lists", scatter_lists},
        {"copies_of_views", copies_of_views},
    };
    bsr_context_desc d = BSR_ZERO;
    d.backend = BSR_BACKEND_CPU, d.threads = 1;
    if (bsr_create(&d, &ctx, NULL) != BSR_OK) return 1;
    const int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    free_arrays(), bsr_destroy(ctx);
    return failed;
}
