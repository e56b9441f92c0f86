#include "runtime/engine/late_answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "runtime/engine/answer_text.h"
#include "scheduler/beam_search.h"

enum { MAX_STOP_IDS = SAMPLING_PARAMS_MAX_STOP_IDS + sizeof((struct request *)0)->eos_token_ids / sizeof(int32_t) };

struct late_answers {
    struct request *request;
    int32_t num_top; /* most probable tokens that are kept of a sample */

    /* A beam search has these; else they are NULL. */
    struct beam_search *search;
    struct beam_samples *samples; /* [beam_width] of the step; token_ids is NULL where the beam has none yet */
    struct beam *beams;           /* [beam_width] */
    int32_t num_arrived;          /* beams that have samples */

    /* best_of has these; else they are NULL. */
    double *sums;              /* [best_of] log-probabilities of the tokens so far */
    int32_t *lengths;          /* [best_of] tokens so far; of an answer that ended at a stop string, up to it */
    int32_t *order;            /* [best_of] sequences, best first */
    struct answer_text *texts; /* [best_of] where stop strings are found; NULL: there are none */
    int32_t max_tokens;        /* of an answer: row length of the next two, which are NULL without logprobs */
    float *logprobs;           /* [best_of, max_tokens] */
    int32_t *ranks;            /* [best_of, max_tokens] */

    /* The most probable tokens: a beam search keeps those of the step [beam_width, num_top], best_of with logprobs
     * those of all tokens [best_of, max_tokens, num_top]. */
    int32_t *top_ids;
    float *top_logprobs;
};

/* ---- the request's life ---- */

static void add_stop_id(int32_t *ids, int32_t *count, int32_t id)
{
    for (int32_t i = 0; i < *count; i++)
        if (ids[i] == id) return;
    ids[(*count)++] = id;
}

/* The distinct ids that end an answer, ids[MAX_STOP_IDS]. Returns how many. */
static int32_t stop_ids_of(const struct request *request, int32_t *ids)
{
    const struct sampling_params *p = &request->params;
    int32_t count = 0;
    for (int32_t i = 0; i < request->num_eos && !p->ignore_eos; i++)
        add_stop_id(ids, &count, request->eos_token_ids[i]);
    for (int32_t i = 0; i < p->num_stop_token_ids; i++) add_stop_id(ids, &count, p->stop_token_ids[i]);
    return count;
}

static bool allocate_top(struct late_answers *l, size_t rows)
{
    l->top_ids = malloc((rows * (size_t)l->num_top + 1) * sizeof *l->top_ids);
    l->top_logprobs = malloc((rows * (size_t)l->num_top + 1) * sizeof *l->top_logprobs);
    return l->top_ids && l->top_logprobs;
}

static enum status create_search(struct late_answers *l, int32_t num_ids, struct error *err)
{
    const struct sampling_params *p = &l->request->params;
    int32_t stop_ids[MAX_STOP_IDS];
    const int32_t num_stop_ids = stop_ids_of(l->request, stop_ids);
    const int32_t widest = beam_search_max_width(num_ids < SAMPLING_MAX_TOP ? num_ids : SAMPLING_MAX_TOP, num_stop_ids);
    if (p->beam_width > widest && widest < 2)
        return error_set(err, STATUS_INVALID, "beam_width is %d; with %d stop ids no beam search is possible",
                         p->beam_width, num_stop_ids);
    if (p->beam_width > widest)
        return error_set(err, STATUS_INVALID, "beam_width is %d; it must be at most %d, with %d ids and %d stop ids",
                         p->beam_width, widest, num_ids, num_stop_ids);
    const struct beam_search_params params = {.width = p->beam_width,
                                              .length_penalty = p->length_penalty,
                                              .early_stopping = p->early_stopping,
                                              .min_tokens = p->min_tokens,
                                              .max_tokens = l->max_tokens,
                                              .num_stop_ids = num_stop_ids,
                                              .stop_ids = stop_ids};
    const size_t width = (size_t)p->beam_width;
    l->request->beams = true;
    l->num_top = beam_search_num_candidates(p->beam_width, num_stop_ids);
    l->samples = calloc(width, sizeof *l->samples);
    l->beams = calloc(width, sizeof *l->beams);
    if (!l->samples || !l->beams || !allocate_top(l, width))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a search of %d beams", p->beam_width);
    return beam_search_create(&params, &l->search, err);
}

static bool create_texts(struct late_answers *l, const struct tokenizer *tokenizer, char *text_buffer, bool at_start)
{
    const struct request *request = l->request;
    if (request->params.num_stop == 0) return true;
    l->texts = calloc((size_t)request->num_sequences, sizeof *l->texts);
    for (int32_t i = 0; l->texts && i < request->num_sequences; i++)
        if (!answer_text_init(&l->texts[i], tokenizer, &request->params, text_buffer, at_start)) return false;
    return l->texts != NULL;
}

static bool create_logprobs(struct late_answers *l)
{
    const size_t tokens = (size_t)l->request->num_sequences * (size_t)l->max_tokens;
    if (l->request->params.logprobs < 0) return true;
    l->num_top = l->request->params.logprobs;
    l->logprobs = malloc(tokens * sizeof *l->logprobs);
    l->ranks = malloc(tokens * sizeof *l->ranks);
    return l->logprobs && l->ranks && allocate_top(l, tokens);
}

static enum status create_sums(struct late_answers *l, const struct tokenizer *tokenizer, char *text_buffer,
                               bool at_start, struct error *err)
{
    const size_t count = (size_t)l->request->num_sequences;
    l->sums = calloc(count, sizeof *l->sums);
    l->lengths = calloc(count, sizeof *l->lengths);
    l->order = calloc(count, sizeof *l->order);
    if (l->sums && l->lengths && l->order && create_texts(l, tokenizer, text_buffer, at_start) && create_logprobs(l))
        return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the best of %d answer%s of %d token%s",
                     l->request->num_sequences, plural(l->request->num_sequences), l->max_tokens,
                     plural(l->max_tokens));
}

enum status late_answers_create(struct request *request, int32_t num_ids, const struct tokenizer *tokenizer,
                                char *text_buffer, bool at_start, struct late_answers **out, struct error *err)
{
    *out = NULL;
    if (!sampling_params_ranks(&request->params)) return STATUS_OK;
    struct late_answers *l = calloc(1, sizeof *l);
    if (!l) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    l->request = request;
    l->max_tokens = request->sequences[0].token_capacity - request->sequences[0].prompt_len;
    const enum status status = request->params.beam_width > 1 ? create_search(l, num_ids, err)
                                                              : create_sums(l, tokenizer, text_buffer, at_start, err);
    if (status == STATUS_OK)
        *out = l;
    else
        late_answers_free(l);
    return status;
}

void late_answers_free(struct late_answers *l)
{
    if (!l) return;
    for (int32_t i = 0; l->texts && i < l->request->num_sequences; i++) answer_text_free(&l->texts[i]);
    beam_search_destroy(l->search);
    free(l->samples);
    free(l->beams);
    free(l->sums);
    free(l->lengths);
    free(l->order);
    free(l->texts);
    free(l->logprobs);
    free(l->ranks);
    free(l->top_ids);
    free(l->top_logprobs);
    free(l);
}

int32_t late_answers_num_logprobs(const struct late_answers *l)
{
    return l->num_top;
}

/* ---- samples ---- */

static void end_all(const struct late_answers *l, struct scheduler *s, enum finish_reason reason)
{
    for (int32_t i = 0; i < l->request->num_sequences; i++) scheduler_finish(s, &l->request->sequences[i], reason);
}

/* Keeps the most probable tokens of a sample in row `row` of the arrays. */
static void keep_top(struct late_answers *l, size_t row, const struct sample_output *samples, int32_t sample)
{
    const size_t from = (size_t)sample * (size_t)samples->top_stride, to = row * (size_t)l->num_top;
    const size_t count = (size_t)l->num_top;
    if (count == 0) return;
    memcpy(l->top_ids + to, samples->top_ids + from, count * sizeof *l->top_ids);
    memcpy(l->top_logprobs + to, samples->top_logprobs + from, count * sizeof *l->top_logprobs);
}

/* All beams have samples: the search goes one step on. */
static void search_step(struct late_answers *l, struct scheduler *s)
{
    for (int32_t i = 0; i < l->request->num_sequences; i++)
        l->samples[i].outputs = l->request->sequences[i].tokens + l->request->sequences[i].prompt_len;
    const bool goes_on = beam_search_step(l->search, l->samples, l->beams);
    l->num_arrived = 0;
    memset(l->samples, 0, (size_t)l->request->num_sequences * sizeof *l->samples);
    if (goes_on)
        scheduler_set_beams(s, l->request, l->beams);
    else
        end_all(l, s, FINISH_STOP);
}

static void take_beam(struct late_answers *l, struct scheduler *s, const struct token_event *event,
                      const struct sample_output *samples)
{
    const int32_t index = event->seq->index;
    const size_t at = (size_t)index * (size_t)l->num_top;
    keep_top(l, (size_t)index, samples, event->sample);
    l->num_arrived += !l->samples[index].token_ids;
    l->samples[index].token_ids = l->top_ids + at;
    l->samples[index].logprobs = l->top_logprobs + at;
    if (l->num_arrived == l->request->num_sequences) search_step(l, s);
}

static void keep_logprobs(struct late_answers *l, const struct token_event *event, const struct sample_output *samples)
{
    const size_t at = (size_t)event->seq->index * (size_t)l->max_tokens + (size_t)(event->num_outputs - 1);
    l->logprobs[at] = samples->logprobs[event->sample];
    l->ranks[at] = samples->ranks[event->sample];
    keep_top(l, at, samples, event->sample);
}

static void find_stop(struct late_answers *l, struct scheduler *s, const struct token_event *event)
{
    struct sequence *seq = event->seq;
    struct answer_text *text = &l->texts[seq->index];
    const bool may_stop = event->num_outputs >= l->request->params.min_tokens;
    size_t length;
    answer_text_add(text, event->token, may_stop, event->finish_reason != FINISH_NONE, &length);
    if (text->stop >= 0) scheduler_finish(s, seq, FINISH_STOP);
}

/* best_of. Tokens that follow a stop string in its run are dropped. */
static void take_token(struct late_answers *l, struct scheduler *s, const struct token_event *event,
                       const struct sample_output *samples)
{
    const int32_t index = event->seq->index;
    if (l->texts && l->texts[index].stop >= 0) return;
    l->lengths[index] = event->num_outputs;
    l->sums[index] += (double)samples->logprobs[event->sample];
    if (l->logprobs) keep_logprobs(l, event, samples);
    if (l->texts) find_stop(l, s, event);
}

void late_answers_take(struct late_answers *l, struct scheduler *s, const struct token_event *event,
                       const struct sample_output *samples)
{
    if (event->token < 0) {
        end_all(l, s, FINISH_ERROR);
    } else if (l->search) {
        take_beam(l, s, event, samples);
    } else {
        take_token(l, s, event, samples);
    }
}

/* ---- the end ---- */

enum finish_reason late_answers_rank(struct late_answers *l)
{
    const int32_t count = l->request->num_sequences;
    for (int32_t i = 0; i < count; i++) {
        const enum finish_reason reason = l->request->sequences[i].finish_reason;
        if (reason == FINISH_ABORT || reason == FINISH_ERROR) return reason;
    }
    for (int32_t i = 0; !l->search && i < count; i++) {
        int32_t at = i;
        for (; at > 0 && l->sums[i] > l->sums[l->order[at - 1]]; at--) l->order[at] = l->order[at - 1];
        l->order[at] = i;
    }
    return FINISH_NONE;
}

static struct late_answer best_hypothesis(const struct late_answers *l, int32_t place)
{
    int32_t count, stop_ids[MAX_STOP_IDS];
    const struct hypothesis *h = &beam_search_finished(l->search, &count)[place];
    const int32_t last = h->tokens[h->num_tokens - 1], num_stop_ids = stop_ids_of(l->request, stop_ids);
    struct late_answer a = {.tokens = h->tokens,
                            .num_tokens = h->num_tokens,
                            .finish_reason = FINISH_LENGTH,
                            .stop_token = -1,
                            .score = (double)h->score};
    for (int32_t i = 0; i < num_stop_ids; i++) {
        if (stop_ids[i] != last) continue;
        a.finish_reason = FINISH_STOP;
        a.stop_token = last;
    }
    return a;
}

static struct late_answer best_sample(const struct late_answers *l, int32_t place)
{
    const struct sequence *seq = &l->request->sequences[l->order[place]];
    const size_t at = (size_t)seq->index * (size_t)l->max_tokens;
    struct late_answer a = {.tokens = seq->tokens + seq->prompt_len,
                            .num_tokens = l->lengths[seq->index],
                            .finish_reason = seq->finish_reason,
                            .stop_token = seq->stop_token,
                            .score = l->sums[seq->index]};
    if (!l->logprobs) return a;
    a.logprobs = l->logprobs + at;
    a.ranks = l->ranks + at;
    a.top_ids = l->top_ids + at * (size_t)l->num_top;
    a.top_logprobs = l->top_logprobs + at * (size_t)l->num_top;
    return a;
}

struct late_answer late_answers_get(const struct late_answers *l, int32_t place)
{
    return l->search ? best_hypothesis(l, place) : best_sample(l, place);
}
