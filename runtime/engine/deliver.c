/* From the tokens of a step to pieces of answers. */
#include "runtime/engine/engine_state.h"

static void finish_answer(const struct engine *e, struct job *job, struct answer *answer, struct answer_piece *piece)
{
    trace_answer_end(e->trace, &job->trace, piece->index, piece->finish_reason, piece->output_tokens);
    answer->done = true;
    job->num_done++;
    piece->request_finished = job->num_done == job->num_answers;
}

static struct answer_piece new_piece(const struct job *job, int32_t index, int32_t output_tokens, int32_t stop_token)
{
    return (struct answer_piece){
        .request = job->entry.id,
        .index = index,
        .text = "",
        .stop_token = stop_token,
        .prompt_tokens = job->request->sequences[0].prompt_len,
        .cached_tokens = job->request->sequences[0].num_cached,
        .output_tokens = output_tokens,
    };
}

static void set_logprobs(const struct job *job, const struct sample_output *samples, int32_t sample,
                         struct answer_piece *piece)
{
    const int32_t wanted = job->request->params.logprobs;
    if (wanted < 0) return;
    piece->logprob = &samples->logprobs[sample];
    piece->rank = &samples->ranks[sample];
    piece->top_ids = &samples->top_ids[(int64_t)sample * samples->top_stride];
    piece->top_logprobs = &samples->top_logprobs[(int64_t)sample * samples->top_stride];
    piece->num_top = wanted;
}

/* The prompt's come once, with the request's first token. */
static void set_prompt_logprobs(const struct job *job, struct answer_piece *piece)
{
    if (!job->request->prompt_logprobs || piece->index != 0 || piece->output_tokens != 1) return;
    piece->prompt_logprobs = job->request->prompt_logprobs;
    piece->prompt_ids = job->request->sequences[0].tokens;
}

/* Whether a sample had no token because min_tokens forbids the only ones that its grammar allows: those that end it. */
static bool is_forbidden_end(const struct token_event *event)
{
    const struct constrained *c = job_of(event->seq)->constrained;
    return c && event->seq->request->params.min_tokens > event->num_outputs &&
           matcher_may_end(c->answers[event->seq->index].matcher);
}

/* A sample had no token: a logit was NaN, or the largest was infinite. */
static void explain_damage(struct engine *e, const struct token_event *event)
{
    struct error *err = request_error(event->seq->request);
    if (is_forbidden_end(event)) {
        error_set(err, STATUS_INVALID,
                  "min_tokens is %d, but the grammar lets the answer end only, after %d; lower min_tokens",
                  event->seq->request->params.min_tokens, event->num_outputs);
        return;
    }
    const bool narrow = e->loaded->profile.dtype == DTYPE_FLOAT16;
    error_set(err, STATUS_INVALID,
              "the model computed NaN or infinity where probabilities were expected: the weights in %s are damaged%s",
              e->options.model, narrow ? ", or too large for float16" : "");
    if (narrow) error_advise(err, ADVICE_SET, "dtype", "bfloat16");
    if (narrow) error_advise(err, ADVICE_SET, "dtype", "float32");
    if (!e->damage_said) log_warn(e->options.log, err);
    e->damage_said = true;
}

/* Delivers a piece of one token: sets its text, and whether it ends the answer, at a stop string or for `reason`. */
static void deliver_token(struct engine *e, struct job *job, struct answer_piece *piece, enum finish_reason reason)
{
    struct answer *answer = &job->answers[piece->index];
    piece->finish_reason = reason;
    set_prompt_logprobs(job, piece);
    if (e->loaded->tokenizer) {
        const bool may_stop = piece->output_tokens >= job->request->params.min_tokens;
        piece->text =
            answer_text_add(&answer->text, piece->token_ids[0], may_stop, reason != FINISH_NONE, &piece->text_length);
        if (answer->text.stop >= 0) {
            piece->stop_reason = job->request->params.stop[answer->text.stop];
            piece->stop_token = -1;
            piece->finish_reason = FINISH_STOP;
        }
    }
    if (piece->finish_reason != FINISH_NONE) finish_answer(e, job, answer, piece);
    job->deliver(job->user, piece);
}

static void deliver_sample(struct engine *e, struct job *job, const struct token_event *event,
                           const struct sample_output *samples)
{
    struct sequence *seq = event->seq;
    struct answer *answer = &job->answers[seq->index];
    if (answer->done) return; /* by a stop string before this token of the run */
    answer->num_tokens = event->num_outputs;
    struct answer_piece piece =
        new_piece(job, seq->index, event->num_outputs, event->finish_reason == FINISH_NONE ? -1 : seq->stop_token);
    piece.token_ids = &event->token;
    piece.num_tokens = 1;
    set_logprobs(job, samples, event->sample, &piece);
    deliver_token(e, job, &piece, event->finish_reason);
    if (!piece.stop_reason) return;
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_finish(e->scheduler, seq, FINISH_STOP);
    pthread_mutex_unlock(&e->schedule_lock);
}

void engine_deliver(struct engine *e, const struct token_event *event, const struct sample_output *samples)
{
    struct job *job = event->seq->request->user;
    if (event->token < 0)
        explain_damage(e, event);
    else
        trace_request_token(e->trace, &job->trace);
    if (job->late) {
        pthread_mutex_lock(&e->schedule_lock);
        late_answers_take(job->late, e->scheduler, event, samples);
        pthread_mutex_unlock(&e->schedule_lock);
    } else if (event->token >= 0) { /* else finish_job delivers the last piece */
        deliver_sample(e, job, event, samples);
    }
}

static void deliver_late(struct engine *e, struct job *job, int32_t index)
{
    const struct late_answer a = late_answers_get(job->late, index);
    const int32_t num_top = job->request->params.logprobs;
    for (int32_t i = 0; i < a.num_tokens; i++) {
        const bool last = i == a.num_tokens - 1;
        struct answer_piece piece = new_piece(job, index, i + 1, last ? a.stop_token : -1);
        piece.token_ids = &a.tokens[i];
        piece.num_tokens = 1;
        if (last) piece.score = &a.score;
        if (a.logprobs) {
            piece.logprob = &a.logprobs[i];
            piece.rank = &a.ranks[i];
            piece.top_ids = &a.top_ids[(int64_t)i * num_top];
            piece.top_logprobs = &a.top_logprobs[(int64_t)i * num_top];
            piece.num_top = num_top;
        }
        deliver_token(e, job, &piece, last ? a.finish_reason : FINISH_NONE);
    }
}

/* The last piece of an answer that ended without a token. */
static void deliver_end(struct engine *e, struct job *job, int32_t index, enum finish_reason reason)
{
    static const struct error no_memory = {"the request failed, and there was no host memory left to say why"};
    struct answer *answer = &job->answers[index];
    struct answer_piece piece = new_piece(job, index, answer->num_tokens, -1);
    if (e->loaded->tokenizer) piece.text = answer_text_finish(&answer->text, &piece.text_length);
    piece.finish_reason = reason;
    if (reason == FINISH_ERROR) piece.error = job->request->error ? job->request->error : &no_memory;
    finish_answer(e, job, answer, &piece);
    job->deliver(job->user, &piece);
}

/* What follows a stop string in its run is in no answer, and the drafter does not learn from it. */
static void tell_drafter(const struct engine *e, const struct job *job)
{
    if (!e->drafter || !e->drafter->finished) return;
    for (int32_t i = 0; i < job->request->num_sequences; i++) {
        struct sequence *seq = &job->request->sequences[i];
        if (!job->late) seq->num_tokens = seq->prompt_len + job->answers[i].num_tokens;
        e->drafter->finished(e->drafter, seq);
    }
}

/* Delivers the answers that come late, and the last pieces of those that were aborted or failed, and frees the job. */
static void finish_job(struct engine *e, struct job *job)
{
    const enum finish_reason failure = job->late ? late_answers_rank(job->late) : FINISH_NONE;
    for (int32_t i = 0; i < job->num_answers; i++) {
        if (job->late && failure == FINISH_NONE)
            deliver_late(e, job, i);
        else if (!job->answers[i].done)
            deliver_end(e, job, i, job->late ? failure : job->request->sequences[i].finish_reason);
    }
    tell_drafter(e, job);
    trace_request_end(e->trace, &job->trace);
    inbox_remove(&e->inbox, &job->entry);
    e->num_constrained -= job->constrained != NULL;
    job_free(job);
}

bool engine_finish_jobs(struct engine *e)
{
    bool any = false;
    for (;;) {
        pthread_mutex_lock(&e->schedule_lock);
        struct request *request = scheduler_next_finished(e->scheduler);
        pthread_mutex_unlock(&e->schedule_lock);
        if (!request) return any;
        finish_job(e, request->user);
        any = true;
    }
}
