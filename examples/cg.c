/* Solves K u = f by conjugate gradients with a block-Jacobi preconditioner, K block-sparse in double precision: an elastic beam
   that bends, with 3 x 3 blocks, or `cg [--block 3] matrix.mtx`, a symmetric positive definite matrix of yours with f = 1. */
#define BSRSPARSE_IMPLEMENTATION
#include "jacobi.h"

enum { NX = 40, NY = 6, NZ = 6, STEPS = 20000 };

static const bsr_context *context;

static void multiply(const bsr_matrix *K, double *x, double *y) { /* y = K x: a product with one column */
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_dense X = bsr_dense_row_major(x, BSR_F64, K->cols, 1), Y = bsr_dense_row_major(y, BSR_F64, K->rows, 1);
    exec.error = &error;
    REQUIRE(bsr_dense_mm(context, 0, K, &X, &Y, &exec), &error);
}
static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Preconditioned conjugate gradients from u = 0; returns the number of steps. */
static int solve(const bsr_matrix *K, const bsr_matrix *M, const double *f, double *u, double tolerance) {
    int64_t n = K->rows, i;
    double *r = (double *)allocate(4 * n, sizeof *r), *z = r + n, *p = z + n, *q = p + n, rz = 0,
           stop = tolerance * sqrt(dot(f, f, n));
    int step;
    for (i = 0; i < n; i++) u[i] = 0, r[i] = f[i];
    for (step = 0; step < STEPS && sqrt(dot(r, r, n)) > stop; step++) {
        double before = rz, a;
        if (step % 50 == 0) printf("  step %4d   residual %.2e\n", step, sqrt(dot(r, r, n) / dot(f, f, n)));
        multiply(M, r, z);
        rz = dot(r, z, n);
        for (i = 0; i < n; i++) p[i] = z[i] + (step ? rz / before : 0) * p[i];
        multiply(K, p, q);
        a = rz / dot(p, q, n);
        for (i = 0; i < n; i++) u[i] += a * p[i], r[i] -= a * q[i];
    }
    release(r);
    return step;
}
/* SciPy's conjugate gradients on the same file, where Python has it. */
static void beside(const char *file, int64_t block) {
#ifndef _WIN32
    char command[2048], answer[128] = "";
    double t;
    FILE *f;
    int n;
    snprintf(command, sizeof command, "python3 examples/peers.py --cg '%s' %lld 1e-10 2> /dev/null", file, (long long)block);
    f = strchr(file, '\'') ? NULL : popen(command, "r");
    if (f && fgets(answer, sizeof answer, f) && sscanf(answer, "SciPy cg\t%d\t%lf", &n, &t) == 2)
        printf("SciPy's cg with the same preconditioner: %d steps in %.2f s\n", n, t);
    else printf("SciPy is absent, or does not get there\n");
    if (f) pclose(f);
#endif
}
static double beam_bends(const double *u, int64_t n) { /* the free end, over beam theory */
    const int64_t face = (NY + 1) * (NZ + 1);
    double tip = 0, theory = -1e-3 * NX * (double)NX * NX / (3 * BEAM_YOUNG * (NY * (double)NZ * NZ * NZ / 12));
    int64_t i;
    for (i = 0; i < face; i++) tip += u[n - 3 * face + 3 * i + 2] / (double)face;
    printf("the free end moves by %.4g; beam theory says %.4g\n", tip, theory);
    return tip / theory;
}

int main(int argc, char **argv) {
    bsr_context *builder, *ctx = open_backend(argc, argv, 0, &builder);
    const char *file = NULL;
    bsr_file_info info;
    entries e;
    bsr_matrix K, M;
    double *f, *u, *residual, norm, start, bends = 1;
    int64_t i, n, block = 3, face = (NY + 1) * (NZ + 1);
    int steps;
    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--block") && i + 1 < argc) block = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--backend")) i++;
        else file = argv[i];
    }
    context = ctx, print_backend(ctx), e = file ? read_entries(file, &info) : beam_assemble(NX, NY, NZ);
    if (block < 1 || block > 64 || e.rows != e.cols) complain("cg", "blocks of 1 to 64 and a square matrix are wanted");
    K = matrix_from_entries(builder, &e, block, block, BSR_F64), M = block_jacobi(&K, e.rows), n = K.rows;
    f = (double *)allocate(3 * n, sizeof *f), u = f + n, residual = u + n;
    for (i = 0; i < e.rows && file; i++) f[i] = 1;
    for (i = 0; i < face && !file; i++) f[n - 3 * face + 3 * i + 2] = -1e-3 / (double)face; /* 1e-3 down the free end */
    printf("%s: %lld unknowns, %lld blocks of %lld x %lld\n", file ? file : "beam", (long long)e.rows, (long long)K.nnz,
           (long long)block, (long long)block);
    start = seconds(), steps = solve(&K, &M, f, u, 1e-10), start = seconds() - start;
    memcpy(residual, f, (size_t)n * sizeof *f); /* again, from the entries themselves */
    for (i = 0; i < e.count; i++) residual[e.row[i]] -= e.value[i] * u[e.col[i]];
    norm = sqrt(dot(residual, residual, n) / dot(f, f, n));
    printf("%d steps in %.2f s, residual |f - K u| / |f| = %.2e\n", steps, start, norm);
    if (file) beside(file, block);
    else bends = beam_bends(u, n);
    release(f), entries_free(&e), matrix_free(&K), matrix_free(&M), bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(norm < 1e-9 && fabs(bends - 1) < 0.1);
}
