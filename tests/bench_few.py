"""Products with few columns beside MKL, SciPy, a naive C loop and a read of as many bytes; part of `make bench`.

bench_few.py LIBRARY [--threads N] [--seconds S] [--only WORD]: LIBRARY is tests/bench_few.c compiled. MKL is measured where
libmkl_rt is found (PyPI: mkl; MKL_RT=path). All sides run in turns in one process; a figure is the median of many short runs.
Targets, of the peer's time over ours: 1 beside MKL, SciPy and the naive loop; .85 of a read where values are beyond the cache;
A over A^T with its index 1 / 1.3."""
import argparse
import ctypes as C
import glob
import os
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
import numpy as np
import scipy
import scipy.sparse as sparse

i32, i64, u32, ptr, f64 = C.c_int32, C.c_int64, C.c_uint32, C.c_void_p, C.c_double


def struct(name, *fields):
    return type(name, (C.Structure,), {"_fields_": [(n, t) for t, names in fields for n in names.split()]})


Dense = struct("bsr_dense", (ptr, "data"), (i32, "dtype batch_dims"), (i64, "rows cols row_stride col_stride"),
               (i64 * 4, "batch batch_stride"))
Matrix = struct("bsr_matrix", (ptr, "crow_indices col_indices values"), (i32, "dtype index_dtype"),
                (i64, "rows cols block_rows block_cols nnz"), (i64 * 3, "value_strides"), (u32, "flags"), (i32, "batch_dims"),
                (i64 * 4, "batch crow_batch_stride col_batch_stride values_batch_stride"), (ptr, "transposed_index schedule"))
DTYPE = {"f16": 1, "bf16": 2, "f32": 3, "f64": 4, "i8": 5, "i32": 6}
BEYOND_CACHE = 48 << 20  # bytes: values that no cache of common machines holds
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": np.uint16, "i8": np.int8, "i32": np.int32}


reached = targets = 0


def judge(ratio, target):
    """A ratio beside what it must reach; counted."""
    global reached, targets
    good = ratio >= target
    targets, reached = targets + 1, reached + good
    return f"{ratio:5.2f} (target {target:.2f}: {'pass' if good else 'fail'})"


CLOCK = time.perf_counter  # one thread: its own time, without what other programs take of the processor


def mesh(n):
    """The pattern of a 27-point stencil on a grid of n^3 nodes: (3 n - 2)^3 entries."""
    one = sparse.diags([np.ones(n - 1), np.ones(n), np.ones(n - 1)], [-1, 0, 1], format="csr")
    a = sparse.csr_matrix(sparse.kron(sparse.kron(one, one), one))
    a.sort_indices()
    return a.indptr.astype(np.int32), a.indices.astype(np.int32)


class Case:
    def __init__(self, lib, n, block, dtype, cols=1, random=np.random.default_rng(1)):
        self.lib, self.dtype, self.cols, self.block = lib, dtype, cols, block
        self.crow, self.col = mesh(n)
        rows, self.blocks = len(self.crow) - 1, len(self.col)
        t = NUMPY[dtype]
        make = lambda *shape: (random.integers(-100, 100, shape).astype(t) if dtype in ("i8", "bf16")
                               else random.standard_normal(shape).astype(t))
        self.values = make(self.blocks, block, block)
        self.x, self.y = make(rows * block, cols), np.zeros((rows * block, cols), NUMPY[{"i8": "i32"}.get(dtype, dtype)])
        self.a = Matrix(self.crow.ctypes.data, self.col.ctypes.data, self.values.ctypes.data, DTYPE[dtype], 6, rows * block,
                        rows * block, block, block, self.blocks)
        self.b = Dense(self.x.ctypes.data, DTYPE[dtype], 0, rows * block, cols, cols, 1)
        self.out = Dense(self.y.ctypes.data, DTYPE[{"i8": "i32"}.get(dtype, dtype)], 0, rows * block, cols, cols, 1)
        self.memory = np.ones(self.values.nbytes // 8 + self.col.nbytes // 8 + self.crow.nbytes // 8 + 8)
        self.bytes = self.values.nbytes + self.col.nbytes + self.crow.nbytes

    def ours(self, side):
        return lambda k: self.lib.few_ours(side, C.byref(self.a), C.byref(self.b), C.byref(self.out), k)

    def naive(self, k):
        return self.lib.few_naive(C.byref(self.a), C.byref(self.b), C.byref(self.out), k)

    def read(self, k):
        return self.lib.few_read(self.memory.ctypes.data, self.bytes, k)

    def scipy(self, k):
        """SciPy's own kernel, without its Python around it, which adds an addition to zeros."""
        tools, rows = sparse._sparsetools, len(self.crow) - 1
        x, y, v = self.x.ravel(), self.y.ravel(), self.values.ravel()
        start = CLOCK()
        for _ in range(k):
            y[:] = 0
            if self.block == 1 and self.cols == 1:
                tools.csr_matvec(rows, rows, self.crow, self.col, v, x, y)
            elif self.block == 1:
                tools.csr_matvecs(rows, rows, self.cols, self.crow, self.col, v, x, y)
            elif self.cols == 1:
                tools.bsr_matvec(rows, rows, self.block, self.block, self.crow, self.col, v, x, y)
            else:
                tools.bsr_matvecs(rows, rows, self.cols, self.block, self.block, self.crow, self.col, v, x, y)
        return CLOCK() - start


class Mkl:
    """mkl_sparse_?_mv of a case's matrix; inspected and optimised beforehand, as its manual advises."""
    def __init__(self, path, threads):
        self.rt = C.CDLL(path)
        self.rt.MKL_Set_Num_Threads(threads)

    def side(self, case, trans=0):
        single = case.dtype == "f32"
        kind, n, rows = "s" if single else "d", case.block, len(case.crow) - 1
        handle = ptr()
        start, p = case.crow.ctypes.data, lambda x: C.c_void_p(x)
        if n == 1:
            status = self.rt[f"mkl_sparse_{kind}_create_csr"](C.byref(handle), 0, rows, rows, p(start), p(start + 4),
                                                                 p(case.col.ctypes.data), p(case.values.ctypes.data))
        else:
            status = self.rt[f"mkl_sparse_{kind}_create_bsr"](C.byref(handle), 0, 101, rows, rows, n, p(start), p(start + 4),
                                                                 p(case.col.ctypes.data), p(case.values.ctypes.data))
        class descr(C.Structure):
            _fields_ = [("type", C.c_int), ("mode", C.c_int), ("diag", C.c_int)]
        if not status:
            self.rt.mkl_sparse_set_mv_hint(handle, 11 if trans else 10, descr(20, 0, 0), 1000)
            self.rt.mkl_sparse_optimize(handle)
        mv = C.cast(self.rt[f"mkl_sparse_{kind}_mv"], ptr)
        return None if status else lambda k: case.lib.few_mkl(mv, handle, int(single), trans, case.x.ctypes.data,
                                                              case.y.ctypes.data, k)


def measure(sides, seconds):
    """Median seconds of one call for each side; the sides take turns, so that all see the same machine."""
    calls, times = {}, {name: [] for name in sides}
    for name, run in sides.items():
        run(1)
        once = run(1)
        if once < 0:
            raise RuntimeError(f"{name} failed: {once}")
        calls[name] = max(1, int(0.0005 / max(once, 1e-7)))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[name]) < 5:
        for name, run in sides.items():
            times[name].append(run(calls[name]) / calls[name])
    return {name: float(np.median(t)) for name, t in times.items()}


def load(path, threads, isa=0):
    lib = C.CDLL(os.path.abspath(path))
    for name in "few_ours", "few_naive", "few_read", "few_mkl":
        getattr(lib, name).restype = f64
    lib.few_read.argtypes = [ptr, i64, C.c_int]
    lib.few_mkl.argtypes = [ptr, ptr, C.c_int, C.c_int, ptr, ptr, C.c_int]
    lib.few_transposed.restype = ptr
    if lib.few_open(threads, isa):
        sys.exit("no context")
    return lib


def find_mkl(threads):
    places = [os.environ.get("MKL_RT", "")] + glob.glob(os.path.join(sys.prefix, "lib", "libmkl_rt.so*"))
    for path in places:
        if path and os.path.exists(path):
            os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL" if threads == 1 else "GNU")
            return Mkl(path, threads)
    return None


def conversions(lib, seconds):
    """Counting and filling calls beside SciPy's conversions: a stiffness matrix of 3 x 3 blocks, some 1.76 million entries."""
    crow, col = mesh(20)
    random = np.random.default_rng(2)
    blocks = sparse.bsr_matrix((random.standard_normal((len(col), 3, 3)), col, crow))
    csr = blocks.tocsr()
    csr.sort_indices()
    coo = csr.tocoo()
    shuffle = random.permutation(coo.nnz)
    row, ccol, values = (x[shuffle].copy() for x in (coo.row, coo.col, coo.data))
    coo = sparse.coo_matrix((values, (row, ccol)), shape=csr.shape)
    rows = csr.shape[0]
    m_crow, m_col, m_val = np.zeros_like(crow), np.zeros_like(col), np.zeros((len(col), 3, 3))
    m = Matrix(m_crow.ctypes.data, m_col.ctypes.data, m_val.ctypes.data, 4, 6, rows, rows, 3, 3, len(col))
    s = Matrix(csr.indptr.ctypes.data, csr.indices.ctypes.data, csr.data.ctypes.data, 4, 6, rows, rows, 1, 1, csr.nnz)
    t = Matrix(None, ccol.ctypes.data, values.ctypes.data, 4, 6, rows, rows, 1, 1, csr.nnz)
    index = np.zeros(len(col) * 2 + rows + 64, np.int64)
    at = (index.ctypes.data + 63) // 64 * 64
    lib.few_convert.restype = f64
    lib.few_convert.argtypes = [C.c_int, ptr, ptr, ptr, ptr, ptr, C.c_int]

    small = mesh(8)
    dense = np.zeros((3 * 512, 3 * 512))
    sv = random.standard_normal((len(small[1]), 3, 3))
    sm = Matrix(small[0].ctypes.data, small[1].ctypes.data, sv.ctypes.data, 4, 6, 1536, 1536, 3, 3, len(small[1]))
    sb = sparse.bsr_matrix((sv, small[1], small[0]))
    view = Dense(dense.ctypes.data, 4, 0, 1536, 1536, 1536, 1)

    def timed(call):
        def run(k):
            start = CLOCK()
            for _ in range(k):
                call()
            return CLOCK() - start
        return run

    ours = lambda what, source, r, target, d=None: lambda k: lib.few_convert(what, C.addressof(source), r, C.addressof(target), d, at, k)
    structure = sparse.csr_matrix((np.arange(len(col)), col, crow))
    for name, mine, theirs in (("CSR to BSR", ours(0, s, None, m), timed(lambda: csr.tobsr((3, 3)))),
                               ("COO to BSR", ours(1, t, row.ctypes.data, m), timed(lambda: coo.tocsr().tobsr((3, 3)))),
                               ("to dense", ours(2, sm, None, sm, C.addressof(view)), timed(sb.toarray)),
                               ("transposed index", ours(3, m, None, m), timed(structure.tocsc))):
        t_ = measure({"ours": mine, "scipy": theirs}, seconds)
        entries = {"to dense": sv.size, "transposed index": len(col)}.get(name, csr.nnz)
        print(f"{name:18} {entries:8} entries  ours {1e3 * t_['ours']:8.2f} ms  scipy {judge(t_['scipy'] / t_['ours'], 1)}",
              flush=True)
    assert np.array_equal(m_col, col) and np.array_equal(m_val, np.asarray(blocks.data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", default="")
    parser.add_argument("--isa", type=int, default=0)
    args = parser.parse_args()
    if args.threads == 1:
        global CLOCK
        CLOCK = time.thread_time
    lib, mkl = load(args.library, args.threads, args.isa), find_mkl(args.threads)
    print(f"{args.threads} thread(s); SciPy {scipy.__version__}, {'MKL' if mkl else 'no MKL'}; times in us, then peer's time over ours")
    if not args.only or args.only in "conversions":
        conversions(lib, args.seconds)
    for block, sizes in ((3, (6, 10, 16, 25, 40)), (1, (6, 16, 40)), (2, (6, 16, 40)), (4, (6, 16, 30)), (6, (6, 12, 25)), (8, (6, 12, 20)),
                         (16, (4, 8, 14)), (64, (3, 4, 6))):
        for n in sizes:
            for dtype in ("f64", "f32"):
                if args.only and args.only not in f"{block} {dtype} n1":
                    continue
                case = Case(lib, n, block, dtype)
                sides = {"ours": case.ours(0), "unchecked": case.ours(1), "naive": case.naive, "scipy": case.scipy, "read": case.read}
                m = mkl.side(case) if mkl else None
                if m:
                    sides["mkl"] = m
                t = measure(sides, args.seconds)
                case.keep = lib.few_transposed(C.byref(case.a))
                case.a.transposed_index = case.keep
                t.update(measure({"A": case.ours(0), "A^T": case.ours(2)}, args.seconds))
                read = t["read"] / t["ours"]
                print(f"{block:3} {dtype} {case.blocks:8} blocks {case.bytes / 2**20:8.2f} MiB  ours {1e6 * t['ours']:9.1f}  "
                      + f"unchecked {t['unchecked'] / t['ours']:5.2f}  "
                      + "  ".join(f"{k} {judge(t[k] / t['ours'], 1)}" for k in ("naive", "scipy", "mkl") if k in t)
                      + "  read " + (judge(read, 0.85) if case.bytes > BEYOND_CACHE else f"{read:5.2f}")
                      + f"  A/A^T {judge(t['A'] / t['A^T'], 1 / 1.3)}", flush=True)
    print(f"few columns and conversions: {reached} of {targets} targets reached")


if __name__ == "__main__":
    main()
