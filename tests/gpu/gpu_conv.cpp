/* test_conv.c on the device. */
#include "mirror.h"
#include "../test_conv.c"
