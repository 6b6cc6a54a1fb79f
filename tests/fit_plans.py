"""Fits the constants of bsri_costs (bsrsparse_kernels.cuh) to times of tests/time_plans.cu and prints them as they stand there.

    fit_plans.py TIMES.csv ... [--check OTHER.csv ...]

Then, for the times that were fitted and for others, what the estimate's choice costs over the fastest plan. Wants NumPy and SciPy.
"""
import collections
import math
import sys

import numpy as np
from scipy.optimize import least_squares

SMS = 132
NAMES = "start tile fused store fetch bytes along step area".split()
KINDS = "mma 16,mma 32,f32 16,f32 32,tf32 16,tf32 32,i8 32,i8 64,short 16,short 32,short 64,skinny 16,skinny 32,few 32,few 64,few wgmma,narrow 16,narrow 32,wide 64,wide 128".split(",")
FIRST = dict(start=3000, tile=2500, fused=100, store=500, fetch=50, bytes=30, along=0.05, step=40, area=60)
Plan = collections.namedtuple("Plan", "us tier kernel rows cols split order chosen")
Shape = collections.namedtuple("Shape", "dtype m k n b s ways")  # ways: as of time_plans


def read(paths):
    shapes = collections.OrderedDict()
    for path in paths:
        for line in open(path):
            f = line.strip().split(",")
            shape = Shape(f[0], *map(int, f[1:5]), float(f[5]), int(f[6]))
            plan = Plan(float(f[13]), *map(int, f[7:13]), int(f[14]))
            shapes.setdefault(shape, []).append(plan)
    return shapes


def up(a, b):
    return -(-a // b)


def runs(shape, plan):
    """Whether the library takes such tiles, in such an order, by itself."""
    ranked = shape.dtype.startswith("f32") and up(shape.m, plan.rows) * up(shape.n, plan.cols) > SMS
    if shape.dtype == "f32" and shape.b == 64 and plan.cols == 256:
        return False
    return plan.kernel >= 300 or plan.kernel < 200 or 250 <= plan.kernel < 260 or plan.order == (2 if ranked else 1)


def family(shape, plan):
    """Which line of bsri_costs: kernels that run alike."""
    k = plan.kernel
    if k < 150:
        return None
    if k < 200:
        return f"skinny {plan.rows}"
    dtype = shape.dtype.split("+")[0]
    if 200 <= k < 220:
        return "mma 16" if shape.b == 16 else "mma 32"
    if 220 <= k < 230:
        return "i8 32" if shape.b == 32 else "i8 64"
    if 250 <= k < 260:
        return f"short {min(shape.b, 64)}"
    if 260 <= k < 270:
        return "f32 16" if shape.b == 16 else "f32 32"
    if 270 <= k < 280:
        return "tf32 16" if shape.b == 16 else "tf32 32"
    if k >= 390:
        return "few wgmma" if plan.rows == plan.cols == 64 else f"few {plan.rows}"
    if k >= 380:
        return None
    if k % 100 >= 20 and k >= 300:
        return "narrow 16" if shape.b == 16 else "narrow 32"
    return f"wide {shape.b}"


def spread(tiles, room):
    """Tiles are taken as multiprocessors get free, so many at once."""
    waves = math.hypot(1, tiles / room)
    return waves, tiles / waves


def traits(shape, plan, kind):
    """What the estimate looks at."""
    d, rows, cols = 1 - shape.s, plan.rows, plan.cols
    slice_ = 32 if kind.startswith("skinny") else min(shape.b, 64 if kind[:3] in ("wid", "few") or kind == "i8 64" else 32)
    inner = shape.k // shape.b
    union = inner * (1 - (1 - d) ** max(1, rows // shape.b))
    across, down = up(shape.n, cols), up(shape.m, rows)
    beside, split, along = 1.0, 0, shape.ways & 1
    if kind.startswith("short"):  # CTAs of four warps, three on a multiprocessor
        split = plan.split
        each = up(across * down, 4 // split) / SMS
        each = math.ceil(each) if each <= 3 else each + 0.5
        waves = max(1, each / 3)
        beside = each / waves * 4 / split * (2 if 8 < shape.n < 64 else 1.5 if shape.n <= 64 else 1)
        beside *= 1.75 if along and shape.b == 16 and shape.k * shape.n * 2 > 32 << 20 else 1
    elif kind.startswith("skinny"):
        held, split, along = 32 if cols < 32 else 16, 8 if cols > 8 else 16, not along
        blocks = int(inner * d)
        while split > 2 and (down * split > SMS * held or blocks * shape.b <= split // 2 * 32):
            split //= 2
        waves, beside = spread(down / SMS, held / split)
    elif kind.startswith("few"):
        slot = (rows + cols) * 128
        room = min(110 * 1024, 220 * 1024 // min(4, up(down, SMS))) // slot
        split = max(1, min(int(inner * d * shape.b / 86) + 1, 2 if kind == "few wgmma" else 8, room // 2))
        waves, beside = spread(down / SMS, 110 * 1024 / (split * slot))
        along = not along
        if along and shape.n > 8 and shape.n % 16:  # rows that are no whole sectors
            beside *= 1.6
    elif plan.tier == 3:
        span = 4 if across % 4 == 0 or across > 32 else next((i for i in (3, 5, 2, 7) if across % i == 0), 1)  # bsri_wgmma_span
        teams = SMS // span
        waves = up(up(across, span) * down, teams)
    else:
        waves = up(across * down, SMS)
    own = inner * d
    if split:  # the longest rows decide
        own = (own + 2 * math.sqrt(own * (1 - d))) / split
    fused = "+relu" in shape.dtype or shape.ways >= 8
    if kind[:3] in ("few", "ski"):
        fused *= rows * cols / 1024
    else:
        fused = fused or (shape.n > 1 and shape.n % 8 and not shape.ways & 2)
    size = {"f": 4, "i": 1, "b": 2}[shape.dtype[0]] if shape.dtype[:3] != "f16" else 2
    touched = 1 - (1 - d) ** (shape.m / shape.b)
    memory = (shape.k * shape.n * touched * size + shape.m * shape.n * max(size, 4 if size == 1 else 2) + shape.m * shape.k * d * size) / 4.2
    return dict(waves=waves, slices=union * shape.b / slice_ * beside, own=own * shape.b / slice_, kb=slice_ * cols * size / 8192,
                tile=rows * cols / 32768, area=cols * max(rows, 64) / 16384, along=along, fused=fused,
                memory=memory / 1e3)


def estimate(c, t, alone=True):
    """alone: as measured; else as the library compares, without what all kernels wait for."""
    c = dict(zip(NAMES, c))
    fetch = t["slices"] * (c["fetch"] + c["bytes"] * t["kb"] * (1 + c["along"] * t["along"]))
    multiply = t["own"] * (c["step"] + c["area"] * t["area"])
    ns = c["start"] + t["waves"] * (c["tile"] + c["fused"] * t["fused"] + c["store"] * t["tile"] + math.hypot(fetch, multiply))
    return max(ns, alone * t["memory"])


def fit(rows):
    """rows: (traits, us). Logarithms of the constants, robustly; what the times don't tell stays where it was."""
    first = np.log([FIRST[n] for n in NAMES])

    def errors(x):
        c = np.exp(x)
        return [math.log(estimate(c, t) / us / 1e3) for t, us in rows] + list(0.02 * (x - first))

    best = None
    for seed in range(3):
        start = first + np.random.default_rng(seed).normal(0, 0.4, len(first)) * (seed > 0)
        got = least_squares(errors, start, loss="soft_l1", f_scale=0.1)
        if best is None or got.cost < best.cost:
            best = got
    return np.exp(best.x)


def regret(name, shapes, costs):
    lost, was = collections.defaultdict(list), collections.defaultdict(list)
    for shape, plans in shapes.items():
        known = [p for p in plans if family(shape, p) in costs and runs(shape, p)]
        now = [p for p in plans if p.chosen]
        if not known or not now:
            continue
        fastest = min(p.us for p in plans)
        key = (shape.dtype, shape.b)
        by = lambda p: estimate(costs[family(shape, p)], traits(shape, p, family(shape, p)), False)
        pick = min(known, key=by)
        lost[key].append((math.log(pick.us / fastest), shape, pick, min(plans)))
        was[key].append(math.log(now[0].us / fastest))
    print(f"{name}: over the fastest plan, geometric mean and worst, by the estimate (as the library chose then)")
    for key in sorted(lost):
        pc = lambda x: 100 * (math.exp(x) - 1)
        a, b = [x[0] for x in lost[key]], was[key]
        print(f"  {key[0]:9} b{key[1]:<4}{len(a):4} shapes {pc(np.mean(a)):6.2f} % {pc(max(a)):4.0f} %   ({pc(np.mean(b)):.2f} % {pc(max(b)):.0f} %)")
        for e, shape, pick, best in sorted(lost[key], key=lambda x: -x[0])[:4]:
            if e > 0.07:
                print(f"     {pc(e):4.0f} % {','.join(map(str, shape[1:]))}: {pick.kernel} {pick.rows}x{pick.cols} {pick.us:.1f},"
                      f" {best.kernel} {best.rows}x{best.cols} order {best.order} {best.us:.1f}")


def main():
    args = sys.argv[1:]
    at = args.index("--check") if "--check" in args else len(args)
    shapes, others = read(args[:at]), read(args[at + 1:])
    rows = collections.defaultdict(list)
    for shape, plans in shapes.items():
        for p in plans:
            kind = family(shape, p)
            if kind and runs(shape, p):
                rows[kind].append((traits(shape, p, kind), p.us))
    costs = {}
    for kind in (k for k in KINDS if k in rows):
        x = fit(rows[kind])
        costs[kind] = x = np.array([float(f"{v:.3g}") for v in x])
        e = [math.log(estimate(x, t) / us / 1e3) for t, us in rows[kind]]
        text = ", ".join(f"{v:g}" for v in x)
        print(f"    {{{text}}}, /* {kind}: {len(e)} times, rms {np.std(e):.3f}, worst {max(map(abs, e)):.2f} */")
    regret("fitted", shapes, costs)
    if others:
        regret("others", others, costs)


if __name__ == "__main__":
    main()
