/* A step of a model: submit, whole or in two parts, and collect. */
#include "model/model_state.h"
#include "model/nodes/calls.h"
#include "model/stage.h"

static bool uses_history(const struct sampling_state *state)
{
    return state->repetition_penalty != 1 || state->presence_penalty != 0 || state->frequency_penalty != 0;
}

static void set_sampling_state(struct model *m, int32_t state_index, const struct sampling_state *state,
                               const int32_t *tokens, int32_t num_tokens)
{
    struct backend *b = m->backend;
    m->sampling_needs[state_index] = (struct sampling_needs){
        .processing = state->min_tokens > 0 || state->num_bias > 0 || uses_history(state),
        .random = state->temperature >= 1e-5f,
        .num_logprobs = state->num_logprobs,
    };
    b->copy(b, &m->state.sampling[state_index], state, sizeof *state, NULL);
    if (uses_history(state))
        b->copy(b, m->state.history + (int64_t)state_index * m->options.limits.max_model_len, tokens,
                (int64_t)num_tokens * (int64_t)sizeof *tokens, NULL);
}

void model_set_sampling_state(struct model *m, int32_t state_index, const struct sampling_state *state,
                              const int32_t *tokens, int32_t num_tokens)
{
    nodes_call_set_sampling_state(m->options.nodes, state_index, state, tokens, num_tokens);
    set_sampling_state(m, state_index, state, tokens, num_tokens);
    for (int32_t i = 0; i < m->num_others; i++)
        set_sampling_state(m->others[i], state_index, state, tokens, num_tokens);
}

/* Whether the samples are from the first tokens, one from each. */
static bool samples_first_tokens(const struct batch *batch)
{
    for (int32_t i = 0; i < batch->num_samples; i++)
        if (batch->logits_indices[i] != i) return false;
    return true;
}

/* Which states the tokens of a head's batch read; of other models' none. */
struct state_use {
    bool target, own;
};

static struct state_use states_of(const struct model *m, const struct batch *batch)
{
    struct state_use use = {0};
    for (int32_t i = 0; i < batch->num_tokens && m->spec->head.kind != HEAD_NONE; i++) {
        use.target |= batch->state_rows[i] >= 0;
        use.own |= batch->state_rows[i] < 0;
    }
    return use;
}

/* The graph that computes the batch, or NULL. It computes logits of all tokens. Graphs neither wait for swaps nor
 * measure scales. */
static const struct decode_graph *find_graph(const struct model *m, const struct batch *batch)
{
    if (batch->num_decodes != batch->num_seqs || !samples_first_tokens(batch) || swap_is_needed(batch) ||
        m->cache.measure_scales)
        return NULL;
    const struct state_use use = states_of(m, batch);
    if ((use.target && use.own) || (use.own && batch->num_drafts > 0)) return NULL;
    const bool drafts = batch->num_drafts > 0 || use.target;
    return decode_graphs_find(drafts ? &m->draft_graphs : &m->graphs, batch->num_seqs);
}

static struct step_shape shape_of(const struct model *m, const struct batch *batch)
{
    const struct state_use use = states_of(m, batch);
    return (struct step_shape){
        .num_tokens = batch->num_tokens,
        .num_seqs = batch->num_seqs,
        .num_decodes = batch->num_decodes,
        .num_drafts = batch->num_drafts,
        .num_samples = batch->num_samples,
        .num_targets = batch->num_targets,
        .max_query_len = batch->max_query_len,
        .max_seq_len = batch->max_seq_len,
        .all_sampled = batch->num_samples == batch->num_tokens && samples_first_tokens(batch),
        .target_states = use.target,
        .own_states = use.own,
        .measures_scales = m->cache.measure_scales,
        .swapped = swap_is_needed(batch) ? m->swap.swapped : NULL,
    };
}

/* False: a step of model_warm_up. */
static bool stores_tokens(const struct batch *batch)
{
    for (int32_t t = 0; t < batch->num_tokens; t++)
        if (batch->slot_mapping[t] >= 0) return true;
    return false;
}

/* Puts changes of block tables and copies of blocks on the main stream, and swaps on a stream of their own. Blocks are
 * swapped out, then in, then copied: a block that is swapped out may be written to in the same step, and one that is
 * swapped in may be copied. */
static void move_blocks(struct model *m, const struct batch *batch)
{
    struct backend *b = m->backend;
    const bool swaps = swap_is_needed(batch);
    const struct update_block_tables_args update = {.block_tables = m->state.block_tables,
                                                    .block_table_stride = m->decoder.block_table_stride,
                                                    .group_stride = m->decoder.group_stride,
                                                    .deltas = m->inputs.deltas,
                                                    .num_deltas = batch->num_deltas};
    const struct copy_blocks_args copies = {.caches = m->cache.tensors,
                                            .num_caches = m->cache.num_tensors,
                                            .block_bytes = m->cache.tensor_block_bytes,
                                            .pairs = m->inputs.copies,
                                            .num_pairs = batch->num_copies};
    if (batch->num_deltas > 0) b->update_block_tables(b, &update);
    if (swaps) swap_of_step(&m->swap, b, &m->cache, &m->states, batch);
    if (batch->num_copies == 0 || m->cache.num_tensors == 0) return;
    /* Copies are of all tensors, so they wait for the swaps of the last. */
    if (swaps) b->event_wait(b, m->swap.swapped[m->cache.groups.num_tensors - 1], NULL);
    b->copy_blocks(b, &copies);
}

/* The logits, and where the results go. */
static struct sample_args sample_args_of(const struct model *m, const struct token_results *results, int32_t count)
{
    return (struct sample_args){
        .logits = m->decoder.act.logits,
        .logits_stride = model_spec_whole(m->spec)->vocab_size,
        .num_samples = count,
        .vocab_size = model_num_ids(m),
        .token_ids = results->token_ids,
        .logprobs = results->logprobs,
        .ranks = results->ranks,
        .top_ids = results->top_ids,
        .top_logprobs = results->top_logprobs,
    };
}

/* Whether a rank can sample from its own logits, so that they need not be gathered in all ranks. */
static bool takes_own_logits(const struct model *m, struct sample_args *args)
{
    struct sample_share *share = &args->share;
    const bool greedy = !args->any_processing && !args->any_random && !args->any_logprobs;
    if (!greedy || m->state.kept_logits || !decoder_own_logits(&m->decoder, share)) return false;
    const int32_t left = args->vocab_size - share->first; /* padding of the vocabulary is not sampled */
    if (share->count > left) share->count = left > 0 ? left : 0;
    return true;
}

/* The masks of a step's samples, which are those of all ranks. */
struct masks_of_step {
    const struct sample_masks *masks;
    int32_t num_rows; /* 0: there are none */
};

static void upload_masks(struct model *m, const struct batch *batch, const struct masks_of_step *masks,
                         struct sample_args *args)
{
    struct backend *b = m->backend;
    const int64_t words = masks->num_rows * (int64_t)masks->masks->num_words;
    b->copy(b, m->state.masks, masks->masks->words, words * (int64_t)sizeof *m->state.masks, NULL);
    b->copy(b, m->state.mask_rows, masks->masks->rows, batch->num_samples * (int64_t)sizeof *m->state.mask_rows, NULL);
    args->masks = m->state.masks;
    args->mask_words = masks->masks->num_words;
    args->mask_rows = m->state.mask_rows;
}

static void sample(struct model *m, const struct batch *batch, const struct masks_of_step *masks,
                   struct step_results *results)
{
    struct backend *b = m->backend;
    const struct device_state *s = &m->state;
    struct sample_args args = sample_args_of(m, &s->samples, batch->num_samples);
    args.state_indices = m->inputs.sample_state_indices;
    args.output_positions = m->inputs.output_positions;
    args.states = s->sampling;
    args.history = s->history;
    args.history_stride = m->options.limits.max_model_len;
    if (batch->num_drafts > 0) args.drafts = m->inputs.sampled_drafts;
    for (int32_t i = 0; i < batch->num_samples; i++) {
        const struct sampling_needs *needs = &m->sampling_needs[batch->sample_state_indices[i]];
        args.any_processing |= needs->processing;
        args.any_random |= needs->random;
        if (m->options.is_drafter) continue;
        args.any_logprobs |= needs->num_logprobs >= 0;
        if (needs->num_logprobs > args.top_stride) args.top_stride = needs->num_logprobs;
    }
    results->num_samples = batch->num_samples;
    results->any_logprobs = args.any_logprobs;
    results->top_stride = args.top_stride;
    if (batch->num_samples == 0) return;
    if (masks->num_rows > 0) upload_masks(m, batch, masks, &args);
    if (m->spec->whole && !takes_own_logits(m, &args)) decoder_finish_logits(&m->decoder, batch->num_samples);
    if (s->kept_logits)
        b->copy(b, s->kept_logits, args.logits,
                batch->num_samples * args.logits_stride * (int64_t)sizeof *s->kept_logits, NULL);
    b->sample(b, &args);
}

/* The buffer of the logits has a row for each entry, and a prompt more targets than that: so many at a time. */
static void score_targets(struct model *m, const struct batch *batch, struct step_results *results)
{
    const int32_t most = batch_max_entries(&m->options.limits), top = batch->num_target_tops;
    const struct token_results *all = &m->state.targets;
    results->num_targets = batch->num_targets;
    results->target_top_stride = top;
    for (int32_t first = 0, count; first < batch->num_targets; first += count) {
        count = batch->num_targets - first < most ? batch->num_targets - first : most;
        const struct token_results rows = {all->token_ids + first, all->logprobs + first, all->ranks + first,
                                           all->top_ids + (int64_t)first * top,
                                           all->top_logprobs + (int64_t)first * top};
        struct sample_args args = sample_args_of(m, &rows, count);
        args.targets = m->inputs.target_ids + first;
        args.any_logprobs = true;
        args.top_stride = top;
        decoder_target_logits(&m->decoder, first, count);
        m->backend->sample(m->backend, &args);
    }
}

static void download_rows(struct backend *b, const struct token_results *to, const struct token_results *from,
                          int64_t count, bool logprobs, int32_t top_stride)
{
    const int64_t bytes = count * (int64_t)sizeof *to->token_ids; /* every element has 4 */
    if (count == 0) return;
    b->copy(b, to->token_ids, from->token_ids, bytes, NULL);
    if (!logprobs) return;
    b->copy(b, to->logprobs, from->logprobs, bytes, NULL);
    b->copy(b, to->ranks, from->ranks, bytes, NULL);
    if (top_stride == 0) return;
    b->copy(b, to->top_ids, from->top_ids, bytes * top_stride, NULL);
    b->copy(b, to->top_logprobs, from->top_logprobs, bytes * top_stride, NULL);
}

static void download(struct model *m, const struct step_results *r)
{
    const struct device_state *s = &m->state;
    download_rows(m->backend, &r->samples, &s->samples, r->num_samples, r->any_logprobs, r->top_stride);
    download_rows(m->backend, &r->targets, &s->targets, r->num_targets, true, r->target_top_stride);
}

/* ---- stages ---- */

static struct transfer_args transfer_of(const struct model *m, const struct batch *batch, void *x, int32_t stages)
{
    const int64_t elements = batch->num_tokens * (int64_t)m->spec->hidden_size;
    return (struct transfer_args){.x = x,
                                  .bytes = elements * dtype_size(m->options.dtype),
                                  .peer = stage_rank(m->spec) + stages * stage_num_ranks(m->spec)};
}

/* Gets the residual stream from the stage before. False: that has ended the step early. */
static bool receive(struct model *m, const struct batch *batch)
{
    const struct transfer_args args = transfer_of(m, batch, m->decoder.act.residual, -1);
    return stage_is_first(m->spec) || m->backend->receive(m->backend, &args);
}

/* Sends it to the next stage, or that this one has ended the step early. */
static void send(struct model *m, const struct batch *batch, int place, bool computed)
{
    const struct transfer_args args = transfer_of(m, batch, computed ? m->outbox[place] : NULL, 1);
    if (stage_is_last(m->spec)) return;
    if (computed) m->backend->copy(m->backend, args.x, m->decoder.act.residual, args.bytes, NULL);
    m->backend->send(m->backend, &args);
}

/* ---- submit and collect ---- */

static enum status forward(struct model *m, const struct batch *batch, const struct decode_graph *graph,
                           struct error *err)
{
    if (graph) {
        m->backend->graph_launch(m->backend, graph->graph);
        return STATUS_OK;
    }
    const struct step_shape shape = shape_of(m, batch);
    if (!decoder_forward(&m->decoder, &shape)) return error_set(err, STATUS_CANCELLED, "the step was cancelled");
    if (stores_tokens(batch)) m->cache.measure_scales = false;
    return STATUS_OK;
}

/* What the ranks are called with for a step: the forward pass, sampling, or both. */
struct step_call {
    const struct batch *batch;
    bool forward, samples;
    struct masks_of_step masks;
};

/* Of each step a stage receives once and sends once, whatever fails. */
static enum status submit_forward(struct model *m, const struct batch *batch, struct error *err)
{
    const int32_t most = m->options.max_in_flight;
    if (m->submitted - m->collected >= most)
        return error_set(err, STATUS_INTERNAL, "%d steps are in flight already; collect one first", most);
    const int place = (int)(m->submitted % most);
    const struct decode_graph *graph = find_graph(m, batch);
    step_inputs_upload(&m->inputs, m->backend, batch, graph ? graph->num_seqs : 0, place);
    move_blocks(m, batch);
    const bool came = receive(m, batch);
    const enum status status =
        came ? forward(m, batch, graph, err) : error_set(err, STATUS_CANCELLED, "an earlier stage ended the step");
    send(m, batch, place, status == STATUS_OK);
    if (status == STATUS_OK) m->submitted++;
    return status;
}

static void submit_sampling(struct model *m, const struct batch *batch, const struct masks_of_step *masks)
{
    struct step_results *results = &m->results[(m->submitted - 1) % m->options.max_in_flight];
    if (stage_is_last(m->spec)) {
        sample(m, batch, masks, results);
        score_targets(m, batch, results);
        download(m, results);
    }
    m->backend->event_record(m->backend, results->done, NULL);
}

static enum status submit(struct model *m, void *step_call, struct error *err)
{
    const struct step_call *call = step_call;
    const enum status status = call->forward ? submit_forward(m, call->batch, err) : STATUS_OK;
    if (status == STATUS_OK && call->samples) submit_sampling(m, call->batch, &call->masks);
    return status;
}

/* The model whose samples are those of the step. */
static struct model *sampler(struct model *m)
{
    return m->spec->all_stages ? model_rank_of(m, (m->spec->num_stages - 1) * stage_num_ranks(m->spec)) : m;
}

/* A step that a later stage has cancelled is in flight in none, and nothing of it stays. */
static enum status submit_on_ranks(struct model *m, struct step_call *call, struct error *err)
{
    const int64_t submitted = m->submitted;
    bool measures[COLLECTIVE_MAX_RANKS];
    for (int32_t r = 0; r <= m->num_others; r++) measures[r] = model_rank_of(m, r)->cache.measure_scales;
    const enum status status = model_for_ranks(m, submit, call, err);
    for (int32_t r = 0; r <= m->num_others && status == STATUS_CANCELLED; r++) {
        model_rank_of(m, r)->submitted = submitted;
        model_rank_of(m, r)->cache.measure_scales = measures[r];
    }
    return status;
}

enum status model_submit(struct model *m, const struct batch *batch, struct error *err)
{
    struct step_call call = {.batch = batch, .forward = true, .samples = true};
    nodes_call_submit(m->options.nodes, m->options.is_drafter, batch);
    return submit_on_ranks(m, &call, err);
}

enum status model_forward(struct model *m, const struct batch *batch, struct error *err)
{
    struct step_call call = {.batch = batch, .forward = true};
    return submit_on_ranks(m, &call, err);
}

struct sample_masks model_masks(struct model *m)
{
    return sampler(m)->masks[(m->submitted - 1) % model_num_masks(m)];
}

enum status model_sample(struct model *m, const struct batch *batch, int32_t num_rows, struct error *err)
{
    const struct sample_masks masks = model_masks(m);
    struct step_call call = {.batch = batch, .samples = true, .masks = {&masks, num_rows}};
    return submit_on_ranks(m, &call, err);
}

static struct sample_output output_of(const struct token_results *r, int32_t count, int32_t top_stride)
{
    return (struct sample_output){.num_samples = count,
                                  .token_ids = r->token_ids,
                                  .logprobs = r->logprobs,
                                  .ranks = r->ranks,
                                  .top_stride = top_stride,
                                  .top_ids = r->top_ids,
                                  .top_logprobs = r->top_logprobs};
}

static enum status collect(struct model *m, void *context, struct error *err)
{
    (void)context;
    if (m->collected == m->submitted) return error_set(err, STATUS_INTERNAL, "no step is in flight");
    const struct step_results *results = &m->results[m->collected % m->options.max_in_flight];
    const enum status status = m->backend->event_synchronize(m->backend, results->done, err);
    if (status == STATUS_OK) m->collected++;
    return status;
}

enum status model_collect(struct model *m, struct sample_output *out, struct error *err)
{
    struct step_results *results = &sampler(m)->results[m->collected % m->options.max_in_flight];
    /* The other nodes tell only of a failure: rank 0's samples are there when they have done their part of the step. */
    nodes_call(m->options.nodes, NODE_COLLECT, m->options.is_drafter, NULL, 0);
    const enum status status = model_for_ranks(m, collect, NULL, err);
    if (status != STATUS_OK) return status;
    *out = output_of(&results->samples, results->num_samples, results->top_stride);
    if (results->num_targets > 0) {
        results->target_output = output_of(&results->targets, results->num_targets, results->target_top_stride);
        out->targets = &results->target_output;
    }
    return STATUS_OK;
}

static void take_drafts(struct model *target, int32_t pass, const struct model *drafter, int32_t num_samples)
{
    int32_t *ids = target->state.samples.token_ids + (int64_t)(pass + 1) * batch_max_entries(&target->options.limits);
    target->backend->copy(target->backend, ids, drafter->state.samples.token_ids, num_samples * (int64_t)sizeof *ids,
                          NULL);
}

void model_take_drafts(struct model *target, int32_t pass, const struct model *drafter, int32_t num_samples)
{
    const int32_t numbers[] = {pass, num_samples};
    nodes_call(target->options.nodes, NODE_TAKE_DRAFTS, 0, numbers, sizeof numbers);
    take_drafts(target, pass, drafter, num_samples);
    for (int32_t i = 0; i < target->num_others; i++)
        take_drafts(target->others[i], pass, drafter->others[i], num_samples);
}

const float *model_logits(const struct model *m)
{
    return sampler((struct model *)m)->state.kept_logits;
}
