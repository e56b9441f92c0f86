#include "model/inputs.h"

#include <string.h>

/* Staging has room for the deltas of a usual step. A step has more if many long prompts are found in the prefix cache
 * at once; those are copied straight from the batch. */
static int64_t staged_deltas(const struct batch_limits *limits)
{
    const int64_t all = (int64_t)limits->max_num_seqs * batch_max_blocks(limits);
    const int64_t usual = (int64_t)limits->max_num_tokens / limits->block_size + 16 * (int64_t)limits->max_num_seqs;
    return limits->num_groups * (usual < all ? usual : all);
}

struct packer {
    struct copy_segment segments[COPY_MAX_SEGMENTS];
    int32_t count;
    uint8_t *next; /* in staging, 16-byte aligned */
};

static int64_t aligned(int64_t bytes)
{
    return (bytes + 15) & ~(int64_t)15;
}

/* A place in staging for `bytes` that go to `destination`. */
static void *pack_place(struct packer *p, void *destination, int64_t bytes)
{
    void *place = p->next;
    p->segments[p->count++] = (struct copy_segment){destination, place, bytes};
    p->next += aligned(bytes);
    return place;
}

static void pack(struct packer *p, void *destination, const void *source, int64_t bytes)
{
    if (bytes > 0) memcpy(pack_place(p, destination, bytes), source, (size_t)bytes);
}

/* int32 values, and `padding` more of one value. */
static void pack_padded(struct packer *p, int32_t *destination, const int32_t *source, int32_t count, int32_t padding,
                        int32_t value)
{
    if (count + padding == 0) return;
    int32_t *place = pack_place(p, destination, (int64_t)(count + padding) * (int64_t)sizeof *place);
    memcpy(place, source, (size_t)count * sizeof *place);
    for (int32_t i = 0; i < padding; i++) place[count + i] = value;
}

/* The groups' slots side by side, each with its padding: one copy, as long as the step and not as the largest one. */
static void pack_slot_mapping(struct packer *p, int64_t *destination, const struct batch *batch, int32_t padding)
{
    const int64_t count = batch->num_tokens, groups = batch->limits.num_groups;
    int64_t *place = pack_place(p, destination, groups * (count + padding) * (int64_t)sizeof *place);
    for (int64_t g = 0; g < groups; g++, place += count + padding) {
        memcpy(place, batch->slot_mapping + g * batch->limits.max_num_tokens, (size_t)count * sizeof *place);
        for (int32_t i = 0; i < padding; i++) place[count + i] = -1;
    }
}

/* Where each token finds its states. Padding reads row 0. */
static void pack_state_rows(struct packer *p, const struct step_inputs *in, const struct batch *batch, int32_t padding)
{
    const int32_t count = batch->num_tokens, *rows = batch->state_rows;
    const int64_t bytes = (int64_t)(count + padding) * (int64_t)sizeof *rows;
    if (!in->target_rows || bytes == 0) return;
    int32_t *of_target = pack_place(p, in->target_rows, bytes), *own = pack_place(p, in->own_rows, bytes);
    for (int32_t i = 0; i < count; i++) {
        of_target[i] = rows[i] >= 0 ? rows[i] : -1;
        own[i] = rows[i] < 0 ? -(rows[i] + 1) : -1;
    }
    for (int32_t i = count; i < count + padding; i++) of_target[i] = own[i] = 0;
}

static void pack_deltas(const struct step_inputs *in, struct backend *b, struct packer *p, const struct batch *batch)
{
    const int64_t bytes = batch->num_deltas * (int64_t)sizeof *batch->deltas;
    if (batch->num_deltas <= in->staged_deltas)
        pack(p, in->deltas, batch->deltas, bytes);
    else
        b->copy(b, in->deltas, batch->deltas, bytes, NULL);
}

void step_inputs_upload(const struct step_inputs *in, struct backend *b, const struct batch *batch, int32_t num_seqs,
                        int place)
{
    const int32_t tokens = batch->num_tokens, seqs = batch->num_seqs, samples = batch->num_samples;
    const int32_t padding = num_seqs > seqs ? num_seqs - seqs : 0;
    struct packer p = {.next = in->staging[place]};
    pack_padded(&p, in->token_ids, batch->token_ids, tokens, padding, 0);
    pack_padded(&p, in->positions, batch->positions, tokens, padding, 0);
    pack_slot_mapping(&p, in->slot_mapping, batch, padding);
    pack_padded(&p, in->query_start, batch->query_start, seqs + 1, padding, tokens);
    pack_padded(&p, in->seq_lens, batch->seq_lens, seqs, padding, 0);
    pack_padded(&p, in->state_indices, batch->state_indices, seqs, padding, 0);
    if (in->state_sources) {
        pack_padded(&p, in->state_sources, batch->state_sources, seqs, padding, STATE_SLOT_NONE);
        pack_padded(&p, in->state_slots, batch->state_slots, seqs, padding, STATE_SLOT_NONE);
    }
    pack_padded(&p, in->logits_indices, batch->logits_indices, samples, 0, 0);
    pack_padded(&p, in->sample_state_indices, batch->sample_state_indices, samples, 0, 0);
    pack_padded(&p, in->output_positions, batch->output_positions, samples, 0, 0);
    if (batch->num_drafts > 0) pack_padded(&p, in->sampled_drafts, batch->sampled_drafts, samples, 0, 0);
    pack(&p, in->target_indices, batch->target_indices, batch->num_targets * (int64_t)sizeof *batch->target_indices);
    pack(&p, in->target_ids, batch->target_ids, batch->num_targets * (int64_t)sizeof *batch->target_ids);
    pack_state_rows(&p, in, batch, padding);
    pack_deltas(in, b, &p, batch);
    pack(&p, in->copies, batch->copies, batch->num_copies * (int64_t)sizeof *batch->copies);
    const struct copy_many_args args = {.segments = p.segments, .count = p.count};
    b->copy_many(b, &args);
}

enum status step_inputs_allocate(struct step_inputs *in, struct arena *arena, const struct batch_limits *limits,
                                 int32_t num_steps, bool is_head, struct error *err)
{
    const int64_t T = limits->max_num_tokens, S = limits->max_num_seqs, max_blocks = batch_max_blocks(limits);
    const int64_t E = batch_max_entries(limits), groups = limits->num_groups;
    in->staged_deltas = staged_deltas(limits);
    const struct arena_request arrays[] = {
        {PURPOSE_STATE, T, sizeof *in->token_ids, &in->token_ids},
        {PURPOSE_STATE, T, sizeof *in->positions, &in->positions},
        {PURPOSE_STATE, groups * T, sizeof *in->slot_mapping, &in->slot_mapping},
        {PURPOSE_STATE, E + 1, sizeof *in->query_start, &in->query_start},
        {PURPOSE_STATE, E, sizeof *in->seq_lens, &in->seq_lens},
        {PURPOSE_STATE, E, sizeof *in->state_indices, &in->state_indices},
        {PURPOSE_STATE, limits->num_state_slots > 0 ? E : 0, sizeof *in->state_sources, &in->state_sources},
        {PURPOSE_STATE, limits->num_state_slots > 0 ? E : 0, sizeof *in->state_slots, &in->state_slots},
        {PURPOSE_STATE, E, sizeof *in->logits_indices, &in->logits_indices},
        {PURPOSE_STATE, E, sizeof *in->sample_state_indices, &in->sample_state_indices},
        {PURPOSE_STATE, E, sizeof *in->output_positions, &in->output_positions},
        {PURPOSE_STATE, limits->max_num_drafts > 0 ? E : 0, sizeof *in->sampled_drafts, &in->sampled_drafts},
        {PURPOSE_STATE, T, sizeof *in->target_indices, &in->target_indices},
        {PURPOSE_STATE, T, sizeof *in->target_ids, &in->target_ids},
        {PURPOSE_STATE, is_head ? T : 0, sizeof *in->target_rows, &in->target_rows},
        {PURPOSE_STATE, is_head ? T : 0, sizeof *in->own_rows, &in->own_rows},
        {PURPOSE_STATE, groups * S, sizeof *in->copies, &in->copies},
        {PURPOSE_STATE, groups * S * max_blocks, sizeof *in->deltas, &in->deltas},
    };
    enum { COUNT = sizeof arrays / sizeof *arrays };
    int64_t staging = aligned(in->staged_deltas * (int64_t)sizeof *in->deltas);
    for (int i = 0; i < COUNT - 1; i++) staging += aligned(arrays[i].count * arrays[i].element_size);
    enum status status = arena_alloc_all(arena, arrays, COUNT, err);
    for (int32_t i = 0; i < num_steps && status == STATUS_OK; i++) {
        const struct arena_request request = {PURPOSE_HOST_STAGING, staging, 1, &in->staging[i]};
        status = arena_alloc_all(arena, &request, 1, err);
    }
    return status;
}
