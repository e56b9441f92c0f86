/* RMSNorm of groups, and gates before or after it. */
#include <math.h>

#include "kernels/cpu/state.h"

/* A group of a token. */
struct group {
    const struct cpu_kernels *kernels;
    const struct gated_norm_args *args;
    int64_t token, first, size; /* its elements are [first, first + size) of the token */
};

void cpu_apply_gate(const struct cpu_kernels *kernels, bool sigmoid, float *x, float *gate, int64_t count)
{
    if (!sigmoid) {
        kernels->silu_and_mul(x, gate, x, count);
        return;
    }
    for (int64_t i = 0; i < count; i++) gate[i] = -gate[i];
    kernels->exponentials(gate, 0, count);
    for (int64_t i = 0; i < count; i++) x[i] /= 1 + gate[i];
}

static void gate_piece(const struct group *g, float *x, int64_t first, int64_t count)
{
    const struct gated_norm_args *args = g->args;
    float gate[CPU_PIECE];
    g->kernels->to_float(gate, cpu_element(args->gate, args->dtype, g->token * args->gate_stride + first), args->dtype,
                         count);
    cpu_apply_gate(g->kernels, args->sigmoid, x, gate, count);
}

/* What the norm is of: x, or x times its gates. */
static void load_piece(const struct group *g, float *x, int64_t first, int64_t count)
{
    const struct gated_norm_args *args = g->args;
    g->kernels->to_float(x, cpu_element(args->x, args->dtype, g->token * args->size + first), args->dtype, count);
    if (args->gate_first) gate_piece(g, x, first, count);
}

/* x = x * factor * gain, rounded where that is asked for. */
static void norm_piece(const struct group *g, float *x, float factor, int64_t first, int64_t count)
{
    const struct gated_norm_args *args = g->args;
    float gain[CPU_PIECE];
    uint32_t rounded[CPU_PIECE];
    const int64_t gain_first = args->gain_size == args->size ? first : first - g->first;
    g->kernels->to_float(gain, cpu_element(args->gain, args->gain_dtype, gain_first), args->gain_dtype, count);
    g->kernels->scale(x, x, gain, factor, count);
    if (!args->round_norm) return;
    g->kernels->from_float(rounded, x, args->dtype, count);
    g->kernels->to_float(x, rounded, args->dtype, count);
}

static float rms_factor(const struct group *g)
{
    float x[CPU_PIECE], sum = 0;
    for (int64_t i = 0; i < g->size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, g->size - i);
        load_piece(g, x, g->first + i, n);
        sum += g->kernels->sum_squares(x, n);
    }
    return 1 / sqrtf(sum / (float)g->size + g->args->eps);
}

/* Without a norm, a piece is a group. */
static int64_t group_size(const struct gated_norm_args *args)
{
    return args->gain ? args->group_size : CPU_PIECE;
}

static void norm_group(const struct cpu_state *s, const void *norm_args, int64_t index, int thread)
{
    (void)thread;
    const struct gated_norm_args *args = norm_args;
    const int64_t size = group_size(args), groups = divide_up(args->size, size), first = index % groups * size;
    const struct group g = {.kernels = s->kernels,
                            .args = args,
                            .token = index / groups,
                            .first = first,
                            .size = min_i64(size, args->size - first)};
    const float factor = args->gain ? rms_factor(&g) : 1;
    float x[CPU_PIECE];
    for (int64_t i = 0; i < g.size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, g.size - i), at = first + i;
        load_piece(&g, x, at, n);
        if (args->gain) norm_piece(&g, x, factor, at, n);
        if (!args->gate_first) gate_piece(&g, x, at, n);
        s->kernels->from_float(cpu_element_out(args->out, args->dtype, g.token * args->size + at), x, args->dtype, n);
    }
}

void cpu_gated_norm(struct backend *b, const struct gated_norm_args *args)
{
    const int64_t groups = divide_up(args->size, group_size(args));
    cpu_for(cpu_state(b), 8 * (int64_t)args->num_tokens * args->size, args->num_tokens * groups, norm_group, args);
}
