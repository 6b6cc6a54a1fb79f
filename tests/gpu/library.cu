/* The library with both backends and the tests' user functions; the test programs are linked with it. */
#define BSRSPARSE_USER_FUNCTIONS "tests/test_functions.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
