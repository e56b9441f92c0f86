/* What a loaded_model is made of, and how the engine opens it. Private to runtime/engine/ and tests. */
#ifndef QUIRE_RUNTIME_LOADED_MODEL_STATE_H
#define QUIRE_RUNTIME_LOADED_MODEL_STATE_H

#include "model/memory_profile.h"
#include "model/model.h"
#include "runtime/engine/loaded_model.h"

/* A draft model, if is_open (loaded_draft.h), on as many ranks as its target. */
struct loaded_draft {
    bool is_open;
    struct model_config config;
    struct model_weights weights; /* of several ranks, the first's */
    struct draft_rank *ranks;     /* [num_ranks] of the target; NULL: it has one */
    struct model *model;          /* NULL before it is created */
    int64_t missing_blocks;       /* host blocks that the target has and this has not; below 0: it has more */
};

/* A device with a model on it. The struct owns what it points to, but for `before`. */
struct loaded_model {
    struct backend *backend;
    struct backend *host_backend; /* the CPU's, where experts stay in host memory; else NULL */
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    /* [num_ranks] where several share the model, those of this process (loaded_ranks.h): rank first_rank of total_ranks
     * and those that follow. Else NULL, and the numbers are 0. */
    struct loaded_rank *ranks;
    int32_t num_ranks, first_rank, total_ranks;
    struct model_spec *stages; /* [num_stages] of the whole model (model/stage.h); NULL: there is one */
    int32_t num_stages;        /* 0: one */
    struct nodes *nodes;       /* the processes that have the other ranks; NULL: there are none */
    struct loaded_draft draft;
    struct tokenizer *tokenizer;          /* NULL with skip_tokenizer */
    struct memory_profile profile;        /* of several ranks, that of the one with room for the fewest blocks */
    struct memory_profile *rank_profiles; /* [num_ranks]; NULL: there is one rank */
    int32_t shortest_rank;                /* whose profile that is */
    struct batch_limits limits;
    bool lowered_for_states;           /* max_num_seqs, by the plan, because slots of states would take too much */
    bool lowered_tokens, lowered_seqs; /* by the plan, because memory is short: limits has fewer than usual */
    /* For plans of what is not loaded. */
    int64_t dummy_to_come; /* bytes of dummy weights that the plan must leave room for on the CPU; 0: none */
    const struct loaded_model *before; /* an earlier plan on these devices: what it found out about them is taken from
                                          there; NULL: the devices are asked */
};

/* Opens the device, the checkpoint and the tokenizer, plans the memory and allocates it. On failure *out is NULL. */
enum status loaded_model_open(const struct engine_options *options, struct loaded_model **out, struct error *err);
/* IO: a file of weights was changed since it was opened. */
enum status loaded_model_check_files(const struct loaded_model *l, struct error *err);

#endif
