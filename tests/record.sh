#!/bin/sh
# What a record in tests/results/ belongs to: prints "sources: HASH; code: HASH" for its first line.
#   sources   SHA-256 of bsrsparse.h, bsrsparse_kernels.cuh and tune_table.h one after another
#   code      that of tests/golden/code: of all kernels' machine code, of which kernel runs what, and of the tuned table, without
#             names. make test proves a share of it by turns, with SHARE=all the whole (tests/same_code.sh); renaming, moving and
#             comments leave it
# A record is of this tree if either agrees.
#   sh tests/record.sh --list   says so of each record
set -u
sources=$(cat bsrsparse.h bsrsparse_kernels.cuh tune_table.h | sha256sum | cut -d ' ' -f 1)
code=$(cat tests/golden/code)
if [ "${1:-}" != --list ]; then
    echo "sources: $sources; code: $code"
    exit 0
fi
for f in tests/results/*; do
    line=$(head -n 1 "$f" | grep '^# sources: ') || continue
    case $line in
        *"sources: $sources"*) echo "$f: these sources" ;;
        *"code: $code"*) echo "$f: other sources of the same code" ;;
        *) echo "$f: other code" ;;
    esac
done
