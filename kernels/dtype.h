/* Element types of weights, activations and the KV cache, and their conversions (round to nearest even). */
#ifndef QUIRE_KERNELS_DTYPE_H
#define QUIRE_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype { DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2 };

static inline int dtype_size(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 ? 4 : dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 ? 2 : 1;
}

/* "float32", "float16", "bfloat16", "fp8_e4m3" or "fp8_e5m2". */
const char *dtype_name(enum dtype dtype);
/* Accepts those names and vLLM's short ones ("float", "half", "fp8"). Returns 0, or -1 for an unknown name. */
int dtype_parse(const char *name, enum dtype *out);

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

/* Element i of an array. Not for inner loops. */
float dtype_load(const void *data, enum dtype dtype, int64_t i);
void dtype_store(void *data, enum dtype dtype, int64_t i, float value);

#ifdef __cplusplus
}
#endif

#endif
