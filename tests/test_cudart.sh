#!/bin/sh
# The CUDA backend without a GPU: compiles kernels for sm_90a, and for sm_80 where it is that one's turn (tests/kernel_shares.sh);
# writes registers and memory per kernel to build/kernels.txt, lets no register spill, and runs the host path, all of it, against a
# stand-in of the CUDA runtime (tests/cudart). What the list says of kernels that are left out is the golden file's.
# Without nvcc: one skip. Environment: NVCC, CC, CXX, SHARE (all: every kernel, for both), TURN. --build: no more than the objects,
# the list and the program, for tests/same_code.sh; nothing where they are there.
set -u
. tests/cases.sh
. tests/kernel_shares.sh
nvcc=${NVCC:-nvcc}
w=build/cudart
cases_begin "$w/cases"
if ! command -v "$nvcc" > /dev/null 2>&1; then
    echo "skip the CUDA backend: $nvcc is absent"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if command -v "${CC:-cc}" >/dev/null 2>&1; then cc=${CC:-cc}; else cc=gcc; fi
case $cc in *gcc* | *clang* | cc) ;; *) cc=gcc ;; esac
include=$(cd "$(dirname "$(readlink -f "$(command -v "$nvcc")")")/../include" 2>/dev/null && pwd)
list=build/kernels.txt
strict='--Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror'

# Both architectures at once; only sm_90a gets a host object. What is there from the same sources is kept: every kernel, or the
# same share.
library=tests/cudart/library.cu
sum=$(cat bsrsparse.h bsrsparse_kernels.cuh tune_table.h $library tests/test_cudart.sh tests/kernel_shares.sh | cksum)
sum=$sum$("$nvcc" --version)
part=all archs="sm_80 sm_90a"
if ! whole && [ "$(cat "$w/sum" 2> /dev/null)" != "$sum $part $archs" ]; then
    part=$(($(turn) % 6)) archs=sm_90a
    [ "$(other_arch)" != 80 ] || archs="sm_80 sm_90a"
fi
sum="$sum $part $archs"
began=$(date +%s)
compile() { # name of the architecture, options
    arch=$1
    shift
    "$nvcc" -std=c++17 "-I$w/source" -Xptxas -v $strict -gencode "arch=compute_${arch#sm_},code=$arch" "$@" \
        $library > "$w/$arch.log" 2>&1
    echo $? > "$w/$arch.rc"
    echo $(($(date +%s) - began)) > "$w/$arch.time"
}
if ! [ "$(cat "$w/sum" 2>/dev/null)" = "$sum" ]; then
    rm -rf "$w/sum" "$w/library.o" "$w/test_cudart" "$w/keep" "$w/host" "$w"/*.cubin "$w"/sm_*.*
    mkdir "$w/keep" "$w/host"
    if [ $part = all ]; then kernels_whole "$w"; else kernels_of_turn "$w"; fi
    case $archs in *sm_80*) compile sm_80 -cubin -o "$w/sm_80.cubin" & ;; esac
    compile sm_90a -O1 -c -o "$w/library.o" --keep --keep-dir "$w/keep" # for the cubin, and tests/mutants.py
    mv "$w/keep/library.cubin" "$w/sm_90a.cubin"
    mv "$w/keep/library.cudafe1.stub.c" "$w/keep/library.fatbin.c" "$w/keep/library.module_id" "$w/host" && rm -rf "$w/keep"
    wait
    echo "$sum" > "$w/sum"
elif [ "${1:-}" = --build ] && [ -z "$(find tests/cudart tests/*.h -newer "$w/test_cudart" 2>&1)" ]; then
    exit 0
fi

# ptxas' report: one line for each kernel, the mangled name last but one.
report() {
    awk -v arch="$1" '
        /Compiling entry function/ { split($0, part, "\047"); entry[part[2]] = 1 }
        /Function properties for/ { name = $NF }
        /bytes stack frame/ {
            for (i = 1; i <= NF; i++) {
                if ($i == "stack") stack = $(i - 2)
                if ($i == "spill") { if ($(i + 1) ~ /stores/) stores = $(i - 2); else loads = $(i - 2) }
            }
            all[name] = stack "\t" stores "\t" loads
        }
        /Used [0-9]+ registers/ {
            match($0, /Used [0-9]+/); used[name] = substr($0, RSTART + 5, RLENGTH - 5)
            shared[name] = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
        }
        END {
            for (name in all) printf "%s\t%d\t%d\t%s\t%s\t%s\n", arch, used[name], shared[name], all[name], name, \
                name in entry ? "kernel" : "function"
        }' "$w/$1.log"
}
echo '# arch, registers, static shared memory, stack, spill stores, spill loads (bytes), mangled name, kind, name' > "$list.new"
for arch in $archs; do report $arch; done | sort -k8,8 -k7,7 -k1,1 > "$w/report"
cut -f7 "$w/report" | { c++filt -p 2>/dev/null || cat; } | paste "$w/report" - > "$w/named"
# The figures of what returns at once are the golden file's; a kernel that it lacks has none.
awk -F'\t' -v OFS='\t' -v missing="$w/missing" '
    BEGIN { printf "" > missing }
    FILENAME == ARGV[1] { out[$1] = 1; next }
    FILENAME == ARGV[2] { if (!/^#/) { of["sm_80", $11] = $1 OFS $4 OFS $3 OFS $2; of["sm_90a", $11] = $6 OFS $9 OFS $8 OFS $7 }; next }
    { base = $9; sub(/<.*/, "", base) }
    $8 == "kernel" && base in out {
        if (of[$1, $9] !~ /^[0-9]/) { print $9 > missing; next }
        split(of[$1, $9], is, OFS); $2 = is[1]; $3 = is[2]; $4 = is[3]; $5 = is[4]; $6 = 0
    }
    { print }' "$w/left_out" tests/golden/kernels.txt "$w/named" >> "$list.new"
mv "$list.new" "$list"

# lines ARCH CONDITION: fails with the lines of the list for which the condition holds, or where there are none at all
lines() {
    echo "awk -F'\t' '\$1 == \"$1\" { n++ } \$1 == \"$1\" && $2 { print; bad = 1 } END { exit bad || !n }' $list"
}
[ $part = all ] || echo "compiled: share $part of 6 of the kernels, for $archs (SHARE=all: every kernel, for sm_80 and sm_90a)"
for arch in $archs; do
    case_ "kernels compile for $arch, without a warning" "grep -v '^ptxas info' $w/$arch.log | head -n 12
[ \$(cat $w/$arch.rc) = 0 ]; ! grep -i warning $w/$arch.log; grep -q '^$arch.*kernel' $list"
    case_ "no register spills on $arch" "$(lines $arch '$5 + $6 > 0')"
    case_ "no other local memory on $arch" "$(lines $arch '$4 > 0 && $5 + $6 == 0')"
done
case_ "the golden file has the kernels that are left out" "sort -u $w/missing; ! [ -s $w/missing ] || {
echo 'SHARE=all sh tests/test_cudart.sh compiles all; sh tests/same_code.sh --update adds them'; exit 1; }"
case $archs in *80*) case_ "the same kernels for both architectures" "grep '^sm_80.*kernel' $list | cut -f7 | sort > $w/k80
grep '^sm_90a.*kernel' $list | cut -f7 | sort > $w/k90; comm -23 $w/k80 $w/k90 > $w/lost; cat $w/lost; ! [ -s $w/lost ]" ;; esac

flags="-std=c99 -Wall -Wextra -O1 -g -I. -Itests -Itests/cudart -DBSRI_IMPLEMENTED -isystem $include"
program="$cc $flags -c tests/cudart/test_cudart.c -o $w/test_cudart.o
$cc $flags -c tests/cudart/stand_in.c -o $w/stand_in.o
nm -u $w/library.o | awk '{ print \$2 }' | grep -E '^(__)?cuda' | sort > $w/wants
nm --defined-only $w/stand_in.o | awk '\$2 == \"T\" { print \$3 }' | sort > $w/has
comm -23 $w/wants $w/has > $w/lacks
if [ -s $w/lacks ]; then echo 'tests/cudart/stand_in.c lacks:'; cat $w/lacks; exit 1; fi
${CXX:-c++} $w/test_cudart.o $w/library.o $w/stand_in.o -o $w/test_cudart -lm"
case_ "the stand-in has all that the library calls" "$program"
cases_end > "$w/static.log"
sed '$d' "$w/static.log"
[ "${1:-}" != --build ] || exit 0

# The program's own closing line is added to the script's.
if [ -x "$w/test_cudart" ] && [ "$(cat "$w/sm_90a.rc")" = 0 ]; then
    "$w/test_cudart" "$list" sm_90a > "$w/program.log" 2>&1
    code=$?
    sed '$d' "$w/program.log"
    line=$(tail -n 1 "$w/program.log")
    case $line in *" passed, "*) ;; *) echo "$line"; line="0 passed, 1 failed, 0 skipped (exit status $code)" ;; esac
else
    line="0 passed, 1 failed, 0 skipped"
fi
awk -F'\t' '/^sm_/ && $8 == "kernel" { n[$1]++; if ($2 > r[$1]) r[$1] = $2; if ($3 > s[$1]) s[$1] = $3 }
    END { for (a in n) printf "%s: %d kernels, at most %d registers, %d bytes of static shared memory\n", a, n[a], r[a], s[a]
    }' "$list"
for arch in $archs; do echo "nvcc: $arch $(cat "$w/$arch.time") s"; done
{ tail -n 1 "$w/static.log"; echo "$line"; } | awk '{ p += $1; f += $3; s += $5 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }'
