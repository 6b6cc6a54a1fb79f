#!/usr/bin/env python3
"""The library against NumPy, on random calls through examples/python/bsrsparse.py: what NumPy computes in float64 from dense
arrays that it has expanded itself is what the library must give, within bounds.
numpy_differ.py LIBRARY [--cases N | --seconds S] [--seed N]
LIBRARY: the library as a shared object. Without NumPy: a counted skip."""
import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "python"))

try:
    import numpy as np
except ImportError:
    print("NumPy is absent: the library is not compared with it (Debian: apt install python3-numpy; or pip install numpy)")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

import bsrsparse as bs
from bsrsparse import BF16, BOOL, F16, F32, F64, I32, I64, I8

NUMPY = {F16: np.float16, BF16: np.uint16, F32: np.float32, F64: np.float64, I8: np.int8, I32: np.int32, I64: np.int64,
         BOOL: np.uint8}
MANTISSA = {F16: 10, BF16: 7, F32: 23, F64: 52}
LEAST = {F16: 2.0**-24, BF16: 2.0**-133, F32: 2.0**-149, F64: 2.0**-1074}
UNIT = {F16: 2.0**-24, BF16: 2.0**-24, F32: 2.0**-24, F64: 2.0**-53}  # of what sums are formed in
FLOATS = (F16, BF16, F32, F64)


def encode(x, dtype):
    """float64 to an array of the library's type, to nearest even."""
    if dtype == BF16:
        bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7fff + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.asarray(x).astype(NUMPY[dtype])


def decode(a, dtype):
    if dtype == BF16:
        return (a.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return a.astype(np.float64)


class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def below(self, n):
        return int(self.rng.integers(n))

    def chance(self, p):
        return self.rng.random() < p

    def size(self, most=12):
        return int(self.rng.choice([1, 16, 17, 33, 64, 70])) if self.chance(.1) else self.below(most + 1)

    def numbers(self, shape, dtype):
        if dtype in FLOATS:
            return encode(self.rng.uniform(-1, 1, shape) * 2.0 ** self.rng.integers(-3, 4, shape), dtype)
        return self.rng.integers(-8, 9, shape).astype(NUMPY[dtype])

    def spread(self, array):
        """The same numbers in memory with other strides: dimensions in any order, gaps between the elements."""
        dims = array.ndim
        order = self.rng.permutation(dims) if self.chance(.5) else np.arange(dims)
        step = np.array([1 + (self.chance(.15)) for _ in range(dims)])
        shape = np.array(array.shape)
        big = np.full(tuple((shape * step)[order]), 0x5a if array.dtype.kind in "iu" else np.nan, array.dtype)
        view = big.transpose(np.argsort(order))[tuple(slice(0, n * s, s) for n, s in zip(shape, step))]
        view[...] = array
        return view


class Matrix:
    """A random BSR matrix, [items][...] for every array, and its dense form."""
    def __init__(self, draw, dtype, index=None, ordered=False, items=None, ragged=False):
        d = draw
        self.dtype, self.index = dtype, index or (I64 if d.chance(.5) else I32)
        self.br, self.bc, self.r, self.c = 1 + d.size(7), 1 + d.size(7), d.below(6), d.below(6)
        self.br, self.bc = min(self.br, 40), min(self.bc, 40)
        self.items, self.ragged = items, ragged and items is not None
        count = items or 1
        each = d.below(self.r * self.c + 1)
        crow, col = [], []
        for _ in range(count):
            n = d.below(self.r * self.c + 1) if self.ragged else each
            cells = np.sort(d.rng.permutation(self.r * self.c)[:n])
            rows, cols = np.divmod(cells, max(self.c, 1))
            if not ordered:
                for i in range(self.r):
                    there = np.nonzero(rows == i)[0]
                    cols[there] = d.rng.permutation(cols[there])
            base = sum(map(len, col)) if self.ragged else 0
            crow.append(base + np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.r)[:self.r])]))
            col.append(cols)
        self.crow = np.ascontiguousarray(np.array(crow).astype(NUMPY[self.index]))
        self.col = np.ascontiguousarray((np.concatenate(col) if self.ragged else np.array(col).reshape(count, -1)).astype(
            NUMPY[self.index]))
        self.nnz = self.col.shape[-1]
        shape = (self.nnz, self.br, self.bc) if self.ragged else (count, self.nnz, self.br, self.bc)
        self.values = d.spread(d.numbers(shape, dtype))
        self.m = self.view()

    def like(self, values):
        m = Matrix.__new__(Matrix)
        m.__dict__.update(self.__dict__, values=values)
        m.m = m.view()
        return m

    def view(self):
        """As the binding takes it."""
        arrays = [x[0] if self.items is None else x for x in (self.crow, self.col)]
        values = self.values if self.ragged or self.items is not None else self.values[0]
        return bs.make(arrays[0], arrays[1], values, (self.r * self.br, self.c * self.bc),
                       flags=bs.MATRIX_RAGGED if self.ragged else 0)

    def where(self):
        """(item, block row, block column, position, index in values) of each stored block."""
        for item in range(self.items or 1):
            for r in range(self.r):
                for p in range(int(self.crow[item, r]), int(self.crow[item, r + 1])):
                    c = int(self.col[p] if self.ragged else self.col[item, p])
                    yield item, r, c, (p if self.ragged else (item, p))

    def expand(self, fill=0.0):
        full = np.full((self.items or 1, self.r * self.br, self.c * self.bc), fill)
        for item, r, c, at in self.where():
            full[item, r * self.br:(r + 1) * self.br, c * self.bc:(c + 1) * self.bc] = decode(self.values[at], self.dtype)
        return full

    def stored(self):
        full = np.zeros((self.items or 1, self.r * self.br, self.c * self.bc), bool)
        for item, r, c, _ in self.where():
            full[item, r * self.br:(r + 1) * self.br, c * self.bc:(c + 1) * self.bc] = True
        return full


def half_ulp(x, dtype):
    """Of the numbers x in this type: the error of one rounding."""
    if dtype not in FLOATS:
        return np.zeros_like(x)
    _, e = np.frexp(np.abs(x))
    return np.maximum(np.ldexp(1.0, e - 2 - MANTISSA[dtype]), LEAST[dtype] / 2)


def close(got, want, bound, dtype, where=None):
    """'' or what is off."""
    with np.errstate(all="ignore"):
        err = np.abs(got - want)
        bad = ~(err <= bound + half_ulp(np.abs(want) + bound, dtype))
    if where is not None:
        bad &= where
    if not bad.any():
        return ""
    i = tuple(int(x[0]) for x in np.nonzero(bad))
    return f"{i}: {got[i]!r}, expected {want[i]!r} +- {bound[i]:.3g}"


def wrapped(x, dtype):
    """Whole numbers modulo 2^8 or 2^32."""
    return x.astype(np.int64).astype(NUMPY[dtype]).astype(np.float64)


class Differ:
    def __init__(self, path):
        library, self.contexts = bs.Library(path), []
        for isa in [name for name in bs.ISAS if name != "default"]:
            try:
                self.contexts.append(bs.Context(isa=isa, library=library))
            except bs.Error as e:
                if e.item != "ISA_MISSING":
                    raise

    def output(self, d, shape, dtype):
        return d.spread(np.full(shape, 0x77, NUMPY[dtype]))

    def addmm(self, d, ctx):
        dtype = int(d.rng.choice([F16, BF16, F32, F64, I8]))
        to = int(d.rng.choice({F16: [F16, F32], BF16: [BF16, F32], F32: [F32, F16, BF16], F64: [F64],
                               I8: [I8, I32, F32, F16]}[dtype]))
        a = Matrix(d, dtype, items=1 + d.below(3) if d.chance(.4) else None, ragged=d.chance(.4))
        trans, n, batch = d.below(2), d.size(), () if a.items is None else (a.items,)
        m, k = (a.c * a.bc, a.r * a.br) if trans else (a.r * a.br, a.c * a.bc)
        if d.chance(.5) and trans:
            ctx.transposed_index(a.m)
        if d.chance(.4):
            ctx.schedule(a.m, 1 << d.below(4), d.chance(.5))
        b = d.spread(d.numbers((*(batch if d.chance(.5) else ()), k, n), dtype))
        out = self.output(d, (*batch, m, n), to)
        alpha, beta = float(d.rng.choice([1, 2, -1, 0])), float(d.rng.choice([0, 1, -2]))
        other = to if to in FLOATS else I32
        input_ = d.spread(d.numbers((m if d.chance(.7) else 1, n), to)) if beta else None
        left = d.spread(d.numbers((m, 1), other)) if d.chance(.3) else None
        bias = d.spread(d.numbers((1, n), other)) if d.chance(.3) else None
        act = d.below(2) if to in FLOATS else 0
        ctx.dense_addmm(a.m, b, input_, beta, alpha, left, bias=bias, activation="relu" if act else "none", trans=trans, out=out)
        full, stored, right = a.expand(), a.stored().astype(float), decode(b, dtype)
        if trans:
            full, stored = full.swapaxes(1, 2), stored.swapaxes(1, 2)
        s, t, count = full @ right, np.abs(full) @ np.abs(right), stored @ np.ones_like(right)
        l = decode(left, other) if left is not None else 1.0
        plus = (decode(bias, other) if bias is not None else 0.0) + (beta * decode(input_, to) if beta else 0.0)
        want = alpha * s * l + plus
        got = decode(out, to).reshape(want.shape)
        if to not in FLOATS:
            return close(got, wrapped(want, to), np.zeros_like(want), to)
        u = UNIT[dtype] if dtype in UNIT else 2.0**-24
        bound = np.abs(alpha * l) * ((count + 6) * u * t) + 8 * u * (np.abs(plus) + np.abs(want)) + 1e-300
        bound += 8 * u * (np.abs(decode(bias, other)) if bias is not None else 0) + 8 * u * (
            np.abs(beta * decode(input_, to)) if beta else 0) + (0 if dtype == F64 else (count + 8) * 2.0**-149)
        return close(got, np.maximum(want, 0) if act else want, bound, to)

    def sampled(self, d, ctx):
        dtype = int(d.rng.choice([F16, BF16, F32, F64, I8]))
        to = I32 if dtype == I8 else dtype
        out = Matrix(d, to, items=1 + d.below(3) if d.chance(.4) else None)
        batch, k = () if out.items is None else (out.items,), d.size()
        beta, alpha = float(d.below(2)), float(d.rng.choice([1, -2]))
        x = d.spread(d.numbers((*(batch if d.chance(.5) else ()), out.r * out.br, k), dtype))
        y = d.spread(d.numbers((*(batch if d.chance(.5) else ()), k, out.c * out.bc), dtype))
        before = out.like(d.spread(out.values.copy()))
        ctx.sampled_addmm(x, y, None, before.m if beta else None, beta, alpha, out=out.m)
        s, t = decode(x, dtype) @ decode(y, dtype), np.abs(decode(x, dtype)) @ np.abs(decode(y, dtype))
        have = before.expand()
        want = alpha * s + beta * have
        got, where = out.expand(), out.stored()
        want = np.broadcast_to(want, got.shape)
        if to not in FLOATS:
            return close(got, wrapped(want, to), np.zeros_like(want), to, where)
        bound = np.abs(alpha) * (k + 6) * UNIT[dtype] * t + 8 * UNIT[dtype] * (np.abs(want) + np.abs(have)) + 1e-300
        bound = bound + (0 if dtype == F64 else (k + 8) * 2.0**-149)
        return close(got, want, np.broadcast_to(bound, got.shape), to, where)

    def softmax(self, d, ctx):
        dtype = int(d.rng.choice(FLOATS))
        x = Matrix(d, dtype, items=1 + d.below(3) if d.chance(.4) else None, ragged=d.chance(.4))
        y, scale = x.like(d.spread(x.values.copy())), float(d.rng.choice([1, .5, -2]))
        rows, cols = x.r * x.br, x.c * x.bc
        bias = d.spread(d.numbers((rows if d.chance(.5) else 1, cols), dtype)) if d.chance(.4) else None
        padding = d.spread(d.rng.integers(0, 2, (1, cols)).astype(np.uint8)) if d.chance(.4) else None
        ctx.softmax(x.m, scale, bias, padding, key_padding_mode="mul" if padding is not None else "add", out=y.m)
        where, allowed = x.stored(), x.stored()
        s = scale * x.expand() + (decode(bias, dtype) if bias is not None else 0)
        if padding is not None:
            allowed = allowed & (padding != 0)
        s = np.where(allowed, s, -np.inf)
        with np.errstate(all="ignore"):
            top = s.max(-1, keepdims=True, initial=-np.inf)
            e = np.where(allowed, np.exp(s - top), 0)
            total = e.sum(-1, keepdims=True)
            want = np.where(total > 0, e / np.where(total > 0, total, 1), 0)
            spread = np.where(allowed, np.abs(s), 0).max(initial=0)
        relative = (8 + 8 * spread + cols) * UNIT[dtype]
        error = close(y.expand(), want, relative * want + 1.2e-38, dtype, where)
        if error:
            return error
        dy, dx = x.like(d.spread(d.numbers(x.values.shape, dtype))), x.like(d.spread(x.values.copy()))
        ctx.softmax_backward(y.m, dy.m, scale, out=dx.m)
        p, g = y.expand(), np.where(where, dy.expand(), 0)
        dot, mag = (p * g).sum(-1, keepdims=True), np.abs(p * g).sum(-1, keepdims=True)
        bound = np.abs(p * scale) * ((cols + 2) * mag + 4 * (np.abs(g) + np.abs(dot))) * UNIT[dtype] + 1e-44
        error = close(dx.expand(), scale * p * (g - dot), bound, dtype, where)
        return "backward: " + error if error else ""

    def attention(self, d, ctx):
        dtype = int(d.rng.choice(FLOATS))
        mask = Matrix(d, dtype, items=1 + d.below(3) if d.chance(.5) else None, ragged=d.chance(.4))
        batch, depth, dv = () if mask.items is None else (mask.items,), d.size(), d.size()
        lq = max(0, mask.r * mask.br - d.below(mask.br)) if mask.r else 0
        lk = max(0, mask.c * mask.bc - d.below(mask.bc)) if mask.c else 0
        q, k = d.spread(d.numbers((*batch, lq, depth), dtype)), d.spread(d.numbers((*batch, lk, depth), dtype))
        v = d.spread(d.numbers((*(batch if d.chance(.5) else ()), lk, dv), dtype))
        bias = d.spread(d.numbers((lq, lk), dtype)) if d.chance(.3) else None
        causal, offset, scale = d.below(2), d.below(9) - 4, float(d.rng.choice([.25, .5]))
        out, lt = self.output(d, (*batch, lq, dv), dtype), F64 if dtype == F64 else F32
        lse = self.output(d, (*batch, lq, 1), lt)
        ctx.attention(q, k, v, mask.m, lse, out, scale=scale, causal=causal, causal_offset=offset, relative_bias=bias)
        u, allowed = UNIT[dtype], mask.stored()[:, :lq, :lk]
        qd, kd, vd = decode(q, dtype), decode(k, dtype), decode(v, dtype)
        s, size = scale * (qd @ kd.swapaxes(-1, -2)), scale * (np.abs(qd) @ np.abs(kd).swapaxes(-1, -2))
        if bias is not None:
            s, size = s + decode(bias, dtype), size + np.abs(decode(bias, dtype))
        if causal:
            allowed = allowed & (np.arange(lk) <= np.arange(lq)[:, None] + offset)
        s = np.where(allowed, s, -np.inf)
        with np.errstate(all="ignore"):
            top = s.max(-1, keepdims=True, initial=-np.inf)
            e = np.where(allowed, np.exp(s - top), 0)
            total = e.sum(-1, keepdims=True)
            p = np.where(total > 0, e / np.where(total > 0, total, 1), 0)
            far = np.where(allowed, np.abs(s - np.where(total > 0, top, 0)), 0).max(-1, keepdims=True, initial=0)
            off = 2.5 * ((depth + 6) * np.broadcast_to(size, s.shape).max(-1, keepdims=True, initial=0) + 8 * far) + 40 + 2 * lk
            want, bound = p @ vd, off * u * (p @ np.abs(vd)) + 1e-36
            want_lse = np.where(total > 0, top + np.log(np.where(total > 0, total, 1)), -np.inf)
        error = close(decode(out, dtype).reshape(want.shape), want, bound, dtype)
        if error:
            return error
        got = decode(lse, lt).reshape(want_lse.shape)
        same = (got == want_lse) | (np.isfinite(want_lse) & ~(np.abs(got - np.where(np.isfinite(want_lse), want_lse, 0)) > (
            off * u + 8 * u * (np.abs(np.where(np.isfinite(want_lse), want_lse, 0)) + 1))))
        return "" if same.all() else "lse differs"

    def convert(self, d, ctx):
        """Dense to BSR and back, in two types."""
        dtype, to = int(d.rng.choice(FLOATS)), int(d.rng.choice(FLOATS))
        like = Matrix(d, to)
        rows = like.r * like.br - (d.below(like.br) if like.r else 0)
        cols = like.c * like.bc - (d.below(like.bc) if like.c else 0)
        x = d.numbers((rows, cols), dtype)
        zero = (d.rng.random((like.r, like.c)) < .5).repeat(like.br, 0).repeat(like.bc, 1)[:rows, :cols]
        x = d.spread(np.where(zero, np.zeros_like(x), x))
        a = ctx.from_dense(x, (like.br, like.bc), to, like.index)
        ctx.validate(a)
        padded = np.zeros((like.r * like.br, like.c * like.bc))
        padded[:rows, :cols] = decode(x, dtype)
        blocks = padded.reshape(like.r, like.br, like.c, like.bc).any((1, 3)) if padded.size else np.zeros((0, 0), bool)
        if a.nnz != blocks.sum():
            return f"{a.nnz} blocks, expected {blocks.sum()}"
        out = self.output(d, (rows, cols), to)
        ctx.to_dense(a, out=out)
        return close(decode(out, to), decode(x, dtype), np.zeros((rows, cols)), to)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("library")
    args.add_argument("--cases", type=int, default=2000)
    args.add_argument("--seconds", type=float, default=0)
    args.add_argument("--seed", type=int, default=1)
    a = args.parse_args()
    differ, passed, failed, end, case = Differ(a.library), 0, 0, time.time() + a.seconds, 0
    kinds = [differ.addmm, differ.sampled, differ.softmax, differ.attention, differ.convert]
    while failed < 8 and (time.time() < end if a.seconds else case < a.cases):
        d = Draw([a.seed, case])
        kind = kinds[case % len(kinds)]
        try:
            what = kind(d, differ.contexts[d.below(len(differ.contexts))])
        except bs.Error as e:
            what = e.text
        passed, failed = passed + (not what), failed + bool(what)
        if what:
            print(f"FAIL {kind.__name__}, --seed {a.seed}, case {case}: {what}")
        case += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
