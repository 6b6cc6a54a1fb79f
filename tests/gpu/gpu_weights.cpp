#include "mirror.h"
#include "../test_weights.c"
