/* A step's inputs: packed in pinned host memory, then copied to their places on the device in one operation. */
#ifndef QUIRE_MODEL_INPUTS_H
#define QUIRE_MODEL_INPUTS_H

#include "base/batch.h"
#include "kernels/backend.h"
#include "model/arena.h"
#include "model/model.h"

/* Arrays on the device at fixed addresses, as in struct batch. T = max_num_tokens, S = max_num_seqs, E =
 * batch_max_entries. */
struct step_inputs {
    int32_t *token_ids, *positions; /* [T] */
    int64_t *slot_mapping; /* [num_groups, tokens of the step, padding included] packed, room for [num_groups, T] */
    int32_t *query_start;  /* [E + 1] */
    int32_t *seq_lens, *state_indices;                                 /* [E] */
    int32_t *state_sources, *state_slots;                              /* [E] NULL: no layer has a state */
    int32_t *logits_indices, *sample_state_indices, *output_positions; /* [E] */
    int32_t *sampled_drafts;                                           /* [E] NULL: max_num_drafts is 0 */
    int32_t *target_indices, *target_ids;                              /* [T] */
    int32_t *target_rows, *own_rows; /* [T] batch.state_rows of a head: rows of the target's states, and of its own; -1:
 of the others. NULL: the model is no head */
    struct block_table_delta *deltas;  /* [num_groups * S * max_blocks] */
    struct block_pair *copies;         /* [num_groups * S] */
    uint8_t *staging[MODEL_MAX_STEPS]; /* pinned host memory, of the steps in flight */
    int64_t staged_deltas;             /* how many deltas staging has room for */
};

/* For num_steps steps in flight, of a head or of another model. */
enum status step_inputs_allocate(struct step_inputs *in, struct arena *arena, const struct batch_limits *limits,
                                 int32_t num_steps, bool is_head, struct error *err);

/* Uploads the batch through staging[place]. A decode batch is padded to num_seqs entries, if that is more than it has,
 * with tokens that are stored nowhere and attend to nothing; max_num_tokens has room for them. */
void step_inputs_upload(const struct step_inputs *in, struct backend *b, const struct batch *batch, int32_t num_seqs,
                        int place);

#endif
