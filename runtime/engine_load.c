#include "runtime/engine_load.h"

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
    if (l->config.head_dim % x != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the model's head size %d is not a multiple of %d, which --kv-cache-dtype %s needs; use a wider type",
            l->config.head_dim, x, dtype_name(model_options->cache_dtype));
    return STATUS_OK;
}

static enum status check_block_size(int32_t block_size, struct error *err)
{
    if (block_size == 8 || block_size == 16 || block_size == 32 || block_size == 64 || block_size == 128)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "--block-size is %d, but must be 8, 16, 32, 64 or 128", block_size);
}

/* --kv-cache-space on the CPU: the lesser of 4 GiB and a quarter of what is free, unless given. */
static enum status kv_space(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    int64_t available;
    enum status status = l->backend->memory_info(l->backend, &available, &l->profile.total, err);
    if (status != STATUS_OK) return status;
    double space = o->kv_cache_space * GIB;
    if (space <= 0) {
        space = 4 * GIB;
        if (space > (double)available / 4) space = (double)available / 4;
    }
    l->profile.others = l->profile.total - available;
    l->profile.kv_budget = (int64_t)space;
    return STATUS_OK;
}

/* The longest context: what was asked, or as much of the model's as the blocks can hold. */
static enum status choose_max_model_len(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    const int32_t model_max = model_config_max_length(&l->config);
    struct memory_profile *p = &l->profile;
    p->model_max_len = model_max;
    p->max_model_len = o->max_model_len;
    if (o->max_model_len > model_max)
        return error_set(
            err, STATUS_INVALID,
            "--max-model-len is %d, but the model was made for %d tokens at most (see "
            "%s/config.json); lower it",
            o->max_model_len, model_max, o->model);
    if (o->max_model_len > 0) return STATUS_OK;
    int64_t blocks = o->num_gpu_blocks_override > 0 ? o->num_gpu_blocks_override : p->kv_budget / p->block_bytes;
    if (blocks > INT32_MAX) blocks = INT32_MAX;
    const int32_t longest = memory_longest_request((int32_t)blocks, p->block_size);
    p->max_model_len = longest > 0 && longest < model_max ? longest : model_max;
    if (p->max_model_len < model_max)
        log_write(o->log, LOG_WARNING,
                  "max_model_len is %d of the model's %d tokens: more does not fit in %lld KV blocks", p->max_model_len,
                  model_max, (long long)blocks);
    return STATUS_OK;
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

static enum status open_checkpoint(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    enum status status = model_config_load(o->model, &l->config, err);
    if (status == STATUS_OK) status = backend_open(o->device, o->threads, &l->backend, err);
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

static enum status plan_and_allocate(const struct engine_options *o, struct loaded_model *l, struct error *err)
{
    struct model_options model_options = {0};
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
    p->weights = l->weights.bytes;
    status = kv_space(o, l, err);
    if (status == STATUS_OK) status = choose_max_model_len(o, l, err);
    if (status == STATUS_OK) status = memory_profile_blocks(p, err);
    if (status == STATUS_OK) status = choose_limits(o, l, err);
    if (status != STATUS_OK) return status;

    model_options.limits = l->limits;
    status = model_create(l->backend, &l->config, &l->weights, &model_options, &l->model, err);
    if (status == STATUS_OK) status = model_allocate_cache(l->model, p->num_blocks, err);
    if (status != STATUS_OK) return status;
    const int64_t *bytes = l->model->arena.bytes;
    p->activations = bytes[PURPOSE_ACTIVATIONS];
    p->workspace = bytes[PURPOSE_WORKSPACE];
    p->state = bytes[PURPOSE_STATE] + bytes[PURPOSE_HOST_STAGING] + p->block_bytes;
    p->budget = p->weights + p->activations + p->workspace + p->state + p->kv_cache;
    return STATUS_OK;
}

enum status loaded_model_open(const struct engine_options *options, struct loaded_model *out, struct error *err)
{
    *out = (struct loaded_model){0};
    enum status status = open_checkpoint(options, out, err);
    if (status == STATUS_OK) status = plan_and_allocate(options, out, err);
    if (status != STATUS_OK) loaded_model_close(out);
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
