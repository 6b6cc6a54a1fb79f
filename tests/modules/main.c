/* Two modules in one program, neither of which knows of the other. Arguments: cpu (default) or cuda. */
#include "bsrsparse.h"
#include "modules.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const int backend = argc > 1 && !strcmp(argv[1], "cuda") ? BSR_BACKEND_CUDA : BSR_BACKEND_CPU;
    int round, good = module_one.open(backend) && module_two.open(backend);
    for (round = 0; good && round < 20; round++) {
        good = module_one.start(0) == BSR_OK && module_two.start(0) == BSR_OK; /* both at a time, on CUDA */
        good = good && module_two.check(round / 2) && module_one.check(round / 5);
        if (round % 2 == 1) good = good && module_two.start(1) != BSR_OK;
        if (round % 5 == 4) good = good && module_one.start(1) != BSR_OK;
    }
    good = module_one.close() & module_two.close() & good;
    printf("modules: %d rounds, %s\n", round, good ? "good" : "BAD");
    printf("%d passed, %d failed, 0 skipped\n", good, !good);
    return !good;
}
