/* What the examples share: errors, backends, memory, random numbers, a clock. Include it first. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime, isatty, fileno */
#endif
#include "bsrsparse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#else
#include <unistd.h>
#endif
#include "backend.h"

static inline double seconds(void) {
#ifdef _WIN32
    return (double)clock() / CLOCKS_PER_SEC; /* wall time there */
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
}

/* splitmix64: uniform bits, a uniform number in (0, 1), a normally distributed one. */
static inline uint64_t random_bits(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline double random_uniform(uint64_t *state) { return ((double)(random_bits(state) >> 11) + 0.5) / 9007199254740992.0; }
static inline int64_t draw_below(uint64_t *state, int64_t n) { return (int64_t)(random_bits(state) % (uint64_t)n); }
static inline double random_normal(uint64_t *state) {
    double r = sqrt(-2 * log(random_uniform(state)));
    return r * cos(6.283185307179586 * random_uniform(state));
}
static inline void fill_normal_f32(float *x, int64_t n, uint64_t *state) {
    int64_t i;
    for (i = 0; i < n; i++) x[i] = (float)random_normal(state);
}

/* The whole number that option `name` gives, `value` where it is absent; --help prints a line about it. options_end() comes
   after the last one: --help ends the program there, and what no option() asked for is refused. */
static int options_known;
static inline int64_t option(int argc, char **argv, const char *name, int64_t value, int64_t low, int64_t high,
                             const char *what) {
    char *end;
    int i;
    for (i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help"))
            printf("  %-10s %s (%lld; %lld to %lld)\n", name, what, (long long)value, (long long)low, (long long)high);
    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], name)) continue;
        value = strtoll(argv[i + 1], &end, 10), options_known++;
        if (end != argv[i + 1] && !*end && value >= low && value <= high) continue;
        fprintf(stderr, "%s: %lld to %lld\n", name, (long long)low, (long long)high);
        exit(1);
    }
    return value;
}
static inline void options_end(int argc, char **argv) {
    int i;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) printf("  --backend  cpu or cuda\n"), exit(0);
        options_known += !strcmp(argv[i], "--backend");
    }
    if (argc == 1 + 2 * options_known) return;
    fprintf(stderr, "options: --help lists them\n");
    exit(1);
}

/* The larger of two errors; not-a-number counts as infinite. */
static inline double worse(double worst, double e) { return e <= worst ? worst : e == e ? e : HUGE_VAL; }

/* The last line of every example that checks itself; 0 or 1 for main to return. */
static inline int verdict(int good) {
    printf(good ? "ok\n" : "WRONG\n");
    return good ? 0 : 1;
}

#endif
