/* The forward pass of a decoder-only transformer (Vaswani et al., 2017; Touvron et al., 2023, for Llama): interprets a
 * model_spec over one step, with nothing but the backend's operations.
 */
#ifndef QUIRE_MODEL_DECODER_H
#define QUIRE_MODEL_DECODER_H

#include <signal.h>
#include <stdbool.h>

#include "kernels/backend.h"
#include "model/arena.h"
#include "model/inputs.h"
#include "model/kv_cache.h"
#include "model/model_spec.h"
#include "model/state_cache.h"
#include "model/weights.h"

/* Those of a mixture of experts, with room for any layer's. A is T * top_k. */
struct expert_activations {
    float *logits;           /* [T, num_experts + 1] of the router, and the shared experts' gate */
    float *base_gate;        /* [T] what the shared experts' result is multiplied by the sigmoid of */
    struct expert_plan plan; /* of T tokens */
    /* Of a single token, where the layer's MLP counts as one more expert, the last (has_shared): that one's row is
     * there from the start, behind those of top_k of num_experts, and its weight is 1 if the router does not write it.
     */
    struct expert_plan one;
    int32_t num_experts, top_k;
    void *gated;   /* [A, intermediate_size of an expert] dtype */
    void *latent;  /* [T, latent_size] dtype: what latent experts read, and then what they make */
    void *scratch; /* [A, the larger of experts_width and 2 * intermediate_size] dtype, and [A] float32 behind it */
};

struct host_layer {
    const struct decoder *d;
    int32_t layer;
};

/* Experts that stay in host memory, where the CPU computes them. The device copies to pinned memory what they read, and
 * from there what they make (backend->call_host). */
struct host_experts {
    struct backend *backend;       /* the CPU's */
    int32_t num_layers;            /* 0: all experts are computed where the rest is */
    bool idle;                     /* the host computes nothing, because nobody reads what the step makes */
    struct expert_activations act; /* on the host, without logits */
    void *x, *hidden;              /* [T, experts_width] dtype */
    struct host_layer layers[MODEL_MAX_LAYERS]; /* [num_layers] */
};

/* Activations of a step, planned once for the largest batch. T = batch_max_rows, padded as quantized rows are; E =
 * batch_max_entries. */
struct activations {
    void *hidden;    /* [T, hidden_size] dtype: input and output of a sublayer */
    void *residual;  /* [T, hidden_size] dtype: of a stage (stage.h) that is not the first, what the one before it has
                        made, and of one that is not the last, what it makes */
    void *qkv;       /* [T, layer_mixer_in_size] dtype. The sizes of this and the next three are
                        those of the layer that is computed; the buffers have room for any layer's */
    void *attention; /* [T, layer_mixer_out_size] dtype */
    void *mixed;     /* [T, recurrent_channels] dtype, or the queries of latent attention [T, num_heads, rank + rope];
                        NULL: no layer is recurrent or has latent attention */
    /* Of latent attention, else NULL: [T, num_heads, rank] dtype, or if there is more in it q [T, num_heads, nope +
     * rope] */
    void *latent_heads;
    void *mixed_gates; /* [T, recurrent_v_size + recurrent_a_size] dtype, of recurrent layers with a rank, else NULL */
    void *gate_up;     /* [T, 2 * intermediate_size] dtype */
    void *gated;       /* [T, intermediate_size] dtype, or quantized rows of that size */
    void *per_layer;   /* [T, num_layers * per_layer_size] dtype; NULL: the model has none. gate_up has as much room */
    void *quantized;   /* quantized rows of T tokens: the input of a sublayer, or of o; NULL if no weight takes them */
    float *logits;     /* [E, vocab_size], of the last stage */
    /* Where ranks have the columns of o or down, in an order, between them: room for a rank's, [T, in_features of all]
     * dtype, and the inputs of all ranks, [T, in_features of all]; else NULL */
    void *ordered;
    float *all_inputs;
    /* Of a head, else NULL: what q, k and v of layer 0, or head_projection, read of T tokens; and, with maps_ids, the
     * logits of its own vocabulary [E, num_ids] */
    void *head_input;
    float *head_logits;
    struct expert_activations experts;
};

/* What the forward pass reads and writes. Everything that is pointed to outlives the decoder. */
struct decoder {
    struct backend *backend;
    const struct model_spec *spec;
    const struct model_weights *weights;
    const struct kv_cache *cache;
    const struct state_cache *states_cache;
    const struct step_inputs *inputs;
    /* [num_groups, max_num_seqs, block_table_stride] on the device, as the next two arrays */
    const int32_t *block_tables;
    int64_t block_table_stride, group_stride; /* from sequence to sequence, and from group to group */
    float *const *cos_sin;                    /* [num_ropes] tables of angles */
    const int32_t *last_sampled; /* [E] the last step's tokens, by sample: token id -(i + 1) stands for the i-th */
    const struct weight *embedding, *lm_head; /* of the weights, or those of a head's target */
    const struct head_spec *served;           /* of the head that this model keeps states for; NULL: none */
    /* Of the last step's tokens: what `served` reads, [T, num_states * state_size] dtype or, of a head, its residual
     * stream, [T, hidden_size]; and, of a head, the target's states. */
    void *states;
    const void *target_states;
    enum dtype dtype;   /* of activations */
    bool scatters_runs; /* the entries of a run need not follow one another, as decode_attention wants them to */
    const volatile sig_atomic_t *cancel; /* as in struct model_options */
    struct host_experts host_experts;    /* backend and num_layers */
    struct activations act;              /* this and the rest, also of host_experts, are set by decoder_allocate */
    float embedding_multiplier;
    float *alibi_slopes; /* [num_layers, num_heads] on the device, the most heads of any layer; NULL: no ALiBi */
    struct attention_params attention[MODEL_MAX_LAYERS]; /* [num_layers] */
};

/* The counts that decide which operations a forward pass launches. */
struct step_shape {
    int32_t num_tokens, num_seqs, num_decodes, num_drafts, num_samples, num_targets;
    int32_t max_query_len, max_seq_len;
    bool all_sampled;               /* sample i is of token i: nothing has to be gathered */
    bool target_states, own_states; /* a head's tokens read these, or some the ones and some the others */
    bool measures_scales;           /* as in struct kv_cache */
    const backend_event *swapped;   /* as in struct swap_space; NULL: no swaps */
};

/* Allocates the activations and derives from the spec what does not change from step to step. */
enum status decoder_allocate(struct decoder *d, struct arena *arena, const struct batch_limits *limits,
                             struct error *err);

/* Copies to the device what decoder_allocate has made room for. */
enum status decoder_upload(const struct decoder *d, struct error *err);

/* Puts the whole pass on the main stream: from d->inputs to d->act.logits [shape->num_samples, vocab_size], of which a
 * rank makes its own columns alone; of a stage, from or to d->act.residual. False: it was cancelled. */
bool decoder_forward(const struct decoder *d, const struct step_shape *shape);
/* After a rank's pass: the other ranks' logits, and what is computed of all logits. All ranks call it. */
void decoder_finish_logits(const struct decoder *d, int32_t num_samples);
/* Which columns a rank has made; false: it takes decoder_finish_logits to make logits of them. */
bool decoder_own_logits(const struct decoder *d, struct sample_share *share);
/* After a pass with targets: puts the logits of the targets first .. first + count - 1 into d->act.logits [count,
 * vocab_size]. There may be more targets than it has room for (E), so the caller asks for some at a time, once it has
 * used the logits of the samples. */
void decoder_target_logits(const struct decoder *d, int32_t first, int32_t count);

#endif
