# Sourced by tests/test_cudart.sh, tests/same_code.sh and tests/archs.sh after cases.sh: a commit's share of the kernels, one in six
# by its turn. The sources are copied with a line in every other kernel by which it returns at once, so that front end, names,
# parameters and host code are those of all kernels, and what is compiled is compiled as in the whole.
#   kernels_of_turn FOLDER   writes FOLDER/source (files of the library), and FOLDER/left_out (kernels that return at once)
#   kernels_whole FOLDER     writes these with nothing left out
#   other_arch               which of the architectures beside sm_90a it is whose turn has come; in every second turn: none
kernels_of_turn() {
    rm -rf "$1/source" && mkdir -p "$1/source" && cp bsrsparse.h tune_table.h "$1/source"
    : > "$1/left_out"
    # The six that take longest are in six shares, the others are dealt out as they stand.
    awk -v share=$(($(turn) % 6)) -v list="$1/left_out" '
        BEGIN { n = split("product_wgmma attention_decode product_mma product_tiny product_vector attention_flex", part, " ")
            for (i = 1; i <= n; i++) heavy["bsri_" part[i]] = i }
        /^#define BSRI_ENTER/ && !defined++ { print "static __device__ __forceinline__ bool bsri_left_out() { return true; }" }
        { print }
        /__global__/ { name = "" }
        !name && match($0, /bsri_[a-z_0-9]+\(const __grid_constant__/) { name = substr($0, RSTART, RLENGTH); sub(/\(.*/, "", name) }
        /^    BSRI_ENTER;$/ {
            n = name in heavy ? heavy[name] : ++others
            if (n % 6 != share) { print "    if (bsri_left_out()) return;"; print name > list }
        }' bsrsparse_kernels.cuh > "$1/source/bsrsparse_kernels.cuh"
}
kernels_whole() {
    rm -rf "$1/source" && mkdir -p "$1/source" && cp bsrsparse.h bsrsparse_kernels.cuh tune_table.h "$1/source"
    : > "$1/left_out"
}
other_arch() {
    set -- 75 none 80 none 86 none 89 none 100 none 120 none
    shift $(($(turn) / 6 % $#))
    echo "$1"
}
