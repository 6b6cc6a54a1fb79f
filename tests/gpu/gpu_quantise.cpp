/* test_quantise.c on the device. */
#include "mirror.h"
#include "../test_quantise.c"
