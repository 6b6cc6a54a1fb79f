#include "mirror.h"
#include "../test_scales.c"
