#include "tests/support/operations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

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

void check_linear_parts(struct test_backend *tb, const struct weight *const weights[], int count,
                        const struct tensor *x, bool is_taken)
{
    struct backend *b = tb->b;
    struct linear_args parts[LINEAR_MAX_PARTS];
    int64_t width = 0;
    if (!b->linear_parts) return;
    for (int i = 0; i < count; i++) width += weights[i]->out_features;
    const int64_t tokens = x->count / weights[0]->in_features;
    struct tensor expected = tensor_poison(b, x->dtype, tokens * width),
                  out = tensor_poison(b, x->dtype, tokens * width);
    for (int64_t i = 0, column = 0; i < count; column += weights[i++]->out_features) {
        parts[i] = linear_of(&expected, x, weights[i]);
        parts[i].out = (uint8_t *)expected.data + column * dtype_size(x->dtype);
        parts[i].out_stride = width;
        if (is_taken) b->linear(b, &parts[i]);
        parts[i].out = (uint8_t *)out.data + column * dtype_size(x->dtype);
    }
    assert_int_equal(b->linear_parts(b, parts, count), is_taken);
    tensor_download(&expected), tensor_download(&out);
    assert_memory_equal(out.host, expected.host, tokens * width * dtype_size(x->dtype));
    check_workspace(tb);
    tensor_free(&expected), tensor_free(&out);
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
                                            .sum_multiplier = 1,
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

struct activate_args activate_of(const struct tensor *out, const struct tensor *x, int32_t num_tokens)
{
    return (struct activate_args){.out = out->data,
                                  .x = x->data,
                                  .activation = ACTIVATION_SILU,
                                  .num_tokens = num_tokens,
                                  .size = (int32_t)(x->count / num_tokens),
                                  .dtype = x->dtype};
}

struct gather_rows_args gather_rows_of(const struct tensor *out, const struct tensor *x, const struct tensor *indices)
{
    const int32_t num_indices = (int32_t)(indices->bytes / (int64_t)sizeof(int32_t));
    const int32_t size = (int32_t)(out->count / num_indices);
    return (struct gather_rows_args){.out = out->data,
                                     .x = x->data,
                                     .out_stride = size,
                                     .x_stride = size,
                                     .indices = indices->data,
                                     .num_indices = num_indices,
                                     .size = size,
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
