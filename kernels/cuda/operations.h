/* The operations of the CUDA backend, one subject a file. Their contracts and types are in kernels/backend.h. */
#ifndef QUIRE_KERNELS_CUDA_OPERATIONS_H
#define QUIRE_KERNELS_CUDA_OPERATIONS_H

#include "kernels/backend.h"

struct cuda_state;

/* memory.cu */
memory_info_function cuda_memory_info;
memory_alloc_function cuda_memory_alloc;
memory_free_function cuda_memory_free;
copy_function cuda_copy;
fill_function cuda_fill;

/* preload.cu. cuda_preload_wait returns when everything that cuda_preload started to load is loaded. */
preload_function cuda_preload;
void cuda_preload_wait(struct cuda_state *s);

/* copy_many.cu */
copy_many_function cuda_copy_many;

/* stream.cu: enters streams, events and graphs in the table. */
void cuda_stream_init(struct backend *b);

/* workspace.cu, and what each user of the workspace needs for the largest shapes */
workspace_bytes_function cuda_workspace_bytes;
workspace_set_function cuda_workspace_set;
int64_t cuda_linear_workspace(const struct cuda_state *s, const struct workspace_query *query);
int64_t cuda_dequantize_workspace(const struct cuda_state *s, const struct workspace_query *query);
int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query);
int64_t cuda_latent_workspace(const struct cuda_state *s, const struct workspace_query *query);
int64_t cuda_recurrence_workspace(const struct workspace_query *query);
int64_t cuda_chunks_workspace(const struct workspace_query *query);
int64_t cuda_sample_workspace(const struct cuda_state *s, const struct workspace_query *query);

/* embedding.cu */
embedding_function cuda_embedding;
gather_rows_function cuda_gather_rows;

/* norm.cu */
rms_norm_function cuda_rms_norm;
fused_add_rms_norm_function cuda_fused_add_rms_norm;

/* rotary.cu, activation.cu, scale_logits.cu */
rotary_embedding_function cuda_rotary_embedding;
act_and_mul_function cuda_act_and_mul;
activate_function cuda_activate;
clip_function cuda_clip;
scale_queries_function cuda_scale_queries;
scale_columns_function cuda_scale_columns;
output_gate_function cuda_output_gate;
scale_logits_function cuda_scale_logits;
scatter_logits_function cuda_scatter_logits;

/* quantize.cu */
quantize_rows_function cuda_quantize_rows;

/* cache.cu */
reshape_and_cache_function cuda_reshape_and_cache;
calculate_kv_scales_function cuda_calculate_kv_scales;

/* blocks.cu */
update_block_tables_function cuda_update_block_tables;
copy_blocks_function cuda_copy_blocks;
swap_blocks_function cuda_swap_blocks;

/* attention/decode.cu, attention/prefill.cu */
paged_attention_function cuda_paged_attention_v1;
paged_attention_function cuda_paged_attention_v2;
paged_attention_function cuda_paged_attention_prefill;
decode_attention_function cuda_decode_attention;

/* recurrence/ */
short_conv_function cuda_short_conv;
recurrence_function cuda_recurrence;
gated_norm_function cuda_gated_norm;
decode_recurrence_function cuda_decode_recurrence;

/* latent/ */
latent_cache_function cuda_latent_cache;
latent_inputs_function cuda_latent_inputs;
latent_attention_function cuda_latent_attention;
heads_linear_function cuda_heads_linear;

/* matmul/linear.cu; matmul/linear_mixed.cu: any types and any shape, slowly */
linear_function cuda_linear;
linear_function cuda_linear_mixed;

/* matmul/quantized_rows.cu: matmuls of quantized rows */
takes_quantized_rows_function cuda_takes_quantized_rows;
linear_function cuda_linear_cublas_lt;

/* dummy.cu */
fill_dummy_function cuda_fill_dummy;

/* matmul/weight_prepare.cu, matmul/weight_quantize.cu */
weight_prepare_function cuda_weight_prepare;
weight_quantize_function cuda_weight_quantize;

/* matmul/fused.cu */
norm_linear_function cuda_norm_linear;
linear_residual_function cuda_linear_residual;
gate_up_function cuda_gate_up;

/* experts/route.cu, experts/experts.cu */
route_experts_function cuda_route_experts;
experts_gate_up_function cuda_experts_gate_up;
experts_down_function cuda_experts_down;

/* collective/. The last member of a group that leaves it frees it. */
all_reduce_function cuda_all_reduce;
all_gather_function cuda_all_gather;
all_reduce_add_norm_function cuda_all_reduce_add_norm;
all_norm_function cuda_all_norm;
gather_columns_function cuda_gather_columns;
void cuda_group_leave(struct cuda_state *s);

/* sampling/sample.cu */
sample_function cuda_sample;

#endif
