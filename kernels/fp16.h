/* The two 16-bit floats, bfloat16 and float16, from and to float32 (round to nearest even). */
#ifndef QUIRE_KERNELS_FP16_H
#define QUIRE_KERNELS_FP16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bf16_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t float_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40); /* NaN stays NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline float fp16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ffu, bits;
    float f;
    if (exponent == 0) {
        f = ldexpf((float)mantissa, -24); /* zero and subnormals */
        return sign ? -f : f;
    }
    bits = exponent == 31 ? sign | 0x7f800000u | (mantissa << 13) : sign | ((exponent + 112) << 23) | (mantissa << 13);
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t float_to_fp16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;  /* NaN */
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u; /* rounds to infinity */
    if (magnitude < 0x38800000u) {                       /* below 2^-14: subnormal, in units of 2^-24 */
        float units = ldexpf(fabsf(f), 24);
        return (uint16_t)(sign | (uint16_t)lrintf(units)); /* lrintf rounds to nearest even */
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

#endif
