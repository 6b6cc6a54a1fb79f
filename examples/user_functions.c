/* The program's own epilogue, score and mask functions (user_functions.h), called by the kernels. */
#define BSRSPARSE_USER_FUNCTIONS "examples/user_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

enum { HEADS = 2, LENGTH = 64, WIDTH = 16, BLOCK = 16, BLOCKS = LENGTH / BLOCK };

static bsr_context *ctx, *builder;
static bsr_error error;
static bsr_exec run;
static int32_t *crow, *col;
static float *values, *q, *k, *v, *out;

/* Y = leaky_relu(A X), where A holds all blocks; the largest difference from plain loops. */
static double epilogue_error(void) {
    float *slope = (float *)allocate(1, sizeof *slope);
    bsr_matrix A = bsr_matrix_make(LENGTH, LENGTH, BLOCK, BLOCK, BLOCKS * BLOCKS, crow, col, BSR_I32, values, BSR_F32);
    bsr_dense X = bsr_dense_row_major(q, BSR_F32, LENGTH, WIDTH), Y = bsr_dense_row_major(out, BSR_F32, LENGTH, WIDTH);
    bsr_epilogue end = BSR_ZERO;
    double worst = 0;
    int i, j, n;
    *slope = 0.125f; /* user_data lies where the functions run */
    end.activation = BSR_EPILOGUE_leaky_relu, end.user_data = slope;
    REQUIRE(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &A, &X, &end, &Y, &run), &error);
    for (i = 0; i < LENGTH; i++)
        for (n = 0; n < WIDTH; n++) {
            double want = 0;
            for (j = 0; j < LENGTH; j++)
                want += (double)q[j * WIDTH + n] *
                        (double)values[((i / BLOCK * BLOCKS + j / BLOCK) * BLOCK + i % BLOCK) * BLOCK + j % BLOCK];
            if (want < 0) want *= (double)*slope;
            worst = worse(worst, fabs(want - (double)out[i * WIDTH + n]));
        }
    return worst;
}

/* Attention with alibi and same_document; the largest difference from plain loops. */
static double attention_error(void) {
    int *document = (int *)allocate(LENGTH, sizeof *document), h, i, j, d;
    bsr_matrix M = bsr_matrix_make(LENGTH, LENGTH, BLOCK, BLOCK, BLOCKS * BLOCKS, crow, col, BSR_I32, NULL, BSR_F32);
    bsr_dense Q = bsr_dense_batched(bsr_dense_row_major(q, BSR_F32, LENGTH, WIDTH), HEADS, LENGTH * WIDTH), K = Q, V = Q, O = Q;
    bsr_attention_options options = BSR_ZERO;
    double worst = 0;
    for (i = 0; i < LENGTH; i++) document[i] = i < 20 ? 0 : i < 45 ? 1 : 2;
    K.data = k, V.data = v, O.data = out;
    options.score_function = BSR_SCORE_alibi, options.mask_function = BSR_MASK_same_document, options.user_data = document;
    REQUIRE(bsr_attention(ctx, 0, &Q, &K, &V, &M, &options, &O, NULL, &run), &error);
    for (h = 0; h < HEADS; h++)
        for (i = 0; i < LENGTH; i++) {
            double want[WIDTH] = {0}, sum = 0;
            for (j = 0; j < LENGTH; j++) {
                double s = 0;
                if (document[i] != document[j]) continue;
                for (d = 0; d < WIDTH; d++)
                    s += (double)q[(h * LENGTH + i) * WIDTH + d] * (double)k[(h * LENGTH + j) * WIDTH + d] / sqrt((double)WIDTH);
                s = exp(s - abs(i - j) / (h ? 4.0 : 2.0));
                for (sum += s, d = 0; d < WIDTH; d++) want[d] += s * (double)v[(h * LENGTH + j) * WIDTH + d];
            }
            for (d = 0; d < WIDTH; d++) worst = worse(worst, fabs(want[d] / sum - (double)out[(h * LENGTH + i) * WIDTH + d]));
        }
    return worst;
}

int main(int argc, char **argv) {
    const int64_t rows = (int64_t)HEADS * LENGTH * WIDTH;
    uint64_t random = 11;
    uint8_t all[BLOCKS * BLOCKS];
    bsr_matrix pattern;
    double e1, e2;
    run.error = &error;
    ctx = open_backend(argc, argv, 0, &builder), print_backend(ctx);
    crow = (int32_t *)allocate(BLOCKS + 1, sizeof *crow), col = (int32_t *)allocate(BLOCKS * BLOCKS, sizeof *col);
    values = (float *)allocate(LENGTH * LENGTH + 4 * rows, sizeof *values);
    q = values + LENGTH * LENGTH, k = q + rows, v = k + rows, out = v + rows;
    pattern = bsr_matrix_make(LENGTH, LENGTH, BLOCK, BLOCK, BLOCKS * BLOCKS, crow, col, BSR_I32, NULL, BSR_F32);
    memset(all, 1, sizeof all);
    REQUIRE(bsr_from_block_mask(builder, all, &pattern, &run), &error);
    fill_normal_f32(values, LENGTH * LENGTH + 3 * rows, &random);
    e1 = epilogue_error(), e2 = attention_error();
    printf("own epilogue: error %.1e; own score and mask functions: error %.1e\n", e1, e2);
    bsr_destroy(ctx), bsr_destroy(builder); /* the arrays end with the program */
    return verdict(e1 < 1e-4 && e2 < 1e-5);
}
