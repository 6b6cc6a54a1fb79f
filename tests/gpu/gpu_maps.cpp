/* test_maps.c on the device. */
#include "mirror.h"
#include "../test_maps.c"
