/* Multiplies a sparse matrix by a dense one, block-sparse, and reports on it: what the matrix is, how it blocks, whether the
   product is right, how fast it is. `spmm --help` lists the options. */
#define BSRSPARSE_IMPLEMENTATION
#include "beam.h"

enum { PICTURE_WIDTH = 72, PICTURE_HEIGHT = 36, SVG_CELLS = 256, SVG_SIZE = 640, DENSE_BLOCK = 64 };

typedef struct options {
    const char *file, *svg;
    int64_t block_rows, block_cols; /* 0: the size that stores least */
    double prune;                   /* negative: no */
    int64_t cols, threads;
    uint64_t seed;
} options;

typedef struct job { /* one matrix and what is made of it */
    const char *name, *what;
    const options *opt;
    const bsr_context *run, *ctx; /* what multiplies; the CPU, which builds */
    entries e;
    bsr_matrix A;
    float *b, *c;    /* dense operand and product */
    uint64_t random; /* state */
} job;

/* ---- small things: complaints, progress, options ---- */

static void complain(const char *subject, const char *message) {
    fprintf(stderr, "spmm: %s: %s\n", subject, message);
    exit(1);
}
static void progress(const char *text) { /* on a terminal only; "" clears the line */
    if (!isatty(fileno(stderr))) return;
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}
static void print_help(void) {
    printf("usage: spmm [options] [matrix.mtx | matrix.smtx]\n"
           "Multiplies the matrix by a dense one and reports. Without a file: the stiffness matrix of an elastic beam\n"
           "and a block-pruned Transformer layer. Values that a file lacks are drawn from a normal distribution.\n"
           "  --block 3 | 4x8   block size (default: of 1 to 64 the one that stores least)\n"
           "  --prune 0.8       keep the blocks with the largest norm, to this sparsity\n"
           "  --cols 128        columns of the dense matrix\n"
           "  --threads 2       threads (default: as many as the machine offers)\n"
           "  --backend cpu     or cuda (default: cuda where the program was compiled for it and there is a GPU)\n"
           "  --svg file.svg    draw the pattern\n"
           "  --seed 1          of the random numbers\n"
           "  --help            this text\n");
}
static int64_t whole_number(const char *option, const char *text, char **end, int64_t low, int64_t high) {
    long long v = strtoll(text, end, 10);
    if (*end == text || v < low || v > high) complain(option, "not a number in the range that makes sense here");
    return (int64_t)v;
}
static options read_options(int argc, char **argv) {
    options o = {NULL, NULL, 0, 0, -1, 128, 0, 1};
    int i;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        char empty[1] = "", *end = empty;
        if (!strcmp(name, "--help")) print_help(), exit(0);
        if (strncmp(name, "--", 2)) {
            if (o.file) complain(name, "one file at a time");
            o.file = name;
            continue;
        }
        if (!strcmp(name, "--block")) {
            o.block_rows = o.block_cols = whole_number(name, value, &end, 1, 4096);
            if (*end == 'x') o.block_cols = whole_number(name, end + 1, &end, 1, 4096);
        } else if (!strcmp(name, "--prune")) {
            o.prune = strtod(value, &end);
            if (end == value || !(o.prune >= 0 && o.prune <= 1)) complain(name, "a sparsity from 0 to 1 is wanted");
        } else if (!strcmp(name, "--cols")) {
            o.cols = whole_number(name, value, &end, 1, 1 << 20);
        } else if (!strcmp(name, "--threads")) {
            o.threads = whole_number(name, value, &end, 1, 4096);
        } else if (!strcmp(name, "--seed")) {
            o.seed = (uint64_t)whole_number(name, value, &end, 0, INT64_MAX);
        } else if (!strcmp(name, "--backend")) {
            if (strcmp(value, "cpu") && strcmp(value, "cuda")) complain(name, "cpu or cuda");
        } else if (!strcmp(name, "--svg")) {
            if (!*value) complain(name, "a file name is wanted");
            o.svg = value;
        } else {
            complain(name, "unknown option; --help lists them");
        }
        if (*end) complain(name, "can't make sense of its value");
        i++;
    }
    return o;
}

/* ---- where matrices come from ---- */

static char *read_text(const char *path, size_t *bytes) {
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
static void require_parsed(const char *path, bsr_status status, const bsr_error *error) {
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
static int ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
}
static void draw_values(job *j) {
    int64_t i;
    for (i = 0; i < j->e.count; i++) j->e.value[i] = random_normal(&j->random);
}
static void read_file(job *j, const char *path) {
    bsr_file_info info;
    bsr_error error;
    size_t bytes;
    char *text;
    int smtx = ends_with(path, ".smtx");
    if (!smtx && !ends_with(path, ".mtx")) complain(path, "neither a .mtx nor a .smtx file");
    progress("reading the file");
    text = read_text(path, &bytes);
    require_parsed(path,
                   smtx ? bsr_parse_smtx(text, bytes, &info, NULL, NULL, 0, &error)
                        : bsr_parse_matrix_market(text, bytes, &info, NULL, NULL, NULL, 0, &error),
                   &error);
    j->e = entries_make(info.rows, info.cols, info.entries);
    j->e.count = info.entries;
    if (smtx) {
        int64_t *crow = (int64_t *)allocate(info.rows + 1, sizeof *crow), r, p;
        require_parsed(path, bsr_parse_smtx(text, bytes, &info, crow, j->e.col, info.entries, &error), &error);
        for (r = 0; r < info.rows; r++)
            for (p = crow[r]; p < crow[r + 1]; p++) j->e.row[p] = r;
        release(crow);
    } else {
        require_parsed(path, bsr_parse_matrix_market(text, bytes, &info, j->e.row, j->e.col, j->e.value, info.entries, &error),
                       &error);
    }
    if (!info.has_values) draw_values(j);
    free(text);
    j->name = path;
    j->what = info.symmetric == 1 ? "symmetric, both halves stored"
              : info.symmetric    ? "skew-symmetric, both halves stored"
              : info.has_values   ? "general"
                                  : "a pattern; values drawn from a normal distribution";
}
static void make_beam(job *j) {
    progress("assembling the beam");
    j->name = "beam", j->what = "stiffness of an elastic beam, 40 x 8 x 8 trilinear hexahedra, clamped at one end";
    j->e = beam_assemble(40, 8, 8);
}
static void make_layer(job *j) {
    int64_t i;
    j->name = "layer", j->what = "weights of a Transformer feed-forward layer, normally distributed";
    j->e = entries_make(2048, 512, 2048 * 512);
    for (i = 0; i < 2048 * 512; i++) entries_add(&j->e, i / 512, i % 512, random_normal(&j->random));
}

/* ---- block sizes ---- */

static bsr_matrix block_pattern(const job *j, int64_t block_rows, int64_t block_cols) { /* counts blocks; holds no array */
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_matrix m = bsr_matrix_make(0, 0, block_rows, block_cols, 0, NULL, NULL, BSR_I32, NULL, BSR_F32);
    exec.error = &error;
    m.crow_indices = allocate((j->e.rows + block_rows - 1) / block_rows + 1, sizeof(int32_t));
    REQUIRE(bsr_from_coo(j->ctx, j->e.rows, j->e.cols, j->e.count, j->e.row, j->e.col, BSR_I64, NULL, BSR_F64, &m, &exec),
            &error);
    release(m.crow_indices);
    m.crow_indices = NULL;
    return m;
}
static double stored_bytes(const bsr_matrix *m) {
    return (double)m->nnz * (4.0 * (double)(m->block_rows * m->block_cols) + 4) + 4 * ((double)(m->rows / m->block_rows) + 1);
}
/* Prints one line per candidate, with what pruning would leave where it is asked for, and settles the block size. */
static void choose_block(job *j, double prune, int64_t *block_rows, int64_t *block_cols) {
    static const int candidates[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};
    bsr_matrix m[10];
    int n = 9, i, best = 0, chosen = -1;
    for (i = 0; i < n; i++) {
        progress("counting blocks");
        m[i] = block_pattern(j, candidates[i], candidates[i]);
        if (stored_bytes(&m[i]) < stored_bytes(&m[best])) best = i;
        if (*block_rows == candidates[i] && *block_cols == candidates[i]) chosen = i;
    }
    if (!*block_rows) chosen = best;
    if (chosen < 0) m[n] = block_pattern(j, *block_rows, *block_cols), chosen = n++;
    *block_rows = m[chosen].block_rows, *block_cols = m[chosen].block_cols;
    progress("");

    if (j->e.repeats == 1) j->e.repeats = 1 + (int)((double)(j->e.count - m[0].nnz) < 1e6 ? j->e.count - m[0].nnz : 1000000);
    printf("\n%s: %s\n", j->name, j->what);
    printf("  %lld x %lld, %lld entries (%.3g %% of all)\n\n", (long long)j->e.rows, (long long)j->e.cols, (long long)m[0].nnz,
           100.0 * (double)m[0].nnz / ((double)j->e.rows * (double)j->e.cols + 1e-300));
    printf("  block size      blocks     fill %%   stored MB%s\n", prune >= 0 ? "   after pruning" : "");
    for (i = 0; i < n; i++) {
        double all = (double)(m[i].rows / m[i].block_rows) * (double)(m[i].cols / m[i].block_cols);
        double elements = (double)m[i].nnz * (double)(m[i].block_rows * m[i].block_cols);
        printf("  %4lld x %-4lld %10lld   %8.1f  %10.2f", (long long)m[i].block_rows, (long long)m[i].block_cols,
               (long long)m[i].nnz, elements > 0 ? 100 * (double)m[0].nnz / elements : 0.0, stored_bytes(&m[i]) / 1e6);
        if (prune >= 0) {
            bsr_matrix kept = m[i];
            if ((double)kept.nnz > (1 - prune) * all) kept.nnz = bsr_kept_blocks((int64_t)all, prune);
            printf("   %10.2f MB", stored_bytes(&kept) / 1e6);
        }
        printf("%s\n", i == chosen ? "   <- used" : i == best ? "   (stores least)" : "");
    }
}

static bsr_matrix pruned(const job *j, const bsr_matrix *A, double sparsity) {
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_matrix m = *A;
    exec.error = &error;
    m.crow_indices = allocate(A->rows / A->block_rows + 1, sizeof(int32_t));
    m.col_indices = allocate(A->nnz, sizeof(int32_t));
    m.values = allocate(A->nnz * A->block_rows * A->block_cols, sizeof(float));
    REQUIRE(bsr_prune(j->ctx, bsr_operand_sparse(A), sparsity, BSR_NORM_L2, &m, &exec), &error);
    return m;
}

/* ---- the pattern as a picture ---- */

/* What share of each of height x width cells is stored. Returns the largest share. */
static double densities(const bsr_matrix *m, int width, int height, double *cell) {
    const int32_t *crow = (const int32_t *)m->crow_indices, *col = (const int32_t *)m->col_indices;
    double dy = (double)m->block_rows * height / (double)m->rows, dx = (double)m->block_cols * width / (double)m->cols, most = 0;
    int64_t r, rows = m->rows / m->block_rows;
    int p, x, y;
    memset(cell, 0, (size_t)width * (size_t)height * sizeof *cell);
    for (r = 0; r < rows; r++)
        for (p = crow[r]; p < crow[r + 1]; p++) {
            double y0 = (double)r * dy, y1 = y0 + dy, x0 = col[p] * dx, x1 = x0 + dx;
            for (y = (int)y0; y < y1 && y < height; y++)
                for (x = (int)x0; x < x1 && x < width; x++)
                    cell[y * width + x] += (fmin(y1, y + 1) - fmax(y0, y)) * (fmin(x1, x + 1) - fmax(x0, x));
        }
    for (x = 0; x < width * height; x++) most = fmax(most, cell[x]);
    return most;
}
static int fitted(double want, double most) { return (int)fmax(1, fmin(floor(want + 0.5), most)); }

static void draw_text(const bsr_matrix *m) {
    static const char *const shade[2][5] = {{" ", ".", ":", "+", "#"}, {" ", "\u2591", "\u2592", "\u2593", "\u2588"}};
    const char *locale = getenv("LC_ALL");
    double aspect = (double)m->rows / (double)m->cols, most;
    int width = fitted(2.0 * (double)(m->cols / m->block_cols), PICTURE_WIDTH), height, x, y, utf8;
    double *cell;
    if (!m->rows || !m->cols) return;
    if (!locale || !*locale) locale = getenv("LC_CTYPE");
    if (!locale || !*locale) locale = getenv("LANG");
    utf8 = locale && (strstr(locale, "UTF-8") || strstr(locale, "utf8") || strstr(locale, "UTF8") || strstr(locale, "utf-8"));
    if (width * aspect / 2 > PICTURE_HEIGHT) width = fitted(2 * PICTURE_HEIGHT / aspect, PICTURE_WIDTH);
    height = fitted(width * aspect / 2, PICTURE_HEIGHT);
    cell = (double *)allocate((int64_t)width * height, sizeof *cell);
    most = densities(m, width, height, cell);
    printf("\n  the pattern; the darkest place is %.3g %% full\n  +", 100 * most);
    for (x = 0; x < width; x++) printf("-");
    for (y = 0; y < height; y++) {
        printf(y ? "\n  |" : "+\n  |");
        for (x = 0; x < width; x++) printf("%s", shade[utf8][most > 0 ? (int)ceil(4 * cell[y * width + x] / most - 1e-9) : 0]);
        printf("|");
    }
    printf("\n  +");
    for (x = 0; x < width; x++) printf("-");
    printf("+\n");
    release(cell);
}
static void draw_svg(const job *j, const char *path) {
    const bsr_matrix *m = &j->A;
    double scale = SVG_SIZE / (double)(m->rows > m->cols ? m->rows : m->cols), most, w, h;
    int width = fitted((double)(m->cols / m->block_cols), SVG_CELLS),
        height = fitted((double)(m->rows / m->block_rows), SVG_CELLS), x, y;
    double *cell = (double *)allocate((int64_t)width * height, sizeof *cell);
    FILE *f = fopen(path, "w");
    if (!f) complain(path, "can't write the file");
    most = densities(m, width, height, cell);
    w = (double)m->cols * scale / width, h = (double)m->rows * scale / height;
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 -10 %.1f %.1f\" font-family=\"sans-serif\" font-size=\"14\">\n"
        "<rect x=\"-10\" y=\"-10\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<rect width=\"%.1f\" height=\"%.1f\" fill=\"#f4f4f0\" stroke=\"#888\"/>\n<g fill=\"#15487a\">\n",
        w * width + 20, h * height + 50, w * width, h * height);
    for (y = 0; y < height; y++)
        for (x = 0; x < width; x++)
            if (cell[y * width + x] > 0)
                fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill-opacity=\"%.2f\"/>\n", w * x, h * y,
                        w, h, 0.15 + 0.85 * cell[y * width + x] / most);
    fprintf(f, "</g>\n<text y=\"%.1f\">%lld x %lld, %lld blocks of %lld x %lld</text>\n</svg>\n", h * height + 24,
            (long long)m->rows, (long long)m->cols, (long long)m->nnz, (long long)m->block_rows, (long long)m->block_cols);
    if (fclose(f)) complain(path, "can't write the file");
    release(cell);
    printf("  picture     %s\n", path);
}

/* ---- the product: right, and how fast ---- */

static int is_stored(const bsr_matrix *m, int64_t block_row, int64_t block_col) { /* columns ascend */
    const int32_t *crow = (const int32_t *)m->crow_indices, *col = (const int32_t *)m->col_indices;
    int32_t low = crow[block_row], high = crow[block_row + 1];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (col[middle] < block_col) low = middle + 1;
        else high = middle;
    }
    return low < crow[block_row + 1] && col[low] == block_col;
}
/* The largest |C - reference| / bound over all elements, from the entries in double precision. The bound is that of
   bsr_dense_addmm, (k + 2) u |A||B| with k products in the row, and u for each rounding or addition of an entry. */
static double worst_error(const job *j) {
    const bsr_matrix *m = &j->A;
    const int32_t *crow = (const int32_t *)m->crow_indices;
    int64_t N = j->opt->cols, i, n;
    double *sum = (double *)allocate(m->rows * N, 2 * sizeof *sum), *size = sum + m->rows * N, worst = 0;
    for (i = 0; i < j->e.count; i++) {
        int64_t r = j->e.row[i], c = j->e.col[i];
        const float *b = j->b + c * N;
        double v = j->e.value[i];
        if (!is_stored(m, r / m->block_rows, c / m->block_cols)) continue;
        for (n = 0; n < N; n++) sum[r * N + n] += v * (double)b[n], size[r * N + n] += fabs(v * (double)b[n]);
    }
    for (i = 0; i < m->rows; i++) {
        int64_t block_row = i / m->block_rows, k = (crow[block_row + 1] - crow[block_row]) * m->block_cols;
        double factor = (double)(k + 2 + j->e.repeats) / 16777216.0;
        for (n = 0; n < N; n++) {
            double bound = factor * size[i * N + n] + 1e-37;
            worst = worse(worst, fabs((double)j->c[i * N + n] - sum[i * N + n]) / bound);
        }
    }
    release(sum);
    return worst;
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
static void multiply(const job *j, const bsr_matrix *A) {
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_dense B = bsr_dense_row_major(j->b, BSR_F32, A->cols, j->opt->cols),
              C = bsr_dense_row_major(j->c, BSR_F32, A->rows, j->opt->cols);
    exec.error = &error;
    REQUIRE(bsr_dense_mm(j->run, 0, A, &B, &C, &exec), &error);
}
/* Median seconds of warm runs: at least five, at most fifty, about half a second in all. */
static double median_time(const job *j, const bsr_matrix *A, int *runs) {
    double t[50], all = 0;
    progress("timing");
    multiply(j, A);
    for (*runs = 0; *runs < 50 && (*runs < 5 || all < 0.5); all += t[(*runs)++]) {
        double start = seconds();
        multiply(j, A);
        t[*runs] = seconds() - start;
    }
    qsort(t, (size_t)*runs, sizeof *t, by_value);
    progress("");
    return fmax(t[*runs / 2], 1e-9);
}
/* The same matrix with every block stored, 64 x 64: what a dense product through this library costs. 0: too large, below 0: so
   small that padding or the call itself would be compared. */
static double dense_time(job *j) {
    const bsr_matrix *A = &j->A;
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    int64_t across = (A->cols + DENSE_BLOCK - 1) / DENSE_BLOCK, blocks = (A->rows + DENSE_BLOCK - 1) / DENSE_BLOCK * across;
    float *b = j->b, *c = j->c, *dense;
    bsr_matrix full = bsr_matrix_make(0, 0, DENSE_BLOCK, DENSE_BLOCK, blocks, NULL, NULL, BSR_I32, NULL, BSR_F32);
    bsr_dense D;
    double t;
    int runs;
    if ((double)A->rows * (double)A->cols > 1.5e8) return 0; /* more than 600 MB, twice */
    if ((double)blocks * (DENSE_BLOCK * DENSE_BLOCK) > 1.25 * (double)A->rows * (double)A->cols) return -1;
    progress("the dense product, for comparison");
    exec.error = &error;
    dense = (float *)allocate(A->rows * A->cols, sizeof *dense);
    D = bsr_dense_row_major(dense, BSR_F32, A->rows, A->cols);
    REQUIRE(bsr_to_dense(j->ctx, A, &D, &exec), &error);
    full.crow_indices = allocate(blocks / (across > 0 ? across : 1) + 1, sizeof(int32_t));
    full.col_indices = allocate(blocks, sizeof(int32_t));
    full.values = allocate(blocks * DENSE_BLOCK * DENSE_BLOCK, sizeof(float));
    REQUIRE(bsr_prune(j->ctx, bsr_operand_dense(&D), 0.0, BSR_NORM_L2, &full, &exec), &error); /* keeps all blocks */
    j->b = (float *)allocate(full.cols * j->opt->cols, sizeof(float)),
    j->c = (float *)allocate(full.rows * j->opt->cols, sizeof(float));
    fill_normal_f32(j->b, full.cols * j->opt->cols, &j->random);
    t = median_time(j, &full, &runs);
    release(j->b), release(j->c), release(dense), matrix_free(&full);
    j->b = b, j->c = c;
    return t < 20e-6 ? -1 : t;
}

/* Blocks, prunes, multiplies, checks, times, prints. Returns 1 where the product is right. */
static int report(job *j, int64_t block_rows, int64_t block_cols, double prune, const char *svg) {
    const options *o = j->opt;
    double worst, t, dense, products;
    int runs;
    choose_block(j, prune, &block_rows, &block_cols);
    progress("building the matrix");
    j->A = matrix_from_entries(j->ctx, &j->e, block_rows, block_cols, BSR_F32);
    if (prune >= 0) {
        bsr_matrix all = j->A;
        j->A = pruned(j, &all, prune);
        matrix_free(&all);
    }
    j->b = (float *)allocate(j->A.cols * o->cols, sizeof(float)), j->c = (float *)allocate(j->A.rows * o->cols, sizeof(float));
    fill_normal_f32(j->b, j->A.cols * o->cols, &j->random);
    multiply(j, &j->A);
    progress("checking against double precision");
    worst = worst_error(j);
    t = median_time(j, &j->A, &runs), dense = dense_time(j);
    products = 2.0 * (double)j->A.nnz * (double)(block_rows * block_cols) * (double)o->cols;
    progress("");
    draw_text(&j->A);
    printf("\n  stored      %lld of %lld blocks of %lld x %lld: %.2f MB in f32\n", (long long)j->A.nnz,
           (long long)(j->A.rows / block_rows * (j->A.cols / block_cols)), (long long)block_rows, (long long)block_cols,
           stored_bytes(&j->A) / 1e6);
    if (j->A.rows != j->e.rows || j->A.cols != j->e.cols)
        printf("  padded      to %lld x %lld, whole blocks\n", (long long)j->A.rows, (long long)j->A.cols);
    printf("  product     %lld x %lld times %lld x %lld, f32\n", (long long)j->A.rows, (long long)j->A.cols, (long long)j->A.cols,
           (long long)o->cols);
    printf("  error       %.2g of the bound (k + %d) 2^-24 |A||B|, against a float64 product: %s\n", worst, 2 + j->e.repeats,
           worst <= 1 ? "right" : "WRONG");
    printf("  time        %.3f ms, median of %d warm runs\n", 1e3 * t, runs);
    printf("  rate        %.1f GFLOP/s on stored elements\n", products / t / 1e9);
    if (dense > 0)
        printf("  speed-up    %.1f over the dense product: %.3f ms with every block stored, 64 x 64\n", dense / t, 1e3 * dense);
    else if (dense < 0) printf("  speed-up    unknown: so small or narrow a matrix has no dense product to compare with\n");
    else printf("  speed-up    unknown: the dense matrix would take %.0f MB\n", 4e-6 * (double)j->A.rows * (double)j->A.cols);
    if (svg && j->A.rows && j->A.cols) draw_svg(j, svg);
    release(j->b), release(j->c), matrix_free(&j->A), entries_free(&j->e);
    return worst <= 1;
}

int main(int argc, char **argv) {
    options o = read_options(argc, argv);
    bsr_context *builder, *ctx = open_backend(argc, argv, o.threads, &builder);
    job j;
    int good = 1;
    memset(&j, 0, sizeof j);
    j.opt = &o, j.run = ctx, j.ctx = builder, j.random = o.seed;
    if (o.file) read_file(&j, o.file);
    print_backend(ctx);
    if (o.file) {
        good = report(&j, o.block_rows, o.block_cols, o.prune, o.svg);
    } else {
        char second[1024] = "";
        if (o.svg)
            snprintf(second, sizeof second, "%.*s-layer.svg", (int)(strlen(o.svg) - (ends_with(o.svg, ".svg") ? 4 : 0)), o.svg);
        make_beam(&j);
        good = report(&j, o.block_rows, o.block_cols, o.prune, o.svg);
        make_layer(&j);
        if (!o.block_rows) o.block_rows = o.block_cols = 16;
        good &= report(&j, o.block_rows, o.block_cols, o.prune >= 0 ? o.prune : 0.8, o.svg ? second : NULL);
    }
    bsr_destroy(ctx), bsr_destroy(builder);
    return good ? 0 : 1;
}
