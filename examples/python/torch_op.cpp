/* torch_op.cpp: torch.ops.bsrsparse.*, operators of PyTorch over crow_indices, col_indices and values, on the CPU and, with
   BSRSPARSE_TORCH_CUDA, on CUDA tensors in PyTorch's current stream. torch_op.py builds it, and adds what is Python's: gradients,
   fake kernels, modules. Nothing is copied; the strides of dense operands may be any. A pattern is one for all items (crow
   [rows + 1], col [blocks]), one for each (crow [..., rows + 1], col [..., blocks]), or items of different lengths that share col
   [all blocks] (crow [..., rows + 1] with absolute positions); values are [..., blocks, block rows, block columns]. */
#include "bsrsparse.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
#ifdef BSRSPARSE_TORCH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;
using sizes = std::vector<int64_t>;
using maybe = std::optional<Tensor>;

int dtype_of(const Tensor &t, const char *what) {
    switch (t.scalar_type()) {
        case at::kHalf: return BSR_F16;
        case at::kBFloat16: return BSR_BF16;
        case at::kFloat: return BSR_F32;
        case at::kDouble: return BSR_F64;
        case at::kChar: return BSR_I8;
        case at::kInt: return BSR_I32;
        case at::kLong: return BSR_I64;
        case at::kBool: case at::kByte: return BSR_BOOL;
        default: TORCH_CHECK(false, "bsrsparse: ", what, " is of type ", t.scalar_type(), ", which the library does not have");
    }
    return BSR_DTYPE_NONE;
}
at::ScalarType result_of(const Tensor &t) { return t.scalar_type() == at::kChar ? at::kInt : t.scalar_type(); }

/* One context for the CPU and one for each GPU, made when first needed. */
const bsr_context *context_of(const Tensor &t) {
    static std::mutex mutex;
    static std::map<int, bsr_context *> made;
    const int device = t.is_cuda() ? (int)t.device().index() : -1;
    std::lock_guard<std::mutex> lock(mutex);
    bsr_context *&ctx = made[device];
    if (!ctx) {
        bsr_context_desc desc = BSR_ZERO;
        bsr_error error;
        char line[300];
        desc.backend = device < 0 ? BSR_BACKEND_CPU : BSR_BACKEND_CUDA, desc.device = device + 1;
        if (bsr_create(&desc, &ctx, &error) != BSR_OK) {
            bsr_error_string(&error, line, sizeof line);
            TORCH_CHECK(false, "bsrsparse: ", line);
        }
    }
    return ctx;
}

/* Makes a call: asks first what it wants, which checks it, then gives it a workspace of that size. */
template <class Call> void run(const Tensor &like, const Call &call) {
    bsr_exec exec = BSR_ZERO;
    bsr_error error;
    bsr_plan plan;
    Tensor workspace;
    char line[300];
#ifdef BSRSPARSE_TORCH_CUDA
    c10::cuda::OptionalCUDAGuard guard;
    if (like.is_cuda()) guard.set_device(like.device()), exec.stream = c10::cuda::getCurrentCUDAStream().stream();
#endif
    const bsr_context *ctx = context_of(like);
    exec.error = &error, exec.query = &plan;
    bsr_status status = call(ctx, &exec);
    if (status == BSR_OK) {
        exec.query = nullptr, exec.flags = BSR_EXEC_SKIP_CHECKS; /* the query has checked all of it */
        if (plan.workspace_bytes) {
            workspace = at::empty({(int64_t)plan.workspace_bytes + 64}, like.options().dtype(at::kByte));
            exec.workspace = (void *)(((uintptr_t)workspace.mutable_data_ptr() + 63) / 64 * 64);
            exec.workspace_bytes = plan.workspace_bytes;
        }
        status = call(ctx, &exec);
    }
    if (status == BSR_OK) return;
    bsr_error_string(&error, line, sizeof line);
    TORCH_CHECK(false, "bsrsparse: ", line);
}

void same_device(const Tensor &t, const Tensor &other, const char *what) {
    TORCH_CHECK(t.device() == other.device(), "bsrsparse: ", what, " is on ", t.device(), ", another operand on ",
                other.device());
}
void *address(const Tensor &t) { return t.numel() ? const_cast<void *>(t.const_data_ptr()) : nullptr; }

bsr_dense dense_of(const Tensor &t, const char *what) {
    const int n = (int)t.dim() - 2;
    TORCH_CHECK(n >= 0 && n <= BSR_MAX_BATCH_DIMS, "bsrsparse: ", what, " has ", t.dim(), " dimensions, not 2 to 6");
    bsr_dense d = bsr_dense_strided(address(t), dtype_of(t, what), t.size(-2), t.size(-1), t.stride(-2), t.stride(-1));
    d.batch_dims = n;
    for (int i = 0; i < n; i++) d.batch[i] = t.size(i), d.batch_stride[i] = t.stride(i);
    return d;
}

/* A matrix of cols columns and blocks of br x bc; values may be undefined: the pattern, of the type dtype. */
bsr_matrix matrix_of(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols, int64_t br, int64_t bc,
                     int dtype) {
    TORCH_CHECK(crow.dim() >= 1 && col.dim() >= 1 && col.dim() <= crow.dim(), "bsrsparse: crow and col have ", crow.dim(),
                " and ", col.dim(), " dimensions");
    TORCH_CHECK(crow.scalar_type() == col.scalar_type(), "bsrsparse: crow and col are of different types");
    TORCH_CHECK(crow.size(-1) > 0 && (crow.size(-1) == 1 || crow.stride(-1) == 1) && (col.size(-1) <= 1 || col.stride(-1) == 1),
                "bsrsparse: index arrays must be packed, and crow have rows + 1 entries");
    same_device(crow, col, "crow");
    const bool ragged = col.dim() < crow.dim();
    const int nc = (int)crow.dim() - 1, nv = values.defined() ? (int)values.dim() - 3 : 0;
    const int n = ragged ? nv + nc : nv > nc ? nv : nc;
    TORCH_CHECK(nv >= 0 && n <= BSR_MAX_BATCH_DIMS, "bsrsparse: values must have 3 to 7 dimensions");
    TORCH_CHECK(!ragged || col.dim() == 1, "bsrsparse: col has ", col.dim(), " dimensions, crow ", crow.dim());
    bsr_matrix m = bsr_matrix_make((crow.size(-1) - 1) * br, cols, br, bc, col.size(-1), address(crow), address(col),
                                   dtype_of(crow, "crow"), values.defined() ? address(values) : nullptr, dtype);
    m.batch_dims = n, m.flags = ragged ? BSR_MATRIX_RAGGED : 0;
    for (int i = 0; i < n; i++) {
        const int c = i - (n - nc), v = ragged ? i : i - (n - nv); /* crow's and values' dimension here */
        const int64_t of_crow = c >= 0 ? crow.size(c) : 1, of_values = v >= 0 && v < nv ? values.size(v) : 1;
        TORCH_CHECK(of_crow == of_values || of_crow == 1 || of_values == 1, "bsrsparse: the batches of crow and values differ");
        m.batch[i] = of_crow == 1 ? of_values : of_crow;
        if (of_crow != 1) m.crow_batch_stride[i] = crow.stride(c), m.col_batch_stride[i] = ragged ? 0 : col.stride(c);
        if (of_values != 1) m.values_batch_stride[i] = values.stride(v);
        TORCH_CHECK(ragged || c < 0 || col.size(c) == crow.size(c), "bsrsparse: the batches of crow and col differ");
    }
    if (!values.defined()) return m;
    same_device(values, crow, "values");
    TORCH_CHECK(values.size(-3) == col.size(-1), "bsrsparse: values hold ", values.size(-3), " blocks, col ", col.size(-1));
    for (int i = 0; i < 3; i++) m.value_strides[i] = values.size(i - 3) > 1 ? values.stride(i - 3) : 1;
    TORCH_CHECK(m.value_strides[0] || m.value_strides[1] || m.value_strides[2], "bsrsparse: values are one number, repeated");
    return m;
}
bsr_matrix matrix_of(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols) {
    TORCH_CHECK(values.dim() >= 3, "bsrsparse: values must be [..., blocks, block rows, block columns]");
    return matrix_of(crow, col, values, cols, values.size(-2), values.size(-1), dtype_of(values, "values"));
}
void attach(bsr_matrix *m, const maybe &index, const Tensor &values) {
    if (!index) return;
    same_device(*index, values, "index");
    TORCH_CHECK(index->scalar_type() == at::kByte && index->is_contiguous() && !((uintptr_t)index->const_data_ptr() % 64),
                "bsrsparse: index is not what transposed_index() gives, in memory that 64 bytes divide");
    m->transposed_index = index->const_data_ptr();
}

/* Batch dimensions together; what does not broadcast is left to the library. */
void widen(sizes &batch, const int64_t *other, int n) {
    if ((int)batch.size() < n) batch.insert(batch.begin(), n - batch.size(), 1);
    for (int i = 0; i < n; i++) {
        int64_t &size = batch[batch.size() - n + i];
        if (size == 1) size = other[i];
    }
}
Tensor result(const Tensor &like, sizes shape, const sizes &last, at::ScalarType type) {
    shape.insert(shape.end(), last.begin(), last.end());
    return at::empty(shape, like.options().dtype(type));
}

/* ---- the operators ---- */

Tensor mm(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols, const Tensor &dense, bool transposed,
          const maybe &index) {
    bsr_matrix a = matrix_of(crow, col, values, cols);
    const bsr_dense b = dense_of(dense, "dense");
    same_device(dense, values, "dense"), attach(&a, index, values);
    sizes batch(a.batch, a.batch + a.batch_dims);
    widen(batch, b.batch, b.batch_dims);
    Tensor out = result(dense, batch, {transposed ? a.cols : a.rows, b.cols}, result_of(values));
    const bsr_dense o = dense_of(out, "out");
    run(values, [&](const bsr_context *ctx, const bsr_exec *e) {
        return bsr_dense_mm(ctx, transposed ? BSR_TRANS_A : 0, &a, &b, &o, e);
    });
    return out;
}

const char *const activations[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
int activation_of(c10::string_view name) {
    for (int i = 0; i < 5; i++)
        if (name == activations[i]) return i;
    TORCH_CHECK(false, "bsrsparse: unknown activation ", name, ": none, relu, gelu, gelu_tanh, silu are there");
    return 0;
}

/* act(beta input + left_alpha (alpha op(A) dense) right_alpha + bias), without gradients. */
Tensor addmm(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols, const Tensor &dense, const maybe &input,
             const maybe &left_alpha, const maybe &right_alpha, const maybe &bias, double beta, double alpha,
             c10::string_view activation, bool transposed, const maybe &index, std::optional<at::ScalarType> dtype) {
    bsr_matrix a = matrix_of(crow, col, values, cols);
    const bsr_dense b = dense_of(dense, "dense");
    const maybe *const given[] = {&left_alpha, &right_alpha, &bias, &input};
    static const char *const names[] = {"left_alpha", "right_alpha", "bias", "input"};
    bsr_dense views[4];
    bsr_epilogue ep = BSR_ZERO;
    const bsr_dense **const members[] = {&ep.left_alpha, &ep.right_alpha, &ep.bias}, *in = nullptr;
    for (int i = 0; i < 4; i++)
        if (*given[i]) {
            same_device(**given[i], values, names[i]), views[i] = dense_of(**given[i], names[i]);
            (i < 3 ? *members[i] : in) = &views[i];
        }
    ep.activation = activation_of(activation);
    same_device(dense, values, "dense"), attach(&a, index, values);
    sizes batch(a.batch, a.batch + a.batch_dims);
    widen(batch, b.batch, b.batch_dims);
    Tensor out = result(dense, batch, {transposed ? a.cols : a.rows, b.cols}, dtype ? *dtype : result_of(values));
    const bsr_dense o = dense_of(out, "out");
    run(values, [&](const bsr_context *ctx, const bsr_exec *e) {
        return bsr_dense_addmm(ctx, in ? beta : 0.0, in, alpha, transposed ? BSR_TRANS_A : 0, &a, &b, &ep, &o, e);
    });
    return out;
}

/* x [..., columns] W^T + bias, or x [..., rows] W: tokens stand one after the other in x and in the result. */
Tensor linear(const Tensor &x, const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols, const maybe &bias,
              bool transposed, const maybe &index) {
    bsr_matrix a = matrix_of(crow, col, values, cols);
    TORCH_CHECK(x.dim() >= 1 && a.batch_dims == 0, "bsrsparse: linear takes one matrix, and x [..., features]");
    const Tensor tokens = x.reshape({-1, x.size(-1)});
    const int64_t features = transposed ? a.cols : a.rows;
    Tensor out = result(x, sizes(x.sizes().begin(), x.sizes().end() - 1), {features}, result_of(values));
    const bsr_dense b = bsr_dense_transposed(dense_of(tokens, "x"));
    const bsr_dense o = bsr_dense_transposed(dense_of(out.view({-1, features}), "out"));
    bsr_dense add;
    bsr_epilogue ep = BSR_ZERO;
    same_device(x, values, "x"), attach(&a, index, values);
    if (bias) {
        TORCH_CHECK(bias->dim() == 1, "bsrsparse: the bias has ", bias->dim(), " dimensions, not one");
        same_device(*bias, values, "bias"), add = dense_of(bias->unsqueeze(1), "bias"), ep.bias = &add;
    }
    run(values, [&](const bsr_context *ctx, const bsr_exec *e) {
        return bsr_dense_addmm(ctx, 0, nullptr, 1, transposed ? BSR_TRANS_A : 0, &a, &b, &ep, &o, e);
    });
    return out;
}

/* alpha mat1 mat2 at the stored blocks: their values. */
Tensor sampled_mm(const Tensor &crow, const Tensor &col, const Tensor &mat1, const Tensor &mat2, at::IntArrayRef block,
                  double alpha) {
    const bsr_dense x = dense_of(mat1, "mat1"), y = dense_of(mat2, "mat2");
    const bool ragged = col.dim() < crow.dim();
    const int shared = ragged ? (int)crow.dim() - 1 : 0;
    sizes batch(x.batch, x.batch + x.batch_dims);
    widen(batch, y.batch, y.batch_dims);
    if (!ragged) widen(batch, crow.sizes().data(), (int)crow.dim() - 1);
    TORCH_CHECK(block.size() == 2 && (int)batch.size() >= shared, "bsrsparse: mat1 and mat2 lack the pattern's batch dimensions");
    batch.resize(batch.size() - shared);
    same_device(mat1, mat2, "mat1"), same_device(mat1, crow, "mat1");
    Tensor out = result(mat1, batch, {col.size(-1), block[0], block[1]}, result_of(mat1));
    const bsr_matrix o = matrix_of(crow, col, out, y.cols);
    run(mat1, [&](const bsr_context *ctx, const bsr_exec *e) {
        return bsr_sampled_addmm(ctx, 0, nullptr, alpha, &x, &y, &o, e);
    });
    return out;
}

/* Memory for values of m's pattern: those of items of different lengths stand one after the other. */
Tensor values_of(const bsr_matrix &m, const Tensor &like) {
    if (m.flags & BSR_MATRIX_RAGGED) return at::empty(like.sizes(), like.options());
    return result(like, sizes(m.batch, m.batch + m.batch_dims), {m.nnz, m.block_rows, m.block_cols}, like.scalar_type());
}
/* Softmax of scale x over the stored elements of each row. */
Tensor softmax(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols, double scale) {
    const bsr_matrix x = matrix_of(crow, col, values, cols);
    Tensor out = values_of(x, values);
    const bsr_matrix y = matrix_of(crow, col, out, cols);
    run(values, [&](const bsr_context *ctx, const bsr_exec *e) { return bsr_softmax(ctx, scale, &x, nullptr, &y, e); });
    return out;
}
Tensor softmax_backward(const Tensor &crow, const Tensor &col, const Tensor &y, const Tensor &grad, int64_t cols, double scale) {
    const bsr_matrix a = matrix_of(crow, col, y, cols), b = matrix_of(crow, col, grad, cols);
    Tensor out = values_of(a, y);
    const bsr_matrix c = matrix_of(crow, col, out, cols);
    run(y, [&](const bsr_context *ctx, const bsr_exec *e) { return bsr_softmax_backward(ctx, scale, &a, &b, &c, e); });
    return out;
}

/* softmax(scale q k^T at the stored blocks) v and the log-sum-exp of each row; mask: 0 forbids, in the blocks' elements. */
std::tuple<Tensor, Tensor> attention(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &crow, const Tensor &col,
                                     at::IntArrayRef block, const maybe &mask, double scale, bool causal) {
    TORCH_CHECK(block.size() == 2 && block[0] > 0 && block[1] > 0, "bsrsparse: block is not two sizes");
    const bsr_dense a = dense_of(q, "q"), b = dense_of(k, "k"), c = dense_of(v, "v");
    const int64_t cols = (b.rows + block[1] - 1) / block[1] * block[1];
    const bsr_matrix m = matrix_of(crow, col, mask ? *mask : Tensor(), cols, block[0], block[1],
                                   mask ? dtype_of(*mask, "mask") : a.dtype);
    bsr_attention_options options = BSR_ZERO;
    same_device(q, k, "q"), same_device(q, v, "q"), same_device(q, crow, "q");
    options.flags = (causal ? BSR_ATTENTION_CAUSAL : 0) | (mask ? BSR_ATTENTION_MASK_BOOLEAN : 0);
    const sizes batch(a.batch, a.batch + a.batch_dims);
    Tensor out = result(q, batch, {a.rows, c.cols}, q.scalar_type());
    Tensor lse = result(q, batch, {a.rows, 1}, q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const bsr_dense o = dense_of(out, "out"), l = dense_of(lse, "lse");
    run(q, [&](const bsr_context *ctx, const bsr_exec *e) {
        return bsr_attention(ctx, scale, &a, &b, &c, &m, &options, &o, &l, e);
    });
    return {out, lse};
}

Tensor to_dense(const Tensor &crow, const Tensor &col, const Tensor &values, int64_t cols) {
    const bsr_matrix a = matrix_of(crow, col, values, cols);
    Tensor out = result(values, sizes(a.batch, a.batch + a.batch_dims), {a.rows, a.cols}, values.scalar_type());
    const bsr_dense o = dense_of(out, "out");
    run(values, [&](const bsr_context *ctx, const bsr_exec *e) { return bsr_to_dense(ctx, &a, &o, e); });
    return out;
}

/* The view that products with A^T want: bytes, for `index` above. It is stale when the pattern changes. */
Tensor transposed_index(const Tensor &crow, const Tensor &col, int64_t cols, at::IntArrayRef block) {
    TORCH_CHECK(block.size() == 2, "bsrsparse: block is not two sizes");
    const bsr_matrix a = matrix_of(crow, col, Tensor(), cols, block[0], block[1], BSR_F32);
    bsr_exec exec = BSR_ZERO;
    uint64_t bytes = 0;
    bsr_error error;
    char line[300];
    exec.error = &error;
    if (bsr_transposed_index_size(context_of(crow), &a, &bytes, &exec) != BSR_OK) {
        bsr_error_string(&error, line, sizeof line);
        TORCH_CHECK(false, "bsrsparse: ", line);
    }
    Tensor out = at::empty({(int64_t)bytes}, crow.options().dtype(at::kByte)); /* from PyTorch: 64 divides its address */
    void *buffer = out.mutable_data_ptr();
    run(crow, [&](const bsr_context *ctx, const bsr_exec *e) { return bsr_build_transposed_index(ctx, &a, buffer, bytes, e); });
    return out;
}

void implement(torch::Library &m) {
    m.impl("mm", &mm), m.impl("addmm", &addmm), m.impl("linear", &linear), m.impl("sampled_mm", &sampled_mm);
    m.impl("softmax", &softmax), m.impl("softmax_backward", &softmax_backward), m.impl("attention", &attention);
    m.impl("to_dense", &to_dense), m.impl("transposed_index", &transposed_index);
}

} // namespace

TORCH_LIBRARY(bsrsparse, m) {
#define PATTERN "Tensor crow, Tensor col, "
    m.def("mm(" PATTERN "Tensor values, SymInt cols, Tensor dense, bool transposed=False, Tensor? index=None) -> Tensor");
    m.def("addmm(" PATTERN "Tensor values, SymInt cols, Tensor dense, Tensor? input=None, Tensor? left_alpha=None, Tensor? "
          "right_alpha=None, Tensor? bias=None, float beta=1, float alpha=1, str activation='none', bool transposed=False, "
          "Tensor? index=None, ScalarType? dtype=None) -> Tensor");
    m.def("linear(Tensor x, " PATTERN "Tensor values, SymInt cols, Tensor? bias=None, bool transposed=False, Tensor? index=None) "
          "-> Tensor");
    m.def("sampled_mm(" PATTERN "Tensor mat1, Tensor mat2, int[] block, float alpha=1) -> Tensor");
    m.def("softmax(" PATTERN "Tensor values, SymInt cols, float scale=1) -> Tensor");
    m.def("softmax_backward(" PATTERN "Tensor y, Tensor grad, SymInt cols, float scale=1) -> Tensor");
    m.def("attention(Tensor q, Tensor k, Tensor v, " PATTERN "int[] block, Tensor? mask=None, float scale=0, bool causal=False) "
          "-> (Tensor, Tensor)");
    m.def("to_dense(" PATTERN "Tensor values, SymInt cols) -> Tensor");
    m.def("transposed_index(" PATTERN "SymInt cols, int[] block) -> Tensor");
}
TORCH_LIBRARY_IMPL(bsrsparse, CPU, m) { implement(m); }
#ifdef BSRSPARSE_TORCH_CUDA
TORCH_LIBRARY_IMPL(bsrsparse, CUDA, m) { implement(m); }
#endif
