/* Embedding, gathering of tokens, and scaling of logits. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

static void embed(const struct cpu_kernels *kernels, const struct embedding_args *args, void *out, int64_t id)
{
    const int64_t size = args->table->in_features;
    const enum dtype from = weight_dtype(args->table), to = args->dtype;
    const void *in = cpu_element(args->table->data, from, id * size);
    if (from == to && args->multiplier == 1) {
        if (size > 0) memcpy(out, in, (size_t)(size * dtype_size(to)));
        return;
    }
    float piece[CPU_PIECE];
    for (int64_t i = 0; i < size; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, size - i);
        kernels->to_float(piece, cpu_element(in, from, i), from, n);
        for (int64_t j = 0; j < n; j++) piece[j] *= args->multiplier;
        kernels->from_float(cpu_element_out(out, to, i), piece, to, n);
    }
}

void cpu_embedding(struct backend *b, const struct embedding_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    const int64_t size = args->table->in_features;
#pragma omp parallel for num_threads(cpu_threads_for(s, args->num_tokens *size))
    for (int32_t t = 0; t < args->num_tokens; t++) {
        int64_t id = args->ids[t] >= 0 ? args->ids[t] : args->last_sampled[-(int64_t)args->ids[t] - 1];
        if (id < 0) id = 0; /* no token could be sampled; the result for token 0 is not used */
        embed(s->kernels, args, cpu_element_out(args->out, args->dtype, t * size), id);
    }
}

void cpu_gather_rows(struct backend *b, const struct gather_rows_args *args)
{
    (void)b;
    const int64_t bytes = (int64_t)args->size * dtype_size(args->dtype);
    for (int64_t i = 0; i < args->num_indices && bytes > 0; i++)
        memcpy((uint8_t *)args->out + i * bytes, (const uint8_t *)args->x + args->indices[i] * bytes, (size_t)bytes);
}

void cpu_scale_logits(struct backend *b, const struct scale_logits_args *args)
{
    const struct cpu_state *s = cpu_state(b);
    const int64_t count = (int64_t)args->num_samples * args->vocab_size;
    const float cap = args->soft_cap, factor = cap > 0 ? args->multiplier / cap : args->multiplier;
    const int64_t work = cap > 0 ? 16 * count : count; /* tanhf costs about as much as 16 multiplications */
    (void)s, (void)work;                               /* without OpenMP */
#pragma omp parallel for num_threads(cpu_threads_for(s, work)) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        const float x = args->logits[i] * factor;
        args->logits[i] = cap > 0 ? cap * tanhf(x) : x;
    }
}
