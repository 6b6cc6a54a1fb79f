/* fuzz_mtx.c: any bytes as Matrix Market text. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    bsr_file_info info, again;
    bsr_error error;
    bsr_status status = bsr_parse_matrix_market(text, size, &info, NULL, NULL, NULL, 0, &error);
    int64_t i, *row, *col;
    double *values;
    FUZZ_REQUIRE(status == BSR_OK || status == BSR_PARSE_ERROR);
    FUZZ_REQUIRE(error.status == (int32_t)status);
    if (status != BSR_OK) {
        FUZZ_REQUIRE(error.index >= 1 && (size_t)error.index <= size + 1);
        return 0;
    }
    FUZZ_REQUIRE(info.rows >= 0 && info.cols >= 0 && info.entries >= info.stored && info.stored >= 0 &&
                 info.entries <= 2 * (int64_t)size);
    row = (int64_t *)fuzz_alloc((size_t)info.entries * 8), col = (int64_t *)fuzz_alloc((size_t)info.entries * 8);
    values = (double *)fuzz_alloc((size_t)info.entries * 8);
    FUZZ_REQUIRE(bsr_parse_matrix_market(text, size, &again, row, col, values, info.entries, &error) == BSR_OK);
    FUZZ_REQUIRE(!memcmp(&info, &again, sizeof info));
    for (i = 0; i < info.entries; i++) FUZZ_REQUIRE(row[i] >= 0 && row[i] < info.rows && col[i] >= 0 && col[i] < info.cols);
    if (info.entries)
        FUZZ_REQUIRE(bsr_parse_matrix_market(text, size, &again, row, col, NULL, info.entries - 1, &error) == BSR_CAPACITY);
    fuzz_free();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) {
    static const fuzz_seed seeds[] = {
        FUZZ_SEED("%%MatrixMarket matrix coordinate real general\n% c\n3 3 3\n1 1 1.5\n2 3 -2e1\n3 1 7\n"),
        FUZZ_SEED("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n1 1\n3 2\n"),
        FUZZ_SEED("%%MatrixMarket matrix coordinate integer skew-symmetric\r\n3 3 1\r\n2 1 4\r\n"),
        FUZZ_SEED("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n"),
        FUZZ_SEED("%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n4\n"),
        FUZZ_SEED("%%MatrixMarket matrix coordinate real general\n9223372036854775807 9223372036854775807 9223372036854775807\n1 "
                  "1 1\n"),
    };
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 3000);
}
#endif
