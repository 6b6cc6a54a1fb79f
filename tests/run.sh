#!/bin/sh
# Runs everything that `make test` has built, and the test scripts; sums up. Each part ends with a line
# "N passed, N failed, N skipped"; a part that lacks it, or is not there, is one failure.
# Called by make with CC, B (build folder), JOBS, DATA, OPENMP, SANITIZE, TSAN, TESTS, FUZZERS, EXAMPLES, SAN_EXAMPLES and
# PYTHON set.
#
# Continuous integration wants less than 20 minutes on two cores without a GPU: 2400 seconds of CPU time. Of the whole, 2264 and
# 2466 were measured (20.0 and 21.5 minutes); its parts one by one or, with a ~, as sums of measured pieces (gcc 12, clang 14,
# nvcc 13).
#                                       before   now   how
#   building the programs                  600  ~300   a test is compiled once, linked with both libraries; one in four with its own
#                                                      sanitizers (11 s and 2 s for the largest)
#   compile matrix                         780  ~400   without vector code where that is not the question; -fsyntax-only; turns
#   CUDA without a GPU                    1030  ~180   a sixth of the kernels by turns (140 to 250 s), the others without bodies (60 s)
#   another architecture                   120   ~50   the same; every second turn
#   other tools and machines              1340  ~430   a program runs on one of four machines, one of two readers reads, by turns
#   kernels on the host                    430  ~200   every second one by turns (most of it is compiling); side by side
#   programs, plain                        320   320   all of it, as before
#   programs, sanitized                    560  ~220   half the time where the test's own code is not sanitized
#   installing, checks, examples, tsan     230  ~200
#   all                                   5400  2300   and less that waits for one process
# A turn is the commit's (tests/cases.sh), so that a commit has one result; no turn depends on luck: each is a part of what passes
# whole, and random numbers are seeded from the names of the cases.
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

echo "what runs several at a time itself"
part "compile matrix" sh tests/compile.sh
part "static checks" sh tests/check.sh
part "installing" sh tests/install.sh
part "other tools and machines" sh tests/methods.sh
run_parts 1

# The rest, JOBS at a time: what takes longest first, so that no processor waits at the end.
echo "programs"
[ ! -f tests/test_cudart.sh ] || part "CUDA without a GPU" sh tests/test_cudart.sh
[ ! -f tests/archs.sh ] || part "CUDA for one more architecture" sh tests/archs.sh
if [ -n "${TSAN:-}" ]; then part "test_threads, threads sanitized" "$B/tsan/test_threads"
else part "thread sanitizer" "echo '0 passed, 0 failed, 1 skipped: $CC has none here'"; fi
# Kernels on the host: every second one by turns. A folder for each, as they run side by side.
. tests/cases.sh
devices=$(turn)
device() {
    devices=$((devices + 1))
    whole || [ $((devices % 2)) -eq 0 ] || return 0
    part "$1 on the host" "W=build/device/$number sh tests/test_device.sh $2"
}
device "kernels of products with scales" "--scales --each -s 8" # by mma.sync and by wgmma
device "kernels of products" "--kernels 1 -s 200" # one case in so many: each lane is a coroutine
device "kernels of block masks" "--masks -s 24"
device "kernels of maps" "--maps -s 8"
device "kernels for few queries" "--decode -s 8"
device "weights of fewer bits" "--scales --weights -s 16"
device "operands at any address" "--scales --shifted -s 20"
device "rows of out at any address" "--scales --shifted --wgmma -s 20"
device "device checks" ""
device "kernels of attention" "--attention -s 24"
device "kernels of convolutions" "--conv -s 8"
device "kernels of quantisers" "--quantise -s 8"
device "kernels that lay tiles" "--retile -s 40"
device "kernels of sampled products" "--kernels 2 -s 8"
device "kernels of softmax" "--kernels 3 -s 8"
device "kernels of small blocks" "--kernels 4 -s 40"
long="test_product test_maps test_weights test_random test_rows test_quantise"
for t in $TESTS; do case " $long " in *" $t "*) ;; *) long="$long $t" ;; esac; done
for t in $long; do case " $TESTS " in *" $t "*) part "$t" "$B/plain/$t" ;; esac; done
flavour=plain
if [ -n "$SANITIZE" ]; then
    flavour=san
    for t in $long; do
        case " $TESTS " in *" $t "*) ;; *) continue ;; esac
        case $t in # one case in so many, where all take minutes
            test_conv | test_maps | test_product) share="-s 5" ;;
            test_sums | test_rows | test_moe | test_attention | test_attention_backward | test_weights | test_quantise | test_random | \
                test_decode | test_sampled | test_f8) share="-s 2" ;;
            test_scales) share="-s 8" ;;
            *) share= ;;
        esac
        part "$t, sanitized${share:+, one case in ${share#-s }}" "$B/san/$t $share"
    done
    part "examples, sanitized" sh tests/examples.sh "$B/san" $SAN_EXAMPLES
else
    part "sanitizers" "echo '0 passed, 0 failed, 1 skipped: $CC has none here'"
fi
part "examples" sh tests/examples.sh "$B/plain" $EXAMPLES
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
[ ! -f tests/same_code.sh ] || part "the same code and choices" sh tests/same_code.sh # of what tests/test_cudart.sh compiled
run_parts 1

cat "$out"/*.sum | awk '{ p += $1; f += $3; s += $5 } END {
    printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }'
