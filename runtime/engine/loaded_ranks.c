#include "runtime/engine/loaded_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gpu_list.h"
#include "model/nodes/nodes.h"
#include "model/shard.h"
#include "model/stage.h"
#include "runtime/engine/loaded_draft.h"

const struct model_spec *loaded_spec(const struct loaded_model *l)
{
    return l->ranks ? &l->ranks[0].spec : &l->config.spec;
}

/* Ranks of this process. */
static int32_t num_ranks_here(const struct engine_options *o)
{
    return engine_options_ranks(o) / o->nnodes;
}

int32_t loaded_num_ranks(const struct loaded_model *l)
{
    return l->num_ranks > 1 ? l->num_ranks : 1;
}

struct backend *loaded_rank_backend(const struct loaded_model *l, int32_t rank)
{
    return rank > 0 ? l->ranks[rank].backend : l->backend;
}

const struct model_spec *loaded_rank_spec(const struct loaded_model *l, int32_t rank)
{
    return rank > 0 ? &l->ranks[rank].spec : loaded_spec(l);
}

struct model_weights *loaded_rank_weights(struct loaded_model *l, int32_t rank)
{
    return rank > 0 ? &l->ranks[rank].weights : &l->weights;
}

struct memory_profile *loaded_rank_profile(struct loaded_model *l, int32_t rank)
{
    return l->rank_profiles ? &l->rank_profiles[rank] : &l->profile;
}

int loaded_rank_threads(const struct engine_options *o)
{
    const int threads = engine_options_threads(o) / num_ranks_here(o);
    if (num_ranks_here(o) == 1) return o->threads;
    return threads > 0 ? threads : 1;
}

enum status loaded_rank_device(const struct engine_options *o, const struct backend *first, int32_t rank, char *device,
                               size_t size, struct error *err)
{
    const int32_t num_ranks = num_ranks_here(o), count = gpu_list_count(o->device);
    if (count > 1) {
        snprintf(device, size, "cuda:%d", gpu_list_at(o->device, rank < count ? rank : 0));
        if (count == num_ranks) return STATUS_OK;
        if (o->pipeline_parallel_size > 1)
            return error_set(err, STATUS_INVALID,
                             "device '%s' names %d GPUs, but tensor_parallel_size %d and pipeline_parallel_size %d "
                             "need %d",
                             o->device, count, o->tensor_parallel_size, o->pipeline_parallel_size, num_ranks);
        return error_set(err, STATUS_INVALID, "device '%s' names %d GPUs, but tensor_parallel_size is %d%s", o->device,
                         count, o->tensor_parallel_size, o->nnodes > 1 ? ", shared by the nodes" : "");
    }
    if (rank == 0)
        snprintf(device, size, "%s", o->device);
    else if (first->discrete)
        snprintf(device, size, "cuda:%d", gpu_list_at(first->name, 0) + rank);
    else
        snprintf(device, size, "cpu");
    return STATUS_OK;
}

static enum status check_expert_parallel(const struct engine_options *o, const struct loaded_model *l,
                                         struct error *err)
{
    if (!o->enable_expert_parallel) return STATUS_OK;
    if (o->tensor_parallel_size == 1)
        return error_set(err, STATUS_INVALID,
                         "enable_expert_parallel shares the experts out to ranks, but tensor_parallel_size is 1");
    if (model_spec_num_experts(&l->config.spec) > 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the model has no experts, which enable_expert_parallel shares out to ranks");
}

/* What ranks, or stages, do not do yet is refused. */
static enum status check(const struct engine_options *o, struct error *err)
{
    const bool stages = o->pipeline_parallel_size > 1;
    const enum draft_method method = o->speculative.method;
    const char *what = o->cpu_offload_experts > 0            ? "cpu_offload_experts"
                       : stages && o->cpu_offload_embeddings ? "cpu_offload_embeddings"
                       : stages && o->nnodes > 1             ? "several nodes"
                       : stages && method == DRAFT_MODEL     ? "a draft model"
                       : stages && method == DRAFT_MTP       ? "the model's own layers for multi-token prediction"
                                                             : NULL;
    if (engine_options_ranks(o) > COLLECTIVE_MAX_RANKS)
        return error_set(err, STATUS_INVALID,
                         "tensor_parallel_size %d and pipeline_parallel_size %d make %d ranks; there may be %d at most",
                         o->tensor_parallel_size, o->pipeline_parallel_size, engine_options_ranks(o),
                         COLLECTIVE_MAX_RANKS);
    if (!what) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "%s_parallel_size is %d, which quire does not combine with %s",
                     stages ? "pipeline" : "tensor", stages ? o->pipeline_parallel_size : o->tensor_parallel_size,
                     what);
}

enum status loaded_stages_make(struct loaded_model *l, struct error *err)
{
    enum status status = STATUS_OK;
    if (l->num_stages <= 1) return STATUS_OK;
    l->stages = malloc((size_t)l->num_stages * sizeof *l->stages);
    if (!l->stages) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    for (int32_t s = 0; s < l->num_stages && status == STATUS_OK; s++)
        status = model_spec_stage(&l->config.spec, s, l->num_stages, &l->stages[s], err);
    return status;
}

enum status loaded_rank_share(const struct loaded_model *l, int32_t rank, struct model_spec *out, struct error *err)
{
    const int32_t of_stage = l->stages ? l->total_ranks / l->num_stages : l->total_ranks, number = l->first_rank + rank;
    const struct model_spec *whole = l->stages ? &l->stages[number / of_stage] : &l->config.spec;
    return model_spec_shard(whole, number % of_stage, of_stage, out, err);
}

enum status loaded_ranks_open(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = check_expert_parallel(o, l, err);
    if (status != STATUS_OK || engine_options_ranks(o) == 1) return status;
    status = check(o, err);
    if (status != STATUS_OK) return status;
    l->config.spec.expert_parallel = o->enable_expert_parallel;
    l->num_ranks = num_ranks_here(o);
    l->ranks = calloc((size_t)l->num_ranks, sizeof *l->ranks);
    l->rank_profiles = calloc((size_t)l->num_ranks, sizeof *l->rank_profiles);
    if (!l->ranks || !l->rank_profiles) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    l->first_rank = o->node_rank > 0 ? o->node_rank * l->num_ranks : 0;
    l->total_ranks = engine_options_ranks(o);
    l->num_stages = o->pipeline_parallel_size;
    status = loaded_stages_make(l, err);
    for (int32_t r = 0; r < l->num_ranks && status == STATUS_OK; r++) {
        char device[32];
        status = loaded_rank_share(l, r, &l->ranks[r].spec, err);
        if (r == 0 || status != STATUS_OK) continue;
        status = loaded_rank_device(o, l->backend, r, device, sizeof device, err);
        if (status == STATUS_OK)
            status = open_device(device, loaded_rank_threads(o), o->cpu_isa, o->log, &l->ranks[r].backend, err);
    }
    return status;
}

static enum status open_weights(const struct engine_options *o, const struct loaded_model *l, struct loaded_rank *rank,
                                struct error *err)
{
    const bool by_device = l->backend->fill_dummy && !o->cpu_offload_embeddings;
    if (o->load_format == LOAD_FORMAT_DUMMY)
        return model_weights_dummy(&rank->spec, o->seed, by_device, &rank->weights, err);
    return model_weights_open(o->model, &rank->spec, NULL, &rank->weights, err);
}

enum status loaded_ranks_open_weights(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 1; r < l->num_ranks && status == STATUS_OK; r++) status = open_weights(o, l, &l->ranks[r], err);
    return status;
}

enum status loaded_ranks_size_weights(struct loaded_model *l, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 1; r < l->num_ranks && status == STATUS_OK; r++)
        status = model_weights_sizes(&l->ranks[r].spec, &l->ranks[r].weights, err);
    return status;
}

void loaded_ranks_close(struct loaded_model *l)
{
    for (int32_t r = 1; r < l->num_ranks; r++) {
        struct loaded_rank *rank = &l->ranks[r];
        model_weights_close(&rank->weights);
        if (rank->backend) rank->backend->destroy(rank->backend);
    }
    free(l->ranks);
    free(l->rank_profiles);
    free(l->stages);
}

void loaded_ranks_list(struct loaded_model *l, struct model_rank *ranks, struct model_rank *drafter_ranks)
{
    for (int32_t r = 0; r < loaded_num_ranks(l); r++) {
        struct backend *b = loaded_rank_backend(l, r);
        ranks[r] =
            (struct model_rank){.backend = b, .spec = loaded_rank_spec(l, r), .weights = loaded_rank_weights(l, r)};
        if (!l->draft.is_open) continue;
        ranks[r].drafter_spec = loaded_draft_spec(l, r), ranks[r].drafter_weights = loaded_draft_weights(l, r);
        drafter_ranks[r] =
            (struct model_rank){.backend = b, .spec = loaded_draft_spec(l, r), .weights = loaded_draft_weights(l, r)};
    }
}

enum status loaded_ranks_create(struct loaded_model *l, const struct model_options *options, struct error *err)
{
    struct model_rank ranks[COLLECTIVE_MAX_RANKS], ignored[COLLECTIVE_MAX_RANKS];
    loaded_ranks_list(l, ranks, ignored);
    return model_create_ranks(ranks, loaded_num_ranks(l), options, &l->model, err);
}

enum status loaded_rank_memory(const struct loaded_model *l, int32_t rank, int64_t *available, int64_t *total,
                               struct error *err)
{
    struct backend *b = loaded_rank_backend(l, rank);
    const enum status status = b->memory_info(b, available, total, err);
    return status == STATUS_OK && l->nodes ? nodes_memory(l->nodes, available, total, err) : status;
}
