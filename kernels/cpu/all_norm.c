/* Norms of elements that ranks have between them: each rank's sums of squares, which all_reduce adds; and the norm. */
#include <math.h>

#include "kernels/cpu/state.h"

static int32_t group_of(const struct all_norm_args *args, const struct all_norm *norm)
{
    return args->rank * norm->num_groups / args->num_ranks;
}

/* Elements of a token in args->squares. */
static int32_t squares_stride(const struct all_norm_args *args)
{
    int32_t stride = 0;
    for (int i = 0; i < args->num_norms; i++) stride += args->norms[i].num_groups;
    return stride;
}

/* Elements [first, first + count) of a token, times their gates. */
static void gate_piece(const struct cpu_kernels *kernels, const struct all_norm *norm, enum dtype dtype, float *x,
                       int64_t token, int64_t first, int64_t count)
{
    float gate[CPU_PIECE];
    kernels->to_float(gate, cpu_element(norm->gate, dtype, token * norm->gate_stride + first), dtype, count);
    cpu_apply_gate(kernels, norm->sigmoid, x, gate, count);
}

/* What the norm is of. */
static void load_piece(const struct cpu_kernels *kernels, const struct all_norm *norm, enum dtype dtype, float *x,
                       int64_t token, int64_t first, int64_t count)
{
    kernels->to_float(x, cpu_element(norm->x, dtype, token * norm->stride + first), dtype, count);
    if (norm->gate && norm->gate_first) gate_piece(kernels, norm, dtype, x, token, first, count);
}

static void square_token(const struct cpu_state *s, const void *norm_args, int64_t token, int thread)
{
    const struct all_norm_args *args = norm_args;
    float x[CPU_PIECE], *squares = args->squares + token * squares_stride(args);
    (void)thread;
    for (const struct all_norm *norm = args->norms; norm < args->norms + args->num_norms; norm++) {
        float sum = 0;
        for (int64_t i = 0; i < norm->size; i += CPU_PIECE) {
            const int64_t n = min_i64(CPU_PIECE, norm->size - i);
            load_piece(s->kernels, norm, args->dtype, x, token, i, n);
            sum += s->kernels->sum_squares(x, n);
        }
        for (int32_t g = 0; g < norm->num_groups; g++) *squares++ = g == group_of(args, norm) ? sum : 0;
    }
}

/* x = x * factor * gain, rounded where that is asked for. */
static void norm_piece(const struct cpu_kernels *kernels, const struct all_norm *norm, enum dtype dtype, float *x,
                       float factor, int64_t first, int64_t count)
{
    float gain[CPU_PIECE];
    uint32_t rounded[CPU_PIECE];
    kernels->to_float(gain, cpu_element(norm->gain, norm->gain_dtype, first), norm->gain_dtype, count);
    kernels->scale(x, x, gain, factor, count);
    if (!norm->round_norm) return;
    kernels->from_float(rounded, x, dtype, count);
    kernels->to_float(x, rounded, dtype, count);
}

static void norm_token(const struct cpu_state *s, const void *norm_args, int64_t token, int thread)
{
    const struct all_norm_args *args = norm_args;
    const float *squares = args->squares + token * squares_stride(args);
    float x[CPU_PIECE];
    (void)thread;
    for (const struct all_norm *norm = args->norms; norm < args->norms + args->num_norms; norm++) {
        const float elements = (float)((int64_t)norm->size * args->num_ranks / norm->num_groups);
        const float factor = 1 / sqrtf(squares[group_of(args, norm)] / elements + norm->eps);
        for (int64_t i = 0; i < norm->size; i += CPU_PIECE) {
            const int64_t n = min_i64(CPU_PIECE, norm->size - i);
            load_piece(s->kernels, norm, args->dtype, x, token, i, n);
            norm_piece(s->kernels, norm, args->dtype, x, factor, i, n);
            if (norm->gate && !norm->gate_first) gate_piece(s->kernels, norm, args->dtype, x, token, i, n);
            s->kernels->from_float(cpu_element_out(norm->x, args->dtype, token * norm->stride + i), x, args->dtype, n);
        }
        squares += norm->num_groups;
    }
}

void cpu_all_norm(struct backend *b, const struct all_norm_args *args)
{
    const struct all_reduce_args sums = {
        .x = args->squares, .count = (int64_t)args->num_tokens * squares_stride(args), .dtype = DTYPE_FLOAT32};
    int64_t work = 0;
    for (int i = 0; i < args->num_norms; i++) work += (int64_t)args->num_tokens * args->norms[i].size;
    cpu_for(cpu_state(b), work, args->num_tokens, square_token, args);
    b->all_reduce(b, &sums);
    cpu_for(cpu_state(b), 2 * work, args->num_tokens, norm_token, args);
}
