/* What spmm writes of a sweep: a page of HTML that needs no other file, JSON, and which block size to take. */
#ifndef REPORT_H
#define REPORT_H
#include "sweep.h"

/* Text inside HTML and inside JSON strings. */
static inline void put_text(FILE *f, const char *text, int json) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (json ? c == '"' || c == '\\' || c < 32 : c == '<' || c == '&' || c == '>' || c == '"')
            fprintf(f, json ? "\\u%04x" : "&#%d;", c);
        else putc(c, f);
    }
}
static inline void machine_name(char *name, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(name, size, "an unnamed processor");
    while (f && fgets(line, sizeof line, f)) {
        char *at = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !at) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(name, size, "%s", at + 2);
        break;
    }
    if (f) fclose(f);
}
/* The fastest that is ours and whole, with so many columns. */
static inline int fastest(const sweep *s, int64_t cols, int peers) {
    int i, best = -1;
    for (i = 0; i < s->count; i++)
        if (s->list[i].cols == cols && s->list[i].prune < 0 && (s->list[i].error < 0) == peers &&
            (best < 0 || s->list[i].seconds < s->list[best].seconds))
            best = i;
    return best;
}
/* Why that one, in a sentence or two. */
static inline void reasons(const sweep *s, const sample *x, char *text, size_t size) {
    const int peer = fastest(s, x->cols, 1);
    const double u = x->bytes / x->seconds / 1e9;
    int i, n;
    n = snprintf(text, size,
                 "Times %lld column%s: %.3g ms. %.0f %% of the stored numbers are entries; %.3g MB pass at %.3g GB/s.",
                 (long long)x->cols, x->cols == 1 ? "" : "s", 1e3 * x->seconds, 100 * x->fill, x->bytes / 1e6, u);
    for (i = 0; i < s->count && n < (int)size; i++) { /* the plainest neighbour: single elements */
        const sample *one = &s->list[i];
        if (one->block_rows * one->block_cols != 1 || one->prune >= 0 || one->cols != x->cols || one == x) continue;
        n += snprintf(text + n, size - (size_t)n,
                      " Single elements, with an index each, are %.3g MB and take %.2g times as long.", one->bytes / 1e6,
                      one->seconds / x->seconds);
    }
    if (peer >= 0 && n < (int)size)
        snprintf(text + n, size - (size_t)n, " The fastest of the others, %s, takes %.2g times as long%s.", s->list[peer].name,
                 s->list[peer].seconds / x->seconds, s->list[peer].seconds < x->seconds ? ": take that one" : "");
}
/* Bars of one number for each sample with these columns: which 0: fill in %, 1: GFLOP/s on entries. */
static inline void put_bars(FILE *f, const sweep *s, int64_t cols, int which, int best) {
    double most = 1e-300, v[256];
    int i, row = 0, rows = 0;
    for (i = 0; i < s->count; i++) {
        const sample *x = &s->list[i];
        const int wanted = x->cols == cols && (which || (x->error >= 0 && x->prune < 0));
        v[i] = !wanted ? -1 : which ? 2e-9 * (double)s->stored * (double)cols / x->seconds : 100 * x->fill;
        if (wanted && x->prune >= 0)
            v[i] = 2e-9 * (double)x->blocks * (double)(x->block_rows * x->block_cols * cols) / x->seconds;
        most = fmax(most, v[i]), rows += wanted;
    }
    fprintf(f, "<svg viewBox=\"0 0 640 %d\" font-size=\"13\" role=\"img\">\n", 22 * rows + 4);
    for (i = 0; i < s->count; i++) {
        const sample *x = &s->list[i];
        const double w = v[i] < 0 ? 0 : 360 * v[i] / most;
        if (v[i] < 0) continue;
        fprintf(f, "<text x=\"176\" y=\"%d\" text-anchor=\"end\">", 22 * row + 16);
        put_text(f, x->name, 0);
        if (x->prune >= 0) fprintf(f, ", pruned %.3g", x->prune);
        fprintf(f, "</text><rect x=\"184\" y=\"%d\" width=\"%.1f\" height=\"16\" rx=\"2\" fill=\"%s\"/>", 22 * row + 3, w,
                x->error < 0 ? "#b3854a" : i == best ? "#0b6e4f" : x->prune >= 0 ? "#9aa9b8" : "#15487a");
        fprintf(f, "<text x=\"%.1f\" y=\"%d\">%.3g</text>\n", w + 190, 22 * row + 16, v[i]);
        row++;
    }
    fprintf(f, "</svg>\n");
}
static inline void put_json(FILE *f, const sweep *s, const char *file, const char *machine, const char *threads) {
    int i;
    fprintf(f, "{\"bsrsparse\": \"%d.%d.%d\", \"file\": \"", BSR_VERSION_MAJOR, BSR_VERSION_MINOR, BSR_VERSION_PATCH);
    put_text(f, file, 1), fprintf(f, "\", \"machine\": \""), put_text(f, machine, 1), fprintf(f, "\", \"backend\": \"");
    put_text(f, threads, 1), fprintf(f, "\", \"dtype\": \"%s\",\n ", bsr_dtype_name(s->dtype));
    fprintf(f, "\"rows\": %lld, ", (long long)s->e->rows);
    fprintf(f, "\"cols\": %lld, \"entries\": %lld,\n \"results\": [", (long long)s->e->cols, (long long)s->stored);
    for (i = 0; i < s->count; i++) {
        const sample *x = &s->list[i];
        fprintf(f, "%s\n  {\"name\": \"", i ? "," : ""), put_text(f, x->name, 1);
        fprintf(f, "\", \"columns\": %lld, \"seconds\": %.6g", (long long)x->cols, x->seconds);
        if (x->error >= 0)
            fprintf(f, ", \"block\": [%lld, %lld], \"blocks\": %lld, \"fill\": %.6g, \"bytes\": %.0f, \"error\": %.3g",
                    (long long)x->block_rows, (long long)x->block_cols, (long long)x->blocks, x->fill, x->bytes,
                    fmin(x->error, 1e99));
        if (x->prune >= 0) fprintf(f, ", \"sparsity\": %.6g", x->prune);
        fprintf(f, "}");
    }
    fprintf(f, "],\n \"recommended\": ");
    if (s->best >= 0) fprintf(f, "\"%s\"}\n", s->list[s->best].name);
    else fprintf(f, "null}\n");
}

#endif
