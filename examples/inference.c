/* Weights in a safetensors file: three block-sparse layers with a bias each are written; then an inference loop runs over the
   file, which is mapped, not read: matrices and biases are used where it has them. The first step is checked against float64. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

#ifndef _WIN32
#include <sys/mman.h>
#endif

enum { LAYERS = 3, TOKENS = 8, STEPS = 100, WIDTH = 512, BLOCK = 16, BLOCKS = WIDTH / BLOCK, KEPT = BLOCKS * BLOCKS / 4 };
static const char *const weight_name[] = {"0.weight", "1.weight", "2.weight"}, *const bias_name[] = {"0.bias", "1.bias",
                                                                                                     "2.bias"};

/* The layers as a file: its size first, then its bytes. */
static FILE *make_file(const bsr_context *ctx) {
    static float values[LAYERS][KEPT * BLOCK * BLOCK], bias[LAYERS][WIDTH];
    static int32_t crow[LAYERS][BLOCKS + 1], col[LAYERS][KEPT];
    bsr_named items[2 * LAYERS];
    bsr_matrix w[LAYERS];
    bsr_dense b[LAYERS];
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    uint64_t random = 1, bytes;
    void *buffer;
    FILE *f = tmpfile();
    int i;
    exec.error = &error;
    for (i = 0; i < LAYERS; i++) {
        w[i] = bsr_matrix_make(WIDTH, WIDTH, BLOCK, BLOCK, KEPT, crow[i], col[i], BSR_I32, values[i], BSR_F32);
        REQUIRE(bsr_random_pattern(ctx, (uint64_t)i, .75, &w[i], &exec), &error);
        fill_normal_f32(values[i], KEPT * BLOCK * BLOCK, &random), fill_normal_f32(bias[i], WIDTH, &random);
        b[i] = bsr_dense_row_major(bias[i], BSR_F32, WIDTH, 1);
        items[2 * i].name = weight_name[i], items[2 * i].value = bsr_operand_sparse(&w[i]);
        items[2 * i + 1].name = bias_name[i], items[2 * i + 1].value = bsr_operand_dense(&b[i]);
    }
    REQUIRE(bsr_write_safetensors(items, 2 * LAYERS, NULL, 0, &bytes, &error), &error);
    buffer = malloc((size_t)bytes);
    if (!buffer || !f) fprintf(stderr, "no memory, or no temporary file\n"), exit(1);
    REQUIRE(bsr_write_safetensors(items, 2 * LAYERS, buffer, bytes, &bytes, &error), &error);
    if (fwrite(buffer, 1, (size_t)bytes, f) != (size_t)bytes || fflush(f)) fprintf(stderr, "can't write the file\n"), exit(1);
    free(buffer);
    return f;
}
/* The whole file in memory: its pages come when they are used, and are shared with others who run the same model. */
static const void *map_file(FILE *f, size_t *bytes) {
    const long end = fseek(f, 0, SEEK_END) ? 0 : ftell(f);
    void *p = NULL;
    *bytes = end > 0 ? (size_t)end : 0, rewind(f);
#ifndef _WIN32
    p = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    if (p == MAP_FAILED) p = NULL;
#else
    p = malloc(*bytes);
    if (p && fread(p, 1, *bytes, f) != *bytes) p = NULL;
#endif
    if (!p) fprintf(stderr, "can't map the file\n"), exit(1);
    return p;
}
/* Where the backend can use them: on the CPU where they are. */
static void *placed(void *data, int64_t count, size_t size) {
    return on_gpu ? memcpy(allocate(count, size), data, (size_t)count * size) : data;
}
/* One element of act(W x + bias), from the arrays as they stand. */
static double plain(const bsr_matrix *w, const bsr_dense *bias, const float *x, int64_t row, int token) {
    const int32_t *crow = (const int32_t *)w->crow_indices, *col = (const int32_t *)w->col_indices;
    const float *values = (const float *)w->values;
    const int64_t br = w->block_rows, bc = w->block_cols;
    double sum = (double)((const float *)bias->data)[row];
    int64_t p, j;
    for (p = crow[row / br]; p < crow[row / br + 1]; p++)
        for (j = 0; j < bc; j++)
            sum += (double)values[(p * br + row % br) * bc + j] * (double)x[(col[p] * bc + j) * TOKENS + token];
    return sum > 0 ? sum : 0;
}

int main(int argc, char **argv) {
    bsr_context *builder, *ctx = open_backend(argc, argv, 0, &builder);
    size_t bytes;
    const void *file = map_file(make_file(builder), &bytes);
    bsr_matrix w[LAYERS], host[LAYERS];
    bsr_dense bias[LAYERS], x[2];
    bsr_safetensors weights;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    float *memory = (float *)allocate(2 * WIDTH * TOKENS, sizeof *memory), before[WIDTH * TOKENS];
    uint64_t random = 2;
    double worst = 0, start = 0;
    int step, k, row, t;

    exec.error = &error, print_backend(ctx);
    REQUIRE(bsr_parse_safetensors(file, bytes, &weights, &error), &error);
    for (k = 0; k < LAYERS; k++) { /* nothing is copied: matrix and bias point into the file */
        REQUIRE(bsr_safetensors_matrix(&weights, weight_name[k], &w[k], &error), &error);
        REQUIRE(bsr_safetensors_dense(&weights, bias_name[k], &bias[k], &error), &error);
        host[k] = w[k];
        w[k].crow_indices = placed(w[k].crow_indices, BLOCKS + 1, 4), w[k].col_indices = placed(w[k].col_indices, w[k].nnz, 4);
        w[k].values = placed(w[k].values, w[k].nnz * BLOCK * BLOCK, 4), bias[k].data = placed(bias[k].data, WIDTH, 4);
    }
    x[0] = bsr_dense_row_major(memory, BSR_F32, WIDTH, TOKENS), x[1] = x[0], x[1].data = memory + WIDTH * TOKENS;
    for (step = 0; step < STEPS; step++) {
        if (step == 1) start = seconds(); /* the first step has the pages of the file read */
        fill_normal_f32((float *)x[0].data, WIDTH * TOKENS, &random);
        for (k = 0; k < LAYERS; k++) {
            bsr_epilogue epilogue = BSR_ZERO;
            epilogue.bias = &bias[k], epilogue.activation = BSR_ACT_RELU;
            if (!step) memcpy(before, x[k % 2].data, sizeof before);
            REQUIRE(bsr_dense_addmm(ctx, 0, NULL, 1, 0, &w[k], &x[k % 2], &epilogue, &x[1 - k % 2], &exec), &error);
            for (row = 0; step == 0 && row < WIDTH; row++)
                for (t = 0; t < TOKENS; t++) {
                    const double want = plain(&host[k], &bias[k], before, row, t);
                    worst = worse(worst, fabs(want - (double)((float *)x[1 - k % 2].data)[row * TOKENS + t]) / (1 + fabs(want)));
                }
        }
    }
    printf("%d layers from a mapped file of %.1f MB, %d tokens a step: %.0f us a step, error %.1e\n", LAYERS, (double)bytes / 1e6,
           TOKENS, 1e6 * (seconds() - start) / (STEPS - 1), worst);
    release(memory), bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(worst < 1e-3);
}
