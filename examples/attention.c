/* Block-sparse attention over BigBird layouts, one layout per head: which blocks of the score matrix exist comes from
   bsr_layout_mask; the scores are never stored. With and without a causal mask, against a plain float64 computation. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

enum { HEADS = 4, LENGTH = 384, WIDTH = 32, BLOCK = 16, BLOCKS = LENGTH / BLOCK };

/* A head's softmax(QK^T / sqrt(WIDTH)) V, row by row; returns the largest difference from `out`. */
static double compare(const float *q, const float *k, const float *v, const uint8_t *mask, int causal, const float *out) {
    double worst = 0, *p = (double *)allocate(LENGTH, sizeof *p);
    int i, j, d;
    for (i = 0; i < LENGTH; i++) {
        double most = -HUGE_VAL, sum = 0;
        for (j = 0; j < LENGTH; j++) {
            for (p[j] = 0, d = 0; d < WIDTH; d++)
                p[j] += (double)q[i * WIDTH + d] * (double)k[j * WIDTH + d] / sqrt((double)WIDTH);
            if (!mask[i / BLOCK * BLOCKS + j / BLOCK] || (causal && j > i)) p[j] = -HUGE_VAL;
            most = fmax(most, p[j]);
        }
        for (j = 0; j < LENGTH; j++) sum += p[j] = exp(p[j] - most);
        for (d = 0; d < WIDTH; d++) {
            double o = 0;
            for (j = 0; j < LENGTH; j++) o += p[j] / sum * (double)v[j * WIDTH + d];
            worst = worse(worst, fabs(o - (double)out[i * WIDTH + d]));
        }
    }
    release(p);
    return worst;
}

int main(int argc, char **argv) {
    bsr_context *builder, *ctx = open_backend(argc, argv, 0, &builder);
    static uint8_t mask[HEADS * BLOCKS * BLOCKS];
    int32_t *crow = (int32_t *)allocate(HEADS * (BLOCKS + 1), sizeof *crow);
    int32_t *col = (int32_t *)allocate(HEADS * BLOCKS * BLOCKS, sizeof *col);
    const int64_t size = HEADS * LENGTH * WIDTH;
    float *q = (float *)allocate(4 * size, sizeof *q), *k = q + size, *v = k + size, *out = v + size;
    bsr_dense Q, K, V, O;
    bsr_matrix M;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    uint64_t random = 3;
    double worst = 0;
    int causal, head, r;

    exec.error = &error, print_backend(ctx);
    fill_normal_f32(q, 3 * size, &random);
    Q = bsr_dense_batched(bsr_dense_row_major(q, BSR_F32, LENGTH, WIDTH), HEADS, LENGTH * WIDTH);
    K = Q, K.data = k, V = Q, V.data = v, O = Q, O.data = out;

    for (causal = 0; causal < 2; causal++) {
        bsr_layout layout = bsr_layout_default(BSR_LAYOUT_BIGBIRD, HEADS, BLOCKS);
        bsr_attention_options options = BSR_ZERO;
        double start;
        layout.different_layout_per_head = 1, layout.num_random_blocks = 2, layout.unidirectional = causal;
        REQUIRE(bsr_layout_mask(builder, &layout, mask, &exec), &error);

        /* heads differ: each has crow_indices of its own into shared col_indices */
        M = bsr_matrix_make(LENGTH, LENGTH, BLOCK, BLOCK, HEADS * BLOCKS * BLOCKS, crow, col, BSR_I32, NULL, BSR_F32);
        M = bsr_matrix_batched(M, HEADS, BLOCKS + 1, 0, 0);
        M.flags = BSR_MATRIX_RAGGED;
        REQUIRE(bsr_from_block_mask(builder, mask, &M, &exec), &error);

        if (causal) options.flags = BSR_ATTENTION_CAUSAL;
        memset(out, 255, (size_t)size * sizeof *out); /* NaN until written */
        start = seconds();
        REQUIRE(bsr_attention(ctx, 0, &Q, &K, &V, &M, &options, &O, NULL, &exec), &error);
        start = seconds() - start;
        for (head = 0; head < HEADS; head++) {
            const int64_t at = (int64_t)head * LENGTH * WIDTH;
            worst = worse(worst, compare(q + at, k + at, v + at, mask + head * BLOCKS * BLOCKS, causal, out + at));
        }
        printf("%s BigBird, %d heads x %d x %d: %lld of %d blocks (%.0f %%), %.2f ms, largest error so far %.1e\n",
               causal ? "causal" : "full", HEADS, LENGTH, WIDTH, (long long)M.nnz, HEADS * BLOCKS * BLOCKS,
               100.0 * (double)M.nnz / (HEADS * BLOCKS * BLOCKS), 1e3 * start, worst);
        for (r = 0; r < BLOCKS && !causal; r++) { /* the first two heads' layouts side by side */
            int c;
            for (head = 0; head < 2; head++)
                for (printf("   "), c = 0; c < BLOCKS; c++) printf(mask[(head * BLOCKS + r) * BLOCKS + c] ? "#" : ".");
            printf("\n");
        }
    }
    release(q), release(crow), release(col), bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(worst < 1e-5);
}
