/* plan_cases.h: random shapes of products and sampled products, and the calls that plan them: tests/time_plans.cu times what
   they can run by, tests/cudart/plans.h keeps what they do run by. C99 and C++; included behind bsrsparse.h.

   A kind is a type and what comes with it: bf16|f16|f32|f64|i8, +relu, +tf32, +tf32x3, +any (the first four ways, and few
   columns in every third shape), +few (few columns in all of them), +sides (blocks of any sides that are
   multiples of 16), +sampled. */
#ifndef BSR_PLAN_CASES_H
#define BSR_PLAN_CASES_H

#include <stdint.h>
#include <string.h>

/* COLUMNS, OUT_COLUMNS: columns of the dense operand, of the result are contiguous; sampled: those of the first, of the second
   operand. SCHEDULE: one is attached. */
enum { PLAN_COLUMNS = 1, PLAN_OUT_COLUMNS = 2, PLAN_TRANSPOSED = 4, PLAN_RELU = 8, PLAN_INPUT = 16, PLAN_SCHEDULE = 32 };
typedef struct plan_shape {
    int64_t m, k, n, b;
    double s; /* sparsity */
    int ways;
    int64_t c; /* columns of a block, where it has not b as well; else 0 */
} plan_shape;
static int64_t plan_block_cols(const plan_shape *x) { return x->c ? x->c : x->b; }

/* Not bt_random(): golden plans and what costs were fitted to are these shapes, and no test harness is here. */
static uint64_t plan_state; /* of the random numbers */
static uint64_t plan_draw(uint64_t below) {
    plan_state = plan_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (plan_state >> 33) % below;
}
#define PLAN_PICK(list) list[plan_draw(sizeof(list) / sizeof(list[0]))]
static int plan_has(const char *kind, const char *what) { return strstr(kind, what) != NULL; }
static int plan_dtype(const char *kind) {
    int i;
    for (i = BSR_F16; i <= BSR_I8; i++)
        if (!strncmp(kind, bsr_dtype_name(i), strlen(bsr_dtype_name(i)))) return i;
    return BSR_BF16;
}
/* Of the call, and of every shape. */
static uint32_t plan_flags(const char *kind) {
    const uint32_t tf32 = plan_has(kind, "+tf32x3") ? BSR_EXEC_TF32X3 : plan_has(kind, "+tf32") ? BSR_EXEC_TF32 : 0u;
    return BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG | tf32;
}
static int plan_ways(const char *kind) {
    return (plan_has(kind, "+relu") ? PLAN_RELU : 0) | (plan_dtype(kind) == BSR_I8 ? PLAN_COLUMNS : 0);
}

static plan_shape plan_random_sampled(double most) {
    static const int64_t mn[] = {256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 14336},
                         k[] = {32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048, 4096};
    static const double s[] = {0, .3, .5, .6, .7, .8, .85, .9, .95, .98};
    for (;;) {
        plan_shape x;
        x.m = PLAN_PICK(mn), x.k = PLAN_PICK(k), x.n = PLAN_PICK(mn), x.b = 16 << plan_draw(4), x.s = PLAN_PICK(s);
        x.ways = (plan_draw(5) == 0) * PLAN_COLUMNS;
        x.ways |= (plan_draw(3) == 0) * PLAN_OUT_COLUMNS, x.c = 0;
        if (2.0 * (double)(x.m * x.k) * (double)x.n * (1 - x.s) <= most && bsr_kept_blocks(x.m / x.b * (x.n / x.b), x.s))
            return x;
    }
}
static plan_shape plan_random_product(const char *kind, double most) {
    static const int64_t mk[] = {256,  384,  512,  640,  768,  1024, 1280,  1536, 2048,
                                 2560, 3072, 4096, 5120, 6144, 8192, 11008, 14336};
    static const int64_t n[] = {64,   96,   128,  192,  256,  320,  384,  512,  640,   768,   1000,  1024,
                                1536, 2048, 2560, 3000, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536};
    static const double s[] = {0, .3, .5, .6, .7, .8, .85, .9, .95, .98};
    static const int64_t b[] = {16, 16, 16, 32, 32, 32, 64, 64, 128, 128}, few[] = {1, 2, 4, 8, 8, 16, 16, 24, 32, 32, 48, 64};
    const int all_few = plan_has(kind, "+few");
    for (;;) {
        plan_shape x;
        x.m = PLAN_PICK(mk), x.k = PLAN_PICK(mk), x.n = PLAN_PICK(n), x.b = PLAN_PICK(b), x.s = PLAN_PICK(s);
        x.ways = plan_draw(5) == 0, x.c = 0;
        if (all_few || plan_has(kind, "+any")) {
            if (plan_draw(4) == 0) x.ways |= PLAN_RELU;
            if (all_few || plan_draw(3) == 0) x.n = PLAN_PICK(few);
            else {
                x.ways |= (plan_draw(5) == 0) * PLAN_OUT_COLUMNS;
                x.ways |= (plan_draw(6) == 0) * PLAN_TRANSPOSED;
            }
            if (x.n < 8) x.ways |= PLAN_COLUMNS;
        }
        if (2.0 * (double)(x.m * x.k) * (double)x.n * (1 - x.s) > most) continue;
        if ((double)x.m * (double)x.n > 4e8 || (double)x.k * (double)x.n > 4e8) continue;
        return x;
    }
}
/* Shape number i of a seed. */
static plan_shape plan_random(const char *kind, int seed, int i) {
    const double most = plan_dtype(kind) == BSR_F32 ? 8e9 : 8e10;
    plan_shape x;
    plan_state = (uint64_t)seed * 1000003 + (uint64_t)i, plan_draw(2), plan_draw(2);
    x = plan_has(kind, "+sampled") ? plan_random_sampled(most) : plan_random_product(kind, most);
    x.ways |= plan_ways(kind);
    if (plan_has(kind, "+sides")) {
        static const int64_t sides[] = {16, 32, 48, 64, 96, 128, 192, 256};
        x.b = PLAN_PICK(sides), x.c = PLAN_PICK(sides);
        x.m = (x.m + 767) / 768 * 768, x.k = (x.k + 767) / 768 * 768;
        if (plan_has(kind, "+sampled")) x.n = (x.n + 767) / 768 * 768;
    }
    return x;
}

/* A product or a sampled product. */
typedef struct plan_problem {
    plan_shape x;
    int dtype, result, trans, sampled;
    int64_t rows, cols, nnz, written; /* of the matrix; elements of the result */
    bsr_matrix a;                     /* the sparse operand, or the result */
    bsr_dense b, c;                   /* the dense operand and the result, or both operands */
    bsr_dense input;
    bsr_epilogue epilogue;
} plan_problem;
static plan_problem plan_problem_of(const char *kind, plan_shape x) {
    plan_problem p;
    memset(&p, 0, sizeof p);
    p.x = x, p.dtype = plan_dtype(kind), p.result = p.dtype == BSR_I8 ? BSR_I32 : p.dtype;
    p.sampled = plan_has(kind, "+sampled"), p.trans = !p.sampled && x.ways & PLAN_TRANSPOSED;
    p.rows = p.trans ? x.k : x.m, p.cols = p.sampled ? x.n : p.trans ? x.m : x.k;
    p.nnz = bsr_kept_blocks(p.rows / x.b * (p.cols / plan_block_cols(&x)), x.s);
    p.written = p.sampled ? p.nnz * x.b * plan_block_cols(&x) : x.m * x.n;
    if (x.ways & PLAN_RELU) p.epilogue.activation = BSR_ACT_RELU;
    return p;
}
static bsr_dense plan_dense(void *data, int dtype, int64_t rows, int64_t cols, int by_columns) {
    return (by_columns ? bsr_dense_col_major : bsr_dense_row_major)(data, dtype, rows, cols);
}
/* Values, dense operands (the second: the result of a product), what is added. */
static void plan_operands(plan_problem *p, void *values, void *first, void *second, void *added) {
    const plan_shape *x = &p->x;
    const int columns = x->ways & PLAN_COLUMNS, out_columns = x->ways & PLAN_OUT_COLUMNS;
    p->a = bsr_matrix_make(p->rows, p->cols, x->b, plan_block_cols(x), p->nnz, NULL, NULL, BSR_I32, values, p->dtype);
    p->b = p->sampled ? plan_dense(first, p->dtype, x->m, x->k, columns) : plan_dense(first, p->dtype, x->k, x->n, columns);
    p->c = plan_dense(second, p->sampled ? p->dtype : p->result, p->sampled ? x->k : x->m, x->n, out_columns);
    p->input = p->c, p->input.data = added;
}
static bsr_status plan_call(const bsr_context *ctx, const plan_problem *p, const bsr_exec *ex) {
    const int input = p->x.ways & PLAN_INPUT;
    if (p->sampled) return bsr_sampled_addmm(ctx, 0, NULL, 1, &p->b, &p->c, &p->a, ex);
    return bsr_dense_addmm(ctx, input ? 0.5 : 0, input ? &p->input : NULL, 1, p->trans ? BSR_TRANS_A : 0, &p->a, &p->b,
                           &p->epilogue, &p->c, ex);
}

/* What a plan may ask for; number 0 up to PLAN_ASKED - 1. */
enum { PLAN_ASKED = 2 * 5 * 7 * 9 };
static bsr_plan plan_asked(int number) {
    static const int rows[] = {0, 16, 32, 64, 128}, cols[] = {0, 8, 16, 32, 64, 128, 256},
                     ways[][3] = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {4, 0, 0}, {1, 1, 0},
                                  {1, 2, 0}, {1, 0, 1}, {1, 0, 2}, {1, 0, 3}}; /* split, order, stages */
    bsr_plan p;
    memset(&p, 0, sizeof p);
    p.split = ways[number % 9][0], p.order = ways[number % 9][1], p.stages = ways[number % 9][2], number /= 9;
    p.tile_cols = cols[number % 7], number /= 7, p.tile_rows = rows[number % 5], p.kernel = 2 + number / 5;
    return p;
}
static int plan_same(const bsr_plan *x, const bsr_plan *y) {
    return x->instance == y->instance && x->tile_rows == y->tile_rows && x->tile_cols == y->tile_cols && x->split == y->split &&
           x->order == y->order;
}
#endif /* BSR_PLAN_CASES_H */
