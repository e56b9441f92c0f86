#include "kernels/dtype.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/fp8.h"

static const char *const names[] = {"float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2", "e8m0"};

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
    for (int i = 0; i < DTYPE_E8M0; i++)
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
    case DTYPE_E8M0:
        return e8m0_to_float(((const uint8_t *)data)[i]);
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
        ((uint8_t *)data)[i] = float_to_fp8(value, dtype == DTYPE_FP8_E4M3);
        break;
    case DTYPE_E8M0:
        ((uint8_t *)data)[i] = float_to_e8m0(value);
        break;
    }
}
