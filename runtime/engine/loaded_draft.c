#include "runtime/engine/loaded_draft.h"

#include <stdlib.h>
#include <string.h>

#include "model/head.h"
#include "model/kv_cache.h"
#include "model/kv_groups.h"
#include "model/shard.h"
#include "model/state_cache.h"
#include "runtime/engine/draft_model.h"
#include "runtime/engine/loaded_ranks.h"
#include "runtime/engine/plan.h"

/* ---- the checkpoint ---- */

static bool is_wanted(const struct engine_options *o)
{
    return !o->drafter && (o->speculative.method == DRAFT_MODEL || o->speculative.method == DRAFT_MTP);
}

/* Where its files are. */
static const char *folder_of(const struct engine_options *o)
{
    return o->speculative.method == DRAFT_MTP ? o->model : o->speculative.model;
}

static enum status load_config(const struct engine_options *o, struct model_config *config, struct error *err)
{
    if (o->speculative.method == DRAFT_MTP) return model_config_load_mtp(o->model, o->log, config, err);
    return model_config_load_drafter(o->speculative.model, o->log, config, err);
}

static bool is_head(const struct loaded_draft *d)
{
    return d->config.spec.head.kind != HEAD_NONE;
}

/* The ids that it knows: a head has its target's. */
static int32_t vocab_size_of(const struct loaded_model *l)
{
    return is_head(&l->draft) ? l->config.spec.vocab_size : l->draft.config.spec.vocab_size;
}

/* Whether the two tokenizers have the same tokens under the same ids. */
static bool same_tokens(const struct tokenizer *a, const struct tokenizer *b)
{
    if (tokenizer_size(a) != tokenizer_size(b)) return false;
    for (int32_t id = 0; id < tokenizer_size(a); id++) {
        size_t length, other_length;
        const char *bytes = tokenizer_token_bytes(a, id, true, &length);
        const char *other = tokenizer_token_bytes(b, id, true, &other_length);
        if (length != other_length || memcmp(bytes, other, length) != 0) return false;
    }
    return true;
}

/* A draft model's rejected tokens are forgotten with their slots, which a state is not. */
static enum status check_states(const struct loaded_model *l, struct error *err)
{
    if (state_cache_slot_bytes(&l->draft.config.spec) == 0) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the draft model has recurrent layers, which quire computes in a target only; choose one without, "
                     "or the method ngram or suffix");
}

/* Checkpoints of one family pad the vocabulary to sizes of their own, and agree on the ids all the same. */
static enum status check_vocabulary(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    const char *folder = o->speculative.model;
    const int32_t size = l->draft.config.spec.vocab_size, target = l->config.spec.vocab_size;
    struct tokenizer *tokenizer = NULL;
    struct error ignored;
    if (size == target) return STATUS_OK;
    bool agree = l->tokenizer && size >= tokenizer_size(l->tokenizer) &&
                 tokenizer_open(folder, &tokenizer, &ignored) == STATUS_OK && same_tokens(l->tokenizer, tokenizer);
    tokenizer_close(tokenizer);
    if (agree) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "the draft model %s has a vocabulary of %d tokens, and %s one of %d: a draft model must have the "
                     "same tokens under the same ids",
                     folder, size, o->model, target);
}

static enum status check_length(const struct engine_options *o, const struct loaded_model *l, struct error *err)
{
    const struct model_spec *spec = &l->draft.config.spec;
    const int32_t longest = model_spec_max_length(spec);
    const int32_t wanted = o->max_model_len > 0 ? o->max_model_len : model_spec_max_length(&l->config.spec);
    if (!spec->names.position_embedding || longest >= wanted) return STATUS_OK;
    error_set(err, STATUS_INVALID, "the draft model %s has positions for %d tokens, but sequences may have %d",
              o->speculative.model, longest, wanted);
    error_advise(err, ADVICE_LOWER, "max_model_len", "%d", longest);
    return STATUS_INVALID;
}

/* ---- ranks ---- */

struct draft_rank {
    struct model_spec spec;
    struct model_weights weights; /* of the first none: they are the loaded_draft's */
};

const struct model_spec *loaded_draft_spec(const struct loaded_model *l, int32_t rank)
{
    return l->draft.ranks ? &l->draft.ranks[rank].spec : &l->draft.config.spec;
}

struct model_weights *loaded_draft_weights(struct loaded_model *l, int32_t rank)
{
    return rank > 0 ? &l->draft.ranks[rank].weights : &l->draft.weights;
}

static enum status share(struct loaded_model *l, struct error *err)
{
    struct loaded_draft *d = &l->draft;
    struct error why;
    if (!l->ranks) return STATUS_OK;
    d->ranks = calloc((size_t)l->num_ranks, sizeof *d->ranks);
    if (!d->ranks) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a draft model");
    d->config.spec.expert_parallel = l->config.spec.expert_parallel;
    for (int32_t r = 0; r < l->num_ranks; r++) {
        const enum status status =
            model_spec_shard(&d->config.spec, l->first_rank + r, l->total_ranks, &d->ranks[r].spec, &why);
        if (status != STATUS_OK) return error_set(err, status, "the draft model: %s", why.text);
    }
    return STATUS_OK;
}

static enum status open_weights(const struct engine_options *o, struct loaded_model *l, int32_t rank, struct error *err)
{
    const struct model_spec *spec = loaded_draft_spec(l, rank);
    struct model_weights *weights = loaded_draft_weights(l, rank);
    if (o->load_format == LOAD_FORMAT_DUMMY)
        return model_weights_dummy(spec, o->seed, l->backend->fill_dummy != NULL, weights, err);
    return model_weights_open(folder_of(o), spec, rank == 0 ? o->log : NULL, weights, err);
}

enum status loaded_draft_open(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct loaded_draft *d = &l->draft;
    if (!is_wanted(o)) return STATUS_OK;
    enum status status = load_config(o, &d->config, err);
    if (status != STATUS_OK) return status;
    d->is_open = true;
    status = check_states(l, err);
    if (status == STATUS_OK)
        status = is_head(d) ? head_fit(&d->config.spec, &l->config.spec, err) : check_vocabulary(o, l, err);
    if (status == STATUS_OK) status = check_length(o, l, err);
    if (status == STATUS_OK) status = share(l, err);
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++) status = open_weights(o, l, r, err);
    return status;
}

/* ---- memory ---- */

static struct model_options options_of(const struct engine_options *o, const struct loaded_model *l,
                                       const struct model_options *target)
{
    struct model_options options = *target;
    const int32_t vocab_size = vocab_size_of(l), num_ids = plan_num_ids(l);
    /* the passes of a step with drafts, or one of each of two steps without */
    options.max_in_flight = o->speculative.num_speculative_tokens > 2 ? o->speculative.num_speculative_tokens : 2;
    options.num_ids = num_ids < vocab_size ? num_ids : vocab_size;
    options.is_drafter = true;
    options.drafter_spec = NULL;
    options.num_passes = 0;
    options.keep_logits = false;
    options.masks = false;
    options.host_backend = NULL;
    return options;
}

enum status loaded_draft_plan(const struct engine_options *o, struct loaded_model *l, int32_t rank,
                              const struct model_options *target, struct error *err)
{
    struct loaded_draft *d = &l->draft;
    struct memory_profile *p = loaded_rank_profile(l, rank);
    struct kv_groups groups;
    struct error why;
    int64_t bytes[NUM_PURPOSES];
    const struct model_spec *spec = loaded_draft_spec(l, rank);
    if (!d->is_open) return STATUS_OK;
    enum status status = plan_check_head_sizes(spec, target->cache_dtype, err);
    if (status != STATUS_OK) return status;
    if (kv_groups_assign(spec, &l->limits, &groups, &why) != STATUS_OK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the draft model %s cannot keep its K and V in the blocks of %s: no layer there reads all "
                         "tokens, or as many as a layer of the draft model",
                         o->speculative.model, o->model);
    const struct model_options options = options_of(o, l, target);
    status = model_plan(loaded_rank_backend(l, rank), spec, loaded_draft_weights(l, rank), &options, bytes, err);
    if (status != STATUS_OK) return status;
    p->draft_block_bytes = kv_cache_block_bytes(spec, &groups, &l->limits, target->cache_dtype);
    p->block_bytes += p->draft_block_bytes;
    p->draft_weights = bytes[PURPOSE_WEIGHTS];
    p->draft_step = bytes[PURPOSE_ACTIVATIONS] + bytes[PURPOSE_STATE] +
                    (p->discrete ? 0 : bytes[PURPOSE_HOST_STAGING] + batch_bytes(&l->limits));
    return STATUS_OK;
}

enum status loaded_draft_create(const struct engine_options *o, struct loaded_model *l,
                                const struct model_options *target, struct error *err)
{
    struct loaded_draft *d = &l->draft;
    if (!d->is_open) return STATUS_OK;
    const struct model_options options = options_of(o, l, target);
    struct model_rank ignored[COLLECTIVE_MAX_RANKS], ranks[COLLECTIVE_MAX_RANKS];
    loaded_ranks_list(l, ignored, ranks);
    const enum status status = model_create_ranks(ranks, loaded_num_ranks(l), &options, &d->model, err);
    if (status == STATUS_OK) model_attach(d->model, l->model);
    return status;
}

enum status loaded_draft_drafter(const struct engine_options *o, struct loaded_model *l, struct drafter **out,
                                 struct error *err)
{
    const int32_t length = l->limits.max_model_len;
    *out = NULL;
    if (!l->draft.model) return STATUS_OK;
    const bool both = model_spec_rope_switch(&l->draft.config.spec, length) > 0;
    const bool shifted = model_spec_rope_switch(&l->config.spec, length) > 0 && !both;
    const struct draft_model_parts parts = {.target = l->model,
                                            .model = l->draft.model,
                                            .limits = l->limits,
                                            .is_head = is_head(&l->draft),
                                            .num_passes = o->speculative.num_speculative_tokens,
                                            .vocab_size = vocab_size_of(l),
                                            .position_shift = shifted ? length : 0};
    return draft_model_create(&parts, out, err);
}

/* Each model grows by pieces of a size of its own. */
enum status loaded_draft_grow_swap_space(struct loaded_model *l, int32_t added, struct error *err)
{
    struct loaded_draft *d = &l->draft;
    enum status status = STATUS_OK;
    if (!d->model) return STATUS_OK;
    d->missing_blocks += added;
    while (d->missing_blocks > 0 && status == STATUS_OK) {
        status = model_grow_swap_space(d->model, l->profile.num_host_blocks, &added, err);
        if (status == STATUS_OK) d->missing_blocks -= added;
    }
    return status;
}

void loaded_draft_close(struct loaded_model *l)
{
    struct loaded_draft *d = &l->draft;
    model_destroy(d->model);
    model_weights_close(&d->weights);
    for (int32_t r = 1; d->ranks && r < l->num_ranks; r++) model_weights_close(&d->ranks[r].weights);
    free(d->ranks);
    *d = (struct loaded_draft){0};
}
