/* test_sums.c on the device. */
#include "mirror.h"
#include "../test_sums.c"
