#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/llama.h"

/* One line of a plan: how many bytes, for what, and where the pointer goes. */
struct plan_entry {
    enum memory_purpose purpose;
    int64_t count, element_size;
    void *pointer; /* address of the pointer to fill */
};

static enum status allocate_plan(struct arena *arena, const struct plan_entry *plan, int entries, struct error *err)
{
    for (int i = 0; i < entries; i++) {
        void *data;
        enum status status = arena_alloc(arena, plan[i].purpose, plan[i].count * plan[i].element_size, &data, err);
        if (status != STATUS_OK) return status;
        memcpy(plan[i].pointer, &data, sizeof data);
    }
    return STATUS_OK;
}

static enum status allocate_activations(struct model *m, struct error *err)
{
    const struct model_config *c = &m->config;
    const int64_t T = m->options.limits.max_num_tokens, S = m->options.limits.max_num_seqs;
    const int64_t e = dtype_size(m->options.dtype), f = sizeof(float);
    struct activations *a = &m->act;
    const struct plan_entry plan[] = {
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->hidden},
        {PURPOSE_ACTIVATIONS, T * c->hidden_size, e, &a->residual},
        {PURPOSE_ACTIVATIONS, T * ((int64_t)c->num_heads + 2 * c->num_kv_heads) * c->head_dim, e, &a->qkv},
        {PURPOSE_ACTIVATIONS, T * c->num_heads * c->head_dim, e, &a->attention},
        {PURPOSE_ACTIVATIONS, T * 2 * c->intermediate_size, e, &a->gate_up},
        {PURPOSE_ACTIVATIONS, T * c->intermediate_size, e, &a->gated},
        {PURPOSE_ACTIVATIONS, S * c->hidden_size, e, &a->last_hidden},
        {PURPOSE_ACTIVATIONS, S * c->hidden_size, e, &a->last_residual},
        {PURPOSE_ACTIVATIONS, S * c->vocab_size, f, &a->logits},
        {PURPOSE_ACTIVATIONS, m->options.keep_logits ? S * c->vocab_size : 0, f, &a->kept_logits},
    };
    return allocate_plan(&m->arena, plan, sizeof plan / sizeof *plan, err);
}

static enum status allocate_state(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const int64_t T = limits->max_num_tokens, S = limits->max_num_seqs, max_blocks = batch_max_blocks(limits);
    const int64_t i32 = sizeof(int32_t), f32 = sizeof(float);
    struct device_state *s = &m->state;
    const struct plan_entry plan[] = {
        {PURPOSE_STATE, S * max_blocks, i32, &s->block_tables},
        {PURPOSE_STATE, S, sizeof(struct sampling_row), &s->rows},
        {PURPOSE_STATE, S * limits->max_model_len, i32, &s->history},
        {PURPOSE_STATE, (int64_t)limits->max_model_len * m->config.head_dim, f32, &s->cos_sin},
        {PURPOSE_STATE, T, i32, &s->token_ids},
        {PURPOSE_STATE, T, i32, &s->positions},
        {PURPOSE_STATE, S + 1, i32, &s->query_start},
        {PURPOSE_STATE, S, i32, &s->seq_lens},
        {PURPOSE_STATE, S, i32, &s->seq_slot},
        {PURPOSE_STATE, S, i32, &s->sample_rows},
        {PURPOSE_STATE, S, i32, &s->sample_slot},
        {PURPOSE_STATE, S, i32, &s->sample_output},
        {PURPOSE_STATE, T, sizeof(int64_t), &s->slot_mapping},
        {PURPOSE_STATE, S * max_blocks, sizeof(struct block_table_delta), &s->deltas},
        {PURPOSE_STATE, S, sizeof(struct block_pair), &s->copies},
        {PURPOSE_STATE, 2 * S, i32, &s->sampled},
        {PURPOSE_STATE, S, f32, &s->logprobs},
        {PURPOSE_STATE, S, i32, &s->ranks},
        {PURPOSE_STATE, S * SAMPLING_MAX_LOGPROBS, i32, &s->top_ids},
        {PURPOSE_STATE, S * SAMPLING_MAX_LOGPROBS, f32, &s->top_logprobs},
    };
    return allocate_plan(&m->arena, plan, sizeof plan / sizeof *plan, err);
}

static enum status allocate_outputs(struct model *m, struct error *err)
{
    const int64_t S = m->options.limits.max_num_seqs, i32 = sizeof(int32_t), f32 = sizeof(float);
    for (int i = 0; i < 2; i++) {
        struct step_output *o = &m->outputs[i];
        const struct plan_entry plan[] = {
            {PURPOSE_HOST_STAGING, S, i32, &o->token_ids},
            {PURPOSE_HOST_STAGING, S, f32, &o->logprobs},
            {PURPOSE_HOST_STAGING, S, i32, &o->ranks},
            {PURPOSE_HOST_STAGING, S * SAMPLING_MAX_LOGPROBS, i32, &o->top_ids},
            {PURPOSE_HOST_STAGING, S * SAMPLING_MAX_LOGPROBS, f32, &o->top_logprobs},
        };
        enum status status = allocate_plan(&m->arena, plan, sizeof plan / sizeof *plan, err);
        if (status == STATUS_OK) status = m->backend->event_create(m->backend, &o->done, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status allocate_workspace(struct model *m, struct error *err)
{
    const struct model_config *c = &m->config;
    const struct batch_limits *limits = &m->options.limits;
    const int64_t q_size = (int64_t)c->num_heads * c->head_dim;
    const int64_t wide = c->intermediate_size > q_size ? c->intermediate_size : q_size;
    const struct workspace_query query = {
        .max_num_tokens = limits->max_num_tokens,
        .max_num_seqs = limits->max_num_seqs,
        .max_model_len = limits->max_model_len,
        .num_heads = c->num_heads,
        .num_kv_heads = c->num_kv_heads,
        .head_size = c->head_dim,
        .block_size = limits->block_size,
        .max_columns = wide > c->hidden_size ? wide : c->hidden_size,
        .max_rows = c->vocab_size > 2 * wide ? c->vocab_size : 2 * wide,
        .vocab_size = c->vocab_size,
        .dtype = m->options.dtype,
    };
    const int64_t bytes = m->backend->workspace_bytes(m->backend, &query);
    void *workspace;
    enum status status = arena_alloc(&m->arena, PURPOSE_WORKSPACE, bytes, &workspace, err);
    if (status == STATUS_OK) m->backend->workspace_set(m->backend, workspace, bytes);
    return status;
}

static enum status upload_rope_table(struct model *m, struct error *err)
{
    const int32_t positions = m->options.limits.max_model_len;
    const size_t bytes = (size_t)positions * (size_t)m->config.head_dim * sizeof(float);
    float *table = malloc(bytes);
    if (!table) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of rotary angles");
    rope_table(&m->config, positions, table);
    m->backend->copy(m->backend, m->state.cos_sin, table, (int64_t)bytes, NULL);
    enum status status = m->backend->stream_synchronize(m->backend, NULL, err);
    free(table);
    return status;
}

enum status model_create(struct backend *backend, const struct model_config *config, struct model_weights *weights,
                         const struct model_options *options, struct model **out, struct error *err)
{
    struct model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    m->backend = backend;
    m->config = *config;
    m->weights = weights;
    m->options = *options;
    m->attention = (struct attention_params){.scale = (float)(1.0 / sqrt((double)config->head_dim)),
                                             .window = config->sliding_window,
                                             .k_scale = 1,
                                             .v_scale = 1};
    arena_init(&m->arena, backend);
    m->slot_flags = calloc((size_t)options->limits.max_num_seqs, sizeof *m->slot_flags);
    m->k_cache = calloc(2 * (size_t)config->num_layers, sizeof *m->k_cache);
    m->v_cache = m->k_cache ? m->k_cache + config->num_layers : NULL;
    enum status status =
        m->slot_flags && m->k_cache ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    if (status == STATUS_OK) status = allocate_activations(m, err);
    if (status == STATUS_OK) status = allocate_state(m, err);
    if (status == STATUS_OK) status = allocate_outputs(m, err);
    if (status == STATUS_OK) status = allocate_workspace(m, err);
    if (status == STATUS_OK) status = upload_rope_table(m, err);
    if (status == STATUS_OK)
        *out = m;
    else
        model_destroy(m);
    return status;
}

enum status model_allocate_cache(struct model *m, int32_t num_blocks, struct error *err)
{
    const int64_t tensor_bytes = model_cache_block_bytes(m) * ((int64_t)num_blocks + 1);
    for (int32_t i = 0; i < 2 * m->config.num_layers; i++) {
        enum status status = arena_alloc(&m->arena, PURPOSE_KV_CACHE, tensor_bytes, &m->k_cache[i], err);
        if (status != STATUS_OK) return status;
    }
    m->num_blocks = num_blocks;
    return STATUS_OK;
}

int64_t model_cache_block_bytes(const struct model *m)
{
    return (int64_t)m->options.limits.block_size * m->config.num_kv_heads * m->config.head_dim *
           dtype_size(m->options.cache_dtype);
}

void model_destroy(struct model *m)
{
    if (!m) return;
    for (int i = 0; i < 2; i++)
        if (m->outputs[i].done) m->backend->event_destroy(m->backend, m->outputs[i].done);
    arena_free(&m->arena);
    free(m->slot_flags);
    free(m->k_cache);
    free(m);
}

void model_set_slot(struct model *m, int32_t slot, const struct sampling_row *row, const int32_t *tokens,
                    int32_t num_tokens)
{
    m->slot_flags[slot] = (struct slot_flags){
        .processing = row->min_tokens > 0 || row->num_bias > 0 || row->repetition_penalty != 1 ||
                      row->presence_penalty != 0 || row->frequency_penalty != 0,
        .random = row->temperature >= 1e-5f,
        .logprobs = row->num_logprobs >= 0,
    };
    m->backend->copy(m->backend, &m->state.rows[slot], row, sizeof *row, NULL);
    m->backend->copy(m->backend, m->state.history + (int64_t)slot * m->options.limits.max_model_len, tokens,
                     (int64_t)num_tokens * (int64_t)sizeof *tokens, NULL);
}

static void upload(struct model *m, void *destination, const void *source, int64_t count, size_t element_size)
{
    if (count > 0) m->backend->copy(m->backend, destination, source, count * (int64_t)element_size, NULL);
}

static void upload_batch(struct model *m, const struct batch *batch)
{
    struct device_state *s = &m->state;
    const int32_t seqs = batch->num_seqs, tokens = batch->num_tokens, samples = batch->num_samples;
    upload(m, s->token_ids, batch->token_ids, tokens, sizeof *s->token_ids);
    upload(m, s->positions, batch->positions, tokens, sizeof *s->positions);
    upload(m, s->slot_mapping, batch->slot_mapping, tokens, sizeof *s->slot_mapping);
    upload(m, s->query_start, batch->query_start, seqs + 1, sizeof *s->query_start);
    upload(m, s->seq_lens, batch->seq_lens, seqs, sizeof *s->seq_lens);
    upload(m, s->seq_slot, batch->seq_slot, seqs, sizeof *s->seq_slot);
    upload(m, s->sample_rows, batch->sample_rows, samples, sizeof *s->sample_rows);
    upload(m, s->sample_slot, batch->sample_slot, samples, sizeof *s->sample_slot);
    upload(m, s->sample_output, batch->sample_output, samples, sizeof *s->sample_output);
    upload(m, s->deltas, batch->deltas, batch->num_deltas, sizeof *s->deltas);
    upload(m, s->copies, batch->copies, batch->num_copies, sizeof *s->copies);
}

/* Block tables and block contents as the forward pass expects them. Host blocks come with swapping. */
static void move_blocks(struct model *m, const struct batch *batch)
{
    struct backend *b = m->backend;
    if (batch->num_deltas > 0)
        b->update_block_tables(b, m->state.block_tables, batch_max_blocks(&m->options.limits), m->state.deltas,
                               batch->num_deltas, NULL);
    if (batch->num_copies > 0)
        b->copy_blocks(b, m->k_cache, 2 * m->config.num_layers, model_cache_block_bytes(m), m->state.copies,
                       batch->num_copies, NULL);
}

static void sample(struct model *m, const struct batch *batch, int32_t *sampled, struct step_output *out)
{
    struct sample_args args = {
        .logits = m->act.logits,
        .num_samples = batch->num_samples,
        .vocab_size = m->config.vocab_size,
        .sample_slot = m->state.sample_slot,
        .sample_output = m->state.sample_output,
        .rows = m->state.rows,
        .history = m->state.history,
        .history_stride = m->options.limits.max_model_len,
        .token_ids = sampled,
        .logprobs = m->state.logprobs,
        .ranks = m->state.ranks,
        .top_ids = m->state.top_ids,
        .top_logprobs = m->state.top_logprobs,
    };
    for (int32_t i = 0; i < batch->num_samples; i++) {
        const struct slot_flags *flags = &m->slot_flags[batch->sample_slot[i]];
        args.any_processing |= flags->processing;
        args.any_random |= flags->random;
        args.any_logprobs |= flags->logprobs;
    }
    out->num_samples = batch->num_samples;
    out->any_logprobs = args.any_logprobs;
    if (batch->num_samples == 0) return;
    if (m->act.kept_logits)
        m->backend->copy(m->backend, m->act.kept_logits, m->act.logits,
                         (int64_t)batch->num_samples * m->config.vocab_size * (int64_t)sizeof(float), NULL);
    m->backend->sample(m->backend, &args, NULL);
}

static void download(struct model *m, const struct step_output *out, const int32_t *sampled)
{
    const int64_t n = out->num_samples;
    upload(m, out->token_ids, sampled, n, sizeof *sampled);
    if (!out->any_logprobs) return;
    upload(m, out->logprobs, m->state.logprobs, n, sizeof *out->logprobs);
    upload(m, out->ranks, m->state.ranks, n, sizeof *out->ranks);
    upload(m, out->top_ids, m->state.top_ids, n * SAMPLING_MAX_LOGPROBS, sizeof *out->top_ids);
    upload(m, out->top_logprobs, m->state.top_logprobs, n * SAMPLING_MAX_LOGPROBS, sizeof *out->top_logprobs);
}

enum status model_submit(struct model *m, const struct batch *batch, struct error *err)
{
    if (m->submitted - m->collected >= 2)
        return error_set(err, STATUS_INTERNAL, "two steps are in flight already; collect one first");
    const int parity = (int)(m->submitted & 1);
    int32_t *sampled = m->state.sampled + (int64_t)parity * m->options.limits.max_num_seqs;
    const int32_t *last_sampled = m->state.sampled + (int64_t)(1 - parity) * m->options.limits.max_num_seqs;
    struct step_output *out = &m->outputs[parity];
    upload_batch(m, batch);
    move_blocks(m, batch);
    llama_forward(m, batch, last_sampled);
    sample(m, batch, sampled, out);
    download(m, out, sampled);
    m->backend->event_record(m->backend, out->done, NULL);
    m->submitted++;
    return STATUS_OK;
}

enum status model_collect(struct model *m, struct sample_output *out, struct error *err)
{
    if (m->collected == m->submitted) return error_set(err, STATUS_INTERNAL, "no step is in flight");
    const struct step_output *o = &m->outputs[m->collected & 1];
    enum status status = m->backend->event_synchronize(m->backend, o->done, err);
    if (status != STATUS_OK) return status;
    m->collected++;
    *out = (struct sample_output){.num_samples = o->num_samples,
                                  .token_ids = o->token_ids,
                                  .logprobs = o->logprobs,
                                  .ranks = o->ranks,
                                  .top_ids = o->top_ids,
                                  .top_logprobs = o->top_logprobs};
    return STATUS_OK;
}

const float *model_logits(const struct model *m)
{
    return m->act.kept_logits;
}
