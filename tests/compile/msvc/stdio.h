/* As math.h beside it. */
#ifndef STUB_STDIO_H
#define STUB_STDIO_H
#include <stddef.h>
#ifdef __cplusplus
extern "C"
#endif
int snprintf(char *text, size_t size, const char *format, ...);
#endif
