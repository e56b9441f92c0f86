#include "model/nodes/batch_message.h"

#include <string.h>

enum { NUM_COUNTS = 15, MAX_ARRAYS = 20 + KV_MAX_GROUPS };

struct count {
    int32_t *value;
    int64_t most;
};

static void list_counts(struct batch *b, struct count out[NUM_COUNTS])
{
    const struct batch_limits *l = &b->limits;
    const int32_t entries = batch_max_entries(l), seqs = l->max_num_seqs;
    const struct count counts[NUM_COUNTS] = {
        {&b->num_tokens, l->max_num_tokens},
        {&b->num_seqs, entries},
        {&b->num_decodes, entries},
        {&b->num_drafts, entries},
        {&b->max_query_len, INT32_MAX},
        {&b->max_seq_len, INT32_MAX},
        {&b->num_deltas, b->max_deltas},
        {&b->num_samples, entries},
        {&b->num_targets, l->max_num_tokens},
        {&b->num_target_tops, SAMPLING_MAX_LOGPROBS},
        {&b->num_swap_out, b->max_deltas},
        {&b->num_swap_in, b->max_deltas},
        {&b->num_copies, (int64_t)l->num_groups * seqs},
        {&b->num_states_out, seqs},
        {&b->num_states_in, seqs},
    };
    memcpy(out, counts, sizeof counts);
}

/* The used part of an array. */
struct part {
    void *data;
    size_t bytes;
};

static struct part part_of(void *data, int64_t count, size_t size)
{
    return (struct part){data, (size_t)count * size};
}

static int list_arrays(const struct batch *b, struct part out[MAX_ARRAYS])
{
    const size_t i32 = sizeof(int32_t), pair = sizeof(struct block_pair);
    const struct part parts[] = {
        part_of(b->token_ids, b->num_tokens, i32),
        part_of(b->positions, b->num_tokens, i32),
        part_of(b->state_rows, b->num_tokens, i32),
        part_of(b->query_start, b->num_seqs + 1, i32),
        part_of(b->seq_lens, b->num_seqs, i32),
        part_of(b->state_indices, b->num_seqs, i32),
        part_of(b->state_sources, b->num_seqs, i32),
        part_of(b->state_slots, b->num_seqs, i32),
        part_of(b->deltas, b->num_deltas, sizeof *b->deltas),
        part_of(b->logits_indices, b->num_samples, i32),
        part_of(b->sample_state_indices, b->num_samples, i32),
        part_of(b->output_positions, b->num_samples, i32),
        part_of(b->sampled_drafts, b->num_samples, i32),
        part_of(b->target_indices, b->num_targets, i32),
        part_of(b->target_ids, b->num_targets, i32),
        part_of(b->swap_out, b->num_swap_out, pair),
        part_of(b->swap_in, b->num_swap_in, pair),
        part_of(b->copies, b->num_copies, pair),
        part_of(b->states_out, b->num_states_out, pair),
        part_of(b->states_in, b->num_states_in, pair),
    };
    int count = (int)(sizeof parts / sizeof *parts);
    memcpy(out, parts, sizeof parts);
    for (int32_t g = 0; g < b->limits.num_groups; g++)
        out[count++] = part_of(b->slot_mapping + (int64_t)g * b->limits.max_num_tokens, b->num_tokens, sizeof(int64_t));
    return count;
}

bool batch_message_append(const struct batch *batch, struct text *out)
{
    struct count counts[NUM_COUNTS];
    struct part parts[MAX_ARRAYS];
    struct batch copy = *batch; /* whose counts are read */
    list_counts(&copy, counts);
    for (int i = 0; i < NUM_COUNTS; i++)
        if (!text_append(out, (const char *)counts[i].value, sizeof *counts[i].value)) return false;
    const int num_parts = list_arrays(batch, parts);
    for (int i = 0; i < num_parts; i++)
        if (!text_append(out, parts[i].data, parts[i].bytes)) return false;
    return true;
}

/* Takes the next bytes. */
static bool take(const char **bytes, size_t *left, void *out, size_t count)
{
    if (count > *left) return false;
    memcpy(out, *bytes, count);
    *bytes += count, *left -= count;
    return true;
}

bool batch_message_read(const char *bytes, size_t count, struct batch *batch)
{
    struct count counts[NUM_COUNTS];
    struct part parts[MAX_ARRAYS];
    list_counts(batch, counts);
    for (int i = 0; i < NUM_COUNTS; i++) {
        if (!take(&bytes, &count, counts[i].value, sizeof *counts[i].value)) return false;
        if (*counts[i].value < 0 || *counts[i].value > counts[i].most) return false;
    }
    const int num_parts = list_arrays(batch, parts);
    for (int i = 0; i < num_parts; i++)
        if (!take(&bytes, &count, parts[i].data, parts[i].bytes)) return false;
    return count == 0;
}
