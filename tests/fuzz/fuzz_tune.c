/* fuzz_tune.c: any bytes as the text of a tune_table.h: refused with the table untouched, or read and written again the same. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz.h"

enum { ROWS = 64, GPUS = 4 };
typedef struct table {
    bsr_tune_table t;
    bsr_tune_gpu gpus[GPUS];
    bsr_tune_row rows[ROWS];
} table;
static void table_clear(table *x) {
    memset(x, 0, sizeof *x);
    x->t.gpus = x->gpus, x->t.rows = x->rows, x->t.gpu_capacity = GPUS, x->t.row_capacity = ROWS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[BSR_TUNE_TEXT_MAX + 1];
    static table x, y, untouched;
    bsr_tune_row found;
    bsr_error error;
    size_t length;
    bsr_status status;
    int i;
    table_clear(&x), table_clear(&y), table_clear(&untouched);
    status = bsr_tune_import(&x.t, (const char *)data, size, &error);
    if (status != BSR_OK) {
        FUZZ_REQUIRE(status == BSR_PARSE_ERROR || status == BSR_CAPACITY);
        FUZZ_REQUIRE(status == BSR_CAPACITY || (error.index >= 1 && (size_t)error.index <= size + 1));
        FUZZ_REQUIRE(!memcmp(x.gpus, untouched.gpus, sizeof x.gpus) && !memcmp(x.rows, untouched.rows, sizeof x.rows));
        FUZZ_REQUIRE(!x.t.row_count && !x.t.gpu_count);
        return 0;
    }
    FUZZ_REQUIRE(bsr_tune_export(&x.t, text, sizeof text, &length, &error) == BSR_OK && length < sizeof text);
    FUZZ_REQUIRE(bsr_tune_import(&y.t, text, length, &error) == BSR_OK);
    FUZZ_REQUIRE(x.t.row_count == y.t.row_count && !memcmp(x.rows, y.rows, sizeof x.rows));
    for (i = 0; i < x.t.row_count; i++) {
        FUZZ_REQUIRE(bsr_tune_lookup(&x.t, &x.gpus[x.rows[i].gpu], &x.rows[i], &found) == BSR_TUNE_EXACT);
        FUZZ_REQUIRE(!memcmp(&found, &x.rows[i], sizeof found));
    }
    return 0;
}

#ifdef FUZZ_MAIN
#define HEAD "/* BEGIN GENERATED */\n#define BSRI_TUNE_FORMAT 1\n#define BSRI_TUNE_ROWS "
#define GPU "static const bsr_tune_gpu bsri_tune_gpus[] = { /* */\n{\"a\", 90, 132, \"b\", \"c\"},\n};\n"
#define LIST "static const bsr_tune_row bsri_tune_rows[] = {\n"
int main(int argc, char **argv) {
    static const fuzz_seed seeds[] = {
        FUZZ_SEED(HEAD "0\n/* END GENERATED */\n"),
        FUZZ_SEED(HEAD "1\n" GPU LIST "{0,1,1,1,16,16,0,1,64,64,64,10,2,64,128,1,0,0,7},\n};\n/* END GENERATED */\n"),
        FUZZ_SEED("/* x */\n#ifndef Y\n" HEAD "2\n" GPU LIST "{0,1,1,1,16,16,0,1,64,64,64,10,2,64,128,1,0,0,7},\n"
                  "{0,1,1,1,16,16,0,1,64,64,65,10,2,64,128,1,0,0,-7},\n};\n/* END GENERATED */\n#endif\n"),
        FUZZ_SEED(HEAD "-1\n" GPU LIST "};\n/* END GENERATED, check sum 99 */\n"),
    };
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 3000);
}
#endif
