#include "kernels/cpu/linear.h"

void matmul_add_bias(const struct matmul *m, float *sums, int64_t first, int64_t count)
{
    float bias[PIECE_FEATURES];
    const struct weight *w = m->w;
    if (!w->bias) return;
    m->s->kernels->to_float(bias, cpu_element(w->bias, w->bias_dtype, first), w->bias_dtype, count);
    for (int64_t i = 0; i < count; i++) sums[i] += bias[i];
}

void matmul_finish(const struct matmul *m, int64_t token, int64_t first, float *sums, int64_t count)
{
    const struct linear_args *args = m->args;
    matmul_add_bias(m, sums, first, count);
    m->s->kernels->from_float(cpu_element_out(args->out, args->out_dtype, token * args->out_stride + first), sums,
                              args->out_dtype, count);
}

void matmul_gather_x(const struct matmul *m, float *out, int64_t token, int64_t start, int64_t count)
{
    const int32_t *order = m->w->input_order;
    const void *x = matmul_x(m, token, 0);
    if (!order) {
        m->s->kernels->to_float(out, matmul_x(m, token, start), m->args->dtype, count);
    } else if (m->args->dtype == DTYPE_FLOAT32) {
        for (int64_t i = 0; i < count; i++) out[i] = ((const float *)x)[order[start + i]];
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = dtype_load(x, m->args->dtype, order[start + i]);
    }
}

int64_t matmul_few_pieces(const struct matmul_parts *parts, int64_t features)
{
    int64_t pieces = 0;
    for (int i = 0; i < parts->count; i++) pieces += divide_up(parts->m[i].out_features, features);
    return pieces;
}

struct few_piece matmul_few_piece(const struct matmul_parts *parts, int64_t features, int64_t index)
{
    const struct matmul *m = parts->m;
    for (; index * features >= m->out_features; m++) index -= divide_up(m->out_features, features);
    return (struct few_piece){m, index * features, min_i64(features, m->out_features - index * features)};
}

int64_t matmul_few_work(const struct matmul_parts *parts, int num_tokens)
{
    int64_t sum = 0;
    for (int i = 0; i < parts->count; i++) sum += matmul_work(&parts->m[i], num_tokens);
    return sum;
}
