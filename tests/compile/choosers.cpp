/* The choosers of the CUDA backend as plain C++, without nvcc or a GPU: each instance of the kernel table is found by what it is,
   costs have a row for each size, and calls on an H200, an A100 and an older GPU are given kernels of their tiers. */
#define BSRI_CHOOSERS
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include <stdio.h>

/* Any operand can be had. */
static int bsri_narrow_tma_maps(const bsr_context *, bsri_dev_narrow_tma *, int, int) { return 1; }
static int bsri_wgmma_maps(const bsr_context *, bsri_dev_wgmma *) { return 1; }
static int bsri_wgmma_sampled_maps(const bsr_context *, const bsri_dev_sampled *, bsri_dev_wgmma_sampled *, int) { return 1; }
static int bsri_flash_map(const bsr_context *, const bsr_dense *, int, bsri_tensor_batch *, bsri_tma_map *) { return 1; }
static int bsri_grouped_weights(const bsr_context *, bsri_tma_map *, const bsr_dense *, int) { return 1; }
static int bsri_grouped_few(const bsr_context *, bsri_tma_map *, const bsr_dense *, int) { return 1; }

static int failed, passed;
static void check(int ok, const char *what, int number) {
    if (ok) passed++;
    else failed++, printf("FAIL %s: %d\n", what, number);
}
static const bsri_instance *instance_of(int number) {
    const bsri_instance *x = bsri_instances;
    while (x->number && x->number != number) x++;
    return x->number ? x : NULL;
}
static void table(void) {
    for (const bsri_instance *x = bsri_instances; x->number; x++) {
        bsri_wanted w = bsri_want(x->of, x->tier, x->type);
        w.block = x->block, w.rows = x->rows, w.cols = x->cols, w.layout = x->layout, w.head = x->head, w.ctas = x->ctas;
        check(bsri_find(&w) == x, "an instance is found by what it is", x->number);
        check(instance_of(x->number) == x, "no number stands twice", x->number);
        check(x->threads >= 32 && x->threads <= 1024 && x->threads % 32 == 0, "threads", x->number);
        check(x->shared >= 0 && x->shared <= 227 * 1024, "shared memory", x->number);
        for (int size = 16; x->costs && size <= 128; size *= 2)
            check(bsri_costs_of[bsri_cost_kind(x->costs, size)].costs == x->costs, "costs", x->number);
    }
}
/* The instance that runs m x k (stored blocks: a tenth) times k x n. */
static const bsri_instance *product(const bsr_context *ctx, int dtype, int64_t m, int64_t k, int64_t n, int64_t block,
                                    int asked_tier, int64_t block_cols = 0) {
    static bsri_product_params params;
    char *const data = (char *)(uintptr_t)(INT64_C(1) << 40);
    const int64_t across = block_cols ? block_cols : block;
    const bsr_matrix a = bsr_matrix_make(m, k, block, across, m / block * (k / across) / 10 + 1, data, data, BSR_I32,
                                         data + (INT64_C(1) << 36), dtype);
    const bsr_dense b = bsr_dense_row_major(data + (INT64_C(1) << 37), dtype, k, n);
    const bsr_dense out = bsr_dense_row_major(data + (INT64_C(1) << 38), dtype, m, n);
    bsri_product job;
    bsri_dev_product p;
    bsr_plan asked;
    memset(&job, 0, sizeof job), memset(&asked, 0, sizeof asked), memset(&params, 0, sizeof params);
    job.a = &a, job.b = &b, job.out = &out, job.alpha = 1;
    job.compute = dtype == BSR_F64 ? BSR_F64 : dtype == BSR_I8 ? BSR_I32 : BSR_F32;
    job.batch = bsri_batch_of(0, NULL), asked.kernel = asked_tier;
    bsri_cuda_describe(&job, &p);
    bsri_chooser s = bsri_chooser_for(&asked);
    bsri_choose_product(ctx, &p, job.compute, &s, &params);
    return s.best.kernel ? instance_of(s.best.kernel) : NULL;
}
static void products(const bsr_context *cpu) {
    static const int64_t blocks[] = {16, 32, 64, 128}, widths[] = {8, 64, 1024, 16384};
    static const int64_t odd[] = {33, 100, 333, 4090, 4095};
    bsr_context gpu[3] = {*cpu, *cpu, *cpu};
    static const int tiers[3] = {BSRI_TIER_WGMMA, BSRI_TIER_MMA, BSRI_TIER_SIMT}, multiprocessors[3] = {132, 108, 40},
                     shared[3] = {232448, 166912, 65536};
    for (int g = 0; g < 3; g++) {
        gpu[g].backend = BSR_BACKEND_CUDA, gpu[g].tier = tiers[g], gpu[g].sm_count = multiprocessors[g];
        gpu[g].smem_optin = shared[g], gpu[g].tensor_map = g ? NULL : (void *)&gpu;
        for (int64_t block : blocks)
            for (int64_t n : widths) {
                const bsri_instance *half = product(&gpu[g], BSR_BF16, 4096, 4096, n, block, 0);
                const bsri_instance *f32 = product(&gpu[g], BSR_F32, 4096, 4096, n, block, 0);
                const bsri_instance *f64 = product(&gpu[g], BSR_F64, 4096, 4096, n, block, 0);
                check(half && (half->type == BSRI_TYPE_BF16 || (g == 2 && half->type == BSRI_TYPE_F32)), "a product of bf16",
                      (int)block);
                check(half && half->tier <= tiers[g] && (g == 2) == (half->tier == BSRI_TIER_SIMT), "its tier", (int)block);
                check(f32 && f32->type == BSRI_TYPE_F32 && f32->tier <= BSRI_TIER_MMA, "a product of f32", (int)block);
                check(f64 && f64->type == BSRI_TYPE_F64 && (g == 2) == (f64->tier == BSRI_TIER_SIMT), "a product of f64",
                      (int)block);
                for (int tier = 1; tier <= 3; tier++) {
                    const bsri_instance *x = product(&gpu[g], BSR_BF16, 4096, 4096, n, block, tier);
                    check(tier <= tiers[g] ? x && x->tier == tier : !x, "the tier that is asked for", tier);
                }
            }
    }
    check(product(&gpu[0], BSR_BF16, 4096, 4096, 4096, 128, 0)->number == BSRI_KERNEL_PRODUCT_WGMMA_64_256_BF16, "4096^3 by 128",
          0);
    check(product(&gpu[0], BSR_BF16, 4096, 4096, 4096, 16, 0)->number == BSRI_KERNEL_PRODUCT_WGMMA_16_256_ROWS_BF16, "by 16", 0);
    check(product(&gpu[0], BSR_BF16, 14336, 4096, 8, 64, 0)->of == BSRI_FOR_NARROW, "few columns", 8);
    check(product(&gpu[0], BSR_BF16, 256, 256, 256, 32, 0)->of == BSRI_FOR_SMALL, "little to do", 256);
    for (int64_t block : blocks) /* columns that are not whole pieces of 16 bytes: of 8 and 16 bits, elements are not gathered */
        for (int64_t n : odd) {
            check(product(&gpu[1], BSR_F16, 4096, 4096, n, block, 0)->of == BSRI_FOR_SHIFTED, "dense at any address", (int)n);
            check(product(&gpu[0], BSR_BF16, 4096, 4096, n, block, 0)->of == BSRI_FOR_SHIFTED, "the same", (int)n);
            check(product(&gpu[0], BSR_I8, 4096, 4096, n, block, 0)->of == BSRI_FOR_SHIFTED, "the same of i8", (int)n);
        }
}
/* Blocks of other sides that are multiples of 16 run where the tiles do that they are seen as; elements of what no tile divides
   are gathered for tier mma. */
static void sides(const bsr_context *cpu) {
    static const struct {
        int64_t rows, cols, tile;
    } blocks[] = {{256, 256, 128}, {192, 192, 64}, {128, 64, 64},  {64, 128, 64}, {256, 64, 64},  {64, 192, 64}, {96, 96, 32},
                  {64, 32, 32},    {32, 64, 32},   {96, 32, 32},   {48, 48, 16},  {16, 64, 16},   {64, 16, 16},  {128, 16, 16},
                  {80, 80, 16},    {1024, 384, 128}, {2048, 16, 16}, {24, 24, 0}, {100, 100, 0},  {8, 64, 0},    {40, 16, 0}};
    bsr_context gpu = *cpu;
    gpu.backend = BSR_BACKEND_CUDA, gpu.sm_count = 132, gpu.smem_optin = 232448, gpu.tensor_map = (void *)&gpu;
    for (int tier = BSRI_TIER_MMA; tier <= BSRI_TIER_WGMMA; tier++)
        for (const auto &b : blocks) {
            const int name = (int)(b.rows * 10000 + b.cols);
            gpu.tier = tier;
            const bsri_instance *x = product(&gpu, BSR_BF16, 12288, 6144 / b.cols * b.cols, 4096, b.rows, tier, b.cols);
            const bsri_instance *f32 = product(&gpu, BSR_F32, 12288, 6144 / b.cols * b.cols, 4096, b.rows, BSRI_TIER_MMA, b.cols);
            const bsri_instance *i8 = product(&gpu, BSR_I8, 12288, 6144 / b.cols * b.cols, 4096, b.rows, BSRI_TIER_MMA, b.cols);
            const auto gathered = [](const bsri_instance *y) { return y && y->of == BSRI_FOR_GATHER; };
            if (b.tile) check(x && x->tier == tier && x->block <= b.tile && !gathered(x), "blocks seen as tiles, bf16", name);
            else check(tier == BSRI_TIER_MMA ? gathered(x) : !x, "blocks of other sides, bf16", name);
            check(f32 && f32->tier == BSRI_TIER_MMA && gathered(f32) == !b.tile, "blocks seen as tiles, f32", name);
            check(i8 && i8->tier == BSRI_TIER_MMA && (b.tile == 16 || gathered(i8) == !b.tile), "blocks seen as tiles, i8",
                  name); /* of tiles of 16 either, as the estimate says */
            check(bsri_tile_of(b.rows, b.cols, 128) == b.tile, "the largest tile", name);
        }
    /* By magic numbers: all quotients. */
    for (int64_t d = 1; d <= 1024; d++) {
        const bsri_list_view v = bsri_view_of(d, d);
        const uint32_t most = (uint32_t)(d > 1 ? 0xffffffffu / (d - 1) : 0xffffffffu);
        const uint32_t numbers[] = {0u, 1u, (uint32_t)d - 1, (uint32_t)d, most / (uint32_t)d * (uint32_t)d - 1, most - 1};
        for (uint32_t n : numbers)
            check((v.by_cols ? (uint32_t)((uint64_t)n * v.by_cols >> 32) : n) == n / d, "a quotient", (int)d);
    }
}
int main(void) {
    bsr_context_desc d = BSR_ZERO;
    bsr_context *cpu;
    d.backend = BSR_BACKEND_CPU;
    if (bsr_create(&d, &cpu, NULL) != BSR_OK) return 1;
    table(), products(cpu), sides(cpu);
    bsr_destroy(cpu);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed < 1000;
}
