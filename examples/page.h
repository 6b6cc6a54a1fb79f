/* The page itself: sections of spmm's HTML report. */
#ifndef PAGE_H
#define PAGE_H
#include "report.h"

static inline void page_begin(FILE *f, const sweep *s, const char *file, const char *machine, const char *threads) {
    fprintf(f, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
               "content=\"width=device-width\"><title>bsrsparse: ");
    put_text(f, file, 0);
    fprintf(f, "</title>\n<style>"
               "body{font:16px/1.5 sans-serif;color:#222;background:#fff;max-width:60em;margin:2em auto;padding:0 1em}"
               "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.6em}table{border-collapse:collapse;font-size:.9em}"
               "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
               "td:first-child,th:first-child{text-align:left}"
               ".best{background:#e3f2ec}.wrong{background:#f8d7da}svg{max-width:100%%;height:auto}"
               ".take{background:#e3f2ec;border-left:4px solid #0b6e4f;padding:.6em 1em}</style></head><body>\n<h1>");
    put_text(f, file, 0);
    fprintf(f, "</h1>\n<p>%lld &times; %lld, %lld entries (%.3g %% of all), multiplied in %s by bsrsparse %d.%d.%d on ",
            (long long)s->e->rows, (long long)s->e->cols, (long long)s->stored,
            100.0 * (double)s->stored / ((double)s->e->rows * (double)s->e->cols + 1e-300), bsr_dtype_name(s->dtype),
            BSR_VERSION_MAJOR, BSR_VERSION_MINOR, BSR_VERSION_PATCH);
    put_text(f, machine, 0), fprintf(f, " (");
    put_text(f, threads, 0), fprintf(f, ").</p>\n");
}
static inline void page_table(FILE *f, const sweep *s) {
    int i;
    fprintf(f, "<h2>Every case</h2>\n<table><tr><th>what</th><th>columns</th><th>sparsity</th><th>blocks</th><th>fill %%</th>"
               "<th>MB</th><th>ms</th><th>GB/s</th><th>error / bound</th></tr>\n");
    for (i = 0; i < s->count; i++) {
        const sample *x = &s->list[i];
        fprintf(f, "<tr%s><td>", x->error > 1 ? " class=\"wrong\"" : i == s->best ? " class=\"best\"" : "");
        put_text(f, x->name, 0), fprintf(f, "</td><td>%lld</td><td>", (long long)x->cols);
        if (x->prune >= 0) fprintf(f, "%.3g", x->prune);
        if (x->error < 0)
            fprintf(f, "</td><td></td><td></td><td></td><td>%.4g</td><td></td><td></td></tr>\n", 1e3 * x->seconds);
        else
            fprintf(f, "</td><td>%lld</td><td>%.1f</td><td>%.2f</td><td>%.4g</td><td>%.3g</td><td>%.2g</td></tr>\n",
                    (long long)x->blocks, 100 * x->fill, x->bytes / 1e6, 1e3 * x->seconds, x->bytes / x->seconds / 1e9, x->error);
    }
    fprintf(f, "</table>\n<p>Times are medians of warm calls. Fill: the share of stored numbers that are entries. GB/s: the "
               "matrix alone. Errors are held against a product in double precision, as shares of the bound "
               "(k + 2) u |A||B|.</p>\n");
}
/* Everything; picture writes the pattern's drawing. */
static inline void write_page(const sweep *s, const char *path, const char *file, const char *threads, const int64_t *cols, int n,
                              void (*picture)(FILE *f, const void *user), const void *user) {
    char machine[256], text[900];
    FILE *f = fopen(path, "w");
    int i;
    if (!f) complain(path, "can't write the file");
    machine_name(machine, sizeof machine);
    page_begin(f, s, file, machine, threads);
    for (i = 0; i < n; i++) {
        const int best = fastest(s, cols[i], 0);
        if (best < 0) continue;
        reasons(s, &s->list[best], text, sizeof text);
        fprintf(f, "<p class=\"take\"><b>Take blocks of %s.</b> ", s->list[best].name);
        put_text(f, text, 0), fprintf(f, "</p>\n");
    }
    fprintf(f, "<h2>The pattern</h2>\n");
    picture(f, user);
    fprintf(f, "<h2>Fill by block size, %%</h2>\n");
    put_bars(f, s, cols[0], 0, s->best);
    for (i = 0; i < n; i++) {
        fprintf(f, "<h2>Speed with %lld column%s, GFLOP/s on entries (pruned: on what is left)</h2>\n", (long long)cols[i],
                cols[i] == 1 ? "" : "s");
        put_bars(f, s, cols[i], 1, fastest(s, cols[i], 0));
    }
    page_table(f, s);
    fprintf(f, "</body></html>\n");
    if (fclose(f)) complain(path, "can't write the file");
}

#endif
