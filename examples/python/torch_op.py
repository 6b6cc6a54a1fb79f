"""bsrsparse as operators of PyTorch: torch.ops.bsrsparse.mm, addmm, linear, sampled_mm, softmax, attention, to_dense over crow,
col and values, on the CPU and on CUDA tensors, with gradients and for torch.compile; BSRLinear; attention like FlexAttention's.

    import torch_op                                           # builds torch_op.cpp once, into build/torch or $BSRSPARSE_BUILD
    y = torch.ops.bsrsparse.mm(a.crow_indices(), a.col_indices(), a.values(), a.shape[1], x)   # a: a torch.sparse_bsr tensor
    layer = torch_op.BSRLinear.of(linear, sparsity=.8, block=(16, 16))                         # of a torch.nn.Linear
    o = torch_op.flex_attention(q, k, v, block_mask)          # a BlockMask of torch.nn.attention.flex_attention

Wants a C++ compiler, and libbsrsparse.so where bsrsparse.py finds it (`make shared`). CUDA tensors want a library that nvcc has
built, and a PyTorch with CUDA beside nvcc when this is built. Gradients: mm (of values and dense), linear (of x, values, bias),
sampled_mm, softmax, attention (of q, k, v: from the log-sum-exp, at stored blocks only); addmm has none. The comments in
bsrsparse.h say what operands may be. A pattern that changes wants a new transposed_index."""
import hashlib
import math
import os
import shutil
import subprocess

import torch

import bsrsparse

HERE = os.path.dirname(os.path.abspath(__file__))


def build():
    """Compiles torch_op.cpp against the library; what is there of the same sources is taken as it is. Returns its path."""
    library, torch_at = os.path.abspath(bsrsparse.found()), os.path.dirname(torch.__file__)
    if not os.path.exists(library):
        raise OSError(f"{library} is absent: `make shared` builds libbsrsparse.so; BSRSPARSE_LIBRARY names it")
    installed = [os.path.join(os.path.dirname(library), "..", "include"), "/usr/local/include", "/usr/include"]
    places = [HERE, os.path.join(HERE, "..", ".."), *(os.path.join(p, s) for p in installed for s in ("bsrsparse", ""))]
    header = next((p for p in places if os.path.exists(os.path.join(p, "bsrsparse.h"))), ".")
    command = [os.environ.get("CXX") or "c++", "-O1", "-fPIC", "-shared", "-I" + header]
    for folder in ("include", "include/torch/csrc/api/include"):
        command += ["-isystem", os.path.join(torch_at, folder)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", os.path.join(HERE, "torch_op.cpp")]
    libraries = ["c10", "torch_cpu"]
    if torch.version.cuda and shutil.which("nvcc"):
        toolkit = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("nvcc"))))
        command += ["-DBSRSPARSE_TORCH_CUDA", "-isystem", os.path.join(toolkit, "include")]
        libraries += ["c10_cuda"]
    command += ["-L" + os.path.join(torch_at, "lib"), *("-l" + name for name in libraries), library,
                "-Wl,-rpath," + os.path.dirname(library)]
    key = hashlib.sha256(" ".join([torch.__version__] + command).encode())
    for file in (os.path.join(HERE, "torch_op.cpp"), os.path.join(header, "bsrsparse.h")):
        with open(file, "rb") as source:
            key.update(source.read())
    folder = os.environ.get("BSRSPARSE_BUILD") or os.path.join(HERE, "..", "..", "build", "torch")
    target = os.path.abspath(os.path.join(folder, f"torch_op_{key.hexdigest()[:16]}.so"))
    if not os.path.exists(target):
        os.makedirs(folder, exist_ok=True)
        unfinished = f"{target}.{os.getpid()}"
        for standard in ("-std=c++20", "-std=c++17"):  # PyTorch's headers want the one of late, older compilers have the other
            done = subprocess.run(command + [standard, "-o", unfinished], stderr=subprocess.PIPE, text=True)
            if not done.returncode:
                break
            errors = done.stderr if standard == "-std=c++20" else errors + done.stderr
        else:
            raise RuntimeError(f"{command[0]} can't build torch_op.cpp:\n{errors}")
        os.replace(unfinished, target)
    return target


torch.ops.load_library(build())
ops = torch.ops.bsrsparse
lib = torch.library


# ---- fake kernels: shapes and types alone, for torch.compile ----

def result_type(t):
    return torch.int32 if t.dtype == torch.int8 else t.dtype


def batch_of(crow, col, values):
    """The batch dimensions of a matrix."""
    of_crow, of_values = crow.shape[:-1], values.shape[:-3]
    return of_values + of_crow if col.dim() < crow.dim() else torch.broadcast_shapes(of_crow, of_values)


@lib.register_fake("bsrsparse::mm")
def _(crow, col, values, cols, dense, transposed=False, index=None):
    rows = cols if transposed else (crow.shape[-1] - 1) * values.shape[-2]
    batch = torch.broadcast_shapes(batch_of(crow, col, values), dense.shape[:-2])
    return dense.new_empty(batch + (rows, dense.shape[-1]), dtype=result_type(values))


@lib.register_fake("bsrsparse::addmm")
def _(crow, col, values, cols, dense, input=None, left_alpha=None, right_alpha=None, bias=None, beta=1, alpha=1,
      activation="none", transposed=False, index=None, dtype=None):
    rows = cols if transposed else (crow.shape[-1] - 1) * values.shape[-2]
    batch = torch.broadcast_shapes(batch_of(crow, col, values), dense.shape[:-2])
    return dense.new_empty(batch + (rows, dense.shape[-1]), dtype=dtype or result_type(values))


@lib.register_fake("bsrsparse::linear")
def _(x, crow, col, values, cols, bias=None, transposed=False, index=None):
    features = cols if transposed else (crow.shape[-1] - 1) * values.shape[-2]
    return x.new_empty(x.shape[:-1] + (features,), dtype=result_type(values))


@lib.register_fake("bsrsparse::sampled_mm")
def _(crow, col, mat1, mat2, block, alpha=1):
    batch, ragged = torch.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2]), col.dim() < crow.dim()
    batch = batch[:len(batch) - (crow.dim() - 1)] if ragged else torch.broadcast_shapes(batch, crow.shape[:-1])
    return mat1.new_empty(tuple(batch) + (col.shape[-1], *block), dtype=result_type(mat1))


def values_of(crow, col, like):
    return like.new_empty(like.shape if col.dim() < crow.dim() else batch_of(crow, col, like) + like.shape[-3:])


@lib.register_fake("bsrsparse::softmax")
def _(crow, col, values, cols, scale=1):
    return values_of(crow, col, values)


@lib.register_fake("bsrsparse::softmax_backward")
def _(crow, col, y, grad, cols, scale=1):
    return values_of(crow, col, y)


@lib.register_fake("bsrsparse::attention")
def _(q, k, v, crow, col, block, mask=None, scale=0, causal=False):
    lse = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(q.shape[:-1] + (v.shape[-1],)), q.new_empty(q.shape[:-1] + (1,), dtype=lse)


@lib.register_fake("bsrsparse::to_dense")
def _(crow, col, values, cols):
    return values.new_empty(batch_of(crow, col, values) + ((crow.shape[-1] - 1) * values.shape[-2], cols))


@lib.register_fake("bsrsparse::transposed_index")
def _(crow, col, cols, block):
    return crow.new_empty(lib.get_ctx().new_dynamic_size(), dtype=torch.uint8)


# ---- gradients ----

def sampled_sum(crow, col, x, y, like):
    """x y at the stored blocks, summed over the batch dimensions that like, the values, does not have."""
    if like.dim() == 3 and crow.dim() == 1 and max(x.dim(), y.dim()) > 2:  # one product with a longer inner size
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        x = x.expand(batch + x.shape[-2:]).movedim(-2, 0).reshape(x.shape[-2], -1)
        y = y.expand(batch + y.shape[-2:]).reshape(-1, y.shape[-1])
    return ops.sampled_mm(crow, col, x, y, like.shape[-2:]).sum_to_size(like.shape)


def mm_setup(ctx, inputs, output):
    crow, col, values, ctx.cols, dense, ctx.transposed, index = inputs
    ctx.save_for_backward(crow, col, values, dense, index)


def mm_backward(ctx, grad):
    crow, col, values, dense, index = ctx.saved_tensors
    of_values = of_dense = None
    if ctx.needs_input_grad[2]:
        x, y = (dense, grad.mT) if ctx.transposed else (grad, dense.mT)
        of_values = sampled_sum(crow, col, x, y, values)
    if ctx.needs_input_grad[4]:
        of_dense = ops.mm(crow, col, values, ctx.cols, grad, not ctx.transposed, index).sum_to_size(dense.shape)
    return None, None, of_values, None, of_dense, None, None


def linear_setup(ctx, inputs, output):
    x, crow, col, values, ctx.cols, bias, ctx.transposed, index = inputs
    ctx.save_for_backward(x, crow, col, values, index)


def linear_backward(ctx, grad):
    x, crow, col, values, index = ctx.saved_tensors
    of_x = of_values = of_bias = None
    if ctx.needs_input_grad[0]:
        of_x = ops.linear(grad, crow, col, values, ctx.cols, None, not ctx.transposed, index)
    if ctx.needs_input_grad[3]:
        rows, cols = (y.reshape(-1, y.shape[-1]) for y in ((x, grad) if ctx.transposed else (grad, x)))
        of_values = ops.sampled_mm(crow, col, rows.t(), cols, values.shape[-2:])
    if any(ctx.needs_input_grad[5:6]):  # not there where the call leaves the bias out
        of_bias = grad.sum(list(range(grad.dim() - 1)))
    return of_x, None, None, of_values, None, of_bias, None, None


def sampled_setup(ctx, inputs, output):
    crow, col, mat1, mat2, ctx.block, ctx.alpha = inputs
    ctx.save_for_backward(crow, col, mat1, mat2)


def sampled_backward(ctx, grad):
    crow, col, mat1, mat2 = ctx.saved_tensors
    of_1, of_2, grad = None, None, grad.contiguous()  # one number repeated, as sum() gives it, is no matrix's values
    if ctx.needs_input_grad[2]:
        of_1 = (ctx.alpha * ops.mm(crow, col, grad, mat2.shape[-1], mat2.mT)).sum_to_size(mat1.shape)
    if ctx.needs_input_grad[3]:
        of_2 = (ctx.alpha * ops.mm(crow, col, grad, mat2.shape[-1], mat1, True)).mT.sum_to_size(mat2.shape)
    return None, None, of_1, of_2, None, None


def softmax_setup(ctx, inputs, output):
    crow, col, values, ctx.cols, ctx.scale = inputs
    ctx.shape = values.shape
    ctx.save_for_backward(crow, col, output)


def softmax_backward(ctx, grad):
    crow, col, y = ctx.saved_tensors
    of_values = ops.softmax_backward(crow, col, y, grad.contiguous(), ctx.cols, ctx.scale)
    return None, None, of_values.sum_to_size(ctx.shape), None, None


def places(crow, col, block):
    """The row and the column of each stored element, [..., blocks, block rows, block columns]; of ragged items also the item."""
    blocks = torch.arange(col.shape[-1], device=col.device)
    item = None
    if col.dim() < crow.dim():
        flat = crow.reshape(-1, crow.shape[-1])
        starts = flat[:, :-1].reshape(-1)
        at = torch.searchsorted(starts.contiguous(), blocks.to(starts.dtype), right=True) - 1
        item, row = at // (crow.shape[-1] - 1), at % (crow.shape[-1] - 1)
    else:
        row = torch.searchsorted(crow.contiguous(), blocks.to(crow.dtype).expand(col.shape).contiguous(), right=True) - 1
    row = row[..., None, None] * block[0] + torch.arange(block[0], device=col.device)[:, None]
    return row, col.long()[..., None, None] * block[1] + torch.arange(block[1], device=col.device), item


def of_rows(x, row, item, crow, most):
    """x [..., rows, 1] at each stored element's row; rows past the end (of a block that sticks out) take what clamps to them."""
    flat, at = x.squeeze(-1), row.squeeze(-1).clamp(max=most - 1)
    if item is not None:  # the pattern's batch dimensions and rows as one
        flat = flat.reshape(flat.shape[:flat.dim() - crow.dim()] + (-1,))
        at = at + (item * most)[:, None]
        return flat[..., at].unsqueeze(-1)
    at = at.expand(flat.shape[:-1] + at.shape[-2:]).reshape(flat.shape[:-1] + (-1,))
    return flat.gather(-1, at).reshape(at.shape[:-1] + row.shape[-3:-1] + (1,))


def attention_setup(ctx, inputs, output):
    q, k, v, crow, col, ctx.block, mask, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, crow, col, mask, *output)
    ctx.mark_non_differentiable(output[1])


def attention_backward(ctx, grad, _):
    """p = exp(s - lse) at the stored blocks; ds = p (grad vᵀ - row sums of grad out)."""
    q, k, v, crow, col, mask, out, lse = ctx.saved_tensors
    (br, bc), rows, keys, heads = ctx.block, q.shape[-2], k.shape[-2], q.shape[-3] if q.dim() > 2 else 1
    scale = ctx.scale or 1 / math.sqrt(q.shape[-1])
    whole = lambda x, block: torch.nn.functional.pad(x, (0, 0, 0, -x.shape[-2] % block))
    groups = lambda x: x.repeat_interleave(heads // x.shape[-3], -3) if x.dim() > 2 and x.shape[-3] not in (1, heads) else x
    q_, k_, v_, g = whole(q, br), whole(groups(k), bc), whole(groups(v), bc), whole(grad, br)
    row, column, item = places(crow, col, ctx.block)
    allowed = (row < rows) & (column < keys)
    if ctx.causal:
        allowed = allowed & (column <= row)
    if mask is not None:
        allowed = allowed & (mask != 0)
    s = ops.sampled_mm(crow, col, q_, k_.mT, ctx.block, scale)
    p = torch.where(allowed, torch.exp(s - of_rows(lse, row, item, crow, rows)), 0)
    delta = (grad * out).sum(-1, keepdim=True, dtype=lse.dtype)
    ds = p * (ops.sampled_mm(crow, col, g, v_.mT, ctx.block) - of_rows(delta, row, item, crow, rows)) * scale
    p, ds = p.to(q.dtype), ds.to(q.dtype)
    length = k_.shape[-2]

    def back(x, like):
        x = x[..., :like.shape[-2], :]
        if x.dim() > 2 and like.dim() > 2 and like.shape[-3] not in (1, x.shape[-3]):
            x = x.unflatten(-3, (like.shape[-3], -1)).sum(-3)
        return x.sum_to_size(like.shape)
    return (back(ops.mm(crow, col, ds, length, k_), q), back(ops.mm(crow, col, ds, length, q_, True), k),
            back(ops.mm(crow, col, p, length, g, True), v), None, None, None, None, None, None)


for name, backward, setup in (("mm", mm_backward, mm_setup), ("linear", linear_backward, linear_setup),
                              ("sampled_mm", sampled_backward, sampled_setup), ("softmax", softmax_backward, softmax_setup),
                              ("attention", attention_backward, attention_setup)):
    lib.register_autograd("bsrsparse::" + name, backward, setup_context=setup)


# ---- modules and functions ----

class BSRLinear(torch.nn.Module):
    """A linear layer whose weight [out, in] stores only some blocks: values are trained, the pattern stays."""
    def __init__(self, in_features, out_features, crow, col, values, bias=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.values = torch.nn.Parameter(values)
        self.bias = None if bias is None else torch.nn.Parameter(bias)
        self.register_buffer("crow", crow)
        self.register_buffer("col", col)
        self.register_buffer("index", None, persistent=False)  # of the transposed weight, for the gradient of x
        self.renew_index()

    def renew_index(self):
        """To be called when crow or col have changed."""
        self.index = ops.transposed_index(self.crow, self.col, self.in_features, self.values.shape[-2:])

    def _load_from_state_dict(self, *arguments):
        super()._load_from_state_dict(*arguments)
        self.renew_index()

    @classmethod
    def of(cls, linear, sparsity, block=(16, 16)):
        """From a torch.nn.Linear: the blocks of its weight with the largest norms. Sizes must be multiples of the block."""
        (rows, cols), (br, bc) = linear.weight.shape, block
        if rows % br or cols % bc:
            raise ValueError(f"a weight of {rows} x {cols} is not made of blocks of {br} x {bc}")
        tiles = linear.weight.detach().unflatten(0, (-1, br)).unflatten(2, (-1, bc)).transpose(1, 2)
        kept = bsrsparse.library().kept_blocks(rows // br * (cols // bc), sparsity)
        chosen = tiles.double().square().sum((2, 3)).flatten().topk(kept).indices.sort().values
        row, col = chosen // (cols // bc), chosen % (cols // bc)
        crow = torch.zeros(rows // br + 1, dtype=torch.int64, device=row.device)
        crow[1:] = torch.bincount(row, minlength=rows // br).cumsum(0)
        bias = None if linear.bias is None else linear.bias.detach().clone()
        return cls(cols, rows, crow.int(), col.int(), tiles[row, col].contiguous(), bias)

    def forward(self, x):
        return ops.linear(x, self.crow, self.col, self.values, self.in_features, self.bias, False, self.index)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, blocks={tuple(self.values.shape)}"


def pattern_of(block_mask):
    """crow, col, elements of a BlockMask of FlexAttention: elements are None where all blocks are full, else what its mask_mod
    says in each stored block. crow has the batch dimensions [B, H] or [H] where these are not 1, items of different lengths."""
    counts, indices = block_mask.kv_num_blocks.long(), block_mask.kv_indices.long()
    wide = torch.arange(indices.shape[-1], device=indices.device)
    keep = torch.zeros(counts.shape + (indices.shape[-1],), dtype=torch.bool, device=indices.device)
    part = torch.zeros_like(keep).scatter_(-1, indices, wide < counts[..., None])
    keep |= part
    if block_mask.full_kv_num_blocks is not None:
        full = block_mask.full_kv_indices.long()
        keep |= torch.zeros_like(keep).scatter_(-1, full, wide < block_mask.full_kv_num_blocks.long()[..., None])
    batch = keep.shape[:-2]
    if batch[0] == 1 and batch[1] == 1:
        keep = keep[0, 0]
    elif batch[0] == 1:
        keep = keep[0]
    crow = torch.zeros(keep.numel() // keep.shape[-1] + 1, dtype=torch.int64, device=keep.device)
    crow[1:] = keep.sum(-1).flatten().cumsum(0)
    rows = keep.shape[-2]
    crow = torch.cat([crow[:-1].view(-1, rows), crow[rows::rows, None]], 1).view(keep.shape[:-2] + (rows + 1,))
    where = keep.nonzero()
    col, elements = where[:, -1], None
    if bool(part.any()):
        where = torch.nn.functional.pad(where, (4 - where.shape[1], 0))
        b, h, r, c = (where[:, i, None, None] for i in range(4))
        br, bc = block_mask.BLOCK_SIZE
        row, column = r * br + torch.arange(br, device=keep.device)[:, None], c * bc + torch.arange(bc, device=keep.device)
        elements = block_mask.mask_mod(b, h, row, column).expand(len(where), br, bc)
        elements = (elements | ~part.expand(part.shape)[b, h, r, c]).contiguous()
    return crow.int(), col.int(), elements


def flex_attention(query, key, value, block_mask, scale=None, enable_gqa=False):
    """FlexAttention's call for a BlockMask: no score_mod; the mask's blocks are worked out at each call, so keep
    pattern_of(block_mask) and call torch.ops.bsrsparse.attention where one mask serves many."""
    if key.shape[-3] != query.shape[-3] and not enable_gqa:
        raise ValueError("query and key have different numbers of heads: enable_gqa=True lets groups of queries share a key")
    crow, col, elements = pattern_of(block_mask)
    return ops.attention(query, key, value, crow, col, list(block_mask.BLOCK_SIZE), elements, scale or 0.0)[0]
