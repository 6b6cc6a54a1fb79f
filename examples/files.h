/* What spmm.c and cg.c share: matrices from .mtx and .smtx files, as entries. */
#ifndef FILES_H
#define FILES_H
#include "beam.h"

static inline void complain(const char *subject, const char *message) {
    fprintf(stderr, "%s: %s\n", subject, message);
    exit(1);
}
static inline void progress(const char *text) { /* on a terminal only; "" clears the line */
    if (!isatty(fileno(stderr))) return;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}
static inline int ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
}
static inline char *read_text(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    size_t capacity = 1 << 16, got;
    char *text = (char *)malloc(capacity);
    *bytes = 0;
    if (!f) complain(path, "can't open the file");
    while (text && (got = fread(text + *bytes, 1, capacity - *bytes, f)) > 0) {
        *bytes += got;
        if (*bytes == capacity) text = (char *)realloc(text, capacity *= 2);
    }
    if (!text || ferror(f)) complain(path, "can't read the file");
    fclose(f);
    return text;
}
static inline void require_parsed(const char *path, bsr_status status, const bsr_error *error) {
    char line[320];
    const char *text = line, *place;
    if (status == BSR_OK) return;
    bsr_error_string(error, line, sizeof line);
    progress("");
    if ((place = strstr(line, "line ")) != NULL && strstr(place, ": ")) text = strstr(place, ": ") + 2; /* it is in front */
    if (error->index > 0) fprintf(stderr, "%s:%lld: %s\n", path, (long long)error->index, text);
    else fprintf(stderr, "%s: %s\n", path, line);
    exit(1);
}
/* The file's entries; values that it lacks are 0 (info->has_values says so). Ends the program where the file is no good. */
static inline entries read_entries(const char *path, bsr_file_info *info) {
    bsr_error error;
    entries e;
    size_t bytes;
    char *text;
    const int smtx = ends_with(path, ".smtx");
    if (!smtx && !ends_with(path, ".mtx")) complain(path, "neither a .mtx nor a .smtx file");
    progress("reading the file");
    text = read_text(path, &bytes);
    require_parsed(path,
                   smtx ? bsr_parse_smtx(text, bytes, info, NULL, NULL, 0, &error)
                        : bsr_parse_matrix_market(text, bytes, info, NULL, NULL, NULL, 0, &error),
                   &error);
    e = entries_make(info->rows, info->cols, info->entries), e.count = info->entries;
    if (smtx) {
        int64_t *crow = (int64_t *)allocate(info->rows + 1, sizeof *crow), r, p;
        require_parsed(path, bsr_parse_smtx(text, bytes, info, crow, e.col, info->entries, &error), &error);
        for (r = 0; r < info->rows; r++)
            for (p = crow[r]; p < crow[r + 1]; p++) e.row[p] = r;
        release(crow);
    } else {
        require_parsed(path, bsr_parse_matrix_market(text, bytes, info, e.row, e.col, e.value, info->entries, &error), &error);
    }
    free(text);
    return e;
}

/* n numbers of one type as another, by the library: a column of blocks of one number. */
static inline void *converted(const bsr_context *ctx, const void *from, int from_dtype, int to_dtype, int64_t n) {
    int32_t *crow = (int32_t *)allocate(n + 1, sizeof *crow), *col = (int32_t *)allocate(n, sizeof *col);
    void *to = allocate(n, bsr_dtype_size(to_dtype));
    const bsr_matrix m = bsr_matrix_make(n, 1, 1, 1, n, crow, col, BSR_I32, from, from_dtype);
    const bsr_dense out = bsr_dense_row_major(to, to_dtype, n, 1);
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    int64_t i;
    exec.error = &error;
    for (i = 0; i <= n; i++) crow[i] = (int32_t)i;
    REQUIRE(bsr_to_dense(ctx, &m, &out, &exec), &error);
    release(crow), release(col);
    return to;
}

#endif
