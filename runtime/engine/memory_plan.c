#include "runtime/engine/memory_plan.h"

#include <stdio.h>
#include <string.h>

#include "model/kv_groups.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* The driver allocates memory for captured graphs itself, and how much is known only after they are captured. The plan
 * reserves this estimate, which is generous, so that they fit beside the blocks; the report shows what they took. */
static const int64_t GRAPH_RESERVE = 128 << 20;

/* Tokens of a step where nobody asks for another number; on the CPU fewer, if these take long, but so many that a
 * matmul reads its weights for many tokens. */
enum { STEP_TOKENS = 8192, CPU_STEP_MIN_TOKENS = 128 };
/* Operations a second of one thread in a matmul: what AVX2 does at least; AVX-512 does two to four times as many
 * (kernels/MEASURED.md). */
static const double CPU_THREAD_SPEED = 50e9;

/* ---- before anything is allocated ---- */

/* What an earlier plan on this device found out about it. */
static void device_as_before(struct memory_profile *p, const struct memory_profile *before)
{
    p->total = before->total;
    p->available = before->available;
    p->others = before->others;
    p->others_unknown = before->others_unknown;
    p->context = before->context;
    memcpy(p->others_names, before->others_names, sizeof p->others_names);
}

/* Weights that are still to be made or packed take their part of what is free, if it is enough for them. */
static enum status host_facts(struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t free_bytes;
    enum status status = l->backend->memory_info(l->backend, &free_bytes, &p->total, err);
    if (status != STATUS_OK) return status;
    const int64_t to_come = l->dummy_to_come + model_weights_to_pack(&l->weights);
    p->available = free_bytes - (to_come <= free_bytes ? to_come : 0);
    p->others = p->total - free_bytes - l->weights.memory_bytes; /* those are quire's own, and there already */
    if (p->others < 0) p->others = 0;
    return STATUS_OK;
}

/* The budget of the KV cache on the CPU: what was asked for, or the lesser of 4 GiB and a quarter of what is free. */
static enum status cpu_budget(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    enum status status = STATUS_OK;
    if (l->before)
        device_as_before(p, l->before);
    else
        status = host_facts(l, err);
    if (status != STATUS_OK) return status;
    const double quarter = (double)p->available / 4;
    double space = o->kv_cache_space * GIB;
    if (space <= 0) space = 4 * GIB < quarter ? 4 * GIB : quarter;
    p->kv_budget = (int64_t)space;
    return STATUS_OK;
}

/* What other processes and quire's CUDA context hold, by the device's own count. If the device cannot tell these two
 * apart, all of it is counted as the context. */
static enum status gpu_facts(struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t available;
    enum status status = l->backend->memory_info(l->backend, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    const int64_t held = p->total - available;
    p->others_unknown = l->backend->others_bytes < 0 || l->backend->others_bytes > held;
    p->others = p->others_unknown ? 0 : l->backend->others_bytes;
    p->context = held - p->others;
    snprintf(p->others_names, sizeof p->others_names, "%s", l->backend->others);
    return STATUS_OK;
}

/* The budget of everything on a GPU. */
static enum status gpu_budget(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    enum status status = STATUS_OK;
    if (l->before)
        device_as_before(p, l->before);
    else
        status = gpu_facts(l, err);
    if (status != STATUS_OK) return status;
    p->utilization = o->gpu_memory_utilization;
    p->budget = (int64_t)((double)p->total * p->utilization);
    return STATUS_OK;
}

/* Multiplications and additions of a token in the layers' matrices. */
static double token_operations(const struct tensor_table *table)
{
    double elements = 0;
    for (int32_t i = 0; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        if (t->kind == TENSOR_MATRIX && t->layer >= 0) elements += (double)tensor_elements(t);
    }
    return 2 * elements;
}

/* As many as the CPU computes in about a second, by an estimate that is the same in every run. */
static int32_t cpu_step_tokens(const struct engine_options *o, const struct loaded_model *l)
{
    const double most = engine_options_threads(o) * CPU_THREAD_SPEED / token_operations(&l->weights.table);
    int32_t tokens = CPU_STEP_MIN_TOKENS;
    while (tokens < STEP_TOKENS && 2 * tokens <= most) tokens *= 2;
    return tokens;
}

static int32_t max_step_tokens(const struct engine_options *o, const struct loaded_model *l)
{
    if (o->max_num_batched_tokens > 0) return o->max_num_batched_tokens;
    const bool whole_prompts = !o->enable_chunked_prefill;
    const int32_t usual = l->backend->discrete || whole_prompts ? STEP_TOKENS : cpu_step_tokens(o, l);
    return usual > o->max_num_seqs ? usual : o->max_num_seqs;
}

static enum status choose_limits(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const int32_t max_model_len = l->limits.max_model_len, step_tokens = max_step_tokens(o, l);
    if (step_tokens < o->max_num_seqs) {
        error_set(err, STATUS_INVALID,
                  "a step of at most %d tokens has no room for %d sequences, each of which takes at least one",
                  step_tokens, o->max_num_seqs);
        error_advise(err, ADVICE_RAISE, "max_num_batched_tokens", "%d", o->max_num_seqs);
        error_advise(err, ADVICE_LOWER, "max_num_seqs", "%d", step_tokens);
        return STATUS_INVALID;
    }
    if (!o->enable_chunked_prefill && step_tokens < max_model_len) {
        error_set(err, STATUS_INVALID,
                  "without chunked prefill a prompt is computed in one step, but a step has at most %d tokens and a "
                  "prompt up to %d",
                  step_tokens, max_model_len);
        error_advise(err, ADVICE_RAISE, "max_num_batched_tokens", "%d", max_model_len);
        error_advise(err, ADVICE_LOWER, "max_model_len", "%d", step_tokens);
        return STATUS_INVALID;
    }
    /* No step can have more tokens than all sequences have together. */
    const int64_t all = (int64_t)o->max_num_seqs * max_model_len;
    l->limits = (struct batch_limits){
        .max_num_tokens = step_tokens < all ? step_tokens : (int32_t)all,
        .max_num_seqs = o->max_num_seqs,
        .max_model_len = max_model_len,
        .block_size = o->block_size,
    };
    kv_groups_choose(&l->config.spec, &l->limits);
    return STATUS_OK;
}

/* Blocks are as large as the groups have layers, and which groups there are depends on max_model_len. */
static enum status plan_groups(struct loaded_model *l, enum dtype cache_dtype, struct error *err)
{
    struct memory_profile *p = &l->profile;
    const struct model_spec *spec = &l->config.spec;
    struct kv_groups groups;
    enum status status = kv_groups_assign(spec, &l->limits, &groups, err);
    if (status != STATUS_OK) return status;
    memcpy(p->group_layers, groups.num_layers, sizeof p->group_layers);
    p->block_bytes = kv_cache_block_bytes(spec, &groups, l->limits.block_size, cache_dtype);
    return STATUS_OK;
}

/* On a GPU the blocks get what the other terms leave of the budget; on the CPU the budget is the sum. */
static void count_blocks(struct memory_profile *p)
{
    if (p->discrete) {
        const int64_t left = p->budget - memory_profile_fixed(p);
        p->kv_budget = left > 0 ? left : 0;
    }
    memory_profile_count_blocks(p);
    if (!p->discrete) p->budget = memory_profile_fixed(p) - p->others + p->kv_cache;
}

/* The terms that follow from max_model_len. */
static enum status plan_terms(const struct engine_options *o, struct loaded_model *l,
                              struct model_options *model_options, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t bytes[NUM_PURPOSES];
    enum status status = choose_limits(o, l, err);
    if (status == STATUS_OK) status = plan_groups(l, model_options->cache_dtype, err);
    if (status != STATUS_OK) return status;
    model_options->limits = l->limits;
    status = model_plan(l->backend, &l->config.spec, &l->weights, model_options, bytes, err);
    if (status != STATUS_OK) return status;
    p->weights = bytes[PURPOSE_WEIGHTS];
    p->activations = bytes[PURPOSE_ACTIVATIONS];
    p->workspace = bytes[PURPOSE_WORKSPACE];
    p->host = bytes[PURPOSE_HOST_STAGING];
    p->state = bytes[PURPOSE_STATE] + p->block_bytes + (p->discrete ? 0 : p->host);
    count_blocks(p);
    return STATUS_OK;
}

/* Lowers max_model_len to the longest that fits, in whole blocks, or leaves it where none does. A longer one needs more
 * memory for blocks and leaves less for them (its block tables are larger), so a binary search finds it. */
static enum status plan_shorter(const struct engine_options *o, struct loaded_model *l,
                                struct model_options *model_options, struct error *err)
{
    struct memory_profile *p = &l->profile;
    const int32_t longest = l->limits.max_model_len, block_size = l->limits.block_size;
    int32_t good = 0, bad = batch_max_blocks(&l->limits);
    while (bad - good > 1) {
        const int32_t middle = good + (bad - good) / 2;
        l->limits.max_model_len = middle * block_size;
        enum status status = plan_terms(o, l, model_options, err);
        if (status != STATUS_OK) return status;
        *(memory_profile_fits(p, &l->limits) ? &good : &bad) = middle;
    }
    l->limits.max_model_len = good > 0 ? good * block_size : longest;
    return plan_terms(o, l, model_options, err);
}

/* The terms that need no count: types, and what was asked for. */
static void plan_fixed(const struct engine_options *o, struct loaded_model *l,
                       const struct model_options *model_options)
{
    struct memory_profile *p = &l->profile;
    snprintf(p->device, sizeof p->device, "%s", l->backend->name);
    p->discrete = l->backend->discrete;
    p->dtype = model_options->dtype;
    p->cache_dtype = model_options->cache_dtype;
    p->num_blocks_override = o->num_gpu_blocks_override;
    p->graphs = l->backend->capture_begin && !o->enforce_eager ? GRAPH_RESERVE : 0;
    p->swap_space = (int64_t)(o->swap_space * GIB);
}

static enum status check_swap_space(const struct engine_options *o, const struct memory_profile *p, struct error *err)
{
    if (o->preemption_mode != PREEMPTION_SWAP || p->swap_space >= p->block_bytes) return STATUS_OK;
    error_set(err, STATUS_INVALID,
              "preempted requests are to be swapped to host memory, but the swap space of %g GiB does not hold one "
              "block of %.3f MiB",
              o->swap_space, (double)p->block_bytes / (1 << 20));
    error_advise(err, ADVICE_RAISE, "swap_space", NULL);
    error_advise(err, ADVICE_SET, "preemption_mode", "recompute");
    return STATUS_INVALID;
}

static enum status choose_length(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    p->model_max_len = model_spec_max_length(&l->config.spec);
    l->limits.max_model_len = o->max_model_len > 0 ? o->max_model_len : p->model_max_len;
    if (o->max_model_len <= p->model_max_len) return STATUS_OK;
    error_set(err, STATUS_INVALID,
              "max_model_len is %d, but the model was made for %d tokens at most (see %s/config.json)",
              o->max_model_len, p->model_max_len, o->model);
    error_advise(err, ADVICE_LOWER, "max_model_len", "%d", p->model_max_len);
    return STATUS_INVALID;
}

enum status memory_plan(const struct engine_options *o, struct loaded_model *l, struct model_options *model_options,
                        struct error *err)
{
    plan_fixed(o, l, model_options);
    enum status status = choose_length(o, l, err);
    if (status == STATUS_OK) status = l->profile.discrete ? gpu_budget(o, l, err) : cpu_budget(o, l, err);
    if (status == STATUS_OK) status = plan_terms(o, l, model_options, err);
    if (status == STATUS_OK && o->max_model_len == 0 && !memory_profile_fits(&l->profile, &l->limits))
        status = plan_shorter(o, l, model_options, err);
    if (status == STATUS_OK) status = check_swap_space(o, &l->profile, err);
    return status == STATUS_OK ? memory_profile_check(&l->profile, &l->limits, err) : status;
}

/* ---- allocating ---- */

static enum status allocate_cache(struct loaded_model *l, struct error *err)
{
    const struct memory_profile *p = &l->profile;
    const char *setting = p->num_blocks_override > 0 ? "num_gpu_blocks_override"
                          : p->discrete              ? "gpu_memory_utilization"
                                                     : "kv_cache_space";
    struct error cause;
    const enum status status = model_allocate_cache(l->model, p->num_blocks, &cause);
    if (status == STATUS_OK) return status;
    if (status != STATUS_OUT_OF_MEMORY) return error_set(err, status, "%s", cause.text);
    error_set(err, status, "there is no room for a KV cache of %.2f GiB (%s)", (double)p->kv_cache / GIB, cause.text);
    error_advise(err, ADVICE_LOWER, setting, NULL);
    return status;
}

/* Runs a small step of each kind, so that everything that a GPU loads on first use (kernels, cuBLAS) is loaded, and
 * counts the blocks again with what the device then says it holds. If there are fewer than planned, max_model_len may
 * become shorter than the tables that were allocated for it. */
static enum status measure_context(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t available;
    enum status status = model_warm_up(l->model, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    /* The null block is a part of the cache, which is not allocated yet. */
    const int64_t known = p->others + p->weights + p->activations + p->workspace + p->state - p->block_bytes;
    if (p->total - available > known) p->context = p->total - available - known;
    count_blocks(p);
    const int32_t longest = memory_longest_request(&l->limits, p->num_blocks);
    if (o->max_model_len == 0 && !memory_profile_fits(p, &l->limits) && longest > 0) l->limits.max_model_len = longest;
    return memory_profile_check(p, &l->limits, err);
}

/* Other threads copy the weights to the GPU meanwhile; this waits for them last. */
static enum status allocate_gpu(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t before, after;
    enum status status = measure_context(o, l, err);
    if (status == STATUS_OK) status = allocate_cache(l, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &before, &p->total, err);
    if (status == STATUS_OK) status = model_capture(l->model, err);
    if (status == STATUS_OK) status = model_wait_for_weights(l->model, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &after, &p->total, err);
    if (status != STATUS_OK) return status;
    p->graphs = before > after ? before - after : 0;
    p->in_use = p->total - after;
    return STATUS_OK;
}

/* Names what was asked for in all: the allocation that failed may be a small one. */
static enum status no_memory(const struct memory_profile *p, const struct error *cause, struct error *err)
{
    error_set(err, STATUS_OUT_OF_MEMORY,
              "there is no room for the %.2f GiB of %sactivations, workspace and state, with a KV cache of %.2f GiB to "
              "follow (%s)",
              (double)(p->activations + p->workspace + p->state + (p->discrete ? p->weights : 0)) / GIB,
              p->discrete ? "weights, " : "", (double)p->kv_cache / GIB, cause->text);
    error_advise(err, ADVICE_LOWER, "max_num_batched_tokens", NULL);
    return STATUS_OUT_OF_MEMORY;
}

enum status memory_allocate(const struct engine_options *o, struct loaded_model *l,
                            const struct model_options *model_options, struct error *err)
{
    if (l->backend->preload) l->backend->preload(l->backend, model_options->dtype);
    struct error cause;
    const enum status status = model_create(l->backend, &l->config.spec, &l->weights, model_options, &l->model, &cause);
    if (status == STATUS_OUT_OF_MEMORY) return no_memory(&l->profile, &cause, err);
    if (status != STATUS_OK) return error_set(err, status, "%s", cause.text);
    return l->profile.discrete ? allocate_gpu(o, l, err) : allocate_cache(l, err);
}
