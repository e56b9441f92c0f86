/* A device for tests of the scheduler. It computes batches as a GPU would, with one difference: in place of K
 * and V a slot holds what they stand for: the context (a hash of the salt and of the tokens up to its own), the
 * position, the token, the KV cache group and the cache namespace. What a batch reads is compared with what its
 * sequences' true tokens say that it must read, so one wrong block, copy, swap or table entry shows in the step that
 * reads it. A run's drafts are written as what they are, right or wrong, and the tokens of its rows are drawn after
 * them, so a slot of a rejected draft has another context than the token that belongs there.
 *
 * A state slot holds, in place of a state, how many tokens it has seen and their context. */
#ifndef QUIRE_TESTS_SUPPORT_SLOT_DEVICE_H
#define QUIRE_TESTS_SUPPORT_SLOT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/scheduler.h"

#define TRUE_MAX_TOKENS 1025
#define TRUE_VOCAB 24

/* A sequence on plain arrays: what it must be, whatever else runs. */
struct true_sequence {
    int32_t request, index; /* for messages */
    uint64_t seed;
    int32_t prompt_len;
    int32_t num_tokens;      /* of the array: prompt, and output as far as anyone asked */
    int32_t cache_namespace; /* in which its request is computed */
    bool chosen;             /* a beam: its tokens are those that it was given */
    int32_t tokens[TRUE_MAX_TOKENS];
    uint64_t contexts[TRUE_MAX_TOKENS + 1]; /* contexts[i]: of the first i tokens */
};

/* An empty sequence of this salt. */
void true_sequence_init(struct true_sequence *seq, int32_t request, int32_t index, uint64_t seed, int32_t salt);
void true_sequence_append(struct true_sequence *seq, int32_t token);
/* The token that the model draws after the first `length`. */
int32_t true_sequence_draw(const struct true_sequence *seq, int32_t length);
/* Token `position`; drawn if the sequence is not as long yet. */
int32_t true_sequence_token(struct true_sequence *seq, int32_t position);
/* Its first num_tokens tokens, and then `drafts`: what a run with these drafts computes. */
void true_sequence_draft(struct true_sequence *out, const struct true_sequence *seq, int32_t num_tokens,
                         const int32_t *drafts, int32_t count);

/* Drafts for a run after its first num_tokens tokens: each is the token that its row draws, but for the one at `wrong`.
 * So the first `wrong` are right, and those after the wrong one are what would be drawn behind it. */
void true_sequence_guess(struct true_sequence *seq, int32_t num_tokens, int32_t *drafts, int32_t count, int32_t wrong);

struct slot {
    uint64_t context; /* contexts[position + 1] of the sequence */
    int32_t position; /* -1: it was never written, or lost, or its step was cancelled */
    int32_t token, group;
    int32_t request, index; /* the writer */
    int32_t cache_namespace;
};

/* What a state slot holds: the state after the first num_tokens tokens of a sequence. */
struct state {
    int32_t num_tokens; /* -1: it was never written, or its step was cancelled */
    uint64_t context;   /* contexts[num_tokens] of the sequence */
};

#define SLOT_DEVICE_STEPS SCHEDULER_MAX_STEPS /* in flight at most */
#define SLOT_DEVICE_TOPS 4                    /* most num_target_tops */

struct slot_device {
    struct batch_limits limits;
    int32_t num_blocks, num_host_blocks, num_host_slots, first_namespace_len, namespace_position_shift;
    int32_t num_batches;
    int32_t stride;                /* places of a block: the tokens of the largest */
    struct slot *slots;            /* [blocks * stride] host blocks last */
    int64_t *written_in;           /* [blocks * stride] the step that wrote a slot last */
    int64_t *kept_in;              /* [blocks * stride] the step that may not write it: see slot_device_keep */
    struct state *state_slots;     /* [1 + num_state_slots + num_host_slots] */
    int64_t *state_written_in;     /* [1 + num_state_slots] the step that wrote it last */
    int32_t *tables;               /* [num_groups, max_num_seqs, max_blocks] */
    int64_t *changed_in;           /* like tables: the step that changed an entry last */
    struct true_sequence **states; /* [max_num_seqs] by state index; NULL: none */
    int64_t *named_in;             /* [max_num_seqs] the last step that named a state index */
    struct true_sequence *runs;    /* [max_num_seqs] by state index, of the step's runs; NULL: max_num_drafts is 0 */
    int32_t *resolved;             /* [max_num_tokens] token ids of the step */
    int32_t *sampled[SLOT_DEVICE_STEPS]; /* [batch_max_entries] */
    int32_t num_sampled[SLOT_DEVICE_STEPS];
    int32_t *drafts[SLOT_DEVICE_STEPS]; /* [max_num_drafts] of a drafter on the device */
    bool has_drafts[SLOT_DEVICE_STEPS];
    struct slot_targets {
        struct sample_output output;
        int32_t *requests, *ids, *rows; /* [max_num_tokens] */
        int32_t *top_ids;               /* [max_num_tokens, SLOT_DEVICE_TOPS] */
        float *logprobs;                /* [max_num_tokens, SLOT_DEVICE_TOPS] */
    } targets[SLOT_DEVICE_STEPS];
    int64_t num_submitted, num_collected; /* steps that were cancelled are in neither */
    int64_t step;                         /* the number of the next step; those that were cancelled have one */
};

/* The device that a scheduler with this configuration schedules for. */
enum status slot_device_init(struct slot_device *d, const struct scheduler_config *config, struct error *err);
void slot_device_free(struct slot_device *d);

/* The entries first .. end - 1 of a batch, of one sequence: a run, or one entry. */
struct run_entries {
    int32_t first, end;
};
struct run_entries slot_device_entries(const struct batch *batch, int32_t entry);

/* The drafts of the batch's runs, in order, which were given as NULL: makes them known to the device, and names them in
 * the batch. */
void slot_device_set_drafts(struct slot_device *d, struct batch *batch, const int32_t *drafts);
/* The next step must not write token `offset` of this block: it is of a sequence that keeps it. */
void slot_device_keep(struct slot_device *d, int32_t block, int32_t offset);
/* Checks the batch and computes it; *err says what is wrong with the batch. */
enum status slot_device_submit(struct slot_device *d, const struct batch *batch, struct error *err);
/* The step that was submitted last, of this batch, is cancelled: its moves and tables stay, but of its slots only a
 * part is written, which the number chooses (0: none), and it is not in flight. */
void slot_device_cancel(struct slot_device *d, const struct batch *batch, int32_t part);
/* The samples of the oldest step not collected. Of a target, which is token p of its prompt, the rank and the
 * log-probability are p, and the most probable tokens p, p + 1 and so on. */
struct sample_output slot_device_collect(struct slot_device *d);
/* The request whose target this is, of the step that was collected last. */
int32_t slot_device_request_of_target(const struct slot_device *d, int32_t target);
/* Whether the state slot, or host slot, holds the state after the sequence's first num_tokens tokens. */
enum status slot_device_check_state(const struct slot_device *d, const struct true_sequence *seq, int32_t slot,
                                    int32_t num_tokens, struct error *err);
/* Whether the block's slots hold the sequence's tokens first .. end - 1 (first's block) for this group. */
enum status slot_device_check(const struct slot_device *d, const struct true_sequence *seq, int32_t group,
                              int32_t block, int32_t first, int32_t end, struct error *err);

#endif
