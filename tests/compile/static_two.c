#define BSRSPARSE_STATIC
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

int static_one(void);
int main(void) {
    bsr_info info;
    bsr_context *ctx = NULL;
    int good = bsr_create(NULL, &ctx, NULL) == BSR_OK && bsr_query_info(ctx, &info) == BSR_OK && info.version == BSR_VERSION;
    bsr_destroy(ctx);
    return good && static_one() ? 0 : 1;
}
