/* The inner loops in plain C: what every other version is compared with. Sums run in eight lanes, which keeps rounding
 * errors small and lets a compiler use whatever vectors its target has. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/fp8.h"
#include "kernels/cpu/kernels.h"

enum { LANES = 8, PIECE = 256 };

static void to_float(float *out, const void *in, enum dtype dtype, int64_t count)
{
    const uint8_t *bytes = in;
    const uint16_t *halves = in;
    switch (dtype) {
    case DTYPE_FLOAT32:
        if (count > 0) memcpy(out, in, (size_t)count * sizeof *out);
        break;
    case DTYPE_FLOAT16:
        for (int64_t i = 0; i < count; i++) out[i] = fp16_to_float(halves[i]);
        break;
    case DTYPE_BFLOAT16:
        for (int64_t i = 0; i < count; i++) out[i] = bf16_to_float(halves[i]);
        break;
    case DTYPE_FP8_E4M3:
        for (int64_t i = 0; i < count; i++) out[i] = fp8_e4m3_to_float(bytes[i]);
        break;
    case DTYPE_FP8_E5M2:
        for (int64_t i = 0; i < count; i++) out[i] = fp8_e5m2_to_float(bytes[i]);
        break;
    }
}

static void from_float(void *out, const float *in, enum dtype dtype, int64_t count)
{
    if (dtype == DTYPE_FLOAT32) {
        if (count > 0) memcpy(out, in, (size_t)count * sizeof *in);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (dtype_size(dtype) == 1) {
            ((uint8_t *)out)[i] = float_to_fp8(in[i], dtype);
        } else {
            dtype_store(out, dtype, i, in[i]);
        }
    }
}

static float sum_lanes(const float lanes[LANES])
{
    float sum = 0;
    for (int j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

static float dot(const float *x, const float *y, int64_t count)
{
    float lanes[LANES] = {0}, tail = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += x[i + j] * y[i + j];
    for (; i < count; i++) tail += x[i] * y[i];
    return sum_lanes(lanes) + tail;
}

static float sum_squares(const float *x, int64_t count)
{
    return dot(x, x, count);
}

static void scale(float *out, const float *x, const float *gain, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = x[i] * factor * gain[i];
}

static void silu_and_mul(float *out, const float *gate, const float *up, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

/* (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)). */
static void gelu_tanh_and_mul(float *out, const float *gate, const float *up, int64_t count)
{
    const float twice_sqrt_2_over_pi = 1.59576912f;
    for (int64_t i = 0; i < count; i++) {
        const float x = gate[i], u2 = twice_sqrt_2_over_pi * (x + 0.044715f * x * x * x);
        out[i] = x / (1.0f + expf(-u2)) * up[i];
    }
}

static void rotate(float *first, float *second, const float *cos, const float *sin, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float a = first[i], b = second[i];
        first[i] = a * cos[i] - b * sin[i];
        second[i] = b * cos[i] + a * sin[i];
    }
}

static float maximum(const float *x, int64_t count)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < count; i++)
        if (x[i] > max) max = x[i];
    return max;
}

static float exponentials(float *x, float shift, int64_t count)
{
    float sum = 0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = expf(x[i] - shift);
        sum += x[i];
    }
    return sum;
}

static void dot_rows(float *out, int64_t out_stride, const float *x, int64_t x_stride, int rows, const void *w,
                     enum dtype dtype, int64_t w_stride, int64_t count, int64_t columns)
{
    float piece[PIECE];
    const uint8_t *bytes = w;
    for (int64_t n = 0; n < count; n++) {
        for (int r = 0; r < rows; r++) out[r * out_stride + n] = 0;
        for (int64_t c = 0; c < columns; c += PIECE) {
            int64_t length = columns - c < PIECE ? columns - c : PIECE;
            to_float(piece, bytes + (n * w_stride + c) * dtype_size(dtype), dtype, length);
            for (int r = 0; r < rows; r++) out[r * out_stride + n] += dot(x + r * x_stride + c, piece, length);
        }
    }
}

static void scores(float *out, int64_t score_stride, const float *query, int64_t query_stride, int rows, const float *k,
                   int head_size, int block_size, int x, int tokens)
{
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) {
            float sum = 0;
            for (int d = 0; d < head_size; d += x)
                for (int j = 0; j < x; j++)
                    sum += query[r * query_stride + d + j] * k[((int64_t)d / x * block_size + t) * x + j];
            out[r * score_stride + t] = sum;
        }
}

static void weighted_values(float *out, int64_t out_stride, const float *weights, int64_t weight_stride, int rows,
                            const float *const *values, int num_blocks, int head_size, int block_size)
{
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < head_size; d++) {
            float sum = 0;
            for (int b = 0; b < num_blocks; b++)
                sum += dot(weights + r * weight_stride + (int64_t)b * block_size, values[b] + (int64_t)d * block_size,
                           block_size);
            out[r * out_stride + d] += sum;
        }
}

const struct cpu_kernels cpu_kernels_scalar = {
    .to_float = to_float,
    .from_float = from_float,
    .sum_squares = sum_squares,
    .scale = scale,
    .silu_and_mul = silu_and_mul,
    .gelu_tanh_and_mul = gelu_tanh_and_mul,
    .rotate = rotate,
    .maximum = maximum,
    .exponentials = exponentials,
    .dot_rows = dot_rows,
    .scores = scores,
    .weighted_values = weighted_values,
};
