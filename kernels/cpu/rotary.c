/* QK norm and rotary position embedding of the heads of query and key, in place. */
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
        const int64_t n = min_i64(CPU_PIECE, pairs - i);
        void *a = cpu_element_out(head, dtype, i), *c = cpu_element_out(head, dtype, pairs + i);
        kernels->to_float(first, a, dtype, n);
        kernels->to_float(second, c, dtype, n);
        kernels->rotate(first, second, cos + i, sin + i, n);
        kernels->from_float(a, first, dtype, n);
        kernels->from_float(c, second, dtype, n);
    }
}

/* Pairs of neighbours: they are taken apart, rotated, and put together again. */
static void rotate_head_interleaved(const struct cpu_kernels *kernels, void *head, enum dtype dtype,
                                    const float *cos_sin, int64_t pairs)
{
    float both[2 * CPU_PIECE], first[CPU_PIECE], second[CPU_PIECE];
    for (int64_t i = 0; i < pairs; i += CPU_PIECE) {
        const int64_t n = min_i64(CPU_PIECE, pairs - i);
        void *at = cpu_element_out(head, dtype, 2 * i);
        kernels->to_float(both, at, dtype, 2 * n);
        for (int64_t j = 0; j < n; j++) first[j] = both[2 * j], second[j] = both[2 * j + 1];
        kernels->rotate(first, second, cos_sin + i, cos_sin + pairs + i, n);
        for (int64_t j = 0; j < n; j++) both[2 * j] = first[j], both[2 * j + 1] = second[j];
        kernels->from_float(at, both, dtype, 2 * n);
    }
}

void cpu_rotate_head(const struct cpu_kernels *kernels, void *head, enum dtype dtype, const float *cos_sin,
                     int64_t pairs, bool interleaved)
{
    if (interleaved)
        rotate_head_interleaved(kernels, head, dtype, cos_sin, pairs);
    else
        rotate_head(kernels, head, dtype, cos_sin, pairs);
}

/* The heads of one token: norm, then rotation (cos_sin is NULL: none). Each result is rounded to dtype, as rms_norm and
 * a plain rotation do. */
static void process_heads(const struct cpu_kernels *kernels, const struct rotary_args *args, void *row,
                          int32_t num_heads, const struct norm_params *norm, const float *cos_sin)
{
    for (int64_t h = 0; h < num_heads; h++) {
        void *head = cpu_element_out(row, args->dtype, h * args->head_size);
        if (norm) cpu_norm_row(kernels, norm, head, head, args->head_size, args->dtype);
        if (cos_sin) cpu_rotate_head(kernels, head, args->dtype, cos_sin, args->rotary_dim / 2, args->interleaved);
    }
}

static void process_token(const struct cpu_state *s, const void *rotary_args, int64_t t, int thread)
{
    (void)thread;
    const struct rotary_args *args = rotary_args;
    const int64_t rotary_dim = args->rotary_dim;
    const float *cos_sin = rotary_dim > 0 ? args->cos_sin + args->positions[t] * rotary_dim : NULL;
    process_heads(s->kernels, args, cpu_element_out(args->query, args->dtype, t * args->query_stride), args->num_heads,
                  args->query_norm, cos_sin);
    process_heads(s->kernels, args, cpu_element_out(args->key, args->dtype, t * args->key_stride), args->num_kv_heads,
                  args->key_norm, cos_sin);
}

void cpu_rotary_embedding(struct backend *b, const struct rotary_args *args)
{
    cpu_for(cpu_state(b), args->num_tokens * args->query_stride, args->num_tokens, process_token, args);
}
