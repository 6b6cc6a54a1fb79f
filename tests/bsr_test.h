/* bsr_test.h: the test harness of bsrsparse. C99, no dependency, reads no environment.

   A program lists its tests in one table and ends with bt_main(). A test runs any number of cases; a case is what is
   counted. A case that checks nothing fails, a program that runs no case fails. Random numbers are seeded from the
   names of test and case, so that every run of a case is the same; the seed is printed when it fails.

       TEST(adds) { bt_case("n %d", n); ... CHECK(x == y); }
       static const bt_test tests[] = {{"adds", adds}};
       int main(int argc, char **argv) { return bt_main(argc, argv, tests, BT_COUNT(tests)); }

   Arguments: parts of test names (none: all); -v lists the cases; -l lists the tests; -s N takes a share of the cases, one
   in N, the same ones each time: the others are set up, but RUN_OK leaves their calls out, and they are not counted. */
#ifndef BSR_TEST_H
#define BSR_TEST_H

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TF static inline /* helpers that a program may leave unused */
#define BT_COUNT(table) (sizeof(table) / sizeof((table)[0]))

#if defined(__SANITIZE_ADDRESS__)
#define BT_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BT_ASAN
#endif
#endif
/* Objects of tests are compiled once and linked to libraries with and without the address sanitizer: asked as they run. */
#if defined(BT_ASAN)
#define BT_ASAN_RUNS 1
#elif defined(__GNUC__) && defined(__ELF__)
#ifdef __cplusplus
extern "C"
#endif
    void __asan_init(void) __attribute__((weak));
#define BT_ASAN_RUNS (__asan_init != 0)
#else
#define BT_ASAN_RUNS 0
#endif
/* Under the memory sanitizer poison is what nobody has written: whoever depends on it is told. Guards and gaps are looked at
   by functions that it leaves alone. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define BT_UNWRITTEN(p, bytes) __msan_poison(p, bytes)
#define BT_MAY_READ_POISON __attribute__((no_sanitize("memory")))
#endif
#endif
#ifndef BT_UNWRITTEN
#define BT_UNWRITTEN(p, bytes) ((void)0)
#define BT_MAY_READ_POISON
#endif
#if defined(__GNUC__) || defined(__clang__)
#define BT_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define BT_PRINTF(a, b)
#endif

/* ---------------------------------------------------------------------------------------------- */
/* state                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

typedef struct bt_test {
    const char *name;
    void (*run)(void);
} bt_test;
#define TEST(name) static void name(void)

/* A buffer: [front guard][bytes][back guard]. Under ASan there is no back guard, the allocation ends with the data. */
typedef struct bt_block {
    struct bt_block *next;
    unsigned char *base, *data;
    size_t front, bytes, back;
    int output;    /* a call may write it */
    uint64_t hash; /* of an input, taken by bt_before_call() */
} bt_block;

#define BT_REASONS 32
static struct bt_state {
    const char *test;
    char text[320];
    uint64_t seed, random;
    int open, implicit, bad, skipped_case, verbose, shown, sample, unwanted; /* unwanted: the open case is not of the sample */
    long checks, passed, failed, skipped;
    const char *reason[BT_REASONS];
    long reason_count[BT_REASONS];
    bt_block *blocks;
} bt;

/* 0: nobody wants what this case finds (-s, and tests/gpu/mirror.h, of whose cases only a share runs); it needs no references. */
#ifndef BT_WANTED
#define BT_WANTED (!bt.unwanted)
#endif

BT_PRINTF(3, 4) TF void bt_fail(const char *file, int line, const char *format, ...) {
    va_list list;
    if (!BT_WANTED) return;
    bt.bad = 1;
    if (bt.shown++ >= 8) return;
    printf("FAIL %s [%s] seed 0x%llx\n     %s:%d: ", bt.test, bt.text, (unsigned long long)bt.seed, file, line);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("%s\n", bt.shown == 8 ? "\n     (further failures of this test are only counted)" : "");
    fflush(stdout);
}

TF void bt_check(const char *file, int line, const char *text, int holds) {
    bt.checks++;
    if (bt.unwanted) return;
    if (!holds) bt_fail(file, line, "expected %s", text);
}
TF void bt_check_int(const char *file, int line, const char *text, long long got, long long want) {
    bt.checks++;
    if (bt.unwanted) return;
    if (got != want) bt_fail(file, line, "%s is %lld, expected %lld", text, got, want);
}
TF void bt_check_str(const char *file, int line, const char *got, const char *want) {
    bt.checks++;
    if (bt.unwanted) return;
    if (!got || strcmp(got, want)) bt_fail(file, line, "\"%s\", expected \"%s\"", got ? got : "(null)", want);
}
TF void bt_check_near(const char *file, int line, const char *text, double got, double want, double bound) {
    bt.checks++;
    if (bt.unwanted) return;
    if (!(fabs(got - want) <= bound)) bt_fail(file, line, "%s is %.17g, expected %.17g +- %.3g", text, got, want, bound);
}
#define CHECK(condition) bt_check(__FILE__, __LINE__, #condition, (condition) != 0)
#define CHECK_INT(got, want) bt_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define CHECK_STR(got, want) bt_check_str(__FILE__, __LINE__, got, want)
#define CHECK_NEAR(got, want, bound)                                                           \
    bt_check_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), bound) /* NaN fails \
                                                                                   */

/* ---------------------------------------------------------------------------------------------- */
/* random numbers: splitmix64                                                                     */
/* ---------------------------------------------------------------------------------------------- */

TF uint64_t bt_random(void) {
    uint64_t z = (bt.random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
TF int64_t bt_below(int64_t n) { return n > 0 ? (int64_t)(bt_random() % (uint64_t)n) : 0; }
TF int64_t bt_range(int64_t lo, int64_t hi) { return lo + bt_below(hi - lo + 1); } /* both ends included */
TF double bt_uniform(void) { return (double)(bt_random() >> 11) * 0x1p-53; }
/* As !memcmp, poison included. */
BT_MAY_READ_POISON TF int bt_same_bytes(const void *a, const void *b, size_t n) {
    const volatile unsigned char *x = (const volatile unsigned char *)a, *y = (const volatile unsigned char *)b;
    size_t i = 0;
    while (i < n && x[i] == y[i]) i++;
    return i == n;
}
BT_MAY_READ_POISON TF uint64_t bt_hash_bytes(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = (const unsigned char *)data;
    size_t i;
    for (i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---------------------------------------------------------------------------------------------- */
/* memory: lives until the case ends, guards checked then                                         */
/* ---------------------------------------------------------------------------------------------- */

#define BT_GUARD 0xa5
#define BT_POISON 0xff /* a NaN in every float type */

/* bytes of poison, aligned to `align` (a power of two up to 64) and, for small alignments, to no more than that in half
   of the cases, so that vector paths meet odd addresses. Ends where the allocation ends (ASan). */
TF void *bt_alloc(size_t bytes, size_t align) {
    bt_block *b = (bt_block *)malloc(sizeof *b);
    size_t extra = align < 16 ? align * (size_t)bt_below(2) : 0, total;
    if (!b) abort();
    b->back = BT_ASAN_RUNS ? 0 : 64;
    total = 128 + extra + bytes + b->back;
    b->base = (unsigned char *)malloc(total);
    if (!b->base) abort();
    b->data = b->base + total - b->back - bytes;
    b->data -= (uintptr_t)(b->data - extra) % align;
    b->front = (size_t)(b->data - b->base), b->bytes = bytes, b->back = total - b->front - bytes;
    b->output = 0, b->hash = 0;
    memset(b->base, BT_GUARD, total);
    memset(b->data, BT_POISON, bytes);
    if (!bt.unwanted) BT_UNWRITTEN(b->data, bytes);
    b->next = bt.blocks, bt.blocks = b;
    return b->data;
}
TF bt_block *bt_find(const void *data) {
    bt_block *b = bt.blocks;
    while (b && b->data != (const unsigned char *)data) b = b->next;
    return b;
}
TF void bt_mark_output(const void *data) {
    bt_block *b = bt_find(data);
    if (b) b->output = 1;
}
TF int bt_guards_intact(const bt_block *b) {
    size_t i;
    for (i = 0; i < b->front; i++)
        if (b->base[i] != BT_GUARD) return 0;
    for (i = 0; i < b->back; i++)
        if (b->data[b->bytes + i] != BT_GUARD) return 0;
    return 1;
}
/* Between these two, buffers that are not marked as outputs must not change. */
TF void bt_before_call(void) {
    bt_block *b;
    for (b = bt.blocks; b; b = b->next)
        if (!b->output) b->hash = bt_hash_bytes(1469598103934665603u, b->data, b->bytes);
}
TF void bt_after_call(void) {
    bt_block *b;
    for (b = bt.blocks; b; b = b->next) {
        bt.checks++;
        if (!b->output && b->hash != bt_hash_bytes(1469598103934665603u, b->data, b->bytes))
            bt_fail(__FILE__, __LINE__, "an input buffer of %zu bytes was written", b->bytes);
        if (!bt_guards_intact(b)) bt_fail(__FILE__, __LINE__, "a guard of a buffer of %zu bytes was written", b->bytes);
    }
}
TF void bt_free_all(void) {
    while (bt.blocks) {
        bt_block *b = bt.blocks;
        bt.blocks = b->next;
        if (!bt_guards_intact(b)) bt_fail(__FILE__, __LINE__, "a guard of a buffer of %zu bytes was written", b->bytes);
        free(b->base);
        free(b);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* cases                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

TF void bt_close(void) {
    if (!bt.open) return;
    if (!bt.checks && !bt.skipped_case && !bt.implicit) bt_fail(__FILE__, __LINE__, "the case checked nothing");
    bt_free_all();
    if (bt.bad) bt.failed++;
    else if (bt.checks && !bt.skipped_case && !bt.unwanted) bt.passed++;
    bt.open = 0;
}
TF void bt_open(int implicit) {
    bt.seed = bt_hash_bytes(bt_hash_bytes(14695981039346656037u, bt.test, strlen(bt.test)), bt.text, strlen(bt.text));
    bt.random = bt.seed;
    bt.open = 1, bt.implicit = implicit, bt.bad = 0, bt.checks = 0, bt.skipped_case = 0;
    bt.unwanted = bt.sample > 1 && !implicit && bt.seed / 4 % (uint64_t)bt.sample != 0;
    if (bt.verbose && !implicit) printf("     %s [%s]\n", bt.test, bt.text), fflush(stdout);
}
/* Ends the case before, starts a new one: its text says what is special about it. */
BT_PRINTF(1, 2) TF void bt_case(const char *format, ...) {
    va_list list;
    bt_close();
    va_start(list, format);
    vsnprintf(bt.text, sizeof bt.text, format, list);
    va_end(list);
    bt_open(0);
}
/* More about the case, once it is known: behind its text. */
BT_PRINTF(1, 2) TF void bt_describe(const char *format, ...) {
    const size_t n = strlen(bt.text);
    va_list list;
    if (n + 2 >= sizeof bt.text) return;
    memcpy(bt.text + n, ": ", 3);
    va_start(list, format);
    vsnprintf(bt.text + n + 2, sizeof bt.text - n - 2, format, list);
    va_end(list);
}
/* Counts a case that can't run here, with the reason (a literal). */
TF void bt_skip(const char *reason) {
    int i;
    if (bt.unwanted) return;
    bt.skipped_case = 1, bt.skipped++;
    for (i = 0; i < BT_REASONS; i++) {
        if (!bt.reason[i]) bt.reason[i] = reason;
        if (strcmp(bt.reason[i], reason)) continue;
        bt.reason_count[i]++;
        break;
    }
}

/* The list of intended differences names tests: those of this program must be in its table. */
TF int bt_differences(const char *file, const bt_test *tests, size_t count) {
    static const char *const list[][2] = {
#define X(program, test, text) {program, test},
#include "differences.inc"
#undef X
    };
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    size_t i, t;
    int missing = 0;
    for (i = 0; i < BT_COUNT(list); i++) {
        size_t n = strlen(list[i][0]);
        if (strncmp(name, list[i][0], n) || strcmp(name + n, ".c")) continue;
        for (t = 0; t < count && strcmp(tests[t].name, list[i][1]); t++) {
        }
        if (t == count) missing = 1, printf("FAIL differences.inc names a test that is not here: %s\n", list[i][1]);
    }
    return missing;
}

#define bt_main(argc, argv, tests, count) bt_run(__FILE__, argc, argv, tests, count)
TF int bt_run(const char *file, int argc, char **argv, const bt_test *tests, size_t count) {
    size_t t;
    int i, filters = 0;
    bt.failed += bt_differences(file, tests, count);
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v")) bt.verbose = 1;
        else if (!strcmp(argv[i], "-l")) {
            for (t = 0; t < count; t++) printf("%s\n", tests[t].name);
            return 0;
        } else if (!strcmp(argv[i], "-s") && i + 1 < argc) bt.sample = atoi(argv[++i]);
        else filters++;
    }
    for (t = 0; t < count; t++) {
        int wanted = !filters;
        long failed = bt.failed;
        for (i = 1; i < argc; i++) {
            if (!strcmp(argv[i], "-s")) i++;
            else wanted |= argv[i][0] != '-' && strstr(tests[t].name, argv[i]) != NULL;
        }
        if (!wanted) continue;
        bt.test = tests[t].name, bt.text[0] = 0, bt.shown = 0;
        bt_open(1);
        tests[t].run();
        if (bt.implicit && !bt.checks && !bt.skipped_case) bt_fail(__FILE__, __LINE__, "the test checked nothing");
        bt_close();
        if (bt.failed != failed) printf("     %s: %ld cases failed\n", tests[t].name, bt.failed - failed);
    }
    for (i = 0; i < BT_REASONS && bt.reason[i]; i++) printf("skipped %ld: %s\n", bt.reason_count[i], bt.reason[i]);
    printf("%ld passed, %ld failed, %ld skipped\n", bt.passed, bt.failed, bt.skipped);
    return bt.failed || !(bt.passed + bt.failed);
}

#endif /* BSR_TEST_H */
