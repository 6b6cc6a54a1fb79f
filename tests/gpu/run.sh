#!/bin/sh
# Runs the GPU test programs of build/gpu/test; called by make (tests/gpu.mk) with B, PROGRAMS, TIERS, CALLS, TOOLS set.
#   run.sh test       everything, each tier forced in turn (TIERS); record in tests/results/<gpu>_test.txt
#   run.sh sanitize   the tools of compute-sanitizer over CALLS calls of every kernel; a kernel that no call launched under a tool
#                     fails (on a GPU that has all tiers); record in tests/results/<gpu>_sanitize.txt
# The first line of a record says which sources and code it is of (tests/record.sh); the last line sums up. JOBS: programs at a time.
set -u
mode=$1
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' /' '__')
if [ -z "$gpu" ]; then
    echo "0 passed, 0 failed, 1 skipped: there is no GPU here"
    exit 0
fi
out=build/gpu/$mode-logs
rm -rf "$out" && mkdir -p "$out" tests/results

# part NAME SECONDS COMMAND...
part() {
    printf '%s\n' "$1" > "$out/$number.name"
    limit=$2
    shift 2
    printf 'timeout %s %s\n' "$limit" "$*" > "$out/$number.cmd"
    number=$((number + 1))
}
number=100
alone() { case $1 in gpu_sizes | gpu_streams) return 0 ;; *) return 1 ;; esac } # they fill the memory, watch it, print times
tiered() { case $1 in gpu_product | gpu_sampled | gpu_attention | gpu_attention_backward) return 0 ;; *) return 1 ;; esac }
if [ "$mode" = test ]; then
    jobs=${JOBS:-6}
    for t in every_product_kernel every_other_kernel; do part "gpu_kernels, $t" 600 "$B/gpu_tests gpu_kernels $t"; done # long ones
    for p in $PROGRAMS; do
        [ "$p" = gpu_kernels ] && continue
        alone "$p" || part "$p" 300 "$B/gpu_tests $p"
        tiered "$p" && for t in ${TIERS:-1 2 3}; do part "$p, tier $t" 300 "$B/gpu_tests $p --tier $t"; done
    done
    part "two modules, on CUDA" 100 "$B/modules cuda"
    for e in ${EXAMPLES:-}; do
        check="tail -n 1 | grep -qx ok"
        [ "$e" = spmm ] && check="grep -c ': right' | grep -qx 2"
        part "example $e" 100 "sh -c \"build/gpu/examples/$e --backend cuda | $check && echo 1 passed, 0 failed, 0 skipped\""
    done
    if [ -x build/gpu/examples/multi_gpu ]; then # on all GPUs that are there, and alone
        for n in 16 1; do
            check="tail -n 1 | grep -qx ok && echo 1 passed, 0 failed, 0 skipped"
            part "example multi_gpu, up to $n" 100 "sh -c \"build/gpu/examples/multi_gpu $n | $check\""
        done
    else part "example multi_gpu" 9 "echo 0 passed, 0 failed, 1 skipped: NCCL is absent '(Debian: apt install libnccl-dev)'"; fi
else
    jobs=${JOBS:-16} calls=${CALLS:-3} tools=${TOOLS:-racecheck initcheck memcheck synccheck}
    for tool in $tools; do # the longest first; one case in so many has references, and of those come the calls
        check="compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 10"
        # by itself it counts too few, overflows ("tracked cuda::barrier structures") and then ends correct kernels
        [ "$tool" = synccheck ] && check="$check --num-cuda-barriers 16384"
        check="$check $B/gpu_tests"
        [ "$tool" = racecheck ] && few=1 || few=$calls # three of each took three times as long
        for t in every_product_kernel every_other_kernel; do
            part "$tool of gpu_kernels, $t" 120 "$check gpu_kernels --every 1000 --kernels $few $t"
        done
        for p in $PROGRAMS; do
            case $p in
                gpu_errors | gpu_calls | gpu_indices | gpu_kernels | gpu_products | gpu_sizes | gpu_streams) continue ;;
                gpu_matrices) every=1 ;;
                gpu_product | gpu_sampled) every=4 ;;
                *) every=2 ;;
            esac
            part "$tool of $p" 120 "$check $p --apart --every $every --kernels $calls"
            tiered "$p" && for t in 1 2; do
                part "$tool of $p, tier $t" 120 "$check $p --apart --every $every --kernels $calls --tier $t"
            done
        done
        part "$tool of gpu_calls" 120 "$check gpu_calls --every 1000 --kernels $calls queried_plans_are_taken"
        part "$tool of gpu_products" 120 "$check gpu_products --every 1000 --kernels $calls absent_blocks_meet_nan"
        part "$tool of gpu_indices" 120 "$check gpu_indices --every 1000 --kernels $calls hostile_row_pointers checked first_of_many"
    done
fi
run_parts() {
    ls "$out" | sed -n 's/\.cmd$//p' | while read -r n; do [ -f "$out/$n.log" ] || echo "$out/$n"; done |
        xargs -P "$1" -I FILE sh -c '
            start=$(date +%s)
            sh FILE.cmd > FILE.log 2>&1; code=$?
            line=$(grep -E "^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped" FILE.log | tail -n 1)
            [ -n "$line" ] || line="0 passed, 1 failed, 0 skipped (no closing line, exit status $code)"
            case $code in
                0 | 77) ;;
                *) line=$(echo "$line" | sed "s/ 0 failed,\(.*\)/ 1 failed,\1 (exit status $code)/") ;;
            esac
            echo "$line" > FILE.sum
            { echo "$(cat FILE.name): $line"
              grep -E "^on |^not on the|^refused by|^skipped|calls ran on|host time|cases failed| took " FILE.log |
                  sed "s/^ */    /"
              case $line in
                  *" 0 failed,"*) ;;
                  *) grep -E -A2 "FAIL|=========|error" FILE.log | head -n 60 | sed "s/^/    /" ;;
              esac
            } > FILE.text
            echo "  $line  $(cat FILE.name) ($(($(date +%s) - start)) s)"'
}
run_parts "$jobs"
if [ "$mode" = test ]; then
    for p in $PROGRAMS; do alone "$p" && part "$p" 300 "$B/gpu_tests $p"; done
    run_parts 1
fi
record=tests/results/${gpu}_$mode.txt
{
    echo "# $(sh tests/record.sh)"
    cat "$out"/*.text
    if [ "$mode" = sanitize ]; then
        all_tiers=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | grep -c '^9[.]0')
        "$B/gpu_tests" kernels > "$out/kernels"
        for tool in $tools; do
            grep -l "^$tool of" "$out"/*.name | sed 's/name$/log/' | xargs sed -n 's/^launched: //p' | tr ' ' '\n' |
                sort -u > "$out/launched"
            awk -v tool="$tool" -v sum="$out/launched-$tool.sum" -v all="$all_tiers" '
                NR == FNR { had[$1] = 1; next }
                $1 in had { n++; next }
                { never = never "\n    " $0; none++ }
                END {
                    printf "%s: %d kernels launched, %d never%s%s\n", tool, n, none, none ? ":" : "", never
                    printf "%d passed, %d failed, %d skipped\n", n && !none, all && (none || !n), (!all && none > 0) > sum
                }' "$out/launched" "$out/kernels"
        done
    fi
    cat "$out"/*.sum | awk '{ p += $1; f += $3; s += $5 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }'
} > "$record"
echo "record: $record"
tail -n 1 "$record"
tail -n 1 "$record" | grep -q ' 0 failed,'
