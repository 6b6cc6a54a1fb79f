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

/* The transposed index: where the blocks of a column are. Gradients go by it. */
static inline void attach_index(bsr_matrix *m) {
    uint64_t bytes;
    char *index;
    REQUIRE(bsr_transposed_index_size(builder, m, &bytes, &run), &error);
    index = (char *)allocate((int64_t)bytes + 64, 1), index += 64 - (uintptr_t)index % 64;
    REQUIRE(bsr_build_transposed_index(builder, m, index, bytes, &run), &error);
    m->transposed_index = index;
}

typedef struct layer {
    bsr_matrix w, dw; /* one pattern, two sets of values */
    parameters p;
} layer;
static inline layer layer_make(int64_t rows, int64_t cols, int64_t block, double sparsity, uint64_t *random) {
    const int64_t blocks = rows / block * (cols / block);
    void *crow = allocate(rows / block + 1, sizeof(int32_t)), *col = allocate(blocks, sizeof(int32_t));
    layer l;
    l.w = bsr_matrix_make(rows, cols, block, block, blocks, crow, col, BSR_I32, NULL, BSR_F32);
    REQUIRE(bsr_random_pattern(builder, random_bits(random), sparsity, &l.w, &run), &error); /* sets nnz */
    l.p = parameters_make(l.w.nnz * block * block, 1 / sqrt((1 - sparsity) * (double)cols), random);
    attach_index(&l.w), l.dw = l.w, l.w.values = l.p.value, l.dw.values = l.p.gradient;
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
/* Mean cross entropy of `n` rows of scores, whose right classes are answer[n], and its gradient; *right: how many are largest. */
static inline double cross_entropy(const float *score, const int *answer, int64_t n, int64_t classes, float *gradient,
                                   int *right) {
    double loss = 0;
    int64_t r, i;
    for (*right = 0, r = 0; r < n; r++, score += classes, gradient += classes) {
        double sum = 0;
        int64_t best = 0;
        for (i = 1; i < classes; i++) best = score[i] > score[best] ? i : best;
        for (i = 0; i < classes; i++) sum += exp((double)(score[i] - score[best]));
        for (i = 0; i < classes; i++)
            gradient[i] = (float)((exp((double)(score[i] - score[best])) / sum - (i == answer[r])) / (double)n);
        loss += (log(sum) - (double)(score[answer[r]] - score[best])) / (double)n, *right += best == answer[r];
    }
    return loss;
}
/* The gradient against (loss(p + e d) - loss(p - e d)) / 2e for a direction d, half random, half the gradient's: the relative
   difference. */
static inline double difference(parameters *p, double (*loss)(void), double e, uint64_t *random) {
    float *d = (float *)allocate(2 * p->count, sizeof *d), *keep = d + p->count;
    double size = 0, slope = 0, found = 0;
    int64_t i;
    int side;
    memcpy(keep, p->value, (size_t)p->count * sizeof *keep);
    for (i = 0; i < p->count; i++) size += (double)p->gradient[i] * (double)p->gradient[i] / (double)p->count;
    for (i = 0; i < p->count; i++) {
        d[i] = (float)((double)p->gradient[i] + sqrt(size) * random_normal(random));
        slope += (double)d[i] * (double)p->gradient[i];
    }
    e /= sqrt(2 * size);
    for (side = -1; side <= 1; side += 2) {
        for (i = 0; i < p->count; i++) p->value[i] = (float)((double)keep[i] + side * e * (double)d[i]);
        found += side * loss() / (2 * e);
    }
    memcpy(p->value, keep, (size_t)p->count * sizeof *keep), release(d);
    return fabs(found / slope - 1);
}

#endif
