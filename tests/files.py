#!/usr/bin/env python3
"""Safetensors files: what Python's own json and struct write is what the library must find, without a copy, and the other way
round; and so for the package safetensors, where it is installed. files.py LIBRARY [--cases N] [--seed N]
LIBRARY: a shared object with the library in it."""
import argparse
import ctypes as C
import json
import random
import struct
import sys

try:
    import safetensors
except ImportError:
    safetensors = None

i32, i64, u32, u64, ptr = C.c_int32, C.c_int64, C.c_uint32, C.c_uint64, C.c_void_p
DTYPES = {"F16": (1, 2), "BF16": (2, 2), "F32": (3, 4), "F64": (4, 8), "I8": (5, 1), "I32": (6, 4), "I64": (7, 8), "BOOL": (8, 1),
          "F8_E4M3": (9, 1), "F8_E5M2": (10, 1), "U8": (11, 1)}  # U8: pairs of 4 bits, in a matrix half as many as its columns
OTHERS = {"I16": 2, "U16": 2, "U32": 4, "U64": 8, "C64": 8, "F8_E8M0": 1, "F8_E4M3FNUZ": 1}
PYTHON = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "I8": "int8", "I32": "int32", "I64": "int64",
          "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "U8": "uint8"}
NAMES = {number: name for name, (number, _) in DTYPES.items()}
RAGGED = 1


def mirror(name, *fields):
    return type(name, (C.Structure,), {"_fields_": [(n, t) for t, names in fields for n in names.split()]})


Dense = mirror("bsr_dense", (ptr, "data"), (i32, "dtype batch_dims"), (i64, "rows cols row_stride col_stride"),
               (i64 * 4, "batch batch_stride"))
Matrix = mirror("bsr_matrix", (ptr, "crow_indices col_indices values"), (i32, "dtype index_dtype"),
                (i64, "rows cols block_rows block_cols nnz"), (i64 * 3, "value_strides"), (u32, "flags"), (i32, "batch_dims"),
                (i64 * 4, "batch crow_batch_stride col_batch_stride values_batch_stride"), (ptr, "transposed_index schedule"))
Error = mirror("bsr_error", (i32, "status item operand cuda_error"), (i64, "index value wanted more more2"))
File = mirror("bsr_safetensors", (ptr, "file"), (u64, "bytes data"), (i64, "tensors"), (u64 * 16, "places"))
Operand = mirror("bsr_operand", (C.POINTER(Dense), "dense"), (C.POINTER(Matrix), "sparse"))
Named = mirror("bsr_named", (C.c_char_p, "name"), (Operand, "value"))


class Memory:
    """Bytes at a multiple of 64, and an offset."""
    def __init__(self, data, offset=0):
        self.raw = C.create_string_buffer(len(data) + 192)
        self.address = (C.addressof(self.raw) + 63) // 64 * 64 + offset
        C.memmove(self.address, data, len(data))

    def bytes(self, n):
        return C.string_at(self.address, n)


class Test:
    def __init__(self, path, seed):
        self.lib, self.rng, self.error = C.CDLL(path), random.Random(seed), Error()
        size, text, e = C.c_size_t, C.c_char_p, C.POINTER(Error)
        self.lib.bsr_parse_safetensors.argtypes = [ptr, size, C.POINTER(File), e]
        self.lib.bsr_safetensors_name.argtypes = [C.POINTER(File), i64, ptr, size]
        self.lib.bsr_safetensors_matrix.argtypes = [C.POINTER(File), text, C.POINTER(Matrix), e]
        self.lib.bsr_safetensors_dense.argtypes = [C.POINTER(File), text, C.POINTER(Dense), e]
        self.lib.bsr_write_safetensors.argtypes = [C.POINTER(Named), i64, ptr, u64, C.POINTER(u64), e]

    def said(self):
        line = C.create_string_buffer(400)
        self.lib.bsr_error_string(C.byref(self.error), line, 400)
        return line.value.decode()

    def ok(self, status):
        assert status == 0, self.said()

    # ---- random contents ----

    def name(self, taken):
        while True:
            letters = "abz.09 _\"\\/\n\u00e9\u4e2d\U0001f600\x01"
            name = "".join(self.rng.choice(letters) for _ in range(self.rng.randrange(0, 9)))
            parts = [name + ("." if name else "") + p for p in ("crow_indices", "col_indices", "values")] + [name]
            if name != "__metadata__" and not any(p in taken for p in parts):
                taken.update(parts)
                return name

    def matrix(self):
        """Tensors of a matrix, as {part: (dtype, shape, bytes)}, and what a reader must say of it."""
        rng = self.rng
        batch = [rng.randrange(0, 4) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        ragged = len(batch) == 1 and rng.random() < .4
        br, bc, rows, cols = rng.randrange(1, 5), rng.randrange(1, 5), rng.randrange(0, 4), rng.randrange(1, 5)
        index, dtype = rng.choice(["I32", "I64"]), rng.choice(list(DTYPES))
        bc *= 1 + (dtype == "U8")
        items, nnz = 1, rng.randrange(0, rows * cols + 1) if rows else 0
        for b in batch:
            items *= b
        shared = [rng.random() < .5 for _ in batch]
        if ragged:
            nnz = sum(rng.randrange(0, rows * cols + 1) if rows else 0 for _ in range(items))
        crow, col, last, left = [], [], 0, nnz
        for item in range(items):
            some = min(left, rows * cols) if ragged and item + 1 < items else left
            here = sorted(rng.sample(range(rows * cols), some)) if some <= rows * cols else None
            if here is None:
                return self.matrix()  # the last item has no room for what is left
            left -= some if ragged else 0
            start = [last + sum(1 for p in here if p // cols < r) for r in range(rows + 1)] if rows else [last]
            crow.append(start)
            col.append([p % cols for p in here])
            last = start[-1] if ragged else 0
        same = bool(batch) and not ragged and items > 0
        lead = [1 if s and same else b for s, b in zip(shared, batch)]
        count = 1
        for b in lead:
            count *= b
        form = "<%d" + ("i" if index == "I32" else "q")
        pack = lambda lists: b"".join(struct.pack(form % len(x), *x) for x in lists)  # noqa: E731
        size = DTYPES[dtype][1]
        one = [min(b, 1) for b in batch]  # what ragged items share
        stored = bc // (1 + (dtype == "U8"))
        values = (one if ragged else batch) + [nnz, br, stored]
        n = size
        for v in values:
            n *= v
        if batch and ragged and not items:
            nnz, values, n = 0, [0, 0, br, stored], 0
        tensors = {"crow_indices": (index, (batch if ragged else lead) + [rows + 1], pack(crow if ragged else crow[:count])),
                   "col_indices": (index, (one if ragged else lead) + [nnz], pack(col if ragged else col[:count])),
                   "values": (dtype, values, rng.randbytes(n))}
        if same:  # shared patterns: all are the first, so that they fit together whatever is shared
            tensors["crow_indices"] = (index, lead + [rows + 1], pack(crow[:1] * count))
            tensors["col_indices"] = (index, lead + [nnz], pack(col[:1] * count))
        if not ragged and batch and not items:
            tensors["crow_indices"] = (index, batch + [rows + 1], b"")
            tensors["col_indices"] = (index, batch + [nnz], b"")
        if rng.random() < .1:
            del tensors["values"]
        metadata = {"shape": json.dumps(batch + [rows * br, cols * bc]), "block": "[%d,  %d ]" % (br, bc)}
        if ragged:
            metadata["ragged"] = "true"
        return tensors, metadata, (batch, rows * br, cols * bc, br, bc, nnz, ragged)

    # ---- Python's side ----

    def file(self, tensors, metadata):
        """A file: tensors {name: (dtype, shape, bytes)}, laid down and listed in orders of their own."""
        size = lambda n: DTYPES[tensors[n][0]][1] if tensors[n][0] in DTYPES else OTHERS[tensors[n][0]]  # noqa: E731
        order = sorted(tensors, key=lambda n: (-size(n), self.rng.random()))
        ranges, data = {}, b""
        for name in order:
            ranges[name] = [len(data), len(data) + len(tensors[name][2])]
            data += tensors[name][2]
        entries = [(n, {"dtype": t[0], "shape": t[1], "data_offsets": ranges[n]}) for n, t in tensors.items()]
        self.rng.shuffle(entries)
        if metadata or self.rng.random() < .5:
            entries.insert(self.rng.randrange(len(entries) + 1), ("__metadata__", metadata))
        text = json.dumps(dict(entries), ensure_ascii=self.rng.random() < .5, indent=self.rng.choice([None, 1])).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data, {n: 8 + len(text) + r[0] for n, r in ranges.items()}

    def read(self, file):
        """What is in a file, by Python alone; every promise of the format is looked at."""
        n = struct.unpack("<Q", file[:8])[0]
        assert file[8:9] == b"{"

        def once(pairs):
            assert len(dict(pairs)) == len(pairs), "a name twice"
            return dict(pairs)
        header = json.loads(file[8:8 + n].decode(), object_pairs_hook=once)
        metadata, at, found = header.pop("__metadata__", {}), 0, {}
        for name, t in header.items():
            begin, end = t["data_offsets"]
            count = DTYPES[t["dtype"]][1]
            for s in t["shape"]:
                count *= s
            assert begin == at and end - begin == count, name
            assert (8 + n + begin) % DTYPES[t["dtype"]][1] == 0, "not aligned"
            assert count % 64 or (8 + n + begin) % 64 == 0, "whole lines that are not aligned"
            at, found[name] = end, (t["dtype"], t["shape"], file[8 + n + begin:8 + n + end])
        assert at == len(file) - 8 - n, "data beyond the last tensor"
        return found, metadata

    def parse(self, memory, size, offset=0):
        f = File()
        self.ok(self.lib.bsr_parse_safetensors(memory.address + offset, size, C.byref(f), C.byref(self.error)))
        return f

    # ---- tests ----

    def same_matrix(self, f, memory, name, places, tensors, want):
        batch, rows, cols, br, bc, nnz, ragged = want
        m, full = Matrix(), name + ("." if name else "")
        self.ok(self.lib.bsr_safetensors_matrix(C.byref(f), name.encode(), C.byref(m), C.byref(self.error)))
        got = (list(m.batch)[:m.batch_dims], m.rows, m.cols, m.block_rows, m.block_cols, m.nnz, m.flags == RAGGED)
        assert got == want, (got, want)
        assert NAMES[m.index_dtype] == tensors["crow_indices"][0]
        assert list(m.value_strides) == [0, 0, 0] and not m.transposed_index and not m.schedule
        for part, inside in (("crow_indices", 1), ("col_indices", 1), ("values", 3)):
            pointer = getattr(m, part)
            if part not in tensors:
                assert not pointer and not m.dtype
                continue
            dtype, shape, data = tensors[part]
            assert pointer == memory.address + places[full + part] if data else pointer, part
            strides, stride = getattr(m, part.replace("_indices", "") + "_batch_stride"), 1
            for i in reversed(range(len(shape))):
                if i < len(batch) and data:
                    assert strides[i] == (0 if shape[i] == 1 and batch[i] != 1 else stride), (part, i)
                stride *= shape[i]
            if part == "values":
                assert NAMES[m.dtype] == dtype
        return m

    def found(self):
        """Files that Python has written, of several matrices, dense tensors and some that the library does not know."""
        taken, tensors, metadata, matrices, dense = set(), {}, {}, {}, {}
        for _ in range(self.rng.randrange(0, 4)):
            name = self.name(taken)
            parts, about, want = self.matrix()
            matrices[name] = parts, want
            full = name + ("." if name else "")
            tensors.update({full + p: t for p, t in parts.items()})
            metadata.update({full + p: t for p, t in about.items()})
        for _ in range(self.rng.randrange(0, 4)):
            name, dtype = self.name(taken), self.rng.choice(list(DTYPES) + list(OTHERS))
            shape = [self.rng.randrange(0, 4) for _ in range(self.rng.randrange(0, 7))]
            n = DTYPES[dtype][1] if dtype in DTYPES else OTHERS[dtype]
            for s in shape:
                n *= s
            dense[name] = tensors[name] = dtype, shape, self.rng.randbytes(n)
        file, places = self.file(tensors, metadata)
        memory = Memory(file)
        f = self.parse(memory, len(file))
        self.listed(f, tensors)
        for name in self.rng.sample(list(matrices), len(matrices)):
            self.same_matrix(f, memory, name, places, *matrices[name])
        for name, (dtype, shape, data) in dense.items():
            d = Dense()
            status = self.lib.bsr_safetensors_dense(C.byref(f), name.encode(), C.byref(d), C.byref(self.error))
            if dtype in OTHERS:
                assert status == 3, status  # BAD_DTYPE
                continue
            self.ok(status)
            two = [1] * (2 - len(shape)) + shape
            assert list(d.batch)[:d.batch_dims] + [d.rows, d.cols] == two and NAMES[d.dtype] == dtype
            assert d.data == memory.address + places[name] if data else d.data
        for name in ("no such name", "w.values"):
            if name in tensors:
                continue
            assert self.lib.bsr_safetensors_dense(C.byref(f), name.encode(), C.byref(Dense()), C.byref(self.error)) == 1
            assert self.lib.bsr_safetensors_matrix(C.byref(f), name.encode(), C.byref(Matrix()), C.byref(self.error)) == 1
        assert memory.bytes(len(file)) == file

    def listed(self, f, tensors):
        names, line = [], C.create_string_buffer(400)
        for i in self.rng.sample(range(f.tensors), f.tensors) if self.rng.random() < .5 else range(f.tensors):
            n = self.lib.bsr_safetensors_name(C.byref(f), i, line, 400)
            names.append(line.value.decode())
            assert n == len(line.value)
        assert sorted(names) == sorted(tensors)
        assert self.lib.bsr_safetensors_name(C.byref(f), f.tensors, line, 400) == -1

    def written(self):
        """What the library writes, of matrices that it has read and dense tensors with strides, is what Python reads."""
        taken, named, keep, tensors, metadata = set(), [], [], {}, {}
        for _ in range(self.rng.randrange(0, 5)):
            name = self.name(taken)
            parts, about, want = self.matrix()
            if "values" not in parts and self.rng.random() < .5:
                continue
            file, places = self.file({"m." + p: t for p, t in parts.items()}, {"m." + p: t for p, t in about.items()})
            memory = Memory(file)
            m = self.same_matrix(self.parse(memory, len(file)), memory, "m", places, parts, want)
            named.append(Named(name.encode(), Operand(None, C.pointer(m))))
            keep += [memory, m]
            full = name + ("." if name else "")
            tensors.update({full + p: t for p, t in parts.items()})
            metadata.update({full + p: json.dumps(json.loads(t)) if p != "ragged" else t for p, t in about.items()})
        for _ in range(self.rng.randrange(0, 3)):
            name, dtype = self.name(taken), self.rng.choice(list(DTYPES))
            rows, cols, items = self.rng.randrange(0, 5), self.rng.randrange(1, 5), self.rng.randrange(1, 4)
            size = DTYPES[dtype][1]
            step, line = self.rng.randrange(0, 3), self.rng.randrange(0, 12)
            data = self.rng.randbytes(400 * size)
            memory = Memory(data)
            d = Dense(memory.address, DTYPES[dtype][0], 1, rows, cols, line, step)
            d.batch[0], d.batch_stride[0] = items, 61
            at = [(b * 61 + r * line + c * step) * size for b in range(items) for r in range(rows) for c in range(cols)]
            tensors[name] = dtype, [items, rows, cols], b"".join(data[a:a + size] for a in at)
            named.append(Named(name.encode(), Operand(C.pointer(d), None)))
            keep += [memory, d]
        self.rng.shuffle(named)
        items, bytes_ = (Named * len(named))(*named), u64()
        self.ok(self.lib.bsr_write_safetensors(items, len(named), None, 0, C.byref(bytes_), C.byref(self.error)))
        size = bytes_.value
        memory = Memory(b"\xa5" * (size + 8))
        status = self.lib.bsr_write_safetensors(items, len(named), memory.address, size - 1, C.byref(bytes_), C.byref(self.error))
        assert status == 15 and memory.bytes(size) == b"\xa5" * size  # CAPACITY
        self.ok(self.lib.bsr_write_safetensors(items, len(named), memory.address, size, C.byref(bytes_), C.byref(self.error)))
        file = memory.bytes(size + 8)
        assert file[size:] == b"\xa5" * 8 and bytes_.value == size
        file = file[:size]
        found, about = self.read(file)
        assert found == tensors and about == metadata, (found, tensors, about, metadata)
        if safetensors:
            package = {n: (t["dtype"], list(t["shape"]), bytes(t["data"])) for n, t in safetensors.deserialize(file)}
            assert package == tensors
        self.listed(self.parse(memory, size), tensors)

    def package(self):
        """What the package writes is found."""
        parts, about, want = self.matrix()
        tensors = {"layer.w." + p: t for p, t in parts.items()}
        if hasattr(safetensors, "TensorSpec"):  # it takes addresses since 0.8
            kept = {n: Memory(t[2]) for n, t in tensors.items()}
            given = {n: safetensors.TensorSpec(dtype=PYTHON[t[0]], shape=t[1], data_ptr=kept[n].address, data_len=len(t[2]))
                     for n, t in tensors.items()}
        else:
            given = {n: {"dtype": PYTHON[t[0]], "shape": t[1], "data": t[2]} for n, t in tensors.items()}
        file = bytes(safetensors.serialize(given, {"layer.w." + p: t for p, t in about.items()}))
        n, header = struct.unpack("<Q", file[:8])[0], json.loads(file[8:8 + struct.unpack("<Q", file[:8])[0]])
        places = {k: 8 + n + t["data_offsets"][0] for k, t in header.items() if k != "__metadata__"}
        memory = Memory(file)
        self.same_matrix(self.parse(memory, len(file)), memory, "layer.w", places, parts, want)

    def changed(self):
        """A header with a byte or two changed: what the library takes the package takes, too; errors name a byte of the file."""
        parts, about, _ = self.matrix()
        file = bytearray(self.file({"w." + p: t for p, t in parts.items()}, {"w." + p: t for p, t in about.items()})[0])
        n = struct.unpack("<Q", file[:8])[0]
        for _ in range(self.rng.randrange(1, 3)):
            at = self.rng.randrange(0 if self.rng.random() < .1 else 8, 8 + n)
            file[at] = self.rng.choice(b"0123456789{}[]\",: \\aeu\xc3\x00")
        if self.rng.random() < .1:
            file = file[:self.rng.randrange(len(file) + 1)]
        memory, f = Memory(bytes(file)), File()
        status = self.lib.bsr_parse_safetensors(memory.address, len(file), C.byref(f), C.byref(self.error))
        assert status in (0, 20), status
        assert status == 0 or (0 <= self.error.index <= len(file) and "byte %d:" % self.error.index in self.said())
        if safetensors and status == 0:
            safetensors.deserialize(bytes(file))
        if status == 0:
            self.lib.bsr_safetensors_matrix(C.byref(f), b"w", C.byref(Matrix()), C.byref(self.error))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    if sys.byteorder != "little":
        print("the files' numbers are little-endian, this machine's are not\n0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = skipped = 0
    if not safetensors:
        skipped = 1
        print("safetensors is absent: files are not compared with it (pip install safetensors)")
    for k in range(a.cases):
        for what in ("found", "written", "package", "changed"):
            if what == "package" and not safetensors:
                continue
            try:
                getattr(Test(a.library, "%d %s %d" % (a.seed, what, k)), what)()
                passed += 1
            except Exception as e:  # whatever a case breaks is its failure
                failed += 1
                if failed < 10:
                    line = e.__traceback__
                    while line.tb_next:
                        line = line.tb_next
                    print("FAIL %s, case %d of seed %d, line %d: %.300r" % (what, k, a.seed, line.tb_lineno, e))
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
