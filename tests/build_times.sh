#!/bin/sh
# How long nvcc takes for the library, CPU time and on the clock: build_times.sh [BF16|F32|I8|F64] [--split-compile=0]; the type is
# that of BSRSPARSE_ONLY_. build_times.sh host: gcc -O2 for the CPU backend alone. CPU time of an idle core is what counts: beside
# other work it grows. Called by make build-times. Environment: NVCC, CC, GPU_ARCH.
set -u
mkdir -p build/gpu
arch=${GPU_ARCH:-90a}
began=$(date +%s)
if [ "${1:-}" = host ]; then
    what="CPU backend, ${CC:-cc} -O2"
    ${CC:-cc} -std=c99 -O2 -I. -c tests/compile/implementation.c -o build/gpu/times.o || exit 1
else
    what="sm_$arch, ${1:-all types}${2:+, $2}"
    ${NVCC:-nvcc} -x cu -std=c++17 -O2 -I. ${1:+-DBSRSPARSE_ONLY_$1} ${2:-} "-gencode=arch=compute_$arch,code=sm_$arch" \
        -c tests/compile/implementation.c -o build/gpu/times.o || exit 1
fi
wall=$(($(date +%s) - began))
times > build/gpu/times
awk -v what="$what" -v wall=$wall 'NR == 2 {
    for (i = 1; i <= 2; i++) { split($i, t, "m"); cpu += t[1] * 60 + t[2] }
    printf "%s: %d s of CPU time, %d s on the clock\n", what, cpu + 0.5, wall }' build/gpu/times
