/* stand_ins.h: what the three instructions of >>vectors' groups do, in C: for tests on machines that lack them, and to compare
   with where they are there. BSRI_STAND_INS of bsrsparse.h; the tests' library has it. */
#include <math.h>
unsigned t_stand_ins; /* a bit for each bsr_isa whose instruction C stands in for: where the machine lacks it; tests set more */
#define T_STANDS_IN(isa) (t_stand_ins >> (isa) & 1u)
#define BSRI_STANDS_IN(isa) (t_stand_ins |= 1u << (isa), 1) /* asked where the machine lacks it */
#define BSRI_DPBF16(c, a, b) \
    (T_STANDS_IN(BSR_ISA_AVX512_BF16) ? t_dpbf16(c, a, b) : _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b)))
#define BSRI_DPBUSD(c, a, b) (T_STANDS_IN(BSR_ISA_AVX512_VNNI) ? t_dpbusd(c, a, b) : _mm512_dpbusd_epi32(c, a, b))
#define BSRI_DPBUSD_AVX(c, a, b) \
    (T_STANDS_IN(BSR_ISA_AVX2_VNNI) ? t_dpbusd_avx(c, a, b) : _mm256_dpbusd_avx_epi32(c, a, b))

/* The second product of a pair, then the first, each added by a fused multiply-add that rounds to nearest; what is subnormal on
   the way in or out counts as zero. */
static float t_flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static float t_fma(uint16_t a, uint16_t b, float c) {
    const uint32_t ua = (uint32_t)a << 16, ub = (uint32_t)b << 16;
    float x, y;
    memcpy(&x, &ua, 4), memcpy(&y, &ub, 4);
    return t_flushed(fmaf(t_flushed(x), t_flushed(y), t_flushed(c)));
}
static __attribute__((target("avx512f"))) __m512 t_dpbf16(__m512 c, __m512 a, __m512 b) {
    uint16_t x[32], y[32];
    float z[16];
    int i;
    _mm512_storeu_ps(z, c), _mm512_storeu_ps(x, a), _mm512_storeu_ps(y, b);
    for (i = 0; i < 16; i++) z[i] = t_fma(x[2 * i], y[2 * i], t_fma(x[2 * i + 1], y[2 * i + 1], z[i]));
    return _mm512_loadu_ps(z);
}
/* Four products of a number without a sign and one with. */
static void t_fours(uint32_t *c, const uint8_t *a, const int8_t *b, int lanes) {
    int i;
    for (i = 0; i < 4 * lanes; i++) c[i / 4] += (uint32_t)(a[i] * b[i]);
}
static __attribute__((target("avx512f"))) __m512i t_dpbusd(__m512i c, __m512i a, __m512i b) {
    uint8_t x[64];
    int8_t y[64];
    uint32_t z[16];
    _mm512_storeu_si512(z, c), _mm512_storeu_si512(x, a), _mm512_storeu_si512(y, b);
    t_fours(z, x, y, 16);
    return _mm512_loadu_si512(z);
}
static __attribute__((target("avx2"))) __m256i t_dpbusd_avx(__m256i c, __m256i a, __m256i b) {
    uint8_t x[32];
    int8_t y[32];
    uint32_t z[8];
    _mm256_storeu_si256((__m256i *)(void *)z, c), _mm256_storeu_si256((__m256i *)(void *)x, a);
    _mm256_storeu_si256((__m256i *)(void *)y, b);
    t_fours(z, x, y, 8);
    return _mm256_loadu_si256((const __m256i *)(const void *)z);
}
