/* bsrsparse_kernels.cuh: the CUDA kernels of bsrsparse, each with the one function that launches it. Included by
   bsrsparse.h where nvcc compiles the implementation; grids' shapes, checks and plans are the header's.

   CONTENTS: every name is an anchor; search for ">>name:"
     device-numbers     element types in registers
     device-lists       what an output tile multiplies
     device-epilogue    from a sum to an element of out
     simt-tile          the product of two tiles in shared memory
     simt-product       sparse x dense, any dtype, block size and stride
     simt-sampled       dense x dense at stored blocks */

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* ---------------------------------------------------------------------------------------------- */
/* >>device-numbers: element types in registers                                                   */
/* ---------------------------------------------------------------------------------------------- */

/* One element of a run-time dtype as F: float, double or uint32_t (integers modulo 2^32). */
template <class F> __device__ __forceinline__ F bsri_dev_load(const void *base, int dtype, int64_t i) {
    switch (dtype) {
        case BSR_F16: return (F)__half2float(((const __half *)base)[i]);
        case BSR_BF16: return (F)__bfloat162float(((const __nv_bfloat16 *)base)[i]);
        case BSR_F32: return (F)((const float *)base)[i];
        case BSR_F64: return (F)((const double *)base)[i];
        case BSR_I8: return (F)((const int8_t *)base)[i];
        case BSR_I32: return (F)((const int32_t *)base)[i];
        case BSR_I64: return (F)((const int64_t *)base)[i];
        default: return (F)(((const uint8_t *)base)[i] != 0);
    }
}
__device__ __forceinline__ void bsri_dev_store(void *base, int dtype, int64_t i, float v) {
    switch (dtype) {
        case BSR_F16: ((__half *)base)[i] = __float2half_rn(v); break;
        case BSR_BF16: ((__nv_bfloat16 *)base)[i] = __float2bfloat16_rn(v); break;
        case BSR_F32: ((float *)base)[i] = v; break;
        default: ((double *)base)[i] = (double)v; break;
    }
}
__device__ __forceinline__ void bsri_dev_store(void *base, int dtype, int64_t i, double v) {
    switch (dtype) {
        case BSR_F16: ((__half *)base)[i] = __double2half(v); break;
        case BSR_BF16: ((__nv_bfloat16 *)base)[i] = __double2bfloat16(v); break;
        case BSR_F32: ((float *)base)[i] = (float)v; break;
        default: ((double *)base)[i] = v; break;
    }
}
__device__ __forceinline__ void bsri_dev_store(void *base, int dtype, int64_t i, uint32_t v) {
    if (dtype == BSR_I8) ((uint8_t *)base)[i] = (uint8_t)v;
    else ((uint32_t *)base)[i] = v;
}
/* Bytes of an element, without a table. */
__device__ __forceinline__ int64_t bsri_dev_size(int dtype) {
    return dtype == BSR_F64 || dtype == BSR_I64    ? 8
           : dtype == BSR_F32 || dtype == BSR_I32  ? 4
           : dtype == BSR_F16 || dtype == BSR_BF16 ? 2
                                                   : 1;
}
__device__ __forceinline__ char *bsri_dev_at(const void *base, int dtype, int64_t element) {
    return (char *)base + element * bsri_dev_size(dtype);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-lists: what an output tile multiplies                                                 */
/* ---------------------------------------------------------------------------------------------- */

/* The arrays of one batch item; as bsri_matrix_item. */
struct bsri_dev_item {
    const void *crow, *col;
    char *values;
    int64_t pattern;
};
__device__ __forceinline__ bsri_dev_item bsri_dev_matrix_item(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    bsri_dev_item it;
    it.pattern = bsri_pattern_of(b, item, m);
    it.crow =
        bsri_dev_at(m->crow_indices, m->index_dtype, bsri_batch_offset(b, item, m->batch_dims, m->batch, m->crow_batch_stride));
    it.col =
        bsri_dev_at(m->col_indices, m->index_dtype, bsri_batch_offset(b, item, m->batch_dims, m->batch, m->col_batch_stride));
    it.values = bsri_dev_at(m->values, m->dtype, bsri_batch_offset(b, item, m->batch_dims, m->batch, m->values_batch_stride));
    return it;
}

/* A cursor over (offset in a's values, offset in b) of one output tile; every thread walks the same list. */
struct bsri_dev_list {
    const void *crow, *col, *row, *position;
    const char *a, *b; /* bases of this item */
    int64_t at, end, extra;

    __device__ void begin_matrix(const bsri_dev_product &p, int64_t item, int64_t tile) {
        const bsri_dev_item it = bsri_dev_matrix_item(&p.whole, item, &p.a);
        const int dt = p.a.index_dtype, ragged = (p.a.flags & BSR_MATRIX_RAGGED) != 0;
        crow = it.crow, col = it.col, a = it.values, extra = 0;
        b = bsri_dev_at(p.b.data, p.b.dtype, bsri_dense_offset(&p.whole, item, &p.b));
        if (p.kind == BSRI_LIST_ROWS) {
            at = bsri_index(crow, dt, tile), end = bsri_index(crow, dt, tile + 1);
        } else if (p.kind == BSRI_LIST_TRANSPOSED) {
            const char *view = (const char *)p.a.transposed_index;
            const void *ccol = bsri_dev_at(view + p.index.at[0], dt, it.pattern * (bsri_block_cols(&p.a) + 1));
            const int64_t shift = ragged ? 0 : it.pattern * p.index.entries;
            row = bsri_dev_at(view + p.index.at[1], dt, shift), position = bsri_dev_at(view + p.index.at[2], dt, shift);
            at = bsri_index(ccol, dt, tile), end = bsri_index(ccol, dt, tile + 1);
        } else {
            at = bsri_index(crow, dt, 0), end = bsri_index(crow, dt, bsri_block_rows(&p.a));
        }
    }
    __device__ void begin_scatter(const bsri_dev_product &p, int64_t item, int64_t tile) {
        const bsr_scatter_indices &s = p.scatter;
        a = (const char *)p.blocks.data, extra = 0;
        b = (const char *)p.b.data;
        if (p.kind != BSRI_LIST_SCATTER) b = bsri_dev_at(b, p.b.dtype, bsri_dense_offset(&p.whole, item, &p.b));
        if (p.kind == BSRI_LIST_COMPRESSED) {
            const int64_t n = p.out.cols, m = s.r_offsets[tile] / n / p.br, j = s.r_offsets[tile] % n / p.width;
            const int64_t c0 = s.c_indices[m], c1 = s.c_indices[m + 1], split = n / p.width;
            at = c0, end = c1, extra = j * c1 + (split - j) * c0 - c0;
        } else {
            at = s.c_indices[tile], end = s.c_indices[tile + 1];
        }
    }
    /* The next entry, or false. */
    __device__ bool next(const bsri_dev_product &p, int64_t tile, int64_t *a_at, int64_t *b_at) {
        const int64_t step = p.bc * p.b.row_stride;
        const int dt = p.a.index_dtype;
        int64_t q;
        for (; at < end; at++) {
            switch (p.kind) {
                case BSRI_LIST_ROWS: *a_at = at * p.a_block, *b_at = bsri_index(col, dt, at) * step; break;
                case BSRI_LIST_TRANSPOSED:
                    *a_at = bsri_index(position, dt, at) * p.a_block, *b_at = bsri_index(row, dt, at) * step;
                    break;
                case BSRI_LIST_SCAN:
                    while (bsri_index(crow, dt, extra + 1) <= at) extra++;
                    if (bsri_index(col, dt, at) != tile) continue;
                    *a_at = at * p.a_block, *b_at = extra * step;
                    break;
                case BSRI_LIST_SCATTER:
                    *a_at = p.scatter.p_indices[at] * p.a_block;
                    *b_at = bsri_dense_offset(&p.b_batch, p.scatter.q_indices[at], &p.b);
                    break;
                default:
                    q = p.kind == BSRI_LIST_STRIDED ? p.scatter.q_indices[at] : p.scatter.q_indices[extra + at];
                    *a_at = (p.kind == BSRI_LIST_STRIDED ? p.scatter.p_indices[at] : at) * p.a_block;
                    *b_at = q / p.b.cols * p.b.row_stride + q % p.b.cols * p.b.col_stride;
                    break;
            }
            at++;
            return true;
        }
        return false;
    }
};

/* ---------------------------------------------------------------------------------------------- */
/* >>device-epilogue: from a sum to an element of out                                             */
/* ---------------------------------------------------------------------------------------------- */

template <class F> struct bsri_dev_scalar {
    static __device__ F of(double x) { return (F)x; }
};
template <> struct bsri_dev_scalar<uint32_t> {
    static __device__ uint32_t of(double x) { return (uint32_t)(int64_t)x; }
};

/* Offset of a repeated operand's item. */
__device__ __forceinline__ int64_t bsri_dev_repeat(const bsri_batch *batch, int64_t item, const bsr_dense *d, int64_t row,
                                                   int64_t col) {
    return bsri_dense_offset(batch, item, d) + (d->rows == 1 ? 0 : row * d->row_stride) +
           (d->cols == 1 ? 0 : col * d->col_stride);
}
__device__ __forceinline__ float bsri_dev_activate(const bsri_dev_product &p, float x, const bsr_position &at) {
    return p.activation ? bsri_activate_f32(p.activation, x, &at, p.user_data) : x;
}
__device__ __forceinline__ double bsri_dev_activate(const bsri_dev_product &p, double x, const bsr_position &at) {
    return p.activation ? bsri_activate_f64(p.activation, x, &at, p.user_data) : x;
}
__device__ __forceinline__ uint32_t bsri_dev_activate(const bsri_dev_product &, uint32_t x, const bsr_position &) { return x; }

/* Writes out(row, col) of an item from the sum of its products. */
template <class F>
__device__ __forceinline__ void bsri_dev_finish(const bsri_dev_product &p, F v, double alpha, double beta, int64_t item,
                                                int64_t row, int64_t col) {
    bsr_position at;
    at.batch = item, at.head = 0, at.row = row, at.col = col;
    if (alpha != 1.0) v *= bsri_dev_scalar<F>::of(alpha);
    if (p.left.data) v *= bsri_dev_load<F>(p.left.data, p.left.dtype, bsri_dev_repeat(&p.out_batch, item, &p.left, row, 0));
    if (p.right.data) v *= bsri_dev_load<F>(p.right.data, p.right.dtype, bsri_dev_repeat(&p.out_batch, item, &p.right, 0, col));
    if (beta != 0.0 && p.has_input)
        v += bsri_dev_scalar<F>::of(beta) *
             bsri_dev_load<F>(p.input.data, p.input.dtype, bsri_dev_repeat(&p.out_batch, item, &p.input, row, col));
    if (p.bias.data) v += bsri_dev_load<F>(p.bias.data, p.bias.dtype, bsri_dev_repeat(&p.out_batch, item, &p.bias, row, col));
    v = bsri_dev_activate(p, v, at);
    bsri_dev_store(p.out.data, p.out.dtype,
                   bsri_dense_offset(&p.out_batch, item, &p.out) + row * p.out.row_stride + col * p.out.col_stride, v);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>simt-tile: the product of two tiles in shared memory                                         */
/* ---------------------------------------------------------------------------------------------- */

/* 256 threads own TM x TN sums, RM x RN each: rows ty*RM + i, columns tx + j*(TN/RN), so that stores of a row are coalesced. */
template <class A, class F, int TM_, int TN_, int RM_, int RN_> struct bsri_simt_tile {
    static constexpr int TM = TM_, TN = TN_, RM = RM_, RN = RN_, KC = 16, THREADS = 256, TX = TN / RN;
    static_assert((TM / RM) * (TN / RN) == THREADS, "each thread owns RM x RN sums");
    union shared {
        struct {
            A a[KC][TM + 1], b[KC][TN + 1]; /* + 1: both fill orders stay free of bank conflicts */
        };
        F sum[TM][TN + 1];
    };
    /* sum += a b; a rows x inner (strides am, ak), b inner x cols (strides bk, bn); what lies outside counts as zero. */
    static __device__ void multiply(shared &s, A (&sum)[RM][RN], const void *a, int dtype, int64_t a0, int64_t am, int64_t ak,
                                    int64_t rows, const void *b, int64_t b0, int64_t bk, int64_t bn, int64_t cols,
                                    int64_t inner) {
        const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
        for (int64_t k0 = 0; k0 < inner; k0 += KC) {
            const int kc = (int)(inner - k0 < KC ? inner - k0 : KC);
            for (int i = threadIdx.x; i < TM * KC; i += THREADS) {
                const int m = ak == 1 ? i / KC : i % TM, k = ak == 1 ? i % KC : i / TM;
                s.a[k][m] = m < rows && k < kc ? bsri_dev_load<A>(a, dtype, a0 + m * am + (k0 + k) * ak) : A(0);
            }
            for (int i = threadIdx.x; i < TN * KC; i += THREADS) {
                const int n = bn == 1 ? i % TN : i / KC, k = bn == 1 ? i / TN : i % KC;
                s.b[k][n] = n < cols && k < kc ? bsri_dev_load<A>(b, dtype, b0 + (k0 + k) * bk + n * bn) : A(0);
            }
            __syncthreads();
            for (int k = 0; k < kc; k++) {
                A x[RM], y[RN];
#pragma unroll
                for (int i = 0; i < RM; i++) x[i] = s.a[k][ty * RM + i];
#pragma unroll
                for (int j = 0; j < RN; j++) y[j] = s.b[k][tx + j * TX];
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                    for (int j = 0; j < RN; j++) sum[i][j] += x[i] * y[j];
            }
            __syncthreads();
        }
    }
    /* Puts the sums where one loop can reach them all: the epilogue's code then stands in the kernel once. */
    static __device__ void spread(shared &s, const A (&sum)[RM][RN]) {
        const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
#pragma unroll
        for (int i = 0; i < RM; i++)
#pragma unroll
            for (int j = 0; j < RN; j++) s.sum[ty * RM + i][tx + j * TX] = F(sum[i][j]);
        __syncthreads();
    }
};

/* ---------------------------------------------------------------------------------------------- */
/* >>simt-product: sparse x dense, any dtype, block size and stride                               */
/* ---------------------------------------------------------------------------------------------- */

/* The n-th tile of an item: in the schedule's order where one is attached for this direction, else in its own. -1: none. */
__device__ __forceinline__ int64_t bsri_dev_order(const bsri_dev_product &p, int64_t item, int64_t n) {
    const int64_t *header = (const int64_t *)p.a.schedule;
    if (!header || p.kind > BSRI_LIST_SCAN || (header[6] != 0) != (p.trans != 0) || header[4] != 1) return n;
    const bsri_dev_item it = bsri_dev_matrix_item(&p.whole, bsri_reduce_item(&p.whole, &p.out_batch, item, 0), &p.a);
    const int32_t *order = (const int32_t *)((const char *)p.a.schedule + BSRI_VIEW_HEADER);
    return order[it.pattern * p.tiles + n];
}

template <class A, class F, class Tile>
__global__ void __launch_bounds__(256, 2) bsri_product_simt(const __grid_constant__ bsri_dev_product p) {
    __shared__ typename Tile::shared s;
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    const int64_t total = p.items * p.panels * p.tiles * p.subs;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t sub = work % p.subs, item = work / p.subs / p.tiles / p.panels, panel = work / p.subs / p.tiles % p.panels;
        const int64_t tile = bsri_dev_order(p, item, work / p.subs % p.tiles);
        const int64_t row = sub * Tile::TM, col = panel * Tile::TN;
        const int64_t rows = bsri_min(Tile::TM, p.br - row), cols = bsri_min(Tile::TN, p.width - col);
        int64_t a_at, b_at, out_row = tile * p.br, out_col = 0, out_item = item;
        A sum[Tile::RM][Tile::RN] = {};
        for (int64_t r = 0; r < p.reduce && alpha != 0.0; r++) {
            bsri_dev_list list;
            if (p.kind >= BSRI_LIST_SCATTER) list.begin_scatter(p, item, tile);
            else list.begin_matrix(p, bsri_reduce_item(&p.whole, &p.out_batch, item, r), tile);
            while (list.next(p, tile, &a_at, &b_at))
                Tile::multiply(s, sum, list.a, p.b.dtype, a_at + row * p.a_rs, p.a_rs, p.a_cs, rows, list.b,
                               b_at + col * p.b.col_stride, p.b.row_stride, p.b.col_stride, cols, p.bc);
        }
        if (p.kind == BSRI_LIST_SCATTER) out_item = tile, out_row = 0;
        else if (p.kind > BSRI_LIST_SCATTER)
            out_row = p.scatter.r_offsets[tile] / p.out.cols, out_col = p.scatter.r_offsets[tile] % p.out.cols;
        Tile::spread(s, sum);
        for (int i = threadIdx.x; i < rows * Tile::TN; i += Tile::THREADS) {
            const int m = p.out.col_stride == 1 ? i / Tile::TN : i % (int)rows,
                      n = p.out.col_stride == 1 ? i % Tile::TN : i / (int)rows;
            if (n < cols) bsri_dev_finish<F>(p, s.sum[m][n], alpha, beta, out_item, out_row + row + m, out_col + col + n);
        }
        __syncthreads();
    }
}

/* 1-D grid, decoded in the kernel: sizes beyond a grid's limits loop. */
static unsigned bsri_grid(int64_t work) { return (unsigned)bsri_max(1, bsri_min(work, INT64_C(1) << 30)); }

template <class P>
static cudaError_t bsri_launch(void (*kernel)(const P), const P &p, int64_t work, unsigned threads, bsr_stream stream) {
    void *args[1] = {(void *)&p};
    return cudaLaunchKernel((const void *)kernel, dim3(bsri_grid(work)), dim3(threads), args, 0, stream);
}

/* Few rows a block: wide tiles, so that threads are not idle. */
template <class A, class F> static cudaError_t bsri_launch_product_rows(bsri_dev_product &p, bsr_stream stream) {
    const int64_t tn = p.br <= 4 ? 256 : p.br <= 16 ? 128 : 64, tm = p.br <= 4 ? 4 : p.br <= 16 ? 16 : 64;
    p.panels = bsri_ceil_div(p.width, tn), p.subs = bsri_ceil_div(p.br, tm);
    const int64_t work = p.items * p.panels * p.tiles * p.subs;
    if (tm == 4) return bsri_launch(bsri_product_simt<A, F, bsri_simt_tile<A, F, 4, 256, 1, 4>>, p, work, 256, stream);
    if (tm == 16) return bsri_launch(bsri_product_simt<A, F, bsri_simt_tile<A, F, 16, 128, 2, 4>>, p, work, 256, stream);
    return bsri_launch(bsri_product_simt<A, F, bsri_simt_tile<A, F, 64, 64, 4, 4>>, p, work, 256, stream);
}
static cudaError_t bsri_launch_product_simt(bsri_dev_product *p, int compute, bsr_stream stream) {
    if (compute == BSR_F64) return bsri_launch_product_rows<double, double>(*p, stream);
    if (compute == BSR_F32) return bsri_launch_product_rows<float, float>(*p, stream);
    if (p->out.dtype == BSR_I8 || p->out.dtype == BSR_I32) return bsri_launch_product_rows<int32_t, uint32_t>(*p, stream);
    return bsri_launch_product_rows<int32_t, float>(*p, stream);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>simt-sampled: dense x dense at stored blocks                                                 */
/* ---------------------------------------------------------------------------------------------- */

/* The row that stored block `at` belongs to: the last r with crow[r] <= at. */
__device__ __forceinline__ int64_t bsri_dev_row_of(const void *crow, int dt, int64_t rows, int64_t at) {
    int64_t low = 0, high = rows;
    while (high - low > 1) {
        const int64_t mid = (low + high) / 2;
        if (bsri_index(crow, dt, mid) <= at) low = mid;
        else high = mid;
    }
    return low;
}
template <class A, class F, class Tile>
__global__ void __launch_bounds__(256, 2) bsri_sampled_simt(const __grid_constant__ bsri_dev_sampled p) {
    __shared__ typename Tile::shared s;
    const int64_t br = p.out.block_rows, bc = p.out.block_cols, rows_in = bsri_block_rows(&p.out);
    const int64_t total = p.items * p.out.nnz * p.subs * p.panels;
    const int dt = p.out.index_dtype;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t col = work % p.panels * Tile::TN, row = work / p.panels % p.subs * Tile::TM;
        const int64_t at = work / p.panels / p.subs % p.out.nnz, item = work / p.panels / p.subs / p.out.nnz;
        const int64_t rows = bsri_min(Tile::TM, br - row), cols = bsri_min(Tile::TN, bc - col);
        const bsri_dev_item o = bsri_dev_matrix_item(&p.out_batch, item, &p.out);
        A sum[Tile::RM][Tile::RN] = {};
        /* a ragged item owns a part of the blocks only */
        if (at < bsri_index(o.crow, dt, 0) || at >= bsri_index(o.crow, dt, rows_in)) continue;
        const int64_t r0 = bsri_dev_row_of(o.crow, dt, rows_in, at) * br + row, c0 = bsri_index(o.col, dt, at) * bc + col;
        for (int64_t r = 0; r < p.reduce && p.alpha != 0.0; r++) {
            const int64_t whole = bsri_reduce_item(&p.whole, &p.out_batch, item, r);
            Tile::multiply(s, sum, p.mat1.data, p.mat1.dtype,
                           bsri_dense_offset(&p.whole, whole, &p.mat1) + r0 * p.mat1.row_stride, p.mat1.row_stride,
                           p.mat1.col_stride, rows, p.mat2.data,
                           bsri_dense_offset(&p.whole, whole, &p.mat2) + c0 * p.mat2.col_stride, p.mat2.row_stride,
                           p.mat2.col_stride, cols, p.mat1.cols);
        }
        Tile::spread(s, sum);
        for (int i = threadIdx.x; i < rows * Tile::TN; i += Tile::THREADS) {
            const int64_t m = row + i / Tile::TN, n = col + i % Tile::TN;
            if (i % Tile::TN >= cols) continue;
            F v = s.sum[i / Tile::TN][i % Tile::TN];
            if (p.alpha != 1.0) v *= bsri_dev_scalar<F>::of(p.alpha);
            if (p.has_input) {
                const bsri_dev_item in = bsri_dev_matrix_item(&p.out_batch, item, &p.input);
                v += bsri_dev_scalar<F>::of(p.beta) *
                     bsri_dev_load<F>(in.values, p.input.dtype, at * p.i_strides[0] + m * p.i_strides[1] + n * p.i_strides[2]);
            }
            bsri_dev_store(o.values, p.out.dtype, at * p.o_strides[0] + m * p.o_strides[1] + n * p.o_strides[2], v);
        }
        __syncthreads();
    }
}
template <class A, class F> static cudaError_t bsri_launch_sampled_size(bsri_dev_sampled &p, bsr_stream stream) {
    const int small = p.out.block_rows <= 16 && p.out.block_cols <= 16;
    p.subs = bsri_ceil_div(p.out.block_rows, small ? 16 : 64), p.panels = bsri_ceil_div(p.out.block_cols, small ? 16 : 64);
    const int64_t work = p.items * p.out.nnz * p.subs * p.panels;
    if (small) return bsri_launch(bsri_sampled_simt<A, F, bsri_simt_tile<A, F, 16, 16, 1, 1>>, p, work, 256, stream);
    return bsri_launch(bsri_sampled_simt<A, F, bsri_simt_tile<A, F, 64, 64, 4, 4>>, p, work, 256, stream);
}
static cudaError_t bsri_launch_sampled_simt(bsri_dev_sampled *p, int compute, bsr_stream stream) {
    if (compute == BSR_F64) return bsri_launch_sampled_size<double, double>(*p, stream);
    if (compute == BSR_F32) return bsri_launch_sampled_size<float, float>(*p, stream);
    if (p->out.dtype == BSR_I8 || p->out.dtype == BSR_I32) return bsri_launch_sampled_size<int32_t, uint32_t>(*p, stream);
    return bsri_launch_sampled_size<int32_t, float>(*p, stream);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>kernel-table: every instance: number, name, function, dynamic shared memory                  */
/* ---------------------------------------------------------------------------------------------- */

#define BSRI_KERNELS_SIMT(X, n, A, F, name)                                                                     \
    X(n + 0, "simt product 4x256 " name, (bsri_product_simt<A, F, bsri_simt_tile<A, F, 4, 256, 1, 4>>), 0)       \
    X(n + 1, "simt product 16x128 " name, (bsri_product_simt<A, F, bsri_simt_tile<A, F, 16, 128, 2, 4>>), 0)     \
    X(n + 2, "simt product 64x64 " name, (bsri_product_simt<A, F, bsri_simt_tile<A, F, 64, 64, 4, 4>>), 0)       \
    X(n + 3, "simt sampled 16x16 " name, (bsri_sampled_simt<A, F, bsri_simt_tile<A, F, 16, 16, 1, 1>>), 0)       \
    X(n + 4, "simt sampled 64x64 " name, (bsri_sampled_simt<A, F, bsri_simt_tile<A, F, 64, 64, 4, 4>>), 0)
#define BSRI_KERNELS(X)                                  \
    BSRI_KERNELS_SIMT(X, 100, float, float, "f32")       \
    BSRI_KERNELS_SIMT(X, 110, double, double, "f64")     \
    BSRI_KERNELS_SIMT(X, 120, int32_t, uint32_t, "i32")  \
    BSRI_KERNELS_SIMT(X, 130, int32_t, float, "i32 to f32")

/* Loads every kernel and allows it the shared memory that it asks for; called once per context. */
static cudaError_t bsri_load_kernels(void) {
    cudaFuncAttributes attributes;
    cudaError_t e = cudaSuccess;
#define BSRI_X(number, name, kernel, bytes)                                                                              \
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&attributes, (const void *)kernel);                                  \
    if (e == cudaSuccess && (bytes) > 48 * 1024)                                                                         \
        e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    BSRI_KERNELS(BSRI_X)
#undef BSRI_X
    return e;
}
