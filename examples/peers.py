"""What else multiplies a matrix: SciPy's CSR and BSR, NumPy's dense product (its BLAS). Called by spmm --peers, and by cg.
peers.py FILE DTYPE BLOCK_ROWS BLOCK_COLS COLUMNS...: a line for each, "name<tab>columns<tab>seconds". Values that the file lacks
are drawn. Threads: NumPy's BLAS takes those of its environment, SciPy one.
peers.py --cg FILE BLOCK TOLERANCE: SciPy's conjugate gradients, block-Jacobi too: "name<tab>steps<tab>seconds"."""
import sys
import time

import numpy as np
import scipy.io
import scipy.sparse as sp
import scipy.sparse.linalg


def read(path):
    if path.endswith(".mtx"):
        return sp.csr_array(scipy.io.mmread(path))
    with open(path) as f:
        rows, cols, nnz = (int(x) for x in f.readline().split(","))
        crow, col = np.array(f.readline().split(), int), np.array(f.readline().split(), int)
    return sp.csr_array((np.random.default_rng(1).standard_normal(nnz), col, crow), shape=(rows, cols))


def median(call):
    times = []
    call()
    while len(times) < 5 or (len(times) < 50 and sum(times) < 0.2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def solve(path, block, tolerance):
    a = read(path).astype(float)
    rows = a.shape[0]
    blocks = [np.linalg.inv(a[i:i + block, i:i + block].toarray()) for i in range(0, rows, block)]
    jacobi, f, steps = sp.csr_array(sp.block_diag(blocks)), np.ones(rows), []
    start = time.perf_counter()
    x, failed = scipy.sparse.linalg.cg(a, f, rtol=tolerance, atol=0, maxiter=20000, M=jacobi, callback=steps.append)
    taken = time.perf_counter() - start
    if not failed and np.linalg.norm(f - a @ x) <= 10 * tolerance * np.linalg.norm(f):
        print(f"SciPy cg\t{len(steps)}\t{taken:.9g}")


def main():
    if sys.argv[1] == "--cg":
        solve(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
        return
    path, dtype, br, bc = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    a = read(path).astype(dtype)
    padded = [-(-size // block) * block for size, block in zip(a.shape, (br, bc))]
    wide = sp.csr_array((a.data, a.indices, np.append(a.indptr, [a.nnz] * (padded[0] - a.shape[0]))), shape=padded)
    blocks = sp.bsr_array(wide, blocksize=(br, bc))
    dense = a.toarray() if a.shape[0] * a.shape[1] <= 1 << 27 else None
    for n in (int(x) for x in sys.argv[5:]):
        rng = np.random.default_rng(2)
        b = rng.standard_normal((padded[1], n) if n > 1 else padded[1]).astype(dtype)
        some = b[:a.shape[1]]
        print(f"SciPy CSR\t{n}\t{median(lambda: a @ some):.9g}")
        print(f"SciPy BSR {br} x {bc}\t{n}\t{median(lambda: blocks @ b):.9g}")
        if dense is not None:
            print(f"NumPy dense\t{n}\t{median(lambda: dense @ some):.9g}")


main()
