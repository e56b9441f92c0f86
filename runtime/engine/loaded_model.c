#include "runtime/engine/loaded_model_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/plural.h"
#include "kernels/ranks.h"
#include "model/checkpoint/check_finite.h"
#include "model/kv_groups.h"
#include "model/quantization.h"
#include "runtime/engine/loaded_draft.h"
#include "runtime/engine/loaded_nodes.h"
#include "runtime/engine/loaded_ranks.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/engine/plan.h"

enum status open_device(const char *device, int threads, const char *cpu_isa, const struct log *log,
                        struct backend **out, struct error *err)
{
    struct error why = {""};
    enum status status = backend_open(device, threads, out, &why);
    if (status != STATUS_OK) return error_set(err, status, "%s", why.text);
    status = backend_choose_isa(*out, cpu_isa, err);
    if (status != STATUS_OK) {
        (*out)->destroy(*out);
        *out = NULL;
        return status;
    }
    if ((*out)->isa) log_write(log, LOG_INFO, "%s: kernels for %s", (*out)->name, (*out)->isa);
    if ((*out)->description) log_write(log, LOG_INFO, "%s: %s", (*out)->name, (*out)->description);
    if (strcmp(device, "auto") == 0 && why.text[0]) log_write(log, LOG_WARNING, "no GPU is used: %s", why.text);
    return STATUS_OK;
}

/* Why offloading experts changes nothing; NULL: it does, or nobody asked for it. */
static const char *why_no_experts(const struct engine_options *o, const struct loaded_model *l)
{
    if (o->cpu_offload_experts == 0) return NULL;
    if (!l->backend->discrete) return "the CPU computes everything";
    return plan_host_expert_layers(o, l) == 0 ? "the model has no experts" : NULL;
}

/* Opens the CPU for the experts that it is to compute. One of its threads is left to drive the GPU. */
static enum status open_host_backend(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const int threads = engine_options_threads(o);
    const char *why = why_no_experts(o, l);
    if (why) log_write(o->log, LOG_WARNING, "%s: %s, so offloading experts changes nothing", o->model, why);
    if (o->cpu_offload_embeddings && !l->backend->discrete)
        log_write(o->log, LOG_WARNING, "%s: the CPU computes everything, so offloading embeddings changes nothing",
                  o->model);
    if (plan_host_expert_layers(o, l) == 0) return STATUS_OK;
    const bool leave_one = o->threads == 0 && threads > 1;
    enum status status = backend_cpu_open(leave_one ? threads - 1 : threads, &l->host_backend, err);
    return status == STATUS_OK ? backend_choose_isa(l->host_backend, o->cpu_isa, err) : status;
}

static void warn_of_dynamic_rope(const struct engine_options *o, const struct model_config *config)
{
    if (config->spec.ropes[0].type == ROPE_DYNAMIC)
        log_write(o->log, LOG_WARNING,
                  "%s: rope_type \"dynamic\": quire rotates with the base of the longest context, as vLLM does; "
                  "transformers changes the base with the length of the text, so its answers differ at every length",
                  o->model);
}

/* A folder may have the same vocabulary in two files. */
static void report_tokenizer(const struct engine_options *o, const struct tokenizer *t)
{
    char other[PATH_MAX];
    if (strcmp(tokenizer_file(t), "tokenizer.json") == 0 &&
        path_join(other, sizeof other, o->model, "tokenizer.model") && file_exists(other))
        log_write(o->log, LOG_INFO, "%s: the tokenizer is tokenizer.json; tokenizer.model is not read", o->model);
}

static void warn_of_vocabulary(const struct engine_options *o, const struct loaded_model *l)
{
    const struct model_config *c = &l->config;
    const int32_t num_ids = plan_num_ids(l);
    if (l->tokenizer && tokenizer_size(l->tokenizer) > c->spec.vocab_size)
        log_write(o->log, LOG_WARNING, "%s: the tokenizer knows %d tokens, the model %d; the last ones cannot be used",
                  o->model, tokenizer_size(l->tokenizer), c->spec.vocab_size);
    for (int32_t i = 0; i < c->num_eos; i++)
        if (c->eos_token_ids[i] >= num_ids)
            log_write(o->log, LOG_WARNING,
                      "%s: the end-of-sequence id %d is never sampled: this model's tokens are 0 to %d", o->model,
                      c->eos_token_ids[i], num_ids - 1);
}

/* Reads config.json, and makes of it what o->quantization asks for. */
static enum status read_config(const struct engine_options *o, struct model_config *config, struct error *err)
{
    enum status status = model_config_load(o->model, o->generation_config, o->log, config, err);
    return status == STATUS_OK ? quantization_apply(&config->spec, o->quantization, err) : status;
}

/* The device makes its matrices if it can, and the host then has none, unless some stay there. */
static enum status make_dummy(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const bool by_device = l->backend->fill_dummy && o->cpu_offload_experts == 0 && !o->cpu_offload_embeddings;
    return model_weights_dummy(loaded_spec(l), o->seed, by_device, &l->weights, err);
}

/* The devices: of several ranks all of them. */
static enum status open_devices(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    char device[32];
    if (engine_options_ranks(o) > 1) backend_expect_ranks();
    enum status status = loaded_rank_device(o, NULL, 0, device, sizeof device, err);
    if (status == STATUS_OK) status = open_device(device, loaded_rank_threads(o), o->cpu_isa, o->log, &l->backend, err);
    if (status == STATUS_OK) status = loaded_ranks_open(o, l, err);
    return status == STATUS_OK ? open_host_backend(o, l, err) : status;
}

static enum status open_checkpoint(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = read_config(o, &l->config, err);
    if (status == STATUS_OK) status = loaded_nodes_open(o, l, err);
    if (status == STATUS_OK) status = open_devices(o, l, err);
    if (status != STATUS_OK) return status;
    warn_of_dynamic_rope(o, &l->config);
    if (o->load_format == LOAD_FORMAT_DUMMY)
        status = make_dummy(o, l, err);
    else
        status = model_weights_open(o->model, loaded_spec(l), o->log, &l->weights, err);
    if (status == STATUS_OK) status = loaded_ranks_open_weights(o, l, err);
    if (status == STATUS_OK) tensor_file_check_finite(l->weights.file, o->log);
    if (status == STATUS_OK && !o->skip_tokenizer) status = tokenizer_open(o->model, &l->tokenizer, err);
    if (status == STATUS_OK && l->tokenizer) report_tokenizer(o, l->tokenizer);
    if (status == STATUS_OK) warn_of_vocabulary(o, l);
    return status == STATUS_OK ? loaded_draft_open(o, l, err) : status;
}

static enum status plan_or_advise(const struct engine_options *options, struct loaded_model *l,
                                  struct model_options *model_options, struct error *err)
{
    const enum status status = plan_make(options, l, model_options, err);
    if (status != STATUS_OK) plan_advise(options, l, err);
    return status;
}

enum status loaded_model_plan(const struct engine_options *options, struct loaded_model *l, bool leave_out_dummy,
                              struct error *err)
{
    struct model_options ignored;
    const enum status status = plan_or_advise(options, l, &ignored, err);
    if (status != STATUS_OUT_OF_MEMORY || l->dummy_to_come == 0 || !leave_out_dummy) return status;
    l->dummy_to_come = 0;
    return plan_or_advise(options, l, &ignored, err);
}

/* Fewer sequences than usual run at once, because each has states. */
static void warn_of_states(const struct engine_options *o, const struct loaded_model *l)
{
    struct error warning;
    if (!l->lowered_for_states) return;
    error_set(
        &warning, STATUS_OK,
        "the state slots of %d sequences, of %.1f MiB each, would take more memory than they leave to the KV cache",
        memory_plan_usual_seqs(o), (double)l->profile.slot_bytes / (1 << 20));
    error_advise(&warning, ADVICE_LOWERED, "max_num_seqs", "%d", l->limits.max_num_seqs);
    log_warn(o->log, &warning);
}

/* What nobody set is smaller than usual. */
static void warn_of_lowered(const struct engine_options *o, const struct loaded_model *l)
{
    const struct memory_profile *p = &l->profile;
    const bool shorter = o->max_model_len == 0 && l->limits.max_model_len < p->model_max_len;
    const bool seqs = l->lowered_seqs && !l->lowered_for_states;
    struct error warning;
    if (!shorter && !l->lowered_tokens && !seqs) return;
    if (shorter)
        error_set(&warning, STATUS_OK,
                  "the model's %d tokens do not fit in the KV cache, which has %d block%s of %d tokens",
                  p->model_max_len, p->num_blocks, plural(p->num_blocks), l->limits.block_size);
    else
        error_set(&warning, STATUS_OK, "memory is short");
    if (shorter) error_advise(&warning, ADVICE_LOWERED, "max_model_len", "%d", l->limits.max_model_len);
    if (l->lowered_tokens)
        error_advise(&warning, ADVICE_LOWERED, "max_num_batched_tokens", "%d", l->limits.max_num_tokens);
    if (seqs) error_advise(&warning, ADVICE_LOWERED, "max_num_seqs", "%d", l->limits.max_num_seqs);
    log_warn(o->log, &warning);
}

/* Plans again if another engine that is to have the same limits has lower ones. */
static enum status plan_in_common(const struct engine_options *options, struct loaded_model *l,
                                  struct model_options *model_options, struct error *err)
{
    enum status status = plan_or_advise(options, l, model_options, err);
    struct common_limits common = {l->limits.max_model_len, l->limits.max_num_seqs};
    struct engine_options lower = *options;
    if (status != STATUS_OK || !options->agree) return status;
    status = options->agree(options->agree_context, &common, err);
    const bool same = common.max_model_len == l->limits.max_model_len && common.max_num_seqs == l->limits.max_num_seqs;
    if (status != STATUS_OK || same) return status;
    lower.max_model_len = common.max_model_len;
    lower.max_num_seqs = common.max_num_seqs;
    return plan_or_advise(&lower, l, model_options, err);
}

static enum status plan_and_allocate(const struct engine_options *options, struct loaded_model *l, struct error *err)
{
    struct model_options model_options;
    enum status status = plan_in_common(options, l, &model_options, err);
    if (status == STATUS_OK) status = memory_allocate(options, l, &model_options, err);
    if (status == STATUS_OK) status = loaded_model_check_files(l, err);
    if (status == STATUS_OK) warn_of_states(options, l);
    if (status == STATUS_OK) warn_of_lowered(options, l);
    return status;
}

static enum status create(struct loaded_model **out, struct error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
}

/* `why` it is closed, if that is a failure. */
static void close_all(struct loaded_model *l, enum status status, const struct error *why)
{
    loaded_draft_close(l);
    model_destroy(l->model);
    loaded_ranks_close(l);
    model_weights_close(&l->weights);
    tokenizer_close(l->tokenizer);
    if (l->host_backend) l->host_backend->destroy(l->host_backend);
    if (l->backend) l->backend->destroy(l->backend);
    loaded_nodes_close(l, status, why);
    free(l);
}

/* What a failure leaves in *out is closed. */
static enum status opened(enum status status, struct loaded_model **out, const struct error *why)
{
    if (status == STATUS_OK) return status;
    if (*out) close_all(*out, status, why);
    *out = NULL;
    return status;
}

enum status loaded_model_open(const struct engine_options *options, struct loaded_model **out, struct error *err)
{
    enum status status = create(out, err);
    if (status == STATUS_OK) status = open_checkpoint(options, *out, err);
    if (status == STATUS_OK) status = plan_and_allocate(options, *out, err);
    return opened(status, out, err);
}

enum status loaded_model_serve(const struct engine_options *options, struct error *err)
{
    struct loaded_model *l;
    enum status status = create(&l, err);
    if (status == STATUS_OK) status = open_checkpoint(options, l, err);
    if (status == STATUS_OK) plan_places(options, l);
    if (status == STATUS_OK) status = loaded_nodes_serve(l, err);
    if (l) close_all(l, status, err);
    return status;
}

enum status loaded_model_dismiss_nodes(const struct engine_options *options, struct error *err)
{
    struct loaded_model *l;
    enum status status = create(&l, err);
    if (status == STATUS_OK) status = loaded_nodes_open(options, l, err);
    loaded_model_close(l);
    return status;
}

enum status loaded_model_open_tokenizer(const struct engine_options *options, struct loaded_model *l, struct error *err)
{
    return tokenizer_open(options->model, &l->tokenizer, err);
}

static enum status outline(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = read_config(o, &l->config, err);
    if (status == STATUS_OK && !o->skip_tokenizer) status = loaded_model_open_tokenizer(o, l, err);
    if (status != STATUS_OK) return status;
    l->profile.model_max_len = model_spec_max_length(&l->config.spec);
    l->limits.max_model_len = o->max_model_len > 0 ? o->max_model_len : l->profile.model_max_len;
    l->limits.max_num_seqs = memory_plan_usual_seqs(o);
    l->limits.block_size = o->block_size;
    kv_groups_choose(&l->config.spec, &l->limits);
    return STATUS_OK;
}

enum status loaded_model_outline(const struct engine_options *options, struct loaded_model **out, struct error *err)
{
    enum status status = create(out, err);
    if (status == STATUS_OK) status = outline(options, *out, err);
    return opened(status, out, err);
}

/* INVALID or IO of the weights is no failure: their sizes follow from the spec. */
static enum status describe_weights(const struct engine_options *o, struct loaded_model *l, struct error *weights_error,
                                    struct error *err)
{
    *weights_error = (struct error){""};
    const bool dummy = o->load_format == LOAD_FORMAT_DUMMY;
    if (!dummy && model_weights_open(o->model, loaded_spec(l), o->log, &l->weights, weights_error) == STATUS_OK)
        return loaded_ranks_open_weights(o, l, err);
    enum status status = model_weights_sizes(loaded_spec(l), &l->weights, err);
    if (status == STATUS_OK) status = loaded_ranks_size_weights(l, err);
    for (int32_t r = 0; r < loaded_num_ranks(l) && dummy && !l->backend->discrete; r++)
        l->dummy_to_come += loaded_rank_weights(l, r)->bytes;
    return status;
}

static enum status describe(const struct engine_options *o, struct loaded_model *l, struct error *weights_error,
                            struct error *err)
{
    enum status status = read_config(o, &l->config, err);
    if (status == STATUS_OK) status = open_devices(o, l, err);
    if (status != STATUS_OK) return status;
    warn_of_dynamic_rope(o, &l->config);
    status = describe_weights(o, l, weights_error, err);
    return status == STATUS_OK ? loaded_draft_open(o, l, err) : status;
}

enum status loaded_model_describe(const struct engine_options *options, struct loaded_model **out,
                                  struct error *weights_error, struct error *err)
{
    enum status status = create(out, err);
    if (status == STATUS_OK) status = describe(options, *out, weights_error, err);
    return opened(status, out, err);
}

enum status loaded_model_load(const struct engine_options *options, struct loaded_model *l, struct error *err)
{
    enum status status = loaded_nodes_open(options, l, err);
    if (status == STATUS_OK && options->load_format == LOAD_FORMAT_DUMMY) {
        for (int32_t r = 0; r < loaded_num_ranks(l); r++) model_weights_close(loaded_rank_weights(l, r));
        l->dummy_to_come = 0;
        status = make_dummy(options, l, err);
        if (status == STATUS_OK) status = loaded_ranks_open_weights(options, l, err);
    }
    return status == STATUS_OK ? plan_and_allocate(options, l, err) : status;
}

enum status loaded_model_check_files(const struct loaded_model *l, struct error *err)
{
    enum status status = l->weights.file ? tensor_file_check_unchanged(l->weights.file, err) : STATUS_OK;
    if (status == STATUS_OK && l->draft.weights.file) status = tensor_file_check_unchanged(l->draft.weights.file, err);
    return status;
}

void loaded_model_close(struct loaded_model *l)
{
    if (l) close_all(l, STATUS_OK, NULL);
}

/* ---- facts ---- */

/* sampling_params_default() with the values of generation_config.json over it, as vLLM does. */
static struct sampling_params default_sampling(const struct generation_config *g)
{
    struct sampling_params params = sampling_params_default();
    if (!isnan(g->temperature)) params.temperature = g->temperature;
    if (!isnan(g->top_p)) params.top_p = g->top_p;
    if (!isnan(g->min_p)) params.min_p = g->min_p;
    if (!isnan(g->repetition_penalty)) params.repetition_penalty = g->repetition_penalty;
    if (g->top_k >= 0) params.top_k = g->top_k;
    if (g->max_new_tokens >= 0) params.max_tokens = g->max_new_tokens;
    if (g->do_sample_given && !g->do_sample) params.temperature = 0;
    return params;
}

struct engine_info loaded_model_info(const struct engine_options *options, const struct loaded_model *l)
{
    const struct backend *b = l->backend;
    return (struct engine_info){
        .device = b ? b->name : NULL,
        .device_description = b ? b->description : NULL,
        .discrete = b && b->discrete,
        .threads = engine_options_threads(options),
        .isa = b ? b->isa : NULL,
        .config = &l->config,
        .tokenizer = l->tokenizer,
        .num_ids = plan_num_ids(l),
        .default_sampling = default_sampling(&l->config.generation),
        .draft_config = l->draft.is_open ? &l->draft.config : NULL,
        .draft_weights = l->draft.is_open ? &l->draft.weights : NULL,
        .weights = &l->weights,
        .decode_weight_bytes = l->model ? model_decode_weight_bytes(l->model) : 0,
        .memory = &l->profile,
        .rank_memory = l->rank_profiles ? l->rank_profiles : &l->profile,
        .num_ranks = loaded_num_ranks(l),
        .limits = &l->limits,
        .loaded = l,
    };
}
