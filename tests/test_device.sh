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
if [ "${1:-}" = --maps ]; then # bsr_map and bsr_reduce instead; sanitizers of memory do not follow coroutines
    shift
    {
        sed -n '/^\/\* bsr_map. Pieces of E/,/^#endif/p' bsrsparse.h | sed '/^#endif/d'
        sed -n '/^__device__ __forceinline__ uint4 bsri_dev_philox(/,/^}/p' bsrsparse_kernels.cuh
        sed -n '/^template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation(float x)/,/^}/p' bsrsparse_kernels.cuh
        section bsrsparse_kernels.cuh device-maps
        section bsrsparse.h cuda-maps | sed '/^#endif \/\* BSRI_CUDA/,$d'
    } > "$w/maps.inc"
    aligned="-fsanitize=alignment,undefined -fno-sanitize-recover=all"
    echo 'int main(void) { return 0; }' > "$w/probe.cpp"
    "$cxx" $aligned "$w/probe.cpp" -o "$w/probe" 2> /dev/null && "$w/probe" || aligned=
    if ! "$cxx" -std=c++17 -O1 $aligned -w -U_FORTIFY_SOURCE -DBSRI_CUDA_MAPS -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. -Itests -I"$w" \
        tests/device/maps_checks.cpp -o "$w/maps_checks" -lm 2> "$w/log"; then
        head -n 30 "$w/log"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    exec "$w/maps_checks" "$@"
fi
from() { # FILE, START, END: expressions, lines from the first one to the one before the second
    awk -v start="$2" -v end="$3" '!on && $0 ~ start { on = 1 } on && $0 ~ end { exit } on' "$1"
}
if [ "${1:-}" = --conv ]; then # bsr_conv and bsr_conv_weight_gradient
    shift
    {
        echo '#define BSRI_ENTER (void)gate'
        section bsrsparse_kernels.cuh device-numbers
        from bsrsparse_kernels.cuh '^__device__ __forceinline__ bsri_item bsri_dev_matrix_item' '^/. A step of the sum'
        from bsrsparse_kernels.cuh '^template <class F> struct bsri_dev_scalar' '^/. The activations of'
        from bsrsparse_kernels.cuh '^template <int ACTIVATION> __device__ __forceinline__ float bsri_dev_activation' '^/. What a warp.s epilogue'
        from bsrsparse_kernels.cuh '^template <class L> struct bsri_simt ' '^/. The n-th tile of an item'
        from bsrsparse_kernels.cuh '^/. Piece number of row' '^#ifdef BSRI_MMA_CODE'
        from bsrsparse_kernels.cuh '^/. 16 x 64 elements by pieces of eight' '^/. --- fetching'
        from bsrsparse_kernels.cuh '^/. threadIdx.x. Tiles that leave no registers' '^/. f32 by FFMA: a lane owns'
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
    if ! "$cxx" -std=c++17 -O1 -w -U_FORTIFY_SOURCE -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. -Itests -I"$w" \
        tests/device/conv_checks.cpp -o "$w/conv_checks" -lm 2> "$w/log"; then
        head -n 30 "$w/log"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    exec "$w/conv_checks" "$@"
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
