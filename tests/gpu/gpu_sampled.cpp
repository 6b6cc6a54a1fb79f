/* test_sampled.c on the device. */
#include "mirror.h"
#include "../test_sampled.c"
