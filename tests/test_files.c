/* test_files.c: safetensors files: what is wrong with them and where, what matrices of them are, what the writer refuses.
   tests/files.py compares with files that Python writes and reads. */
#define BSRSPARSE_IMPLEMENTATION
#include "../bsrsparse.h"
#include "bsr_test.h"

/* A file whose header is this text without its '@', with `data` zero bytes behind it; exactly as long as it is. *place: the byte
   where the '@' stood. */
static unsigned char *file_of(const char *header, size_t data, size_t *bytes, int64_t *place) {
    const char *mark = strchr(header, '@');
    const size_t n = strlen(header) - (mark != NULL), front = mark ? (size_t)(mark - header) : n;
    unsigned char *f = (unsigned char *)bt_alloc(8 + n + data, 8);
    size_t i;
    for (i = 0; i < 8; i++) f[i] = (unsigned char)((uint64_t)n >> (8 * i) & 255);
    memcpy(f + 8, header, front), memcpy(f + 8 + front, header + front + (mark != NULL), n - front);
    memset(f + 8 + n, 0, data);
    *bytes = 8 + n + data;
    if (place) *place = mark ? 8 + (int64_t)front : -1;
    return f;
}
static int little_endian(void) {
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* Counts as a check; 1 where the call went well. */
static int fine(bsr_status status, const bsr_error *e) {
    CHECK_STR(bsr_item_name(e->item), "BSR_ITEM_NONE"), CHECK_INT(status, BSR_OK);
    return status == BSR_OK;
}

typedef struct bad_file {
    const char *header; /* '@' stands in front of the byte that the error names */
    size_t data;
    int item;
    int64_t value, wanted; /* -9: whatever they are */
} bad_file;
#define T(dtype, shape, from, to) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define A4 "\"a\":" T("F32", "[1]", "0", "4")
#define DEEP8(x) x x x x x x x x

TEST(malformed) {
    static const bad_file files[] = {
        {"@ {}", 0, BSR_ITEM_FILE_JSON, ' ', -9},
        {"@[]", 0, BSR_ITEM_FILE_JSON, '[', -9},
        {"{ @", 0, BSR_ITEM_FILE_JSON, -1, -9},
        {"{}@x", 0, BSR_ITEM_FILE_JSON, 'x', -9},
        {"{" A4 ",@}", 4, BSR_ITEM_FILE_JSON, '}', -9},
        {"{" A4 " @\"b\":1}", 4, BSR_ITEM_FILE_JSON, '"', -9},
        {"{@,}", 0, BSR_ITEM_FILE_JSON, ',', -9},
        {"{\"a\"@ 1}", 0, BSR_ITEM_FILE_JSON, -9, -9},
        {"{\"a\":@1}", 0, BSR_ITEM_FILE_JSON, '1', -9},
        {"{@'a':{}}", 0, BSR_ITEM_FILE_JSON, '\'', -9},
        {"{\"a@\n\":{}}", 0, BSR_ITEM_FILE_JSON, '\n', -9},
        {"{\"a@", 0, BSR_ITEM_FILE_JSON, -1, -9},
        {"{\"a\\@x\":{}}", 0, BSR_ITEM_FILE_JSON, 'x', -9},
        {"{\"a\\u12@g4\":{}}", 0, BSR_ITEM_FILE_JSON, 'g', -9},
        {"{\"a\\ud800@x\":{}}", 0, BSR_ITEM_FILE_JSON, 'x', -9},
        {"{\"a\\ud800\\u@0041\":{}}", 0, BSR_ITEM_FILE_JSON, '0', -9},
        {"{\"a\\u@dc00\":{}}", 0, BSR_ITEM_FILE_JSON, 'd', -9},
        {"{\"a@\xff\":{}}", 0, BSR_ITEM_FILE_JSON, 0xff, -9},
        {"{\"a@\xc0\xaf\":{}}", 0, BSR_ITEM_FILE_JSON, 0xc0, -9},         /* longer than needed */
        {"{\"a@\xe0\x80\xaf\":{}}", 0, BSR_ITEM_FILE_JSON, 0xe0, -9},     /* longer than needed */
        {"{\"a@\xed\xa0\x80\":{}}", 0, BSR_ITEM_FILE_JSON, 0xed, -9},     /* a surrogate */
        {"{\"a@\xf4\x90\x80\x80\":{}}", 0, BSR_ITEM_FILE_JSON, 0xf4, -9}, /* above 10ffff */
        {"{\"a@\xe4\xb8\"}", 0, BSR_ITEM_FILE_JSON, 0xe4, -9},            /* cut */
        {"{\"a\":{@}}", 0, BSR_ITEM_FILE_KEY, 0, 7},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]@}}", 4, BSR_ITEM_FILE_KEY, 3, 7},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]@}}", 4, BSR_ITEM_FILE_KEY, 5, 7},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]@}}", 4, BSR_ITEM_FILE_KEY, 6, 7},
        {"{\"a\":{\"dtype\":@\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, BSR_ITEM_FILE_DTYPE, -9, -9},
        {"{\"a\":{\"dtype\":@\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, BSR_ITEM_FILE_DTYPE, -9, -9},
        {"{\"a\":{\"dtype\":@3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, BSR_ITEM_FILE_JSON, '3', -9},
        {"{\"a\":{\"dtype\":\"F32\",@\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"a\":{\"shape\":[1],@\"\\u0073hape\":[1],\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"a\":" T("F32", "[@-1]", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, '-', -9},
        {"{\"a\":" T("F32", "[1@.0]", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, '.', -9},
        {"{\"a\":" T("F32", "[1@e0]", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, 'e', -9},
        {"{\"a\":" T("F32", "[0@1]", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, '1', -9},
        {"{\"a\":" T("F32", "[1,@]", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, ']', -9},
        {"{\"a\":" T("F32", "@1", "0", "4") "}", 4, BSR_ITEM_FILE_JSON, '1', -9},
        {"{\"a\":" T("F32", "[@9223372036854775808]", "0", "4") "}", 4, BSR_ITEM_FILE_NUMBER, INT64_MAX, INT64_MAX},
        {"{\"a\":" T("F32", "[@99999999999999999999999]", "0", "4") "}", 4, BSR_ITEM_FILE_NUMBER, INT64_MAX, INT64_MAX},
        {"{\"a\":" T("F32", "@[9223372036854775807,2]", "0", "4") "}", 4, BSR_ITEM_FILE_NUMBER, -9, -9},
        {"{\"a\":" T("F64", "@[1152921504606846976]", "0", "4") "}", 4, BSR_ITEM_FILE_NUMBER, -9, INT64_MAX / 64},
        {"{\"a\":" T("I8", "@[4294967296,4294967296,0]", "0", "0") "}", 0, BSR_ITEM_FILE_NUMBER, -9, -9},
        {"{\"a\":" T("F32", "[1]", "0", "@5") "}", 4, BSR_ITEM_FILE_NUMBER, 5, 4},
        {"{\"a\":" T("F32", "[1]", "@5", "9") "}", 4, BSR_ITEM_FILE_NUMBER, 5, 4},
        {"{\"a\":" T("F32", "[1]", "0", "@18446744073709551620") "}", 4, BSR_ITEM_FILE_NUMBER, INT64_MAX, 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":@[4,0]}}", 4, BSR_ITEM_FILE_NUMBER, 4, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0@]}}", 4, BSR_ITEM_FILE_JSON, ']', -9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4@,8]}}", 8, BSR_ITEM_FILE_JSON, ',', -9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":@[0,4]}}", 4, BSR_ITEM_FILE_SIZE, 4, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":@[0,8]}}", 8, BSR_ITEM_FILE_SIZE, 8, 4},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":@[0,2]}}", 2, BSR_ITEM_FILE_SIZE, 2, 2}, /* 12 bits */
        {"{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":@[0,8]}}", 8, BSR_ITEM_FILE_OVERLAP, 0, -9},
        {"{" A4 ",\"b\":{\"dtype\":\"I8\",\"shape\":[6],\"data_offsets\":@[2,8]}}", 8, BSR_ITEM_FILE_OVERLAP, 2, -9},
        {"{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":@[0,4]}}", 4, BSR_ITEM_FILE_OVERLAP, 0, -9},
        {"{\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":@[3,5]}," A4 ",\"c\":" T("I8", "[3]", "5", "8") "}", 8,
         BSR_ITEM_FILE_OVERLAP, 3, -9},
        {"{" A4 ",@" A4 "}", 4, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{" A4 ",@\"\\u0061\":" T("F32", "[1]", "4", "8") "}", 8, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"__metadata__\":{\"k\":\"1\",@\"k\":\"2\"}}", 0, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"__metadata__\":{},@\"__metadata__\":{}}", 0, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"__metadata__\":null,@\"__metadata__\":{}}", 0, BSR_ITEM_FILE_TWICE, -9, -9},
        {"{\"__metadata__\":{\"k\":@1}}", 0, BSR_ITEM_FILE_JSON, '1', -9},
        {"{\"__metadata__\":@\"k\"}", 0, BSR_ITEM_FILE_JSON, '"', -9},
        {"{\"__metadata__\":nul@1}", 0, BSR_ITEM_FILE_JSON, '1', -9},
        {"{\"__metadata__\":{\"k\":\"1\"@", 0, BSR_ITEM_FILE_JSON, -1, -9},
        {"{\"a\":{\"x\":" DEEP8("[[[[[[[[") "@[1]]}}", 0, BSR_ITEM_FILE_DEEP, 65, 64},
        {"{\"a\":{\"x\":" DEEP8("[[[[[[[[") "1" DEEP8("]]]]]]]]") "@]}}", 0, BSR_ITEM_FILE_JSON, ']', -9},
        {"{\"a\":{\"x\":[@}]}}", 0, BSR_ITEM_FILE_JSON, '}', -9},
        {"{\"a\":{\"x\":{\"y\":1@]}}}", 0, BSR_ITEM_FILE_JSON, ']', -9},
        {"{\"a\":{\"x\":{@1:1}}}", 0, BSR_ITEM_FILE_JSON, '1', -9},
        {"{\"a\":{\"x\":[1@ 2]}}", 0, BSR_ITEM_FILE_JSON, -9, -9},
        {"{\"a\":{\"x\":-@x}}", 0, BSR_ITEM_FILE_JSON, 'x', -9},
        {"{\"a\":{\"x\":1.@}}", 0, BSR_ITEM_FILE_JSON, '}', -9},
        {"{\"a\":{\"x\":1e+@}}", 0, BSR_ITEM_FILE_JSON, '}', -9},
        {"{\"a\":{\"x\":tru@x}}", 0, BSR_ITEM_FILE_JSON, 'x', -9},
    };
    size_t k, bytes;
    int64_t place;
    bsr_safetensors f, before;
    bsr_error e;
    memset(&before, 0x5a, sizeof before);
    for (k = 0; k < BT_COUNT(files); k++) {
        const unsigned char *file;
        char line[300], want[40];
        bt_case("%d: %s", (int)k, files[k].header);
        file = file_of(files[k].header, files[k].data, &bytes, &place);
        f = before;
        CHECK_INT(bsr_parse_safetensors(file, bytes, &f, &e), BSR_PARSE_ERROR);
        CHECK_STR(bsr_item_name(e.item), bsr_item_name(files[k].item));
        CHECK(!memcmp(&f, &before, sizeof f)), CHECK_INT(e.operand, BSR_ARG_FILE);
        if (files[k].item == BSR_ITEM_FILE_JSON && files[k].value == -9) CHECK(e.index >= place && e.index <= place + 1);
        else CHECK_INT(e.index, place);
        if (files[k].value != -9) CHECK_INT(e.value, files[k].value);
        if (files[k].wanted != -9) CHECK_INT(e.wanted, files[k].wanted);
        snprintf(want, sizeof want, "BSR_PARSE_ERROR: file: byte %ld: ", (long)e.index);
        bsr_error_string(&e, line, sizeof line), CHECK(!strncmp(line, want, strlen(want)));
        CHECK_INT(bsr_parse_safetensors(file, bytes, &f, NULL), BSR_PARSE_ERROR);
    }
    bt_case("a gap, what is left at the end");
    {
        const unsigned char *gap = file_of("{" A4 ",\"b\":" T("F32", "[1]", "8", "12") "}", 12, &bytes, NULL);
        CHECK_INT(bsr_parse_safetensors(gap, bytes, &f, &e), BSR_PARSE_ERROR);
        CHECK_INT(e.item, BSR_ITEM_FILE_HOLE), CHECK_INT(e.index, (int64_t)bytes - 12 + 4);
        gap = file_of("{" A4 "}", 5, &bytes, NULL);
        CHECK_INT(bsr_parse_safetensors(gap, bytes, &f, &e), BSR_PARSE_ERROR);
        CHECK_INT(e.item, BSR_ITEM_FILE_HOLE), CHECK_INT(e.index, (int64_t)bytes - 1);
        gap = file_of("{}", 1, &bytes, NULL);
        CHECK_INT(bsr_parse_safetensors(gap, bytes, &f, &e), BSR_PARSE_ERROR);
        CHECK_INT(e.item, BSR_ITEM_FILE_HOLE), CHECK_INT(e.index, (int64_t)bytes - 1);
    }
}

/* The eight bytes in front, and files that end too early. */
TEST(cut) {
    static const uint64_t sizes[] = {0, 1, 100000001, UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 32};
    unsigned char front[10];
    size_t k, i, bytes;
    bsr_safetensors f;
    bsr_error e;
    for (k = 0; k < BT_COUNT(sizes); k++) {
        bt_case("a header of %g bytes", (double)sizes[k]);
        for (i = 0; i < 8; i++) front[i] = (unsigned char)(sizes[k] >> (8 * i) & 255);
        front[8] = '{', front[9] = '}';
        CHECK_INT(bsr_parse_safetensors(front, sizeof front, &f, &e), BSR_PARSE_ERROR), CHECK_INT(e.item, BSR_ITEM_FILE_HEADER);
        CHECK_INT(e.index, 0), CHECK_INT(e.wanted, 100000000);
        CHECK_INT(e.value, sizes[k] > INT64_MAX ? INT64_MAX : (int64_t)sizes[k]);
    }
    {
        unsigned char whole[128];
        memcpy(whole, file_of("{" A4 ",\"__metadata__\":{\"k\":\"v\"}} ", 4, &bytes, NULL), 92), CHECK_INT(bytes, 92);
        for (k = 0; k < bytes; k++) { /* each cut in memory that ends there */
            unsigned char *part;
            bt_case("%d of %d bytes", (int)k, (int)bytes);
            part = (unsigned char *)bt_alloc(k, 1);
            if (k) memcpy(part, whole, k);
            CHECK_INT(bsr_parse_safetensors(part, k, &f, &e), BSR_PARSE_ERROR);
            CHECK_INT(e.item, k < bytes - 4 ? BSR_ITEM_FILE_SHORT : BSR_ITEM_FILE_NUMBER);
            if (k < bytes - 4) CHECK_INT(e.index, (int64_t)k), CHECK_INT(e.wanted, k < 8 ? 8 : (int64_t)bytes - 4);
        }
        bt_case("whole");
        CHECK_INT(bsr_parse_safetensors(whole, bytes, &f, &e), BSR_OK), CHECK_INT(f.tensors, 1);
    }
    bt_case("null arguments");
    CHECK_INT(bsr_parse_safetensors(NULL, 8, &f, &e), BSR_NULL_POINTER), CHECK_INT(e.operand, BSR_ARG_FILE);
    CHECK_INT(bsr_parse_safetensors(front, 10, NULL, &e), BSR_NULL_POINTER);
    CHECK_INT(bsr_parse_safetensors(NULL, 0, &f, &e), BSR_PARSE_ERROR), CHECK_INT(e.item, BSR_ITEM_FILE_SHORT);
    CHECK_INT(bsr_parse_safetensors(front, SIZE_MAX, &f, &e), sizeof(size_t) == 8 ? BSR_OVERFLOW : BSR_PARSE_ERROR);
}

#define META(shape, block) "\"__metadata__\":{\"w.shape\":\"" shape "\",\"w.block\":\"" block "\"}"
#define CROW "\"w.crow_indices\":" T("I32", "[3]", "0", "12")
#define COL "\"w.col_indices\":" T("I32", "[2]", "12", "20")
#define VALUES "\"w.values\":" T("F32", "[2,2,3]", "20", "68")
#define M23 META("[4,6]", "[2,3]")
#define AT(range) "\"data_offsets\":" range
#define I(item) BSR_ITEM_FILE_##item
enum { PARSE = BSR_PARSE_ERROR, ARGUMENT = BSR_BAD_ARGUMENT };
/* Files that are whole, but whose tensors are no matrix "w". */
TEST(no_matrix) {
    static const struct {
        const char *header;
        size_t data;
        int status, item;
        int64_t value, wanted;
    } files[] = {
        {"{" CROW "," COL "," VALUES "}", 68, ARGUMENT, I(MISSING), 3, -9},
        {"{\"__metadata__\":{\"w.shape\":\"[4,6]\"}," CROW "," COL "," VALUES "}", 68, ARGUMENT, I(MISSING), 4, -9},
        {"{" M23 "}", 0, ARGUMENT, I(MISSING), 0, -9},
        {"{" M23 "," CROW "}", 12, ARGUMENT, I(MISSING), 1, -9},
        {"{\"__metadata__\":{\"w.shape\":\"@4,6\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(JSON), '4', -9},
        {"{\"__metadata__\":{\"w.shape\":\"[4,6@\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(JSON), -1, -9},
        {"{\"__metadata__\":{\"w.shape\":\"[4,6] @]\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(JSON), ']', -9},
        {"{\"__metadata__\":{\"w.shape\":\"[@-4,6]\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(JSON), '-', -9},
        {"{\"__metadata__\":{\"w.shape\":\"@[4]\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(RANK), 1, 2},
        {"{\"__metadata__\":{\"w.shape\":\"@[1,1,1,1,1,4,6]\",\"w.block\":\"[2,3]\"}}", 0, PARSE, I(RANK), 7, 6},
        {"{\"__metadata__\":{\"w.shape\":\"[4,6]\",\"w.block\":\"@[2,3,1]\"}}", 0, PARSE, I(RANK), 3, 2},
        {"{\"__metadata__\":{\"w.shape\":\"[4,6]\",\"w.block\":\"[2,@99999999999999999999]\"}}", 0, PARSE, I(NUMBER), -9,
         INT64_MAX},
        {"{" META("[4,6]", "[0,3]") "}", 0, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_SIZE, 0, -9},
        {"{" META("[4,6]", "[2,1048577]") "}", 0, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_SIZE, 1048577, -9},
        {"{" META("[4,6]", "[2,4]") "}", 0, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_DIVIDES, 6, 4},
        {"{\"__metadata__\":{\"w.shape\":\"[2,4,6]\",\"w.block\":\"[2,3]\",\"w.ragged\":\"@false\"}}", 0, PARSE, I(JSON), 'f',
         -9},
        {"{" M23 ",\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":@[4]," AT("[0,16]") "}}", 16, PARSE, I(SHAPE), 4, 3},
        {"{" M23 ",\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":@[1,3]," AT("[0,12]") "}}", 12, PARSE, I(RANK), 2, 1},
        {"{" META("[2,4,6]", "[2,3]") ",\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":@[3,3]," AT("[0,36]") "}}", 36, PARSE,
         I(SHAPE), 3, 2},
        {"{" M23 "," CROW "," COL ",\"w.values\":{\"shape\":@[2,3,2],\"dtype\":\"F32\"," AT("[20,68]") "}}", 68, PARSE, I(SHAPE),
         2, 3},
        {"{" M23 "," CROW "," COL ",\"w.values\":{\"shape\":@[1,2,3],\"dtype\":\"F32\"," AT("[20,44]") "}}", 44, PARSE, I(SHAPE),
         1, 2},
        {"{" M23 "," CROW "," COL ",\"w.values\":{\"shape\":[2,2,3],\"dtype\":@\"I16\"," AT("[20,44]") "}}", 44, BSR_BAD_DTYPE,
         I(DTYPE_OTHER), -9, -9},
        {"{" M23 "," CROW "," COL ",\"w.values\":" T("U8", "[2,2,3]", "20", "32") "}", 32, BSR_UNSUPPORTED, BSR_ITEM_PACKED, 3,
         -9},
        {"{" META("[4,12]", "[2,6]") "," CROW "," COL ",\"w.values\":{\"shape\":@[2,2,6],\"dtype\":\"U8\"," AT("[20,44]") "}}",
         44, PARSE, I(SHAPE), 6, 3},
        {"{" M23 ",\"w.crow_indices\":" T("F32", "[3]", "0", "12") "}", 12, BSR_BAD_DTYPE, BSR_ITEM_INDEX_DTYPE, BSR_F32, -9},
        {"{" M23 "," CROW ",\"w.col_indices\":" T("I64", "[2]", "16", "32") ",\"xxx\":" T("I8", "[4]", "12", "16") "}", 32,
         BSR_BAD_DTYPE, BSR_ITEM_DTYPE_MISMATCH, BSR_I64, BSR_I32},
        {"{\"x\":" T("I8", "[1]", "0", "1") "," M23 ",\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":[3]," AT(
             "@[1,13]") "},\"abcdefg\":" T("I8", "[3]", "13", "16") "}",
         16, PARSE, I(ALIGNMENT), -9, 4},
    };
    size_t k, bytes;
    int64_t place;
    bsr_safetensors f;
    bsr_matrix m, before;
    bsr_error e;
    if (!little_endian()) {
        bt_skip("the files' numbers are little-endian");
        return;
    }
    memset(&before, 0x5a, sizeof before);
    for (k = 0; k < BT_COUNT(files); k++) {
        char text[600];
        unsigned char *file;
        bt_case("%d: %s", (int)k, files[k].header);
        strcpy(text, files[k].header); /* numbers begin at a multiple of 8, unless the case is about that */
        file = file_of(text, files[k].data, &bytes, &place);
        while ((bytes - files[k].data) % 8) strcat(text, " "), file = file_of(text, files[k].data, &bytes, &place);
        if (!fine(bsr_parse_safetensors(file, bytes, &f, &e), &e)) continue;
        m = before;
        CHECK_INT(bsr_safetensors_matrix(&f, "w", &m, &e), files[k].status);
        CHECK_STR(bsr_item_name(e.item), bsr_item_name(files[k].item));
        CHECK(!memcmp(&m, &before, sizeof m)), CHECK_INT(e.operand, BSR_ARG_FILE);
        if (place >= 0) CHECK_INT(e.index, place);
        if (files[k].value != -9) CHECK_INT(e.value, files[k].value);
        if (files[k].wanted != -9) CHECK_INT(e.wanted, files[k].wanted);
    }
}

/* The file's own address is off; null arguments; a name in escapes; metadata behind the tensors; the arrays are the file's. */
TEST(whole_matrix) {
    static const char *const headers[] = {"{" META("[4,6]", "[2,3]") "," CROW "," COL "," VALUES "}",
                                          "{" CROW "," VALUES "," COL "," META(" [ 4 , 6 ] ", "[2,3]") "}",
                                          "{" COL ",\"\\u0077.crow_indices\":" T("I32", "[3]", "0", "12") "," META(
                                              "[4,6]", "[2,3]") ",\"w\\u002evalues\":" T("F32", "[2,2,3]", "20", "68") "}"};
    bsr_safetensors f;
    bsr_matrix m;
    bsr_dense d;
    bsr_error e;
    size_t k, bytes, n;
    if (!little_endian()) {
        bt_skip("the files' numbers are little-endian");
        return;
    }
    for (k = 0; k < BT_COUNT(headers); k++) {
        char text[600], name[8];
        unsigned char *file, *off;
        int again;
        bt_case("%d", (int)k);
        strcpy(text, headers[k]), file = file_of(text, 68, &bytes, NULL);
        while ((bytes - 68) % 8) strcat(text, " "), file = file_of(text, 68, &bytes, NULL);
        n = bytes - 68;
        CHECK_INT(bsr_parse_safetensors(file, bytes, &f, &e), BSR_OK), CHECK_INT(f.data, n), CHECK_INT(f.tensors, 3);
        for (again = 0; again < 3; again++) { /* searches go round */
            CHECK_INT(bsr_safetensors_matrix(&f, "w", &m, &e), BSR_OK);
            CHECK((unsigned char *)m.crow_indices == file + n && (unsigned char *)m.col_indices == file + n + 12);
            CHECK((unsigned char *)m.values == file + n + 20), CHECK_INT(m.nnz, 2), CHECK_INT(m.dtype, BSR_F32);
            CHECK_INT(m.rows, 4), CHECK_INT(m.cols, 6), CHECK_INT(m.block_rows, 2), CHECK_INT(m.block_cols, 3);
            CHECK_INT(bsr_safetensors_dense(&f, "w.values", &d, &e), BSR_OK), CHECK((unsigned char *)d.data == file + n + 20);
            CHECK_INT(d.rows, 2), CHECK_INT(d.cols, 3), CHECK_INT(d.batch_dims, 1), CHECK_INT(d.batch_stride[0], 6);
        }
        CHECK_INT(bsr_safetensors_name(&f, 0, name, sizeof name), k == 2 ? 13 : 14);
        CHECK_STR(name, k == 2 ? "w.col_i" : "w.crow_"), CHECK_INT(bsr_safetensors_name(&f, 2, NULL, 0), k == 1   ? 13
                                                                                                         : k == 2 ? 8
                                                                                                                  : 8);
        CHECK_INT(bsr_safetensors_name(&f, -1, name, sizeof name), -1), CHECK_INT(bsr_safetensors_name(NULL, 0, name, 8), -1);
        off = (unsigned char *)bt_alloc(bytes + 1, 8), memcpy(off + 1, file, bytes);
        CHECK_INT(bsr_parse_safetensors(off + 1, bytes, &f, &e), BSR_OK); /* the header may stand anywhere */
        CHECK_INT(bsr_safetensors_matrix(&f, "w", &m, &e), BSR_MISALIGNED), CHECK_INT(e.value, 4);
        CHECK_INT(bsr_safetensors_matrix(&f, NULL, &m, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_matrix(NULL, "w", &m, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_matrix(&f, "w", NULL, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_dense(&f, NULL, &d, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_dense(NULL, "w", &d, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_dense(&f, "w", NULL, &e), BSR_NULL_POINTER);
        CHECK_INT(bsr_safetensors_dense(&f, "w", &d, &e), BSR_BAD_ARGUMENT), CHECK_INT(e.value, 6);
    }
}

/* Many names: more than one pass over them, found in any order; the last is there twice. */
TEST(many_names) {
    const int n = 20000;
    char *text = (char *)malloc((size_t)n * 80), *p = text, name[16];
    bsr_safetensors f;
    bsr_dense d;
    bsr_error e;
    size_t bytes;
    unsigned char *file;
    int i, k;
    if (!text) abort();
    for (p += sprintf(p, "{"), i = 0; i < n; i++)
        p += sprintf(p, "%s\"t%05d\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? "," : "", i, n - 1 - i,
                     n - i);
    strcpy(p, "}");
    bt_case("distinct");
    file = file_of(text, (size_t)n, &bytes, NULL);
    if (fine(bsr_parse_safetensors(file, bytes, &f, &e), &e)) {
        CHECK_INT(f.tensors, n);
        for (k = 0; k < 40; k++) {
            i = k < 20 ? n - 1 - k : (int)bt_below((uint64_t)n);
            sprintf(name, "t%05d", i);
            CHECK_INT(bsr_safetensors_dense(&f, name, &d, &e), BSR_OK);
            CHECK((unsigned char *)d.data == file + bytes - 1 - i);
        }
    }
    for (k = 0; k < 3; k++) { /* the last name again that of another */
        int64_t place;
        bt_case("twice %d", k);
        sprintf(name, "t%05d", k == 0 ? 0 : k == 1 ? n - 2 : (int)bt_below((uint64_t)n - 1));
        p = strstr(text, "\"t19999"), memcpy(p + 1, name, 6), place = 8 + (p - text);
        file = file_of(text, (size_t)n, &bytes, NULL);
        CHECK_INT(bsr_parse_safetensors(file, bytes, &f, &e), BSR_PARSE_ERROR);
        CHECK_INT(e.item, BSR_ITEM_FILE_TWICE), CHECK_INT(e.index, place);
        memcpy(p + 1, "t19999", 6);
    }
    bt_case("an overlap far behind");
    p = strstr(text, "\"t12345"), p = strchr(p, ']'), p = strchr(p, '[');
    memcpy(p, "[7653,7654]", 11); /* 7654,7655 was its own */
    file = file_of(text, (size_t)n, &bytes, NULL);
    CHECK_INT(bsr_parse_safetensors(file, bytes, &f, &e), BSR_PARSE_ERROR);
    CHECK_INT(e.item, BSR_ITEM_FILE_OVERLAP), CHECK_INT(e.value, 7653);
    free(text);
}

/* What the writer refuses, with nothing written. */
TEST(writer_refuses) {
    int32_t crow[] = {0, 1, 2}, col[] = {1, 0};
    float values[12] = {0}, dense[6] = {0};
    static uint64_t memory[2][512];
    unsigned char *buffer = (unsigned char *)memory[0], *clean = (unsigned char *)memory[1];
    bsr_matrix m = bsr_matrix_make(4, 6, 2, 3, 2, crow, col, BSR_I32, values, BSR_F32), bad = m;
    bsr_dense d = bsr_dense_row_major(dense, BSR_F32, 2, 3), other = d;
    bsr_named items[3];
    uint64_t bytes = 7, whole;
    bsr_error e;
    memset(buffer, 0xa5, 4096), memset(clean, 0xa5, 4096);
    memset(items, 0, sizeof items);
    items[0].name = "w", items[0].value = bsr_operand_sparse(&m), items[1].name = "b", items[1].value = bsr_operand_dense(&d);
    items[2].name = "c", items[2].value = bsr_operand_dense(&other);
    CHECK_INT(bsr_write_safetensors(items, 3, NULL, 0, &whole, &e), BSR_OK), CHECK(whole < 2048 && whole % 4 == 0);
#define REFUSED(change, back, status, which, at)                                                                      \
    do {                                                                                                              \
        bt_case("%s", #change);                                                                                       \
        change;                                                                                                       \
        CHECK_INT(bsr_write_safetensors(items, 3, buffer, 4096, &bytes, &e), status);                                 \
        CHECK_STR(bsr_item_name(e.item), bsr_item_name(which));                                                       \
        if (at != -2) CHECK_INT(e.index, at);                                                                         \
        CHECK_INT(bsr_write_safetensors(items, 3, NULL, 0, &bytes, &e), status), CHECK(!memcmp(buffer, clean, 4096)); \
        back;                                                                                                         \
    } while (0)
#define NAMED(i, text) \
    REFUSED(items[i].name = text, items[i].name = i == 0 ? "w" : i == 1 ? "b" : "c", BSR_BAD_ARGUMENT, BSR_ITEM_FILE_NAME, i)
    NAMED(1, NULL);
    NAMED(2, "\xff");
    NAMED(0, "a\xc3");
    NAMED(1, "__metadata__");
    NAMED(2, "b");
    NAMED(2, "w.values");
    NAMED(1, "w.crow_indices");
    REFUSED(items[0].name = ""; items[2].name = "col_indices", items[0].name = "w";
            items[2].name = "c", BSR_BAD_ARGUMENT, BSR_ITEM_FILE_NAME, 2);
    REFUSED(items[1].value = bsr_operand_dense(NULL), items[1].value = bsr_operand_dense(&d), BSR_BAD_ARGUMENT,
            BSR_ITEM_OPERAND_KIND, -2);
    REFUSED(items[1].value.sparse = &m, items[1].value.sparse = NULL, BSR_BAD_ARGUMENT, BSR_ITEM_OPERAND_KIND, -2);
    REFUSED(d.data = NULL, d.data = dense, BSR_NULL_POINTER, BSR_ITEM_DATA_NULL, -2);
    REFUSED(d.dtype = 99, d.dtype = BSR_F32, BSR_BAD_DTYPE, BSR_ITEM_DTYPE_UNKNOWN, -2);
    REFUSED(d.rows = -1, d.rows = 2, BSR_BAD_SHAPE, BSR_ITEM_SIZE_NEGATIVE, 0);
    REFUSED(d.row_stride = 0; d.rows = INT64_MAX / 4, d.row_stride = 3; d.rows = 2, BSR_OVERFLOW, BSR_ITEM_SIZE_OVERFLOW, -2);
    REFUSED(m = bsr_matrix_rows(bad, 1, 2), m = bad, BSR_UNSUPPORTED, BSR_ITEM_ROW_VIEW, -1);
    REFUSED(m.block_cols = 4, m = bad, BSR_BAD_SHAPE, BSR_ITEM_BLOCK_DIVIDES, 1);
    REFUSED(m.index_dtype = BSR_F32, m = bad, BSR_BAD_DTYPE, BSR_ITEM_INDEX_DTYPE, -2);
    REFUSED(m.crow_indices = NULL, m = bad, BSR_NULL_POINTER, BSR_ITEM_CROW_NULL, -2);
    REFUSED(m.value_strides[0] = -1, m = bad, BSR_BAD_STRIDE, BSR_ITEM_STRIDE_NEGATIVE, 6);
    REFUSED(col[1] = 2, col[1] = 0, BSR_BAD_STRUCTURE, BSR_ITEM_COL_RANGE, 1);
    REFUSED(crow[2] = 3, crow[2] = 2, BSR_BAD_STRUCTURE, BSR_ITEM_CROW_LAST, 0);
    bt_case("room");
    CHECK_INT(bsr_write_safetensors(items, 3, buffer, whole - 1, &bytes, &e), BSR_CAPACITY);
    CHECK_INT(e.item, BSR_ITEM_BUFFER_SIZE), CHECK_INT(e.value, (int64_t)whole), CHECK_INT(bytes, whole);
    CHECK(!memcmp(buffer, clean, 4096));
    bt_case("the buffer is an operand's");
    d.data = buffer + whole - 4, memset(buffer, 0, 4096), memset(clean, 0, 4096);
    CHECK_INT(bsr_write_safetensors(items, 3, buffer, 4096, &bytes, &e), BSR_OVERLAP), CHECK_INT(e.value, BSR_ARG_SOURCE);
    CHECK(!memcmp(buffer, clean, 4096));
    d.data = buffer + (whole + 3) / 4 * 4;
    CHECK_INT(bsr_write_safetensors(items, 3, buffer, 4096, &bytes, &e), BSR_OK);
    bt_case("null arguments, numbers of items");
    CHECK_INT(bsr_write_safetensors(NULL, 1, NULL, 0, &bytes, &e), BSR_NULL_POINTER);
    CHECK_INT(bsr_write_safetensors(items, 3, NULL, 0, NULL, &e), BSR_NULL_POINTER);
    CHECK_INT(bsr_write_safetensors(items, -1, NULL, 0, &bytes, &e), BSR_BAD_SHAPE);
    CHECK_INT(bsr_write_safetensors(NULL, 0, NULL, 0, &bytes, NULL), BSR_OK), CHECK_INT(bytes, 64);
}

/* What is written is found, on a machine of either byte order, and lies where it should: the bytes themselves. */
TEST(bytes_written) {
    static const char want[] = "{\"__metadata__\":{\"w.shape\":\"[4, 6]\",\"w.block\":\"[2, 3]\"},"
                               "\"w.values\":{\"dtype\":\"F64\",\"shape\":[2,2,3],\"data_offsets\":[0,96]},"
                               "\"b\\\"\\u000a\":{\"dtype\":\"BF16\",\"shape\":[1,8],\"data_offsets\":[96,112]},"
                               "\"w.col_indices\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[112,120]},"
                               "\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[120,132]}}";
    int32_t crow[] = {0, 1, 2}, col[] = {1, 0};
    double values[2 * 12];
    uint16_t bias[16];
    bsr_matrix m = bsr_matrix_make(4, 6, 2, 3, 2, crow, col, BSR_I32, values, BSR_F64), back;
    bsr_dense d = bsr_dense_strided(bias, BSR_BF16, 1, 8, 0, 2);
    bsr_named items[2];
    unsigned char *file;
    bsr_safetensors f;
    uint64_t bytes;
    bsr_error e;
    size_t n, i;
    for (i = 0; i < 24; i++) values[i] = (double)i + 0.5;
    for (i = 0; i < 16; i++) bias[i] = (uint16_t)(0x1200 + i);
    m.value_strides[0] = 12, m.value_strides[1] = 1, m.value_strides[2] = 2; /* columns, and a gap behind each block */
    items[0].name = "w", items[0].value = bsr_operand_sparse(&m);
    items[1].name = "b\"\n", items[1].value = bsr_operand_dense(&d);
    bt_case("bytes");
    CHECK_INT(bsr_write_safetensors(items, 2, NULL, 0, &bytes, &e), BSR_OK);
    file = (unsigned char *)bt_alloc((size_t)bytes, 64);
    CHECK_INT(bsr_write_safetensors(items, 2, file, bytes, &bytes, &e), BSR_OK);
    n = (size_t)file[0] + 256 * (size_t)file[1];
    CHECK_INT((n + 8) % 64, 0), CHECK_INT(n + 8 + 132, (int64_t)bytes), CHECK(!memcmp(file + 8, want, sizeof want - 1));
    for (i = sizeof want - 1; i < n; i++) CHECK(file[8 + i] == ' ');
    for (i = 0; i < 12; i++) { /* row-major, lowest byte first */
        const double x = values[i / 6 * 12 + i % 6 / 3 + 2 * (i % 3)];
        uint64_t bits, got = 0;
        int k;
        memcpy(&bits, &x, 8);
        for (k = 7; k >= 0; k--) got = got << 8 | file[8 + n + 8 * i + (size_t)k];
        CHECK(got == bits);
    }
    for (i = 0; i < 8; i++) CHECK(file[8 + n + 96 + 2 * i] == 2 * i && file[8 + n + 97 + 2 * i] == 0x12);
    CHECK_INT(file[8 + n + 112], 1), CHECK_INT(file[8 + n + 116], 0), CHECK_INT(file[8 + n + 120 + 8], 2);
    CHECK_INT(bsr_parse_safetensors(file, (size_t)bytes, &f, &e), BSR_OK);
    CHECK_INT(bsr_safetensors_matrix(&f, "w", &back, &e), little_endian() ? BSR_OK : BSR_UNSUPPORTED);
    if (!little_endian()) CHECK_INT(e.item, BSR_ITEM_FILE_ORDER);
    bt_case("bytes alone on any machine");
    {
        int8_t small[6] = {1, 2, 3, 4, 5, 6};
        bsr_dense s = bsr_dense_col_major(small, BSR_I8, 2, 3);
        items[0].name = "s", items[0].value = bsr_operand_dense(&s);
        CHECK_INT(bsr_write_safetensors(items, 1, NULL, 0, &bytes, &e), BSR_OK),
            file = (unsigned char *)bt_alloc((size_t)bytes, 64);
        CHECK_INT(bsr_write_safetensors(items, 1, file, bytes, &bytes, &e), BSR_OK);
        CHECK_INT(bsr_parse_safetensors(file, (size_t)bytes, &f, &e), BSR_OK);
        if (fine(bsr_safetensors_dense(&f, "s", &s, &e), &e)) CHECK(!memcmp(s.data, "\1\3\5\2\4\6", 6));
    }
}

/* u4 goes as U8, a byte for a pair, on any machine where the index arrays do; a dense tensor of U8 comes back as it is. */
TEST(pairs) {
    int32_t crow[] = {0, 1, 2}, col[] = {1, 0};
    unsigned char values[2 * 2 * 3], packed[5] = {9, 8, 7, 6, 255}, *file;
    bsr_matrix m = bsr_matrix_make(4, 12, 2, 6, 2, crow, col, BSR_I32, values, BSR_U4), back;
    bsr_dense d = bsr_dense_row_major(packed, BSR_U4, 1, 5);
    bsr_named items[2];
    bsr_safetensors f;
    uint64_t bytes;
    bsr_error e;
    int i;
    for (i = 0; i < 12; i++) values[i] = (unsigned char)(i * 37 + 1);
    items[0].name = "w", items[0].value = bsr_operand_sparse(&m), items[1].name = "d", items[1].value = bsr_operand_dense(&d);
    CHECK_INT(bsr_write_safetensors(items, 2, NULL, 0, &bytes, &e), BSR_OK);
    file = (unsigned char *)bt_alloc((size_t)bytes, 64);
    CHECK_INT(bsr_write_safetensors(items, 2, file, bytes, &bytes, &e), BSR_OK);
    CHECK(strstr((char *)file + 8, "\"w.values\":{\"dtype\":\"U8\",\"shape\":[2,2,3],") != NULL);
    CHECK_INT(bsr_parse_safetensors(file, (size_t)bytes, &f, &e), BSR_OK);
    CHECK_INT(bsr_safetensors_dense(&f, "d", &d, &e), BSR_OK), CHECK_INT(d.dtype, BSR_U4), CHECK_INT(d.cols, 5);
    CHECK(!memcmp(d.data, packed, 5)), CHECK_INT(bsr_safetensors_dense(&f, "w.values", &d, &e), BSR_OK);
    CHECK(!memcmp(d.data, values, 12)), CHECK_INT(d.cols, 3), CHECK_INT(d.batch[0], 2);
    if (little_endian() && fine(bsr_safetensors_matrix(&f, "w", &back, &e), &e)) {
        CHECK_INT(back.dtype, BSR_U4), CHECK_INT(back.block_cols, 6), CHECK_INT(back.cols, 12);
        CHECK(!memcmp(back.values, values, 12));
    }
    bt_case("refused");
    m = bsr_matrix_make(4, 6, 2, 3, 2, crow, col, BSR_I32, values, BSR_U4);
    CHECK_INT(bsr_write_safetensors(items, 2, file, bytes, &bytes, &e), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_PACKED);
    CHECK_INT(e.value, 3), m.block_cols = 6, m.cols = 12, m.value_strides[2] = 1;
    CHECK_INT(bsr_write_safetensors(items, 2, file, bytes, &bytes, &e), BSR_UNSUPPORTED), CHECK_INT(e.item, BSR_ITEM_PACKED);
}

int main(int argc, char **argv) {
    static const bt_test tests[] = {{"malformed", malformed},        {"cut", cut},
                                    {"no_matrix", no_matrix},        {"whole_matrix", whole_matrix},
                                    {"many_names", many_names},      {"writer_refuses", writer_refuses},
                                    {"bytes_written", bytes_written}, {"pairs", pairs}};
    return bt_main(argc, argv, tests, BT_COUNT(tests));
}
