/* test_decode.c on the device, few queries by kernels of their own, split or not; see mirror.h. */
#include "mirror.h"
#include "../test_decode.c"
