/* Declarations, implementation, declarations, and the implementation asked for once more: all in one file. */
#include <stdio.h>
#include "bsrsparse.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
#include "bsrsparse.h"
#undef BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
#define BSRSPARSE_IMPLEMENTATION
#include "bsrsparse.h"
