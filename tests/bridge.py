"""bsrsparse from Python: ctypes mirrors of its structs, views of torch tensors, one method per operation, on the GPU or (backend
"cpu") on the CPU. For the benchmark and the parity test; nothing is copied, a tensor must outlive the call's work on the
stream."""
import ctypes as C
import os

import torch

i32, i64, u32, u64, ptr, f64 = C.c_int32, C.c_int64, C.c_uint32, C.c_uint64, C.c_void_p, C.c_double
STATUS = ("OK BAD_ARGUMENT NULL_POINTER BAD_DTYPE BAD_SHAPE BAD_STRIDE BAD_BATCH MISALIGNED OVERLAP BAD_STRUCTURE OVERFLOW "
          "UNSUPPORTED NO_BACKEND OUT_OF_MEMORY WORKSPACE_TOO_SMALL CAPACITY BAD_PLAN WRONG_DEVICE CUDA_ERROR CAPTURING "
          "PARSE_ERROR").split()
DTYPE = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4, torch.int8: 5, torch.int32: 6, torch.int64: 7,
         torch.bool: 8, torch.uint8: 8}
OPS = ("dense_addmm scatter_mm matmul matmul_backward sampled_addmm softmax softmax_backward attention attention_backward "
       "validate to_dense from_dense from_csr from_coo from_block_mask random_pattern prune transposed_index schedule layout "
       "scatter_indices parse create").split()
TRANS_A, TRANS_B, TRANS_C = 1, 2, 4
RAGGED = 1
SKIP_CHECKS, CHECK_POINTERS, ACCUMULATE_F64, TF32, TF32X3, CONSTANT_MATRIX = 1, 2, 4, 8, 16, 128
CAUSAL, MASK_BOOLEAN, MASK_ADDITIVE = 1, 2, 4


def struct(name, *fields):
    return type(name, (C.Structure,), {"_fields_": [(n, t) for t, names in fields for n in names.split()]})


Dense = struct("bsr_dense", (ptr, "data"), (i32, "dtype batch_dims"), (i64, "rows cols row_stride col_stride"),
               (i64 * 4, "batch batch_stride"))
Matrix = struct("bsr_matrix", (ptr, "crow_indices col_indices values"), (i32, "dtype index_dtype"),
                (i64, "rows cols block_rows block_cols nnz"), (i64 * 3, "value_strides"), (u32, "flags"), (i32, "batch_dims"),
                (i64 * 4, "batch crow_batch_stride col_batch_stride values_batch_stride"), (ptr, "transposed_index schedule"))
Plan = struct("bsr_plan", (i32, "op backend source kernel tile_rows tile_cols split stages order"), (u32, "flags"),
              (u64, "workspace_bytes"), (i32, "instance reason refused match"))
Error = struct("bsr_error", (i32, "status item operand cuda_error"), (i64, "index value wanted"))
Exec = struct("bsr_exec", (ptr, "stream workspace"), (u64, "workspace_bytes"), (C.POINTER(Plan), "plan query"),
              (C.POINTER(Error), "error"), (u32, "flags"), (i32, "threads"), (i32 * 3, "max_grid"), (i32, "reserved2"),
              (ptr, "table key"))
Epilogue = struct("bsr_epilogue", (C.POINTER(Dense), "left_alpha right_alpha bias"), (ptr, "alpha_ptr beta_ptr user_data"),
                  (i32, "activation reserved"))
Operand = struct("bsr_operand", (C.POINTER(Dense), "dense"), (C.POINTER(Matrix), "sparse"))
Softmax = struct("bsr_softmax_options", (C.POINTER(Dense), "relative_bias key_padding_mask attn_mask"),
                 (i32, "key_padding_mode attn_mode"))
Attention = struct("bsr_attention_options", (u32, "flags"), (i32, "key_padding_mode"), (i64, "causal_offset"),
                   (C.POINTER(Dense), "key_padding_mask relative_bias"), (f64, "dropout_p"), (u64, "dropout_seed"),
                   (i32, "score_function mask_function"), (ptr, "user_data"), (i64 * 2, "reserved"))
Scatter = struct("bsr_scatter_indices", (ptr, "c_indices r_offsets p_indices q_indices"),
                 (i64, "c_count r_count p_count q_count split_n"), (i32, "format reserved"))
Desc = struct("bsr_context_desc", (i32, "backend device threads isa"), (ptr, "alloc_fn free_fn alloc_user log_fn log_user"),
              (i32, "log_level log_reserved"), (ptr, "parallel_for parallel_user table"), (i64 * 3, "reserved"))
Info = struct("bsr_info", (i32, "version backend isa threads device sm_count cc_major cc_minor"),
              (C.c_char_p, "backend_name isa_name status_of_backends"))


class BsrError(Exception):
    def __init__(self, status, error, text):
        super().__init__(text)
        self.status, self.item, self.operand = STATUS[status], error.item, error.operand


def dense(t):
    """A view of a tensor: the last two dimensions are rows and columns, the others batch."""
    d = Dense(t.data_ptr() or None, DTYPE[t.dtype], t.dim() - 2, t.shape[-2], t.shape[-1], t.stride(-2), t.stride(-1))
    for i in range(t.dim() - 2):
        d.batch[i], d.batch_stride[i] = t.shape[i], t.stride(i)
    return d


def matrix_of(crow, col, values, rows, cols, block=None):
    """A BSR matrix from its three arrays, batched alike; values may have any strides, or be None (block gives the size)."""
    br, bc = block or values.shape[-2:]
    m = Matrix(crow.data_ptr() or None, col.data_ptr() or None, values.data_ptr() or None if values is not None else None,
               DTYPE[values.dtype] if values is not None else DTYPE[torch.float32], DTYPE[crow.dtype], rows, cols, br, bc,
               col.shape[-1])
    n = crow.dim() - 1
    m.batch_dims = n
    if values is not None and not values.is_contiguous():
        m.value_strides[:] = [max(1, s) for s in values.stride()[-3:]]
    for i in range(n):
        m.batch[i], m.crow_batch_stride[i], m.col_batch_stride[i] = crow.shape[i], crow.stride(i), col.stride(i)
        m.values_batch_stride[i] = values.stride(i) if values is not None else 0
    return m


def matrix(t):
    """A view of a torch.sparse_bsr tensor."""
    return matrix_of(t.crow_indices(), t.col_indices(), t.values(), t.shape[-2], t.shape[-1])


def operand(x):
    """A view of either kind, or None, as bsr_matmul takes it."""
    return Operand(C.pointer(x) if isinstance(x, Dense) else None, C.pointer(x) if isinstance(x, Matrix) else None)


class Library:
    def __init__(self, path, kernel=0, backend="cuda"):
        self.lib = lib = C.CDLL(os.path.abspath(path))
        self.check_structs()
        self.error, self.ctx, desc = Error(), ptr(), Desc()
        self.plan = Plan(kernel=kernel) if kernel else None
        self.device, desc.backend = backend, {"cpu": 1, "cuda": 2}[backend]
        if backend == "cuda":
            torch.cuda.init()
            torch.zeros(1, device="cuda")
        status = lib.bsr_create(C.byref(desc), C.byref(self.ctx), C.byref(self.error))
        if status:
            raise BsrError(status, self.error, self.text())
        self.arg = {"dense": C.POINTER(Dense), "matrix": C.POINTER(Matrix)}
        d, m, e, o = C.POINTER(Dense), C.POINTER(Matrix), C.POINTER(Exec), Operand
        lib.bsr_dense_addmm.argtypes = [ptr, f64, d, f64, u32, m, d, C.POINTER(Epilogue), d, e]
        lib.bsr_sampled_addmm.argtypes = [ptr, f64, m, f64, d, d, m, e]
        lib.bsr_softmax.argtypes = [ptr, f64, m, C.POINTER(Softmax), m, e]
        lib.bsr_softmax_backward.argtypes = [ptr, f64, m, m, m, e]
        lib.bsr_attention.argtypes = [ptr, f64, d, d, d, m, C.POINTER(Attention), d, d, e]
        lib.bsr_scatter_mm.argtypes = [ptr, d, d, C.POINTER(Scatter), d, e]
        lib.bsr_build_scatter_indices.argtypes = [ptr, m, i64, C.POINTER(Scatter), e]
        lib.bsr_dense_scatter_mm.argtypes = [ptr, m, d, C.POINTER(Scatter), d, e]
        lib.bsr_matmul.argtypes = [ptr, u32, o, o, o, e]
        lib.bsr_matmul_backward.argtypes = [ptr, u32, o, o, o, o, o, e]
        lib.bsr_build_transposed_index.argtypes = [ptr, m, ptr, u64, e]
        lib.bsr_transposed_index_size.argtypes = [ptr, m, C.POINTER(u64), e]
        lib.bsr_build_schedule.argtypes = [ptr, m, C.c_int, C.c_int, ptr, u64, e]
        lib.bsr_schedule_size.argtypes = [ptr, m, C.c_int, C.c_int, C.POINTER(u64), e]
        lib.bsr_supports.argtypes = [ptr, C.c_int, C.c_int, C.c_int, i64, i64]
        lib.bench_host_us.argtypes = [ptr, m, d, d, e, C.c_int]
        lib.bench_host_us.restype = f64
        self.workspace = None

    def check_structs(self):
        size, i = i64(), 0
        self.lib.bench_struct.argtypes, self.lib.bench_struct.restype = [C.c_int, C.POINTER(i64)], C.c_char_p
        mirrors = {c.__name__: c for c in (Dense, Matrix, Plan, Error, Exec, Epilogue, Operand, Softmax, Attention, Scatter, Desc,
                                           Info)}
        while name := self.lib.bench_struct(i, C.byref(size)):
            name, _, field = name.decode().partition(".")
            have = getattr(mirrors[name], field).offset if field else C.sizeof(mirrors[name])
            if have != size.value:
                raise RuntimeError(f"{name}.{field} is {have} in tests/bridge.py but {size.value} in the library")
            i += 1

    def text(self):
        line = C.create_string_buffer(400)
        self.lib.bsr_error_string(C.byref(self.error), line, 400)
        return line.value.decode()

    def info(self):
        info = Info()
        self.lib.bsr_query_info(self.ctx, C.byref(info))
        return info

    def supports(self, op, dtype=torch.float32, out=None, block=64):
        return bool(self.lib.bsr_supports(self.ctx, OPS.index(op) + 1, DTYPE[dtype], DTYPE[out or dtype], block, block))

    def exec(self, flags=0, max_grid=None, stream=None):
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else 0
        e = Exec(stream=stream, flags=flags)
        e.error = C.pointer(self.error)
        if self.plan is not None:
            e.plan = C.pointer(self.plan)
        for i, n in enumerate(max_grid or ()):
            e.max_grid[i] = n or 0
        return e

    def call(self, function, *args, exec=None):
        e = exec or self.exec()
        status = function(self.ctx, *args, e)
        if status == STATUS.index("WORKSPACE_TOO_SMALL") and self.error.value > 0:
            self.workspace = torch.empty(self.error.value + 64, dtype=torch.uint8, device=self.device)
            e.workspace, e.workspace_bytes = (self.workspace.data_ptr() + 63) // 64 * 64, self.error.value
            status = function(self.ctx, *args, e)
            e.workspace, e.workspace_bytes = None, 0  # the next call may need a larger one
        if status:
            raise BsrError(status, self.error, self.text())

    def addmm(self, a, b, out, input=None, beta=0.0, alpha=1.0, left=None, right=None, bias=None, trans=0, exec=None):
        epilogue = None
        if left is not None or right is not None or bias is not None:
            epilogue = Epilogue()
            for name, d in (("left_alpha", left), ("right_alpha", right), ("bias", bias)):
                if d is not None:
                    setattr(epilogue, name, C.pointer(d))
        self.call(self.lib.bsr_dense_addmm, beta, input, alpha, trans, a, b, epilogue, out, exec=exec)

    def sampled(self, x, y, out, input=None, beta=0.0, alpha=1.0, exec=None):
        self.call(self.lib.bsr_sampled_addmm, beta, input, alpha, x, y, out, exec=exec)

    def softmax(self, x, y, scale=1.0, options=None, exec=None):
        self.call(self.lib.bsr_softmax, scale, x, options, y, exec=exec)

    def softmax_backward(self, y, dy, dx, scale=1.0, exec=None):
        self.call(self.lib.bsr_softmax_backward, scale, y, dy, dx, exec=exec)

    def attention(self, q, k, v, mask, out, scale=0.0, options=None, lse=None, exec=None):
        self.call(self.lib.bsr_attention, scale, q, k, v, mask, options, out, lse, exec=exec)

    def scatter(self, blocks, others, indices, accumulators, exec=None):
        self.call(self.lib.bsr_scatter_mm, blocks, others, indices, accumulators, exec=exec)

    def scatter_indices(self, a, n, format_, split):
        """The indices of a's product with n columns, built by the library; their arrays are kept with them."""
        x = Scatter(format=format_, split_n=split)
        self.call(self.lib.bsr_build_scatter_indices, a, n, C.byref(x))
        x.keep = []
        for short, name in (("c", "c_indices"), ("r", "r_offsets"), ("p", "p_indices"), ("q", "q_indices")):
            count = getattr(x, short + "_count")
            x.keep.append(torch.full((count,), -1, dtype=torch.int64, device=self.device))
            setattr(x, name, x.keep[-1].data_ptr() if count else None)
        self.call(self.lib.bsr_build_scatter_indices, a, n, C.byref(x))
        return x

    def dense_scatter(self, a, b, indices, out, exec=None):
        self.call(self.lib.bsr_dense_scatter_mm, a, b, indices, out, exec=exec)

    def matmul(self, a, b, c, trans=0, exec=None):
        self.call(self.lib.bsr_matmul, trans, operand(a), operand(b), operand(c), exec=exec)

    def matmul_backward(self, a, b, dc, da, db, trans=0, exec=None):
        self.call(self.lib.bsr_matmul_backward, trans, *map(operand, (a, b, dc, da, db)), exec=exec)

    def _view(self, size, build, m, *args):
        bytes_ = u64()
        self.call(size, m, *args, C.byref(bytes_))
        buffer = torch.empty(bytes_.value + 64, dtype=torch.uint8, device=self.device)
        self.call(build, m, *args, (buffer.data_ptr() + 63) // 64 * 64, bytes_.value)
        return buffer

    def transposed_index(self, m):
        """Attaches it and returns its buffer, which must be kept."""
        buffer = self._view(self.lib.bsr_transposed_index_size, self.lib.bsr_build_transposed_index, m)
        m.transposed_index = (buffer.data_ptr() + 63) // 64 * 64
        return buffer

    def schedule(self, m, group=1, transposed=0):
        buffer = self._view(self.lib.bsr_schedule_size, self.lib.bsr_build_schedule, m, group, transposed)
        m.schedule = (buffer.data_ptr() + 63) // 64 * 64
        return buffer
