#include "runtime/engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "runtime/engine/answer_text.h"
#include "runtime/engine/loaded_model.h"

/* A request as the engine holds it: the scheduler's request, and where its answers go. Owned by the inbox until a step
 * reads it, then by the list of running jobs. */
struct job {
    struct request *request; /* owned */
    answer_function *deliver;
    void *user;
    struct answer {
        struct answer_text text;
        bool done; /* its last piece was delivered */
    } * answers;   /* [num_answers] */
    int32_t num_answers, num_done;
    uint64_t id;
    struct job *next, *previous; /* in the list of running jobs; the inbox uses `next` alone */
};

/* What other threads leave for the thread that steps. Everything here is read and written under the lock. */
struct inbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;   /* num_jobs became 1, or woken became true */
    struct job *first, *last; /* in order of arrival */
    uint64_t *aborts;         /* [num_aborts] ids */
    size_t num_aborts, aborts_capacity;
    uint64_t last_id;
    int64_t num_jobs; /* added and not finished */
    bool woken;       /* engine_wake was called, and no wait has returned for it yet */
};

struct engine {
    struct engine_options options;
    struct loaded_model loaded;
    struct scheduler *scheduler;
    pthread_mutex_t schedule_lock; /* the scheduler is used under it, so that other threads can ask for statistics */
    struct batch batch;
    int max_in_flight; /* steps that are submitted before one is collected */
    struct inbox inbox;
    struct job *jobs; /* running: read from the inbox and not finished */
    double start_seconds;
};

struct engine_options engine_options_default(void)
{
    return (struct engine_options){
        .device = "auto",
        .dtype = "auto",
        .kv_cache_dtype = "auto",
        .block_size = 16,
        .max_num_seqs = 256,
        .max_num_batched_tokens = 8192,
        .gpu_memory_utilization = 0.9,
        .swap_space = 4,
        .enable_prefix_caching = true,
        .enable_chunked_prefill = true,
        .async_scheduling = -1,
    };
}

/* ---- start and end ---- */

static enum status grow_swap_space(void *user, int32_t *added, struct error *err)
{
    struct engine *e = user;
    return model_grow_swap_space(e->loaded.model, e->loaded.profile.num_host_blocks, added, err);
}

static enum status create_scheduler(struct engine *e, struct error *err)
{
    const struct scheduler_config config = {
        .limits = e->loaded.limits,
        .num_blocks = e->loaded.profile.num_blocks,
        .num_host_blocks = e->loaded.profile.num_host_blocks,
        .preemption_mode = e->options.preemption_mode,
        .grow_host_blocks = grow_swap_space,
        .user = e,
        .log = e->options.log,
        .rope_switch = model_spec_rope_switch(&e->loaded.config.spec, e->loaded.limits.max_model_len),
        .enable_prefix_caching = e->options.enable_prefix_caching,
        .enable_chunked_prefill = e->options.enable_chunked_prefill,
#ifndef NDEBUG
        .check_invariants = true,
#endif
    };
    return scheduler_create(&config, &e->scheduler, err);
}

enum status engine_create(const struct engine_options *options, struct engine **out, struct error *err)
{
    const double start = clock_seconds();
    *out = NULL;
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    e->options = *options;
    pthread_mutex_init(&e->inbox.lock, NULL);
    pthread_cond_init(&e->inbox.changed, NULL);
    pthread_mutex_init(&e->schedule_lock, NULL);
    enum status status = loaded_model_open(options, &e->loaded, err);
    if (status == STATUS_OK) status = create_scheduler(e, err);
    if (status == STATUS_OK) status = batch_init(&e->batch, &e->loaded.limits, err);
    if (status != STATUS_OK) {
        engine_destroy(e);
        return status;
    }
    const bool two = options->async_scheduling < 0 ? e->loaded.backend->discrete : options->async_scheduling > 0;
    e->max_in_flight = two ? 2 : 1;
    e->start_seconds = clock_seconds() - start;
    const struct memory_profile *p = &e->loaded.profile;
    log_write(options->log, LOG_INFO, "%s ready on %s in %.3f s: %d blocks of %d tokens, max_model_len %d",
              options->model, p->device, e->start_seconds, p->num_blocks, p->block_size, p->max_model_len);
    *out = e;
    return STATUS_OK;
}

static void job_free(struct job *job)
{
    if (!job) return;
    for (int32_t i = 0; job->answers && i < job->num_answers; i++) answer_text_free(&job->answers[i].text);
    free(job->answers);
    request_destroy(job->request);
    free(job);
}

static void jobs_free(struct job *job)
{
    while (job) {
        struct job *next = job->next;
        job_free(job);
        job = next;
    }
}

void engine_destroy(struct engine *e)
{
    if (!e) return;
    scheduler_destroy(e->scheduler);
    jobs_free(e->jobs);
    jobs_free(e->inbox.first);
    free(e->inbox.aborts);
    batch_free(&e->batch);
    loaded_model_close(&e->loaded);
    pthread_cond_destroy(&e->inbox.changed);
    pthread_mutex_destroy(&e->inbox.lock);
    pthread_mutex_destroy(&e->schedule_lock);
    free(e);
}

void engine_leave(struct engine *e)
{
    if (e && !e->loaded.backend->discrete) engine_destroy(e);
}

/* ---- what any thread may call ---- */

static enum status check_prompt(const struct engine *e, const struct engine_request *r, struct error *err)
{
    const int32_t vocab_size = e->loaded.config.spec.vocab_size, max_model_len = e->loaded.limits.max_model_len;
    if (r->prompt_len < 1) return error_set(err, STATUS_INVALID, "the prompt has no tokens; give at least one");
    if (r->prompt_len >= max_model_len) {
        const bool may_raise = r->prompt_len < e->loaded.profile.model_max_len;
        error_set(err, STATUS_INVALID,
                  "the prompt has %d tokens, but max_model_len is %d, which leaves %d for a prompt and one for the "
                  "answer%s",
                  r->prompt_len, max_model_len, max_model_len - 1, may_raise ? "" : "; shorten the prompt");
        if (may_raise) error_advise(err, ADVICE_RAISE, "max_model_len", "%d", r->prompt_len + 1);
        return STATUS_INVALID;
    }
    for (int32_t i = 0; i < r->prompt_len; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab_size)
            return error_set(err, STATUS_INVALID, "token %d of the prompt is %d, but the model's ids are 0 to %d", i,
                             r->prompt[i], vocab_size - 1);
    return STATUS_OK;
}

static enum status check_request(const struct engine *e, const struct engine_request *r, struct error *err)
{
    enum status status = sampling_params_check(r->params, engine_num_ids(e), err);
    if (status == STATUS_OK) status = check_prompt(e, r, err);
    if (status != STATUS_OK) return status;
    if (r->params->n > e->loaded.limits.max_num_seqs) {
        error_set(err, STATUS_INVALID, "n is %d, but at most %d sequences run at once", r->params->n,
                  e->loaded.limits.max_num_seqs);
        error_advise(err, ADVICE_RAISE, "max_num_seqs", "%d", r->params->n);
        return STATUS_INVALID;
    }
    if (r->params->num_stop > 0 && !e->loaded.tokenizer)
        return error_set(err, STATUS_INVALID, "stop strings need a tokenizer, and none is loaded");
    return STATUS_OK;
}

/* End-of-sequence ids: those of the checkpoint, or the tokenizer's if the checkpoint names none. */
static void set_eos_ids(const struct engine *e, struct request *request)
{
    const struct model_config *c = &e->loaded.config;
    const int32_t capacity = (int32_t)(sizeof request->eos_token_ids / sizeof *request->eos_token_ids);
    request->num_eos = c->num_eos < capacity ? c->num_eos : capacity;
    memcpy(request->eos_token_ids, c->eos_token_ids, (size_t)request->num_eos * sizeof *c->eos_token_ids);
    if (request->num_eos == 0 && e->loaded.tokenizer && tokenizer_eos_id(e->loaded.tokenizer) >= 0)
        request->eos_token_ids[request->num_eos++] = tokenizer_eos_id(e->loaded.tokenizer);
}

static bool create_answers(struct job *job, const struct tokenizer *tokenizer, bool at_start)
{
    const struct sampling_params *params = &job->request->params;
    job->answers = calloc((size_t)params->n, sizeof *job->answers);
    if (!job->answers) return false;
    job->num_answers = params->n;
    for (int32_t i = 0; tokenizer && i < params->n; i++)
        if (!answer_text_init(&job->answers[i].text, tokenizer, params, at_start)) return false;
    return true;
}

static enum status job_create(const struct engine *e, const struct engine_request *r, struct job **out,
                              struct error *err)
{
    struct job *job = calloc(1, sizeof *job);
    *out = NULL;
    if (!job) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    job->deliver = r->deliver;
    job->user = r->user;
    enum status status = request_create(r->params, r->prompt, r->prompt_len, &e->loaded.limits, &job->request, err);
    if (status == STATUS_OK && !create_answers(job, e->loaded.tokenizer, r->at_start))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    if (status != STATUS_OK) {
        job_free(job);
        return status;
    }
    job->request->user = job;
    set_eos_ids(e, job->request);
    *out = job;
    return STATUS_OK;
}

/* The id is given out under the lock: once it is released, the job may be finished and freed at any time. */
static void inbox_put(struct inbox *inbox, struct job *job, uint64_t *id)
{
    pthread_mutex_lock(&inbox->lock);
    job->id = job->request->id = ++inbox->last_id;
    if (id) *id = job->id;
    if (inbox->last)
        inbox->last->next = job;
    else
        inbox->first = job;
    inbox->last = job;
    if (inbox->num_jobs++ == 0) pthread_cond_signal(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
}

enum status engine_add(struct engine *e, const struct engine_request *request, uint64_t *id, struct error *err)
{
    struct job *job;
    enum status status = check_request(e, request, err);
    if (status == STATUS_OK) status = job_create(e, request, &job, err);
    if (status == STATUS_OK) inbox_put(&e->inbox, job, id);
    return status;
}

void engine_abort(struct engine *e, uint64_t id)
{
    struct inbox *inbox = &e->inbox;
    pthread_mutex_lock(&inbox->lock);
    if (array_reserve(&inbox->aborts, &inbox->aborts_capacity, inbox->num_aborts + 1, sizeof *inbox->aborts))
        inbox->aborts[inbox->num_aborts++] = id;
    pthread_mutex_unlock(&inbox->lock);
}

bool engine_has_work(struct engine *e)
{
    pthread_mutex_lock(&e->inbox.lock);
    const bool work = e->inbox.num_jobs > 0;
    pthread_mutex_unlock(&e->inbox.lock);
    return work;
}

void engine_wait(struct engine *e)
{
    struct inbox *inbox = &e->inbox;
    pthread_mutex_lock(&inbox->lock);
    while (inbox->num_jobs == 0 && !inbox->woken) pthread_cond_wait(&inbox->changed, &inbox->lock);
    inbox->woken = false;
    pthread_mutex_unlock(&inbox->lock);
}

void engine_wake(struct engine *e)
{
    pthread_mutex_lock(&e->inbox.lock);
    e->inbox.woken = true;
    pthread_cond_signal(&e->inbox.changed);
    pthread_mutex_unlock(&e->inbox.lock);
}

/* ---- one step ---- */

static void abort_job(struct engine *e, uint64_t id)
{
    for (struct job *job = e->jobs; job; job = job->next)
        if (job->id == id) {
            scheduler_abort(e->scheduler, job->request);
            return;
        }
}

/* Hands new requests to the scheduler in order of arrival, then ends those that were aborted. */
static void read_inbox(struct engine *e)
{
    struct inbox *inbox = &e->inbox;
    pthread_mutex_lock(&inbox->lock);
    struct job *job = inbox->first;
    inbox->first = inbox->last = NULL;
    while (job) {
        struct job *next = job->next;
        job->previous = NULL;
        job->next = e->jobs;
        if (e->jobs) e->jobs->previous = job;
        e->jobs = job;
        scheduler_add(e->scheduler, job->request);
        job = next;
    }
    for (size_t i = 0; i < inbox->num_aborts; i++) abort_job(e, inbox->aborts[i]);
    inbox->num_aborts = 0;
    pthread_mutex_unlock(&inbox->lock);
}

/* A request without a seed gets one that depends on the engine's seed and its order of arrival. */
static uint64_t request_seed(const struct engine *e, const struct request *request)
{
    return random_mix(e->options.seed * RANDOM_STEP + request->id);
}

static void fill_sampling_state(const struct engine *e, const struct sequence *seq, struct sampling_state *state)
{
    const struct request *request = seq->request;
    const struct sampling_params *p = &request->params;
    *state = (struct sampling_state){
        .temperature = (float)p->temperature,
        .top_p = (float)p->top_p,
        .min_p = (float)p->min_p,
        .top_k = p->top_k,
        .repetition_penalty = (float)p->repetition_penalty,
        .presence_penalty = (float)p->presence_penalty,
        .frequency_penalty = (float)p->frequency_penalty,
        .seed = p->has_seed ? p->seed : request_seed(e, request),
        .sequence_index = (uint32_t)seq->index,
        .min_tokens = p->min_tokens,
        .num_logprobs = p->logprobs,
        .prompt_len = seq->prompt_len,
        .num_bias = p->num_logit_bias,
    };
    memcpy(state->bias_ids, p->bias_ids, (size_t)p->num_logit_bias * sizeof *p->bias_ids);
    memcpy(state->bias_values, p->bias_values, (size_t)p->num_logit_bias * sizeof *p->bias_values);
    for (int32_t i = 0; i < p->num_stop_token_ids; i++) state->stop_ids[state->num_stop_ids++] = p->stop_token_ids[i];
    for (int32_t i = 0; i < request->num_eos && !p->ignore_eos; i++)
        state->stop_ids[state->num_stop_ids++] = request->eos_token_ids[i];
}

/* The scheduler fails only if its own state is inconsistent. That is a bug, which the user is asked to report. */
static enum status check_scheduler(enum status status, struct error *err)
{
    return status == STATUS_OK ? status : error_prefix(err, status, "internal error, please report it");
}

/* Schedules the next step and submits it. */
static enum status schedule_and_submit(struct engine *e, enum schedule_result *result, struct error *err)
{
    struct schedule schedule;
    pthread_mutex_lock(&e->schedule_lock);
    read_inbox(e);
    const enum status status = check_scheduler(scheduler_schedule(e->scheduler, &e->batch, &schedule, err), err);
    pthread_mutex_unlock(&e->schedule_lock);
    *result = schedule.result;
    if (status != STATUS_OK || *result != SCHEDULE_BATCH) return status;
    for (int32_t i = 0; i < schedule.num_admitted; i++) {
        const struct sequence *seq = schedule.admitted[i];
        struct sampling_state state;
        fill_sampling_state(e, seq, &state);
        model_set_sampling_state(e->loaded.model, seq->state_index, &state, seq->tokens, seq->num_tokens);
    }
    return model_submit(e->loaded.model, &e->batch, err);
}

static void finish_answer(struct job *job, struct answer *answer, struct answer_piece *piece)
{
    answer->done = true;
    job->num_done++;
    piece->request_finished = job->num_done == job->num_answers;
}

static struct answer_piece new_piece(const struct job *job, const struct sequence *seq)
{
    return (struct answer_piece){
        .request = job->id,
        .index = seq->index,
        .text = "",
        .stop_token = seq->stop_token,
        .prompt_tokens = job->request->sequences[0].prompt_len,
        .cached_tokens = job->request->sequences[0].num_cached,
        .output_tokens = seq->num_tokens > seq->prompt_len ? seq->num_tokens - seq->prompt_len : 0,
    };
}

static void set_logprobs(const struct job *job, const struct sample_output *samples, int32_t sample,
                         struct answer_piece *piece)
{
    const int32_t wanted = job->request->params.logprobs;
    if (wanted < 0) return;
    piece->logprob = &samples->logprobs[sample];
    piece->rank = &samples->ranks[sample];
    piece->top_ids = &samples->top_ids[(int64_t)sample * SAMPLING_MAX_LOGPROBS];
    piece->top_logprobs = &samples->top_logprobs[(int64_t)sample * SAMPLING_MAX_LOGPROBS];
    piece->num_top = wanted;
}

/* A sample had no token: a logit was NaN, or the largest was infinite. */
static void explain_damage(const struct engine *e, struct error *err)
{
    const bool narrow = e->loaded.profile.dtype == DTYPE_FLOAT16;
    error_set(err, STATUS_INVALID,
              "the model computed NaN or infinity where probabilities were expected: the weights in %s are damaged%s",
              e->options.model, narrow ? ", or too large for float16" : "");
    if (narrow) error_advise(err, ADVICE_SET, "dtype", "bfloat16 or float32");
}

static void deliver_event(struct engine *e, const struct token_event *event, const struct sample_output *samples)
{
    struct sequence *seq = event->seq;
    struct job *job = seq->request->user;
    struct answer *answer = &job->answers[seq->index];
    if (answer->done) return;
    if (event->token < 0) { /* finish_job delivers the last piece */
        explain_damage(e, &seq->request->error);
        return;
    }
    struct answer_piece piece = new_piece(job, seq);
    piece.token_ids = &event->token;
    piece.num_tokens = 1;
    set_logprobs(job, samples, event->sample, &piece);
    if (e->loaded.tokenizer) {
        const bool may_stop = piece.output_tokens >= job->request->params.min_tokens;
        piece.text = answer_text_add(&answer->text, event->token, may_stop, seq->finish_reason != FINISH_NONE,
                                     &piece.text_length);
        if (answer->text.stop >= 0) {
            piece.stop_reason = job->request->params.stop[answer->text.stop];
            piece.stop_token = -1;
            if (seq->finish_reason == FINISH_NONE) {
                pthread_mutex_lock(&e->schedule_lock);
                scheduler_finish(e->scheduler, seq, FINISH_STOP);
                pthread_mutex_unlock(&e->schedule_lock);
            }
            piece.finish_reason = FINISH_STOP;
        }
    }
    if (piece.finish_reason == FINISH_NONE) piece.finish_reason = seq->finish_reason;
    if (piece.finish_reason != FINISH_NONE) finish_answer(job, answer, &piece);
    job->deliver(job->user, &piece);
}

static enum status collect_and_deliver(struct engine *e, struct error *err)
{
    struct sample_output samples;
    enum status status = model_collect(e->loaded.model, &samples, err);
    if (status != STATUS_OK) return status;
    const struct token_event *events;
    int32_t num_events;
    pthread_mutex_lock(&e->schedule_lock);
    status = check_scheduler(scheduler_collect(e->scheduler, &samples, &events, &num_events, err), err);
    pthread_mutex_unlock(&e->schedule_lock);
    for (int32_t i = 0; i < num_events; i++) deliver_event(e, &events[i], &samples);
    return status;
}

/* Delivers the last pieces of the answers that ended without a token (aborted, failed), and frees the job. */
static void finish_job(struct engine *e, struct job *job)
{
    for (int32_t i = 0; i < job->num_answers; i++) {
        struct answer *answer = &job->answers[i];
        if (answer->done) continue;
        const struct sequence *seq = &job->request->sequences[i];
        struct answer_piece piece = new_piece(job, seq);
        piece.index = i;
        if (e->loaded.tokenizer) piece.text = answer_text_finish(&answer->text, &piece.text_length);
        piece.finish_reason = seq->finish_reason;
        if (piece.finish_reason == FINISH_ERROR) piece.error = &job->request->error;
        finish_answer(job, answer, &piece);
        job->deliver(job->user, &piece);
    }
    if (job->previous)
        job->previous->next = job->next;
    else
        e->jobs = job->next;
    if (job->next) job->next->previous = job->previous;
    job_free(job);
    pthread_mutex_lock(&e->inbox.lock);
    e->inbox.num_jobs--;
    pthread_mutex_unlock(&e->inbox.lock);
}

static bool finish_jobs(struct engine *e)
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

enum status engine_step(struct engine *e, bool *worked, struct error *err)
{
    enum schedule_result result;
    enum status status = schedule_and_submit(e, &result, err);
    *worked = result == SCHEDULE_BATCH;
    const int32_t in_flight = scheduler_in_flight(e->scheduler);
    /* After submitting a step, collect one only if no more may be in flight; if there was none to submit, collect what
     * is in flight. */
    if (status == STATUS_OK && in_flight > 0 && (result != SCHEDULE_BATCH || in_flight >= e->max_in_flight)) {
        status = collect_and_deliver(e, err);
        *worked = true;
    }
    if (status == STATUS_OK && finish_jobs(e)) *worked = true;
    return status;
}

/* ---- facts ---- */

const struct tokenizer *engine_tokenizer(const struct engine *e)
{
    return e->loaded.tokenizer;
}

const struct model_config *engine_model_config(const struct engine *e)
{
    return &e->loaded.config;
}

int32_t engine_num_ids(const struct engine *e)
{
    return loaded_model_num_ids(&e->loaded);
}

const struct memory_profile *engine_memory_profile(const struct engine *e)
{
    return &e->loaded.profile;
}

const struct batch_limits *engine_limits(const struct engine *e)
{
    return &e->loaded.limits;
}

const char *engine_device(const struct engine *e)
{
    return e->loaded.backend->name;
}

const char *engine_device_description(const struct engine *e)
{
    return e->loaded.backend->description;
}

bool engine_device_is_discrete(const struct engine *e)
{
    return e->loaded.backend->discrete;
}

int engine_threads(const struct engine *e)
{
    return e->options.threads > 0 ? e->options.threads : processors_allowed();
}

double engine_start_seconds(const struct engine *e)
{
    return e->start_seconds;
}

void engine_stats(struct engine *e, struct scheduler_stats *stats)
{
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_get_stats(e->scheduler, stats);
    pthread_mutex_unlock(&e->schedule_lock);
}

void engine_reset_prefix_cache(struct engine *e)
{
    pthread_mutex_lock(&e->schedule_lock);
    scheduler_reset_prefix_cache(e->scheduler);
    pthread_mutex_unlock(&e->schedule_lock);
}

void engine_default_sampling(const struct engine *e, struct sampling_params *params)
{
    *params = sampling_params_default();
    const struct model_config *c = &e->loaded.config;
    if (!isnan(c->generation.temperature)) params->temperature = c->generation.temperature;
    if (!isnan(c->generation.top_p)) params->top_p = c->generation.top_p;
    if (!isnan(c->generation.min_p)) params->min_p = c->generation.min_p;
    if (!isnan(c->generation.repetition_penalty)) params->repetition_penalty = c->generation.repetition_penalty;
    if (c->generation.top_k >= 0) params->top_k = c->generation.top_k;
    if (c->generation.do_sample_given && !c->generation.do_sample) params->temperature = 0;
}
