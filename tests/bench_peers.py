"""Second half of `make bench`: SciPy's bsr_matrix on the products that bench_cpu has just measured.

bench_peers.py FILE.csv: reads the f32 products from the file, measures SciPy on random matrices with the same sizes and the
same number of blocks, prints the ratios. Beside FILE.csv it writes bench_scipy.csv, and all as a table, speed.md."""
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


def table(rows, times_scipy):
    """The table of tests/results/cpu.md: one line per block size and sparsity, rates in GFLOP/s."""
    lines = ["| block | sparsity | f32 | of sgemm's rate | faster than SciPy | Aᵀ | bf16 | f16 |", "|---|---|---|---|---|---|---|---|"]
    found = {(r["what"], int(r["block"]), float(r["sparsity"]), r["type"]): r for r in rows}
    for (what, block, s, kind), row in found.items():
        if what == "product" and kind == "f32":
            other = [found.get(key) for key in (("transposed", block, s, "f32"), ("product", block, s, "bf16"), ("product", block, s, "f16"))]
            rates = " | ".join(f"{float(r['gflops']):.0f}" if r else "" for r in other)
            lines.append(f"| {block}×{block} | {s:g} | {float(row['gflops']):.0f} | {100 * float(row['ratio']):.0f} % | "
                         f"{times_scipy[block, s]:.0f}× | {rates} |")
    return "\n".join(lines) + "\n"


def main():
    random = np.random.default_rng(1)
    reached = total = 0
    folder, times_scipy = os.path.dirname(sys.argv[1]), {}
    print(f"against bsr_matrix of SciPy {scipy.__version__}")
    with open(sys.argv[1], newline="") as source:
        rows = list(csv.DictReader(source))
    with open(os.path.join(folder, "bench_scipy.csv"), "w", newline="") as result:
        out = csv.writer(result)
        out.writerow(["block", "sparsity", "blocks", "ms", "scipy_ms", "ratio", "target", "verdict"])
        for row in rows:
            if row["what"] != "product" or row["type"] != "f32":
                continue
            block, ours = int(row["block"]), float(row["ms"])
            theirs = 1e3 * scipy_time(block, int(row["blocks"]), random)
            times_scipy[block, float(row["sparsity"])] = theirs / ours
            target = 8 if block in (3, 6) else 20
            verdict = "reached" if theirs / ours >= target else "MISSED"
            total, reached = total + 1, reached + (verdict == "reached")
            print(f"product    {block:4}  {float(row['sparsity']):4.2f}  f32   {ours:10.3f} ms   SciPy {theirs:10.3f} ms   "
                  f"{theirs / ours:6.1f} times as fast (target {target}: {verdict})", flush=True)
            out.writerow([block, row["sparsity"], row["blocks"], ours, theirs, theirs / ours, target, verdict])
    with open(os.path.join(folder, "speed.md"), "w") as out:
        out.write(table(rows, times_scipy))
    print(f"{reached} of {total} targets reached; the table is in {os.path.join(folder, 'speed.md')}")


main()
