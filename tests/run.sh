#!/bin/sh
# Runs everything that `make test` has built, and the test scripts; sums up. Each part ends with a line
# "N passed, N failed, N skipped"; a part that lacks it, or is not there, is one failure.
# Called by make with CC, B (build folder), JOBS, DATA, OPENMP, SANITIZE, TSAN, TESTS, FUZZERS, EXAMPLES, SAN_EXAMPLES and
# PYTHON set.
set -u
out=$B/test
rm -rf "$out" && mkdir -p "$out"
number=0
exec 3>&1 # for progress

# part NAME COMMAND...: one part, to be run by run_parts
part() {
    number=$((number + 1))
    file=$out/$(printf %03d $number)
    printf '%s\n' "$1" > "$file.name"
    shift
    printf '%s\n' "$*" > "$file.cmd"
}
# Runs the parts that are waiting, $1 at a time, and says one line of each as it ends.
run_parts() {
    ls "$out" | sed -n 's/\.cmd$//p' | while read -r n; do [ -f "$out/$n.log" ] || echo "$out/$n"; done |
        xargs -P "$1" -I FILE sh -c '
            start=$(date +%s)
            sh FILE.cmd > FILE.log 2>&1; code=$?
            line=$(grep -E "^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped" FILE.log | tail -n 1)
            case $line in
                "") line="0 passed, 1 failed, 0 skipped (no closing line, exit status $code)" ;;
                *" 0 failed,"*) [ $code -eq 0 ] || line="0 passed, 1 failed, 0 skipped (exit status $code)" ;;
            esac
            echo "$line" > FILE.sum
            case $line in
                *" 0 failed,"*) ;;
                *) { grep -E "FAIL|ERROR|runtime error|Assert" FILE.log || cat FILE.log; } | head -n 40 | sed "s/^/    /" ;;
            esac
            printf "  %-34s %s  (%d s)\n" "$(cat FILE.name)" "$line" $(($(date +%s) - start))'
}

echo "compile matrix"
part "compile matrix" sh tests/compile.sh
part "static checks" sh tests/check.sh
[ ! -f tests/test_cudart.sh ] || part "CUDA without a GPU" sh tests/test_cudart.sh
[ ! -f tests/same_code.sh ] || part "the same code and choices" sh tests/same_code.sh # of what the part before it compiled
part "installing" sh tests/install.sh
part "other tools and machines" sh tests/methods.sh
part "device checks on the host" sh tests/test_device.sh
part "kernels of maps on the host" sh tests/test_device.sh --maps -s 8
part "kernels of quantisers on the host" sh tests/test_device.sh --quantise -s 8
part "kernels of convolutions on the host" sh tests/test_device.sh --conv -s 8
part "kernels of products with scales on the host" sh tests/test_device.sh --scales -s 8
part "the same by wgmma on the host" sh tests/test_device.sh --scales --wgmma -s 8
part "weights of fewer bits on the host" sh tests/test_device.sh --scales --weights -s 16
part "operands at any address on the host" sh tests/test_device.sh --scales --shifted -s 30
for k in 1 2 3; do # one case in so many: each lane is a coroutine
    case $k in 1) share=200 of=products ;; 2) share=8 of="sampled products" ;; *) share=8 of=softmax ;; esac
    part "kernels of $of on the host" sh tests/test_device.sh --kernels $k -s $share
done
part "kernels of attention on the host" sh tests/test_device.sh --attention -s 24
part "kernels for few queries on the host" sh tests/test_device.sh --decode -s 8
part "kernels of block masks on the host" sh tests/test_device.sh --masks -s 24
run_parts 1
echo "programs"
[ ! -f tests/archs.sh ] || part "CUDA for one more architecture" sh tests/archs.sh # first: the longest
for t in $TESTS; do part "$t" "$B/plain/$t"; done
part "examples" sh tests/examples.sh "$B/plain" $EXAMPLES
flavour=plain
if [ -n "$SANITIZE" ]; then
    flavour=san
    for t in $TESTS; do
        case $t in # one case in so many, where all take minutes
            test_conv | test_maps | test_product) share="-s 5" ;;
            test_sums | test_rows | test_moe | test_attention_backward) share="-s 2" ;;
            test_scales) share="-s 8" ;;
            *) share= ;;
        esac
        part "$t, sanitized${share:+, one case in ${share#-s }}" "$B/san/$t $share"
    done
    part "examples, sanitized" sh tests/examples.sh "$B/san" $SAN_EXAMPLES
else
    part "sanitizers" "echo '0 passed, 0 failed, 1 skipped: $CC has none here'"
fi
if [ -n "${TSAN:-}" ]; then part "test_threads, threads sanitized" "$B/tsan/test_threads"
else part "thread sanitizer" "echo '0 passed, 0 failed, 1 skipped: $CC has none here'"; fi
part "PyTorch's tests, a sample" "make parity PARITY_ARGS='--part 0/800'"
for f in $FUZZERS; do part "$f" "$B/$flavour/$f $(ls -d tests/fuzz/corpus/$f/* 2> /dev/null | tr '\n' ' ')"; done
if command -v "$PYTHON" > /dev/null 2>&1; then
    part "against NumPy" "$PYTHON tests/numpy_differ.py $B/python/libbsrsparse.so --cases 1500"
    part "from Python" "CC='$CC' $PYTHON tests/python_numpy.py $B/python/libbsrsparse.so"
    part "from PyTorch" "$PYTHON tests/python_torch.py $B/python/libbsrsparse.so"
    part "files, against Python's" "$PYTHON tests/files.py $B/python/libbsrsparse.so"
else part "Python" "echo '0 passed, 0 failed, 1 skipped: $PYTHON is absent'"; fi
ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1}
export ASAN_OPTIONS
run_parts "$JOBS"

cat "$out"/*.sum | awk '{ p += $1; f += $3; s += $5 } END {
    printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }'
