#include "model/memory_profile.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static int32_t watermark(int32_t num_blocks)
{
    return num_blocks / 100;
}

int32_t memory_blocks_needed(int32_t tokens, int32_t block_size)
{
    const int32_t required = (int32_t)(((int64_t)tokens + block_size - 1) / block_size);
    int32_t total = required;
    while (total - watermark(total) < required) total++;
    return total;
}

int32_t memory_longest_request(int32_t num_blocks, int32_t block_size)
{
    if (num_blocks <= 0) return 0;
    const int64_t tokens = (int64_t)(num_blocks - watermark(num_blocks)) * block_size;
    return tokens > INT32_MAX ? INT32_MAX : (int32_t)tokens;
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

/* What to raise on a GPU: the utilisation that would do, if any does. */
static enum status too_small_gpu(const struct memory_profile *p, int32_t needed, const char *lower, struct error *err)
{
    const double fixed = (double)memory_profile_fixed(p), cache = (double)needed * (double)p->block_bytes;
    const double utilization = ceil((fixed + cache) / (double)p->total * 100) / 100;
    char raise[96];
    if (utilization <= 1)
        snprintf(raise, sizeof raise, "raise --gpu-memory-utilization to %.2f", utilization);
    else
        snprintf(raise, sizeof raise, "use a GPU with more free memory");
    return error_set(
        err, STATUS_OUT_OF_MEMORY,
        "%.2f of %s's %.2f GiB are not enough: weights, activations and what else is held take %.2f GiB, %d "
        "blocks of %d tokens fit, and one request of max_model_len %d needs %d (%.3f GiB): %s%s",
        p->utilization, p->device, (double)p->total / GIB, fixed / GIB, p->num_blocks, p->block_size, p->max_model_len,
        needed, cache / GIB, lower, raise);
}

bool memory_profile_fits(const struct memory_profile *p)
{
    return p->num_blocks >= memory_blocks_needed(p->max_model_len, p->block_size);
}

enum status memory_profile_check(const struct memory_profile *p, struct error *err)
{
    if (memory_profile_fits(p)) return STATUS_OK;
    const int32_t needed = memory_blocks_needed(p->max_model_len, p->block_size);
    const int32_t longest = memory_longest_request(p->num_blocks, p->block_size);
    char lower[96] = "";
    if (longest > 0) snprintf(lower, sizeof lower, "lower --max-model-len to %d, or ", longest);
    if (p->num_blocks_override > 0)
        return error_set(err, STATUS_INVALID,
                         "the KV cache has %d blocks of %d tokens, but one request of max_model_len %d needs %d: "
                         "%sraise --num-gpu-blocks-override to %d",
                         p->num_blocks, p->block_size, p->max_model_len, needed, lower, needed);
    if (p->utilization > 0) return too_small_gpu(p, needed, lower, err);
    return error_set(err, STATUS_OUT_OF_MEMORY,
                     "--kv-cache-space of %.3f GiB holds %d blocks of %d tokens, but one request of max_model_len %d "
                     "needs %d: %sraise --kv-cache-space to %.3f",
                     (double)p->kv_budget / GIB, p->num_blocks, p->block_size, p->max_model_len, needed, lower,
                     (double)needed * (double)p->block_bytes / GIB + 0.0005);
}

int64_t memory_profile_swap_space(const struct memory_profile *p)
{
    return p->num_host_blocks * p->block_bytes;
}

int64_t memory_profile_tokens(const struct memory_profile *p)
{
    return (int64_t)p->num_blocks * p->block_size;
}

double memory_profile_concurrency(const struct memory_profile *p)
{
    const int32_t blocks = (p->max_model_len + p->block_size - 1) / p->block_size;
    return blocks > 0 ? (double)p->num_blocks / blocks : 0;
}
