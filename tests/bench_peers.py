"""Second half of `make bench`: SciPy's bsr_matrix on the products that bench_cpu has just measured.

bench_peers.py FILE.csv: reads the f32 products from the file, measures SciPy on random matrices with the same sizes and the
same number of blocks, prints the ratios, writes FILE.csv's neighbour bench_scipy.csv."""
import csv
import os
import sys
import time

import numpy as np
import scipy
import scipy.sparse as sparse

N = 512


def median(call):
    call()
    times = []
    while len(times) < 3 or (sum(times) < 0.3 and len(times) < 30):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def scipy_time(block, blocks, random):
    side = -(-1024 // block)
    chosen = np.zeros(side * side, dtype=bool)
    chosen[random.permutation(side * side)[:blocks]] = True
    chosen = chosen.reshape(side, side)
    crow = np.concatenate([[0], chosen.sum(1).cumsum()]).astype(np.int32)
    col = np.nonzero(chosen)[1].astype(np.int32)
    values = random.standard_normal((blocks, block, block), dtype=np.float32)
    a = sparse.bsr_matrix((values, col, crow), shape=(side * block, side * block))
    b = random.standard_normal((side * block, N), dtype=np.float32)
    return median(lambda: a @ b)


def main():
    random = np.random.default_rng(1)
    reached = total = 0
    path = os.path.join(os.path.dirname(sys.argv[1]), "bench_scipy.csv")
    print(f"against bsr_matrix of SciPy {scipy.__version__}")
    with open(sys.argv[1], newline="") as source, open(path, "w", newline="") as result:
        out = csv.writer(result)
        out.writerow(["block", "sparsity", "blocks", "ms", "scipy_ms", "ratio", "target", "verdict"])
        for row in csv.DictReader(source):
            if row["what"] != "product" or row["type"] != "f32":
                continue
            block, ours = int(row["block"]), float(row["ms"])
            theirs = 1e3 * scipy_time(block, int(row["blocks"]), random)
            target = 8 if block in (3, 6) else 20
            verdict = "reached" if theirs / ours >= target else "MISSED"
            total, reached = total + 1, reached + (verdict == "reached")
            print(f"product    {block:4}  {float(row['sparsity']):4.2f}  f32   {ours:10.3f} ms   SciPy {theirs:10.3f} ms   "
                  f"{theirs / ours:6.1f} times as fast (target {target}: {verdict})", flush=True)
            out.writerow([block, row["sparsity"], row["blocks"], ours, theirs, theirs / ours, target, verdict])
    print(f"{reached} of {total} targets reached")


main()
