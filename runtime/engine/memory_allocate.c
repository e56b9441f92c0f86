#include "runtime/engine/loaded_draft.h"
#include "runtime/engine/loaded_ranks.h"
#include "runtime/engine/memory_plan.h"
#include "runtime/engine/plan.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static enum status allocate_cache(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const struct memory_profile *p = &l->profile;
    struct error cause;
    enum status status = model_allocate_cache(l->model, p->num_blocks, &cause);
    if (status == STATUS_OK && l->draft.model) status = model_allocate_cache(l->draft.model, p->num_blocks, &cause);
    if (status == STATUS_OK) return status;
    if (status != STATUS_OUT_OF_MEMORY) return error_set(err, status, "%s", cause.text);
    error_set(err, status, "there is no room for a KV cache of %.2f GiB (%s)", (double)p->kv_cache / GIB, cause.text);
    plan_advise_less(o, l, err);
    return status;
}

/* Of the model and, if there is one, of its draft model. */
static enum status for_both(const struct loaded_model *l, enum status (*function)(struct model *m, struct error *err),
                            struct error *err)
{
    const enum status status = function(l->model, err);
    return status == STATUS_OK && l->draft.model ? function(l->draft.model, err) : status;
}

static enum status measure_rank(struct loaded_model *l, int32_t rank, struct error *err)
{
    struct memory_profile *p = loaded_rank_profile(l, rank);
    int64_t available;
    const enum status status = loaded_rank_memory(l, rank, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    /* The null block is a part of the cache, which is not allocated yet. */
    const int64_t known = p->others + p->weights + memory_profile_draft(p) + p->activations + p->workspace + p->state +
                          p->state_slots - p->block_bytes;
    if (p->total - available > known) p->context = p->total - available - known;
    return STATUS_OK;
}

/* Runs a small step of each kind, so that everything that a GPU loads on first use (kernels, cuBLAS) is loaded, and
 * counts the blocks again with what the device then says it holds. If there are fewer than planned, max_model_len may
 * become shorter than the tables that were allocated for it. */
static enum status measure_context(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = for_both(l, model_warm_up, err);
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++) status = measure_rank(l, r, err);
    if (status != STATUS_OK) return status;
    memory_plan_count_blocks(o, l);
    const struct memory_profile *p = &l->profile;
    const int32_t longest = memory_longest_request(&l->limits, p->num_blocks);
    if (o->max_model_len == 0 && !memory_profile_fits(p, &l->limits) && longest > 0) l->limits.max_model_len = longest;
    struct common_limits common = {l->limits.max_model_len, l->limits.max_num_seqs};
    status = o->agree ? o->agree(o->agree_context, &common, err) : STATUS_OK;
    if (status != STATUS_OK) return status;
    l->limits.max_model_len = common.max_model_len;
    status = memory_profile_check(p, &l->limits, err);
    if (status != STATUS_OK) plan_advise(o, l, err);
    return status;
}

/* What each rank's device holds by its own count. */
static enum status measure_use(struct loaded_model *l, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++) {
        struct memory_profile *p = loaded_rank_profile(l, r);
        int64_t available;
        status = loaded_rank_memory(l, r, &available, &p->total, err);
        if (status == STATUS_OK) p->in_use = p->total - available;
    }
    return status;
}

/* Other threads copy the weights to the GPU meanwhile; this waits for them last. */
static enum status allocate_gpu(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    int64_t before[COLLECTIVE_MAX_RANKS];
    enum status status = measure_context(o, l, err);
    if (status == STATUS_OK) status = allocate_cache(o, l, err);
    if (status == STATUS_OK) status = measure_use(l, err);
    if (status != STATUS_OK) return status;
    for (int32_t r = 0; r < loaded_num_ranks(l); r++) before[r] = loaded_rank_profile(l, r)->in_use;
    status = for_both(l, model_capture, err);
    if (status == STATUS_OK) status = for_both(l, model_wait_for_weights, err);
    if (status == STATUS_OK) status = measure_use(l, err);
    for (int32_t r = 0; r < loaded_num_ranks(l) && status == STATUS_OK; r++) {
        struct memory_profile *p = loaded_rank_profile(l, r);
        p->graphs = p->in_use > before[r] ? p->in_use - before[r] : 0;
    }
    if (l->rank_profiles) l->profile = l->rank_profiles[l->shortest_rank];
    return status;
}

/* Names what was asked for in all: the allocation that failed may be a small one. */
static enum status no_memory(const struct engine_options *o, const struct loaded_model *l, const struct error *cause,
                             struct error *err)
{
    const struct memory_profile *p = &l->profile;
    error_set(err, STATUS_OUT_OF_MEMORY,
              "there is no room for the %.2f GiB of %sactivations, workspace and state, with a KV cache of %.2f GiB to "
              "follow (%s)",
              (double)(memory_profile_step_memory(p) + (p->discrete ? p->weights + p->draft_weights : 0)) / GIB,
              p->discrete ? "weights, " : "", (double)p->kv_cache / GIB, cause->text);
    plan_advise_less(o, l, err);
    return STATUS_OUT_OF_MEMORY;
}

enum status memory_allocate(const struct engine_options *o, struct loaded_model *l,
                            const struct model_options *model_options, struct error *err)
{
    if (l->backend->preload) l->backend->preload(l->backend, model_options->dtype);
    struct error cause;
    enum status status = loaded_ranks_create(l, model_options, &cause);
    if (status == STATUS_OK) status = loaded_draft_create(o, l, model_options, &cause);
    if (status == STATUS_OUT_OF_MEMORY) return no_memory(o, l, &cause, err);
    if (status != STATUS_OK) return error_set(err, status, "%s", cause.text);
    return l->profile.discrete ? allocate_gpu(o, l, err) : allocate_cache(o, l, err);
}
