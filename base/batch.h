/* One step's work, the only data that crosses from scheduler/ to model/: flat arrays, allocated at start-up for the
 * largest step, filled by the scheduler, read by the model.
 *
 * Decodes come first, then prefills and chunks of prefills. They differ only in the number of query tokens: sequence i
 * computes the tokens query_start[i] .. query_start[i + 1] - 1 of the batch, and they attend to its first seq_lens[i]
 * tokens, each to those before it and itself. A batch of two decodes and a prefill of 3 tokens:
 *
 *     sequence       0      1      2
 *     token_ids      17   | 42   | 5    9    3
 *     positions      12   | 30   | 0    1    2
 *     query_start    0      1      2              5
 *     seq_lens       13     31     3
 *     slot_mapping   220  | 94   | 64   65   66        block * block_size + offset
 *
 * A sequence with drafts (Leviathan et al., 2023) is a run: its last token and up to MAX_DRAFTS draft tokens behind it.
 * A run of 1 + d tokens is laid out as 1 + d decodes that follow one another, of the same state index, one token longer
 * each. So the operations that compute decodes compute runs. A run of two drafts after a decode:
 *
 *     entry          0      1      2      3
 *     token_ids      17   | 42     7      9            7 and 9 are drafts
 *     positions      12   | 30     31     32
 *     seq_lens       13     31     32     33
 *     state_indices  0      1      1      1
 */
#ifndef QUIRE_BASE_BATCH_H
#define QUIRE_BASE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A KV cache group is a set of layers whose attention reads the same tokens: all, or those of a sliding window, or
 * those of the query's chunk. A sequence has a block table for each group. All groups take their blocks from one pool:
 * a block has as many bytes in one group as in another, because every group has as many layers (the design follows
 * vLLM's hybrid KV cache manager). Layers may store more or fewer bytes of a token. A group with fewer packs more
 * tokens into a block: block_size times a power of two.
 *
 *     block_size 16, block_shifts {2, 0}: tokens 0 .. 127 of a sequence
 *     group 0    [          64          ][          64          ]
 *     group 1    [ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 16 ] */
#define KV_MAX_GROUPS 8
#define KV_MAX_BLOCK_SIZE 128 /* tokens that a block may have, as kernels take it */

#define MAX_DRAFTS 7 /* draft tokens of a sequence in a step */

/* Recurrent layers keep a state of fixed size in place of K and V. A *state slot* has room for the states of all
 * recurrent layers of one sequence. Slots are numbered from 1; slot 0 is the null slot, which stands for the state of a
 * sequence without tokens, all zero, and for none. */
#define STATE_SLOT_NONE 0
#define STATE_CONTINUES (-1) /* in batch.state_sources */

/* The largest step. Everything that is allocated at start-up is sized by it. */
struct batch_limits {
    int32_t max_num_tokens;              /* max_num_batched_tokens */
    int32_t max_num_seqs;                /* sequences that run at once; state indices are 0 .. max_num_seqs - 1 */
    int32_t max_num_drafts;              /* draft tokens of a step, of all sequences; 0: no sequence has any */
    int32_t max_model_len;               /* tokens of one sequence, prompt and output */
    int32_t block_size;                  /* tokens of a block, of the group with the most bytes for each token */
    int32_t num_groups;                  /* KV cache groups, 1 .. KV_MAX_GROUPS */
    int32_t block_shifts[KV_MAX_GROUPS]; /* [num_groups] a block of the group has block_size << shift tokens */
    int32_t num_state_slots;             /* 1 .. num_state_slots can be taken; 0: no layer has a state */
    int32_t windows[KV_MAX_GROUPS]; /* [num_groups] a query reads its own token and those before it, so many in all; 0:
                                       it reads all */
    bool chunked[KV_MAX_GROUPS]; /* [num_groups] of those it reads only the tokens of its own chunk: a sequence is cut
                                    into chunks of windows[] tokens */
};

/* A block to copy, K and V of every layer of its group. */
struct block_pair {
    int32_t source, destination;
};

/* A change of the device's block tables before the step runs: block_tables[group][state_index][index] = block. */
struct block_table_delta {
    int32_t group, state_index, index, block;
};

struct batch {
    int32_t num_tokens;
    int32_t num_seqs;    /* entries: a sequence without drafts is one, a run is as many as it has tokens */
    int32_t num_decodes; /* the first num_decodes entries have one query token, and read no K and V that this step
                            writes but their own, and those of the entries before them in their run */
    int32_t num_drafts;  /* entries whose token is a draft */
    int32_t max_query_len, max_seq_len; /* over the batch */

    int32_t *token_ids;     /* [num_tokens] >= 0: a token; -(i + 1): the token that the last step drew as sample i or,
                               from batch_max_entries on, draft i - batch_max_entries of a drafter on the device
                               (batch_device_draft) */
    int32_t *positions;     /* [num_tokens] row of each token in the model's tables of positions: its position in the
                               sequence, from 0, plus the shift of the sequence's cache namespace (scheduler.h) */
    int32_t *query_start;   /* [num_seqs + 1] prefix sums of query lengths; query_start[0] = 0 */
    int32_t *seq_lens;      /* [num_seqs] context length of each sequence after this step; of a draft, with it */
    int32_t *state_indices; /* [num_seqs] of each sequence's block table and sampling state on the device; distinct but
                               for the entries of a run */
    int64_t *slot_mapping;  /* [num_groups, max_num_tokens] block * block size of the group + offset; -1: do not store.
                               The first num_tokens of each group are used */

    /* [num_seqs] each, used if limits.num_state_slots > 0. An entry's tokens go on from the state in slot
     * state_sources[i], or from that after the entry before it, STATE_CONTINUES: in a run, all entries but the first.
     * The state after its last token goes to slot state_slots[i]; STATE_SLOT_NONE: nobody reads it. The slots that a
     * step writes are distinct, and no other sequence of the step reads one of them. */
    int32_t *state_sources, *state_slots;

    /* [num_tokens] of a head's pass (model_spec.h): the token of the target's last batch whose states this token reads,
     * >= 0; -(i + 1): token i of the head's own last batch. Otherwise unused. */
    int32_t *state_rows;

    int32_t num_deltas;
    struct block_table_delta *deltas; /* [num_deltas] at most max_deltas; an entry of a table is changed once at most,
                                         because the device makes the changes in any order */
    int32_t max_deltas; /* the most that a step can change: every entry of every block table, if all sequences start at
                           once with their prefixes cached. A swap moves no more blocks than that */

    int32_t num_samples;
    int32_t *logits_indices; /* [num_samples] the tokens of the batch whose logits are sampled from; the siblings of
                                a request that forks in this step share one */
    int32_t *sample_state_indices; /* [num_samples] the state index whose sampling state applies */
    int32_t *output_positions;     /* [num_samples] output position being sampled, from 0: the Philox counter */
    int32_t *sampled_drafts; /* [num_samples] the draft whose logits these are, which the sampler takes for the output
                                token before; -1: not a draft's, or a drafter on the device has told the sampler. Unused
                                if num_drafts is 0 */

    /* Tokens of prompts that are given, and whose log-probabilities are wanted (prompt_logprobs). A target has no
     * sample and no place in the sampling state. */
    int32_t num_targets;
    int32_t num_target_tops; /* of each, how many of the most probable tokens are wanted: the most of any target */
    int32_t *target_indices; /* [num_targets] the tokens of the batch whose logits are those of the next token; at most
                                max_num_tokens */
    int32_t *target_ids;     /* [num_targets] the next token */

    int32_t num_swap_out, num_swap_in, num_copies; /* copied before the forward pass, one array after the other */
    struct block_pair *swap_out;                   /* device block -> host block; at most max_deltas */
    struct block_pair *swap_in;                    /* host block -> device block; at most max_deltas */
    struct block_pair *copies; /* device -> device (copy-on-write); at most one for each sequence and group */

    int32_t num_states_out, num_states_in; /* swapped with the blocks, first out and then in */
    struct block_pair *states_out;         /* state slot -> host slot; at most max_num_seqs */
    struct block_pair *states_in;          /* host slot -> state slot; at most max_num_seqs */

    struct batch_limits limits;
};

/* Allocates every array for `limits`. Free with batch_free. */
enum status batch_init(struct batch *batch, const struct batch_limits *limits, struct error *err);
int64_t batch_bytes(const struct batch_limits *limits); /* that batch_init allocates */
void batch_free(struct batch *batch);                   /* safe on a zeroed struct */
void batch_clear(struct batch *batch);                  /* empties it; keeps the memory */

/* Tokens of a block of the group. */
static inline int32_t batch_block_size(const struct batch_limits *limits, int32_t group)
{
    return limits->block_size << limits->block_shifts[group];
}

/* The largest block size of a group, a multiple of every group's. */
static inline int32_t batch_largest_block_size(const struct batch_limits *limits)
{
    int32_t shift = 0;
    for (int32_t g = 0; g < limits->num_groups; g++)
        if (limits->block_shifts[g] > shift) shift = limits->block_shifts[g];
    return limits->block_size << shift;
}

/* The blocks of the group that num_tokens tokens take. */
static inline int32_t batch_num_blocks(const struct batch_limits *limits, int32_t group, int32_t num_tokens)
{
    const int32_t size = batch_block_size(limits, group);
    return num_tokens / size + (num_tokens % size != 0);
}

/* The most entries of a step, and the most samples. */
static inline int32_t batch_max_entries(const struct batch_limits *limits)
{
    return limits->max_num_seqs + limits->max_num_drafts;
}

/* What names, among token_ids, what a drafter on the device drew as sample i of its pass number `pass`. */
static inline int32_t batch_device_draft(const struct batch_limits *limits, int32_t pass, int32_t i)
{
    return -((pass + 1) * batch_max_entries(limits) + i + 1);
}

/* The most rows of a step's matmuls: its tokens, or its samples, which are more where siblings that fork share a token.
 */
static inline int32_t batch_max_rows(const struct batch_limits *limits)
{
    const int32_t entries = batch_max_entries(limits);
    return entries > limits->max_num_tokens ? entries : limits->max_num_tokens;
}

/* At least as many as the longest block table of a sequence has, of any group. */
static inline int32_t batch_max_blocks(const struct batch_limits *limits)
{
    return limits->max_model_len / limits->block_size + (limits->max_model_len % limits->block_size != 0);
}

/* The first block of the group that a query at this position, or at a later one, reads. Blocks before it are given
 * back. */
static inline int32_t batch_first_block(const struct batch_limits *limits, int32_t group, int32_t position)
{
    const int32_t window = limits->windows[group];
    if (window == 0 || position < window) return 0;
    const int32_t token = limits->chunked[group] ? position - position % window : position - window + 1;
    return token / batch_block_size(limits, group);
}

/* The first position of which batch_first_block is larger than `block`, in a group with a window. */
static inline int64_t batch_position_after(const struct batch_limits *limits, int32_t group, int32_t block)
{
    const int64_t window = limits->windows[group], end = ((int64_t)block + 1) * batch_block_size(limits, group);
    return limits->chunked[group] ? (end + window - 1) / window * window : end + window - 1;
}

/* Most blocks that a sequence of num_tokens tokens holds at a time, of one group: with a window, those that the window,
 * or the chunk, and a step's tokens before and after it can touch. */
static inline int32_t batch_group_blocks(const struct batch_limits *limits, int32_t group, int32_t num_tokens)
{
    const int32_t size = batch_block_size(limits, group), all = batch_num_blocks(limits, group, num_tokens);
    const int64_t span = (int64_t)limits->windows[group] - 1 + limits->max_num_tokens;
    const int64_t most = (span + size - 2) / size + 1;
    return limits->windows[group] == 0 || all < most ? all : (int32_t)most;
}

/* The sum of batch_group_blocks over all groups; INT32_MAX if it is larger. */
static inline int32_t batch_sequence_blocks(const struct batch_limits *limits, int32_t num_tokens)
{
    int64_t blocks = 0;
    for (int32_t g = 0; g < limits->num_groups; g++) blocks += batch_group_blocks(limits, g, num_tokens);
    return blocks < INT32_MAX ? (int32_t)blocks : INT32_MAX;
}

/* Blocks of a pool that admission leaves free, so that running sequences can grow: 1 % of them, as in vLLM. */
static inline int32_t batch_watermark(int32_t num_blocks)
{
    return num_blocks / 100;
}

/* The tokens that a step sampled, by sample (in the order of logits_indices). The arrays belong to the model and stay
 * valid until its next collect. */
struct sample_output {
    int32_t num_samples;
    const int32_t *token_ids;  /* [num_samples] -1: none could be sampled, because the logits are damaged */
    const float *logprobs;     /* [num_samples] log-probability of that token before any processing; valid where the
                                  request asked for logprobs */
    const int32_t *ranks;      /* [num_samples] 1 + number of tokens with a higher logprob; same validity */
    int32_t top_stride;        /* most num_logprobs of the step's samples */
    const int32_t *top_ids;    /* [num_samples, top_stride] the most probable tokens, best first; same validity; the
                                  first num_logprobs of each sample are filled */
    const float *top_logprobs; /* [num_samples, top_stride] */
    const int32_t *draft_ids;  /* [num_drafts of the batch] in order, of a drafter on the device; else NULL */
    /* What the step found for the batch's targets, in their order: num_samples is num_targets, token_ids are
     * target_ids, or -1 where the logits are damaged, and all log-probabilities are valid. NULL: the batch had none. */
    const struct sample_output *targets;
};

#define SAMPLING_MAX_TOP 64      /* most probable tokens of a sample that the device gives: those that a beam needs */
#define SAMPLING_MAX_LOGPROBS 20 /* those that a request may ask for: vLLM's max_logprobs */

#endif
