/* One program holds all GPU tests: gpu_tests PROGRAM[,PROGRAM...] ARGUMENTS. (The kernels are large: carried and loaded once.)
   gpu_tests kernels: the kernel table. */
#include <stdio.h>
#include <string.h>

long gm_total[3]; /* passed, failed, skipped */
#define PROGRAMS(X)                                                                                                  \
    X(gpu_product)                                                                                                   \
    X(gpu_sampled) X(gpu_rows) X(gpu_maps) X(gpu_attention) X(gpu_attention_backward) X(gpu_errors) X(gpu_f8) X(gpu_scales) \
        X(gpu_weights) X(gpu_matrices) X(gpu_random) \
        X(gpu_calls) X(gpu_cache) X(gpu_decode) X(gpu_indices) X(gpu_kernels) X(gpu_products) X(gpu_sizes) X(gpu_streams) \
        X(gpu_sums) X(gpu_conv) X(gpu_chain) X(gpu_moe) X(gpu_experts) X(gpu_masks) X(gpu_quantise)
#define X(name) int main_##name(int argc, char **argv);
PROGRAMS(X)
#undef X
const char *gm_kernel(int i, int *number); /* library.cu */

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } programs[] = {
#define X(name) {#name, main_##name},
        PROGRAMS(X)
#undef X
    };
    int ran = 0, failed = 0, number;
    if (argc == 2 && !strcmp(argv[1], "kernels")) {
        for (int i = 0; const char *name = gm_kernel(i, &number); i++) printf("%d %s\n", number, name);
        return 0;
    }
    for (const char *p = argc > 1 ? argv[1] : ""; *p;) {
        size_t n = strcspn(p, ",");
        for (auto &program : programs) {
            char *copy[64];
            int count = argc - 1 < 63 ? argc - 1 : 63;
            if (strlen(program.name) != n || strncmp(program.name, p, n)) continue;
            memcpy(copy, argv + 1, (size_t)count * sizeof copy[0]), copy[count] = nullptr;
            failed |= program.run(count, copy), ran++;
            fflush(stdout);
        }
        p += n + (p[n] == ',');
    }
    if (!ran) return printf("usage: %s PROGRAM[,PROGRAM...] [arguments], see tests/gpu/mirror.h\n", argv[0]), 2;
    printf("%ld passed, %ld failed, %ld skipped\n", gm_total[0], gm_total[1], gm_total[2]);
    return failed;
}
