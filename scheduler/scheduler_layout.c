#include "scheduler/scheduler_state.h"

static void add_slots(const struct scheduler *s, struct batch *batch, int32_t group, const struct choice *c)
{
    const int32_t *blocks = c->seq->tables[group].blocks, end = c->start + c->count;
    const int32_t block_size = batch_block_size(&s->config.limits, group);
    int64_t *slots = batch->slot_mapping + (size_t)group * (size_t)batch->limits.max_num_tokens + batch->num_tokens;
    for (int32_t t = c->start, run; t < end; t += run) {
        const int32_t index = t / block_size, offset = t - index * block_size;
        const int64_t first = (int64_t)blocks[index] * block_size + offset;
        run = block_size - offset < end - t ? block_size - offset : end - t;
        for (int32_t i = 0; i < run; i++) *slots++ = first + i;
    }
}

/* What is added to the positions of the sequence's tokens. */
static int32_t position_shift(const struct scheduler *s, const struct sequence *seq)
{
    return seq->request->cache_namespace * s->config.namespace_position_shift;
}

static void add_tokens(const struct scheduler *s, struct batch *batch, const struct choice *c)
{
    const struct sequence *seq = c->seq;
    const int32_t shift = position_shift(s, seq);
    int32_t *ids = batch->token_ids + batch->num_tokens, *positions = batch->positions + batch->num_tokens;
    for (int32_t t = c->start; t < c->start + c->count; t++) {
        *ids++ = t < seq->num_tokens + c->num_drafts ? seq->tokens[t] : -(seq->pending_sample + 1);
        *positions++ = t + shift;
    }
    for (int32_t g = 0; g < s->config.limits.num_groups; g++) add_slots(s, batch, g, c);
    batch->num_tokens += c->count;
}

/* Null entries are never read: they keep what the device has there. */
static void add_deltas(const struct scheduler *s, struct batch *batch, struct sequence *seq)
{
    for (int32_t g = 0; g < s->config.limits.num_groups; g++) {
        const struct block_table *t = &seq->tables[g];
        const int32_t first = seq->num_uploaded[g] > t->first ? seq->num_uploaded[g] : t->first;
        for (int32_t i = first; i < t->num_blocks; i++)
            batch->deltas[batch->num_deltas++] = (struct block_table_delta){
                .group = g, .state_index = seq->state_index, .index = i, .block = t->blocks[i]};
        seq->num_uploaded[g] = t->num_blocks;
    }
}

/* Samples from the logits of the batch's token of this index. */
static void add_row(struct scheduler *s, struct batch *batch, struct sequence *seq, int32_t token, int32_t output)
{
    struct step *step = scheduler_new_step(s);
    const int32_t sample = batch->num_samples++;
    batch->logits_indices[sample] = token;
    batch->sample_state_indices[sample] = seq->state_index;
    batch->output_positions[sample] = output;
    batch->sampled_drafts[sample] = -1;
    step->sampled[sample] = seq;
    seq->pending_sample = sample;
}

/* Samples from the logits of the batch's last token. */
static void add_sample(struct scheduler *s, struct batch *batch, struct sequence *seq, int32_t output)
{
    add_row(s, batch, seq, batch->num_tokens - 1, output);
    seq->num_pending++;
    seq->last_step = s->num_steps;
}

/* The tokens of a prompt that follow those of the choice, if their log-probabilities are wanted. */
static void add_targets(struct scheduler *s, struct batch *batch, const struct choice *c)
{
    struct prompt_logprobs *p = c->seq->request->prompt_logprobs;
    struct step *step = scheduler_new_step(s);
    const int32_t first = p->num_submitted, most = c->start + c->count + 1;
    const int32_t end = most < p->num_tokens ? most : p->num_tokens;
    if (end <= first) return;
    for (int32_t t = first; t < end; t++) {
        batch->target_indices[batch->num_targets] = batch->num_tokens - c->count + (t - 1 - c->start);
        batch->target_ids[batch->num_targets++] = c->seq->tokens[t];
    }
    if (p->num_top > batch->num_target_tops) batch->num_target_tops = p->num_top;
    step->target_runs[step->num_target_runs++] =
        (struct target_run){.seq = c->seq, .first = first, .count = end - first};
    p->num_submitted = end;
}

/* What the next entry does with states. */
static void add_states(const struct scheduler *s, struct batch *batch, int32_t source, int32_t slot)
{
    if (!scheduler_has_states(s)) return;
    batch->state_sources[batch->num_seqs] = source;
    batch->state_slots[batch->num_seqs] = slot;
}

static void add_entry(struct scheduler *s, struct batch *batch, struct sequence *seq, int32_t seq_len,
                      int32_t num_tokens)
{
    s->sequences[batch->num_seqs] = seq;
    batch->seq_lens[batch->num_seqs] = seq_len;
    batch->state_indices[batch->num_seqs++] = seq->state_index;
    batch->query_start[batch->num_seqs] = num_tokens;
    if (seq_len > batch->max_seq_len) batch->max_seq_len = seq_len;
}

static void add_choice(struct scheduler *s, struct batch *batch, const struct choice *c)
{
    struct sequence *seq = c->seq;
    const int32_t end = c->start + c->count;
    add_tokens(s, batch, c);
    if (c->changed) add_deltas(s, batch, seq);
    add_states(s, batch, c->state_source, seq->state);
    add_entry(s, batch, seq, end, batch->num_tokens);
    if (c->count > batch->max_query_len) batch->max_query_len = c->count;
    seq->last_step = s->num_steps;
    if (c->start < seq->prompt_len && seq->request->prompt_logprobs) add_targets(s, batch, c);
    if (c->samples) add_sample(s, batch, seq, end - seq->prompt_len);
    for (int32_t i = 0; c->forks && i < seq->request->num_sequences; i++) {
        struct sequence *sibling = &seq->request->sequences[i];
        if (sibling != seq && sibling->status != SEQUENCE_FINISHED) add_sample(s, batch, sibling, 0);
    }
}

/* The drafts are the rows behind the first, and what the samples before them are compared with. */
static void add_drafts(struct scheduler *s, struct batch *batch, const struct choice *c)
{
    struct step *step = scheduler_new_step(s);
    const int32_t row = batch->num_tokens - c->num_drafts, sample = batch->num_samples - c->num_drafts;
    step->runs[step->num_runs++] = (struct drafted_run){c->seq, sample - 1, batch->num_drafts};
    for (int32_t i = 0; i < c->num_drafts; i++) {
        if (s->on_device) batch->token_ids[row + i] = 0;
        batch->sampled_drafts[sample + i] = s->on_device ? -1 : batch->token_ids[row + i];
        step->drafts[batch->num_drafts + i] = batch->token_ids[row + i];
    }
    batch->num_drafts += c->num_drafts;
}

/* The last known token, and the drafts. */
static void add_run(struct scheduler *s, struct batch *batch, const struct choice *c)
{
    struct sequence *seq = c->seq;
    const int32_t row = batch->num_tokens, output = c->start + 1 - seq->prompt_len;
    const int32_t *states = scheduler_new_step(s)->draft_states + batch->num_drafts;
    s->scheduled_runs[s->num_scheduled_runs++] = (struct scheduled_run){seq, batch->num_seqs};
    add_tokens(s, batch, c);
    if (c->changed) add_deltas(s, batch, seq);
    for (int32_t i = 0; i < c->count; i++) {
        add_states(s, batch, i > 0 ? STATE_CONTINUES : c->state_source, i > 0 ? states[i - 1] : seq->state);
        add_entry(s, batch, seq, c->start + i + 1, row + i + 1);
        add_row(s, batch, seq, row + i, output + i);
    }
    add_drafts(s, batch, c);
    seq->num_pending++;
    seq->last_step = s->num_steps;
}

/* A decode has one token, and reads only its own K and V and those that earlier steps wrote. A sequence that starts in
 * this step is not a decode, because it may share blocks that another sequence writes in this step. */
void scheduler_lay_out(struct scheduler *s, struct batch *batch, const struct choice *choice)
{
    if (choice->num_drafts > 0)
        add_run(s, batch, choice);
    else if (choice->count == 1 && !choice->starts)
        add_choice(s, batch, choice);
    else
        s->choices[s->num_choices++] = *choice;
}

/* So far the batch has decodes and runs alone: each entry is one token. */
void scheduler_lay_out_next(struct scheduler *s, struct batch *batch, struct sequence *seq)
{
    const int32_t row = batch->num_seqs++, end = seq->num_computed, t = end - 1;
    batch->num_tokens++;
    s->sequences[row] = seq;
    batch->token_ids[row] = t < seq->num_tokens ? seq->tokens[t] : -(seq->pending_sample + 1);
    batch->positions[row] = t + position_shift(s, seq);
    batch->seq_lens[row] = end;
    batch->state_indices[row] = seq->state_index;
    batch->query_start[row + 1] = row + 1;
    if (end > batch->max_seq_len) batch->max_seq_len = end;
    if (scheduler_has_states(s)) batch->state_sources[row] = batch->state_slots[row] = seq->state;
    add_sample(s, batch, seq, end - seq->prompt_len);
}

void scheduler_finish_layout(struct scheduler *s, struct batch *batch)
{
    struct step *step = scheduler_new_step(s);
    batch->num_decodes = batch->num_seqs;
    if (batch->num_decodes > 0) batch->max_query_len = 1;
    for (int32_t i = 0; i < s->num_choices; i++) add_choice(s, batch, &s->choices[i]);
    if (batch->num_seqs == 0) return;
    step->num_sampled = batch->num_samples;
    step->on_device = s->on_device;
    step->number = s->num_steps++;
    s->in_flight++;
    s->num_tokens += batch->num_tokens;
    s->blocks_swapped_out += batch->num_swap_out;
    s->blocks_swapped_in += batch->num_swap_in;
    s->states_swapped_out += batch->num_states_out;
    s->states_swapped_in += batch->num_states_in;
}
