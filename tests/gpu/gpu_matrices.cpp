/* test_matrices.c on the device. */
#include "mirror.h"
#include "../test_matrices.c"
