/* A mixture of experts, routed, run and trained: each token goes to the two experts that a router prefers. Tokens come in
   clusters that want a linear map each; the router settles who learns which. Says where the time goes; checks gradients. */
#define BSRSPARSE_IMPLEMENTATION
#include "moe.h"

enum { CLUSTERS = 8, SLOTS = 2 };

static int64_t tokens, experts, width;
static layer router;
static moe experts_layer, *const l = &experts_layer;
static parameters x; /* tokens, and the gradient for what made them */
static int chosen;   /* experts stay who they are: the loss jumps where that changes, and gradients know nothing of it */
static float *clusters, *score, *d_score, *y, *d_y, *target;

static void draw_batch(uint64_t *random) {
    int64_t t, i, j;
    for (t = 0; t < tokens; t++) {
        const float *map = clusters + draw_below(random, CLUSTERS) * (width + 1) * width, *centre = map + width * width;
        float *in = x.value + t * width;
        for (i = 0; i < width; i++) in[i] = centre[i] + (float)(0.5 * random_normal(random));
        for (i = 0; i < width; i++) {
            double sum = 0;
            for (j = 0; j < width; j++) sum += (double)map[i * width + j] * (double)in[j];
            target[t * width + i] = (float)(sum / sqrt((double)width));
        }
    }
}
/* Each token's two best experts (or those that it has), and the softmax of their scores. */
static void choose(void) {
    int64_t t, e;
    forward(&router, x.value, tokens, 0, BSR_ACT_NONE, score, BSR_F32);
    for (t = 0; t < tokens; t++) {
        const float *s = score + t * experts;
        int32_t *best = l->expert + t * SLOTS;
        if (!chosen) best[0] = s[1] > s[0], best[1] = !best[0];
        for (e = 2; e < experts && !chosen; e++) {
            if (s[e] > s[best[0]]) best[1] = best[0], best[0] = (int32_t)e;
            else if (s[e] > s[best[1]]) best[1] = (int32_t)e;
        }
        l->weight[t * SLOTS + 1] = (float)(1 / (1 + exp((double)(s[best[0]] - s[best[1]]))));
        l->weight[t * SLOTS] = 1 - l->weight[t * SLOTS + 1];
    }
}
static double loss(void) { /* squares of what is wrong, over those of the targets; their gradient in d_y */
    double wrong = 0, all = 0;
    int64_t i;
    l->last = seconds(), choose(), moe_lap(l, ROUTER), moe_forward(l, x.value, y);
    for (i = 0; i < tokens * width; i++) all += (double)target[i] * (double)target[i];
    for (i = 0; i < tokens * width; i++) {
        const double e = (double)y[i] - (double)target[i];
        wrong += e * e, d_y[i] = (float)(2 * e / all);
    }
    return moe_lap(l, LOOPS), wrong / all;
}
static void gradients(void) {
    int64_t t, k, i;
    moe_backward(l, d_y, x.gradient);
    for (t = 0; t < tokens; t++) { /* through the softmax of the two that were chosen */
        const float *p = l->weight + t * SLOTS, *d = l->d_weight + t * SLOTS, mean = p[0] * d[0] + p[1] * d[1];
        for (k = 0; k < experts; k++) d_score[t * experts + k] = 0;
        for (k = 0; k < SLOTS; k++) d_score[t * experts + l->expert[t * SLOTS + k]] = p[k] * (d[k] - mean);
    }
    backward(&router, x.value, d_score, tokens, y);
    for (i = 0; i < x.count; i++) x.gradient[i] += y[i];
    moe_lap(l, ROUTER);
}

int main(int argc, char **argv) {
    static const char *const part[PARTS] = {
        "router", "routing", "gather, scatter", "gated unit", "products", "weights' gradients", "maps", "its own loops"};
    static parameters *const all[] = {&router.p, &experts_layer.w1, &experts_layer.w3, &experts_layer.w2, &x};
    uint64_t random = 1;
    double worst = 0, first = 0, end = 0, sum = 0;
    int64_t hidden, steps, i;
    int32_t most = 0;
    int k;
    tokens = option(argc, argv, "--tokens", 256, 16, 1 << 20, "tokens of a step");
    experts = option(argc, argv, "--experts", 8, 2, 4096, "experts");
    width = option(argc, argv, "--width", 2, 1, 1024, "numbers of a token, in blocks of 16") * 16;
    hidden = option(argc, argv, "--hidden", 2, 1, 1024, "hidden units of an expert, in blocks of 32") * MOE_BLOCK_COLS;
    steps = option(argc, argv, "--steps", 200, 20, 65536, "steps of training");
    options_end(argc, argv), ctx = open_backend(argc, argv, 0, &builder), run.error = &error, print_backend(ctx);
    clusters = parameters_make(CLUSTERS * (width + 1) * width, 1, &random).value;
    router = layer_make(experts, width, 1, 0, &random), x = parameters_make(tokens * width, 1, &random);
    experts_layer = moe_make(tokens, SLOTS, experts, width, hidden, &random);
    score = (float *)allocate(2 * tokens * (experts + 2 * width), sizeof *score), d_score = score + tokens * experts;
    y = d_score + tokens * experts, d_y = y + x.count, target = d_y + x.count;
    draw_batch(&random), first = loss(), gradients();
    for (k = 0, chosen = 1; k < 5; k++) worst = worse(worst, difference(all[k], loss, 3e-4, &random));
    for (i = 0; i < experts; i++) most = l->r.counts[i] > most ? l->r.counts[i] : most;
    printf("gradients differ from finite differences by %.1e at most; the busiest of %d experts has %d of %d slots\n"
           "  the error's squares over those of the targets:\n",
           worst, (int)experts, (int)most, (int)(tokens * SLOTS));
    for (k = 0; k < PARTS; k++) l->spent[k] = 0;
    for (chosen = 0, i = 0; i < steps; i++) {
        draw_batch(&random), end = loss(), gradients();
        if (i % 40 == 0) printf("  step %3d     %.3f\n", (int)i, end);
        for (k = 0; k < 4; k++) adam(all[k], 0.01, (int)i + 1);
        moe_lap(l, LOOPS);
    }
    for (k = 0; k < PARTS; k++) sum += l->spent[k];
    printf("  %.0f tokens/s:", (double)(tokens * steps) / sum);
    for (k = 0; k < PARTS; k++)
        printf("%s%s %.0f %%", k == PARTS / 2 ? ",\n    " : k ? ", " : " ", part[k], 100 * l->spent[k] / sum);
    draw_batch(&random), end = loss();
    printf("\n  new tokens   %.3f\n", end);
    return bsr_destroy(ctx), bsr_destroy(builder), verdict(worst < 0.01 && end < 0.2 * first);
}
