/* test_attention_backward.c on the device. */
#include "mirror.h"
#include "../test_attention_backward.c"
