/* fuzz_safetensors.c: any bytes as a safetensors file. What is found in it lies in it; written again and read again it is the
   same. */
#define BSRSPARSE_IMPLEMENTATION
#include "../../bsrsparse.h"
#include "fuzz.h"

#define NAMES 48
static uint64_t sum_of_bytes; /* so that every byte is read */

static void touch(const uint8_t *file, size_t bytes, const void *data, int64_t count, int dtype) {
    const uint8_t *p = (const uint8_t *)data;
    const size_t n = (size_t)count * bsr_dtype_size(dtype);
    size_t i;
    FUZZ_REQUIRE(p >= file && p <= file + bytes && n <= (size_t)(file + bytes - p) && (uintptr_t)p % bsr_dtype_size(dtype) == 0);
    for (i = 0; i < n; i++) sum_of_bytes += p[i];
}
static void touch_matrix(const uint8_t *file, size_t bytes, const bsr_matrix *m) {
    const int64_t stored = m->dtype == BSR_U4 ? m->block_cols / 2 : m->block_cols;
    int64_t crow = m->rows / m->block_rows + 1, col = m->nnz, values = m->nnz * m->block_rows * stored;
    int i;
    FUZZ_REQUIRE(m->rows >= 0 && m->cols >= 0 && m->block_rows > 0 && m->block_cols > 0 && m->nnz >= 0);
    for (i = 0; i < m->batch_dims; i++) {
        FUZZ_REQUIRE(m->batch[i] >= 0);
        if (!m->batch[i]) return;
        crow += (m->batch[i] - 1) * m->crow_batch_stride[i], col += m->nnz ? (m->batch[i] - 1) * m->col_batch_stride[i] : 0;
        values += m->nnz ? (m->batch[i] - 1) * m->values_batch_stride[i] : 0;
    }
    touch(file, bytes, m->crow_indices, crow, m->index_dtype), touch(file, bytes, m->col_indices, col, m->index_dtype);
    if (m->values) touch(file, bytes, m->values, values, m->dtype);
}
/* Writes the items and finds them again. */
static void write_again(const bsr_named *items, int64_t count) {
    uint64_t bytes, again;
    bsr_safetensors f;
    bsr_error error;
    uint8_t *file;
    bsr_status status = bsr_write_safetensors(items, count, NULL, 0, &bytes, &error);
    int64_t i;
    if (status != BSR_OK) { /* whatever stands in the index arrays, twice the same tensor, too large when broadcast */
        FUZZ_REQUIRE(status == BSR_BAD_STRUCTURE || status == BSR_BAD_ARGUMENT || status == BSR_OVERFLOW ||
                     status == BSR_BAD_SHAPE || status == BSR_BAD_STRIDE);
        return;
    }
    FUZZ_REQUIRE(bytes < 1 << 24);
    file = (uint8_t *)fuzz_alloc((size_t)bytes);
    FUZZ_REQUIRE(bsr_write_safetensors(items, count, file, bytes, &again, &error) == BSR_OK && again == bytes);
    FUZZ_REQUIRE(bsr_write_safetensors(items, count, file, bytes - 1, &again, &error) == BSR_CAPACITY);
    FUZZ_REQUIRE(bsr_parse_safetensors(file, (size_t)bytes, &f, &error) == BSR_OK);
    for (i = 0; i < count; i++) {
        bsr_matrix m;
        bsr_dense d;
        if (items[i].value.sparse) {
            const bsr_matrix *want = items[i].value.sparse;
            FUZZ_REQUIRE(bsr_safetensors_matrix(&f, items[i].name, &m, &error) == BSR_OK);
            FUZZ_REQUIRE(m.rows == want->rows && m.cols == want->cols && m.nnz == want->nnz && m.batch_dims == want->batch_dims);
            touch_matrix(file, (size_t)bytes, &m);
        } else {
            FUZZ_REQUIRE(bsr_safetensors_dense(&f, items[i].name, &d, &error) == BSR_OK);
            FUZZ_REQUIRE(d.rows == items[i].value.dense->rows && d.cols == items[i].value.dense->cols);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char name[NAMES][256];
    static bsr_matrix m[NAMES];
    static bsr_dense d[NAMES];
    bsr_named item[NAMES];
    uint8_t *file = (uint8_t *)fuzz_alloc(size); /* aligned, and as long as it is */
    bsr_safetensors f;
    bsr_error error;
    bsr_status status;
    int64_t i, n = 0;
    if (size) memcpy(file, data, size);
    status = bsr_parse_safetensors(file, size, &f, &error);
    FUZZ_REQUIRE(status == BSR_OK || status == BSR_PARSE_ERROR);
    FUZZ_REQUIRE(error.status == (int32_t)status);
    FUZZ_REQUIRE(status == BSR_OK || (error.index >= 0 && (size_t)error.index <= size));
    for (i = 0; status == BSR_OK && i < f.tensors && n < NAMES; i++) {
        static const char tail[] = "crow_indices";
        const int length = bsr_safetensors_name(&f, i, name[n], sizeof name[n]);
        int matrix;
        FUZZ_REQUIRE(length >= 0);
        if (length >= (int)sizeof name[n]) continue;
        FUZZ_REQUIRE(strlen(name[n]) <= (size_t)length);
        matrix = length >= 12 && !strcmp(name[n] + length - 12, tail) && (length == 12 || name[n][length - 13] == '.');
        item[n].name = name[n], item[n].value.dense = NULL, item[n].value.sparse = NULL;
        if (matrix) {
            name[n][length > 12 ? length - 13 : 0] = 0;
            if (bsr_safetensors_matrix(&f, name[n], &m[n], &error) != BSR_OK) continue;
            touch_matrix(file, size, &m[n]), item[n].value.sparse = &m[n], n++;
        } else {
            if (bsr_safetensors_dense(&f, name[n], &d[n], &error) != BSR_OK) continue;
            item[n].value.dense = &d[n], n++;
        }
    }
    if (status == BSR_OK) FUZZ_REQUIRE(bsr_safetensors_name(&f, f.tensors, name[0], 0) == -1);
    write_again(item, n);
    fuzz_free();
    return 0;
}

#ifdef FUZZ_MAIN
#define M "\"__metadata__\":{\"w.shape\":\"[4, 6]\",\"w.block\":\"[2, 3]\"}"
#define CROW(at, to) "\"w.crow_indices\":{\"dtype\":\"I32\",\"shape\":[3],\"data_offsets\":[" at "," to "]}"
#define COL(at, to) "\"w.col_indices\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[" at "," to "]}"
#define VALUES(at, to) "\"w.values\":{\"shape\":[0,2,3],\"data_offsets\":[" at "," to "],\"dtype\":\"F16\"}"
int main(int argc, char **argv) {
    static const struct {
        const char *header;
        size_t data; /* bytes, zeros */
    } files[] = {
        {"{}", 0},
        {"{" M "," CROW("0", "12") "," COL("12", "12") "," VALUES("12", "12") "}  ", 12},
        {"{" VALUES("12", "12") "," COL("0", "0") " , " M "," CROW("0", "12") "}", 12},
        {"{" M "," CROW("0", "12") "," COL("12", "12") "}", 12},
        {"{\"b\\u00e9\\ud83d\\ude00\\n\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24],"
         "\"more\":[{\"a\":[-1.5e+3,null]},[]]}}",
         24},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[1,4],"
         "\"data_offsets\":[8,12]}}",
         12},
        {"{\"__metadata__\":{\"w.shape\":\"[4, 4]\",\"w.block\":\"[2, 4]\"}," CROW("0", "12") ",\"w.col_indices\":{\"dtype\":"
         "\"I32\",\"shape\":[1],\"data_offsets\":[12,16]},\"w.values\":{\"shape\":[1,2,2],\"data_offsets\":[16,20],"
         "\"dtype\":\"U8\"}}",
         20},
        {"{\"crow_indices\":{\"dtype\":\"I64\",\"shape\":[2,2],\"data_offsets\":[0,32]},\"col_indices\":{\"dtype\":\"I64\","
         "\"shape\":[1,0],\"data_offsets\":[32,32]},\"__metadata__\":{\"shape\":\"[2,5,7]\",\"block\":\"[5,7]\","
         "\"ragged\":\"true\"}}",
         32},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9223372036854775807],"
         "\"data_offsets\":[0,18446744073709551616]}}",
         0},
    };
    static uint8_t bytes[sizeof files / sizeof files[0]][512];
    fuzz_seed seeds[sizeof files / sizeof files[0]];
    size_t i;
    for (i = 0; i < sizeof files / sizeof files[0]; i++) {
        const size_t n = strlen(files[i].header);
        bytes[i][0] = (uint8_t)(n & 255), bytes[i][1] = (uint8_t)(n >> 8);
        memcpy(bytes[i] + 8, files[i].header, n);
        seeds[i].bytes = (const char *)bytes[i], seeds[i].size = 8 + n + files[i].data;
    }
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 3000);
}
#endif
