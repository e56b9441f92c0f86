#include "runtime/engine/plan.h"

#include <stdlib.h>
#include <string.h>

#include "model/quantization.h"
#include "model/shard.h"
#include "runtime/engine/loaded_ranks.h"
#include "runtime/engine/memory_plan.h"

/* `option` is the name of a field of struct engine_options, for the sentence. */
static enum status parse_dtype(const char *option, const char *name, enum dtype fallback, bool may_be_fp8,
                               enum dtype *out, struct error *err)
{
    if (!name || strcmp(name, "auto") == 0) {
        *out = fallback;
        return STATUS_OK;
    }
    if (dtype_parse(name, out) == 0 && (may_be_fp8 || dtype_size(*out) > 1)) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s is \"%s\", but must be auto, float32, float16%s", option, name,
                     may_be_fp8 ? ", bfloat16, fp8, fp8_e4m3 or fp8_e5m2" : " or bfloat16");
}

enum status plan_check_head_sizes(const struct model_spec *spec, enum dtype cache_dtype, struct error *err)
{
    const int x = 16 / dtype_size(cache_dtype);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct attention_spec *a = &spec->layers[i].attention;
        const int32_t head_size = a->head_size % x ? a->head_size : attention_v_head_size(a);
        if (head_size % x == 0) continue;
        return error_set(err, STATUS_UNSUPPORTED,
                         "the model's head size %d is not a multiple of %d, which a KV cache of type %s needs",
                         head_size, x, dtype_name(cache_dtype));
    }
    return STATUS_OK;
}

/* Activations are float32 on the CPU, where converting them costs nothing beside reading the weights. A GPU computes in
 * the checkpoint's type. */
static enum status choose_dtypes(const struct engine_options *o, const struct loaded_model *l,
                                 struct model_options *model_options, struct error *err)
{
    const enum dtype usual = l->backend->discrete ? l->config.spec.dtype : DTYPE_FLOAT32;
    enum status status = parse_dtype("dtype", o->dtype, usual, false, &model_options->dtype, err);
    if (status == STATUS_OK)
        status = parse_dtype("kv_cache_dtype", o->kv_cache_dtype, model_options->dtype, true,
                             &model_options->cache_dtype, err);
    if (status != STATUS_OK) return status;
    return plan_check_head_sizes(&l->config.spec, model_options->cache_dtype, err);
}

static enum status check_block_size(int32_t block_size, struct error *err)
{
    if (block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "block_size is %d, but must be 8, 16, 32, 64 or 128", block_size);
}

int32_t plan_num_ids(const struct loaded_model *l)
{
    const int32_t vocab_size = l->config.spec.vocab_size;
    return l->tokenizer && tokenizer_size(l->tokenizer) < vocab_size ? tokenizer_size(l->tokenizer) : vocab_size;
}

int32_t plan_host_expert_layers(const struct engine_options *o, const struct loaded_model *l)
{
    const struct model_spec *spec = &l->config.spec;
    if (!l->backend->discrete || l->num_ranks > 1 || model_spec_num_experts(spec) == 0) return 0;
    return o->cpu_offload_experts < spec->num_layers ? o->cpu_offload_experts : spec->num_layers;
}

void plan_places(const struct engine_options *o, struct loaded_model *l)
{
    l->weights.host_expert_layers = plan_host_expert_layers(o, l);
    for (int32_t r = 0; r < loaded_num_ranks(l); r++)
        loaded_rank_weights(l, r)->host_embeddings = o->cpu_offload_embeddings && l->backend->discrete;
}

enum status plan_make(const struct engine_options *options, struct loaded_model *l, struct model_options *model_options,
                      struct error *err)
{
    *model_options = (struct model_options){
        .num_ids = plan_num_ids(l),
        .max_in_flight = options->pipeline_parallel_size > 2 ? options->pipeline_parallel_size : 2,
        .enforce_eager = options->enforce_eager,
        .cancel = l->backend->discrete ? NULL : options->cancel,
        .copy_weights = l->backend->discrete,
        .host_backend = l->host_backend,
        .nodes = l->nodes,
        .masks = !l->nodes};
    plan_places(options, l);
    enum status status = memory_plan_device(options, l, err);
    if (status == STATUS_OK) status = check_block_size(options->block_size, err);
    if (status == STATUS_OK) status = choose_dtypes(options, l, model_options, err);
    return status == STATUS_OK ? memory_plan(options, l, model_options, err) : status;
}

/* Gives l, which borrows what base owns, ranks of its own spec. `same`: with the weights of base. */
static enum status share_again(const struct loaded_model *base, struct loaded_model *l, bool same, struct error *err)
{
    enum status status = STATUS_OK;
    l->ranks = calloc((size_t)base->num_ranks, sizeof *l->ranks);
    l->rank_profiles = calloc((size_t)base->num_ranks, sizeof *l->rank_profiles);
    if (!l->ranks || !l->rank_profiles) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    status = loaded_stages_make(l, err);
    for (int32_t r = 0; r < base->num_ranks && status == STATUS_OK; r++) {
        struct loaded_rank *rank = &l->ranks[r];
        rank->backend = base->ranks[r].backend;
        status = loaded_rank_share(l, r, &rank->spec, err);
        if (same)
            rank->weights = base->ranks[r].weights;
        else if (r > 0 && status == STATUS_OK)
            status = model_weights_sizes(&rank->spec, &rank->weights, err);
    }
    return status;
}

enum status plan_again(const struct engine_options *options, const struct loaded_model *base, enum dtype weights_dtype,
                       struct memory_profile *profile, struct batch_limits *limits, struct error *err)
{
    struct model_options ignored;
    /* Borrows what base owns. */
    struct loaded_model l = {.backend = base->backend,
                             .host_backend = base->host_backend,
                             .config = base->config,
                             .draft = base->draft,
                             .tokenizer = base->tokenizer,
                             .num_ranks = base->num_ranks,
                             .first_rank = base->first_rank,
                             .total_ranks = base->total_ranks,
                             .num_stages = base->num_stages,
                             .before = base};
    struct model_weights sizes = {0};
    enum status status = quantization_apply(&l.config.spec, options->quantization, err);
    l.weights = base->weights;
    l.config.spec.dtype = weights_dtype;
    const bool same =
        weights_dtype == base->config.spec.dtype && l.config.spec.num_schemes == base->config.spec.num_schemes;
    if (base->ranks && status == STATUS_OK) status = share_again(base, &l, same, err);
    if (status == STATUS_OK && !same) {
        status = model_weights_sizes(loaded_spec(&l), &sizes, err);
        l.weights = sizes;
    }
    if (status == STATUS_OK) status = plan_make(options, &l, &ignored, err);
    *profile = l.profile;
    *limits = l.limits;
    model_weights_close(&sizes);
    for (int32_t r = 1; l.ranks && !same && r < l.num_ranks; r++) model_weights_close(&l.ranks[r].weights);
    free(l.ranks);
    free(l.rank_profiles);
    free(l.stages);
    return status;
}
