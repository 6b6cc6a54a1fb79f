"""bsrsparse beside PyTorch on one GPU, the same tensors in the same process: product (also once the GPU's clock has fallen),
sampled product, softmax, attention, skinny product, other types, break-even with the dense product, structured patterns beside
random ones, views, host time, layers of networks, a part of PyTorch's own tuning grid. Peers: torch.sparse._triton_ops with default
and searched parameters, torch.matmul, F.scaled_dot_product_attention, flex_attention. Times are medians of CUDA-graph replays,
random-normal data, exact block counts; errors are relative Frobenius norms against float64 on sampled rows.
One line per peer; ratio = peer's time / ours; geometric means last.
Writes tests/results/<gpu>_bench.csv (its first line: tests/record.sh) and <gpu>_triton.json, the best parameters of Triton's
search: a later run with --search 1 measures only those, with --search 2 it searches again."""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import threading
import time
import warnings

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SECTIONS = "copy product sustained sampled softmax attention skinny dtypes breakeven patterns views host layers grid".split()
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lib", default=os.path.join(ROOT, "build/gpu/libbsrsparse.so"))
parser.add_argument("--sections", default=",".join(SECTIONS), help="of " + ",".join(SECTIONS))
parser.add_argument("--seconds", type=float, default=440, help="stops starting new cases after this time")
parser.add_argument("--out", default=os.path.join(HERE, "results"), help="folder of the CSV file")
parser.add_argument("--kernel", type=int, default=0, help="plan.kernel of our calls; 0: the library's choice")
parser.add_argument("--group", type=int, default=-1, help="group size of the schedule that is attached; 0: none, -1: by block")
parser.add_argument("--blocks", default="16,32,64,128")
parser.add_argument("--sparsities", default="0.5,0.8,0.95")
parser.add_argument("--search", type=int, default=1, help="Triton's parameters; 0: its defaults only, 1: recorded, 2: search")
parser.add_argument("--precompile", type=float, default=60, help="seconds at most for compiling Triton's kernels on all cores")
parser.add_argument("--compile", default="", help=argparse.SUPPRESS)
args = parser.parse_args()
if not os.path.exists(args.lib):
    sys.exit(f"{args.lib} is not there: make build/gpu/libbsrsparse.so")
try:
    import torch
except ImportError:
    sys.exit("PyTorch is absent: build and run build/gpu/bench_gpu instead (make gpu-bench does so)")
if not torch.cuda.is_available():
    sys.exit("there is no GPU")
import torch.nn.functional as F

sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import bridge

try:
    from torch.sparse import _triton_ops as T
except ImportError:
    T = None
start = time.time()
dev, bf16 = "cuda", torch.bfloat16
blocks_wanted = [int(x) for x in args.blocks.split(",")]
sparsities_wanted = [float(x) for x in args.sparsities.split(",")]


# ---- data ----

def make_bsr(M, K, b, s, dtype, batch=()):
    """A BSR tensor with exactly round((1 - s) blocks) blocks in random places; batch items share the pattern."""
    return from_mask(random_mask(M // b, K // b, stored(M // b, K // b, s)), b, dtype, batch)


def stored(rows, cols, s):
    return max(1, round(rows * cols * (1 - s)))


def random_mask(rows, cols, nnz):
    mask = torch.zeros(rows * cols, dtype=torch.bool)
    mask[torch.randperm(rows * cols, generator=torch.Generator().manual_seed(rows * cols + nnz))[:nnz]] = True
    return mask.view(rows, cols)


def structured_masks(n, s):
    """n x n blocks, about (1 - s) of them stored."""
    i, j, generator = torch.arange(n)[:, None], torch.arange(n)[None], torch.Generator().manual_seed(n)
    share = (1 - s) * n
    order = torch.rand(n, n, generator=generator).argsort(1).argsort(1)  # each row's columns in a random order
    lengths = (1 + torch.arange(n, dtype=torch.float64)) ** -0.7
    lengths = (lengths * (share * n / lengths.sum())).clamp(max=n).round()[torch.randperm(n, generator=generator)]
    return {
        "banded": (i - j).abs() <= share / 2,
        "block-diagonal": i * round(1 / (1 - s)) // n == j * round(1 / (1 - s)) // n,
        "BigBird": ((i - j).abs() <= 1) | (i < 1) | (j < 1) | (order < share - 4),
        "power-law rows": order < lengths[:, None],
        "empty rows": (order < 2 * share) & (i % 2 == 0),
    }


def from_mask(mask, b, dtype, batch=()):
    rows, cols = mask.shape
    crow = torch.zeros(rows + 1, dtype=torch.int64)
    crow[1:] = mask.sum(1).cumsum(0)
    col, nnz = mask.nonzero()[:, 1].contiguous(), int(mask.sum())
    values = random(batch + (nnz, b, b), dtype)
    crow, col = (x.to(dev, torch.int32).expand(batch + x.shape).contiguous() for x in (crow, col))
    return torch.sparse_bsr_tensor(crow, col, values, batch + (rows * b, cols * b), check_invariants=False)


def like(bsr, values):
    """Other values in the same pattern, with indices of its own."""
    crow, col = bsr.crow_indices().clone(), bsr.col_indices().clone()
    return torch.sparse_bsr_tensor(crow, col, values, bsr.shape, check_invariants=False)


def random(shape, dtype, columns=False):
    if columns:
        return random(shape[:-2] + (shape[-1], shape[-2]), dtype).transpose(-1, -2)
    if dtype == torch.int8:
        return torch.randint(-8, 8, shape, device=dev, dtype=dtype)
    return torch.randn(shape, device=dev).to(dtype)


def empty(shape, dtype, columns=False):
    t = torch.empty(shape[::-1] if columns else shape, device=dev, dtype=dtype)
    return t.t() if columns else t


# ---- timing ----

def event_ms(f, calls):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(calls):
        f()
    b.record()
    b.synchronize()
    return a.elapsed_time(b) / calls


def captured(f, calls):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            f()
    return graph


def timed(f, target=4.0, repeats=7):
    """Median milliseconds of f() from replays of a graph that holds some `target` milliseconds of calls."""
    f(), f()
    torch.cuda.synchronize()
    once = min(event_ms(f, 1), event_ms(f, 2))
    calls = int(min(200, max(1, target / max(once, 1e-3))))
    try:
        graph = captured(f, calls)
    except Exception:
        torch.cuda.synchronize()
        return sorted(event_ms(f, calls) for _ in range(repeats))[repeats // 2]  # can't be captured: events
    graph.replay()
    times = sorted(event_ms(graph.replay, 1) / calls for _ in range(repeats))
    del graph
    return times[repeats // 2]


def warmed(f, warm_ms=250, ms=60):
    """Milliseconds of f() once the GPU has run nothing else for warm_ms: where it is bound by power, its clock has fallen."""
    f(), f()
    torch.cuda.synchronize()
    calls = max(1, round(4 / event_ms(f, 3)))  # a graph of 4 ms
    graph = captured(f, calls)
    event_ms(graph.replay, max(1, round(warm_ms / 4)))
    return event_ms(graph.replay, max(1, round(ms / 4))) / calls


def error(got, want):
    e = ((got.double() - want).norm() / want.norm()).item()
    return e if e == e else math.inf


# ---- results ----

FIELDS = "section case dtype block sparsity layout ours_ms ours_rate ours_err peer peer_ms peer_rate peer_err ratio note".split()
table, skipped = [], []


def add(section, case, ours, peers, rate=None, unit="TFLOP/s", **key):
    """ours: (ms, error); peers: {name: (ms, error)}; rate: what a millisecond counts."""
    per = lambda ms: f"{rate / ms:.2f}" if rate and ms else ""
    lines = list(peers.items()) or [("", (None, None))]
    for name, (ms, err) in lines:
        r = dict(key, section=section, case=case, ours_ms=f"{ours[0]:.5f}", ours_rate=per(ours[0]), ours_err=number(ours[1]),
                 peer=name, peer_ms=f"{ms:.5f}" if ms else "", peer_rate=per(ms), peer_err=number(err),
                 ratio=f"{ms / ours[0]:.3f}" if ms else "")
        r.setdefault("note", "" if unit == "TFLOP/s" else unit)
        table.append(r)
        print("{section:9} {case:26} {dtype:8} b{block:<4} s{sparsity:<5} {layout:3} ours {ours_ms:>9} ms {ours_rate:>8} "
              "err {ours_err:8} | {peer:22} {peer_ms:>9} ms {peer_rate:>8} err {peer_err:8} x{ratio} {note}".format(
                  **{k: r.get(k, "") for k in FIELDS}), flush=True)


def number(x):
    return "" if x is None else f"{x:.2e}"


def attempt(label, f):
    """Runs a part of the benchmark; what fails is listed, not fatal."""
    if time.time() - start > args.seconds:
        skipped.append(f"{label}: no time left")
        return None
    try:
        return f()
    except Exception as e:  # a refused call of ours, a peer's limit
        torch.cuda.synchronize()
        skipped.append(f"{label}: {type(e).__name__}: {str(e).splitlines()[0][:160] if str(e) else ''}")
        print("skip", skipped[-1], flush=True)
        return None


# ---- Triton's parameters ----

GRID = [(t, w, s) for t in (64, 128, 256) for w, s in ((2, 2), (2, 4), (4, 1), (4, 2), (4, 3), (4, 4), (8, 2), (8, 3), (8, 4))]


def triton_key(b, columns):
    return f"{b} {'col' if columns else 'row'}"


def grid(b):
    return [g for g in GRID if b * g[0] <= 128 * 256 and not (b == 16 and g[1] == 8) and not (b >= 128 and g[1] == 2)]


def meta(N, g):
    return dict(GROUP_SIZE_ROW=4, SPLIT_N=max(1, N // g[0]), num_warps=g[1], num_stages=g[2])


def triton_call(bsr, d, o, meta=None):
    f = T._int_bsr_dense_addmm if d.dtype == torch.int8 else T.bsr_dense_addmm
    return lambda: f(o, bsr, d, beta=0, alpha=1, out=o, meta=meta)


best = {}  # "block layout" -> the fastest of the grid, in order
# Fastest where there is little to do: of 72 shapes of PyTorch's table and 110 layers, all of the grid tried for each.
MORE = {16: [(256, 2, 2), (64, 2, 2), (64, 4, 2)], 32: [(64, 2, 2), (64, 2, 4), (128, 2, 2), (128, 4, 2)],
        64: [(128, 4, 2), (64, 4, 2)], 128: [(64, 4, 2), (64, 4, 3), (128, 4, 1)]}


def tried(b, columns):
    """What a search tries: of a block size and layout that was searched before the best five and those for little work."""
    found = best.get(triton_key(b, columns))
    return found + [g for g in MORE.get(b, []) if g not in found] if found else grid(b)


def record():
    return os.path.join(args.out, gpu_name() + "_triton.json")


def known():
    """The fastest settings of an earlier run."""
    for folder in (args.out, os.path.join(HERE, "results")):
        path = os.path.join(folder, gpu_name() + "_triton.json")
        if args.search == 1 and os.path.exists(path):
            with open(path) as f:
                best.update({k: [tuple(g) for g in v] for k, v in json.load(f).items()})
            break


def triton_products():
    """What the wanted sections compute with Triton: M, K, N, block, sparsity, type, columns, settings (None: the default)."""
    cases = dict(
        product=[(4096, 4096, 4096, b, s, bf16, c) for b in blocks_wanted for s in sparsities_wanted for c in (False, True)],
        skinny=[(M, K, max(N, 16), b, s, bf16, False) for M, K, N, b, s in SKINNY],
        dtypes=[(4096, 4096, 4096, b, s, dtype, columns) for b, s, dtype, columns, _, _ in other_types()],
        layers=[layer[:5] + (bf16, by_columns(*layer[:3])) for layer in LAYERS],
        grid=[(M, M, N, b, 0.5, bf16, False) for M, N in TUNED for b in blocks_wanted])
    for section in args.sections.split(","):
        for case in cases.get(section, ()):
            N, b, columns = case[2], case[3], case[6]
            found = tried(b, columns) if section == "product" or triton_key(b, columns) in best else MORE.get(b, [])
            searched = [meta(N, g) for g in found] if args.search and case[5] == bf16 and section != "skinny" else []
            yield case + ([None] + ([FOUR_STAGES] if section == "skinny" else searched),)


def precompile():
    """Other processes, one a core, fill the compilers' caches on disk first: then the search only measures."""
    known()
    workers = min(16, os.cpu_count() or 1)
    if T is None or not args.precompile or not ("attention" in args.sections or any(triton_products())):
        return
    work = [subprocess.Popen([sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + ["--compile", f"{i}/{workers}"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(workers)]
    began = time.time()
    for w in work:
        try:
            w.wait(timeout=max(0.1, began + args.precompile - time.time()))
        except subprocess.TimeoutExpired:
            w.kill()  # what it has compiled stays
            w.wait()
    print(f"Triton's kernels compiled: {time.time() - began:.0f} s", flush=True)


def compile_only(i, n):
    """Share i of n of what there is to compile; nothing of it runs, but flex_attention."""
    known()
    from triton.runtime.jit import JITFunction
    run = JITFunction.run
    for k, case in enumerate(ATTENTION if "attention" in args.sections else ()):
        if k % n == i:
            attempt("flex_attention", lambda: flex(*attention_operands(*case))())
    JITFunction.run = lambda self, *given, **more: run(self, *given, **dict(more, warmup=True))
    work = [(case[:-1], m) for case in triton_products() for m in case[-1]]
    for (M, K, N, b, s, dtype, columns), m in work[i::n]:
        def compile_():
            nnz, out = stored(M // b, K // b, s), torch.int32 if dtype == torch.int8 else dtype
            crow, col = (torch.empty(count, device=dev, dtype=torch.int32) for count in (M // b + 1, nnz))
            bsr = torch.sparse_bsr_tensor(crow, col, torch.empty((nnz, b, b), device=dev, dtype=dtype), (M, K),
                                          check_invariants=False)
            triton_call(bsr, empty((K, N), dtype, columns), empty((M, N), out, columns), m)()
        attempt("to compile", compile_)


def search(bsr, d, o, b, columns, seconds=12.0):
    """The fastest parameters: the default's (None), or of the whole grid where nothing is known of this block size and layout,
    else of its best five and those for little work."""
    key, found, until = triton_key(b, columns), [], time.time() + seconds
    for g in [None] + tried(b, columns):
        if time.time() > until:
            break
        try:
            f = triton_call(bsr, d, o, meta(d.shape[-1], g) if g else None)
            f()
            found.append((timed(f, target=1.0, repeats=3), g))
        except Exception:
            continue
    found.sort(key=lambda x: x[0])
    if key not in best and found:
        best[key] = [g for _, g in found if g][:5]
        with open(record(), "w") as f:
            json.dump(best, f, indent=1)
    return meta(d.shape[-1], found[0][1]) if found and found[0][1] else None


# ---- sections ----

def prepared(lib, m, b):
    """The schedule that suits the block size: block rows that share a tile of 128 rows."""
    group = args.group if args.group >= 0 else max(1, 128 // b)
    return [lib.schedule(m, group)] if group and lib.supports("schedule") else []


def ours_alone(lib, bsr, b, d, o, exec_flags=0, clock=timed):
    m, dd, od = bridge.matrix(bsr), bridge.dense(d), bridge.dense(o)
    keep = prepared(lib, m, b)  # as long as it is timed
    return clock(lambda: lib.addmm(m, dd, od, exec=lib.exec(exec_flags)))


def product(lib, M, K, N, b, s, dtype, columns, out_dtype=None, exec_flags=0, note="", section="product", triton=True,
            mask=None, case=None):
    out_dtype = out_dtype or (torch.int32 if dtype == torch.int8 else dtype)
    bsr = make_bsr(M, K, b, s, dtype) if mask is None else from_mask(mask, b, dtype)
    d = random((K, N), dtype, columns)
    o, peer_out = empty((M, N), out_dtype, columns), empty((M, N), out_dtype, columns)
    picked = torch.randperm(M, device=dev)[:128]
    dense = torch.sparse_bsr_tensor(bsr.crow_indices(), bsr.col_indices(), bsr.values().float(), (M, K)).to_dense().to(dtype)
    want = dense[picked].double() @ d.double()
    o.fill_(77)
    ours = (ours_alone(lib, bsr, b, d, o, exec_flags), error(o[picked], want))
    peers = {}
    if T is not None and triton:
        def default():
            peers["triton default"] = timed(triton_call(bsr, d, peer_out)), error(peer_out[picked], want)

        def searched():
            fastest = triton_call(bsr, d, peer_out, search(bsr, d, peer_out, b, columns))
            peers["triton searched"] = timed(fastest), error(peer_out[picked], want)
        attempt(f"triton {dtype} b{b}", default)
        if args.search and dtype == bf16:
            attempt(f"triton search b{b}", searched)
    if section == "patterns":  # beside as many blocks in random places
        twin = from_mask(random_mask(M // b, K // b, int(mask.sum())), b, dtype)
        peers["ours, random pattern"] = ours_alone(lib, twin, b, d, o), None
    elif dtype == torch.int8:
        attempt("torch._int_mm", lambda: peers.update({"dense _int_mm": (timed(lambda: torch._int_mm(dense, d)), None)}))
    else:
        peers["dense matmul"] = timed(lambda: torch.matmul(dense, d)), error(torch.matmul(dense, d)[picked], want)
    add(section, case or f"{M}x{K}x{N}", ours, peers, 2 * bsr.values().numel() * N / 1e9, dtype=str(dtype)[6:], block=b,
        sparsity=s, layout="col" if columns else "row", note=note)


def section_product(lib):
    for b, columns in [(b, c) for b in blocks_wanted for c in (False, True)]:
        for s in sparsities_wanted:
            attempt(f"product b{b} s{s}", lambda: product(lib, 4096, 4096, 4096, b, s, bf16, columns))


def section_sustained(lib):
    """The product and cuBLAS's dense one (of the same matrix) in turn, each after a quarter of a second of its own."""
    cases = [(4096, 128, 0.0)] + [(n, b, s) for n in (4096, 8192) for b in blocks_wanted for s in sparsities_wanted]
    for n, b, s in cases:  # the first: what cuBLAS does without zeros, which take less power
        def case():
            bsr, d, o = make_bsr(n, n, b, s, bf16), random((n, n), bf16), empty((n, n), bf16)
            dense = bsr.to_dense()
            peer = warmed(lambda: torch.matmul(dense, d, out=o))
            want, picked = dense[:128].double() @ d.double(), o[:128].clone()
            o.fill_(77)
            ours = ours_alone(lib, bsr, b, d, o, clock=warmed)
            add("sustained", f"{n}x{n}x{n}", (ours, error(o[:128], want)), {"dense matmul": (peer, error(picked, want))},
                2 * bsr.values().numel() * n / 1e9, dtype="bfloat16", block=b, sparsity=s, layout="row")
        attempt(f"sustained {n} b{b} s{s}", case)


LAYERS = (  # M, K, N, block, sparsity: BERT-large, ViT-B, ViT-H, Llama-3.1-8B, Qwen2.5-7B, Llama-3.2-1B, large, short and wide
    (4096, 1024, 16384, 64, 0.9), (1024, 4096, 16384, 32, 0.8), (3072, 768, 50432, 64, 0.8), (768, 3072, 50432, 64, 0.9),
    (768, 3072, 50432, 16, 0.9), (5120, 1280, 65792, 32, 0.8), (14336, 4096, 64, 64, 0.9), (14336, 4096, 256, 64, 0.9),
    (4096, 14336, 2048, 64, 0.9), (14336, 4096, 8192, 64, 0.9), (18944, 3584, 8192, 64, 0.9), (8192, 2048, 2048, 32, 0.95),
    (8192, 2048, 2048, 128, 0.9), (16384, 16384, 4096, 64, 0.9), (4096, 16384, 512, 64, 0.8), (1024, 1024, 1024, 64, 0.9),
    (1024, 1024, 1024, 16, 0.8), (8192, 8192, 8192, 128, 0.8), (8192, 8192, 8192, 64, 0.8), (8192, 8192, 8192, 32, 0.8),
    (8192, 8192, 8192, 16, 0.8))


def by_columns(M, K, N):
    return M != N and M != K  # activations come column-major from a linear layer


def section_layers(lib):
    for M, K, N, b, s in LAYERS:
        columns = by_columns(M, K, N)
        attempt(f"layer {M}x{K}x{N}", lambda: product(lib, M, K, N, b, s, bf16, columns, section="layers"))


def section_breakeven(lib):
    """The sparsity from which the product beats the dense one, between measured points."""
    for b in blocks_wanted:
        before = None
        for s in {128: (0.0, 0.05, 0.1, 0.15), 64: (0.05, 0.1, 0.15, 0.2), 32: (0.2, 0.3, 0.4), 16: (0.4, 0.5, 0.6, 0.7)}[b]:
            attempt(f"break-even b{b}", lambda: product(lib, 4096, 4096, 4096, b, s, bf16, False, section="breakeven",
                                                        triton=False))
            row = table[-1]
            if row["section"] != "breakeven" or row["sparsity"] != s:
                break
            ratio = float(row["ratio"])
            if ratio >= 1:
                at = s if before is None else before[0] + (s - before[0]) * (1 - before[1]) / (ratio - before[1])
                row["note"] = f"level with the dense product at s = {at:.2f}" + (" or before" if before is None else "")
                print(row["note"], flush=True)
                break
            before = s, ratio


def section_patterns(lib):
    for b in blocks_wanted:
        for name, mask in structured_masks(4096 // b, 0.8).items():
            attempt(f"{name} b{b}", lambda: product(lib, 4096, 4096, 4096, b, round(1 - mask.double().mean().item(), 3), bf16,
                                                    False, section="patterns", triton=False, mask=mask, case=name))


TUNED = (  # of PyTorch's tuning grid: M = K, N; all half full
    (256, 256), (256, 4096), (256, 65536), (512, 2048), (1024, 1024), (1024, 16384), (2048, 512), (2048, 8192), (4096, 256),
    (4096, 16384), (8192, 2048), (16384, 1024))


def section_grid(lib):
    for M, N in TUNED:
        for b in blocks_wanted:
            attempt(f"grid {M}x{M}x{N} b{b}", lambda: product(lib, M, M, N, b, 0.5, bf16, False, section="grid"))


def other_types():
    """Block, sparsity, type, columns, flags, note."""
    f16 = [(b, s, torch.float16, False, 0, "") for b in blocks_wanted for s in sparsities_wanted]
    f32 = [(b, s, torch.float32, tf32, bridge.TF32 * tf32, "ours TF32" * tf32)
           for b, s in ((32, 0.5), (64, 0.8), (128, 0.5)) for tf32 in (False, True)]
    return f16 + f32 + [(b, s, torch.int8, True, 0, "") for b, s in ((32, 0.5), (64, 0.5), (64, 0.8), (128, 0.5), (128, 0.8))]


def section_dtypes(lib):
    for b, s, dtype, columns, flags, note in other_types():
        attempt(f"{dtype} b{b} {note}",
                lambda: product(lib, 4096, 4096, 4096, b, s, dtype, columns, exec_flags=flags, note=note))


SKINNY = [(M, K, N, 64, 0.9) for M, K in ((14336, 4096), (4096, 14336)) for N in (1, 8, 16, 32, 64)]
FOUR_STAGES = dict(GROUP_SIZE_ROW=4, SPLIT_N=1, num_stages=4, num_warps=4)


def skinny(lib, M, K, N, b, s, copy_rate, copies=16):
    """Weights cold: `copies` sets of them in turn, several times the L2 cache."""
    first = make_bsr(M, K, b, s, bf16)
    sets = [first] + [like(first, random(first.values().shape, bf16)) for _ in range(copies - 1)]
    wide = max(N, 16)
    d = random((K, N), bf16)
    d16 = F.pad(d, (0, wide - N))
    o, o16 = empty((M, N), bf16), empty((M, wide), bf16)
    ms, dd, od = [bridge.matrix(x) for x in sets], bridge.dense(d), bridge.dense(o)
    keep = [prepared(lib, m, b) for m in ms]
    weights = [x.to_dense() for x in sets[:4]]
    want = weights[0].double() @ d.double()

    def ours(flags=0):
        for m in ms:
            lib.addmm(m, dd, od, exec=lib.exec(flags))

    def triton(meta):
        for x in sets:
            T.bsr_dense_addmm(o16, x, d16, beta=0, alpha=1, out=o16, meta=meta)

    def dense():
        for w in weights:
            torch.matmul(w, d, out=o)
    t, vouched = timed(ours, repeats=5) / copies, timed(lambda: ours(bridge.CONSTANT_MATRIX), repeats=5) / copies
    o.fill_(77)
    lib.addmm(ms[0], dd, od)
    mine = (t, error(o, want))
    peers = {}
    if T is not None:
        for name, meta in (("triton default", None), ("triton 4 stages", FOUR_STAGES)):
            def peer():
                peers[name] = (timed(lambda: triton(meta), repeats=5) / copies, None)
            attempt(f"skinny {name}", peer)
    peers["dense matmul"] = timed(dense, repeats=5) / len(weights), error(torch.matmul(weights[0], d), want)
    moved = first.values().numel() * 2
    add("skinny", f"{M}x{K}x{N}", mine, peers, 2 * first.values().numel() * N / 1e9, dtype="bfloat16", block=b, sparsity=s,
        layout="row", note=f"values {moved / t / 1e9:.2f} TB/s, {100 * moved / t / 1e9 / copy_rate:.0f}% of copy; vouched for "
        f"{1e3 * vouched:.2f} us, {100 * moved / vouched / 1e9 / copy_rate:.0f}%; Triton N>=16")


def section_skinny(lib):
    for M, K, N, b, s in SKINNY:
        attempt(f"skinny {M}x{K}x{N}", lambda: skinny(lib, M, K, N, b, s, rates["copy"]))


def sampled(lib, n, b, s, dtype=bf16):
    """f16 without Triton: it is there to be as fast as bf16."""
    bsr, x, y = make_bsr(n, n, b, s, dtype), random((n, n), dtype), random((n, n), dtype)
    m, xd, yd = bridge.matrix(bsr), bridge.dense(x), bridge.dense(y)
    rows = torch.repeat_interleave(torch.arange(n // b, device=dev), bsr.crow_indices().diff())
    some = torch.randperm(rows.numel(), device=dev)[:64]
    want = torch.stack([x[r * b:(r + 1) * b].double() @ y[:, c * b:(c + 1) * b].double()
                        for r, c in zip(rows[some].tolist(), bsr.col_indices()[some].tolist())])
    ours_ms = timed(lambda: lib.sampled(xd, yd, m))
    ours = (ours_ms, error(bsr.values()[some], want))
    peers = {}
    if T is not None and dtype == bf16:
        def peer():
            f = lambda: T.sampled_addmm(bsr, x, y, beta=0.0, skip_checks=True)
            peers["triton"] = timed(f), error(f().values()[some], want)
        attempt(f"triton sampled b{b}", peer)
    peers["dense matmul"] = timed(lambda: torch.matmul(x, y)), None
    add("sampled", f"{n}x{n}x{n}", ours, peers, 2 * bsr.values().numel() * n / 1e9, dtype=str(dtype)[6:], block=b, sparsity=s,
        layout="row")


def section_sampled(lib):
    for dtype in (bf16, torch.float16):
        for b in blocks_wanted:
            for s in (0.5, 0.8):
                attempt(f"sampled b{b} s{s} {dtype}", lambda: sampled(lib, 4096, b, s, dtype))


def softmax(lib, b, s, n=4096, batch=16):
    x = make_bsr(n, n, b, s, bf16, (batch,))
    y, dx = like(x, torch.empty_like(x.values())), like(x, torch.empty_like(x.values()))
    dy = like(x, random(x.values().shape, bf16))
    xm, ym, dym, dxm = (bridge.matrix(t) for t in (x, y, dy, dx))
    first = torch.sparse_bsr_tensor(x.crow_indices()[0], x.col_indices()[0], x.values()[0].float() + 100, (n, n)).to_dense()[:128]
    want = torch.softmax(torch.where(first == 0, -math.inf, first).double(), -1)  # a stored element is never 0 after + 100
    back = lambda v: torch.sparse_bsr_tensor(x.crow_indices()[0], x.col_indices()[0], v[0], (n, n)).to_dense()[:128]
    count, elements = x.values().numel() * 2 / 1e9, x.values().numel()
    ms = timed(lambda: lib.softmax(xm, ym))
    peers = {}
    if T is not None:
        def peer():
            peers["triton"] = timed(lambda: T.bsr_softmax(x)), error(back(T.bsr_softmax(x).values()), want)
        attempt(f"triton softmax b{b}", peer)
    share = lambda ms, passes: f"GB/s; {100 * passes * count / ms / rates['copy']:.0f}% of copy"
    add("softmax", f"{batch} x {n}x{n}", (ms, error(back(y.values()), want)), peers, 2 * count * 1e3, "GB/s", dtype="bfloat16",
        block=b, sparsity=s, layout="", note=share(ms, 2))

    def backward():
        t = timed(lambda: lib.softmax_backward(ym, dym, dxm))
        yv, g = back(y.values()).double(), back(dy.values()).double()
        grad = yv * (g - (yv * g).sum(-1, keepdim=True))
        add("softmax", "backward", (t, error(back(dx.values()), grad)), {}, 3 * count * 1e3, "GB/s",
            dtype="bfloat16", block=b, sparsity=s, layout="", note=share(t, 3))
    attempt(f"softmax backward b{b}", backward)


def section_softmax(lib):
    for b in blocks_wanted:
        attempt(f"softmax b{b}", lambda: softmax(lib, b, 0.75))


def attention_operands(B, H, S, D, b, s, dtype=bf16):
    nb = S // b
    generator = torch.Generator().manual_seed(nb)
    blocks = (torch.rand(nb, nb, generator=generator) >= s) | torch.eye(nb, dtype=torch.bool)
    return [random((B, H, S, D), dtype) for _ in range(3)] + [blocks, b]


def flex(q, k, v, blocks, b):
    from torch.nn.attention.flex_attention import BlockMask, flex_attention
    flat, nb = blocks.to(dev), blocks.shape[0]
    bm = BlockMask.from_kv_blocks(
        kv_num_blocks=torch.zeros(1, 1, nb, dtype=torch.int32, device=dev),
        kv_indices=torch.zeros(1, 1, nb, nb, dtype=torch.int32, device=dev),
        full_kv_num_blocks=flat.sum(-1).to(torch.int32)[None, None],
        full_kv_indices=torch.argsort(flat.int(), dim=-1, descending=True, stable=True).to(torch.int32)[None, None],
        BLOCK_SIZE=b)
    options = {} if b >= 128 else {"kernel_options": {"BLOCK_M": b, "BLOCK_N": b}}
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, k, v, block_mask=bm, **options)


def attention(lib, B, H, S, D, b, s, dtype=bf16):
    """f16 without sparse peers: it is there to be as fast as bf16."""
    q, k, v, blocks, _ = operands = attention_operands(B, H, S, D, b, s, dtype)
    out = torch.full_like(q, 77)
    mask = from_mask(blocks, b, dtype)
    qd, kd, vd, od, md = bridge.dense(q), bridge.dense(k), bridge.dense(v), bridge.dense(out), bridge.matrix(mask)
    rows = slice(0, 4 * b)
    allowed = blocks.repeat_interleave(b, 0).repeat_interleave(b, 1)[rows].to(dev)
    scores = q[0, 0, rows].double() @ k[0, 0].double().t() / math.sqrt(D)
    want = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1) @ v[0, 0].double()
    ms = timed(lambda: lib.attention(qd, kd, vd, md, od))
    ours = (ms, error(out[0, 0, rows], want))
    peers = {"dense SDPA": (timed(lambda: F.scaled_dot_product_attention(q, k, v)), None)}

    def flexible():
        f = flex(*operands)
        peers["flex_attention"] = timed(f), error(f()[0, 0, rows], want)

    def bsr():
        wide = from_mask(blocks, b, bf16, (B, H))
        f = lambda: T._scaled_dot_product_attention(q, k, v, attn_mask=wide)
        peers["triton BSR SDPA"] = timed(f, repeats=5), error(f()[0, 0, rows], want)
    if dtype == bf16:
        attempt(f"flex_attention b{b} D{D}", flexible)
    if dtype == bf16 and T is not None:
        attempt(f"triton BSR SDPA b{b} D{D}", bsr)
    add("attention", f"B{B} H{H} S{S} D{D}", ours, peers, 4 * B * H * D * int(blocks.sum()) * b * b / 1e9, dtype=str(dtype)[6:],
        block=b, sparsity=round(1 - blocks.float().mean().item(), 3), layout="row")


ATTENTION = ((2, 16, 4096, 64, 128, 0.75), (2, 16, 4096, 128, 128, 0.75), (2, 16, 4096, 128, 64, 0.75),
             (1, 16, 8192, 128, 128, 0.9), (1, 8, 4096, 64, 32, 0.9))


def section_attention(lib):
    for case in ATTENTION:
        attempt("attention B%d H%d S%d D%d b%d s%.2f" % case, lambda: attention(lib, *case))
    for case in ATTENTION[:2]:
        attempt("attention f16 B%d H%d S%d D%d b%d s%.2f" % case, lambda: attention(lib, *case, dtype=torch.float16))


def section_views(lib):
    """Transposed index and schedules, built on the device."""
    def view(name, rows, cols, nnz, group, transposed):
        mask = torch.zeros(rows * cols, dtype=torch.bool)
        mask[torch.randperm(rows * cols)[:nnz]] = True
        bsr = from_mask(mask.view(rows, cols), 1, torch.int8)
        m = bridge.matrix(bsr)
        build = (lambda: lib.schedule(m, group, 0)) if group else (lambda: lib.transposed_index(m))
        add("views", f"{name}, {rows} rows {nnz}", (timed(build), None), {}, dtype="", block="", sparsity="", layout="")
    attempt("transposed index", lambda: view("transposed index", 4096, 4096, 1000000, 0, 0))
    attempt("schedule", lambda: view("schedule", 4096, 4096, 1000000, 1, 0))
    attempt("pairing 64", lambda: view("pairing", 64, 64, 2048, 2, 0))
    attempt("pairing 256", lambda: view("pairing", 256, 256, 32768, 2, 0))


def section_host(lib):
    def host():
        bsr, d, o = make_bsr(256, 256, 64, 0.5, bf16), random((256, 256), bf16), empty((256, 256), bf16)
        m, dd, od, e = bridge.matrix(bsr), bridge.dense(d), bridge.dense(o), lib.exec()
        lib.addmm(m, dd, od)
        torch.cuda.synchronize()
        ours = min(lib.lib.bench_host_us(lib.ctx, m, dd, od, e, 1000) for _ in range(5))
        torch.cuda.synchronize()

        def loop(f, n):
            f()
            torch.cuda.synchronize()
            best = math.inf
            for _ in range(5):
                t = time.perf_counter()
                for _ in range(n):
                    f()
                best = min(best, (time.perf_counter() - t) / n * 1e6)
                torch.cuda.synchronize()
            return best
        peers = {CTYPES: (loop(lambda: lib.addmm(m, dd, od, exec=e), 1000) / 1e3, None)}
        if T is not None:
            peers["triton"] = loop(triton_call(bsr, d, o), 200) / 1e3, None
        add("host", "256x256x256, from C", (ours / 1e3, None), peers, dtype="bfloat16", block=64, sparsity=0.5, layout="row",
            note=f"{ours:.2f} us of host time a call")
    attempt("host", host)


rates = {"copy": 4.25}  # TB/s, read and written; measured first
CTYPES = "ours through ctypes"


def section_copy(lib):
    x = torch.empty(1 << 30, dtype=torch.int8, device=dev)
    y = torch.empty_like(x)
    ms = sorted(event_ms(lambda: y.copy_(x), 10) for _ in range(7))[3]  # a graph's copy node takes another, slower path
    rates["copy"] = 2 * x.numel() / ms / 1e9
    print(f"copy: {rates['copy']:.2f} TB/s", flush=True)


# ---- the whole ----

def belongs_to():
    """Which sources and code a record is of."""
    return subprocess.run(["sh", "tests/record.sh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def gpu_name():
    return torch.cuda.get_device_name().lower().replace("nvidia ", "").replace(" ", "_")


def geomean(rows):
    ratios = [float(r["ratio"]) for r in rows if r["ratio"]]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main():
    if args.compile:
        return compile_only(*(int(x) for x in args.compile.split("/")))
    torch.manual_seed(0)
    lib = bridge.Library(args.lib, args.kernel)
    gpu = torch.cuda.get_device_name()
    import triton
    versions = f"{gpu}, PyTorch {torch.__version__}, Triton {triton.__version__}, CUDA {torch.version.cuda}"
    print(versions, flush=True)
    watch = threading.Timer(args.seconds + 60, hung, (gpu, versions))
    watch.daemon = True
    watch.start()
    precompile()
    for name in SECTIONS:
        if name in args.sections.split(","):
            globals()["section_" + name](lib)
            torch.cuda.empty_cache()
    return report(gpu, versions)


def hung(gpu, versions):
    """A kernel that does not end must not take the results with it."""
    print(f"no end after {time.time() - start:.0f} s, the last case hangs:", flush=True)
    report(gpu, versions)
    sys.stdout.flush()
    os._exit(1)


def report(gpu, versions):
    means = []
    for section in SECTIONS:
        for peer in sorted({r["peer"] for r in table if r["section"] == section and r["ratio"] and r["peer"] != CTYPES}):
            rows = [r for r in table if r["section"] == section and r["peer"] == peer]
            means.append((section, peer, len(rows), geomean(rows)))
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, gpu_name() + "_bench.csv")
    with open(path, "w", newline="") as f:
        f.write(f"# {belongs_to()}\n# {versions}; copy {rates['copy']:.2f} TB/s\n")
        w = csv.DictWriter(f, FIELDS, restval="")
        w.writeheader()
        w.writerows(table)
        for section, peer, n, mean in means:
            w.writerow(dict(section=section, case="geometric mean", peer=peer, ratio=f"{mean:.3f}", note=f"{n} cases"))
    print()
    for section, peer, n, mean in means:
        print(f"{section:10} x{mean:8.3f} of {peer} ({n} cases)")
    for line in skipped:
        print("skipped:", line)
    sparse = [r for r in table if r["ratio"] and "dense" not in r["peer"] and r["peer"] != CTYPES]
    print(f"{path}: {len(table)} lines, {len(skipped)} skipped, {time.time() - start:.0f} s; "
          f"geometric mean against the sparse peers x{geomean(sparse):.3f}")
    return 0 if table else 1


sys.exit(main())
