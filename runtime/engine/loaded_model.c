#include "runtime/engine/loaded_model.h"

#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static enum status parse_dtype(const char *flag, const char *name, enum dtype fallback, enum dtype *out,
                               struct error *err)
{
    if (!name || strcmp(name, "auto") == 0) {
        *out = fallback;
        return STATUS_OK;
    }
    if (dtype_parse(name, out) == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "--%s is \"%s\", but must be auto, float32, float16 or bfloat16", flag, name);
}

/* Activations: on the CPU float32 costs nothing beside the weights and is exact; a GPU computes in the checkpoint's
 * type. */
static enum status choose_dtypes(const struct engine_options *o, const struct loaded_model *l,
                                 struct model_options *model_options, struct error *err)
{
    const bool cpu = strcmp(l->backend->name, "cpu") == 0;
    enum status status =
        parse_dtype("dtype", o->dtype, cpu ? DTYPE_FLOAT32 : l->config.dtype, &model_options->dtype, err);
    if (status == STATUS_OK)
        status =
            parse_dtype("kv-cache-dtype", o->kv_cache_dtype, model_options->dtype, &model_options->cache_dtype, err);
    if (status != STATUS_OK) return status;
    if (dtype_size(model_options->dtype) == 1)
        return error_set(err, STATUS_INVALID, "--dtype is \"%s\", but must be auto, float32, float16 or bfloat16",
                         o->dtype);
    const int x = 16 / dtype_size(model_options->cache_dtype);
    if (l->config.head_size % x != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the model's head size %d is not a multiple of %d, which --kv-cache-dtype %s needs; use a wider type",
            l->config.head_size, x, dtype_name(model_options->cache_dtype));
    return STATUS_OK;
}

static enum status check_block_size(int32_t block_size, struct error *err)
{
    if (block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "--block-size is %d, but must be 8, 16, 32, 64 or 128", block_size);
}

static enum status choose_limits(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const int32_t max_model_len = l->profile.max_model_len;
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return error_set(
            err, STATUS_INVALID,
            "--max-num-batched-tokens is %d, but every one of --max-num-seqs %d sequences takes a token of "
            "each step: raise the first or lower the second",
            o->max_num_batched_tokens, o->max_num_seqs);
    if (!o->enable_chunked_prefill && o->max_num_batched_tokens < max_model_len)
        return error_set(
            err, STATUS_INVALID,
            "without chunked prefill a whole prompt is one step: raise --max-num-batched-tokens from %d to "
            "max_model_len %d, or lower --max-model-len",
            o->max_num_batched_tokens, max_model_len);
    /* No step can have more tokens than all sequences have together. */
    const int64_t all = (int64_t)o->max_num_seqs * max_model_len;
    l->limits = (struct batch_limits){
        .max_num_tokens = o->max_num_batched_tokens < all ? o->max_num_batched_tokens : (int32_t)all,
        .max_num_seqs = o->max_num_seqs,
        .max_model_len = max_model_len,
        .block_size = o->block_size,
        .num_groups = 1,
    };
    return STATUS_OK;
}

enum status open_device(const char *device, int threads, const struct log *log, struct backend **out, struct error *err)
{
    struct error why = {""};
    enum status status = backend_open(device, threads, out, &why);
    if (status != STATUS_OK) return error_set(err, status, "%s", why.text);
    if (strcmp(device, "auto") == 0 && why.text[0]) log_write(log, LOG_WARNING, "no GPU is used: %s", why.text);
    return STATUS_OK;
}

static enum status open_checkpoint(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = model_config_load(o->model, &l->config, err);
    if (status == STATUS_OK) status = open_device(o->device, o->threads, o->log, &l->backend, err);
    if (status != STATUS_OK) return status;
    if (o->load_format == LOAD_FORMAT_DUMMY)
        status = model_weights_dummy(&l->config, o->seed, &l->weights, err);
    else
        status = model_weights_open(o->model, &l->config, o->log, &l->weights, err);
    if (status == STATUS_OK && !o->skip_tokenizer) status = tokenizer_open(o->model, &l->tokenizer, err);
    if (status == STATUS_OK && l->tokenizer && tokenizer_size(l->tokenizer) > l->config.vocab_size)
        log_write(o->log, LOG_WARNING, "%s: the tokenizer knows %d tokens, the model %d; the last ones cannot be used",
                  o->model, tokenizer_size(l->tokenizer), l->config.vocab_size);
    return status;
}

/* What may hold blocks on the CPU: the lesser of 4 GiB and a quarter of what is free, unless --kv-cache-space says so.
 */
static enum status cpu_kv_space(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t available;
    enum status status = l->backend->memory_info(l->backend, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    double space = o->kv_cache_space * GIB;
    if (space <= 0) space = 4 * GIB < (double)available / 4 ? 4 * GIB : (double)available / 4;
    p->others = p->total - available;
    p->kv_budget = (int64_t)space;
    return STATUS_OK;
}

/* What other processes and quire's CUDA context hold on a GPU, by the device's own count. Where the device cannot tell
 * them apart, all of it is counted as the context. */
static enum status gpu_held(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t available;
    enum status status = l->backend->memory_info(l->backend, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    const int64_t held = p->total - available;
    p->others_unknown = l->backend->others_bytes < 0 || l->backend->others_bytes > held;
    p->others = p->others_unknown ? 0 : l->backend->others_bytes;
    p->context = held - p->others;
    p->utilization = o->gpu_memory_utilization;
    p->budget = (int64_t)((double)p->total * p->utilization);
    return STATUS_OK;
}

/* The terms that follow from max_model_len, before anything is allocated. */
static enum status plan_terms(const struct engine_options *o, struct loaded_model *l,
                              struct model_options *model_options, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t bytes[NUM_PURPOSES];
    enum status status = choose_limits(o, l, err);
    if (status != STATUS_OK) return status;
    model_options->limits = l->limits;
    status = model_plan(l->backend, &l->config, &l->weights, model_options, bytes, err);
    if (status != STATUS_OK) return status;
    p->weights = bytes[PURPOSE_WEIGHTS];
    p->activations = bytes[PURPOSE_ACTIVATIONS];
    p->workspace = bytes[PURPOSE_WORKSPACE];
    p->host = bytes[PURPOSE_HOST_STAGING];
    p->state = bytes[PURPOSE_STATE] + p->block_bytes + (l->backend->discrete ? 0 : p->host);
    if (l->backend->discrete) {
        const int64_t left = p->budget - memory_profile_fixed(p);
        p->kv_budget = left > 0 ? left : 0;
    }
    memory_profile_count_blocks(p);
    return STATUS_OK;
}

/* Of the lengths below max_model_len the longest that fits, in whole blocks; max_model_len stays where none does.
 * Longer ones need more blocks and, by their tables, leave room for fewer. */
static enum status plan_shorter(const struct engine_options *o, struct loaded_model *l,
                                struct model_options *model_options, struct error *err)
{
    struct memory_profile *p = &l->profile;
    const int32_t longest = p->max_model_len;
    int32_t good = 0, bad = (longest + p->block_size - 1) / p->block_size; /* blocks */
    while (bad - good > 1) {
        const int32_t middle = good + (bad - good) / 2;
        p->max_model_len = middle * p->block_size;
        enum status status = plan_terms(o, l, model_options, err);
        if (status != STATUS_OK) return status;
        *(memory_profile_fits(p) ? &good : &bad) = middle;
    }
    p->max_model_len = good > 0 ? good * p->block_size : longest;
    return plan_terms(o, l, model_options, err);
}

/* Settles max_model_len (what was asked, or as much of the model's as the blocks hold) and every term but what only the
 * device can tell. */
static enum status plan_memory(const struct engine_options *o, struct loaded_model *l,
                               struct model_options *model_options, struct error *err)
{
    struct memory_profile *p = &l->profile;
    p->model_max_len = model_config_max_length(&l->config);
    p->max_model_len = o->max_model_len > 0 ? o->max_model_len : p->model_max_len;
    if (o->max_model_len > p->model_max_len)
        return error_set(err, STATUS_INVALID,
                         "--max-model-len is %d, but the model was made for %d tokens at most (see %s/config.json); "
                         "lower it",
                         o->max_model_len, p->model_max_len, o->model);
    enum status status = l->backend->discrete ? gpu_held(o, l, err) : cpu_kv_space(o, l, err);
    if (status == STATUS_OK) status = plan_terms(o, l, model_options, err);
    if (status == STATUS_OK && o->max_model_len == 0 && !memory_profile_fits(p))
        status = plan_shorter(o, l, model_options, err);
    return status == STATUS_OK ? memory_profile_check(p, err) : status;
}

/* On a GPU: a small step of each kind, so that everything that is loaded on first use (kernels, cuBLAS) is there, and
 * then the blocks are counted again with what the device says it holds: fewer, so that max_model_len may become shorter
 * than the tables that were allocated for it. */
static enum status measure_context(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t available;
    enum status status = model_warm_up(l->model, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &available, &p->total, err);
    if (status != STATUS_OK) return status;
    /* The null block is there only while a step runs, so far. */
    const int64_t known = p->others + p->weights + p->activations + p->workspace + p->state - p->block_bytes;
    if (p->total - available > known) p->context = p->total - available - known;
    const int64_t left = p->budget - memory_profile_fixed(p);
    p->kv_budget = left > 0 ? left : 0;
    memory_profile_count_blocks(p);
    const int32_t longest = memory_longest_request(p->num_blocks, p->block_size);
    if (o->max_model_len == 0 && !memory_profile_fits(p) && longest > 0)
        l->limits.max_model_len = p->max_model_len = longest;
    return memory_profile_check(p, err);
}

/* Captured graphs take memory of the driver's own; how much is known once they are there. A generous guess keeps the
 * block count below what fits; the report has what they took. */
static const int64_t GRAPH_RESERVE = 128 << 20;

/* The weights come meanwhile. */
static enum status allocate_gpu(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct memory_profile *p = &l->profile;
    int64_t before, after;
    enum status status = measure_context(o, l, err);
    if (status == STATUS_OK) status = model_allocate_cache(l->model, p->num_blocks, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &before, &p->total, err);
    if (status == STATUS_OK) status = model_capture(l->model, err);
    if (status == STATUS_OK) status = model_wait_for_weights(l->model, err);
    if (status == STATUS_OK) status = l->backend->memory_info(l->backend, &after, &p->total, err);
    if (status != STATUS_OK) return status;
    p->graphs = before > after ? before - after : 0;
    p->in_use = p->total - after;
    return STATUS_OK;
}

static enum status plan_and_allocate(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct model_options model_options = {.copy_weights = l->backend->discrete, .enforce_eager = o->enforce_eager};
    struct memory_profile *p = &l->profile;
    enum status status = check_block_size(o->block_size, err);
    if (status == STATUS_OK) status = choose_dtypes(o, l, &model_options, err);
    if (status != STATUS_OK) return status;
    snprintf(p->device, sizeof p->device, "%s", l->backend->name);
    p->dtype = model_options.dtype;
    p->cache_dtype = model_options.cache_dtype;
    p->block_size = o->block_size;
    p->block_bytes = memory_block_bytes(&l->config, o->block_size, model_options.cache_dtype);
    p->num_blocks_override = o->num_gpu_blocks_override;
    p->swap_space = (int64_t)(o->swap_space * GIB);
    if (o->preemption_mode == PREEMPTION_SWAP && p->swap_space < p->block_bytes)
        return error_set(err, STATUS_INVALID,
                         "--preemption-mode swap needs swap space, but --swap-space %g GiB does not hold one block of "
                         "%.3f MiB; raise it",
                         o->swap_space, (double)p->block_bytes / (1 << 20));
    p->graphs = l->backend->capture_begin && !o->enforce_eager ? GRAPH_RESERVE : 0;
    status = plan_memory(o, l, &model_options, err);
    if (status == STATUS_OK && l->backend->preload) l->backend->preload(l->backend, model_options.dtype);
    if (status == STATUS_OK) status = model_create(l->backend, &l->config, &l->weights, &model_options, &l->model, err);
    if (status != STATUS_OK) return status;
    if (l->backend->discrete) return allocate_gpu(o, l, err);
    p->budget = p->weights + p->activations + p->workspace + p->state + p->kv_cache;
    return model_allocate_cache(l->model, p->num_blocks, err);
}

enum status loaded_model_open(const struct engine_options *options, struct loaded_model *out, struct error *err)
{
    *out = (struct loaded_model){0};
    enum status status = open_checkpoint(options, out, err);
    if (status == STATUS_OK) status = plan_and_allocate(options, out, err);
    const struct memory_profile *p = &out->profile;
    if (status != STATUS_OK)
        loaded_model_close(out);
    else if (options->max_model_len == 0 && p->max_model_len < p->model_max_len)
        log_write(options->log, LOG_WARNING,
                  "max_model_len is %d of the model's %d tokens: more does not fit in %d KV blocks", p->max_model_len,
                  p->model_max_len, p->num_blocks);
    return status;
}

void loaded_model_close(struct loaded_model *l)
{
    model_destroy(l->model);
    model_weights_close(&l->weights);
    tokenizer_close(l->tokenizer);
    if (l->backend) l->backend->destroy(l->backend);
    *l = (struct loaded_model){0};
}
