"""What the tests of parity.py share: the device and the library, counting of cases, comparing, operands in many layouts with
spoiled gaps, block patterns."""
import argparse
import collections
import glob
import hashlib
import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description="PyTorch's and DeepSpeed's tests of block-sparse operations against bsrsparse")
parser.add_argument("--backend", choices=("cuda", "cpu"), default=os.environ.get("BACKEND") or "cuda",
                    help="default: $BACKEND, or cuda")
parser.add_argument("--lib", default="", help="default: build/gpu/libbsrsparse.so, or what make parity has built")
parser.add_argument("--part", default="0/1", help="i/n: of n shares of the cases, drawn by lot, the i-th")
parser.add_argument("--tests", default="", help="names, or parts of names, separated by commas")
parser.add_argument("--case", type=int, default=0, help="the case of this number alone (failures name it)")
parser.add_argument("--seconds", type=float, default=400, help="cases that are left then count as failed")
parser.add_argument("--kernel", type=int, default=0, help="plan.kernel of every call; 0: the library's choice")
parser.add_argument("--jobs", type=int, default=1, help="processes that share the cases")
parser.add_argument("--into", default="", help=argparse.SUPPRESS)  # of such a process: the file that takes its counts
args = parser.parse_args()


def leave(why):
    print(f"skip parity: {why}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)


try:
    import torch
except ImportError:
    leave("PyTorch is absent")
if args.backend == "cuda" and not torch.cuda.is_available():
    leave("there is no GPU")
import bridge
from bridge import BsrError

F16, BF16, F32, F64, I8, I32, I64 = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int32,
                                     torch.int64)
FLOATS = (F16, BF16, F32)
TOLERANCE = {F16: (1e-3, 1e-5), BF16: (1.6e-2, 1e-5), F32: (1.3e-6, 1e-5), F64: (1e-13, 0)}  # PyTorch's; integers are exact
dev = args.backend
torch.set_num_threads(1)  # of its own, which would spin beside the library's
part, parts = (int(x) for x in args.part.split("/"))
built = sorted(glob.glob(os.path.join(HERE, "../build", "gpu" if dev == "cuda" else "*/plain", "libbsrsparse.so")))
if not (args.lib or built):
    sys.exit("parity: there is no library; make gpu-parity and make parity build it")
lib = bridge.Library(args.lib or built[0], args.kernel, dev)

# ---- counting ----

KINDS = ("numbers", "zeros", "nothing", "refusals")  # what a case compared, at most


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = self.calls = self.compared = self.shown = 0
        self.kinds = collections.Counter()

    def add(self, c):
        for name, value in vars(c).items():
            setattr(self, name, getattr(self, name) + value)


counts = collections.OrderedDict()  # of each test
signatures = []  # of each case that has run: a digest of its calls' shapes, strides, types, scalars
start = time.time()
number = 0


class Case:
    def __init__(self, test, text):
        self.test, self.text, self.number, self.count = test, text, number, counts[test]
        self.kind, self.failed, self.signature, self.watched = 3, False, [], []

    def fail(self, e):
        if self.failed:
            return
        self.failed = True
        self.count.failed += 1
        self.count.shown += 1
        if self.count.shown <= 5:
            print(f"FAIL {self.test} [{self.text}] --case {self.number}: {e}", flush=True)


now = None  # the case that runs


def case(test, text, run, needs=None):
    """One case: its share, its time, its own random numbers, its calls; what close() and same() note is compared later.
    needs: (operation, dtype, out dtype), all that may be UNSUPPORTED and then is skipped."""
    global number, now
    number += 1
    if number != args.case if args.case else zlib.crc32(b"%d" % number) % parts != part:
        return
    now = Case(test, text)
    if time.time() - start > args.seconds:
        return now.fail(f"not run, {args.seconds:g} s are over")
    torch.manual_seed(zlib.crc32(test.encode()) + number)
    noted = len(pending)
    try:
        run()
        for gap, pattern in now.watched:
            note("a gap between elements was written", (gap != pattern).any())
    except (BsrError, AssertionError) as e:
        del pending[noted:]
        if isinstance(e, BsrError) and e.status == "UNSUPPORTED" and (args.kernel or needs and not lib.supports(*needs)):
            now.count.skipped += 1
        else:
            now.fail(f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
        return
    finish.append(now)
    now.count.calls += len(now.signature)
    signatures.append(hashlib.blake2b(repr(now.signature).encode(), digest_size=8).digest())
    if len(pending) > 600 or pending_size > 1 << 25:
        flush()


# ---- comparing ----

pending = []  # what is to be compared
finish = []  # cases that wait for it
pending_size = 0


def note(what, bad):
    """bad, a flag in the device's memory, must be false."""
    pending.append(dict(case=now, key=what, got=bad))


def close(got, want, atol=None, zeros=False):
    """want, in float64, is rounded to got's type first, as upstream does. A reference of zeros alone fails where zeros is not
    said, and one that has others where it is. atol: in place of PyTorch's."""
    assert got.shape == want.shape, f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
    pending.append(dict(case=now, key=(got.dtype, want.dtype, atol), got=got, want=want, zeros=zeros, some=(want != 0).any()))
    global pending_size
    pending_size += got.numel()


def same(many, what):
    """All of many, along its first dimension, are the first, bit for bit; each is compared with a reference besides."""
    bits = many.view(SPOIL[many.dtype][0])
    note(what, (bits != bits[:1]).any())


def compare(got, want, key):
    """Which elements differ. NaN differs from any number."""
    dtype, _, atol = key
    want = want.to(dtype)
    if dtype not in TOLERANCE:
        return got != want
    rtol, floor = TOLERANCE[dtype]
    return ~torch.isclose(got.double(), want.double(), rtol=rtol, atol=floor if atol is None else atol, equal_nan=True)


def difference(p):
    """What is wrong with one comparison, or nothing."""
    if isinstance(p["key"], str):
        return p["key"] if bool(p["got"]) else ""
    differ = compare(p["got"], p["want"], p["key"])
    if not bool(differ.any()):
        return ""
    worst = (p["got"].double() - p["want"].double()).abs().nan_to_num(float("inf")).max().item()
    return f"{int(differ.sum())} of {differ.numel()} elements differ, by up to {worst:.3g}"


def sort_out(p, some):
    """What p's case compared, by its reference."""
    c, kind = p["case"], 2 if not p["want"].numel() else 0 if some else 1
    c.kind, c.count.compared = min(c.kind, kind), c.count.compared + (kind == 0)
    if kind < 2 and p["zeros"] != (kind == 1):
        c.fail("the reference is zero everywhere" if kind else "the reference should be zero everywhere")


def flush():
    """Compares all that is pending at once; only where something differs one by one, each case failing once."""
    global pending_size
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
        for p in pending:
            text = difference(p)
            if text:
                p["case"].fail(text)
    results = [p for p in pending if "want" in p]
    some = torch.stack([p["some"] for p in results]).tolist() if results else []
    for p, s in zip(results, some):
        sort_out(p, s)
    for c in finish:
        c.count.passed += not c.failed
        c.count.kinds[KINDS[c.kind]] += not c.failed
    pending.clear(), finish.clear()
    pending_size = 0


def line(c):
    kinds = ", ".join(f"{c.kinds[k]} {k}" for k in KINDS if c.kinds[k])
    return f"{c.passed} passed, {c.failed} failed, {c.skipped} skipped: {kinds or 'none'}"


def summary():
    """What has been compared, then the closing line; the exit status."""
    total = [sum(getattr(c, x) for c in counts.values()) for x in ("passed", "failed", "skipped", "calls", "compared")]
    kinds = sum((c.kinds for c in counts.values()), collections.Counter())
    print("%d of the passed compare results that are not all zero; of the others %d expect zeros, %d have nothing to compare "
          "(empty operands),\n%d expect refusals" % (kinds["numbers"], kinds["zeros"], kinds["nothing"], kinds["refusals"]))
    print("%d calls, %d results that are not all zero; %d cases repeat the calls of another with other numbers" %
          (total[3], total[4], len(signatures) - len(set(signatures))))
    print("%d passed, %d failed, %d skipped" % tuple(total[:3]))
    return 1 if total[1] or not kinds["numbers"] else 0


def shared_out():
    """Runs the cases in args.jobs processes and adds up what they count."""
    jobs = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.jobs):
            path = os.path.join(folder, str(i))
            share = ["--jobs", "1", "--into", path, "--part", f"{part + i * parts}/{parts * args.jobs}"]
            jobs.append((path, subprocess.Popen([sys.executable] + sys.argv + share)))
        for path, job in jobs:
            job.wait()
            if not os.path.exists(path):
                counts.setdefault("a process ended early", Count()).failed += 1
                continue
            with open(path, "rb") as f:
                theirs, called = pickle.load(f)
            signatures.extend(called)
            for name, c in theirs.items():
                counts.setdefault(name, Count()).add(c)


# ---- calls ----

class Sparse(collections.namedtuple("Sparse", "crow col values rows cols ragged")):
    """A BSR matrix's arrays and sizes. ragged: the last batch dimension is crow's alone, which holds absolute positions."""

    def with_values(self, values):
        return self._replace(values=values)


def sparse(pattern, values, batch=None):
    """Blocks of a pattern, whose indices are expanded to the batch of values, or to another."""
    batch = values.shape[:-3] if batch is None else batch
    crow, col = (i.expand(batch + i.shape).contiguous() for i in (pattern.crow, pattern.col))
    return Sparse(crow, col, values, pattern.rows * values.shape[-2], pattern.cols * values.shape[-1], False)


def view(x):
    """What the library takes for a tensor, a Sparse; it keeps x. Anything else as it is."""
    if isinstance(x, torch.Tensor):
        d = bridge.dense(x)
        d.keep = x
        return d
    if not isinstance(x, Sparse):
        return x
    m = ragged(x) if x.ragged else bridge.matrix_of(*x[:5])
    m.keep = x
    return m


def ragged(x):
    m = bridge.matrix_of(x.crow, x.col.expand(x.crow.shape[:-1] + x.col.shape), None, x.rows, x.cols, x.values.shape[-2:])
    m.values, m.dtype, m.flags = x.values.data_ptr() or None, bridge.DTYPE[x.values.dtype], bridge.RAGGED
    for i in range(m.batch_dims - 1):
        m.values_batch_stride[i] = x.values.stride(i)
    return m


def sign(x):
    """What of an argument tells one call from another; not the numbers."""
    if isinstance(x, torch.Tensor):
        return x.dtype, tuple(x.shape), x.stride()
    if isinstance(x, Sparse):
        return tuple(sign(y) for y in x)
    return x if isinstance(x, (int, float, bool, str, tuple, type(None))) else type(x).__name__


def call(method, *operands, **more):
    """Calls the library. Tensors go as dense views, a Sparse as a matrix; grid= goes into the call's max_grid."""
    now.signature.append((method, tuple(map(sign, operands)), tuple((k, sign(v)) for k, v in more.items())))
    if "grid" in more:
        more["exec"] = lib.exec(max_grid=more.pop("grid"))
    getattr(lib, method)(*map(view, operands), **{k: view(v) for k, v in more.items()})


def call_grids(method, grids, operands, out, target, field, **more):
    """The same call into each item of out, with each grid. target views out's first item; its field moves on."""
    now.signature.append((method, tuple(map(sign, operands)), sign(out), grids, tuple((k, sign(v)) for k, v in more.items())))
    views, more = tuple(map(view, operands)) + (target,), {k: view(v) for k, v in more.items()}
    for grid in grids:
        getattr(lib, method)(*views, exec=lib.exec(max_grid=grid), **more)
        if out.numel():
            setattr(target, field, getattr(target, field) + out.stride(0) * out.element_size())


# ---- operands ----

SPOIL = {F16: (torch.int16, 0x7da5), BF16: (torch.int16, 0x7fa5), F32: (I32, 0x7fa5a5a5), F64: (I64, 0x7ff5a5a5a5a5a5a5),
         I8: (torch.int8, 0x5a), I32: (I32, 0x5a5a5a5a), torch.bool: (torch.uint8, 1)}  # of floats: a NaN of no usual bits


def spoiled(shape, dtype):
    bits, pattern = SPOIL[dtype]
    return torch.full(shape, pattern, dtype=bits, device=dev).view(dtype)


def memory(shape, dtype, layout):
    """Spoiled memory seen as a tensor: "rows", "cols"; "rows gaps", "cols gaps": every other element, the rest is watched."""
    if layout.startswith("cols"):
        return memory(shape[:-2] + (shape[-1], shape[-2]), dtype, layout.replace("cols", "rows")).transpose(-2, -1)
    if layout == "rows":
        return spoiled(shape, dtype)
    wide = spoiled(shape + (2,), dtype)
    bits, pattern = SPOIL[dtype]
    now.watched.append((wide[..., 1].view(bits), pattern))
    return wide[..., 0]


def laid_out(x, layout):
    """x's numbers in such memory."""
    return x if layout == "rows" else memory(tuple(x.shape), x.dtype, layout).copy_(x)


def uniform(shape, dtype, low, high, layout="rows"):
    if dtype.is_floating_point:
        return laid_out(torch.empty(shape, dtype=dtype, device=dev).uniform_(low, high), layout)
    return laid_out(torch.randint(int(-(-low // 1)), int(-(-high // 1)), shape, device=dev, dtype=dtype), layout)


def memo(f):
    """f of hashable arguments, remembered: patterns and lists of indices, no numbers."""
    kept = {}

    def of(*key):
        if key not in kept:
            kept[key] = f(*key)
        return kept[key]
    return of


# ---- patterns ----

Pattern = collections.namedtuple("Pattern", "crow col r c rows cols keep")


def made_pattern(rows, cols, keep, index=I64):
    """keep: (row, column) of the stored blocks, in order."""
    crow = [0] * (rows + 1)
    for r, _ in keep:
        crow[r + 1] += 1
    crow = list(itertools.accumulate(crow))
    crow, col, r = (torch.tensor(x, dtype=I64, device=dev) for x in (crow, [c for _, c in keep], [r for r, _ in keep]))
    return Pattern(crow.to(index), col.to(index), r, col, rows, cols, keep)


kept_pattern = memo(made_pattern)
KEEP = {"all": lambda r, c, wide: True, "lower": lambda r, c, wide: c <= r, "but first row": lambda r, c, wide: r > 0,
        "left half": lambda r, c, wide: 2 * c < wide}


@memo
def pattern(kind, rows, cols, index=I64):
    """A pattern by name. "triangular" is upstream's: lower where there are more block rows than columns, else upper."""
    keep = KEEP.get(kind) or (KEEP["lower"] if rows > cols else lambda r, c, wide: c >= r)
    return made_pattern(rows, cols, [(r, c) for r in range(rows) for c in range(cols) if keep(r, c, cols)], index)


@memo
def stored(kind, rows, cols, rb, cb):
    """Which elements a pattern stores."""
    p = pattern(kind, rows, cols)
    mask = torch.zeros(rows, cols, dtype=torch.bool, device=dev)
    mask[p.r, p.c] = True
    return mask.repeat_interleave(rb, 0).repeat_interleave(cb, 1)


def gather(x, p, rb, cb):
    """The blocks of x that a pattern stores."""
    tiles = x.reshape(x.shape[:-2] + (p.rows, rb, p.cols, cb)).transpose(-3, -2)
    return tiles[..., p.r, p.c, :, :].contiguous()


def spread(values, p):
    """Blocks as a dense tensor."""
    rb, cb = values.shape[-2:]
    out = torch.zeros(values.shape[:-3] + (p.rows, p.cols, rb, cb), dtype=values.dtype, device=dev)
    out[..., p.r, p.c, :, :] = values
    return out.transpose(-3, -2).reshape(values.shape[:-3] + (p.rows * rb, p.cols * cb))
