"""PyTorch's own tests of its Triton BSR kernels (TestSparseCompressedTritonKernels) run against bsrsparse: the same operations,
axes, input ranges and tolerances, with float64 references. Ends with "N passed, N failed, N skipped". --part i/n runs a share of
the cases, --tests picks by name, --seconds bounds the time (what is left is counted as skipped)."""
import argparse
import itertools
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lib", default=os.path.join(HERE, "../build/gpu/libbsrsparse.so"))
parser.add_argument("--part", default="0/1")
parser.add_argument("--tests", default="")
parser.add_argument("--seconds", type=float, default=400)
parser.add_argument("--kernel", type=int, default=0, help="plan.kernel of every call; 0: the library's choice")
args = parser.parse_args()
try:
    import torch
except ImportError:
    print("skip parity: PyTorch is absent\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)
if not torch.cuda.is_available():
    print("skip parity: there is no GPU\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import bridge
from bridge import BsrError, dense, matrix, matrix_of

F16, BF16, F32, F64, I8, I32 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int32
FLOATS = (F16, BF16, F32)
BATCHES = ((), (2,), (2, 2))
SIZES = (128, 256, 0)
TOLERANCE = {F16: (1e-3, 1e-5), BF16: (1.6e-2, 1e-5), F32: (1.3e-6, 1e-5)}  # PyTorch's defaults: relative, absolute
dev = "cuda"
part, parts = (int(x) for x in args.part.split("/"))
lib = bridge.Library(args.lib, args.kernel)
start = time.time()
counts = {}
shown = {}
number = 0


class Stop(Exception):
    pass


def case(test, text, run):
    """One case: its share, its time, its result."""
    global number
    number += 1
    if number % parts != part:
        return
    c = counts.setdefault(test, [0, 0, 0])
    if time.time() - start > args.seconds:
        c[2] += 1
        return
    try:
        run()
        c[0] += 1
    except BsrError as e:
        if e.status == "UNSUPPORTED":
            c[2] += 1
        else:
            fail(test, c, text, e)
    except AssertionError as e:
        fail(test, c, text, e)


def fail(test, c, text, e):
    c[1] += 1
    shown[test] = shown.get(test, 0) + 1
    if shown[test] <= 5:
        print(f"FAIL {test} [{text}] {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)


def close(got, want, atol=None):
    """want in float64 is rounded to got's type first, as upstream does; NaN must meet NaN."""
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    want = want.to(got.dtype)
    if got.dtype not in TOLERANCE:
        assert torch.equal(got, want), "integers differ"
        return
    rtol, floor = TOLERANCE[got.dtype]
    ok = torch.isclose(got.double(), want.double(), rtol=rtol, atol=max(floor, atol or 0), equal_nan=True)
    if not bool(ok.all()):
        worst = (got.double() - want.double()).abs().nan_to_num(float("inf")).max().item()
        raise AssertionError(f"{int((~ok).sum())} of {ok.numel()} elements differ, by up to {worst:.3g}")


def uniform(shape, dtype, low, high):
    if not dtype.is_floating_point:
        return torch.randint(int(-(-low // 1)), int(-(-high // 1)), shape, device=dev, dtype=dtype)
    return (torch.rand(shape, device=dev) * (high - low) + low).to(dtype)


def triangular(x, rb, cb):
    """Zeroes whole blocks: lower-triangular where there are more block rows than columns, else upper."""
    m, n = x.shape[-2] // rb, x.shape[-1] // cb
    ones = torch.ones(m, n, dtype=torch.bool, device=dev)
    keep = ones.tril() if m > n else ones.triu()
    return x * keep.repeat_interleave(rb, 0).repeat_interleave(cb, 1).to(x.dtype)


def to_bsr(x, rb, cb):
    """x's non-zero blocks. Every item of a batch has the same number here."""
    rows, cols = x.shape[-2] // rb, x.shape[-1] // cb
    batch = x.shape[:-2]
    tiles = x.reshape(batch + (rows, rb, cols, cb)).transpose(-3, -2)
    keep = (tiles != 0).flatten(-2).any(-1)
    flat = keep.flatten(0, -3)[0] if batch else keep
    at = flat.nonzero()
    crow = torch.zeros(rows + 1, dtype=torch.int64, device=dev)
    crow[1:] = flat.sum(1).cumsum(0)
    values = tiles[..., at[:, 0], at[:, 1], :, :].contiguous()
    crow, col = (i.to(I32).expand(batch + i.shape).contiguous() for i in (crow, at[:, 1]))
    return crow, col, values


def as_dense(crow, col, values, rows, cols):
    rb, cb = values.shape[-2:]
    batch = values.shape[:-3]
    out = torch.zeros(batch + (rows // rb, cols // cb, rb, cb), dtype=values.dtype, device=dev)
    first = lambda t: t.flatten(0, -2)[0] if t.dim() > 1 else t
    r = torch.repeat_interleave(torch.arange(rows // rb, device=dev), first(crow).diff().long())
    out[..., r, first(col).long(), :, :] = values
    return out.transpose(-3, -2).reshape(batch + (rows, cols))


def addmm(sparse, shape, d, out, max_grid=None, **more):
    m = matrix_of(*sparse, *shape)
    lib.addmm(m, dense(d), dense(out), exec=lib.exec(max_grid=max_grid), **more)


# ---- the tests, in upstream's order ----

def triton_bsr_softmax(test):
    for dtype, rb, cb, batch, m, n in itertools.product(FLOATS, (2, 3), (2, 3), BATCHES, (6, 12, 0), (6, 12, 0)):
        def run():
            x = uniform(batch + (m, n), dtype, 1, 3)
            for i in range(min(m, n)):
                x[..., i, i] = m * n
            x = triangular(x, rb, cb)
            crow, col, values = to_bsr(x, rb, cb)
            out = torch.full_like(values, float("nan"))
            lib.softmax(matrix_of(crow, col, values, m, n), matrix_of(crow, col, out, m, n))
            stored = as_dense(crow, col, torch.ones_like(values), m, n) != 0
            want = torch.softmax(x.double().masked_fill(~stored, -float("inf")), -1).nan_to_num(0)
            close(as_dense(crow, col, out, m, n), want)
        case(test, f"{dtype} {rb}x{cb} {batch} {m}x{n}", run)

    for dtype in FLOATS:
        def long_rows():
            x = torch.randn(2, 2, 1, 150000, device=dev, dtype=dtype)
            crow, col, values = to_bsr(torch.ones_like(x), 1, 1)
            values = x.reshape(2, 2, 150000, 1, 1).contiguous()
            out = torch.full_like(values, float("nan"))
            lib.softmax(matrix_of(crow, col, values, 1, 150000), matrix_of(crow, col, out, 1, 150000))
            close(out.reshape(x.shape), torch.softmax(x.double(), -1))
        case(test, f"{dtype} 1x150000", long_rows)


def triton_bsr_dense_bmm(test):
    grids = [g for g in itertools.product((None, 2, 4), repeat=3)]
    for b, index, dtype, b1, b2, m, n, k, orthogonal in itertools.product(
            (16, 32, 64), (I32, torch.int64), FLOATS, BATCHES, BATCHES, SIZES, SIZES, SIZES, (False, True)):
        def run():
            x, d = uniform(b1 + (m, k), dtype, 0.5, 1.5), uniform(b2 + (k, n), dtype, 0.5, 1.5)
            if orthogonal:
                x = torch.cat((x, torch.zeros_like(x)), -1)
                d = torch.cat((torch.zeros_like(d), d), -2)
            inner = x.shape[-1]
            crow, col, values = to_bsr(x, b, b)
            crow, col = crow.to(index), col.to(index)
            want = x.double() @ d.double()
            out = torch.full(want.shape, float("nan"), dtype=dtype, device=dev)
            addmm((crow, col, values), (m, inner), d, out)
            close(out, want)
            for grid in grids[1:]:
                again = torch.full_like(out, float("nan"))
                addmm((crow, col, values), (m, inner), d, again, max_grid=grid)
                assert torch.equal(again, out), f"max_grid {grid} changes the result"
        case(test, f"b{b} {index} {dtype} {b1} {b2} {m}x{k}x{n} {'orthogonal' if orthogonal else ''}", run)


def triton_bsr_dense_bmm_error_messages(test):
    def made(m=32, n=32, b=16, dtype=F16, device=dev):
        crow, col, values = to_bsr(torch.ones(m, n, device=dev, dtype=dtype), b, b)
        return crow, col, values, torch.ones(n, n, device=device, dtype=dtype), torch.empty(m, n, device=dev, dtype=dtype)

    def refused(status, crow, col, values, d, out, flags=0):
        try:
            lib.addmm(matrix_of(crow, col, values, 32, 32), dense(d), dense(out), exec=lib.exec(flags))
        except BsrError as e:
            assert e.status == status, f"{e.status}, expected {status}"
            return
        raise AssertionError(f"taken, expected {status}")
    c, k, v, d, o = made()
    case(test, "dense on the CPU", lambda: refused("BAD_ARGUMENT", c, k, v, d.cpu().pin_memory(), o, bridge.CHECK_POINTERS))
    case(test, "dtypes differ", lambda: refused("BAD_DTYPE", c, k, v, d.float(), o))
    case(test, "1 x 1 dense", lambda: refused("BAD_SHAPE", c, k, v, d[:1, :1], o))
    case(test, "out of another shape", lambda: refused("BAD_SHAPE", c, k, v, d, o[:30, :30]))
    case(test, "out of another batch", lambda: refused("BAD_BATCH", c, k, v, d, o.expand(2, 32, 32).contiguous()))
    # what upstream refuses and we take: f64, 15 columns, blocks of 15 and 30, an output that is neither row- nor column-major
    for name, n, b, dtype in (("f64", 32, 16, F64), ("15 columns", 15, 16, F16), ("blocks of 15", 30, 15, F16),
                              ("blocks of 30", 30, 30, F16)):
        def taken():
            size = 32 if b == 16 else 30
            x, y = uniform((size, size), dtype, 0.5, 1.5), uniform((size, n), dtype, 0.5, 1.5)
            out = torch.full((size, n), float("nan"), dtype=dtype, device=dev)
            addmm(to_bsr(x, b, b), (size, size), y, out)
            if dtype == F64:
                assert torch.allclose(out, x @ y, rtol=1e-13)
            else:
                close(out, x.double() @ y.double())
        case(test, name + " is taken", taken)

    def strided():
        x = uniform((32, 32), F16, 0.5, 1.5)
        out = torch.full((32, 32, 2), float("nan"), dtype=F16, device=dev)[..., 0]
        addmm(to_bsr(x, 16, 16), (32, 32), x, out)
        close(out, x.double() @ x.double())
    case(test, "a strided output is taken", strided)


def triton_scaled_dot_product_attention(test):
    cache = {}
    for b, dtype, mb, qb, kb, vb, m, n, k, scale, boolean in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, BATCHES, SIZES, SIZES, SIZES, (None, 1 / 16), (True, False)):
        def run():
            key = (b, mb, m, n, dtype if not boolean else torch.bool)
            if key not in cache:
                ones = triangular(torch.ones(mb + (m, n), device=dev, dtype=dtype), b, b)
                crow, col, values = to_bsr(ones, b, b)
                cache[key] = (crow, col, values.bool() if boolean else values, ones != 0)
            crow, col, values, allowed = cache[key]
            q, x, v = (uniform(shape, dtype, 0.3, 1.2) for shape in (qb + (m, k), kb + (n, k), vb + (n, k)))
            s = scale if scale is not None else (1 if k == 0 else k ** -0.5)
            scores = q.double() @ x.double().transpose(-1, -2) * s
            want = torch.softmax(scores.masked_fill(~allowed, -float("inf")), -1).nan_to_num(0) @ v.double()
            out = torch.full(want.shape, float("nan"), dtype=dtype, device=dev)
            lib.attention(dense(q), dense(x), dense(v), matrix_of(crow, col, values, m, n), dense(out), scale=s)
            close(out, want, 1e-3 if dtype == F16 else None)
        case(test, f"b{b} {dtype} {mb}{qb}{kb}{vb} {m}x{n}x{k} scale {scale} mask {'bool' if boolean else 'float'}", run)


def triton_sampled_addmm(test):
    for b, dtype, b0, b1, b2, m, n, k, (alpha, beta), own in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, (128, 256, 0), (128, 256, 0), (125, 253, 0),
            itertools.product((0, 2), (0, 2)), (False, True)):
        def run():
            x = uniform(b0 + (m, n), dtype, 0.3, 1.2).tril()
            y, z = uniform(b1 + (m, k), dtype, 0.3, 1.2).tril(), uniform(b2 + (k, n), dtype, 0.3, 1.2).tril()
            crow, col, values = to_bsr(x, b, b)
            batch = torch.broadcast_shapes(b0, b1, b2)
            crow, col = (i.expand(batch + i.shape[-1:]).contiguous() for i in (crow, col))
            given = values.expand(batch + values.shape[-3:])
            out = torch.full(given.shape, float("nan"), dtype=dtype, device=dev)
            if own:  # permuted strides, as a caller's own out may have
                out = out.transpose(-1, -2).contiguous().transpose(-1, -2)
            got = []
            for grid in ((None, None), (3, None), (None, 3), (3, 3)):
                out.fill_(float("nan"))
                lib.sampled(dense(y), dense(z), matrix_of(crow, col, out, m, n), matrix_of(crow, col, given.contiguous(), m, n),
                            float(beta), float(alpha), exec=lib.exec(max_grid=grid))
                got.append(out.clone())
            assert all(torch.equal(g, got[0]) for g in got[1:]), "max_grid changes the result"
            ones = as_dense(crow, col, torch.ones_like(given), m, n) != 0
            want = (alpha * (y.double() @ z.double()) + beta * x.double()).expand(batch + (m, n)) * ones
            close(as_dense(crow, col, got[0], m, n), want)
        case(test, f"b{b} {dtype} {b0}{b1}{b2} {m}x{n}x{k} alpha {alpha} beta {beta} {'out given' if own else ''}", run)


def index_list(numbers):
    return torch.tensor(numbers, dtype=torch.int64, device=dev)


def scatter_indices(format_, split, c, r=None, p=None, q=None):
    x = bridge.Scatter(split_n=split, format=format_)
    for name, t in (("c", c), ("r", r), ("p", p), ("q", q)):
        if t is not None:
            setattr(x, {"c": "c_indices", "r": "r_offsets", "p": "p_indices", "q": "q_indices"}[name], t.data_ptr() or None)
            setattr(x, name + "_count", t.numel())
    x.keep = (c, r, p, q)
    return x


def triton_scatter_mm(test):
    for dtype, m, k, n in itertools.product(FLOATS, (8, 16), (8, 16), (8, 16)):
        def tiles():
            blocks, others = uniform((2, m, k), dtype, 0.5, 1.5), uniform((2, k, n), dtype, 0.5, 1.5)
            out = torch.zeros(3, m, n, dtype=dtype, device=dev)
            x = scatter_indices(1, 1, index_list([0, 2, 3, 4]), None, index_list([0, 1, 0, 1]), index_list([0, 0, 1, 1]))
            lib.scatter(dense(blocks), dense(others), x, dense(out))
            a, o = blocks.double(), others.double()
            close(out, torch.stack([a[0] @ o[0] + a[1] @ o[0], a[0] @ o[1], a[1] @ o[1]]))
        case(test, f"scatter_mm {dtype} {m}x{k}x{n}", tiles)
        for batch in ((), (2,), (3, 4)):
            def strided():
                blocks, others = uniform((2, m, k), dtype, 0.5, 1.5), uniform(batch + (2 * k, 2 * n), dtype, 0.5, 1.5)
                out = torch.zeros(batch + (2 * m, 2 * n), dtype=dtype, device=dev)
                x = scatter_indices(2, 2, index_list([0, 2, 4, 5, 6]), index_list([0, n, 2 * n * m, 2 * n * m + n]),
                                    index_list([1, 0, 1, 0, 1, 1]),
                                    index_list([0, 2 * k * n, n, 2 * k * n + n, 2 * k * n, 2 * k * n + n]))
                lib.scatter(dense(blocks), dense(others), x, dense(out))
                whole = torch.cat((torch.cat((blocks[1], blocks[0]), 1), torch.cat((0 * blocks[0], blocks[1]), 1)), 0)
                close(out, whole.double() @ others.double())
            case(test, f"bsr_strided_mm {dtype} {m}x{k}x{n} {batch}", strided)


def strided_lists(crow, col, rows, K, N, ms, ks, split, compressed):
    """Upstream's index lists; the order of outputs is free."""
    crow, col, ns = crow.tolist(), col.tolist(), N // split
    c, r, p, q = [0], [], [], []
    if compressed:
        q = [0] * (split * len(col))
        for m in range(rows):
            for t in range(split):
                r.append(m * ms * N + t * ns)
                for i in range(crow[m + 1] - crow[m]):
                    q[t * crow[m + 1] + (split - t) * crow[m] + i] = col[crow[m] + i] * ks * N + t * ns
        return crow, r, None, q
    for m in range(rows):
        for t in range(split):
            r.append(m * ms * N + t * ns)
            p += range(crow[m], crow[m + 1])
            q += [col[g] * ks * N + t * ns for g in range(crow[m], crow[m + 1])]
            c.append(len(p))
    return c, r, p, q


def triton_bsr_scatter_mm(test):
    sizes = ((2, 2), (2, 3), (16, 16), (16, 32), (32, 32), (64, 64))
    for (bm, bk), dtype, batch, M, K, N, empty, name in itertools.product(
            sizes, FLOATS, BATCHES, (1, 2, 4), (1, 2), (1, 2, 4), (False, True), ("compressed", "strided", "scatter_mm")):
        M, K, N = M * bm, K * bk, N * bm
        if empty and M == bm:
            continue
        splits, n = [], N
        while n >= 1:
            splits.append(n)
            n //= 2
        if name == "scatter_mm":
            splits = [N // bm]
        for split in splits:
            if N % split:
                continue

            def run():
                x, d = uniform((M, K), dtype, 0.5, 1.5), uniform(batch + (K, N), dtype, 0.5, 1.5)
                if empty:
                    x[:bm] = 0
                crow, col, values = to_bsr(x, bm, bk)
                want = x.double() @ d.double()
                if name == "scatter_mm":
                    others = d.reshape((-1, K // bk, bk, N // bm, bm)).transpose(-3, -2).reshape(-1, bk, bm).contiguous()
                    items, pl, ql, c = others.shape[0] // ((K // bk) * (N // bm)), [], [], [0]
                    for i, r, t in itertools.product(range(items), range(M // bm), range(N // bm)):
                        for g in range(int(crow[r]), int(crow[r + 1])):
                            pl.append(g)
                            ql.append((int(col[g]) + i * (K // bk)) * (N // bm) + t)
                        c.append(len(pl))
                    acc = torch.zeros(items * (M // bm) * (N // bm), bm, bm, dtype=dtype, device=dev)
                    lists = scatter_indices(1, 1, index_list(c), None, index_list(pl), index_list(ql))
                    lib.scatter(dense(values), dense(others), lists, dense(acc))
                    out = acc.reshape(items, M // bm, N // bm, bm, bm).transpose(-3, -2).reshape(want.shape)
                else:
                    lists = strided_lists(crow, col, M // bm, K, N, bm, bk, split, name == "compressed")
                    out = torch.zeros(want.shape, dtype=dtype, device=dev)
                    x_ = scatter_indices(3 if name == "compressed" else 2, split,
                                         *(index_list(t) if t is not None else None for t in lists))
                    lib.scatter(dense(values), dense(d), x_, dense(out))
                close(out, want)
            case(test, f"{name} {bm}x{bk} {dtype} {batch} {M}x{K}x{N} split {split} {'empty row' if empty else ''}", run)


def triton_kernel(test):
    for op, (bm, bk), dtype, out_i32 in itertools.product(
            ("bsr_dense_addmm", "bsr_dense_mm", "bsr_dense_linear", "_int_bsr_dense_addmm"), ((16, 16), (16, 32), (32, 32)),
            (F16, BF16, F32, I8), (False, True)):
        integer = dtype == I8
        if (out_i32 and not (op == "bsr_dense_addmm" and integer)) or (op[0] == "_" and not integer):
            continue
        if (op == "bsr_dense_linear" and (bm != bk or integer)) or (integer and min(bm, bk) < 32):
            continue
        full = op.endswith("addmm")
        both = (False, True) if full else (False,)
        for beta, alpha, sparsity, rows, cols, n, left, right, strided in itertools.product(
                (0, 1, 2) if full else (0,) if op == "bsr_dense_mm" else (1,), (0, 1, 2) if full else (1,),
                (0, 0.5, 1), (1, 2), (1, 2), (16, 32, 64), both, both, (0, 1, 2, 3)):
            def run():
                out_dtype = I32 if out_i32 or op[0] == "_" else dtype
                M, K, high = rows * bm, cols * bk, 2.5 if integer else 1.5
                keep = (torch.rand(rows, cols, device=dev) >= sparsity).repeat_interleave(bm, 0).repeat_interleave(bk, 1)
                x = (torch.randint(0, 2, (M, K), device=dev) * keep).to(dtype)
                d, given = uniform((K, n), dtype, 0.5, high), uniform((M, n), dtype, 0.5, high)
                la, ra = uniform((M, 1), dtype, 0.5, high), uniform((1, n), dtype, 0.5, high)
                crow, col, values = to_bsr(x, bm, bk)
                wide = lambda t: torch.stack((t, t), -1).flatten(-2)[..., ::2]  # every other element
                if strided in (1, 3):
                    d = wide(d)
                if strided == 2:
                    values = wide(values)
                if strided == 3:
                    given = wide(given)
                out = torch.full((M, n), 77, dtype=out_dtype, device=dev)
                addmm((crow, col, values), (M, K), d, out, input=dense(given), beta=float(beta), alpha=float(alpha),
                      left=dense(la) if left else None, right=dense(ra) if right else None)
                product = alpha * (x.double() @ d.double())
                product = product * (la.double() if left else 1) * (ra.double() if right else 1)
                want = beta * given.double() + product
                if integer:
                    want = want.to(torch.int64).to(out_dtype)  # wraps
                close(out, want, 0.6 if dtype == F16 else None)
            case(test, f"{op} {bm}x{bk} {dtype} out i32 {out_i32} beta {beta} alpha {alpha} s {sparsity} {rows}x{cols} n {n} "
                       f"left {left} right {right} strided {strided}", run)


TESTS = (triton_bsr_softmax, triton_bsr_dense_bmm, triton_bsr_dense_bmm_error_messages, triton_scaled_dot_product_attention,
         triton_sampled_addmm, triton_scatter_mm, triton_bsr_scatter_mm, triton_kernel)
NOT_OURS = {"TensorAsKey": "a cache of PyTorch's own", "triton_tune": "in our terms in tests/test_tune.c",
            "triton_bsr_dense_addmm_meta": "in our terms in tests/test_tune.c"}
for t in TESTS:
    if args.tests and not any(x in t.__name__ for x in args.tests.split(",")):
        continue
    torch.manual_seed(0)
    began, number = time.time(), 0
    t(t.__name__)
    torch.cuda.synchronize()
    p, f, s = counts.get(t.__name__, (0, 0, 0))
    print(f"{t.__name__:40} {p} passed, {f} failed, {s} skipped  ({time.time() - began:.0f} s)", flush=True)
for name, why in NOT_OURS.items():
    print(f"skip {name}: {why}")
    counts[name] = [0, 0, 1]
total = [sum(c[i] for c in counts.values()) for i in range(3)]
print("%d passed, %d failed, %d skipped" % tuple(total))
sys.exit(1 if total[1] or not total[0] else 0)
