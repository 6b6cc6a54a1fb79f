"""PyTorch's own tests of its Triton BSR kernels (TestSparseCompressedTritonKernels) run against bsrsparse: the same operations,
axes, input ranges and tolerances, with float64 references. Every case makes its own calls into an output of its own, filled with
NaN before; cases that differ only in batches, layouts or what finishes a product share their random numbers, and references of
the same numbers are computed once. Results stay on the GPU and are compared some hundreds at a time. Ends with "N passed,
N failed, N skipped". --part i/n runs a share of the cases, --tests picks by name, --seconds bounds the time (what is left is
counted as skipped)."""
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


def case(test, text, run):
    """One case: its share, its time, its calls. close() and equal() note what is compared later, by flush()."""
    global number
    number += 1
    if number % parts != part:
        return
    c = counts.setdefault(test, [0, 0, 0])
    if time.time() - start > args.seconds:
        c[2] += 1
        return
    noted = len(pending)
    try:
        run()
        c[0] += 1
        for p in pending[noted:]:
            p.update(test=test, text=text)
    except (BsrError, AssertionError) as e:
        del pending[noted:]
        if isinstance(e, BsrError) and e.status == "UNSUPPORTED":
            c[2] += 1
        else:
            fail(test, c, text, e)
    if len(pending) > 600 or pending_size > 1 << 25:
        flush()


def fail(test, c, text, e):
    c[1] += 1
    shown[test] = shown.get(test, 0) + 1
    if shown[test] <= 5:
        print(f"FAIL {test} [{text}] {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)


pending = []  # what is to be compared: got and want, or flags that must be false
pending_size = 0


def close(got, want, atol=None):
    """want in float64 is rounded to got's type first, as upstream does; NaN must meet NaN."""
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    pending.append(dict(key=(got.dtype, want.dtype, atol), got=got, want=want))
    global pending_size
    pending_size += got.numel()


def equal(many, what):
    """All of many, along its first dimension, are the first, bit for bit (NaN is no number here)."""
    pending.append(dict(key=what, got=(many != many[:1]).any()))


def compare(got, want, dtypes):
    """Which elements differ."""
    dtype, _, atol = dtypes
    want = want.to(dtype)
    if dtype not in TOLERANCE:
        return got != want
    rtol, floor = TOLERANCE[dtype]
    return ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=max(floor, atol or 0), equal_nan=True)


def flush():
    """Compares all that is pending at once; only where something differs one by one, each case failing once."""
    keys, bad = {}, []
    for p in pending:
        keys.setdefault(p["key"], []).append(p)
    for key, list_ in keys.items():
        if isinstance(key, str):
            bad.append(torch.stack([p["got"] for p in list_]).any())
        else:
            got, want = (torch.cat([p[x].reshape(-1) for p in list_]) for x in ("got", "want"))
            bad.append(compare(got, want, key).any())
    if bad and bool(torch.stack(bad).any()):
        failed = set()
        for p in pending:
            c, case_ = counts[p["test"]], (p["test"], p["text"])
            differ = p["got"] if isinstance(p["key"], str) else compare(p["got"], p["want"], p["key"])
            if case_ in failed or not bool(differ.any()):
                continue
            failed.add(case_)
            c[0] -= 1
            text = p["key"]
            if not isinstance(text, str):
                worst = (p["got"].double() - p["want"].double()).abs().nan_to_num(float("inf")).max().item()
                text = f"{int(differ.sum())} of {differ.numel()} elements differ, by up to {worst:.3g}"
            fail(p["test"], c, p["text"], AssertionError(text))
    pending.clear()
    global pending_size
    pending_size = 0


def memo(f):
    """f of hashable arguments, remembered: numbers, patterns and references that cases share."""
    kept = {}

    def of(*key):
        if key not in kept:
            kept[key] = f(*key)
        return kept[key]
    of.forget = kept.clear
    return of


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


def addmm(sparse, shape, d, out, **more):
    lib.addmm(matrix_of(*sparse, *shape), dense(d), dense(out), **more)


def item(x, batch):
    """Of numbers with batch (2, 2) those of a smaller one."""
    return x if len(batch) == 2 else x[0] if batch else x[0, 0]


@memo
def numbers(name, rows, cols, dtype, low, high):
    return uniform((2, 2, rows, cols), dtype, low, high)


@memo
def numbers_tril(name, rows, cols, dtype, low, high):
    return numbers(name, rows, cols, dtype, low, high).tril()


def nan(shape, dtype):
    return torch.full(shape, float("nan"), dtype=dtype, device=dev)


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
    grids = [lib.exec(max_grid=g) for g in itertools.product((None, 2, 4), repeat=3)]

    @memo
    def sparse(b, index, dtype, b1, m, k, orthogonal):
        x = item(numbers("x", m, k, dtype, 0.5, 1.5), b1)
        x = torch.cat((x, torch.zeros_like(x)), -1) if orthogonal else x
        crow, col, values = to_bsr(x, b, b)
        crow, col = crow.to(index), col.to(index)
        return crow, col, values, matrix_of(crow, col, values, m, x.shape[-1])

    @memo
    def other(dtype, b2, k, n, orthogonal):
        d = item(numbers("d", k, n, dtype, 0.5, 1.5), b2)
        return torch.cat((torch.zeros_like(d), d), -2) if orthogonal else d

    @memo
    def reference(dtype, b1, b2, m, n, k):
        return item(numbers("x", m, k, dtype, 0.5, 1.5), b1).double() @ item(numbers("d", k, n, dtype, 0.5, 1.5), b2).double()
    for b, index, dtype, b1, b2, m, n, k, orthogonal in itertools.product(
            (16, 32, 64), (I32, torch.int64), FLOATS, BATCHES, BATCHES, SIZES, SIZES, SIZES, (False, True)):
        def run():
            want = reference(dtype, b1, b2, m, n, k)
            want = torch.zeros_like(want) if orthogonal else want
            a, d = sparse(b, index, dtype, b1, m, k, orthogonal)[3], other(dtype, b2, k, n, orthogonal)
            out = nan((len(grids),) + want.shape, dtype)
            dd, od = dense(d), dense(out[0])
            for grid in grids:
                lib.addmm(a, dd, od, exec=grid)
                if out.numel():
                    od.data += out.stride(0) * out.element_size()
            equal(out, "max_grid changes the result")
            close(out[0], want)
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
    @memo
    def mask(b, mb, m, n, dtype):
        ones = triangular(torch.ones(mb + (m, n), device=dev, dtype=torch.float32), b, b)
        crow, col, values = to_bsr(ones, b, b)
        values = values.to(dtype)
        return (crow, col, values), matrix_of(crow, col, values, m, n)

    @memo
    def operand(name, rows, k, dtype, batch):
        x = item(numbers(name, rows, k, dtype, 0.3, 1.2), batch)
        return x, dense(x)

    @memo
    def reference(b, dtype, qb, kb, vb, m, n, k, s):
        q, x, v = (operand(*o)[0].double() for o in (("q", m, k, dtype, qb), ("k", n, k, dtype, kb), ("v", n, k, dtype, vb)))
        allowed = triangular(torch.ones(m, n, device=dev), b, b) != 0
        scores = q @ x.transpose(-1, -2) * s
        return torch.softmax(scores.masked_fill(~allowed, -float("inf")), -1).nan_to_num(0) @ v
    for b, dtype, mb, qb, kb, vb, m, n, k, scale, boolean in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, BATCHES, SIZES, SIZES, SIZES, (None, 1 / 16), (True, False)):
        def run():
            s = scale if scale is not None else (1 if k == 0 else k ** -0.5)
            want = reference(b, dtype, qb, kb, vb, m, n, k, s)
            want = want.expand(max(mb, qb, kb, vb, key=len) + (m, k))
            out = nan(want.shape, dtype)
            lib.attention(operand("q", m, k, dtype, qb)[1], operand("k", n, k, dtype, kb)[1], operand("v", n, k, dtype, vb)[1],
                          mask(b, mb, m, n, torch.bool if boolean else dtype)[1], dense(out), scale=s)
            close(out, want, 1e-3 if dtype == F16 else None)
        case(test, f"b{b} {dtype} {mb}{qb}{kb}{vb} {m}x{n}x{k} scale {scale} mask {'bool' if boolean else 'float'}", run)


def triton_sampled_addmm(test):
    grids = [lib.exec(max_grid=g) for g in ((None, None), (3, None), (None, 3), (3, 3))]

    @memo
    def operand(name, rows, cols, dtype, batch):
        x = item(numbers_tril(name, rows, cols, dtype, 0.3, 1.2), batch)
        return x, dense(x)

    @memo
    def given(b, dtype, b0, batch, m, n):
        """The stored input with the batch of the result, and where its blocks are."""
        crow, col, values = to_bsr(operand("x", m, n, dtype, b0)[0], b, b)
        one = crow.flatten(0, -2)[0] if b0 else crow
        rows, cols = torch.repeat_interleave(torch.arange(m // b, device=dev), one.diff().long()), \
            (col.flatten(0, -2)[0] if b0 else col).long()
        crow, col = (i.expand(batch + i.shape[-1:]).contiguous() for i in (crow, col))
        values = values.expand(batch + values.shape[-3:]).contiguous()
        return crow, col, values, rows, cols, matrix_of(crow, col, values, m, n)

    @memo
    def product(dtype, b1, b2, m, n, k):
        return operand("y", m, k, dtype, b1)[0].double() @ operand("z", k, n, dtype, b2)[0].double()

    @memo
    def reference(b, dtype, b0, b1, b2, m, n, k, alpha, beta):
        batch = max(b0, b1, b2, key=len)
        want = alpha * product(dtype, b1, b2, m, n, k) + beta * operand("x", m, n, dtype, b0)[0].double()
        rows, cols = given(b, dtype, b0, batch, m, n)[3:5]
        want = want.reshape(want.shape[:-2] + (m // b, b, n // b, b)).transpose(-3, -2)[..., rows, cols, :, :]
        return want.expand(batch + want.shape[-3:])
    for b, dtype, b0, b1, b2, m, n, k, (alpha, beta), own in itertools.product(
            (16, 32, 64), FLOATS, BATCHES, BATCHES, BATCHES, (128, 256, 0), (128, 256, 0), (125, 253, 0),
            itertools.product((0, 2), (0, 2)), (False, True)):
        def run():
            batch = max(b0, b1, b2, key=len)
            crow, col, values, _, _, source = given(b, dtype, b0, batch, m, n)
            want = reference(b, dtype, b0, b1, b2, m, n, k, alpha, beta)
            out = nan((len(grids),) + values.shape, dtype)
            if own:  # permuted strides, as a caller's own out may have
                out = out.transpose(-1, -2)
            target = matrix_of(crow, col, out[0], m, n)
            for grid in grids:
                lib.sampled(operand("y", m, k, dtype, b1)[1], operand("z", k, n, dtype, b2)[1], target, source, float(beta),
                            float(alpha), exec=grid)
                if out.numel():
                    target.values += out.stride(0) * out.element_size()
            equal(out, "max_grid changes the result")
            close(out[0], want)
        case(test, f"b{b} {dtype} {b0}{b1}{b2} {m}x{n}x{k} alpha {alpha} beta {beta} {'out given' if own else ''}", run)
        if own and (alpha, beta) == (2, 2):
            reference.forget()


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
    ns = N // split
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

    @memo
    def sparse(bm, bk, dtype, M, K, empty):
        x = numbers("x", M, K, dtype, 0.5, 1.5)[0, 0].clone()
        if empty:
            x[:bm] = 0
        crow, col, values = to_bsr(x, bm, bk)
        return x, crow.tolist(), col.tolist(), values, dense(values)

    @memo
    def other(dtype, batch, K, N):
        d = item(numbers("d", K, N, dtype, 0.5, 1.5), batch)
        return d, dense(d)

    @memo
    def reference(bm, bk, dtype, batch, M, K, N, empty):
        return sparse(bm, bk, dtype, M, K, empty)[0].double() @ other(dtype, batch, K, N)[0].double()

    @memo
    def lists(bm, bk, M, K, N, empty, split, compressed):
        _, crow, col, _, _ = sparse(bm, bk, F32, M, K, empty)  # no element is zero: the pattern is that of every type
        found = strided_lists(crow, col, M // bm, K, N, bm, bk, split, compressed)
        return scatter_indices(3 if compressed else 2, split, *(index_list(t) if t is not None else None for t in found))

    @memo
    def block_lists(bm, bk, items, M, K, N, empty):
        _, crow, col, _, _ = sparse(bm, bk, F32, M, K, empty)
        pl, ql, c = [], [], [0]
        for i, r, t in itertools.product(range(items), range(M // bm), range(N // bm)):
            for g in range(crow[r], crow[r + 1]):
                pl.append(g)
                ql.append((col[g] + i * (K // bk)) * (N // bm) + t)
            c.append(len(pl))
        return scatter_indices(1, 1, index_list(c), None, index_list(pl), index_list(ql))
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
                values, (d, dd) = sparse(bm, bk, dtype, M, K, empty)[4], other(dtype, batch, K, N)
                want = reference(bm, bk, dtype, batch, M, K, N, empty)
                if name == "scatter_mm":
                    others = d.reshape((-1, K // bk, bk, N // bm, bm)).transpose(-3, -2).reshape(-1, bk, bm).contiguous()
                    items = others.shape[0] // ((K // bk) * (N // bm))
                    acc = torch.zeros(items * (M // bm) * (N // bm), bm, bm, dtype=dtype, device=dev)
                    lib.scatter(values, dense(others), block_lists(bm, bk, items, M, K, N, empty), dense(acc))
                    out = acc.reshape(items, M // bm, N // bm, bm, bm).transpose(-3, -2).reshape(want.shape)
                else:
                    out = torch.zeros(want.shape, dtype=dtype, device=dev)
                    lib.scatter(values, dd, lists(bm, bk, M, K, N, empty, split, name == "compressed"), dense(out))
                close(out, want)
            case(test, f"{name} {bm}x{bk} {dtype} {batch} {M}x{K}x{N} split {split} {'empty row' if empty else ''}", run)


def triton_kernel(test):
    wide = lambda t: torch.stack((t, t), -1).flatten(-2)[..., ::2]  # every other element

    @memo
    def sparse(bm, bk, dtype, rows, cols, sparsity, n, strided):
        if strided:
            x, (crow, col, values) = sparse(bm, bk, dtype, rows, cols, sparsity, n, False)[:2]
            values = wide(values)
        else:
            keep = (torch.rand(rows, cols, device=dev) >= sparsity).repeat_interleave(bm, 0).repeat_interleave(bk, 1)
            x = (torch.randint(0, 2, keep.shape, device=dev) * keep).to(dtype)
            crow, col, values = to_bsr(x, bm, bk)
        return x, (crow, col, values), matrix_of(crow, col, values, rows * bm, cols * bk)

    @memo
    def operand(name, rows, cols, dtype, strided):
        x = operand(name, rows, cols, dtype, False)[0] if strided else \
            uniform((rows, cols), dtype, 0.5, 1.5 if dtype.is_floating_point else 2.5)
        x = wide(x) if strided else x
        return x, dense(x)

    @memo
    def product(bm, bk, dtype, rows, cols, sparsity, n, left, right):
        if left or right:
            x = product(bm, bk, dtype, rows, cols, sparsity, n, False, False)
            x = x * operand("left", rows * bm, 1, dtype, False)[0].double() if left else x
            return x * operand("right", 1, n, dtype, False)[0].double() if right else x
        x = sparse(bm, bk, dtype, rows, cols, sparsity, n, False)[0]
        return x.double() @ operand("d", cols * bk, n, dtype, False)[0].double()

    @memo
    def reference(bm, bk, dtype, rows, cols, sparsity, n, left, right, alpha, beta, out_dtype):
        want = beta * operand("given", rows * bm, n, dtype, False)[0].double() + \
            alpha * product(bm, bk, dtype, rows, cols, sparsity, n, left, right)
        return want if dtype.is_floating_point else want.to(torch.int64).to(out_dtype)  # wraps
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
                M, K, shape = rows * bm, cols * bk, (bm, bk, dtype, rows, cols, sparsity, n)
                out = torch.full((M, n), 77, dtype=out_dtype, device=dev)
                lib.addmm(sparse(*shape, strided == 2)[2], operand("d", K, n, dtype, strided in (1, 3))[1], dense(out),
                          input=operand("given", M, n, dtype, strided == 3)[1], beta=float(beta), alpha=float(alpha),
                          left=operand("left", M, 1, dtype, False)[1] if left else None,
                          right=operand("right", 1, n, dtype, False)[1] if right else None)
                close(out, reference(*shape, left, right, alpha, beta, out_dtype), 0.6 if dtype == F16 else None)
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
    flush()
    numbers.forget(), numbers_tril.forget()
    p, f, s = counts.get(t.__name__, (0, 0, 0))
    print(f"{t.__name__:40} {p} passed, {f} failed, {s} skipped  ({time.time() - began:.0f} s)", flush=True)
for name, why in NOT_OURS.items():
    print(f"skip {name}: {why}")
    counts[name] = [0, 0, 1]
total = [sum(c[i] for c in counts.values()) for i in range(3)]
print("%d passed, %d failed, %d skipped" % tuple(total))
sys.exit(1 if total[1] or not total[0] else 0)
