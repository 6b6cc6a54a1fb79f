/* One program holds all GPU tests: gpu_tests PROGRAM ARGUMENTS. (The kernels are large; carried once, not seven times.) */
#include <stdio.h>
#include <string.h>

#define PROGRAMS(X) X(gpu_product) X(gpu_sampled) X(gpu_rows) X(gpu_attention) X(gpu_errors) X(gpu_matrices) X(gpu_test)
#define X(name) int main_##name(int argc, char **argv);
PROGRAMS(X)
#undef X

int main(int argc, char **argv) {
#define X(name) if (argc > 1 && !strcmp(argv[1], #name)) return main_##name(argc - 1, argv + 1);
    PROGRAMS(X)
#undef X
#define X(name) " " #name
    printf("usage: %s PROGRAM [arguments]; programs:" PROGRAMS(X) "\n", argv[0]);
    return 2;
}
