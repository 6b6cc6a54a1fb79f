/* A 3 x 3 layer on a picture, its weights pruned by blocks: bsr_conv_prune, bsr_conv, both gradients; against loops.
   --pictures FOLDER writes before.ppm, dense.pgm and pruned.pgm: the picture, and what the layer makes of it. On the CPU. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"

enum { HIGH = 96, WIDE = 128, CHANNELS = 32, FILTERS = 64, BLOCK = 16, COLS = 9 * CHANNELS, PIXELS = HIGH * WIDE };

static bsr_context *ctx;
static bsr_error error;
static bsr_exec run;
/* A sun over hills: red, green, blue at a place between 0 and 1. */
static void paint(double h, double w, double rgb[3]) {
    const double hill = 0.6 + 0.1 * sin(9 * w) + 0.05 * sin(23 * w), sun = hypot(h - 0.3, 1.3 * (w - 0.7));
    const int what = sun < 0.13 ? 1 : h > hill ? 2 : 0;
    rgb[0] = what == 1 ? 1 : what == 2 ? 0.15 + 0.2 * (h - hill) : 0.4 + 0.3 * h;
    rgb[1] = what == 1 ? 0.9 : what == 2 ? 0.5 - 0.4 * (h - hill) : 0.6 + 0.2 * h;
    rgb[2] = what == 1 ? 0.4 : what == 2 ? 0.2 : 0.95 - 0.3 * h;
}
/* Channels are mixtures of the picture's colours. Filters look for upright edges in half of them, at the others and at most taps
   hardly at all. */
static void fill(float *x, float *filter, uint64_t *random) {
    double mix[CHANNELS][3], y[3];
    int p, c, o, t;
    for (c = 0; c < CHANNELS; c++)
        for (t = 0; t < 3; t++) mix[c][t] = random_uniform(random);
    for (p = 0; p < PIXELS; p++) {
        paint((p / WIDE + 0.5) / HIGH, (p % WIDE + 0.5) / WIDE, y);
        for (c = 0; c < CHANNELS; c++) x[p * CHANNELS + c] = (float)(mix[c][0] * y[0] + mix[c][1] * y[1] + mix[c][2] * y[2]);
    }
    for (o = 0; o < FILTERS; o++)
        for (c = 0; c < CHANNELS; c++)
            for (t = 0; t < 9; t++) /* filters x channels x 3 x 3, as PyTorch has them */
                filter[(o * CHANNELS + c) * 9 + t] =
                    (float)(0.002 * random_normal(random) + (c < BLOCK && t / 3 == 1 ? (t - 4) * random_uniform(random) : 0));
}
/* Some filters' result by loops, from the stored weights, which must be the filter's. */
static double largest_error(const float *x, const float *filter, const bsr_matrix *w, const float *y, double *magnitude) {
    float *full = (float *)allocate(FILTERS * COLS, sizeof *full);
    bsr_dense dense = bsr_dense_row_major(full, BSR_F32, FILTERS, COLS);
    double worst = 0;
    int p, t, c, o;
    REQUIRE(bsr_to_dense(ctx, w, &dense, &run), &error);
    for (o = 0; o < FILTERS; o += 21)
        for (p = 0; p < PIXELS; p++) {
            double sum = 0;
            for (t = 0; t < 9; t++)
                for (c = 0; c < CHANNELS; c++) {
                    const int row = p / WIDE + t / 3 - 1, col = p % WIDE + t % 3 - 1;
                    const float weight = full[o * COLS + t * CHANNELS + c], whole = filter[(o * CHANNELS + c) * 9 + t];
                    if (weight != 0 && weight != whole) worst = HUGE_VAL; /* columns: taps, then channels */
                    if (row >= 0 && row < HIGH && col >= 0 && col < WIDE)
                        sum += (double)weight * (double)x[(row * WIDE + col) * CHANNELS + c];
                }
            worst = worse(worst, fabs(sum - (double)y[p * FILTERS + o])), *magnitude = fmax(*magnitude, fabs(sum));
        }
    release(full);
    return worst;
}
static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    while (n-- > 0) sum += (double)a[n] * (double)b[n];
    return sum;
}
static void write_picture(const char *folder, const char *name, int colours, const float *y, double top) {
    char path[512];
    FILE *f;
    int p, k;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!(f = fopen(path, "wb"))) fprintf(stderr, "%s can't be written\n", path), exit(1);
    fprintf(f, "P%d\n%d %d\n255\n", colours == 3 ? 6 : 5, WIDE, HIGH);
    for (p = 0; p < PIXELS; p++) {
        double rgb[3];
        paint((p / WIDE + 0.5) / HIGH, (p % WIDE + 0.5) / WIDE, rgb);
        for (k = 0; k < colours; k++)
            fputc((int)fmin(255, 255 * (colours == 3 ? rgb[k] : fabs((double)y[p * FILTERS]) / top)), f);
    }
    fclose(f);
}

int main(int argc, char **argv) {
    static const int64_t size[2] = {HIGH, WIDE};
    float *x = (float *)allocate(2 * PIXELS * CHANNELS + 2 * PIXELS * FILTERS, sizeof *x), *dx = x + PIXELS * CHANNELS;
    float *y = dx + PIXELS * CHANNELS, *pruned = y + PIXELS * FILTERS, *filter = (float *)allocate(3 * FILTERS * COLS, sizeof *x);
    int32_t crow[FILTERS / BLOCK + 1], col[FILTERS * COLS / BLOCK / BLOCK];
    bsr_dense X = bsr_dense_image(x, BSR_F32, BSR_CHANNELS_LAST, 2, size, 1, CHANNELS), F, DX = X, Y;
    bsr_context_desc desc = BSR_ZERO;
    bsr_conv_shape shape = BSR_ZERO;
    bsr_matrix w, dw;
    uint64_t random = 1;
    double top = 1e-9, lost = 0, loops, by_x, by_w, by_y;
    int i, step;
    desc.backend = BSR_BACKEND_CPU, run.error = &error, fill(x, filter, &random), DX.data = dx, shape.dims = 2;
    REQUIRE(bsr_create(&desc, &ctx, &error), &error);
    for (i = 0; i < 2; i++) shape.kernel[i] = 3, shape.pad_before[i] = shape.pad_after[i] = 1;
    F = bsr_dense_filter(filter, BSR_F32, BSR_CHANNELS_FIRST, &shape, FILTERS, CHANNELS);
    w = bsr_matrix_make(0, 0, BLOCK, BLOCK, FILTERS * COLS / BLOCK / BLOCK, crow, col, BSR_I32, filter + FILTERS * COLS, BSR_F32);
    for (step = 0; step < 2; step++) { /* all blocks, then a quarter of them */
        w.rows = w.cols = 0, w.nnz = FILTERS * COLS / BLOCK / BLOCK;
        REQUIRE(bsr_conv_prune(ctx, &F, step ? 0.75 : 0, BSR_NORM_L2, &w, &run), &error);
        Y = bsr_dense_image(step ? pruned : y, BSR_F32, BSR_CHANNELS_LAST, 2, size, 1, FILTERS);
        REQUIRE(bsr_conv(ctx, 0, NULL, 1, 0, &shape, &w, &X, NULL, &Y, &run), &error);
    }
    loops = largest_error(x, filter, &w, pruned, &top);
    for (i = 0; i < PIXELS * FILTERS; i++) lost += pow((double)y[i] - (double)pruned[i], 2);
    dw = w, dw.values = filter + 2 * FILTERS * COLS; /* y = conv(w, x): y y = x conv'(w, y) = w (gradient by y, x) */
    REQUIRE(bsr_conv(ctx, 0, NULL, 1, BSR_TRANS_A, &shape, &w, &Y, NULL, &DX, &run), &error);
    REQUIRE(bsr_conv_weight_gradient(ctx, 0, NULL, 1, &shape, &Y, &X, &dw, &run), &error);
    by_y = dot(pruned, pruned, PIXELS * FILTERS), by_x = dot(x, dx, PIXELS * CHANNELS);
    by_w = dot((float *)w.values, (float *)dw.values, w.nnz * BLOCK * BLOCK);
    lost = 100 * sqrt(lost / dot(y, y, PIXELS * FILTERS));
    printf("%lld of %d blocks: %.1f %% of the result are gone; errors %.1e, gradients %.1e and %.1e\n", (long long)w.nnz,
           FILTERS * COLS / BLOCK / BLOCK, lost, loops, by_x / by_y - 1, by_w / by_y - 1);
    if (argc == 3 && !strcmp(argv[1], "--pictures")) {
        write_picture(argv[2], "before.ppm", 3, y, 1), write_picture(argv[2], "dense.pgm", 1, y, top);
        write_picture(argv[2], "pruned.pgm", 1, pruned, top);
    }
    release(x), release(filter), bsr_destroy(ctx);
    return verdict(loops < 1e-5 * (1 + top) && fabs(by_x / by_y - 1) < 1e-4 && fabs(by_w / by_y - 1) < 1e-4);
}
