/* A model that stores tokens instead of K and V, for testing code that fills a struct batch.
 *
 * Each step it does what a device would: moves blocks, applies the table changes, writes every token at its slot, then
 * gathers each sequence's context through its block tables: of each KV cache group the tokens that its queries read,
 * and no others. A slot holds a token, its position and the group that wrote it, so a wrong block, a stale entry or an
 * unwritten slot shows at once. A long sequence's position is another than a short
 * one's, so K and V of the wrong side of the rope switch show as well. The token that it samples is a hash of
 * the tokens that its widest group reads, the seed and the index of the sequence, so a test can compute it from plain
 * arrays (fake_model_token). */
#ifndef QUIRE_TESTS_SUPPORT_FAKE_MODEL_H
#define QUIRE_TESTS_SUPPORT_FAKE_MODEL_H

#include "base/batch.h"
#include "scheduler/sequence.h"

#define FAKE_MODEL_STEPS 2 /* steps in flight at most */

struct fake_state {
    uint64_t seed;
    int32_t index, prompt_len;
    bool started;
};

struct fake_model {
    struct batch_limits limits;
    int32_t num_blocks, num_host_blocks, vocab_size;
    int32_t rope_switch;             /* of struct scheduler_config; 0 after init */
    int32_t *token_at, *position_at; /* [blocks * block_size] the cache, host blocks last; -1: never written */
    int32_t *group_at;               /* [blocks * block_size] */
    int64_t *written_in;             /* [blocks * block_size] the step that wrote a slot last */
    int32_t *tables;                 /* [num_groups, max_num_seqs, max_blocks] */
    struct fake_state *states;       /* [max_num_seqs] by state index */
    int64_t *named_in;               /* [max_num_seqs] the last step that named a state index */
    int32_t *resolved;               /* [max_num_tokens] token ids of the step */
    int32_t *context;                /* [max_model_len] */
    int32_t *sampled[FAKE_MODEL_STEPS];
    int32_t num_sampled[FAKE_MODEL_STEPS];
    int64_t num_submitted, num_collected;
};

enum status fake_model_init(struct fake_model *m, const struct batch_limits *limits, int32_t num_blocks,
                            int32_t num_host_blocks, int32_t vocab_size, struct error *err);
void fake_model_free(struct fake_model *m);

/* Stores what sampling needs to know. Call it once the sequence has its state index. */
void fake_model_start(struct fake_model *m, const struct sequence *seq);
/* Checks the batch and computes it; *err says what is wrong with the batch. */
enum status fake_model_submit(struct fake_model *m, const struct batch *batch, struct error *err);
/* The samples of the oldest step not collected. */
struct sample_output fake_model_collect(struct fake_model *m);

/* The tokens before and with the last one that the widest group reads; 0: all. */
int32_t fake_model_reach(const struct batch_limits *limits);
/* The token that follows tokens[length], of which the model reads the last `reach` (0: all): what it samples. */
int32_t fake_model_token(const int32_t *tokens, int32_t length, int32_t reach, uint64_t seed, int32_t index,
                         int32_t vocab_size);

#endif
