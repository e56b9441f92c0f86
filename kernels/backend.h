/* The one table of operations. kernels/cpu and kernels/cuda implement it, operation for operation.
 *
 * Raw pointers, explicit shapes, no tensor library and no graph. All tensors are row-major and contiguous except where
 * a row stride is given (in elements). "Device" memory is what memory_alloc returns; on the CPU it is plain memory.
 *
 * Operations are asynchronous on a stream: they return at once, read their arguments' memory later, and cannot fail
 * where they are called; a device error is reported by stream_synchronize or event_synchronize. On the CPU they run at
 * once. None allocates, and none synchronizes: they use the workspace that was set at start-up. Shapes come from the
 * host-side counts in the arguments, never from a length that only the device knows.
 *
 * The names and semantics are those of the PagedAttention paper (Kwon et al., SOSP 2023) and vLLM's kernels.
 */
#ifndef QUIRE_KERNELS_BACKEND_H
#define QUIRE_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. (A tag may not have its pointer's name in C++, which the CUDA sources are.) */
typedef struct backend_stream_object *backend_stream; /* NULL is the backend's main stream */
typedef struct backend_event_object *backend_event;
typedef struct backend_graph_object *backend_graph;

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

enum memory_kind { MEMORY_DEVICE, MEMORY_HOST_PINNED };

/* A weight matrix [out_features, in_features] as it lies in the checkpoint. */
struct weight {
    const void *data; /* [out_features, in_features] */
    enum dtype dtype;
    int64_t out_features, in_features;
    const void *bias; /* [out_features] of `dtype`, or NULL */
    /* Quantized weights come later: then scales, zeros and group_size say how to read `data`. */
    const void *scales, *zeros;
    int32_t group_size;
};

/* What rms_norm needs beside its input. */
struct norm_params {
    const void *gain; /* [size] gain_dtype */
    enum dtype gain_dtype;
    float eps;
};

/* What varies in attention from model to model. */
struct attention_params {
    float scale;               /* scores are scale * q.k */
    int32_t window;            /* > 0: a query attends only to the last `window` tokens, itself included */
    float soft_cap;            /* > 0: score = soft_cap * tanh(score / soft_cap) */
    const float *alibi_slopes; /* [num_heads] on the device, or NULL */
    /* Block-sparse attention; vertical_stride <= 1 turns it off. */
    int32_t sparse_block_size, sparse_local_blocks, sparse_vertical_stride, sparse_head_sliding_step;
    float k_scale, v_scale; /* fp8 cache: real value = stored value * scale; 1 otherwise */
};

/* One call of paged attention. The batch's sequences [first_seq, first_seq + num_seqs) are computed. */
struct attention_args {
    void *out;         /* [num_tokens, num_heads, head_size] dtype; rows of those sequences' tokens are written */
    const void *query; /* [num_tokens, num_heads, head_size] dtype, row stride query_stride elements */
    int64_t query_stride;
    const void *k_cache; /* [num_blocks, num_kv_heads, head_size / x, block_size, x] cache_dtype, x = 16 / sizeof */
    const void *v_cache; /* [num_blocks, num_kv_heads, head_size, block_size] cache_dtype */
    const int32_t *block_tables; /* [max_num_seqs, block_table_stride]: the row of sequence i is state_indices[i] */
    int64_t block_table_stride;
    const int32_t *seq_lens;      /* [seqs of the batch] on the device */
    const int32_t *query_start;   /* [seqs of the batch + 1] on the device */
    const int32_t *state_indices; /* [seqs of the batch] on the device */
    int32_t first_seq, num_seqs;
    int32_t num_heads, num_kv_heads, head_size, block_size; /* heads of this rank */
    int32_t max_query_len, max_seq_len;                     /* bounds for choosing a kernel and a grid */
    enum dtype dtype, cache_dtype;
    const struct attention_params *params;
};

struct reshape_and_cache_args {
    const void *key, *value; /* [num_tokens, num_kv_heads, head_size] dtype, row stride kv_stride elements */
    int64_t kv_stride;
    void *k_cache, *v_cache;     /* as in attention_args */
    const int64_t *slot_mapping; /* [num_tokens] on the device; -1: skip the token */
    int32_t num_tokens, num_kv_heads, head_size, block_size;
    enum dtype dtype, cache_dtype;
    float k_scale, v_scale; /* fp8 cache: stores value / scale */
};

/* RoPE as a table: cos_sin[position] holds cos for each rotated pair, then sin for each. Made by the model, so that a
 * backend knows nothing of scaling kinds. Pairs are (i, i + rotary_dim / 2): the "neox" style of llama checkpoints. */
struct rotary_args {
    void *query, *key; /* [num_tokens, heads, head_size] dtype, in place; row strides below */
    int64_t query_stride, key_stride;
    const int32_t *positions; /* [num_tokens] on the device */
    const float *cos_sin;     /* [max_position, rotary_dim] on the device */
    int32_t num_tokens, num_heads, num_kv_heads, head_size, rotary_dim;
    enum dtype dtype;
};

/* Sampling state of one slot, on the device; a row is uploaded when a sequence takes its slot. Semantics, ranges and
 * order of application are those of vLLM's SamplingParams: logit_bias and min_tokens (stop ids to -inf), repetition,
 * frequency and presence penalties, then greedy, or temperature, min_p, top_k, top_p and a draw by Gumbel-max over
 * Philox(seed, sequence_index, output position), token id choosing the lane. */
#define SAMPLING_MAX_BIAS 300
#define SAMPLING_MAX_STOP_IDS 80 /* a request's 64 and the model's end-of-sequence ids */
struct sampling_state {
    float temperature; /* < 1e-5 is greedy */
    float top_p, min_p;
    int32_t top_k;                                                 /* <= 0: off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint64_t seed;
    uint32_t sequence_index; /* which of n answers */
    int32_t min_tokens;      /* until so many were output, the stop ids below cannot be sampled */
    int32_t num_logprobs;    /* -1: none; 0: of the sampled token; k: and the k most probable */
    int32_t prompt_len;      /* history[0 .. prompt_len) is the prompt, the rest output */
    int32_t num_bias, num_stop_ids;
    int32_t bias_ids[SAMPLING_MAX_BIAS];
    float bias_values[SAMPLING_MAX_BIAS];
    int32_t stop_ids[SAMPLING_MAX_STOP_IDS];
};

struct sample_args {
    float *logits; /* [num_samples, vocab_size] float32; overwritten */
    int32_t num_samples, vocab_size;
    const int32_t *sample_state_indices; /* [num_samples] on the device */
    const int32_t *sample_output;        /* [num_samples] output position, on the device */
    const struct sampling_state *rows;   /* [max_num_seqs] on the device */
    int32_t *history; /* [max_num_seqs, history_stride] tokens of each slot; the token sampled at output
                         position p is written to history[slot][prompt_len + p] */
    int64_t history_stride;
    bool any_processing, any_random, any_logprobs; /* over the batch, so that a pass nobody asked for is skipped */
    int32_t *token_ids;                            /* [num_samples] out */
    float *logprobs;                               /* [num_samples] out, of the raw logits, where the slot wants them */
    int32_t *ranks;                                /* [num_samples] out */
    int32_t *top_ids;                              /* [num_samples, SAMPLING_MAX_LOGPROBS] out */
    float *top_logprobs;                           /* [num_samples, SAMPLING_MAX_LOGPROBS] out */
};

/* One piece of copy_many. */
#define COPY_MAX_SEGMENTS 16
struct copy_segment {
    void *destination;
    const void *source;
    int64_t bytes;
};

/* The largest shapes that will be asked for: what the workspace is sized by. */
struct workspace_query {
    int32_t max_num_tokens, max_num_seqs, max_model_len;
    int32_t num_heads, num_kv_heads, head_size, block_size;
    int64_t max_in_features, max_out_features, vocab_size; /* over all weights */
    enum dtype dtype;
};

struct backend {
    const char *name; /* "cpu", "cuda:0" */
    void *state;

    /* The device has memory of its own: weights are copied to it, and its share is set by gpu_memory_utilization. */
    bool discrete;
    int64_t others_bytes; /* held on the device by other processes when it was opened; -1: not known */

    /* Memory. memory_info: bytes free and in all, by the device's own count. memory_alloc: device memory becomes zero
     * on the main stream, which a gigabyte takes a while for: other streams wait for that one first. */
    enum status (*memory_info)(struct backend *b, int64_t *free_bytes, int64_t *total_bytes, struct error *err);
    enum status (*memory_alloc)(struct backend *b, enum memory_kind kind, int64_t bytes, void **out, struct error *err);
    void (*memory_free)(struct backend *b, enum memory_kind kind, void *data, int64_t bytes);
    void (*copy)(struct backend *b, void *destination, const void *source, int64_t bytes, backend_stream stream);
    void (*fill)(struct backend *b, void *destination, int byte, int64_t bytes, backend_stream stream);
    /* Copies each segment, in one go: a step's inputs, from pinned host memory to their places on the device.
     * count <= COPY_MAX_SEGMENTS; pointers and sizes are multiples of 4 bytes; segments do not overlap. The sources
     * must stay as they are until the stream has passed this point. */
    void (*copy_many)(struct backend *b, const struct copy_segment *segments, int32_t count, backend_stream stream);
    int64_t (*workspace_bytes)(struct backend *b, const struct workspace_query *query);
    void (*workspace_set)(struct backend *b, void *workspace, int64_t bytes); /* device memory, owned by the caller */
    /* What matrix products of this type load on first use is loaded in a thread from now on; memory_info waits for it.
     * NULL where nothing is. */
    void (*preload)(struct backend *b, enum dtype dtype);

    /* Order. */
    enum status (*stream_create)(struct backend *b, backend_stream *out, struct error *err);
    void (*stream_destroy)(struct backend *b, backend_stream stream);
    enum status (*stream_synchronize)(struct backend *b, backend_stream stream, struct error *err);
    enum status (*event_create)(struct backend *b, backend_event *out, struct error *err);
    void (*event_destroy)(struct backend *b, backend_event event);
    void (*event_record)(struct backend *b, backend_event event, backend_stream stream);
    void (*event_wait)(struct backend *b, backend_event event, backend_stream stream);           /* the stream waits */
    enum status (*event_synchronize)(struct backend *b, backend_event event, struct error *err); /* the host waits */

    /* Capture and replay of everything put on a stream; NULL where the backend has no graphs. */
    enum status (*capture_begin)(struct backend *b, backend_stream stream, struct error *err);
    enum status (*capture_end)(struct backend *b, backend_stream stream, backend_graph *out, struct error *err);
    void (*graph_launch)(struct backend *b, backend_graph graph, backend_stream stream);
    void (*graph_destroy)(struct backend *b, backend_graph graph);

    /* out[i] = table[id_i], id_i = ids[i] >= 0 ? ids[i] : last_sampled[-ids[i] - 1]. out [num_tokens, in_features]
     * dtype.
     */
    void (*embedding)(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                      const struct weight *table, enum dtype dtype, backend_stream stream);
    /* out = x / sqrt(mean(x^2) + eps) * gain, in float32 inside. x, out [num_tokens, size] dtype; gain [size]
     * gain_dtype, in place before the kernel that makes x. */
    void (*rms_norm)(struct backend *b, void *out, const void *x, const void *gain, enum dtype gain_dtype, float eps,
                     int32_t num_tokens, int32_t size, enum dtype dtype, backend_stream stream);
    /* residual += x; out = rms_norm(residual). out may be x. */
    void (*fused_add_rms_norm)(struct backend *b, void *out, const void *x, void *residual, const void *gain,
                               enum dtype gain_dtype, float eps, int32_t num_tokens, int32_t size, enum dtype dtype,
                               backend_stream stream);
    void (*rotary_embedding)(struct backend *b, const struct rotary_args *args, backend_stream stream);
    void (*reshape_and_cache)(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream);
    /* v1: the whole context in one partition. v2: partitions of 512 tokens and a reduction. Both: one query token a
     * sequence. prefill: any query lengths; token j of a sequence attends to [0, seq_len - query_len + j]. */
    void (*paged_attention_v1)(struct backend *b, const struct attention_args *args, backend_stream stream);
    void (*paged_attention_v2)(struct backend *b, const struct attention_args *args, backend_stream stream);
    void (*paged_attention_prefill)(struct backend *b, const struct attention_args *args, backend_stream stream);
    /* out[t][i] = act(x[t][i]) * x[t][size + i]. x [num_tokens, 2 * size], out [num_tokens, size]. */
    void (*silu_and_mul)(struct backend *b, void *out, const void *x, int32_t num_tokens, int32_t size,
                         enum dtype dtype, backend_stream stream);
    /* out[t][o] = sum_i x[t][i] * w[o][i] (+ bias[o]); accumulated in float32. x [num_tokens, w->in_features] dtype,
     * row stride x_stride; out [num_tokens, w->out_features] out_dtype, row stride out_stride: parts of a fused QKV lie
     * side by side. x and out must not overlap. */
    void (*linear)(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                   int64_t x_stride, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                   backend_stream stream);
    /* out[i] = x[rows[i]]; [num_rows, size] dtype. Picks the tokens whose logits are wanted. */
    void (*gather_rows)(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows,
                        int32_t size, enum dtype dtype, backend_stream stream);
    /* block_tables[row][index] = block, for each delta. */
    void (*update_block_tables)(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                                const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream);
    /* Copies whole blocks inside each cache tensor. caches [num_caches] device pointers (K and V of every layer);
     * block_bytes of one block of one tensor; pairs on the device. */
    void (*copy_blocks)(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                        const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);
    /* The same between two sets of tensors, one of them in pinned host memory; pairs on the host, read before this
     * returns. */
    void (*swap_blocks)(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                        int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream);
    void (*sample)(struct backend *b, const struct sample_args *args, backend_stream stream);

    /* Optional (NULL: not there): operations that are one kernel, so that a decode step has fewer gaps. Each returns
     * false, having done nothing, for what it does not take; that depends on the model and the number of tokens alone.
     * They round where the operations that they stand for do.
     *
     * norm_linear: out = linear(rms_norm(x)); out [num_tokens, w->out_features] out_dtype
     *
     * linear_residual: residual += linear(x); residual [num_tokens, w->out_features] dtype
     *
     * gate_up_silu: out = silu_and_mul(linear(rms_norm(x))), or of x as it is (norm is NULL); w [2 * size,
     * in_features], out [num_tokens, size]
     *
     * decode_attention: rotary_embedding, reshape_and_cache and v1 or v2, for sequences of one query token each (or
     * none: padding) that read no K and V which others write here; query and key are left as they were. Everything but
     * query, key and value must have been in place before the kernel that makes these. */
    bool (*norm_linear)(struct backend *b, void *out, int64_t out_stride, enum dtype out_dtype, const void *x,
                        int64_t x_stride, const struct norm_params *norm, enum dtype dtype, int32_t num_tokens,
                        const struct weight *w, backend_stream stream);
    bool (*linear_residual)(struct backend *b, void *residual, int64_t residual_stride, const void *x, int64_t x_stride,
                            enum dtype dtype, int32_t num_tokens, const struct weight *w, backend_stream stream);
    bool (*gate_up_silu)(struct backend *b, void *out, int64_t out_stride, const void *x, int64_t x_stride,
                         const struct norm_params *norm, enum dtype dtype, int32_t num_tokens, const struct weight *w,
                         backend_stream stream);

    bool (*decode_attention)(struct backend *b, const struct rotary_args *rotary,
                             const struct reshape_and_cache_args *cache, const struct attention_args *attention,
                             backend_stream stream);

    /* Across the devices that share a model; do nothing for one device. */
    void (*all_reduce)(struct backend *b, void *data, int64_t count, enum dtype dtype, backend_stream stream);
    void (*all_gather)(struct backend *b, void *out, const void *in, int64_t count, enum dtype dtype,
                       backend_stream stream);

    /* Optional: the whole forward pass of a decode batch in one go (one persistent kernel); NULL: not there. */
    void (*decode_step)(struct backend *b, const void *plan, const struct batch *batch, backend_stream stream);

    void (*destroy)(struct backend *b);
};

/* Opens "cpu", "cuda", "cuda:N", or "auto": the first GPU if it can be used, else the CPU, and then *err says why no
 * GPU was used (it is empty where one was). threads: how many the CPU backend uses, 0 for all allowed. *out is freed
 * with
 * (*out)->destroy(*out). */
enum status backend_open(const char *device, int threads, struct backend **out, struct error *err);

enum status backend_cpu_open(int threads, struct backend **out, struct error *err);
enum status backend_cuda_open(int device, struct backend **out, struct error *err);

/* The paper's partition, and the rule that chooses between v1 and v2. */
#define PAGED_ATTENTION_PARTITION_SIZE 512
bool paged_attention_use_v1(int32_t max_seq_len, int32_t num_seqs, int32_t num_heads);

/* Attention of a whole mixed batch: decodes through v1 or v2, the rest through prefill. args->first_seq and num_seqs
 * are set here. */
void paged_attention(struct backend *b, const struct attention_args *args, int32_t num_decodes, int32_t num_seqs,
                     backend_stream stream);

#ifdef __cplusplus
}
#endif

#endif
