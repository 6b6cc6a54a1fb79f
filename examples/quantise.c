/* A matrix in fewer bits: `quantise [--block 32] [--prune 80] [--cols 256] [matrix.mtx | matrix.smtx]` prunes it, makes 8-bit
   numbers with scales of its values and of what it is multiplied by, and says for each type what that costs: bytes, errors, time
   beside bf16. Without a file: the weights of a layer, normally distributed, a few of them large. */
#define BSRSPARSE_IMPLEMENTATION
#include "quantise.h"

/* One type: scales of A's rows or of its blocks, of B's columns. */
static int one_type(const numbers *whole, int dtype, int by_blocks, double bf16, int64_t bf16_bytes) {
    const int64_t n = whole->A.nnz * block * block, kn = whole->A.cols * cols, mn = whole->A.rows * cols;
    const double limit = dtype == BSR_E4M3 ? 448 : dtype == BSR_E5M2 ? 57344 : 127;
    const double relative = dtype == BSR_E4M3 ? 0x1p-4 : dtype == BSR_E5M2 ? 0x1p-3 : 0, least = dtype == BSR_I8 ? 0.5 : 0x1p-10;
    const float *w = (const float *)whole->A.values;
    double took, largest = 0, off, start;
    numbers q = *whole, back = *whole;
    int64_t i, bytes, scales = by_blocks ? whole->A.nnz : whole->A.rows;
    int good = 1;
    q.A.dtype = dtype, q.A.values = allocate(n, 1), q.B.dtype = dtype, q.B.data = allocate(kn, 1);
    q.a_scale = bsr_dense_row_major(allocate(scales, sizeof(float)), BSR_F32, by_blocks ? 1 : scales, 1);
    if (by_blocks) q.a_scale = bsr_dense_batched(q.a_scale, scales, 1), q.a_scales.flags = BSR_SCALES_BLOCKS;
    q.b_scale = bsr_dense_row_major(allocate(cols, sizeof(float)), BSR_F32, 1, cols);
    q.a_scales.group_rows = !by_blocks, q.b_scales.group_cols = 1;
    q.a_scales.scale = &q.a_scale, q.b_scales.scale = &q.b_scale;
    q.epilogue.a_scales = &q.a_scales, q.epilogue.b_scales = &q.b_scales, q.C.data = allocate(mn, sizeof(float));
    quantise(bsr_operand_sparse(&whole->A), bsr_operand_sparse(&q.A), &q.a_scales);
    start = seconds(), quantise(bsr_operand_dense(&whole->B), bsr_operand_dense(&q.B), &q.b_scales), start = seconds() - start;
    took = multiply(&q);
    back.A.values = allocate(n, sizeof(float)), back.B.data = allocate(kn, sizeof(float));
    back.C.data = allocate(mn, sizeof(float));
    REQUIRE(bsr_dequantise(ctx, bsr_operand_sparse(&q.A), &q.a_scales, bsr_operand_sparse(&back.A), &run), &error);
    REQUIRE(bsr_dequantise(ctx, bsr_operand_dense(&q.B), &q.b_scales, bsr_operand_dense(&back.B), &run), &error);
    REQUIRE(bsr_dense_mm(ctx, 0, &back.A, &back.B, &back.C, &run), &error);
    for (i = 0; i < n; i++) largest = fmax(largest, fabs((double)w[i]));
    for (i = 0; i < n; i++) /* a scale is a group's largest over the type's, at most */
        good &= fabs((double)w[i] - (double)((float *)back.A.values)[i]) <=
                relative * fabs((double)w[i]) + 1.001 * least * largest / limit;
    off = apart((float *)q.C.data, (float *)back.C.data, mn), good &= off < 0x1p-8;
    bytes = n + scales * 4;
    printf("%-5s %-7s %10lld %4.2f  %9.5f  %9.5f  %9.1f %5.2f  %9.1f%s\n", bsr_dtype_name(dtype), by_blocks ? "blocks" : "rows",
           (long long)bytes, (double)bytes / (double)bf16_bytes, apart((float *)back.A.values, w, n),
           apart((float *)q.C.data, (float *)whole->C.data, mn), 1e6 * took, bf16 / took, 1e6 * start, good ? "" : "  WRONG");
    release((void *)(uintptr_t)q.A.values), release(q.B.data), release(q.a_scale.data), release(q.b_scale.data),
        release(q.C.data);
    release((void *)(uintptr_t)back.A.values), release(back.B.data), release(back.C.data);
    return good;
}

int main(int argc, char **argv) {
    static const int types[] = {BSR_E4M3, BSR_E5M2, BSR_I8};
    const char *path = argc % 2 == 0 && strcmp(argv[argc - 1], "--help") ? argv[--argc] : NULL;
    const double sparsity =
        0.01 * (double)option(argc, argv, "--prune", 80, 0, 100, "per cent of the blocks that are taken away");
    numbers whole, half;
    uint64_t random = 1;
    float *as_bf16;
    double took;
    int64_t n, bytes;
    int good = 1, i;
    block = option(argc, argv, "--block", 32, 1, 1024, "rows and columns of a block");
    cols = option(argc, argv, "--cols", 256, 1, 1 << 16, "columns of the matrix that it is multiplied by");
    options_end(argc, argv);
    ctx = open_backend(argc, argv, 0, &builder), print_backend(ctx);
    run.error = &error, memset(&whole, 0, sizeof whole);
    whole.A = make_matrix(path, sparsity, &random), n = whole.A.nnz * block * block;
    whole.B = bsr_dense_col_major(allocate(whole.A.cols * cols, sizeof(float)), BSR_F32, whole.A.cols, cols);
    whole.C = bsr_dense_row_major(allocate(whole.A.rows * cols, sizeof(float)), BSR_F32, whole.A.rows, cols);
    fill_normal_f32((float *)whole.B.data, whole.A.cols * cols, &random), multiply(&whole);
    half = whole, half.A.dtype = half.B.dtype = BSR_BF16, bytes = 2 * n;
    half.A.values = converted(builder, whole.A.values, BSR_F32, BSR_BF16, n);
    half.B.data = converted(builder, whole.B.data, BSR_F32, BSR_BF16, whole.A.cols * cols);
    half.C.data = allocate(whole.A.rows * cols, sizeof(float)), took = multiply(&half);
    printf("type  scales  bytes of A /bf16  error of A  of product  us, product, faster  us, quantising B\n");
    as_bf16 = (float *)converted(builder, half.A.values, BSR_BF16, BSR_F32, n);
    printf("%-5s %-7s %10lld 1.00  %9.5f  %9.5f  %9.1f  1.00\n", "bf16", "none", (long long)bytes,
           apart(as_bf16, (float *)whole.A.values, n), apart((float *)half.C.data, (float *)whole.C.data, whole.A.rows * cols),
           1e6 * took);
    for (i = 0; i < 6; i++) good &= one_type(&whole, types[i / 2], i % 2, took, bytes);
    release((void *)(uintptr_t)half.A.values), release(half.B.data), release(half.C.data), release(as_bf16);
    release((void *)(uintptr_t)whole.A.crow_indices), release((void *)(uintptr_t)whole.A.col_indices);
    release((void *)(uintptr_t)whole.A.values), release(whole.B.data), release(whole.C.data), release(memory);
    bsr_destroy(ctx), bsr_destroy(builder);
    return verdict(good);
}
