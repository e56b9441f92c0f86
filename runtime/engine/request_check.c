#include "runtime/engine/loaded_model_state.h"
#include "runtime/engine/plan.h"

/* Whether a model could be loaded with these options; where that is not known, it is thought so. */
static bool is_possible(const struct engine_options *o, const struct loaded_model *l)
{
    return o->max_model_len <= l->profile.model_max_len && (!l->backend || plan_succeeds(o, l));
}

static enum status prompt_too_long(const struct engine_options *o, const struct loaded_model *l, int32_t prompt_len,
                                   struct error *err)
{
    const int32_t max_model_len = l->limits.max_model_len;
    struct engine_options longer = *o;
    longer.max_model_len = prompt_len < INT32_MAX ? prompt_len + 1 : prompt_len;
    const bool may_raise = is_possible(&longer, l);
    error_set(
        err, STATUS_INVALID,
        "the prompt has %d tokens, but max_model_len is %d, which leaves %d for a prompt and one for the answer%s",
        prompt_len, max_model_len, max_model_len - 1, may_raise ? "" : "; shorten the prompt");
    if (may_raise) error_advise(err, ADVICE_RAISE, "max_model_len", "%d", longer.max_model_len);
    return STATUS_INVALID;
}

static enum status check_prompt(const struct engine_options *o, const struct loaded_model *l,
                                const struct engine_request *r, struct error *err)
{
    const int32_t vocab_size = l->config.spec.vocab_size;
    if (r->prompt_len < 1) return error_set(err, STATUS_INVALID, "the prompt has no tokens; give at least one");
    if (r->prompt_len >= l->limits.max_model_len) return prompt_too_long(o, l, r->prompt_len, err);
    for (int32_t i = 0; i < r->prompt_len; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab_size)
            return error_set(err, STATUS_INVALID, "token %d of the prompt is %d, but the model's ids are 0 to %d", i,
                             r->prompt[i], vocab_size - 1);
    return STATUS_OK;
}

static enum status check_num_sequences(const struct engine_options *o, const struct loaded_model *l,
                                       const struct sampling_params *params, struct error *err)
{
    const char *name;
    struct engine_options wider = *o;
    wider.max_num_seqs = sampling_params_num_sequences(params, &name);
    if (wider.max_num_seqs <= l->limits.max_num_seqs) return STATUS_OK;
    error_set(err, STATUS_INVALID, "%s is %d, but at most %d sequences run at once", name, wider.max_num_seqs,
              l->limits.max_num_seqs);
    if (is_possible(&wider, l)) error_advise(err, ADVICE_RAISE, "max_num_seqs", "%d", wider.max_num_seqs);
    return STATUS_INVALID;
}

static enum status check_constraint(const struct loaded_model *l, const struct engine_request *r, struct error *err)
{
    if (!r->constraint) return STATUS_OK;
    if (r->params->beam_width > 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "beam_width is %d, but a beam search cannot follow a grammar; ask for n or best_of answers",
                         r->params->beam_width);
    if (l->nodes)
        return error_set(err, STATUS_UNSUPPORTED,
                         "an answer cannot follow a grammar where several nodes share the model; run it on one node");
    return STATUS_OK;
}

enum status request_check(const struct engine_options *o, const struct loaded_model *l, const struct engine_request *r,
                          struct error *err)
{
    enum status status = sampling_params_check(r->params, plan_num_ids(l), err);
    if (status == STATUS_OK) status = check_prompt(o, l, r, err);
    if (status == STATUS_OK) status = check_num_sequences(o, l, r->params, err);
    if (status == STATUS_OK) status = check_constraint(l, r, err);
    if (status != STATUS_OK) return status;
    if (r->priority != 0 && o->scheduling_policy != SCHEDULING_PRIORITY) {
        error_set(err, STATUS_INVALID, "priority is %d, but requests run in order of arrival", r->priority);
        error_advise(err, ADVICE_SET, "scheduling_policy", "priority");
        return STATUS_INVALID;
    }
    if (r->params->num_stop > 0 && !l->tokenizer)
        return error_set(err, STATUS_INVALID, "stop strings need a tokenizer, and none is loaded");
    return STATUS_OK;
}
