#include "mirror.h"
#include "../test_f8.c"
