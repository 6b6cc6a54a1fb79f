/* Says what a build can do and compares it with what the command line expects: switches "product sampled ...". What is
   left out must return BSR_UNSUPPORTED and say what it is, and bsr_supports must say the same. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <stdio.h>
#include <string.h>

static bsr_context *ctx;
static bsr_error error;
static bsr_exec run;
static int wrong;
static double space[8][16];             /* zeros in every type */
static int there[2][64], absent[2][64]; /* operations, types: one of their calls worked, one named them as left out */

/* 1: worked, 0: left out; anything else counts as wrong. What is left out is named: the operation or, of one that is there, the
   operands' type. */
static int works(const char *what, bsr_status status, int supported, int op, int dtype) {
    const int item = error.item;
    int left_out = status == BSR_UNSUPPORTED && error.status == BSR_UNSUPPORTED &&
                   ((item == BSR_ITEM_NOT_COMPILED && error.value == op) ||
                    (item == BSR_ITEM_DTYPE_NOT_COMPILED && dtype && error.value == dtype));
    if (status == BSR_OK) there[0][op] = there[1][dtype] = 1;
    else if (left_out) absent[item == BSR_ITEM_DTYPE_NOT_COMPILED][error.value] = 1;
    if ((status != BSR_OK && !left_out) || (supported >= 0 && supported != (status == BSR_OK))) {
        printf("%s: status %s, item %s, bsr_supports says %d\n", what, bsr_status_name((int)status), bsr_item_name(error.item),
               supported);
        wrong = 1;
    }
    return status == BSR_OK;
}

static int product(int dtype), sampled(int dtype), rows(int dtype), attention(int dtype), maps(int dtype), conv(int dtype);
static int moe(int dtype);
static int32_t crow[] = {0, 1}, col[] = {0};

static bsr_matrix matrix(int dtype, int at) { return bsr_matrix_make(2, 2, 2, 2, 1, crow, col, BSR_I32, space[at], dtype); }
static bsr_dense dense(int dtype, int at) { return bsr_dense_row_major(space[at], dtype, 2, 2); }

static int product(int dtype) {
    bsr_matrix a = matrix(dtype, 0);
    bsr_dense b = dense(dtype, 1), c = dense(dtype, 2);
    return works("dense_mm", bsr_dense_mm(ctx, 0, &a, &b, &c, &run), bsr_supports(ctx, BSR_OP_DENSE_ADDMM, dtype, dtype, 2, 2),
                 BSR_OP_DENSE_ADDMM, dtype);
}
static int sampled(int dtype) {
    bsr_matrix c = matrix(dtype, 0);
    bsr_dense a = dense(dtype, 1), b = dense(dtype, 2);
    return works("sampled_addmm", bsr_sampled_addmm(ctx, 0, NULL, 1, &a, &b, &c, &run),
                 bsr_supports(ctx, BSR_OP_SAMPLED_ADDMM, dtype, dtype, 2, 2), BSR_OP_SAMPLED_ADDMM, dtype);
}
static int rows(int dtype) {
    bsr_matrix x = matrix(dtype, 0), y = matrix(dtype, 1);
    return works("softmax", bsr_softmax(ctx, 1, &x, NULL, &y, &run), bsr_supports(ctx, BSR_OP_SOFTMAX, dtype, dtype, 2, 2),
                 BSR_OP_SOFTMAX, dtype);
}
static int attention(int dtype) {
    bsr_matrix m = matrix(dtype, 0);
    bsr_dense q = dense(dtype, 1), k = dense(dtype, 2), v = dense(dtype, 3), o = dense(dtype, 4);
    return works("attention", bsr_attention(ctx, 0, &q, &k, &v, &m, NULL, &o, NULL, &run),
                 bsr_supports(ctx, BSR_OP_ATTENTION, dtype, dtype, 2, 2), BSR_OP_ATTENTION, dtype);
}
static int maps(int dtype) {
    const bsr_operand none = BSR_ZERO;
    bsr_matrix x = matrix(dtype, 0), y = matrix(dtype, 1);
    bsr_dense sums = bsr_dense_row_major(space[2], BSR_F32, 2, 1);
    int a = works("map", bsr_map(ctx, NULL, 1, &x, 0, none, &y, &run), bsr_supports(ctx, BSR_OP_MAP, dtype, dtype, 2, 2),
                  BSR_OP_MAP, dtype);
    int b = works("reduce", bsr_reduce(ctx, BSR_REDUCE_SUM, BSR_OVER_ROWS, &x, &sums, &run),
                  bsr_supports(ctx, BSR_OP_REDUCE, dtype, BSR_F32, 2, 2), BSR_OP_REDUCE, dtype);
    if (a != b) wrong = 1;
    return a;
}
static int conv(int dtype) {
    bsr_matrix w = matrix(dtype, 0), dw = matrix(dtype, 3);
    bsr_dense x = dense(dtype, 1), y = dense(dtype, 2);
    bsr_conv_shape shape = BSR_ZERO;
    int a, b;
    shape.dims = 1, shape.kernel[0] = 1;
    a = works("conv", bsr_conv(ctx, 0, NULL, 1, 0, &shape, &w, &x, NULL, &y, &run),
              bsr_supports(ctx, BSR_OP_CONV, dtype, dtype, 2, 2), BSR_OP_CONV, dtype);
    b = works("conv_weight_gradient", bsr_conv_weight_gradient(ctx, 0, NULL, 1, &shape, &y, &x, &dw, &run),
              bsr_supports(ctx, BSR_OP_CONV_WEIGHT_GRADIENT, dtype, dtype, 2, 2), BSR_OP_CONV_WEIGHT_GRADIENT, dtype);
    if (a != b) wrong = 1;
    return a;
}
static int moe(int dtype) { /* no tokens */
    bsr_moe_routing r = BSR_ZERO;
    bsr_dense experts = bsr_dense_row_major(space[0], BSR_I32, 0, 1), x = dense(dtype, 1), y = dense(dtype, 2);
    int a, b;
    r.slots = r.experts = r.block_rows = 1;
    r.counts = (int32_t *)(void *)space[3], r.offsets = (int32_t *)(void *)space[4], x.rows = y.rows = 0;
    a = works("moe_gather", bsr_moe_gather(ctx, &r, &x, NULL, &y, &run),
              bsr_supports(ctx, BSR_OP_MOE_GATHER, dtype, dtype, 2, 2), BSR_OP_MOE_GATHER, dtype);
    b = works("moe_route", bsr_moe_route(ctx, &experts, &r, &run), -1, BSR_OP_MOE_ROUTE, 0);
    if (a && !b) wrong = 1;
    return a;
}
static int layouts(void) {
    bsr_layout l = bsr_layout_default(BSR_LAYOUT_DENSE, 1, 2);
    uint8_t mask[4];
    return works("layout_mask", bsr_layout_mask(ctx, &l, mask, &run), -1, BSR_OP_LAYOUT, 0);
}
static int parse(void) {
    static const char smtx[] = "1, 1, 0\n0 0\n\n", mtx[] = "%%MatrixMarket matrix coordinate real general\n1 1 0\n";
    bsr_file_info info;
    int a = works("parse_smtx", bsr_parse_smtx(smtx, sizeof smtx - 1, &info, NULL, NULL, 0, &error), -1, BSR_OP_PARSE, 0);
    int b = works("parse_matrix_market", bsr_parse_matrix_market(mtx, sizeof mtx - 1, &info, NULL, NULL, NULL, 0, &error), -1,
                  BSR_OP_PARSE, 0);
    if (a != b) wrong = 1;
    return a;
}

int main(int argc, char **argv) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8, BSR_E4M3};
    char have[256] = "";
    bsr_context_desc desc = BSR_ZERO;
    bsr_info info;
    int i, type = 0, good[6];
    run.error = &error, desc.backend = BSR_BACKEND_CPU;
    if (bsr_create(&desc, &ctx, &error) || bsr_query_info(ctx, &info)) return 1;
    for (i = 0; i < 6; i++) {
        good[i] = product(dtypes[i]) + sampled(dtypes[i]) + maps(dtypes[i]) + conv(dtypes[i]);
        if (i < 4) good[i] += rows(dtypes[i]) + attention(dtypes[i]) + moe(dtypes[i]);
        if (good[i] && !type) type = dtypes[i];
    }
    if (!type) type = BSR_F32;
    if (product(type)) strcat(have, " product");
    if (sampled(type)) strcat(have, " sampled");
    if (type != BSR_I8 && type != BSR_E4M3 && rows(type)) strcat(have, " rows");
    if (type != BSR_I8 && type != BSR_E4M3 && attention(type)) strcat(have, " attention");
    if (maps(type)) strcat(have, " maps");
    if (conv(type)) strcat(have, " conv");
    if (type != BSR_I8 && type != BSR_E4M3 && moe(type)) strcat(have, " moe");
    if (layouts()) strcat(have, " layouts");
    if (parse()) strcat(have, " parse");
    for (i = 0; i < 6; i++)
        if (good[i]) strcat(have, " "), strcat(have, bsr_dtype_name(dtypes[i]));
    if (info.isa != BSR_ISA_PORTABLE) strcat(have, " simd");
    if (info.threads > 1) strcat(have, " threads");
    if (*bsr_item_string(BSR_ITEM_OVERLAP)) strcat(have, " text");
    bsr_destroy(ctx);
    for (i = 0; i < 128; i++)
        if (there[i / 64][i % 64] && absent[i / 64][i % 64])
            printf("%s %d works and is left out\n", i < 64 ? "operation" : "type", i % 64), wrong = 1;
    printf("this build has:%s\n", have);
    if (argc > 1 && strcmp(have + 1, argv[1])) printf("but expected:   %s\n", argv[1]), wrong = 1;
    return wrong;
}
