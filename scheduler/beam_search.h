/* Beam search over one prompt: keeps the `width` most probable unfinished answers (beams), and the best finished ones.
 * Host logic alone: from the log-probabilities of a step it says which beams go on, and with which tokens; the
 * scheduler forks and releases their block tables (scheduler_set_beams).
 *
 * Scores, order and end are those of transformers 5 (generation/utils.py, _beam_search, do_sample = False), in float32
 * as there:
 *
 *     score of a beam            sum of the log-probabilities of its tokens
 *     score of a finished one    that sum / length ^ length_penalty; the length counts the stop token
 *
 * A step takes the best (1 + number of stop ids) * width continuations of all beams, at least 2 * width. Those among
 * the first `width` that stop are finished, and replace worse finished ones; the best `width` that do not stop go on.
 */
#ifndef QUIRE_SCHEDULER_BEAM_SEARCH_H
#define QUIRE_SCHEDULER_BEAM_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "scheduler/scheduler.h"

struct beam_search_params {
    int32_t width;
    double length_penalty;
    enum early_stopping early_stopping;
    int32_t min_tokens, max_tokens; /* of an answer; max_tokens is at least 1. No stop id before min_tokens */
    int32_t num_stop_ids;
    const int32_t *stop_ids; /* [num_stop_ids] copied */
};

/* A finished answer. */
struct hypothesis {
    float score;
    int32_t num_tokens;
    int32_t *tokens; /* [num_tokens] with the stop token, if one ended it */
};

struct beam_search;

/* The continuations that a step considers, and so the most that it needs of one beam. */
int32_t beam_search_num_candidates(int32_t width, int32_t num_stop_ids);
/* The widest search that needs no more than num_tokens of one beam. */
int32_t beam_search_max_width(int32_t num_tokens, int32_t num_stop_ids);

enum status beam_search_create(const struct beam_search_params *params, struct beam_search **out, struct error *err);
void beam_search_destroy(struct beam_search *b); /* NULL is allowed */

/* The samples of one step: of each beam, its output so far and its most probable next tokens. At the first step all
 * beams are the prompt, and beam 0 alone counts. */
struct beam_samples {
    const int32_t *outputs;   /* [number of steps before this one] */
    const int32_t *token_ids; /* [num_candidates] best first */
    const float *logprobs;    /* [num_candidates] */
};

/* Takes the samples of all beams, samples[width]. Returns true if the search goes on: then beams[width] says how. */
bool beam_search_step(struct beam_search *b, const struct beam_samples *samples, struct beam *beams);

/* The finished answers, best first, [*count], at most `width`; owned by b, valid until its next call. */
const struct hypothesis *beam_search_finished(const struct beam_search *b, int32_t *count);

#endif
