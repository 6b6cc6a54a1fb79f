/* A small Transformer block learns to look things up: causal attention over a sliding window and over the first tokens ("sink
   tokens"), forwards and backwards. Some tokens of a sequence ask for the value of the marked token in their window, others for
   that of the first token; without window or sinks there is no telling. Gradients are checked against finite differences. */
#define BSRSPARSE_IMPLEMENTATION
#include "network.h"

enum { HEADS = 4, KV_HEADS = 2, HEAD = 16, WIDTH = HEADS * HEAD, QKV = WIDTH + 2 * KV_HEADS * HEAD, HIDDEN = 2 * WIDTH };
enum { VALUES = 16, BLOCK = 16 };

static int64_t batch, length, window, rows;
static layer to_qkv, to_out, up, down, to_value;
static parameters embedding, sinks; /* what tokens look like, as drawn; a logit for each head, learned */
static float *x, *qkv, *mixed, *lse, *h, *m, *y, *score, *d_qkv, *d_mixed, *d_h, *d_m, *d_y, *d_score;
static int *answer, right;
static bsr_matrix mask;
static uint8_t *kinds;

/* A query sees itself, the window - 1 keys before it, and the first BLOCK. The condition cuts blocks at the edges; those
   of sink tokens are "full", so that it does not reach them. */
static void make_mask(void) {
    const int64_t n = length / BLOCK, most = n * (window / BLOCK + 3);
    int32_t *crow = (int32_t *)allocate(n + 1 + most, sizeof *crow), *col = crow + n + 1;
    int64_t r, c;
    kinds = (uint8_t *)allocate(most, 1);
    mask = bsr_matrix_make(length, length, BLOCK, BLOCK, 0, crow, col, BSR_I32, NULL, BSR_F32);
    for (r = 0; r < n; crow[++r] = (int32_t)mask.nnz)
        for (c = 0; c <= r; c++) {
            const int near = (c + 1) * BLOCK - 1 > r * BLOCK - window; /* the last key, the first query */
            if (c == 0 && r > 0) kinds[mask.nnz] = BSR_BLOCK_FULL;
            if (c == 0 || near) col[mask.nnz++] = (int32_t)c;
        }
    attach_index(&mask);
}
/* Sequences of random values. A mark every `window` tokens, none among the sink tokens: a window has one, or none yet. */
static void draw_batch(uint64_t *random) {
    int64_t b, t, i;
    for (b = 0; b < batch; b++) {
        const int64_t offset = BLOCK + draw_below(random, window);
        int first = 0, marked = 0;
        for (t = 0; t < length; t++) {
            const int value = (int)draw_below(random, VALUES), mark = t >= offset && (t - offset) % window == 0;
            const int ask = t < offset || draw_below(random, 2);
            const float *e = embedding.value, *f = e + VALUES * WIDTH;
            float *to = x + (b * length + t) * WIDTH;
            first = t ? first : value, marked = mark ? value : marked, answer[b * length + t] = ask ? first : marked;
            for (i = 0; i < WIDTH; i++)
                to[i] = e[value * WIDTH + i] + (float)mark * f[i] + (float)ask * f[WIDTH + i] + (float)!t * f[2 * WIDTH + i];
        }
    }
}
/* n heads of `width` numbers, beside each other in the row of each token. */
static bsr_dense heads(const float *data, int64_t row, int64_t n, int64_t width) {
    const bsr_dense one = bsr_dense_strided(data, BSR_F32, length, width, row, 1);
    return bsr_dense_batched(bsr_dense_batched(one, n, width), batch, length * row);
}
static bsr_dense logits(const float *data) { return bsr_dense_batched(bsr_dense_row_major(data, BSR_F32, 1, 1), HEADS, 1); }
static void attend(int back) {
    const int64_t k = WIDTH, v = WIDTH + KV_HEADS * HEAD; /* where they start */
    const bsr_dense q = heads(qkv, QKV, HEADS, HEAD), dq = heads(d_qkv, QKV, HEADS, HEAD);
    const bsr_dense K = heads(qkv + k, QKV, KV_HEADS, HEAD), dk = heads(d_qkv + k, QKV, KV_HEADS, HEAD);
    const bsr_dense V = heads(qkv + v, QKV, KV_HEADS, HEAD), dv = heads(d_qkv + v, QKV, KV_HEADS, HEAD);
    const bsr_dense out = heads(mixed, WIDTH, HEADS, HEAD), d_out = heads(d_mixed, WIDTH, HEADS, HEAD);
    const bsr_dense norm = heads(lse, HEADS, HEADS, 1), sink = logits(sinks.value), d_sink = logits(sinks.gradient);
    bsr_attention_options o = BSR_ZERO;
    bsr_attention_extra extra = BSR_ZERO;
    o.flags = BSR_ATTENTION_CAUSAL | BSR_ATTENTION_WINDOW, o.window_left = window - 1, o.block_kind = kinds, o.sinks = &sink;
    if (back) o.extra = &extra, extra.d_sinks = &d_sink;
    REQUIRE(back ? bsr_attention_backward(ctx, 0, &q, &K, &V, &mask, &o, &out, &norm, &d_out, &dq, &dk, &dv, &run)
                 : bsr_attention(ctx, 0, &q, &K, &V, &mask, &o, &out, &norm, &run), &error);
}
static double loss(void) { /* and its gradient in d_score */
    forward(&to_qkv, x, rows, 0, BSR_ACT_NONE, qkv, BSR_F32), attend(0);
    memcpy(h, x, (size_t)(rows * WIDTH) * sizeof *h), forward(&to_out, mixed, rows, 1, BSR_ACT_NONE, h, BSR_F32);
    forward(&up, h, rows, 0, BSR_ACT_RELU, m, BSR_F32), memcpy(y, h, (size_t)(rows * WIDTH) * sizeof *y);
    forward(&down, m, rows, 1, BSR_ACT_NONE, y, BSR_F32), forward(&to_value, y, rows, 0, BSR_ACT_NONE, score, BSR_F32);
    return cross_entropy(score, answer, rows, VALUES, d_score, &right);
}
static void gradients(void) {
    int64_t i;
    backward(&to_value, y, d_score, rows, d_y), backward(&down, m, d_y, rows, d_m);
    for (i = 0; i < rows * HIDDEN; i++) d_m[i] = m[i] > 0 ? d_m[i] : 0;
    backward(&up, h, d_m, rows, d_h);
    for (i = 0; i < rows * WIDTH; i++) d_h[i] += d_y[i];
    backward(&to_out, mixed, d_h, rows, d_mixed), attend(1), backward(&to_qkv, x, d_qkv, rows, NULL);
}

int main(int argc, char **argv) {
    static parameters *all[] = {&to_qkv.p, &to_out.p, &up.p, &down.p, &to_value.p, &sinks};
    float **const all_rows[] = {&x, &qkv, &mixed, &lse, &h, &m, &y, &score, &d_qkv, &d_mixed, &d_h, &d_m, &d_y, &d_score};
    uint64_t random = 1;
    double worst = 0, first = 0, last = 0, start;
    int64_t steps;
    int i, k;
    batch = option(argc, argv, "--batch", 4, 4, 4096, "sequences of a step");
    length = option(argc, argv, "--length", 8, 3, 4096, "tokens of a sequence, in blocks of 16") * BLOCK;
    window = option(argc, argv, "--window", 24, 2, 4096, "tokens that a query sees, besides the first 16");
    steps = option(argc, argv, "--steps", 120, 20, 65536, "steps of training");
    options_end(argc, argv), ctx = open_backend(argc, argv, 0, &builder), run.error = &error, print_backend(ctx);
    make_mask(), rows = batch * length, answer = (int *)allocate(rows, sizeof *answer);
    for (i = 0; i < 14; i++) *all_rows[i] = (float *)allocate(rows * QKV, sizeof(float)); /* QKV is the widest */
    embedding = parameters_make((VALUES + 3) * WIDTH, 1, &random), sinks = parameters_make(HEADS, 1, &random);
    to_qkv = layer_make(QKV, WIDTH, BLOCK, 0.25, &random), to_out = layer_make(WIDTH, WIDTH, BLOCK, 0.25, &random);
    up = layer_make(HIDDEN, WIDTH, BLOCK, 0.5, &random), down = layer_make(WIDTH, HIDDEN, BLOCK, 0.5, &random);
    to_value = layer_make(VALUES, WIDTH, BLOCK, 0, &random);
    draw_batch(&random), loss(), gradients();
    for (k = 0; k < 6; k++) worst = worse(worst, difference(all[k], loss, 5e-4, &random));
    printf("%lld of %lld blocks of the scores; gradients differ from finite differences by %.1e at most\n", (long long)mask.nnz,
           (long long)(length / BLOCK * (length / BLOCK)), worst);
    for (start = seconds(), i = 0; i < steps; i++) {
        draw_batch(&random), last = loss(), gradients(), first = i ? first : last;
        if (i % 20 == 0) printf("  step %3d   loss %.3f   %3.0f %% right\n", i, last, 100.0 * right / (double)rows);
        for (k = 0; k < 6; k++) adam(all[k], 0.01, i + 1);
    }
    start = (double)(rows * steps) / (seconds() - start), draw_batch(&random), last = loss();
    printf("  on new sequences %.3f   %3.0f %% right; %.0f tokens/s\n", last, 100.0 * right / (double)rows, start);
    return bsr_destroy(ctx), bsr_destroy(builder), verdict(worst < 0.01 && last < 0.03 * first);
}
