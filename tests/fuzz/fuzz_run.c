/* fuzz_run.c: bytes to descriptors to a call of any operation, on tiny sizes. Whatever they hold, the call returns a status and
   touches only memory that the descriptors name. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz_operands.h"

#include <math.h>

static double fuzz_scalar(fuzz_input *in) {
    static const double list[] = {1, 0, 2, -1, 0.5, 1e30, -3, 1};
    unsigned b = fuzz_byte(in);
    return b == 255 ? (double)NAN : b == 254 ? (double)INFINITY : list[b % 8];
}
static int64_t *fuzz_list(fuzz_input *in, int64_t n, int top) {
    int64_t *list, i;
    if (n < 0 || n > 4000) return NULL;
    list = (int64_t *)fuzz_alloc((size_t)n * 8);
    for (i = 0; i < n; i++) list[i] = fuzz_size(in, top);
    return list;
}
static bsr_scatter_indices fuzz_indices(fuzz_input *in, int ascending) {
    bsr_scatter_indices x;
    int64_t i;
    memset(&x, 0, sizeof x);
    x.format = (int32_t)fuzz_below(in, 5), x.split_n = fuzz_size(in, 4);
    x.c_count = fuzz_size(in, 6), x.r_count = fuzz_size(in, 6), x.p_count = fuzz_size(in, 9),
    x.q_count = fuzz_below(in, 3) ? x.p_count : fuzz_size(in, 9);
    x.c_indices = fuzz_list(in, x.c_count, 5), x.r_offsets = fuzz_list(in, x.r_count, 30),
    x.p_indices = fuzz_list(in, x.p_count, 5), x.q_indices = fuzz_list(in, x.q_count, 30);
    for (i = 0; x.c_indices && ascending && i < x.c_count; i++) x.c_indices[i] = i;
    return x;
}
static bsr_operand fuzz_operand(fuzz_input *in, const bsr_dense *d, const bsr_matrix *m, int sparse) {
    bsr_operand o;
    unsigned b = fuzz_byte(in);
    o.dense = sparse ? NULL : d, o.sparse = sparse ? m : NULL;
    if (b == 255) o.dense = d, o.sparse = m;
    if (b == 254) o.dense = NULL, o.sparse = NULL;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int dtypes[] = {BSR_F32, BSR_F64, BSR_F16, BSR_BF16, BSR_I8};
    const bsr_context *ctx = fuzz_context();
    fuzz_input in;
    bsr_error error;
    bsr_exec e = BSR_ZERO;
    bsr_plan plan;
    bsr_status status = BSR_OK;
    unsigned call, form;
    int dtype, out_dtype, trans;
    int64_t r, c, br, bc, n, m, k;
    bsr_matrix a, s;
    bsr_dense x, y, z, out;
    in.p = data, in.end = data + size, e.error = &error;
    memset(&error, 0, sizeof error);
    call = fuzz_byte(&in), call = call < 231 ? call % 21 : 21 + call % 5; /* a corpus's bytes keep their meaning */
    form = fuzz_byte(&in), dtype = dtypes[fuzz_byte(&in) % 5],
    out_dtype = dtype == BSR_I8 && form & 1 ? BSR_I32 : dtype;
    r = fuzz_below(&in, 4), c = fuzz_below(&in, 4), br = 1 + fuzz_below(&in, 5), bc = 1 + fuzz_below(&in, 5),
    n = fuzz_below(&in, 20);
    trans = form >> 1 & 1, m = trans ? c * bc : r * br, k = trans ? r * br : c * bc;
    if (form % 32 == 31)
        memset(&plan, 0, sizeof plan), plan.op = (int32_t)fuzz_byte(&in), plan.kernel = (int32_t)fuzz_byte(&in), e.plan = &plan;
    if (form % 32 == 30) e.query = &plan;
    if (form % 32 == 29) e.flags = fuzz_byte(&in);
    e.flags &= ~(uint32_t)BSR_EXEC_SKIP_CHECKS;
    a = fuzz_matrix(&in, dtype, r, c, br, bc);
    fuzz_views(&in, ctx, &a);
    switch (call) {
        case 0:
        case 1: {
            bsr_dense left = fuzz_dense(&in, out_dtype, m, 1), bias = fuzz_dense(&in, out_dtype, 1, n),
                      input = fuzz_dense(&in, out_dtype, m, n);
            bsr_epilogue ep;
            double alpha = fuzz_scalar(&in), beta = fuzz_scalar(&in);
            memset(&ep, 0, sizeof ep);
            ep.activation = form & 8 ? (int32_t)fuzz_byte(&in) % 6 : 0;
            if (form & 16) ep.left_alpha = &left;
            if (form & 32) ep.bias = &bias;
            x = fuzz_dense(&in, dtype, k, n), out = fuzz_dense(&in, out_dtype, m, n);
            if (form & 64) out = input;
            status = bsr_dense_addmm(ctx, beta, form & 4 ? &input : NULL, alpha, trans ? BSR_TRANS_A : 0, &a, &x,
                                     form & 128 ? &ep : NULL, &out, &e);
            break;
        }
        case 2: {
            bsr_scatter_indices list = fuzz_indices(&in, form & 4);
            x = fuzz_dense(&in, dtype, br, bc), x.batch_dims = form & 8 ? 0 : x.batch_dims;
            y = fuzz_dense(&in, dtype, list.format == 1 ? bc : c * bc, n),
            out = fuzz_dense(&in, out_dtype, list.format == 1 ? br : r * br, n);
            status = bsr_scatter_mm(ctx, &x, &y, &list, &out, &e);
            break;
        }
        case 3: {
            bsr_scatter_indices list = fuzz_indices(&in, form & 4);
            int64_t i;
            if (form & 8) { /* indices that the library builds, and perhaps one of them changed */
                memset(&list, 0, sizeof list), list.format = 1 + (int32_t)fuzz_below(&in, 3), list.split_n = fuzz_below(&in, 3);
                if (bsr_build_scatter_indices(ctx, &a, n, &list, NULL) == BSR_OK &&
                    list.c_count + list.q_count + list.r_count + list.p_count < 5000) {
                    list.c_indices = fuzz_list(&in, list.c_count, 9), list.r_offsets = fuzz_list(&in, list.r_count, 9);
                    list.p_indices = fuzz_list(&in, list.p_count, 9), list.q_indices = fuzz_list(&in, list.q_count, 9);
                    FUZZ_REQUIRE(bsr_build_scatter_indices(ctx, &a, n, &list, NULL) == BSR_OK);
                    i = fuzz_below(&in, 40);
                    if (i < list.q_count && form & 16) list.q_indices[i] = fuzz_size(&in, 30);
                }
            }
            x = fuzz_dense(&in, dtype, c * bc, n), out = fuzz_dense(&in, out_dtype, r * br, n);
            status = bsr_dense_scatter_mm(ctx, &a, &x, &list, &out, &e);
            break;
        }
        case 4: /* DSD, DDS, SDD */
        case 5: {
            int mode = (int)fuzz_below(&in, 3);
            unsigned t = fuzz_byte(&in) % 9;
            x = fuzz_dense(&in, dtype, n, form & 4 ? r * br : c * bc), y = fuzz_dense(&in, dtype, form & 4 ? r * br : c * bc, n),
            out = fuzz_dense(&in, out_dtype, mode == 1 ? n : r * br, mode == 1 ? c * bc : n);
            s = fuzz_matrix(&in, out_dtype, r, c, br, bc);
            status = call == 4
                         ? bsr_matmul(ctx, t, fuzz_operand(&in, &x, &a, mode == 0), fuzz_operand(&in, &y, &a, mode == 1),
                                      fuzz_operand(&in, &out, &s, mode == 2), &e)
                         : bsr_matmul_backward(ctx, t, fuzz_operand(&in, &x, &a, mode == 0), fuzz_operand(&in, &y, &a, mode == 1),
                                               fuzz_operand(&in, &x, &a, mode == 2), fuzz_operand(&in, &out, &s, mode == 0),
                                               fuzz_operand(&in, &out, &s, mode == 1), &e);
            break;
        }
        case 6:
        case 7:
            s = a;
            if (form & 4) s = fuzz_matrix(&in, out_dtype, r, c, br, bc);
            x = fuzz_dense(&in, dtype, r * br, n), y = fuzz_dense(&in, dtype, n, c * bc),
            a.dtype = out_dtype == BSR_I32 ? dtype : a.dtype;
            status = bsr_sampled_addmm(ctx, fuzz_scalar(&in), form & 8 ? &s : NULL, fuzz_scalar(&in), &x, &y, &a, &e);
            break;
        case 8:
        case 9: {
            bsr_softmax_options o;
            memset(&o, 0, sizeof o);
            x = fuzz_dense(&in, dtype, r * br, c * bc), y = fuzz_dense(&in, form & 8 ? BSR_BOOL : dtype, 1, c * bc),
            o.key_padding_mode = (int32_t)fuzz_below(&in, 3), o.attn_mode = form >> 4 & 1;
            if (form & 32) o.relative_bias = &x;
            if (form & 64) o.key_padding_mask = &y;
            if (form & 128) o.attn_mask = &x;
            s = form & 4 ? a : fuzz_matrix(&in, dtype, r, c, br, bc);
            status = call == 8 ? bsr_softmax(ctx, fuzz_scalar(&in), &a, &o, &s, &e)
                               : bsr_softmax_backward(ctx, fuzz_scalar(&in), &a, form & 1 ? &a : &s, &s, &e);
            break;
        }
        case 10:
        case 11: {
            bsr_attention_options o;
            bsr_dense bias, key, lse;
            memset(&o, 0, sizeof o);
            o.flags = (uint32_t)fuzz_byte(&in) % 9, o.key_padding_mode = (int32_t)fuzz_below(&in, 3),
            o.causal_offset = fuzz_size(&in, 9), o.dropout_p = form & 4 ? fuzz_scalar(&in) : 0, o.dropout_seed = form;
            bias = fuzz_dense(&in, dtype, r * br, c * bc), key = fuzz_dense(&in, form & 8 ? BSR_BOOL : dtype, 1, c * bc);
            if (form & 16) o.relative_bias = &bias;
            if (form & 32) o.key_padding_mask = &key;
            x = fuzz_dense(&in, dtype, r * br - (r && form & 64 ? br - 1 : 0), n), y = fuzz_dense(&in, dtype, c * bc, n),
            z = fuzz_dense(&in, dtype, c * bc, 1 + fuzz_below(&in, 20));
            out = fuzz_dense(&in, dtype, x.rows, z.cols), lse = fuzz_dense(&in, dtype == BSR_F64 ? BSR_F64 : BSR_F32, x.rows, 1);
            status = bsr_attention(ctx, fuzz_scalar(&in), &x, &y, &z, &a, &o, &out, form & 128 ? &lse : NULL, &e);
            break;
        }
        case 12: out = fuzz_dense(&in, dtype, r * br, c * bc), status = bsr_to_dense(ctx, &a, &out, &e); break;
        case 13:
        case 14:
            x = fuzz_dense(&in, dtype, r * br, c * bc);
            if (!a.rows) break; /* "as the source": its crow might be too short */
            if (call == 13) status = bsr_from_dense(ctx, &x, &a, &e);
            else if (form & 4) status = bsr_prune(ctx, bsr_operand_dense(&x), fuzz_scalar(&in), (int)fuzz_below(&in, 4), &a, &e);
            else
                s = fuzz_matrix(&in, dtype, r, c, br, bc),
                status = bsr_prune(ctx, bsr_operand_sparse(&s), fuzz_scalar(&in), (int)fuzz_below(&in, 4), &a, &e);
            break;
        case 15:
        case 16: { /* CSR or COO of exactly these sizes */
            int64_t rows = fuzz_below(&in, 9), cols = fuzz_size(&in, 9), nnz = fuzz_below(&in, 20), i;
            int32_t *first = (int32_t *)fuzz_filled(&in, (size_t)(call == 15 ? rows + 1 : nnz) * 4),
                    *col = (int32_t *)fuzz_filled(&in, (size_t)nnz * 4);
            float *values = (float *)fuzz_filled(&in, (size_t)nnz * 4);
            for (i = 0; i < (call == 15 ? rows + 1 : nnz) && form & 4; i++)
                first[i] = (int32_t)(call == 15 ? rows ? i * nnz / rows : 0 : rows ? i % rows : 0);
            for (i = 0; i < nnz && form & 8 && cols > 0 && cols < 100; i++) col[i] = (int32_t)(i * 3 % cols);
            if (a.block_rows < 1 || a.block_rows > 300 || (rows + a.block_rows - 1) / a.block_rows * a.block_rows > a.rows)
                break; /* crow must be there */
            status = call == 15 ? bsr_from_csr(ctx, rows, cols, nnz, first, col, BSR_I32, values, BSR_F32, &a, &e)
                                : bsr_from_coo(ctx, rows, cols, nnz, first, col, BSR_I32, values, BSR_F32, &a, &e);
            break;
        }
        case 17:
            if (a.rows < 500) status = bsr_random_pattern(ctx, form, fuzz_scalar(&in) * 0.5, &a, &e);
            break;
        case 18: {
            bsr_layout l = bsr_layout_default((int)fuzz_below(&in, 8), fuzz_below(&in, 4), fuzz_below(&in, 12));
            int64_t list[3], ends[3], windows[3];
            int i;
            uint8_t *mask = (uint8_t *)fuzz_alloc((size_t)(l.heads * l.blocks * l.blocks));
            l.unidirectional = (int32_t)fuzz_below(&in, 3), l.different_layout_per_head = (int32_t)fuzz_below(&in, 2),
            l.horizontal_global_attention = (int32_t)fuzz_below(&in, 2);
            l.num_local_blocks = fuzz_size(&in, 9), l.num_global_blocks = fuzz_size(&in, 5),
            l.num_different_global_patterns = fuzz_size(&in, 5), l.num_random_blocks = fuzz_size(&in, 5),
            l.num_sliding_window_blocks = fuzz_size(&in, 9);
            for (i = 0; i < 3; i++) list[i] = fuzz_size(&in, 12), ends[i] = fuzz_size(&in, 14), windows[i] = fuzz_size(&in, 6);
            if (form & 1) l.local_window_blocks = windows, l.num_local_windows = fuzz_below(&in, 4);
            if (form & 2) l.global_block_indices = list, l.num_global_indices = fuzz_below(&in, 4);
            if (form & 4) l.global_block_end_indices = ends;
            status = bsr_layout_mask(ctx, &l, mask, &e);
            for (i = 0; status == BSR_OK && !e.query && i < l.heads * l.blocks * l.blocks; i++) FUZZ_REQUIRE(mask[i] <= 1);
            break;
        }
        case 20: { /* another block size, CSR or COO: arrays of exactly the capacity */
            int64_t cap = fuzz_below(&in, 20), rows = fuzz_below(&in, 9), cols = fuzz_size(&in, 9), nnz = cap;
            const int64_t tr = form & 4 ? 1 : 1 + fuzz_below(&in, 5), tc = form & 4 ? 1 : 1 + fuzz_below(&in, 5);
            const int64_t lines = form & 4 ? rows : a.rows > 0 && a.rows < 500 ? a.rows : 0;
            int32_t *crow = (int32_t *)fuzz_alloc((size_t)(lines + 1) * 4), *col = (int32_t *)fuzz_alloc((size_t)cap * 4),
                    *row = (int32_t *)fuzz_alloc((size_t)cap * 4);
            float *values = (float *)fuzz_alloc((size_t)(cap * tr * tc) * 4);
            s = bsr_matrix_make(0, 0, tr, tc, cap, crow, form & 16 ? NULL : col, BSR_I32, form & 16 ? NULL : values, BSR_F32);
            if (form & 4) {
                status = form & 8
                             ? bsr_to_csr(ctx, &a, rows, cols, &nnz, crow, s.col_indices, BSR_I32, s.values, BSR_F32, &e)
                             : bsr_to_coo(ctx, &a, rows, cols, &nnz, crow, row, s.col_indices, BSR_I32, s.values, BSR_F32, &e);
            } else if (a.rows >= 0 && a.rows < 500) {
                s.batch_dims = 0, status = bsr_reblock(ctx, &a, &s, &e);
                if (status == BSR_OK && !e.query && s.col_indices) FUZZ_REQUIRE(bsr_validate(ctx, &s, NULL) == BSR_OK);
            }
            break;
        }
        case 21: { /* a block mask of exactly the capacity, within a or without */
            const int64_t lq = fuzz_size(&in, 18), lk = fuzz_size(&in, 18), cap = fuzz_below(&in, 20);
            const int64_t lines = lq > 0 && lq < 500 ? lq : 0, cols = lk > 0 && lk < 500 ? lk : 0;
            bsr_attention_options o;
            bsr_lengths l;
            bsr_dense key;
            if (lq > 500 && lq < 1000000) break; /* its crow might be too short */
            memset(&o, 0, sizeof o), memset(&l, 0, sizeof l);
            o.flags = (uint32_t)fuzz_byte(&in) % 33, o.key_padding_mode = (int32_t)fuzz_below(&in, 3);
            o.causal_offset = fuzz_size(&in, 9), o.window_left = fuzz_size(&in, 9), o.window_right = fuzz_size(&in, 9);
            o.mask_function = form & 16 ? (int32_t)fuzz_size(&in, 1004) : 0;
            key = fuzz_dense(&in, dtype, 1, lk);
            if (form & 32) o.key_padding_mask = &key;
            if (form & 1) l.q_lengths = (int32_t *)fuzz_filled(&in, 4), l.k_lengths = (int32_t *)fuzz_filled(&in, 4);
            if (form & 2) l.key_counts = (int32_t *)fuzz_filled(&in, (size_t)cols * 4);
            if (form & 3) o.lengths = &l;
            if (a.nnz >= 0 && a.nnz < 100 && !a.batch_dims && form & 8) o.block_kind = (uint8_t *)fuzz_filled(&in, (size_t)a.nnz);
            s = bsr_matrix_make(0, 0, br, bc, cap, fuzz_alloc((size_t)(lines + 2) * 4),
                                form & 64 ? NULL : fuzz_alloc((size_t)cap * 4), BSR_I32, NULL, BSR_F32);
            if (lq > 500 || lk > 500) s.rows = r * br, s.cols = c * bc;
            status = bsr_block_mask(ctx, lq, lk, &o, form & 4 ? &a : NULL, &s, (uint8_t *)fuzz_alloc((size_t)cap), &e);
            if (status == BSR_OK && !e.query && s.col_indices) FUZZ_REQUIRE(bsr_validate(ctx, &s, NULL) == BSR_OK);
            break;
        }
        case 22:
        case 23: { /* lists of exactly their lengths */
            const int64_t cap = fuzz_below(&in, 20);
            bsr_block_lists l;
            memset(&l, 0, sizeof l), l.width = fuzz_size(&in, 6), l.full_width = fuzz_size(&in, 6);
            if (l.width > 1000 || l.full_width > 1000 || a.nnz < 0 || a.nnz > 100 || a.batch_dims || a.rows != r * br ||
                a.cols != c * bc || a.block_rows != br || a.block_cols != bc)
                break;
            l.counts = (int32_t *)fuzz_filled(&in, (size_t)r * 4);
            l.indices = (int32_t *)fuzz_filled(&in, (size_t)(l.width > 0 ? r * l.width : 0) * 4);
            if (form & 1) l.full_counts = (int32_t *)fuzz_filled(&in, (size_t)r * 4);
            if (form & 1) l.full_indices = (int32_t *)fuzz_filled(&in, (size_t)(l.full_width > 0 ? r * l.full_width : 0) * 4);
            if (call == 22) {
                int64_t i;
                for (i = 0; i < r && form & 2; i++) l.counts[i] = (int32_t)(l.width > 1);
                for (i = 0; l.width > 0 && i < r * l.width && form & 2 && c; i++) l.indices[i] = (int32_t)(i % c);
                for (i = 0; i < r && form & 1 && form & 2; i++) l.full_counts[i] = 0;
                s = bsr_matrix_make(r * br, c * bc, br, bc, cap, fuzz_alloc((size_t)(r + 1) * 4), fuzz_alloc((size_t)cap * 4),
                                    BSR_I32, NULL, BSR_F32);
                status = bsr_from_block_lists(ctx, &l, &s, form & 4 ? (uint8_t *)fuzz_alloc((size_t)cap) : NULL, &e);
                if (status == BSR_OK && !e.query) FUZZ_REQUIRE(bsr_validate(ctx, &s, NULL) == BSR_OK);
            } else {
                uint8_t *kind = (uint8_t *)fuzz_filled(&in, (size_t)a.nnz);
                int64_t i;
                for (i = 0; i < a.nnz && form & 2; i++) kind[i] %= 3;
                status = bsr_to_block_lists(ctx, &a, form & 4 ? kind : NULL, &l, &e);
            }
            break;
        }
        case 24: {
            const int64_t block = fuzz_size(&in, 6);
            int32_t *counts = (int32_t *)fuzz_filled(&in, (size_t)(r + 2) * 4);
            x = fuzz_dense(&in, dtype, form & 4 ? fuzz_size(&in, 12) : r * br, n);
            out = fuzz_dense(&in, dtype, form & 8 ? fuzz_size(&in, 12) : r, n);
            if (out.rows > r + 2 || out.batch_dims) counts = NULL;
            status = bsr_pool_blocks(ctx, (int)fuzz_below(&in, 10), form & 16 ? block : br, &x, form & 1 ? counts : NULL,
                                     form & 2 ? fuzz_size(&in, 4) : 0, &out, &e);
            break;
        }
        case 25: {
            const int64_t cap = fuzz_below(&in, 20), fr = 1 + fuzz_below(&in, 3), fc = 1 + fuzz_below(&in, 3);
            bsr_select o;
            memset(&o, 0, sizeof o);
            o.scale = fuzz_scalar(&in), o.top_k = fuzz_size(&in, 6), o.top_p = form & 4 ? fuzz_scalar(&in) * .5 : 0;
            o.threshold = fuzz_scalar(&in), o.first = fuzz_size(&in, 4), o.local = fuzz_size(&in, 4);
            o.combine = (int32_t)fuzz_below(&in, 4), o.flags = (uint32_t)fuzz_byte(&in) % 17, o.causal_offset = fuzz_size(&in, 9);
            x = fuzz_dense(&in, dtype, r * fr, form & 1 ? n : c * fc), y = fuzz_dense(&in, dtype, c * fc, n);
            if (form & 1) o.q = &x, o.k = &y;
            else o.scores = &x;
            s = bsr_matrix_make(r * br, c * bc, br, bc, cap, fuzz_alloc((size_t)(r + 1) * 4),
                                form & 8 ? NULL : fuzz_alloc((size_t)cap * 4), BSR_I32, NULL, BSR_F32);
            status = bsr_select_blocks(ctx, &o, &s, form & 2 ? (uint8_t *)fuzz_alloc((size_t)cap) : NULL, &e);
            if (status == BSR_OK && !e.query && s.col_indices) FUZZ_REQUIRE(bsr_validate(ctx, &s, NULL) == BSR_OK);
            break;
        }
        default: { /* conversions of a fresh matrix: arrays of exactly the capacity */
            int64_t cap = fuzz_below(&in, 10), rows = r * br, cols = c * bc;
            int32_t *crow = (int32_t *)fuzz_alloc((size_t)(r + 1) * 4), *col = (int32_t *)fuzz_alloc((size_t)cap * 4);
            bsr_matrix t = bsr_matrix_make(form & 4 ? rows : 0, form & 4 ? cols : 0, br, bc, cap, crow, col, BSR_I32,
                                           fuzz_alloc((size_t)(cap * br * bc) * 4), BSR_F32);
            x = fuzz_dense(&in, BSR_F32, rows, cols);
            if (x.rows != rows || x.batch_dims) break;
            e.query = NULL;
            status = bsr_from_dense(ctx, &x, &t, &e);
            if (status == BSR_OK) FUZZ_REQUIRE(bsr_validate(ctx, &t, NULL) == BSR_OK);
        }
    }
    FUZZ_REQUIRE(status >= BSR_OK && status <= BSR_PARSE_ERROR);
    FUZZ_REQUIRE(status == BSR_OK || (error.status == (int32_t)status && error.item > 0 && error.item < BSR_ITEM_COUNT));
    fuzz_free();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) { return fuzz_random_main(argc, argv, 200000, 0, 400); }
#endif
