/* Multiplies a sparse matrix by a dense one, block-sparse, and reports on it: what the matrix is, how it blocks, whether the
   product is right, how fast it is. `spmm --help` lists the options. */
#define BSRSPARSE_IMPLEMENTATION
#include "page.h"

enum { PICTURE_WIDTH = 72, PICTURE_HEIGHT = 36, SVG_CELLS = 256, SVG_SIZE = 640, DENSE_BLOCK = 64 };

enum { MOST = 12 }; /* of an option that is a list */
typedef struct options {
    const char *file, *svg, *report, *json;
    int64_t block_rows, block_cols; /* 0: the size that stores least */
    double prune;                   /* negative: no */
    int64_t cols, threads;
    uint64_t seed;
    int dtype, sweep, peers; /* sweep: every block size, pruning and number of columns */
    int64_t all_rows[MOST], all_block_cols[MOST], all_cols[MOST];
    double all_prune[MOST];
    int blocks, prunes, widths; /* how many there are of each */
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
           "Measured side by side, with a recommendation: any of these, of which the first four take lists (3,4x8,16)\n"
           "  --block --prune --cols  as above; without --block sizes of 1 to 64\n"
           "  --dtype f64       or f32, f16, bf16 (default: f32)\n"
           "  --peers           beside CSR in C, and SciPy and NumPy where Python has them\n"
           "  --report a.html   a page of its own: picture, plots, errors, machine\n"
           "  --json a.json     the same numbers for programs\n"
           "  --help            this text\n");
}
static int64_t whole_number(const char *option, const char *text, char **end, int64_t low, int64_t high) {
    const long long v = strtoll(text, end, 10);
    char range[80];
    snprintf(range, sizeof range, "a whole number from %lld to %lld is wanted", (long long)low, (long long)high);
    if (*end == text || v < low || v > high) complain(option, range);
    return (int64_t)v;
}
static int one_more(const char *option, int *count) {
    if (*count == MOST) complain(option, "too many at once");
    return (*count)++;
}
static options read_options(int argc, char **argv) {
    options o;
    int i;
    memset(&o, 0, sizeof o), o.prune = -1, o.cols = 128, o.seed = 1, o.dtype = BSR_F32;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        char empty[1] = "", *end = empty;
        if (!strcmp(name, "--help") || !strcmp(name, "-h")) print_help(), exit(0);
        if (*name != '-') {
            if (o.file) complain(name, "one file at a time");
            o.file = name;
            continue;
        }
        if (!strcmp(name, "--block")) {
            do {
                const int n = one_more(name, &o.blocks);
                o.all_rows[n] = o.all_block_cols[n] = whole_number(name, n ? end + 1 : value, &end, 1, 4096);
                if (*end == 'x') o.all_block_cols[n] = whole_number(name, end + 1, &end, 1, 4096);
            } while (*end == ',');
            o.block_rows = o.all_rows[0], o.block_cols = o.all_block_cols[0], o.sweep |= o.blocks > 1;
        } else if (!strcmp(name, "--prune")) {
            do {
                const int n = one_more(name, &o.prunes);
                const char *from = n ? end + 1 : value;
                o.all_prune[n] = strtod(from, &end);
                if (end == from || !(o.all_prune[n] >= 0 && o.all_prune[n] <= 1))
                    complain(name, "a sparsity from 0 to 1 is wanted");
            } while (*end == ',');
            o.prune = o.all_prune[0], o.sweep |= o.prunes > 1;
        } else if (!strcmp(name, "--cols")) {
            do {
                const int n = one_more(name, &o.widths);
                o.all_cols[n] = whole_number(name, n ? end + 1 : value, &end, 1, 1 << 20);
            } while (*end == ',');
            o.cols = o.all_cols[0], o.sweep |= o.widths > 1;
        } else if (!strcmp(name, "--dtype")) {
            for (o.dtype = BSR_F16; o.dtype <= BSR_F64 && strcmp(value, bsr_dtype_name(o.dtype)); o.dtype++) {}
            if (o.dtype > BSR_F64) complain(name, "f16, bf16, f32 or f64");
            o.sweep = 1;
        } else if (!strcmp(name, "--peers")) {
            o.peers = o.sweep = 1;
            continue;
        } else if (!strcmp(name, "--report") || !strcmp(name, "--json")) {
            if (!*value) complain(name, "a file name is wanted");
            *(name[2] == 'r' ? &o.report : &o.json) = value, o.sweep = 1;
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

static void draw_values(job *j) {
    int64_t i;
    for (i = 0; i < j->e.count; i++) j->e.value[i] = random_normal(&j->random);
}
/* What a type can't hold would be infinite in it, and nothing could be said of errors. */
static void require_range(const job *j, const char *path) {
    const int dtype = j->opt->dtype;
    const double most = dtype == BSR_F64   ? 1.7976931348623157e308
                        : dtype == BSR_F16 ? 65519.99
                        : dtype == BSR_F32 ? 3.4028235e38
                                           : 3.396e38;
    char line[120];
    int64_t i;
    for (i = 0; i < j->e.count && fabs(j->e.value[i]) <= most; i++) {}
    if (i == j->e.count) return;
    snprintf(line, sizeof line, "entry %lld is %g, beyond what %s holds%s", (long long)i + 1, j->e.value[i],
             bsr_dtype_name(dtype), dtype == BSR_F64 ? "" : ": --dtype takes another type, e.g. f64");
    complain(path, line);
}
static void read_file(job *j, const char *path) {
    bsr_file_info info;
    j->e = read_entries(path, &info);
    if (!info.has_values) draw_values(j);
    require_range(j, path);
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
static void put_svg(FILE *f, const void *user) {
    const bsr_matrix *m = (const bsr_matrix *)user;
    double scale = SVG_SIZE / (double)(m->rows > m->cols ? m->rows : m->cols), most, w, h;
    int width = fitted((double)(m->cols / m->block_cols), SVG_CELLS),
        height = fitted((double)(m->rows / m->block_rows), SVG_CELLS), x, y;
    double *cell = (double *)allocate((int64_t)width * height, sizeof *cell);
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
    release(cell);
}
static void draw_svg(const job *j, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) complain(path, "can't write the file");
    put_svg(f, &j->A);
    if (fclose(f)) complain(path, "can't write the file");
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

/* ---- side by side ---- */

/* CSR as a program without a library has it: one column, or several by rows. */
#define CSR_LOOPS(NAME, T)                                                                                                  \
    static void NAME(const bsr_matrix *A, const T *x, T *y, int64_t n) {                                                    \
        const int32_t *crow = (const int32_t *)A->crow_indices, *col = (const int32_t *)A->col_indices;                     \
        const T *v = (const T *)A->values;                                                                                  \
        int64_t i, k, p;                                                                                                    \
        for (i = 0; i < A->rows; i++) {                                                                                     \
            T sum = 0;                                                                                                      \
            for (p = crow[i]; p < crow[i + 1] && n == 1; p++) sum += v[p] * x[col[p]];                                      \
            for (k = 0; k < n; k++) y[i * n + k] = sum;                                                                     \
            for (p = crow[i]; p < crow[i + 1] && n > 1; p++)                                                                \
                for (k = 0; k < n; k++) y[i * n + k] += v[p] * x[col[p] * n + k];                                           \
        }                                                                                                                   \
    }
CSR_LOOPS(csr_f32, float)
CSR_LOOPS(csr_f64, double)
static double csr_time(const sweep *s, int64_t n) {
    bsr_matrix A = matrix_from_entries(s->build, s->e, 1, 1, s->dtype);
    double *x = (double *)allocate((A.rows + A.cols) * n, sizeof *x), *y = x + A.cols * n, t[50], all = 0;
    int runs;
    for (runs = 0; runs < 50 && (runs < 6 || all < 0.2); all += t[runs++]) {
        const double start = seconds();
        if (s->dtype == BSR_F64) csr_f64(&A, x, y, n);
        else csr_f32(&A, (const float *)(const void *)x, (float *)(void *)y, n);
        t[runs] = seconds() - start;
    }
    qsort(t, (size_t)runs, sizeof *t, by_value);
    release(x), matrix_free(&A);
    return fmax(t[runs / 2], 1e-9);
}
static void add_peer(sweep *s, const char *name, int64_t cols, double t) {
    sample *x = &s->list[s->count];
    if (s->count == (int)(sizeof s->list / sizeof s->list[0]) || !(t > 0)) return;
    memset(x, 0, sizeof *x), s->count++;
    snprintf(x->name, sizeof x->name, "%s", name), x->cols = cols, x->seconds = t, x->prune = x->error = -1;
}
/* SciPy and NumPy, through examples/peers.py: absent where Python or they are. */
static void python_peers(sweep *s, const options *o, const sample *best) {
#ifndef _WIN32
    char command[4096], line[256], name[64];
    const char *python = getenv("PYTHON");
    FILE *f;
    int i, found = 0;
    if (!o->file || strchr(o->file, '\'') || (s->dtype != BSR_F32 && s->dtype != BSR_F64)) return;
    snprintf(command, sizeof command, "%s examples/peers.py '%s' %s %lld %lld", python && *python ? python : "python3", o->file,
             s->dtype == BSR_F64 ? "float64" : "float32", (long long)best->block_rows, (long long)best->block_cols);
    for (i = 0; i < o->widths; i++)
        snprintf(command + strlen(command), sizeof command - strlen(command), " %lld", (long long)o->all_cols[i]);
    snprintf(command + strlen(command), sizeof command - strlen(command), " 2> /dev/null");
    f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        long long cols;
        double t;
        if (sscanf(line, "%63[^\t]\t%lld\t%lf", name, &cols, &t) == 3) add_peer(s, name, cols, t), found++;
    }
    if (f) pclose(f);
    if (!found) printf("  SciPy and NumPy are absent: no Python, or it lacks them\n");
#else
    (void)s, (void)o, (void)best;
#endif
}
static void print_sweep(const sweep *s) {
    int i;
    printf("\n  what                columns  sparsity     blocks   fill %%        MB         ms     GB/s   error/bound\n");
    for (i = 0; i < s->count; i++) {
        const sample *x = &s->list[i];
        char sparsity[16] = "-";
        if (x->prune >= 0) snprintf(sparsity, sizeof sparsity, "%.3g", x->prune);
        printf("  %-19s %7lld  %8s ", x->name, (long long)x->cols, sparsity);
        if (x->error < 0) printf("%10s %8s %9s %10.4f\n", "", "", "", 1e3 * x->seconds);
        else printf("%10lld %8.1f %9.2f %10.4f %8.1f   %.2g%s\n", (long long)x->blocks, 100 * x->fill, x->bytes / 1e6,
                    1e3 * x->seconds, x->bytes / x->seconds / 1e9, x->error, x->error <= 1 ? "" : " WRONG");
    }
}
/* Measures all that is asked for, writes the reports. Returns 1 where every product is right. */
static int side_by_side(job *j, options *o) {
    static const int sizes[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};
    static sweep s;
    char text[900], backend[64];
    bsr_info info;
    bsr_matrix shown;
    int b, p, w, good = 1;
    if (!o->blocks)
        for (; o->blocks < 9; o->blocks++) o->all_rows[o->blocks] = o->all_block_cols[o->blocks] = sizes[o->blocks];
    if (!o->widths) o->all_cols[o->widths++] = o->cols;
    s.run = j->run, s.build = j->ctx, s.e = &j->e, s.dtype = o->dtype, s.random = o->seed;
    shown = matrix_from_entries(j->ctx, &j->e, 1, 1, BSR_F32), s.stored = shown.nnz, matrix_free(&shown);
    for (w = 0; w < o->widths; w++)
        for (p = -1; p < o->prunes; p++)
            for (b = 0; b < o->blocks; b++) {
                progress("measuring");
                sweep_one(&s, o->all_rows[b], o->all_block_cols[b], p < 0 ? -1 : o->all_prune[p], o->all_cols[w]);
                good &= s.list[s.count - 1].error <= 1;
            }
    s.best = fastest(&s, o->all_cols[0], 0);
    for (w = 0; w < o->widths && o->peers && (s.dtype == BSR_F32 || s.dtype == BSR_F64); w++)
        add_peer(&s, "CSR, a loop in C", o->all_cols[w], csr_time(&s, o->all_cols[w]));
    if (o->peers) python_peers(&s, o, &s.list[s.best]);
    progress("");
    printf("\n%s: %s\n  %lld x %lld, %lld entries\n", j->name, j->what, (long long)j->e.rows, (long long)j->e.cols,
           (long long)s.stored);
    print_sweep(&s);
    for (w = 0; w < o->widths; w++) {
        const sample *best = &s.list[fastest(&s, o->all_cols[w], 0)];
        reasons(&s, best, text, sizeof text);
        printf("\n  take blocks of %s. %s\n", best->name, text);
    }
    bsr_query_info(j->run, &info);
    snprintf(backend, sizeof backend, "%s, %s", info.backend_name, info.isa_name);
    if (!on_gpu) snprintf(backend, sizeof backend, "%s, %d threads", info.isa_name, (int)info.threads);
    shown = matrix_from_entries(j->ctx, &j->e, s.list[s.best].block_rows, s.list[s.best].block_cols, BSR_F32);
    if (o->report) write_page(&s, o->report, j->name, backend, o->all_cols, o->widths, put_svg, &shown);
    if (o->json) {
        FILE *f = fopen(o->json, "w");
        if (!f) complain(o->json, "can't write the file");
        machine_name(text, sizeof text), put_json(f, &s, j->name, text, backend);
        if (fclose(f)) complain(o->json, "can't write the file");
    }
    matrix_free(&shown), entries_free(&j->e);
    return good;
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
    if (o.sweep) {
        if (!o.file) make_beam(&j);
        good = side_by_side(&j, &o);
    } else if (o.file) {
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
