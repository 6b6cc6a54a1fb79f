/* bsrsparse_kernels.cuh: the CUDA kernels of bsrsparse. Included by bsrsparse.h where nvcc compiles the implementation, between
   planning (>>cuda-types to >>cuda-plan: what kernels are given, their tiles, the kernel table, which one runs) and launching.

   CONTENTS: every name is an anchor; search for ">>name:"
     device-numbers          element types in registers
     mma-instructions        cp.async, mbarrier, ldmatrix, mma.sync: one wrapper each
     wgmma-instructions      TMA, wgmma: one wrapper each; tensor maps
     device-lists            what an output tile multiplies
     device-epilogue         from a sum to an element of out
     device-union            which columns a group of block rows needs
     product-simt            sparse x dense, any dtype, block size and stride; a tile in shared memory
     product-tiny            sparse x dense where blocks are too small or too odd for tensor cores
     product-vector          sparse x one column, bound by the bytes of the values
     product-mma-load        sparse x dense by mma.sync: tiles, fetching
     product-mma             sparse x dense by mma.sync: multiplying, epilogue, kernel
     product-small           sparse x dense where there is little to do
     product-narrow-mma      sparse x few columns by mma.sync, bound by the values' bytes
     product-narrow-tma      sparse x few columns by tensor loads
     product-wgmma-schedule  sparse x dense by wgmma: which tile is next; barriers: at product-wgmma
     product-wgmma-lists     which blocks a tile's stages take
     product-wgmma-load      asking for stages
     product-wgmma-epilogue  from sums to out
     product-wgmma-mainloop  what the multiplying warps do
     product-wgmma           the kernel: its memory, barriers and order; both mainloops; tensor maps
     sampled-simt            dense x dense at stored blocks
     sampled-mma             dense x dense at stored blocks by mma.sync
     sampled-wgmma-load      dense x dense at stored blocks by wgmma: who computes what, fetching
     sampled-wgmma           dense x dense at stored blocks by wgmma: multiplying, storing, kernel
     conv-simt               convolutions and their gradients, any dtype, layout, block size
     conv-addresses          pixels, taps and epilogues by 32 bits; lists of data gradients
     conv-alone              depthwise convolutions and their data gradients
     conv-mma                convolutions and data gradients by mma.sync
     conv-weights-mma        weight gradients of convolutions by mma.sync
     device-scores           maxima, exponentials, what is added to scores or forbids them
     device-softmax          rows of stored elements, packed, without biases
     device-softmax-rows     rows of stored elements of any kind: with biases, in f64, any stride
     attention-scores        what happens to a score
     attention-simt          any dtype, head size, block size, stride
     attention-mma-scores    which keys a tile of query rows needs, scores changed column by column
     attention-mma           f16 and bf16 on tensor cores, scores and output in registers
     attention-wgmma-plan    f16 and bf16 on Hopper: what warps tell each other, which query tile is next
     attention-wgmma-load    which keys a query tile needs, fetching
     attention-wgmma         multiplying, softmax, kernel
     device-maps             functions and reductions of stored elements
     device-stage            views copied to views: operands laid anew
     device-sort             filling, stable radix sort of runs of keys
     device-lines            lengths, order and grouping of lines
     device-convert          elements moved and converted; dense forms
     device-build            which blocks hold something, the arrays of a matrix; blocks of another size
     device-validate         the first failing check in the fixed order
     device-indices          index arrays that are looked at before an operation
     device-draw             random patterns and layouts, pruning
     device-entries          from CSR and COO; scatter indices
     kernel-table            functions of instances; loading them

   WORDS, where the field has none, or several
     block row, group    rows of one row of blocks of op(A); block rows that share a tile
     slice, stage        products of one step along the inner size; what one place in a ring holds: stage and phase
     column list         columns of blocks that a group needs, the union of its rows'; a chunk: what is listed at a time
     work tile, unit     what one CTA, what the CTAs of a group compute at a time; claimed by a tile scheduler
     CTA group, panel    CTAs that take tiles beside each other, of the same blocks; the columns of out and b that it has
     strip               16 or 32 rows that a warp has of a tile
     ss, rs              wgmma with op(A) from shared memory (blocks of 64, 128), from registers (16, 32)
     small, narrow       products with little to do; with few columns
     row, long           a row of elements; a row or group with far more blocks than others
     piece               16 bytes: what one instruction copies

   TO ADD (in bsrsparse.h where nothing else is said; what it took: note N31)
     a dtype of operands
       1. A row of BSR_DTYPE_LIST and one of BSRI_TYPES: stored how, results, conversions; BSRI_HAS_ of its switch. The CPU runs.
       2. bsri_dev_dtype of it, here: numbers from elements and back. simt runs.
       3. For tensor cores its bsri_mma_operand (>>cuda-tiles); here bsri_mma(), by wgmma bsri_wgmma and a type of tensor map.
       4. Rows of BSRI_KERNELS_PRODUCT: its tiles, and the costs of kernels that run alike.
       5. Tests draw it: operands.h, ref64.h, gpu_random.cpp.
     a tile of a kernel
       1. A row in its list of BSRI_KERNELS_: number, block, costs, tile type. Rows of a block size stand together.
       2. The tile's type (>>cuda-tiles) asserts what fits; nvcc -Xptxas -v says whether sums spill.
       3. Costs of its own, if it runs unlike others: rows of BSRI_COST_ROWS, by tests/fit_plans.py.
       4. By wgmma it is estimated with those of its block size; by mma in the loop of bsri_mma_estimate().
       5. sh tests/same_code.sh --update; gpu_test runs each instance of the table.
     an operation
       1. BSR_OP_LIST, the public function with its comment, checks, the CPU's engine.
       2. What its kernels are given (>>cuda-types), their tiles; BSRI_FOR_ and rows of the kernel table.
       3. The kernels, in a section here.
       4. Who takes which call (a section >>cuda-plan-...), and in which order (>>cuda-plan).
       5. The call to the backend (>>cuda-products); tests/mirror.h, the stand-in, the random tests.
     a term of the epilogue
       1. A field of bsr_epilogue and its check; bsri_cuda_describe() copies it to bsri_dev_product.
       2. On the CPU bsri_finish_lines(); where it comes last bsri_epilogue_ends() and bsri_activate_row().
       3. Where it comes last: bsri_last_step() says 2 for it, bsri_dev_last() does it. Every kernel has it then.
       4. Else bsri_mma_linear() and bsri_wgmma_epilogue() refuse it, and the general epilogues have it: bsri_dev_writer,
          bsri_dev_finisher::eight() for real numbers and for integers.
       5. To be fast by wgmma: a BSRI_TERM_, and bsri_wgmma_fuse(). */

/* "(note N7)" in a comment names a heading of tests/results/h200_notes.md: what was measured, and what was tried. */
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Private copies of the library (BSRSPARSE_STATIC) have private kernels, whose user functions may differ. */
#ifdef BSRSPARSE_STATIC
namespace {
#endif

/* Kernels with some address arithmetic: ptxas spills some of it for the sake of more threads, unless one CTA is said to be
   enough; not for sm_90, where that would take 22 registers more. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1000)
#define BSRI_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define BSRI_BOUNDS(threads) __launch_bounds__(threads)
#endif

/* Under BSR_EXEC_CHECK_INDICES every kernel of an operation is given the word that the check before it has left, and ends where
   that is not 0, before it reads or writes anything; it begins when the check has ended, never early. That there is a word the
   grid says: it has two layers, of which the second does nothing. Its size stands where each kernel looks first, in the constant
   memory of its launch; to look at one more parameter first would delay small products, as constant memory comes by lines. */
typedef const uint64_t *bsri_gate;
#define BSRI_GATE , bsri_gate gate
#define BSRI_ENTER \
    if (gridDim.z != 1 && (blockIdx.z || *gate)) return

/* ---------------------------------------------------------------------------------------------- */
/* >>device-numbers: element types in registers                                                   */
/* ---------------------------------------------------------------------------------------------- */

/* What kernels know of an operand's dtype: how it is stored, the number that is, and an element of a number, rounded. Those of 16
   bits also by twos. The host's half: BSRI_TYPES. */
template <int DTYPE> struct bsri_dev_dtype;
template <> struct bsri_dev_dtype<BSR_F16> {
    typedef __half stored;
    static __device__ __forceinline__ float number(stored x) { return __half2float(x); }
    static __device__ __forceinline__ stored element(float v) { return __float2half_rn(v); }
    static __device__ __forceinline__ stored element(double v) { return __double2half(v); }
    static __device__ __forceinline__ uint32_t pack(float x, float y) {
        const __half2 h = __floats2half2_rn(x, y);
        return *(const uint32_t *)&h;
    }
    static __device__ __forceinline__ void unpack(float (&x)[2], uint32_t pair) {
        x[0] = __half2float(__ushort_as_half(pair & 0xffff)), x[1] = __half2float(__ushort_as_half(pair >> 16));
    }
};
template <> struct bsri_dev_dtype<BSR_BF16> {
    typedef __nv_bfloat16 stored;
    static __device__ __forceinline__ float number(stored x) { return __bfloat162float(x); }
    static __device__ __forceinline__ stored element(float v) { return __float2bfloat16_rn(v); }
    static __device__ __forceinline__ stored element(double v) { return __double2bfloat16(v); }
    static __device__ __forceinline__ uint32_t pack(float x, float y) {
        const __nv_bfloat162 h = __floats2bfloat162_rn(x, y);
        return *(const uint32_t *)&h;
    }
    static __device__ __forceinline__ void unpack(float (&x)[2], uint32_t pair) {
        x[0] = __uint_as_float(pair << 16), x[1] = __uint_as_float(pair & 0xffff0000u);
    }
};
template <> struct bsri_dev_dtype<BSR_F32> {
    typedef float stored;
    static __device__ __forceinline__ float number(stored x) { return x; }
    template <class F> static __device__ __forceinline__ stored element(F v) { return (float)v; }
};
template <> struct bsri_dev_dtype<BSR_F64> {
    typedef double stored;
    static __device__ __forceinline__ double number(stored x) { return x; }
    template <class F> static __device__ __forceinline__ stored element(F v) { return (double)v; }
};
template <> struct bsri_dev_dtype<BSR_I8> {
    typedef int8_t stored;
    static __device__ __forceinline__ int32_t number(stored x) { return x; }
};

/* log2 of an element's bytes: comparisons would make many kernels' address code much longer. */
__device__ __forceinline__ int bsri_dev_shift(int dtype) { return bsri_dtype_shifts >> 2 * dtype & 3; }
__device__ __forceinline__ int64_t bsri_dev_size(int dtype) { return (int64_t)1 << bsri_dev_shift(dtype); }
__device__ __forceinline__ char *bsri_dev_at(const void *base, int dtype, int64_t element) {
    return (char *)base + element * bsri_dev_size(dtype);
}
/* bsri_index of an entry below 2^31: its low word, which is the same load for either type. */
__device__ __forceinline__ int32_t bsri_dev_index(const void *array, int index_dtype, int64_t i) {
    return *(const int32_t *)((const char *)array + (i << (index_dtype == BSR_I64 ? 3 : 2)));
}
/* One element of a product's operand as F: where F is float or double, of any type that is added up in f32 or f64; where it is
   uint32_t (integers modulo 2^32), of i8 or i32. Fewer types are less code, and this code stands in a kernel many times. */
template <class F> __device__ __forceinline__ F bsri_dev_number(const void *base, int dtype, int64_t i) {
    const char *at = bsri_dev_at(base, dtype, i);
    if constexpr (F(0.5f) == F(0)) return dtype == BSR_I8 ? (F) * (const int8_t *)at : (F) * (const int32_t *)at;
    switch (dtype) {
#define BSRI_X(dtype, ...) \
    case BSR_##dtype: return (F)bsri_dev_dtype<BSR_##dtype>::number(*(const bsri_dev_dtype<BSR_##dtype>::stored *)at);
        BSRI_TYPES_F32(BSRI_X)
#undef BSRI_X
        default: return (F) * (const double *)at; /* of the types that are added up in f64 the only one */
    }
}
/* Of any type. */
template <class F> __device__ __forceinline__ F bsri_dev_load(const void *base, int dtype, int64_t i) {
    const char *at = bsri_dev_at(base, dtype, i);
    switch (dtype) {
        case BSR_I8: return (F) * (const int8_t *)at;
        case BSR_I32: return (F) * (const int32_t *)at;
        case BSR_I64: return (F) * (const int64_t *)at;
        case BSR_BOOL: return (F)(*(const uint8_t *)at != 0);
        default: return (F)bsri_dev_number<decltype(F() * 1.0f)>(base, dtype, i);
    }
}
template <class F> __device__ __forceinline__ void bsri_dev_store(void *base, int dtype, int64_t i, F v) {
    switch (dtype) {
#define BSRI_X(dtype, ...) \
    case BSR_##dtype: ((bsri_dev_dtype<BSR_##dtype>::stored *)base)[i] = bsri_dev_dtype<BSR_##dtype>::element(v); break;
        BSRI_TYPES_F32(BSRI_X)
#undef BSRI_X
        default: ((double *)base)[i] = (double)v; break;
    }
}
__device__ __forceinline__ void bsri_dev_store(void *base, int dtype, int64_t i, uint32_t v) {
    if (dtype == BSR_I8) ((uint8_t *)base)[i] = (uint8_t)v;
    else ((uint32_t *)base)[i] = v;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>mma-instructions: cp.async, mbarrier, ldmatrix, mma.sync: one wrapper each                   */
/* ---------------------------------------------------------------------------------------------- */

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define BSRI_MMA_CODE /* kernels of this tier are empty below sm_80: the host never launches them there */
#endif

/* The kernel after this one may start; what the one before it wrote may be read. Nothing where kernels do not start early. */
__device__ __forceinline__ void bsri_pdl_launch_dependents(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void bsri_pdl_wait(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ uint32_t bsri_smem_address(const void *shared) { return (uint32_t)__cvta_generic_to_shared(shared); }
#ifdef BSRI_MMA_CODE
/* 16 bytes. */
__device__ __forceinline__ void bsri_cp_async(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* The same through the L1, for what warps of a CTA ask for at about the same time. */
__device__ __forceinline__ void bsri_cp_async_l1(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* 16 bytes, of which the first `bytes` are read and the rest become zero. */
__device__ __forceinline__ void bsri_cp_async(uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/* 16 bytes where yes is not 0. */
__device__ __forceinline__ void bsri_cp_async_if(uint32_t to, const void *from, uint32_t yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to), "l"(from),
                 "r"(yes)
                 : "memory");
}
/* The barrier counts this thread once its copies so far have landed. */
__device__ __forceinline__ void bsri_cp_async_arrive(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
/* A barrier of so many threads. Number 0 is __syncthreads', 1 bsri_producer_sync's in kernels that call that; which others a
   kernel has stands at its head. */
__device__ __forceinline__ void bsri_named_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void bsri_named_arrive(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ bool bsri_named_any(int number, int threads, bool yes) {
    int any;
    asm volatile("{ .reg .pred P, Q; setp.ne.s32 P, %3, 0; barrier.cta.red.or.pred Q, %1, %2, P; selp.s32 %0, 1, 0, Q; }"
                 : "=r"(any)
                 : "r"(number), "r"(threads), "r"((int)yes)
                 : "memory");
    return any;
}
/* Of the threads that fetch, among themselves. */
__device__ __forceinline__ void bsri_producer_sync(void) { asm volatile("bar.sync 1, 128;" ::: "memory"); }
__device__ __forceinline__ void bsri_mbarrier_init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void bsri_mbarrier_arrive(uint32_t barrier) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ int bsri_mbarrier_test(uint32_t barrier, uint32_t parity) {
    uint32_t ok;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#else
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(barrier), "r"(parity)
                 : "memory");
#endif
    return (int)ok;
}
__device__ __forceinline__ void bsri_mbarrier_wait(uint32_t barrier, uint32_t parity) {
    while (!bsri_mbarrier_test(barrier, parity)) {
    }
}
/* Where a pipeline stands: the stage of its ring, and the phase, the number of the round modulo 2. N: stages, 0: of any number.
   bsri_wgmma_pipe has the same names beside what else a consumer keeps. bsri_product_mma packs both into one register (`state`),
   as its sums leave no other; bsri_product_small has no barriers, so no phase. */
template <int N = 0> struct bsri_pipe {
    uint32_t stage, phase;
    __device__ __forceinline__ void advance(uint32_t stages = N) {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
};
__device__ __forceinline__ int bsri_mma_read32(uint32_t at) {
    int r;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
    return r;
}
/* A load that stays where it stands: the compiler may not move it to where it is used, nor use a cache that stores bypass. */
__device__ __forceinline__ uint4 bsri_dev_load16(const char *from) {
    uint4 x;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}
__device__ __forceinline__ void bsri_mma_put16(uint32_t to, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ uint32_t bsri_mma_read16(uint32_t at) {
    uint32_t r;
    asm volatile("{ .reg .u16 h; ld.shared.u16 h, [%1]; cvt.u32.u16 %0, h; }" : "=r"(r) : "r"(at) : "memory");
    return r;
}
__device__ __forceinline__ void bsri_mma_load(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void bsri_mma_load_t(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
#endif
#define BSRI_MMA_16(shape, types)                                                                                      \
    asm("mma.sync.aligned." shape ".row.col." types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/* What a tile's type is in memory. */
template <class T> struct bsri_stored : bsri_dev_dtype<T::DTYPE> {};
template <> struct bsri_stored<double> : bsri_dev_dtype<BSR_F64> {};
template <> struct bsri_stored<int8_t> : bsri_dev_dtype<BSR_I8> {};
/* Two sums as a pair of elements of type T. */
template <class T> __device__ __forceinline__ uint32_t bsri_pack(float x, float y) {
    return bsri_dev_dtype<T::DTYPE>::pack(x, y);
}
/* c += a b by one mma.sync. */
template <class T>
__device__ __forceinline__ void bsri_mma(typename T::sum (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void bsri_mma<bsri_mma_bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    BSRI_MMA_16("m16n8k16", "f32.bf16.bf16.f32");
}
template <>
__device__ __forceinline__ void bsri_mma<bsri_mma_f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    BSRI_MMA_16("m16n8k16", "f32.f16.f16.f32");
}
template <>
__device__ __forceinline__ void bsri_mma<bsri_mma_i8>(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void bsri_mma<bsri_mma_tf32>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    BSRI_MMA_16("m16n8k8", "f32.tf32.tf32.f32");
}
#ifdef BSRI_MMA_CODE
/* c += a b, 16 x 8 x 8 in f64: a[0], a[1] are this lane's rows lane / 4 and 8 below it of its first product, a[2], a[3] of its
   second; b0, b1 its column of both. Which products these are does not matter as long as a and b agree. */
__device__ __forceinline__ void bsri_mma(double (&c)[4], const double (&a)[4], double b0, double b1) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b0), "d"(b1));
#else
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1])
            : "d"(a[i]), "d"(i < 2 ? b0 : b1));
#endif
}
/* f32 operands rounded to TF32, to nearest: the instruction itself would cut the low bits off. */
__device__ __forceinline__ uint32_t bsri_mma_round(float x) {
    uint32_t r;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
#endif
    return r;
}
/* An operand in registers as PARTS numbers whose sum it is, and a step of the product. */
template <class T> struct bsri_mma_parts {
    static constexpr int PARTS = 1;
    static __device__ __forceinline__ void split(uint32_t (&)[1][4]) {}
    static __device__ __forceinline__ void mma(typename T::sum (&c)[4], const uint32_t (&a)[1][4], const uint32_t (&b)[1][4],
                                               int side) {
        bsri_mma<T>(c, a[0], b[0][2 * side], b[0][2 * side + 1]);
    }
};
template <> struct bsri_mma_parts<bsri_mma_tf32> {
    static constexpr int PARTS = 1;
    static __device__ __forceinline__ void split(uint32_t (&r)[1][4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) r[0][i] = bsri_mma_round(__uint_as_float(r[0][i]));
    }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[1][4], const uint32_t (&b)[1][4], int side) {
        bsri_mma<bsri_mma_tf32>(c, a[0], b[0][2 * side], b[0][2 * side + 1]);
    }
};
/* What is left of a number after rounding is rounded too: 22 bits. The smallest of the four products is left out. Tensor cores
   cut sums off instead of rounding them, so 8 products at a time are added by the f32 units. */
template <> struct bsri_mma_parts<bsri_mma_tf32x3> {
    static constexpr int PARTS = 2;
    static __device__ __forceinline__ void split(uint32_t (&r)[2][4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = __uint_as_float(r[0][i]);
            r[0][i] = bsri_mma_round(x), r[1][i] = bsri_mma_round(x - __uint_as_float(r[0][i]));
        }
    }
    static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[2][4], const uint32_t (&b)[2][4], int side) {
        float part[4] = {};
        bsri_mma<bsri_mma_tf32>(part, a[1], b[0][2 * side], b[0][2 * side + 1]);
        bsri_mma<bsri_mma_tf32>(part, a[0], b[1][2 * side], b[1][2 * side + 1]);
        bsri_mma<bsri_mma_tf32>(part, a[0], b[0][2 * side], b[0][2 * side + 1]);
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] += part[i];
    }
};
/* 32 lines of 16 bytes (lanes' addresses by bsri_mma_byte_line), transposed: r[0] and r[1] are products lane % 4 * 4 + (0..3) of
   column lane / 4 * 2, of lines 0..15 and 16..31; r[2] and r[3] of the column after it. */
__device__ __forceinline__ uint32_t bsri_mma_byte_line(uint32_t lane) {
    return (lane >> 4) * 16 + (lane >> 3 & 1) * 2 + (lane >> 1 & 3) * 4 + (lane & 1);
}
__device__ __forceinline__ void bsri_mma_load_bytes(uint32_t (&r)[4], uint32_t at) {
    uint32_t q[4];
    bsri_mma_load_t(q, at); /* pairs of bytes of two lines */
    r[0] = __byte_perm(q[0], q[1], 0x6420), r[1] = __byte_perm(q[2], q[3], 0x6420);
    r[2] = __byte_perm(q[0], q[1], 0x7531), r[3] = __byte_perm(q[2], q[3], 0x7531);
}
__device__ __forceinline__ uint32_t bsri_mma_load_word(uint32_t at) {
    uint32_t r;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
    return r;
}
__device__ __forceinline__ void bsri_mma_load(float (&r)[4], uint32_t at) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void bsri_mma_load(double (&r)[2], uint32_t at) {
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(r[0]), "=d"(r[1]) : "r"(at) : "memory");
}
/* The copies of this thread since the last call are one group; all groups but the last PENDING have landed. */
__device__ __forceinline__ void bsri_cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void bsri_cp_async_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ uint32_t bsri_mma_transpose(uint32_t x) {
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void bsri_stmatrix(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}
__device__ __forceinline__ void bsri_stmatrix_t(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}
/* Loads from `at` so that 128 bytes come to the L2, whatever they hold, before the wait. bsri_dev_touched() of the result waits
   until they are there. Plain loads are faster here than prefetches of any kind. One load of each thread at a time, so that the
   kernel before this one can still read, too (note N17). */
__device__ __forceinline__ int32_t bsri_dev_touch(const void *at) {
    int32_t r;
    asm volatile("ld.relaxed.gpu.global.L2::128B.s32 %0, [%1];" : "=r"(r) : "l"(at) : "memory");
    return r;
}
__device__ __forceinline__ void bsri_dev_touched(int32_t r) {
    asm volatile("{ .reg .pred p; setp.eq.s32 p, %0, 0x5a5b5c5d; @p nanosleep.u32 0; }" ::"r"(r) : "memory"); /* uses it */
}
/* Into the L2 only, where it is as current as memory. */
__device__ __forceinline__ void bsri_dev_prefetch(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bsri_dev_prefetch(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
#endif
#endif
/* The swizzle of a row-major dense slice: what the numbers of the 16-byte pieces of line k are XORed with. For ldmatrix, or for
   words of 8 columns in each of four lines; f32 by FFMA reads 16 bytes a lane along a line and needs none. */
template <class T> __device__ __forceinline__ uint32_t bsri_swizzle_b(uint32_t k) {
    return T::BYTES == 4 ? (k & 3) << 1 : T::BYTES == 1 ? (k & 1) | (k >> 1 & 6) : k & 7;
}
template <> __device__ __forceinline__ uint32_t bsri_swizzle_b<bsri_mma_f32>(uint32_t) { return 0; }
template <> __device__ __forceinline__ uint32_t bsri_swizzle_b<bsri_mma_f64>(uint32_t k) { return k >> 1 & 6; }
/* The same of tile L: lines of 64 bytes have four pieces. */
template <class T, class L> __device__ __forceinline__ uint32_t bsri_swizzle_b(uint32_t k) {
    return T::BYTES == 1 && L::BN == 64 ? k >> 2 & 3 : bsri_swizzle_b<T>(k);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>wgmma-instructions: TMA, wgmma: one wrapper each; tensor maps                                */
/* ---------------------------------------------------------------------------------------------- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BSRI_WGMMA_CODE /* kernels of this tier are empty elsewhere: the host never launches them there */
#endif

#ifdef BSRI_WGMMA_CODE
/* The barrier counts this thread, and waits for so many bytes of tensor loads. */
__device__ __forceinline__ void bsri_mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/* After barriers were initialised: the copy engine sees them too. */
__device__ __forceinline__ void bsri_mbarrier_init_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void bsri_tma_prefetch(const bsri_tma_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#define BSRI_TMA_LOAD "shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
__device__ __forceinline__ void bsri_tma_load(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d." BSRI_TMA_LOAD "{%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(c0), "r"(c1)
                 : "memory");
}
__device__ __forceinline__ void bsri_tma_load(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d." BSRI_TMA_LOAD "{%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(c0),
                 "r"(c1), "r"(c2)
                 : "memory");
}
__device__ __forceinline__ void bsri_tma_load(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int c0, int c1, int c2,
                                              int c3) {
    asm volatile("cp.async.bulk.tensor.4d." BSRI_TMA_LOAD "{%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(c0),
                 "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
__device__ __forceinline__ void bsri_tma_load(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int c0, int c1, int c2,
                                              int c3, int c4) {
    asm volatile("cp.async.bulk.tensor.5d." BSRI_TMA_LOAD "{%3, %4, %5, %6, %7}], [%2];" ::"r"(to), "l"(map), "r"(barrier),
                 "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}
/* The lead of tap n over tap 0, as the copy engine takes it: along the last axis from bit 0 on, from bits 16 and 24 on along
   those before it. */
__device__ __forceinline__ uint32_t bsri_im2col_lead(const bsri_dev_im2col &c, uint32_t tap) {
    const uint32_t rows = tap / (uint32_t)c.taps[2], last = tap - rows * (uint32_t)c.taps[2];
    const uint32_t planes = rows / (uint32_t)c.taps[1], row = rows - planes * (uint32_t)c.taps[1];
    return last * (uint32_t)c.apart[2] | row * (uint32_t)c.apart[1] << 16 | planes * (uint32_t)c.apart[0] << 24;
}
/* Channels from c on of pixels that follow each other from (w, h, d, n) on, each as the lead says (bsri_im2col_lead). Of maps of
   less than five dimensions the later ones are not looked at; images come last. */
#define BSRI_TMA_IMAGE "shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, "
__device__ __forceinline__ void bsri_tma_load_image(uint32_t to, const bsri_tma_map *map, uint32_t barrier, int rank, int c,
                                                    const int32_t (&at)[4], uint32_t lead) {
    if (rank == 4)
        asm volatile("{ .reg .b16 x, y; cvt.u16.u32 x, %7; cvt.u16.u32 y, %8; cp.async.bulk.tensor.4d." BSRI_TMA_IMAGE
                     "{%3, %4, %5, %6}], [%2], {x, y}; }" ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(at[3]), "r"(at[2]),
                     "r"(at[0]), "r"(lead & 0xffff), "r"(lead >> 16 & 0xff)
                     : "memory");
    else if (rank == 5)
        asm volatile("{ .reg .b16 x, y, z; cvt.u16.u32 x, %8; cvt.u16.u32 y, %9; cvt.u16.u32 z, %10; cp.async.bulk.tensor.5d."
                     BSRI_TMA_IMAGE "{%3, %4, %5, %6, %7}], [%2], {x, y, z}; }" ::"r"(to), "l"(map), "r"(barrier), "r"(c),
                     "r"(at[3]), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(lead & 0xffff), "r"(lead >> 16 & 0xff), "r"(lead >> 24)
                     : "memory");
    else
        asm volatile("{ .reg .b16 x; cvt.u16.u32 x, %6; cp.async.bulk.tensor.3d." BSRI_TMA_IMAGE
                     "{%3, %4, %5}], [%2], {x}; }" ::"r"(to), "l"(map), "r"(barrier), "r"(c), "r"(at[3]), "r"(at[0]), "r"(lead)
                     : "memory");
}
/* Where pixel n of the grid looks through tap 0: image, then the axes outermost first. */
__device__ __forceinline__ void bsri_im2col_at(const bsri_dev_im2col &c, uint32_t n, int32_t (&at)[4]) {
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        const uint32_t rest = n / (uint32_t)c.count[a];
        at[a + 1] = (int32_t)(n - rest * (uint32_t)c.count[a]) * c.step[a] + c.first[a], n = rest;
    }
    at[0] = (int32_t)n;
}
/* The L2's policy for what is stored: evicted first, or as other lines are. Volatile: made where a tile ends, not before the
   mainloop, through which it would take registers. */
__device__ __forceinline__ uint64_t bsri_l2_policy(bool leaves) {
    uint64_t policy;
    if (leaves) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    else asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void bsri_tma_store(const bsri_tma_map *map, uint32_t from, int c0, int c1, int c2, int c3,
                                               uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;"
                 :
                 : "l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void bsri_tma_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* At most N groups of stores of this thread still read shared memory. */
template <int N> __device__ __forceinline__ void bsri_tma_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/* What this thread wrote to shared memory is seen by tensor cores and the copy engine after the next barrier. */
__device__ __forceinline__ void bsri_fence_proxy_async(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void bsri_wgmma_put(uint32_t to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}
__device__ __forceinline__ void bsri_wgmma_put(uint32_t to, uint32_t x, uint32_t y) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory");
}
/* As bsri_mma_load and bsri_mma_load_t, or nothing. */
__device__ __forceinline__ void bsri_wgmma_load_if(uint32_t (&r)[4], uint32_t at, uint32_t yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
                 : "r"(at), "r"(yes)
                 : "memory");
}
__device__ __forceinline__ void bsri_wgmma_load_t_if(uint32_t (&r)[4], uint32_t at, uint32_t yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; "
                 "@p ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
                 : "r"(at), "r"(yes)
                 : "memory");
}
/* True in one lane of a whole warp, in a way that tells the compiler so: it puts no loop over lanes around a copy then. */
__device__ __forceinline__ bool bsri_elect_one(void) {
    uint32_t yes;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
    return yes != 0;
}
template <int N> __device__ __forceinline__ void bsri_setmaxnreg_inc(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void bsri_setmaxnreg_dec(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
__device__ __forceinline__ void bsri_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void bsri_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void bsri_wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* After a wait: the compiler reads this sum no earlier. */
__device__ __forceinline__ void bsri_wgmma_done(float &sum) { asm volatile("" : "+f"(sum)::"memory"); }
__device__ __forceinline__ void bsri_wgmma_done(int32_t &sum) { asm volatile("" : "+r"(sum)::"memory"); }
template <class S, int N> __device__ __forceinline__ void bsri_wgmma_done(S (&sum)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) bsri_wgmma_done(sum[i]);
}
/* Any value, without an instruction: the first product is not added to it. */
__device__ __forceinline__ void bsri_wgmma_unset(float &sum) { asm volatile("" : "=f"(sum)); }
__device__ __forceinline__ void bsri_wgmma_unset(int32_t &sum) { asm volatile("" : "=r"(sum)); }
/* An address in shared memory as descriptors want it: in a cluster it holds the CTA's rank, too. */
__device__ __forceinline__ uint32_t bsri_wgmma_desc_address(uint32_t at) { return at & 0x3ffff; }
/* A matrix in shared memory as wgmma reads it, from `at` on. */
template <int LINE> __device__ __forceinline__ uint64_t bsri_wgmma_desc(uint32_t at, uint32_t far) {
    return bsri_wgmma_desc_bits(LINE, far) | bsri_wgmma_desc_address(at) >> 4;
}

#define BSRI_WGMMA_TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define BSRI_WGMMA_SUMS_64 BSRI_WGMMA_TEN() BSRI_WGMMA_TEN(1) BSRI_WGMMA_TEN(2) "%30, %31"
#define BSRI_WGMMA_SUMS_128                                                                   \
    BSRI_WGMMA_TEN()                                                                          \
    BSRI_WGMMA_TEN(1)                                                                         \
    BSRI_WGMMA_TEN(2) BSRI_WGMMA_TEN(3) BSRI_WGMMA_TEN(4) BSRI_WGMMA_TEN(5) "%60, %61, %62, " \
                                                                            "%63"
#define BSRI_WGMMA_SUMS_192                                                                                     \
    BSRI_WGMMA_TEN()                                                                                            \
    BSRI_WGMMA_TEN(1)                                                                                           \
    BSRI_WGMMA_TEN(2) BSRI_WGMMA_TEN(3) BSRI_WGMMA_TEN(4) BSRI_WGMMA_TEN(5) BSRI_WGMMA_TEN(6) BSRI_WGMMA_TEN(7) \
        BSRI_WGMMA_TEN(8) "%90, %91, %92, %93, %94, %95"
#define BSRI_WGMMA_SUMS_256                                                                                     \
    BSRI_WGMMA_TEN()                                                                                            \
    BSRI_WGMMA_TEN(1)                                                                                           \
    BSRI_WGMMA_TEN(2) BSRI_WGMMA_TEN(3) BSRI_WGMMA_TEN(4) BSRI_WGMMA_TEN(5) BSRI_WGMMA_TEN(6) BSRI_WGMMA_TEN(7) \
        BSRI_WGMMA_TEN(8) BSRI_WGMMA_TEN(9) BSRI_WGMMA_TEN(10) BSRI_WGMMA_TEN(11) "%120, "                      \
                                                                                  "%121, %122, %123, %124, %125, %126, %127"
#define BSRI_WGMMA_8(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define BSRI_WGMMA_32(c, i) BSRI_WGMMA_8(c, i), BSRI_WGMMA_8(c, i + 8), BSRI_WGMMA_8(c, i + 16), BSRI_WGMMA_8(c, i + 24)
#define BSRI_WGMMA_OUT_64(c) BSRI_WGMMA_32(c, 0)
#define BSRI_WGMMA_OUT_128(c) BSRI_WGMMA_32(c, 0), BSRI_WGMMA_32(c, 32)
#define BSRI_WGMMA_OUT_192(c) BSRI_WGMMA_32(c, 0), BSRI_WGMMA_32(c, 32), BSRI_WGMMA_32(c, 64)
#define BSRI_WGMMA_OUT_256(c) BSRI_WGMMA_32(c, 0), BSRI_WGMMA_32(c, 32), BSRI_WGMMA_32(c, 64), BSRI_WGMMA_32(c, 96)
/* c: constraint of a sum; scale, ab: numbers of the operands; tail: what follows the predicate */
#define BSRI_WGMMA(N, c, type, scale, ab, tail, ...)                                                      \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " scale ", 0; wgmma.mma_async.sync.aligned.m64n" #N type \
                 " {" BSRI_WGMMA_SUMS_##N "}, " ab ", p" tail "; }"                                       \
                 : BSRI_WGMMA_OUT_##N(c)                                                                  \
                 : __VA_ARGS__)
/* 64 rows, N columns. ss: both operands in shared memory; rs: rows in registers, a warp's 16 as mma.sync has them. TA, TB: 1
   where products do not run along the rows of shared memory. Sums are added to where keep is not 0. */
template <class T, int N, int TA = 0, int TB = 0> struct bsri_wgmma;
#define BSRI_WGMMA_SHAPE(N, T, F, c, type, n0, n1, n2, n3, n4, n5, n6, ss_tail, rs_tail)                                  \
    template <int TA, int TB> struct bsri_wgmma<T, N, TA, TB> {                                                           \
        static __device__ __forceinline__ void ss(F (&d)[N / 2], uint64_t a, uint64_t b, int keep = 1) {                  \
            BSRI_WGMMA(N, c, type, n0, n1 ", " n2, ss_tail, "r"(keep), "l"(a), "l"(b), "n"(TA), "n"(TB));                 \
        }                                                                                                                 \
        static __device__ __forceinline__ void rs(F (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int keep = 1) {      \
            BSRI_WGMMA(N, c, type, n0, "{" n1 ", " n2 ", " n3 ", " n4 "}, " n5, rs_tail, "r"(keep), "r"(a[0]), "r"(a[1]), \
                       "r"(a[2]), "r"(a[3]), "l"(b), "n"(TB));                                                            \
        }                                                                                                                 \
    };
#define BSRI_WGMMA_FLOAT(T, type)                                                                                             \
    BSRI_WGMMA_SHAPE(64, T, float, "+f", type, "%32", "%33", "%34", "%35", "%36", "%37", "%38", ", 1, 1, %35, %36",           \
                     ", 1, 1, %38")                                                                                           \
    BSRI_WGMMA_SHAPE(128, T, float, "+f", type, "%64", "%65", "%66", "%67", "%68", "%69", "%70", ", 1, 1, %67, %68",          \
                     ", 1, 1, %70")                                                                                           \
    BSRI_WGMMA_SHAPE(192, T, float, "+f", type, "%96", "%97", "%98", "%99", "%100", "%101", "%102", ", 1, 1, %99, %100",      \
                     ", 1, 1, %102")                                                                                          \
    BSRI_WGMMA_SHAPE(256, T, float, "+f", type, "%128", "%129", "%130", "%131", "%132", "%133", "%134", ", 1, 1, %131, %132", \
                     ", 1, 1, %134")
BSRI_WGMMA_FLOAT(bsri_mma_bf16, "k16.f32.bf16.bf16")
BSRI_WGMMA_FLOAT(bsri_mma_f16, "k16.f32.f16.f16")
/* 32 products; both operands along them only */
BSRI_WGMMA_SHAPE(64, bsri_mma_i8, int32_t, "+r", "k32.s32.s8.s8", "%32", "%33", "%34", "%35", "%36", "%37", "%38", "", "")
BSRI_WGMMA_SHAPE(128, bsri_mma_i8, int32_t, "+r", "k32.s32.s8.s8", "%64", "%65", "%66", "%67", "%68", "%69", "%70", "", "")
BSRI_WGMMA_SHAPE(256, bsri_mma_i8, int32_t, "+r", "k32.s32.s8.s8", "%128", "%129", "%130", "%131", "%132", "%133", "%134", "", "")
#endif

/* A tensor map of `rank` dimensions, the first contiguous: sizes and box in elements, strides of the others in bytes, swizzle in
   bytes of a row (0: none). pairs: with a row of 128 bytes the L2 also brings the 128 bytes beside it, which may be for nothing
   (note N22). 0 where the device or the encoder can't have it: the product is another tier's. */
static int bsri_tensor_map(const bsr_context *ctx, bsri_tma_map *map, int dtype, const void *base, int rank,
                                       const int64_t *size, const int64_t *stride, const int32_t *box, int swizzle, int pairs) {
    typedef CUresult (*bsri_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const CUtensorMapDataType type = dtype == BSR_BF16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : dtype == BSR_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                     : dtype == BSR_F32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                     : dtype == BSR_I32 ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                                        : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    const CUtensorMapSwizzle line = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                    : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                    : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                    : CU_TENSOR_MAP_SWIZZLE_NONE;
    const CUtensorMapL2promotion ahead = /* also for rows of 64 bytes, which are faster so (note N22) */
        swizzle == 128 && pairs ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    cuuint64_t dim[5], step[4] = {0, 0, 0, 0};
    cuuint32_t part[5], one[5];
    int i;
    if (!ctx->tensor_map || (uintptr_t)base % 16 || rank > 5) return 0;
    for (i = 0; i < rank; i++) {
        if (size[i] < 1 || size[i] > INT32_MAX || (i && (stride[i - 1] < 16 || stride[i - 1] % 16 || stride[i - 1] >> 40)))
            return 0;
        dim[i] = (cuuint64_t)size[i], part[i] = (cuuint32_t)box[i], one[i] = 1;
        if (i) step[i - 1] = (cuuint64_t)stride[i - 1];
    }
    return ((bsri_encode)ctx->tensor_map)((CUtensorMap *)map, type, (cuuint32_t)rank, (void *)(uintptr_t)base, dim, step, part,
                                          one, CU_TENSOR_MAP_INTERLEAVE_NONE, line, ahead,
                                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
/* A map of images for convolutions: `pixels` of the grid at a time, `channels` of each, where the axes that count are the last
   rank - 2. 0: beyond what the copy engine can have. */
static int bsri_image_map(const bsr_context *ctx, bsri_tma_map *map, int dtype, const bsri_dev_im2col *c, int32_t channels,
                          int32_t pixels, int swizzle) {
    typedef CUresult (*bsri_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                    const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t, const cuuint32_t *,
                                    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const CUtensorMapSwizzle line = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                    : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                    : CU_TENSOR_MAP_SWIZZLE_32B;
    const int64_t alone = bsri_ceil_div(c->all_channels * (int64_t)bsr_dtype_size(dtype), 16) * 16; /* a stride that none has */
    cuuint64_t dim[5], step[4];
    cuuint32_t traverse[5] = {1, 1, 1, 1, 1};
    int low[3], high[3], a, n = c->rank - 2;
    if (!ctx->image_map) return 0;
    dim[0] = (cuuint64_t)c->all_channels;
    for (a = 0; a < n; a++) { /* from the last axis on */
        const int axis = 2 - a;
        dim[a + 1] = (cuuint64_t)c->x.size[axis], low[a] = c->first[axis], traverse[a + 1] = (cuuint32_t)c->step[axis];
        high[a] = c->first[axis] + (c->count[axis] - 1) * c->step[axis] + 1 - c->x.size[axis];
        step[a] = (cuuint64_t)(c->x.size[axis] > 1 ? (int64_t)c->x.step[axis + 1] * 16 : alone);
    }
    dim[n + 1] = (cuuint64_t)c->images, step[n] = (cuuint64_t)(c->images > 1 ? (int64_t)c->x.step[0] * 16 : alone);
    for (a = 0; a <= n; a++)
        if (!dim[a + 1] || !step[a] || step[a] >> 40) return 0;
    return ((bsri_encode)ctx->image_map)((CUtensorMap *)map,
                                         dtype == BSR_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                         (cuuint32_t)c->rank, (void *)(uintptr_t)c->x.data, dim, step, low, high,
                                         (cuuint32_t)channels, (cuuint32_t)pixels, traverse, CU_TENSOR_MAP_INTERLEAVE_NONE, line,
                                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
__device__ __forceinline__ void bsri_tensor_item(const bsri_tensor_batch &b, int64_t offset, int32_t &c0, int32_t &c1) {
    c1 = b.stride[1] ? (int32_t)(offset / b.stride[1]) : 0;
    if (b.stride[1]) offset -= c1 * b.stride[1];
    c0 = b.stride[0] ? (int32_t)(offset / b.stride[0]) : 0;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-lists: what an output tile multiplies                                                 */
/* ---------------------------------------------------------------------------------------------- */

__device__ __forceinline__ bsri_item bsri_dev_matrix_item(const bsri_batch *b, int64_t item, const bsr_matrix *m) {
    const bsri_arrays w = bsri_matrix_walk(b, item, m);
    return {bsri_dev_at(m->crow_indices, m->index_dtype, w.crow), bsri_dev_at(m->col_indices, m->index_dtype, w.col),
            bsri_dev_at(m->values, m->dtype, w.values), w.pattern};
}

/* A step of the sum that makes an item of out: a pair of operands, and which problem item of them. A sum over more than one pair
   is a longer list of steps. */
struct bsri_dev_step {
    const bsr_matrix &a;
    const bsr_dense &b;
    int64_t item;
};
__device__ __forceinline__ bsri_dev_step bsri_dev_step_of(const bsri_dev_product &p, int64_t item, int64_t r) {
    return {p.a, p.b, bsri_reduce_item(&p.whole, &p.out_batch, item, r)};
}

/* A cursor over (offset in a's values, offset in b) of one output tile; every thread walks the same list. As the CPU's
   bsri_cursor; kernels by mma and wgmma, which take no scatter lists nor scans, read bsri_mma_rows, many entries at a time. */
struct bsri_dev_list {
    const void *crow, *col, *row, *position, *starts; /* starts: where each tile's entries start */
    const char *a, *b; /* bases of this item */
    int64_t at, end, extra;

    __device__ void begin_matrix(const bsri_dev_product &p, const bsri_dev_step &s, int64_t tile) {
        const bsri_item it = bsri_dev_matrix_item(&p.whole, s.item, &s.a);
        const int dt = s.a.index_dtype, ragged = (s.a.flags & BSR_MATRIX_RAGGED) != 0;
        crow = starts = it.crow, col = it.col, a = it.values, extra = 0;
        b = bsri_dev_at(s.b.data, s.b.dtype, bsri_dense_offset(&p.whole, s.item, &s.b));
        if (p.kind == BSRI_LIST_ROWS) {
            at = bsri_index(crow, dt, tile), end = bsri_index(crow, dt, tile + 1);
        } else if (p.kind == BSRI_LIST_TRANSPOSED) {
            const char *view = (const char *)s.a.transposed_index;
            const void *ccol = bsri_dev_at(view + p.index.at[BSRI_CCOL], dt, it.pattern * (p.lines + 1));
            const int64_t shift = ragged ? 0 : it.pattern * p.index.entries;
            row = bsri_dev_at(view + p.index.at[BSRI_ROW], dt, shift);
            position = bsri_dev_at(view + p.index.at[BSRI_POSITION], dt, shift);
            starts = ccol, at = bsri_index(ccol, dt, tile), end = bsri_index(ccol, dt, tile + 1);
        } else {
            at = bsri_index(crow, dt, 0), end = bsri_index(crow, dt, bsri_block_rows(&s.a));
        }
    }
    __device__ void begin_scatter(const bsri_dev_product &p, int64_t item, int64_t tile) {
        const bsr_scatter_indices &s = p.scatter;
        a = (const char *)p.blocks.data, extra = 0;
        b = (const char *)p.b.data;
        if (p.kind != BSRI_LIST_SCATTER) b = bsri_dev_at(b, p.b.dtype, bsri_dense_offset(&p.whole, item, &p.b));
        if (p.kind == BSRI_LIST_COMPRESSED) {
            const int64_t n = p.out.cols, m = s.r_offsets[tile] / n / p.br, j = s.r_offsets[tile] % n / p.width;
            const int64_t c0 = s.c_indices[m], c1 = s.c_indices[m + 1], split = n / p.width;
            at = c0, end = c1, extra = j * c1 + (split - j) * c0 - c0;
        } else {
            at = s.c_indices[tile], end = s.c_indices[tile + 1];
        }
    }
    /* Of 32 entries from `at` on the first in this column, and its row; or false: then `at` is the last of them. A warp's lanes
       look at one each. */
    __device__ bool scan(const bsri_dev_product &p, int64_t tile) {
        const int dt = p.a.index_dtype, lane = (int)threadIdx.x & 31;
        const int64_t rows = bsri_block_rows(&p.a);
        uint32_t found = __ballot_sync(~0u, at + lane < end && bsri_index(col, dt, at + lane) == tile);
        at += found ? __ffs((int)found) - 1 : 31;
        if (!found) return false;
        for (; !(found = __ballot_sync(~0u, extra + lane >= rows || bsri_index(crow, dt, extra + lane + 1) > at)); extra += 32) {}
        extra += __ffs((int)found) - 1;
        return true;
    }
    /* The next entry, or false. */
    __device__ bool next(const bsri_dev_product &p, int64_t tile, int64_t *a_at, int64_t *b_at) {
        const int64_t step = p.bc * p.view.cols * p.b.row_stride;
        const int dt = p.a.index_dtype;
        int64_t q;
        for (; at < end; at++) {
            switch (p.kind) {
                case BSRI_LIST_ROWS: *a_at = at * p.a_block, *b_at = bsri_index(col, dt, at) * step; break;
                case BSRI_LIST_TRANSPOSED:
                    *a_at = bsri_index(position, dt, at) * p.a_block, *b_at = bsri_index(row, dt, at) * step;
                    break;
                case BSRI_LIST_SCAN:
                    if (!scan(p, tile)) continue;
                    *a_at = at * p.a_block, *b_at = extra * step;
                    break;
                case BSRI_LIST_SCATTER:
                    *a_at = p.scatter.p_indices[at] * p.a_block;
                    *b_at = bsri_dense_offset(&p.b_batch, p.scatter.q_indices[at], &p.b);
                    break;
                default:
                    q = p.kind == BSRI_LIST_STRIDED ? p.scatter.q_indices[at] : p.scatter.q_indices[extra + at];
                    *a_at = (p.kind == BSRI_LIST_STRIDED ? p.scatter.p_indices[at] : at) * p.a_block;
                    *b_at = q / p.b.cols * p.b.row_stride + q % p.b.cols * p.b.col_stride;
                    break;
            }
            at++;
            return true;
        }
        return false;
    }
};

/* ---------------------------------------------------------------------------------------------- */
/* >>device-epilogue: from a sum to an element of out                                             */
/* ---------------------------------------------------------------------------------------------- */

/* Terms come in one order everywhere: alpha, left, right, beta times input, bias, what comes last. Any epilogue there is runs by
   bsri_dev_writer, an element at a time, or bsri_dev_finisher, eight. Kernels have ways of their own for what is common: alpha
   alone, an input; wgmma also rows, columns and activations. These stand apart, as each finds the sums elsewhere, in the
   registers of mma.sync or wgmma or in a box, and as code that must be fetched costs as much as arithmetic (note N16). The CPU's
   is bsri_finish_tile(): it takes whole rows, and is C. */

template <class F> struct bsri_dev_scalar {
    static __device__ F of(double x) { return (F)x; }
};
template <> struct bsri_dev_scalar<uint32_t> {
    static __device__ uint32_t of(double x) { return (uint32_t)(int64_t)x; }
};

/* The activations of bsri_activate_f32 with the units for 2^x and 1 / x: off by less than 3 u |x|, with 5 to 12 instructions in
   place of 25 to 40 (erff, tanhf, and a division's slow case, which is a call). */
__device__ __forceinline__ float bsri_dev_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float bsri_dev_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* The larger; NaN if either is; with b = 0 never -0. */
__device__ __forceinline__ float bsri_dev_max(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a != a || a > b ? a : b;
#endif
}
template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation(float x) {
    if constexpr (ACTIVATION == BSR_ACT_RELU) return bsri_dev_max(x, 0.0f);
    if constexpr (ACTIVATION == BSR_ACT_GELU) { /* max(x, 0) - |x| erfc(|x| / sqrt 2) / 2; that factor's logarithm is smooth */
        const float t = fminf(fabsf(x), 64.0f);
        float y = fmaf(-1.2845627e-6f, t, 2.1401603e-5f);
        y = fmaf(y, t, -1.0557014e-4f), y = fmaf(y, t, -3.1572227e-4f), y = fmaf(y, t, 7.27114e-3f);
        y = fmaf(y, t, -5.2618985e-2f), y = fmaf(y, t, -4.5917552e-1f), y = fmaf(y, t, -1.151108f), y = fmaf(y, t, -1.0f);
        return fmaf(-t, bsri_dev_exp2(y), bsri_dev_max(0.0f, x));
    }
    /* x / (1 + e^-2u), e^-x: as powers of two */
    if constexpr (ACTIVATION == BSR_ACT_GELU_TANH)
        return x * bsri_dev_inverse(1.0f + bsri_dev_exp2(x * fmaf(-0.10294324f, x * x, -2.3022082f)));
    return x * bsri_dev_inverse(1.0f + bsri_dev_exp2(-1.442695f * x));
}
template <int ACTIVATION, int N> __device__ __forceinline__ void bsri_dev_activation(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = bsri_dev_activation<ACTIVATION>(x[i]);
}
/* N numbers side by side: one after another each would wait for the last. The program's own functions are not among these. */
template <int N> __device__ __forceinline__ void bsri_dev_activate(float (&x)[N], int activation) {
    if (activation <= BSR_ACT_RELU) { /* no switch: a jump through a table takes longer than this */
        if (activation == BSR_ACT_RELU) bsri_dev_activation<BSR_ACT_RELU>(x);
    } else if (activation == BSR_ACT_GELU) {
        bsri_dev_activation<BSR_ACT_GELU>(x);
    } else if (activation == BSR_ACT_SILU) {
        bsri_dev_activation<BSR_ACT_SILU>(x);
    } else {
        bsri_dev_activation<BSR_ACT_GELU_TANH>(x);
    }
}
/* What bsri_last_step() calls 2; in f64 below. */
__device__ __forceinline__ float bsri_dev_last(const bsri_dev_product &p, float x, const bsr_position &at) {
    return bsri_activate_user(p.activation, x, &at, p.user_data);
}
__device__ __forceinline__ float bsri_dev_activate(const bsri_dev_product &p, float x, const bsr_position &at) {
    float y[1] = {x};
    if (p.activation >= BSR_USER_FUNCTION_BASE) return bsri_dev_last(p, x, at);
    bsri_dev_activate(y, p.activation);
    return y[0];
}
__device__ __forceinline__ double bsri_dev_activate(const bsri_dev_product &p, double x, const bsr_position &at) {
    return p.activation ? bsri_activate_f64(p.activation, x, &at, p.user_data) : x;
}
__device__ __forceinline__ uint32_t bsri_dev_activate(const bsri_dev_product &, uint32_t x, const bsr_position &) { return x; }

/* Writes out(row, col) of an item from the sums of its products; what belongs to the item alone is worked out once. */
template <class F> struct bsri_dev_writer {
    enum { ALPHA = 1, LEFT = 2, RIGHT = 4, INPUT = 8, BIAS = 16, ACTIVATION = 32 };
    const bsri_dev_product &p;
    F alpha, beta;
    int32_t has;
    int64_t item, left, right, input, bias, out; /* elements before the item's own */

    /* of item 0 */
    __device__ __forceinline__ bsri_dev_writer(const bsri_dev_product &p_, double alpha_, double beta_)
        : p(p_), alpha(bsri_dev_scalar<F>::of(alpha_)), beta(bsri_dev_scalar<F>::of(beta_)), item(0), left(0), right(0), input(0),
          bias(0), out(0) {
        has = (alpha_ != 1.0 ? ALPHA : 0) | (p.left.data ? LEFT : 0) | (p.right.data ? RIGHT : 0) |
              (p.has_input && beta_ != 0.0 ? INPUT : 0) | (p.bias.data ? BIAS : 0) | (bsri_last_step(&p) ? ACTIVATION : 0);
    }
    __device__ __forceinline__ bsri_dev_writer(const bsri_dev_product &p_, double alpha_, double beta_, int64_t item_)
        : bsri_dev_writer(p_, alpha_, beta_) {
        if (!item_) return; /* nearly always; saves the walks over batches (note N17) */
        item = item_, out = bsri_dense_offset(&p.out_batch, item, &p.out);
        if (has & LEFT) left = bsri_dense_offset(&p.out_batch, item, &p.left);
        if (has & RIGHT) right = bsri_dense_offset(&p.out_batch, item, &p.right);
        if (has & INPUT) input = bsri_dense_offset(&p.out_batch, item, &p.input);
        if (has & BIAS) bias = bsri_dense_offset(&p.out_batch, item, &p.bias);
    }
    /* Element (row, col) of an operand that may be repeated. */
    static __device__ __forceinline__ F of(const bsr_dense &d, int64_t first, int64_t row, int64_t col) {
        return bsri_dev_number<F>(d.data, d.dtype,
                                  first + (d.rows == 1 ? 0 : row * d.row_stride) + (d.cols == 1 ? 0 : col * d.col_stride));
    }
    /* Up to the activation. */
    __device__ __forceinline__ F linear(F v, int64_t row, int64_t col) const {
        if (has & ALPHA) v *= alpha;
        if (has & LEFT) v *= of(p.left, left, row, 0);
        if (has & RIGHT) v *= of(p.right, right, 0, col);
        if (has & INPUT) v += beta * of(p.input, input, row, col);
        if (has & BIAS) v += of(p.bias, bias, row, col);
        return v;
    }
    __device__ __forceinline__ void operator()(F v, int64_t row, int64_t col) const {
        if (has) v = linear(v, row, col); /* most have nothing: one branch */
        store(v, row, col);
    }
    __device__ __forceinline__ void store(F v, int64_t row, int64_t col) const {
        if (has & ACTIVATION) {
            bsr_position at;
            at.batch = item, at.head = 0, at.row = row, at.col = col;
            v = bsri_dev_activate(p, v, at);
        }
        bsri_dev_store(p.out.data, p.out.dtype, out + row * p.out.row_stride + col * p.out.col_stride, v);
    }
};
template <class F>
__device__ __forceinline__ void bsri_dev_finish(const bsri_dev_product &p, F v, double alpha, double beta, int64_t item,
                                                int64_t row, int64_t col) {
    bsri_dev_writer<F>(p, alpha, beta, item)(v, row, col);
}

/* --- the same for a tile, eight elements at a time --- */

/* An operand of the epilogue, or out: those of an item. */
struct bsri_dev_operand {
    const char *data; /* null: absent */
    int64_t rs, cs;   /* 0: repeated */
    int32_t dtype, reserved;
};
__device__ __forceinline__ bsri_dev_operand bsri_dev_operand_of(const bsri_batch *batch, int64_t item, const bsr_dense *d) {
    bsri_dev_operand o;
    o.rs = d->rows == 1 ? 0 : d->row_stride, o.cs = d->cols == 1 ? 0 : d->col_stride, o.dtype = d->dtype, o.reserved = 0;
    o.data = d->data ? bsri_dev_at(d->data, d->dtype, bsri_dense_offset(batch, item, d)) : NULL;
    return o;
}
__device__ __forceinline__ void bsri_dev_unpack(float (&x)[2], uint32_t pair, int dtype) {
    if (dtype == BSR_BF16) bsri_dev_dtype<BSR_BF16>::unpack(x, pair);
    else bsri_dev_dtype<BSR_F16>::unpack(x, pair);
}
/* An element of one of the two types of 16 bits. */
__device__ __forceinline__ float bsri_dev_half(const void *base, int dtype, int64_t i) {
    float x[2];
    bsri_dev_unpack(x, ((const uint16_t *)base)[i], dtype);
    return x[0];
}
/* The first n of eight elements `step` apart, the others 0. All are asked for before the first is used. */
__device__ __forceinline__ void bsri_dev_load8(float (&x)[8], const bsri_dev_operand &o, int64_t offset, int64_t step, int n) {
    const char *at = bsri_dev_at(o.data, o.dtype, offset);
    const bool half = o.dtype == BSR_BF16 || o.dtype == BSR_F16, whole = step == 1 && n == 8 && (uintptr_t)at % 16 == 0;
    if (half) {
        uint32_t q[4];
        if (whole) {
            const uint4 all = *(const uint4 *)at;
            q[0] = all.x, q[1] = all.y, q[2] = all.z, q[3] = all.w;
        } else {
            uint16_t h[8];
#pragma unroll
            for (int i = 0; i < 8; i++) h[i] = i < n ? ((const uint16_t *)at)[i * step] : 0;
#pragma unroll
            for (int i = 0; i < 4; i++) q[i] = h[2 * i] | (uint32_t)h[2 * i + 1] << 16;
        }
        const bool bf16 = o.dtype == BSR_BF16;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float f[2], b[2];
            bsri_dev_unpack(f, q[i], BSR_F16), bsri_dev_unpack(b, q[i], BSR_BF16);
            x[2 * i] = bf16 ? b[0] : f[0], x[2 * i + 1] = bf16 ? b[1] : f[1];
        }
    } else if (o.dtype == BSR_F32 && whole) {
        const float4 y = ((const float4 *)at)[0], z = ((const float4 *)at)[1];
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w, x[4] = z.x, x[5] = z.y, x[6] = z.z, x[7] = z.w;
    } else if (o.dtype == BSR_F32) {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = i < n ? ((const float *)at)[i * step] : 0.0f;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = i < n ? (float)((const double *)at)[i * step] : 0.0f;
    }
}
__device__ __forceinline__ void bsri_dev_store8(const bsri_dev_operand &o, int64_t offset, int64_t step, int n,
                                                const float (&x)[8]) {
    char *at = bsri_dev_at(o.data, o.dtype, offset);
    const bool whole = step == 1 && n == 8 && (uintptr_t)at % 16 == 0;
    if (o.dtype == BSR_F32) {
        if (whole) {
            ((float4 *)at)[0] = make_float4(x[0], x[1], x[2], x[3]), ((float4 *)at)[1] = make_float4(x[4], x[5], x[6], x[7]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < n) ((float *)at)[i * step] = x[i];
        }
        return;
    }
    uint32_t q[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __nv_bfloat162 b = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        const __half2 h = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
        q[i] = o.dtype == BSR_BF16 ? *(const uint32_t *)&b : *(const uint32_t *)&h;
    }
    if (whole) {
        *(uint4 *)at = make_uint4(q[0], q[1], q[2], q[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n) ((uint16_t *)at)[i * step] = (uint16_t)(q[i / 2] >> i % 2 * 16);
    }
}
__device__ __forceinline__ void bsri_dev_store8(const bsri_dev_operand &o, int64_t offset, int64_t step, int n,
                                                const uint32_t (&x)[8]) {
    char *at = bsri_dev_at(o.data, o.dtype, offset);
    const bool bytes = o.dtype == BSR_I8, whole = step == 1 && n == 8 && (uintptr_t)at % (bytes ? 8 : 16) == 0;
    if (whole && bytes) {
        *(uint2 *)at = make_uint2(__byte_perm(__byte_perm(x[0], x[1], 0x40), __byte_perm(x[2], x[3], 0x40), 0x5410),
                                  __byte_perm(__byte_perm(x[4], x[5], 0x40), __byte_perm(x[6], x[7], 0x40), 0x5410));
    } else if (whole) {
        ((uint4 *)at)[0] = make_uint4(x[0], x[1], x[2], x[3]), ((uint4 *)at)[1] = make_uint4(x[4], x[5], x[6], x[7]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n) bsri_dev_store(at, o.dtype, i * step, x[i]);
    }
}
/* What a warp's epilogue reads and writes, in shared memory: one loop goes over the operands, so that its code stands once. */
struct bsri_dev_finisher {
    bsri_dev_operand operand[5]; /* of an item: left, right, input, bias, out */
    int64_t item;
    float alpha, beta;
    uint32_t has; /* one bit for each operand but out that may be there; kept, as computing it again would take registers */
    int32_t c0, c1; /* the wgmma tier's: of the item in out's tensor map */

    /* By five lanes, numbers k: an operand each, so that the code stands once. */
    __device__ __forceinline__ void begin(const bsri_dev_product &p, int64_t item_, int k) {
        const bsr_dense *const d = k == 0 ? &p.left : k == 1 ? &p.right : k == 2 ? &p.input : k == 3 ? &p.bias : &p.out;
        const double b = p.beta_ptr ? *p.beta_ptr : p.beta;
        bsri_dev_operand o = bsri_dev_operand_of(&p.out_batch, item_, d);
        if (k == 0) o.cs = 0;
        if (k == 1) o.rs = 0;
        if (k == 2 && (b == 0.0 || !p.has_input)) o.data = NULL;
        if (k == 4) o.rs = d->row_stride, o.cs = d->col_stride;
        operand[k] = o;
        if (k) return;
        item = item_, alpha = (float)(p.alpha_ptr ? *p.alpha_ptr : p.alpha), beta = (float)b;
        has = (p.left.data != NULL) | (p.right.data != NULL) << 1 | (p.has_input != 0) << 2 | (p.bias.data != NULL) << 3;
    }
    /* Eight sums in shared memory, `step` apart, of out's (row, col) and those after it along rows or columns: n are inside.
       Those of a row start at 16 bytes. */
    __device__ __forceinline__ void eight(const bsri_dev_product &p, float *sum, int step, int64_t row, int64_t col,
                                          bool by_rows, int n) const {
        const bsri_dev_operand &out = operand[4];
        float v[8], x[8];
        if (by_rows) {
            const float4 y = ((const float4 *)sum)[0], z = ((const float4 *)sum)[1];
            v[0] = y.x, v[1] = y.y, v[2] = y.z, v[3] = y.w, v[4] = z.x, v[5] = z.y, v[6] = z.z, v[7] = z.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = sum[i * step];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= alpha;
#pragma unroll 1
        for (uint32_t rest = has; rest; rest &= rest - 1) {
            const int k = __ffs((int)rest) - 1;
            const bsri_dev_operand &o = operand[k];
            if (!o.data) continue;
            bsri_dev_load8(x, o, row * o.rs + col * o.cs, by_rows ? o.cs : o.rs, n);
            const float times = k == 2 ? beta : 1.0f;
            if (k < 2) {
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] = __fmul_rn(v[i], x[i]);
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] = __fmaf_rn(times, x[i], v[i]);
            }
        }
        if (bsri_last_step(&p) < 2) {
            bsri_dev_activate(v, p.activation);
        } else { /* one copy of the program's function, which may be long */
#pragma unroll
            for (int i = 0; i < 8; i++) sum[i * step] = v[i];
#pragma unroll 1
            for (int i = 0; i < n; i++) {
                bsr_position at;
                at.batch = item, at.head = 0, at.row = row + (by_rows ? 0 : i), at.col = col + (by_rows ? i : 0);
                sum[i * step] = bsri_dev_last(p, sum[i * step], at);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = sum[i * step];
        }
        bsri_dev_store8(out, row * out.rs + col * out.cs, by_rows ? out.cs : out.rs, n, v);
    }
    /* Integers, modulo 2^32. */
    __device__ __forceinline__ void eight(const bsri_dev_product &p, const uint32_t *sum, int step, int64_t row, int64_t col,
                                          bool by_rows, int n) const {
        const uint32_t a = bsri_dev_scalar<uint32_t>::of(p.alpha_ptr ? *p.alpha_ptr : p.alpha),
                       b = bsri_dev_scalar<uint32_t>::of(p.beta_ptr ? *p.beta_ptr : p.beta);
        const bsri_dev_operand &out = operand[4];
        uint32_t v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = a * sum[i * step];
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            const bsri_dev_operand &o = operand[k];
            const int64_t at = row * o.rs + col * o.cs, along = by_rows ? o.cs : o.rs;
            if (!o.data) continue;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const uint32_t x = i >= n               ? 0
                                   : o.dtype == BSR_I8 ? (uint32_t)((const int8_t *)o.data)[at + i * along]
                                                        : ((const uint32_t *)o.data)[at + i * along];
                v[i] = k < 2 ? v[i] * x : v[i] + (k == 2 ? b : 1) * x;
            }
        }
        bsri_dev_store8(out, row * out.rs + col * out.cs, by_rows ? out.cs : out.rs, n, v);
    }
};

/* ---------------------------------------------------------------------------------------------- */
/* >>device-union: which columns a group of block rows needs                                      */
/* ---------------------------------------------------------------------------------------------- */

struct bsri_column_chunk {
    typedef uint16_t bits;
    int32_t col[BSRI_CHUNK];
    uint16_t mask[BSRI_CHUNK];
    int64_t row[BSRI_GROUP], item, panel; /* which tile it belongs to: block rows (-1: none), batch item, panel of columns */
    int64_t out;                         /* where the item starts in out; made here, as the multiplying warps lack registers */
    int32_t count, last;                 /* entries; 1: the tile's last part, 2: there are no more */
};
struct bsri_mma_storage {
    bsri_column_chunk part[2];
    uint64_t chunk_full[2], chunk_empty[2], full[BSRI_GROUP], empty[BSRI_GROUP]; /* barriers of chunks and of the ring */
    int64_t at[BSRI_GROUP], end[BSRI_GROUP], next[BSRI_GROUP];                 /* entries of each row that are left */
    uint32_t present[BSRI_CHUNK];
    uint16_t order[BSRI_CHUNK]; /* groups, longest first */
    int32_t warp_count[4], irregular, first;
};
/* Lines and entries of a list that is seen as tiles (bsri_list_view), as the index arrays have them. */
__device__ __forceinline__ uint32_t bsri_view_line(const bsri_list_view &v, uint32_t line) {
    return __umulhi(line, v.by_rows) + (line & v.keep_rows);
}
__device__ __forceinline__ uint32_t bsri_view_entry(const bsri_list_view &v, uint32_t entry) {
    return __umulhi(entry, v.by_cols) + (entry & v.keep_cols);
}
/* Which of a stored block's rows of tiles a line is. */
__device__ __forceinline__ uint32_t bsri_view_row(const bsri_list_view &v, uint32_t line) {
    return line - bsri_view_line(v, line) * v.rows;
}
/* Where a line's tiles begin; to: 1 where they end. */
__device__ __forceinline__ int64_t bsri_view_index(const bsri_list_view &v, const bsri_mma_rows &r, uint32_t line, int to) {
    return bsri_index(r.ptr, r.dt, bsri_view_line(v, line) + to) * v.cols;
}
/* The same where there are less than 2^31 tiles. */
__device__ __forceinline__ int32_t bsri_view_index32(const bsri_list_view &v, const bsri_mma_rows &r, uint32_t line, int to) {
    return bsri_dev_index(r.ptr, r.dt, bsri_view_line(v, line) + to) * v.cols;
}
/* The column of tiles that entry n has. */
__device__ __forceinline__ int32_t bsri_view_column(const bsri_list_view &v, const bsri_mma_rows &r, uint32_t n) {
    const uint32_t e = bsri_view_entry(v, n);
    return bsri_dev_index(r.col, r.dt, e) * v.cols + (int32_t)(n - e * v.cols);
}
/* A line of a schedule's order: rows of tiles of a block stand one after another. */
__device__ __forceinline__ int32_t bsri_view_ordered(const bsri_list_view &v, const int32_t *order, uint32_t n) {
    const uint32_t at = bsri_view_line(v, n);
    const int32_t line = order[at];
    return line < 0 ? -1 : line * v.rows + (int32_t)(n - at * v.rows);
}
__device__ __forceinline__ bsri_mma_rows bsri_mma_rows_of(const bsri_dev_product &p, const bsri_dev_step &s,
                                                          int64_t *pattern = NULL) {
    const bsri_item it = bsri_dev_matrix_item(&p.whole, s.item, &s.a);
    bsri_mma_rows r;
    if (pattern) *pattern = it.pattern;
    r.dt = s.a.index_dtype, r.values = it.values, r.position = NULL;
    r.b = bsri_dev_at(s.b.data, s.b.dtype, bsri_dense_offset(&p.whole, s.item, &s.b));
    if (p.kind == BSRI_LIST_ROWS) {
        r.ptr = it.crow, r.col = it.col;
    } else {
        const char *view = (const char *)s.a.transposed_index;
        const int64_t shift = (s.a.flags & BSR_MATRIX_RAGGED) != 0 ? 0 : it.pattern * p.index.entries;
        r.ptr = bsri_dev_at(view + p.index.at[BSRI_CCOL], r.dt, it.pattern * (p.lines + 1));
        r.col = bsri_dev_at(view + p.index.at[BSRI_ROW], r.dt, shift);
        r.position = bsri_dev_at(view + p.index.at[BSRI_POSITION], r.dt, shift);
    }
    return r;
}
/* Rows of an item in the order in which they are grouped: the schedule's, where it is for this direction. */
__device__ __forceinline__ int64_t bsri_mma_lines(const bsri_dev_product &p) {
    const int64_t *header = (const int64_t *)p.a.schedule;
    return !header || (header[BSRI_SCHEDULE_TRANSPOSED] != 0) != (p.trans != 0)
               ? p.tiles
               : header[BSRI_SCHEDULE_GROUP] * header[BSRI_SCHEDULE_GROUPS] * p.view.rows;
}
__device__ __forceinline__ int64_t bsri_mma_line(const bsri_dev_product &p, int64_t item, int64_t lines, int64_t n) {
    const int64_t *header = (const int64_t *)p.a.schedule;
    if (n >= lines) return -1;
    if (!header || (header[BSRI_SCHEDULE_TRANSPOSED] != 0) != (p.trans != 0)) return n;
    const bsri_item it = bsri_dev_matrix_item(&p.whole, bsri_reduce_item(&p.whole, &p.out_batch, item, 0), &p.a);
    const int32_t *order = (const int32_t *)((const char *)p.a.schedule + BSRI_VIEW_HEADER);
    return bsri_view_ordered(p.view, order + it.pattern * header[BSRI_SCHEDULE_GROUP] * header[BSRI_SCHEDULE_GROUPS], n);
}

/* A line of out's blocks, as sampled products go through them: its tiles are [first, first + n), by the numbers of
   bsri_list_view; before: how many all lines before it have. crow[0] is 0. */
struct bsri_view_span {
    int64_t first, before;
};
__device__ __forceinline__ bsri_view_span bsri_view_span_of(const bsri_list_view &v, const void *crow, int dt, int64_t line) {
    const uint32_t stored = bsri_view_line(v, (uint32_t)line), row = (uint32_t)line - stored * v.rows;
    const int64_t at = bsri_index(crow, dt, stored);
    int64_t before = at * v.rows;
    if (row) before += row * (bsri_index(crow, dt, stored + 1) - at);
    return {at * v.cols, before * v.cols};
}

#ifdef BSRI_MMA_CODE
/* Marks the columns [first, first + BSRI_CHUNK) of rows whose columns ascend; list.next is past what is marked. Columns in
   another order, or repeated, set list.irregular. */
template <class S>
__device__ __forceinline__ void bsri_columns_mark(S &s, const bsri_mma_rows &r, const bsri_list_view &v, int group,
                                                  int shift) {
    const int lane = threadIdx.x % 32, warps = BSRI_PRODUCERS / 32;
    const int64_t first = s.first;
    for (int g = threadIdx.x / 32; g < group; g += warps) {
        const int64_t end = s.end[g];
        int64_t at = s.at[g];
        int32_t before = -1;
        for (int inside = 32; inside == 32; at += inside) {
            const int32_t c = at + lane < end ? bsri_view_column(v, r, (uint32_t)(at + lane)) : INT32_MAX;
            const int32_t left = __shfl_up_sync(~0u, c, 1);
            const bool in = c != INT32_MAX && c >> shift >= first && (c >> shift) - first < BSRI_CHUNK;
            if (c != INT32_MAX && c <= (lane ? left : before)) s.irregular = 1;
            else if (in) atomicOr(&s.present[(c >> shift) - first], 1u << (g << shift | (c & ((1 << shift) - 1))));
            before = __shfl_sync(~0u, c, 31);
            inside = __popc(__ballot_sync(~0u, in));
        }
        if (lane == 0) s.next[g] = at;
    }
}
/* Gathers the marked columns in ascending order. */
template <class S, class P> __device__ __forceinline__ void bsri_columns_gather(S &s, P &part, int group) {
    constexpr int SHARE = BSRI_CHUNK / (BSRI_PRODUCERS / 32);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int n = 0, before = 0;
    for (int i = 0; i < SHARE; i += 32) n += __popc(__ballot_sync(~0u, s.present[warp * SHARE + i + lane] != 0));
    if (lane == 0) s.warp_count[warp] = n;
    bsri_producer_sync();
    for (int w = 0; w < warp; w++) before += s.warp_count[w];
    if (threadIdx.x == BSRI_PRODUCERS - 1) part.count = before + n;
    if ((int)threadIdx.x < group) s.at[threadIdx.x] = s.next[threadIdx.x];
    for (int i = 0; i < SHARE; i += 32) {
        const uint32_t mask = s.present[warp * SHARE + i + lane], all = __ballot_sync(~0u, mask != 0);
        const int to = before + __popc(all & ((1u << lane) - 1));
        if (mask) part.col[to] = s.first + warp * SHARE + i + lane, part.mask[to] = (typename P::bits)mask;
        before += __popc(all);
    }
}
/* A merge: always the smallest next column of all rows. Takes any order and any repetition. By one warp. */
template <class S, class P>
__device__ __forceinline__ void bsri_columns_merge(S &s, P &part, const bsri_mma_rows &r, const bsri_list_view &v, int group,
                                                   int shift) {
    const int lane = threadIdx.x;
    const int64_t end = lane < group ? s.end[lane] : 0;
    int64_t at = lane < group ? s.at[lane] : 0;
    int n = 0;
    for (; n < BSRI_CHUNK; n++) {
        const uint32_t head = at < end ? (uint32_t)bsri_view_column(v, r, (uint32_t)at) : UINT32_MAX;
        const uint32_t least = __reduce_min_sync(~0u, head), bit = 1u << (lane << shift | (least & ((1 << shift) - 1)));
        const uint32_t mask = __reduce_or_sync(~0u, head == least ? bit : 0);
        if (least == UINT32_MAX) break;
        if (lane == 0) part.col[n] = (int32_t)(least >> shift), part.mask[n] = (typename P::bits)mask;
        at += head == least;
    }
    if (lane < group) s.at[lane] = at;
    if (lane == 0) part.count = n;
}
/* The next part of the union of the rows, from s.at on; by the fetching threads. Returns whether entries are left after it. An
   entry may be 2^shift columns side by side: a row then has as many bits. */
template <class S, class P>
__device__ __forceinline__ bool bsri_columns_next(S &s, P &part, const bsri_mma_rows &r, const bsri_list_view &v, int group,
                                                  int shift = 0) {
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < BSRI_CHUNK; i += BSRI_PRODUCERS) s.present[i] = 0;
    if (threadIdx.x < 32) {
        const bool more = lane < group && s.at[lane] < s.end[lane];
        const uint32_t least = __reduce_min_sync(~0u, more ? (uint32_t)bsri_view_column(v, r, (uint32_t)s.at[lane]) : INT32_MAX);
        if (lane == 0) s.first = (int32_t)least >> shift, s.irregular = 0;
    }
    bsri_producer_sync();
    bsri_columns_mark(s, r, v, group, shift);
    bsri_producer_sync();
    if (!s.irregular) bsri_columns_gather(s, part, group);
    else if (threadIdx.x < 32) bsri_columns_merge(s, part, r, v, group, shift);
    bsri_producer_sync();
    return __any_sync(~0u, lane < group && s.at[lane] < s.end[lane]);
}
#endif

/* ---------------------------------------------------------------------------------------------- */
/* >>product-simt: sparse x dense, any dtype, block size and stride; a tile in shared memory      */
/* ---------------------------------------------------------------------------------------------- */

template <class L> struct bsri_simt {
    typedef typename L::number A;
    typedef typename L::real F;
    static constexpr int TM = L::ROWS, TN = L::COLS, RM = L::RM, RN = L::RN, KC = 16, THREADS = L::THREADS, TX = TN / RN;
    union shared {
        struct {
            A a[KC][TM + 1], b[KC][TN + 1]; /* + 1: both fill orders stay free of bank conflicts */
        };
        F sum[TM][TN + 1];
    };
    /* sum += a b; a rows x inner (strides am, ak), b inner x cols (strides bk, bn); what lies outside counts as zero. */
    static __device__ void multiply(shared &s, A (&sum)[RM][RN], const void *a, int dtype, int64_t a0, int64_t am, int64_t ak,
                                    int64_t rows, const void *b, int64_t b0, int64_t bk, int64_t bn, int64_t cols,
                                    int64_t inner) {
        const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
        for (int64_t k0 = 0; k0 < inner; k0 += KC) {
            const int kc = (int)(inner - k0 < KC ? inner - k0 : KC);
            for (int i = threadIdx.x; i < TM * KC; i += THREADS) {
                const int m = ak == 1 ? i / KC : i % TM, k = ak == 1 ? i % KC : i / TM;
                s.a[k][m] = m < rows && k < kc ? bsri_dev_number<A>(a, dtype, a0 + m * am + (k0 + k) * ak) : A(0);
            }
            for (int i = threadIdx.x; i < TN * KC; i += THREADS) {
                const int n = bn == 1 ? i % TN : i / KC, k = bn == 1 ? i / TN : i % KC;
                s.b[k][n] = n < cols && k < kc ? bsri_dev_number<A>(b, dtype, b0 + (k0 + k) * bk + n * bn) : A(0);
            }
            __syncthreads();
            for (int k = 0; k < kc; k++) {
                A x[RM], y[RN];
#pragma unroll
                for (int i = 0; i < RM; i++) x[i] = s.a[k][ty * RM + i];
#pragma unroll
                for (int j = 0; j < RN; j++) y[j] = s.b[k][tx + j * TX];
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                    for (int j = 0; j < RN; j++) sum[i][j] += x[i] * y[j];
            }
            __syncthreads();
        }
    }
    /* Puts the sums where one loop can reach them all: the epilogue's code then stands in the kernel once. */
    static __device__ void spread(shared &s, const A (&sum)[RM][RN]) {
        const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
#pragma unroll
        for (int i = 0; i < RM; i++)
#pragma unroll
            for (int j = 0; j < RN; j++) s.sum[ty * RM + i][tx + j * TX] = F(sum[i][j]);
        __syncthreads();
    }
    /* The sum at (m, n): an integer also as f32. */
    template <class G> static __device__ G at(const shared &s, int m, int n) { return (G)(A)s.sum[m][n]; }
    /* Whether it is wanted so. */
    static __device__ bool real(int out_dtype) { return F(0.5f) == F(0) && out_dtype != BSR_I8 && out_dtype != BSR_I32; }
};

/* The n-th tile of an item: in the schedule's order where one is attached for this direction, else in its own. -1: none. */
__device__ __forceinline__ int64_t bsri_dev_order(const bsri_dev_product &p, int64_t item, int64_t n) {
    const int64_t *header = (const int64_t *)p.a.schedule;
    if (!header || p.kind > BSRI_LIST_SCAN || (header[BSRI_SCHEDULE_TRANSPOSED] != 0) != (p.trans != 0) ||
        header[BSRI_SCHEDULE_GROUP] != 1)
        return n;
    const bsri_item it = bsri_dev_matrix_item(&p.whole, bsri_reduce_item(&p.whole, &p.out_batch, item, 0), &p.a);
    const int32_t *order = (const int32_t *)((const char *)p.a.schedule + BSRI_VIEW_HEADER);
    return order[it.pattern * p.tiles + n];
}

/* Writes a tile whose first sum is out's (row, col). */
template <class G, class Tile>
static __device__ void bsri_simt_finish(const bsri_dev_product &p, const typename Tile::shared &s, double alpha, double beta,
                                        int64_t item, int64_t row, int64_t col, int rows, int cols) {
    const bsri_dev_writer<G> finish(p, alpha, beta, item);
    for (int i = threadIdx.x; i < rows * Tile::TN; i += Tile::THREADS) {
        const int m = p.out.col_stride == 1 ? i / Tile::TN : i % rows, n = p.out.col_stride == 1 ? i % Tile::TN : i / rows;
        if (n < cols) finish(Tile::template at<G>(s, m, n), row + m, col + n);
    }
}
template <class L>
__global__ void __launch_bounds__(L::THREADS, sizeof(typename L::number) == 8 ? 1 : 2)
    bsri_product_simt(const __grid_constant__ bsri_dev_product p BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    typedef typename L::real F;
    __shared__ typename Tile::shared s;
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    const int64_t total = p.items * p.panels * p.tiles * p.subs;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t sub = work % p.subs, item = work / p.subs / p.tiles / p.panels, panel = work / p.subs / p.tiles % p.panels;
        const int64_t tile = bsri_dev_order(p, item, work / p.subs % p.tiles);
        const int64_t row = sub * Tile::TM, col = panel * Tile::TN;
        const int64_t rows = bsri_min(Tile::TM, p.br - row), cols = bsri_min(Tile::TN, p.width - col);
        int64_t a_at, b_at, out_row = tile * p.br, out_col = 0, out_item = item;
        A sum[Tile::RM][Tile::RN] = {};
        for (int64_t r = 0; r < p.reduce && alpha != 0.0; r++) {
            bsri_dev_list list;
            if (p.kind >= BSRI_LIST_SCATTER) list.begin_scatter(p, item, tile);
            else list.begin_matrix(p, bsri_dev_step_of(p, item, r), tile);
            while (list.next(p, tile, &a_at, &b_at))
                Tile::multiply(s, sum, list.a, p.b.dtype, a_at + row * p.a_rs, p.a_rs, p.a_cs, rows, list.b,
                               b_at + col * p.b.col_stride, p.b.row_stride, p.b.col_stride, cols, p.bc);
        }
        if (p.kind == BSRI_LIST_SCATTER) out_item = tile, out_row = 0;
        else if (p.kind > BSRI_LIST_SCATTER)
            out_row = p.scatter.r_offsets[tile] / p.out.cols, out_col = p.scatter.r_offsets[tile] % p.out.cols;
        Tile::spread(s, sum);
        out_row += row, out_col += col;
        if (Tile::real(p.out.dtype))
            bsri_simt_finish<float, Tile>(p, s, alpha, beta, out_item, out_row, out_col, (int)rows, (int)cols);
        else bsri_simt_finish<F, Tile>(p, s, alpha, beta, out_item, out_row, out_col, (int)rows, (int)cols);
        __syncthreads();
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-tiny: sparse x dense where blocks are too small or too odd for tensor cores          */
/* ---------------------------------------------------------------------------------------------- */

/* N elements side by side, aligned to their size or to 16 bytes: by one load, of four f64 by two. */
template <class T, int N> struct alignas(N % 2 ? sizeof(T) : N * sizeof(T) > 16 ? 16 : N * sizeof(T)) bsri_tiny_pieces {
    T x[N];
};

/* n / d, below 2^16 both; by is 2^32 / d, up, or 0 where that is not known or no number of 32 bits. */
static __device__ __forceinline__ int bsri_tiny_quotient(int n, int d, uint32_t by) {
    return by ? (int)__umulhi((uint32_t)n, by) : n / d;
}
/* Neighbouring bytes into shared memory, to the same address modulo 16, so that whole pieces of 16 are copied. */
template <class T> static __device__ __forceinline__ void bsri_tiny_copy(char *to, const char *from, int bytes, int lane) {
    const int start = (int)(-(intptr_t)from & 15), head = start < bytes ? start : bytes, whole = head + ((bytes - head) & ~15);
    for (int i = lane * (int)sizeof(T); i < head; i += 32 * (int)sizeof(T)) *(T *)(to + i) = *(const T *)(from + i);
    for (int i = head + lane * 16; i < whole; i += 512) {
#ifdef BSRI_MMA_CODE
        bsri_cp_async(bsri_smem_address(to + i), from + i);
#else
        *(uint4 *)(to + i) = *(const uint4 *)(from + i);
#endif
    }
    for (int i = whole + lane * (int)sizeof(T); i < bytes; i += 32 * (int)sizeof(T)) *(T *)(to + i) = *(const T *)(from + i);
}
/* The part of a block that is in shared memory: rows [row0, row0 + rows), columns [k0, k0 + inner). */
struct bsri_tiny_part {
    int32_t row0, rows, k0, inner;
};
/* Brings n stored blocks from the list's place q0 on, as they are stored or, for `wide`, as F with rows side by side; and where
   each one's rows of b start. Returns where the first one's first element is. */
template <class D, class F, bool WIDE>
static __device__ __forceinline__ const char *bsri_tiny_stage(const bsri_dev_tiny &m, const bsri_dev_list &list,
                                                               const bsri_tiny_part &w, char *values, int32_t *b_at,
                                                               int64_t q0, int n, int lane) {
    typedef typename D::stored T;
    const bsri_dev_product &p = m.of;
    const int dt = p.a.index_dtype;
    const bool by_index = p.kind == BSRI_LIST_TRANSPOSED;
    char *to = values;
    __syncwarp(); /* all have read what was there */
    if (w.k0 == 0)
        for (int i = lane; i < n; i += 32) b_at[i] = bsri_dev_index(by_index ? list.row : list.col, dt, q0 + i) * m.b_block;
    if (!WIDE && m.packed && !by_index) {
        const char *from = list.a + q0 * m.block * (int64_t)sizeof(T);
        to += (uintptr_t)from & 15;
        bsri_tiny_copy<T>(to, from, n * m.block * (int)sizeof(T), lane);
    } else {
        const int all = w.rows * w.inner;
        const bool usual = w.rows == m.rows && w.inner == m.inner; /* not the last part of a large block */
        const bool across = p.a_rs == 1 && !WIDE && m.packed;      /* as they lie: columns of op(A) */
        for (int i = lane; i < n * all; i += 32) {
            const int k = bsri_tiny_quotient(i, all, usual ? m.by_block : 0), e = i - k * all;
            const int line = bsri_tiny_quotient(e, across ? w.rows : w.inner, usual && !across ? m.by_row : 0);
            const int rest = e - line * (across ? w.rows : w.inner), r = across ? rest : line, c = across ? line : rest;
            const int64_t block = by_index ? bsri_index(list.position, dt, q0 + k) : q0 + k;
            const T x = ((const T *)list.a)[block * p.a_block + (w.row0 + r) * p.a_rs + (w.k0 + c) * p.a_cs];
            const int at = k * m.block + r * m.row + c * m.along;
            if constexpr (WIDE) ((F *)to)[at] = (F)D::number(x);
            else ((T *)to)[at] = x;
        }
    }
#ifdef BSRI_MMA_CODE
    bsri_cp_async_commit(), bsri_cp_async_wait<0>();
#endif
    __syncwarp();
    return to;
}

/* A lane's sums over its blocks [s, end) of a chunk, `step` apart, of one column and ROWS rows: PIECE columns of a block at a
   time. */
template <class L> struct bsri_tiny_few {
    typedef bsri_stored<typename L::type> D;
    typedef typename D::stored T;
    typedef typename L::real F;
    static constexpr int ROWS = L::EACH, PIECE = L::PIECE;
    static constexpr int AT_ONCE = PIECE == 1 ? 8 : 4; /* blocks whose elements of b are asked for before any is needed */
    static __device__ __forceinline__ void piece(T (&x)[PIECE], const T *from, int64_t step, int n, bool at_once) {
        if (PIECE % 2 == 0 && at_once) {
            typedef bsri_tiny_pieces<T, PIECE> pieces;
            const pieces all = *(const pieces *)from;
#pragma unroll
            for (int c = 0; c < PIECE; c++) x[c] = all.x[c];
        } else {
#pragma unroll
            for (int c = 0; c < PIECE; c++)
                if (PIECE == 1 || c < n) x[c] = from[c * step];
        }
    }
    static __device__ __forceinline__ void multiply(const bsri_dev_tiny &m, const bsri_tiny_part &w, const char *values,
                                                    const int32_t *b_at, const char *base, int64_t col, int lr, int s, int end,
                                                    F (&sum)[ROWS][1]) {
        const int step = 1 << m.log_blocks;
        const T *a = (const T *)values + lr * ROWS * m.row, *b = (const T *)base + col * m.of.b.col_stride + w.k0 * m.b_row;
        if (col >= m.of.width) return;
        for (; s < end; s += AT_ONCE * step) {
            for (int k = 0; k < w.inner; k += PIECE) {
                T x[AT_ONCE][PIECE];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                    if (s + u * step < end)
                        piece(x[u], b + b_at[s + u * step] + k * m.b_row, m.b_row, w.inner - k, m.b_pieces != 0);
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                    if (s + u * step >= end) continue;
                    const T *row = a + (s + u * step) * m.block + k * m.along;
#pragma unroll
                    for (int r = 0; r < ROWS; r++, row += m.row) {
                        T y[PIECE];
                        piece(y, row, m.along, w.inner - k, m.a_pieces != 0);
#pragma unroll
                        for (int c = 0; c < PIECE; c++)
                            if (PIECE == 1 || c < w.inner - k)
                                sum[r][0] += (F)D::number(y[c]) * (F)D::number(x[u][c]);
                    }
                }
            }
        }
    }
};
/* The same for four columns of each lane, side by side (b in pieces), or 1 << log_columns apart, so that neighbouring lanes read
   neighbouring columns. */
template <class L> struct bsri_tiny_wide {
    typedef bsri_stored<typename L::type> D;
    typedef typename D::stored T;
    typedef typename L::real F;
    static constexpr int ROWS = L::EACH, AT_ONCE = ROWS > 1 ? 1 : sizeof(T) == 8 ? 2 : 4;
    static constexpr bool PIECES = L::PIECE == 4;
    static __device__ __forceinline__ void multiply(const bsri_dev_tiny &m, const bsri_tiny_part &w, const char *values,
                                                    const int32_t *b_at, const char *base, int64_t col, int, int s, int end,
                                                    F (&sum)[ROWS][4]) {
        const int step = 1 << m.log_blocks, columns = 1 << m.log_columns;
        const T *b = (const T *)base + col * m.of.b.col_stride + w.k0 * m.b_row;
        const int32_t apart = (int32_t)(columns * m.of.b.col_stride);
        int there = 0; /* columns that there are: what is not there is read at the first one's place, and not stored */
        for (int j = 0; j < 4; j++) there += col + j * (PIECES ? 1 : columns) < m.of.width;
        if (!there) return;
        for (; s < end; s += AT_ONCE * step) {
            const T *from[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) from[u] = b + b_at[s + u * step < end ? s + u * step : s];
            const F *a = (const F *)values + s * m.block;
#pragma unroll 2
            for (int c = 0; c < w.inner; c++, a += ROWS) {
                T x[AT_ONCE][4];
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++, from[u - 1] += m.b_row) {
                    if (PIECES) {
                        const bsri_tiny_pieces<T, 4> all = *(const bsri_tiny_pieces<T, 4> *)from[u];
#pragma unroll
                        for (int j = 0; j < 4; j++) x[u][j] = all.x[j];
                    } else {
#pragma unroll
                        for (int j = 0; j < 4; j++) x[u][j] = from[u][j < there ? j * apart : 0];
                    }
                }
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                    if (s + u * step >= end) break;
                    const F *y = a + u * step * m.block;
#pragma unroll
                    for (int r = 0; r < ROWS; r++)
#pragma unroll
                        for (int j = 0; j < 4; j++) sum[r][j] += y[r] * (F)D::number(x[u][j]);
                }
            }
        }
    }
};

/* Lanes that share rows and columns add what they have; then the warp's sums go to shared memory, row by row. */
template <class F, int ROWS, int COLS>
static __device__ __forceinline__ void bsri_tiny_gather(const bsri_dev_tiny &m, F (&sum)[ROWS][COLS], F *to, int lane,
                                                         bool pieces) {
    const int low = m.log_columns + m.log_rows, wide = COLS << m.log_columns, lc = lane & ((1 << m.log_columns) - 1);
    const int lr = lane >> m.log_columns & ((1 << m.log_rows) - 1), lk = lane >> low & ((1 << m.log_blocks) - 1);
    const int row = (lane >> (low + m.log_blocks)) * m.rows + lr * ROWS;
    for (int step = 0; step < m.log_blocks; step++)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int j = 0; j < COLS; j++) sum[r][j] += __shfl_xor_sync(0xffffffffu, sum[r][j], 1 << (low + step));
    __syncwarp();
    if (lk == 0)
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int j = 0; j < COLS; j++)
                if (lr * ROWS + r < m.rows)
                    to[(row + r) * wide + (pieces ? lc * COLS + j : lc + (j << m.log_columns))] = sum[r][j];
    __syncwarp();
}
template <class G, class F> static __device__ __forceinline__ G bsri_tiny_as(F v) {
    if constexpr (F(0.5f) == F(0) && G(0.5f) != G(0)) return (G)(int32_t)v;
    else return (G)v;
}
/* Writes a warp's rows: from tile `tile` on, columns from col0 on. */
template <class G, class F>
static __device__ __forceinline__ void bsri_tiny_finish(const bsri_dev_tiny &m, const F *from, int log_wide, double alpha,
                                                         double beta, int64_t item, int64_t tile, const bsri_tiny_part &w,
                                                         int64_t col0, unsigned skipped, int lane) {
    const bsri_dev_product &p = m.of;
    const bsri_dev_writer<G> write(p, alpha, beta, item);
    const int lines = (int)bsri_min((int64_t)1 << m.log_tiles, p.tiles - tile) * m.rows;
    const bool by_rows = p.out.col_stride == 1;
    for (int i = lane; i < lines << log_wide; i += 32) {
        const int line = by_rows ? i >> log_wide : i % lines, n = by_rows ? i & ((1 << log_wide) - 1) : i / lines;
        const int t = line / m.rows, r = line - t * m.rows;
        if (r >= w.rows || col0 + n >= p.width || skipped >> (t << (5 - m.log_tiles)) & 1) continue;
        write(bsri_tiny_as<G>(from[(line << log_wide) + n]), (tile + t) * p.br + w.row0 + r, col0 + n);
    }
}

template <class L, bool WIDE> struct bsri_tiny_lane {
    typedef bsri_tiny_few<L> type;
};
template <class L> struct bsri_tiny_lane<L, true> {
    typedef bsri_tiny_wide<L> type;
};
/* CTAs of a multiprocessor that registers are limited for: measured on sm_90; elsewhere 1, so that nothing is spilled. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define BSRI_TINY_CTAS(ctas) ctas
#else
#define BSRI_TINY_CTAS(ctas) 1
#endif
/* bsri_product_tiny: each warp works alone; what hides its waits is other warps.
   Its tile is the choice of bsri_tiny_choose() (>>cuda-plan-lanes).

   Threads: BSRI_TINY_WARPS warps. A warp takes sets of 1 << log_tiles neighbouring tiles (block rows of op(A)), m.rows rows of
   each and a panel of columns. Its lanes are counted in four digits, from the fastest: columns, rows of a block, stored blocks
   of a tile, tiles. A lane has EACH rows; few columns: one column, and PIECE columns of a block at a time; WIDE: four columns,
   and all rows of the warp's.

   Shared memory, dynamic: m.bytes for each warp:
     0             a chunk of stored blocks, as bsri_tiny_stage() brings them; then the sums, row by row
     values_bytes  where in b the rows of each of these blocks start, in elements
   No barrier but __syncwarp.

   Order: 1. The set's entries, from its first tile's start to its last one's end: they stand one after another.
          2. Chunk by chunk: blocks to shared memory, then each lane multiplies those of its tile that its digits name.
          3. Lanes that differ in the third digit alone add up what they have, in a fixed order.
          4. Sums to shared memory, from there to out by bsri_dev_writer. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, BSRI_TINY_CTAS(L::CTAS))
    bsri_product_tiny(const __grid_constant__ bsri_dev_tiny m BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_stored<typename L::type> D;
    typedef typename D::stored T;
    typedef typename L::real F;
    constexpr int ROWS = L::EACH, WIDTH = L::WIDE ? 4 : 1;
    constexpr bool WIDE = L::WIDE;
    extern __shared__ __align__(16) char bsri_tiny_shared[];
    const bsri_dev_product &p = m.of;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, low = m.log_columns + m.log_rows;
    const int lr = lane >> m.log_columns & ((1 << m.log_rows) - 1), lk = lane >> low & ((1 << m.log_blocks) - 1);
    const int lt = lane >> (low + m.log_blocks), wide = WIDTH << m.log_columns;
    const bool pieces = WIDE && m.b_pieces;
    char *values = bsri_tiny_shared + warp * m.bytes;
    int32_t *b_at = (int32_t *)(values + m.values_bytes);
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    const int64_t total = p.items * p.panels * p.subs * m.sets;
    bsri_dev_list list;
    int64_t list_item = -1; /* whose arrays the list is of */
    const int64_t all_warps = (int64_t)gridDim.x * BSRI_TINY_WARPS;
    for (int64_t work = (int64_t)blockIdx.x * BSRI_TINY_WARPS + warp; work < total; work += all_warps) {
        int64_t set = work, sub = 0, panel = 0, item = 0;
        if (total != m.sets) {
            const int64_t band = bsri_divide(work, m.sets), number = bsri_divide(band, p.subs);
            set = work - band * m.sets, sub = band - number * p.subs;
            item = bsri_divide(number, p.panels), panel = number - item * p.panels;
        }
        if (m.log_tiles == 0) set = bsri_dev_order(p, item, set);
        const int64_t tile = set << m.log_tiles, last = bsri_min(tile + ((int64_t)1 << m.log_tiles), p.tiles);
        const int64_t col0 = panel * wide, col = col0 + (lane & ((1 << m.log_columns) - 1)) * (pieces ? WIDTH : 1);
        F sum[ROWS][WIDTH] = {};
        bsri_tiny_part w;
        w.row0 = (int)(sub * m.rows), w.rows = (int)bsri_min(m.rows, p.br - w.row0);
        const int own_rows = lr * ROWS < w.rows ? lr : 0; /* a lane without rows goes along with the first */
        unsigned skipped = 0; /* lanes whose tile has a row that is left to bsri_product_vector() */
        for (int64_t r = 0; r < p.reduce && (alpha != 0.0 || m.long_row); r++) {
            if (item != list_item || p.reduce > 1) list.begin_matrix(p, bsri_dev_step_of(p, item, r), 0);
            list_item = item;
            const int64_t own = bsri_index(list.starts, p.a.index_dtype, bsri_min(tile + lt, last));
            const int64_t own_end = bsri_index(list.starts, p.a.index_dtype, bsri_min(tile + lt + 1, last));
            const int64_t end = alpha == 0.0 ? 0 : __shfl_sync(0xffffffffu, own_end, 31);
            if (!WIDE && m.long_row) skipped = __ballot_sync(0xffffffffu, own_end - own > m.long_row);
            for (int64_t q0 = __shfl_sync(0xffffffffu, own, 0); q0 < end; q0 += m.chunk) {
                if (!WIDE && skipped) {
                    const unsigned here = __ballot_sync(0xffffffffu, (skipped >> lane & 1) && own <= q0 && q0 < own_end);
                    if (here) {
                        q0 = __shfl_sync(0xffffffffu, own_end, __ffs(here) - 1) - m.chunk;
                        continue;
                    }
                }
                const int n = (int)bsri_min(m.chunk, end - q0);
                for (w.k0 = 0; w.k0 < p.bc; w.k0 += m.inner) {
                    w.inner = (int)bsri_min(m.inner, p.bc - w.k0);
                    const char *a = bsri_tiny_stage<D, F, WIDE>(m, list, w, values, b_at, q0, n, lane);
                    const int first = (int)bsri_max(own - q0, 0) + lk;
                    const int behind = !WIDE && (skipped >> lane & 1) ? 0 : (int)bsri_min(own_end - q0, n);
                    bsri_tiny_lane<L, WIDE>::type::multiply(m, w, a, b_at, list.b, col, own_rows, first, behind, sum);
                }
            }
        }
        bsri_tiny_gather<F, ROWS, WIDTH>(m, sum, (F *)values, lane, pieces);
        const int log_wide = m.log_columns + (WIDE ? 2 : 0);
        if (F(0.5f) == F(0) && p.out.dtype != BSR_I8 && p.out.dtype != BSR_I32)
            bsri_tiny_finish<float>(m, (const F *)values, log_wide, alpha, beta, item, tile, w, col0, skipped,
                                    lane);
        else bsri_tiny_finish<F>(m, (const F *)values, log_wide, alpha, beta, item, tile, w, col0, skipped, lane);
        __syncwarp();
    }
}
/* ---------------------------------------------------------------------------------------------- */
/* >>product-vector: sparse x one column, bound by the bytes of the values                        */
/* ---------------------------------------------------------------------------------------------- */

/* Where a lane stands: its group of lanes, which has a block row; in the group, from the fastest, pieces of VEC columns, rows,
   stored blocks. A lane beyond the last digit has none. */
struct bsri_vector_lane {
    int32_t group, piece, row, block, idle;
};
static __device__ __forceinline__ bsri_vector_lane bsri_vector_lane_of(const bsri_dev_vector &m, int lane) {
    const int at = lane & ((1 << m.log_group) - 1), rest = at / m.piece_lanes;
    bsri_vector_lane w;
    w.group = lane >> m.log_group, w.piece = at - rest * m.piece_lanes, w.block = rest / m.row_lanes;
    w.row = rest - w.block * m.row_lanes, w.idle = w.block >= m.block_lanes;
    return w;
}

/* Arrays of an item: op(A)'s rows, of its stored blocks the block rows of b, and where they are (null: one after another). */
struct bsri_vector_item {
    const void *starts, *index, *position;
    const char *a, *b;
};
/* Sums over stored blocks first, first + step, ... below end, of a lane's rows. Nothing waits for anything inside a round: all
   values and columns of AT_ONCE blocks are asked for, then what of b belongs to them. */
template <class L> struct bsri_vector_own {
    typedef bsri_stored<typename L::type> D;
    typedef typename D::stored T;
    typedef typename L::real F;
    static constexpr int EACH = L::EACH, VEC = L::VEC, FIT = L::IN_FLIGHT / (EACH * VEC * (int)sizeof(T));
    static constexpr int AT_ONCE = FIT > 8 ? 8 : FIT < 1 ? 1 : FIT;
    typedef bsri_tiny_pieces<T, VEC> pieces;

    static __device__ __forceinline__ void round(const bsri_dev_vector &m, const bsri_vector_item &list, int rows,
                                                 const char *values, const char *b, int first, int end, int step,
                                                 F (&sum)[EACH]) {
        const bsri_dev_product &p = m.of;
        pieces v[AT_ONCE][EACH];
        int32_t at[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int q = first + u * step;
            if (q >= end) continue;
            at[u] = bsri_dev_index(list.index, p.a.index_dtype, q) * m.b_block;
            const int place = list.position ? bsri_dev_index(list.position, p.a.index_dtype, q) : q;
            const T *from = (const T *)values + place * p.a_block;
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (EACH == 1 || e < rows) v[u][e] = *(const pieces *)(from + e * m.row_step);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (first + u * step >= end) continue;
            const T *from = (const T *)b + at[u];
            pieces x;
            if (VEC == 1 || m.b_pieces) {
                x = *(const pieces *)from;
            } else {
#pragma unroll
                for (int c = 0; c < VEC; c++) x.x[c] = from[c * m.b_row];
            }
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (EACH == 1 || e < rows)
#pragma unroll
                    for (int c = 0; c < VEC; c++) sum[e] += (F)D::number(v[u][e].x[c]) * (F)D::number(x.x[c]);
        }
    }
    /* rows: of the lane's own, that the block has. */
    static __device__ __forceinline__ void add(const bsri_dev_vector &m, const bsri_vector_item &list, const bsri_vector_lane &w,
                                               int row, int rows, int first, int end, int step, F (&sum)[EACH]) {
        const bsri_dev_product &p = m.of;
        if (w.idle || rows <= 0) return;
        for (int c = w.piece; c < m.pieces; c += m.piece_lanes) {
            const char *values = list.a + (row * p.a_rs + c * VEC * p.a_cs) * (int64_t)sizeof(T);
            const char *b = list.b + c * VEC * m.b_row * (int64_t)sizeof(T);
            for (int q = first; q < end; q += AT_ONCE * step)
                round(m, list, rows, values, b, q, end, step, sum);
        }
    }
};

/* The sum over a digit of the lanes' numbers, in a fixed order: n lanes `stride` apart; that of the lane with digit 0 holds
   it. */
template <class F> static __device__ __forceinline__ F bsri_vector_fold(F sum, int digit, int n, int log, int stride) {
    for (int o = 1 << log >> 1; o; o >>= 1) {
        const F more = __shfl_down_sync(0xffffffffu, sum, (unsigned)(o * stride));
        if (digit + o < n) sum += more;
    }
    return sum;
}
/* whole: the lanes of a warp, not of a group, share the sums. */
template <class F, int EACH>
static __device__ __forceinline__ void bsri_vector_gather(const bsri_dev_vector &m, const bsri_vector_lane &w, bool whole,
                                                           F (&sum)[EACH]) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        sum[e] = bsri_vector_fold(sum[e], w.piece, m.piece_lanes, m.log_pieces, 1);
        sum[e] = bsri_vector_fold(sum[e], w.block, m.block_lanes, m.log_blocks, m.piece_lanes * m.row_lanes);
        if (whole) sum[e] = bsri_vector_fold(sum[e], w.group, 32 >> m.log_group, 5 - m.log_group, 1 << m.log_group);
    }
}

/* What a warp has of an item: block rows [row, end); where pieces of rows are allowed, also the stored blocks [head, head_end) of
   the row before them, and none from `cut` on of the last one. */
struct bsri_vector_share {
    int32_t row, end, head, head_end, cut, more; /* more: shares that have more of the last row */
};
/* The first block row that does not begin before `key`; all lanes together. A row's key counts stored blocks before it, and for
   every row before it a few more, so that rows without blocks are shared out, too. */
static __device__ int bsri_vector_find(const bsri_dev_vector &m, const void *starts, int64_t key, int lane) {
    const int dt = m.of.a.index_dtype;
    const int64_t zero = bsri_index(starts, dt, 0);
    int64_t from = 0, n = m.of.tiles; /* the row is in [from, from + n] */
    while (n > 0) {
        const int64_t each = (n + 32) / 33, r = from + (lane + 1) * each - 1; /* the last ones of 32 of 33 parts */
        const bool before = r < from + n && bsri_index(starts, dt, r) - zero + r * m.row_keys < key;
        const int parts = __popc(__ballot_sync(0xffffffffu, before));
        const int64_t up_to = from + n;
        from += parts * each;
        n = bsri_max(0, bsri_min(parts < 32 ? each - 1 : each * 33, up_to - from));
    }
    return (int)from;
}
static __device__ bsri_vector_share bsri_vector_share_of(const bsri_dev_vector &m, const void *starts, int range, int lane) {
    const int dt = m.of.a.index_dtype, tiles = (int)m.of.tiles;
    bsri_vector_share s;
    s.head = s.head_end = s.cut = s.more = 0;
    if (!m.pieces_of_rows) {
        s.row = (int)bsri_min(range * m.rows_each, tiles), s.end = (int)bsri_min(s.row + m.rows_each, tiles);
        return s;
    }
    const int zero = bsri_dev_index(starts, dt, 0);
    const int64_t keys = bsri_dev_index(starts, dt, tiles) - zero + (int64_t)tiles * m.row_keys;
    const int64_t each = (keys + m.ranges - 1) / m.ranges, low = bsri_min(range * each, keys), high = bsri_min(low + each, keys);
    s.row = bsri_vector_find(m, starts, low, lane), s.end = bsri_vector_find(m, starts, high, lane);
    /* a key less those of the rows before: the stored block that it stands for, where that is not behind its row's last */
    if (s.row > 0 && low < high) {
        const int64_t base = zero - (s.row - 1) * (int64_t)m.row_keys, behind = bsri_dev_index(starts, dt, s.row);
        s.head = (int)bsri_min(base + low, behind), s.head_end = (int)bsri_min(base + high, behind);
    }
    if (s.row < s.end) {
        s.cut = (int)bsri_min(zero + high - (s.end - 1) * (int64_t)m.row_keys, bsri_dev_index(starts, dt, s.end));
        s.more = (int)((bsri_dev_index(starts, dt, s.end) - s.cut + each - 1) / each);
    }
    if (m.only_long) {
        if (s.row > 0 && bsri_dev_index(starts, dt, s.row) - bsri_dev_index(starts, dt, s.row - 1) <= m.only_long)
            s.head = s.head_end = 0;
        if (s.row < s.end && bsri_dev_index(starts, dt, s.end) - bsri_dev_index(starts, dt, s.end - 1) <= m.only_long) s.more = 0;
    }
    return s;
}

/* A piece of a row in the workspace: of a row that began before, then of one that goes on, `rows` numbers each. */
template <class F> static __device__ __forceinline__ F *bsri_vector_piece(const bsri_dev_vector &m, int work, int tail) {
    return (F *)m.workspace + (work * INT64_C(2) + tail) * m.rows;
}
/* For each warp's share: its last row, and how many shares have more of it. */
static __device__ __forceinline__ int32_t *bsri_vector_rest(const bsri_dev_vector &m, int work) {
    return (int32_t *)((char *)m.workspace + m.rest_at) + work * INT64_C(2);
}

/* A number of out's column. What the epilogue is given is read here, not before the rounds: it would take registers there. */
template <class F>
static __device__ __forceinline__ void bsri_vector_write(const bsri_dev_product &of, F v, int item, int64_t row, int col) {
    const bsri_dev_product *read_here = &of;
    asm volatile("" : "+l"(read_here));
    const bsri_dev_product &p = *read_here;
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    if (F(0.5f) == F(0) && p.out.dtype != BSR_I8 && p.out.dtype != BSR_I32)
        bsri_dev_writer<float>(p, alpha, beta, item)(bsri_tiny_as<float>(v), row, col);
    else bsri_dev_writer<F>(p, alpha, beta, item)(v, row, col);
}
static __device__ __forceinline__ bsri_vector_item bsri_vector_begin(const bsri_dev_product &p, int item, int col) {
    bsri_dev_list list;
    list.begin_matrix(p, bsri_dev_step_of(p, item, 0), 0);
    const char *const b = bsri_dev_at(list.b, p.b.dtype, col * p.b.col_stride);
    if (p.kind == BSRI_LIST_TRANSPOSED) return {list.starts, list.row, list.position, list.a, b};
    return {list.starts, list.col, NULL, list.a, b};
}
/* What share `work` is: of which item, column, part of its blocks' rows. */
struct bsri_vector_work {
    int32_t item, col, sub, range;
};
static __device__ __forceinline__ bsri_vector_work bsri_vector_decode(const bsri_dev_vector &m, int work) {
    const int band = work / (int)m.ranges, number = band / (int)m.of.subs;
    bsri_vector_work w;
    w.range = work - band * (int)m.ranges, w.sub = band - number * (int)m.of.subs;
    w.item = number / (int)m.of.width, w.col = number - w.item * (int)m.of.width;
    return w;
}

/* Each warp has a share of the block rows, or of the stored blocks; its groups of lanes take one block row each, all of them
   together one that is far longer than what a group asks for at once. Values come straight to registers, in lines as they lie. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, BSRI_TINY_CTAS(L::CTAS))
    bsri_product_vector(const __grid_constant__ bsri_dev_vector m BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_vector_own<L> own;
    typedef typename own::F F;
    constexpr int EACH = L::EACH;
    const bsri_dev_product &p = m.of;
    const int lane = threadIdx.x % 32, dt = p.a.index_dtype, groups = 32 >> m.log_group;
    const bsri_vector_lane w = bsri_vector_lane_of(m, lane);
    const int total = (int)(p.items * p.width * p.subs * m.ranges);
    for (int work = blockIdx.x * (L::THREADS / 32) + threadIdx.x / 32; work < total; work += gridDim.x * (L::THREADS / 32)) {
        const bsri_vector_work of = bsri_vector_decode(m, work);
        const bsri_vector_item list = bsri_vector_begin(p, of.item, of.col);
        const int sub = of.sub, row0 = sub * m.rows + w.row;
        /* of a lane's rows: those that the block has; nothing is read of a matrix times 0 */
        const int limit = (int)((bsri_min(p.br, (sub + 1) * m.rows) - row0 + m.row_lanes - 1) / m.row_lanes);
        const int rows = (p.alpha_ptr ? *p.alpha_ptr : p.alpha) == 0.0 ? 0 : limit;
        const bsri_vector_share s = bsri_vector_share_of(m, list.starts, of.range, lane);
        const bool first = w.piece == 0 && w.block == 0 && limit > 0;
        if (m.pieces_of_rows && lane < 2) bsri_vector_rest(m, work)[lane] = lane == 0 ? s.end - 1 : s.more;
        /* What is done at a time: the piece of the row before the share's; a row of each group; one row that is long. */
        bool head = s.head < s.head_end;
        unsigned long_rows = 0; /* a bit for each, its group's first lane */
        const int beside = m.only_long ? 32 : groups, my_row = m.only_long ? lane : w.group; /* rows looked at at a time */
        int tile = s.row + my_row - beside, q = 0, end = 0, from = 0, to = 0;
        if (s.row + my_row < s.end)
            from = bsri_dev_index(list.starts, dt, s.row + my_row), to = bsri_dev_index(list.starts, dt, s.row + my_row + 1);
        while (head || long_rows || tile - my_row + beside < s.end) {
            const bool whole = head || long_rows;
            int begin, behind, whose;
            if (head) {
                begin = s.head, behind = s.head_end, whose = -1;
            } else if (long_rows) {
                const int leader = __ffs(long_rows) - 1;
                begin = __shfl_sync(0xffffffffu, q, leader), behind = __shfl_sync(0xffffffffu, end, leader);
                whose = __shfl_sync(0xffffffffu, tile, leader), long_rows &= long_rows - 1;
            } else {
                tile += beside, q = from, end = to;
                if (tile + beside < s.end) /* the next round's, while this one waits for values */
                    from = bsri_dev_index(list.starts, dt, tile + beside),
                    to = bsri_dev_index(list.starts, dt, tile + beside + 1);
                const int limit_here = m.only_long ? (int)m.only_long : groups > 1 ? (int)m.long_row : INT32_MAX;
                const bool by_all = tile < s.end && end - q > limit_here;
                if (tile == s.end - 1 && s.more > 0) end = s.cut;
                long_rows = __ballot_sync(0xffffffffu, by_all && (m.only_long || (lane & ((1 << m.log_group) - 1)) == 0));
                if (m.only_long) continue;
                whose = by_all ? INT32_MAX : tile, begin = q, behind = whose < s.end ? end : q;
            }
            F sum[EACH] = {};
            own::add(m, list, w, row0, rows, begin + (whole ? w.group * m.block_lanes : 0) + w.block, behind,
                     whole ? groups * m.block_lanes : m.block_lanes, sum);
            bsri_vector_gather(m, w, whole, sum);
            if (first && whose < s.end && (!whole || w.group == 0))
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    const int r = w.row + e * m.row_lanes;
                    if (EACH > 1 && e >= limit) continue;
                    if (head) bsri_vector_piece<F>(m, work, 0)[r] = sum[e];
                    else if (whose == s.end - 1 && s.more > 0) bsri_vector_piece<F>(m, work, 1)[r] = sum[e];
                    else bsri_vector_write(p, sum[e], of.item, whose * p.br + sub * m.rows + r, of.col);
                }
            head = false;
        }
    }
}

/* Rows of which several warps had a piece: what each has, added up in order. A warp for each share. */
template <class L>
__global__ void __launch_bounds__(L::THREADS) bsri_product_vector_rest(const __grid_constant__ bsri_dev_vector m BSRI_GATE) {
    BSRI_ENTER;
    typedef typename L::real F;
    const bsri_dev_product &p = m.of;
    const int lane = threadIdx.x % 32, total = (int)(p.items * p.width * p.subs * m.ranges);
    for (int work = blockIdx.x * (L::THREADS / 32) + threadIdx.x / 32; work < total; work += gridDim.x * (L::THREADS / 32)) {
        const int tile = bsri_vector_rest(m, work)[0], more = bsri_vector_rest(m, work)[1];
        if (more <= 0) continue;
        const bsri_vector_work of = bsri_vector_decode(m, work);
        for (int r = 0; r < m.rows && of.sub * m.rows + r < p.br; r++) {
            F sum = F();
#pragma unroll 8
            for (int i = lane; i < more; i += 32) sum += bsri_vector_piece<F>(m, work + 1 + i, 0)[r];
            sum = bsri_vector_fold(sum, lane, 32, 5, 1);
            if (lane == 0)
                bsri_vector_write(p, bsri_vector_piece<F>(m, work, 1)[r] + sum, of.item, tile * p.br + of.sub * m.rows + r,
                                  of.col);
        }
    }
}
/* ---------------------------------------------------------------------------------------------- */
/* >>product-mma-load: sparse x dense by mma.sync: tiles, fetching                                */
/* ---------------------------------------------------------------------------------------------- */

template <class L> __device__ __forceinline__ bool bsri_mma_by_rows(const bsri_dev_mma &m) {
    return L::LAYOUT == 2 ? m.b_rows != 0 : L::B_ROWS;
}

/* Piece number of row `row` where rows have LINE bytes. */
template <int LINE> __device__ __forceinline__ uint32_t bsri_swizzle(uint32_t row, uint32_t piece) {
    return row * LINE + ((piece ^ (LINE == 32 ? row >> 2 & 1 : LINE == 64 ? row >> 1 & 3 : row & 7)) << 4);
}

#ifdef BSRI_MMA_CODE
/* 16 x 64 elements by pieces of eight along a row, else along a column: a lane has four, the first at row r, column c. */
struct bsri_mma_pieces {
    bool by_rows;
    int r, c;
    __device__ __forceinline__ bsri_mma_pieces(bool along_rows, int lane)
        : by_rows(along_rows), r(by_rows ? lane / 8 : lane % 2 * 8), c(by_rows ? lane % 8 * 8 : lane / 2) {}
    __device__ __forceinline__ int row(int i) const { return r + (by_rows ? i * 4 : 0); }
    __device__ __forceinline__ int col(int i) const { return c + (by_rows ? 0 : i * 16); }
    /* From one piece to the next; rs, cs: strides of rows and columns. */
    __device__ __forceinline__ int64_t step(int64_t rs, int64_t cs) const { return by_rows ? 4 * rs : 16 * cs; }
    /* Elements that are there, of so many columns. */
    __device__ __forceinline__ int inside(int i, int cols) const {
        return by_rows ? max(0, min(8, cols - c)) : col(i) < cols ? 8 : 0;
    }
    /* Where bsri_mma_store() stages them: rows of 72 elements, else columns of 24. */
    __device__ __forceinline__ int staged(int i) const { return by_rows ? row(i) * 72 + c : col(i) * 24 + r; }
};
/* --- fetching --- */
template <class T, class L> struct bsri_mma_producer {
    uint32_t base, full, empty, a_to,
        b_to;               /* shared memory: stages, barriers, this lane's first piece of values and of a dense slice */
    const char *values, *b; /* this lane's first piece of block 0, of the panel's first slice */
    int a_pieces, a_flip;   /* of a line of values; what every other copy of values exchanges */
    uint32_t a_across;      /* of f64 that are stored transposed: what each four lines exchange more than those before */
    /* a row-major slice: pieces of a row that one copy takes, rows at once, copies of a row's part (parts of 512 bytes) */
    static constexpr int ROW = L::BN * T::BYTES / 16 < 32 ? L::BN * T::BYTES / 16 : 32, ROWS = 32 / ROW, PART = L::KS / ROWS;
    bool whole; /* no edge: all of the panel's columns are there */
    int left;   /* valid bytes from this lane's first piece on; column-major: columns from this lane's on */

    __device__ __forceinline__ void begin(const char *shared, int a_trans) {
        const int lane = threadIdx.x % 32, trans_pieces = L::MW * T::BYTES / 16;
        const uint32_t along = bsri_swizzle<L::LINE>(lane / (L::LINE / 16), lane % (L::LINE / 16));
        base = bsri_smem_address(shared);
        a_pieces = a_trans ? trans_pieces : L::LINE / 16, a_flip = a_pieces == 8 ? 64 : 0;
        a_to = a_trans ? bsri_swizzle<trans_pieces * 16>(lane / trans_pieces, lane % trans_pieces) : along;
        if (T::BYTES == 8) a_to = a_trans ? lane * 16 : along, a_across = a_trans ? 32 : 0, a_flip = a_trans ? 0 : 64;
        b_to = L::B_ROWS ? lane % ROW ^ bsri_swizzle_b<T>(lane / ROW) : along;
    }
    __device__ __forceinline__ void tile(const bsri_dev_mma &m, const bsri_mma_rows &r, int64_t panel) {
        const int lane = threadIdx.x % 32, line = lane / (L::LINE / 16), piece = lane % (L::LINE / 16);
        const int cols = (int)bsri_min(L::BN, m.width - panel * L::BN);
        whole = cols == L::BN, values = r.values + lane / a_pieces * m.a_line + lane % a_pieces * 16;
        b = r.b + panel * (L::B_ROWS ? L::BN * T::BYTES : L::BN * m.b_line) +
            (L::B_ROWS ? lane / ROW * m.b_line + lane % ROW * 16 : line * m.b_line + piece * 16);
        left = L::B_ROWS ? cols * T::BYTES - lane % ROW * 16 : cols - line;
    }
    __device__ __forceinline__ uint32_t dense_at(int i) const {
        if (!L::B_ROWS) return i * 512 + (L::LINE == 128 ? b_to ^ (i & 1) << 6 : b_to); /* half of the rows of an exchange */
        return i * 512 + threadIdx.x % 32 / ROW * (ROW * 16) + ((b_to ^ bsri_swizzle_b<T>(i % PART * ROWS)) << 4);
    }
    __device__ __forceinline__ void dense(const bsri_dev_mma &m, uint32_t to, int64_t k0, const char *safe) const {
        const char *at = b + k0 * (L::B_ROWS ? m.b_line : T::BYTES);
        const int64_t jump = m.b_jump;
        constexpr int COPIES = L::B_BYTES / 512, SPAN = L::B_ROWS && PART < COPIES ? PART : COPIES;
#pragma unroll
        for (int first = 0; first < COPIES; first += SPAN) { /* part of a row, or all */
            const char *from = at + first / SPAN * 512;
            if (whole) {
#pragma unroll
                for (int i = first; i < first + SPAN; i += 4) { /* four addresses that do not wait for each other */
                    bsri_cp_async(to + dense_at(i), from), bsri_cp_async(to + dense_at(i + 1), from + jump);
                    bsri_cp_async(to + dense_at(i + 2), from + 2 * jump), bsri_cp_async(to + dense_at(i + 3), from + 3 * jump);
                    from += 4 * jump;
                }
            } else {
                const int here = left - first / SPAN * 512;
#pragma unroll 1
                for (int i = first; i < first + SPAN; i++, from += jump) {
                    const int bytes = L::B_ROWS ? max(0, min(16, here)) : left > i * (512 / L::LINE) ? 16 : 0;
                    bsri_cp_async(to + dense_at(i), bytes ? from : safe, bytes);
                }
            }
        }
    }
    __device__ __forceinline__ void slice(uint32_t to, const char *at, int64_t jump, bool near = false) const {
#pragma unroll
        for (int i = 0; i < L::A_BYTES / 512; i++) {
            const uint32_t odd = i & 1 ? a_to ^ a_flip : a_to;
            const uint32_t place = to + i * 512 + (T::BYTES == 8 ? odd ^ (i / (L::MW / 16) % 4 * a_across) : odd);
            if (near) bsri_cp_async_l1(place, at + i * jump);
            else bsri_cp_async(place, at + i * jump);
        }
    }
    /* block: bytes from block 0 to the one of row `lane` of the group. */
    __device__ __forceinline__ void sparse(const bsri_dev_mma &m, uint32_t to, uint32_t mask, int64_t block, int64_t step) const {
        const int64_t jump = m.a_jump;
        for (uint32_t left = mask; left; left &= left - 1) {
            const int row = __ffs((int)left) - 1;
            const char *at = values + step + __shfl_sync(~0u, block, row);
            uint32_t tile = to + (row << m.block_bits) * L::A_BYTES;
            for (int w = 0; w < 1 << m.block_bits; w++, at += m.a_part, tile += L::A_BYTES) slice(tile, at, jump);
        }
    }
    /* This warp's stages of a part; stages_before: the CTA's; down: bytes from a block's start to row `lane`'s tiles. */
    __device__ __forceinline__ void part(const bsri_dev_mma &m, const bsri_column_chunk &list, const bsri_mma_rows &r,
                                         int64_t next, uint32_t stages_before, int64_t down) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, bits = m.sub_bits, subs = (1 << bits) - 1;
        const int slices = list.count << bits, stages = (slices + L::E - 1) / L::E;
        uint32_t mask = 0,
                 mine = 0; /* of entry window + lane: rows; of row `lane`: entries of the window. next: its entry before them */
        int32_t col = 0;
        int window = -32, i = (int)((warp - stages_before) % 4u);
        uint32_t stage = (stages_before + i) % m.stages, phase = (stages_before + i) / m.stages & 1;
        for (; i < stages; i += 4) {
            while (window < (i * L::E >> bits & ~31)) {
                window += 32, next += __popc(mine);
                mask = window + lane < list.count ? list.mask[window + lane] : 0, col = list.col[window + lane];
                for (int g = 0; g < m.group; g++) {
                    const uint32_t all = __ballot_sync(~0u, mask >> g & 1);
                    if (lane == g) mine = all;
                }
            }
            const uint32_t to = base + stage * m.stage_bytes;
            bsri_mbarrier_wait(empty + 8 * stage, phase ^ 1);
#pragma unroll
            for (int e = 0; e < L::E; e++) {
                const int slice = i * L::E + e, entry = slice >> bits & 31;
                if (slice >= slices) break;
                const uint32_t rows = __shfl_sync(~0u, mask, entry);
                dense(m, to + m.b_at + e * L::B_BYTES, (int64_t)__shfl_sync(~0u, col, entry) * m.p.bc + (slice & subs) * L::KS,
                      r.b);
                const int64_t own = next + __popc(mine & ((1u << entry) - 1));
                int64_t block = m.view.by_cols ? __umulhi((uint32_t)own, m.view.by_cols) : own, at = down;
                if (m.view.by_cols) at += (own - block * m.view.cols) * m.right;
                if (r.position) block = mine >> entry & 1 ? bsri_index(r.position, r.dt, block) : 0;
                sparse(m, to + e * m.m_warps * L::A_BYTES, rows, block * m.a_block + at, (slice & subs) * m.a_step);
            }
            bsri_cp_async_arrive(full + 8 * stage);
            for (stage += 4; stage >= (uint32_t)m.stages; stage -= m.stages) phase ^= 1;
        }
    }
};
template <class T, class L>
__device__ __forceinline__ void bsri_mma_produce_chunk(const bsri_dev_mma &m, const bsri_mma_storage &s, const char *shared,
                                                       const bsri_column_chunk &list, const bsri_mma_rows &r, int64_t panel,
                                                       int64_t next, uint32_t stages_before, int64_t down) {
    bsri_mma_producer<T, L> f;
    f.begin(shared, m.a_trans), f.tile(m, r, panel), f.full = bsri_smem_address(s.full), f.empty = bsri_smem_address(s.empty);
    f.part(m, list, r, next, stages_before, down);
}
/* Sorts the groups of rows by their number of blocks, longest first; each CTA finds the same order. Only for few groups. Not
   where the schedule has groups like ours, as it is sorted already; a schedule with other groups is not sorted by them
   (note N21). The order of any batch item is right for all. Tiles then go round the CTAs: bsri_wgmma_assign() and attention's
   loads deal by what each has so far, which a warp must have to itself. */
__device__ __forceinline__ bool bsri_mma_rank(const bsri_dev_mma &m, bsri_mma_storage &s, int64_t lines, int64_t groups) {
    const int64_t *header = (const int64_t *)m.p.a.schedule;
    const bool view = header && (header[BSRI_SCHEDULE_TRANSPOSED] != 0) == (m.p.trans != 0);
    const int32_t *order = NULL;
    if (!m.order || groups > BSRI_CHUNK || (view && header[BSRI_SCHEDULE_GROUP] * m.view.rows == m.group)) return false;
    const bsri_mma_rows r = bsri_mma_rows_of(m.p, {m.p.a, m.p.b, 0});
    if (view) order = (const int32_t *)((const char *)header + BSRI_VIEW_HEADER); /* item 0's, as it has pattern 0 */
    for (int g = threadIdx.x; g < BSRI_CHUNK; g += BSRI_PRODUCERS) {
        uint32_t blocks = 0;
        for (int n = g * m.group; n < min((g + 1) * m.group, (int)lines); n++) {
            const int own = (int)bsri_view_line(m.view, n), line = order ? order[own] : own;
            if (line >= 0) blocks += (uint32_t)(bsri_dev_index(r.ptr, r.dt, line + 1) - bsri_dev_index(r.ptr, r.dt, line));
        }
        s.present[g] = blocks;
    }
    bsri_producer_sync();
    for (int g = threadIdx.x; g < groups; g += BSRI_PRODUCERS) {
        const uint32_t mine = s.present[g];
        int before = 0;
        for (int i = 0; i < groups; i += 4) { /* past the last group: 0 blocks, and a higher number */
            const uint4 v = *(const uint4 *)&s.present[i];
            before += (v.x > mine || (v.x == mine && i < g)) + (v.y > mine || (v.y == mine && i + 1 < g)) +
                      (v.z > mine || (v.z == mine && i + 2 < g)) + (v.w > mine || (v.w == mine && i + 3 < g));
        }
        s.order[before] = (uint16_t)g;
    }
    bsri_producer_sync();
    return true;
}
/* The fetching warps: parts of the CTA's tiles one after another, ahead of the others. Order 1: all panels of a group of rows,
   the longest rows first, forwards and backwards over the CTAs in turn, so that all get about the same work. */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_produce(const bsri_dev_mma &m, bsri_mma_storage &s, char *shared, bool nothing) {
    const bsri_dev_product &p = m.p;
    const uint32_t size = (uint32_t)m.group; /* unsigned: widened to 64 bits, its upper half takes no register */
    const int64_t lines = bsri_mma_lines(p);
    const uint32_t groups = (uint32_t)((lines + size - 1) / size), panels = (uint32_t)m.panels,
                   total = (uint32_t)p.items * panels * groups;
    const int lane = threadIdx.x % 32;
    uint32_t stages_before = 0, parts = 0;
    const bool ranked = bsri_mma_rank(m, s, lines, groups);
    for (uint32_t round = 0; round * gridDim.x < total; round++) {
        const uint32_t work = round * gridDim.x + (m.order && (round & 1) ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        if (work >= total) break;
        const uint32_t item = work / groups / panels, panel = m.order ? work % panels : work / groups % panels;
        uint32_t group = m.order ? work / panels % groups : work % groups;
        if (ranked) group = s.order[group];
        const int64_t line = lane < m.group ? bsri_mma_line(p, item, lines, (int64_t)group * size + lane) : -1;
        const int64_t out = bsri_dense_offset(&p.out_batch, item, &p.out), down = bsri_view_row(m.view, (uint32_t)line) * m.down;
        for (int64_t reduce = 0; reduce < p.reduce; reduce++) {
            bool more;
            const bsri_mma_rows r = bsri_mma_rows_of(p, bsri_dev_step_of(p, item, reduce));
            int64_t first = 0, end = 0; /* of row `lane` */
            if (line >= 0 && !nothing) first = bsri_view_index(m.view, r, line, 0), end = bsri_view_index(m.view, r, line, 1);
            if ((int)threadIdx.x < BSRI_GROUP) s.at[threadIdx.x] = first, s.end[threadIdx.x] = end;
            bsri_producer_sync();
            do {
                bsri_column_chunk &part = s.part[parts % 2];
                bsri_mbarrier_wait(bsri_smem_address(&s.chunk_empty[parts % 2]), (parts / 2 & 1) ^ 1);
                first = s.at[lane & 15];
                more = bsri_columns_next(s, part, r, m.view, m.group);
                if ((int)threadIdx.x < BSRI_GROUP) part.row[threadIdx.x] = line;
                if (threadIdx.x == 0)
                    part.item = item, part.panel = panel, part.last = !more && reduce + 1 == p.reduce, part.out = out;
                bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_full[parts % 2]));
                if (bsri_mma_by_rows<L>(m))
                    bsri_mma_produce_chunk<T, typename L::by_rows>(m, s, shared, part, r, panel, first, stages_before, down);
                else bsri_mma_produce_chunk<T, typename L::by_columns>(m, s, shared, part, r, panel, first, stages_before, down);
                stages_before += (uint32_t)(((part.count << m.sub_bits) + L::E - 1) / L::E), parts++;
                bsri_producer_sync();
            } while (more);
        }
    }
    bsri_mbarrier_wait(bsri_smem_address(&s.chunk_empty[parts % 2]), (parts / 2 & 1) ^ 1);
    if (threadIdx.x == 0) s.part[parts % 2].last = 2;
    bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_full[parts % 2]));
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-mma: sparse x dense by mma.sync: multiplying, epilogue, kernel                       */
/* ---------------------------------------------------------------------------------------------- */

/* --- multiplying --- */
/* 1 where ptxas runs out of registers with what fits for sm_80 and sm_90. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define BSRI_MMA_TIGHT 1
#else
#define BSRI_MMA_TIGHT 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define BSRI_MMA_FULL 1 /* what fits elsewhere takes more registers: tiles with 128 sums spill up to 8 bytes */
#else
#define BSRI_MMA_FULL 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BSRI_MMA_NARROW 1
#else
#define BSRI_MMA_NARROW 0
#endif
/* threadIdx.x. Tiles that leave no registers read it again where it is needed: kept over the main loop, it and what is computed
   from it would take registers from the sums (note N21). */
template <class L> __device__ __forceinline__ int bsri_mma_thread(void) {
    if (!L::PLAIN && !BSRI_MMA_TIGHT && L::type::BYTES != 8) return (int)threadIdx.x;
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}
template <class L> __device__ __forceinline__ int bsri_mma_warp(void) { /* of those that multiply */
    return (bsri_mma_thread<L>() - BSRI_PRODUCERS) / 32;
}
template <class T, class L> struct bsri_mma_consumer {
    typedef bsri_mma_parts<T> P;
    static constexpr int PARTS = P::PARTS;
    /* what ldmatrix cannot transpose: elements of 4 bytes are loaded one by one, those of 1 byte sorted after it */
    static constexpr bool WORDS = T::BYTES == 4, CHARS = T::BYTES == 1;
    /* Two parts of everything leave no registers to unroll the steps; nor do tiles of 256 columns on some GPUs. The rolled loop
       is slower, but on an H200 the next tier takes nearly all of these products (note N21). */
    static constexpr bool ROLLED = PARTS == 2 || (L::PLAIN && L::B_ROWS && BSRI_MMA_NARROW);
    static constexpr int TRANSPOSED = L::MW * T::BYTES; /* bytes of a line of values that are stored transposed */

    /* Where this lane reads its warp's values, and a dense slice from the warp's columns on. */
    static __device__ __forceinline__ uint32_t a_base(int a_trans) {
        const uint32_t lane = bsri_mma_thread<L>() % 32, i = lane / 8;
        if (!a_trans) return bsri_swizzle<L::LINE>(lane % 16, i >> 1);
        if (CHARS) return bsri_swizzle<TRANSPOSED>(bsri_mma_byte_line(lane), 0);
        if (WORDS) return bsri_swizzle<TRANSPOSED>(lane % 4, lane / 16) + lane / 4 % 4 * 4;
        return bsri_swizzle<L::LINE>(lane % 8 + (i >> 1) * 8, i & 1); /* KS lines of MW values, MW == KS */
    }
    static __device__ __forceinline__ uint32_t b_base(int n_warp) {
        const uint32_t lane = bsri_mma_thread<L>() % 32, low = lane % 8, i = lane / 8;
        if (!L::B_ROWS) return bsri_swizzle<L::LINE>(n_warp * L::WN + low + (i >> 1) * 8, i & 1);
        const uint32_t k = CHARS ? bsri_mma_byte_line(lane) : WORDS ? lane % 4 : low + (i & 1) * 8;
        if (CHARS) return k * L::BN + ((n_warp * (L::WN / 16) ^ bsri_swizzle_b<T, L>(k)) << 4);
        if (WORDS) {
            const uint32_t n = n_warp * L::WN + lane / 4, piece = n % 128 / 4;
            return n / 128 * (L::KS * 512) + k * L::B_LINE + ((piece ^ bsri_swizzle_b<T>(k)) << 4) + n % 4 * 4;
        }
        return k * (L::BN * T::BYTES) + (((n_warp * (L::WN / 8) + (i >> 1)) ^ bsri_swizzle_b<T>(k)) << 4);
    }
    /* Sum e of the 32 of a pass: its place in the tile of 16 x 64. */
    static __device__ __forceinline__ int place(int e, int a_trans) {
        const int lane = threadIdx.x % 32, second = e / 2 % 2, col = lane % 4 * 2 + e % 2;
        return (CHARS && a_trans ? lane / 4 * 2 + second : lane / 4 + second * 8) * BSRI_MMA_PAD +
               (CHARS && L::B_ROWS ? e / 8 * 16 + col * 2 + e / 4 % 2 : e / 4 * 8 + col);
    }
    /* 16 columns of a step */
    static __device__ __forceinline__ void dense(uint32_t (&y)[4], uint32_t b, uint32_t at, int kk, int n) {
        if (!L::B_ROWS) {
            bsri_mma_load(y, b + (at ^ (kk * 32)) + n * 8 * L::LINE);
        } else if (CHARS) {
            bsri_mma_load_bytes(y, b + (at ^ (n * 8)) + kk * 32 * L::BN);
        } else if (WORDS) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i] = bsri_mma_load_word(b + (at ^ ((n + i / 2) % 4 * 32)) + (n + i / 2) / 4 * 128 +
                                          (kk * 8 + i % 2 * 4) * L::B_LINE);
        } else {
            bsri_mma_load_t(y, b + (at ^ (n * 16)) + kk * 16 * (L::BN * T::BYTES));
        }
    }
    /* 16 rows of a step */
    static __device__ __forceinline__ void values(uint32_t (&x)[4], uint32_t a, uint32_t at, int kk, int mi, int a_trans) {
        if (!a_trans) {
            bsri_mma_load(x, a + (at ^ (kk * 32)) + mi * 16 * L::LINE);
        } else if (CHARS) {
            bsri_mma_load_bytes(x, a + (at ^ (mi * 16)) + kk * 32 * TRANSPOSED);
            const uint32_t second = x[1]; /* mma wants both halves of the rows, then the later products */
            x[1] = x[2], x[2] = second;
        } else if (WORDS) {
#pragma unroll
            for (int i = 0; i < 4; i++) /* rows i % 2 * 8, products i / 2 * 4 */
                x[i] = bsri_mma_load_word(a + (at ^ ((mi * 4 + i % 2 * 2) << 4) ^ (TRANSPOSED == 64 ? i / 2 * 32 : i / 2 * 64)) +
                                          (kk * 8 + i / 2 * 4) * TRANSPOSED);
        } else {
            bsri_mma_load_t(x, a + (at ^ (mi * 32)) + kk * 16 * L::LINE);
        }
    }
    static __device__ __forceinline__ void multiply(typename T::sum (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int a_trans,
                                                    int n_warp) {
        uint32_t ab = a_base(a_trans), bb = b_base(n_warp);
        asm volatile("" : "+r"(ab), "+r"(bb)); /* the asm has addresses computed here: kept ready, they would take registers from
                                                  the sums */
        multiply(sum, a, b, a_trans, ab, bb);
    }
    static __device__ __forceinline__ void multiply(typename T::sum (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int a_trans,
                                                    uint32_t ab, uint32_t bb) {
#pragma unroll(ROLLED ? 1 : L::STEPS)
        for (int kk = 0; kk < L::STEPS; kk++) {
            uint32_t x[L::MI][PARTS][4], y[2][PARTS][4];
            if (a_trans) {
#pragma unroll
                for (int mi = 0; mi < L::MI; mi++) values(x[mi][0], a, ab, kk, mi, 1);
            } else {
#pragma unroll
                for (int mi = 0; mi < L::MI; mi++) values(x[mi][0], a, ab, kk, mi, 0);
            }
#pragma unroll
            for (int mi = 0; mi < L::MI; mi++) P::split(x[mi]);
            /* load one step ahead: not by rows (no gain), not rolled (few registers), not with a single step (the sums would go
               to local memory) */
            constexpr bool EARLY = !L::B_ROWS && !ROLLED && L::STEPS > 1;
            if (EARLY) dense(y[0][0], b, bb, kk, 0);
#pragma unroll
            for (int n = 0; n < L::NI; n += 2) {
                uint32_t(&now)[PARTS][4] = y[n / 2 % 2];
                if (!EARLY) dense(now[0], b, bb, kk, n);
                else if (n + 2 < L::NI) dense(y[n / 2 % 2 ^ 1][0], b, bb, kk, n + 2);
                P::split(now);
#pragma unroll
                for (int mi = 0; mi < L::MI; mi++) P::mma(sum[mi][n], x[mi], now, 0), P::mma(sum[mi][n + 1], x[mi], now, 1);
            }
        }
    }
};
/* f32 by FFMA: a lane owns 8 x 8 sums, lanes of a warp stand MW / 8 x NL; four products at a time from operands whose lines run
   along the products, one at a time from others. Lanes i and i ^ 1 read the same dense pieces, i and i ^ 2 the same values: 16
   bytes a lane then take two cycles of shared memory, not four. */
template <class L> struct bsri_mma_consumer<bsri_mma_f32, L> {
    static constexpr int ML = L::MW / 8, NL = 32 / ML, TRANSPOSED = L::MW * 4; /* bytes of a line of values stored transposed */

    static __device__ __forceinline__ uint32_t tm(void) { return (threadIdx.x & 1) | (ML == 4 ? threadIdx.x % 32 >> 4 << 1 : 0); }
    static __device__ __forceinline__ uint32_t tn(void) { return threadIdx.x % 32 >> 1 & (NL - 1); }
    static __device__ __forceinline__ constexpr uint32_t exchange(int row, int line = L::LINE) {
        return (line == 64 ? row >> 1 & 3 : row & 7) << 4;
    }
    /* Sum e of the 32 of a pass: its place in the tile of 16 x 64. Which sum (i, j) it is: see fma. */
    static __device__ __forceinline__ int place(int e, int a_trans) {
        const int i = ML == 4 ? e % 4 : e / 4 % 2 * 4 + e % 4, j = ML == 4 ? e / 4 : e / 8;
        const int row = a_trans ? tm() * 4 + i % 4 + i / 4 * 8 : tm() + ML * i;
        return row * BSRI_MMA_PAD + (L::B_ROWS ? tn() * 4 + j % 4 + j / 4 * 32 : tn() + NL * j);
    }
    static __device__ __forceinline__ void fma(float (&sum)[L::MI][L::NI][4], int i, int j, float x, float y) {
        if constexpr (ML == 4) sum[i / 4][j][i % 4] = fmaf(x, y, sum[i / 4][j][i % 4]);
        else sum[0][j * 2 + i / 4][i % 4] = fmaf(x, y, sum[0][j * 2 + i / 4][i % 4]);
    }
    template <bool A_TRANS>
    static __device__ __forceinline__ void run(float (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int n_warp) {
        a += A_TRANS ? tm() * 16 : bsri_swizzle<L::LINE>(tm(), 0);
        b += L::B_ROWS ? n_warp * L::WN / 128 * (L::KS * 512) + n_warp * L::WN % 128 * 4 + tn() * 16
                       : bsri_swizzle<L::LINE>(n_warp * L::WN + tn(), 0);
#pragma unroll 2
        for (int k0 = 0; k0 < L::KS; k0 += 4) {
            float x[8][4], y[8][4]; /* [i][k] or [k][i], as loaded: two loads of four i each */
            if (!A_TRANS) {
#pragma unroll
                for (int i = 0; i < 8; i++) bsri_mma_load(x[i], (a ^ (k0 * 4) ^ exchange(ML * i)) + ML * i * L::LINE);
            }
            if (!L::B_ROWS) {
#pragma unroll
                for (int j = 0; j < 8; j++) bsri_mma_load(y[j], (b ^ (k0 * 4) ^ exchange(NL * j)) + NL * j * L::LINE);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (A_TRANS) {
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        bsri_mma_load(x[k * 2 + h], (a ^ exchange(k0 + k, TRANSPOSED) ^ (h * ML * 16)) + (k0 + k) * TRANSPOSED);
                }
                if (L::B_ROWS) {
                    bsri_mma_load(y[k * 2], b + (k0 + k) * L::B_LINE);
                    bsri_mma_load(y[k * 2 + 1], b + (k0 + k) * L::B_LINE + NL * 16);
                }
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        fma(sum, i, j, A_TRANS ? x[k * 2 + i / 4][i % 4] : x[i][k],
                            L::B_ROWS ? y[k * 2 + j / 4][j % 4] : y[j][k]);
            }
        }
    }
    static __device__ __forceinline__ void multiply(float (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int a_trans,
                                                    int n_warp) {
        if (a_trans) run<true>(sum, a, b, n_warp);
        else run<false>(sum, a, b, n_warp);
    }
};
/* f64 by mma.sync. ldmatrix has no elements of 8 bytes: a lane loads two neighbours at a time. Of a slice of 16 products it has
   in step kk those of numbers 4 t + 2 kk and the next, t = lane % 4: the 16-byte pieces of four lanes then lie in banks of their
   own with those of the lanes of one more row. Where lines run across the products, the neighbours are rows 2 g, 2 g + 1 of the
   values (g = lane / 4), or columns of two sums beside each other: see place(). */
template <class L> struct bsri_mma_consumer<bsri_mma_f64, L> {
    static_assert(L::KS == 16, "two steps");
    static constexpr int TRANSPOSED = L::MW * 8; /* bytes of a line of values that are stored transposed */

    /* Sum e of the 16 of a pass: its row and column in the tile of 16 x 32. */
    static __device__ __forceinline__ int row(int e, int a_trans) {
        const int g = threadIdx.x % 32 / 4, second = e / 2 % 2;
        return a_trans ? g * 2 + second : g + second * 8;
    }
    static __device__ __forceinline__ int col(int e) {
        const int col = threadIdx.x % 4 * 2 + e % 2;
        return L::B_ROWS ? e / 8 * 16 + col * 2 + e / 4 % 2 : e / 4 * 8 + col;
    }
    /* 16 rows of a step. */
    template <bool A_TRANS>
    static __device__ __forceinline__ void values(double (&x)[4], uint32_t a, uint32_t at, int kk, int mi) {
        double y[2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            bsri_mma_load(y[h], A_TRANS ? a + at + mi * 128 + (kk * 2 + h) * TRANSPOSED
                                        : a + (at ^ kk * 16) + (mi * 16 + h * 8) * L::LINE);
        x[0] = y[0][0], x[1] = A_TRANS ? y[0][1] : y[1][0], x[2] = A_TRANS ? y[1][0] : y[0][1], x[3] = y[1][1];
    }
    /* 16 columns of a step: y[side][product]. */
    static __device__ __forceinline__ void dense(double (&y)[2][2], uint32_t b, uint32_t at, int kk, int n) {
        double x[2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
            bsri_mma_load(x[h], L::B_ROWS ? b + at + n * 64 + (kk * 2 + h) * L::B_LINE
                                          : b + (at ^ kk * 16) + (n + h) * 8 * L::LINE);
        y[0][0] = x[0][0], y[0][1] = L::B_ROWS ? x[1][0] : x[0][1], y[1][0] = L::B_ROWS ? x[0][1] : x[1][0], y[1][1] = x[1][1];
    }
    template <bool A_TRANS>
    static __device__ __forceinline__ void run(double (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int n_warp) {
        const uint32_t lane = bsri_mma_thread<L>() % 32, g = lane / 4, t = lane % 4, n = n_warp * L::WN;
        const uint32_t ab = A_TRANS ? t * 4 * TRANSPOSED + ((g ^ t << 1) << 4) : bsri_swizzle<L::LINE>(g, t * 2);
        const uint32_t bb = L::B_ROWS ? n / 64 * (L::KS * 512) + t * 4 * L::B_LINE + ((g ^ t << 1) << 4) + n % 64 * 8
                                      : bsri_swizzle<L::LINE>(n + g, t * 2);
#pragma unroll
        for (int kk = 0; kk < 2; kk++) {
            double x[L::MI][4], y[2][2];
#pragma unroll
            for (int mi = 0; mi < L::MI; mi++) values<A_TRANS>(x[mi], a, ab, kk, mi);
#pragma unroll
            for (int i = 0; i < L::NI; i += 2) {
                dense(y, b, bb, kk, i);
#pragma unroll
                for (int mi = 0; mi < L::MI; mi++)
                    bsri_mma(sum[mi][i], x[mi], y[0][0], y[0][1]), bsri_mma(sum[mi][i + 1], x[mi], y[1][0], y[1][1]);
            }
        }
    }
    static __device__ __forceinline__ void multiply(double (&sum)[L::MI][L::NI][4], uint32_t a, uint32_t b, int a_trans,
                                                    int n_warp) {
        if (a_trans) run<true>(sum, a, b, n_warp);
        else run<false>(sum, a, b, n_warp);
    }
};
template <class A> struct bsri_mma_word { typedef A type; };
template <> struct bsri_mma_word<int32_t> { typedef uint32_t type; }; /* integers are modulo 2^32 */
/* The plain case where sums and out have 4 bytes: alpha only, 16 bytes at a time. 16 x 64 sums of a tile go to `out`. */
template <class A>
__device__ __forceinline__ void bsri_mma_store_sums(const bsri_dev_mma &m, const A *tile, A alpha, A *out, int cols) {
    const int lane = threadIdx.x % 32;
    const bool by_rows = m.vector == 1;
    const int64_t step = by_rows ? 2 * m.p.out.row_stride : 8 * m.p.out.col_stride;
    out += by_rows ? lane / 16 * m.p.out.row_stride + lane % 16 * 4 : lane % 4 * 4 + lane / 4 * m.p.out.col_stride;
    const int down = by_rows ? 1 : BSRI_MMA_PAD, next = by_rows ? 2 * BSRI_MMA_PAD : 8;
    tile += by_rows ? lane / 16 * BSRI_MMA_PAD + lane % 16 * 4 : lane % 4 * 4 * BSRI_MMA_PAD + lane / 4;
    cols -= by_rows ? lane % 16 * 4 : lane / 4;
#pragma unroll 1
    for (int i = 0; i < 8; i++, out += step, tile += next) {
        A v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = alpha * tile[k * down];
        if (by_rows ? 4 <= cols : i * 8 < cols) *(uint4 *)out = *(const uint4 *)v;
        else if (by_rows) {
#pragma unroll
            for (int k = 0; k < 3; k++)
                if (k < cols) out[k] = v[k];
        }
    }
}
/* The plain case of an epilogue: alpha only, out of the operands' type, 16 bytes at a time. 16 x 64 sums go to `out`. ADD: the
   tile holds an input. Pieces are those of bsri_mma_pieces, computed here, as with that struct 128 sums spill on sm_100 and
   sm_120. */
template <class T, bool ADD = false>
__device__ __forceinline__ void bsri_mma_store(const bsri_dev_mma &m, uint16_t *tile, const float (*sum)[4], float alpha,
                                               uint16_t *out, int cols, int lane) {
    const int g = lane / 4, t = lane % 4;
    const bool by_rows = m.vector == 1;
    if (by_rows) { /* rows of 72, else columns of 24 */
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t *const at = (uint32_t *)(tile + (g + i % 2 * 8) * 72 + i / 2 * 8 + t * 2);
            float v[2] = {alpha * sum[i / 2][i % 2 * 2], alpha * sum[i / 2][i % 2 * 2 + 1]}, x[2];
            if (ADD) bsri_dev_unpack(x, *at, T::DTYPE), v[0] = fmaf(m.beta, x[0], v[0]), v[1] = fmaf(m.beta, x[1], v[1]);
            *at = bsri_pack<T>(v[0], v[1]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            uint16_t *const at = tile + (i / 4 * 8 + t * 2 + i % 2) * 24 + g + i / 2 % 2 * 8;
            float v = alpha * sum[i / 4][i % 4], x[2];
            if (ADD) bsri_dev_unpack(x, *at, T::DTYPE), v = fmaf(m.beta, x[0], v);
            *at = (uint16_t)bsri_pack<T>(v, 0.0f);
        }
    }
    __syncwarp();
    const int r = by_rows ? lane / 8 : lane % 2 * 8, c = by_rows ? lane % 8 * 8 : lane / 2;
    const uint16_t *from = tile + (by_rows ? r * 72 + c : c * 24 + r);
    out += r * m.out_row + c * m.out_col;
    const int64_t step = by_rows ? 4 * m.out_row : 16 * m.out_col;
#pragma unroll
    for (int i = 0; i < 4; i++, out += step, from += by_rows ? 4 * 72 : 16 * 24) {
        if (by_rows ? c + 8 <= cols : c + i * 16 < cols) *(uint4 *)out = *(const uint4 *)from;
        else if (by_rows) {
#pragma unroll 1
            for (int k = 0; k < cols - c; k++) out[k] = from[k];
        }
    }
    __syncwarp();
}
/* Any epilogue, eight at a time, of 16 rows and `cols` of 64 columns; A: float or uint32_t. */
template <class A>
__device__ __forceinline__ void bsri_mma_finish(const bsri_dev_mma &m, const bsri_dev_finisher &f, A *tile, int64_t row,
                                                int64_t col, int cols) {
    const bool by_rows = m.p.out.col_stride == 1;
    const bsri_mma_pieces own(by_rows, threadIdx.x % 32);
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const int r = own.row(i), c = own.col(i), n = own.inside(i, cols);
        if (n) f.eight(m.p, tile + r * BSRI_MMA_PAD + c, by_rows ? 1 : BSRI_MMA_PAD, row + r, col + c, by_rows, n);
    }
}
/* The epilogue of tiles with 128 sums a lane, types of 2 bytes: the plain one only. Nothing is kept in registers that can be
   computed again, not even from pass to pass. */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_epilogue_plain(const bsri_dev_mma &m, const bsri_column_chunk &part, uint16_t *tile,
                                                        const float (&sum)[L::MI][L::NI][4]) {
#pragma unroll
    for (int pass = 0; pass < L::MI * L::NI / 8; pass++) {
        const int thread = bsri_mma_thread<L>() - BSRI_PRODUCERS, warp = thread / 32, m_warp = warp / L::NW;
        const int mi = pass % L::MI, n0 = pass / L::MI * 8;
        const float alpha = (float)(m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha);
        const int64_t line = part.row[m_warp >> m.block_bits];
        const int64_t row = line * m.p.br + (m_warp & ((1 << m.block_bits) - 1)) * L::MW + mi * 16;
        const int64_t col = part.panel * L::BN + warp % L::NW * L::WN + n0 * 8;
        const int cols = (int)bsri_max(0, bsri_min(64, m.p.width - col));
        uint16_t *out = (uint16_t *)m.p.out.data + part.out + row * m.p.out.row_stride + col * m.p.out.col_stride;
        if (line < 0 || !cols) continue;
        bsri_mma_store<T>(m, tile + warp * (2 * BSRI_MMA_PASS), &sum[mi][n0], alpha, out, cols, thread % 32);
    }
}
/* The sums of a pass into shared memory, as they are, or as real numbers. */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_lay(typename T::sum *tile, const typename T::sum (*sum)[4], int a_trans, bool real) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const typename T::sum x = sum[i / 4][i % 4];
        const int at = bsri_mma_consumer<T, L>::place(i, a_trans);
        if (T::INTEGER && real) ((float *)tile)[at] = (float)x;
        else tile[at] = x;
    }
}
template <class T, class L>
__device__ __forceinline__ void bsri_mma_epilogue(const bsri_dev_mma &m, const bsri_column_chunk &part, typename T::sum *tile,
                                                  const typename T::sum (&sum)[L::MI][L::NI][4]) {
    typedef typename bsri_mma_word<typename T::sum>::type word;
    int thread = bsri_mma_thread<L>();
    asm volatile("" : "+r"(thread)); /* the asm has what follows from it computed here: kept from tile to tile it would take
                                        registers */
    const int lane = thread % 32, warp = (thread - BSRI_PRODUCERS) / 32, m_warp = warp / L::NW;
    const int64_t line = part.row[m_warp >> m.block_bits], rs = m.p.out.row_stride, cs = m.p.out.col_stride;
    const int64_t row = line * m.p.br + (m_warp & ((1 << m.block_bits) - 1)) * L::MW,
                  col = part.panel * L::BN + warp % L::NW * L::WN;
    const int64_t first = part.out + row * rs + col * cs;
    const int left = (int)bsri_min(L::WN, m.p.width - col);
    const bool integer = T::INTEGER && (m.p.out.dtype == BSR_I8 || m.p.out.dtype == BSR_I32),
               plain = T::BYTES != 2 && m.vector;
    tile += warp * BSRI_MMA_PASS;
    bsri_dev_finisher &f = *(bsri_dev_finisher *)(tile + 16 * BSRI_MMA_PAD);
    if (line < 0 || left <= 0) return;
    if (!L::PLAIN && !plain && lane < 5) f.begin(m.p, part.item, lane);
#pragma unroll
    for (int pass = 0; pass < L::MI * L::NI / 8; pass++) {
        const int r0 = pass % L::MI * 16, c0 = pass / L::MI * 64, cols = min(64, left - c0);
        const typename T::sum(*part_sum)[4] = &sum[pass % L::MI][pass / L::MI * 8];
        const bool real = T::INTEGER && !L::PLAIN && !plain && !integer;
        if (T::BYTES != 2 && bsri_mma_by_rows<L>(m)) bsri_mma_lay<T, typename L::by_rows>(tile, part_sum, m.a_trans, real);
        else bsri_mma_lay<T, typename L::by_columns>(tile, part_sum, m.a_trans, real);
        __syncwarp();
        if (L::PLAIN || plain) {
            const word alpha = bsri_dev_scalar<word>::of(m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha);
            bsri_mma_store_sums(m, (const word *)tile, alpha, (word *)m.p.out.data + first + r0 * rs + c0 * cs, cols);
        } else if constexpr (!L::PLAIN) {
            if (integer) bsri_mma_finish(m, f, (uint32_t *)tile, row + r0, col + c0, cols);
            else bsri_mma_finish(m, f, (float *)tile, row + r0, col + c0, cols);
        }
        __syncwarp();
    }
}
/* 16 rows and `cols` of 32 columns of f64 sums from (row, col) on, in shared memory, to out: by 16 bytes where nothing but alpha
   is left to do. */
__device__ __forceinline__ void bsri_mma_finish(const bsri_dev_mma &m, const bsri_dev_writer<double> &to, double *tile,
                                                int64_t row, int64_t col, int cols) {
    const int lane = threadIdx.x % 32;
    const bool by_rows = m.vector ? m.vector == 1 : m.p.out.col_stride == 1;
    const int64_t rs = m.p.out.row_stride, cs = m.p.out.col_stride;
    double *const out = (double *)m.p.out.data + to.out + row * rs + col * cs;
    if (m.vector && (m.vector == 2 || cols % 2 == 0)) {
#pragma unroll 1
        for (int i = 0; i < 8; i++) {
            const int r = by_rows ? i * 2 + lane / 16 : lane % 8 * 2, c = by_rows ? lane % 16 * 2 : i * 4 + lane / 8;
            const double *x = tile + r * BSRI_MMA_PAD_F64 + c;
            if (c < cols)
                *(double2 *)(out + r * rs + c * cs) = make_double2(to.alpha * x[0], to.alpha * x[by_rows ? 1 : BSRI_MMA_PAD_F64]);
        }
    } else {
        /* operands of four elements are on their way at a time; an activation's code stands once */
#pragma unroll 1
        for (int i = 0; to.has && i < 16; i += 4) {
            double v[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int r = by_rows ? i + k : lane % 16, c = by_rows ? lane : (i + k) * 2 + lane / 16;
                if (c < cols) v[k] = to.linear(tile[r * BSRI_MMA_PAD_F64 + c], row + r, col + c);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int r = by_rows ? i + k : lane % 16, c = by_rows ? lane : (i + k) * 2 + lane / 16;
                if (c < cols) tile[r * BSRI_MMA_PAD_F64 + c] = v[k];
            }
        }
#pragma unroll 1
        for (int i = 0; i < 16; i++) {
            const int r = by_rows ? i : lane % 16, c = by_rows ? lane : i * 2 + lane / 16;
            if (c < cols) to.store(tile[r * BSRI_MMA_PAD_F64 + c], row + r, col + c);
        }
    }
}
template <class L>
__device__ __forceinline__ void bsri_mma_epilogue_f64(const bsri_dev_mma &m, const bsri_column_chunk &part, double *tile,
                                                      const double (&sum)[L::MI][L::NI][4]) {
    const int warp = bsri_mma_warp<L>(), m_warp = warp / L::NW;
    const int64_t line = part.row[m_warp >> m.block_bits];
    const int64_t row = line * m.p.br + (m_warp & ((1 << m.block_bits) - 1)) * L::MW;
    const int64_t col = part.panel * L::BN + warp % L::NW * L::WN;
    const int left = (int)bsri_min(L::WN, m.p.width - col);
    if (line < 0 || left <= 0) return;
    const bsri_dev_writer<double> to(m.p, m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha, m.p.beta_ptr ? *m.p.beta_ptr : m.p.beta,
                                     part.item);
    tile += warp * (BSRI_MMA_PASS / 2);
#pragma unroll
    for (int pass = 0; pass < L::MI * L::NI / 4; pass++) {
        const int mi = pass % L::MI, n0 = pass / L::MI * 4;
#pragma unroll
        for (int e = 0; e < 16; e++) {
            const int r = bsri_mma_consumer<bsri_mma_f64, typename L::by_rows>::row(e, m.a_trans);
            const int c = bsri_mma_by_rows<L>(m) ? bsri_mma_consumer<bsri_mma_f64, typename L::by_rows>::col(e)
                                                 : bsri_mma_consumer<bsri_mma_f64, typename L::by_columns>::col(e);
            tile[r * BSRI_MMA_PAD_F64 + c] = sum[mi][n0 + e / 4][e % 4];
        }
        __syncwarp();
        if (n0 * 8 < left) bsri_mma_finish(m, to, tile, row + mi * 16, col + n0 * 8, min(32, left - n0 * 8));
        __syncwarp();
    }
}
/* Address of a member in shared memory. */
#define BSRI_MMA_IN(type, at, member) ((at) + (uint32_t)offsetof(type, member))
/* The stages of a part, by one multiplying warp. Each lane arrives at `empty` for itself: racecheck sees no order between the
   lanes of a warp, so it would report a stage that one lane gives back for all (note N20). */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_mainloop(typename T::sum (&sum)[L::MI][L::NI][4], const bsri_dev_mma &m, uint32_t base,
                                                uint32_t list, uint32_t part, int stages, uint32_t &state) {
    constexpr int SIDE = L::PLAIN && BSRI_MMA_FULL ? 1 : L::E; /* slices that are unrolled */
    const int bits = m.sub_bits;
    const uint32_t full = BSRI_MMA_IN(bsri_mma_storage, list, full);
    uint32_t word = 0; /* which of 32 entries have a block in this warp's row */
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        const int entry = i * L::E >> bits;
        if ((i * L::E & ((32 << bits) - 1)) == 0) {
            const int own = entry + bsri_mma_thread<L>() % 32, row = bsri_mma_warp<L>() / L::NW >> m.block_bits;
            uint32_t mask = 0;
            if (own < bsri_mma_read32(BSRI_MMA_IN(bsri_column_chunk, part, count)))
                mask = bsri_mma_read16(BSRI_MMA_IN(bsri_column_chunk, part, mask) + 2 * own);
            word = __ballot_sync(~0u, mask >> row & 1);
        }
        const uint32_t have = word >> (entry & 31) & ((1u << L::E) - 1); /* E > 1: a slice is an entry */
        const uint32_t stage = state & 31, at = base + stage * m.stage_bytes;
        /* also with nothing to do: else a warp could give a stage back twice before the others have once */
        bsri_mbarrier_wait(full + 8 * stage, state >> 5 & 1);
#pragma unroll(SIDE)
        for (int e = 0; e < L::E; e++)
            if (have >> e & 1)
                bsri_mma_consumer<T, L>::multiply(sum, at + (e * m.m_warps + bsri_mma_warp<L>() / L::NW) * L::A_BYTES,
                                                at + m.b_at + e * L::B_BYTES, m.a_trans, bsri_mma_warp<L>() % L::NW);
        bsri_mbarrier_arrive(full + 8 * BSRI_GROUP + 8 * stage);
        state = stage + 1 == (uint32_t)m.stages ? (state ^ 32) & ~31u : state + 1;
    }
}
/* The multiplying warps. */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_consume(const bsri_dev_mma &m, bsri_mma_storage &s, char *shared) {
    const int bits = m.sub_bits;
    uint32_t state = 0; /* in one register: the pipeline's stage (5 bits) and phase, parts so far modulo 4 (from bit 6 on) */
    for (;;) {
        uint32_t base = bsri_smem_address(shared), list = bsri_smem_address(&s);
        /* pinned until the epilogue: computed again at each use, they would take registers from the sums */
        asm volatile("" : "+r"(base), "+r"(list));
        typename T::sum sum[L::MI][L::NI][4] = {};
        for (bool more = true; more; state = (state + 64) & 255) {
            const uint32_t part = list + (state >> 6 & 1) * (uint32_t)sizeof(bsri_column_chunk);
            bsri_mbarrier_wait(BSRI_MMA_IN(bsri_mma_storage, list, chunk_full) + 8 * (state >> 6 & 1), state >> 7);
            if (bsri_mma_read32(BSRI_MMA_IN(bsri_column_chunk, part, last)) == 2) return;
            const int stages = ((bsri_mma_read32(BSRI_MMA_IN(bsri_column_chunk, part, count)) << bits) + L::E - 1) / L::E;
            if (bsri_mma_by_rows<L>(m)) bsri_mma_mainloop<T, typename L::by_rows>(sum, m, base, list, part, stages, state);
            else bsri_mma_mainloop<T, typename L::by_columns>(sum, m, base, list, part, stages, state);
            more = !bsri_mma_read32(BSRI_MMA_IN(bsri_column_chunk, part, last));
            if (!more) {
                const bsri_column_chunk &last = s.part[state >> 6 & 1];
                char *tile = shared + m.stages * m.stage_bytes;
                if constexpr (L::PLAIN && T::BYTES == 2) bsri_mma_epilogue_plain<T, L>(m, last, (uint16_t *)tile, sum);
                else if constexpr (T::BYTES == 8) bsri_mma_epilogue_f64<L>(m, last, (double *)tile, sum);
                else bsri_mma_epilogue<T, L>(m, last, (typename T::sum *)tile, sum);
            }
            bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_empty[state >> 6 & 1])); /* by each lane, as in bsri_mma_mainloop():
                                                                                 all have read the chunk */
        }
    }
}
#endif

/* bsri_product_mma: a CTA stays and takes tiles of out one after another.
   Its tile is the choice of bsri_mma_choose() (>>cuda-plan-mma).

   Threads: warps 0 to 3 fetch (128 threads). The others, up to 8 warps, multiply (`readers` threads): m_warps below each other
   times L::NW beside each other, each MW x WN of out.

   Shared memory:
     dynamic:     m.stages times stage_bytes, in each of them
       0          values: slice e of m-warp w at (e m_warps + w) A_BYTES, MW x KS, as stored KS x MW
       b_at       dense operand: slice e at b_at + e B_BYTES, BN x KS, by rows KS x BN
     behind them  4 BSRI_MMA_PASS bytes for each multiplying warp: 16 x 64 sums, rows of BSRI_MMA_PAD, and a finisher
     static:      bsri_mma_storage: two parts of the column list, and what making them needs

   barrier         count    arrives                                              waits                   phase
   full[stage]     32       lanes of the warp that fills it, by cp.async landed  multiplying threads     round of the ring
   empty[stage]    readers  each multiplying thread: stage read                  the warp that fills it  round + 1
   chunk_full[2]   128      each fetching thread: chunk of the list written      multiplying threads     round of the chunks
   chunk_empty[2]  readers  each multiplying thread: chunk used up               fetching threads        round + 1
   bar.sync 1      128      fetching threads among themselves                    (bsri_producer_sync)
   A phase is the number of the round modulo 2, from 0 on; "+ 1": the first wait passes at once.
   Stage n of the CTA is filled by warp n % 4. There are at least four stages, so that no warp is a round ahead of another.

   Sums: as mma.sync has them: sum[i][n][e] of lane l is row 16 i + l / 4 + 8 (e / 2), column 8 n + l % 4 * 2 + e % 2 of its
   warp's part. ldmatrix reads operands from lines whose 16-byte pieces are swizzled: by bsri_swizzle() where lines run
   along the products, by bsri_swizzle_b() where they are rows of the dense operand. f32, and operands that ldmatrix can't
   transpose: see place().

   Order: 1. Fetching warps make a part of the tile's column list: up to 512 columns, and which of the block rows have each.
          2. They fill its stages: wait for empty, copy the blocks that exist and the dense slices; the copies arrive at full.
          3. Multiplying warps take the part, wait for full stage by stage, multiply what their block row has, give the stage
             back.
          4. After a tile's last part each runs the epilogue through memory of its own; the others are at the next tile already.
          5. A part whose `last` is 2 ends the multiplying warps. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) bsri_product_mma(const __grid_constant__ bsri_dev_mma m BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_mma_storage s;
    const bsri_dev_product &p = m.p;
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha;
    const int readers = (int)blockDim.x - BSRI_PRODUCERS;
    if ((int)threadIdx.x < m.stages) {
        bsri_mbarrier_init(bsri_smem_address(&s.full[threadIdx.x]), 32);
        bsri_mbarrier_init(bsri_smem_address(&s.empty[threadIdx.x]), readers);
    }
    if (threadIdx.x < 2) {
        bsri_mbarrier_init(bsri_smem_address(&s.chunk_full[threadIdx.x]), BSRI_PRODUCERS);
        bsri_mbarrier_init(bsri_smem_address(&s.chunk_empty[threadIdx.x]), readers);
    }
    __syncthreads();
    if (threadIdx.x < BSRI_PRODUCERS) bsri_mma_produce<T, L>(m, s, bsri_shared, alpha == 0.0);
    else bsri_mma_consume<T, L>(m, s, bsri_shared);
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-small: sparse x dense where there is little to do                                    */
/* ---------------------------------------------------------------------------------------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
#define BSRI_MMA_HOPPER 1
#else
#define BSRI_MMA_HOPPER 0
#endif
#ifdef BSRI_MMA_CODE
/* Each part of a tile is stored by bsri_small_store(), as whole tiles are; a kernel has one of the two ways, as both spill
   registers. Where it pays: note N15. */
template <class L> constexpr bool bsri_small_parts = L::MW == 32 && !L::SIMPLE && BSRI_MMA_HOPPER;
/* This warp's steps of a block row, number split_index of every `split`. */
template <class T, class L>
__device__ __forceinline__ void bsri_small_mainloop(float (&sum)[L::MI][L::NI][4], const bsri_dev_mma &m, const bsri_mma_rows &r,
                                                    bsri_mma_producer<T, L> f, int64_t line, int split_index) {
    typedef bsri_mma_consumer<T, L> worker;
    const int subs = (1 << m.sub_bits) - 1, stride = m.split * L::E;
    int lane = threadIdx.x % 32, lead = (L::STAGES - 1) * stride, which = 0; /* lead: what is fetched is so far ahead */
    uint32_t ab = worker::a_base(m.a_trans), bb = worker::b_base(0), to = f.base, end = f.base + L::WARP;
    int64_t a = 0; /* lane l: where slice l of the warp's next 32 lies */
    int32_t b = 0;
    if (L::CTAS == 4) { /* pinned in registers: without the asm nvcc recomputes them in every step (note N15); with three CTAs
                           there are registers enough */
        asm volatile("" : "+r"(ab), "+r"(bb), "+r"(to), "+r"(end), "+r"(lane), "+r"(lead));
        int whole = f.whole;
        asm volatile("" : "+r"(f.a_to), "+r"(f.b_to), "+r"(f.left), "+l"(f.values), "+l"(f.b), "+r"(whole));
        f.whole = whole;
    }
    uint32_t from = to; /* stages */
    if (!m.constant) bsri_pdl_wait();
    const int32_t first = bsri_view_index32(m.view, r, (uint32_t)line, 0); /* all are below 2^28 */
    const int slices = (bsri_view_index32(m.view, r, (uint32_t)line, 1) - first) << m.sub_bits;
#pragma unroll 1
    for (int now = split_index * L::E - lead; now < slices; now += stride) {
        const int at = now + lead; /* what is fetched now */
        if (now >= 0) bsri_cp_async_wait<L::STAGES - 2>();
        __syncwarp(); /* this step is there for all lanes, and the one before it is used up */
        if (at < slices) {
            const int mine = at + lane / L::E * stride + lane % L::E;
            if (which == 0) {
                if (mine < slices) {
                    const int32_t own = first + (mine >> m.sub_bits), entry = (int32_t)bsri_view_entry(m.view, own),
                                  beside = own - entry * m.view.cols,
                                  block = r.position ? bsri_dev_index(r.position, r.dt, entry) : entry;
                    b = (((bsri_dev_index(r.col, r.dt, entry) * m.view.cols + beside) << m.sub_bits) + (mine & subs)) * L::KS;
                    a = block * m.a_block + beside * m.right + (mine & subs) * m.a_step;
                }
                if (m.constant) bsri_pdl_wait(); /* the dense operand is not */
            }
#pragma unroll
            for (int e = 0; e < L::E; e++) {
                const int64_t ae = __shfl_sync(~0u, a, which + e);
                const int32_t be = __shfl_sync(~0u, b, which + e);
                if (at + e >= slices) break;
                f.slice(to + e * L::SLICE, f.values + ae, m.a_jump, m.near);
                f.dense(m, to + e * L::SLICE + L::A_BYTES, be, r.b);
            }
            which = (which + L::E) & 31;
            if ((to += L::STAGE) == end) to = end - L::WARP;
        }
        bsri_cp_async_commit();
        if (now < 0) continue;
#pragma unroll
        for (int e = 0; e < L::E; e++) {
            const uint32_t slice = from + e * L::SLICE;
            if (now + e < slices) worker::multiply(sum, slice, slice + L::A_BYTES, m.a_trans, ab, bb);
        }
        if ((from += L::STAGE) == end) from = end - L::WARP;
    }
    if (m.constant) bsri_pdl_wait(); /* nor may out be written before, where the row is empty */
    __syncwarp();
}
/* An input of 16 x 64 elements on its way to where bsri_mma_store() has them. */
__device__ __forceinline__ void bsri_mma_input(const bsri_dev_mma &m, uint32_t tile, const char *from, int cols, int lane) {
    const bsri_mma_pieces own(m.vector == 1, lane);
    const int64_t step = 2 * own.step(m.input_row, m.input_col);
    from += 2 * (own.r * m.input_row + own.c * m.input_col);
#pragma unroll
    for (int i = 0; i < 4; i++, from += step) {
        const int bytes = 2 * own.inside(i, cols);
        bsri_cp_async(tile + 2 * own.staged(i), bytes ? from : m.input, bytes);
    }
    bsri_cp_async_commit();
}
/* Four parts of 8 x 8 sums, as out's numbers, to lines of LINE; part i to i % 2 * next + i / 2 * far. */
template <int LINE, bool TRANSPOSED>
__device__ __forceinline__ void bsri_mma_put(uint16_t *tile, int next, int far, uint32_t x0, uint32_t x1, uint32_t x2,
                                             uint32_t x3) {
    const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    const uint32_t to = bsri_smem_address(tile + lane % 8 * LINE + lane / 8 % 2 * next + lane / 16 * far);
    if (TRANSPOSED) bsri_stmatrix_t(to, x0, x1, x2, x3);
    else bsri_stmatrix(to, x0, x1, x2, x3);
#else
    const uint32_t x[4] = {x0, x1, x2, x3};
    tile += lane / 4 * LINE + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
        *(uint32_t *)(tile + i % 2 * next + i / 2 * far) = TRANSPOSED ? bsri_mma_transpose(x[i]) : x[i];
#endif
}
/* A tile that a warp has to itself, stored all at once: far fewer instructions than bsri_mma_store() takes, which counts where a
   tile multiplies two or three blocks only (note N15). It stores pieces of 128 bytes and more by rows, of 32 and 64 by columns:
   the L2 takes as many requests a second, short or long. Shared memory has no bank conflicts. */
template <class T, int MI, int NI>
__device__ __forceinline__ void bsri_small_store(const bsri_dev_mma &m, uint16_t *tile, float (*sum)[NI][4],
                                                     uint16_t *out, int cols, int lane) {
    constexpr int ROW = NI * 8 + 8, COL = MI * 16 + 8, ALONG = NI, DOWN = MI * 2; /* lines; their pieces */
    auto word = [&](int mi, int n, int second) { return bsri_pack<T>(sum[mi][n][second * 2], sum[mi][n][second * 2 + 1]); };
    if (m.alpha != 1.0f) {
#pragma unroll
        for (int i = 0; i < MI * NI * 4; i++) sum[i / 4 / NI][i / 4 % NI][i % 4] *= m.alpha;
    }
    if (m.vector == 1) {
#pragma unroll
        for (int i = 0; i < MI * NI; i += 2) {
            const int mi = i / NI, n = i % NI;
            bsri_mma_put<ROW, false>(tile + mi * 16 * ROW + n * 8, 8 * ROW, 8, word(mi, n, 0), word(mi, n, 1), word(mi, n + 1, 0),
                                     word(mi, n + 1, 1));
        }
        __syncwarp();
        const int64_t step = 32 / ALONG * m.out_row;
        tile += lane / ALONG * ROW + lane % ALONG * 8, out += lane / ALONG * m.out_row + lane % ALONG * 8;
#pragma unroll
        for (int r = 0; r < MI * 16; r += 32 / ALONG, out += step) *(uint4 *)out = *(const uint4 *)(tile + r * ROW);
    } else {
#pragma unroll
        for (int n = 0; n < NI; n += 3 - MI) {
            const int mi = MI - 1, next = n + 2 - MI;
            bsri_mma_put<COL, true>(tile + n * 8 * COL, 8, MI == 2 ? 16 : 8 * COL, word(0, n, 0), word(0, n, 1),
                                    word(mi, next, 0), word(mi, next, 1));
        }
        __syncwarp();
        const int c = MI == 2 ? lane / 8 + (lane & 4) : lane / 2 % 4 * 2 + lane / 8 % 2 + lane / 16 * 8, r = lane % DOWN * 8;
        tile += c * COL + r, out += r + c * m.out_col;
#pragma unroll
        for (int i = 0; i < NI * 8; i += 32 / DOWN)
            if (c + i < cols) *(uint4 *)(out + i * m.out_col) = *(const uint4 *)(tile + i * COL);
    }
    __syncwarp();
}
/* The tile's warps add up in their order, 16 rows by each of the first of them, which writes those to out. f: what is to be done
   with the sums, or null: alpha and an input that lies as out does are all. */
template <class T, class L>
__device__ __forceinline__ void bsri_small_epilogue(float (&sum)[L::MI][L::NI][4], const bsri_dev_mma &m,
                                                      const bsri_dev_finisher *f, char *tiles, int64_t row, int64_t col) {
    const int split = m.split, team = threadIdx.x / 32 >> m.split_bits, warp = threadIdx.x / 32 & (split - 1);
    const int cols = (int)bsri_min(L::BN, m.width - col);
    int lane = threadIdx.x % 32;
    if (!L::SIMPLE) asm volatile("" : "+r"(lane)); /* or all that comes of it is made before the loop over tiles, and spilled */
    auto part = [&](int i) { return &sum[i / L::ACROSS][i % L::ACROSS * 8]; }; /* 16 x 64 sums, and where they stand */
    auto down = [](int i) { return i / L::ACROSS * 16; };
    auto right = [](int i) { return i % L::ACROSS * 64; };
    uint16_t *const to = (uint16_t *)m.out + row * m.out_row + col * m.out_col; /* where !f */
    float4 *const mine = (float4 *)(tiles + warp * L::WARP); /* what it stores itself goes through where it hands nothing over */
    if (!f && !m.input && split == 1 && (m.vector == 2 || cols == L::BN) && !bsri_small_parts<L>) {
        bsri_small_store<T, L::MI, L::NI>(m, (uint16_t *)mine, sum, to, cols, lane);
        return;
    }
    if (!f && m.input) { /* comes while sums are handed over */
#pragma unroll
        for (int i = 0; i < L::PARTS; i++)
            if (warp == i % split)
                bsri_mma_input(m, bsri_smem_address(mine + i * 256),
                               m.input + 2 * ((row + down(i)) * m.input_row + (col + right(i)) * m.input_col), cols - right(i),
                               lane);
    }
#pragma unroll
    for (int i = 0; i < L::PARTS; i++)
        if (warp != i % split) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float *const x = part(i)[n];
                mine[(i * 8 + n) * 32 + lane] = make_float4(x[0], x[1], x[2], x[3]);
            }
        }
    bsri_named_sync(1 + team, split * 32);
#pragma unroll
    for (int i = 0; i < L::PARTS; i++) {
        uint16_t *const stage = (uint16_t *)(mine + i * 256);
        float(*const own)[4] = part(i);
        if (warp != i % split || cols <= right(i)) continue;
#pragma unroll 1
        for (int w = 0; w < split; w++) {
            const float4 *from = (const float4 *)(tiles + w * L::WARP) + i * 256 + lane;
            if (w == warp) continue;
#pragma unroll
            for (int n = 0; n < 8; n++, from += 32)
                own[n][0] += from->x, own[n][1] += from->y, own[n][2] += from->z, own[n][3] += from->w;
        }
        if (bsri_small_parts<L> && !f && !m.input && (m.vector == 2 || cols - right(i) >= 64)) {
            bsri_small_store<T, 1, 8>(m, stage, (float(*)[8][4])own, to + down(i) * m.out_row + right(i) * m.out_col,
                                          cols - right(i), lane);
        } else if (!f && m.input) {
            bsri_cp_async_wait<0>(), __syncwarp();
            bsri_mma_store<T, true>(m, stage, own, m.alpha, to + down(i) * m.out_row + right(i) * m.out_col, cols - right(i),
                                    lane);
        } else if (!f || m.vector) {
            char *const out = f ? (char *)f->operand[4].data : m.out;
            const int64_t at = (row + down(i)) * m.out_row + (col + right(i)) * m.out_col;
            bsri_mma_store<T>(m, stage, own, f ? f->alpha : m.alpha, (uint16_t *)out + at, cols - right(i), lane);
        } else {
            float *const pass = (float *)(mine + L::PARTS * 256);
#pragma unroll
            for (int e = 0; e < 32; e += 2)
                *(float2 *)(pass + bsri_mma_consumer<T, L>::place(e, m.a_trans)) =
                    make_float2(own[e / 4][e % 4], own[e / 4][e % 4 + 1]);
            __syncwarp();
            bsri_mma_finish(m, *f, pass, row + down(i), col + right(i), cols - right(i));
            __syncwarp();
        }
    }
}
/* Tile number n by `by`, of which the inverse, rounded down, makes a quotient too small by one at most. */
__device__ __forceinline__ uint32_t bsri_small_divide(const bsri_dev_mma &m, uint32_t n) {
    const uint32_t q = __umulhi(n, m.by_inverse);
    return q + (n - q * m.by >= m.by);
}
/* All of this warp's tiles. SIMPLE: as bsri_facts says: what most calls need then stands side by side in the code
   and in the parameters. */
template <class T, class L, bool SIMPLE>
__device__ __forceinline__ void bsri_small_work(const bsri_dev_mma &m, bsri_dev_finisher &finisher, char *shared) {
    const bsri_dev_product &p = m.p;
    const uint32_t warp = threadIdx.x / 32, split = 1u << m.split_bits, team = warp >> m.split_bits, teams = 4 >> m.split_bits;
    bsri_mma_producer<T, L> f;
    f.begin(shared + warp * L::WARP, m.a_trans);
    for (uint32_t work = blockIdx.x * teams + team; work < (uint32_t)m.total; work += gridDim.x * teams) {
        const uint32_t number = m.order ? work : work >> (2 - m.split_bits), whole = bsri_small_divide(m, number);
        const uint32_t rest = number - whole * m.by, tile = m.order ? whole : rest, row = tile >> m.block_bits;
        const uint32_t panel = m.order ? rest : whole * teams + team;
        if (panel >= (uint32_t)m.panels) continue; /* a CTA's teams have panels side by side; the last may not be there */
        const uint32_t item = SIMPLE ? 0 : row / (uint32_t)m.lines, line = row - item * m.lines;
        const int part = (int)(tile - (row << m.block_bits));
        uint32_t first = warp;
        if (!L::SIMPLE) asm volatile("" : "+r"(first)); /* what comes of it is made here: see bsri_small_epilogue() */
        first &= split - 1; /* step */
        float sum[L::MI][L::NI][4] = {};
        int64_t reduce = 1;
        if (!SIMPLE) {
            bsri_pdl_wait();
            reduce = (p.alpha_ptr ? *p.alpha_ptr : p.alpha) == 0.0 ? 0 : p.reduce;
            if ((threadIdx.x & (split * 32 - 1)) < 5) finisher.begin(p, item, (int)threadIdx.x % 32);
        }
        for (int64_t i = 0; i < reduce; i++) {
            const bsri_mma_rows r = SIMPLE ? m.rows : bsri_mma_rows_of(p, bsri_dev_step_of(p, item, i));
            f.tile(m, r, panel);
            f.values += part * m.a_part + bsri_view_row(m.view, line) * m.down;
            bsri_small_mainloop<T, L>(sum, m, r, f, line, (int)first);
        }
        bsri_pdl_launch_dependents();
        bsri_small_epilogue<T, L>(sum, m, SIMPLE ? NULL : &finisher, shared + team * split * L::WARP,
                                    (int64_t)tile * L::MW - (int64_t)item * m.lines * p.br, (int64_t)panel * L::BN);
        bsri_named_sync(1 + team, split * 32);
    }
}
#endif
/* CTAs of a multiprocessor that must find registers. sm_86 and sm_89 have shared memory for one of those of which others take
   three: registers for three would spill there. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
#define BSRI_MMA_SHORT_CTAS(ctas) ((ctas) == 3 ? 1 : (ctas))
#else
#define BSRI_MMA_SHORT_CTAS(ctas) ctas
#endif
/* bsri_product_small: each warp has a pipeline of its own, and meets others only when its sums are made.
   Its tile is the choice of bsri_small_choose() (>>cuda-plan-mma).

   Threads: four warps. m.split of them (1, 2 or 4) are a team and share a tile of MW rows and COLS columns; a CTA has 4 / split
   teams.

   Shared memory:
     dynamic:   4 x L::WARP bytes, a ring for each warp: STAGES of E slices, a slice being
       0        values, MW x MW (A_BYTES)
       A_BYTES  dense operand, COLS x MW, by rows MW x COLS (B_BYTES)
     then       the same bytes hold PARTS x 4096 bytes of sums (float4 number n * 32 + lane of a part) or of what is stored, and
                behind them, for any epilogue, 4 BSRI_MMA_PASS bytes
     static:    a finisher for each team

   There is no mbarrier. A warp's copies are cp.async groups, one a step; STAGES - 1 of them may be on their way while a step is
   multiplied, and __syncwarp stands before a stage is written again. bar.sync 1 + team (32 split threads): when sums are handed
   over (but where a warp alone stores a whole tile), and at a tile's end, before the rings are used again.

   Sums: as mma.sync has them (see bsri_product_mma). Part i of a tile is 16 rows and 64 columns; warp i % split of the team
   adds it up, in the order of the warps, and stores it.

   Order: 1. Row pointers; then lane l finds out where slice l of the warp's next 32 slices is.
          2. Step by step, STAGES - 1 steps ahead, E slices are copied; values by way of the L1 where warps beside ask for the
             same.
          3. Warp w of a team multiplies steps w, w + split, ... of the row.
          4. The next kernel may start. An input is asked for; sums are handed over; bar.sync.
          5. Sums are added up, the epilogue runs, out is stored by pieces of 16 bytes; bar.sync. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, BSRI_MMA_SHORT_CTAS(L::CTAS))
    bsri_product_small(const __grid_constant__ bsri_dev_mma m BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_dev_finisher finisher[4];
    if (L::SIMPLE || (m.simple && m.vector)) { /* m.simple alone would do, but then sm_80 spills 4 bytes */
        asm volatile("" ::"l"(m.out), "l"(m.out_row), "f"(m.alpha)); /* asks for these parameters before memory may be read */
        bsri_small_work<T, L, true>(m, finisher[0], bsri_shared);
    } else {
        bsri_small_work<T, L, false>(m, finisher[threadIdx.x / 32 >> m.split_bits], bsri_shared);
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-narrow-mma: sparse x few columns by mma.sync, bound by the values' bytes             */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_MMA_CODE
/* Before anything is read: the kernel before this one may still run, and write it. The L2 is where both meet, so what is brought
   there stays true. */
__device__ __forceinline__ void bsri_narrow_mma_begin(const bsri_dev_narrow_mma &m) {
#if __CUDA_ARCH__ >= 900
    constexpr int PIECE = 4096, LINE = 128;
    if (m.stream) {
        int64_t begin = blockIdx.x * m.ahead, end = bsri_min(begin + m.ahead, m.stream);
        for (int64_t at = begin + threadIdx.x * PIECE; at < end; at += blockDim.x * PIECE)
            bsri_dev_prefetch(m.rows.values + at, (uint32_t)bsri_min(PIECE, end - at));
        begin = blockIdx.x * m.col_ahead, end = bsri_min(begin + m.col_ahead, m.col_stream);
        for (int64_t at = begin + threadIdx.x * LINE; at < end; at += blockDim.x * LINE)
            bsri_dev_prefetch((const char *)m.rows.col + at);
    }
    bsri_pdl_wait();
#endif
}
/* What a lane reads of the dense operand for a unit. Products run in an order in which a lane reads 8 neighbours of a row of
   values: register j of lane (g, t) stands for products 8t + 2j and the next, in a and b alike. */
template <bool ROWS> struct bsri_narrow_mma_dense;
template <> struct bsri_narrow_mma_dense<false> { /* columns, by 16 bytes */
    static __device__ __forceinline__ int part() { return threadIdx.x % 4; } /* which 8 products */
    static __device__ __forceinline__ int column() { return threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ uint4 load(const bsri_dev_narrow_mma &, const uint16_t *at, bool) {
        return *(const uint4 *)at;
    }
    static __device__ __forceinline__ uint4 use(const uint4 &x) { return x; }
};
template <>
struct bsri_narrow_mma_dense<true> { /* any strides: lane (r, t) reads products 8(r/2) + 2j + r%2 of columns 2t, 2t + 1 */
    static __device__ __forceinline__ int part() { return threadIdx.x % 32 / 8; }
    static __device__ __forceinline__ int column() { return threadIdx.x % 4 * 2; }
    static __device__ __forceinline__ uint4 load(const bsri_dev_narrow_mma &m, const uint16_t *at, bool both) {
        uint32_t q[4];
        at += threadIdx.x / 4 % 2 * m.b_row;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint16_t *from = at + 2 * j * m.b_row;
            if (m.vec2) q[j] = *(const uint32_t *)from;
            else q[j] = from[0] | (both ? (uint32_t)from[m.b_col] << 16 : 0);
        }
        return make_uint4(q[0], q[1], q[2], q[3]);
    }
    static __device__ __forceinline__ uint4 use(const uint4 &x) {
        return make_uint4(bsri_mma_transpose(x.x), bsri_mma_transpose(x.y), bsri_mma_transpose(x.z), bsri_mma_transpose(x.w));
    }
};
#endif
template <class L> struct bsri_narrow_mma {
    typedef typename L::type T;
    static constexpr int MI = L::MI, NI = L::NI, ROWS = L::ROWS, COLS = L::COLS;
    static constexpr bool B_ROWS = L::B_ROWS;
#ifdef BSRI_MMA_CODE
    typedef bsri_narrow_mma_dense<B_ROWS> dense;
    const bsri_dev_narrow_mma &m;
    const char *values; /* this lane's first of the row's first block, of block 0 where entries have positions */
    const char *col, *position;
    const uint16_t *b; /* this lane's first column */
    int count;         /* products of the row */

    /* The entry that has product n of the row. */
    __device__ __forceinline__ int entry(int n) const { return m.by_bc ? (int)__umulhi((uint32_t)n / 16, m.by_bc) : n >> m.bits; }
    /* The warp's next unit of ROWS x 32 values. */
    __device__ __forceinline__ void step(float (&sum)[MI][NI][4], int unit) const {
        const int dt = m.rows.dt, v = unit * 32 + threadIdx.x % 4 * 8, w = unit * 32 + dense::part() * 8;
        const int block = entry(v), other = entry(w);
        const int32_t line = w < count ? bsri_dev_index(col, dt, other) : -1;
        const char *from = values + (v - block * m.bc) * 2;
        uint4 x[2 * MI], y[NI];
        from += (position && v < count ? bsri_index(position, dt, block) : block) * m.a_block;
#pragma unroll
        for (int j = 0; j < 2 * MI; j++, from += 8 * m.a_line)
            x[j] = v < count ? __ldcs((const uint4 *)from) : make_uint4(0, 0, 0, 0);
        const uint16_t *at = b + ((int64_t)line * m.bc + (w - other * m.bc)) * m.b_row;
        int column = dense::column();
#pragma unroll
        for (int n = 0; n < NI; n++, column += 8, at += 8 * m.b_col)
            y[n] = line >= 0 && column < m.width ? dense::load(m, at, column + 1 < m.width) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int n = 0; n < NI; n++) {
            const uint4 d = dense::use(y[n]);
#pragma unroll
            for (int j = 0; j < MI; j++) {
                const uint4 &p = x[2 * j], &q = x[2 * j + 1];
                const uint32_t a0[4] = {p.x, q.x, p.y, q.y}, a1[4] = {p.z, q.z, p.w, q.w};
                bsri_mma<T>(sum[j][n], a0, d.x, d.y), bsri_mma<T>(sum[j][n], a1, d.z, d.w);
            }
        }
    }
    static __device__ __forceinline__ void walk(float (&sum)[MI][NI][4], const bsri_dev_narrow_mma &m, const bsri_mma_rows &other,
                                                int64_t tile, int sub) {
        const int warp = threadIdx.x / 32, warps = blockDim.x / 32, dt = m.rows.dt, size = dt == BSR_I64 ? 8 : 4;
        const void *ptr = m.single ? m.rows.ptr : other.ptr, *col = m.single ? m.rows.col : other.col;
        const void *position = m.single ? m.rows.position : other.position;
        const int64_t first = bsri_index(ptr, dt, tile), count = (bsri_index(ptr, dt, tile + 1) - first) * m.bc;
        const char *values = (m.single ? m.rows.values : other.values) + (sub * ROWS + threadIdx.x % 32 / 4) * m.a_line;
        const uint16_t *b = (const uint16_t *)(m.single ? m.rows.b : other.b) + dense::column() * m.b_col;
        const bsri_narrow_mma one = {m, position ? values : values + first * m.a_block, (const char *)col + first * size,
                                 position ? (const char *)position + first * size : NULL, b, (int)count};
        for (int unit = warp; unit * 32 < one.count; unit += warps) one.step(sum, unit);
    }
    /* The sums of all warps, in their order. */
    static __device__ __forceinline__ void finish(const bsri_dev_narrow_mma &m, const float (&sum)[MI][NI][4], int64_t work) {
        extern __shared__ __align__(1024) char bsri_shared[];
        float(*part)[ROWS][COLS + 1] = (float(*)[ROWS][COLS + 1])bsri_shared;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int j = 0; j < MI; j++)
#pragma unroll
            for (int n = 0; n < NI; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) part[warp][j * 16 + i / 2 * 8 + g][n * 8 + t * 2 + i % 2] = sum[j][n][i];
        __syncthreads();
        const bool rows = m.out_col == 1;
        const int64_t item = m.single ? 0 : bsri_divide(work, m.tiles * m.subs), row = (work - item * m.tiles * m.subs) * ROWS;
        for (int i = threadIdx.x; i < ROWS * COLS; i += blockDim.x) {
            const int y = rows ? i / COLS : i % ROWS, x = rows ? i % COLS : i / ROWS;
            float v = 0;
            if (x >= m.width) continue;
            for (int w = 0; w < warps; w++) v += part[w][y][x];
            if (m.plain) {
                bsri_dev_store(m.out, m.out_dtype, (row + y) * m.out_row + x * m.out_col, v);
                continue;
            }
            const double alpha = m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha, beta = m.p.beta_ptr ? *m.p.beta_ptr : m.p.beta;
            bsri_dev_finish<float>(m.p, v, alpha, beta, item, row + y, x);
        }
        __syncthreads();
    }
#endif
};
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS)
    bsri_product_narrow_mma(const __grid_constant__ bsri_dev_narrow_mma m BSRI_GATE) {
    bsri_pdl_launch_dependents();
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef bsri_narrow_mma<L> narrow;
    constexpr int MI = L::MI, NI = L::NI;
    bsri_narrow_mma_begin(m);
    __shared__ bsri_mma_rows other;
    int reduce = 1;
    if (!m.plain) reduce = (m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha) == 0.0 ? 0 : (int)m.p.reduce;
    for (int64_t work = blockIdx.x; work < m.work; work += gridDim.x) {
        const int64_t line = bsri_divide(work, m.subs);
        const int64_t item = m.single ? 0 : bsri_divide(line, m.tiles), tile = line - item * m.tiles;
        float sum[MI][NI][4] = {};
        for (int i = 0; i < reduce; i++) {
            if (!m.single && threadIdx.x == 0)
                other = bsri_mma_rows_of(m.p, bsri_dev_step_of(m.p, item, i));
            if (!m.single) __syncthreads();
            narrow::walk(sum, m, other, tile, (int)(work - line * m.subs));
            if (!m.single) __syncthreads();
        }
        narrow::finish(m, sum, work);
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-narrow-tma: sparse x few columns by tensor loads                                     */
/* ---------------------------------------------------------------------------------------------- */

template <class L> struct bsri_narrow_tma {
    typedef typename L::type T;
    static constexpr int MI = L::MI, NI = L::NI, ROWS = L::ROWS, COLS = L::COLS, A_BYTES = L::A_BYTES, STAGE = L::STAGE;
    static constexpr int UNIT = L::UNIT, OWN = L::OWN, STAGES = L::STAGES, WARPS = L::WARPS, TILE = L::TILE;
    static constexpr bool ACROSS = L::ACROSS;
#ifdef BSRI_WGMMA_CODE
    /* Of one stage: a block, behind it its rows of b. */
    static __device__ __forceinline__ void multiply(float (&sum)[OWN][NI][4], uint32_t stage, const bsri_dev_narrow_tma &m) {
        if constexpr (UNIT == 1) by_warp(sum, stage, m);
        else {
            float(&all)[NI * 4] = *(float(*)[NI * 4])sum;
            if (ACROSS && m.out_row == 1 && m.columns) by_group<32, 0, ACROSS>(all, stage);
            else if (ACROSS && m.out_row == 1) by_group<2048, 1, ACROSS>(all, stage);
            else if (m.columns) by_group<32, 0, false>(all, stage);
            else by_group<2048, 1, false>(all, stage);
        }
    }
    /* STEP: bytes of b from 16 products to the next; TB: they run across its rows. */
    template <int STEP, int TB, bool SWAPPED>
    static __device__ __forceinline__ void by_group(float (&sum)[NI * 4], uint32_t stage) {
        bsri_wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint64_t a = bsri_wgmma_desc<128>(stage + k * 32, 0);
            const uint64_t b = bsri_wgmma_desc<128>(stage + A_BYTES + k * STEP, 8192);
            if constexpr (SWAPPED) bsri_wgmma<T, COLS, TB, 0>::ss(sum, b, a);
            else bsri_wgmma<T, COLS, 0, TB>::ss(sum, a, b);
        }
        bsri_wgmma_commit(), bsri_wgmma_wait<0>();
        bsri_wgmma_done(sum);
    }
    static __device__ __forceinline__ void by_warp(float (&sum)[OWN][NI][4], uint32_t stage, const bsri_dev_narrow_tma &m) {
        const int lane = threadIdx.x % 32, columns = m.columns;
        const uint32_t a = stage + lane % 16 * 128, b = stage + A_BYTES, swizzle = (lane / 16 ^ lane % 8) << 4;
        uint32_t y[NI < 2 ? 1 : NI / 2][4], at, along, across; /* b: to the next 16 products, 16 columns */
        if (columns) at = NI == 1 ? lane % 8 * 128 + lane / 8 * 16 : (lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16;
        else at = NI == 1 ? lane * 16 : lane % 16 * (16 * NI) + lane / 16 * 16;
        along = columns ? 32 : 256 * NI, across = columns ? 2048 : 32;
#pragma unroll
        for (int k = 0; k < 4; k++) { /* 16 products */
            if (NI > 1 || k % 2 == 0) {
#pragma unroll
                for (int n = 0; n < (NI < 2 ? 1 : NI / 2); n++) {
                    const uint32_t to = at + k * along + n * across, from = b + (to ^ (to >> 7 & m.swizzle) << 4);
                    if (columns) bsri_mma_load(y[n], from);
                    else bsri_mma_load_t(y[n], from);
                }
            }
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                uint32_t x[4];
                bsri_mma_load(x, a + (swizzle ^ k << 5) + j * 2048);
#pragma unroll
                for (int n = 0; n < NI; n++) {
                    const int i = NI == 1 ? k % 2 * 2 : n % 2 * 2;
                    bsri_mma<T>(sum[j][n], x, y[n / 2][i], y[n / 2][i + 1]);
                }
            }
        }
    }
    static __device__ __forceinline__ void walk(float (&sum)[OWN][NI][4], const bsri_dev_narrow_tma &m, int strip, int side,
                                                uint32_t ring, uint32_t barriers, bsri_pipe<> &pipe) {
        const int lane = threadIdx.x % 32, part = threadIdx.x / (32 * UNIT), first = threadIdx.x / 32 % UNIT == 0;
        const int tile = (int)bsri_view_line(m.view, strip), sub = strip - tile * m.view.rows;
        int before = bsri_dev_index(m.ptr, m.dt, tile), after = bsri_dev_index(m.ptr, m.dt, tile + 1);
        before = __shfl_sync(~0u, before, 0), after = __shfl_sync(~0u, after, 0); /* the compiler sees that they are uniform */
        const int pieces = (after - before) * m.view.cols;
        auto lines = [&](int piece) { /* lane l: the block column of the warp's piece l from here on */
            const int own = piece + lane * m.warps;
            return own < pieces ? bsri_dev_index(m.col, m.dt, before + (int)bsri_view_entry(m.view, own)) : 0;
        };
        int32_t line = lines(part);
        auto values = [&](int piece, int stage) {
            if (piece < pieces && first && bsri_elect_one()) {
                bsri_mbarrier_expect_tx(barriers + stage * 8, STAGE);
                const int block = (int)bsri_view_entry(m.view, piece);
                bsri_tma_load(ring + stage * STAGE, &m.a_map, barriers + stage * 8, (piece - block * m.view.cols) * 64,
                              sub * ROWS, before + block);
            }
        };
        auto dense = [&](int piece, int stage, int asked) {
            const int k =
                __shfl_sync(~0u, line, asked) * m.bc + (piece - (int)bsri_view_entry(m.view, piece) * m.view.cols) * 64;
            if (piece < pieces && first && bsri_elect_one()) {
                bsri_tma_load(ring + stage * STAGE + A_BYTES, &m.b_map, barriers + stage * 8, m.columns ? k : side,
                              m.columns ? side : k >> m.fold);
                if (COLS > 64 && !m.columns) /* a box is no wider than 128 bytes */
                    bsri_tma_load(ring + stage * STAGE + A_BYTES + 8192, &m.b_map, barriers + stage * 8, side + 64, k);
            }
        };
        /* In the order of use, as the copy engine works one request after another (note N17). Only where blocks come before the
           wait, their rows of b can't: those may still be written. */
#pragma unroll 1
        for (int i = 0; i < m.stages; i++) {
            const int at = (int)pipe.stage + i, stage = at < m.stages ? at : at - m.stages;
            values(part + i * m.warps, stage);
            if (!m.constant) dense(part + i * m.warps, stage, i);
        }
        if (m.constant) {
            bsri_pdl_wait();
#pragma unroll 1
            for (int i = 0; i < m.stages; i++) {
                const int at = (int)pipe.stage + i;
                dense(part + i * m.warps, at < m.stages ? at : at - m.stages, i);
            }
        }
#pragma unroll 1
        for (int piece = part, asked = m.stages; piece < pieces; piece += m.warps, asked++) {
            const int stage = (int)pipe.stage;
            bsri_mbarrier_wait(barriers + stage * 8, pipe.phase);
            multiply(sum, ring + stage * STAGE, m);
            const int next = piece + m.stages * m.warps;
            if (UNIT == 1) __syncwarp();
            if (next < pieces) {
                if (UNIT > 1) bsri_named_sync(2 + part, 32 * UNIT);
                values(next, stage);
                if (asked % 32 == 0) line = lines(next);
                dense(next, stage, asked);
            } else if (UNIT > 1) bsri_pdl_launch_dependents();
            pipe.advance((uint32_t)m.stages);
        }
    }
    /* Piece i of 16 x 8 as registers hold it: what all warps have of it, in their order. */
    static __device__ __forceinline__ void join(float (&v)[4], const bsri_dev_narrow_tma &m, const char *shared, int i) {
        const float4 *part = (const float4 *)shared + i * 32 + threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) { /* without branches, so that all are read at once */
            const float4 x = w < m.warps ? part[w * MI * NI * 32] : make_float4(0, 0, 0, 0);
            v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w;
        }
    }
    /* Where two elements of out stand side by side; transposed in registers where those are of a column. */
    static __device__ __forceinline__ void finish(const bsri_dev_narrow_tma &m, const float (&sum)[OWN][NI][4], int strip,
                                                  int side, char *shared) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = m.vec2 == 2;
        const int row = rows ? lane % 4 * 2 : lane / 4, col = rows ? lane / 4 : lane % 4 * 2;
        const int64_t down = 16 * m.out_row, right = 16 * m.out_col; /* bytes of 8 */
        char *at = m.out + 2 * (((int64_t)strip * ROWS + row) * m.out_row + (side + col) * m.out_col);
        float v[4];
        __syncthreads(); /* nobody reads blocks there any more */
#pragma unroll
        for (int i = 0; i < OWN * NI; i++) {
            const float(&x)[4] = sum[i / NI][i % NI];
            ((float4 *)shared)[(warp * OWN * NI + i) * 32 + lane] = make_float4(x[0], x[1], x[2], x[3]);
        }
        __syncthreads();
        if (m.vec2) {
#pragma unroll 1
            for (int i = warp; i < MI * NI; i += m.warps) {
                char *to = at + i / NI * 2 * down + i % NI * right;
                const int inside = side + i % NI * 8 + col < m.width;
                uint32_t x = 0, y = 0;
                if (m.input && inside) { /* what a thread adds is what it writes to, where input is out itself */
                    const int64_t y0 = (int64_t)strip * ROWS + i / NI * 16 + row, x0 = side + i % NI * 8 + col;
                    const char *from = m.input + 2 * (rows ? x0 * m.in_line + y0 : y0 * m.in_line + x0);
                    x = *(const uint32_t *)from, y = *(const uint32_t *)(from + (rows ? 16 : 16 * m.in_line));
                }
                join(v, m, shared, i);
                if (m.scaled)
                    scale(m, v, rows ? bsri_mma_transpose(x) : x), scale(m, v + 2, rows ? bsri_mma_transpose(y) : y);
                x = bsri_pack<T>(v[0], v[1]), y = bsri_pack<T>(v[2], v[3]);
                if (rows) x = bsri_mma_transpose(x), y = bsri_mma_transpose(y);
                if (inside) *(uint32_t *)to = x, *(uint32_t *)(to + down) = y;
            }
            return;
        }
        others(m, strip, side, shared);
    }
    /* Two sums, and what is added to them, as bsri_dev_finisher rounds. */
    static __device__ __forceinline__ void scale(const bsri_dev_narrow_tma &m, float *x, uint32_t added) {
        float z[2];
        bsri_dev_unpack(z, added, T::DTYPE);
#pragma unroll
        for (int k = 0; k < 2; k++) x[k] = __fmaf_rn(m.beta, z[k], __fmul_rn(m.alpha, x[k]));
    }
    /* Word i of lane j of four becomes word j of lane i. */
    static __device__ __forceinline__ void transpose(uint32_t (&w)[4]) {
#pragma unroll
        for (int step = 1; step <= 2; step *= 2) {
            const int odd = threadIdx.x & step;
            const uint32_t a = __shfl_xor_sync(~0u, odd ? w[0] : w[step], step);
            const uint32_t b = __shfl_xor_sync(~0u, odd ? w[3 - step] : w[3], step);
            w[0] = odd ? a : w[0], w[step] = odd ? w[step] : a, w[3 - step] = odd ? b : w[3 - step], w[3] = odd ? w[3] : b;
        }
    }
    /* Four warps' tiles: pieces of eight elements of out from the registers, without shared memory (note N14). Lines are rows of
       out, or columns where those are contiguous. ALONG: a lane's sums stand along a line, as where the transpose of out is
       computed. That is not done with tiles of 64 x 128: ptxas finds too few registers to let products overlap. */
    template <bool ALONG>
    static __device__ __forceinline__ void eights(const bsri_dev_narrow_tma &m, float (&sum)[OWN][NI][4], int strip, int side) {
        const int lane = threadIdx.x % 32, four = lane % 4, own = threadIdx.x / 32 % UNIT * 16, columns = m.out_row == 1;
        const int64_t y = (int64_t)strip * ROWS, step = columns ? m.out_col : m.out_row;
        const int64_t line = (columns ? side : y) + (ALONG ? own + lane / 4 : four / 2 * 8 + lane / 4);
        const int64_t first = (columns ? y : side) + (ALONG ? four * 8 : own + four % 2 * 8);
        /* from the lane's first eight to its i-th: lines, elements */
        auto down = [](int i) { return ALONG ? i % 2 * 8 : i * 16; };
        auto right = [](int i) { return ALONG ? i / 2 * 32 : 0; };
        auto inside = [&](int i) { return (columns ? line + down(i) : first + right(i)) < m.width; };
        auto pair = [&](int i, int j) -> float * { /* the sums that are word j of it before words take turns */
            return &sum[0][ALONG ? i / 2 * 4 + j : i * 2 + j / 2][(ALONG ? i : j) % 2 * 2];
        };
        if (m.scaled && !m.input) {
#pragma unroll
            for (int i = 0; i < NI * 4; i++) sum[0][i / 4][i % 4] = __fmul_rn(m.alpha, sum[0][i / 4][i % 4]);
        } else if (m.scaled) { /* what a thread adds is what it writes to, where input is out itself */
            const char *from = m.input + 2 * (line * m.in_line + first);
            uint4 added[NI / 2];
#pragma unroll
            for (int i = 0; i < NI / 2; i++) {
                added[i] = make_uint4(0, 0, 0, 0);
                if (inside(i)) added[i] = *(const uint4 *)(from + 2 * (down(i) * m.in_line + right(i)));
            }
#pragma unroll
            for (int i = 0; i < NI / 2; i++) {
                uint32_t w[4] = {added[i].x, added[i].y, added[i].z, added[i].w};
                transpose(w);
#pragma unroll
                for (int j = 0; j < 4; j++) scale(m, pair(i, j), ALONG ? w[j] : bsri_mma_transpose(w[j]));
            }
        }
        char *const to = m.out + 2 * (line * step + first);
#pragma unroll
        for (int i = 0; i < NI / 2; i++) {
            uint32_t w[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                w[j] = bsri_pack<T>(pair(i, j)[0], pair(i, j)[1]);
                if (!ALONG) w[j] = bsri_mma_transpose(w[j]);
            }
            transpose(w);
            if (inside(i)) *(uint4 *)(to + 2 * (down(i) * step + right(i))) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
    static __device__ __forceinline__ void finish_groups(const bsri_dev_narrow_tma &m, float (&sum)[OWN][NI][4], int strip,
                                                         int side, char *shared) {
        if (!m.vec2) {
            any(m, sum, strip, side, shared);
            return;
        }
        if (m.warps > 1) { /* no more than two: the second hands its sums to the first */
            float4 *const at = (float4 *)shared + threadIdx.x % (32 * UNIT);
            __syncthreads(); /* nobody reads blocks there any more */
#pragma unroll
            for (int n = 0; n < NI; n++) {
                const float(&x)[4] = sum[0][n];
                if (threadIdx.x >= 32 * UNIT) at[n * 32 * UNIT] = make_float4(x[0], x[1], x[2], x[3]);
            }
            __syncthreads();
            if (threadIdx.x >= 32 * UNIT) return;
#pragma unroll
            for (int n = 0; n < NI; n++) {
                const float4 x = at[n * 32 * UNIT];
                sum[0][n][0] += x.x, sum[0][n][1] += x.y, sum[0][n][2] += x.z, sum[0][n][3] += x.w;
            }
        }
        if (ACROSS || m.out_row != 1) eights<true>(m, sum, strip, side);
        else eights<false>(m, sum, strip, side);
    }
    /* With any epilogue: lines of out, that is rows, or columns where those are contiguous, through shared memory. */
    static __device__ __forceinline__ void any(const bsri_dev_narrow_tma &m, const float (&sum)[OWN][NI][4], int strip, int side,
                                               char *shared) {
        __shared__ bsri_dev_finisher finisher;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = m.out_row != 1, pitch = (rows ? COLS : ROWS) + 8;
        const int row = warp % UNIT * 16 + lane / 4, col = lane % 4 * 2, pieces = rows ? NI : ROWS / 8;
        const int step = rows ? blockDim.x / NI : blockDim.x / (ROWS / 8), piece = threadIdx.x % pieces * 8;
        const int odd = piece >> 5 & 1; /* halves of eight change places in every second 32 elements: no bank conflicts
                                           (note N14) */
        const bool along = ACROSS || rows;
        const int at_first = along ? row * pitch + col : col * pitch + (row ^ (row >> 3 & 4));
        float *const to = (float *)shared + warp / UNIT * TILE + at_first;
        int line = rows ? threadIdx.x / NI : threadIdx.x / (ROWS / 8);
        float4 *from = (float4 *)((float *)shared + line * pitch + piece);
        const int64_t y = (int64_t)strip * ROWS;
        const int width = (int)bsri_min(COLS, m.width - side), lines = rows ? ROWS : width, inside = rows ? width - piece : 8;
        __syncthreads(); /* nobody reads blocks there any more */
        if (threadIdx.x < 5) finisher.begin(m.p, 0, threadIdx.x);
#pragma unroll
        for (int n = 0; n < NI; n++) {
            const float(&x)[4] = sum[0][n];
            float *const at = to + n * 8 * (along ? 1 : pitch) + (along && n & 4 ? 4 - col / 4 * 8 : 0);
            if (along) *(float2 *)at = make_float2(x[0], x[1]), *(float2 *)(at + 8 * pitch) = make_float2(x[2], x[3]);
            else at[0] = x[0], at[pitch] = x[1], at[8] = x[2], at[pitch + 8] = x[3];
        }
        __syncthreads();
        if (inside <= 0) return;
#pragma unroll 1
        for (; line < lines; line += step, from += step * pitch / 4) {
            float4 v = from[odd], w = from[1 - odd];
            if (m.warps > 1) { /* no more than two */
                const float4 a = from[TILE / 4 + odd], b = from[TILE / 4 + 1 - odd];
                v.x += a.x, v.y += a.y, v.z += a.z, v.w += a.w, w.x += b.x, w.y += b.y, w.z += b.z, w.w += b.w;
            }
            from[0] = v, from[1] = w;
            finisher.eight(m.p, (float *)from, 1, y + (rows ? line : piece), side + (rows ? piece : line), rows,
                           bsri_min(8, inside));
        }
    }
    /* Eight elements a thread; the sums stand behind what is joined. */
    static __device__ __forceinline__ void others(const bsri_dev_narrow_tma &m, int strip, int side, char *shared) {
        __shared__ bsri_dev_finisher finisher;
        float *tile = (float *)shared + m.warps * ROWS * COLS, v[4];
        const int lane = threadIdx.x % 32, along = m.out_row != 1;
        if (threadIdx.x < 5) finisher.begin(m.p, 0, threadIdx.x);
#pragma unroll 1
        for (int i = threadIdx.x / 32; i < MI * NI; i += m.warps) {
            float *to = tile + (i / NI * 16 + lane / 4) * COLS + i % NI * 8 + lane % 4 * 2;
            join(v, m, shared, i);
            *(float2 *)to = make_float2(v[0], v[1]), *(float2 *)(to + 8 * COLS) = make_float2(v[2], v[3]);
        }
        __syncthreads();
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * NI; i += blockDim.x) {
            const int y = along ? i / NI : i % (2 * MI) * 8, x = along ? i % NI * 8 : i / (2 * MI);
            if (side + x < m.width)
                finisher.eight(m.p, tile + y * COLS + x, along ? 1 : COLS, (int64_t)strip * ROWS + y, side + x, along,
                               along ? bsri_min(8, m.width - side - x) : 8);
        }
    }
#endif
};
/* bsri_product_narrow_tma: units of warps, each of which fetches and multiplies blocks of its own.
   Its tile is the choice of bsri_narrow_tma_choose() (>>cuda-plan-narrow).

   Threads: m.share units of UNIT warps: up to eight of one warp, or up to two of four (a warpgroup: tiles of 64 x 64 and 64 x
   128). Unit u takes pieces u, u + share, ... of a strip of ROWS rows of a block row; a piece is 64 products of a block.

   Shared memory:
     dynamic:   share x stages x STAGE bytes, a ring for each unit; a stage is
       0        the block's piece: ROWS lines of 64 products, 128 bytes each, swizzled (A_BYTES)
       A_BYTES  its rows of b, 64 x COLS: COLS lines along the products, or by rows, of 64 columns at most a box; swizzled as
                m.swizzle says
     then       the same bytes hold sums: each warp's as float4 number i * 32 + lane of its i-th 16 x 8; of groups the second's,
                or lines of out of bsri_narrow_tma_sums() bytes a group
     static:    the barriers; a finisher for any epilogue

   barrier               count  arrives                                                   waits               phase
   barriers[unit][stage] 1      elected lane of the unit's first warp, expect_tx of STAGE the unit's threads  round of its ring
   There is no `empty`: after __syncwarp (a unit of one warp) or bar.sync 2 + unit (128 threads) all have read a stage, and the
   unit itself fills it again. __syncthreads stands before sums are written where blocks were, and before they are read.

   Sums: of a unit of one warp as mma.sync has them (see bsri_product_mma), of a group as wgmma has them (see
   bsri_product_wgmma). ACROSS, with out by columns: the transpose of the tile is computed, so that a lane's sums stand along a
   column.

   Order: 1. Before the kernel before has ended: values to the L2, descriptors, barriers; the matrix's blocks if it is constant.
          2. Row pointers; lane l has the block column of the unit's piece l of the next 32.
          3. All stages are asked for; then piece by piece: wait, multiply, all have read, ask for the piece `stages` further on.
          4. The next kernel may start: at once with units of one warp or without m.pdl_late, else when all blocks are asked for.
          5. Sums are added up in the order of the units, finished and stored. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS)
    bsri_product_narrow_tma(const __grid_constant__ bsri_dev_narrow_tma m BSRI_GATE) {
#ifdef BSRI_WGMMA_CODE
    typedef bsri_narrow_tma<L> narrow;
    constexpr int NI = L::NI;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ uint64_t barriers[narrow::WARPS * narrow::STAGES];
    static_assert(sizeof barriers + sizeof(bsri_dev_finisher) <= 1024, "with what a CTA has anyway, 2 KB");
    const int unit = threadIdx.x / (32 * narrow::UNIT);
    const uint32_t cta = blockIdx.x, thread = threadIdx.x, own = bsri_smem_address(barriers + unit * narrow::STAGES);
    bsri_pipe<> pipe = {0, 0};
    if (narrow::UNIT == 1 || !m.pdl_late) bsri_pdl_launch_dependents();
    BSRI_ENTER;
    int seen = 0;
    for (uint32_t at = thread * 128; cta < m.pieces && at < m.ahead; at += blockDim.x * 128)
        seen |= bsri_dev_touch(m.values + (int64_t)cta * m.ahead + at);
    if (cta + thread * gridDim.x < m.col_lines) bsri_dev_prefetch(m.col + (int64_t)(cta + thread * gridDim.x) * 128);
    if (cta + thread * gridDim.x < m.ptr_lines) bsri_dev_prefetch(m.ptr + (int64_t)(cta + thread * gridDim.x) * 128);
    if (thread == 32) bsri_tma_prefetch(&m.a_map), bsri_tma_prefetch(&m.b_map);
    if (thread / 32 % narrow::UNIT == 0 && bsri_elect_one()) {
#pragma unroll
        for (int i = 0; i < narrow::STAGES; i++) bsri_mbarrier_init(own + i * 8, 1);
        bsri_mbarrier_init_fence();
    }
    if (narrow::UNIT == 1) __syncwarp();
    else __syncthreads();
    bsri_dev_touched(seen);
    if (!m.constant) bsri_pdl_wait();
    for (int work = (int)cta;;) {
        const int beside = narrow::UNIT > 1 ? m.beside : 0, set = work >> beside;
        const int sets = (int)((uint32_t)set / (uint32_t)m.sides), side = (set - sets * m.sides) * narrow::COLS;
        const int strip = sets << beside | (work & ((1 << beside) - 1));
        float sum[narrow::OWN][NI][4] = {};
        narrow::walk(sum, m, strip, side, bsri_smem_address(bsri_shared) + unit * m.stages * narrow::STAGE, own, pipe);
        if constexpr (narrow::UNIT > 1) narrow::finish_groups(m, sum, strip, side, bsri_shared);
        else narrow::finish(m, sum, strip, side, bsri_shared);
        work += (int)gridDim.x;
        if (work >= m.strips * m.sides) break; /* more than one only where the caller caps the grid */
        bsri_fence_proxy_async();
        __syncthreads();
    }
#endif
}

/* The maps of values and of b; 0: the copy engine can't have an operand. */
static int bsri_narrow_tma_maps(const bsr_context *ctx, bsri_dev_narrow_tma *m, int rows, int cols) {
    const bsri_dev_product *p = &m->p;
    const int64_t a_size[3] = {p->bc, p->br, p->a.nnz}, a_step[2] = {2 * p->a_rs, p->a.nnz > 1 ? 2 * p->a_block : 16};
    const int64_t b_size[2] = {m->columns ? p->b.rows : p->width << m->fold,
                               m->columns ? p->width : p->b.rows >> m->fold};
    const int64_t b_step[1] = {p->width == 1 && m->columns ? bsri_ceil_div(p->b.rows, 8) * 16
                                                           : 2 * (m->columns ? p->b.col_stride : p->b.row_stride << m->fold)};
    const int32_t a_box[3] = {64, rows, 1}, b_box[2] = {m->columns ? 64 : (int32_t)bsri_min(64, cols << m->fold),
                                                        m->columns ? cols : 64 >> m->fold};
    return bsri_tensor_map(ctx, &m->a_map, p->a.dtype, p->a.values, 3, a_size, a_step, a_box, 128, 1) &&
           bsri_tensor_map(ctx, &m->b_map, p->b.dtype, p->b.data, 2, b_size, b_step, b_box,
                           m->swizzle ? 16 * m->swizzle + 16 : 0, 1);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma-schedule: sparse x dense by wgmma: which tile is next; barriers: at product-wgmma */
/* ---------------------------------------------------------------------------------------------- */

/* The code for a tile: fetch asks for a slice, source multiplies a stage. */
template <class L> struct bsri_wgmma_mainloop;

/* Which blocks a window of columns has in each row: a part of a tile's list. With more than two rows a stage holds slices of the
   dense operand alone: the builder says which, and what each warpgroup does with them. */
template <int GROUP> struct bsri_wgmma_chunk {
    static constexpr int COLUMNS = GROUP > 2 ? BSRI_WGMMA_WINDOW * 32 : 4;
    uint2 work[COLUMNS * 2 / GROUP];
    uint16_t slice[COLUMNS]; /* columns with a block, from the first of the window on; which rows have one there */
    uint8_t rows[COLUMNS];
    uint32_t bits[GROUP][BSRI_WGMMA_WINDOW];
    int32_t at[GROUP], end[GROUP], row[GROUP]; /* each row's first entry in the window, its end; block rows, -1: none */
    int32_t stored[GROUP];                     /* of each row, as `first` of bsri_wgmma_stage */
    int32_t base[GROUP];                       /* of each row, as bsri_wgmma_stage */
    int32_t first, count;                      /* column of bit 0; columns with a block */
    int32_t last, flags, col;                  /* BSRI_WGMMA_... of tiles; of items that are summed up; first column of out */
    int32_t a0, a1, b0, b1;                    /* batch coordinates */
    int32_t item;
    const void *position;
    const char *values;
};
template <int GROUP> struct bsri_wgmma_stage { /* what the multiplying warps must know of a stage */
    uint32_t work[2];                          /* not 0: what each warpgroup multiplies; BSRI_WGMMA_... << BSRI_WGMMA_FLAGS */
    int32_t row[GROUP], col;                   /* of the tile: with its last stage */
    int32_t item;
    int32_t first[GROUP], left[GROUP]; /* with the first stage of an item summed up: each row's first stored entry, tiles */
    int32_t base[GROUP];               /* rows of a stored block above the row's tiles */
    const void *position;
    const char *values;
};
struct bsri_wgmma_tile_state { /* of one multiplying warp, in shared memory while its epilogue needs all registers */
    int32_t item, line, col; /* of the batch; block row (-1: none); first column of out */
    uint32_t stage, phase;    /* where its stages go on */
};
template <int GROUP> struct bsri_wgmma_storage {
    uint64_t full[BSRI_WGMMA_STAGES], empty[BSRI_WGMMA_STAGES], chunk_full[BSRI_WGMMA_LISTERS][2],
        chunk_empty[BSRI_WGMMA_LISTERS][2], claim_full[BSRI_WGMMA_CLAIMS], claim_empty[BSRI_WGMMA_CLAIMS];
    uint64_t named[BSRI_WGMMA_STAGES]; /* rs: what a stage is, before its slices are there */
    int32_t claim[BSRI_WGMMA_CLAIMS]; /* units, -1: no more */
    uint4 zero;                     /* for warps that have no block */
    bsri_dev_finisher finisher[2];
    bsri_wgmma_tile_state tile[8];
    bsri_wgmma_stage<GROUP> note[BSRI_WGMMA_STAGES];
    bsri_wgmma_chunk<GROUP> part[BSRI_WGMMA_LISTERS][2];
};

#ifdef BSRI_WGMMA_CODE
/* --- who computes what --- */

/* Units (span tiles beside each other) are numbered panel by panel, as the L2 likes best. Before them come the first groups of
   the first panels; with a schedule these are the longest. Where the schedule says that some groups are long, the long groups of
   all panels come first, as many as there are teams at most. Each team of CTAs starts with the unit of its own number. A unit
   goes to the team that has the least to do so far: first the units that would otherwise come when all is nearly done, and
   longest first where a schedule or a sort of 32 at a time says so. Every CTA computes the same distribution; none shares memory
   with another. Dealing a unit takes time, which bounds products of many short tiles: there units go round the teams, all but
   the last. Long ones are better dealt, as teams then stay near each other. How near this comes to the ideal, and what it saves:
   note N5. */
struct bsri_work_tile {
    int32_t item, panel, group; /* of out; of columns; of block rows */
};
struct bsri_tile_scheduler {
    int32_t span, panels, groups, units, teams, mine, side, lines; /* mine: this CTA's team, side: its number there */
    int32_t first;                                                /* panels with heads, heads of each << 16: registers are few */
    /* A schedule that is attached for this direction: where in it the lengths of groups like ours stand, or 0; -1: there is none.
       (One number: dealing has no register to spare.) */
    int32_t lengths;
    __device__ __forceinline__ bool ordered(void) const { return lengths >= 0; }

    /* What needs no memory: it may be done before the kernel before this one has ended. */
    __device__ __forceinline__ void begin(const bsri_dev_wgmma &m) {
        uint32_t inverse = m.inv_group;
        span = m.group_ctas, panels = m.panels, teams = m.groups_of_ctas, lines = m.lines, lengths = -1;
        if ((int)gridDim.x != m.grid) { /* the caller allows fewer */
            span = (int)gridDim.x < m.group_ctas ? 1 : m.group_ctas, panels = (m.tiles + span - 1) / span,
            teams = gridDim.x / span;
            inverse = span == 1 ? 1 << 16 : m.inv_group;
        }
        groups = (lines + m.group - 1) >> m.group_bits, units = m.items * panels * groups;
        first = min(m.items * panels, teams >> 3) | 1 << 16;
        mine = blockIdx.x * inverse >> 16, side = blockIdx.x - mine * span;
    }
    /* Made anew at each use: kept it would take registers. */
    static __device__ __forceinline__ const int32_t *order(const bsri_dev_wgmma &m) {
        return (const int32_t *)((const char *)m.schedule + BSRI_VIEW_HEADER);
    }
    /* early: number of an entry of the order, read as if the schedule were for this direction and changed nothing. Returns it if
       so, else -1. */
    __device__ __forceinline__ int32_t schedule(const bsri_dev_wgmma &m, int32_t early) {
        const int64_t *header = (const int64_t *)m.schedule;
        int32_t line = -1;
        if (!header) return -1;
        /* on its way together with the header */
        if (early >= 0 && early < m.min_dim_lines) line = bsri_view_ordered(m.view, order(m), early);
        if ((header[BSRI_SCHEDULE_TRANSPOSED] != 0) != (m.trans != 0)) return -1;
        const int32_t each = (int32_t)header[BSRI_SCHEDULE_GROUP];
        lines = each * (int32_t)header[BSRI_SCHEDULE_GROUPS], lengths = 0;
        const int64_t behind = (m.patterns * lines + 15) / 16 * 16;
        if (each * m.view.rows == m.group && behind <= INT32_MAX) lengths = (int32_t)behind;
        lines *= m.view.rows;
        const int32_t before = groups, heads = first, all = m.items * panels;
        groups = (lines + m.group - 1) >> m.group_bits, units = all * groups;
        const int32_t long_groups = (int32_t)min(max(header[BSRI_SCHEDULE_LONG], (int64_t)0), (int64_t)groups);
        if (lengths > 0 && long_groups > 0 && all <= teams) first = all | min(long_groups, teams / all) << 16;
        return groups == before && first == heads ? line : -1;
    }
    __device__ __forceinline__ bsri_work_tile place(const bsri_dev_wgmma &m, int unit) const {
        const int heads = first & 65535, deep = first >> 16, left = groups - deep, after = unit - heads * deep;
        const int some = after < heads * left; /* of panels that have heads */
        const int each = after < 0 ? deep : some ? left : groups, rest = after < 0 ? unit : some ? after : after - heads * left;
        const int q = rest < each ? 0 : rest / each, panel = q + (some ? 0 : heads), item = m.single ? 0 : panel / panels;
        return {item, panel - item * panels, rest - q * each + (some && after >= 0 ? deep : 0)};
    }
    /* This CTA's tile of a unit, counted in columns of out; the last panel may have fewer than CTAs of a team. */
    __device__ __forceinline__ int tile(const bsri_work_tile &at) const { return at.panel * span + side; }
    /* Each team's first unit is its own number. */
    __device__ __forceinline__ bool starts(const bsri_dev_wgmma &m) const {
        return mine < units && tile(place(m, mine)) < m.tiles;
    }
    /* The n-th line in the order in which lines are grouped, or -1. */
    __device__ __forceinline__ int32_t line(const bsri_dev_wgmma &m, int64_t pattern, int32_t n) const {
        return n >= lines ? -1 : ordered() ? bsri_view_ordered(m.view, order(m), (uint32_t)pattern * lines + n) : n;
    }
    /* The same as stored. */
    __device__ __forceinline__ int32_t stored(const bsri_dev_wgmma &m, int64_t pattern, int32_t n) const {
        const uint32_t at = bsri_view_line(m.view, ordered() ? (uint32_t)pattern * lines + n : n);
        return n >= lines ? -1 : ordered() ? order(m)[at] : (int32_t)at;
    }
    /* A unit's cost in stages. Without lengths the size of a union is estimated from the rows' blocks, as if columns were random.
       Up to four rows are read at once, as second tiles wait for this; eight would want more registers than dealing leaves. */
    template <int GROUP>
    __device__ __forceinline__ uint32_t cost(const bsri_dev_wgmma &m, const bsri_mma_rows &r, int64_t pattern, int group) const {
        constexpr int ROWS = GROUP < 4 ? GROUP : 4;
        float absent = 1, blocks = 0;
        if (lengths <= 0 || m.stages_per_block != 0) {
#pragma unroll 1
            for (int from = 0; from < GROUP; from += ROWS) {
                int32_t n[ROWS], have[ROWS];
#pragma unroll
                for (int g = 0; g < ROWS; g++) n[g] = from + g < m.group ? stored(m, pattern, group * m.group + from + g) : -1;
#pragma unroll
                for (int g = 0; g < ROWS; g++) {
                    const int32_t some = max(n[g], 0);
                    have[g] = bsri_dev_index(r.ptr, r.dt, some + 1) - bsri_dev_index(r.ptr, r.dt, some);
                }
#pragma unroll
                for (int g = 0; g < ROWS; g++) {
                    const float stored = n[g] < 0 ? 0 : (float)have[g];
                    absent *= 1.0f - stored * m.inv_stored_per_row, blocks += stored;
                }
            }
        }
        const float columns =
            lengths > 0 ? (float)(order(m)[lengths + pattern * groups + group] * m.view.cols)
                    : fmaxf(0.0f, (1.0f - absent) / m.inv_blocks_per_row);
        return (uint32_t)fminf(1e5f, columns * m.parts + blocks * m.stages_per_stored) + m.fixed_stages;
    }
};
/* Index arrays of reduction r of an item of out, that problem item, and which of the matrix's patterns it has. */
struct bsri_wgmma_item {
    bsri_mma_rows rows;
    int64_t item, pattern;
    __device__ __forceinline__ void find(const bsri_dev_wgmma &m, int32_t out, int64_t r) {
        rows = m.rows, item = pattern = 0;
        if (m.single) return;
        const bsri_dev_step s = bsri_dev_step_of(m.p, out, r);
        item = s.item, rows = bsri_mma_rows_of(m.p, s, &pattern);
    }
};
/* threadIdx.x, read again, so that nothing computed from it is kept in registers from one tile to the next. */
__device__ __forceinline__ int bsri_dev_thread(void) {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
/* 32 units, longest first: cost, 31 - unit. */
__device__ __forceinline__ uint32_t bsri_wgmma_sorted(uint32_t keys) {
    const int lane = bsri_dev_thread() % 32;
    for (int size = 2; size <= 32; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            const uint32_t other = __shfl_xor_sync(~0u, keys, step);
            keys = ((lane & step) == 0) == ((lane & size) == 0) ? max(keys, other) : min(keys, other);
        }
    return keys;
}
template <int GROUP> __device__ __forceinline__ void bsri_wgmma_claim(bsri_wgmma_storage<GROUP> &s, uint32_t n, int unit) {
    const uint32_t stage = n % BSRI_WGMMA_CLAIMS;
    bsri_mbarrier_wait(bsri_smem_address(&s.claim_empty[stage]), (n / BSRI_WGMMA_CLAIMS & 1) ^ 1);
    if (threadIdx.x % 32 == 0) s.claim[stage] = unit, bsri_mbarrier_arrive(bsri_smem_address(&s.claim_full[stage]));
    __syncwarp();
}
/* A window's units, longest first, dealt at once, where none of up to 64 teams would get two of them one after another: the
   longest to the team that has least to do, and so on. Loads lose their places. Returns the lane of this team's unit, 32: none,
   or -1: nothing is done. It is much faster than one after another (note N5). */
__device__ __forceinline__ int bsri_wgmma_match(uint32_t (&load)[BSRI_WGMMA_TEAMS], uint32_t keys, int count, int teams,
                                                int mine) {
    const uint32_t lane = bsri_dev_thread() % 32, more = (int)lane < count ? keys >> 5 << 8 : 0;
    if (count > teams || teams > 64) return -1;
    const uint32_t few = ~bsri_wgmma_sorted(~load[0]), many = bsri_wgmma_sorted(load[1]); /* from the least on; from the most */
    uint32_t least = min(few, many); /* the 32 least: they rise, then fall */
    load[1] = max(few, many);
#pragma unroll 1
    for (int step = 16; step; step /= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, least, step);
        least = (lane & step) ? max(least, other) : min(least, other);
    }
    load[0] = least;
    const uint32_t busiest = __shfl_sync(~0u, least, count - 1);
    if (__any_sync(~0u, more && least + more <= busiest)) return -1;
    load[0] += more;
    const uint32_t at = __ballot_sync(~0u, more && (int)(least & 255) == mine);
    return at ? __ffs((int)at) - 1 : 32;
}
/* The warp that knows the tiles; how many it has told. load: of teams lane, lane + 32, ...: stages so far, team. */
template <int GROUP>
__device__ __forceinline__ uint32_t bsri_wgmma_assign(const bsri_dev_wgmma &m, bsri_wgmma_storage<GROUP> &s,
                                                    const bsri_tile_scheduler &o) {
    const int lane = threadIdx.x % 32;
    const bool same = m.single && o.groups <= 32; /* each group's length is known to one lane */
    const uint32_t lengths = same && lane < o.groups ? o.template cost<GROUP>(m, m.rows, 0, lane) : 0;
    const auto length = [&](int unit) { /* of each lane's; 0: there is none */
        const bsri_work_tile at = o.place(m, min(unit, o.units - 1));
        uint32_t n = __shfl_sync(~0u, lengths, at.group & 31);
        if (!same) {
            bsri_wgmma_item from;
            from.find(m, at.item, 0);
            n = o.template cost<GROUP>(m, from.rows, from.pattern, at.group);
        }
        return unit < o.units ? n : 0;
    };
    /* Is any long? Without an order all lengths would have to be read, which takes longer than it gains where tiles are short. */
    const bool brief = m.static_rounds < BSRI_WGMMA_ALL;
    const bool has_lengths = same || (m.single && o.lengths > 0);
    const uint32_t longest = same ? __reduce_max_sync(~0u, lengths) : has_lengths ? o.template cost<GROUP>(m, m.rows, 0, 0) : 0;
    int any_long = has_lengths ? longest > (uint32_t)m.long_stages : !brief;
    /* The second round of short ones goes backwards, longest to shortest; not where a round is several panels. */
    uint32_t limit = any_long ? m.long_stages : ~0u;
    const int back = brief && o.ordered() && (!any_long || o.groups * 4 >= o.teams * 3);
    const int step = o.teams * 3 / 8 | 1, whole = o.units / o.teams;
    const int rounds = m.static_rounds ? max(1 + back, whole - m.static_rounds) : whole + 1;
    const auto unit_of = [&](int r, int shift, int team) {
        const int n = r == 1 && back ? o.teams - 1 - team : team + shift;
        return r * o.teams + (n < o.teams ? n : n - o.teams);
    };
    constexpr int TEAMS = BSRI_WGMMA_TEAMS;
    /* 32 units at once: always with blocks of 32; elsewhere it takes longer, but with a schedule and short tiles of wider blocks
       (note N5) */
    const bool at_once = GROUP == 4 || (GROUP == 2 && m.by_windows && o.ordered());
    uint32_t load[TEAMS], picks = 0;
    const auto take = [&](int unit) {
        if (unit < o.units && o.tile(o.place(m, unit)) < m.tiles) bsri_wgmma_claim(s, picks++, unit);
    };
#pragma unroll
    for (int j = 0; j < TEAMS; j++) {
        const int team = j * 32 + lane;
        load[j] = team < o.teams ? team : ~0u;
        if (team < o.teams && (o.teams - team) * o.span <= BSRI_WGMMA_LATE_CTAS) load[j] += m.late_stages << 8;
    }
#pragma unroll 1
    for (int r = 0, shift = 0, first = 0; r < rounds;) { /* 32 teams at a time */
        const int team = first + lane;
        if (at_once && !first && r + 1 < rounds) take(unit_of(r + 1, (shift + step) % o.teams, o.mine)); /* before lengths come */
        if (!at_once && r && !first) take(unit_of(r, shift, o.mine));
        const uint32_t more = length(unit_of(r, shift, min(team, o.teams - 1))) << 8;
#pragma unroll
        for (int j = 0; j < TEAMS; j++) load[j] += first == j * 32 && team < o.teams ? more : 0;
        if ((first += 32) >= o.teams) first = 0, r++, shift = (shift + step) % o.teams;
    }
    /* First what is long, then the others. Where lengths differ much, the longer units of the last two panels come before the
       shorter ones, so that what is left at the end is short; where they do not it would take longer (note N5). */
    const int start = rounds * o.teams;
    if (at_once && o.units - start <= 32) any_long = 0, limit = ~0u; /* they are sorted anyway */
    const int last = longest > 3u * m.mean_stages && !brief ? max(start, o.units - 2 * o.groups) : o.units;
#pragma unroll 1
    for (int first = start, pass = !any_long;; first += 32) { /* passes: long units; the others, but for short ones
                                                                  of the last panels; these */
        if (first >= o.units) {
            if (++pass > 2) break;
            first = pass == 1 ? start : last;
            if (first >= o.units) break;
        }
        uint32_t more = length(first + lane);
        if (pass != (more > limit ? 0 : first + lane >= last && more <= (uint32_t)m.mean_stages ? 2 : 1)) more = 0;
        const int count = __popc(__ballot_sync(~0u, more));
        if (!count) continue;
        const uint32_t keys = bsri_wgmma_sorted(more << 5 | (more ? 31 - lane : 0));
        const int found = at_once ? bsri_wgmma_match(load, keys, count, o.teams, o.mine) : -1;
        uint32_t key = __shfl_sync(~0u, keys, max(found, 0) & 31);
        if (found >= 0) {
            if (found < 32) take(first + 31 - (int)(key & 31));
            continue;
        }
#pragma unroll 1
        for (int i = 0; i < count; i++) { /* every CTA does this for every unit */
            const uint32_t next = __shfl_sync(~0u, keys, i + 1 & 31);
            uint32_t least = load[0];
            more = key >> 5 << 8;
#pragma unroll
            for (int j = 1; j < TEAMS; j++) least = min(least, load[j]);
            least = __reduce_min_sync(~0u, least);
#pragma unroll
            for (int j = 0; j < TEAMS; j++) load[j] += load[j] == least ? more : 0;
            if ((int)(least & 255) == o.mine) take(first + 31 - (int)(key & 31));
            key = next;
        }
    }
    return picks;
}
template <int GROUP> __device__ __forceinline__ void bsri_wgmma_schedule(const bsri_dev_wgmma &m, bsri_wgmma_storage<GROUP> &s) {
    bsri_tile_scheduler o;
    o.begin(m);
    if (!m.constant) bsri_pdl_wait();
    o.schedule(m, -1);
    uint32_t picks = 0;
    if (o.units > o.teams) picks = bsri_wgmma_assign(m, s, o);
    for (int i = 0; i < BSRI_WGMMA_LISTERS; i++) bsri_wgmma_claim(s, picks++, -1);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma-lists: which blocks a tile's stages take                                       */
/* ---------------------------------------------------------------------------------------------- */

/* The next part of the union of rows whose entries [at, end) are left; row g is lane g's. It begins with a multiple of JOIN.
   Columns in another order, or repeated: one at a time, always the smallest head. Not bsri_columns_next(), which four warps run
   together: here one warp makes a list, the other one the next tile's. */
template <int GROUP, int JOIN>
__device__ __forceinline__ void bsri_wgmma_columns_next(bsri_wgmma_chunk<GROUP> &part, const bsri_mma_rows &r,
                                                        const bsri_list_view &v, int32_t &at, int32_t end) {
    const int lane = threadIdx.x % 32;
    int32_t next = at;
    uint32_t c[GROUP], irregular = 0, n = 0, head = 0x7fffffffu, first = 0x7fffffffu, longer = 0, mine = 0;
    const int32_t some = __reduce_max_sync(~0u, at < end ? at : -1);
    if (some >= 0) { /* every lane loads, some in vain: conditional loads would wait for one another (note N5) */
#pragma unroll
        for (int g = 0; g < GROUP; g++) {
            const int32_t from = __shfl_sync(~0u, at, g) + lane, last = __shfl_sync(~0u, end, g);
            mine |= (from < last) << g;
            c[g] = (uint32_t)bsri_view_column(v, r, from < last ? from : some);
        }
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++)
        if (!(mine >> g & 1)) c[g] = 0x7fffffffu;
    for (int i = lane; i < GROUP * BSRI_WGMMA_WINDOW; i += 32) (&part.bits[0][0])[i] = 0;
    if (lane < GROUP) part.at[lane] = at;
    __syncwarp();
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        const uint32_t h = __shfl_sync(~0u, c[g], 0);
        first = min(first, h);
        if (lane == g) head = h;
    }
    first &= ~(JOIN - 1u);
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
        const uint32_t left = __shfl_up_sync(~0u, c[g], 1);
        const bool in = c[g] != 0x7fffffffu && c[g] - first < 32 * BSRI_WGMMA_WINDOW;
        irregular |= c[g] != 0x7fffffffu && lane && c[g] <= left;
        if (in) atomicOr(&part.bits[g][(c[g] - first) / 32], 1u << (c[g] - first) % 32);
        const int inside = __popc(__ballot_sync(~0u, in)); /* of 32 columns those in the window: most rows end there */
        longer |= (inside == 32) << g;
        if (lane == g) next += inside;
    }
#pragma unroll 1
    for (; longer; longer &= longer - 1) { /* not unrolled: code that is jumped over is fetched, too */
        const int g = __ffs((int)longer) - 1;
        const int32_t last = __shfl_sync(~0u, end, g);
        int32_t from = __shfl_sync(~0u, next, g);
        uint32_t before = (uint32_t)bsri_view_column(v, r, from - 1);
        for (int inside = 32; inside == 32; from += inside) {
            const uint32_t now = from + lane < last ? (uint32_t)bsri_view_column(v, r, from + lane) : 0x7fffffffu;
            const uint32_t left = __shfl_up_sync(~0u, now, 1);
            const bool in = now != 0x7fffffffu && now - first < 32 * BSRI_WGMMA_WINDOW;
            irregular |= now != 0x7fffffffu && now <= (lane ? left : before);
            if (in) atomicOr(&part.bits[g][(now - first) / 32], 1u << (now - first) % 32);
            inside = __popc(__ballot_sync(~0u, in)), before = __shfl_sync(~0u, now, 31);
        }
        if (lane == g) next = from;
    }
    __syncwarp();
    if (__any_sync(~0u, irregular)) {
        const uint32_t smallest = __reduce_min_sync(~0u, head);
        for (int i = lane; i < GROUP * BSRI_WGMMA_WINDOW; i += 32) (&part.bits[0][0])[i] = 0;
        __syncwarp();
        if (at < end && head == smallest) part.bits[lane < GROUP ? lane : 0][0] = 1u << (smallest - first);
        next = at + (at < end && head == smallest);
        __syncwarp();
    }
    if (lane < BSRI_WGMMA_WINDOW)
        for (int g = 0; g < GROUP; g++) n |= part.bits[g][lane];
    n = __reduce_add_sync(~0u, __popc(n));
    if (lane == 0) part.first = (int32_t)first, part.count = (int32_t)n;
    at = next;
}
/* The stages of a part where they hold slices of the dense operand only. Made by the builder, which has the time: the warp that
   issues would take longer for a stage than multiplying it does (note N8). */
template <class L>
__device__ __forceinline__ void bsri_wgmma_pack_stages(const bsri_dev_wgmma &m, bsri_wgmma_chunk<L::GROUP> &part) {
    __syncwarp();
    const int lane = bsri_dev_thread() % 32, count = part.count, join = L::JOIN > 1 ? m.join : 1;
    int n = 0; /* columns, times 2^16 slices */
#pragma unroll 1
    for (int w = 0; (n & 0xffff) < count; w++) {
        uint32_t rows = 0;
#pragma unroll
        for (int g = 0; g < L::GROUP; g++) rows |= (part.bits[g][w] >> lane & 1) << g;
        const uint32_t any = __ballot_sync(~0u, rows != 0);
        uint32_t all = any;
        if (join > 1) all |= all >> 1;
        if (join > 2) all |= all >> 2;
        if (L::JOIN > 1) all &= m.desc_mask;
        const int at = lane & -join, to = (n >> 16) + __popc(all & ((1u << at) - 1));
        if (all >> at & 1) part.slice[to] = (uint16_t)(w * 32 + at), part.rows[to * join + lane - at] = (uint8_t)rows;
        n += __popc(any) + (__popc(all) << 16);
    }
    __syncwarp();
    const int slices = n >> 16;
    if (lane == 0) part.count = slices;
#pragma unroll 1
    for (int i = lane; i * L::ITEMS < slices * join; i += 32) {
        uint32_t work[2] = {0, 0};
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int e = 0; e < L::ITEMS; e++) {
                const uint32_t rows = i * L::ITEMS + e < slices * join ? part.rows[i * L::ITEMS + e] : 0;
                const uint32_t r = rows >> half * (L::GROUP / 2) & ((1u << L::GROUP / 2) - 1);
                work[half] |= r ? bsri_wgmma_mainloop<L>::item(r) << e : 0;
            }
        part.work[i] = make_uint2(work[0], work[1]);
    }
    __syncwarp();
}
/* All rows' ends in the registers of a warp, where they are few: asked for together with which row is the first. */
struct bsri_wgmma_ends {
    int32_t end[4];
    bool told;

    __device__ __forceinline__ void ask(const bsri_dev_wgmma &m, bool any) {
        told = any && m.single && m.lines < 128 && m.view.rows * m.view.cols == 1;
#pragma unroll
        for (int k = 0; k < 4; k++)
            end[k] = told ? bsri_dev_index(m.rows.ptr, m.rows.dt, min(k * 32 + (int)threadIdx.x % 32, m.lines)) : 0;
    }
    __device__ __forceinline__ int32_t of(int32_t n) const {
        int32_t x = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int32_t y = __shfl_sync(~0u, end[k], n & 31);
            if (n >> 5 == k) x = y;
        }
        return x;
    }
};
/* One of the warps that make lists. */
template <class L>
__device__ __forceinline__ void bsri_wgmma_list_stages(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s, int builder) {
    const bsri_dev_product &p = m.p;
    const int lane = threadIdx.x % 32;
    bsri_tile_scheduler order;
    bsri_wgmma_item from;
    uint32_t parts = 0, given = 0; /* units whose number nobody claims */
    int32_t early = -1;
    bool cold = true, nothing = true;
    bsri_wgmma_ends ends;
    ends.told = false;
    order.begin(m);
    /* The first unit is known without being told; its lines, too, unless the schedule pads or says
       that groups are long, or there are several patterns. */
    const int32_t place = builder || lane >= m.group || !m.single ? -1 : order.place(m, order.mine).group * m.group + lane;
    for (uint32_t n = builder;;) { /* first an empty list, so that the code is fetched while the kernel before this one still
                                      runs */
        int unit = order.mine;
        if (!cold && n >= given) {
            const uint32_t claim = n - given, stage = claim % BSRI_WGMMA_CLAIMS;
            bsri_mbarrier_wait(bsri_smem_address(&s.claim_full[stage]), claim / BSRI_WGMMA_CLAIMS & 1);
            unit = s.claim[stage];
            bsri_mbarrier_arrive(bsri_smem_address(&s.claim_empty[stage]));
        }
        if (unit < 0) break;
        const bsri_work_tile to = order.place(m, unit);
        uint32_t told = n == 0 && early >= 0;
        asm volatile("" : "+r"(told)); /* kept as a number, as predicate registers are too few */
        const bool late = m.late_stages && blockIdx.x + BSRI_WGMMA_LATE_CTAS >= gridDim.x;
        for (int64_t reduce = 0; reduce < (cold ? !late : p.reduce); reduce++) {
            int32_t line = -1;
            int32_t at = 0, end = 0;
            bool more, fresh = true;
            from.find(m, to.item, reduce);
            if (told) line = early;
            else if (!cold && lane < m.group) line = order.line(m, from.pattern, to.group * m.group + lane);
            if (ends.told) at = ends.of(line), end = ends.of(line + 1), ends.told = false;
            else if (line >= 0 && !nothing)
                at = bsri_view_index32(m.view, from.rows, line, 0), end = bsri_view_index32(m.view, from.rows, line, 1);
            if (line < 0 || nothing) at = end = 0;
            do {
                bsri_wgmma_chunk<L::GROUP> &part = s.part[builder][parts % 2];
                bsri_mbarrier_wait(bsri_smem_address(&s.chunk_empty[builder][parts % 2]), (parts / 2 & 1) ^ 1);
                bsri_wgmma_columns_next<L::GROUP, L::JOIN>(part, from.rows, m.view, at, end);
                if constexpr (L::RS) bsri_wgmma_pack_stages<L>(m, part);
                more = __any_sync(~0u, at < end);
                if (lane < L::GROUP) {
                    part.row[lane] = line, part.end[lane] = end, part.base[lane] = bsri_view_row(m.view, line) * m.down;
                    if (L::RS) {
                        part.stored[lane] = (int32_t)bsri_view_entry(m.view, part.at[lane]);
                        if (p.kind == BSRI_LIST_ROWS) part.stored[lane] *= m.a_each;
                    }
                }
                if (lane == 0) {
                    part.item = to.item, part.position = from.rows.position, part.values = from.rows.values,
                    part.last = !more && reduce + 1 == p.reduce ? BSRI_WGMMA_LAST : 0;
                    part.flags = (fresh ? BSRI_WGMMA_FIRST : 0) | (more ? 0 : BSRI_WGMMA_LAST);
                    part.col = order.tile(to) * m.tile_cols;
                    part.a0 = part.a1 = part.b0 = part.b1 = 0;
                    if (!m.single) {
                        bsri_tensor_item(
                            m.a_batch,
                            bsri_batch_offset(&p.whole, from.item, p.a.batch_dims, p.a.batch, p.a.values_batch_stride),
                            part.a0, part.a1);
                        bsri_tensor_item(m.b_batch, bsri_dense_offset(&p.whole, from.item, &p.b), part.b0, part.b1);
                    }
                }
                __syncwarp();
                if (!cold) bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_full[builder][parts % 2]));
                parts += !cold, fresh = false;
            } while (more);
        }
        if (cold) {
            if (!m.constant) bsri_pdl_wait();
            if (!L::RS) ends.ask(m, !builder); /* saves a latency of the first tile (note N3); with rs tiles registers would
                                                   spill */
            early = order.schedule(m, place), given = order.starts(m);
            nothing = p.alpha_ptr ? *p.alpha_ptr == 0.0 : m.alpha_zero, cold = false;
            if (!given) early = -1, ends.told = false;
        } else {
            n += BSRI_WGMMA_LISTERS;
        }
    }
    bsri_mbarrier_wait(bsri_smem_address(&s.chunk_empty[builder][parts % 2]), (parts / 2 & 1) ^ 1);
    if (lane == 0)
        s.part[builder][parts % 2].last = BSRI_WGMMA_QUIT,
                                s.part[builder][parts % 2].count = s.part[builder][parts % 2].flags = 0;
    bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_full[builder][parts % 2]));
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma-load: asking for stages                                                        */
/* ---------------------------------------------------------------------------------------------- */

/* The tile that entry n of a list with positions has, counted along stored blocks. */
__device__ __forceinline__ int32_t bsri_wgmma_placed(const bsri_dev_wgmma &m, const void *position, int32_t n) {
    const int32_t e = (int32_t)bsri_view_entry(m.view, n);
    return bsri_dev_index(position, m.rows.dt, e) * m.view.cols + (n - e * m.view.cols);
}
/* Of a convolution: the channel where a column of blocks begins and the lead of its tap, worked out for 32 at once, as it takes
   divisions. */
struct bsri_wgmma_leads {
    int32_t channel;
    uint32_t lead;
    __device__ __forceinline__ void look(const bsri_dev_wgmma &m, int32_t column) {
        const uint32_t tap = (uint32_t)column / (uint32_t)m.conv.per_tap;
        channel = (column - (int32_t)tap * m.conv.per_tap) << m.block_bits, lead = bsri_im2col_lead(m.conv, tap);
    }
    __device__ __forceinline__ void of(int from, int32_t &k, uint32_t &tap) const {
        k = __shfl_sync(~0u, channel, from), tap = __shfl_sync(~0u, lead, from);
    }
};
/* The warp that issues: slices of the parts in order, stage by stage. */
template <class L> struct bsri_wgmma_producer {
    uint32_t base, full, empty, stage, phase;

    __device__ __forceinline__ void begin(const char *shared, const bsri_wgmma_storage<L::GROUP> &s) {
        base = bsri_smem_address(shared), full = bsri_smem_address(s.full), empty = bsri_smem_address(s.empty), stage = phase = 0;
    }
    __device__ __forceinline__ void advance(void) {
        if (++stage == L::STAGES) stage = 0, phase ^= 1;
    }
    /* What the multiplying warps must know with an item's first stage, and with a tile's last one. By the lane that arrives. */
    static __device__ __forceinline__ void tell(bsri_wgmma_stage<L::GROUP> &note, const bsri_wgmma_chunk<L::GROUP> &part,
                                                uint32_t flags) {
        if (L::RS && flags & BSRI_WGMMA_FIRST) {
#pragma unroll
            for (int g = 0; g < L::GROUP; g++)
                note.first[g] = part.stored[g], note.left[g] = part.end[g] - part.at[g], note.base[g] = part.base[g];
            note.position = part.position, note.values = part.values;
        }
        if (flags & BSRI_WGMMA_LAST) {
#pragma unroll
            for (int g = 0; g < L::GROUP; g++) note.row[g] = part.row[g];
            note.col = part.col, note.item = part.item;
        }
    }
    /* Waits until the stage is free. `named` is looked at too, though nobody else need have: synccheck reports phases that nobody
       waited for. One loop for both costs less than a wait for each (note N8). */
    __device__ __forceinline__ void wait_free(bsri_wgmma_storage<L::GROUP> &s) const {
        const uint32_t named = bsri_smem_address(&s.named[stage]), parity = phase ^ 1;
        if (!L::RS) bsri_mbarrier_wait(empty + 8 * stage, parity);
        else
            while (!(bsri_mbarrier_test(empty + 8 * stage, parity) & bsri_mbarrier_test(named, parity))) {
            }
    }
    /* A stage without products: a tile's last, where nothing is left, or the end of all. */
    __device__ __forceinline__ void nothing(bsri_wgmma_storage<L::GROUP> &s, const bsri_wgmma_chunk<L::GROUP> &part,
                                            uint32_t flags) {
        bsri_wgmma_stage<L::GROUP> &note = s.note[stage];
        wait_free(s);
        if (bsri_elect_one()) {
            tell(note, part, flags);
            note.work[0] = note.work[1] = flags << BSRI_WGMMA_FLAGS;
            if (L::RS) bsri_mbarrier_arrive(bsri_smem_address(&s.named[stage]));
            bsri_mbarrier_arrive(full + 8 * stage);
        }
        advance();
    }
    /* A part where stages hold slices of the dense operand only: as the builder says. */
    __device__ __forceinline__ void own(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s,
                                        const bsri_wgmma_chunk<L::GROUP> &part) {
        const int32_t first = part.first, last = part.last, count = part.count;
        const int each = L::JOIN > 1 && m.join == L::JOIN ? 1 : L::EACH; /* slices of a stage */
        const typename bsri_wgmma_mainloop<L>::fetch fetch(m, part);
        uint32_t flags = part.flags & BSRI_WGMMA_FIRST;
        bsri_wgmma_leads leads;
        asm volatile("" : "+r"(base), "+r"(full), "+r"(empty)); /* pinned in registers: computed again they would cost every
                                                                   stage */
        for (int i = 0, n = 0; i < count; i += each, n++) {
            bsri_wgmma_stage<L::GROUP> &note = s.note[stage];
            const uint2 work = part.work[n];
            int32_t k[L::EACH];
            uint32_t lead[L::EACH] = {};
            if (L::CONV && i % 32 == 0)
                leads.look(m, first + (i + (int)threadIdx.x % 32 < count ? part.slice[i + threadIdx.x % 32] : 0));
#pragma unroll
            for (int e = 0; e < L::EACH; e++) {
                k[e] = __shfl_sync(~0u, (first + part.slice[i + e]) << m.block_bits, 0);
                if (L::CONV) leads.of((i + e) % 32, k[e], lead[e]);
            }
            if (i + each >= count) flags |= last;
            wait_free(s);
            if (bsri_elect_one()) {
                const uint32_t barrier = full + 8 * stage, to = base + stage * L::STAGE;
                if (flags) tell(note, part, flags);
                note.work[0] = work.x | flags << BSRI_WGMMA_FLAGS, note.work[1] = work.y | flags << BSRI_WGMMA_FLAGS;
                bsri_mbarrier_arrive(bsri_smem_address(&s.named[stage]));
                bsri_mbarrier_expect_tx(barrier, min(count - i, each) * fetch.bytes);
#pragma unroll
                for (int e = 0; e < L::EACH; e++)
                    if (e < each && i + e < count) fetch.slice(m, to + e * L::DENSE, barrier, k[e], lead[e]);
            }
            flags = 0, advance();
        }
        if (last && !count) nothing(s, part, last | flags);
    }
    /* A part where stages hold blocks, too: lane i knows the blocks of column i of a word, lane 0 issues. The compiler must see
       that what is issued is the same in all lanes, else it puts a loop over lanes around each copy (note N2). */
    __device__ __forceinline__ void wide(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s,
                                         const bsri_wgmma_chunk<L::GROUP> &part) {
        const int lane = threadIdx.x % 32;
        const uint32_t before = (1u << lane) - 1;
        const int32_t first = part.first, last = part.last;
        const void *const position = part.position;
        const typename bsri_wgmma_mainloop<L>::fetch fetch(m, part);
        int32_t left = part.count, at0 = part.at[0], at1 = part.at[1];
        uint32_t parts = m.parts, one = m.block_bits == 7, down0 = (uint32_t)part.base[0], down1 = (uint32_t)part.base[1];
        /* pinned in registers: read again they would cost every stage */
        asm volatile("" : "+r"(parts), "+r"(one), "+r"(base), "+r"(full), "+r"(empty));
        bsri_wgmma_leads leads;
        for (int w = 0; left; w++) {
            const uint32_t bits0 = part.bits[0][w], bits1 = part.bits[1][w];
            if (L::CONV) leads.look(m, first + w * 32 + lane);
            int32_t mine0 = at0 + __popc(bits0 & before), mine1 = at1 + __popc(bits1 & before);
            if (position && bits0 >> lane & 1) mine0 = bsri_wgmma_placed(m, position, mine0);
            if (position && bits1 >> lane & 1) mine1 = bsri_wgmma_placed(m, position, mine1);
            for (uint32_t any = bits0 | bits1; any; any &= any - 1) {
                const int from = __ffs((int)any) - 1;
                const uint32_t have0 = bits0 >> from & 1, have1 = bits1 >> from & 1;
                const int32_t block0 = __shfl_sync(~0u, mine0, from), block1 = __shfl_sync(~0u, mine1, from);
                int32_t k = (first + w * 32 + from) << m.block_bits;
                uint32_t lead = 0;
                if (L::CONV) leads.of(from, k, lead);
                const uint32_t total = fetch.bytes + (one ? 0 : (have0 + have1) * L::BLOCK);
                left--;
                for (uint32_t i = 0; i < parts; i++) {
                    bsri_mbarrier_wait(empty + 8 * stage, phase ^ 1);
                    if (bsri_elect_one()) {
                        bsri_wgmma_stage<L::GROUP> &note = s.note[stage];
                        const uint32_t barrier = full + 8 * stage;
                        const uint32_t flags = !left && i + 1 == parts ? (uint32_t)last << BSRI_WGMMA_FLAGS : 0;
                        fetch.stage(m, base + stage * L::STAGE, barrier, k + i * L::SLICE, lead, i, one, have0, have1, block0,
                                    block1, down0, down1);
                        note.work[0] = one | have0 | flags, note.work[1] = one | have1 | flags;
                        if (flags) tell(note, part, last);
                        bsri_mbarrier_expect_tx(barrier, total);
                    }
                    advance();
                }
            }
            at0 += __popc(bits0), at1 += __popc(bits1);
        }
        if (last && !part.count) nothing(s, part, last);
    }
};
template <class L>
__device__ __forceinline__ void bsri_wgmma_produce(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s, const char *shared) {
    bsri_wgmma_producer<L> f;
    uint32_t mine = 0, other = 0, builder = 0; /* parts so far of the builder whose turn it is, of the other */
    f.begin(shared, s);
    bsri_pdl_wait();
    for (int last = 0; last != BSRI_WGMMA_QUIT;) {
        do {
            const bsri_wgmma_chunk<L::GROUP> &part = s.part[builder][mine % 2];
            bsri_mbarrier_wait(bsri_smem_address(&s.chunk_full[builder][mine % 2]), mine / 2 & 1);
            last = part.last;
            if constexpr (L::RS) f.own(m, s, part);
            else f.wide(m, s, part);
            bsri_mbarrier_arrive(bsri_smem_address(&s.chunk_empty[builder][mine % 2]));
            mine++;
        } while (!last);
        const uint32_t swap = mine;
        mine = other, other = swap, builder ^= 1;
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma-epilogue: from sums to out                                                     */
/* ---------------------------------------------------------------------------------------------- */

/* A box is 64 columns of out on their way through shared memory; BOXES take turns. By rows it has 16 rows of 128 bytes, a warp's
   own. By columns it has the 64 rows of a warpgroup, 128 bytes of a column, where they stand together in out (a block of 32: 64
   bytes, two warps): a warp's 16 rows alone would be pieces of 32 bytes, which the L2 takes more slowly (note N22). */
template <class L> struct bsri_wgmma_box {
    static constexpr int COLUMN = !L::RS ? 128 : L::GROUP == 4 ? 64 : 32; /* bytes of a column */
    static __device__ __forceinline__ bool shared(bool by_rows) { return COLUMN > 32 && !by_rows; }
    static __device__ __forceinline__ uint32_t bytes(bool by_rows) { return by_rows ? 2048 : 64 * COLUMN; }
    static __device__ __forceinline__ uint32_t warp(void) { return bsri_dev_thread() / 32 % (COLUMN / 32); }
    /* The first box; spare: this warp's. */
    static __device__ __forceinline__ uint32_t first(uint32_t spare, bool by_rows) {
        return spare - (shared(by_rows) ? warp() * L::SPARE : 0);
    }
    /* Where this lane's line of 8 x 8 stands, as stmatrix and ldmatrix have it. */
    static __device__ __forceinline__ uint32_t place(uint32_t box, bool by_rows) {
        const uint32_t lane = threadIdx.x % 32, r = lane % 16, piece = lane / 16, c = piece * 8 + lane % 8, low = lane / 8 % 2;
        if (by_rows) return box + r * 128 + ((piece ^ (r & 7)) << 4);
        return box + bsri_swizzle<COLUMN>(c, warp() * 2 + low);
    }
    /* The same n columns further, a multiple of 16. */
    static __device__ __forceinline__ uint32_t further(uint32_t place, bool by_rows, int n) {
        return by_rows ? place ^ n * 2 : place + n * COLUMN;
    }
    /* Of this warp, or of any that has a part of its box. */
    static __device__ __forceinline__ bool any(bool by_rows, bool yes) {
        return L::RS && shared(by_rows) ? bsri_named_any(barrier(), COLUMN, yes) : yes;
    }
    /* The lane that stores a box, and so waits until it has been read. */
    static __device__ __forceinline__ bool leads(bool by_rows) {
        return bsri_dev_thread() % 32 == 0 && (!shared(by_rows) || warp() == 0); /* read anew: rs kernels can't hold a lane */
    }
    static __device__ __forceinline__ int barrier(void) { return COLUMN == 128 ? 1 + threadIdx.x / 128 : 2 + threadIdx.x / 64; }
    static __device__ __forceinline__ void sync(bool by_rows) {
        if (shared(by_rows)) bsri_named_sync(barrier(), COLUMN);
        else __syncwarp();
    }
};
/* 16 x 32 of out from column n on. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_stage_out(uint32_t place, const float (&x)[16], bool by_rows, int n) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t to = bsri_wgmma_box<L>::further(place, by_rows, n + i * 16);
        const uint32_t q[4] = {bsri_pack<T>(x[8 * i], x[8 * i + 1]), bsri_pack<T>(x[8 * i + 2], x[8 * i + 3]),
                               bsri_pack<T>(x[8 * i + 4], x[8 * i + 5]), bsri_pack<T>(x[8 * i + 6], x[8 * i + 7])};
        if (by_rows) bsri_stmatrix(to, q[0], q[1], q[2], q[3]);
        else bsri_stmatrix_t(to, q[0], q[1], q[2], q[3]);
    }
}
/* The sums of 16 x 32 from column n on, times alpha: number i of a lane stands in row lane / 4 + 8 (i / 2 % 2) and column i / 4 *
   8 + lane % 4 * 2 + i % 2. Chosen by branches, so that the code after it stands once and sums stay in registers. Integers that
   stay integers are multiplied later. */
__device__ __forceinline__ void bsri_wgmma_move(float &x, float sum, float alpha) {
    asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(x) : "f"(sum), "f"(alpha));
}
__device__ __forceinline__ void bsri_wgmma_move(int32_t &x, int32_t sum, float) {
    asm volatile("mov.b32 %0, %1;" : "=r"(x) : "r"(sum));
}
__device__ __forceinline__ void bsri_wgmma_move(float &x, int32_t sum, float alpha) {
    asm volatile("{ .reg .f32 f; cvt.rn.f32.s32 f, %1; mul.rn.f32 %0, f, %2; }" : "=f"(x) : "r"(sum), "f"(alpha));
}
template <int K, int PIECES, class X, class S, int N>
__device__ __forceinline__ void bsri_wgmma_piece(X (&x)[16], const S (&sum)[N], int n, float alpha) {
    if constexpr (PIECES == 1) {
#pragma unroll
        for (int i = 0; i < 16; i++) bsri_wgmma_move(x[i], sum[K * 16 + i], alpha);
    } else {
        constexpr int HALF = PIECES > 4 ? 4 : PIECES > 2 ? 2 : 1; /* the largest power of two below */
        if (n & HALF * 32) bsri_wgmma_piece<K + HALF, PIECES - HALF>(x, sum, n, alpha);
        else bsri_wgmma_piece<K, HALF>(x, sum, n, alpha);
    }
}
/* A tile as its epilogue sees it. row, col, cols: its first row and column in out, and columns that exist; left, rise: what of
   left, and of bias along a column, belongs to this lane's two rows. */
template <class L> struct bsri_wgmma_terms {
    typedef bsri_wgmma_box<L> box;
    float left[2], rise[2], bias[L::TN / 64][2]; /* bias: of BSRI_EPILOGUE_BIAS and SMOOTH */
    int32_t row, col, cols;

    /* Asks for all that the first boxes need, while the tensor cores are still busy. */
    __device__ __forceinline__ void begin(const bsri_dev_wgmma &m, const bsri_dev_finisher &f, uint32_t spare) {
        if (m.terms & BSRI_TERM_INPUT && !m.store_registers) {
            const bool by_rows = m.vector == 1;
            if (box::leads(by_rows)) bsri_tma_wait_read<0>();
            box::sync(by_rows);
#pragma unroll 1
            for (int i = 0; i < L::BOXES; i++)
                bring(f.operand[2], box::first(spare, by_rows) + i * box::bytes(by_rows), by_rows, i * 64);
        }
        if (m.terms & BSRI_TERM_LEFT) down(left, f.operand[0]);
        if (m.terms & BSRI_TERM_RIGHT) prefetch(f.operand[1]);
        if (m.terms & BSRI_TERM_RISE) down(rise, f.operand[3]);
        if (m.terms & BSRI_TERM_BIAS) prefetch(f.operand[3]);
    }
    __device__ __forceinline__ void down(float (&y)[2], const bsri_dev_operand &o) const {
        const char *const at = bsri_dev_at(o.data, o.dtype, (row + threadIdx.x % 32 / 4) * o.rs);
        const int64_t step = 8 * o.rs;
#pragma unroll
        for (int h = 0; h < 2; h++)
            y[h] = o.dtype == BSR_F32 ? ((const float *)at)[h * step] : bsri_dev_half(at, o.dtype, h * step);
    }
    /* Prefetches a line of the tile's columns to the L1. */
    __device__ __forceinline__ void prefetch(const bsri_dev_operand &o) const {
        const int n = threadIdx.x % 32 * 8;
        if (n < cols) asm volatile("prefetch.global.L1 [%0];" ::"l"(bsri_dev_at(o.data, o.dtype, col + n)));
    }
    /* For BSRI_EPILOGUE_BIAS and SMOOTH: of every 64 columns of bias each lane loads a pair. Now, as later nothing would hide the
       latency. Without bias -0, which changes nothing. */
    template <class T> __device__ __forceinline__ void share(const bsri_dev_operand &o, int terms) {
        const int c = threadIdx.x % 32 * 2;
        const bool f32 = terms & BSRI_TERM_BIAS_F32, some = terms & BSRI_TERM_BIAS;
#pragma unroll
        for (int k = 0; k < L::TN / 64; k++) {
            const char *const at = bsri_dev_at(o.data, f32 ? BSR_F32 : T::DTYPE, col + k * 64 + c);
            float2 v = make_float2(-0.0f, -0.0f);
            if (some && k * 64 + c < cols && f32) v = *(const float2 *)at;
            else if (some && k * 64 + c < cols) v.x = __uint_as_float(*(const uint32_t *)at);
            bias[k][0] = v.x, bias[k][1] = v.y;
            if (some && !f32) bsri_dev_unpack(bias[k], __float_as_uint(v.x), T::DTYPE);
        }
    }
    /* 16 x 32 sums from column n on, plus bias. */
    __device__ __forceinline__ void shared(float (&x)[16], int n) const {
        float mine[2] = {bias[0][0], bias[0][1]};
#pragma unroll
        for (int k = 1; k < L::TN / 64; k++)
            if (n / 64 == k) mine[0] = bias[k][0], mine[1] = bias[k][1];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int from = (n / 8 + j) % 8 * 4 + threadIdx.x % 4;
            const float y[2] = {__shfl_sync(~0u, mine[0], from), __shfl_sync(~0u, mine[1], from)};
#pragma unroll
            for (int i = 0; i < 4; i++) x[4 * j + i] = __fadd_rn(x[4 * j + i], y[i % 2]);
        }
    }
    /* f(i, from) for the part of input that 64 columns of out from n on cover: four pieces of 16 bytes a lane. */
    template <class F>
    __device__ __forceinline__ void pieces(const bsri_dev_operand &o, bool by_rows, int n, const F &f) const {
        const bsri_mma_pieces own(by_rows, bsri_dev_thread() % 32);
        const char *from = o.data + 2 * ((row + own.r) * o.rs + (col + n + own.c) * o.cs);
        const int64_t step = 2 * own.step(o.rs, o.cs);
#pragma unroll
        for (int i = 0; i < 4; i++, from += step)
            if (n + own.col(i) < cols) f(i, from);
    }
    /* Where piece i of a lane stands in a box: as out is staged. */
    static __device__ __forceinline__ uint32_t spot(uint32_t at, bool by_rows, int i) {
        const int lane = threadIdx.x % 32, r = lane / 8;
        const uint32_t to = at + (by_rows ? r * 128 + ((lane % 8 ^ r) << 4)
                                          : bsri_swizzle<box::COLUMN>(lane / 2, box::warp() * 2 + lane % 2));
        return (to ^ (by_rows ? i % 2 * 64 : 0)) + i * (by_rows ? 512 : 16 * box::COLUMN);
    }
    __device__ __forceinline__ void bring(const bsri_dev_operand &o, uint32_t at, bool by_rows, int n) const {
        pieces(o, by_rows, n, [&](int i, const char *from) { bsri_cp_async(spot(at, by_rows, i), from); });
        bsri_cp_async_commit();
    }
    /* A line's elements of this lane's columns from n on: y[2 j] and y[2 j + 1] belong 8 j columns after the first; where they
       have 16 bits, both are packed in y[2 j]. */
    __device__ __forceinline__ void fetch(uint32_t (&y)[8], const bsri_dev_operand &o, bool f32, int n) const {
        const int c = n + threadIdx.x % 4 * 2, rest = cols - c;
        if (f32) {
            const char *at = o.data + (int64_t)(col + c) * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint2 v = 8 * j < rest ? *(const uint2 *)(at + 32 * j) : make_uint2(0, 0);
                y[2 * j] = v.x, y[2 * j + 1] = v.y;
            }
        } else {
            const char *at = o.data + (int64_t)(col + c) * 2;
#pragma unroll
            for (int j = 0; j < 4; j++) y[2 * j] = 8 * j < rest ? *(const uint32_t *)(at + 16 * j) : 0;
        }
    }
    /* f(i, where) for the eight pairs of f32 of 16 x 32 from column n on, as far as they are there. */
    template <class F> __device__ __forceinline__ void pairs(const bsri_dev_operand &o, int n, const F &f) const {
        const int lane = threadIdx.x % 32, c = n + lane % 4 * 2;
        char *const at = (char *)o.data + ((row + lane / 4) * o.rs + col + c) * 4;
        const int64_t down = 32 * o.rs;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i / 2 * 8 < cols) f(i, (float2 *)(at + i % 2 * down + i / 2 * 32));
    }
    template <class T> static __device__ __forceinline__ void unpack(float (&y)[8], const uint32_t (&raw)[8], bool f32) {
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            float v[2] = {__uint_as_float(raw[j]), __uint_as_float(raw[j + 1])};
            if (!f32) bsri_dev_unpack(v, raw[j], T::DTYPE);
            y[j] = v[0], y[j + 1] = v[1];
        }
    }
};
/* Adds beta times input to 16 x 32 sums; place: of input, where out will be staged. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_input(float (&x)[16], float beta, uint32_t place, bool by_rows, int n) {
#pragma unroll
    for (int i = 0; i < 16; i += 8) {
        const uint32_t at = bsri_wgmma_box<L>::further(place, by_rows, n % 64 + 2 * i);
        uint32_t q[4];
        if (by_rows) bsri_mma_load(q, at);
        else bsri_mma_load_t(q, at);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            float v[2];
            bsri_dev_unpack(v, q[j / 2], T::DTYPE);
            x[i + j] = __fmaf_rn(beta, v[0], x[i + j]), x[i + j + 1] = __fmaf_rn(beta, v[1], x[i + j + 1]);
        }
    }
}
/* Left, right and input of 16 x 32 sums; place: as above. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_scale(const bsri_dev_wgmma &m, const bsri_dev_finisher &f,
                                                 const bsri_wgmma_terms<L> &t, float (&x)[16], uint32_t place, int n) {
    if (m.terms & BSRI_TERM_LEFT) {
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = __fmul_rn(x[i], t.left[i / 2 % 2]);
    }
    if (m.terms & BSRI_TERM_RIGHT) {
        const bool f32 = m.terms & BSRI_TERM_RIGHT_F32;
        uint32_t raw[8];
        float y[8];
        t.fetch(raw, f.operand[1], f32, n), t.template unpack<T>(y, raw, f32);
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = __fmul_rn(x[i], y[i / 4 * 2 + i % 2]);
    }
    if (!(m.terms & BSRI_TERM_INPUT)) return;
    const float beta = f.beta;
    if (!m.store_registers) return bsri_wgmma_input<T, L>(x, beta, place, m.vector == 1, n);
    t.pairs(f.operand[2], n, [&](int i, float2 *from) {
        const float2 y = *from;
        x[2 * i] = __fmaf_rn(beta, y.x, x[2 * i]), x[2 * i + 1] = __fmaf_rn(beta, y.y, x[2 * i + 1]);
    });
}
/* All but alpha of an epilogue of 16 x 32 sums, in the order of bsri_dev_finisher::eight. bias: as fetched. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_fuse(const bsri_dev_wgmma &m, const bsri_dev_finisher &f, const bsri_wgmma_terms<L> &t,
                                                float (&x)[16], const uint32_t (&bias)[8], uint32_t place, int n) {
    if (m.terms & (BSRI_TERM_LEFT | BSRI_TERM_RIGHT | BSRI_TERM_INPUT)) bsri_wgmma_scale<T, L>(m, f, t, x, place, n);
    if (m.terms & BSRI_TERM_BIAS) {
        float y[8];
        t.template unpack<T>(y, bias, m.terms & BSRI_TERM_BIAS_F32);
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = __fadd_rn(x[i], y[i / 4 * 2 + i % 2]);
    } else if (m.terms & BSRI_TERM_RISE) {
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = __fadd_rn(x[i], t.rise[i / 2 % 2]);
    }
    bsri_dev_activate(x, m.terms / BSRI_TERM_ACTIVATION);
}
/* 16 rows of this warp, through shared memory and the copy engine, a box after the other. KIND: BSRI_EPILOGUE_STORE to LINES;
   LINES alone takes integers. T: of out. Jumps, and code that must be fetched, cost as much as arithmetic, so each kind has code
   of its own without branches, and what is longer than BIAS is a loop of one box a round (note N16). */
template <int KIND, class T, class L, class S>
__device__ __forceinline__ void bsri_wgmma_epilogue_tile(const bsri_dev_wgmma &m, const bsri_dev_finisher &f,
                                                  const bsri_wgmma_terms<L> &t, uint32_t spare, S (&sum)[L::TN / 2]) {
    typedef bsri_wgmma_box<L> box;
    constexpr bool FUSED = KIND == BSRI_EPILOGUE_ROWCOL;
    constexpr bool HELD =
        KIND == BSRI_EPILOGUE_INPUT && !L::RS && L::TN > L::BOXES * 64;                  /* rs has no registers left */
    constexpr int ROUNDS = FUSED ? 1 : KIND >= BSRI_EPILOGUE_ACTIVATION ? 2 : L::TN / 32; /* side by side */
    const bool by_rows = m.vector == 1, direct = FUSED && m.store_registers;
    const bool input = KIND == BSRI_EPILOGUE_INPUT || (FUSED && !direct && m.terms & BSRI_TERM_INPUT);
    const uint32_t bytes = box::bytes(by_rows), start = box::first(spare, by_rows);
    constexpr bool LATE = FUSED && L::RS; /* no registers and predicates are left to hold what a store needs: asked for again */
    const bool led = LATE ? false : box::leads(by_rows);
    const auto leads = [&]() { return LATE ? box::leads(by_rows) : led; };
    const float alpha = FUSED ? f.alpha : (float)(m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha);
    int32_t c0, c1;
    uint64_t policy;
    const auto ask = [&]() { /* what a store needs beside its place */
        c0 = m.single ? 0 : __shfl_sync(~0u, f.c0, 0), c1 = m.single ? 0 : __shfl_sync(~0u, f.c1, 0);
        policy = bsri_l2_policy(m.evict_first);
    };
    if (!LATE) ask();
    uint4 later[4] = {}; /* of input: a box that has no place yet. Asked for later, each would cost a latency */
    const auto fetch = [&](int col) {
        t.pieces(f.operand[2], by_rows, col, [&](int i, const char *from) { later[i] = bsri_dev_load16(from); });
    };
    const auto next = [&](int col, uint32_t to) { /* input for the box at `to` is asked for */
        if (leads()) bsri_tma_wait_read<0>();
        box::sync(by_rows);
        t.bring(f.operand[2], start + to, by_rows, col);
    };
    if (HELD) fetch(L::BOXES * 64);
    uint32_t place = box::place(start, by_rows);
    asm volatile("" : "+r"(place)); /* kept */
#pragma unroll(ROUNDS)
    for (int n = 0; n < L::TN; n += 32) {
        const uint32_t at = n / 64 % L::BOXES * bytes;
        if (KIND == BSRI_EPILOGUE_INPUT && n && n % 64 == 0 && n >= t.cols) break; /* begin() waits for all stores */
        float x[16];
        uint32_t bias[8];
        if (FUSED && m.terms & BSRI_TERM_BIAS) t.fetch(bias, f.operand[3], m.terms & BSRI_TERM_BIAS_F32, n);
        if constexpr (ROUNDS < L::TN / 32) {
            bsri_wgmma_piece<0, L::TN / 32>(x, sum, n, alpha);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) x[i] = KIND == BSRI_EPILOGUE_STORE ? (float)sum[n / 2 + i] : alpha * sum[n / 2 + i];
        }
        if constexpr (!FUSED) {
            if (KIND == BSRI_EPILOGUE_BIAS || KIND == BSRI_EPILOGUE_ACTIVATION) t.shared(x, n);
            if (KIND == BSRI_EPILOGUE_ACTIVATION) bsri_dev_activate(x, m.terms / BSRI_TERM_ACTIVATION);
            else if (KIND == BSRI_EPILOGUE_BIAS && m.terms & BSR_ACT_RELU * BSRI_TERM_ACTIVATION)
                bsri_dev_activation<BSR_ACT_RELU>(x);
        }
        if (n % 64 == 0 && !direct) { /* input is there, or the box's last store has been read */
            if (input) bsri_cp_async_wait<0>();
            if ((!input || HELD) && leads()) bsri_tma_wait_read<L::BOXES - 1>();
            box::sync(by_rows);
            if (HELD && n >= L::BOXES * 64) {
#pragma unroll
                for (int i = 0; i < 4; i++) bsri_mma_put16(t.spot(start + at, by_rows, i), later[i]);
                if (n + 64 < L::TN) fetch(n + 64);
                box::sync(by_rows);
            }
        }
        if (FUSED) bsri_wgmma_fuse<T, L>(m, f, t, x, bias, place + at, n);
        if (KIND == BSRI_EPILOGUE_INPUT) bsri_wgmma_input<T, L>(x, f.beta, place + at, by_rows, n);
        if (direct) {
            t.pairs(f.operand[4], n, [&](int i, float2 *to) { *to = make_float2(x[2 * i], x[2 * i + 1]); });
            continue;
        }
        bsri_wgmma_stage_out<T, L>(place + at, x, by_rows, n % 64);
        if (n % 64 == 0) { /* two boxes: by now the other one's last store has been read */
            if (L::BOXES == 2 && input && !HELD && n && n + 64 < L::TN) next(n + 64, at ^ bytes);
            continue;
        }
        bsri_fence_proxy_async();
        box::sync(by_rows);
        const int32_t c = t.col + n - 32, x0 = by_rows ? c : t.row, x1 = by_rows ? t.row : c; /* here: the same in all lanes */
        if (LATE) ask();
        if (leads()) {
            if (n - 32 < t.cols) bsri_tma_store(&m.out_map, start + at, x0, x1, c0, c1, policy);
            bsri_tma_commit();
        }
        if (L::BOXES == 1 && input && n + 32 < L::TN) next(n + 32, 0);
    }
}
/* Any other epilogue: 16 x 32 sums through shared memory, integers as they are or as real numbers. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_epilogue_any(const bsri_dev_wgmma &m, const bsri_dev_finisher &f,
                                                      const bsri_wgmma_terms<L> &t, float *spare,
                                                      const typename T::sum (&sum)[L::TN / 2]) {
    const bool by_rows = m.p.out.col_stride == 1;
    const bool integer = T::INTEGER && (m.p.out.dtype == BSR_I8 || m.p.out.dtype == BSR_I32);
    const int lane = threadIdx.x % 32, cols = t.cols, pad = 36;
#pragma unroll 1
    for (int n = 0; n < cols; n += 32) {
        typename T::sum x[16];
        bsri_wgmma_piece<0, L::TN / 32>(x, sum, n, 1.0f);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            float2 *const to = (float2 *)(spare + (lane / 4 + i / 2 % 2 * 8) * pad + i / 4 * 8 + lane % 4 * 2);
            if (integer) *(int2 *)to = make_int2((int)x[i], (int)x[i + 1]);
            else *to = make_float2((float)x[i], (float)x[i + 1]);
        }
        __syncwarp();
#pragma unroll 1
        for (int i = lane; i < 64; i += 32) {
            const int r = by_rows ? i / 4 : i % 2 * 8, c = by_rows ? i % 4 * 8 : i / 2,
                      inside = by_rows        ? min(8, cols - n - c)
                               : n + c < cols ? 8
                                              : 0;
            float *const from = spare + r * pad + c;
            if (inside <= 0) continue;
            if (integer) f.eight(m.p, (uint32_t *)from, by_rows ? 1 : pad, t.row + r, t.col + n + c, by_rows, inside);
            else f.eight(m.p, from, by_rows ? 1 : pad, t.row + r, t.col + n + c, by_rows, inside);
        }
        __syncwarp();
    }
}

/* 16 rows of integers with alpha only, 32 columns at a time, two buffers. Each lane has pairs of neighbouring columns; every
   other row, or pair, exchanges what it stores first and second, so that there are no bank conflicts. What boxes have in common
   is computed once, and the compiler sees that coordinates are the same in all lanes: both save instructions (note N12). */
template <bool ROWS, class L>
__device__ __forceinline__ void bsri_wgmma_store(const bsri_dev_wgmma &m, const bsri_dev_finisher &f,
                                                 const bsri_wgmma_terms<L> &t, uint32_t spare, int32_t (&sum)[L::TN / 2]) {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4, odd = (ROWS ? r : q) & 1;
    const uint32_t alpha = bsri_dev_scalar<uint32_t>::of(m.p.alpha_ptr ? *m.p.alpha_ptr : m.p.alpha);
    const uint64_t policy = bsri_l2_policy(m.evict_first);
    const int32_t c0 = m.single ? 0 : __shfl_sync(~0u, f.c0, 0), c1 = m.single ? 0 : __shfl_sync(~0u, f.c1, 0);
    uint32_t at[4]; /* rows: of 8 columns; columns: of both halves of both columns */
    if (alpha != 1) {
#pragma unroll
        for (int i = 0; i < L::TN / 2; i++) sum[i] = (int32_t)(alpha * (uint32_t)sum[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        at[i] = spare + (ROWS ? r * 128 + ((odd << 2 ^ q / 2 ^ r ^ i * 2) << 4) + q % 2 * 8
                              : q * 128 + ((odd ^ i / 2) << 6) + ((i % 2 * 2 ^ r / 4 ^ q) << 4) + r % 4 * 4);
        asm volatile("" : "+r"(at[i])); /* kept */
    }
#pragma unroll
    for (int n = 0; n < L::TN / 32; n++) {
        const uint32_t to = n % 2 * 2048;
        if (lane == 0) bsri_tma_wait_read<1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int h = i / 4, j = i % 4, k = n * 16 + j * 4 + h * 2, far = n * 16 + (j ^ 2) * 4 + h * 2;
            if (ROWS) {
                bsri_wgmma_put(at[j] + to + h * 1024, odd ? sum[far] : sum[k], odd ? sum[far + 1] : sum[k + 1]);
            } else {
                bsri_wgmma_put(at[h] + to + j * 512, odd ? sum[k + 1] : sum[k]);
                bsri_wgmma_put(at[2 + h] + to + j * 512, odd ? sum[k] : sum[k + 1]);
            }
        }
        bsri_fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            const int32_t c = t.col + n * 32;
            if (n * 32 < t.cols) bsri_tma_store(&m.out_map, spare + to, ROWS ? c : t.row, ROWS ? t.row : c, c0, c1, policy);
            bsri_tma_commit();
        }
    }
}
/* Sets a warpgroup's finisher to an item. Each warpgroup has its own, as the other may be at the next item already. */
__device__ __forceinline__ void bsri_wgmma_item(const bsri_dev_wgmma &m, bsri_dev_finisher &f, int half, int64_t item) {
    if (f.item == item) return;
    bsri_named_sync(2 + half, 128);
    if (threadIdx.x % 128 < 5) f.begin(m.p, item, threadIdx.x % 128);
    if (threadIdx.x % 128 == 0) {
        f.c0 = f.c1 = 0;
        if (!m.single) bsri_tensor_item(m.o_batch, bsri_dense_offset(&m.p.out_batch, item, &m.p.out), f.c0, f.c1);
    }
    bsri_named_sync(1 + bsri_dev_thread() / 128, 128);
}
/* The 16 rows of a tile that belong to a multiplying warp. Computed again where they are needed: what is kept from one tile to
   the next takes registers that the epilogue lacks. */
struct bsri_wgmma_rows {
    int lane, warp, half, strip;
    __device__ __forceinline__ bsri_wgmma_rows() {
        const int thread = bsri_dev_thread();
        lane = thread % 32, warp = __shfl_sync(~0u, thread / 32, 0) - 4, half = warp / 4;
        strip = warp * 16;
    }
};
/* A product of 16 x 8 x 16 with products k, k + 1, k + 8, k + 9 of a convolution's column c, all of one tap. */
template <class T>
__device__ __forceinline__ void bsri_wgmma_image(float (&x)[4], const uint32_t (&v)[4], const bsri_dev_im2col &conv,
                                                 const uint16_t *b, uint32_t k, uint32_t c) {
    const uint32_t tap = k / (uint32_t)conv.channels, lead = bsri_im2col_lead(conv, tap);
    int32_t at[4];
    bsri_im2col_at(conv, c, at);
    at[3] += lead & 0xffff, at[2] += lead >> 16 & 0xff, at[1] += lead >> 24;
    const bool in = (uint32_t)at[1] < (uint32_t)conv.x.size[0] && (uint32_t)at[2] < (uint32_t)conv.x.size[1] &&
                    (uint32_t)at[3] < (uint32_t)conv.x.size[2];
    b += k - tap * conv.channels;
#pragma unroll
    for (int a = 0; a < 4; a++) b += (int64_t)at[a] * conv.x.step[a] * 8;
    bsri_mma<T>(x, v, in ? b[0] | (uint32_t)b[1] << 16 : 0, in ? b[8] | (uint32_t)b[9] << 16 : 0);
}
/* Computes a warp's strip of 16 rows again, from the row's own blocks only, where Inf or NaN beside them has_nan its sums: 16 x
   32 sums at a time, any epilogue. Not inline: it needs no sums, and what is kept over it would spill. One copy for all kernels
   of a type, and one for convolutions. */
template <class T, class... C>
__device__ __noinline__ void bsri_wgmma_recompute(const bsri_dev_product &p, int64_t item, int32_t line, int64_t row, int64_t col,
                                                  int tile_cols, const C &...conv) {
    const int lane = threadIdx.x % 32, k = lane % 4 * 2, block = (int)p.br;
    const int strip = ((threadIdx.x / 32 - 4) * 16 & (block - 1)) + lane / 4 + (int)bsri_view_row(p.view, line) * block;
    const uint32_t stored = bsri_view_line(p.view, line);
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    const int64_t low = 8 * p.a_rs, right = 8 * p.a_cs, down = 8 * p.b.row_stride;
#pragma unroll 1
    for (int64_t c0 = col; c0 < bsri_min(col + tile_cols, p.width); c0 += 32) {
        float x[4][4] = {};
        int64_t a_at, b_at;
        for (int64_t reduce = 0; reduce < p.reduce; reduce++) {
            bsri_dev_list list;
            list.begin_matrix(p, bsri_dev_step_of(p, item, reduce), stored);
            while (list.next(p, stored, &a_at, &b_at))
#pragma unroll 1
                for (int k0 = k; k0 < block * p.view.cols; k0 += 16) {
                    const uint16_t *a = (const uint16_t *)list.a + a_at + strip * p.a_rs + k0 * p.a_cs;
                    const uint32_t v[4] = {a[0] | (uint32_t)a[p.a_cs] << 16, a[low] | (uint32_t)a[low + p.a_cs] << 16,
                                           a[right] | (uint32_t)a[right + p.a_cs] << 16,
                                           a[low + right] | (uint32_t)a[low + right + p.a_cs] << 16};
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        const int64_t c = bsri_min(c0 + n * 8 + lane / 4, p.width - 1);
                        const uint16_t *b = (const uint16_t *)list.b + b_at + k0 * p.b.row_stride + c * p.b.col_stride;
                        if constexpr (sizeof...(C) > 0)
                            bsri_wgmma_image<T>(x[n], v, conv..., (const uint16_t *)list.b, (uint32_t)(b_at + k0), (uint32_t)c);
                        else
                            bsri_mma<T>(x[n], v, b[0] | (uint32_t)b[p.b.row_stride] << 16,
                                        b[down] | (uint32_t)b[down + p.b.row_stride] << 16);
                    }
                }
        }
#pragma unroll 1
        for (int i = 0; i < 16; i++) { /* one copy of the epilogue: sixteen would take half of this kernel's compile time */
            const int64_t c = c0 + i / 4 * 8 + k + i % 2;
            float v = 0.0f;
#pragma unroll
            for (int j = 0; j < 16; j++) v = i == j ? x[j / 4][j % 4] : v;
            if (c < p.width) bsri_dev_finish<float>(p, v, alpha, beta, item, row + lane / 4 + i / 2 % 2 * 8, c);
        }
    }
}
/* What an epilogue wants before the last products are done: where its strip of 16 rows is, and what is added there is asked for.
   spare: what warps have beside the stages. */
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_prepare(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s,
                                                   const bsri_wgmma_rows &now, const bsri_wgmma_tile_state &done, bool quit,
                                                   uint32_t spare, bsri_wgmma_terms<L> &terms) {
    bsri_dev_finisher &finisher = s.finisher[now.half];
    /* what is plain and of one item needs nothing of the finisher, whose code would have to be fetched (note N16) */
    if (!quit && !(m.single && m.epilogue <= BSRI_EPILOGUE_SCALE)) bsri_wgmma_item(m, finisher, now.half, done.item);
    terms.row = 0, terms.col = __shfl_sync(~0u, done.col, 0), terms.cols = 0; /* a warp without a row stores nothing */
    if (done.line >= 0) {
        terms.row = (__shfl_sync(~0u, done.line, 0) << m.block_bits) + (now.strip & ((1 << m.block_bits) - 1));
        terms.cols = (int)bsri_min(L::TN, m.p.width - terms.col);
    }
    if (!quit && (m.epilogue == BSRI_EPILOGUE_INPUT || m.epilogue == BSRI_EPILOGUE_ROWCOL))
        terms.begin(m, finisher, spare + now.warp * L::SPARE);
    if constexpr (T::BYTES == 2 && !L::RS) {
        if (!quit && (m.epilogue == BSRI_EPILOGUE_BIAS || m.epilogue == BSRI_EPILOGUE_ACTIVATION))
            terms.template share<T>(finisher.operand[3], m.terms);
    }
}
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_end(const bsri_dev_wgmma &m, const bsri_wgmma_storage<L::GROUP> &s,
                                               const bsri_wgmma_terms<L> &terms, char *shared,
                                               typename T::sum (&sum)[L::TN / 2]) {
    const bsri_wgmma_rows own;
    const bsri_wgmma_tile_state &tile = s.tile[own.warp];
    const bsri_dev_finisher &f = s.finisher[own.half];
    char *const spare = shared + L::STAGES * L::STAGE + own.warp * L::SPARE;
    const uint32_t at = bsri_smem_address(spare);
    if (bsri_wgmma_box<L>::any(m.vector == 1 || m.store_registers, bsri_wgmma_mainloop<L>::source::has_nan(sum, terms.cols))) {
        bsri_cp_async_wait<0>(); /* an input's copies: the next tile's go to the same place */
        if constexpr (L::RS && L::CONV) {
            if (tile.line >= 0) bsri_wgmma_recompute<T>(m.p, tile.item, tile.line, terms.row, tile.col, L::TN, m.conv);
        } else if constexpr (L::RS) {
            if (tile.line >= 0) bsri_wgmma_recompute<T>(m.p, tile.item, tile.line, terms.row, tile.col, L::TN);
        }
    } else if constexpr (T::INTEGER) {
        if (m.epilogue == BSRI_EPILOGUE_GENERIC) bsri_wgmma_epilogue_any<T, L>(m, f, terms, (float *)spare, sum);
        else if (m.epilogue == BSRI_EPILOGUE_ROWCOL && m.p.out.dtype == BSR_F16)
            bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_ROWCOL, bsri_mma_f16, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_ROWCOL)
            bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_ROWCOL, bsri_mma_bf16, L>(m, f, terms, at, sum);
        else if (m.vector == 1) bsri_wgmma_store<true, L>(m, f, terms, at, sum);
        else bsri_wgmma_store<false, L>(m, f, terms, at, sum);
    } else if constexpr (L::RS) {
        if (m.epilogue == BSRI_EPILOGUE_ROWCOL) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_ROWCOL, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_INPUT) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_INPUT, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_STORE) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_STORE, T, L>(m, f, terms, at, sum);
        else bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_SCALE, T, L>(m, f, terms, at, sum);
    } else { /* what is last here the compiler puts nearest to the loop that multiplies */
        if (m.epilogue == BSRI_EPILOGUE_GENERIC) bsri_wgmma_epilogue_any<T, L>(m, f, terms, (float *)spare, sum);
        else if (m.epilogue == BSRI_EPILOGUE_ROWCOL) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_ROWCOL, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_INPUT) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_INPUT, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_ACTIVATION)
            bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_ACTIVATION, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_BIAS) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_BIAS, T, L>(m, f, terms, at, sum);
        else if (m.epilogue == BSRI_EPILOGUE_SCALE) bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_SCALE, T, L>(m, f, terms, at, sum);
        else bsri_wgmma_epilogue_tile<BSRI_EPILOGUE_STORE, T, L>(m, f, terms, at, sum);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma-mainloop: what the multiplying warps do                                        */
/* ---------------------------------------------------------------------------------------------- */

/* Where a multiplying warp is in the ring. held: barrier of the stage whose products may still run; first: by this lane. */
struct bsri_wgmma_pipe {
    uint32_t base, full, empty, stage, phase, held, first;

    template <int STAGES> __device__ __forceinline__ void advance(void) {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    /* Products before the last group are done: their stage, if one is held, is free. */
    __device__ __forceinline__ void release(void) {
        if (held) bsri_mbarrier_arrive(held);
        held = 0;
    }
};
/* The stages of one tile; the flags of the last one. */
template <class T, class L, int TA, int TB>
__device__ __forceinline__ uint32_t bsri_wgmma_mma(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s, bsri_wgmma_pipe &at,
                                                      const bsri_wgmma_rows &own, typename T::sum (&sum)[L::TN / 2]) {
    const auto release = [&]() { at.release(); };
    typename bsri_wgmma_mainloop<L>::source source; /* not kept over the epilogue, which needs the registers */
    uint32_t flags = 0, mine = bsri_smem_address(&s.note[0].work[own.half]);
    bool begun = true;
    asm volatile("" : "+r"(mine)); /* kept */
    source.begin(m, s, at.base + L::STAGES * L::STAGE + 8 * L::SPARE);
#pragma unroll 1
    while (!flags) {
        const bsri_wgmma_stage<L::GROUP> &note = s.note[at.stage];
        bsri_mbarrier_wait(at.full + 8 * at.stage, at.phase);
        /* the shuffle tells the compiler that it is the same in all lanes: else it waits after every product */
        const uint32_t word = L::RS ? __shfl_sync(~0u, bsri_mma_read32(mine + at.stage * (uint32_t)sizeof note), 0)
                                     : note.work[own.half];
        const uint32_t work = word & ((1u << BSRI_WGMMA_FLAGS) - 1);
        flags = word >> BSRI_WGMMA_FLAGS;
        if (flags) {
            if (flags & BSRI_WGMMA_FIRST) source.start(m, note, begun), begun = false;
            flags &= BSRI_WGMMA_LAST | BSRI_WGMMA_QUIT;
            if (flags && at.first) {
                bsri_wgmma_tile_state &tile = s.tile[own.warp];
                tile.item = note.item, tile.line = note.row[own.strip >> m.block_bits], tile.col = note.col;
            }
        }
        if (work) { /* one group stays in flight, its stage is kept */
            source.template multiply<TA, TB>(m, sum, at.base + at.stage * L::STAGE, work, own.half, release);
            at.held = at.empty + 8 * at.stage;
        } else { /* no stage may stay held here: the others run on, and the ring goes round */
            bsri_wgmma_wait<0>();
            if constexpr (!L::RS)
                if (flags) source.finish(sum);
            release();
            bsri_mbarrier_arrive(at.empty + 8 * at.stage);
        }
        at.template advance<L::STAGES>();
    }
    if (L::RS) bsri_wgmma_wait<0>(); /* frees the registers that wgmma reads: else the epilogue spills */
    return flags;
}
/* Brings the first panel of the dense operand to the L2 while the kernel before this one still runs on other multiprocessors.
   Some CTAs ask for all of it: shared by all, those that start late would ask too late. The second panel is not brought: with
   it, it took longer than with none (note N3). */
__device__ __forceinline__ void bsri_wgmma_ahead(const bsri_dev_wgmma &m) {
    if (threadIdx.x >= 256) return;
    for (int i = (int)(threadIdx.x - 128 + 128 * blockIdx.x); i < m.ahead_lines; i += 128 * gridDim.x)
        bsri_dev_prefetch(m.rows.b + i * m.b_line, (uint32_t)m.ahead_bytes);
}
/* The stages of one tile by how its operands lie; the flags of the last one. */
template <class T, class L>
__device__ __forceinline__ uint32_t bsri_wgmma_mma_of(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s,
                                                      bsri_wgmma_pipe &at, const bsri_wgmma_rows &own,
                                                      typename T::sum (&sum)[L::TN / 2]) {
    if constexpr (L::RS) { /* decided here, not for each block (note N8) */
        if (!m.listed) return bsri_wgmma_mma<T, L, 0, 0>(m, s, at, own, sum);
        if (m.a_trans) return bsri_wgmma_mma<T, L, 1, 0>(m, s, at, own, sum);
        return bsri_wgmma_mma<T, L, 2, 0>(m, s, at, own, sum);
    } else if constexpr (T::BYTES == 1) {
        return bsri_wgmma_mma<T, L, 0, 0>(m, s, at, own, sum);
    } else if (__builtin_expect(!m.a_trans, 1)) { /* the most common one first: code that stands near is fetched sooner */
        if (__builtin_expect(m.b_rows, 1)) return bsri_wgmma_mma<T, L, 0, 1>(m, s, at, own, sum);
        return bsri_wgmma_mma<T, L, 0, 0>(m, s, at, own, sum);
    } else {
        if (m.b_rows) return bsri_wgmma_mma<T, L, 1, 1>(m, s, at, own, sum);
        return bsri_wgmma_mma<T, L, 1, 0>(m, s, at, own, sum);
    }
}
/* Asks for the next tile's first blocks, so that they come during the epilogue, before its slices are there (note N8). */
template <class L>
__device__ __forceinline__ void bsri_wgmma_ask(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s,
                                               const bsri_wgmma_pipe &at) {
    typename bsri_wgmma_mainloop<L>::source source;
    if (!L::RS) return;
    bsri_mbarrier_wait(bsri_smem_address(&s.named[at.stage]), at.phase);
    source.begin(m, s, at.base + L::STAGES * L::STAGE + 8 * L::SPARE);
    if (s.note[at.stage].work[0] >> BSRI_WGMMA_FLAGS & BSRI_WGMMA_FIRST) source.start(m, s.note[at.stage], false);
}
template <class T, class L>
__device__ __forceinline__ void bsri_wgmma_consume(const bsri_dev_wgmma &m, bsri_wgmma_storage<L::GROUP> &s, char *shared) {
    bsri_wgmma_pipe at = {bsri_smem_address(shared), bsri_smem_address(s.full), bsri_smem_address(s.empty), 0, 0, 0, 0};
    uint32_t idle = L::RS ? 0 : BSRI_WGMMA_LAST;
    bsri_wgmma_ahead(m);
    /* The dummy tile (below) takes longest with an input: it passes while the kernel before this one ends. */
    if (L::RS || m.epilogue != BSRI_EPILOGUE_INPUT || m.p.alpha_ptr) bsri_pdl_wait();
    bsri_wgmma_ask<L>(m, s, at);
    for (;; idle = 0) { /* first a dummy tile, whose epilogue fetches its code into the instruction cache while the first loads
                           are on their way */
        const bsri_wgmma_rows own;
        typename T::sum sum[L::TN / 2];
        uint32_t flags = idle;
        bsri_wgmma_tile_state &tile = s.tile[own.warp];
        at.first = own.lane == 0;
        asm volatile("" : "+r"(at.first)); /* pinned: computed again it would cost every step */
        if (at.first && idle) tile.item = tile.col = 0, tile.line = -1;
#pragma unroll
        for (int i = 0; i < L::TN / 2; i++) {
            if (L::RS) sum[i] = 0;
            else bsri_wgmma_unset(sum[i]);
        }
        if (!idle) flags = bsri_wgmma_mma_of<T, L>(m, s, at, own, sum);
        if (at.first) tile.stage = at.stage, tile.phase = at.phase;
        __syncwarp(); /* tile is known to all lanes */
        const bsri_wgmma_rows now;
        const bsri_wgmma_tile_state &done = s.tile[now.warp];
        bsri_wgmma_terms<L> terms;
        bsri_wgmma_prepare<T, L>(m, s, now, done, flags == BSRI_WGMMA_QUIT, at.base + L::STAGES * L::STAGE, terms);
        bsri_wgmma_wait<0>();
        bsri_wgmma_done(sum);
        at.release();
        if (flags == BSRI_WGMMA_QUIT) break;
        at.stage = done.stage, at.phase = done.phase;
        bsri_wgmma_ask<L>(m, s, at);
        bsri_wgmma_end<T, L>(m, s, terms, shared, sum);
        if (!L::RS) bsri_pdl_wait(); /* after the dummy tile */
        const bsri_wgmma_rows same;
        at.stage = s.tile[same.warp].stage, at.phase = s.tile[same.warp].phase;
        __syncwarp();
    }
    bsri_tma_wait_read<0>(); /* what is still written is written before the kernel ends */
}

#endif

/* ---------------------------------------------------------------------------------------------- */
/* >>product-wgmma: the kernel: its memory, barriers and order; both mainloops; tensor maps       */
/* ---------------------------------------------------------------------------------------------- */

template <class T, int TN_, int LINE_, bool CONV_> struct bsri_wgmma_mainloop<bsri_wgmma_ss<T, TN_, LINE_, CONV_>> {
    typedef bsri_wgmma_ss<T, TN_, LINE_, CONV_> L;
    static constexpr int TN = TN_, LINE = LINE_, GROUP = L::GROUP, SLICE = L::SLICE, BLOCK = L::BLOCK;
#ifdef BSRI_WGMMA_CODE
    /* What all stages of a part have in common, in registers. */
    struct fetch {
        int32_t col, a0, a1, b0, b1, boxes; /* boxes: of 64 columns; 0: all in one copy, -1: and along the products */
        uint32_t bytes;                     /* of a stage; of blocks of 64 without those */
        int32_t image[4];                   /* of a convolution: where the first pixel looks */
        __device__ __forceinline__ fetch(const bsri_dev_wgmma &m, const bsri_wgmma_chunk<GROUP> &part)
            : col(part.col), a0(part.a0), a1(part.a1), b0(part.b0), b1(part.b1) {
            if (CONV_) bsri_im2col_at(m.conv, (uint32_t)col, image);
            boxes = m.full_panels ? 0 : m.b_rows ? (int32_t)bsri_min(m.tile_cols / 64, (m.p.width - part.col + 63) / 64) : -1;
            bytes = (boxes > 0 ? boxes * 8192 : m.dense * LINE) + (m.block_bits == 7 ? 2 * BLOCK : 0);
        }
        /* By one lane: from several lanes an instruction costs more (note N2). lead: of a convolution's tap, of which k is a
           channel then. */
        __device__ __forceinline__ void stage(const bsri_dev_wgmma &m, uint32_t to, uint32_t barrier, int32_t k, uint32_t lead,
                                              int i, bool one, bool have0, bool have1, int32_t block0, int32_t block1,
                                              int32_t down0, int32_t down1) const {
            if (CONV_)
                bsri_tma_load_image(to + 2 * BLOCK, &m.b_map, barrier, m.conv.rank, k + b0 * m.conv.channels, image, lead);
            else if (!boxes) bsri_tma_load(to + 2 * BLOCK, &m.b_map, barrier, 0, k, col / 64, b0, b1);
            else if (boxes < 0) bsri_tma_load(to + 2 * BLOCK, &m.b_map, barrier, k, col, b0, b1);
            else
#pragma unroll 1
                for (int n = 0; n < boxes; n++)
                    bsri_tma_load(to + 2 * BLOCK + n * 8192, &m.b_map, barrier, col + n * 64, k, b0, b1);
            if (one) {
                values(m, to, barrier, block0, down0, i * SLICE);
                if (m.a_trans) values(m, to + BLOCK, barrier, block0, down0 + 64, i * SLICE);
            } else {
                if (have0) values(m, to, barrier, block0, down0, 0);
                if (have1) values(m, to + BLOCK, barrier, block1, down1, 0);
            }
        }
        /* 64 or 128 rows of a tile, numbered along stored blocks; down: first row in its block, k: first product in the tile. */
        __device__ __forceinline__ void values(const bsri_dev_wgmma &m, uint32_t to, uint32_t barrier, int32_t tile, int32_t down,
                                               int32_t k) const {
            const int32_t block = (int32_t)bsri_view_entry(m.view, tile);
            k += (tile - block * m.view.cols) << m.block_bits;
            bsri_tma_load(to, &m.a_map, barrier, m.a_trans ? down : k, m.a_trans ? k : down, block, a0, a1);
        }
    };
    struct source {
        int keep; /* 0: sums are not set yet; setting them first would cost time (note N2) */

        __device__ __forceinline__ void begin(const bsri_dev_wgmma &, bsri_wgmma_storage<GROUP> &, uint32_t) { keep = 0; }
        __device__ __forceinline__ void start(const bsri_dev_wgmma &, const bsri_wgmma_stage<GROUP> &, bool) {}
        /* Called with a tile's last stage, where that has no product: if none before had one either, the sums are zero. */
        __device__ __forceinline__ void finish(typename T::sum (&sum)[TN / 2]) const {
            if (keep) return;
            asm volatile("" ::: "memory"); /* forces a jump: else every stage without a product would run 128 selects */
#pragma unroll
            for (int i = 0; i < TN / 2; i++) sum[i] = 0;
        }
        template <int TA, int TB, class F>
        __device__ __forceinline__ void multiply(const bsri_dev_wgmma &, typename T::sum (&sum)[TN / 2], uint32_t at, uint32_t,
                                                 int half, const F &release) {
            const uint64_t a = bsri_wgmma_desc<LINE>(at + half * BLOCK, 0);
            const uint64_t b = bsri_wgmma_desc<LINE>(at + 2 * BLOCK, TB ? 8192 : 0);
            bsri_wgmma_fence();
#pragma unroll
            for (int k = 0; k < LINE / 32; k++)
                bsri_wgmma<T, TN, TA, TB>::ss(sum, a + k * (TA ? 2048 / 16 : 32 / 16), b + k * (TB ? 2048 / 16 : 32 / 16),
                                              k ? 1 : keep);
            bsri_wgmma_commit();
            keep = 1;
            bsri_wgmma_wait<1>();
            release();
        }
        static __device__ __forceinline__ bool has_nan(const typename T::sum (&)[TN / 2], int) { return false; }
    };
#endif
};

template <class T, int B_, int TB_, bool CONV_> struct bsri_wgmma_mainloop<bsri_wgmma_rs<T, B_, TB_, CONV_>> {
    typedef bsri_wgmma_rs<T, B_, TB_, CONV_> L;
    static constexpr int TN = L::TN, B = B_, TB = TB_, GROUP = L::GROUP, ITEMS = L::ITEMS, JOIN = L::JOIN, SLICE = L::SLICE;
    static constexpr int EACH = L::EACH, DENSE = L::DENSE, STAGE = L::STAGE;
    static constexpr uint32_t STRIP = L::STRIP, RING = L::RING, CHUNK = L::CHUNK, CHUNKS = L::CHUNKS;
#ifdef BSRI_WGMMA_CODE
    /* What all slices of a part have in common: the same in all lanes, as the compiler sees. */
    struct fetch {
        int32_t col, b0, b1, boxes; /* boxes: of 64 columns; 0: all in one copy */
        uint32_t bytes;
        int32_t image[4]; /* of a convolution: where the first pixel looks */
        __device__ __forceinline__ fetch(const bsri_dev_wgmma &m, const bsri_wgmma_chunk<GROUP> &part)
            : col(__shfl_sync(~0u, part.col, 0)), b0(__shfl_sync(~0u, part.b0, 0)), b1(__shfl_sync(~0u, part.b1, 0)) {
            boxes = TB && !m.full_panels ? (int32_t)bsri_min(TN / 64, (m.p.width - col + 63) / 64) : 0;
            bytes = boxes ? boxes * (B * 128) : !TB && m.join == JOIN ? STAGE : DENSE;
            if (CONV_) bsri_im2col_at(m.conv, (uint32_t)col, image);
        }
        /* TN columns of the slice that starts with product k, by one lane; of a convolution with channel k of the tap. */
        __device__ __forceinline__ void slice(const bsri_dev_wgmma &m, uint32_t to, uint32_t barrier, int32_t k,
                                              uint32_t lead) const {
            if (CONV_)
                bsri_tma_load_image(to, &m.b_map, barrier, m.conv.rank, k + b0 * m.conv.channels, image, lead);
            else if (!TB) bsri_tma_load(to, &m.b_map, barrier, k, col, b0, b1);
            else if (!boxes) bsri_tma_load(to, &m.b_map, barrier, 0, k, col / 64, b0, b1);
            else
#pragma unroll 1
                for (int i = 0; i < boxes; i++) bsri_tma_load(to + i * (B * 128), &m.b_map, barrier, col + i * 64, k, b0, b1);
        }
    };
    /* What a warpgroup must know of a slice, one of up to four of a stage: bit 4 n: its warp n has a block, 16: one has. */
    static __device__ __forceinline__ uint32_t item(uint32_t rows) {
        const uint32_t warps = B == 16 ? rows : (rows & 1) * 3 | (rows >> 1) * 12;
        return 65536 | ((warps | warps << 3 | warps << 6 | warps << 9) & 0x1111);
    }
    struct source { /* of one tile, worked out at its begin */
        uint32_t to, from, zero; /* shared memory: where this lane's 16 bytes of a block go, its fragment is, zeros are */
        uint32_t flip, shift;    /* from a fragment of a strip of 32 products to the second; of this warp's bits in a word */
        uint32_t used;           /* blocks of the item that were multiplied */
        uint32_t x[4][4];        /* fragments, which wgmma may still read */
        const char *next;        /* this lane's 16 bytes of the next block */
        const char *values;      /* of block 0; where blocks have no list, of the row's first */
        const void *position;    /* the list, or NULL: they are counted */
        int32_t left, asked, now, then; /* blocks not asked for; of the list: how many were, this lane's of 32, of the next */

        __device__ __forceinline__ void begin(const bsri_dev_wgmma &m, bsri_wgmma_storage<GROUP> &s, uint32_t ring) {
            const uint32_t thread = bsri_dev_thread(), lane = thread % 32, low = lane % 8, i = lane / 8;
            const uint32_t mine = ring + (thread / 32 - 4) * RING;
            if (B == 16 && m.listed) to = mine + lane / 8 * STRIP + bsri_swizzle<32>(lane % 8 / 2, lane % 2);
            else if (m.a_trans) to = mine + bsri_swizzle<32>(lane / 2, lane % 2); /* 32 bytes of each of B lines of values */
            else to = mine + bsri_swizzle<2 * B>(lane / (B / 8), lane % (B / 8)); /* 16 lines of 2 B bytes */
            if (m.a_trans) from = mine + bsri_swizzle<32>(low + (i >> 1) * 8, i & 1);
            else from = mine + bsri_swizzle<2 * B>(lane % 16, lane / 16);
            zero = bsri_smem_address(&s.zero), flip = m.a_trans ? 512 : 32, shift = thread / 32 % 4 * 4, used = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) asm("" : "=r"(x[i / 4][i % 4])); /* anything */
            values = next = NULL, position = NULL, left = asked = now = then = 0;
            asm volatile("" : "+r"(to), "+r"(from), "+r"(zero), "+r"(flip), "+r"(shift)); /* pinned: not computed again in each
                                                                                             step */
        }
        /* Number of the block that comes `ahead` after the last one asked for. */
        __device__ __forceinline__ int32_t list(const bsri_dev_wgmma &m, int32_t ahead) const {
            if (ahead >= left) return 0;
            int32_t n = asked + ahead, block = (int32_t)bsri_view_entry(m.view, n);
            n -= block * m.view.cols;
            if (position) block = bsri_dev_index(position, m.rows.dt, block);
            return block * m.a_each + n;
        }
        /* The first stage of an item: its blocks, from the first on. ahead: the first are on their way already. */
        __device__ __forceinline__ void start(const bsri_dev_wgmma &m, const bsri_wgmma_stage<GROUP> &note, bool ahead) {
            const int thread = bsri_dev_thread(), lane = thread % 32, strip = thread / 32 - 4, g = strip * 16 / B;
            const int32_t row = strip * 16 % B + note.base[g], skip = ahead ? CHUNKS * CHUNK : 0;
            const int32_t piece = m.listed ? lane % (32 / CHUNK) : lane; /* of a block, as in ask() */
            int64_t at = note.first[g];
            left = note.left[g], position = note.position, asked = 0;
            values = note.values + (m.a_trans ? piece / 2 * m.a_line + piece % 2 * 16 + row * 2
                                               : (row + piece / (B / 8)) * m.a_line + piece % (B / 8) * 16);
            if (m.listed) { /* the same in all lanes, as the compiler sees */
                if (m.p.kind != BSRI_LIST_ROWS) position = bsri_dev_at(position, m.rows.dt, at);
                else position = NULL, values += at * m.a_step;
                now = list(m, lane), then = list(m, 32 + lane), asked = skip;
            } else {
                next = values + (at + skip) * m.a_step;
            }
            left -= skip, used = 0;
#pragma unroll 1
            for (uint32_t i = ahead ? CHUNKS : 0; i < CHUNKS; i++) ask(m, i, m.listed);
        }
        /* A chunk of blocks into its place in the ring, as one group of copies. named: m.listed, which a loop knows: then eight
           lanes bring a block of 16, 128 bytes at a time, as each lane has one address to work out, not four. */
        __device__ __forceinline__ void ask(const bsri_dev_wgmma &m, uint32_t place, int named) {
            const uint32_t at = to + place * (CHUNK * STRIP), mine = bsri_dev_thread() % 32 * CHUNK / 32;
            const char *const block =
                named ? values + (uint64_t)(uint32_t)__shfl_sync(~0u, now, (uint32_t)asked % 32 + mine) * m.a_step : next;
#pragma unroll
            for (uint32_t k = 0; k < B * CHUNK / 16; k++) {
                if (B == 32) bsri_cp_async_if(at + k * 512, block + k * (uint64_t)m.a_half, left > 0);
                else if (named) bsri_cp_async_if((at ^ k % 2 * 16) + k * 128, block + k * (uint64_t)m.a_half, left > (int)mine);
                else bsri_cp_async_if(at + k * STRIP, block + k * (uint64_t)m.a_step, left > (int)k);
            }
            bsri_cp_async_commit();
            left -= CHUNK;
            if (named) {
                asked += CHUNK; /* whole chunks are asked for */
                if ((uint32_t)asked % 32 == 0) now = then, then = list(m, 32 + bsri_dev_thread() % 32);
            } else {
                next += CHUNK * (uint64_t)m.a_step;
            }
        }
        /* A stage is up to four products of 16. A wgmma with rows in registers holds its warp until the one before has ended, and
           other instructions share the registers' ports with it: so few instructions a stage (note N8). */
        template <int LISTED, int, class F>
        __device__ __forceinline__ void multiply(const bsri_dev_wgmma &m, float (&sum)[TN / 2], uint32_t at, uint32_t work, int,
                                                 const F &release) {
            constexpr int transposed = LISTED == 1;
            const uint64_t dense =
                TB ? bsri_wgmma_desc<128>(at, SLICE * 128) : (uint64_t)m.desc_hi << 32 | bsri_wgmma_desc_address(at) >> 4;
            const uint32_t have = work >> shift, before = used;
            uint32_t place[ITEMS], other[ITEMS];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                const uint32_t mine = have >> e & 1;
                place[e] = mine ? from + used * STRIP % RING : zero;
                if (B == 32) other[e] = mine ? place[e] ^ flip : zero;
                used += mine;
            }
            if constexpr (CHUNK == 1) bsri_cp_async_wait<CHUNKS - ITEMS>();
            else if (used != before && (before ^ used - 1) & CHUNK) bsri_cp_async_wait<0>(); /* some of those asked for last */
            else bsri_cp_async_wait<1>();
            bsri_wgmma_wait<0>();
#pragma unroll
            for (int i = 0; i < TN / 2; i++) asm volatile("" : "+f"(sum[i]));
#pragma unroll
            for (int i = 0; i < 16; i++) asm volatile("" : "+r"(x[i / 4][i % 4])); /* wgmma read them until now: nothing else may
                                                                                      be put there */
            __syncwarp();
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                fragment(transposed, x[e * (4 / ITEMS)], place[e], work & 65536 << e);
                if (B == 32) fragment(transposed, x[e * 2 + 1], other[e], work & 65536 << e);
            }
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                const uint64_t d = dense >> 32 << 32 | ((uint32_t)dense + piece(m, e));
                if (!(work & 65536 << e)) continue;
                bsri_wgmma_fence(); /* a group each: else the compiler waits after every product */
                bsri_wgmma<T, TN, 0, TB>::rs(sum, x[e * (4 / ITEMS)], d);
                if (B == 32) bsri_wgmma<T, TN, 0, TB>::rs(sum, x[e * 2 + 1], d + (TB ? 2048 / 16 : 2));
                bsri_wgmma_commit();
            }
            release();
            __syncwarp(); /* all lanes have loaded their fragments: what comes next goes where those were */
#pragma unroll 1
            for (uint32_t c = before / CHUNK; c != used / CHUNK; c++) ask(m, c % CHUNKS, LISTED);
        }
        /* From a stage's dense operand to the products of its n-th column of blocks, as descriptors count. */
        static __device__ __forceinline__ uint32_t piece(const bsri_dev_wgmma &m, uint32_t n) {
            constexpr uint32_t half = ITEMS / 2;
            return TB ? n * (DENSE / 16) : n % half * 2 + n / half * m.desc_step;
        }
        static __device__ __forceinline__ void fragment(int transposed, uint32_t (&x)[4], uint32_t at, uint32_t yes) {
            if (transposed) bsri_wgmma_load_t_if(x, at, yes);
            else bsri_wgmma_load_if(x, at, yes);
        }
        /* Whether sums are has_nan: where a row has no block zeros are multiplied, and zero times Inf or NaN is NaN. */
        static __device__ __forceinline__ bool has_nan(const float (&sum)[TN / 2], int cols) {
            float bad[4] = {}; /* four at a time: one after another they wait for each other */
#pragma unroll
            for (int n = 0; n < TN; n += 64)
                if (n < cols) { /* what stands beyond the last column was never fetched */
#pragma unroll
                    for (int i = n / 2; i < n / 2 + 32; i++) bad[i % 4] = fmaf(sum[i], 0.0f, bad[i % 4]);
                }
            const float any = (bad[0] + bad[1]) + (bad[2] + bad[3]);
            return __any_sync(~0u, any != any);
        }
    };
#endif
};

/* bsri_product_wgmma: a CTA stays and takes tiles of 128 rows. L is bsri_wgmma_ss (blocks of 64, 128) or bsri_wgmma_rs
   (16, 32; L::RS).
   Its tile is the choice of bsri_wgmma_choose() (>>cuda-plan-wgmma).

   Threads: warpgroup 0 produces (88 registers): warp 0 issues tensor loads, warps 1 and 2 build lists, each for every second
   tile, warp 3 deals tiles. Warpgroups 1 and 2 multiply (208 registers), 64 rows of a tile each.

   Shared memory:
     dynamic:     STAGES times STAGE bytes; of ss tiles one is
       0          64 rows of warpgroup 1's block, LINE bytes of products each (BLOCK)
       BLOCK      the same of warpgroup 2's
       2 BLOCK    dense operand: TN columns, LINE bytes of products each; by rows boxes of 64 columns
                  of rs tiles it holds EACH slices of the dense operand (DENSE), no blocks
     behind them  8 x SPARE: boxes of 64 columns of out, for each multiplying warp; rs: 8 x RING, blocks of 16 or 32 that
                  each multiplying warp copies for itself by cp.async
     static:      bsri_wgmma_storage

   barrier            count  arrives                                            waits                       phase
   full[stage]        1      elected lane of warp 0, expect_tx of what it loads multiplying threads         round of the ring
   empty[stage]       256    each multiplying thread: the stage's products done warp 0                      round + 1
   named[stage]       1      rs: elected lane of warp 0, note[stage] written    multiplying threads, warp 0 as full, as empty
   chunk_full[b][2]   32     lanes of builder b: chunk of a list written        warp 0                      round of the chunks
   chunk_empty[b][2]  32     lanes of warp 0: chunk used up                     builder b                   round + 1
   claim_full[4]      1      lane 0 of warp 3: number of a unit                 the builder whose turn it is round of the claims
   claim_empty[4]     32     lanes of that builder                              warp 3                      round + 1
   bar.sync 2, 3      128    threads of warpgroup 1, of 2, where its finisher   the same threads
                             takes another item, and where ss stores by columns
   bar.sync 4 to 7    64     threads of two warps that store by columns, B = 32 the same threads
   A phase is the number of the round modulo 2, from 0 on; "+ 1": the first wait passes at once. full expects, of ss tiles, the
   dense slice, and BLOCK for each warpgroup whose row has the block; of rs tiles, the stage's slices; a stage without products
   is a plain arrival. note[stage].work says which warpgroup (rs: which warps) has products there, and whether a tile ends.
   Multiplying threads wait for `named` with a tile's first stage only: its blocks are asked for before its slices land.

   Sums: as wgmma has them: sum[i] of lane l of a warpgroup's warp w is row 16 w + l / 4 + 8 (i / 2 % 2) of its 64, column 8 (i
   / 4) + l % 4 * 2 + i % 2.

   Order: 1. Warp 3 deals units to teams of CTAs and tells the builders this CTA's; a team's first unit is its own number.
          2. A builder makes the tile's list part by part: for each block row a bit set of the columns where it has a block.
          3. Warp 0 goes through the parts: wait for empty, write note[stage], expect, load.
          4. Multiplying warps: wait for full, issue the stage's wgmma, give back the stage before.
          5. With a tile's last stage the epilogue: what it adds is asked for while products run; box by box sums go to shared
             memory and out by tensor stores, while the next tile's stages land. Kernels of ss tiles begin with a dummy tile, for
             the epilogue's code. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) bsri_product_wgmma(const __grid_constant__ bsri_dev_wgmma m BSRI_GATE) {
#ifdef BSRI_WGMMA_CODE
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_wgmma_storage<L::GROUP> s;
    bsri_pdl_launch_dependents();
    BSRI_ENTER;
    if (threadIdx.x == 0) bsri_tma_prefetch(&m.a_map), bsri_tma_prefetch(&m.b_map);
    if (threadIdx.x < L::STAGES) {
        bsri_mbarrier_init(bsri_smem_address(&s.full[threadIdx.x]), 1);
        if (L::RS) bsri_mbarrier_init(bsri_smem_address(&s.named[threadIdx.x]), 1);
        bsri_mbarrier_init(bsri_smem_address(&s.empty[threadIdx.x]), 256); /* each lane that reads arrives: it costs nothing */
    }
    if (threadIdx.x < BSRI_WGMMA_CLAIMS) {
        bsri_mbarrier_init(bsri_smem_address(&s.claim_full[threadIdx.x]), 1);
        bsri_mbarrier_init(bsri_smem_address(&s.claim_empty[threadIdx.x]), 32);
    }
    if (threadIdx.x < 2 * BSRI_WGMMA_LISTERS) { /* each lane that writes or reads arrives */
        bsri_mbarrier_init(bsri_smem_address(&s.chunk_full[0][threadIdx.x]), 32);
        bsri_mbarrier_init(bsri_smem_address(&s.chunk_empty[0][threadIdx.x]), 32);
    }
    if (threadIdx.x == 0) s.zero = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < 2) s.finisher[threadIdx.x].item = -1;
    bsri_mbarrier_init_fence();
    __syncthreads();
    if ((int)gridDim.x >= m.group_ctas && blockIdx.x >= gridDim.x / m.group_ctas * m.group_ctas)
        return; /* too few CTAs are left for a team */
    if (threadIdx.x >= 128) {
        bsri_setmaxnreg_inc<208>();
        bsri_wgmma_consume<T, L>(m, s, bsri_shared);
    } else {
        bsri_setmaxnreg_dec<88>(); /* 88 + 2 x 208 = 3 x 168: what the CTA has at its start */
        if (threadIdx.x < 32) bsri_wgmma_produce<L>(m, s, bsri_shared);
        else if (threadIdx.x < 96) bsri_wgmma_list_stages<L>(m, s, threadIdx.x / 32 - 1);
        else bsri_wgmma_schedule<L::GROUP>(m, s);
    }
#endif
}

static_assert(sizeof(bsri_wgmma_storage<2>) <= 227 * 1024 - bsri_wgmma_ss<bsri_mma_bf16, 256>::SHARED &&
                  sizeof(bsri_wgmma_storage<4>) <= 227 * 1024 - bsri_wgmma_rs<bsri_mma_bf16, 32, 1>::SHARED &&
                  sizeof(bsri_wgmma_storage<8>) <= 227 * 1024 - bsri_wgmma_rs<bsri_mma_bf16, 16, 1>::SHARED,
              "lists stand beside the stages");

/* The maps of a choice; 0: the copy engine can't have an operand. */
static int bsri_wgmma_maps(const bsr_context *ctx, bsri_dev_wgmma *m) {
    const bsri_dev_product *p = &m->p;
    const int rows = m->b_rows, trans = m->a_trans;
    const bsri_tensor_batch *a = &m->a_batch, *b = &m->b_batch, *o = &m->o_batch;
    const int64_t size = (int64_t)bsr_dtype_size(p->b.dtype), o_bytes = (int64_t)bsr_dtype_size(p->out.dtype);
    const int64_t b_line = size * (rows ? p->b.row_stride : p->b.col_stride);
    const int64_t b_far[2] = {b->stride[0] ? size * b->stride[0] : 16, b->stride[1] ? size * b->stride[1] : 16};
    const int64_t b_size[5] = {m->full_panels ? 64
                               : rows   ? p->width
                                        : p->b.rows,
                               rows ? p->b.rows : p->width, m->full_panels ? p->width / 64 : b->size[0],
                               m->full_panels ? b->size[0] : b->size[1], b->size[1]};
    const int64_t b_step[4] = {b_size[1] > 1 ? b_line : 16, m->full_panels ? 128 : b_far[0], m->full_panels ? b_far[0] : b_far[1],
                               b_far[1]};
    /* whole blocks, of which a box takes a part */
    const int64_t down = p->br * m->view.rows, along_a = p->bc * m->view.cols, blocks = p->a.nnz / (m->view.rows * m->view.cols);
    const int64_t a_size[5] = {trans ? down : along_a, trans ? along_a : down, blocks, a->size[0], a->size[1]};
    const int64_t a_step[4] = {size * (trans ? p->a_cs : p->a_rs), blocks > 1 ? size * p->a_block : 16,
                               a->stride[0] ? size * a->stride[0] : 16, a->stride[1] ? size * a->stride[1] : 16};
    const int wide = m->vector == 1, line = (int)bsri_min(128, p->br * size);
    const int along = p->br < 64 && !rows ? m->join * line : line, slice = along / (int)size; /* of b: bytes, products */
    const int64_t o_line = wide ? p->out.row_stride : p->out.col_stride;
    const int64_t o_size[4] = {wide ? p->width : p->out.rows, wide ? p->out.rows : p->width, o->size[0], o->size[1]};
    const int64_t o_step[3] = {o_size[1] > 1 ? o_bytes * o_line : 16, o->stride[0] ? o_bytes * o->stride[0] : 16,
                               o->stride[1] ? o_bytes * o->stride[1] : 16};
    const int32_t box = 128 / (int32_t)o_bytes,
                  a_box[5] = {trans ? 64 : line / (int32_t)size, (int32_t)(trans ? 64 : p->br), 1, 1, 1},
                  b_box[5] = {rows ? 64 : slice, rows ? slice : m->dense, m->full_panels ? m->dense / 64 : 1, 1, 1},
                  box_rows = o_bytes == 2 ? (int32_t)bsri_min(p->br, 64) : 16,
                  o_box[4] = {wide ? box : box_rows, wide ? 16 : box, 1, 1};
    if (m->vector && !bsri_tensor_map(ctx, &m->out_map, p->out.dtype, p->out.data, 4, o_size, o_step, o_box,
                                      wide ? 128 : box_rows * (int)o_bytes, 1))
        m->vector = 0;
    if (!p->a.nnz) return 1; /* nothing is fetched */
    if (p->br >= 64 && !bsri_tensor_map(ctx, &m->a_map, p->a.dtype, p->a.values, 5, a_size, a_step, a_box, trans ? 128 : line, 1))
        return 0;
    if (m->conv.rank) return bsri_image_map(ctx, &m->b_map, p->b.dtype, &m->conv, slice, m->dense, along);
    /* pairs 0: the line beside a slice is needed only where the tile has a block there (note N22). */
    return bsri_tensor_map(ctx, &m->b_map, p->b.dtype, p->b.data, 4 + m->full_panels, b_size, b_step, b_box, rows ? 128 : along,
                           0);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-simt: dense x dense at stored blocks                                                 */
/* ---------------------------------------------------------------------------------------------- */

/* The row that stored block `at` belongs to: the last r with crow[r] <= at. */
__device__ __forceinline__ int64_t bsri_dev_row_of(const void *crow, int dt, int64_t rows, int64_t at) {
    int64_t low = 0, high = rows;
    while (high - low > 1) {
        const int64_t mid = (low + high) / 2;
        if (bsri_index(crow, dt, mid) <= at) low = mid;
        else high = mid;
    }
    return low;
}
/* Writes a part, from (row, col) on, of stored block `at` of an item. */
template <class G, class Tile>
static __device__ void bsri_simt_finish_block(const bsri_dev_sampled &p, const typename Tile::shared &s, int64_t item, int64_t at,
                                              int64_t row, int64_t col, int rows, int cols) {
    const bsri_item o = bsri_dev_matrix_item(&p.out_batch, item, &p.out);
    const char *input = p.has_input ? bsri_dev_matrix_item(&p.out_batch, item, &p.input).values : NULL;
    for (int i = threadIdx.x; i < rows * Tile::TN; i += Tile::THREADS) {
        const int64_t m = row + i / Tile::TN, n = col + i % Tile::TN;
        if (i % Tile::TN >= cols) continue;
        G v = Tile::template at<G>(s, i / Tile::TN, i % Tile::TN);
        if (p.alpha != 1.0) v *= bsri_dev_scalar<G>::of(p.alpha);
        if (input)
            v += bsri_dev_scalar<G>::of(p.beta) *
                 bsri_dev_number<G>(input, p.input.dtype, at * p.i_strides[0] + m * p.i_strides[1] + n * p.i_strides[2]);
        bsri_dev_store(o.values, p.out.dtype, at * p.o_strides[0] + m * p.o_strides[1] + n * p.o_strides[2], v);
    }
}
template <class L>
__global__ void __launch_bounds__(L::THREADS, sizeof(typename L::number) == 8 ? 1 : 2)
    bsri_sampled_simt(const __grid_constant__ bsri_dev_sampled p BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    typedef typename L::real F;
    __shared__ typename Tile::shared s;
    const int64_t br = p.out.block_rows, bc = p.out.block_cols, rows_in = bsri_block_rows(&p.out);
    const int64_t total = p.items * p.out.nnz * p.subs * p.panels;
    const int dt = p.out.index_dtype;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t col = work % p.panels * Tile::TN, row = work / p.panels % p.subs * Tile::TM;
        const int64_t at = work / p.panels / p.subs % p.out.nnz, item = work / p.panels / p.subs / p.out.nnz;
        const int64_t rows = bsri_min(Tile::TM, br - row), cols = bsri_min(Tile::TN, bc - col);
        const bsri_item o = bsri_dev_matrix_item(&p.out_batch, item, &p.out);
        A sum[Tile::RM][Tile::RN] = {};
        /* a ragged item owns a part of the blocks only */
        if (at < bsri_index(o.crow, dt, 0) || at >= bsri_index(o.crow, dt, rows_in)) continue;
        const int64_t r0 = bsri_dev_row_of(o.crow, dt, rows_in, at) * br + row, c0 = bsri_index(o.col, dt, at) * bc + col;
        for (int64_t r = 0; r < p.reduce && p.alpha != 0.0; r++) {
            const int64_t whole = bsri_reduce_item(&p.whole, &p.out_batch, item, r);
            Tile::multiply(s, sum, p.mat1.data, p.mat1.dtype,
                           bsri_dense_offset(&p.whole, whole, &p.mat1) + r0 * p.mat1.row_stride, p.mat1.row_stride,
                           p.mat1.col_stride, rows, p.mat2.data,
                           bsri_dense_offset(&p.whole, whole, &p.mat2) + c0 * p.mat2.col_stride, p.mat2.row_stride,
                           p.mat2.col_stride, cols, p.mat1.cols);
        }
        Tile::spread(s, sum);
        if (Tile::real(p.out.dtype)) bsri_simt_finish_block<float, Tile>(p, s, item, at, row, col, (int)rows, (int)cols);
        else bsri_simt_finish_block<F, Tile>(p, s, item, at, row, col, (int)rows, (int)cols);
        __syncthreads();
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-mma: dense x dense at stored blocks by mma.sync                                      */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_MMA_CODE
struct bsri_mma_sampled_storage {
    int64_t column[256];           /* where line n of the CTA's columns starts in mat2 */
    int64_t first, row, end, a, b; /* stored blocks [first, end) of block row `row`; bytes to its lines of mat1, to mat2 */
    char *out;                     /* values of the item */
    const char *input;             /* of its input; or null */
    int top;                       /* rows of a stored block above the tile */
};
/* Which row and blocks tile `tile` of an item has: rows get nnz / blocks + 1 tiles at most, found by bisection. */
__device__ __forceinline__ void bsri_mma_sampled_place(const bsri_dev_mma_sampled &m, bsri_mma_sampled_storage &s,
                                                       const bsri_item &o, int64_t tile) {
    const int64_t rows = bsri_block_rows(&m.p.out);
    const int dt = m.p.out.index_dtype;
    const int64_t zero = bsri_view_span_of(m.view, o.crow, dt, 0).before;
    int64_t low = 0, high = rows;
    while (high - low > 1) {
        const int64_t mid = (low + high) / 2;
        if ((bsri_view_span_of(m.view, o.crow, dt, mid).before - zero) / m.blocks + mid <= tile) low = mid;
        else high = mid;
    }
    const bsri_view_span own = bsri_view_span_of(m.view, o.crow, dt, low);
    const int64_t end = own.first + bsri_view_span_of(m.view, o.crow, dt, low + 1).before - own.before;
    s.row = low, s.first = own.first + (tile - (own.before - zero) / m.blocks - low) * m.blocks;
    s.end = bsri_min(end, s.first + m.blocks), s.top = (int)bsri_view_row(m.view, (uint32_t)low) * (int)m.p.out.block_rows;
}
template <class T, class L>
__device__ __forceinline__ void bsri_mma_sampled_load(const bsri_dev_mma_sampled &m, const bsri_mma_sampled_storage &s,
                                                       uint32_t to, int step) {
    constexpr int TRANSPOSED = L::MW * T::BYTES;                                       /* bytes of a line of mat1 */
    constexpr int ALONG = L::LINE / 16, DOWN = TRANSPOSED / 16, ACROSS = L::BN * T::BYTES / 16; /* pieces of a line */
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, a_copies = m.m_warps * (L::A_BYTES / 512);
    const int line = lane / ALONG, piece = lane % ALONG;
    const char *a = (const char *)m.p.mat1.data + s.a + step * m.a_step, *b = (const char *)m.p.mat2.data + s.b + step * m.b_step;
    for (int c = threadIdx.x / 32; c < a_copies; c += warps) {
        const int w = c / (L::A_BYTES / 512), i = c % (L::A_BYTES / 512), row = i * (32 / ALONG) + line;
        const uint32_t tile = to + w * L::A_BYTES;
        if (m.a_trans) {
            const int k = i * (32 / DOWN) + lane / DOWN, down = lane % DOWN;
            const uint32_t at = T::BYTES == 8 ? k * TRANSPOSED + ((down ^ bsri_swizzle_b<T>(k)) << 4)
                                              : bsri_swizzle<TRANSPOSED>(k, down);
            bsri_cp_async(tile + at, a + w * TRANSPOSED + k * m.a_line + down * 16);
        } else {
            bsri_cp_async(tile + bsri_swizzle<L::LINE>(row, piece), a + (int64_t)(w * L::MW + row) * m.a_line + piece * 16);
        }
    }
    to += m.m_warps * L::A_BYTES;
    for (int c = threadIdx.x / 32; c < m.n_warps * (L::B_BYTES / 512); c += warps) {
        const int w = c / (L::B_BYTES / 512), i = c % (L::B_BYTES / 512);
        const uint32_t tile = to + w * L::B_BYTES;
        if (L::B_ROWS) {
            const int k = i * (32 / ACROSS) + lane / ACROSS, across = lane % ACROSS;
            bsri_cp_async(tile + k * L::B_LINE + ((across ^ bsri_swizzle_b<T, L>(k)) << 4),
                          b + s.column[w * 64 + across * (16 / T::BYTES)] + k * m.b_line);
        } else {
            const int n = i * (32 / ALONG) + line;
            bsri_cp_async(tile + bsri_swizzle<L::LINE>(n, piece), b + s.column[w * 64 + n] + piece * 16);
        }
    }
}
/* All products of the CTA's tile. */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_sampled_mainloop(typename T::sum (&sum)[L::MI][L::NI][4], const bsri_dev_mma_sampled &m,
                                                      const bsri_mma_sampled_storage &s, uint32_t base) {
    const int warp = threadIdx.x / 32, m_warp = warp / m.n_warps, n_warp = warp % m.n_warps, ahead = m.stages - 1;
    for (int i = 0; i < ahead; i++) {
        if (i < m.steps) bsri_mma_sampled_load<T, L>(m, s, base + i * m.stage_bytes, i);
        bsri_cp_async_commit();
    }
    int to = ahead, from = 0;
    for (int i = 0; i < m.steps; i++) {
        if (m.stages == 5) bsri_cp_async_wait<3>();
        else bsri_cp_async_wait<1>();
        __syncthreads(); /* the stage is there for all, and the one before it is used up */
        if (i + ahead < m.steps) bsri_mma_sampled_load<T, L>(m, s, base + to * m.stage_bytes, i + ahead);
        bsri_cp_async_commit();
        const uint32_t at = base + from * m.stage_bytes;
        bsri_mma_consumer<T, L>::multiply(sum, at + m_warp * L::A_BYTES, at + m.m_warps * L::A_BYTES + n_warp * L::B_BYTES,
                                        m.a_trans, 0);
        if (++to == m.stages) to = 0;
        if (++from == m.stages) from = 0;
    }
}
/* A warp's sums to the stored blocks, by way of its `tile`. The code of bsri_sampled_add() and bsri_sampled_put() stands here
   again, as calls of them are slower (note N23). */
template <class T, class L>
__device__ __forceinline__ void bsri_mma_sampled_store(const bsri_dev_mma_sampled &m, const bsri_mma_sampled_storage &s,
                                                       float *tile, const typename T::sum (&sum)[L::MI][L::NI][4], int m_warp,
                                                       int n_warp, int lane, int block) {
    const bsri_dev_sampled &p = m.p;
#pragma unroll
    for (int mi = 0; mi < L::MI; mi++) {
#pragma unroll
        for (int ni = 0; ni < 8; ni++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                tile[(lane / 4 + i / 2 * 8) * BSRI_MMA_PAD + ni * 8 + lane % 4 * 2 + i % 2] = (float)p.alpha * sum[mi][ni][i];
        __syncwarp();
        for (int t = lane; t < 128; t += 32) {
            const int r = t / 8, c = t % 8 * 8, n = n_warp * 64 + c, row = m_warp * L::MW + mi * 16 + r + s.top;
            const int64_t tile_at = s.first + n / block;
            if (tile_at >= s.end) continue;
            const uint32_t at = bsri_view_entry(m.view, (uint32_t)tile_at);
            const int col = n % block + (int)((uint32_t)tile_at - at * m.view.cols) * block;
            const int64_t out = at * p.o_strides[0] + row * p.o_strides[1] + col * p.o_strides[2];
            float v[8];
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = tile[r * BSRI_MMA_PAD + c + i];
            if (s.input) {
                const int64_t from = at * p.i_strides[0] + row * p.i_strides[1] + col * p.i_strides[2];
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[i] += (float)p.beta * bsri_dev_number<float>(s.input, p.input.dtype, from + i * p.i_strides[2]);
            }
            if (m.vector) {
                *(uint4 *)((uint16_t *)s.out + out) =
                    make_uint4(bsri_pack<T>(v[0], v[1]), bsri_pack<T>(v[2], v[3]), bsri_pack<T>(v[4], v[5]),
                               bsri_pack<T>(v[6], v[7]));
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) bsri_dev_store(s.out, p.out.dtype, out + i * p.o_strides[2], v[i]);
            }
        }
        __syncwarp();
    }
}
/* The same of other types than those of 16 bits, element by element; G: what is finished in. */
template <class G, class T, class L>
__device__ __forceinline__ void bsri_mma_sampled_finish(const bsri_dev_mma_sampled &m, const bsri_mma_sampled_storage &s, G *tile,
                                                        const typename T::sum (&sum)[L::MI][L::NI][4], int m_warp, int n_warp,
                                                        int lane, int block) {
    constexpr int WIDE = sizeof(G) == 8 ? 32 : 64, PAD = BSRI_MMA_PAD * 4 / (int)sizeof(G); /* columns of a pass */
    typedef bsri_mma_consumer<T, typename L::by_rows> by_rows;
    typedef bsri_mma_consumer<T, L> by_columns;
    const bsri_dev_sampled &p = m.p;
    const G alpha = bsri_dev_scalar<G>::of(p.alpha), beta = bsri_dev_scalar<G>::of(p.beta);
#pragma unroll
    for (int pass = 0; pass < L::MI * (64 / WIDE); pass++) {
        const int mi = pass % L::MI, n0 = pass / L::MI * (WIDE / 8);
#pragma unroll
        for (int e = 0; e < WIDE / 2; e++) {
            int to;
            if constexpr (T::BYTES == 8)
                to = by_columns::row(e, m.a_trans) * PAD + (m.b_rows ? by_rows::col(e) : by_columns::col(e));
            else to = m.b_rows ? by_rows::place(e, m.a_trans) : by_columns::place(e, m.a_trans);
            tile[to] = (G)sum[mi][n0 + e / 4][e % 4];
        }
        __syncwarp();
#pragma unroll 1
        for (int t = lane; t < 16 * WIDE; t += 32) {
            const int r = t / WIDE, c = t % WIDE, n = n_warp * 64 + n0 * 8 + c, row = m_warp * L::MW + mi * 16 + r + s.top;
            const int64_t tile_at = s.first + n / block;
            if (tile_at >= s.end) continue;
            const uint32_t at = bsri_view_entry(m.view, (uint32_t)tile_at);
            const int col = n % block + (int)((uint32_t)tile_at - at * m.view.cols) * block;
            G v = alpha * tile[r * PAD + c];
            if (s.input)
                v += beta * bsri_dev_number<G>(s.input, p.input.dtype,
                                               at * p.i_strides[0] + row * p.i_strides[1] + col * p.i_strides[2]);
            bsri_dev_store(s.out, p.out.dtype, at * p.o_strides[0] + row * p.o_strides[1] + col * p.o_strides[2], v);
        }
        __syncwarp();
    }
}
#endif
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS)
    bsri_sampled_mma(const __grid_constant__ bsri_dev_mma_sampled m BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_mma_sampled_storage s;
    const bsri_dev_sampled &p = m.p;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m_warp = warp / m.n_warps, n_warp = warp % m.n_warps;
    const int dt = p.out.index_dtype, block = (int)p.out.block_rows;
    const uint32_t base = bsri_smem_address(bsri_shared);
    for (int64_t work = blockIdx.x; work < p.items * m.tiles; work += gridDim.x) {
        const int64_t item = work / m.tiles;
        const bsri_item o = bsri_dev_matrix_item(&p.out_batch, item, &p.out);
        typename T::sum sum[L::MI][L::NI][4] = {};
        __syncthreads();
        if (threadIdx.x == 0) {
            bsri_mma_sampled_place(m, s, o, work % m.tiles);
            s.out = o.values, s.input = p.has_input ? bsri_dev_matrix_item(&p.out_batch, item, &p.input).values : NULL;
        }
        __syncthreads();
        if (s.first >= s.end) continue;
        for (int n = threadIdx.x; n < m.n_warps * 64; n += (int)blockDim.x) { /* blocks that are missing repeat the last one */
            const int64_t at = bsri_min(s.first + n / block, s.end - 1);
            const int64_t e = bsri_view_entry(m.view, (uint32_t)at);
            const int64_t column = bsri_index(o.col, dt, e) * m.view.cols + at - e * m.view.cols;
            s.column[n] = (column * block + n % block) * (m.b_rows ? T::BYTES : m.b_line);
        }
        for (int64_t r = 0; r < p.reduce && p.alpha != 0.0; r++) {
            __syncthreads();
            if (threadIdx.x == 0) {
                const int64_t whole = bsri_reduce_item(&p.whole, &p.out_batch, item, r);
                s.a = (bsri_dense_offset(&p.whole, whole, &p.mat1) + s.row * block * p.mat1.row_stride) * T::BYTES;
                s.b = bsri_dense_offset(&p.whole, whole, &p.mat2) * T::BYTES;
            }
            __syncthreads();
            if (m.b_rows) bsri_mma_sampled_mainloop<T, typename L::by_rows>(sum, m, s, base);
            else bsri_mma_sampled_mainloop<T, L>(sum, m, s, base);
        }
        __syncthreads();
        float *const tile = (float *)bsri_shared + warp * BSRI_MMA_PASS;
        if constexpr (T::BYTES == 2) bsri_mma_sampled_store<T, L>(m, s, tile, sum, m_warp, n_warp, lane, block);
        else if constexpr (T::BYTES == 8)
            bsri_mma_sampled_finish<double, T, L>(m, s, (double *)tile, sum, m_warp, n_warp, lane, block);
        else if (T::BYTES == 1 && (p.out.dtype == BSR_I8 || p.out.dtype == BSR_I32)) {
            if constexpr (T::BYTES == 1)
                bsri_mma_sampled_finish<uint32_t, T, L>(m, s, (uint32_t *)tile, sum, m_warp, n_warp, lane, block);
        } else bsri_mma_sampled_finish<float, T, L>(m, s, tile, sum, m_warp, n_warp, lane, block);
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-wgmma-load: dense x dense at stored blocks by wgmma: who computes what, fetching     */
/* ---------------------------------------------------------------------------------------------- */

/* What the multiplying warps know of a tile. */
struct bsri_wgmma_sampled_tile {
    int64_t item;
    int32_t at[BSRI_WSAMPLED_GROUP];    /* of each block row: its first stored block here */
    uint32_t have[BSRI_WSAMPLED_GROUP]; /* of each block row: the entries that it stores */
    int32_t top[BSRI_WSAMPLED_GROUP];   /* of each block row: rows of a stored block above it */
    int32_t count;                      /* entries; 0: there are no more tiles */
};
/* A part of the union, as bsri_column_chunk, with more bits; and what making it needs, as in bsri_mma_storage. */
struct bsri_wgmma_sampled_chunk {
    typedef uint32_t bits;
    int32_t col[BSRI_CHUNK];
    uint32_t mask[BSRI_CHUNK];
    int32_t count;
};
struct bsri_wgmma_sampled_storage {
    bsri_wgmma_sampled_chunk part;
    bsri_wgmma_sampled_tile tile[2];
    uint64_t tile_full[2], tile_empty[2], full[BSRI_GROUP], empty[BSRI_GROUP]; /* barriers of tiles and of the ring's stages */
    int64_t at[BSRI_GROUP], end[BSRI_GROUP], next[BSRI_GROUP];                 /* entries of each row that are left */
    uint32_t present[BSRI_CHUNK];
    int32_t warp_count[4], irregular, first;
};
#ifdef BSRI_WGMMA_CODE
/* As bsri_pipe, in a ring of up to 16 stages that is cut anew: for each stage how often it was passed, modulo 2. */
struct bsri_sampled_pipe {
    uint32_t stage, phases, stages, bytes;
    __device__ __forceinline__ uint32_t phase() const { return phases >> stage & 1; }
    __device__ __forceinline__ void advance() {
        phases ^= 1u << stage;
        if (++stage == stages) stage = 0;
    }
};
__device__ __forceinline__ uint32_t bsri_wgmma_sampled_bytes(const bsri_dev_wgmma_sampled &m, int count) {
    return m.a_boxes * m.a_box + count * m.b_boxes * m.b_box;
}
/* Small tiles have more stages: the ring is cut anew where their number changes. Stages are multiples of 1 KB. */
__device__ __forceinline__ bool bsri_sampled_pipe_cut(bsri_sampled_pipe &ring, uint32_t bytes) {
    const uint32_t size = min(BSRI_GROUP, BSRI_WSAMPLED_RING / bytes);
    const bool other = size != ring.stages;
    if (other) ring.stage = 0, ring.stages = size, ring.bytes = BSRI_WSAMPLED_RING / size & ~1023u;
    return other;
}
/* A CTA's part: work [at, last) of all, or tiles of an item where they are dealt whole; the group where it begins, and the tiles
   before that. */
struct bsri_wgmma_sampled_place {
    int64_t at, last;
    int group, start, whole;
};
/* Where the work of CTA number n begins; of a grid that the caller has capped, too. */
__device__ __forceinline__ int64_t bsri_wgmma_sampled_from(const bsri_dev_wgmma_sampled &m, int64_t n) {
    const int64_t each = (int)gridDim.x == m.grid ? m.each : m.total / gridDim.x;
    return each * n + bsri_min(n, m.total - each * gridDim.x);
}
/* The last group that starts at or before `at`; every lane asks four places of its own. */
__device__ __forceinline__ int bsri_wgmma_sampled_find(const bsri_dev_wgmma_sampled &m, const void *crow, int64_t at) {
    int low = 0, high = m.groups;
    while (high - low > 1) {
        const int step = (high - low + 127) / 128;
        int before = -1;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int mine = low + (i * 32 + (int)threadIdx.x % 32) * step;
            const bool is = mine < high && bsri_view_span_of(m.view, crow, m.dt, mine * m.group).before * m.slope +
                                                   (int64_t)mine * m.panel <= at;
            before += __popc(__ballot_sync(~0u, is));
        }
        low += max(0, before) * step, high = min(high, low + step);
    }
    return low;
}
/* Tiles of block rows [first, end), none of them cut. */
__device__ __forceinline__ int bsri_wgmma_sampled_whole(const bsri_dev_wgmma_sampled &m, int first, int end) {
    int n = 0;
#pragma unroll 4
    for (int r = first; r < end; r++) {
        const int own = (int)bsri_view_line(m.view, r);
        const int blocks = (bsri_dev_index(m.crow, m.dt, own + 1) - bsri_dev_index(m.crow, m.dt, own)) * m.view.cols;
        n += (blocks + m.entries - 1) / m.entries;
    }
    return n;
}
/* This CTA's part in whole tiles; false: cutting them shares the work out better. */
__device__ __forceinline__ bool bsri_wgmma_sampled_assign(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_place &place) {
    const int lane = threadIdx.x % 32, each = (m.rows + 31) / 32, first = min(m.rows, lane * each);
    const int mine = bsri_wgmma_sampled_whole(m, first, min(m.rows, first + each)), grid = (int)gridDim.x, me = (int)blockIdx.x;
    const int blocks = (m.blocks + grid - 1) / grid;
    int sum = mine;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int left = __shfl_up_sync(~0u, sum, i);
        if (lane >= i) sum += left;
    }
    const int all = __shfl_sync(~0u, sum, 31), least = all / grid, more = all - least * grid, most = least + (more != 0);
    if (most * (m.entries + 1) > blocks + (blocks + m.entries - 1) / m.entries + (blocks > 1)) return false;
    place.at = least * me + min(me, more), place.last = place.at + least + (me < more);
    const int owner = 31 - __clz(__ballot_sync(~0u, sum - mine <= (int)place.at) | 1);
    place.group = __shfl_sync(~0u, first, owner), place.start = __shfl_sync(~0u, sum - mine, owner), place.whole = 1;
    return true;
}
/* How many of a group's `count` entries stand before `at` of its work. */
__device__ __forceinline__ int bsri_wgmma_sampled_before(int count, int64_t at, int64_t work) {
    return at <= 0 ? 0 : at >= work ? count : min(count, (int)((float)count * __fdividef((float)at, (float)work)));
}
/* Loads a stage; lane n has box n of mat2, at this column. The compiler makes a loop over lanes of it; one lane that asks the
   others for their columns is far slower (note N23). lead: of a convolution's tap, of which col is a channel then. */
template <bool CONV>
__device__ __forceinline__ void bsri_wgmma_sampled_load(const bsri_dev_wgmma_sampled &m, uint32_t to, uint32_t full, int k,
                                                        int row, const int32_t (&batch)[4], int col, uint32_t lead, int boxes) {
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
        const uint32_t at = to + boxes * m.b_box; /* mat1's part stands behind, for wgmma reads up to 48 columns more */
        bsri_mbarrier_expect_tx(full, boxes * m.b_box + m.a_boxes * m.a_box);
        for (int i = 0; i < m.a_boxes; i++)
            bsri_tma_load(at + i * m.a_box, &m.mat1, full, m.a_across ? row + i * 64 : k, m.a_across ? k : row, batch[0],
                          batch[1]);
    }
    if (CONV) {
        int32_t image[4];
        bsri_im2col_at(m.conv, (uint32_t)k, image);
        if (lane < boxes) bsri_tma_load_image(to + lane * m.b_box, &m.mat2, full, m.conv.rank, col, image, lead);
        return;
    }
    if (lane < boxes)
        bsri_tma_load(to + lane * m.b_box, &m.mat2, full, m.b_across ? col : k, m.b_across ? k : col, batch[2], batch[3]);
}
/* Where a problem item's operands stand in their maps. */
__device__ __forceinline__ void bsri_wgmma_sampled_batch(const bsri_dev_wgmma_sampled &m, int64_t item, int r,
                                                         int32_t (&batch)[4]) {
    const int64_t whole = bsri_reduce_item(&m.p.whole, &m.p.out_batch, item, r);
    bsri_tensor_item(m.batch1, bsri_dense_offset(&m.p.whole, whole, &m.p.mat1), batch[0], batch[1]);
    bsri_tensor_item(m.batch2, bsri_dense_offset(&m.p.whole, whole, &m.p.mat2), batch[2], batch[3]);
}
/* Entries of a group that follow one another, of a part of its union or, where it is one block row, of the index array; lane g
   has the first block of row g here. */
struct bsri_wgmma_sampled_run {
    const bsri_wgmma_sampled_chunk *part; /* null: a group of one row */
    int64_t item;
    int row, first, n, at;
};
/* The fetching warps: what is on its way, and to whom. */
struct bsri_wgmma_sampled_producer {
    bsri_sampled_pipe ring, tiles;
    uint32_t base;
    int loader; /* the warp that loads the next stage */
};
/* All stages of one tile; lane e has the column of entry e. Three warps take turns: there are three stages at least, so that none
   is ahead of another by a whole round. */
template <bool CONV>
__device__ __forceinline__ void bsri_wgmma_sampled_produce_tile(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                              bsri_wgmma_sampled_producer &f, int64_t item, int row, int col,
                                                              int count) {
    const uint32_t full = bsri_smem_address(s.full), empty = bsri_smem_address(s.empty);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = m.b_boxes / 2; /* boxes of an entry: 1 or 2 */
    const bool used = f.ring.stages != 0;
    if (bsri_sampled_pipe_cut(f.ring, bsri_wgmma_sampled_bytes(m, count)) && used) {
        bsri_producer_sync(); /* all old stages have been filled, and then: nobody reads them any more */
        for (int i = 0; i < BSRI_GROUP; i++) bsri_mbarrier_wait(empty + 8 * i, (f.ring.phases >> i & 1) ^ 1);
    }
    col = (__shfl_sync(~0u, col, lane >> half) << (m.bits + m.shift)) + (lane & half) * 64;
    const int first = CONV ? (int)item * m.share : 0; /* items of a convolution are shares of its pixels */
    uint32_t lead = 0;
    if (CONV) {
        const uint32_t tap = (uint32_t)col / (uint32_t)m.conv.channels;
        lead = bsri_im2col_lead(m.conv, tap), col -= (int)tap * m.conv.channels;
    }
    for (int r = 0; r < m.reduce; r++) {
        int32_t batch[4] = {0, 0, 0, 0};
        if (m.batched && !CONV) bsri_wgmma_sampled_batch(m, item, r, batch);
        for (int i = 0; i < m.steps; i++, f.ring.advance(), f.loader = f.loader == 2 ? 0 : f.loader + 1) {
            if (f.loader != warp) continue;
            bsri_mbarrier_wait(empty + 8 * f.ring.stage, f.ring.phase() ^ 1);
            bsri_wgmma_sampled_load<CONV>(m, f.base + f.ring.stage * f.ring.bytes, full + 8 * f.ring.stage,
                                    first + i * BSRI_WSAMPLED_DEPTH, row, batch, col, lead, count * m.b_boxes);
        }
    }
}
/* Lane g: how many blocks row g stores in the first n entries of a part. Sums of two rows in one register. */
__device__ __forceinline__ int bsri_wgmma_sampled_stored(const bsri_dev_wgmma_sampled &m, const bsri_wgmma_sampled_chunk &part,
                                                         int n) {
    const uint32_t lane = threadIdx.x % 32, row = (1u << (1 << m.shift)) - 1;
    uint32_t sum[BSRI_WSAMPLED_GROUP / 2] = {}, mine = 0;
    for (int e = lane; e < n; e += 32)
#pragma unroll
        for (int g = 0; g < BSRI_WSAMPLED_GROUP; g++)
            sum[g / 2] += (uint32_t)__popc(part.mask[e] >> (g << m.shift) & row) << g % 2 * 16;
#pragma unroll
    for (uint32_t i = 0; i < BSRI_WSAMPLED_GROUP / 2; i++) {
        const uint32_t all = __reduce_add_sync(~0u, sum[i]);
        if (lane / 2 == i) mine = lane % 2 ? all >> 16 : all & 0xffff;
    }
    return (int)mine;
}
/* Tells the multiplying warps of n entries; lane e has the mask of entry e. By one warp, while the others fetch: all its lanes
   write and arrive. */
__device__ __forceinline__ void bsri_wgmma_sampled_tell(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                        const bsri_sampled_pipe &tiles, bsri_wgmma_sampled_run &run,
                                                        uint32_t mask, int n) {
    const int lane = threadIdx.x % 32;
    const uint32_t beside = __shfl_sync(~0u, mask, lane >> m.shift) >> (lane & ((1 << m.shift) - 1));
    bsri_wgmma_sampled_tile &tile = s.tile[tiles.stage];
    uint32_t stored = 0; /* by row `lane` */
#pragma unroll
    for (int g = 0; g < BSRI_WSAMPLED_GROUP; g++) {
        const uint32_t word = __ballot_sync(~0u, beside >> (g << m.shift) & 1);
        if (lane == g) stored = word;
    }
    bsri_mbarrier_wait(bsri_smem_address(&s.tile_empty[tiles.stage]), tiles.phase() ^ 1);
    if (lane < BSRI_WSAMPLED_GROUP) {
        tile.at[lane] = run.at, tile.have[lane] = stored;
        tile.top[lane] = (int32_t)bsri_view_row(m.view, (run.row >> m.bits) + lane) << m.bits;
    }
    if (lane == 0) tile.item = run.item, tile.count = n;
    bsri_mbarrier_arrive(bsri_smem_address(&s.tile_full[tiles.stage]));
    run.at += __popc(stored);
}
/* The tiles of a run, of equal size but for one entry. */
template <bool CONV>
__device__ __forceinline__ void bsri_wgmma_sampled_produce_run(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                             bsri_wgmma_sampled_producer &f, bsri_wgmma_sampled_run &run,
                                                             const bsri_mma_rows &r) {
    const int lane = threadIdx.x % 32, count = (run.n + m.entries - 1) / m.entries;
    const int each = count ? run.n / count : 0, more = run.n - each * count;
    for (int t = 0, e = run.first; t < count; t++, f.tiles.advance()) {
        const int n = each + (t < more);
        int32_t col = 0;
        uint32_t mask = 0;
        if (lane < n) {
            col = run.part ? run.part->col[e + lane] : bsri_view_column(m.view, r, e + lane);
            mask = run.part ? run.part->mask[e + lane] : 1;
        }
        if (threadIdx.x / 32 == BSRI_WSAMPLED_LISTER) bsri_wgmma_sampled_tell(m, s, f.tiles, run, mask, n);
        bsri_wgmma_sampled_produce_tile<CONV>(m, s, f, run.item, run.row, col, n);
        e += n;
    }
}
/* The next part of a group's union, as bsri_columns_next(). Where columns ascend and fit one part, all index entries of the
   group, [s.at[0], end), are read at once, which is faster than row after row (note N23). */
__device__ __forceinline__ bool bsri_wgmma_sampled_columns_next(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                         const bsri_mma_rows &r, int end, bool begun) {
    if (m.parts == 1 && !begun && m.view.rows * m.view.cols == 1) {
        int at[BSRI_WSAMPLED_GROUP];
#pragma unroll
        for (int g = 0; g < BSRI_WSAMPLED_GROUP; g++) at[g] = (int)s.at[g];
        for (int i = threadIdx.x; i < BSRI_CHUNK; i += BSRI_PRODUCERS) s.present[i] = 0;
        if (threadIdx.x == 0) s.first = 0, s.irregular = 0;
        bsri_producer_sync();
#pragma unroll 2
        for (int i = at[0] + (int)threadIdx.x; i < end; i += BSRI_PRODUCERS) {
            const int32_t c = bsri_dev_index(r.col, r.dt, i);
            int row = 0;
            bool begins = i == at[0];
#pragma unroll
            for (int g = 1; g < BSRI_WSAMPLED_GROUP; g++)
                if (g < m.group) row += i >= at[g], begins = begins || i == at[g];
            const bool after = begins || bsri_dev_index(r.col, r.dt, i - 1) < c;
            if (!after || (uint32_t)c >> m.shift >= BSRI_CHUNK) s.irregular = 1;
            else atomicOr(&s.present[c >> m.shift], 1u << (row << m.shift | (c & ((1 << m.shift) - 1))));
        }
        bsri_producer_sync();
        if (!s.irregular) {
            if (threadIdx.x < BSRI_WSAMPLED_GROUP) s.next[threadIdx.x] = s.end[threadIdx.x];
            __syncwarp();
            bsri_columns_gather(s, s.part, m.group);
            bsri_producer_sync();
            return false;
        }
        bsri_producer_sync(); /* everybody has seen it */
    }
    return bsri_columns_next(s, s.part, r, m.view, m.group, m.shift);
}
/* This CTA's part of an item. */
template <bool CONV>
__device__ __forceinline__ void bsri_wgmma_sampled_produce_item(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                              bsri_wgmma_sampled_producer &f, const bsri_mma_rows &r,
                                                              const bsri_wgmma_sampled_place &place, int64_t item) {
    const int lane = threadIdx.x % 32, whole = place.whole;
    int64_t dealt = place.start;
    for (int n = __shfl_sync(~0u, place.group, 0); n < m.groups; n++) {
        const bsri_view_span span = bsri_view_span_of(m.view, r.ptr, m.dt, min(n * m.group + min(lane, m.group), m.rows));
        const int first = (int)span.first, before = (int)span.before; /* of row `lane` */
        const int end = first + __shfl_down_sync(~0u, before, 1) - before, base = __shfl_sync(~0u, before, 0);
        const int blocks = __shfl_sync(~0u, before, m.group) - base;
        const int64_t start = whole ? dealt : base * (int64_t)m.slope + n * (int64_t)m.panel;
        const int64_t work = whole ? (blocks + m.entries - 1) / m.entries : blocks * (int64_t)m.slope + m.panel - m.toll;
        const int64_t from = place.at - start - (whole ? 0 : m.toll), to = from + place.last - place.at;
        bsri_wgmma_sampled_run run = {NULL, item, (n * m.group) << m.bits, 0, 0, first};
        if (start >= place.last) break;
        dealt += work;
        if (m.group > 1) {
            bsri_producer_sync();
            if (threadIdx.x < BSRI_WSAMPLED_GROUP) s.at[lane] = first, s.end[lane] = end;
            bsri_producer_sync();
        }
        for (bool more = true, begun = false; more; begun = true) {
            const int at = lane < BSRI_WSAMPLED_GROUP ? (int)s.at[lane] : 0;
            more = m.group > 1 && bsri_wgmma_sampled_columns_next(m, s, r, base + blocks, begun);
            const int count = m.group > 1 ? __shfl_sync(~0u, s.part.count, 0) : blocks;
            run.first = whole ? min(count, max((int)from, 0) * m.entries) : bsri_wgmma_sampled_before(count, from, work);
            run.n = (whole ? min(count, max((int)to, 0) * m.entries) : bsri_wgmma_sampled_before(count, to, work)) - run.first;
            if (m.group == 1) run.first += __shfl_sync(~0u, first, 0), run.at = run.first;
            else run.part = &s.part, run.at = at + bsri_wgmma_sampled_stored(m, s.part, run.first);
            bsri_wgmma_sampled_produce_run<CONV>(m, s, f, run, r);
        }
    }
}
/* Where this CTA begins in the item, if that is not known yet. */
__device__ __forceinline__ bsri_wgmma_sampled_place bsri_wgmma_sampled_begin(const bsri_dev_wgmma_sampled &m, const void *crow,
                                                                             int64_t at, int64_t last) {
    bsri_wgmma_sampled_place place = {at, last, 0, 0, 0};
    if (!m.whole || !bsri_wgmma_sampled_assign(m, place)) place.group = bsri_wgmma_sampled_find(m, crow, at);
    return place;
}
/* The fetching warps. */
template <bool CONV>
__device__ __forceinline__ void bsri_wgmma_sampled_produce(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                         bsri_wgmma_sampled_place place, uint32_t base) {
    const int64_t end = bsri_wgmma_sampled_from(m, blockIdx.x + 1);
    bsri_mma_rows r = {m.crow, m.col, NULL, NULL, NULL, m.dt};
    bsri_wgmma_sampled_producer f = {{0, 0, 0, 0}, {0, 0, 2, 0}, base, 0};
    int64_t x = m.batched ? bsri_wgmma_sampled_from(m, blockIdx.x) : 0, item = 0;
    for (bool more = !m.batched || x < end; more; more = m.batched && x < end) {
        if (m.batched) {
            item = x / m.area;
            const bsri_item o = bsri_dev_matrix_item(&m.p.out_batch, item, &m.p.out);
            r.ptr = o.crow, r.col = o.col, x = item * m.area;
            const int64_t from = bsri_wgmma_sampled_from(m, blockIdx.x) - x;
            place = bsri_wgmma_sampled_begin(m, r.ptr, bsri_max(from, 0), bsri_min(end - x, m.area));
        }
        bsri_wgmma_sampled_produce_item<CONV>(m, s, f, r, place, item);
        x += m.area;
    }
    if (threadIdx.x / 32 == BSRI_WSAMPLED_LISTER) {
        bsri_mbarrier_wait(bsri_smem_address(&s.tile_empty[f.tiles.stage]), f.tiles.phase() ^ 1);
        if (threadIdx.x % 32 == 0) s.tile[f.tiles.stage].count = 0;
        bsri_mbarrier_arrive(bsri_smem_address(&s.tile_full[f.tiles.stage]));
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>sampled-wgmma: dense x dense at stored blocks by wgmma: multiplying, storing, kernel         */
/* ---------------------------------------------------------------------------------------------- */

/* Lane t of four has columns 2t and 2t + 1 of four groups of eight; after this it has the whole of group t. v: W words for each
   pair of columns. */
template <class V, int W> __device__ __forceinline__ void bsri_wgmma_quad(V (&v)[4 * W]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4 * W; i++) {
        if (i & W) continue;
        const V got = __shfl_xor_sync(~0u, odd ? v[i] : v[i + W], 1);
        if (odd) v[i] = got;
        else v[i + W] = got;
    }
#pragma unroll
    for (int i = 0; i < 2 * W; i++) {
        const V got = __shfl_xor_sync(~0u, high ? v[i] : v[i + 2 * W], 2);
        if (high) v[i] = got;
        else v[i + 2 * W] = got;
    }
}
/* Values of an item of the input, or null. */
__device__ __forceinline__ const char *bsri_sampled_input(const bsri_dev_sampled &p, int64_t item) {
    return p.has_input ? bsri_dev_matrix_item(&p.out_batch, item, &p.input).values : NULL;
}
/* Eight neighbours of a row of stored block `at`: plus input; to any type. */
__device__ __forceinline__ void bsri_sampled_add(const bsri_dev_sampled &p, const char *input, float (&v)[8], int64_t at, int row,
                                                 int col) {
    const int64_t from = at * p.i_strides[0] + row * p.i_strides[1] + col * p.i_strides[2];
    if (!input) return;
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] += (float)p.beta * bsri_dev_number<float>(input, p.input.dtype, from + i * p.i_strides[2]);
}
__device__ __forceinline__ void bsri_sampled_put(const bsri_dev_sampled &p, char *out, const float (&v)[8], int64_t to) {
#pragma unroll
    for (int i = 0; i < 8; i++) bsri_dev_store(out, p.out.dtype, to + i * p.o_strides[2], v[i]);
}
/* A warpgroup's sums to the stored blocks among blocks side by side [entry, entry + mine). */
__device__ __forceinline__ void bsri_wgmma_sampled_finish(const bsri_dev_wgmma_sampled &m, const bsri_wgmma_sampled_tile &tile,
                                                          const bsri_item &o, float (&d)[128], int row, int entry,
                                                          int mine) {
    const int block = 1 << m.bits, cols = mine << m.bits;
    const char *const input = bsri_sampled_input(m.p, tile.item);
#pragma unroll 1
    for (int c = 0; c < cols; c += 32) {
        const int n = c + threadIdx.x % 4 * 8;
#pragma unroll 1
        for (int h = 0; h < 2; h++) { /* once in the code */
            const int line = (row + 8 * h) >> m.bits, e = entry + (n >> m.bits);
            const uint32_t have = tile.have[line];
            float v[8];
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = (float)m.p.alpha * (h ? d[i / 2 * 4 + 2 + i % 2] : d[i / 2 * 4 + i % 2]);
            bsri_wgmma_quad<float, 2>(v);
            if (n < cols && (have >> e & 1)) {
                const uint32_t of = tile.at[line] + __popc(have & ((1u << e) - 1)), at = bsri_view_entry(m.view, of);
                const int y = ((row + 8 * h) & (block - 1)) + tile.top[line],
                          x = (n & (block - 1)) + ((int)(of - at * m.view.cols) << m.bits);
                bsri_sampled_add(m.p, input, v, at, y, x);
                bsri_sampled_put(m.p, o.values, v, at * m.p.o_strides[0] + y * m.p.o_strides[1] + x * m.p.o_strides[2]);
            }
        }
#pragma unroll
        for (int i = 0; i + 16 < 128; i++) d[i] = d[i + 16]; /* the next 32 columns come to the front */
    }
}
/* The same in the plain case: alpha only, pieces of 16 bytes of the operands' type. */
template <class T>
__device__ __forceinline__ void bsri_wgmma_sampled_store(const bsri_dev_wgmma_sampled &m, const bsri_wgmma_sampled_tile &tile,
                                                         const bsri_item &o, const float (&d)[128], int row, int entry,
                                                         int mine) {
    const int block = 1 << m.bits, first = threadIdx.x % 4 * 8, cols = mine << m.bits;
    const float alpha = (float)m.p.alpha;
    uint32_t have[2], at[2];
    uint16_t *out[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int line = (row + 8 * h) >> m.bits;
        have[h] = tile.have[line], at[h] = tile.at[line];
        out[h] = (uint16_t *)o.values + (((row + 8 * h) & (block - 1)) + tile.top[line]) * m.p.o_strides[1];
    }
#pragma unroll
    for (int c = 0; c < 256; c += 32) {
        if (c % 64 == 0 && c >= cols) break;
        const int n = first + c, e = entry + (n >> m.bits);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = bsri_pack<T>(alpha * d[c / 2 + i * 4 + 2 * h], alpha * d[c / 2 + i * 4 + 2 * h + 1]);
            bsri_wgmma_quad<uint32_t, 1>(v);
            const uint32_t of = at[h] + __popc(have[h] & ((1u << e) - 1)), stored = bsri_view_entry(m.view, of);
            if (n < cols && (have[h] >> e & 1))
                *(uint4 *)(out[h] + stored * m.p.o_strides[0] + ((of - stored * m.view.cols) << m.bits) + (n & (block - 1))) =
                    make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
}
/* One tile of a warpgroup: 64 rows, N columns. a, b: where its operands stand in a stage. */
template <class T, int N, int TA, int TB>
__device__ __forceinline__ void bsri_wgmma_sampled_mainloop(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                       bsri_sampled_pipe &ring, uint32_t a, uint32_t b, float (&sum)[128]) {
    const int steps = m.reduce * m.steps;
    const uint32_t full = bsri_smem_address(s.full), empty = bsri_smem_address(s.empty);
    const uint32_t a_step = (TA ? 2048 : 32) >> 4, b_step = (uint32_t)(TB ? m.b_kind >> 32 & 0x3fff : 1) * 2; /* of 16 bytes */
    float(&d)[N / 2] = (float(&)[N / 2]) sum;
    if (!steps) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) d[i] = 0.0f;
    }
#pragma unroll 1
    for (int i = 0; i < steps; i++, ring.advance()) { /* the first product is not added to what is there */
        const uint32_t at = ring.stage * ring.bytes;
        const uint64_t x = m.a_kind | (a + at) >> 4, y = m.b_kind | (b + at) >> 4;
        bsri_mbarrier_wait(full + 8 * ring.stage, ring.phase());
        bsri_wgmma_fence();
#pragma unroll
        for (int k = 0; k < BSRI_WSAMPLED_DEPTH / 16; k++)
            bsri_wgmma<T, N, TA, TB>::ss(d, x + k * a_step, y + k * b_step, k ? 1 : i);
        bsri_wgmma_commit();
        bsri_wgmma_wait<0>(); /* the other warpgroup fills the gap */
        if (threadIdx.x % 32 == 0) bsri_mbarrier_arrive(empty + 8 * ring.stage);
    }
}
/* What wgmma wants to know at compile time is decided around the loop; all else is there once. */
template <class T, int N>
__device__ __forceinline__ void bsri_wgmma_sampled_multiply(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                            bsri_sampled_pipe &ring, uint32_t a, uint32_t b, float (&sum)[128]) {
    if (__builtin_expect(!m.a_across, 1)) {
        if (m.b_across) bsri_wgmma_sampled_mainloop<T, N, 0, 1>(m, s, ring, a, b, sum);
        else bsri_wgmma_sampled_mainloop<T, N, 0, 0>(m, s, ring, a, b, sum);
    } else {
        if (m.b_across) bsri_wgmma_sampled_mainloop<T, N, 1, 1>(m, s, ring, a, b, sum);
        else bsri_wgmma_sampled_mainloop<T, N, 1, 0>(m, s, ring, a, b, sum);
    }
}
/* A warpgroup without columns in a tile gives its stages back. */
__device__ __forceinline__ void bsri_wgmma_sampled_pass(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                        bsri_sampled_pipe &ring) {
    for (int i = 0; i < m.reduce * m.steps; i++, ring.advance()) {
        bsri_mbarrier_wait(bsri_smem_address(&s.full[ring.stage]), ring.phase());
        __syncwarp();
        if (threadIdx.x % 32 == 0) bsri_mbarrier_arrive(bsri_smem_address(&s.empty[ring.stage]));
    }
}
/* The multiplying warps. entry, mine: blocks side by side. */
template <class T>
__device__ __forceinline__ void bsri_wgmma_sampled_consume(const bsri_dev_wgmma_sampled &m, bsri_wgmma_sampled_storage &s,
                                                         uint32_t base) {
    const int group = threadIdx.x / 128 - 1; /* warpgroup 0 fetches */
    bsri_sampled_pipe ring = {0, 0, 0, 0}, tiles = {0, 0, 2, 0};
    base = bsri_wgmma_desc_address(base); /* what is added to it stays within */
    for (;; tiles.advance()) {
        const bsri_wgmma_sampled_tile &tile = s.tile[tiles.stage];
        bsri_mbarrier_wait(bsri_smem_address(&s.tile_full[tiles.stage]), tiles.phase());
        const int count = tile.count, half = (count + 1) / 2, row = m.wide ? group * 64 : 0;
        const int entry = (group && !m.wide ? half : 0) << m.shift, mine = (m.wide  ? count
                                                                            : group ? count - half
                                                                                    : half)
                                                                           << m.shift;
        const uint32_t a = base + ((count << (m.bits + m.shift)) + row) * BSRI_WSAMPLED_DEPTH * 2;
        const uint32_t b = base + (entry << m.bits) * BSRI_WSAMPLED_DEPTH * 2;
        if (!count) return;
        bsri_sampled_pipe_cut(ring, bsri_wgmma_sampled_bytes(m, count));
        const int cols = mine << m.bits, line = row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        float sum[128]; /* only the first cols / 2 are used; if the others were set to zero, they would be set again after each
                           loop */
#pragma unroll
        for (int i = 0; i < 128; i++) asm volatile("" : "=f"(sum[i]));
        if (cols > 192) bsri_wgmma_sampled_multiply<T, 256>(m, s, ring, a, b, sum);
        else if (cols > 128) bsri_wgmma_sampled_multiply<T, 192>(m, s, ring, a, b, sum);
        else if (cols > 64) bsri_wgmma_sampled_multiply<T, 128>(m, s, ring, a, b, sum);
        else if (cols) bsri_wgmma_sampled_multiply<T, 64>(m, s, ring, a, b, sum);
        else bsri_wgmma_sampled_pass(m, s, ring);
        const bsri_item o = bsri_dev_matrix_item(&m.p.out_batch, tile.item, &m.p.out);
        if (m.plain) bsri_wgmma_sampled_store<T>(m, tile, o, sum, line, entry, mine);
        else bsri_wgmma_sampled_finish(m, tile, o, sum, line, entry, mine);
        bsri_mbarrier_arrive(bsri_smem_address(&s.tile_empty[tiles.stage])); /* each thread has read */
    }
}
#endif
/* bsri_sampled_wgmma: each CTA takes an equal part of the work, cut into tiles.
   Its tile is the choice of bsri_wgmma_choose_sampled() (>>cuda-plan-sampled).

   Threads: warpgroup 0 fetches (120 registers): its warps make the unions together, warps 0 to 2 load stages in turn, warp 3
   writes down tiles. Warpgroups 1 and 2 multiply (192 registers); they share a tile's entries, with m.wide its 128 rows.

   Shared memory:
     dynamic:  BSRI_WSAMPLED_RING bytes, cut into up to 16 stages of equal size, multiples of 1 KB; small tiles have more stages,
               and the ring is cut anew where their number changes. A stage is
       0       mat2: count x b_boxes boxes of b_box bytes, 64 products deep; an entry has one, or one for each 64 columns
       behind  mat1: 64 or 128 rows (a_boxes of a_box bytes). It stands behind, as wgmma may read up to 48 columns more
     static:   bsri_wgmma_sampled_storage

   barrier        count  arrives                                                waits                phase
   full[stage]    1      lane 0 of the warp that loads, expect_tx of all boxes  multiplying threads  stage's passes
   empty[stage]   8      lane 0 of each multiplying warp: products done         the warp that loads  passes + 1
   tile_full[2]   32     lanes of warp 3: tile written                          multiplying threads  round of the two
   tile_empty[2]  256    each multiplying thread: tile stored                   warp 3               round + 1
   bar.sync 1     128    fetching threads among themselves                      (bsri_producer_sync)
   Stages are not always as many, so a phase is how often this stage was passed, modulo 2 (ring.passed has a bit for each). Before
   the ring is cut anew all fetching warps wait for `empty` of all stages.

   Sums: as wgmma has them (see bsri_product_wgmma), of 64, 128, 192 or 256 columns. bsri_wgmma_quad() gives each lane eight
   neighbours of a row to store.

   Order: 1. The fetching warps find where the CTA's part begins: the group of block rows, and the entry there.
          2. For each group they make the union of its columns; its entries are shared out to CTAs by number, and cut into
             tiles.
          3. Warp 3 tells of a tile: which rows store which entry. Stage n is loaded by warp n % 3.
          4. Multiplying warps: wait for the tile, then for full stage by stage; wgmma; give the stage back.
          5. They store the blocks that exist, and give the tile back. A tile of no entries ends them. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, 1) bsri_sampled_wgmma(const __grid_constant__ bsri_dev_wgmma_sampled m BSRI_GATE) {
#ifdef BSRI_WGMMA_CODE
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_wgmma_sampled_storage s;
    const uint32_t base = bsri_smem_address(bsri_shared);
    bsri_wgmma_sampled_place place = {};
    bsri_pdl_launch_dependents();
    BSRI_ENTER;
    if (threadIdx.x < BSRI_PRODUCERS) { /* looks where it begins, while others make the barriers */
        bsri_pdl_wait();
        if (!m.batched)
            place = bsri_wgmma_sampled_begin(m, m.crow, bsri_wgmma_sampled_from(m, blockIdx.x),
                                             bsri_wgmma_sampled_from(m, blockIdx.x + 1));
    } else if (threadIdx.x < BSRI_PRODUCERS + BSRI_GROUP) {
        const int i = threadIdx.x - BSRI_PRODUCERS;
        bsri_mbarrier_init(bsri_smem_address(&s.full[i]), 1);
        bsri_mbarrier_init(bsri_smem_address(&s.empty[i]), 8);
        if (i < 2) {
            bsri_mbarrier_init(bsri_smem_address(&s.tile_full[i]), 32);
            bsri_mbarrier_init(bsri_smem_address(&s.tile_empty[i]), 256);
        }
        bsri_mbarrier_init_fence();
    } else if (threadIdx.x == 383) {
        bsri_tma_prefetch(&m.mat1), bsri_tma_prefetch(&m.mat2);
    }
    __syncthreads();
    bsri_pdl_wait();
    if (threadIdx.x < BSRI_PRODUCERS) {
        bsri_setmaxnreg_dec<120>();
        bsri_wgmma_sampled_produce<L::CONV>(m, s, place, base);
    } else {
        bsri_setmaxnreg_inc<192>();
        bsri_wgmma_sampled_consume<T>(m, s, base);
    }
#endif
}

/* The map of one operand, `others` x `inner` or the other way round in memory: `along` is 1 where its lines are products. */
static int bsri_wgmma_sampled_map(const bsr_context *ctx, bsri_tma_map *map, bsri_tensor_batch *batch, const bsr_dense *d,
                                  int64_t others, int64_t inner, int along, int wide, int pairs) {
    const int64_t unit = (int64_t)bsr_dtype_size(d->dtype), line = d->col_stride == 1 ? d->row_stride : d->col_stride;
    const int64_t size[2] = {along ? inner : others, along ? others : inner};
    const int32_t box[4] = {along ? BSRI_WSAMPLED_DEPTH : wide, along ? wide : BSRI_WSAMPLED_DEPTH, 1, 1};
    if (!bsri_tensor_batch_of(d->batch_dims, d->batch, d->batch_stride, batch)) return 0;
    const int64_t sizes[4] = {size[0], size[1], batch->size[0], batch->size[1]};
    const int64_t stride[3] = {line * unit, bsri_max(16, batch->stride[0] * unit), bsri_max(16, batch->stride[1] * unit)};
    return bsri_tensor_map(ctx, map, d->dtype, d->data, 4, sizes, stride, box, box[0] * (int)unit, pairs);
}
static int bsri_wgmma_sampled_maps(const bsr_context *ctx, const bsri_dev_sampled *p, bsri_dev_wgmma_sampled *m, int entry) {
    const int along1 = p->mat1.col_stride == 1, along2 = p->mat2.col_stride != 1;
    const int rows = m->wide && along1 ? 128 : 64, cols = along2 || entry < 64 ? entry : 64,
              lines = along2 ? 2 * BSRI_WSAMPLED_DEPTH : 2 * cols;
    m->a_boxes = m->wide && !along1 ? 2 : 1, m->a_box = rows * BSRI_WSAMPLED_DEPTH * 2;
    m->b_boxes = entry / cols, m->b_box = cols * BSRI_WSAMPLED_DEPTH * 2;
    m->a_kind = bsri_wgmma_desc_bits(along1 ? 2 * BSRI_WSAMPLED_DEPTH : 128, 0);
    m->b_kind = bsri_wgmma_desc_bits(lines, along2 ? 0 : BSRI_WSAMPLED_DEPTH * lines);
    if (m->conv.rank) /* all pixels, of which an item has a share */
        return bsri_wgmma_sampled_map(ctx, &m->mat1, &m->batch1, &p->mat1, p->mat1.rows, m->pixels, along1, rows, 0) &&
               bsri_image_map(ctx, &m->mat2, p->mat2.dtype, &m->conv, cols, BSRI_WSAMPLED_DEPTH, lines);
    /* Pairs of lines only where both operands' lines run along the products: else they are slower (note N22). */
    return bsri_wgmma_sampled_map(ctx, &m->mat1, &m->batch1, &p->mat1, p->mat1.rows, p->mat1.cols, along1, rows,
                                  along1 && along2) &&
           bsri_wgmma_sampled_map(ctx, &m->mat2, &m->batch2, &p->mat2, p->mat2.cols, p->mat2.rows, along2, cols,
                                  along1 && along2);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conv-simt: convolutions and their gradients, any dtype, layout, block size                   */
/* ---------------------------------------------------------------------------------------------- */

/* Where something stands in the image that is read: an element, and a place on each axis. A pixel of the result and what it is
   multiplied with have one each, which add up. */
struct bsri_conv_spot {
    int64_t at, q[3];
};
/* Pixel n of a grid: its image, its place in the grid. */
struct bsri_conv_pixel {
    int64_t image, q[3];
    __device__ __forceinline__ bsri_conv_pixel(const bsri_pixel_grid &g, int64_t n) {
#pragma unroll
        for (int a = 2; a >= 0; a--) {
            const int64_t rest = n / g.count[a];
            q[a] = n - rest * g.count[a], n = rest;
        }
        image = n;
    }
};
__device__ __forceinline__ bsri_conv_spot bsri_conv_spot_of(const bsri_image &x, int64_t at, const int64_t (&q)[3]) {
    bsri_conv_spot s;
    s.at = at;
#pragma unroll
    for (int a = 0; a < 3; a++) s.q[a] = q[a], s.at += q[a] * x.stride[a];
    return s;
}
/* From where a pixel's taps lead on; where a tap leads, to channel c. */
__device__ __forceinline__ bsri_conv_spot bsri_conv_seen(const bsri_conv_geometry &e, const bsri_conv_pixel &p) {
    int64_t q[3];
#pragma unroll
    for (int a = 0; a < 3; a++) q[a] = p.q[a] * (e.turned ? 1 : e.taps.stride[a]);
    return bsri_conv_spot_of(e.x, p.image * e.x.step, q);
}
__device__ __forceinline__ bsri_conv_spot bsri_conv_tap(const bsri_conv_geometry &e, const bsri_pixel_grid &g, int64_t tap,
                                                        int64_t c) {
    int64_t offset[3];
    bsri_conv_offset(&e, &g, tap, offset);
    return bsri_conv_spot_of(e.x, c * e.x.channel, offset);
}
template <class A>
__device__ __forceinline__ A bsri_conv_number(const bsri_image &x, const bsri_conv_spot &a, const bsri_conv_spot &b) {
#pragma unroll
    for (int i = 0; i < 3; i++)
        if ((uint64_t)(a.q[i] + b.q[i]) >= (uint64_t)x.size[i]) return A(0);
    return bsri_dev_number<A>(x.data, x.dtype, a.at + b.at);
}

/* A tile: pixels of a grid, rows of a block row of w or, in a data gradient, channels of a group. */
struct bsri_conv_tile_at {
    bsri_pixel_grid grid;
    int64_t pixel, cols, row, rows, group;
    int64_t from, to, all; /* stored blocks that may add to it, places to look for them at */
    __device__ __forceinline__ bsri_conv_tile_at(const bsri_dev_conv &m, int64_t work, int tile_rows, int tile_cols) {
        const bsri_conv_geometry &e = m.geo;
        const bsr_matrix &w = m.of.a;
        const int64_t unit = work % m.units, line = unit / m.parts, first = unit % m.parts * tile_rows, br = w.block_rows;
        work /= m.units, pixel = work % m.panels * tile_cols;
        bsri_conv_grid(&e, work / m.panels, &grid);
        cols = bsri_min(tile_cols, grid.all - pixel), from = to = all = 0, group = e.turned ? line : 0;
        row = e.turned ? first : line * br + first;
        rows = bsri_min(tile_rows, e.turned ? e.channels - first : bsri_min(br - first, e.y.channels - row));
        if (cols <= 0 || rows <= 0 || !m.any) return;
        const int64_t f0 = e.turned ? group * e.filters : line * br, f1 = e.turned ? f0 + e.filters : f0 + 1;
        if (f0 == f1) return;
        from = bsri_index(w.crow_indices, w.index_dtype, f0 / br);
        to = bsri_index(w.crow_indices, w.index_dtype, (f1 - 1) / br + 1);
        /* of a block: the taps that it may have, or the groups that the rows belong to */
        all = (to - from) * (e.turned ? (w.block_cols + e.channels - 2) / e.channels + 1
                                      : (row + rows - 1) / e.filters - row / e.filters + 1);
    }
};
/* What a stored block adds to a tile: `count` products, of its columns or, in a data gradient, its rows. */
struct bsri_conv_share {
    int64_t value, first, tap; /* the first product's weight of the tile's row 0; first column of w, or filter; tap, or group */
    int32_t low, high;         /* rows of the tile */
};
__device__ __forceinline__ int64_t bsri_conv_look_forward(const bsri_dev_conv &m, const bsri_conv_tile_at &t, int64_t n,
                                                          bsri_conv_share &p) {
    const bsri_conv_geometry &e = m.geo;
    const bsr_matrix &w = m.of.a;
    const int64_t turn = n / (t.to - t.from), entry = t.from + n - turn * (t.to - t.from);
    p.tap = t.row / e.filters + turn, p.first = bsri_index(w.col_indices, w.index_dtype, entry) * w.block_cols;
    p.low = (int32_t)(bsri_max(t.row, p.tap * e.filters) - t.row);
    p.high = (int32_t)(bsri_min(t.row + t.rows, (p.tap + 1) * e.filters) - t.row);
    p.value = entry * m.ws[0] + t.row % w.block_rows * m.ws[1];
    return bsri_max(0, bsri_min(w.block_cols, e.inner - p.first));
}
__device__ __forceinline__ int64_t bsri_conv_look_back(const bsri_dev_conv &m, const bsri_conv_tile_at &t, int64_t n,
                                                       bsri_conv_share &p) {
    const bsri_conv_geometry &e = m.geo;
    const bsr_matrix &w = m.of.a;
    const int64_t entry = t.from + n % (t.to - t.from), k = bsri_index(w.col_indices, w.index_dtype, entry) * w.block_cols;
    const int64_t end = bsri_min(k + w.block_cols, e.inner);
    int64_t offset[3];
    p.tap = k / e.channels + n / (t.to - t.from);
    const int64_t c = p.tap * e.channels, low = bsri_max(bsri_max(k - c, 0), t.row) - t.row;
    const int64_t high = bsri_min(bsri_min(end - c, e.channels), t.row + t.rows) - t.row;
    if (low >= high || !bsri_conv_offset(&e, &t.grid, p.tap, offset)) return 0;
    const int64_t line = bsri_dev_row_of(w.crow_indices, w.index_dtype, bsri_block_rows(&w), entry) * w.block_rows;
    p.first = bsri_max(line, t.group * e.filters), p.low = (int32_t)low, p.high = (int32_t)high;
    p.value = entry * m.ws[0] + (p.first - line) * m.ws[1] + (c + t.row - k) * m.ws[2];
    return bsri_min(line + w.block_rows, (t.group + 1) * e.filters) - p.first;
}
template <class L> struct bsri_conv_simt_shared {
    static constexpr int KC = bsri_simt<L>::KC;
    typename bsri_simt<L>::shared tile;
    bsri_conv_spot pixel[L::COLS], product[KC];
    int64_t value[KC];        /* weight of the tile's row 0 */
    int32_t low[KC], high[KC]; /* rows that a product belongs to */
    bsri_conv_share piece[L::THREADS];
    int32_t start[L::THREADS + 1], sum[L::THREADS / 32]; /* products before each piece, of each warp's pieces */
};
/* All threads: products before each thread's piece. */
template <class L> __device__ __forceinline__ void bsri_conv_count(bsri_conv_simt_shared<L> &s, int32_t mine) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t sum = mine, before = 0;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int32_t left = __shfl_up_sync(~0u, sum, i);
        if (lane >= i) sum += left;
    }
    if (lane == 31) s.sum[warp] = sum;
    __syncthreads();
    for (int i = 0; i < warp; i++) before += s.sum[i];
    s.start[threadIdx.x + 1] = before + sum;
    if (threadIdx.x == 0) s.start[0] = 0;
    __syncthreads();
}
/* Products [k0, k0 + kc) of the pieces at hand. Each is added to its own rows only: others may meet Inf or NaN there. */
template <class L>
__device__ __forceinline__ void bsri_conv_multiply(const bsri_dev_conv &m, bsri_conv_simt_shared<L> &s,
                                                   const bsri_conv_tile_at &t, int32_t k0, int kc,
                                                   typename L::number (&sum)[L::RM][L::RN]) {
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    constexpr int TM = Tile::TM, TN = Tile::TN, KC = Tile::KC, THREADS = L::THREADS;
    const bsri_conv_geometry &e = m.geo;
    const int tx = threadIdx.x % Tile::TX, ty = threadIdx.x / Tile::TX;
    const int64_t am = m.ws[e.turned ? 2 : 1], ak = m.ws[e.turned ? 1 : 2];
    if ((int)threadIdx.x < kc) {
        const int32_t own = k0 + (int32_t)threadIdx.x;
        int low = 0, high = THREADS;
        while (high - low > 1) {
            const int mid = (low + high) / 2;
            if (s.start[mid] <= own) low = mid;
            else high = mid;
        }
        const bsri_conv_share &p = s.piece[low];
        const int64_t i = p.first + own - s.start[low], tap = e.turned ? p.tap : i / e.channels;
        s.product[threadIdx.x] = bsri_conv_tap(e, t.grid, tap, e.turned ? i : p.tap * e.channels + i - tap * e.channels);
        s.value[threadIdx.x] = p.value + (own - s.start[low]) * ak;
        s.low[threadIdx.x] = p.low, s.high[threadIdx.x] = p.high;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TM * KC; i += THREADS) {
        const int r = ak == 1 ? i / KC : i % TM, k = ak == 1 ? i % KC : i / TM;
        const bool in = k < kc && r >= s.low[k] && r < s.high[k];
        s.tile.a[k][r] = in ? bsri_dev_number<A>(m.of.a.values, m.of.a.dtype, s.value[k] + r * am) : A(0);
    }
    for (int i = threadIdx.x; i < TN * KC; i += THREADS) {
        const int n = e.x.channel == 1 ? i / KC : i % TN, k = e.x.channel == 1 ? i % KC : i / TN;
        s.tile.b[k][n] = n < t.cols && k < kc ? bsri_conv_number<A>(e.x, s.pixel[n], s.product[k]) : A(0);
    }
    __syncthreads();
    for (int k = 0; k < kc; k++) {
        const int low = s.low[k] - ty * Tile::RM, high = s.high[k] - ty * Tile::RM;
        A y[Tile::RN];
#pragma unroll
        for (int j = 0; j < Tile::RN; j++) y[j] = s.tile.b[k][tx + j * Tile::TX];
#pragma unroll
        for (int i = 0; i < Tile::RM; i++) {
            if (i < low || i >= high) continue;
            const A x = s.tile.a[k][ty * Tile::RM + i];
#pragma unroll
            for (int j = 0; j < Tile::RN; j++) sum[i][j] += x * y[j];
        }
    }
    __syncthreads();
}
/* Stores a tile; a thread has pixels of one column. */
template <class G, class L>
static __device__ void bsri_conv_simt_finish(const bsri_dev_conv &m, const bsri_conv_simt_shared<L> &s,
                                             const bsri_conv_tile_at &t, double alpha, double beta) {
    typedef bsri_simt<L> Tile;
    const bsri_conv_geometry &e = m.geo;
    const int n = threadIdx.x % Tile::TN;
    if (n >= t.cols) return;
    const bsri_conv_pixel p(t.grid, t.pixel + n);
    int64_t at[3];
#pragma unroll
    for (int a = 0; a < 3; a++) at[a] = t.grid.first[a] + p.q[a] * t.grid.step[a];
    const bsri_dev_writer<G> finish(m.of, alpha, beta, (p.image * e.y.size[0] + at[0]) * e.y.size[1] + at[1]);
    const int64_t row = t.row + (e.turned ? t.group * e.channels : 0);
    for (int r = threadIdx.x / Tile::TN; r < t.rows; r += L::THREADS / Tile::TN)
        finish(Tile::template at<G>(s.tile, r, n), row + r, at[2]);
}
/* bsri_conv_simt: a CTA takes tiles of out. Threads look for blocks that add to a tile, a piece each, and then all multiply the
   products of these pieces, 16 at a time: weights and pixels come to shared memory, each by its address. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, sizeof(typename L::number) == 8 ? 1 : 2)
    bsri_conv_simt(const __grid_constant__ bsri_dev_conv m BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    typedef typename L::real F;
    __shared__ bsri_conv_simt_shared<L> s;
    const bsri_dev_product &p = m.of;
    const double alpha = p.alpha_ptr ? *p.alpha_ptr : p.alpha, beta = p.beta_ptr ? *p.beta_ptr : p.beta;
    const int64_t total = m.phases * m.panels * m.units;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const bsri_conv_tile_at t(m, work, Tile::TM, Tile::TN);
        A sum[Tile::RM][Tile::RN] = {};
        if (t.cols <= 0 || t.rows <= 0) continue;
        for (int n = threadIdx.x; n < t.cols; n += L::THREADS)
            s.pixel[n] = bsri_conv_seen(m.geo, bsri_conv_pixel(t.grid, t.pixel + n));
        for (int64_t at = 0; at < t.all && alpha != 0.0; at += L::THREADS) {
            const int64_t own = at + threadIdx.x;
            int64_t n = 0;
            if (own < t.all)
                n = m.geo.turned ? bsri_conv_look_back(m, t, own, s.piece[threadIdx.x])
                                 : bsri_conv_look_forward(m, t, own, s.piece[threadIdx.x]);
            bsri_conv_count(s, (int32_t)n);
            const int32_t count = s.start[L::THREADS];
            for (int32_t k = 0; k < count; k += Tile::KC)
                bsri_conv_multiply(m, s, t, k, (int)bsri_min(Tile::KC, count - k), sum);
            __syncthreads();
        }
        Tile::spread(s.tile, sum);
        if (Tile::real(p.out.dtype)) bsri_conv_simt_finish<float>(m, s, t, alpha, beta);
        else bsri_conv_simt_finish<F>(m, s, t, alpha, beta);
        __syncthreads();
    }
}

/* --- weight gradients: columns of a stored block are taps and channels, its products pixels --- */
template <class L> struct bsri_conv_weights_shared {
    typename bsri_simt<L>::shared tile;
    bsri_conv_spot column[L::COLS], pixel[L::THREADS];
    int64_t dy[L::THREADS]; /* where channel 0 of these pixels stands there */
};
/* Adds pixels [k0, k0 + kc) of those at hand to rows [low, high) of a tile. */
template <class L>
__device__ __forceinline__ void bsri_conv_weights_multiply(const bsri_conv_geometry &e, bsri_conv_weights_shared<L> &s,
                                                           int64_t row, int low, int high, int cols, int k0, int kc,
                                                           typename L::number (&sum)[L::RM][L::RN]) {
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    constexpr int TM = Tile::TM, TN = Tile::TN, KC = Tile::KC, THREADS = L::THREADS;
    const int tx = threadIdx.x % Tile::TX, ty = threadIdx.x / Tile::TX;
    for (int i = threadIdx.x; i < TM * KC; i += THREADS) {
        const int r = e.y.channel == 1 ? i % TM : i / KC, k = e.y.channel == 1 ? i / TM : i % KC;
        const bool in = k < kc && r >= low && r < high;
        s.tile.a[k][r] = in ? bsri_dev_number<A>(e.y.data, e.y.dtype, s.dy[k0 + k] + (row + r) * e.y.channel) : A(0);
    }
    for (int i = threadIdx.x; i < TN * KC; i += THREADS) {
        const int n = e.x.channel == 1 ? i % TN : i / KC, k = e.x.channel == 1 ? i / TN : i % KC;
        s.tile.b[k][n] = n < cols && k < kc ? bsri_conv_number<A>(e.x, s.pixel[k0 + k], s.column[n]) : A(0);
    }
    __syncthreads();
    for (int k = 0; k < kc; k++) {
        A y[Tile::RN];
#pragma unroll
        for (int j = 0; j < Tile::RN; j++) y[j] = s.tile.b[k][tx + j * Tile::TX];
#pragma unroll
        for (int i = 0; i < Tile::RM; i++) {
            if (ty * Tile::RM + i < low || ty * Tile::RM + i >= high) continue;
            const A x = s.tile.a[k][ty * Tile::RM + i];
#pragma unroll
            for (int j = 0; j < Tile::RN; j++)
                if (tx + j * Tile::TX < cols) sum[i][j] += x * y[j];
        }
    }
    __syncthreads();
}
/* The part of a block from (row, col) of w on, rows of which one group after another adds up. */
template <class L>
__device__ __forceinline__ void bsri_conv_weights_sum(const bsri_dev_conv_weights &m, bsri_conv_weights_shared<L> &s, int64_t row,
                                                      int64_t rows, int64_t col, int64_t cols,
                                                      typename L::number (&sum)[L::RM][L::RN]) {
    constexpr int KC = bsri_simt<L>::KC;
    const bsri_conv_geometry &e = m.geo;
    bsri_pixel_grid grid;
    bsri_conv_grid(&e, 0, &grid);
    rows = bsri_min(rows, e.y.channels - row), cols = bsri_min(cols, e.inner - col);
    for (int64_t r = row, end; r < row + rows && cols > 0; r = end) {
        const int64_t group = r / e.filters;
        end = bsri_min(row + rows, (group + 1) * e.filters);
        for (int n = threadIdx.x; n < cols; n += L::THREADS) {
            const int64_t tap = (col + n) / e.channels;
            s.column[n] = bsri_conv_tap(e, grid, tap, group * e.channels + col + n - tap * e.channels);
        }
        for (int64_t at = 0; at < m.pixels; at += L::THREADS) {
            const int some = (int)bsri_min(L::THREADS, m.pixels - at);
            if ((int)threadIdx.x < some) {
                const bsri_conv_pixel p(grid, at + threadIdx.x);
                s.pixel[threadIdx.x] = bsri_conv_seen(e, p);
                s.dy[threadIdx.x] = bsri_conv_spot_of(e.y, p.image * e.y.step, p.q).at;
            }
            __syncthreads();
            for (int k = 0; k < some; k += KC)
                bsri_conv_weights_multiply(e, s, row, (int)(r - row), (int)(end - row), (int)cols, k, min(KC, some - k), sum);
        }
    }
}
template <class L>
__global__ void __launch_bounds__(L::THREADS, sizeof(typename L::number) == 8 ? 1 : 2)
    bsri_conv_weights_simt(const __grid_constant__ bsri_dev_conv_weights m BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_simt<L> Tile;
    typedef typename L::number A;
    typedef typename L::real F;
    __shared__ bsri_conv_weights_shared<L> s;
    const bsri_dev_sampled &p = m.of;
    const int64_t br = p.out.block_rows, bc = p.out.block_cols, rows_in = bsri_block_rows(&p.out);
    const int64_t total = p.out.nnz * p.subs * p.panels;
    const int dt = p.out.index_dtype;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t col = work % p.panels * Tile::TN, row = work / p.panels % p.subs * Tile::TM, at = work / p.panels / p.subs;
        const int64_t rows = bsri_min(Tile::TM, br - row), cols = bsri_min(Tile::TN, bc - col);
        A sum[Tile::RM][Tile::RN] = {};
        if (p.alpha != 0.0)
            bsri_conv_weights_sum(m, s, bsri_dev_row_of(p.out.crow_indices, dt, rows_in, at) * br + row, rows,
                                  bsri_index(p.out.col_indices, dt, at) * bc + col, cols, sum);
        Tile::spread(s.tile, sum);
        if (Tile::real(p.out.dtype)) bsri_simt_finish_block<float, Tile>(p, s.tile, 0, at, row, col, (int)rows, (int)cols);
        else bsri_simt_finish_block<F, Tile>(p, s.tile, 0, at, row, col, (int)rows, (int)cols);
        __syncthreads();
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conv-addresses: pixels, taps and epilogues by 32 bits; lists of data gradients               */
/* ---------------------------------------------------------------------------------------------- */

/* A place in an image by 32 bits: pieces of 16 bytes to it, and where it is on each axis. As bsri_conv_spot, pixels and taps add
   up; what is no pixel stands so far beside the image that no tap leads back. */
__device__ __forceinline__ int4 bsri_conv_place(const bsri_dev_pieces &x, int32_t image, const int32_t (&q)[3]) {
    return make_int4(image * x.step[0] + q[0] * x.step[1] + q[1] * x.step[2] + q[2] * x.step[3], q[0], q[1], q[2]);
}
__device__ __forceinline__ bool bsri_conv_is_inside(const bsri_dev_pieces &x, const int4 &a, const int4 &b) {
    return (uint32_t)(a.y + b.y) < (uint32_t)x.size[0] && (uint32_t)(a.z + b.z) < (uint32_t)x.size[1] &&
           (uint32_t)(a.w + b.w) < (uint32_t)x.size[2];
}
/* Pixel n of a grid, in 32 bits: its image and place. */
__device__ __forceinline__ int32_t bsri_conv_split(const bsri_pixel_grid &g, uint32_t n, int32_t (&q)[3]) {
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        const uint32_t rest = n / (uint32_t)g.count[a];
        q[a] = (int32_t)(n - rest * (uint32_t)g.count[a]), n = rest;
    }
    return (int32_t)n;
}
__device__ __forceinline__ int4 bsri_conv_see_from(const bsri_conv_geometry &e, const bsri_dev_pieces &x, int32_t image,
                                                   const int32_t (&q)[3]) {
    int32_t at[3];
#pragma unroll
    for (int a = 0; a < 3; a++) at[a] = q[a] * (e.turned ? 1 : (int32_t)e.taps.stride[a]);
    return bsri_conv_place(x, image, at);
}
__device__ __forceinline__ int4 bsri_conv_lead(const bsri_dev_pieces &x, const int64_t (&offset)[3]) {
    const int32_t q[3] = {(int32_t)offset[0], (int32_t)offset[1], (int32_t)offset[2]};
    return bsri_conv_place(x, 0, q);
}
/* Eight sums of out from channel `row` on, of which n are there: what the epilogue adds. at: image, axes. */
__device__ __forceinline__ void bsri_conv_eight(const bsri_dev_conv_mma &m, float alpha, float beta, float (&v)[8],
                                                const int4 &at, int64_t row, int n) {
    const bsri_dev_product &p = m.of.of;
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= alpha;
#pragma unroll 1
    for (int k = 0; k < 5; k++) {
        const bsri_dev_channels &o = m.operand[k];
        const bsri_dev_operand to = {o.data, 0, 0, o.dtype, 0};
        const int64_t from = at.x * o.step[0] + at.y * o.step[1] + at.z * o.step[2] + at.w * o.step[3] + row * o.rs;
        if (!o.data || (k == 2 && beta == 0.0f)) continue;
        if (k < 4) {
            bsri_dev_load8(x, to, from, o.rs, n);
            const float times = k == 2 ? beta : 1.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = k < 2 ? __fmul_rn(v[i], x[i]) : __fmaf_rn(times, x[i], v[i]);
            continue;
        }
        if (bsri_last_step(&p) < 2) {
            bsri_dev_activate(v, p.activation);
        } else {
            bsr_position place;
            place.batch = ((int64_t)at.x * m.of.geo.y.size[0] + at.y) * m.of.geo.y.size[1] + at.z, place.head = 0;
            place.col = at.w;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                place.row = row + i;
                if (i < n) v[i] = bsri_dev_last(p, v[i], place);
            }
        }
        bsri_dev_store8(to, from, o.rs, n, v);
    }
}

/* The first entry of [at, end) whose row of blocks is `row` or a later one. */
__device__ __forceinline__ int32_t bsri_conv_first_of(const void *rows, int dt, int32_t at, int32_t end, int32_t row) {
    while (at < end) {
        const int32_t mid = (at + end) / 2;
        if (bsri_dev_index(rows, dt, mid) < row) at = mid + 1;
        else end = mid;
    }
    return at;
}
/* bsri_conv_turn: a CTA has a line. */
struct bsri_conv_turn_storage {
    int32_t begin[BSRI_CONV_TAPS], start[BSRI_CONV_TAPS + 1], warp[8];
};
/* Where the entries of a line of the index that are a group's stand. */
__device__ __forceinline__ int2 bsri_conv_turn_range(const bsri_dev_conv_turn &m, int32_t line, int32_t group) {
    int32_t at = bsri_dev_index(m.ccol, m.dt, line), end = bsri_dev_index(m.ccol, m.dt, line + 1);
    if (m.groups > 1) {
        at = bsri_conv_first_of(m.row, m.dt, at, end, group * m.rows);
        end = bsri_conv_first_of(m.row, m.dt, at, end, (group + 1) * m.rows);
    }
    return make_int2(at, end);
}
__device__ __forceinline__ int32_t bsri_conv_turn_sum(bsri_conv_turn_storage &s, int32_t mine) {
    const int lane = threadIdx.x % 32;
    int32_t all = 0;
#pragma unroll
    for (int i = 16; i; i /= 2) mine += __shfl_xor_sync(~0u, mine, i);
    if (lane == 0) s.warp[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int i = 0; i < 8; i++) all += s.warp[i];
    return all;
}
__device__ __forceinline__ void bsri_dev_put_index(void *array, int dt, int64_t i, int32_t x) {
    if (dt == BSR_I64) ((int64_t *)array)[i] = x;
    else ((int32_t *)array)[i] = x;
}
static __global__ void __launch_bounds__(256) bsri_conv_turn(const __grid_constant__ bsri_dev_conv_turn m BSRI_GATE) {
    __shared__ bsri_conv_turn_storage s;
    bsri_pdl_launch_dependents();
    BSRI_ENTER;
    bsri_pdl_wait();
    for (int32_t line = blockIdx.x; line < m.groups * m.per_tap; line += gridDim.x) {
        const int32_t group = line / m.per_tap, own = line - group * m.per_tap;
        int32_t before = 0; /* entries of this group's lines before this one */
        __syncthreads();
        for (int i = threadIdx.x; i < m.taps * own; i += 256) {
            const int2 r = bsri_conv_turn_range(m, i / own * m.per_tap + i % own, group);
            before += r.y - r.x;
        }
        before = bsri_conv_turn_sum(s, before) + bsri_dev_index(m.crow, m.dt, group * m.rows);
        for (int t = threadIdx.x; t < m.taps; t += 256) {
            const int2 r = bsri_conv_turn_range(m, (m.taps - 1 - t) * m.per_tap + own, group);
            s.begin[t] = r.x, s.start[t + 1] = r.y - r.x;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            s.start[0] = 0;
            for (int t = 0; t < m.taps; t++) s.start[t + 1] += s.start[t];
        }
        __syncthreads();
        const int32_t count = s.start[m.taps];
        if (threadIdx.x == 0) bsri_dev_put_index(m.ptr, m.dt, line, before);
        if (threadIdx.x == 0 && line + 1 == m.groups * m.per_tap) bsri_dev_put_index(m.ptr, m.dt, line + 1, before + count);
        for (int i = threadIdx.x; i < count; i += 256) {
            int low = 0, high = m.taps;
            while (high - low > 1) {
                const int mid = (low + high) / 2;
                if (s.start[mid] <= i) low = mid;
                else high = mid;
            }
            const int32_t from = s.begin[low] + i - s.start[low];
            bsri_dev_put_index(m.col, m.dt, before + i, low * m.rows + bsri_dev_index(m.row, m.dt, from) - group * m.rows);
            bsri_dev_put_index(m.at, m.dt, before + i, bsri_dev_index(m.position, m.dt, from));
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conv-alone: depthwise convolutions and their data gradients                                  */
/* ---------------------------------------------------------------------------------------------- */

/* Eight channels of a pixel. */
template <class T> __device__ __forceinline__ void bsri_conv_alone_load(float (&x)[8], const char *from) {
    if constexpr (T::BYTES == 2) {
        const uint4 q = *(const uint4 *)from;
        const uint32_t all[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float v[2];
            bsri_dev_unpack(v, all[i], T::DTYPE);
            x[2 * i] = v[0], x[2 * i + 1] = v[1];
        }
    } else {
        const float4 v = ((const float4 *)from)[0], w = ((const float4 *)from)[1];
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w, x[4] = w.x, x[5] = w.y, x[6] = w.z, x[7] = w.w;
    }
}
struct bsri_conv_alone_storage {
    bsri_pixel_grid grid;
    int4 tap[BSRI_CONV_TAPS]; /* those that the grid has: where each leads, */
    int32_t id[BSRI_CONV_TAPS]; /* which it is */
    int32_t taps;
};
/* Weights of `channels` from the first one on, a line for each tap; which of eight are there, a word for each tap and eight. */
__device__ __forceinline__ void bsri_conv_alone_weights(const bsri_dev_conv_alone &m, float *w, uint32_t *has, int64_t first,
                                                        int channels) {
    const bsri_dev_conv &c = m.c.of;
    const bsr_matrix &a = c.of.a;
    const int taps = (int)c.geo.taps.all, dt = a.index_dtype, line = m.vectors * 8;
    for (int i = threadIdx.x; i < taps * line; i += blockDim.x) w[i] = 0.0f;
    for (int i = threadIdx.x; i < taps * m.vectors; i += blockDim.x) has[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < channels; i += blockDim.x) {
        const int64_t row = (first + i) / a.block_rows, inside = first + i - row * a.block_rows;
        const int64_t end = bsri_index(a.crow_indices, dt, row + 1);
        for (int64_t p = bsri_index(a.crow_indices, dt, row); p < end; p++) {
            const int64_t k = bsri_index(a.col_indices, dt, p) * a.block_cols, some = bsri_min(a.block_cols, taps - k);
            for (int64_t j = 0; j < some; j++) {
                w[(k + j) * line + i] +=
                    bsri_dev_number<float>(a.values, a.dtype, p * c.ws[0] + inside * c.ws[1] + j * c.ws[2]);
                atomicOr(&has[(k + j) * m.vectors + i / 8], 1u << i % 8);
            }
        }
    }
}
/* bsri_conv_alone: a CTA has vectors eights of channels and takes runs of pixels, vectors threads each.

   Shared memory:
     dynamic:  weights of all taps in f32, then which are there
     static:   bsri_conv_alone_storage */
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS) bsri_conv_alone(const __grid_constant__ bsri_dev_conv_alone m BSRI_GATE) {
    BSRI_ENTER;
    typedef typename L::type T;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_conv_alone_storage s;
    constexpr int PIXELS = BSRI_ALONE_PIXELS;
    const bsri_dev_conv &c = m.c.of;
    const bsri_conv_geometry &e = c.geo;
    const bsri_dev_pieces &x = m.c.x;
    const float alpha = (float)(c.of.alpha_ptr ? *c.of.alpha_ptr : c.of.alpha);
    const float beta = (float)(c.of.beta_ptr ? *c.of.beta_ptr : c.of.beta);
    const int taps = (int)e.taps.all, slots = (int)blockDim.x / m.vectors, slot = (int)threadIdx.x / m.vectors;
    float *const w = (float *)bsri_shared;
    uint32_t *const has = (uint32_t *)(w + taps * m.vectors * 8);
    for (int32_t work = blockIdx.x; work < m.chunks * m.teams * (int32_t)c.phases; work += gridDim.x) {
        const int32_t chunk = work % m.chunks, team = work / m.chunks % m.teams;
        const int64_t first = (int64_t)chunk * m.vectors * 8, channels = bsri_min(m.vectors * 8, e.y.channels - first);
        const int own = (int)threadIdx.x % m.vectors; /* eight of the chunk */
        __syncthreads();
        if (threadIdx.x == 0) bsri_conv_grid(&e, work / m.chunks / m.teams, &s.grid);
        bsri_conv_alone_weights(m, w, has, first, c.any && alpha != 0.0f ? (int)channels : 0);
        __syncthreads();
        for (int t = threadIdx.x; t < taps; t += blockDim.x) {
            int64_t offset[3];
            s.id[t] = bsri_conv_offset(&e, &s.grid, t, offset), s.tap[t] = bsri_conv_lead(x, offset);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            s.taps = 0;
            for (int t = 0; t < taps; t++)
                if (s.id[t]) s.tap[s.taps] = s.tap[t], s.id[s.taps++] = t;
        }
        __syncthreads();
        const int32_t line_runs = (int32_t)((s.grid.count[2] + PIXELS - 1) / PIXELS);
        const int64_t runs = s.grid.images * s.grid.count[0] * s.grid.count[1] * line_runs;
        for (int64_t run = (int64_t)team * slots + slot; run < runs && slot < slots && own * 8 < channels;
             run += (int64_t)m.teams * slots) {
            const uint32_t line = (uint32_t)run / (uint32_t)line_runs, col = ((uint32_t)run - line * line_runs) * PIXELS;
            const int32_t see = e.turned ? 1 : (int32_t)e.taps.stride[2];
            int32_t q[3];
            const int32_t image = bsri_conv_split(s.grid, line * (uint32_t)s.grid.count[2] + col, q);
            const int4 at = bsri_conv_see_from(e, x, image, q);
            const char *const from = x.data + (first + own * 8) * T::BYTES;
            float sum[PIXELS][8] = {};
            for (int t = 0; t < s.taps; t++) {
                const int4 lead = s.tap[t];
                const uint32_t there = has[s.id[t] * m.vectors + own];
                if (!there || (uint32_t)(at.y + lead.y) >= (uint32_t)x.size[0] ||
                    (uint32_t)(at.z + lead.z) >= (uint32_t)x.size[1])
                    continue;
                const float4 *const by = (const float4 *)(w + (s.id[t] * m.vectors + own) * 8);
                const float4 w0 = by[0], w1 = by[1];
                const float weight[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
                const char *const place = from + (int64_t)(at.x + lead.x) * 16;
#pragma unroll
                for (int j = 0; j < PIXELS; j++) {
                    float v[8] = {};
                    if ((uint32_t)(at.w + lead.w + j * see) < (uint32_t)x.size[2])
                        bsri_conv_alone_load<T>(v, place + (int64_t)j * see * x.step[3] * 16);
                    if (there == 255) {
#pragma unroll
                        for (int i = 0; i < 8; i++) sum[j][i] = fmaf(weight[i], v[i], sum[j][i]);
                    } else { /* what is not stored does not meet Inf or NaN */
#pragma unroll
                        for (int i = 0; i < 8; i++) sum[j][i] = there >> i & 1 ? fmaf(weight[i], v[i], sum[j][i]) : sum[j][i];
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < PIXELS; j++) {
                const int32_t to = (int32_t)(s.grid.first[2] + (q[2] + j) * s.grid.step[2]);
                if (q[2] + j < s.grid.count[2])
                    bsri_conv_eight(m.c, alpha, beta, sum[j],
                                    make_int4(image, (int32_t)(s.grid.first[0] + q[0] * s.grid.step[0]),
                                              (int32_t)(s.grid.first[1] + q[1] * s.grid.step[1]), to),
                                    first + own * 8, 8);
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conv-mma: convolutions and data gradients by mma.sync                                        */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_MMA_CODE
/* Copies 16 bytes that a tap sees of a pixel, `bytes` behind where both lead; beside the image zeros. */
__device__ __forceinline__ void bsri_conv_copy(uint32_t to, const bsri_dev_pieces &x, const int4 &a, const int4 &b, int bytes) {
    const bool in = bsri_conv_is_inside(x, a, b);
    bsri_cp_async(to, in ? x.data + (int64_t)(a.x + b.x) * 16 + bytes : x.data, in ? 16 : 0);
}
struct bsri_conv_mma_at { /* a tile */
    bsri_pixel_grid grid;
    int64_t pixel, channel, rows; /* first pixel; first channel of out, how many of the tile's it has */
    int32_t group, line, down, cols; /* line of the list: block row, or block of a tap's channels; rows of its block above */
    __device__ __forceinline__ void begin(const bsri_dev_conv_mma &m, int64_t work) {
        const bsri_conv_geometry &e = m.of.geo;
        const int64_t unit = work % m.of.units, row = unit / m.of.parts;
        work /= m.of.units, down = (int32_t)(unit % m.of.parts) * m.rows, pixel = work % m.of.panels * m.tile_cols;
        bsri_conv_grid(&e, work / m.of.panels, &grid);
        group = (int32_t)(e.turned ? row / m.per_tap : row * m.of.of.br / e.filters);
        line = (int32_t)(e.turned ? row % m.per_tap : row);
        channel = (e.turned ? group * e.channels + line * m.of.of.bc : row * m.of.of.br) + down;
        rows = bsri_min(m.rows, e.y.channels - channel), cols = (int32_t)bsri_min(m.tile_cols, grid.all - pixel);
    }
};
struct bsri_conv_mma_storage {
    int4 pixel[256];           /* of the tile; later where each is in out: image, axes */
    int4 tap[BSRI_CONV_TAPS];  /* those that the grid has: where each leads; */
    int32_t id[BSRI_CONV_TAPS]; /* which it is; a data gradient's first entry, and entries before it */
    int32_t begin[BSRI_CONV_TAPS], start[BSRI_CONV_TAPS + 1];
    int4 list[BSRI_CONV_LIST]; /* stored block, tap, channel */
    bsri_conv_mma_at at; /* the tile: kept here, as sums need the registers */
    int32_t taps;
};
/* The tile's pixels, the taps that there are, and how many entries each has. All threads; returns the entries of all. */
__device__ __forceinline__ int32_t bsri_conv_mma_look(const bsri_dev_conv_mma &m, bsri_conv_mma_storage &s,
                                                      const bsri_conv_mma_at &t) {
    const bsri_conv_geometry &e = m.of.geo;
    const int32_t all = (int32_t)e.taps.all, lane = threadIdx.x % 32;
    int64_t offset[3];
    for (int n = threadIdx.x; n < m.tile_cols; n += blockDim.x) {
        int32_t q[3];
        const int32_t image = bsri_conv_split(t.grid, (uint32_t)t.pixel + n, q);
        s.pixel[n] = n < t.cols ? bsri_conv_see_from(e, m.x, image, q) : make_int4(0, BSRI_CONV_BESIDE, 0, 0);
    }
    if (!e.turned) {
        for (int i = threadIdx.x; i < all; i += blockDim.x) {
            bsri_conv_offset(&e, &t.grid, i, offset);
            s.tap[i] = bsri_conv_lead(m.x, offset);
        }
        if (threadIdx.x == 0) s.begin[0] = bsri_dev_index(m.ptr, m.dt, t.line);
        __syncthreads();
        return bsri_dev_index(m.ptr, m.dt, t.line + 1) - s.begin[0];
    }
    if (threadIdx.x < 32) {
        int32_t count = 0;
        for (int32_t first = 0; first < all; first += 32) {
            const bool there = first + lane < all && bsri_conv_offset(&e, &t.grid, first + lane, offset);
            const uint32_t mask = __ballot_sync(~0u, there);
            const int32_t to = count + __popc(mask & ((1u << lane) - 1));
            if (there) s.tap[to] = bsri_conv_lead(m.x, offset), s.id[to] = first + lane;
            count += __popc(mask);
        }
        if (lane == 0) s.taps = count, s.start[0] = 0;
    }
    __syncthreads();
    const int32_t taps = s.taps;
    for (int i = threadIdx.x; i < taps; i += blockDim.x) {
        const int32_t line = s.id[i] * m.per_tap + t.line, rows = (int32_t)(e.filters / m.of.of.br);
        int32_t at = bsri_dev_index(m.ptr, m.dt, line), end = bsri_dev_index(m.ptr, m.dt, line + 1);
        if (e.taps.groups > 1) {
            at = bsri_conv_first_of(m.col, m.dt, at, end, t.group * rows);
            end = bsri_conv_first_of(m.col, m.dt, at, end, (t.group + 1) * rows);
        }
        s.begin[i] = at, s.start[i + 1] = end - at;
    }
    __syncthreads();
    if (threadIdx.x < 32)
        for (int32_t first = 0, before = 0; first < taps; first += 32) {
            int32_t sum = first + lane < taps ? s.start[first + lane + 1] : 0;
#pragma unroll
            for (int i = 1; i < 32; i *= 2) {
                const int32_t left = __shfl_up_sync(~0u, sum, i);
                if (lane >= i) sum += left;
            }
            if (first + lane < taps) s.start[first + lane + 1] = before + sum;
            before += __shfl_sync(~0u, sum, 31);
        }
    __syncthreads();
    return s.start[taps];
}
/* Entry n of the tile's. */
__device__ __forceinline__ int4 bsri_conv_mma_entry(const bsri_dev_conv_mma &m, const bsri_conv_mma_storage &s,
                                                    const bsri_conv_mma_at &t, int32_t n) {
    const bsri_conv_geometry &e = m.of.geo;
    if (!e.turned) {
        const int32_t entry = s.begin[0] + n, col = bsri_dev_index(m.col, m.dt, entry), tap = col / m.per_tap;
        return make_int4(entry, tap, (int32_t)(t.group * e.channels + (col - tap * m.per_tap) * m.of.of.bc), 0);
    }
    int low = 0, high = s.taps;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        if (s.start[mid] <= n) low = mid;
        else high = mid;
    }
    const int32_t entry = s.begin[low] + n - s.start[low];
    return make_int4(bsri_dev_index(m.position, m.dt, entry), low, (int32_t)(bsri_dev_index(m.col, m.dt, entry) * m.of.of.br), 0);
}
/* One step of a block: its part of the values, and its pixels as the tap sees them. */
template <class L>
__device__ __forceinline__ void bsri_conv_mma_load(const bsri_dev_conv_mma &m, const bsri_conv_mma_storage &s,
                                                   const bsri_conv_mma_at &t, uint32_t to, int entry, int sub) {
    constexpr int MW = L::MW, PIECES = L::PIECES;
    const int4 of = s.list[entry], tap = s.tap[of.y];
    const char *const block = m.values + of.x * m.a_block;
    for (int i = threadIdx.x; i < m.rows * PIECES; i += blockDim.x) {
        const int w = i / (MW * PIECES), line = i / PIECES % MW, piece = i % PIECES;
        const int across = t.down + w * MW, along = sub * L::KS;
        const char *from = block + (m.a_trans ? (along + line) * m.a_line + (across + piece * 8) * 2
                                              : (across + line) * m.a_line + (along + piece * 8) * 2);
        bsri_cp_async(to + w * L::warp::A_BYTES + bsri_swizzle<L::LINE>(line, piece), from);
    }
    const int bytes = (of.z + sub * L::KS) * 2;
#pragma unroll 4
    for (int i = threadIdx.x; i < m.tile_cols * PIECES; i += blockDim.x)
        bsri_conv_copy(to + m.b_at + bsri_swizzle<L::LINE>(i / PIECES, i % PIECES), m.x, s.pixel[i / PIECES], tap,
                       bytes + i % PIECES * 16);
}
template <class T, class L>
__device__ __forceinline__ void bsri_conv_mma_store(const bsri_dev_conv_mma &m, bsri_conv_mma_storage &s,
                                                    const bsri_conv_mma_at &t, float *tile,
                                                    const float (&sum)[L::warp::MI][L::warp::NI][4]) {
    typedef typename L::warp W;
    const bsri_dev_product &p = m.of.of;
    const float alpha = (float)(p.alpha_ptr ? *p.alpha_ptr : p.alpha), beta = (float)(p.beta_ptr ? *p.beta_ptr : p.beta);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = m.tile_cols / 64;
    const int down = warp / n_warps * L::MW, first = warp % n_warps * 64;
    for (int n = threadIdx.x; n < t.cols; n += blockDim.x) {
        int32_t q[3];
        const int32_t image = bsri_conv_split(t.grid, (uint32_t)t.pixel + n, q);
#pragma unroll
        for (int a = 0; a < 3; a++) q[a] = (int32_t)(t.grid.first[a] + q[a] * t.grid.step[a]);
        s.pixel[n] = make_int4(image, q[0], q[1], q[2]);
    }
    __syncthreads();
    tile += warp * (16 * BSRI_MMA_PAD);
#pragma unroll
    for (int mi = 0; mi < W::MI; mi++) {
        bsri_mma_lay<T, W>(tile, sum[mi], m.a_trans, false);
        __syncwarp();
        const bsri_mma_pieces own(false, lane);
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const int r = own.row(i), c = own.col(i), row = down + mi * 16 + r, n = (int)bsri_min(8, t.rows - row);
            float v[8];
            if (n <= 0 || first + c >= t.cols) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = tile[(r + j) * BSRI_MMA_PAD + c];
            bsri_conv_eight(m, alpha, beta, v, s.pixel[first + c], t.channel + row, n);
        }
        __syncwarp();
    }
}
#endif
/* bsri_conv_mma: a CTA takes tiles of out: rows of one line of blocks, m_warps below each other, times tile_cols pixels, 64 of a
   warp.

   Shared memory:
     dynamic:  BSRI_CONV_STAGES times stage_bytes, in each of them
       0       values: of each row of warps MW x KS, as stored KS x MW
       b_at    pixels: tile_cols lines of KS channels
               after the last step: 16 x 64 sums for each warp, rows of BSRI_MMA_PAD
     static:   bsri_conv_mma_storage: pixels and taps of the tile by address, a part of its list of blocks

   Order: 1. All threads work out where pixels and taps are, and list up to BSRI_CONV_LIST blocks.
          2. Steps of these blocks go through the stages: a copy of 16 bytes for each piece, whose address is a pixel's and a
             tap's, or zeros beside the image; three steps are on their way while one is multiplied.
          3. After the last block sums go through shared memory to the epilogue, eight channels of a pixel at a time. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS) bsri_conv_mma(const __grid_constant__ bsri_dev_conv_mma m BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    typedef typename L::warp W;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_conv_mma_storage s;
    constexpr int STAGES = L::STAGES;
    const uint32_t base = bsri_smem_address(bsri_shared);
    const bsri_dev_product &p = m.of.of;
    const int warp = threadIdx.x / 32, n_warps = m.tile_cols / 64;
    const bool nothing = !m.of.any || (p.alpha_ptr ? *p.alpha_ptr : p.alpha) == 0.0;
    const int64_t total = m.of.phases * m.of.panels * m.of.units;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const bsri_conv_mma_at &t = s.at;
        float sum[W::MI][W::NI][4] = {};
        __syncthreads();
        if (threadIdx.x == 0) s.at.begin(m, work);
        __syncthreads();
        if (t.cols <= 0) continue;
        const int32_t entries = nothing ? 0 : bsri_conv_mma_look(m, s, t);
        for (int32_t first = 0; first < entries; first += BSRI_CONV_LIST) {
            const int32_t count = min(BSRI_CONV_LIST, entries - first), steps = count * m.subs;
            int32_t entry = 0, sub = 0, next = 0; /* of the step that is copied next; where it goes */
            for (int i = threadIdx.x; i < count; i += blockDim.x) s.list[i] = bsri_conv_mma_entry(m, s, t, first + i);
            __syncthreads();
            for (int32_t i = 1 - STAGES; i < steps; i++) {
                if (i >= 0) {
                    bsri_cp_async_wait<STAGES - 2>();
                    __syncthreads(); /* the step is there, and the one before it is no longer read */
                }
                if (entry < count) {
                    bsri_conv_mma_load<L>(m, s, t, base + next * m.stage_bytes, entry, sub);
                    if (++sub == m.subs) sub = 0, entry++;
                    next = next + 1 == STAGES ? 0 : next + 1;
                }
                bsri_cp_async_commit();
                if (i < 0) continue;
                const uint32_t at = base + i % STAGES * m.stage_bytes;
                bsri_mma_consumer<T, W>::multiply(sum, at + warp / n_warps * W::A_BYTES,
                                                  at + m.b_at + warp % n_warps * W::B_BYTES, m.a_trans, 0);
            }
            __syncthreads();
        }
        bsri_conv_mma_store<T, L>(m, s, t, (float *)bsri_shared, sum);
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>conv-weights-mma: weight gradients of convolutions by mma.sync                               */
/* ---------------------------------------------------------------------------------------------- */

/* Eight sums of stored block `at` from (row, col) on, to out. */
__device__ __forceinline__ void bsri_conv_weights_eight(const bsri_dev_sampled &p, const float (&v)[8], int64_t at, int row,
                                                        int col) {
    const int64_t to = at * p.o_strides[0] + row * p.o_strides[1] + col * p.o_strides[2];
    const int64_t from = at * p.i_strides[0] + row * p.i_strides[1] + col * p.i_strides[2];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float x = (float)p.alpha * v[i];
        if (p.has_input)
            x += (float)p.beta * bsri_dev_number<float>(p.input.values, p.input.dtype, from + i * p.i_strides[2]);
        bsri_dev_store(p.out.values, p.out.dtype, to + i * p.o_strides[2], x);
    }
}
/* Adds up what the shares have. */
template <class L>
__global__ void __launch_bounds__(L::THREADS)
    bsri_conv_weights_add(const __grid_constant__ bsri_dev_conv_weights_mma m BSRI_GATE) {
    BSRI_ENTER;
    const bsri_dev_sampled &p = m.of.of;
    const int64_t area = p.out.block_rows * p.out.block_cols, all = p.out.nnz * area;
    for (int64_t at = (blockIdx.x * (int64_t)L::THREADS + threadIdx.x) * 8; at < all; at += gridDim.x * (int64_t)L::THREADS * 8) {
        const int64_t block = at / area;
        const int inside = (int)(at - block * area);
        float v[8] = {};
        for (int share = 0; share < m.shares; share++) {
            const float4 *const from = (const float4 *)(m.part + share * all + at);
            const float4 x = from[0], y = from[1];
            v[0] += x.x, v[1] += x.y, v[2] += x.z, v[3] += x.w, v[4] += y.x, v[5] += y.y, v[6] += y.z, v[7] += y.w;
        }
        bsri_conv_weights_eight(p, v, block, inside / (int)p.out.block_cols, inside % (int)p.out.block_cols);
    }
}
#ifdef BSRI_MMA_CODE
enum { BSRI_CONV_PIXELS = 256 }; /* whose addresses are worked out at a time */
struct bsri_conv_weights_at { /* a tile */
    int64_t from, to;                  /* pixels */
    int32_t row, down, first, end, cut; /* row of blocks, rows of it above; stored blocks; columns of a block before it */
    __device__ __forceinline__ void begin(const bsri_dev_conv_weights_mma &m, int64_t work) {
        const bsr_matrix &out = m.of.of.out;
        const int dt = out.index_dtype;
        const int64_t share = work / (m.tiles * m.parts);
        work -= share * m.tiles * m.parts, down = (int32_t)(work % m.parts) * m.rows, work /= m.parts;
        from = share * m.each, to = bsri_min(m.of.pixels, from + m.each);
        cut = (int32_t)(work % m.cuts) * m.tile_cols, work /= m.cuts;
        int32_t low = 0, high = (int32_t)bsri_block_rows(&out);
        while (high - low > 1) { /* a row's tiles are numbered from its entries / blocks + rows before it on */
            const int32_t mid = (low + high) / 2;
            if (bsri_dev_index(out.crow_indices, dt, mid) / m.blocks + mid <= work) low = mid;
            else high = mid;
        }
        const int32_t start = bsri_dev_index(out.crow_indices, dt, low);
        row = low, first = start + ((int32_t)work - (start / m.blocks + low)) * m.blocks;
        end = min(first + m.blocks, bsri_dev_index(out.crow_indices, dt, low + 1));
    }
};
struct bsri_conv_weights_storage {
    int4 pixel[2][BSRI_CONV_PIXELS], column[32]; /* of eight columns: where their tap leads, channels too */
    int32_t dy[2][BSRI_CONV_PIXELS];
    bsri_conv_weights_at at;
    bsri_pixel_grid grid;
};
template <class L>
__device__ __forceinline__ void bsri_conv_weights_load(const bsri_dev_conv_weights_mma &m, const bsri_conv_weights_storage &s,
                                                       uint32_t to, int step, int bytes) {
    constexpr int KS = L::KS, PIECES = L::PIECES, ROUND = BSRI_CONV_PIXELS / KS;
    const int buffer = step / ROUND % 2, k0 = step % ROUND * KS, across = m.rows / 8;
    for (int i = threadIdx.x; i < KS * across; i += blockDim.x) {
        const int k = i / across, piece = i % across, w = piece / PIECES;
        const bool in = s.pixel[buffer][k0 + k].y != BSRI_CONV_BESIDE;
        bsri_cp_async(to + w * L::warp::A_BYTES + bsri_swizzle<L::LINE>(k, piece % PIECES),
                      in ? m.dy.data + (int64_t)s.dy[buffer][k0 + k] * 16 + bytes + piece * 16 : m.dy.data, in ? 16 : 0);
    }
#pragma unroll 4
    for (int i = threadIdx.x; i < KS * m.tile_cols / 8; i += blockDim.x) {
        const int k = i / (m.tile_cols / 8), piece = i % (m.tile_cols / 8);
        bsri_conv_copy(to + m.b_at + piece / 8 * L::warp::B_BYTES + k * 128 + ((piece % 8 ^ (k & 7)) << 4), m.x,
                       s.pixel[buffer][k0 + k], s.column[piece], 0);
    }
}
/* Where the next pixels of a share are. */
__device__ __forceinline__ void bsri_conv_weights_pixels(const bsri_dev_conv_weights_mma &m, bsri_conv_weights_storage &s,
                                                         const bsri_pixel_grid &grid, int64_t at, int64_t end, int buffer) {
    for (int n = threadIdx.x; n < BSRI_CONV_PIXELS; n += blockDim.x) {
        int32_t q[3];
        const int32_t image = bsri_conv_split(grid, (uint32_t)(at + n), q);
        s.pixel[buffer][n] = at + n < end ? bsri_conv_see_from(m.of.geo, m.x, image, q) : make_int4(0, BSRI_CONV_BESIDE, 0, 0);
        s.dy[buffer][n] = bsri_conv_place(m.dy, image, q).x;
    }
}
/* Where the tile's columns are. */
__device__ __forceinline__ void bsri_conv_weights_columns(const bsri_dev_conv_weights_mma &m, bsri_conv_weights_storage &s,
                                                          const bsri_pixel_grid &grid, const bsri_conv_weights_at &t) {
    const bsri_conv_geometry &e = m.of.geo;
    const bsr_matrix &out = m.of.of.out;
    const int32_t bc = (int32_t)out.block_cols;
    for (int i = threadIdx.x; i < m.tile_cols / 8; i += blockDim.x) {
        const int32_t n = t.cut + i * 8, entry = t.first + n / bc;
        s.column[i] = make_int4(0, BSRI_CONV_BESIDE, 0, 0);
        if (entry >= t.end) continue;
        const int64_t k = bsri_dev_index(out.col_indices, out.index_dtype, entry) * (int64_t)bc + n % bc, tap = k / e.channels;
        const int64_t group = t.row * out.block_rows / e.filters;
        int64_t offset[3];
        bsri_conv_offset(&e, &grid, tap, offset);
        s.column[i] = bsri_conv_lead(m.x, offset);
        s.column[i].x += (int32_t)((group * e.channels + k - tap * e.channels) / 8);
    }
}
template <class T, class L>
__device__ __forceinline__ void bsri_conv_weights_store(const bsri_dev_conv_weights_mma &m, const bsri_conv_weights_at &t,
                                                        int64_t share, float *tile,
                                                        const float (&sum)[L::warp::MI][L::warp::NI][4]) {
    typedef typename L::warp W;
    const bsr_matrix &out = m.of.of.out;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = m.tile_cols / 64, bc = (int)out.block_cols;
    const int down = t.down + warp / n_warps * L::MW, first = t.cut + warp % n_warps * 64;
    const int64_t area = out.block_rows * bc;
    tile += warp * (16 * BSRI_MMA_PAD);
#pragma unroll
    for (int mi = 0; mi < W::MI; mi++) {
        bsri_mma_lay<T, W>(tile, sum[mi], 1, false);
        __syncwarp();
        const bsri_mma_pieces own(true, lane);
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const int r = own.row(i), n = first + own.c, entry = t.first + n / bc, row = down + mi * 16 + r, col = n % bc;
            const float *const from = tile + r * BSRI_MMA_PAD + own.c;
            if (entry >= t.end || (m.cuts > 1 && n >= bc)) continue;
            if (m.part) {
                float4 *const to = (float4 *)(m.part + (share * out.nnz + entry) * area + row * bc + col);
                to[0] = ((const float4 *)from)[0], to[1] = ((const float4 *)from)[1];
            } else {
                float v[8];
#pragma unroll
                for (int j = 0; j < 8; j++) v[j] = from[j];
                bsri_conv_weights_eight(m.of.of, v, entry, row, col);
            }
        }
        __syncwarp();
    }
}
#endif
/* bsri_conv_weights_mma: as bsri_conv_mma, but products are pixels, 32 or 16 of a step: their channels of dy (lines of rows of
   the tile) and of x (lines of columns). Addresses of 256 pixels are worked out at a time, while the last steps before them are
   multiplied. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS)
    bsri_conv_weights_mma(const __grid_constant__ bsri_dev_conv_weights_mma m BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    typedef typename L::warp W;
    extern __shared__ __align__(1024) char bsri_shared[];
    __shared__ bsri_conv_weights_storage s;
    constexpr int STAGES = L::STAGES, KS = L::KS, ROUND = BSRI_CONV_PIXELS / KS;
    const uint32_t base = bsri_smem_address(bsri_shared);
    const int warp = threadIdx.x / 32, n_warps = m.tile_cols / 64;
    const int64_t total = m.tiles * m.parts * m.shares;
    if (threadIdx.x == 0) bsri_conv_grid(&m.of.geo, 0, &s.grid);
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const bsri_conv_weights_at &t = s.at;
        float sum[W::MI][W::NI][4] = {};
        __syncthreads();
        if (threadIdx.x == 0) s.at.begin(m, work);
        __syncthreads();
        if (t.first >= t.end) continue;
        const int steps = m.of.of.alpha == 0.0 ? 0 : (int)((t.to - t.from + KS - 1) / KS);
        const int bytes = (int)(t.row * m.of.of.out.block_rows + t.down) * 2;
        bsri_conv_weights_columns(m, s, s.grid, t);
        for (int i = 1 - STAGES; i < steps; i++) {
            const int step = i + STAGES - 1; /* that is copied */
            if (i >= 0) {
                bsri_cp_async_wait<STAGES - 2>();
                __syncthreads(); /* the step is there, and the one before it is no longer read */
            }
            if (step < steps && step % ROUND == 0) {
                bsri_conv_weights_pixels(m, s, s.grid, t.from + (int64_t)step * KS, t.to, step / ROUND % 2);
                __syncthreads();
            }
            if (step < steps) bsri_conv_weights_load<L>(m, s, base + step % STAGES * m.stage_bytes, step, bytes);
            bsri_cp_async_commit();
            if (i < 0) continue;
            const uint32_t at = base + i % STAGES * m.stage_bytes;
            bsri_mma_consumer<T, W>::multiply(sum, at + warp / n_warps * W::A_BYTES, at + m.b_at + warp % n_warps * W::B_BYTES, 1,
                                              0);
        }
        __syncthreads();
        bsri_conv_weights_store<T, L>(m, t, work / (m.tiles * m.parts), (float *)bsri_shared, sum);
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-scores: maxima, exponentials, what is added to scores or forbids them                 */
/* ---------------------------------------------------------------------------------------------- */

#define BSRI_DEV_LN2 0.6931471805599453f

template <class F> __device__ __forceinline__ F bsri_dev_inf() { return (F)__int_as_float(0x7f800000); }
template <class F> __device__ __forceinline__ F bsri_dev_nan() { return (F)__int_as_float(0x7fc00000); }

__device__ __forceinline__ double bsri_dev_max(double a, double b) { return a != a || a > b ? a : b; }

/* exp(x) for x <= 0, to two units in the last place: the product with log2(e) is carried in two parts. NaN gives 0. */
__device__ __forceinline__ float bsri_dev_exp(float x) {
    x = fmaxf(x, -150.0f);
    const float y = x * BSRI_DEV_LOG2E;
    const float rest = fmaf(x, 1.925963033e-8f, fmaf(x, BSRI_DEV_LOG2E, -y));
    const float e = bsri_dev_exp2(y);
    return fmaf(e, rest * BSRI_DEV_LN2, e);
}
__device__ __forceinline__ double bsri_dev_exp(double x) { return exp(x); }
__device__ __forceinline__ float bsri_dev_log(float x) { return logf(x); }
__device__ __forceinline__ double bsri_dev_log(double x) { return log(x); }

/* (max, sum of exp(s - max)) of two sets together. */
template <class F> __device__ __forceinline__ void bsri_dev_fold(F &max, F &sum, F other_max, F other_sum) {
    const F m = bsri_dev_max(max, other_max);
    const F a = max == m ? F(1) : bsri_dev_exp(max - m), b = other_max == m ? F(1) : bsri_dev_exp(other_max - m);
    sum = sum * a + other_sum * b, max = m;
}

/* s with a bias: a bias of -inf forbids, also where s is NaN. In mode BSR_MASK_MUL zero forbids, in its own type. */
template <class F> __device__ __forceinline__ F bsri_dev_bias(F s, const void *data, int dtype, int mode, int64_t at) {
    if (mode == BSR_MASK_MUL) {
        const bool zero = dtype == BSR_F64 ? ((const double *)data)[at] == 0 : bsri_dev_load<float>(data, dtype, at) == 0;
        return zero ? -bsri_dev_inf<F>() : s;
    }
    const F b = bsri_dev_load<F>(data, dtype, at);
    return b == -bsri_dev_inf<F>() ? b : s + b;
}
/* Where a bias of one batch item starts. */
__device__ __forceinline__ const char *bsri_dev_bias_base(const bsri_batch *b, int64_t item, const bsr_dense *d) {
    return d->data ? bsri_dev_at(d->data, d->dtype, bsri_dense_offset(b, item, d)) : nullptr;
}
__device__ __forceinline__ int64_t bsri_dev_bias_at(const bsr_dense *d, int64_t row, int64_t col) {
    return (d->rows == 1 ? 0 : row * d->row_stride) + (d->cols == 1 ? 0 : col * d->col_stride);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-softmax: rows of stored elements, packed, without biases                              */
/* ---------------------------------------------------------------------------------------------- */

/* p.warps warps of a CTA own 2^p.side rows at a time, p.run times; rows of all items are numbered through. */
struct bsri_dev_row {
    bsri_item x, dy, out;
    int64_t item, row, inner, first, count; /* count: stored elements */
    int lane, beside;                       /* of the threads that share the row; which of the warp's rows it is */
    bool valid;

    __device__ __forceinline__ bsri_dev_row(const bsri_dev_softmax &p, int64_t work) {
        const int in_warp = threadIdx.x % 32, warp = threadIdx.x / 32, bits = __ffs(p.warps) - 1; /* a power of two */
        const int group = warp >> bits, groups = blockDim.x / 32 >> bits;
        beside = in_warp >> p.near & ((1 << p.side) - 1);
        lane = (in_warp & ((1 << p.near) - 1)) + (in_warp >> (p.near + p.side) << p.near);
        lane += (warp & (p.warps - 1)) * (32 >> p.side);
        const int64_t n = ((work * groups + group) * p.run << p.side) + beside;
        valid = n < p.rows, count = 0, item = row = inner = first = 0;
        if (!valid) return;
        item = bsri_divide(n, p.x.rows), row = n - item * p.x.rows;
        const int64_t br = bsri_divide(row, p.x.block_rows);
        inner = row - br * p.x.block_rows;
        x = bsri_dev_matrix_item(&p.batch, item, &p.x), out = bsri_dev_matrix_item(&p.batch, item, &p.out);
        if (p.backward) dy = bsri_dev_matrix_item(&p.batch, item, &p.dy);
        first = bsri_index(x.crow, p.x.index_dtype, br);
        count = (bsri_index(x.crow, p.x.index_dtype, br + 1) - first) * p.x.block_cols;
    }
};

/* Calls f(distance) for the exchanges that join the lanes of a row within its warp. */
template <class F> __device__ __forceinline__ void bsri_dev_row_lanes(const bsri_dev_softmax &p, F f) {
    const int others = ((1 << p.side) - 1) << p.near;
    for (int d = 16; d; d /= 2)
        if (!(d & others)) f(d);
}
/* max and sum over the threads of a row, of which each warp's are the same in all of its lanes; all of the CTA's threads call it.
   fold(max, sum, other max, other sum). */
template <class F, class Fold>
__device__ __forceinline__ void bsri_dev_row_join(const bsri_dev_softmax &p, const bsri_dev_row &r, F &max, F &sum, Fold fold) {
    __shared__ F part[2][8][8];
    const int warp = threadIdx.x / 32, from = warp & -p.warps;
    if (p.warps == 1) return;
    __syncthreads();
    if (r.lane % (32 >> p.side) == 0) part[0][warp][r.beside] = max, part[1][warp][r.beside] = sum;
    __syncthreads();
    max = part[0][from][r.beside], sum = part[1][from][r.beside];
    for (int i = 1; i < p.warps; i++) fold(max, sum, part[0][from + i][r.beside], part[1][from + i][r.beside]);
}
template <class F>
__device__ __forceinline__ void bsri_dev_row_fold(const bsri_dev_softmax &p, const bsri_dev_row &r, F &max, F &sum) {
    const auto fold = [](F &m, F &s, F other_max, F other_sum) { bsri_dev_fold(m, s, other_max, other_sum); };
    bsri_dev_row_lanes(p, [&](int d) {
        const F m = __shfl_xor_sync(~0u, max, d), n = __shfl_xor_sync(~0u, sum, d);
        bsri_dev_fold(max, sum, m, n);
    });
    bsri_dev_row_join(p, r, max, sum, fold);
}
template <class F> __device__ __forceinline__ F bsri_dev_row_sum(const bsri_dev_softmax &p, const bsri_dev_row &r, F sum) {
    F none = 0;
    bsri_dev_row_lanes(p, [&](int d) { sum += __shfl_xor_sync(~0u, sum, d); });
    bsri_dev_row_join(p, r, none, sum, [](F &, F &s, F, F other) { s += other; });
    return sum;
}
/* What e^(s - max) is multiplied by: 0 for a row without anything, NaN for one with NaN or +inf. */
template <class F> __device__ __forceinline__ F bsri_dev_row_factor(F max, F sum) {
    return !(max < bsri_dev_inf<F>()) ? bsri_dev_nan<F>() : sum > 0 ? F(1) / sum : sum;
}
template <class F> __device__ __forceinline__ F bsri_dev_row_value(F s, F max, F factor) {
    if (factor != factor) return factor;
    return s == -bsri_dev_inf<F>() ? F(0) : bsri_dev_exp(s - max) * factor;
}

/* 16 bytes into shared memory, for the thread itself; all groups of them but the last N have landed. */
__device__ __forceinline__ void bsri_dev_copy16(uint4 *to, const char *from) {
#ifdef BSRI_MMA_CODE
    bsri_cp_async(bsri_smem_address(to), from);
#else
    *to = *(const uint4 *)from;
#endif
}
__device__ __forceinline__ void bsri_dev_copies_end(void) {
#ifdef BSRI_MMA_CODE
    bsri_cp_async_commit();
#endif
}
template <int N> __device__ __forceinline__ void bsri_dev_copies_but(void) {
#ifdef BSRI_MMA_CODE
    bsri_cp_async_wait<N>();
#endif
}
/* Packed values, whole 16-byte pieces, no biases: a row that fits is read once. */
template <class T> struct bsri_dev_piece;
template <> struct bsri_dev_piece<float> {
    static constexpr int N = 4;
    static __device__ __forceinline__ void load(float (&v)[4], const uint4 &u) {
        v[0] = __uint_as_float(u.x), v[1] = __uint_as_float(u.y), v[2] = __uint_as_float(u.z), v[3] = __uint_as_float(u.w);
    }
    static __device__ __forceinline__ void keep(uint4 &u, const float (&v)[4]) {
        u = make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
    }
};
template <> struct bsri_dev_piece<double> {
    static constexpr int N = 2;
    static __device__ __forceinline__ void load(double (&v)[2], const uint4 &u) {
        v[0] = __hiloint2double((int)u.y, (int)u.x), v[1] = __hiloint2double((int)u.w, (int)u.z);
    }
};
template <> struct bsri_dev_piece<__nv_bfloat16> {
    static constexpr int N = 8, DTYPE = BSR_BF16;
    static __device__ __forceinline__ void load(float (&v)[8], const uint4 &u) {
        const uint32_t w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[2 * i] = __uint_as_float(w[i] << 16), v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
    static constexpr uint32_t LEAST = 0xff80ff80u; /* -inf twice */
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) { /* of two pairs; NaN if either is */
#if __CUDA_ARCH__ >= 800
        uint32_t r;
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
#else
        const float low = bsri_dev_max(__uint_as_float(a << 16), __uint_as_float(b << 16));
        const float high = bsri_dev_max(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u));
        return __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xffff0000u);
#endif
    }
};
template <> struct bsri_dev_piece<__half> {
    static constexpr int N = 8, DTYPE = BSR_F16;
    static __device__ __forceinline__ void load(float (&v)[8], const uint4 &u) {
        const uint32_t w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 f = __half22float2(*(const __half2 *)&w[i]);
            v[2 * i] = f.x, v[2 * i + 1] = f.y;
        }
    }
    static constexpr uint32_t LEAST = 0xfc00fc00u;
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
#if __CUDA_ARCH__ >= 800
        uint32_t r;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
#else
        const float2 x = __half22float2(*(const __half2 *)&a), y = __half22float2(*(const __half2 *)&b);
        const __half2 h = __floats2half2_rn(bsri_dev_max(x.x, y.x), bsri_dev_max(x.y, y.y));
        return *(const uint32_t *)&h;
#endif
    }
};
__device__ __forceinline__ uint32_t bsri_dev_pack(float a, float b, int dtype) {
    return dtype == BSR_F16 ? bsri_dev_dtype<BSR_F16>::pack(a, b) : bsri_dev_dtype<BSR_BF16>::pack(a, b);
}
/* A piece as elements of T or of f32, from element `at` on. */
template <class T>
__device__ __forceinline__ void bsri_dev_store_piece(char *base, int dtype, int64_t at, const float (&v)[bsri_dev_piece<T>::N]) {
    constexpr int N = bsri_dev_piece<T>::N;
    if constexpr (N == 8) {
        if (dtype != BSR_F32) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < N; i += 2) w[i / 2] = bsri_dev_pack(v[i], v[i + 1], bsri_dev_piece<T>::DTYPE);
            *(uint4 *)(base + at * 2) = make_uint4(w[0], w[1], w[2], w[3]);
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < N; i += 4) *(float4 *)(base + (at + i) * 4) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

template <class T> __device__ __forceinline__ void bsri_dev_store_piece(char *base, int, int64_t at, const double (&v)[2]) {
    *(double2 *)(base + at * 8) = make_double2(v[0], v[1]);
}

#ifdef BSRI_WGMMA_CODE
#define BSRI_SOFTMAX_ROOM BSRI_SOFTMAX_ROOM_90
#else
#define BSRI_SOFTMAX_ROOM BSRI_ROW_HELD
#endif
template <class T> struct bsri_softmax_packed {
    typedef bsri_dev_piece<T> piece;
    static constexpr int N = piece::N, HELD = BSRI_ROW_HELD, ROOM = BSRI_SOFTMAX_ROOM;
    const bsri_dev_softmax &p;
    bsri_dev_row &r;
    int n;             /* pieces of the row */
    uint32_t to[HELD]; /* where the held ones stand, from the row's first element on */

    __device__ __forceinline__ bsri_softmax_packed(const bsri_dev_softmax &p_, bsri_dev_row &r_) : p(p_), r(r_) {
        n = (int)(r.count / N);
#pragma unroll
        for (int i = 0; i < HELD; i++) to[i] = at(r.lane + i * p.lanes);
    }
    /* Element of piece j, from the row's first: block, then place in the block's row. */
    __device__ __forceinline__ uint32_t at(int j) const {
        const uint32_t block = __umulhi((uint32_t)j, p.divide) + (p.chunks == 1 ? (uint32_t)j : 0);
        return block * p.block + ((uint32_t)j - block * (uint32_t)p.chunks) * N;
    }
    __device__ __forceinline__ bool has(int i) const { return r.lane + i * p.lanes < n; }
    static __device__ __forceinline__ uint4 fetch(const bsri_item &it, uint32_t at) {
        return *(const uint4 *)(it.values + (size_t)at * sizeof(T));
    }
    static __device__ __forceinline__ void read(float (&v)[N], const bsri_item &it, uint32_t at) {
        piece::load(v, fetch(it, at));
    }
    __device__ __forceinline__ void write(float (&v)[N], float factor, uint32_t at) const {
#pragma unroll
        for (int k = 0; k < N; k++) v[k] *= factor;
        bsri_dev_store_piece<T>(r.out.values, p.out.dtype, at, v);
    }
    static __device__ __forceinline__ float finite(float max) { return max == -bsri_dev_inf<float>() ? 0.0f : max; }

    /* A held piece as exponentials. Of f32, v - base are differences of scaled scores; of 16-bit types exponents of 2: one
       multiplication and addition, whose rounding of base is the same in all of the row. */
    static __device__ __forceinline__ float power(float x) { return N == 4 ? bsri_dev_exp(x) : bsri_dev_exp2(x); }
    static __device__ __forceinline__ float powers(float (&v)[N], const uint4 &raw, float scale, float base) {
        float sum = 0;
        piece::load(v, raw);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = power(N == 4 ? v[k] * scale - base : fmaf(v[k], scale, -base)), sum += v[k];
        return sum;
    }
    static __device__ __forceinline__ void fold(float &max, float &sum, float other_max, float other_sum) {
        const float m = bsri_dev_max(max, other_max);
        const float a = max == m ? 1.0f : power(max - m), b = other_max == m ? 1.0f : power(other_max - m);
        sum = sum * a + other_sum * b, max = m;
    }
    /* f(where a held piece is, its number) for all of the lane. Not unrolled: code for eight at a time would be fetched anew in
       each row (note N25). */
    template <class F> __device__ __forceinline__ void each(uint4 *held, const F &f) const {
#pragma unroll 1
        for (int j = r.lane; j < n; j += p.lanes, held += 32) f(held, j);
    }
    /* The largest scaled score of the lane. */
    __device__ __forceinline__ float largest(uint4 *held, float scale) const {
        float max = -bsri_dev_inf<float>();
        if constexpr (N == 4) {
            each(held, [&](const uint4 *at, int) {
                float v[N];
                piece::load(v, *at);
#pragma unroll
                for (int k = 0; k < N; k++) max = bsri_dev_max(max, v[k] * scale);
            });
        } else {
            const uint32_t flip = scale < 0 ? 0x80008000u : 0;
            uint32_t most = piece::LEAST;
            float v[N];
            each(held, [&](const uint4 *at, int) {
                const uint4 raw = *at;
                most = piece::larger(most, piece::larger(piece::larger(raw.x ^ flip, raw.y ^ flip),
                                                         piece::larger(raw.z ^ flip, raw.w ^ flip)));
            });
            piece::load(v, make_uint4(most, most, most, most));
            max = bsri_dev_max(v[0], v[1]);
            if (max != -bsri_dev_inf<float>()) max *= fabsf(scale);
        }
        return max;
    }
    /* The row's pieces on their way into shared memory, each to the thread's own place. */
    __device__ __forceinline__ void ask(uint4 *held) const {
        each(held, [&](uint4 *to, int j) { bsri_dev_copy16(to, r.x.values + (size_t)at(j) * sizeof(T)); });
        bsri_dev_copies_end();
    }
    /* p.run rows, all of the same length, `step` bytes apart. The next one is on its way while one is worked on, where there is
       room for two; else it takes the room of what a thread has used. Other ways were slower (note N25). */
    __device__ __forceinline__ void forward(int64_t step, int64_t out_step) {
        extern __shared__ __align__(1024) char bsri_shared[];
        uint4 *held = (uint4 *)bsri_shared + threadIdx.x / 32 * (32 * ROOM) + threadIdx.x % 32;
        const bool longer = p.warps > 1 ? __syncthreads_or(n > ROOM * p.lanes) : __any_sync(~0u, n > ROOM * p.lanes);
        const bool two = n <= ROOM / 2 * p.lanes; /* rows have room */
        int other = ROOM / 2 * 32;
        if (!longer) ask(held);
#pragma unroll 1
        for (int i = 0; i < p.run; i++, r.out.values += out_step) {
            int64_t next = i + 1 < p.run ? step : 0;
            if (longer) {
                forward_long(), r.x.values += step;
                continue;
            }
            r.x.values += next;
            if (two && next) next = 0, ask(held + other), bsri_dev_copies_but<1>();
            else bsri_dev_copies_but<0>();
            forward_held(held, next);
            if (two) held += other, other = -other;
        }
    }
    /* Exponentials are taken against the warp's own maximum: the row's is needed only at the end. They are computed twice. */
    __device__ __forceinline__ void forward_held(uint4 *held, bool next) {
        const float scale = (float)p.scale * (N == 4 ? 1.0f : BSRI_DEV_LOG2E);
        float v[N], sum = 0, max = largest(held, scale);
        bsri_dev_row_lanes(p, [&](int d) { max = bsri_dev_max(max, __shfl_xor_sync(~0u, max, d)); });
        const float mine = max, base = finite(max);
        each(held, [&](const uint4 *at, int) { sum += powers(v, *at, scale, base); });
        bsri_dev_row_lanes(p, [&](int d) { sum += __shfl_xor_sync(~0u, sum, d); });
        bsri_dev_row_join(p, r, max, sum, fold);
        const float factor = max == -bsri_dev_inf<float>() ? 0.0f : bsri_dev_row_factor(max, sum) * power(mine - max);
        each(held, [&](uint4 *from, int j) {
            const uint32_t to = at(j);
            powers(v, *from, scale, base);
            if (next) bsri_dev_copy16(from, r.x.values + (size_t)to * sizeof(T));
            write(v, factor, to);
        });
        if (next) bsri_dev_copies_end();
    }
    /* Read twice. */
    static __device__ __forceinline__ float scaled(float (&v)[N], float scale, float max) {
#pragma unroll
        for (int k = 0; k < N; k++) v[k] *= scale, max = bsri_dev_max(max, v[k]);
        return max;
    }
    static __device__ __forceinline__ float exponentials(float (&v)[N], float base) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = bsri_dev_exp(v[k] - base), sum += v[k];
        return sum;
    }
    /* f(elements, where they stand) for all of the lane, two pieces on their way at a time. */
    template <class F> __device__ __forceinline__ void stream(const F &f) const {
        constexpr int FEW = 2;
#pragma unroll 1
        for (int j = r.lane; j < n; j += FEW * p.lanes) {
            uint4 raw[FEW];
#pragma unroll
            for (int i = 0; i < FEW; i++) raw[i] = fetch(r.x, at(min(j + i * p.lanes, n - 1)));
#pragma unroll
            for (int i = 0; i < FEW; i++) {
                float v[N];
                if (j + i * p.lanes < n) piece::load(v, raw[i]), f(v, at(j + i * p.lanes));
            }
        }
    }
    __device__ __forceinline__ void forward_long() const {
        float max = -bsri_dev_inf<float>(), sum = 0;
        stream([&](float(&v)[N], uint32_t) {
            const float m = scaled(v, (float)p.scale, max);
            if (m != max) sum *= bsri_dev_exp(max - finite(m)), max = m;
            sum += exponentials(v, finite(max));
        });
        bsri_dev_row_fold(p, r, max, sum);
        const float factor = max == -bsri_dev_inf<float>() ? 0.0f : bsri_dev_row_factor(max, sum);
        stream([&](float(&v)[N], uint32_t to) {
            scaled(v, (float)p.scale, max), exponentials(v, finite(max)), write(v, factor, to);
        });
    }
    __device__ __forceinline__ void gradient(float (&y)[N], const float (&dy)[N], float dot, uint32_t at) const {
#pragma unroll
        for (int i = 0; i < N; i++) y[i] *= (dy[i] - dot) * (float)p.scale;
        bsri_dev_store_piece<T>(r.out.values, p.out.dtype, at, y);
    }
    __device__ __forceinline__ void backward() const {
        float dot = 0, y[N], dy[N];
        uint4 raw[2][HELD];
        const bool held = n <= HELD * p.lanes;
#pragma unroll
        for (int i = 0; i < HELD; i++)
            if (held && has(i)) raw[0][i] = fetch(r.x, to[i]), raw[1][i] = fetch(r.dy, to[i]);
        if (held) {
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (has(i)) {
                    piece::load(y, raw[0][i]), piece::load(dy, raw[1][i]);
#pragma unroll
                    for (int k = 0; k < N; k++) dot += y[k] * dy[k];
                }
        } else {
            for (int j = r.lane; j < n; j += p.lanes) {
                read(y, r.x, at(j)), read(dy, r.dy, at(j));
#pragma unroll
                for (int k = 0; k < N; k++) dot += y[k] * dy[k];
            }
        }
        dot = bsri_dev_row_sum(p, r, dot);
        if (held) {
#pragma unroll
            for (int i = 0; i < HELD; i++)
                if (has(i)) piece::load(y, raw[0][i]), piece::load(dy, raw[1][i]), gradient(y, dy, dot, to[i]);
        } else {
            for (int j = r.lane; j < n; j += p.lanes) read(y, r.x, at(j)), read(dy, r.dy, at(j)), gradient(y, dy, dot, at(j));
        }
    }
};
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 800 || __CUDA_ARCH__ >= 1000)
#define BSRI_SOFTMAX_CTAS 4 /* all that an SM has room for; without spilled registers */
#else
#define BSRI_SOFTMAX_CTAS 5
#endif
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::BACKWARD ? 2 : BSRI_SOFTMAX_CTAS)
    bsri_softmax_fast(const __grid_constant__ bsri_dev_softmax p BSRI_GATE) {
    typedef bsri_stored<typename L::type> D;
    typedef typename D::stored T;
    constexpr bool BACKWARD = L::BACKWARD;
#if __CUDA_ARCH__ >= 900
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
#endif
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < p.work; work += gridDim.x) {
        bsri_dev_row r(p, work);
        bsri_softmax_packed<T> one(p, r);
        const int64_t first = r.first * p.xs[0] + r.inner * p.xs[1], next = p.xs[1] << p.side;
        const int64_t size = bsri_dev_size(p.out.dtype);
        r.x.values += first * (int64_t)sizeof(T), r.out.values += first * size;
        if (!BACKWARD) {
            one.forward(next * (int64_t)sizeof(T), next * size);
            continue;
        }
        r.dy.values += first * (int64_t)sizeof(T);
        for (int i = 0; i < p.run; i++) {
            one.backward();
            r.x.values += next * (int64_t)sizeof(T), r.dy.values += next * (int64_t)sizeof(T), r.out.values += next * size;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-softmax-rows: rows of stored elements of any kind: with biases, in f64, any stride    */
/* ---------------------------------------------------------------------------------------------- */

/* N elements side by side, as they are stored. */
template <class V, int N> struct alignas(N * sizeof(V) < 16 ? N * sizeof(V) : 16) bsri_dev_neighbours {
    V x[N];
};
/* FEW pieces of N neighbours each of a bias, through `as` into F. */
template <class V, class F, int N, int FEW, class As>
__device__ __forceinline__ void bsri_dev_bias_read(F (&b)[FEW][N], const char *const (&from)[FEW], const As &as) {
    bsri_dev_neighbours<V, N> all[FEW];
#pragma unroll
    for (int i = 0; i < FEW; i++) all[i] = *(const bsri_dev_neighbours<V, N> *)from[i];
#pragma unroll
    for (int i = 0; i < FEW; i++)
#pragma unroll
        for (int k = 0; k < N; k++) b[i][k] = as(all[i].x[k]);
}
/* Scores with a bias, as bsri_dev_bias() has it. */
template <class F, int N, int FEW>
__device__ __forceinline__ void bsri_dev_bias_add(F (&s)[FEW][N], const char *const (&from)[FEW], int dtype, int mode) {
    const bool forbids = mode == BSR_MASK_MUL;
    const F limit = forbids ? F(0) : -bsri_dev_inf<F>();
    F b[FEW][N];
    switch (dtype) {
        case BSR_F16: bsri_dev_bias_read<__half>(b, from, [](__half x) { return (F)__half2float(x); }); break;
        case BSR_BF16: bsri_dev_bias_read<__nv_bfloat16>(b, from, [](__nv_bfloat16 x) { return (F)__bfloat162float(x); }); break;
        case BSR_F32: bsri_dev_bias_read<float>(b, from, [](float x) { return (F)x; }); break;
        case BSR_F64: /* the smallest numbers are not zero */
            bsri_dev_bias_read<double>(b, from, [&](double x) { return forbids ? (F)(x != 0) : (F)x; });
            break;
        case BSR_BOOL: bsri_dev_bias_read<uint8_t>(b, from, [](uint8_t x) { return (F)(x != 0); }); break;
        default: bsri_dev_bias_read<int8_t>(b, from, [](int8_t x) { return (F)x; }); break;
    }
#pragma unroll
    for (int i = 0; i < FEW; i++)
#pragma unroll
        for (int k = 0; k < N; k++) s[i][k] = b[i][k] == limit ? -bsri_dev_inf<F>() : s[i][k] + (forbids ? F(0) : b[i][k]);
}
/* Rows of any kind: with biases, in f64, of any type, stride and block size, by pieces of N elements: 16 bytes of packed values,
   or single ones (N 1). Scores of a row that fits stay in shared memory as they are computed, in F, each of a thread's p.slots
   pieces in places of its own; of a longer row they are computed twice. FEW pieces are on their way at a time. */
template <class L> struct bsri_softmax_rows {
    typedef typename L::real F;
    typedef typename bsri_stored<typename L::type>::stored T;
    static constexpr int N = L::PIECE, FEW = N == 1 ? 4 : N == 8 ? 1 : 2;
    static constexpr int BYTES = N * (int)sizeof(F), WORD = BYTES < 16 ? BYTES : 16;
    typedef bsri_dev_neighbours<F, WORD / (int)sizeof(F)> word;
    const bsri_dev_softmax &p;
    bsri_dev_row &r;
    int64_t n;           /* pieces of the row */
    const char *bias[3]; /* where the row's begin */

    /* A piece: which of the row's blocks it is in, and where in that block's row. */
    struct place {
        int64_t block;
        int32_t piece;
    };
    __device__ __forceinline__ bsri_softmax_rows(const bsri_dev_softmax &p_, bsri_dev_row &r_) : p(p_), r(r_) {
        n = r.count / N;
#pragma unroll
        for (int i = 0; i < 3; i++)
            bias[i] = !r.valid || i >= p.biased ? nullptr
                                                : bsri_dev_bias_base(&p.batch, r.item, &p.bias[i]) + r.row * p.bias_row[i];
    }
    __device__ __forceinline__ void next_row() {
        r.inner += (int64_t)1 << p.side;
#pragma unroll
        for (int i = 0; i < 3; i++) bias[i] += p.bias_row[i] << p.side;
    }
    __device__ __forceinline__ int64_t element(const int64_t (&s)[3], const place &at) const {
        return (r.first + at.block) * s[0] + r.inner * s[1] + at.piece * N * s[2];
    }
    /* f(places, how many of them, first slot) for all of the lane's pieces; places past the last one repeat it. */
    template <class G> __device__ __forceinline__ void each(const G &f) const {
        place next = {r.lane / p.chunks, r.lane % p.chunks};
#pragma unroll 1
        for (int64_t j = r.lane, slot = 0; j < n; j += FEW * p.lanes, slot += FEW) {
            const int count = (int)bsri_min(FEW, (n - 1 - j) / p.lanes + 1);
            place at[FEW];
#pragma unroll
            for (int i = 0; i < FEW; i++) {
                at[i] = i < count ? next : at[i ? i - 1 : 0];
                next.block += p.step_blocks, next.piece += p.step_pieces;
                if (next.piece >= p.chunks) next.piece -= p.chunks, next.block++;
            }
            f(at, count, (int)slot);
        }
    }
    __device__ __forceinline__ void read(F (&v)[FEW][N], const bsri_item &it, int dtype, const int64_t (&s)[3],
                                         const place (&at)[FEW]) const {
        if constexpr (N == 1) {
#pragma unroll
            for (int i = 0; i < FEW; i++) v[i][0] = bsri_dev_number<F>(it.values, dtype, element(s, at[i]));
        } else {
            uint4 raw[FEW];
#pragma unroll
            for (int i = 0; i < FEW; i++) raw[i] = *(const uint4 *)(it.values + element(s, at[i]) * (int64_t)sizeof(T));
#pragma unroll
            for (int i = 0; i < FEW; i++) bsri_dev_piece<T>::load(v[i], raw[i]);
        }
    }
    __device__ __forceinline__ void write(const F (&v)[N], const place &at) const {
        if constexpr (N == 1) bsri_dev_store(r.out.values, p.out.dtype, element(p.os, at), v[0]);
        else bsri_dev_store_piece<T>(r.out.values, p.out.dtype, element(p.os, at), v);
    }
    __device__ __forceinline__ void scores(F (&v)[FEW][N], const place (&at)[FEW]) const {
        int64_t col[FEW];
        if (p.biased)
#pragma unroll
            for (int i = 0; i < FEW; i++)
                col[i] = bsri_index(r.x.col, p.x.index_dtype, r.first + at[i].block) * p.x.block_cols + at[i].piece * N;
        read(v, r.x, p.x.dtype, p.xs, at);
#pragma unroll
        for (int i = 0; i < FEW; i++)
#pragma unroll
            for (int k = 0; k < N; k++) v[i][k] *= (F)p.scale;
#pragma unroll 1
        for (int b = 0; b < p.biased; b++) {
            const char *base = b == 0 ? bias[0] : b == 1 ? bias[1] : bias[2], *from[FEW];
#pragma unroll
            for (int i = 0; i < FEW; i++) from[i] = base + col[i] * p.bias_col[b];
            bsri_dev_bias_add(v, from, p.bias[b].dtype, p.mode[b]);
        }
    }
    static __device__ __forceinline__ F finite(F max) { return max == -bsri_dev_inf<F>() ? F(0) : max; }
    static __device__ __forceinline__ F exponentials(F (&v)[N], F base) {
        F sum = 0;
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = bsri_dev_exp(v[k] - base), sum += v[k];
        return sum;
    }
    static __device__ __forceinline__ F largest(const F (&v)[N], F max) {
#pragma unroll
        for (int k = 0; k < N; k++) max = bsri_dev_max(max, v[k]);
        return max;
    }
    static __device__ __forceinline__ char *held(int slot) {
        extern __shared__ __align__(1024) char bsri_shared[];
        return bsri_shared + slot * BYTES * (int)blockDim.x + threadIdx.x * WORD;
    }
    static __device__ __forceinline__ void keep(int slot, const F (&v)[N]) {
#pragma unroll
        for (int k = 0; k < N; k += WORD / (int)sizeof(F)) {
            word w;
#pragma unroll
            for (int i = 0; i < WORD / (int)sizeof(F); i++) w.x[i] = v[k + i];
            *(word *)(held(slot) + k * (int)sizeof(F) * (int)blockDim.x) = w;
        }
    }
    static __device__ __forceinline__ void kept(int slot, F (&v)[N]) {
#pragma unroll
        for (int k = 0; k < N; k += WORD / (int)sizeof(F)) {
            const word w = *(const word *)(held(slot) + k * (int)sizeof(F) * (int)blockDim.x);
#pragma unroll
            for (int i = 0; i < WORD / (int)sizeof(F); i++) v[k + i] = w.x[i];
        }
    }
    static __device__ __forceinline__ F factor_of(F max, F sum) {
        return max == -bsri_dev_inf<F>() ? F(0) : bsri_dev_row_factor(max, sum);
    }
    /* Exponentials against the warp's own maximum: the row's is needed only at the end. */
    __device__ __forceinline__ void forward_held() const {
        F max = -bsri_dev_inf<F>(), sum = 0;
        each([&](const place(&at)[FEW], int count, int slot) {
            F v[FEW][N];
            scores(v, at);
#pragma unroll
            for (int i = 0; i < FEW; i++)
                if (i < count) keep(slot + i, v[i]), max = largest(v[i], max);
        });
        bsri_dev_row_lanes(p, [&](int d) { max = bsri_dev_max(max, __shfl_xor_sync(~0u, max, d)); });
        const F mine = max, base = finite(max);
        const int slots = r.lane < n ? (int)((n - 1 - r.lane) / p.lanes) + 1 : 0;
#pragma unroll 1
        for (int i = 0; i < slots; i++) {
            F v[N];
            kept(i, v), sum += exponentials(v, base), keep(i, v);
        }
        bsri_dev_row_lanes(p, [&](int d) { sum += __shfl_xor_sync(~0u, sum, d); });
        const auto fold = [](F &m, F &s, F other_max, F other_sum) { bsri_dev_fold(m, s, other_max, other_sum); };
        bsri_dev_row_join(p, r, max, sum, fold);
        const F factor = factor_of(max, sum) * (mine == max ? F(1) : bsri_dev_exp(mine - max));
        each([&](const place(&at)[FEW], int count, int slot) {
#pragma unroll
            for (int i = 0; i < FEW; i++)
                if (i < count) {
                    F v[N];
                    kept(slot + i, v);
#pragma unroll
                    for (int k = 0; k < N; k++) v[k] *= factor;
                    write(v, at[i]);
                }
        });
    }
    __device__ __forceinline__ void forward_long() const {
        F max = -bsri_dev_inf<F>(), sum = 0;
        each([&](const place(&at)[FEW], int count, int) {
            F v[FEW][N];
            scores(v, at);
#pragma unroll
            for (int i = 0; i < FEW; i++)
                if (i < count) {
                    const F m = largest(v[i], max);
                    if (max != m) sum *= bsri_dev_exp(max - finite(m)), max = m;
                    sum += exponentials(v[i], finite(max));
                }
        });
        bsri_dev_row_fold(p, r, max, sum);
        const F factor = factor_of(max, sum), base = finite(max);
        each([&](const place(&at)[FEW], int count, int) {
            F v[FEW][N];
            scores(v, at);
#pragma unroll
            for (int i = 0; i < FEW; i++)
                if (i < count) {
                    exponentials(v[i], base);
#pragma unroll
                    for (int k = 0; k < N; k++) v[i][k] *= factor;
                    write(v[i], at[i]);
                }
        });
    }
    __device__ __forceinline__ void backward() const {
        F dot = 0;
        each([&](const place(&at)[FEW], int count, int) {
            F y[FEW][N], dy[FEW][N];
            read(y, r.x, p.x.dtype, p.xs, at), read(dy, r.dy, p.dy.dtype, p.ds, at);
#pragma unroll
            for (int i = 0; i < FEW; i++)
#pragma unroll
                for (int k = 0; k < N; k++) dot += i < count ? y[i][k] * dy[i][k] : F(0);
        });
        dot = bsri_dev_row_sum(p, r, dot);
        each([&](const place(&at)[FEW], int count, int) {
            F y[FEW][N], dy[FEW][N];
            read(y, r.x, p.x.dtype, p.xs, at), read(dy, r.dy, p.dy.dtype, p.ds, at);
#pragma unroll
            for (int i = 0; i < FEW; i++) {
#pragma unroll
                for (int k = 0; k < N; k++) y[i][k] *= (dy[i][k] - dot) * (F)p.scale;
                if (i < count) write(y[i], at[i]);
            }
        });
    }
};
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::CTAS - (sizeof(typename L::real) == 8 && BSRI_MMA_FULL))
    bsri_softmax_simt(const __grid_constant__ bsri_dev_softmax p BSRI_GATE) {
#if __CUDA_ARCH__ >= 900
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
#endif
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < p.work; work += gridDim.x) {
        bsri_dev_row r(p, work);
        bsri_softmax_rows<L> one(p, r);
        const bool longer = __any_sync(~0u, one.n > (int64_t)p.slots * p.lanes);
#pragma unroll 1
        for (int i = 0; i < p.run; i++, one.next_row()) {
            if (L::BACKWARD && p.backward) one.backward();
            else if (longer) one.forward_long();
            else one.forward_held();
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-scores: what happens to a score                                                    */
/* ---------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float bsri_dev_user_score(int id, float s, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    switch (id) {
#ifdef BSR_USER_SCORES
#define BSRI_X(name) \
    case BSR_SCORE_##name: return name(s, at, user_data);
        BSR_USER_SCORES(BSRI_X)
#undef BSRI_X
#endif
        default: return s;
    }
}
__device__ __forceinline__ int bsri_dev_user_mask(int id, const bsr_position *at, const void *user_data) {
    (void)at, (void)user_data;
    switch (id) {
#ifdef BSR_USER_MASKS
#define BSRI_X(name) \
    case BSR_MASK_##name: return name(at, user_data);
        BSR_USER_MASKS(BSRI_X)
#undef BSRI_X
#endif
        default: return 1;
    }
}

/* Philox4x32-10 for columns 4*group .. 4*group+3; as bsri_philox. */
__device__ __forceinline__ uint4 bsri_dev_philox(uint64_t seed, int64_t group, int64_t row, int64_t head, int64_t batch) {
    uint32_t x0 = (uint32_t)group, x1 = (uint32_t)row, x2 = (uint32_t)head, x3 = (uint32_t)batch;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint32_t h0 = __umulhi(x0, 0xD2511F53u), l0 = x0 * 0xD2511F53u, h1 = __umulhi(x2, 0xCD9E8D57u),
                       l1 = x2 * 0xCD9E8D57u;
        x0 = h1 ^ x1 ^ k0, x1 = l1, x2 = h0 ^ x3 ^ k1, x3 = l0;
    }
    return make_uint4(x0, x1, x2, x3);
}

/* One query tile: operands of its batch item, place of its rows. */
struct bsri_dev_query {
    bsri_item mask;
    const char *q, *k, *v, *relative, *padding;
    int64_t item, batch, head, br, inner, row, panel; /* first row in the block row, of all */
    int rows;
    int64_t first, end, limit; /* stored blocks; keys that any row may attend to */
    int64_t out;               /* element of out where its first row starts */

    __device__ __forceinline__ bool begin(const bsri_dev_attention &p, int64_t work) {
        const int64_t per_item = p.panels * p.tiles * p.block_rows;
        item = bsri_divide(work, per_item), batch = bsri_divide(item, p.heads), head = item - batch * p.heads;
        int64_t n = work - item * per_item, tile;
        if (p.flags & BSR_ATTENTION_CAUSAL) n = per_item - 1 - n; /* long rows first */
        tile = bsri_divide(n, p.panels), panel = n - tile * p.panels, br = bsri_divide(tile, p.tiles);
        inner = (tile - br * p.tiles) * p.tile_rows, row = br * p.mask.block_rows + inner;
        rows = (int)bsri_min(bsri_min(p.tile_rows, p.mask.block_rows - inner), p.q.rows - row);
        if (rows <= 0) return false;
        mask = bsri_dev_matrix_item(&p.batch, item, &p.mask);
        q = bsri_dev_at(p.q.data, p.q.dtype, bsri_dense_offset(&p.batch, item, &p.q));
        k = bsri_dev_at(p.k.data, p.k.dtype, bsri_dense_offset(&p.batch, item - head + head / p.k_group, &p.k));
        v = bsri_dev_at(p.v.data, p.v.dtype, bsri_dense_offset(&p.batch, item - head + head / p.v_group, &p.v));
        relative = bsri_dev_bias_base(&p.batch, item, &p.relative), padding = bsri_dev_bias_base(&p.batch, item, &p.padding);
        first = bsri_index(mask.crow, p.mask.index_dtype, br), end = bsri_index(mask.crow, p.mask.index_dtype, br + 1);
        out = bsri_dense_offset(&p.batch, item, &p.out) + row * p.out.row_stride;
        limit = p.k.rows;
        if (p.flags & BSR_ATTENTION_CAUSAL) limit = bsri_min(limit, row + rows + p.causal_offset);
        return true;
    }
    /* Everything between product and softmax for row + i and one column; `value` is the element of the mask's values. By columns
       of a tile: bsri_dev_modify_column(); the CPU's, by rows: bsri_attention_modify(). */
    template <class F>
    __device__ __forceinline__ F modify(const bsri_dev_attention &p, F s, int64_t i, int64_t col, int64_t value) const {
        const F none = -bsri_dev_inf<F>();
        bsr_position at;
        at.batch = batch, at.head = head, at.row = row + i, at.col = col;
        if (p.flags & BSR_ATTENTION_MASK_ADDITIVE) s = bsri_dev_bias(s, mask.values, p.mask.dtype, BSR_MASK_ADD, value);
        if (relative) s = bsri_dev_bias(s, relative, p.relative.dtype, BSR_MASK_ADD, bsri_dev_bias_at(&p.relative, at.row, col));
        if (padding && p.padding_mode == BSR_MASK_ADD)
            s = bsri_dev_bias(s, padding, p.padding.dtype, BSR_MASK_ADD, bsri_dev_bias_at(&p.padding, 0, col));
        if (p.score_function) s = (F)bsri_dev_user_score(p.score_function, (float)s, &at, p.user_data);
        if ((p.flags & BSR_ATTENTION_CAUSAL) && col > at.row + p.causal_offset) return none;
        if (p.flags & BSR_ATTENTION_MASK_BOOLEAN) s = bsri_dev_bias(s, mask.values, p.mask.dtype, BSR_MASK_MUL, value);
        if (p.mask_function && !bsri_dev_user_mask(p.mask_function, &at, p.user_data)) return none;
        if (padding && p.padding_mode == BSR_MASK_MUL)
            s = bsri_dev_bias(s, padding, p.padding.dtype, BSR_MASK_MUL, bsri_dev_bias_at(&p.padding, 0, col));
        return s;
    }
    __device__ __forceinline__ bool drop(const bsri_dev_attention &p, int64_t i, int64_t col) const {
        const uint4 word = bsri_dev_philox(p.seed, col / 4, row + i, head, batch);
        return (col & 2 ? (col & 1 ? word.w : word.z) : (col & 1 ? word.y : word.x)) <= p.drop_last;
    }
    __device__ __forceinline__ void store_lse(const bsri_dev_attention &p, int64_t i, double lse) const {
        bsri_dev_store(p.lse.data, p.lse.dtype, bsri_dense_offset(&p.batch, item, &p.lse) + (row + i) * p.lse.row_stride, lse);
    }
};

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-simt: any dtype, head size, block size, stride                                     */
/* ---------------------------------------------------------------------------------------------- */

/* Forbidden probabilities are -0: those of the others are >= +0, or NaN. */
template <class F> __device__ __forceinline__ bool bsri_dev_forbidden(F p);
template <> __device__ __forceinline__ bool bsri_dev_forbidden<float>(float p) { return __float_as_int(p) == INT32_MIN; }
template <> __device__ __forceinline__ bool bsri_dev_forbidden<double>(double p) { return __double_as_longlong(p) == INT64_MIN; }

/* A query tile of TM rows and TN columns of v: panels of v's columns form the scores anew. */
template <class F, class Tile> struct bsri_attention_simt_tile {
    static constexpr int TM = Tile::TM, TN = Tile::TN, KC = Tile::KC;
    typedef F sums[Tile::RM][Tile::RN];
    typename Tile::shared s;
    F score[TM][TN + 1], top[TM], sum[TM], factor[TM];

    __device__ __forceinline__ void lay(const sums &x, F scale) {
        const int tx = threadIdx.x % Tile::TX, ty = threadIdx.x / Tile::TX;
#pragma unroll
        for (int i = 0; i < Tile::RM; i++)
#pragma unroll
            for (int j = 0; j < Tile::RN; j++) score[ty * Tile::RM + i][tx + j * Tile::TX] = x[i][j] * scale;
        __syncthreads();
    }
    /* What stands between product and softmax; scores beyond `width` are forbidden. value: of the mask's, of the first score. */
    __device__ __forceinline__ void modify(const bsri_dev_attention &p, const bsri_dev_query &t, int64_t col, int width,
                                           int64_t value) {
        for (int i = threadIdx.x; i < t.rows * TN; i += 256) {
            const int m = i / TN, n = i % TN;
            F &x = score[m][n];
            if (n >= width) x = -bsri_dev_inf<F>();
            else x = t.modify(p, x, m, col + n, value + m * p.ms[1] + n * p.ms[2]);
        }
        __syncthreads();
    }
    /* Scores become probabilities, relative to the highest so far; factor: what is there is to be multiplied by. A warp a row. */
    __device__ __forceinline__ void fold(const bsri_dev_attention &p, const bsri_dev_query &t, int64_t col, int width) {
        const int lane = threadIdx.x % 32;
        for (int m = threadIdx.x / 32; m < t.rows; m += 8) {
            F max = top[m], part = 0;
            for (int n = lane; n < TN; n += 32) max = bsri_dev_max(max, score[m][n]);
            for (int d = 16; d; d /= 2) max = bsri_dev_max(max, __shfl_xor_sync(~0u, max, d));
            for (int n = lane; n < TN; n += 32) {
                const F x = score[m][n];
                F e = x == -bsri_dev_inf<F>() ? F(-0.0) : bsri_dev_exp(x - max);
                part += e;
                if (p.drops && n < width && !bsri_dev_forbidden(e) && t.drop(p, m, col + n)) e = 0;
                score[m][n] = e;
            }
            for (int d = 16; d; d /= 2) part += __shfl_xor_sync(~0u, part, d);
            if (lane == 0) {
                factor[m] = max == top[m] ? F(1) : bsri_dev_exp(top[m] - max);
                sum[m] = sum[m] * factor[m] + part, top[m] = max;
            }
            __syncwarp();
        }
        __syncthreads();
    }
    /* Adds probabilities times `width` rows of v from row `col` on, columns [d0, d0 + depth). */
    __device__ __forceinline__ void add(const bsri_dev_attention &p, const bsri_dev_query &t, sums &out, int64_t col, int width,
                                        int64_t d0, int64_t depth) {
        const int tx = threadIdx.x % Tile::TX, ty = threadIdx.x / Tile::TX;
#pragma unroll
        for (int i = 0; i < Tile::RM; i++)
#pragma unroll
            for (int j = 0; j < Tile::RN; j++)
                if (ty * Tile::RM + i < t.rows) out[i][j] *= factor[ty * Tile::RM + i];
        for (int k0 = 0; k0 < width; k0 += KC) {
            const int kc = width - k0 < KC ? width - k0 : KC;
            for (int i = threadIdx.x; i < TN * KC; i += 256) {
                const int n = p.v.col_stride == 1 ? i % TN : i / KC, k = p.v.col_stride == 1 ? i / TN : i % KC;
                const int64_t at = (col + k0 + k) * p.v.row_stride + (d0 + n) * p.v.col_stride;
                s.b[k][n] = n < depth && k < kc ? bsri_dev_number<F>(t.v, p.v.dtype, at) : F(0);
            }
            __syncthreads();
            for (int k = 0; k < kc; k++) {
#pragma unroll
                for (int i = 0; i < Tile::RM; i++) {
                    const F x = score[ty * Tile::RM + i][k0 + k];
                    if (bsri_dev_forbidden(x) || ty * Tile::RM + i >= t.rows) continue; /* whatever v holds */
#pragma unroll
                    for (int j = 0; j < Tile::RN; j++) out[i][j] += x * s.b[k][tx + j * Tile::TX];
                }
            }
            __syncthreads();
        }
    }
    /* What lay() put there, divided, and the log-sum-exp. */
    __device__ __forceinline__ void store(const bsri_dev_attention &p, const bsri_dev_query &t, int64_t d0,
                                          int64_t depth) const {
        /* as t.out, computed again: kept until here it takes registers (note N24) */
        const int64_t first = bsri_dense_offset(&p.batch, t.item, &p.out) + t.row * p.out.row_stride + d0 * p.out.col_stride;
        const int own = threadIdx.x;
        for (int i = own; i < t.rows * TN; i += 256) {
            const int m = i / TN, n = i % TN;
            if (n >= depth) continue;
            const F x = score[m][n], max = top[m];
            const F y =
                max < bsri_dev_inf<F>() ? (max > -bsri_dev_inf<F>() ? x * ((F)p.keep_scale / sum[m]) : F(0)) : bsri_dev_nan<F>();
            bsri_dev_store(p.out.data, p.out.dtype, first + m * p.out.row_stride + n * p.out.col_stride, y);
        }
        if (p.lse.data && t.panel == 0 && own < t.rows) {
            const F max = top[own];
            const bool some = max > -bsri_dev_inf<F>() && max < bsri_dev_inf<F>();
            t.store_lse(p, own, some ? (double)max + log((double)sum[own]) : (double)max);
        }
        __syncthreads();
    }
};
/* Two CTAs of small tiles a multiprocessor: with one, blocks of 16 take much longer (note N24). */
template <class L>
__global__ void __launch_bounds__(L::THREADS, L::ROWS == 16 ? 2 : 1)
    bsri_attention_simt(const __grid_constant__ bsri_dev_attention p BSRI_GATE) {
    BSRI_ENTER;
    typedef bsri_simt<L> Tile;
    typedef typename L::number F;
    __shared__ bsri_attention_simt_tile<F, Tile> tile;
    const int64_t total = p.items * p.panels * p.tiles * p.block_rows, bc = p.mask.block_cols;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        bsri_dev_query t;
        if (!t.begin(p, work)) continue;
        const int64_t d0 = t.panel * Tile::TN, depth = bsri_min(Tile::TN, p.v.cols - d0);
        F out[Tile::RM][Tile::RN] = {};
        if (threadIdx.x < Tile::TM) tile.top[threadIdx.x] = -bsri_dev_inf<F>(), tile.sum[threadIdx.x] = 0;
        for (int64_t at = t.first; at < t.end; at++) {
            const int64_t first = bsri_index(t.mask.col, p.mask.index_dtype, at) * bc, end = bsri_min(bc, t.limit - first);
            for (int64_t in = 0; in < end; in += Tile::TN) {
                const int64_t col = first + in;
                const int width = (int)bsri_min(Tile::TN, end - in);
                F product[Tile::RM][Tile::RN] = {};
                Tile::multiply(tile.s, product, t.q, p.q.dtype, t.row * p.q.row_stride, p.q.row_stride, p.q.col_stride, t.rows,
                               t.k, col * p.k.row_stride, p.k.col_stride, p.k.row_stride, width, p.q.cols);
                tile.lay(product, (F)p.scale);
                tile.modify(p, t, col, width, at * p.ms[0] + t.inner * p.ms[1] + in * p.ms[2]);
                tile.fold(p, t, col, width), tile.add(p, t, out, col, width, d0, depth);
            }
        }
        __syncthreads();
        tile.lay(out, F(1)), tile.store(p, t, d0, depth);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-mma-scores: which keys a tile of query rows needs, scores changed column by column */
/* ---------------------------------------------------------------------------------------------- */

/* to = from where a == b; opaque to the compiler, which would turn a chain of these into an array in local memory. */
__device__ __forceinline__ void bsri_dev_pick(uint32_t &to, uint32_t from, int a, int b) {
    asm volatile("{.reg .pred p; setp.eq.s32 p, %2, %3; selp.b32 %0, %1, %0, p;}" : "+r"(to) : "r"(from), "r"(a), "r"(b));
}

/* Keeps what is computed from x where it stands. */
__device__ __forceinline__ void bsri_dev_opaque(uint32_t &x) { asm volatile("" : "+r"(x)); }

/* Fragments of a row of tiles move one to the front, the first to the end: what a rolled loop does with registers. */
template <int N> __device__ __forceinline__ void bsri_dev_rotate(float (&x)[N][4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float first = x[0][e];
#pragma unroll
        for (int i = 0; i + 1 < N; i++) x[i][e] = x[i + 1][e];
        x[N - 1][e] = first;
    }
}
/* Two neighbours of a row of out, of any type and stride. */
__device__ __forceinline__ void bsri_attention_store(const bsri_dev_attention &p, int64_t at, float x, float y, int dtype) {
    const int64_t beside = at + p.out.col_stride;
    if (p.out.dtype == BSR_F32) {
        float *const out = (float *)p.out.data;
        if (p.vec2) *(float2 *)(out + at) = make_float2(x, y);
        else out[at] = x, out[beside] = y;
    } else {
        const uint32_t both = bsri_dev_pack(x, y, dtype);
        uint16_t *const out = (uint16_t *)p.out.data;
        out[at] = (uint16_t)both, out[beside] = (uint16_t)(both >> 16);
    }
}

#define BSRI_NO_KEY 0x7fffff00 /* a unit that is not there: beyond every limit */
#define BSRI_LAZY 8.0f         /* the output is rescaled when the maximum has grown by this power of two */

/* The units of a block row that some row may attend to, 32 at a time: lane i holds the i-th. Every warp of a tile walks the
   same list. */
struct bsri_dev_units {
    int key, block, count, tile; /* of this lane; number held; next tile among them */
    int at;

    __device__ __forceinline__ void begin() { at = 0, count = 0, tile = 0, key = BSRI_NO_KEY, block = 0; }
    __device__ __forceinline__ void refill(const bsri_dev_attention &p, const bsri_dev_query &t) {
        const int lane = threadIdx.x % 32, per_block = (int)(p.mask.block_cols / 16), total = (int)(t.end - t.first) * per_block;
        uint32_t have = 0;
        for (tile = 0; !have && at < total; at += 32) {
            const int u = at + lane, n = (int)((uint32_t)u / (uint32_t)per_block);
            key = BSRI_NO_KEY, block = n;
            if (u < total) {
                const int64_t k =
                    bsri_index(t.mask.col, p.mask.index_dtype, t.first + n) * p.mask.block_cols + (u - n * per_block) * 16;
                if (k < t.limit) key = (int)k;
            }
            have = __ballot_sync(~0u, key != BSRI_NO_KEY);
        }
        count = __popc(have);
        if (have & (have + 1)) { /* close the gaps */
            const int from = lane < count ? (int)__fns(have, 0, lane + 1) : 0;
            const int k = __shfl_sync(~0u, key, from);
            block = __shfl_sync(~0u, block, from), key = lane < count ? k : BSRI_NO_KEY;
        }
    }
    /* The next tile: lane i gets unit i % 4. False: there is none. */
    __device__ __forceinline__ bool next(const bsri_dev_attention &p, const bsri_dev_query &t, int &unit_key, int &unit_block) {
        if (tile * 4 >= count) refill(p, t);
        if (!count) return false;
        const int from = (tile * 4 + (int)threadIdx.x % 4) % 32;
        unit_key = __shfl_sync(~0u, key, from), unit_block = __shfl_sync(~0u, block, from);
        tile++;
        return true;
    }
};

/* So many rows of a column at a time; fewer where ptxas would spill registers. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
enum { BSRI_COLUMN = 8 };
#else
enum { BSRI_COLUMN = 16 };
#endif
/* The elements of rows of a column, all loads before the first use. */
__device__ __forceinline__ void bsri_dev_column(float (&v)[BSRI_COLUMN], const void *data, int dtype, int64_t at, int64_t step,
                                                int rows) {
    if (bsri_dev_size(dtype) == 1) {
        uint8_t byte[BSRI_COLUMN];
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++) byte[r] = r < rows ? ((const uint8_t *)data)[at + r * step] : 0;
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++) v[r] = dtype == BSR_I8 ? (float)(int8_t)byte[r] : (float)(byte[r] != 0);
    } else if (dtype == BSR_F32) {
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++) v[r] = r < rows ? ((const float *)data)[at + r * step] : 0;
    } else if (dtype == BSR_F16 || dtype == BSR_BF16) {
        uint16_t half[BSRI_COLUMN];
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++) half[r] = r < rows ? ((const uint16_t *)data)[at + r * step] : 0;
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++)
            v[r] = dtype == BSR_BF16 ? __uint_as_float((uint32_t)half[r] << 16) : __half2float(__ushort_as_half(half[r]));
    } else {
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++)
            v[r] = r >= rows             ? 0.0f
                   : dtype == BSR_F64    ? (float)((const double *)data)[at + r * step]
                   : dtype == BSR_I32    ? (float)((const int32_t *)data)[at + r * step]
                                         : (float)((const int64_t *)data)[at + r * step];
    }
}
/* The scores of a column with additions of a bias, or forbidden where it is zero. */
__device__ __forceinline__ void bsri_dev_column_bias(float (&x)[BSRI_COLUMN], const void *data, int dtype, int mode, int64_t at,
                                                     int64_t step, int rows) {
    float v[BSRI_COLUMN];
    bsri_dev_column(v, data, dtype, at, step, rows);
    if (mode == BSR_MASK_MUL && dtype == BSR_F64) { /* no f64 is too small */
#pragma unroll
        for (int r = 0; r < BSRI_COLUMN; r++) v[r] = r < rows && ((const double *)data)[at + r * step] != 0;
    }
#pragma unroll
    for (int r = 0; r < BSRI_COLUMN; r++) {
        if (mode == BSR_MASK_MUL) x[r] = v[r] == 0 ? -bsri_dev_inf<float>() : x[r];
        else x[r] = v[r] == -bsri_dev_inf<float>() ? v[r] : x[r] + v[r];
    }
}
/* bsri_dev_query::modify() for BSRI_COLUMN rows from row i on of a column, which stand in `stage`, ld apart. A term's
   loads for all rows are on their way together, so the terms stand here once more, in the same order. */
__device__ __forceinline__ void bsri_dev_modify_column(const bsri_dev_attention &p, const bsri_dev_query &t, float *stage, int ld,
                                                       int i, int key, bool some, int64_t block) {
    const float none = -bsri_dev_inf<float>();
    const int rows = some ? min((int)BSRI_COLUMN, t.rows - i) : 0;
    const int64_t row = t.row + i, value = block * p.ms[0] + (t.inner + i) * p.ms[1] + key % (int)p.mask.block_cols * p.ms[2];
    float x[BSRI_COLUMN];
    bsr_position at;
    at.batch = t.batch, at.head = t.head, at.row = row, at.col = key;
#pragma unroll
    for (int r = 0; r < BSRI_COLUMN; r++) x[r] = stage[r * ld];
#pragma unroll 1
    for (int part = 0; part < 3; part++) { /* rolled: additive mask; relative bias, padding, score function; boolean mask */
        const bool relative = part == 1;
        if (relative ? t.relative != NULL : (p.flags & (part ? BSR_ATTENTION_MASK_BOOLEAN : BSR_ATTENTION_MASK_ADDITIVE)) != 0)
            bsri_dev_column_bias(x, relative ? (const void *)t.relative : t.mask.values,
                                 relative ? p.relative.dtype : p.mask.dtype, part == 2 ? BSR_MASK_MUL : BSR_MASK_ADD,
                                 relative ? bsri_dev_bias_at(&p.relative, row, key) : value,
                                 !relative                ? p.ms[1]
                                 : p.relative.rows == 1 ? 0
                                                        : p.relative.row_stride,
                                 rows);
        if (!relative) continue;
        if (t.padding && p.padding_mode == BSR_MASK_ADD && rows > 0) {
            const float pad = bsri_dev_load<float>(t.padding, p.padding.dtype, bsri_dev_bias_at(&p.padding, 0, key));
#pragma unroll
            for (int r = 0; r < BSRI_COLUMN; r++) x[r] = pad == none ? none : x[r] + pad;
        }
        if (p.score_function) { /* rolled: the function's code stands here once */
#pragma unroll
            for (int r = 0; r < BSRI_COLUMN; r++) stage[r * ld] = x[r];
#pragma unroll 1
            for (int r = 0; r < rows; r++, at.row++)
                stage[r * ld] = bsri_dev_user_score(p.score_function, stage[r * ld], &at, p.user_data);
#pragma unroll
            for (int r = 0; r < BSRI_COLUMN; r++) x[r] = stage[r * ld];
        }
    }
    uint32_t open = rows > 0 ? (1u << rows) - 1 : 0; /* one bit a row */
    if (p.flags & BSR_ATTENTION_CAUSAL) {
        const int64_t shut = key - row - p.causal_offset; /* rows above the diagonal */
        open &= shut >= BSRI_COLUMN ? 0 : shut > 0 ? ~0u << shut : ~0u;
    }
    if (t.padding && p.padding_mode == BSR_MASK_MUL && rows > 0 &&
        bsri_dev_bias(0.0f, t.padding, p.padding.dtype, BSR_MASK_MUL, bsri_dev_bias_at(&p.padding, 0, key)) == none)
        open = 0;
    if (p.mask_function) {
        at.row = row;
#pragma unroll 1
        for (int r = 0; r < rows; r++, at.row++)
            if (!bsri_dev_user_mask(p.mask_function, &at, p.user_data)) open &= ~(1u << r);
    }
#pragma unroll
    for (int r = 0; r < BSRI_COLUMN; r++) stage[r * ld] = open >> r & 1 ? x[r] : none;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-mma: f16 and bf16 on tensor cores, scores and output in registers                  */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_MMA_CODE
/* A warp's MT tiles of 16 query rows. FULL: everything between product and softmax, by way of shared memory so that its code
   stands here once; otherwise only causality, with scale > 0. */
template <class T, int HD, int MT, bool FULL> struct bsri_attention_warp {
    static constexpr int CH = HD / 8, KS = HD / 16, NT = BSRI_KEYS / 8, LD = BSRI_KEYS + 4;
    static constexpr bool HOLD_Q = MT * HD <= 128;
    static constexpr uint32_t EXPONENT = T::DTYPE == BSR_F16 ? 0x7c00 : 0x7f80; /* all ones: no finite number */
    typedef float scores[MT][NT][4];
    typedef uint32_t parts[MT][NT / 2][4]; /* probabilities as an operand */

    const bsri_dev_attention &p;
    const bsri_dev_query &t;
    uint4 *const memory;
    const int lane, warp, quad, pair, query_rows, keys;
    const uint32_t sq, sk, sv; /* queries, keys, values in shared memory */
    float *const stage;
    const float unit; /* from scores to powers of two */
    int open;         /* keys that this lane's first row may attend to; the next rows, one more each */
    float out[MT][HD / 8][4], top[MT][2], sum[MT][2];
    uint32_t q[HOLD_Q ? MT : 1][HOLD_Q ? KS : 1][4];

    __device__ __forceinline__ bsri_attention_warp(const bsri_dev_attention &params, const bsri_dev_query &query, uint4 *shared)
        : p(params), t(query), memory(shared), lane(threadIdx.x % 32), warp(threadIdx.x / 32), quad(lane / 4), pair(lane % 4 * 2),
          query_rows((int)blockDim.x / 2 * MT), keys((int)p.k.rows), sq(bsri_smem_address(memory)), sk(sq + query_rows * HD * 2),
          sv(sk + BSRI_KEYS * HD * 2),
          stage((float *)((char *)memory + (query_rows + 2 * BSRI_KEYS) * HD * 2) + warp * 16 * LD),
          unit(FULL ? BSRI_DEV_LOG2E : p.unit) {}
    __device__ __forceinline__ void begin() {
        open = p.flags & BSR_ATTENTION_CAUSAL
                   ? (int)bsri_max(-0x3fffffff, bsri_min(0x7f000000, t.row + warp * 16 * MT + quad + 1 + p.causal_offset))
                   : 0x7f000000;
#pragma unroll
        for (int i = 0; i < MT; i++) {
            top[i][0] = top[i][1] = -bsri_dev_inf<float>(), sum[i][0] = sum[i][1] = 0;
#pragma unroll
            for (int d = 0; d < HD / 8 * 4; d++) out[i][d / 4][d % 4] = 0;
        }
    }
    __device__ __forceinline__ void load_queries() const {
#pragma unroll 1
        for (int i = threadIdx.x; i < query_rows * CH; i += blockDim.x) {
            const int r = i / CH, ch = i % CH;
            const bool some = r < t.rows && ch * 8 < p.q.cols;
            bsri_cp_async(sq + (r * CH + (ch ^ (r & 7))) * 16, some ? t.q + ((t.row + r) * p.q.row_stride + ch * 8) * 2 : t.q,
                          some ? 16 : 0);
        }
    }
    /* Keys or values of a tile: a warp copies whole units, four rows at a time, 128 bytes of each; swizzled so that eight
       rows of a column lie in all banks. */
    __device__ __forceinline__ void load(uint32_t to, const char *from, int64_t stride, int width, int held) const {
        const int r = lane / 8, ch = lane % 8;
        for (int u = warp; u < BSRI_KEYS / 16; u += (int)blockDim.x / 32) {
            const int key = __shfl_sync(~0u, held, u) + r;
            const char *row = from + (key * stride + ch * 8) * 2;
            const uint32_t at = to + (u * 16 + r) * HD * 2 + (ch ^ r) * 16;
#pragma unroll
            for (int g = 0; g < 4; g++, row += stride * 8) {
                const int room = key + g * 4 < keys ? width - ch * 8 : 0;
#pragma unroll
                for (int c = 0; c < CH / 8; c++)
                    bsri_cp_async((at ^ g % 2 * 64) + g * 4 * HD * 2 + c * 128, row + c * 128, c * 64 < room ? 16 : 0);
            }
        }
    }
    __device__ __forceinline__ void load_keys(int held) const { load(sk, t.k, p.k.row_stride, (int)p.k.cols, held); }
    __device__ __forceinline__ void load_values(int held) const { load(sv, t.v, p.v.row_stride, (int)p.v.cols, held); }
    /* Queries times keys. q_at, k_at: places of a warp's fragments: piece c is at (place ^ c * 16). Not hoisted piece by piece,
       for want of registers. The next fragment is fetched before this one is used. */
    __device__ __forceinline__ void form(scores &s, uint32_t (&b)[2][4], uint32_t q_at, uint32_t k_at, bool fresh) {
        if (HOLD_Q && fresh) {
#pragma unroll
            for (int i = 0; i < (HOLD_Q ? MT : 0); i++)
#pragma unroll
                for (int k = 0; k < KS; k++) bsri_mma_load(q[i][k], (q_at ^ k * 32) + i * 16 * HD * 2);
        }
        bsri_mma_load(b[0], k_at);
#pragma unroll
        for (int k = 0; k < KS; k++) {
            uint32_t a[MT][4];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                if (HOLD_Q) {
#pragma unroll
                    for (int e = 0; e < 4; e++) a[i][e] = q[HOLD_Q ? i : 0][HOLD_Q ? k : 0][e];
                } else {
                    bsri_mma_load(a[i], (q_at ^ k * 32) + i * 16 * HD * 2);
                }
            }
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                const int after = k * (NT / 2) + n + 1;
                if (after < KS * NT / 2)
                    bsri_mma_load(b[after % 2], (k_at ^ after / (NT / 2) * 32) + after % (NT / 2) * 16 * HD * 2);
#pragma unroll
                for (int i = 0; i < MT; i++)
                    bsri_mma<T>(s[i][2 * n], a[i], b[1 - after % 2][0], b[1 - after % 2][1]),
                        bsri_mma<T>(s[i][2 * n + 1], a[i], b[1 - after % 2][2], b[1 - after % 2][3]);
            }
        }
    }
    /* 16 rows of scores to shared memory, and back. */
    __device__ __forceinline__ void put(const float (&s)[NT][4]) const {
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e += 2)
                *(float2 *)&stage[(quad + e * 4) * LD + n * 8 + pair] = make_float2(s[n][e], s[n][e + 1]);
        __syncwarp();
    }
    __device__ __forceinline__ void get(float (&s)[NT][4]) const {
        __syncwarp();
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = stage[(quad + e / 2 * 8) * LD + n * 8 + pair + e % 2];
        __syncwarp();
    }
    /* What stands between product and softmax; whether a score may be forbidden where there is a value. cur, block: units. */
    __device__ __forceinline__ bool modify(scores &s, uint32_t (&forbidden)[MT], int cur, int block) const {
        bool shield = false;
        if (FULL) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int n = 0; n < NT * 4; n++) s[i][n / 4][n % 4] *= (float)p.scale;
        }
        if (FULL && p.modifies) {
#pragma unroll
            for (int i = 0; i < MT; i++) {
                put(s[i]);
                for (int h = 0; h < BSRI_KEYS / 32; h++) {
                    const int n = h * 32 + lane, key = __shfl_sync(~0u, cur, n / 16) + n % 16;
                    const int64_t at = t.first + __shfl_sync(~0u, block, n / 16);
#pragma unroll 1
                    for (int r = 0; r < 16; r += BSRI_COLUMN)
                        bsri_dev_modify_column(p, t, stage + r * LD + n, LD, (warp * MT + i) * 16 + r, key, key < keys, at);
                }
                get(s[i]);
#pragma unroll
                for (int n = 0; n < NT * 4; n++)
                    if (s[i][n / 4][n % 4] == -bsri_dev_inf<float>()) forbidden[i] |= 1u << n;
                shield |= __any_sync(~0u, forbidden[i] != 0);
            }
        } else if (__any_sync(~0u, cur + 15 >= min(keys, open - quad))) {
            shield = (p.flags & BSR_ATTENTION_CAUSAL) != 0;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const int key = __shfl_sync(~0u, cur, n / 2) + n % 2 * 8 + pair;
#pragma unroll
                for (int i = 0; i < MT; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        if (key + e % 2 >= min(keys, open + i * 16 + e / 2 * 8)) s[i][n][e] = -bsri_dev_inf<float>();
                        if (s[i][n][e] == -bsri_dev_inf<float>()) forbidden[i] |= 1u << (n * 4 + e);
                    }
            }
        }
        return shield;
    }
    /* Online softmax: scores become probabilities. A maximum that has hardly grown stays the reference. */
    __device__ __forceinline__ void fold(scores &s) {
        bool grown = false;
        float high[MT][2];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float m = bsri_dev_max(s[i][0][2 * h], s[i][0][2 * h + 1]);
#pragma unroll
                for (int n = 1; n < NT; n++) m = bsri_dev_max(m, bsri_dev_max(s[i][n][2 * h], s[i][n][2 * h + 1]));
                high[i][h] = m, grown |= !(m * unit <= fmaf(top[i][h], unit, BSRI_LAZY));
            }
        if (__any_sync(~0u, grown)) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float m = bsri_dev_max(high[i][h], top[i][h]);
                    m = bsri_dev_max(m, __shfl_xor_sync(~0u, m, 1)), m = bsri_dev_max(m, __shfl_xor_sync(~0u, m, 2));
                    const float factor = m == top[i][h] ? 1.0f : bsri_dev_exp2((top[i][h] - m) * unit);
                    top[i][h] = m, sum[i][h] *= factor;
#pragma unroll
                    for (int d = 0; d < HD / 8; d++) out[i][d][2 * h] *= factor, out[i][d][2 * h + 1] *= factor;
                }
        }
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float base = top[i][h] == -bsri_dev_inf<float>() ? 0.0f : top[i][h] * unit;
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    s[i][n][2 * h] = bsri_dev_exp2(fmaf(s[i][n][2 * h], unit, -base));
                    s[i][n][2 * h + 1] = bsri_dev_exp2(fmaf(s[i][n][2 * h + 1], unit, -base));
                    sum[i][h] += s[i][n][2 * h] + s[i][n][2 * h + 1];
                }
            }
    }
    __device__ __forceinline__ void drop(scores &s, int cur) const {
#pragma unroll
        for (int i = 0; i < MT; i++) {
            put(s[i]);
            for (int r = lane / 16; r < 16; r += 2) { /* four columns at a time */
                const int n = lane % 16 * 4, key = __shfl_sync(~0u, cur, n / 16) + n % 16;
                const uint4 word = bsri_dev_philox(p.seed, key / 4, t.row + warp * 16 * MT + i * 16 + r, t.head, t.batch);
                float4 &x = *(float4 *)&stage[r * LD + n];
                x.x = word.x <= p.drop_last ? 0 : x.x, x.y = word.y <= p.drop_last ? 0 : x.y;
                x.z = word.z <= p.drop_last ? 0 : x.z, x.w = word.w <= p.drop_last ? 0 : x.w;
            }
            get(s[i]);
        }
    }
    /* Waits until values are there. 0 times what is not finite would be NaN: where scores may be forbidden, such values are taken
       out; whether there were any. */
    __device__ __forceinline__ bool take_out(bool shield) const {
        bool odd = false;
        if (!FULL && !(p.flags & BSR_ATTENTION_CAUSAL)) {
            __syncthreads();
        } else if (__syncthreads_or(shield)) {
            for (int i = threadIdx.x; i < BSRI_KEYS * CH * 4; i += blockDim.x) {
                uint32_t *v = (uint32_t *)memory + (query_rows + BSRI_KEYS) * HD / 2 + i;
                const bool low = (*v & EXPONENT) == EXPONENT, high = (*v >> 16 & EXPONENT) == EXPONENT;
                if (low || high) *v &= (low ? 0 : 0xffffu) | (high ? 0 : 0xffff0000u), odd = true;
            }
            odd = __syncthreads_or(odd);
        }
        return odd;
    }
    /* Adds probabilities times values. */
    __device__ __forceinline__ void add(const parts &a, uint32_t (&b)[2][4], uint32_t v_at) {
        bsri_mma_load_t(b[0], v_at);
#pragma unroll
        for (int k = 0; k < NT / 2; k++)
#pragma unroll
            for (int d = 0; d < HD / 16; d++) {
                const int after = k * (HD / 16) + d + 1;
                uint32_t(&v)[4] = b[1 - after % 2];
                if (after < NT / 2 * HD / 16)
                    bsri_mma_load_t(b[after % 2], (v_at ^ after % (HD / 16) * 32) + after / (HD / 16) * 16 * HD * 2);
#pragma unroll
                for (int i = 0; i < MT; i++)
                    bsri_mma<T>(out[i][2 * d], a[i][k], v[0], v[1]), bsri_mma<T>(out[i][2 * d + 1], a[i][k], v[2], v[3]);
            }
    }
    static __device__ __forceinline__ float number(uint32_t bits) {
        float x[2];
        bsri_dev_unpack(x, bits, T::DTYPE);
        return x[0];
    }
    /* Values that were taken out, one by one where they are allowed. */
    __device__ __forceinline__ void add_odd(const parts &a, const uint32_t (&forbidden)[MT], int cur) {
        for (int n = 0; n < BSRI_KEYS; n++) {
            const int source = (lane & ~3) | (n % 8 / 2), key = __shfl_sync(~0u, cur, n / 16) + n % 16;
            if (key >= keys) continue;
            const char *row = t.v + (key * p.v.row_stride + pair) * 2;
            float x[MT][2];
            uint32_t no[MT];
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint32_t w[2] = {0, 0};
#pragma unroll
                for (int k = 0; k < NT; k++)
                    bsri_dev_pick(w[0], a[i][k / 2][k % 2 * 2], n / 8, k),
                        bsri_dev_pick(w[1], a[i][k / 2][k % 2 * 2 + 1], n / 8, k);
                no[i] = __shfl_sync(~0u, forbidden[i], source) >> (n / 8 * 4 + n % 2);
#pragma unroll
                for (int h = 0; h < 2; h++) x[i][h] = number(__shfl_sync(~0u, w[h], source) >> (n % 2 * 16) & 0xffffu);
            }
#pragma unroll 1
            for (int d = 0; d < HD / 8; d++) { /* rolled: out goes round once */
                const uint32_t v = d * 8 < p.v.cols ? *(const uint32_t *)(row + d * 16) : 0;
                const bool low = (v & EXPONENT) == EXPONENT, high = (v >> 16 & EXPONENT) == EXPONENT;
#pragma unroll
                for (int i = 0; i < MT; i++) {
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        if (no[i] >> (2 * h) & 1) continue;
                        if (low) out[i][0][2 * h] += x[i][h] * number(v & 0xffffu);
                        if (high) out[i][0][2 * h + 1] += x[i][h] * number(v >> 16);
                    }
                    bsri_dev_rotate(out[i]);
                }
            }
        }
    }
    /* One tile of keys: cur, block: its units, next, next_block: those after it, which are asked for; false: there are none. */
    __device__ __forceinline__ bool keys_of(bsri_dev_units &units, int cur, int block, int &next, int &next_block, bool fresh) {
        scores s = {};
        uint32_t b[2][4], forbidden[MT] = {}; /* forbidden: one bit a score */
        bsri_cp_async_wait<0>();
        __syncthreads(); /* keys are there; nobody reads the values before these any more */
        load_values(cur);
        bsri_cp_async_commit();
        uint32_t q_at = sq + (warp * 16 * MT + lane % 16) * HD * 2 + ((lane / 16) ^ (lane & 7)) * 16;
        uint32_t k_at = sk + (lane / 16 * 8 + (lane & 7)) * HD * 2 + ((lane / 8 % 2) ^ (lane & 7)) * 16;
        uint32_t v_at = sv + lane % 16 * HD * 2 + ((lane / 16) ^ (lane & 7)) * 16;
        bsri_dev_opaque(q_at), bsri_dev_opaque(k_at), bsri_dev_opaque(v_at);
        form(s, b, q_at, k_at, fresh);
        const bool more = units.next(p, t, next, next_block);
        __syncthreads(); /* nobody reads the keys any more */
        if (more) load_keys(next);
        bsri_cp_async_commit();
        const bool shield = modify(s, forbidden, cur, block);
        fold(s);
        if (FULL && p.drops) drop(s, cur);
        parts a;
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int n = 0; n < NT * 2; n++)
                a[i][n / 4][n % 4] = bsri_pack<T>(s[i][n / 2][n % 2 * 2], s[i][n / 2][n % 2 * 2 + 1]);
        bsri_cp_async_wait<1>();
        const bool odd = take_out(shield);
        add(a, b, v_at);
        if (odd) add_odd(a, forbidden, cur);
        return more;
    }
    __device__ __forceinline__ int row(int i, int h) const { return warp * 16 * MT + i * 16 + h * 8 + quad; }
    /* Sums become rows of out; stores their log-sum-exp: lane l of four that of row (l / 2, l % 2) of theirs. */
    __device__ __forceinline__ void divide() {
        float own_top = 0, own_sum = 0;
        const int own = lane % 4, own_row = row(own / 2, own % 2);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float m = top[i][h];
                float total = sum[i][h];
                total += __shfl_xor_sync(~0u, total, 1), total += __shfl_xor_sync(~0u, total, 2);
                const bool some = m > -bsri_dev_inf<float>() && m < bsri_dev_inf<float>();
                const float factor = some ? (float)p.keep_scale / total : bsri_dev_nan<float>();
#pragma unroll
                for (int d = 0; d < HD / 8; d++)
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++) out[i][d][e] = !some && m < 0 ? 0.0f : out[i][d][e] * factor;
                if (own == i * 2 + h) own_top = m, own_sum = total;
            }
        if (p.lse.data && own < 2 * MT && own_row < t.rows)
            t.store_lse(p, own_row,
                        fabsf(own_top) < bsri_dev_inf<float>() ? (double)own_top * (FULL ? 1.0 : p.scale) + (double)logf(own_sum)
                                                                : (double)own_top);
    }
    __device__ __forceinline__ void store() {
        const int64_t first = t.out + pair * p.out.col_stride;
        if (p.vec2 && p.out.dtype != BSR_F32) {
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    if (row(i, h) >= t.rows) continue;
                    uint16_t *const to = (uint16_t *)p.out.data + first + row(i, h) * p.out.row_stride;
#pragma unroll
                    for (int d = 0; d < HD / 8; d++)
                        if (d * 8 < p.v.cols) *(uint32_t *)(to + d * 8) = bsri_pack<T>(out[i][d][2 * h], out[i][d][2 * h + 1]);
                }
            return;
        }
#pragma unroll 1
        for (int d = 0; d * 8 < p.v.cols; d++) { /* rolled: what comes next is moved to the front */
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (row(i, h) < t.rows)
                        bsri_attention_store(p, first + row(i, h) * p.out.row_stride + d * 8 * p.out.col_stride,
                                             out[i][0][2 * h], out[i][0][2 * h + 1], T::DTYPE);
#pragma unroll
            for (int i = 0; i < MT; i++) bsri_dev_rotate(out[i]);
        }
    }
};
#endif
/* bsri_attention_mma: a CTA takes query tiles in turn; all its warps fetch and multiply. FULL: with everything between product
   and softmax.
   Its tile is the choice of bsri_mma_choose_attention() (>>cuda-plan-rows).

   Threads: 1, 2 or 4 warps, each with MT x 16 query rows of one block row.

   Shared memory:
     dynamic:     queries (16 MT lines for each warp), keys and values (BSRI_KEYS lines each) one after another, lines of HD
                  elements; 16-byte piece c of line r stands at c ^ (r & 7)
     behind them  FULL: 16 x (BSRI_KEYS + 4) floats for each warp, for scores on their way through bsri_dev_modify_column() and
                  dropout
     static:      the query tile, and the number of the next piece of work

   There is no mbarrier: copies are cp.async groups, keys and values in turn, and __syncthreads stands three times in a key
   tile: when keys have landed, after which nobody reads the values before them; when scores are formed, after which keys may be
   overwritten; when values have landed, while the next keys may be on their way. Where scores may be forbidden the third also
   asks whether a value must be taken out, and a fourth stands behind that.

   Sums: as mma.sync has them (see bsri_product_mma): s[i][n][e] of 8 keys n, out[i][d][e] of 8 columns d. Packed to f16 or
   bf16, s[2 k] and s[2 k + 1] are fragment k of the second product's first operand as they stand.

   Order: 1. The first four units of 16 keys that some row may attend to; queries and these keys are asked for.
          2. Values are asked for; scores by mma.sync; the next tile's keys are asked for.
          3. Scores are modified or forbidden; online softmax: maxima, exponentials, sums; `out` is rescaled if maxima grew.
          4. Probabilities times values.
          5. After the last key tile `out` is divided by the sums and stored, with the log-sum-exp. */
template <class L>
__global__ void __launch_bounds__(L::THREADS, 2) bsri_attention_mma(const __grid_constant__ bsri_dev_attention p BSRI_GATE) {
    BSRI_ENTER;
#ifdef BSRI_MMA_CODE
    typedef typename L::type T;
    constexpr int HD = L::HD, MT = L::MT;
    constexpr bool FULL = L::FULL;
    extern __shared__ __align__(256) uint4 bsri_attention_memory[];
    __shared__ bsri_dev_query t; /* not in registers: they are scarce */
    __shared__ int64_t work;
    __shared__ int state; /* of this piece of work: nothing to do, something, there is no more */
    bsri_attention_warp<T, HD, MT, FULL> tile(p, t, bsri_attention_memory);
    const int64_t total = p.items * p.tiles * p.block_rows;
    if (threadIdx.x == 0) work = blockIdx.x;
    for (;;) {
        if (threadIdx.x == 0) state = work >= total ? 2 : t.begin(p, work), work += gridDim.x;
        __syncthreads();
        if (state == 2) break;
        if (state) {
            bsri_dev_units units;
            int cur, block, next = 0, next_block = 0;
            tile.begin();
            units.begin();
            bool more = units.next(p, t, cur, block);
            if (more) tile.load_queries(), tile.load_keys(cur), bsri_cp_async_commit();
            for (bool fresh = true; more; fresh = false, cur = next, block = next_block)
                more = tile.keys_of(units, cur, block, next, next_block, fresh);
            tile.divide(), tile.store();
        }
        __syncthreads();
    }
#endif
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-wgmma-plan: f16 and bf16 on Hopper: what warps tell each other, which query tile is next */
/* ---------------------------------------------------------------------------------------------- */

#ifdef BSRI_WGMMA_CODE
template <class S> struct bsri_flash_stage { /* what consumers must know of a key tile */
    int32_t key[S::PIECES];
    uint32_t rows; /* four bits a piece: which of the stream's block rows store it */
    int32_t flags; /* BSRI_FLASH_ */
};
struct bsri_flash_tile {         /* a query tile */
    const void *columns;         /* of its item's pattern */
    int64_t item, out, lse;      /* batch item; elements of its first row in out and lse */
    int32_t row, low, high, end; /* first row; keys that it, and that the last row, may attend to; 1: there are no more tiles */
    int32_t place[6];            /* of q, k, v in the batch dimensions of their tensor maps */
    int32_t column[32], at[4], stop[4]; /* first columns, blocks of the block rows */
};
template <class S> struct bsri_flash_stream {
    uint64_t full[S::STAGES], empty[S::STAGES], q_full[2], q_empty[2], plan_full[2], plan_empty[2];
    bsri_flash_tile plan[2];
    bsri_flash_stage<S> note[S::STAGES];
};
template <class S> struct bsri_flash_control {
    bsri_flash_stream<S> stream[S::STREAMS];
    uint32_t count[BSRI_FLASH_BINS]; /* tiles of the window by length */
    uint8_t length[BSRI_FLASH_WINDOW * S::STREAMS * BSRI_FLASH_GRID];
};
__device__ __forceinline__ void bsri_flash_wait(uint64_t *barriers, uint32_t at, uint32_t parity) {
    bsri_mbarrier_wait(bsri_smem_address(&barriers[at]), parity);
}
/* Each lane for itself: all of them read, and several write. */
__device__ __forceinline__ void bsri_flash_arrive(uint64_t *barriers, uint32_t at) {
    bsri_mbarrier_arrive(bsri_smem_address(&barriers[at]));
}
__device__ __forceinline__ int bsri_flash_limit(const bsri_dev_attention &p, int row) {
    if (!(p.flags & BSR_ATTENTION_CAUSAL)) return (int)p.k.rows;
    return (int)bsri_max(0, bsri_min(p.k.rows, row + 1 + p.causal_offset));
}
template <class S> __device__ __forceinline__ int bsri_flash_row(const bsri_dev_attention &p, int64_t work, int64_t &item) {
    item = (uint32_t)work / (uint32_t)p.tiles; /* there are less than 2^31 tiles */
    const int n = (int)(work - item * p.tiles);
    return (p.flags & BSR_ATTENTION_CAUSAL ? (int)p.tiles - 1 - n : n) * S::ROWS; /* long rows first */
}

/* ---- planning: one warp of a CTA ---- */

/* Which of a stream's two plans is next, and in which of two rounds: two bits for each stream, in one register. */
struct bsri_flash_pipes {
    uint32_t bits;
    __device__ __forceinline__ uint32_t stage(int stream) const { return bits >> 2 * stream & 1; }
    __device__ __forceinline__ uint32_t phase(int stream) const { return bits >> (2 * stream + 1) & 1 ^ 1; }
    __device__ __forceinline__ void advance(int stream) { bits ^= (stage(stream) ? 3 : 1) << 2 * stream; }
};
template <class S>
__device__ __forceinline__ void bsri_flash_schedule(const bsri_dev_flash &m, bsri_flash_control<S> &control,
                                                     bsri_flash_pipes &pipes, int stream, int64_t work) {
    const bsri_dev_attention &p = m.p;
    bsri_flash_stream<S> &c = control.stream[stream];
    const uint32_t stage = pipes.stage(stream);
    const int lane = threadIdx.x % 32, width = 1 << m.lane_bits, group = lane >> m.lane_bits, dt = p.mask.index_dtype;
    bsri_flash_tile &plan = c.plan[stage];
    int64_t item;
    const int row = bsri_flash_row<S>(p, work, item), last = (int)bsri_min(row + S::ROWS, p.q.rows) - 1;
    const int64_t batch = (uint32_t)item / (uint32_t)p.heads, head = item - batch * p.heads;
    auto offset = [&](int which) { return batch * m.step[which][0] + head * m.step[which][1]; };
    const char *crow = bsri_dev_at(p.mask.crow_indices, dt, offset(BSRI_FLASH_CROW));
    const char *columns = bsri_dev_at(p.mask.col_indices, dt, offset(BSRI_FLASH_COL));
    const int br = row / (int)p.mask.block_rows + group;
    int at = 0, stop = 0, column = 0, c0 = 0, c1 = 0;
    if (br < p.block_rows && br * p.mask.block_rows < row + S::ROWS)
        at = bsri_dev_index(crow, dt, br), stop = bsri_dev_index(crow, dt, br + 1);
    if (at + (lane & (width - 1)) < stop) column = bsri_dev_index(columns, dt, at + (lane & (width - 1)));
    if (lane < 3) {
        const int64_t shared = lane == 0 ? head : (uint32_t)head / (uint32_t)(lane == 1 ? p.k_group : p.v_group);
        bsri_tensor_item(m.batch[lane], batch * m.step[lane][0] + shared * m.step[lane][1], c0, c1);
    }
    bsri_flash_wait(c.plan_empty, stage, pipes.phase(stream));
    plan.column[lane] = column;
    if ((lane & (width - 1)) == 0) plan.at[group] = at, plan.stop[group] = stop;
    if (lane < 3) plan.place[2 * lane] = c0, plan.place[2 * lane + 1] = c1;
    if (lane == 0) {
        plan.columns = columns, plan.item = item, plan.row = row, plan.end = 0;
        plan.out = offset(BSRI_FLASH_OUT) + row * p.out.row_stride, plan.lse = offset(BSRI_FLASH_LSE) + row * p.lse.row_stride;
        plan.low = bsri_flash_limit(p, row), plan.high = bsri_flash_limit(p, last);
    }
    bsri_flash_arrive(c.plan_full, stage);
    pipes.advance(stream);
}
/* Stored blocks of a tile's block rows, in the units that are sorted. */
template <class S> __device__ __forceinline__ int bsri_flash_length(const bsri_dev_flash &m, int64_t work) {
    const bsri_dev_attention &p = m.p;
    const uint32_t rows = (uint32_t)p.mask.block_rows;
    int64_t item;
    const uint32_t row = (uint32_t)bsri_flash_row<S>(p, work, item), first = row / rows, last = (row + S::ROWS - 1) / rows;
    const int64_t batch = (uint32_t)item / (uint32_t)p.heads, head = item - batch * p.heads;
    const void *crow = bsri_dev_at(p.mask.crow_indices, p.mask.index_dtype,
                                   batch * m.step[BSRI_FLASH_CROW][0] + head * m.step[BSRI_FLASH_CROW][1]);
    const int end = bsri_dev_index(crow, p.mask.index_dtype, bsri_min((int64_t)last + 1, p.block_rows));
    return min(BSRI_FLASH_BINS - 1, (end - bsri_dev_index(crow, p.mask.index_dtype, first)) >> m.length_bits);
}
/* Sorts n tiles from `base` on; returns how many are longer than those of the lane's bins, 63 - 2 lane and the next one. */
template <class S>
__device__ __forceinline__ int bsri_flash_sort(const bsri_dev_flash &m, bsri_flash_control<S> &c, int64_t base, int n) {
    const int lane = threadIdx.x % 32, bin = BSRI_FLASH_BINS - 1 - 2 * lane;
    __syncwarp();
    c.count[2 * lane] = c.count[2 * lane + 1] = 0;
    __syncwarp();
#pragma unroll 4
    for (int i = lane; i < n; i += 32) {
        const int length = bsri_flash_length<S>(m, base + i);
        c.length[i] = (uint8_t)length, atomicAdd(&c.count[length], 1u);
    }
    __syncwarp();
    const int mine = (int)(c.count[bin] + c.count[bin - 1]);
    int sum = mine;
    for (int d = 1; d < 32; d *= 2) {
        const int x = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += x;
    }
    return sum - mine;
}
/* Place in the window of the tile with so many before it. */
template <class S> __device__ __forceinline__ int bsri_flash_ranked(const bsri_flash_control<S> &c, int rank, int n, int before) {
    const int lane = threadIdx.x % 32, owner = 31 - __clz((int)__ballot_sync(~0u, before <= rank));
    int bin = BSRI_FLASH_BINS - 1 - 2 * owner, left = rank - __shfl_sync(~0u, before, owner);
    if (left >= (int)c.count[bin]) left -= (int)c.count[bin--];
    for (int i = lane;; i += 32) {
        const uint32_t hit = __ballot_sync(~0u, i < n && c.length[i] == bin);
        if (left < __popc((int)hit)) {
            const bool it = (hit >> lane & 1) && __popc((int)(hit & ((1u << lane) - 1))) == left;
            return i - lane + 31 - __clz((int)__ballot_sync(~0u, it));
        }
        left -= __popc((int)hit);
    }
}
/* What a tile of a length takes, in half units: 128 at most. */
__device__ __forceinline__ uint32_t bsri_flash_cost(int length) { return 2 * (uint32_t)length + 2; }
/* Length of the tile with `rank` before it, each lane of its own. */
template <class S>
__device__ __forceinline__ int bsri_flash_length_of(const bsri_flash_control<S> &c, int rank, int before) {
    int owner = 0;
#pragma unroll
    for (int d = 16; d; d /= 2) owner += __shfl_sync(~0u, before, owner + d) <= rank ? d : 0;
    const int bin = BSRI_FLASH_BINS - 1 - 2 * owner, left = rank - __shfl_sync(~0u, before, owner);
    return left < (int)c.count[bin] ? bin : bin - 1;
}
/* What streams lane, lane + 32, ... have more to do than the least at the last round: below 63 + 128, as who has 63 more takes no
   tile; 255: no stream. Four a register. */
template <class S> struct bsri_flash_loads {
    static constexpr int EACH = (BSRI_FLASH_GRID * S::STREAMS + 31) / 32;
    uint32_t four[(EACH + 3) / 4];

    __device__ __forceinline__ uint32_t of(int j) const { return four[j / 4] >> j % 4 * 8 & 255; }
    /* Of the first round, whose tiles are taken as they come. dealt: there are others. */
    __device__ __forceinline__ void begin(const bsri_dev_flash &m, bsri_flash_control<S> &c, int streams, bool dealt) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int j = 0; j < (EACH + 3) / 4; j++) four[j] = ~0u;
        if (S::STREAMS == 1 && dealt) {
#pragma unroll 1
            for (int i = lane; i < streams; i += 32) c.length[i] = (uint8_t)bsri_flash_cost(bsri_flash_length<S>(m, i));
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (j * 32 + lane < streams) four[j / 4] ^= (255u - c.length[j * 32 + lane]) << j % 4 * 8;
        }
    }
    /* All have as much again. */
    __device__ __forceinline__ void level(void) {
#pragma unroll
        for (int j = 0; j < EACH; j++) four[j / 4] -= of(j) == 255 ? 0 : of(j) << j % 4 * 8;
    }
    /* A round: the tiles of a window from rank `done` on go to all streams that have little more to do than the least. Returns
       what stream `mine` takes, n: nothing; taking: how many take; back: the last first. */
    __device__ __forceinline__ int deal(const bsri_flash_control<S> &c, int done, int n, int before, uint32_t mean, int mine,
                                        int &taking, bool back) {
        const uint32_t next = bsri_flash_cost(bsri_flash_length_of<S>(c, done, before)), below = (1u << threadIdx.x % 32) - 1;
        uint32_t least = of(0), limit;
        int some = 0, own = n;
#pragma unroll
        for (int j = 1; j < EACH; j++) least = min(least, of(j));
        least = __reduce_min_sync(~0u, least), limit = least + min(next, mean) / 2;
        taking = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) taking += __popc(__ballot_sync(~0u, of(j) < limit));
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const uint32_t was = of(j), who = __ballot_sync(~0u, was < limit);
            const int place = some + __popc(who & below), rank = done + (back ? taking - 1 - place : place);
            const bool takes = was < limit && rank < n;
            const int length = bsri_flash_length_of<S>(c, min(max(rank, 0), n - 1), before);
            const uint32_t more = was == 255 ? 0 : (takes ? bsri_flash_cost(length) : 0) - least;
            four[j / 4] += more << j % 4 * 8;
            const int got = __shfl_sync(~0u, takes ? rank : n, mine % 32);
            if (j == mine / 32) own = got;
            some += __popc(who);
        }
        return own;
    }
};
/* The first round is taken as it comes: sorting would have to be waited for. Where a window's longest tile is more than 2.5 times
   the mean, all streams that have little more to do than the one with the least take the next tiles, longest first, forwards and
   backwards in turn; every CTA keeps all streams' loads. Others are dealt back and forth, which is sooner done, and so are always
   those of two streams a CTA (note N24). */
template <class S> __device__ __forceinline__ void bsri_flash_assign(const bsri_dev_flash &m, bsri_flash_control<S> &c) {
    const bsri_dev_attention &p = m.p;
    const int streams = (int)gridDim.x * S::STREAMS, mine = (int)blockIdx.x * S::STREAMS, window = streams * BSRI_FLASH_WINDOW;
    const int lane = threadIdx.x % 32, bin = BSRI_FLASH_BINS - 1 - 2 * lane;
    const int64_t total = p.items * p.tiles;
    bsri_flash_pipes pipes = {0};
    bsri_flash_loads<S> loads;
    bool back = true;
#pragma unroll 1
    for (int s = 0; s < S::STREAMS && mine + s < total; s++) bsri_flash_schedule<S>(m, c, pipes, s, mine + s);
    loads.begin(m, c, streams, total > streams);
    for (int64_t base = streams; base < total; base += window) {
        const int n = (int)bsri_min(window, total - base), before = bsri_flash_sort<S>(m, c, base, n);
        const uint32_t all = c.count[bin] * bsri_flash_cost(bin) + c.count[bin - 1] * bsri_flash_cost(bin - 1);
        const uint32_t mean = __reduce_add_sync(~0u, all) / n;
        const bool even = S::STREAMS == 2 || 2 * bsri_flash_cost(bsri_flash_length_of<S>(c, 0, before)) <= 5 * mean;
        if (even) loads.level();
        for (int done = 0, round = 0, taking = streams; done < n; done += taking, round++) {
            int own = done + (round % 2 ? streams - 1 - mine : mine); /* the tile of the CTA's first stream */
            if (!even) own = loads.deal(c, done, n, before, mean, mine, taking, back), back = !back;
#pragma unroll 1
            for (int s = 0; s < S::STREAMS; s++, own += round % 2 ? -1 : 1)
                if (own < n) bsri_flash_schedule<S>(m, c, pipes, s, base + bsri_flash_ranked<S>(c, own, n, before));
        }
    }
#pragma unroll 1
    for (int s = 0; s < S::STREAMS; s++) {
        const uint32_t at = pipes.stage(s);
        bsri_flash_wait(c.stream[s].plan_empty, at, pipes.phase(s));
        if (threadIdx.x % 32 == 0) c.stream[s].plan[at].end = 1;
        bsri_flash_arrive(c.stream[s].plan_full, at);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-wgmma-load: which keys a query tile needs, fetching                                */
/* ---------------------------------------------------------------------------------------------- */

/* The union of the columns of a tile's block rows, piece by piece: always the smallest of the rows' next ones, so that
   every stored block comes once in any order, and shared ones come together where columns ascend. Not bsri_columns_next(): one
   warp fetches by it as it goes, and keeps no list. */
struct bsri_flash_walk {
    const void *columns;
    int at, end, from, buffer; /* of this lane's block row: next block, past the last, first of those in the lanes' buffers */
    int column, inner, high;
    uint32_t rows;

    __device__ __forceinline__ void begin(const bsri_dev_flash &m, const bsri_flash_tile &plan) {
        const int lane = threadIdx.x % 32, group = lane >> m.lane_bits;
        columns = plan.columns;
        at = from = plan.at[group], end = plan.stop[group], buffer = plan.column[lane], inner = 0, high = plan.high;
    }
    __device__ __forceinline__ bool next(const bsri_dev_flash &m, int &key, uint32_t &stored) {
        const int lane = threadIdx.x % 32, width = 1 << m.lane_bits;
        do {
            if (inner == 0) {
                const int first = __shfl_sync(~0u, buffer, (lane & -width) + ((at - from) & (width - 1)));
                const uint32_t mine = at < end ? (uint32_t)first : 0xffffffffu, least = __reduce_min_sync(~0u, mine);
                const uint32_t hit = __ballot_sync(~0u, mine == least);
                if (least == 0xffffffffu) return false;
                column = (int)least, rows = 0;
                for (int g = 0; g < 4; g++)
                    if (g << m.lane_bits < 32) rows |= (hit >> (g << m.lane_bits) & 1) << g;
                if (mine == least && ++at - from == width) {
                    from = at;
                    if (from + (lane & (width - 1)) < end)
                        buffer = bsri_dev_index(columns, m.p.mask.index_dtype, from + (lane & (width - 1)));
                }
            }
            key = column * (int)m.p.mask.block_cols + inner, stored = rows, inner += m.piece;
            if (inner == (int)m.p.mask.block_cols) inner = 0;
        } while (key >= high);
        return true;
    }
};

/* Where a stream's fetching warp is in its rings; what a lane fetches of each stage: 64 elements of a piece of keys. */
template <class S> struct bsri_flash_producer {
    const bsri_dev_flash &m;
    bsri_flash_stream<S> &c;
    const uint32_t memory;
    const int lane = threadIdx.x % 32, piece = lane / S::ATOMS, atom = lane % S::ATOMS, pieces = S::KEYS / m.piece;
    const uint32_t to = memory + 2 * S::QUERY + (uint32_t)(atom * S::KEYS + piece * m.piece) * 128; /* in the first stage */
    bsri_pipe<S::STAGES> ring = {0, 1};
    bsri_pipe<2> q = {0, 1};

    __device__ __forceinline__ bsri_flash_producer(const bsri_dev_flash &m_, bsri_flash_stream<S> &c_, uint32_t memory_)
        : m(m_), c(c_), memory(memory_) {}
    __device__ __forceinline__ void wait(void) const { bsri_flash_wait(c.empty, ring.stage, ring.phase); }
    /* A stage that is a flag and nothing else. */
    __device__ __forceinline__ void tell(int flag) {
        wait();
        if (lane == 0) c.note[ring.stage].flags = flag;
        bsri_flash_arrive(c.full, ring.stage);
        ring.advance();
    }
    __device__ __forceinline__ void query(int row, int c0, int c1) {
        bsri_flash_wait(c.q_empty, q.stage, q.phase);
        if (lane == 0) bsri_mbarrier_expect_tx(bsri_smem_address(&c.q_full[q.stage]), S::QUERY);
        __syncwarp();
        if (lane < S::ATOMS)
            bsri_tma_load(memory + q.stage * S::QUERY + lane * S::ROWS * 128, &m.map[0], bsri_smem_address(&c.q_full[q.stage]),
                          lane * 64, row, c0, c1);
        q.advance();
    }
    /* Keys or values into a stage that is free. */
    __device__ __forceinline__ void fetch(const bsri_tma_map *map, int key, int c0, int c1) {
        const uint32_t full = bsri_smem_address(&c.full[ring.stage]);
        if (lane == 0) bsri_mbarrier_expect_tx(full, S::STAGE);
        else bsri_mbarrier_arrive(full);
        __syncwarp();
        if (piece < pieces) bsri_tma_load(to + ring.stage * S::STAGE, map, full, atom * 64, key, c0, c1);
        ring.advance();
    }
};
template <class S>
__device__ __forceinline__ void bsri_flash_produce(const bsri_dev_flash &m, bsri_flash_stream<S> &c, uint32_t memory) {
    bsri_flash_producer<S> f(m, c, memory);
    const uint32_t all = (S::WARPGROUPS == 2 || m.lane_bits == 5 ? 0x11111111u
                          : m.lane_bits == 4                     ? 0x33333333u
                                                                 : 0xffffffffu) >>
                         (32 - 4 * f.pieces);
    for (bsri_pipe<2> next = {0, 0};;) {
        bsri_flash_wait(c.plan_full, next.stage, next.phase);
        const bsri_flash_tile &plan = c.plan[next.stage];
        bsri_flash_walk walk;
        int key = 0, before = 0;
        uint32_t stored = 0;
        if (plan.end) break;
        walk.begin(m, plan);
        const int low = plan.low, row = plan.row, q0 = plan.place[0], q1 = plan.place[1], k0 = plan.place[2], k1 = plan.place[3];
        const int v0 = plan.place[4], v1 = plan.place[5];
        bool more = walk.next(m, key, stored);
        bsri_flash_arrive(c.plan_empty, next.stage);
        next.advance();
        if (!more) {
            f.tell(BSRI_FLASH_EMPTY);
            continue;
        }
        f.query(row, q0, q1);
        for (bool first = true; more; first = false) {
            int count = 0, mine = (int)m.p.k.rows; /* pieces that are not there: zeros */
            uint32_t rows = 0;
            bool masked = false;
            do {
                if (count == f.piece) mine = key;
                rows |= stored << 4 * count, masked |= key + m.piece > low, count++;
                more = walk.next(m, key, stored);
            } while (more && count < f.pieces);
            f.wait();
            bsri_flash_stage<S> &note = c.note[f.ring.stage];
            if (f.piece < f.pieces && f.atom == 0) note.key[f.piece] = mine;
            if (f.lane == 0) {
                note.rows = rows;
                note.flags = (more ? 0 : BSRI_FLASH_LAST) | (masked || rows != all ? BSRI_FLASH_MASKED : 0);
            }
            f.fetch(&m.map[1], mine, k0, k1);
            if (!first) f.wait(), f.fetch(&m.map[2], before, v0, v1);
            before = mine;
        }
        f.wait(), f.fetch(&m.map[2], before, v0, v1);
    }
    f.tell(BSRI_FLASH_EXIT);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>attention-wgmma: multiplying, softmax, kernel                                                */
/* ---------------------------------------------------------------------------------------------- */

/* Forbids scores beyond limit[] of the thread's two rows, and of pieces that its block row does not store. */
template <class S>
__device__ __forceinline__ void bsri_flash_forbid(float (&s)[S::KEYS / 2], const bsri_dev_flash &m,
                                                  const bsri_flash_stage<S> &note, int block_row, const int (&limit)[2]) {
    const int pair = threadIdx.x % 4 * 2;
    const uint32_t rows = note.rows >> block_row;
#pragma unroll
    for (int n = 0; n < S::KEYS / 8; n++) {
        const int piece = n >> m.piece_bits, key = note.key[piece] + ((n * 8) & (m.piece - 1)) + pair;
        const bool stored = rows >> 4 * piece & 1;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!stored || key + e % 2 >= limit[e / 2]) s[4 * n + e] = -bsri_dev_inf<float>();
    }
}

/* Scores become probabilities relative to top[], the reference of the thread's two rows; true where that has grown for a row of
   the warp: what was summed before is to be multiplied by factor[]. As in bsri_attention_mma(). */
template <int N>
__device__ __forceinline__ bool bsri_flash_fold(float (&s)[N], float (&top)[2], float (&sum)[2], float (&factor)[2], float unit) {
    bool grown = false;
    float high[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = bsri_dev_max(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]);
#pragma unroll
        for (int n = 4; n < N / 4; n++) x[n % 4] = bsri_dev_max(x[n % 4], bsri_dev_max(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]));
        high[h] = bsri_dev_max(bsri_dev_max(x[0], x[1]), bsri_dev_max(x[2], x[3]));
        grown |= !(high[h] * unit <= fmaf(top[h], unit, BSRI_LAZY));
    }
    grown = __any_sync(~0u, grown);
    if (grown) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = bsri_dev_max(high[h], top[h]);
            x = bsri_dev_max(x, __shfl_xor_sync(~0u, x, 1)), x = bsri_dev_max(x, __shfl_xor_sync(~0u, x, 2));
            factor[h] = x == top[h] ? 1.0f : bsri_dev_exp2((top[h] - x) * unit);
            top[h] = x, sum[h] *= factor[h];
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float base = top[h] == -bsri_dev_inf<float>() ? 0.0f : top[h] * unit;
        float part[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < N / 4; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * n + 2 * h + e];
                x = bsri_dev_exp2(fmaf(x, unit, -base)), part[e] += x;
            }
        sum[h] += part[0] + part[1];
    }
    return grown;
}
/* ptxas moves exponentials behind the wait for the products that they could overlap, unless something between depends on them.
   This does, and its condition is never true. */
__device__ __forceinline__ void bsri_flash_hold(const float (&sum)[2]) {
    if (__any_sync(~0u, sum[0] + sum[1] < 0)) __threadfence();
}

/* Computes one row of out again, by a warp, without what is forbidden: for where a value that is not finite met a forbidden
   probability of 0. Rare, so it may be slow. */
__device__ __forceinline__ void bsri_flash_recompute(const bsri_dev_attention &p, int64_t item, int64_t out_at, int row,
                                                     float base, float factor) {
    const bsri_item it = bsri_dev_matrix_item(&p.batch, item, &p.mask);
    const int64_t head = item % p.heads, br = row / p.mask.block_rows, end = bsri_index(it.crow, p.mask.index_dtype, br + 1);
    const int64_t q = bsri_dense_offset(&p.batch, item, &p.q) + row * p.q.row_stride;
    const int64_t k = bsri_dense_offset(&p.batch, item - head + head / p.k_group, &p.k);
    const int64_t v = bsri_dense_offset(&p.batch, item - head + head / p.v_group, &p.v);
    const int lane = threadIdx.x % 32, limit = bsri_flash_limit(p, row);
    float out[4] = {0, 0, 0, 0};
    for (int64_t at = bsri_index(it.crow, p.mask.index_dtype, br); at < end; at++) {
        const int64_t first = bsri_index(it.col, p.mask.index_dtype, at) * p.mask.block_cols;
        for (int64_t key = first; key < first + p.mask.block_cols && key < limit; key += 32) {
            const int count = (int)bsri_min(32, bsri_min(first + p.mask.block_cols, limit) - key);
            float s = 0;
#pragma unroll 1
            for (int64_t d = 0; d < p.q.cols && lane < count; d++)
                s = fmaf(bsri_dev_half(p.q.data, p.q.dtype, q + d),
                         bsri_dev_half(p.k.data, p.q.dtype, k + (key + lane) * p.k.row_stride + d), s);
            s = bsri_dev_exp2(fmaf(s, p.unit, -base));
#pragma unroll 1
            for (int j = 0; j < count; j++) {
                const float x = __shfl_sync(~0u, s, j);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (lane + 32 * i < p.v.cols)
                        out[i] += x * bsri_dev_half(p.v.data, p.q.dtype, v + (key + j) * p.v.row_stride + lane + 32 * i);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (lane + 32 * i < p.v.cols)
            bsri_dev_store(p.out.data, p.out.dtype, out_at + (lane + 32 * i) * p.out.col_stride, out[i] * factor);
}

/* A row of the thread's sums, times factor; true where one is NaN. */
template <class S>
__device__ __forceinline__ bool bsri_flash_store_row(const bsri_dev_attention &p, int64_t at, const float (&sum)[S::HD / 2],
                                                     int h, float factor, bool zero) {
    const int pair = threadIdx.x % 4 * 2;
    float x[S::HD / 4];
    bool odd = false;
#pragma unroll
    for (int i = 0; i < S::HD / 4; i++) {
        x[i] = zero ? 0.0f : sum[i / 2 * 4 + i % 2 + 2 * h] * factor;
        odd |= x[i] != x[i];
    }
    if (p.vec2 && p.out.dtype != BSR_F32) {
        uint16_t *const to = (uint16_t *)p.out.data + at + pair;
#pragma unroll
        for (int i = 0; i < S::HD / 8; i++)
            if (i * 8 < p.v.cols) *(uint32_t *)(to + i * 8) = bsri_pack<typename S::type>(x[2 * i], x[2 * i + 1]);
    } else {
#pragma unroll 1
        for (int i = 0; i * 8 < p.v.cols; i++) { /* rolled: what comes next is moved to the front */
            bsri_attention_store(p, at + (i * 8 + pair) * p.out.col_stride, x[0], x[1], S::type::DTYPE);
#pragma unroll
            for (int k = 0; k + 2 < S::HD / 4; k++) x[k] = x[k + 2];
        }
    }
    return odd;
}
/* What consumers keep of a tile's plan. */
struct bsri_flash_place {
    int64_t item, out, lse;
    int32_t row;
};
/* out and lse of the thread's part of a tile, from row r of the tile on. */
template <class S>
__device__ __forceinline__ void bsri_flash_store(const bsri_dev_attention &p, const bsri_flash_place &t, int r,
                                                 const float (&out)[S::HD / 2], const float (&top)[2], const float (&sum)[2],
                                                 bool shield) {
    const int lane = threadIdx.x % 32;
    float factor[2], base[2];
    uint32_t bad[2];
#pragma unroll
    for (int h = 0; h < 2; h++, r += 8) {
        const float x = top[h];
        float total = sum[h];
        total += __shfl_xor_sync(~0u, total, 1), total += __shfl_xor_sync(~0u, total, 2);
        const bool some = x > -bsri_dev_inf<float>() && x < bsri_dev_inf<float>(), there = t.row + r < p.q.rows;
        bool odd = false;
        factor[h] = some ? __fdividef(1.0f, total) : bsri_dev_nan<float>(), base[h] = x * p.unit;
        if (there) odd = bsri_flash_store_row<S>(p, t.out + r * p.out.row_stride, out, h, factor[h], !some && x < 0);
        bad[h] = __ballot_sync(~0u, odd && some);
        if (there && p.lse.data && lane % 4 == 0)
            bsri_dev_store(p.lse.data, p.lse.dtype, t.lse + r * p.lse.row_stride,
                           some ? (double)x * p.scale + (double)logf(total) : (double)x);
    }
    if (!shield || !(bad[0] | bad[1])) return;
    __syncwarp();
    r -= 16 + lane / 4;
#pragma unroll 1
    for (int i = 0; i < 16; i++) {
        const bool low = i < 8;
        if ((low ? bad[0] : bad[1]) >> 4 * (i % 8) & 15)
            bsri_flash_recompute(p, t.item, t.out + (r + i) * p.out.row_stride, t.row + r + i,
                             __shfl_sync(~0u, low ? base[0] : base[1], 4 * (i % 8)),
                             __shfl_sync(~0u, low ? factor[0] : factor[1], 4 * (i % 8)));
    }
}

/* A warpgroup that multiplies: where it is in its stream's rings, its query tile. Scores, probabilities and sums are no members:
   with arrays in it the struct would be memory until loops are unrolled, and the code would differ. */
template <class S> struct bsri_flash_consumer {
    typedef bsri_wgmma<typename S::type, S::KEYS> scores;
    typedef bsri_wgmma<typename S::type, S::HD, 0, 1> values;
    const bsri_dev_flash &m;
    bsri_flash_stream<S> &c;
    const int group, first, r; /* first rows of this warp and this thread in a tile */
    const uint32_t ring_at, queries;
    bsri_pipe<S::STAGES> ring = {0, 0};
    bsri_pipe<2> q = {0, 0}, next = {0, 0};
    bsri_flash_place t = {0, 0, 0, 0};
    int flags = BSRI_FLASH_EMPTY; /* of the key tile in `key_stage` */
    uint32_t key_stage = 0;
    bool shield; /* a score of the tile was forbidden */

    __device__ __forceinline__ bsri_flash_consumer(const bsri_dev_flash &m_, bsri_flash_stream<S> &c_, uint32_t memory, int of)
        : m(m_), c(c_), group(of), first((S::WARPGROUPS == 2 ? group * 64 : 0) + threadIdx.x / 32 % 4 * 16),
          r(first + threadIdx.x % 32 / 4), ring_at(memory + 2 * S::QUERY),
          queries(memory + (S::WARPGROUPS == 2 ? group * 64 * 128 : 0)) {}
    /* Sharing a stream: the other warpgroup's products go first, or next. */
    __device__ __forceinline__ void scheduler_barrier(bool begin) const {
        if (S::WARPGROUPS == 1) return;
        if (begin) bsri_named_sync(2 + group, 256);
        else bsri_named_arrive(3 - group, 256);
    }
    /* Scores of the keys in `key_stage`. */
    __device__ __forceinline__ void form(float (&s)[S::KEYS / 2]) const {
        const uint64_t x = bsri_wgmma_desc<128>(queries + q.stage * S::QUERY, 0);
        const uint64_t y = bsri_wgmma_desc<128>(ring_at + key_stage * S::STAGE, 0);
        bsri_wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::HD / 16; i++)
            scores::ss(s, x + i / 4 * S::ROWS * 8 + i % 4 * 2, y + i / 4 * S::KEYS * 8 + i % 4 * 2, i > 0);
        bsri_wgmma_commit();
    }
    /* Probabilities times the values in the ring's next stage. */
    __device__ __forceinline__ void add(float (&out)[S::HD / 2], const uint32_t (&a)[S::KEYS / 16][4]) const {
        const uint64_t y = bsri_wgmma_desc<128>(ring_at + ring.stage * S::STAGE, S::KEYS * 128);
        bsri_flash_wait(c.full, ring.stage, ring.phase);
        bsri_wgmma_fence();
#pragma unroll
        for (int i = 0; i < S::KEYS / 16; i++) values::rs(out, a[i], y + i * 128);
        bsri_wgmma_commit();
    }
    __device__ __forceinline__ void added(float (&out)[S::HD / 2]) {
        bsri_wgmma_wait<0>();
        bsri_wgmma_done(out);
        bsri_flash_arrive(c.empty, ring.stage);
        ring.advance();
    }
    /* The next key tile, the first of its query tile or a later one. */
    __device__ __forceinline__ void open(void) {
        bsri_flash_wait(c.full, ring.stage, ring.phase);
        key_stage = ring.stage, flags = c.note[key_stage].flags;
        ring.advance();
    }
    /* The next query tile: its first scores are being formed when this returns. */
    __device__ __forceinline__ void begin(float (&s)[S::KEYS / 2]) {
        open();
        const bsri_flash_tile &plan = c.plan[next.stage];
        t.item = plan.item, t.out = plan.out, t.lse = plan.lse, t.row = plan.row;
        if (!(flags & BSRI_FLASH_EXIT)) bsri_flash_arrive(c.plan_empty, next.stage), next.advance();
        if (!(flags & (BSRI_FLASH_EXIT | BSRI_FLASH_EMPTY))) bsri_flash_wait(c.q_full, q.stage, q.phase);
        scheduler_barrier(true), form(s), scheduler_barrier(false); /* also where there are none: scores that nobody reads */
    }
    /* The scores are there: what is forbidden goes, their keys' stage is free. */
    __device__ __forceinline__ void forbid(float (&s)[S::KEYS / 2], int block_row, const int (&limit)[2]) {
        bsri_wgmma_done(s);
        if (flags & BSRI_FLASH_MASKED) bsri_flash_forbid<S>(s, m, c.note[key_stage], block_row, limit), shield = true;
        bsri_flash_arrive(c.empty, key_stage);
    }
    static __device__ __forceinline__ void pack(uint32_t (&a)[S::KEYS / 16][4], const float (&s)[S::KEYS / 2]) {
#pragma unroll
        for (int i = 0; i < S::KEYS / 8; i++)
            a[i / 2][i % 2 * 2] = bsri_pack<typename S::type>(s[4 * i], s[4 * i + 1]),
                             a[i / 2][i % 2 * 2 + 1] = bsri_pack<typename S::type>(s[4 * i + 2], s[4 * i + 3]);
    }
    /* A query tile, whose first scores are being formed: its sums. */
    __device__ __forceinline__ void tile(float (&s)[S::KEYS / 2], float (&out)[S::HD / 2], float (&top)[2], float (&sum)[2]) {
        const int rows = (int)m.p.mask.block_rows, block_row = S::WARPGROUPS == 2 ? 0 : (t.row + first) / rows - t.row / rows;
        const int limit[2] = {bsri_flash_limit(m.p, t.row + r), bsri_flash_limit(m.p, t.row + r + 8)};
        float factor[2];
        uint32_t a[S::KEYS / 16][4];
        shield = false;
        top[0] = top[1] = -bsri_dev_inf<float>(), sum[0] = sum[1] = 0;
#pragma unroll
        for (int i = 0; i < S::HD / 2; i++) out[i] = 0;
        bsri_wgmma_wait<0>();
        forbid(s, block_row, limit);
        if (flags & BSRI_FLASH_EMPTY) return;
        bsri_flash_fold(s, top, sum, factor, m.p.unit);
        pack(a, s);
#pragma unroll 1
        while (!(flags & BSRI_FLASH_LAST)) {
            open();
            scheduler_barrier(true), form(s), add(out, a), scheduler_barrier(false);
            bsri_wgmma_wait<1>();
            forbid(s, block_row, limit);
            const bool grown = bsri_flash_fold(s, top, sum, factor, m.p.unit);
            bsri_flash_hold(sum);
            added(out);
            if (grown) {
#pragma unroll
                for (int i = 0; i < S::HD / 2; i++) out[i] *= factor[i / 2 % 2];
            }
            pack(a, s);
        }
        bsri_flash_arrive(c.q_empty, q.stage);
        q.advance();
        add(out, a);
        added(out);
    }
};
template <class S>
__device__ __forceinline__ void bsri_flash_consume(const bsri_dev_flash &m, bsri_flash_stream<S> &c, uint32_t memory, int group) {
    bsri_flash_consumer<S> w(m, c, memory, group);
    float out[S::HD / 2], s[S::KEYS / 2], top[2], sum[2];
    if (group == 1) w.scheduler_barrier(false);
    w.begin(s);
#pragma unroll 1
    while (!(w.flags & BSRI_FLASH_EXIT)) {
        w.tile(s, out, top, sum);
        const bsri_flash_place done = w.t;
        w.begin(s);
        bsri_flash_store<S>(m.p, done, w.r, out, top, sum, w.shield);
    }
    bsri_wgmma_wait<0>();
}
#endif

/* bsri_attention_wgmma: a CTA stays and takes query tiles. S::STREAMS is 1 where both multiplying warpgroups share a stream of
   keys, else 2.
   Its tile is the choice of bsri_wgmma_choose_attention() (>>cuda-plan-rows).

   Threads: warpgroups 0 and 1 multiply (208 registers), 64 query rows each: the consumers of a stream, 256 or 128 threads. Of
   warpgroup 2 (88 registers) warp i < STREAMS fetches for stream i, and warp 3 plans tiles for all.

   Shared memory:
     dynamic:     STREAM bytes for each stream
       0          two query tiles of QUERY bytes: ROWS lines of HD elements, in atoms of 64 (128 bytes a line, swizzled)
       2 QUERY    the ring: STAGES times STAGE bytes, KEYS lines of keys or of values in the same form
     behind them  bsri_flash_control (CONTROL bytes): barriers, plans, notes

   barrier        count           arrives                                           waits                     phase
   full[stage]    32              fetching warp; its lane 0 with expect_tx of STAGE consumers                 round of the ring
   empty[stage]   consumers       each: scores are formed, or values added          fetching warp             round + 1
   q_full[2]      1               lane 0 of the fetching warp, expect_tx of QUERY   consumers                 round of the two
   q_empty[2]     consumers       each: the tile's last scores are formed           fetching warp             round + 1
   plan_full[2]   32              lanes of warp 3                                   fetching warp             round of the two
   plan_empty[2]  consumers + 32  each, and lanes of the fetching warp: plan read   warp 3                    round + 1
   bar 2, 3       256             STREAMS 1: sync on one, arrive at the other       warpgroup 0 on 2, 1 on 3
   A phase is the number of the round modulo 2, from 0 on; "+ 1": the first wait passes at once. A stage that is a flag and
   nothing else gets 32 plain arrivals. Consumers read a plan when their tile's first stage is full, which the fetching warp
   fills after plan_full. By bars 2 and 3 warpgroups take turns to issue products.

   Sums: as wgmma has them (see bsri_product_wgmma). Packed to f16 or bf16, the scores of 16 keys are a wgmma's operand in
   registers.

   Order: 1. Warp 3 deals query tiles to streams: the first round as they come, then windows sorted by length; it writes plans.
          2. A fetching warp walks the union of the plan's block rows and loads K0, K1, V0, K2, V1, ..., with a note for each K.
          3. Consumers issue the scores of key tile j + 1, then probabilities j times values j, and wait for the scores only.
          4. While values are added: what is not stored or not allowed is forbidden, online softmax, probabilities j + 1.
          5. A tile's first scores are formed before the tile before it is divided and stored. */
template <class S>
__global__ void __launch_bounds__(S::THREADS, 1) bsri_attention_wgmma(const __grid_constant__ bsri_dev_flash m BSRI_GATE) {
#ifdef BSRI_WGMMA_CODE
    extern __shared__ __align__(1024) char bsri_flash_memory[];
    static_assert(sizeof(bsri_flash_control<S>) <= S::CONTROL, "too little shared memory");
    bsri_flash_control<S> &c = *(bsri_flash_control<S> *)(bsri_flash_memory + S::STREAMS * S::STREAM);
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, readers = 128 * S::WARPGROUPS;
    bsri_pdl_launch_dependents();
    BSRI_ENTER;
    if (threadIdx.x < S::STREAMS) {
        bsri_flash_stream<S> &x = c.stream[threadIdx.x];
        for (int i = 0; i < S::STAGES; i++)
            bsri_mbarrier_init(bsri_smem_address(&x.full[i]), 32), bsri_mbarrier_init(bsri_smem_address(&x.empty[i]), readers);
        for (int i = 0; i < 2; i++) {
            bsri_mbarrier_init(bsri_smem_address(&x.q_full[i]), 1), bsri_mbarrier_init(bsri_smem_address(&x.plan_full[i]), 32);
            bsri_mbarrier_init(bsri_smem_address(&x.q_empty[i]), readers);
            bsri_mbarrier_init(bsri_smem_address(&x.plan_empty[i]), readers + 32);
        }
        bsri_mbarrier_init_fence();
    }
    __syncthreads();
    bsri_pdl_wait();
    if (threadIdx.x == 256)
        for (int i = 0; i < 3; i++) bsri_tma_prefetch(&m.map[i]);
    if (group == 2) {
        bsri_setmaxnreg_dec<88>();
        if (warp < S::STREAMS) bsri_flash_produce<S>(m, c.stream[warp], bsri_smem_address(bsri_flash_memory) + warp * S::STREAM);
        else if (warp == 3) bsri_flash_assign<S>(m, c);
    } else {
        bsri_setmaxnreg_inc<208>();
        const int i = S::STREAMS == 2 ? group : 0;
        bsri_flash_consume<S>(m, c.stream[i], bsri_smem_address(bsri_flash_memory) + i * S::STREAM, group);
    }
#endif
}

static int bsri_flash_map(const bsr_context *ctx, const bsr_dense *d, int rows, bsri_tensor_batch *b, bsri_tma_map *map) {
    int64_t size[4], stride[3];
    int32_t box[4] = {64, 0, 1, 1};
    if (!bsri_tensor_batch_of(d->batch_dims, d->batch, d->batch_stride, b)) return 0;
    box[1] = rows, size[0] = d->cols, size[1] = d->rows, size[2] = b->size[0], size[3] = b->size[1];
    stride[0] = d->rows > 1 ? 2 * d->row_stride : 2 * d->cols;
    stride[1] = b->stride[0] ? 2 * b->stride[0] : 16, stride[2] = b->stride[1] ? 2 * b->stride[1] : 16;
    return bsri_tensor_map(ctx, map, d->dtype, d->data, 4, size, stride, box, 128, 1);
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-maps: functions and reductions of stored elements                                     */
/* ---------------------------------------------------------------------------------------------- */

#if BSRI_HAS_CUDA_MAPS
/* --- numbers in and out --- */

/* E elements side by side, as they stand: up to 16 bytes. */
template <int E> __device__ __forceinline__ uint4 bsri_map_raw(const char *at, int dtype) {
    uint4 u = make_uint4(0, 0, 0, 0);
    switch (E << bsri_dev_shift(dtype)) {
        case 16: u = *(const uint4 *)at; break;
        case 8: {
            const uint2 v = *(const uint2 *)at;
            u.x = v.x, u.y = v.y;
            break;
        }
        case 4: u.x = *(const uint32_t *)at; break;
        case 2: u.x = *(const uint16_t *)at; break;
        default: u.x = *(const uint8_t *)at; break;
    }
    return u;
}
template <class F, int E> __device__ __forceinline__ void bsri_map_unpack(F (&v)[E], const uint4 &u, int dtype) {
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int i = 0; i < E; i++) {
        const uint32_t half = w[i / 2] >> i % 2 * 16 & 0xffff;
        switch (dtype) {
            case BSR_F16: v[i] = (F)__half2float(__ushort_as_half((unsigned short)half)); break;
            case BSR_BF16: v[i] = (F)__uint_as_float(half << 16); break;
            case BSR_F32: v[i] = (F)__uint_as_float(w[i]); break;
            case BSR_I8: v[i] = (F)(int8_t)(w[0] >> i * 8); break;
            case BSR_BOOL: v[i] = (F)((w[0] >> i * 8 & 0xff) != 0); break;
            default: /* f32 computes for none of these */
                if constexpr (sizeof(F) == 8) {
                    const uint64_t wide = i < 2 ? (uint64_t)w[2 * i + 1] << 32 | w[2 * i] : 0;
                    v[i] = dtype == BSR_I32   ? (F)(int32_t)w[i]
                           : dtype == BSR_I64 ? (F)(int64_t)wide
                                              : __longlong_as_double((int64_t)wide);
                }
                break;
        }
    }
}
/* As bsri_whole(). */
template <class F> __device__ __forceinline__ int64_t bsri_dev_whole(F v, int dtype) {
    if constexpr (sizeof(F) == 4) {
        const int n = v != v ? 0 : __float2int_rn(v);
        return dtype == BSR_I8 ? max(-128, min(127, n)) : n;
    } else {
        return bsri_whole((double)v, dtype);
    }
}
template <class F> __device__ __forceinline__ void bsri_map_put(char *base, int dtype, int64_t i, F v) {
    switch (dtype) {
        case BSR_I8: ((int8_t *)base)[i] = (int8_t)bsri_dev_whole(v, dtype); break;
        case BSR_BOOL: ((uint8_t *)base)[i] = v != 0; break;
        case BSR_I32: ((int32_t *)base)[i] = (int32_t)bsri_dev_whole(v, dtype); break;
        case BSR_I64: ((int64_t *)base)[i] = bsri_dev_whole(v, dtype); break;
        default: bsri_dev_store(base, dtype, i, v); break;
    }
}
template <class F, int E> __device__ __forceinline__ void bsri_map_pack(char *at, int dtype, const F (&v)[E]) {
    if constexpr (E == 1) {
        bsri_map_put(at, dtype, 0, v[0]);
    } else if constexpr (E == 2) {
        typedef bsri_dev_dtype<BSR_F16> f16;
        typedef bsri_dev_dtype<BSR_BF16> bf16;
        switch (dtype) {
            case BSR_F64: *(double2 *)at = make_double2(v[0], v[1]); break;
            case BSR_F32: *(float2 *)at = make_float2((float)v[0], (float)v[1]); break;
            case BSR_F16:
            case BSR_BF16: { /* each rounded once */
                const f16::stored h[2] = {f16::element(v[0]), f16::element(v[1])};
                const bf16::stored b[2] = {bf16::element(v[0]), bf16::element(v[1])};
                *(uint32_t *)at = dtype == BSR_F16 ? *(const uint32_t *)h : *(const uint32_t *)b;
                break;
            }
            case BSR_I64: *(longlong2 *)at = make_longlong2(bsri_dev_whole(v[0], dtype), bsri_dev_whole(v[1], dtype)); break;
            case BSR_I32: *(int2 *)at = make_int2((int)bsri_dev_whole(v[0], dtype), (int)bsri_dev_whole(v[1], dtype)); break;
            case BSR_I8:
                *(char2 *)at = make_char2((signed char)bsri_dev_whole(v[0], dtype), (signed char)bsri_dev_whole(v[1], dtype));
                break;
            default: *(uchar2 *)at = make_uchar2(v[0] != 0, v[1] != 0); break;
        }
    } else {
        uint32_t bytes = 0;
        switch (dtype) {
            case BSR_F32: *(float4 *)at = make_float4(v[0], v[1], v[2], v[3]); return;
            case BSR_F16:
            case BSR_BF16: *(uint2 *)at = make_uint2(bsri_dev_pack(v[0], v[1], dtype), bsri_dev_pack(v[2], v[3], dtype)); return;
            default: break;
        }
#pragma unroll
        for (int i = 0; i < E; i++)
            bytes |= (dtype == BSR_BOOL ? (uint32_t)(v[i] != 0) : (uint32_t)bsri_dev_whole(v[i], dtype) & 255u) << 8 * i;
        *(uint32_t *)at = bytes;
    }
}

/* --- functions: in f32 the smooth ones by the units for 2^x and 1 / x, else as on the CPU --- */

__device__ __forceinline__ float bsri_map_logistic(float x) { return bsri_dev_inverse(1.0f + bsri_dev_exp2(-1.442695f * x)); }
/* The normal distribution's tail beyond |x|: bsri_dev_activation<BSR_ACT_GELU>'s. */
__device__ __forceinline__ float bsri_map_tail(float t) {
    float y = fmaf(-1.2845627e-6f, t, 2.1401603e-5f);
    y = fmaf(y, t, -1.0557014e-4f), y = fmaf(y, t, -3.1572227e-4f), y = fmaf(y, t, 7.27114e-3f);
    y = fmaf(y, t, -5.2618985e-2f), y = fmaf(y, t, -4.5917552e-1f), y = fmaf(y, t, -1.151108f), y = fmaf(y, t, -1.0f);
    return bsri_dev_exp2(y);
}
template <int FUNCTION, bool SLOPE> __device__ __forceinline__ float bsri_map_smooth(float x) {
    typedef float T;
    if constexpr (FUNCTION == BSR_MAP_TANH) {
        const float e = bsri_dev_exp2(-2.885390f * fabsf(x)), r = bsri_dev_inverse(1.0f + e);
        return SLOPE ? 4.0f * e * r * r : copysignf((1.0f - e) * r, x);
    }
    if constexpr (FUNCTION == BSR_MAP_SIGMOID) {
        const float s = bsri_map_logistic(x);
        return SLOPE ? s * (1.0f - s) : s;
    }
    if constexpr (FUNCTION == BSR_ACT_GELU && !SLOPE) return bsri_dev_activation<BSR_ACT_GELU>(x);
    if constexpr (FUNCTION == BSR_ACT_GELU) {
        const float t = fminf(fabsf(x), 64.0f), tail = bsri_map_tail(t),
                    density = 0.39894228f * t * bsri_dev_exp2(-0.72134752f * t * t);
        return x != x ? x : x < 0 ? tail - density : 1.0f - tail + density;
    }
    if constexpr (FUNCTION == BSR_ACT_SILU) {
        const float s = bsri_map_logistic(x);
        return BSRI_MAP_FAR(0.0f, SLOPE ? 1.0f : x, SLOPE ? s * (1.0f + x * (1.0f - s)) : x * s);
    }
    const float s = bsri_dev_inverse(1.0f + bsri_dev_exp2(x * fmaf(-0.10294324f, x * x, -2.3022082f)));
    return BSRI_MAP_FAR(0.0f, SLOPE ? 1.0f : x, SLOPE ? s + x * (s * (1.0f - s)) * fmaf(0.21406448f, x * x, 1.5957691f) : x * s);
}
/* One case for each function and derivative: v is a piece, which is gone through at once. */
#define BSRI_DEV_MAP_CASE(name, value, slope)           \
    case 2 * name:                                      \
        _Pragma("unroll") for (int i = 0; i < E; i++) { \
            T x = v[i], e = 0;                          \
            (void)e, v[i] = (value);                    \
        }                                               \
        break;                                          \
    case 2 * name + 1:                                  \
        _Pragma("unroll") for (int i = 0; i < E; i++) { \
            T x = v[i], e = 0;                          \
            (void)e, v[i] = (slope);                    \
        }                                               \
        break;
#define BSRI_DEV_MAP_SMOOTH(name, value, slope) \
    BSRI_DEV_MAP_CASE(name, (bsri_map_smooth<name, false>(x)), (bsri_map_smooth<name, true>(x)))
template <int E> __device__ __forceinline__ void bsri_map_function(float (&v)[E], int which, float low, float high) {
    typedef float T;
    switch (which) {
        case 1:
#pragma unroll
            for (int i = 0; i < E; i++) v[i] = 1.0f;
            break;
            BSRI_MAP_SMOOTH(BSRI_DEV_MAP_SMOOTH, BSRI_MATH_F32)
            BSRI_MAP_OTHERS(BSRI_DEV_MAP_CASE, BSRI_MATH_F32)
        default: break;
    }
}
template <int E> __device__ __forceinline__ void bsri_map_function(double (&v)[E], int which, double low, double high) {
    typedef double T;
    if (which == 1) {
#pragma unroll
        for (int i = 0; i < E; i++) v[i] = 1.0;
    }
#pragma unroll 1
    for (int k = 0; k < E; k++) { /* one after another: the code for one is long enough */
        const double x = v[0];
        double e = 0, y = x;
        switch (which) {
#define BSRI_X(name, value, slope)     \
    case 2 * name: y = (value); break; \
    case 2 * name + 1: y = (slope); break;
            BSRI_MAP_SMOOTH(BSRI_X, BSRI_MATH_F64)
            BSRI_MAP_OTHERS(BSRI_X, BSRI_MATH_F64)
#undef BSRI_X
            default: break;
        }
        (void)e;
#pragma unroll
        for (int i = 0; i + 1 < E; i++) v[i] = v[i + 1];
        v[E - 1] = y;
    }
}
template <class F, int E> __device__ __forceinline__ void bsri_map_combine(F (&v)[E], const F (&y)[E], int combine) {
    switch (combine) {
#define BSRI_X(name, expression) \
    case name: _Pragma("unroll") for (int i = 0; i < E; i++) v[i] = expression; break;
        BSRI_X(BSR_COMBINE_ADD, v[i] + y[i])
        BSRI_X(BSR_COMBINE_SUB, v[i] - y[i])
        BSRI_X(BSR_COMBINE_DIV, v[i] / y[i])
        BSRI_X(BSR_COMBINE_MAX, bsri_dev_max(v[i], y[i]))
        BSRI_X(BSR_COMBINE_MIN, -bsri_dev_max(-v[i], -y[i]))
        case BSR_COMBINE_MUL: BSRI_X(BSR_COMBINE_GRADIENT, v[i] * y[i])
#undef BSRI_X
        default: break;
    }
}

/* --- where a piece stands --- */

struct bsri_map_at { /* block of the group, line of the block, piece of the line */
    int64_t block;
    int32_t row, col;
    __device__ __forceinline__ void step(const bsri_dev_map &p) {
        block += p.step_block, row += p.step_row, col += p.step_col;
        if (col >= p.line) col -= p.line, row++;
        if (row >= p.lines) row -= p.lines, block++;
    }
};
/* Rows and items of a thread's blocks, which ascend; what is known holds up to the end of a block row. */
struct bsri_map_where {
    bsri_place at;
    const void *col;
    const char *dense;
    __device__ __forceinline__ void item(const bsri_dev_map &p) {
        const bsri_item x = bsri_dev_matrix_item(&p.s.batch, at.item, &p.s.m);
        at.crow = x.crow, col = x.col;
        if (p.with == BSRI_MAP_WITH_DENSE)
            dense = bsri_dev_at(p.dense.data, p.dense.dtype, bsri_dense_offset(&p.s.batch, at.item, &p.dense));
    }
    __device__ __forceinline__ void start(const bsri_dev_map &p, int64_t group) {
        at.item = bsri_stored_item(&p.s, group, 0), at.row = 0, at.last = p.rows ? -1 : INT64_MAX, dense = nullptr;
        item(p);
    }
    __device__ __forceinline__ void seek(const bsri_dev_map &p, int64_t group, int64_t block) {
        if (block < at.last) return;
        at = bsri_stored_place(&p.s, group, block);
        item(p);
    }
};

/* Philox' words for columns col and on; as bsri_map_drop_row(). */
template <class F, int E>
__device__ __forceinline__ void bsri_map_drop(const bsri_dev_map &p, F (&v)[E], const bsr_position &at) {
    const uint4 u = bsri_dev_philox(p.seed, at.col / 4, at.row, 0, at.batch);
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
    const int skip = E == 4 ? 0 : (int)(at.col & 3); /* pieces of two begin at even columns, of four at multiples of four */
#pragma unroll
    for (int i = 0; i < E; i++) {
        const uint32_t word = E == 4      ? w[i]
                              : E == 2    ? (skip ? w[2 + i] : w[i])
                              : skip < 2  ? (skip ? w[1] : w[0])
                              : skip == 2 ? w[2]
                                          : w[3];
        v[i] = word <= (uint32_t)p.drop_last ? F(0) : v[i] * (F)p.keep;
    }
}

/* Everything that is done to a piece of x and y before it is stored. */
template <class F, int E>
__device__ __forceinline__ void bsri_map_apply(const bsri_dev_map &p, F (&v)[E], F (&y)[E], const bsr_position &at) {
    const int which = 2 * p.function + (p.combine == BSR_COMBINE_GRADIENT);
    const F alpha = (F)p.alpha, beta = (F)p.beta;
#pragma unroll
    for (int i = 0; i < E; i++) v[i] *= alpha;
    if (p.with) {
#pragma unroll
        for (int i = 0; i < E; i++) y[i] *= beta;
    } else {
#pragma unroll
        for (int i = 0; i < E; i++) y[i] = beta;
    }
#pragma unroll 1
    for (int turn = 0; turn < 2; turn++) { /* the function's code stands here once */
        if (turn == p.first) {
            bsri_map_combine(v, y, p.combine);
            continue;
        }
        if constexpr (sizeof(F) == 4) {
            if (p.function >= BSR_USER_FUNCTION_BASE) {
                bsr_position here = at;
#pragma unroll
                for (int i = 0; i < E; i++, here.col++) v[i] = bsri_activate_user(p.function, v[i], &here, p.user_data);
            } else if (which) {
                bsri_map_function(v, which, (F)p.low, (F)p.high);
            }
        } else if (which) {
            bsri_map_function(v, which, (F)p.low, (F)p.high);
        }
    }
}
/* E elements a piece. PLACES: pieces are found by block, line and column; else values are one run, the same in x, y and out. */
template <class F, int E, bool PLACES>
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_map_stored(const __grid_constant__ bsri_dev_map p BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < p.work; work += gridDim.x) {
        const int64_t group = bsri_divide(work, p.chunks), item = bsri_stored_item(&p.s, group, 0);
        const char *x = bsri_dev_matrix_item(&p.s.batch, item, &p.s.m).values, *y = nullptr;
        char *out = bsri_dev_matrix_item(&p.s.batch, item, &p.out).values;
        int64_t piece = (work - group * p.chunks) * p.run * BSRI_CTA + threadIdx.x;
        int64_t end = bsri_min(p.pieces, piece - threadIdx.x + (int64_t)p.run * BSRI_CTA);
        bsri_map_at now, next;
        bsri_map_where where;
        bsr_position at;
        uint4 ahead_x = make_uint4(0, 0, 0, 0), ahead_y = ahead_x;
        if (p.with == BSRI_MAP_WITH_MATRIX) y = bsri_dev_matrix_item(&p.s.batch, item, &p.y).values;
        memset(&at, 0, sizeof at), memset(&next, 0, sizeof next);
        if (PLACES) {
            end = bsri_min(end, bsri_stored_end(&p.s, group) * p.line * p.lines - p.from); /* there may be room for more */
            const int64_t first = piece + p.from, line = bsri_divide(first, p.line);
            next.block = bsri_divide(line, p.lines), next.row = (int32_t)(line - next.block * p.lines);
            next.col = (int32_t)(first - line * p.line);
            where.start(p, group);
        }
        /* Element offset of a piece in one of the three. */
        const auto offset = [&](const bsri_map_at &a, int64_t n, const int64_t(&s)[3]) {
            return PLACES ? a.block * s[0] + a.row * s[1] + (int64_t)a.col * E * s[2] : n * E;
        };
        const auto fetch = [&](int64_t n) {
            if (n >= end) return;
            if (p.alpha != 0) ahead_x = bsri_map_raw<E>(bsri_dev_at(x, p.s.m.dtype, offset(next, n, p.xs)), p.s.m.dtype);
            if (p.with == BSRI_MAP_WITH_MATRIX)
                ahead_y = bsri_map_raw<E>(bsri_dev_at(y, p.y.dtype, offset(next, n, p.ys)), p.y.dtype);
        };
        fetch(piece);
#pragma unroll 1
        for (; piece < end; piece += BSRI_CTA) {
            const uint4 raw_x = ahead_x, raw_y = ahead_y;
            F v[E], w[E];
            now = next;
            if (PLACES) next.step(p);
            fetch(piece + BSRI_CTA);
            bsri_map_unpack(v, raw_x, p.s.m.dtype);
            if (p.with == BSRI_MAP_WITH_MATRIX) bsri_map_unpack(w, raw_y, p.y.dtype);
            if (PLACES) {
                where.seek(p, group, now.block);
                at.batch = where.at.item, at.row = where.at.row * p.lines + now.row;
                if (p.cols) at.col = bsri_index(where.col, p.s.m.index_dtype, now.block) * ((int64_t)p.line * E) + now.col * E;
                if (p.with == BSRI_MAP_WITH_DENSE) {
                    const int64_t step = p.dense.cols == 1 ? 0 : p.dense.col_stride;
                    const int64_t from = (p.dense.rows == 1 ? 0 : at.row * p.dense.row_stride) + at.col * step;
                    if (p.vector) {
                        bsri_map_unpack(w, bsri_map_raw<E>(bsri_dev_at(where.dense, p.dense.dtype, from), p.dense.dtype),
                                        p.dense.dtype);
                    } else {
#pragma unroll
                        for (int i = 0; i < E; i++) {
                            F one[1];
                            bsri_map_unpack(
                                one, bsri_map_raw<1>(bsri_dev_at(where.dense, p.dense.dtype, from + i * step), p.dense.dtype),
                                p.dense.dtype);
                            w[i] = one[0];
                        }
                    }
                }
            }
            bsri_map_apply(p, v, w, at);
            if (PLACES && p.drops) bsri_map_drop(p, v, at);
            bsri_map_pack(bsri_dev_at(out, p.out.dtype, offset(now, piece, p.os)), p.out.dtype, v);
        }
    }
}

/* --- reductions --- */

/* x, |x| or x x joined to what is there. */
template <class F> __device__ __forceinline__ F bsri_reduce_none_of(int kind) {
    return kind == BSR_REDUCE_MAX ? -bsri_dev_inf<F>() : kind == BSR_REDUCE_MIN ? bsri_dev_inf<F>() : F(0);
}
template <class F> __device__ __forceinline__ F bsri_reduce_joined(int kind, F a, F b) {
    if (kind == BSR_REDUCE_MAX || kind == BSR_REDUCE_MAX_ABS) return bsri_dev_max(a, b);
    return kind == BSR_REDUCE_MIN ? -bsri_dev_max(-a, -b) : a + b;
}
/* N numbers to N of acc, or all to the one that it has. */
template <class F, int N, int A> __device__ __forceinline__ void bsri_reduce_add(int kind, F (&acc)[A], const F (&v)[N]) {
    switch (kind) {
#define BSRI_X(name, expression)                        \
    case name:                                          \
        _Pragma("unroll") for (int i = 0; i < N; i++) { \
            F &a = acc[A == 1 ? 0 : i];                 \
            const F x = v[i];                           \
            a = expression;                             \
        }                                               \
        break;
        BSRI_X(BSR_REDUCE_MAX, bsri_dev_max(a, x))
        BSRI_X(BSR_REDUCE_MAX_ABS, bsri_dev_max(a, (F)fabs(x)))
        BSRI_X(BSR_REDUCE_MIN, -bsri_dev_max(-a, -x))
        BSRI_X(BSR_REDUCE_SUM_ABS, a + (F)fabs(x))
        case BSR_REDUCE_NORM2: BSRI_X(BSR_REDUCE_SUM_SQUARES, a + x * x)
        default: _Pragma("unroll") for (int i = 0; i < N; i++) acc[A == 1 ? 0 : i] += v[i];
#undef BSRI_X
    }
}
/* 16 bytes of values joined to one number, or to one each (A: so many). */
template <class F, int A> __device__ __forceinline__ void bsri_reduce_piece(int kind, F (&acc)[A], const uint4 &u, int dtype) {
    const uint32_t w[4] = {u.x, u.y, u.z, u.w};
    if constexpr (sizeof(F) == 8) {
        if (A != 2 && bsri_dev_shift(dtype) < 3) { /* words of 4, 2 or 1 bytes */
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (bsri_dev_shift(dtype) == 2) {
                    F v[1];
                    bsri_map_unpack(v, make_uint4(w[i], 0, 0, 0), dtype);
                    bsri_reduce_add<F, 1>(kind, acc, v);
                } else if (bsri_dev_shift(dtype) == 1) {
                    F v[2];
                    bsri_map_unpack(v, make_uint4(w[i], 0, 0, 0), dtype);
                    bsri_reduce_add<F, 2>(kind, acc, v);
                } else {
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        F v[2];
                        bsri_map_unpack(v, make_uint4(w[i] >> 16 * k, 0, 0, 0), dtype);
                        bsri_reduce_add<F, 2>(kind, acc, v);
                    }
                }
            }
            return;
        }
        F v[2];
        bsri_map_unpack(v, u, dtype);
        bsri_reduce_add<F, 2>(kind, acc, v);
    } else {
        if (A == 8 || (A == 1 && dtype != BSR_F32)) {
            F v[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                F two[2];
                bsri_map_unpack(two, make_uint4(w[i], 0, 0, 0), dtype);
                v[2 * i] = two[0], v[2 * i + 1] = two[1];
            }
            if constexpr (A == 8 || A == 1) bsri_reduce_add<F, 8>(kind, acc, v);
            return;
        }
        F v[4];
        bsri_map_unpack(v, u, dtype);
        if constexpr (A == 4 || A == 1) bsri_reduce_add<F, 4>(kind, acc, v);
    }
}
/* A group's list of blocks, and where its lines start there. */
struct bsri_reduce_list {
    const bsri_dev_reduce &p;
    int64_t group, each; /* lines of a pattern */
    const void *one;     /* of the only pattern */
    __device__ __forceinline__ bsri_reduce_list(const bsri_dev_reduce &p_, int64_t group_)
        : p(p_), group(group_), each(p_.lines), one(nullptr) {
        if (p.over == BSR_OVER_BLOCKS) return;
        if (p.s.patterns.count == 1) one = starts(group);
        else each = bsri_divide(p.lines, p.s.patterns.count);
    }
    __device__ __forceinline__ const void *starts(int64_t item) const {
        if (p.over != BSR_OVER_COLS) return bsri_stored_crow(&p.s, item);
        return bsri_dev_at(p.starts, p.s.m.index_dtype, bsri_matrix_walk(&p.s.batch, item, &p.s.m).pattern * (each + 1));
    }
    /* l = lines: where the last one ends. */
    __device__ __forceinline__ int64_t start(int64_t l) const {
        if (p.over == BSR_OVER_BLOCKS) return l ? p.entries : 0;
        const int64_t pattern = one ? 0 : bsri_divide(l - (l == p.lines), each), at = l - pattern * each;
        return bsri_index(one ? one : starts(bsri_stored_item(&p.s, group, pattern)), p.s.m.index_dtype,
                          p.over == BSR_OVER_ALL && at ? bsri_block_rows(&p.s.m) : at);
    }
    /* The line that an entry belongs to. */
    __device__ __forceinline__ int64_t line(int64_t e) const {
        int64_t low = 0, high = p.lines - 1;
        while (low < high) {
            const int64_t half = low + (high - low) / 2;
            if (start(half + 1) > e) high = half;
            else low = half + 1;
        }
        return low;
    }
    __device__ __forceinline__ int64_t item(int64_t l) const {
        return bsri_stored_item(&p.s, group, one ? 0 : bsri_divide(l, each));
    }
    __device__ __forceinline__ int64_t step() const { return p.over == BSR_OVER_COLS ? p.out.col_stride : p.out.row_stride; }
    /* Element of out for the first output of a line. */
    __device__ __forceinline__ int64_t out(int64_t l) const {
        const int64_t at = one ? l : l - bsri_divide(l, each) * each;
        return bsri_dense_offset(&p.s.batch, item(l), &p.out) + (p.over == BSR_OVER_ALL ? 0 : at * p.outputs * step());
    }
    __device__ __forceinline__ void put(int64_t to, int64_t o, int64_t count, double v) const {
        bsri_map_put((char *)p.out.data, p.out.dtype, to + o * step(),
                     bsri_reduce_end(p.kind, v, (double)count * p.stored, p.all));
    }
};

/* The outputs of a lane, over entries from..to-1. A: outputs of a piece, 0: the elements of a piece are joined; N: elements of a
   piece, 0: 16 bytes of them. */
template <class F, int A, bool ONE>
__device__ __forceinline__ void bsri_reduce_run(const bsri_dev_reduce &p, const char *values, const void *position, int64_t o,
                                                int64_t from, int64_t to, int lane_r, int lane_b, F (&acc)[A ? A : 1]) {
    const int dtype = p.s.m.dtype, shift = bsri_dev_shift(dtype), lanes_r = 1 << p.lanes_r, lanes_b = 1 << p.lanes_b;
    const int64_t step = ONE ? p.stride[3] : A ? p.stride[3] : 16 >> shift;
    int64_t e = from + lane_b, r1 = 0, r2 = lane_r;
    const char *block = nullptr;
    const auto enter = [&] {
        const int64_t at = position ? bsri_index(position, p.s.m.index_dtype, e) : p.over == BSR_OVER_BLOCKS ? 0 : e;
        block = values + ((at * p.stride[0] + o * p.stride[1]) << shift);
    };
    const auto fetch = [&](uint4 &u) { /* the next piece; false: there is none */
                                       if (e >= to) return false;
                                       const char *at = block + ((r1 * p.stride[2] + r2 * step) << shift);
                                       u = ONE ? bsri_map_raw<1>(at, dtype) : *(const uint4 *)at;
                                       if ((r2 += lanes_r) < p.r2) return true;
                                       r2 = lane_r;
                                       if (++r1 < p.r1) return true;
                                       r1 = 0, e += lanes_b;
                                       if (e < to) enter();
                                       return true;
    };
    const auto add = [&](const uint4 &u) {
        if constexpr (ONE) {
            F v[1];
            bsri_map_unpack(v, u, dtype);
            bsri_reduce_add<F, 1>(p.kind, acc, v);
        } else {
            bsri_reduce_piece(p.kind, acc, u, dtype);
        }
    };
    uint4 a, b, c, d;
    if (e >= to || lane_r >= p.r2) return;
    enter();
    bool more_a = fetch(a), more_b = fetch(b), more_c = fetch(c);
#pragma unroll 1
    while (more_a) {
        const bool more_d = fetch(d);
        add(a);
        a = b, b = c, c = d, more_a = more_b, more_b = more_c, more_c = more_d;
    }
}
template <class F, int A, bool ONE>
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_reduce_windows(const __grid_constant__ bsri_dev_reduce p BSRI_GATE) {
    constexpr int N = A ? A : 1;
    const int lane = threadIdx.x % 32, at_o = p.across ? 0 : p.lanes_r, at_r = p.across ? p.lanes_o : 0;
    const int lane_o = lane >> at_o & ((1 << p.lanes_o) - 1), lane_r = lane >> at_r & ((1 << p.lanes_r) - 1);
    const int lane_b = lane >> (p.lanes_o + p.lanes_r), others = ((1 << p.lanes_o) - 1) << at_o;
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = blockIdx.x * (int64_t)BSRI_CTA_WARPS + threadIdx.x / 32; work < p.work;
         work += (int64_t)gridDim.x * BSRI_CTA_WARPS) {
        const int64_t unit = bsri_divide(work, p.shares), share = work - unit * p.shares;
        const int64_t group = bsri_divide(unit, p.windows), w = unit - group * p.windows;
        const bsri_reduce_list list(p, group);
        const int64_t end = bsri_min(list.start(p.lines), (w + 1) * p.window); /* there may be room for more than there are */
        int64_t e = w * p.window, l = 0;
        if (e < end) l = list.line(e);
        while (e < end) {
            const bsri_item it = bsri_dev_matrix_item(&p.s.batch, list.item(l), &p.s.m);
            const char *position =
                p.position ? bsri_dev_at(p.position, p.s.m.index_dtype, it.pattern * p.index_entries) : nullptr;
            const int64_t begin = list.start(l), last = list.start(l + 1), to = bsri_min(last, end);
            const bool whole = e == begin && to == last;
            const int64_t out = whole ? list.out(l) : (group * p.slots + w + l) * p.outputs;
#pragma unroll 1
            for (int64_t k = share * p.each; k < (share + 1) * p.each && (k << p.lanes_o) * N < p.outputs; k++) {
                const int64_t o = ((k << p.lanes_o) + lane_o) * N;
                F acc[N];
#pragma unroll
                for (int i = 0; i < N; i++) acc[i] = bsri_reduce_none_of<F>(p.kind);
                if (o < p.outputs) bsri_reduce_run<F, A, ONE>(p, it.values, position, o, e, to, lane_r, lane_b, acc);
#pragma unroll 1
                for (int d = 16; d; d /= 2) {
                    if (d & others) continue;
#pragma unroll
                    for (int i = 0; i < N; i++) acc[i] = bsri_reduce_joined(p.kind, acc[i], __shfl_xor_sync(~0u, acc[i], d));
                }
                if (lane_r || lane_b || o >= p.outputs) continue;
#pragma unroll
                for (int i = 0; i < N; i++) {
                    if (whole) list.put(out, o + i, last - begin, (double)acc[i]);
                    else ((F *)p.part)[out + o + i] = acc[i];
                }
            }
            e = to, l++;
            if (e < end && list.start(l + 1) <= e) l = list.line(e); /* lines without blocks are the next kernel's */
        }
    }
}
/* Outputs whose lines are empty, or in several windows: a thread each, long ones by a warp together, or each by a CTA. */
template <class F>
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_reduce_parts(const __grid_constant__ bsri_dev_reduce p BSRI_GATE) {
    __shared__ F shared[BSRI_CTA_WARPS];
    const int64_t units = p.s.groups.count * p.lines * p.outputs, lane = threadIdx.x % 32, each = p.team == 1 ? BSRI_CTA : 1;
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = (int64_t)blockIdx.x * each; work < units; work += (int64_t)gridDim.x * each) {
        const int64_t unit = p.team == 1 ? work + threadIdx.x : work, of = bsri_divide(unit, p.outputs),
                      o = unit - of * p.outputs;
        const int64_t group = bsri_divide(of, p.lines), l = of - group * p.lines;
        int64_t begin = 0, end = 0, first = 0, n = 0;
        F v = bsri_reduce_none_of<F>(p.kind);
        const bsri_reduce_list list(p, unit < units ? group : 0);
        if (unit < units) {
            begin = list.start(l), end = list.start(l + 1);
            first = bsri_divide(begin, p.window), n = end > begin ? bsri_divide(end - 1, p.window) - first + 1 : 0;
        }
        const F *part = (const F *)p.part + (group * p.slots + first + l) * p.outputs + o;
        const auto sum = [&](const F *from, int64_t i, int64_t count, int64_t step) {
            F s = bsri_reduce_none_of<F>(p.kind);
#pragma unroll 4
            for (; i < count; i += step) s = bsri_reduce_joined(p.kind, s, from[i * p.outputs]);
            return s;
        };
        if (p.team == 1) {
            unsigned many = __ballot_sync(~0u, n > 64);
            if (n > 1 && n <= 64) v = sum(part, 0, n, 1);
            for (; many; many &= many - 1) {
                const int who = __ffs(many) - 1;
                const F *from = (const F *)(uintptr_t)__shfl_sync(~0u, (unsigned long long)(uintptr_t)part, who);
                F s = sum(from, lane, __shfl_sync(~0u, n, who), 32);
                for (int d = 16; d; d /= 2) s = bsri_reduce_joined(p.kind, s, __shfl_xor_sync(~0u, s, d));
                if (lane == who) v = s;
            }
        } else {
            v = n > 1 ? sum(part, threadIdx.x, n, BSRI_CTA) : v;
            for (int d = 16; d; d /= 2) v = bsri_reduce_joined(p.kind, v, __shfl_xor_sync(~0u, v, d));
            __syncthreads();
            if (!lane) shared[threadIdx.x / 32] = v;
            __syncthreads();
            v = shared[0];
            for (int i = 1; i < BSRI_CTA_WARPS; i++) v = bsri_reduce_joined(p.kind, v, shared[i]);
            if (threadIdx.x) continue;
        }
        if (unit < units && n != 1) list.put(list.out(l), o, end - begin, (double)v);
    }
}
#endif

/* ---------------------------------------------------------------------------------------------- */
/* >>device-stage: views copied to views: operands laid anew                                      */
/* ---------------------------------------------------------------------------------------------- */

/* 16 bytes that begin `skew` bytes into 32. */
__device__ __forceinline__ uint4 bsri_copy_shifted(uint4 x, const uint4 &y, int skew) {
    uint32_t w[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = skew & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = skew & 4 ? w[i + 1] : w[i];
    const int bits = 8 * (skew & 3);
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits), __funnelshift_r(w[2], w[3], bits),
                      __funnelshift_r(w[3], w[4], bits));
}
/* Bytes [first, last) of a line, element by element; zeros from `bytes` on. */
template <class T> __device__ __forceinline__ void bsri_copy_few(char *to, const char *from, int64_t first, int64_t last,
                                                                 int64_t bytes) {
    for (int64_t at = first; at < last; at += (int64_t)sizeof(T)) *(T *)(to + at) = at < bytes ? *(const T *)(from + at) : T(0);
}
/* Element offsets of an item in both views. */
__device__ __forceinline__ void bsri_copy_item(const bsri_dev_copy &c, int64_t item, int64_t *from, int64_t *to) {
    *from = *to = 0;
    for (int d = c.items.dims - 1; d >= 0 && item; d--) {
        const int64_t outer = bsri_divide(item, c.items.size[d]), at = item - outer * c.items.size[d];
        *from += at * c.from_item[d], *to += at * c.to_item[d], item = outer;
    }
}
/* Some lanes of a warp bring a line, each BSRI_COPY_EACH pieces of 16 aligned bytes of the target. Of the source only what is the
   operand's is read: pieces at the ends go by elements. */
static __device__ void bsri_copy_lines(const bsri_dev_copy &c, int64_t work) {
    const int lane = threadIdx.x & 31, share = 1 << c.lanes, each = 32 >> c.lanes;
    const int64_t pieces = ((c.all << c.shift) >> 4) + 2, groups = bsri_ceil_div(c.all_lines, each);
    const int64_t chunks = bsri_ceil_div(pieces, (int64_t)BSRI_COPY_EACH << c.lanes);
    const int64_t unit = work * 8 + threadIdx.x / 32, part = bsri_divide(unit, chunks), chunk = unit - part * chunks;
    const int64_t item = bsri_divide(part, groups), line = (part - item * groups) * each + (lane >> c.lanes);
    int64_t from_at, to_at;
    if (item >= c.items.count || line >= c.all_lines) return;
    bsri_copy_item(c, item, &from_at, &to_at);
    const char *base = c.from + (from_at << c.shift), *src = base + (line * c.from_line << c.shift);
    char *dst = c.to + ((to_at + line * c.to_line) << c.shift);
    const int64_t bytes = line < c.lines ? c.length << c.shift : 0, all = c.all << c.shift;
    const int64_t reach = c.packed ? (((c.lines - 1) * c.from_line + c.length) << c.shift) - (src - base) : bytes;
    const int64_t before = c.packed ? base - src : 0; /* what may be read: bytes [before, reach) from src on */
    const int skew = (int)((uintptr_t)src - (uintptr_t)dst) & 15, over = (int)((uintptr_t)dst & 15);
    uint4 x[BSRI_COPY_EACH], y[BSRI_COPY_EACH];
    bool fast[BSRI_COPY_EACH];
#pragma unroll
    for (int k = 0; k < BSRI_COPY_EACH; k++) {
        const int64_t at = (chunk * BSRI_COPY_EACH + k) * share * 16 + (lane & (share - 1)) * 16 - over, first = at - skew;
        fast[k] = at >= 0 && at + 16 <= bytes && first >= before && first + (skew ? 32 : 16) <= reach;
        if (!fast[k]) continue;
        x[k] = *(const uint4 *)(src + first);
        y[k] = skew ? *(const uint4 *)(src + first + 16) : x[k];
    }
#pragma unroll
    for (int k = 0; k < BSRI_COPY_EACH; k++) {
        const int64_t at = (chunk * BSRI_COPY_EACH + k) * share * 16 + (lane & (share - 1)) * 16 - over;
        const int64_t first = at > 0 ? at : 0, last = at + 16 < all ? at + 16 : all;
        if (fast[k]) *(uint4 *)(dst + at) = bsri_copy_shifted(x[k], y[k], skew);
        else if (c.shift == 0) bsri_copy_few<uint8_t>(dst, src, first, last, bytes);
        else if (c.shift == 1) bsri_copy_few<uint16_t>(dst, src, first, last, bytes);
        else if (c.shift == 2) bsri_copy_few<uint32_t>(dst, src, first, last, bytes);
        else bsri_copy_few<uint64_t>(dst, src, first, last, bytes);
    }
}
/* A tile of 64 lines by way of shared memory, read and written along what is next to each other in either view; by words where
   several elements make one and stand so. */
template <class T> __device__ __forceinline__ void bsri_copy_tile_of(const bsri_dev_copy &c, int64_t work, char *shared) {
    constexpr int ROWS = BSRI_COPY_TILE, COLS = sizeof(T) == 8 ? 32 : 64, V = sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1;
    constexpr int LINE = COLS + (V > 1 ? V : 1); /* a multiple of words, and of an odd number of them */
    T *tile = (T *)shared;
    const int64_t across = bsri_ceil_div(c.all, COLS), down = bsri_ceil_div(c.all_lines, ROWS);
    const int64_t part = bsri_divide(work, across), item = bsri_divide(part, down);
    const int64_t line = (part - item * down) * ROWS, col = (work - part * across) * COLS;
    int64_t from_at, to_at;
    bsri_copy_item(c, item, &from_at, &to_at);
    const T *src = (const T *)c.from + from_at + line * c.from_line + col * c.from_step;
    T *dst = (T *)c.to + to_at + line * c.to_line + col * c.to_step;
    const int lines = (int)bsri_max(0, bsri_min(ROWS, c.lines - line)), length = (int)bsri_max(0, bsri_min(COLS, c.length - col));
    const int all_lines = (int)bsri_min(ROWS, c.all_lines - line), all = (int)bsri_min(COLS, c.all - col);
    if (V > 1 && c.from_line == 1 && lines == ROWS && ((uintptr_t)src | (uintptr_t)(c.from_step * sizeof(T))) % 4 == 0) {
        for (int i = threadIdx.x; i < ROWS / V * COLS; i += 256) {
            const int r = i % (ROWS / V) * V, k = i / (ROWS / V);
            const uint32_t word = k < length ? *(const uint32_t *)(src + r + k * c.from_step) : 0u;
            for (int j = 0; j < V; j++) tile[(r + j) * LINE + k] = (T)(word >> (j * 8 * (int)sizeof(T)));
        }
    } else if (c.from_line < c.from_step) {
        for (int i = threadIdx.x; i < ROWS * COLS; i += 256) {
            const int r = i % ROWS, k = i / ROWS;
            tile[r * LINE + k] = r < lines && k < length ? src[r * c.from_line + k * c.from_step] : T(0);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * COLS; i += 256) {
            const int r = i / COLS, k = i % COLS;
            tile[r * LINE + k] = r < lines && k < length ? src[r * c.from_line + k * c.from_step] : T(0);
        }
    }
    __syncthreads();
    if (V > 1 && c.to_step == 1 && all == COLS && ((uintptr_t)dst | (uintptr_t)(c.to_line * sizeof(T))) % 4 == 0) {
        for (int i = threadIdx.x; i < ROWS * COLS / V; i += 256) {
            const int r = i / (COLS / V), k = i % (COLS / V) * V;
            if (r < all_lines) *(uint32_t *)(dst + r * c.to_line + k) = *(const uint32_t *)(tile + r * LINE + k);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * COLS; i += 256) {
            const int r = i / COLS, k = i % COLS;
            if (r < all_lines && k < all) dst[r * c.to_line + k * c.to_step] = tile[r * LINE + k];
        }
    }
    __syncthreads();
}
static __global__ void __launch_bounds__(256) bsri_copy_views(const __grid_constant__ bsri_dev_copies m BSRI_GATE) {
    __shared__ __align__(16) char tile[BSRI_COPY_TILE * 33 * 8];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t next = blockIdx.x;; next += gridDim.x) {
        int64_t work = next;
        int i = 0;
        while (i < m.count && work >= m.copy[i].work) work -= m.copy[i++].work;
        if (i == m.count) return;
        const bsri_dev_copy &c = m.copy[i];
        if (c.lanes >= 0) bsri_copy_lines(c, work);
        else if (c.shift == 0) bsri_copy_tile_of<uint8_t>(c, work, tile);
        else if (c.shift == 1) bsri_copy_tile_of<uint16_t>(c, work, tile);
        else if (c.shift == 2) bsri_copy_tile_of<uint32_t>(c, work, tile);
        else bsri_copy_tile_of<uint64_t>(c, work, tile);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-sort: filling, stable radix sort of runs of keys                                      */
/* ---------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(BSRI_CTA) bsri_fill_words(const __grid_constant__ bsri_dev_fill f BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t total = f.words + f.more_words, step = (int64_t)gridDim.x * BSRI_CTA;
    const int64_t spare =
        f.spare_count ? bsri_max(0, bsri_index(f.spare_count, f.spare_dtype, 0)) * bsri_dev_size(f.spare_dtype) / 8 : 0;
    for (int64_t i = blockIdx.x * (int64_t)BSRI_CTA + threadIdx.x; i < total; i += step) {
        if (i >= f.words) f.more[i - f.words] = 0;
        else if (i < f.heads) f.data[i] = f.head[i];
        else if ((i < f.spare[0] || i >= f.spare[0] + spare) && (i < f.spare[1] || i >= f.spare[1] + spare)) f.data[i] = 0;
    }
}

/* Inclusive sum over the lanes of a warp. */
template <class I> __device__ __forceinline__ I bsri_dev_warp_sum(I v) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const I other = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += other;
    }
    return v;
}
/* Sum over the threads before this one, of a block of at most 1024; *total: over all. Ends in a barrier. */
template <class I> __device__ __forceinline__ I bsri_dev_block_before(I v, I *part, I *total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const I upto = bsri_dev_warp_sum(v);
    if (lane == 31) part[warp] = upto;
    __syncthreads();
    if (warp == 0) {
        const I mine = lane < warps ? part[lane] : I(0), sum = bsri_dev_warp_sum(mine);
        part[lane] = sum - mine;
        if (lane == 31) part[32] = sum;
    }
    __syncthreads();
    const I before = part[warp] + upto - v;
    *total = part[32];
    __syncthreads();
    return before;
}

/* Where run i stands: its first slot and entries, held inside the arrays whatever crow says. */
struct bsri_dev_run {
    int64_t base, chunks, first, end, shift;
    const void *crow, *col;
};
__device__ __forceinline__ bsri_dev_run bsri_dev_run_of(const bsri_dev_sort &s, int64_t i) {
    bsri_dev_run r;
    r.first = 0, r.end = s.n, r.crow = r.col = nullptr;
    if (s.m.crow_indices) {
        const bsri_item it = bsri_dev_matrix_item(&s.patterns, i, &s.m);
        r.crow = it.crow, r.col = it.col;
        r.first = bsri_max(0, bsri_min(s.n, bsri_index(it.crow, s.m.index_dtype, 0)));
        r.end = bsri_max(r.first, bsri_min(s.n, bsri_index(it.crow, s.m.index_dtype, bsri_block_rows(&s.m))));
    }
    r.base = s.ragged ? (r.first >> s.chunk_bits) + i : i * s.chunks;
    r.chunks = (r.end - r.first + s.chunk - 1) >> s.chunk_bits, r.shift = s.ragged ? 0 : i * s.n;
    return r;
}
/* The run that slot `at` belongs to; *k: which of its chunks (it may have fewer). */
__device__ __forceinline__ bsri_dev_run bsri_dev_slot(const bsri_dev_sort &s, int64_t at, int64_t *k, int64_t *run) {
    bsri_dev_run r;
    int64_t low = 0, high = s.patterns.count;
    if (!s.ragged) low = high > 1 ? at / s.chunks : 0, high = low + 1;
    while (high - low > 1) {
        const int64_t mid = (low + high) / 2;
        if (bsri_dev_run_of(s, mid).base <= at) low = mid;
        else high = mid;
    }
    r = bsri_dev_run_of(s, low);
    *k = at - r.base, *run = low;
    return r;
}
template <class I> __device__ __forceinline__ const I *bsri_dev_sort_keys(const bsri_dev_sort &s, const bsri_dev_run &r) {
    return s.key ? (const I *)s.key + r.shift : (const I *)r.col;
}
__device__ __forceinline__ int bsri_dev_digit(const bsri_dev_sort &s, int32_t key) {
    return (int)((uint32_t)key >> s.shift) & ((int)s.digits - 1);
}
__device__ __forceinline__ int bsri_dev_digit(const bsri_dev_sort &s, int64_t key) {
    return (int)((uint64_t)key >> s.shift) & ((int)s.digits - 1);
}

template <class I>
__global__ void __launch_bounds__(BSRI_CTA) bsri_sort_count(const __grid_constant__ bsri_dev_sort s BSRI_GATE) {
    __shared__ uint32_t count[256];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (s.wanted && !(*s.wanted & s.wanted_bits)) return;
    for (int64_t slot = blockIdx.x; slot < s.slots; slot += gridDim.x) {
        int64_t k, run;
        const bsri_dev_run r = bsri_dev_slot(s, slot, &k, &run);
        if (k < 0 || k >= r.chunks) continue;
        const int64_t end = bsri_min(r.end, r.first + (k + 1) * s.chunk);
        count[threadIdx.x] = 0;
        __syncthreads();
        const I *keys = bsri_dev_sort_keys<I>(s, r);
#pragma unroll 8
        for (int64_t e = r.first + k * s.chunk + threadIdx.x; e < end; e += BSRI_CTA)
            atomicAdd(&count[bsri_dev_digit(s, keys[e])], 1u);
        __syncthreads();
        if (threadIdx.x < s.digits) ((I *)s.counts)[r.base * s.digits + threadIdx.x * r.chunks + k] = (I)count[threadIdx.x];
        __syncthreads();
    }
}
/* A warp per run and digit: counts become what stands before, inside the digit. */
template <class I> __global__ void __launch_bounds__(BSRI_CTA) bsri_sort_scan(const __grid_constant__ bsri_dev_sort s BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (s.wanted && !(*s.wanted & s.wanted_bits)) return;
    const int lane = threadIdx.x & 31;
    const int64_t total = s.patterns.count * s.digits, step = (int64_t)gridDim.x * 8;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += step) {
        const bsri_dev_run r = bsri_dev_run_of(s, work / s.digits);
        I *count = (I *)s.counts + r.base * s.digits + work % s.digits * r.chunks, sum = 0, v[4];
        for (int64_t k0 = 0; k0 < r.chunks; k0 += 128) {
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = k0 + j * 32 + lane < r.chunks ? count[k0 + j * 32 + lane] : I(0);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const I upto = bsri_dev_warp_sum(v[j]);
                if (k0 + j * 32 + lane < r.chunks) count[k0 + j * 32 + lane] = sum + upto - v[j];
                sum += __shfl_sync(~0u, upto, 31);
            }
        }
        if (lane == 0) ((I *)s.totals)[work] = sum;
    }
}
/* The lanes of the warp with the same digit. */
template <int BITS> __device__ __forceinline__ unsigned bsri_dev_peers(int digit) {
    unsigned same = ~0u;
#pragma unroll
    for (int b = 0; b < BITS; b++) {
        const unsigned set = __ballot_sync(~0u, digit & 1 << b);
        same &= digit & 1 << b ? set : ~set;
    }
    return same;
}
/* The last of the entries [low, high) of crow that is `at` or less. */
template <class I> __device__ __forceinline__ const I *bsri_dev_row_between(const I *low, const I *high, int64_t at) {
    while (high - low > 1) {
        const int64_t mid = (high - low) / 2;
        if (low[mid] <= at) low += mid;
        else high = low + mid;
    }
    return low;
}
/* The same by a warp together, which looks at 32 at once. */
template <class I> __device__ __forceinline__ const I *bsri_dev_row_of_warp(const I *low, const I *high, int64_t at) {
    while (high - low > 1) {
        const int64_t step = (high - low + 31) / 32, mine = (threadIdx.x & 31) * step;
        const int past = max(1, __popc(__ballot_sync(~0u, mine < high - low && low[mine] <= at)));
        high = low + bsri_min(high - low, past * step), low += (past - 1) * step;
    }
    return low;
}
/* Rows of a warp's entries first + lane, + 32, ... of which `last` is the last: how many rows start up to them. */
template <class I>
__device__ __forceinline__ void bsri_dev_rows_of_warp(I (&row)[8], const I *crow, int64_t rows, int64_t first, int64_t last) {
    const int lane = threadIdx.x & 31;
    const I *low = bsri_dev_row_of_warp(crow, crow + rows, first), *end = crow + rows;
    const I start = end - low > lane + 1 ? low[lane + 1] : I(0);
    const int starts = __popc(__ballot_sync(~0u, end - low > lane + 1 && start <= last));
#pragma unroll
    for (int j = 0; j < 8; j++) row[j] = (I)(low - crow);
    if (starts == 32) { /* many are empty */
#pragma unroll
        for (int j = 0; j < 8; j++) row[j] = (I)(bsri_dev_row_between(low, end, first + lane + j * 32) - crow);
        return;
    }
    const int ahead = (int)(start - (I)first); /* of the warp's first entry */
    for (int i = 0; i < starts; i++) {
        const int at = __shfl_sync(~0u, ahead, i) - lane;
#pragma unroll
        for (int j = 0; j < 8; j++) row[j] += at <= j * 32;
    }
}
/* A tile, sorted by digit, to where its digits go. Begins and ends with a barrier. */
template <class I>
__device__ __forceinline__ void bsri_dev_scatter_staged(I *out, const I *staged, const uint8_t *digits, const I *base, int n,
                                                        int64_t limit) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int i = threadIdx.x + j * BSRI_CTA;
        if (i >= n) break;
        const I at = base[digits[i]] + (I)i;
        if (at >= 0 && at < (I)limit) out[at] = staged[i]; /* else the pattern is none */
    }
    __syncthreads();
}
/* Places of a warp's 256 entries of a tile, own + 32 j, among its own of the same digit, and how many it has of each. Ends with a
   barrier. */
template <class I>
__device__ __forceinline__ void bsri_dev_scatter_rank(const bsri_dev_sort &s, const I (&key)[8], int own, int n,
                                                      uint32_t (&count)[8][256], uint16_t *places) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, mine = threadIdx.x;
    for (int w = 0; w < 8; w++) count[w][mine] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int digit = bsri_dev_digit(s, key[j]), valid = own + j * 32 < n;
        const unsigned same = bsri_dev_peers<8>(digit) & __ballot_sync(~0u, valid), lower = same & ((1u << lane) - 1);
        places[own + j * 32] = (uint16_t)(count[warp][digit] + (uint32_t)__popc(lower));
        __syncwarp();
        if (valid && !lower) count[warp][digit] += (uint32_t)__popc(same);
        __syncwarp();
    }
    __syncthreads();
}
/* Counts become what stands before in the tile; where this thread's digit ends there. Ends with a barrier. */
template <class I>
__device__ __forceinline__ uint32_t bsri_dev_scatter_join(uint32_t (&count)[8][256], I *base, I *part) {
    const int mine = threadIdx.x;
    uint32_t sum = 0, whole;
    for (int w = 0; w < 8; w++) sum += count[w][mine];
    uint32_t before = bsri_dev_block_before(sum, (uint32_t *)part, &whole);
    base[mine] -= (I)before; /* so that base + place in the tile is the place in the run */
    for (int w = 0; w < 8; w++) {
        const uint32_t here = count[w][mine];
        count[w][mine] = before, before += here;
    }
    __syncthreads();
    return before;
}
/* Each warp ranks 256 entries of a tile of 2048 by themselves; sums over the warps then make the ranks the tile's. Sorted
   inside the tile first, entries leave in runs. */
template <class I>
__global__ void __launch_bounds__(BSRI_CTA, sizeof(I) == 4 ? 4 : 2)
    bsri_sort_scatter(const __grid_constant__ bsri_dev_sort s BSRI_GATE) {
    __shared__ uint32_t count[8][256];
    __shared__ I base[256], part[33], staged[2048];
    __shared__ uint8_t digits[2048];
    __shared__ uint16_t places[2048]; /* each thread's own: in registers they would leave room for fewer CTAs (note N25) */
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, mine = threadIdx.x;
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (s.wanted && !(*s.wanted & s.wanted_bits)) return;
    for (int64_t slot = blockIdx.x; slot < s.slots; slot += gridDim.x) {
        int64_t k, run;
        I all;
        const bsri_dev_run r = bsri_dev_slot(s, slot, &k, &run);
        if (k < 0 || k >= r.chunks) continue;
        const int64_t begin = r.first + k * s.chunk, end = bsri_min(r.end, begin + s.chunk);
        const I total = mine < s.digits ? ((const I *)s.totals)[run * s.digits + mine] : I(0);
        base[mine] = bsri_dev_block_before(total, part, &all) + (I)r.first;
        if (mine < s.digits) base[mine] += ((const I *)s.counts)[r.base * s.digits + mine * r.chunks + k];
        const I *keys = bsri_dev_sort_keys<I>(s, r);
        for (int64_t tile = begin; tile < end; tile += 2048) {
            const int n = (int)bsri_min(2048, end - tile), own = warp * 256 + lane; /* entries own + 32 j */
            I key[8];
#pragma unroll
            for (int j = 0; j < 8; j++) key[j] = own + j * 32 < n ? keys[tile + own + j * 32] : I(0);
            bsri_dev_scatter_rank(s, key, own, n, count, places);
            const uint32_t last = bsri_dev_scatter_join(count, base, part);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const int digit = bsri_dev_digit(s, key[j]);
                const int place = (int)(places[own + j * 32] + count[warp][digit]);
                places[own + j * 32] = (uint16_t)place;
                if (own + j * 32 < n) digits[place] = (uint8_t)digit, staged[place] = key[j];
            }
            bsri_dev_scatter_staged<I>((I *)s.key_out + r.shift, staged, digits, base, n, s.n);
            const I *old = s.position ? (const I *)s.position + r.shift + tile : nullptr;
            if (s.position_out) {
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (own + j * 32 < n) staged[places[own + j * 32]] = old ? old[own + j * 32] : (I)(tile + own + j * 32);
                bsri_dev_scatter_staged<I>((I *)s.position_out + r.shift, staged, digits, base, n, s.n);
            }
            if (s.row_out) {
                old = s.row ? (const I *)s.row + r.shift + tile : nullptr;
                I rows[8];
#pragma unroll
                for (int j = 0; j < 8; j++) rows[j] = old && own + j * 32 < n ? old[own + j * 32] : I(0);
                if (!old && warp * 256 < n)
                    bsri_dev_rows_of_warp(rows, (const I *)r.crow, bsri_block_rows(&s.m), tile + warp * 256,
                                          tile + min(n, warp * 256 + 256) - 1);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (own + j * 32 < n) staged[places[own + j * 32]] = rows[j];
                bsri_dev_scatter_staged<I>((I *)s.row_out + r.shift, staged, digits, base, n, s.n);
            }
            __syncthreads();
            base[mine] += (I)last;
            __syncthreads();
        }
        __syncthreads();
    }
}
/* Where each column starts among the sorted keys: each entry writes the columns after its predecessor's up to its own. */
template <class I>
__global__ void __launch_bounds__(BSRI_CTA) bsri_sort_starts(const __grid_constant__ bsri_dev_sort s BSRI_GATE) {
    BSRI_ENTER;
    bsri_pdl_wait();
    const int lane = threadIdx.x & 31;
    for (int64_t slot = blockIdx.x; slot < s.slots; slot += gridDim.x) {
        int64_t k, run;
        const bsri_dev_run r = bsri_dev_slot(s, slot, &k, &run);
        const I *key = (const I *)s.key_out + r.shift;
        I *ccol = (I *)s.ccol + run * (s.cols + 1);
        if (k < 0 || (k && k >= r.chunks)) continue;
        const int64_t begin = r.first + k * s.chunk, end = k + 1 < r.chunks ? begin + s.chunk : r.end + 1; /* one past the run */
        for (int64_t tile = begin; tile < end; tile += 1024) {
            I last[4], next[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t e = tile + j * BSRI_CTA + threadIdx.x;
                last[j] = e < end && e > r.first ? key[e - 1] : I(-1), next[j] = e < end && e < r.end ? key[e] : (I)s.cols;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t e = tile + j * BSRI_CTA + threadIdx.x;
                int64_t c = bsri_max(0, bsri_min(s.cols, last[j]) + 1), stop = e < end ? bsri_min(s.cols, next[j]) + 1 : 0;
                unsigned wide = __ballot_sync(~0u, stop - c > 64); /* these together */
                if (stop - c <= 64)
                    for (; c < stop; c++) ccol[c] = (I)e;
                for (; wide; wide &= wide - 1) {
                    const int who = __ffs((int)wide) - 1;
                    const int64_t from = __shfl_sync(~0u, c, who), to = __shfl_sync(~0u, stop, who),
                                  at = __shfl_sync(~0u, e, who);
                    for (int64_t i = from + lane; i < to; i += 32) ccol[i] = (I)at;
                }
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-lines: lengths, order and grouping of lines                                           */
/* ---------------------------------------------------------------------------------------------- */

/* What stands in a line of a pattern. */
struct bsri_dev_line {
    const void *list;
    int64_t at, end;
};
__device__ __forceinline__ bsri_dev_line bsri_dev_line_of(const bsri_dev_lines &l, int64_t pattern, int64_t line) {
    const int dt = l.m.index_dtype;
    bsri_dev_line x;
    const void *start;
    if (l.start) {
        start = bsri_dev_at(l.start, dt, pattern * (l.count + 1)), x.list = bsri_dev_at(l.list, dt, pattern * l.each);
    } else {
        const bsri_item it = bsri_dev_matrix_item(&l.patterns, pattern, &l.m);
        start = it.crow, x.list = it.col;
    }
    x.at = bsri_index(start, dt, line), x.end = bsri_index(start, dt, line + 1);
    x.at = bsri_max(0, bsri_min(l.m.nnz, x.at)), x.end = bsri_max(x.at, bsri_min(l.m.nnz, x.end));
    return x;
}
/* Different entries of a line, by one warp; unordered lines with repeats take the long way. */
__device__ __forceinline__ int64_t bsri_dev_distinct(const bsri_dev_line &x, int dt) {
    const int lane = threadIdx.x & 31;
    int falls = 0, repeats = 0;
    int64_t distinct = 0;
#pragma unroll 4
    for (int64_t p = x.at + 1 + lane; p < x.end; p += 32) {
        const int64_t a = bsri_index(x.list, dt, p - 1), b = bsri_index(x.list, dt, p);
        falls |= b < a, repeats += b == a;
    }
    if (!__any_sync(~0u, falls)) return x.end - x.at - __shfl_sync(~0u, bsri_dev_warp_sum(repeats), 31);
    for (int64_t p = x.at + lane; p < x.end; p += 32) {
        const int64_t mine = bsri_index(x.list, dt, p);
        int64_t q = x.at;
        while (q < p && bsri_index(x.list, dt, q) != mine) q++;
        distinct += q == p;
    }
    distinct = bsri_dev_warp_sum(distinct);
    return __shfl_sync(~0u, distinct, 31);
}
/* A warp per line: its key, how many different entries it has, and its bit set. */
static __global__ void BSRI_BOUNDS(BSRI_CTA) bsri_lines_measure(const __grid_constant__ bsri_dev_lines l BSRI_GATE) {
    BSRI_ENTER;
    bsri_pdl_wait(); /* the next kernel's CTAs would crowd where there is room (note N25) */
    const int lane = threadIdx.x & 31, dt = l.m.index_dtype;
    const int64_t total = l.patterns.count * l.count, step = (int64_t)gridDim.x * 8;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += step) {
        const int64_t pattern = work / l.count;
        const bsri_dev_line x = bsri_dev_line_of(l, pattern, work % l.count);
        const int64_t length = bsri_min(x.end - x.at, l.limit), distinct = l.distinct ? bsri_dev_distinct(x, dt) : length;
        uint32_t *bits = l.bits + work * l.words;
        if (lane == 0) {
            l.key[work] = l.group == 1 && l.distinct ? (uint64_t)distinct << 32 | (uint64_t)length : (uint64_t)length;
            if (l.distinct) l.distinct[work] = (int32_t)distinct;
            if (l.repeats && distinct != x.end - x.at) l.repeats[pattern] = 1;
        }
        for (int64_t w = lane; w < l.words; w += 32) bits[w] = 0;
        __syncwarp();
        for (int64_t p = x.at + lane; p < x.end && l.words; p += 32) {
            const int64_t at = bsri_index(x.list, dt, p);
            if ((uint64_t)at < (uint64_t)l.others) atomicOr(&bits[at / 32], 1u << (at % 32));
        }
    }
}

/* A warp per four lines: how many lines come before a line is its place. The CTA fetches keys in tiles: one by one, all CTAs
   would ask the same part of the L2 at once (note N25). */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_rank_lines(const __grid_constant__ bsri_dev_rank r BSRI_GATE) {
    __shared__ uint64_t tile[2048];
    const int lane = threadIdx.x & 31, n = (int)r.n, full = (int)r.full;
    const int64_t parts = (r.n + 31) / 32, total = r.patterns * parts;
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < total; work += gridDim.x) {
        const int64_t pattern = work / parts;
        const uint64_t *key = r.key + pattern * r.n;
        const int i0 = (int)(work % parts) * 32 + (int)threadIdx.x / 32 * 4;
        const uint64_t own = lane < 4 && i0 + lane < full ? key[i0 + lane] : 0;
        uint64_t mine[4];
        int before[4]; /* equal ones count if they stand before */
#pragma unroll
        for (int q = 0; q < 4; q++) {
            mine[q] = i0 + q < n ? key[i0 + q] : 0;
            before[q] = lane < 4 && i0 + lane < full && own >= mine[q] + (lane >= q);
        }
        for (int first = 0; first < full; first += 2048) {
            const int count = min(2048, full - first);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (threadIdx.x + j * BSRI_CTA < count)
                    tile[threadIdx.x + j * BSRI_CTA] = key[first + threadIdx.x + j * BSRI_CTA];
            __syncthreads();
#pragma unroll 8
            for (int j = lane; j < min(count, i0 - first); j += 32)
#pragma unroll
                for (int q = 0; q < 4; q++) before[q] += tile[j] >= mine[q];
#pragma unroll 8
            for (int j = max(0, i0 + 4 - first) + lane; j < count; j += 32)
#pragma unroll
                for (int q = 0; q < 4; q++) before[q] += tile[j] > mine[q];
        }
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const int i = i0 + q, sum = __shfl_sync(~0u, bsri_dev_warp_sum(before[q]), 31);
            const int64_t place = pattern * r.n + (i < full ? sum : i), from = pattern * r.n + i;
            if (i < n && lane < r.group) r.order[place * r.group + lane] = r.member ? r.member[from * r.group + lane] : i;
            if (i < n && lane == 0 && r.lengths) r.lengths[place] = r.length[from];
        }
    }
}
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_rank_long(const __grid_constant__ bsri_dev_rank r BSRI_GATE) {
    BSRI_ENTER;
    __shared__ int64_t part[33];
    int64_t all = 0, long_groups = 0, sum;
    bsri_pdl_wait();
    for (int64_t i = threadIdx.x; i < r.n; i += BSRI_CTA_WIDE) all += r.lengths[i];
    bsri_dev_block_before(all, part, &sum);
    for (int64_t i = threadIdx.x; i + 1 < r.n; i += BSRI_CTA_WIDE) long_groups += bsri_is_long(r.lengths[i], r.n, sum);
    bsri_dev_block_before(long_groups, part, &all);
    if (threadIdx.x == 0) *r.long_groups = all;
}

__device__ __forceinline__ uint32_t bsri_dev_warp_min(uint32_t v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_min_sync(~0u, v);
#else
    for (int d = 16; d; d /= 2) v = min(v, __shfl_xor_sync(~0u, v, d));
    return v;
#endif
}
/* Smallest over a block of 1024 threads; every thread has it. One barrier, before it is read. */
__device__ __forceinline__ uint32_t bsri_dev_block_min(uint32_t v, uint32_t *part) {
    v = bsri_dev_warp_min(v);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    return bsri_dev_warp_min(part[threadIdx.x & 31]);
}

#define BSRI_GROUP_LINES 256
/* Greedy grouping of up to 256 lines without repeats, as bsri_lines_group: thread t holds the t-th line of the order as WORDS
   words of bits, so that a step is a few instructions, one barrier for the choice and one for the union. */
template <int WORDS> __global__ void __launch_bounds__(BSRI_CTA, 1)
    bsri_group_bits(const __grid_constant__ bsri_dev_lines l BSRI_GATE) {
    BSRI_ENTER;
    __shared__ __align__(16) uint32_t joined[WORDS];
    __shared__ uint32_t part[2][32];
    const int t = threadIdx.x, lane = t & 31, warp = t / 32, count = (int)l.count, words = (int)l.words, group = (int)l.group,
              groups = (int)l.groups;
    for (int64_t pattern = blockIdx.x; pattern < l.patterns.count; pattern += gridDim.x) {
        int32_t *member = l.member + pattern * groups * group, *unions = l.unions + pattern * groups;
        uint64_t *key = l.key + pattern * groups;
        uint32_t own[WORDS], buffer = 0;
        int left = t < count;
        if (l.repeats[pattern] || !l.small) continue; /* the other kernel's */
        const int32_t line = left ? l.order[pattern * count + t] : 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++) own[w] = left && w < words ? l.bits[(pattern * count + line) * words + w] : 0;
        if (t < 32) part[0][t] = part[1][t] = ~0u;
        uint32_t size = 0;
#pragma unroll
        for (int w = 0; w < WORDS; w++) size += (uint32_t)__popc(own[w]);
        __syncthreads();
        for (int g = 0; g < groups; g++) {
            uint32_t length = 0;
            for (int k = 0; k < group; k++) {
                uint32_t best = (uint32_t)t << 16 | size; /* the first, with its length */
                if (k) {
                    uint32_t extra = 0;
#pragma unroll
                    for (int w = 0; w < WORDS; w += 4) {
                        const uint4 x = *(const uint4 *)&joined[w];
                        extra += (uint32_t)(__popc(own[w] & ~x.x) + __popc(own[w + 1] & ~x.y) + __popc(own[w + 2] & ~x.z) +
                                            __popc(own[w + 3] & ~x.w));
                    }
                    best = (BSRI_GROUP_LOSS(extra, size) + 2 * 32 * WORDS) << 19 | (uint32_t)t << 11 | extra;
                }
                best = bsri_dev_warp_min(left ? best : ~0u);
                if (lane == 0) part[buffer][warp] = best;
                __syncthreads();
                best = bsri_dev_warp_min(part[buffer][lane]), buffer ^= 1;
                if (best == ~0u) {
                    if (t == 0) member[g * group + k] = -1;
                    continue;
                }
                if (t == (int)(k ? best >> 11 & 255u : best >> 16)) {
                    left = 0, member[g * group + k] = line;
#pragma unroll
                    for (int w = 0; w < WORDS; w += 4) {
                        uint4 x = {0, 0, 0, 0};
                        if (k) x = *(const uint4 *)&joined[w];
                        x.x |= own[w], x.y |= own[w + 1], x.z |= own[w + 2], x.w |= own[w + 3];
                        *(uint4 *)&joined[w] = x;
                    }
                }
                length += best & (k ? 0x7ffu : 0xffffu);
                __syncthreads();
            }
            if (t == 0) unions[g] = (int32_t)length, key[g] = length;
        }
        __syncthreads();
    }
}
/* What a line, x, has that union g lacks: by a warp, the last lane has it. With bit sets, of so many words, the union's stands in
   shared memory; without, stamps with unions' numbers in device memory. lane and dt, below t and dt, are as the kernel has them:
   computed again here they mostly cost time (note N25). */
__device__ __forceinline__ int bsri_group_lacks(const bsri_dev_lines &l, const bsri_dev_line &x, int64_t pattern, int32_t line,
                                                int words, const uint32_t *joined, const int32_t *stamp, int64_t g, int lane,
                                                int dt) {
    int extra = 0;
    if (words) {
        const uint32_t *bits = l.bits + (pattern * l.count + line) * words;
#pragma unroll 4
        for (int w = lane; w < words; w += 32) extra += __popc(bits[w] & ~joined[w]);
    } else {
        for (int64_t p = x.at + lane; p < x.end; p += 32) {
            const int64_t at = bsri_index(x.list, dt, p);
            extra += (uint64_t)at < (uint64_t)l.others && __ldcg(&stamp[at]) != (int32_t)g;
        }
    }
    return bsri_dev_warp_sum(extra);
}
/* The k-th line of union g, by the CTA: what this thread added. */
__device__ __forceinline__ int bsri_group_join(const bsri_dev_lines &l, int64_t pattern, int32_t line, int k, int words,
                                               uint32_t *joined, int32_t *stamp, int64_t g, int t, int dt) {
    int fresh = 0;
    if (words) {
        const uint32_t *bits = l.bits + (pattern * l.count + line) * words;
        for (int w = t; w < words; w += BSRI_CTA_WIDE) {
            const uint32_t before = k ? joined[w] : 0, v = bits[w];
            fresh += __popc(v & ~before), joined[w] = before | v;
        }
    } else {
        const bsri_dev_line x = bsri_dev_line_of(l, pattern, line);
        for (int64_t p = x.at + t; p < x.end; p += BSRI_CTA_WIDE) {
            const int64_t at = bsri_index(x.list, dt, p);
            if ((uint64_t)at < (uint64_t)l.others) fresh += atomicExch(&stamp[at], (int32_t)g) != (int32_t)g;
        }
    }
    return fresh;
}
/* The same for any lines: a warp per line left. Where there are bit sets their union stands in shared memory; else stamps of
   the current union in device memory. */
#define BSRI_GROUP_WORDS 8192
static __global__ void BSRI_BOUNDS(BSRI_CTA_WIDE) bsri_group_lists(const __grid_constant__ bsri_dev_lines l BSRI_GATE) {
    BSRI_ENTER;
    __shared__ int32_t left[2][257];
    __shared__ uint32_t losses[256];
    __shared__ uint32_t joined[BSRI_GROUP_WORDS], part[2][32];
    __shared__ int length;
    const int t = threadIdx.x, lane = t & 31, dt = l.m.index_dtype, window = (int)l.window, group = (int)l.group;
    for (int64_t pattern = blockIdx.x; pattern < l.patterns.count; pattern += gridDim.x) {
        const int32_t *order = l.order + pattern * l.count;
        int32_t *member = l.member + pattern * l.groups * group, *unions = l.unions + pattern * l.groups;
        int32_t *stamp = l.stamp + pattern * l.others;
        const int words = l.repeats[pattern] ? 0 : (int)l.words;
        int64_t next = bsri_min(window, l.count);
        int now = 0, remaining = (int)next;
        if (words && l.small) continue; /* the other kernel's */
        for (int64_t i = t; i < l.others && !words; i += BSRI_CTA_WIDE) stamp[i] = -1;
        if (t < remaining) left[0][t] = order[t];
        if (t == 0) length = 0; /* a barrier before anyone adds to it, here and below */
        __syncthreads();
        for (int64_t g = 0; g < l.groups; g++) {
            for (int k = 0; k < group; k++) {
                uint32_t best = remaining ? 0 : ~0u;
                for (int i = t / 32; i < remaining && k; i += 32) {
                    const int32_t candidate = left[now][i];
                    const bsri_dev_line x = bsri_dev_line_of(l, pattern, candidate);
                    const uint32_t size = (uint32_t)bsri_min(x.end - x.at, l.others);
                    const int extra = bsri_group_lacks(l, x, pattern, candidate, words, joined, stamp, g, lane, dt);
                    if (lane == 31) losses[i] = BSRI_GROUP_LOSS((uint32_t)extra, size) + (1u << 31);
                }
                if (k) {
                    __syncthreads();
                    const uint32_t mine = t < remaining ? losses[t] : ~0u, least = bsri_dev_block_min(mine, part[0]);
                    best = bsri_dev_block_min(t < remaining && mine == least ? (uint32_t)t : ~0u, part[1]);
                }
                if (best == ~0u) {
                    if (t == 0) member[g * group + k] = -1;
                    continue;
                }
                const int32_t chosen = left[now][best];
                const int fresh = bsri_group_join(l, pattern, chosen, k, words, joined, stamp, g, t, dt);
                if (fresh) atomicAdd(&length, fresh);
                if (t < remaining - 1) left[now ^ 1][t] = left[now][t + (t >= (int)best)];
                if (t == 0) {
                    member[g * group + k] = chosen;
                    if (next < l.count) left[now ^ 1][remaining - 1] = order[next];
                }
                now ^= 1;
                if (next < l.count) next++;
                else remaining--;
                __syncthreads();
            }
            if (t == 0) unions[g] = length, l.key[pattern * l.groups + g] = (uint64_t)length, length = 0;
            __syncthreads();
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-convert: elements moved and converted; dense forms                                    */
/* ---------------------------------------------------------------------------------------------- */

/* As bsri_store_f64: NaN keeps its sign and is quiet. */
__device__ __forceinline__ void bsri_dev_store_f64(void *base, int dtype, int64_t i, double v) {
    const uint32_t sign = v != v ? (uint32_t)((uint64_t)__double_as_longlong(v) >> 63) : 0;
    if (v == v || dtype == BSR_F64) bsri_dev_store(base, dtype, i, v);
    else if (dtype == BSR_F32) ((uint32_t *)base)[i] = sign << 31 | 0x7fc00000u;
    else ((uint16_t *)base)[i] = (uint16_t)(sign << 15 | (dtype == BSR_F16 ? 0x7e00u : 0x7fc0u));
}
/* One element, converted where the types differ; the same type moves as it is. */
__device__ __forceinline__ void bsri_dev_move(void *dst, int to, int64_t at, const void *src, int from, int64_t i) {
    if (to != from) {
        bsri_dev_store_f64(dst, to, at, bsri_dev_load<double>(src, from, i));
        return;
    }
    switch (bsri_dev_size(to)) {
        case 1: ((uint8_t *)dst)[at] = ((const uint8_t *)src)[i]; break;
        case 2: ((uint16_t *)dst)[at] = ((const uint16_t *)src)[i]; break;
        case 4: ((uint32_t *)dst)[at] = ((const uint32_t *)src)[i]; break;
        default: ((uint64_t *)dst)[at] = ((const uint64_t *)src)[i]; break;
    }
}
__device__ __forceinline__ void bsri_dev_clear(void *dst, int dtype, int64_t at) {
    switch (bsri_dev_size(dtype)) {
        case 1: ((uint8_t *)dst)[at] = 0; break;
        case 2: ((uint16_t *)dst)[at] = 0; break;
        case 4: ((uint32_t *)dst)[at] = 0; break;
        default: ((uint64_t *)dst)[at] = 0; break;
    }
}

/* Anything but zero of either sign; NaN counts. */
__device__ __forceinline__ bool bsri_dev_nonzero(const void *base, int dtype, int64_t i) {
    switch (bsri_dev_size(dtype)) {
        case 1: return ((const uint8_t *)base)[i] != 0;
        case 2: return (((const uint16_t *)base)[i] & 0x7fffu) != 0;
        case 4: return (((const uint32_t *)base)[i] & (dtype == BSR_F32 ? 0x7fffffffu : ~0u)) != 0;
        default: return (((const uint64_t *)base)[i] & (dtype == BSR_F64 ? ~(uint64_t)0 >> 1 : ~(uint64_t)0)) != 0;
    }
}

/* Neighbours that move together: 16 bytes, or 8 elements; held as words, so that each is not a register of its own. */
template <class E> struct alignas(sizeof(E) == 1 ? 8 : 16) bsri_dev_elements {
    static constexpr int N = sizeof(E) == 1 ? 8 : 16 / sizeof(E), WORDS = N * (int)sizeof(E) / 4;
    static constexpr int IN_WORD = sizeof(E) < 4 ? 4 / (int)sizeof(E) : 1, BITS = sizeof(E) < 4 ? 8 * (int)sizeof(E) : 0;
    uint32_t w[WORDS];
    __device__ __forceinline__ E get(int i) const {
        if constexpr (sizeof(E) == 8) return (E)((uint64_t)w[2 * i + 1] << 32 | w[2 * i]);
        else return (E)(w[i / IN_WORD] >> i % IN_WORD * BITS);
    }
    __device__ __forceinline__ void add(int i, E e) { /* to zeros */
        if constexpr (sizeof(E) == 8) w[2 * i] |= (uint32_t)e, w[2 * i + 1] |= (uint32_t)((uint64_t)e >> 32);
        else w[i / IN_WORD] |= (uint32_t)e << i % IN_WORD * BITS;
    }
    static __device__ __forceinline__ bsri_dev_elements load(const E *from, int64_t step, bool whole) {
        if (whole && step == 1) return *(const bsri_dev_elements *)from;
        bsri_dev_elements v = {};
#pragma unroll
        for (int i = 0; i < N; i++) v.add(i, from[i * step]);
        return v;
    }
    __device__ __forceinline__ void merge(const bsri_dev_elements &v) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) w[i] |= v.w[i];
    }
    /* Anything but zero in one of them, signs masked out. */
    __device__ __forceinline__ bool any(E mask) const {
        bsri_dev_elements all = {};
        uint32_t found = 0;
#pragma unroll
        for (int i = 0; i < N; i++) all.add(i, mask);
#pragma unroll
        for (int i = 0; i < WORDS; i++) found |= w[i] & all.w[i];
        return found != 0;
    }
};
/* All bits but the sign of floating-point types. */
__device__ __forceinline__ uint64_t bsri_dev_magnitude(int dtype) {
    const bool integer = dtype == BSR_I8 || dtype == BSR_I32 || dtype == BSR_I64 || dtype == BSR_BOOL;
    return integer ? ~(uint64_t)0 : ~(uint64_t)0 >> (65 - 8 * bsri_dev_size(dtype));
}

/* Moves of single elements: between arrays of one type as they are, or converted. */
template <class E> struct bsri_dev_same {
    typedef E type;
    static __device__ __forceinline__ E load(const void *from, int, int64_t i) { return ((const E *)from)[i]; }
    static __device__ __forceinline__ void store(void *to, int, int64_t i, E v) { ((E *)to)[i] = v; }
};
struct bsri_dev_converted {
    typedef double type;
    static __device__ __forceinline__ double load(const void *from, int dtype, int64_t i) {
        return bsri_dev_load<double>(from, dtype, i);
    }
    static __device__ __forceinline__ void store(void *to, int dtype, int64_t i, double v) {
        bsri_dev_store_f64(to, dtype, i, v);
    }
};

#define BSRI_EXPAND_PANEL 2048 /* places of a tile at most: block rows times block columns */
#define BSRI_BITS_PANEL 16384  /* the same, where each takes a byte */
#define BSRI_SEGMENT 32768     /* block columns that a warp counts */
#define BSRI_CHUNK_LINES 8192  /* counts that one block of threads adds up */
/* Who of 256 threads works where on `lines` lines of `length` each: some lines side by side where they are short. */
struct bsri_dev_spread {
    int across, beside, line, at;
    bool works;
    __device__ __forceinline__ bsri_dev_spread(int length) {
        across = max(1, min(length, 256)), beside = 256 / across, line = (int)threadIdx.x / across;
        at = (int)threadIdx.x - line * across, works = line < beside;
    }
};
/* A tile of one block row from its row `top` on, by pieces; place[] says which block stands where, no duplicates. Each thread
   stays in its columns (rows, where those are contiguous). */
template <class E>
__device__ __forceinline__ void bsri_expand_pieces(const bsri_dev_expand &x, const int64_t *place, char *out, const char *values,
                                                   int top, int height, int width) {
    typedef bsri_dev_elements<E> piece;
    const bool rows = x.pieces == 1;
    const int length = (rows ? width : height) / piece::N, bc = (int)x.m.block_cols;
    const bsri_dev_spread who(length);
    if (!who.works) return;
    for (int z = who.at; z < length; z += who.across) {
        if (rows) {
            const int along = z * piece::N, c = along / bc;
            const int64_t p = place[c];
            const E *from = (const E *)values + p * x.stride[0] + top * x.stride[1] + (along - c * bc) * x.stride[2];
            E *to = (E *)out + along;
            for (int y = who.line; y < height; y += 4 * who.beside) {
                piece v[4] = {};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (p >= 0 && y + j * who.beside < height)
                        v[j] = piece::load(from + (y + j * who.beside) * x.stride[1], x.stride[2], x.whole);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (y + j * who.beside < height) *(piece *)(to + (y + j * who.beside) * x.out.row_stride) = v[j];
            }
        } else {
            const E *from = (const E *)values + (top + z * piece::N) * x.stride[1];
            E *to = (E *)out + z * piece::N;
            for (int along = who.line; along < width; along += 2 * who.beside) {
                piece v[2] = {};
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const int at = along + j * who.beside, c = at / bc;
                    const int64_t p = at < width ? place[c] : -1;
                    if (p >= 0) v[j] = piece::load(from + p * x.stride[0] + (at - c * bc) * x.stride[2], x.stride[1], x.whole);
                }
#pragma unroll
                for (int j = 0; j < 2; j++)
                    if (along + j * who.beside < width) *(piece *)(to + (along + j * who.beside) * x.out.col_stride) = v[j];
            }
        }
    }
}
/* A tile of some block rows, element by element: each thread stays in its columns (ROWS) or rows. */
template <class M, bool ROWS>
__device__ __forceinline__ void bsri_expand_elements(const bsri_dev_expand &x, const int64_t *place, char *out,
                                                     const char *values, int top, int height, int width) {
    const int length = ROWS ? width : height, lines = ROWS ? height : width, bc = (int)x.m.block_cols, br = (int)x.m.block_rows;
    const int to = x.out.dtype, from = x.m.dtype;
    const bsri_dev_spread who(length);
    if (!who.works) return;
    for (int z = who.at; z < length; z += who.across) {
        const int mine = ROWS ? z / bc : x.group > 1 ? z / br : 0; /* block column, or block row */
        const int64_t inside = ROWS ? (z - mine * bc) * x.stride[2] : (top + z - mine * br) * x.stride[1];
        const int64_t dst = ROWS ? z * x.out.col_stride : z * x.out.row_stride;
        for (int y = who.line; y < lines; y += 4 * who.beside) {
            typename M::type v[4] = {};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int line = y + j * who.beside, other = ROWS ? x.group > 1 ? line / br : 0 : line / bc;
                const int64_t p = line < lines ? place[ROWS ? other * x.panel + mine : mine * x.panel + other] : -1;
                const int64_t off = ROWS ? (top + line - other * br) * x.stride[1] : (line - other * bc) * x.stride[2];
                if (p >= 0) v[j] = M::load(values, from, p * x.stride[0] + inside + off);
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int line = y + j * who.beside;
                if (line < lines) M::store(out, to, dst + line * (ROWS ? x.out.row_stride : x.out.col_stride), v[j]);
            }
        }
    }
}
template <class M>
__device__ __forceinline__ void bsri_expand_either(const bsri_dev_expand &x, const int64_t *place, char *out, const char *values,
                                                   int top, int height, int width) {
    if (x.by_rows) bsri_expand_elements<M, true>(x, place, out, values, top, height, width);
    else bsri_expand_elements<M, false>(x, place, out, values, top, height, width);
}
/* An element at which the blocks [begin, end) of column `col` may stand more than once: summed in f64 in their order and rounded
   once, integers modulo 2^32, as bsri_expand_sums() does; a single one moves as it is. */
static __device__ __forceinline__ void bsri_expand_sum(const bsri_dev_expand &x, const bsri_item &it, int64_t begin, int64_t end,
                                                       int64_t col, int64_t inside, char *out, int64_t at) {
    const int from = x.m.dtype, to = x.out.dtype;
    const bool integer = to == BSR_I8 || to == BSR_I32;
    int64_t first = -1, count = 0;
    uint32_t whole = 0;
    double sum = 0;
    for (int64_t q = begin; q < end; q++) {
        if (bsri_index(it.col, x.m.index_dtype, q) != col) continue;
        const int64_t value = q * x.stride[0] + inside;
        if (integer) whole += bsri_dev_load<uint32_t>(it.values, from, value);
        else sum = count ? sum + bsri_dev_load<double>(it.values, from, value) : bsri_dev_load<double>(it.values, from, value);
        if (!count++) first = value;
    }
    if (count == 1) bsri_dev_move(out, to, at, it.values, from, first);
    else if (integer) bsri_dev_store(out, to, at, whole);
    else bsri_dev_store_f64(out, to, at, sum);
}
/* Which block of [begin, end) stands in which column of a panel, by `lanes` threads. order: columns ascend, so that the panel's
   are found by halving; else all are looked at, and of several in one column the last is noted. */
static __device__ __forceinline__ void bsri_expand_places(const bsri_dev_expand &x, const void *col, int64_t begin, int64_t end,
                                                          int64_t c0, bool order, int lane, int lanes, int64_t *place) {
    const int dt = x.m.index_dtype;
    int64_t low = begin, high = end;
    while (order && x.panels > 1 && low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bsri_index(col, dt, mid) < c0) low = mid + 1;
        else high = mid;
    }
    for (int64_t p = low + lane; p < end; p += lanes) {
        const int64_t c = bsri_index(col, dt, p) - c0;
        if (order && c >= x.panel) break;
        if (c < 0 || c >= x.panel) continue;
        if (order) place[c] = p;
        else atomicMax((long long *)&place[c], (long long)p);
    }
}
/* Tiles: some rows of a block row, or some whole block rows, and a panel of block columns; a block of threads goes through every
   `splits`-th panel. First which block stands where, then pieces or elements. */
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_expand_panel(const __grid_constant__ bsri_dev_expand x BSRI_GATE) {
    __shared__ int64_t place[BSRI_EXPAND_PANEL];
    __shared__ uint32_t disordered[32]; /* a bit for each block row of the tile */
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t br = x.m.block_rows, bc = x.m.block_cols;
    const int dt = x.m.index_dtype, to = x.out.dtype, group = x.group;
    const int lanes = group > 1 ? 32 : 256, lane = threadIdx.x & (lanes - 1), mine = group > 1 ? threadIdx.x / 32 : 0;
    for (int64_t work = blockIdx.x; work < x.work; work += gridDim.x) {
        const int64_t line = bsri_divide(work, x.splits), split = work - line * x.splits, lines = bsri_divide(line, x.subs);
        const int64_t sub = line - lines * x.subs, item = bsri_divide(lines, x.groups), r = (lines - item * x.groups) * group;
        const int64_t top = r * br + sub * x.height;
        const int height = (int)bsri_min(bsri_min(x.height, group > 1 ? x.height : br - sub * x.height), x.out.rows - top);
        const bsri_item it = bsri_dev_matrix_item(&x.batch, item, &x.m);
        const int rows = (int)bsri_min(group, x.rows - r);
        int any = 0;
        if (height <= 0) continue;
        if (threadIdx.x < 32) disordered[threadIdx.x] = 0;
        __syncthreads();
        for (int g = mine; g < rows; g += 256 / lanes) {
            const int64_t begin = bsri_index(it.crow, dt, r + g), end = bsri_index(it.crow, dt, r + g + 1);
            int disorder = 0;
            for (int64_t p = begin + 1 + lane; p < end; p += lanes)
                disorder |= bsri_index(it.col, dt, p) <= bsri_index(it.col, dt, p - 1);
            if (disorder) atomicOr(&disordered[g / 32], 1u << g % 32), any = 1;
        }
        any = __syncthreads_or(any);
        for (int64_t panel = split; panel < x.panels; panel += x.splits) {
            const int64_t c0 = panel * x.panel, left = c0 * bc;
            const int width = (int)bsri_min(bsri_min(x.panel, x.cols - c0) * bc, x.out.cols - left);
            char *const out = bsri_dev_at(
                x.out.data, to, bsri_dense_offset(&x.batch, item, &x.out) + top * x.out.row_stride + left * x.out.col_stride);
            for (int i = threadIdx.x; i < group * x.panel; i += 256) place[i] = -1;
            __syncthreads();
            for (int g = mine; g < rows; g += 256 / lanes)
                bsri_expand_places(x, it.col, bsri_index(it.crow, dt, r + g), bsri_index(it.crow, dt, r + g + 1), c0,
                                   !(disordered[g / 32] >> g % 32 & 1), lane, lanes, place + g * x.panel);
            __syncthreads();
            const int at = (int)(sub * x.height), size = to == x.m.dtype ? (int)bsri_dev_size(to) : 0;
            if (any) { /* there may be duplicates */
                for (unsigned i = threadIdx.x; i < (unsigned)height * (unsigned)width; i += 256) {
                    const int down = (int)(i / (unsigned)width), along = (int)(i % (unsigned)width);
                    const int g = group > 1 ? down / (int)br : 0, c = along / (int)bc;
                    const int64_t dst = down * x.out.row_stride + along * x.out.col_stride;
                    if (place[g * x.panel + c] < 0) bsri_dev_clear(out, to, dst);
                    else
                        bsri_expand_sum(x, it, bsri_index(it.crow, dt, r + g), bsri_index(it.crow, dt, r + g + 1), c0 + c,
                                        (at + down - g * br) * x.stride[1] + (along - c * bc) * x.stride[2], out, dst);
                }
            } else if (x.pieces) {
                switch (size) {
                    case 1: bsri_expand_pieces<uint8_t>(x, place, out, it.values, at, height, width); break;
                    case 2: bsri_expand_pieces<uint16_t>(x, place, out, it.values, at, height, width); break;
                    case 4: bsri_expand_pieces<uint32_t>(x, place, out, it.values, at, height, width); break;
                    default: bsri_expand_pieces<uint64_t>(x, place, out, it.values, at, height, width); break;
                }
            } else {
                switch (size) {
                    case 0: bsri_expand_either<bsri_dev_converted>(x, place, out, it.values, at, height, width); break;
                    case 1: bsri_expand_either<bsri_dev_same<uint8_t>>(x, place, out, it.values, at, height, width); break;
                    case 2: bsri_expand_either<bsri_dev_same<uint16_t>>(x, place, out, it.values, at, height, width); break;
                    case 4: bsri_expand_either<bsri_dev_same<uint32_t>>(x, place, out, it.values, at, height, width); break;
                    default: bsri_expand_either<bsri_dev_same<uint64_t>>(x, place, out, it.values, at, height, width); break;
                }
            }
            __syncthreads();
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-build: which blocks hold something, the arrays of a matrix; blocks of another size    */
/* ---------------------------------------------------------------------------------------------- */

/* Marks the places of a tile in which something stands. Pieces may reach over several blocks; each thread stays in its columns
   (rows, where those are contiguous) and marks once. */
template <class E>
__device__ __forceinline__ void bsri_bits_tile(const bsri_dev_build &b, uint8_t *held, const char *source, int height,
                                               int width) {
    typedef bsri_dev_elements<E> piece;
    const bsr_dense &d = b.dense;
    const bool rows = b.by_rows;
    const int n = b.pieces == (rows ? 1 : 2) ? piece::N : 1, length = (rows ? width : height) / n, lines = rows ? height : width;
    const int bc = (int)b.to.block_cols, br = (int)b.to.block_rows;
    const int64_t step = rows ? d.row_stride : d.col_stride, next = rows ? d.col_stride : d.row_stride;
    const E mask = (E)bsri_dev_magnitude(d.dtype);
    const bool within = rows ? b.group == 1 : false; /* all lines are of one block row */
    const bsri_dev_spread who(length);
    for (int z = who.at; who.works && z < length; z += who.across) {
        const E *from = (const E *)source + (int64_t)z * n * next;
        piece seen = {};
        int now = -1; /* the block line that seen is of */
        for (int y = who.line; y < lines + 4 * who.beside; y += 4 * who.beside) {
            piece v[4] = {};
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (y + j * who.beside < lines) {
                    const E *at = from + (y + j * who.beside) * step;
                    if (n > 1) v[j] = *(const piece *)at;
                    else v[j].add(0, *at);
                }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int line = y + j * who.beside, block = line >= lines ? -2 : within ? 0 : line / (rows ? br : bc);
                if (block != now) {
                    if (now >= 0 && seen.any(mask)) {
                        const int unit = rows ? bc : br, begin = z * n / unit, stop = (z * n + n - 1) / unit;
                        uint8_t *const mine = held + (rows ? now * (int)b.panel : now);
                        const int step = rows ? 1 : (int)b.panel;
                        if (begin == stop) mine[begin * step] = 1;
                        else
#pragma unroll
                            for (int i = 0; i < piece::N; i++)
                                if (i < n && (seen.get(i) & mask)) mine[(z * n + i) / unit * step] = 1;
                    }
                    now = block, seen = piece{};
                }
                seen.merge(v[j]);
            }
        }
    }
    if (n > 1) /* what no whole piece covers */
        for (int i = threadIdx.x; i < (rows ? width : height) % n * lines; i += 256) {
            const int rest = (rows ? width : height) % n, y = i / rest, z = length * n + i % rest;
            if (((const E *)source)[y * step + z * next] & mask)
                held[(rows ? y : z) / br * (int)b.panel + (rows ? z : y) / bc] = 1;
        }
}
/* Which blocks of a tile (some rows of a block row, or some whole block rows) hold something: a bit each, added to what other
   rows of the block row found where there are any. */
static __global__ void BSRI_BOUNDS(BSRI_CTA) bsri_bits_dense(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    __shared__ uint8_t held[BSRI_BITS_PANEL];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t br = b.to.block_rows, bc = b.to.block_cols, subs = b.group > 1 ? 1 : bsri_ceil_div(br, b.height);
    const int64_t groups = bsri_ceil_div(b.rows, b.group), work_end = b.batch.count * groups * b.panels * subs;
    const bsr_dense &d = b.dense;
    for (int64_t work = blockIdx.x; work < work_end; work += gridDim.x) {
        const int64_t line = bsri_divide(work, subs), sub = work - line * subs, lines = bsri_divide(line, b.panels);
        const int64_t c0 = (line - lines * b.panels) * b.panel, item = bsri_divide(lines, groups),
                      r = (lines - item * groups) * b.group;
        const int64_t top = r * br + sub * b.height, left = c0 * bc;
        const int height = (int)bsri_min(bsri_min(b.height, b.group > 1 ? b.height : br - sub * b.height), d.rows - top);
        const int width = (int)bsri_min(b.panel * bc, d.cols - left), blocks = (int)bsri_min(b.panel, b.cols - c0);
        const char *const source =
            bsri_dev_at(d.data, d.dtype, bsri_dense_offset(&b.batch, item, &d) + top * d.row_stride + left * d.col_stride);
        if (height <= 0 && subs > 1) continue;
        for (int i = threadIdx.x; i < b.group * b.panel; i += 256) held[i] = 0;
        __syncthreads();
        if (height > 0) switch (bsri_dev_size(d.dtype)) {
                case 1: bsri_bits_tile<uint8_t>(b, held, source, height, width); break;
                case 2: bsri_bits_tile<uint16_t>(b, held, source, height, width); break;
                case 4: bsri_bits_tile<uint32_t>(b, held, source, height, width); break;
                default: bsri_bits_tile<uint64_t>(b, held, source, height, width); break;
            }
        __syncthreads();
        for (int i = threadIdx.x; i < b.group * b.panel; i += 256) {
            const int g = i / (int)b.panel, c = i - g * (int)b.panel;
            const uint32_t word = __ballot_sync(~0u, c < blocks && held[i]);
            if (i % 32 || c >= blocks || r + g >= b.rows) continue;
            uint32_t *at = &b.bits[item * b.item_words + (r + g) * b.row_words + (c0 + c) / 32];
            if (subs == 1) *at = word;
            else if (word) atomicOr(at, word);
        }
        __syncthreads();
    }
}
/* The bits of a block mask, a thread per word. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_bits_mask(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t total = b.batch.count * b.item_words, step = (int64_t)gridDim.x * 256;
    for (int64_t work = blockIdx.x * (int64_t)256 + threadIdx.x; work < total; work += step) {
        const int64_t line = bsri_divide(work, b.row_words), col = (work - line * b.row_words) * 32;
        const uint8_t *mask = b.mask + line * b.cols + col;
        const int n = (int)bsri_min(32, b.cols - col);
        uint32_t word = 0;
        if (n == 32 && (uintptr_t)mask % 16 == 0) {
            uint8_t byte[32];
            ((uint4 *)byte)[0] = ((const uint4 *)mask)[0], ((uint4 *)byte)[1] = ((const uint4 *)mask)[1];
#pragma unroll
            for (int i = 0; i < 32; i++) word |= (uint32_t)(byte[i] != 0) << i;
        } else {
#pragma unroll 8
            for (int i = 0; i < n; i++) word |= (uint32_t)(mask[i] != 0) << i;
        }
        b.bits[work] = word;
    }
}

/* Word w of the candidates of a block row: bit i is candidate 32 w + i, those of other rows cut off. *from: the first. */
struct bsri_dev_kept {
    const uint32_t *bits;
    const void *col;           /* of stored candidates */
    int64_t from, end, origin; /* origin: the candidate that is column 0 */
    uint32_t flip;
    __device__ uint32_t word(int64_t w) const {
        uint32_t v = bits[w] ^ flip;
        if (w * 32 < from) v &= ~0u << (from - w * 32);
        if (end - w * 32 < 32) v &= (1u << (end - w * 32)) - 1;
        return v;
    }
};
/* Segment `line` of a block row: lines are [items][rows][segments]. */
__device__ __forceinline__ bsri_dev_kept bsri_dev_kept_of(const bsri_dev_build &b, int64_t line, int64_t *item) {
    const int64_t row = bsri_divide(line, b.segments), first = (line - row * b.segments) * BSRI_SEGMENT;
    const int64_t r = row - (*item = bsri_divide(row, b.rows)) * b.rows;
    bsri_dev_kept k;
    k.bits = b.bits + *item * b.item_words + r * b.row_words, k.origin = b.row_words ? 0 : r * b.cols;
    k.from = k.origin + first, k.end = k.origin + bsri_min(b.cols, first + BSRI_SEGMENT);
    k.flip = b.complement ? ~0u : 0, k.col = nullptr;
    if (b.sparse.crow_indices) {
        const bsri_item it = bsri_dev_matrix_item(&b.batch, *item, &b.sparse);
        k.col = it.col, k.from = bsri_index(it.crow, b.sparse.index_dtype, r),
        k.end = bsri_index(it.crow, b.sparse.index_dtype, r + 1);
    }
    return k;
}
static __global__ void __launch_bounds__(BSRI_CTA) bsri_build_counts(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int lane = threadIdx.x & 31;
    const int64_t total = b.batch.count * b.rows * b.segments, step = (int64_t)gridDim.x * 8;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += step) {
        int64_t n = 0, item;
        const bsri_dev_kept k = bsri_dev_kept_of(b, work, &item);
        for (int64_t w = k.from / 32 + lane; w * 32 < k.end; w += 32) n += __popc(k.word(w));
        n = bsri_dev_warp_sum(n);
        if (lane == 31) b.first[work] = n;
    }
}
/* Long lists of counts are added up by chunks first. A part is an item; ragged items are one part together. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_build_sums(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    __shared__ int64_t part[33];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < b.parts * b.chunks; work += gridDim.x) {
        const int64_t at = bsri_divide(work, b.chunks), chunk = work - at * b.chunks;
        int64_t sum = 0, all;
#pragma unroll
        for (int j = 0; j < BSRI_CHUNK_LINES / 1024; j++) {
            const int64_t i = chunk * BSRI_CHUNK_LINES + j * 1024 + threadIdx.x;
            sum += i < b.each ? b.first[at * b.each + i] : 0;
        }
        bsri_dev_block_before(sum, part, &all);
        if (threadIdx.x == 0) b.sums[work] = all;
    }
}
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_build_before(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    __shared__ int64_t part[33];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t at = blockIdx.x; at < b.parts; at += gridDim.x) {
        int64_t sum = 0, all;
        for (int64_t i0 = 0; i0 < b.chunks; i0 += 1024) {
            const int64_t i = i0 + threadIdx.x, v = i < b.chunks ? b.sums[at * b.chunks + i] : 0,
                          before = bsri_dev_block_before(v, part, &all);
            if (i < b.chunks) b.sums[at * b.chunks + i] = sum + before;
            sum += all;
        }
    }
}
/* Counts to positions, and crow. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_build_crow(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    __shared__ int64_t part[33];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int dt = b.to.index_dtype;
    for (int64_t work = blockIdx.x; work < b.parts * b.chunks; work += gridDim.x) {
        const int64_t part_at = bsri_divide(work, b.chunks), chunk = work - part_at * b.chunks;
        const int64_t end = bsri_min(b.each, (chunk + 1) * BSRI_CHUNK_LINES);
        int64_t sum = b.chunks > 1 ? b.sums[work] : 0;
        for (int64_t i0 = chunk * BSRI_CHUNK_LINES; i0 < end; i0 += 4096) {
            int64_t v[4], mine = 0, all;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t i = i0 + threadIdx.x * 4 + j;
                v[j] = i < end ? b.first[part_at * b.each + i] : 0, mine += v[j];
            }
            int64_t at = sum + bsri_dev_block_before(mine, part, &all);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t i = i0 + threadIdx.x * 4 + j, line = part_at * b.each + i, row = bsri_divide(line, b.segments);
                if (i >= end) break;
                const int64_t item = bsri_divide(row, b.rows), r = row - item * b.rows;
                void *crow = (void *)bsri_dev_matrix_item(&b.batch, item, &b.to).crow;
                if (line == row * b.segments) bsri_set_index(crow, dt, r, at);
                b.first[line] = at, at += v[j];
                if (r == b.rows - 1 && line + 1 == (row + 1) * b.segments) bsri_set_index(crow, dt, b.rows, at);
            }
            sum += all;
        }
    }
}
/* Without block rows crow still has its last entry. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_build_no_rows(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    BSRI_ENTER;
    for (int64_t item = blockIdx.x * (int64_t)256 + threadIdx.x; item < b.batch.count; item += (int64_t)gridDim.x * 256)
        bsri_set_index((void *)bsri_dev_matrix_item(&b.batch, item, &b.to).crow, b.to.index_dtype, 0, 0);
}
/* Columns; beside each, where its values come from (a block row of a dense matrix, a stored block). rank: positions before each
   word. */
static __global__ void BSRI_BOUNDS(BSRI_CTA) bsri_build_cols(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int lane = threadIdx.x & 31, dt = b.to.index_dtype;
    const int64_t total = b.batch.count * b.rows * b.segments, step = (int64_t)gridDim.x * 8;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += step) {
        int64_t item;
        const bsri_dev_kept k = bsri_dev_kept_of(b, work, &item);
        const int64_t r = bsri_divide(work, b.segments) - item * b.rows;
        void *col = (void *)bsri_dev_matrix_item(&b.batch, item, &b.to).col;
        void *origin = b.origin ? bsri_dev_at(b.origin, b.origin_dtype, b.ragged ? 0 : item * b.capacity) : nullptr;
        int64_t at = b.first[work];
        for (int64_t w0 = k.from / 32; w0 * 32 < k.end; w0 += 32) {
            const int64_t w = w0 + lane;
            uint32_t v = w * 32 < k.end ? k.word(w) : 0;
            const int upto = bsri_dev_warp_sum(__popc(v));
            const int64_t mine = at + upto - __popc(v);
            if (b.rank && w * 32 < k.end) b.rank[item * b.item_words + r * b.row_words + w] = mine;
            for (unsigned words = __ballot_sync(~0u, v != 0); words; words &= words - 1) { /* a lane each of a word's blocks */
                const int who = __ffs((int)words) - 1;
                const uint32_t word = __shfl_sync(~0u, v, who);
                const int64_t place = __shfl_sync(~0u, mine, who) + __popc(word & ((1u << lane) - 1)), c = (w0 + who) * 32 + lane;
                if (!(word >> lane & 1) || place >= b.capacity) continue;
                bsri_set_index(col, dt, place, k.col ? bsri_index(k.col, b.sparse.index_dtype, c) : c - k.origin);
                if (origin) bsri_set_index(origin, b.origin_dtype, place, k.col ? c : r);
            }
            at += __shfl_sync(~0u, upto, 31);
        }
    }
}
/* a / b by 1/b, for a below 2^53: short, and without a subroutine. */
__device__ __forceinline__ int64_t bsri_divide_by(int64_t a, int64_t b, double per) {
    int64_t q = (int64_t)((double)a * per);
    if (q * b > a) q--;
    if (a - q * b >= b) q++;
    return q;
}
/* Element `start` + n (n < 8192) of blocks of `area` elements, start being element `inside` of block `at`: which block; n becomes
   its place inside. */
__device__ __forceinline__ int64_t bsri_dev_block_of(int64_t at, int64_t inside, int64_t area, int64_t *n) {
    int64_t next = inside + *n, k;
    if (area > 1 << 20) k = next >= area;
    else k = (int64_t)((uint32_t)next / (uint32_t)area);
    *n = next - k * area;
    return at + k;
}
/* Values of the stored blocks [begin, end) of an item out of a dense matrix: 1024 pieces from element `start` on. */
template <class E>
__device__ __forceinline__ void bsri_build_pieces(const bsri_dev_build &b, const bsri_item &to, const void *origin, int64_t item,
                                                  int64_t start, int64_t begin, int64_t end) {
    typedef bsri_dev_elements<E> piece;
    const bsr_dense &d = b.dense;
    const int64_t br = b.to.block_rows, bc = b.to.block_cols, area = br * bc;
    const int64_t first = bsri_divide_by(start, area, b.per_area), inside = start - first * area;
    const bool rows = d.col_stride == 1;
    const char *const source = bsri_dev_at(d.data, d.dtype, bsri_dense_offset(&b.batch, item, &d));
    const E *from[4];
    E *dst[4];
    piece v[4] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int64_t n = (j * 256 + (int)threadIdx.x) * piece::N, y, x;
        const int64_t at = bsri_dev_block_of(first, inside, area, &n);
        from[j] = nullptr, dst[j] = nullptr;
        if (at < begin || at >= end) continue;
        if (rows) y = bsri_divide_by(n, bc, b.per_width), x = n - y * bc;
        else n /= piece::N, x = bsri_divide_by(n, br, b.per_height), y = n - x * br, x *= piece::N; /* down a column */
        const int64_t row = bsri_index(origin, b.origin_dtype, at) * br + y,
                      col = bsri_index(to.col, b.to.index_dtype, at) * bc + x;
        dst[j] = (E *)to.values + at * b.stride[0] + y * b.stride[1] + x;
        if (row < d.rows && col < d.cols) from[j] = (const E *)source + row * d.row_stride + col * d.col_stride;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (from[j]) v[j] = piece::load(from[j], rows ? 1 : d.col_stride, true);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (dst[j]) *(piece *)dst[j] = v[j];
}
/* The same element by element, 1024 of them, out of a dense or a sparse matrix. */
template <class M>
__device__ __forceinline__ void bsri_build_elements(const bsri_dev_build &b, const bsri_item &to, const void *origin,
                                                    int64_t item, int64_t start, int64_t begin, int64_t end) {
    const bsr_dense &d = b.dense;
    const int64_t br = b.to.block_rows, bc = b.to.block_cols, area = br * bc;
    const int64_t first = bsri_divide_by(start, area, b.per_area), inside = start - first * area;
    const int from_type = d.data ? d.dtype : b.sparse.dtype;
    const char *const source = d.data ? bsri_dev_at(d.data, d.dtype, bsri_dense_offset(&b.batch, item, &d))
                                      : (const char *)bsri_dev_matrix_item(&b.batch, item, &b.sparse).values;
    typename M::type v[4] = {};
    int64_t dst[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int64_t n = j * 256 + threadIdx.x;
        const int64_t at = bsri_dev_block_of(first, inside, area, &n);
        dst[j] = -1;
        if (at < begin || at >= end) continue;
        const int64_t y = bsri_divide_by(n, bc, b.per_width), x = n - y * bc, from = bsri_index(origin, b.origin_dtype, at);
        dst[j] = at * b.stride[0] + y * b.stride[1] + x * b.stride[2];
        if (d.data) {
            const int64_t row = from * br + y, col = bsri_index(to.col, b.to.index_dtype, at) * bc + x;
            if (row < d.rows && col < d.cols) v[j] = M::load(source, from_type, row * d.row_stride + col * d.col_stride);
        } else {
            v[j] = M::load(source, from_type, from * b.sparse_stride[0] + y * b.sparse_stride[1] + x * b.sparse_stride[2]);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (dst[j] >= 0) M::store(to.values, b.to.dtype, dst[j], v[j]);
}
/* Values of the stored blocks, 1024 elements or pieces a block of threads, out of the source. */
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_build_values(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t area = b.to.block_rows * b.to.block_cols, size = bsri_dev_size(b.to.dtype);
    const int64_t each = 1024 * (b.whole ? bsri_min(8, 16 / size) : 1), item_work = bsri_ceil_div(b.capacity * area, each);
    const int dt = b.to.index_dtype, from = b.dense.data ? b.dense.dtype : b.sparse.dtype;
    int64_t item = 0, piece = blockIdx.x;
    for (;; piece += gridDim.x) {
        if (piece >= item_work) item += bsri_divide(piece, item_work), piece -= bsri_divide(piece, item_work) * item_work;
        if (item >= b.batch.count) break;
        const bsri_item to = bsri_dev_matrix_item(&b.batch, item, &b.to);
        const int64_t begin = bsri_index(to.crow, dt, 0), end = bsri_min(b.capacity, bsri_index(to.crow, dt, b.rows));
        const void *origin = bsri_dev_at(b.origin, b.origin_dtype, b.ragged ? 0 : item * b.capacity);
        const int64_t start = piece * each;
        if (start >= end * area || start + each <= begin * area) continue;
        if (b.whole) {
            switch (size) {
                case 1: bsri_build_pieces<uint8_t>(b, to, origin, item, start, begin, end); break;
                case 2: bsri_build_pieces<uint16_t>(b, to, origin, item, start, begin, end); break;
                case 4: bsri_build_pieces<uint32_t>(b, to, origin, item, start, begin, end); break;
                default: bsri_build_pieces<uint64_t>(b, to, origin, item, start, begin, end); break;
            }
            continue;
        }
        switch (b.to.dtype == from ? size : 0) {
            case 0: bsri_build_elements<bsri_dev_converted>(b, to, origin, item, start, begin, end); break;
            case 1: bsri_build_elements<bsri_dev_same<uint8_t>>(b, to, origin, item, start, begin, end); break;
            case 2: bsri_build_elements<bsri_dev_same<uint16_t>>(b, to, origin, item, start, begin, end); break;
            case 4: bsri_build_elements<bsri_dev_same<uint32_t>>(b, to, origin, item, start, begin, end); break;
            default: bsri_build_elements<bsri_dev_same<uint64_t>>(b, to, origin, item, start, begin, end); break;
        }
    }
}

/* Blocks of another size. Entries of each row where the target has blocks of 1 x 1. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_reblock_lengths(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t total = b.batch.count * b.rows, bc = b.sparse.block_cols;
    const int dt = b.sparse.index_dtype;
    for (int64_t work = blockIdx.x * (int64_t)256 + threadIdx.x; work < total; work += (int64_t)gridDim.x * 256) {
        const int64_t item = bsri_divide(work, b.rows), i = work - item * b.rows, r = bsri_divide(i, b.sparse.block_rows);
        const bsri_item s = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
        int64_t n = 0;
        if (i < b.sparse.rows) { /* of the last block what is padding does not count */
            const int64_t begin = bsri_index(s.crow, dt, r), end = bsri_index(s.crow, dt, r + 1);
            if (begin < end) n = (end - begin) * bc - bsri_max(0, (bsri_index(s.col, dt, end - 1) + 1) * bc - b.to.cols);
        }
        b.first[work] = bsri_max(0, n);
    }
}
/* The first of the ascending columns [low, high) that is `at` or more, of either index type. */
__device__ __forceinline__ int64_t bsri_dev_place_from(const void *col, int dt, int64_t low, int64_t high, int64_t at) {
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bsri_index(col, dt, mid) < at) low = mid + 1;
        else high = mid;
    }
    return low;
}
/* A warp goes through the target's blocks of a segment of a block row in turn: lanes look for the next one in a block row of the
   source each. Counts them, or writes columns. */
template <bool WRITE>
__global__ void __launch_bounds__(BSRI_CTA) bsri_reblock_lines(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int lane = threadIdx.x & 31, dt = b.sparse.index_dtype;
    const int64_t total = b.batch.count * b.rows * b.segments, bc = b.sparse.block_cols, br = b.sparse.block_rows;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += (int64_t)gridDim.x * 8) {
        const int64_t row = bsri_divide(work, b.segments), item = bsri_divide(row, b.rows), r = row - item * b.rows;
        const int64_t first = (work - row * b.segments) * b.panel, stop = bsri_min(b.cols, first + b.panel);
        const bsri_item s = bsri_dev_matrix_item(&b.batch, item, &b.sparse), to = bsri_dev_matrix_item(&b.batch, item, &b.to);
        const int64_t top = bsri_divide(r * b.to.block_rows, br);
        const int64_t end = bsri_min(bsri_block_rows(&b.sparse), bsri_divide((r + 1) * b.to.block_rows - 1, br) + 1);
        void *origin = b.origin ? bsri_dev_at(b.origin, b.origin_dtype, b.ragged ? 0 : item * b.capacity) : nullptr;
        int64_t n = 0;
        for (int64_t c = first; c < stop; c++) {
            const int64_t from = bsri_divide(c * b.to.block_cols, bc);
            int64_t best = stop;
            for (int64_t k = top + lane; k < end; k += 32) {
                const int64_t high = bsri_index(s.crow, dt, k + 1);
                const int64_t p = bsri_dev_place_from(s.col, dt, bsri_index(s.crow, dt, k), high, from);
                if (p < high) best = bsri_min(best, bsri_max(c, bsri_divide(bsri_index(s.col, dt, p) * bc, b.to.block_cols)));
            }
#pragma unroll
            for (int d = 16; d; d /= 2) best = bsri_min(best, __shfl_xor_sync(~0u, best, d));
            c = best;
            if (c >= stop) break;
            if (WRITE && lane == 0 && b.first[work] + n < b.capacity) {
                bsri_set_index((void *)to.col, b.to.index_dtype, b.first[work] + n, c);
                if (origin) bsri_set_index(origin, b.origin_dtype, b.first[work] + n, r);
            }
            n++;
        }
        if (!WRITE && lane == 0) b.first[work] = n;
    }
}
/* Elements of the target's blocks, 1024 a block of threads: each looks for the block of the source that it stands in. */
template <class M>
__device__ __forceinline__ void bsri_reblock_some(const bsri_dev_build &b, const bsri_item &to, const bsri_item &s,
                                                  const void *origin, int64_t start, int64_t begin, int64_t end) {
    const int64_t bc = b.to.block_cols, area = b.to.block_rows * bc;
    const int64_t first = bsri_divide(start, area), inside = start - first * area;
    const int dt = b.sparse.index_dtype;
#pragma unroll 1
    for (int j = 0; j < 4; j++) {
        int64_t n = j * 256 + threadIdx.x;
        const int64_t at = bsri_dev_block_of(first, inside, area, &n);
        if (at < begin || at >= end) continue;
        const int64_t y = bsri_divide(n, bc), x = n - y * bc, i = bsri_index(origin, b.origin_dtype, at) * b.to.block_rows + y;
        const int64_t k = bsri_index(to.col, b.to.index_dtype, at) * bc + x, c = bsri_divide(k, b.sparse.block_cols);
        typename M::type v = {};
        if (i < b.sparse.rows && k < b.sparse.cols) {
            const int64_t r = bsri_divide(i, b.sparse.block_rows), high = bsri_index(s.crow, dt, r + 1);
            const int64_t p = bsri_dev_place_from(s.col, dt, bsri_index(s.crow, dt, r), high, c);
            if (p < high && bsri_index(s.col, dt, p) == c)
                v = M::load(s.values, b.sparse.dtype,
                            p * b.sparse_stride[0] + (i - r * b.sparse.block_rows) * b.sparse_stride[1] +
                                (k - c * b.sparse.block_cols) * b.sparse_stride[2]);
        }
        M::store(to.values, b.to.dtype, at * b.stride[0] + y * b.stride[1] + x * b.stride[2], v);
    }
}
static __global__ void __launch_bounds__(BSRI_CTA, 4) bsri_reblock_values(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t area = b.to.block_rows * b.to.block_cols, item_work = bsri_ceil_div(b.capacity * area, 1024);
    const int dt = b.to.index_dtype;
    for (int64_t work = blockIdx.x; work < item_work * b.batch.count; work += gridDim.x) {
        const int64_t item = bsri_divide(work, item_work), start = (work - item * item_work) * 1024;
        const bsri_item to = bsri_dev_matrix_item(&b.batch, item, &b.to), s = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
        const int64_t begin = bsri_index(to.crow, dt, 0), end = bsri_min(b.capacity, bsri_index(to.crow, dt, b.rows));
        const void *origin = bsri_dev_at(b.origin, b.origin_dtype, b.ragged ? 0 : item * b.capacity);
        if (start >= end * area || start + 1024 <= begin * area) continue;
        switch (b.to.dtype == b.sparse.dtype ? bsri_dev_size(b.to.dtype) : 0) {
            case 0: bsri_reblock_some<bsri_dev_converted>(b, to, s, origin, start, begin, end); break;
            case 1: bsri_reblock_some<bsri_dev_same<uint8_t>>(b, to, s, origin, start, begin, end); break;
            case 2: bsri_reblock_some<bsri_dev_same<uint16_t>>(b, to, s, origin, start, begin, end); break;
            case 4: bsri_reblock_some<bsri_dev_same<uint32_t>>(b, to, s, origin, start, begin, end); break;
            default: bsri_reblock_some<bsri_dev_same<uint64_t>>(b, to, s, origin, start, begin, end); break;
        }
    }
}
/* Entries one after another: each row's stand in the blocks of its block row in turn. */
template <class I>
__device__ __forceinline__ void bsri_reblock_entries(const bsri_dev_build &b, const bsri_item &to, const bsri_item &s,
                                                     int64_t first, int64_t last) {
    const int lane = threadIdx.x & 31, dt = b.sparse.index_dtype;
    const int64_t br = b.sparse.block_rows, bc = b.sparse.block_cols;
    I row[8];
    bsri_dev_rows_of_warp(row, (const I *)to.crow, b.rows, first, last);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int64_t e = first + lane + j * 32, i = row[j], r = bsri_divide(i, br);
        if (e > last) continue;
        const int64_t n = e - ((const I *)to.crow)[i], k = bsri_divide(n, bc), x = n - k * bc;
        const int64_t p = bsri_index(s.crow, dt, r) + k;
        ((I *)to.col)[e] = (I)(bsri_index(s.col, dt, p) * bc + x);
        if (b.entry_row) ((I *)b.entry_row)[e] = row[j];
        if (b.to.values)
            bsri_dev_move(to.values, b.to.dtype, e * b.stride[0], s.values, b.sparse.dtype,
                          p * b.sparse_stride[0] + (i - r * br) * b.sparse_stride[1] + x * b.sparse_stride[2]);
    }
}
static __global__ void __launch_bounds__(BSRI_CTA, 3) bsri_reblock_elements(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t item_work = bsri_ceil_div(b.capacity, 2048);
    const int dt = b.to.index_dtype;
    for (int64_t work = blockIdx.x; work < item_work * b.batch.count; work += gridDim.x) {
        const int64_t item = bsri_divide(work, item_work), tile = work - item * item_work;
        const bsri_item to = bsri_dev_matrix_item(&b.batch, item, &b.to), s = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
        const int64_t begin = bsri_index(to.crow, dt, 0), end = bsri_min(b.capacity, bsri_index(to.crow, dt, b.rows));
        const int64_t start = tile * 2048 + threadIdx.x / 32 * 256, first = bsri_max(start, begin);
        const int64_t last = bsri_min(start + 256, end) - 1;
        if (first > last) continue;
        if (dt == BSR_I64) bsri_reblock_entries<int64_t>(b, to, s, first, last);
        else bsri_reblock_entries<int32_t>(b, to, s, first, last);
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-validate: the first failing check in the fixed order                                  */
/* ---------------------------------------------------------------------------------------------- */

struct bsri_dev_finding {
    int64_t item, index, value; /* item 0: nothing wrong */
};
__device__ __forceinline__ bsri_dev_finding bsri_dev_found(int64_t item, int64_t index, int64_t value) {
    bsri_dev_finding f;
    f.item = item, f.index = index, f.value = value;
    return f;
}
/* b - a, whatever they are: modulo 2^64. */
__device__ __forceinline__ int64_t bsri_dev_between(int64_t a, int64_t b) { return (int64_t)((uint64_t)b - (uint64_t)a); }
/* A check's place is pattern * span + local; the first in the CPU's order is the least. */
__device__ __forceinline__ int64_t bsri_dev_span(const bsri_dev_validate &v, int stage) {
    const int64_t n = v.schedule.groups * v.group;
    switch (stage) {
        case BSRI_STAGE_STRUCTURE: return v.rows + 2 + v.m.nnz;
        case BSRI_STAGE_CCOL: return v.cols + 1;
        case BSRI_STAGE_ENTRIES: return bsri_max(1, v.index.entries * bsri_max(1, v.index.patterns));
        case BSRI_STAGE_ORDER: return n * (2 + v.lines / 65536) + 1;
        case BSRI_STAGE_TRANSPOSED: return v.cols + 1 + v.m.nnz;
        default: return bsri_max(1, v.schedule.groups * (v.group + 1));
    }
}
static __device__ bsri_dev_finding bsri_dev_check_structure(const bsri_dev_validate &v, int64_t i, int64_t local) {
    const int64_t nnz = v.m.nnz, rows = v.rows, ragged = v.m.flags & BSR_MATRIX_RAGGED;
    const int dt = v.m.index_dtype;
    const bsri_dev_finding fine = {0, 0, 0};
    const bsri_item it = bsri_dev_matrix_item(&v.patterns, bsri_min(i, v.patterns.count - 1), &v.m);
    const int64_t last = bsri_index(it.crow, dt, rows);
    if (i == v.patterns.count) return last != nnz ? bsri_dev_found(BSR_ITEM_CROW_LAST, i - 1, last) : fine;
    if (local == 0) {
        const int64_t now = bsri_index(it.crow, dt, 0);
        int64_t first = 0;
        if (ragged && i) first = bsri_index(bsri_dev_matrix_item(&v.patterns, i - 1, &v.m).crow, dt, rows);
        return now != first ? bsri_dev_found(BSR_ITEM_CROW_FIRST, i, now) : fine;
    }
    if (local <= rows) {
        const int64_t r = local - 1, before = bsri_index(it.crow, dt, r), now = bsri_index(it.crow, dt, r + 1);
        if (now > nnz && r + 1 == rows && now >= before) return fine; /* the last entry's fault */
        const int64_t blocks = bsri_dev_between(before, now);
        if (now < before || now > nnz) return bsri_dev_found(BSR_ITEM_CROW_DECREASES, r, now < 0 ? now : blocks);
        return (uint64_t)blocks > (uint64_t)v.cols ? bsri_dev_found(BSR_ITEM_CROW_LONG, r, blocks) : fine;
    }
    if (local == rows + 1) return last > nnz || (!ragged && last != nnz) ? bsri_dev_found(BSR_ITEM_CROW_LAST, i, last) : fine;
    const int64_t p = local - rows - 2, at = bsri_index(it.col, dt, p);
    if (at < 0 || at >= v.cols) return bsri_dev_found(BSR_ITEM_COL_RANGE, p, at);
    if (p == 0 || p <= bsri_index(it.crow, dt, 0) || at > bsri_index(it.col, dt, p - 1)) return fine;
    return bsri_index(it.crow, dt, bsri_dev_row_of(it.crow, dt, rows, p)) != p ? bsri_dev_found(BSR_ITEM_COL_ORDER, p, at) : fine;
}
static __device__ bsri_dev_finding bsri_dev_check_transposed(const bsri_dev_validate &v, int64_t i, int64_t local) {
    const int dt = v.m.index_dtype;
    const bsri_dev_finding fine = {0, 0, 0};
    const bsri_item it = bsri_dev_matrix_item(&v.patterns, i, &v.m);
    const char *view = (const char *)v.m.transposed_index;
    const int64_t shift = v.m.flags & BSR_MATRIX_RAGGED ? 0 : i * v.m.nnz, base = i * (v.cols + 1);
    const void *ccol = bsri_dev_at(view + v.index.at[BSRI_CCOL], dt, base);
    const void *row = bsri_dev_at(view + v.index.at[BSRI_ROW], dt, shift);
    if (local <= v.cols) {
        const int64_t now = bsri_index(ccol, dt, local), end = bsri_index(it.crow, dt, v.rows);
        if (local == 0) return now != bsri_index(it.crow, dt, 0) ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, base, now) : fine;
        if (now < bsri_index(ccol, dt, local - 1) || now > end || (local == v.cols && now != end))
            return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, base + local, now);
        return fine;
    }
    const int64_t e = local - v.cols - 1, k = bsri_dev_row_of(ccol, dt, v.cols, e), r = bsri_index(row, dt, e);
    const int64_t p = bsri_index(bsri_dev_at(view + v.index.at[BSRI_POSITION], dt, shift), dt, e);
    if (r <= (e == bsri_index(ccol, dt, k) ? -1 : bsri_index(row, dt, e - 1)) || r >= v.rows)
        return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, shift + e, r);
    if (p < bsri_index(it.crow, dt, r) || p >= bsri_index(it.crow, dt, r + 1) || bsri_index(it.col, dt, p) != k)
        return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, shift + e, p);
    return fine;
}
static __device__ bsri_dev_finding bsri_dev_check_schedule(const bsri_dev_validate &v, int stage, int64_t i, int64_t local) {
    const int64_t n = v.schedule.groups * v.group;
    const bsri_dev_finding fine = {0, 0, 0};
    const int32_t *order = (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_ORDER]) + i * n;
    const int32_t *lengths = (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_LENGTHS]) + i * v.schedule.groups;
    const uint32_t *seen = v.seen + i * (v.lines + 1);
    if (stage == BSRI_STAGE_ORDER) {
        const int64_t k = local < n ? local : (local - n) % bsri_max(1, n);
        if (local == n * (2 + v.lines / 65536))
            return seen[v.lines] != v.lines ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, n, seen[v.lines]) : fine;
        if (local < n) return order[k] < -1 || order[k] >= v.lines ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, k, order[k]) : fine;
        if (order[k] < 0 || order[k] >= v.lines) return fine;
        return seen[order[k]] != (uint32_t)(n - k) ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, k, order[k]) : fine;
    }
    const int64_t g = local / (v.group + 1), k = local % (v.group + 1), at = g * v.group + k;
    if (k == v.group) return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, i * v.schedule.groups + g, lengths[g]); /* found elsewhere */
    if ((at >= v.lines) != (order[at] < 0)) return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, i * n + at, order[at]);
    return fine;
}
static __device__ bsri_dev_finding bsri_dev_check(const bsri_dev_validate &v, int stage, int64_t i, int64_t local) {
    const int dt = v.m.index_dtype;
    const char *view = (const char *)v.m.transposed_index;
    const bsri_dev_finding fine = {0, 0, 0};
    if (stage == BSRI_STAGE_STRUCTURE) return bsri_dev_check_structure(v, i, local);
    if (stage == BSRI_STAGE_TRANSPOSED) return bsri_dev_check_transposed(v, i, local);
    if (stage > BSRI_STAGE_ENTRIES) return bsri_dev_check_schedule(v, stage, i, local);
    if (stage == BSRI_STAGE_CCOL) {
        const void *ccol = bsri_dev_at(view + v.index.at[BSRI_CCOL], dt, i * (v.cols + 1));
        const int64_t at = bsri_index(ccol, dt, local);
        return at < (local ? bsri_index(ccol, dt, local - 1) : 0) || at > v.m.nnz
                   ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, local, at)
                   : fine;
    }
    const int64_t row = bsri_index(view + v.index.at[BSRI_ROW], dt, local);
    const int64_t at = bsri_index(view + v.index.at[BSRI_POSITION], dt, local);
    if (row < 0 || row >= v.rows) return bsri_dev_found(BSR_ITEM_VIEW_CONTENT, local, row);
    return at < 0 || at >= v.m.nnz ? bsri_dev_found(BSR_ITEM_VIEW_CONTENT, local, at) : fine;
}
__device__ __forceinline__ void bsri_dev_report(const bsri_dev_validate &v, int stage, int64_t i, int64_t local) {
    atomicMin((unsigned long long *)v.record,
              (unsigned long long)stage << 58 | (unsigned long long)(i * bsri_dev_span(v, stage) + local));
}
/* Is `at` among the ascending entries [low, high) of list? */
__device__ __forceinline__ bool bsri_dev_stands_in(const void *list, int dt, int64_t low, int64_t high, int64_t at) {
    const int64_t end = high;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bsri_index(list, dt, mid) < at) low = mid + 1;
        else high = mid;
    }
    return low < end && bsri_index(list, dt, low) == at;
}
/* A stage, `parts` blocks per pattern. After a failure in an earlier stage nothing is looked at. */
static __global__ void __launch_bounds__(BSRI_CTA, 2)
    bsri_validate_stage(const __grid_constant__ bsri_dev_validate v BSRI_GATE) {
    BSRI_ENTER;
    const int stage = v.stage, dt = v.m.index_dtype;
    const int64_t n = v.schedule.groups * v.group, step = v.parts * BSRI_CTA;
    if ((int)(*v.record >> 58) < stage) return;
    for (int64_t work = blockIdx.x; work < v.work; work += gridDim.x) {
        const int64_t i = work / v.parts, begin = work % v.parts * BSRI_CTA + threadIdx.x;
        int64_t fixed = bsri_dev_span(v, stage), from = 0, to = 0;
        if (stage == BSRI_STAGE_STRUCTURE || stage == BSRI_STAGE_TRANSPOSED) {
            const void *start = i < v.patterns.count ? bsri_dev_matrix_item(&v.patterns, i, &v.m).crow : nullptr;
            int64_t lines = v.rows;
            fixed = i < v.patterns.count ? v.rows + 2 : 1;
            if (stage == BSRI_STAGE_TRANSPOSED)
                start = bsri_dev_at((const char *)v.m.transposed_index + v.index.at[BSRI_CCOL], dt, i * (v.cols + 1)),
                lines = v.cols,
                fixed = v.cols + 1;
            if (start && lines)
                from = bsri_max(0, bsri_min(v.m.nnz, bsri_index(start, dt, 0))),
                to = bsri_min(v.m.nnz, bsri_index(start, dt, lines));
        } else if (stage == BSRI_STAGE_MARK) {
            const int32_t *order = (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_ORDER]) + i * n;
            uint32_t *seen = v.seen + i * (v.lines + 1);
            for (int64_t k = begin; k < n; k += step)
                if (order[k] >= 0 && order[k] < v.lines)
                    atomicMax(&seen[order[k]], (uint32_t)(n - k)), atomicAdd(&seen[v.lines], 1u);
            continue;
        } else if (stage == BSRI_STAGE_ORDER) {
            const int32_t *order = (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_ORDER]) + i * n;
            for (int64_t k = begin; k < n; k += step) { /* repeats: by windows of 65536 lines, as the CPU finds them */
                const int64_t local = n + bsri_max(0, order[k]) / 65536 * n + k;
                if (order[k] < v.lines && bsri_dev_check(v, stage, i, local).item) bsri_dev_report(v, stage, i, local);
            }
            if (begin == 0 && bsri_dev_check(v, stage, i, fixed - 1).item) bsri_dev_report(v, stage, i, fixed - 1);
            fixed = n;
        } else if (stage == BSRI_STAGE_ENTRIES) {
            fixed = v.index.entries * v.index.patterns;
            if (v.m.flags & BSR_MATRIX_RAGGED) fixed = v.index.patterns ? v.index.entries : 0;
        } else if (stage == BSRI_STAGE_UNIONS) {
            fixed = 0;
            for (int64_t k = begin; k < n; k += step) {
                const int64_t local = k / v.group * (v.group + 1) + k % v.group;
                if (bsri_dev_check(v, stage, i, local).item) bsri_dev_report(v, stage, i, local);
            }
        }
        for (int64_t local = begin; local < fixed; local += step)
            if (bsri_dev_check(v, stage, i, local).item) bsri_dev_report(v, stage, i, local);
        for (int64_t p = from + begin; p < to; p += step) {
            const int64_t local = (stage == BSRI_STAGE_STRUCTURE ? v.rows + 2 : v.cols + 1) + p;
            if (bsri_dev_check(v, stage, i, local).item) bsri_dev_report(v, stage, i, local);
        }
    }
}
/* One pattern's unions, a warp per group: of each member the entries that no earlier one has; lists ascend without repeats by
   now. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_validate_unions(const __grid_constant__ bsri_dev_validate v BSRI_GATE) {
    BSRI_ENTER;
    const int lane = threadIdx.x & 31, dt = v.m.index_dtype, group = (int)v.group;
    const int32_t *lengths =
        (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_LENGTHS]) + v.pattern * v.schedule.groups;
    if ((int)(*v.record >> 58) < BSRI_STAGE_UNIONS) return;
    for (int64_t g = blockIdx.x * (int64_t)8 + threadIdx.x / 32; g < v.schedule.groups; g += (int64_t)gridDim.x * 8) {
        const int32_t *order =
            (const int32_t *)((const char *)v.m.schedule + v.schedule.at[BSRI_ORDER]) +
            (v.pattern * v.schedule.groups + g) * group;
        int sum = 0;
        for (int k = 0; k < group && order[k] >= 0; k++) {
            const int64_t end = bsri_index(v.start, dt, order[k] + 1);
            for (int64_t p = bsri_index(v.start, dt, order[k]) + lane; p < end; p += 32) {
                const int64_t at = bsri_index(v.list, dt, p);
                int j = 0;
                while (j < k && !bsri_dev_stands_in(v.list, dt, bsri_index(v.start, dt, order[j]),
                                                    bsri_index(v.start, dt, order[j] + 1), at))
                    j++;
                sum += j == k;
            }
        }
        sum = bsri_dev_warp_sum(sum);
        if (lane == 31 && sum != lengths[g]) bsri_dev_report(v, BSRI_STAGE_UNIONS, v.pattern, g * (v.group + 1) + v.group);
    }
}
/* What the first failure was. */
static __global__ void bsri_validate_describe(const __grid_constant__ bsri_dev_validate v BSRI_GATE) {
    BSRI_ENTER;
    const uint64_t first = *v.record, place = first & (((uint64_t)1 << 58) - 1);
    bsri_dev_finding f = {0, -1, 0};
    if (first != ~(uint64_t)0) {
        const int64_t span = bsri_dev_span(v, (int)(first >> 58));
        f = bsri_dev_check(v, (int)(first >> 58), (int64_t)place / span, (int64_t)place % span);
    }
    v.record[1] = (uint64_t)f.item, v.record[2] = (uint64_t)f.index, v.record[3] = (uint64_t)f.value;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-indices: index arrays that are looked at before an operation                          */
/* ---------------------------------------------------------------------------------------------- */

/* The first finding is the greatest word. Asked first: where much is wrong, few are still to be told. */
__device__ __forceinline__ void bsri_dev_tell(const bsri_dev_indices &x, int item, int64_t index) {
    const uint64_t word = bsri_status_word(x.operand, item, index);
    if (word > *(const volatile uint64_t *)x.word) atomicMax((unsigned long long *)x.word, (unsigned long long)word);
}
/* see(i, entry, the entry before it) for all n entries of an array; a thread of `threads`. What stands on 16 bytes is read so. */
template <class I> struct alignas(16) bsri_dev_piece {
    I entry[16 / sizeof(I)];
};
struct bsri_dev_share {
    int64_t thread, threads;
    template <class I, class F> __device__ __forceinline__ void each(const void *array, int64_t n, const F &see) const {
        constexpr int EACH = 16 / sizeof(I);
        const I *a = (const I *)array;
        const int64_t left = (int64_t)((0 - (uintptr_t)a) % 16 / sizeof(I)), lead = bsri_max(0, bsri_min(n, left));
        const int64_t pieces = bsri_max(0, n - lead) / EACH, odd = bsri_max(0, n) - pieces * EACH;
        for (int64_t i = thread; i < odd; i += threads) { /* before and behind the pieces */
            const int64_t k = i < lead ? i : i + pieces * EACH;
            see(k, (int64_t)a[k], k ? (int64_t)a[k - 1] : 0);
        }
        for (int64_t i = thread; i < pieces; i += threads) {
            const int64_t k = lead + i * EACH;
            const bsri_dev_piece<I> p = *(const bsri_dev_piece<I> *)(a + k);
            int64_t before = k ? (int64_t)a[k - 1] : 0;
#pragma unroll
            for (int j = 0; j < EACH; j++) see(k + j, (int64_t)p.entry[j], before), before = (int64_t)p.entry[j];
        }
    }
};
/* One pattern as its row pointers have it, held inside the arrays. */
template <class I> struct bsri_dev_pattern {
    const I *crow, *col;
    int64_t i, shift, rows, cols, begin, end; /* shift: entries of the patterns before it */
    __device__ __forceinline__ bsri_dev_pattern(const bsri_dev_indices &x, int64_t pattern) {
        const bsri_item it = bsri_dev_matrix_item(&x.patterns, pattern, &x.m);
        const bool ragged = x.m.flags & BSR_MATRIX_RAGGED;
        crow = (const I *)it.crow, col = (const I *)it.col, i = pattern, rows = x.rows, cols = x.cols;
        shift = ragged ? 0 : i * x.m.nnz, begin = ragged ? bsri_max(0, bsri_min(x.m.nnz, crow[0])) : 0;
        end = bsri_max(begin, bsri_min(x.m.nnz, crow[rows]));
    }
};

template <class I>
static __device__ void bsri_dev_look_at_crow(const bsri_dev_indices &x, const bsri_dev_pattern<I> &p, const bsri_dev_share &all) {
    const int64_t nnz = x.m.nnz, rows = p.rows, ragged = x.m.flags & BSR_MATRIX_RAGGED;
    const bool must_be_all = x.exact && (!ragged || p.i + 1 == x.patterns.count);
    int64_t first = 0;
    if (ragged && p.i) first = ((const I *)bsri_dev_matrix_item(&x.patterns, p.i - 1, &x.m).crow)[rows];
    all.each<I>(p.crow, rows + 1, [&](int64_t k, int64_t now, int64_t before) {
        if (k == 0 && now != first) bsri_dev_tell(x, BSR_ITEM_CROW_FIRST, p.i);
        if (k == rows && (now > nnz || (must_be_all && now != nnz))) bsri_dev_tell(x, BSR_ITEM_CROW_LAST, p.i);
        if (k == 0) return;
        if (now < before || (now > nnz && k < rows)) bsri_dev_tell(x, BSR_ITEM_CROW_DECREASES, p.i * rows + k - 1);
        else if (x.ascend && now <= nnz && (uint64_t)bsri_dev_between(before, now) > (uint64_t)p.cols)
            bsri_dev_tell(x, BSR_ITEM_CROW_LONG, p.i * rows + k - 1);
    });
}
template <class I>
static __device__ void bsri_dev_look_at_cols(const bsri_dev_indices &x, const bsri_dev_pattern<I> &p, const bsri_dev_share &all) {
    all.each<I>(p.col + p.begin, p.end - p.begin, [&](int64_t k, int64_t now, int64_t before) {
        const int64_t at = p.begin + k;
        if (now < 0 || now >= p.cols) bsri_dev_tell(x, BSR_ITEM_COL_RANGE, p.shift + at);
        else if (x.ascend && k && now <= before && p.crow[bsri_dev_row_of(p.crow, x.m.index_dtype, p.rows, at)] != at)
            bsri_dev_tell(x, BSR_ITEM_COL_ORDER, p.shift + at);
    });
}
/* Its header is this matrix's, and in each column stand the positions of its blocks in ascending order, each with its row: so
   each position stands there once. Only with the right header is it known to be as long as is read. */
template <class I>
static __device__ void bsri_dev_look_at_transposed(const bsri_dev_indices &x, const bsri_dev_pattern<I> &p,
                                                   const bsri_dev_share &all) {
    const int64_t *have = (const int64_t *)x.m.transposed_index, lines = p.i * (p.cols + 1);
    int wrong = -1;
#pragma unroll
    for (int w = BSRI_TRANSPOSED_WORDS - 1; w >= 0; w--) wrong = have[w] != x.head[w] ? w : wrong; /* all at once */
    if (wrong >= 0) {
        if (all.thread == 0) bsri_dev_tell(x, BSR_ITEM_VIEW_HEADER, wrong);
        return;
    }
    const I *ccol = (const I *)((const char *)have + x.index.at[BSRI_CCOL]) + lines;
    const I *row = (const I *)((const char *)have + x.index.at[BSRI_ROW]) + p.shift;
    const I *position = (const I *)((const char *)have + x.index.at[BSRI_POSITION]) + p.shift;
    const int64_t first = p.crow[0], last = p.crow[p.rows];
    all.each<I>(ccol, p.cols + 1, [&](int64_t k, int64_t now, int64_t before) {
        if ((k ? now < before || now > last : now != first) || (k == p.cols && now != last))
            bsri_dev_tell(x, BSR_ITEM_VIEW_CONTENT, lines + k);
    });
    all.each<I>(position + p.begin, p.end - p.begin, [&](int64_t k, int64_t at, int64_t before) {
        const int64_t e = p.begin + k, r = row[e];
        bool fine = r >= 0 && r < p.rows && at >= p.begin && at < p.end;
        if (fine) {
            const int64_t c = p.col[at];
            fine = p.crow[r] <= at && at < p.crow[r + 1];
            if (c >= 0 && c < p.cols) /* else that is the finding */
                fine = fine && ccol[c] <= e && e < ccol[c + 1] && (!k || e == ccol[c] || before < at);
        }
        if (!fine) bsri_dev_tell(x, BSR_ITEM_VIEW_CONTENT, p.shift + e);
    });
}
/* A schedule as its header has it, if that can be this matrix's; else which word is wrong. */
struct bsri_dev_schedule {
    int64_t lines, others, groups, group;
    const int32_t *order, *lengths; /* of pattern i */
    int wrong;
    __device__ __forceinline__ bsri_dev_schedule(const bsri_dev_indices &x, int64_t i) {
        const int64_t *have = (const int64_t *)x.m.schedule;
        const bool columns = have[BSRI_SCHEDULE_TRANSPOSED] != 0;
        lines = columns ? x.cols : x.rows, others = columns ? x.rows : x.cols;
        group = have[BSRI_SCHEDULE_GROUP], groups = have[BSRI_SCHEDULE_GROUPS], wrong = -1;
        if (have[BSRI_SCHEDULE_LONG] < 0 || have[BSRI_SCHEDULE_LONG] > groups) wrong = BSRI_SCHEDULE_LONG;
        if (have[BSRI_SCHEDULE_TRANSPOSED] != 0 && have[BSRI_SCHEDULE_TRANSPOSED] != 1) wrong = BSRI_SCHEDULE_TRANSPOSED;
        if (group != 1 && group != 2 && group != 4 && group != 8) wrong = BSRI_SCHEDULE_GROUP;
        else if (groups != bsri_ceil_div(lines, group)) wrong = BSRI_SCHEDULE_GROUPS;
        if (have[BSRI_SCHEDULE_PATTERNS] != x.patterns.count) wrong = BSRI_SCHEDULE_PATTERNS;
        if (have[BSRI_SCHEDULE_LINES] != lines) wrong = BSRI_SCHEDULE_LINES;
        if (have[BSRI_VIEW_NNZ] != x.m.nnz) wrong = BSRI_VIEW_NNZ;
        if (have[BSRI_VIEW_MAGIC] != BSRI_SCHEDULE_MAGIC) wrong = BSRI_VIEW_MAGIC;
        if (wrong >= 0) return;
        order = (const int32_t *)((const char *)have + BSRI_VIEW_HEADER);
        lengths = order + (x.patterns.count * groups * group + 15) / 16 * 16 + i * groups, order += i * groups * group;
    }
};
/* Marks a line or tile; of what comes again the number is told, as which of its entries comes first is chance. */
__device__ __forceinline__ void bsri_dev_name(const bsri_dev_indices &x, int64_t pattern, int64_t line, int item,
                                              int64_t number) {
    const uint32_t bit = 1u << line % 32;
    if (atomicOr(&x.named[pattern * x.words + line / 32], bit) & bit) bsri_dev_tell(x, item, number);
}
/* Every line once, -1 where there are no lines left. */
static __device__ void bsri_dev_look_at_schedule(const bsri_dev_indices &x, int64_t i, const bsri_dev_share &all) {
    const bsri_dev_schedule s(x, i);
    if (s.wrong >= 0) {
        if (all.thread == 0) bsri_dev_tell(x, BSR_ITEM_VIEW_HEADER, s.wrong);
        return;
    }
    const int64_t n = s.groups * s.group;
    all.each<int32_t>(s.order, n, [&](int64_t k, int64_t line, int64_t) {
        if (line < -1 || line >= s.lines || (line < 0) != (k >= s.lines)) bsri_dev_tell(x, BSR_ITEM_VIEW_CONTENT, i * n + k);
        else if (line >= 0) bsri_dev_name(x, i, line, BSR_ITEM_VIEW_REPEATS, i * s.lines + line);
    });
    all.each<int32_t>(s.lengths, s.groups, [&](int64_t k, int64_t length, int64_t) {
        if (length < 0 || length > s.others) bsri_dev_tell(x, BSR_ITEM_VIEW_CONTENT, i * s.groups + k);
    });
}
/* Row pointers and columns, transposed index, schedule: each by CTAs of its own, so that none waits for another. */
template <class I>
static __device__ void bsri_dev_look_at_pattern(const bsri_dev_indices &x, int64_t at, const bsri_dev_share &all) {
    const int64_t i = at / x.roles;
    const int role = (int)(at % x.roles);
    if (role && (role == 2 || !x.m.transposed_index)) {
        bsri_dev_look_at_schedule(x, i, all);
        return;
    }
    const bsri_dev_pattern<I> p(x, i);
    if (role) bsri_dev_look_at_transposed(x, p, all);
    else bsri_dev_look_at_crow(x, p, all), bsri_dev_look_at_cols(x, p, all);
}
/* Both patterns are looked at by themselves elsewhere: here only whether they are the same. */
template <class I> static __device__ void bsri_dev_look_at_both(const bsri_dev_indices &x, int64_t i, const bsri_dev_share &all) {
    const bsri_dev_pattern<I> p(x, i);
    const bsri_item other = bsri_dev_matrix_item(&x.patterns, i, &x.other);
    const int dt = x.other.index_dtype;
    all.each<I>(p.crow, p.rows + 1, [&](int64_t k, int64_t now, int64_t) {
        if (now != bsri_index(other.crow, dt, k)) bsri_dev_tell(x, BSR_ITEM_PATTERN_MISMATCH, i * (p.rows + 1) + k);
    });
    all.each<I>(p.col + p.begin, p.end - p.begin, [&](int64_t k, int64_t now, int64_t) {
        if (now != bsri_index(other.col, dt, p.begin + k)) bsri_dev_tell(x, BSR_ITEM_PATTERN_MISMATCH, p.shift + p.begin + k);
    });
}
template <class I> static __device__ void bsri_dev_look_at_places(const bsri_dev_indices &x, const bsri_dev_share &all) {
    all.each<I>(x.row, x.m.nnz, [&](int64_t k, int64_t now, int64_t) {
        if (now < 0 || now >= x.m.rows) bsri_dev_tell(x, BSR_ITEM_ROW_RANGE, k);
    });
    all.each<I>(x.m.col_indices, x.m.nnz, [&](int64_t k, int64_t now, int64_t) {
        if (now < 0 || now >= x.m.cols) bsri_dev_tell(x, BSR_ITEM_COL_RANGE, k);
    });
}

/* Does the tile of rows x ns that starts at a flat offset lie inside m rows of n columns? */
__device__ __forceinline__ bool bsri_dev_tile_inside(const bsri_scatter_shape &s, int64_t offset, int64_t rows, int64_t m) {
    return offset >= 0 && offset / s.n <= m - rows && offset % s.n <= s.n - s.ns;
}
/* Is it an output tile's, and which one? -1: it is not. */
__device__ __forceinline__ int64_t bsri_dev_tile_of(const bsri_scatter_shape &s, int64_t offset) {
    if (!bsri_dev_tile_inside(s, offset, s.ms, s.m) || offset / s.n % s.ms || offset % s.n % s.ns) return -1;
    return offset / s.n / s.ms * (s.n / s.ns) + offset % s.n / s.ns;
}
/* The lists of bsr_scatter_mm: offsets never decrease and end inside, all else is in range, and no output comes twice. */
static __device__ void bsri_dev_look_at_lists(const bsri_dev_indices &x, const bsri_dev_share &all) {
    const bsr_scatter_indices &l = x.lists;
    const bsri_scatter_shape &s = x.shape;
    const bool tiles = l.format == BSR_SCATTER_MM, compressed = l.format == BSR_SCATTER_STRIDED_COMPRESSED;
    const int64_t most = compressed ? s.blocks : l.p_count, rows = l.c_count - 1, split = bsri_max(1, l.split_n);
    all.each<int64_t>(l.c_indices, l.c_count, [&](int64_t k, int64_t now, int64_t before) {
        if (now < before || now > most || (compressed && k == 0 && now)) bsri_dev_tell(x, BSR_ITEM_INDICES_RANGE, k);
        if (compressed && k == rows && now >= 0 && now > l.q_count / split) bsri_dev_tell(x, BSR_ITEM_INDICES_COUNT, -1);
    });
    if (compressed && rows < 0 && all.thread == 0) bsri_dev_tell(x, BSR_ITEM_INDICES_COUNT, -1);
    all.each<int64_t>(l.q_indices, l.q_count, [&](int64_t k, int64_t now, int64_t) {
        const bool fine = tiles ? now >= 0 && now < s.sources : bsri_dev_tile_inside(s, now, s.ks, s.k);
        if (!fine) bsri_dev_tell(x, BSR_ITEM_INDICES_RANGE, k);
    });
    if (!compressed)
        all.each<int64_t>(l.p_indices, l.p_count, [&](int64_t k, int64_t now, int64_t) {
            if (now < 0 || now >= s.blocks) bsri_dev_tell(x, BSR_ITEM_INDICES_RANGE, k);
        });
    if (tiles) return;
    all.each<int64_t>(l.r_offsets, l.r_count, [&](int64_t k, int64_t now, int64_t) {
        const int64_t tile = bsri_dev_tile_of(s, now);
        if (tile < 0 || (compressed && now / s.n / s.ms >= rows)) bsri_dev_tell(x, BSR_ITEM_INDICES_RANGE, k);
        else bsri_dev_name(x, 0, tile, BSR_ITEM_INDICES_REPEAT, tile);
    });
}

/* A CTA's share of the patterns: `parts` CTAs to each. */
#define BSRI_LOOK(look, x)                                                                          \
    bsri_pdl_launch_dependents(), bsri_pdl_wait();                                            \
    for (int64_t work = blockIdx.x; work < x.work; work += gridDim.x) {                             \
        const bsri_dev_share all = {work % x.parts * BSRI_CTA + threadIdx.x, x.parts * BSRI_CTA};   \
        look;                                                                                       \
    }
#define BSRI_LOOK_BY_TYPE(look, ...) (x.m.index_dtype == BSR_I64 ? look<int64_t>(__VA_ARGS__) : look<int32_t>(__VA_ARGS__))
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_look_at_matrix(const __grid_constant__ bsri_dev_indices x BSRI_GATE) {
    BSRI_ENTER;
    BSRI_LOOK(BSRI_LOOK_BY_TYPE(bsri_dev_look_at_pattern, x, work / x.parts, all), x)
}
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_look_at_pair(const __grid_constant__ bsri_dev_indices x BSRI_GATE) {
    BSRI_ENTER;
    BSRI_LOOK(BSRI_LOOK_BY_TYPE(bsri_dev_look_at_both, x, work / x.parts, all), x)
}
static __global__ void BSRI_BOUNDS(BSRI_CTA) bsri_look_at_entries(const __grid_constant__ bsri_dev_indices x BSRI_GATE) {
    BSRI_ENTER;
    BSRI_LOOK(BSRI_LOOK_BY_TYPE(bsri_dev_look_at_places, x, all), x)
}
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_look_at_lists(const __grid_constant__ bsri_dev_indices x BSRI_GATE) {
    BSRI_ENTER;
    BSRI_LOOK(bsri_dev_look_at_lists(x, all), x)
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-draw: random patterns and layouts, pruning                                            */
/* ---------------------------------------------------------------------------------------------- */

/* The draws of one item as bsri_rng_below makes them one after another: of 1024 raw numbers at a time each is taken or
   rejected by how many were taken before it, which is found by repeating until nothing changes. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_random_draw(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    BSRI_ENTER;
    __shared__ int part[33];
    const int64_t n = b.candidates, first = n - b.draws;
    for (int64_t item = blockIdx.x; item < b.batch.count; item += gridDim.x) {
        const uint64_t state = bsri_rng_seed(b.seed, item);
        int64_t *drawn = b.drawn + item * b.draws, j0 = first, raw0 = 0;
        while (j0 < n) {
            const uint64_t raw = bsri_mix64(state + (uint64_t)(raw0 + threadIdx.x + 1) * UINT64_C(0x9e3779b97f4a7c15));
            int before = 0, taken, all, changed;
            uint64_t value, mask;
            do {
                const int64_t j = j0 + before;
                mask = (uint64_t)j;
                for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
                value = raw & mask, taken = j < n && value <= (uint64_t)j;
                const int now = bsri_dev_block_before(taken, part, &all);
                changed = now != before, before = now;
            } while (__syncthreads_or(changed));
            if (taken) drawn[j0 + before - first] = (int64_t)value;
            j0 += all, raw0 += 1024;
        }
    }
}
/* Who drew each candidate first: draws - i, so that zero means nobody. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_random_mark(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    BSRI_ENTER;
    const int64_t total = b.batch.count * b.draws, step = (int64_t)gridDim.x * BSRI_CTA;
    for (int64_t work = blockIdx.x * (int64_t)BSRI_CTA + threadIdx.x; work < total; work += step)
        atomicMax(&b.seen[work / b.draws * b.candidates + b.drawn[work]], (uint32_t)(b.draws - work % b.draws));
}
/* Draw i inserts what it drew or, where that stands in the set already, its own number j: it does when an earlier draw was
   the same, or when it is the number of an earlier draw that inserted its own, which is asked of that draw in turn. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_random_set(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    BSRI_ENTER;
    const int64_t total = b.batch.count * b.draws, step = (int64_t)gridDim.x * BSRI_CTA, first = b.candidates - b.draws;
    for (int64_t work = blockIdx.x * (int64_t)BSRI_CTA + threadIdx.x; work < total; work += step) {
        const int64_t item = work / b.draws, i = work % b.draws, *drawn = b.drawn + item * b.draws;
        const uint32_t *seen = b.seen + item * b.candidates;
        int64_t x = i, at;
        bool own;
        for (;;) {
            const int64_t t = drawn[x];
            own = seen[t] != (uint32_t)(b.draws - x);
            if (own || t < first || t >= first + x) break;
            x = t - first;
        }
        at = own ? first + i : drawn[i];
        atomicOr(&b.bits[item * b.item_words + at / 32], 1u << (at % 32));
    }
}

/* Norms as bsri_block_norm forms them: rows are added up by as many lanes, of which each takes every `lanes`-th, and then lane by
   lane. The sum, or the largest, which NaN is. */
__device__ __forceinline__ double bsri_dev_norm_fold(double v, int lanes, bool largest) {
    for (int d = lanes / 2; d; d /= 2) {
        const double other = __shfl_down_sync(~0u, v, (unsigned)d, lanes);
        if (!largest) v = __dadd_rn(v, other);
        else if (other > v || other != other) v = other;
    }
    return __shfl_sync(~0u, v, 0, lanes);
}
/* A lane's sum of squares of elements over the largest. */
static __device__ __noinline__ double bsri_dev_norm_scaled(const char *p, int dtype, int64_t rows, int64_t cols, int64_t rs,
                                                           int64_t cs, double top) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const double x = bsri_dev_load<double>(p, dtype, i * rs + j * cs) / top;
            sum = __dadd_rn(sum, __dmul_rn(x, x));
        }
    return sum;
}
static __device__ __noinline__ double bsri_dev_norm_top(const char *p, int dtype, int64_t rows, int64_t cols, int64_t rs,
                                                        int64_t cs) {
    double top = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const double x = fabs(bsri_dev_load<double>(p, dtype, i * rs + j * cs));
            if (x > top || x != x) top = x;
        }
    return top;
}
/* A lane's rows, whose elements are fetched ahead: pieces of a row, or elements one after another. */
template <class E, class F> struct bsri_dev_norm {
    double sum, top;
    int kind;
    __device__ __forceinline__ void add(E e) {
        const double x = fabs(F::number(e));
        if (kind == BSR_NORM_MAX) {
            if (x > top || x != x) top = x; /* NaN stays: nothing is above it */
        } else sum = __dadd_rn(sum, kind == BSR_NORM_L2 ? __dmul_rn(x, x) : x);
    }
    __device__ __forceinline__ double of(const E *p, int64_t rows, int64_t cols, int64_t rs, int64_t cs, bool whole) {
        typedef bsri_dev_elements<E> piece;
        sum = 0, top = 0;
        if (whole) {
            const int64_t each = cols / piece::N, n = rows * each;
            int64_t x = 0, at = 0;
            piece ahead[4] = {};
            const auto fetch = [&](piece &v, int64_t i) {
                if (i < n) v = *(const piece *)(p + at + x * piece::N);
                if (++x == each) x = 0, at += rs;
            };
#pragma unroll
            for (int j = 0; j < 4; j++) fetch(ahead[j], j);
#pragma unroll 1
            for (int64_t i = 0; i < n; i++) {
                const piece now = ahead[0];
                ahead[0] = ahead[1], ahead[1] = ahead[2], ahead[2] = ahead[3], fetch(ahead[3], i + 4);
#pragma unroll
                for (int k = 0; k < piece::N; k++) add(now.get(k));
            }
        } else {
            int64_t x = 0, at = 0;
#pragma unroll 1
            for (int64_t i = 0; i < rows * cols; i += 8) {
                E v[8];
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    if (i + j < rows * cols) v[j] = p[at + x * cs];
                    if (++x == cols) x = 0, at += rs;
                }
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (i + j < rows * cols) add(v[j]);
            }
        }
        return kind == BSR_NORM_MAX ? top : sum;
    }
};
template <int DTYPE> struct bsri_dev_as {
    template <class E> static __device__ __forceinline__ double number(E e) { return bsri_dev_load<double>(&e, DTYPE, 0); }
};
/* A candidate, by `lanes` threads; there: is there one? Where a sum of squares leaves the range that it is good for, or is no
   number, it is formed again. */
template <class E, int DTYPE>
__device__ __forceinline__ void bsri_prune_norm(const bsri_dev_build &b, int64_t item, int64_t i, bool there, int lanes) {
    const int64_t br = b.to.block_rows, bc = b.to.block_cols;
    const int lane = threadIdx.x & (lanes - 1), kind = b.norm_kind;
    bsri_dev_norm<E, bsri_dev_as<DTYPE>> norm;
    const E *p = nullptr;
    int64_t height = br, width = bc, rs = b.sparse_stride[1], cs = b.sparse_stride[2];
    norm.kind = kind;
    if (there && b.dense.data) {
        const bsr_dense &d = b.dense;
        const int64_t r = bsri_divide(i, b.cols), row = r * br, col = (i - r * b.cols) * bc;
        rs = d.row_stride, cs = d.col_stride, height = bsri_min(br, d.rows - row), width = bsri_min(bc, d.cols - col);
        p = (const E *)d.data + bsri_dense_offset(&b.batch, item, &d) + row * rs + col * cs;
    } else if (there) {
        const bsri_item it = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
        const int dt = b.sparse.index_dtype; /* of a ragged source its own only */
        there = i >= bsri_index(it.crow, dt, 0) && i < bsri_index(it.crow, dt, b.rows);
        p = (const E *)it.values + i * b.sparse_stride[0];
    }
    const int64_t mine = there && lane < height ? (height - lane - 1) / lanes + 1 : 0;
    p += lane * rs;
    double v = norm.of(p, mine, width, lanes * rs, cs, b.whole && width == bc);
    v = bsri_dev_norm_fold(v, lanes, kind == BSR_NORM_MAX);
    const bool again = kind == BSR_NORM_L2 && there && !(v >= 1e-280 && v <= 1e300);
    if (__any_sync(~0u, again)) {
        double top = bsri_dev_norm_top((const char *)p, DTYPE, again ? mine : 0, width, lanes * rs, cs);
        top = bsri_dev_norm_fold(top, lanes, true);
        const bool scaled = again && top > 0 && top <= 1.7976931348623157e308;
        double sum = bsri_dev_norm_scaled((const char *)p, DTYPE, scaled ? mine : 0, width, lanes * rs, cs, top);
        sum = bsri_dev_norm_fold(sum, lanes, false);
        if (again) v = scaled ? top * sqrt(sum) : top;
        else if (kind == BSR_NORM_L2) v = sqrt(v);
    } else if (kind == BSR_NORM_L2) {
        v = sqrt(v);
    }
    if (there && lane == 0) b.norm[item * b.candidates + i] = v;
}
static __global__ void __launch_bounds__(128, 4 - BSRI_MMA_FULL)
    bsri_prune_norms(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int lanes = b.lanes, beside = 128 / lanes, dtype = b.dense.data ? b.dense.dtype : b.sparse.dtype;
    const int64_t total = b.batch.count * b.candidates;
    for (int64_t start = blockIdx.x * (int64_t)beside; start < total; start += (int64_t)gridDim.x * beside) {
        const int64_t work = start + (int)threadIdx.x / lanes, item = bsri_divide(bsri_min(work, total - 1), b.candidates);
        const int64_t i = work - item * b.candidates;
        const bool there = work < total;
        switch (dtype) {
            case BSR_F16: bsri_prune_norm<uint16_t, BSR_F16>(b, item, i, there, lanes); break;
            case BSR_BF16: bsri_prune_norm<uint16_t, BSR_BF16>(b, item, i, there, lanes); break;
            case BSR_F32: bsri_prune_norm<uint32_t, BSR_F32>(b, item, i, there, lanes); break;
            case BSR_F64: bsri_prune_norm<uint64_t, BSR_F64>(b, item, i, there, lanes); break;
            case BSR_I8: bsri_prune_norm<uint8_t, BSR_I8>(b, item, i, there, lanes); break;
            default: bsri_prune_norm<uint32_t, BSR_I32>(b, item, i, there, lanes); break;
        }
    }
}
__device__ __forceinline__ uint64_t bsri_dev_norm_key(double x) {
    return x == x ? (uint64_t)__double_as_longlong(x) : ~(uint64_t)0;
}
/* The candidates of an item. */
struct bsri_dev_field {
    int64_t from, n;
    const double *norm; /* of the first */
    __device__ __forceinline__ bsri_dev_field(const bsri_dev_build &b, int64_t item) {
        from = 0, n = b.candidates;
        if (b.sparse.crow_indices) {
            const bsri_item it = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
            from = bsri_index(it.crow, b.sparse.index_dtype, 0);
            n = bsri_min(n, bsri_index(it.crow, b.sparse.index_dtype, b.rows)) - from;
        }
        norm = b.norm + item * b.candidates + from;
    }
};
/* Of many candidates: passes of a radix selection by digits of the norm and then, among equals, of the place, the first being the
   largest. Each pass begins with what the histogram of the one before tells; the last ones seldom have anything to do. */
#define BSRI_PRUNE_BITS 13
#define BSRI_PRUNE_DIGITS (1 << BSRI_PRUNE_BITS)
__device__ __forceinline__ int bsri_dev_prune_shift(const bsri_dev_build &b, int pass) {
    return (pass < b.norm_passes ? b.norm_passes - 1 - pass : b.passes - 1 - pass) * BSRI_PRUNE_BITS;
}
__device__ __forceinline__ uint64_t bsri_dev_place_key(const bsri_dev_build &b, int64_t i) {
    return ((uint64_t)1 << b.place_bits) - 1 - (uint64_t)i;
}
/* The digit that holds the rest-th largest of a histogram; *rest: how many of those in it. By 256 threads. */
__device__ __forceinline__ int bsri_dev_prune_digit(const uint32_t *count, int64_t *rest, int64_t *inside) {
    constexpr int EACH = BSRI_PRUNE_DIGITS / 256;
    __shared__ int64_t part[33], found[3];
    const int top = BSRI_PRUNE_DIGITS - 1 - (int)threadIdx.x * EACH;
    int64_t sum = 0, all;
    uint32_t v[EACH];
#pragma unroll
    for (int j = 0; j < EACH / 4; j++) {
        const uint4 four = ((const uint4 *)count)[(top + 1 - EACH) / 4 + j];
        v[4 * j] = four.x, v[4 * j + 1] = four.y, v[4 * j + 2] = four.z, v[4 * j + 3] = four.w;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) sum += v[j];
    int64_t left = *rest - bsri_dev_block_before(sum, part, &all);
    if (left > 0 && left <= sum) {
#pragma unroll
        for (int j = EACH - 1; j >= 0; j--) {
            if (left > 0 && left <= (int64_t)v[j]) found[0] = top + 1 - EACH + j, found[1] = left, found[2] = v[j];
            left -= v[j];
        }
    }
    __syncthreads();
    *rest = found[1], *inside = found[2];
    const int digit = (int)found[0];
    __syncthreads();
    return digit;
}
/* What is known after `pass` passes, which block 0 of each pass leaves for the next. */
__device__ __forceinline__ bsri_dev_rung bsri_dev_prune_rung(const bsri_dev_build &b, int64_t item, int64_t n, int pass) {
    bsri_dev_rung k = {};
    if (pass == 0) {
        k.rest = bsri_min(b.kept, n);
        return k;
    }
    if (pass > 1) k = b.rung[item * (b.passes + 1) + pass - 1];
    else k.rest = bsri_min(b.kept, n);
    if (!k.done && k.rest > 0) {
        int64_t inside;
        const uint64_t digit =
            (uint64_t)bsri_dev_prune_digit(b.counts + (item * b.passes + pass - 1) * BSRI_PRUNE_DIGITS, &k.rest, &inside);
        if (pass <= b.norm_passes) k.key |= digit << bsri_dev_prune_shift(b, pass - 1);
        else k.place |= digit << bsri_dev_prune_shift(b, pass - 1);
        k.passed = pass, k.done = inside == k.rest;
    }
    return k;
}
__device__ __forceinline__ void bsri_dev_prune_leave(const bsri_dev_build &b, int64_t item, int pass, bsri_dev_rung k) {
    if (threadIdx.x == 0) b.rung[item * (b.passes + 1) + pass] = k;
}
/* One more for a digit: those of a warp that agree with its first ones together. */
__device__ __forceinline__ void bsri_dev_prune_count(uint32_t *count, int digit, bool valid) {
    unsigned open = __ballot_sync(~0u, valid);
    for (int round = 0; round < 2 && open; round++) {
        const int first = __ffs((int)open) - 1, leader = __shfl_sync(~0u, digit, first);
        const unsigned same = __ballot_sync(~0u, digit == leader) & open;
        if ((int)(threadIdx.x & 31) == first) atomicAdd(&count[digit], (uint32_t)__popc(same));
        open &= ~same;
    }
    if (open >> (threadIdx.x & 31) & 1) atomicAdd(&count[digit], 1u);
}
static __global__ void __launch_bounds__(BSRI_CTA) bsri_prune_pass(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    __shared__ uint32_t count[BSRI_PRUNE_DIGITS];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int pass = b.pass, shift = bsri_dev_prune_shift(b, pass), above = shift + BSRI_PRUNE_BITS;
    for (int64_t work = blockIdx.x; work < b.batch.count * b.tiles; work += gridDim.x) {
        const int64_t item = bsri_divide(work, b.tiles), tile = work - item * b.tiles;
        const bsri_dev_field f(b, item);
        const bsri_dev_rung k = bsri_dev_prune_rung(b, item, f.n, pass);
        if (tile == 0) bsri_dev_prune_leave(b, item, pass, k);
        if (k.done || k.rest <= 0) continue;
        for (int i = threadIdx.x; i < BSRI_PRUNE_DIGITS; i += 256) count[i] = 0;
        __syncthreads();
        for (int64_t i0 = tile * 1024; i0 < f.n; i0 += b.tiles * 1024) {
            uint64_t u[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t i = i0 + j * 256 + threadIdx.x;
                u[j] = i < f.n ? bsri_dev_norm_key(f.norm[i]) : 0;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t i = i0 + j * 256 + threadIdx.x;
                bool in = i < f.n;
                uint64_t key = u[j], known = k.key;
                if (pass >= b.norm_passes) in = in && key == k.key, key = bsri_dev_place_key(b, i), known = k.place;
                in = in && (above > 63 || key >> above == known >> above);
                bsri_dev_prune_count(count, (int)(key >> shift) & (BSRI_PRUNE_DIGITS - 1), in);
            }
        }
        __syncthreads();
        uint32_t *whole = b.counts + (item * b.passes + pass) * BSRI_PRUNE_DIGITS;
        for (int i = threadIdx.x; i < BSRI_PRUNE_DIGITS; i += 256)
            if (count[i]) atomicAdd(&whole[i], count[i]);
        __syncthreads();
    }
}
/* The bits of those that are kept, by words. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_prune_mark(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    for (int64_t work = blockIdx.x; work < b.batch.count * b.tiles; work += gridDim.x) {
        const int64_t item = bsri_divide(work, b.tiles), tile = work - item * b.tiles;
        const bsri_dev_field f(b, item);
        const bsri_dev_rung k = bsri_dev_prune_rung(b, item, f.n, b.passes);
        const int last = k.passed - 1, shift = last < 0 ? 0 : bsri_dev_prune_shift(b, last);
        for (int64_t p0 = f.from / 32 * 32 + tile * 256; p0 < f.from + f.n; p0 += b.tiles * 256) {
            const int64_t i = p0 + threadIdx.x - f.from;
            bool in = i >= 0 && i < f.n && k.rest > 0;
            if (in) {
                const uint64_t u = bsri_dev_norm_key(f.norm[i]);
                if (last < b.norm_passes) in = u >> shift >= k.key >> shift;
                else in = u > k.key || (u == k.key && bsri_dev_place_key(b, i) >> shift >= k.place >> shift);
            }
            const uint32_t word = __ballot_sync(~0u, in);
            if ((threadIdx.x & 31) == 0 && p0 + threadIdx.x < f.from + f.n)
                b.bits[item * b.item_words + (p0 + threadIdx.x) / 32] = word;
        }
        __syncthreads();
    }
}
/* A block per item: radix selection of the k-th key, then the bits of the larger ones and of the first that equal it. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE, 1) bsri_prune_select(const __grid_constant__ bsri_dev_build b BSRI_GATE) {
    BSRI_ENTER;
    __shared__ unsigned long long count[256];
    __shared__ int64_t shared_rest;
    __shared__ uint64_t shared_key;
    __shared__ int part[33];
    for (int64_t item = blockIdx.x; item < b.batch.count; item += gridDim.x) {
        int64_t from = 0, n = b.candidates, equal = 0;
        if (b.sparse.crow_indices) {
            const bsri_item it = bsri_dev_matrix_item(&b.batch, item, &b.sparse);
            from = bsri_index(it.crow, b.sparse.index_dtype, 0),
            n = bsri_min(n, bsri_index(it.crow, b.sparse.index_dtype, b.rows)) - from;
        }
        const double *norm = b.norm + item * b.candidates + from;
        uint32_t *bits = b.bits + item * b.item_words;
        int64_t rest = bsri_min(b.kept, n);
        uint64_t key = 0, known = 0;
        if (rest <= 0) continue;
        for (int shift = 56; shift >= 0; shift -= 8) {
            if (threadIdx.x < 256) count[threadIdx.x] = 0;
            __syncthreads();
            for (int64_t i0 = 0; i0 < n;
                 i0 += 1024) { /* norms crowd in few digits: one addition for those of a warp that agree */
                const int64_t i = i0 + threadIdx.x;
                const uint64_t u = i < n ? bsri_dev_norm_key(norm[i]) : 0;
                const int digit = i < n && (u & known) == key ? (int)(u >> shift & 255) : 256;
                const unsigned same = bsri_dev_peers<9>(digit);
                if (digit < 256 && !(same & ((1u << (threadIdx.x & 31)) - 1)))
                    atomicAdd(&count[digit], (unsigned long long)__popc(same));
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                int digit = 255;
                for (; digit > 0 && (int64_t)count[digit] < rest; digit--) rest -= (int64_t)count[digit];
                shared_rest = rest, shared_key = key | (uint64_t)digit << shift;
            }
            __syncthreads();
            rest = shared_rest, key = shared_key, known |= (uint64_t)255 << shift;
        }
        for (int64_t i0 = 0; i0 < n; i0 += 1024) {
            const int64_t i = i0 + threadIdx.x;
            const uint64_t u = i < n ? bsri_dev_norm_key(norm[i]) : 0;
            int all;
            const int same = i < n && u == key, before = bsri_dev_block_before(same, part, &all);
            if (i < n && (u > key || (same && equal + before < rest))) {
                const int64_t at = from + i;
                atomicOr(&bits[at / 32], 1u << (at % 32));
            }
            equal += all;
        }
        __syncthreads();
    }
}

enum { BSRI_LAYOUT_CLEAR, BSRI_LAYOUT_RULES, BSRI_LAYOUT_WINDOWS, BSRI_LAYOUT_GLOBALS };
/* One block of FIXED: does its window, or a global column or row, cover it? */
static __device__ bool bsri_dev_layout_fixed(const bsr_layout &l, int64_t head, int64_t r, int64_t c) {
    const int64_t n = l.blocks, local = l.num_local_blocks, global = l.num_global_blocks, end = n - n % local;
    const int64_t at = local - (1 + head % l.num_different_global_patterns) * global;
    const int uni = l.unidirectional;
    if (r / local == c / local && (!uni || c <= r)) return true;
    for (int which = 0; which < 2; which++) { /* as a column, as a row */
        const int64_t x = which ? r : c;
        if (which && !l.horizontal_global_attention) break;
        const int64_t i = x < at ? end : at + (x - at) / local * local, last = bsri_min(end + at, n - global);
        if (i < end && x < i + global && (which || !uni || r >= i)) return true;
        if (end != n && x >= last && x < last + global && (which || !uni || r >= last)) return true;
    }
    return false;
}
static __device__ bool bsri_dev_layout_rule(const bsri_dev_layout &j, int64_t head, int64_t r, int64_t c) {
    const bsr_layout &l = j.layout;
    const int64_t w = l.num_sliding_window_blocks / 2;
    const bool longformer = l.kind == BSR_LAYOUT_BSLONGFORMER, bigbird = l.kind == BSR_LAYOUT_BIGBIRD,
               variable = l.kind == BSR_LAYOUT_VARIABLE;
    if (l.unidirectional && c > r && (longformer || bigbird || j.step == BSRI_LAYOUT_WINDOWS)) return false;
    if (j.step == BSRI_LAYOUT_WINDOWS || j.step == BSRI_LAYOUT_GLOBALS) {
        for (int i = 0; i < j.ranges; i++) {
            const bool row = r >= j.from[i] && r < j.to[i], col = c >= j.from[i] && c < j.to[i];
            if (j.step == BSRI_LAYOUT_WINDOWS) {
                if (row && col) return true;
                continue;
            }
            if (col && (!variable || !l.unidirectional || r >= j.from[i])) return true;
            if (row && (longformer || l.horizontal_global_attention)) return true;
        }
        return false;
    }
    if (l.kind == BSR_LAYOUT_FIXED) return bsri_dev_layout_fixed(l, head, r, c);
    if (variable)
        return r >= j.rest && c >= j.rest && (r - j.rest) / j.rest_size == (c - j.rest) / j.rest_size &&
               (!l.unidirectional || c <= r);
    if (l.kind == BSR_LAYOUT_DENSE) return true;
    if (bigbird && (c < l.num_global_blocks || r < l.num_global_blocks)) return true;
    return c >= r - w && c <= r + w && (!l.unidirectional || c <= r);
}
static __global__ void __launch_bounds__(BSRI_CTA) bsri_layout_rules(const __grid_constant__ bsri_dev_layout j BSRI_GATE) {
    BSRI_ENTER;
    const int64_t n = j.layout.blocks, step = (int64_t)gridDim.x * BSRI_CTA;
    for (int64_t work = blockIdx.x * (int64_t)BSRI_CTA + threadIdx.x; work < j.bytes; work += step) {
        const int64_t head = j.layout.different_layout_per_head ? work / j.area : 0, at = work % j.area;
        if (j.step == BSRI_LAYOUT_CLEAR) j.mask[work] = 0;
        else if (bsri_dev_layout_rule(j, head, at / n, at % n)) j.mask[work] = 1;
    }
}
/* The random blocks of a head, one thread: every draw depends on those before. */
static __global__ void __launch_bounds__(32) bsri_layout_draw(const __grid_constant__ bsri_dev_layout j BSRI_GATE) {
    BSRI_ENTER;
    const bsr_layout &l = j.layout;
    const int64_t n = l.blocks;
    for (int64_t head = blockIdx.x * (int64_t)32 + threadIdx.x; head < l.heads; head += (int64_t)gridDim.x * 32) {
        uint64_t state = bsri_rng_seed(l.seed, l.different_layout_per_head ? head : 0);
        for (int64_t r = 0; r < n; r++) {
            uint8_t *row = j.mask + head * j.area + r * n;
            const int64_t among = l.kind == BSR_LAYOUT_BIGBIRD && l.unidirectional ? r + 1 : n;
            for (int64_t i = among - bsri_min(among, l.num_random_blocks); i < among; i++) {
                const int64_t t = bsri_rng_below(&state, i + 1);
                row[row[t] ? i : t] = 1;
            }
        }
    }
}

/* ---------------------------------------------------------------------------------------------- */
/* >>device-entries: from CSR and COO; scatter indices                                            */
/* ---------------------------------------------------------------------------------------------- */

/* What a first look at the entries found: bits of *bsri_dev_entries.state. */
enum {
    BSRI_ENTRIES_DISORDER = 1, /* they do not ascend by row, then column */
    BSRI_ENTRIES_REPEATS = 2,  /* neighbours name one place */
    BSRI_ENTRIES_AGAIN = 4     /* without order, and a place is named twice: they must be sorted */
};
/* Must they be sorted? Asked by kernels that are launched in any case. */
__device__ __forceinline__ bool bsri_dev_sorting(const bsri_dev_entries &e) { return *e.state & (uint64_t)e.sorting; }

/* 256 entries of a warp: first + lane, + 32, ...; rows and columns are held inside the matrix whatever the arrays say. */
template <class I> struct bsri_dev_some_entries {
    I row[8], col[8];
    unsigned valid, after, wrong, twice; /* bit j: there is one; the entry before is in the same row, is not before it, is at its
                                            place */
    __device__ __forceinline__ I inside(I v, int64_t n) const { return (I)bsri_max(0, bsri_min(v, n - 1)); }
    __device__ __forceinline__ void load(const bsri_dev_entries &e, int64_t first) {
        const int lane = threadIdx.x & 31, n = (int)bsri_min(256, e.nnz - first);
        const I *rows = (const I *)e.row, *cols = (const I *)e.col;
        I low = -1, left = -1; /* row and column of the entry before */
        valid = after = wrong = twice = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const bool is = lane + j * 32 < n;
            col[j] = is ? inside(cols[first + lane + j * 32], e.source_cols) : I(0), valid |= (unsigned)is << j;
            if (rows) row[j] = is ? rows[first + lane + j * 32] : I(0);
        }
        if (!rows) bsri_dev_rows_of_warp(row, (const I *)e.crow, e.source_rows, first, first + n - 1);
#pragma unroll
        for (int j = 0; j < 8; j++) row[j] = inside(row[j], e.source_rows);
        if (lane == 0 && first > 0) {
            left = inside(cols[first - 1], e.source_cols);
            low = rows ? inside(rows[first - 1], e.source_rows) : ((const I *)e.crow)[row[0]] < first ? row[0] : I(row[0] - 1);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) {
            I up = __shfl_up_sync(~0u, row[j], 1), before = __shfl_up_sync(~0u, col[j], 1);
            if (lane == 0) up = low, before = left;
            low = __shfl_sync(~0u, row[j], 31), left = __shfl_sync(~0u, col[j], 31);
            if (!(valid >> j & 1)) continue;
            after |= (unsigned)(up == row[j]) << j, twice |= (unsigned)(up == row[j] && before == col[j]) << j;
            wrong |= (unsigned)(up > row[j] || (up == row[j] && before > col[j])) << j;
        }
    }
};
/* *a / b of b up to 2^20, where per is (2^32 - 1) / b; *a becomes the rest. */
__device__ __forceinline__ int32_t bsri_dev_quotient(int32_t *a, int64_t b, uint32_t per) {
    uint32_t q = __umulhi((uint32_t)*a, per), rest = (uint32_t)*a - q * (uint32_t)b;
    if (rest >= (uint32_t)b) q++, rest -= (uint32_t)b; /* q is at most 1 short */
    *a = (int32_t)rest;
    return (int32_t)q;
}
__device__ __forceinline__ int64_t bsri_dev_quotient(int64_t *a, int64_t b, uint32_t) {
    const int64_t q = bsri_divide(*a, b);
    *a -= q * b;
    return q;
}
/* Runs function<index type>(...). */
#define BSRI_ENTRIES_BY_TYPE(function, ...)                           \
    do {                                                              \
        if (e.index_dtype == BSR_I64) function<int64_t>(__VA_ARGS__); \
        else function<int32_t>(__VA_ARGS__);                          \
    } while (0)

/* Which blocks entries stand in, a bit each, and in what order they come. */
template <class I> __device__ __forceinline__ void bsri_entries_look(const bsri_dev_entries &e) {
    const int lane = threadIdx.x & 31;
    unsigned found = 0;
    for (int64_t first = (blockIdx.x * (int64_t)8 + threadIdx.x / 32) * 256; first < e.nnz; first += (int64_t)gridDim.x * 2048) {
        bsri_dev_some_entries<I> some;
        some.load(e, first);
        found |= (some.wrong ? BSRI_ENTRIES_DISORDER : 0) | (some.twice ? BSRI_ENTRIES_REPEATS : 0);
        if (!e.bits) continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            I y = some.row[j], x = some.col[j];
            const I r = bsri_dev_quotient(&y, e.to.block_rows, e.per_height),
                    c = bsri_dev_quotient(&x, e.to.block_cols, e.per_width);
            uint32_t *word = e.bits + r * e.row_words + c / 32;
            const uint32_t bit = 1u << c % 32;
            const uint32_t *before = (const uint32_t *)__shfl_up_sync(~0u, (unsigned long long)(uintptr_t)word, 1);
            const uint32_t same = __shfl_up_sync(~0u, bit, 1);
            if (!(some.valid >> j & 1) || (lane && before == word && same == bit)) continue;
            if (!(__ldcg(word) & bit)) atomicOr(word, bit);
        }
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    found = __reduce_or_sync(~0u, found);
#else
    for (int d = 16; d; d /= 2) found |= __shfl_xor_sync(~0u, found, d);
#endif
    if (lane == 0 && found) atomicOr((unsigned long long *)e.state, (unsigned long long)found);
}
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_survey(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    BSRI_ENTRIES_BY_TYPE(bsri_entries_look, e);
}
/* Rows of COO in order: where each starts, as CSR says it. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_starts(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (bsri_dev_sorting(e)) return;
    for (int64_t r = blockIdx.x * (int64_t)256 + threadIdx.x; r <= e.source_rows; r += (int64_t)gridDim.x * 256) {
        int64_t low = 0, high = e.nnz;
        while (low < high) {
            const int64_t mid = low + (high - low) / 2;
            if (bsri_index(e.row, e.index_dtype, mid) < r) low = mid + 1;
            else high = mid;
        }
        bsri_set_index(e.starts, e.index_dtype, r, low);
    }
}
/* The first of the ascending columns [low, high) that is `at` or more. */
template <class I> __device__ __forceinline__ int64_t bsri_dev_column_from(const I *col, int64_t low, int64_t high, int64_t at) {
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (col[mid] < at) low = mid + 1;
        else high = mid;
    }
    return low;
}
/* Blocks that begin with an entry of those before: in all, where sums are known. */
__device__ __forceinline__ int64_t bsri_dev_blocks_before(const bsri_dev_entries &e, int64_t i) {
    return i < e.nnz ? e.sums[i / BSRI_ENTRIES_CHUNK] + e.rank[i] : e.sums[e.chunks];
}
/* Entries in order, of a matrix that has no room for bits: a block begins with its first entry in its first row. How many begin
   before each entry of its chunk. */
template <class I> __device__ __forceinline__ void bsri_entries_begin(const bsri_dev_entries &e) {
    __shared__ int part[33];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const I *start = (const I *)e.starts, *cols = (const I *)e.col;
    const int64_t br = e.to.block_rows, bc = e.to.block_cols;
    for (int64_t chunk = blockIdx.x; chunk < e.chunks; chunk += gridDim.x) {
        int before = 0, all;
        for (int half = 0; half < BSRI_ENTRIES_CHUNK / 2048; half++) {
            const int64_t first = chunk * BSRI_ENTRIES_CHUNK + half * 2048 + warp * 256;
            bsri_dev_some_entries<I> some;
            unsigned begins[8];
            int mine = 0;
            some.valid = 0;
            if (first < e.nnz) some.load(e, first);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                bool is = some.valid >> j & 1;
                if (is) {
                    const int64_t i = first + lane + j * 32, c = bsri_divide(some.col[j], bc);
                    is = !(some.after >> j & 1) || bsri_divide(bsri_max(0, bsri_min(cols[i - 1], e.source_cols - 1)), bc) != c;
                    for (int64_t k = bsri_divide(some.row[j], br) * br; is && k < some.row[j]; k++) {
                        const int64_t at = bsri_dev_column_from(cols, start[k], start[k + 1], c * bc);
                        is = at >= start[k + 1] || cols[at] >= (c + 1) * bc;
                    }
                }
                begins[j] = __ballot_sync(~0u, is), mine += __popc(begins[j]);
            }
            int upto = before + bsri_dev_block_before(lane ? 0 : mine, part, &all);
            upto = __shfl_sync(~0u, upto, 0);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (some.valid >> j & 1) e.rank[first + lane + j * 32] = upto + __popc(begins[j] & ((1u << lane) - 1));
                upto += __popc(begins[j]);
            }
            before += all;
        }
        if (threadIdx.x == 0) e.sums[chunk] = before;
    }
}
static __global__ void __launch_bounds__(BSRI_CTA, 3) bsri_entries_begins(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (bsri_dev_sorting(e)) return;
    BSRI_ENTRIES_BY_TYPE(bsri_entries_begin, e);
}
/* crow of it. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_lines(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (bsri_dev_sorting(e)) return;
    for (int64_t r = blockIdx.x * (int64_t)256 + threadIdx.x; r <= e.rows; r += (int64_t)gridDim.x * 256) {
        const int64_t row = bsri_min(r * e.to.block_rows, e.source_rows);
        const int64_t i = e.nnz ? bsri_max(0, bsri_min(e.nnz, bsri_index(e.starts, e.index_dtype, row))) : 0;
        bsri_set_index((void *)e.to.crow_indices, e.to.index_dtype, r, e.nnz ? bsri_dev_blocks_before(e, i) : 0);
    }
}
/* Where in the matrix the block of an entry stands; *begins: is this the entry that it begins with? */
template <class I>
__device__ __forceinline__ int64_t bsri_dev_entry_block(const bsri_dev_entries &e, int64_t i, I r, I c, bool *begins) {
    if (e.bits) {
        const int64_t w = r * e.row_words + c / 32;
        *begins = false;
        return e.places[w] + __popc(e.bits[w] & ((1u << c % 32) - 1));
    }
    const I *start = (const I *)e.starts, *cols = (const I *)e.col;
    const int64_t br = e.to.block_rows, end = bsri_min(e.source_rows, (r + 1) * br), first = c * e.to.block_cols;
    int64_t at = bsri_dev_blocks_before(e, start[r * br]);
    for (int64_t k = r * br; k < end; k++) {
        const int64_t low = start[k], high = start[k + 1];
        at += bsri_dev_blocks_before(e, bsri_dev_column_from(cols, low, high, first)) - bsri_dev_blocks_before(e, low);
    }
    *begins = bsri_dev_blocks_before(e, i + 1) != bsri_dev_blocks_before(e, i);
    return at;
}
/* An entry's value, and those of the entries behind it at its place, to element dst. */
template <class I>
__device__ __forceinline__ void bsri_dev_entry_store(const bsri_dev_entries &e, int64_t i, I row, I col, int64_t dst) {
    const int dt = e.to.dtype;
    const I *rows = (const I *)e.row, *cols = (const I *)e.col;
    const int64_t end = rows ? e.nnz : bsri_min(e.nnz, ((const I *)e.crow)[row + 1]);
    const bool integer = dt == BSR_I8 || dt == BSR_I32;
    uint32_t whole = 0;
    double sum = 0;
    for (int64_t k = i; k < end; k++) {
        if (k > i && (bsri_max(0, bsri_min(cols[k], e.source_cols - 1)) != col ||
                      (rows && bsri_max(0, bsri_min(rows[k], e.source_rows - 1)) != row)))
            break;
        if (integer) whole += e.values ? bsri_dev_load<uint32_t>(e.values, e.dtype, k) : 1u;
        else {
            const double x = e.values ? bsri_dev_load<double>(e.values, e.dtype, k) : 1.0;
            sum = k == i ? x : sum + x;
        }
    }
    if (integer) bsri_dev_store(e.to.values, dt, dst, whole);
    else bsri_dev_store_f64(e.to.values, dt, dst, sum);
}
/* Values to their places (and, of blocks that have no bits, columns). Without order each place is claimed: a second claim tells
   that they must be sorted. */
template <class I> __device__ __forceinline__ void bsri_entries_place(const bsri_dev_entries &e) {
    const int lane = threadIdx.x & 31;
    const int64_t bc = e.to.block_cols, area = e.to.block_rows * bc;
    const int dt = e.to.dtype;
    const uint64_t state = *e.state;
    bool again = false;
    for (int64_t first = (blockIdx.x * (int64_t)8 + threadIdx.x / 32) * 256; first < e.nnz; first += (int64_t)gridDim.x * 2048) {
        bsri_dev_some_entries<I> some;
        some.load(e, first);
        int64_t dst[8], place[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int64_t i = first + lane + j * 32;
            I y = some.row[j], x = some.col[j];
            bool begins;
            const I r = bsri_dev_quotient(&y, e.to.block_rows, e.per_height), c = bsri_dev_quotient(&x, bc, e.per_width);
            dst[j] = place[j] = -1;
            if (!(some.valid >> j & 1)) continue;
            const int64_t at = bsri_dev_entry_block<I>(e, i, r, c, &begins);
            if (at < 0 || at >= e.capacity) continue;
            if (begins) bsri_set_index((void *)e.to.col_indices, e.to.index_dtype, at, c);
            if (!e.with_values || (!(state & BSRI_ENTRIES_DISORDER) && (some.twice >> j & 1))) continue;
            dst[j] = at * e.stride[0] + y * e.stride[1] + x * e.stride[2], place[j] = at * area + y * bc + x;
        }
        if (state & BSRI_ENTRIES_DISORDER) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (place[j] >= 0) {
                    const uint32_t bit = 1u << place[j] % 32;
                    if (atomicOr(&e.claimed[place[j] / 32], bit) & bit) again = true;
                }
        }
        if (state == BSRI_ENTRIES_REPEATS) {
#pragma unroll 1
            for (int j = 0; j < 8; j++) {
                int64_t to = -1;
                I row = 0, col = 0;
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (k == j) to = dst[k], row = some.row[k], col = some.col[k];
                if (to >= 0) bsri_dev_entry_store(e, first + lane + j * 32, row, col, to);
            }
            continue;
        }
        if (dt == BSR_I8 || dt == BSR_I32) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (dst[j] >= 0)
                    bsri_dev_store(e.to.values, dt, dst[j],
                                   e.values ? bsri_dev_load<uint32_t>(e.values, e.dtype, first + lane + j * 32) : 1u);
            continue;
        }
        double v[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = dst[j] >= 0 && e.values ? bsri_dev_load<double>(e.values, e.dtype, first + lane + j * 32) : 1.0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (dst[j] >= 0) bsri_dev_store_f64(e.to.values, dt, dst[j], v[j]);
    }
    if (__any_sync(~0u, again) && lane == 0) atomicOr((unsigned long long *)e.state, (unsigned long long)BSRI_ENTRIES_AGAIN);
}
static __global__ void __launch_bounds__(BSRI_CTA, 2) bsri_entries_put(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (!e.bits && bsri_dev_sorting(e)) return;
    BSRI_ENTRIES_BY_TYPE(bsri_entries_place, e);
}

/* The place of each entry in the order of blocks, then of elements inside a block; what lies outside is held inside. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_keys(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t br = e.to.block_rows, bc = e.to.block_cols, step = (int64_t)gridDim.x * 256;
    if (!bsri_dev_sorting(e)) return;
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < e.nnz; i += step) {
        int64_t row = e.row ? bsri_index(e.row, e.index_dtype, i) : bsri_dev_row_of(e.crow, e.index_dtype, e.source_rows, i);
        int64_t col = bsri_index(e.col, e.index_dtype, i);
        row = bsri_max(0, bsri_min(row, e.source_rows - 1)), col = bsri_max(0, bsri_min(col, e.source_cols - 1));
        const int64_t r = bsri_divide(row, br), c = bsri_divide(col, bc);
        bsri_set_index(e.key, e.key_dtype, i, ((r * e.cols + c) * br + row - r * br) * bc + col - c * bc);
    }
}
/* Blocks that begin in each chunk of 4096 sorted entries; then, with the sums before each chunk, the block of every entry. */
template <bool WRITE>
__global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_entries_blocks(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    __shared__ int part[33];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t area = e.to.block_rows * e.to.block_cols;
    if (!bsri_dev_sorting(e)) return;
    for (int64_t chunk = blockIdx.x; chunk < e.chunks; chunk += gridDim.x) {
        int heads = 0, all, head[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t i = chunk * BSRI_ENTRIES_CHUNK + threadIdx.x * 4 + j;
            head[j] = i < e.nnz && (i == 0 || bsri_divide(bsri_index(e.sorted, e.key_dtype, i), area) !=
                                                  bsri_divide(bsri_index(e.sorted, e.key_dtype, i - 1), area));
            heads += head[j];
        }
        int before = bsri_dev_block_before(heads, part, &all);
        if (!WRITE) {
            if (threadIdx.x == 0) e.sums[chunk] = all;
            continue;
        }
        const int64_t base = e.sums[chunk];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t i = chunk * BSRI_ENTRIES_CHUNK + threadIdx.x * 4 + j;
            if (i >= e.nnz) break;
            before += head[j];
            const int64_t at = base + before - 1;
            e.rank[i] = at;
            if (head[j] && at < e.capacity)
                bsri_set_index((void *)e.to.col_indices, e.to.index_dtype, at,
                               bsri_divide(bsri_index(e.sorted, e.key_dtype, i), area) % e.cols);
        }
    }
}
/* One block: sums to sums before; the last entry is the whole. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE) bsri_scan_sums(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    __shared__ int64_t part[33];
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    int64_t sum = 0, all;
    if (bsri_dev_sorting(e) == !e.after_sort) return;
    for (int64_t i0 = 0; i0 < e.chunks; i0 += 1024) {
        const int64_t i = i0 + threadIdx.x, v = i < e.chunks ? e.sums[i] : 0, before = bsri_dev_block_before(v, part, &all);
        if (i < e.chunks) e.sums[i] = sum + before;
        sum += all;
    }
    if (threadIdx.x == 0) e.sums[e.chunks] = sum;
}
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_crow(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t area = e.to.block_rows * e.to.block_cols, step = (int64_t)gridDim.x * 256;
    if (!bsri_dev_sorting(e)) return;
    for (int64_t r = blockIdx.x * (int64_t)256 + threadIdx.x; r <= e.rows; r += step) {
        int64_t low = 0, high = e.nnz;
        while (low < high && r < e.rows) { /* the first entry of this block row or a later one */
            const int64_t mid = low + (high - low) / 2;
            if (bsri_index(e.sorted, e.key_dtype, mid) < r * e.cols * area) low = mid + 1;
            else high = mid;
        }
        if (r == e.rows) low = e.nnz;
        bsri_set_index((void *)e.to.crow_indices, e.to.index_dtype, r, low < e.nnz ? e.rank[low] : e.sums[e.chunks]);
    }
}
/* Zeros into the stored blocks, and where without order places will be claimed. */
static __global__ void __launch_bounds__(BSRI_CTA) bsri_entries_clear(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    if (bsri_dev_sorting(e) == !e.after_sort) return;
    const int64_t bc = e.to.block_cols, area = e.to.block_rows * bc, step = (int64_t)gridDim.x * 256;
    const int64_t start = blockIdx.x * (int64_t)256 + threadIdx.x,
                  count = bsri_index(e.to.crow_indices, e.to.index_dtype, e.rows);
    const int64_t total = bsri_max(0, bsri_min(e.capacity, count)) * area, bytes = total * bsri_dev_size(e.to.dtype);
    if (e.packed) {
        const uint4 zero = {};
        for (int64_t i = start; i < bytes / 16; i += step) ((uint4 *)e.to.values)[i] = zero;
        for (int64_t i = bytes / 16 * 16 + start; i < bytes; i += step) ((char *)e.to.values)[i] = 0;
    } else {
        for (int64_t i = start; i < total; i += step) {
            const int64_t at = bsri_divide(i, area), y = bsri_divide(i - at * area, bc), x = i - at * area - y * bc;
            bsri_dev_clear(e.to.values, e.to.dtype, at * e.stride[0] + y * e.stride[1] + x * e.stride[2]);
        }
    }
    if (e.claimed && !e.after_sort && (*e.state & BSRI_ENTRIES_DISORDER))
        for (int64_t i = start; i < (total + 31) / 32; i += step) e.claimed[i] = 0;
}
/* The first of equal places adds them up in the order in which they came. */
static __global__ void __launch_bounds__(BSRI_CTA, 4) bsri_entries_values(const __grid_constant__ bsri_dev_entries e BSRI_GATE) {
    bsri_pdl_launch_dependents(), bsri_pdl_wait();
    BSRI_ENTER;
    const int64_t bc = e.to.block_cols, area = e.to.block_rows * bc, step = (int64_t)gridDim.x * 256;
    const int dt = e.to.dtype, kt = e.key_dtype;
    if (!bsri_dev_sorting(e)) return;
    for (int64_t i = blockIdx.x * (int64_t)256 + threadIdx.x; i < e.nnz; i += step) {
        const int64_t key = bsri_index(e.sorted, kt, i), inside = key - bsri_divide(key, area) * area, at = e.rank[i];
        if ((i && bsri_index(e.sorted, kt, i - 1) == key) || at >= e.capacity) continue;
        const int64_t y = bsri_divide(inside, bc), dst = at * e.stride[0] + y * e.stride[1] + (inside - y * bc) * e.stride[2];
        if (dt == BSR_I8 || dt == BSR_I32) {
            uint32_t sum = 0;
            for (int64_t k = i; k < e.nnz && bsri_index(e.sorted, kt, k) == key; k++)
                sum += e.values ? bsri_dev_load<uint32_t>(e.values, e.dtype, bsri_index(e.order, kt, k)) : 1u;
            bsri_dev_store(e.to.values, dt, dst, (uint32_t)sum);
        } else {
            double sum = e.values ? bsri_dev_load<double>(e.values, e.dtype, bsri_index(e.order, kt, i)) : 1.0;
            for (int64_t k = i + 1; k < e.nnz && bsri_index(e.sorted, kt, k) == key; k++)
                sum += e.values ? bsri_dev_load<double>(e.values, e.dtype, bsri_index(e.order, kt, k)) : 1.0;
            bsri_dev_store_f64(e.to.values, dt, dst, sum);
        }
    }
}

__device__ __forceinline__ int64_t bsri_dev_scatter_crow(const bsri_dev_scatter_build &b, int64_t r) {
    return bsri_max(0, bsri_min(b.a.nnz, bsri_index(b.a.crow_indices, b.a.index_dtype, r)));
}
/* One block: products before each of the ordered rows. */
static __global__ void __launch_bounds__(BSRI_CTA_WIDE)
    bsri_scatter_starts(const __grid_constant__ bsri_dev_scatter_build b BSRI_GATE) {
    BSRI_ENTER;
    __shared__ int64_t part[33];
    int64_t sum = 0, all;
    for (int64_t i0 = 0; i0 < b.rows; i0 += BSRI_CTA_WIDE) {
        const int64_t i = i0 + threadIdx.x, r = i < b.rows ? b.order[i] : 0;
        const int64_t v = i < b.rows ? bsri_dev_scatter_crow(b, r + 1) - bsri_dev_scatter_crow(b, r) : 0,
                      before = bsri_dev_block_before(v, part, &all);
        if (i < b.rows) b.start[i] = sum + before;
        sum += all;
    }
}
/* A warp per row and column tile; rows in the order found, which says where their outputs stand. */
static __global__ void __launch_bounds__(BSRI_CTA)
    bsri_scatter_fill_rows(const __grid_constant__ bsri_dev_scatter_build b BSRI_GATE) {
    BSRI_ENTER;
    const int lane = threadIdx.x & 31, strided = b.format == BSR_SCATTER_STRIDED, tiles = b.format == BSR_SCATTER_MM;
    const int64_t width = b.n / b.split, step = (int64_t)gridDim.x * 8, total = b.rows * b.split;
    const int64_t stride = tiles ? b.split : b.a.block_cols * b.n, shift = tiles ? 1 : width;
    for (int64_t work = blockIdx.x * (int64_t)8 + threadIdx.x / 32; work < total; work += step) {
        const int64_t i = work / b.split, t = work % b.split, r = b.order[i], begin = bsri_dev_scatter_crow(b, r);
        const int64_t n = bsri_dev_scatter_crow(b, r + 1) - begin, g = b.split * (strided ? b.start[i] : begin) + t * n;
        if (lane == 0) {
            if (b.need[BSRI_R]) b.array[BSRI_R][work] = r * b.a.block_rows * b.n + t * width;
            if (tiles) b.array[BSRI_C][r * b.split + t] = g;
            else if (!strided && t == 0) b.array[BSRI_C][r] = begin;
            else if (strided && b.need[BSRI_R]) b.array[BSRI_C][work] = g;
        }
        for (int64_t k = lane; k < n && g + k < b.need[BSRI_Q]; k += 32) {
            if (b.need[BSRI_P]) b.array[BSRI_P][g + k] = begin + k;
            b.array[BSRI_Q][g + k] = bsri_index(b.a.col_indices, b.a.index_dtype, begin + k) * stride + t * shift;
        }
    }
}
static __global__ void bsri_scatter_last(const __grid_constant__ bsri_dev_scatter_build b BSRI_GATE) {
    BSRI_ENTER;
    const int64_t end = bsri_dev_scatter_crow(b, b.rows);
    int64_t last = b.format == BSR_SCATTER_STRIDED_COMPRESSED ? end : b.split * end;
    if (b.format == BSR_SCATTER_STRIDED && !b.n) last = 0;
    b.array[BSRI_C][b.need[BSRI_C] - 1] = last;
}

/* ---------------------------------------------------------------------------------------------- */
/* >>kernel-table: functions of instances; loading them                                          */
/* ---------------------------------------------------------------------------------------------- */

/* Never launched: its static shared memory, in units of 1024 bytes, tells the last tier in the code that was loaded. For a GPU
   also runs what was compiled for an older one, or for sm_90 without its own features, and there the kernels of later tiers are
   empty. */
static __global__ void bsri_compiled_tier(int *at) {
#if defined(BSRI_WGMMA_CODE)
    __shared__ int mark[3 * 256];
#elif defined(BSRI_MMA_CODE)
    __shared__ int mark[2 * 256];
#else
    __shared__ int mark[256];
#endif
    mark[threadIdx.x] = at[threadIdx.x];
    __syncthreads();
    at[threadIdx.x] = mark[at[0]];
}

/* The function of an instance. */
static const void *bsri_kernel(int number) {
    switch (number) {
#define BSRI_X(name, number, of, tier, type, block, costs, kernel, ...) \
    case number: return (const void *)kernel<__VA_ARGS__>;
        BSRI_KERNELS(BSRI_X)
#undef BSRI_X
        default: return NULL;
    }
}

/* Loads every kernel and allows it the shared memory that it asks for, or what the device has; called once per context. Finds
   the fastest tier. */
static cudaError_t bsri_load_kernels(bsr_context *ctx) {
    cudaFuncAttributes attributes;
    int device = 0, most = 0, loaded;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess) e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
#define BSRI_X(name, number, ...) \
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&attributes, (const void *)__VA_ARGS__);
    BSRI_KERNELS_MATRICES(BSRI_X)
#undef BSRI_X
    for (const bsri_instance *x = bsri_instances; x->number && e == cudaSuccess; x++) {
        const void *const kernel = bsri_kernel(x->number);
        e = cudaFuncGetAttributes(&attributes, kernel);
        if (e == cudaSuccess && x->shared + (int)attributes.sharedSizeBytes > 48 * 1024)
            e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)bsri_min(x->shared, most - (int)attributes.sharedSizeBytes));
    }
    if (e == cudaSuccess) e = cudaFuncGetAttributes(&attributes, (const void *)bsri_compiled_tier);
    most = ctx->cc_major < 8 ? BSRI_TIER_SIMT : ctx->cc_major == 9 ? BSRI_TIER_WGMMA : BSRI_TIER_MMA;
    loaded = e == cudaSuccess ? (int)attributes.sharedSizeBytes / 1024 : BSRI_TIER_SIMT;
    ctx->tier = (int32_t)bsri_max(BSRI_TIER_SIMT, bsri_min(most, loaded));
    return e;
}

#ifdef BSRSPARSE_STATIC
} // namespace
#endif
