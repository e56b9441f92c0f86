/* Clipping of queries, keys and values. */
#include "kernels/cpu/state.h"

static void clip_piece(const struct cpu_state *s, const void *clip_args, int64_t piece, int thread)
{
    (void)thread;
    const struct clip_args *args = clip_args;
    float values[CPU_PIECE];
    const int64_t first = piece * CPU_PIECE, n = min_i64(CPU_PIECE, args->count - first);
    void *x = cpu_element_out(args->x, args->dtype, first);
    s->kernels->to_float(values, x, args->dtype, n);
    for (int64_t i = 0; i < n; i++) {
        const float above = values[i] < -args->limit ? -args->limit : values[i];
        values[i] = above > args->limit ? args->limit : above;
    }
    s->kernels->from_float(x, values, args->dtype, n);
}

void cpu_clip(struct backend *b, const struct clip_args *args)
{
    cpu_for(cpu_state(b), args->count, divide_up(args->count, CPU_PIECE), clip_piece, args);
}
