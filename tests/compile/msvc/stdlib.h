/* As math.h beside it. */
#ifndef STUB_STDLIB_H
#define STUB_STDLIB_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
void *malloc(size_t bytes);
void free(void *memory);
#ifdef __cplusplus
}
#endif
#endif
