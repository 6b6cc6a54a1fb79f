"""The tests of the originals run against bsrsparse: PyTorch's of its Triton BSR kernels (TestSparseCompressedTritonKernels)
and DeepSpeed's of its block-sparse MatMul and Softmax; the same operations, axes, input ranges and layouts, PyTorch's
tolerances (but for attention in f16 none wider), float64 references. Each case has operands of its own, drawn from its number,
an output of its own, spoiled before, and spoiled gaps between the elements where the layout has any, which must stay as they
are. What a case compares is counted: results that are not all zero, zeros, nothing (empty operands), refusals. Ends with
"N passed, N failed, N skipped"; cases that time or the library leaves out fail. On a GPU, or with BACKEND=cpu (--backend cpu)
on the CPU. --help lists the options."""
import ctypes
import itertools
import sys

sys.dont_write_bytecode = True
import parity_base as base
from parity_base import (BF16, F16, F32, F64, FLOATS, I8, I32, I64, BsrError, Sparse, args, bridge, call, call_grids, case, close,
                         counts, dev, gather, kept_pattern, lib, memo, memory, pattern, same, sparse, spoiled, spread, stored,
                         torch, uniform, view)

BATCHES = ((), (2,), (2, 2))
SIZES = (128, 256, 0)


# ---- PyTorch's tests, in its order ----

def triton_bsr_softmax(test):
    for dtype, rb, cb, batch, m, n in itertools.product(FLOATS, (2, 3), (2, 3), BATCHES, (6, 12, 0), (6, 12, 0)):
        def run():
            p, x = pattern("triangular", m // rb, n // cb), uniform(batch + (m, n), dtype, 1, 3)
            x.diagonal(dim1=-2, dim2=-1).fill_(m * n)
            values = gather(x, p, rb, cb)
            out = spoiled(values.shape, dtype)
            call("softmax", sparse(p, values), sparse(p, out))
            scores = x.double().masked_fill(~stored("triangular", m // rb, n // cb, rb, cb), -float("inf"))
            close(out, gather(torch.softmax(scores, -1).nan_to_num(0), p, rb, cb))
        case(test, f"{dtype} {rb}x{cb} {batch} {m}x{n}", run, ("softmax", dtype))

    for dtype in FLOATS:
        def long_rows():
            p, x = pattern("all", 1, 150000), uniform((2, 2, 1, 150000), dtype, 1, 3)
            values = x.reshape(2, 2, 150000, 1, 1)
            out = spoiled(values.shape, dtype)
            call("softmax", sparse(p, values), sparse(p, out))
            close(out.reshape(x.shape), torch.softmax(x.double(), -1), 2.0 ** -24)  # PyTorch's 1e-5 is what the results are
        case(test, f"{dtype} 1x150000", long_rows, ("softmax", dtype))


def triton_bsr_dense_bmm(test):
    grids = tuple(itertools.product((None, 2, 4), repeat=3))
    for b, index, dtype, b1, b2, m, n, k, orthogonal in itertools.product(
            (16, 32, 64), (I64, I32), FLOATS, BATCHES, BATCHES, SIZES, SIZES, SIZES, (False, True)):
        if orthogonal and not k:
            continue  # that is the case before

        def run():
            x, d = uniform(b1 + (m, k), dtype, 0.5, 1.5), uniform(b2 + (n, k), dtype, 0.5, 1.5)
            if orthogonal:
                x, d = torch.cat((x, torch.zeros_like(x)), -1), torch.cat((torch.zeros_like(d), d), -1)
            p = pattern("left half" if orthogonal else "all", m // b, x.shape[-1] // b, index)
            a, d = sparse(p, gather(x, p, b, b)), d.transpose(-2, -1)  # by columns
            want = x.double() @ d.double()
            out = memory(want.shape, dtype, "cols")  # as linear's, which is transposed
            call("addmm", a, d, out)
            close(out, want, zeros=orthogonal or not k)
            out = spoiled((len(grids),) + want.shape, dtype)
            call_grids("addmm", grids, (a, d), out, view(out[0]), "data")
            same(out, "max_grid changes the result")
            close(out, want.expand(out.shape), zeros=orthogonal or not k)
        case(test, f"b{b} {index} {dtype} {b1} {b2} {m}x{k}x{n} {'orthogonal' if orthogonal else ''}", run,
             ("dense_addmm", dtype))


def triton_bsr_dense_bmm_error_messages(test):
    def made(n=32, b=16, dtype=F16, batch=()):
        x, p = uniform((32, 32), dtype, 0.5, 1.5), pattern("all", 32 // b, 32 // b)
        return sparse(p, gather(x, p, b, b)), uniform(batch + (32, n), dtype, 0.5, 1.5), spoiled(batch + (32, n), dtype)

    def refused(status, a, d, out, flags=0):
        try:
            call("addmm", a, d, out, exec=lib.exec(flags))
        except BsrError as e:
            assert e.status == status, f"{e.status}, expected {status}"
            bits, spoil = base.SPOIL[out.dtype]
            assert bool((out.view(bits) == spoil).all()), "a refused call wrote"
            return
        raise AssertionError(f"taken, expected {status}")

    def refusal(text, status, change, flags=0, **more):
        case(test, text, lambda: refused(status, *change(*made(**more)), flags))
    if dev == "cuda":
        refusal("dense on the CPU", "BAD_ARGUMENT", lambda a, d, o: (a, d.cpu().pin_memory(), o), bridge.CHECK_POINTERS)
    refusal("dtypes differ", "BAD_DTYPE", lambda a, d, o: (a, d.float(), o))
    refusal("1 x 1 dense", "BAD_SHAPE", lambda a, d, o: (a, d[:1, :1], o))
    refusal("out of another shape", "BAD_SHAPE", lambda a, d, o: (a, d, spoiled((2, 30, 30), F16)), batch=(2,))
    refusal("out of another batch", "BAD_BATCH", lambda a, d, o: (a, d, spoiled((2, 32, 32), F16)))
    # what upstream refuses and we take: f64, 15 columns, blocks of 15 and 30, an output that is neither row- nor column-major
    for name, n, size, b, dtype in (("f64", 32, 32, 16, F64), ("15 columns", 15, 32, 16, F16), ("blocks of 15", 30, 30, 15, F16),
                                    ("blocks of 30", 60, 60, 30, F16)):
        def taken():
            x, y = uniform((size, size), dtype, 0.5, 1.5), uniform((size, n), dtype, 0.5, 1.5)
            p = pattern("all", size // b, size // b)
            out = spoiled((size, n), dtype)
            call("addmm", sparse(p, gather(x, p, b, b)), y, out)
            close(out, x.double() @ y.double())
        case(test, name + " is taken", taken)

    def strided():
        x, y, p = uniform((2, 32, 32), F16, 0.5, 1.5), uniform((2, 32, 32), F16, 0.5, 1.5), pattern("all", 2, 2)
        out = spoiled((32, 32, 2), F16).transpose(0, -1)
        call("addmm", sparse(p, gather(x, p, 16, 16)), y, out)
        close(out, x.double() @ y.double())
    case(test, "a strided output is taken", strided)


def triton_scaled_dot_product_attention(test):
    def values_of_mask(shape, dtype):  # they don't count: NaN, or false here and there
        return spoiled(shape, dtype) if dtype != torch.bool else torch.rand(shape, device=dev) < 0.5
    for b, dtype, mb, qb, kb, vb, m, n, k, scale, boolean in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, BATCHES, SIZES, SIZES, SIZES, (None, 1 / 16), (True, False)):
        def run():
            q, x, v = (uniform(batch + (rows, k), dtype, 0.3, 1.2) for batch, rows in ((qb, m), (kb, n), (vb, n)))
            p = pattern("triangular", m // b, n // b)
            mask = sparse(p, values_of_mask(mb + (len(p.keep), b, b), torch.bool if boolean else dtype))
            s = scale if scale is not None else k ** -0.5 if k else 1
            scores = (q.double() @ x.double().transpose(-1, -2) * s).masked_fill(~stored("triangular", m // b, n // b, b, b),
                                                                                 -float("inf"))
            want = torch.softmax(scores, -1).nan_to_num(0) @ v.double()
            out = spoiled(max(mb, qb, kb, vb, key=len) + (m, k), dtype)
            call("attention", q, x, v, mask, out, scale=scale or 0.0)  # 0: the default
            close(out, want.expand(out.shape), 1e-3 if dtype == F16 else None, zeros=not n)
        case(test, f"b{b} {dtype} {mb}{qb}{kb}{vb} {m}x{n}x{k} scale {scale} mask {'bool' if boolean else 'float'}", run,
             ("attention", dtype))


def triton_sampled_addmm(test):
    grids = ((None, None), (3, None), (None, 3), (3, 3))
    for b, dtype, b0, b1, b2, m, n, k, (alpha, beta), own in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, (128, 256, 0), (128, 256, 0), (125, 253, 0),
            itertools.product((0.0, 2.0), (0.0, 2.0)), (False, True)):
        def run():
            x, y, z = (uniform(shape, dtype, 0.3, 1.2).tril() for shape in (b0 + (m, n), b1 + (m, k), b2 + (k, n)))
            p, batch = pattern("lower", m // b, n // b), max(b0, b1, b2, key=len)
            given = sparse(p, gather(x, p, b, b))  # its batch is its own
            want = gather(alpha * (y.double() @ z.double()) + beta * x.double(), p, b, b)
            shape = batch + want.shape[-3:]
            if own:  # a caller's own output, whose strides are swapped at (-3, -2)
                out = spoiled((len(grids),) + batch + (b, shape[-3], b), dtype).transpose(-3, -2)
            else:
                out = spoiled((len(grids),) + shape, dtype)
            call_grids("sampled", grids, (y, z), out, view(sparse(p, out[0])), "values", input=given, beta=beta, alpha=alpha)
            same(out, "max_grid changes the result")
            close(out, want.expand(out.shape), zeros=not beta and (not alpha or not k))
        case(test, f"b{b} {dtype} {b0}{b1}{b2} {m}x{n}x{k} alpha {alpha} beta {beta} {'out given' if own else ''}", run,
             ("sampled_addmm", dtype))


def index_list(numbers):
    return torch.tensor(numbers, dtype=I64, device=dev)


def scatter_lists(format_, split, c, r, p, q):
    """Lists of ours for bsr_scatter_mm."""
    x = bridge.Scatter(split_n=split, format=format_)
    x.keep = [t if t is None else index_list(t) for t in (c, r, p, q)]
    for name, t in zip(("c_indices", "r_offsets", "p_indices", "q_indices"), x.keep):
        if t is not None:
            setattr(x, name, t.data_ptr() or None)
            setattr(x, name[0] + "_count", t.numel())
    return x


def triton_scatter_mm(test):
    for dtype, m, k, n in itertools.product(FLOATS, (8, 16), (8, 16), (8, 16)):
        def tiles():
            blocks, others = uniform((2, m, k), dtype, 0.5, 1.5), uniform((2, k, n), dtype, 0.5, 1.5)
            out = uniform((3, m, n), dtype, 0.5, 1.5)  # what is there is added to
            a, o, had = blocks.double(), others.double(), out.double()
            call("scatter", blocks, others, scatter_lists(1, 1, [0, 2, 3, 4], None, [0, 1, 0, 1], [0, 0, 1, 1]), out)
            close(out, had + torch.stack([a[0] @ o[0] + a[1] @ o[0], a[0] @ o[1], a[1] @ o[1]]))
        case(test, f"scatter_mm {dtype} {m}x{k}x{n}", tiles, ("scatter_mm", dtype))
        for batch in ((), (2,), (3, 4)):
            def strided():
                blocks, others = uniform((2, m, k), dtype, 0.5, 1.5), uniform(batch + (2 * k, 2 * n), dtype, 0.5, 1.5)
                out = uniform(batch + (2 * m, 2 * n), dtype, 0.5, 1.5)
                whole = torch.cat((torch.cat((blocks[1], blocks[0]), 1), torch.cat((0 * blocks[0], blocks[1]), 1)), 0)
                want = out.double() + whole.double() @ others.double()
                call("scatter", blocks, others,
                     scatter_lists(2, 2, [0, 2, 4, 5, 6], [0, n, 2 * n * m, 2 * n * m + n], [1, 0, 1, 0, 1, 1],
                                   [0, 2 * k * n, n, 2 * k * n + n, 2 * k * n, 2 * k * n + n]), out)
                close(out, want)
            case(test, f"bsr_strided_mm {dtype} {m}x{k}x{n} {batch}", strided, ("scatter_mm", dtype))


FORMATS = {"scatter_mm": 1, "strided": 2, "compressed": 3}


def scatter_cases():
    """Upstream's matrices, formats and splits."""
    sizes = ((2, 2), (2, 3), (16, 16), (16, 32), (32, 32), (64, 64))
    for (bm, bk), dtype, batch, rows, cols, n, empty, name in itertools.product(
            sizes, FLOATS, BATCHES, (1, 2, 4), (1, 2), (1, 2, 4), (False, True), ("compressed", "strided", "scatter_mm")):
        if empty and rows == 1:
            continue
        N = n * bm
        for split in (n,) if name == "scatter_mm" else [N >> i for i in range(N.bit_length())]:
            yield bm, bk, dtype, batch, rows, cols, N, "but first row" if empty else "all", name, split


def text_of(bm, bk, dtype, batch, rows, cols, N, kind, name, split):
    return f"{name} {bm}x{bk} {dtype} {batch} {rows}x{cols} blocks, N {N} split {split} {kind}"


def scatter_operands(bm, bk, dtype, batch, rows, cols, N, kind):
    p, x = pattern(kind, rows, cols), uniform((rows * bm, cols * bk), dtype, 0.5, 1.5)
    values, d = gather(x, p, bm, bk), uniform(batch + (cols * bk, N), dtype, 0.5, 1.5)
    return sparse(p, values), d, spread(values, p).double() @ d.double()


def triton_bsr_scatter_mm(test):
    for bm, bk, dtype, batch, rows, cols, N, kind, name, split in scatter_cases():
        def run():
            a, d, want = scatter_operands(bm, bk, dtype, batch, rows, cols, N, kind)
            out = spoiled(want.shape, dtype)
            indices = lib.scatter_indices(view(a), N, FORMATS[name], split)
            base.now.signature.append((name, split))
            call("dense_scatter", a, d, indices, out)
            close(out, want)
        case(test, text_of(bm, bk, dtype, batch, rows, cols, N, kind, name, split), run, ("scatter_mm", dtype))


@memo
def lists_by_hand(kind, rows, cols, N, bm, bk, name, split, items):
    """Upstream's index lists; the order of outputs is free. items: of the batch, for whole tiles."""
    p, ns = pattern(kind, rows, cols), N // split
    crow, col, c, r, pl, q = p.crow.tolist(), p.col.tolist(), [0], [], [], []
    if name == "compressed":
        c, q = crow, [0] * (split * len(col))
        for m, t in itertools.product(range(rows), range(split)):
            r.append(m * bm * N + t * ns)
            for i in range(crow[m + 1] - crow[m]):
                q[t * crow[m + 1] + (split - t) * crow[m] + i] = col[crow[m] + i] * bk * N + t * ns
        return scatter_lists(3, split, c, r, None, q)
    for item, m, t in itertools.product(range(items if name == "scatter_mm" else 1), range(rows), range(split)):
        r.append(m * bm * N + t * ns)
        pl += range(crow[m], crow[m + 1])
        if name == "scatter_mm":
            q += [(col[g] + item * cols) * split + t for g in range(crow[m], crow[m + 1])]
        else:
            q += [col[g] * bk * N + t * ns for g in range(crow[m], crow[m + 1])]
        c.append(len(pl))
    return scatter_lists(1, 1, c, None, pl, q) if name == "scatter_mm" else scatter_lists(2, split, c, r, pl, q)


def bsr_scatter_mm_by_hand(test):
    """The same with lists of ours, into accumulators."""
    for bm, bk, dtype, batch, rows, cols, N, kind, name, split in scatter_cases():
        def run():
            a, d, want = scatter_operands(bm, bk, dtype, batch, rows, cols, N, kind)
            items = d.shape[:-2].numel()
            lists = lists_by_hand(kind, rows, cols, N, bm, bk, name, split, items)
            base.now.signature.append((name, split))
            if name == "scatter_mm":
                d = d.reshape((items, cols, bk, N // bm, bm)).transpose(-3, -2).reshape(-1, bk, bm).contiguous()
                acc = uniform((items * rows * (N // bm), bm, bm), dtype, 0.5, 1.5)
                had = acc.double().reshape(items, rows, N // bm, bm, bm).transpose(-3, -2).reshape(want.shape)
                call("scatter", a.values, d, lists, acc)
                out = acc.reshape(items, rows, N // bm, bm, bm).transpose(-3, -2).reshape(want.shape)
            else:
                out = uniform(want.shape, dtype, 0.5, 1.5)
                had = out.double()
                call("scatter", a.values, d, lists, out)
            close(out, had + want)
        case(test, text_of(bm, bk, dtype, batch, rows, cols, N, kind, name, split), run, ("scatter_mm", dtype))


# Of dense, values, input and output. The first four are upstream's; gaps: every other element along the last dimension.
LAYOUTS = {"packed": ("rows", "rows", "rows", "rows"), "dense gaps": ("rows gaps", "rows", "rows", "rows"),
           "values gaps": ("rows", "rows gaps", "rows", "rows"), "dense, input gaps": ("rows gaps", "rows", "rows gaps", "rows"),
           "columns": ("cols", "cols", "cols", "cols"), "all gaps": ("cols gaps", "rows gaps", "cols gaps", "rows gaps")}


def kernel_cases():
    for op, (bm, bk), dtype, out_i32 in itertools.product(
            ("bsr_dense_addmm", "bsr_dense_mm", "bsr_dense_linear", "_int_bsr_dense_addmm"), ((16, 16), (16, 32), (32, 32)),
            (F16, BF16, F32, I8), (False, True)):
        integer, full, linear = dtype == I8, op.endswith("addmm"), op == "bsr_dense_linear"
        if (out_i32 and not (op == "bsr_dense_addmm" and integer)) or (op[0] == "_" and not integer):
            continue
        if (linear and (bm != bk or integer)) or (integer and min(bm, bk) < 32):
            continue
        both = (False, True) if full else (False,)
        finishes = ("input", "bias", "bias vector") if linear else ("input",) if full else ("",)
        layouts = [x for x in LAYOUTS if full or linear or x != "dense, input gaps"]
        betas, alphas = ((0, 1, 2), (0, 1, 2)) if full else ((int(linear),), (1,))
        for axes in itertools.product(betas, alphas, (0, 0.5, 1), (1, 2), (1, 2), (16, 32, 64), both, both, layouts, finishes):
            if axes[2:5] != (0.5, 1, 1):  # of one block none is half, as with sparsity 1
                yield op, bm, bk, dtype, I32 if out_i32 or op[0] == "_" else dtype, *axes


def some_blocks(rows, cols, sparsity):
    """Exactly so many, anywhere."""
    count = int((1 - sparsity) * rows * cols)
    return kept_pattern(rows, cols, tuple(divmod(i, cols) for i in sorted(torch.randperm(rows * cols)[:count].tolist())))


def kernel_case(op, bm, bk, dtype, out_dtype, beta, alpha, sparsity, rows, cols, n, left, right, layout, finish):
    M, K, linear, high = rows * bm, cols * bk, op == "bsr_dense_linear", 1.5 if dtype.is_floating_point else 2.5
    of_dense, of_values, of_input, of_out = LAYOUTS[layout]
    p = some_blocks(rows, cols, sparsity)
    values = uniform((len(p.keep), bm, bk), dtype, *((0.5, 1.5) if dtype.is_floating_point else (0, 2)), of_values)
    d = uniform((K, n), dtype, 0.5, high, of_dense)
    want = alpha * (spread(values, p).double() @ d.double())
    more = {}
    if left:
        more["left"] = uniform((M, 1), dtype, 0.5, high)
        want *= more["left"].double()
    if right:
        more["right"] = uniform((1, n), dtype, 0.5, high)
        want *= more["right"].double()
    if finish:
        shape, wide = (M, 1) if finish == "bias vector" else (M, n), op[0] == "_"  # _int_ takes an input of 32 bits, too
        x = uniform(shape, I32 if wide else dtype, -1000 if wide else 0.5, 1000 if wide else high, of_input)
        want = want + beta * x.double()
        more.update({"input": x, "beta": float(beta)} if finish == "input" else {"bias": x})
    if linear and "gaps" not in of_out:
        of_out = "cols"  # linear's result, transposed
    out = memory((M, n), out_dtype, of_out)
    call("addmm", sparse(p, values), d, out, alpha=float(alpha), **more)
    want = want if dtype.is_floating_point else want.to(I64).to(out_dtype)  # wraps
    close(out, want, zeros=not beta and (not alpha or not p.keep))


def triton_kernel(test):
    for op, bm, bk, dtype, out_dtype, *axes in kernel_cases():
        names = ("beta", "alpha", "s", "rows", "cols", "n", "left", "right", "layout", "finish")
        case(test, f"{op} {bm}x{bk} {dtype} to {out_dtype} " + ", ".join(f"{n} {x}" for n, x in zip(names, axes)),
             lambda: kernel_case(op, bm, bk, dtype, out_dtype, *axes), ("dense_addmm", dtype, out_dtype))


# ---- DeepSpeed's tests ----

class Layout:
    """Random blocks for each head, DeepSpeed's way: the batch shares them, the blocks of all heads stand one after another."""

    def __init__(self, heads, rows, cols, rho):
        keep = torch.rand(heads, rows, cols) >= rho
        keep[:, 0, 0] = True
        at = keep.nonzero()
        self.heads, self.rows, self.cols, self.col = heads, rows, cols, at[:, 2].to(dev)
        ends = keep.sum(2).flatten().cumsum(0).reshape(heads, rows)
        first = torch.cat((torch.zeros(1, dtype=I64), ends[:-1, -1]))[:, None]
        self.crow = torch.cat((first, ends), 1).to(dev)
        self.at = tuple(at.to(dev).unbind(1))
        self.keep = keep.to(dev)

    def stored(self, block):
        return self.keep.repeat_interleave(block, 1).repeat_interleave(block, 2)

    def blocks(self, x, block):
        """Of (Z, heads, rows, cols) what is stored, (Z, blocks of all heads, block, block)."""
        tiles = x.reshape(x.shape[0], self.heads, self.rows, block, self.cols, block).transpose(3, 4)
        return tiles[:, self.at[0], self.at[1], self.at[2]].contiguous()

    def matrix(self, values):
        block = values.shape[-1]
        return Sparse(self.crow.expand((values.shape[0],) + self.crow.shape), self.col, values, self.rows * block,
                      self.cols * block, True)


def deepspeed_softmax(test):
    for block, width, dtype in itertools.product((16, 32), (256, 576), (F16, F32, BF16)):
        def run():
            layout, scale = Layout(4, width // block, width // block, 0.4), 0.4
            x, dy = uniform((2, 4, width, width), dtype, 0, 1), uniform((2, 4, width, width), dtype, 0, 1)
            attn = torch.randint(0, 2, (width, width), device=dev).to(dtype)
            padding = torch.zeros(2, 1, 1, width, dtype=dtype, device=dev)
            padding.masked_fill_(torch.rand(padding.shape, device=dev) < 0.5, -float("inf"))
            want = x.double().requires_grad_()
            scores = (want * scale + padding.double()).masked_fill((attn == 0) | ~layout.stored(block), -float("inf"))
            masked = (scores == -float("inf")).all(-1, keepdim=True)  # such a row gives zeros
            y = torch.softmax(scores.masked_fill(masked, 0), -1).masked_fill(masked, 0)
            y.backward(dy.double())
            got, gradient = spoiled((2, len(layout.col), block, block), dtype), spoiled((2, len(layout.col), block, block), dtype)
            views = view(padding), view(attn)
            options = bridge.Softmax(*(ctypes.pointer(v) if v else None for v in (None,) + views), 0, 1)
            call("softmax", layout.matrix(layout.blocks(x, block)), layout.matrix(got), scale, options)
            call("softmax_backward", layout.matrix(got), layout.matrix(layout.blocks(dy, block)), layout.matrix(gradient), scale)
            close(got, layout.blocks(y.detach(), block))
            # a gradient ends in a difference of what y's rounding has changed
            close(gradient, layout.blocks(want.grad, block), {F16: 2e-5, BF16: 1e-4, F32: 1e-7}[dtype])
        case(test, f"block {block} width {width} {dtype}", run, ("softmax", dtype))


def matmul_reference(mode, layout, block, a, b, dc, ta, tb):
    """The product and both gradients, in float64; what is not stored is zero."""
    stored_ = layout.stored(block)
    a, b = a.double().requires_grad_(), b.double().requires_grad_()
    x, y = (a * stored_ if mode == "dsd" else a), (b * stored_ if mode == "dds" else b)
    c = (x.transpose(-2, -1) if ta else x) @ (y.transpose(-2, -1) if tb else y)
    c.backward(dc.double() * stored_ if mode == "sdd" else dc.double())
    return c.detach(), a.grad, b.grad


def deepspeed_matmul(test):
    """Three items, two heads; every transposition in every mode, of which upstream has six."""
    M, N, K = 128, 256, 192
    for block, dtype, mode, ta, tb in itertools.product((16, 32, 64), (F16, F32, BF16), ("sdd", "dsd", "dds"), (False, True),
                                                        (False, True)):
        def run():
            shapes = [(K, M) if ta else (M, K), (N, K) if tb else (K, N), (M, N)]
            which = {"sdd": 2, "dsd": 0, "dds": 1}[mode]  # the sparse operand
            layout = Layout(2, shapes[which][0] // block, shapes[which][1] // block, 0.5)
            a, b, dc = (uniform((3, 2) + s, dtype, 0, 1) for s in shapes)
            wants = matmul_reference(mode, layout, block, a, b, dc, ta, tb)
            kept = lambda i, x: layout.matrix(layout.blocks(x, block)) if i == which else x
            new = lambda i: layout.matrix(spoiled((3, len(layout.col), block, block), dtype)) if i == which else \
                spoiled((3, 2) + shapes[i], dtype)
            a, b, dc = (kept(i, x) for i, x in enumerate((a, b, dc)))
            c, da, db, trans = new(2), new(0), new(1), ta | tb << 1
            call("matmul", a, b, c, trans)
            call("matmul_backward", a, b, dc, da, db, trans)
            for i, got, want in ((2, c, wants[0]), (0, da, wants[1]), (1, db, wants[2])):
                close(*((got.values, layout.blocks(want, block)) if i == which else (got, want)))
        case(test, f"{mode} block {block} {dtype} trans {ta} {tb}", run, ("matmul", dtype))


TESTS = (triton_bsr_softmax, triton_bsr_dense_bmm, triton_bsr_dense_bmm_error_messages, triton_scaled_dot_product_attention,
         triton_sampled_addmm, triton_scatter_mm, triton_bsr_scatter_mm, bsr_scatter_mm_by_hand, triton_kernel, deepspeed_softmax,
         deepspeed_matmul)
NOT_OURS = {"TensorAsKey": "a cache of PyTorch's own", "triton_tune": "in our terms in tests/test_tune.c",
            "triton_bsr_dense_addmm_meta": "in our terms in tests/test_tune.c"}


def run(t):
    name, began, base.number = t.__name__, base.time.time(), 0
    counts[name] = base.Count()
    t(name)
    base.flush()
    if not args.into:
        print(f"{name:36} {base.line(counts[name])}  ({base.time.time() - began:.0f} s)", flush=True)


def main():
    if args.jobs > 1:
        base.shared_out()
        for name, c in counts.items():
            print(f"{name:36} {base.line(c)}")
    else:
        for t in TESTS:
            if not args.tests or any(x in t.__name__ for x in args.tests.split(",")):
                run(t)
    if args.into:
        with open(args.into, "wb") as f:
            base.pickle.dump((dict(counts), base.signatures), f)
        return 0
    for name, why in NOT_OURS.items():
        print(f"skip {name}: {why}")
        counts[name] = base.Count()
        counts[name].skipped = 1
    return base.summary()


sys.exit(main())
