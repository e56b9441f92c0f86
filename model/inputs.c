#include "model/inputs.h"

#include <string.h>

/* Staging holds the table changes of a usual step; more (many long prompts found in the cache at once) go past it. */
static int64_t staged_deltas(const struct batch_limits *limits)
{
    const int64_t all = (int64_t)limits->max_num_seqs * batch_max_blocks(limits);
    const int64_t usual = (int64_t)limits->max_num_tokens / limits->block_size + 16 * (int64_t)limits->max_num_seqs;
    return usual < all ? usual : all;
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

static void pack_slot_mapping(struct packer *p, int64_t *destination, const int64_t *source, int32_t count,
                              int32_t padding)
{
    int64_t *place = pack_place(p, destination, (int64_t)(count + padding) * (int64_t)sizeof *place);
    memcpy(place, source, (size_t)count * sizeof *place);
    for (int32_t i = 0; i < padding; i++) place[count + i] = -1;
}

static void pack_deltas(struct model *m, struct packer *p, const struct batch *batch)
{
    const int64_t bytes = batch->num_deltas * (int64_t)sizeof *batch->deltas;
    if (batch->num_deltas <= staged_deltas(&m->options.limits))
        pack(p, m->inputs.deltas, batch->deltas, bytes);
    else
        m->backend->copy(m->backend, m->inputs.deltas, batch->deltas, bytes, NULL);
}

void inputs_upload(struct model *m, const struct batch *batch, int32_t rows, struct step_host *host)
{
    const int32_t tokens = batch->num_tokens, seqs = batch->num_seqs, samples = batch->num_samples;
    const int32_t padding = rows > seqs ? rows - seqs : 0;
    const struct step_inputs *in = &m->inputs;
    struct packer p = {.next = host->staging};
    pack_padded(&p, in->token_ids, batch->token_ids, tokens, padding, 0);
    pack_padded(&p, in->positions, batch->positions, tokens, padding, 0);
    pack_slot_mapping(&p, in->slot_mapping, batch->slot_mapping, tokens, padding);
    pack_padded(&p, in->query_start, batch->query_start, seqs + 1, padding, tokens);
    pack_padded(&p, in->seq_lens, batch->seq_lens, seqs, padding, 0);
    pack_padded(&p, in->state_indices, batch->state_indices, seqs, padding, 0);
    pack_padded(&p, in->logits_indices, batch->logits_indices, samples, 0, 0);
    pack_padded(&p, in->sample_state_indices, batch->sample_state_indices, samples, 0, 0);
    pack_padded(&p, in->sample_output, batch->sample_output, samples, 0, 0);
    pack_deltas(m, &p, batch);
    pack(&p, in->copies, batch->copies, batch->num_copies * (int64_t)sizeof *batch->copies);
    m->backend->copy_many(m->backend, &(struct copy_many_args){p.segments, p.count});
}

static enum status allocate(struct model *m, int64_t bytes, void *pointer, struct error *err)
{
    void *data;
    enum status status = arena_alloc(&m->arena, PURPOSE_STATE, bytes, &data, err);
    if (status == STATUS_OK) memcpy(pointer, &data, sizeof data);
    return status;
}

enum status inputs_allocate(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const int64_t T = limits->max_num_tokens, S = limits->max_num_seqs, max_blocks = batch_max_blocks(limits);
    struct step_inputs *in = &m->inputs;
    const struct {
        void *pointer;
        int64_t bytes, staged;
    } arrays[] = {
        {&in->token_ids, T * 4, T * 4},
        {&in->positions, T * 4, T * 4},
        {&in->slot_mapping, T * 8, T * 8},
        {&in->query_start, (S + 1) * 4, (S + 1) * 4},
        {&in->seq_lens, S * 4, S * 4},
        {&in->state_indices, S * 4, S * 4},
        {&in->logits_indices, S * 4, S * 4},
        {&in->sample_state_indices, S * 4, S * 4},
        {&in->sample_output, S * 4, S * 4},
        {&in->deltas, S * max_blocks * (int64_t)sizeof *in->deltas,
         staged_deltas(limits) * (int64_t)sizeof *in->deltas},
        {&in->copies, S * (int64_t)sizeof *in->copies, S * (int64_t)sizeof *in->copies},
    };
    int64_t staging = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && status == STATUS_OK; i++) {
        status = allocate(m, arrays[i].bytes, arrays[i].pointer, err);
        staging += aligned(arrays[i].staged);
    }
    for (int i = 0; i < 2 && status == STATUS_OK; i++) {
        void *data;
        status = arena_alloc(&m->arena, PURPOSE_HOST_STAGING, staging, &data, err);
        m->hosts[i].staging = data;
    }
    return status;
}
