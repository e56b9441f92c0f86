/* Drafters guess the next tokens of sequences, so that one step checks several of them (scheduler.h). Guesses
 * decide how fast answers come, never which.
 *
 * A drafter is asked for a batch of sequences at once, by the thread that runs the engine's loop, and may keep what it
 * likes of the answers that have ended. */
#ifndef QUIRE_RUNTIME_ENGINE_DRAFT_H
#define QUIRE_RUNTIME_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/batch.h"
#include "base/status.h"
#include "scheduler/scheduler.h"

enum draft_method { DRAFT_NONE, DRAFT_NGRAM, DRAFT_SUFFIX, DRAFT_GRAMMAR, DRAFT_MODEL, DRAFT_MTP, NUM_DRAFT_METHODS };
/* "none", "ngram", "suffix", "grammar", "draft_model", "mtp" */
const char *draft_method_name(enum draft_method method);

#define SPECULATIVE_MODEL_SIZE 4096 /* PATH_MAX */

/* How to draft: the fields of vLLM's speculative_config, with its defaults.
 *
 * ngram (Saxena, 2023): the longest of the sequence's last n tokens, n from prompt_lookup_max down to
 * prompt_lookup_min, that occur earlier in it. What followed their first occurrence there is the draft. (vLLM takes the
 * first, too. What follows the last is often cut short by the end of the sequence.)
 *
 * grammar: the only text that may come next in an answer with a grammar (draft_grammar.h). ngram and suffix guess that
 * first, too. The method is quire's own.
 *
 * draft_model: a second model, or an EAGLE-3 head (draft_model.h). mtp: the head for multi-token prediction in the
 * target's own files (struct head_spec).
 *
 * suffix (SuffixDecoding: Oliaro et al., 2024): looks for the longest suffix of the sequence, of at most
 * suffix_decoding_max_tree_depth tokens, that occurs earlier in it, and drafts what came next most often. The places
 * where it occurs vote, the newest 64: each for the token that follows there, as long as all its tokens so far are the
 * drafts. The token with the most votes is the next draft; of several, that of the newest place. Its share of the
 * votes, times those of the drafts before it, is its estimated probability.
 *
 *     tokens    ... A B C D ... B C D ... A B C E ... A B C      suffix A B C: D has one vote of two, E the other.
 *                                                                E is newer
 *
 * The same is done with the earlier answers. Of both, the drafts whose probabilities have the larger sum are taken, if
 * the sums are equal those from the sequence.
 *
 * The sequence is searched whole. Earlier answers are searched for the suffixes of 8, 4 and 2 tokens: the longest of
 * these that occurs leads to its newest 64 places (now and then fewer), and no other place is looked at. An earlier
 * answer is its output, behind up to suffix_decoding_max_tree_depth tokens of its prompt. All have at most 2^21 tokens,
 * one more for each answer counted: 56 MiB, of which what is never used takes no memory. */
struct speculative_config {
    enum draft_method method;
    int32_t num_speculative_tokens; /* most drafts of a sequence in a step: 1 .. MAX_DRAFTS, which is the default. (vLLM
                                       has no default for ngram) */

    char model[SPECULATIVE_MODEL_SIZE]; /* of draft_model: its checkpoint folder, of the same vocabulary
                                           (draft_model.h); else "" */

    int32_t prompt_lookup_min, prompt_lookup_max; /* 5 and 5. In vLLM, one that is given alone is both */

    int32_t suffix_decoding_max_tree_depth;      /* tokens of a suffix that are compared, at most; 24 */
    int32_t suffix_decoding_max_cached_requests; /* earlier answers that are kept, the newest; 0: none; 10000 */
    double suffix_decoding_max_spec_factor;      /* drafts at most: this times the length of the suffix found; 1 */
    double suffix_decoding_min_token_prob;       /* a draft that is less probable ends the drafts; 0.1 */
};
struct speculative_config speculative_config_default(void); /* DRAFT_NONE */

/* STATUS_INVALID if a field that the method reads is out of its range: the sentence names the field. */
enum status speculative_config_check(const struct speculative_config *config, struct error *err);

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
    /* A drafter on the device has these three; otherwise they are NULL. Its proposals say how many drafts there will
     * be. Once a step is scheduled, with drafts or without, `draft` submits what makes them, and puts what names them
     * into the batch, which is submitted next. After the batch's model_collect, `collect` gives them as struct
     * sample_output wants them; the array is the drafter's, until its next call. `cancel` instead of it: the newest
     * step was not submitted.
     *
     * A step with drafts is alone in flight. Two without any may be in flight, unless one_step: then the second's batch
     * has tokens that the host does not know. */
    enum status (*draft)(struct drafter *d, struct batch *batch, const struct schedule *schedule, struct error *err);
    enum status (*collect)(struct drafter *d, const int32_t **draft_ids, struct error *err);
    void (*cancel)(struct drafter *d);
    bool only_constrained; /* it drafts for answers with a grammar alone */
    bool one_step;         /* each step must be collected before `draft` is called for the next */
    /* The sequence has ended. NULL: the drafter does not care. */
    void (*finished)(struct drafter *d, const struct sequence *seq);
    void (*destroy)(struct drafter *d);
};

/* The drafter of config->method, which is one of ngram and suffix. max_model_len bounds the tokens of a sequence. All
 * its memory is allocated here. Fails as speculative_config_check, and with STATUS_OUT_OF_MEMORY. */
enum status drafter_create(const struct speculative_config *config, int32_t max_model_len, struct drafter **out,
                           struct error *err);
void drafter_destroy(struct drafter *d); /* NULL is allowed */

#endif
