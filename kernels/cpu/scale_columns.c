/* Columns times constants. */
#include "kernels/cpu/state.h"

static void scale_part(const struct cpu_state *s, const struct scale_columns_args *args, int64_t at, int64_t size,
                       float multiplier)
{
    float values[CPU_PIECE];
    for (int64_t first = 0, n; first < size; first += n) {
        void *x = cpu_element_out(args->x, args->dtype, at + first);
        n = min_i64(CPU_PIECE, size - first);
        s->kernels->to_float(values, x, args->dtype, n);
        for (int64_t i = 0; i < n; i++) values[i] *= multiplier;
        s->kernels->from_float(x, values, args->dtype, n);
    }
}

static void scale_token(const struct cpu_state *s, const void *scale_args, int64_t token, int thread)
{
    (void)thread;
    const struct scale_columns_args *args = scale_args;
    int64_t at = token * args->stride;
    for (int32_t p = 0; p < args->num_parts; at += args->sizes[p++])
        if (args->multipliers[p] != 1) scale_part(s, args, at, args->sizes[p], args->multipliers[p]);
}

void cpu_scale_columns(struct backend *b, const struct scale_columns_args *args)
{
    int64_t size = 0;
    for (int32_t p = 0; p < args->num_parts; p++) size += args->sizes[p];
    cpu_for(cpu_state(b), args->num_tokens * size, args->num_tokens, scale_token, args);
}
