#include "scheduler/beam_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"

/* A continuation of a beam by one token. */
struct candidate {
    float score; /* of the beam, and the token's log-probability */
    int32_t parent, token;
    bool stops;
};

struct beam_search {
    struct beam_search_params params;
    int32_t *stop_ids; /* params.stop_ids; owned */
    int32_t num_candidates;
    int32_t num_tokens;            /* of every beam's output */
    float *scores;                 /* [width] of the beams, best first */
    struct candidate *candidates;  /* [num_candidates] of a step, best first */
    struct hypothesis *hypotheses; /* [width] best first */
    int32_t num_hypotheses;
};

int32_t beam_search_num_candidates(int32_t width, int32_t num_stop_ids)
{
    return width * (num_stop_ids > 1 ? 1 + num_stop_ids : 2);
}

int32_t beam_search_max_width(int32_t num_tokens, int32_t num_stop_ids)
{
    return num_tokens / beam_search_num_candidates(1, num_stop_ids);
}

static bool allocate(struct beam_search *b)
{
    const struct beam_search_params *p = &b->params;
    const size_t width = (size_t)p->width;
    b->stop_ids = calloc((size_t)p->num_stop_ids + 1, sizeof *b->stop_ids);
    b->scores = calloc(width, sizeof *b->scores);
    b->candidates = calloc((size_t)b->num_candidates, sizeof *b->candidates);
    b->hypotheses = calloc(width, sizeof *b->hypotheses);
    bool ok = b->stop_ids && b->scores && b->candidates && b->hypotheses;
    for (size_t i = 0; i < width && ok; i++)
        ok = (b->hypotheses[i].tokens = malloc((size_t)p->max_tokens * sizeof(int32_t)));
    return ok;
}

enum status beam_search_create(const struct beam_search_params *params, struct beam_search **out, struct error *err)
{
    struct beam_search *b = *out = calloc(1, sizeof *b);
    if (b) {
        b->params = *params;
        b->num_candidates = beam_search_num_candidates(params->width, params->num_stop_ids);
    }
    if (!b || !allocate(b)) {
        beam_search_destroy(b);
        *out = NULL;
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a search of %d beam%s of %d token%s",
                         params->width, plural(params->width), params->max_tokens, plural(params->max_tokens));
    }
    memcpy(b->stop_ids, params->stop_ids, (size_t)params->num_stop_ids * sizeof *b->stop_ids);
    b->params.stop_ids = b->stop_ids;
    return STATUS_OK;
}

void beam_search_destroy(struct beam_search *b)
{
    if (!b) return;
    for (int32_t i = 0; b->hypotheses && i < b->params.width; i++) free(b->hypotheses[i].tokens);
    free(b->stop_ids);
    free(b->scores);
    free(b->candidates);
    free(b->hypotheses);
    free(b);
}

static bool is_stop_id(const struct beam_search *b, int32_t token)
{
    for (int32_t i = 0; i < b->params.num_stop_ids; i++)
        if (b->stop_ids[i] == token) return true;
    return false;
}

/* Inserts a candidate behind those that are as good, and drops the last one if there are too many. */
static void add_candidate(struct beam_search *b, int32_t *count, const struct candidate *c)
{
    int32_t at = *count;
    if (at == b->num_candidates && !(c->score > b->candidates[at - 1].score)) return;
    if (at == b->num_candidates) at--;
    for (; at > 0 && c->score > b->candidates[at - 1].score; at--) b->candidates[at] = b->candidates[at - 1];
    b->candidates[at] = *c;
    if (*count < b->num_candidates) ++*count;
}

/* Fills b->candidates. Returns how many there are: fewer than num_candidates in a small vocabulary. */
static int32_t choose_candidates(struct beam_search *b, const struct beam_samples *samples)
{
    const bool may_stop = b->num_tokens >= b->params.min_tokens;
    const bool is_last = b->num_tokens + 1 == b->params.max_tokens;
    const int32_t num_beams = b->num_tokens == 0 ? 1 : b->params.width;
    int32_t count = 0;
    for (int32_t i = 0; i < num_beams; i++)
        for (int32_t j = 0; j < b->num_candidates; j++) {
            const int32_t token = samples[i].token_ids[j];
            const bool stop_id = token >= 0 && is_stop_id(b, token);
            if (token < 0 || (stop_id && !may_stop)) continue;
            const struct candidate c = {b->scores[i] + samples[i].logprobs[j], i, token, stop_id || is_last};
            add_candidate(b, &count, &c);
        }
    return count;
}

static void finish(struct beam_search *b, const struct candidate *c, const int32_t *output)
{
    const int32_t length = b->num_tokens + 1, width = b->params.width;
    const float score = c->score / (float)pow(length, b->params.length_penalty);
    int32_t at = b->num_hypotheses;
    if (at == width && !(score > b->hypotheses[at - 1].score)) return;
    if (at == width)
        at--;
    else
        b->num_hypotheses++;
    struct hypothesis worst = b->hypotheses[at];
    for (; at > 0 && score > b->hypotheses[at - 1].score; at--) b->hypotheses[at] = b->hypotheses[at - 1];
    worst.score = score;
    worst.num_tokens = length;
    memcpy(worst.tokens, output, (size_t)b->num_tokens * sizeof *output);
    worst.tokens[b->num_tokens] = c->token;
    b->hypotheses[at] = worst;
}

/* Whether the best beam may still beat the worst hypothesis. A positive length penalty favours long answers, so with
 * EARLY_STOPPING_NEVER the longest possible one counts. */
static bool may_improve(const struct beam_search *b)
{
    const struct beam_search_params *p = &b->params;
    const bool longest = p->early_stopping == EARLY_STOPPING_NEVER && p->length_penalty > 0;
    const float best = b->scores[0] / (float)pow(longest ? p->max_tokens : b->num_tokens, p->length_penalty);
    return b->num_hypotheses < p->width || best > b->hypotheses[p->width - 1].score;
}

bool beam_search_step(struct beam_search *b, const struct beam_samples *samples, struct beam *beams)
{
    const int32_t width = b->params.width, count = choose_candidates(b, samples);
    int32_t num_beams = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct candidate *c = &b->candidates[i];
        if (c->stops && i < width) finish(b, c, samples[c->parent].outputs);
        if (c->stops || num_beams == width) continue;
        beams[num_beams] = (struct beam){c->parent, c->token};
        b->scores[num_beams++] = c->score;
    }
    b->num_tokens++;
    if (num_beams < width) return false;
    const bool full = b->num_hypotheses == width && b->params.early_stopping == EARLY_STOPPING_TRUE;
    return !full && may_improve(b);
}

const struct hypothesis *beam_search_finished(const struct beam_search *b, int32_t *count)
{
    *count = b->num_hypotheses;
    return b->hypotheses;
}
