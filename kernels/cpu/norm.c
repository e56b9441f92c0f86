/* RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016). float32 is read in place. Other
 * types are converted in pieces on the stack, for each of the sums and for the result. */
#include <math.h>

#include "kernels/cpu/state.h"

/* `count` elements as floats: in place if they are floats, else converted into `piece`. */
static const float *as_floats(const struct cpu_kernels *kernels, float *piece, const void *data, enum dtype dtype,
                              int64_t start, int64_t count)
{
    const void *first = cpu_element(data, dtype, start);
    if (dtype == DTYPE_FLOAT32) return first;
    kernels->to_float(piece, first, dtype, count);
    return piece;
}

/* residual = sum_multiplier * (residual + multiplier * x). */
static void add_row(const struct cpu_kernels *kernels, void *residual, const void *x,
                    const struct fused_add_rms_norm_args *args)
{
    const enum dtype dtype = args->dtype;
    const int64_t size = args->size;
    const float multiplier = args->multiplier, sum_multiplier = args->sum_multiplier;
    float left[CPU_PIECE], right[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        const float *a = as_floats(kernels, left, residual, dtype, i, n),
                    *c = as_floats(kernels, right, x, dtype, i, n);
        for (int64_t j = 0; j < n; j++) left[j] = sum_multiplier * (a[j] + multiplier * c[j]);
        kernels->from_float(cpu_element_out(residual, dtype, i), left, dtype, n);
    }
}

static float sum_squares(const struct cpu_kernels *kernels, const void *x, int64_t size, enum dtype dtype)
{
    float piece[CPU_PIECE], sum = 0;
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        sum += kernels->sum_squares(as_floats(kernels, piece, x, dtype, i, n), n);
    }
    return sum;
}

static float mean_of(const struct cpu_kernels *kernels, const void *x, int64_t size, enum dtype dtype)
{
    float piece[CPU_PIECE];
    double sum = 0;
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        const float *values = as_floats(kernels, piece, x, dtype, i, n);
        for (int64_t j = 0; j < n; j++) sum += values[j];
    }
    return (float)(sum / (double)size);
}

static void layer_norm_row(const struct cpu_kernels *kernels, const struct norm_params *norm, void *out, const void *x,
                           int64_t size, enum dtype dtype)
{
    float piece[CPU_PIECE], gain_piece[CPU_PIECE], bias_piece[CPU_PIECE], squares = 0;
    const float mean = mean_of(kernels, x, size, dtype);
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        const float *values = as_floats(kernels, piece, x, dtype, i, n);
        for (int64_t j = 0; j < n; j++) piece[j] = values[j] - mean;
        squares += kernels->sum_squares(piece, n);
    }
    const float factor = 1.0f / sqrtf(squares / (float)size + norm->eps);
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        const float *values = as_floats(kernels, piece, x, dtype, i, n);
        const float *gain = as_floats(kernels, gain_piece, norm->gain, norm->gain_dtype, i, n);
        for (int64_t j = 0; j < n; j++) piece[j] = (values[j] - mean) * factor * gain[j];
        if (norm->bias) {
            const float *bias = as_floats(kernels, bias_piece, norm->bias, norm->bias_dtype, i, n);
            for (int64_t j = 0; j < n; j++) piece[j] += bias[j];
        }
        kernels->from_float(cpu_element_out(out, dtype, i), piece, dtype, n);
    }
}

static void rms_norm_row(const struct cpu_kernels *kernels, const struct norm_params *norm, void *out, const void *x,
                         int64_t size, enum dtype dtype)
{
    float piece[CPU_PIECE], gain_piece[CPU_PIECE];
    const float factor = 1.0f / sqrtf(sum_squares(kernels, x, size, dtype) / (float)size + norm->eps);
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        const float *values = as_floats(kernels, piece, x, dtype, i, n);
        const float *gain = as_floats(kernels, gain_piece, norm->gain, norm->gain_dtype, i, n);
        const bool direct = dtype == DTYPE_FLOAT32;
        kernels->scale(direct ? (float *)out + i : piece, values, gain, factor, n);
        if (!direct) kernels->from_float(cpu_element_out(out, dtype, i), piece, dtype, n);
    }
}

void cpu_norm_row(const struct cpu_kernels *kernels, const struct norm_params *norm, void *out, const void *x,
                  int64_t size, enum dtype dtype)
{
    if (norm->type == NORM_LAYER) {
        layer_norm_row(kernels, norm, out, x, size, dtype);
    } else {
        rms_norm_row(kernels, norm, out, x, size, dtype);
    }
}

static void norm_token(const struct cpu_state *s, const void *rms_norm_args, int64_t t, int thread)
{
    (void)thread;
    const struct rms_norm_args *args = rms_norm_args;
    cpu_norm_row(s->kernels, &args->norm, cpu_element_out(args->out, args->dtype, t * args->out_stride),
                 cpu_element(args->x, args->dtype, t * args->x_stride), args->size, args->dtype);
}

void cpu_rms_norm(struct backend *b, const struct rms_norm_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * args->size, args->num_tokens, norm_token, args);
}

static void add_norm_token(const struct cpu_state *s, const void *add_norm_args, int64_t t, int thread)
{
    (void)thread;
    const struct fused_add_rms_norm_args *args = add_norm_args;
    const struct cpu_kernels *kernels = s->kernels;
    const enum dtype dtype = args->dtype;
    const int64_t size = args->size;
    void *residual = cpu_element_out(args->residual, dtype, t * size);
    void *out = args->out ? cpu_element_out(args->out, dtype, t * size) : NULL;
    void *x = cpu_element_out(args->x, dtype, t * size);
    if (args->post_norm) cpu_norm_row(kernels, args->post_norm, x, x, size, dtype);
    add_row(kernels, residual, x, args);
    if (out) cpu_norm_row(kernels, &args->norm, out, residual, size, dtype);
}

void cpu_fused_add_rms_norm(struct backend *b, const struct fused_add_rms_norm_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * args->size, args->num_tokens, add_norm_token, args);
}
