/* Checks that are hard to see from outside: how much work they do, and what they decide, against plain loops. This program has
   a copy of the library of its own, so that it can call what is not public. */
#undef BSRI_IMPLEMENTED
#define BSRSPARSE_STATIC
#define BSRSPARSE_IMPLEMENTATION
#define BSRSPARSE_ONLY_PRODUCT
#define BSRSPARSE_ONLY_F32
#ifndef BSRSPARSE_NO_SIMD
#define BSRSPARSE_NO_SIMD
#endif
#include "bsrsparse.h"
#include "bsr_test.h"

#ifndef OVERLAP_TIMES
#define OVERLAP_TIMES 1 /* 100: as many pairs as that */
#endif

static bsr_context *context(void) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *ctx;
    d.backend = BSR_BACKEND_CPU, d.threads = 1;
    if (bsr_create(&d, &ctx, NULL) != BSR_OK) abort();
    return ctx;
}

/* ---------------------------------------------------------------------------------------------- */
/* repeats                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

typedef struct counted {
    const int64_t *list;
    int64_t calls;
} counted;
static int64_t counted_number(const void *arg, int64_t i) {
    counted *c = (counted *)(uintptr_t)arg;
    c->calls++;
    return c->list[i];
}
/* The first entry that occurred before, or -1. */
static int64_t first_repeat(const int64_t *list, int64_t n, int64_t range) {
    char *seen = (char *)calloc((size_t)range + 1, 1);
    int64_t i;
    if (!seen) abort();
    for (i = 0; i < n && (list[i] < 0 || !seen[list[i]]++); i++) {
    }
    free(seen);
    return i < n ? i : -1;
}
enum { ASCENDING, DESCENDING, RUNS, SHUFFLED, ORDERS };
static void order_make(int64_t *list, int64_t n, int order) {
    int64_t i, k = 0, run;
    for (i = 0; i < n; i++) list[i] = order == DESCENDING ? n - 1 - i : i;
    for (run = 0; run < 5 && order == RUNS; run++) /* as a schedule of rows of five lengths */
        for (i = 0; i < n; i++)
            if ((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 32 & 7 ? run == (i * 7 % 11) % 4 : run == 4) list[k++] = i;
    for (i = n - 1; i > 0 && order == SHUFFLED; i--) {
        const int64_t j = bt_below(i + 1), t = list[i];
        list[i] = list[j], list[j] = t;
    }
}
/* bits: 0 the context's, 1 another call has them, 2 a workspace with a bit for each, 3 one that is a byte too small. */
static int64_t repeat_calls(bsr_context *ctx, const int64_t *list, int64_t n, int bits, int64_t *found) {
    const size_t bytes = (size_t)((n + 63) / 64 * 8);
    bsr_exec exec = BSR_ZERO;
    bsri_call c, last;
    counted number;
    number.list = list, number.calls = 0;
    exec.workspace = bits >= 2 ? malloc(bytes + 8) : NULL, exec.workspace_bytes = bytes - (bits == 3 && bytes);
    if (exec.workspace) memset(exec.workspace, 0x5a, bytes + 8); /* what it holds before must not matter */
    if (bsri_begin(&c, ctx, BSR_OP_DENSE_ADDMM, &exec) != BSR_OK) abort();
    last = bsri_last_check(&c);
    if (bits == 1) CHECK(bsri_bits_borrow(ctx) != NULL);
    *found = bsri_find_repeat(&last, counted_number, &number, n);
    if (bits == 1) bsri_bits_return(ctx);
    CHECK_INT(ctx->bits_lent, 0);
    if (exec.workspace) CHECK_INT(((unsigned char *)exec.workspace)[exec.workspace_bytes], 0x5a); /* nothing behind its end */
    free(exec.workspace);
    return number.calls;
}
TEST(repeats_are_found_in_few_walks) {
    static const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 127, 129, 4099, 65536, 65537, 131101, 1048577, 2100001};
    bsr_context *ctx = context();
    size_t s;
    int order, bits, repeats;
    for (s = 0; s < BT_COUNT(sizes); s++)
        for (order = 0; order < ORDERS; order++) {
            const int64_t n = sizes[s], windows = (n + 1048575) / 1048576, small = (n + 65535) / 65536;
            int64_t *list = (int64_t *)malloc((size_t)(n + 1) * sizeof *list), found, want, i;
            if (!list) abort();
            for (repeats = 0; repeats < (n > 1000000 ? 2 : 3); repeats++) {
                bt_case("n %lld order %d repeats %d", (long long)n, order, repeats);
                order_make(list, n, order);
                for (i = 0; i < repeats && n > 1; i++) list[bt_below(n)] = list[bt_below(n)];
                for (i = 0; i < n / 9; i++) list[order == ASCENDING ? i : bt_below(n)] = -1; /* does not count */
                want = first_repeat(list, n, n);
                for (bits = 0; bits < 4; bits++) {
                    const int64_t walks = bits == 2 ? 1 : bits == 1 ? small : windows;
                    const int64_t calls = repeat_calls(ctx, list, n, bits, &found);
                    CHECK_INT(found, want);
                    CHECK(calls <= n * (1 + walks)); /* one to see what there is */
                    if (!repeats && order == ASCENDING) CHECK_INT(calls, n);
                    if (!repeats && order <= RUNS) CHECK(calls <= n * 4 || bits == 1);
                }
            }
            free(list);
        }
    for (bits = 0; bits < 4; bits++) { /* two side by side, of which the first is seen in an earlier window */
        const int64_t n = 2100001, k = n - 1 - bt_below(n / 256);
        int64_t *list = (int64_t *)malloc((size_t)n * sizeof *list), found;
        bt_case("two repeats in one piece, bits %d", bits);
        if (!list) abort();
        order_make(list, n, DESCENDING);
        list[k - 1] = n - 3, list[0] = 5, list[k - 2] = 5;
        (void)repeat_calls(ctx, list, n, bits, &found);
        CHECK_INT(found, k - 2), CHECK_INT(first_repeat(list, n, n), k - 2);
        free(list);
    }
    bsr_destroy(ctx);
}

/* rows x rows, blocks 1 x 1, one a row. */
typedef struct diagonal {
    int32_t *crow, *col, *order;
    float *values, *x, *y;
    void *schedule;
    bsr_matrix a;
    bsr_dense b, out;
} diagonal;
static void diagonal_make(bsr_context *ctx, diagonal *d, int64_t rows) {
    uint64_t bytes = 0;
    int64_t i;
    d->crow = (int32_t *)bt_alloc((size_t)(rows + 1) * 4, 4), d->col = (int32_t *)bt_alloc((size_t)rows * 4, 4);
    d->values = (float *)bt_alloc((size_t)rows * 4, 4), d->x = (float *)bt_alloc((size_t)rows * 4, 4);
    d->y = (float *)bt_alloc((size_t)rows * 4, 4), bt_mark_output(d->y);
    for (i = 0; i < rows; i++)
        d->crow[i] = (int32_t)i, d->col[i] = (int32_t)i, d->values[i] = 2, d->x[i] = (float)bt_range(-99, 99);
    d->crow[rows] = (int32_t)rows;
    d->a = bsr_matrix_make(rows, rows, 1, 1, rows, d->crow, d->col, BSR_I32, d->values, BSR_F32);
    d->b = bsr_dense_row_major(d->x, BSR_F32, rows, 1), d->out = bsr_dense_row_major(d->y, BSR_F32, rows, 1);
    CHECK_INT(bsr_schedule_size(ctx, &d->a, 1, 0, &bytes, NULL), BSR_OK);
    d->schedule = bt_alloc((size_t)bytes, 64), bt_mark_output(d->schedule);
    CHECK_INT(bsr_build_schedule(ctx, &d->a, 1, 0, d->schedule, bytes, NULL), BSR_OK);
    d->a.schedule = d->schedule, d->order = (int32_t *)(void *)((char *)d->schedule + 64);
    for (i = rows - 1; i > 0; i--) {
        const int64_t j = bt_below(i + 1);
        const int32_t t = d->order[i];
        d->order[i] = d->order[j], d->order[j] = t;
    }
}
TEST(schedules_in_any_order) {
    static const int64_t sizes[] = {1, 1000, 140001};
    bsr_context *ctx = context();
    size_t s;
    int bits, repeat;
    for (s = 0; s < BT_COUNT(sizes); s++)
        for (bits = 0; bits < 4; bits++)
            for (repeat = 0; repeat < 2; repeat++) {
                const int64_t rows = sizes[s];
                const size_t bytes = (size_t)((rows + 63) / 64 * 8), whole = bits == 3 ? bytes - 1 : bytes;
                int64_t i, from, to;
                bsr_exec exec = BSR_ZERO;
                bsr_error error;
                bsr_plan plan;
                diagonal d;
                bt_case("rows %lld bits %d repeat %d", (long long)rows, bits, repeat);
                diagonal_make(ctx, &d, rows);
                exec.error = &error;
                if (bits >= 2) {
                    exec.workspace = bt_alloc(bytes, 64), exec.workspace_bytes = whole;
                    exec.query = &plan; /* which leaves the workspace alone */
                    bt_before_call();
                    CHECK_INT(bsr_dense_mm(ctx, 0, &d.a, &d.b, &d.out, &exec), BSR_OK);
                    bt_after_call();
                    CHECK_INT(plan.workspace_bytes, 0), exec.query = NULL, bt_mark_output(exec.workspace);
                }
                from = bt_below(rows), to = (from + 1 + bt_below(rows - 1)) % rows;
                if (repeat && rows > 1) d.order[to] = d.order[from];
                if (bits == 1) CHECK(bsri_bits_borrow(ctx) != NULL);
                bt_before_call();
                if (repeat && rows > 1) {
                    CHECK_INT(bsr_dense_mm(ctx, 0, &d.a, &d.b, &d.out, &exec), BSR_BAD_STRUCTURE);
                    CHECK_INT(error.item, BSR_ITEM_VIEW_CONTENT), CHECK_INT(error.index, from > to ? from : to);
                    for (i = 0; i < rows * 4; i++) /* nothing is written */
                        if (((unsigned char *)d.y)[i] != BT_POISON) break;
                    CHECK_INT(i, rows * 4);
                } else {
                    CHECK_INT(bsr_dense_mm(ctx, 0, &d.a, &d.b, &d.out, &exec), BSR_OK);
                    for (i = 0; i < rows && d.y[i] == 2 * d.x[i]; i++) {
                    }
                    CHECK_INT(i, rows);
                }
                bt_after_call();
                if (bits == 1) bsri_bits_return(ctx);
            }
    bsr_destroy(ctx);
}

/* ---------------------------------------------------------------------------------------------- */
/* overlap                                                                                        */
/* ---------------------------------------------------------------------------------------------- */

static unsigned char arena[1 << 16];
/* Marks a span's bytes, or finds whether one of them is marked. `where` is the first byte's place. */
static int span_bytes(const bsri_span *s, int64_t where, int mark) {
    int64_t count[BSRI_MAX_DIMS] = {0}, at, k;
    int d, found = 0;
    if (!s->bytes) return 0;
    for (;;) {
        for (at = where, d = 0; d < s->dims; d++) at += count[d] * s->stride[d];
        for (k = 0; k < s->element; k++) found |= arena[at + k], arena[at + k] |= (unsigned char)mark;
        for (d = 0; d < s->dims && ++count[d] == s->size[d]; d++) count[d] = 0;
        if (d == s->dims) return found;
    }
}
static int brute_overlap(const bsri_span *a, const bsri_span *b) {
    const int64_t low = a->data < b->data ? 0 : b->data - a->data;
    int found;
    memset(arena, 0, sizeof arena);
    (void)span_bytes(a, -low, 1);
    found = span_bytes(b, b->data - a->data - low, 0);
    return found;
}
/* A view of up to `most` dimensions, of limit bytes at most. free_strides: any; else as sizes and gaps give them. */
static int random_span(bsri_span *s, const char *base, int most, int free_strides, int64_t limit) {
    const int n = (int)bt_range(0, most);
    const int64_t element = (int64_t)1 << bt_below(4);
    int64_t size[BSRI_MAX_DIMS], stride[BSRI_MAX_DIMS], step = 1 + bt_below(3) * bt_below(2), t;
    int i, j;
    for (i = 0; i < n; i++) {
        size[i] = bt_below(9) ? bt_range(1, n > 3 ? 4 : n > 2 ? 8 : 24) : bt_range(1, 2);
        stride[i] = free_strides && bt_below(3) ? bt_below(n > 2 ? 40 : 120) : step;
        step = stride[i] * size[i] + bt_below(2) * bt_below(9);
    }
    for (i = n - 1; i > 0; i--) { /* in any order */
        j = (int)bt_below(i + 1);
        t = size[i], size[i] = size[j], size[j] = t, t = stride[i], stride[i] = stride[j], stride[j] = t;
    }
    return bsri_span_make(s, 0, base, element, n, size, stride) && s->bytes <= limit;
}
/* The same places with everything f times as far apart, in elements f times as large. */
static bsri_span scaled(const bsri_span *s, int64_t f, const char *base, const char *at) {
    bsri_span t = *s;
    int i;
    for (i = 0; i < t.dims; i++) t.stride[i] *= f;
    t.element *= f, t.bytes *= f, t.data = (const char *)((uintptr_t)base + (uintptr_t)((at - base) * f));
    return t;
}
static long overlap_pairs(int most, long pairs, long *disjoint, long *undecided) {
    const char *base = (const char *)(UINTPTR_MAX / 4);
    const int64_t f = sizeof base == 8 ? INT64_C(1000000007) : 1009;
    long i = 0, wrong = 0;
    *disjoint = *undecided = 0;
    while (i < pairs) {
        bsri_span a, b;
        int want, got, far_off, back;
        int64_t reach;
        if (!random_span(&a, base, most, bt_below(2) == 0, 20000) || !a.bytes) continue;
        if (bsri_span_self_overlap(&a, &reach) >= 0) continue; /* no output */
        if (!random_span(&b, base + bt_range(-200, a.bytes), most, bt_below(2) == 0, 20000) || !b.bytes) continue;
        want = brute_overlap(&a, &b), got = bsri_spans_overlap(&a, &b), back = bsri_spans_overlap(&b, &a);
        {
            const bsri_span fa = scaled(&a, f, base, a.data), fb = scaled(&b, f, base, b.data);
            far_off = bsri_spans_overlap(&fa, &fb);
        }
        *disjoint += !want, *undecided += got == BSR_ITEM_OVERLAP_UNDECIDED, i++;
        if (got != BSR_ITEM_OVERLAP_UNDECIDED) wrong += (got != 0) != want;
        if (got != BSR_ITEM_OVERLAP_UNDECIDED && back != BSR_ITEM_OVERLAP_UNDECIDED) wrong += got != back;
        if (got != BSR_ITEM_OVERLAP_UNDECIDED) wrong += got != far_off;
    }
    return wrong;
}
TEST(overlap_is_exact) {
    static const struct {
        int dims;
        long pairs;
    } set[] = {{1, 20000}, {2, 60000}, {3, 20000}, {4, 10000}, {6, 10000}};
    size_t i;
    for (i = 0; i < BT_COUNT(set); i++) {
        long disjoint, undecided;
        bt_case("up to %d dimensions", set[i].dims);
        CHECK_INT(overlap_pairs(set[i].dims, set[i].pairs * OVERLAP_TIMES, &disjoint, &undecided), 0);
        bt_describe("%ld disjoint, %ld undecided", disjoint, undecided);
        CHECK(disjoint > set[i].pairs / 20);
        CHECK_INT(undecided, 0);
    }
    bt_case("more steps than there are");
    {
        const int64_t a_size[] = {2740, 1301}, a_stride[] = {96300, 36}, b_size[] = {1509, 746}, b_stride[] = {64208, 24};
        const char *base = (const char *)(UINTPTR_MAX / 4);
        bsri_span a, b;
        CHECK(bsri_span_make(&a, 0, base, 4, 2, a_size, a_stride));
        CHECK(bsri_span_make(&b, 0, base + 572682496, 4, 2, b_size, b_stride));
        CHECK_INT(bsri_spans_overlap(&a, &b), BSR_ITEM_OVERLAP_UNDECIDED);
    }
}

static const bt_test tests[] = {{"repeats_are_found_in_few_walks", repeats_are_found_in_few_walks},
                                {"schedules_in_any_order", schedules_in_any_order},
                                {"overlap_is_exact", overlap_is_exact}};
int main(int argc, char **argv) { return bt_main(argc, argv, tests, BT_COUNT(tests)); }
