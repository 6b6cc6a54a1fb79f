/* gpu_kernels.cpp: Every kernel of the kernel table, by calls that no draw decides. */
#include "plans.h"

const char *gm_kernel(int i, int *number); /* library.cu */
/* So compute-sanitizer meets each kernel, whatever is drawn elsewhere: those of products in
   every_product_kernel, others in every_other_kernel. */
/* Families of gpu_conv, gpu_moe and gpu_experts, gpu_attention and its backward, gpu_decode, gpu_maps, gpu_masks, gpu_quantise,
   gpu_weights; copies and builders, which gpu_products and gpu_matrices call. That each of their kernels is called by some
   program is what gpu-sanitize checks. */
static bool of_another_program(const char *name) {
    for (const char *family : {"CONV_", "GATED_", "GROUPED_", "MOE_", "GRADIENT_", "ATTENTION_DECODE", "ATTENTION_MERGE", "MAP_",
                               "REDUCE_", "BLOCK_", "ATTENTION_FLEX", "ATTENTION_MMA", "QUANTISE_", "CONVERT_WEIGHTS",
                               "PRODUCT_WEIGHTS", "PRODUCT_NARROW_4", "PRODUCT_NARROW_8", "COPY_VIEWS",
                               "BUILD_", "REBLOCK_", "PRUNE_", "ENTRIES_"})
        if (!strncmp(name, family, strlen(family))) return true;
    return false;
}
struct noting {
    long *const before = gm_launches;
    long had[GM_KERNELS]; /* with --kernels calls of tests before count as well: they are not made again */
    noting() {
        gm_launches = gm.launches, memcpy(had, gm.launches, sizeof had);
        if (gm.kernels) memset(had, 0, sizeof had);
    }
    ~noting() { gm_launches = before; }
    void check(bool products) const {
        int number;
        for (int i = 0; const char *name = gm_kernel(i, &number); i++) {
            const bool product = strstr(name, "PRODUCT") || strstr(name, "SAMPLED") || strstr(name, "RETILE");
            if (product != products || of_another_program(name)) continue;
            bt_case("kernel %d, %s", number, name);
            CHECK(gm.launches[number] > had[number] || architecture() != 9);
        }
    }
};
/* Small and odd blocks, few columns and many, either layout, by rows and by the transposed index, blocks by columns and with
   gaps, in each way that the library has for them. */
static void each_small_block(int type) {
    static const int64_t sides[][2] = {{1, 1}, {2, 2},  {3, 3},  {4, 4},  {6, 9},  {8, 8},
                                       {5, 7}, {1, 12}, {17, 2}, {40, 3}, {3, 700}};
    static const int64_t widths[] = {1, 2, 5, 33, 36, 64, 333};
    int ran[4] = {0};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            for (int form = 0; form < 8; form++) { /* bits: transposed, dense operands by columns, a gap between blocks */
                const auto &side = sides[i];
                const int64_t n = widths[k];
                const bool large = side[0] * side[1] > 1000;
                if (large ? n > 36 || form > 1 : (i + k + (size_t)form) % 3) continue; /* each side and width meets each form */
                bt_case("%s, blocks of %d x %d, %d columns, form %d", bsr_dtype_name(type), (int)side[0], (int)side[1], (int)n,
                        form);
                t_spec s = spec_of(type, side[0], large ? 9 : 41, large ? 5 : 37, large ? 20 : 300);
                s.block_cols = side[1];
                if (form & 4) s.layout = n % 2 ? BLOCKS_GAPS : BLOCKS_COL;
                bsr_matrix a = t_matrix(&s);
                exact_columns(&a, n, form & 2 ? COL : ROW, form & 1, {0}, ran);
            }
    bt_case("%s: small blocks that ran", bsr_dtype_name(type));
    CHECK(ran[0] > 0);
}
/* One column of blocks that lanes load as they lie, by one, two, four, eight elements; few and many rows of a block. */
static void each_vector(int type) {
    static const int64_t heights[] = {1, 5, 33}, lines[] = {0, 1, 2, 4};
    int ran[4] = {0};
    for (int64_t br : heights)
        for (int64_t more : lines)
            for (int form = 0; form < 6; form++) { /* bits: transposed, b by columns with a gap; 4: blocks with gaps */
                const int64_t bc = (128 / (int64_t)bsr_dtype_size(type)) + more;
                bt_case("%s, blocks of %d x %d, one column, form %d", bsr_dtype_name(type), (int)br, (int)bc, form);
                t_spec s = spec_of(type, br, 23, 11, 90);
                s.block_cols = bc;
                if (form & 4) s.layout = more ? BLOCKS_GAPS : BLOCKS_COL;
                bsr_matrix a = t_matrix(&s);
                exact_columns(&a, 1, form & 2 ? COL : ROW, form & 1, {0}, ran);
            }
    CHECK(ran[0] > 0);
}
/* Few columns of small blocks as they lie, in each way that lanes share them: single elements, whole blocks, parts of 3 x 3,
   pieces of rows, several rows; columns one by one, by two and by four. */
static void each_few(int type) {
    static const int64_t sides[][2] = {{1, 1}, {2, 2}, {3, 2}, {3, 3}, {3, 4}, {4, 4},   {5, 5},   {6, 3},
                                       {7, 7}, {8, 4}, {8, 8}, {4, 5}, {9, 5}, {14, 14}, {15, 12}, {16, 16}};
    const int64_t rows = attribute(cudaDevAttrMultiProcessorCount) * 8 + 5;
    int ran[4] = {0};
    for (auto &side : sides)
        for (int64_t n : {1, 2, 3, 4, 8})
            for (int layout : {ROW, COL}) {
                if (layout == COL && n != 3 && n != 8) continue;
                bt_case("%s, blocks of %d x %d, %d columns", bsr_dtype_name(type), (int)side[0], (int)side[1], (int)n);
                t_spec s = spec_of(type, side[0], rows, 29, 9 * rows);
                s.block_cols = side[1];
                bsr_matrix a = t_matrix(&s);
                exact_columns(&a, n, layout, 0, {0}, ran);
            }
    CHECK(ran[1] > 0);
}
/* Rows far longer than others, first, last and beside each other, between rows without blocks: few columns, and sums that several
   warps have pieces of. By the library's choice alone, without and with a workspace: tiles take such a row for a second. */
static void each_long_row(int type) {
    static const int64_t sides[][2] = {{1, 1}, {3, 3}, {24, 24}};
    if (type == BSR_F16 && gm_compiled(BSR_BF16)) return; /* the same code; its sums of whole numbers end sooner */
    for (auto &side : sides)
        for (int64_t n : {1, 3}) {
            const int64_t area = side[0] * side[1], bytes = area * (int64_t)bsr_dtype_size(type);
            if (side[0] == (n == 1 ? 3 : 24)) continue;
            const int64_t blocks = 17000000 / bytes + 5, across = blocks / 3, rows = blocks / 8 + 200;
            bt_case("%s, rows of any length, blocks of %d x %d, %d columns", bsr_dtype_name(type), (int)side[0], (int)side[1],
                    (int)n);
            columns_of_rows all = rows_of(rows, [&](int64_t i) {
                if (i == 0 || i == rows / 2 || i == rows / 2 + 1) return numbers(0, across, 1 + i % 2);
                if (i == rows - 1) return numbers(across / 7, across / 2);
                return i % 3 ? numbers(i % across, std::min(i % across + i % 11, across)) : std::vector<int64_t>();
            });
            bsr_matrix a = matrix_of(type, side[0], side[1], across, all);
            int8_t *const values = (int8_t *)a.values; /* few are not zero, so that sums are whole numbers in any type */
            for (int64_t i = 0; i < a.nnz * bytes; i++)
                if (i / bytes % 97) values[i] = 0;
            const bsr_dense b = t_random(type, a.cols, n, n == 3 ? COL : ROW, NO_BATCH, 0, FILL_INTEGER);
            const bsr_dense c = t_output(type == BSR_I8 ? (int)BSR_I32 : type, a.rows, n, n == 3 ? COL : ROW, NO_BATCH);
            exact_chosen(&a, &b, &c);
        }
}
/* A sampled product with a's pattern, of whole numbers, by each tier; lines of both operands: ROW, COL. */
static void exact_sampled(const bsr_matrix *a, int64_t inner, int left, int right, int (&ran)[4]) {
    const int type = a->dtype, out = t_sums(type);
    bsr_dense x = t_random(type, a->rows, inner, left, NO_BATCH, 0, FILL_INTEGER),
              y = t_random(t_mixed(type), inner, a->cols, right, NO_BATCH, 0, FILL_INTEGER);
    bsr_matrix z = t_matrix_output(a, out, PACKED);
    gm_call h("bsr_sampled_addmm", gm.ctx, nullptr);
    auto dx = h.map(&x), dy = h.map(&y);
    auto dz = h.map(&z, true);
    h.upload();
    CHECK_INT(bsr_sampled_addmm(cpu(), 0, NULL, 1, &x, &y, &z, NULL), BSR_OK);
    for (uint32_t flag : {(uint32_t)0, (uint32_t)BSR_EXEC_TF32, (uint32_t)BSR_EXEC_TF32X3})
        if (!flag || type == BSR_F32)
            each_plan(h, z.values, out, exec_of(flag), ran,
                      [&](const bsr_exec *e) { return bsr_sampled_addmm(gm.ctx, 0, NULL, 1, dx, dy, dz, e); });
}
TEST(every_product_kernel) {
    const noting launches;
    static const int64_t blocks[] = {16, 32, 64, 128}, widths[] = {272, 264, 8, 16, 32, 64};
    const int major = architecture(), strips = attribute(cudaDevAttrMultiProcessorCount) * 3 / 4 + 2;
    for (int type : types) {
        int ran[2][4] = {{0}}; /* products, sampled products; by tier */
        const bool halves = type == BSR_BF16 || type == BSR_F16;
        if (!gm_compiled(type)) continue;
        for (int64_t block : blocks)
            for (int form = 0; form < 32; form++) { /* bits: transposed, dense operand column-major, by 4: width, more rows */
                const int trans = form & 1, layout = form & 2 ? COL : ROW, width = form / 4, many = width == 6;
                const int64_t n = !many ? widths[width % 6] : block == 64 ? 8 << (form & 3) : form & 1 ? 8 : 32;
                if (width > 6 || (many && block != 32 && !(halves && block == 64))) continue; /* 64: strips of few columns */
                bt_case("%s, blocks of %d, %d columns, form %d", bsr_dtype_name(type), (int)block, (int)n, form);
                const int64_t r = !many ? 256 / block + 1 : block == 64 ? strips : 4 * strips; /* 3 a multiprocessor, and more */
                const int64_t c_blocks = many ? 2 : width || block > 16 ? 4 : 64; /* 64: slots of mma's rings are used again */
                const t_spec s = spec_of(type, block, r, c_blocks, r * c_blocks / 2);
                bsr_matrix a = t_matrix(&s);
                if (type != BSR_F32) exact_columns(&a, n, layout, trans && !many, {0}, ran[0]);
                else exact_columns(&a, n, layout, trans && !many, {0, BSR_EXEC_TF32, BSR_EXEC_TF32X3}, ran[0]);
                if (width || trans) continue;
                for (int left : {ROW, COL}) exact_sampled(&a, 128, left, layout, ran[1]);
            }
        for (int64_t block : blocks) /* lines at any address: of the dense operand; of both, or one and products across lines */
            for (int form = 0; bsr_dtype_size(type) < 4 && form < 2; form++) {
                bt_case("%s, blocks of %d, 261 columns, 131 products, form %d", bsr_dtype_name(type), (int)block, form);
                const t_spec s = spec_of(type, block, 256 / block + 1, 6, (256 / block + 1) * 3);
                bsr_matrix a = t_matrix(&s);
                exact_columns(&a, 261, ROW, form, {0}, ran[0]);
                exact_sampled(&a, 131, ROW, form ? COL : ROW, ran[1]);
                if (halves) exact_columns(&a, 264, ROW, form, {0}, ran[0], ROW_PADDED); /* rows of out at any address */
            }
        each_small_block(type), each_few(type), each_vector(type), each_long_row(type);
        bt_case("%s: tiers that ran", bsr_dtype_name(type));
        CHECK(ran[0][1] > 0 && ran[1][1] > 0);
        if (major >= 8) CHECK(ran[0][2] > 0 && ran[1][2] > 0);
        if (bsr_dtype_size(type) < 4 && major == 9) CHECK(ran[0][3] > 0);
        if (halves && major == 9) CHECK(ran[1][3] > 0);
    }
    launches.check(true);
}

/* A type that a reduced build holds. */
static int any_type(void) {
    for (int type : types)
        if (gm_compiled(type)) return type;
    return BSR_F32;
}
/* Attention by a tier, with and without options, and by heads of 64 and 128. */
static void each_attention(int type, int tier, int64_t block) {
    for (int form = 0; form < 4; form++) {
        const int64_t d = form & 1 ? 128 : 64;
        const bool many = tier == 2; /* queries, of which few have a kernel of their own */
        const t_spec s = spec_of(type, block, many ? 24 : 2, 2, many ? 40 : 3);
        bsr_attention_options o = BSR_ZERO;
        bsr_exec e = t_exec(0);
        o.dropout_p = form & 2 ? 0.1 : 0.0;
        bt_case("attention, %s, tier %d, blocks of %d, form %d", bsr_dtype_name(type), tier, (int)block, form);
        bsr_matrix mask = t_matrix(&s);
        bsr_dense q = t_random(type, mask.rows, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  k = t_random(type, mask.cols, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  v = t_random(type, mask.cols, d, ROW, NO_BATCH, 0, FILL_SIGNED),
                  out = t_output(type, mask.rows, d, ROW, NO_BATCH);
        gm.tier = tier;
        (void)RUN_OK(gm_attention(cpu(), 0, &q, &k, &v, &mask, &o, &out, nullptr, &e));
        gm.tier = 0;
    }
}
/* Views of patterns that fit into few words, into more, into none; with 32 and 64 bits; what bsr_validate finds there, and in a
   matrix that has a column too many. */
static void each_view(int64_t across, int index_dtype) {
    t_spec s = spec_of(any_type(), 1, 12, across, 100);
    bsr_exec e = t_exec(0);
    uint64_t bytes[2] = {0, 0};
    s.index_dtype = index_dtype;
    bt_case("views, %d columns, %s", (int)across, bsr_dtype_name(index_dtype));
    bsr_matrix m = t_matrix(&s);
    const int64_t first = across < 89 ? across : 89; /* of 100 in the first of 12 rows: a schedule says that it is tall */
    for (int64_t i = 0, at = 0; i < 12; i++) {
        const int64_t start = at, end = first + i * (100 - first) / 11;
        for (; at < end; at++) t_set_index(m.col_indices, index_dtype, at, at - start + (i ? across / 2 : 0));
        t_set_index(m.crow_indices, index_dtype, i + 1, at);
    }
    if (!RUN_OK(bsr_transposed_index_size(cpu(), &m, &bytes[0], &e)) ||
        !RUN_OK(bsr_schedule_size(cpu(), &m, 2, 0, &bytes[1], &e)))
        return;
    void *view[2] = {bt_alloc((size_t)bytes[0], 64), bt_alloc((size_t)bytes[1], 64)};
    bt_mark_output(view[0]), bt_mark_output(view[1]);
    if (!RUN_OK(gm_build_transposed_index(cpu(), &m, view[0], bytes[0], &e)) ||
        !RUN_OK(gm_build_schedule(cpu(), &m, 2, 0, view[1], bytes[1], &e)))
        return;
    m.transposed_index = view[0], m.schedule = view[1];
    (void)RUN_OK(gm_validate(cpu(), &m, &e));
    int64_t *const tall = (int64_t *)view[1] + 7;
    CHECK_INT(*tall, across > 89);
    ++*tall;
    CHECK_INT(gm_validate(cpu(), &m, &e), BSR_BAD_STRUCTURE);
    --*tall;
    t_set_index(m.col_indices, index_dtype, 99, across);
    CHECK_INT(gm_validate(cpu(), &m, &e), BSR_BAD_STRUCTURE);
}
/* Lists of each format; all layouts; a matrix without rows. */
static void each_list(void) {
    t_spec s = spec_of(any_type(), 4, 6, 6, 20);
    bsr_exec e = t_exec(0);
    for (int format = 1; format <= 3; format++) {
        bsr_scatter_indices x = BSR_ZERO;
        bt_case("lists of format %d", format);
        bsr_matrix a = t_matrix(&s);
        x.format = format, x.split_n = 2;
        if (!RUN_OK(bsr_build_scatter_indices(cpu(), &a, 16, &x, &e))) continue;
        t_list_room(&x, 1);
        (void)RUN_OK(gm_build_scatter_indices(cpu(), &a, 16, &x, &e));
    }
    for (int kind : {BSR_LAYOUT_FIXED, BSR_LAYOUT_BIGBIRD}) {
        bsr_layout l = bsr_layout_default(kind, 2, 12);
        uint8_t *mask = (uint8_t *)bt_alloc(2 * 12 * 12, 1);
        bt_case("layout %d", kind), bt_mark_output(mask);
        (void)RUN_OK(gm_layout_mask(cpu(), &l, mask, &e));
    }
    bt_case("no rows");
    bsr_dense none = t_random(s.dtype, 0, 8, ROW, NO_BATCH, 0, FILL_INTEGER);
    s.r = 0, s.nnz = 0;
    bsr_matrix m = t_matrix(&s);
    m.rows = 0, m.cols = 8;
    (void)RUN_OK(gm_from_dense(cpu(), &none, &m, &e));
}
/* The kernels that look at index arrays first. */
static void each_look(void) {
    uint64_t *word = nullptr;
    gm_cuda("in cudaMalloc", cudaMalloc((void **)&word, 8));
    job_apart = true;
    for (int kind : {SOFTMAX, SOFTMAX_BACKWARD, FROM_COO, SCATTER}) {
        if (!takes(kind, any_type())) continue;
        bt_case("%s, indices looked at", job_names[kind]);
        job j = job_new(kind, any_type(), 16, 64, 0);
        (void)job_ready_checked(&j, gm.stream, word), job_end(&j);
    }
    job_apart = false;
    cudaFree(word);
}
/* Rows with biases of each type, added or not, by pieces of 16 bytes, by elements where a bias is not aligned, and rows that are
   longer than what a thread has room for. */
static void each_biased_row(int type) {
    static const int masks[] = {BSR_F16, BSR_BF16, BSR_F32, BSR_F64, BSR_I8, BSR_BOOL};
    for (int mask : masks)
        for (int form = 0; form < 8; form++) { /* bits: odd rows of the mask, a long row, the mask forbids */
            const int mode = form & 4 || mask == BSR_BOOL ? BSR_MASK_MUL : BSR_MASK_ADD;
            bt_case("softmax, %s, a mask in %s, form %d", bsr_dtype_name(type), bsr_dtype_name(mask), form);
            const t_spec s = spec_of(type, 16, 2, form & 2 ? 160 : 5, form & 2 ? 163 : 7);
            bsr_matrix x = t_matrix(&s), y = t_matrix_output(&x, type, PACKED);
            bsr_dense keys = t_random(mask, 1, x.cols, ROW, NO_BATCH, 0, FILL_INTEGER);
            bsr_dense all = t_random(mask, x.rows, x.cols + (form & 1 ? 1 : 16), ROW, NO_BATCH, 0, FILL_INTEGER);
            bsr_softmax_options o = BSR_ZERO;
            bsr_exec e = t_exec(0);
            all.cols = x.cols, o.key_padding_mask = &keys, o.attn_mask = &all, o.key_padding_mode = o.attn_mode = mode;
            (void)RUN_OK(gm_softmax(cpu(), 0.5, &x, &o, &y, &e));
        }
}
/* Every other kernel by calls that no draw decides. */
TEST(every_other_kernel) {
    const noting launches;
    const int kernels = gm.kernels;
    gm.kernels = 0;
    for (int kind = SOFTMAX; kind < JOBS; kind++)
        for (int type : types)
            for (int64_t block : {16, 5}) {
                if (!gm_compiled(type) || !takes(kind, type) || kind == ATTENTION) continue;
                if (kind >= TO_DENSE && (type != any_type() || block != 16)) continue;
                bt_case("%s, %s, blocks of %d", job_names[kind], bsr_dtype_name(type), (int)block);
                job j = job_new(kind, type, block, 64, 0);
                (void)job_ready(&j, gm.ctx, gm.stream), job_end(&j);
            }
    for (int type : types)
        if (gm_compiled(type) && takes(SOFTMAX, type)) each_biased_row(type);
    for (int type : types)
        if (gm_compiled(type) && takes(ATTENTION, type)) {
            each_attention(type, 1, 16);
            for (int tier = 1; tier <= 3; tier++) each_attention(type, tier, 64);
            each_attention(type, 3, 128);
        }
    for (int index : {BSR_I32, BSR_I64})
        for (int64_t across : {20, 600, 3000}) each_view(across, index);
    each_list();
    each_look();
    gm.kernels = kernels, launches.check(false);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"every_product_kernel", every_product_kernel}, {"every_other_kernel", every_other_kernel}};
    return job_main(argc, argv, tests, BT_COUNT(tests));
}
