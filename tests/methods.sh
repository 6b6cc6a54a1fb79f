#!/bin/sh
# The test programs as other compilers, machines and tools see them: the memory sanitizer, portable C alone, 32 bits, a machine of
# the other byte order and one of another family (emulated), each on a share of the cases; gcc's analyzer and clang-tidy over the
# header. What a tool that is absent would run is a counted skip that says how to install it. Some take turns by the commit: each
# program runs on one of the four that must compile it anew, and one of the two that read the header does.
# Environment: CC, B, JOBS, TESTS (names of programs), SHARE (all: no turns), TURN, CASES (all: every case, however long it
# takes). Arguments: parts of names; what is named takes no turns.
set -u
. tests/cases.sh
w=${B:-build}/methods
: "${OPENMP:=}"
mkdir -p "$w"
rm -f "$w"/*.build
if command -v "${CC:-cc}" > /dev/null 2>&1; then cc=${CC:-cc}; else cc=gcc; fi
: "${TESTS:=$(cd tests && ls test_*.c | sed 's/\.c$//')}"
functions='-DBSRSPARSE_USER_FUNCTIONS="tests/test_functions.h"'
asked=$*

# wanted NAME: is it among the arguments, or are there none?
wanted() {
    [ -n "$asked" ] || return 0
    for a in $asked; do case $1 in *"$a"*) return 0 ;; esac; done
    return 1
}
# first NAMES...: the first of these commands that is there, else the first
first() {
    for c in "$@"; do if command -v "$c" > /dev/null 2>&1; then echo "$c"; return; fi; done
    echo "$1"
}
# lacks PACKAGE COMMANDS...: says what is missing of these and how to get it; fails where nothing is
lacks() {
    package=$1
    shift
    for c in "$@"; do
        if ! command -v "$c" > /dev/null 2>&1; then echo "$c is absent (Debian: apt install $package)"; return 0; fi
    done
    return 1
}
# programs NUMBER: those whose turn it is on this one of four methods; `all`: all of them.
programs() {
    if [ "$1" = all ] || [ -n "$asked" ] || whole; then printf "%s\n" $TESTS; return; fi
    at=$(($(turn) + $1))
    for t in $TESTS; do
        at=$((at + 1))
        [ $((at % 4)) -ne 0 ] || echo "$t"
    done
}
# method NUMBER NAME SHARE RUNNER COMPILER...: a library and the programs by COMPILER, each run by RUNNER on one case in SHARE. A
# method that can't run here has set `absent`, and is one skip.
methods=
method() {
    number=$1 name=$2 share=$3 runner=$4
    shift 4
    wanted "$name" || return 0
    [ "${CASES:-}" != all ] || share=1
    methods="$methods $name"
    mkdir -p "$w/$name"
    echo "$share $runner" > "$w/$name/run"
    echo "$absent" > "$w/$name/absent"
    programs "$number" > "$w/$name/programs"
    [ -z "$absent" ] || return 0
    {
        echo "rm -f $w/$name/test_* $w/$name/library.o"
        build="$* -std=c99 -Wall -Wextra -I. -Itests"
        echo "$build '$functions' -c tests/compile/implementation.c -o $w/$name/library.o"
        while read -r t; do # what the plain programs are linked of is compiled as here
            source=tests/$t.c
            made=$(find "${B:-build}/plain/$t.o" -newer "$source" -newer tests/bsr_test.h 2> /dev/null)
            case $t in test_threads | test_pool) made= ;; esac # what they ask for differs without OpenMP
            [ "$name" != portable ] || [ -z "$made" ] || grep -q 'undef BSRI_IMPLEMENTED' "$source" || source="$OPENMP $made"
            echo "$build -DBSRI_IMPLEMENTED $source $w/$name/library.o -o $w/$name/$t -lm -lpthread"
        done < "$w/$name/programs"
    } > "$w/$name.build"
}

# ---- the methods ----

printf 'int main(void) { return 0; }\n' > "$w/probe.c"
# works COMMAND...: does it make programs that run here?
works() { "$@" "$w/probe.c" -o "$w/probe" > /dev/null 2>&1 && "$w/probe" > /dev/null 2>&1; }

if absent=$(lacks "clang libclang-rt-dev" clang); then :
elif works clang -fsanitize=memory; then absent=
else absent="clang has no memory sanitizer here (Debian: apt install libclang-rt-dev, or libclang-rt-14-dev for clang 14)"; fi
method 0 memory-sanitizer 16 "" clang -O1 -g1 -fsanitize=memory -fno-omit-frame-pointer

absent=
method all portable 8 "" "$cc" -O1 -DBSRSPARSE_NO_SIMD

i386=$(first qemu-i386 qemu-i386-static)
if works "$cc" -m32; then absent= compiler="$cc -m32" runner=
elif absent=$(lacks gcc-i686-linux-gnu i686-linux-gnu-gcc); then compiler= runner=
else
    absent= compiler="i686-linux-gnu-gcc -static" runner=
    works $compiler || { runner=$i386; absent=$(lacks qemu-user-static "$i386"); }
fi
method 1 32-bit 10 "$runner" $compiler -O1

number=1
for machine in s390x aarch64; do
    number=$((number + 1))
    emulator=$(first qemu-$machine qemu-$machine-static)
    absent=$(lacks "gcc-$machine-linux-gnu qemu-user-static" $machine-linux-gnu-gcc "$emulator")
    method $number $machine 100 "$emulator" $machine-linux-gnu-gcc -static -O1
done

# All at once, JOBS at a time; a program that was not built fails below.
ls "$w" | sed -n 's/\.build$//p' | xargs -P "${JOBS:-2}" -I NAME sh -c 'sh -u "$1/NAME.build" > "$1/NAME/build.log" 2>&1' _ "$w"

cases_begin "$w/cases"

# ---- tools that read the header: first, as one takes longer than any program ----

reader=all
[ -n "$asked" ] || whole || reader=$(($(turn) % 2))
if wanted analyzer && [ $reader != 1 ]; then
    case_ "gcc -fanalyzer" "$(lacks gcc gcc > /dev/null && echo "echo 'gcc is absent (Debian: apt install gcc)'; exit 77")
gcc -fanalyzer --version > /dev/null 2>&1 || { echo 'this gcc has no -fanalyzer (it came with gcc 10)'; exit 77; }
gcc -std=c99 -O1 -fanalyzer -Werror -DBSRSPARSE_NO_SIMD -I. -c tests/compile/implementation.c -o $w/analyzer.o"
fi
if wanted analyzer && [ $reader != 0 ]; then
    # Each exception has its reason.
    set -- \
        bugprone-easily-swappable-parameters '# rows, columns and strides are int64_t wherever they stand side by side' \
        bugprone-macro-parentheses '# lists of X(name, ...) paste their arguments as names, types and statements' \
        bugprone-branch-clone '# a case for each entry of a list, some of which say the same; constants of this build' \
        bugprone-implicit-widening-of-multiplication-result '# products of constants: how many lanes a few vectors have' \
        bugprone-suspicious-string-compare '# what strncmp and memcmp give is a truth value here: they differ' \
        performance-no-int-to-ptr '# where the base may be null, and where a context remembers what it has warned of'
    checks='-*,bugprone-*,cert-*,clang-analyzer-*,performance-*,portability-*'
    while [ $# -gt 0 ]; do checks="$checks,-$1"; shift 2; done
    case_ "clang-tidy" "command -v clang-tidy > /dev/null ||
    { echo 'clang-tidy is absent (Debian: apt install clang-tidy)'; exit 77; }
clang-tidy --quiet '-checks=$checks' '-header-filter=.*' '-warnings-as-errors=*' tests/compile/implementation.c -- \\
    -std=c99 -I. -DBSRSPARSE_NO_SIMD 2> /dev/null"
fi

# ---- the programs ----

for name in $methods; do
    absent=$(cat "$w/$name/absent")
    if [ -n "$absent" ]; then
        case_ "$name" "echo '$absent'; exit 77"
        continue
    fi
    read -r share runner < "$w/$name/run"
    case_ "$name: builds without a warning" "grep -E 'warning|error' $w/$name/build.log | head -n 5; ! [ -s $w/$name/build.log ]"
    while read -r t; do
        part=$share
        if [ "$t" = test_threads ] || [ "$t" = test_pool ]; then # few cases, and what threads do is not what an emulator is for
            [ -z "$runner" ] || continue
            part=1
        fi
        case_ "$name: $t, one case in $part" "$runner $w/$name/$t -s $part > $w/$name/$t.log 2>&1 && exit 0
grep -E 'FAIL|ERROR|WARNING|runtime error|   #[0-6] ' $w/$name/$t.log | head -n 10; tail -n 1 $w/$name/$t.log; exit 1"
    done < "$w/$name/programs"
done
cases_end
