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
aligned() { # what finds an address that a GPU does not take, where the compiler has it
    flags="-fsanitize=alignment,undefined -fno-sanitize-recover=all"
    echo 'int main(void) { return 0; }' > "$w/probe.cpp"
    if "$cxx" $flags "$w/probe.cpp" -o "$w/probe" 2> /dev/null && "$w/probe"; then echo "$flags"; fi
}
if [ "${1:-}" = --maps ]; then # bsr_map and bsr_reduce instead; sanitizers of memory do not follow coroutines
    shift
    {
        sed -n '/^\/\* bsr_map. Pieces of E/,/^#endif/p' bsrsparse.h | sed '/^#endif/d'
        sed -n '/^__device__ __forceinline__ uint4 bsri_dev_philox(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation(float x)/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh device-maps
        section bsrsparse.h cuda-maps | sed '/^#endif \/\* BSRI_CUDA/,$d'
    } > "$w/maps.inc"
    if ! "$cxx" -std=c++17 -O1 $(aligned) -w -U_FORTIFY_SOURCE -DBSRI_CUDA_MAPS -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. -Itests -I"$w" \
        tests/device/maps_checks.cpp -o "$w/maps_checks" -lm 2> "$w/log"; then
        head -n 30 "$w/log"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    exec "$w/maps_checks" "$@"
fi
if [ "${1:-}" = --decode ]; then # bsr_attention's kernels for few queries
    shift
    {
        sed -n '/^template <int N> __device__ __forceinline__ void bsri_dev_rotate(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^__device__ __forceinline__ void bsri_attention_store(const/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh attention-decode | sed '/extern __shared__/d'
    } > "$w/decode.inc"
    if ! "$cxx" -std=c++17 -O2 -w -U_FORTIFY_SOURCE -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. -Itests -I"$w" \
        tests/device/decode_checks.cpp -o "$w/decode_checks" -lm 2> "$w/log"; then
        head -n 30 "$w/log"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
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
        section bsrsparse_kernels.cuh attention-wgmma-scores
        section bsrsparse_kernels.cuh attention-wgmma | sed '/^#ifdef BSRI_WGMMA_CODE/d; /^#endif/d'
    } | sed 's/extern __shared__/extern/' > "$w/attention.inc"
    test=
    [ "${1:-}" != --caches ] || { test=-DTEST_DECODE && shift; } # test_decode.c in place of test_attention.c
    if ! "$cxx" -std=c++17 -O2 $(aligned) $test -w -U_FORTIFY_SOURCE -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. -Itests -I"$w" \
        tests/device/attention_checks.cpp -o "$w/attention_checks" -lm 2> "$w/log"; then
        head -n 30 "$w/log"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    exec "$w/attention_checks" "$@"
fi
{
    section bsrsparse.h cuda-matrix-types | sed '/^#if BSRI_HAS_CUDA_MAPS/,/^#endif/d; /^#endif/d; /^#ifdef/d; /^#include/d'
    sed -n '/^__device__ __forceinline__ int64_t bsri_dev_row_of(const void/,/^}/p' bsrsparse_kernels.cuh
    section bsrsparse_kernels.cuh device-validate
    section bsrsparse_kernels.cuh device-indices
    sed -n '/^static int bsri_mma_log2(/,/^}/p' bsrsparse.h
    section bsrsparse.h cuda-stage | sed '/^static double bsri_stage_ns(/,$d'
    section bsrsparse_kernels.cuh device-stage
} > "$w/device.inc"
san=
for s in -fsanitize=address,undefined -fsanitize=address; do
    echo 'int main(void) { return 0; }' > "$w/probe.cpp"
    if "$cxx" $s "$w/probe.cpp" -o "$w/probe" 2> /dev/null && "$w/probe"; then
        san="$s -fno-sanitize-recover=all"
        break
    fi
done
if ! "$cxx" -std=c++17 -O1 -g $san -Wall -Wextra -Wno-unused-function -Wno-unknown-pragmas \
    -DBSRSPARSE_NO_SIMD -DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_F32 -I. -Itests -I"$w" \
    tests/device/device_checks.cpp -o "$w/device_checks" -lm 2> "$w/log"; then
    head -n 30 "$w/log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
"$w/device_checks" "$@"
