# Sourced by the test scripts: counted cases, run several at a time.
#   cases_begin FOLDER        an empty folder for scripts and logs
#   case_ NAME COMMAND        a case, run later by sh -eu; exit status 77: skipped (its last line says why)
#   cases_end                 runs them, $JOBS at a time, prints failures and the closing line; the exit status of the script
#   turn                      a number of the commit: which part of a rotation it takes; TURN=3 in the environment is another one's
#   whole                     is everything wanted (SHARE=all), whosever turn it is?
turn() {
    if [ -n "${TURN:-}" ]; then echo "$TURN"; return; fi
    { git rev-parse HEAD 2> /dev/null || cat bsrsparse.h bsrsparse_kernels.cuh; } | cksum | cut -d ' ' -f 1
}
whole() { [ "${SHARE:-}" = all ]; }
cases_begin() {
    cases=$1
    case_count=0
    rm -rf "$cases" && mkdir -p "$cases"
}
case_() {
    case_count=$((case_count + 1))
    case_file=$cases/$(printf %04d $case_count)
    printf '%s\n' "$1" > "$case_file.name"
    printf '%s\n' "$2" > "$case_file.sh"
}
cases_end() {
    { true >&3; } 2>/dev/null || exec 3>/dev/null # tests/run.sh shows what comes here while a script runs
    ls "$cases" | sed -n 's/\.sh$//p' |
        xargs -P "${JOBS:-2}" -I N sh -c '
            sh -eu "$1/N.sh" > "$1/N.log" 2>&1 3>&-; echo $? > "$1/N.rc"
            n=$(ls "$1" | grep -c "rc$"); [ $((n % 20)) -ne 0 ] || echo "    $n of $2 cases" >&3' _ "$cases" $case_count
    passed=0 failed=0 skipped=0
    for name in "$cases"/*.name; do
        n=${name%.name}
        case $(cat "$n.rc" 2>/dev/null) in
            0) passed=$((passed + 1)) ;;
            77)
                skipped=$((skipped + 1))
                echo "skip $(cat "$name"): $(tail -n 1 "$n.log")" ;;
            *)
                failed=$((failed + 1))
                echo "FAIL $(cat "$name")"
                head -n 12 "$n.log" | sed 's/^/FAIL   /' ;;
        esac
    done
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
