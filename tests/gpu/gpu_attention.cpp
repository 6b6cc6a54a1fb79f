/* test_attention.c on the device. */
#include "mirror.h"
#include "../test_attention.c"
