/* One step's work: the only thing that crosses from scheduler/ to model/. Flat arrays, allocated once at start-up for
 * the largest step, filled by the scheduler, read by the model.
 *
 * Sequences with one query token (decodes) come first, then prefills and chunks. They are the same thing with a
 * different query length: sequence i computes tokens query_start[i] .. query_start[i+1] and attends to seq_lens[i].
 */
#ifndef QUIRE_BASE_BATCH_H
#define QUIRE_BASE_BATCH_H

#include <stdint.h>

#include "base/status.h"

/* The largest step: what everything that is allocated at start-up is sized by. */
struct batch_limits {
    int32_t max_num_tokens; /* max_num_batched_tokens */
    int32_t max_num_seqs;   /* sequences in one step; also the number of slots (rows of what stays on the device) */
    int32_t max_model_len;  /* tokens of one sequence, prompt and output */
    int32_t block_size;
    int32_t num_groups; /* KV cache groups; 1 until a model needs more */
};

/* Blocks to move, source to destination, each the whole block of every layer. */
struct block_pair {
    int32_t source, destination;
};

/* block_tables[group][row][index] = block, on the device, before the step runs. row is a slot. */
struct block_table_delta {
    int32_t group, row, index, block;
};

struct batch {
    int32_t num_tokens, num_seqs;
    int32_t num_decodes;                /* the first num_decodes sequences have exactly one query token, and read no K
                                           and V but their own token's that this step writes */
    int32_t max_query_len, max_seq_len; /* over the batch */

    int32_t *token_ids;     /* [num_tokens] >= 0: a token. -(r+1): whatever row r of the last step's samples became */
    int32_t *positions;     /* [num_tokens] position of each token in its sequence, from 0 */
    int32_t *query_start;   /* [num_seqs + 1] prefix sums of query lengths; query_start[0] = 0 */
    int32_t *seq_lens;      /* [num_seqs] context length of each sequence after this step */
    int32_t *state_indices; /* [num_seqs] the sequence's row in block tables and sampling state; distinct */
    int64_t *slot_mapping;  /* [num_groups, num_tokens] block * block_size + offset; -1: do not store. Group g starts at
                               g * limits.max_num_tokens */

    int32_t num_deltas;
    struct block_table_delta *deltas; /* [num_deltas] at most max_deltas */
    int32_t max_deltas;

    int32_t num_samples;
    int32_t *
        logits_indices; /* [num_samples] index into the step's tokens whose logits are wanted; at most one a sequence */
    int32_t *sample_state_indices; /* [num_samples] the slot whose sampling state applies */
    int32_t *sample_output;        /* [num_samples] output position being sampled, from 0: the Philox counter */

    int32_t num_swap_out, num_swap_in, num_copies; /* applied before the forward pass, in this order */
    struct block_pair *swap_out;                   /* device block -> host block; at most max_deltas */
    struct block_pair *swap_in;                    /* host block -> device block; at most max_deltas */
    struct block_pair *copies;                     /* device -> device (copy-on-write); at most max_pairs */
    int32_t max_pairs;

    struct batch_limits limits;
};

/* Allocates every array for `limits`; `max_pairs` bounds the copies. Free with batch_free. */
enum status batch_init(struct batch *batch, const struct batch_limits *limits, int32_t max_pairs, struct error *err);
void batch_free(struct batch *batch);  /* safe on a zeroed struct */
void batch_clear(struct batch *batch); /* empties it; keeps the memory */

/* Longest block table of a sequence: ceil(max_model_len / block_size). */
static inline int32_t batch_max_blocks(const struct batch_limits *limits)
{
    return (limits->max_model_len + limits->block_size - 1) / limits->block_size;
}

/* Blocks of a pool that admission leaves free, so that running sequences can grow: 1 % of them, as in vLLM. */
static inline int32_t batch_watermark(int32_t num_blocks)
{
    return num_blocks / 100;
}

/* What a step sampled, in the order of logits_indices. The arrays belong to whoever returns it and stay valid until the
 * next collect. */
struct sample_output {
    int32_t num_samples;
    const int32_t *token_ids;  /* [num_samples] */
    const float *logprobs;     /* [num_samples] log-probability of that token before any processing; valid where the
                                  slot asked for logprobs */
    const int32_t *ranks;      /* [num_samples] 1 + number of tokens with a higher logprob; same validity */
    const int32_t *top_ids;    /* [num_samples, SAMPLING_MAX_LOGPROBS] most probable tokens, best first; same validity,
                                  the first num_logprobs of each row are filled */
    const float *top_logprobs; /* [num_samples, SAMPLING_MAX_LOGPROBS] */
};

#define SAMPLING_MAX_LOGPROBS 20 /* vLLM's max_logprobs */

#endif
