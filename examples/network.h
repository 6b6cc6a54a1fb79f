/* What decode, attention_train and moe share: block-sparse layers on rows of numbers, their gradients, Adam. */
#ifndef NETWORK_H
#define NETWORK_H
#include "example.h"

static bsr_context *ctx, *builder;
static bsr_error error;
static bsr_exec run;

typedef struct parameters {
    float *value, *gradient, *first, *second; /* of the last two: Adam's moments */
    int64_t count;
} parameters;
static inline parameters parameters_make(int64_t count, double deviation, uint64_t *random) {
    parameters p;
    int64_t i;
    p.value = (float *)allocate(4 * count, sizeof(float)), p.count = count;
    p.gradient = p.value + count, p.first = p.gradient + count, p.second = p.first + count;
    for (i = 0; i < count; i++) p.value[i] = (float)(deviation * random_normal(random));
    return p;
}
/* Step t, from 1, of Adam (Kingma and Ba 2015). */
static inline void adam(parameters *p, double rate, int t) {
    const double one = rate / (1 - pow(0.9, t)), two = 1 / (1 - pow(0.99, t));
    int64_t i;
    for (i = 0; i < p->count; i++) {
        const double g = (double)p->gradient[i], m = 0.9 * (double)p->first[i] + 0.1 * g;
        const double v = 0.99 * (double)p->second[i] + 0.01 * g * g;
        p->first[i] = (float)m, p->second[i] = (float)v;
        p->value[i] -= (float)(one * m / (sqrt(v * two) + 1e-8));
    }
}

typedef struct layer {
    bsr_matrix w, dw; /* one pattern, two sets of values */
    parameters p;
} layer;
static inline layer layer_make(int64_t rows, int64_t cols, int64_t block, double sparsity, uint64_t *random) {
    const int64_t blocks = rows / block * (cols / block);
    void *crow = allocate(rows / block + 1, sizeof(int32_t)), *col = allocate(blocks, sizeof(int32_t));
    uint64_t bytes;
    char *index;
    layer l;
    l.w = bsr_matrix_make(rows, cols, block, block, blocks, crow, col, BSR_I32, NULL, BSR_F32);
    REQUIRE(bsr_random_pattern(builder, random_bits(random), sparsity, &l.w, &run), &error); /* sets nnz */
    l.p = parameters_make(l.w.nnz * block * block, 1 / sqrt((1 - sparsity) * (double)cols), random);
    REQUIRE(bsr_transposed_index_size(builder, &l.w, &bytes, &run), &error);
    index = (char *)allocate((int64_t)bytes + 64, 1), index += 64 - (uintptr_t)index % 64;
    REQUIRE(bsr_build_transposed_index(builder, &l.w, index, bytes, &run), &error);
    l.w.transposed_index = index, l.dw = l.w, l.w.values = l.p.value, l.dw.values = l.p.gradient;
    return l;
}
/* Columns of a product as rows in memory: what belongs to one token stands together. */
static inline bsr_dense rows_of(const void *data, int dtype, int64_t n, int64_t width) {
    return bsr_dense_transposed(bsr_dense_row_major(data, dtype, n, width));
}
/* y = act(x W^T) + beta y; n rows. y may be of another type than f32. */
static inline void forward(const layer *l, const float *x, int64_t n, double beta, int activation, void *y, int dtype) {
    const bsr_dense in = rows_of(x, BSR_F32, n, l->w.cols), out = rows_of(y, dtype, n, l->w.rows);
    bsr_epilogue end = BSR_ZERO;
    end.activation = activation;
    REQUIRE(bsr_dense_addmm(ctx, beta, beta != 0 ? &out : NULL, 1, 0, &l->w, &in, &end, &out, &run), &error);
}
/* From dy: the gradient of the weights, and dx where it is wanted. */
static inline void backward(layer *l, const float *x, const float *dy, int64_t n, float *dx) {
    const bsr_dense in = rows_of(x, BSR_F32, n, l->w.cols), d_out = rows_of(dy, BSR_F32, n, l->w.rows);
    const bsr_dense d_in = rows_of(dx, BSR_F32, n, l->w.cols);
    REQUIRE(bsr_matmul_backward(ctx, 0, bsr_operand_sparse(&l->w), bsr_operand_dense(&in), bsr_operand_dense(&d_out),
                                bsr_operand_sparse(&l->dw), bsr_operand_dense(dx ? &d_in : NULL), &run),
            &error);
}
static inline void normalise(const float *x, int64_t n, int64_t width, float *y) { /* each row over its root mean square */
    int64_t r, i;
    for (r = 0; r < n; r++, x += width, y += width) {
        double sum = 1e-6;
        for (i = 0; i < width; i++) sum += (double)x[i] * (double)x[i] / (double)width;
        for (i = 0; i < width; i++) y[i] = (float)((double)x[i] / sqrt(sum));
    }
}
/* A number below n, drawn with probabilities that go with exp(score). */
static inline int32_t draw(const float *score, int64_t n, uint64_t *random) {
    double most = -HUGE_VAL;
    int64_t i, best = 0;
    for (i = 0; i < n; i++) {
        const double s = (double)score[i] - log(-log(random_uniform(random)));
        if (s > most) most = s, best = i;
    }
    return (int32_t)best;
}

#endif
