#include "tests/support/slot_device.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* ---- true sequences ---- */

void true_sequence_init(struct true_sequence *seq, int32_t request, int32_t index, uint64_t seed, int32_t salt)
{
    seq->request = request;
    seq->index = index;
    seq->seed = seed;
    seq->num_tokens = seq->prompt_len = 0;
    seq->cache_namespace = 0;
    seq->chosen = false;
    seq->contexts[0] = random_mix((uint64_t)salt + 1);
}

void true_sequence_append(struct true_sequence *seq, int32_t token)
{
    const int32_t n = seq->num_tokens++;
    seq->tokens[n] = token;
    seq->contexts[n + 1] = random_mix(seq->contexts[n] * RANDOM_STEP + (uint64_t)token + 1);
}

int32_t true_sequence_draw(const struct true_sequence *seq, int32_t length)
{
    const uint64_t who = seq->seed * 64 + (uint64_t)seq->index;
    return (int32_t)(random_mix(seq->contexts[length] ^ random_mix(who)) % TRUE_VOCAB);
}

int32_t true_sequence_token(struct true_sequence *seq, int32_t position)
{
    while (seq->num_tokens <= position) true_sequence_append(seq, true_sequence_draw(seq, seq->num_tokens));
    return seq->tokens[position];
}

void true_sequence_draft(struct true_sequence *out, const struct true_sequence *seq, int32_t num_tokens,
                         const int32_t *drafts, int32_t count)
{
    memcpy(out, seq, offsetof(struct true_sequence, tokens));
    memcpy(out->tokens, seq->tokens, (size_t)num_tokens * sizeof *out->tokens);
    memcpy(out->contexts, seq->contexts, ((size_t)num_tokens + 1) * sizeof *out->contexts);
    out->num_tokens = num_tokens;
    for (int32_t i = 0; i < count; i++) true_sequence_append(out, drafts[i]);
}

void true_sequence_guess(struct true_sequence *seq, int32_t num_tokens, int32_t *drafts, int32_t count, int32_t wrong)
{
    struct true_sequence draft;
    true_sequence_token(seq, num_tokens - 1);
    true_sequence_draft(&draft, seq, num_tokens, NULL, 0);
    for (int32_t i = 0; i < count; i++) {
        drafts[i] = true_sequence_draw(&draft, draft.num_tokens);
        if (i == wrong) drafts[i] = (drafts[i] + 1) % TRUE_VOCAB;
        true_sequence_append(&draft, drafts[i]);
    }
}

/* ---- runs ---- */

static bool continues_run(const struct batch *b, int32_t entry)
{
    return entry > 0 && entry < b->num_decodes && b->state_indices[entry] == b->state_indices[entry - 1];
}

struct run_entries slot_device_entries(const struct batch *batch, int32_t entry)
{
    struct run_entries run = {entry, entry + 1};
    while (continues_run(batch, run.first)) run.first--;
    while (continues_run(batch, run.end)) run.end++;
    return run;
}

/* ---- the device ---- */

static size_t num_slots(const struct slot_device *d)
{
    return ((size_t)d->num_blocks + 1 + (size_t)d->num_host_blocks) * (size_t)d->stride;
}

static bool init_targets(struct slot_targets *t, const struct batch_limits *limits)
{
    const size_t tokens = (size_t)limits->max_num_tokens;
    return (t->requests = calloc(tokens, sizeof *t->requests)) && (t->ids = calloc(tokens, sizeof *t->ids)) &&
           (t->rows = calloc(tokens, sizeof *t->rows)) &&
           (t->top_ids = calloc(tokens * SLOT_DEVICE_TOPS, sizeof *t->top_ids)) &&
           (t->logprobs = calloc(tokens * SLOT_DEVICE_TOPS, sizeof *t->logprobs));
}

static size_t num_states(const struct slot_device *d)
{
    return (size_t)d->limits.num_state_slots + 1 + (size_t)d->num_host_slots;
}

enum status slot_device_init(struct slot_device *d, const struct scheduler_config *config, struct error *err)
{
    const struct batch_limits *limits = &config->limits;
    *d = (struct slot_device){.limits = *limits,
                              .stride = batch_largest_block_size(limits),
                              .num_blocks = config->num_blocks,
                              .num_host_blocks = config->num_host_blocks,
                              .num_host_slots = config->num_host_slots,
                              .num_batches = config->num_batches,
                              .first_namespace_len = config->first_namespace_len,
                              .namespace_position_shift = config->namespace_position_shift,
                              .step = 1};
    const size_t slots = num_slots(d), seqs = (size_t)limits->max_num_seqs, rows = (size_t)batch_max_entries(limits);
    const size_t entries = (size_t)limits->num_groups * seqs * (size_t)batch_max_blocks(limits);
    bool ok = (d->slots = calloc(slots, sizeof *d->slots)) && (d->written_in = calloc(slots, sizeof *d->written_in)) &&
              (d->kept_in = calloc(slots, sizeof *d->kept_in)) && (d->tables = calloc(entries, sizeof *d->tables)) &&
              (d->changed_in = calloc(entries, sizeof *d->changed_in)) &&
              (d->states = calloc(seqs, sizeof *d->states)) && (d->named_in = calloc(seqs, sizeof *d->named_in)) &&
              (d->resolved = calloc((size_t)limits->max_num_tokens, sizeof *d->resolved)) &&
              (d->state_slots = calloc(num_states(d), sizeof *d->state_slots)) &&
              (d->state_written_in = calloc((size_t)limits->num_state_slots + 1, sizeof *d->state_written_in));
    if (ok && limits->max_num_drafts > 0) ok = (d->runs = calloc(seqs, sizeof *d->runs));
    for (int i = 0; ok && i < SLOT_DEVICE_STEPS; i++)
        ok = (d->drafts[i] = calloc((size_t)limits->max_num_drafts + 1, sizeof *d->drafts[i])) &&
             (d->sampled[i] = calloc(rows, sizeof *d->sampled[i])) && init_targets(&d->targets[i], limits);
    if (!ok) {
        slot_device_free(d);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the device of slots");
    }
    for (size_t i = 0; i < slots; i++) d->slots[i].position = -1;
    for (size_t i = 1; i < num_states(d); i++) d->state_slots[i].num_tokens = -1;
    return STATUS_OK;
}

void slot_device_free(struct slot_device *d)
{
    free(d->slots);
    free(d->written_in);
    free(d->kept_in);
    free(d->tables);
    free(d->changed_in);
    free(d->states);
    free(d->named_in);
    free(d->runs);
    free(d->resolved);
    free(d->state_slots);
    free(d->state_written_in);
    for (int i = 0; i < SLOT_DEVICE_STEPS; i++) {
        free(d->sampled[i]);
        free(d->drafts[i]);
        free(d->targets[i].requests);
        free(d->targets[i].ids);
        free(d->targets[i].rows);
        free(d->targets[i].top_ids);
        free(d->targets[i].logprobs);
    }
    *d = (struct slot_device){0};
}

/* Where token `offset` of a block is, in slots, written_in and kept_in. */
static int64_t place_of(const struct slot_device *d, int64_t block, int32_t offset)
{
    return block * d->stride + offset;
}

/* Where a slot of the group is. */
static int64_t place_of_slot(const struct slot_device *d, int32_t group, int64_t slot)
{
    const int32_t size = batch_block_size(&d->limits, group);
    return place_of(d, slot / size, (int32_t)(slot % size));
}

void slot_device_keep(struct slot_device *d, int32_t block, int32_t offset)
{
    d->kept_in[place_of(d, block, offset)] = d->step;
}

void slot_device_set_drafts(struct slot_device *d, struct batch *batch, const int32_t *drafts)
{
    const int64_t step = d->num_submitted % SLOT_DEVICE_STEPS;
    int32_t count = 0;
    for (int32_t i = 1; i < batch->num_decodes; i++)
        if (continues_run(batch, i)) batch->token_ids[i] = batch_device_draft(&d->limits, 0, count++);
    memcpy(d->drafts[step], drafts, (size_t)count * sizeof *drafts);
    d->has_drafts[step] = count > 0;
}

static int32_t *table_of(const struct slot_device *d, int32_t group, int32_t state_index)
{
    const size_t row = (size_t)group * (size_t)d->limits.max_num_seqs + (size_t)state_index;
    return d->tables + row * (size_t)batch_max_blocks(&d->limits);
}

/* Blocks numbered `first` and on, `count` of them. */
struct block_range {
    int32_t first, count;
};

static bool in_range(struct block_range range, int32_t block)
{
    return block >= range.first && block - range.first < range.count;
}

/* A device moves the pairs in any order, so none may depend on another. */
static enum status check_pairs(const char *what, const struct block_pair *pairs, int32_t count, struct block_range from,
                               struct block_range to, struct error *err)
{
    for (int32_t i = 0; i < count; i++) {
        const struct block_pair pair = pairs[i];
        if (!in_range(from, pair.source) || !in_range(to, pair.destination))
            return error_set(err, STATUS_INTERNAL, "%s %d is moved to %d", what, pair.source, pair.destination);
        for (int32_t j = 0; j < count; j++)
            if (pair.destination == pairs[j].source || (i != j && pair.destination == pairs[j].destination))
                return error_set(err, STATUS_INTERNAL, "moves of %ss %d and %d to %d and %d depend on each other", what,
                                 pair.source, pairs[j].source, pair.destination, pairs[j].destination);
    }
    return STATUS_OK;
}

static enum status move_blocks(struct slot_device *d, const struct block_pair *pairs, int32_t count,
                               struct block_range from, struct block_range to, struct error *err)
{
    const size_t size = (size_t)d->stride;
    const enum status status = check_pairs("block", pairs, count, from, to, err);
    for (int32_t i = 0; i < count && status == STATUS_OK; i++)
        memcpy(d->slots + (size_t)pairs[i].destination * size, d->slots + (size_t)pairs[i].source * size,
               size * sizeof *d->slots);
    return status;
}

static enum status move_states(struct slot_device *d, const struct block_pair *pairs, int32_t count,
                               struct block_range from, struct block_range to, struct error *err)
{
    const enum status status = check_pairs("state slot", pairs, count, from, to, err);
    for (int32_t i = 0; i < count && status == STATUS_OK; i++)
        d->state_slots[pairs[i].destination] = d->state_slots[pairs[i].source];
    return status;
}

/* As with blocks, what was swapped in is lost on the host. */
static enum status swap_states(struct slot_device *d, const struct batch *b, struct error *err)
{
    const struct block_range device = {1, d->limits.num_state_slots},
                             host = {d->limits.num_state_slots + 1, d->num_host_slots};
    if (b->num_states_out > d->limits.max_num_seqs || b->num_states_in > d->limits.max_num_seqs)
        return error_set(err, STATUS_INTERNAL, "%d states swapped out and %d in", b->num_states_out, b->num_states_in);
    enum status status = move_states(d, b->states_out, b->num_states_out, device, host, err);
    if (status == STATUS_OK) status = move_states(d, b->states_in, b->num_states_in, host, device, err);
    for (int32_t i = 0; i < b->num_states_in && status == STATUS_OK; i++)
        d->state_slots[b->states_in[i].source].num_tokens = -1;
    return status;
}

/* Host blocks that were swapped in lose their contents, so that swapping them in twice is found. */
static void forget(struct slot_device *d, const struct block_pair *pairs, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        for (int32_t t = 0; t < d->stride; t++) d->slots[place_of(d, pairs[i].source, t)].position = -1;
}

static enum status move_all(struct slot_device *d, const struct batch *b, struct error *err)
{
    const struct block_range device = {1, d->num_blocks}, host = {d->num_blocks + 1, d->num_host_blocks};
    if (b->num_copies > d->limits.max_num_seqs * d->limits.num_groups || b->num_swap_out > b->max_deltas ||
        b->num_swap_in > b->max_deltas)
        return error_set(err, STATUS_INTERNAL, "%d copies, %d blocks swapped out and %d in", b->num_copies,
                         b->num_swap_out, b->num_swap_in);
    enum status status = move_blocks(d, b->swap_out, b->num_swap_out, device, host, err);
    if (status == STATUS_OK) status = move_blocks(d, b->swap_in, b->num_swap_in, host, device, err);
    if (status == STATUS_OK) forget(d, b->swap_in, b->num_swap_in);
    if (status == STATUS_OK) status = move_blocks(d, b->copies, b->num_copies, device, device, err);
    return status;
}

static enum status apply_deltas(struct slot_device *d, const struct batch *b, struct error *err)
{
    if (b->num_deltas > b->max_deltas) return error_set(err, STATUS_INTERNAL, "%d deltas", b->num_deltas);
    for (int32_t i = 0; i < b->num_deltas; i++) {
        const struct block_table_delta delta = b->deltas[i];
        if (delta.group < 0 || delta.group >= d->limits.num_groups || delta.state_index < 0 ||
            delta.state_index >= d->limits.max_num_seqs || delta.index < 0 ||
            delta.index >= batch_max_blocks(&d->limits) || delta.block < 0 || delta.block > d->num_blocks)
            return error_set(err, STATUS_INTERNAL, "delta: group %d state index %d index %d block %d", delta.group,
                             delta.state_index, delta.index, delta.block);
        int32_t *entry = &table_of(d, delta.group, delta.state_index)[delta.index];
        int64_t *changed_in = &d->changed_in[entry - d->tables];
        if (*changed_in == d->step)
            return error_set(err, STATUS_INTERNAL, "delta: entry %d of group %d and state index %d changes twice",
                             delta.index, delta.group, delta.state_index);
        *changed_in = d->step;
        *entry = delta.block;
    }
    return STATUS_OK;
}

/* Replaces ids -(i + 1) by the token of sample i of the step before. */
static enum status resolve(struct slot_device *d, const struct batch *b, struct error *err)
{
    const int64_t last = d->num_submitted - 1;
    for (int32_t i = 0; i < b->num_tokens; i++) {
        int32_t id = b->token_ids[i];
        const int32_t sample = -id - 1, draft = sample - batch_max_entries(&d->limits);
        if (id < 0 && draft >= 0 && draft < b->num_drafts) {
            id = d->drafts[d->num_submitted % SLOT_DEVICE_STEPS][draft];
        } else if (id < 0) {
            if (d->num_batches > 1)
                return error_set(err, STATUS_INTERNAL, "token %d is not known yet, and its stage is another", i);
            if (last < d->num_collected || sample >= d->num_sampled[last % SLOT_DEVICE_STEPS])
                return error_set(err, STATUS_INTERNAL, "token %d names sample %d of a step that is not in flight", i,
                                 sample);
            id = d->sampled[last % SLOT_DEVICE_STEPS][sample];
        }
        if (id >= TRUE_VOCAB) return error_set(err, STATUS_INTERNAL, "token %d is %d", i, id);
        d->resolved[i] = id;
    }
    return STATUS_OK;
}

static enum status check_shape(struct slot_device *d, const struct batch *b, struct error *err)
{
    int32_t max_query = 0, max_len = 0, num_drafts = 0;
    if (b->num_tokens < 1 || b->num_tokens > d->limits.max_num_tokens || b->num_seqs < 1 ||
        b->num_drafts > d->limits.max_num_drafts || b->num_seqs - b->num_drafts > d->limits.max_num_seqs ||
        b->num_samples - b->num_drafts > d->limits.max_num_seqs || b->query_start[0] != 0 ||
        b->query_start[b->num_seqs] != b->num_tokens)
        return error_set(err, STATUS_INTERNAL, "%d tokens of %d sequences, %d of them drafts, %d samples",
                         b->num_tokens, b->num_seqs, b->num_drafts, b->num_samples);
    for (int32_t i = 0; i < b->num_seqs; i++) {
        const int32_t query = b->query_start[i + 1] - b->query_start[i], index = b->state_indices[i];
        if (query < 1 || (i < b->num_decodes && query != 1) || b->seq_lens[i] > d->limits.max_model_len)
            return error_set(err, STATUS_INTERNAL, "sequence %d of %d decodes: %d query tokens, length %d", i,
                             b->num_decodes, query, b->seq_lens[i]);
        const bool draft = continues_run(b, i);
        if (index < 0 || index >= d->limits.max_num_seqs || (d->named_in[index] == d->step) != draft ||
            !d->states[index])
            return error_set(err, STATUS_INTERNAL, "sequence %d: state index %d is out of range, taken or unknown", i,
                             index);
        if (draft && b->seq_lens[i] != b->seq_lens[i - 1] + 1)
            return error_set(err, STATUS_INTERNAL, "entry %d, a draft, has length %d after %d", i, b->seq_lens[i],
                             b->seq_lens[i - 1]);
        d->named_in[index] = d->step;
        num_drafts += draft;
        if (query > max_query) max_query = query;
        if (b->seq_lens[i] > max_len) max_len = b->seq_lens[i];
    }
    if (max_query == b->max_query_len && max_len == b->max_seq_len && num_drafts == b->num_drafts) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "largest query %d, length %d, %d drafts", b->max_query_len, b->max_seq_len,
                     b->num_drafts);
}

/* The sequence that an entry computes: in a run, with its drafts. */
static struct true_sequence *sequence_of(const struct slot_device *d, const struct batch *b, int32_t entry)
{
    const struct run_entries run = slot_device_entries(b, entry);
    return run.end - run.first > 1 ? &d->runs[b->state_indices[entry]] : d->states[b->state_indices[entry]];
}

static enum status make_runs(struct slot_device *d, const struct batch *b, struct error *err)
{
    struct run_entries run;
    for (int32_t i = 0; i < b->num_decodes; i = run.end) {
        run = slot_device_entries(b, i);
        if (run.end - run.first == 1) continue;
        struct true_sequence *seq = d->states[b->state_indices[i]];
        const int32_t length = b->seq_lens[i], count = run.end - run.first - 1;
        if (seq->chosen || count > MAX_DRAFTS || length <= seq->prompt_len)
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: %d drafts after %d tokens", seq->request,
                             seq->index, count, length);
        true_sequence_token(seq, length - 1);
        true_sequence_draft(&d->runs[b->state_indices[i]], seq, length, d->resolved + run.first + 1, count);
    }
    return STATUS_OK;
}

/* A token goes to the slot of each group that the sequence's own table gives it, which no other token takes. */
static enum status write_token(struct slot_device *d, const struct batch *b, int32_t i, int32_t t, int32_t position,
                               struct error *err)
{
    struct true_sequence *seq = sequence_of(d, b, i);
    const int32_t row = position + (seq->cache_namespace > 0 ? d->namespace_position_shift : 0);
    if (seq->chosen && position >= seq->num_tokens)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d: position %d is computed before it is chosen",
                         seq->request, seq->index, position);
    if (d->resolved[t] != true_sequence_token(seq, position) || b->positions[t] != row)
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d: token %d, at position %d, is said to be %d at position %d",
                         seq->request, seq->index, seq->tokens[position], row, d->resolved[t], b->positions[t]);
    for (int32_t g = 0; g < d->limits.num_groups; g++) {
        const int64_t slot = b->slot_mapping[(int64_t)g * d->limits.max_num_tokens + t];
        const int32_t size = batch_block_size(&d->limits, g);
        const int32_t block = table_of(d, g, b->state_indices[i])[position / size];
        const int64_t place = place_of(d, block, position % size);
        if (block < 1 || slot != (int64_t)block * size + position % size)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d group %d: position %d goes to slot %lld; its table names block %d",
                             seq->request, seq->index, g, position, (long long)slot, block);
        if (d->written_in[place] == d->step || d->kept_in[place] == d->step)
            return error_set(
                err, STATUS_INTERNAL,
                "request %d sequence %d group %d: slot %lld, where position %d goes, holds a token that is "
                "still read or was written in this step",
                seq->request, seq->index, g, (long long)slot, position);
        d->written_in[place] = d->step;
        d->slots[place] = (struct slot){.context = seq->contexts[position + 1],
                                        .position = position,
                                        .token = d->resolved[t],
                                        .group = g,
                                        .request = seq->request,
                                        .index = seq->index,
                                        .cache_namespace = seq->cache_namespace};
    }
    return STATUS_OK;
}

static enum status write_tokens(struct slot_device *d, const struct batch *b, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < b->num_seqs; i++) {
        int32_t position = b->seq_lens[i] - (b->query_start[i + 1] - b->query_start[i]);
        for (int32_t t = b->query_start[i]; t < b->query_start[i + 1] && status == STATUS_OK; t++, position++)
            status = write_token(d, b, i, t, position, err);
    }
    return status;
}

enum status slot_device_check(const struct slot_device *d, const struct true_sequence *seq, int32_t group,
                              int32_t block, int32_t first, int32_t end, struct error *err)
{
    const int32_t size = batch_block_size(&d->limits, group);
    if (block < 1 || block > d->num_blocks + d->num_host_blocks)
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d group %d: position %d is read in block %d",
                         seq->request, seq->index, group, first, block);
    for (int32_t p = first; p < end; p++) {
        const struct slot *slot = &d->slots[place_of(d, block, p % size)];
        if (slot->position == p && slot->group == group && slot->cache_namespace == seq->cache_namespace &&
            slot->context == seq->contexts[p + 1] && slot->token == seq->tokens[p])
            continue;
        if (slot->position < 0)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d group %d: position %d is read in block %d before it is written",
                             seq->request, seq->index, group, p, block);
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d group %d: position %d (token %d) is read in block %d, which holds "
                         "position %d (token %d) of request %d sequence %d group %d",
                         seq->request, seq->index, group, p, seq->tokens[p], block, slot->position, slot->token,
                         slot->request, slot->index, slot->group);
    }
    return STATUS_OK;
}

/* ---- states ---- */

enum status slot_device_check_state(const struct slot_device *d, const struct true_sequence *seq, int32_t slot,
                                    int32_t num_tokens, struct error *err)
{
    if (slot < 0 || (size_t)slot >= num_states(d) || (slot == STATE_SLOT_NONE) != (num_tokens == 0))
        return error_set(err, STATUS_INTERNAL, "request %d sequence %d: its state after %d tokens is in state slot %d",
                         seq->request, seq->index, num_tokens, slot);
    const struct state *state = &d->state_slots[slot];
    if (slot == STATE_SLOT_NONE) return STATUS_OK;
    if (state->num_tokens < 0)
        return error_set(err, STATUS_INTERNAL,
                         "request %d sequence %d: state slot %d is read after %d tokens before it is written",
                         seq->request, seq->index, slot, num_tokens);
    if (state->num_tokens == num_tokens && state->context == seq->contexts[num_tokens]) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL,
                     "request %d sequence %d: state slot %d is read after %d tokens, but holds a state after %d %s",
                     seq->request, seq->index, slot, num_tokens, state->num_tokens,
                     state->num_tokens == num_tokens ? "others" : "tokens");
}

/* An entry goes on from the state after the tokens before its own; within a run, from that of the entry before it. */
static enum status read_state(const struct slot_device *d, const struct batch *b, int32_t i, struct error *err)
{
    const int32_t start = b->seq_lens[i] - (b->query_start[i + 1] - b->query_start[i]);
    if (continues_run(b, i)) {
        if (b->state_sources[i] == STATE_CONTINUES) return STATUS_OK;
        return error_set(err, STATUS_INTERNAL, "entry %d, a draft, goes on from state slot %d", i, b->state_sources[i]);
    }
    if (b->state_sources[i] > d->limits.num_state_slots)
        return error_set(err, STATUS_INTERNAL, "entry %d reads host slot %d", i, b->state_sources[i]);
    return slot_device_check_state(d, sequence_of(d, b, i), b->state_sources[i], start, err);
}

/* Slots that a step writes are distinct, and no other sequence reads them: entries run side by side. */
static enum status write_state(struct slot_device *d, const struct batch *b, int32_t i, struct error *err)
{
    const struct true_sequence *seq = sequence_of(d, b, i);
    const int32_t slot = b->state_slots[i], end = b->seq_lens[i];
    if (slot == STATE_SLOT_NONE) return STATUS_OK;
    if (slot < 0 || slot > d->limits.num_state_slots || d->state_written_in[slot] == d->step)
        return error_set(err, STATUS_INTERNAL, "entry %d writes state slot %d, as another entry does", i, slot);
    for (int32_t k = 0; k < b->num_seqs; k++)
        if (b->state_sources[k] == slot && b->state_indices[k] != b->state_indices[i])
            return error_set(err, STATUS_INTERNAL, "entry %d writes state slot %d, which entry %d reads", i, slot, k);
    d->state_written_in[slot] = d->step;
    d->state_slots[slot] = (struct state){end, seq->contexts[end]};
    return STATUS_OK;
}

static enum status compute_states(struct slot_device *d, const struct batch *b, struct error *err)
{
    enum status status = STATUS_OK;
    if (d->limits.num_state_slots == 0) return STATUS_OK;
    for (int32_t i = 0; i < b->num_seqs && status == STATUS_OK; i++) status = read_state(d, b, i, err);
    for (int32_t i = 0; i < b->num_seqs && status == STATUS_OK; i++) status = write_state(d, b, i, err);
    return status;
}

/* What sequence i's queries read. A decode reads nothing that this step writes but its own token, and in a run those
 * before it. */
static enum status gather(struct slot_device *d, const struct batch *b, int32_t i, int32_t group, struct error *err)
{
    const struct true_sequence *seq = sequence_of(d, b, i);
    const int32_t before = b->seq_lens[slot_device_entries(b, i).first] - 1;
    const int32_t size = batch_block_size(&d->limits, group), end = b->seq_lens[i], window = d->limits.windows[group];
    const int32_t start = end - (b->query_start[i + 1] - b->query_start[i]);
    const int32_t *table = table_of(d, group, b->state_indices[i]);
    enum status status = STATUS_OK;
    int32_t p = window > 0 && start >= window ? start - window + 1 : 0;
    if (d->limits.chunked[group]) p = start / window * window;
    for (int32_t last; p < end && status == STATUS_OK; p = last) {
        last = p - p % size + size < end ? p - p % size + size : end;
        status = slot_device_check(d, seq, group, table[p / size], p, last, err);
        for (int32_t t = p; i < b->num_decodes && t < last && t < before && status == STATUS_OK; t++)
            if (d->written_in[place_of(d, table[t / size], t % size)] == d->step)
                status = error_set(err, STATUS_INTERNAL, "decode %d: position %d is written in this step", i, t);
    }
    return status;
}

/* The draft among the logits of which sample `next` is, as the batch names it; -1: none. */
static enum status check_draft(const struct slot_device *d, const struct batch *b, int32_t i, int32_t next,
                               struct error *err)
{
    const bool known = !d->has_drafts[d->num_submitted % SLOT_DEVICE_STEPS]; /* to the host */
    const int32_t draft = continues_run(b, i) && known ? d->resolved[i] : -1;
    if (b->num_drafts == 0 || b->sampled_drafts[next] == draft) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "sample %d is of draft %d, but is said to be of %d", next, draft,
                     b->sampled_drafts[next]);
}

/* All samples that are taken from sequence i's last token; they follow one another. */
static enum status sample(struct slot_device *d, const struct batch *b, int32_t i, int32_t *next, struct error *err)
{
    struct true_sequence *seq = sequence_of(d, b, i);
    const bool is_run = seq != d->states[b->state_indices[i]];
    const int32_t length = b->seq_lens[i], first = *next;
    for (; *next < b->num_samples && b->logits_indices[*next] == b->query_start[i + 1] - 1; (*next)++) {
        const int32_t index = b->sample_state_indices[*next];
        struct true_sequence *own = index < 0 || index >= d->limits.max_num_seqs ? NULL : d->states[index];
        if (!own) return error_set(err, STATUS_INTERNAL, "sample %d: state index %d is unknown", *next, index);
        if (check_draft(d, b, i, *next, err) != STATUS_OK) return STATUS_INTERNAL;
        if (is_run && index == b->state_indices[i]) own = seq;
        true_sequence_token(own, length - 1);
        if (own->contexts[length] != seq->contexts[length])
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d is sampled from %d tokens of request %d sequence %d", own->request,
                             own->index, length, seq->request, seq->index);
        if (seq->cache_namespace != (d->first_namespace_len > 0 && length > d->first_namespace_len))
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: a sample of %d tokens in namespace %d",
                             seq->request, seq->index, length, seq->cache_namespace);
        if (b->output_positions[*next] != length - own->prompt_len)
            return error_set(err, STATUS_INTERNAL,
                             "request %d sequence %d: a sample of %d tokens is said to be output "
                             "%d",
                             own->request, own->index, length, b->output_positions[*next]);
        d->sampled[d->num_submitted % SLOT_DEVICE_STEPS][*next] =
            own->chosen || is_run ? true_sequence_draw(own, length) : true_sequence_token(own, length);
    }
    if (!is_run || *next == first + 1) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "entry %d of a run has %d samples", i, *next - first);
}

/* The targets of sequence i; they follow one another, and are the tokens of its prompt after those that they name. */
static enum status score(struct slot_device *d, const struct batch *b, int32_t i, int32_t *next, struct error *err)
{
    const struct true_sequence *seq = d->states[b->state_indices[i]];
    struct slot_targets *t = &d->targets[d->num_submitted % SLOT_DEVICE_STEPS];
    const int32_t end = b->query_start[i + 1];
    for (; *next < b->num_targets && b->target_indices[*next] < end; (*next)++) {
        const int32_t index = b->target_indices[*next], row = b->seq_lens[i] - end + index + 1;
        if (index < b->query_start[i] || row >= seq->prompt_len || b->target_ids[*next] != seq->tokens[row])
            return error_set(err, STATUS_INTERNAL, "request %d sequence %d: target %d is said to be token %d, %d",
                             seq->request, seq->index, *next, row, b->target_ids[*next]);
        t->requests[*next] = seq->request;
        t->ids[*next] = b->target_ids[*next];
        t->rows[*next] = row;
        t->logprobs[*next] = (float)row;
        for (int32_t k = 0; k < b->num_target_tops; k++) t->top_ids[*next * b->num_target_tops + k] = row + k;
    }
    return STATUS_OK;
}

static struct sample_output target_output(const struct slot_targets *t, const struct batch *b)
{
    return (struct sample_output){.num_samples = b->num_targets,
                                  .token_ids = t->ids,
                                  .logprobs = t->logprobs,
                                  .ranks = t->rows,
                                  .top_stride = b->num_target_tops,
                                  .top_ids = t->top_ids,
                                  .top_logprobs = t->logprobs};
}

enum status slot_device_submit(struct slot_device *d, const struct batch *b, struct error *err)
{
    const int32_t most = d->num_batches > 1 ? d->num_batches : 2;
    if (d->num_submitted - d->num_collected == most)
        return error_set(err, STATUS_INTERNAL, "more than %d steps in flight", most);
    enum status status = check_shape(d, b, err);
    if (status == STATUS_OK) status = resolve(d, b, err);
    if (status == STATUS_OK) status = make_runs(d, b, err);
    if (status == STATUS_OK) status = move_all(d, b, err);
    if (status == STATUS_OK) status = swap_states(d, b, err);
    if (status == STATUS_OK) status = apply_deltas(d, b, err);
    if (status == STATUS_OK) status = write_tokens(d, b, err);
    if (status == STATUS_OK) status = compute_states(d, b, err);
    int32_t next = 0, next_target = 0;
    if (b->num_targets > d->limits.max_num_tokens || b->num_target_tops > SLOT_DEVICE_TOPS)
        return error_set(err, STATUS_INTERNAL, "%d targets, %d tops", b->num_targets, b->num_target_tops);
    for (int32_t i = 0; i < b->num_seqs && status == STATUS_OK; i++) {
        for (int32_t g = 0; g < d->limits.num_groups && status == STATUS_OK; g++) status = gather(d, b, i, g, err);
        if (status == STATUS_OK) status = sample(d, b, i, &next, err);
        if (status == STATUS_OK) status = score(d, b, i, &next_target, err);
    }
    if (status != STATUS_OK) return status;
    if (next != b->num_samples)
        return error_set(err, STATUS_INTERNAL, "sample %d is of no sequence's last token", next);
    if (next_target != b->num_targets)
        return error_set(err, STATUS_INTERNAL, "target %d is of no sequence", next_target);
    struct slot_targets *targets = &d->targets[d->num_submitted % SLOT_DEVICE_STEPS];
    targets->output = target_output(targets, b);
    d->num_sampled[d->num_submitted % SLOT_DEVICE_STEPS] = next;
    d->num_submitted++;
    d->step++;
    return STATUS_OK;
}

void slot_device_cancel(struct slot_device *d, const struct batch *b, int32_t part)
{
    for (int32_t g = 0; g < d->limits.num_groups; g++)
        for (int32_t t = 0; t < b->num_tokens; t++) {
            const int64_t at = (int64_t)g * d->limits.max_num_tokens + t;
            const bool written = part > 0 && random_mix((uint64_t)part * RANDOM_STEP + (uint64_t)at) % 2 == 0;
            if (!written) d->slots[place_of_slot(d, g, b->slot_mapping[at])].position = -1;
        }
    for (int32_t i = 0; d->limits.num_state_slots > 0 && i < b->num_seqs; i++)
        if (b->state_slots[i] != STATE_SLOT_NONE) d->state_slots[b->state_slots[i]].num_tokens = -1;
    d->num_submitted--;
    d->has_drafts[d->num_submitted % SLOT_DEVICE_STEPS] = false;
}

struct sample_output slot_device_collect(struct slot_device *d)
{
    const int64_t step = d->num_collected++ % SLOT_DEVICE_STEPS;
    const bool has_drafts = d->has_drafts[step];
    d->has_drafts[step] = false;
    const struct sample_output *targets = &d->targets[step].output;
    return (struct sample_output){.num_samples = d->num_sampled[step],
                                  .token_ids = d->sampled[step],
                                  .draft_ids = has_drafts ? d->drafts[step] : NULL,
                                  .targets = targets->num_samples > 0 ? targets : NULL};
}

int32_t slot_device_request_of_target(const struct slot_device *d, int32_t target)
{
    return d->targets[(d->num_collected - 1) % SLOT_DEVICE_STEPS].requests[target];
}
