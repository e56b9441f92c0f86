/* Element types of weights, activations and the KV cache. Numbers are rounded to nearest even. */
#ifndef QUIRE_KERNELS_DTYPE_H
#define QUIRE_KERNELS_DTYPE_H

#include <stdint.h>

#include "kernels/fp16.h"

#ifdef __cplusplus
extern "C" {
#endif

/* E8M0 is only the type of scales: byte b is 2^(b - 127), and 255 is NaN. */
enum dtype { DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_E8M0 };

static inline int dtype_size(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 ? 4 : dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 ? 2 : 1;
}

/* "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2" or "e8m0". */
const char *dtype_name(enum dtype dtype);
/* Accepts those names but "e8m0", and vLLM's short ones ("float", "half", "fp8"). Returns 0, or -1 for an unknown name.
 */
int dtype_parse(const char *name, enum dtype *out);

/* Element i of an array. Not for inner loops. E8M0 stores magnitudes, and 2^-127 for 0. */
float dtype_load(const void *data, enum dtype dtype, int64_t i);
void dtype_store(void *data, enum dtype dtype, int64_t i, float value);

#ifdef __cplusplus
}
#endif

#endif
