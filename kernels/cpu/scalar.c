/* The inner loops in plain C: the reference for the other versions. Sums run in eight lanes, which keeps rounding
 * errors small and lets a compiler use the vectors of its target. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/fp8.h"

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
    case DTYPE_E8M0:
        for (int64_t i = 0; i < count; i++) out[i] = e8m0_to_float(bytes[i]);
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
            ((uint8_t *)out)[i] = float_to_fp8(in[i], dtype == DTYPE_FP8_E4M3);
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

static void multiply_add(float *out, const float *x, const float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] += x[i] * y[i];
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

static void softplus(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] = (x[i] < 0 ? 0 : x[i]) + log1pf(expf(-fabsf(x[i])));
}

static void dot_all(const struct cpu_dot_args *args)
{
    const int64_t in_features = args->in_features;
    const uint8_t *weights = args->weights;
    float piece[PIECE];
    for (int64_t o = 0; o < args->out_features; o++) {
        for (int t = 0; t < args->num_tokens; t++) args->out[t * args->out_stride + o] = 0;
        for (int64_t i = 0; i < in_features; i += PIECE) {
            const int64_t count = in_features - i < PIECE ? in_features - i : PIECE;
            to_float(piece, weights + (o * in_features + i) * dtype_size(args->dtype), args->dtype, count);
            for (int t = 0; t < args->num_tokens; t++)
                args->out[t * args->out_stride + o] += dot(args->x + t * args->x_stride + i, piece, count);
        }
    }
}

static void columns(const struct cpu_columns_args *args)
{
    const uint8_t *weights = args->weights;
    float piece[PIECE];
    for (int64_t o = 0; o < args->out_features; o += PIECE) {
        const int64_t count = args->out_features - o < PIECE ? args->out_features - o : PIECE;
        for (int64_t i = 0; i < args->in_features; i++) {
            to_float(piece, weights + (i * args->weight_stride + o) * dtype_size(args->dtype), args->dtype, count);
            for (int t = 0; t < args->num_tokens; t++) {
                const float x = args->x[t * args->x_stride + i];
                float *out = args->out + t * args->out_stride + o;
                for (int64_t j = 0; j < count; j++) out[j] += x * piece[j];
            }
        }
    }
}

static float recur(const struct cpu_recurrence_args *args, const float *source, int64_t t, int64_t r)
{
    const int64_t k_size = args->k_size;
    const float *k = args->k + t * k_size, *decays = args->decays ? args->decays + t * k_size : NULL;
    float *state = args->state + r * k_size;
    for (int64_t i = 0; i < k_size; i++) state[i] = source[i] * (decays ? decays[i] : args->decay[t]);
    const float read = args->delta ? dot(state, k, k_size) : 0;
    const float factor = args->beta[t] * (args->v[t * args->row_stride + r] - read);
    for (int64_t i = 0; i < k_size; i++) state[i] += factor * k[i];
    return dot(state, args->q + t * k_size, k_size);
}

static void recurrence(const struct cpu_recurrence_args *args)
{
    for (int64_t t = 0; t < args->num_tokens; t++)
        for (int64_t r = 0; r < args->num_rows; r++)
            args->out[t * args->row_stride + r] =
                recur(args, (t == 0 ? args->source : args->state) + r * args->k_size, t, r);
}

static void scores(const struct cpu_scores_args *args)
{
    const int x = args->x;
    for (int r = 0; r < args->num_rows; r++)
        for (int t = 0; t < args->num_tokens; t++) {
            float sum = 0;
            for (int d = 0; d < args->head_size; d += x)
                for (int j = 0; j < x; j++)
                    sum += args->query[r * args->head_size + d + j] *
                           args->keys[((int64_t)d / x * args->block_size + t) * x + j];
            args->scores[r * args->score_stride + t] = sum;
        }
}

static void weighted_values(const struct cpu_values_args *args)
{
    const int64_t block_size = args->block_size;
    for (int r = 0; r < args->num_rows; r++)
        for (int d = 0; d < args->head_size; d++) {
            float sum = 0;
            for (int b = 0; b < args->num_blocks; b++)
                sum += dot(args->weights + r * args->weight_stride + b * block_size, args->values[b] + d * block_size,
                           block_size);
            args->out[r * args->head_size + d] += sum;
        }
}

const struct cpu_kernels cpu_kernels_scalar = {
    .to_float = to_float,
    .from_float = from_float,
    .sum_squares = sum_squares,
    .scale = scale,
    .silu_and_mul = silu_and_mul,
    .gelu_tanh_and_mul = gelu_tanh_and_mul,
    .multiply_add = multiply_add,
    .rotate = rotate,
    .maximum = maximum,
    .exponentials = exponentials,
    .softplus = softplus,
    .dot = dot_all,
    .columns = columns,
    .recurrence = recurrence,
    .scores = scores,
    .weighted_values = weighted_values,
};
