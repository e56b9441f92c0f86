#include "base/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/plural.h"

/* One of the arrays of a batch. */
struct array {
    size_t count, element_size;
    void *pointer; /* the address of the field */
};
enum { NUM_ARRAYS = 21 };

static int32_t max_deltas(const struct batch_limits *limits)
{
    const int64_t entries = (int64_t)limits->num_groups * limits->max_num_seqs * batch_max_blocks(limits);
    return entries < INT32_MAX ? (int32_t)entries : INT32_MAX;
}

static void list_arrays(struct batch *b, struct array out[NUM_ARRAYS])
{
    const size_t tokens = (size_t)b->limits.max_num_tokens, seqs = (size_t)b->limits.max_num_seqs;
    const size_t entries = (size_t)batch_max_entries(&b->limits);
    const size_t groups = (size_t)b->limits.num_groups, deltas = (size_t)b->max_deltas;
    const struct array arrays[NUM_ARRAYS] = {
        {tokens, sizeof *b->token_ids, &b->token_ids},
        {tokens, sizeof *b->positions, &b->positions},
        {tokens, sizeof *b->state_rows, &b->state_rows},
        {entries + 1, sizeof *b->query_start, &b->query_start},
        {entries, sizeof *b->seq_lens, &b->seq_lens},
        {entries, sizeof *b->state_indices, &b->state_indices},
        {entries, sizeof *b->state_sources, &b->state_sources},
        {entries, sizeof *b->state_slots, &b->state_slots},
        {groups * tokens, sizeof *b->slot_mapping, &b->slot_mapping},
        {deltas, sizeof *b->deltas, &b->deltas},
        {entries, sizeof *b->logits_indices, &b->logits_indices},
        {entries, sizeof *b->sample_state_indices, &b->sample_state_indices},
        {entries, sizeof *b->output_positions, &b->output_positions},
        {entries, sizeof *b->sampled_drafts, &b->sampled_drafts},
        {tokens, sizeof *b->target_indices, &b->target_indices},
        {tokens, sizeof *b->target_ids, &b->target_ids},
        {deltas, sizeof *b->swap_out, &b->swap_out},
        {deltas, sizeof *b->swap_in, &b->swap_in},
        {groups * seqs, sizeof *b->copies, &b->copies},
        {seqs, sizeof *b->states_out, &b->states_out},
        {seqs, sizeof *b->states_in, &b->states_in},
    };
    memcpy(out, arrays, sizeof arrays);
}

static void prepare(struct batch *batch, const struct batch_limits *limits, struct array arrays[NUM_ARRAYS])
{
    *batch = (struct batch){.limits = *limits, .max_deltas = max_deltas(limits)};
    list_arrays(batch, arrays);
}

int64_t batch_bytes(const struct batch_limits *limits)
{
    struct batch batch;
    struct array arrays[NUM_ARRAYS];
    size_t bytes = 0;
    prepare(&batch, limits, arrays);
    for (int i = 0; i < NUM_ARRAYS; i++) bytes += arrays[i].count * arrays[i].element_size;
    return (int64_t)bytes;
}

enum status batch_init(struct batch *batch, const struct batch_limits *limits, struct error *err)
{
    struct array arrays[NUM_ARRAYS];
    prepare(batch, limits, arrays);
    for (int i = 0; i < NUM_ARRAYS; i++) {
        void *data = calloc(arrays[i].count, arrays[i].element_size);
        memcpy(arrays[i].pointer, &data, sizeof data);
        if (data) continue;
        batch_free(batch);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a batch of %d token%s and %d sequence%s",
                         limits->max_num_tokens, plural(limits->max_num_tokens), limits->max_num_seqs,
                         plural(limits->max_num_seqs));
    }
    return STATUS_OK;
}

void batch_free(struct batch *batch)
{
    struct array arrays[NUM_ARRAYS];
    list_arrays(batch, arrays);
    for (int i = 0; i < NUM_ARRAYS; i++) {
        void *data;
        memcpy(&data, arrays[i].pointer, sizeof data);
        free(data);
    }
    *batch = (struct batch){0};
}

void batch_clear(struct batch *batch)
{
    batch->num_tokens = batch->num_seqs = batch->num_decodes = batch->num_drafts = 0;
    batch->max_query_len = batch->max_seq_len = 0;
    batch->num_deltas = batch->num_samples = batch->num_targets = batch->num_target_tops = 0;
    batch->num_swap_out = batch->num_swap_in = batch->num_copies = 0;
    batch->num_states_out = batch->num_states_in = 0;
}
