/* Compiled as C, as C++ and by nvcc, with every switch. */
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
