/* The scales of an fp8 (e4m3) KV cache that are measured, not given by the checkpoint: real value = stored value *
 * scale. A scale is a power of two, so that it moves the range of the numbers that can be stored and does not change
 * how a number inside the range is rounded. Plain C that nvcc compiles too. */
#ifndef QUIRE_KERNELS_KV_SCALE_H
#define QUIRE_KERNELS_KV_SCALE_H

#include <math.h>

#ifdef __CUDACC__
#define KV_SCALE_FUNCTION __host__ __device__ static inline
#else
#define KV_SCALE_FUNCTION static inline
#endif

/* Numbers from 2^-10, with all bits of their mantissa, to 28: few tokens may say little of those to come. */
#define KV_SCALE_LEAST 0.0625f

/* The least power of two, from KV_SCALE_LEAST on, with which four times `largest` can be stored. largest is finite and
 * not negative. The largest number of e4m3 is 448. */
KV_SCALE_FUNCTION float kv_scale_for(float largest)
{
    int exponent;
    const float least = largest / 112;
    if (least <= KV_SCALE_LEAST) return KV_SCALE_LEAST;
    const float mantissa = frexpf(least, &exponent); /* least = mantissa * 2^exponent, mantissa in [0.5, 1) */
    return ldexpf(1, mantissa == 0.5f ? exponent - 1 : exponent);
}

#endif
