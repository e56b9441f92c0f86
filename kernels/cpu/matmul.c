/* What matmuls of few and of many tokens share. */
#include "kernels/cpu/linear.h"

void matmul_add_bias(const struct matmul *m, const struct weight *w, float *sums, int64_t first, int64_t count)
{
    float bias[PIECE_FEATURES];
    if (!w->bias) return;
    m->s->kernels->to_float(bias, cpu_element(w->bias, w->bias_dtype, first), w->bias_dtype, count);
    for (int64_t i = 0; i < count; i++) sums[i] += bias[i];
}

void matmul_finish(const struct matmul *m, int64_t token, int64_t first, float *sums, float *ups, int64_t count)
{
    const struct linear_args *args = m->args;
    matmul_add_bias(m, m->w, sums, first, count);
    if (m->up) matmul_add_bias(m, m->up->w, ups, m->up->first + first, count);
    if (m->gate) cpu_gate(m->s->kernels, m->gate, sums, ups, count);
    m->s->kernels->from_float(cpu_element_out(args->out, args->out_dtype, token * args->out_stride + first), sums,
                              args->out_dtype, count);
}

/* The weight of an expert's row. */
static float weight_of_row(const struct matmul *m, int64_t row)
{
    const int64_t first = (int64_t)m->tokens[row] * m->top_k;
    for (int32_t j = 0; j < m->top_k; j++)
        if (m->x_weights->rows[first + j] == row) return m->x_weights->weights[first + j];
    return 0;
}

static void multiply_x(const struct matmul *m, float *x, float factor, int64_t count)
{
    uint32_t rounded[CPU_PIECE];
    for (int64_t i = 0; i < count; i++) x[i] *= factor;
    if (m->args->dtype == DTYPE_FLOAT32) return;
    for (int64_t i = 0; i < count; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, count - i);
        m->s->kernels->from_float(rounded, x + i, m->args->dtype, n);
        m->s->kernels->to_float(x + i, rounded, m->args->dtype, n);
    }
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
    if (m->x_weights) multiply_x(m, out, weight_of_row(m, token), count);
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
