/* What a model is made of. Private to model.c, step.c, ranks.c and tests. */
#ifndef QUIRE_MODEL_MODEL_STATE_H
#define QUIRE_MODEL_MODEL_STATE_H

#include "kernels/ranks.h"
#include "model/decoder.h"
#include "model/graphs.h"
#include "model/inputs.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/swap.h"
#include "model/upload.h"

/* What a step finds: a row for each sample, or for each target. The arrays are those of struct sample_output. */
struct token_results {
    int32_t *token_ids;
    float *logprobs;
    int32_t *ranks;
    int32_t *top_ids; /* this and the next have room for the most columns; a step uses as many as it needs */
    float *top_logprobs;
};

/* What stays on the device from step to step, and what a step finds. S = max_num_seqs, E = batch_max_entries, T =
 * max_num_tokens. */
struct device_state {
    /* Of a drafter, these three are the target's. */
    int32_t *block_tables;           /* [num_groups, S, max_blocks] */
    struct sampling_state *sampling; /* [S] by state_index */
    int32_t *history;                /* [S, max_model_len] tokens by state_index */
    float *cos_sin[MODEL_MAX_ROPES]; /* [rope_table_rows, rope_rotary_dim] */
    struct token_results samples;    /* [E] of the last step; a step reads token_ids before it writes its own */
    struct token_results targets;    /* [T] */
    uint32_t *masks;                 /* [E, model_mask_words] of a stage that samples, with masks; else NULL */
    int32_t *mask_rows;              /* [E] of each sample; likewise */
    float *kept_logits;              /* [E, vocab_size] before sampling, with keep_logits; else NULL */
};

/* The results of a step in pinned host memory. */
struct step_results {
    int32_t num_samples, top_stride;
    int32_t num_targets, target_top_stride;
    bool any_logprobs; /* of the samples */
    struct token_results samples, targets;
    struct sample_output target_output; /* of model_collect */
    backend_event done;
};

/* What the sampling state of a sequence asks for: a step skips what none of its sequences needs. */
struct sampling_needs {
    bool processing, random;
    int32_t num_logprobs; /* as in struct sampling_state */
};

struct model {
    struct backend *backend;
    const struct model_spec *spec; /* the caller's */
    struct model_options options;
    struct arena arena;
    struct model_weights device_weights; /* with copy_weights */
    struct upload *upload;               /* of the weights, until model_wait_for_weights; else NULL */
    struct state_cache states;
    struct kv_cache cache;
    struct step_inputs inputs;
    struct device_state state;
    struct decoder decoder;
    struct decode_graphs graphs, draft_graphs; /* of decodes without drafts, and with them */
    struct swap_space swap;
    struct step_results results[MODEL_MAX_STEPS]; /* [options.max_in_flight] a ring, as the staging memory of inputs */
    int64_t submitted, collected;                 /* steps */
    struct sample_masks masks[MODEL_MAX_STEPS]; /* pinned host memory: of each step in flight of a model with stages; of
                                                   others the first is for all steps */
    void *outbox[MODEL_MAX_STEPS];         /* [options.max_in_flight] of a stage that is not the last: what it sends */
    struct sampling_needs *sampling_needs; /* [S] by state_index; of a drafter the target's */
    /* Of rank 0 of several: the other ranks' models, and a thread for each rank. */
    struct model *others[COLLECTIVE_MAX_RANKS - 1]; /* [num_others] */
    int32_t num_others;
    struct pool *rank_threads;
    struct group_failure *failure;  /* of the ranks' backends, where it is the model's own */
    struct group_operations paused; /* of this rank, while the model is idle */
};

/* The ids that are sampled from. */
static inline int32_t model_num_ids(const struct model *m)
{
    return m->options.num_ids > 0 ? m->options.num_ids : model_spec_whole(m->spec)->vocab_size;
}

static inline int32_t model_mask_words(const struct model *m)
{
    return (model_num_ids(m) + 31) / 32;
}

/* Of each step in flight, or of all. */
static inline int32_t model_num_masks(const struct model *m)
{
    return m->spec->num_stages > 1 ? m->options.max_in_flight : 1;
}

/* The model of a rank of this process, counted from its first one, of which there are 1 + m->num_others. */
static inline struct model *model_rank_of(struct model *first, int32_t rank)
{
    return rank == 0 ? first : first->others[rank - 1];
}

/* Calls `function` for the model of each rank of this process, of all at the same time, and waits for all of them. A
 * failure, but of memory, is that of the group (kernels/group_failure.h), so that no rank waits for one that is not to
 * come. What failed first is reported; of memory the first by rank. */
typedef enum status rank_function(struct model *m, void *context, struct error *err);
enum status model_for_ranks(struct model *m, rank_function *function, void *context, struct error *err);

#endif
