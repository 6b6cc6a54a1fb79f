#!/bin/sh
# Machine code and choices against tests/golden/, so that a change that is meant to leave them shows that it does:
#   kernels.txt   each kernel's figures and a hash of its machine code (tests/cudart/cubin.c), for the nvcc that its head names
#   plans.txt     which kernel, tile and launch a call gets, and the estimates' bits (tests/cudart/plans.h), a hash for each group
#                 of calls. The estimates may depend on compiler and C library: with others than the head names a difference skips
#   code          a hash of all that but estimates and names: see tests/record.sh
# Takes what tests/test_cudart.sh has compiled: kernels that are not of the commit's share, and sm_80 where it is not that one's
# turn, stand as in the golden file; SHARE=all and --update compile all. A kernel that was renamed or moved is found by its code,
# and its plans by its old name. Also writes build/plans.tsv, every call's line: to see what differs, diff it with that of the
# older commit.
#   sh tests/same_code.sh            checks
#   sh tests/same_code.sh --update   writes tests/golden/, says what has changed
# Environment: NVCC, CC, CXX, SHARE, TURN.
set -u
LC_ALL=C
export LC_ALL
. tests/cases.sh
if [ "${1:-}" = --update ]; then SHARE=all; fi
export SHARE
nvcc=${NVCC:-nvcc} cudart=build/cudart w=build/same_code golden=tests/golden
cases_begin "$w/cases"
if ! command -v "$nvcc" > /dev/null 2>&1; then
    echo "0 passed, 0 failed, 1 skipped: $nvcc is absent"
    exit 0
fi
cc=cc
command -v cc > /dev/null 2>&1 || cc=gcc
tab=$(printf '\t')
sh tests/test_cudart.sh --build > "$w/build.log" 2>&1
if ! [ -x $cudart/test_cudart ] || ! $cc -std=c99 -O1 -o "$w/cubin" tests/cudart/cubin.c; then
    tail -n 20 "$w/build.log" | grep FAIL
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
host="$(${CXX:-c++} -dumpfullversion 2>/dev/null || ${CXX:-c++} --version | head -n 1), $(getconf GNU_LIBC_VERSION 2>/dev/null), $(uname -m)"
version=$("$nvcc" --version | sed -n 's/.*, V\([0-9.]*\)$/\1/p')

# ---- what there is ----

for arch in sm_80 sm_90a; do
    [ ! -f "$cudart/$arch.cubin" ] || "$w/cubin" "$cudart/$arch.cubin" | sed "s/^/$arch$tab/"
done > "$w/hashes" || exit 1
[ -f $golden/kernels.txt ] || touch $golden/kernels.txt $golden/plans.txt $golden/code
# A line a kernel: sm_80's registers, spilled bytes, stack, shared memory, hash; sm_90a's; name.
awk -F'\t' -v OFS='\t' -v names="$w/names" '
    FILENAME == ARGV[1] { hash[$1, $3] = $2; compiled[$1] = 1; next }
    FILENAME == ARGV[2] { out[$1] = 1; next }
    FILENAME == ARGV[3] {
        if (/^#/) next
        golden["sm_80", $11] = $1 OFS $2 OFS $3 OFS $4 OFS $5
        golden["sm_90a", $11] = $6 OFS $7 OFS $8 OFS $9 OFS $10
        next
    }
    $8 == "kernel" {
        base = $9; sub(/<.*/, "", base)
        of[$1, $9] = $2 OFS $5 + $6 OFS $4 OFS $3 OFS (($1, $7) in hash ? hash[$1, $7] : "none")
        if (base in out) of[$1, $9] = golden[$1, $9]
        all[$9] = 1
        if ($1 == "sm_90a") print $7, $9, code("sm_80", $7, $9) code("sm_90a", $7, $9) > names
    }
    function code(arch, mangled, name) { # its hash, the golden one where it is not compiled
        if (arch in compiled && !(base in out)) return hash[arch, mangled]
        split(golden[arch, name], part, OFS)
        return part[5] ~ /^[0-9a-f]+$/ && length(part[5]) == 16 ? part[5] : ""
    }
    function figures(arch, name) {
        if (!(arch in compiled) && (arch, name) in golden) return golden[arch, name]
        return (arch, name) in of ? of[arch, name] : "-" OFS "-" OFS "-" OFS "-" OFS "-"
    }
    END { for (name in all) print figures("sm_80", name), figures("sm_90a", name), name }
    ' "$w/hashes" "$cudart/left_out" $golden/kernels.txt build/kernels.txt | sort -t "$tab" -k11 > "$w/kernels"
"$cudart/test_cudart" build/kernels.txt sm_90a --plans > "$w/plans" || rm -f "$w/plans"

# ---- kernels: same, changed, renamed (the same figures and code by another name), new, gone ----

grep -v '^#' $golden/kernels.txt > "$w/old"
awk -F'\t' -v OFS='\t' -v map="$w/renamed" '
    { name = $11; figures = $0; sub(/\t[^\t]*$/, "", figures) }
    FILENAME == ARGV[1] { old[name] = figures; next }
    { now[name] = figures; order[++n] = name }
    END {
        printf "" > map
        for (name in old) if (!(name in now)) gone[old[name]] = gone[old[name]] "\n" name
        for (i = 1; i <= n; i++) {
            name = order[i]
            if (!(name in old)) {
                if (gone[now[name]] != "") {
                    split(gone[now[name]], part, "\n")
                    gone[now[name]] = substr(gone[now[name]], length(part[2]) + 2)
                    print "renamed", part[2], name
                    print name, part[2] > map
                } else print "new", name, now[name]
            } else print old[name] == now[name] ? "same" : "changed", name, old[name] " -> " now[name]
        }
        for (figures in gone) {
            k = split(gone[figures], part, "\n")
            for (i = 2; i <= k; i++) print "gone", part[i], figures
        }
    }' "$w/old" "$w/kernels" > "$w/compared"
summary=$(for what in same changed renamed new gone; do printf '%s %s, ' "$(grep -c "^$what$tab" "$w/compared")" $what; done | sed 's/, $//')

# ---- plans: names as the golden file has them; then by code alone ----

# as MAP: the plans, mangled names replaced by the last field of MAP's line that begins with it
as() {
    awk -F'\t' -v OFS='\t' 'FILENAME == ARGV[1] { of[$1] = $NF; next }
        { for (i = 5; i <= NF; i += 2) if ($i in of) $i = of[$i]; print }' "$1" "$w/plans"
}
awk -F'\t' -v OFS='\t' 'FILENAME == ARGV[1] { old[$1] = $2; next } { print $1, $2 in old ? old[$2] : $2 }' \
    "$w/renamed" "$w/names" > "$w/old_names"
cut -f 1,2 "$w/names" > "$w/new_names"
# groups PLANS: rows, hash of the choices, hash of the estimates, group
groups() {
    rm -rf "$w/groups" && mkdir "$w/groups"
    awk -F'\t' -v OFS='\t' -v w="$w/groups" '
        { file = $1; gsub(/[^a-z0-9_+]/, "-", file); file = w "/" file
          estimate = $4; $4 = ""; print > (file ".choices"); print $2, estimate > (file ".estimates") }' "$1"
    for f in "$w/groups"/*.choices; do
        printf '%s\t%s\t%s\t%s\n' "$(grep -c . "$f")" "$(sha256sum < "$f" | cut -c 1-16)" \
            "$(sha256sum < "${f%choices}estimates" | cut -c 1-16)" "$(head -n 1 "$f" | cut -f 1)"
    done
}
as "$w/new_names" > build/plans.tsv
as "$w/old_names" > "$w/plans.old" && groups "$w/plans.old" > "$w/plans.txt"
{ cut -f 1-10 "$w/kernels" | sort; as "$w/names" | cut -f 1-3,5-; cat tune_table.h; } | sha256sum | cut -d ' ' -f 1 > "$w/code"

if [ "${1:-}" = --update ]; then
    grep -v '^same' "$w/compared" | tr '\t' ' '
    grep -v '^#' $golden/plans.txt | diff - "$w/plans.txt" | sed -n 's/^>/plans differ:/p' | tr '\t' ' '
    groups build/plans.tsv > "$w/plans.txt"
    {
        echo "# nvcc: $version"
        echo "# sm_80: registers, spilled bytes, stack, static shared memory, hash of the machine code; sm_90a: the same; name"
        cat "$w/kernels"
    } > $golden/kernels.txt
    {
        echo "# host: $host"
        echo "# calls and plans, hash of what they choose, hash of the estimates, group"
        cat "$w/plans.txt"
    } > $golden/plans.txt
    cmp -s "$w/code" $golden/code && echo "code: the same" || echo "code: another; records of the last one are not of this tree"
    cp "$w/code" $golden/code
    echo "kernels: $summary; tests/golden/ is written"
    exit 0
fi

# ---- checks ----

want=$(sed -n 's/^# nvcc: //p' $golden/kernels.txt)
skip="[ '$version' = '$want' ] || { echo 'nvcc $version is not the golden file'\\''s $want'; exit 77; }"
say='sh tests/same_code.sh --update'
case_ "every kernel's machine code is the golden file's" "$skip
! grep -E '^(changed|gone)$tab' $w/compared"
case_ "the golden file has every kernel" "$skip
! grep '^new$tab' $w/compared || { echo '$say adds them'; exit 1; }"
case_ "kernels are called as in the golden file" "$skip
! grep '^renamed$tab' $w/compared || { echo 'the code is equal; $say writes the names'; exit 1; }"
case_ "the golden hash of the code is that of kernels and plans" "$skip
diff $golden/code $w/code"
grep -v '^#' $golden/plans.txt > "$w/plans.golden"
case_ "as many groups of plans as in the golden file" "[ -s $w/plans.golden ]; cut -f 4 $w/plans.golden > $w/groups.golden
cut -f 4 $w/plans.txt | diff $w/groups.golden -"
cut -f 1,2,4 "$w/plans.txt" > "$w/choices"
cut -f 1,2,4 "$w/plans.golden" > "$w/choices.golden"
while IFS=$tab read -r rows hash group; do
    case_ "$group: what is chosen" "grep -qxF '$rows$tab$hash$tab$group' $w/choices && exit 0
echo 'diff build/plans.tsv with that of the older commit'; exit 1"
done < "$w/choices.golden"
case_ "estimates" "cut -f 3,4 $w/plans.golden > $w/estimates.golden
cut -f 3,4 $w/plans.txt | diff $w/estimates.golden - && exit 0
grep -qxF '# host: $host' $golden/plans.txt && exit 1
echo 'other bits; $host is not what the golden file was written with'; exit 77"
echo "kernels: $summary; $(grep -c . build/plans.tsv) plans"
sh tests/record.sh --list
cases_end
