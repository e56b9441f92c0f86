#include "runtime/engine/draft_model.h"

#include <stdlib.h>
#include <string.h>

/* What the target's last step computed of a sequence, for a head. */
struct found {
    const struct sequence *seq; /* NULL: nothing. It may be gone, and is only compared */
    int32_t first, count;       /* its tokens */
    int32_t row;                /* the first of them in the batch */
    bool decodes;               /* each was an entry of its own */
};

/* What the model does for a step of the target. */
struct step {
    int32_t num_passes, num_drafts;
};

enum { MAX_STEPS = 2 }; /* in flight; one, if it has drafts */

struct draft_model {
    struct drafter drafter;
    struct draft_model_parts parts;
    struct batch pass;
    struct found *found; /* [max_num_seqs] by state index; of a head */
    int32_t *rows;       /* [max_num_seqs] of each run, its sample in the last pass */
    int32_t *sources;    /* [max_num_drafts] of each draft of the batch, its pass * batch_max_entries + sample */
    int32_t *draft_ids;  /* [max_num_drafts] */
    struct step steps[MAX_STEPS]; /* [num_steps] in flight, the oldest first */
    int32_t num_steps;
};

/* ---- one pass ---- */

/* A token that the target has yet to draw is not known either. */
static int32_t known_id(const struct draft_model *d, int32_t id)
{
    return id >= 0 && id < d->parts.vocab_size ? id : 0;
}

/* The tokens of the target's batch [first, first + count) as tokens of the pass. */
static void add_tokens(struct draft_model *d, const struct batch *batch, int32_t first, int32_t count)
{
    struct batch *pass = &d->pass;
    const int64_t stride = batch->limits.max_num_tokens;
    for (int32_t i = 0; i < count; i++) {
        const int32_t position = batch->positions[first + i], shift = d->parts.position_shift;
        pass->token_ids[pass->num_tokens + i] = known_id(d, batch->token_ids[first + i]);
        pass->positions[pass->num_tokens + i] = shift > 0 && position >= shift ? position - shift : position;
    }
    for (int32_t g = 0; g < batch->limits.num_groups; g++)
        memcpy(pass->slot_mapping + g * stride + pass->num_tokens, batch->slot_mapping + g * stride + first,
               (size_t)count * sizeof *pass->slot_mapping);
    pass->num_tokens += count;
}

/* The tokens behind the last entry become an entry. */
static void end_entry(struct batch *pass, int32_t state_index, int32_t seq_len)
{
    const int32_t query_len = pass->num_tokens - pass->query_start[pass->num_seqs];
    pass->state_indices[pass->num_seqs] = state_index;
    pass->seq_lens[pass->num_seqs++] = seq_len;
    pass->query_start[pass->num_seqs] = pass->num_tokens;
    if (query_len > pass->max_query_len) pass->max_query_len = query_len;
    if (seq_len > pass->max_seq_len) pass->max_seq_len = seq_len;
}

/* Draws a token behind the last token of the pass. */
static int32_t add_sample(struct batch *pass, const struct sequence *seq, int32_t output)
{
    const int32_t sample = pass->num_samples++;
    pass->logits_indices[sample] = pass->num_tokens - 1;
    pass->sample_state_indices[sample] = seq->state_index;
    pass->output_positions[sample] = output;
    pass->sampled_drafts[sample] = -1;
    return sample;
}

/* What the target's positions of an entry's sequence are shifted by. */
static int32_t position_shift_of(const struct batch *batch, int32_t entry)
{
    const int32_t row = batch->query_start[entry], count = batch->query_start[entry + 1] - row;
    return batch->positions[row] - (batch->seq_lens[entry] - count);
}

/* The known tokens [first, end) of the sequence of an entry of the target's batch. A head's are one further than their
 * places. What has left a window is stored nowhere. */
static void add_known(struct draft_model *d, const struct batch *batch, const struct sequence *seq, int32_t entry,
                      int32_t first, int32_t end)
{
    struct batch *pass = &d->pass;
    const int32_t shift = d->parts.position_shift > 0 ? 0 : position_shift_of(batch, entry);
    for (int32_t t = first; t < end; t++) {
        const int32_t at = pass->num_tokens++;
        pass->token_ids[at] = known_id(d, seq->tokens[t + d->parts.is_head]);
        pass->positions[at] = t + shift;
        for (int32_t g = 0; g < batch->limits.num_groups; g++) {
            const int32_t size = batch_block_size(&batch->limits, g), block = seq->tables[g].blocks[t / size];
            pass->slot_mapping[g * batch->limits.max_num_tokens + at] =
                block > 0 ? (int64_t)block * size + t % size : -1;
        }
    }
}

/* ---- pass 0 of a draft model ---- */

/* Tokens before its newest that the model lacks of a run. */
static int32_t num_lacking(const struct sequence *seq)
{
    const int32_t lacking = seq->num_tokens - 1 - seq->drafter_computed;
    return lacking > 0 ? lacking : 0;
}

/* The next `count` tokens that the model lacks of a run, as an entry. */
static void add_stretch(struct draft_model *d, const struct batch *batch, const struct scheduled_run *run,
                        int32_t count)
{
    struct sequence *seq = run->seq;
    const int32_t first = seq->drafter_computed, end = first + count;
    add_known(d, batch, seq, run->entry, first, end);
    end_entry(&d->pass, seq->state_index, end);
    seq->drafter_computed = end;
}

/* The newest tokens, from which the first drafts are drawn, so that sample i is of token i, as graphs want it; then
 * single tokens that the model lacks. The two of a sequence are a run whose entries are scattered. */
static void add_newest(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    struct batch *pass = &d->pass;
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const struct sequence *seq = schedule->runs[r].seq;
        add_tokens(d, batch, schedule->runs[r].entry, 1);
        end_entry(pass, seq->state_index, seq->num_tokens);
        d->rows[r] = add_sample(pass, seq, seq->num_tokens - seq->prompt_len);
    }
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        if (num_lacking(schedule->runs[r].seq) != 1) continue;
        add_stretch(d, batch, &schedule->runs[r], 1);
        pass->num_drafts++;
    }
    pass->num_decodes = pass->num_seqs;
}

/* Longer stretches that the model lacks, after steps without drafts, as far as the step has room for them. Without the
 * rest the model guesses badly. */
static void add_lacking(struct draft_model *d, const struct batch *batch, const struct schedule *schedule, int32_t room)
{
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const int32_t lacking = num_lacking(schedule->runs[r].seq), count = lacking < room ? lacking : room;
        if (count <= 0) continue;
        add_stretch(d, batch, &schedule->runs[r], count);
        room -= count;
    }
}

static void add_prompts(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    for (int32_t i = batch->num_decodes; i < batch->num_seqs; i++) {
        const int32_t first = batch->query_start[i], count = batch->query_start[i + 1] - first;
        const int32_t end = batch->seq_lens[i];
        struct sequence *seq = schedule->sequences[i];
        add_tokens(d, batch, first, count);
        end_entry(&d->pass, seq->state_index, end);
        if (seq->drafter_computed >= end - count) seq->drafter_computed = end;
    }
}

/* What the target's step does to blocks holds for the model's tensors, too. */
static void copy_moves(struct batch *pass, const struct batch *batch)
{
    pass->num_deltas = batch->num_deltas;
    pass->num_swap_out = batch->num_swap_out;
    pass->num_swap_in = batch->num_swap_in;
    pass->num_copies = batch->num_copies;
    memcpy(pass->deltas, batch->deltas, (size_t)batch->num_deltas * sizeof *batch->deltas);
    memcpy(pass->swap_out, batch->swap_out, (size_t)batch->num_swap_out * sizeof *batch->swap_out);
    memcpy(pass->swap_in, batch->swap_in, (size_t)batch->num_swap_in * sizeof *batch->swap_in);
    memcpy(pass->copies, batch->copies, (size_t)batch->num_copies * sizeof *batch->copies);
}

/* ---- pass 0 of a head ---- */

/* The places of which the target's last step found the states, as far as the tokens behind them are known. */
static struct found found_of(const struct draft_model *d, const struct sequence *seq)
{
    struct found f = d->found[seq->state_index];
    const int32_t end = seq->num_tokens - 1;
    if (f.seq != seq) return (struct found){.first = end};
    if (f.first + f.count > end) f.count = end - f.first;
    return f;
}

/* Places [first, first + count) of the sequence of an entry, with their states. Without states it guesses badly. */
static void add_places(struct draft_model *d, const struct batch *batch, const struct schedule *schedule, int32_t entry,
                       int32_t first, int32_t count)
{
    const struct sequence *seq = schedule->sequences[entry];
    const struct found f = found_of(d, seq);
    struct batch *pass = &d->pass;
    add_known(d, batch, seq, entry, first, first + count);
    for (int32_t i = 0; i < count; i++)
        pass->state_rows[pass->num_tokens - count + i] = f.seq && first >= f.first ? f.row + first - f.first + i : 0;
    end_entry(pass, seq->state_index, first + count);
}

/* Whether the entry is its sequence's first. */
static bool is_first(const struct schedule *schedule, int32_t entry)
{
    return entry == 0 || schedule->sequences[entry] != schedule->sequences[entry - 1];
}

/* The other places of an entry's sequence: those of a run without its last, from which the first draft is drawn. */
static struct found others_of(const struct draft_model *d, const struct schedule *schedule, int32_t entry)
{
    struct found f = found_of(d, schedule->sequences[entry]);
    if (schedule->sequences[entry]->num_drafts > 0 && f.count > 0) f.count--;
    return f;
}

/* A sequence that the last step did not compute takes a place that another may lack. */
static bool has_room(const struct batch *pass, int32_t entries, int32_t tokens)
{
    return pass->num_seqs + entries <= batch_max_entries(&pass->limits) &&
           pass->num_tokens + tokens <= pass->limits.max_num_tokens;
}

/* What were decodes are decodes again, so that a graph computes them. */
static void add_found(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    struct batch *pass = &d->pass;
    for (int32_t i = 0; i < batch->num_seqs; i++) {
        const struct found f = others_of(d, schedule, i);
        if (!is_first(schedule, i) || !f.decodes || !has_room(pass, f.count, f.count)) continue;
        for (int32_t t = 0; t < f.count; t++) add_places(d, batch, schedule, i, f.first + t, 1);
        pass->num_drafts += f.count;
    }
    pass->num_decodes = pass->num_seqs;
    for (int32_t i = 0; i < batch->num_seqs; i++) {
        const struct found f = others_of(d, schedule, i);
        if (is_first(schedule, i) && !f.decodes && f.count > 0 && has_room(pass, 1, f.count))
            add_places(d, batch, schedule, i, f.first, f.count);
    }
}

static void add_last_places(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const struct sequence *seq = schedule->runs[r].seq;
        add_places(d, batch, schedule, schedule->runs[r].entry, seq->num_tokens - 2, 1);
        d->rows[r] = add_sample(&d->pass, seq, seq->num_tokens - seq->prompt_len);
    }
}

/* Notes what the target's step is about to find. */
static void note_found(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    memset(d->found, 0, (size_t)batch->limits.max_num_seqs * sizeof *d->found);
    for (int32_t i = 0; i < batch->num_seqs; i++) {
        struct found *f = &d->found[batch->state_indices[i]];
        const int32_t row = batch->query_start[i], count = batch->query_start[i + 1] - row;
        if (is_first(schedule, i))
            *f = (struct found){.seq = schedule->sequences[i],
                                .first = batch->seq_lens[i] - count,
                                .row = row,
                                .decodes = i < batch->num_decodes};
        f->count += count;
    }
}

/* ---- pass 0 ---- */

static void lay_out_first(struct draft_model *d, const struct batch *batch, const struct schedule *schedule)
{
    struct batch *pass = &d->pass;
    const int32_t prompts = batch->num_tokens - batch->query_start[batch->num_decodes];
    const bool moves = batch->num_copies + batch->num_swap_out + batch->num_swap_in > 0;
    batch_clear(pass);
    if (d->parts.is_head) {
        add_last_places(d, batch, schedule);
        add_found(d, batch, schedule);
    } else {
        add_newest(d, batch, schedule);
        add_lacking(d, batch, schedule, batch->limits.max_num_tokens - pass->num_tokens - prompts);
        add_prompts(d, batch, schedule);
    }
    if (moves && pass->num_seqs == 0) { /* a step that moves blocks computes something, which is computed again */
        add_tokens(d, batch, 0, 1);
        pass->state_rows[0] = 0;
        end_entry(pass, batch->state_indices[0], batch->seq_lens[0]);
        pass->num_decodes = 1;
    }
    if (pass->num_seqs > 0) copy_moves(pass, batch);
}

/* ---- passes 1 and later ---- */

/* The draft that the last pass drew of each run that is to have another. Sample i of a pass is of its token i. */
static void lay_out_next(struct draft_model *d, const struct batch *batch, const struct schedule *schedule,
                         int32_t number)
{
    struct batch *pass = &d->pass;
    const int32_t place = number - d->parts.is_head;
    batch_clear(pass);
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const struct sequence *seq = schedule->runs[r].seq;
        if (seq->num_drafts <= number) continue;
        add_tokens(d, batch, schedule->runs[r].entry + place, 1);
        pass->token_ids[pass->num_tokens - 1] = pass->state_rows[pass->num_tokens - 1] = -(d->rows[r] + 1);
        end_entry(pass, seq->state_index, seq->num_tokens + place);
        d->rows[r] = add_sample(pass, seq, seq->num_tokens - seq->prompt_len + number);
    }
    pass->num_decodes = pass->num_seqs;
}

/* ---- a step ---- */

static void propose(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    const struct draft_model *d = (const struct draft_model *)drafter;
    for (int32_t i = 0; i < count; i++)
        queries[i].num_drafts = queries[i].most < d->parts.num_passes ? queries[i].most : d->parts.num_passes;
}

/* Puts what names the pass's drafts into the target's batch. */
static void name_drafts(struct draft_model *d, struct batch *batch, const struct schedule *schedule, int32_t number)
{
    int32_t first = 0;
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        const struct scheduled_run *run = &schedule->runs[r];
        if (run->seq->num_drafts > number) {
            batch->token_ids[run->entry + 1 + number] = batch_device_draft(&batch->limits, number, d->rows[r]);
            d->sources[first + number] = number * batch_max_entries(&batch->limits) + d->rows[r];
        }
        first += run->seq->num_drafts;
    }
}

static enum status run_pass(struct draft_model *d, struct batch *batch, const struct schedule *schedule,
                            struct error *err)
{
    struct step *step = &d->steps[d->num_steps - 1];
    const enum status status = model_submit(d->parts.model, &d->pass, err);
    if (status != STATUS_OK) return status;
    if (d->pass.num_samples > 0)
        model_take_drafts(d->parts.target, step->num_passes, d->parts.model, d->pass.num_samples);
    name_drafts(d, batch, schedule, step->num_passes++);
    return STATUS_OK;
}

static int32_t most_drafts(const struct schedule *schedule)
{
    int32_t most = 0;
    for (int32_t r = 0; r < schedule->num_runs; r++)
        if (schedule->runs[r].seq->num_drafts > most) most = schedule->runs[r].seq->num_drafts;
    return most;
}

/* What the model has of a sequence that starts again: of one that was swapped no more than before, and of the first
 * time what the prefix cache has. Of the tokens that it computed, those behind the known ones were drafts that were
 * rejected, and the newest token was not among them. A sequence whose newest token is in flight was in the step before,
 * and was looked at then. */
static void note_computed(const struct batch *batch, const struct schedule *schedule)
{
    for (int32_t i = 0; i < schedule->num_admitted; i++) {
        struct sequence *seq = schedule->admitted[i];
        if (seq->drafter_computed == 0 || seq->drafter_computed > seq->num_computed)
            seq->drafter_computed = seq->num_computed;
    }
    for (int32_t i = 0; i < batch->num_seqs; i++) {
        struct sequence *seq = schedule->sequences[i];
        const bool is_known = batch->token_ids[batch->query_start[i]] >= 0;
        if (is_known && seq->drafter_computed > seq->num_tokens - 1) seq->drafter_computed = seq->num_tokens - 1;
    }
}

/* Waits for the passes of the oldest step. */
static enum status collect_passes(struct draft_model *d, struct sample_output outputs[MAX_DRAFTS], struct step *step,
                                  struct error *err)
{
    enum status status = STATUS_OK;
    *step = d->steps[0];
    d->steps[0] = d->steps[--d->num_steps];
    for (int32_t i = 0; i < step->num_passes && status == STATUS_OK; i++)
        status = model_collect(d->parts.model, &outputs[i], err);
    return status;
}

/* Forgets all passes. Those of an older step in flight have drawn nothing. */
static void cancel(struct drafter *drafter)
{
    struct draft_model *d = (struct draft_model *)drafter;
    struct sample_output ignored[MAX_DRAFTS];
    struct step unused;
    struct error err;
    const int32_t older = d->num_steps - 1;
    while (d->num_steps > 0) collect_passes(d, ignored, &unused, &err);
    while (d->num_steps < older) d->steps[d->num_steps++] = (struct step){0};
}

static enum status draft(struct drafter *drafter, struct batch *batch, const struct schedule *schedule,
                         struct error *err)
{
    struct draft_model *d = (struct draft_model *)drafter;
    const int32_t most = most_drafts(schedule);
    enum status status = STATUS_OK;
    d->steps[d->num_steps++] = (struct step){.num_drafts = batch->num_drafts};
    note_computed(batch, schedule);
    lay_out_first(d, batch, schedule);
    if (d->pass.num_seqs > 0) status = run_pass(d, batch, schedule, err);
    for (int32_t number = 1; number < most && status == STATUS_OK; number++) {
        lay_out_next(d, batch, schedule, number);
        status = run_pass(d, batch, schedule, err);
    }
    for (int32_t r = 0; r < schedule->num_runs; r++) {
        struct sequence *seq = schedule->runs[r].seq;
        if (num_lacking(seq) == 0) seq->drafter_computed = seq->num_tokens - 1 + seq->num_drafts;
    }
    if (d->parts.is_head) note_found(d, batch, schedule);
    if (status != STATUS_OK) cancel(drafter);
    return status;
}

static enum status collect(struct drafter *drafter, const int32_t **draft_ids, struct error *err)
{
    struct draft_model *d = (struct draft_model *)drafter;
    const int32_t entries = batch_max_entries(&d->parts.limits);
    struct sample_output outputs[MAX_DRAFTS];
    struct step step;
    const enum status status = collect_passes(d, outputs, &step, err);
    *draft_ids = d->draft_ids;
    for (int32_t i = 0; i < step.num_drafts && status == STATUS_OK; i++)
        d->draft_ids[i] = outputs[d->sources[i] / entries].token_ids[d->sources[i] % entries];
    return status;
}

static void destroy(struct drafter *drafter)
{
    struct draft_model *d = (struct draft_model *)drafter;
    batch_free(&d->pass);
    free(d->found);
    free(d->rows);
    free(d->sources);
    free(d->draft_ids);
    free(d);
}

enum status draft_model_create(const struct draft_model_parts *parts, struct drafter **out, struct error *err)
{
    const size_t seqs = (size_t)parts->limits.max_num_seqs, drafts = (size_t)parts->limits.max_num_drafts;
    struct draft_model *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a draft model");
    d->parts = *parts;
    d->drafter = (struct drafter){.name = parts->is_head ? "head" : "draft_model",
                                  .propose = propose,
                                  .draft = draft,
                                  .collect = collect,
                                  .cancel = cancel,
                                  .one_step = parts->is_head,
                                  .destroy = destroy};
    d->found = calloc(seqs, sizeof *d->found);
    d->rows = calloc(seqs, sizeof *d->rows);
    d->sources = calloc(drafts + 1, sizeof *d->sources);
    d->draft_ids = calloc(drafts + 1, sizeof *d->draft_ids);
    enum status status = batch_init(&d->pass, &parts->limits, err);
    if (status == STATUS_OK && (!d->found || !d->rows || !d->sources || !d->draft_ids))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a draft model");
    if (status == STATUS_OK)
        *out = &d->drafter;
    else
        destroy(&d->drafter);
    return status;
}
