#!/bin/sh
# Compiles every kernel, with user functions, for the architectures that are named: no warning, no spilled registers but those that
# a division's call puts aside (32 bytes at most, in kernels that few threads run). Says how many kernels there are, the most
# registers that one takes, and seconds. What is there from the same sources is kept.
#   sh tests/archs.sh 75 86 ...   these (make archs: all)
#   sh tests/archs.sh             what tests/kernel_shares.sh says by the commit: in every second turn one of those that
#                                 tests/test_cudart.sh leaves out, and a share of the kernels (make test); SHARE=all: every kernel
#                                 for each of them
# Without nvcc: one skip. Environment: NVCC, JOBS, SHARE, TURN.
set -u
. tests/cases.sh
. tests/kernel_shares.sh
nvcc=${NVCC:-nvcc} w=build/archs
cases_begin "$w/cases"
if ! command -v "$nvcc" > /dev/null 2>&1; then
    echo "0 passed, 0 failed, 1 skipped: $nvcc is absent"
    exit 0
fi
part= kernels="every kernel"
if [ $# -gt 0 ]; then kernels_whole "$w"
elif whole; then
    kernels_whole "$w"
    set -- 75 86 89 100 120
else
    set -- "$(other_arch)"
    case $1 in
        80 | none) # tests/test_cudart.sh compiles sm_80
            echo "0 passed, 0 failed, 0 skipped: another commit's turn"
            exit 0 ;;
    esac
    kernels_of_turn "$w"
    part="$(($(turn) % 6)) " kernels="share $(($(turn) % 6)) of 6 of the kernels"
fi
: "${STRICT_nvcc:=--Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror}"
sum=$(cat bsrsparse.h bsrsparse_kernels.cuh tune_table.h tests/test_functions.h tests/archs.sh tests/kernel_shares.sh | cksum)
sum=$(printf '%s %s' "$part$sum" "$("$nvcc" --version | tail -n 1)" | tr ' ' _)
for arch; do
    case_ "sm_$arch: $kernels compiles without a warning, none spills registers for more than a call" "
if [ \"\$(cat $w/$arch.sum 2> /dev/null)\" != '$sum' ]; then
    began=\$(date +%s)
    rm -f $w/$arch.sum
    $nvcc -x cu -std=c++17 -I$w/source -I. '-DBSRSPARSE_USER_FUNCTIONS=\"tests/test_functions.h\"' $STRICT_nvcc -Xptxas -v -cubin \\
        -gencode=arch=compute_$arch,code=sm_$arch tests/compile/implementation.c -o $w/$arch.cubin > $w/$arch.log 2>&1 ||
        { grep -v 'ptxas info' $w/$arch.log; exit 1; }
    echo \$((\$(date +%s) - began)) > $w/$arch.time
    echo '$sum' > $w/$arch.sum
fi
awk '/Function properties for/ { name = \$NF } / bytes spill stores/ && (\$5 > 32 || \$9 > 32) { print name; print; bad = 1 }
    /Compiling entry function/ { n++ } END { exit bad || !n }' $w/$arch.log"
done
cases_end > "$w/cases.log"
code=$?
sed '$d' "$w/cases.log"
for arch; do
    [ ! -f "$w/$arch.sum" ] || awk -v arch="$arch" -v seconds="$(cat "$w/$arch.time")" '/Compiling entry function/ { n++ }
        match($0, /Used [0-9]+/) { used = substr($0, RSTART + 5, RLENGTH - 5) + 0; if (used > most) most = used }
        END { printf "sm_%s: %d kernels, at most %d registers, compiled in %d s\n", arch, n, most, seconds }' "$w/$arch.log"
done
tail -n 1 "$w/cases.log"
exit $code
