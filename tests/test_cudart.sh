#!/bin/sh
# The CUDA backend without a GPU: compiles every kernel for sm_80 and sm_90a, writes registers and memory per kernel to
# build/kernels.txt, lets no register spill, and runs the host path against a stand-in of the CUDA runtime (tests/cudart).
# Without nvcc: one skip. Environment: NVCC, CC, CXX. --build: no more than the objects, the list and the program, for
# tests/same_code.sh; nothing where they are there.
set -u
. tests/cases.sh
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

# Both architectures at once; only the second gets a host object. What is there from the same sources is kept.
library=tests/cudart/library.cu
sum=$(cat bsrsparse.h bsrsparse_kernels.cuh tune_table.h $library tests/test_cudart.sh | cksum)
sum=$sum$("$nvcc" --version)
began=$(date +%s)
compile() { # name of the architecture, options
    arch=$1
    shift
    "$nvcc" -std=c++17 -I. -Xptxas -v $strict -gencode "arch=compute_${arch#sm_},code=$arch" "$@" \
        $library > "$w/$arch.log" 2>&1
    echo $? > "$w/$arch.rc"
    echo $(($(date +%s) - began)) > "$w/$arch.time"
}
if ! [ "$(cat "$w/sum" 2>/dev/null)" = "$sum" ]; then
    rm -rf "$w/sum" "$w/library.o" "$w/test_cudart" "$w/keep" "$w/host" "$w"/*.cubin
    mkdir "$w/keep" "$w/host"
    compile sm_80 -cubin -o "$w/sm_80.cubin" &
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
for arch in sm_80 sm_90a; do report $arch; done | sort -k8,8 -k7,7 -k1,1 > "$w/report"
cut -f7 "$w/report" | { c++filt -p 2>/dev/null || cat; } | paste "$w/report" - >> "$list.new"
mv "$list.new" "$list"

# lines ARCH CONDITION: fails with the lines of the list for which the condition holds, or where there are none at all
lines() {
    echo "awk -F'\t' '\$1 == \"$1\" { n++ } \$1 == \"$1\" && $2 { print; bad = 1 } END { exit bad || !n }' $list"
}
for arch in sm_80 sm_90a; do
    case_ "kernels compile for $arch, without a warning" "grep -v '^ptxas info' $w/$arch.log | head -n 12
[ \$(cat $w/$arch.rc) = 0 ]; ! grep -i warning $w/$arch.log; grep -q '^$arch.*kernel' $list"
    case_ "no register spills on $arch" "$(lines $arch '$5 + $6 > 0')"
    case_ "no other local memory on $arch" "$(lines $arch '$4 > 0 && $5 + $6 == 0')"
done
case_ "the same kernels for both architectures" "grep '^sm_80.*kernel' $list | cut -f7 | sort > $w/k80
grep '^sm_90a.*kernel' $list | cut -f7 | sort > $w/k90; comm -23 $w/k80 $w/k90 > $w/lost; cat $w/lost; ! [ -s $w/lost ]"

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
echo "nvcc: sm_80 $(cat "$w/sm_80.time") s, sm_90a with host code $(cat "$w/sm_90a.time") s, both at once"
{ tail -n 1 "$w/static.log"; echo "$line"; } | awk '{ p += $1; f += $3; s += $5 }
    END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }'
