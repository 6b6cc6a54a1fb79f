/* A module of a program, as a game engine has several: a private copy of the library (BSRSPARSE_STATIC) with its own user
   function, allocator, logger and, on CUDA, stream. The file that includes this says MODULE (its name) and FACTOR. */
#define BSRSPARSE_STATIC
#define BSRSPARSE_USER_FUNCTIONS "tests/modules/functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

#include "modules.h"

enum { SIZE = 64, BLOCK = 16, ROWS = SIZE / BLOCK };

static bsr_context *ctx;
static bsr_exec run;
static int32_t *crow, *col;
static float *values, *b, *c;
static int allocations, messages, strangers; /* strangers: calls with another module's pointer */

static void *own_alloc(size_t bytes, void *user) { return allocations++, strangers += user != &ctx, malloc(bytes); }
static void own_free(void *p, void *user) { allocations -= p != NULL, strangers += user != &ctx, free(p); }
static void own_log(int level, int item, const char *message, void *user) {
    messages++, strangers += user != &ctx || level != BSR_LOG_ERROR || item != BSR_ITEM_COLS_MISMATCH || !message;
}

#ifdef BSRI_CUDA
static void *memory(size_t bytes) {
    void *p = NULL;
    return cudaMallocManaged(&p, bytes) == cudaSuccess ? p : NULL;
}
static int waited(void) { return cudaStreamSynchronize(run.stream) == cudaSuccess; }
static int stream_open(void) { return cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking) == cudaSuccess; }
static void stream_close(void) { cudaStreamDestroy(run.stream), cudaFree(values), cudaFree(crow); }
#else
static void *memory(size_t bytes) { return malloc(bytes); }
static int waited(void) { return 1; }
static int stream_open(void) { return 1; }
static void stream_close(void) { free(values), free(crow); }
#endif

static int module_open(int backend) { /* one block in each row, on the diagonal; all its elements are 1 */
    bsr_context_desc desc = BSR_ZERO;
    int i;
    desc.backend = backend;
    desc.allocator.alloc_fn = own_alloc, desc.allocator.free_fn = own_free, desc.allocator.user = &ctx;
    desc.logger.func = own_log, desc.logger.user = &ctx;
    if (bsr_create(&desc, &ctx, NULL) != BSR_OK || allocations != 1 || !stream_open()) return 0;
    crow = (int32_t *)memory(2 * (ROWS + 1) * sizeof *crow), values = (float *)memory(3 * SIZE * SIZE * sizeof *values);
    if (!crow || !values) return 0;
    col = crow + ROWS + 1, b = values + SIZE * SIZE, c = b + SIZE * SIZE;
    for (i = 0; i <= ROWS; i++) crow[i] = col[i] = i;
    for (i = 0; i < SIZE * SIZE; i++) values[i] = 1, b[i] = (float)(i % SIZE), c[i] = -1;
    return 1;
}
/* Starts c = graded(A b); with `wrong`, the same with an operand that does not fit. */
static bsr_status module_start(int wrong) {
    bsr_matrix A = bsr_matrix_make(SIZE, SIZE, BLOCK, BLOCK, ROWS, crow, col, BSR_I32, values, BSR_F32);
    bsr_dense B = bsr_dense_row_major(b, BSR_F32, SIZE, SIZE - wrong), C = bsr_dense_row_major(c, BSR_F32, SIZE, SIZE);
    bsr_epilogue end = BSR_ZERO;
    end.activation = BSR_EPILOGUE_graded;
    return bsr_dense_addmm(ctx, 0, NULL, 1, 0, &A, &B, &end, &C, &run);
}
static int module_check(int mistakes) {
    int i, right = waited();
    for (i = 0; i < SIZE * SIZE; i++) right &= c[i] == (float)(FACTOR * BLOCK * (i % SIZE)), c[i] = -1;
    return right && messages == mistakes && !strangers && allocations == 1;
}
static int module_close(void) {
    const int good = waited();
    stream_close(), bsr_destroy(ctx);
    return good && allocations == 0;
}
const module MODULE = {module_open, module_start, module_check, module_close};
