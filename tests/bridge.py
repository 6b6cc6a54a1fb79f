"""bsrsparse for torch tensors, as the benchmark and the parity test call it: examples/python/bsrsparse.py with views made
once and given to many calls, on the GPU or (backend "cpu") on the CPU. Nothing is copied; a tensor must outlive the call's work
on the stream."""
import ctypes as C
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "python"))
import bsrsparse
from bsrsparse import CONSTANT_MATRIX, CHECK_POINTERS, TF32, TF32X3  # noqa: F401: what its users take from here
from bsrsparse import Dense, Error as BsrError, MATRIX_RAGGED as RAGGED, MatrixStruct, dense, matrix  # noqa: F401
from bsrsparse import ScatterIndices as Scatter, SoftmaxOptions as Softmax  # noqa: F401

DTYPE = {getattr(torch, name): code for name, code in bsrsparse.CODES.items() if hasattr(torch, name)}


def matrix_of(crow, col, values, rows, cols, block=None):
    """A BSR matrix from its three arrays, batched alike; values may have any strides, or be None (block gives the size)."""
    return bsrsparse.make(crow, col, values, (rows, cols), block)


class Library(bsrsparse.Context):
    def __init__(self, path, kernel=0, backend="cuda"):
        self.plan, self.device = bsrsparse.Plan(kernel=kernel) if kernel else None, backend
        if backend == "cuda":
            torch.cuda.init()
            torch.zeros(1, device="cuda")
        super().__init__(backend, library=bsrsparse.Library(path))
        self.lib, self.ctx = self.library.dll, self._ctx
        if hasattr(self.lib, "bench_host_us"):
            pointers = [C.POINTER(t) for t in (MatrixStruct, Dense, Dense, bsrsparse.Exec)]
            self.lib.bench_host_us.argtypes, self.lib.bench_host_us.restype = [C.c_void_p, *pointers, C.c_int], C.c_double

    def exec(self, flags=0, max_grid=None, stream=None):
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream if self.cuda else 0
        return super().exec(flags, stream, self.plan, max_grid or ())

    def supports(self, op, dtype=torch.float32, out=None, block=64):
        return super().supports(op, dtype, out, block)

    def addmm(self, a, b, out, input=None, beta=0.0, alpha=1.0, left=None, right=None, bias=None, trans=0, exec=None):
        if left is None and right is None and bias is None:  # as little as there can be between a caller and the library
            self.call("dense_addmm", beta, input, alpha, trans, a, b, None, out, exec=exec)
        else:
            self.dense_addmm(a, b, input, beta, alpha, left, right, bias, trans=trans, out=out, exec=exec)

    def sampled(self, x, y, out, input=None, beta=0.0, alpha=1.0, exec=None):
        self.call("sampled_addmm", beta, input, alpha, x, y, out, exec=exec)

    def softmax(self, x, y, scale=1.0, options=None, exec=None):
        self.call("softmax", scale, x, options, y, exec=exec)

    def softmax_backward(self, y, dy, dx, scale=1.0, exec=None):
        self.call("softmax_backward", scale, y, dy, dx, exec=exec)

    def attention(self, q, k, v, mask, out, scale=0.0, options=None, lse=None, exec=None):
        self.call("attention", scale, q, k, v, mask, options, out, lse, exec=exec)

    def scatter(self, blocks, others, indices, accumulators, exec=None):
        self.scatter_mm(blocks, others, indices, accumulators, exec)

    def dense_scatter(self, a, b, indices, out, exec=None):
        self.dense_scatter_mm(a, b, indices, out, exec=exec)

    def scatter_indices(self, a, n, format_, split):
        return super().scatter_indices(a, n, format_, split)

    def matmul(self, a, b, c, trans=0, exec=None):
        self.call("matmul", trans, *(self._operand(x, "operand") for x in (a, b, c)), exec=exec)

    def matmul_backward(self, a, b, dc, da, db, trans=0, exec=None):
        self.call("matmul_backward", trans, *(self._operand(x, "operand") for x in (a, b, dc, da, db)), exec=exec)

    def transposed_index(self, m):
        """Attaches it and returns its buffer, which must be kept."""
        return super().transposed_index(m).views["transposed_index"]

    def schedule(self, m, group=1, transposed=0):
        return super().schedule(m, group, transposed).views["schedule"]
