/* Answers that come when all sequences of a request have ended, best first: those of a beam search (beam_width), and
 * the n best of best_of samples. It takes the samples of every step: for a beam search it says how the beams go on, for
 * best_of it adds up log-probabilities and ends answers at stop strings. Everything is allocated with the request. */
#ifndef QUIRE_RUNTIME_LATE_ANSWERS_H
#define QUIRE_RUNTIME_LATE_ANSWERS_H

#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

struct late_answers;

/* The request has its end-of-sequence ids. num_ids: ids that can be sampled. `tokenizer` may be NULL; text_buffer and
 * at_start are those of the answers (answer_text_init). *out is NULL, and nothing fails, if the answers come as they
 * are sampled. Refuses, with STATUS_INVALID, a beam search that is too wide for its stop ids. */
enum status late_answers_create(struct request *request, int32_t num_ids, const struct tokenizer *tokenizer,
                                char *text_buffer, bool at_start, struct late_answers **out, struct error *err);
void late_answers_free(struct late_answers *l); /* NULL is allowed */

/* What sampling_state.num_logprobs must be. */
int32_t late_answers_num_logprobs(const struct late_answers *l);

/* Takes one sequence's sample, and tells the scheduler what follows from it. A sample without a token ends the whole
 * request with FINISH_ERROR. */
void late_answers_take(struct late_answers *l, struct scheduler *s, const struct token_event *event,
                       const struct sample_output *samples);

/* All sequences have ended: puts the answers in order. If one was aborted or failed there are no answers: returns why;
 * else FINISH_NONE. */
enum finish_reason late_answers_rank(struct late_answers *l);

/* One answer. The pointers live as long as the request. */
struct late_answer {
    const int32_t *tokens; /* [num_tokens] */
    int32_t num_tokens;
    enum finish_reason finish_reason;
    int32_t stop_token; /* or -1 */
    double score; /* of a beam search: as beam_search.h says; of best_of: the sum of the tokens' log-probabilities */
    /* Log-probabilities, ranks and the most probable tokens, where the request asked for logprobs; else NULL. */
    const float *logprobs;     /* [num_tokens] */
    const int32_t *ranks;      /* [num_tokens] */
    const int32_t *top_ids;    /* [num_tokens, params.logprobs] */
    const float *top_logprobs; /* [num_tokens, params.logprobs] */
};
/* The answer at this place, 0 .. n - 1, after late_answers_rank. */
struct late_answer late_answers_get(const struct late_answers *l, int32_t place);

#endif
