#!/bin/sh
# Static checks: the header's contents list, anchors and symbols; what the README quotes; small things in the sources.
set -u
. tests/cases.sh
w=${B:-build}/check
cases_begin "$w/cases"
tmp=$w/tmp
rm -rf "$tmp" && mkdir -p "$tmp"
if command -v "${CC:-cc}" >/dev/null 2>&1; then cc=${CC:-cc}; else cc=gcc; fi
sources="bsrsparse.h bsrsparse_kernels.cuh tune_table.h $(ls examples/*.[ch] examples/*.cu tests/*.[ch] tests/*.cu* tests/*.inc \
    tests/mutants.py tests/numpy_differ.py tests/files.py tests/python_*.py tests/bridge.py tests/methods.sh tests/install.sh \
    examples/python/*.py examples/python/*.cpp examples/cmake/*.* examples/cmake/package/* tests/compile/*.* tests/compile/msvc/* \
    tests/cudart/* tests/device/* tests/fuzz/*.[ch] tests/gpu/*.[ch]* tests/modules/* 2>/dev/null | tr '\n' ' ')"

# ---- the header ----

for f in bsrsparse.h bsrsparse_kernels.cuh; do
    sed -n 's|^/\* >>\([a-z0-9-]*\): *\(.*[^ ]\) *\*/$|\1 \2|p' $f | sed 's/  */ /g' > "$tmp/$f.anchors"
    awk '/^   CONTENTS/ { on = 1; next } on && !NF { exit } on { last = /\*\/$/; sub(/ *\*\/$/, ""); $1 = $1; sub(/^>>/, ""); print
        if (last) exit }' $f > "$tmp/$f.contents"
    case_ "$f: the contents list is the list of anchors" "[ -s $tmp/$f.contents ]; diff $tmp/$f.contents $tmp/$f.anchors"
done
cat "$tmp"/*.anchors > "$tmp/anchors"
case_ "no anchor twice" "cut -d' ' -f1 $tmp/anchors | sort | uniq -d > $tmp/twice; cat $tmp/twice; ! [ -s $tmp/twice ]"
case_ "every >>name in a comment is an anchor" "grep -ho '(>>[a-z0-9-]*' bsrsparse.h bsrsparse_kernels.cuh | sed 's/(>>//' | sort -u > $tmp/named
cut -d' ' -f1 $tmp/anchors | sort > $tmp/sorted; comm -23 $tmp/named $tmp/sorted > $tmp/bad; cat $tmp/bad; ! [ -s $tmp/bad ]"
case_ "no number twice in a list of names and numbers" "awk '/^#define BSR[A-Z_]*\\(X\\)/ { list = \$2 } match(\$0, /^ *X\\([A-Z0-9_]+, [0-9]+,/) {
split(substr(\$0, RSTART, RLENGTH), part, \", *\"); n++; if (seen[list, part[2]]++) { print \$0; bad = 1 } } END { exit bad || !n }' bsrsparse.h"
{ # the kernel table with everything switched on, a number a line
    awk '/^#define BSRI_(KERNELS|WHEN)/ { on = 1 } on { print; on = /\\$/ }' bsrsparse.h
    grep -oE 'BSRI_HAS_[A-Z0-9_]+' bsrsparse.h | sort -u | sed 's/.*/#define & 1/'
    printf '#define X(name, number, ...) @ number;\nBSRI_KERNELS(X) BSRI_KERNELS_MATRICES(X)\n'
} | $cc -E -P -x c - 2> /dev/null | tr '@' '\n' | sed -n 's/^ *\([0-9 +]*\);.*/\1/p' |
    awk '{ n = 0; for (i = 1; i <= NF; i++) n += $i; print n }' | sort -n > "$tmp/kernels"
case_ "no number twice in the kernel table" "uniq -d $tmp/kernels > $tmp/twice; cat $tmp/twice; ! [ -s $tmp/twice ] && [ \$(grep -c . $tmp/kernels) -gt 100 ]"
case_ "declarations end before the implementation" "sed '/^#endif .* BSRSPARSE_H /q' bsrsparse.h | grep -c 'bsri_.*{\$' | grep -qx 0"
case_ "the licence in the header is that of the file LICENSE" "tr -s ' \n' ' ' < LICENSE | grep -o 'Permission is.*' | sed 's/ *\$//' > $tmp/l1
sed -n '/^MIT No Attribution/,\$p' bsrsparse.h | sed 's:\*/::' | tr -s ' \n' ' ' | grep -o 'Permission is.*' | sed 's/ *\$//' > $tmp/l2; diff $tmp/l1 $tmp/l2"

# ---- the object ----

$cc -std=c99 -O1 -fno-pic -I. -c tests/compile/implementation.c -o "$tmp/s.o"
case_ "symbols: all that is declared, nothing else" "nm -g --defined-only $tmp/s.o | awk 'NF { print \$3 }' | sort > $tmp/have; sh tests/declared.sh bsrsparse.h | diff - $tmp/have"
case_ "no writable data" "nm $tmp/s.o > $tmp/all; awk '\$2 ~ /^[BbDdCcSs]\$/' $tmp/all > $tmp/data; cat $tmp/data; ! [ -s $tmp/data ]"
case_ "nothing that prints, exits or reads the environment" "nm -u $tmp/s.o > $tmp/undefined; awk '{ print \$2 }' $tmp/undefined > $tmp/need; cat $tmp/need
! grep -Eqx '_?(exit|abort|printf|puts|putchar|fputs|fputc|fprintf|fwrite|perror|getenv|fopen|stdout|stderr|__assert_fail)' $tmp/need"

# ---- the README ----

awk -v tmp="$tmp" '/^<!-- quote [^ ]* -->$/ { name = $3; next }
    /^```/ && name { if (on) { close(out); on = 0; name = "" } else { on = 1; n++; out = tmp "/quote" n; print name > (tmp "/quotes") } next }
    on { print > out }' README.md
case_ "code in the README is that of the files it quotes" "n=0; while read -r file; do n=\$((n + 1)); diff $tmp/quote\$n \$file; done < $tmp/quotes"
case_ "every public function is in the README" "for f in \$(sh tests/declared.sh bsrsparse.h); do grep -q \"\$f\" README.md || echo \$f; done > $tmp/missing
cat $tmp/missing; ! [ -s $tmp/missing ]"
case_ "every build switch is in manual and README" "grep -E '^ *#.*(ifdef|ifndef|defined|include)' bsrsparse.h | grep -o 'BSRSPARSE_[A-Z0-9_]*' | sort -u |
    grep -v -e 'BSRSPARSE_H\$' -e _TUNE_TABLE_H > $tmp/switches
sed '/^   BACKENDS AND/q' bsrsparse.h > $tmp/manual
while read -r s; do short=\${s#BSRSPARSE_}; short=\${short#NO_}; short=\${short#ONLY_}
    for f in README.md $tmp/manual; do grep -q \"\$s\" \$f || grep -q \"BSRSPARSE_.*_\$short\" \$f || echo \"\$s is not in \$f\"; done
done < $tmp/switches > $tmp/unknown; cat $tmp/unknown; ! [ -s $tmp/unknown ]"
tr -s ' \n' ' ' < README.md > "$tmp/readme"
tr '\n' ' ' < tests/differences.inc | sed 's/X("/\nX("/g' | sed -n 's/^X("[^"]*", *"[^"]*", *"\(.*\)") *$/\1/p' |
    sed 's/\([^\\]\)" *"/\1/g; s/\\"/"/g' > "$tmp/differences"
case_ "every intended difference is in the README" "[ \$(grep -c . $tmp/differences) -eq \$(grep -c '^X(' tests/differences.inc) ]
while read -r line; do grep -qF -- \"\$line\" $tmp/readme || echo \"\$line\"; done < $tmp/differences > $tmp/gone; cat $tmp/gone; ! [ -s $tmp/gone ]"
case_ "every file that the README names is there" "grep -o '\`[a-z_]*/[a-z0-9_./]*\`' README.md | tr -d '\`' | grep -v '^build/' | sort -u > $tmp/files
while read -r f; do ls \$f > /dev/null 2>&1 || echo \$f; done < $tmp/files > $tmp/nofiles; cat $tmp/nofiles; ! [ -s $tmp/nofiles ]"
case_ "the README has at most 400 lines of 120 columns" "awk 'length(\$0) > 120 { print FILENAME \":\" FNR; bad = 1 } END { exit bad || NR > 400 }' README.md"
case_ "every note that a comment names is there" "grep -ohE 'note N[0-9]+' bsrsparse.h bsrsparse_kernels.cuh | sort -u | sed 's/note //' > $tmp/notes; [ -s $tmp/notes ]
while read -r n; do grep -q \"^## \$n \" tests/results/h200_notes.md || echo \$n; done < $tmp/notes > $tmp/nonotes; cat $tmp/nonotes; ! [ -s $tmp/nonotes ]"

# ---- sources ----

case_ "no line above 130 columns" "awk 'length(\$0) > 130 { print FILENAME \":\" FNR; bad = 1 } END { exit bad }' $sources"
case_ "no tabs, no blanks at line ends" "! grep -nE '[[:blank:]]\$|	' $sources"
case_ "GPU tests fill device memory by gm_fill and gm_put, for which all streams wait" "! grep -nE 'cudaMemset\\(|cudaMemcpy\\(.*HostToDevice' tests/gpu/*"
case_ "nothing left to do" "! grep -nwE 'TO''DO|FIX''ME|XX''X|HA''CK' $sources README.md"
case_ "no machine paths" "! grep -nE '/(home|root|work|Users)/' $sources README.md Makefile tests/*.sh"
case_ "every edit of tests/mutants.txt finds its text" "command -v python3 > /dev/null || { echo 'python3 is absent'; exit 77; }
python3 tests/mutants.py --check"
case_ "examples stay under 120 lines" "for f in examples/*.* examples/cmake/*.* examples/cmake/package/*; do
case \$f in */spmm.c | */tune.c | */multi_gpu.cu) continue ;; esac # programs of several parts
[ \$(wc -l < \$f) -lt 120 ] || { echo \$f; exit 1; }; done"
cases_end
