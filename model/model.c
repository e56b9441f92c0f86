/* The life of a model: planning, allocation, warm-up, destruction. Its steps are in step.c. */
#include "model/model_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host_memory.h"
#include "base/pool.h"
#include "kernels/group_failure.h"
#include "model/device_weights.h"
#include "model/nodes/calls.h"
#include "model/stage.h"

static int64_t rope_table_bytes(const struct model *m, int32_t rope)
{
    const int64_t rows = rope_table_rows(m->spec, m->options.limits.max_model_len);
    return rows * rope_rotary_dim(m->spec, rope) * (int64_t)sizeof(float);
}

/* What the steps find. The device's ids of samples are followed by those of a drafter's passes. */
static enum status allocate_token_results(struct model *m, enum memory_purpose purpose, int64_t rows, int64_t columns,
                                          struct token_results *r, struct error *err)
{
    const int64_t passes = r == &m->state.samples ? m->options.num_passes : 0;
    const struct arena_request requests[] = {
        {purpose, rows * (1 + passes), sizeof *r->token_ids, &r->token_ids},
        {purpose, rows, sizeof *r->logprobs, &r->logprobs},
        {purpose, rows, sizeof *r->ranks, &r->ranks},
        {purpose, rows * columns, sizeof *r->top_ids, &r->top_ids},
        {purpose, rows * columns, sizeof *r->top_logprobs, &r->top_logprobs},
    };
    return arena_alloc_all(&m->arena, requests, sizeof requests / sizeof *requests, err);
}

/* Allocates the results of a step's samples and of its targets. */
static enum status allocate_both(struct model *m, enum memory_purpose purpose, struct token_results *samples,
                                 struct token_results *targets, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    enum status status = allocate_token_results(m, purpose, batch_max_entries(limits), SAMPLING_MAX_TOP, samples, err);
    if (status != STATUS_OK) return status;
    return allocate_token_results(m, purpose, limits->max_num_tokens, SAMPLING_MAX_LOGPROBS, targets, err);
}

static enum status allocate_state(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const int64_t S = limits->max_num_seqs, max_blocks = batch_max_blocks(limits), max_len = limits->max_model_len;
    const int64_t i32 = sizeof(int32_t), f32 = sizeof(float);
    const int64_t own = !m->options.is_drafter;
    const int64_t logits = m->options.keep_logits && stage_is_last(m->spec)
                               ? (int64_t)batch_max_entries(limits) * model_spec_whole(m->spec)->vocab_size
                               : 0;
    struct device_state *s = &m->state;
    const struct arena_request requests[] = {
        {PURPOSE_STATE, own * limits->num_groups * S * max_blocks, i32, &s->block_tables},
        {PURPOSE_STATE, own * S, sizeof *s->sampling, &s->sampling},
        {PURPOSE_STATE, own * S * max_len, i32, &s->history},
        {PURPOSE_ACTIVATIONS, logits, f32, &s->kept_logits},
    };
    enum status status = arena_alloc_all(&m->arena, requests, sizeof requests / sizeof *requests, err);
    for (int32_t i = 0; i < m->spec->num_ropes && status == STATUS_OK; i++) {
        void *table;
        status = arena_alloc(&m->arena, PURPOSE_STATE, rope_table_bytes(m, i), &table, err);
        s->cos_sin[i] = table;
    }
    return status;
}

static enum status allocate_results(struct model *m, struct error *err)
{
    struct device_state *s = &m->state;
    enum status status = allocate_both(m, PURPOSE_STATE, &s->samples, &s->targets, err);
    for (int32_t i = 0; i < m->options.max_in_flight && status == STATUS_OK; i++)
        status = allocate_both(m, PURPOSE_HOST_STAGING, &m->results[i].samples, &m->results[i].targets, err);
    return status;
}

/* What samples may be, on the device and for the host to write. */
static enum status allocate_masks(struct model *m, struct error *err)
{
    const int64_t rows = batch_max_entries(&m->options.limits), words = model_mask_words(m);
    const struct arena_request requests[] = {
        {PURPOSE_STATE, rows * words, sizeof *m->state.masks, &m->state.masks},
        {PURPOSE_STATE, rows, sizeof *m->state.mask_rows, &m->state.mask_rows},
    };
    if (!m->options.masks || m->options.is_drafter || !stage_is_last(m->spec)) return STATUS_OK;
    enum status status = arena_alloc_all(&m->arena, requests, sizeof requests / sizeof *requests, err);
    for (int32_t i = 0; i < model_num_masks(m) && m->spec->rank == 0 && status == STATUS_OK; i++) {
        struct sample_masks *masks = &m->masks[i];
        const struct arena_request staging[] = {
            {PURPOSE_HOST_STAGING, rows * words, sizeof *masks->words, &masks->words},
            {PURPOSE_HOST_STAGING, rows, sizeof *masks->rows, &masks->rows},
        };
        masks->num_words = model_mask_words(m);
        status = arena_alloc_all(&m->arena, staging, sizeof staging / sizeof *staging, err);
    }
    return status;
}

static enum status allocate_workspace_of(struct model *m, struct backend *b, enum memory_purpose purpose,
                                         const struct workspace_query *query, struct error *err)
{
    const int64_t bytes = b->workspace_bytes(b, query);
    void *workspace;
    enum status status = arena_alloc(&m->arena, purpose, bytes, &workspace, err);
    if (status == STATUS_OK && !m->arena.planning) b->workspace_set(b, workspace, bytes);
    return status;
}

static void cover(int64_t *most, int64_t value)
{
    if (value > *most) *most = value;
}

/* Makes the query cover the operations of a model, too. */
static void widen_query(struct workspace_query *query, const struct model_spec *spec, const struct tensor_table *table)
{
    const struct layer_sizes largest = model_spec_largest(spec);
    if (largest.num_heads > query->num_heads) query->num_heads = largest.num_heads;
    if (largest.head_size > query->head_size) query->head_size = largest.head_size;
    if (largest.latent_rank > query->latent_rank) query->latent_rank = largest.latent_rank;
    const int32_t vocab_size = model_spec_whole(spec)->vocab_size;
    if (vocab_size > query->vocab_size) query->vocab_size = vocab_size;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct recurrent_spec *r = &spec->layers[i].recurrent;
        if (r->num_v_heads > query->num_recurrent_heads) query->num_recurrent_heads = r->num_v_heads;
        cover(&query->recurrent_state_size, recurrent_v_size(r) * r->k_head_size);
    }
    for (int32_t i = 0; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        const bool counts = t->scheme.is_quantized && t->num_experts == 0;
        cover(&query->max_in_features, t->in_features);
        cover(&query->max_quantized_elements, counts ? t->merged_rows * t->in_features : 0);
    }
}

/* A backend has one workspace, so a drafter's operations use its target's. */
static enum status allocate_workspaces(struct model *m, const struct tensor_table *table, struct error *err)
{
    const struct model_options *o = &m->options;
    struct workspace_query query = {
        .max_num_tokens = batch_max_rows(&o->limits),
        .max_num_seqs = batch_max_entries(&o->limits),
        .max_model_len = o->limits.max_model_len,
        .block_size = batch_largest_block_size(&o->limits),
    };
    struct backend *host = m->decoder.host_experts.backend;
    if (o->is_drafter) return STATUS_OK;
    widen_query(&query, m->spec, table);
    if (o->drafter_spec) widen_query(&query, o->drafter_spec, &o->drafter_weights->table);
    enum status status = allocate_workspace_of(m, m->backend, PURPOSE_WORKSPACE, &query, err);
    if (status != STATUS_OK || !host) return status;
    return allocate_workspace_of(m, host, PURPOSE_HOST_STAGING, &query, err);
}

/* Of what a stage sends, the receiver may be late by as many steps as are in flight. */
static enum status allocate_outbox(struct model *m, struct error *err)
{
    const int64_t elements = batch_max_rows(&m->options.limits) * (int64_t)m->spec->hidden_size;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < m->options.max_in_flight && status == STATUS_OK && !stage_is_last(m->spec); i++)
        status =
            arena_alloc(&m->arena, PURPOSE_ACTIVATIONS, elements * dtype_size(m->options.dtype), &m->outbox[i], err);
    return status;
}

/* Everything but weights and cache. */
static enum status allocate_step_memory(struct model *m, const struct tensor_table *table, struct error *err)
{
    struct decoder *d = &m->decoder;
    enum status status = step_inputs_allocate(&m->inputs, &m->arena, &m->options.limits, m->options.max_in_flight,
                                              m->spec->head.kind != HEAD_NONE, err);
    if (status == STATUS_OK)
        status = kv_cache_allocate_scales(&m->cache, &m->arena, m->spec, m->options.cache_dtype, err);
    if (status == STATUS_OK)
        status = state_cache_allocate(&m->states, &m->arena, m->spec, m->options.limits.num_state_slots, err);
    if (status == STATUS_OK) status = decoder_allocate(d, &m->arena, &m->options.limits, err);
    if (status == STATUS_OK) status = allocate_state(m, err);
    if (status == STATUS_OK) status = allocate_results(m, err);
    if (status == STATUS_OK) status = allocate_masks(m, err);
    if (status == STATUS_OK) status = allocate_outbox(m, err);
    if (status == STATUS_OK) status = allocate_workspaces(m, table, err);
    d->block_tables = m->state.block_tables;
    d->cos_sin = m->state.cos_sin;
    d->last_sampled = m->state.samples.token_ids;
    return status;
}

static void init(struct model *m, struct backend *backend, const struct model_spec *spec,
                 const struct model_weights *weights, const struct model_options *options)
{
    const struct model_weights *used = options->copy_weights ? &m->device_weights : weights;
    const struct model_spec *drafter = options->drafter_spec;
    const struct head_spec *served = drafter && drafter->head.kind != HEAD_NONE ? &drafter->head : NULL;
    *m = (struct model){.backend = backend, .spec = spec, .options = *options};
    if (m->options.max_in_flight == 0) m->options.max_in_flight = 2;
    m->decoder =
        (struct decoder){.backend = backend,
                         .cancel = options->cancel,
                         .spec = m->spec,
                         .weights = used,
                         .embedding = &used->embedding,
                         .lm_head = &used->lm_head,
                         .served = served,
                         .cache = &m->cache,
                         .states_cache = &m->states,
                         .inputs = &m->inputs,
                         .block_table_stride = batch_max_blocks(&options->limits),
                         .group_stride = (int64_t)options->limits.max_num_seqs * batch_max_blocks(&options->limits),
                         .scatters_runs = options->is_drafter,
                         .dtype = options->dtype};
    if (options->copy_weights && weights->host_expert_layers > 0)
        m->decoder.host_experts =
            (struct host_experts){.backend = options->host_backend, .num_layers = weights->host_expert_layers};
    arena_init(&m->arena, backend);
}

enum status model_plan(struct backend *backend, const struct model_spec *spec, const struct model_weights *weights,
                       const struct model_options *options, int64_t *bytes, struct error *err)
{
    struct model m;
    init(&m, backend, spec, weights, options);
    m.arena.planning = true;
    enum status status = allocate_step_memory(&m, &weights->table, err);
    memcpy(bytes, m.arena.bytes, sizeof m.arena.bytes);
    bytes[PURPOSE_WEIGHTS] = options->copy_weights ? device_weights_bytes(weights, options->dtype) : weights->bytes;
    if (options->copy_weights) bytes[PURPOSE_HOST_WEIGHTS] = device_weights_pinned_bytes(weights, options->dtype);
    return status;
}

static int64_t tensor_bytes_on_host(const struct model_weights *weights, const struct tensor *t)
{
    const struct weights_place place = model_weights_place(weights, t);
    return t->kind == TENSOR_MATRIX ? model_weights_tensor_bytes(t, place.matrix)
                                    : t->out_features * dtype_size(*place.vector_dtype);
}

struct model_expert_bytes model_expert_bytes(const struct model_spec *spec, const struct model_weights *weights,
                                             const struct model_options *options)
{
    struct model_expert_bytes out = {.counted = weights->expert_bytes};
    if (!options->copy_weights) return out;
    out.counted = device_weights_expert_bytes(weights, options->dtype);
    for (int32_t i = 0; i < weights->table.count; i++) {
        const struct tensor *t = &weights->table.tensors[i];
        if (!model_weights_stays_on_host(weights, t)) continue;
        const int64_t bytes = tensor_bytes_on_host(weights, t);
        out.on_host += bytes;
        if (t->expert < spec->layers[t->layer].experts.router.top_k) out.token_on_host += bytes;
    }
    return out;
}

static enum status upload_rope_table(struct model *m, int32_t rope, struct error *err)
{
    const int64_t bytes = rope_table_bytes(m, rope);
    if (bytes == 0) return STATUS_OK;
    float *table = malloc((size_t)bytes);
    if (!table) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of rotary angles");
    struct pool *pool = bytes > 1 << 20 ? pool_open_allowed() : NULL;
    rope_table(m->spec, rope, m->options.limits.max_model_len, table, pool);
    m->backend->copy(m->backend, m->state.cos_sin[rope], table, bytes, NULL);
    enum status status = m->backend->stream_synchronize(m->backend, NULL, err);
    pool_close(pool);
    free(table);
    return status;
}

static enum status allocate(struct model *m, struct model_weights *weights, struct error *err)
{
    struct backend *b = m->backend;
    const struct model_options *o = &m->options;
    if (!o->is_drafter) m->sampling_needs = calloc((size_t)o->limits.max_num_seqs, sizeof *m->sampling_needs);
    if (!m->sampling_needs && !o->is_drafter) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    enum status status = kv_cache_init(&m->cache, m->spec, &o->limits, o->cache_dtype, err);
    if (status == STATUS_OK && !o->copy_weights) status = model_weights_pack(weights, err);
    if (status == STATUS_OK && o->copy_weights) status = model_weights_pack_host_experts(weights, err);
    if (status == STATUS_OK && o->copy_weights)
        status = device_weights_begin(&m->arena, m->spec, weights, o->dtype, &m->device_weights, &m->upload, err);
    if (status == STATUS_OK) status = allocate_step_memory(m, &weights->table, err);
    if (status == STATUS_OK) status = kv_cache_set_scales(&m->cache, b, weights, m->spec, err);
    for (int32_t i = 0; i < o->max_in_flight && status == STATUS_OK; i++)
        status = b->event_create(b, &m->results[i].done, err);
    for (int32_t i = 0; i < m->spec->num_ropes && status == STATUS_OK; i++) status = upload_rope_table(m, i, err);
    if (status == STATUS_OK) status = decoder_upload(&m->decoder, err);
    return status;
}

/* The ranks of a stage compute together; one in a stage sends to one in the next. */
static enum status open_stages(struct backend *const *backends, int32_t num_ranks, int32_t of_stage, struct error *err)
{
    enum status status = STATUS_OK;
    for (int32_t r = 0; r < num_ranks && status == STATUS_OK; r += of_stage)
        status = backend_group_open(backends + r, of_stage, err);
    return status == STATUS_OK && of_stage < num_ranks ? backend_transfers_open(backends, num_ranks, err) : status;
}

static enum status join_nodes(struct backend *const *backends, int32_t num_ranks, struct nodes *nodes,
                              struct error *err)
{
    const struct group_nodes group = nodes_group(nodes);
    struct error why;
    const enum status status = backend_group_join(backends, num_ranks, &group, &why);
    if (status == STATUS_OK) return STATUS_OK;
    group_fail(nodes_failure(nodes), status, why.text); /* others may be waiting in there */
    return group_failure_get(nodes_failure(nodes), err);
}

/* *failure is made where there are several ranks, unless the nodes have one. */
static enum status open_groups(const struct model_rank *ranks, int32_t num_ranks, struct nodes *nodes,
                               struct group_failure **failure, struct error *err)
{
    struct backend *backends[COLLECTIVE_MAX_RANKS] = {NULL};
    const int32_t of_stage = ranks[0].spec->all_stages ? stage_num_ranks(ranks[0].spec) : num_ranks;
    if (num_ranks > 1 && !nodes && !(*failure = group_failure_create()))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a group of ranks");
    for (int32_t r = 0; r < num_ranks; r++) {
        backends[r] = ranks[r].backend;
        backends[r]->failure = nodes ? nodes_failure(nodes) : *failure;
    }
    return nodes ? join_nodes(backends, num_ranks, nodes, err) : open_stages(backends, num_ranks, of_stage, err);
}

/* Has the other nodes create their part. */
static enum status create_elsewhere(const struct backend *b, const struct model_options *options, struct error *err)
{
    struct node_create c = {.options = *options, .can_cancel = options->cancel != NULL};
    if (!options->nodes || nodes_group(options->nodes).node != 0) return STATUS_OK;
    if (!options->is_drafter) {
        const enum status status = backend_group_make_id(b, c.id, err);
        if (status != STATUS_OK) return status;
        nodes_set_id(options->nodes, c.id);
    }
    snprintf(c.isa, sizeof c.isa, "%s", b->isa ? b->isa : "");
    c.options.nodes = NULL, c.options.cancel = NULL, c.options.host_backend = NULL;
    c.options.drafter_spec = NULL, c.options.drafter_weights = NULL;
    nodes_call(options->nodes, NODE_CREATE, options->is_drafter, &c, sizeof c);
    return STATUS_OK;
}

/* The weights are found by the rank. */
static enum status allocate_rank(struct model *m, void *ranks, struct error *err)
{
    const struct model_rank *all = ranks;
    return allocate(m, all[stage_rank(m->spec) - stage_rank(all[0].spec)].weights, err);
}

static void forget_failure(const struct model_rank *ranks, int32_t num_ranks, struct group_failure *failure)
{
    for (int32_t r = 0; r < num_ranks; r++) ranks[r].backend->failure = NULL;
    group_failure_free(failure);
}

static enum status create(const struct model_rank *ranks, int32_t num_ranks, const struct model_options *options,
                          struct model **out, struct error *err)
{
    struct model *m = NULL;
    struct group_failure *failure = NULL;
    enum status status = options->is_drafter ? STATUS_OK : open_groups(ranks, num_ranks, options->nodes, &failure, err);
    *out = NULL;
    for (int32_t r = 0; r < num_ranks && status == STATUS_OK; r++) {
        struct model *one = malloc(sizeof *one);
        if (!one) {
            status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
            break;
        }
        struct model_options own = *options;
        own.drafter_spec = ranks[r].drafter_spec, own.drafter_weights = ranks[r].drafter_weights;
        init(one, ranks[r].backend, ranks[r].spec, ranks[r].weights, &own);
        if (r == 0)
            m = one;
        else
            m->others[m->num_others++] = one;
    }
    if (status == STATUS_OK && num_ranks > 1) status = pool_open(num_ranks, &m->rank_threads, err);
    if (status == STATUS_OK) status = model_for_ranks(m, allocate_rank, (void *)ranks, err);
    if (m)
        m->failure = failure;
    else if (failure)
        forget_failure(ranks, num_ranks, failure);
    if (status == STATUS_OK)
        *out = m;
    else
        model_destroy(m);
    return status;
}

enum status model_create_ranks(const struct model_rank *ranks, int32_t num_ranks, const struct model_options *options,
                               struct model **out, struct error *err)
{
    enum status status = create_elsewhere(ranks[0].backend, options, err);
    if (status != STATUS_OK) return status;
    status = nodes_answers(options->nodes, create(ranks, num_ranks, options, out, err), NULL, err);
    if (status == STATUS_OK) return status;
    model_destroy(*out);
    *out = NULL;
    return status;
}

enum status model_create(struct backend *backend, const struct model_spec *spec, struct model_weights *weights,
                         const struct model_options *options, struct model **out, struct error *err)
{
    const struct model_rank rank = {backend, spec, weights, options->drafter_spec, options->drafter_weights};
    return model_create_ranks(&rank, 1, options, out, err);
}

static enum status allocate_cache(struct model *m, void *num_blocks, struct error *err)
{
    return kv_cache_allocate(&m->cache, &m->arena, *(const int32_t *)num_blocks, err);
}

enum status model_allocate_cache(struct model *m, int32_t num_blocks, struct error *err)
{
    nodes_call(m->options.nodes, NODE_ALLOCATE_CACHE, m->options.is_drafter, &num_blocks, sizeof num_blocks);
    return nodes_answers(m->options.nodes, model_for_ranks(m, allocate_cache, &num_blocks, err), NULL, err);
}

void model_release_cache(struct model *m)
{
    nodes_call(m->options.nodes, NODE_RELEASE_CACHE, m->options.is_drafter, NULL, 0);
    arena_release(&m->arena, PURPOSE_KV_CACHE);
    for (int32_t i = 0; i < m->num_others; i++) arena_release(&m->others[i]->arena, PURPOSE_KV_CACHE);
}

/* What host memory grows to: of several ranks, what all of them have. A piece of a stage may be larger than another's.
 */
struct growth {
    int32_t limit;
    int32_t first_rank; /* of this process */
    int32_t before[COLLECTIVE_MAX_RANKS], after[COLLECTIVE_MAX_RANKS];
};

static enum status grow_swap_space(struct model *m, void *growth, struct error *err)
{
    struct growth *g = growth;
    const int32_t rank = stage_rank(m->spec) - g->first_rank;
    g->before[rank] = m->swap.blocks.total;
    const enum status status = swap_space_grow(&m->swap, &m->arena, &m->cache, g->limit, err);
    g->after[rank] = m->swap.blocks.total;
    return status;
}

static enum status grow_host_slots(struct model *m, void *growth, struct error *err)
{
    struct growth *g = growth;
    const int32_t rank = stage_rank(m->spec) - g->first_rank;
    g->before[rank] = m->swap.slots.total;
    const enum status status = swap_space_grow_slots(&m->swap, &m->arena, &m->cache, &m->states, g->limit, err);
    g->after[rank] = m->swap.slots.total;
    return status;
}

static int32_t least(const int32_t *counts, int32_t num_ranks)
{
    int32_t smallest = counts[0];
    for (int32_t r = 1; r < num_ranks; r++)
        if (counts[r] < smallest) smallest = counts[r];
    return smallest;
}

static enum status grow(struct model *m, rank_function *function, enum node_message message, int32_t limit,
                        int32_t *added, struct error *err)
{
    struct growth growth = {.limit = limit, .first_rank = stage_rank(m->spec)};
    nodes_call(m->options.nodes, message, m->options.is_drafter, &limit, sizeof limit);
    const enum status status = model_for_ranks(m, function, &growth, err);
    *added = least(growth.after, 1 + m->num_others) - least(growth.before, 1 + m->num_others);
    return nodes_answers(m->options.nodes, status, added, err);
}

enum status model_grow_swap_space(struct model *m, int32_t limit, int32_t *added, struct error *err)
{
    return grow(m, grow_swap_space, NODE_GROW_BLOCKS, limit, added, err);
}

enum status model_grow_host_slots(struct model *m, int32_t limit, int32_t *added, struct error *err)
{
    return grow(m, grow_host_slots, NODE_GROW_SLOTS, limit, added, err);
}

/* One sequence of `tokens` tokens, none of them stored, attending to the null block. */
static enum status run_empty_step(struct model *m, int32_t tokens, struct batch *batch, struct error *err)
{
    struct sample_output out;
    batch_clear(batch);
    batch->num_tokens = batch->max_query_len = batch->max_seq_len = tokens;
    batch->num_seqs = batch->num_samples = 1;
    batch->num_decodes = tokens == 1;
    batch->query_start[0] = 0;
    batch->query_start[1] = batch->seq_lens[0] = tokens;
    batch->state_indices[0] = batch->sample_state_indices[0] = batch->output_positions[0] = 0;
    batch->logits_indices[0] = tokens - 1;
    batch->state_sources[0] = batch->state_slots[0] = STATE_SLOT_NONE;
    for (int32_t t = 0; t < tokens; t++) {
        batch->token_ids[t] = 0;
        batch->positions[t] = t;
        batch->state_rows[t] = 0;
        for (int64_t g = 0; g < batch->limits.num_groups; g++)
            batch->slot_mapping[g * batch->limits.max_num_tokens + t] = -1;
    }
    enum status status = model_submit(m, batch, err);
    return status == STATUS_OK ? model_collect(m, &out, err) : status;
}

void model_set_idle(struct model *m, bool idle)
{
    const int32_t number = idle;
    nodes_call(m->options.nodes, NODE_SET_IDLE, m->options.is_drafter, &number, sizeof number);
    for (int32_t r = 0; r <= m->num_others; r++) {
        struct model *one = model_rank_of(m, r);
        one->decoder.host_experts.idle = idle;
        if (m->num_others == 0 && !m->options.nodes) continue;
        if (idle)
            backend_group_pause(one->backend, &one->paused);
        else
            backend_group_resume(one->backend, &one->paused);
    }
}

enum status model_warm_up(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    int32_t longest = limits->max_num_tokens < limits->max_model_len ? limits->max_num_tokens : limits->max_model_len;
    if (longest > 256) longest = 256;
    struct batch batch;
    enum status status = batch_init(&batch, limits, err);
    model_set_idle(m, true);
    if (status == STATUS_OK) status = model_allocate_cache(m, 0, err);
    if (status == STATUS_OK) {
        model_set_sampling_state(m, 0, &greedy, NULL, 0);
        /* The decode comes first: at the same time, the thread of backend->preload loads what the prefill uses. */
        status = run_empty_step(m, 1, &batch, err);
    }
    if (status == STATUS_OK) status = run_empty_step(m, longest, &batch, err);
    model_set_idle(m, false);
    model_release_cache(m);
    batch_free(&batch);
    return status;
}

static enum status capture(struct model *m, void *context, struct error *err)
{
    (void)context;
    if (!m->backend->capture_begin || m->options.enforce_eager) return STATUS_OK;
    const struct batch_limits *limits = &m->options.limits;
    enum status status = decode_graphs_capture(&m->graphs, &m->decoder, limits, err);
    if (status != STATUS_OK || limits->max_num_drafts == 0) return status;
    return draft_graphs_capture(&m->draft_graphs, &m->decoder, limits, err);
}

enum status model_capture(struct model *m, struct error *err)
{
    nodes_call(m->options.nodes, NODE_CAPTURE, m->options.is_drafter, NULL, 0);
    return nodes_answers(m->options.nodes, model_for_ranks(m, capture, NULL, err), NULL, err);
}

static enum status wait_for_weights(struct model *m, void *context, struct error *err)
{
    (void)context;
    struct upload *upload = m->upload;
    m->upload = NULL;
    if (!upload) return STATUS_OK;
    enum status status = upload_finish(upload, err);
    if (status == STATUS_OK) device_weights_prepare(m->backend, &m->device_weights);
    return status;
}

enum status model_wait_for_weights(struct model *m, struct error *err)
{
    nodes_call(m->options.nodes, NODE_WAIT_FOR_WEIGHTS, m->options.is_drafter, NULL, 0);
    return nodes_answers(m->options.nodes, model_for_ranks(m, wait_for_weights, NULL, err), NULL, err);
}

static void destroy(struct model *m)
{
    struct error ignored;
    if (m->decoder.host_experts.backend) m->backend->stream_synchronize(m->backend, NULL, &ignored);
    wait_for_weights(m, NULL, &ignored);
    decode_graphs_destroy(&m->graphs, m->backend);
    decode_graphs_destroy(&m->draft_graphs, m->backend);
    for (int32_t i = 0; i < m->options.max_in_flight; i++)
        if (m->results[i].done) m->backend->event_destroy(m->backend, m->results[i].done);
    swap_space_close(&m->swap, m->backend, m->cache.groups.num_tensors);
    model_weights_close(&m->device_weights);
    kv_cache_close(&m->cache);
    arena_free(&m->arena);
    if (!m->options.is_drafter) free(m->sampling_needs);
    free(m);
}

/* The threads that upload weights look at the failure, too. */
static void leave_failure(struct model *m)
{
    struct error ignored;
    wait_for_weights(m, NULL, &ignored);
    m->backend->failure = NULL;
}

/* After a failure, what waits on a GPU for a rank that is not to come may never end, and to free what it uses would
 * wait for it: the memory is left to the end of the process. */
void model_destroy(struct model *m)
{
    if (!m) return;
    pool_close(m->rank_threads);
    if (m->backend->discrete && group_has_failed(m->backend->failure)) return;
    struct group_failure *failure = m->failure;
    for (int32_t i = 0; i < m->num_others; i++) {
        if (failure) leave_failure(m->others[i]);
        destroy(m->others[i]);
    }
    if (failure) leave_failure(m);
    destroy(m);
    group_failure_free(failure);
}

static void attach(struct model *drafter, const struct model *target)
{
    struct device_state *s = &drafter->state;
    const struct head_spec *head = &drafter->spec->head;
    s->block_tables = target->state.block_tables;
    s->sampling = target->state.sampling;
    s->history = target->state.history;
    drafter->sampling_needs = target->sampling_needs;
    drafter->decoder.block_tables = s->block_tables;
    if (head->kind == HEAD_NONE) return;
    drafter->decoder.target_states = target->decoder.states;
    if (!head->own_embedding) drafter->decoder.embedding = target->decoder.embedding;
    if (!head->own_lm_head) drafter->decoder.lm_head = target->decoder.lm_head;
}

void model_attach(struct model *drafter, const struct model *target)
{
    nodes_call(target->options.nodes, NODE_ATTACH, 0, NULL, 0);
    attach(drafter, target);
    for (int32_t i = 0; i < drafter->num_others; i++) attach(drafter->others[i], target->others[i]);
}

/* ---- facts ---- */

static int64_t decode_weight_bytes(const struct model *m)
{
    const struct model_weights *w = m->decoder.weights;
    const bool is_lm_head = stage_is_last(m->spec) && w->lm_head.data == w->embedding.data;
    return w->bytes - (is_lm_head || w->host_embeddings ? 0 : weight_bytes(&w->embedding));
}

int64_t model_decode_weight_bytes(const struct model *m)
{
    int64_t bytes = decode_weight_bytes(m);
    for (int32_t i = 0; i < m->num_others; i++) bytes += decode_weight_bytes(m->others[i]);
    return bytes;
}

static void add_residence(struct model_residence *r, int64_t reserved, int64_t resident)
{
    r->reserved += reserved;
    r->resident = resident < 0 || r->resident < 0 ? -1 : r->resident + resident;
}

static void residence_of_rank(const struct model *m, struct model_residence out[NUM_PURPOSES])
{
    int64_t reserved, resident;
    model_weights_resident(m->decoder.weights, &reserved, &resident);
    add_residence(&out[PURPOSE_WEIGHTS], reserved, resident);
    for (size_t i = 0; i < m->arena.count; i++) {
        const struct arena_piece *piece = &m->arena.pieces[i];
        add_residence(&out[piece->purpose == PURPOSE_HOST_STAGING ? PURPOSE_STATE : piece->purpose], piece->bytes,
                      host_memory_resident(piece->data, piece->bytes));
    }
}

void model_residence(const struct model *m, struct model_residence out[NUM_PURPOSES])
{
    memset(out, 0, NUM_PURPOSES * sizeof *out);
    residence_of_rank(m, out);
    for (int32_t i = 0; i < m->num_others; i++) residence_of_rank(m->others[i], out);
}
