/* Gates of attention's results. */
#include <math.h>

#include "kernels/cpu/state.h"

static float gate_of(enum output_gate kind, float x)
{
    if (kind == OUTPUT_GATE_SIGMOID) return 1 / (1 + expf(-x));
    return x > 20 ? x : log1pf(expf(x));
}

static void gate_token(const struct cpu_state *s, const void *gate_args, int64_t token, int thread)
{
    (void)thread;
    const struct output_gate_args *args = gate_args;
    const int64_t span = args->size / args->gate_size;
    const void *gate = cpu_element(args->gate, args->dtype, token * args->gate_stride);
    float values[CPU_PIECE], gates[CPU_PIECE];
    for (int64_t first = 0, n; first < args->size; first += n) {
        void *x = cpu_element_out(args->x, args->dtype, token * args->size + first);
        n = min_i64(CPU_PIECE, args->size - first);
        s->kernels->to_float(values, x, args->dtype, n);
        if (span == 1) s->kernels->to_float(gates, cpu_element(gate, args->dtype, first), args->dtype, n);
        for (int64_t i = 0; i < n; i++)
            values[i] *= gate_of(args->kind, span == 1 ? gates[i] : dtype_load(gate, args->dtype, (first + i) / span));
        s->kernels->from_float(x, values, args->dtype, n);
    }
}

void cpu_output_gate(struct backend *b, const struct output_gate_args *args)
{
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * args->size, args->num_tokens, gate_token, args);
}
