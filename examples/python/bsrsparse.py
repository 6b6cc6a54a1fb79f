"""bsrsparse from Python: NumPy arrays and SciPy's matrices (bsr, csr) as they lie in memory, without copies; PyTorch's tensors.

    import bsrsparse, scipy.sparse as sp
    ctx = bsrsparse.Context()                                 # on the CPU; Context(backend="cuda") takes CUDA tensors
    a = sp.random_array((300, 300), density=.01).tobsr((3, 3))
    y = ctx.dense_mm(a, x)                                    # a @ x; every operation is a method that is called as in C
    m = ctx.from_csr(a.tocsr(), block=(4, 4))                 # a Matrix: m.crow, m.col, m.values, m.scipy(), m @ x

The library is $BSRSPARSE_LIBRARY, libbsrsparse.so beside this file, in build/ (`make shared`) or where the system looks. What it
refuses is raised as bsrsparse.Error with the record's status, item, argument, index, value, wanted and text. Views: the last two
dimensions of an array are rows and columns, those before them batch; one dimension alone is a column. Strides may be any that are
not negative; a BSR matrix's index arrays are packed. bf16 is uint16 in NumPy (bf16(), f32()), or the type of ml_dtypes. While an
operation runs, other Python threads do, too. The comments in bsrsparse.h are the reference: shapes, types, bounds, errors."""
import ctypes as C
import glob
import math
import os
import threading
import time

try:
    import numpy as np
except ImportError:  # PyTorch's tensors alone, with outputs that are given
    np = None

# ---- what the header defines; tests/python_numpy.py compares all of it with the header ----

DTYPES = {name: i + 1 for i, name in enumerate("f16 bf16 f32 f64 i8 i32 i64 bool e4m3 e5m2 u4".split())}
F16, BF16, F32, F64, I8, I32, I64, BOOL, E4M3, E5M2, U4 = DTYPES.values()
NUMPY = "float16 uint16 float32 float64 int8 int32 int64 bool float8_e4m3fn float8_e5m2 uint8".split()
TORCH = "float16 bfloat16 float32 float64 int8 int32 int64 bool float8_e4m3fn float8_e5m2 uint8".split()
CODES = {**{n: i + 1 for names in (NUMPY, TORCH) for i, n in enumerate(names)}, "uint8": BOOL}
SIZES = dict(zip(DTYPES.values(), (2, 2, 4, 8, 1, 4, 8, 1, 1, 1, 1)))
BACKENDS = {"default": 0, "cpu": 1, "cuda": 2}
ISAS = {"default": 0, "portable": 1, "avx2": 2, "avx512": 3, "avx2_vnni": 4, "avx512_vnni": 5, "avx512_bf16": 6}
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
NORMS = {"l2": 0, "l1": 1, "max": 2}
MASK_MODES = {"add": 0, "mul": 1}
LAYOUTS = {"dense": 1, "fixed": 2, "variable": 3, "bigbird": 4, "bslongformer": 5, "local_sliding_window": 6}
FORMATS = {"scatter_mm": 1, "strided": 2, "strided_compressed": 3}
MAPS = {**ACTIVATIONS, **{name: 100 + i for i, name in enumerate(
    "abs neg sign square sqrt rsqrt reciprocal exp log tanh sigmoid clamp".split())}}
COMBINES = {name: i for i, name in enumerate("none add sub mul div max min gradient".split())}
REDUCTIONS = {name: i + 1 for i, name in enumerate("sum sum_abs sum_squares norm2 max min max_abs mean mean_all".split())}
OVER = {"rows": 1, "cols": 2, "blocks": 3, "all": 4}
TRANS_A, TRANS_B, TRANS_C = 1, 2, 4
MATRIX_RAGGED, MATRIX_ROW_VIEW = 1, 2
EXEC_FLAGS = SKIP_CHECKS, CHECK_POINTERS, ACCUMULATE_F64, TF32, TF32X3, NO_TABLE, NO_LOG, CONSTANT_MATRIX, CHECK_INDICES, \
    FAST_ACCUM = tuple(1 << i for i in range(10))
ATTENTION_CAUSAL, ATTENTION_MASK_BOOLEAN, ATTENTION_MASK_ADDITIVE, ATTENTION_WINDOW, ATTENTION_FULL = 1, 2, 4, 8, 16
BLOCK_PARTIAL, BLOCK_FULL, BLOCK_SKIP = 0, 1, 2
TUNE_STORE_ALWAYS, TUNE_TRUSTED = 1, 2
TUNE_ANY = -1
CLIMB_MAX, TUNE_TEXT_MAX, VALUE_UNKNOWN = 8, 65536, -0x5555555555555555

i32, i64, u32, u64, f64, ptr, text = C.c_int32, C.c_int64, C.c_uint32, C.c_uint64, C.c_double, C.c_void_p, C.c_char_p
ALLOC, FREE = C.CFUNCTYPE(ptr, C.c_size_t, ptr), C.CFUNCTYPE(None, ptr, ptr)
LOG = C.CFUNCTYPE(None, C.c_int, C.c_int, text, ptr)
TASK = C.CFUNCTYPE(None, ptr, i64)
PARALLEL_FOR = C.CFUNCTYPE(None, ptr, i64, TASK, ptr)
CLOCK = C.CFUNCTYPE(f64, ptr)


def struct(name, *fields):
    """A struct of the header: (type, "names of fields")."""
    return type(name, (C.Structure,), {"_fields_": [(n, t) for t, names in fields for n in names.split()]})


def numpy_type(code):
    """bf16 is uint16 there, u4 bytes; 8-bit floats are ml_dtypes' where that is installed, else bytes."""
    if code not in (E4M3, E5M2):
        return np.dtype(NUMPY[code - 1])
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype("uint8")
    return np.dtype(getattr(ml_dtypes, NUMPY[code - 1]))


def to(kind):
    return C.POINTER(kind)


Dense = struct("bsr_dense", (ptr, "data"), (i32, "dtype batch_dims"), (i64, "rows cols row_stride col_stride"),
               (i64 * 4, "batch batch_stride"))
MatrixStruct = struct("bsr_matrix", (ptr, "crow_indices col_indices values"), (i32, "dtype index_dtype"),
                      (i64, "rows cols block_rows block_cols nnz"), (i64 * 3, "value_strides"), (u32, "flags"),
                      (i32, "batch_dims"), (i64 * 4, "batch crow_batch_stride col_batch_stride values_batch_stride"),
                      (ptr, "transposed_index schedule"))
Plan = struct("bsr_plan", (i32, "op backend source kernel tile_rows tile_cols split stages order"), (u32, "flags"),
              (u64, "workspace_bytes"), (i32, "instance reason refused match"))
Record = struct("bsr_error", (i32, "status item operand cuda_error"), (i64, "index value wanted"))
TuneGpu = struct("bsr_tune_gpu", (C.c_char * 64, "name"), (i32, "arch units"), (C.c_char * 112, "made"),
                 (C.c_char * 72, "sources"))
TuneRow = struct("bsr_tune_row", (i32, "gpu op dtype out_dtype block_rows block_cols beta alpha m k n density kernel tile_rows "
                                       "tile_cols split stages order gain"))
TuneRows = struct("bsr_tune_table", (to(TuneGpu), "gpus"), (to(TuneRow), "rows"),
                  (i32, "gpu_count gpu_capacity row_count row_capacity"))
Timing = struct("bsr_timing", (ptr, "begin end"), (CLOCK, "now"), (ptr, "user"), (f64, "seconds"))
Exec = struct("bsr_exec", (ptr, "stream workspace"), (u64, "workspace_bytes"), (to(Plan), "plan query"), (to(Record), "error"),
              (u32, "flags"), (i32, "threads"), (i32 * 3, "max_grid"), (i32, "reserved2"), (to(TuneRows), "table"),
              (to(TuneRow), "key"), (ptr, "device_status"), (to(Timing), "timing"))
Scales = struct("bsr_scales", (to(Dense), "scale"), (i64, "group_rows group_cols"), (u32, "flags"), (i32, "reserved"),
                (to(Dense), "zero"))
Epilogue = struct("bsr_epilogue", (to(Dense), "left_alpha right_alpha bias"), (ptr, "alpha_ptr beta_ptr user_data"),
                  (i32, "activation reserved"), (to(Scales), "a_scales b_scales"))
Term = struct("bsr_term", (ptr, "a b"), (f64, "alpha"), (u32, "trans"), (i32, "reserved"))
MapOptions = struct("bsr_map_options", (i32, "function combine"), (u32, "flags"), (i32, "reserved"), (f64, "low high dropout_p"),
                    (u64, "dropout_seed"), (ptr, "user_data"))
ConvShape = struct("bsr_conv_shape", (i32, "dims reserved"), (i64, "groups"),
                   (i64 * 3, "kernel stride dilation pad_before pad_after"))
Operand = struct("bsr_operand", (to(Dense), "dense"), (to(MatrixStruct), "sparse"))
SoftmaxOptions = struct("bsr_softmax_options", (to(Dense), "relative_bias key_padding_mask attn_mask"),
                        (i32, "key_padding_mode attn_mode"))
BlockLists = struct("bsr_block_lists", (ptr, "counts indices"), (i64, "width"), (ptr, "full_counts full_indices"),
                    (i64, "full_width"))
Select = struct("bsr_select", (to(Dense), "scores q k"), (f64, "scale"), (i64, "top_k"), (f64, "top_p threshold"),
                (i64, "first local"), (i32, "combine"), (u32, "flags"), (i64, "causal_offset reserved"))
Routing = struct("bsr_moe_routing", (i64, "tokens slots experts rows block_rows"), (ptr, "counts offsets row_of slot_of status"))
Lengths = struct("bsr_lengths", (ptr, "q_lengths k_lengths key_counts"), (i64, "key_counts_stride"))
Pages = struct("bsr_pages", (ptr, "table"), (i64, "stride"))
AttentionExtra = struct("bsr_attention_extra", (to(Dense), "row_max d_lse d_relative_bias"), (to(MatrixStruct), "d_scores"),
                        (to(Dense), "d_sinks d_slopes"), (ptr * 2, "reserved"))
AttentionOptions = struct("bsr_attention_options", (u32, "flags"), (i32, "key_padding_mode"), (i64, "causal_offset"),
                          (to(Dense), "key_padding_mask relative_bias"), (f64, "dropout_p"), (u64, "dropout_seed"),
                          (i32, "score_function mask_function"), (ptr, "user_data"), (to(AttentionExtra), "extra"),
                          (ptr, "block_kind"), (i64, "window_left window_right"), (f64, "softcap"), (to(Dense), "slopes sinks"),
                          (to(Lengths), "lengths"), (to(Pages), "pages"), (i64 * 2, "reserved"))
ScatterIndices = struct("bsr_scatter_indices", (ptr, "c_indices r_offsets p_indices q_indices"),
                        (i64, "c_count r_count p_count q_count split_n"), (i32, "format reserved"))
Allocator = struct("bsr_allocator", (ALLOC, "alloc_fn"), (FREE, "free_fn"), (ptr, "user"))
Logger = struct("bsr_logger", (LOG, "func"), (ptr, "user"), (i32, "max_level reserved"))
ContextDesc = struct("bsr_context_desc", (i32, "backend device threads isa"), (Allocator, "allocator"), (Logger, "logger"),
                     (PARALLEL_FOR, "parallel_for"), (ptr, "parallel_user"), (to(TuneRows), "table"), (i64 * 3, "reserved"))
Info = struct("bsr_info", (i32, "version backend isa threads device sm_count cc_major cc_minor"),
              (text, "backend_name isa_name status_of_backends"))
Layout = struct("bsr_layout", (i32, "kind unidirectional"), (i64, "heads blocks"),
                (i32, "different_layout_per_head horizontal_global_attention"),
                (i64, "num_local_blocks num_global_blocks num_different_global_patterns num_random_blocks "
                      "num_sliding_window_blocks"), (to(i64), "local_window_blocks"), (i64, "num_local_windows"),
                (to(i64), "global_block_indices global_block_end_indices"), (i64, "num_global_indices"), (u64, "seed"))
FileStruct = struct("bsr_safetensors", (ptr, "file"), (u64, "bytes data"), (i64, "tensors"), (u64 * 9, "places"))
Named = struct("bsr_named", (text, "name"), (Operand, "value"))
FileInfo = struct("bsr_file_info", (i64, "rows cols entries stored"), (i32, "has_values symmetric"))
TARGET, STOP = C.CFUNCTYPE(f64, to(i32), ptr), C.CFUNCTYPE(C.c_int, ptr)
STEP = C.CFUNCTYPE(i32, i32, i32, i32, to(i32), ptr)
ClimbPoint = struct("bsr_climb_point", (i32 * CLIMB_MAX, "values"), (f64, "seconds"))
Climb = struct("bsr_climb", (i32, "count max_step"), (f64, "least_gain"), (to(text), "names"), (TARGET, "target"), (STEP, "step"),
               (STOP, "stop"), (ptr, "user"), (to(ClimbPoint), "memo"), (i32, "memo_count memo_capacity"),
               (i32 * CLIMB_MAX, "best"), (f64, "seconds reference_seconds initial_seconds speedup"), (i32, "failed stopped"))
TuneOutput = struct("bsr_tune_output", (ptr, "data"), (u64, "bytes"), (i32, "dtype reserved"))
TuneProgress = struct("bsr_tune_progress", (f64, "seconds best reference"), (i32, "evaluated failed wrong reserved"),
                      (to(Plan), "plan"))
CALL = C.CFUNCTYPE(i32, to(Exec), ptr)
PLAN_TARGET, PROGRESS = C.CFUNCTYPE(f64, to(Plan), ptr), C.CFUNCTYPE(C.c_int, to(TuneProgress), ptr)
TuneDesc = struct("bsr_tune_desc", (CALL, "call"), (ptr, "user"), (Exec, "exec"), (to(TuneOutput), "outputs"),
                  (i32, "output_count"), (u32, "flags"), (to(TuneRows), "table"), (f64, "min_gain time_limit"), (CLOCK, "now"),
                  (PLAN_TARGET, "target"), (PROGRESS, "progress"), (i32, "max_step reserved"))
TuneResult = struct("bsr_tune_result", (TuneRow, "row"), (Plan, "plan"), (f64, "heuristic_seconds seconds gain"),
                    (i32, "evaluated failed wrong stored stopped match"), (Plan, "wrong_plan"), (C.c_char * 400, "sensitivity"))
STRUCTS = {c.__name__: c for c in (Dense, MatrixStruct, Plan, Record, TuneGpu, TuneRow, TuneRows, Timing, Exec, Scales, Epilogue,
                                   Operand, Routing, Pages, Term, ConvShape, MapOptions, SoftmaxOptions, BlockLists, Select,
                                   Lengths, AttentionExtra,
                                   AttentionOptions, ScatterIndices, Allocator, Logger, ContextDesc, Info, Layout, FileInfo,
                                   FileStruct, Named, ClimbPoint, Climb, TuneOutput, TuneProgress, TuneDesc, TuneResult)}

# Every function of the header: result, name without bsr_, arguments. `name*` is a pointer to a struct, ptr one to anything else.
PROTOTYPES = """
int version() | text status_name(int) | text status_string(int) | text item_name(int) | text item_string(int)
text operand_name(int) | text op_name(int) | text dtype_name(int) | u64 dtype_size(int) | int error_string(error*, ptr, u64)
int device_status(u64, error*) | int create(context_desc*, ptr, error*) | void destroy(ptr) | int query_info(ptr, info*)
int supports(ptr, int, int, int, i64, i64)
dense dense_row_major(ptr, int, i64, i64) | dense dense_col_major(ptr, int, i64, i64)
dense dense_strided(ptr, int, i64, i64, i64, i64) | dense dense_transposed(dense) | dense dense_batched(dense, i64, i64)
matrix matrix_make(i64, i64, i64, i64, i64, ptr, ptr, int, ptr, int) | matrix matrix_batched(matrix, i64, i64, i64, i64)
matrix matrix_rows(matrix, i64, i64)
operand operand_dense(dense*) | operand operand_sparse(matrix*) | int plan_string(plan*, ptr, u64)
int dense_addmm(ptr, f64, dense*, f64, u32, matrix*, dense*, epilogue*, dense*, exec*)
int dense_mm(ptr, u32, matrix*, dense*, dense*, exec*)
int sum_mm(ptr, f64, dense*, term*, i64, epilogue*, dense*, exec*)
int chain_mm(ptr, u32, matrix*, dense*, epilogue*, dense*, f64, dense*, f64, matrix*, epilogue*, dense*, exec*)
int sampled_chain_mm(ptr, u32, f64, dense*, dense*, map_options*, matrix*, matrix*, f64, dense*, f64, dense*, epilogue*, \
    dense*, exec*)
int sampled_gated(ptr, int, dense*, dense*, dense*, matrix*, matrix*, matrix*, exec*)
i64 moe_rows(i64, i64, i64, i64) | int moe_route(ptr, dense*, moe_routing*, exec*)
int moe_topology(ptr, moe_routing*, matrix*, exec*) | int moe_transposed_index(ptr, moe_routing*, matrix*, ptr, u64, exec*)
int moe_gather(ptr, moe_routing*, dense*, dense*, dense*, exec*)
int moe_scatter(ptr, f64, dense*, moe_routing*, dense*, dense*, dense*, exec*)
int moe_weight_gradient(ptr, moe_routing*, dense*, dense*, dense*, exec*)
dense dense_image(ptr, int, int, int, ptr, i64, i64) | dense dense_filter(ptr, int, int, conv_shape*, i64, i64)
i64 conv_size(conv_shape*, int, i64) | int conv_prune(ptr, dense*, f64, int, matrix*, exec*)
int conv(ptr, f64, dense*, f64, u32, conv_shape*, matrix*, dense*, epilogue*, dense*, exec*)
int conv_weight_gradient(ptr, f64, matrix*, f64, conv_shape*, dense*, dense*, matrix*, exec*)
int map(ptr, map_options*, f64, matrix*, f64, operand, matrix*, exec*) | int reduce(ptr, int, int, matrix*, dense*, exec*)
int quantise(ptr, u32, operand, operand, scales*, dense*, exec*) | int dequantise(ptr, operand, scales*, operand, exec*)
int unpack_u4(int, ptr, matrix*, error*) | int unpack_zeros(int, i64, i64, ptr, ptr, error*)
int scatter_mm(ptr, dense*, dense*, scatter_indices*, dense*, exec*)
int build_scatter_indices(ptr, matrix*, i64, scatter_indices*, exec*)
int dense_scatter_mm(ptr, matrix*, dense*, scatter_indices*, dense*, exec*)
int matmul(ptr, u32, operand, operand, operand, exec*)
int matmul_backward(ptr, u32, operand, operand, operand, operand, operand, exec*)
int sampled_addmm(ptr, f64, matrix*, f64, dense*, dense*, matrix*, exec*)
int softmax(ptr, f64, matrix*, softmax_options*, matrix*, exec*)
int softmax_backward(ptr, f64, matrix*, matrix*, matrix*, exec*)
int attention(ptr, f64, dense*, dense*, dense*, matrix*, attention_options*, dense*, dense*, exec*)
int attention_merge(ptr, i64, dense*, dense*, dense*, dense*, exec*)
int attention_backward(ptr, f64, dense*, dense*, dense*, matrix*, attention_options*, dense*, dense*, dense*, dense*, dense*, \
    dense*, exec*)
int validate(ptr, matrix*, exec*) | int to_dense(ptr, matrix*, dense*, exec*) | int from_dense(ptr, dense*, matrix*, exec*)
int from_csr(ptr, i64, i64, i64, ptr, ptr, int, ptr, int, matrix*, exec*)
int from_coo(ptr, i64, i64, i64, ptr, ptr, int, ptr, int, matrix*, exec*)
int to_csr(ptr, matrix*, i64, i64, ptr, ptr, ptr, int, ptr, int, exec*)
int to_coo(ptr, matrix*, i64, i64, ptr, ptr, ptr, ptr, int, ptr, int, exec*)
int block_mask(ptr, i64, i64, attention_options*, matrix*, matrix*, ptr, exec*)
int from_block_lists(ptr, block_lists*, matrix*, ptr, exec*) | int to_block_lists(ptr, matrix*, ptr, block_lists*, exec*)
int pool_blocks(ptr, int, i64, dense*, ptr, i64, dense*, exec*) | int select_blocks(ptr, select*, matrix*, ptr, exec*)
int reblock(ptr, matrix*, matrix*, exec*) | int from_block_mask(ptr, ptr, matrix*, exec*) | i64 kept_blocks(i64, f64)
int random_pattern(ptr, u64, f64, matrix*, exec*) | int prune(ptr, operand, f64, int, matrix*, exec*)
int transposed_index_size(ptr, matrix*, ptr, exec*) | int build_transposed_index(ptr, matrix*, ptr, u64, exec*)
int schedule_size(ptr, matrix*, int, int, ptr, exec*) | int build_schedule(ptr, matrix*, int, int, ptr, u64, exec*)
layout layout_default(int, i64, i64) | int layout_mask(ptr, layout*, ptr, exec*)
int parse_matrix_market(text, u64, file_info*, ptr, ptr, ptr, i64, error*)
int parse_smtx(text, u64, file_info*, ptr, ptr, i64, error*)
int parse_safetensors(ptr, u64, safetensors*, error*) | int safetensors_name(safetensors*, i64, ptr, u64)
int safetensors_matrix(safetensors*, text, matrix*, error*) | int safetensors_dense(safetensors*, text, dense*, error*)
int write_safetensors(named*, i64, ptr, u64, ptr, error*)
tune_table tune_built_in() | int tune_device(ptr, tune_gpu*) | int tune_update(tune_table*, tune_gpu*, tune_row*, error*)
int tune_merge(tune_table*, tune_table*, error*) | int tune_import(tune_table*, text, u64, error*)
int tune_export(tune_table*, ptr, u64, ptr, error*) | i64 tune_query(tune_table*, tune_row*, ptr, i64)
int tune_lookup(tune_table*, tune_gpu*, tune_row*, tune_row*) | int tune_climb(climb*, ptr, ptr, error*)
int climb_string(climb*, ptr, u64) | int tune(ptr, tune_desc*, tune_result*, error*)
"""


def prototypes():
    """name, result, arguments of each function, as ctypes has them."""
    simple = {"int": C.c_int, "i64": i64, "u32": u32, "u64": u64, "f64": f64, "ptr": ptr, "text": text, "void": None}

    def kind(name):
        if name in simple:
            return simple[name]
        return to(STRUCTS["bsr_" + name[:-1]]) if name.endswith("*") else STRUCTS["bsr_" + name]
    for one in PROTOTYPES.replace("\n", "|").split("|"):
        if one.strip():
            head, _, arguments = one.strip().partition("(")
            result, name = head.split()
            yield name, kind(result), [kind(a.strip()) for a in arguments.rstrip(")").split(",") if a.strip()]


# ---- the library, its errors ----

class Error(Exception):
    """What the library refused. status, item and argument by name: "BAD_SHAPE", "INNER_MISMATCH", "b"."""
    def __init__(self, library, record):
        line = library.line(library.c.error_string, record)
        super().__init__(line)
        self.text, self.code = line, record.status
        self.status = library.c.status_name(record.status).decode().replace("BSR_", "", 1)
        self.item = library.c.item_name(record.item).decode().replace("BSR_ITEM_", "", 1)
        self.argument = library.c.operand_name(record.operand).decode()
        self.index, self.value, self.wanted, self.cuda_error = record.index, record.value, record.wanted, record.cuda_error


class Functions:
    pass


def found(name="libbsrsparse.so"):
    """Where the library is: $BSRSPARSE_LIBRARY, beside this file, where `make shared` puts it, else its name for the system."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(os.path.dirname(os.path.dirname(here)), "build")
    places = [os.path.join(here, name), os.path.join(built, name)]
    places += sorted(glob.glob(os.path.join(built, "*", name)), key=os.path.getmtime, reverse=True)  # of each compiler
    return os.environ.get("BSRSPARSE_LIBRARY") or next((p for p in places if os.path.exists(p)), name)


class Library:
    """The shared library: what needs no context. c.NAME is bsr_NAME, where this version has it."""
    def __init__(self, path=None):
        self.path = path or found()
        try:
            dll = C.CDLL(os.path.abspath(self.path) if os.path.exists(self.path) else self.path)
        except OSError as e:
            raise OSError(f"{e}. `make shared` builds libbsrsparse.so; BSRSPARSE_LIBRARY names it") from None
        self.dll, self.c = dll, Functions()
        for name, result, arguments in prototypes():
            function = getattr(dll, "bsr_" + name, None)
            if function is None:
                continue
            function.restype, function.argtypes = result, arguments
            setattr(self.c, name, function)
        self.version, self.ops, unknown = self.c.version(), {}, self.c.op_name(-1)
        while self.c.op_name(len(self.ops) + 1) != unknown:
            self.ops[self.c.op_name(len(self.ops) + 1).decode()] = len(self.ops) + 1

    def line(self, write, *what):
        """What a function like snprintf writes."""
        buffer = C.create_string_buffer(write(*what, None, 0) + 1)
        write(*what, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    def check(self, status, record):
        if status:
            raise Error(self, record)

    def names(self, kind, code):
        """What the library calls a number: kind status, item, operand, op or dtype."""
        return getattr(self.c, kind + "_name")(code).decode()

    def device_status(self, word):
        """Raises what a call with CHECK_INDICES left in its word; None where that is nothing."""
        record = Record()
        self.check(self.c.device_status(int(word), record), record)

    def kept_blocks(self, total, sparsity):
        return self.c.kept_blocks(total, sparsity)

    def unpack_u4(self, packing, packed, crow, col, rows, cols, block_rows, block_cols):
        """Packed weights (1: pairs, 2: GPTQ, 3: AWQ) as u4 in the blocks that crow and col name: bytes, two numbers each, which
        make(crow, col, values, shape, dtype="u4") takes."""
        values, record = np.empty((len(col), block_rows, block_cols // 2), np.uint8), Record()
        packed_bytes(packed, "packed", rows * cols // 2)
        if crow.dtype != col.dtype or not (packed_whole(crow) and packed_whole(col)):
            raise TypeError("crow and col must be packed, and both int32 or both int64")
        if block_rows > 0 and len(crow) != rows // block_rows + 1:
            raise ValueError(f"crow has {len(crow)} entries, rows / block rows + 1 = {rows // block_rows + 1} are wanted")
        m = self.c.matrix_make(rows, cols, block_rows, block_cols, len(col), address(crow), address(col), code_of(crow.dtype),
                               address(values), 11)
        self.check(self.c.unpack_u4(packing, address(packed), m, record), record)
        return values

    def unpack_zeros(self, packing, rows, groups, packed):
        """Packed zero points (2: GPTQ, 3: AWQ) as i8 [rows x groups]."""
        zeros, record = np.empty((rows, groups), np.int8), Record()
        packed_bytes(packed, "packed", rows * groups // 2)
        self.check(self.c.unpack_zeros(packing, rows, groups, address(packed), address(zeros), record), record)
        return zeros

    def plan_string(self, plan):
        return self.line(self.c.plan_string, plan)

    def _parse(self, function, data, arrays):
        data, info, record = data.encode() if isinstance(data, str) else bytes(data), FileInfo(), Record()
        nothing = [None] * len(arrays(info))
        self.check(function(data, len(data), info, *nothing, 0, record), record)
        made = arrays(info)
        self.check(function(data, len(data), info, *map(address, made), info.entries, record), record)
        return (info,) + tuple(made)

    def parse_matrix_market(self, data):
        """info, row, col, values of Matrix Market text."""
        return self._parse(self.c.parse_matrix_market, data,
                           lambda i: [np.empty(i.entries, t) for t in (np.int64, np.int64, np.float64)])

    def parse_smtx(self, data):
        """info, crow, col of a .smtx file's text."""
        return self._parse(self.c.parse_smtx, data, lambda i: [np.empty(n, np.int64) for n in (i.rows + 1, i.entries)])

    def safetensors(self, data):
        """The matrices and tensors of a safetensors file: bytes or an mmap, which is not copied."""
        return Safetensors(self, data)

    def write_safetensors(self, items):
        """A safetensors file of {name: matrix or array}, as bytes."""
        named, size, record = (Named * max(len(items), 1))(), u64(), Record()
        views = [(name.encode(), matrix(x) if is_sparse(x) else dense(x, name, row=True)) for name, x in items.items()]
        for one, (name, view) in zip(named, views):
            one.name, one.value = name, (Operand(None, to(MatrixStruct)(view)) if isinstance(view, MatrixStruct) else
                                         Operand(C.pointer(view), None))
        self.check(self.c.write_safetensors(named, len(items), None, 0, C.byref(size), record), record)
        buffer = np.empty(size.value, np.uint8)
        self.check(self.c.write_safetensors(named, len(items), address(buffer), size.value, C.byref(size), record), record)
        return buffer.tobytes()

    def layout_default(self, kind, heads, blocks):
        return self.c.layout_default(LAYOUTS.get(kind, kind), heads, blocks)

    def climb(self, target, step, initial, reference=None, names=None, max_step=0, least_gain=0.0, memo=4096, stop=None):
        """Hill climbing over whole numbers: target(values) gives seconds or a negative number, step(i, value, d, values) what
        parameter i becomes d steps away. Returns the Climb with its results; str of it is one line."""
        n, memory, record, raised = len(initial), (ClimbPoint * memo)(), Record(), []
        names = (text * n)(*((x.encode() for x in names) if names else (b"p%d" % i for i in range(n))))
        c = Climb(count=n, max_step=max_step, least_gain=least_gain, names=names, memo=memory, memo_capacity=memo)
        c.target = TARGET(guard(raised, lambda v, _: target(v[:n]), -1.0))
        c.step = STEP(guard(raised, lambda i, value, d, v, _: step(i, value, d, v[:n]), 0))
        c.stop = STOP(guard(raised, lambda _: bool(raised) or bool(stop and stop()), 1))
        start, other = (i32 * n)(*initial), (i32 * n)(*(reference or initial))
        status = self.c.tune_climb(c, start, other, record)
        if raised:
            raise raised[0]
        self.check(status, record)
        c.text = self.line(self.c.climb_string, c)
        return c


def guard(raised, function, otherwise):
    """A callback that keeps what it raises for the call that called back."""
    def call(*arguments):
        try:
            return function(*arguments)
        except BaseException as e:  # noqa: B902: raised again by the call
            raised.append(e)
            return otherwise
    return call


_default = {}
_lock = threading.Lock()


def library(path=None):
    """The library at path, opened once."""
    with _lock:
        return _default[path] if path in _default else _default.setdefault(path, Library(path))


def default():
    """A context on the CPU for `matrix @ x`, made when first needed."""
    lib = library()
    with _lock:
        return _default["context"] if "context" in _default else _default.setdefault("context", Context("cpu", library=lib))


# ---- arrays as they lie in memory ----

def bf16(x):
    """float32 numbers as bf16 bit patterns, to nearest even, NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    up = ((bits + np.uint32(0x7fff) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    nan = (bits >> np.uint32(16) | np.uint32(0x40)).astype(np.uint16)
    return np.where(bits & np.uint32(0x7fffffff) > np.uint32(0x7f800000), nan, up)


def f32(x):
    """bf16 bit patterns as float32 numbers."""
    return (np.asarray(x).astype(np.uint32) << np.uint32(16)).view(np.float32)


def is_torch(x):
    return hasattr(x, "data_ptr")


def code_of(kind):
    """The library's dtype of "f32", a NumPy or a PyTorch dtype or its name."""
    if isinstance(kind, int):
        return kind
    if np is not None and kind.__class__.__name__ == "type":
        kind = np.dtype(kind)
    name = kind if isinstance(kind, str) else getattr(kind, "name", None) or str(kind).replace("torch.", "")
    code = DTYPES.get(name) or CODES.get(name)
    if not code or not getattr(kind, "isnative", True):
        raise TypeError(f"bsrsparse has no type {kind}; it has {' '.join(DTYPES)} (bf16: uint16 in NumPy), not byte-swapped")
    return code


def address(x):
    return None if x is None else x.data_ptr() if is_torch(x) else x.__array_interface__["data"][0]


def parts(x, what, out=False):
    """An array's dtype, shape and strides in elements, in which a dimension of one element counts as packed."""
    if not is_torch(x) and not hasattr(x, "__array_interface__"):
        raise TypeError(f"{what} is {type(x).__name__}, not a NumPy array or PyTorch tensor")
    code, shape = code_of(x.dtype), tuple(x.shape)
    if is_torch(x):
        strides = tuple(x.stride())
    else:
        if out and not x.flags.writeable:
            raise ValueError(f"{what} is read-only")
        if any(s % x.itemsize for s, n in zip(x.strides, shape) if n > 1):
            raise ValueError(f"{what} has strides of {x.strides} bytes, no multiples of its elements' {x.itemsize}: give a copy")
        strides = tuple(s // x.itemsize for s in x.strides)
    packed = [1]
    for n in shape[:0:-1]:
        packed.insert(0, packed[0] * max(n, 1))
    empty = 0 in shape
    return code, shape, tuple(p if n <= 1 or empty else s for n, s, p in zip(shape, strides, packed))


def packed_whole(x):
    return x.is_contiguous() if is_torch(x) else x.flags.c_contiguous


def bytes_of(x, what, kind):
    """The address of a packed array of one type, which the caller keeps; None stays."""
    if x is None:
        return None
    if str(x.dtype).rpartition(".")[2] != kind or not packed_whole(x):
        raise TypeError(f"{what} must be a packed array of {kind}")
    return address(x)


def packed_bytes(x, what, count):
    """An array that a function reads as `count` bytes: of as many, in a row."""
    if not packed_whole(x) or x.nbytes != count:
        raise ValueError(f"{what} must be a packed array of {count} bytes, not {x.nbytes} of shape {x.shape}")


def dense(x, what="operand", row=False, out=False):
    """A view of an array as the library takes it: [batch...] rows columns. One dimension: a column, or a row."""
    if x is None or isinstance(x, Dense):
        return x
    code, shape, strides = parts(x, what, out)
    if len(shape) == 1:
        shape, strides = ((1,) + shape, (shape[0], strides[0])) if row else (shape + (1,), strides + (1,))
    if not 2 <= len(shape) <= 6:
        raise ValueError(f"{what} has {len(shape)} dimensions: rows, columns and at most four of batch are taken")
    n = len(shape) - 2
    d = Dense(address(x), code, n, *shape[-2:], *strides[-2:])
    d.batch[:n], d.batch_stride[:n] = shape[:n], strides[:n]
    d.array = x
    return d


class Matrix(MatrixStruct):
    """A block-sparse matrix: a view of its arrays crow [rows / block rows + 1], col [blocks], stored [blocks][block rows][block
    columns], each after the batch dimensions. stored None: the pattern alone. With MATRIX_RAGGED col and stored have no batch."""
    crow = col = stored = None

    @property
    def shape(self):
        return tuple(self.batch[:self.batch_dims]) + (self.rows, self.cols)

    @property
    def block(self):
        return self.block_rows, self.block_cols

    def with_values(self, values, dtype=None):
        """The same pattern and views with other values; a dtype in place of values: memory for them."""
        code = self.dtype if dtype is None and self.dtype == U4 else dtype
        u4 = code is not None and code_of(code) == U4
        block = self.col.shape[-1:] + (self.block_rows, self.block_cols // (1 + u4))
        values = empty(self.col, self._batch_of_values() + block, dtype) if values is None else values
        u4 = u4 and SIZES[code_of(values.dtype)] == 1 and values.shape[-1] * 2 == self.block_cols
        m = make(self.crow, self.col, values, (self.rows, self.cols), self.block, self.flags, "u4" if u4 else None)
        m.transposed_index, m.schedule, m.views = self.transposed_index, self.schedule, getattr(self, "views", None)
        return m

    def _batch_of_values(self):
        return tuple(self.batch[:self.batch_dims]) if not self.flags & MATRIX_RAGGED else ()

    def block_rows_of(self, first, last):
        """Block rows first to last - 1, on the same memory, as bsr_matrix_rows gives them."""
        if not 0 <= first <= last <= self.crow.shape[-1] - 1:
            raise IndexError(f"block rows {first} to {last} of {self.crow.shape[-1] - 1}")
        shape = (last - first) * self.block_rows, self.cols
        return make(self.crow[..., first:last + 1], self.col, self.stored, shape, self.block, self.flags | MATRIX_ROW_VIEW,
                    self.dtype)

    def scipy(self):
        """As SciPy's bsr_array, on the same memory (types that it has; no batch)."""
        from scipy import sparse
        if self.batch_dims:
            raise ValueError("SciPy has no batches of matrices")
        return sparse.bsr_array((self.stored, self.col, self.crow), shape=(self.rows, self.cols), blocksize=self.block)

    def __matmul__(self, x):
        return default().dense_mm(self, x)


def make(crow, col, values, shape, block=None, flags=0, dtype=None):
    """A Matrix of its three arrays; shape is (rows, columns), block needed where values is None. dtype "u4": values are bytes, of
    two columns each."""
    code, crow_shape, crow_strides = parts(crow, "crow")
    other, col_shape, col_strides = parts(col, "col")
    if code != other or code not in (I32, I64):
        raise TypeError(f"crow and col must both be int32 or int64, not {crow.dtype} and {col.dtype}")
    if crow_strides[-1] != 1 or col_strides[-1] != 1:
        raise ValueError("index arrays must be packed: give copies of crow and col")
    dims, nnz = len(crow_shape) - 1, col_shape[-1]
    if block is None and values is None:
        raise TypeError("a pattern without values needs block=(rows, columns)")
    pairs = 1 + (dtype is not None and code_of(dtype) == U4)
    block = block or (values.shape[-2], values.shape[-1] * pairs)
    m = Matrix(address(crow), address(col), address(values), 0, code, *shape[-2:], *block, nnz)
    if not 0 <= dims <= 4 or (m.block_rows > 0 and crow_shape[-1] != m.rows // m.block_rows + 1):
        raise ValueError(f"crow has shape {tuple(crow_shape)}, but rows / block rows + 1 = {m.rows // max(m.block_rows, 1) + 1} "
                         "entries, after at most four dimensions of batch, are wanted")
    m.flags, m.batch_dims, m.crow, m.col, m.stored = flags, dims, crow, col, values
    m.batch[:dims], m.crow_batch_stride[:dims] = crow_shape[:-1], crow_strides[:-1]
    own = 0 if flags & MATRIX_RAGGED else dims
    if len(col_shape) != own + 1 or tuple(col_shape[:own]) != tuple(crow_shape[:own]):
        raise ValueError(f"col has shape {tuple(col_shape)}, which does not go with crow's, {tuple(crow_shape)}")
    m.col_batch_stride[:own] = col_strides[:-1]
    m.dtype = F32
    if values is not None:
        m.dtype, value_shape, strides = parts(values, "values")
        want = tuple(crow_shape[:own]) + (nnz, m.block_rows, m.block_cols // pairs)
        if tuple(value_shape) != want:
            raise ValueError(f"values has shape {tuple(value_shape)}, not {want}")
        if not any(strides[-3:]):
            raise ValueError("all of values is one number repeated: give a copy")
        m.value_strides[:], m.values_batch_stride[:own] = strides[-3:], strides[:-3]
        if pairs == 2:
            if SIZES[m.dtype] != 1 or tuple(strides[-3:]) != (want[-2] * want[-1], want[-1], 1):
                raise ValueError("values of u4 must be packed bytes: give a copy")
            m.dtype, m.value_strides[:] = U4, (0, 0, 0)
    return m


def matrix(x, what="matrix"):
    """A view of SciPy's bsr or csr (as blocks of 1 x 1) matrix or array, of a torch.sparse_bsr tensor, or a Matrix itself."""
    if x is None or isinstance(x, MatrixStruct):
        return x
    kind = getattr(x, "format", None)
    if kind in ("bsr", "csr"):
        nnz = int(x.indptr[-1])
        values = x.data[:nnz].reshape((nnz, 1, 1)) if kind == "csr" else x.data[:nnz]
        return make(x.indptr, x.indices[:nnz], values, x.shape)
    if str(getattr(x, "layout", "")) == "torch.sparse_bsr":
        return make(x.crow_indices(), x.col_indices(), x.values(), x.shape)
    raise TypeError(f"{what} is {type(x).__name__}{' of format ' + kind if kind else ''}, not a Matrix, SciPy's bsr or csr, or a "
                    "torch.sparse_bsr tensor: convert it, e.g. x.tocsr()")


def is_sparse(x):
    return isinstance(x, MatrixStruct) or hasattr(x, "format") or str(getattr(x, "layout", "")).startswith("torch.sparse")


def empty(like, shape, dtype):
    """Memory of the kind that an operand has, for a result."""
    if is_torch(like):
        import torch
        return like.new_empty(shape, dtype=getattr(torch, TORCH[code_of(dtype) - 1]))
    return np.empty(shape, numpy_type(code_of(dtype)))


def memory_of(x):
    """The array that an operand views."""
    return getattr(x, "array", None) if isinstance(x, Dense) else x.crow if isinstance(x, Matrix) else x


def broadcast(*views):
    """The batch dimensions that operands have together; where they don't broadcast the longest, and the library says so."""
    batches = [tuple(v.batch[:v.batch_dims]) for v in views if v is not None]
    dims = max(map(len, batches))
    lined = [(1,) * (dims - len(b)) + b for b in batches]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*lined)) if dims else ()


class Safetensors:
    """What a file holds; its arrays are views of the file's memory, which they keep alive."""
    def __init__(self, library, data):
        self.library, self.bytes, self.file, record = library, np.frombuffer(data, np.uint8), FileStruct(), Record()
        library.check(library.c.parse_safetensors(address(self.bytes), self.bytes.size, self.file, record), record)

    def names(self):
        """Of the tensors; a matrix NAME is NAME.crow_indices, NAME.col_indices and NAME.values."""
        return [self.library.line(self.library.c.safetensors_name, self.file, i) for i in range(self.file.tensors)]

    def _array(self, at, code, shape, strides):
        kind, last = numpy_type(code), sum((n - 1) * s for n, s in zip(shape, strides))
        if 0 in shape:
            return np.empty(shape, kind)
        first = at - address(self.bytes)
        flat = self.bytes[first:first + (last + 1) * kind.itemsize].view(kind)
        return np.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in strides], writeable=False)

    def dense(self, name):
        d, record = Dense(), Record()
        self.library.check(self.library.c.safetensors_dense(self.file, name.encode(), d, record), record)
        n = d.batch_dims
        return self._array(d.data, d.dtype, (*d.batch[:n], d.rows, d.cols), (*d.batch_stride[:n], d.row_stride, d.col_stride))

    def matrix(self, name):
        m, record = MatrixStruct(), Record()
        self.library.check(self.library.c.safetensors_matrix(self.file, name.encode(), m, record), record)
        n, (br, bc) = m.batch_dims, (m.block_rows, m.block_cols)
        own = 0 if m.flags & MATRIX_RAGGED else n
        batch, values = tuple(m.batch[:n]), None
        crow = self._array(m.crow_indices, m.index_dtype, (*batch, m.rows // br + 1), (*m.crow_batch_stride[:n], 1))
        col = self._array(m.col_indices, m.index_dtype, (*batch[:own], m.nnz), (*m.col_batch_stride[:own], 1))
        if m.dtype:
            wide = bc // 2 if m.dtype == U4 else bc
            values = self._array(m.values, m.dtype, (*batch[:own], m.nnz, br, wide),
                                 (*m.values_batch_stride[:own], br * wide, wide, 1))
        return make(crow, col, values, (m.rows, m.cols), (br, bc), m.flags, m.dtype)


class TuneTable:
    """Tuned rows in memory of its own: for Context(table=), exec(table=) and Context.tune."""
    def __init__(self, rows=256, gpus=16, library=None):
        self.library = library or globals()["library"]()
        self._gpus, self._rows = (TuneGpu * gpus)(), (TuneRow * rows)()
        self.rows = TuneRows(self._gpus, self._rows, 0, gpus, 0, rows)

    def _call(self, name, *arguments):
        record = Record()
        self.library.check(getattr(self.library.c, name)(self.rows, *arguments, record), record)

    def built_in(self):
        """Takes what the library brings; returns itself, as the next three do."""
        self.merge(self.library.c.tune_built_in())
        return self

    def update(self, gpu, row):
        self._call("tune_update", gpu, row)
        return self

    def merge(self, other):
        self._call("tune_merge", getattr(other, "rows", other) if not isinstance(other, TuneRows) else other)
        return self

    def read(self, data):
        data = data.encode() if isinstance(data, str) else data
        self._call("tune_import", data, len(data))
        return self

    def text(self):
        length, buffer = u64(), C.create_string_buffer(TUNE_TEXT_MAX + 1)
        self._call("tune_export", buffer, len(buffer), C.byref(length))
        return buffer.value.decode()

    def query(self, **key):
        """The rows that have these numbers, e.g. op=library.ops["softmax"], m=64."""
        pattern, most = TuneRow(*[TUNE_ANY] * len(TuneRow._fields_)), self.rows.row_count
        for name, value in key.items():
            setattr(pattern, name, value)
        rows = (TuneRow * max(most, 1))()
        return list(rows[:min(self.library.c.tune_query(self.rows, pattern, rows, most), most)])

    def lookup(self, gpu, key):
        """How (bits of BSR_TUNE_*, 0: not) and which row a call with this key finds."""
        row = TuneRow()
        return self.library.c.tune_lookup(self.rows, gpu, key, row), row


# ---- operations ----

class Context:
    """bsr_context: any number of threads may use one at once."""
    def __init__(self, backend="cpu", threads=0, isa="default", device=0, log=None, log_level=0, parallel_for=None,
                 allocator=None, table=None, library=None):
        """log(level, item, message); parallel_for(tasks, body) runs body(i) for each i below tasks, on any threads;
        allocator: a pair (alloc(bytes) -> address, free(address))."""
        self._ctx = None
        self.library = library if isinstance(library, Library) else globals()["library"](library)
        self.c, record, self._made = self.library.c, Record(), ptr()
        d = ContextDesc(backend=BACKENDS[backend], threads=threads, isa=ISAS.get(isa, isa), device=device)
        if log:
            d.logger = Logger(LOG(lambda level, item, line, _: log(level, self.library.names("item", item), line.decode())), None,
                              log_level)
        if parallel_for:
            d.parallel_for = PARALLEL_FOR(lambda _, tasks, body, arg: parallel_for(tasks, lambda i: body(arg, i)))
        if allocator:
            d.allocator = Allocator(ALLOC(lambda n, _: allocator[0](n)), FREE(lambda p, _: allocator[1](p)), None)
        if table is not None:
            d.table = C.pointer(table.rows)
        self._desc, self._table = d, table
        self.library.check(self.c.create(d, C.byref(self._made), record), record)
        self._ctx = self._made
        self.cuda = self.info().backend == BACKENDS["cuda"]

    def close(self):
        if self._ctx:
            self.c.destroy(self._ctx)
            self._ctx = None

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def info(self):
        info = Info()
        self.c.query_info(self._ctx, info)
        return info

    def supports(self, op, dtype="f32", out=None, block=(64, 64)):
        rows, cols = block if isinstance(block, tuple) else (block, block)
        return bool(self.c.supports(self._ctx, self.library.ops.get(op, op), code_of(dtype), code_of(out or dtype), rows, cols))

    def exec(self, flags=0, stream=0, plan=None, max_grid=(), workspace=None, table=None, key=None, device_status=None,
             threads=0, timing=None):
        """What may come with each call, as its exec=; workspace and device_status are arrays; threads: at most so many. timing: a
        Timing, with two events of CUDA's, or on the CPU with a clock: Timing(now=CLOCK(lambda _: time.perf_counter()))."""
        e = Exec(stream=stream, flags=flags, threads=threads)
        if timing is not None:
            e.timing = C.pointer(timing)
        if plan is not None:
            e.plan = C.pointer(plan)
        e.max_grid[:len(max_grid)] = [n or 0 for n in max_grid]
        if workspace is not None:
            e.workspace, e.workspace_bytes = address(workspace), workspace.nbytes
        if table is not None:
            e.table = C.pointer(table.rows)
        if key is not None:
            e.key = C.pointer(key)
        e.device_status = address(device_status)
        e.kept = plan, workspace, table, key, device_status, timing
        return e

    def query(self, name, *arguments, exec=None, **more):
        """The plan of a call that is not made: ctx.query("dense_mm", a, b)."""
        plan, e = Plan(), Exec.from_buffer_copy(exec or self.exec())
        e.query = C.pointer(plan)
        getattr(self, name)(*arguments, exec=e, **more)
        plan.text = self.library.plan_string(plan)
        return plan

    def memory(self, count):
        """Memory of the backend with an address that 64 divides: whoever holds what this returns, holds it."""
        if self.cuda:
            import torch
            whole = torch.empty(count + 64, dtype=torch.uint8, device="cuda")
        else:
            whole = np.empty(count + 64, np.uint8)
        at = -address(whole) % 64
        return whole[at:at + count]

    def call(self, name, *arguments, exec=None):
        """bsr_NAME with views in place of arrays. A call that can't go without a workspace gets one."""
        e, record, function = Exec.from_buffer_copy(exec) if exec is not None else self.exec(), Record(), getattr(self.c, name)
        e.error = C.pointer(record)
        status = function(self._ctx, *arguments, e)
        if status and not e.workspace and record.value > 0 and self.library.names("item", record.item) == "BSR_ITEM_WORKSPACE":
            self._scratch = self.memory(record.value)
            e.workspace, e.workspace_bytes = address(self._scratch), record.value
            status = function(self._ctx, *arguments, e)
        if exec is not None and exec.error:  # of a caller in C, as bsr_tune is
            exec.error[0] = record
        self.library.check(status, record)
        return e

    def _here(self, view, what):
        array = memory_of(view) if view is not None else None
        if array is not None and bool(getattr(array, "is_cuda", False)) != self.cuda:
            raise ValueError(f"{what} lies in {'host' if self.cuda else 'device'} memory, but the context is for "
                             f"{'CUDA' if self.cuda else 'the CPU'}")
        return view

    def _dense(self, x, what, row=False, out=False):
        return self._here(dense(x, what, row, out), what)

    def _matrix(self, x, what, out=False):
        m = self._here(matrix(x, what), what)
        if out and isinstance(m, Matrix) and m.stored is not None:
            parts(m.stored, what, out)
        return m

    def _result(self, out, shape, dtype, like, flat=False):
        """The output that was given, or memory for it, and its view."""
        if out is None:
            out = empty(memory_of(like), shape[:-1] if flat else shape, dtype)
        return out, self._dense(out, "out", out=True)

    # products

    def dense_mm(self, a, b, trans=False, out=None, dtype=None, exec=None):
        """op(a) b; b may be a vector."""
        a, b, out, d = self._product(a, b, trans, out, dtype)
        self.call("dense_mm", TRANS_A if trans else 0, a, b, d, exec=exec)
        return out

    def dense_addmm(self, a, b, input=None, beta=None, alpha=1.0, left_alpha=None, right_alpha=None, bias=None, activation="none",
                    alpha_ptr=None, beta_ptr=None, user_data=None, trans=False, out=None, dtype=None, exec=None, a_scales=None,
                    b_scales=None):
        """act(beta input + left_alpha (alpha op(a) b) right_alpha + bias). beta: 1 where there is an input. One-dimensional
        left_alpha is a column, right_alpha and bias are rows. alpha_ptr, beta_ptr: float64 arrays, read when it runs. a_scales,
        b_scales of 8-bit operands and u4: (scale, group_rows, group_cols), 0: all; behind them, in any order, "blocks" (of stored
        blocks), an array of zero points, "zero_after"."""
        if dtype is None and (a_scales or b_scales):
            dtype = F32
        a, b, out, d = self._product(a, b, trans, out, dtype)
        e = self._epilogue(left_alpha, right_alpha, bias, activation, alpha_ptr, beta_ptr, user_data)
        for name, scales in (("a_scales", a_scales), ("b_scales", b_scales)):
            if scales is not None:
                setattr(e, name, C.pointer(self._scales(scales, name)))
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("dense_addmm", beta, self._dense(input, "input"), alpha, TRANS_A if trans else 0, a, b, e, d, exec=exec)
        return out

    def sum_mm(self, terms, input=None, beta=None, out=None, dtype=None, exec=None, left_alpha=None, right_alpha=None, bias=None,
               activation="none", alpha_ptr=None, beta_ptr=None, user_data=None):
        """dense_addmm of a sum of products: terms are (a, b), (a, b, alpha) or (a, b, alpha, trans)."""
        made, views = (Term * max(len(terms), 1))(), []
        for one, (a, b, *more) in zip(made, terms):
            a, b = self._matrix(a, "a"), self._dense(b, "b")
            alpha, trans = (more + [1.0, False][len(more):])
            one.a, one.b, one.alpha, one.trans = C.addressof(a), C.addressof(b), alpha, TRANS_A if trans else 0
            views.append((a, b, a.cols if trans else a.rows))
        if out is None and not views:
            raise ValueError("a sum of no terms needs out")
        shape = broadcast(*(v for pair in views for v in pair[:2])) + (views[0][2], views[0][1].cols) if out is None else None
        kind = dtype or (I32 if views and views[0][1].dtype == I8 else views[0][1].dtype if views else None)
        out, d = self._result(out, shape, kind, terms[0][1] if terms else None)
        e = self._epilogue(left_alpha, right_alpha, bias, activation, alpha_ptr, beta_ptr, user_data)
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("sum_mm", beta, self._dense(input, "input"), made, len(terms), e, d, exec=exec)
        return out

    def chain_mm(self, a, b, c, inner=None, middle=None, input=None, beta=None, alpha=1.0, trans_a=False, trans_c=False, out=None,
                 dtype=None, exec=None, **epilogue):
        """op(c) inner(op(a) b), with the epilogue of dense_addmm; inner: a dict of the same. middle: where op(a) b goes, or
        None."""
        a, c, v = self._matrix(a, "a"), self._matrix(c, "c"), self._dense(b, "b")
        shape = broadcast(a, v, c) + (c.cols if trans_c else c.rows, v.cols)
        out, d = self._result(out, shape, dtype or v.dtype, b)
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("chain_mm", TRANS_A * trans_a | TRANS_C * trans_c, a, v, self._epilogue(**(inner or {})),
                  self._dense(middle, "middle", out=True), beta, self._dense(input, "input"), alpha, c,
                  self._epilogue(**epilogue), d, exec=exec)
        return out

    def sampled_chain_mm(self, mat1, mat2, middle, c, function="none", scale=1.0, product=None, low=0.0, high=0.0, dropout_p=0.0,
                         dropout_seed=0, input=None, beta=None, alpha=1.0, trans=False, out=None, dtype=None, exec=None,
                         **epilogue):
        """op(m) c, m = function(scale mat1 mat2) at the stored blocks of middle, whose values receive m where it has any;
        product: a matrix that receives scale mat1 mat2, or None. The rest is as in dense_addmm."""
        x, y, m = self._dense(mat1, "mat1"), self._dense(mat2, "mat2", row=True), self._matrix(middle, "middle", True)
        v, f = self._dense(c, "c"), MapOptions(function=MAPS.get(function, function), low=low, high=high, dropout_p=dropout_p,
                                               dropout_seed=dropout_seed)
        out, d = self._result(out, broadcast(x, y, m, v) + (m.cols if trans else m.rows, v.cols), dtype or v.dtype, c)
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("sampled_chain_mm", TRANS_A if trans else 0, scale, x, y, f, self._matrix(product, "product", True), m, beta,
                  self._dense(input, "input"), alpha, v, self._epilogue(**epilogue), d, exec=exec)
        return out

    def _epilogue(self, left_alpha=None, right_alpha=None, bias=None, activation="none", alpha_ptr=None, beta_ptr=None,
                  user_data=None):
        e = Epilogue(alpha_ptr=address(alpha_ptr), beta_ptr=address(beta_ptr), user_data=user_data,
                     activation=ACTIVATIONS.get(activation, activation))
        for name, x, row in (("left_alpha", left_alpha, False), ("right_alpha", right_alpha, True), ("bias", bias, True)):
            if x is not None:
                setattr(e, name, C.pointer(self._dense(x, name, row)))
        return e

    def _scales(self, scales, what):
        scale, group_rows, group_cols, *more = scales
        s = Scales(C.pointer(self._dense(scale, what)), group_rows, group_cols)
        for x in more:
            if isinstance(x, str):
                s.flags |= {"blocks": 1, "zero_after": 2}[x]
            else:
                s.zero = C.pointer(self._dense(x, what))
        return s

    def _product(self, a, b, trans, out, dtype):
        a, flat, given = self._matrix(a, "a"), getattr(b, "ndim", 2) == 1, b
        b = self._dense(b, "b")
        shape = broadcast(a, b) + (a.cols if trans else a.rows, b.cols)
        out, d = self._result(out, shape, dtype or (I32 if b.dtype == I8 else b.dtype), given, flat)
        return a, b, out, d

    def _operand(self, x, what, out=False):
        if x is None:
            return Operand()
        if is_sparse(x):
            m = self._matrix(x, what, out)
            return Operand(None, to(MatrixStruct)(m))
        return Operand(C.pointer(self._dense(x, what, out=out)), None)

    def matmul(self, a, b, out=None, pattern=None, trans_a=False, trans_b=False, trans_c=False, dtype=None, exec=None):
        """op(c) = op(a) op(b) where one of the three is sparse: a, b, or the result, at the blocks of pattern."""
        x, y = self._operand(a, "a"), self._operand(b, "b")
        left, right = (o.dense.contents if o.dense else o.sparse.contents for o in (x, y))
        dtype = dtype or (I32 if left.dtype == I8 else left.dtype)
        if out is None and pattern is not None:
            out = self._matrix(pattern, "pattern").with_values(None, dtype)
        elif out is None:
            shape = (left.cols if trans_a else left.rows, right.rows if trans_b else right.cols)
            out = empty(memory_of(b if is_sparse(a) else a), broadcast(left, right) + (shape[::-1] if trans_c else shape), dtype)
        trans = TRANS_A * trans_a | TRANS_B * trans_b | TRANS_C * trans_c
        self.call("matmul", trans, x, y, self._operand(out, "c", True), exec=exec)
        return out

    def matmul_backward(self, a, b, dc, da=None, db=None, trans_a=False, trans_b=False, trans_c=False, exec=None):
        """Writes the gradients of matmul into da and db, each dense or sparse as its operand, either None."""
        self.call("matmul_backward", TRANS_A * trans_a | TRANS_B * trans_b | TRANS_C * trans_c,
                  *(self._operand(x, name, name[1:] in ("a", "b") and name[0] == "d")
                    for x, name in ((a, "a"), (b, "b"), (dc, "dc"), (da, "da"), (db, "db"))), exec=exec)
        return da, db

    def sampled_addmm(self, mat1, mat2, pattern=None, input=None, beta=None, alpha=1.0, out=None, dtype=None, exec=None):
        """beta input + alpha (mat1 mat2) at the stored blocks of pattern (or input): a Matrix; or into the values of out."""
        x, y, source = self._dense(mat1, "mat1"), self._dense(mat2, "mat2", row=True), self._matrix(input, "input")
        if out is None:
            out = self._matrix(pattern, "pattern") if pattern is not None else source
            out = out.with_values(None, dtype or (I32 if x.dtype == I8 else x.dtype))
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("sampled_addmm", beta, source, alpha, x, y, self._matrix(out, "out", True), exec=exec)
        return out

    def sampled_gated(self, mat1, gate, up, pattern=None, activation="silu", gate_out=None, up_out=None, out=None, dtype=None,
                      exec=None):
        """activation(mat1 gate) * (mat1 up) at the stored blocks of pattern: a Matrix, or into out; gate_out, up_out: matrices
        that receive the two products."""
        x, g, u = self._dense(mat1, "mat1"), self._dense(gate, "gate"), self._dense(up, "up")
        if out is None:
            out = self._matrix(pattern, "pattern").with_values(None, dtype or x.dtype)
        self.call("sampled_gated", ACTIVATIONS.get(activation, activation), x, g, u,
                  *(self._matrix(m, name, True) for m, name in ((out, "out"), (gate_out, "gate_out"), (up_out, "up_out"))),
                  exec=exec)
        return out

    # mixtures of experts

    def moe_route(self, chosen, experts, block_rows=128, rows=None, status=None, exec=None):
        """The routing of tokens whose experts (int32 or int64 [tokens, slots]) a router has chosen; rows: the capacity, by
        default enough for any. Its arrays are counts, offsets, row_of, slot_of; status: a uint64 or int64 array of one, or
        None."""
        v = self._dense(chosen, "chosen")
        rows = self.c.moe_rows(v.rows, v.cols, experts, block_rows) if rows is None else rows
        r = Routing(v.rows, v.cols, experts, max(rows, 0), block_rows)
        r.arrays = {name: empty(chosen, shape, I32) for name, shape in (
            ("counts", (experts,)), ("offsets", (experts + 1,)), ("row_of", (v.rows, v.cols)), ("slot_of", (r.rows,)))}
        for name, array in r.arrays.items():
            setattr(r, name, address(array))
        r.status, r.told = address(status), status
        self.call("moe_route", v, r, exec=exec)
        return r

    def moe_topology(self, r, columns, block_cols=128, index="i32", dtype=F32, transposed=False, exec=None):
        """The block-diagonal pattern of a routing, `columns` for each expert, with its transposed index where asked for."""
        each, b = columns // block_cols, r.block_rows
        like, blocks = r.arrays["counts"], r.rows // b * each
        m = make(empty(like, (r.rows // b + 1,), index), empty(like, (blocks,), index), None, (r.rows, r.experts * columns),
                 (b, block_cols), 0)
        m.dtype = code_of(dtype)
        self.call("moe_topology", r, m, exec=exec)
        if not self.cuda:  # the capacity is the number of blocks now
            m = make(m.crow, m.col[:m.nnz], None, (m.rows, m.cols), m.block, 0)
            m.dtype = code_of(dtype)
        if transposed:
            count = u64()
            self.call("transposed_index_size", m, C.byref(count), exec=exec)
            buffer = self.memory(count.value)
            self.call("moe_transposed_index", r, m, address(buffer), count.value, exec=exec)
            m.transposed_index, m.views = address(buffer), {"transposed_index": buffer}
        return m

    def moe_gather(self, r, x, weights=None, out=None, dtype=None, exec=None):
        """Rows of tokens, times weights [tokens, slots], by experts; zeros in all others."""
        v = self._dense(x, "x")
        out, d = self._result(out, (r.rows, v.cols), dtype or v.dtype, x)
        self.call("moe_gather", r, v, self._dense(weights, "weights"), d, exec=exec)
        return out

    def moe_scatter(self, r, x, weights=None, input=None, beta=None, out=None, dtype=None, exec=None):
        """beta input + the weighted sum of each token's rows of x."""
        v = self._dense(x, "x")
        out, d = self._result(out, (r.tokens, v.cols), dtype or v.dtype, x)
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("moe_scatter", beta, self._dense(input, "input"), r, v, self._dense(weights, "weights"), d, exec=exec)
        return out

    def moe_weight_gradient(self, r, x, dy, out=None, dtype=None, exec=None):
        """The gradient of moe_scatter for its weights."""
        v = self._dense(x, "x")
        out, d = self._result(out, (r.tokens, r.slots), dtype or v.dtype, x)
        self.call("moe_weight_gradient", r, v, self._dense(dy, "dy"), d, exec=exec)
        return out

    # convolutions

    def _images(self, x, what, out=False):
        """The view of an array images x channels x [depth x] [height x] width, as PyTorch counts them, whatever its strides."""
        code, shape, strides = parts(x, what, out)
        if not 3 <= len(shape) <= 5:
            raise ValueError(f"{what} has {len(shape)} dimensions: images, channels and one to three axes are taken")
        n = len(shape) - 2
        d = Dense(address(x), code, n, shape[1], shape[-1], strides[1], strides[-1])
        d.batch[:n], d.batch_stride[:n] = shape[:1] + shape[2:-1], strides[:1] + strides[2:-1]
        d.array = x
        return self._here(d, what)

    def conv_shape(self, kernel, stride=1, padding=0, dilation=1, groups=1):
        """kernel: taps along each axis; stride, dilation, padding: a number, or one for each axis; padding also pairs."""
        each = (lambda v: tuple(v) if isinstance(v, (tuple, list)) else (v,) * len(kernel))
        s = ConvShape(dims=len(kernel), groups=groups)
        pads = [p if isinstance(p, (tuple, list)) else (p, p) for p in each(padding)]
        for name, values in (("kernel", kernel), ("stride", each(stride)), ("dilation", each(dilation)),
                             ("pad_before", [p[0] for p in pads]), ("pad_after", [p[1] for p in pads])):
            getattr(s, name)[:len(kernel)] = values
        return s

    def conv(self, shape, w, x, input=None, beta=None, alpha=1.0, trans=False, out=None, dtype=None, exec=None, left_alpha=None,
             right_alpha=None, bias=None, activation="none", alpha_ptr=None, beta_ptr=None, user_data=None):
        """act(beta input + left_alpha (alpha conv(w, x)) right_alpha + bias); trans: the data gradient, into out. x and out are
        images x channels x axes; one-dimensional left_alpha and bias have a number for each channel."""
        w, v = self._matrix(w, "w"), self._images(x, "x")
        if out is None and trans:
            raise ValueError("the data gradient needs out, whose sizes no other argument tells")
        if out is None:
            sizes = [self.c.conv_size(shape, i, n) for i, n in enumerate(x.shape[2:])]
            out = empty(x, (x.shape[0], w.rows, *sizes), dtype or (I32 if v.dtype == I8 else v.dtype))
        left_alpha, bias = (b[:, None] if getattr(b, "ndim", 2) == 1 else b for b in (left_alpha, bias))
        e = self._epilogue(left_alpha, right_alpha, bias, activation, alpha_ptr, beta_ptr, user_data)
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        source = None if input is None else self._images(input, "input")
        self.call("conv", beta, source, alpha, TRANS_A if trans else 0, shape, w, v, e, self._images(out, "out", True), exec=exec)
        return out

    def conv_weight_gradient(self, shape, dy, x, pattern=None, input=None, beta=None, alpha=1.0, out=None, dtype=None, exec=None):
        """beta input + alpha (the weight gradient of conv) at the stored blocks of pattern (or input), a Matrix."""
        y, v, source = self._images(dy, "dy"), self._images(x, "x"), self._matrix(input, "input")
        if out is None:
            out = (self._matrix(pattern, "pattern") if pattern is not None else source).with_values(
                None, dtype or (I32 if v.dtype == I8 else v.dtype))
        beta = (0.0 if input is None else 1.0) if beta is None else beta
        self.call("conv_weight_gradient", beta, source, alpha, shape, y, v, self._matrix(out, "out", True), exec=exec)
        return out

    def conv_prune(self, filter, sparsity, block, norm="l2", dtype=None, index="i32", exec=None):
        """The weights of conv from an array filters x channels x axes, as PyTorch has them: the blocks with the largest norm."""
        code, shape, strides = parts(filter, "filter")
        n = len(shape) - 2
        d = Dense(address(filter), code, n, *shape[:2], *strides[:2])
        d.batch[:n], d.batch_stride[:n] = shape[2:], strides[2:]
        taps = 1
        for k in shape[2:]:
            taps *= k
        return self._build(filter, (shape[0], shape[1] * taps), block, (), dtype or code, index, False, True, exec, "conv_prune",
                           d, sparsity, NORMS.get(norm, norm))

    def scatter_lists(self, format, c, p=None, q=None, r=None, split_n=1):
        """int64 lists of the caller for scatter_mm."""
        x = ScatterIndices(split_n=split_n, format=FORMATS.get(format, format))
        x.kept = c, r, p, q
        for name, array in zip(("c_indices", "r_offsets", "p_indices", "q_indices"), x.kept):
            if array is not None:
                code, shape, strides = parts(array, name)
                if code != I64 or len(shape) != 1 or strides[0] != 1:
                    raise TypeError(f"{name} must be a packed array of int64")
                setattr(x, name, address(array))
                setattr(x, name[0] + "_count", shape[0])
        return x

    def scatter_indices(self, a, n, format="scatter_mm", split_n=1, exec=None):
        """The lists of a times n columns."""
        a, x = self._matrix(a, "a"), ScatterIndices(format=FORMATS.get(format, format), split_n=split_n)
        self.call("build_scatter_indices", a, n, x, exec=exec)
        x.kept = {}
        for name in ("c_indices", "r_offsets", "p_indices", "q_indices"):
            count = getattr(x, name[0] + "_count")
            x.kept[name] = empty(memory_of(a), (count,), I64)
            setattr(x, name, address(x.kept[name]) if count else None)
        self.call("build_scatter_indices", a, n, x, exec=exec)
        return x

    def scatter_mm(self, blocks, others, indices, accumulators, exec=None):
        """accumulators += the listed products."""
        self.call("scatter_mm", self._dense(blocks, "blocks"), self._dense(others, "others"), indices,
                  self._dense(accumulators, "accumulators", out=True), exec=exec)
        return accumulators

    def dense_scatter_mm(self, a, b, indices, out=None, dtype=None, exec=None):
        a, b, out, d = self._product(a, b, False, out, dtype)
        self.call("dense_scatter_mm", a, b, indices, d, exec=exec)
        return out

    # stored elements, rows, attention

    def map(self, x, function="none", y=None, combine="none", alpha=1.0, beta=1.0, after=False, low=0.0, high=0.0, dropout_p=0.0,
            dropout_seed=0, user_data=None, out=None, dtype=None, exec=None):
        """dropout(function(alpha x combined with beta y)) at the stored elements of x; y: a matrix of x's pattern, an array of
        (rows or 1) x (columns or 1), or None; after: y comes after the function."""
        x = self._matrix(x, "x")
        o = MapOptions(function=MAPS.get(function, function), combine=COMBINES.get(combine, combine), flags=int(after), low=low,
                       high=high, dropout_p=dropout_p, dropout_seed=dropout_seed, user_data=user_data)
        out = x.with_values(None, dtype or x.dtype) if out is None else out
        self.call("map", o, alpha, x, beta, self._operand(y, "y"), self._matrix(out, "out", True), exec=exec)
        return out

    def reduce(self, x, kind="sum", over="rows", out=None, dtype=None, exec=None):
        """A number for each row, column, stored block, or one for all, of x's stored elements."""
        x, o = self._matrix(x, "x"), OVER.get(over, over)
        batch = tuple(1 if o == OVER["blocks"] and x.flags & MATRIX_RAGGED and x.crow_batch_stride[i] else x.batch[i]
                      for i in range(x.batch_dims))
        shape = batch + {OVER["rows"]: (x.rows, 1), OVER["cols"]: (1, x.cols), OVER["blocks"]: (x.nnz, 1)}.get(o, (1, 1))
        out, d = self._result(out, shape, dtype or (x.dtype if x.dtype <= F64 else I64), x)
        self.call("reduce", REDUCTIONS.get(kind, kind), o, x, d, exec=exec)
        return out

    def quantise(self, x, dtype, group_rows=0, group_cols=0, blocks=False, scale=None, powers_of_two=False, amax=None, out=None,
                 exec=None):
        """x, an array or a matrix, as 8-bit numbers and (scale, group_rows, group_cols), as dense_addmm takes them. group_rows,
        group_cols: elements that share one, 0: all; blocks: of a stored block; scale: given ones; amax: receives the largest."""
        v = self._operand(x, "x")
        rows, cols = (x.block_rows, x.block_cols) if blocks else (
            (v.dense or v.sparse).contents.rows, (v.dense or v.sparse).contents.cols)
        given = scale is not None
        if out is None:
            out = x.with_values(None, dtype) if is_sparse(x) else empty(memory_of(x), tuple(x.shape), dtype)
        if not given:
            shape = tuple(-(-n // g) if g else 1 for n, g in ((rows, group_rows), (cols, group_cols)))
            scale = empty(memory_of(x), (x.nnz,) + shape if blocks else shape, F32)
        s = Scales(C.pointer(self._dense(scale, "scale", out=not given)), group_rows, group_cols, int(blocks))
        self.call("quantise", int(given) | 2 * powers_of_two, v, self._operand(out, "out", True), s,
                  self._dense(amax, "amax", out=True), exec=exec)
        return out, (scale, group_rows, group_cols) + (("blocks",) if blocks else ())

    def dequantise(self, x, scales, dtype="f32", out=None, exec=None):
        """The reverse of quantise: x scale, as floats."""
        if out is None:
            out = x.with_values(None, dtype) if is_sparse(x) else empty(memory_of(x), tuple(x.shape), dtype)
        self.call("dequantise", self._operand(x, "x"), self._scales(scales, "scales"), self._operand(out, "out", True), exec=exec)
        return out

    def softmax(self, x, scale=1.0, relative_bias=None, key_padding_mask=None, attn_mask=None, key_padding_mode="add",
                attn_mode="add", out=None, dtype=None, exec=None):
        """Over the stored elements of each row of scale x + biases + masks; out may be x."""
        x, o = self._matrix(x, "x"), SoftmaxOptions()
        for name, m, row in (("relative_bias", relative_bias, False), ("key_padding_mask", key_padding_mask, True),
                             ("attn_mask", attn_mask, False)):
            if m is not None:
                setattr(o, name, C.pointer(self._dense(m, name, row)))
        o.key_padding_mode, o.attn_mode = (MASK_MODES.get(mode, mode) for mode in (key_padding_mode, attn_mode))
        out = x.with_values(None, dtype or x.dtype) if out is None else out
        self.call("softmax", scale, x, o, self._matrix(out, "y", True), exec=exec)
        return out

    def softmax_backward(self, y, dy, scale=1.0, out=None, dtype=None, exec=None):
        y, dy = self._matrix(y, "y"), self._matrix(dy, "dy")
        out = dy.with_values(None, dtype or dy.dtype) if out is None else out
        self.call("softmax_backward", scale, y, dy, self._matrix(out, "dx", True), exec=exec)
        return out

    def _attention(self, q, k, v, mask, scale=0.0, **options):
        return (scale, self._dense(q, "q"), self._dense(k, "k"), self._dense(v, "v"), self._matrix(mask, "mask"),
                self._options(**options))

    def _options(self, causal=False, causal_offset=0, mask_values=None, key_padding_mask=None,
                 key_padding_mode="add", relative_bias=None, dropout_p=0.0, dropout_seed=0, score_function=0, mask_function=0,
                 user_data=None, window=None, full=False, block_kind=None, softcap=0.0, slopes=None, sinks=None, q_lengths=None,
                 k_lengths=None, key_counts=None, pages=None, row_max=None):
        o = AttentionOptions(flags=ATTENTION_CAUSAL * bool(causal), causal_offset=causal_offset, dropout_p=dropout_p,
                             dropout_seed=dropout_seed, score_function=score_function, mask_function=mask_function,
                             user_data=user_data, key_padding_mode=MASK_MODES.get(key_padding_mode, key_padding_mode))
        o.flags |= {None: 0, "boolean": ATTENTION_MASK_BOOLEAN, "additive": ATTENTION_MASK_ADDITIVE}[mask_values]
        if key_padding_mask is not None:
            o.key_padding_mask = C.pointer(self._dense(key_padding_mask, "key_padding_mask", row=True))
        for name, x in (("relative_bias", relative_bias), ("slopes", slopes), ("sinks", sinks)):
            if x is not None:
                setattr(o, name, C.pointer(self._dense(x, name)))
        if window is not None:
            o.flags, (o.window_left, o.window_right) = o.flags | ATTENTION_WINDOW, window
        o.flags, o.softcap, o.extra = o.flags | ATTENTION_FULL * bool(full), softcap, C.pointer(AttentionExtra())
        o.block_kind = bytes_of(block_kind, "block_kind", "uint8")
        if row_max is not None:
            o.extra.contents.row_max = C.pointer(self._dense(row_max, "row_max", out=True))
        if not (q_lengths is k_lengths is key_counts is None):
            stride = key_counts.shape[-1] if key_counts is not None and key_counts.ndim > 1 else 0
            o.lengths = C.pointer(Lengths(*(bytes_of(x, "lengths", "int32") for x in (q_lengths, k_lengths, key_counts)), stride))
        if pages is not None:
            o.pages = C.pointer(Pages(bytes_of(pages, "pages", "int32"), pages.shape[-1] if pages.ndim > 1 else 0))
        return o

    def attention(self, q, k, v, mask, lse=None, out=None, dtype=None, exec=None, **options):
        """softmax(scale q kᵀ + ..., at the stored blocks of mask) v. lse: None, or an f32 or f64 array [..., rows, 1] for the
        log-sum-exp. options: scale (0: 1 / sqrt(head size)), causal, causal_offset, window (left, right), mask_values (None: the
        mask's pattern counts; "boolean", "additive"), block_kind (uint8, as col) or full, softcap, relative_bias, slopes and
        sinks (arrays [heads, 1, 1]), key_padding_mask, key_padding_mode, q_lengths, k_lengths, key_counts (int32, of each item),
        pages (int32, [items, pages of each]: k and v are pools [pages, ...]), dropout_p, dropout_seed, row_max (an output like
        lse), and the user functions that the library was built with."""
        views = self._attention(q, k, v, mask, **options)
        keys = [] if options.get("pages") is not None else [views[2], views[3]] # the batch of pools counts pages
        shape = broadcast(views[1], *keys, views[4]) + (views[1].rows, views[3].cols)
        out, d = self._result(out, shape, dtype or views[1].dtype, q)
        self.call("attention", *views, d, self._dense(lse, "lse", out=True), exec=exec)
        return out

    def attention_backward(self, q, k, v, mask, out, lse, d_out, dq=None, dk=None, dv=None, d_lse=None, d_relative_bias=None,
                           d_scores=None, d_sinks=None, d_slopes=None, exec=None, **options):
        """From out and lse of attention(), called with the same options, and their gradients d_out and d_lse: writes dq, dk, dv,
        d_relative_bias, d_sinks, d_slopes and, a matrix with the mask's pattern, d_scores, each of which may be None."""
        views = self._attention(q, k, v, mask, **options)
        read = (self._dense(x, name) for x, name in ((out, "out"), (lse, "lse"), (d_out, "d_out")))
        written = (self._dense(x, name, out=True) for x, name in ((dq, "dq"), (dk, "dk"), (dv, "dv")))
        extra = views[-1].extra.contents
        for name, x in (("d_lse", d_lse), ("d_relative_bias", d_relative_bias), ("d_sinks", d_sinks), ("d_slopes", d_slopes)):
            if x is not None:
                setattr(extra, name, C.pointer(self._dense(x, name, out=name != "d_lse")))
        if d_scores is not None:
            extra.d_scores = to(MatrixStruct)(self._matrix(d_scores, "d_scores", True))
        self.call("attention_backward", *views, *read, *written, exec=exec)
        return dq, dk, dv

    def attention_merge(self, x, y, lse=None, out=None, dtype=None, exec=None):
        """One result from those over disjoint keys: lists of what attention() returned and of its log-sum-exps."""
        x, y = [self._dense(a, f"x[{i}]") for i, a in enumerate(x)], [self._dense(a, f"y[{i}]") for i, a in enumerate(y)]
        if len(x) != len(y) or not x:
            raise ValueError("as many log-sum-exps as results, and at least one, are wanted")
        out, d = self._result(out, broadcast(*x) + (x[0].rows, x[0].cols), dtype or x[0].dtype, x[0])
        self.call("attention_merge", len(x), (Dense * len(x))(*x), (Dense * len(y))(*y), d, self._dense(lse, "lse", out=True),
                  exec=exec)
        return out

    # conversions

    def validate(self, m, exec=None):
        """Raises the first invariant that the matrix breaks."""
        self.call("validate", self._matrix(m, "matrix"), exec=exec)

    def to_dense(self, m, shape=None, out=None, dtype=None, exec=None):
        """shape: (rows, columns), smaller than m's by less than a block where those were rounded up."""
        m = self._matrix(m, "matrix")
        shape = tuple(m.batch[:m.batch_dims]) + tuple(shape or (m.rows, m.cols))
        out, d = self._result(out, shape, dtype or m.dtype, m)
        self.call("to_dense", m, d, exec=exec)
        return out

    def _build(self, like, shape, block, batch, dtype, index, ragged, values, exec, name, *arguments, kinds=False):
        """A conversion: counts, then fills. like: where memory comes from; dtype None or values False: the pattern only. kinds:
        the matrix, and a bsr_block_kind for each of its blocks."""
        block = block if isinstance(block, (tuple, list)) else (block, block)
        lines = [max(0, -(-n // max(b, 1))) for n, b in zip(shape, block)]
        crow = empty(like, tuple(batch) + (lines[0] + 1,), index)
        none = empty(like, (() if ragged else tuple(batch)) + (0,), index)
        m = make(crow, none, None, [n * b for n, b in zip(lines, block)], tuple(block), MATRIX_RAGGED if ragged else 0)
        m.col_indices, m.dtype = None, code_of(dtype)
        if self.cuda:  # counted on the device: as many as the host knows to be enough
            most = lines[0] * lines[1] * (math.prod(batch) if ragged else 1)
            return self._fill(m, like, most, dtype, values, exec, name, arguments, kinds)
        e = self.call(name, *arguments, m, *[None] * kinds, exec=exec)
        return m if e.query else self._fill(m, like, m.nnz, dtype, values, exec, name, arguments, kinds)

    def _fill(self, m, like, nnz, dtype, values, exec, name, arguments, kinds):
        batch = () if m.flags & MATRIX_RAGGED else m.crow.shape[:-1]
        col = empty(like, tuple(batch) + (nnz,), m.crow.dtype)
        stored = empty(like, tuple(batch) + (nnz,) + m.block, dtype) if values else None
        full = make(m.crow, col, stored, (m.rows, m.cols), m.block, m.flags)
        full.dtype = m.dtype
        if not kinds:
            self.call(name, *arguments, full, exec=exec)
            return full
        kind = empty(like, tuple(batch) + (nnz,), BOOL)
        self.call(name, *arguments, full, address(kind), exec=exec)
        if is_torch(kind):
            import torch
            return full, kind.view(torch.uint8)
        return full, kind.view(np.uint8)

    def from_dense(self, source, block, dtype=None, index="i32", ragged=False, exec=None):
        """The blocks that are not all zero. Sizes are rounded up to whole blocks."""
        d = self._dense(source, "source")
        return self._build(source, (d.rows, d.cols), block, tuple(d.batch[:d.batch_dims]), dtype or d.dtype, index, ragged, True,
                           exec, "from_dense", d)

    def from_csr(self, source, block, shape=None, dtype=None, index=None, exec=None):
        """source: SciPy's csr matrix or array, or (crow, col, values) with shape; values None: ones."""
        crow, col, values = source if isinstance(source, tuple) else (source.indptr, source.indices, source.data)
        return self._entries("from_csr", crow, col, values, shape or source.shape, block, dtype, index, exec)

    def from_coo(self, source, block, shape=None, dtype=None, index=None, exec=None):
        """source: SciPy's coo matrix or array, or (row, col, values) with shape, in any order; duplicates are added."""
        row, col, values = source if isinstance(source, tuple) else (source.row, source.col, source.data)
        return self._entries("from_coo", row, col, values, shape or source.shape, block, dtype, index, exec)

    def _entries(self, name, first, col, values, shape, block, dtype, index, exec):
        code, n, strides = parts(first, "crow" if name == "from_csr" else "row")
        other, m, col_strides = parts(col, "col")
        nnz = m[0]
        if code != other or (strides + col_strides) != (1, 1) or n[0] != (shape[0] + 1 if name == "from_csr" else nnz):
            raise ValueError(f"{name}: index arrays must be packed, of one type, of sizes that go together")
        kind = F32
        if values is not None:
            kind, had, value_strides = parts(values, "values")
            if had != (nnz,) or value_strides != (1,):
                raise ValueError(f"{name}: values must be a packed array with one number for each of {nnz} entries")
        return self._build(first, shape, block, (), dtype or kind, index or code, False, True, exec, name, *shape, nnz,
                           address(first), address(col), code, address(values), kind)

    def reblock(self, source, block, dtype=None, index=None, batch=None, exec=None):
        """The same matrix in blocks of another size."""
        m = self._matrix(source, "source")
        return self._build(memory_of(m), (m.rows, m.cols), block, m.shape[:-2] if batch is None else batch, dtype or m.dtype,
                           index or m.index_dtype, bool(m.flags & MATRIX_RAGGED), True, exec, "reblock", m)

    def from_block_mask(self, mask, block, index="i32", ragged=False, exec=None):
        """The pattern of a packed mask [batch...][block rows][block columns] of bytes; with_values() gives it values."""
        code, shape, _ = parts(mask, "mask")
        packed = mask.is_contiguous() if is_torch(mask) else mask.flags.c_contiguous
        if code not in (BOOL, I8) or not packed or len(shape) < 2:
            raise TypeError("the mask must be a packed array of bytes or bools")
        b = block if isinstance(block, (tuple, list)) else (block, block)
        return self._build(mask, (shape[-2] * b[0], shape[-1] * b[1]), b, shape[:-2], F32, index, ragged, False, exec,
                           "from_block_mask", address(mask))

    def block_mask(self, lq, lk, block, within=None, batch=(), index="i32", ragged=False, like=None, exec=None, **options):
        """The mask that options of attention() leave, within a pattern or all blocks: (matrix, kinds), for block_kind."""
        pattern = None if within is None else self._matrix(within, "within")
        return self._build(like, (lq, lk), block, batch, F32, index, ragged, False, exec, "block_mask", lq, lk,
                           self._options(**options), pattern, kinds=True)

    @staticmethod
    def _lists(counts, indices, full_counts, full_indices):
        width = [0 if x is None else x.shape[-1] for x in (indices, full_indices)]
        a, b, c, d = (bytes_of(x, "lists", "int32") for x in (counts, indices, full_counts, full_indices))
        return BlockLists(a, b, width[0], c, d, width[1])

    def from_block_lists(self, counts, indices, shape, block, full_counts=None, full_indices=None, index="i32", ragged=False,
                         exec=None):
        """FlexAttention's kv_num_blocks, kv_indices (int32) and full ones, of a mask of `shape`: (matrix, kinds)."""
        return self._build(counts, shape, block, counts.shape[:-1], F32, index, ragged, False, exec, "from_block_lists",
                           self._lists(counts, indices, full_counts, full_indices), kinds=True)

    def to_block_lists(self, m, kinds=None, width=None, full=True, exec=None):
        """(counts, indices, full_counts, full_indices), int32, of lists `width` long (None: all block columns)."""
        m = self._matrix(m, "matrix")
        batch, width = tuple(m.batch[:m.batch_dims]), m.cols // m.block_cols if width is None else width
        lists = [empty(m.crow, batch + (m.rows // m.block_rows,) + tail, "i32") for tail in ((), (width,)) * (1 + full)]
        lists += [None] * (4 - len(lists))
        self.call("to_block_lists", m, bytes_of(kinds, "kinds", "uint8"), self._lists(*lists), exec=exec)
        return lists

    def pool_blocks(self, x, block, kind="mean", counts=None, out=None, dtype=None, exec=None):
        """Each `block` rows of x as one: their sum, max, min or mean; counts: int32, so many rows of each count."""
        view = self._dense(x, "x")
        rows = -(-view.rows // max(block, 1))
        if out is None:
            out = empty(x, tuple(view.batch[:view.batch_dims]) + (rows, view.cols), dtype or view.dtype)
        stride = counts.shape[-1] if counts is not None and counts.ndim > 1 else 0
        self.call("pool_blocks", {"sum": 1, "max": 5, "min": 6, "mean": 8}.get(kind, kind), block, view,
                  bytes_of(counts, "counts", "int32"), stride, self._dense(out, "out", out=True), exec=exec)
        return out

    def select_blocks(self, shape, block, scores=None, q=None, k=None, batch=(), top_k=0, top_p=0.0, threshold=None, first=0,
                      local=0, combine="sum", causal=False, causal_offset=0, sum_group=False, forced_count=False, scale=0.0,
                      index="i32", ragged=False, exec=None):
        """The blocks of each row with the largest scores, given or q kᵀ of pooled ones: (matrix, kinds), for block_kind."""
        s = Select(scale=scale, top_k=top_k, top_p=top_p, threshold=threshold or 0, first=first, local=local,
                   combine={"sum": 0, "max": 1, "log_sum_exp": 2}.get(combine, combine), causal_offset=causal_offset)
        s.flags = bool(causal) | bool(sum_group) << 1 | bool(forced_count) << 2 | (threshold is not None) << 3
        for name, x in (("scores", scores), ("q", q), ("k", k)):
            if x is not None:
                setattr(s, name, C.pointer(self._dense(x, name)))
        return self._build(q if scores is None else scores, shape, block, batch, F32, index, ragged, False, exec, "select_blocks",
                           s, kinds=True)

    def random_pattern(self, shape, block, sparsity, seed=0, batch=(), index="i32", like=None, exec=None):
        """Exactly kept_blocks(all blocks, sparsity) blocks per item, the same for the same seed anywhere."""
        return self._build(like, shape, block, batch, F32, index, False, False, exec, "random_pattern", seed, sparsity)

    def prune(self, source, sparsity, norm="l2", block=None, dtype=None, index="i32", batch=None, ragged=False, exec=None):
        """The blocks with the largest norm, of a dense source or a matrix (then block is its own)."""
        o = self._operand(source, "source")
        view = o.sparse.contents if o.sparse else o.dense.contents
        block = block or (view.block_rows, view.block_cols)
        batch = tuple(view.batch[:view.batch_dims]) if batch is None else batch
        return self._build(memory_of(matrix(source) if o.sparse else source), (view.rows, view.cols), block, batch,
                           dtype or view.dtype, index, ragged, True, exec, "prune", o, sparsity, NORMS.get(norm, norm))

    def to_csr(self, m, shape=None, dtype=None, index=None, exec=None):
        """crow, col, values; every element of a stored block is an entry. scipy.sparse.csr_array((values, col, crow), shape)."""
        crow, _, col, values = self._to_entries("to_csr", m, shape, dtype, index, exec)
        return crow, col, values

    def to_coo(self, m, shape=None, dtype=None, index=None, exec=None):
        """crow, row, col, values."""
        return self._to_entries("to_coo", m, shape, dtype, index, exec)

    def _to_entries(self, name, m, shape, dtype, index, exec):
        m = self._matrix(m, "matrix")
        (rows, cols), like, dtype, index = shape or (m.rows, m.cols), memory_of(m), dtype or m.dtype, index or m.index_dtype
        nnz, crow = i64(m.nnz * m.block_rows * m.block_cols if self.cuda else 0), empty(like, (max(rows, 0) + 1,), index)
        col = row = values = None

        def go():
            rest = (address(row),) if name == "to_coo" else ()
            return self.call(name, m, rows, cols, C.byref(nnz), address(crow), *rest, address(col), code_of(index),
                             address(values), code_of(dtype), exec=exec)
        if self.cuda or not go().query:
            col, values = empty(like, (nnz.value,), index), empty(like, (nnz.value,), dtype)
            row = empty(like, (nnz.value,), index) if name == "to_coo" else None
            go()
        return crow, row, col, values

    # views, layouts

    def _view(self, m, attribute, name, *how, exec=None):
        m, count = self._matrix(m, "matrix"), u64()
        self.call(name + "_size", m, *how, C.byref(count), exec=exec)
        buffer = self.memory(count.value)
        self.call("build_" + name, m, *how, address(buffer), count.value, exec=exec)
        setattr(m, attribute, address(buffer))
        m.views = {**(getattr(m, "views", None) or {}), attribute: buffer}
        return m

    def transposed_index(self, m, exec=None):
        """The matrix (a Matrix, or a view of SciPy's) with its transposed index, for products with its transpose."""
        return self._view(m, "transposed_index", "transposed_index", exec=exec)

    def schedule(self, m, group=1, transposed=False, exec=None):
        return self._view(m, "schedule", "schedule", group, int(transposed), exec=exec)

    def layout_mask(self, kind, heads=None, blocks=None, exec=None, **fields):
        """DeepSpeed's layouts as a mask [heads][blocks][blocks] of bytes. kind: a Layout, or a name and fields of bsr_layout
        (lists for local_window_blocks, global_block_indices, global_block_end_indices)."""
        layout = kind if isinstance(kind, Layout) else self.library.layout_default(kind, heads, blocks)
        counts = {"local_window_blocks": "num_local_windows", "global_block_indices": "num_global_indices",
                  "global_block_end_indices": "num_global_indices"}
        for name, value in fields.items():
            if name in counts:
                setattr(layout, counts[name], len(value))
                value = (i64 * len(value))(*value)
            elif name not in dict(Layout._fields_):
                raise TypeError(f"bsr_layout has no field {name}")
            setattr(layout, name, value)
        mask = np.empty((max(layout.heads, 0), max(layout.blocks, 0), max(layout.blocks, 0)), np.uint8)
        self.call("layout_mask", layout, address(mask), exec=exec)
        return mask

    # tuning

    def tune_device(self):
        gpu, record = TuneGpu(), Record(operand=0)
        self.library.check(self.c.tune_device(self._ctx, gpu), record)
        return gpu

    def tune(self, call, outputs, table=None, now=None, target=None, progress=None, flags=0, min_gain=0.0, time_limit=0.0,
             max_step=0, exec=None):
        """Searches the plan that runs call(exec) fastest, e.g. lambda e: ctx.dense_mm(a, b, out=out, exec=e); outputs: the arrays
        that it writes. progress(TuneProgress) ends it with anything true."""
        raised, record, result = [], Record(), TuneResult()

        def once(exec, _):
            try:
                call(exec.contents)
                return 0
            except Error as e:
                return e.code
            except BaseException as e:  # noqa: B902: raised again below
                raised.append(e)
                return 1  # BSR_BAD_ARGUMENT
        memory = (TuneOutput * max(len(outputs), 1))(*[TuneOutput(address(x), x.nbytes, code_of(x.dtype), 0) for x in outputs])
        clock = now or time.perf_counter
        d = TuneDesc(call=CALL(once), exec=exec or self.exec(), outputs=memory, output_count=len(outputs), flags=flags,
                     min_gain=min_gain, time_limit=time_limit, max_step=max_step,
                     now=CLOCK(guard(raised, lambda _: clock(), 0.0)))
        if table is not None:
            d.table = C.pointer(table.rows)
        if target:
            d.target = PLAN_TARGET(guard(raised, lambda plan, _: target(plan.contents), -1.0))
        d.progress = PROGRESS(guard(raised, lambda p, _: bool(raised) or bool(progress and progress(p.contents)), 1))
        status = self.c.tune(self._ctx, d, result, record)
        if raised:
            raise raised[0]
        self.library.check(status, record)
        return result
