#include "model/memory_profile.h"

#include <stdio.h>

#include "base/plural.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Where a state is so small that memory does not limit them. */
enum { MAX_SNAPSHOTS = 1 << 16 };

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

int64_t memory_profile_draft(const struct memory_profile *p)
{
    return p->draft_weights + p->draft_step;
}

int64_t memory_profile_snapshots(const struct memory_profile *p)
{
    return p->num_snapshot_slots * p->slot_bytes;
}

int64_t memory_profile_sequence_slots(const struct memory_profile *p)
{
    return (p->num_state_slots - p->num_snapshot_slots) * p->slot_bytes;
}

int64_t memory_profile_cache_budget(const struct memory_profile *p)
{
    return p->kv_budget + memory_profile_snapshots(p);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value < most ? value : most;
}

int32_t memory_choose_snapshots(const struct memory_profile *p, const struct batch_limits *limits, int32_t prefix_len)
{
    const int64_t prefix = batch_sequence_blocks(limits, prefix_len) * p->block_bytes, slot = p->slot_bytes;
    /* Where the number of blocks was asked for, snapshots come in addition. */
    const int64_t balanced = p->num_blocks_override > 0 ? p->kv_cache / prefix : p->kv_budget / (prefix + slot);
    const int64_t cache = p->num_blocks_override > 0 ? p->kv_cache + balanced * slot : p->kv_budget;
    const int64_t count = clamp(balanced, cache / 16 / slot, cache / 4 / slot);
    return (int32_t)clamp(count, clamp(cache / 2 / slot, 0, MEMORY_MIN_SNAPSHOTS), MAX_SNAPSHOTS);
}

int64_t memory_profile_fixed(const struct memory_profile *p)
{
    return p->others + p->context + p->weights + memory_profile_draft(p) + p->activations + p->workspace + p->graphs +
           p->state + p->state_slots;
}

void memory_profile_count_blocks(struct memory_profile *p)
{
    int64_t blocks = p->num_blocks_override > 0 ? p->num_blocks_override : p->kv_budget / p->block_bytes;
    if (blocks > INT32_MAX - 1) blocks = INT32_MAX - 1;
    p->num_blocks = (int32_t)blocks;
    p->kv_cache = blocks * p->block_bytes;
    const int64_t host_slots = p->num_state_slots > 0 ? p->swap_space / 2 / p->slot_bytes : 0;
    p->num_host_slots = (int32_t)(host_slots < p->num_state_slots ? host_slots : p->num_state_slots);
    const int64_t left = p->swap_space - p->num_host_slots * p->slot_bytes;
    const int64_t host_blocks = left / p->block_bytes, numbers_left = INT32_MAX - 1 - blocks;
    p->num_host_blocks = (int32_t)(host_blocks < numbers_left ? host_blocks : numbers_left);
}

int64_t memory_profile_left(const struct memory_profile *p)
{
    return p->discrete ? p->budget - memory_profile_fixed(p) : p->available - memory_profile_step_memory(p);
}

/* Whether a has less room for blocks than b. */
static bool has_less_room(const struct memory_profile *a, const struct memory_profile *b)
{
    return (double)memory_profile_left(a) / (double)a->block_bytes <
           (double)memory_profile_left(b) / (double)b->block_bytes;
}

int32_t memory_profile_agree(struct memory_profile *ranks, int32_t count)
{
    struct memory_profile fewest = ranks[0];
    int32_t shortest = 0;
    for (int32_t r = 1; r < count; r++) {
        const struct memory_profile *p = &ranks[r];
        if (p->num_blocks < fewest.num_blocks) fewest.num_blocks = p->num_blocks;
        if (p->num_host_blocks < fewest.num_host_blocks) fewest.num_host_blocks = p->num_host_blocks;
        if (p->num_host_slots < fewest.num_host_slots) fewest.num_host_slots = p->num_host_slots;
        if (has_less_room(p, &ranks[shortest])) shortest = r;
    }
    for (int32_t r = 0; r < count; r++) {
        struct memory_profile *p = &ranks[r];
        p->num_blocks = fewest.num_blocks;
        p->num_host_blocks = fewest.num_host_blocks;
        p->num_host_slots = fewest.num_host_slots;
        p->kv_cache = p->num_blocks * p->block_bytes;
    }
    return shortest;
}

int64_t memory_profile_step_memory(const struct memory_profile *p)
{
    return p->activations + p->workspace + p->state + p->state_slots + p->draft_step;
}

/* Linux grants memory that it does not have, and kills the process that touches it. Weights are there already: mapped,
 * so that the system may drop their pages, or dummy weights. */
static bool is_too_large(const struct memory_profile *p)
{
    return !p->discrete && memory_profile_step_memory(p) + p->kv_cache > p->available;
}

bool memory_profile_fits(const struct memory_profile *p, const struct batch_limits *limits)
{
    return !is_too_large(p) && p->num_blocks >= memory_blocks_needed(limits, limits->max_model_len);
}

static enum status too_few_blocks(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                                  struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "the KV cache has %d block%s of %d tokens, but one request of max_model_len %d needs %d",
                     p->num_blocks, plural(p->num_blocks), limits->block_size, limits->max_model_len, needed);
}

struct words {
    char text[96];
};

/* "" without states. */
static struct words states_words(const struct memory_profile *p, const struct batch_limits *limits)
{
    struct words out = {""};
    if (p->num_state_slots > 0)
        snprintf(out.text, sizeof out.text, "the states of %d sequence%s (%.2f GiB), ", limits->max_num_seqs,
                 plural(limits->max_num_seqs), (double)memory_profile_sequence_slots(p) / GIB);
    return out;
}

static enum status too_small_gpu(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                                 struct error *err)
{
    const double fixed = (double)memory_profile_fixed(p), cache = (double)needed * (double)p->block_bytes;
    return error_set(
        err, STATUS_OUT_OF_MEMORY,
        "%.2f of %s's %.2f GiB are not enough: weights, activations, %sand what else is held take %.2f GiB, "
        "%d block%s of %d tokens fit, and one request of max_model_len %d needs %d (%.3f GiB)%s",
        p->utilization, p->device, (double)p->total / GIB, states_words(p, limits).text, fixed / GIB, p->num_blocks,
        plural(p->num_blocks), limits->block_size, limits->max_model_len, needed, cache / GIB,
        fixed + cache <= (double)p->total ? "" : ", which is more than this GPU has free");
}

static enum status too_small_cpu(const struct memory_profile *p, const struct batch_limits *limits, int32_t needed,
                                 struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY,
                     "the KV cache may take %.3f GiB, which is %d block%s of %d tokens, but one request of "
                     "max_model_len %d needs %d",
                     (double)p->kv_budget / GIB, p->num_blocks, plural(p->num_blocks), limits->block_size,
                     limits->max_model_len, needed);
}

static enum status too_large_cpu(const struct memory_profile *p, const struct batch_limits *limits, struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY,
                     "the KV cache of %.2f GiB and the %.2f GiB of activations, %sworkspace and state need more memory "
                     "than is free, %.2f GiB",
                     (double)p->kv_cache / GIB, (double)memory_profile_step_memory(p) / GIB,
                     states_words(p, limits).text, (double)p->available / GIB);
}

enum status memory_profile_check(const struct memory_profile *p, const struct batch_limits *limits, struct error *err)
{
    if (memory_profile_fits(p, limits)) return STATUS_OK;
    if (is_too_large(p)) return too_large_cpu(p, limits, err);
    const int32_t needed = memory_blocks_needed(limits, limits->max_model_len);
    if (p->num_blocks_override > 0) return too_few_blocks(p, limits, needed, err);
    return p->discrete ? too_small_gpu(p, limits, needed, err) : too_small_cpu(p, limits, needed, err);
}

const char *memory_profile_blocks_setting(const struct memory_profile *p)
{
    if (p->num_blocks_override > 0) return "num_gpu_blocks_override";
    return p->discrete ? "gpu_memory_utilization" : "kv_cache_space";
}

int64_t memory_profile_swap_space(const struct memory_profile *p)
{
    return p->num_host_blocks * p->block_bytes + p->num_host_slots * p->slot_bytes;
}

int64_t memory_profile_tokens(const struct memory_profile *p, const struct batch_limits *limits)
{
    const int32_t tokens = batch_largest_block_size(limits);
    int32_t blocks = 0; /* of all groups, for so many tokens */
    for (int32_t g = 0; g < limits->num_groups; g++) blocks += batch_num_blocks(limits, g, tokens);
    return (int64_t)(p->num_blocks / blocks) * tokens;
}

double memory_profile_concurrency(const struct memory_profile *p, const struct batch_limits *limits)
{
    const int32_t blocks = batch_sequence_blocks(limits, limits->max_model_len);
    return blocks > 0 ? (double)p->num_blocks / blocks : 0;
}

int32_t memory_profile_requests(const struct memory_profile *p, const struct batch_limits *limits, int32_t tokens)
{
    const int32_t usable = p->num_blocks - batch_watermark(p->num_blocks), held = batch_sequence_blocks(limits, tokens);
    return held > 0 && usable / held < limits->max_num_seqs ? usable / held : limits->max_num_seqs;
}
