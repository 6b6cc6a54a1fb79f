/* test_attention.c on the device. */
#include "mirror.h"
#define OPTIONS_CASES 240
#include "../test_attention.c"
