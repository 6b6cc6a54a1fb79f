#define MODULE module_one
#define FACTOR 2
#include "module.h"
