/* bench_edges.cu: what a step off the fast lane costs. Every class of cases (small and odd blocks, sides that are multiples of
   16, other sides, columns and strides of any kind, types, operands of 8 bits, batches, A^T without its index, mixtures of
   experts, softmax with masks, epilogues, conversions) beside what its neighbour on the lane takes, or cuSPARSE or cuBLAS, and
   beside what bounds it: its bytes at the rate at which this GPU copies, gathered bytes at the rate of its L2, stored FLOPs at
   the rate of cuBLAS's dense product of that type, each measured first (e4m3: twice that of bf16). bench_edges [--csv FILE]
   [CLASS...] Shares of 1 are level with the neighbour or the limit, less is slower. Random-normal data; warm; medians. Linked
   with the library: -lbsrsparse of tests/bench.mk, or any object that holds it. */
#include "bench.cuh"

#include "bsrsparse.h"

#include <cublas_v2.h>
#include <cusparse.h>

#include <cstdarg>
#include <cstring>
#include <functional>
#include <map>
#include <string>

static bsr_context *ctx;
static cudaStream_t stream;
static cusparseHandle_t sparse;
static cublasHandle_t blas;
static FILE *csv;

/* ---------------------------------------------------------------------------------------------- */
/* lines                                                                                          */
/* ---------------------------------------------------------------------------------------------- */

struct bound { /* least microseconds, and of what */
    double us;
    const char *of;
};
static bound larger(bound a, bound b) { return a.us > b.us ? a : b; }

struct line {
    std::string of, name, runs, peer;
    double us, limit, beside; /* microseconds; beside: what the peer or neighbour would take for the same work; 0: none */
    const char *bounds;
};
static std::vector<line> lines;
static const char *now = ""; /* the class */
static int refused, peers_absent;

static double share(double of, double us) { return us > 0 ? of / us : 0; }
static void report(const std::string &name, double us, bound limit, const std::string &peer, double beside,
                   const bsr_plan *plan) {
    static const char *const tiers[] = {"", "simt", "mma", "wgmma"};
    char runs[64] = "";
    if (plan && plan->instance)
        snprintf(runs, sizeof runs, "%s %d, %d x %d", tiers[plan->kernel & 3], plan->instance, plan->tile_rows, plan->tile_cols);
    if (us < 0) refused++;
    if (beside < 0) peers_absent++;
    const line l = {now, name, us < 0 ? "refused" : runs, peer, us, limit.us, std::max(beside, 0.0), limit.of};
    lines.push_back(l);
    const std::string by = peer.empty() ? "" : beside < 0 ? peer + ": absent" : peer;
    printf("%-12s %-44s %10.1f us  %5.3f of %-9s %7.3f x %-24s %s\n", now, name.c_str(), us, share(l.limit, us), limit.of,
           share(l.beside, us), by.c_str(), l.runs.c_str());
    if (csv)
        fprintf(csv, "%s,\"%s\",%.2f,%.2f,%s,%.4f,\"%s\",%.2f,%.4f,\"%s\"\n", now, name.c_str(), us, l.limit, limit.of,
                share(l.limit, us), peer.c_str(), l.beside, share(l.beside, us), l.runs.c_str());
    fflush(stdout);
    if (csv) fflush(csv);
}
/* Of each class the least share of a limit and of a neighbour. */
static void summary(void) {
    std::vector<std::string> names;
    for (const line &l : lines)
        if (std::find(names.begin(), names.end(), l.of) == names.end()) names.push_back(l.of);
    printf("\nworst of each class: share of the limit, share of the rate beside it\n");
    for (const std::string &name : names) {
        const line *by_limit = nullptr, *by_peer = nullptr;
        int count = 0;
        for (const line &l : lines) {
            if (l.of != name) continue;
            count++;
            if (l.us > 0 && l.limit > 0 && (!by_limit || share(l.limit, l.us) < share(by_limit->limit, by_limit->us)))
                by_limit = &l;
            if (l.us > 0 && l.beside > 0 && (!by_peer || share(l.beside, l.us) < share(by_peer->beside, by_peer->us)))
                by_peer = &l;
        }
        printf("%-12s %3d cases", name.c_str(), count);
        if (by_limit) printf("  %.4f of %s: %s", share(by_limit->limit, by_limit->us), by_limit->bounds, by_limit->name.c_str());
        if (by_peer) printf("  %.4f x %s: %s", share(by_peer->beside, by_peer->us), by_peer->peer.c_str(), by_peer->name.c_str());
        printf("\n");
        if (csv && by_limit)
            fprintf(csv, "%s,\"worst of the limit: %s\",,,%s,%.4f,,,,\n", name.c_str(), by_limit->name.c_str(), by_limit->bounds,
                    share(by_limit->limit, by_limit->us));
        if (csv && by_peer)
            fprintf(csv, "%s,\"worst beside: %s\",,,,,\"%s\",,%.4f,\n", name.c_str(), by_peer->name.c_str(),
                    by_peer->peer.c_str(), share(by_peer->beside, by_peer->us));
    }
    printf("%zu cases, %d refused, %d without the peer\n", lines.size(), refused, peers_absent);
}
static std::string text(const char *format, ...) {
    char s[200];
    va_list list;
    va_start(list, format);
    vsnprintf(s, sizeof s, format, list);
    va_end(list);
    return s;
}

/* ---------------------------------------------------------------------------------------------- */
/* what this GPU can do                                                                           */
/* ---------------------------------------------------------------------------------------------- */

static double copy_rate, l2_rate, launch_us; /* bytes per microsecond; of a kernel that does nothing */
static size_t l2_bytes;

static __global__ void copy_words(uint4 *to, const uint4 *from, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) to[i] = from[i];
}
static __global__ void nothing(void) {}
/* Rounds over n 16-byte words that fit into the L2; each CTA takes another part each round, so that its L1 does not help. */
static __global__ void read_l2(const uint4 *p, int64_t n, int rounds, unsigned *sink) {
    unsigned sum = 0;
    for (int r = 0; r < rounds; r++) {
        const int64_t part = (blockIdx.x + (int64_t)r * 37) % gridDim.x * blockDim.x + threadIdx.x;
        for (int64_t i = part; i < n; i += (int64_t)gridDim.x * blockDim.x) {
            const uint4 v = __ldcg(p + i);
            sum += v.x ^ v.y ^ v.z ^ v.w;
        }
    }
    if (sum == 12345) *sink = sum;
}
static void measure(void) {
    const size_t bytes = (size_t)1 << 30, part = (size_t)24 << 20;
    const int rounds = 40;
    cudaDeviceProp p;
    scratch w;
    char *x = (char *)w.bytes(bytes), *y = (char *)w.bytes(bytes);
    check(cudaGetDeviceProperties(&p, 0));
    l2_bytes = (size_t)p.l2CacheSize;
    check(cudaMemset(x, 1, bytes));
    for (int ctas : {4, 16}) { /* of some grids the fastest; cudaMemcpyAsync reaches two thirds of it in a graph */
        const double ms = timed(stream, [&] {
            copy_words<<<p.multiProcessorCount * ctas, 512, 0, stream>>>((uint4 *)y, (const uint4 *)x, (int64_t)(bytes / 16));
            return (int)cudaPeekAtLastError();
        });
        copy_rate = std::max(copy_rate, 2e-3 * (double)bytes / ms);
    }
    copy_rate = std::max(copy_rate, 2e-3 * (double)bytes / timed(stream, [&] {
                                        return (int)cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream);
                                    }));
    launch_us = 1e3 * timed(stream, [&] { return nothing<<<1, 32, 0, stream>>>(), 0; });
    const double ms = timed(stream, [&] {
        read_l2<<<p.multiProcessorCount * 2, 1024, 0, stream>>>((const uint4 *)x, (int64_t)(part / 16), rounds, (unsigned *)y);
        return (int)cudaPeekAtLastError();
    });
    l2_rate = 1e-3 * (double)part * rounds / ms;
    printf("%s: copies %.2f TB/s, L2 %.2f TB/s, an empty kernel %.1f us\n", p.name, copy_rate / 1e6, l2_rate / 1e6, launch_us);
}
static bound by_bytes(double bytes) {
    const bool small = bytes < 0.5 * (double)l2_bytes; /* warm, it stays there */
    return larger({bytes / (small ? l2_rate : copy_rate), small ? "L2 bytes" : "bytes"}, {launch_us, "a launch"});
}

static cudaDataType cuda_type(int dtype) {
    switch (dtype) {
        case BSR_F64: return CUDA_R_64F;
        case BSR_F32: return CUDA_R_32F;
        case BSR_F16: return CUDA_R_16F;
        case BSR_BF16: return CUDA_R_16BF;
        case BSR_I32: return CUDA_R_32I;
        default: return CUDA_R_8I;
    }
}
static void *numbers(scratch &w, int64_t n, int dtype) {
    switch (dtype) {
        case BSR_F64: return w.numbers<double>(n);
        case BSR_F32: return w.numbers<float>(n);
        case BSR_F16: return w.numbers<__half>(n);
        case BSR_BF16: return w.numbers<__nv_bfloat16>(n);
        case BSR_E4M3: return w.numbers<__nv_fp8_e4m3>(n);
        case BSR_BOOL: return w.numbers<bool>(n);
        case BSR_I32: return w.bytes((size_t)n * 4);
        default: return w.numbers<int8_t>(n);
    }
}
union scalar {
    double d;
    float f;
    int32_t i;
};
static scalar scalar_of(int dtype, int v) {
    scalar s;
    memset(&s, 0, sizeof s);
    if (dtype == BSR_F64) s.d = v;
    else if (dtype == BSR_I8) s.i = v;
    else s.f = (float)v;
    return s;
}
/* count products c [m x n] = a [m x k] b [k x n] by cuBLAS, in microseconds. */
static double dense_us(int64_t m, int64_t n, int64_t k, int count, int dtype, bool tf32) {
    scratch w;
    const cudaDataType type = cuda_type(dtype), out = dtype == BSR_I8 ? CUDA_R_32I : type;
    const cublasComputeType_t in = dtype == BSR_F64  ? CUBLAS_COMPUTE_64F
                                   : dtype == BSR_I8 ? CUBLAS_COMPUTE_32I
                                   : tf32            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                     : CUBLAS_COMPUTE_32F;
    const scalar one = scalar_of(dtype, 1), zero = scalar_of(dtype, 0);
    const void *a = numbers(w, count * m * k, dtype), *b = numbers(w, count * k * n, dtype);
    void *c = numbers(w, count * m * n, dtype == BSR_I8 ? (int)BSR_I32 : dtype);
    return 1e3 * timed(stream, [&] { /* by columns, the left operand transposed: what every type takes */
                                     return (int)cublasGemmStridedBatchedEx(
                                         blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)m, (int)n, (int)k, &one, a, type, (int)k, m * k, b,
                                         type, (int)k, k * n, &zero, c, out, (int)m, m * n, count, in, CUBLAS_GEMM_DEFAULT);
           });
}
/* FLOPs per microsecond of a dense product of 4096^3. */
static double dense_rate(int dtype, bool tf32) {
    static std::map<int, double> known;
    double &rate = known[dtype * 2 + tf32];
    if (!rate) {
        const double us = dtype == BSR_E4M3 ? 0.5 * dense_us(4096, 4096, 4096, 1, BSR_BF16, false) /* cuBLAS has it apart */
                                            : dense_us(4096, 4096, 4096, 1, dtype, tf32);
        rate = us > 0 ? 2.0 * 4096 * 4096 * 4096 / us : 1e30;
        printf("cuBLAS %s%s: %.1f TFLOP/s\n", bsr_dtype_name(dtype), tf32 ? " as TF32" : "", rate / 1e6);
    }
    return rate;
}

/* ---------------------------------------------------------------------------------------------- */
/* patterns                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

/* The 27-point mesh of n^3 nodes. */
static blocks mesh(int n) {
    blocks p = {(int64_t)n * n * n, (int64_t)n * n * n, {0}, {}};
    p.col.reserve((size_t)p.rows * 27);
    for (int z = 0; z < n; z++)
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++) {
                for (int c = std::max(z - 1, 0); c <= std::min(z + 1, n - 1); c++)
                    for (int b = std::max(y - 1, 0); b <= std::min(y + 1, n - 1); b++)
                        for (int a = std::max(x - 1, 0); a <= std::min(x + 1, n - 1); a++) p.col.push_back((c * n + b) * n + a);
                p.crow.push_back((int32_t)p.col.size());
            }
    return p;
}
/* Rows of given lengths, columns spread evenly. */
static blocks rows_of(int64_t rows, int64_t cols, const std::function<int64_t(int64_t)> &length) {
    blocks p = {rows, cols, {0}, {}};
    for (int64_t i = 0; i < rows; i++) {
        const int64_t n = std::min(cols, length(i)), first = i * 7919 % cols;
        std::vector<int32_t> row;
        for (int64_t k = 0; k < n; k++) row.push_back((int32_t)((first + k * (cols / std::max<int64_t>(n, 1))) % cols));
        std::sort(row.begin(), row.end());
        p.col.insert(p.col.end(), row.begin(), row.end());
        p.crow.push_back((int32_t)p.col.size());
    }
    return p;
}
static blocks diagonal(int64_t groups, int64_t rows, int64_t cols) { /* groups of rows x cols blocks, all stored */
    blocks p = {groups * rows, groups * cols, {0}, {}};
    for (int64_t i = 0; i < p.rows; i++) {
        for (int64_t j = 0; j < cols; j++) p.col.push_back((int32_t)(i / rows * cols + j));
        p.crow.push_back((int32_t)p.col.size());
    }
    return p;
}
static bsr_matrix upload(scratch &w, const blocks &p, int64_t br, int64_t bc, int dtype) {
    return bsr_matrix_make(p.rows * br, p.cols * bc, br, bc, p.nnz(), w.copy(p.crow), w.copy(p.col), BSR_I32,
                           numbers(w, p.nnz() * br * bc, dtype), dtype);
}

/* ---------------------------------------------------------------------------------------------- */
/* one call of the library, with the workspace that its query names, or without                   */
/* ---------------------------------------------------------------------------------------------- */

typedef std::function<bsr_status(const bsr_exec *)> call_function;
struct timing {
    double us; /* negative: refused */
    bsr_plan plan;
};
static timing run(scratch &w, const call_function &call, bool workspace = true, uint32_t flags = 0) {
    bsr_exec e = BSR_ZERO;
    bsr_plan plan = BSR_ZERO;
    bsr_error error;
    e.stream = stream, e.flags = flags | BSR_EXEC_NO_LOG, e.error = &error, e.query = &plan;
    timing t = {-1, plan};
    if (call(&e) == BSR_OK) {
        e.query = nullptr;
        if (workspace && plan.workspace_bytes)
            e.workspace = w.bytes(plan.workspace_bytes), e.workspace_bytes = plan.workspace_bytes;
        const double ms = timed(stream, [&] { return (int)call(&e); });
        t.us = ms < 0 ? -1 : 1e3 * ms, t.plan = plan;
    }
    if (t.us < 0) {
        char why[300];
        bsr_error_string(&error, why, sizeof why);
        printf("refused: %s\n", why);
    }
    return t;
}
static void attach_index(scratch &w, bsr_matrix *a) {
    uint64_t bytes = 0;
    if (bsr_transposed_index_size(ctx, a, &bytes, nullptr) != BSR_OK) return;
    void *view = w.bytes(bytes);
    bsr_exec e = BSR_ZERO;
    bsr_plan plan = BSR_ZERO;
    e.stream = stream, e.query = &plan;
    if (bsr_build_transposed_index(ctx, a, view, bytes, &e) != BSR_OK) return;
    e.query = nullptr, e.workspace = w.bytes(plan.workspace_bytes), e.workspace_bytes = plan.workspace_bytes;
    if (bsr_build_transposed_index(ctx, a, view, bytes, &e) == BSR_OK) a->transposed_index = view;
}

/* ---------------------------------------------------------------------------------------------- */
/* products                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

enum { LEFT = 1, RIGHT = 2, BIAS_ROW = 4, BIAS_COL = 8, INPUT = 16 };
struct product {
    const blocks *p;
    int64_t br, bc, n;
    int dtype = BSR_BF16, out = 0; /* out: 0, the usual one */
    bool columns = false, trans = false, index = true, workspace = true;
    int64_t pad_b = 0, pad_c = 0;            /* of the leading dimensions */
    int64_t odd_a = 0, odd_b = 0, odd_c = 0; /* elements that the pointers stand off */
    int64_t items = 1;                       /* one matrix, a batch of dense operands apart */
    unsigned epilogue = 0;
    int activation = BSR_ACT_NONE;
    int scales = 0; /* of groups of so many products: of a for as many rows, of b for each column */
    uint32_t flags = 0;
    product(const blocks *p_, int64_t br_, int64_t bc_, int64_t n_) : p(p_), br(br_), bc(bc_), n(n_) {}
};
static double flops(const product &x) { return 2.0 * (double)(x.p->nnz() * x.br * x.bc) * (double)(x.n * x.items); }
static int usual_result(int dtype) { return dtype == BSR_I8 ? (int)BSR_I32 : dtype == BSR_E4M3 ? (int)BSR_BF16 : dtype; }
static int out_type(const product &x) { return x.out ? x.out : usual_result(x.dtype); }
static bound limit(const product &x) {
    const double es = (double)bsr_dtype_size(x.dtype), os = (double)bsr_dtype_size(out_type(x)), n = (double)(x.n * x.items);
    const double lines_b = (double)(x.trans ? x.p->rows * x.br : x.p->cols * x.bc);
    const double lines_c = (double)(x.trans ? x.p->cols * x.bc : x.p->rows * x.br), stored = (double)(x.p->nnz() * x.br * x.bc);
    const double more = x.epilogue & INPUT ? lines_c * n * os : 0;
    bound b = by_bytes(stored * es + 4.0 * (double)(x.p->nnz() + x.p->rows) + lines_b * n * es + lines_c * n * os + more);
    if (std::max(x.br, x.bc) < 16) /* each block fetches its lines by itself */
        b = larger(b, {(double)(x.p->nnz() * (x.trans ? x.br : x.bc)) * n * es / l2_rate, "gathers"});
    return larger(b, {flops(x) / dense_rate(x.dtype, (x.flags & BSR_EXEC_TF32) != 0), "FLOPs"});
}
static bsr_dense dense_of(scratch &w, int dtype, int64_t rows, int64_t cols, bool columns, int64_t pad, int64_t odd,
                          int64_t items) {
    const int64_t line = (columns ? rows : cols) + pad, whole = line * (columns ? cols : rows);
    char *p = (char *)numbers(w, whole * items + odd, dtype) + odd * (int64_t)bsr_dtype_size(dtype);
    bsr_dense d = bsr_dense_strided(p, dtype, rows, cols, columns ? 1 : line, columns ? line : 1);
    return items > 1 ? bsr_dense_batched(d, items, whole) : d;
}
static timing time_product(const product &x) {
    scratch w;
    bsr_matrix a = upload(w, *x.p, x.br, x.bc, x.dtype);
    if (x.odd_a)
        a.values = (char *)numbers(w, x.p->nnz() * x.br * x.bc + x.odd_a, x.dtype) + x.odd_a * (int64_t)bsr_dtype_size(x.dtype);
    if (x.trans && x.index) attach_index(w, &a);
    const int out = out_type(x);
    const int64_t rows = x.trans ? a.cols : a.rows, inner = x.trans ? a.rows : a.cols;
    const bsr_dense b = dense_of(w, x.dtype, inner, x.n, x.columns, x.pad_b, x.odd_b, x.items);
    const bsr_dense c = dense_of(w, out, rows, x.n, x.columns, x.pad_c, x.odd_c, x.items);
    const bsr_dense input = x.epilogue & INPUT ? dense_of(w, out, rows, x.n, x.columns, 0, 0, x.items) : c;
    const bsr_dense left = bsr_dense_row_major(numbers(w, rows, BSR_F32), BSR_F32, rows, 1);
    const bsr_dense right = bsr_dense_row_major(numbers(w, x.n, BSR_F32), BSR_F32, 1, x.n);
    const bsr_dense bias = x.epilogue & BIAS_ROW ? bsr_dense_row_major(numbers(w, x.n, out), out, 1, x.n)
                                                 : bsr_dense_row_major(numbers(w, rows, out), out, rows, 1);
    bsr_epilogue f = BSR_ZERO;
    f.left_alpha = x.epilogue & LEFT ? &left : nullptr, f.right_alpha = x.epilogue & RIGHT ? &right : nullptr;
    f.bias = x.epilogue & (BIAS_ROW | BIAS_COL) ? &bias : nullptr, f.activation = x.activation;
    const int64_t groups = x.scales ? inner / x.scales : 1, lines = x.scales ? rows / x.scales : 1;
    const bsr_dense of_a = bsr_dense_row_major(numbers(w, lines * groups, BSR_F32), BSR_F32, lines, groups);
    const bsr_dense of_b = bsr_dense_row_major(numbers(w, groups * x.n, BSR_F32), BSR_F32, groups, x.n);
    const bsr_scales a_scales = {&of_a, x.scales, x.scales, 0, 0}, b_scales = {&of_b, x.scales, 1, 0, 0};
    if (x.scales) f.a_scales = &a_scales, f.b_scales = &b_scales;
    const double beta = x.epilogue & INPUT ? 1 : 0;
    return run(
        w,
        [&](const bsr_exec *e) {
            return bsr_dense_addmm(ctx, beta, beta != 0 ? &input : nullptr, 1, x.trans ? BSR_TRANS_A : 0, &a, &b,
                                   x.epilogue || x.activation || x.scales ? &f : nullptr, &c, e);
        },
        x.workspace, x.flags);
}
/* Of a product that stands beside several: timed once. */
static double neighbour_us(const std::string &key, const product &x) {
    static std::map<std::string, double> known;
    double &us = known[key];
    if (us == 0) us = time_product(x).us;
    return us;
}
static void beside_product(const std::string &name, const product &x, const std::string &beside, const product &neighbour) {
    const double us = neighbour_us(std::string(now) + beside, neighbour);
    const timing t = time_product(x);
    report(name, t.us, limit(x), beside, us < 0 ? us : us * flops(x) / flops(neighbour), &t.plan);
}

/* ---------------------------------------------------------------------------------------------- */
/* cuSPARSE                                                                                       */
/* ---------------------------------------------------------------------------------------------- */

/* The same product, row-major; negative: there is none, or it refuses. */
static double cusparse_us(const product &x) {
    scratch w;
    const cudaDataType type = cuda_type(x.dtype), in = x.dtype == BSR_F64 ? CUDA_R_64F : CUDA_R_32F;
    const cusparseOperation_t none = CUSPARSE_OPERATION_NON_TRANSPOSE;
    const scalar one = scalar_of(x.dtype, 1), zero = scalar_of(x.dtype, 0);
    const int64_t rows = x.p->rows, cols = x.p->cols, nnz = x.p->nnz();
    int32_t *crow = w.copy(x.p->crow), *col = w.copy(x.p->col);
    void *values = numbers(w, nnz * x.br * x.bc, x.dtype), *b = numbers(w, cols * x.bc * x.n, x.dtype),
         *c = numbers(w, rows * x.br * x.n, x.dtype), *buffer;
    cusparseSpMatDescr_t a = nullptr;
    size_t bytes = 0;
    double ms = -1;
    if (x.dtype == BSR_I8 || x.br != x.bc || x.trans) return -1;
    if (x.br > 1 && x.n == 1) {
        cusparseMatDescr_t plain;
        if (x.dtype != BSR_F64 && x.dtype != BSR_F32) return -1;
        if (cusparseCreateMatDescr(&plain)) return -1;
        ms = timed(stream, [&] {
            return x.dtype == BSR_F64
                       ? (int)cusparseDbsrmv(sparse, CUSPARSE_DIRECTION_ROW, none, (int)rows, (int)cols, (int)nnz, &one.d, plain,
                                             (double *)values, crow, col, (int)x.br, (double *)b, &zero.d, (double *)c)
                       : (int)cusparseSbsrmv(sparse, CUSPARSE_DIRECTION_ROW, none, (int)rows, (int)cols, (int)nnz, &one.f, plain,
                                             (float *)values, crow, col, (int)x.br, (float *)b, &zero.f, (float *)c);
        });
        cusparseDestroyMatDescr(plain);
        return 1e3 * ms;
    }
    const cusparseIndexType_t i32 = CUSPARSE_INDEX_32I;
    const cusparseIndexBase_t from = CUSPARSE_INDEX_BASE_ZERO;
    if (x.br == 1
            ? cusparseCreateCsr(&a, rows, cols, nnz, crow, col, values, i32, i32, from, type)
            : cusparseCreateBsr(&a, rows, cols, nnz, x.br, x.bc, crow, col, values, i32, i32, from, type, CUSPARSE_ORDER_ROW))
        return -1;
    if (x.n == 1) {
        cusparseDnVecDescr_t vb, vc;
        cusparseCreateDnVec(&vb, cols, b, type), cusparseCreateDnVec(&vc, rows, c, type);
        if (!cusparseSpMV_bufferSize(sparse, none, &one, a, vb, &zero, vc, in, CUSPARSE_SPMV_ALG_DEFAULT, &bytes)) {
            buffer = w.bytes(bytes);
            ms = timed(stream, [&] {
                return (int)cusparseSpMV(sparse, none, &one, a, vb, &zero, vc, in, CUSPARSE_SPMV_ALG_DEFAULT, buffer);
            });
        }
        cusparseDestroyDnVec(vb), cusparseDestroyDnVec(vc);
    } else {
        const cusparseSpMMAlg_t how = x.br == 1 ? CUSPARSE_SPMM_CSR_ALG2 : CUSPARSE_SPMM_BSR_ALG1;
        cusparseDnMatDescr_t mb, mc;
        cusparseCreateDnMat(&mb, cols * x.bc, x.n, x.n, b, type, CUSPARSE_ORDER_ROW);
        cusparseCreateDnMat(&mc, rows * x.br, x.n, x.n, c, type, CUSPARSE_ORDER_ROW);
        if (!cusparseSpMM_bufferSize(sparse, none, none, &one, a, mb, &zero, mc, in, how, &bytes)) {
            buffer = w.bytes(bytes);
            ms = timed(stream, [&] { return (int)cusparseSpMM(sparse, none, none, &one, a, mb, &zero, mc, in, how, buffer); });
        }
        cusparseDestroyDnMat(mb), cusparseDestroyDnMat(mc);
    }
    cusparseDestroySpMat(a);
    return ms < 0 ? -1 : 1e3 * ms;
}
static void beside_cusparse(const std::string &name, const product &x) {
    const timing t = time_product(x);
    report(name, t.us, limit(x), x.br == 1 ? "cuSPARSE CSR" : "cuSPARSE BSR", cusparse_us(x), &t.plan);
}

/* ---------------------------------------------------------------------------------------------- */
/* classes of products                                                                            */
/* ---------------------------------------------------------------------------------------------- */

static product typed(const blocks *p, int64_t br, int64_t bc, int64_t n, int dtype) {
    product x(p, br, bc, n);
    x.dtype = dtype;
    return x;
}
static void small_blocks(void) {
    const auto named = [](const char *of, const product &x) {
        return text("%s b%d %s N=%d", of, (int)x.br, bsr_dtype_name(x.dtype), (int)x.n);
    };
    for (int b : {1, 2, 3, 4, 6, 8, 16}) { /* 200 MB of values or more */
        const blocks large = mesh(b == 1 ? 110 : b == 2 ? 80 : b == 3 ? 60 : b == 4 ? 50 : b == 16 ? 24 : 36);
        for (int dtype : {BSR_F64, BSR_F32, BSR_BF16})
            if (dtype == BSR_F64 || b != 6) {
                const product x = typed(&large, b, b, 1, dtype);
                beside_cusparse(named("large mesh", x), x);
            }
    }
    const blocks middle = mesh(40), tiny = mesh(10), little = mesh(16);
    for (int b : {1, 2, 3, 5, 7, 8})
        for (int n : {8, 64})
            for (int dtype : {BSR_F64, BSR_F32, BSR_BF16})
                if (dtype == BSR_F32 || b == 3) {
                    const product x = typed(&middle, b, b, n, dtype);
                    beside_cusparse(named("mesh", x), x);
                }
    for (const blocks *p : {&tiny, &little})
        for (int b : {1, 3}) {
            const product x = typed(p, b, b, 1, BSR_F64);
            beside_cusparse(named(p == &tiny ? "1,000 nodes" : "4,096 nodes", x), x);
        }
    for (int n : {1, 8}) /* A^T by its index */
        for (int b : {1, 3}) {
            product x = typed(&middle, b, b, n, BSR_F64), y = x;
            x.trans = true;
            beside_product(named("mesh, A^T", x), x, named("A:", y), y);
        }
    for (int b : {1, 2, 4, 8, 13})
        for (double s : {.8, .95, .99}) {
            const blocks p = random_blocks(4096 / b, 4096 / b, s);
            for (int dtype : {BSR_BF16, BSR_F32})
                if (dtype == BSR_BF16 || s == .8) {
                    const product x = typed(&p, b, b, 4096, dtype);
                    if (b == 1 && dtype == BSR_BF16) beside_cusparse(named("4096^2", x) + text(" s %.2f", s), x);
                    else {
                        const timing t = time_product(x);
                        report(named("4096^2", x) + text(" s %.2f", s), t.us, limit(x), "", 0, &t.plan);
                    }
                }
        }
}
/* Rows of very different length, beside as many blocks in even rows. */
static void uneven_rows(void) {
    const auto each = [](int64_t rows, int64_t b, int64_t n, int dtype) {
        const auto power = [=](int64_t i) { return 1 + rows / (2 + i * 2654435761 % rows); };
        const auto arrow = [=](int64_t i) { return i ? INT64_C(2) : rows; };
        const auto full = [=](int64_t i) { return i == rows / 3 ? rows : INT64_C(16); };
        const std::function<int64_t(int64_t)> kinds[] = {power, arrow, full};
        const char *const names[] = {"power law", "arrow", "one full row"};
        for (int k = 0; k < 3; k++) {
            const blocks p = rows_of(rows, rows, kinds[k]);
            const int64_t mean = (p.nnz() + rows - 1) / rows;
            const blocks even = rows_of(rows, rows, [=](int64_t) { return mean; });
            const std::string size = text(" b%d %s N=%d", (int)b, bsr_dtype_name(dtype), (int)n);
            beside_product(names[k] + size, typed(&p, b, b, n, dtype), text("even, for %s", names[k]) + size,
                           typed(&even, b, b, n, dtype));
        }
    };
    each(100000, 3, 1, BSR_F64), each(100000, 1, 1, BSR_F32), each(40000, 4, 64, BSR_F32), each(4096, 16, 64, BSR_BF16);
    each(1024, 64, 512, BSR_BF16);
}

static const blocks &dense_pattern(int64_t br, int64_t bc, double s = .8) { /* of a matrix of about 4096^2 */
    static std::map<std::string, blocks> known;
    const std::string key = text("%d %d %.2f", (int)br, (int)bc, s);
    auto at = known.find(key);
    if (at == known.end()) at = known.emplace(key, random_blocks(4096 / br, 4096 / bc, s)).first;
    return at->second;
}
static product lane(int64_t br, int64_t bc, int dtype = BSR_BF16) { return typed(&dense_pattern(br, bc), br, bc, 4096, dtype); }

/* out's blocks times K columns; beside: microseconds per FLOP of a neighbour. */
struct sampled {
    const blocks *p;
    int64_t br, bc, k;
    int dtype = BSR_BF16;
    bool y_columns = false;
    uint32_t flags = 0;
    bool workspace = true;
    sampled(const blocks *p_, int64_t br_, int64_t bc_, int64_t k_, int dtype_ = BSR_BF16, bool columns = false)
        : p(p_), br(br_), bc(bc_), k(k_), dtype(dtype_), y_columns(columns) {}
};
static double flops(const sampled &x) { return 2.0 * (double)(x.p->nnz() * x.br * x.bc) * (double)x.k; }
static bound limit(const sampled &x) {
    const double es = (double)bsr_dtype_size(x.dtype), os = (double)bsr_dtype_size(usual_result(x.dtype));
    const double lines = (double)(x.p->rows * x.br + x.p->cols * x.bc);
    return larger(by_bytes((double)(x.p->nnz() * x.br * x.bc) * os + lines * (double)x.k * es),
                  {flops(x) / dense_rate(x.dtype, (x.flags & BSR_EXEC_TF32) != 0), "FLOPs"});
}
static timing time_sampled(const sampled &x) {
    scratch w;
    const bsr_matrix c = upload(w, *x.p, x.br, x.bc, usual_result(x.dtype));
    const bsr_dense a = dense_of(w, x.dtype, c.rows, x.k, false, 0, 0, 1),
                    b = dense_of(w, x.dtype, x.k, c.cols, x.y_columns, 0, 0, 1);
    return run(
        w, [&](const bsr_exec *e) { return bsr_sampled_addmm(ctx, 0, nullptr, 1, &a, &b, &c, e); }, x.workspace, x.flags);
}
static void beside_sampled(const std::string &name, const sampled &x, const std::string &beside, const sampled &neighbour) {
    static std::map<std::string, double> known;
    double &us = known[std::string(now) + beside];
    if (us == 0) us = time_sampled(neighbour).us;
    const timing t = time_sampled(x);
    report(name, t.us, limit(x), beside, us < 0 ? us : us * flops(x) / flops(neighbour), &t.plan);
}

/* Blocks whose sides are multiples of 16, beside the largest square tile that divides both. */
static void blocks_of_16(void) {
    static const int sides[][2] = {{256, 256}, {192, 192}, {128, 64}, {64, 128}, {256, 64}, {64, 192},
                                   {96, 96},   {64, 32},   {32, 64},  {96, 32},  {48, 48},  {16, 64},
                                   {64, 16},   {128, 16},  {80, 80},  {112, 48}, {16, 256}};
    for (auto &s : sides) {
        int square = 128;
        while (s[0] % square || s[1] % square) square /= 2;
        const std::string size = text("%d x %d", s[0], s[1]), beside = text("of %d", square);
        beside_product(size, lane(s[0], s[1]), beside, lane(square, square));
        beside_sampled("sampled " + size, {&dense_pattern(s[0], s[1]), s[0], s[1], 4096}, "sampled " + beside,
                       {&dense_pattern(square, square), square, square, 4096});
        if (s[0] % 32) continue;
        for (int form = 0; form < 5; form++) { /* by columns; A^T; few columns; f32; i8 by columns */
            static const char *const names[] = {", by columns", ", A^T", ", N=16", ", f32", ", i8 by columns"};
            product x = lane(s[0], s[1], form == 3 ? BSR_F32 : form == 4 ? BSR_I8 : BSR_BF16), y = lane(square, square, x.dtype);
            x.columns = y.columns = form == 0 || form == 4, x.trans = y.trans = form == 1;
            if (form == 2) x.n = y.n = 16;
            if (form == 0 || s[0] >= 96 || s[0] != s[1]) beside_product(size + names[form], x, beside + names[form], y);
        }
    }
}
/* Sides that no tile divides, beside the next tile up (which is all that padding can give). */
static void other_sides(void) {
    static const int sides[][2] = {{24, 24}, {20, 20}, {100, 100}, {17, 17}, {31, 31}, {127, 127},
                                   {3, 16},  {8, 64},  {1, 64},    {64, 1},  {9, 7}};
    for (auto &s : sides) {
        const int most = std::max(s[0], s[1]), square = most <= 16 ? 16 : most <= 32 ? 32 : most <= 64 ? 64 : 128;
        const std::string size = text("%d x %d", s[0], s[1]), beside = text("of %d", square);
        beside_product(size, lane(s[0], s[1]), beside, lane(square, square));
        if (s[0] == s[1])
            beside_sampled("sampled " + size, {&dense_pattern(s[0], s[1]), s[0], s[1], 4096}, "sampled " + beside,
                           {&dense_pattern(square, square), square, square, 4096});
        for (int dtype : {BSR_F32, BSR_F64, BSR_I8}) /* of one small, one large and one flat block */
            if (s[0] == 17 || s[0] == 100 || s[0] == 8) {
                const std::string type = std::string(" ") + bsr_dtype_name(dtype);
                product x = lane(s[0], s[1], dtype), y = lane(square, square, dtype);
                x.columns = y.columns = dtype == BSR_I8;
                beside_product(size + type, x, beside + type, y);
                if (s[0] == s[1])
                    beside_sampled("sampled " + size + type, {&dense_pattern(s[0], s[1]), s[0], s[1], 4096, dtype},
                                   "sampled " + beside + type, {&dense_pattern(square, square), square, square, 4096, dtype});
            }
        if (s[0] != 17 && s[0] != 100) continue;
        for (int form = 0; form < 4; form++) { /* few columns, columns that are odd, by columns, A^T */
            static const char *const names[] = {" N=64", " N=333", ", by columns", ", A^T"};
            product x = lane(s[0], s[1]), y = lane(square, square);
            if (form < 2) x.n = y.n = form ? 333 : 64;
            if (form == 1) y.n = 336;
            x.columns = y.columns = form == 2, x.trans = y.trans = form == 3;
            beside_product(size + names[form], x, beside + names[form], y);
        }
    }
}
/* Columns, strides and pointers that are no multiples of 16 bytes. */
static void strides(void) {
    const auto both = [](const std::string &name, product x, const std::string &beside, const product &y) {
        x.workspace = false, beside_product(name, x, beside, y);
        x.workspace = true, beside_product(name + ", workspace", x, beside, y);
    };
    for (int b : {64, 128, 16})
        for (int n : {4095, 4090, 2049, 333, 100, 63, 33, 7, 3}) {
            product x = lane(b, b), y = x;
            x.n = n, y.n = (n + 7) / 8 * 8;
            if (b == 64 || n == 4095 || n == 33) both(text("b%d N=%d", b, n), x, text("b%d N=%d", b, (int)y.n), y);
        }
    static const char *const names[] = {
        "rows + 1",       "rows + 3",     "columns + 1",    "b one element on", "out one element on", "values one element on",
        "out's rows + 1", "f16 rows + 1", "i8 columns + 1", "A^T rows + 1"};
    for (int form = 0; form < 10; form++) {
        const int dtype = form == 7 ? BSR_F16 : form == 8 ? BSR_I8 : BSR_BF16;
        product x = lane(64, 64, dtype), y = x;
        x.columns = y.columns = form == 2 || form == 8, x.trans = y.trans = form == 9;
        x.pad_b = form == 1 ? 3 : form < 3 || form > 6, x.pad_c = form == 6;
        x.odd_b = form == 3, x.odd_c = form == 4, x.odd_a = form == 5;
        both(names[form], x, text("aligned%s%s %s", x.columns ? " columns" : "", x.trans ? " A^T" : "", bsr_dtype_name(dtype)),
             y);
    }
    for (int64_t k : {4095, 1000, 333, 33}) {
        sampled x(&dense_pattern(64, 64), 64, 64, k), y(&dense_pattern(64, 64), 64, 64, (k + 63) / 64 * 64);
        x.workspace = false, beside_sampled(text("sampled K=%d", (int)k), x, text("sampled K=%d", (int)y.k), y);
        x.workspace = true, beside_sampled(text("sampled K=%d, workspace", (int)k), x, text("sampled K=%d", (int)y.k), y);
    }
    for (int64_t k : {64, 128, 256}) {
        const sampled x(&dense_pattern(64, 64), 64, 64, k), y(&dense_pattern(64, 64), 64, 64, 4096);
        beside_sampled(text("sampled K=%d", (int)k), x, "sampled K=4096", y);
    }
}
/* Types beside cuBLAS's dense product of the type, per stored FLOP. */
static void types(void) {
    const auto beside_cublas = [](const std::string &name, const timing &t, bound limit, double work, int dtype, bool tf32) {
        report(name, t.us, limit, "cuBLAS", work / dense_rate(dtype, tf32), &t.plan);
    };
    struct kind {
        const char *name;
        int dtype, b, out;
        bool columns, trans;
        uint32_t flags;
        int n;
    };
    static const kind products[] = {{"f64 b16", BSR_F64, 16, 0, false, false, 0, 4096},
                                    {"f64 b32", BSR_F64, 32, 0, false, false, 0, 4096},
                                    {"f64 b64", BSR_F64, 64, 0, false, false, 0, 4096},
                                    {"f64 b64 columns", BSR_F64, 64, 0, true, false, 0, 4096},
                                    {"f64 b64 A^T", BSR_F64, 64, 0, false, true, 0, 4096},
                                    {"f64 b128", BSR_F64, 128, 0, false, false, 0, 4096},
                                    {"f32 b16", BSR_F32, 16, 0, false, false, 0, 4096},
                                    {"f32 b64", BSR_F32, 64, 0, false, false, 0, 4096},
                                    {"f32 b128", BSR_F32, 128, 0, false, false, 0, 4096},
                                    {"TF32 b64", BSR_F32, 64, 0, false, false, BSR_EXEC_TF32, 4096},
                                    {"TF32 b64 columns", BSR_F32, 64, 0, true, false, BSR_EXEC_TF32, 4096},
                                    {"TF32x3 b64", BSR_F32, 64, 0, false, false, BSR_EXEC_TF32X3, 4096},
                                    {"f16 b64", BSR_F16, 64, 0, false, false, 0, 4096},
                                    {"bf16 to f32 b64", BSR_BF16, 64, BSR_F32, false, false, 0, 4096},
                                    {"i8 b64 columns", BSR_I8, 64, 0, true, false, 0, 4096},
                                    {"i8 b64 rows", BSR_I8, 64, 0, false, false, 0, 4096},
                                    {"i8 b64 A^T columns", BSR_I8, 64, 0, true, true, 0, 4096},
                                    {"i8 b16 columns", BSR_I8, 16, 0, true, false, 0, 4096},
                                    {"i8 b16 rows", BSR_I8, 16, 0, false, false, 0, 4096},
                                    {"i8 b32 rows", BSR_I8, 32, 0, false, false, 0, 4096},
                                    {"i8 to bf16 b64 rows", BSR_I8, 64, BSR_BF16, false, false, 0, 4096},
                                    {"bf16 sums in f64 b64", BSR_BF16, 64, 0, false, false, BSR_EXEC_ACCUMULATE_F64, 4096},
                                    {"f32 sums in f64 b64", BSR_F32, 64, 0, false, false, BSR_EXEC_ACCUMULATE_F64, 4096},
                                    {"bf16 sums in f64 b16", BSR_BF16, 16, 0, false, false, BSR_EXEC_ACCUMULATE_F64, 4096},
                                    {"TF32 b16", BSR_F32, 16, 0, false, false, BSR_EXEC_TF32, 4096},
                                    {"f64 b64 N=16", BSR_F64, 64, 0, false, false, 0, 16},
                                    {"f32 b64 N=16", BSR_F32, 64, 0, false, false, 0, 16},
                                    {"f64 b64 N=1", BSR_F64, 64, 0, false, false, 0, 1},
                                    {"f32 b64 N=1", BSR_F32, 64, 0, false, false, 0, 1},
                                    {"i8 b64 N=1 columns", BSR_I8, 64, 0, true, false, 0, 1}};
    for (const kind &k : products) {
        product x = lane(k.b, k.b, k.dtype);
        x.out = k.out, x.columns = k.columns, x.trans = k.trans, x.flags = k.flags, x.n = k.n;
        const bool f64 = (k.flags & BSR_EXEC_ACCUMULATE_F64) != 0;
        if (k.n < 64) {
            const timing t = time_product(x);
            report(k.name, t.us, limit(x), "", 0, &t.plan);
        } else
            beside_cublas(k.name, time_product(x), f64 ? bound{flops(x) / dense_rate(BSR_F64, false), "f64 FLOPs"} : limit(x),
                          flops(x), f64 ? (int)BSR_F64 : k.dtype, (k.flags & BSR_EXEC_TF32) != 0);
    }
    for (int dtype : {BSR_F64, BSR_F32, BSR_I8, BSR_F16})
        for (int b : {16, 64}) {
            const sampled x(&dense_pattern(b, b), b, b, 4096, dtype, dtype == BSR_I8);
            beside_cublas(text("sampled %s b%d", bsr_dtype_name(dtype), b), time_sampled(x), limit(x), flops(x), dtype, false);
        }
    sampled tf32(&dense_pattern(64, 64), 64, 64, 4096, BSR_F32);
    tf32.flags = BSR_EXEC_TF32;
    const timing t = time_sampled(tf32);
    beside_cublas("sampled TF32 b64", t, limit(tf32), flops(tf32), BSR_F32, true);
}
/* Products of 8-bit operands, beside those of bf16, whose rate the hardware has twice. */
static void eights(void) {
    struct kind {
        const char *name;
        bool columns, trans;
        uint32_t flags;
        int dtype, scales;
    };
    static const kind kinds[] = {{"e4m3", true, false, 0, BSR_E4M3, 0},
                                 {"e4m3 fast", true, false, BSR_EXEC_FAST_ACCUM, BSR_E4M3, 0},
                                 {"e4m3 rows", false, false, 0, BSR_E4M3, 0},
                                 {"e4m3 A^T", true, true, 0, BSR_E4M3, 0},
                                 {"e4m3 scales 128", true, false, 0, BSR_E4M3, 128},
                                 {"e4m3 scales 32", true, false, 0, BSR_E4M3, 32},
                                 {"i8", true, false, 0, BSR_I8, 0},
                                 {"i8 scales 128", true, false, 0, BSR_I8, 128}};
    for (int b : {128, 64, 32, 16})
        for (double s : {.5, .8, .95}) {
            const product y = typed(&dense_pattern(b, b, s), b, b, 4096, BSR_BF16);
            for (const kind &k : kinds) {
                product x = typed(&dense_pattern(b, b, s), b, b, 4096, k.dtype);
                if (s != .8 && (!k.columns || k.trans)) continue; /* what does not lie along the products */
                x.columns = k.columns, x.trans = k.trans, x.flags = k.flags, x.out = BSR_BF16, x.scales = k.scales;
                beside_product(text("%s b%d s%.2f", k.name, b, s), x, text("bf16 b%d s%.2f", b, s), y);
            }
        }
    for (int b : {128, 64})
        for (uint32_t flag : {(uint32_t)0, (uint32_t)BSR_EXEC_FAST_ACCUM}) {
            sampled x(&dense_pattern(b, b), b, b, 4096, BSR_E4M3, true);
            x.flags = flag;
            beside_sampled(text("sampled e4m3%s b%d", flag ? " fast" : "", b), x, text("sampled bf16 b%d", b),
                           sampled(&dense_pattern(b, b), b, b, 4096));
        }
}
/* One matrix for all items, beside the product of as many columns. */
static void batches(void) {
    static const int sizes[][2] = {{8, 512}, {32, 128}, {128, 32}, {512, 8}, {4096, 1}};
    for (int b : {64, 16})
        for (auto &s : sizes) {
            product x = lane(b, b), y = x;
            x.items = s[0], x.n = s[1];
            beside_product(text("b%d, %d of N=%d", b, s[0], s[1]), x, text("b%d N=4096", b), y);
            if (b == 16) continue;
            x.columns = true;
            y.columns = true;
            beside_product(text("b%d, %d of N=%d, columns", b, s[0], s[1]), x, text("b%d N=4096 columns", b), y);
            x.columns = y.columns = false, x.trans = y.trans = true;
            if (s[1] < 128) beside_product(text("b%d A^T, %d of N=%d", b, s[0], s[1]), x, text("b%d A^T N=4096", b), y);
        }
    for (int b : {16, 64}) { /* lists of products */
        scratch w;
        const blocks &p = dense_pattern(b, b);
        bsr_matrix a = upload(w, p, b, b, BSR_BF16), host = a;
        host.crow_indices = (void *)p.crow.data(), host.col_indices = (void *)p.col.data();
        const bsr_dense x = dense_of(w, BSR_BF16, 4096, 4096, false, 0, 0, 1),
                        c = dense_of(w, BSR_BF16, 4096, 4096, false, 0, 0, 1);
        bsr_context_desc d = BSR_ZERO;
        bsr_context *cpu = nullptr;
        bsr_scatter_indices i = BSR_ZERO;
        std::vector<int64_t> list[4];
        d.backend = BSR_BACKEND_CPU, i.format = BSR_SCATTER_STRIDED_COMPRESSED, i.split_n = 4096 / 128;
        if (bsr_create(&d, &cpu, nullptr) || bsr_build_scatter_indices(cpu, &host, 4096, &i, nullptr)) continue;
        int64_t **const at[] = {&i.c_indices, &i.r_offsets, &i.p_indices, &i.q_indices};
        const int64_t count[] = {i.c_count, i.r_count, i.p_count, i.q_count};
        for (int k = 0; k < 4; k++) list[k].resize((size_t)count[k] + 1), *at[k] = list[k].data();
        if (bsr_build_scatter_indices(cpu, &host, 4096, &i, nullptr)) continue;
        for (int k = 0; k < 4; k++) *at[k] = w.copy(list[k]);
        bsr_destroy(cpu);
        const timing t = run(w, [&](const bsr_exec *e) { return bsr_dense_scatter_mm(ctx, &a, &x, &i, &c, e); });
        const product y = lane(b, b);
        const bsr_dense all = bsr_dense_batched(bsr_dense_row_major(a.values, BSR_BF16, b, b), a.nnz, b * b);
        const timing u = run(w, [&](const bsr_exec *e) { return bsr_scatter_mm(ctx, &all, &x, &i, &c, e); });
        report(text("scatter_mm of lists, b%d", b), u.us, limit(y), text("b%d N=4096", b),
               neighbour_us(std::string(now) + text("b%d N=4096", b), y), &u.plan);
        report(text("scatter_mm, b%d", b), t.us, limit(y), text("b%d N=4096", b),
               neighbour_us(std::string(now) + text("b%d N=4096", b), y), &t.plan);
    }
}
static void transposed(void) {
    for (int b : {64, 128, 16, 3})
        for (int n : {4096, 64, 1}) {
            product x = lane(b, b, b == 3 ? BSR_F32 : BSR_BF16);
            x.n = n, x.trans = true;
            const product y = x;
            x.index = false;
            const std::string beside = text("b%d N=%d with its index", b, n);
            if (b == 3 && n > 64) continue;
            x.workspace = false, beside_product(text("b%d N=%d", b, n), x, beside, y);
            x.workspace = true, beside_product(text("b%d N=%d, workspace", b, n), x, beside, y);
        }
}
/* Block-diagonal products of mixtures of experts, beside as many dense ones by cuBLAS. */
static void experts(void) {
    static const int sets[][4] = {{65536, 512, 2048, 64}, {32768, 768, 3072, 64}, {8192, 1024, 4096, 64}, {8192, 4096, 16384, 4}};
    for (auto &s : sets) {
        const int64_t tokens = s[0], hidden = s[1], ffn = s[2], groups = s[3], each = tokens / groups, b = 128;
        const blocks p = diagonal(groups, each / b, ffn / b);
        const std::string size = text("%d, %d, %d, %d", s[0], s[1], s[2], s[3]);
        const double sdd = dense_us(each, ffn, hidden, (int)groups, BSR_BF16, false);
        const double dsd = dense_us(each, hidden, ffn, (int)groups, BSR_BF16, false);
        const double back = dense_us(ffn, hidden, each, (int)groups, BSR_BF16, false);
        for (bool columns : {false, true}) { /* tokens times the weights of all experts side by side */
            const sampled x(&p, b, b, hidden, BSR_BF16, columns);
            const timing t = time_sampled(x);
            report(std::string("SDD ") + (columns ? "NT " : "") + size, t.us, limit(x), "cuBLAS batched", sdd, &t.plan);
        }
        for (bool trans : {false, true}) {
            product x(&p, b, b, hidden);
            x.trans = trans;
            const timing t = time_product(x);
            report(std::string("DSD ") + (trans ? "A^T " : "") + size, t.us, limit(x), "cuBLAS batched", trans ? back : dsd,
                   &t.plan);
        }
    }
}
static void epilogues(void) {
    struct kind {
        const char *name;
        unsigned epilogue;
        int activation;
    };
    static const kind kinds[] = {{"ReLU", 0, BSR_ACT_RELU},
                                 {"bias of a column", BIAS_ROW, BSR_ACT_NONE},
                                 {"bias of a row", BIAS_COL, BSR_ACT_NONE},
                                 {"scales of rows", LEFT, BSR_ACT_NONE},
                                 {"scales of columns", RIGHT, BSR_ACT_NONE},
                                 {"both scales", LEFT | RIGHT, BSR_ACT_NONE},
                                 {"GELU", 0, BSR_ACT_GELU},
                                 {"SiLU", 0, BSR_ACT_SILU},
                                 {"GELU and bias", BIAS_ROW, BSR_ACT_GELU},
                                 {"input", INPUT, BSR_ACT_NONE},
                                 {"all of them", INPUT | LEFT | RIGHT | BIAS_ROW, BSR_ACT_GELU}};
    for (int b : {64, 128, 32, 16})
        for (const kind &k : kinds)
            for (int columns = 0; columns < (b == 64 ? 2 : 1); columns++) {
                product x = lane(b, b), y = x;
                x.columns = y.columns = columns, x.epilogue = k.epilogue, x.activation = k.activation;
                beside_product(text("b%d %s%s", b, k.name, columns ? ", columns" : ""), x,
                               text("b%d bare%s", b, columns ? ", columns" : ""), y);
            }
}

/* ---------------------------------------------------------------------------------------------- */
/* classes of rows and matrices                                                                   */
/* ---------------------------------------------------------------------------------------------- */

static void softmax_masks(void) {
    enum { KEYS = 1, ADDED = 2, ATTENTION = 4, RELATIVE = 8, RELATIVE_ROW = 16, ODD_ROWS = 32 };
    struct kind {
        const char *name;
        unsigned has;
    };
    static const kind kinds[] = {{"plain", 0},
                                 {"key padding, multiplied", KEYS},
                                 {"key padding, added", KEYS | ADDED},
                                 {"attention mask, added", ATTENTION | ADDED},
                                 {"attention mask of bytes", ATTENTION},
                                 {"relative bias", RELATIVE},
                                 {"relative bias of a row", RELATIVE_ROW},
                                 {"everything", KEYS | ATTENTION | RELATIVE},
                                 {"mask of odd rows", ATTENTION | ADDED | ODD_ROWS}};
    for (int b : {64, 16, 48, 8, 5, 4, 20})
        for (int dtype : {BSR_BF16, BSR_F32, BSR_F64})
            for (const kind &k : kinds) {
                scratch w;
                const int64_t n = 4096 / b * b, items = dtype == BSR_F64 ? 4 : 16, odd = (k.has & ODD_ROWS) != 0;
                if (b != 64 && dtype != BSR_BF16) continue;
                const blocks p = random_blocks(n / b, n / b, .75);
                bsr_matrix x = upload(w, p, b, b, dtype);
                const int64_t size = p.nnz() * b * b;
                x.values = numbers(w, size * items, dtype);
                x = bsr_matrix_batched(x, items, 0, 0, size);
                bsr_matrix y = x;
                y.values = numbers(w, size * items, dtype);
                const int keys = k.has & ADDED ? (int)BSR_F32 : (int)BSR_BOOL, masks = k.has & ADDED ? dtype : (int)BSR_BOOL;
                const bsr_dense kp = bsr_dense_row_major(numbers(w, n, keys), keys, 1, n);
                bsr_dense am = bsr_dense_row_major(numbers(w, n * (n + odd), masks), masks, n, n + odd);
                am.cols = n;
                const int64_t lines_ = k.has & RELATIVE_ROW ? 1 : n;
                const bsr_dense rel = bsr_dense_row_major(numbers(w, lines_ * n, dtype), dtype, lines_, n);
                bsr_softmax_options o;
                memset(&o, 0, sizeof o);
                o.key_padding_mode = o.attn_mode = k.has & ADDED ? BSR_MASK_ADD : BSR_MASK_MUL;
                double bytes = 2.0 * (double)(size * items) * (double)bsr_dtype_size(dtype);
                if (k.has & KEYS) o.key_padding_mask = &kp;
                if (k.has & ATTENTION) o.attn_mask = &am, bytes += (double)size * (double)bsr_dtype_size(masks);
                if (k.has & (RELATIVE | RELATIVE_ROW)) o.relative_bias = &rel;
                if (k.has & RELATIVE) bytes += (double)size * (double)bsr_dtype_size(dtype);
                const timing t = run(w, [&](const bsr_exec *e) { return bsr_softmax(ctx, .5, &x, k.has ? &o : nullptr, &y, e); });
                report(text("b%d %s %s", b, bsr_dtype_name(dtype), k.name), t.us, by_bytes(bytes), "", 0, &t.plan);
                if (k.has) continue;
                bsr_matrix dx = x;
                dx.values = numbers(w, size * items, dtype);
                const timing u = run(w, [&](const bsr_exec *e) { return bsr_softmax_backward(ctx, .5, &x, &y, &dx, e); });
                report(text("b%d %s backward", b, bsr_dtype_name(dtype)), u.us, by_bytes(bytes * 1.5), "", 0, &u.plan);
            }
}
/* Entries of a random matrix, sorted or not. */
static void entries_of(int64_t rows, int64_t cols, int64_t each, bool sorted, std::vector<int32_t> *row,
                       std::vector<int32_t> *col) {
    std::mt19937 engine(3);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < each; k++)
            row->push_back((int32_t)i), col->push_back((int32_t)(k * (cols / each) + engine() % (unsigned)(cols / each)));
    for (size_t i = row->size(); !sorted && i > 1; i--) {
        const size_t j = engine() % i;
        std::swap((*row)[i - 1], (*row)[j]), std::swap((*col)[i - 1], (*col)[j]);
    }
}
static void conversions(void) {
    struct size {
        int64_t n, b;
        int dtype;
    };
    static const size sizes[] = {
        {8192, 64, BSR_BF16}, {8192, 16, BSR_BF16}, {8192, 16, BSR_F32}, {6144, 3, BSR_F32}, {1024, 16, BSR_F32}};
    for (const size &s : sizes) {
        scratch w;
        const int64_t n = s.n, b = s.b, lines_ = n / b, all = lines_ * lines_;
        const double es = (double)bsr_dtype_size(s.dtype), whole = (double)(n * n) * es;
        const blocks p = random_blocks(lines_, lines_, .8);
        const bsr_matrix a = upload(w, p, b, b, s.dtype);
        const double stored = (double)(p.nnz() * b * b) * es, index = 4.0 * (double)(p.nnz() + lines_);
        const bsr_dense full = bsr_dense_row_major(numbers(w, n * n, s.dtype), s.dtype, n, n);
        const bsr_dense scattered = bsr_dense_row_major(w.bytes((size_t)(n * n) * (size_t)es), s.dtype, n, n);
        bsr_matrix to = bsr_matrix_make(n, n, b, b, all, w.bytes((size_t)(lines_ + 1) * 4), w.bytes((size_t)all * 4), BSR_I32,
                                        w.bytes((size_t)(n * n) * (size_t)es), s.dtype);
        const auto one = [&](const char *name, double bytes, const call_function &call) {
            const timing t = run(w, call);
            report(text("%s %d b%d %s", name, (int)n, (int)b, bsr_dtype_name(s.dtype)), t.us, by_bytes(bytes), "", 0, &t.plan);
        };
        one("to dense", stored + index + whole, [&](const bsr_exec *e) { return bsr_to_dense(ctx, &a, &scattered, e); });
        one("from dense", whole + stored + index, [&](const bsr_exec *e) {
            bsr_matrix m = to;
            return bsr_from_dense(ctx, &scattered, &m, e);
        });
        one("prune .8", whole + stored + index, [&](const bsr_exec *e) {
            bsr_matrix m = to;
            m.nnz = p.nnz() + 1;
            return bsr_prune(ctx, bsr_operand_dense(&full), .8, BSR_NORM_L2, &m, e);
        });
        for (int kind = 0; kind < 3; kind++) { /* CSR, COO in order, COO in disorder: 16 entries a row */
            static const char *const names[] = {"from CSR", "from COO", "from unsorted COO"};
            std::vector<int32_t> row, col, crow;
            entries_of(n, n, 16, kind < 2, &row, &col);
            for (int64_t i = 0; i <= n; i++) crow.push_back((int32_t)(i * 16));
            const int64_t count = n * 16;
            const int32_t *drow = w.copy(row), *dcol = w.copy(col), *dcrow = w.copy(crow);
            const void *values = numbers(w, count, s.dtype);
            std::vector<int64_t> met; /* blocks that hold an entry: what is written */
            for (size_t i = 0; i < row.size(); i++) met.push_back(row[i] / b * lines_ + col[i] / b);
            std::sort(met.begin(), met.end());
            const double kept = (double)(std::unique(met.begin(), met.end()) - met.begin());
            one(names[kind], (double)count * (es + (kind ? 8 : 4)) + kept * ((double)(b * b) * es + 4), [&](const bsr_exec *e) {
                bsr_matrix m = to;
                return kind ? bsr_from_coo(ctx, n, n, count, drow, dcol, BSR_I32, values, s.dtype, &m, e)
                            : bsr_from_csr(ctx, n, n, count, dcrow, dcol, BSR_I32, values, s.dtype, &m, e);
            });
        }
        uint64_t *word = (uint64_t *)w.bytes(64);
        one("validate", index, [&](const bsr_exec *e) {
            bsr_exec f = *e;
            f.flags |= BSR_EXEC_CHECK_INDICES, f.device_status = word;
            return bsr_validate(ctx, &a, &f);
        });
        uint64_t bytes = 0;
        if (bsr_transposed_index_size(ctx, &a, &bytes, nullptr) == BSR_OK) {
            void *view = w.bytes(bytes);
            one("transposed index", index + (double)bytes,
                [&](const bsr_exec *e) { return bsr_build_transposed_index(ctx, &a, view, bytes, e); });
        }
        if (bsr_schedule_size(ctx, &a, 2, 0, &bytes, nullptr) == BSR_OK) {
            void *view = w.bytes(bytes);
            one("schedule by pairs", index + (double)bytes,
                [&](const bsr_exec *e) { return bsr_build_schedule(ctx, &a, 2, 0, view, bytes, e); });
        }
        std::vector<uint8_t> mask((size_t)all);
        for (size_t i = 0; i < mask.size(); i++) mask[i] = i * 2654435761u % 5 == 0;
        const uint8_t *dmask = w.copy(mask);
        one("from a mask", (double)all * 1.8, [&](const bsr_exec *e) {
            bsr_matrix m = to;
            return bsr_from_block_mask(ctx, dmask, &m, e);
        });
        one("random pattern", (double)all * .8, [&](const bsr_exec *e) {
            bsr_matrix m = to;
            return bsr_random_pattern(ctx, 5, .8, &m, e);
        });
    }
}

/* ---------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } classes[] = {{"small", small_blocks}, {"uneven", uneven_rows},    {"blocks16", blocks_of_16}, {"sides", other_sides},
                   {"strides", strides},    {"types", types},           {"eights", eights},      {"batches", batches},
                   {"experts", experts},    {"softmax", softmax_masks}, {"epilogues", epilogues},   {"transposed", transposed},
                   {"conversions", conversions}};
    bsr_error e;
    bsr_context_desc d = BSR_ZERO;
    int wanted = argc;
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (auto &c : classes) known = known || !strcmp(argv[i], c.name);
        if (!strcmp(argv[i], "--csv") && i + 1 < argc) {
            csv = fopen(argv[++i], "w"), wanted -= 2;
            if (!csv) return perror(argv[i]), 1;
        } else if (!known) {
            printf("usage: %s [--csv FILE] [CLASS...], of", argv[0]);
            for (auto &c : classes) printf(" %s", c.name);
            return printf("\n"), 2;
        }
    }
    d.backend = BSR_BACKEND_CUDA;
    if (bsr_create(&d, &ctx, &e) != BSR_OK) return printf("there is no GPU: 0 cases, 1 skipped\n"), 0;
    check(cudaStreamCreate(&stream));
    if (cusparseCreate(&sparse) || cublasCreate(&blas) || cusparseSetStream(sparse, stream) || cublasSetStream(blas, stream))
        return 1;
    if (csv) fprintf(csv, "class,case,us,limit us,limit,of the limit,beside,beside us,times its rate,runs on\n");
    measure();
    for (auto &c : classes) {
        bool chosen = wanted == 1;
        for (int i = 1; i < argc; i++) chosen = chosen || (strcmp(argv[i - 1], "--csv") && !strcmp(argv[i], c.name));
        if (!chosen) continue;
        now = c.name;
        c.run();
    }
    summary();
    if (csv) fclose(csv);
    cublasDestroy(blas), cusparseDestroy(sparse);
    bsr_destroy(ctx);
    return 0;
}
