/* test_moe.c on the device. */
#include "mirror.h"
#include "../test_moe.c"
