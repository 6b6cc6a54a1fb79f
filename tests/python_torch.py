#!/usr/bin/env python3
"""examples/python/torch_op.py against PyTorch's dense operations: python_torch.py LIBRARY [parts of names]; on the CPU, and on a
GPU where LIBRARY has the CUDA backend and PyTorch a GPU. Without PyTorch, NumPy or a C++ compiler: a counted skip. Ends with
"N passed, N failed, N skipped"."""
import copy
import io
import itertools
import os
import shutil
import sys
import time
import traceback
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "python"))
missing = ""
try:
    import torch
except ImportError:
    missing = "PyTorch is absent (pip install torch)"
if not missing and not shutil.which(os.environ.get("CXX") or "c++"):
    missing = "a C++ compiler is absent (Debian: apt install g++)"
if missing:
    print(f"{missing}: its operators are not tested")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
if len(sys.argv) > 1:
    os.environ["BSRSPARSE_LIBRARY"] = sys.argv[1]
warnings.filterwarnings("ignore", message=".*(Sparse BSR|Sparse CSR|single level of indirection|flex_attention called without).*")
import bsrsparse  # noqa: E402: after the library is named
import torch_op  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402

ops = torch.ops.bsrsparse
F64 = torch.float64
CASES = []
device = "cpu"


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def random(*shape, dtype=F64, grad=False):
    x = torch.rand(shape, dtype=F64, device=device) * 2 - 1
    x = x if dtype.is_floating_point else torch.randint(-8, 9, shape, device=device)
    return x.to(dtype).requires_grad_(grad)


def spread(x):
    """The same numbers with other strides."""
    wide = torch.full(x.shape[:-2] + (x.shape[-1] * 2, x.shape[-2] + 1), 77, dtype=x.dtype, device=device)
    view = wide[..., ::2, :-1].mT
    view.copy_(x)
    return view


class Matrix:
    """A random pattern with values, and its dense form. batch: of values; items: of the pattern, all different if ragged."""
    def __init__(self, rows, cols, block, dtype=F64, batch=(), items=(), ragged=False, index=torch.int32, density=.5):
        self.rows, self.cols, self.block = rows * block[0], cols * block[1], block
        if ragged:
            keep = torch.rand(*items, rows, cols, device=device) < density
        else:  # as many in each item
            order = torch.rand(*items, rows * cols, device=device).argsort(-1)
            keep = (order < int(density * rows * cols)).view(*items, rows, cols)
        each = torch.nn.functional.pad(keep.sum(-1), (1, 0))
        crow, self.col = each.cumsum(-1), keep.nonzero()[:, -1]
        if ragged:
            last = crow[..., -1].flatten().cumsum(0) - crow[..., -1].flatten()
            crow = crow + last.view(items)[..., None]
        else:
            self.col = self.col.view(*items, -1)
        self.crow, self.col = crow.to(index), self.col.to(index).contiguous()
        if ragged:
            batch = tuple(batch)
        self.ragged, self.keep = ragged, keep
        self.values = random(*batch, self.col.shape[-1], *block, dtype=dtype)

    def pattern(self):
        return self.crow, self.col

    def dense(self, values=None):
        """Dense, differentiable."""
        values = self.values if values is None else values
        where = self.keep.nonzero()
        n, (br, bc) = self.keep.dim() - 2, self.block
        full = values.new_zeros(torch.broadcast_shapes(values.shape[:-3], ()) + tuple(self.keep.shape) + self.block)
        if self.ragged or not n:
            at = (slice(None),) * (values.dim() - 3) + tuple(where[:, i] for i in range(n + 2))
            full[at] = values
            full = full.transpose(-3, -2)
            return full.reshape(full.shape[:-4] + (self.rows, self.cols))
        batch = torch.broadcast_shapes(values.shape[:-3], self.keep.shape[:-2])
        full = values.new_zeros(batch + tuple(self.keep.shape[-2:]) + self.block)
        full[self.keep.expand(batch + self.keep.shape[-2:])] = values.expand(batch + values.shape[-3:]).reshape(-1, *self.block)
        full = full.transpose(-3, -2)
        return full.reshape(full.shape[:-4] + (self.rows, self.cols))

    def stored(self):
        return self.keep.repeat_interleave(self.block[0], -2).repeat_interleave(self.block[1], -1)


UNIT = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8, torch.float32: 2.0 ** -20, F64: 2.0 ** -48}


def close(got, want, times=1.0):
    assert got.shape == want.shape, f"{tuple(got.shape)}, expected {tuple(want.shape)}"
    bound = UNIT.get(got.dtype, 0) * times * (want.double().abs().max().item() + 1 if want.numel() else 1)
    err = (got.double() - want.double()).abs().max().item() if want.numel() else 0
    assert err <= bound, f"off by {err}, {bound} is allowed"


def refused(call, *words):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as e:
        assert all(w in str(e) for w in words), str(e)
        return
    raise AssertionError(f"taken, expected {words}")


FORMS = [dict(), dict(batch=(3,)), dict(items=(3,)), dict(items=(3,), ragged=True), dict(batch=(2, 3)),
         dict(batch=(2,), items=(1,)), dict(batch=(2,), items=(3,), ragged=True), dict(items=(2, 3), ragged=True)]


@case
def products_in_all_types():
    for dtype, block, index in itertools.product((torch.float16, torch.bfloat16, torch.float32, F64, torch.int8),
                                                 ((1, 1), (3, 5), (16, 16), (7, 1)), (torch.int32, torch.int64)):
        a = Matrix(5, 4, block, dtype, index=index)
        full = a.dense().double()
        for x in (random(a.cols, 6, dtype=dtype), random(a.cols, 1, dtype=dtype), spread(random(a.cols, 33, dtype=dtype))):
            y = ops.mm(*a.pattern(), a.values, a.cols, x)
            assert y.dtype == (torch.int32 if dtype == torch.int8 else dtype) and y.is_contiguous()
            close(y, full @ x.double())
        x, view = random(a.rows, 3, dtype=dtype), ops.transposed_index(*a.pattern(), a.cols, block)
        close(ops.mm(*a.pattern(), a.values, a.cols, x, True), full.mT @ x.double())
        close(ops.mm(*a.pattern(), a.values, a.cols, x, True, view), full.mT @ x.double())


@case
def batches_and_patterns():
    for form in FORMS:
        a = Matrix(4, 5, (2, 3), **form)
        full = a.dense()
        for batch in {(), tuple(full.shape[:-2]), tuple(full.shape[-3:-2])}:
            x, y = random(*batch, a.cols, 4), random(*batch, a.rows, 4)
            close(ops.mm(*a.pattern(), a.values, a.cols, x), full @ x)
            close(ops.mm(*a.pattern(), spread(a.values), a.cols, spread(y), True), full.mT @ y)
        close(ops.to_dense(*a.pattern(), a.values, a.cols), full)
        x, y = random(*full.shape[:-2], a.rows, 7), random(*full.shape[:-2], 7, a.cols)
        got = ops.sampled_mm(*a.pattern(), x, y, a.block, 2.0)
        close(a.dense(got) * torch.ones_like(full), 2 * (x @ y) * a.stored())
        scores = full.masked_fill(~a.stored(), -float("inf")) * 1.5
        got = ops.softmax(*a.pattern(), a.values, a.cols, 1.5)
        close(a.dense(got) * torch.ones_like(full), scores.softmax(-1).nan_to_num(0), 4)
    for rows, cols, n in ((0, 3, 2), (3, 0, 2), (3, 4, 0), (0, 0, 0)):
        a = Matrix(rows, cols, (2, 3), density=0)
        close(ops.mm(*a.pattern(), a.values, a.cols, random(a.cols, n)), torch.zeros(a.rows, n, dtype=F64, device=device))
    t, x = random(12, 20).to_sparse_bsr((4, 5)), random(20, 2)
    close(ops.mm(t.crow_indices(), t.col_indices(), t.values(), 20, x), t.to_dense() @ x)


@case
def the_epilogue():
    a, x = Matrix(4, 5, (3, 2)), random(10, 6)
    left, right, bias, c = random(12, 1), random(1, 6), random(1, 6), random(12, 6)
    acts = dict(none=lambda t: t, relu=torch.relu, silu=torch.nn.functional.silu, gelu=torch.nn.functional.gelu,
                gelu_tanh=lambda t: torch.nn.functional.gelu(t, approximate="tanh"))
    for name, act in acts.items():
        got = ops.addmm(*a.pattern(), a.values, 10, x, c, left, right, bias, .5, 2.0, name)
        close(got, act(.5 * c + left * (2 * a.dense() @ x) * right + bias))
    half = ops.addmm(*a.pattern(), a.values.float(), 10, x.float(), dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    close(half, a.dense() @ x)
    refused(lambda: ops.addmm(*a.pattern(), a.values, 10, x, activation="tanh"), "unknown activation tanh")


@case
def gradients_of_products():
    for form in FORMS:
        a = Matrix(3, 4, (2, 3), **form)
        full = a.dense()
        for batch, transposed in itertools.product({(), tuple(full.shape[:-2])}, (False, True)):
            values, x = a.values.clone().requires_grad_(), random(*batch, a.rows if transposed else a.cols, 2, grad=True)
            assert checked(lambda v, x: ops.mm(*a.pattern(), v, a.cols, x, transposed), (values, x))
            weight = random(*torch.broadcast_shapes(full.shape[:-2], batch), a.cols if transposed else a.rows, 2)
            (ops.mm(*a.pattern(), values, a.cols, x, transposed) * weight).sum().backward()
            ours, x.grad = (values.grad, x.grad), None
            values.grad = None
            dense = a.dense(values)
            ((dense.mT if transposed else dense) @ x * weight).sum().backward()
            close(ours[0], values.grad), close(ours[1], x.grad)
        x, y = random(*full.shape[:-2], a.rows, 2, grad=True), random(*full.shape[-3:-2], 2, a.cols, grad=True)
        assert checked(lambda x, y: ops.sampled_mm(*a.pattern(), x, y, a.block, 1.5), (x, y))
        assert checked(lambda v: ops.softmax(*a.pattern(), v, a.cols, .7), a.values.clone().requires_grad_())
    a = Matrix(3, 4, (2, 3))
    x, values, bias = random(2, 5, 12, grad=True), a.values.requires_grad_(), random(6, grad=True)
    assert checked(lambda x, v, b: ops.linear(x, *a.pattern(), v, 12, b), (x, values, bias))
    inputs = random(3, 6, grad=True), values, random(12, grad=True)
    assert checked(lambda x, v, b: ops.linear(x, *a.pattern(), v, 12, b, True), inputs)
    x = random(4, 12, dtype=torch.bfloat16, grad=True)
    ops.linear(x, *a.pattern(), values.detach().bfloat16().requires_grad_(), 12).sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all()
    y = ops.mm(*a.pattern(), values, 12, random(12, 2, grad=True))
    twice = torch.autograd.grad(y.square().sum(), values, create_graph=True)[0]
    assert twice.requires_grad  # products in a gradient have gradients


def checked(function, inputs):
    return gradcheck(function, inputs, fast_mode=True)


def dense_attention(q, k, v, allowed, scale=None):
    groups = q.shape[-3] // k.shape[-3] if q.dim() > 2 and k.shape[-3] not in (1, q.shape[-3]) else 1
    k, v = (x.repeat_interleave(groups, -3) if groups > 1 else x for x in (k, v))
    s = (q @ k.mT * (scale or q.shape[-1] ** -.5)).masked_fill(~allowed, -float("inf"))
    dead = (s == -float("inf")).all(-1, keepdim=True)
    return s.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0) @ v


@case
def attention():
    for form, batch, heads, kv, rows, keys, causal, masked in (
            (dict(), (), 1, 1, 12, 15, False, False), (dict(), (2,), 3, 3, 11, 13, True, False),
            (dict(), (2,), 4, 2, 12, 15, False, True),
            (dict(items=(3,)), (2,), 3, 3, 10, 15, False, True), (dict(items=(3,), ragged=True), (2,), 3, 1, 12, 14, True, False),
            (dict(items=(2, 2), ragged=True), (2,), 2, 2, 12, 15, False, True),
            (dict(density=0), (1,), 2, 2, 12, 15, False, False)):
        a = Matrix(4, 5, (3, 3), **form)
        shape = batch + (heads,) if batch else ()
        q, k, v = (random(*shape[:-1], *((n,) if shape else ()), length, depth, grad=True)
                   for n, length, depth in ((heads, rows, 4), (kv, keys, 4), (kv, keys, 5)))
        mask = torch.rand(a.values.shape, device=device) < .7 if masked else None
        allowed = (a.dense(mask.double()) > 0 if masked else a.stored())[..., :rows, :keys]
        if causal:
            allowed = allowed & torch.ones(rows, keys, dtype=torch.bool, device=device).tril()
        for scale in (0.0, .3):
            out, lse = ops.attention(q, k, v, *a.pattern(), a.block, mask, scale, causal)
            want = dense_attention(q, k, v, allowed, scale)
            close(out, want, 4)
            assert not lse.requires_grad and (lse.squeeze(-1) == -float("inf")).equal((~allowed.any(-1)).expand(lse.shape[:-1]))
            weight = random(*want.shape)
            ours = torch.autograd.grad(out, (q, k, v), weight)
            for got, theirs in zip(ours, torch.autograd.grad(want, (q, k, v), weight)):
                close(got, theirs, 16)
    a = Matrix(4, 4, (16, 16), torch.float32)
    q = random(2, 64, 32, dtype=torch.bfloat16, grad=True)
    ops.attention(q, q, q, *a.pattern(), a.block)[0].sum().backward()
    assert q.grad.dtype == torch.bfloat16 and q.grad.isfinite().all() and q.grad.abs().max() > 0


@case
def like_scaled_dot_product_attention():
    """bsr_attention_backward against the gradients of torch.nn.functional.scaled_dot_product_attention in f64."""
    if device != "cpu":
        raise Skip("bsr_attention_backward is for the CPU")
    ctx = bsrsparse.default()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
        for block, rows, keys, heads, kv, causal in (((4, 5), 23, 34, 4, 2, False), ((16, 16), 64, 64, 2, 2, True),
                                                     ((1, 7), 30, 30, 3, 1, True), ((32, 64), 96, 128, 2, 1, False)):
            a = Matrix(-(-rows // block[0]), -(-keys // block[1]), block, density=.7)
            allowed = a.stored()[:rows, :keys]
            if causal:
                allowed = allowed & torch.ones(rows, keys, dtype=torch.bool).tril()
            allowed[:, 0] |= ~allowed.any(-1)  # torch gives NaN for rows without keys
            elements = torch.zeros(a.crow.shape[-1] - 1, block[0], -(-keys // block[1]), block[1], dtype=torch.bool)
            elements.view(-1, elements.shape[2] * block[1])[:rows, :keys] = allowed
            mask = ctx.from_block_mask(elements.any(3).any(1), block)
            mask = mask.with_values(torch.stack([elements[r, :, c] for r, c in elements.any(3).any(1).nonzero().tolist()]))
            q, k, v = (random(2, n, length, depth).to(dtype)
                       for n, length, depth in ((heads, rows, 8), (kv, keys, 8), (kv, keys, 6)))
            lse = torch.empty(2, heads, rows, 1, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
            out = ctx.attention(q, k, v, mask, lse, mask_values="boolean")
            weight = random(*out.shape).to(dtype)
            ours = [torch.full_like(x, float("nan")) for x in (q, k, v)]
            ctx.attention_backward(q, k, v, mask, out, lse, weight, *ours, mask_values="boolean")
            wide = [x.double().requires_grad_() for x in (q, k, v)]
            repeated = [wide[0]] + [x.repeat_interleave(heads // kv, 1) for x in wide[1:]]
            want = torch.nn.functional.scaled_dot_product_attention(*repeated, attn_mask=allowed)
            for x, y in zip([out] + ours, [want] + list(torch.autograd.grad(want, wide, weight.double()))):
                assert (x - y).abs().max() <= tolerance * max(1, y.abs().max()), (dtype, block, (x - y).abs().max())


@case
def like_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    for B, H, whole, mod in ((None, None, False, lambda b, h, i, j: i >= j),
                             (None, 4, False, lambda b, h, i, j: (i - j).abs() <= 9 * (h + 1)),
                             (2, 2, False, lambda b, h, i, j: (i + b) // 24 == (j + h) // 24),
                             (None, None, True, lambda b, h, i, j: i // 16 == j // 16)):
        heads = H or 2
        mask = create_block_mask(mod, B, H, 64, 80, device=device, BLOCK_SIZE=16)
        q, k, v = random(2, heads, 64, 8, grad=True), random(2, heads, 80, 8, grad=True), random(2, heads, 80, 8, grad=True)
        got = torch_op.flex_attention(q, k, v, mask, scale=.4)
        want = flex_attention(q.detach(), k.detach(), v.detach(), block_mask=mask, scale=.4)
        allowed = mod(torch.arange(2, device=device)[:, None, None, None], torch.arange(heads, device=device)[:, None, None],
                      torch.arange(64, device=device)[:, None], torch.arange(80, device=device))
        close(got, dense_attention(q, k, v, allowed, .4), 8)
        seen = allowed.any(-1, keepdim=True)
        close(got * seen, torch.where(seen, want, 0).double(), 8)
        weight = random(*got.shape)
        theirs = torch.autograd.grad(dense_attention(q, k, v, allowed, .4), (q, k, v), weight)
        for x, y in zip(torch.autograd.grad(got, (q, k, v), weight), theirs):
            close(x, y, 16)
        assert (torch_op.pattern_of(mask)[2] is None) == whole  # blocks that are full need no elements
    q, k = random(1, 4, 64, 8), random(1, 2, 80, 8)
    mask = create_block_mask(lambda b, h, i, j: i + 16 >= j, None, None, 64, 80, device=device, BLOCK_SIZE=16)
    allowed = torch.arange(64, device=device)[:, None] + 16 >= torch.arange(80, device=device)
    close(torch_op.flex_attention(q, k, k, mask, enable_gqa=True), dense_attention(q, k, k, allowed), 8)
    refused(lambda: torch_op.flex_attention(q, k, k, mask), "enable_gqa")


@case
def operators_are_sound():
    a, index = Matrix(3, 4, (2, 3)), None
    index = ops.transposed_index(*a.pattern(), 12, a.block)
    values, x, y = a.values.requires_grad_(), random(12, 5, grad=True), random(6, 5, grad=True)
    ragged = Matrix(3, 4, (2, 3), items=(2,), ragged=True)
    q, k = random(2, 6, 4, grad=True), random(2, 12, 4, grad=True)
    for op, arguments in ((ops.mm, (*a.pattern(), values, 12, x)), (ops.mm, (*a.pattern(), values, 12, y, True, index)),
                          (ops.mm, (*ragged.pattern(), ragged.values.requires_grad_(), 12, x)),
                          (ops.linear, (x.mT, *a.pattern(), values, 12, random(6, grad=True))),
                          (ops.sampled_mm, (*a.pattern(), y, x.mT, (2, 3))), (ops.softmax, (*a.pattern(), values, 12, 2.0)),
                          (ops.attention, (q, k, k, *a.pattern(), (2, 3), None, .5, True)),
                          (ops.attention, (q, k, k, *ragged.pattern(), (2, 3))),
                          (ops.to_dense, (*a.pattern(), values.detach(), 12)),
                          (ops.addmm, (*a.pattern(), values.detach(), 12, x.detach(), y.detach())),
                          (ops.softmax_backward, (*a.pattern(), values.detach(), values.detach(), 12))):
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        if op in (ops.mm, ops.attention) and arguments[1] is a.col or os.environ.get("BSRSPARSE_SLOW"):
            tests.append("test_aot_dispatch_dynamic")
        said = torch.library.opcheck(op.default, arguments, test_utils=tests)
        assert set(said.values()) == {"SUCCESS"}, said


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch_op.BSRLinear.of(torch.nn.Linear(32, 64), .5, (16, 8))
        self.second = torch_op.BSRLinear.of(torch.nn.Linear(64, 16, bias=False), .25, (8, 8))

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def dense_weight(layer):
    return ops.to_dense(layer.crow, layer.col, layer.values, layer.in_features)


@case
def the_module():
    torch.manual_seed(3)
    plain = torch.nn.Linear(32, 48)
    layer = torch_op.BSRLinear.of(plain, .75, (4, 8)).to(device)
    kept = dense_weight(layer)
    norms, ours = (w.detach().cpu().unflatten(0, (-1, 4)).unflatten(2, (-1, 8)).square().sum((1, 3)).flatten()
                   for w in (plain.weight, kept))
    assert layer.values.shape == (12, 4, 8) and set(norms.topk(12).indices.tolist()) == set(ours.nonzero().flatten().tolist())
    x = random(3, 5, 32, dtype=torch.float32)
    close(layer(x), torch.nn.functional.linear(x, kept, layer.bias), 4)
    close(layer(x[0, 0]), torch.nn.functional.linear(x[0, 0], kept, layer.bias), 4)
    close(layer(x.mT.contiguous().mT), layer(x), 4)
    refused(lambda: torch_op.BSRLinear.of(plain, .5, (5, 8)), "not made of blocks")
    net, data = Net().to(device), random(20, 32, dtype=torch.float32)
    other, saved = copy.deepcopy(net), io.BytesIO()
    goal, optimizer, losses = random(20, 16, dtype=torch.float32), torch.optim.Adam(net.parameters(), .01), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (net(data) - goal).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < .5 * losses[0], losses[::20]
    assert not torch.equal(other(data), net(data))
    torch.save(net.state_dict(), saved)
    saved.seek(0)
    other.load_state_dict(torch.load(saved))
    assert torch.equal(other(data), net(data))
    grads = []
    for one in (net, other):
        one.zero_grad()
        x = data.clone().requires_grad_()
        (one(x) - goal).square().sum().backward()
        grads.append([x.grad, *(p.grad for p in one.parameters())])
    assert all(map(torch.equal, *grads))


@case
def compiled():
    net, x = Net().to(device), random(10, 32, dtype=torch.float32, grad=True)
    whole = torch.compile(net, backend="aot_eager", fullgraph=True)
    weight = random(10, 16, dtype=torch.float32)
    results = []
    for one in (net, whole):
        net.zero_grad()
        x.grad = None
        y = one(x)
        (y * weight).sum().backward()
        results.append([y.detach(), x.grad, *(p.grad.clone() for p in net.parameters())])
    for got, want in zip(*results):
        close(got, want)
    close(whole(random(7, 32, dtype=torch.float32) * 0 + 1), net(torch.ones(7, 32, device=device)))
    a = Matrix(4, 4, (3, 3), items=(2,), ragged=True)
    q = random(2, 12, 4, grad=True)
    run = lambda q: ops.attention(q, q * 2, q, *a.pattern(), (3, 3), None, 0.0, True)[0].sin().sum()
    theirs = torch.autograd.grad(torch.compile(run, backend="aot_eager", fullgraph=True)(q), q)[0]
    close(theirs, torch.autograd.grad(run(q), q)[0])


@case
def compiled_by_inductor():
    if device == "cpu" and not os.environ.get("BSRSPARSE_SLOW"):
        raise Skip("takes half a minute: BSRSPARSE_SLOW=1 runs it")
    net, x = Net().to(device), random(10, 32, dtype=torch.float32)
    close(torch.compile(net, fullgraph=True)(x), net(x))


@case
def what_is_refused():
    a, x = Matrix(3, 4, (2, 3)), random(12, 2)
    refused(lambda: ops.mm(*a.pattern(), a.values, 12, x[:9]), "BSR_BAD_SHAPE", "inner size is 9, not 12")
    refused(lambda: ops.mm(*a.pattern(), a.values, 13, x), "BSR_BAD_SHAPE")
    refused(lambda: ops.mm(*a.pattern(), a.values, 12, x.float()), "BSR_BAD_DTYPE")
    refused(lambda: ops.mm(*a.pattern(), a.values.to(torch.complex64), 12, x), "ComplexFloat")
    refused(lambda: ops.mm(a.crow, a.col.long(), a.values, 12, x), "different types")
    refused(lambda: ops.mm(a.crow, a.col.float(), a.values, 12, x), "different types")
    refused(lambda: ops.mm(a.crow.float(), a.col.float(), a.values, 12, x), "BSR_BAD_DTYPE")
    refused(lambda: ops.mm(a.crow, a.col.repeat_interleave(2)[::2], a.values, 12, x), "packed")
    refused(lambda: ops.mm(a.crow, a.col, a.values[1:], 12, x), "values hold")
    refused(lambda: ops.mm(a.crow, a.col, a.values[:, 0], 12, x), "values must")
    refused(lambda: ops.mm(a.crow, a.col, a.values[:1, :1, :1].expand(a.values.shape), 12, x), "one number, repeated")
    refused(lambda: ops.mm(a.crow, a.col, a.values, 12, x[:, 0]), "dimensions")
    refused(lambda: ops.linear(random(3, 11), *a.pattern(), a.values, 12), "BSR_BAD_SHAPE")
    refused(lambda: ops.linear(random(3, 12), *a.pattern(), a.values, 12, random(6, 1)), "bias has 2 dimensions")
    refused(lambda: ops.attention(random(6, 4), random(12, 5), random(12, 4), *a.pattern(), (2, 3)), "BSR_BAD_SHAPE")
    refused(lambda: ops.attention(random(3, 6, 4), random(2, 12, 4), random(2, 12, 4), *a.pattern(), (2, 3)), "BSR_BAD_BATCH")
    index = ops.transposed_index(*a.pattern(), 12, (2, 3))
    refused(lambda: ops.mm(*a.pattern(), a.values, 12, random(6, 2), True, index.float()), "index")
    if device != "cpu":
        refused(lambda: ops.mm(a.crow, a.col, a.values, 12, x.cpu()), "dense is on cpu")
    else:  # on a GPU the contents of index arrays are not looked at
        refused(lambda: ops.mm(a.crow, a.col + 4, a.values, 12, x), "BSR_BAD_STRUCTURE", "out of range")
        other = Matrix(4, 3, (2, 3))
        refused(lambda: ops.mm(*other.pattern(), other.values, 9, random(8, 2), True, index), "BSR_BAD_STRUCTURE", "view")
    refused(lambda: ops.softmax(*a.pattern(), a.values.to(torch.int8), 12), "BSR_BAD_DTYPE")


def main():
    global device
    devices, asked = ["cpu"], sys.argv[2:]
    try:
        bsrsparse.Context("cuda")
        if torch.cuda.is_available():
            devices.append("cuda")
    except (bsrsparse.Error, OSError):
        pass
    passed = failed = skipped = 0
    for device, function in itertools.product(devices, CASES):
        name = f"{function.__name__} on {device}"
        if asked and not any(a in name for a in asked):
            continue
        torch.manual_seed(20)
        start = time.perf_counter()
        try:
            function()
            passed += 1
            if os.environ.get("BSRSPARSE_SLOW"):
                print(f"{name}: {time.perf_counter() - start:.1f} s")
        except Skip as e:
            skipped += 1
            print(f"skip {name}: {e}")
        except Exception as e:
            failed += 1
            where = traceback.extract_tb(e.__traceback__)
            line = next((f.lineno for f in reversed(where) if f.filename == os.path.abspath(__file__)), 0)
            print(f"FAIL {name} (line {line}): {type(e).__name__}: {str(e)[:600]}")
    if len(devices) == 1:
        skipped += 1
        print("skip CUDA tensors: no GPU, or the library has no CUDA backend")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
