/* fuzz_smtx.c: any bytes as DLMC .smtx text. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    bsr_file_info info, again;
    bsr_error error;
    bsr_status status = bsr_parse_smtx(text, size, &info, NULL, NULL, 0, &error);
    int64_t i, *crow, *col;
    FUZZ_REQUIRE(status == BSR_OK || status == BSR_PARSE_ERROR);
    if (status != BSR_OK) {
        FUZZ_REQUIRE(error.index >= 1 && (size_t)error.index <= size + 1);
        return 0;
    }
    FUZZ_REQUIRE(info.rows >= 0 && info.cols >= 0 && info.entries == info.stored && info.rows <= (int64_t)size &&
                 info.entries <= (int64_t)size);
    crow = (int64_t *)fuzz_alloc((size_t)(info.rows + 1) * 8), col = (int64_t *)fuzz_alloc((size_t)info.entries * 8);
    FUZZ_REQUIRE(bsr_parse_smtx(text, size, &again, crow, col, info.entries, &error) == BSR_OK);
    FUZZ_REQUIRE(!memcmp(&info, &again, sizeof info));
    FUZZ_REQUIRE(crow[0] == 0 && crow[info.rows] == info.entries);
    for (i = 0; i < info.rows; i++) FUZZ_REQUIRE(crow[i] <= crow[i + 1]);
    for (i = 0; i < info.entries; i++) FUZZ_REQUIRE(col[i] >= 0 && col[i] < info.cols);
    if (info.entries) FUZZ_REQUIRE(bsr_parse_smtx(text, size, &again, crow, col, info.entries - 1, &error) == BSR_CAPACITY);
    fuzz_free();
    return 0;
}

#ifdef FUZZ_MAIN
int main(int argc, char **argv) {
    static const fuzz_seed seeds[] = {
        FUZZ_SEED("3, 4, 5\n0 2 2 5\n0 3 1 2 3\n"),
        FUZZ_SEED("2,2,0\n0 0 0\n\n"),
        FUZZ_SEED("1, 1, 1\r\n0 1\r\n0\r\n"),
        FUZZ_SEED("0, 0, 0\n0\n"),
        FUZZ_SEED("9223372036854775807, 4, 5\n0 2 2 5\n0 3 1 2 3\n"),
    };
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 3000);
}
#endif
