#define MODULE module_two
#define FACTOR 3
#include "module.h"
