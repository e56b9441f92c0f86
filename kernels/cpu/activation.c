/* Gated linear units (Shazeer, "GLU variants improve transformer", 2020): SwiGLU and GEGLU; and activations without a
 * gate, among them xIELU (Huang and Schlag, "Deriving activation functions using integration", 2024). */
#include <math.h>

#include "kernels/cpu/state.h"

/* (1 + erf(u)) / 2 is erfc(-u) / 2, which keeps its precision where it is small. One version for all processors: the
 * matmuls around it take much longer. */
static void gelu_and_mul(float *out, const float *gate, const float *up, int64_t count)
{
    const float sqrt_half = 0.70710678f;
    for (int64_t i = 0; i < count; i++) out[i] = 0.5f * gate[i] * erfcf(-sqrt_half * gate[i]) * up[i];
}

static void act_and_mul(const struct cpu_kernels *kernels, enum activation activation, float *out, const float *gate,
                        const float *up, int64_t count)
{
    switch (activation) {
    case ACTIVATION_GELU:
        gelu_and_mul(out, gate, up, count);
        break;
    case ACTIVATION_GELU_TANH:
        kernels->gelu_tanh_and_mul(out, gate, up, count);
        break;
    default:
        kernels->silu_and_mul(out, gate, up, count);
    }
}

/* NaN stays NaN. */
static void limit_gate(float limit, float *gate, float *up, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        gate[i] = gate[i] > limit ? limit : gate[i];
        up[i] = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
    }
}

/* NaN stays NaN. */
static void relu(float *out, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = x[i] < 0 ? 0 : x[i];
}

/* out = activation(x), of at most CPU_PIECE elements; any but xielu. */
static void activate(const struct cpu_kernels *kernels, enum activation activation, float *out, const float *x,
                     int64_t count)
{
    float ones[CPU_PIECE];
    if (activation == ACTIVATION_RELU || activation == ACTIVATION_RELU2) {
        relu(out, x, count);
        for (int64_t i = 0; i < count && activation == ACTIVATION_RELU2; i++) out[i] *= out[i];
        return;
    }
    for (int64_t i = 0; i < count; i++) ones[i] = 1;
    act_and_mul(kernels, activation, out, x, ones, count);
}

void cpu_gate(const struct cpu_kernels *kernels, const struct gate_params *params, float *gate, float *up,
              int64_t count)
{
    const float sharpness = 1.702f;
    if (params->kind == GATE_NONE) {
        activate(kernels, params->activation, gate, gate, count);
        return;
    }
    if (params->kind == GATE_MULTIPLY && params->limit > 0) {
        activate(kernels, params->activation, gate, gate, count);
        limit_gate(params->limit, gate, up, count);
        for (int64_t i = 0; i < count; i++) gate[i] *= up[i];
        return;
    }
    if (params->kind == GATE_MULTIPLY) {
        act_and_mul(kernels, params->activation, gate, gate, up, count);
        return;
    }
    if (params->limit > 0) limit_gate(params->limit, gate, up, count);
    /* g sigmoid(c g) = silu(c g) / c */
    for (int64_t i = 0; i < count; i++) gate[i] *= sharpness, up[i] = (up[i] + 1) / sharpness;
    kernels->silu_and_mul(gate, gate, up, count);
}

static void act_token(const struct cpu_state *s, const void *act_args, int64_t t, int thread)
{
    (void)thread;
    const struct act_and_mul_args *args = act_args;
    const struct cpu_kernels *kernels = s->kernels;
    const enum dtype dtype = args->dtype;
    const int64_t size = args->size;
    const void *row = cpu_element(args->gate_up, dtype, (args->up ? 1 : 2) * t * size);
    const void *ups = args->up ? cpu_element(args->up, dtype, t * args->up_stride) : cpu_element(row, dtype, size);
    void *out = cpu_element_out(args->out, dtype, t * size);
    const struct gate_params params = {GATE_MULTIPLY, args->activation, args->limit};
    if (dtype == DTYPE_FLOAT32 && args->limit <= 0) {
        act_and_mul(kernels, args->activation, out, row, ups, size);
        return;
    }
    float gate[CPU_PIECE], up[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        kernels->to_float(gate, cpu_element(row, dtype, i), dtype, n);
        kernels->to_float(up, cpu_element(ups, dtype, i), dtype, n);
        cpu_gate(kernels, &params, gate, up, n);
        kernels->from_float(cpu_element_out(out, dtype, i), gate, dtype, n);
    }
}

void cpu_act_and_mul(struct backend *b, const struct act_and_mul_args *args)
{
    cpu_for(cpu_state(b), 3 * (int64_t)args->num_tokens * args->size, args->num_tokens, act_token, args);
}

static void xielu(const struct xielu_params *p, float *out, const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float positive = p->alpha_p * x[i] * x[i];
        const float negative = p->alpha_n * (expm1f(fminf(x[i], p->eps)) - x[i]);
        out[i] = (x[i] > 0 ? positive : negative) + p->beta * x[i];
    }
}

static void activate_token(const struct cpu_state *s, const void *activate_args, int64_t t, int thread)
{
    (void)thread;
    const struct activate_args *args = activate_args;
    const struct cpu_kernels *kernels = s->kernels;
    const enum dtype dtype = args->dtype;
    float piece[CPU_PIECE];
    for (int64_t i = 0; i < args->size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, args->size - i);
        kernels->to_float(piece, cpu_element(args->x, dtype, t * args->size + i), dtype, n);
        if (args->activation == ACTIVATION_XIELU)
            xielu(&args->xielu, piece, piece, n);
        else
            activate(kernels, args->activation, piece, piece, n);
        kernels->from_float(cpu_element_out(args->out, dtype, t * args->size + i), piece, dtype, n);
    }
}

void cpu_activate(struct backend *b, const struct activate_args *args)
{
    cpu_for(cpu_state(b), 8 * (int64_t)args->num_tokens * args->size, args->num_tokens, activate_token, args);
}
