/* bsrsparse.h: block-sparse (BSR) matrix products, sampled products, softmax and attention for C and C++ programs.

   In exactly one .c, .cpp or .cu file:  #define BSRSPARSE_IMPLEMENTATION
                                         #include "bsrsparse.h"
   In every other file that uses it:     #include "bsrsparse.h"
   CPU:  cc -O2 -fopenmp prog.c -lm      (without -fopenmp: one thread, or your own threads through parallel_for)
   CUDA: nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a prog.cu
         (both backends; wants bsrsparse_kernels.cuh beside this file)

   What PyTorch's torch.sparse._triton_ops, DeepSpeed's block-sparse operations and FlexAttention do in Python, for
   programs that have no Python. This file alone is enough for the CPU; tune_table.h beside it is optional.

   It does not: allocate, synchronise, print, exit, abort or read the environment inside an operation; copy operands
   behind your back (only into a workspace that you offer); keep writable global state; fall back silently on a slower path (the
   plan says what runs).
   Not in this version: attention's backward. Not tested: MSVC.

   CONTENTS: every name is an anchor; search for ">>name:"
     types              statuses, data types, operations, operands, checks
     context            allocator, logger, threads, backend
     operands           dense views, BSR matrices
     exec               what comes with each call
     epilogue           what happens to a product before it is stored; user functions
     product            sparse x dense -> dense
     sampled            dense x dense -> sparse
     rows               softmax over stored elements
     attention          softmax(scale Q K^T, stored blocks) V in one pass
     matrices           checks, conversions, pruning, views
     layouts            DeepSpeed's sparsity configurations
     files              Matrix Market and DLMC text, from memory
     tune               tuned parameters: tables, their text, queries, the tuner
     base               prelude, names, errors, memory, threads
     numbers            checked sizes, element types, offsets
     batches            broadcasting, items, patterns
     checks             what every operand must fulfil
     plans              what will run, queries, workspace, scratch
     vectors            rows of numbers on the chosen instruction set
     product-engine     lists of block products, one epilogue
     sampled-engine     dense products at stored blocks
     scores             what rows and attention share: biases and masks of one row
     softmax            over stored elements, and its backward
     attention-engine   one pass over the stored blocks of each query tile
     cuts               pieces of scratch, rows of elements, ranges, random numbers
     builder            one way to build a matrix from any source
     sources            which blocks a dense matrix, a mask, a norm or entries leave
     conversions        from dense, CSR, COO, mask; random, pruned; to dense
     views              transposed index, schedule, validate
     scatter-indices    builder for bsr_scatter_mm
     layout-masks       blocks that attention layouts keep
     readers            numbers, Matrix Market, DLMC
     tables             tuned rows: order, changes, text, lookup
     product-calls      checks, plan, public functions
     scatter-calls      products listed by the caller
     sampled-calls      checks and public function
     matmul-calls       SDD, DSD, DDS and their gradients as products and sampled products
     cuda-types         what kernels of products, sampled products, softmax and attention are given
     cuda-tiles         what kernels are made of: sizes, stages, threads, shared memory
     cuda-kernels       the kernel table: every instance, and how one is found
     cuda-choices       what a launch looks like, who may choose it
     cuda-facts         what choosers ask of operands and products
     cuda-estimates     what kernels are expected to take
     cuda-plan-mma      products by simt and mma: choice, estimates, parameters
     cuda-plan-tiny     products of blocks too small or too odd for tensor cores: lanes, parameters
     cuda-plan-vector   products with one column: lanes, shares of warps
     cuda-plan-wgmma    products by tensor loads and wgmma: estimates, choice, parameters
     cuda-plan-sampled  sampled products: estimates, choice, parameters
     cuda-plan-rows     softmax and attention: choice, parameters
     cuda-plan          a call as the kernels see it, and who is asked in which order
     cuda-stage         operands laid anew in the workspace, for kernels that are faster then
     cuda-matrix-types  what the kernels of the matrix operations are given
     cuda-launch        the host side of the CUDA backend
     cuda-rows          softmax and attention on the CUDA backend, host side
     cuda-indices       index arrays looked at in the stream, before an operation
     cuda-matrices      the matrix operations on the CUDA backend
     tuner              the climb, measuring, verifying
     constructors       views and matrices by value
     create             contexts and what they can do

   FIRST STEPS
     bsr_context *ctx;                                       one per program; threads may share it
     bsr_create(NULL, &ctx, NULL);
     bsr_matrix a = bsr_matrix_make(rows, cols, 16, 16, nnz, crow, col, BSR_I32, values, BSR_F32);
     bsr_dense  b = bsr_dense_row_major(b_data, BSR_F32, cols, n), y = bsr_dense_row_major(y_data, BSR_F32, rows, n);
     bsr_error err;  bsr_exec ex = BSR_ZERO;  ex.error = &err;
     if (bsr_dense_mm(ctx, 0, &a, &b, &y, &ex) != BSR_OK) { char s[200]; bsr_error_string(&err, s, sizeof s); ... }
     bsr_destroy(ctx);
     Where nvcc compiled the implementation and a GPU is there, that is a CUDA context: every array lies in device memory then,
     the product runs on ex.stream, and the call returns before it is done. b has a.cols rows, y has a.rows.

   HOW CALLS BEHAVE
     Order: defaults, checks, plan, work. Every check comes before the first write, so a call that returns anything but
     BSR_OK has written nothing but its error record (a query bsr_exec.key); only a conversion that finds in its work what no
     check could see (CAPACITY, unequal items) may have written its workspace besides. bsr_error says which check (item), on which
     argument (operand), where (index), what was found (value) and what was wanted; bsr_error_string() makes a sentence of it.
     BSR_EXEC_SKIP_CHECKS leaves the checks out for callers who vouch for everything; on the CPU they include the contents of
     the index arrays, one pass over them.
     bsr_exec.query: check, write the plan, return without running: what would run and how much workspace it needs.
     bsr_plan_string() prints it. A plan can be handed back in bsr_exec.plan, in whole or in part.
     Sizes and offsets are 64-bit; a size computation that would overflow is an error.
     An output may not overlap an input, except that out may be the epilogue's input (y may be x, dx may be dy or y) exactly.
     Whether two views share a byte is decided exactly, so operands may lie between each other's rows, columns and items; the few
     whose strides are too many or too irregular for that are refused (OVERLAP_UNDECIDED). The elements of an output must be
     distinct in a simple way: sorted, each stride reaches past all that the shorter ones reach. Others are refused
     (STRIDE_OUTPUT), also where they interleave without meeting.
     Any operation may return NULL_POINTER (a required argument or an operand's array), BAD_ARGUMENT (an unknown flag, a
     reserved field), BAD_DTYPE, BAD_SHAPE, BAD_STRIDE, BAD_BATCH, MISALIGNED (below the element's alignment), OVERLAP,
     OVERFLOW, BAD_STRUCTURE (index arrays and attached views, on the CPU), UNSUPPORTED (left out of this build), BAD_PLAN,
     WORKSPACE_TOO_SMALL, on CUDA WRONG_DEVICE and CUDA_ERROR. "Errors" in a comment says what there is besides, or why.

   WORKSPACE THAT PAYS
     On CUDA products and sampled products run without a workspace, but some run faster with one: the plan of a query names it in
     workspace_bytes, and its flags say what it is for (bsr_plan_string() in words). With less the call runs all the same, slower;
     only a plan with such flags wants all that it names. (A query that comes with a workspace plans for that one.)
       - dense operands, inputs or outputs that are not in aligned pieces of 16 bytes (odd columns, leading dimensions, pointers)
         are copied there, and out from there, and i8 operands that are not stored along the products are turned;
       - items that share one matrix are laid side by side, as one product (where they stand so already, that needs nothing);
       - A^T without an attached transposed index: the index is built there, at each call;
       - few columns of small or odd blocks: block rows far longer than others are added up in pieces (even ones lose some 10 us).
     A workspace is taken where the estimates say that it pays. Then another kernel runs, on the same numbers: its sums have
     another order, so bits may differ from a call without; calls with the same operands and enough workspace agree.

   THREADS
     For a caller a context never changes: any number of threads may call with one context at once. An operation on the
     CPU runs on OpenMP's threads where it is compiled with OpenMP, or on the caller's own through
     bsr_context_desc.parallel_for, else on the calling thread. Results are the same bits for any number of threads, and
     for any number of calls at once; they may differ between instruction sets, which bsr_context_desc.isa can force.
     The library does not touch the floating-point control word (FTZ, DAZ, rounding stay as the caller has them).

   MEMORY
     Operations allocate nothing and need no workspace (but see CHECKED INDICES); they use up to 192 KB of stack per thread. The
     context is one allocation (some 130 KB on the CPU). Conversions, views and bsr_validate (>>matrices) take scratch from
     bsr_exec.workspace, or else, on the CPU, from the context's allocator. On CUDA some products are faster with a workspace:
     WORKSPACE THAT PAYS.
     On the CPU a schedule and the outputs of bsr_scatter_mm are checked for repeats: in any order in one pass per 2^20 lines or
     output tiles, by the context's own bits (2^16 while another call has them). Products and bsr_scatter_mm take one pass in all
     where bsr_exec.workspace has a bit for each of them, in whole words of 8 bytes. What it holds after a call is undefined, also
     after one that failed, but not after a query.

     A^T without its index (CPU) adds block after block to sums: in the workspace that a query names, where the call has it,
     else in out, or piece by piece on the stack, which goes through all blocks for each piece. The bits are the same for any
     number of threads, not with and without a workspace. A logger hears of it once per key (BSR_ITEM_SLOW_TRANSPOSE).
     OpenMP's idle threads spin unless OMP_WAIT_POLICY=passive is set in the environment before the program starts: beside other
     threads that have work, that costs several times as much as it saves.

   CUDA
     A context with BSR_BACKEND_CUDA takes the same calls with operands in device memory and runs them on bsr_exec.stream.
     bsr_create looks the device up and loads every kernel; after it no operation allocates, synchronises, copies between host
     and device or changes the current device (a wrong one is BSR_WRONG_DEVICE; so is another device's stream, from CUDA 12.8
     on, unless it is captured or checks are left out), so every operation can be captured in a graph. bsr_validate is the
     exception: it reads its finding back, and refuses while the stream is captured (unless it leaves it there: CHECKED INDICES).
     What the host can't see, the contents of index arrays and views, is not checked by operations unless they are asked to (see
     CHECKED INDICES): what is out of range there is read, and can be written, outside the arrays.
     Conversions leave the count in crow_indices' last entry and m->nnz at the capacity; they, the builders of views and of
     scatter indices and bsr_validate want the workspace that a query (bsr_exec.query) names, in device memory.
     BSR_EXEC_CHECK_POINTERS asks the driver whether each pointer but user_data is to device memory (a bsr_layout's lists are
     the host's).
     On Hopper most kernels start before the kernel before them in the stream ends, and wait for it before they use what they
     read. With BSR_EXEC_CONSTANT_MATRIX products with few columns by tier wgmma do not wait to read the sparse operand (see
     there); nor do most others of that tier (without alpha_ptr) to read its indices and views, and short ones of tier mma
     (of A as it stands) its crow_indices and col_indices.
     Tiers: simt takes any dtype, block size and stride; mma uses tensor cores (sm_80 and up) where sizes and alignment allow,
     and true f32 products by FFMA on the same pipeline (tensor cores only under BSR_EXEC_TF32 and _TF32X3).
     Their tiles are blocks of 16, 32, 64, 128, square. Blocks whose sides are other multiples of 16 (256, 96, 48, 128 x 64,
     16 x 64 ...) are seen as tiles of the largest of these sizes that divides both sides, in place: nothing is copied, views
     and schedules stay those of the stored blocks. i8 wants multiples of 32, on wgmma of 64.
     bsr_plan.kernel forces one (1 simt, 2 mma, 3 wgmma) and is refused where it does not fit; so do tile, split, stages and
     order. bsr_plan_string() says why a kernel was chosen. Same inputs, flags and plan, same GPU model: same bits.

   CHECKED INDICES
     On the CPU every call looks at the contents of its index arrays. On CUDA none does unless it is asked to: with a column or
     row pointer out of range kernels read outside the operands; with a stale transposed index or schedule, or with r_offsets
     of bsr_scatter_mm that are off, they also WRITE outside the output. BSR_EXEC_CHECK_INDICES asks: kernels look ahead of the
     operation, where the call runs, also at each replay of a graph, and leave what they find in *bsr_exec.device_status. 0:
     the operation runs. Else it writes nothing. Copy the word when you wait for the stream anyway; bsr_device_status() makes a
     bsr_error of it. Each such call sets the word first.
     They look at: crow_indices (start, end, never decreasing), col_indices (in range), whether matrices that must have one
     pattern have it, rows and columns of COO, attached views (made for this matrix, going by the header; the transposed index
     is that of this pattern; the schedule names every line once), scatter lists (in range, on tiles, no output twice). So does
     bsr_validate, which then does not wait and may be captured, and wants ascending columns besides.
     The word is the complement of operand << 58 | item << 50 | index (an index of all ones: -1), so the least finding by
     operand, then item, then index is the one that is told, however threads come. An index counts on through the patterns
     of a batch; what stood there is not told (BSR_VALUE_UNKNOWN).
     It costs two launches, one more for each further matrix, and a pass over the arrays. The operation's kernels do not start
     early then, and have grids of two layers. A schedule and r_offsets want a bit for each line or tile in the workspace: the
     query says how much. A view's buffer must be as long as its header says. On the CPU the word is the host's and says what the
     record says. With BSR_EXEC_SKIP_CHECKS or without a word the flag is refused.

   TUNING (>>tune)
     A plan comes from the caller (bsr_exec.plan), else from a tuned table, else from the heuristic. Tables: the caller's own
     (bsr_context_desc.table, bsr_exec.table), then the one that tune_table.h brings; a row serves its key, other densities,
     other n, relatives of its GPU (BSR_TUNE_*), and is passed over where it can't run. bsr_plan.source and match say which it
     was. A table holds only rows that beat the heuristic, so that a call without one is nothing unusual; the logger hears once
     per operation that no table knows the GPU's architecture, and once per key that f16, bf16 or i8 run on the simt tier, or A^T
     without its index.
     bsr_tune() searches a row on the caller's own operands; make tune runs it over many shapes and writes tune_table.h.

   ACCURACY
     Each operation's comment states its accumulation type and its bound. u is half a unit in the last place: 2^-24 for f32,
     2^-53 for f64. Absent blocks never contribute, also where the dense operand holds Inf or NaN.

   BUILD SWITCHES (define before the include that carries the implementation; those marked * before every include)
     BSRSPARSE_IMPLEMENTATION          put the implementation here
     BSRSPARSE_STATIC *                all functions static: private copies in several files
     BSR_API *                         what stands before every function, e.g. a visibility attribute; replaces `extern`
     BSRSPARSE_USER_FUNCTIONS *        "file.h" with the program's own epilogue, score and mask functions (>>epilogue)
     BSRSPARSE_MALLOC, BSRSPARSE_FREE  the default allocator; both or neither
     BSRSPARSE_ASSERT(x)               internal invariants; default: nothing
     BSRSPARSE_NO_SIMD                 portable C only
     BSRSPARSE_NO_OPENMP               no OpenMP even where the compiler offers it
     BSRSPARSE_NO_CUDA                 CPU backend only, also under nvcc
     BSRSPARSE_NO_ERROR_TEXT           leaves the sentences of bsr_item_string() out
     BSRSPARSE_NO_IO, _NO_LAYOUTS      leaves the file parsers, the attention layouts out
     BSRSPARSE_NO_PRODUCT, _SAMPLED, _ROWS, _ATTENTION; BSRSPARSE_ONLY_(the same names)
     BSRSPARSE_NO_F16, _BF16, _F32, _F64, _I8; BSRSPARSE_ONLY_(the same names)
                                       leave operations or operand types out: the functions stay and return
                                       BSR_UNSUPPORTED with BSR_ITEM_NOT_COMPILED or BSR_ITEM_DTYPE_NOT_COMPILED
     BSRSPARSE_NO_TUNE_TABLE           does not look for tune_table.h
     BSRSPARSE_TUNE_TABLE              "file.h" to use in its place

   BACKENDS AND WHAT THEY WERE RUN ON
     cpu, portable C     run: x86-64 (gcc, clang), aarch64 (emulated); compiled: mingw-w64
     cpu, AVX2, AVX-512  run: x86-64 (gcc, clang), chosen at run time; a plain -O2 build has them
     cuda, simt and mma  run: sm_90 (H200); compiled only: sm_75 to sm_89, sm_100, sm_120
     cuda, wgmma         run: sm_90a (H200), the only one that has it

   LICENCE: MIT-0, at the end of this file. */
#ifndef BSRSPARSE_H
#define BSRSPARSE_H

#include <stddef.h>
#include <stdint.h>

#define BSR_VERSION_MAJOR 0
#define BSR_VERSION_MINOR 1
#define BSR_VERSION_PATCH 0
#define BSR_VERSION (BSR_VERSION_MAJOR * 10000 + BSR_VERSION_MINOR * 100 + BSR_VERSION_PATCH)

#if defined(__GNUC__) || defined(__clang__)
#define BSRI_UNUSED __attribute__((unused))
#else
#define BSRI_UNUSED
#endif

/* Argument n is a pointer that is kept, not followed: memory without a value yet (an output's) may be handed over as const. */
#if defined(__GNUC__) && __GNUC__ >= 11 && !defined(__clang__) && !defined(__CUDACC__)
#define BSRI_KEEPS(n) __attribute__((access(none, n)))
#else
#define BSRI_KEEPS(n)
#endif

#ifndef BSR_API
#ifdef BSRSPARSE_STATIC
#define BSR_API BSRI_UNUSED static
#else
#define BSR_API extern
#endif
#endif

/* An all-zero struct in both languages: `bsr_exec ex = BSR_ZERO;` */
#ifdef __cplusplus
#define BSR_ZERO {}
#else
#define BSR_ZERO {0}
#endif

/* Flags are enumerators, which bindings and debuggers see. Macros of the same names make them unsigned, as the fields are
   that take them, and let #ifdef ask for one. */
#define BSRI_FLAG(name) (name | 0u)

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- */
/* >>types: statuses, data types, operations, operands, checks                                    */
/* ---------------------------------------------------------------------------------------------- */

#define BSR_STATUS_LIST(X)                                                                                      \
    X(BSR_OK, 0, "success")                                                                                     \
    X(BSR_BAD_ARGUMENT, 1, "an argument's value is not allowed")                                                \
    X(BSR_NULL_POINTER, 2, "a required pointer is null")                                                        \
    X(BSR_BAD_DTYPE, 3, "a data type is unknown or not accepted here")                                          \
    X(BSR_BAD_SHAPE, 4, "sizes are negative or do not fit together")                                            \
    X(BSR_BAD_STRIDE, 5, "a stride is not allowed")                                                             \
    X(BSR_BAD_BATCH, 6, "batch dimensions do not broadcast")                                                    \
    X(BSR_MISALIGNED, 7, "a pointer is below the alignment of its element type")                                \
    X(BSR_OVERLAP, 8, "an output overlaps another operand or itself")                                           \
    X(BSR_BAD_STRUCTURE, 9, "the index arrays of a sparse matrix break an invariant")                           \
    X(BSR_OVERFLOW, 10, "a size computation leaves the range of its integer type")                              \
    X(BSR_UNSUPPORTED, 11, "a legal combination that this build or version does not implement")                 \
    X(BSR_NO_BACKEND, 12, "the backend is not in this build or has no device")                                  \
    X(BSR_OUT_OF_MEMORY, 13, "the allocator returned null")                                                     \
    X(BSR_WORKSPACE_TOO_SMALL, 14, "the workspace is smaller than the plan asks for")                           \
    X(BSR_CAPACITY, 15, "an output array is too small for the result")                                          \
    X(BSR_BAD_PLAN, 16, "the plan does not fit the call")                                                       \
    X(BSR_WRONG_DEVICE, 17, "the current CUDA device, or the stream's, is not the context's")                   \
    X(BSR_CUDA_ERROR, 18, "a CUDA call failed")                                                                 \
    X(BSR_CAPTURING, 19, "not possible while the stream is captured")                                           \
    X(BSR_PARSE_ERROR, 20, "a file's text is malformed")

typedef enum bsr_status {
#define BSRI_X(name, value, text) name = value,
    BSR_STATUS_LIST(BSRI_X)
#undef BSRI_X
    BSR_STATUS_FORCE_32 = 0x7fffffff
} bsr_status;

/* name, value, text, bytes per element. BSR_BOOL is one byte, zero or not. */
#define BSR_DTYPE_LIST(X)   \
    X(BSR_F16, 1, "f16", 2)  \
    X(BSR_BF16, 2, "bf16", 2) \
    X(BSR_F32, 3, "f32", 4)  \
    X(BSR_F64, 4, "f64", 8)  \
    X(BSR_I8, 5, "i8", 1)    \
    X(BSR_I32, 6, "i32", 4)  \
    X(BSR_I64, 7, "i64", 8)  \
    X(BSR_BOOL, 8, "bool", 1)

typedef enum bsr_dtype {
    BSR_DTYPE_NONE = 0,
#define BSRI_X(name, value, text, bytes) name = value,
    BSR_DTYPE_LIST(BSRI_X)
#undef BSRI_X
    BSR_DTYPE_FORCE_32 = 0x7fffffff
} bsr_dtype;

/* name, value, text. One per public operation; bsr_plan.op and bsr_supports() use them. */
#define BSR_OP_LIST(X)                                    \
    X(BSR_OP_DENSE_ADDMM, 1, "dense_addmm")               \
    X(BSR_OP_SCATTER_MM, 2, "scatter_mm")                 \
    X(BSR_OP_MATMUL, 3, "matmul")                         \
    X(BSR_OP_MATMUL_BACKWARD, 4, "matmul_backward")       \
    X(BSR_OP_SAMPLED_ADDMM, 5, "sampled_addmm")           \
    X(BSR_OP_SOFTMAX, 6, "softmax")                       \
    X(BSR_OP_SOFTMAX_BACKWARD, 7, "softmax_backward")     \
    X(BSR_OP_ATTENTION, 8, "attention")                   \
    X(BSR_OP_ATTENTION_BACKWARD, 9, "attention_backward") \
    X(BSR_OP_VALIDATE, 10, "validate")                    \
    X(BSR_OP_TO_DENSE, 11, "to_dense")                    \
    X(BSR_OP_FROM_DENSE, 12, "from_dense")                \
    X(BSR_OP_FROM_CSR, 13, "from_csr")                    \
    X(BSR_OP_FROM_COO, 14, "from_coo")                    \
    X(BSR_OP_FROM_BLOCK_MASK, 15, "from_block_mask")      \
    X(BSR_OP_RANDOM_PATTERN, 16, "random_pattern")        \
    X(BSR_OP_PRUNE, 17, "prune")                          \
    X(BSR_OP_TRANSPOSED_INDEX, 18, "transposed_index")    \
    X(BSR_OP_SCHEDULE, 19, "schedule")                    \
    X(BSR_OP_LAYOUT, 20, "layout")                        \
    X(BSR_OP_SCATTER_INDICES, 21, "scatter_indices")      \
    X(BSR_OP_PARSE, 22, "parse")                          \
    X(BSR_OP_CREATE, 23, "create")                        \
    X(BSR_OP_TUNE, 24, "tune")                            \
    X(BSR_OP_TO_CSR, 25, "to_csr")                        \
    X(BSR_OP_TO_COO, 26, "to_coo")                        \
    X(BSR_OP_REBLOCK, 27, "reblock")

typedef enum bsr_op {
    BSR_OP_NONE = 0,
#define BSRI_X(name, value, text) name = value,
    BSR_OP_LIST(BSRI_X)
#undef BSRI_X
    BSR_OP_FORCE_32 = 0x7fffffff
} bsr_op;

/* Which argument an error speaks of: name, value, text. */
#define BSR_OPERAND_LIST(X)                                                                                      \
    X(BSR_ARG_NONE, 0, "the call")                                                                               \
    X(BSR_ARG_A, 1, "a") X(BSR_ARG_B, 2, "b") X(BSR_ARG_OUT, 3, "out") X(BSR_ARG_INPUT, 4, "input")              \
    X(BSR_ARG_LEFT_ALPHA, 5, "left_alpha") X(BSR_ARG_RIGHT_ALPHA, 6, "right_alpha") X(BSR_ARG_BIAS, 7, "bias")   \
    X(BSR_ARG_MAT1, 8, "mat1") X(BSR_ARG_MAT2, 9, "mat2") X(BSR_ARG_X, 10, "x") X(BSR_ARG_Y, 11, "y")            \
    X(BSR_ARG_DY, 12, "dy") X(BSR_ARG_DX, 13, "dx") X(BSR_ARG_REL_BIAS, 14, "relative_bias")                     \
    X(BSR_ARG_KEY_PADDING, 15, "key_padding_mask") X(BSR_ARG_ATTN_MASK, 16, "attn_mask")                         \
    X(BSR_ARG_Q, 17, "q") X(BSR_ARG_K, 18, "k") X(BSR_ARG_V, 19, "v") X(BSR_ARG_MASK, 20, "mask")                \
    X(BSR_ARG_LSE, 21, "lse") X(BSR_ARG_BLOCKS, 22, "blocks") X(BSR_ARG_OTHERS, 23, "others")                    \
    X(BSR_ARG_INDICES, 24, "indices") X(BSR_ARG_ACCUMULATORS, 25, "accumulators") X(BSR_ARG_C, 26, "c")          \
    X(BSR_ARG_DC, 27, "dc") X(BSR_ARG_DA, 28, "da") X(BSR_ARG_DB, 29, "db") X(BSR_ARG_SOURCE, 30, "source")      \
    X(BSR_ARG_MATRIX, 31, "matrix") X(BSR_ARG_BUFFER, 32, "buffer") X(BSR_ARG_OPTIONS, 33, "options")            \
    X(BSR_ARG_EXEC, 34, "exec") X(BSR_ARG_TEXT, 35, "text") X(BSR_ARG_CONTEXT, 36, "context")                    \
    X(BSR_ARG_DQ, 37, "dq") X(BSR_ARG_DK, 38, "dk") X(BSR_ARG_DV, 39, "dv") X(BSR_ARG_TABLE, 40, "table")

typedef enum bsr_operand_id {
#define BSRI_X(name, value, text) name = value,
    BSR_OPERAND_LIST(BSRI_X)
#undef BSRI_X
    BSR_ARG_FORCE_32 = 0x7fffffff
} bsr_operand_id;

/* Every check has one item: name, status that it returns, sentence. bsr_error.index and .value are what the
   sentence's <index> and <value> stand for (<dtype>, <operand>, <op>: value, by its name); -1 and 0 where it
   names none; <wanted> and the like stand for bsr_error.wanted. Sizes, block sizes and strides are numbered: 0 rows, 1 columns,
   from 2 on batch dimensions (from 0 where the sentence says batch dimension); strides of a matrix's stored blocks 6 (from one
   to the next), 7 rows, 8 columns. Tests match items, not text. */
#define BSR_ITEM_LIST(X)                                                                                              \
    X(BSR_ITEM_NONE, BSR_OK, "no error")                                                                              \
    X(BSR_ITEM_CONTEXT_NULL, BSR_NULL_POINTER, "the context is null")                                                 \
    X(BSR_ITEM_ARGUMENT_NULL, BSR_NULL_POINTER, "a required argument is null")                                        \
    X(BSR_ITEM_OUTPUT_NULL, BSR_NULL_POINTER, "a pointer that receives a result is null")                             \
    X(BSR_ITEM_DATA_NULL, BSR_NULL_POINTER, "a dense operand with elements has null data")                            \
    X(BSR_ITEM_CROW_NULL, BSR_NULL_POINTER, "crow_indices is null")                                                   \
    X(BSR_ITEM_COL_NULL, BSR_NULL_POINTER, "col_indices is null although blocks are stored")                          \
    X(BSR_ITEM_VALUES_NULL, BSR_NULL_POINTER, "values is null although the operation needs them")                     \
    X(BSR_ITEM_INDEX_ARRAY_NULL, BSR_NULL_POINTER, "an index array is null although it has entries")                  \
    X(BSR_ITEM_BACKEND_UNKNOWN, BSR_BAD_ARGUMENT, "unknown backend <value>")                                          \
    X(BSR_ITEM_BACKEND_MISSING, BSR_NO_BACKEND, "the CUDA backend is not in this build")                              \
    X(BSR_ITEM_DEVICE_MISSING, BSR_NO_BACKEND, "no GPU for the CUDA backend: none is there (CUDA error 100), not this "\
      "one (101), its driver is absent or too old (35), or this build has no code for it (209)")                      \
    X(BSR_ITEM_ISA_MISSING, BSR_NO_BACKEND, "instruction set <value> is not in this build or this machine lacks it")  \
    X(BSR_ITEM_ALLOCATOR_HALF, BSR_BAD_ARGUMENT, "an allocator needs both functions or none")                         \
    X(BSR_ITEM_THREADS, BSR_BAD_ARGUMENT, "the thread count <value> is negative or above 4096")                       \
    X(BSR_ITEM_RESERVED, BSR_BAD_ARGUMENT, "a reserved field or unknown flag is set: <value>")                        \
    X(BSR_ITEM_FLAGS_CONFLICT, BSR_BAD_ARGUMENT, "two flags exclude each other: <value>")                             \
    X(BSR_ITEM_NOT_COMPILED, BSR_UNSUPPORTED, "this build leaves <op> out")                                           \
    X(BSR_ITEM_NOT_IMPLEMENTED, BSR_UNSUPPORTED, "this version does not implement the operation yet")                 \
    X(BSR_ITEM_NO_MEMORY, BSR_OUT_OF_MEMORY, "the allocator returned null for <value> bytes")                         \
    X(BSR_ITEM_WORKSPACE, BSR_WORKSPACE_TOO_SMALL, "the workspace must have <value> bytes and 64-byte alignment")     \
    X(BSR_ITEM_BUFFER_SIZE, BSR_CAPACITY, "the buffer must have <value> bytes")                                       \
    X(BSR_ITEM_CAPACITY, BSR_CAPACITY, "the arrays must hold <value> blocks")                                         \
    X(BSR_ITEM_PLAN_OP, BSR_BAD_PLAN, "the plan was made for <op>, not for <wanted_op>")                              \
    X(BSR_ITEM_PLAN_FIELD, BSR_BAD_PLAN, "field <index> of the plan can't be <value> here")                           \
    X(BSR_ITEM_DTYPE_UNKNOWN, BSR_BAD_DTYPE, "unknown dtype <value>")                                                 \
    X(BSR_ITEM_DTYPE_NOT_ACCEPTED, BSR_BAD_DTYPE, "dtype <dtype> is not accepted for this operand, which takes <wanted_dtypes>") \
    X(BSR_ITEM_DTYPE_MISMATCH, BSR_BAD_DTYPE, "dtype <dtype> differs from the other operand's, <wanted_dtype>")       \
    X(BSR_ITEM_DTYPE_OUT, BSR_BAD_DTYPE, "output dtype <dtype> does not go with the operands': <wanted_dtypes> would") \
    X(BSR_ITEM_INDEX_DTYPE, BSR_BAD_DTYPE, "index dtype <dtype> is neither i32 nor i64")                              \
    X(BSR_ITEM_SIZE_NEGATIVE, BSR_BAD_SHAPE, "size <index> is negative: <value>")                                     \
    X(BSR_ITEM_BLOCK_SIZE, BSR_BAD_SHAPE, "block size <value> is below 1 or above 2^20")                              \
    X(BSR_ITEM_BLOCK_DIVIDES, BSR_BAD_SHAPE, "size <value> is no multiple of the block size <wanted>")                \
    X(BSR_ITEM_BLOCK_MISMATCH, BSR_BAD_SHAPE, "the block size is <value>, not <wanted> as the other matrix's")        \
    X(BSR_ITEM_NNZ_NEGATIVE, BSR_BAD_SHAPE, "nnz is negative: <value>")                                               \
    X(BSR_ITEM_NNZ_MISMATCH, BSR_BAD_SHAPE, "nnz is <value>, not <wanted> as the other matrix's")                     \
    X(BSR_ITEM_ROWS_MISMATCH, BSR_BAD_SHAPE, "the number of rows is <value>, not <wanted>")                           \
    X(BSR_ITEM_COLS_MISMATCH, BSR_BAD_SHAPE, "the number of columns is <value>, not <wanted>")                        \
    X(BSR_ITEM_INNER_MISMATCH, BSR_BAD_SHAPE, "the inner size is <value>, not <wanted> as the other operand's")       \
    X(BSR_ITEM_MODE, BSR_BAD_SHAPE, "exactly one of a, b, c must be sparse; <value> are")                             \
    X(BSR_ITEM_OPERAND_KIND, BSR_BAD_ARGUMENT, "an operand must be either dense or sparse")                           \
    X(BSR_ITEM_BATCH_DIMS, BSR_BAD_BATCH, "batch_dims is <value>, not <wanted>")                                      \
    X(BSR_ITEM_BATCH_SIZE, BSR_BAD_BATCH, "batch dimension <index> is <value>, not <wanted>")                         \
    X(BSR_ITEM_BATCH_EXTRA, BSR_BAD_BATCH, "the operand has batch dimension <index> of <value>, which the " \
      "output lacks: not <wanted>") \
    X(BSR_ITEM_BATCH_SUM, BSR_BAD_BATCH, "a gradient over <value> batch items: 2^31 - 1 are the most")               \
    X(BSR_ITEM_HEADS, BSR_BAD_BATCH, "<value> query heads are no multiple of the <wanted> key/value heads")           \
    X(BSR_ITEM_STRIDE_NEGATIVE, BSR_BAD_STRIDE, "stride <index> is negative: <value>")                                \
    X(BSR_ITEM_STRIDE_OUTPUT, BSR_BAD_STRIDE, "an output's elements share memory through stride <index>: <value>, " \
      "not at least <wanted>") \
    X(BSR_ITEM_STRIDE_PATTERN, BSR_BAD_STRIDE, "ragged dimension <index> needs col and values strides of 0")\
    X(BSR_ITEM_ALIGNMENT, BSR_MISALIGNED, "the pointer is not aligned to <value> bytes")                              \
    X(BSR_ITEM_OVERLAP, BSR_OVERLAP, "the output overlaps operand <operand>")                                         \
    X(BSR_ITEM_SIZE_OVERFLOW, BSR_OVERFLOW, "the operand's extent does not fit 63 bits")                              \
    X(BSR_ITEM_INDEX_RANGE, BSR_OVERFLOW, "<value> does not fit the index dtype")                                     \
    X(BSR_ITEM_CROW_FIRST, BSR_BAD_STRUCTURE, "crow_indices starts at <value>, not where it must (batch item <index>)")\
    X(BSR_ITEM_CROW_LAST, BSR_BAD_STRUCTURE, "crow_indices ends at <value>, not at nnz (batch item <index>)")         \
    X(BSR_ITEM_CROW_DECREASES, BSR_BAD_STRUCTURE, "block row <index> has <value> blocks")                             \
    X(BSR_ITEM_CROW_LONG, BSR_BAD_STRUCTURE, "block row <index> has <value> blocks, more than block columns")         \
    X(BSR_ITEM_COL_RANGE, BSR_BAD_STRUCTURE, "col_indices[<index>] is <value>, out of range")                         \
    X(BSR_ITEM_COL_ORDER, BSR_BAD_STRUCTURE, "col_indices[<index>] is <value>, not above its predecessor in the row") \
    X(BSR_ITEM_PATTERN_MISMATCH, BSR_BAD_STRUCTURE, "the two patterns differ at entry <index>: <value>")              \
    X(BSR_ITEM_VIEW_HEADER, BSR_BAD_STRUCTURE, "an attached view was made for another matrix (header word <index>: <value>)")\
    X(BSR_ITEM_VIEW_CONTENT, BSR_BAD_STRUCTURE, "an attached view is inconsistent at entry <index>: <value>")         \
    X(BSR_ITEM_VIEW_REQUIRED, BSR_BAD_ARGUMENT, "the operation needs an attached view")                               \
    X(BSR_ITEM_ROW_RANGE, BSR_BAD_STRUCTURE, "row index [<index>] is <value>, out of range")                          \
    X(BSR_ITEM_UNEQUAL_NNZ, BSR_BAD_STRUCTURE, "batch item <index> has <value> blocks, not <wanted> as the first: " \
      "use BSR_MATRIX_RAGGED") \
    X(BSR_ITEM_ALPHA_INTEGER, BSR_BAD_ARGUMENT, "alpha and beta must be whole numbers within 32 bits for an integer output")\
    X(BSR_ITEM_BETA_INPUT, BSR_NULL_POINTER, "beta is not zero but input is null")                                    \
    X(BSR_ITEM_BETA_BOOL, BSR_BAD_ARGUMENT, "beta must be zero for a boolean or pattern-only input")                  \
    X(BSR_ITEM_ACTIVATION, BSR_BAD_ARGUMENT, "unknown activation <value>")                                            \
    X(BSR_ITEM_ACTIVATION_DTYPE, BSR_UNSUPPORTED, "activation <value> does not go with this output or compute type")  \
    X(BSR_ITEM_USER_FUNCTION, BSR_BAD_ARGUMENT, "no user function has the id <value>")                                \
    X(BSR_ITEM_MASK_MODE, BSR_BAD_ARGUMENT, "unknown mask mode <value>")                                              \
    X(BSR_ITEM_DROPOUT, BSR_BAD_ARGUMENT, "the dropout probability is not in [0, 1]")                                 \
    X(BSR_ITEM_SCALE, BSR_BAD_ARGUMENT, "the scale is not finite")                                                    \
    X(BSR_ITEM_SPARSITY, BSR_BAD_ARGUMENT, "the sparsity is not in [0, 1]")                                           \
    X(BSR_ITEM_NORM, BSR_BAD_ARGUMENT, "unknown norm <value>")                                                        \
    X(BSR_ITEM_FORMAT, BSR_BAD_ARGUMENT, "unknown index format <value>")                                              \
    X(BSR_ITEM_SPLIT_N, BSR_BAD_SHAPE, "split_n <value> does not divide the number of columns, <wanted>")             \
    X(BSR_ITEM_INDICES_COUNT, BSR_BAD_SHAPE, "a count of the scatter indices is <value>, not <wanted>")               \
    X(BSR_ITEM_INDICES_RANGE, BSR_BAD_STRUCTURE, "scatter index [<index>] is <value>, out of range")                  \
    X(BSR_ITEM_INDICES_DUPLICATE, BSR_BAD_STRUCTURE, "accumulator <value> is named twice (entry <index>)")            \
    X(BSR_ITEM_GROUP_SIZE, BSR_BAD_ARGUMENT, "the schedule's group size <value> is not 1, 2, 4 or 8")                 \
    X(BSR_ITEM_LAYOUT_KIND, BSR_BAD_ARGUMENT, "unknown layout <value>")                                               \
    X(BSR_ITEM_LAYOUT_FIELD, BSR_BAD_ARGUMENT, "layout field <index> can't be <value> (see bsr_layout)")              \
    X(BSR_ITEM_CUDA, BSR_CUDA_ERROR, "a CUDA call failed")                                                            \
    X(BSR_ITEM_CUDA_DEVICE, BSR_WRONG_DEVICE, "the current device is <value>, not <wanted>")                          \
    X(BSR_ITEM_CUDA_POINTER, BSR_BAD_ARGUMENT, "the pointer is not to device memory (memory type <value>)")           \
    X(BSR_ITEM_CUDA_CAPTURING, BSR_CAPTURING, "the stream is being captured")                                         \
    X(BSR_ITEM_PARSE_HEADER, BSR_PARSE_ERROR, "line <index>: the header is not one that this reader knows")           \
    X(BSR_ITEM_PARSE_NUMBER, BSR_PARSE_ERROR, "line <index>: a number was expected")                                  \
    X(BSR_ITEM_PARSE_RANGE, BSR_PARSE_ERROR, "line <index>: <value> is out of range")                                 \
    X(BSR_ITEM_PARSE_SHORT, BSR_PARSE_ERROR, "line <index>: the text ends although more is announced: <value>")       \
    X(BSR_ITEM_PARSE_EXTRA, BSR_PARSE_ERROR, "line <index>: more text than the header announces")                     \
    X(BSR_ITEM_PARSE_KIND, BSR_PARSE_ERROR, "line <index>: a kind of matrix that this reader does not take")          \
    X(BSR_ITEM_TUNE_ROW, BSR_BAD_ARGUMENT, "field <index> of a tuned row can't be <value>")                           \
    X(BSR_ITEM_TUNE_GPU, BSR_BAD_ARGUMENT, "description <index> of a GPU is not plain text, or has a negative number") \
    X(BSR_ITEM_TUNE_CAPACITY, BSR_CAPACITY, "the table must hold <value> rows and <index> GPUs")                      \
    X(BSR_ITEM_TUNE_SIZE, BSR_CAPACITY, "the table's text has <value> bytes, above 64 KB")                            \
    X(BSR_ITEM_TUNE_FORMAT, BSR_PARSE_ERROR, "line <index>: a tuned table of format <value>, made by another version") \
    X(BSR_ITEM_TUNE_CHECK, BSR_PARSE_ERROR, "line <index>: the check sum is not that of the rows")                    \
    X(BSR_ITEM_TUNE_TWICE, BSR_PARSE_ERROR, "line <index>: out of order, or a key for the second time")               \
    X(BSR_ITEM_TUNE_RANGE, BSR_PARSE_ERROR, "line <index>: a tuned row can't have <value> there (blocks: 1 to 2^20; classes: " \
      "0 to 2; density: 0 to 100; kernel: 0 to 3; tile, split, stages, order: 0 to 2^20; gain: -1000 to 1000)")         \
    X(BSR_ITEM_TUNE_CLIMB, BSR_BAD_ARGUMENT, "field <index> of the climb can't be <value>")                           \
    X(BSR_ITEM_TUNE_FAILED, BSR_BAD_PLAN, "neither the initial nor the reference parameters can be had")              \
    X(BSR_ITEM_TUNE_WRONG, BSR_BAD_PLAN, "a plan gives another result than the plainest tier")                        \
    X(BSR_ITEM_TUNE_DEFAULTS, BSR_OK, "an operation runs on untuned parameters")                                      \
    X(BSR_ITEM_DTYPE_NOT_COMPILED, BSR_UNSUPPORTED, "this build leaves operands in <dtype> out")                      \
    X(BSR_ITEM_CUDA_STREAM, BSR_WRONG_DEVICE, "the stream is of device <value>, not <wanted>")                        \
    X(BSR_ITEM_TUNE_DESC, BSR_BAD_ARGUMENT, "field <index> of the tuner's description can't be <value>")              \
    X(BSR_ITEM_OVERLAP_UNDECIDED, BSR_OVERLAP, "the output may overlap operand <operand>: undecided, as their strides are too " \
      "irregular, or span more than 63 bits") \
    X(BSR_ITEM_DEVICE_STATUS, BSR_BAD_ARGUMENT, "checked indices need device_status, a word for what is found")       \
    X(BSR_ITEM_STATUS_WORD, BSR_BAD_ARGUMENT, "no word of bsr_exec.device_status: <value>")                           \
    X(BSR_ITEM_VIEW_REPEATS, BSR_BAD_STRUCTURE, "the attached schedule names line <index> twice")                     \
    X(BSR_ITEM_INDICES_REPEAT, BSR_BAD_STRUCTURE, "output tile <index> is named twice")                               \
    X(BSR_ITEM_SLOW_TRANSPOSE, BSR_OK, "A^T runs without its index, several times slower: see bsr_build_transposed_index; a " \
      "workspace as a query names it helps, too")

typedef enum bsr_item {
#define BSRI_X(name, status, text) name,
    BSR_ITEM_LIST(BSRI_X)
#undef BSRI_X
    BSR_ITEM_COUNT,
    BSR_ITEM_FORCE_32 = 0x7fffffff
} bsr_item;

/* What went wrong. The caller owns it; written by every call that is given one (BSR_OK clears it). */
typedef struct bsr_error {
    int32_t status;     /* bsr_status */
    int32_t item;       /* bsr_item: which check */
    int32_t operand;    /* bsr_operand_id: of which argument */
    int32_t cuda_error; /* cudaError_t, or 0 */
    int64_t index;      /* where: entry, dimension, row, line; -1 if the item names none */
    int64_t value;      /* the value found there; BSR_VALUE_UNKNOWN from bsr_device_status() */
    int64_t wanted;     /* what was wanted there, or the nearest bound; a set of dtypes as a bit for each, 1 << BSR_F32; -1 if the
                           item does not name it */
} bsr_error;
#define BSR_VALUE_UNKNOWN INT64_C(-0x5555555555555555) /* "?" in a sentence */

BSR_API int bsr_version(void);                                /* BSR_VERSION of the implementation */
BSR_API const char *bsr_status_name(int status);              /* "BSR_OVERLAP"; never null */
BSR_API const char *bsr_status_string(int status);            /* one sentence; never null */
BSR_API const char *bsr_item_name(int item);                  /* "BSR_ITEM_OVERLAP"; never null */
BSR_API const char *bsr_item_string(int item);                /* one sentence; never null */
BSR_API const char *bsr_operand_name(int operand);            /* "left_alpha"; never null */
BSR_API const char *bsr_op_name(int op);                      /* "dense_addmm"; never null */
BSR_API const char *bsr_dtype_name(int dtype);                /* "bf16"; never null */
BSR_API size_t bsr_dtype_size(int dtype);                     /* bytes per element; 0 for an unknown dtype */
/* Writes one line, "BSR_OVERLAP: out: the output overlaps operand b" and the like, always terminated, never
   more than size bytes. Returns the length that the whole line has, as snprintf does. */
BSR_API int bsr_error_string(const bsr_error *error, char *text, size_t size);
/* What BSR_EXEC_CHECK_INDICES has left in bsr_exec.device_status, from a copy in host memory: writes the record (error may be
   null) and returns its status, BSR_OK for 0. Errors: BAD_ARGUMENT (no such word). */
BSR_API bsr_status bsr_device_status(uint64_t word, bsr_error *error);

/* ---------------------------------------------------------------------------------------------- */
/* >>context: allocator, logger, threads, backend                                                 */
/* ---------------------------------------------------------------------------------------------- */

typedef struct CUstream_st *bsr_stream; /* the same type as cudaStream_t; ignored by the CPU backend */
typedef struct bsr_context bsr_context; /* immutable after creation; any number of threads may share one */
typedef struct bsr_tune_table bsr_tune_table; /* tuned parameters: >>tune */
typedef struct bsr_tune_row bsr_tune_row;

typedef struct bsr_allocator { /* host memory for the context, and for scratch of conversions on the CPU */
    void *(*alloc_fn)(size_t bytes, void *user); /* aligned for any type, or null */
    void (*free_fn)(void *ptr, void *user);
    void *user;
} bsr_allocator;

enum { BSR_LOG_ERROR = 1, BSR_LOG_WARN = 2, BSR_LOG_INFO = 3 };
typedef struct bsr_logger { /* called from the thread that makes the call; none: silence */
    void (*func)(int level, int item, const char *message, void *user);
    void *user;
    int32_t max_level; /* 0: errors and warnings */
    int32_t reserved;
} bsr_logger;

/* The caller's own threads: runs body(arg, i) once for every i in [0, tasks), in any order, returns when all
   are done. Results do not depend on how it does so. */
typedef void (*bsr_parallel_for)(void *user, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg);

typedef enum bsr_backend {
    BSR_BACKEND_DEFAULT = 0, /* CUDA where this build has it and the machine a GPU, else the CPU */
    BSR_BACKEND_CPU = 1,
    BSR_BACKEND_CUDA = 2,
    BSR_BACKEND_FORCE_32 = 0x7fffffff
} bsr_backend;

typedef enum bsr_isa { /* of the CPU backend; results are the same for any thread count, not for any isa */
    BSR_ISA_DEFAULT = 0, /* the widest that the machine has */
    BSR_ISA_PORTABLE = 1, /* plain C */
    BSR_ISA_AVX2 = 2,     /* with FMA and F16C */
    BSR_ISA_AVX512 = 3,   /* F, BW, DQ, VL */
    BSR_ISA_FORCE_32 = 0x7fffffff
} bsr_isa;

typedef struct bsr_context_desc { /* all zero: defaults */
    int32_t backend; /* bsr_backend */
    int32_t device;  /* CUDA ordinal + 1; 0: the current device */
    int32_t threads; /* CPU: 0: OpenMP's default, or 1 without OpenMP; ignored with parallel_for */
    int32_t isa;     /* bsr_isa */
    bsr_allocator allocator;
    bsr_logger logger;
    bsr_parallel_for parallel_for;
    void *parallel_user;
    const bsr_tune_table *table; /* looked at before the built-in rows; must outlive the context. null: none */
    int64_t reserved[3];
} bsr_context_desc;

typedef struct bsr_info {
    int32_t version, backend, isa, threads;
    int32_t device, sm_count, cc_major, cc_minor; /* CUDA; -1 and zeros on the CPU */
    const char *backend_name, *isa_name;
    const char *status_of_backends; /* for each backend and tier: run on hardware, compiled only, absent */
} bsr_info;

/* Makes a context. desc null: defaults. Errors: NULL_POINTER (out), BAD_ARGUMENT, NO_BACKEND, OUT_OF_MEMORY; *out is null then.
   BSR_BACKEND_DEFAULT takes the CPU only where there is no GPU at all (no device, no driver): one that can't be opened (an error
   that an earlier call left, a desc.device that is not there, no kernels for it) is NO_BACKEND, as with BSR_BACKEND_CUDA. */
BSR_API bsr_status bsr_create(const bsr_context_desc *desc, bsr_context **out, bsr_error *error);
BSR_API void bsr_destroy(bsr_context *ctx); /* null is fine */
BSR_API bsr_status bsr_query_info(const bsr_context *ctx, bsr_info *out); /* Errors: NULL_POINTER */
/* 1 where this context runs the operation (bsr_op) with these operand and output types and this block size, else 0. */
BSR_API int bsr_supports(const bsr_context *ctx, int op, int dtype, int out_dtype, int64_t block_rows,
                         int64_t block_cols);

/* ---------------------------------------------------------------------------------------------- */
/* >>operands: dense views, BSR matrices                                                          */
/* ---------------------------------------------------------------------------------------------- */

enum { BSR_MAX_BATCH_DIMS = 4 };

/* A view of batch[0] x ... x rows x cols elements. Strides count elements, are not negative, and 0 repeats
   (never in an output). Element (i, j) of batch item (b0, b1, ...) stands at
   data[b0*batch_stride[0] + ... + i*row_stride + j*col_stride]. Batch dimensions are outermost first and
   broadcast as NumPy's do: aligned at the last, sizes equal or 1 or absent. Maps onto a DLTensor. */
typedef struct bsr_dense {
    void *data; /* never written through where it is an input */
    int32_t dtype;      /* bsr_dtype */
    int32_t batch_dims; /* 0 to 4 */
    int64_t rows, cols, row_stride, col_stride;
    int64_t batch[BSR_MAX_BATCH_DIMS], batch_stride[BSR_MAX_BATCH_DIMS];
} bsr_dense;

/* Packed, without batch dimensions: element (i, j) at data[i*cols + j]; at data[i + j*rows]. data is only wrapped: const inputs
   are fine, an output's memory must not be const. */
BSR_API bsr_dense bsr_dense_row_major(const void *data, int dtype, int64_t rows, int64_t cols) BSRI_KEEPS(1);
BSR_API bsr_dense bsr_dense_col_major(const void *data, int dtype, int64_t rows, int64_t cols) BSRI_KEEPS(1);
BSR_API bsr_dense bsr_dense_strided(const void *data, int dtype, int64_t rows, int64_t cols, int64_t row_stride,
                                    int64_t col_stride) BSRI_KEEPS(1);
BSR_API bsr_dense bsr_dense_transposed(bsr_dense d); /* swaps rows and cols and their strides; moves nothing */
/* The same view with one more batch dimension, outside the ones that it has: size n, stride elements apart. */
BSR_API bsr_dense bsr_dense_batched(bsr_dense d, int64_t n, int64_t stride);

typedef enum bsr_matrix_flag {
    BSR_MATRIX_RAGGED = 1 << 0, /* batch items may store different numbers of blocks; see bsr_matrix */
    BSR_MATRIX_FLAG_FORCE_32 = 0x7fffffff
} bsr_matrix_flag;
#define BSR_MATRIX_RAGGED BSRI_FLAG(BSR_MATRIX_RAGGED)

/* A block-sparse matrix: crow_indices [rows/block_rows + 1], col_indices [nnz], values
   [nnz][block_rows][block_cols], as torch.sparse_bsr_tensor and SciPy's bsr_matrix have them. Any block size
   from 1 x 1; rows and cols are multiples of it. Products take columns in any order and add up duplicates;
   bsr_validate wants them ascending and distinct. values null: pattern only.
   Batch dimensions broadcast; a batch stride 0 shares the array among the items. With BSR_MATRIX_RAGGED
   crow_indices of every item holds absolute positions into shared col_indices and values (their batch
   strides are 0 in that dimension), each starts where the one before ended, and nnz is the total. */
typedef struct bsr_matrix {
    void *crow_indices, *col_indices, *values;
    int32_t dtype;       /* of values: bsr_dtype */
    int32_t index_dtype; /* BSR_I32 or BSR_I64, for both index arrays */
    int64_t rows, cols, block_rows, block_cols;
    int64_t nnz;         /* stored blocks per batch item; in all with BSR_MATRIX_RAGGED */
    int64_t value_strides[3]; /* between blocks, rows and columns inside a block; all 0: packed row-major */
    uint32_t flags;      /* BSR_MATRIX_* */
    int32_t batch_dims;
    int64_t batch[BSR_MAX_BATCH_DIMS];
    int64_t crow_batch_stride[BSR_MAX_BATCH_DIMS], col_batch_stride[BSR_MAX_BATCH_DIMS];
    int64_t values_batch_stride[BSR_MAX_BATCH_DIMS];
    const void *transposed_index; /* bsr_build_transposed_index(), or null */
    const void *schedule;         /* bsr_build_schedule(), or null */
} bsr_matrix;

/* rows x cols elements, values packed; no batch dimensions, no views. The arrays stay the caller's, and may be const as
   data may above. */
BSR_API bsr_matrix bsr_matrix_make(int64_t rows, int64_t cols, int64_t block_rows, int64_t block_cols, int64_t nnz,
                                   const void *crow_indices, const void *col_indices, int index_dtype, const void *values,
                                   int dtype) BSRI_KEEPS(6) BSRI_KEEPS(7) BSRI_KEEPS(9);
/* The same matrix with one more batch dimension outside: n items, strides in elements of each array. */
BSR_API bsr_matrix bsr_matrix_batched(bsr_matrix m, int64_t n, int64_t crow_stride, int64_t col_stride,
                                      int64_t values_stride);

/* ---------------------------------------------------------------------------------------------- */
/* >>exec: what comes with each call                                                              */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_plan_source {
    BSR_PLAN_HEURISTIC = 1, BSR_PLAN_TABLE = 2, BSR_PLAN_CALLER = 3, BSR_PLAN_SOURCE_FORCE_32 = 0x7fffffff
} bsr_plan_source;

typedef enum bsr_plan_flag {
    BSR_PLAN_SLOW_TRANSPOSE = 1 << 0, /* op(A) = A^T without a transposed index: blocks are added to sums all over the result */
    BSR_PLAN_USES_SCHEDULE  = 1 << 1, /* a schedule is attached that may order the work; see bsr_schedule_size */
    BSR_PLAN_PACKS_B        = 1 << 2, /* the dense operand is not f32/f64 row-major: tiles are converted first */
    /* CUDA, in the workspace (WORKSPACE THAT PAYS): */
    BSR_PLAN_STAGES_DENSE   = 1 << 3, /* dense operands that are not in aligned pieces of 16 bytes are copied there first, */
    BSR_PLAN_STAGES_OUT     = 1 << 4, /* out is formed there and copied from there, */
    BSR_PLAN_TURNS_DENSE    = 1 << 5, /* the dense operand is copied there in its other layout first, */
    BSR_PLAN_MERGES_BATCH   = 1 << 6, /* the columns of all items stand beside each other there: one product; */
    BSR_PLAN_BUILDS_INDEX   = 1 << 7, /* the transposed index is built there first; */
    BSR_PLAN_CUTS_ROWS      = 1 << 8, /* rows far longer than others are added up in pieces, whose sums stand there */
    BSR_PLAN_FLAG_FORCE_32 = 0x7fffffff
} bsr_plan_flag;
#define BSR_PLAN_SLOW_TRANSPOSE BSRI_FLAG(BSR_PLAN_SLOW_TRANSPOSE)
#define BSR_PLAN_USES_SCHEDULE  BSRI_FLAG(BSR_PLAN_USES_SCHEDULE)
#define BSR_PLAN_PACKS_B        BSRI_FLAG(BSR_PLAN_PACKS_B)
#define BSR_PLAN_STAGES_DENSE   BSRI_FLAG(BSR_PLAN_STAGES_DENSE)
#define BSR_PLAN_STAGES_OUT     BSRI_FLAG(BSR_PLAN_STAGES_OUT)
#define BSR_PLAN_TURNS_DENSE    BSRI_FLAG(BSR_PLAN_TURNS_DENSE)
#define BSR_PLAN_MERGES_BATCH   BSRI_FLAG(BSR_PLAN_MERGES_BATCH)
#define BSR_PLAN_BUILDS_INDEX   BSRI_FLAG(BSR_PLAN_BUILDS_INDEX)
#define BSR_PLAN_CUTS_ROWS      BSRI_FLAG(BSR_PLAN_CUTS_ROWS)

/* Why a kernel runs, or why a faster tier does not: name, value, text. */
#define BSR_WHY_LIST(X)                                                          \
    X(BSR_WHY_NONE, 0, "")                                                       \
    X(BSR_WHY_EMPTY, 1, "nothing to compute")                                    \
    X(BSR_WHY_ANY, 2, "takes any type, block size and stride")                   \
    X(BSR_WHY_CUT, 3, "left out of this build")                                  \
    X(BSR_WHY_PLAN, 4, "can't run the plan that was asked for")                  \
    X(BSR_WHY_GPU, 5, "not for this GPU, or not compiled for it")                       \
    X(BSR_WHY_DTYPE, 6, "no kernel for these types and this accuracy")           \
    X(BSR_WHY_BLOCK, 7, "no kernel for this block size")                         \
    X(BSR_WHY_LIST_KIND, 8, "no kernel for this list of products")               \
    X(BSR_WHY_VALUES, 9, "the values are not in aligned pieces of 16 bytes")     \
    X(BSR_WHY_DENSE, 10, "a dense operand is not in aligned pieces of 16 bytes") \
    X(BSR_WHY_SIZE, 11, "a size is beyond its counters")                         \
    X(BSR_WHY_WIDE, 12, "too many columns")                                      \
    X(BSR_WHY_INNER, 13, "the inner size is no multiple of its steps")           \
    X(BSR_WHY_SHARED, 14, "too little shared memory")                            \
    X(BSR_WHY_SKINNY, 15, "few columns or little to do: small tiles")            \
    X(BSR_WHY_GROUP, 16, "block rows share a tile")                              \
    X(BSR_WHY_ONE_ROW, 17, "a block row is a tile")                              \
    X(BSR_WHY_NEIGHBOURS, 18, "neighbouring blocks share a tile")                \
    X(BSR_WHY_OPTIONS, 19, "with the options between product and softmax")       \
    X(BSR_WHY_PLAIN, 20, "plain scores")                                         \
    X(BSR_WHY_PACKED, 21, "packed values")                                       \
    X(BSR_WHY_WORKSPACE, 22, "rows are not split: the call offers no workspace") \
    X(BSR_WHY_ALONG, 32, "an operand of bytes is not stored along the products") \
    X(BSR_WHY_BATCH, 31, "more than two batch dimensions") \
    X(BSR_WHY_MODIFIED, 30, "options between product and softmax, or an extreme scale") \
    X(BSR_WHY_SLOWER, 34, "other tiles are estimated to be faster") \
    X(BSR_WHY_SHORT, 35, "little to do: warps share the blocks of a row") \
    X(BSR_WHY_TINY, 36, "small or odd blocks: a lane multiplies what is its own") \
    X(BSR_WHY_EPILOGUE, 33, "too few registers for this epilogue") \
    X(BSR_WHY_SPLIT, 23, "rows are split: there are fewer tiles than multiprocessors")

typedef enum bsr_why {
#define BSRI_X(name, value, text) name = value,
    BSR_WHY_LIST(BSRI_X)
#undef BSRI_X
        BSR_WHY_FORCE_32 = 0x7fffffff
} bsr_why;

/* What will run: a plain value. Zero fields of a plan that comes with a call are filled in; the others are
   taken or refused (BSR_BAD_PLAN, and bsr_error.index counts the field from 0), never ignored. source, workspace_bytes and what
   follows it are results only. A plan that a query gave runs the same kernel again for a call that differs in data alone. With
   another epilogue or type of out it may be refused: some kernels take alpha and an input alone (tiles of 16 x 128, of 256
   columns by mma), or numbers by value, or no user function. */
typedef struct bsr_plan {
    int32_t op;       /* bsr_op */
    int32_t backend;  /* bsr_backend */
    int32_t source;   /* bsr_plan_source */
    int32_t kernel;   /* CPU: bsr_isa; CUDA: tier, 1 simt, 2 mma, 3 wgmma, 0 as it comes */
    int32_t tile_rows, tile_cols; /* output tile */
    int32_t split;    /* parts of one row's sum, added in a fixed order; 1: none */
    int32_t stages;   /* CUDA: pipeline depth; some epilogues use less of it */
    int32_t order;    /* grouping of tiles */
    uint32_t flags;   /* BSR_PLAN_* */
    uint64_t workspace_bytes; /* what bsr_exec.workspace must hold; 0 on the default path */
    int32_t instance;         /* CUDA: number in the kernel table */
    int32_t reason;           /* bsr_why: why this kernel */
    int32_t refused;          /* bsr_why: why not the next faster tier; 0: there is none, or the plan named the tier */
    int32_t match;            /* with BSR_PLAN_TABLE: how the row was found, BSR_TUNE_* */
} bsr_plan;

typedef enum bsr_exec_flag {
    BSR_EXEC_SKIP_CHECKS     = 1 << 0, /* the caller vouches for everything, index contents included */
    BSR_EXEC_CHECK_POINTERS  = 1 << 1, /* CUDA: also ask the driver what kind of memory each pointer is */
    BSR_EXEC_ACCUMULATE_F64  = 1 << 2, /* f32, f16, bf16: sums in f64; not together with BSR_EXEC_TF32 */
    BSR_EXEC_TF32            = 1 << 3, /* f32 products, sampled ones too, may round operands to TF32: 2^-10 |a b| more a
                                          product; CUDA, mma. It is leave, no wish: the CPU and the simt tier go on in f32,
                                          and so below */
    BSR_EXEC_TF32X3          = 1 << 4, /* the same as three TF32 products: 2^-20 |a b| more, NaN from Inf; CUDA, mma;
                                          not together with BSR_EXEC_TF32 */
    BSR_EXEC_NO_TABLE        = 1 << 5, /* tuned tables are not looked at: the heuristic decides */
    BSR_EXEC_NO_LOG          = 1 << 6, /* nothing is logged: status and record only */
    BSR_EXEC_CONSTANT_MATRIX = 1 << 7, /* weights: no work that was given to the GPU before the call and may still run, in
                                          this stream or another, writes the sparse operand's values, crow_indices,
                                          col_indices or attached views (in a graph: at every replay). CUDA may then
                                          read them before the work before the call has ended; all else waits as ever */
    BSR_EXEC_CHECK_INDICES   = 1 << 8, /* the contents of index arrays are looked at where the call runs, before it writes
                                          anything, with the finding in device_status; not with BSR_EXEC_SKIP_CHECKS. See
                                          CHECKED INDICES above */
    BSR_EXEC_FLAG_FORCE_32 = 0x7fffffff
} bsr_exec_flag;
#define BSR_EXEC_SKIP_CHECKS     BSRI_FLAG(BSR_EXEC_SKIP_CHECKS)
#define BSR_EXEC_CHECK_POINTERS  BSRI_FLAG(BSR_EXEC_CHECK_POINTERS)
#define BSR_EXEC_ACCUMULATE_F64  BSRI_FLAG(BSR_EXEC_ACCUMULATE_F64)
#define BSR_EXEC_TF32            BSRI_FLAG(BSR_EXEC_TF32)
#define BSR_EXEC_TF32X3          BSRI_FLAG(BSR_EXEC_TF32X3)
#define BSR_EXEC_NO_TABLE        BSRI_FLAG(BSR_EXEC_NO_TABLE)
#define BSR_EXEC_NO_LOG          BSRI_FLAG(BSR_EXEC_NO_LOG)
#define BSR_EXEC_CONSTANT_MATRIX BSRI_FLAG(BSR_EXEC_CONSTANT_MATRIX)
#define BSR_EXEC_CHECK_INDICES   BSRI_FLAG(BSR_EXEC_CHECK_INDICES)

/* All zero, or a null pointer, is the default. */
typedef struct bsr_exec {
    bsr_stream stream; /* CUDA: where the call runs; null: the default stream */
    void *workspace; /* 64-byte aligned, in the backend's memory; a query without one names as much as pays, else plans for it */
    uint64_t workspace_bytes;
    const bsr_plan *plan; /* null: planned here */
    bsr_plan *query;      /* not null: check, write the plan here, and return without running */
    bsr_error *error;     /* null: status only */
    uint32_t flags;       /* BSR_EXEC_* */
    int32_t reserved;
    int32_t max_grid[3];  /* CUDA: cap of the launch grid, x y z; 0 or less: the hardware's (checked indices: z is 2) */
    int32_t reserved2;
    const bsr_tune_table *table; /* in place of the context's; null: that one */
    bsr_tune_row *key;           /* not null, with query: the call's key in tuned tables; op 0 where it has none */
    uint64_t *device_status;     /* with BSR_EXEC_CHECK_INDICES: one word in the backend's memory, apart from all operands and
                                    the workspace; see bsr_device_status(). Else left alone */
} bsr_exec;

/* One line on what a plan runs and why; terminated; returns the length as snprintf does. */
BSR_API int bsr_plan_string(const bsr_plan *plan, char *text, size_t size);

/* ---------------------------------------------------------------------------------------------- */
/* >>epilogue: what happens to a product before it is stored; user functions                      */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_activation {
    BSR_ACT_NONE = 0,
    BSR_ACT_RELU = 1,      /* max(x, 0); NaN stays NaN, -0 becomes 0 */
    BSR_ACT_GELU = 2,      /* x/2 (1 + erf(x/sqrt 2)) */
    BSR_ACT_GELU_TANH = 3, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    BSR_ACT_SILU = 4,      /* x / (1 + exp(-x)) */
    BSR_ACT_FORCE_32 = 0x7fffffff
} bsr_activation;

/* Where a user function is called. batch: batch item (all batch dimensions but the last, flattened, where
   there is a head; else all of them); head: the last batch dimension in attention, else 0. */
typedef struct bsr_position {
    int64_t batch, head, row, col;
} bsr_position;

/* A program's own functions: #define BSRSPARSE_USER_FUNCTIONS "mine.h" before every include of this header.
   mine.h defines inline functions
       BSR_USER_FUNCTION float my_act(float x, const bsr_position *at, const void *user_data);    epilogue
       BSR_USER_FUNCTION float my_score(float s, const bsr_position *at, const void *user_data);  score
       BSR_USER_FUNCTION int my_mask(const bsr_position *at, const void *user_data);              mask: attend?
   and lists them: #define BSR_USER_EPILOGUES(X) X(my_act), BSR_USER_SCORES(X) X(my_score),
   BSR_USER_MASKS(X) X(my_mask). Their ids are then BSR_EPILOGUE_my_act (an activation), BSR_SCORE_my_score,
   BSR_MASK_my_mask. After FlexAttention's score_mod and mask_mod. They compute in f32. */
#ifdef __CUDACC__
#define BSR_USER_FUNCTION BSRI_UNUSED static __host__ __device__ inline
#elif defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define BSR_USER_FUNCTION BSRI_UNUSED static inline
#else
#define BSR_USER_FUNCTION BSRI_UNUSED static
#endif

#ifdef BSRSPARSE_USER_FUNCTIONS
#include BSRSPARSE_USER_FUNCTIONS
#endif
#define BSR_USER_FUNCTION_BASE 1000
enum {
    BSRI_USER_EPILOGUE_FIRST = BSR_USER_FUNCTION_BASE - 1,
#ifdef BSR_USER_EPILOGUES
#define BSRI_X(name) BSR_EPILOGUE_##name,
    BSR_USER_EPILOGUES(BSRI_X)
#undef BSRI_X
#endif
    BSRI_USER_EPILOGUE_END
};
enum {
    BSRI_USER_SCORE_FIRST = BSR_USER_FUNCTION_BASE - 1,
#ifdef BSR_USER_SCORES
#define BSRI_X(name) BSR_SCORE_##name,
    BSR_USER_SCORES(BSRI_X)
#undef BSRI_X
#endif
    BSRI_USER_SCORE_END
};
enum {
    BSRI_USER_MASK_FIRST = BSR_USER_FUNCTION_BASE - 1,
#ifdef BSR_USER_MASKS
#define BSRI_X(name) BSR_MASK_##name,
    BSR_USER_MASKS(BSRI_X)
#undef BSRI_X
#endif
    BSRI_USER_MASK_END
};

/* out = act(beta*input + left_alpha * (alpha*product) * right_alpha + bias), elementwise, rounded once to out's
   dtype. Every member may be null; a size of 1 repeats. A zeroed struct does nothing. */
typedef struct bsr_epilogue {
    const bsr_dense *left_alpha;  /* rows x 1 */
    const bsr_dense *right_alpha; /* 1 x cols */
    const bsr_dense *bias;        /* (rows or 1) x (cols or 1) */
    const double *alpha_ptr;      /* in the backend's memory; replaces alpha, read when the operation runs */
    const double *beta_ptr;
    const void *user_data;        /* handed to a user function */
    int32_t activation;           /* bsr_activation, or BSR_EPILOGUE_name */
    int32_t reserved;
} bsr_epilogue;

/* ---------------------------------------------------------------------------------------------- */
/* >>product: sparse x dense -> dense                                                             */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_trans_flag {
    BSR_TRANS_A = 1 << 0, /* the sparse or first operand is transposed */
    BSR_TRANS_B = 1 << 1, /* bsr_matmul only: dense operands are transposed by swapping strides */
    BSR_TRANS_C = 1 << 2, /* bsr_matmul only: c holds the transposed product */
    BSR_TRANS_FLAG_FORCE_32 = 0x7fffffff
} bsr_trans_flag;
#define BSR_TRANS_A BSRI_FLAG(BSR_TRANS_A)
#define BSR_TRANS_B BSRI_FLAG(BSR_TRANS_B)
#define BSR_TRANS_C BSRI_FLAG(BSR_TRANS_C)

/* out = act(beta*input + left (alpha op(A) B) right + bias).
   op(A) [M x K]: a, or its transpose with BSR_TRANS_A. b [K x N]; input broadcasts to out; out [M x N], its batch
   dimensions are the broadcast of a's and b's. beta == 0: input is never read, may be null. alpha == 0, no
   stored block, or K == 0: a's values and b are never read. out may be input exactly.
   dtypes: a = b in {f16, bf16, f32, f64} with out of the same type or f32 (f64 stays f64; f32 may also go to f16,
   bf16), or a = b = i8 with out i32, i8 (wraps modulo 256), f16, bf16, f32. input, left_alpha, right_alpha, bias: any
   float type with a float out; i8 or i32 with an integer out, whose arithmetic is modulo 2^32.
   Accumulates f16, bf16, f32 in f32, f64 in f64, i8 in i32. Error of a float element before the epilogue:
   at most (k + 2) u (|A||B|), k products in the row, u = 2^-24 or 2^-53; then one rounding to out's type.
   Errors: BAD_SHAPE (b's rows are not K; out not M x N), NULL_POINTER (beta not 0 without input), BAD_ARGUMENT (unknown
   activation; alpha or beta no whole number of 32 bits where out is an integer), UNSUPPORTED (an activation of an integer out,
   a user function in f64).
   After torch.sparse._triton_ops.bsr_dense_addmm and _int_bsr_dense_addmm. */
BSR_API bsr_status bsr_dense_addmm(const bsr_context *ctx, double beta, const bsr_dense *input, double alpha, uint32_t trans,
                                   const bsr_matrix *a, const bsr_dense *b, const bsr_epilogue *epilogue,
                                   const bsr_dense *out, const bsr_exec *exec);

/* out = op(A) B: bsr_dense_addmm with alpha 1, beta 0 and no epilogue. */
BSR_API bsr_status bsr_dense_mm(const bsr_context *ctx, uint32_t trans, const bsr_matrix *a, const bsr_dense *b,
                                const bsr_dense *out, const bsr_exec *exec);

typedef enum bsr_scatter_format {
    BSR_SCATTER_MM = 1,                 /* torch's "scatter_mm" */
    BSR_SCATTER_STRIDED = 2,            /* "bsr_strided_mm" */
    BSR_SCATTER_STRIDED_COMPRESSED = 3, /* "bsr_strided_mm_compressed" */
    BSR_SCATTER_FORMAT_FORCE_32 = 0x7fffffff
} bsr_scatter_format;

/* Which products bsr_scatter_mm adds up. All arrays are int64. N: columns of others and accumulators in the
   strided formats; n-tiles are Ns = N / split_n wide.
     SCATTER_MM: c_indices [outputs+1], p_indices [products], q_indices [products]: for g in
       [c[r], c[r+1]): acc[r] += blocks[p[g]] @ others[q[g]]; others and accumulators are batches of tiles.
     STRIDED: r_offsets [outputs] = flat element row*N + col of the output tile, c_indices [outputs+1], p_indices,
       q_indices [products], q flat in others: acc[r_offsets[i]] += sum blocks[p[g]] @ others[q[g]].
     COMPRESSED: c_indices [block_rows+1] = crow, r_offsets [outputs], q_indices [split_n * nnz]: for r: m = (r/N)/Ms,
       n = (r%N)/Ns, c0 = c[m], c1 = c[m+1]: block c0 + i goes with q[n*c1 + (split_n-n)*c0 + i].
   No output tile may be named twice. The order of outputs is free and is the order in which work starts. */
typedef struct bsr_scatter_indices {
    int64_t *c_indices, *r_offsets, *p_indices, *q_indices;
    int64_t c_count, r_count, p_count, q_count; /* entries; for bsr_build_scatter_indices: capacities */
    int64_t split_n;                            /* 0: 1 */
    int32_t format;                             /* bsr_scatter_format */
    int32_t reserved;
} bsr_scatter_indices;

/* accumulators += the listed products (always adds, as upstream's documentation promises).
   blocks: one batch dimension P of Ms x Ks. SCATTER_MM: others is a batch of Ks x Ns tiles (up to 4 batch dimensions,
   counted row-major), accumulators one of Ms x Ns. Strided formats: others (*B, K, N), accumulators (*B, M, N).
   dtypes and accumulation as bsr_dense_addmm, accumulators' being out. The sum of a tile is formed first, in the
   accumulating type, then added to the accumulator and rounded once.
   Errors: BAD_SHAPE (tile sizes, counts, split_n), BAD_STRUCTURE (on the CPU: an index out of range, an output tile named
   twice), BAD_ARGUMENT (unknown format). After _triton_ops.scatter_mm. */
BSR_API bsr_status bsr_scatter_mm(const bsr_context *ctx, const bsr_dense *blocks, const bsr_dense *others,
                                  const bsr_scatter_indices *indices, const bsr_dense *accumulators, const bsr_exec *exec);

/* Builds the indices of A B for a matrix a (2-D, or a batch of one) and N columns, longest rows first (ties in row order;
   rows without blocks last, so that the counts depend on sizes alone). With format, split_n set and all arrays null: only
   writes the counts. With arrays: the counts are capacities and become what was written. SCATTER_MM: tiles of b are
   Ks x Ns, numbered row-major (K/Ks) x split_n; of out Ms x Ns.
   Errors: BAD_SHAPE (split_n does not divide n), CAPACITY. After bsr_scatter_mm_indices_data. */
BSR_API bsr_status bsr_build_scatter_indices(const bsr_context *ctx, const bsr_matrix *a, int64_t n, bsr_scatter_indices *indices,
                                             const bsr_exec *exec);

/* out = A B by way of such indices, which must have been built from a. A 2-D; b (*B, K, N). dtypes, accumulation, error bound
   as bsr_dense_addmm, errors as bsr_scatter_mm. After _triton_ops.bsr_scatter_mm. */
BSR_API bsr_status bsr_dense_scatter_mm(const bsr_context *ctx, const bsr_matrix *a, const bsr_dense *b,
                                        const bsr_scatter_indices *indices, const bsr_dense *out, const bsr_exec *exec);

typedef struct bsr_operand { /* exactly one of the two is set */
    const bsr_dense *dense;
    const bsr_matrix *sparse;
} bsr_operand;
BSR_API bsr_operand bsr_operand_dense(const bsr_dense *d);
BSR_API bsr_operand bsr_operand_sparse(const bsr_matrix *m);

/* op(C) = op(A) op(B), op by BSR_TRANS_A, _B, _C. Which operand is sparse is the mode: c: SDD (the product at c's
   stored blocks), a: DSD, b: DDS. Blocks of any size; layouts per head as batched matrices, BSR_MATRIX_RAGGED where
   heads differ. dtypes, accumulation, error bound as bsr_dense_addmm. Errors: BAD_SHAPE (sizes; not exactly one of the three
   is sparse), BAD_ARGUMENT (an operand with both members or none). After DeepSpeed's MatMul and stk's ops (MegaBlocks, Gale
   et al. 2022). */
BSR_API bsr_status bsr_matmul(const bsr_context *ctx, uint32_t trans, bsr_operand a, bsr_operand b, bsr_operand c,
                              const bsr_exec *exec);

/* The gradients of bsr_matmul, op(da) = op(dc) op(b)^T and op(db) = op(a)^T op(dc), from dc (dense, or sparse in SDD) to da
   and db, of which either may have both members null. dtypes, accumulation, error bound as bsr_matmul. A gradient has the
   form of its operand: where that is sparse, it is formed at the stored blocks only. A batch dimension in which the operand
   was broadcast is summed over. In a, b and dc both values and patterns are read, but for one gradient alone only the pattern
   of its own operand, which has the others' type all the same. Errors: as bsr_matmul; BAD_ARGUMENT also where one of a gradient
   and its operand is dense and the other sparse; BAD_BATCH (BATCH_SUM) over more than 2^31 - 1 items. */
BSR_API bsr_status bsr_matmul_backward(const bsr_context *ctx, uint32_t trans, bsr_operand a, bsr_operand b, bsr_operand dc,
                                       bsr_operand da, bsr_operand db, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled: dense x dense -> sparse                                                             */
/* ---------------------------------------------------------------------------------------------- */

/* out = beta*input + alpha (mat1 mat2) at the stored blocks of out. mat1 [M x K], any K; mat2 [K x N]; input has
   out's pattern (contents compared on the CPU) and may be out, or null with beta 0; a BSR_BOOL or pattern-only
   input needs beta 0. alpha == 0 or K == 0: mat1, mat2 are never read. beta == 0: input's values are never read.
   dtypes, accumulation, error bound as bsr_dense_addmm. Errors: BAD_SHAPE (sizes; input's block size or nnz is not out's),
   NULL_POINTER (beta not 0 without input), BAD_ARGUMENT (beta not 0 with a BSR_BOOL or pattern-only input; alpha, beta as in
   bsr_dense_addmm), BAD_STRUCTURE (on the CPU: input's pattern is not out's). After _triton_ops.sampled_addmm. */
BSR_API bsr_status bsr_sampled_addmm(const bsr_context *ctx, double beta, const bsr_matrix *input, double alpha,
                                     const bsr_dense *mat1, const bsr_dense *mat2, const bsr_matrix *out, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>rows: softmax over stored elements                                                           */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_mask_mode {
    BSR_MASK_ADD = 0, /* the mask's value is added: 0 or -inf, or any bias */
    BSR_MASK_MUL = 1, /* 0 forbids, anything else allows */
    BSR_MASK_MODE_FORCE_32 = 0x7fffffff
} bsr_mask_mode;

typedef struct bsr_softmax_options { /* every member may be null; sizes of 1 and batch dimensions repeat */
    const bsr_dense *relative_bias;    /* rows x cols, added */
    const bsr_dense *key_padding_mask; /* 1 x cols */
    const bsr_dense *attn_mask;        /* rows x cols */
    int32_t key_padding_mode, attn_mode; /* bsr_mask_mode; BSR_BOOL masks must use BSR_MASK_MUL */
} bsr_softmax_options;

/* y = softmax over the stored elements of each row of scale*x + relative_bias + key_padding + attn_mask. Elements that
   are not stored count as -inf; a row that has none, or only -inf, gives zeros, never NaN. A forbidden element (MUL mask 0,
   or -inf added) is 0 whatever x holds there. NaN or +inf at any other element of a row makes the whole row NaN, forbidden
   elements included, as in PyTorch. y has x's pattern and may be x exactly. Rows of any length, any block size.
   dtypes: f16, bf16, f32 (in f32), f64 (in f64); y of x's type or f32; masks any float, BSR_BOOL, i8.
   Error per element: relative (8 + |s - max| + n/8) u at most (s: the scaled and biased score, n elements in the row; the
   portable instruction set: n u for n/8 u), + underflow, and one rounding.
   Errors: BAD_ARGUMENT (scale not finite, unknown mask mode), BAD_DTYPE (a BSR_BOOL mask that is added), BAD_SHAPE or
   BAD_STRUCTURE (y's pattern is not x's; contents on the CPU).
   After _triton_ops.bsr_softmax and DeepSpeed's Softmax. */
BSR_API bsr_status bsr_softmax(const bsr_context *ctx, double scale, const bsr_matrix *x, const bsr_softmax_options *options,
                               const bsr_matrix *y, const bsr_exec *exec);

/* dx = scale y (dy - sum over the row of y dy), at the stored elements. y is the forward result, dy of its pattern and type; dx
   may be dy or y exactly (or both, which may be one), of any of f16, bf16, f32 (f64 with f64); sums in f32 (f64). Error per
   element: at most |scale y| ((n + 2) u sum |y dy| + 4 u (|dy| + |sum y dy|)), n elements in the row, and one rounding. Errors:
   as bsr_softmax. After DeepSpeed's Softmax. */
BSR_API bsr_status bsr_softmax_backward(const bsr_context *ctx, double scale, const bsr_matrix *y, const bsr_matrix *dy,
                                        const bsr_matrix *dx, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>attention: softmax(scale Q K^T, stored blocks) V in one pass                                 */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_attention_flag {
    BSR_ATTENTION_CAUSAL        = 1 << 0, /* attend where col <= row + causal_offset */
    BSR_ATTENTION_MASK_BOOLEAN  = 1 << 1, /* mask's stored values: 0 forbids, else allows */
    BSR_ATTENTION_MASK_ADDITIVE = 1 << 2, /* mask's stored values are added to the scores */
    BSR_ATTENTION_FLAG_FORCE_32 = 0x7fffffff
} bsr_attention_flag;
#define BSR_ATTENTION_CAUSAL        BSRI_FLAG(BSR_ATTENTION_CAUSAL)
#define BSR_ATTENTION_MASK_BOOLEAN  BSRI_FLAG(BSR_ATTENTION_MASK_BOOLEAN)
#define BSR_ATTENTION_MASK_ADDITIVE BSRI_FLAG(BSR_ATTENTION_MASK_ADDITIVE)

typedef struct bsr_attention_options { /* all zero: defaults */
    uint32_t flags;          /* BSR_ATTENTION_* */
    int32_t key_padding_mode; /* bsr_mask_mode */
    int64_t causal_offset;   /* 0: the diagonals start together; Lk - Lq: they end together */
    const bsr_dense *key_padding_mask; /* 1 x Lk */
    const bsr_dense *relative_bias;    /* Lq x Lk, added after the scale */
    double dropout_p;        /* probability of dropping, 0 to 1; kept probabilities are scaled by 1/(1-p) */
    uint64_t dropout_seed;   /* same seed, same mask, on every backend */
    int32_t score_function;  /* BSR_SCORE_name or 0: s = score(scale q.k + bias, position) */
    int32_t mask_function;   /* BSR_MASK_name or 0 */
    const void *user_data;
    int64_t reserved[2];
} bsr_attention_options;

/* out = softmax(scale Q K^T + ...) V over the stored blocks of mask, in one pass (online softmax), scores never stored.
   q [Lq x D], k [Lk x D], v [Lk x Dv], out [Lq x Dv], mask [Lq x Lk, rounded up to whole blocks], its pattern only
   unless a flag says otherwise. Batch dimensions broadcast to out's; the last one is the head: k and v may have
   fewer heads there (grouped queries; Hq a multiple of Hkv, head h uses h / (Hq/Hkv)). scale 0: 1/sqrt(D).
   Order: s = scale q.k; + mask value; + relative_bias; + key padding; score function; then causal, boolean masks and the mask
   function forbid (an added -inf forbids too). What is forbidden contributes nothing, whatever k and
   v hold there. lse [Lq x 1], f32 or f64, may be null: natural log of the sum of exp(s), before dropout;
   -inf for a row with nothing to attend, whose output is 0.
   Dropout: Philox4x32-10, key = seed, counter = (col / 4, row, head, batch), word col % 4; dropped where the word
   < p 2^32. batch and head as in bsr_position.
   dtypes: q = k = v in {f16, bf16, f32} (in f32) or f64 (in f64, without a score function, which computes in f32); out the
   same or f32. On tensor cores (bsr_plan.kernel 2 and 3) probabilities are rounded to q's type before they meet v.
   Error of an element of out, without user functions: at most (2.5 e + (16 + 4 log2(n + 1) + n) u) (P|V|), n keys attended,
   e the largest error of a score s: (D + 2) u |scale| (|q||k|), 2 u |s|, 2 u (|t| + |s|) for each term t added to it, and
   2 u |s - max|; where probabilities are rounded, 2^-11 (f16) or 2^-8 (bf16) times (P|V|) more, in f16 also 2^-25 sum |v|;
   then one rounding.
   Errors: BAD_BATCH (query heads no multiple of the key heads), BAD_ARGUMENT (scale not finite, dropout_p outside [0, 1], both
   mask flags, unknown function), UNSUPPORTED (a score function in f64).
   One pass as in FlashAttention (Dao et al. 2022), Philox by Salmon et al. (2011). After FlexAttention, and
   _triton_ops._scaled_dot_product_attention (whose masks count by pattern alone). */
BSR_API bsr_status bsr_attention(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k, const bsr_dense *v,
                                 const bsr_matrix *mask, const bsr_attention_options *options, const bsr_dense *out,
                                 const bsr_dense *lse, const bsr_exec *exec);

/* dq, dk, dv (each may be null) from d_out, out and lse of the forward call with the same arguments. Declared so that
   programs can be written against it; this version returns BSR_UNSUPPORTED (BSR_ITEM_NOT_IMPLEMENTED). */
BSR_API bsr_status bsr_attention_backward(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k,
                                          const bsr_dense *v, const bsr_matrix *mask, const bsr_attention_options *options,
                                          const bsr_dense *out, const bsr_dense *lse, const bsr_dense *d_out,
                                          const bsr_dense *dq, const bsr_dense *dk, const bsr_dense *dv, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>matrices: checks, conversions, pruning, views                                                */
/* ---------------------------------------------------------------------------------------------- */

/* Conversions write into the arrays of *m, whose block size, dtype, index_dtype and pointers are set by the caller.
   m->nnz is the capacity of col_indices and values (in blocks; with batches per item, with BSR_MATRIX_RAGGED in
   all) and becomes the number stored (so also after the first call below). rows and
   cols 0 are set to the source's, rounded up to whole blocks; anything else must be that already. The padding
   is zero. With col_indices and values both null only crow_indices is written
   and nnz counted, so that a first call tells what a second one needs. values null alone: the pattern only.
   On the CPU scratch comes from bsr_exec.workspace where there is one large enough, else from the context's allocator.
   On CUDA it is bsr_exec.workspace, as large as a query says; m->nnz stays the capacity, crow's last entry tells the count, and
   blocks past the capacity are not written. There operations and views take such a matrix as it is (bsr_validate does not).
   Success detaches the views (transposed_index and schedule become null): they were of the old pattern.
   dtypes: f16, bf16, f32, f64 to any of these, rounded once; i8 and i32 to themselves.
   Errors of all of them: BAD_SHAPE (rows or cols are not the source's, rounded up), on the CPU CAPACITY (error.value: blocks
   that there are), OVERFLOW (they are too many for index_dtype), BAD_STRUCTURE (batch items store different numbers without
   BSR_MATRIX_RAGGED) and OUT_OF_MEMORY. */

/* Checks the invariants in a fixed order and reports the first that fails, with its place: the struct itself, index
   dtype, crow[0], crow[last], non-decreasing and not longer than a row, columns in range, ascending and distinct;
   then the attached views. Takes scratch as conversions do. Never reads outside the arrays whatever they hold (a view's buffer
   is as long as its header says). On CUDA it waits for the stream, but with BSR_EXEC_CHECK_INDICES leaves the answer there.
   Errors: BAD_STRUCTURE, on CUDA CAPTURING (where it would wait). The invariants are torch.sparse_bsr_tensor's. */
BSR_API bsr_status bsr_validate(const bsr_context *ctx, const bsr_matrix *m, const bsr_exec *exec);

/* out = the dense form, zeros where no block is stored, duplicates summed in f64 in their order and rounded once (integers:
   modulo 2^32). out rows x cols, or fewer by less than a block (the padding is dropped); it may have batch dimensions that m
   lacks. dtypes as conversions. As PyTorch's to_dense. */
BSR_API bsr_status bsr_to_dense(const bsr_context *ctx, const bsr_matrix *m, const bsr_dense *out, const bsr_exec *exec);

/* Keeps the blocks that hold any non-zero element (NaN counts). source [rows x cols] broadcasts to m's batch. As PyTorch's
   to_sparse_bsr, but sizes are padded. */
BSR_API bsr_status bsr_from_dense(const bsr_context *ctx, const bsr_dense *source, bsr_matrix *m, const bsr_exec *exec);

/* From CSR: crow [rows+1], col [nnz] and values [nnz] (null: ones), all entries kept (zeros too), duplicates added. Errors:
   BAD_STRUCTURE (on the CPU: crow decreases, col out of range), BAD_BATCH (m has batch dimensions). As SciPy's tobsr. */
BSR_API bsr_status bsr_from_csr(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *crow,
                                const void *col, int index_dtype, const void *values, int dtype, bsr_matrix *m,
                                const bsr_exec *exec);

/* From COO: row, col and values [nnz], in any order; otherwise as from CSR. Both sum duplicates in f64 and round once. */
BSR_API bsr_status bsr_from_coo(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *row, const void *col,
                                int index_dtype, const void *values, int dtype, bsr_matrix *m, const bsr_exec *exec);

/* To CSR: crow [rows+1], col and values [*nnz], columns ascending in each row; rows and cols as source has them, or fewer by less
   than a block (the padding is dropped). Every element of a stored block becomes an entry, zeros as well. *nnz is the capacity of
   col and values and becomes the number of entries (on CUDA it stays; crow's last entry tells the number, and entries past the
   capacity are not written). col and values null: only crow is written and *nnz counted; values null alone: the pattern only.
   source: columns ascending. Errors (they call the arrays "matrix"): BAD_STRUCTURE, BAD_BATCH (source has batch dimensions).
   As SciPy's tocsr. */
BSR_API bsr_status bsr_to_csr(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz,
                              void *crow, void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec);

/* To COO: as to CSR, and the row of each entry (row null: not wanted). Entries come by row, then column; crow is written as well,
   as it tells their number where *nnz can't. */
BSR_API bsr_status bsr_to_coo(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz,
                              void *crow, void *row, void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec);

/* To another block size, m's: keeps each block that a stored block of source reaches into, whatever its values are (zeros
   elsewhere in it). source: columns ascending; it broadcasts to m's batch. Errors: BAD_STRUCTURE. As SciPy's tobsr. */
BSR_API bsr_status bsr_reblock(const bsr_context *ctx, const bsr_matrix *source, bsr_matrix *m, const bsr_exec *exec);

/* From a mask of blocks, one byte each, [batch...][rows/block_rows][cols/block_cols]: writes the pattern; m->values is
   left alone. rows, cols, block sizes and batch are m's, and must be set. DeepSpeed's layouts are such masks. */
BSR_API bsr_status bsr_from_block_mask(const bsr_context *ctx, const uint8_t *mask, bsr_matrix *m, const bsr_exec *exec);

/* Number of blocks that a sparsity leaves: round((1 - sparsity) total), halves up; -1 for arguments out of range. */
BSR_API int64_t bsr_kept_blocks(int64_t total_blocks, double sparsity);

/* A uniformly random pattern with exactly bsr_kept_blocks(...) blocks per item; the same for the same seed anywhere.
   m->rows and cols must be set; m->values is left alone. Errors: BAD_ARGUMENT (sparsity outside [0, 1]). */
BSR_API bsr_status bsr_random_pattern(const bsr_context *ctx, uint64_t seed, double sparsity, bsr_matrix *m,
                                      const bsr_exec *exec);

typedef enum bsr_norm { BSR_NORM_L2 = 0, BSR_NORM_L1 = 1, BSR_NORM_MAX = 2, BSR_NORM_FORCE_32 = 0x7fffffff } bsr_norm;

/* Keeps exactly bsr_kept_blocks(all blocks, sparsity) blocks per item, those with the largest norm (ties: the first; NaN
   counts as the largest). source: dense (broadcasts to m's batch), or a BSR matrix of the same block size with ascending
   columns (fewer stored than to be kept: all of them are kept). Norms of a block's elements x: sqrt(sum x^2), sum |x|, max |x|.
   Errors: BAD_ARGUMENT (sparsity outside [0, 1], unknown norm, source dense and sparse or neither), BAD_SHAPE (block size).
   Magnitude pruning by blocks, as in Narang et al. (2017). */
BSR_API bsr_status bsr_prune(const bsr_context *ctx, bsr_operand source, double sparsity, int norm, bsr_matrix *m,
                             const bsr_exec *exec);

/* The transposed index: column by column which blocks stand there, so that A^T is walked without moving values. The view
   is one buffer in the backend's memory (64-byte aligned): a header of eight int64 {magic, nnz, block rows, block
   columns, patterns, index dtype, 0, 0}, then three arrays in index_dtype: ccol [patterns][block columns + 1], row
   [patterns][nnz], position in values [patterns][nnz]; each starts at a multiple of 64 bytes. One pattern per batch
   item, but one for all items of a dimension whose crow and col strides are 0 (without stored blocks: whose crow strides
   are). A ragged matrix: ccol holds absolute positions into row [nnz] and position [nnz], which the items share.
   Attach it: m.transposed_index = buffer. It is stale when the pattern changes; values may change freely. The first
   function writes the buffer's size; the second takes scratch as conversions do (on CUDA the workspace that a query names).
   Errors: CAPACITY (bytes are too few), MISALIGNED. After MegaBlocks' transpose indices (Gale et al. 2022). */
BSR_API bsr_status bsr_transposed_index_size(const bsr_context *ctx, const bsr_matrix *m, uint64_t *bytes, const bsr_exec *exec);
BSR_API bsr_status bsr_build_transposed_index(const bsr_context *ctx, const bsr_matrix *m, void *buffer, uint64_t bytes,
                                              const bsr_exec *exec);

/* The schedule: block rows in groups of `group` that share columns (1: no grouping), longest union first (a last group
   that is not full stays last). One buffer: a header of eight int64 {magic, nnz, block rows, patterns, group, groups,
   transposed, tall: groups of the first pattern, but for the last, that are more than 1 longer than three times the
   average}, then two int32 arrays: order [patterns][groups * group] (-1 pads the last group) and union length
   [patterns][groups]; each starts at a multiple of 64 bytes. With transposed != 0 it orders the block columns, for A^T.
   group: 1, 2, 4 or 8; Hopper's tiles of 128 rows want 128 / block rows in f16, bf16 and i8.
   Attach it: m.schedule = buffer. It is stale when the pattern changes, and serves products of one direction, A or A^T. (Tier
   wgmma goes without it in gradients that are sums over items, where a matrix has several patterns; so does a sum of no
   items.) Size, scratch and errors as for the transposed index; BAD_ARGUMENT (group). Longest first as in Sputnik (Gale et
   al. 2020). */
BSR_API bsr_status bsr_schedule_size(const bsr_context *ctx, const bsr_matrix *m, int group, int transposed, uint64_t *bytes,
                                     const bsr_exec *exec);
BSR_API bsr_status bsr_build_schedule(const bsr_context *ctx, const bsr_matrix *m, int group, int transposed, void *buffer,
                                      uint64_t bytes, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>layouts: DeepSpeed's sparsity configurations                                                 */
/* ---------------------------------------------------------------------------------------------- */

typedef enum bsr_layout_kind {
    BSR_LAYOUT_DENSE = 1, BSR_LAYOUT_FIXED = 2, BSR_LAYOUT_VARIABLE = 3, BSR_LAYOUT_BIGBIRD = 4, BSR_LAYOUT_BSLONGFORMER = 5,
    BSR_LAYOUT_LOCAL_SLIDING_WINDOW = 6, BSR_LAYOUT_FORCE_32 = 0x7fffffff
} bsr_layout_kind;

/* Which blocks an attention layout keeps, in blocks, for `heads` heads of blocks x blocks. bsr_layout_default() fills
   in upstream's defaults. The number before each field is its index in BSR_ITEM_LAYOUT_FIELD. Its three lists are parameters
   as its numbers are: they lie in host memory on every backend. */
typedef struct bsr_layout {
    int32_t kind;                          /*  0: bsr_layout_kind */
    int32_t unidirectional;                /*  1: 0 or 1; on whole blocks: the diagonal block stays full */
    int64_t heads, blocks;                 /*  2, 3 */
    int32_t different_layout_per_head;     /*  4: 0: head 0 is copied to all */
    int32_t horizontal_global_attention;   /*  5: fixed, variable; bidirectional only */
    int64_t num_local_blocks;              /*  6: fixed */
    int64_t num_global_blocks;             /*  7: fixed, bigbird */
    int64_t num_different_global_patterns; /*  8: fixed */
    int64_t num_random_blocks;             /*  9: variable, bigbird */
    int64_t num_sliding_window_blocks;     /* 10: bigbird, bslongformer, local sliding window */
    const int64_t *local_window_blocks;    /* 11: variable: sizes of the windows in turn, the last repeats; null: {4} */
    int64_t num_local_windows;
    const int64_t *global_block_indices;   /* 12: variable, bslongformer; null: {0} */
    const int64_t *global_block_end_indices; /* 13: null: each index is one block, else [start, end) */
    int64_t num_global_indices;
    uint64_t seed;                         /* of the random blocks */
} bsr_layout;

BSR_API bsr_layout bsr_layout_default(int kind, int64_t heads, int64_t blocks);
/* Writes mask [heads][blocks][blocks], one byte each, 0 or 1; bsr_from_block_mask() makes the matrix. Errors: BAD_ARGUMENT
   (LAYOUT_KIND, LAYOUT_FIELD: index is the field's number). After DeepSpeed's sparsity_config.py: fixed and variable are of
   Sparse Transformers (Child et al. 2019), BigBird of Zaheer et al. (2020), Longformer of Beltagy et al. (2020). */
BSR_API bsr_status bsr_layout_mask(const bsr_context *ctx, const bsr_layout *layout, uint8_t *mask, const bsr_exec *exec);

/* ---------------------------------------------------------------------------------------------- */
/* >>files: Matrix Market and DLMC text, from memory                                              */
/* ---------------------------------------------------------------------------------------------- */

typedef struct bsr_file_info {
    int64_t rows, cols;
    int64_t entries; /* after a symmetric file's other half is added: what the arrays must hold */
    int64_t stored;  /* entries in the text */
    int32_t has_values, symmetric; /* symmetric: 0 general, 1 symmetric, 2 skew-symmetric */
} bsr_file_info;

/* Matrix Market text (coordinate or array; real, integer or pattern; general, symmetric, skew-symmetric) to COO with
   0-based indices, diagonal entries once. row, col, values all null: only *info. values null alone: indices only; pattern
   files give 1.0. capacity: entries that the arrays hold. Errors: NULL_POINTER, PARSE_ERROR (error.index: the line), CAPACITY,
   UNSUPPORTED (BSRSPARSE_NO_IO). The format is NIST's. */
BSR_API bsr_status bsr_parse_matrix_market(const char *text, size_t bytes, bsr_file_info *info, int64_t *row, int64_t *col,
                                           double *values, int64_t capacity, bsr_error *error);
/* DLMC .smtx text (line 1 "rows, cols, nnz", line 2 row offsets, line 3 columns) to CSR; crow [rows+1], col [nnz]; both
   null: only *info. Errors as above. The format is that of the Deep Learning Matrix Collection (Gale et al. 2020). */
BSR_API bsr_status bsr_parse_smtx(const char *text, size_t bytes, bsr_file_info *info, int64_t *crow, int64_t *col,
                                  int64_t capacity, bsr_error *error);

/* ---------------------------------------------------------------------------------------------- */
/* >>tune: tuned parameters: tables, their text, queries, the tuner                               */
/* ---------------------------------------------------------------------------------------------- */

/* A GPU that rows were measured on. */
typedef struct bsr_tune_gpu {
    char name[64];    /* as CUDA names it; "cpu" */
    int32_t arch;     /* compute capability times ten: 90; CPU: 0 */
    int32_t units;    /* multiprocessors; CPU: 0 */
    char made[112];   /* provenance, free text: driver, toolkit, date */
    char sources[72]; /* hash of the sources that were measured */
} bsr_tune_gpu;

enum { BSR_TUNE_ANY = -1 }; /* in a pattern for bsr_tune_query: whatever the rows hold */

/* What parameters are for (the key: gpu to density), and the parameters, as in bsr_plan; 0 leaves a field to the heuristic.
   A product is m x k times k x n, op(A)'s block size, beta's and alpha's class: 0, 1, or 2 for any other value or one in device
   memory. A sampled product: m x k times k x n, the stored result's blocks. Softmax: m x n. Attention: m queries, n keys, k the
   head size; alpha 1 where anything but causality stands between product and softmax. Batches are not part of the key. */
struct bsr_tune_row {
    int32_t gpu; /* index in bsr_tune_table.gpus */
    int32_t op; /* DENSE_ADDMM (bsr_matmul's products as well), SCATTER_MM, SAMPLED_ADDMM, SOFTMAX, SOFTMAX_BACKWARD, ATTENTION */
    int32_t dtype, out_dtype, block_rows, block_cols, beta, alpha;
    int32_t m, k, n;
    int32_t density; /* of stored blocks, in percent, rounded */
    int32_t kernel, tile_rows, tile_cols, split, stages, order;
    int32_t gain; /* percent of time saved over the heuristic where the row was made */
};

/* Rows in the order of their keys, in memory that the caller owns (all zero: an empty table without room). Changed by the four
   functions below only. Any number of threads may look things up in a table (calls do, through bsr_context_desc.table or
   bsr_exec.table) while nobody changes it; different tables have nothing to do with each other. */
struct bsr_tune_table {
    bsr_tune_gpu *gpus;
    bsr_tune_row *rows;
    int32_t gpu_count, gpu_capacity, row_count, row_capacity;
};

/* How a row was found for a call; in bsr_plan.match. Tried in this order; each for the context's GPU first, then for GPUs of
   the same architecture, the nearest number of multiprocessors first; the caller's table before the built-in one. */
enum {
    BSR_TUNE_EXACT = 1,     /* the key itself */
    BSR_TUNE_DENSITY = 2,   /* another density, at most twice or half: the nearest */
    BSR_TUNE_NEAREST_N = 3, /* another n, at most four times or a quarter, the nearest; tile width and all else kept */
    BSR_TUNE_MATCH = 15,    /* mask of these */
    BSR_TUNE_DTYPE = 16,    /* flag: the row is for out's dtype equal to the operands', or for f16 in place of bf16, or back */
    BSR_TUNE_OTHER_GPU = 32 /* flag */
};

/* The table of tune_table.h, read-only (its capacities are 0). */
BSR_API bsr_tune_table bsr_tune_built_in(void);
/* What tables call this context's GPU. Errors: NULL_POINTER. */
BSR_API bsr_status bsr_tune_device(const bsr_context *ctx, bsr_tune_gpu *out);
/* Puts one row in, in place of one with the same key; gpu is added if need be (row->gpu is ignored). Errors, nothing changed:
   NULL_POINTER; BAD_ARGUMENT (TUNE_ROW: a field that no row can have, parameters all 0); CAPACITY. */
BSR_API bsr_status bsr_tune_update(bsr_tune_table *table, const bsr_tune_gpu *gpu, const bsr_tune_row *row, bsr_error *error);
/* All rows of another table, which win over those with the same key. All or nothing. Errors: as bsr_tune_update. */
BSR_API bsr_status bsr_tune_merge(bsr_tune_table *table, const bsr_tune_table *more, bsr_error *error);
/* The text of a tune_table.h, as bsr_tune_merge. All or nothing: the whole text is checked first. Errors: PARSE_ERROR with the
   line in error.index (TUNE_FORMAT: made by another version; TUNE_CHECK: rows do not agree with the check sum; TUNE_TWICE),
   CAPACITY, NULL_POINTER. A check sum is demanded where the end marker names one. */
BSR_API bsr_status bsr_tune_import(bsr_tune_table *table, const char *text, size_t bytes, bsr_error *error);
/* The same table as the text of a tune_table.h: at most size bytes, terminated; *length is what the whole has. Importing it
   into an empty table and exporting that gives the same bytes. text null: *length only. Errors: CAPACITY (TUNE_SIZE: above
   64 KB; BUFFER_SIZE: above size, nothing of use is written), NULL_POINTER. */
enum { BSR_TUNE_TEXT_MAX = 65536 };
BSR_API bsr_status bsr_tune_export(const bsr_tune_table *table, char *text, size_t size, size_t *length, bsr_error *error);
/* Rows that agree with pattern wherever it is not BSR_TUNE_ANY (gpu to density count; the parameters do not): the first
   capacity of them into out, in order; returns how many there are. After upstream's get_meta: an exact key gives 0 or 1. */
BSR_API int64_t bsr_tune_query(const bsr_tune_table *table, const bsr_tune_row *pattern, bsr_tune_row *out, int64_t capacity);
/* What a call with this key on that GPU would find in the table (key->gpu is ignored): bits of BSR_TUNE_*, the row into *found;
   or 0. A call takes it only if it can run it. The key of a call: bsr_exec.key. */
BSR_API int bsr_tune_lookup(const bsr_tune_table *table, const bsr_tune_gpu *gpu, const bsr_tune_row *key, bsr_tune_row *found);

/* Hill climbing over a few whole numbers. target: seconds of a point, or negative: it can't be had. step: what parameter i
   becomes d steps away (d not 0), or its value where there is no such step; values: the whole point that the step starts from. */
enum { BSR_CLIMB_MAX = 8 }; /* parameters */
typedef struct bsr_climb_point {
    int32_t values[BSR_CLIMB_MAX];
    double seconds;
} bsr_climb_point;
typedef struct bsr_climb {
    int32_t count, max_step;  /* parameters; how many steps one move may take in all, 0: 2 */
    double least_gain;        /* a move must save this part of the time; 0: anything, as upstream has it */
    const char *const *names; /* in the order of the parameters; for the report */
    double (*target)(const int32_t *values, void *user);
    int32_t (*step)(int32_t parameter, int32_t value, int32_t d, const int32_t *values, void *user);
    int (*stop)(void *user); /* null, or: not 0 ends the climb with the best so far */
    void *user;
    bsr_climb_point *memo;                              /* every point that was evaluated; the caller's memory */
    int32_t memo_count, memo_capacity;                  /* full: as stop */
    int32_t best[BSR_CLIMB_MAX];                        /* result */
    double seconds, reference_seconds, initial_seconds; /* results; negative: failed */
    double speedup;                                     /* result: percent of the reference's time saved */
    int32_t failed, stopped;                            /* results: points that could not be had; whether it was ended early */
} bsr_climb;
/* After upstream's minimize: the first move that improves is taken; points that failed are skipped, none is evaluated twice;
   of all points within 0.1 % of the best the initial one is taken, else the one that is smallest in lexicographic order; where
   the end is slower than the reference, the climb starts again from there. Errors: NULL_POINTER, BAD_ARGUMENT (count or
   max_step out of range), BAD_PLAN (neither initial nor reference can be had). */
BSR_API bsr_status bsr_tune_climb(bsr_climb *c, const int32_t *initial, const int32_t *reference, bsr_error *error);
/* One line: the initial time, then for each parameter, the most sensitive first, NAME=value (slow-downs in percent at the steps
   below | and above). Returns the length as snprintf does. */
BSR_API int bsr_climb_string(const bsr_climb *c, char *text, size_t size);

typedef struct bsr_tune_output { /* memory that the call writes, as it lies there */
    void *data;
    uint64_t bytes;
    int32_t dtype; /* how results are compared */
    int32_t reserved;
} bsr_tune_output;

typedef struct bsr_tune_progress {
    double seconds, best, reference; /* since the start; times so far, 0: none yet */
    int32_t evaluated, failed, wrong;
    int32_t reserved;
    const bsr_plan *plan; /* evaluated last */
} bsr_tune_progress;

typedef enum bsr_tune_flag {
    BSR_TUNE_STORE_ALWAYS = 1 << 0, /* the row is stored also where it gains less than min_gain */
    BSR_TUNE_TRUSTED      = 1 << 1, /* results are not compared */
    BSR_TUNE_FLAG_FORCE_32 = 0x7fffffff
} bsr_tune_flag;
#define BSR_TUNE_STORE_ALWAYS BSRI_FLAG(BSR_TUNE_STORE_ALWAYS)
#define BSR_TUNE_TRUSTED      BSRI_FLAG(BSR_TUNE_TRUSTED)

/* What is tuned and how. call: makes the call, with the exec that it is given and the operands that it knows; it may be any
   operation and must do the same every time. */
typedef struct bsr_tune_desc {
    bsr_status (*call)(const bsr_exec *exec, void *user);
    void *user;                     /* for call, target and progress */
    bsr_exec exec;                  /* stream, workspace, flags of the calls; plan, query, key and error are the tuner's */
    const bsr_tune_output *outputs; /* compared with the slowest tier's, and put back exactly as they were */
    int32_t output_count;
    uint32_t flags;                                                 /* BSR_TUNE_* */
    bsr_tune_table *table;                                          /* receives the row; null: it is only reported */
    double min_gain;                                                /* of time, for a row; 0: 0.05 */
    double time_limit;                                              /* seconds; 0: none */
    double (*now)(void *user);                                      /* seconds; required on the CPU and for time_limit */
    double (*target)(const bsr_plan *plan, void *user);             /* null: calls are timed; else seconds, negative: failed */
    int (*progress)(const bsr_tune_progress *progress, void *user); /* null, or: not 0 ends it with the best so far */
    int32_t max_step, reserved;
} bsr_tune_desc;
typedef struct bsr_tune_result {
    bsr_tune_row row;                        /* key and parameters */
    bsr_plan plan;                           /* of the row */
    double heuristic_seconds, seconds, gain; /* alternating repeats at the end; gain: of time, 0.1 is 10 % */
    int32_t evaluated, failed, wrong;        /* plans tried; that did not run; whose result was wrong */
    int32_t stored, stopped, match;          /* row stored; ended early; how the table's row for it was found before, or 0 */
    bsr_plan wrong_plan;                     /* the last wrong one */
    char sensitivity[400];
} bsr_tune_result;
/* Searches the plan that runs a call fastest, from the table's row or the heuristic's, and stores it where it gains. Results of
   every plan are compared with those of the plainest tier; a wrong one is never taken. Outputs are as before when it returns.
   It allocates, waits and copies: not for a stream that is captured. On the CPU backend the instruction set is all there is to
   choose. Errors: NULL_POINTER (call, result, outputs, now), BAD_ARGUMENT (TUNE_DESC: a count, flags or max_step that there can't
   be, reserved fields; fields count from 0), BAD_DTYPE (of an output), the call's own status where it fails without a plan,
   BAD_PLAN (TUNE_FAILED: it runs with none of its plans), OUT_OF_MEMORY, CUDA_ERROR, CAPACITY (the row does not fit the table;
   the result is there). */
BSR_API bsr_status bsr_tune(const bsr_context *ctx, const bsr_tune_desc *desc, bsr_tune_result *result, bsr_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* BSRSPARSE_H */

/* ============================================================================================== */
#if defined(BSRSPARSE_IMPLEMENTATION) && !defined(BSRI_IMPLEMENTED)
#define BSRI_IMPLEMENTED

/* ---------------------------------------------------------------------------------------------- */
/* >>base: prelude, names, errors, memory, threads                                                */
/* ---------------------------------------------------------------------------------------------- */

#include <math.h>
#include <stdio.h> /* snprintf only */
#include <string.h>
#if defined(_OPENMP) && !defined(BSRSPARSE_NO_OPENMP)
#define BSRI_OPENMP
#include <omp.h>
#endif

#if defined(BSRSPARSE_MALLOC) != defined(BSRSPARSE_FREE)
#error "bsrsparse: define both BSRSPARSE_MALLOC(bytes) and BSRSPARSE_FREE(ptr), or neither"
#endif
#ifndef BSRSPARSE_MALLOC
#include <stdlib.h>
#define BSRSPARSE_MALLOC(bytes) malloc(bytes)
#define BSRSPARSE_FREE(ptr) free(ptr)
#endif
#ifndef BSRSPARSE_ASSERT
#define BSRSPARSE_ASSERT(x) ((void)0)
#endif

#if defined(__CUDACC__) && !defined(BSRSPARSE_NO_CUDA)
#define BSRI_CUDA
#define BSRI_CHOOSERS
#include <cuda_runtime.h>
#define BSRI_HD __host__ __device__
#else
#define BSRI_HD
#endif
/* Before a loop over batch dimensions: unrolled, its divisions were most of a kernel's code and of its compile time. */
#ifdef __CUDA_ARCH__
#define BSRI_ROLLED _Pragma("unroll 1")
#else
#define BSRI_ROLLED
#endif

#if defined(BSRSPARSE_TUNE_TABLE)
#include BSRSPARSE_TUNE_TABLE
#elif !defined(BSRSPARSE_NO_TUNE_TABLE) && defined(__has_include)
#if __has_include("tune_table.h")
#include "tune_table.h"
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BSRI_WARNED 64
struct bsr_context {
    int32_t backend, isa, threads, device;
    int32_t widest; /* bsr_isa that the machine has, found once: CPUID is slow in a virtual machine */
    int32_t sm_count, cc_major, cc_minor, smem_optin; /* CUDA */
    int32_t tier;                                     /* CUDA: the fastest that device and loaded code have */
    int32_t driver, devices;                          /* CUDA: its version; how many there are */
    void *tensor_map;                                 /* CUDA: the driver's encoder; null below compute capability 9 */
    bsr_allocator allocator;
    bsr_logger logger;
    bsr_parallel_for parallel_for;
    void *parallel_user;
    const bsr_tune_table *table;
    bsr_tune_gpu gpu;
    uint64_t *bits;               /* CPU: scratch of checks, behind the context, for the call that sets bits_lent */
    uint32_t bits_lent;
    uint32_t warned[BSRI_WARNED]; /* what has been warned of once; this and the bits are all that changes */
};

/* How an index list is to be read: sizes of tiles and of the spaces that its numbers point into. */
typedef struct bsri_scatter_shape {
    int64_t blocks;         /* P */
    int64_t ms, ks, ns;     /* tile sizes */
    int64_t m, k, n;        /* strided formats: sizes of one batch item */
    int64_t tiles, sources; /* SCATTER_MM: accumulator and operand tiles */
} bsri_scatter_shape;

enum { BSRI_SUBJECT_MATRIX, BSRI_SUBJECT_PAIR, BSRI_SUBJECT_ENTRIES, BSRI_SUBJECT_LISTS };
#ifdef BSRI_CUDA
/* Index arrays that kernels look at before the operation (BSR_EXEC_CHECK_INDICES): noted where the CPU looks at their contents,
   looked at where the plan is settled. */
typedef struct bsri_subject {
    const bsr_matrix *m;
    const void *other; /* a pair's second matrix, the rows of entries, scatter indices */
    int32_t kind, operand;
    int32_t ascend, exact; /* columns must ascend; crow must end at nnz, not before it */
} bsri_subject;
#define BSRI_SUBJECTS 8
typedef struct bsri_watch {
    int32_t count, done; /* done: the kernels are launched, and those that follow are stopped by what they find */
    bsri_subject subject[BSRI_SUBJECTS];
    bsri_scatter_shape shape;
} bsri_watch;
#endif

/* What one call carries through its checks. */
typedef struct bsri_call {
    const bsr_context *ctx;
    const bsr_exec *exec; /* never null */
    int32_t op;
    uint32_t flags; /* exec->flags */
    uint64_t turned; /* bit i: the checks see operand i transposed */
    int32_t may_write_workspace; /* checks may: no operand of the call lies in it */
    int32_t reserved;
#ifdef BSRI_CUDA
    bsri_watch *watch, noted; /* watch: where copies of this note, too */
#endif
} bsri_call;

#define BSRI_TRY(expression)                       \
    do {                                           \
        bsr_status bsri_try_ = (expression);       \
        if (bsri_try_ != BSR_OK) return bsri_try_; \
    } while (0)

typedef struct bsri_name {
    int32_t value;
    const char *name, *text;
} bsri_name;

static const char *bsri_lookup(const bsri_name *table, size_t n, int value, int want_text, const char *otherwise) {
    size_t i;
    for (i = 0; i < n; i++)
        if (table[i].value == value) return want_text ? table[i].text : table[i].name;
    return otherwise;
}
#define BSRI_COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const bsri_name bsri_status_names[] = {
#define BSRI_X(name, value, text) {value, #name, text},
    BSR_STATUS_LIST(BSRI_X)
#undef BSRI_X
};
static const bsri_name bsri_op_names[] = {
#define BSRI_X(name, value, text) {value, #name, text},
    BSR_OP_LIST(BSRI_X)
#undef BSRI_X
};
static const bsri_name bsri_operand_names[] = {
#define BSRI_X(name, value, text) {value, #name, text},
    BSR_OPERAND_LIST(BSRI_X)
#undef BSRI_X
};
static const bsri_name bsri_dtype_names[] = {
#define BSRI_X(name, value, text, bytes) {value, #name, text},
    BSR_DTYPE_LIST(BSRI_X)
#undef BSRI_X
};
#ifdef BSRSPARSE_NO_ERROR_TEXT
#define BSRI_ITEM_TEXT(text) ""
#else
#define BSRI_ITEM_TEXT(text) text
#endif
static const struct bsri_item_info {
    const char *name, *text;
    bsr_status status;
} bsri_items[] = {
#define BSRI_X(name, status, text) {#name, BSRI_ITEM_TEXT(text), status},
    BSR_ITEM_LIST(BSRI_X)
#undef BSRI_X
};

BSR_API int bsr_version(void) { return BSR_VERSION; }
BSR_API const char *bsr_status_name(int status) {
    return bsri_lookup(bsri_status_names, BSRI_COUNT(bsri_status_names), status, 0, "BSR_?");
}
BSR_API const char *bsr_status_string(int status) {
    return bsri_lookup(bsri_status_names, BSRI_COUNT(bsri_status_names), status, 1, "unknown status");
}
BSR_API const char *bsr_item_name(int item) { return item >= 0 && item < BSR_ITEM_COUNT ? bsri_items[item].name : "BSR_ITEM_?"; }
BSR_API const char *bsr_item_string(int item) {
    return item >= 0 && item < BSR_ITEM_COUNT ? bsri_items[item].text : "unknown item";
}
BSR_API const char *bsr_operand_name(int operand) {
    return bsri_lookup(bsri_operand_names, BSRI_COUNT(bsri_operand_names), operand, 1, "?");
}
BSR_API const char *bsr_op_name(int op) { return bsri_lookup(bsri_op_names, BSRI_COUNT(bsri_op_names), op, 1, "?"); }
BSR_API const char *bsr_dtype_name(int dtype) {
    return bsri_lookup(bsri_dtype_names, BSRI_COUNT(bsri_dtype_names), dtype, 1, "?");
}
BSR_API size_t bsr_dtype_size(int dtype) {
    switch (dtype) {
#define BSRI_X(name, value, text, bytes) \
    case name: return bytes;
        BSR_DTYPE_LIST(BSRI_X)
#undef BSRI_X
        default: return 0;
    }
}

/* A bounded text under construction; length counts on past the end, as snprintf does. */
typedef struct bsri_text {
    char *data;
    size_t size, length;
} bsri_text;

static void bsri_put(bsri_text *t, const char *s) {
    for (; *s; s++, t->length++)
        if (t->length + 1 < t->size) t->data[t->length] = *s;
    if (t->size) t->data[t->length < t->size ? t->length : t->size - 1] = 0;
}
static void bsri_put_int(bsri_text *t, int64_t value) {
    char digits[24];
    size_t n = sizeof digits - 1;
    uint64_t u = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    digits[n] = 0;
    do digits[--n] = (char)('0' + (int)(u % 10));
    while ((u /= 10) != 0);
    if (value < 0) digits[--n] = '-';
    bsri_put(t, digits + n);
}

/* The names of a set's dtypes, or the one dtype: those left of `set` in bits. */
static void bsri_put_dtypes(bsri_text *t, int64_t set) {
    int dtype, some = 0;
    for (dtype = 0; dtype < 63; dtype++)
        if (set > 0 && set >> dtype & 1) bsri_put(t, some++ ? ", " : ""), bsri_put(t, bsr_dtype_name(dtype));
    if (!some) bsri_put(t, "none");
}
/* What stands at s in an item's sentence: a place for index, value or what was wanted. Returns its length, or 0 where there is
   none. */
static size_t bsri_put_place(bsri_text *t, const char *s, const bsr_error *error) {
    static const char *const places[] = {"<index>",  "<value>",        "<dtype>",         "<operand>",  "<op>",
                                         "<wanted>", "<wanted_dtype>", "<wanted_dtypes>", "<wanted_op>"};
    size_t i = 0;
    int64_t number;
    const char *name = "?";
    while (i < BSRI_COUNT(places) && strncmp(s, places[i], strlen(places[i]))) i++;
    if (i == BSRI_COUNT(places)) return 0;
    number = i == 0 ? error->index : i < 5 ? error->value : error->wanted;
    if (number == (int)number) {
        if (i == 2 || i == 6) name = bsr_dtype_name((int)number);
        if (i == 3) name = bsr_operand_name((int)number);
        if (i == 4 || i == 8) name = bsr_op_name((int)number);
    }
    if (i == 7) bsri_put_dtypes(t, number);
    else if (*name != '?') bsri_put(t, name);
    else if (i && i < 5 && number == BSR_VALUE_UNKNOWN) bsri_put(t, name);
    else bsri_put_int(t, number);
    return strlen(places[i]);
}
BSR_API int bsr_error_string(const bsr_error *error, char *text, size_t size) {
    bsri_text t;
    const char *s;
    size_t n;
    t.data = text, t.size = text ? size : 0, t.length = 0;
    bsri_put(&t, "");
    if (!error) return 0;
    bsri_put(&t, bsr_status_name(error->status));
    if (error->status == BSR_OK) return (int)t.length;
    bsri_put(&t, ": ");
    bsri_put(&t, bsr_operand_name(error->operand));
    bsri_put(&t, ": ");
    for (s = bsr_item_string(error->item); *s; s++) {
        char one[2];
        one[0] = *s, one[1] = 0;
        n = bsri_put_place(&t, s, error);
        if (n) s += n - 1;
        else bsri_put(&t, one);
    }
    if (error->cuda_error) bsri_put(&t, " (CUDA error "), bsri_put_int(&t, error->cuda_error), bsri_put(&t, ")");
    return (int)t.length;
}

/* Hands a record to the caller and the logger. */
static void bsri_record_error(const bsr_context *ctx, bsr_error *error, const bsr_error *e) {
    if (error) *error = *e;
    if (ctx && ctx->logger.func) {
        char line[320];
        bsr_error_string(e, line, sizeof line);
        ctx->logger.func(BSR_LOG_ERROR, e->item, line, ctx->logger.user);
    }
}
static bsr_error bsri_error(int item, int operand, int64_t index, int64_t value) {
    bsr_error e;
    e.status = (int32_t)bsri_items[item].status, e.item = item, e.operand = operand, e.cuda_error = 0;
    e.index = index, e.value = value, e.wanted = -1;
    return e;
}
static void bsri_record_cuda(const bsr_context *ctx, bsr_error *error, int item, int operand, int64_t index, int64_t value,
                             int cuda_error) {
    bsr_error e = bsri_error(item, operand, index, value);
    e.cuda_error = cuda_error;
    bsri_record_error(ctx, error, &e);
}
static void bsri_record(const bsr_context *ctx, bsr_error *error, int item, int operand, int64_t index, int64_t value) {
    bsri_record_cuda(ctx, error, item, operand, index, value, 0);
}

/* A finding as bsr_exec.device_status has it: the complement of operand << 58 | item << 50 | index, so that 0 is none and the
   first of several is the greatest. An index of -1 is all ones, as is what 50 bits don't hold. */
#define BSRI_WORD_INDEX ((UINT64_C(1) << 50) - 1)
BSRI_UNUSED BSRI_HD static uint64_t bsri_status_word(int operand, int item, int64_t index) {
    const uint64_t at = (uint64_t)index < BSRI_WORD_INDEX ? (uint64_t)index : BSRI_WORD_INDEX;
    return ~((uint64_t)operand << 58 | (uint64_t)item << 50 | at);
}
BSR_API bsr_status bsr_device_status(uint64_t word, bsr_error *error) {
    const uint64_t finding = ~word, at = finding & BSRI_WORD_INDEX;
    const int operand = (int)(finding >> 58), item = (int)(finding >> 50 & 255);
    const int known = item < BSR_ITEM_COUNT && *bsr_operand_name(operand) != '?';
    if (error) memset(error, 0, sizeof *error), error->index = -1;
    if (!word) return BSR_OK;
    if (!known || (bsri_items[item].status != BSR_BAD_STRUCTURE && bsri_items[item].status != BSR_BAD_SHAPE)) {
        bsri_record(NULL, error, BSR_ITEM_STATUS_WORD, BSR_ARG_NONE, -1, (int64_t)word);
        return BSR_BAD_ARGUMENT;
    }
    bsri_record(NULL, error, item, operand, at == BSRI_WORD_INDEX ? -1 : (int64_t)at, BSR_VALUE_UNKNOWN);
    return bsri_items[item].status;
}

/* On the CPU the checks are over before the work begins: the word says the same as the record. */
static void bsri_host_word(const bsri_call *c, uint64_t word) {
    if (!(c->flags & BSR_EXEC_CHECK_INDICES) || c->exec->query || c->ctx->backend == BSR_BACKEND_CUDA) return;
    *c->exec->device_status = word;
}
/* Fills in the caller's record, logs, and returns the item's status: `return bsri_fail(c, item, ...)`; with what was wanted
   where value does not say it. */
static bsr_status bsri_fail_wanted(const bsri_call *c, int item, int operand, int64_t index, int64_t value, int64_t wanted) {
    bsr_error e;
    if (c->turned >> operand & 1) { /* the record speaks of the operand as it was given */
        const int strides = item == BSR_ITEM_STRIDE_NEGATIVE || item == BSR_ITEM_STRIDE_OUTPUT;
        if ((strides || item == BSR_ITEM_SIZE_NEGATIVE) && index >= 0 && index < 2) index = 1 - index;
        if (item == BSR_ITEM_ROWS_MISMATCH) item = BSR_ITEM_COLS_MISMATCH;
        else if (item == BSR_ITEM_COLS_MISMATCH) item = BSR_ITEM_ROWS_MISMATCH;
    }
    e = bsri_error(item, operand, index, value), e.wanted = wanted;
    bsri_record_error(c->flags & BSR_EXEC_NO_LOG ? NULL : c->ctx, c->exec->error, &e);
    if (bsri_items[item].status == BSR_BAD_STRUCTURE) bsri_host_word(c, bsri_status_word(operand, item, index));
    return bsri_items[item].status;
}
static bsr_status bsri_fail(const bsri_call *c, int item, int operand, int64_t index, int64_t value) {
    return bsri_fail_wanted(c, item, operand, index, value, -1);
}

/* Whether a number comes for the first time in this context, among the first BSRI_WARNED different ones. */
BSRI_UNUSED static int bsri_once(const bsr_context *ctx, uint32_t number) {
    uint32_t *set = ((bsr_context *)(uintptr_t)ctx)->warned, at, i;
    number += !number;
    for (i = 0; i < BSRI_WARNED; i++) {
        at = (number + i) % BSRI_WARNED;
#if defined(__GNUC__) || defined(__clang__)
        {
            uint32_t none = 0;
            if (__atomic_compare_exchange_n(&set[at], &none, number, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return 1;
            if (none == number) return 0;
        }
#else
        if (!set[at]) return set[at] = number, 1; /* two threads may warn of the same thing */
        if (set[at] == number) return 0;
#endif
    }
    return 0;
}
BSRI_UNUSED static int bsri_warns(const bsri_call *c) {
    const bsr_logger *l = &c->ctx->logger;
    return l->func && (!l->max_level || l->max_level >= BSR_LOG_WARN) && !(c->flags & BSR_EXEC_NO_LOG) && !c->exec->query;
}

/* On the CUDA backend operands lie in device memory: their contents are not looked at from the host. */
static int bsri_on_cuda(const bsri_call *c) { return c->ctx->backend == BSR_BACKEND_CUDA; }
#ifdef BSRI_CUDA
#define BSRI_CUDA_RETURN(c, call)         \
    do {                                  \
        if (bsri_on_cuda(c)) return call; \
    } while (0)
static bsr_status bsri_cuda_device(const bsri_call *c); /* >>cuda */
static bsr_status bsri_cuda_indices_bytes(const bsri_call *c, int64_t *bytes); /* >>cuda-indices */
static bsr_status bsri_cuda_indices(const bsri_call *c);
/* Operations that the CUDA backend has. */
static int bsri_cuda_has(int op) {
    return op == BSR_OP_DENSE_ADDMM || op == BSR_OP_SCATTER_MM || op == BSR_OP_MATMUL || op == BSR_OP_MATMUL_BACKWARD ||
           op == BSR_OP_SAMPLED_ADDMM || op == BSR_OP_SOFTMAX || op == BSR_OP_SOFTMAX_BACKWARD || op == BSR_OP_ATTENTION ||
           (op >= BSR_OP_VALIDATE && op <= BSR_OP_SCATTER_INDICES) || (op >= BSR_OP_TO_CSR && op <= BSR_OP_REBLOCK);
}
#else
#define BSRI_CUDA_RETURN(c, call) ((void)0)
static int bsri_cuda_has(int op) { return (void)op, 0; }
#endif

/* The call as its last check sees it: every operand was held against the workspace. A query writes nothing there. */
static bsri_call bsri_last_check(const bsri_call *c) {
    bsri_call last = *c;
    last.may_write_workspace = c->exec->workspace && !c->exec->query;
    return last;
}
static int bsri_checking(const bsri_call *c) { return !(c->flags & BSR_EXEC_SKIP_CHECKS); }

/* BSR_EXEC_CHECK_INDICES: flags that it excludes, and its word. */
static bsr_status bsri_begin_status(const bsri_call *c) {
    if (c->flags & BSR_EXEC_SKIP_CHECKS) return bsri_fail(c, BSR_ITEM_FLAGS_CONFLICT, BSR_ARG_EXEC, -1, (int64_t)c->flags);
    if (!c->exec->device_status) return bsri_fail(c, BSR_ITEM_DEVICE_STATUS, BSR_ARG_EXEC, -1, 0);
    if ((uintptr_t)c->exec->device_status % 8) return bsri_fail(c, BSR_ITEM_ALIGNMENT, BSR_ARG_EXEC, -1, 8);
    return BSR_OK;
}

/* First step of every operation: clears the error record, checks context and exec. */
static bsr_status bsri_begin(bsri_call *c, const bsr_context *ctx, int op, const bsr_exec *exec) {
    static const bsr_exec none = BSR_ZERO;
    const uint32_t known = BSR_EXEC_SKIP_CHECKS | BSR_EXEC_CHECK_POINTERS | BSR_EXEC_ACCUMULATE_F64 | BSR_EXEC_TF32 |
                           BSR_EXEC_TF32X3 | BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG | BSR_EXEC_CONSTANT_MATRIX |
                           BSR_EXEC_CHECK_INDICES;
    c->ctx = ctx, c->exec = exec ? exec : &none, c->op = op, c->flags = c->exec->flags, c->turned = 0;
    c->may_write_workspace = 0, c->reserved = 0;
#ifdef BSRI_CUDA
    c->watch = &c->noted, c->noted.count = c->noted.done = 0;
#endif
    if (c->exec->error) {
        memset(c->exec->error, 0, sizeof *c->exec->error);
        c->exec->error->index = c->exec->error->wanted = -1;
    }
    if (!ctx) return bsri_fail(c, BSR_ITEM_CONTEXT_NULL, BSR_ARG_CONTEXT, -1, 0);
    if (c->flags & ~known) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_EXEC, 0, (int64_t)c->flags);
    if (c->exec->reserved || c->exec->reserved2) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_EXEC, 1, 1);
    if ((c->flags & BSR_EXEC_TF32) && (c->flags & (BSR_EXEC_TF32X3 | BSR_EXEC_ACCUMULATE_F64)))
        return bsri_fail(c, BSR_ITEM_FLAGS_CONFLICT, BSR_ARG_EXEC, -1, (int64_t)c->flags);
    if (c->flags & BSR_EXEC_CHECK_INDICES) BSRI_TRY(bsri_begin_status(c));
    if (bsri_on_cuda(c) && !bsri_cuda_has(op)) return bsri_fail(c, BSR_ITEM_NOT_IMPLEMENTED, BSR_ARG_NONE, -1, op);
    return BSR_OK;
}

static void *bsri_alloc(const bsr_context *ctx, size_t bytes) {
    return ctx->allocator.alloc_fn ? ctx->allocator.alloc_fn(bytes, ctx->allocator.user) : BSRSPARSE_MALLOC(bytes);
}
static void bsri_free(const bsr_context *ctx, void *ptr) {
    if (!ptr) return;
    if (ctx->allocator.free_fn) ctx->allocator.free_fn(ptr, ctx->allocator.user);
    else BSRSPARSE_FREE(ptr);
}

/* Runs body(arg, 0 .. tasks-1), in any order, on the context's threads. */
static void bsri_parallel(const bsr_context *ctx, int64_t tasks, void (*body)(void *arg, int64_t task), void *arg) {
    int64_t i;
    if (ctx->parallel_for && tasks > 1) {
        ctx->parallel_for(ctx->parallel_user, tasks, body, arg);
        return;
    }
#ifdef BSRI_OPENMP
    if (ctx->threads > 1 && tasks > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(ctx->threads)
        for (i = 0; i < tasks; i++) body(arg, i);
        return;
    }
#endif
    for (i = 0; i < tasks; i++) body(arg, i);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>numbers: checked sizes, element types, offsets                                               */
/* ---------------------------------------------------------------------------------------------- */

/* Non-negative 63-bit arithmetic: 0 when the result does not fit. */
static int bsri_mul(int64_t a, int64_t b, int64_t *out) {
    if (a < 0 || b < 0) return 0;
    if ((a | b) >> 31 && a > 0 && b > INT64_MAX / a) return 0; /* hardly ever is there anything to divide */
    *out = a * b;
    return 1;
}
static int bsri_add(int64_t a, int64_t b, int64_t *out) {
    if (a < 0 || b < 0 || b > INT64_MAX - a) return 0;
    *out = a + b;
    return 1;
}
BSRI_UNUSED BSRI_HD static int64_t bsri_min(int64_t a, int64_t b) { return a < b ? a : b; }
BSRI_UNUSED BSRI_HD static int64_t bsri_max(int64_t a, int64_t b) { return a > b ? a : b; }
BSRI_UNUSED BSRI_HD static int64_t bsri_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* a / b of non-negative numbers, in 32 bits where that is possible: on a GPU several times faster. */
BSRI_UNUSED BSRI_HD static int64_t bsri_divide(int64_t a, int64_t b) {
    return ((uint64_t)a | (uint64_t)b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* n >= 0 rounded up to whole blocks; INT64_MAX where that does not fit. */
BSRI_UNUSED static int64_t bsri_whole_blocks(int64_t n, int64_t block) {
    return n <= INT64_MAX - block ? bsri_ceil_div(n, block) * block : INT64_MAX;
}

/* at + i * stride. It wraps: strides that no element needs may be anything, and are multiplied all the same. */
BSRI_HD static int64_t bsri_step(int64_t at, int64_t i, int64_t stride) {
    return (int64_t)((uint64_t)at + (uint64_t)i * (uint64_t)stride);
}
/* The one place where a base pointer and an element index meet. */
static char *bsri_at(const void *base, int dtype, int64_t element) {
    return (char *)((uintptr_t)base + (uintptr_t)element * bsr_dtype_size(dtype)); /* integers: base may be null */
}

/* Entry i of an index array. */
BSRI_HD static int64_t bsri_index(const void *array, int index_dtype, int64_t i) {
    return index_dtype == BSR_I64 ? ((const int64_t *)array)[i] : (int64_t)((const int32_t *)array)[i];
}
BSRI_HD static void bsri_set_index(void *array, int index_dtype, int64_t i, int64_t value) {
    if (index_dtype == BSR_I64) ((int64_t *)array)[i] = value;
    else ((int32_t *)array)[i] = (int32_t)value;
}

static float bsri_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static uint32_t bsri_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static float bsri_bf16_to_f32(uint16_t h) { return bsri_bits_f32((uint32_t)h << 16); }
static uint16_t bsri_f32_to_bf16(float f) { /* to nearest, ties to even; NaN stays NaN */
    uint32_t u = bsri_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static float bsri_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return bsri_bits_f32(sign | 0x7f800000u | (m << 13) | (m ? 0x400000u : 0u)); /* quiets, as F16C does */
    if (e) return bsri_bits_f32(sign | ((e + 112u) << 23) | (m << 13));
    /* subnormal: m * 2^-24 is exact in f32 */
    return bsri_bits_f32(sign | bsri_f32_bits((float)m * 5.9604644775390625e-8f));
}
static uint16_t bsri_f32_to_f16(float f) { /* to nearest, ties to even; overflow gives infinity, NaN stays NaN */
    uint32_t u = bsri_f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (a >= 0x38800000u) return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
    /* subnormal or zero: adding 0.5 leaves the rounded multiple of 2^-24 in the low mantissa bits */
    return (uint16_t)(sign | (bsri_f32_bits(bsri_bits_f32(a) + 0.5f) - 0x3f000000u));
}
/* f64 to a 16-bit type in one rounding: round to odd in f32 first, which has enough spare bits. */
static float bsri_f64_to_f32_odd(double d) {
    float f = (float)d;
    uint32_t u = bsri_f32_bits(f);
    if (!(d == d) || (double)f == d || (u & 0x7f800000u) == 0x7f800000u) return f;
    if (u & 1u) return f;
    /* f is even and inexact: step to the odd neighbour on d's side */
    if (((double)f < d) == (f >= 0)) u += 1;
    else if (u & 0x7fffffffu) u -= 1;
    return bsri_bits_f32(u);
}

/* Operands of products, a row for each dtype; the lists say what products are added up in. What sets of dtypes, loads, stores,
   checks and kernels say of these types comes from here; what a kernel knows of one: bsri_dev_dtype. To add one: see the head of
   bsrsparse_kernels.cuh.
   X(dtype, as stored, a float of any operation, dtypes of results, how far the tuner lets a result be, x as a number, v as an
   element): */
#define BSRI_BIT(dtype) (1u << (dtype))
#define BSRI_TYPES_F32(X)                                                                                                        \
    X(F16, uint16_t, 1, BSRI_BIT(BSR_F16) | BSRI_BIT(BSR_F32), 4e-3, bsri_f16_to_f32(x), bsri_f32_to_f16(v))                     \
    X(BF16, uint16_t, 1, BSRI_BIT(BSR_BF16) | BSRI_BIT(BSR_F32), 3e-2, bsri_bf16_to_f32(x), bsri_f32_to_bf16(v))                 \
    X(F32, float, 1, BSRI_BIT(BSR_F32) | BSRI_BIT(BSR_F16) | BSRI_BIT(BSR_BF16), 1e-4, x, v)
#define BSRI_TYPES_F64(X) X(F64, double, 1, BSRI_BIT(BSR_F64), 1e-9, x, v)
#define BSRI_TYPES_I32(X) \
    X(I8, int8_t, 0, BSRI_BIT(BSR_I32) | BSRI_BIT(BSR_I8) | BSRI_BIT(BSR_F32) | BSRI_BIT(BSR_F16) | BSRI_BIT(BSR_BF16), 0.0, x, 0)
#define BSRI_TYPES(X) BSRI_TYPES_F32(X) BSRI_TYPES_F64(X) BSRI_TYPES_I32(X)

/* Sets of dtypes for the checks. */
#define BSRI_X_OPERAND(dtype, ...) | BSRI_BIT(BSR_##dtype)
#define BSRI_X_FLOAT(dtype, type, is_float, ...) | ((is_float) ? BSRI_BIT(BSR_##dtype) : 0u)
#define BSRI_OPERANDS (0u BSRI_TYPES(BSRI_X_OPERAND))
#define BSRI_FLOATS (0u BSRI_TYPES(BSRI_X_FLOAT))
#define BSRI_INTS (BSRI_BIT(BSR_I8) | BSRI_BIT(BSR_I32))
#define BSRI_SAME_OR_F32(dtype) (BSRI_BIT(dtype) | ((dtype) == BSR_F64 ? 0u : BSRI_BIT(BSR_F32)))
#define BSRI_ANY (BSRI_OPERANDS | BSRI_INTS | BSRI_BIT(BSR_I64) | BSRI_BIT(BSR_BOOL))
static int bsri_is_one_of(uint32_t set, int dtype) { return dtype > 0 && dtype < 32 && (set >> dtype & 1u) != 0; }

/* What products of a dtype are added up in, if not more precisely. */
static int bsri_sums_dtype(int dtype) {
    return (0u BSRI_TYPES_I32(BSRI_X_OPERAND)) & BSRI_BIT(dtype) ? BSR_I32 : dtype == BSR_F64 ? BSR_F64 : BSR_F32;
}

static double bsri_load_f64(const void *base, int dtype, int64_t i) {
    const char *p = bsri_at(base, dtype, i);
    switch (dtype) {
#define BSRI_X(dtype, type, is_float, results, slack, number, element) \
    case BSR_##dtype: {                                                \
        const type x = *(const type *)(const void *)p;                 \
        return (double)(number);                                       \
    }
        BSRI_TYPES(BSRI_X)
#undef BSRI_X
        case BSR_I32: return (double)*(const int32_t *)(const void *)p;
        case BSR_I64: return (double)*(const int64_t *)(const void *)p;
        case BSR_BOOL: return *(const uint8_t *)(const void *)p ? 1.0 : 0.0;
        default: return 0.0;
    }
}
BSRI_UNUSED static float bsri_load_f32(const void *base, int dtype, int64_t i) {
    if (dtype == BSR_F32) return ((const float *)base)[i];
    return (float)bsri_load_f64(base, dtype, i);
}
/* Integer types only. */
BSRI_UNUSED static int32_t bsri_load_i32(const void *base, int dtype, int64_t i) {
    if (dtype == BSR_I8) return ((const int8_t *)base)[i];
    if (dtype == BSR_BOOL) return ((const uint8_t *)base)[i] != 0;
    return ((const int32_t *)base)[i];
}
BSRI_UNUSED static void bsri_store_f32(void *base, int dtype, int64_t i, float v) {
    switch (dtype) {
#define BSRI_X(dtype, type, is_float, results, slack, number, element) \
    case BSR_##dtype: ((type *)base)[i] = element; break;
        BSRI_TYPES_F32(BSRI_X)
        BSRI_TYPES_F64(BSRI_X)
#undef BSRI_X
        default: break;
    }
}
BSRI_UNUSED static void bsri_store_f64(void *base, int dtype, int64_t i, double v) {
    if (dtype == BSR_F64) ((double *)base)[i] = v;
    else if (dtype == BSR_F32) ((float *)base)[i] = (float)v;
    else bsri_store_f32(base, dtype, i, bsri_f64_to_f32_odd(v));
}
/* Integer types only; i8 keeps the low byte. */
BSRI_UNUSED static void bsri_store_i32(void *base, int dtype, int64_t i, int32_t v) {
    if (dtype == BSR_I8) {
        uint8_t low = (uint8_t)((uint32_t)v & 255u);
        memcpy((int8_t *)base + i, &low, 1);
    } else {
        ((int32_t *)base)[i] = v;
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>batches: broadcasting, items, patterns                                                       */
/* ---------------------------------------------------------------------------------------------- */

typedef struct bsri_batch {
    int32_t dims;
    int32_t reserved;
    int64_t size[BSR_MAX_BATCH_DIMS]; /* outermost first */
    int64_t count;                    /* product of the sizes: the number of items */
} bsri_batch;

static bsri_batch bsri_batch_none(void) {
    bsri_batch b;
    memset(&b, 0, sizeof b);
    b.count = 1;
    return b;
}

/* Broadcasts one more operand into b. Returns -1, or the dimension (of the operand) that does not fit. */
static int bsri_batch_join(bsri_batch *b, int32_t dims, const int64_t *size) {
    int i, zero;
    if (dims > b->dims) { /* shift to make room outside */
        int grow = dims - b->dims;
        for (i = BSR_MAX_BATCH_DIMS - 1; i >= 0; i--) b->size[i] = i >= dims ? 0 : i >= grow ? b->size[i - grow] : 1;
        b->dims = dims;
    }
    for (i = 0; i < dims; i++) {
        int64_t *mine = &b->size[b->dims - dims + i];
        if (*mine == 1) *mine = size[i];
        else if (size[i] != 1 && size[i] != *mine) return i;
    }
    for (b->count = 1, i = 0; i < b->dims; i++) {
        if (bsri_mul(b->count, b->size[i], &b->count)) continue;
        for (zero = i; zero < b->dims && b->size[zero]; zero++) {}
        if (zero == b->dims) return i < b->dims - dims ? 0 : i - (b->dims - dims);
        b->count = 0; /* no items, however large the other sizes are */
    }
    return -1;
}

/* Offset in elements of batch item `item` of b in an operand that broadcasts to b. */
BSRI_HD static int64_t bsri_batch_offset(const bsri_batch *b, int64_t item, int32_t dims, const int64_t *size,
                                         const int64_t *stride) {
    int64_t offset = 0;
    int d = b->dims - 1, i = dims - 1;
    BSRI_ROLLED
    for (; i >= 0 && d >= 0; i--, d--) {
        const int64_t outer = d ? bsri_divide(item, b->size[d]) : 0; /* most batches have one dimension */
        if (size[i] != 1) offset = bsri_step(offset, item - outer * b->size[d], stride[i]);
        item = outer;
    }
    return offset;
}
BSRI_HD static int64_t bsri_dense_offset(const bsri_batch *b, int64_t item, const bsr_dense *d) {
    return bsri_batch_offset(b, item, d->batch_dims, d->batch, d->batch_stride);
}
/* The same view with plain strides where no element needs them (a size of 1, or nothing at all), to be counted with. */
static bsr_dense bsri_dense_used(const bsr_dense *view) {
    bsr_dense d = *view;
    int i, empty = !d.rows || !d.cols;
    for (i = 0; i < d.batch_dims; i++) empty |= !d.batch[i];
    for (i = 0; i < d.batch_dims; i++)
        if (empty || d.batch[i] == 1) d.batch_stride[i] = 0;
    if (empty || d.rows == 1) d.row_stride = 0;
    if (empty || d.cols == 1) d.col_stride = 1;
    return d;
}
BSRI_UNUSED static bsri_batch bsri_batch_of(int32_t dims, const int64_t *size) {
    bsri_batch b = bsri_batch_none();
    bsri_batch_join(&b, dims, size);
    return b;
}

/* The arrays of one batch item of a matrix. */
typedef struct bsri_item {
    const void *crow, *col;
    char *values;
    int64_t pattern; /* which pattern of the attached views */
} bsri_item;

/* Is dimension i of m's batch one in which items have patterns of their own? Then there is memory for each of them. */
BSRI_HD static int bsri_own_pattern(const bsr_matrix *m, int i) {
    return m->batch[i] > 1 && (m->crow_batch_stride[i] != 0 || (m->nnz != 0 && m->col_batch_stride[i] != 0));
}
static int64_t bsri_pattern_count(const bsr_matrix *m) { /* at most INT64_MAX: no view has room for so many */
    int64_t n = 1;
    int i;
    for (i = 0; i < m->batch_dims; i++) {
        if (m->batch[i] == 0) return 0;
        if (bsri_own_pattern(m, i) && !bsri_mul(n, m->batch[i], &n)) n = INT64_MAX;
    }
    return n;
}
/* Batch item `item` of b: elements before its row pointers, columns and values, and which of m's patterns it has. One walk, as
   divisions are most of it. */
typedef struct bsri_arrays {
    int64_t crow, col, values, pattern;
} bsri_arrays;
BSRI_HD static bsri_arrays bsri_matrix_walk(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    bsri_arrays w = {0, 0, 0, 0};
    int64_t patterns = 1;
    int d = b->dims - 1, i = m->batch_dims - 1;
    BSRI_ROLLED
    for (; i >= 0 && d >= 0; i--, d--) {
        const int64_t outer = d ? bsri_divide(item, b->size[d]) : 0, at = m->batch[i] != 1 ? item - outer * b->size[d] : 0;
        w.crow = bsri_step(w.crow, at, m->crow_batch_stride[i]), w.col = bsri_step(w.col, at, m->col_batch_stride[i]);
        w.values = bsri_step(w.values, at, m->values_batch_stride[i]);
        if (bsri_own_pattern(m, i)) w.pattern += at * patterns, patterns *= m->batch[i];
        item = outer;
    }
    return w;
}
static bsri_item bsri_matrix_item(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    const bsri_arrays w = bsri_matrix_walk(b, item, m);
    bsri_item it;
    it.crow = bsri_at(m->crow_indices, m->index_dtype, w.crow), it.col = bsri_at(m->col_indices, m->index_dtype, w.col);
    it.values = bsri_at(m->values, m->dtype, w.values), it.pattern = w.pattern;
    return it;
}
BSRI_HD static int64_t bsri_block_rows(const bsr_matrix *m) { return m->rows / m->block_rows; }
BSRI_HD static int64_t bsri_block_cols(const bsr_matrix *m) { return m->cols / m->block_cols; }

/* Strides of values with the packed default filled in: block, row, column. */
static void bsri_value_strides(const bsr_matrix *m, int64_t s[3]) {
    s[0] = m->value_strides[0], s[1] = m->value_strides[1], s[2] = m->value_strides[2];
    if (!s[0] && !s[1] && !s[2]) s[0] = m->block_rows * m->block_cols, s[1] = m->block_cols, s[2] = 1;
}

/* The same, plain where no element needs them. */
static void bsri_value_steps(const bsr_matrix *m, int64_t s[3]) {
    bsri_value_strides(m, s);
    if (m->nnz < 2) s[0] = 0;
    if (!m->nnz || m->block_rows == 1) s[1] = m->block_cols;
    if (!m->nnz || m->block_cols == 1) s[2] = 1;
}

/* Layouts of the two views: one function each serves size query, builder and users. Offsets in bytes. */
#define BSRI_VIEW_HEADER 64
#define BSRI_TRANSPOSED_MAGIC INT64_C(0x0001545253425253) /* "SRBSRT", version 1 */
#define BSRI_SCHEDULE_MAGIC INT64_C(0x0001535253425253)
enum { /* words of a schedule's header */
    BSRI_SCHEDULE_GROUP = 4,  /* lines of a group */
    BSRI_SCHEDULE_GROUPS,     /* of a pattern */
    BSRI_SCHEDULE_TRANSPOSED, /* it is for A^T */
    BSRI_SCHEDULE_TALL,       /* groups at the front that are far longer than others */
    BSRI_SCHEDULE_WORD        /* of errors, which count a schedule's words behind those of a transposed index */
};
typedef struct bsri_view {
    int64_t patterns, entries; /* entries of row and position, per pattern (ragged: for all together) */
    int64_t at[3];             /* transposed index: ccol, row, position; schedule: order, union length */
    int64_t groups, lines;     /* schedule: groups and the rows that it orders */
    int64_t bytes;
} bsri_view;

static int bsri_view_place(bsri_view *v, int which, int64_t count, int64_t size) {
    int64_t bytes;
    v->at[which] = v->bytes;
    return bsri_mul(count, size, &bytes) && bsri_add(bytes, 63, &bytes) && bsri_add(v->bytes, bytes / 64 * 64, &v->bytes);
}
/* 0 when a size does not fit 63 bits. */
static int bsri_transposed_layout(const bsr_matrix *m, bsri_view *v) {
    int64_t size = (int64_t)bsr_dtype_size(m->index_dtype), ccol, entries;
    memset(v, 0, sizeof *v);
    v->patterns = bsri_pattern_count(m), v->entries = m->nnz, v->bytes = BSRI_VIEW_HEADER;
    if (!bsri_mul(v->patterns, bsri_block_cols(m) + 1, &ccol)) return 0;
    if (!bsri_mul(m->flags & BSR_MATRIX_RAGGED ? 1 : v->patterns, m->nnz, &entries)) return 0;
    return bsri_view_place(v, 0, ccol, size) && bsri_view_place(v, 1, entries, size) && bsri_view_place(v, 2, entries, size);
}
static int bsri_schedule_layout(const bsr_matrix *m, int group, int transposed, bsri_view *v) {
    int64_t order, lengths;
    memset(v, 0, sizeof *v);
    v->patterns = bsri_pattern_count(m), v->bytes = BSRI_VIEW_HEADER;
    v->lines = transposed ? bsri_block_cols(m) : bsri_block_rows(m);
    v->groups = bsri_ceil_div(v->lines, group);
    if (!bsri_mul(v->patterns, v->groups, &lengths) || !bsri_mul(lengths, group, &order)) return 0;
    return bsri_view_place(v, 0, order, 4) && bsri_view_place(v, 1, lengths, 4);
}
/* What every schedule has, of rows or columns: groups of 8 have the fewest lengths, of 1 no padding. */
static int bsri_schedule_least(const bsr_matrix *m, bsri_view *v) {
    const int64_t lines = bsri_min(bsri_block_rows(m), bsri_block_cols(m));
    int64_t order, lengths;
    memset(v, 0, sizeof *v);
    v->patterns = bsri_pattern_count(m), v->bytes = BSRI_VIEW_HEADER;
    if (!bsri_mul(v->patterns, lines, &order) || !bsri_mul(v->patterns, bsri_ceil_div(lines, 8), &lengths)) return 0;
    return bsri_view_place(v, 0, order, 4) && bsri_view_place(v, 1, lengths, 4);
}
/* Their headers, of eight words. */
static void bsri_transposed_header(const bsr_matrix *m, int64_t *h) {
    memset(h, 0, BSRI_VIEW_HEADER);
    h[0] = BSRI_TRANSPOSED_MAGIC, h[1] = m->nnz, h[2] = bsri_block_rows(m), h[3] = bsri_block_cols(m);
    h[4] = bsri_pattern_count(m), h[5] = m->index_dtype;
}
static void bsri_schedule_header(const bsr_matrix *m, int64_t group, int transposed, int64_t *h) {
    memset(h, 0, BSRI_VIEW_HEADER);
    h[0] = BSRI_SCHEDULE_MAGIC, h[1] = m->nnz, h[2] = transposed ? bsri_block_cols(m) : bsri_block_rows(m);
    h[3] = bsri_pattern_count(m), h[4] = group, h[5] = bsri_ceil_div(h[2], group), h[6] = transposed != 0;
}
/* The first of n words that is not as it must be, or -1. Of a schedule's group any is right that there can be. */
static int bsri_header_differs(const int64_t *have, const int64_t *want, int n) {
    int i;
    for (i = 0; i < n; i++)
        if (have[i] != want[i]) return i;
    return -1;
}
static int bsri_transposed_differs(const bsr_matrix *m, const int64_t *have) {
    int64_t want[8];
    bsri_transposed_header(m, want);
    return bsri_header_differs(have, want, 6);
}
static int bsri_schedule_differs(const bsr_matrix *m, const int64_t *have) {
    int64_t want[8];
    int first;
    bsri_schedule_header(m, 1, have[6] != 0, want);
    first = bsri_header_differs(have, want, 4);
    return first < 0 && (have[4] < 1 || have[4] > 8) ? 4 : first;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>checks: what every operand must fulfil                                                       */
/* ---------------------------------------------------------------------------------------------- */

enum { BSRI_READ = 0, BSRI_WRITE = 1, BSRI_PATTERN = 2 };
#define BSRI_MAX_DIMS (BSR_MAX_BATCH_DIMS + 3)

/* Memory that an operand touches, for alignment and overlap checks. Dimensions of size 1 are left out. */
typedef struct bsri_span {
    const char *data;
    int64_t bytes;                                      /* from data to the end of the last element; 0: nothing */
    int64_t size[BSRI_MAX_DIMS], stride[BSRI_MAX_DIMS]; /* stride in bytes, ascending */
    int64_t element;
    int64_t given[5]; /* rank, then size and stride of rows and columns as given */
    int64_t given_size[BSRI_MAX_DIMS], given_stride[BSRI_MAX_DIMS]; /* as size and stride, in the order given */
    int place[BSRI_MAX_DIMS];                                       /* of size and stride: which of the given ones */
    int dims, operand, written;
} bsri_span;

/* Collects sizes and strides (elements); 0 if the extent does not fit. An empty operand spans nothing. */
static int bsri_span_make(bsri_span *s, int operand, const void *data, int64_t element, int n, const int64_t *size,
                          const int64_t *stride) {
    int64_t last = 0, count = 1, part;
    int i, j, empty = 0;
    s->data = (const char *)data, s->element = element, s->operand = operand, s->dims = 0, s->bytes = 0, s->written = 0;
    s->given[0] = n; /* tells a view from its transpose, and values from index arrays */
    for (i = 0; i < 2; i++) s->given[1 + 2 * i] = i < n ? size[i] : 1, s->given[2 + 2 * i] = i < n && size[i] > 1 ? stride[i] : 0;
    for (i = 0; i < n; i++) empty |= size[i] == 0;
    if (empty) return 1;
    for (i = 0; i < n; i++) {
        int64_t bytes;
        if (size[i] == 1) continue; /* its stride may be anything */
        if (!bsri_mul(count, size[i], &count) || !bsri_mul(stride[i], element, &bytes)) return 0;
        if (!bsri_mul(size[i] - 1, bytes, &part) || !bsri_add(last, part, &last)) return 0;
        s->given_size[s->dims] = size[i], s->given_stride[s->dims] = bytes;
        for (j = s->dims++; j > 0 && s->stride[j - 1] > bytes; j--)
            s->stride[j] = s->stride[j - 1], s->size[j] = s->size[j - 1], s->place[j] = s->place[j - 1];
        s->stride[j] = bytes, s->size[j] = size[i], s->place[j] = i;
    }
    if (!bsri_mul(count, element, &part) || !bsri_add(last, element, &s->bytes)) return 0;
    /* the end must be an address too */
    return (uint64_t)s->bytes <= (uint64_t)(UINTPTR_MAX - (uintptr_t)data);
}

/* -1, or the (sorted) dimension through which two elements of an output share memory; *reach: bytes that its stride must pass. */
static int bsri_span_self_overlap(const bsri_span *s, int64_t *reach) {
    int i;
    for (*reach = s->element, i = 0; i < s->dims; i++) {
        if (s->stride[i] < *reach) return i;
        *reach += (s->size[i] - 1) * s->stride[i];
    }
    return -1;
}

/* Do two spans share a byte? A byte's place is a sum of strides times counters, and so is, with one span's counters turned round,
   the difference of two places. What is asked is whether whole numbers 0 <= z[i] < size[i] and 0 <= rest <= slack fulfil
   z[0] stride[0] + z[1] stride[1] + ... + rest = total. */
typedef struct bsri_terms {
    int64_t stride[2 * BSRI_MAX_DIMS], size[2 * BSRI_MAX_DIMS];
    int64_t common[2 * BSRI_MAX_DIMS], reach[2 * BSRI_MAX_DIMS]; /* of all terms from here on: greatest divisor, largest sum */
    int64_t slack;
    int n, steps; /* steps: that may still be taken */
} bsri_terms;
#define BSRI_TERM_STEPS 65536

/* The least k up to `most` for which k a mod m lies in [low, high], or -1; a < m, 0 < low <= high < m, most * a fits. Where no
   multiple of a lies there, k a has gone y times round m, and y is the answer to the same question modulo a. */
static int64_t bsri_first_multiple(int64_t a, int64_t m, int64_t low, int64_t high, int64_t most) {
    int64_t past, y;
    if (a > m - a) past = low, a = m - a, low = m - high, high = m - past; /* the other way round */
    if (!a) return -1;
    past = low % a;
    if (!past || a - past <= high - low) return bsri_ceil_div(low, a) <= most ? bsri_ceil_div(low, a) : -1;
    if (low > most * a) return -1;
    y = bsri_first_multiple((a - m % a) % a, a, past, high % a, (most * a - low) / m);
    return y < 0 ? -1 : bsri_ceil_div(low + m * y, a);
}
static void bsri_terms_drop(bsri_terms *t, int i) { t->n--, t->stride[i] = t->stride[t->n], t->size[i] = t->size[t->n]; }
/* Terms that fill each other's gaps become one, which most views of one buffer are left with. */
static void bsri_terms_merge(bsri_terms *t) {
    int i, j;
    for (i = 0; i < t->n; i++)
        if (t->stride[i] <= t->slack + 1) t->slack += (t->size[i] - 1) * t->stride[i], bsri_terms_drop(t, i), i = -1;
    for (i = 0; i < t->n; i++)
        for (j = 0; j < t->n; j++) {
            const int64_t k = i == j || t->stride[j] < t->stride[i] ? 0 : bsri_divide(t->stride[j], t->stride[i]);
            if (!k || k * t->stride[i] != t->stride[j] || k > t->size[i]) continue;
            t->size[i] += k * (t->size[j] - 1), bsri_terms_drop(t, j), i = -1; /* from the first on again */
            break;
        }
}
static int64_t bsri_common_divisor(int64_t a, int64_t b) { /* 0 divides by everything */
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}
/* First what leaves the fewest numbers to try; of the last two, which are decided without trying, the longer stride. */
static void bsri_terms_order(bsri_terms *t) {
    int64_t sum = t->slack, stride, size;
    int i, p, best;
    for (i = 0; i < t->n; i++) sum += (t->size[i] - 1) * t->stride[i];
    for (p = 0; p < t->n; p++) {
        int64_t least = INT64_MAX;
        for (best = i = p; i < t->n; i++) {
            const int64_t own = (t->size[i] - 1) * t->stride[i], tries = bsri_min(t->size[i] - 1, (sum - own) / t->stride[i]);
            if (p + 2 == t->n ? t->stride[i] > t->stride[best] : tries < least) best = i, least = tries;
        }
        stride = t->stride[best], size = t->size[best], t->stride[best] = t->stride[p], t->size[best] = t->size[p];
        t->stride[p] = stride, t->size[p] = size, t->reach[p] = sum, sum -= (size - 1) * stride;
    }
    for (p = t->n - 1; p >= 0; p--) t->common[p] = bsri_common_divisor(t->stride[p], p + 1 < t->n ? t->common[p + 1] : 0);
}
/* 1: a solution by the terms from p on, 0: none, -1: not known after all steps. */
static int bsri_terms_solve(bsri_terms *t, int p, int64_t total) {
    int64_t stride, rest, common, z, last;
    if (p == t->n) return total <= t->slack;
    stride = t->stride[p], rest = p + 1 < t->n ? t->reach[p + 1] : t->slack;
    z = total > rest ? bsri_divide(total - rest - 1, stride) + 1 : 0, last = bsri_min(t->size[p] - 1, bsri_divide(total, stride));
    if (p + 1 == t->n) return z <= last;
    for (common = t->common[p + 1]; z <= last; z++) { /* what is left must be slack away from a multiple of the divisor */
        const int64_t over = (total - z * stride) % common;
        const int64_t k = over <= t->slack ? 0 : bsri_first_multiple(stride % common, common, over - t->slack, over, last - z);
        int found;
        if (k < 0) return 0;
        z += k;
        if (t->steps-- <= 0) return -1;
        found = bsri_terms_solve(t, p + 1, total - z * stride);
        if (found) return found;
    }
    return 0;
}
static void bsri_terms_add(bsri_terms *t, const bsri_span *s) {
    int i;
    for (i = 0; i < s->dims; i++)
        if (s->stride[i] > 0) t->stride[t->n] = s->stride[i], t->size[t->n] = s->size[i], t->n++;
}
/* Leaves out numbers that are too large for the total; then all counters run the other way. Returns the total that they have to
   make then, or a negative number where they can't. */
static int64_t bsri_terms_turn(bsri_terms *t, int64_t total) {
    int64_t sum = t->slack;
    int i;
    for (i = 0; i < t->n; i++) {
        t->size[i] = bsri_min(t->size[i], total / t->stride[i] + 1), sum += (t->size[i] - 1) * t->stride[i];
        if (t->size[i] == 1) bsri_terms_drop(t, i--);
    }
    return sum - total;
}
/* As below, of spans that lie in each other's extent. */
static int bsri_spans_meet(const bsri_span *a, const bsri_span *b) {
    const uintptr_t a0 = (uintptr_t)a->data, b0 = (uintptr_t)b->data;
    bsri_terms t;
    int64_t total;
    int found;
    if (a->bytes > INT64_MAX - b->bytes) return BSR_ITEM_OVERLAP_UNDECIDED;
    total = (b0 > a0 ? (int64_t)(b0 - a0) : -(int64_t)(a0 - b0)) + b->bytes - 1;
    t.n = 0, t.slack = a->element + b->element - 2, t.steps = BSRI_TERM_STEPS;
    bsri_terms_add(&t, a);
    bsri_terms_add(&t, b);
    bsri_terms_merge(&t);
    for (found = 0; found < 2 && t.n > 1 && total >= 0; found++) total = bsri_terms_turn(&t, total);
    if (total < 0) return 0;
    if (t.n > 1) bsri_terms_order(&t);
    found = bsri_terms_solve(&t, 0, total);
    return found < 0 ? BSR_ITEM_OVERLAP_UNDECIDED : found ? BSR_ITEM_OVERLAP : 0;
}
/* 0, or the item that says why not: they do overlap, or it takes more than 64 bits or the steps that there are to decide. */
static int bsri_spans_overlap(const bsri_span *a, const bsri_span *b) {
    const uintptr_t a0 = (uintptr_t)a->data, b0 = (uintptr_t)b->data;
    if (!a->bytes || !b->bytes) return 0;
    if (a0 + (uintptr_t)a->bytes <= b0 || b0 + (uintptr_t)b->bytes <= a0) return 0;
    return bsri_spans_meet(a, b);
}
static int bsri_spans_equal(const bsri_span *a, const bsri_span *b) {
    int i;
    if (memcmp(a->given, b->given, sizeof a->given)) return 0;
    if (a->data != b->data || a->bytes != b->bytes || a->element != b->element || a->dims != b->dims) return 0;
    for (i = 0; i < a->dims; i++)
        if (a->given_size[i] != b->given_size[i] || a->given_stride[i] != b->given_stride[i]) return 0;
    return 1;
}

/* The operands of a call, inputs first; outputs are checked against all that came before. */
typedef struct bsri_spans {
    bsri_span span[32];
    int count;
} bsri_spans;

/* Every operand comes here: none may lie in the workspace of the call, or have its word of checked indices within. */
static bsr_status bsri_span_keep(const bsri_call *c, bsri_spans *set, const bsri_span *s) {
    const uintptr_t w = (uintptr_t)c->exec->workspace, at = (uintptr_t)s->data;
    const uintptr_t word = c->flags & BSR_EXEC_CHECK_INDICES ? (uintptr_t)c->exec->device_status : 0;
    BSRSPARSE_ASSERT(set->count < BSRI_COUNT(set->span));
    if (set->count < (int)BSRI_COUNT(set->span)) set->span[set->count++] = *s;
    if (w && s->bytes && (at < w ? w - at < (uintptr_t)s->bytes : at - w < c->exec->workspace_bytes)) /* any size: no sums */
        return bsri_fail(c, BSR_ITEM_OVERLAP, s->operand, -1, BSR_ARG_EXEC);
    if (word && (at < word ? word - at < (uintptr_t)s->bytes : s->bytes && at - word < 8))
        return bsri_fail(c, BSR_ITEM_OVERLAP, s->operand, -1, BSR_ARG_EXEC);
    return BSR_OK;
}
/* Bytes that are read; also those that are known only after the outputs. */
static bsr_status bsri_span_read(const bsri_call *c, bsri_spans *set, int operand, const void *data, int64_t bytes) {
    const int64_t one = 1;
    bsri_span s;
    int i;
    if (!data || bytes <= 0) return BSR_OK;
    if (!bsri_span_make(&s, operand, data, 1, 1, &bytes, &one)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, bytes);
    for (i = 0; i < set->count; i++) {
        const int item = set->span[i].written ? bsri_spans_overlap(&set->span[i], &s) : 0;
        if (item) return bsri_fail(c, item, set->span[i].operand, -1, operand);
    }
    return bsri_span_keep(c, set, &s);
}
/* An output s: no overlap with what the set holds, except that it may equal an operand of `same` exactly. */
#define BSRI_MAY_BE(operand) (UINT64_C(1) << (operand))
static bsr_status bsri_check_overlap(const bsri_call *c, const bsri_spans *set, const bsri_span *s, uint64_t same) {
    int i;
    for (i = 0; i < set->count; i++) {
        const bsri_span *other = &set->span[i];
        const int equal = (same & BSRI_MAY_BE(other->operand)) && bsri_spans_equal(s, other);
        const int item = equal ? 0 : bsri_spans_overlap(s, other);
        if (item) return bsri_fail(c, item, s->operand, -1, other->operand);
    }
    return BSR_OK;
}
/* The last of an operand's checks: an output's elements are distinct and overlap nothing in set; it is kept there. inside: how
   many of its dimensions are a stored block's number, rows and columns, or an index array's; 0: it is dense. */
static bsr_status bsri_check_span(const bsri_call *c, bsri_spans *set, bsri_span *s, int inside, int role, uint64_t same) {
    int64_t reach;
    const int bad = role == BSRI_WRITE ? bsri_span_self_overlap(s, &reach) : -1;
    s->written = role == BSRI_WRITE;
    if (bad >= 0) { /* strides as they are numbered in BSR_ITEM_LIST */
        const int at = s->place[bad], number = !inside ? at : at < inside ? 6 + at : 2 + at - inside;
        return bsri_fail_wanted(c, BSR_ITEM_STRIDE_OUTPUT, s->operand, number, s->stride[bad] / s->element,
                                bsri_ceil_div(reach, s->element));
    }
    if (s->written && set) BSRI_TRY(bsri_check_overlap(c, set, s, same));
    return set ? bsri_span_keep(c, set, s) : BSR_OK;
}

/* BSR_EXEC_CHECK_POINTERS: what kind of memory is it? Asked of the driver only under that flag, as it costs microseconds. */
static bsr_status bsri_check_memory(const bsri_call *c, const void *p, int operand) {
#ifdef BSRI_CUDA
    cudaPointerAttributes a;
    if (!bsri_on_cuda(c) || !(c->flags & BSR_EXEC_CHECK_POINTERS)) return BSR_OK;
    memset(&a, 0, sizeof a);
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) (void)cudaGetLastError();
    if (a.type != cudaMemoryTypeDevice && a.type != cudaMemoryTypeManaged)
        return bsri_fail(c, BSR_ITEM_CUDA_POINTER, operand, -1, (int64_t)a.type);
#else
    (void)c, (void)p, (void)operand;
#endif
    return BSR_OK;
}
/* Every pointer that is read or written comes here, or in a workspace. */
static bsr_status bsri_check_pointer(const bsri_call *c, const void *p, int64_t align, int operand) {
    if ((uintptr_t)p % (uintptr_t)align) return bsri_fail(c, BSR_ITEM_ALIGNMENT, operand, -1, align);
    return bsri_check_memory(c, p, operand);
}
static bsr_status bsri_check_dtype(const bsri_call *c, int dtype, uint32_t accepted, int operand) {
    if (!bsr_dtype_size(dtype)) return bsri_fail(c, BSR_ITEM_DTYPE_UNKNOWN, operand, -1, dtype);
    if (!(accepted & BSRI_BIT(dtype))) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_NOT_ACCEPTED, operand, -1, dtype, accepted);
    return BSR_OK;
}
static bsr_status bsri_check_batch(const bsri_call *c, int32_t dims, const int64_t *size, int operand) {
    int i;
    if (dims < 0 || dims > BSR_MAX_BATCH_DIMS)
        return bsri_fail_wanted(c, BSR_ITEM_BATCH_DIMS, operand, -1, dims, dims < 0 ? 0 : BSR_MAX_BATCH_DIMS);
    for (i = 0; i < dims; i++)
        if (size[i] < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, operand, 2 + i, size[i]);
    return BSR_OK;
}

/* What a dense operand is, without its numbers. */
static bsr_status bsri_check_dense_sizes(const bsri_call *c, const bsr_dense *d, int operand, uint32_t accepted) {
    if (!d) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, operand, -1, 0);
    BSRI_TRY(bsri_check_dtype(c, d->dtype, accepted, operand));
    if (d->rows < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, operand, 0, d->rows);
    if (d->cols < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, operand, 1, d->cols);
    return bsri_check_batch(c, d->batch_dims, d->batch, operand);
}
/* A dense operand: pointer, dtype, sizes, strides, extent, data, alignment; an output's elements distinct. The span is
   kept in set; an output is first compared with the spans there (it may equal an operand of `same`). */
static bsr_status bsri_check_dense_same(const bsri_call *c, bsri_spans *set, const bsr_dense *d, int operand, uint32_t accepted,
                                        int role, uint64_t same) {
    int64_t size[BSRI_MAX_DIMS], stride[BSRI_MAX_DIMS];
    bsri_span s;
    int i;
    BSRI_TRY(bsri_check_dense_sizes(c, d, operand, accepted));
    size[0] = d->rows, size[1] = d->cols, stride[0] = d->row_stride, stride[1] = d->col_stride;
    for (i = 0; i < d->batch_dims; i++) size[2 + i] = d->batch[i], stride[2 + i] = d->batch_stride[i];
    for (i = 0; i < 2 + d->batch_dims; i++)
        if (stride[i] < 0) return bsri_fail(c, BSR_ITEM_STRIDE_NEGATIVE, operand, i, stride[i]);
    if (!bsri_span_make(&s, operand, d->data, (int64_t)bsr_dtype_size(d->dtype), 2 + d->batch_dims, size, stride))
        return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
    if (s.bytes && !d->data) return bsri_fail(c, BSR_ITEM_DATA_NULL, operand, -1, 0);
    if (s.bytes) BSRI_TRY(bsri_check_pointer(c, d->data, s.element, operand));
    return bsri_check_span(c, set, &s, 0, role, same);
}
static bsr_status bsri_check_dense(const bsri_call *c, bsri_spans *set, const bsr_dense *d, int operand, uint32_t accepted,
                                   int role) {
    return bsri_check_dense_same(c, set, d, operand, accepted, role, 0);
}

/* One of a matrix's three arrays: batch strides, extent, alignment, kept for the overlap checks. */
static bsr_status bsri_check_array(const bsri_call *c, bsri_spans *set, const bsr_matrix *m, int operand, const void *data,
                                   int64_t element, const int64_t *batch_stride, int n, const int64_t *inner_size,
                                   const int64_t *inner_stride, int role, uint64_t same) {
    int64_t size[BSRI_MAX_DIMS], stride[BSRI_MAX_DIMS];
    bsri_span s;
    int i;
    for (i = 0; i < n; i++) size[i] = inner_size[i], stride[i] = inner_stride[i];
    for (i = 0; i < m->batch_dims; i++) {
        if (batch_stride[i] < 0) return bsri_fail(c, BSR_ITEM_STRIDE_NEGATIVE, operand, 2 + i, batch_stride[i]);
        size[n + i] = m->batch[i], stride[n + i] = batch_stride[i];
        /* several items may share one array that is read or, in ragged items, written in separate parts */
        if (batch_stride[i] == 0 && size[n + i] &&
            (role != BSRI_WRITE || ((m->flags & BSR_MATRIX_RAGGED) && m->crow_batch_stride[i])))
            size[n + i] = 1;
    }
    if (!bsri_span_make(&s, operand, data, element, n + m->batch_dims, size, stride))
        return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
    if (s.bytes && data) BSRI_TRY(bsri_check_pointer(c, data, element, operand));
    if (!data) return BSR_OK;
    return bsri_check_span(c, set, &s, n, role, same);
}

static bsr_status bsri_check_block(const bsri_call *c, const bsr_matrix *m, int operand) {
    if (m->block_rows < 1 || m->block_rows > (1 << 20)) return bsri_fail(c, BSR_ITEM_BLOCK_SIZE, operand, 0, m->block_rows);
    if (m->block_cols < 1 || m->block_cols > (1 << 20)) return bsri_fail(c, BSR_ITEM_BLOCK_SIZE, operand, 1, m->block_cols);
    return BSR_OK;
}
/* Sizes and types of a matrix, without its arrays. */
static bsr_status bsri_check_matrix_sizes(const bsri_call *c, const bsr_matrix *m, int operand) {
    int64_t limit, blocks;
    if (!m) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, operand, -1, 0);
    if (m->index_dtype != BSR_I32 && m->index_dtype != BSR_I64)
        return bsri_fail(c, BSR_ITEM_INDEX_DTYPE, operand, -1, m->index_dtype);
    if (m->flags & ~BSR_MATRIX_RAGGED) return bsri_fail(c, BSR_ITEM_RESERVED, operand, -1, (int64_t)m->flags);
    if (m->rows < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, operand, 0, m->rows);
    if (m->cols < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, operand, 1, m->cols);
    BSRI_TRY(bsri_check_block(c, m, operand));
    if (m->rows % m->block_rows) return bsri_fail_wanted(c, BSR_ITEM_BLOCK_DIVIDES, operand, 0, m->rows, m->block_rows);
    if (m->cols % m->block_cols) return bsri_fail_wanted(c, BSR_ITEM_BLOCK_DIVIDES, operand, 1, m->cols, m->block_cols);
    if (m->nnz < 0) return bsri_fail(c, BSR_ITEM_NNZ_NEGATIVE, operand, -1, m->nnz);
    BSRI_TRY(bsri_check_batch(c, m->batch_dims, m->batch, operand));
    limit = m->index_dtype == BSR_I32 ? INT32_MAX : INT64_MAX - 1;
    if (m->nnz > limit) return bsri_fail(c, BSR_ITEM_INDEX_RANGE, operand, -1, m->nnz);
    blocks = bsri_max(bsri_block_rows(m), bsri_block_cols(m));
    if (blocks > limit) return bsri_fail(c, BSR_ITEM_INDEX_RANGE, operand, -1, blocks);
    return BSR_OK;
}

/* Attached views: whole, but of a schedule whose header lies on a device, or is not this matrix's, what any has. */
static bsr_status bsri_check_view_spans(const bsri_call *c, bsri_spans *set, const bsr_matrix *m, int operand) {
    const int64_t *have = (const int64_t *)m->schedule;
    int known, fits;
    bsri_view v;
    if (m->transposed_index) {
        BSRI_TRY(bsri_check_pointer(c, m->transposed_index, 8, operand));
        if (!bsri_transposed_layout(m, &v)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
        if (set) BSRI_TRY(bsri_span_read(c, set, operand, m->transposed_index, v.bytes));
    }
    if (!m->schedule) return BSR_OK;
    BSRI_TRY(bsri_check_pointer(c, m->schedule, 8, operand));
    known = !bsri_on_cuda(c) && bsri_schedule_differs(m, have) < 0;
    fits = known ? bsri_schedule_layout(m, (int)have[4], have[6] != 0, &v) : bsri_schedule_least(m, &v);
    if (!fits) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
    return set ? bsri_span_read(c, set, operand, m->schedule, v.bytes) : BSR_OK;
}
/* A matrix operand without the contents of its index arrays. role: READ values and indices, WRITE values (indices are
   read), PATTERN (values untouched). */
static bsr_status bsri_check_matrix_same(const bsri_call *c, bsri_spans *set, const bsr_matrix *m, int operand, uint32_t accepted,
                                         int role, uint64_t same) {
    int64_t size[3], stride[3], element;
    int i;
    BSRI_TRY(bsri_check_matrix_sizes(c, m, operand));
    if (role != BSRI_PATTERN) BSRI_TRY(bsri_check_dtype(c, m->dtype, accepted, operand));
    for (i = 0; i < m->batch_dims && (m->flags & BSR_MATRIX_RAGGED); i++)
        if (m->batch[i] > 1 && (m->col_batch_stride[i] || (m->crow_batch_stride[i] && m->values_batch_stride[i])))
            return bsri_fail(c, BSR_ITEM_STRIDE_PATTERN, operand, i, m->col_batch_stride[i]);
    if (!m->crow_indices) return bsri_fail(c, BSR_ITEM_CROW_NULL, operand, -1, 0);
    if (!m->col_indices && m->nnz) return bsri_fail(c, BSR_ITEM_COL_NULL, operand, -1, 0);
    element = (int64_t)bsr_dtype_size(m->index_dtype), stride[0] = 1;
    size[0] = bsri_block_rows(m) + 1;
    BSRI_TRY(bsri_check_array(c, set, m, operand, m->crow_indices, element, m->crow_batch_stride, 1, size, stride, BSRI_READ, 0));
    size[0] = m->nnz;
    BSRI_TRY(bsri_check_array(c, set, m, operand, m->col_indices, element, m->col_batch_stride, 1, size, stride, BSRI_READ, 0));
    BSRI_TRY(bsri_check_view_spans(c, set, m, operand));
    if (role == BSRI_PATTERN) return BSR_OK;
    if (!m->values && m->nnz) return bsri_fail(c, BSR_ITEM_VALUES_NULL, operand, -1, 0);
    bsri_value_strides(m, stride);
    size[1] = m->block_rows, size[2] = m->block_cols;
    for (i = 0; i < 3; i++)
        if (stride[i] < 0) return bsri_fail(c, BSR_ITEM_STRIDE_NEGATIVE, operand, 6 + i, stride[i]);
    return bsri_check_array(c, set, m, operand, m->values, (int64_t)bsr_dtype_size(m->dtype), m->values_batch_stride, 3, size,
                            stride, role, same);
}
static bsr_status bsri_check_matrix(const bsri_call *c, bsri_spans *set, const bsr_matrix *m, int operand, uint32_t accepted,
                                    int role) {
    return bsri_check_matrix_same(c, set, m, operand, accepted, role, 0);
}

/* crow of one pattern: starts at `first`, never decreases, ends at nnz at most; strict: rows no longer than block_cols. */
static bsr_status bsri_check_crow(const bsri_call *c, const bsr_matrix *m, const void *crow, int64_t pattern, int64_t first,
                                  int64_t *last, int operand, int strict) {
    int64_t rows = bsri_block_rows(m), cols = bsri_block_cols(m), r, now, before = bsri_index(crow, m->index_dtype, 0);
    if (before != first) return bsri_fail(c, BSR_ITEM_CROW_FIRST, operand, pattern, before);
    for (r = 0; r < rows; r++, before = now) {
        now = bsri_index(crow, m->index_dtype, r + 1);
        if (now < before || now > m->nnz) { /* past the end counts as the last entry's fault where it is the last */
            if (now > m->nnz && r + 1 == rows) break;
            return bsri_fail(c, BSR_ITEM_CROW_DECREASES, operand, r, now < 0 ? now : now - before);
        }
        if (strict && now - before > cols) return bsri_fail(c, BSR_ITEM_CROW_LONG, operand, r, now - before);
    }
    *last = bsri_index(crow, m->index_dtype, rows);
    return BSR_OK;
}
static int bsri_indices_within(const void *index, int dtype, int64_t n, int64_t end); /* all in [0, end)? */
/* Columns of one pattern: in range; strict: ascending and distinct. */
static bsr_status bsri_check_cols(const bsri_call *c, const bsr_matrix *m, const void *crow, const void *col, int operand,
                                  int strict) {
    int64_t rows = bsri_block_rows(m), cols = bsri_block_cols(m), r, p, end, before;
    if (!strict && rows) {
        p = bsri_index(crow, m->index_dtype, 0), end = bsri_index(crow, m->index_dtype, rows);
        if (bsri_indices_within(bsri_at(col, m->index_dtype, p), m->index_dtype, end - p, cols)) return BSR_OK;
    }
    for (r = 0, p = rows ? bsri_index(crow, m->index_dtype, 0) : 0; r < rows; r++) {
        end = bsri_index(crow, m->index_dtype, r + 1);
        for (before = -1; p < end; p++) {
            int64_t at = bsri_index(col, m->index_dtype, p);
            if (at < 0 || at >= cols) return bsri_fail(c, BSR_ITEM_COL_RANGE, operand, p, at);
            if (strict && at <= before) return bsri_fail(c, BSR_ITEM_COL_ORDER, operand, p, at);
            before = at;
        }
    }
    return BSR_OK;
}
/* Looks for repeats among numbers in any order without allocating: a bitmap goes over one window of them after another. Its bits
   are the call's workspace where that holds them all, else the context's, which serve one call at a time, else few on the
   stack. Pieces of the list without a number in the window are passed over. */
#define BSRI_REPEAT_PIECES 128
typedef struct bsri_repeats {
    int64_t (*number)(const void *arg, int64_t i); /* negative: does not count */
    const void *arg;
    int64_t n, each;                                          /* numbers; of them in a piece */
    int64_t low[BSRI_REPEAT_PIECES], high[BSRI_REPEAT_PIECES]; /* of each piece */
    uint64_t *seen;
    int64_t window; /* bits of seen */
} bsri_repeats;

/* The pieces' bounds. Returns whether all numbers ascend, and none is there twice. */
static int bsri_repeats_survey(bsri_repeats *r, int64_t *first, int64_t *last) {
    int64_t i, piece, before = -1;
    int ascend = 1;
    r->each = bsri_ceil_div(r->n, BSRI_REPEAT_PIECES), *first = INT64_MAX, *last = -1;
    for (piece = 0, i = 0; piece < BSRI_REPEAT_PIECES; piece++) {
        const int64_t end = r->n - i < r->each ? r->n : i + r->each;
        int64_t low = INT64_MAX, high = -1;
        for (; i < end; i++) {
            const int64_t now = r->number(r->arg, i);
            if (now < 0) continue;
            ascend &= now > before, before = now, low = bsri_min(low, now), high = bsri_max(high, now);
        }
        r->low[piece] = low, r->high[piece] = high, *first = bsri_min(*first, low), *last = bsri_max(*last, high);
    }
    return ascend;
}
/* The first i below `end` whose number lies in the window from `start` and occurred before, or end; *next: the lowest number
   behind the window. */
static int64_t bsri_repeats_within(bsri_repeats *r, int64_t start, int64_t last, int64_t end, int64_t *next) {
    const int64_t bits = bsri_min(r->window, last - start + 1);
    int64_t i, piece;
    memset(r->seen, 0, (size_t)((bits + 63) / 64 * 8)), *next = INT64_MAX;
    for (piece = 0; piece < BSRI_REPEAT_PIECES && piece * r->each < end; piece++) {
        if (r->high[piece] < start) continue;
        if (r->low[piece] - start >= bits) {
            *next = bsri_min(*next, r->low[piece]);
            continue;
        }
        for (i = piece * r->each; i < bsri_min(end, (piece + 1) * r->each); i++) {
            const int64_t now = r->number(r->arg, i), at = now - start;
            if (now < start) continue;
            if (at >= bits) {
                *next = bsri_min(*next, now);
                continue;
            }
            if (r->seen[at / 64] >> (at % 64) & 1u) return i;
            r->seen[at / 64] |= UINT64_C(1) << (at % 64);
        }
    }
    return end;
}

/* The context's bits, or null where another call has them. */
#define BSRI_CONTEXT_BITS (INT64_C(1) << 20)
static uint64_t *bsri_bits_borrow(const bsr_context *ctx) {
#if defined(__GNUC__) || defined(__clang__)
    uint32_t *lent = &((bsr_context *)(uintptr_t)ctx)->bits_lent;
    if (ctx->bits && !__atomic_exchange_n(lent, 1, __ATOMIC_ACQUIRE)) return ctx->bits;
#else
    (void)ctx;
#endif
    return NULL;
}
static void bsri_bits_return(const bsr_context *ctx) {
#if defined(__GNUC__) || defined(__clang__)
    __atomic_store_n(&((bsr_context *)(uintptr_t)ctx)->bits_lent, 0, __ATOMIC_RELEASE);
#else
    (void)ctx;
#endif
}
/* The first i whose number occurred before, or -1: the same whatever bits there are. c null: the stack's alone. */
static int64_t bsri_find_repeat(const bsri_call *c, int64_t (*number)(const void *arg, int64_t i), const void *arg, int64_t n) {
    uint64_t own[65536 / 64], *borrowed = NULL;
    int64_t first, last, end = n, start, next;
    bsri_repeats r;
    r.number = number, r.arg = arg, r.n = n, r.seen = own, r.window = 65536;
    if (bsri_repeats_survey(&r, &first, &last)) return -1;
    if (c && last - first >= r.window && c->may_write_workspace && (uintptr_t)c->exec->workspace % 8 == 0 &&
        (uint64_t)(last - first) / 64 < c->exec->workspace_bytes / 8)
        r.seen = (uint64_t *)c->exec->workspace, r.window = last - first + 1;
    else if (c && last - first >= r.window && (borrowed = bsri_bits_borrow(c->ctx)) != NULL)
        r.seen = borrowed, r.window = BSRI_CONTEXT_BITS;
    for (start = first; start <= last; start = next) end = bsri_repeats_within(&r, start, last, end, &next);
    if (borrowed) bsri_bits_return(c->ctx);
    return end < n ? end : -1;
}

/* A transposed index: its header is the matrix's, its numbers stay inside the arrays. bsr_validate looks further. */
static bsr_status bsri_check_transposed_index(const bsri_call *c, const bsr_matrix *m, int operand) {
    const int64_t *have = (const int64_t *)m->transposed_index;
    int64_t i = bsri_transposed_differs(m, have), k, rows = bsri_block_rows(m), cols = bsri_block_cols(m), entries, before;
    bsri_view v;
    if (i >= 0) return bsri_fail(c, BSR_ITEM_VIEW_HEADER, operand, i, have[i]);
    if (!bsri_transposed_layout(m, &v)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
    for (i = 0; i < v.patterns; i++) {
        for (before = 0, k = 0; k <= cols; k++) {
            int64_t at = bsri_index((const char *)m->transposed_index + v.at[0], m->index_dtype, i * (cols + 1) + k);
            if (at < before || at > m->nnz) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, k, at);
            before = at;
        }
    }
    entries = m->flags & BSR_MATRIX_RAGGED ? (v.patterns ? m->nnz : 0) : v.patterns * m->nnz;
    if (bsri_indices_within((const char *)m->transposed_index + v.at[1], m->index_dtype, entries, rows) &&
        bsri_indices_within((const char *)m->transposed_index + v.at[2], m->index_dtype, entries, m->nnz))
        return BSR_OK;
    for (k = 0; k < entries; k++) {
        int64_t row = bsri_index((const char *)m->transposed_index + v.at[1], m->index_dtype, k);
        int64_t at = bsri_index((const char *)m->transposed_index + v.at[2], m->index_dtype, k);
        if (row < 0 || row >= rows) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, k, row);
        if (at < 0 || at >= m->nnz) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, k, at);
    }
    return BSR_OK;
}

static int64_t bsri_schedule_line(const void *arg, int64_t i) { return ((const int32_t *)arg)[i]; } /* -1: padding */
/* A schedule: header, and every line exactly once, as a line left out would be left unwritten. */
static bsr_status bsri_check_schedule(const bsri_call *c, const bsr_matrix *m, int operand) {
    const int64_t *have = (const int64_t *)m->schedule;
    int64_t i = bsri_schedule_differs(m, have), k, n, lines;
    bsri_view v;
    if (i >= 0) return bsri_fail(c, BSR_ITEM_VIEW_HEADER, operand, i, have[i]);
    if (!bsri_schedule_layout(m, (int)have[4], have[6] != 0, &v)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, operand, -1, 0);
    for (i = 0, n = v.groups * have[4]; i < v.patterns; i++) {
        const int32_t *order = (const int32_t *)(const void *)((const char *)m->schedule + v.at[0]) + i * n;
        for (lines = 0, k = 0; k < n; k++) {
            if (order[k] < -1 || order[k] >= v.lines) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, k, order[k]);
            lines += order[k] >= 0;
        }
        k = bsri_find_repeat(c, bsri_schedule_line, order, n);
        if (k >= 0) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, k, order[k]);
        if (lines != v.lines) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, operand, n, lines);
    }
    return BSR_OK;
}
static bsr_status bsri_check_views(const bsri_call *c, const bsr_matrix *m, int operand) {
    if (m->transposed_index) BSRI_TRY(bsri_check_transposed_index(c, m, operand));
    return m->schedule ? bsri_check_schedule(c, m, operand) : BSR_OK;
}
/* On CUDA: notes what kernels are to look at. Whatever is noted must live as long as the call. */
static bsr_status bsri_note(const bsri_call *c, int kind, const bsr_matrix *m, const void *other, int operand, int ascend) {
#ifdef BSRI_CUDA
    bsri_watch *w = c->watch;
    bsri_subject s;
    int i;
    if (!(c->flags & BSR_EXEC_CHECK_INDICES)) return BSR_OK;
    s.m = m, s.other = other, s.kind = kind, s.operand = operand, s.ascend = ascend;
    s.exact = c->op == BSR_OP_VALIDATE || c->op == BSR_OP_FROM_CSR;
    for (i = 0; i < w->count; i++)
        if (w->subject[i].m == m && w->subject[i].other == other && w->subject[i].operand == operand) return BSR_OK;
    BSRSPARSE_ASSERT(w->count < BSRI_SUBJECTS);
    w->subject[w->count++] = s;
#else
    (void)c, (void)kind, (void)m, (void)other, (void)operand, (void)ascend;
#endif
    return BSR_OK;
}
/* The contents of the index arrays: whatever they hold, nothing outside the arrays is read. strict: what bsr_validate wants;
   otherwise what products need. */
static bsr_status bsri_check_structure(const bsri_call *c, const bsr_matrix *m, int operand, int strict) {
    bsri_batch patterns = bsri_batch_none();
    int64_t i, last = 0;
    int d, ragged = (m->flags & BSR_MATRIX_RAGGED) != 0;
    bsr_matrix one = *m; /* the same matrix, batched over its own patterns only */
    if (bsri_on_cuda(c)) return bsri_note(c, BSRI_SUBJECT_MATRIX, m, NULL, operand, strict);
    for (d = 0; d < m->batch_dims; d++)
        if (m->batch[d] && !bsri_own_pattern(m, d)) one.batch[d] = 1;
    bsri_batch_join(&patterns, one.batch_dims, one.batch);
    for (i = 0; i < patterns.count; i++) {
        bsri_item it = bsri_matrix_item(&patterns, i, &one);
        BSRI_TRY(bsri_check_crow(c, m, it.crow, i, ragged ? last : 0, &last, operand, strict));
        if (last > m->nnz || (!ragged && last != m->nnz)) return bsri_fail(c, BSR_ITEM_CROW_LAST, operand, i, last);
        BSRI_TRY(bsri_check_cols(c, m, it.crow, it.col, operand, strict));
    }
    if (ragged && patterns.count && last != m->nnz) return bsri_fail(c, BSR_ITEM_CROW_LAST, operand, patterns.count - 1, last);
    return bsri_check_views(c, m, operand);
}

/* m must have ref's sizes. Compared before any array is read, so that a size that is off is reported, not followed. */
static bsr_status bsri_check_same_sizes(const bsri_call *c, const bsr_matrix *ref, const bsr_matrix *m, int operand) {
    if (m->rows != ref->rows) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, operand, -1, m->rows, ref->rows);
    if (m->cols != ref->cols) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, operand, -1, m->cols, ref->cols);
    if (m->block_rows != ref->block_rows)
        return bsri_fail_wanted(c, BSR_ITEM_BLOCK_MISMATCH, operand, 0, m->block_rows, ref->block_rows);
    if (m->block_cols != ref->block_cols)
        return bsri_fail_wanted(c, BSR_ITEM_BLOCK_MISMATCH, operand, 1, m->block_cols, ref->block_cols);
    if (m->nnz != ref->nnz) return bsri_fail_wanted(c, BSR_ITEM_NNZ_MISMATCH, operand, -1, m->nnz, ref->nnz);
    if ((m->flags ^ ref->flags) & BSR_MATRIX_RAGGED) return bsri_fail(c, BSR_ITEM_FLAGS_CONFLICT, operand, -1, (int64_t)m->flags);
    return BSR_OK;
}
/* Dimension `bad` of an operand did not join b, which it met with another size, or as one item too many to count. */
static bsr_status bsri_fail_batch(const bsri_call *c, const bsri_batch *b, int bad, int32_t dims, const int64_t *size,
                                  int operand) {
    const int64_t met = b->size[b->dims - dims + bad];
    return bsri_fail_wanted(c, BSR_ITEM_BATCH_SIZE, operand, bad, size[bad], met == size[bad] ? 1 : met);
}
/* m must have ref's sizes, and its pattern entry by entry. Arrays that both share are not compared. Reads
   the arrays by position only, so the contents need not have been checked. */
BSRI_UNUSED static bsr_status bsri_check_same_pattern(const bsri_call *c, const bsr_matrix *ref, const bsr_matrix *m,
                                                      int operand) {
    bsri_batch batch = bsri_batch_none();
    int64_t i, k, rows = bsri_block_rows(ref) + 1;
    int d;
    BSRI_TRY(bsri_check_same_sizes(c, ref, m, operand));
    if (bsri_batch_join(&batch, ref->batch_dims, ref->batch) >= 0) return BSR_OK; /* reported by the batch checks */
    i = bsri_batch_join(&batch, m->batch_dims, m->batch);
    if (i >= 0) return bsri_fail_batch(c, &batch, (int)i, m->batch_dims, m->batch, operand);
    if (bsri_on_cuda(c)) return bsri_note(c, BSRI_SUBJECT_PAIR, ref, m, operand, 0);
    for (d = 0; d < batch.dims; d++) { /* one item of each dimension in which neither has patterns of its own */
        const int x = d + ref->batch_dims - batch.dims, y = d + m->batch_dims - batch.dims;
        if (batch.size[d] > 1 && !(x >= 0 && bsri_own_pattern(ref, x)) && !(y >= 0 && bsri_own_pattern(m, y))) batch.size[d] = 1;
    }
    batch = bsri_batch_of(batch.dims, batch.size);
    for (i = 0; i < batch.count; i++) {
        const int shared = ref->index_dtype == m->index_dtype; /* one array read as two types is two patterns */
        bsri_item a = bsri_matrix_item(&batch, i, ref), b = bsri_matrix_item(&batch, i, m);
        for (k = 0; k < rows && !(shared && a.crow == b.crow); k++)
            if (bsri_index(a.crow, ref->index_dtype, k) != bsri_index(b.crow, m->index_dtype, k))
                return bsri_fail(c, BSR_ITEM_PATTERN_MISMATCH, operand, k, bsri_index(b.crow, m->index_dtype, k));
        for (k = 0; k < ref->nnz && !(shared && a.col == b.col); k++)
            if (bsri_index(a.col, ref->index_dtype, k) != bsri_index(b.col, m->index_dtype, k))
                return bsri_fail(c, BSR_ITEM_PATTERN_MISMATCH, operand, k, bsri_index(b.col, m->index_dtype, k));
    }
    return BSR_OK;
}

/* Joins an operand's batch into b. */
static bsr_status bsri_join(const bsri_call *c, bsri_batch *b, int32_t dims, const int64_t *size, int operand) {
    const int bad = bsri_batch_join(b, dims, size);
    return bad < 0 ? BSR_OK : bsri_fail_batch(c, b, bad, dims, size, operand);
}
/* An output's batch must be exactly b (absent leading dimensions count as 1). */
static bsr_status bsri_check_batch_out(const bsri_call *c, const bsri_batch *b, int32_t dims, const int64_t *size, int operand) {
    int i, n = dims > b->dims ? dims : b->dims;
    for (i = 1; i <= n; i++) {
        int64_t have = i <= dims ? size[dims - i] : 1, want = i <= b->dims ? b->size[b->dims - i] : 1;
        if (have == want) continue;
        return i > dims ? bsri_fail_wanted(c, BSR_ITEM_BATCH_DIMS, operand, -1, dims, b->dims)
                        : bsri_fail_wanted(c, BSR_ITEM_BATCH_SIZE, operand, dims - i, have, want);
    }
    return BSR_OK;
}
static int64_t bsri_reduce_count(const bsri_batch *whole, const bsri_batch *out);
/* A gradient's output: its items are sums over those of b, each of which is gone through, also where nothing is stored for it. */
static bsr_status bsri_check_batch_sum(const bsri_call *c, const bsri_batch *b, int32_t dims, const int64_t *size, int operand) {
    const bsri_batch out = bsri_batch_of(dims, size);
    const int64_t n = bsri_reduce_count(b, &out);
    return n > INT32_MAX ? bsri_fail(c, BSR_ITEM_BATCH_SUM, operand, -1, n) : BSR_OK;
}
/* An operand that must broadcast to b without making it larger. */
static bsr_status bsri_check_batch_fits(const bsri_call *c, const bsri_batch *b, int32_t dims, const int64_t *size, int operand) {
    int i;
    for (i = 1; i <= dims; i++) {
        int64_t have = size[dims - i];
        if (i > b->dims) {
            if (have != 1) return bsri_fail_wanted(c, BSR_ITEM_BATCH_EXTRA, operand, dims - i, have, 1);
        } else if (have != 1 && have != b->size[b->dims - i]) {
            return bsri_fail_wanted(c, BSR_ITEM_BATCH_SIZE, operand, dims - i, have, b->size[b->dims - i]);
        }
    }
    return BSR_OK;
}

/* A dense operand that repeats over rows x cols: its sizes are those or 1. */
BSRI_UNUSED static bsr_status bsri_check_repeated(const bsri_call *c, bsri_spans *set, const bsr_dense *d, int id,
                                                  uint32_t accepted, int64_t rows, int64_t cols, const bsri_batch *batch) {
    BSRI_TRY(bsri_check_dense(c, set, d, id, accepted, BSRI_READ));
    if (d->rows != rows && d->rows != 1) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, id, -1, d->rows, rows);
    if (d->cols != cols && d->cols != 1) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, id, -1, d->cols, cols);
    return bsri_check_batch_fits(c, batch, d->batch_dims, d->batch, id);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>plans: what will run, queries, workspace, scratch                                            */
/* ---------------------------------------------------------------------------------------------- */

/* CPU: may a plan ask for this instruction set? Whoever has one has the narrower ones. */
static int bsri_isa_runs(const bsr_context *ctx, int isa) { return isa >= BSR_ISA_PORTABLE && isa <= ctx->widest; }

static bsr_plan bsri_plan_default(const bsri_call *c) {
    bsr_plan p;
    if (c->exec->query && c->exec->key) memset(c->exec->key, 0, sizeof *c->exec->key); /* it has none until one is found */
    memset(&p, 0, sizeof p);
    p.op = c->op, p.backend = c->ctx->backend, p.source = BSR_PLAN_HEURISTIC, p.kernel = bsri_on_cuda(c) ? 1 : c->ctx->isa;
    p.tile_rows = p.tile_cols = 1, p.split = 1, p.stages = 1;
    return p;
}
/* A field of the caller's plan: open, or what p has; otherwise refused. */
static bsr_status bsri_plan_field(const bsri_call *c, int field, int64_t asked, int64_t have) {
    if (asked && asked != have) return bsri_fail(c, BSR_ITEM_PLAN_FIELD, BSR_ARG_EXEC, field, asked);
    return BSR_OK;
}
/* Is the caller's plan one for this operation and backend at all? */
static bsr_status bsri_plan_begin(const bsri_call *c) {
    const bsr_plan *asked = c->exec->plan;
    if (asked && asked->op && asked->op != c->op)
        return bsri_fail_wanted(c, BSR_ITEM_PLAN_OP, BSR_ARG_EXEC, -1, asked->op, c->op);
    return asked ? bsri_plan_field(c, 1, asked->backend, c->ctx->backend) : BSR_OK;
}
/* Does a plan leave everything to choose open? */
static int bsri_plan_open(const bsr_plan *p) {
    return !p->kernel && !p->tile_rows && !p->tile_cols && !p->split && !p->stages && !p->order;
}
/* Kernels that look at index arrays: are they to run, for this call and not for an earlier step of it? */
BSRI_UNUSED static int bsri_indices_asked(const bsri_call *c) {
#ifdef BSRI_CUDA
    return bsri_on_cuda(c) && (c->flags & BSR_EXEC_CHECK_INDICES) && !c->watch->done;
#else
    return (void)c, 0;
#endif
}
/* The workspace that they want; what comes after them may have all of it. */
static bsr_status bsri_indices_plan(const bsri_call *c, bsr_plan *p) {
#ifdef BSRI_CUDA
    int64_t bytes = 0;
    if (!bsri_indices_asked(c)) return BSR_OK;
    BSRI_TRY(bsri_cuda_indices_bytes(c, &bytes));
    if ((uint64_t)bytes > p->workspace_bytes) p->workspace_bytes = (uint64_t)bytes;
#else
    (void)c, (void)p;
#endif
    return BSR_OK;
}
/* Holds what will run, *p, against the caller's partial plan, checks the workspace, answers a query. *stop: a query, nothing is
   to run. What the caller asks is taken into account where *p is chosen: here anything that differs is refused. */
static bsr_status bsri_plan_settle(const bsri_call *c, bsr_plan *p, int *stop) {
    const bsr_plan *asked = c->exec->plan;
    *stop = 0;
    BSRI_TRY(bsri_plan_begin(c));
    if (asked) {
        if (asked->kernel && !bsri_on_cuda(c) && bsri_isa_runs(c->ctx, asked->kernel)) p->kernel = asked->kernel;
        BSRI_TRY(bsri_plan_field(c, 3, asked->kernel, p->kernel));
        BSRI_TRY(bsri_plan_field(c, 4, asked->tile_rows, p->tile_rows));
        BSRI_TRY(bsri_plan_field(c, 5, asked->tile_cols, p->tile_cols));
        BSRI_TRY(bsri_plan_field(c, 6, asked->split, p->split));
        BSRI_TRY(bsri_plan_field(c, 7, asked->stages, p->stages));
        BSRI_TRY(bsri_plan_field(c, 8, asked->order, p->order));
        BSRI_TRY(bsri_plan_field(c, 9, (int64_t)asked->flags, (int64_t)p->flags));
        if (!bsri_plan_open(asked)) p->source = BSR_PLAN_CALLER;
    }
    BSRI_TRY(bsri_indices_plan(c, p));
    if (c->exec->query) {
        *c->exec->query = *p;
        *stop = 1;
        return BSR_OK;
    }
    if (p->workspace_bytes &&
        (!c->exec->workspace || c->exec->workspace_bytes < p->workspace_bytes || (uintptr_t)c->exec->workspace % 64))
        return bsri_fail(c, BSR_ITEM_WORKSPACE, BSR_ARG_EXEC, -1, (int64_t)p->workspace_bytes);
    if (p->workspace_bytes) BSRI_TRY(bsri_check_memory(c, c->exec->workspace, BSR_ARG_EXEC));
    if (c->flags & BSR_EXEC_CHECK_INDICES) {
        const uintptr_t word = (uintptr_t)c->exec->device_status, from = (uintptr_t)c->exec->workspace;
        if (from && word + 8 > from && word - from < c->exec->workspace_bytes)
            return bsri_fail(c, BSR_ITEM_OVERLAP, BSR_ARG_EXEC, -1, BSR_ARG_EXEC);
        BSRI_TRY(bsri_check_memory(c, c->exec->device_status, BSR_ARG_EXEC));
    }
    bsri_host_word(c, 0);
#ifdef BSRI_CUDA
    if (bsri_on_cuda(c)) BSRI_TRY(bsri_cuda_device(c));
    if (bsri_indices_asked(c)) return bsri_cuda_indices(c);
#endif
    return BSR_OK;
}
/* beta's and alpha's class in tuned tables. */
BSRI_UNUSED static int bsri_scalar_class(double x, const double *ptr) { return ptr ? 2 : x == 0 ? 0 : x == 1 ? 1 : 2; }
/* The key of a call in tuned tables, its classes left at 0; op 0: it has none. The sparse operand is s. */
BSRI_UNUSED static bsr_tune_row bsri_tune_key(int op, int dtype, int out_dtype, const bsr_matrix *s, int64_t m, int64_t k,
                                              int64_t n) {
    const double blocks = (double)s->rows / (double)s->block_rows * ((double)s->cols / (double)s->block_cols);
    double items = 1;
    bsr_tune_row r;
    int i;
    memset(&r, 0, sizeof r);
    if (m > INT32_MAX || k > INT32_MAX || n > INT32_MAX) return r;
    for (i = 0; i < s->batch_dims && (s->flags & BSR_MATRIX_RAGGED); i++)
        items *= s->crow_batch_stride[i] ? (double)s->batch[i] : 1.0;
    r.op = op, r.dtype = dtype, r.out_dtype = out_dtype, r.block_rows = (int32_t)s->block_rows;
    r.block_cols = (int32_t)s->block_cols, r.m = (int32_t)m, r.k = (int32_t)k, r.n = (int32_t)n;
    items *= blocks; /* more are stored than there are where some are for a second time */
    r.density = items <= 0 ? 0 : (double)s->nnz >= items ? 100 : (int32_t)(100.0 * (double)s->nnz / items + 0.5);
    return r;
}
/* The row for a call, if a table has one: the caller's table, then the built-in one. Writes the key where it is asked for. */
static int bsri_tune_row_for(const bsri_call *c, const bsr_tune_row *key, bsr_tune_row *row);
/* The CPU's plan: all there is to tune is the instruction set. */
static void bsri_tune_cpu(const bsri_call *c, const bsr_tune_row *key, bsr_plan *plan) {
    bsr_tune_row row;
    const int match = bsri_tune_row_for(c, key, &row);
    if (!match || (c->exec->plan && !bsri_plan_open(c->exec->plan)) || !bsri_isa_runs(c->ctx, row.kernel)) return;
    plan->kernel = row.kernel, plan->source = BSR_PLAN_TABLE, plan->match = match;
}
/* The type that sums are formed in, for operands of this dtype. */
static int bsri_compute_dtype(const bsri_call *c, int dtype) {
    const int sums = bsri_sums_dtype(dtype);
    return sums == BSR_F32 && (c->flags & BSR_EXEC_ACCUMULATE_F64) ? BSR_F64 : sums;
}
/* One plan for two products of one call: fields in which they differ stay open. */
static bsr_plan bsri_plan_both(const bsr_plan *a, const bsr_plan *b) {
    bsr_plan p = *a;
    p.kernel = a->kernel == b->kernel ? a->kernel : 0;
    p.tile_rows = a->tile_rows == b->tile_rows ? a->tile_rows : 0, p.tile_cols = a->tile_cols == b->tile_cols ? a->tile_cols : 0;
    p.split = a->split == b->split ? a->split : 0, p.stages = a->stages == b->stages ? a->stages : 0;
    p.order = a->order == b->order ? a->order : 0, p.flags = a->flags | b->flags;
    p.instance = a->instance == b->instance ? a->instance : 0, p.reason = a->reason == b->reason ? a->reason : 0;
    p.refused = a->refused == b->refused ? a->refused : 0, p.source = a->source == b->source ? a->source : BSR_PLAN_HEURISTIC;
    if (b->workspace_bytes > p.workspace_bytes) p.workspace_bytes = b->workspace_bytes;
    return p;
}
/* For operations with nothing to choose. */
BSRI_UNUSED static bsr_status bsri_plan_simple(const bsri_call *c, int *stop) {
    bsr_plan p = bsri_plan_default(c);
    return bsri_plan_settle(c, &p, stop);
}

static const bsri_name bsri_why_names[] = {
#define BSRI_X(name, value, text) {value, #name, text},
    BSR_WHY_LIST(BSRI_X)
#undef BSRI_X
};
static const char *bsri_why_text(int why) { return bsri_lookup(bsri_why_names, BSRI_COUNT(bsri_why_names), why, 1, "?"); }
static const char *bsri_tier_name(int tier) {
    static const char *const names[] = {"several kernels", "simt", "mma", "wgmma"};
    return names[tier >= 1 && tier <= 3 ? tier : 0];
}

BSR_API int bsr_plan_string(const bsr_plan *plan, char *text, size_t size) {
    static const char *const isa[] = {"?", "portable C", "AVX2", "AVX-512"};
    bsri_text t;
    t.data = text, t.size = text ? size : 0, t.length = 0;
    bsri_put(&t, "");
    if (!plan) return 0;
    bsri_put(&t, bsr_op_name(plan->op));
    bsri_put(&t, plan->backend == BSR_BACKEND_CUDA ? " on cuda, " : " on cpu, ");
    if (plan->backend == BSR_BACKEND_CUDA) bsri_put(&t, bsri_tier_name(plan->kernel));
    else bsri_put(&t, isa[plan->kernel >= 1 && plan->kernel <= 3 ? plan->kernel : 0]);
    if (plan->instance) bsri_put(&t, " kernel "), bsri_put_int(&t, plan->instance);
    bsri_put(&t, ", tile "), bsri_put_int(&t, plan->tile_rows), bsri_put(&t, " x "), bsri_put_int(&t, plan->tile_cols);
    if (plan->split > 1) bsri_put(&t, ", split "), bsri_put_int(&t, plan->split);
    if (plan->stages > 1) bsri_put(&t, ", stages "), bsri_put_int(&t, plan->stages);
    if (plan->order) bsri_put(&t, ", order "), bsri_put_int(&t, plan->order);
    if (plan->reason) bsri_put(&t, ": "), bsri_put(&t, bsri_why_text(plan->reason));
    if (plan->refused) {
        bsri_put(&t, "; not "), bsri_put(&t, bsri_tier_name(plan->kernel < 3 ? plan->kernel + 1 : 0)), bsri_put(&t, ": ");
        bsri_put(&t, bsri_why_text(plan->refused));
    }
    if (plan->flags & BSR_PLAN_SLOW_TRANSPOSE)
        bsri_put(&t, ", slow: no transposed index, blocks are added to sums all over the result");
    if (plan->flags & BSR_PLAN_USES_SCHEDULE) bsri_put(&t, ", rows in the schedule's order");
    if (plan->flags & BSR_PLAN_PACKS_B) bsri_put(&t, ", dense tiles are packed first");
    if (plan->flags & BSR_PLAN_BUILDS_INDEX) bsri_put(&t, ", the transposed index is built first");
    if (plan->flags & BSR_PLAN_STAGES_DENSE) bsri_put(&t, ", dense operands are staged for aligned pieces of 16 bytes");
    if (plan->flags & BSR_PLAN_TURNS_DENSE) bsri_put(&t, ", the dense operand is staged along the products");
    if (plan->flags & BSR_PLAN_MERGES_BATCH) bsri_put(&t, ", items are staged beside each other");
    if (plan->flags & BSR_PLAN_STAGES_OUT) bsri_put(&t, ", out is staged");
    if (plan->flags & BSR_PLAN_CUTS_ROWS) bsri_put(&t, ", long rows are cut");
    if (plan->workspace_bytes) bsri_put(&t, ", workspace "), bsri_put_int(&t, (int64_t)plan->workspace_bytes);
    if (plan->source == BSR_PLAN_TABLE) bsri_put(&t, " (tuned table)");
    else bsri_put(&t, plan->source == BSR_PLAN_CALLER ? " (caller)" : " (heuristic)");
    return (int)t.length;
}

/* Scratch of a conversion on the CPU: the call's workspace where it is large enough, else the context's allocator. */
typedef struct bsri_scratch {
    void *data;
    int owned;
} bsri_scratch;
BSRI_UNUSED static bsr_status bsri_scratch_get(const bsri_call *c, int64_t bytes, bsri_scratch *s) {
    s->data = c->exec->workspace, s->owned = 0;
    if (bytes <= 0 || (s->data && (uint64_t)bytes <= c->exec->workspace_bytes && (uintptr_t)s->data % 64 == 0)) return BSR_OK;
    s->data = (uint64_t)bytes <= SIZE_MAX ? bsri_alloc(c->ctx, (size_t)bytes) : NULL;
    s->owned = 1;
    if (!s->data) return bsri_fail(c, BSR_ITEM_NO_MEMORY, BSR_ARG_NONE, -1, bytes);
    return BSR_OK;
}
BSRI_UNUSED static void bsri_scratch_end(const bsri_call *c, bsri_scratch *s) {
    if (s->owned) bsri_free(c->ctx, s->data);
    s->data = NULL, s->owned = 0;
}

/* What BSRSPARSE_NO_x and BSRSPARSE_ONLY_x leave in. A left-out operation fails before anything else, so that its code is
   unreachable and the compiler drops it. */
#if defined(BSRSPARSE_ONLY_PRODUCT) || defined(BSRSPARSE_ONLY_SAMPLED) || defined(BSRSPARSE_ONLY_ROWS) || \
    defined(BSRSPARSE_ONLY_ATTENTION)
#ifndef BSRSPARSE_ONLY_PRODUCT
#define BSRSPARSE_NO_PRODUCT
#endif
#ifndef BSRSPARSE_ONLY_SAMPLED
#define BSRSPARSE_NO_SAMPLED
#endif
#ifndef BSRSPARSE_ONLY_ROWS
#define BSRSPARSE_NO_ROWS
#endif
#ifndef BSRSPARSE_ONLY_ATTENTION
#define BSRSPARSE_NO_ATTENTION
#endif
#endif
#ifdef BSRSPARSE_NO_PRODUCT
#define BSRI_HAS_PRODUCT 0
#else
#define BSRI_HAS_PRODUCT 1
#endif
#ifdef BSRSPARSE_NO_SAMPLED
#define BSRI_HAS_SAMPLED 0
#else
#define BSRI_HAS_SAMPLED 1
#endif
#ifdef BSRSPARSE_NO_ROWS
#define BSRI_HAS_ROWS 0
#else
#define BSRI_HAS_ROWS 1
#endif
#ifdef BSRSPARSE_NO_ATTENTION
#define BSRI_HAS_ATTENTION 0
#else
#define BSRI_HAS_ATTENTION 1
#endif
#if defined(BSRSPARSE_ONLY_F16) || defined(BSRSPARSE_ONLY_BF16) || defined(BSRSPARSE_ONLY_F32) || defined(BSRSPARSE_ONLY_F64) || \
    defined(BSRSPARSE_ONLY_I8)
#ifndef BSRSPARSE_ONLY_F16
#define BSRSPARSE_NO_F16
#endif
#ifndef BSRSPARSE_ONLY_BF16
#define BSRSPARSE_NO_BF16
#endif
#ifndef BSRSPARSE_ONLY_F32
#define BSRSPARSE_NO_F32
#endif
#ifndef BSRSPARSE_ONLY_F64
#define BSRSPARSE_NO_F64
#endif
#ifndef BSRSPARSE_ONLY_I8
#define BSRSPARSE_NO_I8
#endif
#endif
#ifdef BSRSPARSE_NO_F16
#define BSRI_HAS_F16 0
#else
#define BSRI_HAS_F16 1
#endif
#ifdef BSRSPARSE_NO_BF16
#define BSRI_HAS_BF16 0
#else
#define BSRI_HAS_BF16 1
#endif
#ifdef BSRSPARSE_NO_F32
#define BSRI_HAS_F32 0
#else
#define BSRI_HAS_F32 1
#endif
#ifdef BSRSPARSE_NO_F64
#define BSRI_HAS_F64 0
#else
#define BSRI_HAS_F64 1
#endif
#ifdef BSRSPARSE_NO_I8
#define BSRI_HAS_I8 0
#else
#define BSRI_HAS_I8 1
#endif
#if BSRI_HAS_F16 || BSRI_HAS_BF16 || BSRI_HAS_F32
#define BSRI_HAS_SUMS_F32 1
#else
#define BSRI_HAS_SUMS_F32 0
#endif
/* Operand dtypes that the operations take: the ones left in. */
#define BSRI_X(dtype, ...) | BSRI_HAS_##dtype * BSRI_BIT(BSR_##dtype)
static const uint32_t bsri_compiled_dtypes = 0u BSRI_TYPES(BSRI_X);
#undef BSRI_X
/* dtype: of the operands, 0 where unknown. */
static bsr_status bsri_check_compiled(const bsri_call *c, int has_operation, int dtype) {
    if (!has_operation) return bsri_fail(c, BSR_ITEM_NOT_COMPILED, BSR_ARG_NONE, -1, c->op);
    if (bsri_is_one_of(BSRI_OPERANDS & ~bsri_compiled_dtypes, dtype))
        return bsri_fail(c, BSR_ITEM_DTYPE_NOT_COMPILED, BSR_ARG_NONE, -1, dtype);
    if (!BSRI_HAS_F64 && bsri_on_cuda(c) && (c->flags & BSR_EXEC_ACCUMULATE_F64)) /* the kernels for f64 form these sums */
        return bsri_fail(c, BSR_ITEM_DTYPE_NOT_COMPILED, BSR_ARG_EXEC, -1, BSR_F64);
    return BSR_OK;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>vectors: rows of numbers on the chosen instruction set                                       */
/* ---------------------------------------------------------------------------------------------- */

/* `compute` is the type that sums are formed in: BSR_F32, BSR_F64 or BSR_I32. */
static int bsri_isa_detect(void); /* the widest instruction set that build and machine have; at least BSR_ISA_PORTABLE */

/* n elements of dtype, `stride` elements apart, to a contiguous row of `compute`, and back (rounded to nearest even;
   i32 wraps when stored as i8 or i32). BSR_BOOL loads as 0 or 1. Floats may go to and from any float compute type. */
static void bsri_row_load(int isa, int compute, void *dst, const void *src, int dtype, int64_t stride, int64_t n);
static void bsri_row_store(int isa, int compute, void *dst, int dtype, int64_t stride, const void *src, int64_t n);

/* Rows of f32 or f64 (compute); the order of sums depends on n alone, for one isa. */
static double bsri_row_max(int isa, int compute, const void *x, int64_t n);             /* -inf for n = 0; NaN if any is */
static double bsri_row_exp_sum(int isa, int compute, void *x, int64_t n, double sub);   /* x = exp(x - sub); returns the sum */
static double bsri_row_dot(int isa, int compute, const void *x, const void *y, int64_t n);
static void bsri_row_scale(int isa, int compute, void *x, int64_t n, double factor);    /* x *= factor */

/* Copies a rows x cols piece with any strides and dtype to row-major `compute`, leading dimension ld, ld >= cols rounded up to
   BSRI_LANES_MAX; the columns between cols and that are set to zero. Transposing (row_stride 1) is a fast path. */
#define BSRI_LANES_MAX 16
static void bsri_tile_pack(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t rows, int64_t cols,
                           int64_t row_stride, int64_t col_stride);

/* c += a b (add != 0), or c = a b (add == 0): a m x k (strides am, ak), b k x n with contiguous rows (ldb), all of type
   `compute`. c is row-major, ldc >= n rounded up to BSRI_LANES_MAX: columns past n, up to that, are written too (best with
   64-byte aligned rows). b is read in its n columns only. */
static void bsri_tile_mm(int isa, int compute, int64_t m, int64_t n, int64_t k, const void *a, int64_t am, int64_t ak,
                         const void *b, int64_t ldb, void *c, int64_t ldc, int add);

#if defined(__GNUC__) && defined(__x86_64__) && !defined(BSRSPARSE_NO_SIMD) && !defined(_WIN32)
#define BSRI_X86 1
#ifdef __cplusplus
}
#endif
#include <cpuid.h>
#if !defined(__clang__) /* gcc's own headers use undefined vectors, which it takes amiss when it compiles C++ */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#ifdef __cplusplus
extern "C" {
#endif
#else
#define BSRI_X86 0
#endif

/* Vector sets. A set v<isa><type> (isa 0 portable, 2 AVX2, 5 AVX-512; type f f32, d f64, i i32 modulo 2^32) is these macros;
   the templates below are written once and made for every set:
   A_ function attribute, T_ element, V_ vector, W_ broadcast value, M_ mask, L_ lanes, NV_ widest kernel in vectors,
   LOAD, STORE, LOADM (the lanes of a mask, zeros elsewhere), MASK(first lanes), SET1, FMA (a may be a broadcast), MUL. */
#define BSRI_T_v0f float
#define BSRI_T_v0d double
#define BSRI_T_v0i uint32_t
#define BSRI_A_v0
/* 16-byte vectors, which gcc and clang map to what the target has; only where a float stays one (0; 16: _Float16 does, too): with
   excess precision (x87, s390x by the letter of C99) scalars are wider than the lanes that they meet */
#if defined(__GNUC__) && (!defined(__FLT_EVAL_METHOD__) || __FLT_EVAL_METHOD__ == 0 || __FLT_EVAL_METHOD__ == 16)
typedef float bsri_v0f __attribute__((vector_size(16)));
typedef double bsri_v0d __attribute__((vector_size(16)));
typedef uint32_t bsri_v0i __attribute__((vector_size(16)));
typedef float bsri_u0f __attribute__((vector_size(16), aligned(4), may_alias));
typedef double bsri_u0d __attribute__((vector_size(16), aligned(8), may_alias));
typedef uint32_t bsri_u0i __attribute__((vector_size(16), aligned(4), may_alias));
#define BSRI_L_v0f 4
#define BSRI_L_v0d 2
#define BSRI_L_v0i 4
#else
#if defined(__GNUC__)
#define BSRI_ALIAS __attribute__((may_alias))
#else
#define BSRI_ALIAS
#endif
typedef float bsri_v0f;
typedef double bsri_v0d;
typedef uint32_t bsri_v0i;
typedef float BSRI_ALIAS bsri_u0f;
typedef double BSRI_ALIAS bsri_u0d;
typedef uint32_t BSRI_ALIAS bsri_u0i;
#define BSRI_L_v0f 1
#define BSRI_L_v0d 1
#define BSRI_L_v0i 1
#endif
#define BSRI_V0_LOADM(V, U, dst, p, m, lanes)                                            \
    do {                                                                                 \
        int lane_;                                                                       \
        memset(&(dst), 0, sizeof(dst));                                                  \
        if ((m) == (lanes)) dst = *(const U *)(const void *)(p);                         \
        else                                                                             \
            for (lane_ = 0; lane_ < (m) && lane_ < (lanes); lane_++)                     \
                memcpy((char *)&(dst) + lane_ * (int)(sizeof(V) / (lanes)), (p) + lane_, sizeof(V) / (lanes)); \
    } while (0)
#define BSRI_V_v0f bsri_v0f
#define BSRI_V_v0d bsri_v0d
#define BSRI_V_v0i bsri_v0i
#define BSRI_W_v0f float
#define BSRI_W_v0d double
#define BSRI_W_v0i uint32_t
#define BSRI_M_v0f int
#define BSRI_M_v0d int
#define BSRI_M_v0i int
#define BSRI_LOAD_v0f(p) (*(const bsri_u0f *)(const void *)(p))
#define BSRI_LOAD_v0d(p) (*(const bsri_u0d *)(const void *)(p))
#define BSRI_LOAD_v0i(p) (*(const bsri_u0i *)(const void *)(p))
#define BSRI_STORE_v0f(p, v) (void)(*(bsri_u0f *)(void *)(p) = (v))
#define BSRI_STORE_v0d(p, v) (void)(*(bsri_u0d *)(void *)(p) = (v))
#define BSRI_STORE_v0i(p, v) (void)(*(bsri_u0i *)(void *)(p) = (v))
#define BSRI_MASK_v0f(n) (n)
#define BSRI_MASK_v0d(n) (n)
#define BSRI_MASK_v0i(n) (n)
#define BSRI_LOADM_v0f(dst, p, m) BSRI_V0_LOADM(bsri_v0f, bsri_u0f, dst, p, m, BSRI_L_v0f)
#define BSRI_LOADM_v0d(dst, p, m) BSRI_V0_LOADM(bsri_v0d, bsri_u0d, dst, p, m, BSRI_L_v0d)
#define BSRI_LOADM_v0i(dst, p, m) BSRI_V0_LOADM(bsri_v0i, bsri_u0i, dst, p, m, BSRI_L_v0i)
#define BSRI_SET1_v0f(x) (x)
#define BSRI_SET1_v0d(x) (x)
#define BSRI_SET1_v0i(x) (x)
#define BSRI_FMA_v0(a, b, c) ((c) + (b) * (a))
#define BSRI_FMA_v0f BSRI_FMA_v0
#define BSRI_FMA_v0d BSRI_FMA_v0
#define BSRI_FMA_v0i BSRI_FMA_v0
#define BSRI_MUL_v0f(a, b) ((b) * (a))
#define BSRI_MUL_v0d BSRI_MUL_v0f
#define BSRI_MUL_v0i BSRI_MUL_v0f
#if BSRI_X86
#define BSRI_A_v2 __attribute__((target("avx2,fma,f16c")))
#define BSRI_A_v5 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define BSRI_T_v2f float
#define BSRI_T_v2d double
#define BSRI_T_v2i uint32_t
#define BSRI_L_v2f 8
#define BSRI_L_v2d 4
#define BSRI_L_v2i 8
#define BSRI_V_v2f __m256
#define BSRI_V_v2d __m256d
#define BSRI_V_v2i __m256i
#define BSRI_W_v2f __m256
#define BSRI_W_v2d __m256d
#define BSRI_W_v2i __m256i
#define BSRI_M_v2f __m256i
#define BSRI_M_v2d __m256i
#define BSRI_M_v2i __m256i
#define BSRI_LOAD_v2f(p) (*(const __m256_u *)(const void *)(p))
#define BSRI_LOAD_v2d(p) (*(const __m256d_u *)(const void *)(p))
#define BSRI_LOAD_v2i(p) (*(const __m256i_u *)(const void *)(p))
#define BSRI_STORE_v2f(p, v) (void)(*(__m256_u *)(void *)(p) = (v))
#define BSRI_STORE_v2d(p, v) (void)(*(__m256d_u *)(void *)(p) = (v))
#define BSRI_STORE_v2i(p, v) (void)(*(__m256i_u *)(void *)(p) = (v))
#define BSRI_MASK_v2f(n) _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define BSRI_MASK_v2d(n) _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3))
#define BSRI_MASK_v2i(n) BSRI_MASK_v2f(n)
#define BSRI_LOADM_v2f(dst, p, m) dst = _mm256_maskload_ps(p, m)
#define BSRI_LOADM_v2d(dst, p, m) dst = _mm256_maskload_pd(p, m)
#define BSRI_LOADM_v2i(dst, p, m) dst = _mm256_maskload_epi32((const int *)(const void *)(p), m)
#define BSRI_SET1_v2f(x) _mm256_set1_ps(x)
#define BSRI_SET1_v2d(x) _mm256_set1_pd(x)
#define BSRI_SET1_v2i(x) _mm256_set1_epi32((int)(x))
#define BSRI_FMA_v2f(a, b, c) _mm256_fmadd_ps(a, b, c)
#define BSRI_FMA_v2d(a, b, c) _mm256_fmadd_pd(a, b, c)
#define BSRI_FMA_v2i(a, b, c) _mm256_add_epi32(c, _mm256_mullo_epi32(a, b))
#define BSRI_MUL_v2f(a, b) _mm256_mul_ps(a, b)
#define BSRI_MUL_v2d(a, b) _mm256_mul_pd(a, b)
#define BSRI_MUL_v2i(a, b) _mm256_mullo_epi32(a, b)
#define BSRI_T_v5f float
#define BSRI_T_v5d double
#define BSRI_T_v5i uint32_t
#define BSRI_L_v5f 16
#define BSRI_L_v5d 8
#define BSRI_L_v5i 16
#define BSRI_V_v5f __m512
#define BSRI_V_v5d __m512d
#define BSRI_V_v5i __m512i
#define BSRI_W_v5f __m512
#define BSRI_W_v5d __m512d
#define BSRI_W_v5i __m512i
#define BSRI_M_v5f __mmask16
#define BSRI_M_v5d __mmask8
#define BSRI_M_v5i __mmask16
#define BSRI_LOAD_v5f(p) (*(const __m512_u *)(const void *)(p))
#define BSRI_LOAD_v5d(p) (*(const __m512d_u *)(const void *)(p))
#define BSRI_LOAD_v5i(p) (*(const __m512i_u *)(const void *)(p))
#define BSRI_STORE_v5f(p, v) (void)(*(__m512_u *)(void *)(p) = (v))
#define BSRI_STORE_v5d(p, v) (void)(*(__m512d_u *)(void *)(p) = (v))
#define BSRI_STORE_v5i(p, v) (void)(*(__m512i_u *)(void *)(p) = (v))
#define BSRI_MASK_v5f(n) ((__mmask16)((1u << (n)) - 1u))
#define BSRI_MASK_v5d(n) ((__mmask8)((1u << (n)) - 1u))
#define BSRI_MASK_v5i(n) BSRI_MASK_v5f(n)
#define BSRI_LOADM_v5f(dst, p, m) dst = _mm512_maskz_loadu_ps(m, p)
#define BSRI_LOADM_v5d(dst, p, m) dst = _mm512_maskz_loadu_pd(m, p)
#define BSRI_LOADM_v5i(dst, p, m) dst = _mm512_maskz_loadu_epi32(m, p)
#define BSRI_SET1_v5f(x) _mm512_set1_ps(x)
#define BSRI_SET1_v5d(x) _mm512_set1_pd(x)
#define BSRI_SET1_v5i(x) _mm512_set1_epi32((int)(x))
#define BSRI_FMA_v5f(a, b, c) _mm512_fmadd_ps(a, b, c)
#define BSRI_FMA_v5d(a, b, c) _mm512_fmadd_pd(a, b, c)
#define BSRI_FMA_v5i(a, b, c) _mm512_add_epi32(c, _mm512_mullo_epi32(a, b))
#define BSRI_MUL_v5f(a, b) _mm512_mul_ps(a, b)
#define BSRI_MUL_v5d(a, b) _mm512_mul_pd(a, b)
#define BSRI_MUL_v5i(a, b) _mm512_mullo_epi32(a, b)

/* Half as wide, with AVX-512's masks: for what fills no more (few columns) */
#define BSRI_A_v3 BSRI_A_v5
#define BSRI_T_v3f float
#define BSRI_T_v3d double
#define BSRI_L_v3f 8
#define BSRI_L_v3d 4
#define BSRI_V_v3f __m256
#define BSRI_V_v3d __m256d
#define BSRI_W_v3f __m256
#define BSRI_W_v3d __m256d
#define BSRI_M_v3f __mmask8
#define BSRI_M_v3d __mmask8
#define BSRI_LOAD_v3f(p) (*(const __m256_u *)(const void *)(p))
#define BSRI_LOAD_v3d(p) (*(const __m256d_u *)(const void *)(p))
#define BSRI_STORE_v3f(p, v) (void)(*(__m256_u *)(void *)(p) = (v))
#define BSRI_STORE_v3d(p, v) (void)(*(__m256d_u *)(void *)(p) = (v))
#define BSRI_MASK_v3f(n) ((__mmask8)((1u << (n)) - 1u))
#define BSRI_MASK_v3d(n) BSRI_MASK_v3f(n)
#define BSRI_LOADM_v3f(dst, p, m) dst = _mm256_maskz_loadu_ps(m, p)
#define BSRI_LOADM_v3d(dst, p, m) dst = _mm256_maskz_loadu_pd(m, p)
#define BSRI_SET1_v3f(x) _mm256_set1_ps(x)
#define BSRI_SET1_v3d(x) _mm256_set1_pd(x)
#define BSRI_FMA_v3f(a, b, c) _mm256_fmadd_ps(a, b, c)
#define BSRI_FMA_v3d(a, b, c) _mm256_fmadd_pd(a, b, c)

static void bsri_cpuid(unsigned leaf, unsigned r[4]) { __cpuid_count(leaf, 0, r[0], r[1], r[2], r[3]); }
/* Does the machine have it, and does the operating system save its registers? */
static int bsri_isa_available(int isa) {
    const unsigned need = isa == BSR_ISA_AVX512 ? 0xe6u : 6u;
    unsigned one[4], seven[4], saved[2];
    if (isa == BSR_ISA_PORTABLE) return 1;
    if ((isa != BSR_ISA_AVX2 && isa != BSR_ISA_AVX512) || __get_cpuid_max(0, NULL) < 7) return 0;
    bsri_cpuid(1, one), bsri_cpuid(7, seven);
    if ((one[2] & 0x38001000u) != 0x38001000u) return 0; /* FMA, OSXSAVE, AVX, F16C */
    __asm__ volatile("xgetbv" : "=a"(saved[0]), "=d"(saved[1]) : "c"(0));
    if ((saved[0] & need) != need || (seven[1] & (1u << 5)) == 0) return 0; /* AVX2 */
    return isa == BSR_ISA_AVX2 || (seven[1] & 0xc0030000u) == 0xc0030000u; /* F, DQ, BW, VL */
}
#else
static int bsri_isa_available(int isa) { return isa == BSR_ISA_PORTABLE; }
#endif
static int bsri_isa_detect(void) {
    int isa = BSR_ISA_AVX512;
    while (!bsri_isa_available(isa)) isa--;
    return isa;
}

/* CALL with the set that stands for isa and compute; NAME is pasted before it. */
#if BSRI_X86
#define BSRI_PICK(isa, type, NAME, args)                 \
    do {                                                 \
        if ((isa) == BSR_ISA_AVX512) NAME##5##type args; \
        else if ((isa) == BSR_ISA_AVX2) NAME##2##type args; \
        else NAME##0##type args;                         \
    } while (0)
#define BSRI_SETS(X) X(v0f, v0, 1) X(v0d, v0, 1) X(v0i, v0, I1) X(v2f, v2, 2) X(v2d, v2, 2) X(v2i, v2, I2) \
    X(v5f, v5, 8) X(v5d, v5, 8) X(v5i, v5, I4)
#else
#define BSRI_PICK(isa, type, NAME, args) \
    do {                                 \
        (void)(isa);                     \
        NAME##0##type args;              \
    } while (0)
#define BSRI_SETS(X) X(v0f, v0, 2) X(v0d, v0, 2) X(v0i, v0, I2)
#endif

static const double bsri_zeros[8] = {0, 0, 0, 0, 0, 0, 0, 0};

/* --- indices: their sign bits, and those of what is left to the last that is allowed --- */
static int bsri_indices_within(const void *index, int dtype, int64_t n, int64_t end) {
    const uint32_t *x = (const uint32_t *)index;
    const bsri_v0i zero = BSRI_LOAD_v0i((const uint32_t *)(const void *)bsri_zeros), last = zero + (uint32_t)(end - 1);
    bsri_v0i bad = zero, more = zero;
    uint32_t lane[BSRI_L_v0i], any = 0;
    int64_t i = 0;
    int l;
    if (dtype != BSR_I32 || end < 1 || end > INT32_MAX) { /* any index is out of none */
        for (; i < n && bsri_index(index, dtype, i) >= 0 && bsri_index(index, dtype, i) < end; i++) {
        }
        return i >= n;
    }
    for (; i + 2 * BSRI_L_v0i <= n; i += 2 * BSRI_L_v0i) {
        const bsri_v0i y = BSRI_LOAD_v0i(x + i), z = BSRI_LOAD_v0i(x + i + BSRI_L_v0i);
        bad |= y | (last - y), more |= z | (last - z);
    }
    bad |= more;
    BSRI_STORE_v0i(lane, bad);
    for (l = 0; l < BSRI_L_v0i; l++) any |= lane[l];
    for (; i < n; i++) any |= x[i] | ((uint32_t)(end - 1) - x[i]);
    return !(any >> 31);
}

/* --- one row: x = s x, x += s y, x = x y --- */
enum { BSRI_SCALE, BSRI_ADD_SCALED, BSRI_TIMES };
#define BSRI_DEFINE_ROW_OP(S, ISA, NV)                                                                           \
    BSRI_A_##ISA static void bsri_row_op_##S(int op, void *px, const void *py, double factor, int64_t n) {      \
        BSRI_T_##S *x = (BSRI_T_##S *)px, s = BSRI_FACTOR_##S(factor);                                          \
        const BSRI_T_##S *y = (const BSRI_T_##S *)py;                                                           \
        const BSRI_W_##S w = BSRI_SET1_##S(s);                                                                  \
        const int64_t whole = n - n % BSRI_L_##S;                                                               \
        int64_t i = 0;                                                                                          \
        if (op == BSRI_SCALE) {                                                                                 \
            for (; i < whole; i += BSRI_L_##S) BSRI_STORE_##S(x + i, BSRI_MUL_##S(w, BSRI_LOAD_##S(x + i)));    \
            for (; i < n; i++) x[i] *= s;                                                                       \
        } else if (op == BSRI_ADD_SCALED) {                                                                     \
            for (; i < whole; i += BSRI_L_##S)                                                                  \
                BSRI_STORE_##S(x + i, BSRI_FMA_##S(w, BSRI_LOAD_##S(y + i), BSRI_LOAD_##S(x + i)));             \
            for (; i < n; i++) x[i] += s * y[i];                                                                \
        } else {                                                                                                \
            for (; i < whole; i += BSRI_L_##S)                                                                  \
                BSRI_STORE_##S(x + i, BSRI_MUL_##S(BSRI_LOAD_##S(y + i), BSRI_LOAD_##S(x + i)));                \
            for (; i < n; i++) x[i] *= y[i];                                                                    \
        }                                                                                                       \
    }
#define BSRI_FACTOR_v0f(x) (float)(x)
#define BSRI_FACTOR_v2f(x) (float)(x)
#define BSRI_FACTOR_v5f(x) (float)(x)
#define BSRI_FACTOR_v0d(x) (x)
#define BSRI_FACTOR_v2d(x) (x)
#define BSRI_FACTOR_v5d(x) (x)
#define BSRI_FACTOR_v0i(x) (uint32_t)(int64_t)(x)
#define BSRI_FACTOR_v2i(x) (uint32_t)(int64_t)(x)
#define BSRI_FACTOR_v5i(x) (uint32_t)(int64_t)(x)
BSRI_SETS(BSRI_DEFINE_ROW_OP)
static void bsri_row_op(int isa, int compute, int op, void *x, const void *y, double factor, int64_t n) {
    if (compute == BSR_F32) BSRI_PICK(isa, f, bsri_row_op_v, (op, x, y, factor, n));
    else if (compute == BSR_F64) BSRI_PICK(isa, d, bsri_row_op_v, (op, x, y, factor, n));
    else BSRI_PICK(isa, i, bsri_row_op_v, (op, x, y, factor, n));
}
static void bsri_row_scale(int isa, int compute, void *x, int64_t n, double factor) {
    bsri_row_op(isa, compute, BSRI_SCALE, x, NULL, factor, n);
}

/* --- dot product: two accumulators, then the lanes in order, then the tail --- */
#define BSRI_DEFINE_DOT(S, ISA)                                                                 \
    BSRI_A_##ISA static void bsri_dot_##S(const void *px, const void *py, int64_t n, double *out) { \
        const BSRI_T_##S *x = (const BSRI_T_##S *)px, *y = (const BSRI_T_##S *)py;              \
        BSRI_T_##S lane[2 * BSRI_L_##S], sum = 0;                                               \
        const BSRI_T_##S *zeros = (const BSRI_T_##S *)(const void *)bsri_zeros;                 \
        BSRI_V_##S a = BSRI_LOAD_##S(zeros), b = a;                                        \
        int64_t i = 0;                                                                          \
        int l;                                                                                  \
        for (; i + 2 * BSRI_L_##S <= n; i += 2 * BSRI_L_##S) {                                  \
            a = BSRI_FMA_##S(BSRI_LOAD_##S(x + i), BSRI_LOAD_##S(y + i), a);                    \
            b = BSRI_FMA_##S(BSRI_LOAD_##S(x + i + BSRI_L_##S), BSRI_LOAD_##S(y + i + BSRI_L_##S), b); \
        }                                                                                       \
        BSRI_STORE_##S(lane, a);                                                                \
        BSRI_STORE_##S(lane + BSRI_L_##S, b);                                                   \
        for (l = 0; l < 2 * BSRI_L_##S; l++) sum += lane[l];                                    \
        for (; i < n; i++) sum += x[i] * y[i];                                                  \
        *out = (double)sum;                                                                     \
    }
BSRI_DEFINE_DOT(v0f, v0)
BSRI_DEFINE_DOT(v0d, v0)
#if BSRI_X86
BSRI_DEFINE_DOT(v2f, v2)
BSRI_DEFINE_DOT(v2d, v2)
BSRI_DEFINE_DOT(v5f, v5)
BSRI_DEFINE_DOT(v5d, v5)
#endif
static double bsri_row_dot(int isa, int compute, const void *x, const void *y, int64_t n) {
    double sum;
    if (compute == BSR_F32) BSRI_PICK(isa, f, bsri_dot_v, (x, y, n, &sum));
    else BSRI_PICK(isa, d, bsri_dot_v, (x, y, n, &sum));
    return sum;
}

/* --- exp in f32: x = n ln 2 + r, Taylor to r^7 (error below 1 ulp), then 2^n; -inf gives 0, NaN stays --- */
#if BSRI_X86
#define BSRI_EXP_BODY(SET, FMA, FNMA, MUL, MIN, MAX, RINT)                                        \
    x = MAX(SET(-105.0f), MIN(SET(90.0f), x)); /* operand order: a NaN passes */                     \
    n = RINT(MUL(x, SET(1.44269504f)));                                                              \
    r = FNMA(n, SET(-1.90465430e-9f), FNMA(n, SET(0.693147182f), x));                                \
    p = FMA(r, SET(1.98412698e-4f), SET(1.38888889e-3f));                                            \
    p = FMA(p, r, SET(8.33333333e-3f)), p = FMA(p, r, SET(4.16666667e-2f));                          \
    p = FMA(p, r, SET(1.66666667e-1f)), p = FMA(p, r, SET(0.5f)), p = FMA(p, r, SET(1.0f));          \
    p = FMA(p, r, SET(1.0f));
#define BSRI_RINT256(x) _mm256_cvtepi32_ps(_mm256_cvtps_epi32(x))
#define BSRI_RINT512(x) _mm512_cvtepi32_ps(_mm512_cvtps_epi32(x))
BSRI_A_v2 static inline __m256 bsri_exp_v2f(__m256 x) {
    __m256 n, r, p;
    __m256i whole, half;
    BSRI_EXP_BODY(_mm256_set1_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_mul_ps, _mm256_min_ps, _mm256_max_ps,
                  BSRI_RINT256)
    /* 2^n in two factors: n reaches from -151 to 130 */
    whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, _mm256_set1_epi32(127)), 23)));
    whole = _mm256_sub_epi32(whole, half);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(whole, _mm256_set1_epi32(127)), 23)));
}
BSRI_A_v5 static inline __m512 bsri_exp_v5f(__m512 x) {
    __m512 n, r, p;
    BSRI_EXP_BODY(_mm512_set1_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps, _mm512_min_ps, _mm512_max_ps,
                  BSRI_RINT512)
    return _mm512_scalef_ps(p, n);
}
/* x = exp(x - sub), summed lane by lane; the tail goes through a padded vector, so that every element gets the same exp. */
#define BSRI_DEFINE_EXP_SUM(S, ISA, SUB, ADD)                                                      \
    BSRI_A_##ISA static void bsri_exp_sum_##S(float *x, int64_t n, float sub, double *out) {       \
        float lane[BSRI_L_##S], sum = 0;                                                           \
        const BSRI_V_##S s = BSRI_SET1_##S(sub);                                                   \
        BSRI_V_##S total = BSRI_SET1_##S(0.0f), e;                                                 \
        int64_t i = 0;                                                                             \
        int l;                                                                                     \
        for (; i + BSRI_L_##S <= n; i += BSRI_L_##S) {                                             \
            e = bsri_exp_##S(SUB(BSRI_LOAD_##S(x + i), s));                                        \
            BSRI_STORE_##S(x + i, e);                                                              \
            total = ADD(total, e);                                                                 \
        }                                                                                          \
        BSRI_STORE_##S(lane, total);                                                               \
        for (l = 0; l < BSRI_L_##S; l++) sum += lane[l];                                           \
        if (i < n) {                                                                               \
            BSRI_LOADM_##S(e, x + i, BSRI_MASK_##S((int)(n - i)));                                 \
            BSRI_STORE_##S(lane, bsri_exp_##S(SUB(e, s)));                                         \
            for (l = 0; i < n; i++, l++) x[i] = lane[l], sum += lane[l];                           \
        }                                                                                          \
        *out = (double)sum;                                                                        \
    }                                                                                              \
    BSRI_A_##ISA static void bsri_max_##S(const float *x, int64_t n, double *out)
BSRI_DEFINE_EXP_SUM(v2f, v2, _mm256_sub_ps, _mm256_add_ps) {
    __m256 most = _mm256_set1_ps(-INFINITY), bad = _mm256_setzero_ps();
    float lane[8], top = -INFINITY;
    int64_t i = 0;
    int l;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        most = _mm256_max_ps(v, most), bad = _mm256_or_ps(bad, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    }
    _mm256_storeu_ps(lane, most);
    for (l = 0; l < 8; l++) top = lane[l] > top ? lane[l] : top;
    for (; i < n; i++) top = x[i] > top || x[i] != x[i] || top != top ? (top != top ? top : x[i]) : top;
    *out = (double)(_mm256_movemask_ps(bad) ? NAN : top);
}
BSRI_DEFINE_EXP_SUM(v5f, v5, _mm512_sub_ps, _mm512_add_ps) {
    __m512 most = _mm512_set1_ps(-INFINITY);
    __mmask16 bad = 0;
    int64_t i = 0;
    for (; i < n; i += 16) {
        __mmask16 m = n - i < 16 ? BSRI_MASK_v5f((int)(n - i)) : (__mmask16)0xffff;
        __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), m, x + i);
        most = _mm512_max_ps(v, most), bad = (__mmask16)(bad | _mm512_cmpunord_ps_mask(v, v));
    }
    *out = (double)(bad ? NAN : _mm512_reduce_max_ps(most));
}
#endif
static void bsri_exp_sum_v0f(float *x, int64_t n, float sub, double *out) {
    float sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) sum += x[i] = expf(x[i] - sub);
    *out = (double)sum;
}
static void bsri_max_v0f(const float *x, int64_t n, double *out) {
    float top = -INFINITY;
    int64_t i;
    for (i = 0; i < n && top == top; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    *out = (double)top;
}
static double bsri_row_max(int isa, int compute, const void *x, int64_t n) {
    const double *d = (const double *)x;
    double top = -INFINITY;
    int64_t i;
    if (compute == BSR_F32) BSRI_PICK(isa, f, bsri_max_v, ((const float *)x, n, &top));
    else for (i = 0; i < n && top == top; i++) top = d[i] > top || d[i] != d[i] ? d[i] : top;
    return top;
}
static double bsri_row_exp_sum(int isa, int compute, void *x, int64_t n, double sub) {
    double *d = (double *)x, sum = 0;
    int64_t i;
    if (compute == BSR_F32) BSRI_PICK(isa, f, bsri_exp_sum_v, ((float *)x, n, (float)sub, &sum));
    else for (i = 0; i < n; i++) sum += d[i] = exp(d[i] - sub);
    return sum;
}

/* --- conversions: rows x cols with contiguous rows, to the compute type and back --- */
#if BSRI_X86
/* TAIL does the columns left after whole vectors: through a padded copy, or under a mask where there is one. */
#define BSRI_DEFINE_CONVERT(NAME, ISA, DST, SRC, L, STORE, CONVERT, LOADED, TAIL)                               \
    BSRI_A_##ISA static void NAME(DST *d, int64_t ld, const SRC *s, int64_t stride, int64_t rows, int64_t cols) { \
        const int left = (int)(cols % L);                                                                      \
        const int64_t whole = cols - left;                                                                     \
        int64_t r, j;                                                                                          \
        for (r = 0; r < rows; r++, d += ld, s += stride) {                                                     \
            for (j = 0; j < whole; j += L) STORE(d + j, CONVERT(LOADED(s + j)));                               \
            if (left) TAIL(DST, SRC, L, STORE, CONVERT, LOADED)                                                \
        }                                                                                                      \
    }
#define BSRI_TAIL_COPY(DST, SRC, L, STORE, CONVERT, LOADED)              \
    {                                                                    \
        SRC in[L];                                                       \
        DST out[L];                                                      \
        int i;                                                           \
        for (i = 0; i < L; i++) in[i] = i < left ? s[j + i] : (SRC)0;    \
        STORE(out, CONVERT(LOADED(in)));                                 \
        for (i = 0; i < left; i++) d[j + i] = out[i];                    \
    }
#define BSRI_TAIL_MASK(DST, SRC, L, STORE, CONVERT, LOADED)                             \
    {                                                                                   \
        const __mmask16 mask = (__mmask16)((1u << left) - 1u);                          \
        STORE##M(d + j, mask, CONVERT(LOADED##M(s + j, mask)));                         \
    }
#define BSRI_P128(p) (const __m128i *)(const void *)(p)
#define BSRI_P256(p) (const __m256i *)(const void *)(p)
#define BSRI_S128(p, v) _mm_storeu_si128((__m128i *)(void *)(p), v)
#define BSRI_S256(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define BSRI_LOAD64(p) _mm_loadl_epi64(BSRI_P128(p))
#define BSRI_LOAD128(p) _mm_loadu_si128(BSRI_P128(p))
#define BSRI_LOAD256(p) _mm256_loadu_si256(BSRI_P256(p))
#define BSRI_L8M(p, m) _mm_maskz_loadu_epi8(m, p)
#define BSRI_L16M(p, m) _mm256_maskz_loadu_epi16(m, p)
#define BSRI_L8(p) BSRI_LOAD128(p)
#define BSRI_L16(p) BSRI_LOAD256(p)
#define BSRI_LF(p) _mm512_loadu_ps(p)
#define BSRI_LFM(p, m) _mm512_maskz_loadu_ps(m, p)
#define BSRI_SF(p, v) _mm512_storeu_ps(p, v)
#define BSRI_SFM(p, m, v) _mm512_mask_storeu_ps(p, m, v)
#define BSRI_SI(p, v) _mm512_storeu_si512(p, v)
#define BSRI_SIM(p, m, v) _mm512_mask_storeu_epi32(p, m, v)
#define BSRI_S16(p, v) BSRI_S256(p, v)
#define BSRI_S16M(p, m, v) _mm256_mask_storeu_epi16(p, m, v)
#define BSRI_SAME(v) (v)
#define BSRI_C2_BF16(h) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))
#define BSRI_C5_BF16(h) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))
#define BSRI_C2_TO_F16(f) _mm256_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT)
#define BSRI_C5_TO_F16(f) _mm512_maskz_cvtps_ph((__mmask16)0xffff, f, _MM_FROUND_TO_NEAREST_INT)
#define BSRI_C2_F16_F64(h) _mm256_cvtps_pd(_mm_cvtph_ps(h))
#define BSRI_C2_BF16_F64(h) _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(h), 16)))
BSRI_A_v2 static inline __m128i bsri_c2_to_bf16(__m256 f) { /* as bsri_f32_to_bf16 */
    const __m256i u = _mm256_castps_si256(f), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    const __m256i w = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}
BSRI_A_v5 static inline __m256i bsri_c5_to_bf16(__m512 f) {
    const __m512i u = _mm512_castps_si512(f), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i w = _mm512_mask_or_epi32(rounded, _mm512_cmpunord_ps_mask(f, f), u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(w, 16));
}
BSRI_DEFINE_CONVERT(bsri_f16_in_v2f, v2, float, uint16_t, 8, _mm256_storeu_ps, _mm256_cvtph_ps, BSRI_LOAD128, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_bf16_in_v2f, v2, float, uint16_t, 8, _mm256_storeu_ps, BSRI_C2_BF16, BSRI_LOAD128, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_i8_in_v2f, v2, int32_t, int8_t, 8, BSRI_S256, _mm256_cvtepi8_epi32, BSRI_LOAD64, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_copy_v2f, v2, float, float, 8, _mm256_storeu_ps, BSRI_SAME, _mm256_loadu_ps, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_f16_out_v2f, v2, uint16_t, float, 8, BSRI_S128, BSRI_C2_TO_F16, _mm256_loadu_ps, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_bf16_out_v2f, v2, uint16_t, float, 8, BSRI_S128, bsri_c2_to_bf16, _mm256_loadu_ps, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_f32_in_v2d, v2, double, float, 4, _mm256_storeu_pd, _mm256_cvtps_pd, _mm_loadu_ps, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_f16_in_v2d, v2, double, uint16_t, 4, _mm256_storeu_pd, BSRI_C2_F16_F64, BSRI_LOAD64, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_bf16_in_v2d, v2, double, uint16_t, 4, _mm256_storeu_pd, BSRI_C2_BF16_F64, BSRI_LOAD64, BSRI_TAIL_COPY)
BSRI_DEFINE_CONVERT(bsri_f16_in_v5f, v5, float, uint16_t, 16, BSRI_SF, _mm512_cvtph_ps, BSRI_L16, BSRI_TAIL_MASK)
BSRI_DEFINE_CONVERT(bsri_bf16_in_v5f, v5, float, uint16_t, 16, BSRI_SF, BSRI_C5_BF16, BSRI_L16, BSRI_TAIL_MASK)
BSRI_DEFINE_CONVERT(bsri_i8_in_v5f, v5, int32_t, int8_t, 16, BSRI_SI, _mm512_cvtepi8_epi32, BSRI_L8, BSRI_TAIL_MASK)
BSRI_DEFINE_CONVERT(bsri_copy_v5f, v5, float, float, 16, BSRI_SF, BSRI_SAME, BSRI_LF, BSRI_TAIL_MASK)
BSRI_DEFINE_CONVERT(bsri_f16_out_v5f, v5, uint16_t, float, 16, BSRI_S16, BSRI_C5_TO_F16, BSRI_LF, BSRI_TAIL_MASK)
BSRI_DEFINE_CONVERT(bsri_bf16_out_v5f, v5, uint16_t, float, 16, BSRI_S16, bsri_c5_to_bf16, BSRI_LF, BSRI_TAIL_MASK)
#define BSRI_JOIN(p) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps((p) + 4 * stride), 1)
/* 8 x 8 elements of 4 bytes: the halves are joined by the loads, which leaves 16 shuffles. */
BSRI_A_v2 static void bsri_transpose8(float *d, int64_t ld, const float *s, int64_t stride) {
    int i;
    for (i = 0; i < 2; i++) {
        const float *p = s + 4 * i;
        const __m256 a = BSRI_JOIN(p), b = BSRI_JOIN(p + stride), c = BSRI_JOIN(p + 2 * stride), e = BSRI_JOIN(p + 3 * stride);
        const __m256 ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
        const __m256 ce0 = _mm256_unpacklo_ps(c, e), ce1 = _mm256_unpackhi_ps(c, e);
        _mm256_storeu_ps(d + (4 * i + 0) * ld, _mm256_shuffle_ps(ab0, ce0, 0x44));
        _mm256_storeu_ps(d + (4 * i + 1) * ld, _mm256_shuffle_ps(ab0, ce0, 0xee));
        _mm256_storeu_ps(d + (4 * i + 2) * ld, _mm256_shuffle_ps(ab1, ce1, 0x44));
        _mm256_storeu_ps(d + (4 * i + 3) * ld, _mm256_shuffle_ps(ab1, ce1, 0xee));
    }
}
#endif

#if BSRI_X86
/* The same for fewer than 8 rows: by way of a padded copy. */
BSRI_A_v2 static void bsri_transpose8_part(float *d, int64_t ld, const float *s, int64_t stride, int rows) {
    const __m256i mask = BSRI_MASK_v2f(rows);
    float in[64], out[64];
    int i;
    for (i = 0; i < 8; i++) _mm256_storeu_ps(in + 8 * i, _mm256_maskload_ps(s + i * stride, mask));
    bsri_transpose8(out, 8, in, 8);
    for (i = 0; i < rows; i++) _mm256_storeu_ps(d + i * ld, _mm256_loadu_ps(out + 8 * i));
}
#endif

/* Contiguous rows by vectors; 0 where the set has no such conversion. Copies of 8-byte elements are copies of twice as many. */
static int bsri_convert_in(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t stride, int64_t rows,
                           int64_t cols) {
#if BSRI_X86
    const uint16_t *h = (const uint16_t *)src;
    float *f = (float *)dst;
    const int64_t two = dtype == BSR_F64 ? 2 : 1;
    const int wide = isa == BSR_ISA_AVX512;
    if (isa == BSR_ISA_PORTABLE) return 0;
    if (dtype == compute) {
        if (wide) bsri_copy_v5f(f, ld * two, (const float *)src, stride * two, rows, cols * two);
        else bsri_copy_v2f(f, ld * two, (const float *)src, stride * two, rows, cols * two);
    } else if (compute == BSR_F64) {
        if (dtype == BSR_F32) bsri_f32_in_v2d((double *)dst, ld, (const float *)src, stride, rows, cols);
        else if (dtype == BSR_F16) bsri_f16_in_v2d((double *)dst, ld, h, stride, rows, cols);
        else if (dtype == BSR_BF16) bsri_bf16_in_v2d((double *)dst, ld, h, stride, rows, cols);
        else return 0;
    } else if (compute == BSR_I32) {
        if (dtype != BSR_I8) return 0;
        if (wide) bsri_i8_in_v5f((int32_t *)dst, ld, (const int8_t *)src, stride, rows, cols);
        else bsri_i8_in_v2f((int32_t *)dst, ld, (const int8_t *)src, stride, rows, cols);
    } else if (dtype == BSR_F16) {
        if (wide) bsri_f16_in_v5f(f, ld, h, stride, rows, cols);
        else bsri_f16_in_v2f(f, ld, h, stride, rows, cols);
    } else if (dtype == BSR_BF16) {
        if (wide) bsri_bf16_in_v5f(f, ld, h, stride, rows, cols);
        else bsri_bf16_in_v2f(f, ld, h, stride, rows, cols);
    } else {
        return 0;
    }
    return 1;
#else
    (void)isa, (void)compute, (void)dst, (void)ld, (void)src, (void)dtype, (void)stride, (void)rows, (void)cols;
    return 0;
#endif
}
static int bsri_convert_out(int isa, uint16_t *dst, int dtype, const float *src, int64_t n) {
#if BSRI_X86
    if (isa == BSR_ISA_AVX512) {
        if (dtype == BSR_F16) bsri_f16_out_v5f(dst, 0, src, 0, 1, n);
        else bsri_bf16_out_v5f(dst, 0, src, 0, 1, n);
        return 1;
    }
    if (isa == BSR_ISA_AVX2) {
        if (dtype == BSR_F16) bsri_f16_out_v2f(dst, 0, src, 0, 1, n);
        else bsri_bf16_out_v2f(dst, 0, src, 0, 1, n);
        return 1;
    }
#endif
    (void)isa, (void)dst, (void)dtype, (void)src, (void)n;
    return 0;
}
static void bsri_row_load_any(int compute, void *dst, const void *src, int dtype, int64_t stride, int64_t n) {
    int64_t i;
    if (compute == BSR_F32 && dtype == BSR_F32)
        for (i = 0; i < n; i++) ((float *)dst)[i] = ((const float *)src)[i * stride];
    else if (compute == BSR_F32 && dtype == BSR_F16)
        for (i = 0; i < n; i++) ((float *)dst)[i] = bsri_f16_to_f32(((const uint16_t *)src)[i * stride]);
    else if (compute == BSR_F32 && dtype == BSR_BF16)
        for (i = 0; i < n; i++) ((float *)dst)[i] = bsri_bf16_to_f32(((const uint16_t *)src)[i * stride]);
    else if (compute == BSR_F32)
        for (i = 0; i < n; i++) ((float *)dst)[i] = bsri_load_f32(src, dtype, i * stride);
    else if (compute == BSR_F64)
        for (i = 0; i < n; i++) ((double *)dst)[i] = bsri_load_f64(src, dtype, i * stride);
    else
        for (i = 0; i < n; i++) ((int32_t *)dst)[i] = bsri_load_i32(src, dtype, i * stride);
}
static void bsri_tile_load(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t rows, int64_t cols,
                           int64_t row_stride, int64_t col_stride);
/* The same where columns are contiguous: converted column by column into a strip, where they are not of `compute` already, and
   transposed from there. */
static void bsri_tile_load_transposed(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t rows,
                                      int64_t cols, int64_t col_stride) {
    double strip[8 * 64];
    int64_t c, r, i, j, cn, rn;
    for (c = 0; c < cols; c += 8) {
        cn = bsri_min(8, cols - c);
        for (r = 0; r < rows; r += 64) {
            const void *s = bsri_at(src, dtype, r + c * col_stride);
            int64_t stride = col_stride, done = 0;
            rn = bsri_min(64, rows - r);
            if (dtype != compute) {
                bsri_tile_load(isa, compute, strip, 64, s, dtype, cn, rn, col_stride, 1);
                s = strip, stride = 64;
            }
#if BSRI_X86
            if (isa != BSR_ISA_PORTABLE && compute != BSR_F64 && cn == 8)
                for (; done + 8 <= rn; done += 8)
                    bsri_transpose8((float *)dst + (r + done) * ld + c, ld, (const float *)s + done, stride);
            if (isa != BSR_ISA_PORTABLE && compute != BSR_F64 && cn == 8 && done < rn) {
                bsri_transpose8_part((float *)dst + (r + done) * ld + c, ld, (const float *)s + done, stride, (int)(rn - done));
                continue;
            }
#endif
            for (j = 0; j < cn; j++)
                for (i = done; i < rn; i++) {
                    if (compute == BSR_F64) ((double *)dst)[(r + i) * ld + c + j] = ((const double *)s)[i + j * stride];
                    else ((float *)dst)[(r + i) * ld + c + j] = ((const float *)s)[i + j * stride];
                }
        }
    }
}
/* rows x cols of any dtype and strides to rows of `compute`; columns past cols are left alone. */
static void bsri_tile_load(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t rows, int64_t cols,
                           int64_t row_stride, int64_t col_stride) {
    int64_t r;
    if (rows > 1 && cols > 1 && row_stride == 1 && col_stride != 1) {
        bsri_tile_load_transposed(isa, compute, dst, ld, src, dtype, rows, cols, col_stride);
        return;
    }
    if (col_stride == 1 && bsri_convert_in(isa, compute, dst, ld, src, dtype, row_stride, rows, cols)) return;
    for (r = 0; r < rows; r++)
        bsri_row_load_any(compute, bsri_at(dst, compute, r * ld), bsri_at(src, dtype, r * row_stride), dtype, col_stride, cols);
}
static void bsri_row_load(int isa, int compute, void *dst, const void *src, int dtype, int64_t stride, int64_t n) {
    bsri_tile_load(isa, compute, dst, n, src, dtype, 1, n, 0, stride);
}
static void bsri_tile_pack(int isa, int compute, void *dst, int64_t ld, const void *src, int dtype, int64_t rows, int64_t cols,
                           int64_t row_stride, int64_t col_stride) {
    const int64_t padded = (cols + BSRI_LANES_MAX - 1) / BSRI_LANES_MAX * BSRI_LANES_MAX;
    int64_t r;
    bsri_tile_load(isa, compute, dst, ld, src, dtype, rows, cols, row_stride, col_stride);
    for (r = 0; r < rows && cols < padded; r++)
        memset(bsri_at(dst, compute, r * ld + cols), 0, (size_t)(padded - cols) * bsr_dtype_size(compute));
}
static void bsri_row_store(int isa, int compute, void *dst, int dtype, int64_t stride, const void *src, int64_t n) {
    int64_t i;
    if (n <= 0) return; /* dst may be null then */
    if (stride == 1 && dtype == compute) {
        memcpy(dst, src, (size_t)n * bsr_dtype_size(dtype));
    } else if (compute == BSR_F32) {
        if (stride == 1 && dtype != BSR_F64 && bsri_convert_out(isa, (uint16_t *)dst, dtype, (const float *)src, n)) return;
        for (i = 0; i < n; i++) bsri_store_f32(dst, dtype, i * stride, ((const float *)src)[i]);
    } else if (compute == BSR_F64) {
        for (i = 0; i < n; i++) bsri_store_f64(dst, dtype, i * stride, ((const double *)src)[i]);
    } else {
        for (i = 0; i < n; i++) bsri_store_i32(dst, dtype, i * stride, ((const int32_t *)src)[i]);
    }
}

/* --- the micro-kernel: MR x NV vectors of sums stay in registers while a list of (a, b) pairs is walked --- */
typedef struct bsri_pair {
    const void *a, *b, *ahead_a, *ahead_b; /* ahead: of a later pair, to be fetched meanwhile */
} bsri_pair;
typedef struct bsri_walk {
    const bsri_pair *list;
    int64_t count, kc;   /* pairs; products of each pair */
    int64_t am, ak, ldb; /* element strides: a's rows and products, b's products (b's columns are contiguous) */
    int64_t a_at, b_at;  /* where in each a and b the tile starts */
    int64_t ldc;
    int64_t line;        /* which vector of a row of ahead_b these rows fetch */
    int tail;            /* lanes of b in the last vector */
    int add;             /* 0: sums start from zero */
} bsri_walk;

#if defined(__GNUC__)
#define BSRI_PREFETCH(p) __builtin_prefetch(p)
#else
#define BSRI_PREFETCH(p) (void)(p)
#endif
#define BSRI_ROWS_1(X, S, NV) X(S, 0, NV)
#define BSRI_ROWS_2(X, S, NV) BSRI_ROWS_1(X, S, NV) X(S, 1, NV)
#define BSRI_ROWS_3(X, S, NV) BSRI_ROWS_2(X, S, NV) X(S, 2, NV)
#define BSRI_ROWS_4(X, S, NV) BSRI_ROWS_3(X, S, NV) X(S, 3, NV)
#define BSRI_ROWS_5(X, S, NV) BSRI_ROWS_4(X, S, NV) X(S, 4, NV)
#define BSRI_ROWS_6(X, S, NV) BSRI_ROWS_5(X, S, NV) X(S, 5, NV)
#define BSRI_COLS_1(X, S, m) X(S, m, 0)
#define BSRI_COLS_2(X, S, m) BSRI_COLS_1(X, S, m) X(S, m, 1)
#define BSRI_COLS_3(X, S, m) BSRI_COLS_2(X, S, m) X(S, m, 2)
#define BSRI_COLS_4(X, S, m) BSRI_COLS_3(X, S, m) X(S, m, 3)
#define BSRI_COLS_8(X, S, m) BSRI_COLS_4(X, S, m) X(S, m, 4) X(S, m, 5) X(S, m, 6) X(S, m, 7)
#define BSRI_B_LAST(S, j) BSRI_V_##S b##j; BSRI_LOADM_##S(b##j, b + j * BSRI_L_##S, mask);
#define BSRI_B_1(S) BSRI_B_LAST(S, 0)
#define BSRI_B_2(S) BSRI_B_PLAIN(S, 0) BSRI_B_LAST(S, 1)
#define BSRI_B_4(S) BSRI_B_PLAIN(S, 0) BSRI_B_PLAIN(S, 1) BSRI_B_PLAIN(S, 2) BSRI_B_LAST(S, 3)
#define BSRI_B_PLAIN(S, j) const BSRI_V_##S b##j = BSRI_LOAD_##S(b + j * BSRI_L_##S);
#define BSRI_B_8(S)                                                                                   \
    BSRI_B_PLAIN(S, 0) BSRI_B_PLAIN(S, 1) BSRI_B_PLAIN(S, 2) BSRI_B_PLAIN(S, 3) BSRI_B_PLAIN(S, 4) \
    BSRI_B_PLAIN(S, 5) BSRI_B_PLAIN(S, 6) BSRI_B_LAST(S, 7)
#define BSRI_K_DECLARE(S, m, j) BSRI_V_##S c##m##_##j = BSRI_LOAD_##S(from + m * next + j * lanes);
#define BSRI_K_SUMS(S, m, NV) BSRI_COLS_##NV(BSRI_K_DECLARE, S, m)
#define BSRI_K_STORE(S, m, j) BSRI_STORE_##S(c + m * ldc + j * BSRI_L_##S, c##m##_##j);
#define BSRI_K_STORES(S, m, NV) BSRI_COLS_##NV(BSRI_K_STORE, S, m)
#define BSRI_K_FMA(S, m, j) c##m##_##j = BSRI_FMA_##S(av, b##j, c##m##_##j);
#define BSRI_K_ROW(S, m, NV)                            \
    {                                                   \
        const BSRI_W_##S av = BSRI_SET1_##S(a[m * am]); \
        BSRI_COLS_##NV(BSRI_K_FMA, S, m)                \
    }
#define BSRI_DEFINE_KERNEL(S, ISA, MR, NV)                                                                   \
    BSRI_A_##ISA static void bsri_kernel_##S##_##MR##x##NV(const bsri_walk *w, int64_t a_at, int64_t b_at, BSRI_T_##S *c) { \
        const BSRI_T_##S *from = w->add ? c : (const BSRI_T_##S *)(const void *)bsri_zeros;                  \
        const int64_t am = w->am, ak = w->ak, ldb = w->ldb, ldc = w->ldc, count = w->count, kc = w->kc;      \
        const int64_t next = w->add ? ldc : 0, lanes = w->add ? BSRI_L_##S : 0;                              \
        const BSRI_M_##S mask = BSRI_MASK_##S(w->tail);                                                      \
        int64_t i, k;                                                                                        \
        BSRI_ROWS_##MR(BSRI_K_SUMS, S, NV)                                                                   \
        for (i = 0; i < count; i++) {                                                                        \
            const BSRI_T_##S *a = (const BSRI_T_##S *)w->list[i].a + a_at;                                   \
            const BSRI_T_##S *b = (const BSRI_T_##S *)w->list[i].b + b_at;                                   \
            const BSRI_T_##S *ahead = (const BSRI_T_##S *)w->list[i].ahead_a + a_at;                           \
            const BSRI_T_##S *ahead_b = (const BSRI_T_##S *)w->list[i].ahead_b + b_at + w->line;               \
            for (k = 0; k < kc; k++, a += ak, b += ldb, ahead += ak, ahead_b += ldb) {                       \
                BSRI_PREFETCH(ahead + (k & 7) * am);                                                         \
                BSRI_PREFETCH(ahead_b);                                                                      \
                BSRI_B_##NV(S)                                                                               \
                BSRI_ROWS_##MR(BSRI_K_ROW, S, NV)                                                            \
            }                                                                                                \
        }                                                                                                    \
        BSRI_ROWS_##MR(BSRI_K_STORES, S, NV)                                                                 \
        (void)am;                                                                                            \
    }
#define BSRI_K_CASE(S, MR, NV) case MR: bsri_kernel_##S##_##MR##x##NV(w, a_at, b_at, c + m * w->ldc); break;
/* Rows in groups of at most MOST, as even as can be. */
#define BSRI_ROW_GROUPS(S, ISA, NV, MOST, CASES)                                                                 \
    BSRI_A_##ISA static void bsri_rows_##S##_##NV(bsri_walk *w, int64_t rows, int64_t b_at, BSRI_T_##S *c) {     \
        const int64_t groups = (rows + MOST - 1) / MOST;                                                         \
        int64_t g, m = 0, mr;                                                                                    \
        for (g = 0; g < groups; g++, m += mr) {                                                                  \
            const int64_t a_at = w->a_at + m * w->am;                                                            \
            w->line = (g & 3) * BSRI_L_##S;                                                                      \
            mr = (rows - m) / (groups - g);                                                                      \
            switch (mr) { CASES }                                                                                \
        }                                                                                                        \
    }
#define BSRI_K_CASES_5(S, NV) \
    BSRI_K_CASE(S, 1, NV) BSRI_K_CASE(S, 2, NV) BSRI_K_CASE(S, 3, NV) BSRI_K_CASE(S, 4, NV) BSRI_K_CASE(S, 5, NV)
#define BSRI_K_CASES_6(S, NV) BSRI_K_CASES_5(S, NV) BSRI_K_CASE(S, 6, NV)
/* Integers take longer to multiply than to load, so groups of five rows do. */
#define BSRI_KERNELS_LOW(S, ISA, NV)                                                                             \
    BSRI_DEFINE_KERNEL(S, ISA, 1, NV) BSRI_DEFINE_KERNEL(S, ISA, 2, NV) BSRI_DEFINE_KERNEL(S, ISA, 3, NV)        \
    BSRI_DEFINE_KERNEL(S, ISA, 4, NV) BSRI_DEFINE_KERNEL(S, ISA, 5, NV)                                          \
    BSRI_ROW_GROUPS(S, ISA, NV, 5, BSRI_K_CASES_5(S, NV))
#define BSRI_KERNELS_OF(S, ISA, NV)                                                                              \
    BSRI_DEFINE_KERNEL(S, ISA, 1, NV) BSRI_DEFINE_KERNEL(S, ISA, 2, NV) BSRI_DEFINE_KERNEL(S, ISA, 3, NV)        \
    BSRI_DEFINE_KERNEL(S, ISA, 4, NV) BSRI_DEFINE_KERNEL(S, ISA, 5, NV) BSRI_DEFINE_KERNEL(S, ISA, 6, NV)        \
    BSRI_ROW_GROUPS(S, ISA, NV, 6, BSRI_K_CASES_6(S, NV))
#define BSRI_KERNEL_WIDTHS_I1(S, ISA) BSRI_KERNELS_LOW(S, ISA, 1)
#define BSRI_KERNEL_WIDTHS_I2(S, ISA) BSRI_KERNEL_WIDTHS_I1(S, ISA) BSRI_KERNELS_LOW(S, ISA, 2)
#define BSRI_KERNEL_WIDTHS_I4(S, ISA) BSRI_KERNEL_WIDTHS_I2(S, ISA) BSRI_KERNELS_LOW(S, ISA, 4)
#define BSRI_KERNEL_WIDTHS_1(S, ISA) BSRI_KERNELS_OF(S, ISA, 1)
#define BSRI_KERNEL_WIDTHS_2(S, ISA) BSRI_KERNEL_WIDTHS_1(S, ISA) BSRI_KERNELS_OF(S, ISA, 2)
#define BSRI_KERNEL_WIDTHS_4(S, ISA) BSRI_KERNEL_WIDTHS_2(S, ISA) BSRI_KERNELS_OF(S, ISA, 4)
#define BSRI_KERNEL_WIDTHS_8(S, ISA) BSRI_KERNEL_WIDTHS_4(S, ISA)                                              \
    BSRI_DEFINE_KERNEL(S, ISA, 1, 8) BSRI_DEFINE_KERNEL(S, ISA, 2, 8) BSRI_DEFINE_KERNEL(S, ISA, 3, 8)           \
    BSRI_A_##ISA static void bsri_rows_##S##_8(bsri_walk *w, int64_t rows, int64_t b_at, BSRI_T_##S *c) {        \
        w->line = 0; /* one group of rows: the first vector of each row of b */                                  \
        if (rows == 1) bsri_kernel_##S##_1x8(w, w->a_at, b_at, c);                                               \
        else if (rows == 2) bsri_kernel_##S##_2x8(w, w->a_at, b_at, c);                                          \
        else bsri_kernel_##S##_3x8(w, w->a_at, b_at, c);                                                         \
    }
#define BSRI_WIDE_1(S, w, rows, at, c)
#define BSRI_WIDE_2(S, w, rows, at, c) \
    if (wide == 2) bsri_rows_##S##_2(w, rows, at, c);
#define BSRI_WIDE_4(S, w, rows, at, c)                \
    if (wide == 4) bsri_rows_##S##_4(w, rows, at, c); \
    BSRI_WIDE_2(S, w, rows, at, c)
#define BSRI_WIDE_8(S, w, rows, at, c)                \
    if (wide == 8) bsri_rows_##S##_8(w, rows, at, c); \
    BSRI_WIDE_4(S, w, rows, at, c)
#define BSRI_WIDE_I1 BSRI_WIDE_1
#define BSRI_WIDE_I2 BSRI_WIDE_2
#define BSRI_WIDE_I4 BSRI_WIDE_4
enum { BSRI_NV_1 = 1, BSRI_NV_2 = 2, BSRI_NV_8 = 8, BSRI_NV_I1 = 1, BSRI_NV_I2 = 2, BSRI_NV_I4 = 4 };
/* Walks the list for a tile of rows x cols sums. */
#define BSRI_DEFINE_TILE(S, ISA, NV)                                                                          \
    BSRI_KERNEL_WIDTHS_##NV(S, ISA)                                                                           \
    BSRI_A_##ISA static void bsri_tile_##S(bsri_walk *w, int64_t rows, int64_t cols, void *pc) {              \
        BSRI_T_##S *c = (BSRI_T_##S *)pc;                                                                     \
        int64_t j = 0, width;                                                                                 \
        for (; j < cols; j += width) {                                                                        \
            const int64_t left = cols - j;                                                                    \
            const int nv = BSRI_NV_##NV, most = nv == 8 && (rows > 3 || left <= 7 * BSRI_L_##S) ? 4 : nv;     \
            const int wide = nv == 1 ? 1 : left > (most - 1) * BSRI_L_##S ? most : left > BSRI_L_##S ? 2 : 1; \
            width = wide * BSRI_L_##S;                                                                        \
            w->tail = (int)(left < width ? left - width + BSRI_L_##S : BSRI_L_##S);                           \
            BSRI_WIDE_##NV(S, w, rows, w->b_at + j, c + j)                                                    \
            if (wide == 1) bsri_rows_##S##_1(w, rows, w->b_at + j, c + j);                                    \
        }                                                                                                     \
    }
BSRI_SETS(BSRI_DEFINE_TILE)
static void bsri_tile_walk(int isa, int compute, bsri_walk *w, int64_t rows, int64_t cols, void *c) {
    if (compute == BSR_F64) BSRI_PICK(isa, d, bsri_tile_v, (w, rows, cols, c));
    else if (BSRI_HAS_SUMS_F32 && compute == BSR_F32) BSRI_PICK(isa, f, bsri_tile_v, (w, rows, cols, c));
    else if (BSRI_HAS_I8) BSRI_PICK(isa, i, bsri_tile_v, (w, rows, cols, c));
}
static void bsri_tile_mm(int isa, int compute, int64_t m, int64_t n, int64_t k, const void *a, int64_t am, int64_t ak,
                         const void *b, int64_t ldb, void *c, int64_t ldc, int add) {
    bsri_walk w;
    bsri_pair pair;
    pair.a = a, pair.b = b, pair.ahead_a = a, pair.ahead_b = b;
    w.list = &pair, w.count = 1, w.kc = k, w.am = am, w.ak = ak, w.ldb = ldb, w.a_at = 0, w.b_at = 0, w.ldc = ldc, w.add = add;
    bsri_tile_walk(isa, compute, &w, m, n, c);
}

/* --- few columns: vectors run along a block's products (dots) or along its rows (sums), not along the columns --- */
typedef struct bsri_entry { int64_t a, b; } bsri_entry; /* element offsets: op(A)'s block, b's first row */
enum { BSRI_FEW_ROWS = 64 }; /* of sums, at most */
typedef struct bsri_few {
    int64_t am, ak, bk;  /* element strides: a's rows and products, b's products; dots: ak and bk are 1 */
    int64_t inner, rows; /* products of each entry; rows of sums (sums: at most a vector of them) */
    int64_t tail;        /* dots: products in the last, part vector, 0: none */
    const int32_t *line; /* entries of line t: those from line[t] to line[t + 1] */
    const bsri_entry *list; /* where they are; null: entry p is block at[p] (at null: p), `block` elements each, and goes with */
    const int32_t *at, *col; /* b from element col[p] * step on */
    int64_t block, step, last; /* last entry */
} bsri_few;
#define BSRI_F_START                                                                  \
    const bsri_entry *list = f->list;                                                 \
    const int32_t *at = f->at, *col = f->col, *line = f->line;                        \
    const int64_t block = f->block, step = f->step;
#define BSRI_F_A(p) (list ? list[p].a : (at ? at[p] : (p)) * block)
#define BSRI_F_B(p) (list ? list[p].b : col[p] * step)

/* The sum of a vector's lanes, in a fixed order. */
#define BSRI_DEFINE_SUM(S, ISA)                                           \
    BSRI_A_##ISA static inline BSRI_T_##S bsri_sum_##S(BSRI_V_##S v) { \
        BSRI_T_##S lane[BSRI_L_##S], sum;                                 \
        int l;                                                            \
        BSRI_STORE_##S(lane, v);                                          \
        for (sum = lane[0], l = 1; l < BSRI_L_##S; l++) sum += lane[l];   \
        return sum;                                                       \
    }
BSRI_DEFINE_SUM(v0f, v0)
BSRI_DEFINE_SUM(v0d, v0)
BSRI_DEFINE_SUM(v0i, v0)
#if BSRI_X86
BSRI_A_v2 static inline float bsri_sum_v2f(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
BSRI_A_v2 static inline double bsri_sum_v2d(__m256d v) {
    const __m128d x = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(x, _mm_unpackhi_pd(x, x)));
}
BSRI_A_v2 static inline uint32_t bsri_sum_v2i(__m256i v) {
    __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
#define bsri_sum_v3f bsri_sum_v2f
#define bsri_sum_v3d bsri_sum_v2d
BSRI_A_v5 static inline float bsri_sum_v5f(__m512 v) {
    return bsri_sum_v2f(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
BSRI_A_v5 static inline double bsri_sum_v5d(__m512d v) {
    return bsri_sum_v2d(_mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}
BSRI_A_v5 static inline uint32_t bsri_sum_v5i(__m512i v) {
    return bsri_sum_v2i(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}
#endif

/* Where numbers come from. A source of set S: E_ element as stored, IN the vector at p, INM its first n (mask m) and zeros. */
#define BSRI_E_f_v0f float
#define BSRI_E_d_v0d double
#define BSRI_IN_f_v0f(p) BSRI_LOAD_v0f(p)
#define BSRI_IN_d_v0d(p) BSRI_LOAD_v0d(p)
#define BSRI_INM_f_v0f(dst, p, m, n) BSRI_LOADM_v0f(dst, p, m)
#define BSRI_INM_d_v0d(dst, p, m, n) BSRI_LOADM_v0d(dst, p, m)
#if BSRI_X86
BSRI_A_v2 static inline __m128i bsri_part16(const uint16_t *p, int n) {
    uint16_t in[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int i;
    for (i = 0; i < n; i++) in[i] = p[i];
    return BSRI_LOAD128(in);
}
BSRI_A_v2 static inline __m128i bsri_part8(const int8_t *p, int n) {
    int8_t in[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int i;
    for (i = 0; i < n; i++) in[i] = p[i];
    return BSRI_LOAD64(in);
}
#define BSRI_E_f_v2f float
#define BSRI_E_d_v2d double
#define BSRI_E_h_v2f uint16_t
#define BSRI_E_b_v2f uint16_t
#define BSRI_E_c_v2i int8_t
#define BSRI_IN_f_v2f(p) BSRI_LOAD_v2f(p)
#define BSRI_IN_d_v2d(p) BSRI_LOAD_v2d(p)
#define BSRI_IN_h_v2f(p) _mm256_cvtph_ps(BSRI_LOAD128(p))
#define BSRI_IN_b_v2f(p) BSRI_C2_BF16(BSRI_LOAD128(p))
#define BSRI_IN_c_v2i(p) _mm256_cvtepi8_epi32(BSRI_LOAD64(p))
#define BSRI_INM_f_v2f(dst, p, m, n) BSRI_LOADM_v2f(dst, p, m)
#define BSRI_INM_d_v2d(dst, p, m, n) BSRI_LOADM_v2d(dst, p, m)
#define BSRI_INM_h_v2f(dst, p, m, n) dst = _mm256_cvtph_ps(bsri_part16(p, n)), (void)(m)
#define BSRI_INM_b_v2f(dst, p, m, n) dst = BSRI_C2_BF16(bsri_part16(p, n)), (void)(m)
#define BSRI_INM_c_v2i(dst, p, m, n) dst = _mm256_cvtepi8_epi32(bsri_part8(p, n)), (void)(m)
#define BSRI_E_f_v3f float
#define BSRI_E_d_v3d double
#define BSRI_IN_f_v3f(p) BSRI_LOAD_v3f(p)
#define BSRI_IN_d_v3d(p) BSRI_LOAD_v3d(p)
#define BSRI_INM_f_v3f(dst, p, m, n) BSRI_LOADM_v3f(dst, p, m)
#define BSRI_INM_d_v3d(dst, p, m, n) BSRI_LOADM_v3d(dst, p, m)
#define BSRI_E_f_v5f float
#define BSRI_E_d_v5d double
#define BSRI_E_h_v5f uint16_t
#define BSRI_E_b_v5f uint16_t
#define BSRI_E_c_v5i int8_t
#define BSRI_IN_f_v5f(p) BSRI_LOAD_v5f(p)
#define BSRI_IN_d_v5d(p) BSRI_LOAD_v5d(p)
#define BSRI_IN_h_v5f(p) _mm512_cvtph_ps(BSRI_LOAD256(p))
#define BSRI_IN_b_v5f(p) BSRI_C5_BF16(BSRI_LOAD256(p))
#define BSRI_IN_c_v5i(p) _mm512_cvtepi8_epi32(BSRI_LOAD128(p))
#define BSRI_INM_f_v5f(dst, p, m, n) BSRI_LOADM_v5f(dst, p, m)
#define BSRI_INM_d_v5d(dst, p, m, n) BSRI_LOADM_v5d(dst, p, m)
#define BSRI_INM_h_v5f(dst, p, m, n) dst = _mm512_cvtph_ps(BSRI_L16M(p, m))
#define BSRI_INM_b_v5f(dst, p, m, n) dst = BSRI_C5_BF16(BSRI_L16M(p, m))
#define BSRI_INM_c_v5i(dst, p, m, n) dst = _mm512_cvtepi8_epi32(BSRI_L8M(p, m))
#define BSRI_SOURCES(X) X(f, v0f, v0) X(d, v0d, v0) X(f, v2f, v2) X(d, v2d, v2) X(h, v2f, v2) X(b, v2f, v2) X(c, v2i, v2) \
    X(f, v5f, v5) X(d, v5d, v5) X(h, v5f, v5) X(b, v5f, v5) X(c, v5i, v5)
#else
#define BSRI_SOURCES(X) X(f, v0f, v0) X(d, v0d, v0)
#endif

/* Dots of blocks whose rows fill no more than a vector: MR rows of sums, one vector each, two entries at a time; lanes are added
   up at the end. */
#define BSRI_MANY_1(X, S, ISA, s) X(S, ISA, s, 0)
#define BSRI_MANY_2(X, S, ISA, s) BSRI_MANY_1(X, S, ISA, s) X(S, ISA, s, 1)
#define BSRI_MANY_3(X, S, ISA, s) BSRI_MANY_2(X, S, ISA, s) X(S, ISA, s, 2)
#define BSRI_MANY_4(X, S, ISA, s) BSRI_MANY_3(X, S, ISA, s) X(S, ISA, s, 3)
#define BSRI_MANY_6(X, S, ISA, s) BSRI_MANY_4(X, S, ISA, s) X(S, ISA, s, 4) X(S, ISA, s, 5)
/* The lanes of a mask; full: that is all of them. AVX2's masked loads that cross lines of the cache take long. */
#define BSRI_SOME_v2(S, dst, p, m, full)            \
    if (full) dst = BSRI_LOAD_##S(p);               \
    else BSRI_LOADM_##S(dst, p, m)
#define BSRI_SOME_v3(S, dst, p, m, full) BSRI_LOADM_##S(dst, p, m)
#define BSRI_SOME_v5 BSRI_SOME_v3
#define BSRI_D_ZERO(S, ISA, s, m) BSRI_V_##S s##m = BSRI_LOAD_##S(zeros);
#define BSRI_D_FMA(S, ISA, s, m)                                    \
    {                                                               \
        BSRI_V_##S v;                                               \
        BSRI_SOME_##ISA(S, v, a##s + m * am, mask##s, full##s);     \
        s##m = BSRI_FMA_##S(v, x##s, s##m);                         \
    }
#define BSRI_D_ADD(S, ISA, s, m) c[m] += bsri_sum_##S(BSRI_FMA_##S(one, d##m, e##m));
#define BSRI_D_ENTRY(S, ISA, s, MR, p, m, all)                                        \
    const BSRI_T_##S *a##s = (const BSRI_T_##S *)pa + BSRI_F_A(p);                    \
    const BSRI_M_##S mask##s = m;                                                     \
    const int full##s = all;                                                          \
    BSRI_V_##S x##s;                                                                  \
    BSRI_SOME_##ISA(S, x##s, (const BSRI_T_##S *)pb + BSRI_F_B(p), mask##s, full##s); \
    BSRI_MANY_##MR(BSRI_D_FMA, S, ISA, s)                                             \
    (void)full##s;
#define BSRI_DEFINE_DOTS(S, ISA, MR)                                                                            \
    BSRI_A_##ISA static void bsri_dots_##S##_##MR(const bsri_few *f, const void *pa, const void *pb, int64_t t, \
                                                  int64_t end, BSRI_T_##S *c) {                                 \
        const BSRI_T_##S *zeros = (const BSRI_T_##S *)(const void *)bsri_zeros;                                 \
        const BSRI_W_##S one = BSRI_SET1_##S((BSRI_T_##S)1);                                                    \
        const BSRI_M_##S mask = BSRI_MASK_##S((int)f->inner), none = BSRI_MASK_##S(0);                          \
        const int64_t am = f->am;                                                                               \
        const int whole = f->inner == BSRI_L_##S;                                                               \
        int64_t i;                                                                                              \
        BSRI_F_START                                                                                            \
        for (; t < end; t++, c += MR) {                                                                         \
            const int64_t n = line[t + 1];                                                                      \
            BSRI_MANY_##MR(BSRI_D_ZERO, S, ISA, d)                                                              \
            BSRI_MANY_##MR(BSRI_D_ZERO, S, ISA, e)                                                              \
            for (i = line[t]; i < n; i += 2) {                                                                  \
                const int64_t j = i + 1 < n ? i + 1 : i;                                                        \
                BSRI_D_ENTRY(S, ISA, d, MR, i, mask, whole)                                                     \
                BSRI_D_ENTRY(S, ISA, e, MR, j, j > i ? mask : none, whole && j > i)                             \
            }                                                                                                   \
            BSRI_MANY_##MR(BSRI_D_ADD, S, ISA, d)                                                               \
        }                                                                                                       \
    }
/* Rows of any length: from a and b, one vector or the part of one that is left. */
#define BSRI_R_ROW(Q, S, m) d##m = BSRI_FMA_##S(BSRI_IN_##Q##_##S(ad + m * am + k), x, d##m);
#define BSRI_R_PART(Q, S, m)                            \
    BSRI_INM_##Q##_##S(v, ad + m * am + k, mask, tail); \
    d##m = BSRI_FMA_##S(v, x, d##m);
#define BSRI_R_1(X, Q, S) X(Q, S, 0)
#define BSRI_R_4(X, Q, S) X(Q, S, 0) X(Q, S, 1) X(Q, S, 2) X(Q, S, 3)
#define BSRI_R_REST(Q, S, MR)                               \
    for (; k < whole; k += BSRI_L_##S) {                    \
        const BSRI_V_##S x = BSRI_IN_##Q##_##S(bd + k);     \
        BSRI_R_##MR(BSRI_R_ROW, Q, S)                       \
    }                                                       \
    if (tail) {                                             \
        BSRI_V_##S x, v;                                    \
        BSRI_INM_##Q##_##S(x, bd + k, mask, tail);          \
        BSRI_R_##MR(BSRI_R_PART, Q, S)                      \
    }
/* One long row at a time: where four were read together, processors did not see what comes next. */
#define BSRI_LONG 8 /* vectors of a row */
#define BSRI_T_LONG(Q, S)                                                                                           \
    {                                                                                                               \
        BSRI_V_##S d0 = sums[r];                                                                                    \
        BSRI_V_##S d1 = BSRI_LOAD_##S(zeros), d2 = d1, d3 = d1;                                                     \
        for (k = 0; k + 3 * BSRI_L_##S < whole; k += 4 * BSRI_L_##S) {                                              \
            const BSRI_E_##Q##_##S *p = ad + k, *x = bd + k;                                                        \
            d0 = BSRI_FMA_##S(BSRI_IN_##Q##_##S(p), BSRI_IN_##Q##_##S(x), d0);                                      \
            p += BSRI_L_##S, x += BSRI_L_##S, d1 = BSRI_FMA_##S(BSRI_IN_##Q##_##S(p), BSRI_IN_##Q##_##S(x), d1);    \
            p += BSRI_L_##S, x += BSRI_L_##S, d2 = BSRI_FMA_##S(BSRI_IN_##Q##_##S(p), BSRI_IN_##Q##_##S(x), d2);    \
            p += BSRI_L_##S, x += BSRI_L_##S, d3 = BSRI_FMA_##S(BSRI_IN_##Q##_##S(p), BSRI_IN_##Q##_##S(x), d3);    \
        }                                                                                                           \
        BSRI_R_REST(Q, S, 1)                                                                                        \
        d0 = BSRI_FMA_##S(one, d1, d0), d2 = BSRI_FMA_##S(one, d3, d2), sums[r] = BSRI_FMA_##S(one, d2, d0);        \
    }
/* Many rows: entry by entry, four rows at a time, so that a's values are read in the order in which they stand; the sums wait in
   memory. */
#define BSRI_DEFINE_TALL(Q, S, ISA)                                                                                       \
    BSRI_A_##ISA static void bsri_tall_##Q##_##S(const bsri_few *f, const void *pa, const void *pb, int64_t t,            \
                                                 int64_t end, BSRI_T_##S *c) {                                            \
        const BSRI_T_##S *zeros = (const BSRI_T_##S *)(const void *)bsri_zeros;                                           \
        const BSRI_W_##S one = BSRI_SET1_##S((BSRI_T_##S)1);                                                              \
        const int64_t am = f->am, whole = f->inner - f->tail, rows = f->rows;                                             \
        const int tail = (int)f->tail;                                                                                    \
        const BSRI_M_##S mask = BSRI_MASK_##S(tail);                                                                      \
        BSRI_V_##S sums[BSRI_FEW_ROWS];                                                                                   \
        int64_t i, k, r;                                                                                                  \
        BSRI_F_START                                                                                                      \
        for (; t < end; t++, c += rows) {                                                                                 \
            for (r = 0; r < rows; r++) sums[r] = BSRI_LOAD_##S(zeros);                                                    \
            for (i = line[t]; i < line[t + 1]; i++) {                                                                     \
                const BSRI_E_##Q##_##S *ad = (const BSRI_E_##Q##_##S *)pa + BSRI_F_A(i);                                  \
                const BSRI_E_##Q##_##S *bd = (const BSRI_E_##Q##_##S *)pb + BSRI_F_B(i);                                  \
                for (r = 0; r < rows && whole >= BSRI_LONG * BSRI_L_##S; r++, ad += am) BSRI_T_LONG(Q, S)                 \
                for (; r + 3 < rows; r += 4, ad += 4 * am) {                                                              \
                    BSRI_V_##S d0 = sums[r], d1 = sums[r + 1], d2 = sums[r + 2], d3 = sums[r + 3];                        \
                    k = 0;                                                                                                \
                    BSRI_R_REST(Q, S, 4)                                                                                  \
                    sums[r] = d0, sums[r + 1] = d1, sums[r + 2] = d2, sums[r + 3] = d3;                                   \
                }                                                                                                         \
                for (; r < rows; r++, ad += am) {                                                                         \
                    BSRI_V_##S d0 = sums[r];                                                                              \
                    k = 0;                                                                                                \
                    BSRI_R_REST(Q, S, 1)                                                                                  \
                    sums[r] = d0;                                                                                         \
                }                                                                                                         \
            }                                                                                                             \
            for (r = 0; r < rows; r++) c[r] += bsri_sum_##S(sums[r]);                                                     \
        }                                                                                                                 \
    }
BSRI_SOURCES(BSRI_DEFINE_TALL)
#if BSRI_X86
#define BSRI_DEFINE_SMALL_DOTS(S, ISA)                                                                                     \
    BSRI_DEFINE_DOTS(S, ISA, 1) BSRI_DEFINE_DOTS(S, ISA, 2) BSRI_DEFINE_DOTS(S, ISA, 3) BSRI_DEFINE_DOTS(S, ISA, 4)        \
    static void bsri_dots_##S(const bsri_few *f, const void *a, const void *b, int64_t t, int64_t end, BSRI_T_##S *c) {    \
        if (f->rows == 1) bsri_dots_##S##_1(f, a, b, t, end, c);                                                           \
        else if (f->rows == 2) bsri_dots_##S##_2(f, a, b, t, end, c);                                                      \
        else if (f->rows == 3) bsri_dots_##S##_3(f, a, b, t, end, c);                                                      \
        else bsri_dots_##S##_4(f, a, b, t, end, c);                                                                        \
    }
BSRI_DEFINE_SMALL_DOTS(v2f, v2)
BSRI_DEFINE_SMALL_DOTS(v2d, v2)
BSRI_DEFINE_SMALL_DOTS(v3f, v3)
BSRI_DEFINE_SMALL_DOTS(v3d, v3)
BSRI_DEFINE_DOTS(v5f, v5, 6)
BSRI_DEFINE_DOTS(v5d, v5, 6)
/* Small blocks of the types that sums are formed in have kernels of their own; 1: done by one of them. */
static int bsri_few_small_dots(int isa, int compute, const bsri_few *f, const void *a, const void *b, int64_t t, int64_t end,
                               void *c) {
    const int wide = isa == BSR_ISA_AVX512, lanes = compute == BSR_F64 ? 4 : 8;
    if (isa == BSR_ISA_PORTABLE || compute == BSR_I32 || f->at) return 0;
    if (wide && f->rows == 6 && f->inner > lanes && f->inner <= 2 * lanes) {
        if (compute == BSR_F64) bsri_dots_v5d_6(f, a, b, t, end, (double *)c);
        else bsri_dots_v5f_6(f, a, b, t, end, (float *)c);
        return 1;
    }
    if (f->inner > lanes || f->rows > 4) return 0;
    if (compute == BSR_F64) (wide ? bsri_dots_v3d : bsri_dots_v2d)(f, a, b, t, end, (double *)c);
    else (wide ? bsri_dots_v3f : bsri_dots_v2f)(f, a, b, t, end, (float *)c);
    return 1;
}
#else
static int bsri_few_small_dots(int isa, int compute, const bsri_few *f, const void *a, const void *b, int64_t t, int64_t end,
                               void *c) {
    (void)isa, (void)compute, (void)f, (void)a, (void)b, (void)t, (void)end, (void)c;
    return 0;
}
#endif

/* Sums: one column, at most a vector of rows, which are contiguous. */
#define BSRI_DEFINE_SUMS(S, ISA, NV)                                                                                       \
    BSRI_A_##ISA static void bsri_sums_##S(const bsri_few *f, const void *pa, const void *pb, int64_t t, int64_t end,      \
                                           void *pc) {                                                                     \
        const BSRI_T_##S *zeros = (const BSRI_T_##S *)(const void *)bsri_zeros;                                            \
        const BSRI_W_##S one = BSRI_SET1_##S((BSRI_T_##S)1);                                                               \
        const int64_t ak = f->ak, bk = f->bk, inner = f->inner, rows = f->rows;                                            \
        const BSRI_M_##S mask = BSRI_MASK_##S((int)rows);                                                                  \
        BSRI_T_##S lane[BSRI_L_##S], *c = (BSRI_T_##S *)pc;                                                                \
        int64_t i, k;                                                                                                      \
        BSRI_F_START                                                                                                       \
        for (; t < end; t++, c += rows) {                                                                                  \
            const int64_t n = line[t + 1];                                                                                 \
            BSRI_V_##S s0 = BSRI_LOAD_##S(zeros), s1 = s0, s2 = s0, s3 = s0, v;                                            \
            for (i = line[t]; i < n; i++) {                                                                                \
                const BSRI_T_##S *a = (const BSRI_T_##S *)pa + BSRI_F_A(i), *b = (const BSRI_T_##S *)pb + BSRI_F_B(i);     \
                if (at) {                                                                                                  \
                    const BSRI_T_##S *ahead = (const BSRI_T_##S *)pa + at[i + 16 < f->last ? i + 16 : f->last] * block;    \
                    BSRI_PREFETCH(ahead);                                                                                  \
                    BSRI_PREFETCH(ahead + block - 1);                                                                      \
                }                                                                                                          \
                for (k = 0; k + 1 < inner; k += 2, a += 2 * ak, b += 2 * bk) {                                             \
                    BSRI_LOADM_##S(v, a, mask);                                                                            \
                    s0 = BSRI_FMA_##S(BSRI_SET1_##S(b[0]), v, s0);                                                         \
                    BSRI_LOADM_##S(v, a + ak, mask);                                                                       \
                    s1 = BSRI_FMA_##S(BSRI_SET1_##S(b[bk]), v, s1);                                                        \
                }                                                                                                          \
                if (k == inner) continue;                                                                                  \
                BSRI_LOADM_##S(v, a, mask);                                                                                \
                if (i & 1) s2 = BSRI_FMA_##S(BSRI_SET1_##S(b[0]), v, s2);                                                  \
                else s3 = BSRI_FMA_##S(BSRI_SET1_##S(b[0]), v, s3);                                                        \
            }                                                                                                              \
            s0 = BSRI_FMA_##S(one, s1, s0), s2 = BSRI_FMA_##S(one, s3, s2);                                                \
            BSRI_STORE_##S(lane, BSRI_FMA_##S(one, s2, s0));                                                               \
            for (k = 0; k < rows; k++) c[k] += lane[k];                                                                    \
        }                                                                                                                  \
    }
BSRI_SETS(BSRI_DEFINE_SUMS)
#if BSRI_X86
BSRI_DEFINE_SUMS(v3f, v3, 4)
BSRI_DEFINE_SUMS(v3d, v3, 4)
#endif
static void bsri_few_sums(int isa, int compute, const bsri_few *f, const void *a, const void *b, int64_t t, int64_t end,
                          void *c) {
#if BSRI_X86
    if (isa == BSR_ISA_AVX512 && compute == BSR_F64 && f->rows <= 4) bsri_sums_v3d(f, a, b, t, end, c);
    else if (isa == BSR_ISA_AVX512 && compute == BSR_F32 && f->rows <= 8) bsri_sums_v3f(f, a, b, t, end, c);
    else
#endif
    if (compute == BSR_F64) BSRI_PICK(isa, d, bsri_sums_v, (f, a, b, t, end, c));
    else if (BSRI_HAS_SUMS_F32 && compute == BSR_F32) BSRI_PICK(isa, f, bsri_sums_v, (f, a, b, t, end, c));
    else if (BSRI_HAS_I8) BSRI_PICK(isa, i, bsri_sums_v, (f, a, b, t, end, c));
}
/* Ones: blocks of one number. */
#define BSRI_DEFINE_ONES(NAME, T)                                                                                      \
    static void NAME(const bsri_few *f, const void *pa, const void *pb, int64_t t, int64_t end, void *pc) {            \
        const T *a = (const T *)pa, *b = (const T *)pb;                                                                \
        T *c = (T *)pc;                                                                                                \
        BSRI_F_START                                                                                                   \
        for (; t < end; t++, c++) {                                                                                    \
            int64_t i = line[t];                                                                                       \
            const int64_t n = line[t + 1];                                                                             \
            T s0 = 0, s1 = 0;                                                                                          \
            for (; i + 1 < n && !list && !at && block == 1; i += 2)                                                    \
                s0 += a[i] * b[col[i] * step], s1 += a[i + 1] * b[col[i + 1] * step];                                  \
            for (; i < n; i++) s0 += a[BSRI_F_A(i)] * b[BSRI_F_B(i)];                                                  \
            *c += s0 + s1;                                                                                             \
        }                                                                                                              \
    }
BSRI_DEFINE_ONES(bsri_ones_f32, float)
BSRI_DEFINE_ONES(bsri_ones_f64, double)
/* A vector's first n lanes are stored (mask m). */
#define BSRI_PUT_v0f(p, v, m, n) memcpy(p, &(v), (size_t)(n) * 4)
#define BSRI_PUT_v0d(p, v, m, n) memcpy(p, &(v), (size_t)(n) * 8)
#define BSRI_PUT_v2f(p, v, m, n) _mm256_maskstore_ps(p, m, v)
#define BSRI_PUT_v2d(p, v, m, n) _mm256_maskstore_pd(p, m, v)
#define BSRI_PUT_v5f(p, v, m, n) _mm512_mask_storeu_ps(p, m, v)
#define BSRI_PUT_v5d(p, v, m, n) _mm512_mask_storeu_pd(p, m, v)
/* One column: what a block row's entries of A^T, each entry's rows contiguous, add to sums all over: those from element list[i].b
   of c on. */
#define BSRI_DEFINE_SPREAD(S, ISA, NV)                                                                                     \
    BSRI_A_##ISA static void bsri_spread_##S(const bsri_few *f, const void *pa, const void *pb, int64_t n, void *pc) {     \
        const int64_t ak = f->ak, bk = f->bk, inner = f->inner, whole = f->rows - f->rows % BSRI_L_##S;                    \
        const int part = (int)(f->rows % BSRI_L_##S);                                                                      \
        const BSRI_M_##S mask = BSRI_MASK_##S(part);                                                                       \
        BSRI_V_##S sum, v;                                                                                                 \
        int64_t i, k, r;                                                                                                   \
        for (i = 0; i < n; i++) {                                                                                          \
            const BSRI_T_##S *a = (const BSRI_T_##S *)pa + f->list[i].a, *b = (const BSRI_T_##S *)pb;                      \
            BSRI_T_##S *c = (BSRI_T_##S *)pc + f->list[i].b;                                                               \
            for (r = 0; r < whole; r += BSRI_L_##S) {                                                                      \
                for (sum = BSRI_LOAD_##S(c + r), k = 0; k < inner; k++)                                                    \
                    sum = BSRI_FMA_##S(BSRI_SET1_##S(b[k * bk]), BSRI_LOAD_##S(a + r + k * ak), sum);                      \
                BSRI_STORE_##S(c + r, sum);                                                                                \
            }                                                                                                              \
            if (!part) continue;                                                                                           \
            BSRI_LOADM_##S(sum, c + r, mask);                                                                              \
            for (k = 0; k < inner; k++) {                                                                                  \
                BSRI_LOADM_##S(v, a + r + k * ak, mask);                                                                   \
                sum = BSRI_FMA_##S(BSRI_SET1_##S(b[k * bk]), v, sum);                                                      \
            }                                                                                                              \
            BSRI_PUT_##S(c + r, sum, mask, part);                                                                          \
        }                                                                                                                  \
    }
BSRI_DEFINE_SPREAD(v0f, v0, 2)
BSRI_DEFINE_SPREAD(v0d, v0, 2)
#if BSRI_X86
BSRI_DEFINE_SPREAD(v2f, v2, 2)
BSRI_DEFINE_SPREAD(v2d, v2, 2)
BSRI_DEFINE_SPREAD(v5f, v5, 8)
BSRI_DEFINE_SPREAD(v5d, v5, 8)
#endif
/* Few rows, number by number: a vector that is loaded beside one just stored would have to wait for it. */
#define BSRI_DEFINE_SPREAD_LITTLE(NAME, T)                                                                \
    static void NAME(const bsri_few *f, const void *pa, const void *pb, int64_t n, void *pc) {          \
        const int64_t ak = f->ak, bk = f->bk, inner = f->inner, rows = f->rows;                           \
        const T *b = (const T *)pb;                                                                       \
        int64_t i, k, r;                                                                                  \
        for (i = 0; i < n; i++) {                                                                         \
            const T *a = (const T *)pa + f->list[i].a;                                                    \
            T *c = (T *)pc + f->list[i].b, sum;                                                           \
            if (rows == 3 && inner == 3) {                                                                \
                const T *a1 = a + ak, *a2 = a1 + ak, x0 = b[0], x1 = b[bk], x2 = b[2 * bk];               \
                c[0] += a[0] * x0 + a1[0] * x1 + a2[0] * x2, c[1] += a[1] * x0 + a1[1] * x1 + a2[1] * x2; \
                c[2] += a[2] * x0 + a1[2] * x1 + a2[2] * x2;                                              \
                continue;                                                                                 \
            }                                                                                             \
            for (r = 0; r < rows; r++) {                                                                  \
                for (sum = c[r], k = 0; k < inner; k++) sum += a[r + k * ak] * b[k * bk];                 \
                c[r] = sum;                                                                               \
            }                                                                                             \
        }                                                                                                 \
    }
BSRI_DEFINE_SPREAD_LITTLE(bsri_spread_f32, float)
BSRI_DEFINE_SPREAD_LITTLE(bsri_spread_f64, double)
static void bsri_few_spread(int isa, int compute, const bsri_few *f, const void *a, const void *b, int64_t n, void *c) {
    if (f->rows <= 3 && compute == BSR_F64) bsri_spread_f64(f, a, b, n, c);
    else if (f->rows <= 3) bsri_spread_f32(f, a, b, n, c);
    else if (compute == BSR_F64) BSRI_PICK(isa, d, bsri_spread_v, (f, a, b, n, c));
    else if (BSRI_HAS_SUMS_F32) BSRI_PICK(isa, f, bsri_spread_v, (f, a, b, n, c));
}
/* Lanes of a vector. */
static int bsri_lanes(int isa, int compute) {
    const int size = compute == BSR_F64 ? 8 : 4;
#if BSRI_X86
    if (isa >= BSR_ISA_AVX2) return (isa == BSR_ISA_AVX512 ? 64 : 32) / size;
#endif
    (void)isa;
    return compute == BSR_F64 ? BSRI_L_v0d : size == 4 ? BSRI_L_v0f : 1;
}
/* Can dots read this type where it is? What they can't is packed for them, but integers. */
static int bsri_dots_read(int isa, int compute, int dtype) {
    if (dtype == compute) return compute != BSR_I32;
    return BSRI_X86 && isa >= BSR_ISA_AVX2 && compute != BSR_F64 && (dtype == BSR_F16 || dtype == BSR_BF16 || dtype == BSR_I8);
}
static void bsri_few_dots(int isa, int compute, int dtype, bsri_few *f, const void *a, const void *b, int64_t t, int64_t end,
                          void *c) {
    if (dtype == compute && bsri_few_small_dots(isa, compute, f, a, b, t, end, c)) return;
    f->tail = f->inner % bsri_lanes(isa, compute);
    if (compute == BSR_F64) BSRI_PICK(isa, d, bsri_tall_d_v, (f, a, b, t, end, (double *)c));
#if BSRI_X86
#define BSRI_PICK_WIDE(NAME, type, args)               \
    do {                                               \
        if (isa == BSR_ISA_AVX512) NAME##5##type args; \
        else NAME##2##type args;                       \
    } while (0)
    else if (BSRI_HAS_F16 && dtype == BSR_F16) BSRI_PICK_WIDE(bsri_tall_h_v, f, (f, a, b, t, end, (float *)c));
    else if (BSRI_HAS_BF16 && dtype == BSR_BF16) BSRI_PICK_WIDE(bsri_tall_b_v, f, (f, a, b, t, end, (float *)c));
    else if (BSRI_HAS_I8 && dtype == BSR_I8) BSRI_PICK_WIDE(bsri_tall_c_v, i, (f, a, b, t, end, (uint32_t *)c));
#endif
    else if (BSRI_HAS_SUMS_F32) BSRI_PICK(isa, f, bsri_tall_f_v, (f, a, b, t, end, (float *)c));
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-engine: lists of block products, one epilogue                                        */
/* ---------------------------------------------------------------------------------------------- */

/* out = act(beta*input + left (alpha * sum of listed products) right + bias), checked by the caller.
   The batch shape is the broadcast of all operands. Items that fall on one item of out (out has size 1 or no such dimension
   there) are summed before the epilogue, in a fixed order: the gradient of a broadcast operand. */
typedef struct bsri_product {
    const bsr_matrix *a;                /* the block matrix; null with scatter */
    int32_t trans;                      /* op(A) = A^T: by a->transposed_index, or without it by a scan of all blocks */
    int32_t compute;                    /* BSR_F32, BSR_F64 or BSR_I32 */
    int32_t isa, reserved;              /* the plan's kernel; 0: the context's */
    bsri_batch batch;                   /* of the whole problem (SCATTER_MM format: ignored) */
    const bsr_dense *b, *out;           /* b: K x N; out: M x N */
    const bsr_dense *input;             /* may be null when beta == 0; broadcasts to out */
    const bsr_epilogue *epilogue;       /* null: none. alpha_ptr and beta_ptr are not looked at */
    double alpha, beta;                 /* as resolved by the caller */
    const bsr_scatter_indices *scatter; /* not null: blocks, scatter say what is multiplied; b is others, out accumulators */
    const bsr_dense *blocks;
    void *workspace; /* A^T without an index: for its sums; null: there is none */
    uint64_t workspace_bytes;
} bsri_product;
static void bsri_product_run(const bsr_context *ctx, const bsri_product *job);

#if defined(__GNUC__)
#define BSRI_ALIGN64 __attribute__((aligned(64)))
#else
#define BSRI_ALIGN64
#endif
#define BSRI_TILE_ROWS 64   /* rows of an output tile at most */
#define BSRI_TILE_BYTES 256 /* of one row of it: 64 f32 or 32 f64 columns, four AVX-512 vectors */
#define BSRI_DEPTH_BYTES 256 /* products gathered per walk, times the element size: 16 KB of packed b stay in L1 */
#define BSRI_LIST 128
#define BSRI_AHEAD 3 /* pairs between a prefetch and its use, where blocks are small; else one walk */

/* --- the epilogue: one tile of sums becomes output --- */
typedef struct bsri_vector { /* left, right, bias, input: read where they are, one line of the tile at a time */
    const char *data;        /* null: absent */
    int dtype;
    int64_t rs, cs;
} bsri_vector;
typedef struct bsri_finish {
    int isa, compute, type; /* type: what the epilogue computes in; f32 for i8 operands with a float output */
    int plain;              /* nothing but alpha and a store */
    double alpha, beta;
    const bsr_epilogue *last; /* where something is done to an element when all terms are added; or null */
    bsri_vector input, left, right, bias;
    char *out;
    int out_dtype;
    int64_t rs, cs;
    bsr_position at; /* of the tile's first element */
} bsri_finish;

static int bsri_finish_type(int compute, int out_dtype) {
    return compute == BSR_I32 && (BSRI_BIT(out_dtype) & BSRI_FLOATS) ? BSR_F32 : compute;
}
BSRI_HD static float bsri_activate_user(int activation, float x, const bsr_position *at, const void *user) {
    switch (activation) {
#ifdef BSR_USER_EPILOGUES
#define BSRI_X(name) case BSR_EPILOGUE_##name: return name(x, at, user);
        BSR_USER_EPILOGUES(BSRI_X)
#undef BSRI_X
#endif
        default: (void)at, (void)user; return x;
    }
}
BSRI_HD static float bsri_activate_f32(int activation, float x, const bsr_position *at, const void *user) {
    switch (activation) {
        case BSR_ACT_RELU: return x <= 0 ? 0.0f : x;
        case BSR_ACT_GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
        case BSR_ACT_GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
        case BSR_ACT_SILU: return x / (1.0f + expf(-x));
        default: return bsri_activate_user(activation, x, at, user);
    }
}
BSRI_HD static double bsri_activate_f64(int activation, double x, const bsr_position *at, const void *user) {
    switch (activation) {
        case BSR_ACT_RELU: return x <= 0 ? 0.0 : x;
        case BSR_ACT_GELU: return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
        case BSR_ACT_GELU_TANH: return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        case BSR_ACT_SILU: return x / (1.0 + exp(-x));
        default: return (double)bsri_activate_f32(activation, (float)x, at, user);
    }
}
/* What is done to an element when all terms are added; the same for kernels: bsri_last_step(). */
static int bsri_epilogue_ends(const bsr_epilogue *e) { return e->activation != BSR_ACT_NONE; }
static void bsri_activate_row(const bsri_finish *f, void *x, int64_t n, bsr_position at, int transposed) {
    const int activation = f->last->activation;
    int64_t i;
    for (i = 0; i < n; i++) {
        if (f->type == BSR_F32) {
            float *v = (float *)x + i;
            *v = bsri_activate_f32(activation, *v, &at, f->last->user_data);
        } else if (f->type == BSR_F64) {
            double *v = (double *)x + i;
            *v = bsri_activate_f64(activation, *v, &at, f->last->user_data);
        } else {
            int32_t *v = (int32_t *)x + i;
            if (activation == BSR_ACT_RELU && *v < 0) *v = 0;
        }
        if (transposed) at.row++;
        else at.col++;
    }
}
/* A vector's line to `type`: at once where it has one for the whole tile, else line by line. */
static const void *bsri_vector_line(const bsri_finish *f, const bsri_vector *v, int64_t line, int64_t n, int64_t ls, int64_t es,
                                    void *row) {
    if (line == 0 || ls != 0) bsri_row_load(f->isa, f->type, row, bsri_at(v->data, v->dtype, line * ls), v->dtype, es, n);
    return row;
}
/* Finishes lines of n sums each; with transposed the lines are columns of the output. x is overwritten. */
static void bsri_finish_lines(const bsri_finish *f, char *x, int64_t ldx, int64_t lines, int64_t n, int transposed) {
    BSRI_ALIGN64 double across_row[BSRI_TILE_BYTES / 4], bias_row[BSRI_TILE_BYTES / 4], input_row[BSRI_TILE_BYTES / 4];
    const bsri_vector *along = transposed ? &f->right : &f->left, *across = transposed ? &f->left : &f->right;
    const int64_t out_ls = transposed ? f->cs : f->rs, out_es = transposed ? f->rs : f->cs;
    const int isa = f->isa, type = f->type;
    int64_t i, j;
    bsr_position at = f->at;
    for (i = 0; i < lines; i++) {
        char *row = bsri_at(x, f->compute, i * ldx);
        if (!f->plain && type != f->compute)
            for (j = 0; j < n; j++) {
                const float v = (float)((const int32_t *)(void *)row)[j];
                memcpy(row + 4 * j, &v, 4);
            }
        if (f->alpha != 1.0) bsri_row_scale(isa, type, row, n, f->alpha);
        if (!f->plain) {
            if (along->data)
                bsri_row_scale(isa, type, row, n,
                               bsri_load_f64(along->data, along->dtype, i * (transposed ? along->cs : along->rs)));
            if (across->data)
                bsri_row_op(isa, type, BSRI_TIMES, row,
                            bsri_vector_line(f, across, i, n, 0, transposed ? across->rs : across->cs, across_row), 0.0, n);
            if (f->input.data)
                bsri_row_op(isa, type, BSRI_ADD_SCALED, row,
                            bsri_vector_line(f, &f->input, i, n, transposed ? f->input.cs : f->input.rs,
                                             transposed ? f->input.rs : f->input.cs, input_row), f->beta, n);
            if (f->bias.data)
                bsri_row_op(isa, type, BSRI_ADD_SCALED, row,
                            bsri_vector_line(f, &f->bias, i, n, transposed ? f->bias.cs : f->bias.rs,
                                             transposed ? f->bias.rs : f->bias.cs, bias_row), 1.0, n);
            if (f->last) bsri_activate_row(f, row, n, at, transposed);
        }
        bsri_row_store(isa, type, bsri_at(f->out, f->out_dtype, i * out_ls), f->out_dtype, out_es, row, n);
        if (transposed) at.col++;
        else at.row++;
    }
}
/* A column-major output is finished from a transposed copy in spare, so that every store is contiguous. */
static void bsri_finish_tile(const bsri_finish *f, void *sums, int64_t ldc, int64_t rows, int64_t cols, void *spare) {
    if (f->rs == 1 && rows > 1 && (f->cs != 1 || cols == 1)) {
        const int64_t ld = (rows + 15) / 16 * 16;
        bsri_tile_load(f->isa, f->compute, spare, ld, sums, f->compute, cols, rows, 1, ldc);
        bsri_finish_lines(f, (char *)spare, ld, cols, rows, 1);
    } else {
        bsri_finish_lines(f, (char *)sums, ldc, rows, cols, 0);
    }
}

/* --- accumulating: pairs are gathered, packed where they must be, and walked --- */
typedef struct bsri_side { /* one side of the products */
    int dtype, direct; /* direct: the kernel reads it where it is */
    int64_t size;      /* bytes per element */
    int64_t rs, cs;
} bsri_side;
enum { BSRI_FEW_COLS = 16, BSRI_FEW_LINE = BSRI_TILE_ROWS + BSRI_LANES_MAX };
enum { BSRI_FEW_NONE, BSRI_FEW_ONES, BSRI_FEW_DOTS, BSRI_FEW_SUMS, BSRI_FEW_TURNED }; /* turned: of the transposed product */
typedef struct bsri_work {
    int isa, compute;
    bsri_side a, b;
    int64_t rows, cols, inner; /* of the tile; products per pair */
    int64_t panel;             /* columns that a row of c_tile and b_pack has */
    int64_t depth, limit;      /* products per walk; pairs per walk */
    int64_t first;             /* row of c_tile that the tile starts at: small tiles that follow each other share it */
    int few;                   /* BSRI_FEW_*: how few columns are multiplied. But with _NONE column n of the sums is a line of */
    bsri_few job;              /* c_tile, BSRI_FEW_LINE numbers long */
    bsri_walk walk;
    bsri_pair list[BSRI_LIST];
    BSRI_ALIGN64 double c_tile[BSRI_TILE_ROWS * BSRI_TILE_BYTES / 8];
    BSRI_ALIGN64 double b_pack[64 * BSRI_TILE_BYTES / 8];
    BSRI_ALIGN64 double a_pack[BSRI_TILE_ROWS * BSRI_DEPTH_BYTES / 8];
} bsri_work;

static void bsri_side_set(bsri_side *s, int compute, int dtype, int64_t rs, int64_t cs) {
    s->dtype = dtype, s->direct = dtype == compute && compute != BSR_I32;
    s->size = (int64_t)bsr_dtype_size(dtype), s->rs = rs, s->cs = cs;
}
static int64_t bsri_tile_cols(int compute) { return BSRI_TILE_BYTES / (int64_t)bsr_dtype_size(compute); }

/* A tile of rows x cols sums starts. */
static void bsri_work_begin(bsri_work *w, int64_t first, int64_t rows, int64_t cols, int64_t inner) {
    int64_t n;
    w->first = first, w->rows = rows, w->cols = cols, w->inner = inner;
    if (w->few) {
        for (n = 0; n < cols; n++)
            memset(bsri_at(w->c_tile, w->compute, n * BSRI_FEW_LINE + first), 0, (size_t)rows * bsr_dtype_size(w->compute));
        w->depth = BSRI_DEPTH_BYTES / (int64_t)bsr_dtype_size(w->compute);
        w->limit = bsri_max(1, bsri_min(BSRI_LIST, w->depth / inner));
        w->walk.a_at = w->walk.b_at = 0;
        return;
    }
    w->depth = BSRI_DEPTH_BYTES / (int64_t)bsr_dtype_size(w->compute);
    if (w->panel > bsri_tile_cols(w->compute)) w->depth = w->depth * bsri_tile_cols(w->compute) / w->panel;
    w->walk.count = 0, w->walk.add = 0, w->walk.a_at = w->walk.b_at = 0, w->walk.list = w->list;
    w->walk.ldc = w->panel;
    w->walk.kc = bsri_min(inner, w->depth);
    w->limit = bsri_max(1, bsri_min(BSRI_LIST, w->depth / w->walk.kc));
    /* few rows: everything stays in registers, nothing is read twice */
    if (rows <= 6 && w->a.direct && w->b.direct && inner <= w->depth) w->limit = BSRI_LIST;
}
static void bsri_work_flush(bsri_work *w) {
    bsri_walk *k = &w->walk;
    if (w->few || (k->count == 0 && k->add)) return;
    if (k->count == 0) k->am = k->ak = k->ldb = k->a_at = k->b_at = 0; /* no product: zeros are stored, no a and b were named */
    bsri_tile_walk(w->isa, w->compute, k, w->rows, w->cols, bsri_at(w->c_tile, w->compute, w->first * w->panel));
    k->count = 0, k->add = 1;
}
/* The a side of one pair, kc products from a on: as it is, or in slot of a_pack with the contiguous direction kept. */
static const void *bsri_work_a(bsri_work *w, const char *a, int64_t kc) {
    bsri_walk *k = &w->walk;
    void *slot = bsri_at(w->a_pack, w->compute, k->count * w->rows * kc);
    if (w->a.direct) {
        k->am = w->a.rs, k->ak = w->a.cs;
        return a;
    }
    if (w->a.cs == 1 && w->a.rs == kc) { /* packed blocks: one long row */
        k->am = kc, k->ak = 1;
        bsri_tile_load(w->isa, w->compute, slot, 0, a, w->a.dtype, 1, w->rows * kc, 0, 1);
    } else if (w->a.rs == 1 && w->a.cs == w->rows) {
        k->am = 1, k->ak = w->rows;
        bsri_tile_load(w->isa, w->compute, slot, 0, a, w->a.dtype, 1, w->rows * kc, 0, 1);
    } else if (w->a.rs == 1 && w->a.cs != 1) {
        k->am = 1, k->ak = w->rows;
        bsri_tile_load(w->isa, w->compute, slot, w->rows, a, w->a.dtype, kc, w->rows, w->a.cs, w->a.rs);
    } else {
        k->am = kc, k->ak = 1;
        bsri_tile_load(w->isa, w->compute, slot, kc, a, w->a.dtype, w->rows, kc, w->a.rs, w->a.cs);
    }
    return slot;
}
static const void *bsri_work_b(bsri_work *w, const char *b, int64_t kc) {
    bsri_walk *k = &w->walk;
    const int64_t ld = w->panel;
    void *slot = bsri_at(w->b_pack, w->compute, k->count * ld * kc);
    if (w->b.direct) {
        k->ldb = w->b.rs;
        return b;
    }
    k->ldb = ld;
    bsri_tile_load(w->isa, w->compute, slot, ld, b, w->b.dtype, kc, w->cols, w->b.rs, w->b.cs);
    return slot;
}
/* sums += a b: a rows x inner, b inner x cols. Long products are cut, so that what is packed stays in L1. */
static void bsri_work_add(bsri_work *w, const char *a, const char *b, const char *next_a, const char *next_b) {
    int64_t k, kc;
    for (k = 0; k < w->inner; k += kc) {
        bsri_walk *walk = &w->walk;
        kc = bsri_min(w->depth, w->inner - k);
        if (kc != walk->kc) bsri_work_flush(w);
        walk->kc = kc;
        w->list[walk->count].a = bsri_work_a(w, bsri_at(a, w->a.dtype, k * w->a.cs), kc);
        w->list[walk->count].ahead_a = k + kc < w->inner ? bsri_at(a, w->a.dtype, (k + kc) * w->a.cs) : next_a;
        w->list[walk->count].ahead_b = k + kc < w->inner ? bsri_at(b, w->b.dtype, (k + kc) * w->b.rs) : next_b;
        w->list[walk->count].b = bsri_work_b(w, bsri_at(b, w->b.dtype, k * w->b.rs), kc);
        if (++walk->count == w->limit || w->inner > w->depth) bsri_work_flush(w);
    }
}

/* Few columns: entries of f->inner products each, a and b as they were read or packed; b's columns are bn apart. */
static void bsri_few_turned(bsri_work *w, const char *a, int64_t a_size, int64_t ak, const char *b, int64_t b_size, int64_t bk,
                            int64_t bn, const bsri_entry *list, int n, int64_t kc) {
    bsri_walk *k = &w->walk;
    int i;
    for (i = 0; i < n; i++) {
        const bsri_entry *next = list + (i + BSRI_AHEAD < n ? i + BSRI_AHEAD : n - 1);
        bsri_pair *pair = w->list + i;
        pair->a = b + list[i].b * b_size, pair->b = a + list[i].a * a_size;
        pair->ahead_a = b + next->b * b_size, pair->ahead_b = a + next->a * a_size;
    }
    k->list = w->list, k->count = n, k->kc = kc, k->am = bn, k->ak = bk, k->ldb = ak, k->ldc = BSRI_FEW_LINE, k->add = 1;
    bsri_tile_walk(w->isa, w->compute, k, w->cols, w->rows, bsri_at(w->c_tile, w->compute, w->first));
}
/* Lines t to end of the index, or the one line that a list is. */
static void bsri_few_run(bsri_work *w, int dtype, const char *a, const char *b, int64_t bn, int64_t t, int64_t end) {
    const int64_t size = (int64_t)bsr_dtype_size(dtype);
    bsri_few *f = &w->job;
    int64_t j;
    f->rows = w->rows;
    for (j = 0; j < w->cols; j++, b += bn * size) {
        void *c = bsri_at(w->c_tile, w->compute, j * BSRI_FEW_LINE + w->first);
        if (w->few == BSRI_FEW_SUMS) bsri_few_sums(w->isa, w->compute, f, a, b, t, end, c);
        else if (w->few == BSRI_FEW_DOTS) bsri_few_dots(w->isa, w->compute, dtype, f, a, b, t, end, c);
        else if (w->compute == BSR_F64) bsri_ones_f64(f, a, b, t, end, c);
        else bsri_ones_f32(f, a, b, t, end, c);
    }
}
static void bsri_few_run_list(bsri_work *w, int dtype, const char *a, const char *b, int64_t bn, const bsri_entry *list, int n) {
    const int64_t size = (int64_t)bsr_dtype_size(dtype);
    bsri_few *f = &w->job;
    int32_t line[2];
    line[0] = 0, line[1] = n;
    f->line = line, f->list = list, f->at = f->col = NULL, f->block = f->step = f->last = 0;
    if (w->few == BSRI_FEW_TURNED) bsri_few_turned(w, a, size, f->ak, b, size, f->bk, bn, list, n, f->inner);
    else bsri_few_run(w, dtype, a, b, bn, 0, 1);
}
/* Both sides are read where they are, or what is not is packed: op(A)'s blocks with their contiguous direction kept, b's columns
   one after another. */
static void bsri_few_list(bsri_work *w, const char *a, const char *b, const bsri_entry *list, int n) {
    const int dots = w->few <= BSRI_FEW_DOTS;
    bsri_few *f = &w->job;
    bsri_entry packed[BSRI_LIST];
    int64_t k, kc, limit;
    int i, j, count;
    f->am = w->a.rs, f->ak = w->a.cs, f->bk = w->b.rs, f->inner = w->inner;
    if (w->a.direct && w->b.direct) {
        bsri_few_run_list(w, w->a.dtype, a, b, w->b.cs, list, n);
        return;
    }
    for (k = 0; k < w->inner; k += kc) {
        kc = bsri_min(w->depth, w->inner - k), limit = kc == w->inner ? w->limit : 1;
        for (i = 0; i < n; i += count) {
            count = (int)bsri_min(limit, n - i);
            for (j = 0; j < count; j++) {
                const char *from = a + (list[i + j].a + k * w->a.cs) * w->a.size;
                const char *to = b + (list[i + j].b + k * w->b.rs) * w->b.size;
                packed[j].a = w->a.direct ? list[i + j].a + k * w->a.cs : j * w->rows * kc;
                packed[j].b = w->b.direct ? list[i + j].b + k * w->b.rs : j * w->cols * kc;
                if (!w->a.direct && dots && w->a.rs == kc && w->a.cs == 1)
                    bsri_tile_load(w->isa, w->compute, bsri_at(w->a_pack, w->compute, packed[j].a), 0, from, w->a.dtype, 1,
                                   w->rows * kc, 0, 1);
                else if (!w->a.direct)
                    bsri_tile_load(w->isa, w->compute, bsri_at(w->a_pack, w->compute, packed[j].a), dots ? kc : w->rows, from,
                                   w->a.dtype, dots ? w->rows : kc, dots ? kc : w->rows, dots ? w->a.rs : w->a.cs,
                                   dots ? w->a.cs : w->a.rs);
                if (!w->b.direct)
                    bsri_tile_load(w->isa, w->compute, bsri_at(w->b_pack, w->compute, packed[j].b), kc, to, w->b.dtype, w->cols,
                                   kc, w->b.cs, w->b.rs);
            }
            f->inner = kc;
            if (!w->a.direct) f->am = dots ? kc : 1, f->ak = dots ? 1 : w->rows;
            if (!w->b.direct) f->bk = 1;
            bsri_few_run_list(w, w->compute, w->a.direct ? a : (const char *)w->a_pack, w->b.direct ? b : (const char *)w->b_pack,
                              w->b.direct ? w->b.cs : kc, packed, count);
        }
    }
}
/* n entries at once. Pairs that are read in place and uncut need no more than their addresses. */
static void bsri_work_list(bsri_work *w, const char *a, const char *b, const bsri_entry *list, int n) {
    const int ahead = w->limit < BSRI_LIST ? (int)w->limit : BSRI_AHEAD;
    const int64_t a_size = w->a.size, b_size = w->b.size;
    bsri_walk *walk = &w->walk;
    int i;
    if (w->few) {
        bsri_few_list(w, a, b, list, n);
        return;
    }
    if (w->a.direct && w->b.direct && w->inner <= w->depth) {
        bsri_pair *pair = w->list + walk->count;
        walk->am = w->a.rs, walk->ak = w->a.cs, walk->ldb = w->b.rs;
        for (i = 0; i < n; i++) {
            const bsri_entry *next = list + (i + ahead < n ? i + ahead : n - 1);
            pair->a = a + list[i].a * a_size, pair->b = b + list[i].b * b_size;
            pair->ahead_a = a + next->a * a_size, pair->ahead_b = b + next->b * b_size;
            pair++;
            if (++walk->count == w->limit) bsri_work_flush(w), pair = w->list;
        }
        return;
    }
    for (i = 0; i < n; i++) {
        const bsri_entry *next = list + (i + ahead < n ? i + ahead : n - 1);
        bsri_work_add(w, a + list[i].a * a_size, b + list[i].b * b_size, a + next->a * a_size, b + next->b * b_size);
    }
}

/* --- the list of products of one output tile --- */
enum { BSRI_LIST_ROWS, BSRI_LIST_TRANSPOSED, BSRI_LIST_SCAN, BSRI_LIST_SCATTER, BSRI_LIST_STRIDED, BSRI_LIST_COMPRESSED };
typedef struct bsri_engine {
    const bsri_product *job;
    int isa, kind, type;
    int64_t br, bc;                    /* rows and products of an op(A) block */
    int64_t a_block, a_rs, a_cs, b_rs; /* element strides of op(A)'s blocks, of b's rows */
    int64_t tiles, width;              /* output tiles per item, their columns */
    int64_t items, reduce;             /* output items; problem items that are summed into each */
    int64_t panel, panels;             /* a tile is cut into panels of columns */
    int64_t subs, sub_rows;            /* and subs of rows */
    int64_t places;                    /* tiles in the order of the schedule, which may pad */
    int64_t chunk, chunks;             /* subs of tiles per task; tasks per panel */
    int64_t gather;                    /* tiles that follow each other and are finished at once */
    int few;                           /* BSRI_FEW_* */
    bsri_batch out_batch, b_batch;     /* of out; of others' tiles (SCATTER_MM) */
    bsri_view index, schedule;         /* bytes 0: absent */
    int64_t group;
} bsri_engine;
/* A place in the list: index arrays of the item and what is left. */
typedef struct bsri_cursor {
    const void *crow, *col, *row, *position;
    char *values, *b; /* first value of the item; b's first element of the panel */
    int64_t at, end, extra;
} bsri_cursor;

/* Problem item number r of those that fall on output item o. */
BSRI_HD static int64_t bsri_reduce_item(const bsri_batch *whole, const bsri_batch *out, int64_t o, int64_t r) {
    int64_t item = 0, scale = 1;
    int d = whole->dims - 1, i = out->dims - 1;
    BSRI_ROLLED
    for (; d >= 0; d--, i--) { /* out's size is the same, or 1 */
        const int64_t size = whole->size[d];
        const int own = size == (i >= 0 ? out->size[i] : 1);
        const int64_t from = own ? o : r, outer = bsri_divide(from, size);
        item += (from - outer * size) * scale, scale *= size;
        if (own) o = outer;
        else r = outer;
    }
    return item;
}
static int64_t bsri_reduce_count(const bsri_batch *whole, const bsri_batch *out) {
    int64_t n = whole->count ? 1 : 0; /* else the product of some sizes may not fit */
    int d = whole->dims - 1, i = out->dims - 1;
    for (; n && d >= 0; d--, i--)
        if (whole->size[d] != (i >= 0 ? out->size[i] : 1)) n *= whole->size[d];
    return n;
}
/* A step of the sum that makes an item of out: a pair of operands, and which problem item of them. A sum over more than one pair
   is a longer list of steps. */
typedef struct bsri_sum_step {
    const bsr_matrix *a; /* null: tiles of scatter_mm */
    const bsr_dense *b;
    int64_t item;
} bsri_sum_step;
static bsri_sum_step bsri_step_of(const bsri_engine *e, int64_t item, int64_t r) {
    bsri_sum_step s;
    s.a = e->job->a, s.b = e->job->b;
    s.item = e->kind == BSRI_LIST_SCATTER ? 0 : bsri_reduce_item(&e->job->batch, &e->out_batch, item, r);
    return s;
}
static void bsri_cursor_matrix(const bsri_engine *e, bsri_cursor *c, const bsri_sum_step *s, int64_t tile) {
    const bsr_matrix *m = s->a;
    const bsri_item it = bsri_matrix_item(&e->job->batch, s->item, m);
    const int dt = m->index_dtype, ragged = (m->flags & BSR_MATRIX_RAGGED) != 0;
    c->crow = it.crow, c->col = it.col, c->values = it.values;
    if (e->kind == BSRI_LIST_ROWS) {
        c->at = bsri_index(it.crow, dt, tile), c->end = bsri_index(it.crow, dt, tile + 1);
    } else if (e->kind == BSRI_LIST_TRANSPOSED) {
        const char *view = (const char *)m->transposed_index;
        const void *ccol = bsri_at(view + e->index.at[0], dt, it.pattern * (bsri_block_cols(m) + 1));
        const int64_t shift = ragged ? 0 : it.pattern * e->index.entries;
        c->crow = ccol, c->row = bsri_at(view + e->index.at[1], dt, shift);
        c->position = bsri_at(view + e->index.at[2], dt, shift);
        c->at = bsri_index(ccol, dt, tile), c->end = bsri_index(ccol, dt, tile + 1);
    } else { /* BSRI_LIST_SCAN: extra is the block row of entry at */
        c->at = bsri_index(it.crow, dt, 0), c->end = bsri_index(it.crow, dt, bsri_block_rows(m));
    }
}
static void bsri_cursor_scatter(const bsri_engine *e, bsri_cursor *c, int64_t tile) {
    const bsr_scatter_indices *s = e->job->scatter;
    c->values = (char *)e->job->blocks->data;
    if (e->kind == BSRI_LIST_COMPRESSED) {
        const int64_t n = e->job->out->cols, m = s->r_offsets[tile] / n / e->br, j = s->r_offsets[tile] % n / e->width;
        const int64_t c0 = s->c_indices[m], c1 = s->c_indices[m + 1], split = n / e->width;
        c->at = c0, c->end = c1, c->extra = j * c1 + (split - j) * c0 - c0; /* q = extra + entry */
    } else {
        c->at = s->c_indices[tile], c->end = s->c_indices[tile + 1];
    }
}
/* Up to BSRI_LIST entries more; returns how many. */
static int bsri_cursor_next(const bsri_engine *e, bsri_cursor *c, int64_t tile, bsri_entry *list) {
    const bsri_product *job = e->job;
    const int64_t step = e->bc * e->b_rs, limit = bsri_min(BSRI_LIST, c->end - c->at);
    const int dt = job->a ? job->a->index_dtype : BSR_I64;
    int n = 0;
    if (e->kind == BSRI_LIST_SCAN) {
        for (; c->at < c->end && n < BSRI_LIST; c->at++) {
            while (bsri_index(c->crow, dt, c->extra + 1) <= c->at) c->extra++;
            if (bsri_index(c->col, dt, c->at) == tile) list[n].a = c->at * e->a_block, list[n++].b = c->extra * step;
        }
        return n;
    }
    if (e->kind == BSRI_LIST_ROWS && dt == BSR_I32) { /* where small blocks spend their time */
        const int32_t *col = (const int32_t *)c->col + c->at;
        for (; n < limit; n++) list[n].a = (c->at + n) * e->a_block, list[n].b = col[n] * step;
        c->at += n;
        return n;
    }
    for (; n < limit; n++, c->at++) {
        const bsr_scatter_indices *s = job->scatter;
        int64_t q;
        switch (e->kind) {
            case BSRI_LIST_ROWS: list[n].a = c->at * e->a_block, list[n].b = bsri_index(c->col, dt, c->at) * step; continue;
            case BSRI_LIST_TRANSPOSED:
                list[n].a = bsri_index(c->position, dt, c->at) * e->a_block, list[n].b = bsri_index(c->row, dt, c->at) * step;
                continue;
            case BSRI_LIST_SCATTER:
                list[n].a = s->p_indices[c->at] * e->a_block;
                list[n].b = bsri_dense_offset(&e->b_batch, s->q_indices[c->at], job->b);
                continue;
            case BSRI_LIST_STRIDED: list[n].a = s->p_indices[c->at] * e->a_block, q = s->q_indices[c->at]; break;
            default: list[n].a = c->at * e->a_block, q = s->q_indices[c->extra + c->at]; break;
        }
        list[n].b = q / job->b->cols * e->b_rs + q % job->b->cols * job->b->col_stride;
    }
    return n;
}

/* --- running --- */
static bsri_vector bsri_vector_of(const bsri_engine *e, const bsr_dense *d, int64_t item, int64_t row, int64_t col) {
    bsri_vector v;
    memset(&v, 0, sizeof v);
    if (!d) return v;
    v.dtype = d->dtype, v.rs = d->rows == 1 ? 0 : d->row_stride, v.cs = d->cols == 1 ? 0 : d->col_stride;
    v.data = bsri_at(d->data, d->dtype, bsri_dense_offset(&e->out_batch, item, d) + row * v.rs + col * v.cs);
    return v;
}
/* Where a tile's first element stands in out. */
static bsr_position bsri_tile_place(const bsri_engine *e, int64_t item, int64_t tile) {
    const bsr_scatter_indices *s = e->job->scatter;
    bsr_position at;
    at.batch = item, at.head = 0, at.row = tile * e->br, at.col = 0;
    if (e->kind == BSRI_LIST_SCATTER) at.batch = tile, at.row = 0;
    else if (s) at.row = s->r_offsets[tile] / e->job->out->cols, at.col = s->r_offsets[tile] % e->job->out->cols;
    return at;
}
static void bsri_product_finish(const bsri_engine *e, bsri_work *w, bsr_position at, int64_t rows) {
    const bsri_product *job = e->job;
    const bsr_dense *out = job->out;
    const bsr_epilogue *ep = job->epilogue;
    bsri_finish f;
    memset(&f, 0, sizeof f);
    f.isa = e->isa, f.compute = job->compute, f.type = e->type, f.alpha = job->alpha, f.beta = job->beta;
    f.out = bsri_at(out->data, out->dtype,
                    bsri_dense_offset(&e->out_batch, at.batch, out) + at.row * out->row_stride + at.col * out->col_stride);
    f.out_dtype = out->dtype, f.rs = out->row_stride, f.cs = out->col_stride, f.at = at;
    if (job->beta != 0.0) f.input = bsri_vector_of(e, job->input, at.batch, at.row, at.col);
    if (ep) {
        f.left = bsri_vector_of(e, ep->left_alpha, at.batch, at.row, at.col);
        f.right = bsri_vector_of(e, ep->right_alpha, at.batch, at.row, at.col);
        f.bias = bsri_vector_of(e, ep->bias, at.batch, at.row, at.col);
        f.last = bsri_epilogue_ends(ep) ? ep : NULL;
    }
    f.plain = f.type == f.compute && !f.input.data && !f.left.data && !f.right.data && !f.bias.data && !f.last;
    if (w->few) bsri_finish_lines(&f, (char *)w->c_tile, BSRI_FEW_LINE, w->cols, rows, 1);
    else bsri_finish_tile(&f, w->c_tile, w->panel, rows, w->cols, w->b_pack);
}
/* The sums of a tile, in c_tile from row `first` on. */
static void bsri_product_sums(const bsri_engine *e, bsri_work *w, int64_t item, int64_t tile, int64_t panel, int64_t sub,
                              int64_t first) {
    const bsri_product *job = e->job;
    const int64_t col = panel * w->panel, row = sub * e->sub_rows;
    bsri_entry list[BSRI_LIST];
    const char *a, *b;
    int64_t r;
    int n;
    bsri_work_begin(w, first, bsri_min(e->sub_rows, e->br - row), bsri_min(w->panel, e->width - col), e->bc);
    for (r = 0; r < e->reduce; r++) {
        const bsri_sum_step s = bsri_step_of(e, item, r);
        int64_t b_at = col * s.b->col_stride;
        bsri_cursor c;
        memset(&c, 0, sizeof c);
        if (job->scatter) bsri_cursor_scatter(e, &c, tile);
        else bsri_cursor_matrix(e, &c, &s, tile);
        if (e->kind != BSRI_LIST_SCATTER) b_at += bsri_dense_offset(&job->batch, s.item, s.b);
        a = c.values + row * e->a_rs * w->a.size;
        b = (const char *)s.b->data + b_at * w->b.size;
        while ((n = bsri_cursor_next(e, &c, tile, list)) > 0) bsri_work_list(w, a, b, list, n);
    }
    bsri_work_flush(w);
}
/* The tile that comes n-th: as the schedule says, else in order; -1: none. */
static int64_t bsri_product_order(const bsri_engine *e, int64_t item, int64_t n) {
    const bsri_product *job = e->job;
    const int32_t *order;
    if (!e->schedule.bytes) return n;
    order = (const int32_t *)(const void *)((const char *)job->a->schedule + e->schedule.at[0]);
    item = bsri_reduce_item(&job->batch, &e->out_batch, item, 0);
    return order[bsri_matrix_item(&job->batch, item, job->a).pattern * e->schedule.groups * e->group + n];
}
/* Tiles `tile` to tile + count by their index arrays, which few columns need no list of; 0 where it takes one. */
static int bsri_few_lines(const bsri_engine *e, bsri_work *w, int64_t item, int64_t tile, int64_t count, int64_t sub) {
    const bsri_product *job = e->job;
    const int64_t row = sub * e->sub_rows;
    bsri_few *f = &w->job;
    int64_t r;
    if (!w->few || w->few == BSRI_FEW_TURNED || !w->a.direct || !w->b.direct || !job->a || job->a->index_dtype != BSR_I32 ||
        e->kind == BSRI_LIST_SCAN)
        return 0;
    w->rows = bsri_min(e->sub_rows, e->br - row);
    bsri_work_begin(w, 0, count * w->rows, e->width, e->bc);
    w->rows = w->rows / count;
    f->am = w->a.rs, f->ak = w->a.cs, f->bk = w->b.rs, f->inner = e->bc;
    f->list = NULL, f->block = e->a_block, f->step = e->bc * e->b_rs;
    for (r = 0; r < e->reduce; r++) {
        const bsri_sum_step s = bsri_step_of(e, item, r);
        bsri_cursor c;
        memset(&c, 0, sizeof c);
        bsri_cursor_matrix(e, &c, &s, tile);
        f->line = (const int32_t *)c.crow, f->at = (const int32_t *)c.position;
        f->col = (const int32_t *)(f->at ? c.row : c.col), f->last = job->a->nnz - 1;
        bsri_few_run(w, job->a->dtype, c.values + row * e->a_rs * w->a.size,
                     (const char *)s.b->data + bsri_dense_offset(&job->batch, s.item, s.b) * w->b.size, w->b.cs, tile,
                     tile + count);
    }
    return 1;
}
/* Dots read both sides in their type, or none that is not the type of sums; b's products must be contiguous. */
static void bsri_few_sides(bsri_work *w, int64_t inner) {
    const int read = w->a.dtype == w->b.dtype && bsri_dots_read(w->isa, w->compute, w->a.dtype);
    w->b.direct = read && (w->b.rs == 1 || inner == 1);
    w->a.direct = read && (w->b.direct || w->a.dtype == w->compute);
}
static void bsri_product_work(const bsri_engine *e, bsri_work *w) {
    const bsri_product *job = e->job;
    w->isa = e->isa, w->compute = job->compute, w->panel = e->panel, w->few = e->few;
    bsri_side_set(&w->a, w->compute, job->a ? job->a->dtype : job->blocks->dtype, e->a_rs, e->a_cs);
    bsri_side_set(&w->b, w->compute, job->b->dtype, e->b_rs, job->b->col_stride);
    if (job->b->cols == 1) w->b.cs = 1;
    if (w->few == BSRI_FEW_DOTS) bsri_few_sides(w, e->bc);
    else if (!w->few) w->b.direct = w->b.direct && w->b.cs == 1;
}
/* Tasks go through the tiles of one panel of columns before the next, so that the panel of b stays in L2. */
static void bsri_product_task(void *arg, int64_t task) {
    const bsri_engine *e = (const bsri_engine *)arg;
    const int64_t chunk = task % e->chunks, panel = task / e->chunks % e->panels, item = task / e->chunks / e->panels;
    const int64_t end = bsri_min((chunk + 1) * e->chunk, e->places * e->subs);
    int64_t n, i, count;
    bsri_work w;
    bsri_product_work(e, &w);
    for (n = chunk * e->chunk; n < end; n += count) {
        const int64_t tile = bsri_product_order(e, item, n / e->subs), sub = n % e->subs;
        bsr_position at;
        count = bsri_min(e->gather, end - n);
        if (tile < 0) continue;
        if (!bsri_few_lines(e, &w, item, tile, count, sub))
            for (i = 0; i < count; i++) bsri_product_sums(e, &w, item, tile + i, panel, sub, i * e->br);
        at = bsri_tile_place(e, item, tile), at.row += sub * e->sub_rows, at.col += panel * e->panel;
        bsri_product_finish(e, &w, at, (count - 1) * e->br + w.rows);
    }
}
/* How the products with few columns run: along what is contiguous in op(A)'s blocks, where that fills vectors better than the
   columns would. */
static int bsri_few_mode(const bsri_engine *e) {
    const bsri_product *job = e->job;
    const int64_t n = e->width, lanes = bsri_lanes(e->isa, job->compute), across = bsri_ceil_div(n, lanes);
    const int by_column = n == 1 || (e->bc > 1 && e->b_rs == 1 && job->b->col_stride != 1);
    const int dtype = job->a ? job->a->dtype : job->blocks->dtype;
    if (n > BSRI_FEW_COLS) return BSRI_FEW_NONE;
    if (e->br == 1 && e->bc == 1 && n == 1 && dtype == job->compute) return BSRI_FEW_ONES;
    if (e->a_rs == 1 && n == 1 && e->br <= lanes) return BSRI_FEW_SUMS;
    if (e->a_rs == 1 && n * bsri_ceil_div(e->br, lanes) <= e->br * across) return BSRI_FEW_TURNED;
    if (e->a_cs != 1) return BSRI_FEW_NONE;
    if (job->compute == BSR_I32 && !(bsri_dots_read(e->isa, BSR_I32, dtype) && (e->b_rs == 1 || e->bc == 1)))
        return BSRI_FEW_NONE;
    if (by_column && n * bsri_ceil_div(e->bc, lanes) <= 2 * e->bc * across) return BSRI_FEW_DOTS;
    return 2 * n <= lanes && e->bc >= lanes && e->br >= 16 ? BSRI_FEW_DOTS : BSRI_FEW_NONE; /* b is transposed on the way */
}
/* --- A^T without an index: block rows one after another, each block added to sums of all of A^T --- */
/* The sums lie in the workspace, `parts` times (each gets a share of the block rows), or in out where it can hold them, else
   little by little on the stack: all block rows are gone through for each piece then. An element's products are added in the
   order of block rows whatever the pieces and threads. */
typedef struct bsri_scan {
    const bsri_engine *e;
    int64_t item, pieces, piece; /* tiles of one piece */
    int64_t parts, part;         /* bytes of one part's sums */
    char *sums;                  /* null: on the stack */
    int64_t rs, cs;              /* element strides of the sums */
    int64_t cols;                /* of a panel on the stack */
} bsri_scan;
#define BSRI_SCAN_PARTS 4
#define BSRI_SCAN_ROWS (BSRI_TILE_ROWS / 2) /* finished at once: the widest panels are twice as wide */
#define BSRI_SCAN_STACK 4096 /* numbers of 8 bytes */
/* Parts of the sums in a workspace: a function of sizes alone, as the order of sums is. */
static int64_t bsri_scan_parts(const bsr_matrix *a) {
    const double values = (double)a->nnz * (double)a->block_rows * (double)a->block_cols, each = values / (8.0 * (double)a->cols);
    return values < 65536.0 || each < 2.0 ? 1 : each < BSRI_SCAN_PARTS ? (int64_t)each : BSRI_SCAN_PARTS;
}
/* Bytes of workspace that A^T without an index would use; 0: more than there can be. */
static uint64_t bsri_scan_bytes(const bsr_matrix *a, int compute, int64_t width) {
    const int64_t size = (int64_t)bsr_dtype_size(compute), parts = bsri_scan_parts(a);
    int64_t bytes;
    if (!bsri_mul(a->cols, bsri_max(1, width), &bytes) || !bsri_mul(bytes, parts * size, &bytes)) return 0;
    if (bytes > INT64_MAX - 64) return 0;
    return (uint64_t)(bytes + 63) / 64 * 64;
}
/* c += what c_tile holds. */
static void bsri_scan_add(const bsri_work *w, char *c, int64_t rs, int64_t cs) {
    const int turned = w->few != BSRI_FEW_NONE;
    const int64_t xr = turned ? 1 : w->panel, xc = turned ? BSRI_FEW_LINE : 1;
    int64_t i, j;
    for (i = 0; i < w->rows; i++) {
        const void *x = bsri_at(w->c_tile, w->compute, i * xr);
        void *y = bsri_at(c, w->compute, i * rs);
        if (xc == 1 && cs == 1) bsri_row_op(w->isa, w->compute, BSRI_ADD_SCALED, y, x, 1.0, w->cols);
        else if (w->compute == BSR_F64)
            for (j = 0; j < w->cols; j++) ((double *)y)[j * cs] += ((const double *)x)[j * xc];
        else if (w->compute == BSR_F32)
            for (j = 0; j < w->cols; j++) ((float *)y)[j * cs] += ((const float *)x)[j * xc];
        else
            for (j = 0; j < w->cols; j++) ((uint32_t *)y)[j * cs] += ((const uint32_t *)x)[j * xc];
    }
}
/* Adds block row `row` of one item for tiles from lo to hi and a panel of columns; sums: of tile lo, this panel. */
static void bsri_scan_row(const bsri_scan *s, bsri_work *w, const bsri_cursor *c, const char *b, int64_t row, int64_t lo,
                          int64_t hi, int64_t cols, char *sums, int64_t rs, int64_t cs) {
    const bsri_engine *e = s->e;
    const int dt = e->job->a->index_dtype, fast = cols == 1 && rs == 1 && e->a_rs == 1 && w->a.direct && w->b.direct;
    const int64_t end = bsri_index(c->crow, dt, row + 1);
    const char *x = b + row * e->bc * e->b_rs * w->b.size;
    const bsri_entry none = {0, 0};
    bsri_entry list[BSRI_LIST];
    int64_t p = bsri_index(c->crow, dt, row), sub;
    int n, i;
    while (p < end) {
        for (n = 0; p < end && n < BSRI_LIST; p++) {
            const int64_t at = bsri_index(c->col, dt, p);
            list[n].a = p * e->a_block, list[n].b = at - lo, n += at >= lo && at < hi;
        }
        for (i = 0; i < n; i++) list[i].b *= e->br * rs;
        if (fast) {
            bsri_few *f = &w->job;
            f->ak = e->a_cs, f->bk = e->b_rs, f->inner = e->bc, f->rows = e->br, f->list = list;
            bsri_few_spread(w->isa, w->compute, f, c->values, x, n, sums);
            continue;
        }
        for (i = 0; i < n; i++)
            for (sub = 0; sub < e->br; sub += e->sub_rows) {
                bsri_work_begin(w, 0, bsri_min(e->sub_rows, e->br - sub), cols, e->bc);
                bsri_work_list(w, c->values + (list[i].a + sub * e->a_rs) * w->a.size, x, &none, 1);
                bsri_work_flush(w);
                bsri_scan_add(w, bsri_at(sums, w->compute, list[i].b + sub * rs), rs, cs);
            }
    }
}
static void bsri_product_work(const bsri_engine *e, bsri_work *w);
/* Where the share of block rows of part k begins: by entries. */
static int64_t bsri_scan_start(const bsri_scan *s, const void *crow, int64_t k) {
    const bsr_matrix *a = s->e->job->a;
    const int64_t rows = bsri_block_rows(a), first = rows ? bsri_index(crow, a->index_dtype, 0) : 0;
    const int64_t all = rows ? bsri_index(crow, a->index_dtype, rows) - first : 0;
    int64_t low = 0, high = rows;
    if (k <= 0 || k >= s->parts) return k <= 0 ? 0 : rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (bsri_index(crow, a->index_dtype, middle) - first < all / s->parts * k) low = middle + 1;
        else high = middle;
    }
    return low;
}
/* All that is added to tiles lo to hi by part k, in columns from col on. */
static void bsri_scan_range(const bsri_scan *s, bsri_work *w, int64_t k, int64_t lo, int64_t hi, int64_t col, int64_t cols,
                            char *sums, int64_t rs, int64_t cs) {
    const bsri_engine *e = s->e;
    const bsri_product *job = e->job;
    const int64_t rows = (hi - lo) * e->br;
    int64_t i, j, r, panel;
    if (cs == 1)
        for (i = 0; i < rows; i++) memset(bsri_at(sums, w->compute, i * rs), 0, (size_t)cols * bsr_dtype_size(w->compute));
    else if (rs == 1)
        for (j = 0; j < cols; j++) memset(bsri_at(sums, w->compute, j * cs), 0, (size_t)rows * bsr_dtype_size(w->compute));
    else
        for (i = 0; i < rows; i++)
            for (j = 0; j < cols; j++) memset(bsri_at(sums, w->compute, i * rs + j * cs), 0, bsr_dtype_size(w->compute));
    for (r = 0; r < e->reduce; r++) {
        const bsri_sum_step of = bsri_step_of(e, s->item, r);
        const char *b = (const char *)of.b->data + bsri_dense_offset(&job->batch, of.item, of.b) * w->b.size;
        bsri_cursor c;
        memset(&c, 0, sizeof c);
        bsri_cursor_matrix(e, &c, &of, 0);
        for (panel = 0; panel < cols; panel += w->panel)
            for (i = bsri_scan_start(s, c.crow, k); i < bsri_scan_start(s, c.crow, k + 1); i++)
                bsri_scan_row(s, w, &c, b + (col + panel) * job->b->col_stride * w->b.size, i, lo, hi,
                              bsri_min(w->panel, cols - panel), bsri_at(sums, w->compute, panel * cs), rs, cs);
    }
}
static void bsri_scan_task(void *arg, int64_t task) {
    const bsri_scan *s = (const bsri_scan *)arg;
    const bsri_engine *e = s->e;
    const int64_t piece = task % s->pieces, k = task / s->pieces, lo = piece * s->piece;
    bsri_work w;
    bsri_product_work(e, &w);
    bsri_scan_range(s, &w, k, lo, bsri_min(e->tiles, lo + s->piece), 0, e->width,
                   bsri_at(s->sums + k * s->part, w.compute, lo * e->br * s->rs), s->rs, s->cs);
}
/* Sums of `rows` rows from `row` on, in columns from col on, become output. */
static void bsri_scan_finish(const bsri_scan *s, bsri_work *w, const char *sums, int64_t row, int64_t rows, int64_t col) {
    const bsri_engine *e = s->e;
    const int64_t at_once = w->few ? 1 : 0, xr = at_once ? 1 : w->panel, xc = at_once ? BSRI_FEW_LINE : 1;
    bsr_position at;
    int64_t i, j, k;
    w->rows = rows;
    for (k = 0; k < s->parts && at_once && s->rs == 1; k++)
        for (j = 0; j < w->cols; j++) {
            const void *x = bsri_at((char *)(uintptr_t)sums + k * s->part, w->compute, j * s->cs);
            void *y = bsri_at(w->c_tile, w->compute, j * xc);
            if (k) bsri_row_op(w->isa, w->compute, BSRI_ADD_SCALED, y, x, 1.0, rows);
            else memcpy(y, x, (size_t)rows * bsr_dtype_size(w->compute));
        }
    for (; k < s->parts; k++)
        for (i = 0; i < rows; i++)
            for (j = 0; j < w->cols; j++) {
                const void *x = bsri_at((char *)(uintptr_t)sums + k * s->part, w->compute, i * s->rs + j * s->cs);
                void *y = bsri_at(w->c_tile, w->compute, i * xr + j * xc);
                if (w->compute == BSR_F64) *(double *)y = k ? *(double *)y + *(const double *)x : *(const double *)x;
                else if (w->compute == BSR_F32) *(float *)y = k ? *(float *)y + *(const float *)x : *(const float *)x;
                else *(uint32_t *)y = (k ? *(uint32_t *)y : 0) + *(const uint32_t *)x;
            }
    at = bsri_tile_place(e, s->item, 0), at.row = row, at.col = col;
    bsri_product_finish(e, w, at, rows);
}
static void bsri_scan_finish_task(void *arg, int64_t task) {
    const bsri_scan *s = (const bsri_scan *)arg;
    const bsri_engine *e = s->e;
    const int64_t rows = e->tiles * e->br, end = bsri_min(rows, (task + 1) * BSRI_SCAN_ROWS * 32);
    int64_t row, col;
    bsri_work w;
    bsri_product_work(e, &w);
    for (row = task * BSRI_SCAN_ROWS * 32; row < end; row += BSRI_SCAN_ROWS)
        for (col = 0; col < e->width; col += w.panel) {
            w.cols = bsri_min(w.panel, e->width - col);
            bsri_scan_finish(s, &w, bsri_at(s->sums, w.compute, row * s->rs + col * s->cs), row,
                             bsri_min(BSRI_SCAN_ROWS, end - row), col);
        }
}
/* One piece on the stack, a panel of columns at a time. */
static void bsri_scan_stack_task(void *arg, int64_t task) {
    bsri_scan s = *(const bsri_scan *)arg;
    const bsri_engine *e = s.e;
    const int64_t lo = task * s.piece, hi = bsri_min(e->tiles, lo + s.piece);
    double sums[BSRI_SCAN_STACK];
    int64_t row, col, cols;
    bsri_work w;
    bsri_product_work(e, &w);
    for (col = 0; col < e->width; col += cols) {
        cols = bsri_min(s.cols, e->width - col);
        bsri_scan_range(&s, &w, 0, lo, hi, col, cols, (char *)sums, s.rs, s.cs);
        for (row = 0; row < (hi - lo) * e->br; row += BSRI_SCAN_ROWS) {
            w.cols = cols;
            bsri_scan_finish(&s, &w, (char *)bsri_at(sums, w.compute, row * s.rs), lo * e->br + row,
                             bsri_min(BSRI_SCAN_ROWS, (hi - lo) * e->br - row), col);
        }
    }
}
/* Can out hold the sums until they are finished? Its input must not be what they overwrite. */
static int bsri_scan_in_out(const bsri_engine *e) {
    const bsri_product *job = e->job;
    return job->out->dtype == job->compute && (job->beta == 0.0 || job->input->data != job->out->data);
}
/* Blocks too large for a piece on the stack stay with the walk by tiles. */
static int bsri_scan_run(const bsr_context *ctx, bsri_engine *e) {
    const bsri_product *job = e->job;
    const int64_t size = (int64_t)bsr_dtype_size(job->compute), stack = BSRI_SCAN_STACK * 8 / size;
    const uint64_t bytes = bsri_scan_bytes(job->a, job->compute, e->width);
    const int64_t worth = job->a->nnz * e->reduce >= 4096 ? ctx->threads : 1;
    bsri_scan s;
    memset(&s, 0, sizeof s);
    s.e = e, s.parts = 1, s.pieces = 1, s.piece = e->tiles, s.cols = bsri_min(e->width, e->panel);
    if (job->workspace && bytes && job->workspace_bytes >= bytes && (uintptr_t)job->workspace % 64 == 0) {
        s.sums = (char *)job->workspace, s.parts = bsri_scan_parts(job->a), s.part = job->a->cols * e->width * size;
        s.rs = 1, s.cs = job->a->cols;
        if (e->width > BSRI_FEW_COLS) s.rs = e->width, s.cs = 1;
    } else if (bsri_scan_in_out(e)) {
        s.rs = job->out->row_stride, s.cs = job->out->col_stride;
        if (job->a->cols == 1) s.rs = 1;
        s.pieces = bsri_min(e->tiles, bsri_min(worth, 8)), s.piece = bsri_ceil_div(e->tiles, s.pieces);
        s.pieces = bsri_ceil_div(e->tiles, s.piece);
    } else {
        s.rs = s.cols == 1 ? 1 : s.cols, s.cs = 1;
        s.piece = stack / (s.cols * e->br), s.pieces = s.piece ? bsri_ceil_div(e->tiles, s.piece) : 0;
        if (!s.piece) return 0;
        for (s.item = 0; s.item < e->items; s.item++) bsri_parallel(ctx, s.pieces, bsri_scan_stack_task, &s);
        return 1;
    }
    for (s.item = 0; s.item < e->items; s.item++) {
        if (!job->workspace || s.sums != job->workspace)
            s.sums = bsri_at(job->out->data, job->out->dtype, bsri_dense_offset(&e->out_batch, s.item, job->out));
        bsri_parallel(ctx, s.pieces * s.parts, bsri_scan_task, &s);
        bsri_parallel(ctx, bsri_ceil_div(e->tiles * e->br, BSRI_SCAN_ROWS * 32), bsri_scan_finish_task, &s);
    }
    return 1;
}

static void bsri_engine_matrix(bsri_engine *e) {
    const bsr_matrix *a = e->job->a;
    const int t = e->job->trans != 0;
    int64_t s[3];
    bsri_value_strides(a, s);
    e->a_block = s[0], e->a_rs = s[1 + t], e->a_cs = s[2 - t];
    e->br = t ? a->block_cols : a->block_rows, e->bc = t ? a->block_rows : a->block_cols;
    e->tiles = t ? bsri_block_cols(a) : bsri_block_rows(a), e->width = e->job->out->cols;
    e->kind = !t ? BSRI_LIST_ROWS : a->transposed_index ? BSRI_LIST_TRANSPOSED : BSRI_LIST_SCAN;
    if (e->kind == BSRI_LIST_TRANSPOSED) bsri_transposed_layout(a, &e->index);
    if (a->schedule && ((const int64_t *)a->schedule)[6] == t) {
        e->group = ((const int64_t *)a->schedule)[4];
        bsri_schedule_layout(a, (int)e->group, t, &e->schedule);
    }
}
static void bsri_engine_scatter(bsri_engine *e) {
    const bsri_product *job = e->job;
    const bsr_dense *blocks = job->blocks;
    const int64_t split = job->scatter->split_n > 1 ? job->scatter->split_n : 1;
    e->a_block = blocks->batch_dims ? blocks->batch_stride[blocks->batch_dims - 1] : 0;
    e->a_rs = blocks->row_stride, e->a_cs = blocks->col_stride, e->br = blocks->rows, e->bc = blocks->cols;
    e->tiles = job->scatter->r_count, e->width = job->out->cols / split;
    if (job->scatter->format == BSR_SCATTER_MM) {
        e->kind = BSRI_LIST_SCATTER, e->width = job->out->cols;
        e->tiles = bsri_max(0, job->scatter->c_count - 1), e->items = 1;
        e->b_batch = bsri_batch_of(job->b->batch_dims, job->b->batch);
    } else {
        e->kind = job->scatter->format == BSR_SCATTER_STRIDED ? BSRI_LIST_STRIDED : BSRI_LIST_COMPRESSED;
    }
}
/* Are there products at all? Otherwise a's values and b are not read, and their strides may be anything. */
static int bsri_product_any(const bsri_engine *e) {
    const bsri_product *job = e->job;
    if (job->alpha == 0.0) return 0;
    if (job->a) return job->a->nnz > 0;
    return job->scatter->q_count > 0 && (!job->blocks->batch_dims || job->blocks->batch[0] > 0);
}
static void bsri_product_run(const bsr_context *ctx, const bsri_product *job) {
    bsri_engine e;
    int64_t work;
    memset(&e, 0, sizeof e);
    e.job = job, e.isa = job->isa ? job->isa : ctx->isa;
    e.type = bsri_finish_type(job->compute, job->out->dtype);
    e.out_batch = bsri_batch_of(job->out->batch_dims, job->out->batch);
    e.items = e.out_batch.count;
    if (job->scatter) bsri_engine_scatter(&e);
    else bsri_engine_matrix(&e);
    e.reduce = !bsri_product_any(&e) ? 0 : e.kind == BSRI_LIST_SCATTER ? 1 : bsri_reduce_count(&job->batch, &e.out_batch);
    if (!e.tiles || !e.width || !e.items || !e.br) return;
    if (e.br == 1) e.a_rs = e.bc; /* what a stride of a size of 1 says is nothing */
    if (e.bc == 1) e.a_cs = 1;
    e.b_rs = job->b->rows > 1 ? job->b->row_stride : 0;
    if (!e.reduce) memset(&e.schedule, 0, sizeof e.schedule); /* nothing to sum: no pattern to look an order up in */
    e.panel = bsri_tile_cols(job->compute);
    /* few rows: twice as wide, since fetching a pair costs as much as walking it (tests/results/cpu.md) */
    if (e.width <= BSRI_FEW_COLS) e.panel = BSRI_FEW_COLS;
    else if (e.br <= 3 && e.bc <= 16) e.panel *= 2;
    e.panels = bsri_ceil_div(e.width, e.panel);
    e.subs = bsri_ceil_div(e.br, BSRI_TILE_ROWS), e.sub_rows = bsri_ceil_div(e.br, e.subs);
    e.places = e.schedule.bytes ? e.schedule.groups * e.group : e.tiles;
    e.few = bsri_few_mode(&e);
    e.gather = e.width <= BSRI_FEW_COLS && job->a && !e.schedule.bytes && e.subs == 1 ? bsri_max(1, BSRI_TILE_ROWS / e.br) : 1;
    if (e.kind == BSRI_LIST_SCAN && e.reduce && bsri_scan_run(ctx, &e)) return;
    /* a task is some 2^19 products: long beside handing it out */
    work = bsri_min(1 << 19, (job->a ? job->a->nnz : job->scatter->q_count) / e.tiles + 1);
    work *= e.sub_rows * bsri_min(e.bc, 1 << 12) * bsri_min(e.width, e.panel);
    e.chunk = bsri_max(1, (1 << 19) / work);
    if (e.width <= BSRI_FEW_COLS && job->a) { /* few columns: some 2^19 bytes of values */
        const int64_t listed = bsri_min(1 << 19, job->a->nnz / e.tiles + 1);
        const int64_t each = listed * bsri_min(e.bc, 1 << 12) * e.sub_rows * (int64_t)bsr_dtype_size(job->a->dtype);
        e.chunk = bsri_max(1, (1 << 19) / each * 4 / (4 + e.width));
        if (e.chunk > e.gather) e.chunk -= e.chunk % e.gather;
    }
    e.chunks = bsri_ceil_div(e.places * e.subs, e.chunk);
    bsri_parallel(ctx, e.items * e.panels * e.chunks, bsri_product_task, &e);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-engine: dense products at stored blocks                                              */
/* ---------------------------------------------------------------------------------------------- */

/* out = beta*input + alpha (mat1 mat2) at out's stored blocks; batches and reduction as in bsri_product. A transposed result
   is asked for by transposing: (XY)^T = Y^T X^T. */
typedef struct bsri_sampled {
    const bsr_matrix *out, *input; /* input null when beta == 0; same pattern, own strides and dtype */
    const bsr_dense *mat1, *mat2;  /* M x K, K x N */
    double alpha, beta;
    int32_t compute, isa;
    bsri_batch batch;
} bsri_sampled;
static void bsri_sampled_run(const bsr_context *ctx, const bsri_sampled *job);

typedef struct bsri_sampler {
    const bsri_sampled *job;
    bsr_dense mat1, mat2; /* the job's, with the strides that are used */
    int isa, type;
    int64_t br, bc, rows;      /* block size, block rows */
    int64_t o_strides[3], i_strides[3];
    int64_t items, reduce;     /* as in bsri_engine; an item of a pattern-only broadcast has its own values */
    int64_t subs, sub_rows, panels, group; /* cuts of a block; or blocks of one row side by side in a panel */
    int64_t chunk, chunks;     /* block rows per task; tasks per item */
    bsri_batch out_batch;
} bsri_sampler;

/* The panel of mat2 above `blocks` stored blocks (columns from `col` of each), kc rows from k on: read in place where it is
   one piece of contiguous rows, else packed side by side. */
static const void *bsri_sampled_b(const bsri_sampler *s, bsri_work *w, const bsri_item *it, const char *mat2, int64_t k,
                                  int64_t kc, int64_t first, int64_t blocks, int64_t col) {
    const bsr_dense *m = &s->mat2;
    const int dt = s->job->out->index_dtype;
    const int64_t ld = w->panel, width = w->cols / blocks;
    int64_t g, r, rows, run, at;
    if (w->b.direct) {
        for (g = 1; g < blocks && bsri_index(it->col, dt, first + g) == bsri_index(it->col, dt, first) + g; g++) {}
        if (g == blocks) {
            w->walk.ldb = m->row_stride;
            at = k * m->row_stride + bsri_index(it->col, dt, first) * s->bc + col;
            return bsri_at(mat2, m->dtype, at);
        }
    }
    w->walk.ldb = ld;
    /* few rows at a time: a whole panel would meet in few cache sets where row strides are powers of two
       (tests/results/cpu.md) */
    for (r = 0; r < kc; r += rows) {
        rows = m->col_stride == 1 ? bsri_min(8, kc - r) : kc;
        for (g = 0; g < blocks; g += run) {
            const int64_t at_col = bsri_index(it->col, dt, first + g);
            for (run = 1; g + run < blocks && bsri_index(it->col, dt, first + g + run) == at_col + run; run++) {}
            at = (k + r) * m->row_stride + (at_col * s->bc + col) * m->col_stride;
            bsri_tile_load(w->isa, w->compute, bsri_at(w->b_pack, w->compute, r * ld + g * width), ld,
                           bsri_at(mat2, m->dtype, at), m->dtype, rows, run * width, m->row_stride, m->col_stride);
        }
    }
    return w->b_pack;
}
static void bsri_sampled_finish(const bsri_sampler *s, bsri_work *w, const bsri_item *out, const bsri_item *input, int64_t p,
                                int64_t blocks, int64_t row, int64_t col) {
    const bsri_sampled *job = s->job;
    const int64_t width = w->cols / blocks;
    bsri_finish f;
    int64_t g;
    memset(&f, 0, sizeof f);
    f.isa = s->isa, f.compute = job->compute, f.type = s->type, f.alpha = job->alpha, f.beta = job->beta;
    f.out_dtype = job->out->dtype, f.rs = s->o_strides[1], f.cs = s->o_strides[2];
    f.plain = f.type == f.compute && job->beta == 0.0;
    for (g = 0; g < blocks; g++) {
        f.out = bsri_at(out->values, job->out->dtype, (p + g) * s->o_strides[0] + row * f.rs + col * f.cs);
        if (job->beta != 0.0) {
            f.input.dtype = job->input->dtype, f.input.rs = s->i_strides[1], f.input.cs = s->i_strides[2];
            f.input.data = bsri_at(input->values, f.input.dtype,
                                   (p + g) * s->i_strides[0] + row * f.input.rs + col * f.input.cs);
        }
        bsri_finish_tile(&f, bsri_at(w->c_tile, w->compute, g * width), w->panel, w->rows, width, w->b_pack);
    }
}
/* Sums of rows [row, row + w->rows) of block row `line` at `blocks` blocks from p on. */
static void bsri_sampled_tile(const bsri_sampler *s, bsri_work *w, int64_t item, const bsri_item *out, int64_t line, int64_t p,
                              int64_t blocks, int64_t row, int64_t col) {
    const bsri_sampled *job = s->job;
    const bsr_dense *m1 = &s->mat1, *m2 = &s->mat2;
    int64_t r, k, kc;
    for (r = 0; r < s->reduce; r++) {
        const int64_t whole = bsri_reduce_item(&job->batch, &s->out_batch, item, r);
        const int64_t first = bsri_dense_offset(&job->batch, whole, m1) + (line * s->br + row) * m1->row_stride;
        const char *mat1 = bsri_at(m1->data, m1->dtype, first);
        const char *mat2 = bsri_at(m2->data, m2->dtype, bsri_dense_offset(&job->batch, whole, m2));
        for (k = 0; k < m1->cols; k += kc) {
            kc = bsri_min(w->depth, m1->cols - k);
            w->walk.kc = kc;
            w->list[0].a = bsri_work_a(w, bsri_at(mat1, m1->dtype, k * m1->col_stride), kc);
            w->list[0].b = bsri_sampled_b(s, w, out, mat2, k, kc, p, blocks, col);
            w->list[0].ahead_a = w->list[0].a, w->list[0].ahead_b = w->list[0].b;
            w->walk.count = 1;
            bsri_work_flush(w);
        }
    }
    bsri_work_flush(w);
}
static void bsri_sampled_row(const bsri_sampler *s, bsri_work *w, int64_t item, int64_t line, int64_t sub) {
    const bsri_sampled *job = s->job;
    const int64_t cols = w->panel, row = sub * s->sub_rows, rows = bsri_min(s->sub_rows, s->br - row);
    const bsri_item out = bsri_matrix_item(&s->out_batch, item, job->out);
    const int64_t end = bsri_index(out.crow, job->out->index_dtype, line + 1);
    int64_t p, blocks, panel;
    bsri_item input = out;
    if (job->beta != 0.0) input = bsri_matrix_item(&s->out_batch, item, job->input);
    for (p = bsri_index(out.crow, job->out->index_dtype, line); p < end; p += blocks) {
        blocks = bsri_min(s->group, end - p);
        for (panel = 0; panel < s->panels; panel++) {
            const int64_t col = panel * cols;
            bsri_work_begin(w, 0, rows, s->panels > 1 ? bsri_min(cols, s->bc - col) : blocks * s->bc, w->depth);
            bsri_sampled_tile(s, w, item, &out, line, p, blocks, row, col);
            bsri_sampled_finish(s, w, &out, &input, p, blocks, row, col);
        }
    }
}
static void bsri_sampled_task(void *arg, int64_t task) {
    const bsri_sampler *s = (const bsri_sampler *)arg;
    const bsri_sampled *job = s->job;
    const int64_t sub = task % s->subs, chunk = task / s->subs % s->chunks, item = task / s->subs / s->chunks;
    const int64_t end = bsri_min((chunk + 1) * s->chunk, s->rows);
    int64_t line;
    bsri_work w;
    w.isa = s->isa, w.compute = job->compute, w.panel = bsri_tile_cols(job->compute), w.few = BSRI_FEW_NONE;
    w.depth = BSRI_DEPTH_BYTES / (int64_t)bsr_dtype_size(w.compute);
    bsri_side_set(&w.a, w.compute, s->mat1.dtype, s->mat1.row_stride, s->mat1.col_stride);
    bsri_side_set(&w.b, w.compute, s->mat2.dtype, s->mat2.row_stride, s->mat2.col_stride);
    w.b.direct = w.b.direct && w.b.cs == 1;
    for (line = chunk * s->chunk; line < end; line++) bsri_sampled_row(s, &w, item, line, sub);
}
static void bsri_sampled_run(const bsr_context *ctx, const bsri_sampled *job) {
    const int64_t panel = bsri_tile_cols(job->compute);
    bsri_sampler s;
    int64_t work;
    memset(&s, 0, sizeof s);
    s.job = job, s.isa = job->isa ? job->isa : ctx->isa, s.type = bsri_finish_type(job->compute, job->out->dtype);
    s.br = job->out->block_rows, s.bc = job->out->block_cols, s.rows = bsri_block_rows(job->out);
    s.mat1 = bsri_dense_used(job->mat1), s.mat2 = bsri_dense_used(job->mat2);
    bsri_value_steps(job->out, s.o_strides);
    if (job->input) bsri_value_steps(job->input, s.i_strides);
    s.out_batch = bsri_batch_of(job->out->batch_dims, job->out->batch), s.items = s.out_batch.count;
    s.reduce = job->alpha != 0.0 && job->mat1->cols ? bsri_reduce_count(&job->batch, &s.out_batch) : 0;
    s.subs = bsri_ceil_div(s.br, BSRI_TILE_ROWS), s.sub_rows = bsri_ceil_div(s.br, s.subs);
    s.panels = bsri_ceil_div(s.bc, panel), s.group = s.panels > 1 ? 1 : panel / s.bc;
    if (!s.rows || !s.items || !job->out->nnz) return;
    work = bsri_max(1, job->out->nnz / s.rows) * s.bc;
    s.chunk = bsri_max(1, (1 << 19) / (bsri_min(work, 1 << 19) * s.sub_rows * bsri_max(1, bsri_min(job->mat1->cols, 1 << 19))));
    s.chunks = bsri_ceil_div(s.rows, s.chunk);
    bsri_parallel(ctx, s.items * s.chunks * s.subs, bsri_sampled_task, &s);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>scores: what rows and attention share: biases and masks of one row                           */
/* ---------------------------------------------------------------------------------------------- */

#define BSRI_MASKS (BSRI_FLOATS | BSRI_BIT(BSR_I8) | BSRI_BIT(BSR_BOOL))

/* Element j of a row of `compute` (f32 or f64). */
static double bsri_row_get(int compute, const void *row, int64_t j) {
    return compute == BSR_F64 ? ((const double *)row)[j] : (double)((const float *)row)[j];
}
static void bsri_row_set(int compute, void *row, int64_t j, double v) {
    if (compute == BSR_F64) ((double *)row)[j] = v;
    else ((float *)row)[j] = (float)v;
}
static void *bsri_row_at(int compute, void *row, int64_t j) { return bsri_at(row, compute, j); }
static void bsri_row_fill(int compute, void *row, int64_t n, double v) {
    int64_t j;
    for (j = 0; j < n; j++) bsri_row_set(compute, row, j, v);
}

/* A row x column operand that is added to scores or forbids them, for one batch item; a size of 1 repeats. */
typedef struct bsri_bias {
    const char *data;    /* null: there is none */
    int32_t dtype, mode; /* bsr_mask_mode */
    int64_t row_stride, col_stride;
} bsri_bias;

static bsri_bias bsri_bias_make(const bsri_batch *b, int64_t item, const bsr_dense *d, int mode) {
    bsri_bias s;
    memset(&s, 0, sizeof s);
    if (!d) return s;
    s.data = bsri_at(d->data, d->dtype, bsri_dense_offset(b, item, d));
    s.dtype = d->dtype, s.mode = mode;
    s.row_stride = d->rows == 1 ? 0 : d->row_stride, s.col_stride = d->cols == 1 ? 0 : d->col_stride;
    return s;
}

/* Adding and forbidding: both return whether a position is, or may be, forbidden. */
#define BSRI_BIAS_CHUNK 128
typedef union bsri_bias_row {
    double d[BSRI_BIAS_CHUNK];
    float f[BSRI_BIAS_CHUNK];
} bsri_bias_row;

/* s += bias, rows of `compute`. A bias of -inf forbids: it wins over NaN and +inf in the score. */
static int bsri_score_add_row(int isa, int compute, void *s, const void *bias, int64_t n) {
    double top;
    int64_t j;
    bsri_row_op(isa, compute, BSRI_ADD_SCALED, s, bias, 1, n);
    if (bsri_row_dot(isa, compute, bias, bias, n) < (double)INFINITY) return 0; /* all finite */
    top = bsri_row_max(isa, compute, s, n);
    for (j = 0; j < n && top != top; j++) /* only NaN can hide a -inf */
        if (bsri_row_get(compute, bias, j) == (double)-INFINITY) bsri_row_set(compute, s, j, (double)-INFINITY);
    return 1;
}
/* s[j] = -inf where no[j], else unchanged; on the bits, without branches: masks are hard to predict. */
static int bsri_score_forbid_where(int compute, void *s, const uint8_t *no, int64_t n) {
    uint32_t any = 0;
    int64_t j;
    if (compute == BSR_F32) {
        float *row = (float *)s;
        for (j = 0; j < n; j++) {
            const uint32_t bits = 0u - (uint32_t)no[j];
            row[j] = bsri_bits_f32((bsri_f32_bits(row[j]) & ~bits) | (0xff800000u & bits)), any |= bits;
        }
    } else {
        for (j = 0; j < n; j++)
            if (no[j]) bsri_row_set(compute, s, j, (double)-INFINITY), any = 1;
    }
    return any != 0;
}

/* The same with element at + j*stride of src, any dtype. */
static int bsri_score_add(int isa, int compute, void *s, const void *src, int dtype, int64_t at, int64_t stride, int64_t n) {
    bsri_bias_row bias;
    int64_t w;
    int forbids = 0;
    if (dtype == compute && stride == 1) return bsri_score_add_row(isa, compute, s, bsri_at(src, dtype, at), n);
    for (; n > 0; n -= w, at += w * stride, s = bsri_row_at(compute, s, w)) {
        w = bsri_min(n, BSRI_BIAS_CHUNK);
        bsri_row_load(isa, compute, &bias, bsri_at(src, dtype, at), dtype, stride, w);
        forbids |= bsri_score_add_row(isa, compute, s, &bias, w);
    }
    return forbids;
}
/* Zero forbids; zero in src's own type: no f64 is too small. */
static int bsri_score_forbid(int isa, int compute, void *s, const void *src, int dtype, int64_t at, int64_t stride, int64_t n) {
    const int own = dtype == BSR_F64 ? BSR_F64 : BSR_F32, bytes = bsr_dtype_size(dtype) == 1;
    uint8_t no[BSRI_BIAS_CHUNK];
    bsri_bias_row mask;
    int64_t j, w;
    int forbids = 0;
    for (; n > 0; n -= w, at += w * stride, s = bsri_row_at(compute, s, w)) {
        w = bsri_min(n, BSRI_BIAS_CHUNK);
        if (bytes && stride == 1 && !memchr((const uint8_t *)src + at, 0, (size_t)w)) continue;
        if (!bytes) bsri_row_load(isa, own, &mask, bsri_at(src, dtype, at), dtype, stride, w);
        if (bytes)
            for (j = 0; j < w; j++) no[j] = ((const uint8_t *)src)[at + j * stride] == 0;
        else if (own == BSR_F32)
            for (j = 0; j < w; j++) no[j] = (bsri_f32_bits(mask.f[j]) << 1) == 0;
        else
            for (j = 0; j < w; j++) no[j] = mask.d[j] == 0;
        forbids |= bsri_score_forbid_where(compute, s, no, w);
    }
    return forbids;
}
/* The scores of columns col .. col+n-1 of a row and one bias, in the bias's mode. */
static int bsri_score_bias(int isa, int compute, void *s, const bsri_bias *b, int64_t row, int64_t col, int64_t n) {
    int64_t at = row * b->row_stride + col * b->col_stride;
    if (b->mode == BSR_MASK_MUL) return bsri_score_forbid(isa, compute, s, b->data, b->dtype, at, b->col_stride, n);
    return bsri_score_add(isa, compute, s, b->data, b->dtype, at, b->col_stride, n);
}

/* An optional bias of rows x cols (or 1 each) that broadcasts to b. A boolean one can't be added. */
static bsr_status bsri_check_bias(const bsri_call *c, bsri_spans *set, const bsri_batch *b, const bsr_dense *d, int64_t rows,
                                  int64_t cols, int mode, int operand) {
    uint32_t accepted = mode == BSR_MASK_MUL ? BSRI_MASKS : BSRI_MASKS & ~BSRI_BIT(BSR_BOOL);
    if (mode != BSR_MASK_ADD && mode != BSR_MASK_MUL) return bsri_fail(c, BSR_ITEM_MASK_MODE, operand, -1, mode);
    if (!d) return BSR_OK;
    return bsri_check_repeated(c, set, d, operand, accepted, rows, cols, b);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>softmax: over stored elements, and its backward                                              */
/* ---------------------------------------------------------------------------------------------- */

#define BSRI_ROW_CHUNK 1024 /* elements of a row that are held at once; longer rows are read twice */

typedef union bsri_row_buffer {
    double d[BSRI_ROW_CHUNK];
    float f[BSRI_ROW_CHUNK];
} bsri_row_buffer;

typedef struct bsri_softmax {
    const bsr_matrix *x, *dy, *out; /* backward: x is the forward result, dy its gradient */
    const bsr_softmax_options *options;
    bsri_batch batch;
    double scale;
    int32_t isa, compute;
    int64_t group, groups; /* block rows of a task, tasks of a batch item */
} bsri_softmax;

/* One row of stored elements: row `inner` of the blocks first .. first+count/block_cols-1. */
typedef struct bsri_stored_row {
    bsri_item x, dy, out;
    int64_t row, inner, first, count;
    bsri_bias bias[3];
} bsri_stored_row;

/* Moves elements e .. e+n-1 of a stored row to or from a buffer, in as few pieces as the strides allow. */
static void bsri_stored_move(const bsri_softmax *j, const bsr_matrix *m, const bsri_item *it, const bsri_stored_row *r, int64_t e,
                             int64_t n, void *buffer, int store) {
    int64_t s[3], w, bc = m->block_cols, step;
    int chained; /* neighbouring blocks continue each other */
    bsri_value_steps(m, s);
    step = bc == 1 ? s[0] : s[2], chained = bc == 1 || s[0] == bc * s[2];
    for (; n > 0; n -= w, e += w, buffer = bsri_row_at(j->compute, buffer, w)) {
        char *at = bsri_at(it->values, m->dtype, (r->first + e / bc) * s[0] + r->inner * s[1] + e % bc * s[2]);
        w = chained ? n : bsri_min(n, bc - e % bc);
        if (store) {
            bsri_row_store(j->isa, j->compute, at, m->dtype, step, buffer, w);
        } else if (!chained && e % bc == 0 && n >= bc) { /* whole blocks: as a tile with a row for each */
            w = n - n % bc;
            bsri_tile_load(j->isa, j->compute, buffer, bc, at, m->dtype, n / bc, bc, s[0], s[2]);
        } else {
            bsri_row_load(j->isa, j->compute, buffer, at, m->dtype, step, w);
        }
    }
}

/* The scores e .. e+n-1 of a stored row. */
static void bsri_softmax_scores(const bsri_softmax *j, const bsri_stored_row *r, int64_t e, int64_t n, void *buffer) {
    int64_t w, bc = j->x->block_cols;
    int i;
    bsri_stored_move(j, j->x, &r->x, r, e, n, buffer, 0);
    if (j->scale != 1) bsri_row_scale(j->isa, j->compute, buffer, n, j->scale);
    if (!r->bias[0].data && !r->bias[1].data && !r->bias[2].data) return;
    for (; n > 0; n -= w, e += w, buffer = bsri_row_at(j->compute, buffer, w)) {
        int64_t col = bsri_index(r->x.col, j->x->index_dtype, r->first + e / bc) * bc + e % bc;
        w = bsri_min(n, bc - e % bc);
        for (i = 0; i < 3; i++) /* all additions, then what forbids */
            if (r->bias[i].data && r->bias[i].mode == BSR_MASK_ADD)
                bsri_score_bias(j->isa, j->compute, buffer, &r->bias[i], r->row, col, w);
        for (i = 0; i < 3; i++)
            if (r->bias[i].data && r->bias[i].mode == BSR_MASK_MUL)
                bsri_score_bias(j->isa, j->compute, buffer, &r->bias[i], r->row, col, w);
    }
}

/* Maximum and sum in one pass, the sum rescaled where the maximum grows; then the probabilities in a second, for which
   a row of one chunk is still in the buffer. */
static void bsri_softmax_row(const bsri_softmax *j, const bsri_stored_row *r) {
    bsri_row_buffer buffer;
    double max = (double)-INFINITY, sum = 0, factor;
    int64_t e, n;
    for (e = 0; e < r->count; e += n) {
        double m;
        n = bsri_min(r->count - e, BSRI_ROW_CHUNK);
        bsri_softmax_scores(j, r, e, n, &buffer);
        m = bsri_row_max(j->isa, j->compute, &buffer, n);
        if (!(m <= max)) sum = max > (double)-INFINITY ? sum * exp(max - m) : 0, max = m; /* also to NaN */
        if (!(max < (double)INFINITY)) break;                                             /* NaN, or +inf, whose share is NaN */
        if (max > (double)-INFINITY) sum += bsri_row_exp_sum(j->isa, j->compute, &buffer, n, max);
        else bsri_row_fill(j->compute, &buffer, n, 0);
    }
    factor = sum > 0 ? 1 / sum : 0;
    for (e = 0; e < r->count; e += n) {
        n = bsri_min(r->count - e, BSRI_ROW_CHUNK);
        if (!(max < (double)INFINITY)) {
            bsri_row_fill(j->compute, &buffer, n, (double)NAN);
        } else if (!(max > (double)-INFINITY)) {
            bsri_row_fill(j->compute, &buffer, n, 0);
        } else {
            if (r->count > BSRI_ROW_CHUNK) {
                bsri_softmax_scores(j, r, e, n, &buffer);
                bsri_row_exp_sum(j->isa, j->compute, &buffer, n, max);
            }
            bsri_row_scale(j->isa, j->compute, &buffer, n, factor);
        }
        bsri_stored_move(j, j->out, &r->out, r, e, n, &buffer, 1);
    }
}

static void bsri_softmax_backward_row(const bsri_softmax *j, const bsri_stored_row *r) {
    bsri_row_buffer y, dy;
    int64_t e, n, i;
    double dot = 0;
    for (e = 0; e < r->count; e += n) {
        n = bsri_min(r->count - e, BSRI_ROW_CHUNK);
        bsri_stored_move(j, j->x, &r->x, r, e, n, &y, 0);
        bsri_stored_move(j, j->dy, &r->dy, r, e, n, &dy, 0);
        dot += bsri_row_dot(j->isa, j->compute, &y, &dy, n);
    }
    for (e = 0; e < r->count; e += n) {
        n = bsri_min(r->count - e, BSRI_ROW_CHUNK);
        if (r->count > BSRI_ROW_CHUNK) {
            bsri_stored_move(j, j->x, &r->x, r, e, n, &y, 0);
            bsri_stored_move(j, j->dy, &r->dy, r, e, n, &dy, 0);
        }
        if (j->compute == BSR_F64) {
            for (i = 0; i < n; i++) y.d[i] *= (dy.d[i] - dot) * j->scale;
        } else {
            float sub = (float)dot, scale = (float)j->scale;
            for (i = 0; i < n; i++) y.f[i] *= (dy.f[i] - sub) * scale;
        }
        bsri_stored_move(j, j->out, &r->out, r, e, n, &y, 1);
    }
}

static void bsri_softmax_task(void *arg, int64_t task) {
    const bsri_softmax *j = (const bsri_softmax *)arg;
    const bsr_matrix *x = j->x;
    const bsr_softmax_options *o = j->options;
    int64_t item = task / j->groups, br = task % j->groups * j->group, end = bsri_min(br + j->group, bsri_block_rows(x));
    bsri_stored_row r;
    memset(&r, 0, sizeof r);
    r.x = bsri_matrix_item(&j->batch, item, x), r.out = bsri_matrix_item(&j->batch, item, j->out);
    if (j->dy) r.dy = bsri_matrix_item(&j->batch, item, j->dy);
    if (o) {
        r.bias[0] = bsri_bias_make(&j->batch, item, o->relative_bias, BSR_MASK_ADD);
        r.bias[1] = bsri_bias_make(&j->batch, item, o->key_padding_mask, o->key_padding_mode);
        r.bias[2] = bsri_bias_make(&j->batch, item, o->attn_mask, o->attn_mode);
    }
    for (; br < end; br++) {
        r.first = bsri_index(r.x.crow, x->index_dtype, br);
        r.count = (bsri_index(r.x.crow, x->index_dtype, br + 1) - r.first) * x->block_cols;
        for (r.inner = 0; r.inner < x->block_rows && r.count; r.inner++) {
            r.row = br * x->block_rows + r.inner;
            if (j->dy) bsri_softmax_backward_row(j, &r);
            else bsri_softmax_row(j, &r);
        }
    }
}

#ifdef BSRI_CUDA
static bsr_status bsri_cuda_softmax(const bsri_call *c, const bsri_softmax *job, const bsr_tune_row *key, bsr_plan *plan);
#endif
/* Both operations once they are checked. */
static bsr_status bsri_softmax_run(const bsri_call *c, bsri_softmax *j) {
    const bsr_tune_row key = bsri_tune_key(c->op, j->x->dtype, j->out->dtype, j->x, j->x->rows, 0, j->x->cols);
    bsr_plan p = bsri_plan_default(c);
    int stop;
    j->compute = bsri_compute_dtype(c, j->x->dtype);
    j->batch = bsri_batch_of(j->x->batch_dims, j->x->batch);
    j->group = bsri_ceil_div(32, j->x->block_rows);
    j->groups = bsri_ceil_div(bsri_block_rows(j->x), j->group);
    BSRI_CUDA_RETURN(c, bsri_cuda_softmax(c, j, &key, &p));
    bsri_tune_cpu(c, &key, &p);
    BSRI_TRY(bsri_plan_settle(c, &p, &stop));
    if (stop) return BSR_OK;
    j->isa = p.kernel;
    if (!j->x->nnz) return BSR_OK; /* else there is memory for all items, and their number fits */
    bsri_parallel(c->ctx, j->batch.count * j->groups, bsri_softmax_task, j);
    return BSR_OK;
}

/* The output: type, x's pattern and batch; it may be an operand of `same` exactly. */
static bsr_status bsri_softmax_check_out(const bsri_call *c, bsri_spans *set, const bsr_matrix *x, const bsr_matrix *out,
                                         int operand, uint64_t same) {
    bsri_batch b = bsri_batch_of(x->batch_dims, x->batch);
    BSRI_TRY(bsri_check_matrix_same(c, set, out, operand, BSRI_FLOATS, BSRI_WRITE, same));
    BSRI_TRY(bsri_check_batch_out(c, &b, out->batch_dims, out->batch, operand));
    return bsri_check_same_pattern(c, x, out, operand);
}

static bsr_status bsri_check_scale(const bsri_call *c, double scale) {
    return fabs(scale) < (double)INFINITY ? BSR_OK : bsri_fail(c, BSR_ITEM_SCALE, BSR_ARG_NONE, -1, 0);
}
static bsr_status bsri_softmax_check(const bsri_call *c, double scale, const bsr_matrix *x, const bsr_softmax_options *o,
                                     const bsr_matrix *y) {
    bsri_spans set;
    bsri_batch b;
    set.count = 0;
    BSRI_TRY(bsri_check_matrix(c, &set, x, BSR_ARG_X, BSRI_FLOATS, BSRI_READ));
    BSRI_TRY(bsri_check_scale(c, scale));
    b = bsri_batch_of(x->batch_dims, x->batch);
    if (o) {
        BSRI_TRY(bsri_check_bias(c, &set, &b, o->relative_bias, x->rows, x->cols, BSR_MASK_ADD, BSR_ARG_REL_BIAS));
        BSRI_TRY(bsri_check_bias(c, &set, &b, o->key_padding_mask, 1, x->cols, o->key_padding_mode, BSR_ARG_KEY_PADDING));
        BSRI_TRY(bsri_check_bias(c, &set, &b, o->attn_mask, x->rows, x->cols, o->attn_mode, BSR_ARG_ATTN_MASK));
    }
    BSRI_TRY(bsri_softmax_check_out(c, &set, x, y, BSR_ARG_Y, BSRI_MAY_BE(BSR_ARG_X)));
    if (y->dtype != x->dtype && (y->dtype != BSR_F32 || x->dtype == BSR_F64))
        return bsri_fail_wanted(c, BSR_ITEM_DTYPE_OUT, BSR_ARG_Y, -1, y->dtype, BSRI_SAME_OR_F32(x->dtype));
    return bsri_check_structure(c, x, BSR_ARG_X, 0);
}

/* dy has y's type; dx any of f16, bf16, f32 (x's type, whatever y's was), or f64 for f64. */
static bsr_status bsri_softmax_backward_check(const bsri_call *c, double scale, const bsr_matrix *y, const bsr_matrix *dy,
                                              const bsr_matrix *dx) {
    bsri_spans set;
    bsri_batch b;
    set.count = 0;
    BSRI_TRY(bsri_check_matrix(c, &set, y, BSR_ARG_Y, BSRI_FLOATS, BSRI_READ));
    BSRI_TRY(bsri_check_scale(c, scale));
    b = bsri_batch_of(y->batch_dims, y->batch);
    BSRI_TRY(bsri_check_matrix(c, &set, dy, BSR_ARG_DY, BSRI_FLOATS, BSRI_READ));
    if (dy->dtype != y->dtype) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_DY, -1, dy->dtype, y->dtype);
    BSRI_TRY(bsri_check_batch_out(c, &b, dy->batch_dims, dy->batch, BSR_ARG_DY));
    BSRI_TRY(bsri_check_same_pattern(c, y, dy, BSR_ARG_DY));
    BSRI_TRY(bsri_softmax_check_out(c, &set, y, dx, BSR_ARG_DX, BSRI_MAY_BE(BSR_ARG_Y) | BSRI_MAY_BE(BSR_ARG_DY)));
    if ((dx->dtype == BSR_F64) != (y->dtype == BSR_F64))
        return bsri_fail_wanted(c, BSR_ITEM_DTYPE_OUT, BSR_ARG_DX, -1, dx->dtype,
                                y->dtype == BSR_F64 ? BSRI_BIT(BSR_F64) : BSRI_FLOATS & ~BSRI_BIT(BSR_F64));
    return bsri_check_structure(c, y, BSR_ARG_Y, 0);
}

BSR_API bsr_status bsr_softmax(const bsr_context *ctx, double scale, const bsr_matrix *x, const bsr_softmax_options *options,
                               const bsr_matrix *y, const bsr_exec *exec) {
    bsri_softmax j;
    bsri_call c;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SOFTMAX, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_ROWS, x ? x->dtype : 0));
    if (bsri_checking(&c)) BSRI_TRY(bsri_softmax_check(&c, scale, x, options, y));
    memset(&j, 0, sizeof j);
    j.x = x, j.out = y, j.options = options, j.scale = scale;
    return bsri_softmax_run(&c, &j);
}

BSR_API bsr_status bsr_softmax_backward(const bsr_context *ctx, double scale, const bsr_matrix *y, const bsr_matrix *dy,
                                        const bsr_matrix *dx, const bsr_exec *exec) {
    bsri_softmax j;
    bsri_call c;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SOFTMAX_BACKWARD, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_ROWS, y ? y->dtype : 0));
    if (bsri_checking(&c)) BSRI_TRY(bsri_softmax_backward_check(&c, scale, y, dy, dx));
    memset(&j, 0, sizeof j);
    j.x = y, j.dy = dy, j.out = dx, j.scale = scale;
    return bsri_softmax_run(&c, &j);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-engine: one pass over the stored blocks of each query tile                         */
/* ---------------------------------------------------------------------------------------------- */

/* A task is one tile of query rows within one block row. It walks the row's blocks, gathers up to a tile of their columns (part
   of a large block, or several small ones), forms the scores, folds them into running maximum, sum and output (online
   softmax), and divides at the end. Scores never leave the tile. All of its memory is one arena on the stack:
   Q, a panel that holds K transposed and then V, scores, output. D beyond a panel is summed in chunks (Q is then packed
   for each key tile); Dv beyond a panel takes one walk per panel, which forms the scores anew. */
#define BSRI_TILE_DEPTH 128 /* D and Dv that a tile holds */
#define BSRI_TILE_F32 64    /* query rows and key columns of a tile */
#define BSRI_TILE_F64 32
/* 112 KiB; as many bytes do for f64 */
#define BSRI_ARENA_F32 (BSRI_TILE_DEPTH * BSRI_TILE_F32 * 3 + BSRI_TILE_F32 * BSRI_TILE_F32)
typedef union bsri_arena {
    float f[BSRI_ARENA_F32 + 16];
    double d[(BSRI_ARENA_F32 + 16) / 2];
} bsri_arena;

typedef float (*bsri_score_function)(float s, const bsr_position *at, const void *user_data);
typedef int (*bsri_mask_function)(const bsr_position *at, const void *user_data);
static const bsri_score_function bsri_user_scores[] = {
#ifdef BSR_USER_SCORES
#define BSRI_X(name) name,
    BSR_USER_SCORES(BSRI_X)
#undef BSRI_X
#endif
        NULL};
static const bsri_mask_function bsri_user_masks[] = {
#ifdef BSR_USER_MASKS
#define BSRI_X(name) name,
    BSR_USER_MASKS(BSRI_X)
#undef BSRI_X
#endif
        NULL};

typedef struct bsri_attention {
    const bsr_dense *q, *k, *v, *out, *lse;
    const bsr_matrix *mask;
    const bsr_attention_options *options;
    bsri_batch batch;
    int64_t heads, k_group, v_group; /* query heads; how many share one of k's, of v's */
    int64_t causal_offset, mask_strides[3];
    double scale, drop_below, keep_scale; /* dropout: words below are dropped; 1 / (1 - p) */
    float keep[2];                        /* 1, 0: factor by whether it is dropped */
    bsri_score_function score;
    bsri_mask_function allow;
    int32_t isa, compute;
    int32_t modifies, reserved;   /* is there anything between product and softmax? */
    int64_t tile, tile_rows;      /* key columns, query rows */
    int64_t tiles, group, groups; /* query tiles of a block row; block rows of a task; tasks of a batch item */
} bsri_attention;

/* Columns of one stored block in a key tile. */
typedef struct bsri_piece {
    int64_t block, inner, col; /* position in values; first column in the block, of all */
    int64_t at, width;         /* place in the tile */
} bsri_piece;

typedef struct bsri_query_tile {
    const bsri_attention *job;
    bsri_item mask;
    const char *q, *k, *v;
    bsri_bias relative, padding;
    bsr_position position;
    int64_t row, rows, inner; /* first row, their number, the first's place in the block */
    int64_t panel, depth;     /* columns of v and out at work */
    bsri_piece piece[BSRI_TILE_F32];
    int64_t pieces, cols;
    void *tile_q, *tile_kv, *tile_s, *tile_out;
    bsri_bias_row padding_row; /* what padding adds to the tile's columns: the same for all rows */
    double max[BSRI_TILE_F32], sum[BSRI_TILE_F32];
    uint64_t special, forbidden[BSRI_TILE_F32]; /* see bsri_attention_shield() */
} bsri_query_tile;

static int64_t bsri_round16(int64_t n) { return (n + BSRI_LANES_MAX - 1) / BSRI_LANES_MAX * BSRI_LANES_MAX; }
static void *bsri_tile_score(const bsri_query_tile *t, int64_t row, int64_t col) {
    return bsri_row_at(t->job->compute, t->tile_s, row * t->job->tile + col);
}
static void *bsri_tile_output(const bsri_query_tile *t, int64_t row) {
    return bsri_row_at(t->job->compute, t->tile_out, row * bsri_round16(t->depth));
}

/* The next key tile, from block *p, column *inner on; returns its columns. What lies past the last key, or above the
   diagonal for all rows, is passed over. */
static int64_t bsri_attention_gather(bsri_query_tile *t, int64_t *p, int64_t end, int64_t *inner) {
    const bsri_attention *j = t->job;
    const bsr_matrix *m = j->mask;
    int64_t limit = j->k->rows;
    if (j->options->flags & BSR_ATTENTION_CAUSAL) limit = bsri_min(limit, t->row + t->rows + j->causal_offset);
    t->pieces = 0, t->cols = 0;
    while (*p < end) {
        int64_t first = bsri_index(t->mask.col, m->index_dtype, *p) * m->block_cols;
        int64_t width = bsri_min(m->block_cols, limit - first) - *inner;
        int64_t room = (j->tile - t->cols) / BSRI_LANES_MAX * BSRI_LANES_MAX;
        bsri_piece *piece = &t->piece[t->pieces];
        if (width <= 0) {
            *p += 1, *inner = 0;
            continue;
        }
        if (!room) break; /* packing writes whole vectors */
        width = bsri_min(width, room);
        piece->block = *p, piece->inner = *inner, piece->col = first + *inner, piece->at = t->cols, piece->width = width;
        t->pieces++, t->cols += width, *inner += width;
    }
    return t->cols;
}

static void bsri_attention_pack_q(const bsri_query_tile *t, int64_t d, int64_t depth) {
    const bsri_attention *j = t->job;
    const bsr_dense *q = j->q;
    const char *from = bsri_at(t->q, q->dtype, t->row * q->row_stride + d * q->col_stride);
    const int64_t ld = bsri_round16(depth);
    bsri_tile_pack(j->isa, j->compute, t->tile_q, ld, from, q->dtype, t->rows, depth, q->row_stride, q->col_stride);
    bsri_row_scale(j->isa, j->compute, t->tile_q, t->rows * ld, j->scale);
}

/* Columns d .. d+depth-1 of the tile's keys, transposed. Many narrow pieces are first brought together, in the scores' place
   as long as that is free, so that one transposition serves them all. */
static void bsri_attention_pack_k(const bsri_query_tile *t, int64_t d, int64_t depth) {
    const bsri_attention *j = t->job;
    const bsr_dense *k = j->k;
    const int64_t ld = j->tile;
    int64_t i, at, part;
    if (t->pieces > 1 && t->cols < t->pieces * BSRI_LANES_MAX && d == 0 && k->row_stride != 1) {
        for (at = 0; at < depth; at += part) {
            part = bsri_min(depth - at, ld);
            for (i = 0; i < t->pieces; i++)
                bsri_tile_load(j->isa, j->compute, bsri_tile_score(t, t->piece[i].at, 0), ld,
                               bsri_at(t->k, k->dtype, t->piece[i].col * k->row_stride + at * k->col_stride), k->dtype,
                               t->piece[i].width, part, k->row_stride, k->col_stride);
            bsri_tile_pack(j->isa, j->compute, bsri_row_at(j->compute, t->tile_kv, at * ld), ld, t->tile_s, j->compute, part,
                           t->cols, 1, ld);
        }
        return;
    }
    for (i = 0; i < t->pieces; i++)
        bsri_tile_pack(j->isa, j->compute, bsri_row_at(j->compute, t->tile_kv, t->piece[i].at), ld,
                       bsri_at(t->k, k->dtype, t->piece[i].col * k->row_stride + d * k->col_stride), k->dtype, depth,
                       t->piece[i].width, k->col_stride, k->row_stride);
}

/* Scores of the tile: scale Q K^T. */
static void bsri_attention_scores(const bsri_query_tile *t) {
    const bsri_attention *j = t->job;
    const bsr_dense *k = j->k;
    int64_t d, depth;
    if (!k->cols) memset(t->tile_s, 0, (size_t)(t->rows * j->tile) * bsr_dtype_size(j->compute));
    for (d = 0; d < k->cols; d += depth) {
        const void *b = t->tile_kv;
        int64_t ldb = j->tile;
        depth = bsri_min(k->cols - d, BSRI_TILE_DEPTH);
        if (k->cols > BSRI_TILE_DEPTH) bsri_attention_pack_q(t, d, depth);
        if (t->pieces == 1 && k->dtype == j->compute && k->row_stride == 1) /* stored transposed already */
            b = bsri_at(t->k, k->dtype, t->piece[0].col + d * k->col_stride), ldb = k->col_stride;
        else bsri_attention_pack_k(t, d, depth);
        bsri_tile_mm(j->isa, j->compute, t->rows, t->cols, depth, t->tile_q, bsri_round16(depth), 1, b, ldb, t->tile_s, j->tile,
                     d > 0);
    }
}

/* The user's functions on `width` scores of one row. */
static int bsri_attention_user(const bsri_query_tile *t, void *s, int64_t row, int64_t col, int64_t width, int masks) {
    const bsri_attention *j = t->job;
    bsr_position at = t->position;
    int64_t n;
    int forbids = 0;
    at.row = row;
    for (n = 0; n < width; n++) {
        at.col = col + n;
        if (!masks) {
            bsri_row_set(j->compute, s, n, (double)j->score((float)bsri_row_get(j->compute, s, n), &at, j->options->user_data));
        } else if (!j->allow(&at, j->options->user_data)) {
            bsri_row_set(j->compute, s, n, (double)-INFINITY), forbids = 1;
        }
    }
    return forbids;
}

/* First element of one piece's row i in the mask's values; 0 where the mask counts by pattern, whose strides mean nothing. */
static int64_t bsri_mask_at(const bsri_query_tile *t, int64_t i, const bsri_piece *p) {
    const int64_t *ms = t->job->mask_strides;
    if (!(t->job->options->flags & (BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_MASK_ADDITIVE))) return 0;
    return p->block * ms[0] + (t->inner + i) * ms[1] + p->inner * ms[2];
}
/* What comes before the score function, for row i and one piece. Like the next one it returns whether a position is forbidden. */
static int bsri_attention_bias(const bsri_query_tile *t, int64_t i, const bsri_piece *p) {
    const bsri_attention *j = t->job;
    const int64_t *ms = j->mask_strides, at = bsri_mask_at(t, i, p);
    void *s = bsri_tile_score(t, i, p->at);
    int forbids = 0;
    if (j->options->flags & BSR_ATTENTION_MASK_ADDITIVE)
        forbids |= bsri_score_add(j->isa, j->compute, s, t->mask.values, j->mask->dtype, at, ms[2], p->width);
    if (t->relative.data) forbids |= bsri_score_bias(j->isa, j->compute, s, &t->relative, t->row + i, p->col, p->width);
    return forbids;
}
/* What comes after it. */
static int bsri_attention_forbid(const bsri_query_tile *t, int64_t i, const bsri_piece *p) {
    const bsri_attention *j = t->job;
    const int64_t *ms = j->mask_strides, at = bsri_mask_at(t, i, p), row = t->row + i;
    void *s = bsri_tile_score(t, i, p->at);
    int forbids = 0;
    if (j->options->flags & BSR_ATTENTION_CAUSAL) {
        const int64_t open = bsri_max(0, row + j->causal_offset + 1 - p->col);
        if (open < p->width)
            bsri_row_fill(j->compute, bsri_row_at(j->compute, s, open), p->width - open, (double)-INFINITY), forbids = 1;
    }
    if (j->options->flags & BSR_ATTENTION_MASK_BOOLEAN)
        forbids |= bsri_score_forbid(j->isa, j->compute, s, t->mask.values, j->mask->dtype, at, ms[2], p->width);
    if (j->allow) forbids |= bsri_attention_user(t, s, row, p->col, p->width, 1);
    return forbids;
}
/* Everything between product and softmax, in the documented order. Returns whether a position of the tile is forbidden. */
static int bsri_attention_modify(bsri_query_tile *t) {
    const bsri_attention *j = t->job;
    const int pad = t->padding.data != NULL, pad_late = t->padding.mode == BSR_MASK_MUL;
    int64_t i, n;
    int forbids = 0;
    bsri_row_fill(j->compute, &t->padding_row, pad ? t->cols : 0, 0);
    for (n = 0; n < t->pieces && pad; n++)
        bsri_score_bias(j->isa, j->compute, bsri_row_at(j->compute, &t->padding_row, t->piece[n].at), &t->padding, 0,
                        t->piece[n].col, t->piece[n].width);
    for (i = 0; i < t->rows && j->modifies; i++) {
        void *s = bsri_tile_score(t, i, 0);
        for (n = 0; n < t->pieces; n++) forbids |= bsri_attention_bias(t, i, &t->piece[n]);
        if (pad && !pad_late) forbids |= bsri_score_add_row(j->isa, j->compute, s, &t->padding_row, t->cols);
        for (n = 0; n < t->pieces && j->score; n++)
            bsri_attention_user(t, bsri_tile_score(t, i, t->piece[n].at), t->row + i, t->piece[n].col, t->piece[n].width, 0);
        for (n = 0; n < t->pieces; n++) forbids |= bsri_attention_forbid(t, i, &t->piece[n]);
        if (pad && pad_late) forbids |= bsri_score_add_row(j->isa, j->compute, s, &t->padding_row, t->cols);
    }
    return forbids;
}

/* Online softmax: scores become exp(score - max), sums and output follow a growing maximum. */
static void bsri_attention_fold(bsri_query_tile *t) {
    const bsri_attention *j = t->job;
    int64_t i;
    for (i = 0; i < t->rows; i++) {
        void *s = bsri_tile_score(t, i, 0);
        double before = t->max[i], m = bsri_row_max(j->isa, j->compute, s, t->cols);
        if (before >= m || before != before) m = before; /* NaN stays */
        if (m == (double)-INFINITY) {
            bsri_row_fill(j->compute, s, t->cols, 0);
            continue;
        }
        if (m != before && before > (double)-INFINITY) {
            double factor = exp(before - m);
            t->sum[i] *= factor;
            bsri_row_scale(j->isa, j->compute, bsri_tile_output(t, i), t->depth, factor);
        }
        t->max[i] = m;
        t->sum[i] += bsri_row_exp_sum(j->isa, j->compute, s, t->cols, m);
    }
}

/* V's rows of the tile as the product reads them. */
static const void *bsri_attention_values(const bsri_query_tile *t, int64_t *ld, int copy) {
    const bsri_attention *j = t->job;
    const bsr_dense *v = j->v;
    int64_t i;
    if (!copy && t->pieces == 1 && v->dtype == j->compute && v->col_stride == 1) {
        *ld = v->row_stride;
        return bsri_at(t->v, v->dtype, t->piece[0].col * v->row_stride + t->panel);
    }
    *ld = bsri_round16(t->depth);
    for (i = 0; i < t->pieces; i++)
        bsri_tile_pack(j->isa, j->compute, bsri_row_at(j->compute, t->tile_kv, t->piece[i].at * *ld), *ld,
                       bsri_at(t->v, v->dtype, t->piece[i].col * v->row_stride + t->panel * v->col_stride), v->dtype,
                       t->piece[i].width, t->depth, v->row_stride, v->col_stride);
    return t->tile_kv;
}

/* A forbidden position must not contribute although 0 times NaN or inf is NaN: rows of V that are not finite are taken out of
   the product (and zeroed in the packed tile) before scores become probabilities; bsri_attention_unshield() adds them where
   they are allowed. */
static void bsri_attention_shield(bsri_query_tile *t, int64_t ld) {
    const bsri_attention *j = t->job;
    int64_t c, i;
    for (c = 0; c < t->cols; c++) {
        void *v = bsri_row_at(j->compute, t->tile_kv, c * ld);
        if (bsri_row_dot(j->isa, j->compute, v, v, t->depth) < (double)INFINITY) continue;
        t->special |= (uint64_t)1 << c;
        bsri_row_fill(j->compute, v, t->depth, 0);
    }
    for (i = 0; i < t->rows && t->special; i++)
        for (c = 0, t->forbidden[i] = 0; c < t->cols; c++)
            if (bsri_row_get(j->compute, bsri_tile_score(t, i, c), 0) == (double)-INFINITY) t->forbidden[i] |= (uint64_t)1 << c;
}
static void bsri_attention_unshield(bsri_query_tile *t) {
    const bsri_attention *j = t->job;
    int64_t i, c, d, n;
    for (n = 0; n < t->pieces; n++)
        for (c = t->piece[n].at; c < t->piece[n].at + t->piece[n].width; c++)
            for (i = 0; i < t->rows && t->special >> c & 1; i++) {
                double p = bsri_row_get(j->compute, bsri_tile_score(t, i, c), 0);
                int64_t at = (t->piece[n].col + c - t->piece[n].at) * j->v->row_stride + t->panel * j->v->col_stride;
                if (t->forbidden[i] >> c & 1) continue;
                for (d = 0; d < t->depth; d++, at += j->v->col_stride) {
                    void *o = bsri_tile_output(t, i);
                    bsri_row_set(j->compute, o, d, bsri_row_get(j->compute, o, d) + p * bsri_load_f64(t->v, j->v->dtype, at));
                }
            }
    t->special = 0;
}

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), the words of BSRI_PHILOX counters whose first
   words follow each other. */
#define BSRI_PHILOX 4
static void bsri_philox(uint64_t key, const uint32_t counter[4], uint32_t word[4 * BSRI_PHILOX]) {
    uint32_t x[4][BSRI_PHILOX], key0 = (uint32_t)(key & 0xffffffffu), key1 = (uint32_t)(key >> 32);
    int round, l;
    for (l = 0; l < BSRI_PHILOX; l++)
        x[0][l] = counter[0] + (uint32_t)l, x[1][l] = counter[1], x[2][l] = counter[2], x[3][l] = counter[3];
    for (round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
        for (l = 0; l < BSRI_PHILOX; l++) {
            const uint64_t a = (uint64_t)x[0][l] * 0xD2511F53u, b = (uint64_t)x[2][l] * 0xCD9E8D57u;
            x[0][l] = (uint32_t)(b >> 32) ^ x[1][l] ^ key0, x[1][l] = (uint32_t)b;
            x[2][l] = (uint32_t)(a >> 32) ^ x[3][l] ^ key1, x[3][l] = (uint32_t)a;
        }
    for (l = 0; l < 4 * BSRI_PHILOX; l++) word[l] = x[l % 4][l / 4];
}
/* Zeroes the dropped ones of n probabilities, columns col and on of one row; kept ones are scaled when the row is finished. */
static void bsri_attention_drop_row(const bsri_query_tile *t, void *s, int64_t row, int64_t col, int64_t n) {
    const bsri_attention *j = t->job;
    uint32_t counter[4], word[4 * BSRI_PHILOX];
    int64_t i, w, skip;
    counter[1] = (uint32_t)row, counter[2] = (uint32_t)t->position.head, counter[3] = (uint32_t)t->position.batch;
    for (; n > 0; n -= w, col += w, s = bsri_row_at(j->compute, s, w)) {
        skip = col % 4, w = bsri_min(n, 4 * BSRI_PHILOX - skip), counter[0] = (uint32_t)(col / 4);
        bsri_philox(j->options->dropout_seed, counter, word);
        if (j->compute == BSR_F32) {
            for (i = 0; i < w; i++) ((float *)s)[i] *= j->keep[(double)word[skip + i] < j->drop_below];
        } else {
            for (i = 0; i < w; i++) ((double *)s)[i] *= (double)j->keep[(double)word[skip + i] < j->drop_below];
        }
    }
}
static void bsri_attention_drop(const bsri_query_tile *t) {
    int64_t i, n;
    for (i = 0; i < t->rows; i++)
        for (n = 0; n < t->pieces; n++)
            bsri_attention_drop_row(t, bsri_tile_score(t, i, t->piece[n].at), t->row + i, t->piece[n].col, t->piece[n].width);
}

/* One key tile from scores to output. */
static void bsri_attention_step(bsri_query_tile *t) {
    const bsri_attention *j = t->job;
    int64_t ld;
    int forbids;
    const void *v;
    bsri_attention_scores(t);
    forbids = bsri_attention_modify(t);
    v = bsri_attention_values(t, &ld, forbids);
    if (forbids) bsri_attention_shield(t, ld);
    bsri_attention_fold(t);
    if (j->drop_below > 0) bsri_attention_drop(t);
    if (t->depth)
        bsri_tile_mm(j->isa, j->compute, t->rows, t->depth, t->cols, t->tile_s, j->tile, 1, v, ld, t->tile_out,
                     bsri_round16(t->depth), 1);
    if (t->special) bsri_attention_unshield(t);
}

/* Divides, stores rows and, once, the log-sum-exp. */
static void bsri_attention_finish(bsri_query_tile *t, char *out, char *lse) {
    const bsri_attention *j = t->job;
    int64_t i;
    for (i = 0; i < t->rows; i++) {
        void *o = bsri_tile_output(t, i), *to;
        double m = t->max[i];
        if (!(m < (double)INFINITY)) bsri_row_fill(j->compute, o, t->depth, (double)NAN); /* NaN, or +inf */
        else if (m > (double)-INFINITY) bsri_row_scale(j->isa, j->compute, o, t->depth, j->keep_scale / t->sum[i]);
        to = bsri_at(out, j->out->dtype, (t->row + i) * j->out->row_stride + t->panel * j->out->col_stride);
        bsri_row_store(j->isa, j->compute, to, j->out->dtype, j->out->col_stride, o, t->depth);
        if (lse && t->panel == 0)
            bsri_store_f64(lse, j->lse->dtype, (t->row + i) * j->lse->row_stride,
                           m > (double)-INFINITY && m < (double)INFINITY ? m + log(t->sum[i]) : m);
    }
}

/* The walk of one query tile over block row br. */
static void bsri_attention_tile(bsri_query_tile *t, int64_t br, char *out, char *lse) {
    const bsri_attention *j = t->job;
    const int64_t first = bsri_index(t->mask.crow, j->mask->index_dtype, br);
    const int64_t end = bsri_index(t->mask.crow, j->mask->index_dtype, br + 1);
    int64_t i, p, inner;
    if (j->q->cols <= BSRI_TILE_DEPTH && first < end) bsri_attention_pack_q(t, 0, j->q->cols);
    t->panel = 0;
    do {
        t->depth = bsri_min(j->v->cols - t->panel, BSRI_TILE_DEPTH);
        for (i = 0; i < t->rows; i++) t->max[i] = (double)-INFINITY, t->sum[i] = 0;
        memset(t->tile_out, 0, (size_t)(t->rows * bsri_round16(t->depth)) * bsr_dtype_size(j->compute));
        for (p = first, inner = 0; bsri_attention_gather(t, &p, end, &inner) > 0;) bsri_attention_step(t);
        bsri_attention_finish(t, out, lse);
        t->panel += t->depth;
    } while (t->panel < j->v->cols);
}

/* Offset of a key or value operand whose heads are shared by `group` query heads. */
static int64_t bsri_group_offset(const bsri_attention *j, int64_t item, const bsr_dense *d, int64_t group) {
    int64_t head = item % j->heads;
    return bsri_dense_offset(&j->batch, item - head + head / group, d);
}

static void bsri_attention_task(void *arg, int64_t task) {
    const bsri_attention *j = (const bsri_attention *)arg;
    const bsr_attention_options *o = j->options;
    int64_t item = task / j->groups, at = task % j->groups * j->group, block_rows = j->mask->block_rows, n;
    int64_t end = bsri_min(at + j->group, bsri_block_rows(j->mask) * j->tiles), panel = j->tile * BSRI_TILE_DEPTH;
    char *out = bsri_at(j->out->data, j->out->dtype, bsri_dense_offset(&j->batch, item, j->out));
    char *lse = j->lse ? bsri_at(j->lse->data, j->lse->dtype, bsri_dense_offset(&j->batch, item, j->lse)) : NULL;
    bsri_arena arena;
    bsri_query_tile t;
    t.job = j, t.mask = bsri_matrix_item(&j->batch, item, j->mask), t.special = 0;
    t.q = bsri_at(j->q->data, j->q->dtype, bsri_dense_offset(&j->batch, item, j->q));
    t.k = bsri_at(j->k->data, j->k->dtype, bsri_group_offset(j, item, j->k, j->k_group));
    t.v = bsri_at(j->v->data, j->v->dtype, bsri_group_offset(j, item, j->v, j->v_group));
    t.relative = bsri_bias_make(&j->batch, item, o->relative_bias, BSR_MASK_ADD);
    t.padding = bsri_bias_make(&j->batch, item, o->key_padding_mask, o->key_padding_mode);
    t.position.batch = item / j->heads, t.position.head = item % j->heads, t.position.row = t.position.col = 0;
    t.tile_q = (void *)(((uintptr_t)&arena + 63) / 64 * 64);
    t.tile_kv = bsri_row_at(j->compute, t.tile_q, panel), t.tile_out = bsri_row_at(j->compute, t.tile_kv, panel);
    t.tile_s = bsri_row_at(j->compute, t.tile_out, panel);
    for (; at < end; at++) {
        n = at % j->tiles * j->tile_rows; /* first row in the block */
        t.inner = n, t.row = at / j->tiles * block_rows + n;
        t.rows = bsri_min(bsri_min(j->tile_rows, block_rows - n), j->q->rows - t.row);
        if (t.rows > 0) bsri_attention_tile(&t, at / j->tiles, out, lse);
    }
}

/* k or v in the batch: its last dimension may have fewer heads, of which `*group` query heads share one. */
static bsr_status bsri_attention_join(const bsri_call *c, bsri_batch *b, const bsr_dense *d, int operand, int64_t *group) {
    int64_t size[BSR_MAX_BATCH_DIMS], heads = b->dims ? b->size[b->dims - 1] : 1;
    int i;
    *group = 1;
    for (i = 0; i < d->batch_dims; i++) size[i] = d->batch[i];
    if (i && heads > 1 && size[i - 1] != 1 && size[i - 1] != heads) {
        if (size[i - 1] == 0 || heads % size[i - 1]) return bsri_fail_wanted(c, BSR_ITEM_HEADS, operand, -1, heads, size[i - 1]);
        *group = heads / size[i - 1], size[i - 1] = heads;
    }
    return bsri_join(c, b, d->batch_dims, size, operand);
}

static bsr_status bsri_attention_check_options(const bsri_call *c, const bsr_attention_options *o) {
    const uint32_t both = BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_MASK_ADDITIVE;
    if (o->flags & ~(BSR_ATTENTION_CAUSAL | both)) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, (int64_t)o->flags);
    if ((o->flags & both) == both) return bsri_fail(c, BSR_ITEM_FLAGS_CONFLICT, BSR_ARG_OPTIONS, -1, (int64_t)o->flags);
    if (o->reserved[0]) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, o->reserved[0]);
    if (o->reserved[1]) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, o->reserved[1]);
    if (!(o->dropout_p >= 0 && o->dropout_p <= 1)) return bsri_fail(c, BSR_ITEM_DROPOUT, BSR_ARG_OPTIONS, -1, 0);
    if (o->score_function && (o->score_function < BSR_USER_FUNCTION_BASE || o->score_function >= BSRI_USER_SCORE_END))
        return bsri_fail(c, BSR_ITEM_USER_FUNCTION, BSR_ARG_OPTIONS, -1, o->score_function);
    if (o->mask_function && (o->mask_function < BSR_USER_FUNCTION_BASE || o->mask_function >= BSRI_USER_MASK_END))
        return bsri_fail(c, BSR_ITEM_USER_FUNCTION, BSR_ARG_OPTIONS, -1, o->mask_function);
    return BSR_OK;
}

/* q, k, v, mask: types and sizes. */
static bsr_status bsri_attention_check_inputs(const bsri_call *c, bsri_spans *set, const bsr_dense *q, const bsr_dense *k,
                                              const bsr_dense *v, const bsr_matrix *mask, uint32_t flags) {
    const int values = (flags & (BSR_ATTENTION_MASK_BOOLEAN | BSR_ATTENTION_MASK_ADDITIVE)) != 0;
    const uint32_t accepted = flags & BSR_ATTENTION_MASK_ADDITIVE ? BSRI_MASKS & ~BSRI_BIT(BSR_BOOL) : BSRI_ANY;
    int64_t rows, cols;
    BSRI_TRY(bsri_check_dense(c, set, q, BSR_ARG_Q, BSRI_FLOATS, BSRI_READ));
    BSRI_TRY(bsri_check_dense(c, set, k, BSR_ARG_K, BSRI_FLOATS, BSRI_READ));
    BSRI_TRY(bsri_check_dense(c, set, v, BSR_ARG_V, BSRI_FLOATS, BSRI_READ));
    if (k->dtype != q->dtype) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_K, -1, k->dtype, q->dtype);
    if (v->dtype != q->dtype) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_MISMATCH, BSR_ARG_V, -1, v->dtype, q->dtype);
    if (k->cols != q->cols) return bsri_fail_wanted(c, BSR_ITEM_INNER_MISMATCH, BSR_ARG_K, -1, k->cols, q->cols);
    if (v->rows != k->rows) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_V, -1, v->rows, k->rows);
    BSRI_TRY(bsri_check_matrix(c, set, mask, BSR_ARG_MASK, accepted, values ? BSRI_READ : BSRI_PATTERN));
    rows = bsri_whole_blocks(q->rows, mask->block_rows), cols = bsri_whole_blocks(k->rows, mask->block_cols);
    if (mask->rows != rows) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MASK, -1, mask->rows, rows);
    if (mask->cols != cols) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MASK, -1, mask->cols, cols);
    return bsri_check_structure(c, mask, BSR_ARG_MASK, 0);
}

/* out or lse: rows x cols, the batch b. */
static bsr_status bsri_attention_check_output(const bsri_call *c, bsri_spans *set, const bsri_batch *b, const bsr_dense *d,
                                              int64_t rows, int64_t cols, int operand, uint32_t accepted) {
    BSRI_TRY(bsri_check_dense(c, set, d, operand, accepted, BSRI_WRITE));
    if (d->rows != rows) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, operand, -1, d->rows, rows);
    if (d->cols != cols) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, operand, -1, d->cols, cols);
    return bsri_check_batch_out(c, b, d->batch_dims, d->batch, operand);
}

/* Batch of the whole call: everything that broadcasts. Needed without checks too. */
static bsr_status bsri_attention_batch(const bsri_call *c, bsri_attention *j) {
    j->batch = bsri_batch_none();
    BSRI_TRY(bsri_join(c, &j->batch, j->q->batch_dims, j->q->batch, BSR_ARG_Q));
    BSRI_TRY(bsri_join(c, &j->batch, j->mask->batch_dims, j->mask->batch, BSR_ARG_MASK));
    BSRI_TRY(bsri_attention_join(c, &j->batch, j->k, BSR_ARG_K, &j->k_group));
    BSRI_TRY(bsri_attention_join(c, &j->batch, j->v, BSR_ARG_V, &j->v_group));
    j->heads = j->batch.dims ? j->batch.size[j->batch.dims - 1] : 1;
    return BSR_OK;
}

static bsr_status bsri_attention_check(const bsri_call *c, double scale, bsri_attention *j) {
    const bsr_attention_options *o = j->options;
    const int dtype = j->q ? j->q->dtype : 0;
    bsri_spans set;
    set.count = 0;
    BSRI_TRY(bsri_attention_check_options(c, o));
    BSRI_TRY(bsri_check_scale(c, scale));
    BSRI_TRY(bsri_attention_check_inputs(c, &set, j->q, j->k, j->v, j->mask, o->flags));
    BSRI_TRY(bsri_attention_batch(c, j));
    BSRI_TRY(bsri_check_bias(c, &set, &j->batch, o->relative_bias, j->q->rows, j->k->rows, BSR_MASK_ADD, BSR_ARG_REL_BIAS));
    BSRI_TRY(bsri_check_bias(c, &set, &j->batch, o->key_padding_mask, 1, j->k->rows, o->key_padding_mode, BSR_ARG_KEY_PADDING));
    BSRI_TRY(bsri_attention_check_output(c, &set, &j->batch, j->out, j->q->rows, j->v->cols, BSR_ARG_OUT, BSRI_FLOATS));
    if (j->out->dtype != dtype && (j->out->dtype != BSR_F32 || dtype == BSR_F64))
        return bsri_fail_wanted(c, BSR_ITEM_DTYPE_OUT, BSR_ARG_OUT, -1, j->out->dtype, BSRI_SAME_OR_F32(dtype));
    if (o->score_function && (dtype == BSR_F64 || (c->flags & BSR_EXEC_ACCUMULATE_F64))) /* as in epilogues: it computes in f32 */
        return bsri_fail(c, BSR_ITEM_ACTIVATION_DTYPE, BSR_ARG_OPTIONS, -1, o->score_function);
    if (!j->lse) return BSR_OK;
    return bsri_attention_check_output(c, &set, &j->batch, j->lse, j->q->rows, 1, BSR_ARG_LSE,
                                       BSRI_BIT(BSR_F32) | BSRI_BIT(BSR_F64));
}

/* What follows from the arguments. */
static void bsri_attention_prepare(const bsri_call *c, double scale, bsri_attention *j) {
    const bsr_attention_options *o = j->options;
    const int64_t far = INT64_MAX / 4; /* beyond every matrix, and safe to add to a row */
    j->scale = scale != 0 ? scale : j->q->cols ? 1 / sqrt((double)j->q->cols) : 1;
    j->causal_offset = bsri_max(-far, bsri_min(far, o->causal_offset));
    j->drop_below = o->dropout_p * 4294967296.0, j->keep_scale = o->dropout_p < 1 ? 1 / (1 - o->dropout_p) : 1;
    j->keep[0] = 1, j->keep[1] = 0;
    j->score = o->score_function ? bsri_user_scores[o->score_function - BSR_USER_FUNCTION_BASE] : NULL;
    j->allow = o->mask_function ? bsri_user_masks[o->mask_function - BSR_USER_FUNCTION_BASE] : NULL;
    j->modifies = o->flags || o->key_padding_mask || o->relative_bias || j->score || j->allow;
    bsri_value_strides(j->mask, j->mask_strides);
    j->compute = bsri_compute_dtype(c, j->q->dtype);
    j->tile = j->compute == BSR_F64 ? BSRI_TILE_F64 : BSRI_TILE_F32;
    j->tile_rows = bsri_min(j->mask->block_rows, j->tile);
    j->tiles = bsri_ceil_div(j->mask->block_rows, j->tile_rows);
    j->group = bsri_ceil_div(16, j->tile_rows);
    j->groups = bsri_ceil_div(bsri_block_rows(j->mask) * j->tiles, j->group);
}

/* Does anything but causality stand between product and softmax? */
static int bsri_attention_modifies(const bsri_attention *j) {
    const bsr_attention_options *o = j->options;
    return (o->flags & ~BSR_ATTENTION_CAUSAL) || o->relative_bias || o->key_padding_mask || o->score_function || o->mask_function;
}
#ifdef BSRI_CUDA
static bsr_status bsri_cuda_attention(const bsri_call *c, const bsri_attention *job, const bsr_tune_row *key, bsr_plan *plan);
#endif
BSR_API bsr_status bsr_attention(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k, const bsr_dense *v,
                                 const bsr_matrix *mask, const bsr_attention_options *options, const bsr_dense *out,
                                 const bsr_dense *lse, const bsr_exec *exec) {
    static const bsr_attention_options none = BSR_ZERO;
    bsr_tune_row key;
    bsri_attention j;
    bsri_call c;
    bsr_plan p;
    bsr_dense used[5];
    int64_t tasks;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_ATTENTION, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_ATTENTION, q ? q->dtype : 0));
    memset(&j, 0, sizeof j);
    j.q = q, j.k = k, j.v = v, j.mask = mask, j.out = out, j.lse = lse, j.options = options ? options : &none;
    if (bsri_checking(&c)) BSRI_TRY(bsri_attention_check(&c, scale, &j));
    else BSRI_TRY(bsri_attention_batch(&c, &j));
    bsri_attention_prepare(&c, scale, &j);
    p = bsri_plan_default(&c);
    key = bsri_tune_key(BSR_OP_ATTENTION, q->dtype, out->dtype, mask, q->rows, q->cols, k->rows);
    key.alpha = bsri_attention_modifies(&j);
    BSRI_CUDA_RETURN(&c, bsri_cuda_attention(&c, &j, &key, &p));
    bsri_tune_cpu(&c, &key, &p);
    p.tile_rows = (int32_t)j.tile_rows, p.tile_cols = (int32_t)j.tile;
    BSRI_TRY(bsri_plan_settle(&c, &p, &stop));
    if (stop) return BSR_OK;
    j.isa = p.kernel;
    if (!q->rows || (!v->cols && !lse)) return BSR_OK;
    used[0] = bsri_dense_used(q), used[1] = bsri_dense_used(k), used[2] = bsri_dense_used(v), used[3] = bsri_dense_used(out);
    j.q = &used[0], j.k = &used[1], j.v = &used[2], j.out = &used[3];
    if (lse) used[4] = bsri_dense_used(lse), j.lse = &used[4];
    bsri_value_steps(mask, j.mask_strides);
    if (!bsri_mul(j.batch.count, j.groups, &tasks)) return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_OUT, -1, 0);
    bsri_parallel(ctx, tasks, bsri_attention_task, &j);
    return BSR_OK;
}

BSR_API bsr_status bsr_attention_backward(const bsr_context *ctx, double scale, const bsr_dense *q, const bsr_dense *k,
                                          const bsr_dense *v, const bsr_matrix *mask, const bsr_attention_options *options,
                                          const bsr_dense *out, const bsr_dense *lse, const bsr_dense *d_out, const bsr_dense *dq,
                                          const bsr_dense *dk, const bsr_dense *dv, const bsr_exec *exec) {
    bsri_call c;
    (void)scale, (void)q, (void)k, (void)v, (void)mask, (void)options, (void)out, (void)lse;
    (void)d_out, (void)dq, (void)dk, (void)dv;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_ATTENTION_BACKWARD, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_ATTENTION, q ? q->dtype : 0));
    return bsri_fail(&c, BSR_ITEM_NOT_IMPLEMENTED, BSR_ARG_NONE, -1, 0);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuts: pieces of scratch, rows of elements, ranges, random numbers                            */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_CUDA
struct bsri_build;
struct bsri_scatter_build;
static bsr_status bsri_cuda_transposed_index(const bsri_call *c, const bsr_matrix *m, const bsri_view *v, void *buffer);
static bsr_status bsri_cuda_schedule(const bsri_call *c, const bsr_matrix *m, int group, int transposed, const bsri_view *v,
                                     void *buffer);
static bsr_status bsri_cuda_validate(const bsri_call *c, const bsr_matrix *m);
static bsr_status bsri_cuda_to_dense(const bsri_call *c, const bsr_matrix *m, const bsr_dense *out);
static bsr_status bsri_cuda_from_dense(const bsri_call *c, const struct bsri_build *b, bsr_matrix *m);
static bsr_status bsri_cuda_from_mask(const bsri_call *c, const struct bsri_build *b, bsr_matrix *m);
static bsr_status bsri_cuda_random(const bsri_call *c, const struct bsri_build *b, uint64_t seed, int64_t kept, bsr_matrix *m);
static bsr_status bsri_cuda_prune(const bsri_call *c, const struct bsri_build *b, int64_t kept, bsr_matrix *m);
static bsr_status bsri_cuda_from_entries(const bsri_call *c, const struct bsri_build *b, const bsr_matrix *s, const void *row,
                                         bsr_matrix *m);
static bsr_status bsri_cuda_reblock(const bsri_call *c, const struct bsri_build *b, void *row, bsr_matrix *m);
static bsr_status bsri_cuda_scatter_indices(const bsri_call *c, const struct bsri_scatter_build *b, int count_only, int *stop);
static bsr_status bsri_cuda_layout(const bsri_call *c, const bsr_layout *l, uint8_t *mask, int64_t area, int64_t bytes);
#endif

/* One scratch per call (it may be the caller's workspace), cut into pieces: add up the sizes first. */
typedef struct bsri_cuts {
    int64_t bytes;
    int overflow;
} bsri_cuts;
static int64_t bsri_cut(bsri_cuts *s, int64_t count, int64_t size) { /* its offset */
    int64_t at = s->bytes, bytes;
    if (!bsri_mul(count, size, &bytes) || !bsri_add(bytes, 63, &bytes) || !bsri_add(s->bytes, bytes / 64 * 64, &s->bytes))
        s->overflow = 1;
    return at;
}
static bsr_status bsri_cuts_get(const bsri_call *c, const bsri_cuts *s, bsri_scratch *scratch) {
    if (s->overflow) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_NONE, -1, 0);
    return bsri_scratch_get(c, s->bytes, scratch);
}
static int64_t *bsri_cut_i64(const bsri_scratch *scratch, int64_t at) { return (int64_t *)(void *)((char *)scratch->data + at); }

/* Runs each(arg, i) for i in [0, total), in parallel by ranges, so that short bodies do not drown in overhead. */
typedef struct bsri_ranges {
    void (*each)(void *arg, int64_t i);
    void *arg;
    int64_t total, parts;
} bsri_ranges;
static void bsri_ranges_part(void *arg, int64_t part) {
    const bsri_ranges *s = (const bsri_ranges *)arg;
    int64_t width = s->total / s->parts, more = s->total % s->parts;
    int64_t i = width * part + bsri_min(part, more), end = i + width + (part < more);
    for (; i < end; i++) s->each(s->arg, i);
}
static void bsri_for_each(const bsr_context *ctx, int64_t total, void (*each)(void *arg, int64_t i), void *arg) {
    bsri_ranges s;
    s.each = each, s.arg = arg, s.total = total, s.parts = bsri_min(total, 256);
    bsri_parallel(ctx, s.parts, bsri_ranges_part, &s);
}

static void bsri_move_element(char *dst, const char *src, size_t size) {
    switch (size) { /* constant sizes become plain moves */
        case 1: memcpy(dst, src, 1); break;
        case 2: memcpy(dst, src, 2); break;
        case 4: memcpy(dst, src, 4); break;
        default: memcpy(dst, src, 8); break;
    }
}
/* n elements from one strided row to another, converted where the (float) types differ. */
static void bsri_copy_row(char *dst, int to, int64_t ds, const char *src, int from, int64_t ss, int64_t n) {
    size_t size = bsr_dtype_size(to);
    int64_t i;
    if (n <= 0) return;
    if (to != from)
        for (i = 0; i < n; i++) bsri_store_f64(dst, to, i * ds, bsri_load_f64(src, from, i * ss));
    else if (ds == 1 && ss == 1) memcpy(dst, src, (size_t)n * size);
    else
        for (i = 0; i < n; i++) bsri_move_element(bsri_at(dst, to, i * ds), bsri_at(src, to, i * ss), size);
}
static void bsri_zero_row(char *dst, int dtype, int64_t stride, int64_t n) {
    static const char zero[8] = {0};
    size_t size = bsr_dtype_size(dtype);
    int64_t i;
    if (n <= 0) return;
    if (stride == 1) memset(dst, 0, (size_t)n * size);
    else
        for (i = 0; i < n; i++) bsri_move_element(bsri_at(dst, dtype, i * stride), zero, size);
}
static int bsri_row_nonzero(const char *src, int dtype, int64_t stride, int64_t n) { /* NaN counts */
    const void *p = src;
    int64_t i;
    if (dtype == BSR_F32) {
        for (i = 0; i < n; i++)
            if (((const float *)p)[i * stride] != 0) return 1;
    } else if (dtype == BSR_F16 || dtype == BSR_BF16) {
        for (i = 0; i < n; i++)
            if (((const uint16_t *)p)[i * stride] & 0x7fffu) return 1;
    } else {
        for (i = 0; i < n; i++)
            if (bsri_load_f64(p, dtype, i * stride) != 0) return 1;
    }
    return 0;
}

/* SplitMix64: integers only, so that a seed gives the same draws on every machine. */
BSRI_HD static uint64_t bsri_mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
BSRI_HD static uint64_t bsri_rng_seed(uint64_t seed, int64_t key) {
    return bsri_mix64(bsri_mix64(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)key * UINT64_C(0xd1342543de82ef95) + 1));
}
BSRI_HD static int64_t bsri_rng_below(uint64_t *state, int64_t n) { /* uniform in [0, n), n > 0: rejection, no bias */
    uint64_t mask = (uint64_t)n - 1, draw;
    int shift;
    for (shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    do draw = bsri_mix64(*state += UINT64_C(0x9e3779b97f4a7c15)) & mask;
    while (draw >= (uint64_t)n);
    return (int64_t)draw;
}

static int bsri_bit_get(const uint64_t *bits, int64_t i) { return (int)(bits[i / 64] >> (i % 64) & 1u); }
static void bsri_bit_set(uint64_t *bits, int64_t i) { bits[i / 64] |= (uint64_t)1 << (i % 64); }

/* Stable, longest first: order[] of the n lines with these lengths (longer than limit: as limit). bucket: limit + 2. */
static void bsri_sort_longest(int64_t n, const int64_t *length, int64_t limit, int64_t *bucket, int64_t *order) {
    int64_t i;
    for (i = 0; i < limit + 2; i++) bucket[i] = 0;
    for (i = 0; i < n; i++) bucket[limit - bsri_min(length[i], limit) + 1]++;
    for (i = 0; i < limit + 1; i++) bucket[i + 1] += bucket[i];
    for (i = 0; i < n; i++) order[bucket[limit - bsri_min(length[i], limit)]++] = i;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>builder: one way to build a matrix from any source                                           */
/* ---------------------------------------------------------------------------------------------- */

/* COO entries (CSR with its rows expanded), sorted by block row, block column, row, column; duplicates adjacent. */
typedef struct bsri_entries {
    const void *row, *col; /* row: index_dtype, or int64 when expanded */
    const char *values;    /* null: ones */
    int32_t row_dtype, index_dtype, dtype, reserved;
    int64_t nnz, rows;
    const int64_t *order, *start; /* start: [block rows + 1], into order */
} bsri_entries;

/* A matrix under construction. The row function returns how many blocks stand in block row r of an item; where `to`
   is given it also writes them, from position `at` on. */
typedef struct bsri_build bsri_build;
typedef int64_t (*bsri_row_function)(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at);
struct bsri_build {
    bsr_matrix to;      /* what *m becomes; nnz: the capacity until the end */
    bsri_batch batch;   /* its items */
    int64_t rows, cols; /* in blocks */
    int64_t value_stride[3];
    int count_only, with_values;
    bsri_row_function row;
    const bsr_dense *dense; /* sources: at most one is set */
    const bsr_matrix *sparse;
    const bsri_entries *entries;
    const struct bsri_merge *merge;
    const uint8_t *mask;
    uint64_t *bits;                /* which candidates are kept: [items][item_words] */
    int64_t item_words, row_words; /* row_words 0: candidates are the stored blocks of `sparse`, else all blocks */
    int64_t *first;                /* [items][rows]: counts, then the position of the row's first block */
    double *norm;                  /* prune: of the candidates of one item */
    int64_t item, from;            /* prune: which item; its first stored block */
    int32_t norm_kind;
};

/* First step: the target with rows and cols filled in. rows, cols: the source's, or -1 to take the target's own. */
static bsr_status bsri_build_begin(const bsri_call *c, bsri_build *b, const bsr_matrix *m, int64_t rows, int64_t cols,
                                   int values) {
    memset(b, 0, sizeof *b);
    if (!m) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0);
    b->to = *m;
    BSRI_TRY(bsri_check_block(c, m, BSR_ARG_MATRIX));
    if (rows >= 0 && cols >= 0) { /* a negative size of the source fails in its own check */
        if (!bsri_mul(bsri_ceil_div(rows, m->block_rows), m->block_rows, &rows) ||
            !bsri_mul(bsri_ceil_div(cols, m->block_cols), m->block_cols, &cols))
            return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
        if (m->rows && m->rows != rows) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, -1, m->rows, rows);
        if (m->cols && m->cols != cols) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MATRIX, -1, m->cols, cols);
        b->to.rows = rows, b->to.cols = cols;
    }
    b->count_only = !m->col_indices && (!values || !m->values);
    b->with_values = values && m->values && !b->count_only;
    if (!b->with_values) b->to.values = NULL;
    if (b->count_only) b->to.nnz = 0;
    b->to.transposed_index = b->to.schedule = NULL; /* made for the pattern that was there */
    b->rows = bsri_block_rows(&b->to), b->cols = bsri_block_cols(&b->to);
    bsri_value_strides(&b->to, b->value_stride);
    b->batch = bsri_batch_none();
    return BSR_OK;
}
/* The target's struct and arrays, as outputs; the sources' spans are in set. */
static bsr_status bsri_build_check(const bsri_call *c, bsri_build *b, bsri_spans *set) {
    const bsr_matrix *m = &b->to;
    int64_t size[3], stride[3], element;
    int i;
    BSRI_TRY(bsri_check_matrix_sizes(c, m, BSR_ARG_MATRIX));
    BSRI_TRY(bsri_join(c, &b->batch, m->batch_dims, m->batch, BSR_ARG_MATRIX));
    for (i = 0; i < m->batch_dims && (m->flags & BSR_MATRIX_RAGGED); i++)
        if (m->batch[i] > 1 && (m->col_batch_stride[i] || (b->with_values && m->values_batch_stride[i])))
            return bsri_fail(c, BSR_ITEM_STRIDE_PATTERN, BSR_ARG_MATRIX, i, m->col_batch_stride[i]);
    if (!m->crow_indices) return bsri_fail(c, BSR_ITEM_CROW_NULL, BSR_ARG_MATRIX, -1, 0);
    if (!m->col_indices && !b->count_only) return bsri_fail(c, BSR_ITEM_COL_NULL, BSR_ARG_MATRIX, -1, 0);
    element = (int64_t)bsr_dtype_size(m->index_dtype), stride[0] = 1, size[0] = b->rows + 1;
    for (i = 0; i < m->batch_dims; i++) /* one crow per item, ragged or not */
        if (b->batch.count && m->batch[i] > 1 && !m->crow_batch_stride[i])
            return bsri_fail_wanted(c, BSR_ITEM_STRIDE_OUTPUT, BSR_ARG_MATRIX, 2 + i, 0, b->rows + 1);
    BSRI_TRY(bsri_check_array(c, set, m, BSR_ARG_MATRIX, m->crow_indices, element, m->crow_batch_stride, 1, size, stride,
                              BSRI_WRITE, 0));
    size[0] = m->nnz;
    BSRI_TRY(bsri_check_array(c, set, m, BSR_ARG_MATRIX, m->col_indices, element, m->col_batch_stride, 1, size, stride,
                              BSRI_WRITE, 0));
    if (!b->with_values) return BSR_OK;
    BSRI_TRY(bsri_check_dtype(c, m->dtype, BSRI_FLOATS | BSRI_INTS, BSR_ARG_MATRIX));
    for (i = 0; i < 3; i++)
        if (b->value_stride[i] < 0) return bsri_fail(c, BSR_ITEM_STRIDE_NEGATIVE, BSR_ARG_MATRIX, 6 + i, b->value_stride[i]);
    size[1] = m->block_rows, size[2] = m->block_cols;
    return bsri_check_array(c, set, m, BSR_ARG_MATRIX, m->values, (int64_t)bsr_dtype_size(m->dtype), m->values_batch_stride, 3,
                            size, b->value_stride, BSRI_WRITE, 0);
}
/* Values go among the float types; integers keep theirs. */
static bsr_status bsri_check_convertible(const bsri_call *c, int from, int to, int operand) {
    uint32_t pair = BSRI_BIT(from) | BSRI_BIT(to);
    if (from != to && (pair & ~BSRI_FLOATS))
        return bsri_fail_wanted(c, BSR_ITEM_DTYPE_OUT, operand, -1, to,
                                BSRI_FLOATS & BSRI_BIT(from) ? BSRI_FLOATS : BSRI_BIT(from));
    return BSR_OK;
}

/* Writes block column and, from a source of whole blocks, values of the block at position `at`. */
static void bsri_put_block(const bsri_build *b, const bsri_item *to, int64_t at, int64_t col, const char *src, int from,
                           int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    int64_t i;
    bsri_set_index((void *)(uintptr_t)to->col, b->to.index_dtype, at, col);
    if (!b->with_values) return;
    for (i = 0; i < b->to.block_rows; i++) {
        char *dst = bsri_at(to->values, b->to.dtype, at * b->value_stride[0] + i * b->value_stride[1]);
        int64_t n = i < rows ? cols : 0, s = b->value_stride[2];
        if (n) bsri_copy_row(dst, b->to.dtype, s, bsri_at(src, from, i * row_stride), from, col_stride, n);
        if (n < b->to.block_cols) bsri_zero_row(bsri_at(dst, b->to.dtype, n * s), b->to.dtype, s, b->to.block_cols - n);
    }
}
/* Candidates are all blocks. */
static int64_t bsri_row_of_bits(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const uint64_t *bits = b->bits + item * b->item_words + r * b->row_words;
    const bsr_dense *d = b->dense;
    int64_t w, col, n = 0, br = b->to.block_rows, bc = b->to.block_cols;
    int64_t offset = d && to ? bsri_dense_offset(&b->batch, item, d) + r * br * d->row_stride : 0;
    for (w = 0; w < b->row_words; w++) {
        uint64_t word = bits[w];
        for (col = w * 64; word; word >>= 1, col++) {
            if (!(word & 1u)) continue;
            if (to && d)
                bsri_put_block(b, to, at + n, col, bsri_at(d->data, d->dtype, offset + col * bc * d->col_stride), d->dtype,
                               bsri_min(br, d->rows - r * br), bsri_min(bc, d->cols - col * bc), d->row_stride, d->col_stride);
            else if (to) bsri_put_block(b, to, at + n, col, NULL, b->to.dtype, 0, 0, 0, 0);
            n++;
        }
    }
    return n;
}
/* Candidates are the stored blocks of a matrix. */
static int64_t bsri_row_of_stored(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const bsr_matrix *s = b->sparse;
    bsri_item it = bsri_matrix_item(&b->batch, item, s);
    const uint64_t *bits = b->bits + item * b->item_words;
    int64_t stride[3], n = 0, p = bsri_index(it.crow, s->index_dtype, r), end = bsri_index(it.crow, s->index_dtype, r + 1);
    bsri_value_steps(s, stride);
    for (; p < end; p++) {
        if (!bsri_bit_get(bits, p)) continue;
        if (to)
            bsri_put_block(b, to, at + n, bsri_index(it.col, s->index_dtype, p), bsri_at(it.values, s->dtype, p * stride[0]),
                           s->dtype, s->block_rows, s->block_cols, stride[1], stride[2]);
        n++;
    }
    return n;
}
static void bsri_put_sum(const bsri_entries *e, const int64_t *order, int64_t n, char *dst, int dtype) {
    int64_t i;
    if (BSRI_BIT(dtype) & BSRI_FLOATS) { /* sums in f64, rounded once; a single -0 stays */
        double sum = e->values ? bsri_load_f64(e->values, e->dtype, order[0]) : 1.0;
        for (i = 1; i < n; i++) sum += e->values ? bsri_load_f64(e->values, e->dtype, order[i]) : 1.0;
        bsri_store_f64(dst, dtype, 0, sum);
    } else {
        uint32_t sum = 0;
        for (i = 0; i < n; i++) sum += e->values ? (uint32_t)bsri_load_i32(e->values, e->dtype, order[i]) : 1u;
        bsri_store_i32(dst, dtype, 0, (int32_t)sum);
    }
}
static int64_t bsri_row_of_entries(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const bsri_entries *e = b->entries;
    int64_t i = e->start[r], end = e->start[r + 1], same, n = 0, before = -1;
    (void)item;
    for (; i < end; i = same) {
        int64_t row = bsri_index(e->row, e->row_dtype, e->order[i]), col = bsri_index(e->col, e->index_dtype, e->order[i]);
        for (same = i + 1; same < end && bsri_index(e->col, e->index_dtype, e->order[same]) == col &&
                           bsri_index(e->row, e->row_dtype, e->order[same]) == row;)
            same++;
        if (col / b->to.block_cols != before) {
            before = col / b->to.block_cols;
            if (to) bsri_put_block(b, to, at + n, before, NULL, b->to.dtype, 0, 0, 0, 0);
            n++;
        }
        if (to && b->with_values)
            bsri_put_sum(e, e->order + i, same - i,
                         bsri_at(to->values, b->to.dtype,
                                 (at + n - 1) * b->value_stride[0] + row % b->to.block_rows * b->value_stride[1] +
                                     col % b->to.block_cols * b->value_stride[2]),
                         b->to.dtype);
    }
    return n;
}

/* Rows of entries whose columns ascend, with no place twice: the rows of a block row are merged. */
#define BSRI_MERGE_ROWS 256
typedef struct bsri_merge {
    const void *crow, *col; /* of crow_dtype, col_dtype */
    const int64_t *order;   /* null: entry p's value stands at p */
    const char *values;     /* null: ones */
    int64_t rows;
    int crow_dtype, col_dtype, dtype;
} bsri_merge;
static void bsri_put_value(const bsri_build *b, const bsri_merge *e, int64_t p, void *dst) {
    const int64_t at = e->order ? e->order[p] : p;
    if (e->values && e->dtype == b->to.dtype && e->dtype == BSR_F64) memcpy(dst, e->values + 8 * at, 8);
    else if (e->values && e->dtype == b->to.dtype && e->dtype == BSR_F32) memcpy(dst, e->values + 4 * at, 4);
    else if (BSRI_BIT(b->to.dtype) & BSRI_FLOATS)
        bsri_store_f64(dst, b->to.dtype, 0, e->values ? bsri_load_f64(e->values, e->dtype, at) : 1.0);
    else bsri_store_i32(dst, b->to.dtype, 0, e->values ? bsri_load_i32(e->values, e->dtype, at) : 1);
}
static int64_t bsri_row_of_merged(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const bsri_merge *e = b->merge;
    const int64_t br = b->to.block_rows, bc = b->to.block_cols, rows = bsri_min(br, e->rows - r * br);
    const int packed = b->value_stride[2] == 1 && b->value_stride[1] == bc;
    int64_t p[BSRI_MERGE_ROWS], end[BSRI_MERGE_ROWS], next[BSRI_MERGE_ROWS], n = 0, i;
    (void)item;
    for (i = 0; i < rows; i++) {
        p[i] = bsri_index(e->crow, e->crow_dtype, r * br + i), end[i] = bsri_index(e->crow, e->crow_dtype, r * br + i + 1);
        next[i] = p[i] < end[i] ? bsri_index(e->col, e->col_dtype, p[i]) : INT64_MAX;
    }
    for (;; n++) {
        int64_t least = INT64_MAX, from, limit;
        char *block = NULL;
        for (i = 0; i < rows; i++) least = bsri_min(least, next[i]);
        if (least == INT64_MAX) return n;
        from = bsri_divide(least, bc), limit = (from + 1) * bc;
        if (to && b->with_values) block = bsri_at(to->values, b->to.dtype, (at + n) * b->value_stride[0]);
        if (block && packed) {
            bsri_set_index((void *)(uintptr_t)to->col, b->to.index_dtype, at + n, from);
            memset(block, 0, (size_t)(br * bc) * bsr_dtype_size(b->to.dtype));
        } else if (to) {
            bsri_put_block(b, to, at + n, from, NULL, b->to.dtype, 0, 0, 0, 0);
        }
        for (i = 0; i < rows; i++)
            while (next[i] < limit) {
                if (block)
                    bsri_put_value(b, e, p[i], bsri_at(block, b->to.dtype, i * b->value_stride[1] +
                                                                               (next[i] - from * bc) * b->value_stride[2]));
                next[i] = ++p[i] < end[i] ? bsri_index(e->col, e->col_dtype, p[i]) : INT64_MAX;
            }
    }
}

static void bsri_build_count(void *arg, int64_t i) {
    bsri_build *b = (bsri_build *)arg;
    b->first[i] = b->row(b, i / b->rows, i % b->rows, NULL, 0);
}
static void bsri_build_write(void *arg, int64_t i) {
    const bsri_build *b = (const bsri_build *)arg;
    bsri_item to = bsri_matrix_item(&b->batch, i / b->rows, &b->to);
    b->row(b, i / b->rows, i % b->rows, &to, b->first[i]);
}
/* Counts, checks what only the counts can tell, then writes. */
static bsr_status bsri_build_output(const bsri_call *c, bsri_build *b, bsr_matrix *m) {
    int64_t capacity = b->to.nnz, limit = b->to.index_dtype == BSR_I32 ? INT32_MAX : INT64_MAX - 1;
    int64_t item, r, n, total = 0, size = 0, largest = 0;
    int ragged = (b->to.flags & BSR_MATRIX_RAGGED) != 0;
    bsri_for_each(c->ctx, b->batch.count * b->rows, bsri_build_count, b);
    for (item = 0; item < b->batch.count; item++) {
        for (r = 0, n = 0; r < b->rows; r++) n += b->first[item * b->rows + r];
        if (item == 0) size = n;
        if (n != size && !ragged) return bsri_fail_wanted(c, BSR_ITEM_UNEQUAL_NNZ, BSR_ARG_MATRIX, item, n, size);
        total += n, largest = ragged ? total : n;
    }
    if (largest > limit) return bsri_fail(c, BSR_ITEM_INDEX_RANGE, BSR_ARG_MATRIX, -1, largest);
    if (!b->count_only && largest > capacity) return bsri_fail(c, BSR_ITEM_CAPACITY, BSR_ARG_MATRIX, -1, largest);
    b->to.nnz = largest;
    for (item = 0, total = 0; item < b->batch.count; item++) {
        void *crow = (void *)(uintptr_t)bsri_matrix_item(&b->batch, item, &b->to).crow;
        if (!ragged) total = 0;
        for (r = 0; r < b->rows; r++) {
            n = b->first[item * b->rows + r], b->first[item * b->rows + r] = total;
            bsri_set_index(crow, b->to.index_dtype, r, total);
            total += n;
        }
        bsri_set_index(crow, b->to.index_dtype, b->rows, total);
    }
    if (!b->count_only) bsri_for_each(c->ctx, b->batch.count * b->rows, bsri_build_write, b);
    b->to.values = m->values;
    *m = b->to;
    return BSR_OK;
}
/* The last step of every conversion, with which its scratch ends. */
static bsr_status bsri_build_finish(const bsri_call *c, bsri_build *b, bsr_matrix *m, bsri_scratch *scratch) {
    const bsr_status status = bsri_build_output(c, b, m);
    bsri_scratch_end(c, scratch);
    return status;
}
/* Scratch of a builder whose candidates are kept by bits; norms: how many of them, or 0. */
static bsr_status bsri_build_bits(const bsri_call *c, bsri_build *b, int64_t norms, bsri_scratch *scratch) {
    bsri_cuts cuts = {0, 0};
    int64_t words, lines, at[3];
    if (!bsri_mul(b->batch.count, b->item_words, &words) || !bsri_mul(b->batch.count, b->rows, &lines) || lines == INT64_MAX)
        return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    at[0] = bsri_cut(&cuts, words, 8), at[1] = bsri_cut(&cuts, lines + 1, 8), at[2] = bsri_cut(&cuts, norms, 8);
    BSRI_TRY(bsri_cuts_get(c, &cuts, scratch));
    if (words) memset(scratch->data, 0, (size_t)words * 8);
    b->bits = (uint64_t *)(void *)bsri_cut_i64(scratch, at[0]), b->first = bsri_cut_i64(scratch, at[1]);
    b->norm = (double *)(void *)bsri_cut_i64(scratch, at[2]);
    return BSR_OK;
}
static bsr_status bsri_build_all_blocks(const bsri_call *c, bsri_build *b) {
    b->row_words = bsri_ceil_div(b->cols, 64), b->row = bsri_row_of_bits;
    if (!bsri_mul(b->rows, b->row_words, &b->item_words)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    return BSR_OK;
}

/* Both, with the target's batch and without norms. */
static bsr_status bsri_build_blocks(const bsri_call *c, bsri_build *b, const bsr_matrix *m, bsri_scratch *scratch) {
    b->batch = bsri_batch_of(m->batch_dims, m->batch);
    BSRI_TRY(bsri_build_all_blocks(c, b));
    return bsri_build_bits(c, b, 0, scratch);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sources: which blocks a dense matrix, a mask, a norm or entries leave                        */
/* ---------------------------------------------------------------------------------------------- */

static void bsri_bits_from_dense(void *arg, int64_t i) {
    const bsri_build *b = (const bsri_build *)arg;
    const bsr_dense *d = b->dense;
    int64_t item = i / b->rows, r = i % b->rows, row = r * b->to.block_rows, col, bc = b->to.block_cols;
    int64_t offset = bsri_dense_offset(&b->batch, item, d), end = bsri_min(d->rows, row + b->to.block_rows);
    uint64_t *bits = b->bits + item * b->item_words + r * b->row_words;
    for (; row < end; row++)
        for (col = 0; col < b->cols; col++)
            if (!bsri_bit_get(bits, col) &&
                bsri_row_nonzero(bsri_at(d->data, d->dtype, offset + row * d->row_stride + col * bc * d->col_stride), d->dtype,
                                 d->col_stride, bsri_min(bc, d->cols - col * bc)))
                bsri_bit_set(bits, col);
}
static void bsri_bits_from_mask(void *arg, int64_t i) {
    const bsri_build *b = (const bsri_build *)arg;
    uint64_t *bits = b->bits + i / b->rows * b->item_words + i % b->rows * b->row_words;
    int64_t col;
    for (col = 0; col < b->cols; col++)
        if (b->mask[i * b->cols + col]) bsri_bit_set(bits, col);
}
/* k of n blocks, each set equally likely (Floyd); draws the smaller of the set and its complement. */
static void bsri_bits_random(const bsri_build *b, int64_t item, uint64_t seed, int64_t k, int64_t n) {
    uint64_t state = bsri_rng_seed(seed, item), *bits = b->bits + item * b->item_words;
    int64_t draws = bsri_min(k, n - k), j, r, w;
    for (j = n - draws; j < n; j++) {
        int64_t t = bsri_rng_below(&state, j + 1), at = t / b->cols * b->row_words * 64 + t % b->cols;
        if (bsri_bit_get(bits, at)) at = j / b->cols * b->row_words * 64 + j % b->cols;
        bsri_bit_set(bits, at);
    }
    if (draws == k) return;
    for (r = 0; r < b->rows; r++)
        for (w = 0; w < b->row_words; w++) {
            int64_t valid = b->cols - w * 64;
            bits[r * b->row_words + w] ^= valid >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << valid) - 1;
        }
}

/* Norm of a rows x cols piece, in f64; sums of squares that leave the range of f64 are formed again, scaled. So many sums take
   the rows in turn and are then added up by halves: an order that many threads can keep. */
#define BSRI_NORM_SUMS 32
static double bsri_norm_fold(double *sum, int64_t rows) {
    int n = 1, k;
    while (n < bsri_min(rows, BSRI_NORM_SUMS)) n *= 2;
    for (n /= 2; n; n /= 2)
        for (k = 0; k < n; k++) sum[k] += sum[k + n];
    return sum[0];
}
static double bsri_block_norm(const char *p, int dtype, int64_t rows, int64_t cols, int64_t rs, int64_t cs, int kind) {
    double sum[BSRI_NORM_SUMS] = {0}, top = 0, all, x;
    int64_t i, j;
    int nan = 0;
    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++) {
            x = fabs(bsri_load_f64(p, dtype, i * rs + j * cs));
            nan |= !(x == x);
            if (x > top) top = x;
            sum[i % BSRI_NORM_SUMS] += kind == BSR_NORM_L2 ? x * x : x;
        }
    all = bsri_norm_fold(sum, rows);
    if (nan || kind == BSR_NORM_L1) return all;
    if (kind == BSR_NORM_MAX) return top;
    if (all >= 1e-280 && all <= 1e300) return sqrt(all);
    if (!(top > 0) || top > 1.7976931348623157e308) return top;
    memset(sum, 0, sizeof sum);
    for (i = 0; i < rows; i++)
        for (j = 0; j < cols; j++) x = bsri_load_f64(p, dtype, i * rs + j * cs) / top, sum[i % BSRI_NORM_SUMS] += x * x;
    return top * sqrt(bsri_norm_fold(sum, rows));
}
static void bsri_norm_one(void *arg, int64_t i) { /* of candidate i of item b->item */
    const bsri_build *b = (const bsri_build *)arg;
    int64_t br = b->to.block_rows, bc = b->to.block_cols;
    if (b->dense) {
        const bsr_dense *d = b->dense;
        int64_t row = i / b->cols * br, col = i % b->cols * bc;
        int64_t at = bsri_dense_offset(&b->batch, b->item, d) + row * d->row_stride + col * d->col_stride;
        b->norm[i] = bsri_block_norm(bsri_at(d->data, d->dtype, at), d->dtype, bsri_min(br, d->rows - row),
                                     bsri_min(bc, d->cols - col), d->row_stride, d->col_stride, b->norm_kind);
    } else {
        const bsr_matrix *s = b->sparse;
        int64_t stride[3];
        bsri_value_steps(s, stride);
        b->norm[i] = bsri_block_norm(bsri_at(bsri_matrix_item(&b->batch, b->item, s).values, s->dtype, (b->from + i) * stride[0]),
                                     s->dtype, br, bc, stride[1], stride[2], b->norm_kind);
    }
}
/* Order of norms as integers: non-negative floats sort as their bits do, NaN comes first. */
static uint64_t bsri_norm_key(double x) {
    uint64_t u;
    if (!(x == x)) return UINT64_MAX;
    memcpy(&u, &x, sizeof u);
    return u;
}
/* Marks the k largest of the n norms of item b->item: radix selection of the k-th key, byte by byte. */
static void bsri_bits_largest(const bsri_build *b, int64_t n, int64_t k) {
    uint64_t key = 0, known = 0, *bits = b->bits + b->item * b->item_words;
    int64_t i, rest = k, count[256];
    int shift, digit;
    if (k <= 0) return;
    for (shift = 56; shift >= 0; shift -= 8) {
        memset(count, 0, sizeof count);
        for (i = 0; i < n; i++) {
            uint64_t u = bsri_norm_key(b->norm[i]);
            if ((u & known) == key) count[u >> shift & 255u]++;
        }
        for (digit = 255; digit > 0 && count[digit] < rest; digit--) rest -= count[digit];
        key |= (uint64_t)digit << shift, known |= (uint64_t)255 << shift;
    }
    for (i = 0; i < n; i++) { /* all above the k-th key, and the first `rest` that equal it */
        uint64_t u = bsri_norm_key(b->norm[i]);
        if (u < key || (u == key && rest-- <= 0)) continue;
        bsri_bit_set(bits, b->row_words ? i / b->cols * b->row_words * 64 + i % b->cols : b->from + i);
    }
}

/* One stable counting pass: 0 and 1 by place inside the block, 2 and 3 by block. */
static int64_t bsri_entry_key(const bsri_entries *e, const bsr_matrix *m, int pass, int64_t i) {
    int64_t at = pass & 1 ? bsri_index(e->row, e->row_dtype, i) : bsri_index(e->col, e->index_dtype, i);
    int64_t block = pass & 1 ? m->block_rows : m->block_cols;
    return pass < 2 ? at % block : at / block;
}
/* By one digit of the key: sizes that a matrix claims may be far above the number of its entries. */
static void bsri_entries_pass(const bsri_entries *e, const bsr_matrix *m, int pass, int64_t unit, int64_t buckets,
                              int64_t *bucket, const int64_t *from, int64_t *to) {
    int64_t i;
    for (i = 0; i <= buckets; i++) bucket[i] = 0;
    for (i = 0; i < e->nnz; i++) bucket[bsri_entry_key(e, m, pass, i) / unit % buckets + 1]++;
    for (i = 0; i < buckets; i++) bucket[i + 1] += bucket[i];
    for (i = 0; i < e->nnz; i++) {
        int64_t entry = from ? from[i] : i;
        to[bucket[bsri_entry_key(e, m, pass, entry) / unit % buckets]++] = entry;
    }
}
/* Do the columns of every row ascend, none twice? */
static int bsri_rows_ascend(const void *crow, int crow_dtype, const void *col, int col_dtype, int64_t rows) {
    int64_t r, p = 0, end, before, now;
    for (r = 0; r < rows; r++)
        for (end = bsri_index(crow, crow_dtype, r + 1), before = -1; p < end; p++, before = now) {
            now = bsri_index(col, col_dtype, p);
            if (now <= before) return 0;
        }
    return 1;
}
/* CSR whose columns ascend needs no sort. *done: 0 where they don't. */
static bsr_status bsri_build_from_csr(const bsri_call *c, bsri_build *b, const bsr_matrix *s, bsr_matrix *m, int *done) {
    bsri_cuts cuts = {0, 0};
    bsri_scratch scratch;
    bsri_merge e;
    int64_t at;
    *done = b->to.block_rows <= BSRI_MERGE_ROWS &&
            bsri_rows_ascend(s->crow_indices, s->index_dtype, s->col_indices, s->index_dtype, s->rows);
    if (!*done) return BSR_OK;
    memset(&e, 0, sizeof e);
    e.crow = s->crow_indices, e.col = s->col_indices, e.values = (const char *)s->values, e.rows = s->rows;
    e.crow_dtype = e.col_dtype = s->index_dtype, e.dtype = s->dtype;
    at = bsri_cut(&cuts, b->rows + 1, 8);
    BSRI_TRY(bsri_cuts_get(c, &cuts, &scratch));
    b->first = bsri_cut_i64(&scratch, at), b->merge = &e, b->row = bsri_row_of_merged;
    return bsri_build_finish(c, b, m, &scratch);
}
/* Entries by rows: a counting sort by row that keeps their order, then few places of each row. *done: 0 where a row is long and
   out of order, has a place twice, or there are far more rows than entries. */
static bsr_status bsri_build_from_coo(const bsri_call *c, bsri_build *b, const bsri_entries *s, int64_t rows, bsr_matrix *m,
                                      int *done) {
    bsri_cuts cuts = {0, 0};
    bsri_scratch scratch;
    bsri_merge e;
    int64_t at[4], *crow, *col, *order, p, r, k;
    *done = 0;
    if (b->to.block_rows > BSRI_MERGE_ROWS || rows > 4 * s->nnz + 65536) return BSR_OK;
    at[0] = bsri_cut(&cuts, rows + 1, 8), at[1] = bsri_cut(&cuts, s->nnz, 8), at[2] = bsri_cut(&cuts, s->nnz, 8);
    at[3] = bsri_cut(&cuts, b->rows + 1, 8);
    BSRI_TRY(bsri_cuts_get(c, &cuts, &scratch));
    crow = bsri_cut_i64(&scratch, at[0]), col = bsri_cut_i64(&scratch, at[1]), order = bsri_cut_i64(&scratch, at[2]);
    for (r = 0; r <= rows; r++) crow[r] = 0;
    for (p = 0; p < s->nnz; p++) {
        r = bsri_index(s->row, s->row_dtype, p);
        if (r + 1 < rows) crow[r + 2]++;
    }
    for (r = 2; r <= rows; r++) crow[r] += crow[r - 1]; /* crow[r + 1] runs from the start of row r to its end */
    for (p = 0; p < s->nnz; p++) {
        k = crow[bsri_index(s->row, s->row_dtype, p) + 1]++;
        order[k] = p, col[k] = bsri_index(s->col, s->index_dtype, p);
    }
    for (r = 0, *done = 1; r < rows && *done; r++)
        for (p = crow[r] + 1; p < crow[r + 1] && *done; p++) {
            const int64_t now = col[p], entry = order[p];
            for (k = p; k > crow[r] && col[k - 1] > now; k--) col[k] = col[k - 1], order[k] = order[k - 1];
            col[k] = now, order[k] = entry;
            *done = (k == crow[r] || col[k - 1] != now) && p - k < 1024;
        }
    if (!*done) {
        bsri_scratch_end(c, &scratch);
        return BSR_OK;
    }
    memset(&e, 0, sizeof e);
    e.crow = crow, e.col = col, e.values = s->values, e.rows = rows, e.order = order, e.crow_dtype = e.col_dtype = BSR_I64;
    e.dtype = s->dtype, b->first = bsri_cut_i64(&scratch, at[3]), b->merge = &e, b->row = bsri_row_of_merged;
    return bsri_build_finish(c, b, m, &scratch);
}
static bsr_status bsri_build_from_entries(const bsri_call *c, bsri_build *b, bsri_entries *e, const bsr_matrix *csr,
                                          bsr_matrix *m) {
    bsri_cuts cuts = {0, 0};
    bsri_scratch scratch;
    int64_t at[6], keys[4], most, unit, *order[2], *start, r, p, *rows, *to;
    const int64_t *from = NULL;
    int pass, done;
    BSRI_TRY(csr ? bsri_build_from_csr(c, b, csr, m, &done) : bsri_build_from_coo(c, b, e, e->rows, m, &done));
    if (done) return BSR_OK;
    keys[0] = b->to.block_cols, keys[1] = b->to.block_rows, keys[2] = b->cols, keys[3] = b->rows;
    most = bsri_max(bsri_max(keys[0], keys[1]), bsri_max(keys[2], keys[3]));
    most = bsri_min(most, bsri_max(e->nnz, 1 << 16)); /* buckets */
    at[0] = bsri_cut(&cuts, e->nnz, 8), at[1] = bsri_cut(&cuts, e->nnz, 8);
    at[2] = bsri_cut(&cuts, csr ? e->nnz : 0, 8), at[3] = bsri_cut(&cuts, most + 1, 8);
    at[4] = bsri_cut(&cuts, b->rows + 1, 8), at[5] = bsri_cut(&cuts, b->rows, 8);
    BSRI_TRY(bsri_cuts_get(c, &cuts, &scratch));
    order[0] = bsri_cut_i64(&scratch, at[0]), order[1] = bsri_cut_i64(&scratch, at[1]);
    start = bsri_cut_i64(&scratch, at[4]), b->first = bsri_cut_i64(&scratch, at[5]);
    if (csr) {
        rows = bsri_cut_i64(&scratch, at[2]);
        for (r = 0, p = 0; r < csr->rows; r++)
            for (; p < bsri_index(csr->crow_indices, csr->index_dtype, r + 1); p++) rows[p] = r;
        e->row = rows, e->row_dtype = BSR_I64;
    }
    for (pass = 0; pass < 4; pass++)
        for (unit = 1; keys[pass] > unit || (pass == 3 && !from); unit *= most) {
            to = from == order[0] ? order[1] : order[0];
            bsri_entries_pass(e, &b->to, pass, unit, bsri_min(most, keys[pass]), bsri_cut_i64(&scratch, at[3]), from, to);
            from = to;
            if (unit > keys[pass] / most) break;
        }
    for (r = 0; r <= b->rows; r++) start[r] = 0;
    for (p = 0; p < e->nnz; p++) start[bsri_entry_key(e, &b->to, 3, p) + 1]++;
    for (r = 0; r < b->rows; r++) start[r + 1] += start[r];
    e->order = from, e->start = start;
    b->entries = e, b->row = bsri_row_of_entries;
    return bsri_build_finish(c, b, m, &scratch);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conversions: from dense, CSR, COO, mask; random, pruned; to dense                            */
/* ---------------------------------------------------------------------------------------------- */

/* A dense source of b: fits the target's batch, type goes. */
static bsr_status bsri_build_dense_check(const bsri_call *c, bsri_build *b, const bsr_dense *source, uint32_t accepted) {
    bsri_spans set;
    set.count = 0;
    BSRI_TRY(bsri_check_dense(c, &set, source, BSR_ARG_SOURCE, accepted, BSRI_READ));
    BSRI_TRY(bsri_build_check(c, b, &set));
    if (b->with_values) BSRI_TRY(bsri_check_convertible(c, source->dtype, b->to.dtype, BSR_ARG_MATRIX));
    return bsri_check_batch_fits(c, &b->batch, source->batch_dims, source->batch, BSR_ARG_SOURCE);
}
BSR_API bsr_status bsr_from_dense(const bsr_context *ctx, const bsr_dense *source, bsr_matrix *m, const bsr_exec *exec) {
    bsri_call c;
    bsri_build b;
    bsri_scratch scratch;
    bsr_dense used;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_FROM_DENSE, exec));
    if (!source) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_SOURCE, -1, 0);
    BSRI_TRY(bsri_build_begin(&c, &b, m, source->rows, source->cols, 1));
    if (bsri_checking(&c)) BSRI_TRY(bsri_build_dense_check(&c, &b, source, b.with_values ? BSRI_FLOATS | BSRI_INTS : BSRI_ANY));
    b.dense = source;
    BSRI_CUDA_RETURN(&c, bsri_cuda_from_dense(&c, &b, m));
    used = bsri_dense_used(source), b.dense = &used;
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_build_blocks(&c, &b, m, &scratch));
    bsri_for_each(ctx, b.batch.count * b.rows, bsri_bits_from_dense, &b);
    return bsri_build_finish(&c, &b, m, &scratch);
}

/* A source of single elements as the 1 x 1 block matrix that CSR is. */
static bsr_matrix bsri_csr(int64_t rows, int64_t cols, int64_t nnz, const void *crow, const void *col, int index_dtype,
                           const void *values, int dtype) {
    bsr_matrix s;
    memset(&s, 0, sizeof s);
    s.crow_indices = (void *)(uintptr_t)crow, s.col_indices = (void *)(uintptr_t)col, s.values = (void *)(uintptr_t)values;
    s.rows = rows, s.cols = cols, s.nnz = nnz, s.block_rows = s.block_cols = 1;
    s.index_dtype = index_dtype, s.dtype = values ? dtype : BSR_DTYPE_NONE;
    return s;
}
static bsri_entries bsri_entries_of(const bsr_matrix *s, const void *row) {
    bsri_entries e;
    memset(&e, 0, sizeof e);
    e.row = row, e.row_dtype = e.index_dtype = s->index_dtype, e.col = s->col_indices, e.nnz = s->nnz, e.rows = s->rows;
    e.values = (const char *)s->values, e.dtype = s->dtype;
    return e;
}
/* The target of the entries of s, whose spans are in set. */
static bsr_status bsri_build_entries_check(const bsri_call *c, bsri_build *b, const bsr_matrix *s, bsri_spans *set) {
    const bsr_matrix *m = &b->to;
    BSRI_TRY(bsri_build_check(c, b, set));
    if (m->batch_dims) return bsri_fail_wanted(c, BSR_ITEM_BATCH_DIMS, BSR_ARG_MATRIX, -1, m->batch_dims, 0);
    return s->values && b->with_values ? bsri_check_convertible(c, s->dtype, m->dtype, BSR_ARG_MATRIX) : BSR_OK;
}
BSR_API bsr_status bsr_from_csr(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *crow,
                                const void *col, int index_dtype, const void *values, int dtype, bsr_matrix *m,
                                const bsr_exec *exec) {
    bsr_matrix s = bsri_csr(rows, cols, nnz, crow, col, index_dtype, values, dtype);
    bsri_entries e = bsri_entries_of(&s, NULL);
    bsri_call c;
    bsri_build b;
    bsri_spans set;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_FROM_CSR, exec));
    if (bsri_checking(&c))
        BSRI_TRY(bsri_check_matrix(&c, &set, &s, BSR_ARG_SOURCE, BSRI_FLOATS | BSRI_INTS, values ? BSRI_READ : BSRI_PATTERN));
    BSRI_TRY(bsri_build_begin(&c, &b, m, rows, cols, 1));
    if (bsri_checking(&c)) {
        BSRI_TRY(bsri_build_entries_check(&c, &b, &s, &set));
        BSRI_TRY(bsri_check_structure(&c, &s, BSR_ARG_SOURCE, 0));
    }
    BSRI_CUDA_RETURN(&c, bsri_cuda_from_entries(&c, &b, &s, NULL, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    return stop ? BSR_OK : bsri_build_from_entries(&c, &b, &e, &s, m);
}

static bsr_status bsri_check_coo(const bsri_call *c, bsri_spans *set, const bsr_matrix *s, const void *row) {
    const void *array[3];
    const int64_t one = 1;
    int64_t i, at;
    array[0] = row, array[1] = s->col_indices, array[2] = s->values;
    BSRI_TRY(bsri_check_matrix_sizes(c, s, BSR_ARG_SOURCE));
    if (s->values) BSRI_TRY(bsri_check_dtype(c, s->dtype, BSRI_FLOATS | BSRI_INTS, BSR_ARG_SOURCE));
    for (i = 0; i < 2; i++)
        if (!array[i] && s->nnz) return bsri_fail(c, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_SOURCE, i, 0);
    for (i = 0; i < 3; i++)
        BSRI_TRY(bsri_check_array(c, set, s, BSR_ARG_SOURCE, array[i], (int64_t)bsr_dtype_size(i < 2 ? s->index_dtype : s->dtype),
                                  s->crow_batch_stride, 1, &s->nnz, &one, BSRI_READ, 0));
    if (bsri_on_cuda(c)) return bsri_note(c, BSRI_SUBJECT_ENTRIES, s, row, BSR_ARG_SOURCE, 0);
    for (i = 0; i < s->nnz; i++) {
        at = bsri_index(row, s->index_dtype, i);
        if (at < 0 || at >= s->rows) return bsri_fail(c, BSR_ITEM_ROW_RANGE, BSR_ARG_SOURCE, i, at);
        at = bsri_index(s->col_indices, s->index_dtype, i);
        if (at < 0 || at >= s->cols) return bsri_fail(c, BSR_ITEM_COL_RANGE, BSR_ARG_SOURCE, i, at);
    }
    return BSR_OK;
}
BSR_API bsr_status bsr_from_coo(const bsr_context *ctx, int64_t rows, int64_t cols, int64_t nnz, const void *row, const void *col,
                                int index_dtype, const void *values, int dtype, bsr_matrix *m, const bsr_exec *exec) {
    bsr_matrix s = bsri_csr(rows, cols, nnz, NULL, col, index_dtype, values, dtype);
    bsri_entries e = bsri_entries_of(&s, row);
    bsri_call c;
    bsri_build b;
    bsri_spans set;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_FROM_COO, exec));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_coo(&c, &set, &s, row));
    BSRI_TRY(bsri_build_begin(&c, &b, m, rows, cols, 1));
    if (bsri_checking(&c)) BSRI_TRY(bsri_build_entries_check(&c, &b, &s, &set));
    BSRI_CUDA_RETURN(&c, bsri_cuda_from_entries(&c, &b, &s, row, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    return stop ? BSR_OK : bsri_build_from_entries(&c, &b, &e, NULL, m);
}

BSR_API bsr_status bsr_from_block_mask(const bsr_context *ctx, const uint8_t *mask, bsr_matrix *m, const bsr_exec *exec) {
    bsri_call c;
    bsri_build b;
    bsri_scratch scratch;
    bsr_dense view;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_FROM_BLOCK_MASK, exec));
    BSRI_TRY(bsri_build_begin(&c, &b, m, -1, -1, 0));
    if (bsri_checking(&c)) {
        bsri_spans set;
        set.count = 0, memset(&view, 0, sizeof view);
        BSRI_TRY(bsri_check_matrix_sizes(&c, &b.to, BSR_ARG_MATRIX));
        BSRI_TRY(bsri_join(&c, &b.batch, m->batch_dims, m->batch, BSR_ARG_MATRIX));
        view.data = (void *)(uintptr_t)mask, view.dtype = BSR_BOOL, view.rows = b.rows, view.cols = b.cols;
        view.row_stride = b.cols, view.col_stride = 1, view.batch_dims = 1, view.batch[0] = b.batch.count;
        if (!bsri_mul(b.rows, b.cols, &view.batch_stride[0])) return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_SOURCE, -1, 0);
        BSRI_TRY(bsri_check_dense(&c, &set, &view, BSR_ARG_SOURCE, BSRI_BIT(BSR_BOOL), BSRI_READ));
        b.batch = bsri_batch_none();
        BSRI_TRY(bsri_build_check(&c, &b, &set));
    }
    b.mask = mask;
    BSRI_CUDA_RETURN(&c, bsri_cuda_from_mask(&c, &b, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_build_blocks(&c, &b, m, &scratch));
    bsri_for_each(ctx, b.batch.count * b.rows, bsri_bits_from_mask, &b);
    return bsri_build_finish(&c, &b, m, &scratch);
}

BSR_API int64_t bsr_kept_blocks(int64_t total_blocks, double sparsity) {
    double x = (1.0 - sparsity) * (double)total_blocks;
    int64_t kept;
    if (total_blocks < 0 || !(sparsity >= 0 && sparsity <= 1)) return -1;
    if (x >= 9.2e18) return total_blocks;
    kept = (int64_t)x;
    if (x - (double)kept >= 0.5) kept++;
    return bsri_min(kept, total_blocks);
}
/* Blocks per item that a sparsity leaves. */
static bsr_status bsri_kept(const bsri_call *c, const bsri_build *b, double sparsity, int64_t *total, int64_t *kept) {
    if (!bsri_mul(b->rows, b->cols, total)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    *kept = bsr_kept_blocks(*total, sparsity);
    return *kept < 0 ? bsri_fail(c, BSR_ITEM_SPARSITY, BSR_ARG_OPTIONS, -1, 0) : BSR_OK;
}
BSR_API bsr_status bsr_random_pattern(const bsr_context *ctx, uint64_t seed, double sparsity, bsr_matrix *m,
                                      const bsr_exec *exec) {
    bsri_call c;
    bsri_build b;
    bsri_scratch scratch;
    bsri_spans set;
    int64_t total, kept, item;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_RANDOM_PATTERN, exec));
    BSRI_TRY(bsri_build_begin(&c, &b, m, -1, -1, 0));
    if (bsri_checking(&c)) BSRI_TRY(bsri_build_check(&c, &b, &set));
    BSRI_TRY(bsri_kept(&c, &b, sparsity, &total, &kept));
    BSRI_CUDA_RETURN(&c, bsri_cuda_random(&c, &b, seed, kept, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_build_blocks(&c, &b, m, &scratch));
    for (item = 0; item < b.batch.count; item++) bsri_bits_random(&b, item, seed, kept, total);
    return bsri_build_finish(&c, &b, m, &scratch);
}

/* The checks of a pruned sparse source: fits, same block size, ascending columns (they are the result's). */
static bsr_status bsri_prune_check_sparse(const bsri_call *c, bsri_build *b, const bsr_matrix *s) {
    bsri_spans set;
    set.count = 0;
    BSRI_TRY(bsri_check_matrix(c, &set, s, BSR_ARG_SOURCE, BSRI_FLOATS | BSRI_INTS, BSRI_READ));
    if (s->block_rows != b->to.block_rows)
        return bsri_fail_wanted(c, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_MATRIX, 0, b->to.block_rows, s->block_rows);
    if (s->block_cols != b->to.block_cols)
        return bsri_fail_wanted(c, BSR_ITEM_BLOCK_MISMATCH, BSR_ARG_MATRIX, 1, b->to.block_cols, s->block_cols);
    BSRI_TRY(bsri_build_check(c, b, &set));
    if (b->with_values) BSRI_TRY(bsri_check_convertible(c, s->dtype, b->to.dtype, BSR_ARG_MATRIX));
    BSRI_TRY(bsri_check_batch_fits(c, &b->batch, s->batch_dims, s->batch, BSR_ARG_SOURCE));
    return bsri_check_structure(c, s, BSR_ARG_SOURCE, 1);
}
static bsr_status bsri_prune_run(const bsri_call *c, bsri_build *b, int64_t total, int64_t kept, bsr_matrix *m) {
    bsri_scratch scratch;
    int64_t n = total;
    b->batch = bsri_batch_of(m->batch_dims, m->batch);
    if (b->sparse) n = b->sparse->nnz, b->item_words = bsri_ceil_div(n, 64), b->row = bsri_row_of_stored;
    else BSRI_TRY(bsri_build_all_blocks(c, b));
    BSRI_TRY(bsri_build_bits(c, b, n, &scratch));
    for (b->item = 0; b->item < b->batch.count; b->item++) {
        if (b->sparse) { /* of a ragged source only this item's blocks */
            const void *crow = bsri_matrix_item(&b->batch, b->item, b->sparse).crow;
            b->from = bsri_index(crow, b->sparse->index_dtype, 0);
            n = bsri_index(crow, b->sparse->index_dtype, b->rows) - b->from;
        }
        bsri_for_each(c->ctx, n, bsri_norm_one, b);
        bsri_bits_largest(b, n, bsri_min(kept, n));
    }
    return bsri_build_finish(c, b, m, &scratch);
}
BSR_API bsr_status bsr_prune(const bsr_context *ctx, bsr_operand source, double sparsity, int norm, bsr_matrix *m,
                             const bsr_exec *exec) {
    const bsr_dense *d = source.dense;
    const bsr_matrix *s = source.sparse;
    bsri_call c;
    bsri_build b;
    bsr_dense used;
    int64_t total, kept;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_PRUNE, exec));
    if (!d == !s) return bsri_fail(&c, BSR_ITEM_OPERAND_KIND, BSR_ARG_SOURCE, -1, 0);
    if (norm < BSR_NORM_L2 || norm > BSR_NORM_MAX) return bsri_fail(&c, BSR_ITEM_NORM, BSR_ARG_OPTIONS, -1, norm);
    BSRI_TRY(bsri_build_begin(&c, &b, m, d ? d->rows : s->rows, d ? d->cols : s->cols, 1));
    b.dense = d, b.sparse = s, b.norm_kind = norm;
    if (bsri_checking(&c)) {
        if (d) BSRI_TRY(bsri_build_dense_check(&c, &b, d, BSRI_FLOATS | BSRI_INTS));
        else BSRI_TRY(bsri_prune_check_sparse(&c, &b, s));
    }
    BSRI_TRY(bsri_kept(&c, &b, sparsity, &total, &kept));
    BSRI_CUDA_RETURN(&c, bsri_cuda_prune(&c, &b, kept, m));
    if (d) used = bsri_dense_used(d), b.dense = &used;
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    return stop ? BSR_OK : bsri_prune_run(&c, &b, total, kept, m);
}

typedef struct bsri_expand {
    const bsr_matrix *m;
    const bsr_dense *out;
    bsri_batch batch;
    int64_t rows;
} bsri_expand;
typedef struct bsri_line { /* the blocks of one block row */
    const bsr_matrix *m;
    bsri_item it;
    int64_t begin, end, stride[3];
} bsri_line;
static int64_t bsri_line_column(const void *arg, int64_t i) {
    const bsri_line *l = (const bsri_line *)arg;
    return bsri_index(l->it.col, l->m->index_dtype, l->begin + i);
}
#define BSRI_SUMS 2048 /* columns whose sums are held at once */
/* Row k of a line in columns [from, from + n) of d, where elements that stand there more than once are written: summed in f64
   in the order of the blocks and rounded once, integers modulo 2^32. dst is the row's element in column `from`. */
static void bsri_expand_sums(const bsri_line *l, int64_t k, const bsr_dense *d, char *dst, int64_t from, int64_t n) {
    const int floats = (BSRI_BIT(d->dtype) & BSRI_FLOATS) != 0, dtype = l->m->dtype;
    double sum[BSRI_SUMS];
    uint32_t whole[BSRI_SUMS];
    uint8_t count[BSRI_SUMS];
    int64_t p, j, first, last;
    memset(count, 0, (size_t)n);
    for (p = l->begin; p < l->end; p++) {
        const int64_t left = bsri_line_column(l, p - l->begin) * l->m->block_cols - from;
        const int64_t at = p * l->stride[0] + k * l->stride[1];
        first = bsri_max(0, left), last = bsri_min(n, left + l->m->block_cols);
        for (j = first; j < last; j++) {
            const int64_t value = at + (j - left) * l->stride[2];
            const double x = floats ? bsri_load_f64(l->it.values, dtype, value) : 0;
            if (floats) sum[j] = count[j] ? sum[j] + x : x;
            else whole[j] = (count[j] ? whole[j] : 0) + (uint32_t)bsri_load_i32(l->it.values, dtype, value);
            count[j] = (uint8_t)(count[j] ? 2 : 1);
        }
    }
    for (j = 0; j < n; j++) {
        if (count[j] < 2) continue; /* copied as it is */
        if (floats) bsri_store_f64(dst, d->dtype, j * d->col_stride, sum[j]);
        else bsri_store_i32(dst, d->dtype, j * d->col_stride, (int32_t)whole[j]);
    }
}
/* Which block columns of [from, from + BSRI_REPEATED) a line has more than once, a bit each; 0: none. */
#define BSRI_REPEATED 65536
static int bsri_line_repeats(const bsri_line *l, int64_t from, uint64_t *twice) {
    uint64_t once[BSRI_REPEATED / 64];
    int64_t p;
    int any = 0;
    memset(once, 0, sizeof once), memset(twice, 0, sizeof once);
    for (p = l->begin; p < l->end; p++) {
        const int64_t at = bsri_line_column(l, p - l->begin) - from;
        uint64_t bit;
        if (at < 0 || at >= BSRI_REPEATED) continue;
        bit = UINT64_C(1) << (at & 63);
        if (once[at / 64] & bit) twice[at / 64] |= bit, any = 1;
        once[at / 64] |= bit;
    }
    return any;
}
/* Sums where blocks of a line stand in one place, `rows` of it from dst on: only where a line's columns repeat. */
static void bsri_expand_repeats(const bsri_line *l, const bsr_dense *d, char *dst, int64_t rows) {
    const int64_t bc = l->m->block_cols, across = bsri_ceil_div(d->cols, bc);
    uint64_t twice[BSRI_REPEATED / 64];
    int64_t from, col, end, block, k;
    for (from = 0; from < across; from += BSRI_REPEATED) {
        if (!bsri_line_repeats(l, from, twice)) continue;
        end = from + BSRI_REPEATED < across ? (from + BSRI_REPEATED) * bc : d->cols;
        for (col = from * bc; col < end; col += BSRI_SUMS) {
            const int64_t n = bsri_min(BSRI_SUMS, end - col), last = (col + n - 1) / bc - from;
            for (block = col / bc - from; block <= last && !(twice[block / 64] >> (block & 63) & 1u); block++) {}
            for (k = 0; block <= last && k < rows; k++)
                bsri_expand_sums(l, k, d, bsri_at(dst, d->dtype, k * d->row_stride + col * d->col_stride), col, n);
        }
    }
}
static void bsri_expand_row(void *arg, int64_t i) { /* one block row of one item */
    const bsri_expand *job = (const bsri_expand *)arg;
    const bsr_matrix *m = job->m;
    const bsr_dense *d = job->out;
    const int64_t item = i / job->rows, r = i % job->rows, top = r * m->block_rows, rows = bsri_min(m->block_rows, d->rows - top);
    const int64_t offset = bsri_dense_offset(&job->batch, item, d);
    int64_t p, k, col;
    int repeats;
    bsri_line l;
    l.m = m, l.it = bsri_matrix_item(&job->batch, item, m);
    bsri_value_steps(m, l.stride);
    l.begin = bsri_index(l.it.crow, m->index_dtype, r), l.end = bsri_index(l.it.crow, m->index_dtype, r + 1);
    repeats = bsri_find_repeat(NULL, bsri_line_column, &l, l.end - l.begin) >= 0;
    for (k = 0; k < rows; k++) {
        char *dst = bsri_at(d->data, d->dtype, offset + (top + k) * d->row_stride);
        bsri_zero_row(dst, d->dtype, d->col_stride, d->cols);
        for (p = l.begin; p < l.end; p++) {
            col = bsri_line_column(&l, p - l.begin) * m->block_cols;
            bsri_copy_row(bsri_at(dst, d->dtype, col * d->col_stride), d->dtype, d->col_stride,
                          bsri_at(l.it.values, m->dtype, p * l.stride[0] + k * l.stride[1]), m->dtype, l.stride[2],
                          bsri_min(m->block_cols, d->cols - col));
        }
    }
    if (repeats) bsri_expand_repeats(&l, d, bsri_at(d->data, d->dtype, offset + top * d->row_stride), rows);
}
BSR_API bsr_status bsr_to_dense(const bsr_context *ctx, const bsr_matrix *m, const bsr_dense *out, const bsr_exec *exec) {
    bsri_call c;
    bsri_expand job;
    bsr_dense used;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_TO_DENSE, exec));
    job.batch = bsri_batch_none();
    if (bsri_checking(&c)) {
        bsri_spans set;
        set.count = 0;
        BSRI_TRY(bsri_check_matrix(&c, &set, m, BSR_ARG_MATRIX, BSRI_FLOATS | BSRI_INTS, BSRI_READ));
        BSRI_TRY(bsri_check_dense(&c, &set, out, BSR_ARG_OUT, BSRI_FLOATS | BSRI_INTS, BSRI_WRITE));
        BSRI_TRY(bsri_check_convertible(&c, m->dtype, out->dtype, BSR_ARG_OUT));
        if (bsri_ceil_div(out->rows, m->block_rows) != bsri_block_rows(m))
            return bsri_fail_wanted(&c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_OUT, -1, out->rows, m->rows);
        if (bsri_ceil_div(out->cols, m->block_cols) != bsri_block_cols(m))
            return bsri_fail_wanted(&c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_OUT, -1, out->cols, m->cols);
        BSRI_TRY(bsri_join(&c, &job.batch, out->batch_dims, out->batch, BSR_ARG_OUT));
        BSRI_TRY(bsri_check_batch_fits(&c, &job.batch, m->batch_dims, m->batch, BSR_ARG_MATRIX));
        BSRI_TRY(bsri_check_structure(&c, m, BSR_ARG_MATRIX, 0));
    }
    BSRI_CUDA_RETURN(&c, bsri_cuda_to_dense(&c, m, out));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    used = bsri_dense_used(out);
    job.m = m, job.out = &used, job.batch = bsri_batch_of(out->batch_dims, out->batch), job.rows = bsri_block_rows(m);
    if (!out->cols) return BSR_OK; /* else there is memory for all items, and their rows can be counted */
    bsri_for_each(ctx, job.batch.count * job.rows, bsri_expand_row, &job);
    return BSR_OK;
}

/* Blocks of another size. The first place in [low, high) of a list of ascending columns whose column is `at` or more. */
static int64_t bsri_column_from(const void *col, int index_dtype, int64_t low, int64_t high, int64_t at) {
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bsri_index(col, index_dtype, mid) < at) low = mid + 1;
        else high = mid;
    }
    return low;
}
/* The source's block rows [top, end) under a block row of the target, and how far few of them were gone through; of many each
   step searches. */
#define BSRI_CURSORS 64
typedef struct bsri_under {
    bsri_item s;
    int64_t top, end, at[BSRI_CURSORS];
    int few;
} bsri_under;
/* The first stored block of source block row r that reaches to the target's block column c or behind it; calls come with c
   ascending. */
static int64_t bsri_under_from(const bsri_build *b, bsri_under *u, int64_t r, int64_t c) {
    const int dt = b->sparse->index_dtype;
    const int64_t first = c * b->to.block_cols / b->sparse->block_cols, stop = bsri_index(u->s.crow, dt, r + 1);
    int64_t *at = u->at + (u->few ? r - u->top : 0);
    if (!u->few) return bsri_column_from(u->s.col, dt, bsri_index(u->s.crow, dt, r), stop, first);
    while (*at < stop && bsri_index(u->s.col, dt, *at) < first) ++*at;
    return *at;
}
/* The first block column of the target, from `from` on, that a stored block below reaches into; none: the number of them. */
static int64_t bsri_under_next(const bsri_build *b, bsri_under *u, int64_t from) {
    const bsr_matrix *m = b->sparse;
    int64_t best = b->cols, r;
    for (r = u->top; r < u->end && from < b->cols; r++) {
        const int64_t p = bsri_under_from(b, u, r, from);
        if (p < bsri_index(u->s.crow, m->index_dtype, r + 1))
            best = bsri_min(best, bsri_max(from, bsri_index(u->s.col, m->index_dtype, p) * m->block_cols / b->to.block_cols));
    }
    return best;
}
/* A row of the target's block at block column c: i-th of the source's rows, zeros where nothing is stored. */
static void bsri_reblock_row(const bsri_build *b, bsri_under *u, const int64_t *stride, int64_t i, int64_t c, char *dst) {
    const bsr_matrix *m = b->sparse;
    const int64_t bc = m->block_cols, left = c * b->to.block_cols, right = left + b->to.block_cols, step = b->value_stride[2];
    int64_t at = left, r = i / m->block_rows, p = 0, end = 0;
    if (i < m->rows) end = bsri_index(u->s.crow, m->index_dtype, r + 1), p = bsri_under_from(b, u, r, c);
    for (; p < end && at < right; p++) {
        const int64_t start = bsri_index(u->s.col, m->index_dtype, p) * bc, low = bsri_max(left, start);
        const int64_t n = bsri_min(right, start + bc) - low;
        if (n <= 0) break;
        bsri_zero_row(bsri_at(dst, b->to.dtype, (at - left) * step), b->to.dtype, step, low - at);
        bsri_copy_row(
            bsri_at(dst, b->to.dtype, (low - left) * step), b->to.dtype, step,
            bsri_at(u->s.values, m->dtype, p * stride[0] + (i - r * m->block_rows) * stride[1] + (low - start) * stride[2]),
            m->dtype, stride[2], n);
        at = low + n;
    }
    bsri_zero_row(bsri_at(dst, b->to.dtype, (at - left) * step), b->to.dtype, step, right - at);
}
static int64_t bsri_row_of_blocks(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const bsr_matrix *m = b->sparse;
    int64_t c, n = 0, y, stride[3];
    bsri_under u;
    u.s = bsri_matrix_item(&b->batch, item, m), u.top = r * b->to.block_rows / m->block_rows;
    u.end = bsri_min(bsri_block_rows(m), bsri_ceil_div((r + 1) * b->to.block_rows, m->block_rows));
    u.few = u.end - u.top <= BSRI_CURSORS;
    for (y = u.top; y < u.end && u.few; y++) u.at[y - u.top] = bsri_index(u.s.crow, m->index_dtype, y);
    bsri_value_steps(m, stride);
    for (c = bsri_under_next(b, &u, 0); c < b->cols; c = bsri_under_next(b, &u, c + 1), n++) {
        if (!to) continue;
        bsri_set_index((void *)(uintptr_t)to->col, b->to.index_dtype, at + n, c);
        for (y = 0; y < b->to.block_rows && b->with_values; y++)
            bsri_reblock_row(b, &u, stride, r * b->to.block_rows + y, c,
                             bsri_at(to->values, b->to.dtype, (at + n) * b->value_stride[0] + y * b->value_stride[1]));
    }
    return n;
}
/* The same of blocks of 1 x 1, which are the elements of a row one after another. */
static int64_t bsri_row_of_elements(const bsri_build *b, int64_t item, int64_t r, const bsri_item *to, int64_t at) {
    const bsr_matrix *m = b->sparse;
    const bsri_item s = bsri_matrix_item(&b->batch, item, m);
    const int64_t br = m->block_rows, bc = m->block_cols;
    int64_t stride[3], n = 0, p, end, x;
    if (r >= m->rows) return 0;
    p = bsri_index(s.crow, m->index_dtype, r / br), end = bsri_index(s.crow, m->index_dtype, r / br + 1);
    if (!to && p < end) return (end - p) * bc - bsri_max(0, (bsri_index(s.col, m->index_dtype, end - 1) + 1) * bc - b->to.cols);
    bsri_value_steps(m, stride);
    for (; p < end; p++) {
        const int64_t left = bsri_index(s.col, m->index_dtype, p) * bc, width = bsri_min(bc, b->to.cols - left);
        for (x = 0; x < width; x++) bsri_set_index((void *)(uintptr_t)to->col, b->to.index_dtype, at + n + x, left + x);
        if (b->with_values)
            bsri_copy_row(bsri_at(to->values, b->to.dtype, (at + n) * b->value_stride[0]), b->to.dtype, b->value_stride[0],
                          bsri_at(s.values, m->dtype, p * stride[0] + r % br * stride[1]), m->dtype, stride[2], width);
        n += width;
    }
    return n;
}
/* The checks of a source of whole blocks: fits, ascending columns (they are the result's). */
static bsr_status bsri_reblock_check(const bsri_call *c, bsri_build *b, const bsr_matrix *s, bsri_spans *set) {
    BSRI_TRY(bsri_check_matrix(c, set, s, BSR_ARG_SOURCE, BSRI_FLOATS | BSRI_INTS, b->with_values ? BSRI_READ : BSRI_PATTERN));
    BSRI_TRY(bsri_build_check(c, b, set));
    if (b->with_values) BSRI_TRY(bsri_check_convertible(c, s->dtype, b->to.dtype, BSR_ARG_MATRIX));
    return bsri_check_batch_fits(c, &b->batch, s->batch_dims, s->batch, BSR_ARG_SOURCE);
}
static bsr_status bsri_reblock_run(const bsri_call *c, bsri_build *b, bsr_matrix *m) {
    bsri_scratch scratch;
    b->batch = bsri_batch_of(m->batch_dims, m->batch);
    b->row = b->to.block_rows == 1 && b->to.block_cols == 1 ? bsri_row_of_elements : bsri_row_of_blocks;
    BSRI_TRY(bsri_build_bits(c, b, 0, &scratch));
    return bsri_build_finish(c, b, m, &scratch);
}
BSR_API bsr_status bsr_reblock(const bsr_context *ctx, const bsr_matrix *source, bsr_matrix *m, const bsr_exec *exec) {
    bsri_call c;
    bsri_build b;
    bsri_spans set;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_REBLOCK, exec));
    if (!source) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_SOURCE, -1, 0);
    BSRI_TRY(bsri_build_begin(&c, &b, m, source->rows, source->cols, 1));
    b.sparse = source;
    if (bsri_checking(&c)) {
        BSRI_TRY(bsri_reblock_check(&c, &b, source, &set));
        BSRI_TRY(bsri_check_structure(&c, source, BSR_ARG_SOURCE, 1));
    }
    BSRI_CUDA_RETURN(&c, bsri_cuda_reblock(&c, &b, NULL, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    return stop ? BSR_OK : bsri_reblock_run(&c, &b, m);
}

typedef struct bsri_numbered { /* rows of entries */
    const bsr_matrix *m;
    void *row;
} bsri_numbered;
static void bsri_number_row(void *arg, int64_t r) {
    const bsri_numbered *job = (const bsri_numbered *)arg;
    const int dt = job->m->index_dtype;
    int64_t p = bsri_index(job->m->crow_indices, dt, r), end = bsri_index(job->m->crow_indices, dt, r + 1);
    for (; p < end; p++) bsri_set_index(job->row, dt, p, r);
}
/* CSR and COO: matrices of 1 x 1 blocks, with or without an array of rows. */
static bsr_status bsri_to_entries(const bsr_context *ctx, int op, const bsr_matrix *source, int64_t rows, int64_t cols,
                                  int64_t *nnz, bsr_matrix *m, void *row, const bsr_exec *exec) {
    const int64_t one = 1, size = (int64_t)bsr_dtype_size(m->index_dtype);
    bsri_call c;
    bsri_build b;
    bsri_numbered job;
    bsri_spans set;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, op, exec));
    if (!source) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_SOURCE, -1, 0);
    if (!nnz) return bsri_fail(&c, BSR_ITEM_OUTPUT_NULL, BSR_ARG_MATRIX, -1, 0);
    m->nnz = *nnz;
    BSRI_TRY(bsri_build_begin(&c, &b, m, rows, cols, 1));
    b.sparse = source;
    if (bsri_checking(&c)) {
        BSRI_TRY(bsri_reblock_check(&c, &b, source, &set));
        if (bsri_ceil_div(rows, source->block_rows) != bsri_block_rows(source))
            return bsri_fail_wanted(&c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_MATRIX, -1, rows, source->rows);
        if (bsri_ceil_div(cols, source->block_cols) != bsri_block_cols(source))
            return bsri_fail_wanted(&c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_MATRIX, -1, cols, source->cols);
        if (row && !b.count_only)
            BSRI_TRY(bsri_check_array(&c, &set, &b.to, BSR_ARG_MATRIX, row, size, b.to.crow_batch_stride, 1, &b.to.nnz, &one,
                                      BSRI_WRITE, 0));
        BSRI_TRY(bsri_check_structure(&c, source, BSR_ARG_SOURCE, 1));
    }
    if (b.count_only) row = NULL;
    BSRI_CUDA_RETURN(&c, bsri_cuda_reblock(&c, &b, row, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_reblock_run(&c, &b, m));
    *nnz = m->nnz, job.m = m, job.row = row;
    if (row) bsri_for_each(ctx, rows, bsri_number_row, &job);
    return BSR_OK;
}
BSR_API bsr_status bsr_to_csr(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz,
                              void *crow, void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec) {
    bsr_matrix m = bsri_csr(rows, cols, 0, crow, col, index_dtype, values, dtype);
    return bsri_to_entries(ctx, BSR_OP_TO_CSR, source, rows, cols, nnz, &m, NULL, exec);
}
BSR_API bsr_status bsr_to_coo(const bsr_context *ctx, const bsr_matrix *source, int64_t rows, int64_t cols, int64_t *nnz,
                              void *crow, void *row, void *col, int index_dtype, void *values, int dtype, const bsr_exec *exec) {
    bsr_matrix m = bsri_csr(rows, cols, 0, crow, col, index_dtype, values, dtype);
    return bsri_to_entries(ctx, BSR_OP_TO_COO, source, rows, cols, nnz, &m, row, exec);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>views: transposed index, schedule, validate                                                  */
/* ---------------------------------------------------------------------------------------------- */

/* m batched over its own patterns only: item i of the batch is pattern i of the views. */
static bsri_batch bsri_patterns(const bsr_matrix *m, bsr_matrix *one) {
    int i;
    *one = *m;
    for (i = 0; i < m->batch_dims; i++)
        if (m->batch[i] && !bsri_own_pattern(m, i)) one->batch[i] = 1;
    return bsri_batch_of(one->batch_dims, one->batch);
}

/* Counting sort of one pattern by column: ccol, and for each entry its block row and position. `position` may be null. */
static void bsri_transpose_pattern(const bsr_matrix *m, const bsri_item *it, void *ccol, void *row, void *position) {
    int64_t rows = bsri_block_rows(m), cols = bsri_block_cols(m), p, i, first, end;
    int t = m->index_dtype;
    first = bsri_index(it->crow, t, 0), end = bsri_index(it->crow, t, rows);
    bsri_set_index(ccol, t, 0, first);
    for (i = 1; i <= cols; i++) bsri_set_index(ccol, t, i, 0);
    for (p = first; p < end; p++) i = bsri_index(it->col, t, p) + 1, bsri_set_index(ccol, t, i, bsri_index(ccol, t, i) + 1);
    for (i = 0; i < cols; i++) bsri_set_index(ccol, t, i + 1, bsri_index(ccol, t, i) + bsri_index(ccol, t, i + 1));
    for (i = 0, p = first; i < rows; i++) /* ccol[c] runs from the start of column c to its end */
        for (; p < bsri_index(it->crow, t, i + 1); p++) {
            int64_t col = bsri_index(it->col, t, p), at = bsri_index(ccol, t, col);
            bsri_set_index(row, t, at, i);
            if (position) bsri_set_index(position, t, at, p);
            bsri_set_index(ccol, t, col, at + 1);
        }
    for (i = cols; i > 0; i--) bsri_set_index(ccol, t, i, bsri_index(ccol, t, i - 1));
    bsri_set_index(ccol, t, 0, first);
}
/* The three arrays of pattern i inside a transposed index. */
static void bsri_transposed_arrays(const bsr_matrix *m, const void *buffer, const bsri_view *v, int64_t i, char *array[3]) {
    int64_t each = m->flags & BSR_MATRIX_RAGGED ? 0 : m->nnz;
    array[0] = bsri_at((const char *)buffer + v->at[0], m->index_dtype, i * (bsri_block_cols(m) + 1));
    array[1] = bsri_at((const char *)buffer + v->at[1], m->index_dtype, i * each);
    array[2] = bsri_at((const char *)buffer + v->at[2], m->index_dtype, i * each);
}
typedef struct bsri_view_job {
    bsr_matrix one;
    bsri_batch patterns;
    bsri_view view;
    void *buffer;
} bsri_view_job;
static void bsri_transposed_one(void *arg, int64_t i) {
    const bsri_view_job *job = (const bsri_view_job *)arg;
    bsri_item it = bsri_matrix_item(&job->patterns, i, &job->one);
    char *array[3];
    bsri_transposed_arrays(&job->one, job->buffer, &job->view, i, array);
    bsri_transpose_pattern(&job->one, &it, array[0], array[1], array[2]);
}

/* What both views ask of their matrix (its old views are about to be replaced) and buffer; the latter only to build. */
static bsr_status bsri_check_view_source(const bsri_call *c, bsri_spans *set, const bsr_matrix *m, bsr_matrix *bare) {
    if (!m) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0);
    *bare = *m, bare->transposed_index = bare->schedule = NULL;
    BSRI_TRY(bsri_check_matrix(c, set, bare, BSR_ARG_MATRIX, BSRI_ANY, BSRI_PATTERN));
    return bsri_check_structure(c, bare, BSR_ARG_MATRIX, 0);
}
static bsr_status bsri_check_view_buffer(const bsri_call *c, bsri_spans *set, void *buffer, uint64_t bytes, int64_t need) {
    const int64_t one = 1;
    bsri_span s;
    if (!buffer) return bsri_fail(c, BSR_ITEM_OUTPUT_NULL, BSR_ARG_BUFFER, -1, 0);
    BSRI_TRY(bsri_check_pointer(c, buffer, 64, BSR_ARG_BUFFER));
    if (bytes < (uint64_t)need) return bsri_fail(c, BSR_ITEM_BUFFER_SIZE, BSR_ARG_BUFFER, -1, need);
    if (!bsri_span_make(&s, BSR_ARG_BUFFER, buffer, 1, 1, &need, &one))
        return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_BUFFER, -1, 0);
    BSRI_TRY(bsri_check_overlap(c, set, &s, 0));
    return bsri_span_keep(c, set, &s);
}

BSR_API bsr_status bsr_transposed_index_size(const bsr_context *ctx, const bsr_matrix *m, uint64_t *bytes, const bsr_exec *exec) {
    bsri_call c;
    bsri_view view;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_TRANSPOSED_INDEX, exec));
    c.flags &= ~BSR_EXEC_CHECK_INDICES; /* no index is read */
    if (!bytes) return bsri_fail(&c, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_matrix_sizes(&c, m, BSR_ARG_MATRIX));
    if (!bsri_transposed_layout(m, &view)) return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (!stop) *bytes = (uint64_t)view.bytes;
    return BSR_OK;
}
BSR_API bsr_status bsr_build_transposed_index(const bsr_context *ctx, const bsr_matrix *m, void *buffer, uint64_t bytes,
                                              const bsr_exec *exec) {
    bsri_call c;
    bsri_view_job job;
    bsri_spans set;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_TRANSPOSED_INDEX, exec));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_view_source(&c, &set, m, &job.one));
    if (!bsri_transposed_layout(m, &job.view)) return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_view_buffer(&c, &set, buffer, bytes, job.view.bytes));
    BSRI_CUDA_RETURN(&c, bsri_cuda_transposed_index(&c, m, &job.view, buffer));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    memset(buffer, 0, (size_t)job.view.bytes);
    bsri_transposed_header(m, (int64_t *)buffer);
    job.patterns = bsri_patterns(m, &job.one), job.buffer = buffer;
    bsri_parallel(ctx, job.patterns.count, bsri_transposed_one, &job);
    return BSR_OK;
}

/* The lines that a schedule orders, and what stands in each: rows with their columns, or columns with their rows. */
typedef struct bsri_lines {
    int64_t count, others;
    const void *start, *list;
    int dtype;
    int64_t *stamp, *length, *order, *next, *bucket, *member, *length_of_union; /* scratch */
    char *seen;
    void *ccol, *row; /* scratch for columns */
} bsri_lines;
enum { /* scratch of lines */
    BSRI_LINES_STAMP,
    BSRI_LINES_LENGTH,
    BSRI_LINES_ORDER,
    BSRI_LINES_NEXT,
    BSRI_LINES_BUCKET,
    BSRI_LINES_MEMBER,
    BSRI_LINES_UNION,
    BSRI_LINES_CCOL,
    BSRI_LINES_ROW,
    BSRI_LINES_PIECES
};
static bsr_status bsri_lines_make(const bsri_call *c, const bsr_matrix *m, int transposed, const bsri_view *v, int group,
                                  bsri_lines *l, bsri_scratch *scratch) {
    bsri_cuts cuts = {0, 0};
    int64_t at[BSRI_LINES_PIECES], size = (int64_t)bsr_dtype_size(m->index_dtype), cols = bsri_block_cols(m);
    memset(l, 0, sizeof *l);
    l->count = v->lines, l->others = transposed ? bsri_block_rows(m) : cols, l->dtype = m->index_dtype;
    at[BSRI_LINES_STAMP] = bsri_cut(&cuts, l->others, 8), at[BSRI_LINES_LENGTH] = bsri_cut(&cuts, l->count, 8);
    at[BSRI_LINES_ORDER] = bsri_cut(&cuts, l->count, 8), at[BSRI_LINES_NEXT] = bsri_cut(&cuts, l->count, 8);
    at[BSRI_LINES_BUCKET] = bsri_cut(&cuts, l->others + 2, 8), at[BSRI_LINES_MEMBER] = bsri_cut(&cuts, v->groups * group, 8);
    at[BSRI_LINES_UNION] = bsri_cut(&cuts, v->groups, 8);
    at[BSRI_LINES_CCOL] = bsri_cut(&cuts, transposed ? cols + 1 : 0, size),
    at[BSRI_LINES_ROW] = bsri_cut(&cuts, transposed ? m->nnz : 0, size);
    BSRI_TRY(bsri_cuts_get(c, &cuts, scratch));
    l->stamp = bsri_cut_i64(scratch, at[BSRI_LINES_STAMP]), l->length = bsri_cut_i64(scratch, at[BSRI_LINES_LENGTH]);
    l->order = bsri_cut_i64(scratch, at[BSRI_LINES_ORDER]), l->next = bsri_cut_i64(scratch, at[BSRI_LINES_NEXT]);
    l->bucket = bsri_cut_i64(scratch, at[BSRI_LINES_BUCKET]), l->member = bsri_cut_i64(scratch, at[BSRI_LINES_MEMBER]);
    l->length_of_union = bsri_cut_i64(scratch, at[BSRI_LINES_UNION]);
    l->ccol = (char *)scratch->data + at[BSRI_LINES_CCOL], l->row = (char *)scratch->data + at[BSRI_LINES_ROW];
    return BSR_OK;
}
/* Takes up one pattern. */
static void bsri_lines_load(bsri_lines *l, const bsr_matrix *m, const bsri_item *it, int transposed) {
    int64_t i;
    l->start = it->crow, l->list = it->col;
    if (transposed) bsri_transpose_pattern(m, it, l->ccol, l->row, NULL), l->start = l->ccol, l->list = l->row;
    for (i = 0; i < l->others; i++) l->stamp[i] = -1;
    for (i = 0; i < l->count; i++) l->length[i] = bsri_index(l->start, l->dtype, i + 1) - bsri_index(l->start, l->dtype, i);
}
/* How many entries of a line group g lacks; with `join` they become part of it. */
static int64_t bsri_lines_extra(const bsri_lines *l, int64_t line, int64_t g, int join) {
    int64_t p = bsri_index(l->start, l->dtype, line), end = p + l->length[line], n = 0;
    for (; p < end; p++) {
        int64_t at = bsri_index(l->list, l->dtype, p);
        if (l->stamp[at] == g) continue;
        n++;
        if (join) l->stamp[at] = g;
    }
    return n;
}
/* What speaks against a line as a group's next: twice the entries that it shares with the group against those that it adds. By
   what it adds alone short lines went to the long ones, to no use (unions of 4096^3 at .8, half of the rows empty, in groups of
   8/4/2: 5231/2222/832, now 3863/1651/612; lengths by a power law 5717/1983/630, now 4971/1762/597; random as they were). */
#define BSRI_GROUP_LOSS(extra, length) (3 * (extra) - 2 * (length))
/* Greedy grouping: the longest line left, then those of the next `window` with the least loss. */
static void bsri_lines_group(bsri_lines *l, int64_t groups, int group, int64_t window) {
    int64_t i, g, k, head = 0;
    for (i = 0; i < l->count; i++) l->next[i] = i + 1;
    for (g = 0; g < groups; g++) {
        int64_t *member = l->member + g * group;
        member[0] = l->order[head], head = l->next[head];
        l->length_of_union[g] = bsri_lines_extra(l, member[0], g, 1);
        for (k = 1; k < group; k++) {
            int64_t best = -1, best_before = -1, before = -1, least = 0, seen = 0;
            for (i = head; i < l->count && seen < window; before = i, i = l->next[i], seen++) {
                const int64_t length = bsri_min(l->length[l->order[i]], l->others);
                int64_t loss;
                if (best >= 0 && BSRI_GROUP_LOSS(0, length) >= least) break; /* shorter ones follow */
                loss = BSRI_GROUP_LOSS(bsri_lines_extra(l, l->order[i], g, 0), length);
                if (best < 0 || loss < least) best = i, best_before = before, least = loss;
            }
            member[k] = best < 0 ? -1 : l->order[best];
            if (best < 0) continue;
            if (best_before < 0) head = l->next[best];
            else l->next[best_before] = l->next[best];
            l->length_of_union[g] += bsri_lines_extra(l, member[k], g, 1);
        }
    }
}
static void bsri_schedule_one(bsri_lines *l, int group, const bsri_view *v, int64_t nnz, int32_t *order, int32_t *lengths) {
    /* the search costs window * nnz * (group - 1) steps: kept to some 2^29 */
    int64_t i, k, full = v->lines / group, window = (INT64_C(1) << 29) / (nnz / 8 * (group - 1) * 8 + 1);
    bsri_sort_longest(v->lines, l->length, l->others, l->bucket, l->order);
    bsri_lines_group(l, v->groups, group, bsri_max(8, bsri_min(window, 256)));
    bsri_sort_longest(full, l->length_of_union, l->others, l->bucket, l->order); /* a group that is not full stays last */
    for (i = 0; i < v->groups; i++) {
        int64_t g = i < full ? l->order[i] : i;
        for (k = 0; k < group; k++) order[i * group + k] = (int32_t)l->member[g * group + k];
        lengths[i] = (int32_t)l->length_of_union[g];
    }
}
/* A union that is more than 1 longer than three times the average, which random ones hardly are; sum: of all groups' lengths. */
BSRI_UNUSED BSRI_HD static int bsri_is_tall(int64_t length, int64_t groups, int64_t sum) {
    return (length - 1) * groups > 3 * sum;
}
/* How many unions of the first pattern are. They stand in front: the last is not asked for, which if not full is out of order,
   and if full is the shortest. */
static int64_t bsri_schedule_tall(const void *buffer, const bsri_view *v) {
    const int32_t *lengths = (const int32_t *)(const void *)((const char *)buffer + v->at[1]);
    int64_t i, sum = 0, count = 0;
    for (i = 0; i < v->groups && v->patterns; i++) sum += lengths[i];
    for (i = 0; i + 1 < v->groups && v->patterns; i++) count += bsri_is_tall(lengths[i], v->groups, sum);
    return count;
}

static bsr_status bsri_schedule_place(const bsri_call *c, const bsr_matrix *m, int group, int transposed, bsri_view *v) {
    int64_t most = bsri_max(bsri_block_rows(m), bsri_block_cols(m));
    if (group != 1 && group != 2 && group != 4 && group != 8)
        return bsri_fail(c, BSR_ITEM_GROUP_SIZE, BSR_ARG_OPTIONS, -1, group);
    if (most > INT32_MAX) return bsri_fail(c, BSR_ITEM_INDEX_RANGE, BSR_ARG_MATRIX, -1, most);
    if (!bsri_schedule_layout(m, group, transposed, v)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    return BSR_OK;
}
BSR_API bsr_status bsr_schedule_size(const bsr_context *ctx, const bsr_matrix *m, int group, int transposed, uint64_t *bytes,
                                     const bsr_exec *exec) {
    bsri_call c;
    bsri_view view;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SCHEDULE, exec));
    c.flags &= ~BSR_EXEC_CHECK_INDICES; /* no index is read */
    if (!bytes) return bsri_fail(&c, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_matrix_sizes(&c, m, BSR_ARG_MATRIX));
    BSRI_TRY(bsri_schedule_place(&c, m, group, transposed, &view));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (!stop) *bytes = (uint64_t)view.bytes;
    return BSR_OK;
}
BSR_API bsr_status bsr_build_schedule(const bsr_context *ctx, const bsr_matrix *m, int group, int transposed, void *buffer,
                                      uint64_t bytes, const bsr_exec *exec) {
    bsri_call c;
    bsri_view_job job;
    bsri_lines lines;
    bsri_scratch scratch;
    bsri_spans set;
    int64_t *header = (int64_t *)buffer, i;
    int stop;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SCHEDULE, exec));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_view_source(&c, &set, m, &job.one));
    BSRI_TRY(bsri_schedule_place(&c, m, group, transposed, &job.view));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_view_buffer(&c, &set, buffer, bytes, job.view.bytes));
    BSRI_CUDA_RETURN(&c, bsri_cuda_schedule(&c, m, group, transposed, &job.view, buffer));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_lines_make(&c, m, transposed, &job.view, group, &lines, &scratch));
    memset(buffer, 0, (size_t)job.view.bytes);
    bsri_schedule_header(m, group, transposed, header);
    job.patterns = bsri_patterns(m, &job.one);
    for (i = 0; i < job.patterns.count; i++) {
        bsri_item it = bsri_matrix_item(&job.patterns, i, &job.one);
        bsri_lines_load(&lines, &job.one, &it, transposed);
        bsri_schedule_one(&lines, group, &job.view, m->nnz,
                          (int32_t *)(void *)((char *)buffer + job.view.at[0]) + i * job.view.groups * group,
                          (int32_t *)(void *)((char *)buffer + job.view.at[1]) + i * job.view.groups);
    }
    header[BSRI_SCHEDULE_TALL] = bsri_schedule_tall(buffer, &job.view);
    bsri_scratch_end(&c, &scratch);
    return BSR_OK;
}

/* One pattern's transposed index against the (already validated) pattern. Entries are numbered through each array. */
static bsr_status bsri_validate_transposed(const bsri_call *c, const bsri_view_job *job, int64_t i) {
    const bsr_matrix *m = &job->one;
    bsri_item it = bsri_matrix_item(&job->patterns, i, m);
    int64_t rows = bsri_block_rows(m), cols = bsri_block_cols(m), base = i * (cols + 1), k, e, now, before, end;
    int64_t shift = m->flags & BSR_MATRIX_RAGGED ? 0 : i * m->nnz;
    char *array[3];
    int t = m->index_dtype;
    bsri_transposed_arrays(m, m->transposed_index, &job->view, i, array);
    before = bsri_index(it.crow, t, 0), end = bsri_index(it.crow, t, rows), now = bsri_index(array[0], t, 0);
    if (now != before) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, base, now);
    for (k = 1; k <= cols; k++, before = now) {
        now = bsri_index(array[0], t, k);
        if (now < before || now > end || (k == cols && now != end))
            return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, base + k, now);
    }
    for (k = 0, e = bsri_index(array[0], t, 0); k < cols; k++)
        for (before = -1; e < bsri_index(array[0], t, k + 1); e++) {
            int64_t row = bsri_index(array[1], t, e), p = bsri_index(array[2], t, e);
            if (row <= before || row >= rows) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, shift + e, row);
            if (p < bsri_index(it.crow, t, row) || p >= bsri_index(it.crow, t, row + 1) || bsri_index(it.col, t, p) != k)
                return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, shift + e, p);
            before = row;
        }
    return BSR_OK;
}
/* One pattern's schedule: every line once, -1 only at the end, unions as long as it says. */
static bsr_status bsri_validate_schedule_one(const bsri_call *c, bsri_lines *l, const bsri_view *v, int group, int64_t i,
                                             const void *buffer) {
    const int32_t *order = (const int32_t *)(const void *)((const char *)buffer + v->at[0]) + i * v->groups * group;
    const int32_t *lengths = (const int32_t *)(const void *)((const char *)buffer + v->at[1]) + i * v->groups;
    int64_t g, k, at, sum;
    for (k = 0; k < l->count; k++) l->next[k] = 0; /* seen */
    for (g = 0; g < v->groups; g++) {
        for (k = 0, sum = 0; k < group; k++) {
            at = g * group + k;
            if (at >= l->count && order[at] == -1) continue;
            if (at >= l->count || order[at] < 0 || order[at] >= l->count || l->next[order[at]]++)
                return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, i * v->groups * group + at, order[at]);
            sum += bsri_lines_extra(l, order[at], g, 1);
        }
        if (sum != lengths[g]) return bsri_fail(c, BSR_ITEM_VIEW_CONTENT, BSR_ARG_MATRIX, i * v->groups + g, lengths[g]);
    }
    return BSR_OK;
}
static bsr_status bsri_validate_schedule(const bsri_call *c, bsri_view_job *job) {
    const int64_t *header = (const int64_t *)job->one.schedule;
    bsr_status status = BSR_OK;
    bsri_lines lines;
    bsri_scratch scratch;
    int64_t i;
    if (header[BSRI_SCHEDULE_GROUP] != 1 && header[BSRI_SCHEDULE_GROUP] != 2 && header[BSRI_SCHEDULE_GROUP] != 4 &&
        header[BSRI_SCHEDULE_GROUP] != 8)
        return bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, BSRI_SCHEDULE_WORD + BSRI_SCHEDULE_GROUP,
                         header[BSRI_SCHEDULE_GROUP]);
    if (header[BSRI_SCHEDULE_TRANSPOSED] != 0 && header[BSRI_SCHEDULE_TRANSPOSED] != 1)
        return bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, BSRI_SCHEDULE_WORD + BSRI_SCHEDULE_TRANSPOSED,
                         header[BSRI_SCHEDULE_TRANSPOSED]);
    BSRI_TRY(
        bsri_schedule_place(c, &job->one, (int)header[BSRI_SCHEDULE_GROUP], (int)header[BSRI_SCHEDULE_TRANSPOSED], &job->view));
    if (header[BSRI_SCHEDULE_GROUPS] != job->view.groups)
        return bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, BSRI_SCHEDULE_WORD + BSRI_SCHEDULE_GROUPS,
                         header[BSRI_SCHEDULE_GROUPS]);
    BSRI_TRY(bsri_lines_make(c, &job->one, (int)header[BSRI_SCHEDULE_TRANSPOSED], &job->view, (int)header[BSRI_SCHEDULE_GROUP],
                             &lines, &scratch));
    for (i = 0; i < job->patterns.count && status == BSR_OK; i++) {
        bsri_item it = bsri_matrix_item(&job->patterns, i, &job->one);
        bsri_lines_load(&lines, &job->one, &it, (int)header[BSRI_SCHEDULE_TRANSPOSED]);
        status = bsri_validate_schedule_one(c, &lines, &job->view, (int)header[BSRI_SCHEDULE_GROUP], i, header);
    }
    if (status == BSR_OK && header[BSRI_SCHEDULE_TALL] != bsri_schedule_tall(header, &job->view))
        status = bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, BSRI_SCHEDULE_WORD + BSRI_SCHEDULE_TALL,
                           header[BSRI_SCHEDULE_TALL]);
    bsri_scratch_end(c, &scratch);
    return status;
}
/* Checking is all that it does: BSR_EXEC_SKIP_CHECKS leaves out only whose device's stream it is. Validating a schedule takes
   scratch. */
BSR_API bsr_status bsr_validate(const bsr_context *ctx, const bsr_matrix *m, const bsr_exec *exec) {
    bsri_call c;
    bsri_view_job job;
    int64_t i;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_VALIDATE, exec));
    if (!m) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_MATRIX, -1, 0);
    BSRI_TRY(bsri_check_matrix(&c, NULL, m, BSR_ARG_MATRIX, BSRI_ANY, m->values ? BSRI_READ : BSRI_PATTERN));
    if (bsri_on_cuda(&c) && (c.flags & BSR_EXEC_CHECK_INDICES)) { /* in the stream, without waiting for it */
        BSRI_TRY(bsri_check_structure(&c, m, BSR_ARG_MATRIX, 1));
        return bsri_plan_simple(&c, &stop);
    }
    BSRI_CUDA_RETURN(&c, bsri_cuda_validate(&c, m));
    BSRI_TRY(bsri_plan_simple(&c, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_check_structure(&c, m, BSR_ARG_MATRIX, 1));
    job.patterns = bsri_patterns(m, &job.one);
    if (m->transposed_index) {
        if (!bsri_transposed_layout(m, &job.view)) return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
        for (i = 0; i < job.patterns.count; i++) BSRI_TRY(bsri_validate_transposed(&c, &job, i));
    }
    return m->schedule ? bsri_validate_schedule(&c, &job) : BSR_OK;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>scatter-indices: builder for bsr_scatter_mm                                                  */
/* ---------------------------------------------------------------------------------------------- */

enum { BSRI_C = 0, BSRI_R = 1, BSRI_P = 2, BSRI_Q = 3 };
typedef struct bsri_scatter_build {
    const bsr_matrix *a;
    int64_t *array[4], have[4], need[4];
    int64_t n, split, rows;
    int32_t format;
} bsri_scatter_build;

static int64_t bsri_scatter_crow(const bsri_scatter_build *b, int64_t r) {
    return bsri_index(b->a->crow_indices, b->a->index_dtype, r);
}
/* Sizes: all products with the operands' extents are checked here, so that filling needs no checks. */
static bsr_status bsri_scatter_sizes(const bsri_call *c, bsri_scatter_build *b) {
    int64_t tiles, ignored;
    int fits = bsri_mul(b->a->nnz, b->split, &b->need[BSRI_Q]) && bsri_mul(b->rows, b->split, &tiles) &&
               bsri_add(tiles, 1, &ignored) && bsri_mul(b->a->rows, b->n, &ignored) && bsri_mul(b->a->cols, b->n, &ignored) &&
               bsri_mul(bsri_block_cols(b->a), b->split, &ignored);
    if (!fits) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_INDICES, -1, 0);
    /* no columns: no output tile. Rows without blocks are listed as well: how many there are, the host can't know when they lie
       on a device */
    b->need[BSRI_R] = b->format == BSR_SCATTER_MM || !b->n ? 0 : tiles;
    b->need[BSRI_C] = b->format == BSR_SCATTER_MM        ? tiles + 1
                      : b->format == BSR_SCATTER_STRIDED ? b->need[BSRI_R] + 1
                                                         : b->rows + 1;
    if (b->format == BSR_SCATTER_STRIDED && !b->n) b->need[BSRI_Q] = 0;
    b->need[BSRI_P] = b->format == BSR_SCATTER_STRIDED_COMPRESSED ? 0 : b->need[BSRI_Q];
    return BSR_OK;
}
static bsr_status bsri_scatter_check_arrays(const bsri_call *c, const bsri_scatter_build *b, bsri_spans *set) {
    const int64_t one = 1;
    int64_t i;
    bsri_span s;
    for (i = 0; i < 4; i++) {
        if (!b->need[i]) continue;
        if (!b->array[i]) return bsri_fail(c, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_INDICES, i, 0);
        if (b->have[i] < b->need[i]) return bsri_fail(c, BSR_ITEM_CAPACITY, BSR_ARG_INDICES, i, b->need[i]);
        BSRI_TRY(bsri_check_pointer(c, b->array[i], 8, BSR_ARG_INDICES));
        if (!bsri_span_make(&s, BSR_ARG_INDICES, b->array[i], 8, 1, &b->need[i], &one))
            return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_INDICES, i, 0);
        BSRI_TRY(bsri_check_overlap(c, set, &s, 0));
        BSRI_TRY(bsri_span_keep(c, set, &s));
    }
    return BSR_OK;
}
/* Products of block row r and column tile t, appended at g; q of column k and tile t is k * step + t * shift. */
static int64_t bsri_scatter_row(const bsri_scatter_build *b, int64_t r, int64_t t, int64_t step, int64_t shift, int64_t g) {
    int64_t p = bsri_scatter_crow(b, r), end = bsri_scatter_crow(b, r + 1);
    for (; p < end; p++, g++) {
        if (b->need[BSRI_P]) b->array[BSRI_P][g] = p;
        b->array[BSRI_Q][g] = bsri_index(b->a->col_indices, b->a->index_dtype, p) * step + t * shift;
    }
    return g;
}
/* order: block rows, longest first. */
static void bsri_scatter_fill(const bsri_scatter_build *b, const int64_t *order) {
    int64_t width = b->n / b->split, step = b->a->block_cols * b->n, i, r, t, g = 0, out = 0;
    int strided = b->format == BSR_SCATTER_STRIDED, tiles = b->format == BSR_SCATTER_MM;
    for (i = 0; i < b->rows && b->need[BSRI_R]; i++)
        for (t = 0; t < b->split; t++) {
            if (strided) b->array[BSRI_C][out] = g, g = bsri_scatter_row(b, order[i], t, step, width, g);
            b->array[BSRI_R][out++] = order[i] * b->a->block_rows * b->n + t * width;
        }
    for (r = 0; r < b->rows && !strided; r++) {
        if (b->format == BSR_SCATTER_STRIDED_COMPRESSED) b->array[BSRI_C][out = r] = bsri_scatter_crow(b, r);
        if (!tiles && bsri_scatter_crow(b, r) == bsri_scatter_crow(b, r + 1)) continue; /* of no columns: maybe 2^62 tiles */
        for (t = 0; t < b->split; t++) {
            if (tiles) b->array[BSRI_C][out++] = g;
            g = bsri_scatter_row(b, r, t, tiles ? b->split : step, tiles ? 1 : width, g);
        }
    }
    b->array[BSRI_C][b->need[BSRI_C] - 1] = b->format == BSR_SCATTER_STRIDED_COMPRESSED ? b->a->nnz : g;
}
static bsr_status bsri_scatter_run(const bsri_call *c, const bsri_scatter_build *b) {
    bsri_cuts cuts = {0, 0};
    bsri_scratch scratch;
    int64_t limit = bsri_min(b->a->nnz, bsri_block_cols(b->a)), r, *length, *order, at[3];
    at[0] = bsri_cut(&cuts, b->rows, 8), at[1] = bsri_cut(&cuts, b->rows, 8), at[2] = bsri_cut(&cuts, limit + 2, 8);
    BSRI_TRY(bsri_cuts_get(c, &cuts, &scratch));
    length = bsri_cut_i64(&scratch, at[0]), order = bsri_cut_i64(&scratch, at[1]);
    for (r = 0; r < b->rows; r++) length[r] = bsri_scatter_crow(b, r + 1) - bsri_scatter_crow(b, r);
    bsri_sort_longest(b->rows, length, limit, bsri_cut_i64(&scratch, at[2]), order);
    bsri_scatter_fill(b, order);
    bsri_scratch_end(c, &scratch);
    return BSR_OK;
}
static bsr_status bsri_check_format(const bsri_call *c, const bsr_scatter_indices *x) {
    if (x->format < BSR_SCATTER_MM || x->format > BSR_SCATTER_STRIDED_COMPRESSED)
        return bsri_fail(c, BSR_ITEM_FORMAT, BSR_ARG_INDICES, -1, x->format);
    return x->reserved ? bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_INDICES, -1, x->reserved) : BSR_OK;
}
static bsr_status bsri_scatter_check(const bsri_call *c, bsri_spans *set, const bsr_matrix *a, int64_t n,
                                     const bsr_scatter_indices *x) {
    int64_t split = x->split_n ? x->split_n : 1;
    int i;
    BSRI_TRY(bsri_check_format(c, x));
    BSRI_TRY(bsri_check_matrix(c, set, a, BSR_ARG_A, BSRI_ANY, BSRI_PATTERN));
    for (i = 0; i < a->batch_dims; i++)
        if (a->batch[i] != 1) return bsri_fail_wanted(c, BSR_ITEM_BATCH_EXTRA, BSR_ARG_A, i, a->batch[i], 1);
    if (n < 0) return bsri_fail(c, BSR_ITEM_SIZE_NEGATIVE, BSR_ARG_B, 1, n);
    if (split < 0 || n % split) return bsri_fail_wanted(c, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, split, n);
    return bsri_check_structure(c, a, BSR_ARG_A, 0);
}
BSR_API bsr_status bsr_build_scatter_indices(const bsr_context *ctx, const bsr_matrix *a, int64_t n, bsr_scatter_indices *indices,
                                             const bsr_exec *exec) {
    bsri_call c;
    bsri_scatter_build b;
    bsri_spans set;
    bsr_scatter_indices *x = indices;
    int stop = 0, count_only;
    set.count = 0;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SCATTER_INDICES, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_PRODUCT, 0));
    if (!x) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_INDICES, -1, 0);
    if (bsri_checking(&c)) BSRI_TRY(bsri_scatter_check(&c, &set, a, n, x));
    memset(&b, 0, sizeof b);
    b.a = a, b.n = n, b.split = x->split_n ? x->split_n : 1, b.rows = bsri_block_rows(a), b.format = x->format;
    b.array[BSRI_C] = x->c_indices, b.array[BSRI_R] = x->r_offsets;
    b.array[BSRI_P] = x->p_indices, b.array[BSRI_Q] = x->q_indices;
    b.have[BSRI_C] = x->c_count, b.have[BSRI_R] = x->r_count, b.have[BSRI_P] = x->p_count, b.have[BSRI_Q] = x->q_count;
    BSRI_TRY(bsri_scatter_sizes(&c, &b));
    count_only = !x->c_indices && !x->r_offsets && !x->p_indices && !x->q_indices;
    if (!count_only) BSRI_TRY(bsri_scatter_check_arrays(&c, &b, &set));
#ifdef BSRI_CUDA
    if (bsri_on_cuda(&c)) {
        BSRI_TRY(bsri_cuda_scatter_indices(&c, &b, count_only, &stop));
    } else
#endif
    {
        BSRI_TRY(bsri_plan_simple(&c, &stop));
        if (!stop && !count_only) BSRI_TRY(bsri_scatter_run(&c, &b));
    }
    if (stop) return BSR_OK;
    x->c_count = b.need[BSRI_C], x->r_count = b.need[BSRI_R], x->p_count = b.need[BSRI_P], x->q_count = b.need[BSRI_Q];
    return BSR_OK;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>layout-masks: blocks that attention layouts keep                                             */
/* ---------------------------------------------------------------------------------------------- */

BSR_API bsr_layout bsr_layout_default(int kind, int64_t heads, int64_t blocks) {
    bsr_layout l;
    memset(&l, 0, sizeof l);
    l.kind = kind, l.heads = heads, l.blocks = blocks;
    l.unidirectional = kind == BSR_LAYOUT_LOCAL_SLIDING_WINDOW;
    l.num_local_blocks = 4, l.num_global_blocks = 1, l.num_different_global_patterns = 1;
    l.num_random_blocks = kind == BSR_LAYOUT_BIGBIRD;
    l.num_sliding_window_blocks = 3;
    return l;
}

#ifndef BSRSPARSE_NO_LAYOUTS
static bsr_status bsri_layout_bad(const bsri_call *c, int64_t field, int64_t value) {
    return bsri_fail(c, BSR_ITEM_LAYOUT_FIELD, BSR_ARG_OPTIONS, field, value);
}
static bsr_status bsri_layout_check_fixed(const bsri_call *c, const bsr_layout *l) {
    if (l->num_local_blocks < 1) return bsri_layout_bad(c, 6, l->num_local_blocks);
    if (l->num_global_blocks < 1 || l->num_local_blocks % l->num_global_blocks)
        return bsri_layout_bad(c, 7, l->num_global_blocks);
    if (l->num_different_global_patterns < 1 || (l->num_different_global_patterns > 1 && !l->different_layout_per_head) ||
        l->num_different_global_patterns > l->num_local_blocks / l->num_global_blocks)
        return bsri_layout_bad(c, 8, l->num_different_global_patterns);
    return BSR_OK;
}
static bsr_status bsri_layout_check_globals(const bsri_call *c, const bsr_layout *l) {
    int64_t i;
    if (l->num_global_indices < 0 || (!l->global_block_indices && l->num_global_indices))
        return bsri_layout_bad(c, 12, l->num_global_indices);
    if (l->global_block_end_indices && !l->global_block_indices) return bsri_layout_bad(c, 13, 0);
    for (i = 0; i < l->num_global_indices; i++) {
        if (l->global_block_indices[i] < 0) return bsri_layout_bad(c, 12, l->global_block_indices[i]);
        if (l->global_block_end_indices && l->global_block_end_indices[i] <= l->global_block_indices[i])
            return bsri_layout_bad(c, 13, l->global_block_end_indices[i]);
    }
    return BSR_OK;
}
static bsr_status bsri_layout_check_windows(const bsri_call *c, const bsr_layout *l) {
    int64_t i;
    if (l->local_window_blocks ? l->num_local_windows < 1 : l->num_local_windows != 0)
        return bsri_layout_bad(c, 11, l->num_local_windows);
    for (i = 0; i < l->num_local_windows; i++)
        if (l->local_window_blocks[i] < 1) return bsri_layout_bad(c, 11, l->local_window_blocks[i]);
    return BSR_OK;
}
static bsr_status bsri_layout_check(const bsri_call *c, const bsr_layout *l) {
    int fixed = l->kind == BSR_LAYOUT_FIXED, variable = l->kind == BSR_LAYOUT_VARIABLE, bigbird = l->kind == BSR_LAYOUT_BIGBIRD;
    int longformer = l->kind == BSR_LAYOUT_BSLONGFORMER, sliding = l->kind == BSR_LAYOUT_LOCAL_SLIDING_WINDOW;
    if (l->kind < BSR_LAYOUT_DENSE || l->kind > BSR_LAYOUT_LOCAL_SLIDING_WINDOW)
        return bsri_fail(c, BSR_ITEM_LAYOUT_KIND, BSR_ARG_OPTIONS, -1, l->kind);
    if (l->unidirectional < 0 || l->unidirectional > 1) return bsri_layout_bad(c, 1, l->unidirectional);
    if (l->heads < 0) return bsri_layout_bad(c, 2, l->heads);
    if (l->blocks < 0) return bsri_layout_bad(c, 3, l->blocks);
    if (l->different_layout_per_head < 0 || l->different_layout_per_head > 1)
        return bsri_layout_bad(c, 4, l->different_layout_per_head);
    if (l->horizontal_global_attention < 0 || l->horizontal_global_attention > 1 ||
        ((fixed || variable) && l->horizontal_global_attention && l->unidirectional))
        return bsri_layout_bad(c, 5, l->horizontal_global_attention);
    if (fixed) BSRI_TRY(bsri_layout_check_fixed(c, l));
    if ((variable || bigbird) && (l->num_random_blocks < 0 || l->num_random_blocks > l->blocks))
        return bsri_layout_bad(c, 9, l->num_random_blocks);
    if ((bigbird || longformer || sliding) && (l->num_sliding_window_blocks < 0 || l->num_sliding_window_blocks > l->blocks))
        return bsri_layout_bad(c, 10, l->num_sliding_window_blocks);
    if (bigbird && (l->num_global_blocks < 0 || l->num_global_blocks > l->blocks))
        return bsri_layout_bad(c, 7, l->num_global_blocks);
    if (variable) BSRI_TRY(bsri_layout_check_windows(c, l));
    return variable || longformer ? bsri_layout_check_globals(c, l) : BSR_OK;
}
/* The mask as an output: no overlap with the lists that are read while it is written. */
static bsr_status bsri_layout_check_mask(const bsri_call *c, const bsr_layout *l, uint8_t *mask, int64_t bytes) {
    const void *list[3];
    int64_t count[3], i;
    const int64_t one = 1;
    bsri_spans set;
    bsri_span s;
    list[0] = l->local_window_blocks, list[1] = l->global_block_indices, list[2] = l->global_block_end_indices;
    count[0] = l->num_local_windows, count[1] = count[2] = l->num_global_indices, set.count = 0;
    for (i = 0; i < 3; i++) {
        if (!list[i] || count[i] <= 0) continue;
        if (!bsri_span_make(&s, BSR_ARG_OPTIONS, list[i], 8, 1, &count[i], &one))
            return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_OPTIONS, i, count[i]);
        BSRI_TRY(bsri_span_keep(c, &set, &s));
    }
    if (bytes) BSRI_TRY(bsri_check_pointer(c, mask, 1, BSR_ARG_MASK));
    if (!bsri_span_make(&s, BSR_ARG_MASK, mask, 1, 1, &bytes, &one))
        return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MASK, -1, bytes);
    BSRI_TRY(bsri_check_overlap(c, &set, &s, 0));
    return bsri_span_keep(c, &set, &s);
}

/* A rectangle of ones, clipped to the head's blocks; below: only columns up to the row. */
static void bsri_layout_box(uint8_t *mask, int64_t n, int64_t row, int64_t row_end, int64_t col, int64_t col_end, int below) {
    int64_t r;
    row = bsri_max(row, 0), col = bsri_max(col, 0), row_end = bsri_min(row_end, n);
    for (r = row; r < row_end; r++) {
        int64_t end = bsri_min(col_end, below ? r + 1 : n);
        if (end > col) memset(mask + r * n + col, 1, (size_t)(end - col));
    }
}
/* Global columns [at, end), seen from row `first` down; rows too if wanted. */
static void bsri_layout_global(uint8_t *mask, int64_t n, int64_t at, int64_t end, int64_t first, int rows) {
    bsri_layout_box(mask, n, first, n, at, end, 0);
    if (rows) bsri_layout_box(mask, n, at, end, 0, n, 0);
}
static void bsri_layout_fixed(const bsr_layout *l, int64_t head, uint8_t *mask) {
    int64_t n = l->blocks, local = l->num_local_blocks, global = l->num_global_blocks, i, take, end = n - n % local;
    int64_t at = local - (1 + head % l->num_different_global_patterns) * global;
    int uni = l->unidirectional, rows = l->horizontal_global_attention;
    for (i = 0; i < n; i += take) take = bsri_min(local, n - i), bsri_layout_box(mask, n, i, i + take, i, i + take, uni);
    for (i = at; i < end; i += local) bsri_layout_global(mask, n, i, i + global, uni ? i : 0, rows);
    if (end == n) return;
    i = bsri_min(end + at, n - global); /* the last window is short */
    bsri_layout_global(mask, n, i, i + global, uni ? i : 0, rows);
}
static void bsri_layout_windows(const bsr_layout *l, uint8_t *mask) {
    int64_t n = l->blocks, at, i, take, size = 4;
    for (at = 0, i = 0; at < n; at += take, i++) {
        if (i < l->num_local_windows) size = l->local_window_blocks[i];
        take = bsri_min(size, n - at);
        bsri_layout_box(mask, n, at, at + take, at, at + take, l->unidirectional);
    }
}
static void bsri_layout_globals(const bsr_layout *l, uint8_t *mask, int from_row, int rows) {
    int64_t n = l->blocks, i, count = l->global_block_indices ? l->num_global_indices : 1;
    for (i = 0; i < count; i++) {
        int64_t at = l->global_block_indices ? l->global_block_indices[i] : 0, end;
        if (at >= n) continue; /* beyond this sequence */
        if (!l->global_block_end_indices) end = at + 1;
        else end = bsri_min(l->global_block_end_indices[i], n);
        bsri_layout_global(mask, n, at, end, from_row ? at : 0, rows);
    }
}
/* num_random_blocks distinct columns of each (still empty) row; where there are fewer, all of them. */
static void bsri_layout_random(const bsr_layout *l, int64_t head, uint8_t *mask, int below) {
    uint64_t state = bsri_rng_seed(l->seed, head);
    int64_t n = l->blocks, r, j;
    for (r = 0; r < n; r++) {
        int64_t among = below ? r + 1 : n;
        for (j = among - bsri_min(among, l->num_random_blocks); j < among; j++) {
            int64_t t = bsri_rng_below(&state, j + 1);
            mask[r * n + (mask[r * n + t] ? j : t)] = 1;
        }
    }
}
static void bsri_layout_sliding(const bsr_layout *l, uint8_t *mask, int below) {
    int64_t n = l->blocks, r, w = l->num_sliding_window_blocks / 2;
    for (r = 0; r < n; r++) bsri_layout_box(mask, n, r, r + 1, r - w, r + w + 1, below);
}
typedef struct bsri_layout_job {
    const bsr_layout *layout;
    uint8_t *mask;
} bsri_layout_job;
static void bsri_layout_head(void *arg, int64_t head) {
    const bsri_layout_job *job = (const bsri_layout_job *)arg;
    const bsr_layout *l = job->layout;
    int64_t n = l->blocks, r;
    uint8_t *mask = job->mask + head * n * n;
    int uni = l->unidirectional;
    if (n) memset(mask, l->kind == BSR_LAYOUT_DENSE, (size_t)(n * n));
    if (l->kind == BSR_LAYOUT_FIXED) bsri_layout_fixed(l, head, mask);
    if (l->kind == BSR_LAYOUT_LOCAL_SLIDING_WINDOW) bsri_layout_sliding(l, mask, uni);
    if (l->kind == BSR_LAYOUT_VARIABLE) {
        bsri_layout_random(l, head, mask, 0);
        bsri_layout_windows(l, mask);
        bsri_layout_globals(l, mask, uni, l->horizontal_global_attention);
    }
    if (l->kind == BSR_LAYOUT_BIGBIRD) {
        bsri_layout_random(l, head, mask, uni);
        bsri_layout_sliding(l, mask, 0);
        bsri_layout_global(mask, n, 0, l->num_global_blocks, 0, 1);
    }
    if (l->kind == BSR_LAYOUT_BSLONGFORMER) {
        bsri_layout_sliding(l, mask, 0);
        bsri_layout_globals(l, mask, 0, 1);
    }
    if (uni && (l->kind == BSR_LAYOUT_BIGBIRD || l->kind == BSR_LAYOUT_BSLONGFORMER))
        for (r = 0; r < n; r++) memset(mask + r * n + r + 1, 0, (size_t)(n - r - 1));
}
#endif

BSR_API bsr_status bsr_layout_mask(const bsr_context *ctx, const bsr_layout *layout, uint8_t *mask, const bsr_exec *exec) {
    bsri_call c;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_LAYOUT, exec));
#ifdef BSRSPARSE_NO_LAYOUTS
    (void)layout, (void)mask;
    return bsri_fail(&c, BSR_ITEM_NOT_COMPILED, BSR_ARG_NONE, -1, BSR_OP_LAYOUT);
#else
    {
        bsri_layout_job job;
        int64_t area, bytes, i;
        int stop;
        if (!layout) return bsri_fail(&c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OPTIONS, -1, 0);
        if (bsri_checking(&c)) BSRI_TRY(bsri_layout_check(&c, layout));
        if (!bsri_mul(layout->blocks, layout->blocks, &area) || !bsri_mul(area, layout->heads, &bytes))
            return bsri_fail(&c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_OPTIONS, -1, 0);
        if (bytes && !mask) return bsri_fail(&c, BSR_ITEM_OUTPUT_NULL, BSR_ARG_MASK, -1, 0);
        if (bsri_checking(&c)) BSRI_TRY(bsri_layout_check_mask(&c, layout, mask, bytes));
        BSRI_CUDA_RETURN(&c, bsri_cuda_layout(&c, layout, mask, area, bytes));
        BSRI_TRY(bsri_plan_simple(&c, &stop));
        if (stop || !bytes) return BSR_OK;
        job.layout = layout, job.mask = mask;
        bsri_parallel(ctx, layout->different_layout_per_head ? layout->heads : 1, bsri_layout_head, &job);
        for (i = 1; i < layout->heads && !layout->different_layout_per_head; i++) memcpy(mask + i * area, mask, (size_t)area);
        return BSR_OK;
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>readers: numbers, Matrix Market, DLMC                                                        */
/* ---------------------------------------------------------------------------------------------- */

BSRI_UNUSED static void bsri_clear_error(bsr_error *error) {
    if (!error) return;
    memset(error, 0, sizeof *error);
    error->index = error->wanted = -1;
}

#ifndef BSRSPARSE_NO_IO
/* A position in text that need not be terminated, and the first thing found wrong with it. */
typedef struct bsri_reader {
    const char *p, *end;
    int64_t line; /* from 1 */
    int item;     /* bsr_item, or 0 */
    int64_t value;
    char blank; /* a further separator beside space, tab and carriage return */
} bsri_reader;

static int bsri_read_bad(bsri_reader *t, int item, int64_t value) { /* always 0 */
    if (!t->item) t->item = item, t->value = value;
    return 0;
}
static int bsri_is_blank(const bsri_reader *t, char ch) { return ch == ' ' || ch == '\t' || ch == '\r' || ch == t->blank; }
/* Goes to the next token of the line; 0: there is none. */
static int bsri_read_token(bsri_reader *t) {
    while (t->p < t->end && bsri_is_blank(t, *t->p)) t->p++;
    return t->p < t->end && *t->p != '\n';
}
static int bsri_read_at_break(const bsri_reader *t) { return t->p >= t->end || *t->p == '\n' || bsri_is_blank(t, *t->p); }
/* Ends a line: nothing else may stand there. */
static int bsri_read_line_end(bsri_reader *t) {
    if (bsri_read_token(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_EXTRA, 0);
    if (t->p < t->end) t->p++, t->line++;
    return 1;
}
/* From the start of a line to the first token that is no comment ('%'; 0: none allowed); 0: the text is at its end. */
static int bsri_read_line(bsri_reader *t, char comment) {
    while (t->p < t->end) {
        if (bsri_read_token(t) && !(comment && *t->p == comment)) return 1;
        while (t->p < t->end && *t->p != '\n') t->p++;
        if (t->p < t->end) t->p++, t->line++;
    }
    return 0;
}
/* The next token, if it is this word in whatever case. */
static int bsri_read_word(bsri_reader *t, const char *word) {
    bsri_reader was = *t;
    if (!bsri_read_token(t)) return 0;
    for (; *word; word++, t->p++) {
        int ch = t->p < t->end ? *t->p : 0;
        if (ch >= 'A' && ch <= 'Z') ch += 'a' - 'A';
        if (ch != *word) break;
    }
    if (!*word && bsri_read_at_break(t)) return 1;
    *t = was;
    return 0;
}
/* A whole number in [low, high] of the same line. */
static int bsri_read_int(bsri_reader *t, int64_t low, int64_t high, int64_t *out) {
    int negative = 0, digits = 0;
    int64_t v = 0;
    if (!bsri_read_token(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_NUMBER, 0);
    if (*t->p == '-' || *t->p == '+') negative = *t->p++ == '-';
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++, digits = 1)
        v = v > (INT64_MAX - 9) / 10 ? INT64_MAX - 9 : v * 10 + (*t->p - '0'); /* stays at the top once there */
    if (!digits || !bsri_read_at_break(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_NUMBER, 0);
    if (negative) v = -v;
    if (v < low || v > high) return bsri_read_bad(t, BSR_ITEM_PARSE_RANGE, v);
    *out = v;
    return 1;
}

/* Exact decimal to binary: big integers of 32-bit words, least significant first. */
/* Significant digits that count; what follows is only "a bit more". A number half way between two of f64 has 767 at most, so
   that no further digit can move another number to its other side. */
#define BSRI_DIGITS 770
#define BSRI_BIG 208 /* words: all digits, and 80 + 10/3 of the 330 + 771 places that division takes off */
typedef struct bsri_big {
    uint32_t word[BSRI_BIG];
    int n;
} bsri_big;
static void bsri_big_mul_add(bsri_big *b, uint32_t factor, uint32_t add) {
    uint64_t carry = add;
    int i;
    for (i = 0; i < b->n; i++) carry += (uint64_t)b->word[i] * factor, b->word[i] = (uint32_t)carry, carry >>= 32;
    BSRSPARSE_ASSERT(!carry || b->n < BSRI_BIG);
    if (carry && b->n < BSRI_BIG) b->word[b->n++] = (uint32_t)carry;
}
static uint32_t bsri_big_div(bsri_big *b, uint32_t by) { /* the remainder */
    uint64_t rest = 0;
    int i;
    for (i = b->n - 1; i >= 0; i--) rest = rest << 32 | b->word[i], b->word[i] = (uint32_t)(rest / by), rest %= by;
    while (b->n && !b->word[b->n - 1]) b->n--;
    return (uint32_t)rest;
}
/* b * 2^-shift, plus a bit if sticky, to nearest, ties to even. */
static double bsri_big_round(const bsri_big *b, int shift, int sticky) {
    int64_t bits = (int64_t)b->n * 32, keep, i;
    uint64_t mantissa = 0, half = 0;
    if (!b->n) return 0;
    while (!(b->word[b->n - 1] >> ((bits - 1) % 32) & 1u)) bits--;
    keep = bsri_min(53, bits - shift + 1074); /* fewer below the normal range */
    if (keep < 0) return 0;
    for (i = bits - 1; i >= 0; i--) {
        uint32_t bit = b->word[i / 32] >> (i % 32) & 1u;
        if (i >= bits - keep) mantissa = mantissa << 1 | bit;
        else if (i == bits - keep - 1) half = bit;
        else sticky |= (int)bit;
    }
    if (bits < keep) return ldexp((double)mantissa, -shift); /* short and exact: sticky implies many bits */
    if (half && (sticky || (mantissa & 1u))) mantissa++;
    return ldexp((double)mantissa, (int)(bits - keep) - shift);
}
/* Is a quotient of doubles rounded once? x87 rounds it to more bits first. */
#if !defined(__FLT_EVAL_METHOD__) || __FLT_EVAL_METHOD__ == 0 || __FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 16
#define BSRI_EXACT_DOUBLES 1
#else
#define BSRI_EXACT_DOUBLES 0
#endif
static double bsri_decimal(const char *digit, int count, int exponent) { /* 0.d1d2d3... x 10^exponent */
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    int i, shift = 0, sticky = 0, scale = exponent - count;
    uint64_t small = 0;
    bsri_big b;
    if (!count || exponent < -330) return 0;
    if (exponent > 310) return (double)INFINITY;
    if (BSRI_EXACT_DOUBLES && count <= 15 && scale >= -22 && scale <= 22) { /* both factors are exact, so one rounding */
        for (i = 0; i < count; i++) small = small * 10 + (uint64_t)(digit[i] - '0');
        return scale < 0 ? (double)small / power[-scale] : (double)small * power[scale];
    }
    b.n = 0;
    for (i = 0; i < count;) { /* nine at a time */
        uint32_t part = 0, ten = 1;
        for (; i < count && ten < 1000000000u; i++) part = part * 10 + (uint32_t)(digit[i] - '0'), ten *= 10;
        bsri_big_mul_add(&b, ten, part);
    }
    for (; scale > 0; scale -= i) i = scale < 9 ? scale : 9, bsri_big_mul_add(&b, (uint32_t)power[i], 0);
    if (scale < 0) { /* enough bits in front that the quotient has more than 64 */
        shift = 80 + (-scale * 10 + 2) / 3;
        for (i = 0; i < shift; i += 16) bsri_big_mul_add(&b, 1u << (shift - i < 16 ? shift - i : 16), 0);
        for (; scale < 0; scale += i) i = -scale < 9 ? -scale : 9, sticky |= bsri_big_div(&b, (uint32_t)power[i]) != 0;
    }
    return bsri_big_round(&b, shift, sticky);
}
/* A decimal number, "inf" or "nan" of the same line; no locale, no terminator. */
static int bsri_read_double(bsri_reader *t, double *out) {
    char digit[BSRI_DIGITS + 1];
    int negative = 0, count = 0, any = 0, point = 0, more = 0;
    int64_t exponent = 0, e = 0;
    if (!bsri_read_token(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_NUMBER, 0);
    if (*t->p == '-' || *t->p == '+') negative = *t->p++ == '-';
    if (t->p < t->end && (*t->p == 'n' || *t->p == 'N' || *t->p == 'i' || *t->p == 'I')) {
        if (bsri_read_word(t, "nan")) *out = (double)NAN;
        else if (bsri_read_word(t, "inf") || bsri_read_word(t, "infinity")) *out = (double)INFINITY;
        else return bsri_read_bad(t, BSR_ITEM_PARSE_NUMBER, 0);
        if (negative) *out = -*out;
        return 1;
    }
    for (; t->p < t->end && ((*t->p >= '0' && *t->p <= '9') || (*t->p == '.' && !point)); t->p++) {
        if (*t->p == '.') {
            point = 1;
            continue;
        }
        any = 1;
        if (!count && *t->p == '0') {
            exponent -= point;
            continue;
        }
        exponent += !point;
        if (count < BSRI_DIGITS) digit[count++] = *t->p;
        else more |= *t->p != '0';
    }
    if (more) digit[count++] = '1';
    if (any && t->p < t->end && (*t->p == 'e' || *t->p == 'E' || *t->p == 'd' || *t->p == 'D')) {
        t->p++;
        if (t->p < t->end && bsri_is_blank(t, *t->p)) any = 0; /* the exponent must stand there */
        else if (!bsri_read_int(t, -INT64_MAX, INT64_MAX, &e)) return 0;
    }
    if (!any || !bsri_read_at_break(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_NUMBER, 0);
    e = exponent + bsri_max(-(INT64_C(1) << 62), bsri_min(INT64_C(1) << 62, e)); /* exponent: no more than there are bytes */
    *out = bsri_decimal(digit, count, (int)bsri_max(-4000, bsri_min(4000, e)));
    if (negative) *out = -*out;
    return 1;
}

/* The header of a Matrix Market file: what its entries look like. */
typedef struct bsri_market {
    bsr_file_info info;
    int array;
} bsri_market;
static int bsri_market_header(bsri_reader *t, bsri_market *h) {
    memset(h, 0, sizeof *h);
    if (!bsri_read_word(t, "%%matrixmarket")) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    if (bsri_read_word(t, "vector")) return bsri_read_bad(t, BSR_ITEM_PARSE_KIND, 0);
    if (!bsri_read_word(t, "matrix")) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    h->array = bsri_read_word(t, "array");
    if (!h->array && !bsri_read_word(t, "coordinate")) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    if (bsri_read_word(t, "complex")) return bsri_read_bad(t, BSR_ITEM_PARSE_KIND, 0);
    h->info.has_values = !bsri_read_word(t, "pattern");
    if (h->array && !h->info.has_values) return bsri_read_bad(t, BSR_ITEM_PARSE_KIND, 0);
    if (h->info.has_values && !bsri_read_word(t, "real") && !bsri_read_word(t, "double") && !bsri_read_word(t, "integer") &&
        !bsri_read_word(t, "unsigned-integer"))
        return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    if (bsri_read_word(t, "hermitian")) return bsri_read_bad(t, BSR_ITEM_PARSE_KIND, 0);
    if (bsri_read_word(t, "symmetric")) h->info.symmetric = 1;
    else if (bsri_read_word(t, "skew-symmetric")) h->info.symmetric = 2;
    else if (!bsri_read_word(t, "general")) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    if (bsri_read_token(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    return bsri_read_line_end(t);
}
static int bsri_market_sizes(bsri_reader *t, bsri_market *h) {
    bsr_file_info *f = &h->info;
    int64_t top = INT64_MAX - 9, line; /* where whole numbers stop being told apart */
    if (!bsri_read_line(t, '%')) return bsri_read_bad(t, BSR_ITEM_PARSE_SHORT, 0);
    line = t->line;
    if (!bsri_read_int(t, 0, top - 1, &f->rows) || !bsri_read_int(t, 0, top - 1, &f->cols)) return 0;
    if (f->symmetric && f->rows != f->cols) return bsri_read_bad(t, BSR_ITEM_PARSE_RANGE, f->cols);
    if (!h->array && !bsri_read_int(t, 0, top - 1, &f->stored)) return 0;
    if (!bsri_read_line_end(t)) return 0;
    if (!h->array) return 1;
    if (!bsri_mul(f->rows, f->cols, &f->stored)) return t->line = line, bsri_read_bad(t, BSR_ITEM_PARSE_RANGE, f->cols);
    if (f->symmetric) f->stored = (f->stored - f->rows) / 2 + (f->symmetric == 1 ? f->rows : 0);
    return 1;
}
/* All entries: checked and counted, and written where row is given. */
static int bsri_market_entries(bsri_reader *t, bsri_market *h, int64_t *row, int64_t *col, double *values) {
    const bsr_file_info *f = &h->info;
    int64_t k, n = 0, i = 0, j = 0, copies;
    if (f->symmetric == 2) i = 1;
    for (k = 0; k < f->stored; k++) {
        double v = 1;
        if (!bsri_read_line(t, '%')) return bsri_read_bad(t, BSR_ITEM_PARSE_SHORT, f->stored - k);
        if (!h->array) {
            if (!bsri_read_int(t, 1, f->rows, &i) || !bsri_read_int(t, 1, f->cols, &j)) return 0;
            i--, j--;
            if (f->symmetric == 2 && i == j) return bsri_read_bad(t, BSR_ITEM_PARSE_RANGE, j + 1); /* it is its own negative */
        }
        if (f->has_values && !bsri_read_double(t, &v)) return 0;
        if (!bsri_read_line_end(t)) return 0;
        for (copies = f->symmetric && i != j ? 2 : 1; copies > 0; copies--, n++) {
            int other = copies == 1 && f->symmetric && i != j;
            if (row) row[n] = other ? j : i, col[n] = other ? i : j;
            if (values) values[n] = other && f->symmetric == 2 ? -v : v;
        }
        if (h->array && ++i == f->rows) j++, i = f->symmetric ? j + (f->symmetric == 2) : 0; /* column by column */
    }
    h->info.entries = n;
    return bsri_read_line(t, '%') ? bsri_read_bad(t, BSR_ITEM_PARSE_EXTRA, 0) : 1;
}

/* DLMC: three lines. Writes where crow is given. */
static int bsri_smtx_list(bsri_reader *t, int64_t count, int64_t low, int64_t high, int ascending, int64_t *out) {
    int64_t k, v = low;
    for (k = 0; k < count; k++) {
        if (!bsri_read_token(t)) return bsri_read_bad(t, BSR_ITEM_PARSE_SHORT, count - k);
        if (!bsri_read_int(t, ascending ? v : low, ascending && k == 0 ? low : high, &v)) return 0;
        if (ascending && k == count - 1 && v != high) return bsri_read_bad(t, BSR_ITEM_PARSE_RANGE, v);
        if (out) out[k] = v;
    }
    return bsri_read_line_end(t);
}
static int bsri_smtx(bsri_reader *t, bsr_file_info *f, int64_t *crow, int64_t *col) {
    int64_t top = INT64_MAX - 10;
    memset(f, 0, sizeof *f);
    if (!bsri_read_line(t, 0)) return bsri_read_bad(t, BSR_ITEM_PARSE_HEADER, 0);
    if (!bsri_read_int(t, 0, top, &f->rows) || !bsri_read_int(t, 0, top, &f->cols)) return 0;
    if (!bsri_read_int(t, 0, top, &f->stored)) return 0;
    if (!bsri_read_line_end(t)) return 0;
    f->entries = f->stored;
    if (!bsri_read_line(t, 0)) return bsri_read_bad(t, BSR_ITEM_PARSE_SHORT, f->rows + 1);
    if (!bsri_smtx_list(t, f->rows + 1, 0, f->stored, 1, crow)) return 0;
    if (f->stored && !bsri_read_line(t, 0)) return bsri_read_bad(t, BSR_ITEM_PARSE_SHORT, f->stored);
    if (f->stored && !bsri_smtx_list(t, f->stored, 0, f->cols - 1, 0, col)) return 0;
    return bsri_read_line(t, 0) ? bsri_read_bad(t, BSR_ITEM_PARSE_EXTRA, 0) : 1;
}

static bsr_status bsri_parse_fail(bsr_error *error, int item, int operand, int64_t index, int64_t value) {
    bsri_record(NULL, error, item, operand, index, value);
    return bsri_items[item].status;
}
/* What both readers ask of their arguments. */
static bsr_status bsri_parse_begin(bsri_reader *t, const char *text, size_t bytes, const bsr_file_info *info, bsr_error *error) {
    memset(t, 0, sizeof *t);
    bsri_clear_error(error);
    if (!text && bytes) return bsri_parse_fail(error, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_TEXT, -1, 0);
    if (!info) return bsri_parse_fail(error, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    if (!text) text = "";
    t->p = text, t->end = text + bytes, t->line = 1, t->blank = ' ';
    return BSR_OK;
}
#endif

/* Reads the text twice: once to check and count, then, if the arrays hold it, to write. */
BSR_API bsr_status bsr_parse_matrix_market(const char *text, size_t bytes, bsr_file_info *info, int64_t *row, int64_t *col,
                                           double *values, int64_t capacity, bsr_error *error) {
#ifdef BSRSPARSE_NO_IO
    (void)text, (void)bytes, (void)info, (void)row, (void)col, (void)values, (void)capacity;
    bsri_record(NULL, error, BSR_ITEM_NOT_COMPILED, BSR_ARG_NONE, -1, BSR_OP_PARSE);
    return BSR_UNSUPPORTED;
#else
    bsri_reader t, body;
    bsri_market h;
    BSRI_TRY(bsri_parse_begin(&t, text, bytes, info, error));
    if (!row != !col || (values && !row)) return bsri_parse_fail(error, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    body = t;
    if (bsri_market_header(&t, &h) && bsri_market_sizes(&t, &h)) body = t, bsri_market_entries(&t, &h, NULL, NULL, NULL);
    if (t.item) return bsri_parse_fail(error, t.item, BSR_ARG_TEXT, t.line, t.value);
    if (row && capacity < h.info.entries) return bsri_parse_fail(error, BSR_ITEM_CAPACITY, BSR_ARG_OUT, -1, h.info.entries);
    if (row) bsri_market_entries(&body, &h, row, col, values);
    *info = h.info;
    return BSR_OK;
#endif
}
BSR_API bsr_status bsr_parse_smtx(const char *text, size_t bytes, bsr_file_info *info, int64_t *crow, int64_t *col,
                                  int64_t capacity, bsr_error *error) {
#ifdef BSRSPARSE_NO_IO
    (void)text, (void)bytes, (void)info, (void)crow, (void)col, (void)capacity;
    bsri_record(NULL, error, BSR_ITEM_NOT_COMPILED, BSR_ARG_NONE, -1, BSR_OP_PARSE);
    return BSR_UNSUPPORTED;
#else
    bsri_reader t, again;
    bsr_file_info f;
    BSRI_TRY(bsri_parse_begin(&t, text, bytes, info, error));
    t.blank = ',', again = t;
    bsri_smtx(&t, &f, NULL, NULL);
    if (t.item) return bsri_parse_fail(error, t.item, BSR_ARG_TEXT, t.line, t.value);
    if (!crow != !col && (col || f.stored)) return bsri_parse_fail(error, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    if (crow && capacity < f.stored) return bsri_parse_fail(error, BSR_ITEM_CAPACITY, BSR_ARG_OUT, -1, f.stored);
    if (crow) bsri_smtx(&again, &f, crow, col);
    *info = f;
    return BSR_OK;
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>tables: tuned rows: order, changes, text, lookup                                             */
/* ---------------------------------------------------------------------------------------------- */

/* A row is BSRI_ROW_FIELDS numbers, of which the first BSRI_ROW_KEY are its key and BSRI_ROW_EXACT those that a lookup never
   bends: rows are sorted by them, so that what may serve a call stands together. */
enum {
    BSRI_TUNE_FORMAT_IS = 1,
    BSRI_ROW_FIELDS = 19,
    BSRI_ROW_KEY = 12,
    BSRI_ROW_N = 10,
    BSRI_ROW_DENSITY = 11,
    BSRI_TUNE_LIST = 16
};
static const char *const bsri_tuned_names[BSRI_ROW_FIELDS] = {
    "gpu", "op",      "dtype",  "out",       "block rows", "block cols", "beta",   "alpha", "m",   "k",
    "n",   "density", "kernel", "tile rows", "tile cols",  "split",      "stages", "order", "gain"};
static void bsri_tuned_get(const bsr_tune_row *r, int32_t *f) { memcpy(f, r, BSRI_ROW_FIELDS * sizeof *f); }
static bsr_tune_row bsri_tuned_set(const int32_t *f) {
    bsr_tune_row r;
    memcpy(&r, f, sizeof r);
    return r;
}
/* A row is its fields and nothing else. */
typedef char bsri_row_is_its_fields[sizeof(bsr_tune_row) == BSRI_ROW_FIELDS * sizeof(int32_t) ? 1 : -1];
/* The first n fields in lexicographic order: a row is numbers of one type, in the order of the key. (Every lookup comes here.) */
static int bsri_tuned_compare(const bsr_tune_row *a, const bsr_tune_row *b, int n) {
    const int32_t *x = (const int32_t *)(const void *)a, *y = (const int32_t *)(const void *)b;
    int i;
    for (i = 0; i < n; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}
/* The first row that is not before r, by the first n fields. */
static int32_t bsri_tuned_find(const bsr_tune_table *t, const bsr_tune_row *r, int n) {
    int32_t low = 0, high = t->row_count;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (bsri_tuned_compare(&t->rows[mid], r, n) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* The field that no row can have, or -1. */
static int bsri_tuned_wrong(const int32_t *f) {
    int i, set = 0;
    for (i = 12; i < 18; i++) set |= f[i];
    if (f[1] < 1 || f[1] >= BSR_OP_CREATE) return 1;
    if (!bsr_dtype_size(f[2])) return 2;
    if (!bsr_dtype_size(f[3])) return 3;
    for (i = 4; i < 6; i++)
        if (f[i] < 1 || f[i] > 1 << 20) return i;
    for (i = 6; i < 8; i++)
        if (f[i] < 0 || f[i] > 2) return i;
    for (i = 8; i < 11; i++)
        if (f[i] < 0) return i;
    if (f[11] < 0 || f[11] > 100) return 11;
    for (i = 12; i < 18; i++)
        if (f[i] < 0 || f[i] > 1 << 20) return i;
    if (f[12] > 3) return 12;
    if (f[18] < -1000 || f[18] > 1000) return 18;
    return set ? -1 : 12;
}
/* Plain text that stands in a C string as it is and ends no comment. */
static int bsri_text_wrong(const char *s, size_t size) {
    size_t i;
    for (i = 0; i < size && s[i]; i++)
        if (s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' || s[i] == '?') return 1;
    return i == size;
}
static int bsri_gpu_wrong(const bsr_tune_gpu *g) {
    if (bsri_text_wrong(g->name, sizeof g->name) || !g->name[0] || g->arch < 0 || g->units < 0) return 1;
    return bsri_text_wrong(g->made, sizeof g->made) || bsri_text_wrong(g->sources, sizeof g->sources);
}
static int bsri_gpu_same(const bsr_tune_gpu *a, const bsr_tune_gpu *b) {
    return a->arch == b->arch && a->units == b->units && !strcmp(a->name, b->name);
}
static int32_t bsri_gpu_find(const bsr_tune_table *t, const bsr_tune_gpu *g) {
    int32_t i;
    for (i = 0; i < t->gpu_count && !bsri_gpu_same(&t->gpus[i], g); i++) {
    }
    return i;
}
static bsr_status bsri_tune_fail_at(bsr_error *error, int item, int operand, int64_t index, int64_t value) {
    bsri_record(NULL, error, item, operand, index, value);
    return bsri_items[item].status;
}
static bsr_status bsri_tune_fail(bsr_error *error, int item, int64_t index, int64_t value) {
    return bsri_tune_fail_at(error, item, BSR_ARG_TABLE, index, value);
}
static int bsri_table_valid(const bsr_tune_table *t) {
    if (!t || t->gpu_count < 0 || t->row_count < 0) return 0;
    return (t->gpus || (!t->gpu_count && t->gpu_capacity <= 0)) && (t->rows || (!t->row_count && t->row_capacity <= 0));
}

/* The one place that changes a table: the row is legal, there is room. */
static void bsri_tuned_put(bsr_tune_table *t, const bsr_tune_gpu *g, const bsr_tune_row *row) {
    bsr_tune_row r = *row;
    int32_t at;
    r.gpu = bsri_gpu_find(t, g);
    if (r.gpu == t->gpu_count) t->gpus[t->gpu_count++] = *g;
    else if (g->made[0]) t->gpus[r.gpu] = *g; /* the newer provenance */
    at = bsri_tuned_find(t, &r, BSRI_ROW_KEY);
    if (at == t->row_count || bsri_tuned_compare(&t->rows[at], &r, BSRI_ROW_KEY)) {
        memmove(t->rows + at + 1, t->rows + at, (size_t)(t->row_count - at) * sizeof r);
        t->row_count++;
    }
    t->rows[at] = r;
}
/* Is there room for what another table adds? */
static bsr_status bsri_tune_room(const bsr_tune_table *t, const bsr_tune_table *more, bsr_error *error) {
    int64_t gpus = t->gpu_count, rows = t->row_count;
    int32_t i;
    for (i = 0; i < more->gpu_count; i++) gpus += bsri_gpu_find(t, &more->gpus[i]) == t->gpu_count;
    for (i = 0; i < more->row_count; i++) {
        bsr_tune_row r = more->rows[i];
        int32_t at;
        r.gpu = bsri_gpu_find(t, &more->gpus[r.gpu]);
        at = bsri_tuned_find(t, &r, BSRI_ROW_KEY);
        rows += at == t->row_count || bsri_tuned_compare(&t->rows[at], &r, BSRI_ROW_KEY);
    }
    if (gpus > t->gpu_capacity || rows > t->row_capacity) return bsri_tune_fail(error, BSR_ITEM_TUNE_CAPACITY, gpus, rows);
    return BSR_OK;
}
BSR_API bsr_status bsr_tune_merge(bsr_tune_table *table, const bsr_tune_table *more, bsr_error *error) {
    int32_t f[BSRI_ROW_FIELDS], i;
    bsri_clear_error(error);
    if (!bsri_table_valid(table) || !bsri_table_valid(more)) return bsri_tune_fail(error, BSR_ITEM_ARGUMENT_NULL, -1, 0);
    for (i = 0; i < more->gpu_count; i++)
        if (bsri_gpu_wrong(&more->gpus[i])) return bsri_tune_fail(error, BSR_ITEM_TUNE_GPU, i, 0);
    for (i = 0; i < more->row_count; i++) {
        int wrong;
        bsri_tuned_get(&more->rows[i], f), wrong = f[0] < 0 || f[0] >= more->gpu_count ? 0 : bsri_tuned_wrong(f);
        if (wrong >= 0) return bsri_tune_fail(error, BSR_ITEM_TUNE_ROW, wrong, f[wrong]);
    }
    BSRI_TRY(bsri_tune_room(table, more, error));
    for (i = 0; i < more->row_count; i++) bsri_tuned_put(table, &more->gpus[more->rows[i].gpu], &more->rows[i]);
    return BSR_OK;
}
BSR_API bsr_status bsr_tune_update(bsr_tune_table *table, const bsr_tune_gpu *gpu, const bsr_tune_row *row, bsr_error *error) {
    bsr_tune_table one;
    bsr_tune_gpu g;
    bsr_tune_row r;
    bsri_clear_error(error);
    if (!gpu || !row) return bsri_tune_fail(error, BSR_ITEM_ARGUMENT_NULL, -1, 0);
    g = *gpu, r = *row, r.gpu = 0;
    one.gpus = &g, one.rows = &r, one.gpu_count = one.gpu_capacity = one.row_count = one.row_capacity = 1;
    return bsr_tune_merge(table, &one, error);
}

#if defined(BSRI_TUNE_ROWS) && BSRI_TUNE_ROWS > 0
#if BSRI_TUNE_FORMAT != 1
#error "bsrsparse: the tuned table was made by another version; define BSRSPARSE_NO_TUNE_TABLE or make it again (make tune)"
#endif
BSR_API bsr_tune_table bsr_tune_built_in(void) { /* its capacities are 0: nothing is ever written to it */
    bsr_tune_table t;
    memset(&t, 0, sizeof t);
    t.gpus = (bsr_tune_gpu *)(uintptr_t)bsri_tune_gpus, t.rows = (bsr_tune_row *)(uintptr_t)bsri_tune_rows;
    t.gpu_count = (int32_t)BSRI_COUNT(bsri_tune_gpus), t.row_count = (int32_t)BSRI_COUNT(bsri_tune_rows);
    return t;
}
#else
BSR_API bsr_tune_table bsr_tune_built_in(void) {
    bsr_tune_table t;
    memset(&t, 0, sizeof t);
    return t;
}
#endif

/* --- text --- */
static uint32_t bsri_check_sum(uint32_t sum, int64_t x) { /* FNV-1a over eight bytes */
    const uint64_t u = (uint64_t)x;
    int i;
    for (i = 0; i < 64; i += 8) sum = (sum ^ (uint32_t)(u >> i & 255)) * 16777619u;
    return sum;
}
static uint32_t bsri_check_text(uint32_t sum, const char *s) {
    for (; *s; s++) sum = bsri_check_sum(sum, *s);
    return bsri_check_sum(sum, 0);
}
static uint32_t bsri_gpu_check(uint32_t sum, const bsr_tune_gpu *g) {
    sum = bsri_check_text(bsri_check_text(bsri_check_text(sum, g->name), g->made), g->sources);
    return bsri_check_sum(bsri_check_sum(sum, g->arch), g->units);
}
static uint32_t bsri_tuned_check(uint32_t sum, const int32_t *f) {
    int i;
    for (i = 0; i < BSRI_ROW_FIELDS; i++) sum = bsri_check_sum(sum, f[i]);
    return sum;
}
#define BSRI_TUNE_SEED 2166136261u
static void bsri_put_line(bsri_text *t, const char *s) { bsri_put(t, s), bsri_put(t, "\n"); }
static uint32_t bsri_put_rows(bsri_text *t, const bsr_tune_table *table) {
    uint32_t sum = BSRI_TUNE_SEED;
    int32_t i, j, f[BSRI_ROW_FIELDS];
    bsri_put_line(t, "static const bsr_tune_gpu bsri_tune_gpus[] = { /* name, architecture, multiprocessors, made with */");
    for (i = 0; i < table->gpu_count; i++) {
        const bsr_tune_gpu *g = &table->gpus[i];
        bsri_put(t, "    {\""), bsri_put(t, g->name), bsri_put(t, "\", "), bsri_put_int(t, g->arch), bsri_put(t, ", ");
        bsri_put_int(t, g->units), bsri_put(t, ",\n     \""), bsri_put(t, g->made), bsri_put(t, "\",\n     \"");
        bsri_put(t, g->sources), bsri_put(t, "\"},\n");
        sum = bsri_gpu_check(sum, g);
    }
    bsri_put(t, "};\nstatic const bsr_tune_row bsri_tune_rows[] = {");
    for (j = 0; j < BSRI_ROW_FIELDS; j++)
        bsri_put(t, j == 0 ? "\n    /* " : j == BSRI_ROW_KEY ? ": */\n    /* " : ", "), bsri_put(t, bsri_tuned_names[j]);
    bsri_put_line(t, " */");
    for (i = 0; i < table->row_count; i++) {
        bsri_tuned_get(&table->rows[i], f);
        for (j = 0; j < BSRI_ROW_FIELDS; j++) bsri_put(t, j ? "," : "    {"), bsri_put_int(t, f[j]);
        bsri_put_line(t, "},");
        sum = bsri_tuned_check(sum, f);
    }
    bsri_put_line(t, "};");
    return sum;
}
BSR_API bsr_status bsr_tune_export(const bsr_tune_table *table, char *text, size_t size, size_t *length, bsr_error *error) {
    uint32_t sum = BSRI_TUNE_SEED;
    bsri_text t;
    bsri_clear_error(error);
    if (!bsri_table_valid(table) || !length) return bsri_tune_fail(error, BSR_ITEM_ARGUMENT_NULL, -1, 0);
    t.data = text, t.size = text ? size : 0, t.length = 0;
    bsri_put_line(&t, "/* tune_table.h: tuned parameters for bsrsparse, per operation, GPU, data types and shape. bsrsparse.h "
                      "works without it.");
    bsri_put_line(&t, "   Written by bsr_tune_export (make tune); bsr_tune_import reads it back. */");
    bsri_put_line(&t, "#ifndef BSRSPARSE_TUNE_TABLE_H\n#define BSRSPARSE_TUNE_TABLE_H\n/* BEGIN GENERATED */");
    bsri_put(&t, "#define BSRI_TUNE_FORMAT "), bsri_put_int(&t, BSRI_TUNE_FORMAT_IS);
    bsri_put(&t, "\n#define BSRI_TUNE_ROWS "), bsri_put_int(&t, table->row_count), bsri_put(&t, "\n");
    if (table->row_count) sum = bsri_put_rows(&t, table);
    bsri_put(&t, "/* END GENERATED, check sum "), bsri_put_int(&t, sum), bsri_put_line(&t, " */\n#endif");
    *length = t.length;
    if (t.length > BSR_TUNE_TEXT_MAX) return bsri_tune_fail(error, BSR_ITEM_TUNE_SIZE, -1, (int64_t)t.length);
    if (text && t.length >= size) return bsri_tune_fail(error, BSR_ITEM_BUFFER_SIZE, -1, (int64_t)t.length + 1);
    return BSR_OK;
}

/* A position in a table's text; item: what is wrong first. */
typedef struct bsri_tune_reader {
    const char *p, *end;
    int64_t line, value;
    int item;
} bsri_tune_reader;
static int bsri_tune_bad(bsri_tune_reader *r, int item, int64_t value) { /* always 0 */
    if (!r->item) r->item = item, r->value = value;
    return 0;
}
static void bsri_tune_blanks(bsri_tune_reader *r) {
    for (; r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r'); r->p++) r->line += *r->p == '\n';
}
/* Goes past s, if it stands here. */
static int bsri_tune_word(bsri_tune_reader *r, const char *s) {
    const size_t n = strlen(s);
    bsri_tune_blanks(r);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, s, n)) return 0;
    r->p += n;
    return 1;
}
static int bsri_tune_need(bsri_tune_reader *r, const char *s) {
    if (bsri_tune_word(r, s)) return 1;
    return bsri_tune_bad(r, r->p >= r->end ? BSR_ITEM_PARSE_SHORT : BSR_ITEM_PARSE_HEADER, 0);
}
static int bsri_tune_number(bsri_tune_reader *r, int64_t *x) {
    int negative, digits = 0;
    bsri_tune_blanks(r);
    negative = r->p < r->end && *r->p == '-';
    for (*x = 0, r->p += negative; r->p < r->end && *r->p >= '0' && *r->p <= '9' && digits < 12; r->p++, digits++)
        *x = *x * 10 + (*r->p - '0');
    if (negative) *x = -*x;
    return digits && digits < 12 ? 1 : bsri_tune_bad(r, r->p >= r->end ? BSR_ITEM_PARSE_SHORT : BSR_ITEM_PARSE_NUMBER, 0);
}
static int bsri_tune_int(bsri_tune_reader *r, int32_t *x) {
    int64_t wide = 0;
    if (!bsri_tune_number(r, &wide)) return 0;
    if (wide < INT32_MIN || wide > INT32_MAX) return bsri_tune_bad(r, BSR_ITEM_PARSE_RANGE, wide);
    *x = (int32_t)wide;
    return 1;
}
static int bsri_tune_string(bsri_tune_reader *r, char *to, size_t size) {
    size_t n = 0;
    memset(to, 0, size);
    if (!bsri_tune_need(r, "\"")) return 0;
    for (; r->p < r->end && *r->p != '"' && *r->p != '\n' && n + 1 < size; r->p++) to[n++] = *r->p;
    return r->p < r->end && *r->p == '"' ? (r->p++, 1) : bsri_tune_bad(r, BSR_ITEM_PARSE_HEADER, 0);
}
static int bsri_tune_comment(bsri_tune_reader *r) { /* any number of comments of one line */
    while (bsri_tune_word(r, "/*")) {
        while (r->p < r->end && *r->p != '\n' && (r->p[0] != '*' || r->end - r->p < 2 || r->p[1] != '/')) r->p++;
        if (!bsri_tune_need(r, "*/")) return 0;
    }
    return 1;
}
static int bsri_tune_read_gpu(bsri_tune_reader *r, bsr_tune_gpu *g) {
    if (!bsri_tune_string(r, g->name, sizeof g->name) || !bsri_tune_need(r, ",") || !bsri_tune_int(r, &g->arch)) return 0;
    if (!bsri_tune_need(r, ",") || !bsri_tune_int(r, &g->units) || !bsri_tune_need(r, ",")) return 0;
    if (!bsri_tune_string(r, g->made, sizeof g->made) || !bsri_tune_need(r, ",")) return 0;
    if (!bsri_tune_string(r, g->sources, sizeof g->sources) || !bsri_tune_need(r, "},")) return 0;
    return !bsri_gpu_wrong(g) ? 1 : bsri_tune_bad(r, BSR_ITEM_PARSE_RANGE, 0);
}
static int bsri_tune_read_row(bsri_tune_reader *r, bsr_tune_row *row, int32_t gpus, uint32_t *sum) {
    int32_t f[BSRI_ROW_FIELDS];
    int i;
    for (i = 0; i < BSRI_ROW_FIELDS; i++)
        if ((i && !bsri_tune_need(r, ",")) || !bsri_tune_int(r, &f[i])) return 0;
    if (!bsri_tune_need(r, "},")) return 0;
    i = f[0] < 0 || f[0] >= gpus ? 0 : bsri_tuned_wrong(f);
    if (i >= 0) return bsri_tune_bad(r, BSR_ITEM_TUNE_RANGE, f[i]);
    *row = bsri_tuned_set(f), *sum = bsri_tuned_check(*sum, f);
    return 1;
}
/* One pass over the text. take null: checks, and counts what is new to the table; else puts the rows in. */
static int bsri_tune_read(bsri_tune_reader *r, bsr_tune_table *t, int take, int64_t *gpus, int64_t *rows) {
    bsr_tune_gpu list[BSRI_TUNE_LIST];
    bsr_tune_row before, row;
    uint32_t sum = BSRI_TUNE_SEED;
    int64_t format = 0, count = 0, i, stated = -1;
    int32_t n = 0, at;
    memset(&before, 0, sizeof before), before.gpu = -1;
    *gpus = t->gpu_count, *rows = t->row_count;
    while (r->p < r->end && !bsri_tune_word(r, "/* BEGIN GENERATED */")) { /* whatever stands before */
        while (r->p < r->end && *r->p != '\n') r->p++;
        bsri_tune_blanks(r);
    }
    if (!bsri_tune_need(r, "#define BSRI_TUNE_FORMAT ") || !bsri_tune_number(r, &format)) return 0;
    if (format != BSRI_TUNE_FORMAT_IS) return bsri_tune_bad(r, BSR_ITEM_TUNE_FORMAT, format);
    if (!bsri_tune_need(r, "#define BSRI_TUNE_ROWS ") || !bsri_tune_number(r, &count)) return 0;
    if (count > 0) {
        if (!bsri_tune_need(r, "static const bsr_tune_gpu bsri_tune_gpus[] = {") || !bsri_tune_comment(r)) return 0;
        for (; bsri_tune_word(r, "{"); n++) {
            if (n == BSRI_TUNE_LIST) return bsri_tune_bad(r, BSR_ITEM_PARSE_EXTRA, n);
            if (!bsri_tune_read_gpu(r, &list[n])) return 0;
            for (i = 0; i < n; i++)
                if (bsri_gpu_same(&list[i], &list[n])) return bsri_tune_bad(r, BSR_ITEM_TUNE_TWICE, 0);
            sum = bsri_gpu_check(sum, &list[n]), *gpus += bsri_gpu_find(t, &list[n]) == t->gpu_count;
        }
        if (!bsri_tune_need(r, "};") || !bsri_tune_need(r, "static const bsr_tune_row bsri_tune_rows[] = {")) return 0;
        if (!bsri_tune_comment(r)) return 0;
    }
    for (i = 0; i < count; i++) {
        if (!bsri_tune_need(r, "{") || !bsri_tune_read_row(r, &row, n, &sum)) return 0;
        if (bsri_tuned_compare(&before, &row, BSRI_ROW_KEY) >= 0) return bsri_tune_bad(r, BSR_ITEM_TUNE_TWICE, 0);
        before = row;
        if (take) {
            bsri_tuned_put(t, &list[row.gpu], &row);
        } else {
            row.gpu = bsri_gpu_find(t, &list[row.gpu]), at = bsri_tuned_find(t, &row, BSRI_ROW_KEY);
            *rows += at == t->row_count || bsri_tuned_compare(&t->rows[at], &row, BSRI_ROW_KEY);
        }
    }
    if ((count > 0 && !bsri_tune_need(r, "};")) || !bsri_tune_need(r, "/* END GENERATED")) return 0;
    if (bsri_tune_word(r, ", check sum ") && !bsri_tune_number(r, &stated)) return 0;
    if (stated >= 0 && stated != (int64_t)sum) return bsri_tune_bad(r, BSR_ITEM_TUNE_CHECK, stated);
    return bsri_tune_need(r, "*/");
}
BSR_API bsr_status bsr_tune_import(bsr_tune_table *table, const char *text, size_t bytes, bsr_error *error) {
    bsri_tune_reader r;
    int64_t gpus, rows;
    int take;
    bsri_clear_error(error);
    if (!bsri_table_valid(table) || !text) return bsri_tune_fail(error, BSR_ITEM_ARGUMENT_NULL, -1, 0);
    if (bytes > BSR_TUNE_TEXT_MAX) return bsri_tune_fail(error, BSR_ITEM_TUNE_SIZE, -1, (int64_t)bytes);
    for (take = 0; take < 2; take++) {
        memset(&r, 0, sizeof r);
        r.p = text, r.end = text + bytes, r.line = 1;
        if (!bsri_tune_read(&r, table, take, &gpus, &rows)) {
            bsri_record(NULL, error, r.item, BSR_ARG_TEXT, r.line, r.value);
            return bsri_items[r.item].status;
        }
        if (gpus > table->gpu_capacity && !take) return bsri_tune_fail(error, BSR_ITEM_TUNE_CAPACITY, gpus, rows);
        if (rows > table->row_capacity && !take) return bsri_tune_fail(error, BSR_ITEM_TUNE_CAPACITY, gpus, rows);
    }
    return BSR_OK;
}

/* --- lookup --- */
BSR_API int64_t bsr_tune_query(const bsr_tune_table *table, const bsr_tune_row *pattern, bsr_tune_row *out, int64_t capacity) {
    int32_t want[BSRI_ROW_FIELDS], have[BSRI_ROW_FIELDS], i;
    int64_t found = 0;
    int j;
    if (!bsri_table_valid(table) || !pattern) return 0;
    bsri_tuned_get(pattern, want);
    for (i = 0; i < table->row_count; i++) {
        bsri_tuned_get(&table->rows[i], have);
        for (j = 0; j < BSRI_ROW_KEY && (want[j] == BSR_TUNE_ANY || want[j] == have[j]); j++) {
        }
        if (j < BSRI_ROW_KEY) continue;
        if (found < capacity && out) out[found] = table->rows[i];
        found++;
    }
    return found;
}

/* The larger over the smaller, in 1/16; sizes of 0 count as 1. */
static int64_t bsri_ratio(int32_t a, int32_t b) {
    const int64_t x = a > 0 ? a : 1, y = b > 0 ? b : 1;
    return x > y ? x * 16 / y : y * 16 / x;
}
/* The best row for a key whose fields up to k are exact, n as it is or near. *rows: whether there are any. */
static int bsri_tune_best(const bsr_tune_table *t, const bsr_tune_row *key, int near_n, bsr_tune_row *found, int *rows) {
    int32_t at = bsri_tuned_find(t, key, BSRI_ROW_N);
    int64_t best = INT64_MAX;
    int match = 0;
    for (; at < t->row_count && !bsri_tuned_compare(&t->rows[at], key, BSRI_ROW_N); at++) {
        *rows = 1;
        const bsr_tune_row *r = &t->rows[at];
        const int64_t by_n = bsri_ratio(r->n, key->n), by_density = bsri_ratio(r->density, key->density);
        if ((!near_n && r->n != key->n) || by_n > 64 || by_density > 32) continue;
        if (by_n * 4096 + by_density >= best) continue; /* n first; of two that are as near the smaller */
        best = by_n * 4096 + by_density, *found = *r;
        match = r->n != key->n ? BSR_TUNE_NEAREST_N : r->density != key->density ? BSR_TUNE_DENSITY : BSR_TUNE_EXACT;
    }
    return match;
}
/* Rows of one GPU, whose number is in key->gpu. */
static int bsri_tune_of_gpu(const bsr_tune_table *t, const bsr_tune_row *key, bsr_tune_row *found) {
    const int half = key->dtype == BSR_F16 || key->dtype == BSR_BF16, twin = key->dtype == BSR_F16 ? BSR_BF16 : BSR_F16;
    int near_n, v, match, rows = 0;
    for (near_n = 0; near_n <= rows; near_n++) /* most calls have no row at all */
        for (v = 0; v < 4; v++) { /* as it is; out as the operands; the other half type, likewise */
            bsr_tune_row k = *key;
            if ((v & 2) && !half) continue;
            if (v & 2) k.out_dtype = k.out_dtype == k.dtype ? twin : k.out_dtype, k.dtype = twin;
            if ((v & 1) && k.out_dtype == k.dtype) continue;
            if (v & 1) k.out_dtype = k.dtype;
            match = bsri_tune_best(t, &k, near_n, found, &rows);
            if (match) return match | (v ? BSR_TUNE_DTYPE : 0);
        }
    return 0;
}
BSR_API int bsr_tune_lookup(const bsr_tune_table *table, const bsr_tune_gpu *gpu, const bsr_tune_row *key, bsr_tune_row *found) {
    bsr_tune_row k, r;
    uint32_t done = 0;
    int32_t i, n, match;
    if (!bsri_table_valid(table) || !gpu || !key || !table->row_count) return 0;
    n = table->gpu_count < 32 ? table->gpu_count : 32, k = *key;
    for (;;) { /* the nearest GPU that is left: itself, then by multiprocessors */
        int32_t next = -1;
        int64_t best = INT64_MAX;
        for (i = 0; i < n; i++) {
            const bsr_tune_gpu *g = &table->gpus[i];
            const int64_t far_off = bsri_gpu_same(g, gpu) ? 0 : bsri_ratio(g->units, gpu->units);
            if (!(done >> i & 1) && g->arch == gpu->arch && far_off < best) best = far_off, next = i;
        }
        if (next < 0) return 0;
        done |= 1u << next, k.gpu = next;
        match = bsri_tune_of_gpu(table, &k, &r);
        if (match) {
            if (found) *found = r;
            return match | (best ? BSR_TUNE_OTHER_GPU : 0);
        }
    }
}

static int bsri_tune_row_for(const bsri_call *c, const bsr_tune_row *key, bsr_tune_row *row) {
    const bsr_tune_table *mine = c->exec->table ? c->exec->table : c->ctx->table;
    int match = 0;
    if (c->exec->key && c->exec->query) *c->exec->key = *key;
    if (!key->op || (c->flags & BSR_EXEC_NO_TABLE)) return 0;
    if (mine) match = bsr_tune_lookup(mine, &c->ctx->gpu, key, row);
    if (!match && bsri_on_cuda(c)) {
        const bsr_tune_table built_in = bsr_tune_built_in();
        match = bsr_tune_lookup(&built_in, &c->ctx->gpu, key, row);
    }
    return match;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-calls: checks, plan, public functions                                                 */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_CUDA /* the CUDA backend's side of the engines: >>cuda */
static bsr_status bsri_cuda_product(const bsri_call *c, const bsri_product *job, const bsr_tune_row *key, bsr_plan *plan,
                                    int step);
static bsr_status bsri_cuda_sampled(const bsri_call *c, const bsri_sampled *job, const bsr_tune_row *key, bsr_plan *plan,
                                    int step);
#endif
/* Choosing a kernel and launching it are one function, so that what is chosen is what runs. A call that consists of several
   products plans them all first, settles one plan for all, then runs them. */
enum { BSRI_PLAN_AND_RUN, BSRI_PLAN_ONLY, BSRI_RUN_ONLY };
/* Between choosing and running. *stop: nothing is to run. */
static bsr_status bsri_settle(const bsri_call *c, bsr_plan *plan, int step, int *stop) {
    *stop = step == BSRI_PLAN_ONLY;
    return step == BSRI_PLAN_AND_RUN ? bsri_plan_settle(c, plan, stop) : BSR_OK;
}

static bsr_status bsri_settle_cpu(const bsri_call *c, const bsr_tune_row *key, bsr_plan *plan, int step, int *stop) {
    if (step != BSRI_RUN_ONLY) bsri_tune_cpu(c, key, plan);
    return bsri_settle(c, plan, step, stop);
}

/* One sparse x dense -> dense problem as a public function states it: what to call each operand in errors, too. */
typedef struct bsri_product_call {
    double alpha, beta;
    const bsr_matrix *a;
    const bsr_dense *b, *input, *out;
    const bsr_epilogue *epilogue;
    int32_t trans, id_a, id_b, id_out;
    int32_t reduce; /* out may lack batch dimensions of the operands: they are summed over */
} bsri_product_call;

/* Which results may operands of this dtype give? */
static uint32_t bsri_result_dtypes(int dtype) {
    switch (dtype) {
#define BSRI_X(dtype, type, is_float, results, ...) \
    case BSR_##dtype: return results;
        BSRI_TYPES(BSRI_X)
#undef BSRI_X
        default: return 0;
    }
}
static int bsri_result_dtype(int dtype, int out) { return bsri_is_one_of(bsri_result_dtypes(dtype), out); }

static bsr_status bsri_check_pair_dtypes(const bsri_call *c, int a, int b, int id_b, int out, int id_out) {
    if (b != a) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_MISMATCH, id_b, -1, b, a);
    if (!bsri_result_dtype(a, out)) return bsri_fail_wanted(c, BSR_ITEM_DTYPE_OUT, id_out, -1, out, bsri_result_dtypes(a));
    return BSR_OK;
}

/* Alpha and beta of an integer result: whole numbers of 32 bits. (NaN is refused as well.) */
static bsr_status bsri_check_whole(const bsri_call *c, int out_dtype, double alpha, double beta) {
    if (!(BSRI_INTS & BSRI_BIT(out_dtype))) return BSR_OK;
    if (!(alpha == floor(alpha) && fabs(alpha) <= 2147483647.0)) return bsri_fail(c, BSR_ITEM_ALPHA_INTEGER, BSR_ARG_NONE, 0, 0);
    if (!(beta == floor(beta) && fabs(beta) <= 2147483647.0)) return bsri_fail(c, BSR_ITEM_ALPHA_INTEGER, BSR_ARG_NONE, 1, 0);
    return BSR_OK;
}

static bsr_status bsri_check_activation(const bsri_call *c, const bsr_epilogue *e, int compute, int out_dtype) {
    int act = e->activation;
    if (e->reserved) return bsri_fail(c, BSR_ITEM_RESERVED, BSR_ARG_OPTIONS, -1, e->reserved);
    if (act == BSR_ACT_NONE) return BSR_OK;
    if (act < 0 || (act > BSR_ACT_SILU && act < BSR_USER_FUNCTION_BASE))
        return bsri_fail(c, BSR_ITEM_ACTIVATION, BSR_ARG_NONE, -1, act);
    if (act >= BSRI_USER_EPILOGUE_END) return bsri_fail(c, BSR_ITEM_USER_FUNCTION, BSR_ARG_NONE, -1, act);
    if ((BSRI_INTS & BSRI_BIT(out_dtype)) || (compute == BSR_F64 && act >= BSR_USER_FUNCTION_BASE))
        return bsri_fail(c, BSR_ITEM_ACTIVATION_DTYPE, BSR_ARG_NONE, -1, act);
    return BSR_OK;
}

/* left_alpha, right_alpha, bias, activation. */
static bsr_status bsri_check_epilogue(const bsri_call *c, bsri_spans *set, const bsr_epilogue *e, const bsr_dense *out,
                                      int compute, const bsri_batch *batch) {
    uint32_t accepted = BSRI_INTS & BSRI_BIT(out->dtype) ? BSRI_INTS : BSRI_FLOATS;
    if (!e) return BSR_OK;
    BSRI_TRY(bsri_check_activation(c, e, compute, out->dtype));
    if (e->left_alpha) BSRI_TRY(bsri_check_repeated(c, set, e->left_alpha, BSR_ARG_LEFT_ALPHA, accepted, out->rows, 1, batch));
    if (e->right_alpha) BSRI_TRY(bsri_check_repeated(c, set, e->right_alpha, BSR_ARG_RIGHT_ALPHA, accepted, 1, out->cols, batch));
    if (e->bias) BSRI_TRY(bsri_check_repeated(c, set, e->bias, BSR_ARG_BIAS, accepted, out->rows, out->cols, batch));
    BSRI_TRY(bsri_span_read(c, set, BSR_ARG_OPTIONS, e->alpha_ptr, 8)); /* a GPU reads them while it writes */
    return bsri_span_read(c, set, BSR_ARG_OPTIONS, e->beta_ptr, 8);
}

/* Batch of the problem: the broadcast of a and b. out has exactly that; a reduction's out may have less. */
static bsr_status bsri_product_batch(const bsri_call *c, const bsri_product_call *p, bsri_batch *batch) {
    *batch = bsri_batch_none();
    BSRI_TRY(bsri_join(c, batch, p->a->batch_dims, p->a->batch, p->id_a));
    BSRI_TRY(bsri_join(c, batch, p->b->batch_dims, p->b->batch, p->id_b));
    if (p->reduce) {
        BSRI_TRY(bsri_check_batch_fits(c, batch, p->out->batch_dims, p->out->batch, p->id_out));
        return bsri_check_batch_sum(c, batch, p->out->batch_dims, p->out->batch, p->id_out);
    }
    return bsri_check_batch_out(c, batch, p->out->batch_dims, p->out->batch, p->id_out);
}

static bsr_status bsri_check_product(const bsri_call *c, const bsri_product_call *p, bsri_spans *set) {
    const int64_t m = p->trans ? p->a->cols : p->a->rows, k = p->trans ? p->a->rows : p->a->cols;
    const int beta = p->beta != 0 || (p->epilogue && p->epilogue->beta_ptr);
    const uint32_t input_types = BSRI_INTS & BSRI_BIT(p->out->dtype) ? BSRI_INTS : BSRI_FLOATS;
    bsri_batch batch;
    bsri_call last;
    if (p->b->rows != k) return bsri_fail_wanted(c, BSR_ITEM_INNER_MISMATCH, p->id_b, -1, p->b->rows, k);
    if (p->out->rows != m) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, p->id_out, -1, p->out->rows, m);
    if (p->out->cols != p->b->cols) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, p->id_out, -1, p->out->cols, p->b->cols);
    BSRI_TRY(bsri_check_pair_dtypes(c, p->a->dtype, p->b->dtype, p->id_b, p->out->dtype, p->id_out));
    BSRI_TRY(bsri_product_batch(c, p, &batch));
    if (beta && !p->input) return bsri_fail(c, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0);
    if (beta) BSRI_TRY(bsri_check_repeated(c, set, p->input, BSR_ARG_INPUT, input_types, m, p->out->cols, &batch));
    BSRI_TRY(bsri_check_epilogue(c, set, p->epilogue, p->out, bsri_compute_dtype(c, p->a->dtype), &batch));
    BSRI_TRY(bsri_check_dense_same(c, set, p->out, p->id_out, BSRI_FLOATS | BSRI_INTS, BSRI_WRITE, BSRI_MAY_BE(BSR_ARG_INPUT)));
    if (c->op != BSR_OP_DENSE_ADDMM && c->op != BSR_OP_MATMUL) return bsri_check_structure(c, p->a, p->id_a, 0); /* more follow */
    last = bsri_last_check(c);
    return bsri_check_structure(&last, p->a, p->id_a, 0);
}

/* Everything that is looked at one operand at a time, before they are compared. */
static bsr_status bsri_check_product_operands(const bsri_call *c, const bsri_product_call *p, bsri_spans *set) {
    const bsr_dense *o = p->out;
    BSRI_TRY(bsri_check_matrix(c, set, p->a, p->id_a, BSRI_OPERANDS, BSRI_READ));
    BSRI_TRY(bsri_check_dense(c, set, p->b, p->id_b, BSRI_OPERANDS, BSRI_READ));
    if (!o) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, p->id_out, -1, 0);
    BSRI_TRY(bsri_check_dtype(c, o->dtype, BSRI_FLOATS | BSRI_INTS, p->id_out));
    return bsri_check_batch(c, o->batch_dims, o->batch, p->id_out);
}

/* Rows of an output tile: a large block is cut into equal parts. */
static int64_t bsri_tile_rows(int64_t block_rows) { return bsri_ceil_div(block_rows, bsri_ceil_div(block_rows, BSRI_TILE_ROWS)); }
static bsr_plan bsri_product_plan(const bsri_call *c, const bsri_product_call *p) {
    bsr_plan plan = bsri_plan_default(c);
    const int64_t *schedule = (const int64_t *)p->a->schedule;
    plan.tile_rows = (int32_t)bsri_tile_rows(p->trans ? p->a->block_cols : p->a->block_rows);
    plan.tile_cols = (int32_t)bsri_tile_cols(bsri_compute_dtype(c, p->a->dtype));
    if (p->trans && !p->a->transposed_index) plan.flags |= BSR_PLAN_SLOW_TRANSPOSE;
    if (p->trans && !p->a->transposed_index && !bsri_on_cuda(c)) {
        const uint64_t bytes = bsri_scan_bytes(p->a, bsri_compute_dtype(c, p->a->dtype), p->b->cols);
        const int have = c->exec->workspace && c->exec->workspace_bytes >= bytes && (uintptr_t)c->exec->workspace % 64 == 0;
        if (c->exec->query || have) plan.workspace_bytes = bytes;
    }
    if (schedule && (bsri_on_cuda(c) || (schedule[6] != 0) == (p->trans != 0))) plan.flags |= BSR_PLAN_USES_SCHEDULE;
    if (!bsri_on_cuda(c) && (p->b->dtype != bsri_compute_dtype(c, p->b->dtype) || p->b->col_stride != 1))
        plan.flags |= BSR_PLAN_PACKS_B;
    return plan;
}

/* Products of every operation share their rows in tuned tables. */
static bsr_tune_row bsri_product_key(const bsri_product_call *p) {
    const bsr_epilogue *e = p->epilogue;
    bsr_tune_row key = bsri_tune_key(BSR_OP_DENSE_ADDMM, p->a->dtype, p->out->dtype, p->a, p->out->rows, p->b->rows, p->b->cols);
    if (p->trans) key.block_rows = (int32_t)p->a->block_cols, key.block_cols = (int32_t)p->a->block_rows;
    key.beta = bsri_scalar_class(p->beta, e ? e->beta_ptr : NULL),
    key.alpha = bsri_scalar_class(p->alpha, e ? e->alpha_ptr : NULL);
    return key;
}
/* Once for each key: A^T runs without its index, which costs several times as much. */
static void bsri_warn_transpose(const bsri_call *c, const bsr_tune_row *key) {
    char line[200];
    bsri_text t;
    uint32_t number = bsri_check_sum(bsri_check_sum(0x54u, key->dtype), key->block_rows);
    if (!bsri_warns(c)) return;
    number = bsri_check_sum(bsri_check_sum(bsri_check_sum(number, key->block_cols), key->m), key->n);
    if (!bsri_once(c->ctx, number)) return;
    t.data = line, t.size = sizeof line, t.length = 0;
    bsri_put(&t, bsr_op_name(c->op)), bsri_put(&t, ": "), bsri_put(&t, bsr_item_string(BSR_ITEM_SLOW_TRANSPOSE));
    c->ctx->logger.func(BSR_LOG_WARN, BSR_ITEM_SLOW_TRANSPOSE, line, c->ctx->logger.user);
}
/* *plan: written, except by BSRI_RUN_ONLY. */
static bsr_status bsri_product_start(const bsri_call *c, const bsri_product_call *p, bsr_plan *plan, int step) {
    const bsr_tune_row key = bsri_product_key(p);
    bsri_batch batch = bsri_batch_none();
    bsri_product job;
    int stop;
    memset(&job, 0, sizeof job);
    bsri_batch_join(&batch, p->a->batch_dims, p->a->batch);
    bsri_batch_join(&batch, p->b->batch_dims, p->b->batch);
    job.a = p->a, job.b = p->b, job.out = p->out, job.input = p->input, job.epilogue = p->epilogue, job.trans = p->trans;
    job.alpha = p->alpha, job.beta = p->beta, job.compute = bsri_compute_dtype(c, p->a->dtype), job.batch = batch;
    if (step != BSRI_RUN_ONLY) *plan = bsri_product_plan(c, p);
    BSRI_CUDA_RETURN(c, bsri_cuda_product(c, &job, &key, plan, step));
    BSRI_TRY(bsri_settle_cpu(c, &key, plan, step, &stop));
    if (stop) return BSR_OK;
    job.isa = plan->kernel;
    job.workspace = c->exec->workspace, job.workspace_bytes = c->exec->workspace_bytes;
    if (p->trans && !p->a->transposed_index) bsri_warn_transpose(c, &key);
    bsri_product_run(c->ctx, &job);
    return BSR_OK;
}

/* Device-resident scalars replace those by value; on the CPU they are read here. */
static bsr_status bsri_resolve_scalars(const bsri_call *c, bsri_product_call *p) {
    if (p->epilogue && p->epilogue->alpha_ptr) {
        BSRI_TRY(bsri_check_pointer(c, p->epilogue->alpha_ptr, 8, BSR_ARG_OPTIONS));
        if (!bsri_on_cuda(c)) p->alpha = *p->epilogue->alpha_ptr;
    }
    if (p->epilogue && p->epilogue->beta_ptr) {
        BSRI_TRY(bsri_check_pointer(c, p->epilogue->beta_ptr, 8, BSR_ARG_OPTIONS));
        if (!bsri_on_cuda(c)) p->beta = *p->epilogue->beta_ptr;
    }
    return bsri_check_whole(c, p->out->dtype, p->alpha, p->beta);
}

BSR_API bsr_status bsr_dense_addmm(const bsr_context *ctx, double beta, const bsr_dense *input, double alpha, uint32_t trans,
                                   const bsr_matrix *a, const bsr_dense *b, const bsr_epilogue *epilogue, const bsr_dense *out,
                                   const bsr_exec *exec) {
    bsri_spans set;
    bsri_product_call p;
    bsri_call c;
    bsr_plan plan;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_DENSE_ADDMM, exec));
    memset(&p, 0, sizeof p);
    p.alpha = alpha, p.beta = beta, p.a = a, p.b = b, p.input = input, p.out = out, p.epilogue = epilogue;
    p.trans = trans == BSR_TRANS_A, p.id_a = BSR_ARG_A, p.id_b = BSR_ARG_B, p.id_out = BSR_ARG_OUT;
    set.count = 0;
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_PRODUCT, a ? a->dtype : 0));
    if (trans & ~BSR_TRANS_A) return bsri_fail(&c, BSR_ITEM_RESERVED, BSR_ARG_NONE, -1, (int64_t)trans);
    if (bsri_checking(&c)) {
        BSRI_TRY(bsri_check_product_operands(&c, &p, &set));
        BSRI_TRY(bsri_check_product(&c, &p, &set));
    }
    BSRI_TRY(bsri_resolve_scalars(&c, &p));
    return bsri_product_start(&c, &p, &plan, BSRI_PLAN_AND_RUN);
}

BSR_API bsr_status bsr_dense_mm(const bsr_context *ctx, uint32_t trans, const bsr_matrix *a, const bsr_dense *b,
                                const bsr_dense *out, const bsr_exec *exec) {
    return bsr_dense_addmm(ctx, 0.0, NULL, 1.0, trans, a, b, NULL, out, exec);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>scatter-calls: products listed by the caller                                                 */
/* ---------------------------------------------------------------------------------------------- */

static bsr_status bsri_check_index_array(const bsri_call *c, const int64_t *array, int64_t count) {
    if (count < 0) return bsri_fail_wanted(c, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, count, 0);
    if (count && !array) return bsri_fail(c, BSR_ITEM_INDEX_ARRAY_NULL, BSR_ARG_INDICES, -1, 0);
    return count ? bsri_check_pointer(c, array, 8, BSR_ARG_INDICES) : BSR_OK;
}
static bsr_status bsri_check_range(const bsri_call *c, const int64_t *array, int64_t count, int64_t end) {
    int64_t i;
    for (i = 0; i < count; i++)
        if (array[i] < 0 || array[i] >= end) return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, i, array[i]);
    return BSR_OK;
}
static bsr_status bsri_check_offsets(const bsri_call *c, const int64_t *array, int64_t count, int64_t end) {
    int64_t i, before = 0;
    for (i = 0; i < count; before = array[i++])
        if (array[i] < before || array[i] > end) return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, i, array[i]);
    return BSR_OK;
}
/* A flat offset names element (o / n, o % n): the tile that starts there lies inside rows x n. */
static int bsri_tile_inside(int64_t o, int64_t n, int64_t tile_rows, int64_t tile_cols, int64_t rows) {
    return o >= 0 && n > 0 && o / n <= rows - tile_rows && o % n <= n - tile_cols;
}

typedef struct bsri_tile_numbers {
    const int64_t *offsets;
    int64_t n, ms, ns, across; /* across: tiles beside each other */
} bsri_tile_numbers;
static int64_t bsri_tile_number(const void *arg, int64_t i) {
    const bsri_tile_numbers *t = (const bsri_tile_numbers *)arg;
    const int64_t row = bsri_divide(t->offsets[i], t->n), col = t->offsets[i] - row * t->n;
    return bsri_divide(row, t->ms) * t->across + bsri_divide(col, t->ns);
}
/* Output tiles run in parallel: each lies inside the accumulators, on a tile boundary, and none is named twice. */
static bsr_status bsri_check_outputs(const bsri_call *c, const bsr_scatter_indices *x, const bsri_scatter_shape *s) {
    const bsri_call last = bsri_last_check(c);
    bsri_tile_numbers t;
    int64_t i;
    t.offsets = x->r_offsets, t.n = s->n, t.ms = s->ms, t.ns = s->ns, t.across = s->n / s->ns;
    for (i = 0; i < x->r_count; i++) {
        int64_t o = x->r_offsets[i];
        if (!bsri_tile_inside(o, s->n, s->ms, s->ns, s->m) || o / s->n % s->ms || o % s->n % s->ns)
            return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, i, o);
    }
    i = bsri_find_repeat(&last, bsri_tile_number, &t, x->r_count);
    if (i >= 0) return bsri_fail(c, BSR_ITEM_INDICES_DUPLICATE, BSR_ARG_INDICES, i, x->r_offsets[i]);
    return BSR_OK;
}

static bsr_status bsri_check_sources(const bsri_call *c, const bsr_scatter_indices *x, const bsri_scatter_shape *s) {
    int64_t i;
    for (i = 0; i < x->q_count; i++)
        if (!bsri_tile_inside(x->q_indices[i], s->n, s->ks, s->ns, s->k))
            return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, i, x->q_indices[i]);
    return BSR_OK;
}

/* A list that is shorter than another's contents ask: not seen without looking at them, so the word has it, too. */
static bsr_status bsri_fail_count(const bsri_call *c, int64_t count, int64_t wanted) {
    bsri_host_word(c, bsri_status_word(BSR_ARG_INDICES, BSR_ITEM_INDICES_COUNT, -1));
    return bsri_fail_wanted(c, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, count, wanted);
}
static bsr_status bsri_check_compressed(const bsri_call *c, const bsr_scatter_indices *x, const bsri_scatter_shape *s,
                                        int64_t split_n) {
    int64_t rows = x->c_count - 1, nnz = rows >= 0 ? x->c_indices[rows] : 0, need, i;
    if (rows < 0) return bsri_fail_count(c, x->c_count, 1);
    BSRI_TRY(bsri_check_offsets(c, x->c_indices, x->c_count, s->blocks));
    if (x->c_indices[0] != 0) return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, 0, x->c_indices[0]);
    if (!bsri_mul(split_n, nnz, &need)) need = INT64_MAX;
    if (need > x->q_count) return bsri_fail_count(c, x->q_count, need);
    for (i = 0; i < x->r_count; i++)
        if (x->r_offsets[i] / s->n / s->ms >= rows)
            return bsri_fail(c, BSR_ITEM_INDICES_RANGE, BSR_ARG_INDICES, i, x->r_offsets[i]);
    return BSR_OK;
}

static bsr_status bsri_note_lists(const bsri_call *c, const bsr_scatter_indices *x, const bsri_scatter_shape *s) {
#ifdef BSRI_CUDA
    c->watch->shape = *s; /* a call has one */
#else
    (void)s;
#endif
    return bsri_note(c, BSRI_SUBJECT_LISTS, NULL, x, BSR_ARG_INDICES, 0);
}
/* The lists themselves: counts, ranges, no output twice. */
static bsr_status bsri_check_scatter_indices(const bsri_call *c, const bsr_scatter_indices *x, const bsri_scatter_shape *s) {
    const int64_t split_n = x->split_n ? x->split_n : 1;
    const int64_t outputs = x->format == BSR_SCATTER_MM ? s->tiles : x->r_count;
    const int contents = !bsri_on_cuda(c);
    BSRI_TRY(bsri_check_index_array(c, x->c_indices, x->c_count));
    BSRI_TRY(bsri_check_index_array(c, x->q_indices, x->q_count));
    if (x->format != BSR_SCATTER_MM) BSRI_TRY(bsri_check_index_array(c, x->r_offsets, x->r_count));
    if (x->format != BSR_SCATTER_MM && s->n == 0) return BSR_OK; /* no column, nothing that an offset could name */
    if (!contents) BSRI_TRY(bsri_note_lists(c, x, s));
    if (x->format != BSR_SCATTER_MM && contents) {
        BSRI_TRY(bsri_check_outputs(c, x, s));
        BSRI_TRY(bsri_check_sources(c, x, s));
    }
    if (x->format == BSR_SCATTER_STRIDED_COMPRESSED) return contents ? bsri_check_compressed(c, x, s, split_n) : BSR_OK;
    BSRI_TRY(bsri_check_index_array(c, x->p_indices, x->p_count));
    if (x->c_count != outputs + 1)
        return bsri_fail_wanted(c, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, x->c_count, outputs + 1);
    if (x->p_count != x->q_count)
        return bsri_fail_wanted(c, BSR_ITEM_INDICES_COUNT, BSR_ARG_INDICES, -1, x->q_count, x->p_count);
    if (!contents) return BSR_OK;
    BSRI_TRY(bsri_check_offsets(c, x->c_indices, x->c_count, x->p_count));
    BSRI_TRY(bsri_check_range(c, x->p_indices, x->p_count, s->blocks));
    return x->format == BSR_SCATTER_MM ? bsri_check_range(c, x->q_indices, x->q_count, s->sources) : BSR_OK;
}

static bsr_status bsri_check_scatter_spans(const bsri_call *c, bsri_spans *set, const bsr_scatter_indices *x) {
    const int64_t *array[4], most = INT64_MAX / 8;
    int64_t count[4];
    int i;
    array[0] = x->c_indices, array[1] = x->r_offsets, array[2] = x->p_indices, array[3] = x->q_indices;
    count[0] = x->c_count, count[1] = x->r_count, count[2] = x->p_count, count[3] = x->q_count;
    for (i = 0; i < 4; i++)
        if (count[i] > 0) BSRI_TRY(bsri_span_read(c, set, BSR_ARG_INDICES, array[i], 8 * bsri_min(count[i], most)));
    return BSR_OK;
}
static bsr_status bsri_check_indices(const bsri_call *c, const bsr_scatter_indices *x, int64_t cols) {
    if (!x) return bsri_fail(c, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_INDICES, -1, 0);
    BSRI_TRY(bsri_check_format(c, x));
    if (x->split_n < 0) return bsri_fail_wanted(c, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, x->split_n, cols);
    return BSR_OK;
}

/* Shapes of blocks, others and accumulators against each other; fills in *s. */
static bsr_status bsri_scatter_shapes(const bsri_call *c, const bsr_dense *blocks, const bsr_dense *others,
                                      const bsr_scatter_indices *x, const bsr_dense *acc, bsri_scatter_shape *s) {
    const int64_t split_n = x->split_n ? x->split_n : 1;
    bsri_batch batch = bsri_batch_of(others->batch_dims, others->batch);
    memset(s, 0, sizeof *s);
    if (blocks->batch_dims > 1) return bsri_fail_wanted(c, BSR_ITEM_BATCH_DIMS, BSR_ARG_BLOCKS, -1, blocks->batch_dims, 1);
    s->blocks = blocks->batch_dims ? blocks->batch[0] : 1, s->ms = blocks->rows, s->ks = blocks->cols;
    if (x->format == BSR_SCATTER_MM) {
        s->ns = others->cols, s->sources = batch.count, s->tiles = bsri_batch_of(acc->batch_dims, acc->batch).count;
        if (others->rows != s->ks) return bsri_fail_wanted(c, BSR_ITEM_INNER_MISMATCH, BSR_ARG_OTHERS, -1, others->rows, s->ks);
        if (acc->rows != s->ms) return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, BSR_ARG_ACCUMULATORS, -1, acc->rows, s->ms);
        if (acc->cols != s->ns) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_ACCUMULATORS, -1, acc->cols, s->ns);
        return BSR_OK;
    }
    s->m = acc->rows, s->k = others->rows, s->n = others->cols;
    if (acc->cols != s->n) return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, BSR_ARG_ACCUMULATORS, -1, acc->cols, s->n);
    if (s->n % split_n) return bsri_fail_wanted(c, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, split_n, s->n);
    s->ns = s->n / split_n;
    if (s->ms < 1 || s->m % s->ms)
        return bsri_fail_wanted(c, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_ACCUMULATORS, 0, s->m, s->ms);
    if (s->ks < 1 || s->k % s->ks) return bsri_fail_wanted(c, BSR_ITEM_BLOCK_DIVIDES, BSR_ARG_OTHERS, 0, s->k, s->ks);
    return bsri_check_batch_out(c, &batch, acc->batch_dims, acc->batch, BSR_ARG_ACCUMULATORS);
}

static bsr_status bsri_check_scatter(const bsri_call *c, const bsr_dense *blocks, const bsr_dense *others,
                                     const bsr_scatter_indices *x, const bsr_dense *acc) {
    bsri_scatter_shape s;
    bsri_spans set;
    set.count = 0;
    BSRI_TRY(bsri_check_dense(c, &set, blocks, BSR_ARG_BLOCKS, BSRI_OPERANDS, BSRI_READ));
    BSRI_TRY(bsri_check_dense(c, &set, others, BSR_ARG_OTHERS, BSRI_OPERANDS, BSRI_READ));
    BSRI_TRY(bsri_check_indices(c, x, others->cols));
    BSRI_TRY(bsri_check_dense(c, &set, acc, BSR_ARG_ACCUMULATORS, BSRI_FLOATS | BSRI_INTS, BSRI_WRITE));
    BSRI_TRY(bsri_check_pair_dtypes(c, blocks->dtype, others->dtype, BSR_ARG_OTHERS, acc->dtype, BSR_ARG_ACCUMULATORS));
    BSRI_TRY(bsri_scatter_shapes(c, blocks, others, x, acc, &s));
    BSRI_TRY(bsri_check_scatter_spans(c, &set, x));
    return bsri_check_scatter_indices(c, x, &s);
}

static bsr_status bsri_scatter_start(const bsri_call *c, const bsr_dense *blocks, const bsr_dense *others,
                                     const bsr_scatter_indices *x, const bsr_dense *acc, bsr_plan *plan, int step) {
    bsr_tune_row key;
    bsri_product job;
    int stop;
    memset(&key, 0, sizeof key); /* one kernel: nothing to look up */
    memset(&job, 0, sizeof job);
    job.blocks = blocks, job.b = others, job.scatter = x, job.out = job.input = acc;
    job.alpha = job.beta = 1.0, job.compute = bsri_compute_dtype(c, blocks->dtype);
    job.batch = bsri_batch_of(others->batch_dims, others->batch);
    if (step != BSRI_RUN_ONLY) *plan = bsri_plan_default(c);
    if (others->cols && blocks->cols) BSRI_CUDA_RETURN(c, bsri_cuda_product(c, &job, &key, plan, step));
    BSRI_TRY(bsri_settle_cpu(c, &key, plan, step, &stop));
    if (stop) return BSR_OK;
    job.isa = plan->kernel;
    if (others->cols && blocks->cols) bsri_product_run(c->ctx, &job);
    return BSR_OK;
}

BSR_API bsr_status bsr_scatter_mm(const bsr_context *ctx, const bsr_dense *blocks, const bsr_dense *others,
                                  const bsr_scatter_indices *indices, const bsr_dense *accumulators, const bsr_exec *exec) {
    bsri_call c;
    bsr_plan plan;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SCATTER_MM, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_PRODUCT, blocks ? blocks->dtype : 0));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_scatter(&c, blocks, others, indices, accumulators));
    return bsri_scatter_start(&c, blocks, others, indices, accumulators, &plan, BSRI_PLAN_AND_RUN);
}

/* One batch item of a dense operand. */
static bsr_dense bsri_dense_item(const bsri_batch *batch, int64_t item, const bsr_dense *d) {
    bsr_dense one = *d;
    one.data = bsri_at(d->data, d->dtype, bsri_dense_offset(batch, item, d));
    one.batch_dims = 0;
    return one;
}
/* The same memory as a (rows/r) x (cols/c) batch of r x c tiles. */
static bsr_dense bsri_dense_tiles(bsr_dense d, int64_t r, int64_t cols) {
    bsr_dense t = d;
    t.batch_dims = 2, t.rows = r, t.cols = cols;
    t.batch[0] = d.rows / r, t.batch[1] = d.cols / cols;
    t.batch_stride[0] = r * d.row_stride, t.batch_stride[1] = cols * d.col_stride;
    return t;
}
/* The stored blocks of a 2-D matrix as a batch. */
static bsr_dense bsri_dense_blocks(const bsr_matrix *a) {
    bsr_dense d;
    int64_t s[3];
    bsri_value_strides(a, s);
    d = bsr_dense_strided(a->values, a->dtype, a->block_rows, a->block_cols, s[1], s[2]);
    return bsr_dense_batched(d, a->nnz, s[0]);
}

static bsr_status bsri_check_dense_scatter(const bsri_call *c, const bsr_matrix *a, const bsr_dense *b,
                                           const bsr_scatter_indices *x, const bsr_dense *out) {
    const int64_t split_n = x && x->split_n ? x->split_n : 1;
    bsri_product_call p;
    bsri_scatter_shape s;
    bsri_spans set;
    memset(&p, 0, sizeof p);
    p.a = a, p.b = b, p.out = out, p.alpha = 1.0, p.id_a = BSR_ARG_A, p.id_b = BSR_ARG_B, p.id_out = BSR_ARG_OUT;
    set.count = 0;
    BSRI_TRY(bsri_check_product_operands(c, &p, &set));
    if (a->batch_dims) return bsri_fail_wanted(c, BSR_ITEM_BATCH_DIMS, BSR_ARG_A, -1, a->batch_dims, 0);
    BSRI_TRY(bsri_check_product(c, &p, &set));
    BSRI_TRY(bsri_check_indices(c, x, b->cols));
    if (b->cols % split_n) return bsri_fail_wanted(c, BSR_ITEM_SPLIT_N, BSR_ARG_INDICES, -1, split_n, b->cols);
    memset(&s, 0, sizeof s);
    s.blocks = a->nnz, s.ms = a->block_rows, s.ks = a->block_cols, s.ns = b->cols / split_n;
    s.m = a->rows, s.k = a->cols, s.n = b->cols;
    if (!bsri_mul(bsri_block_rows(a), split_n, &s.tiles)) s.tiles = INT64_MAX - 1; /* without columns; no list is as long */
    if (!bsri_mul(bsri_block_cols(a), split_n, &s.sources)) s.sources = INT64_MAX;
    BSRI_TRY(bsri_check_scatter_spans(c, &set, x));
    return bsri_check_scatter_indices(c, x, &s);
}

/* The scatter itself, one product for each batch item in the format that names whole tiles. */
static bsr_status bsri_dense_scatter_start(const bsri_call *c, const bsr_matrix *a, const bsr_dense *b,
                                           const bsr_scatter_indices *x, const bsr_dense *out, bsr_plan *plan, int step) {
    const bsr_dense blocks = bsri_dense_blocks(a);
    const bsri_batch batch = bsri_batch_of(b->batch_dims, b->batch);
    const int64_t ns = b->cols / (x->split_n ? x->split_n : 1);
    int64_t i;
    if (step == BSRI_PLAN_ONLY) *plan = bsri_plan_default(c);
    if (!a->nnz || !b->cols || !a->cols) return BSR_OK;
    if (x->format != BSR_SCATTER_MM) return bsri_scatter_start(c, &blocks, b, x, out, plan, step);
    for (i = 0; i < (step == BSRI_PLAN_ONLY ? bsri_min(1, batch.count) : batch.count); i++) {
        const bsr_dense one = bsri_dense_item(&batch, i, b), result = bsri_dense_item(&batch, i, out);
        const bsr_dense tiles = bsri_dense_tiles(one, a->block_cols, ns), acc = bsri_dense_tiles(result, a->block_rows, ns);
        BSRI_TRY(bsri_scatter_start(c, &blocks, &tiles, x, &acc, plan, step));
    }
    return BSR_OK;
}

BSR_API bsr_status bsr_dense_scatter_mm(const bsr_context *ctx, const bsr_matrix *a, const bsr_dense *b,
                                        const bsr_scatter_indices *indices, const bsr_dense *out, const bsr_exec *exec) {
    bsri_call c, clear;
    bsr_plan plan, zero_plan;
    bsr_exec open;
    bsri_product_call zero;
    int stop;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SCATTER_MM, exec));
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_PRODUCT, a ? a->dtype : 0));
    if (bsri_checking(&c)) BSRI_TRY(bsri_check_dense_scatter(&c, a, b, indices, out));
    BSRI_TRY(bsri_dense_scatter_start(&c, a, b, indices, out, &plan, BSRI_PLAN_ONLY));
    BSRI_TRY(bsri_plan_settle(&c, &plan, &stop));
    if (stop) return BSR_OK;
    open = *c.exec, open.plan = NULL, clear = c, clear.exec = &open; /* the caller's plan is the scatter's */
    memset(&zero, 0, sizeof zero);                                   /* tiles that no entry names stay zero */
    zero.a = a, zero.b = b, zero.out = out;
    BSRI_TRY(bsri_product_start(&clear, &zero, &zero_plan, BSRI_PLAN_AND_RUN));
    return bsri_dense_scatter_start(&c, a, b, indices, out, &plan, BSRI_RUN_ONLY);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-calls: checks and public function                                                      */
/* ---------------------------------------------------------------------------------------------- */

typedef struct bsri_sampled_call {
    double alpha, beta;
    const bsr_matrix *input, *out;
    const bsr_dense *mat1, *mat2;
    int32_t id_1, id_2, id_out, reduce;
} bsri_sampled_call;

static bsr_status bsri_check_sampled_operands(const bsri_call *c, const bsri_sampled_call *p, bsri_spans *set) {
    BSRI_TRY(bsri_check_dense(c, set, p->mat1, p->id_1, BSRI_OPERANDS, BSRI_READ));
    BSRI_TRY(bsri_check_dense(c, set, p->mat2, p->id_2, BSRI_OPERANDS, BSRI_READ));
    BSRI_TRY(bsri_check_matrix_sizes(c, p->out, p->id_out));
    return bsri_check_dtype(c, p->out->dtype, BSRI_FLOATS | BSRI_INTS, p->id_out);
}

/* input: null, or a matrix of out's pattern whose values are read only when beta is not zero. */
static bsr_status bsri_check_sampled_input(const bsri_call *c, const bsri_sampled_call *p, bsri_spans *set) {
    const uint32_t accepted = BSRI_INTS & BSRI_BIT(p->out->dtype) ? BSRI_INTS : BSRI_FLOATS;
    if (!p->input) return p->beta == 0 ? BSR_OK : bsri_fail(c, BSR_ITEM_BETA_INPUT, BSR_ARG_INPUT, -1, 0);
    if (p->beta != 0 && (p->input->dtype == BSR_BOOL || (!p->input->values && p->input->nnz)))
        return bsri_fail(c, BSR_ITEM_BETA_BOOL, BSR_ARG_INPUT, -1, 0);
    BSRI_TRY(bsri_check_matrix(c, set, p->input, BSR_ARG_INPUT, accepted, p->beta != 0 ? BSRI_READ : BSRI_PATTERN));
    BSRI_TRY(bsri_check_same_sizes(c, p->out, p->input, BSR_ARG_INPUT));
    return bsri_check_structure(c, p->input, BSR_ARG_INPUT, 0);
}

static bsr_status bsri_check_sampled(const bsri_call *c, const bsri_sampled_call *p, bsri_spans *set) {
    bsri_batch batch = bsri_batch_none();
    if (p->mat1->rows != p->out->rows)
        return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, p->id_1, -1, p->mat1->rows, p->out->rows);
    if (p->mat2->cols != p->out->cols)
        return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, p->id_2, -1, p->mat2->cols, p->out->cols);
    if (p->mat2->rows != p->mat1->cols)
        return bsri_fail_wanted(c, BSR_ITEM_INNER_MISMATCH, p->id_2, -1, p->mat2->rows, p->mat1->cols);
    BSRI_TRY(bsri_check_pair_dtypes(c, p->mat1->dtype, p->mat2->dtype, p->id_2, p->out->dtype, p->id_out));
    BSRI_TRY(bsri_check_whole(c, p->out->dtype, p->alpha, p->beta));
    BSRI_TRY(bsri_join(c, &batch, p->mat1->batch_dims, p->mat1->batch, p->id_1));
    BSRI_TRY(bsri_join(c, &batch, p->mat2->batch_dims, p->mat2->batch, p->id_2));
    if (p->reduce) BSRI_TRY(bsri_check_batch_fits(c, &batch, p->out->batch_dims, p->out->batch, p->id_out));
    if (p->input) BSRI_TRY(bsri_check_batch(c, p->input->batch_dims, p->input->batch, BSR_ARG_INPUT));
    if (p->input) BSRI_TRY(bsri_join(c, &batch, p->input->batch_dims, p->input->batch, BSR_ARG_INPUT));
    BSRI_TRY(bsri_check_sampled_input(c, p, set));
    BSRI_TRY(bsri_check_matrix_same(c, set, p->out, p->id_out, BSRI_FLOATS | BSRI_INTS, BSRI_WRITE, BSRI_MAY_BE(BSR_ARG_INPUT)));
    BSRI_TRY(bsri_join(c, &batch, p->out->batch_dims, p->out->batch, p->id_out)); /* patterns of its own are allowed */
    if (!p->reduce) BSRI_TRY(bsri_check_batch_out(c, &batch, p->out->batch_dims, p->out->batch, p->id_out));
    else BSRI_TRY(bsri_check_batch_sum(c, &batch, p->out->batch_dims, p->out->batch, p->id_out));
    BSRI_TRY(bsri_check_structure(c, p->out, p->id_out, 0));
    return p->input ? bsri_check_same_pattern(c, p->out, p->input, BSR_ARG_INPUT) : BSR_OK;
}

/* *plan: written, except by BSRI_RUN_ONLY. */
static bsr_status bsri_sampled_start(const bsri_call *c, const bsri_sampled_call *p, bsr_plan *plan, int step) {
    bsr_tune_row key =
        bsri_tune_key(BSR_OP_SAMPLED_ADDMM, p->mat1->dtype, p->out->dtype, p->out, p->out->rows, p->mat1->cols, p->out->cols);
    bsri_batch batch = bsri_batch_none();
    bsri_sampled job;
    int stop;
    memset(&job, 0, sizeof job);
    bsri_batch_join(&batch, p->mat1->batch_dims, p->mat1->batch);
    bsri_batch_join(&batch, p->mat2->batch_dims, p->mat2->batch);
    bsri_batch_join(&batch, p->out->batch_dims, p->out->batch);
    job.out = p->out, job.input = p->input, job.mat1 = p->mat1, job.mat2 = p->mat2, job.alpha = p->alpha, job.beta = p->beta;
    job.compute = bsri_compute_dtype(c, p->mat1->dtype), job.batch = batch;
    if (step != BSRI_RUN_ONLY) {
        *plan = bsri_plan_default(c);
        plan->tile_rows = (int32_t)bsri_tile_rows(p->out->block_rows), plan->tile_cols = (int32_t)bsri_tile_cols(job.compute);
    }
    key.beta = bsri_scalar_class(p->beta, NULL), key.alpha = bsri_scalar_class(p->alpha, NULL);
    BSRI_CUDA_RETURN(c, bsri_cuda_sampled(c, &job, &key, plan, step));
    BSRI_TRY(bsri_settle_cpu(c, &key, plan, step, &stop));
    if (stop) return BSR_OK;
    job.isa = plan->kernel;
    bsri_sampled_run(c->ctx, &job);
    return BSR_OK;
}

BSR_API bsr_status bsr_sampled_addmm(const bsr_context *ctx, double beta, const bsr_matrix *input, double alpha,
                                     const bsr_dense *mat1, const bsr_dense *mat2, const bsr_matrix *out, const bsr_exec *exec) {
    bsri_spans set;
    bsri_sampled_call p;
    bsri_call c;
    bsr_plan plan;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_SAMPLED_ADDMM, exec));
    memset(&p, 0, sizeof p);
    p.alpha = alpha, p.beta = beta, p.input = input, p.mat1 = mat1, p.mat2 = mat2, p.out = out;
    p.id_1 = BSR_ARG_MAT1, p.id_2 = BSR_ARG_MAT2, p.id_out = BSR_ARG_OUT;
    set.count = 0;
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_SAMPLED, mat1 ? mat1->dtype : 0));
    if (bsri_checking(&c)) {
        BSRI_TRY(bsri_check_sampled_operands(&c, &p, &set));
        BSRI_TRY(bsri_check_sampled(&c, &p, &set));
    }
    return bsri_sampled_start(&c, &p, &plan, BSRI_PLAN_AND_RUN);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>matmul-calls: SDD, DSD, DDS and their gradients as products and sampled products             */
/* ---------------------------------------------------------------------------------------------- */

#define BSRI_TRANS_ALL (BSR_TRANS_A | BSR_TRANS_B | BSR_TRANS_C)

/* op(C) = op(A) op(B) put into one engine's terms. Transposed views live here. */
typedef struct bsri_matmul_call {
    bsr_dense one, two, result; /* dense operands as the engine sees them */
    bsri_product_call product;
    bsri_sampled_call sampled;
    int32_t is_sampled, id_a, id_b, id_c, reduce;
    uint64_t turned; /* for bsri_call */
} bsri_matmul_call;

static bsr_status bsri_check_operand(const bsri_call *c, bsr_operand o, int id) {
    if ((o.dense != NULL) == (o.sparse != NULL)) return bsri_fail(c, BSR_ITEM_OPERAND_KIND, id, -1, o.dense != NULL);
    return BSR_OK;
}
static bsr_dense bsri_maybe_transposed(bsri_matmul_call *m, const bsr_dense *d, int id, int transposed) {
    if (transposed) m->turned |= BSRI_MAY_BE(id);
    return transposed ? bsr_dense_transposed(*d) : *d;
}

/* Which engine, with which views. DDS is the transposed problem: op(C)^T = op(B)^T op(A)^T. */
static bsr_status bsri_matmul_map(const bsri_call *c, bsri_matmul_call *m, uint32_t trans, bsr_operand a, bsr_operand b,
                                  bsr_operand out) {
    const int ta = (trans & BSR_TRANS_A) != 0, tb = (trans & BSR_TRANS_B) != 0, tc = (trans & BSR_TRANS_C) != 0;
    const int sparse = (a.sparse != NULL) + (b.sparse != NULL) + (out.sparse != NULL);
    bsri_product_call *p = &m->product;
    BSRI_TRY(bsri_check_operand(c, a, m->id_a));
    BSRI_TRY(bsri_check_operand(c, b, m->id_b));
    BSRI_TRY(bsri_check_operand(c, out, m->id_c));
    if (sparse != 1) return bsri_fail(c, BSR_ITEM_MODE, BSR_ARG_NONE, -1, sparse);
    memset(p, 0, sizeof *p), memset(&m->sampled, 0, sizeof m->sampled);
    m->is_sampled = out.sparse != NULL, m->turned = 0;
    if (m->is_sampled) { /* SDD; with TRANS_C the stored matrix is op(B)^T op(A)^T */
        const bsr_dense one = bsri_maybe_transposed(m, a.dense, m->id_a, ta != tc);
        const bsr_dense two = bsri_maybe_transposed(m, b.dense, m->id_b, tb != tc);
        m->one = tc ? two : one, m->two = tc ? one : two;
        m->sampled.alpha = 1.0, m->sampled.mat1 = &m->one, m->sampled.mat2 = &m->two, m->sampled.out = out.sparse;
        m->sampled.id_1 = tc ? m->id_b : m->id_a, m->sampled.id_2 = tc ? m->id_a : m->id_b, m->sampled.id_out = m->id_c;
        m->sampled.reduce = m->reduce;
        return BSR_OK;
    }
    p->alpha = 1.0, p->id_out = m->id_c, p->reduce = m->reduce, p->b = &m->one, p->out = &m->result;
    if (a.sparse) { /* DSD */
        p->a = a.sparse, p->trans = ta, p->id_a = m->id_a, p->id_b = m->id_b;
        m->one = bsri_maybe_transposed(m, b.dense, m->id_b, tb), m->result = bsri_maybe_transposed(m, out.dense, m->id_c, tc);
    } else { /* DDS */
        p->a = b.sparse, p->trans = !tb, p->id_a = m->id_b, p->id_b = m->id_a;
        m->one = bsri_maybe_transposed(m, a.dense, m->id_a, !ta), m->result = bsri_maybe_transposed(m, out.dense, m->id_c, !tc);
    }
    return BSR_OK;
}
static bsr_status bsri_matmul_check(const bsri_call *call, const bsri_matmul_call *m, bsri_spans *set) {
    bsri_call c = *call;
    c.turned = m->turned;
    if (m->is_sampled) {
        BSRI_TRY(bsri_check_sampled_operands(&c, &m->sampled, set));
        return bsri_check_sampled(&c, &m->sampled, set);
    }
    BSRI_TRY(bsri_check_product_operands(&c, &m->product, set));
    return bsri_check_product(&c, &m->product, set);
}
static bsr_status bsri_matmul_start(const bsri_call *c, const bsri_matmul_call *m, bsr_plan *plan, int step) {
    return m->is_sampled ? bsri_sampled_start(c, &m->sampled, plan, step) : bsri_product_start(c, &m->product, plan, step);
}
static int bsri_operand_dtype(bsr_operand o) { return o.dense ? o.dense->dtype : o.sparse ? o.sparse->dtype : 0; }

BSR_API bsr_status bsr_matmul(const bsr_context *ctx, uint32_t trans, bsr_operand a, bsr_operand b, bsr_operand c_out,
                              const bsr_exec *exec) {
    bsri_matmul_call m;
    bsri_spans set;
    bsri_call c;
    bsr_plan plan;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_MATMUL, exec));
    if (trans & ~BSRI_TRANS_ALL) return bsri_fail(&c, BSR_ITEM_RESERVED, BSR_ARG_NONE, -1, (int64_t)trans);
    m.id_a = BSR_ARG_A, m.id_b = BSR_ARG_B, m.id_c = BSR_ARG_C, m.reduce = 0, set.count = 0;
    BSRI_TRY(bsri_matmul_map(&c, &m, trans, a, b, c_out));
    BSRI_TRY(bsri_check_compiled(&c, m.is_sampled ? BSRI_HAS_SAMPLED : BSRI_HAS_PRODUCT, bsri_operand_dtype(a)));
    if (bsri_checking(&c)) BSRI_TRY(bsri_matmul_check(&c, &m, &set));
    return bsri_matmul_start(&c, &m, &plan, BSRI_PLAN_AND_RUN);
}

/* The two gradients are written one after the other: neither may overlap anything that the other call reads. */
static bsr_status bsri_check_written(const bsri_call *c, const bsri_spans *set) {
    int i, j;
    for (i = 0; i < set->count; i++)
        for (j = 0; j < set->count && set->span[i].written; j++) {
            const int item = i != j ? bsri_spans_overlap(&set->span[i], &set->span[j]) : 0;
            if (item) return bsri_fail(c, item, set->span[i].operand, -1, set->span[j].operand);
        }
    return BSR_OK;
}

/* A gradient dx has the form of its operand x, pattern included, and x's batch dimensions. x's numbers are not read for it,
   so nothing else looks at x where it is the only gradient: x has the other operand's type, and its pattern is read. */
static bsr_status bsri_check_gradient_form(const bsri_call *c, bsri_spans *set, bsr_operand x, int id_x, int dtype,
                                           bsr_operand dx, int id) {
    const int32_t have = dx.sparse ? dx.sparse->batch_dims : dx.dense->batch_dims;
    const int32_t want = x.sparse ? x.sparse->batch_dims : x.dense->batch_dims;
    const int64_t *have_size = dx.sparse ? dx.sparse->batch : dx.dense->batch;
    const int64_t *want_size = x.sparse ? x.sparse->batch : x.dense->batch;
    bsri_batch batch = bsri_batch_none();
    if ((x.sparse != NULL) != (dx.sparse != NULL)) return bsri_fail(c, BSR_ITEM_OPERAND_KIND, id, -1, dx.dense != NULL);
    if (x.sparse) {
        BSRI_TRY(bsri_check_matrix(c, set, x.sparse, id_x, 0, BSRI_PATTERN));
        BSRI_TRY(bsri_check_dtype(c, x.sparse->dtype, BSRI_OPERANDS, id_x));
    } else BSRI_TRY(bsri_check_dense_sizes(c, x.dense, id_x, BSRI_OPERANDS));
    if (bsri_operand_dtype(x) != dtype)
        return bsri_fail_wanted(c, BSR_ITEM_DTYPE_MISMATCH, id_x, -1, bsri_operand_dtype(x), dtype);
    BSRI_TRY(bsri_join(c, &batch, want, want_size, id_x));
    BSRI_TRY(bsri_check_batch_out(c, &batch, have, have_size, id));
    if (x.sparse) return bsri_check_same_pattern(c, x.sparse, dx.sparse, id);
    if (x.dense->rows != dx.dense->rows)
        return bsri_fail_wanted(c, BSR_ITEM_ROWS_MISMATCH, id_x, -1, x.dense->rows, dx.dense->rows);
    if (x.dense->cols != dx.dense->cols)
        return bsri_fail_wanted(c, BSR_ITEM_COLS_MISMATCH, id_x, -1, x.dense->cols, dx.dense->cols);
    return BSR_OK;
}

/* A dense dc has the batch that the forward result had. (A sparse one, as SDD's result, may have patterns of its own.) */
static bsr_status bsri_check_gradient_batch(const bsri_call *c, bsr_operand a, bsr_operand b, const bsr_dense *dc) {
    const bsr_operand side[2] = {a, b};
    const int id[2] = {BSR_ARG_A, BSR_ARG_B};
    bsri_batch batch = bsri_batch_none();
    int i;
    for (i = 0; i < 2; i++) {
        const int32_t dims = side[i].sparse ? side[i].sparse->batch_dims : side[i].dense->batch_dims;
        const int64_t *size = side[i].sparse ? side[i].sparse->batch : side[i].dense->batch;
        BSRI_TRY(bsri_check_batch(c, dims, size, id[i]));
        BSRI_TRY(bsri_join(c, &batch, dims, size, id[i]));
    }
    BSRI_TRY(bsri_check_batch(c, dc->batch_dims, dc->batch, BSR_ARG_DC));
    return bsri_check_batch_out(c, &batch, dc->batch_dims, dc->batch, BSR_ARG_DC);
}

/* da and db are two matmuls: op(dA) = op(dC) op(B)^T and op(dB) = op(A)^T op(dC). */
BSR_API bsr_status bsr_matmul_backward(const bsr_context *ctx, uint32_t trans, bsr_operand a, bsr_operand b, bsr_operand dc,
                                       bsr_operand da, bsr_operand db, const bsr_exec *exec) {
    const uint32_t ta = trans & BSR_TRANS_A, tb = trans & BSR_TRANS_B, tc = trans & BSR_TRANS_C;
    const int want_a = da.dense || da.sparse, want_b = db.dense || db.sparse;
    bsri_matmul_call for_a, for_b;
    bsri_spans set;
    bsri_call c;
    bsr_plan plan, plan_b;
    int stop, check;
    BSRI_TRY(bsri_begin(&c, ctx, BSR_OP_MATMUL_BACKWARD, exec));
    check = bsri_checking(&c);
    if (trans & ~BSRI_TRANS_ALL) return bsri_fail(&c, BSR_ITEM_RESERVED, BSR_ARG_NONE, -1, (int64_t)trans);
    BSRI_TRY(bsri_check_compiled(&c, BSRI_HAS_PRODUCT && BSRI_HAS_SAMPLED, bsri_operand_dtype(dc)));
    BSRI_TRY(bsri_check_operand(&c, a, BSR_ARG_A));
    BSRI_TRY(bsri_check_operand(&c, b, BSR_ARG_B));
    BSRI_TRY(bsri_check_operand(&c, dc, BSR_ARG_DC));
    for_a.id_a = BSR_ARG_DC, for_a.id_b = BSR_ARG_B, for_a.id_c = BSR_ARG_DA, for_a.reduce = 1;
    for_b.id_a = BSR_ARG_A, for_b.id_b = BSR_ARG_DC, for_b.id_c = BSR_ARG_DB, for_b.reduce = 1;
    set.count = 0;
    plan = plan_b = bsri_plan_default(&c);
    if (want_a) {
        const uint32_t flags = (tc ? BSR_TRANS_A : 0) | (tb ? 0 : BSR_TRANS_B) | (ta ? BSR_TRANS_C : 0);
        BSRI_TRY(bsri_matmul_map(&c, &for_a, flags, dc, b, da));
        if (check) BSRI_TRY(bsri_matmul_check(&c, &for_a, &set));
        if (check) BSRI_TRY(bsri_check_gradient_form(&c, &set, a, BSR_ARG_A, bsri_operand_dtype(b), da, BSR_ARG_DA));
        BSRI_TRY(bsri_matmul_start(&c, &for_a, &plan, BSRI_PLAN_ONLY));
    }
    if (want_b) {
        const uint32_t flags = (ta ? 0 : BSR_TRANS_A) | (tc ? BSR_TRANS_B : 0) | (tb ? BSR_TRANS_C : 0);
        BSRI_TRY(bsri_matmul_map(&c, &for_b, flags, a, dc, db));
        if (check) BSRI_TRY(bsri_matmul_check(&c, &for_b, &set));
        if (check) BSRI_TRY(bsri_check_gradient_form(&c, &set, b, BSR_ARG_B, bsri_operand_dtype(a), db, BSR_ARG_DB));
        BSRI_TRY(bsri_matmul_start(&c, &for_b, &plan_b, BSRI_PLAN_ONLY));
    }
    if (check) BSRI_TRY(bsri_check_written(&c, &set));
    if (check && dc.dense) BSRI_TRY(bsri_check_gradient_batch(&c, a, b, dc.dense));
    plan = !want_b ? plan : !want_a ? plan_b : bsri_plan_both(&plan, &plan_b); /* one plan speaks for both products */
    if (want_a && want_b && c.exec->query && c.exec->key) memset(c.exec->key, 0, sizeof *c.exec->key); /* no key does */
    BSRI_TRY(bsri_plan_settle(&c, &plan, &stop));
    if (!stop && want_a) BSRI_TRY(bsri_matmul_start(&c, &for_a, &plan, BSRI_RUN_ONLY));
    return stop || !want_b ? BSR_OK : bsri_matmul_start(&c, &for_b, &plan, BSRI_RUN_ONLY);
}

#ifdef BSRI_CHOOSERS /* BSRI_CUDA, or a C++ program that tests the choosers alone */
} /* extern "C": tiles and kernels are templates */

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-types: what kernels of products, sampled products, softmax and attention are given      */
/* ---------------------------------------------------------------------------------------------- */

/* A tensor map as the driver encodes it: CUtensorMap, which wants 64 bytes in CUDA 12 and 128 in 13. */
typedef struct alignas(128) bsri_tma_map {
    uint64_t opaque[16];
} bsri_tma_map;

/* A batch as the last two dimensions of a tensor map. An item's coordinates come from its offset in elements. */
typedef struct bsri_tensor_batch {
    int64_t size[2], stride[2]; /* in elements, ascending; stride 0: no such dimension */
} bsri_tensor_batch;
/* 0: more dimensions than that, or items that overlap. */
static int bsri_tensor_batch_of(int32_t dims, const int64_t *size, const int64_t *stride, bsri_tensor_batch *b) {
    int64_t n[4], s[4], swap;
    int i, j, count = 0;
    b->size[0] = b->size[1] = 1, b->stride[0] = b->stride[1] = 0;
    for (i = 0; i < dims; i++) {
        if (size[i] <= 1 || !stride[i]) continue;
        if (stride[i] < 0) return 0;
        n[count] = size[i], s[count++] = stride[i];
    }
    for (i = 1; i < count; i++)
        for (j = i; j > 0 && s[j] < s[j - 1]; j--)
            swap = s[j], s[j] = s[j - 1], s[j - 1] = swap, swap = n[j], n[j] = n[j - 1], n[j - 1] = swap;
    for (i = 0, j = -1; i < count; i++) {
        if (j >= 0 && s[i] == b->stride[j] * b->size[j]) {
            b->size[j] *= n[i];
            continue;
        }
        if (j == 1 || (j >= 0 && s[i] <= b->stride[j] * (b->size[j] - 1))) return 0;
        j++, b->size[j] = n[i], b->stride[j] = s[i];
    }
    return 1;
}

/* Blocks of op(A) seen as tiles, rows x cols of them in each block: line n of the list is row n % rows of stored line n / rows,
   and has `cols` tiles for each stored entry, entry n of all being column n % cols of stored entry n / cols. Nothing is copied:
   kernels read a matrix's index arrays by these numbers. by_rows, by_cols: 2^32 / rows and cols, up, by which numbers are divided
   (exactly, below 2^32 / (cols - 1)); 0 for 1. */
typedef struct bsri_list_view {
    int32_t rows, cols;
    uint32_t by_rows, by_cols;     /* 2^32 / rows, up; for one, whose quotient is the number itself, 0, */
    uint32_t keep_rows, keep_cols; /* and all bits: a quotient without a branch, whose predicate would take a register */
} bsri_list_view;

/* A product as a kernel sees it: everything by value, element strides resolved. Where blocks are seen as tiles, all is said of
   tiles but what says `stored`. */
typedef struct bsri_dev_product {
    bsr_matrix a;
    bsr_dense b, out, input, left, right, bias, blocks; /* data null: absent */
    bsr_scatter_indices scatter;
    const double *alpha_ptr, *beta_ptr;
    const void *user_data;
    double alpha, beta;
    bsri_batch whole, out_batch, b_batch;
    bsri_view index, schedule;   /* bytes 0: absent */
    int64_t br, bc;              /* rows and products of an op(A) block */
    int64_t a_block, a_rs, a_cs; /* element strides of op(A)'s stored blocks */
    int64_t tiles, width;        /* output tiles per item, their columns */
    int64_t lines;               /* stored ones of op(A) */
    bsri_list_view view;
    int64_t items, reduce;
    int64_t panels, subs, sub_rows;
    int32_t kind, activation, trans, has_input;
    int32_t precision; /* of f32 products: 0 f32, 1 TF32, 2 three times TF32 */
    int32_t constant;  /* nothing under way writes a */
} bsri_dev_product;

/* What is done to an element when all terms are added: 0 nothing, 1 an activation that any epilogue has, 2 anything else, which
   only those have that finish elements one by one. */
BSRI_HD static int bsri_last_step(const bsri_dev_product *p) {
    return p->activation >= BSR_USER_FUNCTION_BASE ? 2 : p->activation != 0;
}

typedef struct bsri_dev_sampled {
    bsr_matrix out, input;
    bsr_dense mat1, mat2;
    double alpha, beta;
    bsri_batch whole, out_batch;
    int64_t o_strides[3], i_strides[3];
    int64_t items, reduce, panels, subs; /* cuts of a block */
    int32_t has_input;
    int32_t precision; /* as bsri_dev_product's */
    bsri_list_view view; /* out's blocks seen as tiles; then all is said of tiles but the strides */
} bsri_dev_sampled;

/* A CTA computes `group` block rows together, so that the dense operand is fetched once for all of them. Four warps build the
   list of columns that any of the rows has (their union) part by part, and fetch by it; the others multiply. An entry of the list
   says which of the rows have a block in that column. */
enum { BSRI_CHUNK = 512, BSRI_GROUP = 16, BSRI_PRODUCERS = 128 };

/* What the index arrays of one problem item look like from op(A). */
struct bsri_mma_rows {
    const void *ptr, *col, *position; /* position: null where entries are numbered like the blocks */
    const char *values, *b;
    int dt;
};

/* the epilogue goes by 16 x 64 sums, or 16 x 32 of 8 bytes, rows padded */
enum { BSRI_MMA_PAD = 68, BSRI_MMA_PAD_F64 = BSRI_MMA_PAD / 2, BSRI_MMA_PASS = 16 * BSRI_MMA_PAD + 64 };

typedef struct bsri_dev_mma {
    bsri_mma_rows rows; /* of the only item and reduction, where there is one */
    int64_t slabs; /* tiles of an item: slabs of columns; groups of rows run fastest, so that a slab stays in the L2 */
    /* bytes: between lines of values as stored, slices and blocks of them, m-warps, copies of one thread; between lines of b,
       copies of one thread */
    int64_t a_line, a_step, a_block, a_part, a_jump, b_line, b_jump, width;
    int32_t group, sub_bits;                                 /* block rows of a tile; log2 of the slices of a block */
    int32_t stages, stage_bytes, b_at;                       /* slots, bytes of one, where its dense slices start */
    int32_t m_warps, block_bits;                             /* m-warps of the CTA; log2 of those that share a block row */
    int32_t a_trans, vector; /* values are stored transposed; epilogue: 1 rows, 2 columns of out by 16 bytes, 0 one by one */
    int32_t order, simple;   /* of tiles: 0 slab by slab, 1 group by group; as in bsri_facts */
    /* Of short products. Tiles of all items, block rows of one; warps of a tile; index arrays may be read at once. */
    int32_t total, lines, split, constant;
    uint32_t split_bits, by, by_inverse;   /* log2 of split (kept, as computing it spills registers); what tiles are numbered by,
                                              and (2^32 - 1) / by */
    int32_t near;                          /* warps of a CTA bring the same values */
    float alpha; /* where nothing else is to be done; so is out */
    int32_t b_rows; /* the dense operand is row-major, else column-major */
    bsri_list_view view; /* as in p; and bytes from a tile of a stored block to the one below, to the one beside it */
    int32_t down, right;
    char *out;
    int64_t out_row, out_col;
    const char *input; /* of short products: added to all sums, lies as out does; or null */
    int64_t input_row, input_col;
    float beta;
    bsri_dev_product p; /* last: parameters are fetched by lines */
} bsri_dev_mma;

/* A CTA computes up to `blocks` neighbours of one block row: all lines of mat1's block row against their columns of mat2. */
typedef struct bsri_dev_mma_sampled {
    bsri_dev_sampled p;
    int64_t tiles;          /* of an item, at most: nnz / blocks + block rows */
    int64_t a_line, b_line; /* bytes between lines of mat1 and mat2 as stored */
    int64_t a_step, b_step; /* bytes of a step of KS products */
    int32_t blocks, m_warps, n_warps, steps, stages, stage_bytes, vector, a_trans, b_rows;
    bsri_list_view view; /* as in p */
} bsri_dev_mma_sampled;

/* A CTA computes MI x 16 rows of a block row and all columns, NI x 8 of them; its warps share the products and add up in order.
   Such a product takes microseconds, most of them a chain of latencies: launch, parameters, row pointers, values, dense rows,
   sums. So a launch may start while the one before it still runs, and its CTAs ask the L2 for the values before they know the
   index arrays. What a product without batches needs comes first in the parameters, as those are fetched by lines (note N17). */
typedef struct bsri_dev_narrow_mma {
    bsri_mma_rows rows; /* of the only item and reduction */
    char *out;
    int64_t a_line, a_block;                /* bytes: from row to row of a block, from block to block */
    int64_t b_row, b_col, out_row, out_col; /* element strides */
    int64_t work, tiles;                    /* pieces of work; block rows of an item */
    int64_t ahead, stream;                  /* bytes of values that each CTA asks the L2 for; of all of them */
    int64_t col_ahead, col_stream;          /* the same of column indices */
    int32_t bits, width, subs;              /* log2 of a block's products; columns; cuts of a block row */
    int32_t bc;                             /* products of a block, */
    uint32_t by_bc;                         /* and 16 times 2^32 / bc, up, where they are no power of two; else 0 */
    int32_t vec2;                          /* rows of b can be read by two elements */
    int32_t single, plain, out_dtype;       /* one item, one reduction; and nothing but the product is stored, as out_dtype */
    bsri_dev_product p;
} bsri_dev_narrow_mma;

/* Products bound by the values' bytes take microseconds, most of them a chain of latencies. In a kernel this short each
   instruction costs several times what it does elsewhere, because code and parameters are fetched as it runs. So the copy engine
   computes the addresses: a warp has blocks of its own (MI x 16 rows, 64 products). Each comes to shared memory with its rows of
   b by two instructions and is multiplied by mma.sync. The warps of a CTA take the blocks of one such strip in turn and add up in
   their order. Where a warp has too few registers for the sums (64 x 64), four warps take a block together, by wgmma; strips of
   32 rows with more than 32 columns are shared by two CTAs. The tiles of 64 x 64 and 64 x 128 also take products of any width
   that have hardly more tiles than there are places for. A launch starts while the one before it runs, and brings values to the
   L2 by addresses that need no index. With BSR_EXEC_CONSTANT_MATRIX blocks come to shared memory before the one before has ended.
   Figures: note N17. */
typedef struct bsri_dev_narrow_tma {
    bsri_tma_map a_map, b_map;
    const char *ptr, *col, *values;
    const char *input;                  /* where the sums are scaled: added, or null */
    char *out;
    int64_t out_row, out_col, in_line;  /* element strides; of input's rows, or columns where those are out's lines */
    uint32_t ahead, pieces;             /* bytes of values that a CTA brings to the L2; how many CTAs do */
    uint32_t col_lines, ptr_lines;      /* of 128 bytes of index arrays, that they ask for */
    int32_t dt, strips;                 /* of indices; strips of all */
    bsri_list_view view;                /* strips of a block row; pieces of 64 products of a block */
    int32_t sides;                      /* CTAs that have a strip's columns */
    int32_t beside, pdl_late;           /* of groups: log2 of strips whose tiles stand beside each other, then further columns;
                                       the next launch may start once all blocks are asked for, not at once */
    int32_t warps, stages;               /* warps, or groups of them; blocks of each at a time */
    int32_t bc, width;                  /* products of a block; columns */
    int32_t columns, fold, swizzle;     /* products run along b; log2 of its rows in 128 bytes, of a swizzled row's pieces - 1 */
    int32_t vec2, constant;            /* out takes them: 1 along rows, 2 along columns, else 0 (where warps take a block
                                           together: eights, either way); a may be read at once */
    int32_t scaled;                     /* pairs, by alpha, and beta times an input is added */
    float alpha, beta;
    bsri_dev_product p;
} bsri_dev_narrow_tma;

/* A CTA stays and computes tiles of 128 rows by L::TN columns one after another. Its first warpgroup fetches: one warp issues
   what the copy engine brings, two make the lists of it, each for every second tile, and one says which tiles those are. Two
   warpgroups multiply, 64 rows each. A list is a bit set for each block row of the tile, so that it is small and a block's place
   among its row's is a count of bits. Shared memory, barriers and the order of the work are described at bsri_product_wgmma(). L
   says how a stage is filled and multiplied: TN columns, GROUP block rows at most, SLICE products along a slice, EACH slices in a
   stage, STAGE bytes, STAGES slots, BOXES for out a warp; fetch asks for a slice, source multiplies a stage. */
enum { BSRI_WGMMA_WINDOW = 16, BSRI_WGMMA_LISTERS = 2, BSRI_WGMMA_CLAIMS = 4, BSRI_WGMMA_TEAMS = 5, BSRI_WGMMA_SLOTS = 8 };

/* epilogues: none, alpha is 1 by value; alpha; a row of bias or none, too, and relu or nothing; the same and another activation;
   alpha and beta times input; all that bsri_wgmma_epilogue_tile takes; others */
enum {
    BSRI_EPILOGUE_STORE,
    BSRI_EPILOGUE_SCALE,
    BSRI_EPILOGUE_BIAS,
    BSRI_EPILOGUE_ACTIVATION,
    BSRI_EPILOGUE_INPUT,
    BSRI_EPILOGUE_ROWCOL,
    BSRI_EPILOGUE_GENERIC
};

enum { BSRI_WGMMA_ALL = 1 << 20 }; /* as a number of rounds */

/* The CTAs that start last stand where those of the kernel before ended last. They get less work, as the others have been at work
   since (note N5). */
enum { BSRI_WGMMA_LATE_CTAS = 16 };

enum { /* what an epilogue has; RISE: bias along a column; RIGHT_F32, BIAS_F32: not in 16 bits; times the activation */
    BSRI_TERM_LEFT = 1,
    BSRI_TERM_RIGHT = 2,
    BSRI_TERM_INPUT = 4,
    BSRI_TERM_RISE = 8,
    BSRI_TERM_BIAS = 16,
    BSRI_TERM_RIGHT_F32 = 32,
    BSRI_TERM_BIAS_F32 = 64,
    BSRI_TERM_ACTIVATION = 128
};

enum { BSRI_WGMMA_LAST = 1, BSRI_WGMMA_QUIT = 2, BSRI_WGMMA_FIRST = 4, BSRI_WGMMA_FLAGS = 28 };

typedef struct bsri_dev_wgmma {
    bsri_tma_map a_map, b_map, out_map;
    /* What the first tile needs comes first: parameters are fetched by lines, and each new line is a cache miss. */
    bsri_mma_rows rows;   /* of the only item and reduction */
    const void *schedule; /* where it is for this direction (its header says so) */
    int32_t single, trans;
    int32_t tiles, group_ctas;  /* tiles across out; of them those of a slab, which as many CTAs compute side by side */
    int32_t group, parts; /* block rows of a tile, slices of a block */
    bsri_list_view view;  /* as in p */
    uint32_t down;        /* rows from a tile of a stored block to the one below it */
    int32_t a_each;       /* a_step's from a stored block to the next */
    int32_t a_trans, b_rows; /* blocks are stored transposed; the dense operand is row-major */
    uint32_t a_step, a_half; /* bytes: between blocks, or tiles beside each other; between a lane's pieces of a listed block of
                                16, of a block of 32 */
    int32_t vector, epilogue; /* out is stored by the copy engine: 1 row-major, 2 column-major; BSRI_EPILOGUE_STORE, ... */
    int32_t store_registers;        /* vector 0: rows of f32 in pairs are stored as registers hold them */
    int32_t terms;         /* BSRI_TERM_...: of parameters, so that branches are known to be the same in all lanes */
    float inv_blocks_per_row,
        stages_per_block;        /* 1 / blocks of a full row; stages that a block takes, beside the dense operand's */
    float inv_stored_per_row, stages_per_stored; /* the same of stored blocks */
    int32_t full_panels;         /* out has whole pieces of 64 columns: the dense operand's are a dimension of its map */
    int32_t block_bits;    /* log2 of the rows of a block */
    int32_t items, lines;  /* of out; block rows of one */
    int32_t grid, groups_of_ctas, panels; /* CTAs, teams of span; of columns: where the caller allows the whole grid */
    int32_t fixed_stages, long_stages;         /* in stages: what a tile takes beside its own; a unit that must not come late */
    int32_t static_rounds;               /* rounds that are not dealt round the teams */
    int32_t by_windows;            /* blocks of 64 and 128, in the order of a schedule: 32 units are dealt at once */
    int32_t late_stages, mean_stages;         /* in stages: what CTAs that start last miss; a unit */
    int32_t inv_group;            /* 2^16 / span, rounded up */
    int32_t min_dim_lines;             /* block rows or columns, which are fewer: so many lines a schedule of any direction has */
    int32_t group_bits, tile_cols;
    int32_t alpha_zero; /* alpha is 0 and by value: nothing is read */
    int32_t constant; /* index arrays may be read before the kernel before this one has ended */
    int32_t evict_first;   /* out leaves the L2 before other lines */
    int32_t ahead_lines, ahead_bytes; /* of the dense operand, which tiles of the first slab read; 0: not ahead */
    int32_t dense;  /* columns of a slice of the dense operand that one box brings */
    /* Blocks of 16 and 32, the dense operand along the products: columns of blocks in a slice; where slices begin, as bits; as
       descriptors count, from a stage's first 32 products to the others, and what they say beside the address. */
    int32_t join;
    uint32_t desc_mask, desc_step, desc_hi;
    int32_t listed; /* a row's blocks do not stand one after another, or are stored transposed */
    int64_t a_line;   /* bytes between lines of values as stored */
    int64_t b_line;   /* of the dense operand's */
    int64_t patterns; /* of the matrix's batch */
    bsri_tensor_batch a_batch, b_batch, o_batch;
    bsri_dev_product p;
} bsri_dev_wgmma;

/* A tile is 64 or 128 rows of mat1, one group of block rows, times up to 512 or 256 gathered columns of mat2: the union of the
   columns that the group stores, in entries of one block, or of 64 columns where most of them are stored. Blocks that a union
   adds are computed and not stored. Every CTA takes an equal part of the work, group by group: a group counts as many entries as
   its stored blocks let expect, were the pattern random, and a toll for its start; inside a group its entries are shared out by
   number. So rows may be of any length, and nothing has to be known of the pattern beforehand. Where tiles are as wide as two
   blocks only, and whole ones share out as well, nobody cuts one. */
enum { BSRI_WSAMPLED_DEPTH = 64, BSRI_WSAMPLED_GROUP = 8, BSRI_WSAMPLED_RING = 221184, BSRI_WSAMPLED_ROWS = 512 };

enum { BSRI_WSAMPLED_UNIT = 16, BSRI_WSAMPLED_LISTER = 3 }; /* work of an entry; the warp that writes tiles down */

/* What every CTA wants first stands first: each line of the parameters is a miss. */
typedef struct bsri_dev_wgmma_sampled {
    const void *crow, *col;        /* of the first item */
    int64_t total, area, each;     /* work of all, of an item, of a CTA in a grid of so many */
    int32_t grid, blocks;          /* stored blocks of an item */
    int32_t slope, panel, toll;    /* work of a group: for each stored block; as a whole; before its first entry */
    int32_t dt, rows, groups, group, bits; /* block rows; in a tile; log2 of the block size */
    int32_t whole, batched, parts; /* tiles may be dealt whole; there are several items; parts of a union at most */
    int32_t entries, shift;        /* entries of a tile at most; log2 of the blocks side by side in one */
    int32_t wide;                  /* 1: warpgroups share the rows, not the columns */
    bsri_list_view view;           /* as in p */
    int32_t reduce, steps, plain;
    int32_t a_across, b_across;             /* products do not run along the lines of mat1, mat2 as stored */
    int32_t a_boxes, b_boxes, a_box, b_box; /* loads of a stage and of one entry, their bytes */
    uint64_t a_kind, b_kind;                /* operands' descriptors but for the address */
    bsri_tma_map mat1, mat2;
    bsri_tensor_batch batch1, batch2;
    bsri_dev_sampled p;
} bsri_dev_wgmma_sampled;

/* What a descriptor says of a matrix in shared memory beside its address. line: bytes of a swizzled row, 128, 64 or 32; eight
   such rows follow each other, `far` is the distance of atoms along the other direction where there are several (operands stored
   along M or N wider than one row). A step of 16 products: + 32 bytes where products run along rows, + 16 rows where they do
   not. */
BSRI_HD static constexpr uint64_t bsri_wgmma_desc_bits(int line, uint32_t far) {
    return (uint64_t)(far >> 4) << 16 | (uint64_t)(8 * line >> 4) << 32 | (uint64_t)(line == 128 ? 1 : line == 64 ? 2 : 3) << 62;
}

#define BSRI_ROW_HELD 8 /* pieces of a row that a thread holds */

/* Everything by value, element strides resolved. */
typedef struct bsri_dev_softmax {
    bsr_matrix x, dy, out; /* backward: x is the forward result, dy its gradient */
    bsr_dense bias[3];     /* data null: absent */
    bsri_batch batch;
    int64_t xs[3], ds[3], os[3]; /* element strides of values: block, row, column */
    int64_t rows;                /* of all items */
    double scale;
    uint32_t divide, block; /* fast path: 2^32 / chunks rounded up (0 for 1); elements of a block */
    int32_t mode[3];        /* bsr_mask_mode of each bias */
    int32_t biased;         /* how many there are: those that are added come first, then those that forbid */
    int32_t backward;
    int32_t warps;      /* that share a row */
    int32_t side, near; /* as powers of two: rows side by side in a warp, neighbouring lanes of one row */
    int32_t chunks;     /* pieces of a block's row: 16 bytes, or an element */
    int32_t run;        /* as many times, rows one after the other by the same warps */
    int32_t lanes;      /* that share a row */
    int64_t work;       /* CTAs' worth of rows */
    int64_t bias_row[3], bias_col[3]; /* bytes from a row of a bias to the next, from a column; 0: repeated */
    int64_t step_blocks;              /* from a lane's piece to its next one: blocks, and pieces of a block's row */
    int32_t step_pieces, slots, held; /* pieces of a row that a thread has room for; bytes of the scores of one */
} bsri_dev_softmax;

typedef struct bsri_dev_attention {
    bsr_matrix mask;
    bsr_dense q, k, v, out, lse, relative, padding; /* data null: absent */
    bsri_batch batch;
    int64_t heads, k_group, v_group;          /* query heads; how many share one of k's, of v's */
    int64_t causal_offset, ms[3];             /* element strides of the mask's values */
    int64_t items, block_rows, tiles, panels; /* query tiles of a block row; panels of v's columns */
    int64_t tile_rows;                        /* query rows of a tile */
    double scale, keep_scale;
    uint64_t seed;
    const void *user_data;
    uint32_t flags, drop_last; /* dropout: words up to drop_last are dropped */
    int32_t drops, padding_mode, score_function, mask_function;
    int32_t modifies; /* is there anything but causality between product and softmax? */
    int32_t vec2;    /* may two neighbours of out be stored together? */
    float unit;       /* scale log2(e) */
    int32_t reserved;
} bsri_dev_attention;

/* Pieces that a thread has room for in shared memory: two rows of mean length and a quarter more, or a longer one. */
#define BSRI_SOFTMAX_ROOM_90 10

#define BSRI_DEV_LOG2E 1.4426950408889634f

#define BSRI_KEYS 64           /* of a key tile: four units of 16, each inside one stored block */

/* A CTA stays and takes query tiles from a list. Two warpgroups of 64 query rows multiply; one warp per stream fetches keys and
   values through a ring of slots, one more warp plans the tiles. Where block rows have 128 rows or a multiple, both warpgroups
   share one stream; else each has its own, over the union of the columns of the block rows that its 64 rows touch (at most
   four), and what is not stored for a warp's 16 rows is forbidden in registers. The order of the slots is K0, K1, V0, K2, V1,
   ..., that of their use: the scores of a key tile are formed while the values of the one before are added up. */
enum { BSRI_FLASH_LAST = 1, BSRI_FLASH_MASKED = 2, BSRI_FLASH_EMPTY = 4, BSRI_FLASH_EXIT = 8 };

enum {
    BSRI_FLASH_Q,
    BSRI_FLASH_K,
    BSRI_FLASH_V,
    BSRI_FLASH_OUT,
    BSRI_FLASH_LSE,
    BSRI_FLASH_CROW,
    BSRI_FLASH_COL,
    BSRI_FLASH_OPERANDS
};

/* Tiles are sorted longest first in windows of four per stream, and dealt so that streams get as much as each other while tiles
   at work at the same time stay near each other and share keys in the L2 (note N24). */
enum { BSRI_FLASH_WINDOW = 4, BSRI_FLASH_GRID = 132, BSRI_FLASH_BINS = 64 };

typedef struct bsri_dev_flash {
    bsri_dev_attention p;
    bsri_tensor_batch batch[3]; /* of q, k, v */
    int32_t piece, piece_bits;  /* keys of one load, all of one stored block; log2 of its columns of 8 scores */
    int32_t lane_bits, length_bits; /* log2 of the lanes that read one block row's columns; tiles' lengths count 2^bits blocks */
    int64_t step[BSRI_FLASH_OPERANDS][2]; /* elements from one batch, and from one head, to the next */
    bsri_tma_map map[3];
} bsri_dev_flash;

/* Blocks too small or too odd for tensor cores: threads, shared memory and order stand at bsri_product_tiny(). Stored blocks come
   to shared memory a chunk at a time: where `packed`, by rows, as they lie one after another, whole lines of memory at once; else
   element by element, rows side by side: parts of large blocks, other strides, and many columns, for which they become numbers
   that are added up. By the transposed index, too, each element is looked for. */
typedef struct bsri_dev_tiny {
    bsri_dev_product of;
    int64_t sets;              /* of a panel: tiles by as many as a warp takes at a time */
    int32_t log_columns, log_rows, log_blocks, log_tiles; /* the digits of a lane's number: 5 bits in all */
    int32_t each, rows;        /* rows of a lane, of a warp's part of a block */
    int32_t chunk, inner;      /* stored blocks, and of each how many columns, that are in shared memory at once */
    int32_t packed;            /* chunks are whole blocks as they lie, one after another */
    int32_t a_pieces, b_pieces; /* two or four columns of a block, elements of b, are loaded at once */
    int32_t block, row, along; /* elements in shared memory from a block to the next, from a row, from a column */
    int32_t b_row, b_block;    /* elements of b from a row to the next, from a block to the next */
    uint32_t by_block, by_row; /* 2^32 / elements of a block and of a row, up: quotients of numbers below 2^16 */
    int32_t values_bytes, bytes; /* of a warp's part: of the values in it, of all */
    int64_t long_row;          /* stored blocks: rows with more are left to others; 0: none is */
} bsri_dev_tiny;

/* Products with one column. A warp has a share of the block rows, or, where the workspace has room for pieces of rows, of the
   stored blocks (and of rows: each counts as row_keys blocks more). Its lanes are counted in four digits, from the fastest:
   pieces of a block's row (VEC columns, one load), rows of a block, stored blocks; groups, each of which has a block row. */
typedef struct bsri_dev_vector {
    bsri_dev_product of;
    void *workspace;        /* pieces of rows, then rest_at bytes behind, for each share, two numbers: see bsri_vector_rest() */
    int64_t rest_at;
    int64_t ranges, rows_each; /* shares of an item; block rows of one, where rows are whole */
    int64_t long_row;       /* stored blocks: more are multiplied by all lanes together */
    int64_t pieces, row_step; /* of a block's row; elements between rows of a lane */
    int64_t only_long;      /* only rows with more stored blocks are taken; 0: all */
    int32_t pieces_of_rows; /* 0: shares are of whole rows */
    int32_t piece_lanes, row_lanes, block_lanes, log_pieces, log_blocks, log_group; /* digits; their logarithms, up */
    int32_t rows, row_keys; /* of a block, that a warp has */
    int32_t b_row, b_block, b_pieces; /* elements of b from a row to the next, from a block to the next; VEC are loaded at once */
} bsri_dev_vector;
typedef struct bsri_tiny_params {
    bsri_dev_tiny tiny;
    bsri_dev_vector long_rows;
} bsri_tiny_params;

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-tiles: what kernels are made of: sizes, stages, threads, shared memory                  */
/* ---------------------------------------------------------------------------------------------- */

/* What a tile type says of its kernel, to the host and to the kernel alike; each has what it does not leave to this. Types of
   operands as below; 0: the chooser decides, or it does not matter. */
struct bsri_tile {
    static constexpr int ROWS = 0, COLS = 0;                 /* of a tile of out */
    static constexpr int STAGES = 1, THREADS = 0, SHARED = 0; /* of a CTA, at most; SHARED: dynamic bytes */
    static constexpr int CTAS = 0;                           /* that a multiprocessor has room for */
    static constexpr int LAYOUT = 2;                         /* the dense operand is column-major (0), row-major (1), either */
    static constexpr int HEAD = 0;                           /* columns of a head, at most */
    static constexpr int MW = 0, KS = 0, E = 0, NW = 0;      /* rows of a warp, products of a slice, slices of a stage, warps
                                                                beside each other */
    static constexpr int WARP = 0;                           /* bytes of a warp's own stages */
};

/* log2 of an element's bytes, for all dtypes: two bits each. */
#define BSRI_X(name, value, text, bytes) | (uint32_t)((bytes) == 8 ? 3 : (bytes) == 4 ? 2 : (bytes) == 2) << 2 * (value)
static constexpr uint32_t bsri_dtype_shifts = 0u BSR_DTYPE_LIST(BSRI_X);
#undef BSRI_X

/* Operands as tensor cores read them, and what is added up in; DTYPE: as stored; PRECISION: bsri_dev_product's. */
template <int DTYPE_, class SUM, int PRECISION_ = 0> struct bsri_mma_operand {
    typedef SUM sum;
    static constexpr int BYTES = 1 << (bsri_dtype_shifts >> 2 * DTYPE_ & 3), DTYPE = DTYPE_, PRECISION = PRECISION_;
    static constexpr bool INTEGER = SUM(0.5f) == SUM(0);
};
struct bsri_mma_bf16 : bsri_mma_operand<BSR_BF16, float> {};
struct bsri_mma_f16 : bsri_mma_operand<BSR_F16, float> {};
struct bsri_mma_i8 : bsri_mma_operand<BSR_I8, int32_t> {};
struct bsri_mma_f64 : bsri_mma_operand<BSR_F64, double> {};
struct bsri_mma_f32 : bsri_mma_operand<BSR_F32, float> {}; /* no tensor cores: the same tiles and pipeline, multiplied by FFMA */
struct bsri_mma_tf32 : bsri_mma_operand<BSR_F32, float, 1> {};
struct bsri_mma_tf32x3 : bsri_mma_operand<BSR_F32, float, 2> {};

/* A launch whose CTAs all run at once should spread evenly: each multiprocessor gets room for as many CTAs as its share, no more.
   That is done by asking for more shared memory than is needed. With more room, CTAs that start early crowd on the
   multiprocessors that the kernel before left first (note N14). No more is asked for than keeps one CTA more out: the rest is the
   L1's, which loads of values need. Up to eight CTAs leave room for 2 KB of static shared memory each; with more the difference
   is small. */
#define BSRI_SPREAD_SHARED (226 * 1024) /* what kernels may ask for that are spread so */

/* 256 threads own ROWS x COLS sums, RM x RN each: rows ty*RM + i, columns tx + j*(COLS/RN), so that stores of a row are
   coalesced. A: what is multiplied and added up; F: what sums are finished in. */
template <class A, class F, int ROWS_, int COLS_, int RM_, int RN_> struct bsri_simt_tile : bsri_tile {
    typedef A number;
    typedef F real;
    static constexpr int ROWS = ROWS_, COLS = COLS_, RM = RM_, RN = RN_, THREADS = 256;
    static_assert((ROWS / RM) * (COLS / RN) == THREADS, "each thread owns RM x RN sums");
};

/* A warp owns MW rows and WN columns of out; a slice is KS of a block's products; a stage is E slices. The m-warps of a CTA stand
   one above the other, each with its own part of the values: MW x KS, or KS x MW where they are stored transposed. LAYOUT: the
   dense operand is column-major (0), row-major (1), or either (2): then one kernel holds the loops for both and the code around
   them once, which costs time for some types (note N21). Everything lies in shared memory as in device memory; 16-byte pieces are
   swizzled so that ldmatrix has no bank conflicts. BN 256 leaves registers for the plain epilogue only, 128 for any. */
template <class T, int MW_, int KS_, int E_, int BN_, int NW_ = MW_ == 32 ? 2 : 1, int LAYOUT_ = 2>
struct bsri_mma_tile : bsri_tile {
    typedef T type;
    typedef bsri_mma_tile<T, MW_, KS_, E_, BN_, NW_, LAYOUT_ != 0> by_rows;
    typedef bsri_mma_tile<T, MW_, KS_, E_, BN_, NW_, LAYOUT_ == 1> by_columns;
    static constexpr int COLS = BN_, STAGES = 0, THREADS = 384, SHARED = 216 * 1024; /* rows and stages: as many as fit */
    static constexpr int MW = MW_, KS = KS_, E = E_, BN = BN_, NW = NW_, WN = BN / NW, MI = MW / 16, NI = WN / 8;
    static constexpr int LAYOUT = LAYOUT_;
    static constexpr bool B_ROWS = LAYOUT == 1, PLAIN = MI * NI == 32; /* PLAIN: 128 sums a lane */
    static constexpr int LINE = KS * T::BYTES; /* bytes of a row of KS */
    static constexpr int A_BYTES = MW * LINE, B_BYTES = BN * LINE;
    static constexpr int B_LINE = BN * T::BYTES < 512 ? BN * T::BYTES : 512; /* of a row-major slice, which lies by such parts */
    static constexpr int STEPS = LINE / 32; /* ldmatrix tiles along KS */
};

/* A tile is MW rows of one block row and COLS columns. `split` warps of a CTA share it: they take the row's steps of E slices in
   turn, each by a pipeline of its own that waits for nobody, and add up in their order. Such products are a chain of latencies
   (launch, parameters, row pointers, columns, operands, sums): no list is made, no barrier is met before the end, addresses are
   computed before memory may be read, and parameters that most calls need stand side by side. Warps of a CTA with tiles side by
   side ask for the same values at about the same time, so these go through the L1. Two slots a warp leave room for four CTAs a
   multiprocessor (CTAS), three slots for three. With four CTAs, blocks of 32 and tiles of 16 x 128 have registers for SIMPLE
   products only. The next kernel may start once a CTA's sums are made; earlier, its CTAs would crowd where this kernel's few left
   room. The choices are measured (note N15). */
template <class T, int MW, bool B_ROWS, int CTAS_, int COLS = 64>
struct bsri_small_tile : bsri_mma_tile<T, MW, MW, MW * COLS == 1024 ? 2 : 1, COLS, 1, B_ROWS> {
    typedef bsri_mma_tile<T, MW, MW, MW * COLS == 1024 ? 2 : 1, COLS, 1, B_ROWS> base;
    static constexpr int ROWS = MW, CTAS = CTAS_, SLOTS = CTAS == 4 && COLS == 64 ? 2 : 3;
    static constexpr int STAGES = SLOTS, THREADS = 128, SHARED = BSRI_SPREAD_SHARED;
    static constexpr int ACROSS = COLS / 64, PARTS = MW * COLS / 1024; /* of 16 x 64 sums: side by side, in all */
    static constexpr bool SIMPLE = PARTS == 2 && CTAS == 4; /* only what is simple, as in bsri_facts */
    static constexpr int SLICE = base::A_BYTES + base::B_BYTES, SLOT = base::E * SLICE, WARP = SLOTS * SLOT;
    static_assert(PARTS * 4096 + (SIMPLE ? 0 : BSRI_MMA_PASS * 4) <= WARP, "sums handed over, what any epilogue takes");
};

template <class T, int MI_, int NI_, bool B_ROWS_> struct bsri_narrow_mma_tile : bsri_tile {
    typedef T type;
    static constexpr int MI = MI_, NI = NI_, ROWS = MI * 16, COLS = NI * 8, THREADS = NI == 1 ? 512 : 256;
    static constexpr int SHARED = 48 * 1024, CTAS = NI == 2 ? 4 : 2, LAYOUT = B_ROWS_;
    static constexpr bool B_ROWS = B_ROWS_;
};

/* Bytes of 64 products of a strip, a block with its rows of b; of the sums of a group of warps, with room between lines. */
constexpr int bsri_narrow_tma_stage(int rows, int cols) { return (rows + cols) * 128; }
constexpr int bsri_narrow_tma_sums(int rows, int cols) { return (rows + 8) * cols * 4; }

template <class T, int MI_, int NI_> struct bsri_narrow_tma_tile : bsri_tile {
    typedef T type;
    static constexpr int MI = MI_, NI = NI_, ROWS = MI * 16, COLS = NI * 8, A_BYTES = ROWS * 128;
    static constexpr int SLOT = bsri_narrow_tma_stage(ROWS, COLS);
    static constexpr int UNIT = MI * NI > 16 ? 4 : 1, OWN = MI / UNIT; /* warps that take a block together; 16 rows: of each */
    static constexpr int SLOTS = UNIT > 1 ? 3 : 2, WARPS = 8, CTAS = NI == 4 || NI == 16 ? 2 : 3; /* at most */
    static constexpr int STAGES = SLOTS, THREADS = 32 * WARPS, SHARED = BSRI_SPREAD_SHARED;
    static constexpr bool ACROSS = NI == 8; /* contiguous columns: as rows of out's transpose */
    static constexpr int TILE = bsri_narrow_tma_sums(ROWS, COLS) / 4; /* numbers */
};

/* Blocks of 64 and 128: a stage is a slice of a block of each warpgroup's row, all in shared memory, LINE bytes of products a
   row. TA: blocks are stored transposed; TB: the dense operand is row-major; both for types of 2 bytes only. Only wgmma wants to
   know these at compile time: the loop around it is there for each, all else once. */
template <class T, int TN_, int LINE_ = 128> struct bsri_wgmma_ss : bsri_tile {
    typedef T type;
    static constexpr int TN = TN_, LINE = LINE_, GROUP = 2, JOIN = 1, SLICE = LINE / T::BYTES, EACH = 1, BLOCK = 64 * LINE,
                         DENSE = TN * LINE, STAGE = 2 * BLOCK + DENSE; /* BLOCK: 64 rows of a slice */
    static constexpr bool RS = false; /* do the multiplying warps fetch their own blocks? No: stages hold them */
    static constexpr uint32_t STAGES = 196608 / STAGE, BOXES = 2, SPARE = BOXES * 2048; /* a warp's, to store */
    static constexpr int ROWS = 128, COLS = TN, THREADS = 384, SHARED = 224 * 1024;
    static_assert(STAGES * STAGE + 8 * SPARE <= SHARED, "stages, 4 KB a multiplying warp");
};

/* Blocks of 16 and 32: a warp's strip of 16 rows lies within one block row, and is what wgmma takes from registers. So every
   multiplying warp fetches its own blocks through a ring of its own, and has zeros where its row has no block; a stage holds
   slices of the dense operand only. A warpgroup multiplies where one of its rows has a block. TB: as above, but with an
   instance each: with both loops in one kernel its epilogue spills. Where the dense operand is stored along the products, a
   slice is 64 or 128 bytes of them, up to JOIN columns of blocks: of requests the L2 takes as many, short or long. All tiles have
   256 columns (TN): narrower ones would fetch the blocks as often for fewer products. */
template <class T, int B_, int TB_> struct bsri_wgmma_rs : bsri_tile {
    typedef T type;
    static constexpr int TN = 256, B = B_, TB = TB_, GROUP = 128 / B, ITEMS = 64 / B, JOIN = TB ? 1 : ITEMS, SLICE = TB ? B : 32,
                         EACH = 64 / SLICE, DENSE = TN * SLICE * 2, STAGE = EACH * DENSE;
    /* blocks of 16: a fifth slot in place of a second box (note N8) */
    static constexpr uint32_t STAGES = B == 16 ? 5 : 4, BOXES = B == 16 ? 1 : 2, SPARE = BOXES * 2048;
    static constexpr uint32_t STRIP = 32 * B, RING = 4096, CHUNK = B == 16 ? 4 : 1, /* blocks asked for at a time */
                              CHUNKS = RING / STRIP / CHUNK;
    static constexpr bool RS = true;
    static constexpr int ROWS = 128, COLS = TN, THREADS = 384, SHARED = 208 * 1024, LAYOUT = TB;
    static_assert(STAGES * STAGE + 8 * (SPARE + RING) <= SHARED, "stages, for each multiplying warp boxes to store and a ring");
};

/* A warp owns MW x 64 sums; its columns' part of mat2 is a tile of its own. */
template <class T, int MW_, bool B_ROWS_ = false> struct bsri_mma_sampled_tile : bsri_tile {
    typedef T type;
    typedef bsri_mma_sampled_tile<T, MW_, true> by_rows;
    static constexpr int LINE = T::BYTES == 8 ? 128 : 64, STEPS = 2;
    static constexpr int THREADS = 256, CTAS = T::BYTES == 2 ? 2 : 1, SHARED = LINE / 64 * 100 * 1024;
    static constexpr int MW = MW_, KS = LINE / T::BYTES, BN = 64, WN = 64, NW = 1, MI = MW / 16, NI = 8;
    static constexpr bool B_ROWS = B_ROWS_, PLAIN = false;
    static constexpr int A_BYTES = MW * LINE, B_BYTES = BN * LINE, B_LINE = BN * T::BYTES;
};

template <class T> struct bsri_sampled_wgmma_tile : bsri_tile {
    typedef T type;
    static constexpr int THREADS = 384, SHARED = BSRI_WSAMPLED_RING;
};

/* Packed rows without biases of type T, by pieces of 16 bytes, in F. */
template <class F, bool BACKWARD_, class T> struct bsri_softmax_tile : bsri_tile {
    typedef F real;
    typedef T type;
    static constexpr bool BACKWARD = BACKWARD_;
    static constexpr int COLS = 1, THREADS = 256;
};
#define BSRI_SOFTMAX_HELD 192 /* bytes of scores that a thread has room for */
/* Rows of any kind, in F: single elements of any type, or pieces of 16 bytes that are stored in S. */
template <class F, class S = double, int PIECE_ = 1, bool BACKWARD_ = true> struct bsri_softmax_rows_tile : bsri_tile {
    typedef F real;
    typedef S type;
    static constexpr int PIECE = PIECE_, COLS = 1, THREADS = 256, CTAS = sizeof(F) == 8 ? 2 : 3;
    static constexpr int SHARED = THREADS * BSRI_SOFTMAX_HELD + 4096; /* static too: above 48 KB only where allowed */
    static constexpr bool BACKWARD = BACKWARD_;
};

/* CTAs of 1 to 4 warps, 16 MT query rows each; heads of HD columns at most. FULL: as of bsri_attention_warp. */
template <class T, int HD_, int MT_, bool FULL_> struct bsri_attention_mma_tile : bsri_tile {
    typedef T type;
    static constexpr int HD = HD_, MT = MT_, HEAD = HD, ROWS = 64 * MT, COLS = BSRI_KEYS, STAGES = 2, THREADS = 128;
    static constexpr bool FULL = FULL_;
    static constexpr int SHARED = (ROWS + 2 * COLS) * HD * 2 + (FULL ? 4 * 16 * (COLS + 4) * 4 : 0);
};

template <class T, int HD_, bool ONE_STREAM> struct bsri_flash : bsri_tile {
    typedef T type;
    static constexpr int HD = HD_, HEAD = HD, WARPGROUPS = ONE_STREAM ? 2 : 1, STREAMS = 3 - WARPGROUPS, ATOMS = HD / 64;
    static constexpr int ROWS = 64 * WARPGROUPS, KEYS = ONE_STREAM || HD == 64 ? 128 : 64, PIECES = KEYS / 16;
    static constexpr int QUERY = ROWS * HD * 2, SLOT = KEYS * HD * 2;
    static constexpr int FIT = ((224 << 10) / STREAMS - 2 * QUERY) / SLOT, SLOTS = FIT < 8 ? FIT : 8;
    static constexpr int CONTROL = 3072, STREAM = 2 * QUERY + SLOTS * SLOT, BYTES = STREAMS * STREAM + CONTROL;
    static constexpr int COLS = KEYS, STAGES = SLOTS, THREADS = 384, SHARED = BYTES;
};

/* What bsri_dev_tiny says: a lane has EACH rows; WIDE: four columns, side by side (PIECE 4) or apart (1), else one, and as many
   columns of a block as PIECE at a time. */
#define BSRI_TINY_SHARED (112 * 1024) /* two CTAs of a multiprocessor */
#define BSRI_TINY_WARPS 8
template <class T, class F, bool WIDE_, int EACH_, int PIECE_> struct bsri_tiny_tile : bsri_tile {
    typedef T type;
    typedef F real;
    static constexpr bool WIDE = WIDE_;
    static constexpr int EACH = EACH_, PIECE = PIECE_, ROWS = EACH_, COLS = PIECE_; /* of a lane, not of a tile of out */
    static constexpr int THREADS = 32 * BSRI_TINY_WARPS, SHARED = BSRI_TINY_SHARED;
    static constexpr int CTAS = WIDE && sizeof(F) == 8 && EACH > 1 ? 1 : 2;
};

#define BSRI_VECTOR_IN_FLIGHT 32
/* What bsri_dev_vector says: a lane has EACH rows, and VEC columns of a block by one load. */
template <class T, class F, int EACH_, int VEC_> struct bsri_vector_tile : bsri_tile {
    typedef T type;
    typedef F real;
    static constexpr int EACH = EACH_, VEC = VEC_, ROWS = EACH_, COLS = VEC_; /* of a lane, not of a tile of out */
    static constexpr int THREADS = 128, CTAS = 4;
    static constexpr int IN_FLIGHT = BSRI_VECTOR_IN_FLIGHT; /* bytes of values that it asks for at a time, at most */
};

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-kernels: the kernel table: every instance, and how one is found                         */
/* ---------------------------------------------------------------------------------------------- */

/* BSRI_WHEN(has, text): the text where `has` is 1, nothing where it is 0. What BSRSPARSE_NO_x and BSRSPARSE_ONLY_x leave out is
   neither in the kernel table nor named by a function that launches, so that it is never instantiated. */
#define BSRI_WHEN(has, ...) BSRI_WHEN_OF(has, __VA_ARGS__)
#define BSRI_WHEN_OF(has, ...) BSRI_WHEN_##has(__VA_ARGS__)
#define BSRI_WHEN_0(...)
#define BSRI_WHEN_1(...) __VA_ARGS__

/* What an instance is for: of products, which kernel beside the tier's own. */
enum {
    BSRI_FOR_PRODUCT,
    BSRI_FOR_SMALL,  /* products with little to do */
    BSRI_FOR_NARROW, /* products with few columns */
    BSRI_FOR_TINY,   /* products of small and odd blocks: few columns, */
    BSRI_FOR_TINY_WIDE, /* many */
    BSRI_FOR_VECTOR, /* products with one column, */
    BSRI_FOR_VECTOR_REST, /* and of rows that several warps had */
    BSRI_FOR_SAMPLED,
    BSRI_FOR_SOFTMAX,
    BSRI_FOR_PACKED, /* softmax over packed values, */
    BSRI_FOR_PACKED_BACKWARD,
    BSRI_FOR_PIECES, /* the same with biases, or in f64 */
    BSRI_FOR_ATTENTION
};
enum { /* kernels that run alike, one row of >>cuda-estimates for each size of block */
    BSRI_COSTS_NONE, /* the only one of its tier */
    BSRI_COSTS_MMA,
    BSRI_COSTS_F32,
    BSRI_COSTS_TF32,
    BSRI_COSTS_I8,
    BSRI_COSTS_F64,
    BSRI_COSTS_SMALL,
    BSRI_COSTS_SMALL_WIDE,
    BSRI_COSTS_NARROW_MMA,    /* by rows of a tile */
    BSRI_COSTS_NARROW_TMA,       /* the same */
    BSRI_COSTS_NARROW_TMA_GROUP, /* by columns */
    BSRI_COSTS_RS,
    BSRI_COSTS_SS,
    BSRI_COSTS_SS_I8,
    BSRI_COSTS_SAMPLED_MMA,
    BSRI_COSTS_SAMPLED_WGMMA
};
enum { BSRI_TIER_SIMT = 1, BSRI_TIER_MMA = 2, BSRI_TIER_WGMMA = 3, BSRI_TIERS = 4 }; /* bsr_plan.kernel */
/* What an instance computes with: a type of operands; f32 ones rounded to TF32; the same three times over. */
enum {
#define BSRI_X(dtype, ...) BSRI_TYPE_##dtype = BSR_##dtype,
    BSRI_TYPES(BSRI_X)
#undef BSRI_X
    BSRI_TYPE_I32 = BSR_I32,
    BSRI_TYPE_TF32 = 100,
    BSRI_TYPE_TF32X3
};

/* X(name, number, for, tier, type, block, costs, kernel, tile type): number: bsr_plan.instance, never changed; type: of operands,
   of simt kernels what is added up in; block: the smallest that it takes (largest instances come first where several do);
   costs: of >>cuda-estimates. The function is kernel<tile type>. */
#define BSRI_KERNELS_SIMT(X, n, D, A, F)                                                                                   \
    BSRI_WHEN(BSRI_HAS_PRODUCT,                                                                                            \
    X(PRODUCT_SIMT_4X256_##D, n + 0, PRODUCT, SIMT, D, 1, NONE, bsri_product_simt, bsri_simt_tile<A, F, 4, 256, 1, 4>)     \
    X(PRODUCT_SIMT_16X128_##D, n + 1, PRODUCT, SIMT, D, 1, NONE, bsri_product_simt, bsri_simt_tile<A, F, 16, 128, 2, 4>)   \
    X(PRODUCT_SIMT_64X64_##D, n + 2, PRODUCT, SIMT, D, 1, NONE, bsri_product_simt, bsri_simt_tile<A, F, 64, 64, 4, 4>))    \
    BSRI_WHEN(BSRI_HAS_SAMPLED,                                                                                            \
    X(SAMPLED_SIMT_16X16_##D, n + 3, SAMPLED, SIMT, D, 1, NONE, bsri_sampled_simt, bsri_simt_tile<A, F, 16, 16, 1, 1>)     \
    X(SAMPLED_SIMT_64X64_##D, n + 4, SAMPLED, SIMT, D, 1, NONE, bsri_sampled_simt, bsri_simt_tile<A, F, 64, 64, 4, 4>))
/* rows and columns of a table's row: a lane's rows; columns of a block, or of b, that it takes at once. */
#define BSRI_KERNELS_TINY_OF(X, name, n, D, of, ...) \
    X(PRODUCT_##name##_##D, n, of, SIMT, D, 1, NONE, bsri_product_tiny, bsri_tiny_tile<__VA_ARGS__>)
#define BSRI_KERNELS_TINY(X, n, D, T, F)                                              \
    BSRI_KERNELS_TINY_OF(X, TINY_1X1, n + 0, D, TINY, T, F, false, 1, 1)              \
    BSRI_KERNELS_TINY_OF(X, TINY_2X2, n + 1, D, TINY, T, F, false, 2, 2)              \
    BSRI_KERNELS_TINY_OF(X, TINY_3X3, n + 2, D, TINY, T, F, false, 3, 3)              \
    BSRI_KERNELS_TINY_OF(X, TINY_1X4, n + 3, D, TINY, T, F, false, 1, 4)              \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_1, n + 4, D, TINY_WIDE, T, F, true, 1, 4)       \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_1_APART, n + 5, D, TINY_WIDE, T, F, true, 1, 1) \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_4, n + 6, D, TINY_WIDE, T, F, true, 4, 4)       \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_4_APART, n + 7, D, TINY_WIDE, T, F, true, 4, 1) \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_8, n + 8, D, TINY_WIDE, T, F, true, 8, 4)       \
    BSRI_KERNELS_TINY_OF(X, TINY_WIDE_8_APART, n + 9, D, TINY_WIDE, T, F, true, 8, 1)
/* The same: a lane's rows, and columns of a block that it loads at once. */
#define BSRI_KERNELS_VECTOR_OF(X, n, D, T, F, EACH, VEC) \
    X(PRODUCT_VECTOR_##EACH##X##VEC##_##D, n, VECTOR, SIMT, D, 1, NONE, bsri_product_vector, bsri_vector_tile<T, F, EACH, VEC>)
#define BSRI_KERNELS_VECTOR_1_2(X, n, D, T, F)                                                                     \
    BSRI_KERNELS_VECTOR_OF(X, n + 0, D, T, F, 1, 1)                                                                \
    BSRI_KERNELS_VECTOR_OF(X, n + 1, D, T, F, 4, 1)                                                                \
    BSRI_KERNELS_VECTOR_OF(X, n + 2, D, T, F, 1, 2)                                                                \
    BSRI_KERNELS_VECTOR_OF(X, n + 3, D, T, F, 4, 2)                                                                \
    X(PRODUCT_VECTOR_REST_##D, n + 8, VECTOR_REST, SIMT, D, 1, NONE, bsri_product_vector_rest, bsri_vector_tile<T, F, 1, 1>)
#define BSRI_KERNELS_VECTOR_4(X, n, D, T, F)        \
    BSRI_KERNELS_VECTOR_1_2(X, n, D, T, F)          \
    BSRI_KERNELS_VECTOR_OF(X, n + 4, D, T, F, 1, 4) \
    BSRI_KERNELS_VECTOR_OF(X, n + 5, D, T, F, 4, 4)
#define BSRI_KERNELS_VECTOR_8(X, n, D, T, F)        \
    BSRI_KERNELS_VECTOR_4(X, n, D, T, F)            \
    BSRI_KERNELS_VECTOR_OF(X, n + 6, D, T, F, 1, 8) \
    BSRI_KERNELS_VECTOR_OF(X, n + 7, D, T, F, 4, 8)
#define BSRI_KERNELS_MMA(X, name, n, D, block, costs, ...) \
    X(PRODUCT_MMA_##name, n, PRODUCT, MMA, D, block, costs, bsri_product_mma, bsri_mma_tile<__VA_ARGS__>)
#define BSRI_KERNELS_MMA_128(X, n, D, T, costs)                              \
    BSRI_KERNELS_MMA(X, 32_128_##D, n + 0, D, 32, costs, T, 32, 32, 1, 128)  \
    BSRI_KERNELS_MMA(X, 16_128_##D, n + 1, D, 16, costs, T, 16, 16, 2, 128)
/* 32 rows and both layouts: 48 bytes spilled on sm_100 */
#define BSRI_KERNELS_MMA_256(X, n, D, T)                                                \
    BSRI_KERNELS_MMA(X, 32_256_ROWS_##D, n + 0, D, 32, MMA, T, 32, 32, 1, 256, 2, 1)    \
    BSRI_KERNELS_MMA(X, 32_256_COLUMNS_##D, n + 1, D, 32, MMA, T, 32, 32, 1, 256, 2, 0) \
    BSRI_KERNELS_MMA(X, 16_256_##D, n + 2, D, 16, MMA, T, 16, 16, 2, 256)
#define BSRI_KERNELS_MMA_F32(X, n, name, BN, N32, N16, ROWS)                                               \
    BSRI_KERNELS_MMA(X, 32_##name##_F32, n + 0, F32, 32, F32, bsri_mma_f32, 32, 32, 1, BN, N32, ROWS)      \
    BSRI_KERNELS_MMA(X, 16_##name##_F32, n + 1, F32, 16, F32, bsri_mma_f32, 16, 16, 2, BN, N16, ROWS)
#define BSRI_KERNELS_MMA_BYTES(X, n, D, T, block, KS, E)                                         \
    BSRI_KERNELS_MMA(X, block##_128_ROWS_##D, n + 0, D, block, I8, T, 32, KS, E, 128, 2, 1)      \
    BSRI_KERNELS_MMA(X, block##_128_COLUMNS_##D, n + 1, D, block, I8, T, 32, KS, E, 128, 2, 0)
#define BSRI_KERNELS_MMA_F64(X, n, BN, N32, N16)                                                  \
    BSRI_KERNELS_MMA(X, 32_##BN##_F64, n + 0, F64, 32, F64, bsri_mma_f64, 32, 16, 1, BN, N32)     \
    BSRI_KERNELS_MMA(X, 16_##BN##_F64, n + 1, F64, 16, F64, bsri_mma_f64, 16, 16, 1, BN, N16)
#define BSRI_KERNELS_SMALL_OF(X, name, n, D, block, costs, ...) \
    X(PRODUCT_SMALL_##name, n, SMALL, MMA, D, block, costs, bsri_product_small, bsri_small_tile<__VA_ARGS__>)
#define BSRI_KERNELS_SMALL(X, n, D, T)                                                   \
    BSRI_KERNELS_SMALL_OF(X, 32_ROWS_##D, n + 0, D, 32, SMALL, T, 32, true, 3)           \
    BSRI_KERNELS_SMALL_OF(X, 32_COLUMNS_##D, n + 1, D, 32, SMALL, T, 32, false, 3)       \
    BSRI_KERNELS_SMALL_OF(X, 16_ROWS_##D, n + 2, D, 16, SMALL, T, 16, true, 4)           \
    BSRI_KERNELS_SMALL_OF(X, 16_COLUMNS_##D, n + 3, D, 16, SMALL, T, 16, false, 4)       \
    BSRI_KERNELS_SMALL_OF(X, 32_SIMPLE_ROWS_##D, n + 4, D, 32, SMALL, T, 32, true, 4)    \
    BSRI_KERNELS_SMALL_OF(X, 32_SIMPLE_COLUMNS_##D, n + 5, D, 32, SMALL, T, 32, false, 4) \
    BSRI_KERNELS_SMALL_OF(X, 16_128_ROWS_##D, n + 6, D, 16, SMALL_WIDE, T, 16, true, 4, 128)
#define BSRI_KERNELS_NARROW_MMA_OF(X, name, n, D, T, M, N, ROWS)                                   \
    X(PRODUCT_NARROW_MMA_##name##_##D, n, NARROW, MMA, D, 16, NARROW_MMA, bsri_product_narrow_mma, \
      bsri_narrow_mma_tile<T, M, N, ROWS>)
#define BSRI_KERNELS_NARROW_MMA(X, n, D, T)                                       \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X8_COLUMNS, n + 0, D, T, 1, 1, false)         \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X8_ROWS, n + 1, D, T, 1, 1, true)             \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X16_COLUMNS, n + 2, D, T, 1, 2, false)        \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X16_ROWS, n + 3, D, T, 1, 2, true)            \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X32_COLUMNS, n + 4, D, T, 1, 4, false)        \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X32_ROWS, n + 5, D, T, 1, 4, true)            \
    BSRI_KERNELS_NARROW_MMA_OF(X, 16X64_COLUMNS, n + 6, D, T, 1, 8, false)        \
    BSRI_KERNELS_NARROW_MMA_OF(X, 32X8_COLUMNS, n + 8, D, T, 2, 1, false)         \
    BSRI_KERNELS_NARROW_MMA_OF(X, 32X8_ROWS, n + 9, D, T, 2, 1, true)             \
    BSRI_KERNELS_NARROW_MMA_OF(X, 32X32_COLUMNS, n + 12, D, T, 2, 4, false)       \
    BSRI_KERNELS_NARROW_MMA_OF(X, 32X32_ROWS, n + 13, D, T, 2, 4, true)
#define BSRI_KERNELS_NARROW_TMA_OF(X, name, n, D, costs, T, M, N) \
    X(PRODUCT_NARROW_TMA_##name##_##D, n, NARROW, WGMMA, D, 64, costs, bsri_product_narrow_tma, bsri_narrow_tma_tile<T, M, N>)
#define BSRI_KERNELS_NARROW_TMA(X, n, D, T)                          \
    BSRI_KERNELS_NARROW_TMA_OF(X, 32X8, n + 0, D, NARROW_TMA, T, 2, 1)      \
    BSRI_KERNELS_NARROW_TMA_OF(X, 32X16, n + 1, D, NARROW_TMA, T, 2, 2)     \
    BSRI_KERNELS_NARROW_TMA_OF(X, 32X32, n + 2, D, NARROW_TMA, T, 2, 4)     \
    BSRI_KERNELS_NARROW_TMA_OF(X, 64X8, n + 4, D, NARROW_TMA, T, 4, 1)      \
    BSRI_KERNELS_NARROW_TMA_OF(X, 64X16, n + 5, D, NARROW_TMA, T, 4, 2)     \
    BSRI_KERNELS_NARROW_TMA_OF(X, 64X32, n + 6, D, NARROW_TMA, T, 4, 4)     \
    BSRI_KERNELS_NARROW_TMA_OF(X, 64X64, n + 7, D, NARROW_TMA_GROUP, T, 4, 8) \
    BSRI_KERNELS_NARROW_TMA_OF(X, 64X128, n + 8, D, NARROW_TMA_GROUP, T, 4, 16)
#define BSRI_KERNELS_SS(X, name, n, D, block, costs, ...) \
    X(PRODUCT_WGMMA_##name##_##D, n, PRODUCT, WGMMA, D, block, costs, bsri_product_wgmma, bsri_wgmma_ss<__VA_ARGS__>)
#define BSRI_KERNELS_RS(X, name, n, D, block, ...) \
    X(PRODUCT_WGMMA_##name##_##D, n, PRODUCT, WGMMA, D, block, RS, bsri_product_wgmma, bsri_wgmma_rs<__VA_ARGS__>)
#define BSRI_KERNELS_WGMMA(X, n, D, T)                                \
    BSRI_KERNELS_SS(X, 64_256, n + 0, D, 64, SS, T, 256)          \
    BSRI_KERNELS_SS(X, 64_128, n + 1, D, 64, SS, T, 128)          \
    BSRI_KERNELS_RS(X, 32_256_ROWS, n + 20, D, 32, T, 32, 1)      \
    BSRI_KERNELS_RS(X, 32_256_COLUMNS, n + 21, D, 32, T, 32, 0)   \
    BSRI_KERNELS_RS(X, 16_256_ROWS, n + 22, D, 16, T, 16, 1)      \
    BSRI_KERNELS_RS(X, 16_256_COLUMNS, n + 23, D, 16, T, 16, 0)
/* i8: a slice of 64 or 128 products, where both operands are stored along them. */
#define BSRI_KERNELS_PRODUCT(X)                                                \
    BSRI_WHEN(BSRI_HAS_F16, BSRI_KERNELS_TINY(X, 500, F16, bsri_mma_f16, float))    \
    BSRI_WHEN(BSRI_HAS_F16, BSRI_KERNELS_VECTOR_8(X, 700, F16, bsri_mma_f16, float)) \
    BSRI_WHEN(BSRI_HAS_BF16, BSRI_KERNELS_TINY(X, 510, BF16, bsri_mma_bf16, float)) \
    BSRI_WHEN(BSRI_HAS_BF16, BSRI_KERNELS_VECTOR_8(X, 710, BF16, bsri_mma_bf16, float)) \
    BSRI_WHEN(BSRI_HAS_F32, BSRI_KERNELS_TINY(X, 520, F32, bsri_mma_f32, float))    \
    BSRI_WHEN(BSRI_HAS_F32, BSRI_KERNELS_VECTOR_4(X, 720, F32, bsri_mma_f32, float)) \
    BSRI_WHEN(BSRI_HAS_F64, BSRI_KERNELS_TINY(X, 530, F64, double, double))         \
    BSRI_WHEN(BSRI_HAS_F64, BSRI_KERNELS_VECTOR_1_2(X, 730, F64, double, double)) \
    BSRI_WHEN(BSRI_HAS_I8, BSRI_KERNELS_TINY(X, 540, I8, int8_t, uint32_t))         \
    BSRI_WHEN(BSRI_HAS_I8, BSRI_KERNELS_VECTOR_8(X, 740, I8, int8_t, uint32_t)) \
    BSRI_WHEN(BSRI_HAS_BF16,                                                   \
    BSRI_KERNELS_MMA_256(X, 200, BF16, bsri_mma_bf16)                          \
    BSRI_KERNELS_MMA_128(X, 203, BF16, bsri_mma_bf16, MMA)                     \
    BSRI_KERNELS_SMALL(X, 250, BF16, bsri_mma_bf16)                            \
    BSRI_KERNELS_NARROW_MMA(X, 150, BF16, bsri_mma_bf16)                           \
    BSRI_KERNELS_NARROW_TMA(X, 390, BF16, bsri_mma_bf16)                              \
    BSRI_KERNELS_WGMMA(X, 300, BF16, bsri_mma_bf16))                           \
    BSRI_WHEN(BSRI_HAS_F16,                                                    \
    BSRI_KERNELS_MMA_256(X, 210, F16, bsri_mma_f16)                            \
    BSRI_KERNELS_MMA_128(X, 213, F16, bsri_mma_f16, MMA)                       \
    BSRI_KERNELS_SMALL(X, 280, F16, bsri_mma_f16)                              \
    BSRI_KERNELS_NARROW_MMA(X, 170, F16, bsri_mma_f16)                             \
    BSRI_KERNELS_NARROW_TMA(X, 410, F16, bsri_mma_f16)                                \
    BSRI_KERNELS_WGMMA(X, 310, F16, bsri_mma_f16))                             \
    BSRI_WHEN(BSRI_HAS_F32,                                                    \
    BSRI_KERNELS_MMA_F32(X, 260, 256_ROWS, 256, 4, 2, 1)                       \
    BSRI_KERNELS_MMA_F32(X, 262, 128_ROWS, 128, 2, 1, 1)                       \
    BSRI_KERNELS_MMA_F32(X, 264, 256_COLUMNS, 256, 4, 2, 0)                    \
    BSRI_KERNELS_MMA_F32(X, 266, 128_COLUMNS, 128, 2, 1, 0)                    \
    BSRI_KERNELS_MMA_128(X, 270, TF32, bsri_mma_tf32, TF32)                    \
    BSRI_KERNELS_MMA_128(X, 272, TF32X3, bsri_mma_tf32x3, TF32))               \
    BSRI_WHEN(BSRI_HAS_F64,                                                    \
    BSRI_KERNELS_MMA_F64(X, 274, 64, 2, 1)                                     \
    BSRI_KERNELS_MMA_F64(X, 276, 128, 4, 2))                                   \
    BSRI_WHEN(BSRI_HAS_I8,                                                     \
    BSRI_KERNELS_MMA_BYTES(X, 220, I8, bsri_mma_i8, 32, 32, 2)                 \
    BSRI_KERNELS_MMA_BYTES(X, 222, I8, bsri_mma_i8, 64, 64, 1)                 \
    BSRI_KERNELS_SS(X, 64_256, 380, I8, 64, SS_I8, bsri_mma_i8, 256, 64)   \
    BSRI_KERNELS_SS(X, 128_256, 381, I8, 128, SS_I8, bsri_mma_i8, 256))
#define BSRI_KERNELS_SAMPLED_MMA(X, D, T, mma)                                                                                   \
    X(SAMPLED_MMA_32_##D, mma + 0, SAMPLED, MMA, D, 32, SAMPLED_MMA, bsri_sampled_mma, bsri_mma_sampled_tile<T, 32>)             \
    X(SAMPLED_MMA_16_##D, mma + 1, SAMPLED, MMA, D, 16, SAMPLED_MMA, bsri_sampled_mma, bsri_mma_sampled_tile<T, 16>)
#define BSRI_KERNELS_SAMPLED(X, D, T, mma, wgmma)                                                                                \
    BSRI_KERNELS_SAMPLED_MMA(X, D, T, mma)                                                                                       \
    X(SAMPLED_WGMMA_##D, wgmma, SAMPLED, WGMMA, D, 16, SAMPLED_WGMMA, bsri_sampled_wgmma, bsri_sampled_wgmma_tile<T>)
#define BSRI_KERNELS_PACKED(X, D, T, n)                                                                                          \
    X(SOFTMAX_PACKED_##D, n, PACKED, SIMT, D, 1, NONE, bsri_softmax_fast, bsri_softmax_tile<float, false, T>)                    \
    X(SOFTMAX_PACKED_BACKWARD_##D, n + 3, PACKED_BACKWARD, SIMT, D, 1, NONE, bsri_softmax_fast, bsri_softmax_tile<float, true, T>)
#define BSRI_KERNELS_PIECES(X, D, F, S, N, n)                                                                                    \
    X(SOFTMAX_PIECES_##D, n, PIECES, SIMT, D, 1, NONE, bsri_softmax_simt, bsri_softmax_rows_tile<F, S, N, BSR_##D == BSR_F64>)
#define BSRI_KERNELS_SOFTMAX(X)                                                                                                  \
    BSRI_WHEN(BSRI_HAS_SUMS_F32,                                                                                                 \
    X(SOFTMAX_SIMT_F32, 400, SOFTMAX, SIMT, F32, 1, NONE, bsri_softmax_simt, bsri_softmax_rows_tile<float>))                     \
    BSRI_WHEN(BSRI_HAS_F64,                                                                                                      \
    X(SOFTMAX_SIMT_F64, 401, SOFTMAX, SIMT, F64, 1, NONE, bsri_softmax_simt, bsri_softmax_rows_tile<double>)                     \
    BSRI_KERNELS_PIECES(X, F64, double, double, 2, 453))                                                                         \
    BSRI_WHEN(BSRI_HAS_F16, BSRI_KERNELS_PACKED(X, F16, bsri_mma_f16, 402)      \
    BSRI_KERNELS_PIECES(X, F16, float, bsri_mma_f16, 8, 450))                                                      \
    BSRI_WHEN(BSRI_HAS_BF16, BSRI_KERNELS_PACKED(X, BF16, bsri_mma_bf16, 403)      \
    BSRI_KERNELS_PIECES(X, BF16, float, bsri_mma_bf16, 8, 451))                                                   \
    BSRI_WHEN(BSRI_HAS_F32, BSRI_KERNELS_PACKED(X, F32, bsri_mma_f32, 404)      \
    BSRI_KERNELS_PIECES(X, F32, float, bsri_mma_f32, 4, 452))
#define BSRI_KERNELS_ATTENTION_SIMT(X, name, n, D, ...) \
    X(ATTENTION_SIMT_##name##_##D, n, ATTENTION, SIMT, D, 1, NONE, bsri_attention_simt, bsri_simt_tile<__VA_ARGS__>)
#define BSRI_KERNELS_ATTENTION_MMA(X, name, n, D, ...) \
    X(ATTENTION_MMA_##name##_##D, n, ATTENTION, MMA, D, 16, NONE, bsri_attention_mma, bsri_attention_mma_tile<__VA_ARGS__>)
#define BSRI_KERNELS_ATTENTION_WGMMA(X, name, n, D, ...) \
    X(ATTENTION_WGMMA_##name##_##D, n, ATTENTION, WGMMA, D, 16, NONE, bsri_attention_wgmma, bsri_flash<__VA_ARGS__>)
#define BSRI_KERNELS_ATTENTION_HALF(X, D, T, mma, wgmma)                       \
    BSRI_KERNELS_ATTENTION_MMA(X, 64, mma + 0, D, T, 64, 2, false)             \
    BSRI_KERNELS_ATTENTION_MMA(X, 128, mma + 1, D, T, 128, 2, false)           \
    BSRI_KERNELS_ATTENTION_MMA(X, 64_OPTIONS, mma + 2, D, T, 64, 1, true)      \
    BSRI_KERNELS_ATTENTION_MMA(X, 128_OPTIONS, mma + 3, D, T, 128, 1, true)    \
    BSRI_KERNELS_ATTENTION_WGMMA(X, 64_SHARED, wgmma + 0, D, T, 64, true)      \
    BSRI_KERNELS_ATTENTION_WGMMA(X, 64, wgmma + 1, D, T, 64, false)            \
    BSRI_KERNELS_ATTENTION_WGMMA(X, 128_SHARED, wgmma + 2, D, T, 128, true)    \
    BSRI_KERNELS_ATTENTION_WGMMA(X, 128, wgmma + 3, D, T, 128, false)
#define BSRI_KERNELS_ATTENTION(X)                                                                         \
    BSRI_WHEN(BSRI_HAS_SUMS_F32,                                                                          \
    BSRI_KERNELS_ATTENTION_SIMT(X, 16X16, 420, F32, float, float, 16, 16, 1, 1)                           \
    BSRI_KERNELS_ATTENTION_SIMT(X, 64X64, 421, F32, float, float, 64, 64, 4, 4))                          \
    BSRI_WHEN(BSRI_HAS_F64, BSRI_KERNELS_ATTENTION_SIMT(X, 32X32, 422, F64, double, double, 32, 32, 2, 2)) \
    BSRI_WHEN(BSRI_HAS_F16, BSRI_KERNELS_ATTENTION_HALF(X, F16, bsri_mma_f16, 430, 370))                  \
    BSRI_WHEN(BSRI_HAS_BF16, BSRI_KERNELS_ATTENTION_HALF(X, BF16, bsri_mma_bf16, 440, 375))
#define BSRI_KERNELS(X)                                                                          \
    BSRI_WHEN(BSRI_HAS_SUMS_F32, BSRI_KERNELS_SIMT(X, 100, F32, float, float))                   \
    BSRI_WHEN(BSRI_HAS_F64, BSRI_KERNELS_SIMT(X, 110, F64, double, double))                      \
    BSRI_WHEN(BSRI_HAS_I8, BSRI_KERNELS_SIMT(X, 120, I32, int32_t, uint32_t))                    \
    BSRI_WHEN(BSRI_HAS_PRODUCT, BSRI_KERNELS_PRODUCT(X))                                         \
    BSRI_WHEN(BSRI_HAS_SAMPLED,                                                                  \
    BSRI_WHEN(BSRI_HAS_BF16, BSRI_KERNELS_SAMPLED(X, BF16, bsri_mma_bf16, 230, 350))             \
    BSRI_WHEN(BSRI_HAS_F16, BSRI_KERNELS_SAMPLED(X, F16, bsri_mma_f16, 240, 360))                \
    BSRI_WHEN(BSRI_HAS_F32,                                                                      \
    BSRI_KERNELS_SAMPLED_MMA(X, F32, bsri_mma_f32, 232)                                          \
    BSRI_KERNELS_SAMPLED_MMA(X, TF32, bsri_mma_tf32, 234)                                        \
    BSRI_KERNELS_SAMPLED_MMA(X, TF32X3, bsri_mma_tf32x3, 236))                                   \
    BSRI_WHEN(BSRI_HAS_F64, BSRI_KERNELS_SAMPLED_MMA(X, F64, bsri_mma_f64, 242))                 \
    BSRI_WHEN(BSRI_HAS_I8, BSRI_KERNELS_SAMPLED_MMA(X, I8, bsri_mma_i8, 244)))                   \
    BSRI_WHEN(BSRI_HAS_ROWS, BSRI_KERNELS_SOFTMAX(X))                                            \
    BSRI_WHEN(BSRI_HAS_ATTENTION, BSRI_KERNELS_ATTENTION(X))
/* X(name, number, function): of the matrix operations, which call them by function; the first one is never launched. */
#define BSRI_KERNELS_MATRICES(X)                             \
    X(COMPILED_TIER, 1, bsri_compiled_tier)                  \
    X(FILL, 600, bsri_fill_words)                            \
    X(COPY_VIEWS, 670, bsri_copy_views)                      \
    X(SORT_COUNT_I32, 601, bsri_sort_count<int32_t>)         \
    X(SORT_SCAN_I32, 602, bsri_sort_scan<int32_t>)           \
    X(SORT_SCATTER_I32, 603, bsri_sort_scatter<int32_t>)     \
    X(SORT_STARTS_I32, 604, bsri_sort_starts<int32_t>)       \
    X(SORT_COUNT_I64, 605, bsri_sort_count<int64_t>)         \
    X(SORT_SCAN_I64, 606, bsri_sort_scan<int64_t>)           \
    X(SORT_SCATTER_I64, 607, bsri_sort_scatter<int64_t>)     \
    X(SORT_STARTS_I64, 608, bsri_sort_starts<int64_t>)       \
    X(LINES_MEASURE, 610, bsri_lines_measure)                \
    X(LINES_RANK, 611, bsri_rank_lines)                      \
    X(LINES_THAT_ARE_TALL, 615, bsri_rank_tall)              \
    X(GROUP_BIT_SETS_8, 612, bsri_group_bits<8>)             \
    X(GROUP_BIT_SETS_32, 614, bsri_group_bits<32>)           \
    X(GROUP_LISTS, 613, bsri_group_lists)                    \
    X(TO_DENSE, 620, bsri_expand_panel)                      \
    X(BITS_OF_A_DENSE_MATRIX, 621, bsri_bits_dense)          \
    X(BITS_OF_A_MASK, 622, bsri_bits_mask)                   \
    X(BUILD_COUNTS, 623, bsri_build_counts)                  \
    X(BUILD_SUMS, 628, bsri_build_sums)                      \
    X(BUILD_BEFORE, 629, bsri_build_before)                  \
    X(BUILD_CROW, 624, bsri_build_crow)                      \
    X(BUILD_CROW_WITHOUT_ROWS, 625, bsri_build_no_rows)      \
    X(BUILD_COLUMNS, 626, bsri_build_cols)                   \
    X(BUILD_VALUES, 627, bsri_build_values)                  \
    X(REBLOCK_LENGTHS, 665, bsri_reblock_lengths)            \
    X(REBLOCK_COUNTS, 666, bsri_reblock_lines<false>)        \
    X(REBLOCK_COLUMNS, 667, bsri_reblock_lines<true>)        \
    X(REBLOCK_VALUES, 668, bsri_reblock_values)              \
    X(REBLOCK_ELEMENTS, 669, bsri_reblock_elements)          \
    X(VALIDATE_STAGE, 630, bsri_validate_stage)              \
    X(VALIDATE_UNIONS, 631, bsri_validate_unions)            \
    X(VALIDATE_DESCRIBE, 632, bsri_validate_describe)        \
    X(LOOK_AT_MATRIX, 633, bsri_look_at_matrix)              \
    X(LOOK_AT_PAIR, 634, bsri_look_at_pair)                  \
    X(LOOK_AT_ENTRIES, 635, bsri_look_at_entries)            \
    X(LOOK_AT_LISTS, 636, bsri_look_at_lists)                \
    X(RANDOM_DRAW, 640, bsri_random_draw)                    \
    X(RANDOM_MARK, 641, bsri_random_mark)                    \
    X(RANDOM_SET, 642, bsri_random_set)                      \
    X(PRUNE_NORMS, 643, bsri_prune_norms)                    \
    X(PRUNE_SELECT, 644, bsri_prune_select)                  \
    X(PRUNE_PASS, 647, bsri_prune_pass)                      \
    X(PRUNE_MARK, 648, bsri_prune_mark)                      \
    X(LAYOUT_RULES, 645, bsri_layout_rules)                  \
    X(LAYOUT_DRAW, 646, bsri_layout_draw)                    \
    X(ENTRIES_KEYS, 650, bsri_entries_keys)                  \
    X(ENTRIES_SURVEY, 657, bsri_entries_survey)              \
    X(ENTRIES_STARTS, 658, bsri_entries_starts)              \
    X(ENTRIES_BEGINS, 659, bsri_entries_begins)              \
    X(ENTRIES_LINES, 663, bsri_entries_lines)                \
    X(ENTRIES_PUT, 664, bsri_entries_put)                    \
    X(ENTRIES_COUNT_BLOCKS, 651, bsri_entries_blocks<false>) \
    X(ENTRIES_BLOCKS, 652, bsri_entries_blocks<true>)        \
    X(SCAN_SUMS, 653, bsri_scan_sums)                        \
    X(ENTRIES_CROW, 654, bsri_entries_crow)                  \
    X(ENTRIES_CLEAR, 655, bsri_entries_clear)                \
    X(ENTRIES_VALUES, 656, bsri_entries_values)              \
    X(SCATTER_STARTS, 660, bsri_scatter_starts)              \
    X(SCATTER_FILL, 661, bsri_scatter_fill_rows)             \
    X(SCATTER_LAST, 662, bsri_scatter_last)
enum {
#define BSRI_X(name, number, ...) BSRI_KERNEL_##name = number,
    BSRI_KERNELS(BSRI_X) BSRI_KERNELS_MATRICES(BSRI_X)
#undef BSRI_X
};

/* A row of the table. */
typedef struct bsri_instance {
    int32_t number, of, tier, type, block, costs;                    /* BSRI_KERNEL_, BSRI_FOR_, BSRI_TIER_; BSRI_COSTS_ */
    int32_t rows, cols, stages, threads, shared, ctas, layout, head; /* as bsri_tile; layout: 0 either, 1 rows, 2 columns */
    int32_t warp_rows, slice, slices, warps, warp_bytes;             /* MW, KS, E, NW, WARP */
} bsri_instance;
template <class L>
constexpr bsri_instance bsri_instance_of(int number, int of, int tier, int type, int block, int costs) {
    return {number,      of,        tier,    type,  block,
            costs,       L::ROWS,   L::COLS, (int32_t)L::STAGES,
            L::THREADS,  L::SHARED, L::CTAS, L::LAYOUT == 2 ? 0 : 2 - L::LAYOUT,
            L::HEAD,     L::MW,     L::KS,   L::E,
            L::NW,       L::WARP};
}
static constexpr bsri_instance bsri_instances[] = {
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    bsri_instance_of<__VA_ARGS__>(number, BSRI_FOR_##of, BSRI_TIER_##tier, BSRI_TYPE_##type, block, BSRI_COSTS_##costs),
    BSRI_KERNELS(BSRI_X)
#undef BSRI_X
    {} /* none: a build may leave all out */
};
/* What is wanted of an instance; 0: anything. block: that of the matrix. */
typedef struct bsri_wanted {
    int32_t of, tier, type, block, rows, cols, layout, head, ctas;
} bsri_wanted;
static bsri_wanted bsri_want(int of, int tier, int type) {
    bsri_wanted w;
    memset(&w, 0, sizeof w), w.of = of, w.tier = tier, w.type = type;
    return w;
}
/* The first instance that is all of this, of those for the largest blocks; null: there is none in this build. */
static const bsri_instance *bsri_find(const bsri_wanted *w) {
    const bsri_instance *best = NULL, *x = bsri_instances;
    for (; x->number; x++) {
        if (x->of != w->of || x->tier != w->tier || x->type != w->type) continue;
        if ((w->block && x->block > w->block) || (w->rows && x->rows != w->rows) || (w->cols && x->cols != w->cols)) continue;
        if ((x->layout && w->layout && x->layout != w->layout) || (w->head && x->head != w->head)) continue;
        if ((w->ctas && x->ctas != w->ctas) || (best && x->block <= best->block)) continue;
        best = x;
    }
    return best;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-choices: what a launch looks like, who may choose it                                    */
/* ---------------------------------------------------------------------------------------------- */

enum { /* fields of bsr_plan, as errors count them */
    BSRI_FIELD_KERNEL = 3,
    BSRI_FIELD_TILE_ROWS,
    BSRI_FIELD_TILE_COLS,
    BSRI_FIELD_SPLIT,
    BSRI_FIELD_STAGES,
    BSRI_FIELD_ORDER
};
/* What a chooser finds for one call: a pure function of the call's description and of the plan that is asked for. kernel 0: its
   tier does not take the call, and reason says why. A chooser follows the plan's fields where it can; bsri_offer() drops what
   differs from them, so that nothing runs that was not asked for. */
typedef struct bsri_choice {
    int32_t kernel, tier;                                /* number in the kernel table; bsr_plan.kernel */
    int32_t tile_rows, tile_cols, split, stages, order; /* as in bsr_plan */
    int32_t threads, shared, reason;                     /* dynamic bytes of shared memory; bsr_why */
    int32_t pdl;                                       /* waits itself for the kernel before it: may start before that ends */
    int32_t cluster;                                       /* CTAs 2n and 2n + 1 read much in common at the same time */
    int32_t then[2], then_threads; /* kernels that come after it, or 0; their parameters are so many bytes behind its own */
    int64_t then_at, then_grid;
    int64_t grid;
    uint64_t workspace; /* bytes; no more than the plan that is asked for offers in workspace_bytes */
} bsri_choice;

static bsri_choice bsri_no(int reason) {
    bsri_choice c;
    memset(&c, 0, sizeof c), c.reason = reason;
    return c;
}

/* x null: left out of this build. */
static bsri_choice bsri_yes(const bsri_instance *x, int reason) {
    bsri_choice c = bsri_no(x ? reason : BSR_WHY_CUT);
    if (!x) return c;
    c.kernel = x->number, c.tier = x->tier, c.split = 1, c.stages = x->stages, c.threads = x->threads, c.shared = x->shared;
    c.tile_rows = x->rows, c.tile_cols = x->cols;
    return c;
}

static void bsri_spread_evenly(const bsr_context *ctx, bsri_choice *c) {
    const int64_t each = bsri_ceil_div(c->grid, ctx->sm_count), most = (ctx->smem_optin + 1024) / (each + 1) - 1024;
    if (each <= 8 && c->shared <= most) c->shared = (int32_t)((most / 128 + 1) * 128);
}

/* What the kernels' file has: tensor maps, whose boxes are a tile's layout; 0 where the copy engine can't have an operand. */
#ifdef BSRSPARSE_STATIC
namespace { /* as they are defined there: >>product-wgmma and others */
#endif
static int bsri_narrow_tma_maps(const bsr_context *ctx, bsri_dev_narrow_tma *m, int rows, int cols);
static int bsri_wgmma_maps(const bsr_context *ctx, bsri_dev_wgmma *m);
static int bsri_wgmma_sampled_maps(const bsr_context *ctx, const bsri_dev_sampled *p, bsri_dev_wgmma_sampled *m, int entry);
static int bsri_flash_map(const bsr_context *ctx, const bsr_dense *d, int rows, bsri_tensor_batch *b, bsri_tma_map *map);
#ifdef BSRSPARSE_STATIC
} // namespace
#endif

/* The choosers are asked in turn, products' in the order of their estimated times, others' by tier, the fastest first; the first
   whose choice runs the plan that is asked for wins. */
typedef struct bsri_chooser {
    const bsr_plan *asked;
    void *workspace;    /* the call's, of asked->workspace_bytes; while it is a query, null */
    bsri_choice best;   /* kernel 0: none so far */
    int32_t refused[BSRI_TIERS + 1]; /* by tier: why not */
    int32_t field;                   /* of the plan: what kept the first candidate from running */
    double ns;                       /* what the best one is estimated to take; 0: it has no estimate */
} bsri_chooser;

static bsri_chooser bsri_chooser_for(const bsr_plan *asked) {
    bsri_chooser s;
    memset(&s, 0, sizeof s), s.asked = asked, s.field = BSRI_FIELD_KERNEL;
    return s;
}

static int bsri_wants(const bsri_chooser *s, int tier) {
    return !s->best.kernel && (!s->asked->kernel || s->asked->kernel == tier);
}

/* Number of the first field of the plan that is asked for otherwise, or -1. */
static int bsri_choice_differs(const bsri_choice *c, const bsr_plan *asked) {
    if (asked->tile_rows && asked->tile_rows != c->tile_rows) return BSRI_FIELD_TILE_ROWS;
    if (asked->tile_cols && asked->tile_cols != c->tile_cols) return BSRI_FIELD_TILE_COLS;
    if (asked->split && asked->split != c->split) return BSRI_FIELD_SPLIT;
    if (asked->stages && asked->stages != c->stages) return BSRI_FIELD_STAGES;
    return asked->order && asked->order != c->order ? BSRI_FIELD_ORDER : -1;
}

static void bsri_offer(bsri_chooser *s, int tier, bsri_choice c) {
    const int field = bsri_choice_differs(&c, s->asked);
    if (c.kernel && field < 0) s->best = c;
    else s->refused[tier] = c.kernel ? BSR_WHY_PLAN : c.reason;
    if (c.kernel && field >= 0 && s->field == BSRI_FIELD_KERNEL) s->field = field;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-facts: what choosers ask of operands and products                                       */
/* ---------------------------------------------------------------------------------------------- */

static int bsri_is_half(int dtype) { return dtype == BSR_BF16 || dtype == BSR_F16; }

/* The base and all strides of a batch keep `unit` elements together. */
static int bsri_aligned(const void *data, int dtype, int32_t dims, const int64_t *size, const int64_t *stride, int64_t unit) {
    int ok = (uintptr_t)data % ((uintptr_t)unit * bsr_dtype_size(dtype)) == 0, i;
    for (i = 0; i < dims; i++) ok = ok && (size[i] == 1 || stride[i] % unit == 0);
    return ok;
}

static int bsri_dense_aligned(const bsr_dense *d, int64_t unit) {
    return bsri_aligned(d->data, d->dtype, d->batch_dims, d->batch, d->batch_stride, unit);
}

/* 1: rows are contiguous, 2: columns are, with pieces of 16 bytes; 0: neither. */
static int bsri_mma_layout(const bsr_dense *d) {
    const int64_t unit = 16 / (int64_t)bsr_dtype_size(d->dtype);
    if (!bsri_dense_aligned(d, unit)) return 0;
    if (d->col_stride == 1 && (d->row_stride % unit == 0 || d->rows == 1)) return 1;
    if (d->row_stride == 1 && (d->col_stride % unit == 0 || d->cols == 1)) return 2;
    return 0;
}

/* An input is read: behind a pointer beta may be any number. */
static int bsri_has_beta(const bsri_dev_product *p) { return p->has_input && (p->beta != 0.0 || p->beta_ptr); }

/* Sums are scaled, and an input is added, at most. */
static int bsri_mma_linear(const bsri_dev_product *p) {
    return !p->left.data && !p->right.data && !p->bias.data && !bsri_last_step(p);
}

static int bsri_mma_vector(const bsri_dev_product *p) {
    if (!bsri_mma_linear(p) || bsri_has_beta(p)) return 0;
    if (p->out.dtype != (p->b.dtype == BSR_I8 ? BSR_I32 : p->b.dtype)) return 0;
    return bsri_mma_layout(&p->out);
}

/* An input that lies as out does is added, and that is all. */
static int bsri_mma_adds(const bsri_dev_product *p) {
    const bsr_dense *in = &p->input, *out = &p->out;
    if (!bsri_mma_linear(p) || out->dtype != p->b.dtype || in->dtype != out->dtype) return 0;
    if (!bsri_has_beta(p) || p->beta_ptr || in->rows != out->rows || in->cols != out->cols) return 0;
    return bsri_mma_layout(out) && bsri_mma_layout(in) == bsri_mma_layout(out);
}

/* Nothing but the product itself is stored. */
static int bsri_mma_plain(const bsri_dev_product *p) {
    return p->alpha == 1.0 && !p->alpha_ptr && bsri_mma_linear(p) && !bsri_has_beta(p);
}

/* 1: op(A)'s blocks are stored row-major, 2: column-major, in pieces of 16 bytes; 0: neither. */
static int bsri_mma_values(const bsri_dev_product *p) {
    const int64_t unit = 16 / (int64_t)bsr_dtype_size(p->a.dtype);
    if (!bsri_aligned(p->a.values, p->a.dtype, p->a.batch_dims, p->a.batch, p->a.values_batch_stride, unit)) return 0;
    if (p->a_block % unit) return 0;
    if (p->a_cs == 1 && p->a_rs % unit == 0) return 1;
    return p->a_rs == 1 && p->a_cs % unit == 0 ? 2 : 0;
}

/* Rounded down. */
static int bsri_mma_log2(int64_t n) {
    int bits = 0;
    while (n > 1) n >>= 1, bits++;
    return bits;
}

static int64_t bsri_mma_tiles(const bsri_dev_product *p, int b, int rows, int cols) {
    return p->items * bsri_ceil_div(p->tiles * b, rows) * bsri_ceil_div(p->width, cols);
}

/* Items that are not the same. */
static int64_t bsri_dense_items(const bsr_dense *d) {
    int64_t items = 1;
    for (int i = 0; i < d->batch_dims; i++) items *= d->batch_stride[i] ? d->batch[i] : 1;
    return items;
}
/* Whether there is one item and one reduction, and its index arrays then: kernels need not look at batches. */
static int bsri_mma_single(const bsri_dev_product *p, bsri_mma_rows *r) {
    const char *view = (const char *)p->a.transposed_index;
    memset(r, 0, sizeof *r), r->dt = p->a.index_dtype;
    if (p->items != 1 || p->reduce != 1) return 0;
    r->values = (const char *)p->a.values, r->b = (const char *)p->b.data;
    if (p->kind == BSRI_LIST_TRANSPOSED)
        r->ptr = view + p->index.at[0], r->col = view + p->index.at[1], r->position = view + p->index.at[2];
    else r->ptr = p->a.crow_indices, r->col = p->a.col_indices;
    return 1;
}
/* Blocks that an item stores: nnz counts those of all patterns only where they differ in number. */
static double bsri_mean_blocks(const bsr_matrix *a) {
    return (double)a->nnz / (double)(a->flags & BSR_MATRIX_RAGGED ? bsri_max(1, bsri_pattern_count(a)) : 1);
}
/* The longest of 2^bits lists, each of which has any of `all` blocks with the same chance. */
static double bsri_longest(double all, double chance, double bits) {
    const double mean = all * chance, deviations = bits > 0.0 ? 0.71 * bits / (1.0 + 0.083 * bits) : 0.0;
    const double most = mean + deviations * sqrt(mean * (1.0 - chance));
    return most > all ? all : most < 1.0 && mean > 0.0 ? 1.0 : most;
}
/* The chance that none of n blocks is stored, each of which is with this one. */
static double bsri_none_of(double present, int64_t n) {
    double none = 1.0, absent = present < 1.0 ? 1.0 - present : 0.0;
    for (; n > 0; n /= 2, absent *= absent)
        if (n % 2) none *= absent;
    return none;
}
/* Stored lines of the other direction than op(A)'s. */
static int64_t bsri_stored_inner(const bsri_dev_product *p) {
    return (p->trans ? bsri_block_rows(&p->a) : bsri_block_cols(&p->a)) / p->view.cols;
}
/* The largest tile of tensor cores, of `most` rows, that divides both sides, or 0. */
static int bsri_tile_of(int64_t rows, int64_t cols, int most) {
    int t = most;
    while (t >= 16 && (rows % t || cols % t)) t /= 2;
    return t >= 16 ? t : 0;
}
static bsri_list_view bsri_view_of(int64_t rows, int64_t cols) {
    bsri_list_view v;
    v.rows = (int32_t)rows, v.by_rows = rows > 1 ? (uint32_t)bsri_ceil_div(INT64_C(1) << 32, rows) : 0;
    v.cols = (int32_t)cols, v.by_cols = cols > 1 ? (uint32_t)bsri_ceil_div(INT64_C(1) << 32, cols) : 0;
    v.keep_rows = rows > 1 ? 0 : ~0u, v.keep_cols = cols > 1 ? 0 : ~0u;
    return v;
}
/* The tiles of `lines` block rows of br x bc, and their side; 0: blocks are tiles themselves, or there are none, or numbers of
   lines, eight of which a schedule may make of one, or of entries are too large to be divided. */
static int bsri_tiling_view(int64_t br, int64_t bc, int most_side, int64_t lines, int64_t nnz, int64_t line, bsri_list_view *v) {
    const int t = bsri_tile_of(br, bc, most_side);
    const int64_t rows = t ? br / t : 1, cols = t ? bc / t : 1;
    const double most = 2147483648.0;
    if (rows * cols == 1 || 8.0 * (double)lines * (double)rows * (double)rows > most) return 0;
    if ((double)nnz * (double)cols * (double)bsri_max(rows, cols) > most) return 0;
    if ((double)nnz * (double)br * (double)bc / t > most) return 0; /* places of stored blocks, in tiles' steps */
    if ((double)br * (double)bc > most / 16 || line > INT32_MAX / 1024) return 0; /* bytes from tile to tile */
    *v = bsri_view_of(rows, cols);
    return t;
}
/* The product with its blocks seen as tiles, in `to` where they are not tiles themselves. */
static const bsri_dev_product *bsri_tiled(const bsri_dev_product *p, bsri_dev_product *to) {
    bsri_list_view v;
    const int side = p->a.dtype == BSR_F64 ? 64 : 128; /* f64: 128 columns beside 64 rows (note N32) */
    const int t = bsri_tiling_view(p->br, p->bc, side, p->tiles, p->a.nnz, bsri_max(p->a_rs, p->a_cs), &v);
    if (!t) return p;
    *to = *p;
    to->br = to->bc = to->a.block_rows = to->a.block_cols = t, to->a.nnz *= v.rows * v.cols, to->tiles *= v.rows, to->view = v;
    return to;
}
static const bsri_dev_sampled *bsri_tiled_sampled(const bsri_dev_sampled *p, bsri_dev_sampled *to) {
    const bsr_matrix *m = &p->out;
    bsri_list_view v;
    const int t = bsri_tiling_view(m->block_rows, m->block_cols, 128, bsri_block_rows(m), m->nnz, 1, &v);
    if (!t) return p;
    *to = *p;
    to->out.block_rows = to->out.block_cols = t, to->out.nnz *= v.rows * v.cols, to->view = v;
    return to;
}
/* Stored blocks of those that could be. */
static double bsri_density(const bsr_matrix *a) {
    const double blocks = (double)bsri_block_rows(a) * (double)bsri_block_cols(a), stored = bsri_mean_blocks(a);
    return stored < blocks ? stored / blocks : 1.0;
}
/* Bytes of an item's dense operand. */
static double bsri_dense_bytes(const bsri_dev_product *p) {
    return (double)p->b.rows * (double)p->width * (double)bsr_dtype_size(p->b.dtype);
}

/* What estimates and choosers ask of a product, found out once. */
typedef struct bsri_facts {
    int values, dense, vector; /* bsri_mma_values(), bsri_mma_layout() of b, bsri_mma_vector() */
    int adds;                  /* bsri_mma_adds() */
    int simple; /* one item, one reduction, nothing but alpha and an input with out's layout: short products have a path of their
                   own for these, which stores by 16 bytes */
    int ordered;               /* there is a schedule; only the device knows whether it is for this direction */
    int crooked;               /* rows of b are no whole lines of 128 bytes */
    double density, inner;     /* bsri_density() of a; blocks of a full row, of all reductions */
    double lists, most;        /* log2 of the number of block rows; blocks of the longest */
    double far;                /* the part of b that the L2 has no room for */
    double memory, read;       /* nanoseconds to read and write everything once, a lower bound for any kernel; b's part of it */
    double spilt;              /* nanoseconds for the part of the values that the L2 has no room for */
    double limit;              /* the least estimate so far: others have to be below */
    const bsri_dev_product *stored; /* blocks as they are stored, for kernels that need no tiles */
} bsri_facts;
/* The GPU that estimates are of; how many multiprocessors there are is the device's own. */
typedef struct bsri_gpu_model {
    double bytes_per_ns;           /* of memory */
    int64_t l2, l2_dense;          /* bytes that the L2 keeps of values; of a dense operand, while all else passes through */
    int64_t l2_slab, l2_slab_tall; /* of a dense operand that is walked row by row: few rows, more */
    int64_t l2_ahead;              /* what is asked for ahead of time and still there when it is wanted */
} bsri_gpu_model;
static constexpr bsri_gpu_model bsri_h200 = {4800.0, 50 << 20, 30 << 20, 48 << 20, 24 << 20, 16 << 20};
static const double bsri_costs_memory = 1.0 / bsri_h200.bytes_per_ns; /* nanoseconds of a byte */
static void bsri_facts_memory(const bsri_dev_product *p, bsri_facts *f) {
    const double bytes = (1.0 - bsri_none_of(f->density, p->tiles)) * bsri_dense_bytes(p);
    const double values = bsri_mean_blocks(&p->a) * (double)(p->br * p->bc) * (double)bsr_dtype_size(p->a.dtype);
    const double out = (double)p->out.rows * (double)p->width * (double)bsr_dtype_size(p->out.dtype);
    f->far = bytes > (double)bsri_h200.l2_dense ? 1.0 - (double)bsri_h200.l2_dense / bytes : 0.0;
    f->read = bsri_costs_memory * bytes * (double)bsri_dense_items(&p->b);
    f->spilt = bsri_costs_memory * (values > (double)bsri_h200.l2 ? values - (double)bsri_h200.l2 : 0.0);
    f->memory = f->read + bsri_costs_memory * (double)p->items * (values + out * (1 + bsri_has_beta(p)));
}
static bsri_facts bsri_facts_of(const bsri_dev_product *p) {
    bsri_facts f;
    f.values = bsri_mma_values(p), f.dense = bsri_mma_layout(&p->b), f.vector = bsri_mma_vector(p);
    f.adds = bsri_mma_adds(p), f.ordered = p->a.schedule != NULL;
    f.simple = p->items == 1 && p->reduce == 1 && !p->alpha_ptr && p->alpha != 0.0 && (f.vector || f.adds);
    f.density = bsri_density(&p->a);
    f.inner = (double)p->reduce * (double)(p->trans ? bsri_block_rows(&p->a) : bsri_block_cols(&p->a));
    f.lists = log2(1.0 + (double)p->items * (double)p->tiles), f.most = bsri_longest(f.inner, f.density, f.lists);
    f.crooked = f.dense == 1 && p->width > 8 && p->b.row_stride * (int64_t)bsr_dtype_size(p->b.dtype) % 128;
    bsri_facts_memory(p, &f);
    f.limit = INFINITY, f.stored = p;
    return f;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-estimates: what kernels are expected to take                                            */
/* ---------------------------------------------------------------------------------------------- */

/* What is known of a plan's time, for bsri_costs: what the busiest multiprocessor does one after another. tests/time_plans.cu
   prints it, tests/fit_plans.py fits constants to it. */
typedef struct bsri_traits {
    double waves, tile, fused;   /* tiles, of 32768 numbers each, and how much of an epilogue's time a tile takes */
    double slices, piece, along; /* slices of b that are fetched; the size of one, in 8 KB; b has the slower layout */
    double own, area;            /* slices that a warp multiplies, of 16384 sums */
    double crooked, busy;        /* rows of b are no whole lines; the part of all multiprocessors that fetch at once */
    double memory;               /* bsri_facts', at least */
} bsri_traits;

/* What a kernel is expected to take, and with which tile. why: not 0 where it can't run the product at all. Each kernel has a
   pair of functions: one estimates, the other makes its parameters from the estimate; bsri_products lists the pairs. */
typedef struct bsri_estimate {
    double ns;
    int32_t why, tile_rows, tile_cols, split; /* bsr_why; split: warps that share a row's blocks */
    int32_t kind;                             /* row of bsri_costs_of */
    bsri_traits traits;
} bsri_estimate;

static bsri_estimate bsri_estimate_none(int why) {
    bsri_estimate e;
    memset(&e, 0, sizeof e), e.why = why, e.ns = INFINITY;
    return e;
}

static bsri_estimate bsri_estimate_below(const bsri_facts *f, int why) {
    bsri_estimate e = bsri_estimate_none(why);
    e.ns = f->limit;
    return e;
}

/* What a plan is expected to take, in nanoseconds on an H200: x are its bsri_traits, c the costs of kernels that run alike,

     start + waves (tile + store x.tile + fused x.fused) + hypot(fetch, multiply),
     fetch    = slices (1 + CROOKED crooked) (c.fetch + c.bytes piece (ALONE + (1 - ALONE) busy) (1 + c.along x.along)),
     multiply = own (step + c.area x.area),

   and no less than memory takes, as hypot of both. start: a launch; tile, fused, store: a tile, what an epilogue adds, storing
   its numbers; fetch, bytes, along: each slice that is fetched, 8 KB of it, and by how much more that is where b lies the other
   way (by columns; where columns are few by rows); step, area: each slice that a warp multiplies, and its sums. Fitted to the
   times of all tiles for random shapes, mostly to 10 %. Only which of two is less counts, so that other GPUs are served as well.
   size: of blocks, or as the list of BSRI_COSTS_ says; a kind of plan has the row of its costs with the largest that is not above
   its own. */
typedef struct bsri_costs {
    int32_t costs, size; /* BSRI_COSTS_ */
    double start, tile, fused, store, fetch, bytes, along, step, area;
} bsri_costs;
/* tests/fit_plans.py reads and prints what stands from here */
#define BSRI_COST_ROWS(X)                                                                                            \
    /* costs        size     start     tile    fused    store    fetch    bytes    along     step     area */        \
    X(MMA,            16,     4270,     4290,     2230,      849,     72.6,     56.3,     1.84,     19.7,       245) \
    X(MMA,            32,     5350,     4570,      748,   0.0644,      117,     75.2, 6.81e-06,     37.3,       324) \
    X(F32,            16,     2990,     4250,      625,     21.2,      363,     13.8,     1.92,      384,      1020) \
    X(F32,            32,     2260,     5920,      808,      221,      671,   0.0647,      964,      379,      2110) \
    X(TF32,           16,     4670,     3140,      555,     1270,      107,     89.3,  0.00063,     80.6,       428) \
    X(TF32,           32,     3910,     3010,      706,     1040,      284,       26,  0.00557,      242,       600) \
    X(I8,             32,     4810,     2580,      100,     1090,      169,    0.374,   0.0415,     38.8,       195) \
    X(I8,             64,     5310,     2020,      100,     1980,      194,     40.7,   0.0511,      194,       178) \
    X(F64,            16,     4000,     4000,     2000,     4000,      200,     50.0,    0.050,      100,      2000) \
    X(F64,            32,     4000,     4000,     2000,     4000,      200,     50.0,    0.050,      100,      2000) \
    X(SMALL,          16,      476,     1350,     2850,     1620,     3.74,     94.4,     1.09,      161,      65.3) \
    X(SMALL,          32,      155,     1220,     3490,     1600,     12.1,     97.8,    0.203,      311,      64.4) \
    X(SMALL,          64,      934,      505,     3300,     1820,       21,     82.9,    0.196,      241,      65.1) \
    X(SMALL_WIDE,     16,      244,     1430,     4250,      938,     22.5,     53.2,     17.5,      176,      63.7) \
    X(NARROW_MMA,     16,     1650,     59.4,     3970,    18000,     18.4,     96.3,    0.889,      374,      1230) \
    X(NARROW_MMA,     32,      227,     30.4,     4510,    31900,     30.3,    0.134,    0.645,      752,      4.55) \
    X(NARROW_TMA,     32,     1890,     5.33,      721,     2790,     44.1,     72.2,    0.864,      229,      3040) \
    X(NARROW_TMA,     64,     2060,     2.65,      452,     8380,    0.115,     10.4,     33.9,      520,      6.85) \
    X(NARROW_TMA_GROUP, 64,     84.8,      472,      306,     2650,      117,     18.9,    0.803,      196,       904) \
    X(NARROW_TMA_GROUP, 128,      722,      475,      310,     2220,      239,     8.46, 0.000385,      112,       536) \
    X(RS,             16,      458,     6700,     3910,      574,     56.8,     34.4,        3,     29.1,       110) \
    X(RS,             32,     1010,     6250,     3170,      616,     24.1,     68.3,    0.137,     46.9,       146) \
    X(SS,             64,     1570,     2970,      600,     1530,      123,     35.3, 9.23e-05,      264,       119) \
    X(SS,            128,     1580,     2610,     1120,     1870,      106,     42.2,   0.0157,     3.14,       247) \
    X(SS_I8,          64,     1.94,     4160,     1200,     1210,      300,     40.1,   0.0496,      108,      59.6) \
    X(SS_I8,         128,      878,     3040,      711,     2250,      446,     55.6,   0.0507,     13.9,      8.22) \
    X(SAMPLED_MMA,    16,     7.63,     5200,      100,      505,     35.8,      106,     1.12,      814,      63.9) \
    X(SAMPLED_MMA,    32,     3.26,     9230,      100,      514,     61.6,      191,   0.0731,      628,      69.1) \
    X(SAMPLED_MMA,    64,     2960,     3960,      100,      506,      134,      250,  0.00463,       48,       623) \
    X(SAMPLED_WGMMA,  16,     6610,     1.41,      185,     3440,      1.7,     14.4,  0.00998,      217,       274) \
    X(SAMPLED_WGMMA,  32,     6280,    0.733,     50.7,     2400,    0.414,      224,   0.0123,       68,       249) \
    X(SAMPLED_WGMMA,  64,     4260,     1.27,      381,     4270,     0.31,      112,    0.238,    0.666,       223)
static const double bsri_costs_crooked = 0.45; /* so much more there is to fetch from rows of b that are no whole lines */
static const double bsri_costs_alone = 0.4;    /* what fetching takes of that where all do so at once */
/* to here */
static constexpr bsri_costs bsri_costs_of[] = {
#define BSRI_X(costs, size, start, tile, fused, store, fetch, bytes, along, step, area) \
    {BSRI_COSTS_##costs, size, start, tile, fused, store, fetch, bytes, along, step, area},
    BSRI_COST_ROWS(BSRI_X)
#undef BSRI_X
    {}};
/* Has every instance rows of its own? */
static constexpr bool bsri_costs_has(int costs, int i) {
    return bsri_costs_of[i].costs == costs || (bsri_costs_of[i].size && bsri_costs_has(costs, i + 1));
}
#define BSRI_X(name, number, of, tier, type, block, costs, ...) \
    static_assert(bsri_costs_has(BSRI_COSTS_##costs, 0), #name " has costs without a row in BSRI_COST_ROWS");
BSRI_KERNELS(BSRI_X)
#undef BSRI_X
/* Which row that is. */
static int bsri_cost_kind(int costs, int64_t size) {
    int kind = 0;
    while (bsri_costs_of[kind].costs != costs) kind++;
    while (bsri_costs_of[kind + 1].costs == costs && bsri_costs_of[kind + 1].size <= size) kind++;
    return kind;
}
/* How a kernel cuts a product. rows, cols: of a tile; slice: products of one; split: warps that share a row's slices, 0: many
   rows make a tile; along: the dense operand has the slower layout; waves, beside: tiles of the busiest multiprocessor one after
   another, and at once; busy: the part of all multiprocessors that has any; fused: how much of an epilogue's time a tile takes;
   stored: how many times its sums are stored; longer, tail: how many times what the longest list has beyond a mean one is waited
   for, and multiplied; fetched: columns that are fetched; far: how much longer that takes from beyond the L2; memory: what memory
   takes more; apart: of tiles one after another, how many have what a tile takes beside its slices to themselves; edge: how much
   longer slices at out's right edge take to multiply; paired: by how much a schedule pairs. */
typedef struct bsri_tiling {
    int rows, cols, slice, split, along;
    double waves, beside, busy, fused, stored, longer, tail, fetched, far, memory, apart, edge, paired;
} bsri_tiling;

static bsri_tiling bsri_tiling_of(const bsri_facts *f, int rows, int cols, int slice, int split) {
    bsri_tiling t;
    t.rows = rows, t.cols = cols, t.fetched = cols, t.slice = slice, t.split = split, t.along = f->dense == 2;
    t.waves = t.beside = t.busy = t.stored = t.longer = t.tail = t.far = t.apart = t.edge = 1.0, t.memory = 0.0;
    t.fused = !f->vector, t.paired = 0.0;
    return t;
}

/* Tiles fill `room` places before any comes after another: then `waves` of them do. */
static void bsri_tiling_spread(bsri_tiling *t, double tiles, double room, double waves) {
    t->waves = tiles > room ? waves : 1.0, t->beside = tiles / t->waves;
}

/* The part of a group's columns that is left where a schedule groups rows that share columns; n: log2 of the number of groups,
   below 0 where rows don't fill one. by: .33 fits the unions of random patterns (note N18). */
static double bsri_paired(const bsri_facts *f, int64_t group, double n, double by) {
    const double absent = 1.0 - f->density;
    return n > 0.0 && f->inner > 0.0 ? exp(-by * n * absent * absent * sqrt((double)(group - 1) / f->inner)) : 1.0;
}

/* The traits of a plan, as if blocks stood at random places. */
static bsri_traits bsri_traits_of(const bsri_dev_product *p, const bsri_facts *f, const bsri_tiling *t) {
    const double cut = (double)p->bc / t->slice, mean = f->inner * f->density;
    const double own = t->tail * (f->most - mean) + t->waves * mean;
    const int64_t group = bsri_max(1, t->rows / p->br); /* block rows of a tile */
    const double bits = f->lists - bsri_mma_log2(group), paired = group > 1 ? bsri_paired(f, group, bits, t->paired) : 1.0;
    const double some = paired * (group > 1 ? 1.0 - bsri_none_of(f->density, group) : f->density), any = f->inner * some;
    const double most = group > 1 ? bsri_longest(f->inner, some, bits) : f->most;
    bsri_traits x;
    x.waves = t->waves * t->apart, x.tile = t->beside * t->stored * t->rows * t->cols / 32768.0, x.fused = t->fused;
    x.slices = cut * (t->waves * t->beside * any + t->longer * (most - any));
    x.crooked = f->crooked, x.busy = t->busy < 1.0 ? t->busy : 1.0;
    x.piece = (double)t->slice * t->fetched * (double)bsr_dtype_size(p->b.dtype) / 8192 * (1.0 + t->far * f->far);
    x.along = t->along;
    x.own = t->edge * cut * own / (t->split ? t->split : 1), x.area = (double)t->cols * t->rows / 16384;
    if (t->rows < 64 && p->a.dtype != BSR_F64 && (p->a.dtype != BSR_F32 || p->precision))
        x.area = (double)t->cols / 256; /* not bound by multiplying */
    x.memory = f->memory + t->memory;
    return x;
}

static double bsri_traits_ns(const bsri_costs *c, const bsri_traits *x) {
    const double lines = 1.0 + bsri_costs_crooked * x->crooked, busy = bsri_costs_alone + (1.0 - bsri_costs_alone) * x->busy;
    const double fetch = x->slices * lines * (c->fetch + c->bytes * busy * x->piece * (1.0 + c->along * x->along));
    const double multiply = x->own * (c->step + c->area * x->area);
    const double ns = c->start + x->waves * (c->tile + c->store * x->tile + c->fused * x->fused) +
                      sqrt(fetch * fetch + multiply * multiply);
    return sqrt(ns * ns + x->memory * x->memory);
}

/* Takes a tile where its estimate is below the one so far. Where its start alone is not, nothing else is computed. */
static void bsri_estimate_take(bsri_estimate *e, const bsri_dev_product *p, const bsri_facts *f, int kind,
                               const bsri_tiling *t) {
    const bsri_costs *c = &bsri_costs_of[kind];
    bsri_traits x;
    double ns;
    if (!(c->start + t->waves * t->apart * c->tile < e->ns)) return;
    x = bsri_traits_of(p, f, t), ns = bsri_traits_ns(c, &x);
    if (!(ns < e->ns)) return;
    e->ns = ns, e->kind = kind, e->traits = x, e->tile_rows = t->rows, e->tile_cols = t->cols, e->split = t->split;
}

/* Factors of the tiers' estimates, set by hand: FUSED: of what ReLU takes in an epilogue; PAIRED: how much of a group's columns a
   schedule saves; APART: exponent by which tiles one after another get cheaper. */
static constexpr double bsri_paired_by = 0.33;          /* by a schedule, of random patterns: unions of 394 to 5 % */
static constexpr double bsri_paired_f32 = 0.25;         /* what f32's constants are fitted with */
static constexpr double bsri_mma_long_first = 0.7;          /* of the longest row beyond a mean one: long ones come first */
static constexpr double bsri_small_input_rows = 0.12;   /* FUSED: an input that lies as out does, out row-major */
static constexpr double bsri_small_input_cols = 0.3;    /* FUSED: the same, column-major */
static constexpr double bsri_small_out_cols = 0.1;      /* FUSED: out column-major and nothing else */
static constexpr double bsri_small_far = 0.6;           /* all rows read a slab together: of what comes from beyond the L2 */
static constexpr double bsri_small_waves = 0.9;         /* tiles that are there at once take this, and */
static constexpr double bsri_small_crowd = 0.75;        /* this for each time that a multiprocessor is full */
static constexpr double bsri_small_longer = 2.0;        /* the longest row's blocks are waited for one by one */
static constexpr double bsri_small_many = 8.0;          /* from so many tiles one after another on each takes less: APART */
static constexpr double bsri_small_edge = 0.85;         /* more for a tile that ends beyond the last column */
static const struct bsri_small_factors {                /* by 1, 2 and 4 warps that share a tile */
    double fused, stored; /* FUSED: tiles of a CTA; sums of the warps, which wait for each other */
    double joined;        /* FUSED, more: adding them up */
    double far;           /* b by columns: they read a line's rows of several blocks together */
} bsri_small_by_split[] = {{1.3, 1.0, 0.0, 1.0}, {1.0, 1.5, 0.05, 0.5}, {0.8, 3.0, 0.1, 0.0}};
static constexpr double bsri_narrow_mma_places = 6.0;       /* tiles a multiprocessor: so far the busiest one's count */
static constexpr double bsri_narrow_mma_over = 0.5;         /* from there on the mean and so many more */
static constexpr double bsri_narrow_mma_fused = 1024.0;     /* FUSED: numbers of a tile that any epilogue counts as one */
static constexpr double bsri_narrow_mma_cols = 128.0;       /* FUSED: columns that one of 16 rows counts as one */
static constexpr double bsri_narrow_tma_stored_group = 0.25;   /* FUSED: what is stored at once, by groups */
static constexpr double bsri_narrow_tma_stored_warp = 0.12;    /* FUSED: the same by warps */
static constexpr double bsri_narrow_tma_input_wide = 3.0;      /* FUSED: an input that is waited for, of more than 64 columns */
static constexpr double bsri_narrow_tma_input = 1.3;           /* FUSED: the same, fewer */
static constexpr double bsri_narrow_tma_out_cols = 0.25;       /* FUSED, more: columns of out */
static constexpr double bsri_narrow_tma_places = 4.0; /* tiles of a multiprocessor that run at once: six at once are as slow */
static constexpr double bsri_narrow_tma_one = 0.7,
                        bsri_narrow_tma_each = 0.3;            /* FUSED: stored by one multiprocessor, for each beside it */
static constexpr double bsri_narrow_tma_constant = 1100.0;     /* ns less where blocks land before the launch before has ended */
static constexpr double bsri_narrow_tma_constant_wide = 300.0; /* the same with more than 64 columns */
static constexpr double bsri_wgmma_busiest = 0.7, bsri_wgmma_mean = 0.3; /* of units a team: the busiest one's, the mean */
static constexpr double bsri_wgmma_apart = -0.25;       /* APART: blocks of 16 and 32 */
static constexpr double bsri_wgmma_waves = 0.87;        /* exponent of tiles one after another: blocks of 64 and 128 */
static constexpr double bsri_wgmma_far = 0.5;           /* of what comes from beyond the L2: it is on its way long before */
static constexpr double bsri_wgmma_spilt = 4.0;         /* values from memory, in pieces of 64 bytes */
static constexpr double bsri_wgmma_input_32 = 1.2;      /* FUSED: an input that lies as out does, blocks of 32 */
static constexpr double bsri_wgmma_input_rows = 1.7;    /* FUSED: the same, others, row-major */
static constexpr double bsri_wgmma_input_cols = 3.0;    /* FUSED: the same, column-major */
static constexpr double bsri_wgmma_long_first = 0.6;        /* as bsri_mma_long_first */
static constexpr double bsri_wgmma_two_lines = 1.07;    /* lines of 128 bytes: so much more is fetched at most (note N10) */
static constexpr double bsri_wgmma_halved_above = 150e6; /* bytes of b from which two CTAs make a group, not four, of */
static constexpr int64_t bsri_wgmma_halved_groups = 16;  /* at most so many groups of block rows (note N6) */
static constexpr int64_t bsri_wgmma_many_tiles = 32;     /* beside each other: groups of four may have places that are empty */
/* What bounds tiles of narrow products by tensor loads (note N17; groups: note N14). */
static constexpr int bsri_narrow_tma_groups = 6, bsri_narrow_tma_groups_wide = 4; /* of warps a multiprocessor, by registers */
static constexpr int bsri_narrow_tma_besides = 2048;          /* bytes that a CTA has beside its slots */
static constexpr int64_t bsri_narrow_tma_room = 220 << 10;    /* bytes of slots a multiprocessor */
static constexpr int64_t bsri_narrow_tma_blocks = 86;         /* products of a mean row for each warp: two thirds of 128 */
static constexpr int64_t bsri_narrow_tma_values = 24 << 20;   /* bytes of values: of more two tiles run at once, not four */
/* Sampled products by wgmma (note N23): what a stored block takes in tiles of 64 rows more than in tiles of 128, as a half. */
static constexpr double bsri_wsampled_narrow = 1.6, bsri_wsampled_narrow_32 = 1.05; /* blocks of 16; of 32 */
static constexpr double bsri_wsampled_toll_wide = 0.5;  /* of a group, in entries: tiles of 128 rows; of 64: */
static constexpr double bsri_wsampled_toll_64 = 0.8, bsri_wsampled_toll = 1.5; /* blocks of 64; smaller ones */
/* Clocks and stages of the tile scheduler of wgmma products, by time stamps. */
static constexpr double bsri_assign_clocks = 360.0;       /* to deal a unit, beside tiles (calculated) */
static constexpr double bsri_assign_alone = 250.0;        /* the same where little else runs, and some */
static constexpr double bsri_assign_late = 2.5;           /* rounds that are over before what is dealt is known */
static constexpr double bsri_assign_hurry = 420.0;        /* tiles of fewer clocks for each team wait for dealing */
static constexpr double bsri_assign_read = 1000.0;        /* the same where lengths are read while it deals */
static constexpr double bsri_assign_uneven = 2.55;        /* times a mean unit: one that may be far longer */
static constexpr double bsri_long_share = 0.05;         /* a tall unit: of what a team has altogether, */
static constexpr double bsri_long_least = 1.5;          /* or so many times what it has of a slab, if that is more */

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-mma: products by simt and mma: choice, estimates, parameters                       */
/* ---------------------------------------------------------------------------------------------- */


/* Few rows a block: wide tiles, so that threads are not idle. Takes everything. */
static bsri_choice bsri_simt_choose(const bsr_context *, const bsri_dev_product *p, int compute, const bsr_plan *asked,
                                    bsri_dev_product *m) {
    bsri_wanted own = bsri_want(BSRI_FOR_PRODUCT, BSRI_TIER_SIMT, compute), as_asked = own;
    const bsri_instance *x;
    own.rows = p->br <= 4 ? 4 : p->br <= 16 ? 16 : 64, as_asked.rows = asked->tile_rows, as_asked.cols = asked->tile_cols;
    x = asked->tile_rows || asked->tile_cols ? bsri_find(&as_asked) : NULL;
    bsri_choice c = bsri_yes(x ? x : bsri_find(&own), BSR_WHY_ANY);
    if (!c.kernel) return c;
    *m = *p, m->panels = bsri_ceil_div(p->width, c.tile_cols), m->subs = bsri_ceil_div(p->br, c.tile_rows);
    c.grid = p->items * m->panels * p->tiles * m->subs;
    return c;
}

/* Tiles of 256 columns, of f64 of 128, have at most so many rows; 0: there are none. */
static int bsri_mma_wide(const bsri_dev_product *p, const bsri_facts *f) {
    if (p->a.dtype == BSR_F32) return !p->precision && p->br <= 32 ? 64 : 0; /* blocks of 64: never faster */
    if (p->a.dtype == BSR_F64) return 64;
    return bsri_is_half(p->a.dtype) && f->vector ? 128 : 0;
}

/* Why the tier does not take a product, or 0. */
static int bsri_mma_refuses(const bsr_context *ctx, const bsri_dev_product *p, int compute, const bsri_facts *f) {
    const int dt = p->a.dtype, b = p->br <= 128 ? (int)p->br : 0;
    const bsri_wanted any = bsri_want(BSRI_FOR_PRODUCT, BSRI_TIER_MMA, dt);
    if (ctx->tier < BSRI_TIER_MMA) return BSR_WHY_GPU;
    if (p->kind > BSRI_LIST_TRANSPOSED) return BSR_WHY_LIST_KIND;
    if (p->b.dtype != dt || !bsri_find(&any) || compute != bsri_sums_dtype(dt)) return BSR_WHY_DTYPE;
    if (p->br != p->bc || (b != 16 && b != 32 && b != 64 && b != 128)) return BSR_WHY_BLOCK;
    if (b * bsr_dtype_size(dt) < 32) return BSR_WHY_BLOCK; /* bytes of a step */
    if (!f->values) return BSR_WHY_VALUES;
    if (!f->dense) return BSR_WHY_DENSE;
    return bsri_max(bsri_block_cols(&p->a), bsri_block_rows(&p->a)) >= INT32_MAX ? BSR_WHY_SIZE : 0;
}

/* What f32 operands are multiplied as. */
static int bsri_type_of(int dtype, int precision) {
    return dtype != BSR_F32 || !precision ? dtype : precision == 1 ? BSRI_TYPE_TF32 : BSRI_TYPE_TF32X3;
}
/* Null: left out of this build. */
static const bsri_instance *bsri_mma_instance(const bsri_dev_product *p, int dense, int cols) {
    bsri_wanted w = bsri_want(BSRI_FOR_PRODUCT, BSRI_TIER_MMA, bsri_type_of(p->a.dtype, p->precision));
    w.block = (int32_t)p->br, w.cols = cols, w.layout = dense;
    return bsri_find(&w);
}
/* The tile that is estimated to be the fastest, of those that a plan leaves. */
static bsri_estimate bsri_mma_estimate(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, int compute,
                                       const bsr_plan *asked) {
    const int f64 = p->a.dtype == BSR_F64, why = bsri_mma_refuses(ctx, p, compute, f);
    const int wide = bsri_mma_wide(p, f), least = f64 ? 64 : 128; /* rows of tiles of 2 least columns */
    const bsri_instance *x = why ? NULL : bsri_mma_instance(p, f->dense, least);
    bsri_estimate e = bsri_estimate_below(f, why);
    double each;
    int rows, cols, kind;
    if (why) return e;
    if (!x) return bsri_estimate_none(BSR_WHY_CUT);
    kind = bsri_cost_kind(x->costs, p->br);
    for (cols = least; cols <= (wide ? 2 : 1) * least; cols *= 2)
        for (rows = cols > least ? wide : 128; rows >= bsri_max(32, p->br); rows /= 2) {
            bsri_tiling t = bsri_tiling_of(f, rows, cols, x->slice, 0);
            if ((asked->tile_rows && asked->tile_rows != rows) || (asked->tile_cols && asked->tile_cols != cols)) continue;
            each = (double)bsri_mma_tiles(p, (int)p->br, rows, cols) / ctx->sm_count;
            t.waves = ceil(each), t.busy = each / t.waves;
            t.paired = !f->ordered ? 0.0 : p->a.dtype == BSR_F32 ? bsri_paired_f32 : bsri_paired_by;
            if (p->a.dtype == BSR_F32 && each > 1.0) t.longer = t.tail = bsri_mma_long_first;
            bsri_estimate_take(&e, p, f, kind, &t);
        }
    if (!e.tile_rows) e.tile_rows = 128, e.tile_cols = least; /* no tile is as the plan asks */
    return e;
}

/* Slots of the pipeline: at least as many as warps that fetch, which take stages in turn and look at one slot's parity only.
   Where shared memory is short the tile shrinks. Whether there are enough. */
static int bsri_mma_fit(const bsr_context *ctx, const bsri_dev_product *p, const bsr_plan *asked, int b, int dense,
                        const bsri_instance **x, bsri_choice *c, bsri_dev_mma *m) {
    const int line = (int)bsr_dtype_size(p->a.dtype);
    for (;;) {
        const bsri_instance *s = *x = bsri_mma_instance(p, dense, c->tile_cols);
        if (!s) return 0;
        const int a = s->slices * c->tile_rows * s->slice * line, warps = c->tile_rows / s->warp_rows * s->warps;
        const int left = (int)bsri_min(s->shared, ctx->smem_optin - 11 * 1024) - warps * BSRI_MMA_PASS * 4;
        m->m_warps = c->tile_rows / s->warp_rows, c->threads = BSRI_PRODUCERS + 32 * warps;
        m->b_at = a, m->stage_bytes = a + s->slices * c->tile_cols * s->slice * line;
        m->stages = (int)bsri_min(BSRI_GROUP, left / m->stage_bytes);
        if (m->stages >= BSRI_PRODUCERS / 32) break;
        if (c->tile_cols == (p->a.dtype == BSR_F64 ? 128 : 256)) c->tile_cols /= 2;
        else if (c->tile_rows > bsri_max(b, 32)) c->tile_rows /= 2;
        else return 0;
    }
    if (asked->stages >= BSRI_PRODUCERS / 32 && asked->stages < m->stages) m->stages = asked->stages;
    c->stages = m->stages, c->shared = m->stages * m->stage_bytes + (c->threads - BSRI_PRODUCERS) / 32 * BSRI_MMA_PASS * 4;
    return 1;
}

static void bsri_mma_strides(const bsri_dev_product *p, const bsri_instance *s, int cols, int values, int dense,
                             bsri_dev_mma *m) {
    const int64_t size = (int64_t)bsr_dtype_size(p->a.dtype);
    const int line = s->slice * (int)size;
    m->view = p->view, m->down = (int32_t)(p->br * p->a_rs * size), m->right = (int32_t)(p->bc * p->a_cs * size);
    m->width = p->width, m->sub_bits = bsri_mma_log2(p->br / s->slice), m->a_trans = values == 2,
    m->slabs = bsri_ceil_div(p->width, cols);
    m->b_rows = dense == 1, m->a_line = (values == 2 ? p->a_cs : p->a_rs) * size, m->a_block = p->a_block * size;
    m->a_jump = 512 / (values == 2 ? s->warp_rows * (int)size : line) * m->a_line;
    m->a_step = s->slice * (values == 2 ? m->a_line : size), m->a_part = s->warp_rows * (values == 2 ? size : m->a_line);
    m->out = (char *)p->out.data, m->out_row = p->out.row_stride, m->out_col = p->out.col_stride;
    m->b_line = (dense == 1 ? p->b.row_stride : p->b.col_stride) * size;
    m->b_jump = m->b_line * (dense == 1 ? bsri_max(1, 512 / (cols * size)) : 512 / line);
}

static bsri_choice bsri_mma_choose(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, const bsr_plan *asked,
                                   const bsri_estimate *e, bsri_dev_mma *m) {
    const int dt = p->a.dtype, b = (int)p->br, ranks = dt == BSR_F32 || (dt == BSR_I8 && b > 32);
    const bsri_instance *x = bsri_mma_instance(p, f->dense, e->tile_cols);
    bsri_choice c = bsri_yes(x, BSR_WHY_GROUP);
    if (!x) return c;
    memset(m, 0, offsetof(bsri_dev_mma, p));
    m->p = *p, m->vector = f->vector, c.tile_rows = e->tile_rows, c.tile_cols = e->tile_cols;
    if (!bsri_mma_fit(ctx, p, asked, b, f->dense, &x, &c, m)) return bsri_no(BSR_WHY_SHARED);
    c.kernel = x->number;
    /* ranking rows by length costs time, and is for nothing where each CTA has one tile (note N21) */
    c.order = ranks && bsri_mma_tiles(p, b, c.tile_rows, c.tile_cols) > ctx->sm_count ? 2 : 1;
    if (asked->order == 1 || asked->order == 2) c.order = asked->order;
    m->order = c.order - 1;
    m->group = c.tile_rows / b, m->block_bits = bsri_mma_log2(b / x->warp_rows);
    if (m->group == 1) c.reason = BSR_WHY_ONE_ROW;
    bsri_mma_strides(p, x, c.tile_cols, f->values, f->dense, m);
    c.grid = p->items * m->slabs * bsri_ceil_div(p->tiles, m->group);
    if (c.grid > 0x3f000000) return bsri_no(BSR_WHY_SIZE); /* a schedule pads */
    c.grid = bsri_min(ctx->sm_count, c.grid);
    return c;
}

/* How many CTAs run at once on a multiprocessor that gets `all`. */
static int bsri_small_room(const bsri_dev_product *p, const bsri_facts *f, double all) {
    return p->br == 16 || (all > 3.0 && f->simple) ? 4 : 3;
}

/* Columns of a tile at most: blocks of 16 by rows have tiles of 128, too, which are faster for large outputs (note N15). */
static int bsri_small_most(const bsri_dev_product *p, const bsri_facts *f, int split) {
    return p->br == 16 && f->dense == 1 && split == 1 && f->simple ? 128 : 64;
}

/* ctas: on a multiprocessor, 0: any. */
static const bsri_instance *bsri_small_instance(const bsri_dev_product *p, const bsri_facts *f, int cols, int ctas) {
    bsri_wanted w = bsri_want(BSRI_FOR_SMALL, BSRI_TIER_MMA, p->a.dtype);
    w.rows = p->br == 16 ? 16 : 32, w.cols = cols, w.layout = f->dense, w.ctas = ctas;
    return bsri_find(&w);
}
static void bsri_small_take(bsri_estimate *e, const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, int rows,
                            int cols, int split) {
    const int kind = bsri_cost_kind(cols > 64 ? BSRI_COSTS_SMALL_WIDE : BSRI_COSTS_SMALL, p->br);
    bsri_tiling t = bsri_tiling_of(f, rows, cols, rows, split);
    const double all = (double)bsri_ceil_div(bsri_mma_tiles(p, (int)p->br, rows, cols), 4 / split) / ctx->sm_count;
    const double room = bsri_small_room(p, f, all); /* for CTAs of four warps, of which there are `all` */
    const bsri_small_factors *by = &bsri_small_by_split[bsri_mma_log2(split)];
    if (!f->vector && f->simple) t.fused = bsri_mma_layout(&p->out) == 1 ? bsri_small_input_rows : bsri_small_input_cols;
    else if (f->vector == 2) t.fused = bsri_small_out_cols;
    t.fused = t.fused * by->fused + by->joined, t.stored = by->stored, t.far = bsri_small_far;
    if (t.along) t.far *= by->far;
    /* CTAs that run at once are spread evenly over the multiprocessors (bsri_spread_evenly) */
    bsri_tiling_spread(&t, all > room ? (ceil(all) + all) / 2 : ceil(all), room,
                       bsri_small_waves + bsri_small_crowd * all / room);
    t.busy = all / (t.waves * t.beside), t.beside *= 4 / split, t.longer = bsri_small_longer;
    /* Many tiles one after another take less each (note N18). */
    if (p->br < 64 && t.waves > bsri_small_many) t.apart = pow(t.waves / bsri_small_many, -0.25);
    /* A slab that ends within a tile is fetched piece by piece with a check each, which takes longer where a warp has little else
       to do (note N18). Tiles that run at the same time wait for it. */
    if (p->width % cols) t.edge = 1.0 + bsri_small_edge * (t.waves > 1.0 ? 1.0 / (double)bsri_ceil_div(p->width, cols) : 1.0);
    bsri_estimate_take(e, p, f, kind, &t);
}

/* Where there is little to do: tiles of a block row, or of 32 rows of one, and 64 columns, or 128; split: the best number of
   warps that share one, or what a plan asks for. */
static bsri_estimate bsri_small_estimate(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, int compute,
                                         const bsr_plan *asked) {
    const int rows = (int)bsri_min(p->br, 32), why = bsri_mma_refuses(ctx, p, compute, f);
    bsri_estimate e = bsri_estimate_below(f, why);
    int64_t tiles;
    int cols, most, i;
    if (why) return e;
    if (!bsri_is_half(p->a.dtype)) return bsri_estimate_none(BSR_WHY_DTYPE);
    tiles = bsri_mma_tiles(p, (int)p->br, rows, 64);
    if (bsri_max(tiles, p->a.nnz) >= INT32_MAX / 8 ||
        (p->trans ? bsri_block_rows(&p->a) : bsri_block_cols(&p->a)) * p->br >= INT32_MAX)
        return bsri_estimate_none(BSR_WHY_SIZE);
    for (i = 1; i <= 4; i *= 2)
        for (cols = 64, most = bsri_small_most(p, f, i); cols <= most; cols *= 2)
            if ((!asked->split || asked->split == i) && (!asked->tile_cols || asked->tile_cols == cols))
                bsri_small_take(&e, ctx, p, f, rows, cols, i);
    if (!e.split) e.tile_rows = rows, e.tile_cols = 64, e.split = 1;
    return e;
}

static bsri_choice bsri_small_choose(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f,
                                     const bsr_plan *, const bsri_estimate *e, bsri_dev_mma *m) {
    const bsri_instance *x = bsri_small_instance(p, f, e->tile_cols, 0);
    bsri_choice c = bsri_yes(x, BSR_WHY_SHORT);
    int64_t teams;
    int four;
    if (!x) return c;
    memset(m, 0, offsetof(bsri_dev_mma, p));
    m->p = *p, bsri_mma_single(p, &m->rows), m->simple = f->simple, m->vector = f->vector;
    m->lines = (int32_t)p->tiles, m->alpha = (float)p->alpha, m->constant = p->constant && p->kind == BSRI_LIST_ROWS;
    if (m->simple && f->adds) {
        m->vector = bsri_mma_layout(&p->out), m->beta = (float)p->beta;
        m->input = (const char *)p->input.data, m->input_row = p->input.row_stride, m->input_col = p->input.col_stride;
    }
    bsri_mma_strides(p, x, c.tile_cols, f->values, f->dense, m);
    m->block_bits = bsri_mma_log2(p->br / x->warp_rows);
    m->total = (int32_t)bsri_mma_tiles(p, (int)p->br, c.tile_rows, c.tile_cols), m->group = (int32_t)(m->total / m->slabs);
    m->split = c.split = e->split, teams = 4 / c.split, m->split_bits = (uint32_t)bsri_mma_log2(c.split);
    /* Row by row, except where b is larger than what the L2 keeps: then all rows of some slabs, so that each slab is read once.
       The limit is higher for few rows. A b that all items share counts once for each item (note N15). */
    m->order = bsri_dense_bytes(p) * (double)p->items <= (double)(m->group <= 16 ? bsri_h200.l2_slab : bsri_h200.l2_slab_tall);
    if (!m->order) m->total = (int32_t)(m->group * bsri_ceil_div(m->slabs, teams) * teams);
    m->by = (uint32_t)bsri_max(1, m->order ? m->slabs : m->group), m->by_inverse = ~0u / m->by;
    c.grid = bsri_ceil_div(m->total, teams), four = bsri_small_room(p, f, (double)c.grid / ctx->sm_count) == 4;
    /* stages are those of the first one found: a plan is to serve other epilogues, too (but not one of 128 columns, as there is
       no such kernel for them) */
    x = bsri_small_instance(p, f, c.tile_cols, four ? 4 : 3);
    if (!x) return bsri_no(BSR_WHY_CUT);
    c.kernel = x->number, c.shared = x->threads / 32 * x->warp_bytes;
    /* Values go through the L1 where it pays: blocks of 16, and blocks of 32 with few rows (note N15). */
    m->near = m->order && teams == 4 && (p->br == 16 || (p->br == 32 && p->tiles <= (four ? 56 : 24)));
    c.pdl = ctx->tier >= BSRI_TIER_WGMMA; /* the loaded code waits */
    bsri_spread_evenly(ctx, &c);
    return c;
}

/* What a product with one item and one reduction needs without looking at batches; and what the L2 is asked for. */
static void bsri_narrow_mma_single(const bsri_dev_product *p, int64_t grid, bsri_dev_narrow_mma *m) {
    m->single = bsri_mma_single(p, &m->rows);
    if (!m->single) return;
    m->out = (char *)p->out.data;
    m->plain = bsri_mma_plain(p);
    if (p->kind == BSRI_LIST_TRANSPOSED || p->a_block != p->br * p->bc) return;
    m->stream = p->a.nnz * m->a_block, m->ahead = bsri_ceil_div(m->stream, grid * 16) * 16;
    m->col_stream = p->a.nnz * (int64_t)bsr_dtype_size(p->a.index_dtype), m->col_ahead = bsri_ceil_div(m->col_stream, grid);
}

/* The same for products with few columns. */
static int bsri_narrow_mma_rows(const bsri_dev_product *p) { /* b is not read along its columns */
    return !(p->b.row_stride == 1 && (p->b.col_stride % 8 == 0 || p->width == 1) && bsri_dense_aligned(&p->b, 8));
}

static const bsri_instance *bsri_narrow_mma_instance(const bsri_dev_product *p, int tile_rows, int tile_cols) {
    bsri_wanted w = bsri_want(BSRI_FOR_NARROW, BSRI_TIER_MMA, p->a.dtype);
    w.rows = tile_rows, w.cols = tile_cols, w.layout = bsri_narrow_mma_rows(p) ? 1 : 2;
    return bsri_find(&w);
}
static bsri_estimate bsri_narrow_mma_estimate(const bsr_context *ctx, const bsri_dev_product *seen, const bsri_facts *f,
                                              int compute, const bsr_plan *) {
    const bsri_dev_product *const p = f->stored;
    const int dt = p->a.dtype, ni = p->width <= 8 ? 0 : p->width <= 16 ? 1 : p->width <= 32 ? 2 : 3, held = ni < 2 ? 32 : 16;
    const int64_t blocks = (int64_t)(bsri_mean_blocks(&p->a) / (double)bsri_max(1, p->tiles)); /* of a row, on average */
    bsri_estimate e = bsri_estimate_below(f, 0);
    bsri_tiling t;
    double each, room; /* tiles of the busiest multiprocessor; those that it holds */
    int64_t grid;
    if (ctx->tier < BSRI_TIER_MMA) return bsri_estimate_none(BSR_WHY_GPU);
    if (p->width > 64) return bsri_estimate_none(BSR_WHY_WIDE);
    if (p->kind > BSRI_LIST_TRANSPOSED) return bsri_estimate_none(BSR_WHY_LIST_KIND);
    if (compute != BSR_F32 || p->b.dtype != dt || !bsri_is_half(dt)) return bsri_estimate_none(BSR_WHY_DTYPE);
    if (p->br % 16 || p->bc % 16 || p->bc > 1024) return bsri_estimate_none(BSR_WHY_BLOCK);
    if (f->values != 1) return bsri_estimate_none(BSR_WHY_VALUES);
    if (bsri_max(p->reduce, bsri_max(bsri_block_cols(&p->a), bsri_block_rows(&p->a))) >= INT32_MAX ||
        p->a.nnz >= INT32_MAX / 2 / p->bc) /* a row's products are counted; columns may be repeated */
        return bsri_estimate_none(BSR_WHY_SIZE);
    /* 32 rows at a time halve what is read of b; with 16 or 64 columns they leave too few registers */
    e.tile_rows = ni % 2 || p->br % 32 || p->items * p->tiles * (p->br / 32) < 2 * ctx->sm_count ? 16 : 32;
    e.tile_cols = 8 << ni, grid = p->items * p->tiles * (p->br / e.tile_rows);
    if (!bsri_narrow_mma_instance(p, e.tile_rows, e.tile_cols)) return bsri_estimate_none(BSR_WHY_WIDE); /* 64 by rows */
    /* no more warps than the multiprocessors hold at once, and at least one unit of 32 products for each in a mean row */
    e.split = ni ? 8 : 16;
    while (e.split > 2 && (grid * e.split > ctx->sm_count * held || blocks * p->bc <= e.split / 2 * 32)) e.split /= 2;
    t = bsri_tiling_of(f, e.tile_rows, e.tile_cols, 32, e.split), t.along = bsri_narrow_mma_rows(p), t.longer = 0.0;
    t.fused = bsri_mma_plain(p) ? 0.0 : e.tile_rows * e.tile_cols / bsri_narrow_mma_fused;
    if (e.tile_rows == 16) t.fused += e.tile_cols / bsri_narrow_mma_cols;
    each = (double)grid / ctx->sm_count, room = (double)held / e.split;
    each = each <= bsri_narrow_mma_places ? ceil(each) : each + bsri_narrow_mma_over;
    bsri_tiling_spread(&t, each, room, each / room);
    t.busy = (double)grid / ctx->sm_count;
    bsri_estimate_take(&e, seen, f, bsri_cost_kind(BSRI_COSTS_NARROW_MMA, e.tile_rows), &t);
    return e;
}

static bsri_choice bsri_narrow_mma_choose(const bsr_context *ctx, const bsri_dev_product *, const bsri_facts *f, const bsr_plan *,
                                      const bsri_estimate *e, bsri_dev_narrow_mma *m) {
    const bsri_dev_product *const p = f->stored;
    bsri_choice c = bsri_yes(bsri_narrow_mma_instance(p, e->tile_rows, e->tile_cols), BSR_WHY_SKINNY);
    if (!c.kernel) return c;
    memset(m, 0, offsetof(bsri_dev_narrow_mma, p));
    m->p = *p, m->subs = (int32_t)(p->br / e->tile_rows), m->bits = bsri_mma_log2(p->bc), m->tiles = p->tiles;
    m->bc = (int32_t)p->bc, m->by_bc = p->bc & (p->bc - 1) ? bsri_view_of(1, p->bc / 16).by_cols : 0;
    c.grid = m->work = p->items * p->tiles * m->subs;
    c.threads = e->split * 32, c.shared = e->split * c.tile_rows * (c.tile_cols + 1) * 4;
    c.pdl = ctx->tier >= BSRI_TIER_WGMMA; /* the loaded code waits */
    m->width = (int32_t)p->width, m->a_line = p->a_rs * 2, m->a_block = p->a_block * 2;
    m->b_row = p->b.row_stride, m->b_col = p->b.col_stride, m->out_row = p->out.row_stride, m->out_col = p->out.col_stride;
    m->out_dtype = p->out.dtype, m->vec2 = p->b.col_stride == 1 && p->b.row_stride % 2 == 0 && p->width % 2 == 0;
    m->vec2 = m->vec2 && bsri_dense_aligned(&p->b, 8);
    bsri_narrow_mma_single(p, c.grid, m);
    return c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-tiny: products of blocks too small or too odd for tensor cores: lanes, parameters  */
/* ---------------------------------------------------------------------------------------------- */

/* The least power of two that is not below n, its logarithm; at most `most`. */
static int bsri_tiny_log(int64_t n, int most) { return (int)bsri_min(bsri_mma_log2(2 * n - 1), most); }
/* May `many` elements side by side be loaded at once, from every item's first on? */
static int bsri_tiny_aligned(const void *data, int64_t size, int64_t many, int dims, const int64_t *stride) {
    int i;
    if ((uintptr_t)data % (uintptr_t)(many * size)) return 0;
    for (i = 0; i < dims; i++)
        if (stride[i] % many) return 0;
    return 1;
}
/* Why a product can't be taken, or 0. Rows of b are found by offsets of 32 bits. */
static int bsri_tiny_refuses(const bsri_dev_product *p, int compute) {
    const int dt = p->a.dtype;
    int64_t reach;
    if ((p->kind != BSRI_LIST_ROWS && p->kind != BSRI_LIST_TRANSPOSED) || !p->reduce) return BSR_WHY_LIST_KIND;
    if (p->b.dtype != dt || compute != bsri_sums_dtype(dt)) return BSR_WHY_DTYPE;
    if (!bsri_mul(bsri_max(p->b.rows, 1), p->b.row_stride, &reach) || reach > INT32_MAX / 2) return BSR_WHY_SIZE;
    if (p->b.col_stride > INT32_MAX / 512 || bsri_max(p->br, p->bc) > 1 << 20) return BSR_WHY_SIZE;
    return bsri_max(bsri_block_rows(&p->a), bsri_block_cols(&p->a)) > INT32_MAX ? BSR_WHY_SIZE : 0;
}
/* What of a block is in shared memory at once, of how many blocks; `room` bytes for values of `size` there, `sums` for sums. */
static void bsri_tiny_cut(bsri_dev_tiny *m, int wide, int64_t size, int64_t room, int64_t sums) {
    const bsri_dev_product *p = &m->of;
    const int64_t whole = p->br * p->bc, across = p->a_rs == 1 && p->a_cs == p->br;
    m->packed = !wide && p->subs == 1 && p->a_block == whole && whole * size <= room &&
                ((p->a_rs == p->bc && p->a_cs == 1) || across);
    m->inner = (int32_t)(m->packed ? p->bc : bsri_max(1, bsri_min(p->bc, room / (m->rows * size))));
    m->row = wide ? 1 : m->packed ? (int32_t)p->a_rs : m->inner;
    m->along = wide ? m->each : m->packed ? (int32_t)p->a_cs : 1;
    m->block = wide ? m->each * m->inner : m->packed ? (int32_t)whole : m->rows * m->inner;
    m->by_block = m->rows * m->inner == 1 ? 0 : (uint32_t)bsri_ceil_div(INT64_C(1) << 32, (int64_t)m->rows * m->inner);
    m->by_row = m->inner == 1 ? 0 : (uint32_t)bsri_ceil_div(INT64_C(1) << 32, m->inner);
    m->chunk = m->inner < p->bc ? 1 : (int32_t)bsri_max(1, bsri_min(1024, (room + 512) / (m->block * size + 4)));
    room = bsri_max((int64_t)m->chunk * m->block * size + 16, sums); /* 16: as far from a multiple of 16 as in memory */
    m->values_bytes = (int32_t)(bsri_ceil_div(room, 16) * 16), m->bytes = m->values_bytes + (m->chunk + 3) / 4 * 16;
}
/* Rows of a lane, lanes for rows: few columns. 1 x 1 and 2 x 2 as they are, sides that are multiples of 3 by
   3 x 3, else one row and four columns at a time. */
static void bsri_tiny_rows(bsri_dev_tiny *m, bsri_wanted *w) {
    const bsri_dev_product *p = &m->of;
    w->of = BSRI_FOR_TINY, w->cols = p->br == 1 && p->bc == 1 ? 1 : p->br == 2 && p->bc == 2 ? 2 : p->br % 3 || p->bc % 3 ? 4 : 3;
    m->each = w->rows = w->cols == 4 ? 1 : w->cols;
    m->log_rows = bsri_tiny_log(bsri_ceil_div(p->br, m->each), 5 - m->log_columns);
    m->rows = (int32_t)bsri_min(p->br, (int64_t)m->each << m->log_rows);
}
/* Many columns: a lane has four, side by side where b allows it. */
static void bsri_tiny_columns(bsri_dev_tiny *m, bsri_wanted *w, int64_t size) {
    const bsri_dev_product *p = &m->of;
    const int64_t many = bsri_min(16, 4 * size) / size;
    m->each = p->br == 1 ? 1 : p->br <= 4 ? 4 : 8, m->rows = (int32_t)bsri_min(m->each, p->br);
    m->b_pieces = p->b.col_stride == 1 && p->b.row_stride % many == 0 && p->width % 4 == 0 &&
                  bsri_tiny_aligned(p->b.data, size, many, p->b.batch_dims, p->b.batch_stride);
    w->of = BSRI_FOR_TINY_WIDE, w->rows = m->each, w->cols = m->b_pieces ? 4 : 1;
}
/* As many tiles for a warp as a chunk of `room` bytes holds, as long as there is work for all multiprocessors. */
static void bsri_tiny_tiles(const bsr_context *ctx, bsri_dev_tiny *m, int wide, int64_t size, int64_t room) {
    const bsri_dev_product *p = &m->of;
    const int64_t patterns = p->a.flags & BSR_MATRIX_RAGGED ? bsri_max(bsri_pattern_count(&p->a), 1) : 1;
    const int64_t list = bsri_max(p->a.nnz / bsri_max(p->tiles, 1) / patterns, 1);
    const int64_t fit = wide ? 1 : room / ((m->rows * p->bc * size + 4) * list);
    const double warps = (double)p->tiles * (double)p->items * (double)p->subs;
    m->log_tiles = 5 - m->log_columns - m->log_rows;
    while (m->log_tiles > 0 &&
           ((int64_t)1 << m->log_tiles > bsri_max(fit, 1) || warps / (1 << m->log_tiles) < ctx->sm_count * 8.0))
        m->log_tiles--;
    m->log_blocks = 5 - m->log_columns - m->log_rows - m->log_tiles;
}
/* Which operands are loaded by pieces of two or four elements: few columns. */
static void bsri_tiny_pieces_of(bsri_dev_tiny *m, int piece, int64_t size) {
    const bsri_dev_product *p = &m->of;
    const int64_t many = bsri_min(16, piece * size) / size;
    if (piece % 2 || p->bc % piece || m->inner % piece) return;
    m->b_pieces = p->b.row_stride == 1 && p->b.col_stride % many == 0 &&
                  bsri_tiny_aligned(p->b.data, size, many, p->b.batch_dims, p->b.batch_stride);
    m->a_pieces = m->along == 1 && (!m->packed || p->kind == BSRI_LIST_TRANSPOSED ||
                                    bsri_tiny_aligned(p->a.values, size, many, p->a.batch_dims, p->a.values_batch_stride));
}
/* Ahead of tiles that are far wider: one or two columns in f32, and in f64 with small blocks, where there are rows enough for
   every warp. */
static int bsri_tiny_ahead(const bsr_context *ctx, const bsri_dev_product *p) {
    const int takes = p->a.dtype == BSR_F32 || (p->a.dtype == BSR_F64 && p->br <= 16 && p->bc <= 16);
    return takes && p->width <= 2 && (double)p->tiles * (double)p->items >= ctx->sm_count * 8.0;
}
/* Takes lists by rows and by the transposed index, of any type and block size. */
static bsri_choice bsri_tiny_choose(const bsr_context *ctx, const bsri_dev_product *p, int compute, bsri_dev_tiny *m) {
    const int64_t size = (int64_t)bsr_dtype_size(p->a.dtype), sum = p->a.dtype == BSR_F64 ? 8 : 4;
    /* bytes of values that a warp holds: what is under way at once hides the memory's latency */
    const int64_t most = bsri_min(BSRI_TINY_SHARED, ctx->smem_optin) / BSRI_TINY_WARPS - 1024;
    const int64_t room = bsri_min(p->br * p->bc * size < 100 ? 12000 : 8192, most);
    const int wide = p->width > 32, cols = wide ? 4 : 1, why = bsri_tiny_refuses(p, compute);
    bsri_wanted w = bsri_want(BSRI_FOR_TINY, BSRI_TIER_SIMT, p->a.dtype);
    bsri_choice c;
    if (why) return bsri_no(why);
    memset(m, 0, sizeof *m), m->of = *p;
    m->b_row = (int32_t)p->b.row_stride, m->b_block = (int32_t)(p->bc * p->b.row_stride);
    m->log_columns = bsri_tiny_log(bsri_ceil_div(p->width, cols), 5);
    if (wide) bsri_tiny_columns(m, &w, size);
    else bsri_tiny_rows(m, &w);
    m->of.subs = bsri_ceil_div(p->br, m->rows);
    bsri_tiny_tiles(ctx, m, wide, size, room);
    bsri_tiny_cut(m, wide, wide ? sum : size, room, ((int64_t)m->rows << m->log_tiles) * (cols << m->log_columns) * sum);
    if (!wide) bsri_tiny_pieces_of(m, w.cols, size);
    m->of.panels = bsri_ceil_div(p->width, cols << m->log_columns);
    m->sets = bsri_ceil_div(p->tiles, (int64_t)1 << m->log_tiles);
    if (BSRI_TINY_WARPS * (int64_t)m->bytes > bsri_min(BSRI_TINY_SHARED, ctx->smem_optin)) return bsri_no(BSR_WHY_SHARED);
    c = bsri_yes(bsri_find(&w), BSR_WHY_TINY);
    c.tile_rows = m->rows << m->log_tiles, c.tile_cols = cols << m->log_columns, c.shared = BSRI_TINY_WARPS * m->bytes;
    c.grid = bsri_ceil_div(p->items * m->of.panels * m->of.subs * m->sets, BSRI_TINY_WARPS);
    return c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-vector: products with one column: lanes, shares of warps                           */
/* ---------------------------------------------------------------------------------------------- */

/* The most columns of a block that one load can bring, up to 16 bytes. */
static int bsri_vector_piece_of(const bsri_dev_product *p, int64_t size) {
    int64_t n = bsri_min(16 / size, 8);
    if (p->a_cs != 1) return 1;
    while (n > 1 && (p->bc % n || p->a_rs % n || p->a_block % n ||
                     !bsri_tiny_aligned(p->a.values, size, n, p->a.batch_dims, p->a.values_batch_stride)))
        n /= 2;
    return (int)n;
}
/* Lanes of a group that has a block row of `list` stored blocks: as few as take it in two rounds and leave hardly more idle than
   others. */
static void bsri_vector_group(bsri_dev_vector *m, int64_t list, int at_once) {
    const int block = m->piece_lanes * m->row_lanes, least = bsri_tiny_log(block, 5);
    double busy[6], best = 0;
    int i;
    for (i = least; i <= 5; i++) {
        const int64_t blocks = (1 << i) / block, steps = bsri_ceil_div(list, blocks);
        busy[i] = steps <= 2 * at_once || i == 5 ? (double)block * (double)list / (double)(steps << i) : 0;
        if (busy[i] > best) best = busy[i];
    }
    for (i = least; busy[i] < .95 * best; i++) {}
    m->log_group = i, m->block_lanes = (1 << i) / block;
    m->log_pieces = bsri_tiny_log(m->piece_lanes, 5), m->log_blocks = bsri_tiny_log(m->block_lanes, 5);
}
#ifndef BSRI_VECTOR_LEAST
#define BSRI_VECTOR_LEAST 4e6 /* bytes of values: below that two more launches are too long */
#endif
/* Shares of warps: of whole rows, or of stored blocks where there is work for all multiprocessors. Returns the workspace that
   pieces of rows need, 0: there are none. */
static uint64_t bsri_vector_shares(const bsr_context *ctx, bsri_dev_vector *m, int64_t size, int at_once) {
    const bsri_dev_product *p = &m->of;
    const int64_t groups = 32 >> m->log_group, bands = p->items * p->width * p->subs, warps = (int64_t)ctx->sm_count * 16;
    const int64_t patterns = p->a.flags & BSR_MATRIX_RAGGED ? bsri_max(bsri_pattern_count(&p->a), 1) : 1;
    const int64_t nnz = p->a.nnz / patterns, keys = nnz + p->tiles * m->row_keys;
    const int64_t ranges = bsri_min(bsri_max(warps / bands, 1), bsri_ceil_div(keys, 2 * groups * m->block_lanes * at_once));
    m->rows_each = groups * bsri_max(1, bsri_min(8, p->tiles / groups * bands / (4 * warps)));
    m->ranges = bsri_ceil_div(p->tiles, m->rows_each);
    if ((double)nnz * (double)p->br * (double)p->bc * (double)size < BSRI_VECTOR_LEAST || ranges < 2) return 0;
    m->rest_at = bands * ranges * 2 * m->rows * 8;
    m->pieces_of_rows = 1, m->ranges = ranges;
    return (uint64_t)(m->rest_at + bands * ranges * 8);
}
/* Lanes and shares, and what is wanted of an instance. Takes lists by rows and by the transposed index, of any type and block
   size, fewer than 2^30 stored blocks, and no sum over items. 0, or why not. */
static int bsri_vector_lanes(const bsri_dev_product *p, int compute, bsri_dev_vector *m, bsri_wanted *w, int *at_once) {
    const int64_t size = (int64_t)bsr_dtype_size(p->a.dtype);
    const int why = bsri_tiny_refuses(p, compute);
    int64_t list = bsri_max(p->a.nnz / bsri_max(p->tiles, 1), 1);
    *w = bsri_want(BSRI_FOR_VECTOR, BSRI_TIER_SIMT, p->a.dtype);
    if (why || p->reduce != 1) return why ? why : BSR_WHY_LIST_KIND;
    if (p->a.nnz > INT32_MAX / 2 || (double)p->items * (double)p->br * (double)p->tiles * (double)p->width > INT32_MAX / 2)
        return BSR_WHY_SIZE;
    if (p->a.flags & BSR_MATRIX_RAGGED) list = bsri_max(list / bsri_max(bsri_pattern_count(&p->a), 1), 1);
    memset(m, 0, sizeof *m), m->of = *p;
    w->cols = bsri_vector_piece_of(p, size), m->pieces = p->bc / w->cols;
    m->piece_lanes = (int32_t)bsri_min(m->pieces, 32), m->row_lanes = (int32_t)bsri_min(p->br, 32 / m->piece_lanes);
    w->rows = p->br > m->row_lanes ? 4 : 1;
    if (w->rows > 1 && p->br < 4 * m->row_lanes)
        m->row_lanes = (int32_t)bsri_ceil_div(p->br, bsri_ceil_div(p->br, m->row_lanes)); /* as many rows for every lane */
    m->rows = (int32_t)bsri_min(p->br, (int64_t)w->rows * m->row_lanes), m->of.subs = bsri_ceil_div(p->br, m->rows);
    *at_once = (int)bsri_max(1, bsri_min(8, BSRI_VECTOR_IN_FLIGHT / (w->rows * w->cols * size)));
    bsri_vector_group(m, list, *at_once);
    m->row_step = m->row_lanes * p->a_rs;
    m->long_row = (32 >> m->log_group) * (int64_t)*at_once * m->block_lanes, m->row_keys = p->br * p->bc * size <= 8 ? 4 : 2;
    m->b_row = (int32_t)p->b.row_stride, m->b_block = (int32_t)(p->bc * p->b.row_stride);
    m->b_pieces = p->b.row_stride == 1 && p->b.col_stride % w->cols == 0 &&
                  bsri_tiny_aligned(p->b.data, size, w->cols, p->b.batch_dims, p->b.batch_stride);
    return 0;
}
/* Rows that are far longer than others, after a kernel that leaves them: the chooser's workspace has room for their pieces. Where
   it has not, or they can't be found, that kernel takes all. */
static void bsri_vector_after(const bsr_context *ctx, int compute, const bsri_chooser *s, int64_t *long_row, bsri_choice *c,
                              bsri_dev_vector *m, int64_t at) {
    const bsri_dev_product p = m->of;
    bsri_wanted w;
    uint64_t bytes;
    int at_once;
    *long_row = 0;
    if (!c->kernel || bsri_vector_lanes(&p, compute, m, &w, &at_once)) return;
    bytes = bsri_vector_shares(ctx, m, (int64_t)bsr_dtype_size(p.a.dtype), at_once);
    if (!bytes || bytes > s->asked->workspace_bytes) return;
    m->workspace = s->workspace, m->only_long = bsri_max(8 * (p.a.nnz / p.tiles), 64);
    const bsri_instance *const x = bsri_find(&w);
    w.of = BSRI_FOR_VECTOR_REST, w.rows = w.cols = 0;
    const bsri_instance *const rest = bsri_find(&w);
    if (!x || !rest) return;
    *long_row = m->only_long, c->workspace = bytes;
    c->then[0] = x->number, c->then[1] = rest->number, c->then_threads = x->threads, c->then_at = at;
    c->then_grid = bsri_ceil_div(p.items * p.width * m->of.subs * m->ranges, x->threads / 32);
}
/* One column, where a block row is worth a warp's while: blocks are large, or rows few; or rows have next to nothing. */
static bsri_choice bsri_vector_choose(const bsr_context *ctx, const bsri_dev_product *p, int compute, const bsri_chooser *s,
                                      bsri_dev_vector *m) {
    const int64_t size = (int64_t)bsr_dtype_size(p->a.dtype);
    const double block = (double)p->br * (double)p->bc * (double)size, row = block * (double)p->a.nnz / (double)p->tiles;
    bsri_wanted w;
    bsri_choice c;
    uint64_t bytes;
    int at_once, why;
    if (p->width != 1 || (block < (p->tiles * p->items < ctx->sm_count * 16 ? 128 : 1100) && row >= 32))
        return bsri_no(BSR_WHY_SIZE);
    why = bsri_vector_lanes(p, compute, m, &w, &at_once);
    if (why) return bsri_no(why);
    bytes = bsri_vector_shares(ctx, m, size, at_once);
    if (bytes > s->asked->workspace_bytes) m->pieces_of_rows = 0, m->ranges = bsri_ceil_div(p->tiles, m->rows_each), bytes = 0;
    c = bsri_yes(bsri_find(&w), BSR_WHY_TINY);
    c.tile_rows = m->rows << (5 - m->log_group), c.tile_cols = 1, c.workspace = bytes, m->workspace = s->workspace;
    c.grid = bsri_ceil_div(p->items * m->of.subs * m->ranges, c.threads ? c.threads / 32 : 1);
    if (bytes && c.kernel)
        w.of = BSRI_FOR_VECTOR_REST, w.rows = w.cols = 0, c.then[0] = bsri_find(&w)->number, c.then_threads = c.threads,
        c.then_grid = c.grid;
    return c;
}
/* Few columns of small blocks: rows that are long apart, where the workspace allows it. */
static bsri_choice bsri_tiny_choose_both(const bsr_context *ctx, const bsri_dev_product *p, int compute, const bsri_chooser *s,
                                         bsri_tiny_params *m) {
    bsri_choice c = bsri_tiny_choose(ctx, p, compute, &m->tiny);
    if (!c.kernel || p->width > 32) return c;
    m->long_rows.of = *p;
    bsri_vector_after(ctx, compute, s, &m->tiny.long_row, &c, &m->long_rows, (int64_t)offsetof(bsri_tiny_params, long_rows));
    return c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-wgmma: products by tensor loads and wgmma: estimates, choice, parameters           */
/* ---------------------------------------------------------------------------------------------- */

/* 1: rows of b are contiguous, 2: columns; 0: the copy engine can't have it. */
static int bsri_narrow_tma_layout(const bsri_dev_product *p, const bsri_facts *f) {
    return p->width == 1 && p->b.row_stride == 1 ? 2 : f->dense;
}
/* What shares a tile's blocks, in shared memory. */
typedef struct bsri_narrow_tma_shape {
    int32_t share, slots; /* warps, or groups of four; blocks that each has under way */
    int64_t tiles;
    double each, full; /* tiles of a multiprocessor; of the places that it has for them */
} bsri_narrow_tma_shape;
/* most: warps or groups that there may be. */
static bsri_narrow_tma_shape bsri_narrow_tma_shape_of(const bsr_context *ctx, const bsri_dev_product *p, int rows, int cols,
                                                      int most) {
    const int slot = bsri_narrow_tma_stage(rows, cols);
    const int limit = (cols > 64 ? bsri_narrow_tma_groups_wide : bsri_narrow_tma_groups) / most;
    bsri_narrow_tma_shape s;
    s.share = most, s.tiles = p->tiles * (p->br / rows) * bsri_ceil_div(p->width, cols), s.each = (double)s.tiles / ctx->sm_count;
    if (cols >= 64) { /* slots: no more than a group has blocks, and two in place of three where more tiles then run at once
                         (note N14) */
        int places[4] = {0};
        const int deep = (int)bsri_min(3, bsri_ceil_div(bsri_block_cols(&p->a) * (p->bc / 64), most));
        for (int i = 1; i <= deep; i++)
            places[i] = (int)bsri_min(limit, ctx->smem_optin / (most * bsri_max(i * slot, bsri_narrow_tma_sums(64, cols)) +
                                                                bsri_narrow_tma_besides));
        s.slots = deep == 3 && s.each > places[3] ? 2 : deep;
        s.full = s.each / places[s.slots];
    } else {
        /* All tiles run at once, with two blocks on their way for each warp. One tile a multiprocessor has eight warps; else
           there are no more warps than two thirds of a mean row's blocks, but four at least. Strips of 64 rows have four where
           blocks come before the launch before has ended. Where there are many values, two tiles run at once, with more on its
           way for each. All of it measured (note N17). */
        const int64_t own = bsri_ceil_div(s.tiles, ctx->sm_count), room = bsri_narrow_tma_room;
        const int64_t mean = p->a.nnz * p->bc / (p->tiles * bsri_narrow_tma_blocks) + 1;
        const int64_t want = p->constant && rows == 64 ? 4 : own == 1 ? 8 : bsri_max(4, mean);
        const int64_t beside = bsri_min(own, p->a.nnz * p->a_block * 2 > bsri_narrow_tma_values ? 2 : 4);
        s.slots = 2, s.share = (int32_t)bsri_max(1, bsri_min(bsri_min(most, want), room / (beside * slot * 2)));
        s.full = s.each * (double)bsri_min(room / bsri_max(2, bsri_min(4, own)), 2 * s.share * slot) / (double)room;
    }
    return s;
}
/* Where nothing but alpha and an input that lies as out does is there, and out takes eights (of groups) or pairs of elements,
   they are stored at once: 2 where they lie along columns, 1 along rows. */
static int bsri_narrow_tma_stored(const bsri_dev_product *p, const bsri_facts *f, int groups) {
    const int columns = p->out.row_stride == 1;
    if (groups) return (f->vector || f->adds) && (columns || p->width % 8 == 0) ? 1 + columns : 0;
    if ((!f->adds && (!bsri_mma_linear(p) || bsri_has_beta(p))) || p->out.dtype != p->a.dtype) return 0;
    if ((uintptr_t)p->out.data % 4) return 0;
    if (columns) return p->width == 1 || p->out.col_stride % 2 == 0 ? 2 : 0;
    return p->out.col_stride == 1 && p->out.row_stride % 2 == 0 && p->width % 2 == 0;
}
static void bsri_narrow_tma_take(bsri_estimate *e, const bsr_context *ctx, const bsri_dev_product *seen, const bsri_facts *f,
                                 int rows, int cols, int most) {
    const bsri_dev_product *const p = f->stored;
    const int groups = cols >= 64;
    const int kind = groups ? bsri_cost_kind(BSRI_COSTS_NARROW_TMA_GROUP, cols) : bsri_cost_kind(BSRI_COSTS_NARROW_TMA, rows);
    const bsri_narrow_tma_shape s = bsri_narrow_tma_shape_of(ctx, p, rows, cols, most);
    bsri_tiling t = bsri_tiling_of(f, rows, cols, 64, s.share);
    t.along = bsri_narrow_tma_layout(p, f) == 1, t.longer = 0.0, t.stored = groups ? s.share : 1.0;
    /* of what ReLU takes: what is stored at once, an input that is waited for; columns of out */
    if (bsri_mma_plain(p)) t.fused = 0.0;
    else if (bsri_narrow_tma_stored(p, f, groups)) t.fused = groups ? bsri_narrow_tma_stored_group : bsri_narrow_tma_stored_warp;
    else t.fused = !f->adds ? 1.0 : cols > 64 ? bsri_narrow_tma_input_wide : bsri_narrow_tma_input;
    if (groups && p->out.row_stride == 1) t.fused += bsri_narrow_tma_out_cols;
    t.fused *= (double)bsri_max(1024, rows * cols) / 1024.0;
    if (!groups) t.waves = sqrt(1.0 + s.full * s.full);
    else
        t.waves = cols > 64 || s.share > 1          ? ceil(s.full)
                  : s.each > bsri_narrow_tma_places ? s.each / bsri_narrow_tma_places
                                                    : 1.0;
    /* tiles are taken as multiprocessors get free; groups' are many: between the mean and the busiest one's */
    t.busy = s.each / t.waves, t.beside = (groups ? (s.each + ceil(s.each)) / 2 : s.each) / t.waves;
    if (cols == 64 && t.beside > 1.0) t.fused *= bsri_narrow_tma_one + bsri_narrow_tma_each * t.beside;
    bsri_estimate_take(e, seen, f, kind, &t);
}
static bsri_estimate bsri_narrow_tma_estimate(const bsr_context *ctx, const bsri_dev_product *seen, const bsri_facts *f,
                                              int compute, const bsr_plan *asked) {
    const bsri_dev_product *const p = f->stored;
    const int dt = p->a.dtype, layout = bsri_narrow_tma_layout(p, f), blocks = (int)bsri_min(p->a.nnz, INT32_MAX);
    bsri_estimate e = bsri_estimate_below(f, 0);
    const int most = asked->split || p->a.nnz * p->bc > p->tiles * 32 ? 2 : 1; /* groups: there is something to share */
    int rows, cols, split;
    if (ctx->tier < BSRI_TIER_WGMMA || !ctx->tensor_map) return bsri_estimate_none(BSR_WHY_GPU);
    if (p->kind != BSRI_LIST_ROWS || p->items != 1 || p->reduce != 1) return bsri_estimate_none(BSR_WHY_LIST_KIND);
    if (compute != BSR_F32 || p->b.dtype != dt || !bsri_is_half(dt)) return bsri_estimate_none(BSR_WHY_DTYPE);
    if (p->br % 64 || p->bc % 64) return bsri_estimate_none(BSR_WHY_BLOCK);
    if (f->values != 1 || blocks < 1) return bsri_estimate_none(BSR_WHY_VALUES);
    if (!layout) return bsri_estimate_none(BSR_WHY_DENSE);
    if (p->alpha_ptr || p->alpha == 0.0) return bsri_estimate_none(BSR_WHY_EPILOGUE);
    if (bsri_max(p->a.nnz * 2, bsri_max(p->b.rows, p->tiles * p->br)) >= INT32_MAX / 2) return bsri_estimate_none(BSR_WHY_SIZE);
    if ((p->br > 128 || p->bc > 128) && seen == p) return bsri_estimate_none(BSR_WHY_SIZE);
    /* strips of 64 rows read half as much of b and issue half as often; but there must be enough of them */
    rows = p->width > 64 || p->tiles * (p->br / 64) * 4 >= ctx->sm_count * 3 ? 64 : 32;
    cols = p->width <= 8 ? 8 : p->width <= 16 ? 16 : p->width <= 32 || rows == 32 ? 32 : 64;
    if (p->tiles * (p->br / rows) * bsri_ceil_div(p->width, cols) >= INT32_MAX / 2) return bsri_estimate_none(BSR_WHY_SIZE);
    if (cols < 64) bsri_narrow_tma_take(&e, ctx, seen, f, rows, cols, 8);
    for (; cols >= 64 && cols <= (p->width > 64 ? 128 : 64); cols *= 2)
        for (split = 1; split <= most; split++)
            if ((!asked->tile_cols || asked->tile_cols == cols) && (!asked->split || asked->split == split))
                bsri_narrow_tma_take(&e, ctx, seen, f, rows, cols, split);
    if (!e.tile_rows) return bsri_estimate_none(BSR_WHY_PLAN);
    /* what it saves that blocks are there when the kernel before ends, beyond what other kernels gain (note N19) */
    if (p->constant) e.ns -= p->width <= 64 ? bsri_narrow_tma_constant : bsri_narrow_tma_constant_wide;
    return e;
}
static bsri_choice bsri_narrow_tma_choose(const bsr_context *ctx, const bsri_dev_product *, const bsri_facts *f,
                                          const bsr_plan *, const bsri_estimate *e, bsri_dev_narrow_tma *m) {
    const bsri_dev_product *const p = f->stored;
    const int rows = e->tile_rows, cols = e->tile_cols, by_groups = cols >= 64;
    const bsri_narrow_tma_shape s = bsri_narrow_tma_shape_of(ctx, p, rows, cols, e->split);
    const int64_t bytes = p->a.nnz * p->a_block * 2, index = (int64_t)bsr_dtype_size(p->a.index_dtype);
    bsri_wanted w = bsri_want(BSRI_FOR_NARROW, BSRI_TIER_WGMMA, p->a.dtype);
    w.rows = rows, w.cols = cols;
    bsri_choice c = bsri_yes(bsri_find(&w), BSR_WHY_SKINNY);
    bsri_mma_rows of;
    if (!c.kernel) return c;
    memset(m, 0, offsetof(bsri_dev_narrow_tma, p)), bsri_mma_single(p, &of);
    m->p = *p, m->ptr = (const char *)of.ptr, m->col = (const char *)of.col, m->values = of.values, m->dt = of.dt;
    m->columns = bsri_narrow_tma_layout(p, f) == 2, m->out = (char *)p->out.data;
    m->out_row = p->out.row_stride, m->out_col = p->out.col_stride;
    m->width = (int32_t)p->width, m->bc = (int32_t)p->bc, m->constant = p->constant;
    m->vec2 = bsri_narrow_tma_stored(p, f, by_groups), m->scaled = m->vec2 && !bsri_mma_plain(p);
    m->alpha = (float)p->alpha, m->beta = -0.0f; /* adds nothing, to any number */
    if (m->vec2 && f->adds) {
        m->input = (const char *)p->input.data, m->beta = (float)p->beta;
        m->in_line = m->out_row == 1 ? p->input.col_stride : p->input.row_stride;
    }
    /* the copy engine takes as long for a row of 16 bytes as for one of 128: rows that stand side by side go together */
    if (!m->columns && p->width == cols && cols < 64 && p->b.row_stride == cols) m->fold = 6 - bsri_mma_log2(cols);
    m->swizzle = m->columns || m->fold || cols > 64 ? 7 : cols / 8 - 1;
    m->view = bsri_view_of(p->br / rows, p->bc / 64), m->strips = (int32_t)(p->tiles * m->view.rows);
    m->sides = (int32_t)bsri_ceil_div(p->width, cols), m->warps = s.share, m->stages = s.slots;
    if (by_groups) {
        const int64_t stored = p->a.nnz * (p->bc / 64) / m->warps;
        /* CTAs that start while a launch that fills the GPU runs crowd on the multiprocessors that it left first, several tiles
           of a long row together. So the next launch may start once all blocks are asked for (late); but at once where values
           come from memory, or blocks are fetched before the wait, except for long rows where a multiprocessor has more than one
           tile. Strips beside each other want the same rows of b where many blocks are stored (beside). Figures: note N14. */
        m->pdl_late = (stored > 8 * p->tiles && s.each > 1) || (bytes < 8 << 20 && !m->constant);
        if (m->warps == 1 && p->a.nnz * 5 >= p->tiles * bsri_block_cols(&p->a)) m->beside = m->strips % 4 ? 0 : 2;
    }
    if (by_groups) c.split = m->warps;
    c.stages = m->stages, c.threads = m->warps * (by_groups ? 128 : 32), c.pdl = 1, c.grid = s.tiles;
    c.shared =
        (int32_t)bsri_max(m->warps * m->stages * bsri_narrow_tma_stage(rows, cols),
                          by_groups ? m->warps * bsri_narrow_tma_sums(rows, cols) : (m->warps + !m->vec2) * rows * cols * 4);
    bsri_spread_evenly(ctx, &c);
    m->ahead = (uint32_t)bsri_min(bsri_ceil_div(bytes, c.grid * 16) * 16, 1 << 20);
    /* CTAs that bring a whole piece to the L2: the rest is not worth a branch. None where blocks are fetched before the launch
       before has ended (constant), nor where it would take longer than that launch (note N17). */
    if (!m->constant && bytes <= bsri_min(24 << 20, m->strips * (110ll << 10)) && p->a_block == p->br * p->bc && p->a_rs == p->bc)
        m->pieces = (uint32_t)bsri_min(c.grid, bytes / m->ahead);
    m->col_lines = (uint32_t)bsri_min(p->a.nnz * index / 128, 1 << 20);
    m->ptr_lines = (uint32_t)bsri_min(p->tiles * index / 128, 1 << 20);
    return bsri_narrow_tma_maps(ctx, m, rows, cols) ? c : bsri_no(BSR_WHY_DENSE);
}

static int bsri_wgmma_refuses(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, int compute,
                              int64_t units) {
    const int dt = p->a.dtype, i8 = dt == BSR_I8;
    if (ctx->tier < BSRI_TIER_WGMMA || !ctx->tensor_map) return BSR_WHY_GPU;
    if (ctx->smem_optin < bsri_wgmma_ss<bsri_mma_bf16, 256>::SHARED + 3072) return BSR_WHY_SHARED;
    if (p->kind > BSRI_LIST_TRANSPOSED) return BSR_WHY_LIST_KIND;
    if ((!bsri_is_half(dt) && !i8) || p->b.dtype != dt || compute != (i8 ? BSR_I32 : BSR_F32)) return BSR_WHY_DTYPE;
    if (p->br != p->bc || (p->br != 64 && p->br != 128 && (i8 || (p->br != 16 && p->br != 32)))) return BSR_WHY_BLOCK;
    if (!f->values) return BSR_WHY_VALUES;
    if (!f->dense) return BSR_WHY_DENSE;
    if (i8 && (f->values != 1 || f->dense != 2)) return BSR_WHY_ALONG;
    return bsri_max(bsri_max(p->a.nnz, units), bsri_max(p->b.rows, bsri_max(p->width, p->out.rows))) >= INT32_MAX / 4
               ? BSR_WHY_SIZE
               : 0;
}
/* Numbers along a row, in pairs that are aligned; halves of the operands' type only. */
static int bsri_wgmma_pairs(const bsr_dense *d, int64_t width, int dtype) {
    const int known = d->dtype == BSR_F32 || d->dtype == dtype;
    return known && d->cols == width && d->col_stride == 1 && width % 2 == 0 && bsri_dense_aligned(d, 2);
}
static int bsri_wgmma_takes(const bsr_dense *d) { return d->dtype == BSR_F32 || d->dtype == BSR_F16 || d->dtype == BSR_BF16; }
/* Rows of f32 in aligned pairs. */
static int bsri_wgmma_direct(const bsr_dense *d) {
    return d->dtype == BSR_F32 && d->col_stride == 1 && d->cols % 2 == 0 && d->row_stride % 2 == 0 && bsri_dense_aligned(d, 2);
}
static int bsri_wgmma_epilogue(const bsri_dev_product *p, int vector, int direct, int32_t *terms) {
    const bsr_dense *in = &p->input, *right = &p->right, *bias = &p->bias;
    const int beta = bsri_has_beta(p), rise = bias->data && bias->cols == 1;
    const int type = p->a.dtype != BSR_I8 ? p->a.dtype : p->out.dtype == BSR_F16 ? BSR_F16 : BSR_BF16; /* of the code that runs */
    int others;
    *terms = p->activation * BSRI_TERM_ACTIVATION;
    if (!vector && !direct) return BSRI_EPILOGUE_GENERIC;
    if (vector && bsri_mma_vector(p)) return !p->alpha_ptr && p->alpha == 1.0 ? BSRI_EPILOGUE_STORE : BSRI_EPILOGUE_SCALE;
    if (p->out.dtype == BSR_I32) return BSRI_EPILOGUE_GENERIC;
    if (bsri_last_step(p) > 1) return BSRI_EPILOGUE_GENERIC;
    if (beta && (p->beta_ptr || in->dtype != p->out.dtype || in->rows != p->out.rows || in->cols != p->out.cols ||
                 (direct ? !bsri_wgmma_direct(in) : bsri_mma_layout(in) != vector)))
        return BSRI_EPILOGUE_GENERIC; /* behind a pointer beta may be 0: then input must not be read */
    if ((p->left.data && !bsri_wgmma_takes(&p->left)) || (rise && !bsri_wgmma_takes(bias))) return BSRI_EPILOGUE_GENERIC;
    if (right->data && !bsri_wgmma_pairs(right, p->width, type)) return BSRI_EPILOGUE_GENERIC;
    if (bias->data && !rise && (bias->rows > 1 || !bsri_wgmma_pairs(bias, p->width, type))) return BSRI_EPILOGUE_GENERIC;
    *terms |= (p->left.data ? BSRI_TERM_LEFT : 0) | (beta ? BSRI_TERM_INPUT : 0) | (rise ? BSRI_TERM_RISE : 0);
    if (right->data) *terms |= BSRI_TERM_RIGHT | (right->dtype == BSR_F32 ? BSRI_TERM_RIGHT_F32 : 0);
    if (bias->data && !rise) *terms |= BSRI_TERM_BIAS | (bias->dtype == BSR_F32 ? BSRI_TERM_BIAS_F32 : 0);
    if (!vector || p->a.dtype == BSR_I8) return BSRI_EPILOGUE_ROWCOL;
    if (*terms == BSRI_TERM_INPUT && p->br != 16) return BSRI_EPILOGUE_INPUT;
    if (p->br < 64) return BSRI_EPILOGUE_ROWCOL;
    others = *terms % BSRI_TERM_ACTIVATION & ~(BSRI_TERM_BIAS | BSRI_TERM_BIAS_F32);
    return others ? BSRI_EPILOGUE_ROWCOL : p->activation > BSR_ACT_RELU ? BSRI_EPILOGUE_ACTIVATION : BSRI_EPILOGUE_BIAS;
}
/* Tiles beside each other that a team of CTAs takes: fewer teams are dealt to sooner. Two, not four, where blocks of 64 are in
   few rows and the dense operand is thrice what the L2 holds: less of it is on its way at a time, and more teams share what is
   left at the end (note N6). */
static int32_t bsri_wgmma_group_ctas(const bsri_dev_product *p, int64_t groups, int64_t tiles) {
    const int halved = p->br == 64 && p->a.dtype != BSR_I8 && groups <= bsri_wgmma_halved_groups &&
                       bsri_dense_bytes(p) > bsri_wgmma_halved_above;
    if (tiles % 4 == 0 || tiles > bsri_wgmma_many_tiles) return halved ? 2 : 4;
    return tiles % 3 == 0 ? 3 : tiles % 5 == 0 ? 5 : tiles % 2 == 0 ? 2 : tiles % 7 == 0 ? 7 : 1;
}
static void bsri_wgmma_take(bsri_estimate *e, const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f,
                            int64_t groups, int cols) {
    const int64_t tiles = bsri_ceil_div(p->width, cols), span = bsri_wgmma_group_ctas(p, groups, tiles);
    const int64_t units = p->items * groups * bsri_ceil_div(tiles, span), teams = bsri_max(1, ctx->sm_count / span);
    const int i8 = p->a.dtype == BSR_I8;
    const int kind = bsri_cost_kind(i8 ? BSRI_COSTS_SS_I8 : p->br < 64 ? BSRI_COSTS_RS : BSRI_COSTS_SS, p->br);
    bsri_tiling t = bsri_tiling_of(f, 128, cols, (int)bsri_min(p->br, i8 ? 128 : 64), 0);
    /* A tile starts while the one before ends, and places without a tile don't slow the others down. rs tiles' slices come
       one after another all the same; exponents by fit (note N18). */
    if (units > teams)
        t.waves = bsri_wgmma_busiest * (double)bsri_ceil_div(units, teams) + bsri_wgmma_mean * (double)units / (double)teams;
    if (p->br < 64) t.apart = pow(t.waves, bsri_wgmma_apart);
    else t.waves = pow(t.waves, bsri_wgmma_waves);
    t.busy = (double)(units * span) / ctx->sm_count / t.waves;
    if (p->br >= 64) t.fetched = (double)bsri_min(cols, p->width);
    if (p->br >= 64 || t.along) t.far = bsri_wgmma_far;
    /* b comes in pieces of 64 bytes by columns; values that the L2 has no room for are waited for (note N18) */
    if (p->br < 64) t.memory = bsri_wgmma_spilt * f->spilt + t.along * f->read;
    if (f->adds)
        t.fused = p->br == 32                     ? bsri_wgmma_input_32
                  : bsri_mma_layout(&p->out) == 1 ? bsri_wgmma_input_rows
                                                  : bsri_wgmma_input_cols;
    t.fused *= cols / 256.0;
    /* A schedule pairs rows, and puts long ones first, which rs tiles gain nothing by (note N18). */
    t.paired = f->ordered ? bsri_paired_by : 0.0;
    if (f->ordered && units > teams && p->br >= 64) t.longer = t.tail = bsri_wgmma_long_first;
    bsri_estimate_take(e, p, f, kind, &t);
}
static bsri_estimate bsri_wgmma_estimate(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, int compute,
                                         const bsr_plan *asked) {
    const int64_t groups = bsri_ceil_div(p->tiles * p->br, 128); /* a schedule by eights may round up to four times as many */
    const int why = bsri_wgmma_refuses(ctx, p, f, compute, p->items * groups * bsri_ceil_div(p->width, 128));
    bsri_wanted w = bsri_want(BSRI_FOR_PRODUCT, BSRI_TIER_WGMMA, p->a.dtype);
    bsri_estimate e = bsri_estimate_below(f, why);
    const bsri_instance *x, *first;
    e.tile_rows = 128, e.tile_cols = 256;
    if (why) return e;
    w.block = (int32_t)p->br, w.layout = f->dense;
    /* a block size's tiles stand together in the table */
    for (x = first = bsri_find(&w); x && x->of == w.of && x->tier == w.tier && x->type == w.type && x->block == first->block; x++)
        if ((!x->layout || x->layout == w.layout) && (!asked->tile_cols || asked->tile_cols == x->cols))
            bsri_wgmma_take(&e, ctx, p, f, groups, x->cols);
    return e;
}
/* Of blocks, how many are stored. */
static double bsri_wgmma_present(const bsri_dev_wgmma *m) {
    const double blocks = m->lines * (double)(m->p.a.flags & BSR_MATRIX_RAGGED ? m->patterns : 1) / m->inv_blocks_per_row;
    return blocks > 0 ? (double)m->p.a.nnz / blocks : 0;
}
/* How many rounds of short tiles are dealt: as many as are known in time, for dealing a unit takes time and tiles waited for it.
   uneven: one may be far longer than others. If none is in time: none where tiles are alike, else one. Of many rounds more are
   dealt. Four where there are more than 64 teams, of one or two CTAs, and for i8, of which nothing was measured. Figures:
   note N5. */
static void bsri_wgmma_static_rounds(bsri_dev_wgmma *m, double rounds, double tile, int uneven) {
    const int64_t in_time = (int64_t)((rounds - bsri_assign_late) * tile / (bsri_assign_clocks * m->groups_of_ctas));
    m->static_rounds = (int32_t)bsri_min(4, (int64_t)(rounds * tile / (bsri_assign_alone * m->groups_of_ctas)));
    if (m->groups_of_ctas > 64 || m->p.a.dtype == BSR_I8) return;
    m->static_rounds = (int32_t)bsri_max(uneven, bsri_min(m->static_rounds, bsri_min(rounds < 12 ? 2 : 4, in_time)));
    m->by_windows = m->schedule != NULL; /* note N5 */
}
/* How units are dealt, as if columns were random. One is tall where, started with the last slab, it would still run when all else
   is done: what a team has of a slab, half as much again, or a twentieth of what it has altogether. */
static void bsri_wgmma_scheduler_of(bsri_dev_wgmma *m, int64_t groups) {
    const double inner = 1.0 / m->inv_blocks_per_row, some = bsri_long_share * m->panels * m->items,
                 present = bsri_wgmma_present(m);
    const int64_t clocks = m->tile_cols * bsri_min(64, m->p.br) / 16; /* of a stage */
    const double units = (double)m->items * m->panels * (double)groups;
    double mean, tall, tile, longest; /* tile: its clocks */
    /* In stages: what a tile takes beside its own, by time stamps; and what the blocks of a column add, as full rows of rs
       tiles take longer than their columns do (note N5). */
    m->fixed_stages = m->p.br < 64 ? 8 + 384 / (int32_t)m->p.br : 4;
    m->stages_per_block = m->p.br == 16 ? 0.35f : m->p.br == 32 ? 0.5f : 0;
    m->stages_per_stored = m->stages_per_block * (float)m->view.cols;
    mean = inner * (1 - bsri_none_of(present, m->group)) * m->parts + inner * present * m->group * m->stages_per_block +
           m->fixed_stages;
    tile = mean * (double)clocks, longest = inner * m->parts + m->fixed_stages;
    tall = (some > bsri_long_least ? some : bsri_long_least) * (double)groups * mean / m->groups_of_ctas;
    m->long_stages = tall < 1e9 ? (int32_t)tall : 1000000000;
    m->late_stages = (int32_t)bsri_max(1, 1024 / clocks), m->mean_stages = (int32_t)mean;
    /* Lengths of more than 32 groups are read while it deals, too late for second tiles where tiles are short: two rounds are not
       dealt there (note N5). */
    m->static_rounds = BSRI_WGMMA_ALL;
    if (tile < bsri_assign_hurry * m->groups_of_ctas)
        bsri_wgmma_static_rounds(m, units / m->groups_of_ctas, tile, longest > bsri_assign_uneven * mean);
    else if (groups > 32 && tile < bsri_assign_read * m->groups_of_ctas)
        m->static_rounds = (int32_t)bsri_max(1, (int64_t)units / m->groups_of_ctas - 2);
}
/* Brings the first slab ahead where few blocks are stored, but of most block columns, and the dense operand and out fill most of
   an L2 of 50 MB. No more than 16 MB: what comes too early is gone again (note N3). */
static void bsri_wgmma_look_ahead(bsri_dev_wgmma *m) {
    const bsri_dev_product *p = &m->p;
    const int64_t size = (int64_t)bsr_dtype_size(p->b.dtype), cols = bsri_min((int64_t)m->group_ctas * m->tile_cols, p->width);
    const double inner = 1.0 / m->inv_blocks_per_row;
    m->b_line = size * (m->b_rows ? p->b.row_stride : p->b.col_stride);
    if (!m->single || m->alpha_zero || bsri_dense_bytes(p) < (double)bsri_h200.l2_ahead) return;
    if ((double)p->a.nnz < inner || 10.0 * (double)p->a.nnz > 1.05 * inner * m->lines) return;
    m->ahead_lines = (int32_t)(m->b_rows ? p->b.rows : cols);
    m->ahead_bytes = (int32_t)(size * (m->b_rows ? cols : p->b.rows) / 16 * 16);
    if (m->ahead_bytes && (int64_t)m->ahead_lines * m->ahead_bytes > bsri_h200.l2_ahead) {
        if (m->b_rows) m->ahead_lines = (int32_t)(bsri_h200.l2_ahead / m->ahead_bytes);
        else m->ahead_bytes = (int32_t)(bsri_h200.l2_ahead / m->ahead_lines / 16 * 16);
    }
    if (!m->ahead_bytes) m->ahead_lines = 0;
}
/* Blocks of 16 and 32, dense operand along the products: lines of 64 bytes, or of 128 where hardly any of those would be needed
   for one half only (note N10). */
static void bsri_wgmma_lines(bsri_dev_wgmma *m) {
    const double present = bsri_wgmma_present(m);
    const int32_t pair = 32 / (int32_t)m->p.br; /* columns of blocks in 64 bytes */
    const double absent = bsri_none_of(present, pair * m->group);
    const int wide = 1 - absent * absent < bsri_wgmma_two_lines * (1 - absent);
    m->join = wide ? 2 * pair : pair, m->desc_step = wide ? 4 : 1024;
    m->desc_mask = m->join == 4 ? 0x11111111 : m->join == 2 ? 0x55555555 : ~0u;
    m->desc_hi = (uint32_t)(bsri_wgmma_desc_bits(wide ? 128 : 64, 0) >> 32);
}
/* Which instance runs a product in this tier. */
static bsri_choice bsri_wgmma_choose(const bsr_context *ctx, const bsri_dev_product *p, const bsri_facts *f, const bsr_plan *,
                                     const bsri_estimate *e, bsri_dev_wgmma *m) {
    const int64_t groups = bsri_ceil_div(p->tiles * p->br, 128);
    bsri_wanted w = bsri_want(BSRI_FOR_PRODUCT, BSRI_TIER_WGMMA, p->a.dtype);
    w.block = (int32_t)p->br, w.cols = e->tile_cols, w.layout = f->dense;
    bsri_choice c = bsri_yes(bsri_find(&w), p->br == 128 ? BSR_WHY_ONE_ROW : BSR_WHY_GROUP);
    const int i8 = p->a.dtype == BSR_I8;
    int64_t tiles, beside; /* elements from a tile of a stored block to the one beside it */
    if (!c.kernel) return c;
    memset(m, 0, offsetof(bsri_dev_wgmma, p));
    m->p = *p, m->single = bsri_mma_single(p, &m->rows), m->trans = p->trans;
    m->items = (int32_t)p->items, m->lines = (int32_t)p->tiles;
    m->alpha_zero = !p->alpha_ptr && p->alpha == 0.0;
    /* Out leaves the L2 first where it is written once and is more than the L2 holds and than the dense operand. Smaller ones
       stay for who reads them next (note N7). */
    m->evict_first = p->out.rows >= p->b.rows &&
                (double)p->items * (double)p->out.rows * (double)p->width * (double)bsr_dtype_size(p->out.dtype) > 50e6;
    m->group = (int32_t)bsri_max(1, c.tile_rows / p->br), m->group_bits = bsri_mma_log2(m->group), m->tile_cols = c.tile_cols;
    m->parts = (int32_t)bsri_max(1, p->br * (int64_t)bsr_dtype_size(p->a.dtype) / 128);
    m->block_bits = bsri_mma_log2(p->br);
    m->view = p->view, m->down = (uint32_t)p->br;
    m->min_dim_lines = (int32_t)bsri_min(p->tiles, bsri_stored_inner(p) * p->view.rows);
    if (!bsri_tensor_batch_of(p->a.batch_dims, p->a.batch, p->a.values_batch_stride, &m->a_batch)) return bsri_no(BSR_WHY_VALUES);
    if (!bsri_tensor_batch_of(p->b.batch_dims, p->b.batch, p->b.batch_stride, &m->b_batch)) return bsri_no(BSR_WHY_DENSE);
    m->vector = i8 ? p->out.dtype == BSR_I32 || p->out.dtype == BSR_BF16 || p->out.dtype == BSR_F16 : p->out.dtype == p->b.dtype;
    if (m->vector) m->vector = f->vector ? f->vector : bsri_mma_layout(&p->out);
    /* it stores 16 bytes at a time: what lies between rows is not ours */
    if (m->vector == 1 && p->width * (int64_t)bsr_dtype_size(p->out.dtype) % 16) m->vector = 0;
    if (!bsri_tensor_batch_of(p->out.batch_dims, p->out.batch, p->out.batch_stride, &m->o_batch)) m->vector = 0;
    m->patterns = bsri_pattern_count(&p->a);
    m->schedule = p->reduce == 1 || m->patterns == 1 ? p->a.schedule : NULL; /* a tile's rows are the same in all that it sums */
    m->inv_blocks_per_row = 1.0f / (float)bsri_max(1, p->trans ? bsri_block_rows(&p->a) : bsri_block_cols(&p->a));
    m->inv_stored_per_row = m->inv_blocks_per_row * (float)p->view.cols;
    m->full_panels = f->dense == 1 && p->width % 64 == 0;
    /* no box beyond the last column: it would be fetched for nothing (note N6) */
    m->dense = p->br < 64 ? c.tile_cols : (int32_t)bsri_min(c.tile_cols, p->width);
    m->b_rows = f->dense == 1, m->a_trans = f->values == 2;
    m->listed = m->a_trans || p->kind != BSRI_LIST_ROWS || p->view.cols > 1;
    m->a_line = 2 * (m->a_trans ? p->a_cs : p->a_rs);
    if (p->br < 64 && (2 * p->a_block > UINT32_MAX || 16 * m->a_line > UINT32_MAX)) return bsri_no(BSR_WHY_VALUES);
    beside = p->view.cols > 1 ? p->bc * p->a_cs : p->a_block, m->a_each = (int32_t)(p->a_block / beside);
    if (p->br < 64 && (p->a_block % beside || (double)p->a.nnz * m->a_each > 2e9)) return bsri_no(BSR_WHY_VALUES);
    m->a_step = (uint32_t)(2 * beside), m->a_half = (uint32_t)((p->br == 16 ? 4 : m->a_trans ? 16 : 8) * m->a_line);
    tiles = m->tiles = (int32_t)bsri_ceil_div(p->width, c.tile_cols);
    m->group_ctas = bsri_wgmma_group_ctas(p, groups, tiles);
    m->panels = (int32_t)((tiles + m->group_ctas - 1) / m->group_ctas),
    m->inv_group = (65536 + m->group_ctas - 1) / m->group_ctas;
    m->groups_of_ctas =
        (int32_t)bsri_min(bsri_min(ctx->sm_count, 32 * BSRI_WGMMA_TEAMS) / m->group_ctas, p->items * m->panels * groups);
    if (m->groups_of_ctas < 1) m->groups_of_ctas = 1;
    c.grid = m->grid = m->groups_of_ctas * m->group_ctas, c.pdl = 1;
    bsri_wgmma_scheduler_of(m, groups);
    /* read ahead of the kernel before, not with a schedule where tiles are short (note N19) */
    m->constant = p->constant && !p->alpha_ptr && (!p->a.schedule || m->static_rounds == BSRI_WGMMA_ALL);
    if (p->br < 64 && !m->b_rows) bsri_wgmma_lines(m);
    if (m->grid + BSRI_WGMMA_LATE_CTAS <= ctx->sm_count) m->late_stages = 0; /* the next kernel finds room at once */
    /* CTAs beside each other take the same blocks: in clusters of two the L2 reads less (note N2). Clusters start a little later:
       not where tiles have little to do. */
    c.cluster = m->group_ctas % 2 == 0 && m->mean_stages >= 12 && c.grid <= ctx->sm_count;
    bsri_wgmma_look_ahead(m);
    if (!bsri_wgmma_maps(ctx, m)) return bsri_no(BSR_WHY_DENSE);
    m->store_registers = !m->vector && bsri_wgmma_direct(&p->out);
    m->epilogue = bsri_wgmma_epilogue(p, m->vector, m->store_registers, &m->terms);
    if (p->br < 64 && m->epilogue == BSRI_EPILOGUE_GENERIC) return bsri_no(BSR_WHY_EPILOGUE); /* beside the fetching of blocks */
    return c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-sampled: sampled products: estimates, choice, parameters                           */
/* ---------------------------------------------------------------------------------------------- */

/* Takes everything. */
static bsri_choice bsri_simt_choose_sampled(const bsr_context *, const bsri_dev_sampled *p, int compute, const bsr_plan *asked,
                                            bsri_dev_sampled *m) {
    const int small = asked->tile_rows ? asked->tile_rows == 16 : p->out.block_rows <= 16 && p->out.block_cols <= 16;
    bsri_wanted w = bsri_want(BSRI_FOR_SAMPLED, BSRI_TIER_SIMT, compute);
    w.rows = small ? 16 : 64;
    bsri_choice c = bsri_yes(bsri_find(&w), BSR_WHY_ANY);
    if (!c.kernel) return c;
    *m = *p, m->subs = bsri_ceil_div(p->out.block_rows, c.tile_rows), m->panels = bsri_ceil_div(p->out.block_cols, c.tile_cols);
    c.grid = p->items * p->out.nnz * m->subs * m->panels;
    return c;
}

/* The same for sampled products. */
typedef struct bsri_sampled_facts {
    int block, left, right; /* square blocks' size, 0: others; bsri_mma_layout() of mat1, mat2 */
    double density;
} bsri_sampled_facts;

static bsri_sampled_facts bsri_sampled_facts_of(const bsri_dev_sampled *p) {
    const int64_t b = p->out.block_rows;
    bsri_sampled_facts f;
    f.block = p->out.block_cols == b && (b == 16 || b == 32 || b == 64 || b == 128) ? (int)b : 0;
    f.left = bsri_mma_layout(&p->mat1), f.right = bsri_mma_layout(&p->mat2), f.density = bsri_density(&p->out);
    return f;
}

/* What both tiers refuse, or 0. */
static int bsri_sampled_refuses(const bsr_context *ctx, const bsri_dev_sampled *p, const bsri_sampled_facts *f, int compute,
                                int tier) {
    const int dt = p->mat1.dtype, others = tier == BSRI_TIER_MMA && (dt == BSR_F32 || dt == BSR_F64 || dt == BSR_I8);
    if (ctx->tier < tier) return BSR_WHY_GPU;
    if ((!bsri_is_half(dt) && !others) || p->mat2.dtype != dt) return BSR_WHY_DTYPE;
    if (compute != (dt == BSR_F64 ? BSR_F64 : dt == BSR_I8 ? BSR_I32 : BSR_F32)) return BSR_WHY_DTYPE;
    if (!f->block) return BSR_WHY_BLOCK;
    return f->left && f->right ? 0 : BSR_WHY_DENSE;
}

/* Eight neighbours of a block's row are stored together, in the operands' type. */
static int bsri_sampled_vector(const bsri_dev_sampled *p) {
    const bsr_matrix *out = &p->out;
    const int64_t *o = p->o_strides;
    return out->dtype == p->mat1.dtype && o[2] == 1 && o[1] % 8 == 0 && o[0] % 8 == 0 &&
           bsri_aligned(out->values, out->dtype, out->batch_dims, out->batch, out->values_batch_stride, 8);
}

/* The estimate of a sampled product: `waves` tiles one after another, `beside` at once, each rows x cols sums and `steps` slices
   of both operands; across: how many operands have the slower layout; lists: what making lists takes, in place of an epilogue. */
static void bsri_estimate_sampled(bsri_estimate *e, int kind, double waves, double beside, double rows, double cols,
                                  double steps, int across, double lists) {
    bsri_traits *x = &e->traits;
    x->waves = waves, x->tile = rows * cols / 32768, x->fused = lists, x->along = across;
    x->slices = waves * beside * steps, x->piece = (rows + cols) / 128, x->own = waves * steps, x->area = rows * cols / 16384;
    x->busy = 1.0;
    e->kind = kind, e->ns = bsri_traits_ns(&bsri_costs_of[kind], x);
}

/* Warps below and beside each other, each with 32 (of blocks of 16 with 16) rows and 64 columns. */
typedef struct bsri_mma_sampled_shape {
    int m_warps, n_warps, rows, blocks; /* rows of a tile, its blocks */
} bsri_mma_sampled_shape;

static bsri_mma_sampled_shape bsri_mma_sampled_shape_of(int b) {
    bsri_mma_sampled_shape s;
    s.m_warps = b == 128 ? 4 : b == 64 ? 2 : 1, s.n_warps = b == 128 ? 2 : 4;
    s.rows = s.m_warps * (b == 16 ? 16 : 32), s.blocks = s.n_warps * 64 / b;
    return s;
}

static const bsri_instance *bsri_mma_sampled_instance(const bsri_dev_sampled *p, int block) {
    bsri_wanted w = bsri_want(BSRI_FOR_SAMPLED, BSRI_TIER_MMA, bsri_type_of(p->mat1.dtype, p->precision));
    w.block = block;
    return bsri_find(&w);
}
/* Products of a step: a line of a stage. */
static int bsri_mma_sampled_step(const bsri_dev_sampled *p) {
    return p->mat1.dtype == BSR_F64 ? 16 : 64 / (int)bsr_dtype_size(p->mat1.dtype);
}
static bsri_estimate bsri_mma_estimate_sampled(const bsr_context *ctx, const bsri_dev_sampled *p, const bsri_sampled_facts *f,
                                               int compute, const bsr_plan *) {
    const bsri_mma_sampled_shape s = bsri_mma_sampled_shape_of(f->block ? f->block : 16);
    const double room = f->block < 64 ? 4.0 : 2.0, rows = (double)bsri_block_rows(&p->out);
    bsri_estimate e = bsri_estimate_none(bsri_sampled_refuses(ctx, p, f, compute, BSRI_TIER_MMA));
    double each;
    if (!e.why && f->block == 16 && f->left != 1 && bsr_dtype_size(p->mat1.dtype) < 4) e.why = BSR_WHY_DENSE;
    if (!e.why && p->mat1.cols % bsri_mma_sampled_step(p)) e.why = BSR_WHY_INNER;
    if (e.why) return e;
    each = (double)p->items * (bsri_mean_blocks(&p->out) / s.blocks + rows) / ctx->sm_count, e.split = 1;
    bsri_estimate_sampled(&e, bsri_cost_kind(BSRI_COSTS_SAMPLED_MMA, f->block),
                          each > room ? each / room : 1.0, each > room ? room : each, s.rows, s.n_warps * 64,
                          (double)p->reduce * (double)(p->mat1.cols / bsri_mma_sampled_step(p)),
                          (f->left == 2) + (f->right == 1), 0.0);
    return e;
}

static bsri_choice bsri_mma_choose_sampled(const bsr_context *ctx, const bsri_dev_sampled *p, const bsri_sampled_facts *f,
                                           const bsr_plan *, const bsri_estimate *, bsri_dev_mma_sampled *m) {
    const int b = f->block, left = f->left, right = f->right, wide = b >= 64, step = bsri_mma_sampled_step(p);
    const int64_t size = (int64_t)bsr_dtype_size(p->mat1.dtype), line = step * size;
    const bsri_mma_sampled_shape s = bsri_mma_sampled_shape_of(b);
    bsri_choice c = bsri_yes(bsri_mma_sampled_instance(p, b), BSR_WHY_NEIGHBOURS);
    if (!c.kernel) return c;
    memset(m, 0, sizeof *m);
    m->p = *p, m->view = p->view, m->m_warps = s.m_warps, m->n_warps = s.n_warps, m->blocks = s.blocks;
    m->stages = wide ? 5 : 3, m->stage_bytes = (s.rows + s.n_warps * 64) * (int)line,
    m->steps = (int)(p->mat1.cols / step);
    m->b_rows = right == 1, m->a_trans = left == 2, m->a_line = size * (left == 1 ? p->mat1.row_stride : p->mat1.col_stride);
    m->b_line = size * (right == 1 ? p->mat2.row_stride : p->mat2.col_stride);
    m->a_step = left == 1 ? line : step * m->a_line, m->b_step = right == 1 ? step * m->b_line : line;
    m->vector = bsri_sampled_vector(p);
    m->tiles = p->out.nnz / m->blocks + bsri_block_rows(&p->out);
    c.tile_rows = b, c.tile_cols = m->n_warps * 64, c.stages = m->stages, c.threads = 32 * m->m_warps * m->n_warps,
    c.shared = (int)bsri_max(m->stages * m->stage_bytes, c.threads / 32 * BSRI_MMA_PASS * 4);
    c.grid = p->items * m->tiles;
    return c.shared > ctx->smem_optin - 4096 ? bsri_no(BSR_WHY_SHARED) : c;
}

/* 128 x 256 or 64 x 512? What takes less time for a stored block, were the pattern random. Wide entries are 64 columns each;
   narrow ones are single blocks: less is fetched for nothing, but in shorter lines, which the L2 delivers more slowly; wide tiles
   are slowed by power, not by the L2. Hence the factors (note N23). */
static int bsri_wgmma_sampled_wide(int b, double density) {
    const double narrow = (1.0 - bsri_none_of(density, 64 / b)) * (1.0 + 64 / 512.0) *
                          (b == 32 ? bsri_wsampled_narrow_32 : bsri_wsampled_narrow);
    const double wide = (1.0 - bsri_none_of(density, 128 / b * (64 / b))) * (1.0 + 128 / 256.0) / 2;
    return b >= 64 ? b == 128 : wide < narrow;
}
/* How items are cut into tiles, and what these count; names as in bsri_dev_wgmma_sampled. */
typedef struct bsri_wgmma_sampled_shape {
    int wide, group, shift, entries, groups, slope, panel, toll;
    int64_t area;
} bsri_wgmma_sampled_shape;
/* What a group counts: as many entries as n blocks in random places are expected to fill, (1 - (1 - present)^together) of all,
   as a straight line through the mean; and a toll of so many, for rows of mat1 that are fetched and tiles that are ended. */
static void bsri_wgmma_sampled_work(bsri_wgmma_sampled_shape *s, const bsr_matrix *out, int b) {
    const int together = s->group << s->shift; /* blocks of an entry */
    const double all = (double)bsri_ceil_div(bsri_block_cols(out), 1 << s->shift);
    const double present = (double)out->nnz / ((double)s->groups * together * all);
    const double toll = s->wide ? bsri_wsampled_toll_wide : b == 64 ? bsri_wsampled_toll_64 : bsri_wsampled_toll;
    const double absent = bsri_none_of(present, together - 1), rest = 1.0 - absent * (1.0 - present + together * present);
    const double panel = (int)BSRI_WSAMPLED_UNIT * all * rest;
    s->slope = (int)((int)BSRI_WSAMPLED_UNIT * absent + 0.5), s->toll = (int)((int)BSRI_WSAMPLED_UNIT * toll);
    s->panel = s->toll + (int)(panel > 1e9 ? 1e9 : panel > 0.0 ? panel : 0.0);
    if (together > 1 && !s->slope) s->panel = (int)bsri_max(s->panel, s->toll + 1);
}
static bsri_wgmma_sampled_shape bsri_wgmma_sampled_shape_of(const bsri_dev_sampled *p, const bsri_sampled_facts *f) {
    const int b = f->block;
    bsri_wgmma_sampled_shape s;
    s.wide = bsri_wgmma_sampled_wide(b, f->density), s.group = b < 128 ? (s.wide ? 128 : 64) / b : 1;
    s.shift = s.wide && b < 64 ? bsri_mma_log2(64 / b) : 0, s.entries = (s.wide ? 256 : 512) / b >> s.shift;
    s.groups = (int)bsri_ceil_div(bsri_block_rows(&p->out), s.group);
    bsri_wgmma_sampled_work(&s, &p->out, b);
    s.area = p->out.nnz * s.slope + (int64_t)s.groups * s.panel;
    return s;
}
static bsri_estimate bsri_wgmma_estimate_sampled(const bsr_context *ctx, const bsri_dev_sampled *p, const bsri_sampled_facts *f,
                                                 int compute, const bsr_plan *) {
    const int64_t steps = bsri_ceil_div(p->mat1.cols, BSRI_WSAMPLED_DEPTH), rows = bsri_block_rows(&p->out);
    bsri_estimate e = bsri_estimate_none(bsri_sampled_refuses(ctx, p, f, compute, BSRI_TIER_WGMMA));
    bsri_wgmma_sampled_shape s;
    double tiles, cols; /* of a CTA, of a tile */
    if (!e.why && ((p->out.flags & BSR_MATRIX_RAGGED) || p->out.nnz > INT32_MAX / 4 || rows > INT32_MAX / 8 ||
                   p->reduce > INT32_MAX / bsri_max(1, steps)))
        e.why = BSR_WHY_SIZE;
    if (e.why) return e;
    s = bsri_wgmma_sampled_shape_of(p, f), e.split = 1;
    tiles = (double)(s.area * p->items) / (int)BSRI_WSAMPLED_UNIT / ctx->sm_count / s.entries;
    cols = s.entries * (double)(f->block << s.shift);
    if (tiles < 1.0) cols = tiles * cols > f->block ? tiles * cols : f->block;
    bsri_estimate_sampled(&e, bsri_cost_kind(BSRI_COSTS_SAMPLED_WGMMA, f->block),
                          tiles > 1.0 ? tiles : 1.0, 1.0, s.group * (double)f->block, cols, (double)p->reduce * (double)steps,
                          (f->left == 2) + (f->right == 1), (double)bsri_block_cols(&p->out) / 100.0);
    return e;
}
static bsri_choice bsri_wgmma_choose_sampled(const bsr_context *ctx, const bsri_dev_sampled *p, const bsri_sampled_facts *f,
                                             const bsr_plan *, const bsri_estimate *, bsri_dev_wgmma_sampled *m) {
    const int b = f->block;
    const bsri_wgmma_sampled_shape s = bsri_wgmma_sampled_shape_of(p, f);
    bsri_wanted w = bsri_want(BSRI_FOR_SAMPLED, BSRI_TIER_WGMMA, p->mat1.dtype);
    bsri_choice c = bsri_yes(bsri_find(&w), b < 64 ? BSR_WHY_GROUP : BSR_WHY_NEIGHBOURS);
    if (!c.kernel) return c;
    memset(m, 0, offsetof(bsri_dev_wgmma_sampled, p));
    m->p = *p, m->bits = bsri_mma_log2(b), m->rows = (int)bsri_block_rows(&p->out), m->blocks = (int)p->out.nnz;
    m->wide = s.wide, m->group = s.group, m->shift = s.shift, m->entries = s.entries, m->groups = s.groups, m->slope = s.slope;
    m->panel = s.panel, m->toll = s.toll, m->area = s.area, m->total = s.area * p->items;
    m->steps = (int)bsri_ceil_div(p->mat1.cols, BSRI_WSAMPLED_DEPTH);
    m->crow = p->out.crow_indices, m->col = p->out.col_indices, m->dt = p->out.index_dtype;
    m->a_across = f->left == 2, m->b_across = f->right == 1, m->batched = p->whole.count > 1;
    m->whole = m->entries == 2 && !m->batched && m->rows <= BSRI_WSAMPLED_ROWS;
    m->parts = (int)bsri_ceil_div(bsri_ceil_div(bsri_block_cols(&p->out), 1 << m->shift), BSRI_CHUNK);
    m->reduce = p->alpha != 0.0 ? (int)p->reduce : 0;
    m->plain = !p->has_input && bsri_sampled_vector(p);
    m->view = p->view;
    if (!bsri_wgmma_sampled_maps(ctx, p, m, b << m->shift)) return bsri_no(BSR_WHY_DENSE);
    c.tile_rows = m->group * b, c.tile_cols = m->wide ? 256 : 512;
    c.stages = c.shared / ((c.tile_rows + c.tile_cols) * BSRI_WSAMPLED_DEPTH * 2);
    c.grid = bsri_min(ctx->sm_count, 2 * p->items * p->out.nnz); /* where blocks are few, tolls must not make one CTA take two */
    m->grid = (int)c.grid, m->each = m->total / bsri_max(1, c.grid), c.pdl = 1;
    c.cluster = 1; /* CTAs of a row share mat1's lines (note N23) */
    return c.shared + 10 * 1024 > ctx->smem_optin ? bsri_no(BSR_WHY_SHARED) : c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan-rows: softmax and attention: choice, parameters                                    */
/* ---------------------------------------------------------------------------------------------- */

/* way: BSRI_FOR_SOFTMAX, _PACKED or _PIECES. */
static bsri_choice bsri_simt_choose_softmax(const bsr_context *ctx, const bsri_dev_softmax *p, int compute, int way) {
    const int packed = way == BSRI_FOR_PACKED, single = way == BSRI_FOR_SOFTMAX;
    const bsri_wanted w = bsri_want(packed && p->backward ? BSRI_FOR_PACKED_BACKWARD : way, BSRI_TIER_SIMT,
                                    single ? compute : p->x.dtype);
    bsri_choice c = bsri_yes(bsri_find(&w), single ? BSR_WHY_ANY : BSR_WHY_PACKED);
    if (!c.kernel) return c;
    c.threads = p->warps == 8 ? 256 : 128, c.tile_rows = c.threads / 32 / p->warps << p->side;
    c.grid = p->work;
    c.pdl = ctx->tier >= BSRI_TIER_WGMMA; /* the loaded code waits itself (note N25) */
    if (!p->backward) c.shared = c.threads * (packed ? (c.pdl ? BSRI_SOFTMAX_ROOM_90 : BSRI_ROW_HELD) * 16 : p->slots * p->held);
    return c;
}

/* Takes everything. */
static bsri_choice bsri_simt_choose_attention(const bsr_context *, const bsri_dev_attention *p, int compute,
                                              const bsr_plan *asked, bsri_dev_attention *m) {
    const int small = asked->tile_cols ? asked->tile_cols == 16 : p->mask.block_rows <= 16 || p->mask.block_cols <= 16;
    bsri_wanted w = bsri_want(BSRI_FOR_ATTENTION, BSRI_TIER_SIMT, compute);
    if (compute != BSR_F64) w.rows = small ? 16 : 64;
    bsri_choice c = bsri_yes(bsri_find(&w), BSR_WHY_ANY);
    const int size = c.tile_cols;
    if (!c.kernel) return c;
    *m = *p, m->tile_rows = bsri_min(p->mask.block_rows, size), m->tiles = bsri_ceil_div(p->mask.block_rows, m->tile_rows);
    m->panels = bsri_max(1, bsri_ceil_div(p->v.cols, size));
    c.tile_rows = (int32_t)m->tile_rows;
    c.grid = p->items * m->panels * m->tiles * p->block_rows;
    return c;
}

/* Is an operand's every row a whole number of aligned 16-byte pieces? */
static int bsri_mma_rows_fit(const bsr_dense *d) {
    if (d->rows > 1 && d->row_stride % 8) return 0;
    return d->col_stride == 1 && d->cols >= 8 && d->cols <= 128 && d->cols % 8 == 0 && bsri_dense_aligned(d, 8);
}

/* May two neighbours of out be stored together? */
static int bsri_attention_pairs(const bsr_dense *out) {
    return out->col_stride == 1 && out->row_stride % 2 == 0 && bsri_dense_aligned(out, 2);
}
static bsri_choice bsri_mma_choose_attention(const bsr_context *ctx, const bsri_dev_attention *p, int compute, const bsr_plan *,
                                             bsri_dev_attention *m) {
    const int dt = p->q.dtype, hd = p->q.cols <= 64 && p->v.cols <= 64 ? 64 : 128;
    const int64_t rows = p->mask.block_rows;
    const int plain = !p->modifies && !p->drops && p->scale > 1e-30 && p->scale < 1e30 && rows > 16, mt = plain ? 2 : 1;
    const int warps = rows > 32 * mt ? 4 : rows > 16 * mt ? 2 : 1;
    bsri_wanted w = bsri_want(BSRI_FOR_ATTENTION, BSRI_TIER_MMA, dt);
    w.rows = 64 * mt, w.head = hd;
    bsri_choice c = bsri_yes(bsri_find(&w), plain ? BSR_WHY_PLAIN : BSR_WHY_OPTIONS);
    if (ctx->tier < BSRI_TIER_MMA) return bsri_no(BSR_WHY_GPU);
    if (compute != BSR_F32 || !bsri_is_half(dt)) return bsri_no(BSR_WHY_DTYPE);
    if (p->mask.block_cols % 16 || rows < 8) return bsri_no(BSR_WHY_BLOCK);
    if (p->k.rows > 0x7f000000 || p->mask.nnz > 0x7f000000 / (p->mask.block_cols / 16)) return bsri_no(BSR_WHY_SIZE);
    if (!bsri_mma_rows_fit(&p->q) || !bsri_mma_rows_fit(&p->k) || !bsri_mma_rows_fit(&p->v)) return bsri_no(BSR_WHY_DENSE);
    if (!c.kernel) return c;
    *m = *p, m->tile_rows = bsri_min(rows, 64 * mt), m->tiles = bsri_ceil_div(rows, m->tile_rows), m->panels = 1;
    m->unit = (float)p->scale * BSRI_DEV_LOG2E;
    m->vec2 = bsri_attention_pairs(&p->out);
    c.tile_rows = (int32_t)m->tile_rows, c.threads = warps * 32;
    c.shared = (warps * 16 * mt + 2 * BSRI_KEYS) * hd * 2 + (plain ? 0 : warps * 16 * (BSRI_KEYS + 4) * 4);
    c.grid = p->items * m->tiles * p->block_rows;
    return c;
}

/* Keys of one load: a power of two that divides a block's columns, as many as a key tile has at most; 0: none of 16 or more. */
static int bsri_flash_piece(int64_t block_cols, int keys) {
    int piece = keys;
    while (piece >= 16 && block_cols % piece) piece /= 2;
    return piece >= 16 ? piece : 0;
}
/* Steps of an operand along batch and head, the whole batch's last two dimensions. */
static void bsri_flash_step(int64_t (&step)[2], int dims, const int64_t *size, const int64_t *stride) {
    int i;
    for (i = 0; i < 2; i++) step[1 - i] = dims > i && size[dims - 1 - i] > 1 ? stride[dims - 1 - i] : 0;
}
static void bsri_flash_steps(bsri_dev_flash *m) {
    const bsri_dev_attention *p = &m->p;
    const bsr_dense *d[] = {&p->q, &p->k, &p->v, &p->out, &p->lse};
    int i;
    for (i = 0; i < 5; i++) bsri_flash_step(m->step[i], d[i]->batch_dims, d[i]->batch, d[i]->batch_stride);
    bsri_flash_step(m->step[BSRI_FLASH_CROW], p->mask.batch_dims, p->mask.batch, p->mask.crow_batch_stride);
    bsri_flash_step(m->step[BSRI_FLASH_COL], p->mask.batch_dims, p->mask.batch, p->mask.col_batch_stride);
}
static bsri_choice bsri_wgmma_choose_attention(const bsr_context *ctx, const bsri_dev_attention *p, int compute, const bsr_plan *,
                                               bsri_dev_flash *m) {
    const int dt = p->q.dtype, small = p->q.cols <= 64 && p->v.cols <= 64, shared = p->mask.block_rows % 128 == 0;
    bsri_wanted w = bsri_want(BSRI_FOR_ATTENTION, BSRI_TIER_WGMMA, dt);
    w.rows = shared ? 128 : 64, w.head = small ? 64 : 128;
    bsri_choice c = bsri_yes(bsri_find(&w), shared ? BSR_WHY_ONE_ROW : BSR_WHY_GROUP);
    const int keys = c.tile_cols, rows = c.tile_rows, streams = shared ? 1 : 2;
    if (ctx->tier < BSRI_TIER_WGMMA || !ctx->tensor_map) return bsri_no(BSR_WHY_GPU);
    if (compute != BSR_F32 || !bsri_is_half(dt)) return bsri_no(BSR_WHY_DTYPE);
    if (p->modifies || p->drops || !(p->scale > 1e-30 && p->scale < 1e30)) return bsri_no(BSR_WHY_MODIFIED);
    if (!c.kernel) return c;
    m->piece = bsri_flash_piece(p->mask.block_cols, keys);
    if (p->mask.block_rows % 16 || !m->piece) return bsri_no(BSR_WHY_BLOCK);
    if (p->batch.dims > 2) return bsri_no(BSR_WHY_BATCH);
    if (p->q.rows > 0x7f000000 || p->mask.cols > 0x7f000000 || p->mask.nnz > 0x7f000000) return bsri_no(BSR_WHY_SIZE);
    if (!bsri_mma_rows_fit(&p->q) || !bsri_mma_rows_fit(&p->k) || !bsri_mma_rows_fit(&p->v)) return bsri_no(BSR_WHY_DENSE);
    m->p = *p, m->p.unit = (float)p->scale * BSRI_DEV_LOG2E, m->p.vec2 = bsri_attention_pairs(&p->out);
    for (m->piece_bits = 0; 8 << m->piece_bits < m->piece;) m->piece_bits++;
    m->lane_bits = p->mask.block_rows % 64 == 0 ? 5 : p->mask.block_rows % 32 == 0 ? 4 : 3;
    m->p.tile_rows = rows, m->p.tiles = bsri_ceil_div(p->q.rows, rows);
    if (p->items * m->p.tiles > 0x7f000000) return bsri_no(BSR_WHY_SIZE);
    c.grid = bsri_min(bsri_min(ctx->sm_count, BSRI_FLASH_GRID), bsri_ceil_div(p->items * m->p.tiles, streams)), c.pdl = 1;
    if (c.shared > ctx->smem_optin) return bsri_no(BSR_WHY_SHARED);
    bsri_flash_steps(m);
    for (m->length_bits = 0;
         bsri_block_cols(&p->mask) * bsri_ceil_div(rows, p->mask.block_rows) >> m->length_bits >= BSRI_FLASH_BINS;)
        m->length_bits++;
    if (!bsri_flash_map(ctx, &p->q, rows, &m->batch[0], &m->map[0]) ||
        !bsri_flash_map(ctx, &p->k, m->piece, &m->batch[1], &m->map[1]) ||
        !bsri_flash_map(ctx, &p->v, m->piece, &m->batch[2], &m->map[2]))
        return bsri_no(BSR_WHY_DENSE);
    return c;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-plan: a call as the kernels see it, and who is asked in which order                     */
/* ---------------------------------------------------------------------------------------------- */

static void bsri_dense_set(bsr_dense *to, const bsr_dense *d) { /* absent: stays zero */
    if (d) *to = *d;
}

/* The problem as the kernels see it. */
static void bsri_cuda_describe(const bsri_product *job, bsri_dev_product *p) {
    bsri_product plain = *job;
    bsri_engine e;
    memset(p, 0, sizeof *p);
    memset(&e, 0, sizeof e);
    if (job->a) p->a = *job->a, p->a.schedule = NULL, plain.a = &p->a; /* its header lies in device memory: the kernels read it */
    e.job = &plain;
    e.out_batch = bsri_batch_of(job->out->batch_dims, job->out->batch), e.items = e.out_batch.count;
    if (job->scatter) bsri_engine_scatter(&e);
    else bsri_engine_matrix(&e);
    p->reduce = e.kind == BSRI_LIST_SCATTER ? 1 : bsri_reduce_count(&job->batch, &e.out_batch);
    if (job->a && p->reduce) p->a.schedule = job->a->schedule; /* a sum over no items: no pattern to look an order up in */
    p->b = *job->b, p->out = *job->out, bsri_dense_set(&p->input, job->input), bsri_dense_set(&p->blocks, job->blocks);
    if (job->scatter) p->scatter = *job->scatter;
    if (job->epilogue) {
        const bsr_epilogue *ep = job->epilogue;
        bsri_dense_set(&p->left, ep->left_alpha), bsri_dense_set(&p->right, ep->right_alpha);
        bsri_dense_set(&p->bias, ep->bias);
        p->alpha_ptr = ep->alpha_ptr, p->beta_ptr = ep->beta_ptr, p->user_data = ep->user_data, p->activation = ep->activation;
    }
    p->alpha = job->alpha, p->beta = job->beta, p->has_input = job->input != NULL, p->trans = job->trans;
    p->whole = job->batch, p->out_batch = e.out_batch, p->b_batch = e.b_batch, p->index = e.index, p->schedule = e.schedule;
    p->br = e.br, p->bc = e.bc, p->a_block = e.a_block, p->a_rs = e.a_rs, p->a_cs = e.a_cs, p->tiles = p->lines = e.tiles;
    p->view = bsri_view_of(1, 1);
    p->width = e.width, p->items = e.items, p->kind = e.kind;
}

/* What the kernels of an engine are given, and who may choose one. */
typedef union bsri_product_params {
    bsri_dev_product simt;
    bsri_tiny_params tiny;
    bsri_dev_vector vector;
    bsri_dev_wgmma wgmma;
    bsri_dev_mma mma;
    bsri_dev_narrow_mma skinny;
    bsri_dev_narrow_tma few;
} bsri_product_params;
/* A kernel that may be offered: its tier, what estimates it, what makes its parameters by that. */
template <class P, class F, class M> struct bsri_candidate {
    int tier;
    bsri_estimate (*estimate)(const bsr_context *, const P *, const F *, int compute, const bsr_plan *asked);
    bsri_choice (*choose)(const bsr_context *, const P *, const F *, const bsr_plan *asked, const bsri_estimate *, M *);
};
#define BSRI_CANDIDATE(tier, of, facts, estimate, choose, params)                                                         \
    {tier, estimate,                                                                                                      \
     [](const bsr_context *ctx, const bsri_dev_##of *p, const facts *f, const bsr_plan *asked, const bsri_estimate *e,    \
        bsri_##of##_params *m) { return choose(ctx, p, f, asked, e, &m->params); }}
#ifndef BSRI_WATCH_ESTIMATE
#define BSRI_WATCH_ESTIMATE(e) ((void)0) /* tests/time_plans.cu looks at what was offered last */
#endif
/* Offers them in the order of their estimated times, until one runs what is asked for. Of a tier that takes nothing the last
   refusal is shown: of an offer, else of the last estimate in the list. *limit is where estimates find the least before them: a
   kernel that is not below it has no tile until what was below it could not run, which saves host time (note N18). */
template <class P, class F, class M, int N>
static void bsri_choose_estimated(const bsri_candidate<P, F, M> (&of)[N], const bsr_context *ctx, const P *p, const F *f,
                                  int compute, bsri_chooser *s, M *m, double *limit) {
    bsri_estimate e[N];
    int best, i;
    for (i = 0; i < N; i++) {
        e[i] = bsri_wants(s, of[i].tier) ? of[i].estimate(ctx, p, f, compute, s->asked) : bsri_estimate_none(BSR_WHY_PLAN);
        if (e[i].why) s->refused[of[i].tier] = e[i].why;
        else if (e[i].ns < *limit) *limit = e[i].ns;
    }
    for (;;) {
        for (best = -1, i = 0; i < N; i++)
            if (!e[i].why && (best < 0 || e[i].ns < e[best].ns)) best = i;
        if (best < 0) return;
        bsri_offer(s, of[best].tier, of[best].choose(ctx, p, f, s->asked, &e[best], m));
        BSRI_WATCH_ESTIMATE(&e[best]);
        s->ns = e[best].ns;
        if (s->best.kernel) break;
        e[best].why = BSR_WHY_PLAN, *limit = INFINITY;
        for (i = 0; i < N; i++)
            if (!e[i].why) e[i] = of[i].estimate(ctx, p, f, compute, s->asked);
    }
    for (i = 0; i < N; i++)
        if (!e[i].why) s->refused[of[i].tier] = BSR_WHY_SLOWER;
}
/* Every kernel but the one that takes anything. Few columns' first: what they take is told from more than their tiles. */
static const bsri_candidate<bsri_dev_product, bsri_facts, bsri_product_params> bsri_products[] = {
    BSRI_CANDIDATE(BSRI_TIER_WGMMA, product, bsri_facts, bsri_narrow_tma_estimate, bsri_narrow_tma_choose, few),
    BSRI_CANDIDATE(BSRI_TIER_WGMMA, product, bsri_facts, bsri_wgmma_estimate, bsri_wgmma_choose, wgmma),
    BSRI_CANDIDATE(BSRI_TIER_MMA, product, bsri_facts, bsri_narrow_mma_estimate, bsri_narrow_mma_choose, skinny),
    BSRI_CANDIDATE(BSRI_TIER_MMA, product, bsri_facts, bsri_small_estimate, bsri_small_choose, mma),
    BSRI_CANDIDATE(BSRI_TIER_MMA, product, bsri_facts, bsri_mma_estimate, bsri_mma_choose, mma)};
static void bsri_choose_product(const bsr_context *ctx, const bsri_dev_product *p, int compute, bsri_chooser *s,
                                bsri_product_params *m) {
    if (p->kind < BSRI_LIST_SCATTER && p->reduce) {
        if (bsri_wants(s, BSRI_TIER_SIMT) && p->width == 1 && !bsri_is_half(p->a.dtype))
            bsri_offer(s, BSRI_TIER_SIMT, bsri_vector_choose(ctx, p, compute, s, &m->vector));
        if (bsri_wants(s, BSRI_TIER_SIMT) && bsri_tiny_ahead(ctx, p))
            bsri_offer(s, BSRI_TIER_SIMT, bsri_tiny_choose_both(ctx, p, compute, s, &m->tiny));
        bsri_dev_product tiles;
        const bsri_dev_product *const seen = bsri_tiled(p, &tiles);
        bsri_facts f = bsri_facts_of(seen);
        f.stored = p;
        bsri_choose_estimated(bsri_products, ctx, seen, &f, compute, s, m, &f.limit);
    } else /* the caller's: there need not be a matrix; or of no item: zeros */
        s->refused[BSRI_TIER_MMA] = s->refused[BSRI_TIER_WGMMA] = BSR_WHY_LIST_KIND;
    if (bsri_wants(s, BSRI_TIER_SIMT))
        bsri_offer(s, BSRI_TIER_SIMT, bsri_vector_choose(ctx, p, compute, s, &m->vector));
    if (bsri_wants(s, BSRI_TIER_SIMT)) bsri_offer(s, BSRI_TIER_SIMT, bsri_tiny_choose_both(ctx, p, compute, s, &m->tiny));
    if (bsri_wants(s, BSRI_TIER_SIMT)) bsri_offer(s, BSRI_TIER_SIMT, bsri_simt_choose(ctx, p, compute, s->asked, &m->simt));
}
typedef union bsri_sampled_params {
    bsri_dev_sampled simt;
    bsri_dev_mma_sampled mma;
    bsri_dev_wgmma_sampled wgmma;
} bsri_sampled_params;
static const bsri_candidate<bsri_dev_sampled, bsri_sampled_facts, bsri_sampled_params> bsri_sampled_products[] = {
    BSRI_CANDIDATE(BSRI_TIER_WGMMA, sampled, bsri_sampled_facts, bsri_wgmma_estimate_sampled, bsri_wgmma_choose_sampled, wgmma),
    BSRI_CANDIDATE(BSRI_TIER_MMA, sampled, bsri_sampled_facts, bsri_mma_estimate_sampled, bsri_mma_choose_sampled, mma)};
static void bsri_choose_sampled(const bsr_context *ctx, const bsri_dev_sampled *p, int compute, bsri_chooser *s,
                                bsri_sampled_params *m) {
    bsri_dev_sampled tiles;
    const bsri_dev_sampled *const seen = bsri_tiled_sampled(p, &tiles);
    const bsri_sampled_facts f = bsri_sampled_facts_of(seen);
    double least = INFINITY; /* two that are simple */
    if (p->reduce) bsri_choose_estimated(bsri_sampled_products, ctx, seen, &f, compute, s, m, &least);
    else s->refused[BSRI_TIER_MMA] = s->refused[BSRI_TIER_WGMMA] = BSR_WHY_LIST_KIND; /* sums of no item: zeros */
    if (bsri_wants(s, BSRI_TIER_SIMT))
        bsri_offer(s, BSRI_TIER_SIMT, bsri_simt_choose_sampled(ctx, p, compute, s->asked, &m->simt));
}
typedef union bsri_attention_params {
    bsri_dev_attention simt, mma;
    bsri_dev_flash wgmma;
} bsri_attention_params;
static void bsri_choose_attention(const bsr_context *ctx, const bsri_dev_attention *p, int compute, bsri_chooser *s,
                                  bsri_attention_params *m) {
    if (bsri_wants(s, BSRI_TIER_WGMMA))
        bsri_offer(s, BSRI_TIER_WGMMA, bsri_wgmma_choose_attention(ctx, p, compute, s->asked, &m->wgmma));
    if (bsri_wants(s, BSRI_TIER_MMA))
        bsri_offer(s, BSRI_TIER_MMA, bsri_mma_choose_attention(ctx, p, compute, s->asked, &m->mma));
    if (bsri_wants(s, BSRI_TIER_SIMT))
        bsri_offer(s, BSRI_TIER_SIMT, bsri_simt_choose_attention(ctx, p, compute, s->asked, &m->simt));
}

static void bsri_choose_softmax(const bsr_context *ctx, const bsri_dev_softmax *p, int compute, int way, bsri_chooser *s) {
    if (bsri_wants(s, BSRI_TIER_SIMT)) bsri_offer(s, BSRI_TIER_SIMT, bsri_simt_choose_softmax(ctx, p, compute, way));
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-stage: operands laid anew in the workspace, for kernels that are faster then            */
/* ---------------------------------------------------------------------------------------------- */

/* Kernels on tensor cores want dense operands in aligned pieces of 16 bytes, i8's want them along the products, all want many
   columns. Where a call offers a workspace, its operands are laid there as they want them and the product runs on the copies
   (out is formed there and copied back): a stage stands between what a call asks for and the choosers, which see the product of
   the copies as they see any other. It is taken where its estimate and that of copying are below the direct product's. */

/* One view copied to another: the lines of both are numbered alike, and lines and elements that only `to` has become zeros. A
   line is what stands side by side in `to`. */
typedef struct bsri_dev_copy {
    const char *from;
    char *to;
    int64_t lines, length, all_lines, all; /* of from; of to */
    int64_t from_line, from_step, to_line, to_step; /* element strides */
    int64_t from_item[BSR_MAX_BATCH_DIMS], to_item[BSR_MAX_BATCH_DIMS];
    bsri_batch items;
    int64_t work; /* CTAs */
    int32_t shift, lanes; /* log2 of an element's bytes; of the lanes that share a line, -1: tiles, where lines differ */
    int32_t packed, reserved; /* no gaps between from's lines */
} bsri_dev_copy;
enum { BSRI_COPIES = 4, BSRI_COPY_EACH = 4, BSRI_COPY_TILE = 64 }; /* copies of a launch; pieces of a lane; lines of a tile */
typedef struct bsri_dev_copies {
    bsri_dev_copy copy[BSRI_COPIES];
    int32_t count, reserved;
} bsri_dev_copies;

static constexpr double bsri_copy_lines_ns = 0.00075, bsri_copy_tiles_ns = 0.0013; /* of a byte read or written (note N28) */
/* What a stage lays where. */
typedef struct bsri_stage {
    char *base; /* the workspace */
    int64_t bytes, view_at; /* of it; where the transposed index stands */
    bsri_dev_copies before, after;
    double ns;      /* of its copies */
    uint32_t flags; /* BSR_PLAN_STAGES_DENSE, ... */
    int32_t failed; /* a size overflows, or there are too many copies */
} bsri_stage;

static int64_t bsri_stage_take(bsri_stage *s, int64_t bytes) {
    const int64_t at = s->bytes;
    if (!bsri_add(bytes, 127, &bytes) || !bsri_add(s->bytes, bytes / 128 * 128, &s->bytes)) s->failed = 1;
    return at;
}
/* 1: a view's columns are what stands side by side, else its rows, going by the shorter stride. */
static int bsri_stage_columns(const bsr_dense *d) {
    if (d->rows == 1 || d->cols == 1) return d->rows != 1;
    return d->row_stride < d->col_stride || (d->row_stride == d->col_stride && d->row_stride == 1);
}
/* Room for rows x cols elements of each item of d that is not another's as well: lines of whole 16 bytes, long ones of whole
   128. */
static bsr_dense bsri_stage_room(bsri_stage *s, const bsr_dense *d, int64_t rows, int64_t cols, int columns) {
    const int64_t size = (int64_t)bsr_dtype_size(d->dtype), length = columns ? rows : cols, lines = columns ? cols : rows;
    const int64_t unit = (length > 128 / size ? 128 : 16) / size;
    bsr_dense r = *d;
    int64_t line = bsri_ceil_div(length, unit) * unit, all = 0, bytes = 0;
    int i;
    r.rows = rows, r.cols = cols, r.row_stride = columns ? 1 : line, r.col_stride = columns ? line : 1;
    if (!bsri_mul(line, lines, &all)) s->failed = 1;
    for (i = r.batch_dims - 1; i >= 0; i--) {
        r.batch_stride[i] = d->batch[i] > 1 && d->batch_stride[i] ? all : 0;
        if (r.batch_stride[i] && !bsri_mul(all, d->batch[i], &all)) s->failed = 1;
    }
    if (!bsri_mul(all, size, &bytes)) s->failed = 1;
    r.data = s->base + bsri_stage_take(s, bytes);
    return r;
}
/* The same view, seen with its lines as rows. */
static bsr_dense bsri_stage_lines(const bsr_dense *d, int columns) { return columns ? bsr_dense_transposed(*d) : *d; }
static void bsri_copy_items(bsri_dev_copy *c, const bsr_dense *from, const bsr_dense *to) {
    const int dims = (int)bsri_max(from->batch_dims, to->batch_dims);
    c->items = bsri_batch_none(), c->items.dims = dims;
    for (int i = 0; i < dims; i++) {
        const int f = i - (dims - from->batch_dims), t = i - (dims - to->batch_dims);
        const int64_t wanted = t >= 0 && to->batch[t] > 1 && to->batch_stride[t] ? to->batch[t] : 1;
        c->items.size[i] = wanted, c->items.count *= wanted;
        c->from_item[i] = f >= 0 && from->batch[f] > 1 ? from->batch_stride[f] : 0;
        c->to_item[i] = wanted > 1 ? to->batch_stride[t] : 0;
    }
}
/* Where items stand beside each other in `to` and have short lines, they take the part of lines, so that neighbours are written
   together. */
static void bsri_copy_order(bsri_dev_copy *c) {
    const int last = c->items.dims - 1;
    const int64_t n = last >= 0 ? c->items.size[last] : 1, from = n > 1 ? c->from_item[last] : 0;
    const int64_t to = n > 1 ? c->to_item[last] : 0;
    if (n == 1 || c->all > 32 || to >= c->to_line || c->all_lines != c->lines) return;
    c->items.size[last] = c->lines, c->from_item[last] = c->from_line, c->to_item[last] = c->to_line;
    c->items.count = c->items.count / n * c->lines;
    c->lines = c->all_lines = n, c->from_line = from, c->to_line = to;
}
/* How a copy is shared out: by lines where they lie alike in both views, else by tiles. */
static void bsri_copy_share(bsri_dev_copy *c, int64_t size) {
    const int64_t pieces = c->all * size / 16 + 2;
    const int alike = (c->from_step == 1 || c->length <= 1) && (c->to_step == 1 || c->all <= 1);
    c->shift = bsri_mma_log2(size), c->lanes = -1;
    c->packed = c->from_line == c->length || c->lines == 1;
    if (alike) {
        for (c->lanes = 0; c->lanes < 5 && pieces > (int64_t)BSRI_COPY_EACH << c->lanes;) c->lanes++;
        c->work = bsri_ceil_div(c->items.count * bsri_ceil_div(c->all_lines, 32 >> c->lanes) *
                                bsri_ceil_div(pieces, (int64_t)BSRI_COPY_EACH << c->lanes), 8);
    } else {
        c->work = c->items.count * bsri_ceil_div(c->all_lines, (int)BSRI_COPY_TILE) * bsri_ceil_div(c->all, size == 8 ? 32 : 64);
    }
}
static void bsri_stage_copy(bsri_stage *s, bsri_dev_copies *list, const bsr_dense *from, const bsr_dense *to) {
    const int columns = bsri_stage_columns(to);
    const bsr_dense f = bsri_stage_lines(from, columns), t = bsri_stage_lines(to, columns);
    const int64_t size = (int64_t)bsr_dtype_size(from->dtype);
    bsri_dev_copy *c = &list->copy[list->count];
    if (list->count == BSRI_COPIES) {
        s->failed = 1;
        return;
    }
    memset(c, 0, sizeof *c), list->count++;
    c->from = (const char *)f.data, c->to = (char *)t.data;
    c->lines = bsri_min(f.rows, t.rows), c->length = bsri_min(f.cols, t.cols), c->all_lines = t.rows, c->all = t.cols;
    c->from_line = f.row_stride, c->from_step = f.col_stride, c->to_line = t.row_stride, c->to_step = t.col_stride;
    bsri_copy_items(c, from, to);
    bsri_copy_order(c);
    bsri_copy_share(c, size);
    s->ns += 2.0 * (double)size * (double)c->items.count * (double)c->all_lines * (double)c->all *
             (c->lanes < 0 ? bsri_copy_tiles_ns : bsri_copy_lines_ns);
}
/* Nanoseconds of both launches and their copies. */
static double bsri_stage_ns(const bsri_stage *s) {
    const double launches = (double)((s->before.count > 0) + (s->after.count > 0));
    return 1800.0 * launches + s->ns;
}

/* --- items as columns --- */

/* A view with its last batch dimension, of n items, as further columns of one item's `cols`; 0 where it can't be seen so.
   repeats: a single column may stand for all (an operand of an epilogue). */
static int bsri_merge_view(bsr_dense *d, int64_t n, int64_t cols, int repeats) {
    const int last = d->batch_dims - 1;
    const int64_t size = last >= 0 ? d->batch[last] : 1, stride = size > 1 ? d->batch_stride[last] : 0;
    if (last >= 0) d->batch_dims = last;
    if (n == 1) return 1;
    if (size == 1 || !stride) return repeats && d->cols == 1;
    if (d->cols != cols || (cols > 1 && stride != cols * d->col_stride)) return 0;
    if (cols == 1) d->col_stride = stride;
    return bsri_mul(cols, n, &d->cols) && d->cols <= INT32_MAX;
}
/* A product with copies of all its views, so that they can be changed. */
typedef struct bsri_product_views {
    bsri_product job;
    bsr_matrix a;
    bsr_dense b, out, input, left, right, bias; /* data null: absent */
    bsr_epilogue epilogue;
} bsri_product_views;
static void bsri_views_link(bsri_product_views *v) {
    v->job.b = &v->b, v->job.out = &v->out, v->job.a = &v->a, v->job.input = v->input.data ? &v->input : NULL;
    if (!v->job.epilogue) return;
    v->job.epilogue = &v->epilogue, v->epilogue.left_alpha = v->left.data ? &v->left : NULL;
    v->epilogue.right_alpha = v->right.data ? &v->right : NULL, v->epilogue.bias = v->bias.data ? &v->bias : NULL;
}
static bsri_product_views bsri_views_of(const bsri_product *job) {
    const bsr_epilogue *e = job->epilogue;
    bsri_product_views v;
    memset(&v, 0, sizeof v);
    v.job = *job, v.a = *job->a, v.b = *job->b, v.out = *job->out;
    if (job->input && (job->beta != 0.0 || (e && e->beta_ptr))) v.input = *job->input; /* else it is not read */
    if (e) {
        v.epilogue = *e, bsri_dense_set(&v.left, e->left_alpha), bsri_dense_set(&v.right, e->right_alpha);
        bsri_dense_set(&v.bias, e->bias);
    }
    return v;
}
/* Do all items have one and the same matrix in this dimension, counted from the last? */
static int bsri_same_matrix(const bsr_matrix *a, int from_last) {
    const int i = a->batch_dims - 1 - from_last;
    if (i < 0 || a->batch[i] == 1) return 1;
    return !(a->flags & BSR_MATRIX_RAGGED) && !a->crow_batch_stride[i] && !a->col_batch_stride[i] && !a->values_batch_stride[i];
}
static void bsri_drop_last(bsri_product_views *v) {
    bsri_batch *b = &v->job.batch;
    v->a.batch_dims -= v->a.batch_dims > 0, b->dims--;
    *b = bsri_batch_of(b->dims, b->size);
}
static int bsri_merge_able(const bsri_product *job) { /* a user function is told where it is */
    return !(job->epilogue && job->epilogue->activation >= BSR_USER_FUNCTION_BASE) && job->batch.dims > 0 && job->batch.count > 1;
}
/* Items whose columns stand beside each other already, with one matrix, are one product: as many dimensions, from the last one
   on, as that holds for. 1: *v is that product. */
static int bsri_merge_product(const bsri_product *job, bsri_product_views *v) {
    int merged = 0;
    if (!bsri_merge_able(job)) return 0;
    for (*v = bsri_views_of(job); v->job.batch.dims > 0;) {
        const int64_t n = v->job.batch.size[v->job.batch.dims - 1], cols = v->out.cols;
        bsri_product_views next = *v;
        if (!bsri_same_matrix(&next.a, 0) || !bsri_merge_view(&next.b, n, cols, 0)) break;
        if (!bsri_merge_view(&next.out, n, cols, 0)) break;
        if (next.input.data && !bsri_merge_view(&next.input, n, cols, 1)) break;
        if (next.left.data && (!bsri_merge_view(&next.left, n, cols, 1) || next.left.cols > 1)) break;
        if (next.right.data && !bsri_merge_view(&next.right, n, cols, 1)) break;
        if (next.bias.data && !bsri_merge_view(&next.bias, n, cols, 1)) break;
        bsri_drop_last(&next), *v = next, merged |= n > 1;
    }
    bsri_views_link(v);
    return merged;
}

/* --- stages of products --- */

enum { /* what a stage changes, where it is not needed all the same */
    BSRI_STAGE_OUT = 1,
    BSRI_STAGE_TURN = 2,
    BSRI_STAGE_ITEMS = 4,
    BSRI_STAGE_WAYS = 8
};
typedef struct bsri_staged_product {
    bsri_product_views of;
    bsri_stage s;
    bsri_view index; /* bytes 0: none is built */
} bsri_staged_product;
/* A view of `wide` columns beside each other, seen as the items of d: the columns of one, as many as `cols` each. */
static bsr_dense bsri_stage_items(const bsri_batch *b, bsr_dense wide, int64_t cols) {
    int64_t step = cols * wide.col_stride;
    wide.cols = cols, wide.batch_dims = b->dims;
    for (int i = b->dims - 1; i >= 0; i--) wide.batch[i] = b->size[i], wide.batch_stride[i] = step, step *= b->size[i];
    return wide;
}
/* Lays *d anew: `cols` columns, of all items where they are merged, in this layout. Its copy is made before the product. */
static bsr_dense bsri_stage_view(bsri_stage *s, const bsri_batch *items, const bsr_dense *d, int64_t cols, int columns,
                                 bsri_dev_copies *list) {
    bsr_dense one = *d, to;
    if (items) one.batch_dims = 0;
    to = bsri_stage_room(s, &one, d->rows, cols, columns);
    if (list) {
        const bsr_dense seen = items ? bsri_stage_items(items, to, d->cols) : to;
        bsri_stage_copy(s, list, d, &seen);
    }
    return to;
}
static int bsri_same_view(const bsr_dense *x, const bsr_dense *y) {
    return x->data == y->data && x->dtype == y->dtype && x->rows == y->rows && x->cols == y->cols &&
           x->row_stride == y->row_stride && x->col_stride == y->col_stride && x->batch_dims == y->batch_dims &&
           !memcmp(x->batch, y->batch, sizeof x->batch[0] * (size_t)x->batch_dims) &&
           !memcmp(x->batch_stride, y->batch_stride, sizeof x->batch_stride[0] * (size_t)x->batch_dims);
}
/* An operand of the epilogue: laid anew where its columns no longer are out's, or `must`. */
static void bsri_stage_operand(bsri_staged_product *t, bsr_dense *d, const bsri_batch *items, int64_t cols, int must) {
    const int64_t had = t->of.job.out->cols;
    if (!d->data) return;
    if (items && d->cols == 1 && had != 1) return; /* a column for all items: as it stands */
    if (items || (d->cols == had && had > 1 && cols != had) || must) {
        *d = bsri_stage_view(&t->s, items, d, d->cols == had ? cols : d->cols, bsri_stage_columns(&t->of.out), &t->s.before);
        t->s.flags |= BSR_PLAN_STAGES_DENSE;
    }
}
/* Can the items of a product be laid beside each other? What has one column has it for all. */
static int bsri_stage_mergeable(const bsri_product *job, const bsri_product_views *v) {
    const bsr_dense *one[3] = {&v->left, &v->right, &v->bias};
    int i, j;
    if (!bsri_merge_able(job) || bsri_batch_of(job->out->batch_dims, job->out->batch).count != job->batch.count) return 0;
    for (i = 0; i < job->batch.dims; i++)
        if (!bsri_same_matrix(&v->a, i)) return 0;
    for (j = 0; j < 3; j++)
        for (i = 0; i < one[j]->batch_dims; i++)
            if (one[j]->data && one[j]->batch[i] > 1 && one[j]->batch_stride[i] && (j == 0 || one[j]->cols != job->out->cols))
                return 0;
    if (v->input.data && v->input.cols != job->out->cols) return 0;
    return 1;
}
static bsri_view bsri_stage_index(bsri_staged_product *t, const bsr_matrix *a, int64_t scratch) {
    bsri_view v;
    memset(&v, 0, sizeof v);
    if (!bsri_transposed_layout(a, &v)) t->s.failed = 1;
    bsri_stage_take(&t->s, scratch);
    t->s.view_at = bsri_stage_take(&t->s, v.bytes);
    t->of.a.transposed_index = t->s.base + t->s.view_at, t->s.flags |= BSR_PLAN_BUILDS_INDEX;
    return v;
}
/* The product with its operands laid anew in the ways that are asked for; scratch: what building the transposed index takes, -1:
   it is not built. 0: there is nothing to lay, or it can't be. */
static int bsri_stage_product_of(const bsri_product *job, int ways, char *base, int64_t scratch, bsri_staged_product *t) {
    bsri_product_views *v = &t->of;
    const bsri_batch *items = ways & BSRI_STAGE_ITEMS ? &job->batch : NULL;
    const int64_t n = job->out->cols, size = (int64_t)bsr_dtype_size(job->b->dtype);
    const int64_t unit = 16 / bsri_min(size, (int64_t)bsr_dtype_size(job->out->dtype));
    const int by_columns = bsri_stage_columns(job->out), turned = (ways & BSRI_STAGE_TURN) != 0;
    int64_t wide = n, cols;
    memset(t, 0, sizeof *t), t->s.base = base, *v = bsri_views_of(job);
    if (scratch >= 0) t->index = bsri_stage_index(t, job->a, scratch);
    if (items && (!bsri_stage_mergeable(job, v) || !bsri_mul(n, items->count, &wide) || wide > INT32_MAX)) return 0;
    cols = ways & BSRI_STAGE_OUT && !by_columns ? bsri_ceil_div(wide, unit) * unit : wide;
    if (cols != wide && job->epilogue && job->epilogue->activation >= BSR_USER_FUNCTION_BASE) return 0;
    if (ways & BSRI_STAGE_OUT) {
        v->out = bsri_stage_view(&t->s, items, job->out, cols, by_columns, NULL), t->s.flags |= BSR_PLAN_STAGES_OUT;
    }
    if (cols != n || turned || !bsri_mma_layout(job->b)) {
        v->b = bsri_stage_view(&t->s, items, job->b, cols, bsri_stage_columns(job->b) != turned, &t->s.before);
        t->s.flags |= turned ? BSR_PLAN_TURNS_DENSE : BSR_PLAN_STAGES_DENSE;
    }
    if (v->input.data && ways & BSRI_STAGE_OUT && bsri_same_view(&v->input, job->out)) {
        const bsr_dense to = items ? bsri_stage_items(items, v->out, n) : v->out;
        bsri_stage_copy(&t->s, &t->s.before, job->out, &to), v->input = v->out;
    } else {
        const int whole = v->input.data && v->input.dtype == v->out.dtype && v->input.rows == v->out.rows && v->input.cols == n;
        const int layout = bsri_mma_layout(&v->out);
        bsri_stage_operand(t, &v->input, items, cols, whole && layout && bsri_mma_layout(&v->input) != layout);
    }
    bsri_stage_operand(t, &v->right, items, cols, 0), bsri_stage_operand(t, &v->bias, items, cols, 0);
    if (ways & BSRI_STAGE_OUT) {
        const bsr_dense from = items ? bsri_stage_items(items, v->out, n) : v->out;
        bsri_stage_copy(&t->s, &t->s.after, &from, job->out);
    }
    if (items) {
        t->s.flags |= BSR_PLAN_MERGES_BATCH, v->job.batch = bsri_batch_none(), v->a.batch_dims = 0, v->left.batch_dims = 0;
        if (!v->right.data || v->right.cols == 1) v->right.batch_dims = 0;
        if (!v->bias.data || v->bias.cols == 1) v->bias.batch_dims = 0;
    }
    bsri_views_link(v);
    return !t->s.failed && (t->s.before.count || t->s.after.count || t->index.bytes);
}
/* The ways that are worth an estimate, as bits. */
static uint32_t bsri_stage_ways(const bsri_product *job) {
    const bsr_dense *b = job->b, *out = job->out;
    const int64_t n = out->cols, size = (int64_t)bsr_dtype_size(out->dtype);
    const int dense = bsri_mma_layout(b), stored = bsri_mma_layout(out), ragged = stored != 2 && n * size % 16 != 0;
    const int odd_out = n > 1 && (!stored || ragged), turn = b->dtype == BSR_I8 && bsri_stage_columns(b) == 0;
    const int items = job->batch.count > 1;
    uint32_t ways = 0;
    int w;
    for (w = 0; w < BSRI_STAGE_WAYS; w++) {
        if (w & BSRI_STAGE_OUT && !odd_out && !(w & BSRI_STAGE_ITEMS)) continue;
        if (w & BSRI_STAGE_TURN && !turn) continue;
        if (w & BSRI_STAGE_ITEMS && (!items || !(w & BSRI_STAGE_OUT))) continue;
        if (!w && dense && !(job->input && !bsri_mma_layout(job->input))) continue;
        ways |= 1u << w;
    }
    return ways;
}
/* Nanoseconds that kernels take more which store out number by number, as it is in no aligned pieces, or its rows end in one. */
static double bsri_odd_out_ns(const bsri_product *job, const bsri_choice *c) {
    const bsr_dense *out = job->out;
    const int64_t size = (int64_t)bsr_dtype_size(out->dtype);
    const int layout = bsri_mma_layout(out), pairs = out->dtype == BSR_F32 && bsri_wgmma_direct(out);
    const double numbers = (double)out->rows * (double)out->cols * (double)bsri_batch_of(out->batch_dims, out->batch).count;
    if (out->cols == 1 || pairs || layout == 2 || (layout && out->cols * size % 16 == 0)) return 0.0;
    return numbers * (c->tier == BSRI_TIER_WGMMA && c->tile_rows == 128 ? 0.0035 : 0.0008);
}
/* What the kernels that take anything are expected to take: a bound by how many numbers they multiply. */
static double bsri_plain_ns(const bsri_dev_product *p, int compute) {
    const double values = bsri_mean_blocks(&p->a) * (double)(p->br * p->bc);
    return 4000.0 + values * (double)p->width * (double)p->items * (double)p->reduce / (compute == BSR_F64 ? 2500.0 : 5000.0);
}

/* --- stages of sampled products --- */

typedef struct bsri_staged_sampled {
    bsri_sampled job;
    bsr_dense mat1, mat2;
    bsri_stage s;
} bsri_staged_sampled;
/* whole: both operands, with an inner size of whole steps of 32, which the kernels of tier mma want. 0: as above. */
static int bsri_stage_sampled_of(const bsri_sampled *job, int whole, char *base, bsri_staged_sampled *t) {
    const int64_t k = whole ? bsri_ceil_div(job->mat1->cols, 32) * 32 : job->mat1->cols;
    memset(t, 0, sizeof *t), t->s.base = base, t->job = *job, t->mat1 = *job->mat1, t->mat2 = *job->mat2;
    if (whole || !bsri_mma_layout(job->mat1)) {
        t->mat1 = bsri_stage_room(&t->s, job->mat1, job->mat1->rows, k, bsri_stage_columns(job->mat1));
        bsri_stage_copy(&t->s, &t->s.before, job->mat1, &t->mat1);
    }
    if (whole || !bsri_mma_layout(job->mat2)) {
        t->mat2 = bsri_stage_room(&t->s, job->mat2, k, job->mat2->cols, bsri_stage_columns(job->mat2));
        bsri_stage_copy(&t->s, &t->s.before, job->mat2, &t->mat2);
    }
    t->job.mat1 = &t->mat1, t->job.mat2 = &t->mat2, t->s.flags = BSR_PLAN_STAGES_DENSE;
    return !t->s.failed && t->s.before.count;
}
static double bsri_plain_sampled_ns(const bsri_dev_sampled *p, int compute) {
    const double numbers = bsri_mean_blocks(&p->out) * (double)(p->out.block_rows * p->out.block_cols);
    const double products = numbers * (double)p->mat1.cols * (double)p->items * (double)p->reduce;
    return 4000.0 + products / (compute == BSR_F64 ? 1500.0 : 3000.0);
}

#ifdef BSRI_CUDA

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-matrix-types: what the kernels of the matrix operations are given                       */
/* ---------------------------------------------------------------------------------------------- */

/* Threads of a CTA, which kernels and launches read here; wide ones have a CTA an item, or search together. */
enum { BSRI_CTA = 256, BSRI_CTA_WIDE = 1024, BSRI_CTA_WARPS = BSRI_CTA / 32 };

/* Zeros a region after at most eight words, and a second one. Two arrays in the first are spared as far as they are about to
   be written: they start at words spare[] and have *spare_count entries. */
typedef struct bsri_dev_fill {
    int64_t *data, words, head[8]; /* of eight bytes */
    int64_t *more, more_words;
    int64_t heads, spare[2];
    const void *spare_count;
    int32_t spare_dtype, reserved;
} bsri_dev_fill;

/* One pass of a stable radix sort of several runs of keys; arrays of keys, rows and positions have the index type. Run i stands
   at i * n and is as long as crow says (crow null: n); ragged: all runs share arrays of n. A run is cut into chunks; `slots`
   numbers the chunks of all runs. */
typedef struct bsri_dev_sort {
    bsr_matrix m; /* key null: its columns are the keys, and rows and positions are made here */
    bsri_batch patterns;
    const void *key, *row, *position;
    void *key_out, *row_out, *position_out; /* row, position null: not wanted */
    void *counts, *totals;                  /* [runs][digits][chunks of the run], [runs][digits] */
    void *ccol;                             /* last: where each column starts */
    const uint64_t *wanted;                 /* nothing is done unless one of wanted_bits is set there (null: always) */
    uint64_t wanted_bits;
    int64_t n, chunk, chunks, slots, digits, cols;
    int32_t shift, ragged, chunk_bits, reserved;
} bsri_dev_sort;

/* The lines of each pattern, as bsri_lines. */
typedef struct bsri_dev_lines {
    bsr_matrix m;
    bsri_batch patterns;
    const void *start, *list; /* null: m's rows; else [patterns][count + 1] and [patterns][each] */
    int64_t each, count, others, limit, groups, full, window;
    int64_t group, words, small;                         /* words 0: no bit sets; small: they fit shared memory */
    uint64_t *key;                                       /* [patterns][count]: longest first */
    int32_t *distinct, *order, *member, *unions, *stamp; /* [patterns][...] */
    uint32_t *bits, *repeats;
} bsri_dev_lines;

typedef struct bsri_dev_rank {
    const uint64_t *key;
    int64_t patterns, n, full; /* full: those that take part; the others stay behind, in order */
    const int32_t *member, *length;
    int32_t *order, *lengths; /* lengths null: only the order */
    int64_t group;
    int64_t *tall; /* as bsri_schedule_tall */
} bsri_dev_rank;

typedef struct bsri_dev_expand {
    bsr_matrix m;
    bsr_dense out;
    bsri_batch batch;
    int64_t stride[3], rows, cols, panel, panels, splits, groups, subs, work;
    int32_t pieces, whole, height, group, by_rows, reserved; /* out can be written by pieces (bsri_cuda_pieces); values can be
                                             read by them; rows of a tile, and block rows; neighbours stand in a row */
} bsri_dev_expand;

/* The search for the least key that is kept: all digits above `shift` are known; rest: how many of those that agree are kept. */
typedef struct bsri_dev_rung {
    uint64_t key, place;
    int64_t rest;
    int32_t done, passed; /* all that agree are kept; passes behind it */
} bsri_dev_rung;

/* A matrix under construction, as bsri_build. */
typedef struct bsri_dev_build {
    bsr_matrix to, sparse;
    bsr_dense dense; /* data null: absent */
    bsri_batch batch;
    int64_t stride[3], sparse_stride[3];
    const uint8_t *mask;
    uint32_t *bits;       /* [items][item_words], rows of row_words; those of stored blocks have no rows */
    int64_t *first;       /* [items][rows][segments] */
    int64_t *sums, *rank; /* of chunks of counts; positions before each word of bits, or null */
    void *origin;         /* of each stored block's values: block rows of dense, blocks of sparse */
    void *entry_row;      /* of entries: their rows, or null */
    double *norm, per_area, per_width, per_height; /* 1 over elements of a block, of its rows and of its columns */
    int64_t rows, cols, item_words, row_words, panel, panels, capacity, candidates, kept;
    int64_t segments, parts, each, chunks; /* of a block row; lists of counts, their length, and chunks of one */
    int32_t norm_kind, ragged, complement, origin_dtype;
    int32_t pieces, whole, height, group; /* dense can be read by pieces (1 rows, 2 columns); values can be moved by pieces; rows
                                             and block rows of a tile */
    int32_t by_rows, lanes;               /* neighbours stand in a row; prune: threads for a block */
    uint64_t seed;
    int64_t draws;
    int64_t *drawn; /* [items][draws] */
    uint32_t *seen; /* [items][candidates] */
    uint32_t *counts;    /* prune: histograms, [items][passes][digits] */
    bsri_dev_rung *rung; /* prune: what each pass knows, [items][passes + 1] */
    int64_t tiles;       /* prune: blocks of threads an item */
    int32_t pass, norm_passes, passes, place_bits;
} bsri_dev_build;
#define BSRI_ENTRIES_CHUNK 4096 /* entries whose blocks are counted together */
typedef struct bsri_dev_entries {
    bsr_matrix to;
    const void *row, *crow, *col, *values; /* row null: CSR */
    void *key, *starts;                    /* keys; CSR's crow, also of COO in order */
    const void *sorted, *order;            /* keys in order; which entry each is of */
    uint64_t *state;                       /* what was found (BSRI_ENTRIES_) */
    int64_t *rank, *sums;                  /* blocks before an entry; per chunk of entries */
    uint32_t *bits, *claimed;              /* which blocks there are, or null; which elements are written */
    const int64_t *places;                 /* blocks before each word of bits */
    int64_t stride[3], nnz, rows, cols, source_rows, source_cols, capacity, chunks, row_words;
    int32_t index_dtype, dtype, with_values, count_only, key_dtype, packed;
    uint32_t per_height, per_width; /* (2^32 - 1) / sides of a block */
    int32_t sorting, after_sort; /* which findings make sorting necessary; the launch is for what comes after it */
} bsri_dev_entries;

enum {
    BSRI_STAGE_STRUCTURE,
    BSRI_STAGE_CCOL,
    BSRI_STAGE_ENTRIES,
    BSRI_STAGE_MARK,
    BSRI_STAGE_ORDER,
    BSRI_STAGE_TRANSPOSED,
    BSRI_STAGE_UNIONS
};
typedef struct bsri_dev_validate {
    bsr_matrix m;
    bsri_batch patterns;
    bsri_view index, schedule;
    const void *start, *list; /* unions: the lines of one pattern */
    int64_t pattern;
    uint64_t *record; /* the first failure as stage and place; then item, index, value; tall groups */
    uint32_t *seen;   /* [patterns][lines + 1] */
    int64_t rows, cols, span, fixed, parts, group, lines, work;
    int32_t stage, transposed;
} bsri_dev_validate;

/* Index arrays that BSR_EXEC_CHECK_INDICES has looked at before an operation: bsri_subject as its kernels see it. */
typedef struct bsri_dev_indices {
    bsr_matrix m, other;
    bsri_batch patterns; /* of both, for a pair */
    bsr_scatter_indices lists;
    bsri_scatter_shape shape;
    const void *row; /* of entries */
    bsri_view index;
    int64_t head[8];              /* that the transposed index must have */
    uint64_t *word;               /* bsr_exec.device_status */
    uint32_t *named;              /* bits of lines or tiles */
    int64_t words;                /* of them, for a pattern */
    int64_t rows, cols, roles, parts, work;
    int32_t operand, ascend, exact, reserved;
} bsri_dev_indices;

typedef struct bsri_dev_scatter_build {
    bsr_matrix a;
    const int32_t *order;
    int64_t *start; /* products before the i-th of the ordered rows */
    uint64_t *key;
    int64_t *array[4], need[4];
    int64_t n, split, rows, limit;
    int32_t format, reserved;
} bsri_dev_scatter_build;

#define BSRI_LAYOUT_LIST 48 /* ranges that travel with one launch */
typedef struct bsri_dev_layout {
    bsr_layout layout;
    uint8_t *mask;
    int64_t area, bytes;
    int64_t from[BSRI_LAYOUT_LIST], to[BSRI_LAYOUT_LIST];
    int64_t ranges, rest, rest_size; /* windows: from `rest` on they have rest_size */
    int32_t step, reserved;
} bsri_dev_layout;

#include "bsrsparse_kernels.cuh"

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-launch: the host side of the CUDA backend                                               */
/* ---------------------------------------------------------------------------------------------- */

/* Where a launch goes: the call's stream, its cap of the grid (0: none), its workspace; what may stop it. */
struct bsri_queue {
    bsr_stream stream;
    int32_t max_grid;
    void *workspace;
    bsri_gate gate;
    operator bsr_stream() const { return stream; }
};

/* 1-D grid, decoded in the kernel: sizes beyond a grid's limits, or the caller's, loop. */
static unsigned bsri_grid(int64_t work, const bsri_queue &queue) {
    return (unsigned)bsri_max(1, bsri_min(work, queue.max_grid > 0 ? queue.max_grid : INT64_C(1) << 30));
}

/* pdl: the kernel waits itself for the one before it, and may start before that ends. cluster: CTAs are launched in clusters of
   two, where their number is even: what both ask for at once the L2 reads once. */
static cudaError_t bsri_launch_function(const void *function, void *parameters, int64_t work, unsigned threads, int64_t shared,
                                        bsri_queue stream, int pdl, int cluster) {
    void *args[2] = {parameters, &stream.gate};
    cudaLaunchAttribute how[2] = {};
    cudaLaunchConfig_t config = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization, how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim.x = 2, how[1].val.clusterDim.y = how[1].val.clusterDim.z = 1;
    config.gridDim = dim3(bsri_grid(work, stream)), config.blockDim = dim3(threads);
    if (stream.gate) /* see bsri_gate; of very many CTAs a second layer would take a while to do nothing */
        pdl = 0, config.gridDim.z = 2, config.gridDim.x = (unsigned)bsri_min(config.gridDim.x, 4096);
    config.dynamicSmemBytes = (size_t)shared, config.stream = stream, config.attrs = how + !pdl;
    config.numAttrs = (pdl != 0) + (cluster && config.gridDim.x % 2 == 0);
    return cudaLaunchKernelExC(&config, function, args);
}

/* A kernel that is always the same one. */
template <class P>
static cudaError_t bsri_launch(void (*kernel)(const P, bsri_gate), const P &p, int64_t work, unsigned threads,
                               bsri_queue stream, int pdl) {
    return bsri_launch_function((const void *)kernel, (void *)&p, work, threads, 0, stream, pdl, 0);
}

/* What a chooser chose, with the parameters that it made. */
static cudaError_t bsri_launch_choice(const bsri_choice *c, void *parameters, bsri_queue stream) {
    char *const after = (char *)parameters + c->then_at;
    int i;
    cudaError_t e = bsri_launch_function(bsri_kernel(c->kernel), parameters, c->grid, (unsigned)c->threads, c->shared, stream,
                                         c->pdl, c->cluster);
    for (i = 0; i < 2 && e == cudaSuccess && c->then[i]; i++)
        e = bsri_launch_function(bsri_kernel(c->then[i]), after, c->then_grid, (unsigned)c->then_threads, 0, stream, 0, 0);
    return e;
}

static bsr_status bsri_cuda_status(const bsri_call *c, cudaError_t e) {
    if (e == cudaSuccess) return BSR_OK;
    (void)cudaGetLastError(); /* reported here: nothing stays behind for somebody else's check */
    bsri_record_cuda(c->flags & BSR_EXEC_NO_LOG ? NULL : c->ctx, c->exec->error, BSR_ITEM_CUDA, BSR_ARG_NONE, -1, 0, (int)e);
    return BSR_CUDA_ERROR;
}
/* A stream of another device: else kernels would run there, and fault. Handles up to 2 name default streams, the current
   device's. To ask would spoil a capture. */
static bsr_status bsri_cuda_stream(const bsri_call *c) {
#if CUDART_VERSION >= 12080
    const cudaStream_t stream = c->exec->stream;
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    int device = c->ctx->device;
    if (c->ctx->driver < 12080 || (uintptr_t)stream <= 2) return BSR_OK;
    BSRI_TRY(bsri_cuda_status(c, cudaStreamIsCapturing(stream, &capture)));
    if (capture != cudaStreamCaptureStatusNone) return BSR_OK;
    BSRI_TRY(bsri_cuda_status(c, cudaStreamGetDevice(stream, &device)));
    return device == c->ctx->device ? BSR_OK : bsri_fail_wanted(c, BSR_ITEM_CUDA_STREAM, BSR_ARG_EXEC, -1, device,
                                                                c->ctx->device);
#else
    (void)c;
    return BSR_OK;
#endif
}
/* Operations never change the current device: a wrong one is the caller's to set. Asked once a call, where there are others. */
static bsr_status bsri_cuda_device(const bsri_call *c) {
    int device = -1;
    if (c->ctx->devices == 1) return BSR_OK;
    BSRI_TRY(bsri_cuda_status(c, cudaGetDevice(&device)));
    if (device != c->ctx->device) return bsri_fail_wanted(c, BSR_ITEM_CUDA_DEVICE, BSR_ARG_CONTEXT, -1, device, c->ctx->device);
    return bsri_checking(c) ? bsri_cuda_stream(c) : BSR_OK;
}
static bsri_queue bsri_cuda_queue(const bsri_call *c) {
    bsri_queue q;
    q.stream = c->exec->stream, q.max_grid = c->exec->max_grid[0], q.workspace = c->exec->workspace;
    q.gate = c->watch->done ? c->exec->device_status : NULL;
    return q;
}

/* What the choosers are asked for: the caller's plan where it names anything, else the tuned row, else nothing in particular. */
typedef struct bsri_asking {
    bsr_plan plan;
    bsri_chooser s;
    int32_t source, match; /* bsr_plan_source; how the row was found */
} bsri_asking;
static void bsri_ask(const bsri_call *c, const bsr_tune_row *key, bsri_asking *a) {
    const bsr_exec *e = c->exec;
    bsr_tune_row row;
    memset(&a->plan, 0, sizeof a->plan);
    if (e->plan) a->plan = *e->plan;
    a->match = bsri_tune_row_for(c, key, &row), a->source = BSR_PLAN_HEURISTIC;
    if (!bsri_plan_open(&a->plan)) {
        a->source = BSR_PLAN_CALLER, a->match = 0;
    } else if (a->match) {
        a->source = BSR_PLAN_TABLE;
        a->plan.kernel = row.kernel, a->plan.tile_rows = row.tile_rows, a->plan.tile_cols = row.tile_cols;
        a->plan.split = row.split, a->plan.stages = row.stages, a->plan.order = row.order;
    }
    a->plan.workspace_bytes = e->query ? UINT64_MAX : e->workspace && (uintptr_t)e->workspace % 64 == 0 ? e->workspace_bytes : 0;
    a->s = bsri_chooser_for(&a->plan), a->s.workspace = e->workspace;
}
/* A row that can't run here is passed over: whether the choosers are to be asked once more. */
static int bsri_ask_again(bsri_asking *a) {
    const uint64_t offered = a->plan.workspace_bytes;
    void *const workspace = a->s.workspace;
    if (a->s.best.kernel || a->source != BSR_PLAN_TABLE) return 0;
    memset(&a->plan, 0, sizeof a->plan);
    a->plan.workspace_bytes = offered, a->source = BSR_PLAN_HEURISTIC, a->match = 0, a->s = bsri_chooser_for(&a->plan);
    a->s.workspace = workspace;
    return 1;
}
/* Does any table know a GPU of this architecture? 1 as well where there is no table with rows at all. */
static int bsri_tune_knows(const bsri_call *c) {
    const bsr_tune_table built_in = bsr_tune_built_in(), *table[2];
    int rows = 0, i;
    int32_t g;
    table[0] = c->exec->table ? c->exec->table : c->ctx->table, table[1] = &built_in;
    for (i = 0; i < 2; i++)
        for (g = 0; table[i] && g < table[i]->gpu_count; g++) {
            rows |= table[i]->row_count > 0;
            if (table[i]->gpus[g].arch == c->ctx->gpu.arch) return 1;
        }
    return !rows;
}
/* Once for each operation: no table was made on such a GPU. Once for each key: a tier that is slow for operands of 8 or 16 bits,
   or A^T without its index.
   A table has rows only where they gain: a call without one of its own is nothing to warn of. */
static void bsri_warn_defaults(const bsri_call *c, const bsr_tune_row *key, const bsr_plan *plan) {
    const int scans = (plan->flags & BSR_PLAN_SLOW_TRANSPOSE) != 0;
    const int slow = scans || (plan->kernel == BSRI_TIER_SIMT && plan->refused && plan->refused != BSR_WHY_DTYPE &&
                               bsr_dtype_size(key->dtype) < 4);
    char line[400];
    bsri_text t;
    if (!key->op || plan->source != BSR_PLAN_HEURISTIC || !bsri_warns(c) || (!slow && bsri_tune_knows(c))) return;
    if (!bsri_once(c->ctx, slow ? bsri_check_sum(bsri_check_sum(bsri_check_sum((uint32_t)key->op, key->dtype), key->block_rows),
                                                 scans ? -1 : plan->refused)
                                : (uint32_t)key->op))
        return;
    t.data = line, t.size = sizeof line, t.length = 0;
    if (slow) {
        bsr_plan_string(plan, line, sizeof line);
    } else {
        bsri_put(&t, bsr_op_name(key->op)), bsri_put(&t, " runs on untuned parameters: no table has rows for ");
        bsri_put(&t, c->ctx->gpu.name), bsri_put(&t, " (see bsr_tune)");
    }
    c->ctx->logger.func(BSR_LOG_WARN, BSR_ITEM_TUNE_DEFAULTS, line, c->ctx->logger.user);
}
/* Writes what was chosen into *plan. */
static bsr_status bsri_chosen(const bsri_call *c, const bsri_asking *a, const bsr_tune_row *key, bsr_plan *plan) {
    const bsri_choice *b = &a->s.best;
    const int32_t asked[] = {a->plan.kernel, a->plan.tile_rows, a->plan.tile_cols, a->plan.split, a->plan.stages, a->plan.order};
    if (!b->kernel && a->source == BSR_PLAN_CALLER) {
        BSRI_TRY(bsri_plan_begin(c));
        return bsri_fail(c, BSR_ITEM_PLAN_FIELD, BSR_ARG_EXEC, a->s.field, asked[a->s.field - BSRI_FIELD_KERNEL]);
    }
    if (!b->kernel) return bsri_fail(c, BSR_ITEM_NOT_COMPILED, BSR_ARG_NONE, -1, c->op);
    plan->kernel = b->tier, plan->instance = b->kernel, plan->reason = b->reason, plan->source = a->source;
    plan->tile_rows = b->tile_rows, plan->tile_cols = b->tile_cols, plan->split = b->split, plan->stages = b->stages;
    plan->order = b->order, plan->workspace_bytes = b->workspace;
    if (b->then[0] && b->workspace) plan->flags |= BSR_PLAN_CUTS_ROWS;
    plan->refused = a->plan.kernel ? 0 : a->s.refused[b->tier + 1], plan->match = a->match;
    bsri_warn_defaults(c, key, plan);
    return BSR_OK;
}
/* A call that computes nothing runs any plan. */
static void bsri_chosen_nothing(const bsri_call *c, bsr_plan *plan) {
    const bsr_plan *asked = c->exec->plan;
    plan->tile_rows = plan->tile_cols = 1, plan->reason = BSR_WHY_EMPTY;
    if (!asked) return;
    if (asked->kernel >= BSRI_TIER_SIMT && asked->kernel <= BSRI_TIER_WGMMA) plan->kernel = asked->kernel;
    if (asked->tile_rows > 0) plan->tile_rows = asked->tile_rows;
    if (asked->tile_cols > 0) plan->tile_cols = asked->tile_cols;
    if (asked->split > 0) plan->split = asked->split;
    if (asked->stages > 0) plan->stages = asked->stages;
    if (asked->order > 0) plan->order = asked->order;
}
/* A call with nothing to do. */
static bsr_status bsri_cuda_nothing(const bsri_call *c, bsr_plan *plan, int step) {
    int stop;
    if (step != BSRI_RUN_ONLY) bsri_chosen_nothing(c, plan);
    return bsri_settle(c, plan, step, &stop);
}
/* Digits of a sort whose keys are below `limit`, and its scratch; runs as in bsri_dev_sort. */
typedef struct bsri_cuda_sort {
    bsri_dev_sort s;
    int64_t at[8], passes, bits, total_bits;
    int dtype;
} bsri_cuda_sort;
/* The transposed index that a call is to build: >>cuda-matrices. */
typedef struct bsri_cuda_index {
    bsr_matrix of;
    bsri_cuda_sort sort;
    bsri_view view;
    char *buffer;
} bsri_cuda_index;
static int64_t bsri_cuda_index_plan(bsri_cuda_index *x, const bsr_matrix *m); /* bytes of scratch; -1: too many */
static bsr_status bsri_cuda_build_index(const bsri_call *c, const bsri_cuda_index *x);

/* Copies of a stage. */
static bsr_status bsri_cuda_copies(const bsri_call *c, const bsri_dev_copies *list) {
    int64_t work = 0;
    for (int i = 0; i < list->count; i++) work += list->copy[i].work;
    return work ? bsri_cuda_status(c, bsri_launch(bsri_copy_views, *list, work, 256, bsri_cuda_queue(c),
                                                  c->ctx->tier >= BSRI_TIER_WGMMA))
                : BSR_OK;
}
/* Asks for what runs best, of what is asked for. */
template <class F> static void bsri_ask_all(const bsri_call *c, const bsr_tune_row *key, bsri_asking *a, const F &choose) {
    bsri_ask(c, key, a);
    do choose(&a->s);
    while (bsri_ask_again(a));
}
/* Writes what was chosen into the plan, settles it and starts it. stage: what stands before and after it, or null. */
static bsr_status bsri_cuda_start(const bsri_call *c, const bsri_asking *a, const bsr_tune_row *key, bsr_plan *plan, int step,
                                  void *m, const bsri_stage *stage, const bsri_cuda_index *index) {
    int stop;
    if (step != BSRI_RUN_ONLY) {
        if (index) plan->flags &= ~BSR_PLAN_SLOW_TRANSPOSE;
        BSRI_TRY(bsri_chosen(c, a, key, plan));
        if (stage) plan->workspace_bytes = (uint64_t)stage->bytes, plan->flags |= stage->flags;
    }
    BSRI_TRY(bsri_settle(c, plan, step, &stop));
    if (stop) return BSR_OK;
    if (index) BSRI_TRY(bsri_cuda_build_index(c, index));
    if (stage) BSRI_TRY(bsri_cuda_copies(c, &stage->before));
    BSRI_TRY(bsri_cuda_status(c, bsri_launch_choice(&a->s.best, m, bsri_cuda_queue(c))));
    return stage ? bsri_cuda_copies(c, &stage->after) : BSR_OK;
}
template <class F>
static bsr_status bsri_cuda_choose(const bsri_call *c, const bsr_tune_row *key, bsr_plan *plan, int step, void *m,
                                   const F &choose) {
    bsri_asking a;
    bsri_ask_all(c, key, &a, choose);
    return bsri_cuda_start(c, &a, key, plan, step, m, NULL, NULL);
}
/* May a call be staged: 0 no, 1 yes, 2 its plan says so. A query without a workspace may use any; so may a plan that says so,
   which is refused later where there is too little. */
enum { BSRI_STAGED = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 }; /* BSR_PLAN_STAGES_DENSE to BSR_PLAN_BUILDS_INDEX */
static int bsri_stage_allowed(const bsri_call *c, uint64_t *offered) {
    const bsr_exec *e = c->exec;
    const uint32_t flags = e->plan ? e->plan->flags : 0;
    *offered = (e->query && !e->workspace) || flags & BSRI_STAGED ? UINT64_MAX
               : e->workspace && (uintptr_t)e->workspace % 64 == 0 ? e->workspace_bytes : 0;
    return !*offered || (flags && !(flags & BSRI_STAGED)) ? 0 : flags & BSRI_STAGED ? 2 : 1;
}
/* Where the workspace is taken to be: a query may come without one. */
static char *bsri_stage_base(const bsri_call *c) {
    return c->exec->workspace && (uintptr_t)c->exec->workspace % 64 == 0 ? (char *)c->exec->workspace : (char *)(uintptr_t)4096;
}
/* Is a stage within what is offered, and of the kinds that a plan asks for? */
static int bsri_stage_fits(const bsri_call *c, const bsri_stage *s, uint64_t offered) {
    const uint32_t asked = c->exec->plan ? c->exec->plan->flags & BSRI_STAGED : 0u;
    return (uint64_t)s->bytes <= offered && (!asked || c->op == BSR_OP_MATMUL_BACKWARD || asked == s->flags);
}

/* As bsri_dev_product has it. */
static int32_t bsri_cuda_precision(const bsri_call *c, int dtype) {
    return dtype != BSR_F32 ? 0 : c->exec->flags & BSR_EXEC_TF32 ? 1 : c->exec->flags & BSR_EXEC_TF32X3 ? 2 : 0;
}
/* A product as the kernels see it, and who takes it. built: its transposed index is of this call, so that it is waited for. */
static void bsri_cuda_ask_product(const bsri_call *c, const bsri_product *job, int built, const bsr_tune_row *key,
                                  bsri_dev_product *p, bsri_product_params *m, bsri_asking *a) {
    bsri_cuda_describe(job, p);
    p->constant = !built && (c->flags & BSR_EXEC_CONSTANT_MATRIX) != 0;
    p->precision = bsri_cuda_precision(c, p->b.dtype);
    if (!p->tiles || !p->width || !p->items || !p->br) return;
    bsri_ask_all(c, key, a, [&](bsri_chooser *s) { bsri_choose_product(c->ctx, p, job->compute, s, m); });
}
/* What the best stage takes, or INFINITY: there is none that is offered; *best is its way. The caller makes it again. */
static double bsri_cuda_best_stage(const bsri_call *c, const bsri_product *job, const bsr_tune_row *key, uint64_t offered,
                                   int64_t scratch, bsri_staged_product *t, bsri_product_params *m, int *best) {
    const uint32_t ways = bsri_stage_ways(job) | (scratch >= 0 ? 1u : 0u);
    double least = INFINITY, ns;
    for (int way = 0; way < BSRI_STAGE_WAYS; way++) {
        bsri_dev_product p;
        bsri_asking a;
        if (!(ways >> way & 1) || !bsri_stage_product_of(job, way, bsri_stage_base(c), scratch, t)) continue;
        if (!bsri_stage_fits(c, &t->s, offered)) continue;
        bsri_cuda_ask_product(c, &t->of.job, t->index.bytes > 0, key, &p, m, &a);
        if (!a.s.best.kernel || (a.s.best.tier == BSRI_TIER_SIMT && scratch < 0)) continue;
        ns = bsri_stage_ns(&t->s) + (a.s.best.tier == BSRI_TIER_SIMT ? bsri_plain_ns(&p, job->compute) : a.s.ns);
        ns += bsri_odd_out_ns(&t->of.job, &a.s.best);
        if (ns < least) least = ns, *best = way;
    }
    return least;
}
static bsr_status bsri_cuda_product(const bsri_call *c, const bsri_product *asked, const bsr_tune_row *key, bsr_plan *plan,
                                    int step) {
    bsri_product_views merged;
    const bsri_product *job = asked->a && !asked->scatter && bsri_merge_product(asked, &merged) ? &merged.job : asked;
    const int indexed = job->a && !job->scatter && job->trans && !job->a->transposed_index;
    bsri_staged_product t;
    bsri_cuda_index index;
    bsri_dev_product p;
    bsri_product_params m;
    bsri_asking a;
    uint64_t offered;
    double direct;
    int way = 0;
    bsri_cuda_ask_product(c, job, 0, key, &p, &m, &a);
    if (!p.tiles || !p.width || !p.items || !p.br) return bsri_cuda_nothing(c, plan, step);
    const int allowed = bsri_stage_allowed(c, &offered);
    if (allowed && p.kind < BSRI_LIST_SCATTER && p.reduce && p.a.nnz > 0 && p.alpha != 0.0 &&
        (indexed || bsri_stage_ways(job))) {
        const int64_t scratch = indexed ? bsri_cuda_index_plan(&index, job->a) : -1;
        direct = !a.s.best.kernel || allowed == 2 || scratch >= 0 ? INFINITY
                 : a.s.best.tier == BSRI_TIER_SIMT                     ? bsri_plain_ns(&p, job->compute)
                                                                       : a.s.ns + bsri_odd_out_ns(job, &a.s.best);
        if (bsri_cuda_best_stage(c, job, key, offered, scratch, &t, &m, &way) < direct) {
            bsri_stage_product_of(job, way, bsri_stage_base(c), scratch, &t);
            index.buffer = t.s.base + t.s.view_at, index.view = t.index;
            bsri_cuda_ask_product(c, &t.of.job, t.index.bytes > 0, key, &p, &m, &a);
            return bsri_cuda_start(c, &a, key, plan, step, &m, &t.s, t.index.bytes ? &index : NULL);
        }
        bsri_cuda_ask_product(c, job, 0, key, &p, &m, &a); /* the parameters that estimates of stages have overwritten */
    }
    return bsri_cuda_start(c, &a, key, plan, step, &m, NULL, NULL);
}

static int bsri_cuda_ask_sampled(const bsri_call *c, const bsri_sampled *job, const bsr_tune_row *key, bsri_dev_sampled *p,
                                 bsri_sampled_params *m, bsri_asking *a) {
    memset(p, 0, sizeof *p);
    p->out = *job->out, p->mat1 = *job->mat1, p->mat2 = *job->mat2, p->alpha = job->alpha, p->beta = job->beta;
    p->precision = bsri_cuda_precision(c, p->mat1.dtype);
    if (job->input && job->beta != 0) p->input = *job->input, p->has_input = 1, bsri_value_strides(job->input, p->i_strides);
    bsri_value_strides(job->out, p->o_strides), p->view = bsri_view_of(1, 1);
    p->whole = job->batch, p->out_batch = bsri_batch_of(job->out->batch_dims, job->out->batch);
    p->items = p->out_batch.count, p->reduce = bsri_reduce_count(&p->whole, &p->out_batch);
    if (!p->items || !job->out->nnz) return 0;
    bsri_ask_all(c, key, a, [&](bsri_chooser *s) { bsri_choose_sampled(c->ctx, p, job->compute, s, m); });
    return 1;
}
static bsr_status bsri_cuda_sampled(const bsri_call *c, const bsri_sampled *job, const bsr_tune_row *key, bsr_plan *plan,
                                    int step) {
    bsri_staged_sampled t;
    bsri_dev_sampled p;
    bsri_sampled_params m, staged;
    bsri_asking a, b;
    uint64_t offered;
    int whole;
    if (!bsri_cuda_ask_sampled(c, job, key, &p, &m, &a)) return bsri_cuda_nothing(c, plan, step);
    const int allowed = bsri_stage_allowed(c, &offered), odd = !bsri_mma_layout(job->mat1) || !bsri_mma_layout(job->mat2);
    const double direct = !a.s.best.kernel || allowed == 2 ? INFINITY
                          : a.s.best.tier == BSRI_TIER_SIMT ? bsri_plain_sampled_ns(&p, job->compute) : a.s.ns;
    if (!allowed || !p.reduce || p.alpha == 0.0 || !job->mat1->cols || (!odd && a.s.best.tier != BSRI_TIER_SIMT))
        return bsri_cuda_start(c, &a, key, plan, step, &m, NULL, NULL);
    for (whole = 0; whole < 2; whole++) {
        if (!bsri_stage_sampled_of(job, whole, bsri_stage_base(c), &t) || !bsri_stage_fits(c, &t.s, offered)) continue;
        bsri_cuda_ask_sampled(c, &t.job, key, &p, &staged, &b);
        if (b.s.best.tier > BSRI_TIER_SIMT && b.s.ns + bsri_stage_ns(&t.s) < direct)
            return bsri_cuda_start(c, &b, key, plan, step, &staged, &t.s, NULL);
    }
    return bsri_cuda_start(c, &a, key, plan, step, &m, NULL, NULL);
}

/* Tensor maps are made by the driver; looked up, so that a program needs no -lcuda. */
static cudaError_t bsri_cuda_encoder(bsr_context *ctx) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t e;
    ctx->tensor_map = NULL;
    if (ctx->cc_major < 9) return cudaSuccess;
#if CUDART_VERSION >= 12050
    e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &ctx->tensor_map, 12000, cudaEnableDefault, &found);
#else
    e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &ctx->tensor_map, cudaEnableDefault, &found);
#endif
    if (found != cudaDriverEntryPointSuccess) ctx->tensor_map = NULL;
    return e;
}

/* What tuned tables call the device. */
static void bsri_cuda_name(bsr_context *ctx, const char *name) {
    size_t i;
    memset(&ctx->gpu, 0, sizeof ctx->gpu);
    for (i = 0; i + 1 < sizeof ctx->gpu.name && name[i]; i++)
        ctx->gpu.name[i] = name[i] < ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\' || name[i] == '?' ? '_' : name[i];
    ctx->gpu.arch = ctx->cc_major * 10 + ctx->cc_minor, ctx->gpu.units = ctx->sm_count;
}
/* Does what cudaGetDeviceCount() says mean that there is no GPU here: no device, or no driver (an old one has a version)? */
static int bsri_cuda_absent(cudaError_t e) {
    int driver = 0;
    if (e == cudaErrorInsufficientDriver) return cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    return e == cudaErrorNoDevice || (int)e == 34; /* cudaErrorStubLibrary, which CUDA 11.0 has not yet */
}
/* Looks the device up and loads every kernel now, so that no operation does. On success *ctx is a CUDA context; on failure it is
   left alone and no error stays behind in the runtime. *absent: there is no GPU here. */
static cudaError_t bsri_cuda_open(bsr_context *ctx, int device_plus_one, int *absent) {
    struct cudaDeviceProp properties;
    bsr_context made = *ctx;
    int before = -1;
    cudaError_t e = cudaGetDeviceCount(&made.devices);
    if (e == cudaSuccess && !made.devices) e = cudaErrorNoDevice;
    *absent = bsri_cuda_absent(e);
    if (e == cudaSuccess) e = cudaGetDevice(&before);
    if (e == cudaSuccess && device_plus_one < 0) e = cudaErrorInvalidDevice;
    made.device = device_plus_one > 0 ? device_plus_one - 1 : before;
    if (e == cudaSuccess && made.device != before) e = cudaSetDevice(made.device);
    if (e == cudaSuccess) e = cudaFree(NULL); /* makes the primary context */
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&made.sm_count, cudaDevAttrMultiProcessorCount, made.device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&made.cc_major, cudaDevAttrComputeCapabilityMajor, made.device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&made.cc_minor, cudaDevAttrComputeCapabilityMinor, made.device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&made.smem_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, made.device);
    if (e == cudaSuccess) e = cudaDriverGetVersion(&made.driver);
    if (e == cudaSuccess) e = bsri_cuda_encoder(&made);
    if (e == cudaSuccess) e = cudaGetDeviceProperties(&properties, made.device);
    if (e == cudaSuccess) bsri_cuda_name(&made, properties.name);
    if (e == cudaSuccess) e = bsri_load_kernels(&made);
    if (before >= 0 && made.device != before) {
        const cudaError_t back = cudaSetDevice(before);
        if (e == cudaSuccess) e = back;
    }
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        return e;
    }
    made.backend = BSR_BACKEND_CUDA, made.isa = 0; /* the kernel is chosen call by call */
    *ctx = made;
    return cudaSuccess;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-rows: softmax and attention on the CUDA backend, host side                              */
/* ---------------------------------------------------------------------------------------------- */

/* Are values packed, and every piece of `bytes` of them aligned? */
static int bsri_cuda_packed(const bsr_matrix *m, int64_t bytes) {
    const int64_t es = (int64_t)bsr_dtype_size(m->dtype);
    int64_t s[3];
    int i;
    bsri_value_strides(m, s);
    if (s[2] != 1 || s[1] != m->block_cols || s[0] != m->block_rows * m->block_cols || (uintptr_t)m->values % (uintptr_t)bytes)
        return 0;
    for (i = 0; i < m->batch_dims; i++)
        if (m->batch[i] > 1 && m->values_batch_stride[i] * es % bytes) return 0;
    return 1;
}

/* Who works on which rows. As many lanes a row as hold a row of mean length and half as much again, `held` pieces each: rows that
   are longer are read twice. Where a block's row is shorter than 128 bytes, rows stand side by side in a warp: memory is read by
   lines. line: pieces of 128 bytes. */
static void bsri_cuda_softmax_teams(const bsri_call *c, int64_t pieces, int64_t held, int64_t line, bsri_dev_softmax *p) {
    const int64_t lanes = pieces + pieces / 2, br = p->x.block_rows;
    while (p->side < 3 && ((lanes <= (INT64_C(16) >> p->side) * held) || ((int64_t)p->chunks << p->side) < line) &&
           br % (2 << p->side) == 0)
        p->side++;
    while (p->side > 0 && lanes > (INT64_C(256) >> p->side) * held) p->side--;
    for (p->warps = 1; p->warps < 8 && lanes > (INT64_C(32) >> p->side) * p->warps * held; p->warps *= 2) {
    }
    while (p->near < 5 - p->side && p->chunks % (2 << p->near) == 0) p->near++;
    /* where a row starts is found once for `run` of them, as long as 40 warps a multiprocessor have three turns; for two nearly
       always (note N25) */
    for (p->run = 1; p->run < 8 && br % ((int64_t)p->run << (p->side + 1)) == 0 &&
                     (p->rows * p->warps) >> p->side >= (p->run == 1 ? 1 : 6 * p->run) * 40 * (int64_t)c->ctx->sm_count;
         p->run *= 2) {
    }
}

/* Those that are there: what is added first, then what forbids. */
static void bsri_cuda_softmax_biases(const bsr_softmax_options *o, bsri_dev_softmax *p) {
    const bsr_dense *all[3] = {o->relative_bias, o->key_padding_mask, o->attn_mask};
    const int mode[3] = {BSR_MASK_ADD, o->key_padding_mode, o->attn_mode};
    int i, m;
    for (m = BSR_MASK_ADD; m <= BSR_MASK_MUL; m++)
        for (i = 0; i < 3; i++) {
            const bsr_dense *d = all[i];
            const int64_t size = d ? (int64_t)bsr_dtype_size(d->dtype) : 0;
            if (!d || mode[i] != m) continue;
            p->bias[p->biased] = *d, p->mode[p->biased] = m;
            p->bias_row[p->biased] = d->rows == 1 ? 0 : d->row_stride * size;
            p->bias_col[p->biased++] = d->cols == 1 ? 0 : d->col_stride * size;
        }
}
/* May n neighbours of a row be read at once, of each bias? */
static int bsri_cuda_biases_fit(const bsri_dev_softmax *p, int64_t n) {
    int i;
    for (i = 0; i < p->biased; i++) {
        const bsr_dense *d = &p->bias[i];
        const int64_t size = (int64_t)bsr_dtype_size(d->dtype), unit = bsri_min(16, n * size) / size;
        if (p->bias_col[i] != size || p->bias_row[i] % (unit * size) || !bsri_dense_aligned(d, unit)) return 0;
    }
    return 1;
}
/* Packed rows: pieces of a block's row; whether their division is exact for every piece of a row. */
static int bsri_cuda_softmax_divides(const bsr_matrix *x, bsri_dev_softmax *p) {
    const int64_t pieces = 16 / (int64_t)bsr_dtype_size(x->dtype);
    const uint64_t chunks = (uint64_t)(x->block_cols / pieces), whole = UINT64_C(1) << 32;
    const uint64_t divide = (whole + chunks - 1) / chunks;
    int64_t elements;
    p->divide = (uint32_t)(divide % whole), p->block = (uint32_t)(x->block_rows * x->block_cols);
    return bsri_mul(x->cols, x->block_rows, &elements) && elements < INT64_C(0x7fffffff) &&
           (uint64_t)(x->cols / pieces) * (divide * chunks - whole) < whole;
}
/* Which lanes have which pieces; mean: elements of a row. */
static void bsri_cuda_softmax_shares(const bsri_call *c, int64_t mean, int way, int compute, bsri_dev_softmax *p) {
    const int64_t es = (int64_t)bsr_dtype_size(p->x.dtype), n = way == BSRI_FOR_SOFTMAX ? 1 : 16 / es;
    const int64_t held = way == BSRI_FOR_PACKED ? BSRI_ROW_HELD : BSRI_SOFTMAX_HELD / (n * (compute == BSR_F64 ? 8 : 4));
    p->chunks = (int32_t)(p->x.block_cols / n);
    bsri_cuda_softmax_teams(c, mean / n, held, 128 / (n * es), p);
    p->lanes = p->warps * (32 >> p->side);
    p->step_blocks = p->lanes / p->chunks, p->step_pieces = p->lanes % p->chunks, p->held = (int32_t)(BSRI_SOFTMAX_HELD / held);
    p->slots = (int32_t)bsri_max(1, bsri_min(held, bsri_ceil_div(mean / n + mean / n / 2, p->lanes)));
    p->work = bsri_ceil_div(p->rows, (int64_t)((p->warps == 8 ? 8 : 4) / p->warps << p->side) * p->run);
}

static bsr_status bsri_cuda_softmax(const bsri_call *c, const bsri_softmax *job, const bsr_tune_row *key, bsr_plan *plan) {
    const bsr_matrix *x = job->x;
    const bsr_softmax_options *o = job->options;
    const int64_t es = (int64_t)bsr_dtype_size(x->dtype), rows = bsri_block_rows(x);
    int64_t bytes, items, mean;
    bsri_dev_softmax p;
    int way = BSRI_FOR_SOFTMAX;
    memset(&p, 0, sizeof p);
    if (!x->nnz || !x->rows || !job->batch.count) return bsri_cuda_nothing(c, plan, BSRI_PLAN_AND_RUN);
    p.x = *x, p.out = *job->out, p.backward = job->dy != NULL, p.batch = job->batch, p.scale = job->scale;
    if (job->dy) p.dy = *job->dy, bsri_value_strides(job->dy, p.ds);
    bsri_value_strides(x, p.xs), bsri_value_strides(job->out, p.os);
    p.rows = job->batch.count * x->rows;
    if (o) bsri_cuda_softmax_biases(o, &p);
    bytes = x->block_cols * es;
    if (bytes % 16 == 0 && bsri_cuda_packed(x, 16) && bsri_cuda_packed(job->out, 16) &&
        (!job->dy || bsri_cuda_packed(job->dy, 16)) && (job->out->dtype == x->dtype || job->out->dtype == BSR_F32)) {
        const int plain = job->compute == BSR_F32 && !p.biased;
        if (plain && bsri_cuda_softmax_divides(x, &p)) way = BSRI_FOR_PACKED;
        else if (!plain && bsri_cuda_biases_fit(&p, 16 / es)) way = BSRI_FOR_PIECES;
    }
    items = x->flags & BSR_MATRIX_RAGGED ? bsri_max(1, bsri_pattern_count(x)) : 1;
    mean = x->nnz / (rows * items) * x->block_cols;
    bsri_cuda_softmax_shares(c, mean, way, job->compute, &p);
    return bsri_cuda_choose(c, key, plan, BSRI_PLAN_AND_RUN, &p,
                            [&](bsri_chooser *s) { bsri_choose_softmax(c->ctx, &p, job->compute, way, s); });
}

static bsr_status bsri_cuda_attention(const bsri_call *c, const bsri_attention *job, const bsr_tune_row *key, bsr_plan *plan) {
    const bsr_attention_options *o = job->options;
    bsri_dev_attention p;
    bsri_attention_params m;
    memset(&p, 0, sizeof p);
    p.mask = *job->mask, p.q = *job->q, p.k = *job->k, p.v = *job->v, p.out = *job->out, bsri_dense_set(&p.lse, job->lse);
    bsri_dense_set(&p.relative, o->relative_bias), bsri_dense_set(&p.padding, o->key_padding_mask);
    p.batch = job->batch, p.heads = job->heads, p.k_group = job->k_group, p.v_group = job->v_group;
    p.causal_offset = job->causal_offset, p.items = job->batch.count, p.block_rows = bsri_block_rows(job->mask),
    p.scale = job->scale, p.keep_scale = job->keep_scale;
    memcpy(p.ms, job->mask_strides, sizeof p.ms);
    p.seed = o->dropout_seed, p.user_data = o->user_data, p.flags = o->flags, p.padding_mode = o->key_padding_mode;
    p.score_function = o->score_function, p.mask_function = o->mask_function;
    p.drops = job->drop_below > 0, p.drop_last = p.drops ? (uint32_t)((uint64_t)ceil(job->drop_below) - 1) : 0;
    p.modifies = bsri_attention_modifies(job);
    if (!p.items || !p.q.rows || (!p.v.cols && !p.lse.data)) return bsri_cuda_nothing(c, plan, BSRI_PLAN_AND_RUN);
    return bsri_cuda_choose(c, key, plan, BSRI_PLAN_AND_RUN, &m,
                            [&](bsri_chooser *s) { bsri_choose_attention(c->ctx, &p, job->compute, s, &m); });
}

/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-indices: index arrays looked at in the stream, before an operation                      */
/* ---------------------------------------------------------------------------------------------- */

/* Launches with as many threads as there is work; nothing for no work. */
#define BSRI_CUDA_LAUNCH(c, kernel, p, work, threads, pdl) \
    BSRI_TRY((work) > 0 ? bsri_cuda_status(c, bsri_launch(kernel, p, work, threads, bsri_cuda_queue(c), pdl)) : BSR_OK)
#define BSRI_CUDA_RUN(c, kernel, p, work, threads) BSRI_CUDA_LAUNCH(c, kernel, p, work, threads, 0)
/* The same for kernels that wait themselves for the one before them, where the loaded code does. */
#define BSRI_CUDA_NEXT(c, kernel, p, work, threads) \
    BSRI_CUDA_LAUNCH(c, kernel, p, work, threads, (c)->ctx->tier >= BSRI_TIER_WGMMA)

static bsr_status bsri_cuda_zero(const bsri_call *c, void *data, int64_t bytes, const int64_t *head, int64_t heads, void *more,
                                 int64_t more_bytes) {
    bsri_dev_fill f;
    memset(&f, 0, sizeof f);
    f.data = (int64_t *)data, f.words = bytes / 8, f.more = (int64_t *)more, f.more_words = more_bytes / 8, f.heads = heads;
    if (heads) memcpy(f.head, head, (size_t)heads * 8);
    BSRI_CUDA_NEXT(c, bsri_fill_words, f, bsri_ceil_div(f.words + f.more_words, BSRI_CTA), BSRI_CTA);
    return BSR_OK;
}

/* How many patterns a subject has, and words of bits for each that tell what is named twice: 0 where nothing may be. */
static int64_t bsri_subject_words(const bsri_call *c, const bsri_subject *s, int64_t *patterns) {
    const bsri_scatter_shape *shape = &c->watch->shape;
    int64_t tiles;
    *patterns = 1;
    if (s->kind == BSRI_SUBJECT_LISTS) {
        if (((const bsr_scatter_indices *)s->other)->format == BSR_SCATTER_MM) return 0;
        if (!((const bsr_scatter_indices *)s->other)->r_count) return 0; /* nothing is named */
        return bsri_mul(shape->m / shape->ms, shape->n / shape->ns, &tiles) ? bsri_ceil_div(tiles, 32) : INT64_MAX;
    }
    if (s->kind != BSRI_SUBJECT_MATRIX || !s->m->schedule) return 0;
    *patterns = bsri_pattern_count(s->m); /* which way it orders stands on the device: room for either */
    return bsri_ceil_div(bsri_max(bsri_block_rows(s->m), bsri_block_cols(s->m)), 32);
}
/* Bytes of all bits, of one subject behind the other's. */
static bsr_status bsri_cuda_indices_bytes(const bsri_call *c, int64_t *bytes) {
    int64_t patterns, words;
    int i;
    for (i = 0, *bytes = 0; i < c->watch->count; i++) {
        words = bsri_subject_words(c, &c->watch->subject[i], &patterns);
        if (!bsri_mul(words, 4, &words) || !bsri_mul(patterns, words, &words) || !bsri_add(*bytes, words, bytes) ||
            *bytes > INT64_MAX - 8)
            return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, c->watch->subject[i].operand, -1, 0);
    }
    *bytes = (*bytes + 7) / 8 * 8; /* they are cleared by eights */
    return BSR_OK;
}
/* The parts that a pattern is cut into: some entries for each thread, until there are enough CTAs. */
static void bsri_indices_parts(bsri_dev_indices *x, int64_t entries) {
    const int64_t most = bsri_max(1, 2048 / bsri_max(1, x->patterns.count));
    x->parts = bsri_max(1, bsri_min(bsri_ceil_div(entries, 2048), most)), x->work = x->patterns.count * x->parts * x->roles;
}
static bsr_status bsri_cuda_indices_matrix(const bsri_call *c, const bsri_subject *s, bsri_dev_indices *x) {
    x->patterns = bsri_patterns(s->m, &x->m);
    if (s->m->transposed_index) {
        if (!bsri_transposed_layout(s->m, &x->index)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, s->operand, -1, 0);
        bsri_transposed_header(s->m, x->head);
    }
    x->roles = 1 + (s->m->transposed_index != NULL) + (s->m->schedule != NULL);
    bsri_indices_parts(x, bsri_max(s->m->nnz, bsri_max(x->rows, x->cols)));
    BSRI_CUDA_NEXT(c, bsri_look_at_matrix, *x, x->work, BSRI_CTA);
    return BSR_OK;
}
/* One array read as two types is two patterns. */
static int bsri_same_arrays(const bsr_matrix *a, const bsr_matrix *b) {
    int i;
    if (a->crow_indices != b->crow_indices || a->col_indices != b->col_indices || a->index_dtype != b->index_dtype ||
        a->batch_dims != b->batch_dims)
        return 0;
    for (i = 0; i < a->batch_dims; i++)
        if (a->batch[i] != b->batch[i] || a->crow_batch_stride[i] != b->crow_batch_stride[i] ||
            a->col_batch_stride[i] != b->col_batch_stride[i])
            return 0;
    return 1;
}
static bsr_status bsri_cuda_indices_pair(const bsri_call *c, const bsri_subject *s, bsri_dev_indices *x) {
    const bsr_matrix *other = (const bsr_matrix *)s->other;
    if (bsri_same_arrays(s->m, other)) return BSR_OK;
    x->patterns = bsri_patterns(s->m, &x->m), bsri_patterns(other, &x->other);
    bsri_batch_join(&x->patterns, x->other.batch_dims, x->other.batch);
    bsri_indices_parts(x, bsri_max(s->m->nnz, x->rows));
    BSRI_CUDA_NEXT(c, bsri_look_at_pair, *x, x->work, BSRI_CTA);
    return BSR_OK;
}
static bsr_status bsri_cuda_indices_lists(const bsri_call *c, const bsri_subject *s, bsri_dev_indices *x) {
    const bsr_scatter_indices *l = &x->lists;
    x->lists = *(const bsr_scatter_indices *)s->other, x->shape = c->watch->shape;
    bsri_indices_parts(x, bsri_max(bsri_max(l->c_count, l->r_count), bsri_max(l->p_count, l->q_count)));
    BSRI_CUDA_NEXT(c, bsri_look_at_lists, *x, x->work, BSRI_CTA);
    return BSR_OK;
}
static bsr_status bsri_cuda_subject(const bsri_call *c, const bsri_subject *s, char *bits) {
    bsri_dev_indices x;
    int64_t patterns;
    memset(&x, 0, sizeof x);
    x.word = c->exec->device_status, x.operand = s->operand, x.ascend = s->ascend, x.exact = s->exact;
    x.words = bsri_subject_words(c, s, &patterns), x.named = (uint32_t *)(void *)bits;
    x.patterns = bsri_batch_none(), x.roles = 1;
    if (s->m) x.m = *s->m, x.rows = bsri_block_rows(s->m), x.cols = bsri_block_cols(s->m);
    if (s->kind == BSRI_SUBJECT_MATRIX) return bsri_cuda_indices_matrix(c, s, &x);
    if (s->kind == BSRI_SUBJECT_PAIR) return bsri_cuda_indices_pair(c, s, &x);
    if (s->kind == BSRI_SUBJECT_LISTS) return bsri_cuda_indices_lists(c, s, &x);
    x.row = s->other, bsri_indices_parts(&x, s->m->nnz);
    BSRI_CUDA_NEXT(c, bsri_look_at_entries, x, x.work, BSRI_CTA);
    return BSR_OK;
}
/* The word is set, then a kernel looks at each subject. All that the call launches after them is stopped by the word. */
static bsr_status bsri_cuda_indices(const bsri_call *c) {
    char *bits = (char *)c->exec->workspace;
    int64_t bytes, patterns, none = 0;
    int i;
    BSRI_TRY(bsri_cuda_indices_bytes(c, &bytes));
    BSRI_TRY(bsri_cuda_zero(c, c->exec->device_status, 8, &none, 1, bytes ? bits : NULL, bytes));
    for (i = 0; i < c->watch->count; i++) {
        BSRI_TRY(bsri_cuda_subject(c, &c->watch->subject[i], bits));
        bits += 4 * bsri_subject_words(c, &c->watch->subject[i], &patterns) * patterns;
    }
    c->watch->done = 1;
    return BSR_OK;
}
#endif /* BSRI_CUDA */

#ifdef BSRI_CUDA
/* ---------------------------------------------------------------------------------------------- */
/* >>cuda-matrices: the matrix operations on the CUDA backend                                     */
/* ---------------------------------------------------------------------------------------------- */

/* Scratch is the call's workspace, cut as on the CPU; the plan says how much. What a conversion finds stays on the device:
   nnz keeps the capacity that the caller set, crow tells the true count, and what does not fit is not written. */
static bsr_status bsri_cuda_plan(const bsri_call *c, const bsri_cuts *cuts, int *stop) {
    bsr_plan p = bsri_plan_default(c);
    if (cuts->overflow) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_NONE, -1, 0);
    p.workspace_bytes = (uint64_t)cuts->bytes;
    return bsri_plan_settle(c, &p, stop);
}
static void *bsri_cuda_at(const bsri_call *c, int64_t at) { return (char *)c->exec->workspace + at; }

enum { BSRI_SORT_KEY, BSRI_SORT_OTHER_KEY, BSRI_SORT_ROW, BSRI_SORT_POSITION, BSRI_SORT_COUNTS, BSRI_SORT_TOTALS };
static int64_t bsri_bit_length(int64_t x) {
    int64_t n = 0;
    for (; x > 0; x /= 2) n++;
    return n;
}
static void bsri_cuda_sort_plan(bsri_cuda_sort *q, bsri_cuts *cuts, int dtype, int64_t runs, int64_t n, int ragged, int64_t limit,
                                int rows) {
    int64_t size = (int64_t)bsr_dtype_size(dtype), entries, counts;
    bsri_dev_sort *s = &q->s;
    memset(q, 0, sizeof *q);
    q->dtype = dtype;
    q->total_bits = bsri_max(1, bsri_bit_length(limit - 1)), q->passes = bsri_ceil_div(q->total_bits, 8);
    q->bits = bsri_ceil_div(q->total_bits, q->passes);
    s->n = n, s->ragged = ragged, s->digits = (int64_t)1 << q->bits;
    for (s->chunk_bits = 11; n >> s->chunk_bits > 1024;) s->chunk_bits++;
    s->chunk = (int64_t)1 << s->chunk_bits, s->chunks = bsri_max(1, bsri_ceil_div(n, s->chunk));
    if (!bsri_mul(runs, ragged ? 1 : s->chunks, &s->slots) || (ragged && !bsri_add(s->slots, n / s->chunk, &s->slots)) ||
        !bsri_mul(ragged ? (runs > 0) : runs, n, &entries) || !bsri_mul(s->slots, s->digits, &counts))
        cuts->overflow = 1, s->slots = entries = counts = 0;
    q->at[BSRI_SORT_KEY] = bsri_cut(cuts, entries, size),
    q->at[BSRI_SORT_OTHER_KEY] = bsri_cut(cuts, q->passes > 1 ? entries : 0, size);
    q->at[BSRI_SORT_ROW] = bsri_cut(cuts, rows && q->passes > 1 ? entries : 0, size);
    q->at[BSRI_SORT_POSITION] = bsri_cut(cuts, q->passes > 1 ? entries : 0, size);
    q->at[BSRI_SORT_COUNTS] = bsri_cut(cuts, counts, size), q->at[BSRI_SORT_TOTALS] = bsri_cut(cuts, runs * s->digits, size);
}
/* Sorts m's columns (key null) or the keys given; row and position (null: not wanted) receive what goes with the sorted keys,
   which are found in s.key_out afterwards. */
static bsr_status bsri_cuda_sort_run(const bsri_call *c, bsri_cuda_sort *q, const bsr_matrix *m, const bsri_batch *patterns,
                                     const void *key, void *row, void *position) {
    bsri_dev_sort *s = &q->s;
    int64_t pass, runs = patterns->count, slots = s->wanted ? bsri_min(s->slots, 16 * c->ctx->sm_count) : s->slots;
    if (m) s->m = *m;
    s->patterns = *patterns, s->key = key, s->row = s->position = NULL;
    s->counts = bsri_cuda_at(c, q->at[BSRI_SORT_COUNTS]), s->totals = bsri_cuda_at(c, q->at[BSRI_SORT_TOTALS]);
    for (pass = 0; pass < q->passes; pass++) {
        const int last =
            (int)((q->passes - pass) % 2); /* the last pass writes to the result's arrays, the one before elsewhere */
        s->key_out = bsri_cuda_at(c, q->at[last ? BSRI_SORT_KEY : BSRI_SORT_OTHER_KEY]);
        s->row_out = row ? (last ? row : bsri_cuda_at(c, q->at[BSRI_SORT_ROW])) : NULL;
        s->position_out = position ? (last ? position : bsri_cuda_at(c, q->at[BSRI_SORT_POSITION])) : NULL;
        s->shift = (int32_t)(pass * q->bits);
        if (q->dtype == BSR_I64) {
            BSRI_CUDA_NEXT(c, bsri_sort_count<int64_t>, *s, slots, BSRI_CTA);
            BSRI_CUDA_NEXT(c, bsri_sort_scan<int64_t>, *s, bsri_ceil_div(runs * s->digits, 8), BSRI_CTA);
            BSRI_CUDA_NEXT(c, bsri_sort_scatter<int64_t>, *s, slots, BSRI_CTA);
        } else {
            BSRI_CUDA_NEXT(c, bsri_sort_count<int32_t>, *s, slots, BSRI_CTA);
            BSRI_CUDA_NEXT(c, bsri_sort_scan<int32_t>, *s, bsri_ceil_div(runs * s->digits, 8), BSRI_CTA);
            BSRI_CUDA_NEXT(c, bsri_sort_scatter<int32_t>, *s, slots, BSRI_CTA);
        }
        s->key = s->key_out, s->row = s->row_out, s->position = s->position_out;
    }
    return BSR_OK;
}
/* One transposed index per pattern: ccol, and for each entry its row and position. */
static bsr_status bsri_cuda_transpose(const bsri_call *c, bsri_cuda_sort *q, const bsr_matrix *m, const bsri_batch *patterns,
                                      void *ccol, void *row, void *position) {
    BSRI_TRY(bsri_cuda_sort_run(c, q, m, patterns, NULL, row, position));
    q->s.ccol = ccol, q->s.cols = bsri_block_cols(m);
    if (q->dtype == BSR_I64) BSRI_CUDA_NEXT(c, bsri_sort_starts<int64_t>, q->s, q->s.slots, BSRI_CTA);
    else BSRI_CUDA_NEXT(c, bsri_sort_starts<int32_t>, q->s, q->s.slots, BSRI_CTA);
    return BSR_OK;
}
static void bsri_cuda_transpose_plan(bsri_cuda_sort *q, bsri_cuts *cuts, const bsr_matrix *m) {
    bsri_cuda_sort_plan(q, cuts, m->index_dtype, bsri_pattern_count(m), m->nnz, (m->flags & BSR_MATRIX_RAGGED) != 0,
                        bsri_block_cols(m), 1);
}

/* The transposed index of a call that lacks it, in its workspace behind the scratch that building takes. */
static int64_t bsri_cuda_index_plan(bsri_cuda_index *x, const bsr_matrix *m) {
    bsri_cuts cuts = {0, 0};
    x->of = *m;
    bsri_cuda_transpose_plan(&x->sort, &cuts, m);
    return cuts.overflow ? -1 : cuts.bytes;
}
static bsr_status bsri_cuda_build_index(const bsri_call *c, const bsri_cuda_index *x) {
    const bsr_matrix *m = &x->of;
    const bsri_view *v = &x->view;
    bsri_cuda_sort q = x->sort;
    bsr_matrix one;
    bsri_batch patterns = bsri_patterns(m, &one);
    bsri_dev_fill f;
    memset(&f, 0, sizeof f), bsri_transposed_header(m, f.head);
    f.data = (int64_t *)(void *)x->buffer, f.words = v->bytes / 8, f.heads = 8;
    if (patterns.count == 1) { /* the most common case is worth not writing twice */
        const bsri_item it = bsri_matrix_item(&patterns, 0, &one);
        f.spare[0] = v->at[1] / 8, f.spare[1] = v->at[2] / 8, f.spare_dtype = m->index_dtype;
        f.spare_count = bsri_at(it.crow, m->index_dtype, bsri_block_rows(m));
    }
    BSRI_CUDA_NEXT(c, bsri_fill_words, f, bsri_ceil_div(f.words, 1024), BSRI_CTA);
    return bsri_cuda_transpose(c, &q, &one, &patterns, x->buffer + v->at[0], x->buffer + v->at[1], x->buffer + v->at[2]);
}
static bsr_status bsri_cuda_transposed_index(const bsri_call *c, const bsr_matrix *m, const bsri_view *v, void *buffer) {
    bsri_cuts cuts = {0, 0};
    bsri_cuda_index x;
    int stop;
    x.of = *m, x.view = *v, x.buffer = (char *)buffer;
    bsri_cuda_transpose_plan(&x.sort, &cuts, m);
    BSRI_TRY(bsri_cuda_plan(c, &cuts, &stop));
    return stop ? BSR_OK : bsri_cuda_build_index(c, &x);
}

/* Order by rank: compares all pairs, which is soonest done for as many lines as patterns have. */
static bsr_status bsri_cuda_rank(const bsri_call *c, const bsri_dev_rank *r) {
    BSRI_CUDA_NEXT(c, bsri_rank_lines, *r, r->patterns * bsri_ceil_div(r->n, 32), BSRI_CTA);
    return BSR_OK;
}
enum { /* scratch of lines, as bsri_dev_lines names it */
    BSRI_CUDA_LINES_KEY,
    BSRI_CUDA_LINES_DISTINCT,
    BSRI_CUDA_LINES_REPEATS,
    BSRI_CUDA_LINES_ORDER,
    BSRI_CUDA_LINES_MEMBER,
    BSRI_CUDA_LINES_UNIONS,
    BSRI_CUDA_LINES_STAMP,
    BSRI_CUDA_LINES_BITS,
    BSRI_CUDA_LINES_START,
    BSRI_CUDA_LINES_LIST,
    BSRI_CUDA_LINES_PIECES
};
typedef struct bsri_cuda_lines {
    bsri_dev_lines l;
    bsri_cuda_sort sort;
    int64_t at[BSRI_CUDA_LINES_PIECES], repeats_bytes;
} bsri_cuda_lines;
static void bsri_cuda_lines_plan(bsri_cuda_lines *q, bsri_cuts *cuts, const bsr_matrix *m, int transposed, const bsri_view *v,
                                 int group) {
    bsri_dev_lines *l = &q->l;
    int64_t size = (int64_t)bsr_dtype_size(m->index_dtype), patterns = v->patterns, lines, groups;
    int64_t entries = m->flags & BSR_MATRIX_RAGGED ? m->nnz : m->nnz * patterns;
    memset(q, 0, sizeof *q);
    l->count = v->lines, l->others = l->limit = transposed ? bsri_block_rows(m) : bsri_block_cols(m), l->group = group;
    l->groups = v->groups, l->full = v->lines / group, l->each = m->flags & BSR_MATRIX_RAGGED ? 0 : m->nnz;
    /* the CPU's bound on the search, so that both choose the same */
    l->window = bsri_max(8, bsri_min((INT64_C(1) << 29) / (m->nnz / 8 * (group - 1) * 8 + 1), 256));
    if (group > 1 && l->others <= BSRI_GROUP_WORDS * 32 && l->others / 8 * l->count <= INT64_C(1) << 26)
        l->words = bsri_ceil_div(l->others, 32);
    l->small = l->words && l->words <= 32 && l->count <= bsri_min(BSRI_GROUP_LINES, l->window);
    if (!bsri_mul(patterns, l->count, &lines) || !bsri_mul(patterns, l->groups, &groups)) cuts->overflow = 1, lines = groups = 0;
    q->at[BSRI_CUDA_LINES_KEY] = bsri_cut(cuts, lines, 8), q->at[BSRI_CUDA_LINES_DISTINCT] = bsri_cut(cuts, lines, 4),
    q->repeats_bytes = bsri_ceil_div(patterns, 2) * 8;
    q->at[BSRI_CUDA_LINES_REPEATS] = bsri_cut(cuts, q->repeats_bytes, 1);
    if (group > 1) {
        q->at[BSRI_CUDA_LINES_ORDER] = bsri_cut(cuts, lines, 4),
        q->at[BSRI_CUDA_LINES_MEMBER] = bsri_cut(cuts, groups * group, 4),
        q->at[BSRI_CUDA_LINES_UNIONS] = bsri_cut(cuts, groups, 4);
        q->at[BSRI_CUDA_LINES_STAMP] = bsri_cut(cuts, patterns, 4 * l->others),
        q->at[BSRI_CUDA_LINES_BITS] = bsri_cut(cuts, lines, 4 * l->words);
    }
    if (!transposed) return;
    q->at[BSRI_CUDA_LINES_START] = bsri_cut(cuts, lines + patterns, size),
    q->at[BSRI_CUDA_LINES_LIST] = bsri_cut(cuts, entries, size);
    bsri_cuda_transpose_plan(&q->sort, cuts, m);
}
static bsr_status bsri_cuda_lines_load(const bsri_call *c, bsri_cuda_lines *q, const bsr_matrix *m, const bsri_batch *patterns,
                                       int transposed) {
    bsri_dev_lines *l = &q->l;
    l->m = *m, l->patterns = *patterns;
    l->key = (uint64_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_KEY]),
    l->distinct = (int32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_DISTINCT]);
    l->repeats = (uint32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_REPEATS]),
    l->order = (int32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_ORDER]);
    l->member = (int32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_MEMBER]),
    l->unions = (int32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_UNIONS]);
    l->stamp = (int32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_STAMP]),
    l->bits = (uint32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_BITS]);
    if (!transposed) return BSR_OK;
    l->start = bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_START]), l->list = bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_LIST]);
    return bsri_cuda_transpose(c, &q->sort, m, patterns, bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_START]),
                               bsri_cuda_at(c, q->at[BSRI_CUDA_LINES_LIST]), NULL);
}
static bsr_status bsri_cuda_schedule(const bsri_call *c, const bsr_matrix *m, int group, int transposed, const bsri_view *v,
                                     void *buffer) {
    bsri_cuts cuts = {0, 0};
    bsri_cuda_lines q;
    bsri_dev_lines *l = &q.l;
    bsri_dev_rank r;
    bsr_matrix one;
    bsri_batch patterns = bsri_patterns(m, &one);
    int64_t head[8];
    unsigned threads = (unsigned)bsri_max(1, bsri_ceil_div(bsri_min(v->lines, BSRI_GROUP_LINES), 32)) * 32;
    int stop;
    bsri_cuda_lines_plan(&q, &cuts, m, transposed, v, group);
    BSRI_TRY(bsri_cuda_plan(c, &cuts, &stop));
    if (stop) return BSR_OK;
    bsri_schedule_header(m, group, transposed, head);
    BSRI_TRY(bsri_cuda_zero(c, buffer, v->bytes, head, 8, bsri_cuda_at(c, q.at[BSRI_CUDA_LINES_REPEATS]), q.repeats_bytes));
    BSRI_TRY(bsri_cuda_lines_load(c, &q, &one, &patterns, transposed));
    BSRI_CUDA_NEXT(c, bsri_lines_measure, *l, bsri_ceil_div(patterns.count * l->count, BSRI_CTA_WARPS), BSRI_CTA);
    memset(&r, 0, sizeof r);
    r.key = l->key, r.patterns = patterns.count, r.n = r.full = l->count, r.group = 1, r.order = l->order;
    if (group > 1) {
        BSRI_TRY(bsri_cuda_rank(c, &r));
        if (l->small && l->words <= 8) BSRI_CUDA_RUN(c, bsri_group_bits<8>, *l, patterns.count, threads);
        else if (l->small) BSRI_CUDA_RUN(c, bsri_group_bits<32>, *l, patterns.count, threads);
        BSRI_CUDA_RUN(c, bsri_group_lists, *l, patterns.count, BSRI_CTA_WIDE);
        r.n = l->groups, r.full = l->full, r.group = group, r.member = l->member, r.length = l->unions;
    } else {
        r.length = l->distinct;
    }
    r.order = (int32_t *)((char *)buffer + v->at[0]), r.lengths = (int32_t *)((char *)buffer + v->at[1]);
    BSRI_TRY(bsri_cuda_rank(c, &r));
    r.tall = (int64_t *)buffer + 7;
    BSRI_CUDA_NEXT(c, bsri_rank_tall, r, patterns.count > 0, BSRI_CTA_WIDE);
    return BSR_OK;
}

/* The one operation that waits for the device: its answer is the host's. */
static bsr_status bsri_cuda_validate_wait(const bsri_call *c, const bsri_dev_validate *v, int64_t found[5]) {
    BSRI_CUDA_RUN(c, bsri_validate_describe, *v, 1, 1);
    BSRI_TRY(bsri_cuda_status(c, cudaMemcpyAsync(found, v->record, 40, cudaMemcpyDeviceToHost, c->exec->stream)));
    return bsri_cuda_status(c, cudaStreamSynchronize(c->exec->stream));
}
static bsr_status bsri_cuda_validate_stage(const bsri_call *c, bsri_dev_validate *v, int stage, int64_t patterns, int64_t each) {
    v->stage = stage, v->parts = bsri_max(1, bsri_min(bsri_ceil_div(each, 1024), bsri_max(1, 65536 / bsri_max(1, patterns))));
    v->work = patterns * v->parts;
    BSRI_CUDA_RUN(c, bsri_validate_stage, *v, v->work, BSRI_CTA);
    return BSR_OK;
}
/* Both headers, eight words each: of the transposed index, of the schedule. */
static bsr_status bsri_cuda_headers(const bsri_call *c, const bsr_matrix *m, int64_t *have) {
    const void *const view[2] = {m->transposed_index, m->schedule};
    int i;
    memset(have, 0, 2 * BSRI_VIEW_HEADER);
    for (i = 0; i < 2; i++)
        if (view[i])
            BSRI_TRY(bsri_cuda_status(c, cudaMemcpyAsync(have + 8 * i, view[i], BSRI_VIEW_HEADER, cudaMemcpyDeviceToHost,
                                                         c->exec->stream)));
    return bsri_cuda_status(c, cudaStreamSynchronize(c->exec->stream));
}
/* What a schedule says of unions, and how many are tall; s: its header. */
static bsr_status bsri_cuda_validate_unions(const bsri_call *c, bsri_dev_validate *v, bsri_cuda_lines *q, const int64_t *s) {
    const bsr_matrix *m = &v->m;
    bsri_dev_rank r;
    BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_UNIONS, v->patterns.count, v->schedule.groups * v->group));
    if (s[6]) BSRI_TRY(bsri_cuda_lines_load(c, q, m, &v->patterns, 1));
    for (v->pattern = 0; v->pattern < v->patterns.count; v->pattern++) {
        const bsri_item it = bsri_matrix_item(&v->patterns, v->pattern, m);
        v->start = it.crow, v->list = it.col;
        if (s[6]) {
            v->start = bsri_at(q->l.start, m->index_dtype, v->pattern * (v->lines + 1));
            v->list = bsri_at(q->l.list, m->index_dtype, m->flags & BSR_MATRIX_RAGGED ? 0 : v->pattern * m->nnz);
        }
        BSRI_CUDA_RUN(c, bsri_validate_unions, *v, bsri_ceil_div(v->schedule.groups, BSRI_CTA_WARPS), BSRI_CTA);
    }
    memset(&r, 0, sizeof r);
    r.n = v->schedule.groups, r.lengths = (int32_t *)((char *)m->schedule + v->schedule.at[1]);
    r.tall = (int64_t *)v->record + 4;
    BSRI_CUDA_NEXT(c, bsri_rank_tall, r, v->patterns.count > 0, BSRI_CTA_WIDE);
    return BSR_OK;
}
/* In the order in which the CPU looks; late: what is wrong with the schedule's header, where all before it is to be looked at. */
static bsr_status bsri_cuda_validate_views(const bsri_call *c, bsri_dev_validate *v, bsri_cuda_lines *q, int64_t seen_at) {
    const bsr_matrix *m = &v->m;
    int64_t have[16], found[5], patterns = v->patterns.count;
    const int64_t *t = have, *s = have + 8;
    int bad, late = -1;
    BSRI_TRY(bsri_cuda_headers(c, m, have));
    if (m->transposed_index) {
        bad = bsri_transposed_differs(m, t);
        if (bad >= 0) return bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, bad, t[bad]);
        if (!bsri_transposed_layout(m, &v->index)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
        BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_CCOL, patterns, v->cols + 1));
        BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_ENTRIES, 1, v->index.entries * v->index.patterns));
    }
    if (m->schedule) {
        late = bsri_schedule_differs(m, s);
        if (late < 0 && !bsri_schedule_layout(m, (int)s[4], s[6] != 0, &v->schedule))
            return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    }
    if (m->schedule && late < 0) {
        v->group = s[4], v->lines = v->schedule.lines, v->seen = (uint32_t *)bsri_cuda_at(c, seen_at);
        BSRI_TRY(bsri_cuda_zero(c, v->seen, (patterns * (v->lines + 1) + 1) / 2 * 8, NULL, 0, NULL, 0));
        BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_MARK, patterns, v->schedule.groups * v->group));
        BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_ORDER, patterns, v->schedule.groups * v->group));
    }
    if (m->transposed_index && late < 0)
        BSRI_TRY(bsri_cuda_validate_stage(c, v, BSRI_STAGE_TRANSPOSED, patterns, v->cols + 1 + m->nnz));
    if (m->schedule && late < 0) {
        if (s[4] != 1 && s[4] != 2 && s[4] != 4 && s[4] != 8) late = 12;
        else if (s[6] != 0 && s[6] != 1) late = 14;
        else if (s[5] != v->schedule.groups) late = 13;
    }
    if (m->schedule && late < 0) BSRI_TRY(bsri_cuda_validate_unions(c, v, q, s));
    BSRI_TRY(bsri_cuda_validate_wait(c, v, found));
    if (found[1]) return bsri_fail(c, (int)found[1], BSR_ARG_MATRIX, found[2], found[3]);
    if (m->schedule && late < 0 && s[7] != found[4]) late = 15;
    return late < 0 ? BSR_OK : bsri_fail(c, BSR_ITEM_VIEW_HEADER, BSR_ARG_MATRIX, late, late < 8 ? s[late] : s[late - 8]);
}
static bsr_status bsri_cuda_validate(const bsri_call *c, const bsr_matrix *m) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    bsri_cuts cuts = {0, 0};
    bsri_cuda_lines q;
    bsri_dev_validate v;
    bsri_view place;
    int64_t none = -1, found[5], at = bsri_cut(&cuts, 64, 1), seen_at = 0, lines;
    int stop;
    memset(&v, 0, sizeof v);
    v.patterns = bsri_patterns(m, &v.m), v.rows = bsri_block_rows(m), v.cols = bsri_block_cols(m);
    if (m->schedule) { /* which way it orders stands on the device: room for either */
        if (!bsri_schedule_layout(m, 1, 1, &place)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
        bsri_cuda_lines_plan(&q, &cuts, m, 1, &place, 1);
        if (!bsri_mul(place.patterns, bsri_max(v.rows, v.cols) + 2, &lines)) cuts.overflow = 1, lines = 0;
        seen_at = bsri_cut(&cuts, lines, 4);
    }
    BSRI_TRY(bsri_cuda_plan(c, &cuts, &stop));
    if (stop) return BSR_OK;
    BSRI_TRY(bsri_cuda_status(c, cudaStreamIsCapturing(c->exec->stream, &capture)));
    if (capture != cudaStreamCaptureStatusNone) return bsri_fail(c, BSR_ITEM_CUDA_CAPTURING, BSR_ARG_EXEC, -1, 0);
    v.record = (uint64_t *)bsri_cuda_at(c, at);
    BSRI_TRY(bsri_cuda_zero(c, v.record, 64, &none, 1, NULL, 0));
    BSRI_TRY(bsri_cuda_validate_stage(c, &v, BSRI_STAGE_STRUCTURE,
                                      v.patterns.count + (v.patterns.count && (m->flags & BSR_MATRIX_RAGGED)),
                                      v.rows + 2 + m->nnz));
    BSRI_TRY(bsri_cuda_validate_wait(c, &v, found));
    if (found[1]) return bsri_fail(c, (int)found[1], BSR_ARG_MATRIX, found[2], found[3]);
    return m->transposed_index || m->schedule ? bsri_cuda_validate_views(c, &v, &q, seen_at) : BSR_OK;
}

/* 1: rows of a dense matrix, 2: its columns consist of aligned pieces; 0: neither. A piece is 16 bytes, or 8 elements if those
   are fewer. The last may be cut. */
static int bsri_cuda_aligned(const bsr_dense *d) {
    const int64_t es = (int64_t)bsr_dtype_size(d->dtype), n = bsri_min(8, 16 / es);
    int i;
    if ((uintptr_t)d->data % (uintptr_t)(n * es)) return 0;
    for (i = 0; i < d->batch_dims; i++)
        if (d->batch[i] > 1 && d->batch_stride[i] % n) return 0;
    if (d->col_stride == 1 && (d->row_stride % n == 0 || d->rows == 1)) return 1;
    return d->row_stride == 1 && (d->col_stride % n == 0 || d->cols == 1) ? 2 : 0;
}
/* The same where no piece is cut, and each stands in one block. */
static int bsri_cuda_pieces(const bsr_dense *d, int64_t block_rows, int64_t block_cols) {
    const int64_t n = bsri_min(8, 16 / (int64_t)bsr_dtype_size(d->dtype));
    switch (bsri_cuda_aligned(d)) {
        case 1: return block_cols % n == 0 && d->cols % n == 0 ? 1 : 0;
        case 2: return block_rows % n == 0 && d->rows % n == 0 ? 2 : 0;
        default: return 0;
    }
}
/* Do neighbours in memory stand in a row? */
static int bsri_cuda_by_rows(const bsr_dense *d) { return d->rows == 1 || d->col_stride <= d->row_stride; }
/* Tiles of a dense matrix that kernels of conversions go through: rows, and block rows where several fit; block columns, of which
   so many are a unit. most: places of a tile. */
typedef struct bsri_tiles {
    int64_t height, group, panel;
} bsri_tiles;
static bsri_tiles bsri_cuda_tiles(const bsri_call *c, const bsr_dense *d, const bsr_matrix *m, int64_t items, int64_t most,
                                  int64_t unit) {
    const int64_t es = (int64_t)bsr_dtype_size(d->dtype), br = m->block_rows, rows = bsri_block_rows(m),
                  cols = bsri_block_cols(m);
    const int by_rows = bsri_cuda_by_rows(d);
    const int64_t line = by_rows ? 4096 * bsri_max(1, 16 / br) : 256, enough = 8 * c->ctx->sm_count;
    bsri_tiles t;
    t.panel = bsri_ceil_div(bsri_max(1, line / es / m->block_cols), unit) * unit;
    t.panel = bsri_max(unit, bsri_min(t.panel, bsri_ceil_div(cols, unit) * unit));
    t.height = bsri_min(br, by_rows ? 32 : 128 / bsri_min(es, 2)), t.group = 1; /* a column's part: a line of the L2 or more */
    if (!by_rows && br < 128 / es) {
        t.group = bsri_ceil_div(128 / es, br * 8) * 8;
        t.group = bsri_max(1, bsri_min(bsri_min(t.group, rows), most / unit)), t.height = t.group * br;
    }
    t.panel = bsri_min(t.panel, most / t.group / unit * unit);
    while (by_rows && t.height > 8 && t.height % 2 == 0 &&
           bsri_ceil_div(br, t.height) * bsri_ceil_div(cols, t.panel) * items < bsri_ceil_div(enough, bsri_max(1, rows)))
        t.height /= 2;
    return t;
}
static bsr_status bsri_cuda_to_dense(const bsri_call *c, const bsr_matrix *m, const bsr_dense *out) {
    bsri_cuts none = {0, 0};
    bsri_dev_expand x;
    bsri_tiles t;
    int stop;
    BSRI_TRY(bsri_cuda_plan(c, &none, &stop));
    if (stop) return BSR_OK;
    memset(&x, 0, sizeof x);
    x.m = *m, x.out = bsri_dense_used(out), x.batch = bsri_batch_of(out->batch_dims, out->batch), x.rows = bsri_block_rows(m),
    x.cols = bsri_block_cols(m);
    bsri_value_strides(m, x.stride);
    t = bsri_cuda_tiles(c, &x.out, m, x.batch.count, BSRI_EXPAND_PANEL, 1), x.by_rows = bsri_cuda_by_rows(&x.out);
    x.pieces = out->dtype == m->dtype ? bsri_cuda_pieces(&x.out, m->block_rows, m->block_cols) : 0;
    if (x.pieces) /* within a block row */
        t.group = 1, t.height = bsri_min(bsri_min(t.height, m->block_rows), x.by_rows ? 32 : 64);
    x.height = (int32_t)t.height, x.group = (int32_t)t.group, x.panel = t.panel;
    x.panels = bsri_ceil_div(x.cols, x.panel), x.subs = t.group > 1 ? 1 : bsri_ceil_div(m->block_rows, x.height);
    x.groups = bsri_ceil_div(x.rows, t.group), x.work = x.batch.count * x.groups * x.subs;
    /* columns are looked through once for several panels where there are enough rows */
    x.splits =
        bsri_min(x.panels, bsri_max(bsri_ceil_div(x.panels, 16), bsri_ceil_div(c->ctx->sm_count * 16, bsri_max(1, x.work))));
    x.work *= x.splits;
    x.whole = bsri_cuda_packed(m, 16) && m->block_cols % bsri_min(8, 16 / (int64_t)bsr_dtype_size(m->dtype)) == 0;
    BSRI_CUDA_NEXT(c, bsri_expand_panel, x, x.work, BSRI_CTA);
    return BSR_OK;
}

/* The device's view of a builder, and its scratch. */
enum { /* pieces of it */
       BSRI_CUDA_BUILD_BITS,
       BSRI_CUDA_BUILD_FIRST,
       BSRI_CUDA_BUILD_SUMS,
       BSRI_CUDA_BUILD_ORIGIN,
       BSRI_CUDA_BUILD_MORE, /* of one conversion */
       BSRI_CUDA_BUILD_PIECES = BSRI_CUDA_BUILD_MORE + 4
};
typedef struct bsri_cuda_build {
    bsri_dev_build d;
    bsri_cuts cuts;
    int64_t at[BSRI_CUDA_BUILD_PIECES];
} bsri_cuda_build;
/* Lists of counts, which all builders have: lines of each part. */
static int64_t bsri_cuda_build_lines(bsri_dev_build *d, bsri_cuts *cuts) {
    int64_t lines;
    if (!bsri_mul(d->batch.count, d->rows, &lines) || !bsri_mul(lines, d->segments, &lines)) cuts->overflow = 1, lines = 0;
    d->parts = d->ragged ? bsri_min(d->batch.count, 1) : d->batch.count;
    d->each = d->parts ? lines / d->parts : 0, d->chunks = bsri_max(1, bsri_ceil_div(d->each, BSRI_CHUNK_LINES));
    return lines;
}
/* by_rows: bits of each block row start a word. */
static void bsri_cuda_build_plan(bsri_cuda_build *q, const bsri_build *b, const bsr_matrix *m, int by_rows) {
    bsri_dev_build *d = &q->d;
    int64_t words, lines, origins;
    int i;
    memset(q, 0, sizeof *q);
    d->to = b->to, d->to.values = b->with_values ? m->values : NULL, d->batch = bsri_batch_of(m->batch_dims, m->batch);
    d->rows = b->rows, d->cols = b->cols, d->capacity = b->count_only ? 0 : m->nnz,
    d->ragged = (m->flags & BSR_MATRIX_RAGGED) != 0;
    for (i = 0; i < 3; i++) d->stride[i] = b->value_stride[i];
    if (b->dense) d->dense = bsri_dense_used(b->dense);
    d->per_width = 1.0 / (double)m->block_cols, d->per_height = 1.0 / (double)m->block_rows;
    d->per_area = d->per_width * d->per_height;
    d->mask = b->mask, d->norm_kind = b->norm_kind, d->segments = bsri_max(1, bsri_ceil_div(b->cols, BSRI_SEGMENT));
    d->origin_dtype = m->index_dtype;
    if (b->sparse) {
        d->sparse = *b->sparse, bsri_value_strides(b->sparse, d->sparse_stride);
        d->item_words = bsri_ceil_div(b->sparse->nnz, 32), d->candidates = b->sparse->nnz, d->segments = 1;
        if (b->sparse->index_dtype == BSR_I64) d->origin_dtype = BSR_I64;
    } else {
        d->row_words = by_rows ? bsri_ceil_div(b->cols, 32) : 0;
        if (!bsri_mul(b->rows, d->row_words, &d->item_words) || !bsri_mul(b->rows, b->cols, &d->candidates)) q->cuts.overflow = 1;
        if (!by_rows) d->item_words = bsri_ceil_div(d->candidates, 32);
    }
    lines = bsri_cuda_build_lines(d, &q->cuts);
    if (q->cuts.overflow || !bsri_mul(d->batch.count, d->item_words, &words)) q->cuts.overflow = 1, words = lines = 0;
    if (!bsri_mul(d->ragged ? 1 : d->batch.count, b->with_values ? d->capacity : 0, &origins)) q->cuts.overflow = 1, origins = 0;
    q->at[BSRI_CUDA_BUILD_BITS] = bsri_cut(&q->cuts, words, 4), q->at[BSRI_CUDA_BUILD_FIRST] = bsri_cut(&q->cuts, lines, 8);
    q->at[BSRI_CUDA_BUILD_SUMS] = bsri_cut(&q->cuts, d->chunks > 1 ? d->parts * d->chunks : 0, 8);
    q->at[BSRI_CUDA_BUILD_ORIGIN] = bsri_cut(&q->cuts, origins, (int64_t)bsr_dtype_size(d->origin_dtype));
}
static void bsri_cuda_build_place(const bsri_call *c, bsri_cuda_build *q) {
    bsri_dev_build *d = &q->d;
    d->bits = (uint32_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_BUILD_BITS]);
    d->first = (int64_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_BUILD_FIRST]);
    d->sums = (int64_t *)bsri_cuda_at(c, q->at[BSRI_CUDA_BUILD_SUMS]);
    d->origin = d->to.values ? bsri_cuda_at(c, q->at[BSRI_CUDA_BUILD_ORIGIN]) : NULL;
}
/* From counts of lines to their positions, and crow. */
static bsr_status bsri_cuda_build_positions(const bsri_call *c, const bsri_dev_build *d) {
    const int64_t work = d->parts * d->chunks, items = d->batch.count;
    if (d->chunks > 1) {
        BSRI_CUDA_NEXT(c, bsri_build_sums, *d, work, BSRI_CTA_WIDE);
        BSRI_CUDA_NEXT(c, bsri_build_before, *d, d->parts, BSRI_CTA_WIDE);
    }
    if (d->rows) BSRI_CUDA_NEXT(c, bsri_build_crow, *d, work, BSRI_CTA_WIDE);
    else BSRI_CUDA_NEXT(c, bsri_build_no_rows, *d, bsri_ceil_div(items, BSRI_CTA), BSRI_CTA);
    return BSR_OK;
}
/* What the caller is told. */
static void bsri_cuda_build_tell(const bsri_build *b, bsr_matrix *m) {
    void *const values = m->values;
    const int64_t capacity = m->nnz;
    *m = b->to, m->values = values, m->nnz = capacity;
}
/* From bits to crow and columns. */
static bsr_status bsri_cuda_build_pattern(const bsri_call *c, const bsri_dev_build *d) {
    const int64_t lines = d->batch.count * d->rows * d->segments;
    BSRI_CUDA_NEXT(c, bsri_build_counts, *d, bsri_ceil_div(lines, 8), BSRI_CTA);
    BSRI_TRY(bsri_cuda_build_positions(c, d));
    if (d->capacity || d->rank) BSRI_CUDA_NEXT(c, bsri_build_cols, *d, bsri_ceil_div(lines, 8), BSRI_CTA);
    return BSR_OK;
}
/* From bits to crow, columns and values. */
static bsr_status bsri_cuda_build_finish(const bsri_call *c, const bsri_build *b, bsri_cuda_build *q, bsr_matrix *m) {
    bsri_dev_build *d = &q->d;
    const int64_t area = m->block_rows * m->block_cols, n = bsri_min(8, 16 / (int64_t)bsr_dtype_size(m->dtype));
    BSRI_TRY(bsri_cuda_build_pattern(c, d));
    if (d->capacity && d->rows && b->with_values) {
        d->whole = b->dense && d->dense.dtype == m->dtype && m->block_cols % n == 0 && d->dense.cols % n == 0 &&
                   bsri_cuda_packed(m, 16) && bsri_cuda_aligned(&d->dense);
        BSRI_CUDA_NEXT(c, bsri_build_values, *d, bsri_ceil_div(d->capacity * area, 1024 * (d->whole ? n : 1)) * d->batch.count,
                       256);
    }
    bsri_cuda_build_tell(b, m);
    return BSR_OK;
}
static bsr_status bsri_cuda_from_dense(const bsri_call *c, const bsri_build *b, bsr_matrix *m) {
    bsri_cuda_build q;
    bsri_dev_build *d = &q.d;
    bsri_tiles t;
    int64_t subs, n = bsri_min(8, 16 / (int64_t)bsr_dtype_size(b->dense->dtype));
    int stop;
    bsri_cuda_build_plan(&q, b, m, 1);
    BSRI_TRY(bsri_cuda_plan(c, &q.cuts, &stop));
    if (stop) return BSR_OK;
    bsri_cuda_build_place(c, &q);
    t = bsri_cuda_tiles(c, &d->dense, &b->to, d->batch.count, BSRI_BITS_PANEL, 32), d->by_rows = bsri_cuda_by_rows(&d->dense);
    d->pieces =
        bsri_cuda_aligned(&d->dense); /* tiles start at pieces: at block columns that are multiples of 32, but at any rows */
    if (d->pieces == 2 && (t.height % n || (t.group == 1 && m->block_rows % n))) d->pieces = 0;
    d->height = (int32_t)t.height, d->group = (int32_t)t.group, d->panel = t.panel, d->panels = bsri_ceil_div(d->cols, d->panel);
    subs = t.group > 1 ? 1 : bsri_ceil_div(m->block_rows, d->height);
    if (subs > 1) BSRI_TRY(bsri_cuda_zero(c, d->bits, (d->batch.count * d->item_words + 1) / 2 * 8, NULL, 0, NULL, 0));
    BSRI_CUDA_NEXT(c, bsri_bits_dense, *d, d->batch.count * bsri_ceil_div(d->rows, t.group) * d->panels * subs, BSRI_CTA);
    return bsri_cuda_build_finish(c, b, &q, m);
}
static bsr_status bsri_cuda_from_mask(const bsri_call *c, const bsri_build *b, bsr_matrix *m) {
    bsri_cuda_build q;
    int stop;
    bsri_cuda_build_plan(&q, b, m, 1);
    BSRI_TRY(bsri_cuda_plan(c, &q.cuts, &stop));
    if (stop) return BSR_OK;
    bsri_cuda_build_place(c, &q);
    BSRI_CUDA_NEXT(c, bsri_bits_mask, q.d, bsri_ceil_div(q.d.batch.count * q.d.item_words, BSRI_CTA), BSRI_CTA);
    return bsri_cuda_build_finish(c, b, &q, m);
}

static bsr_status bsri_cuda_random(const bsri_call *c, const bsri_build *b, uint64_t seed, int64_t kept, bsr_matrix *m) {
    bsri_cuda_build q;
    bsri_dev_build *d = &q.d;
    int64_t seen, words;
    int stop;
    bsri_cuda_build_plan(&q, b, m, 0);
    d->seed = seed, d->draws = bsri_min(kept, d->candidates - kept), d->complement = d->draws != kept;
    if (d->draws >= UINT32_MAX || !bsri_mul(d->batch.count, d->draws, &words) ||
        !bsri_mul(d->batch.count, d->draws ? d->candidates : 0, &seen))
        q.cuts.overflow = 1, words = seen = 0;
    q.at[BSRI_CUDA_BUILD_MORE] = bsri_cut(&q.cuts, words, 8), q.at[BSRI_CUDA_BUILD_MORE + 1] = bsri_cut(&q.cuts, seen, 4);
    BSRI_TRY(bsri_cuda_plan(c, &q.cuts, &stop));
    if (stop) return BSR_OK;
    bsri_cuda_build_place(c, &q);
    d->drawn = (int64_t *)bsri_cuda_at(c, q.at[BSRI_CUDA_BUILD_MORE]);
    d->seen = (uint32_t *)bsri_cuda_at(c, q.at[BSRI_CUDA_BUILD_MORE + 1]);
    BSRI_TRY(bsri_cuda_zero(c, d->bits, (d->batch.count * d->item_words + 1) / 2 * 8, NULL, 0, d->seen, (seen + 1) / 2 * 8));
    if (d->draws) {
        BSRI_CUDA_RUN(c, bsri_random_draw, *d, d->batch.count, BSRI_CTA_WIDE);
        BSRI_CUDA_RUN(c, bsri_random_mark, *d, bsri_ceil_div(words, BSRI_CTA), BSRI_CTA);
        BSRI_CUDA_RUN(c, bsri_random_set, *d, bsri_ceil_div(words, BSRI_CTA), BSRI_CTA);
    }
    return bsri_cuda_build_finish(c, b, &q, m);
}
/* Which of the candidates are kept: of few, or of many items, by a block of threads each; else by passes of all. */
static bsr_status bsri_cuda_prune_select(const bsri_call *c, bsri_dev_build *d) {
    if (!d->candidates) return BSR_OK;
    if (!d->passes) {
        BSRI_CUDA_RUN(c, bsri_prune_select, *d, d->batch.count, BSRI_CTA_WIDE);
        return BSR_OK;
    }
    for (d->pass = 0; d->pass < d->passes; d->pass++) BSRI_CUDA_NEXT(c, bsri_prune_pass, *d, d->batch.count * d->tiles, BSRI_CTA);
    BSRI_CUDA_NEXT(c, bsri_prune_mark, *d, d->batch.count * d->tiles, BSRI_CTA);
    return BSR_OK;
}
static bsr_status bsri_cuda_prune(const bsri_call *c, const bsri_build *b, int64_t kept, bsr_matrix *m) {
    bsri_cuda_build q;
    bsri_dev_build *d = &q.d;
    int64_t norms, histograms = 0, n, *more = q.at + BSRI_CUDA_BUILD_MORE;
    int stop;
    bsri_cuda_build_plan(&q, b, m, 0);
    d->kept = kept;
    if (!bsri_mul(d->batch.count, d->candidates, &norms)) q.cuts.overflow = 1, norms = 0;
    if (d->candidates > 4096 && d->batch.count <= 2 * c->ctx->sm_count) {
        d->norm_passes = (int32_t)bsri_ceil_div(64, BSRI_PRUNE_BITS), d->place_bits = (int32_t)bsri_bit_length(d->candidates);
        d->passes = d->norm_passes + (int32_t)bsri_ceil_div(d->place_bits, BSRI_PRUNE_BITS);
        d->tiles = bsri_max(1, bsri_min(bsri_ceil_div(d->candidates, 2048), 4 * c->ctx->sm_count / d->batch.count));
        histograms = d->batch.count * d->passes * BSRI_PRUNE_DIGITS;
    }
    more[0] = bsri_cut(&q.cuts, norms, 8), more[1] = bsri_cut(&q.cuts, histograms, 4);
    more[2] = bsri_cut(&q.cuts, d->batch.count * (d->passes + 1), (int64_t)sizeof *d->rung);
    BSRI_TRY(bsri_cuda_plan(c, &q.cuts, &stop));
    if (stop) return BSR_OK;
    bsri_cuda_build_place(c, &q);
    d->norm = (double *)bsri_cuda_at(c, more[0]), d->counts = (uint32_t *)bsri_cuda_at(c, more[1]);
    d->rung = (bsri_dev_rung *)bsri_cuda_at(c, more[2]);
    if (d->passes) BSRI_TRY(bsri_cuda_zero(c, d->counts, histograms * 4, NULL, 0, NULL, 0));
    else BSRI_TRY(bsri_cuda_zero(c, d->bits, (d->batch.count * d->item_words + 1) / 2 * 8, NULL, 0, NULL, 0));
    n = bsri_min(8, 16 / (int64_t)bsr_dtype_size(b->dense ? b->dense->dtype : b->sparse->dtype));
    d->whole = m->block_cols % n == 0 && (b->dense ? bsri_cuda_aligned(&d->dense) == 1 : bsri_cuda_packed(b->sparse, 16));
    for (d->lanes = 1; d->lanes < bsri_min(m->block_rows, BSRI_NORM_SUMS);) d->lanes *= 2;
    BSRI_CUDA_NEXT(c, bsri_prune_norms, *d, bsri_ceil_div(norms, 128 / d->lanes), 128);
    BSRI_TRY(bsri_cuda_prune_select(c, d));
    return bsri_cuda_build_finish(c, b, &q, m);
}

/* Entries of CSR and COO. Where a bit for each block of the result fits, they are marked there, and each entry finds its place by
   them; else, where entries are in order, by looking for its block in the rows of the block row. Entries that are in no order,
   and there have no bits or repeat, are sorted by their place in the result: launched in any case, as only the device knows. */
typedef struct bsri_cuda_entries {
    bsri_dev_entries e;
    bsri_cuda_build q; /* of the pattern, by bits */
    bsri_cuda_sort sort;
    int64_t key, order, rank, sums, starts, state, claimed, places;
    int by_bits;
} bsri_cuda_entries;
static void bsri_cuda_entries_plan(bsri_cuda_entries *x, const bsri_build *b, const bsr_matrix *s, const void *row,
                                   int64_t places, const bsr_matrix *m) {
    bsri_dev_entries *e = &x->e;
    bsri_cuts *cuts = &x->q.cuts;
    int64_t words, elements = 0;
    int i;
    memset(x, 0, sizeof *x);
    e->to = b->to, e->rows = b->rows, e->cols = b->cols, e->nnz = s->nnz;
    e->chunks = bsri_ceil_div(s->nnz, BSRI_ENTRIES_CHUNK), e->row_words = bsri_ceil_div(b->cols, 32);
    e->row = row, e->crow = s->crow_indices, e->col = s->col_indices, e->values = s->values, e->index_dtype = s->index_dtype,
    e->dtype = s->dtype, e->source_rows = s->rows, e->source_cols = s->cols;
    e->count_only = b->count_only, e->with_values = b->with_values, e->capacity = b->count_only ? 0 : m->nnz;
    for (i = 0; i < 3; i++) e->stride[i] = b->value_stride[i];
    e->per_height = (uint32_t)(UINT32_MAX / b->to.block_rows), e->per_width = (uint32_t)(UINT32_MAX / b->to.block_cols);
    e->packed = b->with_values && bsri_cuda_packed(&b->to, 16);
    x->by_bits =
        bsri_mul(e->rows, e->row_words, &words) && words <= bsri_max(INT64_C(1) << 23, 2 * bsri_min(s->nnz, INT64_C(1) << 60));
    if (x->by_bits) {
        bsri_cuda_build_plan(&x->q, b, m, 1);
        x->q.d.to.values = NULL, x->places = bsri_cut(cuts, words, 8);
        if (e->with_values && (!bsri_mul(e->capacity, m->block_rows * m->block_cols, &elements) || elements > INT64_MAX - 31))
            cuts->overflow = 1, elements = 0;
        x->claimed = bsri_cut(cuts, bsri_ceil_div(elements, 32), 4);
    }
    e->key_dtype = places <= INT32_MAX && s->nnz <= INT32_MAX ? BSR_I32 : BSR_I64;
    e->sorting = x->by_bits ? BSRI_ENTRIES_AGAIN : BSRI_ENTRIES_DISORDER;
    x->state = bsri_cut(cuts, 1, 8), x->key = bsri_cut(cuts, s->nnz, (int64_t)bsr_dtype_size(e->key_dtype));
    x->order = bsri_cut(cuts, s->nnz, (int64_t)bsr_dtype_size(e->key_dtype)), x->rank = bsri_cut(cuts, s->nnz, 8);
    x->sums = bsri_cut(cuts, e->chunks + 1, 8);
    x->starts = bsri_cut(cuts, row && !x->by_bits ? s->rows + 1 : 0, (int64_t)bsr_dtype_size(e->index_dtype));
    bsri_cuda_sort_plan(&x->sort, cuts, e->key_dtype, 1, s->nnz, 0, bsri_max(places, 1), 0);
}
/* The launches that only do anything where entries must be sorted. */
static bsr_status bsri_cuda_entries_sorted(const bsri_call *c, bsri_cuda_entries *x) {
    bsri_dev_entries *e = &x->e;
    const bsri_batch one = bsri_batch_none();
    const int64_t most = 16 * c->ctx->sm_count; /* CTAs, which mostly have nothing to do */
    e->after_sort = 1, x->sort.s.wanted = e->state, x->sort.s.wanted_bits = (uint64_t)e->sorting;
    BSRI_CUDA_NEXT(c, bsri_entries_keys, *e, bsri_min(most, bsri_ceil_div(e->nnz, BSRI_CTA)), BSRI_CTA);
    BSRI_TRY(bsri_cuda_sort_run(c, &x->sort, NULL, &one, e->key, NULL, (void *)(uintptr_t)e->order));
    e->sorted = x->sort.s.key_out;
    BSRI_CUDA_NEXT(c, bsri_entries_blocks<false>, *e, bsri_min(most, e->chunks), BSRI_CTA_WIDE);
    BSRI_CUDA_NEXT(c, bsri_scan_sums, *e, 1, BSRI_CTA_WIDE);
    BSRI_CUDA_NEXT(c, bsri_entries_blocks<true>, *e, bsri_min(most, e->chunks), BSRI_CTA_WIDE);
    BSRI_CUDA_NEXT(c, bsri_entries_crow, *e, bsri_min(most, bsri_ceil_div(e->rows + 1, BSRI_CTA)), BSRI_CTA);
    if (!e->with_values || !e->capacity) return BSR_OK;
    BSRI_CUDA_NEXT(c, bsri_entries_clear, *e, most, BSRI_CTA);
    BSRI_CUDA_NEXT(c, bsri_entries_values, *e, bsri_min(most, bsri_ceil_div(e->nnz, BSRI_CTA)), BSRI_CTA);
    return BSR_OK;
}
static bsr_status bsri_cuda_entries_direct(const bsri_call *c, bsri_cuda_entries *x) {
    bsri_dev_entries *e = &x->e;
    const int64_t area = e->to.block_rows * e->to.block_cols, tiles = bsri_ceil_div(e->nnz, 2048);
    if (x->by_bits) {
        BSRI_TRY(bsri_cuda_build_pattern(c, &x->q.d));
    } else {
        if (e->row) BSRI_CUDA_NEXT(c, bsri_entries_starts, *e, bsri_ceil_div(e->source_rows + 1, BSRI_CTA), BSRI_CTA);
        BSRI_CUDA_NEXT(c, bsri_entries_begins, *e, e->chunks, BSRI_CTA);
        BSRI_CUDA_NEXT(c, bsri_scan_sums, *e, 1, BSRI_CTA_WIDE);
        BSRI_CUDA_NEXT(c, bsri_entries_lines, *e, bsri_ceil_div(e->rows + 1, BSRI_CTA), BSRI_CTA);
    }
    if (!e->capacity || (x->by_bits && !e->with_values)) return BSR_OK;
    if (e->with_values)
        BSRI_CUDA_NEXT(c, bsri_entries_clear, *e, bsri_min(bsri_ceil_div(e->capacity * area, 2048), 16 * c->ctx->sm_count),
                       BSRI_CTA);
    BSRI_CUDA_NEXT(c, bsri_entries_put, *e, tiles, BSRI_CTA);
    return BSR_OK;
}
static bsr_status bsri_cuda_from_entries(const bsri_call *c, const bsri_build *b, const bsr_matrix *s, const void *row,
                                         bsr_matrix *m) {
    bsri_cuda_entries x;
    bsri_dev_entries *e = &x.e;
    bsri_dev_build *d = &x.q.d;
    int64_t places;
    int stop;
    if (!bsri_mul(b->to.rows, b->to.cols, &places)) return bsri_fail(c, BSR_ITEM_SIZE_OVERFLOW, BSR_ARG_MATRIX, -1, 0);
    bsri_cuda_entries_plan(&x, b, s, row, places, m);
    BSRI_TRY(bsri_cuda_plan(c, &x.q.cuts, &stop));
    if (stop) return BSR_OK;
    if (x.by_bits) {
        bsri_cuda_build_place(c, &x.q);
        d->rank = (int64_t *)bsri_cuda_at(c, x.places), e->places = d->rank, e->bits = d->bits;
        e->claimed = (uint32_t *)bsri_cuda_at(c, x.claimed);
    }
    e->state = (uint64_t *)bsri_cuda_at(c, x.state), e->key = bsri_cuda_at(c, x.key), e->order = bsri_cuda_at(c, x.order);
    e->rank = (int64_t *)bsri_cuda_at(c, x.rank), e->sums = (int64_t *)bsri_cuda_at(c, x.sums);
    e->starts = row ? bsri_cuda_at(c, x.starts) : (void *)(uintptr_t)e->crow;
    BSRI_TRY(bsri_cuda_zero(c, e->state, 8, NULL, 0, e->bits, x.by_bits ? (d->item_words + 1) / 2 * 8 : 0));
    BSRI_CUDA_NEXT(c, bsri_entries_survey, *e, bsri_ceil_div(e->nnz, 2048), BSRI_CTA);
    BSRI_TRY(bsri_cuda_entries_direct(c, &x));
    if (e->nnz && (!x.by_bits || (e->with_values && e->capacity))) BSRI_TRY(bsri_cuda_entries_sorted(c, &x));
    bsri_cuda_build_tell(b, m);
    return BSR_OK;
}

/* Blocks of another size; of 1 x 1 the entries of CSR, with an array of rows or without. */
static bsr_status bsri_cuda_reblock(const bsri_call *c, const bsri_build *b, void *row, bsr_matrix *m) {
    const int elements = b->to.block_rows == 1 && b->to.block_cols == 1;
    const int64_t area = m->block_rows * m->block_cols;
    bsri_cuda_build q;
    bsri_dev_build *d = &q.d;
    int64_t lines, origins;
    int i, stop;
    memset(&q, 0, sizeof q);
    d->to = b->to, d->to.values = b->with_values ? m->values : NULL, d->batch = bsri_batch_of(m->batch_dims, m->batch);
    d->rows = b->rows, d->cols = b->cols, d->capacity = b->count_only ? 0 : m->nnz, d->origin_dtype = m->index_dtype;
    d->ragged = (m->flags & BSR_MATRIX_RAGGED) != 0, d->sparse = *b->sparse, d->entry_row = row;
    for (i = 0; i < 3; i++) d->stride[i] = b->value_stride[i];
    bsri_value_strides(b->sparse, d->sparse_stride);
    d->segments = elements ? 1 : bsri_max(1, bsri_min(bsri_ceil_div(b->cols, 64), (INT64_C(1) << 20) / bsri_max(1, b->rows)));
    d->panel = bsri_max(1, bsri_ceil_div(b->cols, d->segments));
    lines = bsri_cuda_build_lines(d, &q.cuts);
    if (!bsri_mul(d->ragged ? 1 : d->batch.count, b->with_values && !elements ? d->capacity : 0, &origins))
        q.cuts.overflow = 1, origins = 0;
    q.at[BSRI_CUDA_BUILD_FIRST] = bsri_cut(&q.cuts, lines, 8);
    q.at[BSRI_CUDA_BUILD_SUMS] = bsri_cut(&q.cuts, d->chunks > 1 ? d->parts * d->chunks : 0, 8);
    q.at[BSRI_CUDA_BUILD_ORIGIN] = bsri_cut(&q.cuts, origins, (int64_t)bsr_dtype_size(d->origin_dtype));
    BSRI_TRY(bsri_cuda_plan(c, &q.cuts, &stop));
    if (stop) return BSR_OK;
    bsri_cuda_build_place(c, &q);
    if (elements) BSRI_CUDA_NEXT(c, bsri_reblock_lengths, *d, bsri_ceil_div(lines, BSRI_CTA), BSRI_CTA);
    else BSRI_CUDA_NEXT(c, bsri_reblock_lines<false>, *d, bsri_ceil_div(lines, 8), BSRI_CTA);
    BSRI_TRY(bsri_cuda_build_positions(c, d));
    if (d->capacity && d->rows && d->batch.count) {
        if (elements) {
            BSRI_CUDA_NEXT(c, bsri_reblock_elements, *d, bsri_ceil_div(d->capacity, 2048) * d->batch.count, BSRI_CTA);
        } else {
            BSRI_CUDA_NEXT(c, bsri_reblock_lines<true>, *d, bsri_ceil_div(lines, 8), BSRI_CTA);
            if (b->with_values)
                BSRI_CUDA_NEXT(c, bsri_reblock_values, *d, bsri_ceil_div(d->capacity * area, 1024) * d->batch.count, BSRI_CTA);
        }
    }
    bsri_cuda_build_tell(b, m);
    return BSR_OK;
}

static bsr_status bsri_cuda_scatter_indices(const bsri_call *c, const bsri_scatter_build *b, int count_only, int *stop) {
    bsri_cuts cuts = {0, 0};
    bsri_dev_scatter_build d;
    bsri_dev_lines l;
    bsri_dev_rank r;
    int64_t at[3];
    int i;
    if (b->rows > INT32_MAX) return bsri_fail(c, BSR_ITEM_INDEX_RANGE, BSR_ARG_A, -1, b->rows);
    at[0] = bsri_cut(&cuts, b->rows, 8), at[1] = bsri_cut(&cuts, b->rows, 4), at[2] = bsri_cut(&cuts, b->rows, 8);
    if (count_only) cuts.bytes = 0;
    BSRI_TRY(bsri_cuda_plan(c, &cuts, stop));
    if (*stop || count_only) return BSR_OK;
    memset(&d, 0, sizeof d), memset(&l, 0, sizeof l), memset(&r, 0, sizeof r);
    d.a = *b->a, d.order = (const int32_t *)bsri_cuda_at(c, at[1]), d.start = (int64_t *)bsri_cuda_at(c, at[2]);
    for (i = 0; i < 4; i++) d.array[i] = b->array[i], d.need[i] = b->need[i];
    d.n = b->n, d.split = b->split, d.rows = b->rows, d.format = b->format;
    l.m = *b->a, l.patterns = bsri_batch_none(), l.count = b->rows, l.limit = bsri_min(b->a->nnz, bsri_block_cols(b->a));
    l.key = (uint64_t *)bsri_cuda_at(c, at[0]);
    r.key = l.key, r.patterns = 1, r.n = r.full = b->rows, r.group = 1, r.order = (int32_t *)bsri_cuda_at(c, at[1]);
    BSRI_CUDA_NEXT(c, bsri_lines_measure, l, bsri_ceil_div(b->rows, BSRI_CTA_WARPS), BSRI_CTA);
    BSRI_TRY(bsri_cuda_rank(c, &r));
    if (b->format == BSR_SCATTER_STRIDED && b->rows) BSRI_CUDA_RUN(c, bsri_scatter_starts, d, 1, BSRI_CTA_WIDE);
    BSRI_CUDA_RUN(c, bsri_scatter_fill_rows, d, bsri_ceil_div(b->rows * b->split, BSRI_CTA_WARPS), BSRI_CTA);
    BSRI_CUDA_RUN(c, bsri_scatter_last, d, 1, 1);
    return BSR_OK;
}

#ifndef BSRSPARSE_NO_LAYOUTS
static bsr_status bsri_cuda_layout_step(const bsri_call *c, bsri_dev_layout *d, int step) {
    d->step = step;
    BSRI_CUDA_RUN(c, bsri_layout_rules, *d, bsri_ceil_div(d->bytes, BSRI_CTA), BSRI_CTA);
    return BSR_OK;
}
/* The caller's lists stand in host memory: they travel with the launches, so many at a time. */
static bsr_status bsri_cuda_layout_lists(const bsri_call *c, bsri_dev_layout *d) {
    const bsr_layout *l = &d->layout;
    int64_t n = l->blocks, i, count = l->global_block_indices ? l->num_global_indices : 1, at;
    for (i = 0, at = 0, d->ranges = 0; l->kind == BSR_LAYOUT_VARIABLE && i < l->num_local_windows && at < n; i++) {
        d->from[d->ranges] = at, at += bsri_min(l->local_window_blocks[i], n - at), d->to[d->ranges++] = at;
        if (d->ranges == BSRI_LAYOUT_LIST || i + 1 == l->num_local_windows || at == n) {
            BSRI_TRY(bsri_cuda_layout_step(c, d, BSRI_LAYOUT_WINDOWS));
            d->ranges = 0;
        }
    }
    for (i = 0, d->ranges = 0; i < count; i++) {
        d->from[d->ranges] = l->global_block_indices ? l->global_block_indices[i] : 0;
        d->to[d->ranges] = l->global_block_end_indices ? l->global_block_end_indices[i] : d->from[d->ranges] + 1;
        d->ranges += d->from[d->ranges] < n; /* others are beyond this sequence */
        if (d->ranges && (d->ranges == BSRI_LAYOUT_LIST || i + 1 == count)) {
            BSRI_TRY(bsri_cuda_layout_step(c, d, BSRI_LAYOUT_GLOBALS));
            d->ranges = 0;
        }
    }
    return BSR_OK;
}
static bsr_status bsri_cuda_layout(const bsri_call *c, const bsr_layout *l, uint8_t *mask, int64_t area, int64_t bytes) {
    bsri_cuts none = {0, 0};
    bsri_dev_layout d;
    int64_t i;
    int stop, variable = l->kind == BSR_LAYOUT_VARIABLE;
    BSRI_TRY(bsri_cuda_plan(c, &none, &stop));
    if (stop || !bytes) return BSR_OK;
    memset(&d, 0, sizeof d);
    d.layout = *l, d.mask = mask, d.area = area, d.bytes = bytes, d.rest_size = 4;
    for (i = 0; i < l->num_local_windows && variable; i++) {
        d.rest = bsri_min(l->blocks, d.rest + bsri_min(l->local_window_blocks[i], l->blocks));
        d.rest_size = l->local_window_blocks[i];
    }
    BSRI_TRY(bsri_cuda_layout_step(c, &d, BSRI_LAYOUT_CLEAR));
    if (variable || l->kind == BSR_LAYOUT_BIGBIRD) BSRI_CUDA_RUN(c, bsri_layout_draw, d, bsri_ceil_div(l->heads, 32), 32);
    BSRI_TRY(bsri_cuda_layout_step(c, &d, BSRI_LAYOUT_RULES));
    return variable || l->kind == BSR_LAYOUT_BSLONGFORMER ? bsri_cuda_layout_lists(c, &d) : BSR_OK;
}
#endif
#endif /* BSRI_CUDA */
extern "C" {
#endif /* BSRI_CHOOSERS */

/* ---------------------------------------------------------------------------------------------- */
/* >>tuner: the climb, measuring, verifying                                                       */
/* ---------------------------------------------------------------------------------------------- */

static bsr_climb_point *bsri_climb_seen(const bsr_climb *c, const int32_t *v) {
    int32_t i;
    for (i = 0; i < c->memo_count; i++)
        if (!memcmp(c->memo[i].values, v, (size_t)c->count * sizeof *v)) return &c->memo[i];
    return NULL;
}
/* Seconds of a point, evaluated at most once; negative: it can't be had, or there is no time left. */
static double bsri_climb_at(bsr_climb *c, const int32_t *v) {
    bsr_climb_point *p = bsri_climb_seen(c, v);
    if (p) return p->seconds;
    if (c->stopped || c->memo_count >= c->memo_capacity || (c->stop && c->stop(c->user))) return c->stopped = 1, -1.0;
    p = &c->memo[c->memo_count++];
    memset(p->values, 0, sizeof p->values), memcpy(p->values, v, (size_t)c->count * sizeof *v);
    p->seconds = c->target(v, c->user);
    if (!(p->seconds >= 0)) p->seconds = -1.0, c->failed++; /* NaN as well */
    return p->seconds;
}
/* The point that is d away, or 0 where one of the steps does not exist. */
static int bsri_climb_step(const bsr_climb *c, const int32_t *from, const int32_t *d, int32_t *to) {
    int32_t i;
    for (i = 0; i < c->count; i++) {
        to[i] = d[i] ? c->step(i, from[i], d[i], from, c->user) : from[i];
        if (d[i] && to[i] == from[i]) return 0;
    }
    return 1;
}
/* Tries the moves whose remaining parameters take `left` steps in all, in lexicographic order: 1 as soon as one improves. */
static int bsri_climb_moves(bsr_climb *c, int32_t *at, double *seconds, int32_t *d, int32_t i, int32_t left) {
    int32_t to[BSR_CLIMB_MAX], x;
    double t;
    if (i == c->count) {
        if (left || !bsri_climb_step(c, at, d, to) || bsri_climb_seen(c, to)) return 0;
        t = bsri_climb_at(c, to);
        if (t < 0 || !(t < *seconds * (1.0 - c->least_gain))) return 0;
        memcpy(at, to, (size_t)c->count * sizeof *to), *seconds = t;
        return 1;
    }
    for (x = -left; x <= left && !c->stopped; x++) {
        d[i] = x;
        if (bsri_climb_moves(c, at, seconds, d, i + 1, left - (x < 0 ? -x : x))) return 1;
    }
    return d[i] = 0;
}
/* From one point to a minimum; then the stable choice among all that is known. */
static void bsri_climb_from(bsr_climb *c, const int32_t *initial, double seconds) {
    int32_t at[BSR_CLIMB_MAX], d[BSR_CLIMB_MAX], norm, i, j;
    double least = seconds;
    memset(d, 0, sizeof d), memcpy(at, initial, (size_t)c->count * sizeof *at);
    for (norm = 1; norm <= c->max_step && !c->stopped; norm++)
        if (bsri_climb_moves(c, at, &least, d, 0, norm)) norm = 0;
    for (i = 0; i < c->memo_count; i++)
        if (c->memo[i].seconds >= 0 && c->memo[i].seconds < least) least = c->memo[i].seconds;
    c->seconds = -1.0;
    if (seconds <= least * 1.001) {
        memcpy(c->best, initial, (size_t)c->count * sizeof *at), c->seconds = seconds;
        return;
    }
    for (i = 0; i < c->memo_count; i++) {
        const bsr_climb_point *p = &c->memo[i];
        if (p->seconds < 0 || p->seconds > least * 1.001) continue;
        for (j = 0; j < c->count && p->values[j] == c->best[j]; j++) {
        }
        if (c->seconds < 0 || (j < c->count && p->values[j] < c->best[j]))
            memcpy(c->best, p->values, (size_t)c->count * sizeof *at), c->seconds = p->seconds;
    }
}
BSR_API bsr_status bsr_tune_climb(bsr_climb *c, const int32_t *initial, const int32_t *reference, bsr_error *error) {
    double reference_seconds;
    bsri_clear_error(error);
    if (!c || !initial || !reference || !c->target || !c->step || !c->memo)
        return bsri_tune_fail(error, BSR_ITEM_ARGUMENT_NULL, -1, 0);
    if (c->count < 1 || c->count > BSR_CLIMB_MAX) return bsri_tune_fail(error, BSR_ITEM_TUNE_CLIMB, 0, c->count);
    if (c->max_step < 0 || c->max_step > 4) return bsri_tune_fail(error, BSR_ITEM_TUNE_CLIMB, 1, c->max_step);
    if (c->memo_count < 0 || c->memo_count > c->memo_capacity)
        return bsri_tune_fail(error, BSR_ITEM_TUNE_CLIMB, 8, c->memo_count);
    if (!c->max_step) c->max_step = 2;
    c->failed = c->stopped = 0, memset(c->best, 0, sizeof c->best);
    c->reference_seconds = reference_seconds = bsri_climb_at(c, reference);
    c->initial_seconds = bsri_climb_at(c, initial);
    if (c->initial_seconds < 0 && reference_seconds < 0) return bsri_tune_fail(error, BSR_ITEM_TUNE_FAILED, -1, 0);
    if (c->initial_seconds < 0) initial = reference, c->initial_seconds = reference_seconds;
    if (reference_seconds < 0) c->reference_seconds = reference_seconds = c->initial_seconds;
    bsri_climb_from(c, initial, c->initial_seconds);
    if (c->seconds > reference_seconds) bsri_climb_from(c, reference, reference_seconds); /* the memo is kept */
    c->speedup = reference_seconds > 0 ? (1.0 - c->seconds / reference_seconds) * 100.0 : 0.0;
    return BSR_OK;
}

/* Slow-down in percent d steps away from the best point; 0 where that is unknown. */
static double bsri_climb_slope(const bsr_climb *c, int32_t i, int32_t x) {
    int32_t d[BSR_CLIMB_MAX], to[BSR_CLIMB_MAX];
    const bsr_climb_point *p;
    memset(d, 0, sizeof d), memset(to, 0, sizeof to), d[i] = x;
    p = bsri_climb_step(c, c->best, d, to) ? bsri_climb_seen(c, to) : NULL;
    return p && p->seconds >= 0 && c->seconds > 0 ? (p->seconds / c->seconds - 1.0) * 100.0 : 0.0;
}
/* Three digits, or one behind the point. */
static void bsri_put_real(bsri_text *t, int fixed, double x) {
    char line[400];
    if (fixed) (void)snprintf(line, sizeof line, "%.1f", x);
    else (void)snprintf(line, sizeof line, "%.3g", x);
    bsri_put(t, line);
}
BSR_API int bsr_climb_string(const bsr_climb *c, char *text, size_t size) {
    double worst[BSR_CLIMB_MAX];
    int32_t i, k, x, done = 0;
    bsri_text t;
    t.data = text, t.size = text ? size : 0, t.length = 0;
    bsri_put(&t, "");
    if (!c || c->count < 1 || c->count > BSR_CLIMB_MAX || !c->step || !c->memo) return 0;
    bsri_put(&t, "timing0="), bsri_put_real(&t, 0, c->initial_seconds);
    for (i = 0; i < c->count; i++)
        for (worst[i] = 0, x = -c->max_step; x <= c->max_step; x++)
            if (x && bsri_climb_slope(c, i, x) > worst[i]) worst[i] = bsri_climb_slope(c, i, x);
    for (k = 0; k < c->count; k++) {
        int32_t next = -1;
        for (i = 0; i < c->count; i++)
            if (!(done >> i & 1) && (next < 0 || worst[i] > worst[next])) next = i;
        done |= 1 << next;
        bsri_put(&t, " "), bsri_put(&t, c->names ? c->names[next] : "?"), bsri_put(&t, "=");
        bsri_put_int(&t, c->best[next]), bsri_put(&t, " (");
        for (x = -c->max_step; x <= c->max_step; x++) {
            if (x) bsri_put_real(&t, 1, bsri_climb_slope(c, next, x));
            if (x != c->max_step) bsri_put(&t, x == 0 ? "" : x == -1 ? "..." : "|");
        }
        bsri_put(&t, " %)");
    }
    return (int)t.length;
}

/* --- measuring and verifying calls --- */

enum { BSRI_TUNE_PARAMETERS = 6, BSRI_TUNE_MEMO = 2048, BSRI_TUNE_BATCHES = 5, BSRI_TUNE_REPEATS = 9 };
static const char *const bsri_tune_names[BSRI_TUNE_PARAMETERS] = {"kernel", "order", "split", "stages", "tile_cols", "tile_rows"};

/* Flags of the tuner's own calls: plans that can't run are nothing to log. */
#define BSRI_TUNE_FLAGS (BSR_EXEC_NO_TABLE | BSR_EXEC_NO_LOG)
typedef struct bsri_tuner {
    const bsr_context *ctx;
    const bsr_tune_desc *desc;
    bsr_tune_result *result;
    char *before, *want, *got, *good; /* all outputs: as they were; the plainest tier's, a candidate's, a right one's */
    int32_t has_good;
    uint64_t bytes;
    double start, best, reference;
    int32_t ended; /* by the caller, or the time limit */
    bsr_error error;
#ifdef BSRI_CUDA
    cudaEvent_t event[2];
#endif
} bsri_tuner;

/* In the tuner's buffers outputs start at multiples of 8, as their elements are read there. */
static uint64_t bsri_tuner_room(const bsr_tune_output *o) { return o->bytes + (0 - o->bytes) % 8; }
static int bsri_tuner_cuda(const bsri_tuner *t) { return t->ctx->backend == BSR_BACKEND_CUDA; }
static bsr_status bsri_tuner_fail(bsri_tuner *t, int item, int64_t value) {
    bsri_record(t->ctx, &t->error, item, BSR_ARG_NONE, -1, value);
    return bsri_items[item].status;
}
#ifdef BSRI_CUDA
static bsr_status bsri_tuner_status(bsri_tuner *t, cudaError_t e) {
    if (e == cudaSuccess) return BSR_OK;
    (void)cudaGetLastError();
    bsri_record_cuda(t->ctx, &t->error, BSR_ITEM_CUDA, BSR_ARG_NONE, -1, 0, (int)e);
    return BSR_CUDA_ERROR;
}
#endif
/* All outputs into a buffer, or back out of one. */
static bsr_status bsri_tuner_copy(bsri_tuner *t, char *buffer, int back) {
    int32_t i;
    for (i = 0; i < t->desc->output_count; i++) {
        const bsr_tune_output *o = &t->desc->outputs[i];
#ifdef BSRI_CUDA
        if (bsri_tuner_cuda(t)) {
            const cudaStream_t s = t->desc->exec.stream;
            BSRI_TRY(bsri_tuner_status(t, cudaMemcpyAsync(back ? o->data : buffer, back ? buffer : o->data, (size_t)o->bytes,
                                                          back ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, s)));
            BSRI_TRY(bsri_tuner_status(t, cudaStreamSynchronize(s)));
            buffer += bsri_tuner_room(o);
            continue;
        }
#endif
        if (o->bytes) memcpy(back ? o->data : buffer, back ? buffer : (char *)o->data, (size_t)o->bytes);
        buffer += bsri_tuner_room(o);
    }
    return BSR_OK;
}
/* One call. plan null: as it comes. query: what would run. */
static bsr_status bsri_tuner_call(bsri_tuner *t, const bsr_plan *plan, bsr_plan *query, bsr_tune_row *key, uint32_t flags) {
    bsr_exec e = t->desc->exec;
    e.plan = plan, e.query = query, e.key = key, e.error = &t->error, e.flags |= flags;
    if (query && !e.workspace) e.workspace = (void *)(uintptr_t)64, e.workspace_bytes = 0; /* what runs without one */
    return t->desc->call(&e, t->desc->user);
}

/* How far a result may be from the plainest tier's: by type, of the element and of the largest. */
static double bsri_tuner_slack(int dtype, uint32_t flags) {
    const double tf32 = flags & BSR_EXEC_TF32 ? 4e-3 : 0;
    double most = 0;
#define BSRI_X(name, type, is_float, results, slack, ...) \
    if (dtype == BSR_##name) most = slack;
    BSRI_TYPES(BSRI_X)
#undef BSRI_X
    return dtype == BSR_F32 && tf32 > most ? tf32 : most;
}
static double bsri_tuner_element(const char *p, int dtype, uint64_t i) {
    const int number = bsri_is_one_of(BSRI_OPERANDS, dtype) || dtype == BSR_I32 || dtype == BSR_I64;
    return number ? bsri_load_f64(p, dtype, (int64_t)i) : (double)((const signed char *)p)[i];
}
/* Are t->got's results t->want's? */
static int bsri_tuner_right(const bsri_tuner *t) {
    const char *got = t->got, *want = t->want;
    int32_t i;
    for (i = 0; i < t->desc->output_count; i++) {
        const bsr_tune_output *o = &t->desc->outputs[i];
        const uint64_t n = o->bytes / bsr_dtype_size(o->dtype);
        const double slack = bsri_tuner_slack(o->dtype, t->desc->exec.flags);
        double largest = 0;
        uint64_t j;
        if (memcmp(got, want, (size_t)o->bytes)) {
            for (j = 0; j < n; j++) {
                const double w = fabs(bsri_tuner_element(want, o->dtype, j));
                if (w > largest && w <= 1e300) largest = w;
            }
            for (j = 0; j < n; j++) {
                const double g = bsri_tuner_element(got, o->dtype, j), w = bsri_tuner_element(want, o->dtype, j);
                if (!(fabs(g - w) <= slack * (fabs(w) + largest)) && g != w && !(g != g && w != w)) return 0;
            }
        }
        got += bsri_tuner_room(o), want += bsri_tuner_room(o);
    }
    return 1;
}
static double bsri_tuner_now(const bsri_tuner *t) { return t->desc->now ? t->desc->now(t->desc->user) : 0.0; }
/* Seconds of `repeats` calls; negative: it failed. */
static double bsri_tuner_batch(bsri_tuner *t, const bsr_plan *plan, int repeats) {
    const double began = bsri_tuner_cuda(t) ? 0 : bsri_tuner_now(t);
    int i;
#ifdef BSRI_CUDA
    float ms = 0;
    if (bsri_tuner_cuda(t) && cudaEventRecord(t->event[0], t->desc->exec.stream) != cudaSuccess) return -1.0;
#endif
    for (i = 0; i < repeats; i++)
        if (bsri_tuner_call(t, plan, NULL, NULL, BSRI_TUNE_FLAGS) != BSR_OK) return -1.0;
#ifdef BSRI_CUDA
    if (bsri_tuner_cuda(t)) {
        if (cudaEventRecord(t->event[1], t->desc->exec.stream) != cudaSuccess) return -1.0;
        if (cudaEventSynchronize(t->event[1]) != cudaSuccess) return -1.0;
        if (cudaEventElapsedTime(&ms, t->event[0], t->event[1]) != cudaSuccess) return -1.0;
        return (double)ms * 1e-3;
    }
#endif
    return bsri_tuner_now(t) - began;
}
static double bsri_median(double *x, int n) {
    int i, j;
    for (i = 1; i < n; i++)
        for (j = i; j > 0 && x[j] < x[j - 1]; j--) {
            const double swap = x[j];
            x[j] = x[j - 1], x[j - 1] = swap;
        }
    return x[n / 2];
}
/* Calls that make a batch of about two milliseconds. */
static int bsri_tuner_repeats(double one) { return one > 0 ? (int)(one > 1e-3 ? 2 : 2e-3 / one > 200 ? 200 : 2e-3 / one) : 50; }
/* Median time of a call under a plan; negative: it failed. */
static double bsri_tuner_time(bsri_tuner *t, const bsr_plan *plan) {
    double x[BSRI_TUNE_BATCHES], one;
    int i, repeats;
    if (t->desc->target) return t->desc->target(plan, t->desc->user);
    if (bsri_tuner_batch(t, plan, 1) < 0) return -1.0; /* warms up */
    one = bsri_tuner_batch(t, plan, 2) / 2;
    if (one < 0) return -1.0;
    repeats = bsri_tuner_repeats(one);
    for (i = 0; i < BSRI_TUNE_BATCHES; i++) {
        x[i] = bsri_tuner_batch(t, plan, repeats) / repeats;
        if (x[i] < 0) return -1.0;
    }
    return bsri_median(x, BSRI_TUNE_BATCHES);
}

static bsr_plan bsri_tune_plan_of(const int32_t *v) {
    bsr_plan p;
    memset(&p, 0, sizeof p);
    p.kernel = v[0], p.order = v[1], p.split = v[2], p.stages = v[3], p.tile_cols = v[4], p.tile_rows = v[5];
    return p;
}
/* The point that a plan stands for; the number of stages is left to the kernel, which fills its shared memory. */
static void bsri_tune_point_of(const bsri_tuner *t, const bsr_plan *p, int32_t *v) {
    memset(v, 0, BSR_CLIMB_MAX * sizeof *v);
    v[0] = p->kernel;
    if (!bsri_tuner_cuda(t)) return; /* the rest is fixed */
    v[1] = p->order, v[2] = p->split, v[4] = p->tile_cols, v[5] = p->tile_rows;
}
static int32_t bsri_tune_double(int32_t v, int32_t d, int32_t low, int32_t high) {
    int64_t x = v;
    for (; d > 0; d--) x *= 2;
    for (; d < 0; d++) x = x % 2 ? low - 1 : x / 2;
    return v <= 0 || x < low || x > high ? v : (int32_t)x;
}
static int32_t bsri_tuner_step(int32_t i, int32_t v, int32_t d, const int32_t *values, void *user) {
    bsri_tuner *t = (bsri_tuner *)user;
    bsr_plan asked = bsri_tune_plan_of(values), have;
    if (!bsri_tuner_cuda(t)) return i == 0 && v + d >= 1 && v + d <= BSR_ISA_AVX512 ? v + d : v;
    switch (i) {
        case 0: return v; /* tiers are tried as wholes before the climb */
        case 1: return v + d >= 0 && v + d <= 16 ? v + d : v;
        case 2: return bsri_tune_double(v, d, 1, 64);
        case 3:
            if (!v && bsri_tuner_call(t, &asked, &have, NULL, BSRI_TUNE_FLAGS) == BSR_OK && d < 0 && have.stages + d >= 1)
                return have.stages + d;
            return v && v + d >= 1 && v + d <= 32 ? v + d : v;
        default: return bsri_tune_double(v, d, 4, 512);
    }
}
static void bsri_tuner_say(bsri_tuner *t, const bsr_plan *plan) {
    bsr_tune_progress p;
    memset(&p, 0, sizeof p);
    p.seconds = t->desc->now ? bsri_tuner_now(t) - t->start : 0, p.best = t->best, p.reference = t->reference, p.plan = plan;
    p.evaluated = t->result->evaluated, p.failed = t->result->failed, p.wrong = t->result->wrong;
    if (t->desc->progress && t->desc->progress(&p, t->desc->user)) t->ended = 1;
    if (t->desc->time_limit > 0 && p.seconds > t->desc->time_limit) t->ended = 1;
}
static int bsri_tuner_stop(void *user) { return ((bsri_tuner *)user)->ended; }

/* Does a plan give the right result? Leaves the outputs as they were. */
static int bsri_tuner_verify(bsri_tuner *t, const bsr_plan *plan) {
    char line[400];
    int ok;
    if (!t->bytes || (t->desc->flags & BSR_TUNE_TRUSTED)) return 1;
    if (bsri_tuner_copy(t, t->before, 1) != BSR_OK) return 0;
    ok = bsri_tuner_call(t, plan, NULL, NULL, BSRI_TUNE_FLAGS) == BSR_OK && bsri_tuner_copy(t, t->got, 0) == BSR_OK;
    if (ok && t->has_good && !memcmp(t->got, t->good, (size_t)t->bytes)) return 1; /* most differ in nothing but speed */
    if (ok && bsri_tuner_right(t)) {
        memcpy(t->good, t->got, (size_t)t->bytes), t->has_good = 1;
        return 1;
    }
    if (ok) {
        bsr_plan_string(plan, line, sizeof line);
        t->result->wrong++, t->result->wrong_plan = *plan;
        if (t->ctx->logger.func) t->ctx->logger.func(BSR_LOG_WARN, BSR_ITEM_TUNE_WRONG, line, t->ctx->logger.user);
    }
    return 0;
}
/* The climb's target. */
static double bsri_tuner_target(const int32_t *v, void *user) {
    bsri_tuner *t = (bsri_tuner *)user;
    bsr_plan asked = bsri_tune_plan_of(v), have;
    double seconds = -1.0;
    if (bsri_tuner_call(t, &asked, &have, NULL, BSRI_TUNE_FLAGS) != BSR_OK) return -1.0; /* costs nothing: no kernel for it */
    t->result->evaluated++;
    have.flags = 0;
    if (bsri_tuner_verify(t, &have)) seconds = bsri_tuner_time(t, &have);
    if (!(seconds >= 0)) t->result->failed++;
    else if (!(t->best > 0) || seconds < t->best) t->best = seconds;
    bsri_tuner_say(t, &have);
    return seconds;
}

/* Buffers, events, and the result of the plainest tier. */
static bsr_status bsri_tuner_begin(bsri_tuner *t) {
    bsr_plan plain;
    int32_t i;
    memset(&plain, 0, sizeof plain), plain.kernel = 1; /* simt; portable C */
    for (i = 0; i < t->desc->output_count; i++) {
        if (!t->desc->outputs[i].data && t->desc->outputs[i].bytes) return bsri_tuner_fail(t, BSR_ITEM_ARGUMENT_NULL, 0);
        if (!bsr_dtype_size(t->desc->outputs[i].dtype))
            return bsri_tuner_fail(t, BSR_ITEM_DTYPE_UNKNOWN, t->desc->outputs[i].dtype);
        if (t->desc->outputs[i].bytes > SIZE_MAX / 64 * 8 - t->bytes) /* four of all are to fit */
            return bsri_tuner_fail(t, BSR_ITEM_NO_MEMORY, INT64_MAX);
        t->bytes += bsri_tuner_room(&t->desc->outputs[i]);
    }
#ifdef BSRI_CUDA
    for (i = 0; i < 2 && bsri_tuner_cuda(t) && !t->desc->target; i++)
        BSRI_TRY(bsri_tuner_status(t, cudaEventCreate(&t->event[i])));
#endif
    if (!t->bytes) return BSR_OK;
    t->before = (char *)bsri_alloc(t->ctx, (size_t)t->bytes * 4);
    if (!t->before) return bsri_tuner_fail(t, BSR_ITEM_NO_MEMORY, (int64_t)t->bytes * 4);
    memset(t->before, 0, (size_t)t->bytes * 4); /* what stands between outputs is compared as well */
    t->want = t->before + t->bytes, t->got = t->want + t->bytes, t->good = t->got + t->bytes;
    BSRI_TRY(bsri_tuner_copy(t, t->before, 0));
    if (bsri_tuner_call(t, &plain, NULL, NULL, BSRI_TUNE_FLAGS) != BSR_OK)
        BSRI_TRY(bsri_tuner_call(t, NULL, NULL, NULL, BSRI_TUNE_FLAGS));
    return bsri_tuner_copy(t, t->want, 0);
}
static void bsri_tuner_end(bsri_tuner *t) {
#ifdef BSRI_CUDA
    int i;
    for (i = 0; i < 2; i++)
        if (t->event[i]) cudaEventDestroy(t->event[i]);
#endif
    bsri_free(t->ctx, t->before);
}

static int bsri_same_choice(const bsr_plan *a, const bsr_plan *b) {
    return a->kernel == b->kernel && a->instance == b->instance && a->tile_rows == b->tile_rows && a->tile_cols == b->tile_cols &&
           a->split == b->split && a->stages == b->stages && a->order == b->order;
}
/* The heuristic's plan and the best one in turns: what is drift falls on both. What is gained must show in the medians and in
   the least times; what is slower here was luck before, and the heuristic's plan is the result. */
static void bsri_tuner_compare(bsri_tuner *t, const bsr_plan *reference, bsr_climb *c) {
    double x[BSRI_TUNE_REPEATS], y[BSRI_TUNE_REPEATS], by_least;
    bsr_tune_result *r = t->result;
    const int n = t->desc->target ? 1 : BSRI_TUNE_REPEATS, repeats = t->desc->target ? 1 : bsri_tuner_repeats(r->seconds);
    int i;
    r->heuristic_seconds = r->seconds = t->reference >= 0 ? t->reference : c->seconds;
    if (bsri_same_choice(reference, &r->plan)) return;
    for (i = 0; i < n; i++) {
        x[i] = t->desc->target ? t->desc->target(reference, t->desc->user) : bsri_tuner_batch(t, reference, repeats) / repeats;
        y[i] = t->desc->target ? t->desc->target(&r->plan, t->desc->user) : bsri_tuner_batch(t, &r->plan, repeats) / repeats;
    }
    r->heuristic_seconds = bsri_median(x, n), r->seconds = bsri_median(y, n); /* sorted now */
    by_least = x[0] > 0 && y[0] >= 0 ? 1.0 - y[0] / x[0] : 0;
    r->gain = r->heuristic_seconds > 0 && r->seconds >= 0 ? 1.0 - r->seconds / r->heuristic_seconds : 0;
    if (by_least < r->gain) r->gain = by_least;
    if (r->gain > 0 || t->reference < 0) return;
    bsri_tune_point_of(t, reference, c->best), r->plan = *reference, r->gain = 0, r->seconds = r->heuristic_seconds;
}
/* What is known so far: heuristic, the table's row, each tier's own choice. The best of them is where the climb starts. */
static bsr_status bsri_tuner_search(bsri_tuner *t, bsr_climb *c) {
    bsr_tune_result *r = t->result;
    int32_t reference[BSR_CLIMB_MAX], initial[BSR_CLIMB_MAX], v[BSR_CLIMB_MAX], tier;
    bsr_plan heuristic, plan, asked;
    double least, seconds;
    BSRI_TRY(bsri_tuner_call(t, NULL, &heuristic, &r->row, BSRI_TUNE_FLAGS));
    BSRI_TRY(bsri_tuner_call(t, NULL, &plan, NULL, 0));
    bsri_tune_point_of(t, &heuristic, reference), bsri_tune_point_of(t, &heuristic, initial);
    r->match = plan.source == BSR_PLAN_TABLE ? plan.match : 0;
    least = t->reference = bsri_climb_at(c, reference);
    for (tier = 0; tier <= 3; tier++) {
        memset(&asked, 0, sizeof asked), asked.kernel = tier;
        if (tier && bsri_tuner_call(t, &asked, &plan, NULL, BSRI_TUNE_FLAGS) != BSR_OK) continue;
        bsri_tune_point_of(t, &plan, v);
        if (!tier && plan.source == BSR_PLAN_TABLE && plan.stages != heuristic.stages) v[3] = plan.stages;
        seconds = bsri_climb_at(c, v);
        if (seconds >= 0 && (least < 0 || seconds < least)) least = seconds, memcpy(initial, v, sizeof v);
    }
    BSRI_TRY(bsr_tune_climb(c, initial, reference, &t->error));
    asked = bsri_tune_plan_of(c->best);
    BSRI_TRY(bsri_tuner_call(t, &asked, &r->plan, NULL, BSRI_TUNE_FLAGS));
    r->plan.flags = heuristic.flags = 0, r->seconds = c->seconds;
    bsri_tuner_compare(t, &heuristic, c);
    bsr_climb_string(c, r->sensitivity, sizeof r->sensitivity);
    r->row.kernel = c->best[0], r->row.order = c->best[1], r->row.split = c->best[2], r->row.stages = c->best[3];
    r->row.tile_cols = c->best[4], r->row.tile_rows = c->best[5], r->row.gain = (int32_t)floor(r->gain * 100 + 0.5);
    if (r->row.gain > 100) r->row.gain = 100;
    if (r->row.gain < -1000) r->row.gain = -1000;
    return BSR_OK;
}
static bsr_status bsri_tuner_run(bsri_tuner *t) {
    bsr_tune_result *r = t->result;
    bsr_climb c;
    bsr_status status = bsri_tuner_begin(t), restored;
    memset(&c, 0, sizeof c);
    if (status != BSR_OK) return status;
    c.count = BSRI_TUNE_PARAMETERS, c.max_step = t->desc->max_step, c.names = bsri_tune_names, c.target = bsri_tuner_target;
    c.least_gain = 0.005, c.step = bsri_tuner_step, c.stop = bsri_tuner_stop, c.user = t, c.memo_capacity = BSRI_TUNE_MEMO;
    c.memo = (bsr_climb_point *)bsri_alloc(t->ctx, BSRI_TUNE_MEMO * sizeof *c.memo);
    status =
        c.memo ? bsri_tuner_search(t, &c) : bsri_tuner_fail(t, BSR_ITEM_NO_MEMORY, (int64_t)(BSRI_TUNE_MEMO * sizeof *c.memo));
    bsri_free(t->ctx, c.memo);
    restored = t->before ? bsri_tuner_copy(t, t->before, 1) : BSR_OK;
    if (status == BSR_OK) status = restored;
    r->stopped = t->ended;
    if (status != BSR_OK || !t->desc->table || !r->row.op) return status;
    if (!(t->desc->flags & BSR_TUNE_STORE_ALWAYS) && !(r->gain > (t->desc->min_gain > 0 ? t->desc->min_gain : 0.05)))
        return BSR_OK;
    BSRI_TRY(bsr_tune_update(t->desc->table, &t->ctx->gpu, &r->row, &t->error));
    r->stored = 1;
    return BSR_OK;
}
/* Numbers of the description that can't be; bsr_error.index counts its fields. */
static bsr_status bsri_tune_check_desc(const bsr_tune_desc *d, bsr_error *error) {
    int64_t field = -1, value = 0;
    int32_t i;
    if (d->output_count < 0) field = 4, value = d->output_count;
    else if (d->flags & ~(BSR_TUNE_STORE_ALWAYS | BSR_TUNE_TRUSTED)) field = 5, value = (int64_t)d->flags;
    else if (d->max_step < 0 || d->max_step > 4) field = 12, value = d->max_step;
    else if (d->reserved) field = 13, value = d->reserved;
    for (i = 0; i < d->output_count && field < 0; i++)
        if (d->outputs[i].reserved) field = 3, value = d->outputs[i].reserved;
    return field < 0 ? BSR_OK : bsri_tune_fail_at(error, BSR_ITEM_TUNE_DESC, BSR_ARG_OPTIONS, field, value);
}
BSR_API bsr_status bsr_tune(const bsr_context *ctx, const bsr_tune_desc *desc, bsr_tune_result *result, bsr_error *error) {
    bsri_tuner t;
    bsr_status status;
    bsri_clear_error(error);
    if (!ctx) return bsri_tune_fail_at(error, BSR_ITEM_CONTEXT_NULL, BSR_ARG_CONTEXT, -1, 0);
    if (!result) return bsri_tune_fail_at(error, BSR_ITEM_OUTPUT_NULL, BSR_ARG_OUT, -1, 0);
    if (!desc || !desc->call || (desc->output_count > 0 && !desc->outputs) ||
        (!desc->now && ((ctx->backend == BSR_BACKEND_CPU && !desc->target) || desc->time_limit > 0)))
        return bsri_tune_fail_at(error, BSR_ITEM_ARGUMENT_NULL, BSR_ARG_OPTIONS, -1, 0);
    BSRI_TRY(bsri_tune_check_desc(desc, error));
    memset(result, 0, sizeof *result), memset(&t, 0, sizeof t);
    t.ctx = ctx, t.desc = desc, t.result = result, t.start = bsri_tuner_now(&t);
    status = bsri_tuner_run(&t);
    bsri_tuner_end(&t);
    if (error && status != BSR_OK) *error = t.error;
    return status;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>constructors: views and matrices by value                                                    */
/* ---------------------------------------------------------------------------------------------- */

/* Inputs may be const; one struct serves inputs and outputs, and only what a call names as an output is written through it. */
static void *bsri_wrapped(const void *data) { return (void *)(uintptr_t)data; }

BSR_API bsr_dense bsr_dense_strided(const void *data, int dtype, int64_t rows, int64_t cols, int64_t row_stride,
                                    int64_t col_stride) {
    bsr_dense d;
    memset(&d, 0, sizeof d);
    d.data = bsri_wrapped(data), d.dtype = dtype, d.rows = rows, d.cols = cols, d.row_stride = row_stride;
    d.col_stride = col_stride;
    return d;
}
BSR_API bsr_dense bsr_dense_row_major(const void *data, int dtype, int64_t rows, int64_t cols) {
    return bsr_dense_strided(data, dtype, rows, cols, cols, 1);
}
BSR_API bsr_dense bsr_dense_col_major(const void *data, int dtype, int64_t rows, int64_t cols) {
    return bsr_dense_strided(data, dtype, rows, cols, 1, rows);
}
BSR_API bsr_dense bsr_dense_transposed(bsr_dense d) {
    bsr_dense t = d;
    t.rows = d.cols, t.cols = d.rows, t.row_stride = d.col_stride, t.col_stride = d.row_stride;
    return t;
}

/* Makes room for one more outermost dimension; more than BSR_MAX_BATCH_DIMS is left to the checks to refuse. */
static void bsri_push_outer(int32_t dims, int64_t *list, int64_t value) {
    int i;
    for (i = dims < BSR_MAX_BATCH_DIMS ? dims : BSR_MAX_BATCH_DIMS - 1; i > 0; i--) list[i] = list[i - 1];
    list[0] = value;
}
BSR_API bsr_dense bsr_dense_batched(bsr_dense d, int64_t n, int64_t stride) {
    if (d.batch_dims < 0 || d.batch_dims >= BSR_MAX_BATCH_DIMS) {
        d.batch_dims = BSR_MAX_BATCH_DIMS + 1;
        return d;
    }
    bsri_push_outer(d.batch_dims, d.batch, n);
    bsri_push_outer(d.batch_dims, d.batch_stride, stride);
    d.batch_dims++;
    return d;
}
BSR_API bsr_matrix bsr_matrix_make(int64_t rows, int64_t cols, int64_t block_rows, int64_t block_cols, int64_t nnz,
                                   const void *crow_indices, const void *col_indices, int index_dtype, const void *values,
                                   int dtype) {
    bsr_matrix m;
    memset(&m, 0, sizeof m);
    m.rows = rows, m.cols = cols, m.block_rows = block_rows, m.block_cols = block_cols, m.nnz = nnz;
    m.crow_indices = bsri_wrapped(crow_indices), m.col_indices = bsri_wrapped(col_indices), m.index_dtype = index_dtype;
    m.values = bsri_wrapped(values), m.dtype = dtype;
    return m;
}
BSR_API bsr_matrix bsr_matrix_batched(bsr_matrix m, int64_t n, int64_t crow_stride, int64_t col_stride, int64_t values_stride) {
    if (m.batch_dims < 0 || m.batch_dims >= BSR_MAX_BATCH_DIMS) {
        m.batch_dims = BSR_MAX_BATCH_DIMS + 1;
        return m;
    }
    bsri_push_outer(m.batch_dims, m.batch, n);
    bsri_push_outer(m.batch_dims, m.crow_batch_stride, crow_stride);
    bsri_push_outer(m.batch_dims, m.col_batch_stride, col_stride);
    bsri_push_outer(m.batch_dims, m.values_batch_stride, values_stride);
    m.batch_dims++;
    return m;
}
BSR_API bsr_operand bsr_operand_dense(const bsr_dense *d) {
    bsr_operand o;
    o.dense = d, o.sparse = NULL;
    return o;
}
BSR_API bsr_operand bsr_operand_sparse(const bsr_matrix *m) {
    bsr_operand o;
    o.dense = NULL, o.sparse = m;
    return o;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>create: contexts and what they can do                                                        */
/* ---------------------------------------------------------------------------------------------- */

static bsr_status bsri_create_fail_cuda(const bsr_context_desc *d, bsr_error *error, int item, int64_t value, int cuda_error) {
    bsr_context log_only;
    memset(&log_only, 0, sizeof log_only);
    log_only.logger = d->logger;
    bsri_record_cuda(&log_only, error, item, BSR_ARG_CONTEXT, -1, value, cuda_error);
    return bsri_items[item].status;
}
static bsr_status bsri_create_fail(const bsr_context_desc *d, bsr_error *error, int item, int64_t value) {
    return bsri_create_fail_cuda(d, error, item, value, 0);
}

static bsr_status bsri_check_desc(const bsr_context_desc *d, bsr_error *error) {
    int i;
    for (i = 0; i < 3; i++)
        if (d->reserved[i]) return bsri_create_fail(d, error, BSR_ITEM_RESERVED, d->reserved[i]);
    if (d->logger.reserved) return bsri_create_fail(d, error, BSR_ITEM_RESERVED, d->logger.reserved);
    if ((d->allocator.alloc_fn == NULL) != (d->allocator.free_fn == NULL))
        return bsri_create_fail(d, error, BSR_ITEM_ALLOCATOR_HALF, 0);
    if (d->backend < BSR_BACKEND_DEFAULT || d->backend > BSR_BACKEND_CUDA)
        return bsri_create_fail(d, error, BSR_ITEM_BACKEND_UNKNOWN, d->backend);
#ifndef BSRI_CUDA
    if (d->backend == BSR_BACKEND_CUDA) return bsri_create_fail(d, error, BSR_ITEM_BACKEND_MISSING, 0);
#endif
    if (d->threads < 0 || d->threads > 4096) return bsri_create_fail(d, error, BSR_ITEM_THREADS, d->threads);
    if (d->isa < BSR_ISA_DEFAULT || d->isa > BSR_ISA_AVX512 || d->isa > bsri_isa_detect())
        return bsri_create_fail(d, error, BSR_ITEM_ISA_MISSING, d->isa);
    return BSR_OK;
}

BSR_API bsr_status bsr_create(const bsr_context_desc *desc, bsr_context **out, bsr_error *error) {
    static const bsr_context_desc defaults = BSR_ZERO;
    const bsr_context_desc *d = desc ? desc : &defaults;
    bsr_context made;
    bsr_context *ctx;
    size_t bytes = sizeof made;
    if (error) memset(error, 0, sizeof *error), error->index = error->wanted = -1;
    if (!out) return bsri_create_fail(d, error, BSR_ITEM_OUTPUT_NULL, 0);
    *out = NULL;
    BSRI_TRY(bsri_check_desc(d, error));
    memset(&made, 0, sizeof made);
    made.backend = BSR_BACKEND_CPU, made.widest = bsri_isa_detect(), made.isa = d->isa ? d->isa : made.widest;
    made.threads = d->threads, made.device = -1;
    made.allocator = d->allocator, made.logger = d->logger, made.table = d->table;
    memcpy(made.gpu.name, "cpu", 4);
    made.parallel_for = d->parallel_for, made.parallel_user = d->parallel_user;
#ifdef BSRI_OPENMP
    if (!made.threads) made.threads = omp_get_max_threads();
#else
    made.threads = 1;
#endif
#ifdef BSRI_CUDA
    if (d->backend != BSR_BACKEND_CPU) {
        int absent;
        const cudaError_t e = bsri_cuda_open(&made, d->device, &absent);
        if (e != cudaSuccess && !(absent && d->backend == BSR_BACKEND_DEFAULT))
            return bsri_create_fail_cuda(d, error, BSR_ITEM_DEVICE_MISSING, 0, (int)e);
    }
#endif
    if (made.backend == BSR_BACKEND_CPU) bytes += (size_t)(BSRI_CONTEXT_BITS / 8);
    ctx = (bsr_context *)bsri_alloc(&made, bytes);
    if (!ctx) return bsri_create_fail(d, error, BSR_ITEM_NO_MEMORY, (int64_t)bytes);
    *ctx = made;
    if (made.backend == BSR_BACKEND_CPU) ctx->bits = (uint64_t *)(ctx + 1);
    *out = ctx;
    return BSR_OK;
}

BSR_API void bsr_destroy(bsr_context *ctx) {
    if (ctx) {
        const bsr_context last = *ctx; /* the allocator outlives the block that names it */
        bsri_free(&last, ctx);
    }
}

BSR_API bsr_status bsr_tune_device(const bsr_context *ctx, bsr_tune_gpu *out) {
    if (!ctx || !out) return BSR_NULL_POINTER;
    *out = ctx->gpu;
    return BSR_OK;
}

BSR_API bsr_status bsr_query_info(const bsr_context *ctx, bsr_info *out) {
    static const char *const isa[] = {"?", "portable", "avx2", "avx512"};
    if (!ctx || !out) return BSR_NULL_POINTER;
    memset(out, 0, sizeof *out);
    out->version = BSR_VERSION, out->backend = ctx->backend, out->isa = ctx->isa, out->threads = ctx->threads;
    out->device = ctx->device, out->sm_count = ctx->sm_count, out->cc_major = ctx->cc_major, out->cc_minor = ctx->cc_minor;
    out->backend_name = ctx->backend == BSR_BACKEND_CUDA ? "cuda" : "cpu", out->isa_name = isa[ctx->isa];
    out->status_of_backends = "cpu portable, avx2, avx512: run on hardware; "
#ifdef BSRI_CUDA
                              "cuda simt, mma: run on sm_90 (H200), compiled only for sm_75 to sm_120; "
                              "cuda wgmma: run on sm_90a (H200)";
#else
                              "cuda: not in this build";
#endif
    return BSR_OK;
}

BSR_API int bsr_supports(const bsr_context *ctx, int op, int dtype, int out_dtype, int64_t block_rows, int64_t block_cols) {
    const int is_float = bsri_is_one_of(BSRI_FLOATS, dtype);
    const int to_float = bsri_is_one_of(BSRI_FLOATS, out_dtype);
    const int same_or_f32 = is_float && (out_dtype == dtype || (out_dtype == BSR_F32 && dtype != BSR_F64));
    if (!ctx || block_rows < 1 || block_cols < 1 || block_rows > (1 << 20) || block_cols > (1 << 20)) return 0;
    if (!bsr_dtype_size(dtype) || !bsr_dtype_size(out_dtype)) return 0;
    if (bsri_is_one_of(BSRI_OPERANDS & ~bsri_compiled_dtypes, dtype)) return 0;
    if (ctx->backend == BSR_BACKEND_CUDA && !bsri_cuda_has(op)) return 0;
    switch (op) {
        case BSR_OP_DENSE_ADDMM:
        case BSR_OP_SCATTER_MM: return BSRI_HAS_PRODUCT && bsri_result_dtype(dtype, out_dtype);
        case BSR_OP_SAMPLED_ADDMM: return BSRI_HAS_SAMPLED && bsri_result_dtype(dtype, out_dtype);
        case BSR_OP_MATMUL:
        case BSR_OP_MATMUL_BACKWARD: return BSRI_HAS_PRODUCT && BSRI_HAS_SAMPLED && bsri_result_dtype(dtype, out_dtype);
        case BSR_OP_SOFTMAX: return BSRI_HAS_ROWS && same_or_f32;
        case BSR_OP_SOFTMAX_BACKWARD:
            return BSRI_HAS_ROWS && is_float && to_float && (dtype == BSR_F64) == (out_dtype == BSR_F64);
        case BSR_OP_ATTENTION: return BSRI_HAS_ATTENTION && same_or_f32;
        case BSR_OP_TO_DENSE:
        case BSR_OP_FROM_DENSE:
        case BSR_OP_FROM_CSR:
        case BSR_OP_FROM_COO:
        case BSR_OP_TO_CSR:
        case BSR_OP_TO_COO:
        case BSR_OP_REBLOCK:
        case BSR_OP_PRUNE: return (is_float && to_float) || (dtype == out_dtype && (dtype == BSR_I8 || dtype == BSR_I32));
        case BSR_OP_VALIDATE:
        case BSR_OP_FROM_BLOCK_MASK:
        case BSR_OP_RANDOM_PATTERN:
        case BSR_OP_TRANSPOSED_INDEX:
        case BSR_OP_SCHEDULE:
        case BSR_OP_LAYOUT: return 1;
        case BSR_OP_SCATTER_INDICES: return BSRI_HAS_PRODUCT;
        default: return 0;
    }
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* BSRSPARSE_IMPLEMENTATION */

/*
MIT No Attribution (MIT-0)

Copyright (c) the bsrsparse authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
