#include "kernels/fp16.h"

#include <math.h>

float fp16_to_float(uint16_t h)
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

uint16_t float_to_fp16(float f)
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
