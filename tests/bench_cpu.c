/* Speed of the CPU backend: products and attention, beside OpenBLAS where it is there (make bench). Medians of warm runs,
   normally distributed data, patterns with exactly round((1 - s) blocks) blocks, the same number of threads for all.
   bench_cpu [FILE.csv [THREADS [BLOCK...]]], threads 0: as many as there are, block 0: attention. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"
#ifdef HAVE_OPENBLAS
#include <cblas.h>
#endif

enum { N = 512, HEADS = 8, LENGTH = 2048, WIDTH = 64, ATTENTION_BLOCK = 64, MAX_RUNS = 400 };

static bsr_context *ctx;
static bsr_error error;
static bsr_exec run;
static FILE *csv;
static uint64_t random_state = 1;
static int targets, reached, isa, threads;
static const char *noise; /* of the last measurement: a word where other programs were in the way */

/* ---- measuring ---- */

/* One thread: its own time, without what other programs take of the processor. */
static double now(void) {
#ifdef CLOCK_THREAD_CPUTIME_ID
    struct timespec t;
    if (threads == 1 && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0) return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#endif
    return seconds();
}
static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
/* Median seconds of ours, and of the peer where there is one; in turns, so that both see the same machine. Spinning threads
   of the one side get time to fall asleep before the other starts. */
static void measure(void (*ours)(void *), void (*peer)(void *), void *arg, double *our_time, double *peer_time) {
    void (*side[2])(void *);
    static double t[2][MAX_RUNS];
    int n[2] = {0, 0}, s, turn;
    side[0] = ours, side[1] = peer;
    for (turn = 0; turn < 4; turn++)
        for (s = 0; s < 2 && side[s]; s++) {
            double all = 0, pause = seconds();
            int k;
            while (seconds() - pause < 0.02) {
            }
            side[s](arg);
            for (k = 0; k < MAX_RUNS / 4 && (k < 4 || all < 0.12); k++) {
                double start = now();
                side[s](arg);
                all += t[s][n[s]++] = now() - start;
            }
        }
    for (s = 0; s < 2; s++) qsort(t[s], (size_t)n[s], sizeof t[s][0], by_value);
    *our_time = t[0][n[0] / 2], *peer_time = peer ? t[1][n[1] / 2] : 0;
    noise = "";
    for (s = 0; s < 2; s++)
        if (n[s] && t[s][3 * n[s] / 4] > 1.3 * t[s][n[s] / 4]) noise = " noisy";
}
/* One line of the table and the file. target 0: nothing was promised; peer 0: no peer. */
static void result(const char *what, int64_t block, double s, const char *type, int64_t blocks, double t, double flops,
                   const char *peer, double ratio, double target) {
    const char *word = target <= 0 || ratio <= 0 ? "" : ratio >= target ? "reached" : "MISSED";
    if (*word) targets++, reached += ratio >= target;
    printf("%-10s %4lld  %4.2f  %-5s %10.3f ms %8.1f GF/s", what, (long long)block, s, type, 1e3 * t, flops / t / 1e9);
    if (ratio > 0) printf("   %5.2f of %-16s", ratio, peer);
    if (*word) printf(" (target %.2f: %s)", target, word);
    printf("%s\n", noise);
    fflush(stdout);
    if (csv) {
        fprintf(csv, "%s,%lld,%g,%s,%lld,%.6g,%.6g,%s,%.4g,%g,%s\n", what, (long long)block, s, type, (long long)blocks, 1e3 * t,
                flops / t / 1e9, peer, ratio, target, word);
        fflush(csv);
    }
}

/* ---- data ---- */

static uint16_t half(float x, int dtype) { /* close enough: rounds toward zero, flushes what is subnormal */
    uint32_t u, sign;
    memcpy(&u, &x, sizeof u);
    if (dtype == BSR_BF16) return (uint16_t)(u >> 16);
    sign = (u >> 16) & 0x8000u, u &= 0x7fffffffu;
    return (uint16_t)(u < 0x38800000u ? sign : sign | ((u - 0x38000000u) >> 13));
}
/* Not t_random() and t_matrix(): operands are large, dense in memory and never compared; a benchmark has no test harness. */
static void *random_array(int64_t n, int dtype) {
    char *p = (char *)allocate(n * (int64_t)bsr_dtype_size(dtype) + 64, 1);
    int64_t i;
    p += 64 - (uintptr_t)p % 64; /* never freed: the program is short */
    for (i = 0; i < n; i++) {
        float x = (float)random_normal(&random_state);
        if (dtype == BSR_I8) p[i] = (char)(int)(40 * x);
        else if (dtype == BSR_F32) ((float *)(void *)p)[i] = x;
        else ((uint16_t *)(void *)p)[i] = half(x, dtype);
    }
    return p;
}
static bsr_matrix random_matrix(int64_t rows, int64_t cols, int64_t block, double s, int dtype) {
    int64_t all = rows / block * (cols / block);
    bsr_matrix m =
        bsr_matrix_make(rows, cols, block, block, all, allocate(rows / block + 1, 4), allocate(all, 4), BSR_I32, NULL, dtype);
    uint64_t bytes;
    char *index;
    REQUIRE(bsr_random_pattern(ctx, random_bits(&random_state), s, &m, &run), &error);
    if (dtype) m.values = random_array(m.nnz * block * block, dtype);
    REQUIRE(bsr_transposed_index_size(ctx, &m, &bytes, &run), &error);
    index = (char *)allocate((int64_t)bytes + 64, 1), index += 64 - (uintptr_t)index % 64;
    REQUIRE(bsr_build_transposed_index(ctx, &m, index, bytes, &run), &error);
    m.transposed_index = index;
    return m;
}

/* ---- products ---- */

typedef struct product {
    bsr_matrix a;
    bsr_dense b, c;
    uint32_t trans;
    float *dense_a, *dense_b, *dense_c;
} product;

static void run_product(void *arg) {
    product *p = (product *)arg;
    REQUIRE(bsr_dense_mm(ctx, p->trans, &p->a, &p->b, &p->c, &run), &error);
}
#ifdef HAVE_OPENBLAS
static void run_sgemm(void *arg) {
    product *p = (product *)arg;
    const int m = (int)p->a.rows, k = (int)p->a.cols;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, N, k, 1, p->dense_a, k, p->dense_b, N, 0, p->dense_c, N);
}
#endif
static void (*const peer_product)(void *) =
#ifdef HAVE_OPENBLAS
    run_sgemm;
#else
    NULL;
#endif

/* f32: against sgemm; f16, bf16 and i8: against f32; A^T: against A. */
static void bench_products(int64_t block, double s) {
    static const int types[] = {BSR_F32, BSR_BF16, BSR_F16, BSR_I8};
    const int64_t size = (1024 + block - 1) / block * block;
    product p;
    double flops, t, t32 = 0, t_peer;
    int i;
    p.dense_a = (float *)random_array(size * size, BSR_F32), p.dense_b = (float *)random_array(size * N, BSR_F32);
    p.dense_c = (float *)random_array(size * N, BSR_F32);
    for (i = 0; i < 4; i++) {
        const int sums = types[i] == BSR_I8 ? BSR_I32 : types[i];
        const double target = block < 16 || i == 2 ? 0.5 : i == 1 && isa == BSR_ISA_AVX512_BF16 ? 1.5 :
                              i == 3 && isa >= BSR_ISA_AVX2_VNNI ? 3 : 0.5;
        p.a = random_matrix(size, size, block, s, types[i]), p.trans = 0;
        p.b = bsr_dense_row_major(random_array(size * N, types[i]), types[i], size, N);
        p.c = bsr_dense_row_major(random_array(size * N, BSR_F32), sums, size, N);
        flops = 2.0 * (double)(p.a.nnz * block * block) * N;
        measure(run_product, i ? NULL : peer_product, &p, &t, &t_peer);
        if (i == 0) {
            double rate = flops / t / (2.0 * (double)(size * size) * N / (t_peer > 0 ? t_peer : 1));
            t32 = t;
            result("product", block, s, "f32", p.a.nnz, t, flops, "OpenBLAS sgemm", t_peer > 0 ? rate : 0,
                   block >= 16 ? 0.75 : 0);
            p.trans = BSR_TRANS_A;
            measure(run_product, NULL, &p, &t, &t_peer);
            result("transposed", block, s, "f32", p.a.nnz, t, flops, "A's rate", t32 / t, 0.85);
        } else {
            result("product", block, s, bsr_dtype_name(types[i]), p.a.nnz, t, flops, "the f32 rate", t32 / t, target);
        }
    }
}

/* ---- attention ---- */

typedef struct attention {
    float *q, *k, *v, *out, *scores;
    bsr_dense Q, K, V, O;
    bsr_matrix mask, whole; /* whole: the score matrix with every block stored, over `scores` */
} attention;

static void run_attention(void *arg) {
    attention *a = (attention *)arg;
    REQUIRE(bsr_attention(ctx, 0, &a->Q, &a->K, &a->V, &a->mask, NULL, &a->O, NULL, &run), &error);
}
#ifdef HAVE_OPENBLAS
static void run_dense_attention(void *arg) { /* two products by OpenBLAS, our softmax between them */
    attention *a = (attention *)arg;
    int h;
    for (h = 0; h < HEADS; h++) {
        const int64_t at = (int64_t)h * LENGTH * WIDTH;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, LENGTH, LENGTH, WIDTH, 1, a->q + at, WIDTH, a->k + at, WIDTH, 0,
                    a->scores, LENGTH);
        REQUIRE(bsr_softmax(ctx, 0.125, &a->whole, NULL, &a->whole, &run), &error);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, LENGTH, WIDTH, LENGTH, 1, a->scores, LENGTH, a->v + at, WIDTH, 0,
                    a->out + at, WIDTH);
    }
}
#endif
static void (*const peer_attention)(void *) =
#ifdef HAVE_OPENBLAS
    run_dense_attention;
#else
    NULL;
#endif

static void bench_attention(double density) {
    const int64_t size = (int64_t)HEADS * LENGTH * WIDTH;
    static int32_t crow[LENGTH / ATTENTION_BLOCK + 1], col[LENGTH / ATTENTION_BLOCK];
    attention a;
    double t, t_peer;
    int i;
    a.q = (float *)random_array(size, BSR_F32), a.k = (float *)random_array(size, BSR_F32),
    a.v = (float *)random_array(size, BSR_F32);
    a.out = (float *)random_array(size, BSR_F32), a.scores = (float *)random_array((int64_t)LENGTH * LENGTH, BSR_F32);
    a.Q = bsr_dense_batched(bsr_dense_row_major(a.q, BSR_F32, LENGTH, WIDTH), HEADS, (int64_t)LENGTH * WIDTH);
    a.K = a.V = a.O = a.Q, a.K.data = a.k, a.V.data = a.v, a.O.data = a.out;
    a.mask = random_matrix(LENGTH, LENGTH, ATTENTION_BLOCK, 1 - density, BSR_DTYPE_NONE);
    for (i = 0; i < LENGTH / ATTENTION_BLOCK; i++) crow[i + 1] = i + 1; /* one block as wide as the matrix in each block row */
    a.whole =
        bsr_matrix_make(LENGTH, LENGTH, ATTENTION_BLOCK, LENGTH, LENGTH / ATTENTION_BLOCK, crow, col, BSR_I32, a.scores, BSR_F32);
    measure(run_attention, peer_attention, &a, &t, &t_peer);
    result("attention", ATTENTION_BLOCK, 1 - density, "f32", a.mask.nnz, t,
           4.0 * (double)(a.mask.nnz * ATTENTION_BLOCK * ATTENTION_BLOCK) * WIDTH * HEADS, "dense attention", t_peer / t,
           density > 0.2 && density < 0.3 ? 2.5 : 0);
}

int main(int argc, char **argv) {
    static const int64_t blocks[] = {1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 0};
    bsr_context_desc desc = BSR_ZERO;
    bsr_info info;
    size_t i;
    if (argc > 2) desc.threads = (int32_t)atoi(argv[2]);
    run.error = &error;
    REQUIRE(bsr_create(&desc, &ctx, &error), &error);
    REQUIRE(bsr_query_info(ctx, &info), &error);
    isa = info.isa, threads = (int)info.threads;
#ifdef HAVE_OPENBLAS
    openblas_set_num_threads(info.threads);
#endif
    if (argc > 1 && !(csv = fopen(argv[1], "w"))) {
        fprintf(stderr, "%s: can't write the file\n", argv[1]);
        return 1;
    }
    if (csv) fprintf(csv, "what,block,sparsity,type,blocks,ms,gflops,peer,ratio,target,verdict\n");
    printf("M = K = 1024 (or the next multiple of the block size), N = %d; %s, %d threads; rates count stored elements\n", N,
           info.isa_name, (int)info.threads);
    printf("what      block  spars. type\n");
    for (i = 0; i < (argc > 3 ? (size_t)argc - 3 : sizeof blocks / sizeof *blocks); i++) {
        int64_t block = argc > 3 ? atoi(argv[i + 3]) : blocks[i];
        if (block > 0) bench_products(block, 0.5), bench_products(block, 0.9);
        else bench_attention(0.25), bench_attention(0.1);
    }
    printf("%d of %d targets reached", reached, targets);
#ifndef HAVE_OPENBLAS
    printf("; those against OpenBLAS were skipped");
#endif
    printf("\n");
    bsr_destroy(ctx);
    return csv && fclose(csv) ? 1 : 0;
}
