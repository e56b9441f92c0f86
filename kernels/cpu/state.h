/* What the files of the CPU backend share: its state, its threads, its scratch memory, and the operations themselves,
 * whose contracts are in kernels/backend.h. */
#ifndef QUIRE_KERNELS_CPU_STATE_H
#define QUIRE_KERNELS_CPU_STATE_H

#include <stddef.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"

struct cpu_state {
    struct backend backend;
    int threads;
    enum cpu_isa isa;
    const struct cpu_kernels *kernels;
    uint8_t *workspace; /* [workspace_bytes] the caller's; each operation lays it out for itself */
    int64_t workspace_bytes;
};

static inline struct cpu_state *cpu_state(struct backend *b)
{
    return b->state;
}

/* The calling thread's number inside a parallel region. */
static inline int cpu_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* How many threads `work` is worth. Waking one and waiting for it costs microseconds on an idle machine, but as much as
 * a time slice of the system on a busy one: so each must have work for some 20 microseconds, and a small model runs on
 * one thread at nearly full speed whatever else the machine does. `work` is in elements read and written, or
 * multiplications. */
static inline int cpu_threads_for(const struct cpu_state *s, int64_t work)
{
    int64_t useful = 1 + work / (1 << 19);
    return useful < s->threads ? (int)useful : s->threads;
}

/* Bytes rounded up, so that what follows starts on a cache line of its own. */
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

/* Rows of other types are worked on in pieces of so many floats on the stack. */
enum { CPU_PIECE = 512 };

/* memory.c */
enum status cpu_memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err);
enum status cpu_memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err);
void cpu_memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes);
void cpu_copy(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream);
void cpu_copy_many(struct backend *b, const struct copy_segment *segments, int32_t count, backend_stream stream);
void cpu_fill(struct backend *b, void *destination, int byte, int64_t bytes, backend_stream stream);

/* order.c */
void cpu_order_init(struct backend *b);

/* embedding.c */
void cpu_embedding(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                   const struct weight *table, enum dtype dtype, backend_stream stream);
void cpu_gather_rows(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows, int32_t size,
                     enum dtype dtype, backend_stream stream);

/* norm.c */
void cpu_rms_norm(struct backend *b, void *out, const void *x, const void *gain, enum dtype gain_dtype, float eps,
                  int32_t num_tokens, int32_t size, enum dtype dtype, backend_stream stream);
void cpu_fused_add_rms_norm(struct backend *b, void *out, const void *x, void *residual, const void *gain,
                            enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                            backend_stream stream);

/* rotary.c, activation.c */
void cpu_rotary_embedding(struct backend *b, const struct rotary_args *args, backend_stream stream);
void cpu_silu_and_mul(struct backend *b, void *out, const void *x, int32_t num_tokens, int32_t size, enum dtype dtype,
                      backend_stream stream);

/* cache.c */
void cpu_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream);
void cpu_update_block_tables(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                             const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream);
void cpu_copy_blocks(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                     const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);
void cpu_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                     int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);

/* attention.c */
void cpu_paged_attention_v1(struct backend *b, const struct attention_args *args, backend_stream stream);
void cpu_paged_attention_v2(struct backend *b, const struct attention_args *args, backend_stream stream);
void cpu_paged_attention_prefill(struct backend *b, const struct attention_args *args, backend_stream stream);
int64_t cpu_attention_workspace(const struct cpu_state *s, const struct workspace_query *query);

/* linear.c */
void cpu_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x, int64_t x_stride,
                enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream);
int64_t cpu_linear_workspace(const struct cpu_state *s, const struct workspace_query *query);

/* sample.c */
void cpu_sample(struct backend *b, const struct sample_args *args, backend_stream stream);
int64_t cpu_sample_workspace(const struct cpu_state *s, const struct workspace_query *query);

#endif
