/* test_errors.c on the device. */
#include "mirror.h"
#include "../test_errors.c"
