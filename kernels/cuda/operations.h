/* The operations of the CUDA backend, one group a file; contracts in kernels/backend.h. */
#ifndef QUIRE_KERNELS_CUDA_OPERATIONS_H
#define QUIRE_KERNELS_CUDA_OPERATIONS_H

#include "kernels/backend.h"

struct cuda_state;

/* memory.cu */
enum status cuda_memory_info(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err);
enum status cuda_memory_alloc(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err);
void cuda_memory_free(struct backend *b, enum memory_kind kind, void *data, int64_t bytes);
void cuda_copy(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream);
void cuda_fill(struct backend *b, void *destination, int byte, int64_t bytes, backend_stream stream);

/* preload.cu; wait: until what was begun is there. */
void cuda_load_ahead(struct backend *b, enum dtype dtype);
void cuda_load_wait(struct cuda_state *s);

/* copy_many.cu */
void cuda_copy_many(struct backend *b, const struct copy_segment *segments, int32_t count, backend_stream stream);

/* stream.cu: streams, events and graphs, put into the table. */
void cuda_order_init(struct backend *b);

/* workspace.cu */
int64_t cuda_workspace_bytes(struct backend *b, const struct workspace_query *query);
void cuda_workspace_set(struct backend *b, void *workspace, int64_t bytes);

/* embedding.cu */
void cuda_embedding(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                    const struct weight *table, enum dtype dtype, backend_stream stream);
void cuda_gather_rows(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows, int32_t size,
                      enum dtype dtype, backend_stream stream);

/* norm.cu */
void cuda_rms_norm(struct backend *b, void *out, const void *x, const void *gain, enum dtype gain_dtype, float eps,
                   int32_t num_tokens, int32_t size, enum dtype dtype, backend_stream stream);
void cuda_fused_add_rms_norm(struct backend *b, void *out, const void *x, void *residual, const void *gain,
                             enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                             backend_stream stream);

/* rotary.cu, activation.cu */
void cuda_rotary_embedding(struct backend *b, const struct rotary_args *args, backend_stream stream);
void cuda_silu_and_mul(struct backend *b, void *out, const void *x, int32_t num_tokens, int32_t size, enum dtype dtype,
                       backend_stream stream);

/* cache.cu */
void cuda_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream);

/* blocks.cu */
void cuda_update_block_tables(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                              const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream);
void cuda_copy_blocks(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                      const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);
void cuda_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                      int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);

/* attention_decode.cu: v1, v2 and the optional operation; workspace (with prefill's): regions[CUDA_USER_ATTENTION]. */
void cuda_paged_attention_v1(struct backend *b, const struct attention_args *args, backend_stream stream);
void cuda_paged_attention_v2(struct backend *b, const struct attention_args *args, backend_stream stream);
bool cuda_decode_attention(struct backend *b, const struct rotary_args *rotary,
                           const struct reshape_and_cache_args *cache, const struct attention_args *attention,
                           backend_stream stream);
int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query);

/* attention_prefill.cu */
void cuda_paged_attention_prefill(struct backend *b, const struct attention_args *args, backend_stream stream);

/* linear.cu */
void cuda_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                 int64_t x_stride, enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream);

/* linear_mixed.cu: any types, any shape; slow. */
void cuda_linear_mixed(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                       int64_t x_stride, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                       backend_stream stream);

/* linear_few_tokens.cu's part of the workspace: regions[CUDA_USER_LINEAR]. */
int64_t cuda_linear_few_rows_workspace(const struct cuda_state *s, const struct workspace_query *query);

/* decode_fused.cu: the optional operations */
bool cuda_norm_linear(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                      int64_t x_stride, const struct norm_params *norm, enum dtype dtype, int32_t num_tokens,
                      const struct weight *w, backend_stream stream);
bool cuda_linear_residual(struct backend *b, void *residual, int64_t residual_stride, const void *x, int64_t x_stride,
                          enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream);
bool cuda_gate_up_silu(struct backend *b, void *out, int64_t out_stride, const void *x, int64_t x_stride,
                       const struct norm_params *norm, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                       backend_stream stream);

/* sample.cu, workspace: regions[CUDA_USER_SAMPLE]. */
void cuda_sample(struct backend *b, const struct sample_args *args, backend_stream stream);
int64_t cuda_sample_workspace(const struct cuda_state *s, const struct workspace_query *query);

#endif
