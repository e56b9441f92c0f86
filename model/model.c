#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/device_weights.h"
#include "model/inputs.h"
#include "model/llama.h"
#include "model/swap.h"

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
        {PURPOSE_ACTIVATIONS, T * ((int64_t)c->num_heads + 2 * c->num_kv_heads) * c->head_size, e, &a->qkv},
        {PURPOSE_ACTIVATIONS, T * c->num_heads * c->head_size, e, &a->attention},
        {PURPOSE_ACTIVATIONS, T * 2 * c->intermediate_size, e, &a->gate_up},
        {PURPOSE_ACTIVATIONS, T * c->intermediate_size, e, &a->gated},
        {PURPOSE_ACTIVATIONS, S * c->vocab_size, f, &a->logits},
        {PURPOSE_ACTIVATIONS, m->options.keep_logits ? S * c->vocab_size : 0, f, &a->kept_logits},
    };
    return allocate_plan(&m->arena, plan, sizeof plan / sizeof *plan, err);
}

static enum status allocate_state(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const int64_t S = limits->max_num_seqs, max_blocks = batch_max_blocks(limits);
    const int64_t i32 = sizeof(int32_t), f32 = sizeof(float);
    struct device_state *s = &m->state;
    const struct plan_entry plan[] = {
        {PURPOSE_STATE, S * max_blocks, i32, &s->block_tables},
        {PURPOSE_STATE, S, sizeof(struct sampling_state), &s->rows},
        {PURPOSE_STATE, S * limits->max_model_len, i32, &s->history},
        {PURPOSE_STATE, (int64_t)limits->max_model_len * m->config.head_size, f32, &s->cos_sin},
        {PURPOSE_STATE, S, i32, &s->sampled},
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
        struct step_host *o = &m->hosts[i];
        const struct plan_entry plan[] = {
            {PURPOSE_HOST_STAGING, S, i32, &o->token_ids},
            {PURPOSE_HOST_STAGING, S, f32, &o->logprobs},
            {PURPOSE_HOST_STAGING, S, i32, &o->ranks},
            {PURPOSE_HOST_STAGING, S * SAMPLING_MAX_LOGPROBS, i32, &o->top_ids},
            {PURPOSE_HOST_STAGING, S * SAMPLING_MAX_LOGPROBS, f32, &o->top_logprobs},
        };
        enum status status = allocate_plan(&m->arena, plan, sizeof plan / sizeof *plan, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status allocate_workspace(struct model *m, struct error *err)
{
    const struct model_config *c = &m->config;
    const struct batch_limits *limits = &m->options.limits;
    const int64_t q_size = (int64_t)c->num_heads * c->head_size;
    const int64_t wide = c->intermediate_size > q_size ? c->intermediate_size : q_size;
    const struct workspace_query query = {
        .max_num_tokens = limits->max_num_tokens,
        .max_num_seqs = limits->max_num_seqs,
        .max_model_len = limits->max_model_len,
        .num_heads = c->num_heads,
        .num_kv_heads = c->num_kv_heads,
        .head_size = c->head_size,
        .block_size = limits->block_size,
        .max_in_features = wide > c->hidden_size ? wide : c->hidden_size,
        .max_out_features = c->vocab_size > 2 * wide ? c->vocab_size : 2 * wide,
        .vocab_size = c->vocab_size,
        .dtype = m->options.dtype,
    };
    const int64_t bytes = m->backend->workspace_bytes(m->backend, &query);
    void *workspace;
    enum status status = arena_alloc(&m->arena, PURPOSE_WORKSPACE, bytes, &workspace, err);
    if (status == STATUS_OK && !m->arena.planning) m->backend->workspace_set(m->backend, workspace, bytes);
    return status;
}

static enum status upload_rope_table(struct model *m, struct error *err)
{
    const int32_t positions = m->options.limits.max_model_len;
    const size_t bytes = (size_t)positions * (size_t)m->config.head_size * sizeof(float);
    float *table = malloc(bytes);
    if (!table) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of rotary angles");
    rope_table(&m->config, positions, table);
    m->backend->copy(m->backend, m->state.cos_sin, table, (int64_t)bytes, NULL);
    enum status status = m->backend->stream_synchronize(m->backend, NULL, err);
    free(table);
    return status;
}

static void init(struct model *m, struct backend *backend, const struct model_config *config,
                 const struct model_weights *weights, const struct model_options *options)
{
    *m = (struct model){.backend = backend, .config = *config, .weights = weights, .options = *options};
    m->attention = (struct attention_params){.scale = (float)(1.0 / sqrt((double)config->head_size)),
                                             .window = config->sliding_window,
                                             .k_scale = 1,
                                             .v_scale = 1};
    arena_init(&m->arena, backend);
}

/* Everything on the device but weights and cache. */
static enum status allocate_step_memory(struct model *m, struct error *err)
{
    enum status status = inputs_allocate(m, err);
    if (status == STATUS_OK) status = allocate_activations(m, err);
    if (status == STATUS_OK) status = allocate_state(m, err);
    if (status == STATUS_OK) status = allocate_outputs(m, err);
    if (status == STATUS_OK) status = allocate_workspace(m, err);
    return status;
}

enum status model_plan(struct backend *backend, const struct model_config *config, const struct model_weights *weights,
                       const struct model_options *options, int64_t *bytes, struct error *err)
{
    struct model m;
    init(&m, backend, config, weights, options);
    m.arena.planning = true;
    enum status status = allocate_step_memory(&m, err);
    memcpy(bytes, m.arena.bytes, sizeof m.arena.bytes);
    bytes[PURPOSE_WEIGHTS] =
        options->copy_weights ? device_weights_bytes(config, weights, options->dtype) : weights->bytes;
    return status;
}

static enum status allocate_tables(struct model *m, struct error *err)
{
    m->sampling_needs = calloc((size_t)m->options.limits.max_num_seqs, sizeof *m->sampling_needs);
    m->k_cache = calloc(2 * (size_t)m->config.num_layers, sizeof *m->k_cache);
    if (!m->sampling_needs || !m->k_cache) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    m->v_cache = m->k_cache + m->config.num_layers;
    return STATUS_OK;
}

static enum status copy_weights(struct model *m, struct error *err)
{
    const struct model_weights *host = m->weights;
    m->weights = &m->device_weights;
    return device_weights_begin(&m->arena, &m->config, host, m->options.dtype, &m->device_weights, &m->upload, err);
}

enum status model_wait_for_weights(struct model *m, struct error *err)
{
    struct weights_upload *upload = m->upload;
    m->upload = NULL;
    return upload ? device_weights_finish(upload, err) : STATUS_OK;
}

enum status model_create(struct backend *backend, const struct model_config *config,
                         const struct model_weights *weights, const struct model_options *options, struct model **out,
                         struct error *err)
{
    struct model *m = malloc(sizeof *m);
    *out = NULL;
    if (!m) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    init(m, backend, config, weights, options);
    enum status status = allocate_tables(m, err);
    if (status == STATUS_OK && options->copy_weights) status = copy_weights(m, err);
    if (status == STATUS_OK) status = allocate_step_memory(m, err);
    for (int i = 0; i < 2 && status == STATUS_OK; i++) status = backend->event_create(backend, &m->hosts[i].done, err);
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
    return (int64_t)m->options.limits.block_size * m->config.num_kv_heads * m->config.head_size *
           dtype_size(m->options.cache_dtype);
}

void model_destroy(struct model *m)
{
    struct error ignored;
    if (!m) return;
    model_wait_for_weights(m, &ignored);
    for (int32_t i = 0; i < m->num_graphs; i++) m->backend->graph_destroy(m->backend, m->graphs[i].graph);
    for (int i = 0; i < 2; i++)
        if (m->hosts[i].done) m->backend->event_destroy(m->backend, m->hosts[i].done);
    swap_close(m);
    model_weights_close(&m->device_weights);
    arena_free(&m->arena);
    free(m->sampling_needs);
    free(m->k_cache);
    free(m);
}

static bool uses_history(const struct sampling_state *row)
{
    return row->repetition_penalty != 1 || row->presence_penalty != 0 || row->frequency_penalty != 0;
}

void model_set_sampling_state(struct model *m, int32_t slot, const struct sampling_state *row, const int32_t *tokens,
                              int32_t num_tokens)
{
    m->sampling_needs[slot] = (struct sampling_needs){
        .processing = row->min_tokens > 0 || row->num_bias > 0 || uses_history(row),
        .random = row->temperature >= 1e-5f,
        .logprobs = row->num_logprobs >= 0,
    };
    m->backend->copy(m->backend, &m->state.rows[slot], row, sizeof *row, NULL);
    if (uses_history(row))
        m->backend->copy(m->backend, m->state.history + (int64_t)slot * m->options.limits.max_model_len, tokens,
                         (int64_t)num_tokens * (int64_t)sizeof *tokens, NULL);
}

static void sample(struct model *m, const struct batch *batch, struct step_host *host)
{
    struct sample_args args = {
        .logits = m->act.logits,
        .num_samples = batch->num_samples,
        .vocab_size = m->config.vocab_size,
        .state_indices = m->inputs.sample_state_indices,
        .output_positions = m->inputs.sample_output,
        .states = m->state.rows,
        .history = m->state.history,
        .history_stride = m->options.limits.max_model_len,
        .token_ids = m->state.sampled,
        .logprobs = m->state.logprobs,
        .ranks = m->state.ranks,
        .top_ids = m->state.top_ids,
        .top_logprobs = m->state.top_logprobs,
    };
    for (int32_t i = 0; i < batch->num_samples; i++) {
        const struct sampling_needs *flags = &m->sampling_needs[batch->sample_state_indices[i]];
        args.any_processing |= flags->processing;
        args.any_random |= flags->random;
        args.any_logprobs |= flags->logprobs;
    }
    host->num_samples = batch->num_samples;
    host->any_logprobs = args.any_logprobs;
    if (batch->num_samples == 0) return;
    if (m->act.kept_logits)
        m->backend->copy(m->backend, m->act.kept_logits, m->act.logits,
                         (int64_t)batch->num_samples * m->config.vocab_size * (int64_t)sizeof(float), NULL);
    m->backend->sample(m->backend, &args);
}

static void download(struct model *m, const struct step_host *host)
{
    struct backend *b = m->backend;
    const struct device_state *s = &m->state;
    const int64_t n = host->num_samples, top = n * SAMPLING_MAX_LOGPROBS;
    if (n == 0) return;
    b->copy(b, host->token_ids, s->sampled, n * (int64_t)sizeof *s->sampled, NULL);
    if (!host->any_logprobs) return;
    b->copy(b, host->logprobs, s->logprobs, n * (int64_t)sizeof *s->logprobs, NULL);
    b->copy(b, host->ranks, s->ranks, n * (int64_t)sizeof *s->ranks, NULL);
    b->copy(b, host->top_ids, s->top_ids, top * (int64_t)sizeof *s->top_ids, NULL);
    b->copy(b, host->top_logprobs, s->top_logprobs, top * (int64_t)sizeof *s->top_logprobs, NULL);
}

static bool samples_every_token(const struct batch *batch)
{
    if (batch->num_samples != batch->num_tokens) return false;
    for (int32_t i = 0; i < batch->num_samples; i++)
        if (batch->logits_indices[i] != i) return false;
    return true;
}

/* The smallest graph that a batch of nothing but decodes fits in, or NULL. Graphs do not wait for swaps. */
static const struct decode_graph *find_graph(const struct model *m, const struct batch *batch, bool all_sampled)
{
    if (batch->num_decodes != batch->num_seqs || !all_sampled || swap_is_needed(batch)) return NULL;
    for (int32_t i = 0; i < m->num_graphs; i++)
        if (m->graphs[i].rows >= batch->num_seqs) return &m->graphs[i];
    return NULL;
}

static struct step_shape shape_of(const struct batch *batch, bool all_sampled)
{
    return (struct step_shape){
        .num_tokens = batch->num_tokens,
        .num_seqs = batch->num_seqs,
        .num_decodes = batch->num_decodes,
        .num_samples = batch->num_samples,
        .max_query_len = batch->max_query_len,
        .max_seq_len = batch->max_seq_len,
        .all_sampled = all_sampled,
        .swaps = swap_is_needed(batch),
    };
}

enum status model_submit(struct model *m, const struct batch *batch, struct error *err)
{
    if (m->submitted - m->collected >= 2)
        return error_set(err, STATUS_INTERNAL, "two steps are in flight already; collect one first");
    struct step_host *host = &m->hosts[m->submitted & 1];
    const bool all_sampled = samples_every_token(batch);
    const struct decode_graph *graph = find_graph(m, batch, all_sampled);
    inputs_upload(m, batch, graph ? graph->rows : 0, host);
    swap_move_blocks(m, batch);
    if (graph) {
        m->backend->graph_launch(m->backend, graph->graph);
    } else {
        const struct step_shape shape = shape_of(batch, all_sampled);
        llama_forward(m, &shape);
    }
    sample(m, batch, host);
    download(m, host);
    m->backend->event_record(m->backend, host->done, NULL);
    m->submitted++;
    return STATUS_OK;
}

enum status model_collect(struct model *m, struct sample_output *out, struct error *err)
{
    if (m->collected == m->submitted) return error_set(err, STATUS_INTERNAL, "no step is in flight");
    const struct step_host *host = &m->hosts[m->collected & 1];
    enum status status = m->backend->event_synchronize(m->backend, host->done, err);
    if (status != STATUS_OK) return status;
    m->collected++;
    *out = (struct sample_output){.num_samples = host->num_samples,
                                  .token_ids = host->token_ids,
                                  .logprobs = host->logprobs,
                                  .ranks = host->ranks,
                                  .top_ids = host->top_ids,
                                  .top_logprobs = host->top_logprobs};
    return STATUS_OK;
}

const float *model_logits(const struct model *m)
{
    return m->act.kept_logits;
}

/* ---- warm-up and graphs ---- */

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
    batch->state_indices[0] = batch->sample_state_indices[0] = batch->sample_output[0] = 0;
    batch->logits_indices[0] = tokens - 1;
    for (int32_t t = 0; t < tokens; t++) {
        batch->token_ids[t] = 0;
        batch->positions[t] = t;
        batch->slot_mapping[t] = -1;
    }
    enum status status = model_submit(m, batch, err);
    return status == STATUS_OK ? model_collect(m, &out, err) : status;
}

enum status model_warm_up(struct model *m, struct error *err)
{
    const struct batch_limits *limits = &m->options.limits;
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    int32_t longest = limits->max_num_tokens < limits->max_model_len ? limits->max_num_tokens : limits->max_model_len;
    if (longest > 256) longest = 256;
    struct batch batch;
    enum status status = batch_init(&batch, limits, 1, err);
    if (status == STATUS_OK) status = model_allocate_cache(m, 0, err);
    if (status == STATUS_OK) {
        model_set_sampling_state(m, 0, &greedy, NULL, 0);
        status = run_empty_step(m, 1, &batch, err); /* first: what is loaded ahead is for prefills */
    }
    if (status == STATUS_OK) status = run_empty_step(m, longest, &batch, err);
    arena_release(&m->arena, PURPOSE_KV_CACHE);
    batch_free(&batch);
    return status;
}

/* Few, because each takes some ten milliseconds of the start, and its kernels; rows in vain cost little up to the next
 * size that matrix products come in. */
static int32_t next_rows(int32_t rows)
{
    if (rows < 16) return rows * 2;
    if (rows < 64) return rows + 16;
    return rows < 256 ? rows + 32 : rows + 64;
}

/* A padded batch attends to nothing, so the contents of the inputs do not matter for what is captured; only the bound
 * on the context length does, and it must hold for every later step. */
static enum status capture(struct model *m, int32_t rows, struct decode_graph *graph, struct error *err)
{
    struct backend *b = m->backend;
    const struct step_shape shape = {.num_tokens = rows,
                                     .num_seqs = rows,
                                     .num_decodes = rows,
                                     .num_samples = rows,
                                     .max_query_len = 1,
                                     .max_seq_len = m->options.limits.max_model_len,
                                     .all_sampled = true};
    enum status status = b->capture_begin(b, err);
    if (status != STATUS_OK) return status;
    llama_forward(m, &shape);
    graph->rows = rows;
    return b->capture_end(b, &graph->graph, err);
}

enum status model_capture(struct model *m, struct error *err)
{
    const int32_t max_num_seqs = m->options.limits.max_num_seqs;
    if (!m->backend->capture_begin || m->options.enforce_eager) return STATUS_OK;
    for (int32_t rows = 1; m->num_graphs < MODEL_MAX_GRAPHS; rows = next_rows(rows)) {
        const int32_t captured = rows < max_num_seqs ? rows : max_num_seqs;
        enum status status = capture(m, captured, &m->graphs[m->num_graphs], err);
        if (status != STATUS_OK) return status;
        m->num_graphs++;
        if (captured == max_num_seqs) break;
    }
    return STATUS_OK;
}
