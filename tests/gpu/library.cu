/* The library with both backends and the tests' user functions; the test programs are linked with it. */
#include <cuda_runtime.h>

/* What the library launches is noted while gm_launches is set: also by conversions, whose plans name no kernel. */
long *gm_launches; /* by number in the kernel table */
static void gm_note_launch(const void *kernel);
static cudaError_t gm_launch(const cudaLaunchConfig_t *config, const void *kernel, void **args) {
    if (gm_launches) gm_note_launch(kernel);
    return cudaLaunchKernelExC(config, kernel, args);
}
#define cudaLaunchKernelExC gm_launch
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"

static const struct {
    int number;
    const char *name;
    const void *kernel;
} gm_table[] = {
#define X(name, number, of, tier, type, block, costs, kernel, ...) {number, #name, (const void *)kernel<__VA_ARGS__>},
    BSRI_KERNELS(X)
#undef X
#define X(name, number, ...) {number, #name, (const void *)__VA_ARGS__},
    BSRI_KERNELS_MATRICES(X)
#undef X
};
static const int gm_table_size = (int)(sizeof gm_table / sizeof *gm_table);
static void gm_note_launch(const void *kernel) {
    for (int i = 0; i < gm_table_size; i++)
        if (gm_table[i].kernel == kernel) gm_launches[gm_table[i].number]++;
}
/* The kernel table, for `gpu_tests kernels`, without the one that is never launched: null behind the last one. */
const char *gm_kernel(int i, int *number) {
    for (int k = 0; k < gm_table_size && k <= i; k++) i += gm_table[k].kernel == (const void *)bsri_compiled_tier;
    if (i < 0 || i >= gm_table_size) return NULL;
    *number = gm_table[i].number;
    return gm_table[i].name;
}
