#include "runtime/engine/request_check.h"

static enum status check_prompt(const struct loaded_model *l, const struct engine_request *r, struct error *err)
{
    const int32_t vocab_size = l->config.spec.vocab_size, max_model_len = l->limits.max_model_len;
    if (r->prompt_len < 1) return error_set(err, STATUS_INVALID, "the prompt has no tokens; give at least one");
    if (r->prompt_len >= max_model_len) {
        const bool may_raise = r->prompt_len < l->profile.model_max_len;
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

enum status request_check(const struct loaded_model *l, enum scheduling_policy policy, const struct engine_request *r,
                          struct error *err)
{
    enum status status = sampling_params_check(r->params, loaded_model_num_ids(l), err);
    if (status == STATUS_OK) status = check_prompt(l, r, err);
    if (status != STATUS_OK) return status;
    const char *name;
    const int32_t num_sequences = sampling_params_num_sequences(r->params, &name);
    if (num_sequences > l->limits.max_num_seqs) {
        error_set(err, STATUS_INVALID, "%s is %d, but at most %d sequences run at once", name, num_sequences,
                  l->limits.max_num_seqs);
        error_advise(err, ADVICE_RAISE, "max_num_seqs", "%d", num_sequences);
        return STATUS_INVALID;
    }
    if (r->priority != 0 && policy != SCHEDULING_PRIORITY) {
        error_set(err, STATUS_INVALID, "priority is %d, but requests run in order of arrival", r->priority);
        error_advise(err, ADVICE_SET, "scheduling_policy", "priority");
        return STATUS_INVALID;
    }
    if (r->params->num_stop > 0 && !l->tokenizer)
        return error_set(err, STATUS_INVALID, "stop strings need a tokenizer, and none is loaded");
    return STATUS_OK;
}
