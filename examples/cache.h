/* What decode has besides its model: a cache of keys and values in pages, of bf16; attention by loops; a draw. */
#ifndef CACHE_H
#define CACHE_H
#include "example.h"

/* Key j of sequence b is in page table[b * entries + j / size]; a page holds [heads][size][width] numbers. */
typedef struct cache {
    int64_t size, pages, sequences, entries; /* keys of a page, pages, entries of a sequence */
    int64_t heads, width, spare, least;      /* pages that nobody has; the fewest that there were */
    int32_t *table, *unused;
    uint16_t *k, *v;
} cache;

/* Every number is NaN until it is written: what is not attended is not read. */
static inline void cache_wipe(cache *c, int64_t first, int64_t count) {
    const int64_t n = c->heads * c->size * c->width;
    memset(c->k + first * n, 255, 2 * (size_t)(count * n)), memset(c->v + first * n, 255, 2 * (size_t)(count * n));
}
static inline cache cache_make(int64_t size, int64_t pages, int64_t sequences, int64_t entries, int64_t heads, int64_t width,
                               uint64_t *random) {
    cache c;
    int64_t i;
    c.size = size, c.pages = pages, c.sequences = sequences, c.entries = entries;
    c.spare = c.least = entries > 1 ? pages : 0; /* one page each: sequence i has row i of the pool, as it is without pages */
    c.heads = heads, c.width = width;
    c.table = (int32_t *)allocate(sequences * entries, sizeof(int32_t)), c.unused = (int32_t *)allocate(pages, sizeof(int32_t));
    c.k = (uint16_t *)allocate(2 * pages * heads * size * width, 2), c.v = c.k + pages * heads * size * width;
    for (i = 0; i < sequences * entries; i++) c.table[i] = entries > 1 ? -1 : (int32_t)i;
    for (i = 0; i < pages; i++) { /* shuffled, to show that any order will do */
        const int64_t other = draw_below(random, i + 1);
        c.unused[i] = c.unused[other], c.unused[other] = (int32_t)i;
    }
    return cache_wipe(&c, 0, pages), c;
}
static inline void cache_take(cache *c, int64_t sequence, int64_t entry) {
    if (!c->spare) fprintf(stderr, "no page is left\n"), exit(1);
    c->table[sequence * c->entries + entry] = c->unused[--c->spare];
    if (c->spare < c->least) c->least = c->spare;
}
static inline void cache_give_back(cache *c, int64_t sequence, int64_t entry) {
    int32_t *at = &c->table[sequence * c->entries + entry];
    if (*at >= 0) cache_wipe(c, *at, 1), c->unused[c->spare++] = *at, *at = -1;
}
/* Where the numbers of a key start. */
static inline int64_t cache_place(const cache *c, int64_t sequence, int64_t head, int64_t key) {
    return ((c->table[sequence * c->entries + key / c->size] * c->heads + head) * c->size + key % c->size) * c->width;
}
static inline bsr_dense cache_view(const cache *c, const uint16_t *data) { /* pages, heads; then a page's keys as rows */
    const bsr_dense page = bsr_dense_row_major(data, BSR_BF16, c->size, c->width);
    return bsr_dense_batched(bsr_dense_batched(page, c->heads, c->size * c->width), c->pages, c->heads * c->size * c->width);
}
/* Room for key n of a sequence, of whose pages a query sees the first and the last `seen`; the others go back. */
static inline void cache_make_room(cache *c, int64_t sequence, int64_t n, int64_t seen) {
    int64_t i;
    for (i = 0; n == 0 && i < c->entries; i++) cache_give_back(c, sequence, i); /* those of the sequence before */
    if (n / c->size > seen && n % c->size == 0) cache_give_back(c, sequence, n / c->size - seen);
    if (n % c->size == 0) cache_take(c, sequence, n / c->size);
}

static inline double bf16_value(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    return memcpy(&f, &bits, 4), (double)f;
}
/* One query of each sequence: the largest difference of `out` from attention by loops over the keys of mask's blocks. Rows of
   `out` and q (these are `row` apart) have `heads` heads. */
static inline double cache_compare(const cache *c, const bsr_matrix *mask, const int32_t *length, const uint16_t *q,
                                   int64_t heads, int64_t row, const float *slopes, const float *out) {
    const int32_t *crow = (const int32_t *)mask->crow_indices, *col = (const int32_t *)mask->col_indices;
    double worst = 0, *o = (double *)calloc((size_t)c->width, sizeof *o);
    int64_t b, h, p, j, d;
    for (b = 0; b < c->sequences; b++)
        for (h = 0; h < heads && o; h++) {
            double sum = 0;
            for (d = 0; d < c->width; d++) o[d] = 0;
            for (p = crow[2 * b]; p < crow[2 * b + 1]; p++)
                for (j = col[p] * mask->block_cols; j < (col[p] + 1) * mask->block_cols && j < length[b]; j++) {
                    const int64_t at = cache_place(c, b, h * c->heads / heads, j);
                    double s = 0;
                    for (d = 0; d < c->width; d++) s += bf16_value(q[b * row + h * c->width + d]) * bf16_value(c->k[at + d]);
                    s = exp(s / sqrt((double)c->width) - (double)slopes[h] * (double)(length[b] - 1 - j)), sum += s;
                    for (d = 0; d < c->width; d++) o[d] += s * bf16_value(c->v[at + d]);
                }
            for (d = 0; d < c->width; d++) worst = worse(worst, fabs(o[d] / sum - (double)out[(b * heads + h) * c->width + d]));
        }
    return free(o), worst;
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
