/* Drafters guess the next tokens of sequences, so that one step checks several of them (scheduler.h). Guesses
 * decide how fast answers come, never which.
 *
 * A drafter is asked for a batch of sequences at once, by the thread that runs the engine's loop, and may keep what it
 * likes of the answers that have ended. */
#ifndef QUIRE_RUNTIME_ENGINE_DRAFT_H
#define QUIRE_RUNTIME_ENGINE_DRAFT_H

#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "scheduler/sequence.h"

enum draft_method { DRAFT_NONE, DRAFT_NGRAM, DRAFT_SUFFIX, NUM_DRAFT_METHODS };
const char *draft_method_name(enum draft_method method); /* "none", "ngram", "suffix" */

/* How to draft: the fields of vLLM's speculative_config, with its defaults. */
struct speculative_config {
    enum draft_method method;
    int32_t num_speculative_tokens; /* most drafts of a sequence in a step: 1 .. MAX_DRAFTS */

    /* ngram (Saxena, 2023): the last n tokens of a sequence are looked for earlier in it, n from prompt_lookup_max down
     * to prompt_lookup_min. What followed them there is the draft. */
    int32_t prompt_lookup_min, prompt_lookup_max;

    /* suffix (SuffixDecoding: Oliaro et al., 2024): looks for the longest suffix of a sequence in itself and in earlier
     * answers, and follows the tokens that most often came next. */
    int32_t suffix_decoding_max_tree_depth;      /* tokens of a suffix that are compared, at most */
    int32_t suffix_decoding_max_cached_requests; /* earlier answers that are kept, the newest; 0: none */
    double suffix_decoding_max_spec_factor;      /* drafts at most: this times the length of the suffix found */
    double suffix_decoding_min_token_prob;       /* a draft's share of the continuations found, with those before it */
};
struct speculative_config speculative_config_default(void); /* DRAFT_NONE */

/* A sequence, and what a drafter says of it. */
struct draft_query {
    const struct sequence *seq; /* its tokens[num_tokens] are known */
    int32_t most;               /* drafts that are wanted, 1 .. MAX_DRAFTS */
    int32_t num_drafts;         /* out: 0 .. most */
    int32_t drafts[MAX_DRAFTS]; /* [num_drafts] out */
};

struct drafter {
    const char *name; /* for statistics */
    void (*propose)(struct drafter *d, struct draft_query *queries, int32_t count);
    /* The sequence has ended. NULL: the drafter does not care. */
    void (*finished)(struct drafter *d, const struct sequence *seq);
    void (*destroy)(struct drafter *d);
};

/* The drafter of config->method, which is not DRAFT_NONE. max_model_len bounds the tokens of a sequence. */
enum status drafter_create(const struct speculative_config *config, int32_t max_model_len, struct drafter **out,
                           struct error *err);
void drafter_destroy(struct drafter *d); /* NULL is allowed */

#endif
