#!/bin/sh
# The compile matrix: compilers, languages, switches, ways to include. An absent compiler is a counted skip. What instruction sets
# have nothing to do with is built without them, in half the time; some builds with them take turns (tests/cases.sh).
# STRICT_* come from the Makefile (make test), one list of flags per compiler.
set -u
. tests/cases.sh
w=${B:-build}/compile
cases_begin "$w/cases"
src=tests/compile
: "${STRICT_gcc:=-Wall -Wextra -Werror}" "${STRICT_clang:=-Wall -Wextra -Werror}" "${STRICT_mingw:=-Wall -Wextra -Werror}"
: "${STRICT_aarch64:=-Wall -Wextra -Werror}" "${STRICT_nvcc:=}" "${STRICT_tcc:=-Wall}" "${STRICT_C:=-Wstrict-prototypes}"
if command -v "${CC:-cc}" >/dev/null 2>&1; then cc=${CC:-cc}; else cc=gcc; fi
case $($cc --version 2>/dev/null | head -n 1) in
    *clang*) strict=$STRICT_clang ;;
    *) strict=$STRICT_gcc ;;
esac
all="product sampled rows attention maps conv moe layouts parse f32 f64 f16 bf16 i8 e4m3"

# mine_now N: by turns, true of one in N of the calls, of others the next time
calls=$(turn)
mine_now() {
    calls=$((calls + 1))
    whole || [ $((calls % $1)) -eq 0 ]
}
# with COMPILER NAME COMMAND: a case that is skipped where the compiler is absent
with() {
    case_ "$2" "command -v $1 >/dev/null 2>&1 || { echo '$1 is absent'; exit 77; }
out=$w/$((case_count + 1)); mkdir -p \$out
$3"
}

# ---- compilers and languages ----

for c in gcc clang; do
    cxx=g++
    [ $c = clang ] && cxx=clang++
    eval "flags=\$STRICT_$c"
    with $c "$c c99" "$c -std=c99 -O0 $flags $STRICT_C -I. $src/switches.c -o \$out/a -lm
\$out/a | grep -q '$all'"
    for std in c11 c17; do
        with $c "$c $std" "$c -std=$std -fsyntax-only $flags $STRICT_C -I. $src/switches.c"
    done
    with $c "$c c99 -O2" "$c -std=c99 -O2 $flags $STRICT_C -I. -c $src/implementation.c -o \$out/a.o"
    if mine_now 2; then # this one's turn, and then the other's
        optimised="-O2 -c -o \$out/a.o"
        with $c "$c gnu17 -O3 -march=native" \
            "$c -std=gnu17 -O3 -march=native $flags $STRICT_C -I. -c $src/implementation.c -o \$out/a.o"
    else optimised=-fsyntax-only
    fi
    more="-Wsign-conversion -Wswitch-enum -Wcast-qual"
    with $c "$c flags" "$c -std=c99 $flags $STRICT_C $more -O2 -I. -c $src/flags.c -o \$out/a.o"
    for std in c++11 c++20; do
        with $cxx "$cxx $std flags" "$cxx -x c++ -std=$std $flags $more -Wold-style-cast -Wenum-compare -O2 -I. -c $src/flags.c -o \$out/a.o"
    done
    with $cxx "$cxx c++11" "$cxx -x c++ -std=c++11 -O0 $flags -I. $src/switches.c -o \$out/a -lm
\$out/a | grep -q '$all'"
    for std in c++14 c++17 c++20; do
        with $cxx "$cxx $std" "$cxx -x c++ -std=$std -fsyntax-only $flags -I. $src/switches.c"
    done
    with $cxx "$cxx c++11 -fno-exceptions -fno-rtti ${optimised%% *}" \
        "$cxx -x c++ -std=c++11 -fno-exceptions -fno-rtti $flags -I. $src/implementation.c $optimised"
done
for c in x86_64-w64-mingw32-gcc x86_64-w64-mingw32-g++; do
    lang="-x c -std=c99 -O1 $STRICT_C"
    [ $c = x86_64-w64-mingw32-g++ ] && lang="-x c++ -std=c++11 -O0"
    with $c "$c" "$c $lang $STRICT_mingw -I. $src/switches.c -o \$out/a.exe -static"
done
with x86_64-w64-mingw32-gcc "mingw-w64 under wine" "command -v wine >/dev/null 2>&1 || { echo 'wine is absent'; exit 77; }
x86_64-w64-mingw32-gcc -std=c99 -O1 -I. $src/switches.c -o \$out/a.exe -static
export WINEPREFIX=\$PWD/\$out/wine WINEDEBUG=-all
timeout 120 wine \$out/a.exe > \$out/log 2>\$out/err || { tail -n 1 \$out/err; grep -q . \$out/log || { echo 'wine does not start here'; exit 77; }; exit 1; }
grep -q '$all' \$out/log"
# MSVC's dialect, ABI and types as clang has them, with stand-ins for its C headers; MSVC itself is not tried.
msvc="--target=x86_64-pc-windows-msvc -fms-compatibility-version=19.29 -ffreestanding -nostdinc -isystem $src/msvc"
for lang in "c -std=c11 $STRICT_C" "c++ -std=c++14"; do
    with clang "clang for MSVC, ${lang%% *}" "clang -x $lang $msvc -isystem \$(clang -print-resource-dir)/include -O0 \\
    $STRICT_clang -I. -c $src/implementation.c -o \$out/a.obj; [ -s \$out/a.obj ]"
done
with aarch64-linux-gnu-g++ aarch64-linux-gnu-g++ \
    "aarch64-linux-gnu-g++ -x c++ -std=c++11 -O0 $STRICT_aarch64 -I. -c $src/implementation.c -o \$out/a.o"
qemu=$(command -v qemu-aarch64 || echo qemu-aarch64-static)
with aarch64-linux-gnu-gcc "aarch64, under qemu" \
    "aarch64-linux-gnu-gcc -std=c99 -O1 $STRICT_aarch64 $STRICT_C -I. $src/switches.c -o \$out/a -static -lm
command -v $qemu >/dev/null 2>&1 || { echo 'it compiles; qemu-aarch64 is absent'; exit 77; }
$qemu \$out/a | grep -q '$all text'"
few="-DBSRSPARSE_ONLY_ROWS -DBSRSPARSE_ONLY_F64" # whole, the kernels take minutes: tests/test_cudart.sh
for c in g++ clang++; do
    eval "flags=\$STRICT_$([ $c = g++ ] && echo gcc || echo clang)"
    with $c "$c, choosers without nvcc" "$c -std=c++17 -O0 $flags -Wno-unused-function -I. $src/choosers.cpp -o \$out/a
\$out/a | grep -q ' passed, 0 failed'"
done
with nvcc "nvcc -DBSRSPARSE_NO_CUDA" "nvcc -x cu -std=c++17 -O0 -DBSRSPARSE_NO_CUDA $STRICT_nvcc -I. $src/switches.c -o \$out/a
\$out/a | grep -q '$all'"
with nvcc "nvcc, few kernels, none that switches leave out" "nvcc -gencode arch=compute_90a,code=sm_90a -x cu -std=c++17 -O0 $few \\
    $STRICT_nvcc -I. --keep --keep-dir \$out $src/switches.c -o \$out/a
\$out/a | grep -q 'rows layouts parse f64'
grep -o 'entry [_A-Za-z0-9]*' \$out/switches.ptx > \$out/names; grep -q 'softmax_simtI.*tileId' \$out/names
! grep -E 'product|sampled|attention|moe_|map_stored|reduce_|softmax_(simtI.*tileIf|fast)' \$out/names"
with nvcc "nvcc, smallest_cuda.cu" "nvcc -std=c++17 -I. -DBSRI_IMPLEMENTED -c examples/smallest_cuda.cu -o \$out/a.o"
with nvcc "nvcc, multi_gpu.cu" "echo '#include <nccl.h>' | nvcc -x c++ -E - > /dev/null 2>&1 || { echo 'NCCL is absent'; exit 77; }
nvcc -std=c++17 -I. -DBSRI_IMPLEMENTED $STRICT_nvcc -c examples/multi_gpu.cu -o \$out/a.o"
! mine_now 3 || with nvcc "nvcc, user functions" "nvcc -arch=sm_80 -x cu -std=c++17 -O0 -DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_ATTENTION \\
    -DBSRSPARSE_ONLY_F32 $STRICT_nvcc -I. examples/user_functions.c -o \$out/a; \$out/a | tail -n 1 | grep -qx ok"
with tcc "tcc" "tcc $STRICT_tcc -I. $src/switches.c -o \$out/a -lm
\$out/a | grep -q '$all'"
for c in gcc clang; do
    eval "flags=\$STRICT_$c"
    for e in examples/*.c; do # the implementation apart, but where it calls the example's functions
        apart=-DBSRI_IMPLEMENTED
        [ $e != examples/user_functions.c ] || apart=
        with $c "$c ${e#examples/}" "$c -std=c99 $apart $flags $STRICT_C -I. -fsyntax-only $e"
    done
done

# ---- ways to include ----

mine() { with "$cc" "$1" "$2"; } # with the compiler that make uses
mine "the header alone in an empty folder" "cp bsrsparse.h $src/switches.c \$out && cd \$out
$cc -std=c99 -O0 $strict switches.c -o a -lm && ./a '$all simd text' || ./a '$all text'"
portable=-DBSRSPARSE_NO_SIMD
mine "many files, implementation once" "for f in main_plain plain implementation; do
    $cc -std=c99 -O0 $portable $strict -I. -c $src/\$f.c -o \$out/\$f.o; done; cd \$out
$cc main_plain.o plain.o implementation.o -o a -lm && ./a; $cc implementation.o plain.o main_plain.o -o b -lm && ./b"
mine "any order in one file" "$cc -std=c99 -O0 $portable $strict -I. $src/main_plain.c $src/plain.c $src/mixed_orders.c -o \$out/a -lm && \$out/a"
mine "the implementation missing: does not link" "! $cc -std=c99 -I. $src/main_plain.c $src/plain.c -o \$out/a -lm 2>/dev/null"
mine "two modules with private copies" "for f in main one two; do
    $cc -std=c99 -O0 $portable $strict -I. -c tests/modules/\$f.c -o \$out/\$f.o; done; cd \$out
$cc main.o one.o two.o -o a -lm && ./a
nm -g --defined-only one.o | awk 'NF { print \$3 }' | grep -qx module_one; [ \$(nm -g --defined-only one.o | grep -c .) -eq 1 ]"
for pair in "gcc g++" "clang clang++"; do
    set -- $pair
    with "$2" "C implementation, C++ user ($pair)" "$1 -std=c99 -O0 $portable -I. -c $src/implementation.c -o \$out/i.o
$2 -x c++ -std=c++11 -I. -c $src/plain.c -o \$out/p.o; $2 -x c++ -c $src/main_plain.c -o \$out/m.o; $2 \$out/?.o -o \$out/a -lm && \$out/a"
    with "$2" "C++ implementation, C user ($pair)" "$2 -x c++ -std=c++11 -O0 $portable -I. -c $src/implementation.c -o \$out/i.o
$1 -std=c99 -I. -c $src/plain.c -o \$out/p.o; $1 -c $src/main_plain.c -o \$out/m.o; $2 \$out/?.o -o \$out/a -lm && \$out/a"
done

# ---- switches: DEFINES, what remains ----

# Of four, by turns, one is built with vector code and run, one is run without it, two are only looked at by clang.
switch() {
    build="$cc -std=c99 -O0 $strict $STRICT_C -I. $1 $src/switches.c -o \$out/a -lm"
    look="clang -std=c99 $STRICT_clang $STRICT_C -I. $1 -fsyntax-only $src/switches.c"
    if ! mine_now 4; then
        if [ $((calls % 4)) -ne 2 ] && command -v clang > /dev/null 2>&1; then
            mine "switch $1" "$look"
            return
        fi
        build="! command -v clang > /dev/null || $look
$build $portable"
    fi
    mine "switch $1" "$build; \$out/a > \$out/log || { cat \$out/log; exit 1; }
sed -n 's/^this build has: //p' \$out/log | sed 's/ simd//; s/ threads//; s/ text//' > \$out/have
echo '$2' | diff - \$out/have"; }
without() { # words of \$all that remain without the words given
    for word in $all; do
        case " $* " in *" $word "*) ;; *) printf '%s ' "$word" ;; esac
    done | sed 's/ $//'
}
operations="product sampled rows attention maps conv moe"
types="f32 f64 f16 bf16 i8"
upper() { echo "$1" | tr a-z A-Z; }
for s in layouts; do switch "-DBSRSPARSE_NO_$(upper $s)" "$(without $s)"; done
switch -DBSRSPARSE_NO_IO "$(without parse)"
for s in $operations $types; do switch "-DBSRSPARSE_NO_$(upper $s)" "$(without $s)"; done
for s in product sampled maps conv; do switch "-DBSRSPARSE_ONLY_$(upper $s)" "$(without $(echo $operations | sed "s/$s//"))"; done
for s in rows attention moe; do switch "-DBSRSPARSE_ONLY_$(upper $s)" "$(without i8 e4m3 $(echo $operations | sed "s/$s//"))"; done # no i8 there
for s in f32 f64 f16 bf16; do switch "-DBSRSPARSE_ONLY_$(upper $s)" "$(without e4m3 $(echo " $types " | sed "s/ $s / /"))"; done
switch -DBSRSPARSE_ONLY_I8 "product sampled maps conv layouts parse i8"
switch -DBSRSPARSE_NO_F8 "$(without e4m3)"
switch -DBSRSPARSE_NO_SCALES "$all"
switch -DBSRSPARSE_ONLY_F8 "product sampled maps conv layouts parse e4m3"
switch "-DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_F32" "product layouts parse f32"
switch "-DBSRSPARSE_ONLY_PRODUCT -DBSRSPARSE_ONLY_ROWS -DBSRSPARSE_ONLY_F32 -DBSRSPARSE_ONLY_F16" "product rows layouts parse f32 f16"
switch "-DBSRSPARSE_ONLY_ATTENTION -DBSRSPARSE_ONLY_BF16 -DBSRSPARSE_NO_IO -DBSRSPARSE_NO_LAYOUTS -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_ERROR_TEXT" "attention bf16"
switch "-DBSRSPARSE_NO_PRODUCT -DBSRSPARSE_NO_SAMPLED -DBSRSPARSE_NO_ROWS -DBSRSPARSE_NO_ATTENTION -DBSRSPARSE_NO_MAPS -DBSRSPARSE_NO_CONV -DBSRSPARSE_NO_MOE -DBSRSPARSE_NO_QUANTISE" "layouts parse"
switch -DBSRSPARSE_NO_CUDA "$all"
switch "-DBSRSPARSE_NO_SIMD" "$all"
switch "-DBSRSPARSE_NO_ERROR_TEXT" "$all"
mine "BSRSPARSE_NO_SIMD is portable" "$cc -std=c99 -O0 -DBSRSPARSE_NO_SIMD -I. $src/switches.c -o \$out/a -lm && \$out/a '$all text'"
mine "BSRSPARSE_NO_ERROR_TEXT has none" "$cc -std=c99 -O0 -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_ERROR_TEXT -I. $src/switches.c -o \$out/a -lm
\$out/a '$all'; ! strings \$out/a | grep -q 'the output overlaps operand'"
mine "BSRSPARSE_NO_OPENMP has one thread" "[ -n '${OPENMP:-}' ] || { echo '$cc has no OpenMP'; exit 77; }
$cc -std=c99 -O0 ${OPENMP:-} -DBSRSPARSE_NO_SIMD -DBSRSPARSE_NO_OPENMP -I. $src/switches.c -o \$out/a -lm; OMP_NUM_THREADS=2 \$out/a '$all text'
$cc -std=c99 -O0 ${OPENMP:-} $strict -DBSRSPARSE_NO_SIMD -I. $src/switches.c -o \$out/b -lm; OMP_NUM_THREADS=2 \$out/b '$all threads text'"
mine "BSRSPARSE_STATIC" "$cc -std=c99 -O0 $portable $strict $STRICT_C -DBSRSPARSE_STATIC -I. $src/switches.c -o \$out/a -lm && \$out/a"
mine "BSRSPARSE_STATIC, declarations only" "printf '#include \"bsrsparse.h\"\nint main(void) { return 0; }\n' > \$out/a.c
$cc -std=c99 $portable -DBSRSPARSE_IMPLEMENTATION -DBSRSPARSE_STATIC $strict -I. \$out/a.c -o \$out/a -lm && \$out/a"
mine "BSRSPARSE_ASSERT" "$cc -std=c99 -O0 $portable $strict -include assert.h '-DBSRSPARSE_ASSERT(x)=assert(x)' -I. $src/switches.c -o \$out/a -lm && \$out/a
$cc -std=c99 -O0 -D_POSIX_C_SOURCE=200809L -include assert.h '-DBSRSPARSE_ASSERT(x)=assert(x)' -I. examples/attention.c -o \$out/b -lm && \$out/b | tail -n 1 | grep -qx ok"
mine "BSRSPARSE_MALLOC and _FREE" "$cc -std=c99 -O0 $portable $strict -I. $src/allocator.c -o \$out/a -lm && \$out/a"
mine "BSR_API" "$cc -std=c99 -O0 $portable $strict -fPIC -shared -fvisibility=hidden '-DBSR_API=__attribute__((visibility(\"default\")))' -I. $src/implementation.c -o \$out/a.so -lm
nm -D --defined-only \$out/a.so | awk '{ print \$3 }' | grep '^bsr' | sort > \$out/have; sh tests/declared.sh bsrsparse.h | diff - \$out/have"
mine "BSRSPARSE_NO_TUNE_TABLE" "cp bsrsparse.h \$out; echo '#error included' > \$out/tune_table.h
$cc -std=c99 -O0 $portable $strict -DBSRSPARSE_NO_TUNE_TABLE -I\$out $src/switches.c -o \$out/a -lm && \$out/a
! $cc -std=c99 -O0 -I\$out -fsyntax-only $src/switches.c 2>/dev/null"
mine "BSRSPARSE_TUNE_TABLE" "cp bsrsparse.h \$out; cp tune_table.h \$out/mine.h
$cc -std=c99 -O0 $portable $strict '-DBSRSPARSE_TUNE_TABLE=\"mine.h\"' -I\$out $src/switches.c -o \$out/a -lm && \$out/a
! $cc -std=c99 -O0 '-DBSRSPARSE_TUNE_TABLE=\"none.h\"' -I\$out -fsyntax-only $src/switches.c 2>/dev/null"
mine "BSRSPARSE_USER_FUNCTIONS" "$cc -std=c99 -O0 $portable $strict $STRICT_C -I. examples/user_functions.c -o \$out/a -lm && \$out/a | tail -n 1 | grep -qx ok"

# ---- mixes that must not compile ----

for d in "-DBSRSPARSE_MALLOC(n)=0" "-DBSRSPARSE_FREE(p)=(void)(p)"; do
    mine "refused: $d" "! $cc -std=c99 '$d' -I. -fsyntax-only $src/implementation.c 2> \$out/err; grep -q 'define both' \$out/err"
done
mine "refused: an unknown file of user functions" "! $cc -std=c99 '-DBSRSPARSE_USER_FUNCTIONS=\"none.h\"' -I. -fsyntax-only $src/implementation.c 2>/dev/null"

cases_end
