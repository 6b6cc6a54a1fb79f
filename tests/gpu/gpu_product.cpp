/* test_product.c on the device. */
#include "mirror.h"
#include "../test_product.c"
