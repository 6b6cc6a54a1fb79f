/* Bends an elastic beam: solves K u = f by conjugate gradients, K block-sparse with 3 x 3 blocks, in double precision. */
#define BSRSPARSE_IMPLEMENTATION
#include "beam.h"

enum { NX = 40, NY = 6, NZ = 6, STEPS = 3000 };

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

/* Jacobi-preconditioned conjugate gradients from u = 0; returns the number of steps. */
static int solve(const bsr_matrix *K, const double *diagonal, const double *f, double *u, double tolerance) {
    int64_t n = K->rows, i;
    double *r = (double *)allocate(4 * n, sizeof *r), *z = r + n, *p = z + n, *q = p + n, rz = 0,
           stop = tolerance * sqrt(dot(f, f, n));
    int step;
    for (i = 0; i < n; i++) u[i] = 0, r[i] = f[i];
    for (step = 0; step < STEPS && sqrt(dot(r, r, n)) > stop; step++) {
        double before = rz, a;
        if (step % 50 == 0) printf("  step %4d   residual %.2e\n", step, sqrt(dot(r, r, n) / dot(f, f, n)));
        for (i = 0; i < n; i++) z[i] = r[i] / diagonal[i];
        rz = dot(r, z, n);
        for (i = 0; i < n; i++) p[i] = z[i] + (step ? rz / before : 0) * p[i];
        multiply(K, p, q);
        a = rz / dot(p, q, n);
        for (i = 0; i < n; i++) u[i] += a * p[i], r[i] -= a * q[i];
    }
    release(r);
    return step;
}

int main(int argc, char **argv) {
    bsr_context *builder, *ctx = open_backend(argc, argv, 0, &builder);
    entries e;
    bsr_matrix K;
    double *f, *u, *residual, *diagonal, norm, tip, theory, inertia = NY * (double)NZ * NZ * NZ / 12, start;
    int64_t i, n, face = (NY + 1) * (NZ + 1);
    int steps;

    context = ctx, print_backend(ctx);
    e = beam_assemble(NX, NY, NZ), n = e.rows;
    K = matrix_from_entries(builder, &e, 3, 3, BSR_F64);
    f = (double *)allocate(4 * n, sizeof *f), u = f + n, residual = u + n, diagonal = residual + n;
    for (i = 0; i < face; i++) f[n - 3 * face + 3 * i + 2] = -1e-3 / (double)face; /* a load of 1e-3 down the free end */
    for (i = 0; i < e.count; i++)
        if (e.row[i] == e.col[i]) diagonal[e.row[i]] += e.value[i];
    printf("beam of %d x %d x %d elements: %lld unknowns, %lld blocks of 3 x 3\n", NX, NY, NZ, (long long)n, (long long)K.nnz);

    start = seconds();
    steps = solve(&K, diagonal, f, u, 1e-10);
    start = seconds() - start;

    /* the residual again, from the entries themselves */
    memcpy(residual, f, (size_t)n * sizeof *f);
    for (i = 0; i < e.count; i++) residual[e.row[i]] -= e.value[i] * u[e.col[i]];
    norm = sqrt(dot(residual, residual, n) / dot(f, f, n));
    for (tip = 0, i = 0; i < face; i++) tip += u[n - 3 * face + 3 * i + 2] / (double)face;
    theory = -1e-3 * NX * (double)NX * NX / (3 * BEAM_YOUNG * inertia);
    printf("%d steps in %.2f s, residual |f - K u| / |f| = %.2e\n", steps, start, norm);
    printf("the free end moves by %.4g; beam theory says %.4g\n", tip, theory);

    release(f), entries_free(&e), matrix_free(&K), bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(norm < 1e-9 && fabs(tip / theory - 1) < 0.1);
}
