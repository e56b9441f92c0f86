/* Loops over arrays of floats, for the vectors of the file that includes this. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_ROWS_H
#define QUIRE_KERNELS_CPU_VECTOR_ROWS_H

#include <math.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vector.h"

/* LANES elements of any type; `dtype` is a constant where this is inlined. */
VECTOR vec vec_load_as(const void *data, enum dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT16:
        return vec_load_fp16((const uint16_t *)data + i);
    case DTYPE_BFLOAT16:
        return vec_load_bf16((const uint16_t *)data + i);
    case DTYPE_FP8_E4M3:
        return vec_load_e4m3((const uint8_t *)data + i);
    case DTYPE_FP8_E5M2:
        return vec_load_e5m2((const uint8_t *)data + i);
    case DTYPE_E8M0:
        return vec_load_e8m0((const uint8_t *)data + i);
    default:
        return vec_load((const float *)data + i);
    }
}

/* exp(x) to 2 units of the last place: 2^n * exp(r), r = x - n ln 2 in [-0.35, 0.35] by eight terms of its Taylor
 * series; the ninth is below 6e-9. Flushes to 0 below the smallest normal number; NaN stays NaN. */
VECTOR vec vec_exp(vec x)
{
    vec low = vec_set(-87.33f);
    vec clamped = vec_min(vec_set(88.8f), vec_max(low, x));
    vec n = vec_round(clamped * vec_set(1.44269504f));
    vec r = vec_fma(n, vec_set(-0.693145752f), clamped); /* ln 2 in two parts: the first times n is exact */
    r = vec_fma(n, vec_set(-1.42860677e-6f), r);
    vec p = vec_set(1.0f / 5040);
    p = vec_fma(p, r, vec_set(1.0f / 720));
    p = vec_fma(p, r, vec_set(1.0f / 120));
    p = vec_fma(p, r, vec_set(1.0f / 24));
    p = vec_fma(p, r, vec_set(1.0f / 6));
    p = vec_fma(p, r, vec_set(0.5f));
    p = vec_fma(p, r, vec_set(1));
    p = vec_fma(p, r, vec_set(1));
    return vec_zero_below(vec_scale_exponent(p, n), x, low);
}

VECTOR void convert_to_float(float *out, const void *in, enum dtype dtype, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_load_as(in, dtype, i));
    if (i < count) cpu_kernels_scalar.to_float(out + i, (const uint8_t *)in + i * dtype_size(dtype), dtype, count - i);
}

static void to_float(float *out, const void *in, enum dtype dtype, int64_t count)
{
    if (dtype == DTYPE_FLOAT32) convert_to_float(out, in, DTYPE_FLOAT32, count);
    if (dtype == DTYPE_FLOAT16) convert_to_float(out, in, DTYPE_FLOAT16, count);
    if (dtype == DTYPE_BFLOAT16) convert_to_float(out, in, DTYPE_BFLOAT16, count);
    if (dtype == DTYPE_FP8_E4M3) convert_to_float(out, in, DTYPE_FP8_E4M3, count);
    if (dtype == DTYPE_FP8_E5M2) convert_to_float(out, in, DTYPE_FP8_E5M2, count);
    if (dtype == DTYPE_E8M0) convert_to_float(out, in, DTYPE_E8M0, count);
}

static void from_float(void *out, const float *in, enum dtype dtype, int64_t count)
{
    int64_t i = 0;
    uint16_t *halves = out;
    switch (dtype) {
    case DTYPE_FLOAT32:
        for (; i + LANES <= count; i += LANES) vec_store((float *)out + i, vec_load(in + i));
        break;
    case DTYPE_FLOAT16:
        for (; i + LANES <= count; i += LANES) vec_store_fp16(halves + i, vec_load(in + i));
        break;
    case DTYPE_BFLOAT16:
        for (; i + LANES <= count; i += LANES) vec_store_bf16(halves + i, vec_load(in + i));
        break;
    default:
        break; /* an fp8 element is written once for each token and layer: plain C is fast enough */
    }
    if (i < count) cpu_kernels_scalar.from_float((uint8_t *)out + i * dtype_size(dtype), in + i, dtype, count - i);
}

static float sum_squares(const float *x, int64_t count)
{
    vec sums[4] = {vec_zero(), vec_zero(), vec_zero(), vec_zero()};
    int64_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            vec v = vec_load(x + i + j * LANES);
            sums[j] = vec_fma(v, v, sums[j]);
        }
    float tail = 0;
    for (; i < count; i++) tail += x[i] * x[i];
    return vec_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) + tail;
}

static void scale(float *out, const float *x, const float *gain, float factor, int64_t count)
{
    int64_t i = 0;
    vec f = vec_set(factor);
    for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_load(x + i) * f * vec_load(gain + i));
    for (; i < count; i++) out[i] = x[i] * factor * gain[i];
}

static void silu_and_mul(float *out, const float *gate, const float *up, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec g = vec_load(gate + i), e = vec_exp(vec_zero() - g);
        vec_store(out + i, g / (vec_set(1) + e) * vec_load(up + i));
    }
    for (; i < count; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

/* x / (1 + exp(-2u)), u = sqrt(2 / pi) * (x + 0.044715 x^3). */
static void gelu_tanh_and_mul(float *out, const float *gate, const float *up, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec x = vec_load(gate + i), cubic = vec_fma(x * x, vec_set(0.044715f), vec_set(1));
        vec e = vec_exp(x * cubic * vec_set(-1.59576912f));
        vec_store(out + i, x / (vec_set(1) + e) * vec_load(up + i));
    }
    cpu_kernels_scalar.gelu_tanh_and_mul(out + i, gate + i, up + i, count - i);
}

static void multiply_add(float *out, const float *x, const float *y, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store(out + i, vec_fma(vec_load(x + i), vec_load(y + i), vec_load(out + i)));
    cpu_kernels_scalar.multiply_add(out + i, x + i, y + i, count - i);
}

static void rotate(float *first, float *second, const float *cos, const float *sin, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec a = vec_load(first + i), b = vec_load(second + i), c = vec_load(cos + i), s = vec_load(sin + i);
        vec_store(first + i, a * c - b * s);
        vec_store(second + i, vec_fma(a, s, b * c));
    }
    cpu_kernels_scalar.rotate(first + i, second + i, cos + i, sin + i, count - i);
}

static float maximum(const float *x, int64_t count)
{
    int64_t i = 0;
    vec best = vec_set(-INFINITY);
    for (; i + LANES <= count; i += LANES) best = vec_max(vec_load(x + i), best);
    float rest = cpu_kernels_scalar.maximum(x + i, count - i), most = vec_largest(best);
    return most > rest ? most : rest;
}

/* max(x, 0) + log(1 + e), e = exp(-|x|). log(1 + e) = 2 atanh(z), z = e / (2 + e) <= 1 / 3, by eight terms of the
 * series of atanh; the ninth is below 2e-9 of the first. */
VECTOR vec vec_softplus(vec x)
{
    const vec e = vec_exp(vec_min(x, vec_zero() - x)), z = e / (e + vec_set(2)), z2 = z * z;
    vec p = vec_set(1.0f / 15);
#pragma GCC unroll 8
    for (int i = 13; i > 0; i -= 2) p = vec_fma(p, z2, vec_set(1.0f / (float)i));
    return vec_fma(z + z, p, vec_max(vec_zero(), x));
}

static void softplus(float *x, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) vec_store(x + i, vec_softplus(vec_load(x + i)));
    cpu_kernels_scalar.softplus(x + i, count - i);
}

static float exponentials(float *x, float shift, int64_t count)
{
    int64_t i = 0;
    vec s = vec_set(shift), sum = vec_zero();
    for (; i + LANES <= count; i += LANES) {
        vec e = vec_exp(vec_load(x + i) - s);
        vec_store(x + i, e);
        sum += e;
    }
    return vec_sum(sum) + cpu_kernels_scalar.exponentials(x + i, shift, count - i);
}

#endif
