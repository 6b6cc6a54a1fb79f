#!/bin/sh
# The kernels that look at index arrays and that copy lines, on the host under sanitizers: no GPU and no nvcc is needed. Cuts
# their sections and structs out of the sources, as they stand; see tests/device/emulate.h. Environment: CXX, W (folder).
set -u
w=${W:-build/device}
mkdir -p "$w"
if command -v "${CXX:-c++}" > /dev/null 2>&1; then cxx=${CXX:-c++}; else cxx=g++; fi
if ! command -v "$cxx" > /dev/null 2>&1; then
    echo "0 passed, 0 failed, 1 skipped: no C++ compiler"
    exit 0
fi
section() { # FILE NAME: from its anchor to the next
    awk -v name=">>$2:" 'index($0, "/* >>") == 1 { on = $2 == name } on' "$1" | sed '$d' > "$w/section"
    [ -s "$w/section" ] || echo "#error $1 has no section $2"
    cat "$w/section"
}
works() { # FLAGS: do programs run that are compiled with them?
    echo 'int main(void) { return 0; }' > "$w/probe.cpp"
    "$cxx" "$@" "$w/probe.cpp" -o "$w/probe" 2> /dev/null && "$w/probe"
}
aligned() { # the sanitizers that follow coroutines, where they are there
    set -- -fsanitize=alignment,undefined -fno-sanitize-recover=all
    ! works "$@" || echo "$@"
}
compiled() { # SOURCE, PROGRAM, FLAGS: else the script ends
    source=$1 program=$2
    shift 2
    "$cxx" -std=c++17 "$@" -DBSRSPARSE_NO_SIMD -I. -Itests -I"$w" "tests/device/$source.cpp" -o "$w/$program" -lm 2> "$w/log" &&
        return
    head -n 30 "$w/log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
build() { compiled "$@" -w -U_FORTIFY_SOURCE -DBSRSPARSE_NO_OPENMP; } # kernels, which are no host code to warn of
if [ "${1:-}" = --maps ]; then # bsr_map and bsr_reduce instead; sanitizers of memory do not follow coroutines
    shift
    {
        sed -n '/^\/\* bsr_map. Pieces of E/,/^#endif/p' bsrsparse.h | sed '/^#endif/d'
        sed -n '/^template <int HALF> .* bsri_dev_e5m2_halves/,/^__device__ .* bsri_dev_is_f8/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ uint4 bsri_dev_philox(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation(float x)/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh device-maps
        section bsrsparse_kernels.cuh device-reduce
        section bsrsparse.h cuda-maps | sed '/^#endif \/\* BSRI_CUDA/,$d'
    } > "$w/maps.inc"
    build maps_checks maps_checks -O1 $(aligned)
    exec "$w/maps_checks" "$@"
fi
if [ "${1:-}" = --quantise ]; then # bsr_quantise and bsr_dequantise
    shift
    {
        sed -n '/^template <int HALF> .* bsri_dev_e5m2_halves/,/^__device__ .* bsri_dev_is_f8/p' bsrsparse_kernels.cuh
        sed -n '/^template <int E> .* bsri_map_raw(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^typedef struct bsri_dev_quantise {/,/^}/p; /^BSRI_UNUSED static int bsri_cuda_log2(/,/^}/p' bsrsparse.h
        section bsrsparse_kernels.cuh device-quantise
        section bsrsparse.h cuda-quantise
    } > "$w/quantise.inc"
    build quantise_checks quantise_checks -O1 $(aligned)
    exec "$w/quantise_checks" "$@"
fi
from() { # FILE, START, END: expressions, lines from the first one to the one before the second
    awk -v start="$2" -v end="$3" '!on && $0 ~ start { on = 1 } on && $0 ~ end { exit } on' "$1"
}
if [ "${1:-}" = --retile ]; then # blocks laid as tiles
    shift
    {
        sed -n '/^\/\* Blocks laid as square tiles of/,/^} bsri_dev_retile;/p' bsrsparse.h
        sed -n '/^template <class I> __device__ __forceinline__ I bsri_dev_warp_sum(/,/^}/p; /^template <class I> __device__ __forceinline__ I bsri_dev_block_before(/,/^}/p' bsrsparse_kernels.cuh
        from bsrsparse_kernels.cuh '^/. The last of the entries .low, high. of crow' '^/. A tile, sorted by digit'
        from bsrsparse_kernels.cuh '^/. a . b by 1/b' '^/. Element .start. . n'
        section bsrsparse_kernels.cuh device-retile
        from bsrsparse.h '^typedef struct bsri_retiling' '^/. Is that a product that tiles may serve'
        from bsrsparse.h '^/. The pieces in which elements are moved' '^/. Nanoseconds of what is done before'
    } > "$w/retile.inc"
    build retile_checks retile_checks -O1 $(aligned)
    exec "$w/retile_checks" "$@"
fi
if [ "${1:-}" = --masks ]; then # block masks of attention; no sanitizer of memory, as above
    shift
    sed -e 's/^BSRI_CUDA_PART(\(bsri_cuda_\(block_mask\|from_lists\|to_lists\|pool\|select\)(.*)\))$/static bsr_status \1;/' \
        -e 's/^\( *\)BSRI_CUDA_RETURN(&c, \(bsri_end(&c, bsri_cuda_\(block_mask\|from_lists\|to_lists\|pool\|select\)(.*\));$/\1if (emulating) return \2;/' \
        bsrsparse.h > "$w/bsrsparse_emulated.h"
    {
        section bsrsparse.h cuda-matrix-types | sed '/^#if BSRI_HAS_QUANTISE/,/^#endif/d; /^#if BSRI_HAS_CUDA_MAPS/,/^#endif/d; /^#if BSRI_HAS_MOE/,/^#endif/d; /^#endif/d; /^#ifdef/d; /^#include/d'
        from bsrsparse_kernels.cuh '^__device__ __forceinline__ int bsri_dev_user_mask' '^/. Philox4x32-10 for columns'
        from bsrsparse_kernels.cuh '^static __global__ .*bsri_fill_words' '^/. Where run i stands'
        from bsrsparse_kernels.cuh '^/. Word w of the candidates' '^/. a . b by 1'
        section bsrsparse_kernels.cuh device-masks
        from bsrsparse.h '^static bsr_status bsri_cuda_zero' '^/. How many patterns a subject'
        from bsrsparse.h '^static void .bsri_cuda_at' '^enum . BSRI_SORT_KEY'
        from bsrsparse.h '^/. The device.s view of a builder' '^/. From bits to crow, columns and values'
        section bsrsparse.h cuda-masks | sed '/^#endif .. BSRI_CUDA/,$d'
    } > "$w/masks.inc"
    build masks_checks masks_checks -O1 $(aligned)
    exec "$w/masks_checks" "$@"
fi
if [ "${1:-}" = --conv ]; then # bsr_conv and bsr_conv_weight_gradient
    shift
    {
        echo '#define BSRI_ENTER (void)gate'
        section bsrsparse_kernels.cuh device-numbers
        from bsrsparse_kernels.cuh '^__device__ __forceinline__ bsri_item bsri_dev_matrix_item' '^/. A step of the sum'
        from bsrsparse_kernels.cuh '^template <class F> struct bsri_dev_scalar' '^/. The activations of'
        from bsrsparse_kernels.cuh '^template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation' '^/. What a warp.s epilogue'
        from bsrsparse_kernels.cuh '^template <class L> struct bsri_simt ' '^/. Scales of an operand: where'
        from bsrsparse_kernels.cuh '^/. Piece number of row' '^#ifdef BSRI_MMA_CODE'
        from bsrsparse_kernels.cuh '^/. 16 x 64 elements by pieces of eight' '^/. --- fetching'
        from bsrsparse_kernels.cuh '^/. threadIdx.x. Tiles that leave no registers' '^template <class T, class L> struct bsri_mma_factors<T, L, true>'
        from bsrsparse_kernels.cuh '^template <class T, class L> struct bsri_mma_consumer' '^/. f32 by FFMA: a lane owns'
        echo 'template <class T, class L>'
        from bsrsparse_kernels.cuh '^__device__ __forceinline__ void bsri_mma_lay' '^template <class T, class L>'
        from bsrsparse_kernels.cuh '^/. The row that stored block' '^template <class L>'
        section bsrsparse_kernels.cuh conv-simt
        section bsrsparse_kernels.cuh conv-addresses
        section bsrsparse_kernels.cuh conv-alone
        section bsrsparse_kernels.cuh conv-mma
        section bsrsparse_kernels.cuh conv-weights-mma
        from bsrsparse.h '^/. What the choosers are asked for' '^/. Tensor maps are made by'
        from bsrsparse.h '^/. Asks for what runs best' '^/. As bsri_dev_product has it'
        section bsrsparse.h cuda-conv
    } | sed '/extern __shared__/d' > "$w/conv.inc"
    build conv_checks conv_checks -O1
    exec "$w/conv_checks" "$@"
fi
if [ "${1:-}" = --scales ]; then # products of 8-bit operands by mma.sync, with scales and without
    shift
    sed -e 's/^\( *\)BSRI_CUDA_RETURN(c, bsri_cuda_product(c, &job, &key, plan, step));/\1if (step == BSRI_PLAN_AND_RUN \&\& bsri_emulate_product(c, \&job, \&key)) return BSR_OK;/' \
        -e 's/^\(static bsr_status bsri_product_start(.*\)/EMULATED(bsri_emulate_product(const bsri_call *c, const bsri_product *job, const bsr_tune_row *key))\n\1/' \
        bsrsparse.h > "$w/bsrsparse_emulated.h"
    {
        section bsrsparse_kernels.cuh device-numbers
        sed -n '/^template <class T> struct bsri_mma_parts {/,/^};/p; /^template <> struct bsri_mma_parts<bsri_mma_f8> {/,/^};/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ uint32_t bsri_mma_byte_line(/,/^}/p; /^__device__ __forceinline__ void bsri_mma_load_bytes(/,/^}/p' bsrsparse_kernels.cuh
        from bsrsparse_kernels.cuh '^/. The swizzle of a row-major dense slice' '^/. -----'
        section bsrsparse_kernels.cuh device-lists
        section bsrsparse_kernels.cuh device-epilogue |
            sed '/bsri_dev_exp2(float x) {/,/^}/d; /bsri_dev_inverse(float x) {/,/^}/d; /bsri_dev_max(float a, float b) {/,/^}/d'
        section bsrsparse_kernels.cuh device-union
        section bsrsparse_kernels.cuh product-simt
        section bsrsparse_kernels.cuh product-weights
        section bsrsparse_kernels.cuh product-narrow-mma
        section bsrsparse_kernels.cuh product-narrow-weights
        section bsrsparse_kernels.cuh product-mma-load
        section bsrsparse_kernels.cuh product-mma-multiply
        section bsrsparse_kernels.cuh product-mma
        from bsrsparse_kernels.cuh '^__device__ __forceinline__ void bsri_tensor_item' '^/. -----'
        for s in schedule lists load epilogue mainloop; do section bsrsparse_kernels.cuh product-wgmma-$s; done
        section bsrsparse_kernels.cuh product-wgmma
        from bsrsparse.h '^/. What the choosers are asked for' '^/. Tensor maps are made by'
        from bsrsparse.h '^/. Asks for what runs best' '^static int bsri_cuda_ask_sampled'
    } | sed -e '/extern __shared__/d' -e 's/asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));/x = (int)threadIdx.x;/' \
        -e 's/bsri_mbarrier_wait(/warp_wait(/' -e 's/asm volatile("prefetch.global.L1.*/{}/' \
        -e '/asm volatile("mov.b32 %0, %1;"/s/asm.*/x = sum;/' \
        -e '/asm volatile("mul.rn.f32 %0/s/asm.*/x = sum * alpha;/; /cvt.rn.f32.s32 f, %1; mul/s/asm.*/x = (float)sum * alpha;/' \
        -e 's/__shared__ \(bsri_wgmma_storage<L::GROUP>\) s;/\1 \&s = *(\1 *)(bsri_flash_memory + WGMMA_STATIC_AT);/' \
        -e 's/__shared__ \(typename bsri_either<T::SCALED, .*>::type\) s;/\1 \&s = *(\1 *)(bsri_flash_memory + STATIC_AT - (T::SCALED ? 1024 : 0));/' > "$w/scales.inc"
    test= each=
    [ "${1:-}" != --each ] || { each=1 && shift; } # by both
    [ "${1:-}" != --f8 ] || { test=-DTEST_F8 && shift; } # test_f8.c in place of test_scales.c
    [ "${1:-}" != --weights ] || { test=-DTEST_WEIGHTS && shift; } # test_weights.c, and kernels of weights of fewer bits
    [ "${1:-}" != --shifted ] || { test=-DTEST_SHIFTED && shift; } # test_product.c: operands, or rows of out, at any address
    build scales_checks "scales_checks$test" -O2 $test
    if [ -n "$each" ]; then # the two closing lines are one
        "$w/scales_checks$test" "$@" > "$w/mma" 2>&1 || [ $? -eq 1 ] || echo "FAIL mma.sync ended badly, 1 failed," >> "$w/mma"
        "$w/scales_checks$test" --wgmma "$@" > "$w/wgmma" 2>&1 || [ $? -eq 1 ] || echo "FAIL wgmma ended badly, 1 failed," >> "$w/wgmma"
        cat "$w/mma" "$w/wgmma" | awk '!/^[0-9]+ passed, / { print; bad += /^FAIL .* ended badly/; next } { p += $1; f += $3 + ($1 + $3 == 0); s += $5; lines++ }
            END { f += bad + (lines != 2); printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
        exit
    fi
    exec "$w/scales_checks$test" "$@"
fi
if [ "${1:-}" = --kernels ]; then # what gathers elements, rows of softmax, small blocks: 1 products, 2 sampled products, 3 softmax, 4 few columns
    of=$2
    shift 2
    sed -e 's/^\( *\)bsri_product_run(c, &job);/\1if (!bsri_emulate_product(c, \&job)) bsri_product_run(c, \&job);/' \
        -e 's/)  *bsri_product_run(c, &job);/ \&\& !bsri_emulate_product(c, \&job)) bsri_product_run(c, \&job);/' \
        -e 's/^\( *\)bsri_sampled_run(c, &job);/\1if (!bsri_emulate_sampled(c, \&job)) bsri_sampled_run(c, \&job);/' \
        -e 's/^\( *\)bsri_parallel(c, j->batch.count \* j->groups, bsri_work_ns(elements/\1if (!bsri_emulate_softmax(c, j)) &/' \
        -e 's/^\(static bsr_status bsri_product_start(.*\)/EMULATED(bsri_emulate_product(const bsri_call *c, const bsri_product *job))\n\1/' \
        -e 's/^\(static bsr_status bsri_sampled_start(.*\)/EMULATED(bsri_emulate_sampled(const bsri_call *c, const bsri_sampled *job))\n\1/' \
        -e 's/^\(static bsr_status bsri_softmax_run(.*\)/EMULATED(bsri_emulate_softmax(const bsri_call *c, bsri_softmax *job))\n\1/' \
        bsrsparse.h > "$w/bsrsparse_emulated.h"
    {
        from bsrsparse_kernels.cuh '^template <int HALF> .* bsri_dev_e5m2_halves' '^/. N elements side by side'
        section bsrsparse_kernels.cuh device-lists | sed '/bsri_dev_matrix_item(const bsri_batch/,/^}/d'
        section bsrsparse_kernels.cuh device-epilogue |
            sed '/bsri_dev_exp2(float x) {/,/^}/d; /bsri_dev_inverse(float x) {/,/^}/d; /bsri_dev_max(float a, float b) {/,/^}/d'
        sed -n '/^__device__ __forceinline__ int64_t bsri_dev_order(/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh product-gather
        section bsrsparse_kernels.cuh sampled-gather
        echo '#undef BSRI_MMA_CODE' # no copies that are on their way
        [ "$of" != 4 ] || for s in tiny vector few; do section bsrsparse_kernels.cuh product-$s; done
        section bsrsparse_kernels.cuh device-scores
        section bsrsparse_kernels.cuh device-softmax | sed '/bsri_dev_pack(float a, float b, int dtype) {/,/^}/d'
        section bsrsparse_kernels.cuh device-softmax-biased
        section bsrsparse_kernels.cuh device-softmax-rows
    } | sed '/extern __shared__/d' > "$w/kernels.inc"
    section bsrsparse.h cuda-rows | sed '/^static .* bsri_cuda_\(ask_\)*attention(/,$d' > "$w/rows.inc"
    build kernels_checks "kernels_checks_$of" -O1 ${SAN:-} -DCHECKS="$of"
    exec "$w/kernels_checks_$of" "$@"
fi
if [ "${1:-}" = --decode ]; then # bsr_attention's kernels for few queries
    shift
    {
        sed -n '/^template <int N> __device__ __forceinline__ void bsri_dev_rotate(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ void bsri_attention_store(const/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh attention-decode-load
        section bsrsparse_kernels.cuh attention-decode | sed '/extern __shared__/d'
    } > "$w/decode.inc"
    build decode_checks decode_checks -O2
    exec "$w/decode_checks" "$@"
fi
if [ "${1:-}" = --attention ]; then # bsr_attention's kernels; no sanitizer of memory, as above
    shift
    {
        sed -n '/^\/\* log2 of an element.s bytes/,/^\/\* -----/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ bsri_item bsri_dev_matrix_item(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ void bsri_dev_unpack(/,/^}/p; /^__device__ __forceinline__ float bsri_dev_half(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ uint32_t bsri_dev_pack(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ void bsri_tensor_item(/,/^}/p; /^__device__ __forceinline__ void bsri_flash_wait(/,/^}/p' bsrsparse_kernels.cuh | sed '/flash_wait/,$d'
        sed -n '/^template <class L> struct bsri_simt {/,/^};/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh device-scores
        section bsrsparse_kernels.cuh attention-scores
        section bsrsparse_kernels.cuh attention-simt
        section bsrsparse_kernels.cuh attention-mma-scores | sed '/^__device__ __forceinline__ void bsri_dev_pick(/,/^}/d; /^__device__ __forceinline__ void bsri_dev_opaque(/d'
        section bsrsparse_kernels.cuh attention-wgmma-plan | sed '/^#ifdef BSRI_WGMMA_CODE/d'
        section bsrsparse_kernels.cuh attention-wgmma-load
        section bsrsparse_kernels.cuh attention-wgmma | sed '/^#ifdef BSRI_WGMMA_CODE/d; /^#endif/d'
        section bsrsparse_kernels.cuh attention-flex-plan | sed '/^#ifdef BSRI_WGMMA_CODE/d'
        section bsrsparse_kernels.cuh attention-flex-load
        section bsrsparse_kernels.cuh attention-flex-scores
        section bsrsparse_kernels.cuh attention-flex | sed '/^#ifdef BSRI_WGMMA_CODE/d; /^#endif/d'
    } | sed 's/extern __shared__/extern/' > "$w/attention.inc"
    test=
    [ "${1:-}" != --caches ] || { test=-DTEST_DECODE && shift; } # test_decode.c in place of test_attention.c
    build attention_checks attention_checks -O2 $test
    exec "$w/attention_checks" "$@"
fi
{
    section bsrsparse.h cuda-matrix-types | sed '/^#if BSRI_HAS_QUANTISE/,/^#endif/d; /^#if BSRI_HAS_CUDA_MAPS/,/^#endif/d; /^#if BSRI_HAS_MOE/,/^#endif/d; /^#endif/d; /^#ifdef/d; /^#include/d'
    sed -n '/^__device__ __forceinline__ int64_t bsri_dev_row_of(const void/,/^}/p' bsrsparse_kernels.cuh
    section bsrsparse_kernels.cuh device-validate
    section bsrsparse_kernels.cuh device-indices
    sed -n '/^static int bsri_mma_log2(/,/^}/p' bsrsparse.h
    section bsrsparse.h cuda-stage | sed '/^static double bsri_stage_ns(/,$d'
    sed -n '/^__device__ __forceinline__ uint4 bsri_shifted(/,/^}/p' bsrsparse_kernels.cuh
    section bsrsparse_kernels.cuh device-stage
} > "$w/device.inc"
san=
for s in -fsanitize=address,undefined -fsanitize=address; do
    ! works $s || { san="$s -fno-sanitize-recover=all" && break; }
done
compiled device_checks device_checks -O1 -g $san -Wall -Wextra -Wno-unused-function -Wno-unknown-pragmas \
    -DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_F32
"$w/device_checks" "$@"
