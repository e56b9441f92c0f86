/* Rotary position embedding (Su et al., RoFormer, 2021), the pairs (i, i + rotary_dim / 2). */
#include "kernels/cpu/state.h"

static void rotate_head(const struct cpu_kernels *kernels, void *head, enum dtype dtype, const float *cos_sin,
                        int64_t pairs)
{
    const float *cos = cos_sin, *sin = cos_sin + pairs;
    if (dtype == DTYPE_FLOAT32) {
        kernels->rotate(head, (float *)head + pairs, cos, sin, pairs);
        return;
    }
    float first[CPU_PIECE], second[CPU_PIECE];
    for (int64_t i = 0; i < pairs; i += CPU_PIECE) {
        int64_t n = min_i64(CPU_PIECE, pairs - i);
        void *a = cpu_element_out(head, dtype, i), *c = cpu_element_out(head, dtype, pairs + i);
        kernels->to_float(first, a, dtype, n);
        kernels->to_float(second, c, dtype, n);
        kernels->rotate(first, second, cos + i, sin + i, n);
        kernels->from_float(a, first, dtype, n);
        kernels->from_float(c, second, dtype, n);
    }
}

static void rotate_heads(const struct cpu_kernels *kernels, const struct rotary_args *args, void *row,
                         int32_t num_heads, const float *cos_sin)
{
    for (int64_t h = 0; h < num_heads; h++)
        rotate_head(kernels, cpu_element_out(row, args->dtype, h * args->head_size), args->dtype, cos_sin,
                    args->rotary_dim / 2);
}

void cpu_rotary_embedding(struct backend *b, const struct rotary_args *args, backend_stream stream)
{
    (void)stream;
    const struct cpu_state *s = cpu_state(b);
#pragma omp parallel for num_threads(cpu_threads_for(s, args->num_tokens * args->query_stride))
    for (int32_t t = 0; t < args->num_tokens; t++) {
        const float *cos_sin = args->cos_sin + (int64_t)args->positions[t] * args->rotary_dim;
        rotate_heads(s->kernels, args, cpu_element_out(args->query, args->dtype, t * args->query_stride),
                     args->num_heads, cos_sin);
        rotate_heads(s->kernels, args, cpu_element_out(args->key, args->dtype, t * args->key_stride),
                     args->num_kv_heads, cos_sin);
    }
}
