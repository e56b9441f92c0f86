#include "model/memory_profile.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

int32_t memory_blocks_needed(const struct batch_limits *limits, int32_t tokens)
{
    const int32_t required = batch_sequence_blocks(limits, tokens);
    int32_t total = required;
    while (total - batch_watermark(total) < required) total++;
    return total;
}

int32_t memory_longest_request(const struct batch_limits *limits, int32_t num_blocks)
{
    const int32_t size = limits->block_size, usable = num_blocks - batch_watermark(num_blocks);
    int32_t good = 0, bad = INT32_MAX / size; /* length in blocks */
    while (bad - good > 1) {
        const int32_t middle = good + (bad - good) / 2;
        *(batch_sequence_blocks(limits, middle * size) <= usable ? &good : &bad) = middle;
    }
    return good * size;
}

int64_t memory_profile_fixed(const struct memory_profile *p)
{
    return p->others + p->context + p->weights + p->activations + p->workspace + p->graphs + p->state;
}

void memory_profile_count_blocks(struct memory_profile *p)
{
    int64_t blocks = p->num_blocks_override > 0 ? p->num_blocks_override : p->kv_budget / p->block_bytes;
    if (blocks > INT32_MAX - 1) blocks = INT32_MAX - 1;
    p->num_blocks = (int32_t)blocks;
    p->kv_cache = blocks * p->block_bytes;
    const int64_t host_blocks = p->swap_space / p->block_bytes, numbers_left = INT32_MAX - 1 - blocks;
    p->num_host_blocks = (int32_t)(host_blocks < numbers_left ? host_blocks : numbers_left);
}

bool memory_profile_fits(const struct memory_profile *p, const struct batch_limits *limits)
{
    return p->num_blocks >= memory_blocks_needed(limits, limits->max_model_len);
}

static void advise_length(const struct memory_profile *p, const struct batch_limits *limits, struct error *err)
{
    const int32_t longest = memory_longest_request(limits, p->num_blocks);
    if (longest > 0) error_advise(err, ADVICE_LOWER, "max_model_len", "%d", longest);
}

static void too_few_blocks(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                           struct error *err)
{
    error_set(err, STATUS_INVALID,
              "the KV cache has %d blocks of %d tokens, but one request of max_model_len %d needs %d", p->num_blocks,
              limits->block_size, limits->max_model_len, needed);
    advise_length(p, limits, err);
    error_advise(err, ADVICE_RAISE, "num_gpu_blocks_override", "%d", needed);
}

/* Advises the share of the GPU that is enough, if there is one. */
static void too_small_gpu(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                          struct error *err)
{
    const double fixed = (double)memory_profile_fixed(p), cache = (double)needed * (double)p->block_bytes;
    const double utilization = ceil((fixed + cache) / (double)p->total * 100) / 100;
    error_set(err, STATUS_OUT_OF_MEMORY,
              "%.2f of %s's %.2f GiB are not enough: weights, activations and what else is held take %.2f GiB, %d "
              "blocks of %d tokens fit, and one request of max_model_len %d needs %d (%.3f GiB)%s",
              p->utilization, p->device, (double)p->total / GIB, fixed / GIB, p->num_blocks, limits->block_size,
              limits->max_model_len, needed, cache / GIB,
              utilization <= 1 ? "" : ", which is more than this GPU has free");
    advise_length(p, limits, err);
    if (utilization <= 1) error_advise(err, ADVICE_RAISE, "gpu_memory_utilization", "%.2f", utilization);
}

static void too_small_cpu(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                          struct error *err)
{
    error_set(err, STATUS_OUT_OF_MEMORY,
              "the KV cache may take %.3f GiB, which is %d blocks of %d tokens, but one request of max_model_len %d "
              "needs %d",
              (double)p->kv_budget / GIB, p->num_blocks, limits->block_size, limits->max_model_len, needed);
    advise_length(p, limits, err);
    /* Rounded up: the advice is printed with three digits. */
    error_advise(err, ADVICE_RAISE, "kv_cache_space", "%.3f", (double)needed * (double)p->block_bytes / GIB + 0.0005);
}

/* What is allocated after the plan on the CPU. Weights are there already: mapped, so that the system may drop their
 * pages, or dummy weights. */
static int64_t host_memory_needed(const struct memory_profile *p)
{
    return p->activations + p->workspace + p->state + p->kv_cache;
}

/* Linux grants memory that it does not have, and kills the process that touches it. */
static void too_large_cpu(const struct memory_profile *p, struct error *err)
{
    const int64_t left = p->available - (host_memory_needed(p) - p->kv_cache);
    error_set(err, STATUS_OUT_OF_MEMORY,
              "the KV cache of %.2f GiB and the %.2f GiB of activations, workspace and state need more memory than is "
              "free, %.2f GiB",
              (double)p->kv_cache / GIB, (double)(host_memory_needed(p) - p->kv_cache) / GIB,
              (double)p->available / GIB);
    if (left < p->block_bytes)
        error_advise(err, ADVICE_LOWER, "max_num_batched_tokens", NULL);
    else if (p->num_blocks_override > 0)
        error_advise(err, ADVICE_LOWER, "num_gpu_blocks_override", "%lld", (long long)(left / p->block_bytes));
    else
        error_advise(err, ADVICE_LOWER, "kv_cache_space", "%.2f", floor((double)left / GIB * 100) / 100);
}

enum status memory_profile_check(const struct memory_profile *p, const struct batch_limits *limits, struct error *err)
{
    if (!p->discrete && host_memory_needed(p) > p->available) {
        too_large_cpu(p, err);
        return STATUS_OUT_OF_MEMORY;
    }
    if (memory_profile_fits(p, limits)) return STATUS_OK;
    const int32_t needed = memory_blocks_needed(limits, limits->max_model_len);
    if (p->num_blocks_override > 0)
        too_few_blocks(p, limits, needed, err);
    else if (p->discrete)
        too_small_gpu(p, limits, needed, err);
    else
        too_small_cpu(p, limits, needed, err);
    return p->num_blocks_override > 0 ? STATUS_INVALID : STATUS_OUT_OF_MEMORY;
}

int64_t memory_profile_swap_space(const struct memory_profile *p)
{
    return p->num_host_blocks * p->block_bytes;
}

int64_t memory_profile_tokens(const struct memory_profile *p, const struct batch_limits *limits)
{
    return (int64_t)(p->num_blocks / limits->num_groups) * limits->block_size;
}

double memory_profile_concurrency(const struct memory_profile *p, const struct batch_limits *limits)
{
    const int32_t blocks = batch_sequence_blocks(limits, limits->max_model_len);
    return blocks > 0 ? (double)p->num_blocks / blocks : 0;
}
