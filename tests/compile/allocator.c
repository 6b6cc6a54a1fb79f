/* BSRSPARSE_MALLOC and BSRSPARSE_FREE are what is called, as often the one as the other. */
#include <stdlib.h>
static int taken, given;
static void *count_malloc(size_t bytes) { return taken++, malloc(bytes); }
static void count_free(void *p) { given += p != NULL, free(p); }
#define BSRSPARSE_MALLOC(bytes) count_malloc(bytes)
#define BSRSPARSE_FREE(ptr) count_free(ptr)
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

int main(void) {
    bsr_context *ctx = NULL;
    if (bsr_create(NULL, &ctx, NULL) != BSR_OK || taken != 1 || given != 0) return 1;
    bsr_destroy(ctx);
    return taken == 1 && given == 1 ? 0 : 2;
}
