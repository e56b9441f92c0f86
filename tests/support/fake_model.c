#include "tests/support/fake_model.h"

#include <stdlib.h>
#include <string.h>

int32_t fake_model_reach(const struct batch_limits *limits)
{
    int32_t reach = 0;
    for (int32_t g = 0; g < limits->num_groups; g++) {
        if (limits->windows[g] == 0) return 0;
        if (limits->windows[g] > reach) reach = limits->windows[g];
    }
    return reach;
}

int32_t fake_model_token(const int32_t *tokens, int32_t length, int32_t reach, uint64_t seed, int32_t index,
                         int32_t vocab_size)
{
    uint64_t hash = 0xCBF29CE484222325u ^ seed ^ ((uint64_t)index << 48);
    for (int32_t i = reach > 0 && length > reach ? length - reach : 0; i < length; i++)
        hash = (hash ^ (uint64_t)tokens[i]) * 0x100000001B3u;
    hash ^= hash >> 32;
    hash *= 0x9E3779B97F4A7C15u;
    return (int32_t)((hash >> 33) % (uint64_t)vocab_size);
}

enum status fake_model_init(struct fake_model *m, const struct batch_limits *limits, int32_t num_blocks,
                            int32_t num_host_blocks, int32_t vocab_size, struct error *err)
{
    size_t slots = ((size_t)num_blocks + 1 + (size_t)num_host_blocks) * (size_t)limits->block_size;
    size_t seqs = (size_t)limits->max_num_seqs, groups = (size_t)limits->num_groups;
    *m = (struct fake_model){
        .limits = *limits, .num_blocks = num_blocks, .num_host_blocks = num_host_blocks, .vocab_size = vocab_size};
    bool ok = (m->token_at = malloc(slots * sizeof *m->token_at)) &&
              (m->position_at = malloc(slots * sizeof *m->position_at)) &&
              (m->group_at = calloc(slots, sizeof *m->group_at)) &&
              (m->written_in = calloc(slots, sizeof *m->written_in)) &&
              (m->tables = calloc(groups * seqs * (size_t)batch_max_blocks(limits), sizeof *m->tables)) &&
              (m->states = calloc(seqs, sizeof *m->states)) && (m->named_in = calloc(seqs, sizeof *m->named_in)) &&
              (m->resolved = calloc((size_t)limits->max_num_tokens, sizeof *m->resolved)) &&
              (m->context = calloc((size_t)limits->max_model_len, sizeof *m->context));
    for (int i = 0; ok && i < FAKE_MODEL_STEPS; i++) ok = (m->sampled[i] = calloc(seqs, sizeof *m->sampled[i]));
    if (!ok) {
        fake_model_free(m);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the fake model");
    }
    for (size_t i = 0; i < slots; i++) m->token_at[i] = m->position_at[i] = -1;
    return STATUS_OK;
}

void fake_model_free(struct fake_model *m)
{
    free(m->token_at);
    free(m->position_at);
    free(m->group_at);
    free(m->written_in);
    free(m->tables);
    free(m->states);
    free(m->named_in);
    free(m->resolved);
    free(m->context);
    for (int i = 0; i < FAKE_MODEL_STEPS; i++) free(m->sampled[i]);
    *m = (struct fake_model){0};
}

void fake_model_start(struct fake_model *m, const struct sequence *seq)
{
    m->states[seq->state_index] = (struct fake_state){
        .seed = seq->request->params.seed, .index = seq->index, .prompt_len = seq->prompt_len, .started = true};
}

static int32_t *table_of(const struct fake_model *m, int32_t group, int32_t state_index)
{
    const size_t row = (size_t)group * (size_t)m->limits.max_num_seqs + (size_t)state_index;
    return m->tables + row * (size_t)batch_max_blocks(&m->limits);
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
static enum status move_blocks(struct fake_model *m, const struct block_pair *pairs, int32_t count,
                               struct block_range from, struct block_range to, struct error *err)
{
    size_t size = (size_t)m->limits.block_size;
    for (int32_t i = 0; i < count; i++) {
        struct block_pair pair = pairs[i];
        if (!in_range(from, pair.source) || !in_range(to, pair.destination))
            return error_set(err, STATUS_INTERNAL, "move %d to %d", pair.source, pair.destination);
        for (int32_t j = 0; j < count; j++)
            if (pair.destination == pairs[j].source || (i != j && pair.destination == pairs[j].destination))
                return error_set(err, STATUS_INTERNAL, "moves %d and %d depend on each other", i, j);
        size_t source = (size_t)pair.source * size, destination = (size_t)pair.destination * size;
        memcpy(m->token_at + destination, m->token_at + source, size * sizeof *m->token_at);
        memcpy(m->position_at + destination, m->position_at + source, size * sizeof *m->position_at);
        memcpy(m->group_at + destination, m->group_at + source, size * sizeof *m->group_at);
    }
    return STATUS_OK;
}

/* Host blocks that were swapped in lose their contents, so that swapping them in twice is found. */
static void forget(struct fake_model *m, const struct block_pair *pairs, int32_t count)
{
    int32_t size = m->limits.block_size;
    for (int32_t i = 0; i < count; i++)
        for (int32_t t = 0; t < size; t++) m->position_at[pairs[i].source * size + t] = -1;
}

static enum status move_all(struct fake_model *m, const struct batch *b, struct error *err)
{
    const struct block_range device = {1, m->num_blocks}, host = {m->num_blocks + 1, m->num_host_blocks};
    if (b->num_copies > m->limits.max_num_seqs * m->limits.num_groups || b->num_swap_out > b->max_deltas ||
        b->num_swap_in > b->max_deltas)
        return error_set(err, STATUS_INTERNAL, "%d copies, %d blocks swapped out and %d in", b->num_copies,
                         b->num_swap_out, b->num_swap_in);
    enum status status = move_blocks(m, b->swap_out, b->num_swap_out, device, host, err);
    if (status == STATUS_OK) status = move_blocks(m, b->swap_in, b->num_swap_in, host, device, err);
    if (status == STATUS_OK) forget(m, b->swap_in, b->num_swap_in);
    if (status == STATUS_OK) status = move_blocks(m, b->copies, b->num_copies, device, device, err);
    return status;
}

static enum status apply_deltas(struct fake_model *m, const struct batch *b, struct error *err)
{
    if (b->num_deltas > b->max_deltas) return error_set(err, STATUS_INTERNAL, "%d deltas", b->num_deltas);
    for (int32_t i = 0; i < b->num_deltas; i++) {
        struct block_table_delta d = b->deltas[i];
        if (d.group < 0 || d.group >= m->limits.num_groups || d.state_index < 0 ||
            d.state_index >= m->limits.max_num_seqs || d.index < 0 || d.index >= batch_max_blocks(&m->limits) ||
            d.block < 1 || d.block > m->num_blocks)
            return error_set(err, STATUS_INTERNAL, "delta: group %d state index %d index %d block %d", d.group,
                             d.state_index, d.index, d.block);
        table_of(m, d.group, d.state_index)[d.index] = d.block;
    }
    return STATUS_OK;
}

/* Replaces ids -(i + 1) by the token of sample i of the step before. */
static enum status resolve(struct fake_model *m, const struct batch *b, struct error *err)
{
    int64_t last = m->num_submitted - 1;
    for (int32_t i = 0; i < b->num_tokens; i++) {
        int32_t id = b->token_ids[i], sample = -id - 1;
        if (id < 0) {
            if (last < m->num_collected || sample >= m->num_sampled[last % FAKE_MODEL_STEPS])
                return error_set(err, STATUS_INTERNAL, "token %d names sample %d of a step that is not in flight", i,
                                 sample);
            id = m->sampled[last % FAKE_MODEL_STEPS][sample];
        }
        if (id >= m->vocab_size) return error_set(err, STATUS_INTERNAL, "token %d is %d", i, id);
        m->resolved[i] = id;
    }
    return STATUS_OK;
}

static enum status check_shape(struct fake_model *m, const struct batch *b, struct error *err)
{
    int32_t max_query = 0, max_len = 0;
    if (b->num_tokens < 1 || b->num_tokens > m->limits.max_num_tokens || b->num_seqs < 1 ||
        b->num_seqs > m->limits.max_num_seqs || b->num_samples > m->limits.max_num_seqs || b->query_start[0] != 0 ||
        b->query_start[b->num_seqs] != b->num_tokens)
        return error_set(err, STATUS_INTERNAL, "%d tokens of %d sequences, %d samples", b->num_tokens, b->num_seqs,
                         b->num_samples);
    for (int32_t i = 0; i < b->num_seqs; i++) {
        int32_t query = b->query_start[i + 1] - b->query_start[i], index = b->state_indices[i];
        if (query < 1 || (i < b->num_decodes && query != 1) || b->seq_lens[i] > m->limits.max_model_len)
            return error_set(err, STATUS_INTERNAL, "sequence %d of %d decodes: %d query tokens, length %d", i,
                             b->num_decodes, query, b->seq_lens[i]);
        if (index < 0 || index >= m->limits.max_num_seqs || m->named_in[index] == m->num_submitted + 1 ||
            !m->states[index].started)
            return error_set(err, STATUS_INTERNAL, "sequence %d: state index %d is out of range, taken or unknown", i,
                             index);
        m->named_in[index] = m->num_submitted + 1;
        if (query > max_query) max_query = query;
        if (b->seq_lens[i] > max_len) max_len = b->seq_lens[i];
    }
    if (max_query == b->max_query_len && max_len == b->max_seq_len) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "largest query %d, length %d", b->max_query_len, b->max_seq_len);
}

/* What is added to the positions of sequence i: that of its first token tells whether it is a long one. */
static int32_t first_row(const struct fake_model *m, const struct batch *b, int32_t i)
{
    const int32_t query = b->query_start[i + 1] - b->query_start[i];
    const bool is_long = m->rope_switch > 0 && b->positions[b->query_start[i]] != b->seq_lens[i] - query;
    return is_long ? m->limits.max_model_len : 0;
}

/* Every token goes to the slot that the sequence's own table gives it, and no slot gets two. */
static enum status write_sequence(struct fake_model *m, const struct batch *b, int32_t group, int32_t i,
                                  struct error *err)
{
    const int32_t *table = table_of(m, group, b->state_indices[i]), first = first_row(m, b, i);
    const int64_t *slots = b->slot_mapping + (size_t)group * (size_t)m->limits.max_num_tokens;
    int32_t size = m->limits.block_size, position = b->seq_lens[i] - (b->query_start[i + 1] - b->query_start[i]);
    for (int32_t t = b->query_start[i]; t < b->query_start[i + 1]; t++, position++) {
        const int64_t slot = slots[t];
        if (b->positions[t] != first + position || slot < size ||
            slot != (int64_t)table[position / size] * size + position % size)
            return error_set(err, STATUS_INTERNAL, "sequence %d: position %d (for %d) goes to slot %lld", i,
                             b->positions[t], position, (long long)slot);
        if (m->written_in[slot] == m->num_submitted + 1)
            return error_set(err, STATUS_INTERNAL, "slot %lld is written twice in a step", (long long)slot);
        m->written_in[slot] = m->num_submitted + 1;
        m->token_at[slot] = m->resolved[t];
        m->position_at[slot] = b->positions[t];
        m->group_at[slot] = group;
    }
    return STATUS_OK;
}

static enum status write_tokens(struct fake_model *m, const struct batch *b, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t g = 0; g < m->limits.num_groups; g++)
        for (int32_t i = 0; i < b->num_seqs && status == STATUS_OK; i++) status = write_sequence(m, b, g, i, err);
    return status;
}

/* Reads what the queries of sequence i read in one group: from the first token of its first query's window on. All
 * groups agree on the tokens. */
static enum status gather_group(struct fake_model *m, const struct batch *b, int32_t group, int32_t i,
                                struct error *err)
{
    const int32_t *table = table_of(m, group, b->state_indices[i]), first = first_row(m, b, i);
    const int32_t size = m->limits.block_size, window = m->limits.windows[group];
    const int32_t query = b->seq_lens[i] - (b->query_start[i + 1] - b->query_start[i]);
    for (int32_t t = window > 0 && query >= window ? query - window + 1 : 0; t < b->seq_lens[i]; t++) {
        const int32_t slot = table[t / size] * size + t % size;
        if (m->position_at[slot] != first + t || m->group_at[slot] != group)
            return error_set(err, STATUS_INTERNAL,
                             "sequence %d: position %d of group %d reads slot %d, which holds position %d of group %d",
                             i, first + t, group, slot, m->position_at[slot], m->group_at[slot]);
        if (i < b->num_decodes && t < b->seq_lens[i] - 1 && m->written_in[slot] == m->num_submitted + 1)
            return error_set(err, STATUS_INTERNAL, "decode %d: position %d is written in this step", i, t);
        if (m->context[t] >= 0 && m->context[t] != m->token_at[slot])
            return error_set(err, STATUS_INTERNAL, "sequence %d: token %d is %d in one group and %d in group %d", i, t,
                             m->context[t], m->token_at[slot], group);
        m->context[t] = m->token_at[slot];
    }
    return STATUS_OK;
}

static enum status gather(struct fake_model *m, const struct batch *b, int32_t i, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t t = 0; t < b->seq_lens[i]; t++) m->context[t] = -1;
    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++) status = gather_group(m, b, g, i, err);
    return status;
}

/* All samples that are taken from sequence i's last token; they follow one another. */
static enum status sample(struct fake_model *m, const struct batch *b, int32_t i, int32_t *next, struct error *err)
{
    int32_t *out = m->sampled[m->num_submitted % FAKE_MODEL_STEPS];
    for (; *next < b->num_samples && b->logits_indices[*next] == b->query_start[i + 1] - 1; (*next)++) {
        int32_t index = b->sample_state_indices[*next];
        if (index < 0 || index >= m->limits.max_num_seqs || !m->states[index].started)
            return error_set(err, STATUS_INTERNAL, "sample %d: state index %d is unknown", *next, index);
        const struct fake_state *s = &m->states[index];
        if ((first_row(m, b, i) > 0) != (m->rope_switch > 0 && b->seq_lens[i] > m->rope_switch))
            return error_set(err, STATUS_INTERNAL, "sample %d is of %d tokens, at position %d", *next, b->seq_lens[i],
                             b->positions[b->query_start[i]]);
        if (b->output_positions[*next] != b->seq_lens[i] - s->prompt_len)
            return error_set(err, STATUS_INTERNAL, "sample %d is said to be output %d", *next,
                             b->output_positions[*next]);
        out[*next] = fake_model_token(m->context, b->seq_lens[i], fake_model_reach(&m->limits), s->seed, s->index,
                                      m->vocab_size);
    }
    return STATUS_OK;
}

enum status fake_model_submit(struct fake_model *m, const struct batch *b, struct error *err)
{
    if (m->num_submitted - m->num_collected == FAKE_MODEL_STEPS)
        return error_set(err, STATUS_INTERNAL, "more than %d steps in flight", FAKE_MODEL_STEPS);
    enum status status = check_shape(m, b, err);
    if (status == STATUS_OK) status = resolve(m, b, err);
    if (status == STATUS_OK) status = move_all(m, b, err);
    if (status == STATUS_OK) status = apply_deltas(m, b, err);
    if (status == STATUS_OK) status = write_tokens(m, b, err);
    int32_t next = 0;
    for (int32_t i = 0; i < b->num_seqs && status == STATUS_OK; i++) {
        status = gather(m, b, i, err);
        if (status == STATUS_OK) status = sample(m, b, i, &next, err);
    }
    if (status != STATUS_OK) return status;
    if (next != b->num_samples)
        return error_set(err, STATUS_INTERNAL, "sample %d is of no sequence's last token", next);
    m->num_sampled[m->num_submitted % FAKE_MODEL_STEPS] = next;
    m->num_submitted++;
    return STATUS_OK;
}

struct sample_output fake_model_collect(struct fake_model *m)
{
    int64_t step = m->num_collected++ % FAKE_MODEL_STEPS;
    return (struct sample_output){.num_samples = m->num_sampled[step], .token_ids = m->sampled[step]};
}
