"""Fits the constants of BSRI_COST_ROWS (bsrsparse.h) to times of tests/time_plans.cu, prints them as they stand there.

    fit_plans.py TIMES.csv ... [--check OTHER.csv ...]

Then what the estimate's choice costs over the fastest plan: for the times that were fitted, each quarter by constants fitted
to the others, and for other times. A plan's traits are those that the library worked out: `time_plans --estimate` gives them to
lines of an older run. Wants NumPy and SciPy.
"""
import collections
import math
import os
import re
import subprocess
import sys

import numpy as np
from scipy.optimize import least_squares, minimize

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bsrsparse.h")
NAMES = "start tile fused store fetch bytes along step area".split()  # of BSRI_COST_ROWS
FIRST = np.log([3000, 2500, 100, 500, 50, 30, 0.05, 40, 60])
Plan = collections.namedtuple("Plan", "us tier kernel rows cols split order chosen ns kind traits")
Shape = collections.namedtuple("Shape", "dtype m k n b s ways")  # ways: as of time_plans


def table():
    """The constants that the header has, and their kinds: costs and size."""
    text = open(HEADER).read()
    text = text[text.index("#define BSRI_COST_ROWS(X)"):text.index("/* to here */")]
    rows = re.findall(r"X\((\w+), +(\d+), +([^()]*)\)", text)
    return [row[:2] for row in rows], np.array([[float(x) for x in values.split(",")] for _, _, values in rows])


def instances():
    """What each number in the kernel table is for, and its tier."""
    text, lines, on = open(HEADER).read(), [], False
    for line in text.split("\n"):
        on = on or re.match("#define BSRI_(KERNELS|WHEN)", line)
        if on:
            lines.append(line)
        on = on and line.endswith("\\")
    lines += [f"#define {name} 1" for name in set(re.findall(r"BSRI_HAS_\w+", text))]
    lines.append("#define X(name, number, of, tier, ...) @ number, of, tier;\nBSRI_KERNELS(X)")
    made = subprocess.run(["cc", "-E", "-P", "-x", "c", "-"], input="\n".join(lines), capture_output=True, text=True, check=True)
    rows = [row.split(",") for row in re.findall(r"@ ([^;]*);", made.stdout)]
    return {sum(map(int, number.split("+"))): (of.strip(), tier.strip()) for number, of, tier in rows}


def shared(name):
    """A constant of all kinds: set by hand."""
    return float(re.search(rf"bsri_costs_{name} = ([0-9.]*)", open(HEADER).read())[1])


CROOKED, ALONE = shared("crooked"), shared("alone")
INSTANCES = instances()


def estimate(c, t):
    """bsri_traits_ns(), of many plans: rows of t are their bsri_traits."""
    start, tile, fused, store, fetch, size, along, step, area = c
    waves, tiles, epilogue, slices, piece, other, own, sums, crooked, busy, memory = t.T
    size = size * piece * (ALONE + (1 - ALONE) * busy) * (1 + along * other)
    fetched, multiplied = slices * (1 + CROOKED * crooked) * (fetch + size), own * (step + area * sums)
    return np.hypot(start + waves * (tile + store * tiles + fused * epilogue) + np.hypot(fetched, multiplied), memory)


def runs(shape, plan):
    """Whether the library takes such rows of tiles, in such an order, by itself."""
    kernel = INSTANCES[plan.kernel]
    if kernel == ("NARROW", "WGMMA") and plan.split == 2 and shape.k * (1 - shape.s) <= 32:
        return False
    if kernel != ("PRODUCT", "MMA"):
        return True
    tiles = -(-shape.m // plan.rows) * -(-shape.n // plan.cols)
    ranked = shape.dtype.startswith("f32") or (shape.dtype.startswith("i8") and shape.b > 32)
    return plan.order == (2 if ranked and tiles > 132 else 1)


class Times:
    def __init__(self, paths):
        shapes = collections.OrderedDict()
        for path in paths:
            for line in open(path):
                f = line.strip().split(",")
                shape = Shape(f[0], *map(int, f[1:5]), float(f[5]), int(f[6]))
                us, chosen, ns, kind = float(f[13]), int(f[14]), float(f[15]), int(f[16])
                plan = Plan(us, *map(int, f[7:13]), chosen, ns, kind, [float(x) for x in f[17:28]])
                shapes.setdefault((path, shape), []).append(plan)
        self.shapes = [shape for _, shape in shapes]
        self.best = np.array([min(p.us for p in plans) for plans in shapes.values()])
        self.fastest = [min(plans) for plans in shapes.values()]
        self.now = [[p for p in plans if p.chosen] for plans in shapes.values()]
        known = [(i, p) for i, plans in enumerate(shapes.values()) for p in plans if runs(self.shapes[i], p)]
        self.plans = [p for _, p in known]
        self.of = np.array([i for i, _ in known])
        self.us = np.array([p.us for p in self.plans])
        self.ns = np.array([p.ns for p in self.plans])
        self.kind = np.array([p.kind for p in self.plans])
        self.traits = np.array([p.traits for p in self.plans])
        self.over = self.us / self.best[self.of]  # 1: the fastest
        self.weight = 1 / (1 + (self.over - 1) / 0.3)  # what is far from the fastest need not be known well


def fit_kind(first, traits, us, weight):
    """Logarithms of the constants, robustly; what the times don't tell stays where it was."""
    def errors(x):
        return np.concatenate([np.sqrt(weight) * np.log(estimate(np.exp(x), traits) / us / 1e3), 0.01 * (x - first)])

    found = [least_squares(errors, x, loss="soft_l1", f_scale=0.1)
             for x in (first, FIRST, FIRST + np.random.default_rng(1).normal(0, 0.4, len(FIRST)))]
    return min(found, key=lambda got: got.cost).x


def fit(times, use, first):
    """Each kind to its times; then all together, so that what is chosen by them costs little: the expected loss where plans are
    taken by chance, those of low estimates more likely (4 % less: e times)."""
    x = np.array(first)
    use = use[times.of]
    kinds = [k for k in range(len(x)) if (use & (times.kind == k)).sum() > 15]
    for k in kinds:
        mine = use & (times.kind == k)
        x[k] = fit_kind(first[k], times.traits[mine], times.us[mine], times.weight[mine])
    of, kind, traits = times.of[use], times.kind[use], times.traits[use]
    us, weight, cost = times.us[use], times.weight[use], np.log(np.minimum(times.over[use], 2))
    cost += 4 * cost ** 2  # what is far from the fastest counts for more than its loss
    count, apart, begin = len(times.shapes), 0.02, x.copy()
    parts = [(i, np.where(kind == k)[0]) for i, k in enumerate(kinds)]

    def loss(flat):
        y, e = begin.copy(), np.empty(len(us))
        y[kinds] = flat.reshape(len(kinds), -1)
        slope = np.zeros((len(us), len(NAMES)))
        for k in range(len(x)):
            at = np.where(kind == k)[0]
            e[at] = np.log(estimate(np.exp(y[k]), traits[at]))
            for n in range(len(NAMES)):
                near = y[k].copy()
                near[n] += 1e-4
                slope[at, n] = (np.log(estimate(np.exp(near), traits[at])) - e[at]) / 1e-4
        least, whole, mean = np.full(count, np.inf), np.zeros(count), np.zeros(count)
        np.minimum.at(least, of, e)
        chance = np.exp((least[of] - e) / apart)
        np.add.at(whole, of, chance)
        chance /= whole[of]
        np.add.at(mean, of, chance * cost)
        off = (e - np.log(us * 1e3)) / 0.1
        value = 30 * mean.sum() / count + 0.1 * (weight * (np.sqrt(1 + off ** 2) - 1)).mean() + 2e-4 * ((y - begin) ** 2).sum()
        by = -30 * chance * (cost - mean[of]) / apart / count + weight * off / np.sqrt(1 + off ** 2) / len(e)
        return value, (np.array([by[at] @ slope[at] for _, at in parts]) + 4e-4 * (y - begin)[kinds]).ravel()

    x[kinds] = minimize(loss, x[kinds].ravel(), jac=True, method="L-BFGS-B", options=dict(maxiter=250)).x.reshape(len(kinds), -1)
    return x


def lost(times, x):
    """For each shape: by how much what these constants choose is slower than the fastest, and the plan."""
    ns = np.array([estimate(np.exp(x[k]), t[None])[0] for k, t in zip(times.kind, times.traits)])
    pick = {}
    for j, i in enumerate(times.of):
        if i not in pick or ns[j] < ns[pick[i]]:
            pick[i] = j
    return {i: (times.over[j] - 1, times.plans[j]) for i, j in pick.items()}


def report(name, times, found):
    groups = collections.defaultdict(list)
    for i, (over, _) in found.items():
        groups[times.shapes[i].dtype, times.shapes[i].b].append(i)
        groups["all", 0].append(i)
    print(f"{name}: over the fastest plan, geometric mean, shapes above 10 and 20 %, worst (as the library chose then)")
    for key in sorted(groups):
        over = np.array([found[i][0] for i in groups[key]])
        now = np.array([times.now[i][0].us / times.best[i] - 1 for i in groups[key] if times.now[i]] or [0])
        text = [f"{100 * np.expm1(np.log1p(v).mean()):5.2f} %{(v > .1).sum():4}{(v > .2).sum():4}{100 * v.max():5.0f} %"
                for v in (over, now)]
        print(f"  {key[0]:9} b{key[1]:<4}{len(over):4} shapes {text[0]}   ({text[1]})")
    for i in sorted(found, key=lambda i: -found[i][0])[:16]:
        over, p = found[i]
        q = times.fastest[i]
        if over > 0.1:
            a, b = (f"{x.kernel} {x.rows}x{x.cols} split {x.split} {x.us:.1f}" for x in (p, q))
            print(f"     {100 * over:4.0f} % {','.join(map(str, times.shapes[i]))}: {a}, {b}")


def main():
    args = sys.argv[1:]
    at = args.index("--check") if "--check" in args else len(args)
    names, have = table()
    have = np.log(np.maximum(have, 1e-12))
    times, others = Times(args[:at]), Times(args[at + 1:]) if at < len(args) else None
    ours = np.array([estimate(np.exp(have[k]), t[None])[0] for k, t in zip(times.kind, times.traits)])
    same = np.abs(ours / times.ns - 1) < 1e-3
    if not same.all():
        print(f"{(~same).sum()} of {len(same)} estimates differ from the library's: other constants, or another formula?")
    every = np.ones(len(times.shapes), bool)
    x = fit(times, every, have)
    x = np.log([[float(f"{v:.3g}") for v in np.exp(row)] for row in x])
    for k, name in enumerate(names):
        mine = times.kind == k
        e = np.log(estimate(np.exp(x[k]), times.traits[mine]) / times.us[mine] / 1e3) if mine.any() else np.zeros(1)
        near = times.weight[mine] > 0.4 if mine.any() else np.ones(1, bool)
        text = " ".join(f"{f'{v:g}' + (',' if n < 8 else ''):>9}" for n, v in enumerate(np.exp(x[k])))
        print(f"    X({name[0] + ',':<14} {name[1] + ',':>4} {text}) /* {mine.sum()} times, off by {e[near].std():.3f} */")
    half = np.random.default_rng(0).permutation(len(times.shapes)) % 4
    found = {}
    begin = np.array([FIRST if (times.kind == k).sum() > 50 else row for k, row in enumerate(have)]) # knows none of the shapes
    for h in range(4):
        found.update({i: v for i, v in lost(times, fit(times, half != h, begin)).items() if half[i] == h})
    report("fitted, each quarter by the others", times, found)
    if others:
        report("others", others, lost(others, x))


if __name__ == "__main__":
    main()
