/* test_tune.c: tuned tables (rows, text, lookup), the climb, the tuner. After upstream's test_triton_tune and
   test_triton_bsr_dense_addmm_meta; no GPU is needed: target functions are injected. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "operands.h"
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define HAVE_THREADS
#endif

enum { ROWS = 600, GPUS = 8 };
typedef struct table {
    bsr_tune_table t;
    bsr_tune_gpu gpus[GPUS];
    bsr_tune_row rows[ROWS];
} table;
static table *table_new(int gpus, int rows) {
    table *x = (table *)calloc(1, sizeof *x);
    x->t.gpus = x->gpus, x->t.rows = x->rows, x->t.gpu_capacity = gpus, x->t.row_capacity = rows;
    return x;
}
static bsr_tune_gpu gpu_of(const char *name, int arch, int units) {
    bsr_tune_gpu g;
    memset(&g, 0, sizeof g);
    snprintf(g.name, sizeof g.name, "%s", name);
    snprintf(g.made, sizeof g.made, "%s", "driver 1, toolkit 2, 2026-01-01");
    g.arch = arch, g.units = units;
    return g;
}
/* op(A) m x k in blocks of b, beta 0, alpha 1 */
static bsr_tune_row row_of(int dtype, int out, int m, int k, int n, int b, int density) {
    bsr_tune_row r;
    memset(&r, 0, sizeof r);
    r.op = BSR_OP_DENSE_ADDMM, r.dtype = dtype, r.out_dtype = out, r.block_rows = r.block_cols = b, r.alpha = 1;
    r.m = m, r.k = k, r.n = n, r.density = density;
    r.kernel = 2, r.tile_rows = 64, r.tile_cols = 128, r.split = 1, r.gain = 7;
    return r;
}
static int same_table(const bsr_tune_table *a, const bsr_tune_table *b) {
    return a->gpu_count == b->gpu_count && a->row_count == b->row_count &&
           !memcmp(a->gpus, b->gpus, (size_t)a->gpu_count * sizeof *a->gpus) &&
           !memcmp(a->rows, b->rows, (size_t)a->row_count * sizeof *a->rows);
}
static const bsr_tune_gpu *hopper(void) {
    static bsr_tune_gpu g;
    g = gpu_of("NVIDIA H200", 90, 132);
    return &g;
}
/* A table with rows of several GPUs, types and sizes. */
static table *table_full(int rows) {
    static const int types[] = {BSR_BF16, BSR_F16, BSR_F32, BSR_I8};
    table *x = table_new(GPUS, ROWS);
    bsr_error e;
    int i;
    for (i = 0; i < rows; i++) {
        const bsr_tune_gpu g = gpu_of(i % 5 ? "NVIDIA H200" : "NVIDIA H100 PCIe", 90, i % 5 ? 132 : 114);
        bsr_tune_row r =
            row_of(types[i % 4], types[i % 4], 256 << i % 7, 256 << i / 7 % 7, 256 << i % 10, 16 << i % 4, 1 + i % 97);
        r.stages = i % 9, r.order = i % 3, r.gain = i % 50;
        CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_OK);
    }
    return x;
}

/* ---------------------------------------------------------------------------------------------- */
/* rows                                                                                           */
/* ---------------------------------------------------------------------------------------------- */

TEST(update) {
    table *x = table_new(2, 3);
    bsr_tune_row r = row_of(BSR_BF16, BSR_BF16, 512, 512, 1024, 64, 10), got[4];
    bsr_tune_table before;
    bsr_tune_gpu g = *hopper();
    bsr_error e;
    int i;
    CHECK_INT(bsr_tune_query(&x->t, &r, got, 4), 0);
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_OK);
    CHECK_INT(bsr_tune_query(&x->t, &r, got, 4), 1), CHECK_INT(got[0].tile_cols, 128), CHECK_INT(x->t.gpu_count, 1);
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_OK), CHECK_INT(x->t.row_count, 1); /* the same again */
    r.tile_cols = 256;
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_OK), CHECK_INT(x->t.row_count, 1);
    CHECK_INT(bsr_tune_query(&x->t, &r, got, 4), 1), CHECK_INT(got[0].tile_cols, 256); /* replaced */
    before = x->t;
    for (i = 0; i < 12; i++) { /* rows that can't be: refused, nothing changed */
        bsr_tune_row bad = r;
        bt_case("bad row %d", i);
        if (i == 0) bad.op = 0;
        if (i == 1) bad.op = 999;
        if (i == 2) bad.dtype = 77;
        if (i == 3) bad.block_rows = 0;
        if (i == 4) bad.beta = 3;
        if (i == 5) bad.m = -2;
        if (i == 6) bad.density = 101;
        if (i == 7) bad.kernel = BSR_ISA_AVX512_BF16 + 1;
        if (i == 8) bad.stages = -1;
        if (i == 9) bad.gain = 5000;
        if (i == 10) bad.kernel = bad.tile_rows = bad.tile_cols = bad.split = 0; /* an empty value (upstream warns and skips) */
        if (i == 11) bad.tile_rows = INT32_MAX;
        CHECK_INT(bsr_tune_update(&x->t, &g, &bad, &e), BSR_BAD_ARGUMENT), CHECK_INT(e.item, BSR_ITEM_TUNE_ROW);
        CHECK(same_table(&before, &x->t));
    }
    bt_case("names");
    g.name[3] = '"';
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_BAD_ARGUMENT), CHECK_INT(e.item, BSR_ITEM_TUNE_GPU);
    g.name[3] = '\n';
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_BAD_ARGUMENT);
    memset(g.name, 'x', sizeof g.name);
    CHECK_INT(bsr_tune_update(&x->t, &g, &r, &e), BSR_BAD_ARGUMENT); /* not terminated */
    CHECK_INT(bsr_tune_update(&x->t, NULL, &r, &e), BSR_NULL_POINTER),
        CHECK_INT(bsr_tune_update(NULL, &g, &r, &e), BSR_NULL_POINTER);
    for (i = 0; i < 2; i++) { /* room without an array */
        before = x->t, before.gpu_count = before.row_count = 0;
        if (i) before.gpus = NULL;
        else before.rows = NULL;
        CHECK_INT(bsr_tune_update(&before, hopper(), &r, &e), BSR_NULL_POINTER);
    }
    bt_case("room");
    for (i = 0; i < 4; i++) {
        r.n = 2048 << i;
        before = x->t;
        CHECK_INT(bsr_tune_update(&x->t, hopper(), &r, &e), i < 2 ? BSR_OK : BSR_CAPACITY);
        if (i >= 2) CHECK_INT(e.value, 4), CHECK_INT(e.index, 1), CHECK(same_table(&before, &x->t));
    }
    for (i = 1; i < x->t.row_count; i++) CHECK(x->rows[i - 1].n < x->rows[i].n);
    free(x);
}
TEST(queries) {
    table *x = table_full(300);
    bsr_tune_row p = x->rows[40], got[ROWS];
    int64_t n, all = 0;
    int i;
    CHECK_INT(bsr_tune_query(&x->t, &p, got, ROWS), 1), CHECK(!memcmp(&got[0], &p, sizeof p)); /* exact */
    p.n = BSR_TUNE_ANY;
    n = bsr_tune_query(&x->t, &p, got, ROWS);
    CHECK(n >= 1);
    for (i = 0; i < n; i++) CHECK(got[i].m == p.m && got[i].k == p.k && got[i].dtype == p.dtype);
    memset(&p, 0xff, sizeof p); /* everything open */
    CHECK_INT(bsr_tune_query(&x->t, &p, NULL, 0), x->t.row_count), CHECK_INT(bsr_tune_query(&x->t, &p, got, 7), x->t.row_count);
    for (i = 0; i < 2; i++) p.gpu = i, all += bsr_tune_query(&x->t, &p, NULL, 0);
    CHECK_INT(all, x->t.row_count);
    p.gpu = 7;
    CHECK_INT(bsr_tune_query(&x->t, &p, NULL, 0), 0), CHECK_INT(bsr_tune_query(&x->t, NULL, NULL, 0), 0);
    free(x);
}
TEST(lookup_order) {
    table *x = table_new(GPUS, ROWS);
    bsr_tune_gpu h100 = gpu_of("NVIDIA H100 PCIe", 90, 114), h20 = gpu_of("NVIDIA H20", 90, 78),
                 a100 = gpu_of("NVIDIA A100", 80, 108);
    bsr_tune_row r = row_of(BSR_BF16, BSR_BF16, 512, 512, 1024, 64, 10), key = r, got;
    bsr_error e;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    r.tile_rows = 1, bsr_tune_update(&x->t, hopper(), &r, &e);
    r.tile_rows = 2, r.density = 50, bsr_tune_update(&x->t, hopper(), &r, &e);
    r.tile_rows = 3, r.density = 10, r.n = 4096, bsr_tune_update(&x->t, hopper(), &r, &e);
    r.tile_rows = 4, r.n = 1024, r.m = 1024, r.dtype = r.out_dtype = BSR_F16, bsr_tune_update(&x->t, hopper(), &r, &e);
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT), CHECK_INT(got.tile_rows, 1);
    key.density = 6;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_DENSITY), CHECK_INT(got.tile_rows, 1);
    key.density = 40;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_DENSITY), CHECK_INT(got.tile_rows, 2);
    key.density = 22;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0); /* more than twice the one, less than half the other */
    key.density = 10, key.n = 3000;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_NEAREST_N), CHECK_INT(got.tile_rows, 3),
        CHECK_INT(got.n, 4096);
    CHECK_INT(got.tile_cols, 128); /* the tile's width is kept */
    key.n = 600;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_NEAREST_N), CHECK_INT(got.tile_rows, 1);
    key.n = 128;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    bt_case("types");
    key = row_of(BSR_BF16, BSR_F32, 512, 512, 1024, 64, 10); /* out's type as the operands' */
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT | BSR_TUNE_DTYPE), CHECK_INT(got.tile_rows, 1);
    key = row_of(BSR_F16, BSR_F16, 512, 512, 1024, 64, 10);
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT | BSR_TUNE_DTYPE), CHECK_INT(got.tile_rows, 1);
    key = row_of(BSR_BF16, BSR_F32, 1024, 512, 1024, 64, 10); /* both */
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT | BSR_TUNE_DTYPE), CHECK_INT(got.tile_rows, 4);
    key.dtype = key.out_dtype = BSR_F32;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    bt_case("what is never bent");
    key = row_of(BSR_BF16, BSR_BF16, 512, 512, 1024, 64, 10);
    key.beta = 1;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    key.beta = 0, key.alpha = 2;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    key.alpha = 1, key.block_rows = 32;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    key.block_rows = 64, key.op = BSR_OP_SAMPLED_ADDMM;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    bt_case("GPUs");
    key.op = BSR_OP_DENSE_ADDMM;
    CHECK_INT(bsr_tune_lookup(&x->t, &h100, &key, &got), BSR_TUNE_EXACT | BSR_TUNE_OTHER_GPU), CHECK_INT(got.tile_rows, 1);
    CHECK_INT(bsr_tune_lookup(&x->t, &a100, &key, &got), 0); /* another architecture */
    r = key, r.tile_rows = 5, bsr_tune_update(&x->t, &h20, &r, &e);
    CHECK_INT(bsr_tune_lookup(&x->t, &h100, &key, &got), BSR_TUNE_EXACT | BSR_TUNE_OTHER_GPU);
    CHECK_INT(got.tile_rows, 1); /* 114 is nearer to 132 than to 78 */
    h100.units = 80;
    CHECK(bsr_tune_lookup(&x->t, &h100, &key, &got)), CHECK_INT(got.tile_rows, 5);
    key.n = 4096; /* the nearest GPU first, even for another n */
    CHECK_INT(bsr_tune_lookup(&x->t, &h100, &key, &got), BSR_TUNE_NEAREST_N | BSR_TUNE_OTHER_GPU), CHECK_INT(got.tile_rows, 5);
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT), CHECK_INT(got.tile_rows, 3);
    free(x);
}
/* upstream's test_triton_bsr_dense_addmm_meta: asking before and after an update */
TEST(upstream_meta) {
    table *x = table_new(1, 8);
    bsr_tune_row key = row_of(BSR_F32, BSR_F32, 32, 32, 48, 16, 50), got, r = key;
    bsr_error e;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), 0);
    r.order = 2, r.tile_cols = 6, r.stages = 5, bsr_tune_update(&x->t, hopper(), &r, &e);
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_EXACT), CHECK(!memcmp(&got, &x->rows[0], sizeof got));
    key.density = 40;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_DENSITY), CHECK_INT(got.order, 2);
    key.n = 72, key.density = 50;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_NEAREST_N), CHECK_INT(got.tile_cols, 6),
        CHECK_INT(got.stages, 5);
    key.n = 64, key.density = 60;
    CHECK_INT(bsr_tune_lookup(&x->t, hopper(), &key, &got), BSR_TUNE_NEAREST_N), CHECK_INT(got.tile_cols, 6);
    free(x);
}

/* ---------------------------------------------------------------------------------------------- */
/* text                                                                                           */
/* ---------------------------------------------------------------------------------------------- */

static char *text_of(const bsr_tune_table *t, size_t *length) {
    bsr_error e;
    char *s;
    size_t again;
    CHECK_INT(bsr_tune_export(t, NULL, 0, length, &e), BSR_OK);
    s = (char *)malloc(*length + 1);
    CHECK_INT(bsr_tune_export(t, s, *length + 1, &again, &e), BSR_OK), CHECK(again == *length && strlen(s) == *length);
    CHECK_INT(bsr_tune_export(t, s, *length, &again, &e), BSR_CAPACITY), CHECK_INT(e.value, *length + 1);
    CHECK_INT(bsr_tune_export(t, s, *length + 1, &again, &e), BSR_OK);
    return s;
}
TEST(text_round_trip) {
    int rows;
    for (rows = 0; rows <= 500; rows += 50) {
        table *x = table_full(rows), *y = table_new(GPUS, ROWS);
        size_t n, m;
        char *s = text_of(&x->t, &n), *again;
        bsr_error e;
        bt_case("%d rows", rows);
        CHECK_INT(bsr_tune_import(&y->t, s, n, &e), BSR_OK), CHECK(same_table(&x->t, &y->t));
        again = text_of(&y->t, &m);
        CHECK(n == m && !memcmp(s, again, n));
        CHECK_INT(bsr_tune_import(&y->t, s, n, &e), BSR_OK), CHECK(same_table(&x->t, &y->t)); /* once more: nothing new */
        if (rows == 50) CHECK(strstr(s, "BEGIN GENERATED") && strstr(s, "END GENERATED") && strstr(s, "NVIDIA H200"));
        free(again), free(s), free(y), free(x);
    }
}
TEST(text_limits) { /* 64 KB, capacities, merging */
    table *x = table_full(590), *y = table_new(GPUS, 20), *z = table_new(1, ROWS);
    bsr_tune_row r = x->rows[3];
    size_t n = 0;
    bsr_error e;
    char *s;
    int i;
    for (i = 0; i < x->t.row_count; i++) x->rows[i].m = x->rows[i].k = 2000000000;
    if (bsr_tune_export(&x->t, NULL, 0, &n, &e) != BSR_OK) CHECK(n > BSR_TUNE_TEXT_MAX), CHECK_INT(e.item, BSR_ITEM_TUNE_SIZE);
    s = (char *)malloc(70000), memset(s, ' ', 70000);
    CHECK_INT(bsr_tune_import(&y->t, s, 70000, &e), BSR_CAPACITY), CHECK_INT(e.item, BSR_ITEM_TUNE_SIZE);
    free(s), free(x);
    x = table_full(60), s = text_of(&x->t, &n);
    CHECK_INT(bsr_tune_import(&y->t, s, n, &e), BSR_CAPACITY), CHECK_INT(e.item, BSR_ITEM_TUNE_CAPACITY);
    CHECK_INT(e.value, x->t.row_count), CHECK_INT(e.index, 2), CHECK_INT(y->t.row_count, 0), CHECK_INT(y->t.gpu_count, 0);
    CHECK_INT(bsr_tune_import(&z->t, s, n, &e), BSR_CAPACITY), CHECK_INT(z->t.row_count, 0);
    free(y), free(z), y = table_new(GPUS, ROWS);
    bt_case("the merged table's rows win");
    r = x->rows[3], r.split = 32, CHECK_INT(bsr_tune_update(&y->t, &x->gpus[r.gpu], &r, &e), BSR_OK);
    r.n++, CHECK_INT(bsr_tune_update(&y->t, &x->gpus[r.gpu], &r, &e), BSR_OK);
    CHECK_INT(bsr_tune_merge(&x->t, &y->t, &e), BSR_OK), CHECK_INT(x->t.row_count, 61);
    CHECK(bsr_tune_query(&x->t, &r, &r, 1) == 1 && r.split == 32);
    CHECK_INT(bsr_tune_import(&x->t, s, n, &e), BSR_OK), CHECK_INT(x->t.row_count, 61);
    free(s), free(y), free(x);
}
TEST(text_broken) { /* truncated anywhere, any byte changed, other versions: refused with nothing changed, or the same table */
    table *x = table_full(12), *y = table_full(3), *z = table_full(3);
    size_t n, i, refused = 0;
    bsr_error e;
    char *s = text_of(&x->t, &n), *begin = strstr(s, "BEGIN"), *end = strstr(s, "*/\n#endif"), *bad = (char *)malloc(n + 64);
    static const char *const swap[][2] = {{"FORMAT 1", "FORMAT 2"},
                                          {"FORMAT 1", "FORMAT x"},
                                          {"BEGIN", "BEGUN"},
                                          {"END", "ENDS"},
                                          {"ROWS 12", "ROWS 11"},
                                          {"ROWS 12", "ROWS 13"},
                                          {"ROWS 12", "ROWS -1"},
                                          {"ROWS 12", "ROWS 99999999999"},
                                          {"ROWS 12", "ROWS "},
                                          {"check sum ", "check sum 1"},
                                          {", 132,", ", 13,"},
                                          {"{0,1", "{1,1"},
                                          {"{0,1", "{-1,1"},
                                          {"{0,1", "{7,1"},
                                          {"{0,1,", "{0,1,1,"},
                                          {"H200", "H2\"0"},
                                          {"H200", "H2\\0"},
                                          {"};", "}"},
                                          {"static const bsr_tune_row", "static bsr_tune_row"},
                                          {"{0,1", "{0,4294967297"}};
    for (i = 0; i < n; i++) {
        bt_case("cut at %d", (int)i);
        if (bsr_tune_import(&y->t, s, i, &e) == BSR_OK) CHECK(s + i > end);
        else CHECK(e.status == BSR_PARSE_ERROR && e.index > 0 && same_table(&y->t, &z->t)), refused++;
        if (y->t.row_count != z->t.row_count) break;
    }
    CHECK(refused > n / 2), free(y), y = table_full(3);
    for (i = (size_t)(begin - s); i < (size_t)(end - s); i++) {
        bt_case("byte %d", (int)i);
        memcpy(bad, s, n), bad[i] = (char)(bad[i] == '7' ? '8' : '7');
        if (bsr_tune_import(&y->t, bad, n, &e) == BSR_OK) { /* a comment, or a blank turned into nothing of importance */
            table *w = table_full(3);
            CHECK_INT(bsr_tune_import(&w->t, s, n, &e), BSR_OK), CHECK(same_table(&w->t, &y->t));
            free(w), free(y), y = table_full(3);
        } else {
            CHECK(same_table(&y->t, &z->t));
        }
    }
    for (i = 0; i < BT_COUNT(swap); i++) {
        char *at = strstr(s, swap[i][0]);
        bt_case("%s: %s", swap[i][0], swap[i][1]);
        if (!at) continue;
        memcpy(bad, s, (size_t)(at - s)), bad[at - s] = 0, strcat(bad, swap[i][1]), strcat(bad, at + strlen(swap[i][0]));
        CHECK(bsr_tune_import(&y->t, bad, strlen(bad), &e) == BSR_PARSE_ERROR), CHECK(e.index > 0),
            CHECK(same_table(&y->t, &z->t));
        if (i == 0) CHECK_INT(e.item, BSR_ITEM_TUNE_FORMAT), CHECK_INT(e.value, 2);
    }
    bt_case("without a check sum: twice, out of order, in order, a density above 100");
    for (i = 0; i < 4; i++) {
        static const char *const rows[] = {
            "{0,1,1,1,16,16,0,1,5,5,5,5,1,1,1,1,1,0,9},\n{0,1,1,1,16,16,0,1,5,5,5,5,1,1,1,1,1,0,9},",
            "{0,1,1,1,16,16,0,1,5,5,6,5,1,1,1,1,1,0,9},\n{0,1,1,1,16,16,0,1,5,5,5,5,1,1,1,1,1,0,9},",
            "{0,1,1,1,16,16,0,1,5,5,5,5,1,1,1,1,1,0,9},\n{0,1,1,1,16,16,0,1,5,5,6,5,1,1,1,1,1,0,9},",
            "{0,1,1,1,16,16,0,1,5,5,5,5,1,1,1,1,1,0,9},\n{0,1,1,1,16,16,0,1,5,5,7,101,1,1,1,1,1,0,9},"};
        int length = snprintf(
            bad, n,
            "/* BEGIN GENERATED */\n#define BSRI_TUNE_FORMAT 1\n#define BSRI_TUNE_ROWS 2\nstatic const bsr_tune_gpu "
            "bsri_tune_gpus[] = {\n{\"a b\", 90, 1, \"\", \"\"},\n};\nstatic const bsr_tune_row bsri_tune_rows[] = {\n%s\n};\n"
            "/* END GENERATED */\n",
            rows[i]);
        CHECK_INT(bsr_tune_import(&y->t, bad, (size_t)length, &e), i == 2 ? BSR_OK : BSR_PARSE_ERROR);
        if (i < 2) CHECK_INT(e.item, BSR_ITEM_TUNE_TWICE), CHECK(same_table(&y->t, &z->t));
        if (i == 3) CHECK_INT(e.item, BSR_ITEM_TUNE_RANGE), CHECK_INT(e.value, 101);
    }
    CHECK_INT(y->t.row_count, 5);
    free(bad), free(s), free(x), free(y), free(z);
}

/* ---------------------------------------------------------------------------------------------- */
/* the climb                                                                                      */
/* ---------------------------------------------------------------------------------------------- */

typedef struct hill {
    int32_t top[4], low, high, count, calls, fail_at, fail_below, flat, stop_after;
} hill;
static double hill_seconds(const int32_t *v, void *user) {
    hill *h = (hill *)user;
    double t = 1;
    int i;
    if (h->calls++ == h->fail_at || v[0] < h->fail_below) return -1.0;
    for (i = 0; i < h->count; i++) t += 0.1 * (v[i] - h->top[i]) * (v[i] - h->top[i]);
    return h->flat ? 1.0 : t;
}
static int32_t hill_step(int32_t i, int32_t v, int32_t d, const int32_t *values, void *user) {
    const hill *h = (const hill *)user;
    (void)i, (void)values;
    return v + d < h->low || v + d > h->high ? v : v + d;
}
static int hill_stop(void *user) { return ((hill *)user)->stop_after && ((hill *)user)->calls >= ((hill *)user)->stop_after; }
static bsr_climb climb_of(hill *h, bsr_climb_point *memo, int capacity) {
    static const char *const names[] = {"A", "B", "C", "D"};
    bsr_climb c;
    memset(&c, 0, sizeof c);
    c.count = h->count, c.names = names, c.target = hill_seconds, c.step = hill_step, c.stop = hill_stop, c.user = h,
    c.memo = memo;
    c.memo_capacity = capacity;
    return c;
}
static hill hill_of(int count) {
    hill h;
    memset(&h, 0, sizeof h);
    h.count = count, h.high = 9, h.fail_at = -1, h.top[0] = 5, h.top[1] = 2, h.top[2] = 7, h.top[3] = 1;
    return h;
}
TEST(climb_reaches_the_top) {
    int count, i, j;
    for (count = 1; count <= 4; count++) {
        hill h = hill_of(count);
        bsr_climb_point memo[2000];
        bsr_climb c = climb_of(&h, memo, 2000);
        int32_t from[4] = {0, 0, 0, 0}, reference[4] = {9, 9, 9, 9};
        bsr_error e;
        char line[300];
        bt_case("%d parameters", count);
        CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK);
        for (i = 0; i < count; i++) CHECK_INT(c.best[i], h.top[i]);
        CHECK_INT(h.calls, c.memo_count); /* no point twice */
        for (i = 0; i < c.memo_count; i++)
            for (j = 0; j < i; j++) CHECK(memcmp(memo[i].values, memo[j].values, sizeof memo[i].values));
        CHECK(c.seconds == 1.0 && c.speedup > 0 && c.reference_seconds > c.seconds && !c.failed && !c.stopped);
        j = bsr_climb_string(&c, line, sizeof line);
        CHECK_INT(j, strlen(line));
        CHECK(!strncmp(line, "timing0=", 8) && strstr(line, "A=5 (") && strstr(line, " %)") && strstr(line, "..."));
    }
}
TEST(climb_report) { /* slow-downs at the steps below and above; the most sensitive first */
    hill h = hill_of(2);
    bsr_climb_point memo[200];
    bsr_climb c = climb_of(&h, memo, 200);
    int32_t from[2] = {5, 2};
    bsr_error e;
    char line[300];
    h.low = 1;
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_OK);
    bsr_climb_string(&c, line, sizeof line);
    CHECK(!strcmp(line, "timing0=1 A=5 (40.0|10.0...10.0|40.0 %) B=2 (0.0|10.0...10.0|40.0 %)"));
}
TEST(climb_rules) {
    hill h = hill_of(3);
    bsr_climb_point memo[2000];
    bsr_climb c = climb_of(&h, memo, 2000);
    int32_t from[3] = {4, 4, 4}, reference[3] = {5, 2, 7};
    bsr_error e;
    bt_case("all the same: the initial point stays");
    h.flat = 1;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK), CHECK(!memcmp(c.best, from, sizeof from)), CHECK(c.speedup == 0);
    bt_case("a wall: the climb ends lower than the reference and starts again from there");
    h = hill_of(3), h.fail_below = 4, c = climb_of(&h, memo, 2000), from[0] = 0;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK), CHECK_INT(c.best[0], 5), CHECK(c.speedup >= 0);
    bt_case("no step, no way: the reference wins");
    h = hill_of(3), c = climb_of(&h, memo, 2000), h.low = 4, h.high = 4, from[0] = 4;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK), CHECK(!memcmp(c.best, reference, sizeof from));
    CHECK_INT(h.calls, 2);
    bt_case("initial fails: from the reference; reference fails: compared with the initial; both: an error");
    h = hill_of(3), c = climb_of(&h, memo, 2000), h.fail_at = 1;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK), CHECK_INT(c.failed, 1), CHECK_INT(c.best[0], 5);
    h = hill_of(3), c = climb_of(&h, memo, 2000), h.fail_at = 0;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK), CHECK_INT(c.failed, 1),
        CHECK(c.reference_seconds == c.initial_seconds);
    h = hill_of(3), c = climb_of(&h, memo, 2000), h.fail_below = 100;
    CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_BAD_PLAN), CHECK_INT(e.item, BSR_ITEM_TUNE_FAILED);
    bt_case("stopped: the best so far");
    h = hill_of(3), c = climb_of(&h, memo, 2000), h.stop_after = 9, from[0] = 0;
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_OK), CHECK_INT(h.calls, 9),
        CHECK(c.stopped && c.seconds <= c.initial_seconds);
    h = hill_of(3), c = climb_of(&h, memo, 5);
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_OK), CHECK_INT(h.calls, 5), CHECK(c.stopped);
    bt_case("arguments");
    c = climb_of(&h, memo, 5), c.count = 9;
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_BAD_ARGUMENT), CHECK_INT(e.item, BSR_ITEM_TUNE_CLIMB);
    c = climb_of(&h, memo, 5), c.max_step = 5;
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_BAD_ARGUMENT);
    c = climb_of(&h, NULL, 5);
    CHECK_INT(bsr_tune_climb(&c, from, from, &e), BSR_NULL_POINTER);
}
TEST(climb_with_failures) { /* each evaluation fails in turn: what is found is still the best of what ran */
    int k, i, most = 1000;
    for (k = 0; k < most; k++) {
        hill h = hill_of(3);
        bsr_climb_point memo[2000];
        bsr_climb c = climb_of(&h, memo, 2000);
        int32_t from[3] = {3, 3, 3}, reference[3] = {1, 1, 1};
        double least = 1e9;
        bsr_error e;
        bt_case("evaluation %d", k);
        h.fail_at = k;
        CHECK_INT(bsr_tune_climb(&c, from, reference, &e), BSR_OK);
        for (i = 0; i < c.memo_count; i++)
            if (memo[i].seconds >= 0 && memo[i].seconds < least) least = memo[i].seconds;
        CHECK(c.seconds >= 0 && c.seconds <= least * 1.001), CHECK_INT(c.failed, k < c.memo_count);
        if (k >= c.memo_count) break;
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* calls                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

typedef struct job {
    const bsr_context *ctx;
    bsr_matrix a;
    bsr_dense b, out;
    double beta;
    int calls, spoil, fail, stop_after, logged;
    char *odd; /* an output of three bytes besides; spoil < 0: that one is wrong */
    double times[T_ISAS + 1], clock;
} job;
static bsr_status job_call(const bsr_exec *e, void *user) {
    job *j = (job *)user;
    bsr_status s;
    const int kernel = e->plan ? e->plan->kernel : 0;
    if (!e->query) j->calls++;
    if ((j->fail && j->fail == kernel && !e->query) || (j->fail < 0 && kernel && !e->query)) return BSR_CUDA_ERROR;
    s = bsr_dense_addmm(j->ctx, j->beta, j->beta != 0 ? &j->out : NULL, 1, 0, &j->a, &j->b, NULL, &j->out, e);
    if (s == BSR_OK && !e->query && j->spoil && j->spoil == kernel) t_set(&j->out, 0, 0, 0, 1e6);
    if (s == BSR_OK && !e->query && j->odd) memcpy(j->odd, j->spoil == -kernel ? "axc" : "abc", 3);
    return s;
}
static double job_target(const bsr_plan *plan, void *user) { return ((job *)user)->times[plan->kernel]; }
static double job_now(void *user) { return ((job *)user)->clock += 1e-4; }
static int job_progress(const bsr_tune_progress *p, void *user) {
    const job *j = (const job *)user;
    CHECK(p->plan && p->evaluated > 0);
    return j->stop_after && p->evaluated >= j->stop_after;
}
static void job_log(int level, int item, const char *message, void *user) {
    CHECK(level == BSR_LOG_WARN && item == BSR_ITEM_TUNE_WRONG && message[0]);
    ((job *)user)->logged++;
}
static job job_of(const bsr_context *ctx, int dtype) {
    t_spec s;
    job j;
    memset(&s, 0, sizeof s), memset(&j, 0, sizeof j);
    s.dtype = dtype, s.block_rows = s.block_cols = 16, s.r = 4, s.c = 4, s.nnz = 8, s.index_dtype = BSR_I32;
    j.ctx = ctx, j.a = t_matrix(&s), j.b = t_random(dtype, 64, 32, ROW, NO_BATCH, 0, FILL_SIGNED);
    j.out = t_output(dtype, 64, 32, ROW, NO_BATCH);
    j.times[1] = 3, j.times[2] = 2, j.times[3] = 2.5, j.times[4] = 2.6, j.times[5] = 2.7, j.times[6] = 2.8;
    return j;
}
static bsr_tune_desc desc_of(job *j, bsr_tune_output *o, table *x) {
    bsr_tune_desc d;
    memset(&d, 0, sizeof d), memset(o, 0, sizeof *o);
    o->data = j->out.data, o->bytes = 64 * 32 * bsr_dtype_size(j->out.dtype), o->dtype = j->out.dtype;
    d.call = job_call, d.user = j, d.outputs = o, d.output_count = 1, d.table = x ? &x->t : NULL, d.target = job_target;
    d.progress = job_progress;
    return d;
}
static int has_isa(int isa) { return t_context(isa) != NULL; }

/* upstream's test_triton_tune: nothing stored before; what the tuner gives is what the table then holds; results are the same */
TEST(upstream_tune) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_I8};
    int t;
    for (t = 0; t < 5; t++) {
        job j = (bt_case("%s", bsr_dtype_name(types[t])), job_of(t_context(0), types[t]));
        table *x = table_new(2, 8);
        bsr_tune_output o;
        bsr_tune_desc d = desc_of(&j, &o, x);
        bsr_tune_result r;
        bsr_tune_row key, got;
        bsr_exec e = t_exec(0);
        bsr_plan plan;
        bsr_error error;
        bsr_dense plain;
        const int best = has_isa(2) ? 2 : 1;
        memset(&key, 0, sizeof key), memset(&got, 0, sizeof got); /* a case that is left out fills neither */
        if (types[t] == BSR_I8) j.out = t_output(BSR_I32, 64, 32, ROW, NO_BATCH), d = desc_of(&j, &o, x);
        e.query = &plan, e.key = &key;
        RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e));
        CHECK_INT(key.op, BSR_OP_DENSE_ADDMM), CHECK_INT(key.density, 50), CHECK_INT(key.m, 64), CHECK_INT(key.n, 32);
        CHECK_INT(key.dtype, types[t]), CHECK_INT(key.out_dtype, j.out.dtype), CHECK_INT(key.block_rows, 16),
            CHECK_INT(key.beta, 0);
        CHECK_INT(key.alpha, 1), CHECK_INT(bsr_tune_query(&x->t, &key, NULL, 0), 0), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
        d.flags = BSR_TUNE_STORE_ALWAYS;
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_OK);
        CHECK_INT(r.stored, 1), CHECK_INT(r.row.kernel, best), CHECK_INT(r.wrong, 0), CHECK_INT(r.failed, 0),
            CHECK(r.evaluated >= 1);
        CHECK_INT(bsr_tune_query(&x->t, &key, &got, 1), 1), CHECK(!memcmp(&got, &r.row, sizeof got));
        CHECK(t_all_poison(j.out.data)); /* as it was */
        CHECK(strstr(r.sensitivity, "kernel=") != NULL);
        e.table = &x->t;
        RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e));
        CHECK_INT(plan.source, BSR_PLAN_TABLE), CHECK_INT(plan.kernel, best), CHECK_INT(plan.match, BSR_TUNE_EXACT);
        e.flags = BSR_EXEC_NO_TABLE;
        RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e)), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
        plan.kernel = BSR_ISA_PORTABLE, e.flags = 0, e.plan = &plan; /* the caller's plan goes before the table */
        RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e)), CHECK_INT(plan.source, BSR_PLAN_CALLER),
            CHECK_INT(plan.kernel, 1);
        e.plan = NULL, e.query = NULL, e.key = NULL;
        RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e));
        plain = t_output(j.out.dtype, 64, 32, ROW, NO_BATCH);
        if (has_isa(best)) RUN_OK(bsr_dense_mm(t_context(best), 0, &j.a, &j.b, &plain, NULL));
        CHECK(!memcmp(plain.data, j.out.data, o.bytes)); /* the table's instruction set ran */
        free(x);
    }
}
TEST(tuner_rejects_and_restores) {
    int beta, spoil;
    for (beta = 0; beta < 2; beta++)
        for (spoil = 0; spoil <= 3; spoil++) {
            bsr_context_desc cd = BSR_ZERO;
            bsr_context *ctx;
            table *x = table_new(2, 8);
            bsr_tune_output o;
            bsr_tune_desc d;
            bsr_tune_result r;
            bsr_error error;
            job j;
            char before[64 * 32 * 4];
            bt_case("beta %d, isa %d is wrong", beta, spoil);
            j = job_of(NULL, BSR_F32);
            cd.logger.func = job_log, cd.logger.user = &j, cd.isa = 1;
            CHECK_INT(bsr_create(&cd, &ctx, NULL), BSR_OK);
            j.ctx = ctx, j.beta = beta, d = desc_of(&j, &o, x);
            if (beta) j.out = t_random(BSR_F32, 64, 32, ROW, NO_BATCH, 0, FILL_SIGNED), d = desc_of(&j, &o, x);
            memcpy(before, j.out.data, sizeof before);
            j.spoil = spoil == 1 ? 0 : spoil; /* 1 is what the others are compared with */
            CHECK_INT(bsr_tune(ctx, &d, &r, &error), BSR_OK);
            CHECK(bt_same_bytes(before, j.out.data, sizeof before));
            if (spoil >= 2 && has_isa(spoil))
                CHECK_INT(r.wrong, 1), CHECK_INT(r.wrong_plan.kernel, spoil), CHECK_INT(j.logged, 1),
                    CHECK(r.row.kernel != spoil);
            else CHECK_INT(r.wrong, 0), CHECK_INT(j.logged, 0);
            CHECK_INT(r.row.kernel, has_isa(2) && spoil != 2 ? 2 : has_isa(3) && spoil != 3 ? 3 : 1);
            CHECK_INT(r.stored, r.row.kernel != 1); /* 1 is the heuristic's of this context: nothing gained */
            if (r.stored) CHECK(r.gain > 0.05 && r.row.gain > 5);
            bsr_destroy(ctx), free(x);
        }
}
TEST(tuner_with_failures) { /* every plan's call failing in turn; a call that never works; a full table; stopping; arguments */
    table *x = table_new(1, 1);
    bsr_tune_output o;
    bsr_tune_result r;
    bsr_error error;
    int fail;
    bsr_tune_desc d;
    job j = job_of(t_context(1), BSR_F32);
    bsr_tune_row other = row_of(BSR_F32, BSR_F32, 1, 1, 1, 16, 1);
    for (fail = 1; fail <= 3; fail++) {
        int left = 0, isa;
        for (isa = 1; isa <= T_ISAS; isa++) left += fail != isa && has_isa(isa); /* plans that work */
        j.fail = fail, d = desc_of(&j, &o, x);
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), left ? BSR_OK : BSR_BAD_PLAN);
        if (left) CHECK(r.row.kernel != fail && r.row.kernel > 0), CHECK_INT(r.failed, has_isa(fail));
        else CHECK_INT(error.item, BSR_ITEM_TUNE_FAILED), CHECK_INT(r.stored, 0), CHECK_INT(x->t.row_count, 0);
        CHECK(t_all_poison(j.out.data));
    }
    for (fail = 1; fail <= 3; fail++) { /* the one instruction set that a context has fails: no plan works */
        if (!has_isa(fail)) continue;
        j.ctx = t_context(fail), j.fail = -1, d = desc_of(&j, &o, x), x->t.row_count = 0;
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_BAD_PLAN), CHECK_INT(error.item, BSR_ITEM_TUNE_FAILED);
        CHECK_INT(r.stored, 0), CHECK_INT(x->t.row_count, 0), CHECK(t_all_poison(j.out.data));
    }
    j.ctx = t_context(1);
    /* full */
    j.fail = 0, x->t.row_count = 0, x->t.gpu_count = 0, bsr_tune_update(&x->t, hopper(), &other, &error);
    d.flags = BSR_TUNE_STORE_ALWAYS;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_CAPACITY), CHECK_INT(error.item, BSR_ITEM_TUNE_CAPACITY),
        CHECK_INT(r.stored, 0);
    CHECK(r.row.kernel > 0), CHECK_INT(x->t.row_count, 1);
    /* stopped */
    d = desc_of(&j, &o, NULL), j.stop_after = 1;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_OK), CHECK_INT(r.stopped, 1), CHECK_INT(r.evaluated, 1),
        CHECK_INT(r.row.kernel, 1);
    d.progress = NULL, d.time_limit = 1e-9, d.now = job_now;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_OK), CHECK_INT(r.stopped, 1);
    /* timed by the caller's clock */
    d.time_limit = 0, d.target = NULL;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_OK),
        CHECK(r.seconds > 0 && r.heuristic_seconds > 0 && t_all_poison(j.out.data));
    /* arguments */
    d.now = NULL;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_NULL_POINTER); /* the CPU wants a clock */
    CHECK_INT(error.operand, BSR_ARG_OPTIONS);
    CHECK_INT(bsr_tune(NULL, &d, &r, &error), BSR_NULL_POINTER), CHECK_INT(error.operand, BSR_ARG_CONTEXT);
    CHECK_INT(bsr_tune(j.ctx, NULL, &r, &error), BSR_NULL_POINTER), CHECK_INT(error.operand, BSR_ARG_OPTIONS);
    CHECK_INT(bsr_tune(j.ctx, &d, NULL, &error), BSR_NULL_POINTER), CHECK_INT(error.operand, BSR_ARG_OUT);
    d.target = job_target, d.call = NULL;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_NULL_POINTER);
    d.call = job_call, o.dtype = 99;
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_BAD_DTYPE);
    o.dtype = BSR_F32, j.a.rows = 63; /* the call's own error */
    CHECK_INT(bsr_tune(j.ctx, &d, &r, &error), BSR_BAD_SHAPE), CHECK_INT(error.item, BSR_ITEM_BLOCK_DIVIDES);
    free(x);
}
TEST(tuner_arguments) { /* numbers that can't be, by their field; nothing is called then */
    static const struct {
        int field, value, status;
    } bad[] = {{3, 8, BSR_BAD_ARGUMENT},   {4, -1, BSR_BAD_ARGUMENT}, {5, 4, BSR_BAD_ARGUMENT}, {12, -1, BSR_BAD_ARGUMENT},
               {12, 5, BSR_BAD_ARGUMENT}, {13, 7, BSR_BAD_ARGUMENT}, {12, 4, BSR_OK}};
    size_t i;
    for (i = 0; i < BT_COUNT(bad); i++) {
        job j = (bt_case("field %d is %d", bad[i].field, bad[i].value), job_of(t_context(1), BSR_F32));
        bsr_tune_output o;
        bsr_tune_desc d = desc_of(&j, &o, NULL);
        bsr_tune_result r;
        bsr_error e;
        if (bad[i].field == 3) o.reserved = bad[i].value;
        if (bad[i].field == 4) d.output_count = bad[i].value;
        if (bad[i].field == 5) d.flags = (uint32_t)bad[i].value;
        if (bad[i].field == 12) d.max_step = bad[i].value;
        if (bad[i].field == 13) d.reserved = bad[i].value;
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &e), bad[i].status);
        if (bad[i].status == BSR_OK) continue;
        CHECK_INT(e.item, BSR_ITEM_TUNE_DESC), CHECK_INT(e.operand, BSR_ARG_OPTIONS), CHECK_INT(j.calls, 0);
        CHECK_INT(e.index, bad[i].field), CHECK_INT(e.value, bad[i].value);
    }
    bt_case("outputs that are immense together");
    {
        job j = job_of(t_context(1), BSR_F32);
        bsr_tune_output o[2];
        bsr_tune_desc d = desc_of(&j, o, NULL);
        bsr_tune_result r;
        bsr_error e;
        o[1] = o[0], o[0].bytes = o[1].bytes = UINT64_C(1) << 63, d.output_count = 2;
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &e), BSR_OUT_OF_MEMORY), CHECK_INT(e.item, BSR_ITEM_NO_MEMORY), CHECK_INT(j.calls, 0);
    }
}
TEST(tuner_of_odd_outputs) { /* one of three bytes before one of floats: all are compared, and put back */
    int isa;
    for (isa = -3; isa <= 3; isa += isa == -2 || isa == 0 ? 2 : 1) { /* what is wrong, in the odd output where less than 0 */
        const int spoiled = isa < 0 ? -isa : isa; /* not 1: what the others are compared with */
        const char *where = isa < 0 ? "in three bytes" : "in floats";
        job j = (bt_case("isa %d is wrong, %s", spoiled, where), job_of(t_context(1), BSR_F32));
        bsr_tune_output o[3];
        bsr_tune_desc d = desc_of(&j, &o[1], NULL);
        bsr_tune_result r;
        bsr_error e;
        char *bytes = (char *)bt_alloc(3, 1);
        if (spoiled && !has_isa(spoiled)) {
            bt_skip("this machine or build does not have it");
            continue;
        }
        memcpy(bytes, "old", 3), bt_mark_output(bytes), j.odd = bytes;
        o[0].data = bytes, o[0].bytes = 3, o[0].dtype = BSR_I8, o[0].reserved = 0, o[2] = o[0], o[2].data = NULL, o[2].bytes = 0;
        d.outputs = o, d.output_count = 3, j.spoil = isa;
        CHECK_INT(bsr_tune(j.ctx, &d, &r, &e), BSR_OK);
        CHECK_INT(r.wrong, spoiled > 1), CHECK(!memcmp(bytes, "old", 3)), CHECK(t_all_poison(j.out.data));
    }
}
TEST(operations_have_keys) { /* every operation that is looked up says its key; the others say that they have none */
    bsr_tune_row key;
    bsr_plan plan;
    bsr_exec e = t_exec(0);
    job j = job_of(t_context(0), BSR_F32);
    bsr_dense q = t_random(BSR_F32, 64, 24, ROW, NO_BATCH, 0, FILL_SIGNED), v = t_output(BSR_F32, 64, 24, ROW, NO_BATCH);
    bsr_dense dq = t_output(BSR_F32, 64, 24, ROW, NO_BATCH), lse = t_random(BSR_F32, 64, 1, ROW, NO_BATCH, 0, FILL_SIGNED);
    bsr_matrix y = t_matrix_output(&j.a, BSR_F32, 0);
    bsr_attention_options o;
    int i;
    e.query = &plan, e.key = &key;
    memset(&o, 0, sizeof o);
    {
        bsr_dense qt = bsr_dense_transposed(q);
        RUN_OK(bsr_sampled_addmm(j.ctx, 0, NULL, 2, &q, &qt, &y, &e));
    }
    CHECK_INT(key.op, BSR_OP_SAMPLED_ADDMM), CHECK_INT(key.k, 24), CHECK_INT(key.n, 64), CHECK_INT(key.alpha, 2);
    {
        bsr_dense qt = bsr_dense_transposed(q);
        RUN_OK(bsr_sampled_gated(j.ctx, BSR_ACT_SILU, &q, &qt, &qt, &y, NULL, NULL, &e));
    }
    CHECK_INT(key.op, BSR_OP_SAMPLED_GATED), CHECK_INT(key.m, 64), CHECK_INT(key.k, 24), CHECK_INT(key.n, 64);
    RUN_OK(bsr_softmax(j.ctx, 1, &j.a, NULL, &y, &e));
    CHECK_INT(key.op, BSR_OP_SOFTMAX), CHECK_INT(key.m, 64);
    o.flags = BSR_ATTENTION_CAUSAL;
    RUN_OK(bsr_attention(j.ctx, 0, &q, &q, &q, &j.a, &o, &v, NULL, &e));
    CHECK_INT(key.op, BSR_OP_ATTENTION), CHECK_INT(key.k, 24), CHECK_INT(key.alpha, 0);
    for (i = 0; i < 3; i++) { /* dq, dk; dq; dk */
        RUN_OK(bsr_attention_backward(j.ctx, 0, &q, &q, &q, &j.a, &o, &q, &lse, &q, i < 2 ? &dq : NULL, i != 1 ? &v : NULL, NULL,
                                      &e));
        CHECK_INT(key.op, BSR_OP_ATTENTION_BACKWARD), CHECK_INT(key.n, 64), CHECK_INT(key.k, 24);
        CHECK_INT(key.beta, i), CHECK_INT(key.alpha, 0), CHECK_INT(plan.source, BSR_PLAN_HEURISTIC);
    }
    {
        table *x = table_new(1, 2); /* rows are taken */
        bsr_dense qt = bsr_dense_transposed(q);
        bsr_tune_gpu gpu;
        bsr_error error;
        key.kernel = 1, e.table = &x->t;
        CHECK_INT(bsr_tune_device(j.ctx, &gpu), BSR_OK), CHECK_INT(bsr_tune_update(&x->t, &gpu, &key, &error), BSR_OK);
        RUN_OK(bsr_attention_backward(j.ctx, 0, &q, &q, &q, &j.a, &o, &q, &lse, &q, NULL, &v, NULL, &e));
        CHECK_INT(plan.source, BSR_PLAN_TABLE), CHECK_INT(plan.kernel, 1), CHECK_INT(plan.match, BSR_TUNE_EXACT);
        RUN_OK(bsr_sampled_gated(j.ctx, BSR_ACT_SILU, &q, &qt, &qt, &y, NULL, NULL, &e));
        CHECK_INT(plan.source, BSR_PLAN_HEURISTIC), key.kernel = 1;
        CHECK_INT(bsr_tune_update(&x->t, &gpu, &key, &error), BSR_OK);
        RUN_OK(bsr_sampled_gated(j.ctx, BSR_ACT_SILU, &q, &qt, &qt, &y, NULL, NULL, &e));
        CHECK_INT(plan.source, BSR_PLAN_TABLE), CHECK_INT(plan.kernel, 1), e.table = NULL, free(x);
    }
    RUN_OK(bsr_matmul(j.ctx, BSR_TRANS_A, bsr_operand_sparse(&j.a), bsr_operand_dense(&q), bsr_operand_dense(&v), &e));
    CHECK_INT(key.op, BSR_OP_DENSE_ADDMM), CHECK_INT(key.n, 24), CHECK_INT(key.block_rows, 16);
    j.a.nnz = INT64_C(1) << 40, e.flags = BSR_EXEC_SKIP_CHECKS; /* no more than all, however often they are stored */
    RUN_OK(bsr_dense_mm(j.ctx, 0, &j.a, &j.b, &j.out, &e)), CHECK_INT(key.density, 100);
}

/* Convolutions are looked up by channels, pixels and taps, each direction apart; their rows are text like others. */
TEST(convolutions) {
    const int64_t in[2] = {7, 9}, out[2] = {4, 5};
    table *x = table_new(1, 3), *y = table_new(1, 3);
    const bsr_context *const ctx = t_context(0);
    bsr_conv_shape shape = BSR_ZERO;
    t_spec s = t_spec_of(BSR_F32, 4, 8, 6, 9 * 2, 54);
    const bsr_matrix w = t_matrix(&s), dw = t_matrix_output(&w, BSR_F32, PACKED);
    t_shape batch = NO_BATCH;
    bsr_tune_row key[3], parsed;
    bsr_dense big[2], small[2];
    bsr_exec e = t_exec(0);
    bsr_tune_gpu gpu;
    bsr_error error;
    char text[4096];
    bsr_plan plan;
    size_t length;
    int way, i;
    shape.dims = 2;
    for (i = 0; i < 2; i++) shape.kernel[i] = 3, shape.stride[i] = 2, shape.pad_before[i] = shape.pad_after[i] = 1;
    batch.dims = 2, batch.n[0] = 3;
    for (i = 0; i < 2; i++) {
        batch.n[1] = in[0], big[i] = t_dense(BSR_F32, 16, in[1], COL, batch, 0);
        batch.n[1] = out[0], small[i] = t_dense(BSR_F32, 24, out[1], COL, batch, 0);
    }
    CHECK_INT(bsr_tune_device(ctx, &gpu), BSR_OK), e.query = &plan;
    for (i = 0; i < 2; i++) /* without rows; with them */
        for (way = 0; way < 3; way++) {
            e.key = &key[way], e.table = &x->t, memset(e.key, 0x33, sizeof *e.key);
            if (way < 2)
                RUN_OK(bsr_conv(ctx, 0, NULL, 1, way ? BSR_TRANS_A : 0, &shape, &w, way ? &small[0] : &big[0], NULL,
                                way ? &big[1] : &small[1], &e));
            else RUN_OK(bsr_conv_weight_gradient(ctx, 0, NULL, 1, &shape, &small[0], &big[0], &dw, &e));
            CHECK_INT(key[way].op, way < 2 ? BSR_OP_CONV : BSR_OP_CONV_WEIGHT_GRADIENT), CHECK_INT(key[way].density, 50);
            CHECK_INT(key[way].block_rows, 4), CHECK_INT(key[way].block_cols, 8), CHECK_INT(key[way].beta, 0);
            CHECK_INT(key[way].m, way == 1 ? 16 : 24), CHECK_INT(key[way].k, 9 * (way == 1 ? 24 : 16));
            CHECK_INT(key[way].n, 3 * (way == 1 ? 7 * 9 : 4 * 5)), CHECK_INT(key[way].alpha, way != 0);
            CHECK_INT(plan.source, i ? BSR_PLAN_TABLE : BSR_PLAN_HEURISTIC), CHECK_INT(plan.match, i ? BSR_TUNE_EXACT : 0);
            key[way].kernel = 1;
            CHECK_INT(bsr_tune_update(&x->t, &gpu, &key[way], &error), BSR_OK), CHECK_INT(x->t.row_count, i ? 3 : way + 1);
        }
    CHECK_INT(bsr_tune_export(&x->t, text, sizeof text, &length, &error), BSR_OK);
    CHECK_INT(bsr_tune_import(&y->t, text, length, &error), BSR_OK), CHECK(same_table(&x->t, &y->t));
    parsed = key[0], parsed.op = BSR_OP_CONV + 2; /* attention_merge has none */
    CHECK_INT(bsr_tune_update(&x->t, &gpu, &parsed, &error), BSR_BAD_ARGUMENT), CHECK_INT(error.item, BSR_ITEM_TUNE_ROW);
    free(x), free(y);
}

/* Two threads look up while a third imports into the table of its own context. */
#ifdef HAVE_THREADS
typedef struct reader {
    pthread_t id;
    const bsr_context *ctx;
    job j;
    table *own;
    const char *text;
    size_t length;
    long wrong;
} reader;
static void *reader_thread(void *arg) {
    reader *r = (reader *)arg;
    int i;
    for (i = 0; i < 2000; i++) {
        bsr_exec e = BSR_ZERO;
        bsr_plan plan;
        bsr_error error;
        e.query = &plan, e.error = &error;
        if (r->text) {
            r->own->t.row_count = r->own->t.gpu_count = 0;
            r->wrong += bsr_tune_import(&r->own->t, r->text, r->length, &error) != BSR_OK;
        }
        r->wrong += bsr_dense_mm(r->ctx, 0, &r->j.a, &r->j.b, &r->j.out, &e) != BSR_OK || plan.source != BSR_PLAN_TABLE;
    }
    return NULL;
}
#endif
TEST(threads) {
#ifdef HAVE_THREADS
    table *shared = table_full(200), *own = table_new(GPUS, ROWS);
    bsr_context_desc d = BSR_ZERO;
    bsr_context *a, *b;
    bsr_tune_gpu cpu;
    bsr_tune_row row = row_of(BSR_F32, BSR_F32, 64, 64, 32, 16, 50);
    bsr_error e;
    reader r[3];
    size_t n;
    char *s;
    int i;
    d.table = &shared->t;
    CHECK_INT(bsr_create(&d, &a, NULL), BSR_OK);
    d.table = &own->t;
    CHECK_INT(bsr_create(&d, &b, NULL), BSR_OK);
    CHECK_INT(bsr_tune_device(a, &cpu), BSR_OK), CHECK(!strcmp(cpu.name, "cpu"));
    row.kernel = 1, row.tile_rows = row.tile_cols = row.split = 0;
    CHECK_INT(bsr_tune_update(&shared->t, &cpu, &row, &e), BSR_OK);
    s = text_of(&shared->t, &n);
    memset(r, 0, sizeof r);
    for (i = 0; i < 3; i++) {
        r[i].ctx = i == 2 ? b : a, r[i].j = job_of(r[i].ctx, BSR_F32), r[i].own = own, r[i].text = i == 2 ? s : NULL,
        r[i].length = n;
        CHECK_INT(pthread_create(&r[i].id, NULL, reader_thread, &r[i]), 0);
    }
    for (i = 0; i < 3; i++) pthread_join(r[i].id, NULL), CHECK_INT(r[i].wrong, 0);
    CHECK(same_table(&own->t, &shared->t));
    bsr_destroy(a), bsr_destroy(b), free(s), free(own), free(shared);
#else
    bt_skip("no POSIX threads here");
#endif
}
/* The table that comes with the library: sorted, legal, exported within its limit. */
TEST(built_in) {
    const bsr_tune_table t = bsr_tune_built_in();
    table *x = table_new(GPUS, ROWS);
    bsr_tune_table big;
    size_t n;
    bsr_error e;
    big = x->t, big.rows = (bsr_tune_row *)calloc(4096, sizeof *big.rows), big.row_capacity = 4096;
    CHECK_INT(bsr_tune_merge(&big, &t, &e), BSR_OK), CHECK_INT(big.row_count, t.row_count);
    CHECK_INT(bsr_tune_export(&t, NULL, 0, &n, &e), BSR_OK), CHECK(n <= BSR_TUNE_TEXT_MAX);
    free(big.rows), free(x);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {
        {"update", update},
        {"queries", queries},
        {"lookup_order", lookup_order},
        {"upstream_meta", upstream_meta},
        {"text_round_trip", text_round_trip},
        {"text_limits", text_limits},
        {"text_broken", text_broken},
        {"climb_reaches_the_top", climb_reaches_the_top},
        {"climb_report", climb_report},
        {"climb_rules", climb_rules},
        {"climb_with_failures", climb_with_failures},
        {"upstream_tune", upstream_tune},
        {"tuner_rejects_and_restores", tuner_rejects_and_restores},
        {"tuner_with_failures", tuner_with_failures},
        {"tuner_arguments", tuner_arguments},
        {"tuner_of_odd_outputs", tuner_of_odd_outputs},
        {"operations_have_keys", operations_have_keys},
        {"convolutions", convolutions},
        {"threads", threads},
        {"built_in", built_in},
    };
    int failed = bt_main(argc, argv, tests, BT_COUNT(tests));
    t_contexts_end();
    return failed;
}
