/* Queries times a function of their position. */
#include <math.h>

#include "kernels/cpu/state.h"

static void scale_token(const struct cpu_state *s, const void *scale_args, int64_t token, int thread)
{
    (void)thread;
    const struct scale_queries_args *args = scale_args;
    const struct query_scaling *scaling = &args->scaling;
    const int32_t quotient = (args->positions[token] + scaling->first) / scaling->length;
    const float factor = 1 + scaling->beta * log1pf((float)quotient);
    float values[CPU_PIECE];
    if (factor == 1) return;
    for (int64_t first = 0, n; first < args->size; first += n) {
        void *x = cpu_element_out(args->x, args->dtype, token * args->stride + first);
        n = min_i64(CPU_PIECE, args->size - first);
        s->kernels->to_float(values, x, args->dtype, n);
        for (int64_t i = 0; i < n; i++) values[i] *= factor;
        s->kernels->from_float(x, values, args->dtype, n);
    }
}

void cpu_scale_queries(struct backend *b, const struct scale_queries_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * args->size, args->num_tokens, scale_token, args);
}
