#include "kernels/dtype.h"

#include <math.h>
#include <stddef.h>

#include "kernels/fp8.h"

static const char *const names[] = {"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"};

const char *dtype_name(enum dtype dtype)
{
    return names[dtype];
}

int dtype_parse(const char *name, enum dtype *out)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } aliases[] = {{"float", DTYPE_FLOAT32}, {"half", DTYPE_FLOAT16}, {"fp8", DTYPE_FP8_E4M3}};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum dtype)i;
            return 0;
        }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(name, aliases[i].name) == 0) {
            *out = aliases[i].dtype;
            return 0;
        }
    return -1;
}

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

float dtype_load(const void *data, enum dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT32:
        return ((const float *)data)[i];
    case DTYPE_FLOAT16:
        return fp16_to_float(((const uint16_t *)data)[i]);
    case DTYPE_BFLOAT16:
        return bf16_to_float(((const uint16_t *)data)[i]);
    case DTYPE_FP8_E4M3:
        return fp8_e4m3_to_float(((const uint8_t *)data)[i]);
    case DTYPE_FP8_E5M2:
        return fp8_e5m2_to_float(((const uint8_t *)data)[i]);
    }
    return NAN;
}

void dtype_store(void *data, enum dtype dtype, int64_t i, float value)
{
    switch (dtype) {
    case DTYPE_FLOAT32:
        ((float *)data)[i] = value;
        break;
    case DTYPE_FLOAT16:
        ((uint16_t *)data)[i] = float_to_fp16(value);
        break;
    case DTYPE_BFLOAT16:
        ((uint16_t *)data)[i] = float_to_bf16(value);
        break;
    case DTYPE_FP8_E4M3:
    case DTYPE_FP8_E5M2:
        ((uint8_t *)data)[i] = float_to_fp8(value, dtype);
        break;
    }
}
