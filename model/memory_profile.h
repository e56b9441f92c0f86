/* Where the memory goes, and how many KV cache blocks fit. Terms are bytes. The report is a sum and not an estimate:
 * the arena counts what quire allocates, and what others, the CUDA context and graphs hold is measured. */
#ifndef QUIRE_MODEL_MEMORY_PROFILE_H
#define QUIRE_MODEL_MEMORY_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "kernels/dtype.h"

/* Of several ranks, each has a profile of its own device. */
struct memory_profile {
    char device[32];
    bool discrete;       /* a GPU: see struct backend */
    int64_t total;       /* of the device */
    int64_t available;   /* on the CPU: host memory that was free when the plan was made, a rank's part of it; else 0 */
    int64_t others;      /* held by other processes */
    bool others_unknown; /* a GPU: the system does not tell others from the context: others is 0, and the context has
                            both */
    char others_names[256]; /* which processes the others are, as far as it is known, or "" */
    int64_t context;        /* the CUDA context and the kernels loaded into it; 0 on the CPU */
    double utilization;     /* gpu_memory_utilization; 0 on the CPU */
    int64_t budget;         /* total * utilization; on the CPU the sum of everything below */
    int64_t weights;
    int64_t experts;            /* of the weights, those of experts; 0: there are none */
    int32_t host_expert_layers; /* the experts of the first so many layers stay in host memory; no part of the budget */
    int64_t host_experts;       /* their bytes */
    int64_t host_embeddings;    /* pinned host memory of embeddings that a GPU reads there; no part of the budget */
    int64_t host_token_bytes;   /* what the CPU reads of them for a token */
    int64_t draft_weights, draft_step; /* of a draft model: its weights; its activations, workspace and state. 0: there
                                          is none */
    int64_t draft_block_bytes;         /* of block_bytes, the draft model's K and V */
    int64_t activations;               /* the peak: planned for the largest batch, never allocated again */
    int64_t workspace;                 /* of the kernels */
    int64_t graphs;                    /* captured decode steps */
    int64_t state; /* block tables, sampling state, inputs and outputs of a step, the null block; on the CPU also
                      the arrays of a batch */
    int32_t num_state_slots;    /* of recurrent layers' states; 0: the model has none */
    int32_t num_snapshot_slots; /* of these, beyond what the sequences of a step need: for snapshots */
    int64_t slot_bytes;         /* of a state slot in all layers */
    int64_t state_slots;        /* all of them, and the null slot */
    int64_t kv_budget;   /* budget - (others + context + weights + draft + activations + workspace + graphs + state +
                            state slots), or what the blocks may take on the CPU; not below 0 */
    int64_t block_bytes; /* of one block: K and V of the layers of a KV cache group */
    int32_t group_layers[KV_MAX_GROUPS]; /* [num_groups] layers of each group */
    int64_t group_unused[KV_MAX_GROUPS]; /* [num_groups] of block_bytes, what the group leaves empty: see
                                            kv_cache_unused_bytes */
    int32_t num_blocks;                  /* floor(kv_budget / block_bytes), or the override, or fewer because another
                                            rank has fewer; all of them usable */
    int32_t num_blocks_override;         /* 0: computed */
    int64_t kv_cache;                    /* num_blocks * block_bytes */
    int64_t swap_space;                  /* host memory for blocks and states of preempted requests, taken as it is
                                            needed; no part of the budget */
    int32_t num_host_slots;              /* for states: what half of swap_space holds, and at most num_state_slots */
    int32_t num_host_blocks;             /* what the rest of swap_space holds */
    int64_t host;                        /* pinned host memory for what goes in and out; on the CPU a part of `state` */
    int32_t model_max_len;               /* what the model was made for */
    enum dtype dtype, cache_dtype;
    int64_t in_use; /* by the device's own count once everything was allocated, others included; 0 on the CPU */
};

/* Blocks that one request of `tokens` needs so that it can be admitted and grow to its end: the most that it holds at a
 * time, batch_sequence_blocks, and the watermark of 1 % of the pool on top. */
int32_t memory_blocks_needed(const struct batch_limits *limits, int32_t tokens);
/* The longest request that num_blocks admit, in whole blocks of tokens; the inverse of the above. */
int32_t memory_longest_request(const struct batch_limits *limits, int32_t num_blocks);

int64_t memory_profile_draft(const struct memory_profile *p); /* a draft model's weights and step memory */

/* Bytes of the state slots for snapshots, and of those for sequences. */
int64_t memory_profile_snapshots(const struct memory_profile *p);
int64_t memory_profile_sequence_slots(const struct memory_profile *p);
/* What blocks and snapshots may take together. */
int64_t memory_profile_cache_budget(const struct memory_profile *p);
/* How many slots of *p, which has none for snapshots yet, should be for them: one for so many tokens as prefix_len that
 * the blocks hold, so that neither outlasts the other. That may take a sixteenth to a quarter of the bytes of the
 * cache, which are those of blocks and snapshots; there are at least MEMORY_MIN_SNAPSHOTS, unless these are half of
 * them. */
enum { MEMORY_MIN_SNAPSHOTS = 8 };
int32_t memory_choose_snapshots(const struct memory_profile *p, const struct batch_limits *limits, int32_t prefix_len);

/* Everything that is not blocks: the sum of the terms above. */
int64_t memory_profile_fixed(const struct memory_profile *p);

/* Sets num_blocks and kv_cache from kv_budget, or the override, and num_host_slots and num_host_blocks from swap_space.
 */
void memory_profile_count_blocks(struct memory_profile *p);
/* What the other terms leave to the blocks; below 0: they do not fit. */
int64_t memory_profile_left(const struct memory_profile *p);
/* Gives all ranks the fewest blocks, host blocks and host slots that one of them has. Returns the rank that has room
 * for the fewest blocks. */
int32_t memory_profile_agree(struct memory_profile *ranks, int32_t count);
/* What a step takes: activations, workspace and state, those of a draft model included. On the CPU this and the blocks
 * are allocated after the plan. */
int64_t memory_profile_step_memory(const struct memory_profile *p);
/* Whether a request of max_model_len fits in num_blocks, and, on the CPU, the plan in what is available. */
bool memory_profile_fits(const struct memory_profile *p, const struct batch_limits *limits);
/* Whether it fits, as an error without advice. */
enum status memory_profile_check(const struct memory_profile *p, const struct batch_limits *limits, struct error *err);

/* The field of struct engine_options that decides how many blocks there are. */
const char *memory_profile_blocks_setting(const struct memory_profile *p);

/* Bytes of the host blocks and slots. */
int64_t memory_profile_swap_space(const struct memory_profile *p);
/* Tokens that the blocks hold in every group, a multiple of the largest block size; and how many requests of
 * max_model_len fit at once. */
int64_t memory_profile_tokens(const struct memory_profile *p, const struct batch_limits *limits);
double memory_profile_concurrency(const struct memory_profile *p, const struct batch_limits *limits);
/* How many requests of so many tokens, nothing shared, run at once: as many as blocks and max_num_seqs admit. */
int32_t memory_profile_requests(const struct memory_profile *p, const struct batch_limits *limits, int32_t tokens);

#endif
