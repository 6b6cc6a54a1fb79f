/* Generates tokens with a small random Transformer whose keys and values lie in pages. A query sees the first page of its
   sequence and the last ones; pages that none sees any more go back to the pool. Without pages the same bits must come. */
#define BSRSPARSE_IMPLEMENTATION
#include "network.h"

#include "cache.h"

enum { LAYERS = 2, HEADS = 8, KV_HEADS = 2, HEAD = 32, WIDTH = HEADS * HEAD, QKV = WIDTH + 2 * KV_HEADS * HEAD };
enum { HIDDEN = 2 * WIDTH, WORDS = 512, BLOCK = 16 };

static int64_t batch, steps, keys, page, seen;
static layer w_qkv[LAYERS], w_out[LAYERS], w_up[LAYERS], w_down[LAYERS], w_words;
static float *embedding, *slopes, *x, *normal, *mixed, *hidden;
static uint16_t *qkv; /* bf16 */

static bsr_dense heads(const void *data, int dtype, int64_t width) { /* of `batch` rows that start with HEADS x HEAD numbers */
    return bsr_dense_batched(bsr_dense_batched(bsr_dense_row_major(data, dtype, 1, HEAD), HEADS, HEAD), batch, width);
}
static void from_x(const layer *l, int activation, void *y, int dtype) { /* y = act(normalised x W^T) */
    normalise(x, batch, WIDTH, normal), forward(l, normal, batch, 0, activation, y, dtype);
}
/* Attention of the last token of each sequence. A plan pins the bits: with pages it is asked for, without them handed in. */
static void attend(const cache *c, const bsr_matrix *mask, const int32_t *length, bsr_plan *plan) {
    const bsr_dense q = heads(qkv, BSR_BF16, QKV), k = cache_view(c, c->k), v = cache_view(c, c->v);
    const bsr_dense out = heads(mixed, BSR_F32, WIDTH), each = bsr_dense_row_major(slopes, BSR_F32, 1, 1);
    const bsr_dense slope = bsr_dense_batched(each, HEADS, 1);
    const bsr_lengths lengths = {NULL, length, NULL, 0};
    const bsr_pages pages = {c->table, c->entries};
    bsr_attention_options o = BSR_ZERO;
    bsr_exec exec = run;
    o.slopes = &slope, o.lengths = &lengths, o.causal_offset = keys; /* distances of a row's keys matter up to a constant */
    if (c->entries > 1) {
        o.pages = &pages, exec.query = plan;
        REQUIRE(bsr_attention(ctx, 0, &q, &k, &v, mask, &o, &out, NULL, &exec), &error);
    }
    exec.query = NULL, exec.plan = plan, exec.workspace = NULL, exec.workspace_bytes = plan->workspace_bytes;
    if (plan->workspace_bytes) exec.workspace = allocate((int64_t)plan->workspace_bytes, 1); /* sums of parts, on a GPU */
    REQUIRE(bsr_attention(ctx, 0, &q, &k, &v, mask, &o, &out, NULL, &exec), &error);
    if (exec.workspace) release(exec.workspace);
}
/* `steps` tokens of each sequence into tokens[1 ...], and the scores they were drawn by; returns the seconds that it took. */
static double generate(cache *c, bsr_plan *plans, int32_t *tokens, float *scores, double *worst) {
    int32_t *crow = (int32_t *)allocate(batch * (5 + seen), sizeof *crow), *col = crow + 4 * batch;
    int32_t *length = crow + 2 * batch, *end = length + batch; /* keys now, and where the sequence ends */
    uint64_t random = 5;
    const double start = seconds();
    int64_t t, b, i, l, h;
    for (t = 0; t < steps; t++) {
        bsr_matrix mask = bsr_matrix_make(1, keys, 1, page, 0, crow, col, BSR_I32, NULL, BSR_F32); /* a query, pages of keys */
        float *const score = scores + t * batch * WORDS;
        for (b = 0; b < batch; b++) { /* a sequence that is over makes place for another one */
            if (length[b] == end[b]) length[b] = 0, end[b] = (int32_t)(keys - draw_below(&random, keys) / 2);
            for (l = 0; l < LAYERS && c->entries > 1; l++) cache_make_room(&c[l], b, length[b], seen);
            for (crow[2 * b] = (int32_t)mask.nnz, i = 0; i <= length[b] / page; i++)
                if (i == 0 || i > length[b] / page - seen) col[mask.nnz++] = (int32_t)i;
            crow[2 * b + 1] = (int32_t)mask.nnz, length[b]++;
            memcpy(x + b * WIDTH, embedding + tokens[t * batch + b] * WIDTH, WIDTH * sizeof *x);
        }
        mask = bsr_matrix_batched(bsr_matrix_batched(mask, 1, 0, 0, 0), batch, 2, 0, 0); /* one head, each sequence its own */
        mask.flags = BSR_MATRIX_RAGGED;
        for (l = 0; l < LAYERS; l++) {
            from_x(&w_qkv[l], BSR_ACT_NONE, qkv, BSR_BF16);
            for (b = 0; b < batch; b++)
                for (h = 0; h < KV_HEADS; h++) {
                    const uint16_t *k = qkv + b * QKV + WIDTH + h * HEAD;
                    const int64_t at = cache_place(&c[l], b, h, length[b] - 1);
                    memcpy(c[l].k + at, k, HEAD * sizeof *k), memcpy(c[l].v + at, k + KV_HEADS * HEAD, HEAD * sizeof *k);
                }
            attend(&c[l], &mask, length, &plans[t]);
            if (t % 32 == 31) *worst = worse(*worst, cache_compare(&c[l], &mask, length, qkv, HEADS, QKV, slopes, mixed));
            forward(&w_out[l], mixed, batch, 1, BSR_ACT_NONE, x, BSR_F32);
            from_x(&w_up[l], BSR_ACT_RELU, hidden, BSR_F32);
            forward(&w_down[l], hidden, batch, 1, BSR_ACT_NONE, x, BSR_F32);
        }
        from_x(&w_words, BSR_ACT_NONE, score, BSR_F32);
        for (b = 0; b < batch; b++) tokens[(t + 1) * batch + b] = draw(score + b * WORDS, WORDS, &random);
    }
    return release(crow), seconds() - start;
}

int main(int argc, char **argv) {
    uint64_t random = 1;
    double worst = 0;
    static int32_t *tokens[2]; /* the arrays end with the program */
    static float *scores[2];
    static cache c[2][LAYERS];
    static bsr_plan *plans;
    int64_t i, l, same, paged;
    batch = option(argc, argv, "--batch", 8, 1, 4096, "sequences at once");
    steps = option(argc, argv, "--steps", 256, 32, 65536, "tokens of each");
    page = option(argc, argv, "--page", 16, 1, 4096, "keys of a page");
    seen = option(argc, argv, "--seen", 3, 1, 4096, "last pages that a query sees, besides the first");
    keys = option(argc, argv, "--pages", 12, seen + 1, 8192, "pages of the longest sequence") * page;
    options_end(argc, argv), ctx = open_backend(argc, argv, 0, &builder), run.error = &error, print_backend(ctx);
    for (l = 0; l < LAYERS; l++) {
        w_qkv[l] = layer_make(QKV, WIDTH, BLOCK, 0.5, &random), w_out[l] = layer_make(WIDTH, WIDTH, BLOCK, 0.5, &random);
        w_up[l] = layer_make(HIDDEN, WIDTH, BLOCK, 0.5, &random), w_down[l] = layer_make(WIDTH, HIDDEN, BLOCK, 0.5, &random);
    }
    w_words = layer_make(WORDS, WIDTH, BLOCK, 0.5, &random), embedding = parameters_make(WORDS * WIDTH, 1, &random).value;
    x = (float *)allocate(batch * (3 * WIDTH + HIDDEN), sizeof *x), normal = x + batch * WIDTH, mixed = normal + batch * WIDTH;
    hidden = mixed + batch * WIDTH, qkv = (uint16_t *)allocate(batch * QKV, sizeof *qkv);
    slopes = (float *)allocate(HEADS, sizeof *slopes), plans = (bsr_plan *)allocate(steps, sizeof *plans);
    for (i = 0; i < HEADS; i++) slopes[i] = (float)pow(2, -(double)(i + 1));
    for (paged = 1; paged >= 0; paged--) {
        const int64_t size = paged ? page : keys, pages = paged ? batch * (seen + 1) : batch;
        for (l = 0; l < LAYERS; l++) c[paged][l] = cache_make(size, pages, batch, keys / size, KV_HEADS, HEAD, &random);
        tokens[paged] = (int32_t *)allocate((steps + 1) * batch, sizeof(int32_t));
        scores[paged] = (float *)allocate(steps * batch * WORDS, sizeof(float));
        printf("%-13s %6.0f tokens/s, ", paged ? "with pages:" : "without them:",
               (double)(batch * steps) / generate(c[paged], plans, tokens[paged], scores[paged], &worst));
        printf("keys and values in %.0f KB\n", (double)((pages - c[paged]->least) * size * KV_HEADS * HEAD * LAYERS) * 4e-3);
    }
    same = !memcmp(tokens[0], tokens[1], (size_t)((steps + 1) * batch) * sizeof **tokens) &&
           !memcmp(scores[0], scores[1], (size_t)(steps * batch * WORDS) * sizeof **scores);
    for (i = 1; i <= 16 && i <= steps; i++) printf("%d ", (int)tokens[0][i * batch]);
    printf("...\ntokens and scores %s; loops over the keys differ by %.1e\n", same ? "are the same bits" : "DIFFER", worst);
    bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(same && scores[0][0] != scores[0][1] && worst < (on_gpu ? 0.03 : 1e-4));
}
