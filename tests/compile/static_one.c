/* One of two files of a program that each hold a private copy. */
#define BSRSPARSE_STATIC
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

int static_one(void);
int static_one(void) {
    bsr_context *ctx = NULL;
    int good = bsr_create(NULL, &ctx, NULL) == BSR_OK;
    bsr_destroy(ctx);
    return good && bsr_version() == BSR_VERSION;
}
