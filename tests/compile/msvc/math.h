/* What the library takes from <math.h>: for a compiler that speaks MSVC's dialect without MSVC's headers. */
#ifndef STUB_MATH_H
#define STUB_MATH_H
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#ifdef __cplusplus
extern "C" {
#endif
double ceil(double), erf(double), exp(double), fabs(double), floor(double), ldexp(double, int), log(double), log2(double);
double pow(double, double), rint(double), sqrt(double), tanh(double);
float erff(float), expf(float), fabsf(float), logf(float), sqrtf(float), tanhf(float);
#ifdef __cplusplus
}
#endif
#endif
