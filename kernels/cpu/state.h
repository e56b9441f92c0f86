/* Shared by the files of the CPU backend: its state, threads and scratch memory, and its operations, which are
 * described in kernels/backend.h. */
#ifndef QUIRE_KERNELS_CPU_STATE_H
#define QUIRE_KERNELS_CPU_STATE_H

#include <stddef.h>

#include "base/pool.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/plan.h"

struct cpu_state {
    struct backend backend;
    struct pool *pool;
    int threads; /* of the pool */
    enum cpu_isa isa;
    const struct cpu_tables *tables;   /* of the instruction set */
    const struct cpu_kernels *kernels; /* tables->kernels */
    uint8_t *workspace; /* [workspace_bytes] owned by the caller; each operation divides it up for itself */
    int64_t workspace_bytes;

    /* collective.c */
    struct cpu_ranks *group; /* NULL: none */
    int32_t rank;
    uint32_t group_calls;
};

static inline struct cpu_state *cpu_state(struct backend *b)
{
    return b->state;
}

/* How many threads to use for `work` elements read and written, or multiplications. A loop costs a microsecond or two
 * more on several threads than on one, and each of them must have work for as long. */
static inline int cpu_threads_for(const struct cpu_state *s, int64_t work)
{
    int64_t useful = 1 + work / (1 << 15);
    return useful < s->threads ? (int)useful : s->threads;
}

/* Iteration `index` of an operation. Of the iterations that run at the same time, each has another `thread`, from 0 to
 * s->threads - 1, and may use that thread's part of the workspace. args: what cpu_for was given. */
typedef void cpu_body(const struct cpu_state *s, const void *args, int64_t index, int thread);

/* Does iterations 0 to count - 1 on as many threads as this amount of work is worth (cpu_threads_for). Neighbours run
 * on one thread, and each pass divides them in the same way. */
void cpu_for(const struct cpu_state *s, int64_t work, int64_t count, cpu_body *body, const void *args);

/* Rounds up to whole cache lines. */
static inline int64_t cpu_align(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

static inline const void *cpu_element(const void *data, enum dtype dtype, int64_t index)
{
    return (const uint8_t *)data + index * dtype_size(dtype);
}

static inline void *cpu_element_out(void *data, enum dtype dtype, int64_t index)
{
    return (uint8_t *)data + index * dtype_size(dtype);
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t divide_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step;
}

/* Elements that are not float32 are converted on the stack, so many at a time. */
enum { CPU_PIECE = 512 };

/* memory.c */
memory_info_function cpu_memory_info;
memory_alloc_function cpu_memory_alloc;
memory_free_function cpu_memory_free;
copy_function cpu_copy;
copy_many_function cpu_copy_many;
call_host_function cpu_call_host;
fill_function cpu_fill;

/* stream.c */
void cpu_stream_init(struct backend *b);

/* embedding.c */
embedding_function cpu_embedding;
gather_rows_function cpu_gather_rows;
scale_logits_function cpu_scale_logits;
scatter_logits_function cpu_scatter_logits;

/* norm.c */
rms_norm_function cpu_rms_norm;
fused_add_rms_norm_function cpu_fused_add_rms_norm;
/* One row of rms_norm; out may be x. */
/* Rotates the pairs of a head by the angles of a token: rotary_embedding of one head. */
void cpu_rotate_head(const struct cpu_kernels *kernels, void *head, enum dtype dtype, const float *cos_sin,
                     int64_t pairs, bool interleaved);
void cpu_norm_row(const struct cpu_kernels *kernels, const struct norm_params *norm, void *out, const void *x,
                  int64_t size, enum dtype dtype);

/* rotary.c, activation.c */
rotary_embedding_function cpu_rotary_embedding;
act_and_mul_function cpu_act_and_mul;
activate_function cpu_activate;
/* gate = what `params` make of gate and up, at most CPU_PIECE elements; up's contents are lost. */
void cpu_gate(const struct cpu_kernels *kernels, const struct gate_params *params, float *gate, float *up,
              int64_t count);

/* route.c, experts.c */
route_experts_function cpu_route_experts;
experts_gate_up_function cpu_experts_gate_up;
experts_down_function cpu_experts_down;
clip_function cpu_clip;
scale_queries_function cpu_scale_queries;
scale_columns_function cpu_scale_columns;
output_gate_function cpu_output_gate;

/* cache.c */
reshape_and_cache_function cpu_reshape_and_cache;
latent_cache_function cpu_latent_cache;
calculate_kv_scales_function cpu_calculate_kv_scales;
update_block_tables_function cpu_update_block_tables;
copy_blocks_function cpu_copy_blocks;
swap_blocks_function cpu_swap_blocks;

/* attention.c */
paged_attention_function cpu_paged_attention, cpu_paged_attention_v2; /* the first: v1, and prefill */
int64_t cpu_attention_workspace(const struct cpu_state *s, const struct workspace_query *query);

/* recurrence.c, short_conv.c, gated_norm.c */
short_conv_function cpu_short_conv;
recurrence_function cpu_recurrence;
gated_norm_function cpu_gated_norm;
/* x *= f(gate), where f is silu or the sigmoid; gate's contents are lost. */
void cpu_apply_gate(const struct cpu_kernels *kernels, bool sigmoid, float *x, float *gate, int64_t count);

/* latent.c */
latent_attention_function cpu_latent_attention;
heads_linear_function cpu_heads_linear;

/* linear.c */
linear_function cpu_linear;
linear_parts_function cpu_linear_parts;
int64_t cpu_linear_workspace(const struct cpu_state *s, const struct workspace_query *query);

/* dequantize.c */
/* out[o][i] = element [first + o][start + i] of a quantized weight. out [count, depth] */
void cpu_dequantize(const struct cpu_state *s, float *out, const struct weight *w, int64_t first, int64_t count,
                    int64_t start, int64_t depth);

/* all_norm.c, gather_columns.c */
all_norm_function cpu_all_norm;
gather_columns_function cpu_gather_columns;

/* collective.c. The last member of a group frees it. */
void cpu_group_leave(struct cpu_state *s);

/* sample.c */
sample_function cpu_sample;
int64_t cpu_sample_workspace(const struct cpu_state *s, const struct workspace_query *query);

#endif
