/* test_rows.c on the device. */
#include "mirror.h"
#include "../test_rows.c"
