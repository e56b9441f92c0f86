#include "runtime/engine/job.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/plan.h"

int32_t job_eos_ids(const struct loaded_model *l, int32_t *ids)
{
    const struct model_config *c = &l->config;
    const int32_t count = c->num_eos < JOB_MAX_EOS ? c->num_eos : JOB_MAX_EOS;
    memcpy(ids, c->eos_token_ids, (size_t)count * sizeof *ids);
    if (count > 0 || !l->tokenizer || tokenizer_eos_id(l->tokenizer) < 0) return count;
    ids[0] = tokenizer_eos_id(l->tokenizer);
    return 1;
}

void job_free(void *freed)
{
    struct job *job = freed;
    if (!job) return;
    for (int32_t i = 0; job->answers && i < job->num_answers; i++) answer_text_free(&job->answers[i].text);
    free(job->answers);
    late_answers_free(job->late);
    constrained_free(job->constrained);
    request_destroy(job->request);
    free(job);
}

static bool create_answers(const struct loaded_model *l, char *text_buffer, struct job *job, bool at_start)
{
    const struct sampling_params *params = &job->request->params;
    job->answers = calloc((size_t)params->n, sizeof *job->answers);
    if (!job->answers) return false;
    job->num_answers = params->n;
    for (int32_t i = 0; l->tokenizer && i < params->n; i++)
        if (!answer_text_init(&job->answers[i].text, l->tokenizer, params, text_buffer, at_start)) return false;
    return true;
}

static bool set_cache_salt(struct request *request, const char *salt)
{
    if (salt) request->cache_salt = cache_salt_create(salt);
    return request->cache_salt || !salt;
}

/* Everything that the request has besides its sequences. */
static enum status fill(const struct loaded_model *l, char *text_buffer, const struct engine_request *r,
                        struct job *job, struct error *err)
{
    struct request *request = job->request;
    if (!create_answers(l, text_buffer, job, r->at_start) || !set_cache_salt(request, r->cache_salt))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    request->num_eos = job_eos_ids(l, request->eos_token_ids);
    request->priority = r->priority;
    request->state_boundary = r->num_lasting;
    request->user = job;
    enum status status =
        late_answers_create(request, plan_num_ids(l), l->tokenizer, text_buffer, r->at_start, &job->late, err);
    if (status != STATUS_OK || !r->constraint) return status;
    request->constrained = true;
    return constrained_create(r->constraint, request->num_sequences, r->at_start, &job->constrained, err);
}

enum status job_create(const struct loaded_model *l, char *text_buffer, const struct engine_request *r,
                       struct job **out, struct error *err)
{
    struct job *job = calloc(1, sizeof *job);
    *out = NULL;
    if (!job) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    job->entry.job = job;
    job->deliver = r->deliver;
    job->user = r->user;
    enum status status = request_create(r->params, r->prompt, r->prompt_len, &l->limits, &job->request, err);
    if (status == STATUS_OK) status = fill(l, text_buffer, r, job, err);
    if (status == STATUS_OK)
        *out = job;
    else
        job_free(job);
    return status;
}

void job_sampling_state(const struct sequence *seq, uint64_t seed, struct sampling_state *state)
{
    const struct request *request = seq->request;
    const struct sampling_params *p = &request->params;
    const struct late_answers *late = job_of(seq)->late;
    *state = (struct sampling_state){
        .temperature = request->beams ? 0 : (float)p->temperature,
        .top_p = (float)p->top_p,
        .min_p = (float)p->min_p,
        .top_k = p->top_k,
        .repetition_penalty = (float)p->repetition_penalty,
        .presence_penalty = (float)p->presence_penalty,
        .frequency_penalty = (float)p->frequency_penalty,
        .seed = p->has_seed ? p->seed : engine_request_seed(seed, request->id),
        .sequence_index = (uint32_t)seq->index,
        .min_tokens = request->beams ? 0 : p->min_tokens,
        .num_logprobs = late ? late_answers_num_logprobs(late) : p->logprobs,
        .prompt_len = seq->prompt_len,
        .num_bias = p->num_logit_bias,
    };
    for (int32_t i = 0; i < p->num_logit_bias; i++) {
        state->bias_ids[i] = p->logit_bias[i].token;
        state->bias_values[i] = p->logit_bias[i].value;
    }
    for (int32_t i = 0; i < p->num_stop_token_ids; i++) state->stop_ids[state->num_stop_ids++] = p->stop_token_ids[i];
    for (int32_t i = 0; i < request->num_eos && !p->ignore_eos; i++)
        state->stop_ids[state->num_stop_ids++] = request->eos_token_ids[i];
}
