/* Tunes bsrsparse on this machine: searches the fastest plan for each of many shapes (bsr_tune), keeps those that beat the
   heuristic, and writes them as a tune_table.h. `tune --help` lists the options. Ctrl-C keeps what is done; the next run goes on
   from there. */
#define BSRSPARSE_IMPLEMENTATION
#include "example.h"
#include <signal.h>

enum { SHAPES = 8192, ROWS = 1500, GPUS = 16 };

typedef struct shape {
    int op, dtype, block, beta; /* MM, SAMPLED, ATTENTION */
    int64_t m, k, n;            /* attention: m queries, n keys, head size k */
    double sparsity;
    /* results */
    int done, wrong;
    double heuristic, best, gain;
    char plan[240];
} shape;
enum { MM, SAMPLED, ATTENTION };
static const char *const op_names[] = {"mm", "sampled", "attention"};

static struct options {
    const char *out, *csv, *svg, *sources;
    int full, again, quiet;
    double limit, min_gain;
} opt = {"build/tune_table.h", "build/tune.csv", "build/tune.svg", "unknown", 0, 0, 0, 10, 0.05};
static shape shapes[SHAPES];
static int count, finished;
static bsr_context *ctx, *builder;
static bsr_tune_table table;
static double began;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) { (void)signal_number, interrupted = 1; }
static void complain(const char *subject, const char *message) {
    fprintf(stderr, "tune: %s: %s\n", subject, message);
    exit(1);
}

/* ---- shapes ---- */

static void add(int op, int dtype, int64_t m, int64_t k, int64_t n, int block, double sparsity, int beta) {
    shape *s = &shapes[count];
    if (m % block || (op == MM && k % block) || (op != MM && n % block) || count == SHAPES) return;
    if (op != ATTENTION && (double)m * (double)n > 1.5e9) return; /* an operand of three gigabytes or more */
    memset(s, 0, sizeof *s);
    s->op = op, s->dtype = dtype, s->m = m, s->k = k, s->n = n, s->block = block, s->sparsity = sparsity, s->beta = beta, count++;
}
/* The shapes that matter: square and of transformers, the four fast block sizes, wide and narrow. */
static void add_quick(void) {
    static const int64_t size[][3] = {
        {4096, 4096, 4096}, {4096, 4096, 512}, {1024, 4096, 8192}, {3072, 768, 50432}, {4096, 4096, 16}};
    static const double sparsity[] = {0.8, 0.95};
    int b, i, s;
    for (i = 0; i < 5; i++)
        for (b = 16; b <= 128; b *= 2)
            for (s = 0; s < 2; s++) add(MM, BSR_BF16, size[i][0], size[i][1], size[i][2], b, sparsity[s], 0);
    for (b = 16; b <= 128; b *= 2)
        add(MM, BSR_I8, 4096, 4096, 4096, b, 0.8, 0), add(SAMPLED, BSR_BF16, 4096, 512, 4096, b, 0.8, 0);
    for (b = 32; b <= 128; b *= 2)
        add(ATTENTION, BSR_BF16, 8192, 64, 8192, b, 0.8, 0), add(ATTENTION, BSR_BF16, 8192, 128, 8192, b, 0.8, 0);
}
/* Upstream's sweep. */
static void add_full(void) {
    static const int types[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_I8};
    int64_t mk[14], n[12];
    int t, i, j, b, beta;
    for (i = 0; i < 8; i++) mk[i] = INT64_C(256) << i;
    for (i = 0; i < 6; i++) mk[8 + i] = INT64_C(192) << i;
    for (i = 0; i < 10; i++) n[i] = INT64_C(256) << i;
    n[10] = 50432, n[11] = 65792;
    for (t = 0; t < 4; t++)
        for (i = 0; i < 14; i++)
            for (j = 0; j < 12; j++)
                for (b = types[t] == BSR_I8 ? 32 : 16; b <= (types[t] == BSR_I8 ? 256 : 128); b *= 2)
                    for (beta = 0; beta < 2 && n[j] != 50432; beta++) add(MM, types[t], mk[i], mk[i], n[j], b, 0.5, beta);
    for (t = 0; t < 4; t++)
        for (j = 0; j < 12; j++)
            for (b = 32; b <= 128; b *= 2)
                add(MM, types[t], 3072, 768, n[j], b, 0.5, 0), add(MM, types[t], 768, 3072, n[j], b, 0.5, 0);
}
static int dtype_of(const char *name) {
    int t;
    for (t = BSR_F16; t <= BSR_I8; t++)
        if (!strcmp(name, bsr_dtype_name(t))) return t;
    complain(name, "one of f16, bf16, f32, f64, i8");
    return 0;
}
static void add_text(const char *text) { /* [op:]M,K,N,block,sparsity,dtype */
    long long m, k, n;
    char type[16];
    int block, op = MM;
    double s;
    const char *colon = strchr(text, ':');
    for (; colon && (strlen(op_names[op]) != (size_t)(colon - text) || strncmp(text, op_names[op], strlen(op_names[op]))); op++)
        if (op == ATTENTION) complain(text, "the operation is mm, sampled or attention");
    if (sscanf(colon ? colon + 1 : text, "%lld,%lld,%lld,%d,%lf,%15s", &m, &k, &n, &block, &s, type) != 6 || m < 1 || k < 1 ||
        n < 1 || block < 1 || !(s >= 0 && s <= 1))
        complain(text, "M,K,N,block,sparsity,dtype is wanted");
    op = count, add(colon ? (colon - text == 2   ? MM
                             : colon - text == 7 ? SAMPLED
                                                 : ATTENTION)
                          : MM,
                    dtype_of(type), m, k, n, block, s, 0);
    if (op == count) complain(text, "sizes are multiples of the block");
}

static void shape_string(const shape *s, char *line, size_t size) {
    snprintf(line, size, "%s,%s,%lld,%lld,%lld,%d,%g,%d", op_names[s->op], bsr_dtype_name(s->dtype), (long long)s->m,
             (long long)s->k, (long long)s->n, s->block, s->sparsity, s->beta);
}

/* ---- one shape: operands, the call, the tuner ---- */

typedef struct operands {
    const shape *s;
    bsr_matrix a;
    bsr_dense x, y, v, out;
} operands;
/* Small numbers that every type holds: a stretch of them, repeated. */
static void fill(void *data, int dtype, int64_t n, uint64_t *random) {
    const size_t size = bsr_dtype_size(dtype);
    const int64_t first = n < 8192 ? n : 8192;
    int64_t i, have = first;
    for (i = 0; i < first; i++) {
        const int r = (int)(random_bits(random) % 7) - 3;
        const float f = (float)r * 0.25f;
        const double d = f;
        uint32_t u;
        uint16_t h;
        memcpy(&u, &f, 4);
        h = dtype == BSR_BF16 ? (uint16_t)(u >> 16)
            : u << 1          ? (uint16_t)((u >> 16 & 0x8000) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 0x3ff))
                              : 0;
        if (size == 1) ((int8_t *)data)[i] = (int8_t)r;
        else
            memcpy((char *)data + (size_t)i * size,
                   dtype == BSR_F64   ? (const void *)&d
                   : dtype == BSR_F32 ? (const void *)&f
                                      : (const void *)&h,
                   size);
    }
    for (; have < n; have *= 2)
        memcpy((char *)data + (size_t)have * size, data, (size_t)(have < n - have ? have : n - have) * size);
}
static bsr_dense dense_new(int dtype, int64_t rows, int64_t cols, int column_major, uint64_t *random) {
    void *data = allocate(rows * cols, bsr_dtype_size(dtype));
    if (random) fill(data, dtype, rows * cols, random);
    return column_major ? bsr_dense_col_major(data, dtype, rows, cols) : bsr_dense_row_major(data, dtype, rows, cols);
}
static operands operands_new(const shape *s) {
    const int64_t rows = s->m, cols = s->op == MM ? s->k : s->n,
                  kept = bsr_kept_blocks(rows / s->block * (cols / s->block), s->sparsity);
    const int i8 = s->dtype == BSR_I8, values_type = s->op == SAMPLED && i8 ? BSR_I32 : s->dtype;
    uint64_t random = 1;
    bsr_error error;
    bsr_exec e = BSR_ZERO;
    operands o;
    memset(&o, 0, sizeof o), e.error = &error;
    o.s = s;
    o.a = bsr_matrix_make(rows, cols, s->block, s->block, kept, allocate(rows / s->block + 1, 4), allocate(kept, 4), BSR_I32,
                          NULL, values_type);
    REQUIRE(bsr_random_pattern(builder, 1, s->sparsity, &o.a, &e), &error);
    o.a.values = allocate(kept * s->block * s->block, bsr_dtype_size(values_type));
    fill(o.a.values, values_type == BSR_I32 ? BSR_I8 : values_type, values_type == BSR_I32 ? 0 : kept * s->block * s->block,
         &random);
    if (s->op == MM) {
        o.x = dense_new(s->dtype, s->k, s->n, i8, &random), o.out = dense_new(i8 ? BSR_I32 : s->dtype, s->m, s->n, 0, NULL);
    } else if (s->op == SAMPLED) {
        o.x = dense_new(s->dtype, s->m, s->k, 0, &random), o.y = dense_new(s->dtype, s->k, s->n, 1, &random);
    } else {
        o.x = dense_new(s->dtype, s->m, s->k, 0, &random), o.y = dense_new(s->dtype, s->n, s->k, 0, &random);
        o.v = dense_new(s->dtype, s->n, s->k, 0, &random), o.out = dense_new(s->dtype, s->m, s->k, 0, NULL);
    }
    return o;
}
static void operands_free(operands *o) {
    release(o->a.crow_indices), release(o->a.col_indices), release(o->a.values);
    if (o->x.data) release(o->x.data);
    if (o->y.data) release(o->y.data);
    if (o->v.data) release(o->v.data);
    if (o->out.data) release(o->out.data);
}
static bsr_status call(const bsr_exec *e, void *user) {
    const operands *o = (const operands *)user;
    if (o->s->op == MM) return bsr_dense_addmm(ctx, o->s->beta, &o->out, 1, 0, &o->a, &o->x, NULL, &o->out, e);
    if (o->s->op == SAMPLED) return bsr_sampled_addmm(ctx, 0, NULL, 1, &o->x, &o->y, &o->a, e);
    return bsr_attention(ctx, 0, &o->x, &o->y, &o->v, &o->a, NULL, &o->out, NULL, e);
}
static double now(void *user) { return (void)user, seconds(); }

/* A bar of what is done, the time left, and what the tuner is at; on a terminal only. */
static int progress(const bsr_tune_progress *p, void *user) {
    const operands *o = (const operands *)user;
    char text[120], bar[25];
    const double spent = seconds() - began, left = finished ? spent / finished * (count - finished) : 0;
    int i;
    if (!opt.quiet && isatty(fileno(stderr))) {
        for (i = 0; i < 24; i++) bar[i] = i < 24 * finished / count ? '#' : '.';
        bar[24] = 0, shape_string(o->s, text, sizeof text);
        fprintf(stderr, "\r\033[K[%s] %d of %d, %d:%02d left  %s: %d plans, %.3g us", bar, finished, count, (int)left / 60,
                (int)left % 60, text, (int)p->evaluated, p->best * 1e6);
        fflush(stderr);
    }
    return interrupted;
}
static void tune(shape *s) {
    operands o = operands_new(s);
    bsr_tune_output out;
    bsr_tune_desc d = BSR_ZERO;
    bsr_tune_result r;
    bsr_error error;
    char line[400], name[120];
    bsr_status status;
    memset(&out, 0, sizeof out);
    if (s->op == SAMPLED) out.data = o.a.values, out.dtype = o.a.dtype, out.bytes = (uint64_t)(o.a.nnz * s->block * s->block);
    else out.data = o.out.data, out.dtype = o.out.dtype, out.bytes = (uint64_t)(o.out.rows * o.out.cols);
    out.bytes *= bsr_dtype_size(out.dtype);
    d.call = call, d.user = &o, d.outputs = &out, d.output_count = 1, d.table = &table, d.now = now, d.progress = progress;
    d.time_limit = opt.limit, d.min_gain = opt.min_gain;
    status = bsr_tune(ctx, &d, &r, &error);
    shape_string(s, name, sizeof name);
    if (!opt.quiet && isatty(fileno(stderr))) fprintf(stderr, "\r\033[K");
    if (status != BSR_OK && !interrupted) bsr_error_string(&error, line, sizeof line), printf("%-44s %s\n", name, line);
    if (!interrupted) {
        s->done = 1, s->heuristic = r.heuristic_seconds, s->best = r.seconds, s->gain = r.gain, s->wrong = r.wrong;
        bsr_plan_string(&r.plan, s->plan, sizeof s->plan);
        if (status == BSR_OK)
            printf("%-44s %9.1f us %9.1f us %+6.1f %%  %3d plans%s%s  %s\n", name, s->heuristic * 1e6, s->best * 1e6,
                   s->gain * 100, (int)r.evaluated, r.stored ? ", stored" : "", r.wrong ? ", WRONG ones passed over" : "",
                   s->plan);
        fflush(stdout);
    }
    operands_free(&o);
}

/* ---- what is kept between runs, and what is left at the end ---- */

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    char *text = (char *)calloc(1, 4 << 20);
    if (!text) complain(path, "out of memory");
    *bytes = f ? fread(text, 1, (4 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return text;
}
static void write_table(const char *made) {
    static char text[BSR_TUNE_TEXT_MAX + 4096];
    bsr_tune_gpu here;
    bsr_error error;
    size_t length;
    FILE *f;
    int i;
    bsr_tune_device(ctx, &here);
    for (i = 0; i < table.gpu_count; i++)
        if (!strcmp(table.gpus[i].name, here.name)) {
            snprintf(table.gpus[i].made, sizeof table.gpus[i].made, "%s", made);
            snprintf(table.gpus[i].sources, sizeof table.gpus[i].sources, "sha256 %.64s", opt.sources);
        }
    REQUIRE(bsr_tune_export(&table, text, sizeof text, &length, &error), &error);
    f = fopen(opt.out, "wb");
    if (!f || fwrite(text, 1, length, f) != length || fclose(f)) complain(opt.out, "can't write the file");
}
static void read_results(void) { /* of an earlier run: those shapes are done */
    size_t n;
    char *text = opt.again ? NULL : read_file(opt.csv, &n), *line, name[120];
    int i;
    for (line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        for (i = 0; i < count; i++) {
            shape_string(&shapes[i], name, sizeof name);
            if (strncmp(line, name, strlen(name)) || line[strlen(name)] != ';') continue;
            shapes[i].done =
                sscanf(line + strlen(name) + 1, "%lf;%lf;%lf", &shapes[i].heuristic, &shapes[i].best, &shapes[i].gain) == 3;
        }
    free(text);
}
static void write_result(const shape *s) {
    FILE *f = fopen(opt.csv, "ab");
    char name[120];
    shape_string(s, name, sizeof name);
    if (!f || fprintf(f, "%s;%.9g;%.9g;%.4f;%s\n", name, s->heuristic, s->best, s->gain, s->plan) < 0 || fclose(f))
        complain(opt.csv, "can't write the file");
}
static void write_svg(void) {
    FILE *f = fopen(opt.svg, "wb");
    int i, y = 40, rows = 0;
    for (i = 0; i < count; i++) rows += shapes[i].done;
    if (!f) complain(opt.svg, "can't write the file");
    fprintf(
        f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"820\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n",
        rows * 18 + 60);
    fprintf(f,
            "<rect width=\"820\" height=\"%d\" fill=\"white\"/>\n<text x=\"10\" y=\"22\" font-size=\"15\">Speed of the tuned "
            "plan over the "
            "heuristic's (line: 1)</text>\n",
            rows * 18 + 60);
    for (i = 0; i < count; i++) {
        const double up = shapes[i].best > 0 ? shapes[i].heuristic / shapes[i].best : 1;
        char name[120];
        if (!shapes[i].done) continue;
        shape_string(&shapes[i], name, sizeof name);
        fprintf(f,
                "<text x=\"310\" y=\"%d\" text-anchor=\"end\">%s</text><rect x=\"320\" y=\"%d\" width=\"%.1f\" height=\"13\" "
                "fill=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n",
                y + 11, name, y, 200 * (up < 2 ? up : 2), up > 1.05 ? "#2a7" : "#9ab", 326 + 200 * (up < 2 ? up : 2), y + 11, up);
        y += 18;
    }
    fprintf(f, "<line x1=\"520\" y1=\"34\" x2=\"520\" y2=\"%d\" stroke=\"#666\"/>\n</svg>\n", y);
    fclose(f);
}
static void print_summary(void) {
    int b, i;
    printf("\n%-8s %8s %16s %12s\n", "block", "shapes", "geometric mean", "largest");
    for (b = 1; b <= 4096; b *= 2) {
        double sum = 0, most = 0;
        int n = 0;
        for (i = 0; i < count; i++) {
            const double up = shapes[i].done && shapes[i].best > 0 ? shapes[i].heuristic / shapes[i].best : 0;
            if (shapes[i].block < b || shapes[i].block >= 2 * b || up <= 0) continue;
            sum += log(up), n++, most = up > most ? up : most;
        }
        if (n) printf("%-8d %8d %15.3fx %11.3fx\n", b, n, exp(sum / n), most);
    }
}
static void provenance(char *made, size_t size) {
    time_t t = time(NULL);
    char date[16];
    int driver = 0, toolkit = 0;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&t));
#ifdef EXAMPLE_CUDA
    if (on_gpu) cudaDriverGetVersion(&driver), cudaRuntimeGetVersion(&toolkit);
#endif
    snprintf(made, size, "driver for CUDA %d.%d, toolkit %d.%d, %s, bsrsparse %d.%d.%d", driver / 1000, driver % 1000 / 10,
             toolkit / 1000, toolkit % 1000 / 10, date, BSR_VERSION_MAJOR, BSR_VERSION_MINOR, BSR_VERSION_PATCH);
}

static void print_help(void) {
    printf("usage: tune [options]\nSearches the fastest plans on this machine and writes those that beat the heuristic as a "
           "tune_table.h.\n"
           "  --quick           the shapes that matter, a few minutes (default)\n"
           "  --full            upstream's sweep, hours\n"
           "  --shape M,K,N,block,sparsity,dtype   one shape; any number of times; mm:, sampled: or attention: before it\n"
           "  --limit 10        seconds for a shape\n"
           "  --min-gain 0.05   of time, for a row to be kept\n"
           "  --out FILE        the table, %s; rows that it has are kept\n"
           "  --csv FILE        results, %s; shapes that it has are not tuned again\n"
           "  --svg FILE        picture, %s\n"
           "  --again           tunes everything again\n"
           "  --quiet           no progress bar\n"
           "  --sources HASH    of the library's files, for the table's head\n"
           "  --backend cpu     or cuda (default: cuda where the program was compiled for it and there is a GPU)\n",
           opt.out, opt.csv, opt.svg);
}
static void read_options(int argc, char **argv) {
    int i;
    for (i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(name, "--help")) print_help(), exit(0);
        if (!strcmp(name, "--quick")) continue;
        if (!strcmp(name, "--full")) {
            opt.full = 1;
            continue;
        }
        if (!strcmp(name, "--again")) {
            opt.again = 1;
            continue;
        }
        if (!strcmp(name, "--quiet")) {
            opt.quiet = 1;
            continue;
        }
        if (!*value) complain(name, "unknown option, or its value is missing; --help lists them");
        i++;
        if (!strcmp(name, "--shape")) add_text(value);
        else if (!strcmp(name, "--limit")) opt.limit = strtod(value, NULL);
        else if (!strcmp(name, "--min-gain")) opt.min_gain = strtod(value, NULL);
        else if (!strcmp(name, "--out")) opt.out = value;
        else if (!strcmp(name, "--csv")) opt.csv = value;
        else if (!strcmp(name, "--svg")) opt.svg = value;
        else if (!strcmp(name, "--sources")) opt.sources = value;
        else if (strcmp(name, "--backend")) complain(name, "unknown option; --help lists them");
    }
    if (!(opt.limit > 0)) complain("--limit", "seconds, above 0");
    if (!count && opt.full) add_full();
    else if (!count) add_quick();
}

int main(int argc, char **argv) {
    static bsr_tune_gpu gpus[GPUS];
    static bsr_tune_row rows[ROWS];
    char made[sizeof gpus[0].made], *text;
    bsr_error error;
    size_t n;
    int i, left = 0;
    read_options(argc, argv);
    ctx = open_backend(argc, argv, 0, &builder), print_backend(ctx), provenance(made, sizeof made);
    if (!on_gpu) printf("the CPU backend: the instruction set is all there is to choose\n");
    table.gpus = gpus, table.rows = rows, table.gpu_capacity = GPUS, table.row_capacity = ROWS;
    text = read_file(opt.out, &n);
    if (n) REQUIRE(bsr_tune_import(&table, text, n, &error), &error);
    free(text), read_results(), signal(SIGINT, on_interrupt);
    for (i = 0; i < count; i++) left += !shapes[i].done;
    printf("%d shapes, %d to do\n%-44s %12s %12s %8s\n", count, left, "op,dtype,M,K,N,block,sparsity,beta", "heuristic", "tuned",
           "saved");
    if (opt.again) remove(opt.csv);
    finished = count - left, began = seconds();
    for (i = 0; i < count && !interrupted; i++) {
        if (shapes[i].done) continue;
        tune(&shapes[i]);
        if (interrupted) break;
        finished++, write_result(&shapes[i]), write_table(made);
    }
    write_table(made), write_svg(), print_summary();
    if (interrupted) printf("interrupted: %d of %d shapes are done; run it again to go on\n", finished, count);
    else printf("\n%s: %d rows of %d GPUs; %s, %s\n", opt.out, table.row_count, table.gpu_count, opt.csv, opt.svg);
    bsr_destroy(ctx), bsr_destroy(builder);
    return interrupted ? 130 : verdict(1);
}
