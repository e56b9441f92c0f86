#include "runtime/engine/draft_methods.h"

const char *draft_method_name(enum draft_method method)
{
    static const char *const names[NUM_DRAFT_METHODS] = {
        [DRAFT_NONE] = "none",       [DRAFT_NGRAM] = "ngram",       [DRAFT_SUFFIX] = "suffix",
        [DRAFT_GRAMMAR] = "grammar", [DRAFT_MODEL] = "draft_model", [DRAFT_MTP] = "mtp"};
    return names[method];
}

struct speculative_config speculative_config_default(void)
{
    return (struct speculative_config){.method = DRAFT_NONE,
                                       .num_speculative_tokens = MAX_DRAFTS,
                                       .prompt_lookup_min = 5,
                                       .prompt_lookup_max = 5,
                                       .suffix_decoding_max_tree_depth = 24,
                                       .suffix_decoding_max_cached_requests = 10000,
                                       .suffix_decoding_max_spec_factor = 1,
                                       .suffix_decoding_min_token_prob = 0.1};
}

static enum status check_ngram(const struct speculative_config *c, struct error *err)
{
    if (c->prompt_lookup_min < 1)
        return error_set(err, STATUS_INVALID,
                         "prompt_lookup_min is %d and prompt_lookup_max %d, but both must be at least 1",
                         c->prompt_lookup_min, c->prompt_lookup_max);
    if (c->prompt_lookup_max < c->prompt_lookup_min)
        return error_set(err, STATUS_INVALID, "prompt_lookup_max is %d, but must be at least prompt_lookup_min, %d",
                         c->prompt_lookup_max, c->prompt_lookup_min);
    return STATUS_OK;
}

static enum status check_suffix(const struct speculative_config *c, struct error *err)
{
    if (c->suffix_decoding_max_tree_depth < 1)
        return error_set(err, STATUS_INVALID, "suffix_decoding_max_tree_depth is %d, but must be at least 1",
                         c->suffix_decoding_max_tree_depth);
    if (c->suffix_decoding_max_cached_requests < 0)
        return error_set(err, STATUS_INVALID, "suffix_decoding_max_cached_requests is %d, but must not be negative",
                         c->suffix_decoding_max_cached_requests);
    if (!(c->suffix_decoding_max_spec_factor >= 0))
        return error_set(err, STATUS_INVALID, "suffix_decoding_max_spec_factor is %g, but must not be negative",
                         c->suffix_decoding_max_spec_factor);
    if (!(c->suffix_decoding_min_token_prob >= 0 && c->suffix_decoding_min_token_prob <= 1))
        return error_set(err, STATUS_INVALID, "suffix_decoding_min_token_prob is %g, but must be from 0 to 1",
                         c->suffix_decoding_min_token_prob);
    return STATUS_OK;
}

enum status speculative_config_check(const struct speculative_config *config, struct error *err)
{
    if (config->method == DRAFT_NONE) return STATUS_OK;
    if (config->num_speculative_tokens < 1 || config->num_speculative_tokens > MAX_DRAFTS)
        return error_set(err, STATUS_INVALID, "num_speculative_tokens is %d, but must be from 1 to %d",
                         config->num_speculative_tokens, MAX_DRAFTS);
    if (config->method == DRAFT_MODEL && !config->model[0])
        return error_set(err, STATUS_INVALID, "model must be given: the folder of the draft model");
    if (config->method == DRAFT_NGRAM) return check_ngram(config, err);
    return config->method == DRAFT_SUFFIX ? check_suffix(config, err) : STATUS_OK;
}

enum status drafter_create(const struct speculative_config *config, int32_t max_model_len, struct drafter **out,
                           struct error *err)
{
    const enum status status = speculative_config_check(config, err);
    if (status != STATUS_OK) return status;
    return config->method == DRAFT_NGRAM ? draft_ngram_create(config, out, err)
                                         : draft_suffix_create(config, max_model_len, out, err);
}

void drafter_destroy(struct drafter *d)
{
    if (d) d->destroy(d);
}
