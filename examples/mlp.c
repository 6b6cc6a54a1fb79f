/* A gated block-sparse perceptron, W2 (gelu(W1 X + b1) * (W3 X + b3)) + b2: forward, backward, gradients' check, training. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

enum { IN = 64, HIDDEN = 128, OUT = 32, BATCH = 96, BLOCK = 16, AREA = BLOCK * BLOCK, STEPS = 40 };

typedef struct layer {
    bsr_matrix W, dW; /* one pattern, two sets of values */
    int64_t count;    /* stored weights */
    double *values, *gradient, *bias, *bias_gradient;
} layer;

static bsr_context *ctx, *builder;
static bsr_error error;
static bsr_exec run;
static layer layer_make(int64_t rows, int64_t cols, double sparsity, uint64_t *random) {
    layer l;
    int64_t i, blocks = rows * cols / AREA;
    void *crow = allocate(rows / BLOCK + 1, sizeof(int32_t)), *col = allocate(blocks, sizeof(int32_t));
    uint64_t bytes;
    char *index;
    l.W = bsr_matrix_make(rows, cols, BLOCK, BLOCK, blocks, crow, col, BSR_I32, NULL, BSR_F64);
    REQUIRE(bsr_random_pattern(builder, random_bits(random), sparsity, &l.W, &run), &error); /* sets W.nnz */
    l.count = l.W.nnz * AREA;
    l.values = (double *)allocate(2 * (l.count + rows), sizeof(double));
    l.gradient = l.values + l.count, l.bias = l.gradient + l.count, l.bias_gradient = l.bias + rows;
    for (i = 0; i < l.count; i++) l.values[i] = random_normal(random) / sqrt((double)cols * (1 - sparsity));
    for (i = 0; i < rows; i++) l.bias[i] = 0.1 * random_normal(random);
    l.W.values = l.values; /* the transposed index makes the backward pass as fast as the forward one */
    REQUIRE(bsr_transposed_index_size(builder, &l.W, &bytes, &run), &error);
    index = (char *)allocate((int64_t)bytes + 64, 1), index += 64 - (uintptr_t)index % 64;
    REQUIRE(bsr_build_transposed_index(builder, &l.W, index, bytes, &run), &error);
    l.W.transposed_index = index, l.dW = l.W, l.dW.values = l.gradient;
    return l;
}
/* y = act(W x + bias) */
static void layer_forward(const layer *l, const bsr_dense *x, int activation, const bsr_dense *y) {
    bsr_dense bias = bsr_dense_row_major(l->bias, BSR_F64, l->W.rows, 1);
    bsr_epilogue end = BSR_ZERO;
    end.bias = &bias, end.activation = activation;
    REQUIRE(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &l->W, x, &end, y, &run), &error);
}
/* From dy: the gradients of weights (at the stored blocks) and bias, and dx where it is wanted. */
static void layer_backward(layer *l, const bsr_dense *x, const bsr_dense *dy, const bsr_dense *dx) {
    int64_t i, n;
    REQUIRE(bsr_matmul_backward(ctx, 0, bsr_operand_sparse(&l->W), bsr_operand_dense(x), bsr_operand_dense(dy),
                                bsr_operand_sparse(&l->dW), bsr_operand_dense(dx), &run), &error);
    for (i = 0; i < l->W.rows; i++)
        for (l->bias_gradient[i] = 0, n = 0; n < BATCH; n++) l->bias_gradient[i] += ((const double *)dy->data)[i * BATCH + n];
}
static void layer_step(layer *l, double rate) {
    int64_t i;
    for (i = 0; i < l->count; i++) l->values[i] -= rate * l->gradient[i];
    for (i = 0; i < l->W.rows; i++) l->bias[i] -= rate * l->bias_gradient[i];
}

static layer one, two, gate;
static double *x, *dx, *z, *g, *u, *h, *y, *target, *dz, *du, *dy; /* IN, HIDDEN or OUT rows of BATCH numbers */
static double *numbers(int64_t rows) { return (double *)allocate(rows * BATCH, sizeof(double)); }
static bsr_dense view(double *data, int64_t rows) { return bsr_dense_row_major(data, BSR_F64, rows, BATCH); }
static double forward(void) { /* returns the loss, |Y - T|^2 / (2 BATCH), and leaves its gradient in dy */
    bsr_dense X = view(x, IN), G = view(g, HIDDEN), U = view(u, HIDDEN), H = view(h, HIDDEN), Y = view(y, OUT);
    double loss = 0;
    int i;
    layer_forward(&one, &X, BSR_ACT_GELU, &G);
    layer_forward(&gate, &X, BSR_ACT_NONE, &U);
    for (i = 0; i < HIDDEN * BATCH; i++) h[i] = g[i] * u[i];
    layer_forward(&two, &H, BSR_ACT_NONE, &Y);
    for (i = 0; i < OUT * BATCH; i++) dy[i] = (y[i] - target[i]) / BATCH, loss += 0.5 * BATCH * dy[i] * dy[i];
    return loss;
}
static double gelu_slope(double v) { return 0.5 * (1 + erf(v * sqrt(0.5))) + v * exp(-0.5 * v * v) * 0.3989422804014327; }
static void backward(void) {
    bsr_dense X = view(x, IN), Z = view(z, HIDDEN), H = view(h, HIDDEN), dY = view(dy, OUT), dX = view(dx, IN);
    bsr_dense dZ = view(dz, HIDDEN), dU = view(du, HIDDEN);
    const bsr_term terms[2] = {{&one.W, &dZ, 1, BSR_TRANS_A, 0}, {&gate.W, &dU, 1, BSR_TRANS_A, 0}}; /* dX, in one pass */
    int i;
    layer_backward(&two, &H, &dY, &dZ);        /* dh, for now */
    layer_forward(&one, &X, BSR_ACT_NONE, &Z); /* formed again rather than kept */
    for (i = 0; i < HIDDEN * BATCH; i++) du[i] = dz[i] * g[i], dz[i] *= u[i] * gelu_slope(z[i]);
    layer_backward(&one, &X, &dZ, NULL);
    layer_backward(&gate, &X, &dU, NULL);
    REQUIRE(bsr_sum_mm(ctx, 0, NULL, terms, 2, NULL, &dX, &run), &error);
}
/* (loss(p + e) - loss(p - e)) / 2e against the gradient of parameter *p; returns the relative difference. */
static double difference(double *p, double gradient) {
    const double e = 1e-5, keep = *p;
    const double up = (*p = keep + e, forward()), down = (*p = keep - e, forward());
    return *p = keep, fabs((up - down) / (2 * e) - gradient) / (fabs(gradient) + 1e-3);
}

int main(int argc, char **argv) {
    uint64_t random = 7;
    double first, loss = 0, worst = 0;
    int i;
    ctx = open_backend(argc, argv, 0, &builder), run.error = &error, print_backend(ctx);
    x = numbers(IN), dx = numbers(IN), z = numbers(HIDDEN), g = numbers(HIDDEN), u = numbers(HIDDEN), h = numbers(HIDDEN);
    dz = numbers(HIDDEN), du = numbers(HIDDEN), y = numbers(OUT), dy = numbers(OUT), target = numbers(OUT);
    one = layer_make(HIDDEN, IN, 0.75, &random), gate = layer_make(HIDDEN, IN, 0.75, &random);
    two = layer_make(OUT, HIDDEN, 0.5, &random);
    for (i = 0; i < IN * BATCH; i++) x[i] = random_normal(&random);
    for (i = 0; i < OUT * BATCH; i++) target[i] = sin(x[i]) * x[i + OUT];
    first = forward(), backward();
    for (i = 0; i < 60; i++) {
        int64_t a = (int64_t)(random_bits(&random) % (uint64_t)one.count), b = a % gate.count, n = a % two.count, c = a % OUT;
        worst = worse(worst, worse(difference(&one.values[a], one.gradient[a]), difference(&one.bias[c], one.bias_gradient[c])));
        worst = worse(worst, worse(difference(&gate.values[b], gate.gradient[b]), difference(&x[b], dx[b])));
        worst = worse(worst, worse(difference(&two.values[n], two.gradient[n]), difference(&two.bias[c], two.bias_gradient[c])));
    }
    printf("blocks of %d x %d; gradients differ from finite differences by %.1e at most\n", BLOCK, BLOCK, worst);
    for (i = 0; i < STEPS; i++) {
        loss = forward(), backward();
        if (i % 10 == 0) printf("  step %2d   loss %.4f\n", i, loss);
        layer_step(&one, 0.1), layer_step(&gate, 0.1), layer_step(&two, 0.1);
    }
    printf("  step %2d   loss %.4f\n", i, loss = forward());
    bsr_destroy(ctx), bsr_destroy(builder); /* the arrays end with the program */
    return verdict(worst < 1e-5 && loss < 0.7 * first);
}
