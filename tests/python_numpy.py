#!/usr/bin/env python3
"""examples/python/bsrsparse.py against the header, NumPy and SciPy: python_numpy.py LIBRARY [parts of names]. Random calls in all
types and strides are tests/numpy_differ.py's, on the same binding. What is absent (NumPy, SciPy) is a counted skip; $CC, or cc,
compiles a probe of the header's structs. Ends with "N passed, N failed, N skipped"."""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
try:
    import numpy as np
except ImportError:
    print("NumPy is absent: the Python binding is not tested (Debian: apt install python3-numpy; or pip install numpy)")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)
try:
    import scipy.sparse as sp
except ImportError:
    sp = None
import bsrsparse as bs

CASES = []
rng = np.random.default_rng(20)


class Skip(Exception):
    pass


def case(function):
    CASES.append(function)
    return function


def needs_scipy():
    if sp is None:
        raise Skip("SciPy is absent (Debian: apt install python3-scipy; or pip install scipy)")


def equal(got, want, what=""):
    got, want = np.asarray(got), np.asarray(want)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), (what, got.dtype, got.shape, want.dtype, want.shape)
    assert np.array_equal(got, want), f"{what} {got} is not {want}"


def close(got, want, bound):
    assert got.shape == want.shape, f"{got.shape}, expected {want.shape}"
    err = np.abs(np.asarray(got, np.float64) - want)
    assert (err <= bound).all(), f"off by {err.max()}, {np.asarray(bound).max()} is allowed"


def refused(call, status, item=None, argument=None):
    try:
        call()
    except bs.Error as e:
        assert (e.status, item or e.item, argument or e.argument) == (status, e.item, e.argument), (e.status, e.item, e.argument)
        assert e.status in e.text and e.text == str(e)
        return e
    raise AssertionError(f"taken, expected {status}")


def raises(call, kind, words):
    try:
        call()
    except kind as e:
        assert not isinstance(e, bs.Error) and words in str(e), f"{type(e).__name__}: {e}"
        return
    raise AssertionError(f"taken, expected {kind.__name__}")


def numbers(shape, dtype=np.float64):
    return (rng.integers(-8, 9, shape) if np.dtype(dtype).kind == "i" else rng.uniform(-1, 1, shape)).astype(dtype)


def pattern(rows, cols, density=.4, index=np.int32):
    """crow, col of random blocks, columns ascending."""
    keep = rng.random((rows, cols)) < density
    return np.concatenate([[0], keep.sum(1).cumsum()]).astype(index), np.nonzero(keep)[1].astype(index)


def random_matrix(rows, cols, block, dtype=np.float64, index=np.int32, density=.4):
    crow, col = pattern(rows, cols, density, index)
    return bs.make(crow, col, numbers((len(col),) + block, dtype), (rows * block[0], cols * block[1]))


def expand(m):
    full = np.zeros((m.rows, m.cols))
    (br, bc), stored = m.block, np.asarray(m.stored, np.float64)
    for r in range(len(m.crow) - 1):
        for p in range(m.crow[r], m.crow[r + 1]):
            full[r * br:(r + 1) * br, m.col[p] * bc:(m.col[p] + 1) * bc] += stored[p]
    return full


# ---- the header ----

HEADER = open(os.path.join(ROOT, "bsrsparse.h")).read()
PUBLIC = HEADER[:HEADER.index("#endif /* BSRSPARSE_H */")]
CODE = re.sub(r"/\*.*?\*/", "", PUBLIC, flags=re.S)


def constants():
    """What the binding calls a number, and the header."""
    lists = {"": bs.DTYPES, "BACKEND_": bs.BACKENDS, "ISA_": bs.ISAS, "ACT_": bs.ACTIVATIONS, "NORM_": bs.NORMS,
             "OP_": bs.library().ops, "MASK_": bs.MASK_MODES, "LAYOUT_": bs.LAYOUTS}
    if "bsr_map_options" in CODE:  # a later version's
        lists.update({"COMBINE_": bs.COMBINES, "REDUCE_": bs.REDUCTIONS, "OVER_": bs.OVER,
                      "MAP_": {k: v for k, v in bs.MAPS.items() if v >= 100}})
    for prefix, names in lists.items():
        for name, value in names.items():
            yield f"BSR_{prefix}{name.upper()}", value
    yield from zip(("BSR_SCATTER_MM", "BSR_SCATTER_STRIDED", "BSR_SCATTER_STRIDED_COMPRESSED"), bs.FORMATS.values())
    for name in ("TRANS_A TRANS_B TRANS_C MATRIX_RAGGED MATRIX_ROW_VIEW ATTENTION_CAUSAL ATTENTION_MASK_BOOLEAN "
                 "ATTENTION_MASK_ADDITIVE TUNE_STORE_ALWAYS TUNE_TRUSTED TUNE_ANY CLIMB_MAX TUNE_TEXT_MAX VALUE_UNKNOWN").split():
        yield "BSR_" + name, getattr(bs, name)
    for name in ("SKIP_CHECKS CHECK_POINTERS ACCUMULATE_F64 TF32 TF32X3 NO_TABLE NO_LOG CONSTANT_MATRIX CHECK_INDICES").split():
        yield "BSR_EXEC_" + name, getattr(bs, name)


def structs():
    """Those of the binding; the header of an earlier version lacks some."""
    return {name: struct for name, struct in bs.STRUCTS.items() if re.search(rf"\b{name}\b", CODE)}


def probe():
    """What a compiler says of every struct, field and constant of the binding: {name: number}."""
    lines = [f'P("{name}", sizeof({name}));' for name in structs()]
    for name, struct in structs().items():
        for field, _ in struct._fields_:
            at = f"{name}.{field}"
            lines += [f'P("{at}", offsetof({name}, {field}));', f'P("{at} size", sizeof((({name} *)0)->{field}));']
    lines += [f'P("{name}", {name});' for name, _ in constants()]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "probe.c"), os.path.join(folder, "probe")
        with open(source, "w") as out:
            out.write('#include "bsrsparse.h"\n#include <stdio.h>\n'
                      '#define P(name, x) printf("%s=%lld\\n", name, (long long)(x))\n'
                      "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([os.environ.get("CC") or "cc", "-std=c99", "-I" + ROOT, source, "-o", program], check=True)
        said = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: int(value) for name, _, value in (line.rpartition("=") for line in said.splitlines())}


@case
def structs_and_constants_are_the_headers():
    said = probe()
    assert len(structs()) >= 27
    for name, struct in structs().items():
        fields = dict(struct._fields_)
        have = {name: bs.C.sizeof(struct), **{f"{name}.{f}": getattr(struct, f).offset for f in fields},
                **{f"{name}.{f} size": getattr(struct, f).size for f in fields}}
        for what, value in have.items():
            assert said[what] == value, f"{what} is {value} in the binding, {said[what]} in the header"
    for name, value in constants():
        assert said[name] == value, f"{name} is {value} in the binding, {said[name]} in the header"


@case
def every_field_and_struct_of_the_header_is_there():
    bodies = re.findall(r"^(?:typedef )?struct (bsr_\w+) \{(.*?)^\}", CODE, flags=re.S | re.M)
    assert len(bodies) > 20
    for name, body in bodies:
        if name == "bsr_position":
            continue  # of user functions, which are compiled in
        names = [re.search(r"\(\*(\w+)\)", d).group(1) if "(*" in d else n for d in body.split(";") if d.strip()
                 for n in ([""] if "(*" in d else re.findall(r"(\w+)\s*(?:\[\w+\])?\s*(?:,|$)", d.strip()))]
        have = [f for f, _ in bs.STRUCTS[name]._fields_]
        assert names == have, f"{name}: {names} in the header, {have} in the binding"


def kind_in_c(argument):
    """A C type as the binding's prototypes name it."""
    words = re.sub(r"\bconst\b|BSRI_KEEPS\(\d\)", "", argument).strip()
    base = words.split()[0]
    if words == "void":
        return None
    if "*" in words or base == "bsr_stream":
        return "text" if base == "char" else "pointer"
    return {"bsr_status": "int", "int": "int", "int64_t": "i64", "uint64_t": "u64", "size_t": "u64", "uint32_t": "u32",
            "double": "f64"}.get(base, base)


@case
def prototypes_are_the_headers():
    declared = re.findall(r"^BSR_API ([^(]*?)(bsr_\w+)\(([^;{]*)\)[^;]*;", CODE, flags=re.M)
    ours = {}
    for one in bs.PROTOTYPES.replace("\n", "|").split("|"):
        if one.strip():
            result, name, arguments = re.match(r"\s*(\w+) (\w+)\((.*)\)", one).groups()
            ours["bsr_" + name] = [result] + [a.strip() for a in arguments.split(",") if a.strip()]
    listed = subprocess.run(["sh", os.path.join(HERE, "declared.sh"), os.path.join(ROOT, "bsrsparse.h")], check=True,
                            stdout=subprocess.PIPE, text=True).stdout.split()
    assert set(listed) <= set(ours), set(listed) - set(ours)
    assert sorted(name for _, name, _ in declared) == sorted(listed)
    for result, name, arguments in declared:
        wanted = [kind_in_c(result)] + [
            kind_in_c(re.sub(r"\bBSRI_KEEPS\(\d\)", "", a)) for a in arguments.split(",") if a.strip() != "void"]
        have = []
        for kind in ours[name]:
            pointer = kind.endswith("*") or kind == "ptr"
            have.append("pointer" if pointer else kind if kind in ("int", "i64", "u64", "u32", "f64", "text") else
                        None if kind == "void" else "bsr_" + kind)
        same = len(wanted) == len(have) and all(w == h or {w, h} == {"text", "pointer"} for w, h in zip(wanted, have))
        assert same, f"{name}: {wanted} in the header, {have} in the binding"


# ---- SciPy ----

@case
def matrices_of_scipy_are_not_copied():
    needs_scipy()
    for make in (sp.bsr_matrix, sp.bsr_array):
        for index in (np.int32, np.int64):
            crow, col = pattern(5, 4, index=index)
            a = make((numbers((len(col), 3, 2)), col, crow), shape=(15, 8))
            a.indices, a.indptr = a.indices.astype(index), a.indptr.astype(index)
            m = bs.matrix(a)
            assert [m.crow_indices, m.col_indices, m.values] == [x.ctypes.data for x in (a.indptr, a.indices, a.data)]
            back = m.scipy()
            assert np.shares_memory(back.data, a.data) and np.shares_memory(back.indices, a.indices)
            equal(back.toarray(), a.toarray())
            equal(m @ np.eye(8), a.toarray())
    m = bs.matrix(a.tocsr())
    assert m.block == (1, 1) and m.nnz == a.nnz


@case
def products_of_scipys_matrices():
    needs_scipy()
    for kind in ("bsr", "csr"):
        for dtype in (np.float32, np.float64):
            for block in ((1, 1), (3, 3), (2, 5), (16, 16), (7, 1)):
                a = sp.random_array((10 * block[0], 7 * block[1]), density=.3, rng=rng, dtype=dtype).asformat("csr")
                a = a.tobsr(block) if kind == "bsr" else a
                size = abs(a).toarray().astype(float)
                u = np.finfo(dtype).eps / 2
                for shape in ((a.shape[1],), (a.shape[1], 1), (a.shape[1], 9)):
                    x = numbers(shape, dtype)
                    bound = (a.shape[1] + 4) * u * (size @ np.abs(x.astype(float))) + 1e-40
                    close(ctx.dense_mm(a, x), a.astype(float) @ x.astype(float), bound)
                y, m = numbers((a.shape[0], 4), dtype), bs.matrix(a)
                want, bound = a.T.astype(float) @ y.astype(float), (a.shape[0] + 4) * u * (size.T @ np.abs(y)) + 1e-40
                for n in range(3):
                    close(ctx.dense_mm(m, y, trans=True), want, bound)
                    (lambda: None, lambda: ctx.transposed_index(m), lambda: ctx.schedule(m, 2, True))[n]()


@case
def packed_weights_come_to_blocks():
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, 16, (16, 8)).astype(np.uint8)
    crow, col = np.array([0, 1, 3, 3, 4], np.int32), np.array([1, 0, 1, 0], np.int32)
    pairs = numbers[:, 0::2] | numbers[:, 1::2] << 4
    words = sum(numbers[:, i].astype(np.uint32) << np.uint32(4 * i) for i in range(8)).astype(np.uint32)
    for packing, packed in ((1, pairs), (2, words)):
        values = bs.library().unpack_u4(packing, packed, crow, col, 16, 8, 4, 4)
        for at, (r, c) in enumerate(((0, 1), (1, 0), (1, 1), (3, 0))):
            block = numbers[4 * r:4 * r + 4, 4 * c:4 * c + 4]
            equal(values[at], block[:, 0::2] | block[:, 1::2] << 4)
    zeros = bs.library().unpack_zeros(2, 8, 1, np.array([0x76543210], np.uint32))
    equal(zeros[:, 0], np.arange(1, 9, dtype=np.int8))
    for bad in (words[::2], words[1:], words.astype(np.uint64), pairs[:, :3]):
        raises(lambda: bs.library().unpack_u4(2, bad, crow, col, 16, 8, 4, 4), ValueError, "array of 64 bytes")
    raises(lambda: bs.library().unpack_u4(2, words, crow[:3], col, 16, 8, 4, 4), ValueError, "crow has 3 entries")
    raises(lambda: bs.library().unpack_u4(2, words, crow, col.astype(np.int64), 16, 8, 4, 4), TypeError, "both int32")
    raises(lambda: bs.library().unpack_zeros(2, 8, 2, np.zeros(1, np.uint32)), ValueError, "array of 8 bytes")


@case
def weights_of_4_bits_in_products_and_files():
    crow, col = pattern(3, 4, .6)
    values, x = rng.integers(0, 256, (len(col), 8, 8), np.uint8), numbers((64, 5), np.float32)
    scale, zero = numbers((24, 4), np.float32), rng.integers(0, 16, (24, 4)).astype(np.int8)
    w = bs.make(crow, col, values, (24, 64), dtype="u4")
    assert w.block == (8, 16) and w.dtype == bs.U4
    codes = bs.make(crow, col, np.stack([values & 15, values >> 4], -1).reshape(-1, 8, 16).astype(np.int8), (24, 64))
    q, stored = expand(codes), expand(bs.make(crow, col, np.ones((len(col), 8, 16)), (24, 64)))
    s, z = np.repeat(scale, 16, 1), np.repeat(zero, 16, 1)
    bound = 80 * 2.0**-24 * (np.abs(s) * (q + np.abs(z) + 8) * stored) @ np.abs(x)
    for more, want in (((zero,), s * (q - z)), ((), s * (q - 8)), (("zero_after", zero), s * (q - 8) + z)):
        close(ctx.dense_addmm(w, x, a_scales=(scale, 1, 16, *more)), (want * stored) @ x, bound + 1e-6 * (len(more) == 2))
    data = bs.library().write_safetensors({"w": w, "b": scale})
    back = bs.library().safetensors(data).matrix("w")
    assert back.block == (8, 16) and back.dtype == bs.U4
    equal(back.stored, values)
    top, same, room = w.block_rows_of(0, 1), w.with_values(values), w.with_values(None, "u4")
    assert top.dtype == same.dtype == room.dtype == bs.U4 and top.rows == 8 and room.block == (8, 16)
    equal(ctx.dense_addmm(top, x), ctx.dense_addmm(w, x)[:8]), equal(ctx.dense_addmm(same, x), ctx.dense_addmm(w, x))
    equal(ctx.dense_addmm(back, x, a_scales=(scale, 1, 16, zero)), ctx.dense_addmm(w, x, a_scales=(scale, 1, 16, zero)))
    raises(lambda: bs.make(crow, col, values[:, :, ::2], (24, 32), dtype="u4"), ValueError, "packed bytes")
    raises(lambda: bs.make(crow, col, values.astype(np.float32), (24, 64), dtype="u4"), ValueError, "packed bytes")
    refused(lambda: ctx.to_dense(w), "BAD_DTYPE")


@case
def conversions_are_scipys():
    needs_scipy()
    for block in ((1, 1), (3, 3), (4, 2), (5, 7)):
        for _ in range(4):
            shape = tuple(rng.integers(1, 40, 2))
            n = int(rng.integers(0, 80))
            coo = sp.coo_array((numbers(n), (rng.integers(0, shape[0], n), rng.integers(0, shape[1], n))), shape=shape)
            want = np.zeros([-(-s // b) * b for s, b in zip(shape, block)])
            np.add.at(want, coo.coords, coo.data)
            csr = coo.tocsr()
            for m in (ctx.from_coo(coo, block), ctx.from_csr(csr, block), ctx.reblock(ctx.from_coo(coo, (1, 1)), block),
                      ctx.from_csr((csr.indptr, csr.indices, csr.data), block, shape=shape, dtype="f64", index="i64")):
                ctx.validate(m)
                close(m.scipy().toarray() if m.index_dtype else None, want, 1e-15)
                close(ctx.to_dense(m), want, 1e-15)
                close(ctx.to_dense(m, shape=shape), want[:shape[0], :shape[1]], 1e-15)
            crow, col, values = ctx.to_csr(m)
            back = sp.csr_array((values, col, crow), shape=want.shape)
            assert back.has_canonical_format
            close(back.toarray(), want, 1e-15)
            crow, row, col, values = ctx.to_coo(m, shape=shape, dtype="f32", index="i32")
            assert values.dtype == np.float32 and row.dtype == col.dtype == np.int32
            close(sp.coo_array((values, (row, col)), shape=shape).toarray(), want[:shape[0], :shape[1]], 1e-6)
            equal(ctx.from_csr((csr.indptr, csr.indices, None), (1, 1), shape=shape).stored, np.ones((csr.nnz, 1, 1), np.float32))
            tiles = want.reshape(want.shape[0] // block[0], block[0], want.shape[1] // block[1], block[1])
            ours = sorted(zip(*np.nonzero(tiles.any((1, 3)))))
            got = ctx.from_dense(want, block)
            assert [(r, c) for r in range(len(got.crow) - 1) for c in got.col[got.crow[r]:got.crow[r + 1]]] == ours


@case
def files_of_scipy():
    needs_scipy()
    with tempfile.TemporaryDirectory() as folder:
        for index, (a, block) in enumerate(((sp.random_array((30, 42), density=.2, rng=rng).tobsr((3, 6)), (3, 6)),
                                            (sp.random_array((9, 5), density=.5, rng=rng).tocsr(), (1, 1)),
                                            (sp.bsr_array((12, 8), blocksize=(4, 4)), (4, 4)))):
            file = os.path.join(folder, f"{index}.npz")
            sp.save_npz(file, a)
            b = sp.load_npz(file)
            x = numbers((a.shape[1], 5))
            assert bs.matrix(b).block == block
            close(ctx.dense_mm(b, x), a @ x, 1e-13)
            sp.save_npz(file, bs.matrix(b).scipy())
            equal(sp.load_npz(file).toarray(), a.toarray())


@case
def a_linear_solver_of_scipy():
    needs_scipy()
    from scipy.sparse.linalg import LinearOperator, cg
    n = 60
    full = (lambda x: x @ x.T + 60 * np.eye(n))(numbers((n, n)))
    a = ctx.from_dense(full, 3)
    want = numbers(n)
    x, failed = cg(LinearOperator((n, n), matvec=lambda v: ctx.dense_mm(a, v.ravel()), dtype=float), full @ want, rtol=1e-12)
    assert not failed
    close(x, want, 1e-9)


# ---- operations against NumPy ----

@case
def the_whole_epilogue():
    a, x = random_matrix(5, 6, (3, 4)), numbers((24, 7))
    product, left, right, bias, c = expand(a) @ x, numbers(15), numbers(7), numbers(7), numbers((15, 7))
    erf = np.vectorize(__import__("math").erf)
    acts = {"none": lambda v: v, "relu": lambda v: np.maximum(v, 0), "silu": lambda v: v / (1 + np.exp(-v)),
            "gelu": lambda v: v / 2 * (1 + erf(v / 2 ** .5)),
            "gelu_tanh": lambda v: v / 2 * (1 + np.tanh((2 / np.pi) ** .5 * (v + .044715 * v ** 3)))}
    for name, act in acts.items():
        want = act(.5 * c + left[:, None] * (1.5 * product) * right + bias)
        close(ctx.dense_addmm(a, x, c, .5, 1.5, left, right, bias, activation=name), want, 1e-13)
        out = np.full((15, 14), np.nan)[:, ::2]
        assert ctx.dense_addmm(a, x, c, None, 2, left[:, None], right[None], numbers(7) * 0, name, out=out) is out
        close(out, act(c + left[:, None] * (2 * product) * right), 1e-13)
    alpha, beta = np.array([3.0]), np.array([-2.0])
    close(ctx.dense_addmm(a, x, c, 9, 9, alpha_ptr=alpha, beta_ptr=beta), 3 * product - 2 * c, 1e-13)
    close(ctx.dense_addmm(a, x), product, 1e-13)
    close(ctx.dense_addmm(a, x, bias=numbers((15, 1)) * 0 + 1), product + 1, 1e-13)
    close(ctx.dense_addmm(a, c, trans=True), expand(a).T @ c, 1e-13)


@case
def types_of_products():
    for dtype, outs in (("f16", ("f16", "f32")), ("bf16", ("bf16", "f32")), ("f32", ("f32", "f16", "bf16")), ("f64", ("f64",)),
                        ("i8", ("i32", "i8", "f16", "bf16", "f32"))):
        kind = np.dtype(bs.NUMPY[bs.DTYPES[dtype] - 1])
        whole = rng.integers(-3, 4, (4, 5))  # small whole numbers are exact in every type
        a = random_matrix(2, 3, (2, 3), np.int8)
        a = a.with_values(np.sign(a.stored).astype(kind) if dtype != "bf16" else bs.bf16(np.sign(a.stored)))
        x = rng.integers(-3, 4, (9, 5))
        b = bs.bf16(x) if dtype == "bf16" else x.astype(kind)
        sparse = a.with_values(bs.f32(a.stored)) if dtype == "bf16" else a
        for out in outs:
            y = ctx.dense_mm(a, b, dtype=out)
            assert y.dtype == bs.NUMPY[bs.DTYPES[out] - 1]
            equal(bs.f32(y).astype(float) if out == "bf16" else y.astype(float), expand(sparse) @ x)
        refused(lambda: ctx.dense_mm(a, b, dtype="i64"), "BAD_DTYPE", argument="out")
        assert ctx.supports("dense_addmm", dtype, outs[0], (2, 3)) and not ctx.supports("softmax", "i8")
    y = numbers(2000, np.float32) * np.float32(1e30)
    y[:5] = np.nan, np.inf, -np.inf, 0, -0.0
    close(bs.f32(bs.bf16(y))[3:], y[3:].astype(float), np.abs(y[3:]) * 2.0 ** -8)
    assert np.isnan(bs.f32(bs.bf16(y))[0]) and (bs.f32(bs.bf16(y))[1:3] == y[1:3]).all()
    bits = np.array([0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f800001, 0xffffffff, 0x7f7fffff], np.uint32)
    equal(bs.bf16(bits.view(np.float32)), np.array([0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7fc0, 0xffff, 0x7f80], np.uint16))
    try:
        import ml_dtypes
    except ImportError:
        return
    b = numbers((9, 5)).astype(ml_dtypes.bfloat16)
    equal(ctx.dense_mm(a.with_values(None, "bf16").with_values(np.ones((a.nnz, 2, 3), np.uint16)), b).dtype, np.dtype(np.uint16))


@case
def matmul_in_its_three_modes_and_gradients():
    for batch in ((), (2,), (2, 3)):
        for ta, tb, tc in np.ndindex(2, 2, 2):
            m, k, n, block = 4, 5, 3, (2, 3)
            for mode in ("dsd", "dds", "sdd"):
                s = {"dsd": random_matrix(k, m, block) if ta else random_matrix(m, k, block),
                     "dds": random_matrix(n, k, block) if tb else random_matrix(k, n, block),
                     "sdd": random_matrix(n, m, block) if tc else random_matrix(m, n, block)}[mode]
                full, stored = expand(s), expand(s.with_values(np.ones_like(s.stored)))
                rows, inner, cols = {"dsd": (*((s.cols, s.rows) if ta else (s.rows, s.cols)), 4),
                                     "dds": (4, *((s.cols, s.rows) if tb else (s.rows, s.cols))),
                                     "sdd": ((s.cols, 6, s.rows) if tc else (s.rows, 6, s.cols))}[mode]
                op = lambda x, t: np.swapaxes(x, -1, -2) if t else x
                a = full if mode == "dsd" else numbers(batch + ((inner, rows) if ta else (rows, inner)))
                b = full if mode == "dds" else numbers(batch + ((cols, inner) if tb else (inner, cols)))
                want = op(op(a, ta) @ op(b, tb), tc)
                how = dict(trans_a=ta, trans_b=tb, trans_c=tc)
                x, y = s if mode == "dsd" else a, s if mode == "dds" else b
                if mode == "sdd":
                    if batch:
                        continue  # a result for each item is a batch of matrices: below
                    got = ctx.matmul(x, y, pattern=s, **how)
                    close(expand(got), want * stored, 1e-13)
                    dc, dfull = s, full
                else:
                    close(ctx.matmul(x, y, **how), want, 1e-13)
                    dc = dfull = numbers(want.shape)
                da = s.with_values(None, bs.F64) if mode == "dsd" else np.full(a.shape, np.nan)
                db = s.with_values(None, bs.F64) if mode == "dds" else np.full(b.shape, np.nan)
                ctx.matmul_backward(x, y, dc, da, db, **how)
                g = op(dfull, tc)
                for got, wanted, shape, sparse in ((da, op(g @ op(op(b, tb), True), ta), a.shape, mode == "dsd"),
                                                   (db, op(op(op(a, ta), True) @ g, tb), b.shape, mode == "dds")):
                    while wanted.ndim > len(shape):
                        wanted = wanted.sum(0)
                    close(expand(got) if sparse else got, wanted * stored if sparse else wanted, 1e-12)


@case
def lists_of_products():
    for format in ("scatter_mm", "strided", "strided_compressed"):
        a, b = random_matrix(4, 5, (2, 3)), numbers((15, 6))
        lists = ctx.scatter_indices(a, 6, format, split_n=2)
        close(ctx.dense_scatter_mm(a, b, lists), expand(a) @ b, 1e-14)
    blocks, others, acc = numbers((2, 3, 4)), numbers((2, 4, 5)), numbers((2, 3, 5))
    want = acc + np.stack([blocks[0] @ others[1] + blocks[1] @ others[0], blocks[1] @ others[1]])
    i = lambda *x: np.array(x, np.int64)
    close(ctx.scatter_mm(blocks, others, ctx.scatter_lists("scatter_mm", i(0, 2, 3), i(0, 1, 1), i(1, 0, 1)), acc), want, 1e-14)
    raises(lambda: ctx.scatter_lists("scatter_mm", np.arange(3)[::2]), TypeError, "int64")
    refused(lambda: ctx.scatter_mm(blocks, others, ctx.scatter_lists("scatter_mm", i(0, 2, 3), i(0, 1, 2), i(1, 0, 1)), acc),
            "BAD_STRUCTURE", "INDICES_RANGE", "indices")


@case
def sampled_softmax_attention():
    crow, col = pattern(4, 6, .5)
    m = bs.make(crow, col, None, (12, 12), (3, 2))
    stored = expand(m.with_values(np.ones((m.nnz, 3, 2)))) > 0
    x, y = numbers((12, 5)), numbers((5, 12))
    s = ctx.sampled_addmm(x, y, m, alpha=.5)
    close(expand(s), .5 * (x @ y) * stored, 1e-14)
    close(expand(ctx.sampled_addmm(x, y, input=s)), 1.5 * (x @ y) * stored, 1e-14)
    assert ctx.sampled_addmm(x, y, out=s) is s
    close(expand(s), (x @ y) * stored, 1e-14)
    bias, padding, mask = numbers((12, 12)), rng.integers(0, 2, 12).astype(bool), np.where(rng.random((12, 12)) < .3, -np.inf, 0)
    scores = np.where(stored & padding, 2 * (x @ y) + bias + mask, -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.nan_to_num(np.exp(scores - scores.max(1, keepdims=True)))
    p = p / np.maximum(p.sum(1, keepdims=True), 1e-300)
    got = ctx.softmax(s, 2, bias, padding, mask, key_padding_mode="mul")
    close(expand(got), p, 1e-13)
    g = s.with_values(numbers(s.stored.shape))
    close(expand(ctx.softmax_backward(got, g, 2)), 2 * p * (expand(g) - (p * expand(g)).sum(1, keepdims=True)) * stored, 1e-13)

    q, k, v, lse = numbers((2, 12, 5)), numbers((1, 12, 5)), numbers((12, 4)), np.empty((2, 12, 1))
    scores = np.where(stored & np.tri(12, k=2).astype(bool), .5 * (q @ k.swapaxes(1, 2)) + bias, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        e = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
        want_lse = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0) + np.log(e.sum(-1, keepdims=True))
    got = ctx.attention(q, k, v, m, lse, scale=.5, causal=True, causal_offset=2, relative_bias=bias)
    close(got, (e / np.maximum(e.sum(-1, keepdims=True), 1e-300)) @ v, 1e-13)
    there = np.isfinite(want_lse)
    assert (np.isneginf(lse) == ~there).all()
    close(lse[there], want_lse[there], 1e-13)
    dropped = ctx.attention(q, k, v, m, dropout_p=1.0)
    equal(dropped, np.zeros((2, 12, 4)))
    allow = m.with_values(rng.integers(0, 2, (m.nnz, 3, 2)).astype(bool))
    kept = np.where(expand(allow) > 0, q[0] @ k[0].T / 5 ** .5, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.nan_to_num(np.exp(kept - kept.max(-1, keepdims=True)))
    close(ctx.attention(q[0], k[0], v, allow, mask_values="boolean"), e / np.maximum(e.sum(-1, keepdims=True), 1e-300) @ v, 1e-13)
    options = dict(scale=.5, causal=True, causal_offset=2, relative_bias=bias)
    got = ctx.attention(q, k, v, m, lse, **options)
    g, scores = numbers(got.shape), np.where(stored & np.tri(12, k=2).astype(bool), .5 * (q @ k.swapaxes(1, 2)) + bias, -np.inf)
    p = np.where(np.isfinite(lse), np.exp(scores - np.where(np.isfinite(lse), lse, 0)), 0)
    ds = p * (g @ v.T - (got * g).sum(-1, keepdims=True) + 1)
    dq, dk, dv, d_bias, d_scores = (np.full(x.shape, np.nan) for x in (q, k, v, bias, np.empty((2, m.nnz, 3, 2))))
    both = bs.make(np.stack([m.crow, m.crow]), np.stack([m.col, m.col]), d_scores, (12, 12), (3, 2))
    ctx.attention_backward(q, k, v, m, got, lse, g, dq, dk, dv, d_lse=np.ones_like(lse), d_relative_bias=d_bias, d_scores=both,
                           **options)
    close(dq, .5 * ds @ k, 1e-13), close(dk, (.5 * ds.swapaxes(1, 2) @ q).sum(0, keepdims=True), 1e-13)
    close(dv, (p.swapaxes(1, 2) @ g).sum(0), 1e-13), close(d_bias, ds.sum(0), 1e-13), close(
        np.stack([expand(m.with_values(x)) for x in d_scores]), ds, 1e-13)
    refused(lambda: ctx.attention_backward(q, k, v, m, got, lse, g[:1], dq), "BAD_BATCH", "BATCH_SIZE", "d_out")

    sinks, slopes, top, lengths = numbers((2, 1, 1)), numbers((1, 1)), np.empty((2, 12, 1)), np.array([9], np.int32)
    kinds = np.arange(m.nnz, dtype=np.uint8) % 3
    kind = np.repeat(np.repeat([[dict(zip(zip(np.repeat(np.arange(4), np.diff(m.crow)), m.col), kinds)).get((r, c), 2)
                                 for c in range(6)] for r in range(4)], 3, 0), 2, 1)
    away = np.arange(12) - np.arange(12)[:, None]
    allowed = (kind < 2) & ((kind == 1) | ((away >= -4) & (away <= 3))) & (np.arange(12) < 9)
    scores = np.where(allowed, .8 * np.tanh(.5 * (q @ k.swapaxes(1, 2)) / .8) - slopes * abs(away), -np.inf)
    want_lse = np.log(np.exp(scores).sum(-1, keepdims=True) + np.exp(sinks))
    options = dict(scale=.5, window=(4, 3), block_kind=kinds, softcap=.8, slopes=slopes, sinks=sinks, k_lengths=lengths,
                   row_max=top)
    got = ctx.attention(q, k, v, m, lse, **options)
    close(lse, want_lse, 1e-13), close(got, np.exp(scores - lse) @ v, 1e-13)
    equal(np.isneginf(top), np.broadcast_to(~allowed.any(-1)[:, None], top.shape))
    d_sinks, d_slopes, p = np.empty_like(sinks), np.empty_like(slopes), np.exp(scores - lse)
    ctx.attention_backward(q, k, v, m, got, lse, g, d_sinks=d_sinks, d_slopes=d_slopes, **options)
    delta = (got * g).sum(-1, keepdims=True)
    close(d_sinks, -(np.exp(sinks - lse) * delta).sum(1, keepdims=True), 1e-13)
    close(d_slopes, -(p * (g @ v.T - delta) * abs(away)).sum().reshape(1, 1), 1e-12)
    raises(lambda: ctx.attention(q, k, v, m, block_kind=kinds.astype(np.int8)), TypeError, "uint8")
    refused(lambda: ctx.attention(q, k, v, m, block_kind=kinds + 1), "BAD_ARGUMENT", "BLOCK_KIND", "options")
    norms = np.empty((2, 2, 12, 1))
    halves = [ctx.attention(q, k, v, m, norms[i], window=w, relative_bias=bias) for i, w in enumerate(((20, -1), (0, 20)))]
    all_lse, merged = np.empty((2, 12, 1)), ctx.attention(q, k, v, m, lse, relative_bias=bias)
    close(ctx.attention_merge(halves, list(norms), all_lse), merged, 1e-13), equal(np.isneginf(all_lse), np.isneginf(lse))
    raises(lambda: ctx.attention_merge(halves, norms[:1]), ValueError, "as many")
    whole = m.with_values(np.zeros((m.nnz, 3, 2), bool))
    equal(ctx.attention(q, k, v, whole, mask_values="boolean", causal=True, full=True), ctx.attention(q, k, v, m))


def needs(name):
    if not hasattr(bs.library().c, name):
        raise Skip(f"{bs.library().path} has no bsr_{name}")


@case
def sums_of_products():
    needs("sum_mm")
    a, b, c = random_matrix(4, 5, (3, 2)), random_matrix(2, 3, (6, 4)), ctx.transposed_index(random_matrix(2, 4, (5, 3)))
    x, y, z, bias, d = numbers((10, 7)), numbers((12, 7)), numbers((10, 7)), numbers(7), numbers((12, 7))
    want = expand(a) @ x + 2 * expand(b) @ y - expand(c).T @ z
    close(ctx.sum_mm([(a, x), (b, y, 2.0), (c, z, -1.0, True)]), want, 1e-13)
    out = np.full((12, 7), np.nan)
    assert ctx.sum_mm([(a, x), (b, y)], d, .5, out=out, bias=bias, activation="relu") is out
    close(out, np.maximum(.5 * d + expand(a) @ x + expand(b) @ y + bias, 0), 1e-13)
    refused(lambda: ctx.sum_mm([(a, x), (b, x)]), "BAD_SHAPE")
    raises(lambda: ctx.sum_mm([]), ValueError, "no terms")


@case
def chains_of_products():
    needs("chain_mm")
    a, c, x = random_matrix(4, 5, (3, 2)), random_matrix(6, 2, (4, 6)), numbers((10, 7))
    bias, middle = numbers((12, 1)), np.full((12, 7), np.nan)
    inside = np.maximum(expand(a) @ x + bias, 0)
    close(ctx.chain_mm(a, x, c, {"bias": bias, "activation": "relu"}, middle), expand(c) @ inside, 1e-13)
    close(middle, inside, 1e-14)
    d, ends = numbers((24, 7)), []
    timing = bs.Timing(now=bs.CLOCK(lambda _: ends.append(0) or float(len(ends))))
    e = ctx.exec(timing=timing)
    close(ctx.chain_mm(a, x, c, input=d, beta=2.0, alpha=.5, activation="relu", exec=e),
          np.maximum(2 * d + .5 * expand(c) @ expand(a) @ x, 0), 1e-13)
    assert timing.seconds == 1.0 and len(ends) == 2
    refused(lambda: ctx.chain_mm(a, x, a), "BAD_SHAPE")
    p, q, z = numbers((12, 5)), numbers((5, 10)), numbers((12, 3))
    m, kept = a.with_values(None, bs.F64), a.with_values(None, bs.F64)
    out = ctx.sampled_chain_mm(p, q, m, z, "tanh", .5, kept, trans=True)
    stored = expand(a.with_values(np.ones_like(a.stored)))
    close(expand(kept), .5 * (p @ q) * stored, 1e-14)
    close(expand(m), np.tanh(.5 * (p @ q) * stored), 1e-14)
    close(out, expand(m).T @ z, 1e-13)


@case
def mixtures_of_experts():
    needs("moe_route")
    tokens, experts, h, f = 37, 5, 6, 4
    chosen = rng.integers(-1, experts, (tokens, 2)).astype(np.int32)
    x, weights, dy = numbers((tokens, h)), numbers((tokens, 2)), numbers((tokens, h))
    r = ctx.moe_route(chosen, experts, block_rows=3)
    counts, offsets, row_of, slot_of = (r.arrays[n] for n in ("counts", "offsets", "row_of", "slot_of"))
    equal(counts, np.bincount(chosen[chosen >= 0], minlength=experts).astype(np.int32))
    for t in range(tokens):
        for s in range(2):
            row = row_of[t, s]
            assert (row < 0) == (chosen[t, s] < 0)
            assert row < 0 or (offsets[chosen[t, s]] <= row < offsets[chosen[t, s] + 1] and slot_of[row] == 2 * t + s)
    gathered = ctx.moe_gather(r, x, weights)
    want = np.zeros((r.rows, h))
    for row in np.flatnonzero(slot_of >= 0):
        want[row] = weights.flat[slot_of[row]] * x[slot_of[row] // 2]
    close(gathered, want, 1e-15)
    m = ctx.moe_topology(r, f, block_cols=2, dtype=bs.F64, transposed=True)
    gate, up, w2 = numbers((h, experts * f)), numbers((h, experts * f)), numbers((experts * f, h))
    kept = [m.with_values(None, bs.F64) for _ in range(2)]
    y = ctx.sampled_gated(gathered, gate, up, m, "relu", *kept)
    rows = offsets[-1]  # what is behind is not in use
    mine = np.zeros((r.rows, experts * f))
    for e in range(experts):
        mine[offsets[e]:offsets[e + 1], e * f:(e + 1) * f] = 1
    close(expand(kept[0])[:rows], (want @ gate * mine)[:rows], 1e-13)
    hidden = np.maximum(want @ gate, 0) * (want @ up) * mine
    close(expand(y)[:rows], hidden[:rows], 1e-12)
    back = ctx.dense_mm(y, w2)
    close(ctx.dense_mm(y, gathered, trans=True), hidden.T @ want, 1e-11)  # by the index
    summed = numbers((tokens, h))
    expected = 2 * summed + sum(np.where(row_of[:, s:s + 1] >= 0, weights[:, s:s + 1] * back[row_of[:, s]], 0) for s in range(2))
    close(ctx.moe_scatter(r, back, weights, summed, 2.0), expected, 1e-12)
    slopes = np.stack([np.where(row_of[:, s] >= 0, (back[row_of[:, s]] * dy).sum(-1), 0) for s in range(2)], -1)
    close(ctx.moe_weight_gradient(r, back, dy), slopes, 1e-12)
    refused(lambda: ctx.moe_route(chosen, experts, block_rows=3, rows=3), "CAPACITY")


def conv_by_loops(x, w, stride, pad, dilation, groups):
    (n, channels, high, wide), (filters, per, kh, kw) = x.shape, w.shape
    padded = np.zeros((n, channels, high + sum(pad[0]), wide + sum(pad[1])))
    padded[:, :, pad[0][0]:pad[0][0] + high, pad[1][0]:pad[1][0] + wide] = x
    size = [(padded.shape[2 + a] - dilation[a] * (w.shape[2 + a] - 1) - 1) // stride[a] + 1 for a in (0, 1)]
    y = np.zeros((n, filters, *size))
    for o in range(filters):
        for c in range(per):
            seen = padded[:, o // (filters // groups) * per + c]
            for i in range(kh):
                for j in range(kw):
                    y[:, o] += w[o, c, i, j] * seen[:, i * dilation[0]:, j * dilation[1]:][:, ::stride[0], ::stride[1]][
                        :, :size[0], :size[1]]
    return y


@case
def convolutions():
    needs("conv")
    x, w = numbers((2, 6, 7, 9)), numbers((8, 3, 3, 2))
    shape = ctx.conv_shape((3, 2), (2, 1), ((1, 2), (0, 1)), (1, 2), 2)
    m, bias = ctx.conv_prune(w, 0, (4, 3)), numbers(8)
    want = conv_by_loops(x, w, (2, 1), ((1, 2), (0, 1)), (1, 2), 2)
    close(ctx.conv(shape, m, x), want, 1e-13)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    close(ctx.conv(shape, m, last, bias=bias, activation="relu"), np.maximum(want + bias[:, None, None], 0), 1e-13)
    dy = numbers(want.shape)
    dx, dw = ctx.conv(shape, m, dy, trans=True, out=np.full(x.shape, np.nan)), ctx.conv_weight_gradient(shape, dy, last, m)
    assert abs((dx * x).sum() - (dy * want).sum()) < 1e-11 * np.abs(dy * want).sum()
    assert abs((dw.stored * m.stored).sum() - (dy * want).sum()) < 1e-11 * np.abs(dy * want).sum()
    assert len(ctx.conv_prune(w, .5, (4, 3)).stored) == 6
    refused(lambda: ctx.conv(ctx.conv_shape((3, 2), groups=4), m, x), "BAD_SHAPE")
    raises(lambda: ctx.conv(shape, m, dy, trans=True), ValueError, "needs out")
    c, size = bs.library().c, (bs.i64 * 2)(7, 9)
    d = c.dense_image(bs.address(x), bs.F64, 1, 2, size, 2, 6)
    assert (d.rows, d.cols, *d.batch[:2], d.row_stride, d.col_stride, *d.batch_stride[:2]) == (6, 9, 2, 7, 63, 1, 378, 9)
    d = c.dense_filter(bs.address(w), bs.F64, 1, shape, 8, 3)
    assert (d.rows, d.cols, *d.batch[:2], d.row_stride, d.col_stride, *d.batch_stride[:2]) == (8, 3, 3, 2, 18, 6, 2, 1)


@case
def functions_and_sums_of_stored_elements():
    needs("map"), needs("reduce")
    a = random_matrix(4, 5, (3, 2))
    b, rows = a.with_values(numbers(a.stored.shape)), numbers((12, 1))
    close(ctx.map(a, "exp").stored, np.exp(a.stored), 1e-14)
    close(ctx.map(a, "tanh", b, "mul", alpha=2, after=True).stored, np.tanh(2 * a.stored) * b.stored, 1e-14)
    close(ctx.map(a, y=b, combine="sub", beta=3).stored, a.stored - 3 * b.stored, 1e-14)
    close(expand(ctx.map(a, y=rows, combine="mul")), expand(a) * rows, 1e-14)
    close(ctx.map(a, "clamp", low=-.25, high=.5).stored, np.clip(a.stored, -.25, .5), 0)
    assert ctx.map(a, dtype="f32").stored.dtype == np.float32 and not ctx.map(a, dropout_p=1.0).stored.any()
    assert ctx.map(a, "square", out=b) is b
    close(b.stored, a.stored ** 2, 1e-15)
    full = expand(a)
    close(ctx.reduce(a), full.sum(1, keepdims=True), 1e-13)
    close(ctx.reduce(a, "sum_squares", "cols"), (full ** 2).sum(0, keepdims=True), 1e-13)
    close(ctx.reduce(a, "max_abs", "blocks"), np.abs(a.stored).max((1, 2))[:, None], 0)
    close(ctx.reduce(a, "norm2", "all"), np.array([[np.linalg.norm(full)]]), 1e-13)
    refused(lambda: ctx.map(a, 9999), "BAD_ARGUMENT")


@case
def numbers_of_8_bits_with_scales():
    needs("quantise"), needs("dequantise")
    a, b = random_matrix(4, 5, (3, 2)), numbers((10, 9))
    codes, scales = ctx.quantise(b, "i8", 0, 1)
    close(scales[0], np.abs(b).max(0, keepdims=True).astype(np.float32) / 127, 1e-7)
    assert codes.dtype == np.int8 and (np.abs(codes * scales[0] - b) <= .51 * scales[0]).all()
    close(ctx.dequantise(codes, scales), codes * scales[0], 1e-7)
    blocks, of_blocks = ctx.quantise(a, "i8", blocks=True)
    back = ctx.dequantise(blocks, of_blocks, "f64")
    close(of_blocks[0].reshape(-1), np.abs(a.stored).max((1, 2)).astype(np.float32) / 127, 1e-7)
    assert np.abs(back.stored - a.stored).max() <= .51 * of_blocks[0].max()
    product = ctx.dense_addmm(blocks, codes, a_scales=of_blocks, b_scales=scales)
    close(product, expand(back) @ (codes * scales[0]), 1e-5)
    refused(lambda: ctx.quantise(b, "f16"), "BAD_DTYPE")


@case
def patterns_and_layouts():
    mask = rng.random((3, 4, 5)) < .4
    ragged = ctx.from_block_mask(mask, (2, 3), ragged=True)
    assert ragged.crow.shape == (3, 5) and ragged.nnz == mask.sum() and ragged.shape == (3, 8, 15)
    m = ragged.with_values(np.ones((ragged.nnz, 2, 3)))
    x = numbers((3, 15, 4))
    close(ctx.dense_mm(m, x), mask.repeat(2, 1).repeat(3, 2) @ x, 1e-13)
    if len({int(k.sum()) for k in mask}) > 1:
        refused(lambda: ctx.from_block_mask(mask, (2, 3)), "BAD_STRUCTURE", "UNEQUAL_NNZ")
    m, kinds = ctx.block_mask(30, 24, (4, 3), causal=True, causal_offset=-2, window=(9, 0))
    away = np.arange(24) - np.arange(32)[:, None] + 2
    allowed = ((away <= 0) & (away >= -9))[:30]
    cells = [allowed[4 * i:4 * i + 4, 3 * j:3 * j + 3] for i in range(8) for j in range(8)]
    there = ctx.to_dense(m.with_values(np.ones((m.nnz, 4, 3)))).reshape(8, 4, 8, 3).any((1, 3))
    equal(there.ravel(), [c.any() for c in cells])
    equal(kinds, np.array([c.all() for c in cells if c.any()], np.uint8))
    lists = ctx.to_block_lists(m, kinds)
    equal(lists[0] + lists[2], np.diff(m.crow))
    assert lists[2].sum() == kinds.sum() > 0
    back, again = ctx.from_block_lists(*lists[:2], m.shape, (4, 3), *lists[2:])
    equal(back.col, m.col), equal(back.crow, m.crow), equal(again, kinds)
    one = ctx.to_block_lists(m, kinds, width=6, full=False)
    assert one[2:] == [None, None] and (one[0] == np.diff(m.crow)).all()
    refused(lambda: ctx.to_block_lists(m, kinds, width=0), "CAPACITY", "CAPACITY", "lists")
    x, y = numbers((30, 6)), numbers((24, 6))
    pooled = ctx.pool_blocks(x, 4), ctx.pool_blocks(y, 3, "max")
    close(pooled[0], np.array([x[4 * i:4 * i + 4].mean(0) for i in range(8)]), 1e-13), equal(pooled[1], y.reshape(8, 3, 6).max(1))
    s = pooled[0] @ pooled[1].T
    m2, kinds2 = ctx.select_blocks((32, 24), (4, 3), q=pooled[0], k=pooled[1], top_k=3, first=1, forced_count=True)
    best = [sorted([0] + (1 + np.argsort(-s[i, 1:])[:2]).tolist()) for i in range(8)]
    equal(m2.col, np.ravel(best).astype(np.int32)), equal(kinds2, np.ones_like(kinds2))
    m2, _ = ctx.select_blocks((32, 24), (4, 3), scores=s, threshold=.1)
    equal(np.diff(m2.crow), (s >= .1).sum(1).astype(np.int32))
    refused(lambda: ctx.select_blocks((32, 24), (4, 3), scores=s, top_p=2), "BAD_ARGUMENT", "SELECT_FIELD", "options")
    inside, _ = ctx.block_mask(30, 24, (4, 3), within=m)
    equal(inside.col, m.col)
    r = ctx.random_pattern((32, 48), (4, 8), .5, seed=3, batch=(2,))
    assert r.nnz == bs.library().kept_blocks(48, .5) == 24 and r.stored is None
    equal(ctx.random_pattern((32, 48), (4, 8), .5, seed=3, batch=(2,)).col, r.col)
    w = numbers((32, 48), np.float32)
    norms = np.sqrt((w.reshape(8, 4, 6, 8).astype(float) ** 2).sum((1, 3)))
    kept = np.sort(np.argsort(-norms, None, kind="stable")[:12])
    pruned = ctx.prune(w, .75, block=(4, 8))
    rows = np.repeat(np.arange(8), np.diff(pruned.crow))
    equal(rows * 6 + pruned.col, kept)
    again = ctx.prune(pruned, .875, norm="max")
    assert again.nnz == 6 and again.block == (4, 8)
    layout = ctx.layout_mask("bigbird", 4, 8, num_random_blocks=2, seed=7)
    assert layout.shape == (4, 8, 8) and layout.max() == 1 and layout.sum() > 4 * 8
    window = ctx.layout_mask("local_sliding_window", 1, 6, num_sliding_window_blocks=3)[0]
    equal(window, (np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 1).astype(np.uint8) * window)
    variable = ctx.layout_mask("variable", 1, 8, local_window_blocks=[2, 3], global_block_indices=[5], num_random_blocks=0)
    assert variable[0, :, 5].all() and variable[0, :2, :2].all() and variable[0, 2:5, 2:5].all()
    e = refused(lambda: ctx.layout_mask("bigbird", 4, 8, num_random_blocks=-1), "BAD_ARGUMENT", "LAYOUT_FIELD")
    assert e.index == 9
    raises(lambda: ctx.layout_mask("fixed", 1, 2, unknown=1), TypeError, "unknown")


@case
def texts_of_files():
    lib = bs.library()
    info, row, col, values = lib.parse_matrix_market("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 -4\n3 3 .5\n")
    equal(np.lexsort((col, row)).size, 3)
    assert (info.rows, info.stored, info.symmetric) == (3, 2, 1)
    close(ctx.to_dense(ctx.from_coo((row, col, values), 1, shape=(3, 3))), np.array([[0, -4, 0], [-4, 0, 0], [0, 0, .5]]), 0)
    info, crow, col = lib.parse_smtx(b"2, 3, 3\n0 1 3\n2 0 1\n")
    equal(ctx.to_dense(ctx.from_csr((crow, col, None), 1, shape=(2, 3))), np.array([[0, 0, 1], [1, 1, 0]], np.float32))
    assert refused(lambda: lib.parse_matrix_market("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 1\n"),
                   "PARSE_ERROR", "PARSE_NUMBER").index == 3
    refused(lambda: lib.parse_smtx("2, 3, 3\n0 1 3\n2 0\n"), "PARSE_ERROR")


@case
def weights_in_files():
    lib, items = bs.library(), {"x": numbers((3, 4)), "vector": numbers(5, np.float32), "": random_matrix(2, 3, (2, 2))}
    for name in bs.NUMPY[:8]:  # all but ml_dtypes'
        items["type " + name] = (rng.integers(0, 2, (2, 3, 5)) if name == "bool" else numbers((2, 3, 5)) * 9).astype(name)
    crow, col = pattern(4, 5, .5, np.int64)
    shared = [np.broadcast_to(x, (2,) + x.shape) for x in (crow, col)]
    items["many"] = bs.make(*shared, numbers((2, len(col), 2, 3), np.float32), (8, 15))
    items["strided"] = random_matrix(3, 3, (2, 4)).with_values(None, bs.F64)
    items["strided"] = items["strided"].with_values(numbers(items["strided"].stored.shape[::-1]).T)
    items["ragged"] = ctx.from_block_mask(rng.random((3, 4, 5)) < .4, (2, 3), ragged=True)
    items["pattern"] = bs.make(crow, col, None, (12, 10), (3, 2))
    file = lib.write_safetensors(items)
    read = lib.safetensors(file)
    for name, x in items.items():
        if not isinstance(x, bs.Matrix):
            got = read.dense(name)
            equal(got, x[None] if x.ndim == 1 else x)
            assert np.shares_memory(got, read.bytes) and not got.flags.writeable
            continue
        m = read.matrix(name)
        assert (m.shape, m.block, m.flags) == (x.shape, x.block, x.flags)
        equal(m.crow, x.crow), equal(m.col, x.col)
        assert (x.stored is None and m.stored is None) or np.array_equal(m.stored, x.stored)
        assert np.shares_memory(m.crow, read.bytes)
    assert {n for n in read.names() if "." not in n} == {n for n in items if not isinstance(items[n], bs.Matrix)} | {
        "crow_indices", "col_indices", "values"}
    y = numbers((15, 3), np.float32)
    close(ctx.dense_mm(read.matrix("many"), y), ctx.dense_mm(items["many"], y).astype(float), 0)
    refused(lambda: read.dense("nothing"), "BAD_ARGUMENT", "FILE_MISSING")
    assert refused(lambda: lib.safetensors(file[:-1]), "PARSE_ERROR").index >= 0
    equal(np.frombuffer(lib.write_safetensors({}), np.uint8)[8:9], np.frombuffer(b"{", np.uint8))


# ---- inputs that are odd ----

@case
def strides_and_what_is_no_array():
    a, x = random_matrix(4, 5, (3, 2)), numbers((20, 30))
    product = expand(a) @ x[:10, :7]
    for view in (np.asfortranarray(x[:10, :7]), x.T.copy().T[:10, :7], np.broadcast_to(x[:10, :1], (10, 7))):
        close(ctx.dense_mm(a, view), expand(a) @ view, 1e-13)
    close(ctx.dense_mm(a, x[::2, ::3]), expand(a) @ x[::2, ::3], 1e-13)
    e = refused(lambda: ctx.dense_mm(a, x[:10, 6::-1]), "BAD_STRIDE", "STRIDE_NEGATIVE", "b")
    assert e.index == 1 and e.value == -1
    odd = np.zeros(10, [("a", "i1"), ("x", "f8")])["x"]
    raises(lambda: ctx.dense_mm(a, odd), ValueError, "give a copy")
    refused(lambda: ctx.dense_mm(a, np.frombuffer(bytearray(81), np.float64, 10, 1)), "MISALIGNED", argument="b")
    raises(lambda: ctx.dense_mm(a, x[:10].astype(">f8")), TypeError, "byte-swapped")
    for kind in (np.complex128, np.int16, np.uint64):
        raises(lambda: ctx.dense_mm(a, np.zeros(10, kind)), TypeError, "no type")
    raises(lambda: ctx.dense_mm(a, [1.0] * 10), TypeError, "b is list")
    raises(lambda: ctx.dense_mm(expand(a), x[:10]), TypeError, "a is ndarray")
    raises(lambda: ctx.dense_mm(a, np.float64(1)), ValueError, "0 dimensions")
    raises(lambda: ctx.dense_mm(a, np.zeros((1,) * 5 + (10, 1))), ValueError, "7 dimensions")
    fixed = np.zeros((12, 7))
    fixed.flags.writeable = False
    raises(lambda: ctx.dense_mm(a, x[:10, :7], out=fixed), ValueError, "out is read-only")
    repeated = a.with_values(np.broadcast_to(1.0 + np.arange(a.nnz)[:, None, None], a.stored.shape))
    raises(lambda: ctx.sampled_addmm(numbers((12, 3)), numbers((3, 10)), out=repeated), ValueError, "read-only")
    close(ctx.dense_mm(repeated, x[:10, :7]), expand(repeated) @ x[:10, :7], 1e-12)
    backwards = a.with_values(np.asfortranarray(a.stored))
    close(ctx.dense_mm(backwards, x[:10, :7]), product, 1e-13)
    wide = np.full((2 * a.nnz, 3, 4), np.nan)[::2, :, 1::2]
    wide[...] = a.stored
    close(ctx.dense_mm(a.with_values(wide), x[:10, :7]), product, 1e-13)
    raises(lambda: a.with_values(np.broadcast_to(np.float64(1), a.stored.shape)), ValueError, "give a copy")
    raises(lambda: a.with_values(a.stored[:-1]), ValueError, "values has shape")
    raises(lambda: bs.make(np.repeat(a.crow, 2)[::2], a.col, a.stored, (12, 10)), ValueError, "packed")
    raises(lambda: bs.make(a.crow.astype(np.int64), a.col, a.stored, (12, 10)), TypeError, "int32 or int64")
    raises(lambda: bs.make(a.crow[:-1], a.col, a.stored, (12, 10)), ValueError, "crow has shape")
    raises(lambda: bs.make(a.crow.astype(np.float32), a.col.astype(np.float32), a.stored, (12, 10)), TypeError, "int32 or int64")
    raises(lambda: bs.make(a.crow, a.col, None, (12, 10)), TypeError, "block")
    if sp:
        raises(lambda: ctx.dense_mm(sp.eye_array(10).tocsc(), x[:10]), TypeError, "of format csc")
        arrays = np.concatenate([a.stored, np.full((2, 3, 2), np.nan)]), np.concatenate([a.col, a.col[:2] * 0]), a.crow
        more = sp.bsr_array((a.stored, a.col, a.crow), shape=(12, 10))
        more.data, more.indices = arrays[:2]
        close(ctx.dense_mm(more, x[:10, :7]), product, 1e-13)  # SciPy's arrays may be longer than what they hold


@case
def empty_matrices():
    for rows, cols, n in ((0, 0, 0), (0, 4, 3), (4, 0, 3), (4, 5, 0), (4, 5, 3), (0, 0, 3)):
        for dtype in (np.float16, np.float32, np.float64):
            a = bs.make(np.zeros(rows + 1, np.int32), np.zeros(0, np.int32), np.zeros((0, 2, 3), dtype), (2 * rows, 3 * cols))
            out = np.full((2 * rows, n), np.nan, dtype)
            equal(ctx.dense_mm(a, np.full((3 * cols, n), np.nan, dtype), out=out), np.zeros((2 * rows, n), dtype))
            equal(ctx.dense_addmm(a, np.zeros((3 * cols, n), dtype), bias=np.ones(n, dtype)), np.ones((2 * rows, n), dtype))
            ctx.validate(ctx.transposed_index(a))
            equal(ctx.dense_mm(a, np.zeros((2 * rows, n), dtype), trans=True), np.zeros((3 * cols, n), dtype))
            equal(ctx.to_dense(a), np.zeros((2 * rows, 3 * cols), dtype))
            assert ctx.from_dense(np.zeros((2 * rows, 3 * cols), dtype), (2, 3)).nnz == ctx.to_csr(a)[1].size == 0
            equal(ctx.softmax(a).stored, a.stored)
    equal(ctx.dense_mm(random_matrix(2, 2, (1, 1)), np.zeros((0, 2, 3))), np.zeros((0, 2, 3)))


@case
def batches():
    for batch in ((3,), (2, 3), (2, 1, 2, 2)):
        crow, col = pattern(4, 5, .5)
        values = numbers(batch + (len(col), 2, 3))
        shared = [np.broadcast_to(x, batch + x.shape) for x in (crow, col)]
        m = bs.make(*shared, values, (8, 15))
        full = np.stack([expand(bs.make(crow, col, v, (8, 15))) for v in values.reshape((-1,) + values.shape[-3:])])
        full = full.reshape(batch + (8, 15))
        for shape in (batch, (), batch[-1:], (1,) * len(batch)):
            x, y = numbers(shape + (15, 4)), numbers(shape + (8, 4))
            close(ctx.dense_mm(m, x), full @ x, 1e-13)
            close(ctx.dense_mm(ctx.transposed_index(m), y, trans=True), full.swapaxes(-1, -2) @ y, 1e-13)
        close(ctx.to_dense(m), full, 0)
        refused(lambda: ctx.dense_mm(m, numbers((5,) + batch[1:] + (15, 4))), "BAD_BATCH")
        raises(lambda: m.scipy(), ValueError, "batches")
        one = random_matrix(4, 5, (2, 3))
        x = numbers(batch + (15, 4))
        close(ctx.dense_mm(one, x), expand(one) @ x, 1e-13)
        back = ctx.from_dense(full, (2, 3), ragged=True)
        close(ctx.to_dense(back), full, 0)


# ---- errors, plans, contexts ----

@case
def errors_are_exceptions():
    a = random_matrix(4, 5, (3, 2))
    e = refused(lambda: ctx.dense_mm(a, numbers((9, 2))), "BAD_SHAPE", "INNER_MISMATCH", "b")
    assert (e.value, e.wanted, e.code, e.cuda_error) == (9, 10, 4, 0)
    assert e.text == "BSR_BAD_SHAPE: b: the inner size is 9, not 10 as the other operand's"
    assert refused(lambda: ctx.dense_mm(a, numbers((10, 2)), out=numbers((12, 3))), "BAD_SHAPE").argument == "out"
    refused(lambda: ctx.dense_mm(a, numbers((10, 2), np.float32)), "BAD_DTYPE", "DTYPE_MISMATCH")
    x = numbers((12, 4))
    refused(lambda: ctx.dense_mm(a, x[:10], out=x), "OVERLAP", "OVERLAP", "out")
    wrong = bs.make(a.crow, a.col + np.int32(5), a.stored, (12, 10))
    e = refused(lambda: ctx.dense_mm(wrong, x[:10]), "BAD_STRUCTURE", "COL_RANGE", "a")
    assert e.index == 0 and e.value == wrong.col[0]
    word = np.zeros(1, np.uint64)
    refused(lambda: ctx.dense_mm(wrong, x[:10], exec=ctx.exec(bs.CHECK_INDICES, device_status=word)), "BAD_STRUCTURE")
    e = refused(lambda: bs.library().device_status(word[0]), "BAD_STRUCTURE", "COL_RANGE", "a")
    assert e.value == bs.VALUE_UNKNOWN
    assert bs.library().device_status(0) is None
    refused(lambda: ctx.validate(wrong), "BAD_STRUCTURE", "COL_RANGE")
    refused(lambda: ctx.from_csr((np.array([0, 2]), np.array([0, 9]), None), 1, shape=(1, 4)), "BAD_STRUCTURE", "COL_RANGE")
    raises(lambda: ctx.from_csr((np.array([0, 2, 3]), np.array([0, 9]), None), 1, shape=(1, 4)), ValueError, "go together")
    refused(lambda: bs.Context(threads=-1), "BAD_ARGUMENT", "THREADS")
    refused(lambda: bs.Context(backend="cuda"), "NO_BACKEND")
    raises(lambda: bs.Library("/nowhere/libbsrsparse.so"), OSError, "make shared")
    lib = bs.library()
    for name, code, want in (("status", 8, "BSR_OVERLAP"), ("item", 1, "BSR_ITEM_CONTEXT_NULL"), ("operand", 5, "left_alpha"),
                             ("op", 6, "softmax"), ("dtype", 2, "bf16")):
        assert lib.names(name, code) == want
    assert [lib.names("dtype", i) for i in bs.DTYPES.values()] == list(bs.DTYPES) and lib.ops["reblock"] == 27
    assert [lib.c.dtype_size(i) for i in bs.DTYPES.values()] == list(bs.SIZES.values())
    assert lib.c.status_string(8) and lib.c.item_string(5) and lib.version == lib.c.version() > 0


@case
def functions_of_the_user():
    lib, step = bs.library(), np.array([.5], np.float32)  # tests/test_functions.h: compiled into what the tests load
    a, x = random_matrix(4, 4, (3, 2), np.float32), numbers((8, 6), np.float32)
    plain, rows, cols = ctx.dense_mm(a, x).astype(float), np.arange(12)[:, None] % 3, np.arange(6) % 2
    if refused_function(lambda: ctx.dense_addmm(a, x, activation=1000)):
        raise Skip(f"{lib.path} was built without tests/test_functions.h")
    close(ctx.dense_addmm(a, x, activation=1000, user_data=bs.address(step)), plain * 2 + .5 * rows - .25 * cols, 1e-5)
    close(ctx.dense_addmm(a, x, activation=1001), plain * plain, 1e-5)
    q, mask = numbers((12, 5), np.float32), ctx.from_block_mask(np.ones((4, 4), bool), (3, 3))
    s = q.astype(float) @ q.T.astype(float) / 5 ** .5 - .5 * np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    p = np.exp(s - s.max(1, keepdims=True))
    got = ctx.attention(q, q, q, mask, score_function=1000, user_data=bs.address(step))
    close(got, (p / p.sum(1, keepdims=True)) @ q, 1e-5)
    equal(ctx.attention(q, q, q, mask, mask_function=1001), np.zeros((12, 5), np.float32))


def refused_function(call):
    try:
        call()
    except bs.Error as e:
        return e.item == "USER_FUNCTION" or e.item == "ACTIVATION"
    return False


@case
def plans():
    a, x = random_matrix(8, 8, (16, 16), np.float32), numbers((128, 64), np.float32)
    out = np.full((128, 64), np.nan, np.float32)
    plan = ctx.query("dense_mm", a, x, out=out)
    assert np.isnan(out).all() and plan.text.startswith("dense_addmm on cpu") and plan.op == bs.library().ops["dense_addmm"] == 1
    equal(ctx.dense_mm(a, x, exec=ctx.exec(plan=plan)), ctx.dense_mm(a, x))
    refused(lambda: ctx.softmax(a, exec=ctx.exec(plan=plan)), "BAD_PLAN", "PLAN_OP")
    for name, arguments in (("from_dense", (x, 4)), ("to_csr", (a,)), ("softmax", (a,)), ("to_dense", (a,)), ("validate", (a,)),
                            ("sampled_addmm", (x, x.T, a)), ("prune", (x, .5, "l1", (4, 4))), ("attention", (x, x, x, a))):
        assert ctx.query(name, *arguments).text.startswith(name), name
    f64 = ctx.dense_mm(a, x, exec=ctx.exec(bs.ACCUMULATE_F64))
    close(f64, expand(a) @ x.astype(float), 2.0 ** -24 * (np.abs(expand(a)) @ np.abs(x)) + 1e-30)
    work = ctx.memory(1 << 16)
    assert bs.address(work) % 64 == 0 and work.nbytes == 1 << 16
    equal(ctx.to_dense(ctx.from_dense(x, 4, exec=ctx.exec(workspace=work))), x)


@case
def constructors_in_c():
    c, x = bs.library().c, numbers((3, 4))
    d = c.dense_row_major(bs.address(x), bs.F64, 3, 4)
    ours = bs.dense(x)
    assert bytes(d) == bytes(ours)
    assert bytes(c.dense_transposed(d)) == bytes(bs.dense(x.T)) == bytes(c.dense_col_major(bs.address(x), bs.F64, 4, 3))
    y = numbers((5, 3, 8))[:, :, ::2]
    assert bytes(c.dense_batched(c.dense_strided(bs.address(y), bs.F64, 3, 4, 8, 2), 5, 24)) == bytes(bs.dense(y))
    m = random_matrix(3, 2, (2, 3))
    made = c.matrix_make(6, 6, 2, 3, m.nnz, m.crow_indices, m.col_indices, bs.I32, m.values, bs.F64)
    made.value_strides[:] = m.value_strides[:]  # zeros say the same
    assert bytes(made) == bytes(m)
    assert c.matrix_batched(made, 2, 0, 0, 7).values_batch_stride[0] == 7
    rows = m.block_rows_of(1, 3)
    assert bytes(c.matrix_rows(m, 1, 3)) == bytes(rows) and c.matrix_rows(m, 2, 4).rows == -1
    close(ctx.dense_mm(rows, np.eye(6)), expand(m)[2:6], 0)
    many = ctx.from_block_mask(rng.random((3, 4, 5)) < .5, (2, 3), ragged=True)
    many = many.with_values(numbers((many.nnz, 2, 3)))
    close(ctx.dense_mm(many.block_rows_of(1, 3), np.eye(15)), ctx.dense_mm(many, np.eye(15))[:, 2:6], 0)
    raises(lambda: m.block_rows_of(2, 4), IndexError, "of 3")
    assert c.operand_dense(d).dense.contents.rows == 3 and c.operand_sparse(made).sparse.contents.nnz == m.nnz


@case
def contexts_log_threads_memory():
    a = random_matrix(40, 40, (8, 8), np.float32, density=.5)
    x = numbers((320, 96), np.float32)
    one = bs.Context(threads=1).dense_mm(a, x)
    lines, tasks = [], []
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        def own(count, body):
            tasks.append(count)
            list(pool.map(body, range(count)))
        equal(bs.Context(threads=3).dense_mm(a, x), one)
        with bs.Context(parallel_for=own, log=lambda *what: lines.append(what), log_level=3) as mine:
            equal(mine.dense_mm(a, x), one)
            assert tasks and max(tasks) > 1
            mine.dense_mm(a, x, trans=True)
            assert any(item == "BSR_ITEM_SLOW_TRANSPOSE" and "A^T" in message for _, item, message in lines), lines
            same = list(pool.map(lambda _: ctx.dense_mm(a, x), range(12)))  # one context, many threads
    assert all(np.array_equal(y, one) for y in same)
    equal(ctx.dense_mm(a, x, exec=ctx.exec(threads=1)), one)
    info = bs.Context(threads=2, isa="portable").info()
    assert (info.threads, info.isa, info.device, info.backend_name) == (2, 1, -1, b"cpu") and info.status_of_backends
    kept, order, libc = set(), [], bs.C.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = bs.ptr, [bs.ptr]

    def alloc(count):
        p = libc.malloc(bs.C.c_size_t(count))
        order.append(p)
        kept.add(p)
        return p

    def free(p):
        kept.remove(p)
        libc.free(p)
    with bs.Context(allocator=(alloc, free)) as own:
        assert len(kept) == 1
        own.from_dense(x, 4)
        assert len(order) > 1 and len(kept) == 1
    assert not kept
    refused(lambda: bs.Context(allocator=(lambda n: None, lambda p: None)), "OUT_OF_MEMORY")


@case
def python_threads_run_beside():
    a, x = random_matrix(60, 60, (16, 16), np.float32, density=.6), numbers((960, 2048), np.float32)
    one, span, times = bs.Context(threads=1), [], []

    def multiply():
        start = time.perf_counter()
        one.dense_mm(a, x)
        span.append((start, time.perf_counter()))
    other = threading.Thread(target=multiply)
    other.start()
    while not span:
        times.append(time.perf_counter())
    other.join()
    (start, end), = span
    fifth = (end - start) / 5
    assert any(start + fifth < t < end - fifth for t in times), f"nothing ran in {end - start} s"


# ---- tuning ----

@case
def tuning():
    table, gpu = bs.TuneTable(rows=4, gpus=2), ctx.tune_device()
    assert gpu.name and gpu.arch == 0
    row = bs.TuneRow(op=bs.library().ops["dense_addmm"], dtype=bs.F32, out_dtype=bs.F32, block_rows=16, block_cols=16, alpha=1,
                     m=64, k=64, n=32, density=50, kernel=1)
    key = bs.TuneRow.from_buffer_copy(row)
    how, found = table.update(gpu, row).lookup(gpu, key)
    assert (how, found.kernel) == (1, 1)
    assert len(table.query()) == 1 and not table.query(m=65) and len(table.query(m=64, n=32)) == 1
    other = bs.TuneTable().read(table.text())
    assert other.text() == table.text() and other.rows.row_count == 1
    assert bs.TuneTable().merge(other).merge(table).text() == table.text()
    assert bs.TuneTable().built_in().rows.row_count == bs.library().c.tune_built_in().row_count
    e = refused(lambda: table.read("nothing"), "PARSE_ERROR")
    assert e.index > 0
    row.m = 65
    for m in (65, 66, 67):
        row.m = m
        table.update(gpu, row)
    row.m = 68
    refused(lambda: table.update(gpu, row), "CAPACITY", "TUNE_CAPACITY")

    a, x = random_matrix(4, 4, (16, 16), np.float32), numbers((64, 32), np.float32)
    out, wanted = np.empty((64, 32), np.float32), ctx.dense_mm(a, x)
    key = bs.TuneRow()
    ctx.query("dense_mm", a, x, exec=ctx.exec(key=key))
    assert (key.op, key.m, key.k, key.n, key.block_rows) == (1, 64, 64, 32, 16)
    seen = []
    result = ctx.tune(lambda e: ctx.dense_mm(a, x, out=out, exec=e), [out], bs.TuneTable(), flags=bs.TUNE_STORE_ALWAYS,
                      target=lambda plan: (seen.append(plan.kernel), float(plan.kernel))[1], progress=lambda p: False)
    assert result.evaluated >= 1 and result.plan.kernel == min(seen) and result.stored == 1 and result.wrong == 0
    forced = ctx.exec(table=(lambda t: t.update(gpu, result.row))(bs.TuneTable()))
    assert ctx.query("dense_mm", a, x, exec=forced).kernel == result.plan.kernel
    close(ctx.dense_mm(a, x, exec=forced), wanted.astype(float), 1e-4)
    timed = ctx.tune(lambda e: ctx.dense_mm(a, x, out=out, exec=e), [out], time_limit=.2)
    assert timed.seconds > 0
    raises(lambda: ctx.tune(lambda e: {}["nothing"], [out]), KeyError, "nothing")
    refused(lambda: ctx.tune(lambda e: ctx.dense_mm(a, x[:9], out=out, exec=e), [out]), "BAD_SHAPE")

    climb = bs.library().climb(lambda v: 1 + (v[0] - 3) ** 2 + abs(v[1] - 1), lambda i, v, d, _: v + d, [0, 0],
                               names=["tile", "stages"])
    assert list(climb.best[:2]) == [3, 1] and climb.seconds == 1 and "tile=3" in climb.text
    raises(lambda: bs.library().climb(lambda v: 1 / 0, lambda i, v, d, _: v, [0]), ZeroDivisionError, "")


# ---- running ----

def counted(library):
    """Lets the library note which functions are called."""
    called = set()

    def watch(name, function):
        def call(*arguments):
            called.add(name)
            return function(*arguments)
        return call
    for name, function in list(vars(library.c).items()):
        setattr(library.c, name, watch(name, function))
    return called


def main():
    global ctx
    if len(sys.argv) > 1:
        os.environ["BSRSPARSE_LIBRARY"] = sys.argv[1]
    called = counted(bs.library())
    ctx = bs.Context()
    passed = failed = skipped = 0
    asked = sys.argv[2:]
    for function in CASES:
        name = function.__name__
        if asked and not any(a in name for a in asked):
            continue
        try:
            function()
            passed += 1
        except Skip as e:
            skipped += 1
            print(f"skip {name}: {e}")
        except Exception as e:
            failed += 1
            where = traceback.extract_tb(e.__traceback__)
            line = next((f.lineno for f in reversed(where) if f.filename == os.path.abspath(__file__) and f.name == name), 0)
            print(f"FAIL {name} (line {line}): {type(e).__name__}: {e}")
    if not asked:  # every function of the API has been called by what ran
        ctx.close()
        missing = set(vars(bs.library().c)) - called
        failed, passed = failed + bool(missing), passed + (not missing)
        print(f"FAIL never called: {sorted(missing)}" if missing else f"{len(called)} functions of the API were called")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
