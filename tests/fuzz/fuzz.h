/* fuzz.h: what the fuzz targets share. Built with clang -fsanitize=fuzzer,address,undefined a target is a libFuzzer program;
   with -DFUZZ_MAIN it runs the files that it is given (tests/fuzz/corpus), its small built-in corpus, and bytes changed in it, as
   an ordinary test. */
#ifndef BSR_FUZZ_H
#define BSR_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise: stop where the fuzzer sees it. */
#define FUZZ_REQUIRE(condition)                                                           \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* Numbers out of the input; zeros when it is used up. */
typedef struct fuzz_input {
    const uint8_t *p, *end;
} fuzz_input;
static inline unsigned fuzz_byte(fuzz_input *in) { return in->p < in->end ? *in->p++ : 0u; }
static inline int64_t fuzz_below(fuzz_input *in, int n) { return (int64_t)(fuzz_byte(in) % (unsigned)n); }
/* A size that is mostly small and now and then absurd. */
static inline int64_t fuzz_size(fuzz_input *in, int n) {
    static const int64_t odd[] = {-1, INT64_MAX, INT64_MIN, INT64_C(1) << 31, INT64_C(1) << 62, INT64_C(1) << 32, -7, INT32_MAX};
    unsigned b = fuzz_byte(in);
    return b >= 248 ? odd[b - 248] : (int64_t)(b % (unsigned)n);
}

/* Memory of one run: exactly as long as asked for, so that ASan sees the first byte past it. */
#define FUZZ_BLOCKS 64
static void *fuzz_blocks[FUZZ_BLOCKS];
static int fuzz_used;
static inline void *fuzz_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p || fuzz_used == FUZZ_BLOCKS) abort();
    return fuzz_blocks[fuzz_used++] = p;
}
/* Filled from the input; what is not there repeats a pattern. */
static inline void *fuzz_filled(fuzz_input *in, size_t bytes) {
    unsigned char *p = (unsigned char *)fuzz_alloc(bytes);
    size_t i;
    for (i = 0; i < bytes; i++) p[i] = (unsigned char)(in->p < in->end ? fuzz_byte(in) : i % 3 ? 0u : i / 5 % 4);
    return p;
}
static inline void fuzz_free(void) {
    while (fuzz_used) free(fuzz_blocks[--fuzz_used]);
}

#ifdef FUZZ_MAIN
/* Runs every file that the command line names: the corpus. Returns how many there were. */
static inline long fuzz_files(int argc, char **argv) {
    int i;
    for (i = 1; i < argc; i++) {
        uint8_t *bytes = (uint8_t *)malloc(1 << 16), *exact;
        FILE *f = fopen(argv[i], "rb");
        size_t n = f && bytes ? fread(bytes, 1, 1 << 16, f) : 0;
        FUZZ_REQUIRE(f && bytes);
        fclose(f);
        exact = (uint8_t *)malloc(n ? n : 1); /* so that a byte past the end is seen */
        if (!exact) abort();
        memcpy(exact, bytes, n);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact), free(bytes);
    }
    return argc - 1;
}
typedef struct fuzz_seed {
    const char *bytes;
    size_t size;
} fuzz_seed;
#define FUZZ_SEED(literal) \
    { literal, sizeof(literal) - 1 }
static inline void fuzz_step(uint64_t *state) { /* xorshift */
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
}
/* The files, each seed, each seed cut short, and `changes` variants with a few bytes changed. */
static inline int fuzz_main(int argc, char **argv, const fuzz_seed *seeds, size_t count, int changes) {
    uint64_t state = 88172645463325252u;
    long runs = fuzz_files(argc, argv);
    size_t s, cut;
    int k;
    for (s = 0; s < count; s++) {
        uint8_t *copy;
        for (cut = 0; cut <= seeds[s].size; cut++, runs++) {
            copy = (uint8_t *)malloc(cut ? cut : 1);
            if (!copy) abort();
            memcpy(copy, seeds[s].bytes, cut);
            LLVMFuzzerTestOneInput(copy, cut);
            free(copy);
        }
        for (k = 0; k < changes; k++, runs++) {
            int n;
            copy = (uint8_t *)malloc(seeds[s].size + 1);
            if (!copy) abort();
            memcpy(copy, seeds[s].bytes, seeds[s].size);
            for (n = 0; n <= k % 8 && seeds[s].size; n++) {
                fuzz_step(&state);
                copy[(state >> 32) % seeds[s].size] = (uint8_t)(state & 255u);
            }
            LLVMFuzzerTestOneInput(copy, seeds[s].size);
            free(copy);
        }
    }
    printf("%ld passed, 0 failed, 0 skipped\n", runs); /* a failure aborts */
    return runs == 0;
}
/* Bytes from a generator: as many as wanted, different for each k. */
static inline void fuzz_random_run(uint64_t k, size_t n) {
    uint64_t state = k * UINT64_C(0x9e3779b97f4a7c15) + 1;
    uint8_t *bytes = (uint8_t *)malloc(n ? n : 1);
    size_t i;
    if (!bytes) abort();
    for (i = 0; i < n; i++) {
        fuzz_step(&state);
        bytes[i] = (uint8_t)(state >> 40 & 255u);
        if (k & 1 && i > 2) bytes[i] = (uint8_t)(bytes[i] % 190u); /* half of them stay among the sensible values */
    }
    LLVMFuzzerTestOneInput(bytes, n);
    free(bytes);
}
/* The files, and `count` runs of `least` random bytes to fewer than `span` more. */
static inline int fuzz_random_main(int argc, char **argv, uint64_t count, size_t least, size_t span) {
    long runs = fuzz_files(argc, argv);
    uint64_t k;
    for (k = 0; k < count; k++, runs++) fuzz_random_run(k, least + (size_t)(k % span));
    printf("%ld passed, 0 failed, 0 skipped\n", runs); /* a failure aborts */
    return 0;
}
#endif

#endif /* BSR_FUZZ_H */
