#include "tests/support/operations.h"

struct weight weight_of(const struct tensor *w, int64_t in_features, const struct tensor *bias)
{
    return (struct weight){.format = weight_format_of(w->dtype),
                           .out_features = w->count / in_features,
                           .in_features = in_features,
                           .data = w->data,
                           .bias = bias ? bias->data : NULL,
                           .bias_dtype = bias ? bias->dtype : DTYPE_FLOAT32};
}

struct linear_args linear_of(const struct tensor *out, const struct tensor *x, const struct weight *w)
{
    return (struct linear_args){.out = out->data,
                                .out_stride = w->out_features,
                                .out_dtype = out->dtype,
                                .x = x->data,
                                .x_stride = w->in_features,
                                .dtype = x->dtype,
                                .num_tokens = (int32_t)(x->count / w->in_features),
                                .weight = w};
}

struct norm_params norm_of(const struct tensor *gain)
{
    return (struct norm_params){.gain = gain->data, .gain_dtype = gain->dtype, .eps = 1e-5f};
}

struct rms_norm_args rms_norm_of(const struct tensor *out, const struct tensor *x, const struct tensor *gain)
{
    return (struct rms_norm_args){.out = out->data,
                                  .x = x->data,
                                  .out_stride = gain->count,
                                  .x_stride = gain->count,
                                  .norm = norm_of(gain),
                                  .num_tokens = (int32_t)(x->count / gain->count),
                                  .size = (int32_t)gain->count,
                                  .dtype = x->dtype};
}

struct fused_add_rms_norm_args fused_add_rms_norm_of(const struct tensor *out, const struct tensor *x,
                                                     const struct tensor *residual, const struct tensor *gain)
{
    return (struct fused_add_rms_norm_args){.out = out->data,
                                            .x = x->data,
                                            .residual = residual->data,
                                            .multiplier = 1,
                                            .norm = norm_of(gain),
                                            .num_tokens = (int32_t)(x->count / gain->count),
                                            .size = (int32_t)gain->count,
                                            .dtype = x->dtype};
}

struct act_and_mul_args act_and_mul_of(const struct tensor *out, const struct tensor *gate_up, int32_t num_tokens)
{
    return (struct act_and_mul_args){.out = out->data,
                                     .gate_up = gate_up->data,
                                     .activation = ACTIVATION_SILU,
                                     .num_tokens = num_tokens,
                                     .size = (int32_t)(gate_up->count / 2 / num_tokens),
                                     .dtype = gate_up->dtype};
}

struct xielu_args xielu_of(const struct tensor *out, const struct tensor *x, int32_t num_tokens)
{
    return (struct xielu_args){.out = out->data,
                               .x = x->data,
                               .params = {.alpha_p = 0.8f, .alpha_n = 1.1f, .beta = 0.5f, .eps = -1e-6f},
                               .num_tokens = num_tokens,
                               .size = (int32_t)(x->count / num_tokens),
                               .dtype = x->dtype};
}

struct gather_rows_args gather_rows_of(const struct tensor *out, const struct tensor *x, const struct tensor *indices)
{
    const int32_t num_indices = (int32_t)(indices->bytes / (int64_t)sizeof(int32_t));
    return (struct gather_rows_args){.out = out->data,
                                     .x = x->data,
                                     .indices = indices->data,
                                     .num_indices = num_indices,
                                     .size = (int32_t)(out->count / num_indices),
                                     .dtype = x->dtype};
}

struct embedding_args embedding_of(const struct tensor *out, const struct tensor *ids,
                                   const struct tensor *last_sampled, const struct weight *table)
{
    return (struct embedding_args){.out = out->data,
                                   .ids = ids->data,
                                   .last_sampled = last_sampled->data,
                                   .num_tokens = (int32_t)(ids->bytes / (int64_t)sizeof(int32_t)),
                                   .table = table,
                                   .multiplier = 1,
                                   .dtype = out->dtype};
}
