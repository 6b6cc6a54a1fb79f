#!/bin/sh
# examples.sh FOLDER EXAMPLE...: runs the examples that stand built in FOLDER; what spmm says to good and bad input.
set -u
folder=$1
shift
. tests/cases.sh
cases_begin "$folder/examples.cases"
tmp=$folder/examples.tmp
rm -rf "$tmp" && mkdir -p "$tmp"
data=${DATA:-../shared/data}
spmm="$folder/spmm --threads 2"

for e in "$@"; do
    case $e in
        spmm) case_ spmm "$spmm --svg $tmp/none.svg > $tmp/none.txt; grep -q ': right' $tmp/none.txt; ! grep -q WRONG $tmp/none.txt" ;;
        smallest) case_ smallest "$folder/smallest > $tmp/smallest.txt; printf '   8   10\n  20   22\n  16   17\n  22   23\n' | diff - $tmp/smallest.txt" ;;
        tune) # two shapes, then again with a third: what is done is not done again; what is read back is what was written
            tune="$folder/tune --quiet --backend cpu --limit 1 --out $tmp/table.h --csv $tmp/table.csv --svg $tmp/table.svg"
            two="--shape 64,64,32,16,0.5,f32 --shape sampled:64,32,64,16,0.5,bf16"
            case_ tune "$tune $two > $tmp/tune.txt; tail -n 1 $tmp/tune.txt | grep -qx ok; grep -q 'END GENERATED' $tmp/table.h
                grep -q '</svg>' $tmp/table.svg; [ \$(wc -l < $tmp/table.csv) -eq 2 ]
                $tune $two --shape attention:64,16,64,16,0.5,f16 > $tmp/again.txt; grep -q '3 shapes, 1 to do' $tmp/again.txt
                [ \$(wc -l < $tmp/table.csv) -eq 3 ]; $tune $two --again | grep -q '2 shapes, 2 to do'"
            case_ "tune refuses" "for o in '--shape 1,2' '--shape 64,64,32,16,2,f32' '--shape 64,64,32,16,0.5,f99' --unknown '--limit 0' '--shape 65,64,32,16,0.5,f32'; do
                code=0; $tune \$o > $tmp/t.out 2> $tmp/t.err || code=\$?; [ \$code -eq 1 ]; [ -s $tmp/t.err ]; done" ;;
        conv) case_ conv "$folder/conv --pictures $tmp > $tmp/conv.txt; tail -n 1 $tmp/conv.txt | grep -qx ok; [ \$(wc -c < $tmp/pruned.pgm) -eq 12302 ]
                ! cmp -s $tmp/dense.pgm $tmp/pruned.pgm" ;;
        *) case_ "$e" "$folder/$e > $tmp/$e.txt; tail -n 1 $tmp/$e.txt | grep -qx ok" ;;
    esac
done

# ---- the main job on real matrices: NAME, FILE, OPTIONS, what the report must say ----
real() {
    case_ "spmm $1 $2" "[ -f $data/$1 ] || { echo '$data/$1 is absent'; exit 77; }
        out=$tmp/real$case_count; $spmm $2 --svg \$out.svg $data/$1 > \$out.txt
        grep -q ': right' \$out.txt; grep -q '$3' \$out.txt; grep -q '</svg>' \$out.svg"
}
real bcsstk16.mtx "--block 3" "stored      32890 of 2650384 blocks of 3 x 3"
real bcsstk16.mtx "--block 16" "stored      3800 of 93636 blocks of 16 x 16"
real bcsstk16.mtx "" "3 x 3    .*<- used"
real bcsstk16.mtx "--block 4x8 --cols 33 --seed 5" "blocks of 4 x 8"
for s in 0.8 0.95; do
    kept=819
    [ $s = 0.95 ] && kept=205
    for f in dlmc_transformer_ffn1_magnitude_0.8.smtx dlmc_transformer_ffn1_magnitude_0.95.smtx; do
        real $f "--block 16 --prune $s" "stored      $kept of 4096 blocks of 16 x 16"
    done
done

# ---- options, picture ----
for s in "--dtype f64 --cols 1,8 --prune 0.9" "--dtype bf16 --cols 5 --block 3,4x8"; do
    case_ "spmm side by side, $s" "[ -f $data/bcsstk16.mtx ] || { echo '$data/bcsstk16.mtx is absent'; exit 77; }
        out=$tmp/side$case_count; $spmm $s --report \$out.html --json \$out.json $data/bcsstk16.mtx > \$out.txt
        grep -q 'take blocks of' \$out.txt; ! grep -q WRONG \$out.txt; tail -n 1 \$out.html | grep -q '</html>'
        [ \$(grep -o '<svg' \$out.html | wc -l) -ge 3 ]; ! grep -q 'src=\|href=' \$out.html
        ! command -v python3 > /dev/null || python3 -c 'import json, sys; d = json.load(open(sys.argv[1]))
assert d[\"rows\"] == 4884 and d[\"entries\"] == 290378 and d[\"recommended\"] in [r[\"name\"] for r in d[\"results\"]]
assert all(0 <= r[\"error\"] <= 1 and r[\"seconds\"] > 0 for r in d[\"results\"])' \$out.json"
done
case_ "spmm beside others" "[ -f $data/bcsstk16.mtx ] || { echo '$data/bcsstk16.mtx is absent'; exit 77; }
    $spmm --dtype f64 --cols 1 --block 3 --peers $data/bcsstk16.mtx > $tmp/peers.txt; grep -q 'CSR, a loop in C' $tmp/peers.txt
    python3 -c 'import scipy' 2> /dev/null || { grep -q 'are absent' $tmp/peers.txt; exit; }
    grep -q 'SciPy BSR 3 x 3' $tmp/peers.txt; grep -q 'NumPy dense' $tmp/peers.txt"
case_ "cg on a matrix of a file" "[ -f $data/bcsstk16.mtx ] || { echo '$data/bcsstk16.mtx is absent'; exit 77; }
    for b in 1 3 8; do $folder/cg --block \$b $data/bcsstk16.mtx > $tmp/cg.txt; tail -n 1 $tmp/cg.txt | grep -qx ok; done"
good() { case_ "spmm $1" "$2"; }
good "--help" "$folder/spmm --help | grep -q -- --block; $folder/spmm -h | grep -q -- --block"
printf '%%%%MatrixMarket matrix coordinate real general\n%% a comment\n5 7 3\n1 1 2.5\n5 7 -1\n3 2 4e-1\n' > "$tmp/small.mtx"
printf '%%%%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n1 1\n3 1\n4 4\n' > "$tmp/pattern.mtx"
printf '3, 4, 3\n0 1 1 3\n2 0 3\n' > "$tmp/small.smtx"
printf '%%%%MatrixMarket matrix coordinate real general\n5 7 0\n' > "$tmp/nothing.mtx"
good "small.mtx" "$spmm --block 2 $tmp/small.mtx | grep -q ': right'"
good "rectangular blocks" "$spmm --block 2x3 $tmp/small.mtx | grep -q 'padded      to 6 x 9'"
good "pattern.mtx" "$spmm $tmp/pattern.mtx | grep -q '4 x 4, 4 entries'"
good "small.smtx" "$spmm --cols 1 $tmp/small.smtx | grep -q ': right'"
good "says which backend runs" "$spmm --backend cpu $tmp/small.mtx | head -n 1 | grep -q ', cpu backend, .*, 2 threads'"
good "no entries" "$spmm $tmp/nothing.mtx | grep -q ': right'"
good "all pruned" "$spmm --block 2 --prune 1 $tmp/small.mtx | grep -q 'stored      0 of'"
good "ascii picture" "LC_ALL=C $spmm $tmp/small.mtx | LC_ALL=C tr -d '\n -~' | wc -c | grep -qx ' *0'"
good "unicode picture" "LC_ALL=C.UTF-8 $spmm $tmp/small.mtx | grep -q '█'"
good "picture no wider than 72" "LC_ALL=C $spmm --block 16 | awk '/^  [|]/ && length(\$0) > 76 { bad = 1 } END { exit bad }'"
good "same result for 1 and 3 threads" "a=\$($folder/spmm --threads 1 $tmp/small.mtx | grep error); b=\$($folder/spmm --threads 3 $tmp/small.mtx | grep error); [ \"\$a\" = \"\$b\" ]"

# ---- bad input: NAME, LINE (or -), text of the file; exit status 1, the line in the message, nothing on standard output ----
bad() {
    printf "$3" > "$tmp/$1"
    place=$1:$2:
    [ "$2" = - ] && place=$1
    case_ "malformed $1" "code=0; $spmm $tmp/$1 > $tmp/$1.out 2> $tmp/$1.err || code=\$?
        cat $tmp/$1.err; [ \$code -eq 1 ]; grep -q '$place' $tmp/$1.err; ! [ -s $tmp/$1.out ]"
}
mm='%%%%MatrixMarket matrix coordinate real general\n'
bad empty.mtx - ''
bad banner.mtx 1 'MatrixMarket matrix\n1 1 1\n1 1 1\n'
bad complex.mtx 1 '%%%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n'
bad size.mtx 3 "$mm%%c\n2 2\n1 1 1\n"
bad number.mtx 4 "${mm}2 2 2\n1 1 1\n2 x 1\n"
bad value.mtx 3 "${mm}2 2 1\n1 1 abc\n"
bad range.mtx 4 "${mm}2 2 2\n1 1 1\n3 1 1\n"
bad zero.mtx 3 "${mm}2 2 1\n0 1 1\n"
bad negative.mtx 2 "${mm}-2 2 1\n1 1 1\n"
bad huge.mtx 2 "${mm}99999999999999999999 2 1\n1 1 1\n"
bad many.mtx - "${mm}4000000000 4000000000 9000000000000000000\n1 1 1\n"
bad short.mtx - "${mm}2 2 2\n1 1 1\n"
bad infinite.mtx - "${mm}2 2 1\n1 1 1e400\n"
bad extra.mtx 4 "${mm}2 2 1\n1 1 1\n2 2 1\n"
bad square.mtx - '%%%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n'
bad binary.mtx 1 '\001\002\003\377\n\000'
bad empty.smtx - ''
bad header.smtx 1 '3 x 4\n0 1\n'
bad offsets.smtx 2 '2, 2, 2\n0 2 1\n0 1\n'
bad first.smtx 2 '2, 2, 2\n1 1 2\n0 1\n'
bad column.smtx 3 '2, 2, 2\n0 1 2\n0 2\n'
bad few.smtx - '2, 2, 2\n0 1 2\n0\n'
bad more.smtx 3 '2, 2, 2\n0 1 2\n0 1 1\n'

# NAME, OPTIONS: refused with status 1 and a word on standard error
refused() {
    case_ "refused: $1" "code=0; $folder/spmm $1 > $tmp/r$case_count.out 2> $tmp/r$case_count.err || code=\$?
        [ \$code -eq 1 ]; [ -s $tmp/r$case_count.err ]; ! [ -s $tmp/r$case_count.out ]"
}
refused "$tmp/absent.mtx"
refused "$tmp"
refused "$tmp/small.txt"
refused "$tmp/small.mtx $tmp/small.mtx"
refused "--block 0"
refused "--block 3y4"
refused "--block 4x"
refused "--block"
refused "--prune 1.5"
refused "--prune nan"
refused "--cols -1"
refused "--threads 0"
refused "--unknown 1"
refused "-x"
case_ "refused: numbers beyond the type" "code=0; printf '${mm}2 2 2\n1 1 1\n2 1 -70000\n' > $tmp/large.mtx
    $spmm --dtype bf16 $tmp/large.mtx > /dev/null; $spmm --dtype f16 $tmp/large.mtx 2> $tmp/large.err || code=\$?
    [ \$code -eq 1 ]; grep -q 'entry 2 is -70000, beyond what f16 holds' $tmp/large.err"
refused "--backend gpu"
refused "--backend"
refused "--svg"
refused "--report"
refused "--dtype i8"
refused "--block 3,"
refused "--block 3,0"
refused "--cols 1,x"
refused "--prune 0.5,2"
refused "--cols 1,2,3,4,5,6,7,8,9,10,11,12,13"
for e in decode attention_train moe; do # those that share one way to take options
    [ -x "$folder/$e" ] || continue
    case_ "$e takes options" "$folder/$e --help | grep -q -- --steps; $folder/$e --backend cpu --steps 32 > $tmp/$e.o || :; head -n 1 $tmp/$e.o | grep -q ', cpu backend'"
    case_ "$e refuses options" "for o in --unknown '--steps 0' '--steps x' --steps '--backend' '--backend gpu' '--steps 40 7'; do
        code=0; $folder/$e \$o > $tmp/o.out 2> $tmp/o.err || code=\$?; [ \$code -eq 1 ]; [ -s $tmp/o.err ]; ! [ -s $tmp/o.out ]; done"
done
case_ "svg can't be written" "code=0; $spmm --svg $tmp/no/such/folder.svg $tmp/small.mtx > /dev/null 2>&1 || code=\$?; [ \$code -eq 1 ]"
cases_end
