/* The two 8-bit floats of weights and of a KV cache (Micikevicius et al., "FP8 formats for deep learning", 2022).
 * e4m3: bias 7, no infinity, 0x7f is NaN, largest 448. e5m2: the upper byte of a float16, largest 57344.
 * The smaller floats of MXFP4 (OCP Microscaling Formats 1.0): e2m1 of 4 bits, and e8m0, the exponent of a scale. */
#ifndef QUIRE_KERNELS_FP8_H
#define QUIRE_KERNELS_FP8_H

#include <math.h>
#include <stdbool.h>

#include "kernels/fp16.h"

/* e5m2 is a float16 without the lower 8 bits of its mantissa. e4m3, shifted into the fields of a float16, is too small
 * by a factor of 2^8, the difference of the exponents' biases. */
static inline float fp8_e5m2_to_float(uint8_t b)
{
    return fp16_to_float((uint16_t)(b << 8));
}

static inline float fp8_e4m3_to_float(uint8_t b)
{
    if ((b & 0x7f) == 0x7f) return NAN;
    return 256.0f * fp16_to_float((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7));
}

static inline float e2m1_to_float(uint8_t b)
{
    static const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return b & 8 ? -magnitudes[b & 7] : magnitudes[b & 7];
}

static inline float e8m0_to_float(uint8_t b)
{
    return b == 255 ? NAN : ldexpf(1, b - 127);
}

/* The nearest power of two; NaN stays NaN. */
static inline uint8_t float_to_e8m0(float f)
{
    int exponent;
    const float mantissa = frexpf(fabsf(f), &exponent); /* |f| = mantissa * 2^exponent, mantissa in [0.5, 1) */
    const int code = exponent + 126, rounded = code + (mantissa > 0.75f || (mantissa == 0.75f && code % 2 != 0));
    return isnan(f) ? 255 : rounded < 0 || f == 0 ? 0 : rounded > 254 ? 254 : (uint8_t)rounded;
}

/* The bits, without the sign, of the nearest fp8 value; ties to even. */
static inline uint8_t fp8_round(float magnitude, int mantissa_bits, int bias)
{
    int exponent;
    if (magnitude == 0) return 0; /* frexpf finds no exponent in it */
    frexpf(magnitude, &exponent); /* magnitude = m * 2^exponent, m in [0.5, 1) */
    exponent -= 1;
    if (exponent < 1 - bias) exponent = 1 - bias;                         /* subnormals share the smallest exponent */
    int units = (int)lrintf(ldexpf(magnitude, mantissa_bits - exponent)); /* lrintf rounds to nearest even */
    /* `units` of a normal number include its implicit bit, which adds one to the exponent field; so does a carry. */
    return (uint8_t)(((exponent + bias - 1) << mantissa_bits) + units);
}

/* e4m3, or e5m2. Values beyond the largest are stored as the largest; NaN stays NaN. */
static inline uint8_t float_to_fp8(float f, bool e4m3)
{
    uint8_t sign = signbit(f) ? 0x80 : 0;
    float magnitude = fabsf(f), largest = e4m3 ? 448.0f : 57344.0f;
    if (isnan(f)) return sign | 0x7f;
    if (magnitude > largest) magnitude = largest;
    return sign | (e4m3 ? fp8_round(magnitude, 3, 7) : fp8_round(magnitude, 2, 15));
}

#endif
