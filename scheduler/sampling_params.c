#include "scheduler/sampling_params.h"

#include <math.h>
#include <string.h>

#include "base/batch.h"

struct sampling_params sampling_params_default(void)
{
    return (struct sampling_params){
        .n = 1,
        .temperature = 1.0,
        .top_p = 1.0,
        .repetition_penalty = 1.0,
        .max_tokens = 16,
        .logprobs = -1,
        .skip_special_tokens = true,
    };
}

/* Written so that a NaN fails every one of them. */
static enum status check_between(const char *name, double value, double low, double high, struct error *err)
{
    if (value >= low && value <= high) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s is %g; it must lie between %g and %g", name, value, low, high);
}

static enum status check_temperature(const struct sampling_params *p, struct error *err)
{
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return error_set(err, STATUS_INVALID, "temperature is %g; it must be a number of at least 0 (0 is greedy)",
                         p->temperature);
    if (p->temperature == 0 && p->n > 1)
        return error_set(err, STATUS_INVALID,
                         "n is %d with temperature 0: greedy answers are all the same; set n to 1 or a temperature",
                         p->n);
    return STATUS_OK;
}

static enum status check_filters(const struct sampling_params *p, struct error *err)
{
    if (!(p->top_p > 0 && p->top_p <= 1))
        return error_set(err, STATUS_INVALID, "top_p is %g; it must be above 0 and at most 1", p->top_p);
    if (p->top_k < -1)
        return error_set(err, STATUS_INVALID, "top_k is %d; it must be 0 or -1 (off), or at least 1", p->top_k);
    return check_between("min_p", p->min_p, 0, 1, err);
}

static enum status check_penalties(const struct sampling_params *p, struct error *err)
{
    if (!(p->repetition_penalty > 0) || isinf(p->repetition_penalty))
        return error_set(err, STATUS_INVALID, "repetition_penalty is %g; it must be above 0", p->repetition_penalty);
    enum status status = check_between("presence_penalty", p->presence_penalty, -2, 2, err);
    if (status == STATUS_OK) status = check_between("frequency_penalty", p->frequency_penalty, -2, 2, err);
    return status;
}

static enum status check_lengths(const struct sampling_params *p, struct error *err)
{
    if (p->max_tokens < 1 && p->max_tokens != -1)
        return error_set(err, STATUS_INVALID, "max_tokens is %d; it must be at least 1, or -1 for no limit",
                         p->max_tokens);
    if (p->min_tokens < 0)
        return error_set(err, STATUS_INVALID, "min_tokens is %d; it must be at least 0", p->min_tokens);
    if (p->max_tokens != -1 && p->min_tokens > p->max_tokens)
        return error_set(err, STATUS_INVALID, "min_tokens is %d; it must be at most max_tokens, which is %d",
                         p->min_tokens, p->max_tokens);
    return STATUS_OK;
}

static enum status check_token(const char *name, int32_t token, int32_t vocab_size, struct error *err)
{
    if (token >= 0 && token < vocab_size) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s names token %d; this model's tokens are 0 to %d", name, token,
                     vocab_size - 1);
}

static enum status check_count(const char *name, int32_t count, int32_t most, struct error *err)
{
    if (count >= 0 && count <= most) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s has %d entries; at most %d are possible", name, count, most);
}

static enum status check_lists(const struct sampling_params *p, int32_t vocab_size, struct error *err)
{
    enum status status = check_count("stop_token_ids", p->num_stop_token_ids, SAMPLING_PARAMS_MAX_STOP_IDS, err);
    if (status == STATUS_OK) status = check_count("logit_bias", p->num_logit_bias, SAMPLING_PARAMS_MAX_BIAS, err);
    if (status == STATUS_OK) status = check_count("stop", p->num_stop, SAMPLING_PARAMS_MAX_STOP, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < p->num_stop_token_ids && status == STATUS_OK; i++)
        status = check_token("stop_token_ids", p->stop_token_ids[i], vocab_size, err);
    for (int32_t i = 0; i < p->num_logit_bias && status == STATUS_OK; i++) {
        status = check_token("logit_bias", p->bias_ids[i], vocab_size, err);
        if (status == STATUS_OK) status = check_between("logit_bias", (double)p->bias_values[i], -100, 100, err);
    }
    for (int32_t i = 0; i < p->num_stop && status == STATUS_OK; i++) {
        if (!p->stop[i][0]) return error_set(err, STATUS_INVALID, "stop has an empty string at index %d", i);
        if (!memchr(p->stop[i], '\0', SAMPLING_PARAMS_MAX_STOP_BYTES))
            return error_set(err, STATUS_INVALID, "stop string %d is longer than %d bytes", i,
                             SAMPLING_PARAMS_MAX_STOP_BYTES - 1);
    }
    return status;
}

enum status sampling_params_check(const struct sampling_params *params, int32_t vocab_size, struct error *err)
{
    if (params->n < 1) return error_set(err, STATUS_INVALID, "n is %d; it must be at least 1", params->n);
    if (params->logprobs < -1 || params->logprobs > SAMPLING_MAX_LOGPROBS)
        return error_set(err, STATUS_INVALID, "logprobs is %d; it must lie between 0 and %d, or be -1 for none",
                         params->logprobs, SAMPLING_MAX_LOGPROBS);
    enum status status = check_temperature(params, err);
    if (status == STATUS_OK) status = check_filters(params, err);
    if (status == STATUS_OK) status = check_penalties(params, err);
    if (status == STATUS_OK) status = check_lengths(params, err);
    if (status == STATUS_OK) status = check_lists(params, vocab_size, err);
    return status;
}
