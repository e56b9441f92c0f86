/* The two 16-bit floats, bfloat16 and float16, from and to float32 (round to nearest even). */
#ifndef QUIRE_KERNELS_FP16_H
#define QUIRE_KERNELS_FP16_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

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

float fp16_to_float(uint16_t h);
uint16_t float_to_fp16(float f);

#ifdef __cplusplus
}
#endif

#endif
