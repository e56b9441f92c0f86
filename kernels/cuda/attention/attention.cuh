/* What the attention kernels share.
 *
 * attention_generic takes every shape, type pair and variant. attention_decode (one query token a sequence) and
 * attention_prefill are for 16-bit types on tensor cores; each says whether a call is for it. What attention_prefill
 * takes, attention_prefill_mma does on GPUs without wgmma. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/state.cuh"

/* The arguments of a call by value, as kernels take them; attention_args itself points to its params on the host. */
struct attention_call {
    struct attention_args args;
    struct attention_params params;
    struct output_gate_args gate; /* of decodes; kind NONE: there is none */
};

static inline struct attention_call attention_call_make(const struct attention_args *args)
{
    struct attention_call call = {*args, *args->params, {}};
    call.args.params = NULL;
    return call;
}

/* generic.cu: any call. */
void cuda_attention_generic(struct backend *b, const struct attention_args *args);

/* prefill_mma.cu: any call that prefill.cu takes. */
void cuda_attention_prefill_mma(struct backend *b, const struct attention_args *args);

/* The scales of the cache: real value = stored value * scale. */
struct kv_scales {
    float k, v;
};

static __device__ __forceinline__ struct kv_scales kv_scales_load(const struct attention_params *params, bool fp8)
{
    if (!fp8) return {1, 1};
    return {params->kv_scales[0], params->kv_scales[1]};
}

/* Element types of the cache beyond those of activations. */
static __device__ __forceinline__ float to_float(__nv_fp8_e4m3 x)
{
    return (float)x;
}
static __device__ __forceinline__ float to_float(__nv_fp8_e5m2 x)
{
    return (float)x;
}

/* One sequence of a call. */
struct attention_seq {
    int64_t first_token; /* of its query tokens, in query and out */
    int32_t query_len, seq_len;
    const int32_t *block_table;
};

static __device__ __forceinline__ struct attention_seq attention_seq_load(const struct attention_args *args, int32_t i)
{
    const int32_t seq = args->first_seq + i, start = args->query_start[seq];
    return {start, args->query_start[seq + 1] - start, args->seq_lens[seq],
            args->block_tables + args->state_indices[seq] * args->block_table_stride};
}

/* The first token that the query at `position` attends to. */
static __device__ __forceinline__ int32_t attention_first(const struct attention_params *params, int32_t position)
{
    if (params->chunk > 0) return position - position % params->chunk;
    return params->window > 0 ? max(position - params->window + 1, 0) : 0;
}

static inline __host__ __device__ bool attention_is_sparse(const struct attention_params *params)
{
    return params->sparse_vertical_stride > 1;
}

/* Block-sparse attention (struct attention_params): whether the query at `position` attends to `token`. */
static __device__ __forceinline__ bool attention_sparse_reads(const struct attention_params *params, int32_t head,
                                                              int32_t kv_head, int32_t position, int32_t token)
{
    const int64_t step = params->sparse_head_sliding_step, key_block = token / params->sparse_block_size;
    const int64_t offset = step >= 0 ? head * step : kv_head * -step;
    const int64_t query_block = position / params->sparse_block_size;
    return (key_block + offset + 1) % params->sparse_vertical_stride == 0 ||
           key_block > query_block - params->sparse_local_blocks;
}

/* Applies soft cap and ALiBi to a score that is scaled already. `distance` is the token's minus the query's position.
 * attention_mma.cuh has a faster version for 16-bit operands. */
static __device__ __forceinline__ float attention_modify(const struct attention_params *params, float score,
                                                         float slope, int32_t distance)
{
    if (params->soft_cap > 0) score = params->soft_cap * tanhf(score / params->soft_cap);
    return score + slope * (float)distance;
}

#endif
