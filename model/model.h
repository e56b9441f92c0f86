/* A model on a device: its memory, and its steps: forward pass over a struct batch, then sampling.
 *
 * model_submit() puts a step on the device and returns; model_collect() waits for the oldest one. At most two are in
 * flight. Everything is allocated by model_create, model_allocate_cache and model_grow_swap_space; a step allocates
 * nothing.
 */
#ifndef QUIRE_MODEL_MODEL_H
#define QUIRE_MODEL_MODEL_H

#include "base/batch.h"
#include "kernels/backend.h"
#include "model/arena.h"
#include "model/model_spec.h"
#include "model/weights.h"

struct model_options {
    struct batch_limits limits;
    enum dtype dtype;       /* of activations */
    enum dtype cache_dtype; /* of the KV cache */
    bool keep_logits;       /* model_logits() works; for tests */
    bool copy_weights;      /* the device has memory of its own: weights are copied to it, projections merged */
    bool enforce_eager;     /* no graphs */
};

/* Activations of a step, planned once for the largest batch. T = max_num_tokens, S = max_num_seqs, at most T. */
struct activations {
    void *hidden;       /* [T, hidden_size] dtype: input and output of every sublayer */
    void *residual;     /* [T, hidden_size] dtype */
    void *qkv;          /* [T, (num_heads + 2 * num_kv_heads) * head_size] dtype */
    void *attention;    /* [T, num_heads * head_size] dtype */
    void *gate_up;      /* [T, 2 * intermediate_size] dtype */
    void *gated;        /* [T, intermediate_size] dtype */
    float *logits;      /* [S, vocab_size] */
    float *kept_logits; /* [S, vocab_size] before sampling, with keep_logits; else NULL */
};

/* The inputs of one step on the device, at fixed addresses, as in struct batch. */
struct step_inputs {
    int32_t *token_ids, *positions;                                 /* [T] */
    int64_t *slot_mapping;                                          /* [T] */
    int32_t *query_start;                                           /* [S + 1] */
    int32_t *seq_lens, *state_indices;                              /* [S] */
    int32_t *logits_indices, *sample_state_indices, *sample_output; /* [S] */
    struct block_table_delta *deltas;                               /* [S * max_blocks] */
    struct block_pair *copies;                                      /* [S] */
};

/* What stays on the device from step to step, and the outputs of one. */
struct device_state {
    int32_t *block_tables;       /* [S, max_blocks] */
    struct sampling_state *rows; /* [S] by slot */
    int32_t *history;            /* [S, max_model_len] tokens by slot */
    float *cos_sin;              /* [max_model_len, head_size] */
    int32_t *sampled; /* [S] of the last step; read back by token_ids -(r+1) before this step's are written */
    float *logprobs;  /* [S] */
    int32_t *ranks;
    int32_t *top_ids; /* [S, SAMPLING_MAX_LOGPROBS] */
    float *top_logprobs;
};

/* Host memory of one step: inputs on their way to the device, results on their way back. Two, by parity of the step. */
struct step_host {
    uint8_t *staging; /* pinned; laid out by inputs.c */
    int32_t num_samples;
    bool any_logprobs;
    int32_t *token_ids; /* pinned, as in struct sample_output */
    float *logprobs;
    int32_t *ranks;
    int32_t *top_ids;
    float *top_logprobs;
    backend_event done;
};

/* The counts that decide what a forward pass launches. */
struct step_shape {
    int32_t num_tokens, num_seqs, num_decodes, num_samples;
    int32_t max_query_len, max_seq_len;
    bool all_sampled; /* sample row i is token i: nothing has to be gathered */
    bool swaps;       /* blocks are on their way: a layer's cache is not touched before swap_wait */
};

/* Host blocks and the order of swaps (swap.h). Zeroed before model_grow_swap_space. */
#define SWAP_MAX_PIECES 16
struct swap_space {
    uint8_t
        *pieces[SWAP_MAX_PIECES]; /* [num_pieces] pinned [piece_blocks, num_layers, 2 (K, V), ...] as in the cache */
    int32_t num_pieces, piece_blocks;
    backend_stream stream;
    backend_event before; /* the steps before are over */
    backend_event *moved; /* [num_layers] a layer's blocks are where they belong */
};

/* A decode step of `rows` sequences, captured at start-up; fewer sequences are padded with empty ones. */
struct decode_graph {
    int32_t rows;
    backend_graph graph;
};
#define MODEL_MAX_GRAPHS 64

struct model {
    struct backend *backend;
    struct model_spec spec;
    const struct model_weights *weights;
    struct model_weights device_weights; /* with copy_weights; `weights` points here then */
    struct weights_upload *upload;       /* not waited for yet, or NULL */
    struct model_options options;
    struct attention_params attention;
    struct arena arena;
    struct activations act;
    struct step_inputs inputs;
    struct device_state state;
    void **k_cache, **v_cache; /* [num_layers] each [num_blocks + 1, ...]; one array: v_cache = k_cache + num_layers */
    int32_t num_blocks;
    struct swap_space swap;
    struct step_host hosts[2];
    struct decode_graph graphs[MODEL_MAX_GRAPHS]; /* [num_graphs] by rows, ascending */
    int32_t num_graphs;
    int64_t submitted, collected; /* steps */
    struct sampling_needs {
        bool processing, random, logprobs;
    } * sampling_needs; /* [S] what the sampling state of a slot asks for */
};

/* What model_create would allocate for each purpose, bytes[NUM_PURPOSES]; nothing is allocated or read. */
enum status model_plan(struct backend *backend, const struct model_spec *spec, const struct model_weights *weights,
                       const struct model_options *options, int64_t *bytes, struct error *err);
/* Plans and allocates everything but the KV cache. The weights must outlive the model; where they are copied, that goes
 * on meanwhile, and they must only last until model_wait_for_weights. */
enum status model_create(struct backend *backend, const struct model_spec *spec, const struct model_weights *weights,
                         const struct model_options *options, struct model **out, struct error *err);
/* Allocates the cache tensors for blocks 0 (the null block) .. num_blocks. */
enum status model_allocate_cache(struct model *m, int32_t num_blocks, struct error *err);
/* Allocates host memory for *added more blocks; those of all calls are numbered from num_blocks + 1 on, and are
 * `limit`, which is always the same, in the end. As they are needed, not at start-up: pinning gigabytes takes a second.
 */
enum status model_grow_swap_space(struct model *m, int32_t limit, int32_t *added, struct error *err);
/* Runs a prefill and a decode that store nothing, so that whatever a device loads on first use is there. Before
 * model_allocate_cache. */
enum status model_warm_up(struct model *m, struct error *err);
/* Captures the graphs of decode steps, where the backend has graphs. After model_allocate_cache. */
enum status model_capture(struct model *m, struct error *err);
/* Until the weights are there: between model_create and the first step. Warming up and capturing need not wait. */
enum status model_wait_for_weights(struct model *m, struct error *err);
/* Bytes of one block of one layer's K (or V). */
int64_t model_cache_block_bytes(const struct model *m);
void model_destroy(struct model *m); /* NULL is allowed */

/* A sequence took a slot: its sampling state and its tokens [num_tokens] so far. Before the submit that uses them. */
void model_set_sampling_state(struct model *m, int32_t slot, const struct sampling_state *row, const int32_t *tokens,
                              int32_t num_tokens);

/* Puts one step on the device: block moves, forward pass, sampling, copy of the results to the host. The batch may be
 * reused when this returns. */
enum status model_submit(struct model *m, const struct batch *batch, struct error *err);
/* Waits for the oldest submitted step. */
enum status model_collect(struct model *m, struct sample_output *out, struct error *err);
/* With keep_logits: the raw logits of the last collected step, [num_samples, vocab_size] on the device. */
const float *model_logits(const struct model *m);

#endif
