/* test_masks.c on the device. */
#include "mirror.h"
#include "../test_masks.c"
