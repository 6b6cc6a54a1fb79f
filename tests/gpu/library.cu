/* The library with both backends and the tests' user functions; the test programs are linked with it. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

/* The kernel table, for `gpu_tests kernels`: null behind the last one. */
const char *gm_kernel(int i, int *number) {
    static const struct {
        int number;
        const char *name;
    } list[] = {
#define X(number, name, kernel, bytes) {number, name},
        BSRI_KERNELS(X)
#undef X
    };
    if (i < 0 || i >= (int)(sizeof list / sizeof *list)) return NULL;
    *number = list[i].number;
    return list[i].name;
}
