/* test_chain.c on the device. */
#include "mirror.h"
#include "../test_chain.c"
